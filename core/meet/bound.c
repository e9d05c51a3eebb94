/* SPDX-License-Identifier: BSD-2-Clause */
/* sock_diag reads the board (INET_DIAG_SOCKOPT, Linux 5.10) without the
 * socket's lock. A query that takes the lock (INET_DIAG_INFO) would let a
 * hostile peer, whose thread sleeps in a page fault of its send, stop this
 * process for good. */
#include "core/meet/bound.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "core/base/abstract.h"
#include "core/base/hash.h"
#include "core/base/ids.h"
#include "core/base/proof.h"

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif
#ifndef IP_RECVERR_RFC4884
#define IP_RECVERR_RFC4884 26
#endif

#define SYMBOL_BITS 5

/* The options are for binding, datagrams to groups, and errors of datagrams. */
static const int options[SYMBOL_BITS] = {
	IP_FREEBIND,	  IP_BIND_ADDRESS_NO_PORT, IP_MULTICAST_LOOP,
	IP_MULTICAST_ALL, IP_RECVERR_RFC4884,
};

static unsigned int symbol_of(const struct inet_diag_sockopt *o)
{
	return (unsigned int)o->freebind |
	       (unsigned int)o->bind_address_no_port << 1 |
	       (unsigned int)o->mc_loop << 2 | (unsigned int)o->mc_all << 3 |
	       (unsigned int)o->recverr_rfc4884 << 4;
}

bool exi_bound_uses(int level, int name)
{
	unsigned int i;

	if (level == IPPROTO_IPV6 && name == IPV6_FREEBIND)
		return true;
	for (i = 0; level == IPPROTO_IP && i < SYMBOL_BITS; i++)
		if (options[i] == name)
			return true;
	return false;
}

/* --- the board ---------------------------------------------------------- */

/* The options that are set, as a symbol; -errno. */
static int own_symbol(int fd)
{
	int ret = 0, v;
	socklen_t len;
	unsigned int i;

	for (i = 0; i < SYMBOL_BITS; i++) {
		len = sizeof(v);
		v = 0;
		if (getsockopt(fd, IPPROTO_IP, options[i], &v, &len) < 0)
			return -errno;
		ret |= (v != 0) << i;
	}
	return ret;
}

static int set_bit(int fd, unsigned int i, unsigned int symbol)
{
	int v = symbol >> i & 1;

	return setsockopt(fd, IPPROTO_IP, options[i], &v, sizeof(v)) < 0
		       ? -errno
		       : 0;
}

static int take_board(struct exi_bound *p, int fd)
{
	uint64_t cookie = exi_sock_cookie(fd);
	int was = own_symbol(fd);

	if (!cookie || was < 0)
		return was < 0 ? was : -EOPNOTSUPP;
	p->cookie = cookie;
	p->process = exi_use_token();
	p->was = p->shown = (uint8_t)was;
	p->taken = true;
	return 0;
}

static int show(struct exi_bound *p, int fd, unsigned int symbol)
{
	unsigned int i;
	int err = 0;

	if (!p->taken || exi_sock_cookie(fd) != p->cookie)
		return -EBADF;
	for (i = 0; !err && i < SYMBOL_BITS; i++)
		err = set_bit(fd, i, symbol);
	p->shown = (uint8_t)symbol;
	return err;
}

void exi_bound_end(struct exi_bound *p, int fd)
{
	unsigned int i;
	int now;

	if (!p->taken)
		return;
	p->taken = false;
	if (p->process != exi_use_token() || exi_sock_cookie(fd) != p->cookie)
		return;
	now = own_symbol(fd);
	for (i = 0; now >= 0 && i < SYMBOL_BITS; i++)
		if (!(((unsigned int)now ^ p->shown) >> i & 1))
			set_bit(fd, i, p->was);
}

/* --- the digest --------------------------------------------------------- */

struct __attribute__((packed)) named {
	char label[16];
	uint8_t address_a[16];
	uint8_t address_b[16];
	uint16_t port_a;
	uint16_t port_b;
	uint8_t nonce_a[EXI_BOUND_NONCE];
	uint8_t nonce_b[EXI_BOUND_NONCE];
};

static int new_nonce(struct exi_bound *p)
{
	ssize_t n = getrandom(p->nonce, sizeof(p->nonce), GRND_NONBLOCK);

	return n == sizeof(p->nonce) ? 0 : -EAGAIN;
}

