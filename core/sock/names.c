/* SPDX-License-Identifier: BSD-2-Clause */
/* Second numbers of sockets: the table of them, and how a socket gets its
 * first. */
#include "core/sock/names.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/sock/table.h"

pthread_mutex_t exi_names_lock = PTHREAD_MUTEX_INITIALIZER;

bool exi_names_has(const struct exi_sock *sk, int fd)
{
	return sk->named && exi_sock_is(sk, fd) && atomic_load(&sk->fd) != fd;
}

void exi_names_add_locked(struct exi_sock *sk, int fd, int number)
{
	EXI_MUTEX_LOCKED(&exi_names_lock);
	atomic_store(&exi_table.names[fd], number + 1);
	exi_sock_put(fd, sk);
}

static void unname(const struct exi_sock *sk, int fd)
{
	if (atomic_load(&exi_table.socks[fd]) == sk)
		atomic_store(&exi_table.socks[fd], NULL);
	atomic_store(&exi_table.names[fd], 0);
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
	exi_mutex_lock(&exi_names_lock);
	if (exi_names_has(sk, fd)) {
		unname(sk, fd);
		ret = exi_name_others(sk, fd);
	}
	exi_mutex_unlock(&exi_names_lock);
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
	pthread_mutex_init(&exi_names_lock, NULL);
}
