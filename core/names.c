/* SPDX-License-Identifier: BSD-2-Clause */
/* Second names: the table of them, and how a socket gets its first. */
#include "core/names.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/queue.h"
#include "core/service.h"
#include "core/util.h"

/* Guards changes of names. Taken before a socket's locks. */
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_name(const struct exi_sock *sk, int fd)
{
	return sk->named && exi_sock_is(sk, fd) && atomic_load(&sk->fd) != fd;
}

static void name_locked(struct exi_sock *sk, int fd, int number)
{
	EXI_MUTEX_LOCKED(&names_lock);
	atomic_store(&exi_table.names[fd], number + 1);
	exi_sock_put(fd, sk);
}

static void unname(const struct exi_sock *sk, int fd)
{
	if (atomic_load(&exi_table.socks[fd]) == sk)
		atomic_store(&exi_table.socks[fd], NULL);
	atomic_store(&exi_table.names[fd], 0);
}

/* The socket is known by another number from now on, by the old one as a
 * name. */
static int renumber(struct exi_sock *sk, int from, int to)
{
	int ret = -EBUSY;
	enum exi_dir d;

	exi_lock(&sk->link_lock);
	if (atomic_load(&sk->fd) != from || sk->closing) {
		exi_unlock(&sk->link_lock);
		return -EBADF;
	}
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
	if (exi_list_empty(&sk->poll_ops) && !sk->poll_events) {
		name_locked(sk, from, to);
		exi_sock_put(to, sk);
		sk->tcp->fd = to;
		if (sk->fab)
			sk->fab->fd = to;
		sk->named = true;
		atomic_store(&sk->fd, to);
		ret = 0;
	}
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
	if (ret == 0 && sk->watched) {
		exi_service_unwatch(from);
		sk->watched = exi_service_watch(sk, to, EXI_WATCH_TCP,
						EPOLLRDHUP | EPOLLET) == 0;
	}
	exi_unlock(&sk->link_lock);
	for (d = EXI_RX; ret == 0 && d <= EXI_TX; d++) {
		/* Queues know what is queued by the old number. */
		exi_queue_cool(sk, d);
		if (atomic_load(&sk->n_ops[d]))
			exi_service_progress(sk, d);
	}
	return ret;
}

int exi_name_add(struct exi_sock *sk, int fd, int also)
{
	int ret = 0, own;

	if ((uint32_t)also >= exi_table.size)
		return -EMFILE;
	pthread_mutex_lock(&names_lock);
	if (!is_name(sk, fd)) {
		own = exi_fd_keep(fcntl(fd, F_DUPFD_CLOEXEC, 0));
		ret = own < 0				? own
		      : (uint32_t)own >= exi_table.size ? -EMFILE
							: renumber(sk, fd, own);
		if (ret && own >= 0)
			exi_fd_close(own);
	}
	if (ret == 0)
		name_locked(sk, also, atomic_load(&sk->fd));
	pthread_mutex_unlock(&names_lock);
	return ret;
}

int exi_name_next(struct exi_sock *sk, int fd)
{
	int number = atomic_load(&sk->fd), high;

	if (!sk->named)
		return fd <= number ? number : -1;
	high = (int)atomic_load(&exi_table.high);
	for (; fd < high; fd++)
		if (atomic_load(&exi_table.names[fd]) == number + 1)
			return fd;
	return -1;
}

bool exi_name_others(struct exi_sock *sk, int fd)
{
	int other;

	if (exi_likely(!sk->named))
		return false;
	other = exi_name_next(sk, 0);
	if (other == fd)
		other = exi_name_next(sk, fd + 1);
	return other >= 0;
}

int exi_name_remove(struct exi_sock *sk, int fd)
{
	int ret = -ENOENT;

	if (exi_likely(!sk->named))
		return ret;
	pthread_mutex_lock(&names_lock);
	if (is_name(sk, fd)) {
		unname(sk, fd);
		ret = exi_name_others(sk, fd);
	}
	pthread_mutex_unlock(&names_lock);
	return ret;
}

void exi_names_forget(struct exi_sock *sk, int number)
{
	uint32_t fd, high = atomic_load(&exi_table.high);

	for (fd = 0; fd < high; fd++)
		if (atomic_load(&exi_table.names[fd]) == number + 1)
			unname(sk, (int)fd);
}

void exi_names_forked(void)
{
	pthread_mutex_init(&names_lock, NULL);
}
