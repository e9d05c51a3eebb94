/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream engine decides when the bytes of a stream go straight into the
 * memory of a posted receive, and when they go through a hidden ring of the
 * receiver. It is for fabrics that place data remotely. docs/design/stream.md
 * argues why it is correct.
 *
 * One direction of a connection has a sender (tx) at one end and a receiver
 * (rx) at the other. The engine decides, the fabric moves. The fabric asks each
 * side for its next message (next), reports that it took this message (sent),
 * and passes on what came from the other end (got). The engine never touches a
 * byte: to it, buffers and rings are addresses and offsets.
 *
 *	sender				receiver
 *	next -> DIRECT, INDIRECT, END -> got
 *	got  <- ADVERT, ACK, REVOKE   <- next
 *
 * What the fabric must guarantee. The messages of each direction arrive once
 * and in order. The bytes that DIRECT and INDIRECT announce are in place before
 * the message is passed to got, in whatever order they were placed. A message
 * may wait for a credit as long as it must, since nothing is decided before
 * sent.
 *
 * Locks and memory. The engine takes no lock, allocates no memory, does no I/O
 * and reads no clock. tx is called with the direction's send lock held, rx with
 * its receive lock; next, the fabric's action, and sent are one step under the
 * lock. Neither structure has pointers into itself.
 *
 * The peer is not trusted: got, start and takeback return -EPROTO for what no
 * correct peer sends, and then have changed nothing. The connection must then
 * be cut. Errors of the caller are asserted.
 *
 * Lent memory. The peer may write into an advertised receive at any moment. The
 * buffer is its owner's again when exi_stream_rx_done() gives it back, never
 * before, even after a cancel. */
#ifndef EXI_CORE_RMA_STREAM_H
#define EXI_CORE_RMA_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Receives that can be posted, including those not yet given back by done. */
#define EXI_STREAM_RECVS 64
/* Adverts that the peer may hold; both ends must use the same number. */
#define EXI_STREAM_ADVERTS 16
/* The largest length of a receive and of a message: with its kind it fits 32
 * bits. */
#define EXI_STREAM_LEN_MAX ((1u << 30) - 1)
/* The largest size of a ring. */
#define EXI_STREAM_RING_MAX (1u << 30)

enum exi_stream_kind {
	EXI_STREAM_NONE, /* nothing to send now */
	/* Sender. The ring has room, but the policy prefers an advert: wait for
	 * one for a bounded time, then call in_vain. */
	EXI_STREAM_WAIT,
	EXI_STREAM_DIRECT,   /* len bytes were written to addr, with key */
	EXI_STREAM_INDIRECT, /* to the ring at offset addr; len may be 0 */
	EXI_STREAM_END,	     /* no byte follows */
	EXI_STREAM_ADVERT,   /* len bytes at addr, with key, may be written */
	EXI_STREAM_ACK,	     /* the ring is free up to seq */
	EXI_STREAM_REVOKE,   /* this phase's adverts may no longer be used */
};

/* A message. The members that each kind carries over the wire, besides the
 * kind:
 *
 *	DIRECT, INDIRECT	len
 *	END			seq
 *	ADVERT			phase, seq, addr, key, len, waitall
 *	ACK			seq
 *	REVOKE			phase
 *
 * The other members of a received message need not be set. */
struct exi_stream_msg {
	enum exi_stream_kind kind;
	uint32_t phase;
	uint32_t seq; /* bytes of the stream so far; ACK: of the ring */
	uint32_t len;
	uint64_t addr;
	uint64_t key;
	bool waitall; /* the receive wants all its bytes, not the next ones */
};

/* The policy: when to take a step that is never wrong but may be slow. */
struct exi_stream_policy {
	/* Sender: a batch of fewer bytes is small, and prefers the ring. */
	uint32_t direct_min;
	/* Sender: this many small batches in a row go direct before one uses
	 * the ring, which ends the direct phase. */
	uint32_t small_run;
	/* Sender: for a batch of at least this many bytes and no advert, next
	 * returns WAIT if an advert came, even too late, since the last WAIT
	 * was in vain. */
	uint32_t wait_min;
	/* Receiver: a receive of fewer bytes is not advertised, nor is one
	 * behind it. */
	uint32_t advert_min;
	/* Receiver: after a phase whose adverts were all in vain, this many
	 * bytes come through the ring before it advertises again. */
	uint32_t hold;
};

