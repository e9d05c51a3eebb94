/* SPDX-License-Identifier: BSD-2-Clause */
/* One operation that is larger than what TCP holds is moved on its way,
 * whichever end sends, whatever call it is. The other end reads past the last
 * mark, and then little at a time until the operation goes over the fabric.
 * api_big ENGINE [ROWS] */
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define MB   (1024l * 1024)
#define SIZE (80 * MB)
#define PAST                                                                   \
	(24 * MB) /* the last mark, and what buffers of TCP have before it */
#define SEED 7

static char *content;

static void prepare(void)
{
	t_init();
	content = malloc(SIZE);
	T(content != NULL);
	t_fill(content, SIZE, SEED, 0);
}

static bool sends_on_shm(int s)
{
	return !strcmp(t_info(s).exs_x_tx_fabric, "shm");
}

/* A call that waits in the kernel waits for a mebibyte to be taken. */
#define STEP (2 * MB)

static bool soon_on_shm(int s)
{
	struct t_deadline d = t_deadline_ms(500);

	while (!sends_on_shm(s))
		if (!t_tick(&d))
			return false;
	return true;
}

/* The peer of one that sends it all. */
static void take(int to, int from)
{
	size_t at = PAST;

	t_recv_stream(to, SEED, 0, PAST, 65536);
	for (; at < SIZE - STEP && !soon_on_shm(from); at += STEP)
		t_recv_stream(to, SEED, at, STEP, 65536);
	T(sends_on_shm(from));
	t_recv_stream(to, SEED, at, SIZE - at, 65536);
	T_UNTIL(t_is(from, T_SHM) && t_is(to, T_SHM));
	T(t_info(from).exs_x_tx_fabric_bytes > 0);
	T_EQ(t_info(from).exs_x_tx_bytes, SIZE);
	T_EQ(t_info(to).exs_x_rx_bytes, SIZE);
}

typedef void post(int s, exs_qhandle_t q);

static void sent(post *f, int type)
{
	exs_qhandle_t q;
	int fd[2];

	prepare();
	q = T_OK(exs_qcreate(4));
	for (int who = 0; who < 2; who++) {
		t_note("%s end sends", who ? "accepting" : "connecting");
		t_pair(T_IPV4, fd);
		f(fd[who], q);
		take(fd[!who], fd[who]);
		T_EQ(t_event_is(q, type, 0), SIZE);
		t_close(fd[0]);
		t_close(fd[1]);
	}
	T_OK(exs_qdelete(q));
}

static void send_it(int s, exs_qhandle_t q)
{
	t_post_send(s, content, SIZE, 0, q, 0);
}

static void a_send_moves(void)
{
	sent(send_it, EXS_EVT_SEND);
}

static void send_parts(int s, exs_qhandle_t q)
{
	static exs_msghdr_t m;
	static exs_iovec_t v[2];

	v[0].exs_iov_base = content;
	v[0].exs_iov_len = SIZE / 2;
	v[1].exs_iov_base = content + SIZE / 2;
	v[1].exs_iov_len = SIZE - SIZE / 2;
	m.exs_msg_iov = v;
	m.exs_msg_iovlen = 2;
	T_OK(exs_sendmsg(s, &m, 0, q, NULL));
}

static void a_send_of_parts_moves(void)
{
	sent(send_parts, EXS_EVT_SENDMSG);
}

static void send_file(int s, exs_qhandle_t q)
{
	static exs_xferfile_t x = { .exs_xf_type = EXS_FDVEC };
	static int file = -1;

	if (file < 0) {
		file = T_OK(memfd_create("content", 0));
		T_EQ(write(file, content, SIZE), SIZE);
		x.exs_xf_un.exs_xf_fdvec.exs_fd_fildes = file;
		x.exs_xf_un.exs_xf_fdvec.exs_fd_len = SIZE;
	}
	T_OK(exs_sendfile(s, &x, 1, 0, q, NULL));
}

static void a_send_of_a_file_moves(void)
{
	sent(send_file, EXS_EVT_SENDFILE);
}

static void *send_by_call(void *arg)
{
	t_send_all(*(int *)arg, content, SIZE, 0);
	return NULL;
}

static void a_call_that_sends_moves(void)
{
	int fd[2];

	prepare();
	for (int who = 0; who < 2; who++) {
		pthread_t t;

		t_note("%s end sends", who ? "accepting" : "connecting");
		t_pair(T_IPV4, fd);
		t = t_thread(send_by_call, &fd[who]);
		take(fd[!who], fd[who]);
		t_thread_join(t);
		t_close(fd[0]);
		t_close(fd[1]);
	}
}

/* Nothing is on its way, nor unread. */
static bool quiet(int from, int to)
{
	int out = 0, in = 0;

	T_OK(ioctl(from, SIOCOUTQ, &out));
	T_OK(ioctl(to, SIOCINQ, &in));
	return !out && !in;
}

/* The other way: one receive for all, and a peer that sends in step with it
 * until it has moved. */
static void give(int from, int to)
{
	for (long at = 0; at < SIZE; at += MB) {
		t_send_all(from, content + at, MB, 0);
		T_UNTIL(sends_on_shm(from) || quiet(from, to));
	}
	T_UNTIL(t_is(from, T_SHM) && t_is(to, T_SHM));
	T(t_info(to).exs_x_rx_fabric_bytes > 0);
}

static void a_receive_moves(void)
{
	char *got = malloc(SIZE);
	exs_qhandle_t q;
	int fd[2];

	prepare();
	T(got != NULL);
	q = T_OK(exs_qcreate(4));
	for (int who = 0; who < 2; who++) {
		t_note("%s end receives", who ? "accepting" : "connecting");
		t_pair(T_IPV4, fd);
		t_post_recv(fd[who], got, SIZE, MSG_WAITALL, q, 0);
		give(fd[!who], fd[who]);
		T_EQ(t_event_is(q, EXS_EVT_RECV, 0), SIZE);
		T(memcmp(got, content, SIZE) == 0);
		t_close(fd[0]);
		t_close(fd[1]);
	}
	T_OK(exs_qdelete(q));
	free(got);
}

struct receiver {
	int s;
	char *got;
};

static void *receive_by_call(void *arg)
{
	struct receiver *r = arg;

	T_EQ(t_recv(r->s, r->got, SIZE, MSG_WAITALL), SIZE);
	return NULL;
}

static void a_call_that_receives_moves(void)
{
	struct receiver r = { .got = malloc(SIZE) };
	int fd[2];

	prepare();
	T(r.got != NULL);
	for (int who = 0; who < 2; who++) {
		pthread_t t;

		t_note("%s end receives", who ? "accepting" : "connecting");
		t_pair(T_IPV4, fd);
		r.s = fd[who];
		t = t_thread(receive_by_call, &r);
		give(fd[!who], fd[who]);
		t_thread_join(t);
		T(memcmp(r.got, content, SIZE) == 0);
		t_close(fd[0]);
		t_close(fd[1]);
	}
	free(r.got);
}

static const struct t_row rows[] = {
	T_ROW(a_send_moves),	       T_ROW(a_send_of_parts_moves),
	T_ROW(a_send_of_a_file_moves), T_ROW(a_call_that_sends_moves),
	T_ROW(a_receive_moves),	       T_ROW(a_call_that_receives_moves),
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	setenv("EXS_TCP_ENGINE", argv[1], 1);
	return t_run("big", rows, T_COUNT(rows), argc > 2 ? argv[2] : NULL);
}
