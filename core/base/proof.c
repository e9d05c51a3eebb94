/* SPDX-License-Identifier: BSD-2-Clause */
/* sock_diag and SO_PEERCRED. */
#include "core/base/proof.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/diag.h"
#include "core/base/proof_unix.h"
#include "core/base/user.h"

#define TCP_ESTABLISHED 1

#ifndef SO_ORIGINAL_DST /* of IPv4, and of IPv6 */
#define SO_ORIGINAL_DST 80
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

static uint32_t device_of(int fd, uint32_t scope)
{
	int ret = 0;
	socklen_t len = sizeof(ret);

	return getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &ret, &len) < 0
		       ? scope /* before Linux 5.0 */
		       : (uint32_t)ret;
}

static int fill(const struct sockaddr_storage *ss, uint8_t *addr,
		uint16_t *port, uint32_t *scope)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;

	if (ss->ss_family == AF_INET6) {
		memcpy(addr, &in6->sin6_addr, 16);
		*port = ntohs(in6->sin6_port);
		if (in6->sin6_scope_id)
			*scope = in6->sin6_scope_id;
		return 0;
	}
	if (ss->ss_family != AF_INET)
		return -EAFNOSUPPORT;
	memset(addr, 0, 10);
	addr[10] = addr[11] = 0xff;
	memcpy(addr + 12, &in->sin_addr, 4);
	*port = ntohs(in->sin_port);
	return 0;
}

int exi_tuple_of(int fd, struct exi_tuple *ret)
{
	struct sockaddr_storage local, peer;
	socklen_t len = sizeof(local);
	struct exi_tuple t;
	int err;

	memset(&t, 0, sizeof(t));
	if (getsockname(fd, (struct sockaddr *)&local, &len) < 0)
		return -errno;
	t.netns = exi_netns_cookie(fd);
	if (local.ss_family == AF_UNIX) {
		t.family = AF_UNIX;
		err = exi_unix_tuple(fd, &t);
		if (!err)
			*ret = t;
		return err;
	}
	len = sizeof(peer);
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return -errno;
	err = fill(&local, t.local, &t.local_port, &t.scope);
	if (!err)
		err = fill(&peer, t.peer, &t.peer_port, &t.scope);
	t.device = device_of(fd, t.scope);
	if (!t.netns)
		t.cookie = exi_sock_cookie(fd);
	if (!err)
		*ret = t;
	return err;
}

bool exi_tuple_here(const struct exi_tuple *t, int fd)
{
	return !t->netns || exi_netns_cookie(fd) == t->netns;
}

bool exi_tuple_is_self(const struct exi_tuple *t)
{
	return t->local_port == t->peer_port &&
	       memcmp(t->local, t->peer, 16) == 0;
}

static bool is_v4(const struct exi_tuple *t)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(t->local, mapped, 12) == 0 &&
	       memcmp(t->peer, mapped, 12) == 0;
}

static struct exi_tuple turned(const struct exi_tuple *t)
{
	struct exi_tuple ret = *t;

	memcpy(ret.local, t->peer, sizeof(ret.local));
	memcpy(ret.peer, t->local, sizeof(ret.peer));
	ret.local_port = t->peer_port;
	ret.peer_port = t->local_port;
	return ret;
}

/* The addresses as the other end sees them. */
static void mirror(const struct exi_tuple *t, struct inet_diag_req_v2 *r)
{
	bool v4 = is_v4(t);
	unsigned int skip = v4 ? 12 : 0;

	r->sdiag_family = v4 ? AF_INET : AF_INET6;
	r->sdiag_protocol = IPPROTO_TCP;
	r->idiag_states = ~0u;
	r->id.idiag_sport = htons(t->peer_port);
	r->id.idiag_dport = htons(t->local_port);
	memcpy(r->id.idiag_src, t->peer + skip, 16 - skip);
	memcpy(r->id.idiag_dst, t->local + skip, 16 - skip);
	r->id.idiag_if = t->device;
	r->id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
	r->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

struct tcp_question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 req;
};

