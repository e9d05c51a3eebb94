/* SPDX-License-Identifier: BSD-2-Clause */
/* The interface between the core and a fabric. It is all that an author of a
 * fabric needs to read.
 *
 * A provider moves the bytes of connections that the core has made. The core
 * owns names, descriptors, blocking, timeouts, event queues, the order of
 * operations, the locks of a socket, and the decision when a direction of a
 * connection uses which fabric. A provider owns its wire and its rings, and
 * never sees a socket.
 *
 * Objects, and who makes them:
 *
 *	provider	one constant table, registered at start
 *	domain		one per process, opened at first need, remade after fork
 *	connection	one per socket and fabric; the core allocates its state
 *
 * Rules for every call of these tables:
 *
 * Results. 0, a count or -errno. errno is never read nor written. Outputs come
 * last and are written on success only.
 *
 * Locks. Calls about sending (send, post_send, end, head, takeback, drain*)
 * come with the socket's send lock held, calls about receiving with its
 * receive lock; the two may run at once. Locks of one socket are shared with
 * forked processes, so state guarded by them lives in exi_conn.shared.
 *
 * Blocking. send, recv, post_*, progress and arm neither block nor allocate nor
 * enter the kernel while the peer is running. Exceptions are tcp, which is the
 * kernel, and waking a peer that asked for it.
 *
 * Upcalls. exi_xfer.done and exi_conn_ready() are the only ones. They are made
 * from progress() alone, with no provider lock held, and may call back down.
 *
 * Ending. close (no new work; never blocks), stop (waits; no upcall after it),
 * fini (frees): these three, in this order, for every object that has them.
 *
 * Capabilities equal behaviour: the conformance suite tests that an operation
 * works if its bit is set, and returns -EOPNOTSUPP if its bit is clear.
 */
#ifndef EXI_CORE_FABRIC_PROVIDER_H
#define EXI_CORE_FABRIC_PROVIDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/util.h"

struct exi_conn;
struct exi_conn_ops;
struct exi_kernel_ops;
struct exi_ready_ops;
struct exi_wait_ops;
struct exi_apart_ops;
struct exi_domain;
struct exi_loan_ops;
struct exi_nothing;
struct exi_place_ops;
struct exi_provider;
struct exi_shared;
struct exi_switch_ops;
struct exi_tuple;
struct exi_word;

#define EXI_PROVIDER_ABI 12

/* The capabilities of a fabric. The bit 0 is free. */
enum {
	/* Same host: the core's rendezvous finds the peer; offers and answers
	 * travel on the pair link. */
	EXI_CAP_LOCAL = 1 << 1,
	/* send and recv of a connection take no lock and call nothing of the
	 * core that takes one, so the caller may hold the innermost. */
	EXI_CAP_LOCK_FREE = 1 << 2,
	/* switch_ops work: a live direction can be moved onto this fabric and
	 * back. Only tcp lacks it, because directions begin there. */
	EXI_CAP_SWITCH = 1 << 3,
	/* Both ends must be in one process. */
	EXI_CAP_IN_PROCESS = 1 << 4,
	/* The fabric works between hosts, and meets the peer by itself
	 * (remote_ops). */
	EXI_CAP_REMOTE = 1 << 5,
	/* The device moves bytes between the programs' buffers: place_ops. */
	EXI_CAP_PLACE = 1 << 6,
	/* A program may use the fabric's memory as its buffer: loan_ops. */
	EXI_CAP_LOAN = 1 << 7,
};

/* A direction, as seen from this end. */
enum exi_dir {
	EXI_RX = 0,
	EXI_TX = 1,
};

/* How a sleeper wants to be woken. */
enum exi_wake {
	EXI_WAKE_WORD, /* a thread is about to sleep on word() */
	EXI_WAKE_BELL, /* a bell on the domain or link: exi_conn_ready() */
	/* EXI_RX: as EXI_WAKE_BELL, but only for bytes that come after those
	 * that are there now. -EBUSY: such bytes have come already. */
	EXI_WAKE_NEXT,
	/* As EXI_WAKE_WORD, but only for what reap or give wait for. */
	EXI_WAKE_WORD_REAP,
	EXI_WAKE_BELL_REAP,
};

