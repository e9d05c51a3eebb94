/* SPDX-License-Identifier: BSD-2-Clause */
/* exs run --report: at its end, a process reports what became of its
 * connections, all together, then by peer, fabric and reason. exs report gets
 * the same from a running process. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/target.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/life/control.h"
#include "core/life/info.h"
#include "core/link/ending.h"
#include "core/meet/latent.h"
#include "core/sock/base.h"
#include "core/sock/table.h"
#include "preload/shim.h"

static const char *path = ""; /* no report */
static char name[64];	      /* programs overwrite theirs with a title */
/* The report's file, opened at the start: before the end a program may close
 * its stderr, change its root directory or its user, or forbid itself to open
 * files. -1: it could not be opened then. */
static int kept = -1;

/* Connections are counted when they end: from the start in a process that is to
 * report, else from the first request. */
static _Atomic bool counts;
static time_t since; /* when that was; 0: the start */

/* Connections that share a line of the report: to the same address and port, or
 * accepted at the same port from the same address. */
struct group {
	char peer[96];
	char fabric[16];
	int reason;
	uint32_t n;
	uint64_t in;
	uint64_t out;
	uint64_t bells;
};
#define GROUPS 64

/* Connections that were counted. */
struct tally {
	struct {
		uint32_t connections;
		uint32_t on_fabric;
		uint32_t by_reason[EXS_X_REASON_MAX_];
		uint64_t fabric_bytes;
		uint64_t bytes;
		uint64_t bells;
	} total;
	struct group groups[GROUPS]; /* the last is for all others */
	int n_groups;
	/* Connections about which nothing was decided: there may be very many,
	 * and there is nothing to say about each. */
	struct group early;
};

static const struct group nothing_early = {
	.peer = "without a decision",
	.fabric = "tcp",
	.reason = EXS_X_REASON_UNDECIDED,
};

/* Guards a tally, including that of connections that have ended. */
static struct exi_lock lock;
static struct tally ended;

static const uint8_t v4_mapped[12] = { [10] = 0xff, [11] = 0xff };

static int address(const struct sockaddr_storage *a, char *ret, size_t room)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	bool v6 = a->ss_family == AF_INET6;

	if (!v6 && a->ss_family != AF_INET)
		return -1;
	if (!inet_ntop(a->ss_family,
		       v6 ? (const void *)&in6->sin6_addr : &in->sin_addr, ret,
		       (socklen_t)room))
		return -1;
	return ntohs(v6 ? in6->sin6_port : in->sin_port);
}

/* The address of a peer that is gone, as long as it is known. */
static int address_met(const struct exi_sock *sk, char *ret, size_t room)
{
	const bool v4 = !memcmp(sk->met_addr, v4_mapped, sizeof(v4_mapped));

	inet_ntop(v4 ? AF_INET : AF_INET6,
		  v4 ? sk->met_addr + sizeof(v4_mapped) : sk->met_addr, ret,
		  (socklen_t)room);
	return atomic_load(&sk->met_port);
}

/* The name of a listener on a UNIX socket: a path, or @ and an abstract name.
 * Characters that are not printable are left out. */
static void name_unix(const struct exi_sock *sk, int fd, char *ret, size_t room)
{
	struct sockaddr_un a;
	socklen_t len = sizeof(a);
	bool connected = sk->role == EXI_ROLE_CONNECT;
	char said[64];
	size_t i, n = 0, size;

	if ((connected ? getpeername(fd, (struct sockaddr *)&a, &len)
		       : getsockname(fd, (struct sockaddr *)&a, &len)) < 0)
		len = 0;
	size = len > offsetof(struct sockaddr_un, sun_path)
		       ? len - offsetof(struct sockaddr_un, sun_path)
		       : 0;
	for (i = 0; i < size && n < sizeof(said) - 1; i++) {
		char c = i == 0 && !a.sun_path[0] ? '@' : a.sun_path[i];

		if (c > ' ' && c < 0x7f)
			said[n++] = c;
	}
	said[n] = 0;
	snprintf(ret, room, "%s the UNIX socket %s", connected ? "to" : "at",
		 n ? said : "with no name");
}

