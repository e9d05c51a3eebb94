/* SPDX-License-Identifier: BSD-2-Clause */
/* The Extended Sockets API: asynchronous I/O, event queues and registered
 * memory on ordinary socket descriptors.
 *
 * A call that is given an event queue is asynchronous: 0 means that the
 * operation was accepted and yields exactly one event on that queue; -1 (with
 * errno) means that it was not accepted and yields none. A call that is given
 * EXS_QHANDLE_INVALID is synchronous and behaves like its POSIX namesake.
 *
 * From the acceptance of an operation until its event is dequeued, the buffer
 * belongs to the library. Every call is safe from any thread. Each has a page
 * in section 3 of the manual; exs(7) is the overview. Names and the calling
 * sequence follow the published sources that use the ES-API; numeric values and
 * structure members are those of libexs.
 */
#ifndef _SYS_EXS_H
#define _SYS_EXS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EXS_VERSION1 1
#define EXS_VERSION  EXS_VERSION1

/* Handles of event queues and of registered memory: small positive numbers
 * that print with %d. The handle of a deleted object is not soon given to
 * another one, so a call with a stale handle fails with EINVAL. Their types are
 * as large as int, but are not int: C++ refuses an argument of the wrong type,
 * and C compilers warn if the two are confused (-Wenum-conversion). */
typedef enum exs_qhandle {
	EXS_QHANDLE_LEAST_ = -1,
	EXS_QHANDLE_MOST_ = 0x7fffffff,
} exs_qhandle_t;
typedef enum exs_mhandle {
	EXS_MHANDLE_LEAST_ = -1,
	EXS_MHANDLE_MOST_ = 0x7fffffff,
} exs_mhandle_t;
/* The application's handle; the event returns it unchanged. */
typedef void *exs_ahandle_t;

#ifdef __cplusplus
#define EXS_HANDLE_(type, n) static_cast<type>(n)
#else
#define EXS_HANDLE_(type, n) ((type)(n))
#endif
#define EXS_QHANDLE_INVALID EXS_HANDLE_(exs_qhandle_t, -1)
#define EXS_MHANDLE_INVALID EXS_HANDLE_(exs_mhandle_t, -1)
/* The buffer is not registered: always allowed. */
#define EXS_MHANDLE_UNREGISTERED EXS_HANDLE_(exs_mhandle_t, 0)

/* Limits: the largest depth of a queue, and the most events one
 * exs_qdequeue() takes. */
#define EXS_QDEPTH_MAX 65536
#define EXS_EVTVEC_MAX 65536

/* Attributes of a queue, for exs_qmodify() and exs_qstatus(). */
enum {
	EXS_QATTR_DEPTH = 1,  /* int: completion slots */
	EXS_QATTR_EVENTS = 2, /* int, read only: events waiting */
	EXS_QATTR_SIGNAL = 3, /* exs_signal_t */
	EXS_QATTR_WAIT = 4,   /* int: one of EXS_WAIT_* */
};

enum {
	EXS_WAIT_ADAPTIVE = 0,	/* spin for a bounded time, then sleep */
	EXS_WAIT_NOTIFY = 1,	/* sleep at once */
	EXS_WAIT_BUSY_POLL = 2, /* never sleep */
};

enum {
	EXS_SIG_DISABLE = 0,
	EXS_SIG_ENABLE = 1,
};

typedef struct exs_signal {
	int exs_enable; /* EXS_SIG_ENABLE or EXS_SIG_DISABLE */
	int exs_signo;	/* raised when an event arrives in an empty queue */
} exs_signal_t;

/* Options of sockets, at level SOL_SOCKET, for exs_setsockopt() and
 * exs_getsockopt(). */
enum {
	SO_ASYNC_SEND_TIMEOUT = 0x45580001, /* exs_timeout_t */
	SO_ASYNC_RECV_TIMEOUT = 0x45580002, /* exs_timeout_t */
	/* int, always 1: receives are filled in the order of submission. */
	SO_ASYNC_RECV_ORDERED = 0x45580003,
};

#define EXS_TIMEOUT_ONCE 0x1 /* one event, then the option is off */

/* If a transfer waits, and no transfer of its direction ends within this time,
 * the queue gets the event EXS_EVT_SENDTIMEOUT or EXS_EVT_RECVTIMEOUT, with the
 * handle. The transfer continues. Events that were not dequeued coalesce. A
 * time of 0 turns the option off. */
typedef struct exs_timeout {
	struct timeval exs_to_time;
	int exs_to_flags; /* EXS_TIMEOUT_ONCE */
	exs_qhandle_t exs_to_queue;
	exs_ahandle_t exs_to_ahandle;
} exs_timeout_t;

