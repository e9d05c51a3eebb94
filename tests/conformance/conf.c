/* SPDX-License-Identifier: BSD-2-Clause */
/* The provider under test, and rows with two sides. */
#include "tests/conformance/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *provider;

int conf_main(int argc, char **argv, const char *group,
	      const struct t_row *rows, size_t n)
{
	char list[32];

	if (argc < 2) {
		fprintf(stderr,
			"usage: %s --list | loop|shm|tcp|verbs|ofi [PATTERN]\n",
			argv[0]);
		return 2;
	}
	if (!strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < n; i++)
			printf("%s:%s\n", group, rows[i].name);
		return 0;
	}
	provider = argv[1];
	if (strcmp(provider, "loop") && strcmp(provider, "shm") &&
	    strcmp(provider, "tcp") && !conf_between()) {
		printf("provider %s is unknown here\n", provider);
		return T_SKIP;
	}
	if (strcmp(provider, "tcp") && !t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	snprintf(list, sizeof(list), "%s%s", provider,
		 strcmp(provider, "tcp") ? ",tcp" : "");
	setenv("EXS_PROVIDER", list, 1);
	if (getenv("T_HOOK") && !getenv("T_HOOKED")) {
		fprintf(stderr, "T_HOOK is set, and the library has no hook\n");
		return 1;
	}
	return t_run(group, rows, n, argc > 2 ? argv[2] : NULL);
}

static const struct t_want on_tcp = { "tcp", EXS_X_REASON_NO_PROVIDER };

bool conf_between(void)
{
	return conf_is("verbs") || conf_is("ofi");
}

bool conf_is(const char *name)
{
	return !strcmp(provider, name);
}

struct t_want conf_here(void)
{
	if (!strcmp(provider, "tcp"))
		return on_tcp;
	return (struct t_want){ provider, EXS_X_REASON_NONE };
}

struct t_want conf_apart(void)
{
	if (conf_between())
		return conf_here();
	return strcmp(provider, "shm") ? on_tcp : T_SHM;
}

void conf_recv_dead_end(int s)
{
	char byte;

	if (conf_between())
		T_ERR(t_recv(s, &byte, 1, 0), ECONNRESET);
	T_EQ(T_OK(t_recv(s, &byte, 1, 0)), 0);
}

void conf_pair(int fd[2])
{
	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
}

struct side {
	conf_side *run;
	int s;
	int ctl;
};

static void *run_side(void *arg)
{
	struct side *side = arg;

	side->run(side->s, side->ctl);
	return NULL;
}

static void duo_here(conf_side *a, conf_side *b)
{
	struct side side = { .run = b };
	int fd[2], ctl[2];
	pthread_t t;

	conf_pair(fd);
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ctl));
	side.s = fd[1];
	side.ctl = ctl[1];
	t = t_thread(run_side, &side);
	a(fd[0], ctl[0]);
	t_thread_join(t);
	close(ctl[0]);
	close(ctl[1]);
}

static conf_side *far_side;
static bool settle_first;

static void far_end(int s, int ctl)
{
	if (settle_first)
		t_settle(s, conf_apart());
	far_side(s, ctl);
}

static void duo_apart(conf_side *a, conf_side *b, bool settled)
{
	struct t_peer p;
	int s;

	far_side = b;
	settle_first = settled;
	s = t_pair_fork(&p, T_A, far_end);
	if (settled)
		t_settle(s, conf_apart());
	a(s, p.ctl);
	t_peer_join(&p);
}

void conf_duo(enum conf_mode mode, conf_side *a, conf_side *b)
{
	if (mode == CONF_HERE)
		duo_here(a, b);
	else
		duo_apart(a, b, mode == CONF_APART);
}
