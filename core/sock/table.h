/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket of the library: a kernel descriptor, and what is known about it.
 *
 * Sockets are found by descriptor number in a flat array, without a lock. Their
 * memory is never given back, so a stale pointer may be locked: every user
 * takes the lock of a direction and then checks that the socket is still the
 * descriptor's (exi_sock_lock()).
 *
 * State on which forked processes must agree (modes, cursors, counters, locks)
 * is in struct exi_shared, in memory that they share; pointers are each
 * process's own.
 *
 * Lock order: link, half RX, half TX, queue. No lock is held over a sleep. */
#ifndef EXI_CORE_SOCK_TABLE_H
#define EXI_CORE_SOCK_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/ids.h"
#include "core/base/list.h"
#include "core/base/lock.h"
#include "core/base/spin.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/holders.h"
#include "core/sock/keepalive.h"
#include "core/sock/packet_wire.h"
#include "core/sock/zerocopy.h"

struct exi_base;
struct exi_link;
struct exi_loan;
struct exi_op;
struct exi_queue;
struct exi_timeout;
struct exi_waiter;

/* Where the bytes of a direction go now (docs/design/wire-shm.md). */
enum exi_mode {
	EXI_MODE_TCP = 0,
	EXI_MODE_LEFT = 1, /* receiver: `left` bytes of TCP, then the ring */
	EXI_MODE_RING = 2,
	EXI_MODE_DRAIN = 3, /* sender: the ring's rest is going to TCP */
	EXI_MODE_BACK = 4, /* receiver: reads TCP, the ring's rest in reserve */
};

/* What comes next on TCP in a direction that left a failed fabric. */
enum exi_resume_state {
	EXI_RESUME_NONE = 0,
	EXI_RESUME_AWAITED = 1, /* a record, or the stream since then */
	EXI_RESUME_UNSURE = 2,	/* the same, or the stream from our TAKEBACK */
	EXI_RESUME_SKIPS = 3,	/* bytes that we have */
};

enum exi_role {
	EXI_ROLE_NONE, /* not connected */
	EXI_ROLE_CONNECT,
	EXI_ROLE_ACCEPT,
	EXI_ROLE_LISTEN,
};

enum {
	EXI_END_SAID = 1,  /* by shutdown */
	EXI_END_AFTER = 2, /* by one of them, unless it fails */
};

/* Where a direction is within its messages (packet.h). */
struct exi_framing {
	uint32_t greeted; /* what comes first was there */
	uint32_t have;	  /* RX: bytes of head */
	uint8_t head[EXI_PACKET_FIRST];
	uint32_t begun; /* RX: a message of len bytes is being received */
	uint32_t len;
	/* RX: bytes of the message to come; not begun: bytes to skip. */
	uint32_t left;
	uint64_t owner; /* the process that is within one; 0 */
};

/* The peer violated the protocol, or bytes are lost for ever: a reset. Each
 * direction reports the reset once, and then is at its end. A reset is set
 * without the lock, and is not reported twice, so it is not one of the errors
 * in err. */
enum exi_broken {
	EXI_BROKEN_NOT,
	EXI_BROKEN_UNTOLD,
	EXI_BROKEN_TOLD,
};

enum exi_cut {
	EXI_CUT_NOT,
	EXI_CUT_UNTOLD, /* ECONNRESET follows what is unread here */
	EXI_CUT_TOLD,
};

enum exi_deaf {
	EXI_DEAF_NOT,
	EXI_DEAF_CUT, /* the kernel decides how the stream ends */
	EXI_DEAF_END, /* the peer had sent END behind it */
};

/* One direction. Every member is guarded by lock, except where stated. The
 * first line has the members that each transfer in a ring needs. */