/* Flags of exs_mregister(). */
#define EXS_MRF_SHARED 0x1 /* the memory is shared with other processes */

/* Flags of exs_cancel(): what selects the operations. */
#define EXS_CAF_FILDES	0x1 /* those of the descriptor */
#define EXS_CAF_AHANDLE 0x2 /* those with the application handle */

/* Types of event. */
enum {
	EXS_EVT_POLL = 1,
	EXS_EVT_CONNECT = 2,
	EXS_EVT_ACCEPT = 3,
	EXS_EVT_SEND = 4,
	EXS_EVT_RECV = 5,
	EXS_EVT_SENDMSG = 6,
	EXS_EVT_RECVMSG = 7,
	EXS_EVT_SENDFILE = 8,
	EXS_EVT_SENDTIMEOUT = 9,
	EXS_EVT_RECVTIMEOUT = 10,
	EXS_EVT_SHUTDOWN = 11,
	EXS_EVT_CLOSE = 12,
};

/* Receives the peer's address from exs_accept(). The structure must stay valid
 * until the event is dequeued. exs_addr may be null; exs_addrlen is its size on
 * entry and the true length afterwards. */
typedef struct exs_acceptaddr {
	struct sockaddr *exs_addr;
	socklen_t exs_addrlen;
} exs_acceptaddr_t;

/* A piece of memory of a message, and the registration that covers it or
 * EXS_MHANDLE_UNREGISTERED. */
typedef struct exs_iovec {
	void *exs_iov_base;
	size_t exs_iov_len;
	exs_mhandle_t exs_iov_mhandle;
} exs_iovec_t;

/* A message: its pieces are moved as if they were one buffer. The caller keeps
 * the structure and the memory until the event is dequeued; the array of pieces
 * is copied. */
typedef struct exs_msghdr {
	void *exs_msg_name; /* null: a connection has no names */
	socklen_t exs_msg_namelen;
	exs_iovec_t *exs_msg_iov;
	int exs_msg_iovlen;    /* at most IOV_MAX */
	void *exs_msg_control; /* null: there is no control data */
	size_t exs_msg_controllen;
	int exs_msg_flags; /* set by exs_recvmsg(): MSG_TRUNC, ... */
} exs_msghdr_t;

/* What exs_sendfile() sends. */
enum {
	EXS_IOVEC = 1, /* memory: exs_xf_iovec */
	EXS_FDVEC = 2, /* a part of a file: exs_xf_fdvec */
};

/* A part of a regular file, which must stay open and keep its length until the
 * event is dequeued. */
typedef struct exs_fdvec {
	int exs_fd_fildes;
	off_t exs_fd_offset;
	size_t exs_fd_len; /* 0: up to where the file ends now */
} exs_fdvec_t;

typedef struct exs_xferfile {
	int exs_xf_type; /* EXS_IOVEC or EXS_FDVEC */
	union {
		exs_iovec_t exs_xf_iovec;
		exs_fdvec_t exs_xf_fdvec;
	} exs_xf_un;
} exs_xferfile_t;

/* Flag of exs_sendfile(), beside MSG_*: ends the direction when all bytes are
 * sent, like exs_shutdown(SHUT_WR). */
#define EXS_SHUT_WR 0x800000

/* The result of EXS_EVT_SEND and EXS_EVT_RECV. */
typedef struct exs_evt_xfer {
	void *exs_evt_buffer;  /* as submitted */
	size_t exs_evt_length; /* bytes moved; 0 is the end of a stream */
	int exs_evt_flags;     /* MSG_TRUNC, ... of a receive */
} exs_evt_xfer_t;

/* The result of EXS_EVT_SENDMSG and EXS_EVT_RECVMSG. */
typedef struct exs_evt_xfermsg {
	exs_msghdr_t *exs_evt_msg; /* as submitted */
	size_t exs_evt_length;	   /* bytes moved, of all pieces together */
	int exs_evt_flags;
} exs_evt_xfermsg_t;

/* The result of EXS_EVT_SENDFILE. */
typedef struct exs_evt_xferfile {
	const exs_xferfile_t *exs_evt_files; /* as submitted */
	size_t exs_evt_length;		     /* bytes moved, of all together */
} exs_evt_xferfile_t;

/* Events of exs_poll(), as POLLIN, ...; those from EXS_POLLERR on are reported
 * whether requested or not. */
#define EXS_POLLIN   0x001
#define EXS_POLLOUT  0x004
#define EXS_POLLERR  0x008
#define EXS_POLLHUP  0x010
#define EXS_POLLNVAL 0x020 /* no descriptor, or it was closed meanwhile */

#define EXS_POLL_MAX 65536 /* descriptors of a call */

