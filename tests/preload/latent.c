/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of few bytes, each used by several threads at each end: readers
 * and writers with every kind of call, and other threads whose calls need to
 * know what the connection is, at random moments. Each byte arrives once, in
 * its place, and then the end. Usage: latent CONNECTIONS SEED; it prints how
 * many bytes all ends sent and received. It knows nothing of libexs. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
/* The shim comes before the sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:verify_asan_link_order=0";
}

#endif

#define FEW  900     /* bytes of a connection that does not wake by itself */
#define MORE 6000    /* that may wake */
#define MOST 2000000 /* that is met */

#define T(cond)                                                                \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, \
				#cond, strerror(errno));                       \
			_exit(1);                                              \
		}                                                              \
	} while (0)

struct end {
	int fd;
	uint32_t out; /* bytes that it sends */
	uint32_t in;  /* and gets */
	uint32_t seed;
	uint8_t salt_out;
	uint8_t salt_in;
	_Atomic int left; /* threads that move bytes */
	pthread_t threads[3];
};

static uint32_t chance(uint32_t *seed, uint32_t below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (uint32_t)(((uint64_t)*seed * below) >> 32);
}

static uint8_t byte_at(uint32_t at, uint8_t salt)
{
	return (uint8_t)(at * 31 + (at >> 8) + salt);
}

static ssize_t put(int fd, uint8_t *buf, size_t n, uint32_t kind)
{
	struct iovec v[2] = { { buf, n / 2 }, { buf + n / 2, n - n / 2 } };

	return kind == 0   ? write(fd, buf, n)
	       : kind == 1 ? send(fd, buf, n, MSG_NOSIGNAL)
	       : kind == 2 ? writev(fd, v, 2)
			   : sendto(fd, buf, n, 0, NULL, 0);
}

static ssize_t get(int fd, uint8_t *buf, size_t n, uint32_t kind)
{
	struct iovec v[2] = { { buf, n / 2 }, { buf + n / 2, n - n / 2 } };

	return kind == 0   ? read(fd, buf, n)
	       : kind == 1 ? recv(fd, buf, n, 0)
	       : kind == 2 ? readv(fd, v, 2)
			   : recvfrom(fd, buf, n, 0, NULL, NULL);
}

static void *writes(void *arg)
{
	struct end *e = arg;
	uint32_t seed = e->seed + 1, at = 0, i;
	uint8_t buf[2000];

	while (at < e->out) {
		uint32_t n = 1 + chance(&seed, chance(&seed, 4) ? 200 : 2000);
		ssize_t ret;

		if (n > e->out - at)
			n = e->out - at;
		for (i = 0; i < n; i++)
			buf[i] = byte_at(at + i, e->salt_out);
		ret = put(e->fd, buf, n, chance(&seed, 4));
		T(ret > 0);
		at += (uint32_t)ret;
	}
	T(shutdown(e->fd, SHUT_WR) == 0);
	e->left--;
	return NULL;
}

static void *reads(void *arg)
{
	struct end *e = arg;
	uint32_t seed = e->seed + 2, at = 0;
	uint8_t buf[3000];
	ssize_t ret, i;

	for (;;) {
		ret = get(e->fd, buf, 1 + chance(&seed, sizeof(buf)),
			  chance(&seed, 4));
		T(ret >= 0);
		if (ret == 0)
			break;
		for (i = 0; i < ret; i++)
			T(buf[i] == byte_at(at + (uint32_t)i, e->salt_in));
		at += (uint32_t)ret;
	}
	T(at == e->in);
	e->left--;
	return NULL;
}

static void meddle(int fd, int set, uint32_t *seed)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT }, got;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	char byte;
	int n;

	switch (chance(seed, 11)) {
	case 0:
		T(poll(&p, 1, 0) >= 0);
		break;
	case 1:
		n = dup(fd);
		T(n >= 0 && close(n) == 0);
		break;
	case 2:
		T(fcntl(fd, F_GETFL) >= 0);
		break;
	case 3:
		(void)getpeername(fd, (struct sockaddr *)&a, &len);
		break;
	case 4:
		T(ioctl(fd, FIONREAD, &n) == 0);
		break;
	case 5:
		(void)recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
		break;
	case 6:
		n = 1;
		T(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)) == 0);
		break;
	case 7:
		if (chance(seed, 2))
			ev.events |= EPOLLET;
		if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev) < 0)
			T(epoll_ctl(set, EPOLL_CTL_MOD, fd, &ev) == 0);
		break;
	case 8:
		if (epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) < 0)
			T(errno == ENOENT);
		break;
	case 9:
		T(epoll_wait(set, &got, 1, 0) >= 0);
		break;
	default:
		n = 1;
		len = sizeof(n);
		T(getsockopt(fd, SOL_SOCKET, SO_ERROR, &n, &len) == 0);
		if (chance(seed, 40))
			break;
		n = fork();
		if (n == 0)
			_exit(0);
		T(n > 0 && waitpid(n, NULL, 0) == n);
	}
}

static void *meddles(void *arg)
{
	struct end *e = arg;
	uint32_t seed = e->seed + 3, calls = chance(&seed, 12);
	int set = epoll_create1(EPOLL_CLOEXEC);

	T(set >= 0);
	while (calls--) {
		for (uint32_t wait = chance(&seed, 20000); wait; wait--)
			atomic_thread_fence(memory_order_seq_cst);
		if (e->left)
			meddle(e->fd, set, &seed);
	}
	close(set);
	return NULL;
}

static void begin(struct end *e, int fd, uint32_t seed)
{
	void *(*const runs[3])(void *) = { reads, writes, meddles };

	e->fd = fd;
	e->seed = seed;
	e->left = 2;
	for (int i = 0; i < 3; i++)
		T(pthread_create(&e->threads[i], NULL, runs[i], e) == 0);
}

static void over(struct end *e)
{
	for (int i = 0; i < 3; i++)
		T(pthread_join(e->threads[i], NULL) == 0);
	T(close(e->fd) == 0);
}

static uint32_t some(uint32_t *seed, uint32_t kind)
{
	return kind == 0 ? MOST / 2 + chance(seed, MOST / 2)
			 : chance(seed, chance(seed, 2) ? FEW : MORE);
}

int main(int argc, char **argv)
{
	int n = argc == 3 ? atoi(argv[1]) : 0;
	uint32_t seed = argc == 3 ? (uint32_t)atoi(argv[2]) : 0;
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(a);
	unsigned long moved = 0;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	alarm(300);
	T(n > 0 && l >= 0 && bind(l, (struct sockaddr *)&a, len) == 0 &&
	  listen(l, 10) == 0 &&
	  getsockname(l, (struct sockaddr *)&a, &len) == 0);
	while (n--) {
		struct end c = { 0 }, s = { 0 };
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), to;

		uint32_t kind = chance(&seed, 10);

		c.out = s.in = some(&seed, kind);
		s.out = c.in = some(&seed, kind);
		c.salt_out = s.salt_in = (uint8_t)n;
		s.salt_out = c.salt_in = (uint8_t)~n;
		T(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
		to = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		T(to >= 0);
		begin(&c, fd, seed);
		begin(&s, to, seed + 100);
		over(&c);
		over(&s);
		moved += 2ul * (c.out + s.out);
	}
	printf("%lu\n", moved);
	return 0;
}