static void promise_of(const uint8_t *nonce, uint8_t ret[EXI_SHA256])
{
	uint8_t in[16 + EXI_BOUND_NONCE] = "libexs promise";

	memcpy(in + 16, nonce, EXI_BOUND_NONCE);
	exi_sha256(in, sizeof(in), ret);
}

static void digest(struct exi_bound *p, const struct exi_tuple *t,
		   const uint8_t *nonce)
{
	struct named n = { .label = "libexs link" };

	memcpy(n.address_a, p->a ? t->local : t->peer, 16);
	memcpy(n.address_b, p->a ? t->peer : t->local, 16);
	n.port_a = p->a ? t->local_port : t->peer_port;
	n.port_b = p->a ? t->peer_port : t->local_port;
	memcpy(n.nonce_a, p->a ? p->nonce : nonce, EXI_BOUND_NONCE);
	memcpy(n.nonce_b, p->a ? nonce : p->nonce, EXI_BOUND_NONCE);
	exi_sha256(&n, sizeof(n), p->digest);
}

/* Each end shows bytes of its own half of the digest. */
static unsigned int symbol(const struct exi_bound *p, bool a, unsigned int i)
{
	return p->digest[(a ? 0 : EXI_SHA256 / 2) + i] &
	       ((1 << SYMBOL_BITS) - 1);
}

/* --- the name of the link ------------------------------------------------- */

static socklen_t name_of(const uint8_t *nonce, struct sockaddr_un *ret)
{
	char hex[2 * EXI_BOUND_NONCE + 1];

	exi_hex(hex, nonce, EXI_BOUND_NONCE);
	return exi_abstract(ret, "libexs/1/link/%s", hex);
}

/* B's end. No other socket of the network namespace can have the name until the
 * link is closed, which is after the board was given back. */
static int take_name(int link, const uint8_t *nonce)
{
	struct sockaddr_un name;
	socklen_t len = name_of(nonce, &name);

	return bind(link, (struct sockaddr *)&name, len) < 0 ? -errno : 0;
}

/* 0: the other end of the link has the name. */
static int check_name(int link, const uint8_t *nonce)
{
	struct sockaddr_un name, peer;
	socklen_t len = name_of(nonce, &name), n = sizeof(peer);

	if (getpeername(link, (struct sockaddr *)&peer, &n) < 0)
		return -errno;
	return n == len && !memcmp(&peer, &name, len) ? 0 : -EPERM;
}

/* --- the conversation ---------------------------------------------------- */

int exi_bound_promise(struct exi_bound *p, uint8_t ret[EXI_SHA256])
{
	int err;

	memset(p, 0, sizeof(*p));
	err = new_nonce(p);
	if (!err)
		promise_of(p->nonce, ret);
	return err;
}

int exi_bound_answer(struct exi_bound *p, int fd,
		     const uint8_t promise[EXI_SHA256],
		     uint8_t ret[EXI_BOUND_NONCE])
{
	int err;

	memset(p, 0, sizeof(*p));
	p->a = true;
	memcpy(p->promise, promise, EXI_SHA256);
	err = new_nonce(p);
	if (!err)
		err = take_board(p, fd);
	if (!err)
		memcpy(ret, p->nonce, EXI_BOUND_NONCE);
	return err;
}

int exi_bound_open(struct exi_bound *p, int fd, int link,
		   const struct exi_tuple *t,
		   const uint8_t nonce[EXI_BOUND_NONCE],
		   uint8_t ret[EXI_BOUND_NONCE])
{
	int err = take_name(link, p->nonce);

	if (!err)
		err = take_board(p, fd);
	if (err)
		return err;
	digest(p, t, nonce);
	memcpy(ret, p->nonce, EXI_BOUND_NONCE);
	return 0;
}

int exi_bound_opened(struct exi_bound *p, int link, const struct exi_tuple *t,
		     const uint8_t nonce[EXI_BOUND_NONCE])
{
	uint8_t promise[EXI_SHA256];
	int err;

	promise_of(nonce, promise);
	if (memcmp(promise, p->promise, sizeof(promise)))
		return -EPERM;
	err = check_name(link, nonce);
	if (!err)
		digest(p, t, nonce);
	return err;
}

int exi_bound_check(struct exi_bound *p, const struct exi_tuple *t)
{
	struct inet_diag_sockopt o;
	int err = exi_proof_options(t, &o);

	if (err)
		return err;
	if (symbol_of(&o) != symbol(p, !p->a, p->looked))
		return -EPERM;
	p->looked++;
	return 0;
}

int exi_bound_show(struct exi_bound *p, int fd, unsigned int i)
{
	return show(p, fd, symbol(p, p->a, i));
}
