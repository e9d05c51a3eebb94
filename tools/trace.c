/* SPDX-License-Identifier: BSD-2-Clause */
/* exs trace: the bytes of a running program's connections, as pcapng. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/util.h"
#include "tools/tool.h"
#include "tools/trace.h"

struct wishes {
	struct trace_wish trace;
	bool has_pid;
	const char *file;
	uint64_t for_ns; /* 0: no end */
	uint64_t most;	 /* packets; 0: no end */
};

static const struct argp_option options[] = {
	{ "write", 'w', "FILE", 0, "Write to this file, not to standard output",
	  0 },
	{ "port", 'p', "PORT", 0, "Only connections with this port", 0 },
	{ "fd", 'f', "FD", 0, "Only the connection of this descriptor", 0 },
	{ "snap", 's', "BYTES", 0, "Keep at most this many bytes of a packet",
	  0 },
	{ "buffer", 'b', "BYTES", 0,
	  "How far the program may be ahead: 256k to 256M (8M)", 0 },
	{ "count", 'c', "N", 0, "End after this many packets", 0 },
	{ "seconds", 'd', "TIME", 0, "End after this time", 0 },
	{ 0 },
};

static uint64_t number(struct argp_state *state, const char *takes,
		       const char *arg,
		       int (*parse)(const char *text, uint64_t *ret),
		       uint64_t least, uint64_t most)
{
	uint64_t ret;

	if (parse(arg, &ret) || ret < least || ret > most)
		argp_error(state, "%s, not \"%s\"", takes, arg);
	return ret;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wishes *w = state->input;

	switch (key) {
	case 'w':
		w->file = arg;
		return 0;
	case 'p':
		w->trace.port =
			(uint16_t)number(state, "--port takes 1 to 65535", arg,
					 tool_parse_count, 1, UINT16_MAX);
		return 0;
	case 'f':
		w->trace.fd = (int)number(state, "--fd takes a descriptor", arg,
					  tool_parse_count, 0, INT_MAX);
		return 0;
	case 's':
		w->trace.snap = (uint32_t)number(
			state, "--snap takes bytes, such as 128 or 64k", arg,
			tool_parse_bytes, 0, UINT32_MAX);
		return 0;
	case 'b':
		w->trace.ring = (uint32_t)number(
			state, "--buffer takes 256k to 256M", arg,
			tool_parse_bytes, EXI_CAPTURE_LEAST, EXI_CAPTURE_MOST);
		while (w->trace.ring & (w->trace.ring - 1))
			w->trace.ring &= w->trace.ring - 1;
		return 0;
	case 'c':
		w->most = number(state, "--count takes a number from 1 on", arg,
				 tool_parse_count, 1, UINT64_MAX);
		return 0;
	case 'd':
		if (tool_parse_seconds(arg, &w->for_ns) || !w->for_ns)
			argp_error(state,
				   "--seconds takes a time, such as 10 or 0.5, "
				   "not \"%s\"",
				   arg);
		return 0;
	case ARGP_KEY_ARG:
		if (w->has_pid)
			argp_error(state, "unexpected argument \"%s\"", arg);
		w->trace.pid =
			(pid_t)number(state, "PID is the number of a process",
				      arg, tool_parse_count, 1, INT_MAX);
		w->has_pid = true;
		return 0;
	case ARGP_KEY_END:
		if (!w->has_pid)
			argp_error(state, "no process was given");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static _Atomic int interrupted;

static void interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = interrupt };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int open_output(const char *path, int *ret)
{
	*ret = STDOUT_FILENO;
	if (!path && isatty(STDOUT_FILENO)) {
		tool_fail("a capture is not text: use --write FILE, or a pipe "
			  "to tshark -r -");
		return TOOL_USAGE;
	}
	if (!path)
		return TOOL_OK;
	*ret = exi_log_open(path, 0600);
	if (*ret < 0)
		return tool_fail("%s: %s", path, exi_log_why(-*ret));
	if (ftruncate(*ret, 0) < 0 && errno != EINVAL)
		return tool_fail("%s: %s", path, strerror(errno));
	return TOOL_OK;
}

/* The name that the program has. */
static void read_name(pid_t pid, char to[32])
{
	char path[32];
	FILE *f;

	strcpy(to, "?");
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "r");
	if (f && fgets(to, 32, f))
		to[strcspn(to, "\n")] = '\0';
	if (f)
		fclose(f);
	for (char *c = to; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static int take(const struct exi_capture_record *rec,
		const unsigned char *bytes, uint64_t lost, void *arg)
{
	return trace_write(arg, rec, bytes, lost);
}

/* Reads and writes until the capture is over; 0, or -errno. */
static int go_on(const struct wishes *wishes, struct trace_reader *r,
		 struct trace_writer *w)
{
	uint64_t end = exi_now_ns() + wishes->for_ns;
	bool over = false;
	int n = trace_write_head(w);

	while (n >= 0) {
		bool enough = (w->most && w->packets == w->most) ||
			      (wishes->for_ns && exi_now_ns() >= end);

		if (enough)
			break;
		r->last = interrupted;
		n = trace_read(r, take, w);
		if (n)
			continue;
		if (over || interrupted)
			break;
		n = trace_write_flush(w);
		over = !n && trace_over(r);
	}
	return n < 0 ? n : trace_write_end(w);
}

static int tell(const struct trace_writer *w, int err)
{
	if (err == -EPROTO)
		return tool_fail("the capture of process %d is damaged",
				 (int)w->pid);
	/* The reader of the output has closed it. */
	if (err && err != -EPIPE && !(err == -EINTR && interrupted))
		return tool_fail("cannot write: %s", strerror(-err));
	fprintf(stderr, "exs trace: %llu packets%s",
		(unsigned long long)w->packets, w->lost ? "" : "\n");
	if (w->lost)
		fprintf(stderr,
			", %llu lost: not read in time (--buffer, "
			"--snap)\n",
			(unsigned long long)w->lost);
	return TOOL_OK;
}

int tool_trace(int argc, char **argv)
{
	static const struct argp argp = {
		options,
		parse,
		"PID",
		"Captures the bytes that the connections of a running program "
		"carry, over shared memory, RDMA or TCP, as TCP packets in "
		"pcapng, for tshark and Wireshark: exs trace PID | tshark -r -",
		NULL,
		NULL,
		NULL
	};
	struct wishes w = {
		.trace = { .fd = -1, .snap = UINT32_MAX, .ring = 8u << 20 }
	};
	struct trace_reader r;
	struct trace_writer out = { .interrupted = &interrupted };
	int code;

	if (argp_parse(&argp, argc, argv, 0, NULL, &w))
		return TOOL_USAGE;
	code = open_output(w.file, &out.out);
	if (code)
		return code;
	out.pid = w.trace.pid;
	out.most = w.most;
	read_name(out.pid, out.name);
	catch_signals();
	out.buf = malloc(TRACE_BUFFER);
	code = out.buf ? trace_begin(&w.trace, &r) : tool_fail("no memory");
	if (!out.buf)
		return code;
	if (!code)
		code = tell(&out, go_on(&w, &r, &out));
	trace_end(&r);
	free(out.buf);
	return code;
}
