/* SPDX-License-Identifier: BSD-2-Clause */
/* What libexs offers beyond the Extended Sockets API. */
#ifndef _SYS_EXS_EXT_H
#define _SYS_EXS_EXT_H

#include <stdint.h>
#include <sys/exs.h>
#include <sys/select.h> /* sigset_t, in every C */

#ifdef __cplusplus
extern "C" {
#endif

struct timespec;

/* The version of these headers, and the version of the library at run time, as
 * numbers that compare as versions do. exs_x_version() may be called before
 * exs_init(). */
#define EXS_X_VERSION(major, minor, micro)                                     \
	((major)*1000000 + (minor)*1000 + (micro))
#define EXS_X_VERSION_NUM EXS_X_VERSION(0, 1, 0)
int exs_x_version(void);

/* The longest message of a SOCK_SEQPACKET socket; see exs_seqpacket(7). */
#define EXS_X_MESSAGE_MAX 0x3fffffff

/* Why a connection is not on the best fabric. Values never change; new ones
 * are added at the end. exs_x_reason_name() returns the word that the tools
 * print. */
typedef enum exs_x_reason {
	EXS_X_REASON_NONE = 0,	     /* both directions are on a fabric */
	EXS_X_REASON_UNDECIDED = 1,  /* too little traffic, or about to move */
	EXS_X_REASON_PLAIN_PEER = 2, /* no library at the other end */
	EXS_X_REASON_PLAIN_SOCKET = 3,	/* made by plain calls, not adopted */
	EXS_X_REASON_CONFIG = 4,	/* EXS_UPGRADE=never */
	EXS_X_REASON_NO_PROVIDER = 5,	/* no fabric is usable at both ends */
	EXS_X_REASON_REMOTE = 6,	/* the peer is on another host */
	EXS_X_REASON_NO_PROOF = 7,	/* sock_diag is missing here */
	EXS_X_REASON_REFUSED = 8,	/* a process claimed to be the peer */
	EXS_X_REASON_VERSION = 9,	/* the ends speak different protocols */
	EXS_X_REASON_TIMEOUT = 10,	/* the peer did not answer in time */
	EXS_X_REASON_REQUESTED = 11,	/* exs_x_downgrade() here */
	EXS_X_REASON_PEER_REQUEST = 12, /* the peer asked for TCP */
	EXS_X_REASON_HALF_CLOSED = 13,	/* a direction has ended */
	EXS_X_REASON_URGENT = 14,	/* urgent data was used */
	EXS_X_REASON_DESCRIPTORS = 15,	/* descriptors are running out */
	EXS_X_REASON_MEMORY = 16,	/* memory or its limits ran out */
	EXS_X_REASON_SHARED = 17,     /* several processes use the descriptor */
	EXS_X_REASON_KERNEL_TLS = 18, /* TCP_ULP */
	EXS_X_REASON_MPTCP = 19,
	EXS_X_REASON_ZEROCOPY = 20,   /* SO_ZEROCOPY */
	EXS_X_REASON_TIMESTAMPS = 21, /* SO_TIMESTAMPING, related options */
	EXS_X_REASON_REPAIR = 22,     /* TCP_REPAIR */
	EXS_X_REASON_BPF = 23,	      /* a filter is attached */
	EXS_X_REASON_O_ASYNC = 24,
	EXS_X_REASON_SELF = 25,	    /* a socket connected to itself */
	EXS_X_REASON_IO_URING = 26, /* the program uses io_uring itself */
	EXS_X_REASON_SECCOMP = 27,
	EXS_X_REASON_ORPHAN = 28, /* the peer is gone, its bytes were saved */
	EXS_X_REASON_PEER_LOST = 29, /* the peer left without a message */
	EXS_X_REASON_PROTOCOL = 30,  /* the peer violated the protocol */
	EXS_X_REASON_NOT_TCP = 31,   /* no kind that is served */
	EXS_X_REASON_NOT_CONNECTED = 32,
	EXS_X_REASON_DUPLICATE = 33,	/* the descriptor got a second number */
	EXS_X_REASON_EXEC = 34,		/* it goes to another program by exec */
	EXS_X_REASON_PASSED = 35,	/* it was sent to a process */
	EXS_X_REASON_STDIO = 36,	/* a stdio stream is on it */
	EXS_X_REASON_SPLICE = 37,	/* splice or tee was used */
	EXS_X_REASON_NAMESPACE = 38,	/* the process changed namespaces */
	EXS_X_REASON_NO_KEY = 39,	/* no usable key here or at the peer */
	EXS_X_REASON_KEY_MISMATCH = 40, /* the hosts have different keys */
	EXS_X_REASON_FABRIC_LOST = 41,	/* the fabric failed */
	EXS_X_REASON_PEEK_OFF = 42,	/* SO_PEEK_OFF */
	EXS_X_REASON_UNSEEN_WAIT = 43,	/* a wait that is not intercepted */
	EXS_X_REASON_OPERATOR = 44,	/* exs downgrade asked for TCP */
	EXS_X_REASON_ANCILLARY = 45,	/* descriptors or credentials */
	EXS_X_REASON_REDIRECTED = 46,	/* the ends see different addresses */
	EXS_X_REASON_MAX_ = 47,
} exs_x_reason_t;

/* A snapshot of one socket. Counters count from the moment the library first
 * saw the descriptor. */
typedef struct exs_x_sockinfo {
	char exs_x_tx_fabric[16]; /* where exs_send() goes now: "tcp", "shm" */
	char exs_x_rx_fabric[16]; /* where exs_recv() comes from now */
	int exs_x_reason; /* exs_x_reason_t: of the direction that has one */
	int exs_x_paired; /* 1: the handshake with the peer is done */
	uint64_t exs_x_tx_bytes; /* all fabrics together */
	uint64_t exs_x_rx_bytes;
	uint64_t exs_x_tx_fabric_bytes; /* those that did not use TCP */
	uint64_t exs_x_rx_fabric_bytes;
	uint64_t exs_x_bells_sent; /* wake-ups */
	uint64_t exs_x_bells_received;
	uint64_t exs_x_sleeps;	   /* times a thread slept for this socket */
	uint64_t exs_x_spins;	   /* waits that ended without sleeping */
	uint64_t exs_x_upgrades;   /* directions switched onto a fabric */
	uint64_t exs_x_downgrades; /* directions switched back */
	/* The part of the fabric's bytes that a device transferred directly. */
	uint64_t exs_x_tx_direct_bytes;
	uint64_t exs_x_rx_direct_bytes;
	int exs_x_tx_reason;	/* NONE if exs_send() uses a fabric */
	int exs_x_rx_reason;	/* NONE if exs_recv() uses a fabric */
	uint64_t exs_x_room[9]; /* zero; keeps the size */
} exs_x_sockinfo_t;

/* Returns a descriptor that polls readable while the queue has events; it may
 * be readable without one. It belongs to the queue: never read or close it. -1
 * with EINVAL, EMFILE. */
int exs_x_qfd(exs_qhandle_t q);

/* The type of an event that exs_x_post() made. */
#define EXS_X_EVT_USER 64

/* Puts an event with the handle into the queue, and wakes a thread that waits
 * there; exs_evt_socket is -1. The event takes a slot until it is dequeued. May
 * be called from any thread, but not from a signal handler. -1 with EAGAIN: no
 * slot is free, so the queue has or will have events; EINVAL. */
int exs_x_post(exs_qhandle_t q, exs_ahandle_t a);

/* Waits as exs_qdequeue() does, until a time of CLOCK_MONOTONIC (null: without
 * limit), and replaces the signal mask while it sleeps (null: does not), as
 * ppoll(2) does: a signal that only *mask lets through ends the wait, or comes
 * after the call. When a signal ends a wait with a mask, the call returns the
 * events that there are, or -1 with EINTR if there are none. -1 with the errors
 * of exs_qdequeue(), and with a mask those of exs_x_qfd(). */
int exs_x_dequeue(exs_qhandle_t q, exs_event_t *evtvec, int evtcnt,
		  const struct timespec *until, const sigset_t *mask);

/* Flag of exs_accept() and exs_recv() with a queue, and without an address or
 * buffer: the operation is multishot. It yields an event for each connection,
 * or each time that bytes arrive, in a buffer that exs_x_provide() gave to the
 * queue. If exs_evt_flags of an event have EXS_X_MORE, the operation continues;
 * otherwise the event is its last. The last event has an error, or the end of
 * the stream, or comes because no other slot of the queue was free. In that
 * case, and with ENOBUFS (the queue had no buffer), the program dequeues events
 * or provides buffers, and submits the operation again; no connection or byte
 * is lost. Later receives of the socket wait until the operation is over. -1
 * with EINVAL: there is a buffer, an address, another flag of a receive, or no
 * queue; EOPNOTSUPP: a receive, but the socket is not a stream. */
#define EXS_X_MULTI 0x2000000
#define EXS_X_MORE  0x4000000

/* Gives the queue n buffers of len bytes each, side by side at mem, for
 * receives with EXS_X_MULTI. A buffer belongs to the library until an event
 * names it as exs_evt_buffer, or the queue is deleted. The buffer that was
 * given last is used first. -1 with EINVAL, EFAULT, ENOMEM. */
int exs_x_provide(exs_qhandle_t q, void *mem, size_t len, int n);

/* One operation of several: the arguments of its call, and a deadline. */
typedef struct exs_x_op {
	int exs_x_type;	  /* EXS_EVT_SEND, _RECV, _SENDMSG, _RECVMSG, _SENDFILE,
			 * _CONNECT, _ACCEPT, _POLL */
	int exs_x_socket; /* ignored by a poll */
	void *exs_x_buffer; /* or the exs_msghdr_t, exs_xferfile_t, sockaddr,
			     * exs_acceptaddr_t, exs_pollfd_t */
	/* Bytes of the buffer or address, or the number of parts or
	 * descriptors; 0 with an exs_msghdr_t or exs_acceptaddr_t. */
	size_t exs_x_length;
	int exs_x_flags;
	exs_mhandle_t exs_x_mhandle; /* ..._UNREGISTERED without a buffer */
	exs_ahandle_t exs_x_ahandle;
	/* A time of CLOCK_MONOTONIC at which the operation is cancelled, with
	 * ETIMEDOUT instead of ECANCELED. Null: never. */
	const struct timespec *exs_x_until;
} exs_x_op_t;

/* Submits n operations in order, each as its own call would, and stops at the
 * first that is refused. Returns how many were accepted; -1 if the first is
 * refused, with its error. Consecutive short sends on a socket go to the peer
 * together. */
int exs_x_submit(exs_qhandle_t q, const exs_x_op_t *ops, int n);

/* Fills *info. -1 with EBADF, ENOTSOCK, EINVAL. */
int exs_x_sockinfo(int s, exs_x_sockinfo_t *info);

/* The name and the description of a reason; never null. */
const char *exs_x_reason_name(int reason);
const char *exs_x_reason_text(int reason);

/* Lets the library upgrade a descriptor that plain calls made, or upgrade
 * again one that exs_x_downgrade() moved back. Returns at once; the upgrade
 * follows when the peer agrees. -1 with EBADF, ENOTSOCK, ENOTCONN,
 * EOPNOTSUPP (a kind of socket that is never upgraded). */
int exs_x_adopt(int s);

/* Moves both directions back to TCP, so that plain calls, exec and descriptor
 * passing are safe. No byte is lost: unread bytes in a ring are sent again over
 * TCP. Returns when this end is done. -1 with EBADF, ENOTSOCK; EBUSY if
 * asynchronous operations or a loan are outstanding on the socket; ETIMEDOUT if
 * the peer's process is stopped: the move then completes when the peer runs
 * again, and until then plain calls are not safe; ECANCELED if another thread
 * adopted the descriptor during the call: the connection may be on a fabric
 * again. */
int exs_x_downgrade(int s);

/* Loans: access to the bytes of a stream without a copy, in the fabric's
 * memory, or, if the fabric has no such memory, in a buffer of the library.
 * Each direction of a socket has at most one loan. All other calls that move
 * bytes of the direction wait until the loan ends, as for earlier operations: a
 * blocking call of the same thread would never return. A loan ends with the
 * call that returns it, from any thread, or with the socket.
 *
 * exs_x_recv_loan() stores the address of the next bytes and returns how many
 * of them are contiguous, at least 1; 0 is the end of the stream, and no loan.
 * It waits as recv(2) does; flags are 0 or MSG_DONTWAIT. A hostile peer may
 * change the bytes while they are read. -1 with EBUSY: there is a loan;
 * EOPNOTSUPP: not a stream socket; EINVAL, EFAULT, ENOMEM, and the errors of
 * recv(2). */
ssize_t exs_x_recv_loan(int s, const void **at, int flags);
/* The first len bytes count as received; the others will be received again. -1
 * with EINVAL: there is no loan, or it has fewer bytes; ENOMEM: the loan
 * continues. */
int exs_x_recv_return(int s, size_t len);

/* Stores the address of a buffer for at most want bytes to be sent next, and
 * returns its size, at least 1. Waits as send(2) does; flags are 0 or
 * MSG_DONTWAIT. -1 with the errors of exs_x_recv_loan() and those of send(2);
 * it raises no signal. */
ssize_t exs_x_send_loan(int s, void **at, size_t want, int flags);
/* Sends the first len bytes of the buffer, without waiting; 0: none. flags are
 * 0 or MSG_NOSIGNAL. -1 with EINVAL, ENOMEM as above; and with the errors of
 * send(2), which end the loan. */
int exs_x_send_commit(int s, size_t len, int flags);

#ifdef __cplusplus
}
#endif

#endif