typedef struct exs_pollfd {
	int exs_fd; /* below 0: ignored */
	short exs_events;
	short exs_revents; /* the answer */
} exs_pollfd_t;

/* The result of EXS_EVT_POLL. */
typedef struct exs_evt_poll {
	exs_pollfd_t *exs_evt_fds; /* as submitted */
	int exs_evt_nfds;
	int exs_evt_ready; /* number of ready descriptors */
} exs_evt_poll_t;

/* The result of EXS_EVT_ACCEPT. */
typedef struct exs_evt_accept {
	int exs_evt_newfd; /* the connection, or -1 when exs_errno is set */
	int exs_evt_flags; /* see EXS_X_MULTI, else 0 */
	exs_acceptaddr_t *exs_evt_addr; /* as submitted */
} exs_evt_accept_t;

typedef struct exs_event {
	int exs_evt_type;   /* EXS_EVT_* */
	int exs_evt_socket; /* the descriptor of the submission */
	exs_ahandle_t exs_evt_ahandle;
	int exs_errno; /* 0, or the error of the operation */
	int exs_evt_reserved;
	union {
		exs_evt_xfer_t exs_evt_xfer;
		exs_evt_xfermsg_t exs_evt_xfermsg;
		exs_evt_xferfile_t exs_evt_xferfile;
		exs_evt_poll_t exs_evt_poll;
		exs_evt_accept_t exs_evt_accept;
		void *exs_evt_room[5]; /* keeps the size for other arms */
	} exs_evt_un;
} exs_event_t;

/* Starts the library. Returns 0, or -1 with EPROTONOSUPPORT for a version that
 * it does not support. May be called again. Every other call fails with ENXIO
 * before it. */
int exs_init(int version);

/* Event queues. */
exs_qhandle_t exs_qcreate(int depth);
int exs_qdelete(exs_qhandle_t q);
int exs_qmodify(exs_qhandle_t q, int attr, const void *val, size_t len);
int exs_qstatus(exs_qhandle_t q, int attr, void *val, size_t *len);
/* Takes up to |evtcnt| events. With a positive evtcnt it returns as soon as
 * there is an event, with a negative evtcnt when there are |evtcnt| events, in
 * both cases at the latest after the timeout; with 0 it returns 0. A null
 * timeout waits without limit, a zero timeout does not wait. */
int exs_qdequeue(exs_qhandle_t q, exs_event_t *evtvec, int evtcnt,
		 const struct timeval *timeout);

/* Memory. */
exs_mhandle_t exs_mregister(void *addr, size_t len, int flags);
int exs_mderegister(exs_mhandle_t m, int flags);

/* Transfers. */
ssize_t exs_send(int s, const void *buf, size_t len, int flags, exs_qhandle_t q,
		 exs_ahandle_t a, exs_mhandle_t m);
ssize_t exs_recv(int s, void *buf, size_t len, int flags, exs_qhandle_t q,
		 exs_ahandle_t a, exs_mhandle_t m);
ssize_t exs_sendmsg(int s, const exs_msghdr_t *msg, int flags, exs_qhandle_t q,
		    exs_ahandle_t a);
ssize_t exs_recvmsg(int s, exs_msghdr_t *msg, int flags, exs_qhandle_t q,
		    exs_ahandle_t a);
ssize_t exs_sendfile(int s, const exs_xferfile_t *xf, int n, int flags,
		     exs_qhandle_t q, exs_ahandle_t a);

/* Connections. */
int exs_connect(int s, const struct sockaddr *to, socklen_t len, int flags,
		exs_qhandle_t q, exs_ahandle_t a);
int exs_accept(int s, exs_acceptaddr_t *addr, int flags, exs_qhandle_t q,
	       exs_ahandle_t a);
/* The caller keeps the array until the event is dequeued. */
int exs_poll(exs_pollfd_t *fds, int nfds, int flags, exs_qhandle_t q,
	     exs_ahandle_t a);
int exs_cancel(int s, exs_ahandle_t a, int flags);
int exs_shutdown(int s, int how, exs_qhandle_t q, exs_ahandle_t a);
int exs_close(int s, exs_qhandle_t q, exs_ahandle_t a);

/* As their POSIX namesakes. */
int exs_socket(int domain, int type, int protocol);
int exs_bind(int s, const struct sockaddr *addr, socklen_t len);
int exs_listen(int s, int backlog);
int exs_fcntl(int s, int cmd, ...);
int exs_getsockopt(int s, int level, int name, void *val, socklen_t *len);
int exs_setsockopt(int s, int level, int name, const void *val, socklen_t len);
int exs_getsockname(int s, struct sockaddr *addr, socklen_t *len);
int exs_getpeername(int s, struct sockaddr *addr, socklen_t *len);

#ifdef __cplusplus
}
#endif

#endif
