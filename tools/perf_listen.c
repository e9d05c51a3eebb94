/* SPDX-License-Identifier: BSD-2-Clause */
/* exs perf --server, and how clients reach it: each control connection gets its
 * own process, with the environment that its test needs. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/perf.h"
#include "tools/tool.h"

static int bind_any(int domain, uint16_t port)
{
	struct sockaddr_in6 six = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(port),
		.sin6_addr = in6addr_any,
	};
	struct sockaddr_in four = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};
	bool is_six = domain == AF_INET6;
	int s = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int off = 0, on = 1;

	if (s < 0)
		return -errno;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (is_six)
		setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!bind(s, is_six ? (void *)&six : (void *)&four,
		  is_six ? sizeof(six) : sizeof(four)) &&
	    !listen(s, 16))
		return s;
	off = -errno;
	close(s);
	return off;
}

/* Listens on IPv4, and on IPv6 if there is IPv6. */
static int open_door(uint16_t port)
{
	int s = bind_any(AF_INET6, port);

	if (s < 0 && s != -EADDRINUSE)
		s = bind_any(AF_INET, port);
	return s;
}

static uint16_t port_of(int s)
{
	struct sockaddr_in6 a;
	socklen_t len = sizeof(a);

	/* The port is at the same place as in sockaddr_in. */
	if (getsockname(s, (struct sockaddr *)&a, &len))
		return 0;
	return ntohs(a.sin6_port);
}

/* Forks a child that serves, and ends with the server. Its pid, or -errno. */
static pid_t start_test(int ctl, const sigset_t *usual)
{
	pid_t server = getpid();
	pid_t pid = fork();

	if (pid)
		return pid < 0 ? -errno : pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != server)
		_exit(EXIT_FAILURE);
	sigprocmask(SIG_SETMASK, usual, NULL);
	perf_serve(ctl, NULL);
}

/* Accepts one client; returns an exit code for --once, else -1. */
static int let_in(int door, bool once, const sigset_t *usual)
{
	int ctl = accept4(door, NULL, NULL, SOCK_CLOEXEC);
	int status = 0;
	pid_t pid;

	if (ctl < 0)
		return -1;
	pid = start_test(ctl, usual);
	close(ctl);
	if (pid < 0)
		tool_fail("cannot start a process for the test: %s",
			  strerror((int)-pid));
	if (!once)
		return -1;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return TOOL_FAILED;
	return WIFEXITED(status) ? WEXITSTATUS(status) : TOOL_FAILED;
}

/* Serves until a signal ends it; returns an exit code. */
static int keep_door(int door, int signals, bool once, const sigset_t *usual)
{
	struct pollfd fds[] = {
		{ .fd = door, .events = POLLIN },
		{ .fd = signals, .events = POLLIN },
	};
	struct signalfd_siginfo sig;
	int ret = -1;

	while (ret < 0) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return tool_fail("cannot wait: %s", strerror(errno));
		if (fds[1].revents &&
		    read(signals, &sig, sizeof(sig)) == sizeof(sig)) {
			if (sig.ssi_signo != SIGCHLD)
				return TOOL_OK;
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
		}
		if (fds[0].revents)
			ret = let_in(door, once, usual);
	}
	return ret;
}

int perf_listen(uint16_t port, bool once)
{
	sigset_t set, usual;
	int door = open_door(port);
	int signals, ret;

	if (door < 0) {
		tool_fail("cannot listen on port %u: %s%s", port,
			  strerror(-door),
			  door == -EADDRINUSE ? "; without --port the server "
						"chooses a free one"
					      : "");
		return TOOL_FAILED;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &usual);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0) {
		close(door);
		return tool_fail("cannot watch for signals: %s",
				 strerror(errno));
	}
	printf("listening on port %u\n", port_of(door));
	fflush(stdout);
	ret = keep_door(door, signals, once, &usual);
	close(signals);
	close(door);
	return ret;
}

int perf_reach(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	int err, s = -1;

	err = getaddrinfo(host, port, &hints, &list);
	if (err) {
		tool_fail("cannot find host %s: %s", host, gai_strerror(err));
		return -ENOENT;
	}
	err = ENOENT;
	for (struct addrinfo *a = list; a && s < 0; a = a->ai_next) {
		s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
		if (s >= 0 && !connect(s, a->ai_addr, a->ai_addrlen))
			break;
		err = errno;
		if (s >= 0)
			close(s);
		s = -1;
	}
	freeaddrinfo(list);
	if (s >= 0)
		return s;
	tool_fail("cannot reach %s port %s: %s; start a server there with: "
		  "exs perf --server --port %s",
		  host, port, strerror(err), port);
	return -err;
}