static struct tcp_question question(const struct exi_tuple *t)
{
	struct tcp_question q = { .head = { .nlmsg_len = sizeof(q),
					    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
					    .nlmsg_flags = NLM_F_REQUEST } };

	mirror(t, &q.req);
	return q;
}

/* The netlink socket is the thread's; the query must be about the namespace of
 * the tuple's socket. Before Linux 5.14 that is checked by finding that socket
 * there by its addresses. */
static int is_here(int nl, const struct exi_tuple *t)
{
	struct exi_tuple own = turned(t);
	struct tcp_question q;
	struct inet_diag_msg m;
	union exi_diag_answer a;
	int err;

	if (t->netns || !t->cookie)
		return t->netns == 0 || exi_netns_cookie(nl) == t->netns
			       ? 0
			       : -ENOENT;
	q = question(&own);
	err = exi_diag_ask(nl, &q.head, sizeof(m), &a);
	if (err)
		return err;
	memcpy(&m, NLMSG_DATA(&a.head), sizeof(m));
	return m.id.idiag_cookie[0] == (uint32_t)t->cookie &&
			       m.id.idiag_cookie[1] ==
				       (uint32_t)(t->cookie >> 32)
		       ? 0
		       : -ENOENT;
}

/* The kernel accepts an end that is bound to no device for any device, and
 * there may be one that is bound to it: two connections with the same
 * addresses. */
static int is_alike(const struct exi_tuple *t, const union exi_diag_answer *a)
{
	struct inet_diag_msg m;

	memcpy(&m, NLMSG_DATA(&a->head), sizeof(m));
	return m.id.idiag_if == t->device ? 0 : -EOPNOTSUPP;
}

static int ask_by_own(const struct exi_tuple *t, union exi_diag_answer *ret)
{
	struct tcp_question q = question(t);
	int nl = exi_diag_open(), err;

	if (nl < 0)
		return nl;
	err = is_here(nl, t);
	if (!err)
		err = exi_diag_ask(nl, &q.head, sizeof(struct inet_diag_msg),
				   ret);
	close(nl);
	return err ? err : is_alike(t, ret);
}

static int ask_tcp(const struct exi_tuple *t, bool users,
		   union exi_diag_answer *ret)
{
	struct tcp_question q = question(t);
	int err;

	if (!exi_diag_ask_kept(t->netns, users, &q.head,
			       sizeof(struct inet_diag_msg), ret, &err))
		return ask_by_own(t, ret);
	return err ? err : is_alike(t, ret);
}

static int other_end(const struct exi_tuple *t, struct inet_diag_msg *ret)
{
	union exi_diag_answer a;
	int err = ask_tcp(t, false, &a);

	if (!err)
		memcpy(ret, NLMSG_DATA(&a.head), sizeof(*ret));
	return err;
}

int exi_proof_unread(const struct exi_tuple *t, uint32_t *ret)
{
	struct exi_tuple own = turned(t);
	struct inet_diag_msg m;
	int err;

	/* The peer of the peer: the query returns this end's own state. */
	own.cookie = 0;
	err = other_end(&own, &m);
	if (!err)
		*ret = m.idiag_rqueue;
	return err;
}

static bool is_loopback(const uint8_t a[16])
{
	static const uint8_t mapped[13] = { [10] = 0xff, [11] = 0xff, 127 };

	return !memcmp(a, mapped, sizeof(mapped)) ||
	       !memcmp(a, &in6addr_loopback, 16);
}

static bool elsewhere(const struct exi_tuple *t)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
				    .sin6_scope_id = t->scope };
	bool v4 = !memcmp(t->peer, mapped, sizeof(mapped));
	bool ret = false;
	int s;

	if (!memcmp(t->local, t->peer, 16) || is_loopback(t->peer))
		return false;
	memcpy(&in.sin_addr, t->peer + 12, 4);
	memcpy(&in6.sin6_addr, t->peer, 16);
	s = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return false;
	setsockopt(s, SOL_SOCKET, SO_BINDTOIFINDEX, &t->device,
		   sizeof(t->device));
	if (bind(s, v4 ? (struct sockaddr *)&in : (struct sockaddr *)&in6,
		 v4 ? sizeof(in) : sizeof(in6)) < 0)
		ret = errno == EADDRNOTAVAIL;
	close(s);
	return ret;
}