struct exi_half {
	_Alignas(EXI_LINE) struct exi_lock lock;
	_Atomic int32_t err; /* RX, TX: reported once, then the end or EPIPE */
	union {
		struct {
			/* enum exi_mode; without the lock: a hint */
			_Atomic uint32_t mode;
			/* RX: a thread gathers all unread bytes (orphan.c).
			 * Meanwhile another thread that receives finds nothing:
			 * its bytes would overtake those that are gathered. */
			uint32_t gathered;
		};
		uint64_t way; /* both, for exi_half_rings_locked() */
	};
	/* TX: END was sent; without the lock a hint. RX: END was read. */
	uint32_t ended;
	_Atomic uint32_t broken; /* enum exi_broken */
	/* The line in the page of counters, the same in every process that has
	 * the connection; 0: none. And after how many transfers the next one
	 * looks at the clock for it. See stats.h. */
	uint32_t stats_line;
	int32_t stats_left;
	uint64_t bytes;
	uint64_t fabric_bytes;
	uint64_t moves; /* transfers that moved bytes */
	/* Bytes after which the rendezvous is tried. Read without the lock. */
	_Atomic uint64_t meet_at;
	/* TX: TCP was shut down. RX: the kernel reported the end */
	uint32_t fin;
	uint32_t end_wanted; /* TX: the end follows the queued operations: */
	uint32_t urgent;     /* urgent data was seen */
	uint32_t told;	     /* TX: DOWN was sent, and no UP since */
	uint32_t leaving;    /* RX: to be given back when nothing is lent */
	uint32_t epoch;
	/* RX, of a stream whose ends both end (base.h): the peer closed with
	 * bytes of ours unread. Set with the TX lock held. */
	_Atomic uint32_t cut; /* enum exi_cut */
	uint32_t end_seen;    /* RX: TCP has ended, the link must be read */
	uint32_t link_read;   /* RX: the link was read after the end of TCP */
	_Atomic uint32_t
		untaken;  /* RX: gave back, and the peer has not sent TAKEN */
	uint32_t lingers; /* TX: SO_LINGER is ours until the drain is done */
	struct linger linger; /* TX: what it was */
	/* How the connection continues after a fabric between hosts failed. */
	uint32_t resume;    /* RX: enum exi_resume_state */
	uint32_t skip;	    /* RX: bytes of TCP that we have already */
	uint32_t origin;    /* position of the fabric at the last SWITCH */
	uint32_t in_kernel; /* threads inside the kernel's own calls */
	uint32_t life;	    /* counts the connections that had this memory */
	/* RX: the peer is gone, or both directions were shut down here: the
	 * bytes in the ring behind this number of fabric_bytes are
	 * discarded. */
	uint32_t deaf; /* enum exi_deaf */
	uint64_t deaf_after;
	uint64_t left;
	uint64_t back;	  /* RX: bytes read from TCP since it gave back */
	uint64_t target;  /* RX: the TCP byte after which the ring begins */
	uint64_t drained; /* TX: fabric_bytes that TCP carried again */
	/* How many of bytes and fabric_bytes the messages of SOCK_SEQPACKET
	 * have beside what the program sent. Stored whole. */
	uint64_t beside;
	uint64_t fabric_beside;
	uint64_t sleeps;
	uint64_t spins;
	uint64_t ups;
	uint64_t downs;
	struct exi_spin spin;
	uint32_t crossed; /* sleeps left that wait for the bell (wait.c) */
	uint64_t looked;  /* bytes, at the last spin */
	struct exi_framing framing;
};

_Static_assert(offsetof(struct exi_half, meet_at) == 56, "first line");

/* A call of the kernel's own on a direction: until it is over the direction is
 * not switched. Another thread may close the connection meanwhile, and its
 * memory become another's. */
struct exi_inside {
	struct exi_half *h;
	uint32_t life;
};

/* Whether the ring carries the bytes of the direction, and no thread gathers
 * them: one comparison, of members that only holders of the lock write. */
static inline bool exi_half_rings_locked(const struct exi_half *h)
{
	uint64_t rings = EXI_MODE_RING;

	EXI_LOCKED(&h->lock);
	if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
		rings <<= 32;
	return h->way == rings;
}

/* How many of n bytes in the ring are for the reader; the half's lock is
 * held. */
static inline size_t exi_half_heard_locked(const struct exi_half *h, size_t n)
{
	uint64_t left = h->deaf_after - h->fabric_bytes;

	EXI_LOCKED(&h->lock);
	return exi_likely(!h->deaf) || n < left ? n : (size_t)left;
}

/* Whether this end lets directions be switched. */
enum exi_hold {
	EXI_HOLD_NOT,
	EXI_HOLD, /* until the program, or an operator, asks for it */
	/* Until a thread is seen to wait for the epoll sets that contain it. */
	EXI_HOLD_UNTIL_SEEN,
};