/* A transfer handed to post_send or post_recv. It belongs to the caller, which
 * neither moves it nor touches its buffer until done() was called. */
struct exi_xfer {
	void *buf;
	size_t len;
	int flags; /* MSG_* as the caller gave them */
	/* Called once from progress() with bytes moved (a receive: 0 is the
	 * end), or -errno; -ECANCELED when cancel() took it back with nothing
	 * moved. */
	void (*done)(struct exi_xfer *x, ssize_t result);
	struct exi_conn *conn; /* set by the core */
	void *owner;	       /* the core's */
	enum exi_dir dir;      /* the core's */
	void *engine[2];       /* the provider's */
};

/* Opaque bytes, and a descriptor, that one end's provider gives to the
 * other's. */
#define EXI_BLOB_MAX 64
struct exi_blob {
	uint8_t bytes[EXI_BLOB_MAX];
	int fd; /* or -1; in an offer or answer the core closes it */
};

struct exi_domain_ops {
	/* progress, event_fd, arm: for a fabric that has work besides the calls
	 * of its connections; all of them, or none. */

	/* progress: makes progress on everything posted or ready; makes
	 * upcalls. Returns how many it made. Any thread may call it, several at
	 * once. */
	int (*progress)(struct exi_domain *d);
	/* event_fd: a descriptor that polls readable when progress() has
	 * work, for the life of the domain; -EOPNOTSUPP when the pair links
	 * do. */
	int (*event_fd)(struct exi_domain *d);
	/* arm: before sleeping on event_fd. 0: a later event makes it
	 * readable. -EBUSY: work is waiting, call progress() and try again. */
	int (*arm)(struct exi_domain *d);
	/* forked: called in the child, single-threaded, before anything else.
	 * Forgets what belongs to the parent's threads; nothing posted
	 * survives. If the module is loaded afresh, this is its last call: it
	 * closes what would keep the parent's connections alive, frees d, and
	 * touches nothing else. Null: there is nothing to forget. */
	void (*forked)(struct exi_domain *d);
};

/* A fabric's state in one process. */
struct exi_domain {
	const struct exi_provider *provider;
	/* The core's: the provider's table, where a member that is missing does
	 * nothing. */
	struct exi_domain_ops ops;
	_Atomic bool watched; /* the core's: event_fd is in its set */
	/* The provider's, set by open(): posts must come from the service
	 * thread. io_uring finishes a request in the thread that posted it,
	 * and what that thread sleeps in then returns EINTR. */
	bool post_from_service;
};

/* One connection of one fabric. The core allocates both parts, zeroed, and
 * frees them after fini(). */
struct exi_conn {
	const struct exi_provider *provider;
	const struct exi_conn_ops *ops; /* and of its tables: */
	const struct exi_wait_ops *wops;
	const struct exi_ready_ops *rops;
	const struct exi_kernel_ops *kops;
	const struct exi_switch_ops *swops;
	const struct exi_place_ops *pops;
	const struct exi_loan_ops *lops;
	const struct exi_apart_ops *aops;
	struct exi_domain *domain;
	void *shared; /* shared_size bytes that a forked child sees too */
	int fd;	      /* the TCP descriptor */
	int bell;     /* the pair link, to ring the peer; -1 for tcp */
	/* The ring of bytes that are sent grows no larger than this, so that
	 * the kernel's stream has space for the bytes that are taken back; 0:
	 * no such limit. A ring may always have its initial size. */
	uint32_t most;
	/* Not 0: what is sent goes by whole. It is admitted while fewer bytes
	 * than this are unread, and ready(EXI_TX) while at most a quarter. It
	 * may change, but not from or to 0. Stored with the TX lock held. */
	_Atomic uint32_t whole;
	struct exi_shared *sh; /* the core's: exi_conn_rang() counts there */
	/* The last bell did not reach the peer, which is gone. */
	_Atomic bool unheard;
	/* When arm(EXI_RX) is called for a bell: the sleep that a bell ends,
	 * see exi_ready_sleep(); 0: other connections' bells do not end it. */
	uint64_t sleep;
	uid_t user;	  /* the peer's, of a link that is up */
	uint32_t capture; /* the core's: names it in capture.c; 0 */
	uint64_t salt;	  /* the peer's user's, see exi_conn_wake() */
	/* priv_size bytes of this process follow */
	_Alignas(64) unsigned char priv[];
};

