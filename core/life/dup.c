/* SPDX-License-Identifier: BSD-2-Clause */
/* Duplicates: another descriptor for a socket. */
#include "core/life/dup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/base/fds.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/names.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/transfer/queue.h"

/* Gives the socket another number; the old one becomes a name of it. */
static int renumber_locked(struct exi_sock *sk, int from, int to)
{
	EXI_LOCKED(&sk->link_lock);
	EXI_MUTEX_LOCKED(&exi_names_lock);
	if (atomic_load(&sk->fd) != from || sk->closing)
		return -EBADF;
	if (!exi_list_empty(&sk->poll_ops) || sk->poll_events)
		return -EBUSY;
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
	exi_names_add_locked(sk, from, to);
	exi_sock_put(to, sk);
	sk->tcp->fd = to;
	if (sk->fab)
		sk->fab->fd = to;
	sk->named = true;
	atomic_store(&sk->fd, to);
	exi_stats_note(sk);
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	if (sk->watched) {
		exi_service_unwatch(from);
		sk->watched = exi_service_watch(sk, to, EXI_WATCH_TCP,
						EPOLLRDHUP | EPOLLET) == 0;
	}
	return 0;
}

static int add_locked(struct exi_sock *sk, int fd, int also,
		      bool *ret_renumbered)
{
	int own, ret;

	EXI_LOCKED(&sk->link_lock);
	EXI_MUTEX_LOCKED(&exi_names_lock);
	*ret_renumbered = false;
	if (!exi_names_has(sk, fd)) {
		own = exi_fd_keep(fcntl(fd, F_DUPFD_CLOEXEC, 0));
		ret = own < 0 ? own
		      : (uint32_t)own >= exi_table.size
			      ? -EMFILE
			      : renumber_locked(sk, fd, own);
		if (ret && own >= 0)
			exi_fd_close(own);
		if (ret)
			return ret;
		*ret_renumbered = true;
	}
	exi_names_add_locked(sk, also, atomic_load(&sk->fd));
	return 0;
}

int exi_name_add(struct exi_sock *sk, int fd, int also)
{
	bool renumbered;
	enum exi_dir d;
	int ret;

	if ((uint32_t)also >= exi_table.size)
		return -EMFILE;
	exi_fds_begin();
	exi_lock(&sk->link_lock);
	exi_mutex_lock(&exi_names_lock);
	ret = add_locked(sk, fd, also, &renumbered);
	exi_mutex_unlock(&exi_names_lock);
	exi_unlock(&sk->link_lock);
	exi_fds_end();
	for (d = EXI_RX; renumbered && d <= EXI_TX; d++) {
		/* Queues find queued operations by the old number. */
		exi_queue_cool(sk, d);
		if (atomic_load(&sk->n_ops[d]))
			exi_service_progress(sk, d);
	}
	return ret;
}