static void name_peer(const struct exi_sock *sk, int fd,
		      const exs_x_sockinfo_t *i, char *ret, size_t room)
{
	bool connected = sk->role == EXI_ROLE_CONNECT;
	struct sockaddr_storage there, here;
	socklen_t len = sizeof(there), here_len = sizeof(here);
	char a[INET6_ADDRSTRLEN], b[INET6_ADDRSTRLEN];
	int port = -1, at = -1;

	if (sk->base->messages) {
		name_unix(sk, fd, ret, room);
		return;
	}
	if (getpeername(fd, (struct sockaddr *)&there, &len) == 0)
		port = address(&there, a, sizeof(a));
	else if (atomic_load(&sk->met_port))
		port = address_met(sk, a, sizeof(a));
	if (!connected &&
	    getsockname(fd, (struct sockaddr *)&here, &here_len) == 0)
		at = address(&here, b, sizeof(b));
	if (port < 0) /* the peer is gone, and its address with it */
		snprintf(a, sizeof(a), "a peer that is %s",
			 i->exs_x_rx_bytes + i->exs_x_tx_bytes
				 ? "gone"
				 : "gone or was not reached");
	if (connected && port >= 0)
		snprintf(ret, room, "to %s port %d", a, port);
	else if (connected)
		snprintf(ret, room, "to %s", a);
	else
		snprintf(ret, room, "at port %d from %s", at, a);
}

/* The group that equals this one. */
static struct group *group_of_locked(struct tally *t, const struct group *like)
{
	struct group *to;

	EXI_LOCKED(&lock);
	for (to = t->groups; to < t->groups + t->n_groups; to++)
		if (!strcmp(to->peer, like->peer) &&
		    !strcmp(to->fabric, like->fabric) &&
		    to->reason == like->reason)
			return to;
	if (to == t->groups + GROUPS)
		return to - 1;
	*to = *like;
	if (++t->n_groups == GROUPS) {
		snprintf(to->peer, sizeof(to->peer), "others");
		to->fabric[0] = 0;
	}
	return to;
}

static struct group *of_others_locked(struct tally *t,
				      const struct exi_sock *sk, int fd,
				      const exs_x_sockinfo_t *i, bool fabric)
{
	struct group g = { .reason = i->exs_x_reason };
	const char *name_of = strcmp(i->exs_x_tx_fabric, "tcp")
				      ? i->exs_x_tx_fabric
				      : i->exs_x_rx_fabric;

	EXI_LOCKED(&lock);
	name_peer(sk, fd, i, g.peer, sizeof(g.peer));
	if (!fabric) /* the connection may have been about to go there */
		name_of = "tcp";
	snprintf(g.fabric, sizeof(g.fabric), "%s",
		 fabric && !strcmp(name_of, "tcp") ? "fabric, tcp" : name_of);
	if (strcmp(name_of, "tcp")) /* why it ended is no reason */
		g.reason = EXS_X_REASON_NONE;
	return group_of_locked(t, &g);
}

static void count_locked(struct tally *t, const struct exi_sock *sk, int fd,
			 const exs_x_sockinfo_t *i)
{
	bool fabric = i->exs_x_rx_fabric_bytes + i->exs_x_tx_fabric_bytes ||
		      i->exs_x_reason == EXS_X_REASON_NONE;
	struct group *to = !fabric && i->exs_x_reason == EXS_X_REASON_UNDECIDED
				   ? &t->early
				   : of_others_locked(t, sk, fd, i, fabric);

	EXI_LOCKED(&lock);
	to->n++;
	to->in += i->exs_x_rx_bytes;
	to->out += i->exs_x_tx_bytes;
	to->bells += i->exs_x_bells_sent;
	t->total.connections++;
	if (fabric)
		t->total.on_fabric++;
	else
		t->total.by_reason[i->exs_x_reason]++;
	t->total.fabric_bytes +=
		i->exs_x_rx_fabric_bytes + i->exs_x_tx_fabric_bytes;
	t->total.bytes += i->exs_x_rx_bytes + i->exs_x_tx_bytes;
	t->total.bells += i->exs_x_bells_sent;
}

static void count_early(struct tally *t, uint64_t in, uint64_t out)
{
	exi_lock(&lock);
	t->early.n++;
	t->early.in += in;
	t->early.out += out;
	t->total.connections++;
	t->total.by_reason[EXS_X_REASON_UNDECIDED]++;
	t->total.bytes += in + out;
	exi_unlock(&lock);
}

static void count_latent(struct tally *t, const struct exi_latent_state *s)
{
	if (s->role != EXI_ROLE_NONE && !exi_lock_held(&lock))
		count_early(t, s->moved[EXI_RX], s->moved[EXI_TX]);
}

void shim_report_latent(const struct exi_latent_state *s)
{
	if (exi_unlikely(atomic_load_explicit(&counts, memory_order_relaxed)))
		count_latent(&ended, s);
}