static int peer_here(const struct exi_tuple *t)
{
	struct inet_diag_msg m;

	return other_end(t, &m);
}

/* The address to which the connecting end sent the connection, as the kernel's
 * address translation recorded it. -ENOENT, -ENOPROTOOPT: the kernel translates
 * none. */
static int sent_to(const struct exi_tuple *t, int fd, uint8_t *addr,
		   uint16_t *port)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	uint32_t scope = 0;

	if (getsockopt(fd, is_v4(t) ? IPPROTO_IP : IPPROTO_IPV6,
		       SO_ORIGINAL_DST, &ss, &len) < 0)
		return -errno;
	return fill(&ss, addr, port, &scope);
}

static bool is_established(const struct exi_tuple *t)
{
	struct exi_tuple own = turned(t);
	struct inet_diag_msg m;

	return other_end(&own, &m) == 0 && m.idiag_state == TCP_ESTABLISHED;
}

/* Whether this end is established, while no socket here has its addresses
 * reversed. */
static bool lacks_peer(const struct exi_tuple *t)
{
	return peer_here(t) == -ENOENT && is_established(t);
}

bool exi_tuple_hidden(const struct exi_tuple *t)
{
	int err = t->family == AF_UNIX ? 0 : peer_here(t);

	return (err == -ENOENT || err == -EOPNOTSUPP) && !elsewhere(t) &&
	       is_established(t);
}

bool exi_tuple_unaccepted(const struct exi_tuple *t)
{
	struct inet_diag_msg m;

	return t->family != AF_UNIX && other_end(t, &m) == 0 &&
	       m.idiag_state == TCP_ESTABLISHED && !m.idiag_inode;
}

bool exi_tuple_redirected(const struct exi_tuple *t, int fd)
{
	uint8_t addr[16];
	uint16_t port = 0;

	if (t->family == AF_UNIX || sent_to(t, fd, addr, &port))
		return false;
	if (port == t->local_port && !memcmp(addr, t->local, sizeof(addr)))
		return false;
	/* The connecting end only learns where it sent the connection. */
	if (port == t->peer_port && !memcmp(addr, t->peer, sizeof(addr)))
		return !elsewhere(t) && lacks_peer(t);
	return true;
}

/* Whether a holder of the other end made the sign, if the kernel returns it. */
static bool has_sign(const union exi_diag_answer *a)
{
	struct inet_diag_sockopt o;
	const void *at = exi_diag_attribute(a, sizeof(struct inet_diag_msg),
					    INET_DIAG_SOCKOPT, sizeof(o));

	if (!at)
		return true;
	memcpy(&o, at, sizeof(o));
	return !o.mc_loop && !o.mc_all;
}