/* Guesses, to be measured on each kind of device. */
extern const struct exi_stream_policy exi_stream_policy_default;

struct exi_stream_stats {
	uint64_t direct;
	uint64_t direct_bytes;
	uint64_t indirect;
	uint64_t indirect_bytes;
	uint64_t phases;  /* changes of phase */
	uint64_t adverts; /* sent; sender: received */
	uint64_t dropped; /* adverts that died with no byte written */
	uint64_t revokes; /* sent; sender: received */
	uint64_t acks;	  /* sent; sender: received */
};

/* --- sender ------------------------------------------------------------- */

struct exi_stream_advert {
	uint64_t addr;
	uint64_t key;
	uint32_t len;
	bool waitall;
	bool used;
};

struct exi_stream_tx {
	uint32_t ring;
	uint32_t phase; /* even: direct, odd: indirect */
	uint32_t seq;	/* bytes sent, direct or by the ring */
	uint32_t began; /* seq at which the receiver began the even phase */
	uint64_t head;	/* bytes ever written to the ring */
	uint64_t heard; /* the last ACK's: the ring is free up to there */
	/* reported, or drained: the mirror is free up to there */
	uint64_t acked;
	uint64_t want;	  /* as given to the last next */
	uint32_t small;	  /* small batches in a row that went direct */
	uint32_t first;	  /* advert in use */
	uint32_t adverts; /* how many are at hand */
	bool answer;	  /* a REVOKE waits for its answer */
	bool hopes;	  /* an advert came since waiting was in vain */
	bool held;	  /* the next advert comes some bytes later */
	uint32_t stale;	  /* seq at which the last advert was of no use */
	bool ending;
	bool ended;
	bool draining;
	struct exi_stream_advert advert[EXI_STREAM_ADVERTS];
	struct exi_stream_policy policy;
	struct exi_stream_stats stats;
};

/* Makes a sender. ring: the size of the receiver's ring, at most
 * EXI_STREAM_RING_MAX. */
void exi_stream_tx_init(struct exi_stream_tx *tx, uint32_t ring,
			const struct exi_stream_policy *policy);

/* How the bytes that are waiting can be sent. */
enum exi_stream_how {
	EXI_STREAM_PATIENT, /* either way, and they may WAIT */
	EXI_STREAM_NOW,	    /* either way */
	EXI_STREAM_RING,    /* by the ring, if it has room */
};

/* Returns what to send now, with want bytes waiting. want counts all queued
 * bytes, not only those of the next call, since the policy works by batches.
 * Call it with 0, too, after got and after end. DIRECT and INDIRECT: write up
 * to len bytes, then send the peer their number. NONE: only got can change
 * that.
 *
 * The fabric keeps the bytes that it wrote to the ring until they are
 * acknowledged; a local mirror of the ring, from which it writes, is enough. */
enum exi_stream_kind exi_stream_tx_next(struct exi_stream_tx *tx, size_t want,
					enum exi_stream_how how,
					struct exi_stream_msg *ret);

/* Whether next may return a message with want 0. */
static inline bool exi_stream_tx_due(const struct exi_stream_tx *tx)
{
	return tx->answer || (tx->ending && !tx->ended);
}

/* Whether an advert is at hand, or one may come. */
bool exi_stream_tx_welcome(const struct exi_stream_tx *tx);

/* No advert came in time: next does not WAIT again before one comes. */
void exi_stream_tx_in_vain(struct exi_stream_tx *tx);

/* The fabric took the message that next returned, with len of its bytes: at
 * least 1, or 0 where the message had 0. */
void exi_stream_tx_sent(struct exi_stream_tx *tx,
			const struct exi_stream_msg *m, uint32_t len);