/* Counts a connection that ended before anything was decided, without asking
 * the kernel; false: it is not such a connection. */
static bool was_early_locked(struct tally *t, const struct exi_sock *sk,
			     int reason)
{
	const struct exi_shared *sh = exi_sock_shared(sk);
	const struct exi_half *rx = &sh->half[EXI_RX], *tx = &sh->half[EXI_TX];
	uint64_t in = __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED);
	uint64_t out = __atomic_load_n(&tx->bytes, __ATOMIC_RELAXED);

	EXI_LOCKED(&sk->link_lock);
	/* After a meeting that failed, the kernel alone counts all bytes. */
	if (!sk->adopted || exi_sock_met(sk) || sk->cut || !in || !out ||
	    rx->fabric_bytes || tx->fabric_bytes ||
	    reason != EXS_X_REASON_UNDECIDED ||
	    atomic_load(&sh->reason) != EXS_X_REASON_UNDECIDED)
		return false;
	count_early(t, in, out);
	return true;
}

/* Must not create anything for a descriptor that meanwhile belongs to another
 * file. */
static void count_connection(struct tally *t, struct exi_sock *sk, int fd)
{
	bool counted;
	int reason;
	exs_x_sockinfo_t i;

	/* A signal handler may end the process in the midst of a call. */
	if (sk->unused || exi_lock_held(&lock) ||
	    exi_lock_held(&sk->link_lock) ||
	    exi_lock_held(&sk->sh->half[EXI_RX].lock) ||
	    exi_lock_held(&sk->sh->half[EXI_TX].lock))
		return;
	exi_lock(&sk->link_lock);
	reason = exi_link_last_reason_locked(sk, fd);
	counted = was_early_locked(t, sk, reason);
	exi_unlock(&sk->link_lock);
	if (counted || exi_info_of(sk, fd, &i) < 0)
		return;
	/* A connection that has ended is not connected; that is no reason to
	 * report, unless it never was. */
	if (i.exs_x_reason == EXS_X_REASON_UNDECIDED ||
	    i.exs_x_reason == EXS_X_REASON_PEER_LOST ||
	    (i.exs_x_reason == EXS_X_REASON_NOT_CONNECTED &&
	     (reason != EXS_X_REASON_UNDECIDED ||
	      i.exs_x_rx_bytes + i.exs_x_tx_bytes)))
		i.exs_x_reason = reason;
	exi_lock(&lock);
	count_locked(t, sk, fd, &i);
	exi_unlock(&lock);
}

void shim_report_connection(int fd)
{
	struct exi_sock *sk;

	if (exi_likely(!atomic_load_explicit(&counts, memory_order_relaxed)))
		return;
	sk = shim_sock(fd);
	if (sk)
		count_connection(&ended, sk, fd);
}

static void one(struct exi_sock *sk, void *arg)
{
	int fd = atomic_load(&sk->fd);

	if (fd >= 0 && shim_sock(fd) == sk)
		count_connection(arg, sk, fd);
}

static void one_latent(int fd, const struct exi_latent_state *s, void *arg)
{
	count_latent(arg, s);
}

static void count_open(struct tally *t)
{
	exi_sock_each(one, t);
	exi_latent_each(one_latent, t);
}

/* The whole report is written at once, because other processes write theirs. */
#define TEXT_MAX (1024 + (GROUPS + 1) * 192)
struct text {
	char *buf;
	int room;
	int n;
};