/* Added to a reason to leave for TCP: EXI_HOLD_UNTIL_SEEN. */
#define EXI_UNTIL_SEEN 0x10000

/* The part of a socket that the connection's processes share. */
struct exi_shared {
	struct exi_half half[2];		     /* by enum exi_dir */
	_Alignas(EXI_LINE) _Atomic uint32_t kick[2]; /* changes with modes */
	struct exi_holders holders;		     /* processes */
	_Atomic uint32_t reason;		     /* exs_x_reason_t */
	_Atomic uint32_t met;	    /* the one meeting was tried */
	_Atomic uint32_t gone;	    /* the pair link hung up in use */
	_Atomic uint32_t rx_fin;    /* a FIN came while in the ring */
	_Atomic uint32_t hold_here; /* enum exi_hold */
	_Atomic uint32_t hold_there;
	_Atomic uint32_t down_wait;  /* DOWNs sent and not yet answered */
	_Atomic uint32_t may_switch; /* the peer has sent GO */
	_Atomic uint32_t linked;     /* has a link: sleep so as to be rung */
	_Atomic uint32_t lowat;	     /* SO_RCVLOWAT; 0: as it was, 1 */
	_Atomic uint32_t no_time;    /* 1 << enum exi_dir: waits are over */
	_Atomic uint32_t foreign;    /* errno: the peer sends no messages */
	_Atomic uint32_t handed;     /* the peer hands its end on: again.h */
	_Atomic int size;	     /* SO_RCVBUF before the sign; 0: usual */
	uint32_t lives;		     /* how often that was met again */
	_Atomic uint64_t owner;	     /* use token; 0 after a fork until used */
	_Atomic uint32_t several; /* a forked child uses the fabric: family.h */
	_Atomic uint32_t use;	  /* counts the sockets that had this memory */
	/* The process that has the fabric, see family.h; 0. */
	_Atomic uint64_t keeper;
	_Atomic uint64_t keeper_secret;
	struct exi_keepalive keepalive; /* TCP's */
	struct exi_zerocopy zerocopy;
	uint64_t bells_sent;
	uint64_t bells_received;
	_Alignas(EXI_LINE) unsigned char fabric[768];
};

/* The shared part that a direction belongs to. */
static inline struct exi_shared *exi_half_shared(struct exi_half *h,
						 enum exi_dir dir)
{
	return (struct exi_shared *)(void *)(h - dir);
}
_Static_assert(offsetof(struct exi_shared, half) == 0, "exi_half_shared()");

enum exi_blocking {
	EXI_BLOCKING_ASK, /* asked for each time, or not yet asked for */
	EXI_BLOCKING_YES,
	EXI_BLOCKING_NO,
	EXI_BLOCKING_SHARED, /* another process may change it */
	EXI_BLOCKING_MASK = 3,
	EXI_BLOCKING_FOREVER = 4, /* << enum exi_dir: it has no time-out */
	EXI_BLOCKING_KNOWN = 15,  /* all of the above */
	EXI_BLOCKING_CHANGE = 16, /* one more of the count above */
};

/* How often a connection whose peer hands its end on meets again. */
#define EXI_LIVES 4

