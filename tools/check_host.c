/* SPDX-License-Identifier: BSD-2-Clause */
/* exs check HOST PORT: what the library would do for a connection to that
 * server. It makes a connection, and sends nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/exs.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/proof.h"
#include "core/base/util.h"
#include "core/fabric/registry.h"
#include "core/meet/marker.h"
#include "core/meet/meetdir.h"
#include "core/meet/trial.h"
#include "tools/check.h"
#include "tools/tool.h"

#define PATIENCE_MS 5000
#define MEETING_NS  10000000000u
#define LISTENS	    10 /* TCP_LISTEN of the kernel */

static void text_of(const struct sockaddr *a, socklen_t len, char *ret,
		    size_t room)
{
	if (getnameinfo(a, len, ret, (socklen_t)room, NULL, 0, NI_NUMERICHOST))
		snprintf(ret, room, "?");
}

/* Waits for a connection that has begun. 0 or -errno. */
static int await(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int err = 0, n = poll(&p, 1, PATIENCE_MS);
	socklen_t len = sizeof(err);

	if (n == 0)
		return -ETIMEDOUT;
	if (n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	return -err;
}

static int connect_to(const struct addrinfo *a, int *ret)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	err = connect(fd, a->ai_addr, a->ai_addrlen) ? -errno : 0;
	if (err == -EINPROGRESS)
		err = await(fd);
	if (err) {
		close(fd);
		return err;
	}
	fcntl(fd, F_SETFL, 0);
	*ret = fd;
	return 0;
}

/* The device that has the address. */
static void device_of(const struct sockaddr *a, char ret[IF_NAMESIZE])
{
	struct ifaddrs *all = NULL;
	bool six = a->sa_family == AF_INET6;

	strcpy(ret, "?");
	if (getifaddrs(&all))
		return;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct sockaddr *b = i->ifa_addr;

		if (!b || b->sa_family != a->sa_family)
			continue;
		if (six ? !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
				  &((const struct sockaddr_in6 *)b)->sin6_addr,
				  16)
			: ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
				    ((const struct sockaddr_in *)b)
					    ->sin_addr.s_addr)
			snprintf(ret, IF_NAMESIZE, "%s", i->ifa_name);
	}
	freeifaddrs(all);
}

/* Connections to the host's own addresses need the loopback interface. */
static bool lacks_loopback(const struct sockaddr *a)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	char device[IF_NAMESIZE];
	struct exi_trial t;

	device_of(a, device);
	if (device[0] == '?' &&
	    (a->sa_family == AF_INET6
		     ? !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr)
		     : ntohl(in->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET))
		return false;
	for (unsigned int i = 0; exi_trial(i, &t); i++)
		if (!strcmp(t.name, "loopback"))
			return t.err != 0;
	return false;
}

static const char *cure_of(const struct sockaddr *a, int err)
{
	switch (-err) {
	case ECONNREFUSED:
		return "start the server, or look at which address and port "
		       "it listens: ss -ltnp";
	case ETIMEDOUT:
		return "check that the host is up, and that no firewall drops "
		       "packets to the port";
	case ENETUNREACH:
	case EHOSTUNREACH:
	case EADDRNOTAVAIL:
		if (lacks_loopback(a))
			return "bring the loopback interface up: ip link set "
			       "lo up";
		return "check the route: ip route get ADDRESS";
	default:
		return "";
	}
}

static void step_route(struct check *c, int fd, bool elsewhere)
{
	struct sockaddr_storage here;
	socklen_t len = sizeof(here);
	char device[IF_NAMESIZE], text[INET6_ADDRSTRLEN];

	if (getsockname(fd, (struct sockaddr *)&here, &len))
		return;
	text_of((struct sockaddr *)&here, len, text, sizeof(text));
	device_of((struct sockaddr *)&here, device);
	check_step(c, "route", CHECK_GOOD, "from %s, device %s", text,
		   elsewhere ? device : "lo");
}

/* Resolves and connects: a descriptor, or -1. */
static int reach(struct check *c, const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list, *a;
	const char *cure = "";
	char text[INET6_ADDRSTRLEN];
	int err = getaddrinfo(host, port, &hints, &list), fd = -1;

	if (err) {
		check_fails(c, "resolve",
			    err == EAI_SERVICE
				    ? "give the port as a number, or by a name "
				      "in /etc/services"
				    : "check the name, /etc/hosts and the DNS "
				      "server",
			    "no connection: cannot resolve \"%s\" port %s: %s",
			    host, port,
			    err == EAI_SERVICE ? "there is no such port"
					       : gai_strerror(err));
		return -1;
	}
	check_step(c, "resolve", CHECK_GOOD, "%s is", host);
	for (a = list; a; a = a->ai_next) {
		text_of(a->ai_addr, a->ai_addrlen, text, sizeof(text));
		check_more(c, "%s %s", a == list ? "" : ",", text);
	}
	for (a = list, err = -ENOENT; a && err; a = a->ai_next) {
		err = connect_to(a, &fd);
		text_of(a->ai_addr, a->ai_addrlen, text, sizeof(text));
		cure = err ? cure_of(a->ai_addr, err) : "";
	}
	freeaddrinfo(list);
	if (err) {
		check_fails(c, "connect", cure, "no connection: %s port %s: %s",
			    text, port, strerrordesc_np(-err));
		return -1;
	}
	check_step(c, "connect", CHECK_GOOD, "%s port %s accepts", text, port);
	return fd;
}