/* The peer's statement about the bytes that recv would give first. It may say
 * anything. */
struct exi_first {
	/* When they were sent, in exi_ticks() of this host, over TCP, too; 0:
	 * it does not say. */
	uint64_t sent;
	/* From 1, by the low bits of exi_conn_wakes of its process then, less
	 * the rings of this connection; 0: it does not say. */
	uint32_t rings;
	/* With sent, on the fabric: exi_conn_sent of its process then. */
	uint64_t kernel;
	bool on_tcp; /* the kernel has the bytes */
	bool moves;  /* on_tcp, and a SWITCH of the peer may be unread */
};

/* A flag of recv below; recv(2) has none there. */
#define EXI_MSG_POLLED 0x1000000

struct exi_conn_ops {
	/* priv_size, shared_size: bytes of exi_conn.priv and .shared. */
	size_t priv_size;
	size_t shared_size;
	/* wait_ops, ready_ops: always. kernel_ops: of the fabric that
	 * connections begin on, tcp, and null of others. switch_ops:
	 * EXI_CAP_SWITCH. place_ops: EXI_CAP_PLACE. loan_ops: EXI_CAP_LOAN.
	 * apart_ops: may be null. */
	const struct exi_wait_ops *wait_ops;
	const struct exi_ready_ops *ready_ops;
	const struct exi_kernel_ops *kernel_ops;
	const struct exi_switch_ops *switch_ops;
	const struct exi_place_ops *place_ops;
	const struct exi_loan_ops *loan_ops;
	const struct exi_apart_ops *apart_ops;
	/* close: takes no new work; never blocks. The descriptor may be closed
	 * after it. May be repeated. Null: there is nothing to do. The same for
	 * the next two. */
	void (*close)(struct exi_conn *c);
	/* stop: waits for transfers in progress; no upcall comes after it. */
	void (*stop)(struct exi_conn *c);
	/* fini: frees what priv and shared have. */
	void (*fini)(struct exi_conn *c);
	/* send: moves up to len bytes out. > 0: taken. -EAGAIN: no room.
	 * -ENOBUFS, once: there is no room, and for lack of memory there will
	 * be none while the peer does not read; the connection goes to TCP.
	 * -EPROTO: the peer violated the protocol. Others as send(2). */
	ssize_t (*send)(struct exi_conn *c, const void *buf, size_t len,
			int flags);
	/* recv: moves up to len bytes in. 0: the end of the stream, and again
	 * each time. -EAGAIN: nothing is there. -ENOBUFS: there is no memory
	 * for what comes next, and the peer is to send it over TCP. With len 0:
	 * 0 when anything is there. MSG_PEEK leaves the bytes. EXI_MSG_POLLED:
	 * the caller has just called poll(), and will call it again before it
	 * waits, so recv need not look for what poll() has not seen. */
	ssize_t (*recv)(struct exi_conn *c, void *buf, size_t len, int flags);
	/* end: sends the end of the stream behind the bytes that were sent.
	 * Never -EAGAIN: space for it is reserved. */
	int (*end)(struct exi_conn *c);
};