/* ADVERT, ACK or REVOKE came. 0 or -EPROTO. Call next afterwards. */
int exi_stream_tx_got(struct exi_stream_tx *tx, const struct exi_stream_msg *m);

/* No byte follows those that were sent: next returns END, with want 0. */
void exi_stream_tx_end(struct exi_stream_tx *tx);

/* Whether next could return DIRECT, or INDIRECT for more than a little. An ACK
 * comes for twice that much, or when the receiver waits. */
bool exi_stream_tx_ready(const struct exi_stream_tx *tx);

/* Switching the direction, as in struct exi_switch_ops. Returns where the next
 * byte of the ring will be; sending may begin there. */
uint64_t exi_stream_tx_head(const struct exi_stream_tx *tx);

/* The receiver stopped at pos. Until drain returns 0, nothing is sent except an
 * answer that next returns for want 0. 0 or -EPROTO. */
int exi_stream_tx_takeback(struct exi_stream_tx *tx, uint64_t pos);

/* A run of bytes to send another way, as they were written to the ring at
 * offset *ret_at; 0 when all are done, and the ring is empty then. */
uint32_t exi_stream_tx_drain(const struct exi_stream_tx *tx, uint32_t *ret_at);
void exi_stream_tx_drained(struct exi_stream_tx *tx, uint32_t n);

/* The bytes of the stream that were sent, either way, modulo 2^32. */
uint32_t exi_stream_tx_position(const struct exi_stream_tx *tx);
/* Cuts the sender off: the fabric has made sure that nothing can be placed any
 * more. Drain then returns the bytes that were written to the ring and not
 * acknowledged; this call returns the position of the first of them. Only drain
 * may follow. */
uint32_t exi_stream_tx_cut(struct exi_stream_tx *tx);

/* --- receiver ----------------------------------------------------------- */

struct exi_stream_recv {
	void *buf;
	uint64_t addr; /* by which the peer addresses buf, */
	uint64_t key;  /* shown with addr, when buf may be advertised */
	uint32_t len;  /* from 1 to EXI_STREAM_LEN_MAX */
	uint32_t filled;
	bool waitall;
	bool may_advertise;
	void *owner; /* the caller's name for the receive */
	/* The engine's own: the owner's request, and whether the peer wrote. */
	bool cancelled;
	bool used;
};

enum exi_stream_why {
	EXI_STREAM_FILLED, /* the receive has all it wanted */
	EXI_STREAM_ENDED,  /* the stream ended; filled may be 0 */
	/* filled: what came until the buffer was its owner's again. */
	EXI_STREAM_CANCELLED,
};

struct exi_stream_done {
	void *owner;
	uint32_t filled;
	enum exi_stream_why why;
};

enum exi_stream_state {
	EXI_STREAM_OPEN,
	EXI_STREAM_STOPPING, /* no receive is taken or advertised */
	EXI_STREAM_GIVEN,    /* the ring is not read, too: until start */
	EXI_STREAM_CUT,	     /* for good */
};

struct exi_stream_rx {
	uint32_t ring;
	enum exi_stream_state state;
	uint32_t phase;	 /* the sender's, when it sent the last message */
	uint32_t seq;	 /* bytes that came, direct or by the ring */
	uint32_t began;	 /* seq when the even phase began */
	uint32_t posted; /* receives, from recv[first] on, not done */
	uint32_t live;	 /* this many of posted, from first, are advertised */
	uint32_t first;
	uint32_t done_first;
	uint32_t n_done;
	/* Bytes ever written to the ring, as far as this end knows. */
	uint64_t placed;
	/* Bytes ever read from the ring. More than placed: bytes in flight were
	 * given back, and belong to no receive. */
	uint64_t taken;
	uint64_t told;	     /* free again up to there, by the last ACK */
	uint64_t hold_until; /* placed, before the next advert */
	bool wants_revoke;
	bool revoking; /* REVOKE was sent, and the phase is not over */
	bool used;     /* a byte came direct in this phase */
	bool ended;
	struct exi_stream_recv recv[EXI_STREAM_RECVS];
	struct exi_stream_done done[EXI_STREAM_RECVS];
	struct exi_stream_policy policy;
	struct exi_stream_stats stats;
};