struct exi_sock {
	_Atomic int fd;		     /* -1: free */
	uint32_t index;		     /* in the pool, for ever */
	_Atomic uint32_t generation; /* changes with each socket here */
	struct exi_shared *sh;
	const struct exi_base *base; /* the kind of its kernel's stream */
	struct exi_conn *tcp;
	/* Null until met; changed with TX and RX lock, read by family.h
	 * without. */
	struct exi_conn *fab;
	_Atomic enum exi_role role;
	int family;
	bool adopted;	      /* upgrades are allowed */
	_Atomic bool framed;  /* SOCK_SEQPACKET; set before it is connected */
	_Atomic bool named;   /* known by names, see names.h */
	_Atomic bool lingers; /* while its close waits: the number is its own */
	_Atomic bool closing;
	_Atomic uint64_t process; /* exi_use_token() of the last use */
	bool foreign_link;	  /* inherited, and not yet watched here */
	bool unused;		  /* inherited, and not yet used here */
	/* The cookie of the descriptor's socket; 0: not asked for, where every
	 * close is seen and the connection was not met, or being exchanged. */
	_Atomic uint64_t cookie;
	_Atomic uint64_t used; /* exi_ticks() of the last submission */
	uint64_t seen; /* bytes moved when descriptors were looked for last */
	struct exi_conn *tcp_spare; /* for the next socket in this place */
	struct exi_conn *left_tcp;  /* when it was forgotten */
	struct exi_conn *left_fab;
	/* Fabrics that it had with peers which handed their end on. Threads
	 * that look without a lock may see them until the socket goes. */
	struct exi_conn *spent[EXI_LIVES];
	/* The queue in whose hot list a direction is; under the queue's
	 * lock. */
	_Atomic(struct exi_queue *) hot_in[2];
	/* The member of a queue's family (lanes.h) to which a direction's last
	 * operations went; guarded by the half's lock. */
	struct exi_queue *turn[2];
	/* How many threads look at words of the fabric without the lock, or are
	 * among the waiters, by direction: changed with the lock held, waited
	 * for before the fabric goes. Until then neither the socket nor its
	 * shared part is another's. */
	_Atomic uint32_t lookers[2];
	/* The waiters that asked the peer for a wake-up (ready.h), by
	 * direction; guarded by the half's lock. */
	uint32_t armed[2];
	/* The known state of O_NONBLOCK, SO_RCVTIMEO and SO_SNDTIMEO, where
	 * every change of them is seen: enum exi_blocking, above it a count of
	 * changes. */
	_Atomic uint32_t blocking;
	_Atomic bool settled; /* on TCP for good, and the kernel counts */
	_Atomic bool remote;  /* fab is one, and its peer on another host */
	_Atomic bool blocks;  /* O_NONBLOCK was clear when last looked at */
	/* The port that the socket is connected to; 0: not asked yet. */
	_Atomic uint16_t peer_port;
	/* That port and the address of struct exi_tuple, since it first looked
	 * for its peer: for reports, since the kernel forgets both when the
	 * connection has ended. Port 0: none. */
	uint8_t met_addr[16];
	_Atomic uint16_t met_port;
	_Atomic bool times; /* its peer is to report when it sends */
	/* Counts short sends, and the end of sending: after each of these, a
	 * waiter for space gets an event, although there was space before. */
	_Atomic uint32_t cramped;
	/* Counts the messages of the link that were read, but for rings. */
	_Atomic uint32_t said;
	uint32_t latent_life; /* which it was before it woke, see latent.h */
	/* Forks that had begun before it: they do not count it. */
	_Atomic uint64_t born;
	/* It was handed to this process, or its other end to another; guarded
	 * by link_lock. giver: the socket of the process that may still use it,
	 * or EXI_HEIR(); 0: none; see handed.h. again, looks: see again.h. */
	uint64_t giver;
	uint32_t looks;
	/* When it passed its first mark, and when its meeting began to cost
	 * something, in exi_ticks(); 0: not yet. See worth.h; the last two are
	 * guarded by link_lock. */
	_Atomic uint64_t mark_since;
	uint64_t paid_at, paid_moves;
	uint32_t answers; /* of a peer without the sign; link_lock */
	/* B: the bytes received and sent when a look found nobody, the last
	 * time, and whether the peer meets later; link_lock. */
	uint64_t vain_in, vain_out;
	bool young;
	_Atomic bool again; /* written with link_lock; a mark looks without */
	bool looked;	    /* by time, after the last mark; link_lock */
	bool cut;	    /* it ended in the midst of a meeting; link_lock */
	bool asks;	    /* the program asked again; link_lock */
	/* B: why this end keeps the connection on TCP, see
	 * core/meet/look.h, and whether A knows; link_lock. */
	bool told;
	int keeps;
	bool counted; /* among the accepted connections */
	bool watched; /* the service watches the descriptor */
	/* Hints of a listener, which several threads may set at once. */
	_Atomic bool marked;	  /* this process holds its marker */
	_Atomic bool signs;	  /* all that comes to it has had its sign */
	_Atomic uint64_t reached; /* exi_use_token() of its last accept */
	/* Goes over TCP before the drain; TX lock. */
	uint8_t record[EXI_RESUME];
	uint32_t record_left;
	/* The operations, by direction; guarded by its half's lock. */
	struct exi_list ops[2];
	_Atomic uint32_t n_ops[2];
	struct exi_xfer xfer[2];
	struct exi_op *posted[2];  /* the op whose transfer is in flight */
	uint32_t n_lent[2];	   /* how many of ops are lent, see place.h */
	struct exi_loan *loans[2]; /* null until the first, see loan.h */
	/* Whether memory of the fabric is on loan. It is here because a fork
	 * looks while another thread closes. */
	_Atomic bool lent_in_place[2];
	struct exi_waiter *waiters[2];
	struct exi_timeout *timeout[2]; /* set, see timeout.h; changes rarely */
	/* The beginning of a message that no receive has taken; guarded as
	 * RX. */
	char *kept;
	size_t n_kept;
	size_t kept_room;
	/* Guarded by link_lock (this process only). */
	struct exi_lock link_lock;
	struct exi_link *link;
	/* The thread that reads this socket's bell (see poller.h), 0: the
	 * service; and how many sleeps elsewhere began since that changed. */
	_Atomic uint32_t hearer;
	_Atomic uint32_t unheard;
	/* Nobody watches the link, see link/watch.h. Changes with link_lock
	 * held. */
	_Atomic bool link_rests;
	struct exi_list poll_ops; /* accept, connect */
	/* The earliest of operations' deadlines that was noted, see
	 * life/deadline.h; 0: none. */
	struct {
		struct exi_list node;
		_Atomic uint64_t at;
	} deadline;
	uint32_t poll_events;
	/* The peer was asked for wake-ups for waits that the shim does not see,
	 * see unseen.h. */
	_Atomic bool guarded;
	/* A thread was seen to wait for bytes since they come through the ring;
	 * guarded by the lock of EXI_RX. */
	bool awaited;
	/* The service's words: */
	uint32_t neglected; /* looks in a row that found bytes and no waiter */
	uint64_t glanced;   /* bytes received, at the last of them */
	struct exi_list todo;
	uint32_t todo_dirs; /* 1 << enum exi_dir; not 0: in its list */
	struct exi_list free_node;
};