/* Waiting for the peer. */
struct exi_wait_ops {
	/* arm: before sleeping until recv (EXI_RX) or send (EXI_TX) can move
	 * something. 0: the wake-up is sure. -EBUSY: it can already. May be
	 * repeated. With EXI_WAKE_BELL it holds for one wake-up. */
	int (*arm)(struct exi_conn *c, enum exi_dir dir, enum exi_wake how);
	/* disarm: withdraws the request for a wake-up of the kind that arm was
	 * given. After EXI_WAKE_WORD: for this sleeper; after the others: for
	 * all. */
	void (*disarm)(struct exi_conn *c, enum exi_dir dir, enum exi_wake how);
	/* word: the word that changes when the direction can move, and its
	 * value now. Taken before arm(), under the same lock: what comes after
	 * arm()'s look changes it, and the kernel compares. */
	int (*word)(struct exi_conn *c, enum exi_dir dir, struct exi_word *ret);
	/* peer_cpu: the CPU the peer last worked on, or -1. A hint. */
	int (*peer_cpu)(struct exi_conn *c);
	/* poll: null, or takes what arrived to where word() sees it, for a
	 * thread that spins on that. It may look so many times until something
	 * did. No lock is held. */
	void (*poll)(struct exi_conn *c, unsigned int looks);
	/* patience: with poll; how many times as long as within a host a spin
	 * may last. */
	unsigned int (*patience)(struct exi_conn *c);
};

/* Where a receive found nothing: exi_nothing_still(). */
struct exi_nothing {
	const uint32_t *word; /* of the peer, where the next bytes will be */
	uint32_t value;	      /* while none are there */
	const uint64_t *pos;  /* of this end: never twice the same, and */
	uint64_t at;	      /* this while the next bytes will be there */
};

/* Whether a receive would find nothing still. No lock is held; see orders.md,
 * "Nothing still". */
static inline bool exi_nothing_still(const struct exi_nothing *n)
{
	return __atomic_load_n(n->word, __ATOMIC_ACQUIRE) == n->value &&
	       __atomic_load_n(n->pos, __ATOMIC_RELAXED) == n->at;
}

/* What could be done without waiting. */
struct exi_ready_ops {
	/* ready: recv (EXI_RX) would return bytes or the end now; or send
	 * (EXI_TX) would take an eighth of its maximum, or fail: a program for
	 * which poll(2) reports space writes some KB without another look. */
	bool (*ready)(struct exi_conn *c, enum exi_dir dir);
	/* unread: bytes that recv would give now. */
	size_t (*unread)(struct exi_conn *c);
	/* full: unread bytes fill at least three quarters of the sender's
	 * space, so no more may come before recv takes some, and a receive that
	 * waits for more (SO_RCVLOWAT) must return, as the kernel's does. The
	 * call also reports to the peer how much was taken. */
	bool (*full)(struct exi_conn *c);
	/* over: the peer sent the end; nothing comes after the unread bytes. */
	bool (*over)(struct exi_conn *c);
	/* nothing: null, or whether ready(EXI_RX) is false, and where. Both
	 * words stay mapped until fini. */
	bool (*nothing)(struct exi_conn *c, struct exi_nothing *ret);
	/* left_unread: null, or about how many bytes the peer has not read: if
	 * it is no more, 0 means none. */
	size_t (*left_unread)(struct exi_conn *c);
	/* first: null, or describes the bytes that come first, while receive is
	 * ready. now: about exi_ticks(). */
	void (*first)(struct exi_conn *c, uint64_t now, struct exi_first *ret);
	/* want_times: with first; asks the peer to state when it sends, from
	 * now on. */
	void (*want_times)(struct exi_conn *c);
	/* tcp_sends: with first; the bytes of the stream from this one on go
	 * over TCP now. States the time, if the peer asked for it. TX lock
	 * held. */
	void (*tcp_sends)(struct exi_conn *c, uint64_t from);
	/* tcp_sent: with first; when the peer sent this byte over TCP, in
	 * exi_ticks(); 0: unknown, or no longer known. RX lock held. */
	uint64_t (*tcp_sent)(struct exi_conn *c, uint64_t at);
};

