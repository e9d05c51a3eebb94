/* SPDX-License-Identifier: BSD-2-Clause */
/* SIGKILL at random moments of two processes' connection, in all phases: the
 * handshake, the meeting, the switch, streaming, the close. The survivor sees
 * a prefix and then an end or an error. Nothing is left behind: no abstract
 * socket, no file in /dev/shm; the port serves again at once. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

/* A busy host has all rounds wait for a CPU; one that hangs does not end. */
#define ROUND_S 60

static int rounds = 200;
static uint64_t seed;

static struct shared {
	_Atomic int begun; /* the client is about to connect */
} * shared;

struct stream_end {
	int s;
	uint64_t out_seed;
	uint64_t in_seed;
	uint64_t len;
};

static bool peer_loss(int err)
{
	return err == EPIPE || err == ECONNRESET;
}

static void *stream_out(void *arg)
{
	struct stream_end *e = arg;
	struct t_rng r = { e->out_seed };
	uint64_t pos = 0;
	char buf[9000];

	while (pos < e->len) {
		size_t len = t_chunk(&r, sizeof(buf));
		ssize_t n;

		t_fill(buf, len, e->out_seed, pos);
		n = t_send(e->s, buf, len, MSG_NOSIGNAL);
		if (n < 0) {
			T_MSG(peer_loss(errno), "send says %s",
			      t_errname(errno));
			return NULL;
		}
		pos += n;
	}
	T_MSG(t_shutdown(e->s, SHUT_WR) == 0 || errno == ENOTCONN,
	      "shutdown says %s", t_errname(errno));
	return NULL;
}

static void stream_in(struct stream_end *e)
{
	uint64_t pos = 0;
	char buf[20000];
	ssize_t n;

	while ((n = t_recv(e->s, buf, sizeof(buf), 0)) > 0) {
		t_check_bytes(buf, n, e->in_seed, pos);
		pos += n;
	}
	T_MSG(n == 0 || peer_loss(errno), "recv says %s", t_errname(errno));
}

/* Moves the connection to and fro while it lives. */
static void *disturb(void *arg)
{
	struct stream_end *e = arg;
	struct t_rng r = { e->in_seed };
	int i;

	for (i = 0; i < 30; i++) {
		exs_x_downgrade(e->s);
		t_spin_ns(t_below(&r, 100000));
		exs_x_adopt(e->s);
		t_spin_ns(t_below(&r, 400000));
	}
	return NULL;
}

static void use(int s, uint64_t out_seed, uint64_t in_seed)
{
	struct t_rng r = { out_seed };
	struct stream_end e = {
		.s = s,
		.out_seed = out_seed,
		.in_seed = in_seed,
		.len = t_chunk(&r, 8 << 20),
	};
	bool disturbed = t_below(&r, 2);
	pthread_t out = t_thread(stream_out, &e), other;

	if (disturbed)
		other = t_thread(disturb, &e);
	stream_in(&e);
	t_thread_join(out);
	if (disturbed)
		t_thread_join(other);
	T_OK(exs_close(s, T_SYNC));
}

/* As servers do that want to be restarted. The kernel may have given the port
 * to a program beside the test meanwhile. */
static int listener_on(int port)
{
	struct t_addr at = t_loopback(T_IPV4, port);
	int l = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int on = 1;

	T_OK(exs_setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	T_UNTIL(exs_bind(l, (struct sockaddr *)&at.ss, at.len) == 0 ||
		errno != EADDRINUSE);
	T(port ? t_port_of(l) == port : t_port_of(l) != 0);
	T_OK(exs_listen(l, 5));
	return l;
}

/* The client may be killed before it connects: then the line says so, and the
 * accept is cancelled. -1 when there was no connection. */
static int accept_or_hear(int l, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(1));
	struct pollfd p[2] = {
		{ .fd = exs_x_qfd(q), .events = POLLIN },
		{ .fd = ctl, .events = POLLIN },
	};
	struct timeval none = { 0 };
	exs_event_t e = { 0 };

	T_EQ(exs_accept(l, NULL, SOCK_CLOEXEC, q, NULL), 0);
	while (T_OK(exs_qdequeue(q, &e, 1, &none)) == 0) {
		poll(p, 2, -1);
		if (p[1].revents == 0)
			continue;
		T_OK(exs_cancel(l, NULL, EXS_CAF_FILDES));
		e = t_event(q);
		break;
	}
	T_EQ(e.exs_evt_type, EXS_EVT_ACCEPT);
	T(e.exs_errno == 0 || e.exs_errno == ECANCELED);
	T_OK(exs_qdelete(q));
	return e.exs_errno ? -1 : e.exs_evt_un.exs_evt_accept.exs_evt_newfd;
}

