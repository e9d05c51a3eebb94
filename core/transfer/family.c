/* SPDX-License-Identifier: BSD-2-Clause */
/* Questions to the keeper of a shared connection (family.h). The keeper's
 * address is an abstract datagram name with a random number, and a question
 * must contain another number. Both are in memory that only the family sees, so
 * a stranger's question does nothing. The answer is the change of the modes,
 * which the family shares, and of the kick word, on which the asker sleeps. */
#include "core/transfer/family.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/base/abstract.h"
#include "core/base/fds.h"
#include "core/base/futex.h"
#include "core/base/ids.h"
#include "core/base/lock.h"
#include "core/base/rights.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/holders.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/transfer/switch.h"

#define STEP_NS	  50000000u /* until it checks that the keeper lives */
#define QUESTIONS 4	    /* answered at a time */

struct question {
	uint64_t secret;
	uint64_t shared; /* the connection: the same address in the family, */
	uint64_t use;	 /* and the same use of it */
};

static pthread_mutex_t keeper_lock = PTHREAD_MUTEX_INITIALIZER;
static int keeper_fd = -1;
static uint64_t keeper_name, keeper_secret;

static socklen_t name_of(uint64_t keeper, struct sockaddr_un *ret)
{
	return exi_abstract(ret, "libexs/1/keeper/%016llx",
			    (unsigned long long)keeper);
}

/* The keeper's name is visible to every process, and every process can send
 * there, descriptors too. The kernel drops a message that does not begin with
 * the secret before it comes into the queue, in the call that sends it. */
static int hear_family_only(int fd, uint64_t secret)
{
	struct sock_filter code[EXI_RIGHTS_FILTER];
	struct sock_fprog filter = { .len = EXI_RIGHTS_FILTER, .filter = code };

	exi_rights_filter(code, secret, sizeof(struct question));
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
			  sizeof(filter)) < 0
		       ? -errno
		       : 0;
}

static int open_locked(void)
{
	struct sockaddr_un name;
	int fd;

	EXI_MUTEX_LOCKED(&keeper_lock);
	fd = exi_fd_keep(
		socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return fd;
	keeper_name = exi_random() | 1;
	keeper_secret = exi_random();
	if (hear_family_only(fd, keeper_secret) ||
	    bind(fd, (struct sockaddr *)&name, name_of(keeper_name, &name)) <
		    0 ||
	    exi_service_watch_family(fd)) {
		exi_fd_close(fd);
		return -EADDRINUSE;
	}
	keeper_fd = fd;
	return 0;
}

void exi_family_keep(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;

	if (exi_holders_alone(&sh->holders))
		return;
	exi_mutex_lock(&keeper_lock);
	if (keeper_fd >= 0 || open_locked() == 0) {
		atomic_store(&sh->keeper_secret, keeper_secret);
		atomic_store(&sh->keeper, keeper_name);
	}
	exi_mutex_unlock(&keeper_lock);
}

static void answer(struct exi_sock *sk, void *arg)
{
	const struct question *q = arg;

	if ((uint64_t)(uintptr_t)sk->sh == q->shared &&
	    atomic_load(&sk->sh->use) == q->use && sk->fab)
		exi_switch_leave(sk, EXS_X_REASON_SHARED);
}

void exi_family_event(void)
{
	struct question q;
	int i;

	/* The remaining questions are answered the next time: the descriptor
	 * stays readable. */
	for (i = 0; i < QUESTIONS; i++) {
		if (recv(keeper_fd, &q, sizeof(q), MSG_DONTWAIT | MSG_TRUNC) <
		    0)
			return;
		if (q.secret == keeper_secret)
			exi_sock_each(answer, &q);
	}
}

static int put(struct exi_shared *sh)
{
	struct question q = { .secret = atomic_load(&sh->keeper_secret),
			      .shared = (uint64_t)(uintptr_t)sh,
			      .use = atomic_load(&sh->use) };
	uint64_t keeper = atomic_load(&sh->keeper);
	struct sockaddr_un name;
	socklen_t len = name_of(keeper, &name);
	int s, ret = 0;

	if (!keeper)
		return -ECONNRESET;
	s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -errno;
	if (sendto(s, &q, sizeof(q), MSG_DONTWAIT, (struct sockaddr *)&name,
		   len) < 0 &&
	    errno != EAGAIN)
		ret = -ECONNRESET; /* it is no more */
	close(s);
	return ret;
}

/* The rings are lost, and no process can read them any more: every reader and
 * writer gets an error. */
static void lost(struct exi_shared *sh)
{
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_lock(&sh->half[d].lock);
		if (sh->half[d].mode != EXI_MODE_TCP) {
			exi_half_mode_locked(&sh->half[d], EXI_MODE_TCP);
			exi_half_break(&sh->half[d]);
		}
		exi_unlock(&sh->half[d].lock);
	}
}

/* A mode leaves TCP under its lock and after the fabric was mapped, so a thread
 * that holds the lock and sees such a mode sees a fabric that is mapped here;
 * but a closed socket has no fabric, and no TCP end. */
bool exi_family_confirmed(struct exi_sock *sk)
{
	bool ret = false;
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		struct exi_half *h = &sk->sh->half[d];

		exi_lock(&h->lock);
		ret = ret || (h->mode != EXI_MODE_TCP && !sk->fab && sk->tcp);
		exi_unlock(&h->lock);
	}
	return ret;
}

int exi_family_request(struct exi_sock *sk)
{
	/* Before the question: the keeper does not switch again. */
	atomic_store(&sk->sh->hold_here, 1);
	return put(sk->sh);
}

int exi_family_ask_until(struct exi_sock *sk, uint64_t deadline)
{
	struct exi_shared *sh = exi_sock_shared(sk);
	uint32_t use = atomic_load(&sh->use);

	atomic_store(&sh->hold_here, 1); /* the keeper does not switch again */
	for (;;) {
		struct exi_word w = {
			.addr = (const uint32_t *)&sh->kick[EXI_TX],
			.value = atomic_load(&sh->kick[EXI_TX]),
		};
		uint64_t now = exi_now_ns();
		struct timespec until = exi_ns_timespec(now + STEP_NS);

		/* All processes closed it, and it is another connection's. */
		if (atomic_load(&sh->use) != use)
			return -EBADF;
		if (exi_switch_done(sh))
			return 0;
		/* Again each time: the keeper may have died meanwhile. */
		if (now >= deadline || put(sh)) {
			lost(sh);
			return -ECONNRESET;
		}
		exi_futex_wait(&w, 1, &until);
	}
}

int exi_family_ask(struct exi_sock *sk)
{
	return exi_family_ask_until(sk, exi_switch_patience(sk, NULL));
}

void exi_family_forked(void)
{
	pthread_mutex_init(&keeper_lock, NULL);
	exi_fd_close(keeper_fd);
	keeper_fd = -1;
}