/* Calls that only the fabric on which connections begin has: tcp. */
struct exi_kernel_ops {
	/* sendv, recvv: send and recv of several pieces by one call of the
	 * kernel. */
	ssize_t (*sendv)(struct exi_conn *c, const struct iovec *v, size_t n,
			 int flags);
	ssize_t (*recvv)(struct exi_conn *c, const struct iovec *v, size_t n,
			 int flags);
	/* error: the error that the next call would return first, once; 0. */
	int (*error)(struct exi_conn *c);
	/* post_send, post_recv: asynchronous transfer; the core keeps at most
	 * one per direction in flight. 0: done() follows. -errno: nothing was
	 * taken. On other fabrics the core calls send and recv when the
	 * connection is ready. */
	int (*post_send)(struct exi_conn *c, struct exi_xfer *x);
	int (*post_recv)(struct exi_conn *c, struct exi_xfer *x);
	/* cancel: asks for x back; done() follows, with bytes if it was too
	 * late. */
	void (*cancel)(struct exi_conn *c, struct exi_xfer *x);
};

/* Moving a live direction onto the fabric and back. Positions are the
 * fabric's own, counted without wrap. See docs/design/wire-shm.md. */
struct exi_switch_ops {
	/* head: of a sender; where the next byte will be. -ENOBUFS: there is no
	 * memory for it. */
	int (*head)(struct exi_conn *c, uint64_t *ret);
	/* start: of a receiver; reading begins at the sender's head. -EPROTO
	 * when it cannot be there. */
	int (*start)(struct exi_conn *c, uint64_t head);
	/* cursor: of a receiver; where reading stopped. */
	void (*cursor)(struct exi_conn *c, uint64_t *ret_pos,
		       uint64_t *ret_used);
	/* takeback: of a sender; the peer stopped there. Makes what follows
	 * ready for drain. -EPROTO when it cannot have. */
	int (*takeback)(struct exi_conn *c, uint64_t pos, uint64_t used);
	/* drain: of a sender; a run of bytes to send again, in order; 0 when
	 * all are done, and the fabric is empty then. */
	size_t (*drain)(struct exi_conn *c, const void **ret);
	/* runs: the same, for up to n runs, and no more than `most` bytes, to
	 * which the last run may be cut: returns the number of runs. Fabrics
	 * within a host have it. */
	size_t (*runs)(struct exi_conn *c, struct iovec *v, size_t n,
		       size_t most);
	/* drained: of a sender; n bytes of the runs were sent. */
	void (*drained)(struct exi_conn *c, size_t n);
};

/* Memory that was registered: it stays mapped. */
struct exi_memory {
	void *addr;
	size_t len;
	uint64_t serial; /* never another's */
};

/* A buffer for the device. The provider copies this. */
struct exi_lent {
	void *buf;
	size_t len;			 /* from 1 */
	bool waitall;			 /* a receive wants all its bytes */
	const struct exi_memory *memory; /* that it is part of; or null */
	void *owner;			 /* the core's name for it */
};

/* Transfers without a copy (EXI_CAP_PLACE). A buffer belongs to the device from
 * the moment when it is taken until reap gives it back, whatever happens to the
 * connection. The lock of its direction is held. */