/* A waiter for a direction, where no thread can sleep on a word: wake is called
 * for each kick. It is in the list of its direction, whose lock is held then;
 * it may remove itself. */
struct exi_waiter {
	void (*wake)(struct exi_waiter *w);
	struct exi_waiter *next;
	bool idle; /* no thread was seen to wait by it yet, see unseen.h */
};

/* Sets the table up. Idempotent. */
int exi_sock_init(void);

/* The table, by descriptor. Set up once. A place with an odd value is no
 * address but a latent connection, see latent.h. */
#define EXI_LATENT 1u
struct exi_table {
	_Atomic(struct exi_sock *) *socks;
	/* For a second number of a socket: the socket's own number plus 1. */
	_Atomic int *names;
	uint32_t size;
	_Atomic uint32_t
		high; /* above the highest number that was ever in it */
};
EXI_SHIM extern struct exi_table exi_table;

/* The socket of fd, or null, also where a connection is latent. */
static inline struct exi_sock *exi_sock_peek(int fd)
{
	struct exi_sock *sk;

	if (exi_unlikely((uint32_t)fd >= exi_table.size))
		return NULL;
	/* Acquire: pairs with exi_sock_make(). */
	sk = atomic_load_explicit(&exi_table.socks[fd], memory_order_acquire);
	return exi_likely(!((uintptr_t)sk & EXI_LATENT)) ? sk : NULL;
}

/* Settles a connection that stays on TCP permanently and needs nothing from the
 * library: calls that move bytes need not track fd any more, and the kernel
 * counts them. One look; false also if the look cannot decide now. No lock
 * held. */
EXI_SHIM bool exi_sock_settle(struct exi_sock *sk, int fd);
/* Every number is tracked from now on, and nothing settles: the program calls
 * the library by name, too, whose operations are in one order with all other
 * calls. */
void exi_sock_track_all(void);

/* Puts sk at a number that had nothing, or was another's. */
void exi_sock_put(int fd, struct exi_sock *sk);

/* The socket's memory with this index, in use or not; null: there are not that
 * many. */
struct exi_sock *exi_sock_by_index(uint32_t index);

/* Whether this process has used the socket before; a hint, where it may have
 * been forgotten. */