/* Makes a receiver. The direction is given back at first: start opens it. */
void exi_stream_rx_init(struct exi_stream_rx *rx, uint32_t ring,
			const struct exi_stream_policy *policy);

/* Returns the next message for the sender. idle: the caller has nothing left to
 * do, and may sleep after this. Small ACKs are sent only then, so the caller
 * must call with idle before it sleeps. Call it after got, post, copied, take
 * and cancel. */
enum exi_stream_kind exi_stream_rx_next(const struct exi_stream_rx *rx,
					bool idle, struct exi_stream_msg *ret);

/* The fabric took the message that next returned. */
void exi_stream_rx_sent(struct exi_stream_rx *rx,
			const struct exi_stream_msg *m);

/* DIRECT, INDIRECT or END came. 0 or -EPROTO. Call copy, done and next
 * afterwards, in this order. */
int exi_stream_rx_got(struct exi_stream_rx *rx, const struct exi_stream_msg *m);

/* Takes a receive, a copy of *r, whose buffer is lent until done gives it back.
 * -EAGAIN: there are too many. -EBUSY: the direction is not open. */
int exi_stream_rx_post(struct exi_stream_rx *rx,
		       const struct exi_stream_recv *r);

/* Asks for a receive back. done returns it now, or, if it was advertised, once
 * the sender has stopped using it or has filled it; receives behind it may be
 * advertised anew. -ENOENT: no such owner, or done has it already. */
int exi_stream_rx_cancel(struct exi_stream_rx *rx, const void *owner);

/* The next receive that is over; those with data in the order they were
 * posted. False: none. */
bool exi_stream_rx_done(struct exi_stream_rx *rx, struct exi_stream_done *ret);

/* Bytes to copy now from offset *ret_at of the ring to *ret_to, which is part
 * of the first receive; then call copied, and copy again. 0: none. */
uint32_t exi_stream_rx_copy(const struct exi_stream_rx *rx, uint32_t *ret_at,
			    void **ret_to);
void exi_stream_rx_copied(struct exi_stream_rx *rx, uint32_t n);

/* Bytes of the ring that an ACK would free. */
uint32_t exi_stream_rx_untold(const struct exi_stream_rx *rx);

/* Reading without a receive: the number of unread bytes in the ring. */
uint32_t exi_stream_rx_unread(const struct exi_stream_rx *rx);
/* A run of unread bytes behind the first skip of them, at offset *ret_at; 0:
 * none. */
uint32_t exi_stream_rx_run(const struct exi_stream_rx *rx, uint32_t skip,
			   uint32_t *ret_at);
/* The first n unread bytes were read. Only while no receive is posted:
 * otherwise the bytes belong to that. */
void exi_stream_rx_take(struct exi_stream_rx *rx, uint32_t n);

/* Whether END has come, and nothing is unread. */
bool exi_stream_rx_over(const struct exi_stream_rx *rx);

/* Switching the direction away: cancels every receive; the bytes in the ring
 * may still be read. */
void exi_stream_rx_stop(struct exi_stream_rx *rx);
/* After stop: whether no receive is left, and the peer will use none. */
bool exi_stream_rx_quiet(const struct exi_stream_rx *rx);
/* Once quiet: where reading stopped. Reading continues only after start. */
uint64_t exi_stream_rx_cursor(struct exi_stream_rx *rx);
/* Opens the direction (again) at the sender's head. 0 or -EPROTO. */
int exi_stream_rx_start(struct exi_stream_rx *rx, uint64_t head);

/* Cuts the receiver off: the fabric has made sure that nothing can be placed
 * any more. Every receive belongs to its owner again. Bytes in the ring may
 * still be read, also those that were given back. */
void exi_stream_rx_cut(struct exi_stream_rx *rx);

/* The position of the stream, as the sender counts, up to which the reader has
 * received it, or will have received it once the bytes that were given back
 * have come. */
uint32_t exi_stream_rx_position(const struct exi_stream_rx *rx);

#endif