struct exi_place_ops {
	/* lend gives the fabric a buffer, in which what comes next may be
	 * placed, behind those that were lent before; recv is not called
	 * until reap gave all of them back. -EAGAIN: no more buffers now.
	 * -EOPNOTSUPP: not this one. */
	int (*lend)(struct exi_conn *c, const struct exi_lent *r);
	/* give: sends from the buffer. > 0: so many bytes, of its
	 * beginning. -EAGAIN: the peer has no place for them; send may
	 * have. -EALREADY: it is likely to have one soon; what arms with
	 * EXI_WAKE_*_REAP is woken then, or when it was not so.
	 * -EOPNOTSUPP: not this one. */
	ssize_t (*give)(struct exi_conn *c, const struct exi_lent *s);
	/* welcome: of a sender; give is likely to send. */
	bool (*welcome)(struct exi_conn *c);
	/* reap: the owner of a buffer that belongs to its owner again, or null:
	 * none does. In the order in which they were taken, except recalled
	 * ones. *ret: bytes moved, or, for a buffer of give, -errno. */
	void *(*reap)(struct exi_conn *c, enum exi_dir dir, ssize_t *ret);
	/* recall: asks for a lent buffer back; reap returns it when the peer
	 * has stopped using it, perhaps with bytes. */
	void (*recall)(struct exi_conn *c, void *owner);
	/* quiet: of a receiver; no more buffers are lent, and those that are
	 * lent are recalled. True: reap has all, and the direction may be given
	 * back. */
	bool (*quiet)(struct exi_conn *c);
	/* answer: of a sender; the peer rang the bell, perhaps because it wants
	 * a buffer back. */
	void (*answer)(struct exi_conn *c);
	/* cut: nothing is placed any more, nor sent; reap has all of the
	 * direction. The connection is not used any more. */
	void (*cut)(struct exi_conn *c, enum exi_dir dir);
	/* placed: bytes of the direction that were placed, in all. */
	uint64_t (*placed)(struct exi_conn *c, enum exi_dir dir);
	/* forget: the memory is not registered any more, and nothing of it
	 * is lent. No lock is held. */
	void (*forget)(const struct exi_memory *m);
};

/* Access to bytes in place (EXI_CAP_LOAN). The lock of the direction is held
 * for each call, not between the calls; between them the core calls nothing
 * else that moves bytes of the direction or switches it onto the fabric. The
 * memory that look or room returned may be touched until fini(). */
struct exi_loan_ops {
	/* look: of a receiver; what recv would give next, as far as it lies in
	 * one piece: how many bytes. Called when there are some. */
	size_t (*look)(struct exi_conn *c, const void **ret);
	/* took: the first n bytes of the loan were received. */
	void (*took)(struct exi_conn *c, size_t n);
	/* room: of a sender; room for some of len bytes, which are sent by put:
	 * how many. Errors are those of send. Null: only receives have
	 * loans. */
	ssize_t (*room)(struct exi_conn *c, size_t len, void **ret);
	/* put: the first n bytes of the loan, from 1, are sent. */
	void (*put)(struct exi_conn *c, size_t n);
	/* whole: null, or sends a head of four bytes, the n pieces, and further
	 * bytes of any value up to a length of unit; all at once, so that a
	 * receiver has all of it or nothing, or nothing. 0; errors are those
	 * of send, and -EMSGSIZE: it is admitted, but the ring is too
	 * small for it. */
	int (*whole)(struct exi_conn *c, const void *head,
		     const struct iovec *v, size_t n, size_t unit);
};

/* A reader of the bytes that are unread when it begins. It is independent of
 * the connection, which may end before it. All calls but begin are also made in
 * a forked copy of the process, where any lock may be held by a thread that is
 * missing there: they take no lock, allocate nothing and log nothing. */
struct exi_apart {
	_Alignas(8) unsigned char state[256];
};

struct exi_apart_ops {
	/* begin: of a receiver, RX lock held; begins where recv would continue.
	 * -errno: nothing was begun. */
	int (*begin)(struct exi_conn *c, struct exi_apart *ret);
	/* look: the next bytes, as far as they lie in one piece: returns their
	 * number. 0: there are no more, whatever the peer writes. */
	size_t (*look)(struct exi_apart *a, const void **ret);
	/* took: the first n bytes of that were read. */
	void (*took)(struct exi_apart *a, size_t n);
	/* size: bytes of the peer's memory that last as long as the reader. */
	size_t (*size)(const struct exi_apart *a);
	/* end: releases the memory that is read. */
	void (*end)(struct exi_apart *a);
};

