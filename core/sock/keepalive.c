/* SPDX-License-Identifier: BSD-2-Clause */
/* Keepalive beneath a fabric between hosts. */
#include "core/sock/keepalive.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/table.h"

enum {
	ON,
	IDLE,
	INTERVAL,
	COUNT,
	USER_TIMEOUT, /* milliseconds; once a probe is late, it ends TCP */
};

static const struct {
	int level, name;
} options[EXI_KEEP_OPTIONS] = {
	[ON] = { SOL_SOCKET, SO_KEEPALIVE },
	[IDLE] = { IPPROTO_TCP, TCP_KEEPIDLE },
	[INTERVAL] = { IPPROTO_TCP, TCP_KEEPINTVL },
	[COUNT] = { IPPROTO_TCP, TCP_KEEPCNT },
	[USER_TIMEOUT] = { IPPROTO_TCP, TCP_USER_TIMEOUT },
};

/* Firewalls usually forget a connection after 350 seconds, and a probe may be
 * lost. The kernel probes again after the interval, even if it got an
 * answer. */
int exi_keepalive_idle = 120;
#define INTERVAL_S   60
#define INTERVAL_MAX 240
/* The kernel's maximum. With the library's options, a connection lives for two
 * hours without an answer: before that, the kernel's own keepalive does not
 * even probe. */
#define COUNT_MAX 127

static int read_all(int fd, int ret[EXI_KEEP_OPTIONS])
{
	socklen_t len;

	for (int i = 0; i < EXI_KEEP_OPTIONS; i++) {
		len = sizeof(ret[i]);
		if (getsockopt(fd, options[i].level, options[i].name, &ret[i],
			       &len) < 0)
			return -errno;
	}
	return 0;
}

static void write_all(int fd, const int to[EXI_KEEP_OPTIONS])
{
	for (int i = 0; i < EXI_KEEP_OPTIONS; i++)
		setsockopt(fd, options[i].level, options[i].name, &to[i],
			   sizeof(to[i]));
}

/* Seconds of silence after which the program's own options end TCP. */
static int patience(const int own[EXI_KEEP_OPTIONS])
{
	int s = own[IDLE] + own[INTERVAL];

	if (own[USER_TIMEOUT])
		return own[USER_TIMEOUT] / 1000 > s ? own[USER_TIMEOUT] / 1000
						    : s;
	return own[IDLE] + own[INTERVAL] * own[COUNT];
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

static void choose(const int own[EXI_KEEP_OPTIONS], int ret[EXI_KEEP_OPTIONS])
{
	int rest;

	memcpy(ret, own, EXI_KEEP_OPTIONS * sizeof(*ret));
	if (own[ON] && own[IDLE] <= exi_keepalive_idle &&
	    own[INTERVAL] <= INTERVAL_MAX)
		return;
	ret[ON] = 1;
	ret[IDLE] = exi_keepalive_idle;
	ret[INTERVAL] = least(INTERVAL_S, exi_keepalive_idle);
	ret[COUNT] = COUNT_MAX;
	ret[USER_TIMEOUT] = 0;
	if (!own[ON])
		return;
	ret[IDLE] = least(own[IDLE], exi_keepalive_idle);
	rest = patience(own) - ret[IDLE];
	if (rest > COUNT_MAX * ret[INTERVAL])
		ret[INTERVAL] =
			least((rest + COUNT_MAX - 1) / COUNT_MAX, INTERVAL_MAX);
	ret[COUNT] =
		least((rest + ret[INTERVAL] - 1) / ret[INTERVAL], COUNT_MAX);
}

static void begin(struct exi_keepalive *k, int fd)
{
	if (read_all(fd, k->own))
		return;
	choose(k->own, k->ours);
	write_all(fd, k->ours);
	atomic_store(&k->stands, 1);
}

/* Ends the library's keepalive. An option that differs from what the library
 * set was set by the program, not intercepted. */
static void end(struct exi_keepalive *k, int fd)
{
	int now[EXI_KEEP_OPTIONS];

	atomic_store(&k->stands, 0);
	if (read_all(fd, now))
		return;
	for (int i = 0; i < EXI_KEEP_OPTIONS; i++)
		if (now[i] != k->ours[i])
			k->own[i] = now[i];
	write_all(fd, k->own);
}

/* Each direction settles after its own mode has changed: the last one takes the
 * lock after the other, and sees both. */
void exi_keepalive_settle_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	struct exi_keepalive *k = &sh->keepalive;
	enum exi_mode tx, rx;
	bool wanted;

	EXI_LOCKED_ONE(exi_lock_held(&sk->sh->half[EXI_RX].lock) ||
		       exi_lock_held(&sk->sh->half[EXI_TX].lock));
	if (!exi_sock_remote(sk) && !atomic_load(&k->stands))
		return;
	exi_lock(&k->lock);
	tx = atomic_load(&sh->half[EXI_TX].mode);
	rx = atomic_load(&sh->half[EXI_RX].mode);
	wanted = tx == EXI_MODE_RING || rx == EXI_MODE_RING ||
		 rx == EXI_MODE_LEFT;
	if (wanted != atomic_load(&k->stands) &&
	    exi_sock_current(sk, sk->tcp->fd)) {
		if (wanted)
			begin(k, sk->tcp->fd);
		else
			end(k, sk->tcp->fd);
	}
	exi_unlock(&k->lock);
}

static int find(int level, int name)
{
	int i = 0;

	while (i < EXI_KEEP_OPTIONS &&
	       (options[i].level != level || options[i].name != name))
		i++;
	return i;
}

int exi_keepalive_set(struct exi_sock *sk, int fd, int level, int name,
		      const void *val, socklen_t len)
{
	struct exi_keepalive *k = &sk->sh->keepalive;
	int i = find(level, name), ret = 1;
	socklen_t size = sizeof(k->own[i]);

	if (i == EXI_KEEP_OPTIONS || !atomic_load(&k->stands))
		return 1;
	exi_lock(&k->lock);
	if (atomic_load(&k->stands)) {
		/* The kernel checks whether the value is allowed, and what it
		 * becomes. */
		ret = setsockopt(fd, level, name, val, len) < 0 ? -errno : 0;
		if (!ret) {
			getsockopt(fd, level, name, &k->own[i], &size);
			choose(k->own, k->ours);
			write_all(fd, k->ours);
		}
	}
	exi_unlock(&k->lock);
	return ret;
}

void exi_keepalive_tell(struct exi_sock *sk, int level, int name, void *val,
			socklen_t len)
{
	struct exi_keepalive *k = &sk->sh->keepalive;
	int i = find(level, name);

	if (i == EXI_KEEP_OPTIONS || !atomic_load(&k->stands))
		return;
	exi_lock(&k->lock);
	if (atomic_load(&k->stands))
		memcpy(val, &k->own[i],
		       len < sizeof(k->own[i]) ? len : sizeof(k->own[i]));
	exi_unlock(&k->lock);
}