static int same_user(const struct exi_tuple *t, int unix_fd)
{
	struct inet_diag_msg m;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	union exi_diag_answer a;
	int err = ask_tcp(t, true, &a); /* both numbers of one user namespace */

	if (err)
		return err;
	memcpy(&m, NLMSG_DATA(&a.head), sizeof(m));
	/* If there is no such connection, the kernel may find another socket: a
	 * listener of the port, or an attempt to connect from it. */
	if (m.idiag_state != TCP_ESTABLISHED)
		return -ENOTCONN;
	if (getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	/* A process that has no id here is in a container beside this one: it
	 * can do nothing to processes of its user outside it. And the kernel
	 * may keep processes of one user apart (ptrace(2)): a process that uses
	 * the library does not vouch for one that does not. */
	return cred.uid == m.idiag_uid && cred.pid > 0 &&
			       exi_user_is_one(cred.uid) && has_sign(&a)
		       ? 0
		       : -EPERM;
}

static int options(const struct exi_tuple *t, struct inet_diag_sockopt *ret)
{
	const struct inet_diag_msg *m;
	const void *options;
	union exi_diag_answer a;
	int err = ask_tcp(t, false, &a);

	if (err)
		return err;
	m = NLMSG_DATA(&a.head);
	if (m->idiag_state != TCP_ESTABLISHED)
		return -ENOTCONN;
	options = exi_diag_attribute(&a, sizeof(*m), INET_DIAG_SOCKOPT,
				     sizeof(*ret));
	if (!options)
		return -EOPNOTSUPP;
	memcpy(ret, options, sizeof(*ret));
	return 0;
}

/* Shows the sign: two options are off that are on by default, except the second
 * one on IPv6 sockets. */
void exi_proof_sign(int fd)
{
	const int off = 0;

	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off));
}

void exi_proof_leave(int fd)
{
	const int off = 0, on = 1;

	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &on, sizeof(on));
}

static bool is_off(int fd, int option)
{
	int on = 1;
	socklen_t len = sizeof(on);

	return getsockopt(fd, IPPROTO_IP, option, &on, &len) == 0 && !on;
}

bool exi_proof_bears_sign(int fd)
{
	return is_off(fd, IP_MULTICAST_LOOP) && is_off(fd, IP_MULTICAST_ALL);
}

static int is_signed(const struct exi_tuple *t)
{
	struct inet_diag_sockopt o;
	int err = options(t, &o);

	return err ? (err == -EACCES ? err : 0) : !o.mc_loop;
}

/* --- the kinds of connections -------------------------------------------- */

static bool is_afar(const struct exi_tuple *t)
{
	return t->afar;
}

static int no_options(const struct exi_tuple *t, struct inet_diag_sockopt *ret)
{
	return -EOPNOTSUPP;
}

/* Queries, as the functions of proof.h make them. */
struct kind {
	bool (*elsewhere)(const struct exi_tuple *t);
	int (*same_user)(const struct exi_tuple *t, int link);
	int (*options)(const struct exi_tuple *t,
		       struct inet_diag_sockopt *ret);
	int (*peer_here)(const struct exi_tuple *t);
	int (*is_signed)(const struct exi_tuple *t);
};

static const struct kind *kind_of(const struct exi_tuple *t)
{
	static const struct kind tcp = { elsewhere, same_user, options,
					 peer_here, is_signed };
	static const struct kind unix_stream = { is_afar, exi_unix_same_user,
						 no_options, exi_unix_peer_here,
						 exi_unix_signed };

	return t->family == AF_UNIX ? &unix_stream : &tcp;
}

bool exi_tuple_elsewhere(const struct exi_tuple *t)
{
	return kind_of(t)->elsewhere(t);
}

int exi_proof_same_user(const struct exi_tuple *t, int unix_fd)
{
	return kind_of(t)->same_user(t, unix_fd);
}

int exi_proof_peers_user(const struct exi_tuple *t, int s, int unix_fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int err = exi_proof_same_user(t, unix_fd);

	/* After the answer. */
	if (!err && getpeername(s, (struct sockaddr *)&peer, &len) < 0)
		err = -ENOTCONN;
	return err;
}

int exi_proof_options(const struct exi_tuple *t, struct inet_diag_sockopt *ret)
{
	return kind_of(t)->options(t, ret);
}

bool exi_proof_left(const struct exi_tuple *t)
{
	struct inet_diag_sockopt o;

	return exi_proof_options(t, &o) == 0 && !o.mc_loop && o.mc_all;
}

int exi_proof_peer_here(const struct exi_tuple *t)
{
	return kind_of(t)->peer_here(t);
}

int exi_proof_signed(const struct exi_tuple *t)
{
	return kind_of(t)->is_signed(t);
}

uint64_t exi_sock_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0)
		return 0;
	return cookie;
}
