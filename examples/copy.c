/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies a file to another process or host, straight from file to file: both
 * ends map it, register the mapping, and keep DEPTH transfers outstanding. */
#include <err.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH	       16
#define CHUNK	       (256 * 1024L)
#define BAR	       "##################################################"
#define NEED(ok, what) ((ok) ? (void)0 : err(1, "cannot %s", what))
#define WAIT	       EXS_QHANDLE_INVALID /* a call without a queue waits */

static int meet(const char *host, const char *port)
{
	struct addrinfo *a, want = { .ai_family = AF_INET };
	struct sockaddr_in me;
	socklen_t len = sizeof(me);
	int s = exs_socket(AF_INET, SOCK_STREAM, 0);

	NEED(!getaddrinfo(host ? host : "0.0.0.0", port, &want, &a), "find it");
	NEED(host ? !exs_connect(s, a->ai_addr, a->ai_addrlen, 0, WAIT, NULL)
		  : !exs_bind(s, a->ai_addr, a->ai_addrlen) &&
			     !exs_listen(s, 1) &&
			     !exs_getsockname(s, (struct sockaddr *)&me, &len),
	     host ? "reach it (is copy recv running there?)" : "listen");
	freeaddrinfo(a);
	if (host)
		return s;
	dprintf(1, "listening on port %u\n", ntohs(me.sin_port));
	return exs_accept(s, NULL, 0, WAIT, NULL);
}

static ssize_t move(int out, int s, void *p, size_t n, int q, int m)
{
	return out ? exs_send(s, p, n, 0, q, NULL, m)
		   : exs_recv(s, p, n, MSG_WAITALL, q, NULL, m);
}

static void move_all(int out, int s, char *p, long size)
{
	exs_qhandle_t q = exs_qcreate(DEPTH);
	exs_mhandle_t m = exs_mregister(p, size, 0);
	long n, left = size, done = 0;
	exs_event_t ev;

	for (int flying = 0; done < size; flying--) {
		for (; flying < DEPTH && left; flying++, p += n, left -= n) {
			n = left < CHUNK ? left : CHUNK;
			NEED(!move(out, s, p, n, q, m), "start a transfer");
		}
		NEED(exs_qdequeue(q, &ev, 1, NULL) == 1, "wait for an event");
		n = (long)ev.exs_evt_un.exs_evt_xfer.exs_evt_length;
		NEED(n && !ev.exs_errno, "go on: the other end broke off");
		done += n;
		if (isatty(2))
			dprintf(2, "\r[%-50.*s]%s", (int)(done * 50 / size),
				BAR, done < size ? "" : "\n");
	}
}

int main(int argc, char **argv)
{
	int s, out = argc == 5 && !strcmp(argv[1], "send");
	unsigned char sum[SHA256_DIGEST_LENGTH];
	struct timeval from, to, took;
	exs_x_sockinfo_t info;
	if (!out && (argc != 4 || strcmp(argv[1], "recv")))
		errx(2, "usage: copy recv FILE PORT, copy send FILE HOST PORT");
	int file = open(argv[2], out ? O_RDONLY : O_RDWR | O_CREAT, 0666);
	long size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
	NEED(size >= 0 && !exs_init(EXS_VERSION), "begin with that file");
	s = meet(out ? argv[3] : NULL, argv[argc - 1]);
	NEED(move(out, s, &size, 8, WAIT, 0) == 8, "agree on the size");
	NEED(out || !ftruncate(file, size), "make room for it");
	char *map = mmap(NULL, size + 1, PROT_READ | (out ? 0 : PROT_WRITE),
			 MAP_SHARED | MAP_POPULATE, file, 0);
	NEED(map != MAP_FAILED && move(!out, s, sum, 1, WAIT, 0) == 1, "begin");
	gettimeofday(&from, NULL);
	move_all(out, s, map, size);
	exs_x_sockinfo(s, &info);
	/* The receiver says when it is ready, and when it has everything. */
	NEED(move(!out, s, sum, 1, WAIT, 0) == 1, "finish");
	gettimeofday(&to, NULL);
	timersub(&to, &from, &took);
	SHA256((unsigned char *)map, size, sum);
	for (size_t i = 0; i < sizeof(sum); i++)
		printf("%02x", sum[i]);
	printf("\n%ld bytes over %s (%s) in %ld.%06ld s, %.0f MB/s\n", size,
	       out ? info.exs_x_tx_fabric : info.exs_x_rx_fabric,
	       exs_x_reason_name(info.exs_x_reason), took.tv_sec, took.tv_usec,
	       size / (took.tv_sec * 1e6 + took.tv_usec));
	return 0;
}