/* Making a connection when both ends have met (EXI_CAP_LOCAL). c has its
 * memory, descriptor and bell. */
struct exi_meet_ops {
	/* offer: at the end that called connect; describes its half. */
	int (*offer)(struct exi_conn *c, struct exi_blob *ret);
	/* answer, at the other end, takes the offer and describes the
	 * answer. The descriptor in the offer stays the core's. -EPROTO:
	 * refused. */
	int (*answer)(struct exi_conn *c, const struct exi_blob *offer,
		      struct exi_blob *ret);
	/* accepted: at the first end; takes the answer. */
	int (*accepted)(struct exi_conn *c, const struct exi_blob *answer);
};

/* Layout of the record of resume: tag, position, little-endian, MAC. */
#define EXI_RESUME     40
#define EXI_RESUME_TAG 16
#define EXI_RESUME_AT  EXI_RESUME_TAG

/* The address and port where a program listens. */
struct exi_listening {
	uint8_t addr[16]; /* IPv6, IPv4 as v4-mapped; perhaps any */
	uint32_t scope;
	uint16_t port;
};

/* Meeting a peer on another host (EXI_CAP_REMOTE). The fabric gives the core
 * one end of a UNIX packet pair, the pair link, and plays the peer at the other
 * end: it carries the core's messages to the peer's host, and delivers the
 * peer's messages. It sends one byte for a bell (EXI_WAKE_BELL), and hangs up
 * when the peer is lost. It reports by exi_remote_met() that the peer was met,
 * or was not. The core closes its end and calls fini when it no longer needs
 * the connection. */
struct exi_remote_ops {
	/* listen: from now on, peers may ask this process for connections to
	 * this TCP address and port, also if they ask another process first;
	 * they do not ask at other addresses, if the fabric can distinguish
	 * them. Counted. */
	int (*listen)(struct exi_domain *d, const struct exi_listening *at);
	void (*unlisten)(struct exi_domain *d, const struct exi_listening *at);
	/* connect: at the end that called connect; begins to meet the peer of
	 * t. Does not wait. *ret_link is the core's end of the pair link. */
	int (*connect)(struct exi_conn *c, const struct exi_tuple *t,
		       int *ret_link);
	/* requested, at the other end: c is the connection of t that
	 * exi_remote_request() asked for. */
	void (*requested)(struct exi_conn *c, const struct exi_tuple *t,
			  void *arg);
	/* sever: the pair link hung up; both locks are held. Takes all that has
	 * arrived, and makes sure that nothing can be placed any more, at
	 * either end; informs the other end of that, if possible. The bytes in
	 * the rings can then be read, whether given back or not, and drained;
	 * reap has every receive that was lent, and every send that has
	 * arrived, or was drained since. -EPROTO: the link hung up because the
	 * peer violated the protocol. -ECONNRESET: the peer may lack bytes that
	 * are no longer here; reap has every send. */
	int (*sever)(struct exi_conn *c);
	/* leave: the last process that has the connection closes it; ends the
	 * stream if it was not ended: informs the peer, behind all that was
	 * sent. The sender's lock is held. */
	void (*leave)(struct exi_conn *c);
	/* left: whether the peer has sent that it leaves, so that the
	 * connection does not continue over TCP. The pair link hung up, or may
	 * have; both locks are held. */
	bool (*left)(struct exi_conn *c);
	/* position: how many bytes of the direction, modulo 2^32, were sent,
	 * or were read or given back, as both ends count them. */
	uint32_t (*position)(struct exi_conn *c, enum exi_dir dir);
	/* resend: of a sender, severed; makes the bytes that the peer has not
	 * acknowledged ready for drain, including those of give. Returns the
	 * position of the first one. */
	uint32_t (*resend)(struct exi_conn *c);
	/* resume: makes the record by which the sender of a direction states
	 * where it continues over TCP. Its first EXI_RESUME_TAG bytes are the
	 * same for every position, and only the two ends can compute them. */
	void (*resume)(struct exi_conn *c, enum exi_dir dir, uint32_t epoch,
		       uint64_t position, uint8_t ret[EXI_RESUME]);
};

