/* SPDX-License-Identifier: BSD-2-Clause */
/* Every operation of a fabric fails, at each of its calls in turn, in every way
 * that provider.h allows (providers/hook). What may fail so costs a connection
 * its fabric at most: all bytes arrive. Where the fabric says that the peer
 * broke the protocol, a connection may end: with an error, after a part of its
 * bytes, in time.
 *
 * hooked FABRIC [MOST [OPERATION]]: no operation fails later than at its call
 * MOST. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/hook/hook.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/talk.h"
#include "tests/support/wait.h"

#define NOT_REACHED 78 /* exit status */
#define LIMIT_S	    20 /* of a trial */

static const char *fabric;
static bool lossy; /* connections may end */

static void may_end(const struct t_talk *t, ssize_t n, const char *call)
{
	T_MSG(lossy, "%s gave %zd (%s); %s", call, n,
	      n ? t_errname(errno) : "the end", t_where(t->s));
	T_MSG(n == 0 || errno == ECONNRESET || errno == EPIPE, "%s says %s",
	      call, t_errname(errno));
}

/* The end that accepts sends back so many bytes as come. */
static void *answer(void *arg)
{
	struct t_talk *e = arg;
	ssize_t n = t_talk_answer(e);

	if (n < 0)
		t_talk_ended(e, n, "recv");
	t_close(e->s);
	return NULL;
}

/* A fabric that failed leaves the connection on TCP, undecided for ever. */
static void swap_until_decided(struct t_talk *e)
{
	struct t_deadline d = t_deadline_ms(200);

	do
		t_talk_swap(e, 500);
	while (!e->lost &&
	       t_info(e->s).exs_x_reason == EXS_X_REASON_UNDECIDED &&
	       t_tick(&d));
}

static void take_event(struct t_talk *e, exs_qhandle_t q, const char *in,
		       size_t want)
{
	exs_event_t ev = t_event(q);
	size_t len = ev.exs_evt_un.exs_evt_xfer.exs_evt_length;

	errno = ev.exs_errno;
	if (errno || len < want)
		t_talk_ended(e, errno ? -1 : 0, "an operation");
	else if (ev.exs_evt_type == EXS_EVT_RECV)
		t_check_bytes(in, len, 2, e->received);
}

static void by_queue(struct t_talk *e)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char out[1000], in[1000];
	int n = 0;

	t_fill(out, sizeof(out), 1, e->sent);
	n += !exs_recv(e->s, in, sizeof(in), MSG_WAITALL, q, NULL, 0);
	n += !exs_send(e->s, out, sizeof(out), MSG_NOSIGNAL, q, NULL, 0);
	if (n < 2)
		t_talk_ended(e, -1, "a submission");
	for (; n; n--) {
		/* The other operation has its event, too. */
		if (e->lost)
			exs_shutdown(e->s, SHUT_RDWR, T_SYNC);
		take_event(e, q, in, sizeof(in));
	}
	e->sent += sizeof(out);
	e->received += sizeof(in);
	T_OK(exs_qdelete(q));
}

static void say_end(struct t_talk *e)
{
	ssize_t n;

	if (t_shutdown(e->s, SHUT_WR) && !e->lost)
		T_MSG(lossy && errno == ENOTCONN, "shutdown says %s",
		      t_errname(errno));
	n = t_talk_get(e, 2, 1000);
	T_MSG(n == 0 || lossy, "no end: %zd (%s)", n, t_errname(errno));
}

/* All that a fabric does for a connection. */
static void use(struct t_talk *e)
{
	swap_until_decided(e);
	t_talk_swap(e, 4000);
	if (!e->lost)
		t_talk_loan(e);
	if (!e->lost)
		by_queue(e);
	/* Back to TCP with bytes under way, and there again. */
	t_talk_put(e, 1, 3000);
	exs_x_downgrade(e->s);
	t_talk_get_all(e, 2, 3000);
	t_talk_swap(e, 500);
	exs_x_adopt(e->s);
	swap_until_decided(e);
	t_talk_swap(e, 2000);
	say_end(e);
}

static void trial(enum hookp_op op, unsigned int n, int error)
{
	struct t_talk a = { .may_end = may_end }, b = a;
	struct t_addr at;
	pthread_t t;
	int l;

	alarm(LIMIT_S * (unsigned int)t_slow());
	t_note("%s of %s, call %u: %s", hookp_name(op), fabric, n,
	       t_errname(-error));
	lossy = error == -EPROTO;
	hookp_fail(fabric, op, n, error);
	t_init();
	l = t_listener(T_IPV4, &at);
	a.s = t_connect(&at);
	b.s = t_accept(l);
	t = t_thread(answer, &b);
	use(&a);
	t_close(a.s);
	t_thread_join(t);
	T_MSG(lossy || (a.received == b.sent && b.received == a.sent),
	      "bytes are missing");
	t_close(l);
	exit(hookp_failed() ? 0 : NOT_REACHED);
}

/* Whether the operation had so many calls. */
static bool try(enum hookp_op op, unsigned int n, int error)
{
	int status;
	pid_t pid = t_fork();

	if (!pid)
		trial(op, n, error);
	T_EQ(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) &&
	    (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == NOT_REACHED))
		return WEXITSTATUS(status) == 0;
	t_fail(__FILE__, __LINE__, "%s of %s, call %u, %s: %s %d",
	       hookp_name(op), fabric, n, t_errname(-error),
	       WIFSIGNALED(status) ? "died of signal" : "exits with",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	unsigned int most = argc > 2 ? (unsigned int)atoi(argv[2]) : 100;
	unsigned int all = 0, n;
	const int *error;
	char list[32];

	if (argc < 2) {
		fprintf(stderr, "hooked FABRIC [MOST [OPERATION]]\n");
		return 2;
	}
	fabric = argv[1];
	snprintf(list, sizeof(list), "%s%s", fabric,
		 strcmp(fabric, "tcp") ? ",tcp" : "");
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", list, 1);
	setenv("EXS_UPGRADE", "connect", 1);
	setenv("EXS_LOG", "off", 0);
	for (enum hookp_op op = 0; op < HOOKP_OPS; op++) {
		if (argc > 3 && strcmp(argv[3], hookp_name(op)))
			continue;
		for (error = hookp_errors(op); *error; error++) {
			/* What the kernel says goes to the program. */
			if (*error != -EAGAIN && *error != -EBUSY &&
			    !strcmp(fabric, "tcp"))
				continue;
			for (n = 1; n <= most && try(op, n, *error); n++)
				;
			all += n - 1;
			printf("%s: %u calls failed with %s\n", hookp_name(op),
			       n - 1, t_errname(-*error));
		}
	}
	printf("%u calls of %s failed\n", all, fabric);
	T(all > 0);
	return 0;
}