static inline bool exi_sock_used_here(const struct exi_sock *sk)
{
	return atomic_load_explicit(&sk->process, memory_order_relaxed) ==
	       exi_use_token();
}

/* The shared part, of a socket that may have been forgotten. */
static inline struct exi_shared *exi_sock_shared(const struct exi_sock *sk)
{
	return __atomic_load_n(&sk->sh, __ATOMIC_RELAXED);
}

/* The kind of the stream, of such a socket. */
static inline const struct exi_base *exi_sock_base(const struct exi_sock *sk)
{
	return __atomic_load_n(&sk->base, __ATOMIC_RELAXED);
}

/* Whether the socket is known by fd: its number, or a name. */
static inline bool exi_sock_is(const struct exi_sock *sk, int fd)
{
	/* Acquire: pairs with exi_sock_make(), for a thread that knew the
	 * socket which had this place, and the number, before. */
	int number = atomic_load_explicit(&sk->fd, memory_order_acquire);

	/* A free socket has no number, also for a thread that knows none of its
	 * numbers. Where the caller knows that fd is one, the second test costs
	 * nothing. */
	return (exi_likely(number == fd) && exi_likely(fd >= 0)) ||
	       (number >= 0 && (uint32_t)fd < exi_table.size &&
		atomic_load(&exi_table.names[fd]) == number + 1);
}

/* Whether the place still has the socket of this generation, which is not
 * closed. The answer holds while a lock of the socket is held; otherwise it is
 * a hint. */
static inline bool exi_sock_lasts(const struct exi_sock *sk,
				  uint32_t generation)
{
	/* Acquire: pairs with exi_sock_make(): a thread that sees another
	 * socket's number sees its generation. */
	return atomic_load_explicit(&sk->fd, memory_order_acquire) >= 0 &&
	       atomic_load_explicit(&sk->generation, memory_order_relaxed) ==
		       generation;
}

/* Takes the lock of a direction if sk is still fd's. */
static inline bool exi_sock_lock(struct exi_sock *sk, int fd, enum exi_dir dir,
				 struct exi_shared **ret)
{
	struct exi_shared *sh = exi_sock_shared(sk);

	exi_lock(&sh->half[dir].lock);
	if (exi_unlikely(!exi_sock_is(sk, fd) || exi_sock_shared(sk) != sh)) {
		exi_unlock(&sh->half[dir].lock);
		return false;
	}
	*ret = sh;
	return true;
}

/* Whether the connection has met its peer. A lock of the socket is held, or it
 * is a hint. */
static inline bool exi_sock_met(const struct exi_sock *sk)
{
	return __atomic_load_n(&sk->fab, __ATOMIC_RELAXED) != NULL;
}

/* The fabric's peer is on another host. The same. */
static inline bool exi_sock_remote(const struct exi_sock *sk)
{
	return atomic_load_explicit(&sk->remote, memory_order_relaxed);
}

/* Counts this thread among the lookers, or out. The lock is held. */
static inline void exi_sock_look_locked(struct exi_sock *sk, enum exi_dir dir,
					int change)
{
	uint32_t n =
		atomic_load_explicit(&sk->lookers[dir], memory_order_relaxed);

	EXI_LOCKED(&sk->sh->half[dir].lock);
	if (dir == EXI_RX && change > 0)
		sk->awaited = true;
	/* Release: the socket that was looked at may go after the last one. */
	atomic_store_explicit(&sk->lookers[dir], n + (uint32_t)change,
			      memory_order_release);
}

/* Breaks the direction, with or without the lock: from here on nothing moves,
 * and the direction reports a reset. */
static inline void exi_half_break(struct exi_half *h)
{
	uint32_t whole = EXI_BROKEN_NOT;

	atomic_compare_exchange_strong(&h->broken, &whole, EXI_BROKEN_UNTOLD);
}

/* Unlocks a half that exi_sock_lock() locked. */
static inline void exi_half_unlock(struct exi_half *h)
{
	exi_unlock(&h->lock);
}

/* Takes the socket and its second numbers out of the table. Called before a
 * descriptor of it is closed: from then on the number may be another file's, of
 * any kind. The socket's locks are held. */
void exi_sock_unlist_locked(struct exi_sock *sk);

