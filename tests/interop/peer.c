/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of a connection over libexs, for scripts: sends a file while it
 * receives another, half-closes after the last byte, and says at the end where
 * the bytes went.
 *
 *	peer [-arw] serve IN OUT		prints "port N" first
 *	peer [-arw] connect HOST PORT IN OUT
 *
 * -a: asynchronous calls on one queue; else two threads of synchronous ones.
 * -r: sends only when a whole HTTP request was received.
 * -w: half-closes only when the other end has. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define CHUNK 50000
#define DEPTH 4

struct file {
	char *bytes;
	size_t len;
};

static bool asynchronous, answers, waits, connects;
static struct file in;
static int out;
static int s;

/* The head of a request, to find its end; 0 until it is whole. */
static char head[8192];
static size_t head_len, body_len, received;
static _Atomic bool whole, ended;

static struct file load(const char *path)
{
	struct stat st;
	struct file f;
	int fd = T_OK(open(path, O_RDONLY | O_CLOEXEC));

	T_OK(fstat(fd, &st));
	f.len = st.st_size;
	f.bytes = malloc(f.len + 1);
	T_EQ(read(fd, f.bytes, f.len), f.len);
	close(fd);
	return f;
}

static void look_for_the_end(const char *buf, size_t len)
{
	size_t room = sizeof(head) - 1 - head_len;
	char *end, *length;

	received += len;
	if (!body_len && head_len < sizeof(head) - 1) {
		memcpy(head + head_len, buf, len < room ? len : room);
		head_len += len < room ? len : room;
		end = strstr(head, "\r\n\r\n");
		if (!end)
			return;
		length = strcasestr(head, "content-length:");
		body_len = end + 4 - head +
			   (length && length < end ? atol(length + 15) : 0);
	}
	if (received >= body_len)
		whole = true;
}

static void store(const char *buf, size_t len)
{
	T_EQ(write(out, buf, len), len);
	if (answers)
		look_for_the_end(buf, len);
}

static const char *reason;

/* When both directions are over, the reason is that nothing is connected. A
 * client that has sent enough is told soon, by a device not at once. */
static void half_close(void)
{
	T_UNTIL(!connects || in.len <= 1024 ||
		t_info(s).exs_x_reason != EXS_X_REASON_UNDECIDED);
	reason = exs_x_reason_name(t_info(s).exs_x_reason);
	T_OK(t_shutdown(s, SHUT_WR));
}

static void *send_file(void *arg)
{
	size_t at = 0;

	T_UNTIL(!answers || whole);
	while (at < in.len) {
		size_t n = in.len - at < CHUNK ? in.len - at : CHUNK;

		t_send_all(s, in.bytes + at, n, 0);
		at += n;
	}
	T_UNTIL(!waits || ended);
	half_close();
	return NULL;
}

static void run_synchronous(void)
{
	pthread_t t = t_thread(send_file, NULL);
	char buf[CHUNK];
	ssize_t n;

	while ((n = T_OK(t_recv(s, buf, sizeof(buf), 0))) > 0)
		store(buf, n);
	ended = true;
	t_thread_join(t);
}

static exs_qhandle_t q;
static int pending;
static size_t next;

static void post_sends(void)
{
	while ((!answers || whole) && pending < DEPTH && next < in.len) {
		size_t n = in.len - next < CHUNK ? in.len - next : CHUNK;

		t_post_send(s, in.bytes + next, n, 0, q, n);
		next += n;
		pending++;
	}
}

static void run_asynchronous(void)
{
	static char room[DEPTH][CHUNK];
	bool shut = false;
	int posted;

	q = T_OK(exs_qcreate(2 * DEPTH));
	for (posted = 0; posted < DEPTH; posted++)
		t_post_recv(s, room[posted], CHUNK, 0, q, posted);
	while (posted || pending || !shut) {
		exs_event_t e;
		long a;

		post_sends();
		if (!shut && !pending && next == in.len &&
		    (!answers || whole) && (!waits || ended)) {
			half_close();
			shut = true;
			continue;
		}
		e = t_event(q);
		a = (long)e.exs_evt_ahandle;
		T_EQ(e.exs_errno, 0);
		if (e.exs_evt_type == EXS_EVT_SEND) {
			T_EQ(e.exs_evt_un.exs_evt_xfer.exs_evt_length, a);
			pending--;
			continue;
		}
		store(room[a], e.exs_evt_un.exs_evt_xfer.exs_evt_length);
		if (e.exs_evt_un.exs_evt_xfer.exs_evt_length == 0)
			ended = true;
		if (ended)
			posted--;
		else
			t_post_recv(s, room[a], CHUNK, 0, q, a);
	}
	T_OK(exs_qdelete(q));
}

static void serve(void)
{
	struct t_addr at;
	int l = t_listener(T_IPV4, &at);

	printf("port %d\n", t_port_of(l));
	fflush(stdout);
	s = t_accept(l);
	t_close(l);
}

static void usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [-arw] serve IN OUT\n"
		"       %s [-arw] connect HOST PORT IN OUT\n",
		program, program);
	exit(2);
}

static void connect_to(const char *host, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(atoi(port)) };

	T_EQ(inet_pton(AF_INET, host, &to.sin_addr), 1);
	s = T_OK(exs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(exs_connect(s, (struct sockaddr *)&to, sizeof(to), 0, T_SYNC));
}

int main(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "arw")) != -1) {
		if (c == 'a')
			asynchronous = true;
		else if (c == 'r')
			answers = true;
		else if (c == 'w')
			waits = true;
		else
			usage(argv[0]);
	}
	argv += optind;
	argc -= optind;
	connects = argc == 5;
	if (!((argc == 3 && !strcmp(argv[0], "serve")) ||
	      (argc == 5 && !strcmp(argv[0], "connect"))))
		usage("peer");
	t_guard(60);
	signal(SIGPIPE, SIG_IGN);
	in = load(argv[argc - 2]);
	out = T_OK(open(argv[argc - 1], O_WRONLY | O_CREAT | O_TRUNC, 0600));
	t_init();
	if (argc == 3)
		serve();
	else
		connect_to(argv[1], argv[2]);
	if (asynchronous)
		run_asynchronous();
	else
		run_synchronous();
	printf("%s %s %s\n", t_info(s).exs_x_tx_fabric,
	       t_info(s).exs_x_rx_fabric, reason);
	t_close(s);
	free(in.bytes);
	close(out);
	return 0;
}