static void put(struct text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *fmt, ...)
{
	int room = t->room - t->n, n;
	va_list ap;

	va_start(ap, fmt);
	n = vsnprintf(t->buf + t->n, (size_t)room, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->n += n < room ? n : room - 1;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void put_group(struct text *t, const struct group *g)
{
	put(t, "  %s: %u connection%s", g->peer, g->n, plural(g->n));
	if (g->fabric[0])
		put(t, ", %s", g->fabric);
	if (g->fabric[0] && g->reason != EXS_X_REASON_NONE)
		put(t, " (%s)", exs_x_reason_name(g->reason));
	put(t, ", %llu bytes in, %llu out, %llu bell%s\n",
	    (unsigned long long)g->in, (unsigned long long)g->out,
	    (unsigned long long)g->bells, plural(g->bells));
}

/* Writes the report: 0, or -errno. A reader that is gone is no error. */
static int write_report(int fd, const char *text, int n)
{
	ssize_t done = exi_log_put(fd, text, (size_t)n, 0);

	if (done == -EPIPE || done == n)
		return 0;
	return done < 0 ? (int)done : -ENOSPC;
}

/* A file that was removed since is made again. */
static int open_report(void)
{
	if (!strcmp(path, "-") || exi_log_named(kept))
		return kept;
	return exi_log_open(path, 0666);
}

static void tell(const char *text, int n)
{
	int fd = open_report();
	int err = fd < 0 ? fd : write_report(fd, text, n);

	if (err && exi_config()->log_level >= EXI_LOG_WARN)
		exi_log_write(EXI_LOG_WARN,
			      "EXS_REPORT: cannot write to \"%s\": %s", path,
			      exi_log_why(-err));
	if (fd >= 0 && fd != kept)
		native.close(fd);
}

/* Writes a line that is not about counts of connections. */
static void tell_line(const char *what, const char *why)
{
	char line[sizeof(name) + PATH_MAX + 128];
	int n = snprintf(line, sizeof(line), "exs run: %s[%d]: %s: %s\n", name,
			 (int)getpid(), what, why);

	tell(line, n < (int)sizeof(line) ? n : (int)sizeof(line) - 1);
}

void shim_report_target(const char *program, const char *why)
{
	char what[PATH_MAX + 64];

	if (exi_likely(!path[0]))
		return;
	snprintf(what, sizeof(what), "starts %s without the library",
		 program && *program ? program : "a program");
	tell_line(what, why);
}

static void put_tally(struct text *t, const struct tally *of)
{
	put(t,
	    "exs run: %s[%d]: %u connection%s on a fabric, %llu of %llu bytes, "
	    "%llu bell%s",
	    name, (int)getpid(), of->total.on_fabric,
	    plural(of->total.on_fabric),
	    (unsigned long long)of->total.fabric_bytes,
	    (unsigned long long)of->total.bytes,
	    (unsigned long long)of->total.bells, plural(of->total.bells));
	for (int r = 0; r < EXS_X_REASON_MAX_; r++)
		if (of->total.by_reason[r])
			put(t, "; %u on TCP (%s)", of->total.by_reason[r],
			    exs_x_reason_name(r));
	put(t, "\n");
	for (int i = 0; i < of->n_groups; i++)
		put_group(t, &of->groups[i]);
	if (of->early.n)
		put_group(t, &of->early);
}

__attribute__((destructor)) void shim_report(void)
{
	static char buf[TEXT_MAX];
	struct text t = { .buf = buf, .room = sizeof(buf) };

	/* A process that the library has left has reported already. */
	if (!path[0] || !shim_ready())
		return;
	count_open(&ended);
	/* A line for every shell on the way would hide the rest. */
	if (!ended.total.connections)
		return;
	put_tally(&t, &ended);
	tell(buf, t.n);
	shim_report_forked();
}

static void put_since(struct text *t)
{
	struct tm tm;
	char at[32];

	if (!since || !gmtime_r(&since, &tm) ||
	    !strftime(at, sizeof(at), "%F %T UTC", &tm))
		return;
	put(t,
	    "  not counted: connections that ended before %s, when a report "
	    "was first asked for\n",
	    at);
}

/* The report of a running process. A connection that ends meanwhile may be
 * missing; the next report has it. */
static size_t report_now(char *ret, size_t room)
{
	static struct tally now; /* of the service thread */
	struct text t = { .buf = ret, .room = (int)room };

	if (!atomic_load(&counts)) {
		since = time(NULL);
		atomic_store(&counts, true);
	}
	exi_lock(&lock);
	now = ended;
	exi_unlock(&lock);
	count_open(&now);
	put_tally(&t, &now);
	put_since(&t);
	return (size_t)t.n;
}

void shim_report_forked(void)
{
	memset(&ended, 0, sizeof(ended));
	ended.early = nothing_early;
	atomic_store(&lock.word, 0);
}

static bool is_go(void)
{
	int fd = exi_target_open(AT_FDCWD, "/proc/self/exe");
	bool ret = fd >= 0 && exi_target_is_go(fd);

	if (fd >= 0)
		exi_target_close(fd);
	return ret;
}

void shim_report_init(void)
{
	path = exi_config()->report;
	snprintf(name, sizeof(name), "%s", program_invocation_short_name);
	ended.early = nothing_early;
	exi_control_reports(report_now);
	if (!path[0])
		return;
	kept = strcmp(path, "-") ? exi_log_open(path, 0666) : native.dup(2);
	if (kept >= 0)
		kept = exi_fd_keep(kept);
	atomic_store(&counts, true);
	at_quick_exit(shim_report);
	if (is_go())
		tell_line("has no report at its end",
			  "a program in Go makes its system calls itself");
	else
		shim_signals_report();
}