static bool listens_at(const struct stat_tcp *t, const void *arg)
{
	const struct exi_tuple *to = arg;

	return t->state == LISTENS && t->port[0] == to->peer_port;
}

/* The process that listens on the port here; false: it cannot be seen. */
static bool find_listener(const struct exi_tuple *t, struct check_process *ret)
{
	struct stat_tcps *tcps = stat_tcps_new();
	const struct stat_tcp *found = NULL;
	struct stat ns;
	pid_t pid;
	bool seen;
	int fd;

	if (tcps && stat("/proc/self/ns/net", &ns) == 0 &&
	    stat_tcps_read(tcps, getpid(), ns.st_ino) == 0)
		found = stat_tcps_search(tcps, listens_at, t);
	seen = found && check_holder(found->inode, &pid, &fd);
	stat_tcps_free(tcps);
	return seen && check_process_read(pid, ret) == 0;
}

/* A server on this host. The check does not ask its library, because it would
 * have to send something; the library shows by itself that it serves the
 * port. */
static int peer_here(struct check *c, const struct exi_tuple *t,
		     struct check_process *ret)
{
	struct check_process p = { 0 };
	bool seen = find_listener(t, &p);
	int present = exi_marker_present(t);

	check_step(c, "peer", CHECK_GOOD, "%s", "");
	if (seen)
		check_more(c, "%s[%d], which %s", p.name, (int)p.pid,
			   p.library ? "uses libexs" : "does not use libexs");
	else
		check_more(c, "a process that this user may not inspect");
	if (seen)
		check_note_plain(c, &p);
	check_peer_settings(c, &p);
	if (present > 0)
		check_more(c, "%s", seen ? "" : ", which uses libexs");
	check_process_free(&p);
	*ret = p;
	return present < 0	   ? EXS_X_REASON_NO_PROOF
	       : !present	   ? EXS_X_REASON_PLAIN_PEER
	       : exi_proof_left(t) ? EXS_X_REASON_PEER_REQUEST
				   : EXS_X_REASON_NONE;
}

/* Why no process was met by EXS_MEET_DIR. */
static const char *unmet(const char *dir)
{
	if (access(dir, W_OK | X_OK) < 0)
		return strerrordesc_np(errno);
	switch (exi_meetdir_state()) {
	case 0:
		return "no process that has our key serves the port by it";
	case -ENOKEY:
		return "there is no usable key, see exs key";
	default:
		return "the kernel is older than Linux 6.9";
	}
}

/* A server on another host or in another namespace: the libraries meet as they
 * would. In EXS_MEET_DIR, where they would meet after some bytes, the check
 * does not meet; the server shows by itself that it serves the port. */
static int peer_elsewhere(struct check *c, int fd, uint16_t port)
{
	uint64_t deadline = exi_now_ns() + MEETING_NS;
	exs_x_sockinfo_t i = { .exs_x_reason = EXS_X_REASON_UNDECIDED };
	struct timespec pause = { .tv_nsec = 10000000 };

	if (exs_init(EXS_VERSION) < 0 || exs_x_adopt(fd) < 0) {
		check_step(c, "peer", CHECK_UNKNOWN, "it was not asked: %s",
			   strerrordesc_np(errno));
		exs_x_sockinfo(fd, &i);
		return i.exs_x_reason;
	}
	if (exi_meetdir_state() == 0 && exi_meetdir_marked(port)) {
		check_step(c, "peer", CHECK_GOOD,
			   "a process that has our key serves port %u, by "
			   "EXS_MEET_DIR=%s",
			   port, exi_config()->meet_dir);
		return EXS_X_REASON_NONE;
	}
	while (exs_x_sockinfo(fd, &i) == 0 && !i.exs_x_paired &&
	       i.exs_x_reason == EXS_X_REASON_UNDECIDED &&
	       exi_now_ns() < deadline)
		nanosleep(&pause, NULL);
	if (i.exs_x_paired) {
		check_step(c, "peer", CHECK_GOOD,
			   "its library shook hands over %s",
			   strcmp(i.exs_x_tx_fabric, "tcp") ? i.exs_x_tx_fabric
							    : "a fabric");
		return EXS_X_REASON_NONE;
	}
	if (i.exs_x_reason == EXS_X_REASON_KEY_MISMATCH)
		check_step(c, "peer", CHECK_UNKNOWN,
			   "its library answered, and has another key");
	else
		check_step(c, "peer", CHECK_UNKNOWN,
			   "no library answered at port %u plus %u "
			   "(EXS_VERBS_PORT_OFFSET) or %u "
			   "(EXS_OFI_PORT_OFFSET), which a firewall must "
			   "allow, and which both ends must set alike",
			   port, exi_config()->verbs_port_offset,
			   exi_config()->ofi_port_offset);
	if (exi_config()->meet_dir[0])
		check_more(c, "; EXS_MEET_DIR=%s: %s", exi_config()->meet_dir,
			   unmet(exi_config()->meet_dir));
	return i.exs_x_reason == EXS_X_REASON_UNDECIDED
		       ? EXS_X_REASON_PLAIN_PEER
		       : i.exs_x_reason;
}