/* Collects what a fabric found on this host, for people to read (exs info). A
 * fact is about the last thing begun and not ended, or about the fabric itself.
 * The texts are copied. */
struct exi_facts {
	/* begin: kind: "device", "port", ... */
	void (*begin)(struct exi_facts *f, const char *kind, const char *name);
	void (*fact)(struct exi_facts *f, const char *name, const char *value);
	void (*end)(struct exi_facts *f);
};

struct exi_provider {
	uint32_t abi;	  /* EXI_PROVIDER_ABI */
	uint32_t wire_id; /* its bit in HELLO; 0: needs no meeting */
	const char *name; /* the folder's, and the word in EXS_PROVIDER */
	uint32_t caps;
	/* A module's: the library that must be loaded anew together with it in
	 * a child of a process that had its domain open. Null: the child can
	 * continue to use it. */
	const char *afresh;
	/* probe: 0: usable here. -errno: not; *why has the reason in words. */
	int (*probe)(char *why, size_t len);
	/* describe: devices and the like, usable or not; null: there are none
	 * to describe. May take a while. */
	void (*describe)(struct exi_facts *f);
	/* open, close: make the domain and free it; close of null is fine. Both
	 * or none: then the core makes one. */
	int (*open)(struct exi_domain **ret);
	void (*close)(struct exi_domain *d);
	const struct exi_domain_ops *domain_ops; /* or null, as if empty */
	const struct exi_conn_ops *conn_ops;
	const struct exi_meet_ops *meet_ops;	 /* EXI_CAP_LOCAL */
	const struct exi_remote_ops *remote_ops; /* EXI_CAP_REMOTE */
};

/* The upcall of a provider whose connection was armed with EXI_WAKE_BELL and
 * can move now. From progress() only. */
void exi_conn_ready(struct exi_conn *c, enum exi_dir dir);

/* Rings the doorbell of the peer's library over the pair link. For providers,
 * when the peer asked for EXI_WAKE_BELL. sleep: the value that the peer's core
 * gave to arm() with that; if this process has already ended that sleep by
 * another doorbell, none is sent. Returns how many were sent. */
uint32_t exi_conn_wake(struct exi_conn *c, uint64_t sleep);
/* Counts a wake-up that was sent to the peer. exi_conn_wake() calls it. */
void exi_conn_rang(struct exi_conn *c);
/* Counts messages of this process through the kernel, doorbells or bytes. The
 * kernel may have to report these to a peer before the peer finds bytes that
 * are sent from now on. */
EXI_HERE extern _Atomic uint32_t exi_conn_wakes;
/* When this process last sent bytes by the kernel: exi_ticks() after that. */
extern _Atomic uint64_t exi_conn_sent;

/* For fabrics between hosts, when a peer asked the accepting end for the
 * connection of t. link is the core's end of a pair link for it, and belongs to
 * the core from here on. Makes the connection and calls requested(); or, with
 * -1 for link, reports whether it would. 0, or the reason why not:
 * EXS_X_REASON_NOT_CONNECTED, the connection is not here; EXS_X_REASON_SHARED,
 * another process uses it. From progress() only, without locks. */
int exi_remote_request(const struct exi_provider *p, const struct exi_tuple *t,
		       int link, void *arg);

/* For fabrics between hosts, when a peer asked the accepting end for the
 * connection of t and did not prove that it has the key: costs no look for the
 * connection. If that stays on TCP, this is why. Any thread. */
void exi_remote_stranger(const struct exi_tuple *t);

/* Reports at the fabric's end of a pair link that both ends are up (0), or the
 * reason why there will be no connection. -errno. */
int exi_remote_met(int link, int reason);

#endif
