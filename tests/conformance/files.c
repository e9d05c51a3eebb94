/* SPDX-License-Identifier: BSD-2-Clause */
/* exs_sendfile over the fabric: memory and parts of files, in order, with one
 * event, and the end of sending after them. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/conformance/conf.h"
#include "tests/support/bytes.h"

#define FILE_BYTES (3u << 20)
#define VOLUME	   ((uint64_t)(24 << 20) / t_slow())
#define PARTS	   9

/* A file that has the pattern. */
static int pattern_file(size_t len)
{
	int fd = T_OK(memfd_create("pattern", MFD_CLOEXEC));
	char *buf = malloc(len);

	t_fill(buf, len, 1, 0);
	T_EQ(T_OK(pwrite(fd, buf, len, 0)), len);
	free(buf);
	return fd;
}

static exs_xferfile_t memory(void *base, size_t len)
{
	return (exs_xferfile_t){ EXS_IOVEC,
				 { .exs_xf_iovec = { base, len, 0 } } };
}

static exs_xferfile_t of_file(int fd, off_t at, size_t len)
{
	return (exs_xferfile_t){ EXS_FDVEC,
				 { .exs_xf_fdvec = { fd, at, len } } };
}

/* Parts that together are the pattern from pos on: those of the file are where
 * the file has them, others in memory. Up to the end of the file. */
static int cut(exs_xferfile_t *xf, int file, char *buf, size_t pos,
	       struct t_rng *r)
{
	int n = 1 + (int)t_below(r, PARTS);

	t_fill(buf, FILE_BYTES, 1, 0);
	for (int i = 0; i < n; i++) {
		size_t len = i == n - 1
				     ? FILE_BYTES - pos
				     : t_below(r, (FILE_BYTES - pos) / 2 + 1);

		if (t_below(r, 3))
			xf[i] = len ? of_file(file, (off_t)pos, len)
				    : memory(NULL, 0);
		else
			xf[i] = memory(buf + pos, len);
		pos += len;
	}
	return n;
}

static size_t sendfile_event(exs_qhandle_t q, const exs_xferfile_t *xf, long a)
{
	exs_event_t e = t_event(q);

	T_EQ(e.exs_evt_type, EXS_EVT_SENDFILE);
	T_EQ((long)e.exs_evt_ahandle, a);
	T_EQ(e.exs_errno, 0);
	T(e.exs_evt_un.exs_evt_xferfile.exs_evt_files == xf);
	return e.exs_evt_un.exs_evt_xferfile.exs_evt_length;
}

static void ordered_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	char *buf = malloc(FILE_BYTES);
	int file = pattern_file(FILE_BYTES);
	struct t_rng r = { 333 };
	exs_xferfile_t xf[PARTS];

	for (uint64_t sent = 0; sent < VOLUME;) {
		size_t from = t_below(&r, FILE_BYTES), len = FILE_BYTES - from;
		int n = cut(xf, file, buf, from, &r);

		t_tell(ctl, len);
		if (t_below(&r, 2)) {
			T_EQ(T_OK(exs_sendfile(s, xf, n, 0, q,
					       (exs_ahandle_t)5)),
			     0);
			T_EQ(sendfile_event(q, xf, 5), len);
		} else {
			T_EQ(T_OK(exs_sendfile(s, xf, n, 0, T_SYNC)), len);
		}
		sent += len;
	}
	t_tell(ctl, 0);
	t_no_event(q);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	close(file);
	free(buf);
	t_close(s);
}

static void ordered_b(int s, int ctl)
{
	size_t len;

	while ((len = t_ask(ctl)) != 0)
		t_recv_stream(s, 1, FILE_BYTES - len, len, 100000);
	t_close(s);
}

CONF_DUO(memory_and_files_are_sent_in_order, ordered_a, ordered_b)

/* Several at once, between other sends; then the end. */
static void shut_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(8));
	int file = pattern_file(FILE_BYTES);
	static char head[100];
	exs_xferfile_t xf[] = { memory(head, 60), of_file(file, 60, 0) };
	exs_xferfile_t nothing = of_file(file, FILE_BYTES, 0);

	t_fill(head, sizeof(head), 1, 0);
	t_post_send(s, head, sizeof(head), 0, q, 1);
	T_EQ(T_OK(exs_sendfile(s, xf, 2, MSG_NOSIGNAL, q, (exs_ahandle_t)2)),
	     0);
	t_post_send(s, head, sizeof(head), 0, q, 3);
	T_EQ(T_OK(exs_sendfile(s, &nothing, 1, 0, q, (exs_ahandle_t)4)), 0);
	T_EQ(T_OK(exs_sendfile(s, xf, 2, EXS_SHUT_WR, q, (exs_ahandle_t)5)), 0);
	T_ERR(exs_send(s, "x", 1, MSG_NOSIGNAL, q, NULL, 0), EPIPE);
	t_tell(ctl, 1);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 1), 100);
	T_EQ(sendfile_event(q, xf, 2), FILE_BYTES);
	T_EQ(t_event_is(q, EXS_EVT_SEND, 3), 100);
	T_EQ(sendfile_event(q, &nothing, 4), 0);
	T_EQ(sendfile_event(q, xf, 5), FILE_BYTES);
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	close(file);
	t_close(s);
}

