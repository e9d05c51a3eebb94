/* SPDX-License-Identifier: BSD-2-Clause */
/* The drain: sending over TCP the bytes that the fabric holds. */
#include "core/transfer/drain.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/sock/base.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/transfer/half.h"
#include "core/transfer/place.h"
#include "core/transfer/resume.h"
#include "core/transfer/seqpacket.h"

/* What a message may have with its own 320 bytes in 16 KiB of the kernel. */
#define RUNS	512
#define MESSAGE 16000

static int not_drained_locked(struct exi_sock *sk, ssize_t err)
{
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (err != -EAGAIN && err != -EINTR)
		exi_place_forsake_locked(sk);
	return (int)err;
}

/* Sends what comes next over the kernel's stream: how many bytes, 0 when there
 * are none. Where each call makes a message, many small runs make one message,
 * and a large run makes several: the kernel charges 768 bytes for the smallest
 * message, and a message's memory is a power of two, so the kernel would not
 * have room for a full ring of unchanged runs. Made in this way, the messages
 * of a ring are charged at most a sixteenth more than its size, and one
 * message; unix.c relies on that. */
static ssize_t send_runs_locked(struct exi_sock *sk)
{
	struct iovec v[RUNS];
	const void *run;
	size_t n;

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (sk->base->packets)
		return exi_seq_drain_locked(sk);
	if (sk->base->messages && sk->fab->swops->runs) {
		n = sk->fab->swops->runs(sk->fab, v, RUNS, MESSAGE);
		return n ? sk->tcp->kops->sendv(sk->tcp, v, n, 0) : 0;
	}
	n = sk->fab->swops->drain(sk->fab, &run);
	return n ? sk->tcp->ops->send(sk->tcp, run, n, 0) : 0;
}

int exi_flow_drain_locked(struct exi_sock *sk)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	ssize_t n;

	EXI_LOCKED(&h->lock);
	/* Not into what got the number when a plain call closed ours. */
	if (!exi_sock_current(sk, sk->tcp->fd))
		return not_drained_locked(sk, -EBADF);
	while (sk->record_left) {
		n = sk->tcp->ops->send(
			sk->tcp, sk->record + EXI_RESUME - sk->record_left,
			sk->record_left, 0);
		if (n < 0)
			return not_drained_locked(sk, n);
		sk->record_left -= (uint32_t)n;
	}
	while ((n = send_runs_locked(sk)) != 0) {
		if (n < 0)
			return not_drained_locked(sk, n);
		sk->fab->swops->drained(sk->fab, (size_t)n);
		h->drained += (uint64_t)n;
		exi_place_reap_locked(sk, EXI_TX);
	}
	exi_half_mode_locked(h, EXI_MODE_TCP);
	/* The drained bytes had arrived at the peer once, and must arrive
	 * again: TCP sends at once. */
	sk->base->push(sk->tcp->fd);
	if (h->lingers)
		setsockopt(sk->tcp->fd, SOL_SOCKET, SO_LINGER, &h->linger,
			   sizeof(h->linger));
	h->lingers = 0;
	if (h->ended && !h->fin) {
		h->fin = 1;
		shutdown(sk->tcp->fd, SHUT_WR);
	}
	return 0;
}

/* The service continues the drain when TCP has room. */
int exi_flow_await_drain_locked(struct exi_sock *sk)
{
	int ret = exi_service_domain(sk->tcp->domain);

	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (ret)
		return ret;
	ret = sk->tcp->wops->arm(sk->tcp, EXI_TX, EXI_WAKE_BELL);
	return ret == -EBUSY ? -EAGAIN : ret;
}

/* Onto the end of what was gathered. */
static int append(char **bytes, size_t *n, const void *more, size_t len)
{
	char *p = len ? realloc(*bytes, *n + len) : *bytes;

	if (!len)
		return 0;
	if (!p)
		return -ENOMEM;
	memcpy(p + *n, more, len);
	*bytes = p;
	*n += len;
	return 0;
}

int exi_flow_owed_locked(struct exi_sock *sk, char **ret, size_t *ret_n)
{
	struct exi_half *h = &sk->sh->half[EXI_TX];
	char *bytes = NULL;
	const void *run;
	size_t len, n = 0;
	int err = append(&bytes, &n, sk->record + EXI_RESUME - sk->record_left,
			 sk->record_left);

	EXI_LOCKED(&h->lock);
	while (!err && (len = sk->fab->swops->drain(sk->fab, &run)) > 0) {
		err = append(&bytes, &n, run, len);
		if (err)
			break;
		sk->fab->swops->drained(sk->fab, len);
		exi_place_reap_locked(sk, EXI_TX);
	}
	if (err) {
		free(bytes);
		return err;
	}
	sk->record_left = 0;
	exi_half_mode_locked(h, EXI_MODE_TCP);
	*ret = bytes;
	*ret_n = n;
	return 0;
}