/* Forgets the socket of a descriptor that was closed behind the library's back:
 * operations end with EBADF. The generation is from before the close was found
 * out: another socket that has since taken its place, with its number,
 * stays. */
EXI_SHIM void exi_sock_forget(struct exi_sock *sk, int fd, uint32_t generation);
/* Sets how: forget ends a socket completely, with what stands on sockets.
 * Called once, where the core starts. */
void exi_sock_forgets(void (*forget)(struct exi_sock *sk, int fd,
				     uint32_t generation));

/* Remember which socket the descriptor is, and check later whether it still is.
 * A thread that puts another socket in its place calls exi_sock_exchange()
 * before, so that no thread mistakes that socket for a stranger's. */
EXI_SHIM void exi_sock_mark(struct exi_sock *sk, int fd);
void exi_sock_exchange(struct exi_sock *sk);
bool exi_sock_current(struct exi_sock *sk, int fd);

/* Forks that have begun. */
EXI_SHIM extern _Atomic uint64_t exi_sock_forks;

/* Whether no child was made that has the socket. */
static inline bool exi_sock_unforked(const struct exi_sock *sk)
{
	return atomic_load_explicit(&sk->born, memory_order_relaxed) ==
	       atomic_load_explicit(&exi_sock_forks, memory_order_relaxed);
}

/* Sets the reason for which the connection is not on the best fabric
 * (EXS_X_REASON_*), and applies EXS_REQUIRE. If a violation broke the
 * connection, it stays the reason. */
void exi_sock_reason(struct exi_sock *sk, int reason);

/* Calls f for each live socket. */
EXI_SHIM void exi_sock_each(void (*f)(struct exi_sock *sk, void *arg),
			    void *arg);

/* Whether the number is a latent connection. No lock is needed. */
static inline bool exi_latent(int fd)
{
	return (uint32_t)fd < exi_table.size &&
	       ((uintptr_t)atomic_load_explicit(&exi_table.socks[fd],
						memory_order_relaxed) &
		EXI_LATENT);
}

/* Read without the lock: a process that has come to share the connection since
 * does not get a loan. */
static inline bool exi_loan_in_place(const struct exi_sock *sk,
				     enum exi_dir dir)
{
	return exi_unlikely(atomic_load(&sk->lent_in_place[dir]));
}

/* Asks the fabric's peer to report when it sends, or no longer to; the lock of
 * EXI_RX is held. */
void exi_ready_times_locked(struct exi_sock *sk);

/* Returns a number for a sleep that no process ever had. A thread that arms
 * several connections with it looks at all of them when one wakes it, and lets
 * go of none before that; so a peer that has several of them sends one
 * wake-up. */
EXI_SHIM uint64_t exi_ready_sleep(void);

/* The descriptor that becomes readable when the peer sends a wake-up, which
 * exi_link_event() reads; -1 when there is none. It may be closed at any
 * time. */
EXI_SHIM int exi_ready_bell(struct exi_sock *sk, int fd);

/* Called when a connection has met its peer's library, before any direction can
 * be switched; and again when its link, which nobody watched for a while, can
 * be shared as before (link/watch.h). The link lock is held. Set once, before
 * the first connection. */
EXI_SHIM extern void (*exi_ready_met)(struct exi_sock *sk, bool again);

#define EXI_TABLE_MAX	     (1u << 24)
#define EXI_TABLE_CHUNK	     256u
#define EXI_TABLE_CHUNKS_MAX (EXI_TABLE_MAX / EXI_TABLE_CHUNK)

/* A plain store: publishing the socket publishes the member. */
#define EXI_TABLE_RESET(a, v) atomic_store_explicit(a, v, memory_order_relaxed)

/* The id of the thread that hands connections over at exit; 0: none. */
extern _Atomic uint32_t exi_table_exit_tid;

/* Guards the memory of sockets and the words below. */
extern struct exi_lock exi_table_pool_lock;

/* Memory of sockets: EXI_TABLE_CHUNK in each. */
extern struct exi_sock **exi_table_chunks;

/* How many sockets there is memory for; grows only. */
extern _Atomic uint32_t exi_table_n_socks;

/* Makes the shim look at every number in the table. */
void exi_table_track_each(void);

/* Held while a latent connection becomes a socket. */
extern struct exi_lock exi_table_promote_lock;

#endif
