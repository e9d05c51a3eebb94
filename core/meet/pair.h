/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of the pair link, field by field. */
#ifndef EXI_CORE_MEET_PAIR_H
#define EXI_CORE_MEET_PAIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"

struct exi_link;
struct exi_sock;
struct exi_tuple;

#define EXI_PAIR_MAGIC	 0x50535845u /* "EXSP" */
#define EXI_PAIR_VERSION 2u

enum exi_pair_type {
	EXI_PAIR_HELLO = 1,
	EXI_PAIR_PROVED = 2,
	EXI_PAIR_OFFER = 3,
	EXI_PAIR_ANSWER = 4,
	EXI_PAIR_GO = 5,
	EXI_PAIR_SWITCH = 6,
	EXI_PAIR_DOWN = 7,
	EXI_PAIR_DOWN_ACK = 8,
	EXI_PAIR_TAKEBACK = 9,
	EXI_PAIR_UP = 10,
	EXI_PAIR_FINSEEN = 11,
	EXI_PAIR_NO = 12,
	EXI_PAIR_TAKEN = 13,
	EXI_PAIR_MET = 14, /* from a fabric, of a peer on another host */
	EXI_PAIR_SHOWN = 15,
	EXI_PAIR_KEPT = 16, /* B to A: on TCP for reason a so far */
	EXI_PAIR_TYPE_MAX
};

/* HELLO's c: the kernel does not show that the peer's user owns its end, so
 * both ends show their boards (bound.h). */
#define EXI_HELLO_SHOW 1u
/* HELLO's c: both ends prove that they hold the key (meetdir.h); blob: a nonce,
 * and from A a MAC. */
#define EXI_HELLO_KEY 2u

/* The question or answer of a FINSEEN. */
enum exi_pair_finseen {
	EXI_FINSEEN_ASK = 1,	/* look, and answer if you still have it */
	EXI_FINSEEN_ANSWER = 2, /* I still have it */
};

/* DOWN's a: another process gets this end, and may meet the peer again. */
#define EXI_DOWN_HANDED 1u

/* NO's b: not now. A process forks, and the first that uses the connection
 * afterwards meets the peer. */
#define EXI_NO_NOW 1u

struct exi_pair_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint64_t a;
	uint64_t b;
	uint64_t c;
	uint8_t blob[EXI_BLOB_MAX];
};
_Static_assert(sizeof(struct exi_pair_msg) == 96, "struct exi_pair_msg");

/* Sends a control message on the pair link. -ENOTCONN when it is gone. */
int exi_link_send(struct exi_sock *sk, enum exi_pair_type type, uint64_t a,
		  uint64_t b, uint64_t c);

/* Called when bytes were sent to a peer through the kernel: a thread that finds
 * later bytes on a fabric treats that as a doorbell. Not counted before the
 * first link of this process was up. began: exi_link_sends() before the call.
 * Within a host the kernel delivers during the call, and may run the woken peer
 * in place of this thread: what the peer asks the kernel for meanwhile comes
 * after these bytes, although the call ends later. So a call that sends few
 * bytes counts as no longer than it takes without that. */
EXI_SHIM extern _Atomic bool exi_link_any;
#define EXI_LINK_LITTLE	    16384
#define EXI_LINK_SEND_TICKS 16384

static inline uint64_t exi_link_sends(void)
{
	return atomic_load_explicit(&exi_link_any, memory_order_relaxed)
		       ? exi_ticks()
		       : 0;
}

static inline void exi_link_by_kernel(uint64_t began, ssize_t n)
{
	uint64_t now;

	if (!atomic_load_explicit(&exi_link_any, memory_order_relaxed))
		return;
	now = exi_ticks();
	if (began && n <= EXI_LINK_LITTLE && now - began > EXI_LINK_SEND_TICKS)
		now = began + EXI_LINK_SEND_TICKS;
	atomic_fetch_add_explicit(&exi_conn_wakes, 1, memory_order_relaxed);
	atomic_store_explicit(&exi_conn_sent, now, memory_order_relaxed);
}

/* Sends one packet on a link, with the descriptor pass unless that is -1. 0 or
 * -errno; never waits. */
int exi_pair_send(int fd, const struct exi_pair_msg *m, int pass);

/* A message of this type, else zero. */
struct exi_pair_msg exi_pair_message(enum exi_pair_type type);

/* Sends NO with this reason (EXS_X_REASON_*), if there is room. */
void exi_pair_send_no(int fd, int reason);
/* The same for a meeting that is put off: the peer is to meet again. An older
 * peer stays on TCP for the reason. */
void exi_pair_send_not_now(int fd, int reason);
/* Whether the message puts the meeting off. */
bool exi_pair_is_not_now(const struct exi_pair_msg *m, ssize_t n);

/* Sends a message of this type that has only a reason. 0 or -errno. */
int exi_pair_send_reason(int fd, enum exi_pair_type type, int reason);

/* Receives one packet of a meeting, which may carry one descriptor, into
 * *ret_fd, else unchanged. Results as of exi_rights_none(); -EMFILE: no
 * descriptor was free for it, and the packet is still in the queue. */
ssize_t exi_pair_recv_passing(int s, struct exi_pair_msg *ret, int *ret_fd);

/* Receives one packet of a link that is up, which may carry no descriptor;
 * results as of exi_rights_none(). Once the link refuses descriptors, and has
 * been empty, none can come, and the check is left out. link_lock held. */
ssize_t exi_pair_recv_up(struct exi_link *l, struct exi_pair_msg *ret);

/* Whether the n bytes are a message of this version and of an existing type. */
bool exi_pair_well_formed(const struct exi_pair_msg *m, ssize_t n);

/* Makes the UNIX socket of a link, in the connection's network namespace. No
 * descriptor passes through it until the peer is known. Returns the descriptor
 * or -errno; -EXDEV: this thread is in another namespace; -EACCES: not
 * permitted. */
int exi_pair_socket(const struct exi_tuple *t);

#endif