/* The first of the two reasons that is not NONE. */
static int first(int a, int b)
{
	return a ? a : b;
}

/* The server uses the library, and reports that it stays on TCP. */
static void judge_peer(struct check *c, const struct check_process *p,
		       int reason)
{
	snprintf(c->verdict, sizeof(c->verdict),
		 "TCP: %s[%d] uses libexs, but its settings or its system keep "
		 "it on TCP (%s)",
		 p->name, (int)p->pid, exs_x_reason_name(reason));
	snprintf(c->cure, sizeof(c->cure),
		 "see the EXS_ variables with which the server was started, "
		 "and exs info --config --program=%s",
		 p->name);
}

static void judge(struct check *c, int reason, uint64_t upgrade_bytes,
		  const struct check_process *peer)
{
	char bytes[TOOL_TEXT], doubt[120];

	check_doubt(peer, doubt);

	check_reason(c, reason, "");
	if (reason)
		return;
	if (upgrade_bytes)
		snprintf(c->verdict, sizeof(c->verdict),
			 "a connection moves off TCP once it has carried %s "
			 "(EXS_UPGRADE)%s",
			 tool_text_bytes(bytes, upgrade_bytes), doubt);
	else
		snprintf(c->verdict, sizeof(c->verdict),
			 "a connection moves off TCP at once%s", doubt);
}

static void check_connected(struct check *c, int fd)
{
	struct check_process self, peer = { 0 };
	struct exi_tuple t;
	int reason, system, err = exi_tuple_of(fd, &t);
	bool elsewhere = !err && exi_tuple_elsewhere(&t);
	struct exi_config_way w;

	if (err) {
		check_fails(c, "socket", "", "the connection is over: %s",
			    strerrordesc_np(-err));
		return;
	}
	check_process_read(getpid(), &self);
	step_route(c, fd, elsewhere);
	check_settings(c, &self);
	w = exi_config_way(t.peer_port);
	reason = w.upgrade ? EXS_X_REASON_NONE : EXS_X_REASON_CONFIG;
	system = check_system(c);
	/* The trials are for connections within the namespace. */
	if (elsewhere && system)
		c->step[c->n - 1].state = CHECK_UNKNOWN;
	reason = first(reason, elsewhere ? EXS_X_REASON_NONE : system);
	check_step(c, "namespace", CHECK_GOOD, "%s",
		   elsewhere ? "the server is on another host, or in another "
			       "network namespace"
			     : "the server is in this network namespace");
	if (elsewhere) { /* the fabrics first: they ask the peer */
		int met = reason ? reason : peer_elsewhere(c, fd, t.peer_port);

		reason = first(reason, met);
		check_fabrics(c, t.peer_port);
	} else {
		reason = first(reason, peer_here(c, &t, &peer));
		reason = first(reason, check_fabrics(c, t.peer_port));
	}
	check_key(c, elsewhere);
	check_limits(c, &self);
	if (!elsewhere && !exi_config()->memory_limit_mb) {
		check_more(c, ", EXS_MEMORY_LIMIT_MB=0");
		reason = first(reason, EXS_X_REASON_MEMORY);
	}
	check_process_free(&self);
	judge(c, reason, w.upgrade_bytes, &peer);
	if ((reason == EXS_X_REASON_PLAIN_PEER ||
	     reason == EXS_X_REASON_PEER_REQUEST) &&
	    peer.library)
		judge_peer(c, &peer, reason);
}

/* Whether EXS_REQUIRE names a fabric that cannot be used here. */
static bool lacks_required(struct check *c)
{
	const char *name = exi_config()->require;
	struct exi_registry_row row;

	if (!name[0])
		return false;
	exi_registry_find(name, &row);
	if (row.configured && row.usable)
		return false;
	check_fails(c, "settings", "see exs info, and exs info --config",
		    "no program starts: EXS_REQUIRE is %s, which cannot be "
		    "used on this host: %s",
		    name, row.why);
	return true;
}

int check_host(const char *host, const char *port, struct check *ret)
{
	int fd;

	snprintf(ret->what, sizeof(ret->what), "connections to %s port %s",
		 host, port);
	/* The check prints what the log would say. */
	setenv("EXS_LOG", "off", 0);
	if (exi_config_refusal()) {
		check_fails(ret, "settings", "see exs info --env",
			    "no program starts: %s", exi_config_refusal());
		return TOOL_FAILED;
	}
	if (lacks_required(ret))
		return TOOL_FAILED;
	fd = reach(ret, host, port);
	if (fd < 0)
		return TOOL_FAILED;
	check_connected(ret, fd);
	close(fd);
	return TOOL_OK;
}
