/* SPDX-License-Identifier: BSD-2-Clause */
/* The two tables of synchronous calls. */
#include "tools/perf_io.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static ssize_t or_errno(ssize_t ret)
{
	return ret < 0 ? -errno : ret;
}

static int sock_start(void)
{
	return 0;
}

static int sock_socket(int domain)
{
	return (int)or_errno(socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int sock_bind(int s, const struct sockaddr *addr, socklen_t len)
{
	return (int)or_errno(bind(s, addr, len));
}

static int sock_listen(int s, int backlog)
{
	return (int)or_errno(listen(s, backlog));
}

static int sock_connect(int s, const struct sockaddr *to, socklen_t len)
{
	return (int)or_errno(connect(s, to, len));
}

static int sock_accept(int s)
{
	return (int)or_errno(accept4(s, NULL, NULL, SOCK_CLOEXEC));
}

static ssize_t sock_send(int s, const void *buf, size_t len)
{
	return or_errno(send(s, buf, len, 0));
}

static ssize_t sock_recv(int s, void *buf, size_t len)
{
	return or_errno(recv(s, buf, len, 0));
}

static int sock_set(int s, int level, int name, int value)
{
	return (int)or_errno(setsockopt(s, level, name, &value, sizeof(value)));
}

static int sock_close(int s)
{
	return (int)or_errno(close(s));
}

/* This command contains the library; the library that exs run loaded is found
 * by name, and is the one with the information. */
typedef int sockinfo_call(int s, exs_x_sockinfo_t *ret);

static sockinfo_call *find_sockinfo(void)
{
	return dlsym(RTLD_DEFAULT, "exs_preload")
		       ? (sockinfo_call *)dlsym(RTLD_DEFAULT, "exs_x_sockinfo")
		       : NULL;
}

bool perf_io_shim(void)
{
	return find_sockinfo();
}

bool perf_io_knows(enum perf_api api)
{
	return api == PERF_EXS || (api != PERF_RAW && perf_io_shim());
}

static int sock_info(int s, exs_x_sockinfo_t *ret)
{
	sockinfo_call *ask = find_sockinfo();

	return ask ? (int)or_errno(ask(s, ret)) : -EOPNOTSUPP;
}

static const struct perf_io sock_io = {
	.start = sock_start,
	.socket = sock_socket,
	.bind = sock_bind,
	.listen = sock_listen,
	.connect = sock_connect,
	.accept = sock_accept,
	.send = sock_send,
	.recv = sock_recv,
	.set = sock_set,
	.close = sock_close,
	.info = sock_info,
};

static int es_type = SOCK_STREAM;

static int es_start(void)
{
	return (int)or_errno(exs_init(EXS_VERSION));
}

static int es_socket(int domain)
{
	return (int)or_errno(exs_socket(domain, es_type | SOCK_CLOEXEC, 0));
}

static int es_bind(int s, const struct sockaddr *addr, socklen_t len)
{
	return (int)or_errno(exs_bind(s, addr, len));
}

static int es_listen(int s, int backlog)
{
	return (int)or_errno(exs_listen(s, backlog));
}

static int es_connect(int s, const struct sockaddr *to, socklen_t len)
{
	return (int)or_errno(
		exs_connect(s, to, len, 0, EXS_QHANDLE_INVALID, NULL));
}

static int es_accept(int s)
{
	return (int)or_errno(
		exs_accept(s, NULL, SOCK_CLOEXEC, EXS_QHANDLE_INVALID, NULL));
}

static ssize_t es_send(int s, const void *buf, size_t len)
{
	return or_errno(exs_send(s, buf, len, 0, EXS_QHANDLE_INVALID, NULL,
				 EXS_MHANDLE_UNREGISTERED));
}

static ssize_t es_recv(int s, void *buf, size_t len)
{
	return or_errno(exs_recv(s, buf, len, 0, EXS_QHANDLE_INVALID, NULL,
				 EXS_MHANDLE_UNREGISTERED));
}

static int es_set(int s, int level, int name, int value)
{
	return (int)or_errno(
		exs_setsockopt(s, level, name, &value, sizeof(value)));
}

static int es_close(int s)
{
	return (int)or_errno(exs_close(s, EXS_QHANDLE_INVALID, NULL));
}

static int es_info(int s, exs_x_sockinfo_t *ret)
{
	return (int)or_errno(exs_x_sockinfo(s, ret));
}

static const struct perf_io es_io = {
	.start = es_start,
	.socket = es_socket,
	.bind = es_bind,
	.listen = es_listen,
	.connect = es_connect,
	.accept = es_accept,
	.send = es_send,
	.recv = es_recv,
	.set = es_set,
	.close = es_close,
	.info = es_info,
};

const struct perf_io *perf_io(const struct perf_plan *plan)
{
	if (plan->api != PERF_EXS)
		return &sock_io;
	es_type = plan->messages ? SOCK_SEQPACKET : SOCK_STREAM;
	return &es_io;
}

ssize_t perf_recv_more(const struct perf_io *io, int s, char *buf, size_t have,
		       size_t len)
{
	ssize_t n;

	while (have < len) {
		n = io->recv(s, buf + have, len - have);
		if (n <= 0)
			return n ? n : -ECONNRESET;
		have += n;
	}
	return len;
}

void *perf_buffer(size_t len)
{
	void *buf = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buf == MAP_FAILED)
		return NULL;
	memset(buf, 0, len);
	return buf;
}

void perf_buffer_free(void *buf, size_t len)
{
	if (buf)
		munmap(buf, len);
}
