/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends of different users, or in different namespaces of one network namespace,
 * meet all the same: if the kernel does not say that the user of one end owns
 * the other, possession is the proof. Needs root; exits with 77 without. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/conformance/conf.h"

/* The search for leaks needs /proc, which some rows take away. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

/* What an end does before it starts the library, and after it has its
 * connection. */
struct guise {
	void (*before)(void);
	void (*after)(void);
};

static void as_is(void)
{
}

static void talk(int s, struct t_want want)
{
	t_settle(s, want);
	t_send_stream(s, 1, 0, 200000, 9000);
	t_recv_stream(s, 2, 0, 200000, 9000);
	t_close(s);
}

static void answer(int s, struct t_want want)
{
	t_settle(s, want);
	t_recv_stream(s, 1, 0, 200000, 7000);
	t_send_stream(s, 2, 0, 200000, 7000);
	t_recv_end(s);
	t_close(s);
}

static struct t_want wanted;

static void server(int ctl, void *arg)
{
	const struct guise *g = arg;
	struct t_addr at;
	int l, s;

	g->before();
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(ctl, t_port_of(l));
	s = t_accept(l);
	g->after();
	answer(s, wanted);
	t_close(l);
}

static void client(int ctl, void *arg)
{
	const struct guise *g = arg;
	struct t_addr to;
	int s;

	g->before();
	t_init();
	to = t_loopback(T_IPV4, t_ask(ctl));
	s = t_connect(&to);
	g->after();
	talk(s, wanted);
}

static void meet(struct t_want want, const struct guise *a,
		 const struct guise *b)
{
	struct t_peer pa, pb;

	wanted = want;
	t_peer_start(&pb, server, (void *)(uintptr_t)b);
	t_peer_start(&pa, client, (void *)(uintptr_t)a);
	t_tell(pa.ctl, t_ask(pb.ctl));
	t_peer_join(&pa);
	t_peer_join(&pb);
}

static const struct guise root = { as_is, as_is };
static const struct guise nobody = { t_become_nobody, as_is };
static const struct guise dropped = { as_is, t_become_nobody };

static void a_client_of_another_user_meets_the_server(void)
{
	meet(conf_apart(), &nobody, &root);
}

static void a_server_of_another_user_meets_the_client(void)
{
	meet(conf_apart(), &root, &nobody);
}

static void two_ends_without_privileges_meet(void)
{
	meet(conf_apart(), &nobody, &nobody);
}

static void accepted_as_root_and_served_as_nobody(void)
{
	meet(conf_apart(), &root, &dropped);
	meet(conf_apart(), &nobody, &dropped);
}

static void connected_as_root_and_used_as_nobody(void)
{
	meet(conf_apart(), &dropped, &root);
	meet(conf_apart(), &dropped, &dropped);
}

static void new_user_namespace(void)
{
	T_OK(unshare(CLONE_NEWUSER));
}

static void nobody_in_a_new_user_namespace(void)
{
	t_become_nobody();
	T_OK(unshare(CLONE_NEWUSER));
}

static const struct guise apart = { new_user_namespace, as_is };
static const struct guise far_apart = { nobody_in_a_new_user_namespace, as_is };

static void ends_in_different_user_namespaces_meet(void)
{
	meet(conf_apart(), &apart, &root);
	meet(conf_apart(), &root, &apart);
	meet(conf_apart(), &apart, &apart);
}

static void ends_of_two_users_in_two_user_namespaces_meet(void)
{
	meet(conf_apart(), &far_apart, &root);
	meet(conf_apart(), &apart, &far_apart);
}

/* Goes on as process 1 of a pid namespace; the process that was here waits
 * for it. */
static void new_pid_namespace(void)
{
	int status;
	pid_t pid;

	T_OK(unshare(CLONE_NEWPID | CLONE_NEWNS));
	T_OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	pid = t_fork();
	if (pid > 0) {
		T_EQ(waitpid(pid, &status, 0), pid);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
}

static void container(void)
{
	new_pid_namespace();
	T_OK(mount("proc", "/proc", "proc", 0, NULL));
}

static void container_without_proc(void)
{
	new_pid_namespace();
	T_OK(mount("none", "/proc", "tmpfs", 0, NULL));
}

static const struct guise contained = { container, as_is };
static const struct guise blind = { container_without_proc, as_is };

static void ends_in_different_pid_and_mount_namespaces_meet(void)
{
	meet(conf_apart(), &contained, &root);
	meet(conf_apart(), &root, &contained);
	meet(conf_apart(), &contained, &contained);
}

static void ends_without_proc_meet(void)
{
	meet(conf_apart(), &blind, &blind);
	meet(conf_apart(), &blind, &root);
	meet(conf_apart(), &root, &blind);
}

/* A root of its own, with nothing in it. */
static void changed_root(void)
{
	char path[] = "/tmp/exs-root-XXXXXX";
	int tmp = T_OK(open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC));

	T(mkdtemp(path));
	T_OK(chroot(path));
	T_OK(chdir("/"));
	T_OK(unlinkat(tmp, path + strlen("/tmp/"), AT_REMOVEDIR));
	close(tmp);
}

static void nobody_in_a_changed_root(void)
{
	changed_root();
	t_become_nobody();
}

static const struct guise rooted = { changed_root, as_is };
static const struct guise rooted_nobody = { nobody_in_a_changed_root, as_is };

static void ends_in_changed_roots_meet(void)
{
	meet(conf_apart(), &rooted, &rooted);
	meet(conf_apart(), &rooted, &root);
	meet(conf_apart(), &root, &rooted_nobody);
	meet(conf_apart(), &rooted_nobody, &nobody);
	meet(conf_apart(), &rooted_nobody, &dropped);
}

static const struct t_row rows[] = {
	T_ROW(a_client_of_another_user_meets_the_server),
	T_ROW(a_server_of_another_user_meets_the_client),
	T_ROW(two_ends_without_privileges_meet),
	T_ROW(accepted_as_root_and_served_as_nobody),
	T_ROW(connected_as_root_and_used_as_nobody),
	T_ROW(ends_in_different_user_namespaces_meet),
	T_ROW(ends_of_two_users_in_two_user_namespaces_meet),
	T_ROW(ends_in_different_pid_and_mount_namespaces_meet),
	T_ROW(ends_without_proc_meet),
	T_ROW(ends_in_changed_roots_meet),
};

/* In a child: what the rows need is allowed here. */
static bool namespaces_allowed(void)
{
	int status;
	pid_t pid = t_fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) || unshare(CLONE_NEWPID) ||
		      unshare(CLONE_NEWNS));
	T_EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
	/* What there is depends on nothing. */
	if (argc > 1 && !strcmp(argv[1], "--list"))
		return conf_main(argc, argv, "users", rows, T_COUNT(rows));
	if (geteuid() != 0) {
		printf("needs root, to become another user\n");
		return T_SKIP;
	}
	if (!namespaces_allowed()) {
		printf("needs user, pid and mount namespaces\n");
		return T_SKIP;
	}
	return conf_main(argc, argv, "users", rows, T_COUNT(rows));
}