static void victim_server(int ctl, void *arg)
{
	int l, s;

	t_init();
	l = listener_on(0);
	t_tell(ctl, t_port_of(l));
	s = accept_or_hear(l, ctl);
	if (s >= 0)
		use(s, seed * 2, seed * 2 + 1);
	t_close(l);
}

static void victim_client(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, t_ask(ctl));
	int s;

	t_init();
	s = T_OK(exs_socket(to.domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	shared->begun = 1;
	if (exs_connect(s, (struct sockaddr *)&to.ss, to.len, 0, T_SYNC)) {
		T_MSG(errno == ECONNREFUSED || peer_loss(errno),
		      "connect says %s", t_errname(errno));
		T_OK(exs_close(s, T_SYNC));
		return;
	}
	use(s, seed * 2 + 1, seed * 2);
}

/* The moment is random on purpose: most fall into the first milliseconds,
 * where the ends meet. */
static void some_time(struct t_rng *r)
{
	struct timespec ts = { 0 };

	T_UNTIL(shared->begun);
	ts.tv_nsec = t_below(r, 3) ? t_below(r, 4000000) : t_below(r, 40000000);
	ts.tv_nsec *= t_slow();
	ppoll(NULL, 0, &ts, NULL);
}

static struct t_want at_best(void)
{
	static char fabric[16];
	const char *list = getenv("EXS_PROVIDER");

	snprintf(fabric, sizeof(fabric), "%.*s", (int)strcspn(list, ","), list);
	return (struct t_want){ fabric, EXS_X_REASON_NONE };
}

/* Files that could be ours, in the folder of POSIX shared memory. */
static int files_in_shm(void)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += strstr(e->d_name, "exs") != NULL;
	if (dir)
		closedir(dir);
	return n;
}

static void next_server(int ctl, void *arg)
{
	int port = t_ask(ctl), l, s;

	t_init();
	l = listener_on(port);
	t_tell(ctl, 1);
	s = t_accept(l);
	t_settle(s, at_best());
	t_recv_end(s);
	t_close(s);
	t_close(l);
}

static void next_client(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, t_ask(ctl));
	int s;

	t_init();
	s = t_connect(&to);
	t_settle(s, at_best());
	t_close(s);
}

static void restart(int port)
{
	struct t_peer server, client;

	t_peer_start(&server, next_server, NULL);
	t_peer_start(&client, next_client, NULL);
	t_tell(server.ctl, port);
	t_expect(server.ctl, 1);
	t_tell(client.ctl, port);
	t_peer_join(&client);
	t_peer_join(&server);
}

static void one_round(struct t_rng *r)
{
	struct t_peer server, client;
	int port, who = t_below(r, 3);

	seed = t_rand(r);
	shared->begun = 0;
	t_peer_start(&server, victim_server, NULL);
	t_peer_start(&client, victim_client, NULL);
	port = t_ask(server.ctl);
	t_tell(client.ctl, port);
	some_time(r);
	if (who != 0)
		T_OK(kill(server.pid, SIGKILL));
	if (who != 1)
		T_OK(kill(client.pid, SIGKILL));
	if (who == 0)
		send(server.ctl, &port, sizeof(port), MSG_NOSIGNAL);
	if (who == 0)
		t_peer_join(&server);
	else
		t_peer_kill(&server);
	if (who == 1)
		t_peer_join(&client);
	else
		t_peer_kill(&client);
	restart(port);
	T_UNTIL(t_names_of(port) == 0);
}

static void nothing_is_left_behind_by_sigkill_at_any_moment(void)
{
	uint64_t first = seed;
	struct t_rng r = { first };
	int files = files_in_shm(), i;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T(shared != MAP_FAILED);
	for (i = 0; i < rounds; i++) {
		t_note("round %d of seed %llu", i, (unsigned long long)first);
		t_guard(ROUND_S);
		one_round(&r);
		T_EQ(files_in_shm(), files);
	}
	alarm(0);
}

int main(int argc, char **argv)
{
	struct t_row row =
		T_ROW(nothing_is_left_behind_by_sigkill_at_any_moment);

	seed = t_now_ns();
	if (argc > 1)
		rounds = atoi(argv[1]);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0);
	row.limit_s = ROUND_S * (1 + (unsigned int)rounds);
	setenv("EXS_PROVIDER", "shm,tcp", 0);
	return t_run("kill", &row, 1, NULL);
}