static void shut_b(int s, int ctl)
{
	t_expect(ctl, 1);
	for (int i = 0; i < 2; i++) {
		t_recv_stream(s, 1, 0, 100, 100);
		t_recv_stream(s, 1, 0, FILE_BYTES, 70000);
	}
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(the_end_follows_the_last_byte, shut_a, shut_b)

static void shut_now_a(int s, int ctl)
{
	int file = pattern_file(FILE_BYTES);
	exs_xferfile_t xf = of_file(file, 0, 0);

	T_EQ(T_OK(exs_sendfile(s, &xf, 1, EXS_SHUT_WR, T_SYNC)), FILE_BYTES);
	T_ERR(t_send(s, "x", 1, MSG_NOSIGNAL), EPIPE);
	t_recv_end(s);
	close(file);
	t_close(s);
}

static void shut_now_b(int s, int ctl)
{
	t_recv_stream(s, 1, 0, FILE_BYTES, 70000);
	t_recv_end(s);
	t_close(s);
}

CONF_DUO(a_synchronous_call_ends_sending_too, shut_now_a, shut_now_b)

/* The file got shorter while it was sent: the event has what went, and why no
 * more. The connection goes on, though the end was to follow. */
static void shorter_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	size_t big = 64 << 20;
	int file = T_OK(memfd_create("large", MFD_CLOEXEC));
	exs_xferfile_t xf = of_file(file, 0, 0);
	exs_event_t e;
	size_t n;

	T_OK(ftruncate(file, (off_t)big));
	T_EQ(T_OK(exs_sendfile(s, &xf, 1, EXS_SHUT_WR, q, NULL)), 0);
	/* Nobody reads yet, and it does not fit. */
	t_no_event(q);
	T_OK(ftruncate(file, 0));
	t_tell(ctl, 1);
	e = t_event(q);
	T_EQ(e.exs_errno, EIO);
	n = e.exs_evt_un.exs_evt_xferfile.exs_evt_length;
	T(n > 0 && n < big);
	t_tell(ctl, n);
	t_send_all(s, "goes on", 7, 0);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	close(file);
	t_close(s);
}

static void shorter_b(int s, int ctl)
{
	static char buf[1 << 20], zero[1 << 20];
	size_t n = 0, got = 0;

	t_expect(ctl, 1);
	/* All that is there, until the sender knows how much it was. */
	while (!n || got < n) {
		size_t want =
			n && n - got < sizeof(buf) ? n - got : sizeof(buf);
		ssize_t ret;

		if (!n && t_readable(ctl, 0))
			n = t_ask(ctl);
		if (n && got == n)
			break;
		if (n && n - got < want)
			want = n - got;
		ret = t_recv(s, buf, want, MSG_DONTWAIT);
		if (ret < 0) {
			T_EQ(errno, EAGAIN);
			continue;
		}
		if (!n && ret >= 7 && !memcmp(buf + ret - 7, "goes on", 7)) {
			T_EQ(got + (size_t)ret - 7, t_ask(ctl));
			t_close(s);
			return;
		}
		T(!memcmp(buf, zero, (size_t)ret));
		got += (size_t)ret;
	}
	t_recv_all(s, buf, 7);
	T(!memcmp(buf, "goes on", 7));
	t_close(s);
}

CONF_DUO(a_file_that_got_shorter_is_told, shorter_a, shorter_b)

/* Cancelled, it says what went, and the end does not follow. */
static void cancel_a(int s, int ctl)
{
	exs_qhandle_t q = T_OK(exs_qcreate(4));
	size_t big = 64 << 20;
	int file = T_OK(memfd_create("large", MFD_CLOEXEC));
	exs_xferfile_t xf = of_file(file, 0, big);
	exs_event_t e;
	size_t n;

	T_OK(ftruncate(file, (off_t)big));
	T_EQ(T_OK(exs_sendfile(s, &xf, 1, EXS_SHUT_WR, q, (exs_ahandle_t)3)),
	     0);
	T_EQ(exs_cancel(-1, (exs_ahandle_t)3, EXS_CAF_AHANDLE), 1);
	e = t_event(q);
	n = e.exs_evt_un.exs_evt_xferfile.exs_evt_length;
	T_EQ(e.exs_errno, n ? 0 : ECANCELED);
	T(n < big);
	t_tell(ctl, n);
	t_send_all(s, "goes on", 7, 0);
	t_recv_end(s);
	T_OK(exs_qdelete(q));
	close(file);
	t_close(s);
}

static void cancel_b(int s, int ctl)
{
	size_t n = t_ask(ctl);
	char *buf = malloc(n + 7);

	t_recv_all(s, buf, n + 7);
	T(!memcmp(buf + n, "goes on", 7));
	free(buf);
	t_close(s);
}

CONF_DUO(a_cancelled_file_says_what_went, cancel_a, cancel_b)

static const struct t_row rows[] = {
	CONF_ROWS(memory_and_files_are_sent_in_order),
	CONF_ROWS(the_end_follows_the_last_byte),
	CONF_ROWS(a_synchronous_call_ends_sending_too),
	CONF_ROWS(a_file_that_got_shorter_is_told),
	CONF_ROWS(a_cancelled_file_says_what_went),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "files", rows, T_COUNT(rows));
}
