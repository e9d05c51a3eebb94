/* SPDX-License-Identifier: BSD-2-Clause */
/* The pair link: from the first look for a peer to the messages that move a
 * live connection. A is the end that connected, B the one that accepted.
 *
 *	A: LISTEN -> PROVED -> ANSWER -> UP	B: HELLO -> OFFER -> UP
 */
#include "core/link.h"

#include <errno.h>
#include <poll.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/exs_ext.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/abstract.h"
#include "core/closing.h"
#include "core/config.h"
#include "core/family.h"
#include "core/flow.h"
#include "core/futex.h"
#include "core/latent.h"
#include "core/log.h"
#include "core/marker.h"
#include "core/place.h"
#include "core/proof.h"
#include "core/ready.h"
#include "core/registry.h"
#include "core/remote.h"
#include "core/resume.h"
#include "core/rights.h"
#include "core/service.h"
#include "core/surroundings.h"
#include "core/switch.h"
#include "core/unseen.h"

#define LISTEN_NS   10000000000u /* A waits to be met, an eager B looks */
#define LOOK_NS	    1000000u	/* the first wait of an eager B, then doubled */
#define GREETING_NS 5000000000u /* between messages of a meeting */
#define REMOTE_NS   15000000000u /* for a meeting by a fabric */
#define PROVE_NS    1000000000u /* before another candidate may see the board */
#define PROVERS	    8u		/* candidates that may see it */

/* Bytes both ways by which a peer that waits to meet has come. */
#define WAITED 131072u

static const uint64_t sent_marks[] = { 64u << 10, 256u << 10, 1u << 20,
				       4u << 20, 16u << 20 };

/* --- names -------------------------------------------------------------- */

static void hex(char *out, const uint8_t *in)
{
	unsigned int i;

	for (i = 0; i < 16; i++)
		snprintf(out + 2 * i, 3, "%02x", in[i]);
}

/* The meeting name; ours is the connecting end when connects is set. */
static socklen_t meeting_name(const struct exi_tuple *t, bool connects,
			      struct sockaddr_un *ret)
{
	char a[33], b[33];

	hex(a, connects ? t->local : t->peer);
	hex(b, connects ? t->peer : t->local);
	return exi_abstract(ret, "libexs/1/meet/%s:%u/%s:%u", a,
			    connects ? t->local_port : t->peer_port, b,
			    connects ? t->peer_port : t->local_port);
}

/* --- messages ----------------------------------------------------------- */

static int send_msg(int fd, const struct exi_pair_msg *m, int pass)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m,
			     .iov_len = sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (pass >= 0) {
		struct cmsghdr *h;

		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		h = CMSG_FIRSTHDR(&msg);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &pass, sizeof(int));
	}
	if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

static struct exi_pair_msg message(enum exi_pair_type type)
{
	return (struct exi_pair_msg){ .magic = EXI_PAIR_MAGIC,
				      .version = EXI_PAIR_VERSION,
				      .type = (uint16_t)type };
}

int exi_link_send(struct exi_sock *sk, enum exi_pair_type type, uint64_t a,
		  uint64_t b, uint64_t c)
{
	struct exi_pair_msg m = message(type);
	int ret;

	if (!sk->fab || sk->fab->bell < 0)
		return -ENOTCONN;
	m.a = a;
	m.b = b;
	m.c = c;
	exi_trace("descriptor %d: says %d (%llu %llu %llu)", sk->fab->fd, type,
		  (unsigned long long)a, (unsigned long long)b,
		  (unsigned long long)c);
	ret = send_msg(sk->fab->bell, &m, -1);
	/* What is sent next on a fabric may be there before this is heard. */
	if (ret == 0)
		atomic_fetch_add_explicit(&exi_conn_rings, 1,
					  memory_order_relaxed);
	return ret;
}

/* Sleeps that a ring of this process ended, salted: another user's process could
 * give one for its own, and keep rings from whose it is. */
#define RUNG 256
static _Atomic uint64_t rung[RUNG];

_Atomic uint32_t exi_conn_rings;
_Atomic uint64_t exi_conn_sent;
_Atomic bool exi_link_any;

uint32_t exi_conn_ring(struct exi_conn *c, uint64_t sleep)
{
	_Atomic uint64_t *last = &rung[sleep % RUNG];
	uint32_t rings = 0;
	char wake = 1;

	if (c->bell < 0)
		return 0;
	/* Acquire: the ring that is noted there was sent. */
	if (sleep && atomic_load_explicit(last, memory_order_acquire) ==
			     (sleep ^ c->salt))
		return 0;
	if (send(c->bell, &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) {
		rings = 1;
		atomic_fetch_add_explicit(&exi_conn_rings, rings,
					  memory_order_relaxed);
		if (sleep)
			atomic_store_explicit(last, sleep ^ c->salt,
					      memory_order_release);
	} else if (errno == EPIPE || errno == ECONNRESET) {
		atomic_store_explicit(&c->unheard, true, memory_order_relaxed);
	}
	__atomic_fetch_add(c->bells, 1, __ATOMIC_RELAXED);
	return rings;
}

/* Of the user at the link's other end; nobody else knows it. */
static uint64_t salt_of(int link)
{
	struct ucred cred = { .uid = 0 };
	socklen_t len = sizeof(cred);

	getsockopt(link, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	return exi_secret(cred.uid);
}

static void send_no(int fd, int reason)
{
	struct exi_pair_msg no = message(EXI_PAIR_NO);

	no.a = (uint64_t)reason;
	send_msg(fd, &no, -1);
}

/* The descriptors of the first packet in the queue, which keeps them: how many
 * of them are in fds, which has room for 2; -EMFILE: no number was free for any;
 * -EPROTO: there are more. */
static int peek_fds(int s, int fds[2])
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr head;
	} control;
	struct iovec iov = { .iov_base = &(char){ 0 }, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *h;
	int n = 0;

	if (recvmsg(s, &msg, MSG_DONTWAIT | MSG_PEEK | MSG_CMSG_CLOEXEC) < 0)
		return -EPROTO;
	for (h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(h), (size_t)n * sizeof(int));
	}
	if (msg.msg_flags & MSG_CTRUNC) {
		int err = n ? -EPROTO : -EMFILE;

		while (n)
			exi_closing_file(fds[--n]);
		return err;
	}
	return n;
}

/* One packet of a meeting, in which one descriptor may come. Like
 * exi_rights_none(); -EMFILE: no descriptor was free for it, and it is in the
 * queue still. *ret_fd is -1 or what came. */
static ssize_t recv_passing(int s, struct exi_pair_msg *ret, int *ret_fd)
{
	bool rights;
	ssize_t n = exi_rights_none(s, ret, sizeof(*ret));
	int fds[2], passed;

	if (n != -EPROTO)
		return n;
	passed = peek_fds(s, fds);
	if (passed == 1) {
		/* What is dropped is not the last reference. */
		n = exi_rights_receive(s, ret, sizeof(*ret), 0, &rights);
		if (n > 0) {
			*ret_fd = fds[0];
			return n;
		}
	}
	while (passed > 0)
		exi_closing_file(fds[--passed]);
	return passed == -EMFILE ? passed : -EPROTO;
}

/* One packet of a link that is up, where no descriptor is sent. From the time
 * on when it refuses them and the queue was empty none can come. */
static ssize_t recv_up(struct exi_link *l, struct exi_pair_msg *ret)
{
	bool rights;
	ssize_t n;

	if (l->clean)
		return exi_rights_receive(l->fd, ret, sizeof(*ret), 0, &rights);
	n = exi_rights_none(l->fd, ret, sizeof(*ret));
	l->clean = n == -EAGAIN && l->refuses;
	return n;
}

static bool well_formed(const struct exi_pair_msg *m, ssize_t n)
{
	return n == sizeof(*m) && m->magic == EXI_PAIR_MAGIC &&
	       m->version == EXI_PAIR_VERSION && m->type > 0 &&
	       m->type < EXI_PAIR_TYPE_MAX;
}

/* --- the link's life ---------------------------------------------------- */

static void meeting_expired(struct exi_sock *sk);
static void up_expired(struct exi_sock *sk);

static bool is_over(const struct exi_link *l)
{
	return l->timer.deadline && exi_now_ns() >= l->timer.deadline;
}

static struct exi_link *link_new(struct exi_sock *sk, enum exi_link_state state,
				 uint64_t patience)
{
	struct exi_link *l = calloc(1, sizeof(*l));
	unsigned int i;

	if (!l)
		return NULL;
	l->state = state;
	l->fd = -1;
	l->listener = -1;
	l->prover = -1;
	l->sk = sk;
	l->timer.deadline = exi_now_ns() + patience;
	l->timer.sk = sk;
	l->timer.expired = meeting_expired;
	exi_list_init(&l->timer.node);
	for (i = 0; i < EXI_LINK_CANDIDATES; i++)
		l->candidates[i] = -1;
	return l;
}

/* A forked process may have it, too. */
static bool is_sole(const struct exi_link *l)
{
	return exi_holders_count(&l->sk->sh->holders) <= 1;
}

static void forget_fd(struct exi_link *l, int *fd)
{
	if (*fd < 0)
		return;
	exi_service_unwatch(*fd);
	exi_closing_socket(*fd, is_sole(l));
	*fd = -1;
}

static void stop_listening(struct exi_link *l)
{
	unsigned int i;

	l->prover = -1;
	if (l->listener >= 0) {
		exi_service_unwatch(l->listener);
		exi_closing_listener(l->listener, is_sole(l));
		l->listener = -1;
	}
	for (i = 0; i < EXI_LINK_CANDIDATES; i++)
		forget_fd(l, &l->candidates[i]);
}

void exi_link_drop_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	if (!l)
		return;
	exi_link_clear_locked(sk);
	sk->link = NULL;
	exi_service_untimed(&l->timer);
	stop_listening(l);
	forget_fd(l, &l->fd);
	free(l);
}

void exi_link_clear_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (sk->link)
		exi_bound_end(&sk->link->bound, sk->tcp->fd);
}

void exi_link_over(struct exi_sock *sk)
{
	exi_lock(&sk->link_lock);
	if (sk->link && sk->link->state == EXI_LINK_UP)
		shutdown(sk->link->fd, SHUT_RDWR);
	exi_unlock(&sk->link_lock);
}

bool exi_link_part(struct exi_sock *sk)
{
	bool ends;

	exi_lock(&sk->link_lock);
	ends = sk->link && sk->link->state == EXI_LINK_UP &&
	       exi_switch_on_tcp(sk->sh, false);
	if (ends)
		shutdown(sk->link->fd, SHUT_RDWR);
	exi_unlock(&sk->link_lock);
	if (!ends)
		return false;
	exi_link_event(sk, 0);
	return exi_switch_left(sk->sh);
}

int exi_link_leave(struct exi_sock *sk, int reason)
{
	struct exi_link *l;
	int ret = -ENOTCONN;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (l && l->state == EXI_LINK_UP && !l->timer.deadline) {
		l->parts = true;
		l->timer.deadline = exi_switch_patience(sk, NULL);
		exi_service_timed(&l->timer);
		/* What cannot be said is not answered. */
		exi_switch_leave(sk, reason);
		ret = 0;
	}
	exi_unlock(&sk->link_lock);
	return ret;
}

static void lock_halves(struct exi_sock *sk)
{
	exi_lock(&sk->sh->half[EXI_RX].lock);
	exi_lock(&sk->sh->half[EXI_TX].lock);
}

static void unlock_halves(struct exi_sock *sk)
{
	exi_unlock(&sk->sh->half[EXI_TX].lock);
	exi_unlock(&sk->sh->half[EXI_RX].lock);
}

static void stir(struct exi_sock *sk)
{
	enum exi_dir d;

	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_sock_kick(sk, d);
		exi_flow_progress(sk, d);
	}
}

/* The peer's bell: for those who asked for it, not for sleepers on words, whom
 * the peer wakes itself. */
static void ring(struct exi_sock *sk)
{
	enum exi_dir d;

	exi_unseen_rung(sk);
	if (!exi_futex_waitv_works()) { /* sleepers asked for bells, too */
		stir(sk);
		return;
	}
	for (d = EXI_RX; d <= EXI_TX; d++) {
		exi_sock_ring(sk, d);
		if (atomic_load(&sk->n_ops[d]))
			exi_flow_progress(sk, d);
	}
}

/* Nobody was there, on another host: the process that will serve the connection
 * may not have come to it yet. Again at the next mark of traffic, whichever way
 * it goes, as B looks again. */
static void later_locked(struct exi_sock *sk)
{
	struct exi_half *half = sk->sh->half;
	uint64_t tx = __atomic_load_n(&half[EXI_TX].bytes, __ATOMIC_RELAXED);
	uint64_t rx = __atomic_load_n(&half[EXI_RX].bytes, __ATOMIC_RELAXED);
	unsigned int i;

	EXI_LOCKED(&sk->link_lock);
	for (i = 0; i < sizeof(sent_marks) / sizeof(sent_marks[0]); i++)
		if (sent_marks[i] > (tx > rx ? tx : rx)) {
			atomic_store(&sk->sh->met, 0);
			atomic_store(&half[EXI_TX].meet_at, sent_marks[i]);
			atomic_store(&half[EXI_RX].meet_at, sent_marks[i]);
			return;
		}
}

static void drop_fabric_locked(struct exi_sock *sk)
{
	struct exi_conn *fab;

	EXI_LOCKED(&sk->link_lock);
	lock_halves(sk);
	fab = sk->fab;
	__atomic_store_n(&sk->fab, NULL, __ATOMIC_RELAXED);
	atomic_store(&sk->remote, false);
	unlock_halves(sk);
	exi_sock_conn_free(fab);
}

/* The peer's end of TCP, as poll(2) has it. */
static short tcp_ended(struct exi_sock *sk)
{
	struct pollfd p = { .fd = atomic_load(&sk->fd), .events = POLLRDHUP };

	return p.fd >= 0 && poll(&p, 1, 0) > 0 ? p.revents : 0;
}

/* Why not, of a connection that may have ended: then it was not decided. Who has
 * gone answers no more, and the kernel cannot tell who it was. */
static int while_it_lasted(struct exi_sock *sk, int reason)
{
	switch (reason) {
	case EXS_X_REASON_PEER_LOST:
	case EXS_X_REASON_REFUSED:
	case EXS_X_REASON_TIMEOUT:
		return tcp_ended(sk) ? EXS_X_REASON_UNDECIDED : reason;
	default:
		return reason;
	}
}

/* A meeting that came to nothing: TCP for good, but for later_locked(). */
static void give_up_locked(struct exi_sock *sk, int reason)
{
	EXI_LOCKED(&sk->link_lock);
	reason = while_it_lasted(sk, reason);
	if (reason == EXS_X_REASON_PLAIN_PEER && sk->link &&
	    sk->link->state == EXI_LINK_REMOTE && sk->role == EXI_ROLE_CONNECT)
		later_locked(sk);
	if (sk->fab)
		drop_fabric_locked(sk);
	exi_link_drop_locked(sk);
	atomic_store(&sk->sh->greeting, 0);
	exi_sock_reason(sk, reason);
}

void exi_link_disown_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	if (!sk->link || sk->link->state == EXI_LINK_UP)
		return;
	drop_fabric_locked(sk);
	exi_link_drop_locked(sk);
}

/* Resets the connection and leaves the descriptor open. False: plain calls
 * closed it, and the number is another's. */
static bool disconnect(struct exi_sock *sk)
{
	struct sockaddr unspec = { .sa_family = AF_UNSPEC };
	int fd = atomic_load(&sk->fd);

	return fd >= 0 && exi_sock_current(sk, fd) &&
	       connect(fd, &unspec, sizeof(unspec)) == 0;
}

/* The peer, if it is no more, did not close and left bytes unread. Where the
 * library closes, TCP has said so. The halves are locked. */
static bool left_unread_locked(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&rx->lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	return sk->fab && sk->fab->ops->left_unread && !exi_sock_remote(sk) &&
	       sk->sh->half[EXI_TX].mode == EXI_MODE_RING &&
	       rx->mode == EXI_MODE_RING && !rx->ended && !rx->fin &&
	       !sk->fab->ops->over(sk->fab) &&
	       sk->fab->ops->left_unread(sk->fab);
}

/* Its kernel knew of nothing unread, and said an end: here TCP becomes what it
 * is after a reset. What lies in the ring is read before that is told. */
static void take_for_reset(struct exi_sock *sk)
{
	if (!(tcp_ended(sk) & POLLHUP) && disconnect(sk))
		shutdown(atomic_load(&sk->fd), SHUT_RDWR); /* as it does */
}

/* The peer said that its stream ends: where its bytes are. The halves are locked. */
static bool said_end_locked(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	EXI_LOCKED(&rx->lock);
	EXI_LOCKED(&sk->sh->half[EXI_TX].lock);
	if (rx->mode == EXI_MODE_RING || rx->mode == EXI_MODE_LEFT)
		return rx->ended || (sk->fab && sk->fab->ops->over(sk->fab));
	return tcp_ended(sk) != 0;
}

/* The pair link hung up. */
static void hung_up_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	bool in_use, resumes, said_end;
	int reason, err = 0;

	EXI_LOCKED(&sk->link_lock);
	lock_halves(sk);
	said_end = said_end_locked(sk);
	/* Giving back needs no partner any more: what does not come over TCP
	 * is read from the ring when TCP has ended. */
	in_use = sh->half[EXI_TX].mode == EXI_MODE_RING ||
		 sh->half[EXI_RX].mode == EXI_MODE_LEFT ||
		 sh->half[EXI_RX].mode == EXI_MODE_RING;
	/* A TAKEBACK may be lost, too. */
	resumes = exi_sock_remote(sk) && !atomic_load(&sh->gone) &&
		  !sh->half[EXI_RX].broken &&
		  (in_use || atomic_load(&sh->half[EXI_RX].untaken));
	if (sk->fab)
		sk->fab->bell = -1;
	atomic_store(&sh->may_switch, 0);
	resumes = resumes && !exi_resume_closed_locked(sk);
	if (resumes)
		err = exi_resume_begin_locked(sk);
	resumes = resumes && !err;
	/* Before what follows says that the peer is gone, with no error. */
	if (err == -ECONNRESET)
		exi_link_reset(sk, EXS_X_REASON_FABRIC_LOST,
			       "a device failed with bytes that nobody has");
	else if (err)
		exi_link_violation(sk, "a message that cannot be");
	if (in_use && !resumes) {
		if (left_unread_locked(sk))
			take_for_reset(sk);
		/* Release: what the peer wrote before is in its segment. */
		atomic_store_explicit(&sh->gone, 1, memory_order_seq_cst);
		exi_flow_deafen_locked(sk);
		exi_flow_bereft_locked(sk);
	}
	unlock_halves(sk);
	exi_link_drop_locked(sk);
	atomic_store(&sh->down_wait, 0);
	reason = (int)atomic_load(&sh->reason);
	if (!resumes && (reason == EXS_X_REASON_UNDECIDED ||
			 (in_use && reason != EXS_X_REASON_PROTOCOL &&
			  reason != EXS_X_REASON_FABRIC_LOST)))
		exi_sock_reason(sk, said_end ? EXS_X_REASON_HALF_CLOSED
					     : EXS_X_REASON_PEER_LOST);
}

void exi_link_reset(struct exi_sock *sk, int reason, const char *what)
{
	struct exi_shared *sh = sk->sh;
	enum exi_dir d;

	exi_error("descriptor %d: %s%s; connection reset", atomic_load(&sk->fd),
		  reason == EXS_X_REASON_PROTOCOL ? "the peer broke the "
						    "protocol: "
						  : "",
		  what);
	for (d = EXI_RX; d <= EXI_TX; d++)
		exi_half_break(&sh->half[d]);
	exi_sock_reason(sk, reason);
	disconnect(sk);
	/* Our service sees the hang-up and cleans up. */
	if (sk->fab && sk->fab->bell >= 0)
		shutdown(sk->fab->bell, SHUT_RDWR);
}

void exi_link_unanswered(struct exi_sock *sk)
{
	exi_link_reset(sk, EXS_X_REASON_PEER_LOST,
		       "the peer does not let go of the fabric");
}

void exi_link_violation(struct exi_sock *sk, const char *what)
{
	exi_link_reset(sk, EXS_X_REASON_PROTOCOL, what);
}

/* --- meeting: the two beginnings ---------------------------------------- */

/* Why it is not known who is at the other end. */
static int unproved(int err)
{
	switch (err) {
	case -EMFILE:
	case -ENFILE:
		return EXS_X_REASON_DESCRIPTORS;
	case -EPIPE:
	case -ECONNRESET: /* it has gone since */
	case -ENOTCONN:
	case -ENOENT:
		return EXS_X_REASON_PEER_LOST;
	case -EPERM:
		return EXS_X_REASON_REFUSED;
	case -EXDEV:
		return EXS_X_REASON_REMOTE;
	default:
		return EXS_X_REASON_NO_PROOF;
	}
}

/* To somebody who may be a stranger a HELLO says nothing of this process. */
static struct exi_pair_msg hello(bool known)
{
	struct exi_pair_msg m = message(EXI_PAIR_HELLO);

	if (known) {
		m.a = exi_registry_wire_ids();
		m.b = exi_process_token();
	} else {
		m.c = EXI_HELLO_SHOW;
	}
	return m;
}

/* A fabric for the pair. The link becomes its bell when both ends are up:
 * nothing but the meeting's own messages may be said before. */
static int fabric_new(struct exi_sock *sk, const struct exi_provider *p)
{
	struct exi_conn *c = exi_sock_conn_new(sk, p, sk->tcp->fd);

	if (!c)
		return -ENOMEM;
	lock_halves(sk);
	atomic_store(&sk->remote, p->caps & EXI_CAP_REMOTE);
	__atomic_store_n(&sk->fab, c, __ATOMIC_RELAXED);
	unlock_halves(sk);
	return 0;
}

/* The link is what a fabric between hosts gave. */
static int await_remote(struct exi_sock *sk, int fd)
{
	struct exi_link *l = link_new(sk, EXI_LINK_REMOTE, REMOTE_NS);

	if (!l) {
		exi_fd_close(fd);
		give_up_locked(sk, EXS_X_REASON_MEMORY);
		return EXS_X_REASON_MEMORY;
	}
	l->fd = fd;
	sk->link = l;
	atomic_store(&sk->sh->greeting, 1);
	if (exi_service_watch(sk, fd, EXI_WATCH_LINK, EPOLLIN)) {
		give_up_locked(sk, EXS_X_REASON_DESCRIPTORS);
		return EXS_X_REASON_DESCRIPTORS;
	}
	exi_service_timed(&l->timer);
	return EXS_X_REASON_NONE;
}

/* A: the peer is on another host. */
static int meet_remote(struct exi_sock *sk, const struct exi_tuple *t)
{
	const struct exi_provider *p;
	int why, fd, err;

	p = exi_remote_provider(&why);
	if (!p)
		return why;
	if (exi_service_start() || fabric_new(sk, p) ||
	    exi_service_domain(sk->fab->domain)) {
		give_up_locked(sk, EXS_X_REASON_MEMORY);
		return EXS_X_REASON_MEMORY;
	}
	err = p->remote_ops->connect(sk->fab, t, &fd);
	if (err) {
		give_up_locked(sk, EXS_X_REASON_MEMORY);
		return EXS_X_REASON_MEMORY;
	}
	return await_remote(sk, fd);
}

/* 0: the peer is on this host, or 1: on another, or every fabric within a host is
 * left out. -errno: it cannot be told. */
static int is_remote(const struct exi_tuple *t)
{
	int err = exi_registry_wire_ids() ? exi_proof_peer_here(t) : -ENOENT;

	return err == -ENOENT ? 1 : err;
}

/* Nobody is there to meet. */
static int nobody(const struct exi_tuple *t)
{
	return !exi_remote_possible() && exi_tuple_elsewhere(t)
		       ? EXS_X_REASON_REMOTE
		       : EXS_X_REASON_PLAIN_PEER;
}

/* Strangers may come, or be there: no descriptor passes before the peer is known. Its
 * names are those of the connection's network namespace: this thread may be in
 * another one, where they are strangers'. */
static int pair_socket(const struct exi_tuple *t)
{
	int fd = exi_fd_spare(socket(
		AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0) /* denied is no answer */
		return fd == -EMFILE || fd == -ENFILE ? fd : -EACCES;
	if (!exi_tuple_here(t, fd)) {
		exi_fd_close(fd);
		return -EXDEV;
	}
	exi_rights_allow(fd, false);
	return fd;
}

/* A: bind the meeting name, if there is anybody to meet. Returns the reason
 * why not, or NONE. */
static int meet_as_a(struct exi_sock *sk, const struct exi_tuple *t, bool eager)
{
	struct sockaddr_un name;
	socklen_t len = meeting_name(t, true, &name);
	struct exi_link *l;
	int marked = eager ? 1 : exi_marker_present(t);
	int fd, remote;

	if (!marked && !exi_remote_possible())
		return nobody(t);
	remote = is_remote(t);
	if (remote > 0)
		return meet_remote(sk, t);
	if (remote < 0 || marked < 0)
		return unproved(remote ? remote : marked);
	if (!marked)
		return EXS_X_REASON_PLAIN_PEER;
	if (exi_service_start())
		return EXS_X_REASON_MEMORY;
	/* The name, who connects to it, and the peer's end, which may be in
	 * this process: it could not say that it has none, and we would wait
	 * for it in vain. */
	if (!exi_fd_room(3))
		return EXS_X_REASON_DESCRIPTORS;
	fd = pair_socket(t);
	if (fd < 0)
		return unproved(fd);
	l = link_new(sk, EXI_LINK_LISTEN, LISTEN_NS);
	if (!l || bind(fd, (struct sockaddr *)&name, len) < 0 ||
	    listen(fd, EXI_LINK_CANDIDATES) < 0) {
		free(l);
		exi_fd_close(fd);
		return l ? EXS_X_REASON_REFUSED : EXS_X_REASON_MEMORY;
	}
	l->listener = fd;
	sk->link = l;
	if (exi_service_watch(sk, fd, EXI_WATCH_LISTENER, EPOLLIN)) {
		exi_link_drop_locked(sk);
		return EXS_X_REASON_DESCRIPTORS;
	}
	exi_service_timed(&l->timer);
	return EXS_X_REASON_NONE;
}

/* Who waits at the name: -ENOENT where nobody does, or why it cannot be told. */
static int reach_a(const struct exi_tuple *t)
{
	struct sockaddr_un name;
	socklen_t len = meeting_name(t, false, &name);
	int fd = pair_socket(t);

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&name, len) == 0)
		return fd;
	exi_closing_socket(fd, true);
	return -ENOENT;
}

/* B cannot: A need not wait for it, and is told why, if it is A. */
static void decline(int fd, int reason)
{
	struct exi_tuple t;
	int to;

	/* Or the number is another's. */
	if (reason == EXS_X_REASON_PLAIN_SOCKET || exi_tuple_of(fd, &t))
		return;
	to = reach_a(&t);
	if (to < 0)
		return;
	if (exi_proof_same_user(&t, to) == 0)
		send_no(to, reason);
	exi_closing_socket(to, true);
}

/* B, on a new link: 0, or what keeps it from greeting. */
static int greet_a(struct exi_sock *sk, const struct exi_tuple *t)
{
	struct exi_link *l = sk->link;
	struct exi_pair_msg m;
	int err = exi_proof_same_user(t, l->fd);

	l->known = err == 0;
	if (err && err != -EPERM)
		return err;
	m = hello(l->known);
	err = exi_bound_promise(&l->bound, m.blob);
	if (!err)
		err = send_msg(l->fd, &m, -1);
	return err;
}

/* B: look whether A waits. UNDECIDED: not there. */
static int meet_as_b(struct exi_sock *sk, const struct exi_tuple *t)
{
	struct exi_link *l;
	int fd = reach_a(t), ret;

	if (fd == -ENOENT || (fd == -EXDEV && exi_remote_possible()))
		return EXS_X_REASON_UNDECIDED;
	if (fd < 0)
		return unproved(fd);
	if (exi_service_start()) {
		exi_closing_socket(fd, true);
		return EXS_X_REASON_MEMORY;
	}
	l = link_new(sk, EXI_LINK_HELLO, GREETING_NS);
	if (!l) {
		exi_closing_socket(fd, true);
		return EXS_X_REASON_MEMORY;
	}
	l->fd = fd;
	sk->link = l;
	atomic_store(&sk->sh->greeting, 1);
	ret = greet_a(sk, t);
	if (!ret)
		ret = exi_service_watch(sk, fd, EXI_WATCH_LINK, EPOLLIN);
	if (ret) {
		int reason = unproved(ret);

		if (l->known || reason == EXS_X_REASON_NO_PROOF)
			send_no(fd, reason);
		give_up_locked(sk, reason);
		return reason;
	}
	exi_service_timed(&l->timer);
	return EXS_X_REASON_NONE;
}

/* The next mark of B after one that found nobody: also what the peer sends,
 * until it has sent enough to wait for us. */
static void next_mark(struct exi_shared *sh)
{
	struct exi_half *tx = &sh->half[EXI_TX], *rx = &sh->half[EXI_RX];
	uint64_t at = atomic_load(&tx->meet_at);
	uint64_t sent = __atomic_load_n(&tx->bytes, __ATOMIC_RELAXED);
	unsigned int i;

	/* Those that a large send has passed since are not worth a look each. */
	if (at < sent)
		at = sent;
	if (__atomic_load_n(&rx->bytes, __ATOMIC_RELAXED) >
	    atomic_load(&rx->meet_at))
		atomic_store(&rx->meet_at, UINT64_MAX);
	for (i = 0; i < sizeof(sent_marks) / sizeof(sent_marks[0]); i++)
		if (sent_marks[i] > at) {
			atomic_store(&tx->meet_at, sent_marks[i]);
			return;
		}
	atomic_store(&tx->meet_at, UINT64_MAX);
}

/* Whether a meeting may be tried, and between whom. */
static int may_meet(struct exi_sock *sk, int fd, struct exi_tuple *ret)
{
	int reason = atomic_load(&sk->sh->owner) != sk->process
			     ? EXS_X_REASON_SHARED
		     : exi_closing_full() ? EXS_X_REASON_DESCRIPTORS
					  : exi_surroundings_reason();

	if (!reason && exi_unseen_waits(fd))
		reason = EXS_X_REASON_UNSEEN_WAIT;
	if (!reason)
		reason = exi_switch_forbidden(fd);
	if (!reason && exi_tuple_of(fd, ret))
		reason = EXS_X_REASON_NOT_CONNECTED;
	if (!reason && exi_tuple_is_self(ret))
		reason = EXS_X_REASON_SELF;
	/* The number may be another connection's by now, when plain calls
	 * closed and reused it: then it is not ours. */
	if (!reason && exi_switch_role(fd) != sk->role)
		reason = EXS_X_REASON_PLAIN_SOCKET;
	if (!reason)
		exi_sock_mark(sk, fd);
	return reason;
}

static void no_marks(struct exi_shared *sh)
{
	atomic_store(&sh->half[EXI_RX].meet_at, UINT64_MAX);
	atomic_store(&sh->half[EXI_TX].meet_at, UINT64_MAX);
}

/* A, once in a connection's life, in any process. */
static int meet_a(struct exi_sock *sk, int fd, bool eager)
{
	struct exi_tuple t;
	int reason;

	no_marks(sk->sh);
	if (atomic_exchange(&sk->sh->met, 1))
		return EXS_X_REASON_NONE;
	reason = may_meet(sk, fd, &t);
	return reason ? reason : meet_as_a(sk, &t, eager);
}

static int meet_b(struct exi_sock *sk, int fd, bool eager)
{
	struct exi_shared *sh = sk->sh;
	struct exi_tuple t;
	int reason = may_meet(sk, fd, &t);

	if (reason) {
		decline(fd, reason);
		no_marks(sh);
		return reason;
	}
	/* Perhaps another process accepted it. */
	if (exi_remote_possible() && is_remote(&t) > 0)
		exi_marker_reach(fd);
	reason = meet_as_b(sk, &t);
	if (reason != EXS_X_REASON_UNDECIDED) {
		no_marks(sh);
		return reason;
	}
	if (eager)
		return reason;
	next_mark(sh);
	return atomic_load(&sh->half[EXI_TX].meet_at) == UINT64_MAX ? nobody(&t)
								    : reason;
}

/* B, eager: now, and when nobody is there again a little later. */
static void look_locked(struct exi_sock *sk, uint64_t delay, uint64_t until)
{
	int reason = meet_b(sk, atomic_load(&sk->fd), true);
	struct exi_link *l;

	EXI_LOCKED(&sk->link_lock);
	if (reason == EXS_X_REASON_UNDECIDED) {
		reason = EXS_X_REASON_PLAIN_PEER;
		l = exi_now_ns() < until && exi_service_start() == 0
			    ? link_new(sk, EXI_LINK_LOOK, delay)
			    : NULL;
		if (l) {
			l->delay = delay * 2;
			l->until = until;
			sk->link = l;
			exi_service_timed(&l->timer);
			return;
		}
	}
	if (reason)
		exi_sock_reason(sk, reason);
}

static void meet_locked(struct exi_sock *sk, int fd, bool eager)
{
	int reason;

	EXI_LOCKED(&sk->link_lock);
	if (sk->link || sk->fab || sk->closing)
		return;
	if (sk->role == EXI_ROLE_ACCEPT && eager) {
		look_locked(sk, LOOK_NS, exi_now_ns() + LISTEN_NS);
		return;
	}
	reason = sk->role == EXI_ROLE_CONNECT ? meet_a(sk, fd, eager)
					      : meet_b(sk, fd, eager);
	if (reason)
		exi_sock_reason(sk, reason);
}

static void meet(struct exi_sock *sk, int fd, bool eager)
{
	exi_fds_begin();
	exi_lock(&sk->link_lock);
	if (atomic_load(&sk->fd) == fd)
		meet_locked(sk, fd, eager);
	exi_unlock(&sk->link_lock);
	exi_fds_end();
}

void exi_link_meet(struct exi_sock *sk, int fd)
{
	meet(sk, fd, false);
}

/* The peer's port has a marker; says so when not. */
static bool marked(struct exi_sock *sk)
{
	struct exi_tuple t;
	int ret, reason = EXS_X_REASON_PLAIN_PEER;

	exi_fds_begin();
	ret = exi_tuple_of(atomic_load(&sk->fd), &t);
	if (!ret)
		ret = exi_marker_present(&t);
	if (!ret)
		reason = nobody(&t);
	else if (ret == -EACCES)
		reason = unproved(ret);
	exi_fds_end();
	if (ret > 0)
		return true;
	exi_sock_reason(sk, reason);
	return false;
}

int exi_link_last_reason_locked(struct exi_sock *sk, int fd)
{
	const struct exi_half *rx = &sk->sh->half[EXI_RX];
	const struct exi_half *tx = &sk->sh->half[EXI_TX];
	const struct exi_link *l = sk->link;
	uint64_t in = __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED);
	uint64_t out = __atomic_load_n(&tx->bytes, __ATOMIC_RELAXED);
	struct exi_tuple t;

	EXI_LOCKED(&sk->link_lock);
	if (atomic_load(&sk->sh->reason) != EXS_X_REASON_UNDECIDED)
		return (int)atomic_load(&sk->sh->reason);
	if (l && l->state == EXI_LINK_LISTEN)
		return l->starved	   ? EXS_X_REASON_DESCRIPTORS
		       : l->unprovable	   ? EXS_X_REASON_NO_PROOF
		       : in + out > WAITED ? EXS_X_REASON_TIMEOUT
					   : EXS_X_REASON_UNDECIDED;
	if (l || sk->role != EXI_ROLE_ACCEPT ||
	    atomic_load(&rx->meet_at) != UINT64_MAX ||
	    in <= exi_config()->upgrade_bytes)
		return EXS_X_REASON_UNDECIDED;
	return exi_tuple_of(fd, &t) ? EXS_X_REASON_PLAIN_PEER : nobody(&t);
}

void exi_link_expect(struct exi_sock *sk, bool eager)
{
	struct exi_shared *sh = sk->sh;
	const struct exi_config *cfg = exi_config();
	uint64_t bytes = cfg->upgrade_bytes;

	if (!sk->adopted)
		return;
	if (!cfg->upgrade ||
	    (!exi_registry_wire_ids() && !exi_remote_possible())) {
		exi_sock_reason(sk, cfg->upgrade ? EXS_X_REASON_NO_PROVIDER
						 : EXS_X_REASON_CONFIG);
		return;
	}
	if (eager || bytes == 0) {
		/* A plain peer need not be asked twice: the marker is looked
		 * for, unless the program says that there is somebody. */
		if (eager || sk->role == EXI_ROLE_ACCEPT || marked(sk))
			meet(sk, atomic_load(&sk->fd), true);
		return;
	}
	if (sk->role == EXI_ROLE_CONNECT) {
		atomic_store(&sh->half[EXI_TX].meet_at, bytes);
		atomic_store(&sh->half[EXI_RX].meet_at, EXI_LINK_DOWNLOAD);
	} else if (sk->role == EXI_ROLE_ACCEPT) {
		atomic_store(&sh->half[EXI_RX].meet_at, bytes);
		atomic_store(&sh->half[EXI_TX].meet_at, sent_marks[0]);
	}
}

/* --- meeting: the conversation ------------------------------------------ */

static void go_locked(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	struct exi_half *rx = &sh->half[EXI_RX];

	EXI_LOCKED(&sk->link_lock);
	if (!sk->link || sk->link->state != EXI_LINK_UP || sk->link->go_sent)
		return;
	if (!atomic_load(&sh->hold_here) &&
	    exi_unseen_waits(atomic_load(&sk->fd)))
		exi_switch_leave(sk, EXS_X_REASON_UNSEEN_WAIT);
	exi_lock(&rx->lock);
	/* greeting is set: who enters recv from here on can be kicked. */
	if (rx->bare == 0 && !atomic_load(&sh->hold_here) &&
	    atomic_load(&sh->owner) == sk->process &&
	    exi_link_send(sk, EXI_PAIR_GO, 0, 0, 0) == 0)
		sk->link->go_sent = true;
	exi_unlock(&rx->lock);
}

void exi_link_go(struct exi_sock *sk)
{
	exi_lock(&sk->link_lock);
	go_locked(sk);
	exi_unlock(&sk->link_lock);
}

/* The link is up, and TCP has ended. */
static void ask_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	exi_link_send(sk, EXI_PAIR_FINSEEN, EXI_FINSEEN_ASK, 0, 0);
}

static void up_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	sk->fab->salt = salt_of(l->fd);
	lock_halves(sk);
	sk->fab->bell = l->fd;
	exi_ready_times_locked(sk);
	unlock_halves(sk);
	l->state = EXI_LINK_UP;
	/* What was sent before is not known. */
	if (!atomic_exchange(&exi_link_any, true))
		exi_link_by_kernel();
	l->timer.deadline = 0;
	l->refuses = exi_rights_allow(l->fd, false);
	l->clean = exi_sock_remote(sk); /* this process has both ends */
	atomic_store(&sk->hearer, 0);
	exi_family_keep(sk);
	exi_family_expect();
	if (exi_closes_seen)
		exi_fds_hold_some();
	exi_ready_lowat(sk);
	exi_service_untimed(&l->timer);
	l->timer.expired = up_expired; /* the service does not see it now */
	if (exi_ready_met)
		exi_ready_met(sk);
	if (exi_service_watch(sk, sk->tcp->fd, EXI_WATCH_TCP,
			      EPOLLRDHUP | EPOLLET) == 0)
		sk->watched = true;
	go_locked(sk);
	/* The end of TCP that was told before. */
	if (exi_sock_remote(sk) && tcp_ended(sk))
		ask_locked(sk);
}

static int offer(struct exi_sock *sk, struct exi_pair_msg *m)
{
	struct exi_link *l = sk->link;
	const struct exi_provider *p;
	struct exi_blob blob = { .fd = -1 };
	struct exi_pair_msg out = message(EXI_PAIR_OFFER);
	int ret;

	p = exi_registry_choose(m->a, l->peer_token == exi_process_token());
	if (!p)
		return -EXS_X_REASON_NO_PROVIDER;
	if (fabric_new(sk, p))
		return -EXS_X_REASON_MEMORY;
	ret = p->meet_ops->offer(sk->fab, &blob);
	if (ret)
		return -EXS_X_REASON_MEMORY;
	out.a = p->wire_id;
	memcpy(out.blob, blob.bytes, sizeof(out.blob));
	ret = send_msg(l->fd, &out, blob.fd);
	if (blob.fd >= 0)
		close(blob.fd);
	return ret ? -EXS_X_REASON_PEER_LOST : 0;
}

static int answer(struct exi_sock *sk, const struct exi_pair_msg *m, int fd)
{
	const struct exi_provider *p = exi_registry_by_wire_id(m->a);
	struct exi_blob in = { .fd = fd }, blob = { .fd = -1 };
	struct exi_pair_msg out = message(EXI_PAIR_ANSWER);
	int ret;

	if (!p)
		return -EXS_X_REASON_NO_PROVIDER;
	if (fabric_new(sk, p))
		return -EXS_X_REASON_MEMORY;
	memcpy(in.bytes, m->blob, sizeof(in.bytes));
	ret = p->meet_ops->answer(sk->fab, &in, &blob);
	if (ret)
		return ret == -EPROTO ? -EXS_X_REASON_PROTOCOL
				      : -EXS_X_REASON_MEMORY;
	memcpy(out.blob, blob.bytes, sizeof(out.blob));
	ret = send_msg(sk->link->fd, &out, blob.fd);
	if (blob.fd >= 0)
		close(blob.fd);
	return ret ? -EXS_X_REASON_PEER_LOST : 0;
}

/* The peer, who is known, may pass a segment: descriptors come through from here on
 * until the link is up. */
static void await_segment(struct exi_link *l, enum exi_link_state state)
{
	l->state = state;
	exi_rights_allow(l->fd, true);
}

/* Who is there is known: what was not said in HELLO. */
static int proved(struct exi_sock *sk)
{
	struct exi_pair_msg m = message(EXI_PAIR_PROVED);

	m.a = exi_registry_wire_ids();
	m.b = exi_process_token();
	await_segment(sk->link, EXI_LINK_OFFER);
	sk->link->timer.deadline = exi_now_ns() + GREETING_NS;
	return send_msg(sk->link->fd, &m, -1) ? -EXS_X_REASON_PEER_LOST : 0;
}

/* Shows symbol m->a, and says so. */
static int show(struct exi_sock *sk, int link, struct exi_pair_msg *m)
{
	struct exi_bound *p = &sk->link->bound;
	int err = exi_bound_show(p, sk->tcp->fd, (unsigned int)m->a);

	return err ? err : send_msg(link, m, -1);
}

/* B: A's HELLO. */
static int on_hello(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = message(EXI_PAIR_SHOWN);
	struct exi_link *l = sk->link;
	struct exi_tuple t;
	int err;

	if (!(m->c & EXI_HELLO_SHOW))
		return l->known ? proved(sk) : -EXS_X_REASON_REFUSED;
	err = exi_tuple_of(sk->tcp->fd, &t);
	if (!err)
		err = exi_bound_open(&l->bound, sk->tcp->fd, l->fd, &t, m->blob,
				     out.blob);
	if (!err)
		err = show(sk, l->fd, &out);
	l->state = EXI_LINK_SHOW;
	return err ? -unproved(err) : 0;
}

/* B: A shows a symbol. Nothing is shown before the one before it was right. */
static int on_shown(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = message(EXI_PAIR_SHOWN);
	struct exi_link *l = sk->link;
	struct exi_tuple t;
	int err;

	if (m->a != l->bound.looked)
		return -EXS_X_REASON_PROTOCOL;
	err = exi_tuple_of(sk->tcp->fd, &t);
	if (!err)
		err = exi_bound_look(&l->bound, &t);
	if (!err && l->bound.looked == EXI_BOUND_SYMBOLS) {
		exi_bound_end(&l->bound, sk->tcp->fd);
		return proved(sk);
	}
	out.a = l->bound.looked;
	if (!err)
		err = show(sk, l->fd, &out);
	return err ? -unproved(err) : 0;
}

/* Of a NO. */
static int told_reason(const struct exi_pair_msg *m)
{
	return m->a > 0 && m->a < EXS_X_REASON_MAX_ ? (int)m->a
						    : EXS_X_REASON_REFUSED;
}

/* A message of the meeting: 0, or minus the reason to give up. */
static int greet(struct exi_sock *sk, struct exi_pair_msg *m, int fd)
{
	struct exi_link *l = sk->link;
	struct exi_blob blob;
	int ret;

	/* A stranger does not keep the board. */
	if (l->state != EXI_LINK_SHOW)
		l->timer.deadline = exi_now_ns() + GREETING_NS;
	if (m->type == EXI_PAIR_NO)
		return -told_reason(m);
	if (l->state == EXI_LINK_REMOTE && m->type == EXI_PAIR_MET) {
		up_locked(sk);
		return 0;
	}
	if (l->state == EXI_LINK_HELLO && m->type == EXI_PAIR_HELLO)
		return on_hello(sk, m);
	if (l->state == EXI_LINK_SHOW && m->type == EXI_PAIR_SHOWN)
		return on_shown(sk, m);
	if (l->state == EXI_LINK_PROVED && m->type == EXI_PAIR_PROVED) {
		m->a = l->peer_providers;
		await_segment(l, EXI_LINK_ANSWER);
		return offer(sk, m);
	}
	if (l->state == EXI_LINK_OFFER && m->type == EXI_PAIR_OFFER) {
		ret = answer(sk, m, fd);
		if (ret == 0)
			up_locked(sk);
		return ret;
	}
	if (l->state == EXI_LINK_ANSWER && m->type == EXI_PAIR_ANSWER) {
		memcpy(blob.bytes, m->blob, sizeof(blob.bytes));
		blob.fd = fd;
		ret = sk->fab->provider->meet_ops->accepted(sk->fab, &blob);
		if (ret)
			return ret == -EPROTO ? -EXS_X_REASON_PROTOCOL
					      : -EXS_X_REASON_MEMORY;
		up_locked(sk);
		return 0;
	}
	return -EXS_X_REASON_PROTOCOL;
}

/* --- fabrics between hosts ---------------------------------------------- */

int exi_remote_met(int link, int reason)
{
	struct exi_pair_msg m = message(reason ? EXI_PAIR_NO : EXI_PAIR_MET);

	m.a = (uint64_t)reason;
	return send_msg(link, &m, -1);
}

struct search {
	const struct exi_tuple *t;
	struct exi_sock *found;
};

static bool same_ends(const struct exi_tuple *a, const struct exi_tuple *b)
{
	return !memcmp(a->local, b->local, sizeof(a->local)) &&
	       !memcmp(a->peer, b->peer, sizeof(a->peer)) &&
	       a->local_port == b->local_port && a->peer_port == b->peer_port;
}

/* The port tells most of them apart, and is asked for once: so a search costs
 * no system call for those it saw before. */
static bool may_be(struct exi_sock *sk, int fd, const struct exi_tuple *t)
{
	uint16_t port = atomic_load(&sk->peer_port);
	struct exi_tuple own;

	if (!port) {
		if (exi_tuple_of(fd, &own))
			return false;
		port = own.peer_port;
		atomic_store(&sk->peer_port, port);
	}
	return port == t->peer_port;
}

static void compare(struct exi_sock *sk, void *arg)
{
	struct search *s = arg;
	int fd = atomic_load(&sk->fd);
	struct exi_tuple own;

	if (!s->found && fd >= 0 && sk->role == EXI_ROLE_ACCEPT &&
	    may_be(sk, fd, s->t) && !exi_tuple_of(fd, &own) &&
	    same_ends(&own, s->t))
		s->found = sk;
}

/* The link lock is held. *ret is the tuple, with its scope. */
static int may_take(struct exi_sock *sk, const struct exi_tuple *t,
		    struct exi_tuple *ret)
{
	int fd = atomic_load(&sk->fd), reason;

	if (fd < 0 || sk->fab || sk->closing || !sk->adopted ||
	    (sk->link && sk->link->state != EXI_LINK_LOOK))
		return EXS_X_REASON_REFUSED;
	reason = may_meet(sk, fd, ret);
	return !reason && !same_ends(ret, t) ? EXS_X_REASON_NOT_CONNECTED
					     : reason;
}

static int take_request(struct exi_sock *sk, const struct exi_provider *p,
			const struct exi_tuple *t, int link, void *arg)
{
	struct exi_tuple now;
	int reason = may_take(sk, t, &now);

	if (link < 0)
		return reason;
	if (!reason) {
		exi_link_drop_locked(sk);
		no_marks(sk->sh);
		if (fabric_new(sk, p))
			reason = EXS_X_REASON_MEMORY;
	}
	if (reason) {
		exi_fd_close(link);
		return reason;
	}
	p->remote_ops->requested(sk->fab, &now, arg);
	return await_remote(sk, link);
}

int exi_remote_request(const struct exi_provider *p, const struct exi_tuple *t,
		       int link, void *arg)
{
	struct search s = { .t = t };
	int reason;

	exi_latent_wake_all(); /* it may be one of these */
	exi_sock_each(compare, &s);
	if (!s.found) {
		exi_fd_close(link);
		return EXS_X_REASON_NOT_CONNECTED;
	}
	exi_lock(&s.found->link_lock);
	reason = take_request(s.found, p, t, link, arg);
	exi_unlock(&s.found->link_lock);
	return reason;
}

/* --- messages of a link that is up -------------------------------------- */

static int on_down(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;
	int ret;

	exi_lock(&sh->half[EXI_TX].lock);
	atomic_store(&sh->hold_there, 1);
	if (atomic_load(&sh->reason) == EXS_X_REASON_UNDECIDED)
		exi_sock_reason(sk, EXS_X_REASON_PEER_REQUEST);
	exi_unlock(&sh->half[EXI_TX].lock);
	exi_lock(&sh->half[EXI_RX].lock);
	exi_switch_giveback_locked(sk);
	ret = exi_link_send(sk, EXI_PAIR_DOWN_ACK, 0, 0, 0);
	exi_unlock(&sh->half[EXI_RX].lock);
	return ret == -ENOTCONN ? 0 : ret;
}

static int on_down_ack(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;

	if (atomic_load(&sh->down_wait) == 0)
		return -EPROTO;
	exi_lock(&sh->half[EXI_RX].lock);
	exi_switch_giveback_locked(sk);
	exi_unlock(&sh->half[EXI_RX].lock);
	atomic_fetch_sub(&sh->down_wait, 1);
	return 0;
}

static int on_switch(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	int ret;

	exi_lock(&rx->lock);
	ret = exi_switch_arrived_locked(sk, m->a, m->b, m->c);
	exi_unlock(&rx->lock);
	return ret;
}

static int on_takeback(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];
	int ret;

	exi_lock(&tx->lock);
	ret = exi_switch_takeback_locked(sk, m->a, m->b, m->c);
	/* Who hears of it may look into TCP at once, for what was there. */
	if (ret == 0 && tx->mode == EXI_MODE_DRAIN)
		exi_flow_drain_locked(sk);
	if (ret == 0)
		exi_link_send(sk, EXI_PAIR_TAKEN, m->a, 0, 0);
	exi_unlock(&tx->lock);
	return ret;
}

static void try_up(struct exi_sock *sk)
{
	struct exi_half *tx = &sk->sh->half[EXI_TX];

	exi_lock(&tx->lock);
	exi_switch_up_locked(sk);
	exi_unlock(&tx->lock);
}

/* --- the end of TCP before that of the ring ------------------------------- */

/* From another host the end of TCP may come before what was sent before it: who
 * closes ends TCP, and then waits, not for ever, until its queue pair is empty.
 * So neither the end of TCP nor some time after it is the end of the stream. That
 * is END, or that the link hangs up; and neither comes if the peer's host is gone,
 * its process has stopped, or what should tell is lost.
 *
 * So the peer is asked, again and again. A queue pair that has no other end any
 * more fails for it. A library that finds the descriptor closed lets go, and the
 * link hangs up. One that still has it says so, and the wait goes on, for the peer
 * may send as long as it likes. Only who is silent for longer than a library may
 * take to let go, and of whom no byte arrives meanwhile, is lost: what did arrive
 * is read, then the connection is reset, as of one that was killed. */
#define ASK_NS	    1000000000u
#define PATIENCE_NS 15000000000u

static void be_patient(struct exi_link *l)
{
	l->patience = exi_now_ns() + PATIENCE_NS;
}

/* So the end that TCP said is one. */
static void lives_locked(struct exi_sock *sk)
{
	EXI_LOCKED(&sk->link_lock);
	sk->link->timer.deadline = 0;
	exi_service_untimed(&sk->link->timer);
	atomic_store(&sk->sh->rx_fin, 1);
}

static int on_finseen(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];

	if (m->a == EXI_FINSEEN_ANSWER) {
		/* All that it sent before its end of TCP came before this. */
		exi_lock(&rx->lock);
		rx->link_read = 1;
		exi_unlock(&rx->lock);
		be_patient(sk->link);
		if (!exi_sock_remote(sk) && sk->link->timer.deadline &&
		    !sk->link->parts)
			lives_locked(sk);
		return 0;
	}
	if (m->a == EXI_FINSEEN_ASK &&
	    exi_sock_current(sk, atomic_load(&sk->fd)))
		exi_link_send(sk, EXI_PAIR_FINSEEN, EXI_FINSEEN_ANSWER, 0, 0);
	sk->link->look = true;
	return 0;
}

/* Whether the ring may still bring something, and how much came. */
static bool awaits_end(struct exi_sock *sk, uint32_t *ret_came)
{
	struct exi_half *h = &sk->sh->half[EXI_RX];
	bool ret;

	exi_lock(&h->lock);
	ret = sk->fab && h->mode == EXI_MODE_RING && !h->ended &&
	      !atomic_load(&sk->sh->gone) && !sk->fab->ops->over(sk->fab);
	ret = ret ||
	      (h->mode != EXI_MODE_RING && !exi_resume_end_counts_locked(sk));
	if (ret)
		*ret_came = sk->fab->provider->remote_ops->position(sk->fab,
								    EXI_RX) +
			    (uint32_t)sk->fab->ops->unread(sk->fab);
	exi_unlock(&h->lock);
	return ret;
}

static void ask_again_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;
	uint32_t came;

	EXI_LOCKED(&sk->link_lock);
	if (!exi_sock_remote(sk)) {
		lives_locked(sk);
		stir(sk);
		return;
	}
	l->timer.deadline = 0;
	exi_service_untimed(&l->timer);
	if (!awaits_end(sk, &came))
		return;
	if (came != l->came)
		be_patient(l);
	l->came = came;
	if (exi_now_ns() >= l->patience) {
		exi_debug(
			"descriptor %d: TCP has ended, and the peer is silent",
			atomic_load(&sk->fd));
		shutdown(l->fd, SHUT_RDWR); /* our service sees it */
		return;
	}
	ask_locked(sk);
	l->timer.deadline = exi_now_ns() + ASK_NS;
	exi_service_timed(&l->timer);
}

static int converse(struct exi_sock *sk, const struct exi_pair_msg *m)
{
	switch (m->type) {
	case EXI_PAIR_GO:
		atomic_store(&sk->sh->may_switch, 1);
		try_up(sk);
		return 0;
	case EXI_PAIR_SWITCH:
		return on_switch(sk, m);
	case EXI_PAIR_DOWN:
		return on_down(sk);
	case EXI_PAIR_DOWN_ACK:
		return on_down_ack(sk);
	case EXI_PAIR_TAKEBACK:
		return on_takeback(sk, m);
	case EXI_PAIR_TAKEN:
		if (m->a == sk->sh->half[EXI_RX].epoch)
			atomic_store(&sk->sh->half[EXI_RX].untaken, 0);
		return 0;
	case EXI_PAIR_UP:
		atomic_store(&sk->sh->hold_there, 0);
		go_locked(sk);
		try_up(sk);
		return 0;
	case EXI_PAIR_FINSEEN:
		return on_finseen(sk, m);
	default:
		return -EPROTO;
	}
}

static void refuse(struct exi_sock *sk, int reason)
{
	bool stranger = sk->link->state == EXI_LINK_HELLO ||
			sk->link->state == EXI_LINK_SHOW;

	/* A stranger is told no more than that nobody is known here. */
	if (sk->link->fd >= 0 && (!stranger || reason == EXS_X_REASON_NO_PROOF))
		send_no(sk->link->fd, reason);
	give_up_locked(sk, reason);
}

/* The peer was never ready to have a direction switched. */
static bool untouched(struct exi_sock *sk)
{
	struct exi_shared *sh = sk->sh;

	return !atomic_load(&sh->may_switch) &&
	       sh->half[EXI_RX].mode == EXI_MODE_TCP &&
	       sh->half[EXI_TX].mode == EXI_MODE_TCP;
}

/* One packet of the link. False when the link is no more. */
static bool packet_locked(struct exi_sock *sk, struct exi_pair_msg *m,
			  ssize_t n, int fd)
{
	int ret;

	EXI_LOCKED(&sk->link_lock);
	if (n == 1 && sk->link->state == EXI_LINK_UP) {
		__atomic_fetch_add(&sk->sh->bells_received, 1,
				   __ATOMIC_RELAXED);
		return true;
	}
	if (sk->link->state != EXI_LINK_UP) {
		ret = well_formed(m, n) ? greet(sk, m, fd)
					: -EXS_X_REASON_PROTOCOL;
		if (ret)
			refuse(sk, -ret);
		return ret == 0;
	}
	/* The peer could not take our answer: it is not up, and nothing was
	 * switched. */
	if (well_formed(m, n) && m->type == EXI_PAIR_NO && untouched(sk)) {
		give_up_locked(sk, told_reason(m));
		return false;
	}
	ret = well_formed(m, n) ? converse(sk, m) : -EPROTO;
	if (ret == -EPROTO) {
		exi_error("message %d (%llu %llu %llu)", m->type,
			  (unsigned long long)m->a, (unsigned long long)m->b,
			  (unsigned long long)m->c);
		exi_link_violation(sk, "a message that cannot be");
		hung_up_locked(sk); /* what else it says is not heard */
		return false;
	}
	return true;
}

/* The end of the link, or a descriptor that should not have come. */
static void no_packet_locked(struct exi_sock *sk, ssize_t n)
{
	bool was_up = sk->link->state == EXI_LINK_UP;

	EXI_LOCKED(&sk->link_lock);
	if (n == -EPROTO && was_up)
		exi_link_violation(sk, "a descriptor that cannot be");
	if (was_up)
		hung_up_locked(sk);
	else if (n == -EPROTO)
		refuse(sk, EXS_X_REASON_PROTOCOL);
	else if (n == -EMFILE)
		refuse(sk, EXS_X_REASON_DESCRIPTORS);
	else
		give_up_locked(sk, EXS_X_REASON_PEER_LOST);
}

/* How much of the link one call reads. A peer can write as fast as this end reads:
 * an event is over after so many packets, and a look, which must see what was
 * sent before it, after the bytes that lay there when it began. */
#define PACKETS 16

struct reading {
	bool event;
	ssize_t budget; /* packets or bytes */
	bool news;	/* more than WAKE came */
	bool was_up, gone;
};

static struct reading begin_reading(struct exi_sock *sk, bool event)
{
	struct reading r = { .event = event,
			     .budget = PACKETS,
			     .news = !event };
	int bytes = 0;

	if (!event && sk->link && sk->link->fd >= 0) {
		ioctl(sk->link->fd, FIONREAD, &bytes);
		r.budget = bytes + 1; /* and sees that it is empty, or over */
	}
	return r;
}

/* A segment may come with the next message. */
static bool passes(const struct exi_link *l)
{
	return l->state == EXI_LINK_OFFER || l->state == EXI_LINK_ANSWER;
}

/* One packet, if there is one. False: none, or the link is no more. */
static bool read_locked(struct exi_sock *sk, struct reading *r)
{
	struct exi_link *l = sk->link;
	struct exi_pair_msg m;
	ssize_t n;
	int fd = -1;

	EXI_LOCKED(&sk->link_lock);
	if (!l || l->fd < 0)
		return false;
	r->was_up = l->state == EXI_LINK_UP;
	if (r->was_up)
		n = recv_up(l, &m);
	else if (passes(l))
		n = recv_passing(l->fd, &m, &fd);
	else
		n = exi_rights_none(l->fd, &m, sizeof(m));
	if (n == -EAGAIN)
		return false;
	r->gone = n <= 0;
	if (r->gone) {
		no_packet_locked(sk, n);
		return false;
	}
	r->budget -= r->event ? 1 : n;
	r->news = r->news || n != 1;
	r->gone = !packet_locked(sk, &m, n, fd);
	exi_closing_file(fd);
	return true;
}

/* The rest is the service's, which is told of it again. */
static void leave_rest_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	if (!l || l->fd < 0 || exi_service_self())
		return;
	exi_service_unwatch(l->fd);
	exi_service_watch(sk, l->fd, EXI_WATCH_LINK, EPOLLIN | EPOLLEXCLUSIVE);
}

/* It was to end when both directions are on TCP, and they are. What is still on its
 * way there needs no link. */
static bool parts_locked(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;

	EXI_LOCKED(&sk->link_lock);
	if (!l || !l->parts || atomic_load(&sk->sh->down_wait) ||
	    !exi_switch_on_tcp(sk->sh, true))
		return false;
	shutdown(l->fd, SHUT_RDWR); /* another process may have it, too */
	hung_up_locked(sk);
	exi_fds_hold_some();
	return true;
}

void exi_link_event(struct exi_sock *sk, uint32_t events)
{
	bool was_up, gone, look, news;
	struct reading r;
	uint32_t generation;
	int fd;

	exi_fds_begin();
	exi_lock(&sk->link_lock);
	generation = atomic_load(&sk->generation);
	r = begin_reading(sk, events != 0);
	while (r.budget > 0 && read_locked(sk, &r))
		;
	if (r.event && r.budget <= 0)
		leave_rest_locked(sk);
	gone = r.gone || parts_locked(sk);
	news = r.news;
	was_up = r.was_up || (sk->link && sk->link->state == EXI_LINK_UP);
	look = sk->link && sk->link->look;
	if (look)
		sk->link->look = false;
	fd = atomic_load(&sk->fd);
	if (was_up && !gone)
		exi_place_answer(sk);
	/* Under the lock: until then the place is not another socket's. */
	if (fd >= 0 && (gone || (was_up && news)))
		stir(sk);
	else if (fd >= 0 && was_up) {
		ring(sk);
		exi_family_tell(sk);
	}
	exi_unlock(&sk->link_lock);
	exi_fds_end();
	/* The peer saw the end of TCP: is our descriptor still the one it
	 * was? */
	if (look && !exi_sock_current(sk, fd))
		exi_sock_forget(sk, fd, generation);
}

void exi_link_rung(struct exi_sock *sk)
{
	exi_lock(&sk->link_lock);
	if (sk->link && atomic_load(&sk->fd) >= 0)
		ring(sk);
	exi_unlock(&sk->link_lock);
}

static void give_up_unfinished(struct exi_sock *sk, void *arg)
{
	int *n = arg;

	exi_lock(&sk->link_lock);
	if (sk->link && sk->link->state != EXI_LINK_UP &&
	    sk->link->state != EXI_LINK_LOOK && !sk->foreign_link) {
		give_up_locked(sk, EXS_X_REASON_DESCRIPTORS);
		++*n;
	}
	exi_unlock(&sk->link_lock);
}

int exi_link_reclaim(void)
{
	int n = 0;

	exi_fds_ran_out();
	exi_sock_each(give_up_unfinished, &n);
	return n;
}

void exi_link_before_exec(void)
{
	int n = 0;

	exi_sock_each(give_up_unfinished, &n);
	exi_closing_settle();
}

int exi_link_share(struct exi_sock *sk, int (*watch)(int fd, void *arg),
		   void *arg)
{
	struct exi_link *l = sk->link;
	int ret;

	if (!l || l->state != EXI_LINK_UP || l->fd < 0)
		return -ENOTCONN;
	ret = watch(l->fd, arg);
	if (ret)
		return ret;
	/* The kernel wakes exclusive waiters in the order they came. */
	exi_service_unwatch(l->fd);
	ret = exi_service_watch(sk, l->fd, EXI_WATCH_LINK,
				EPOLLIN | EPOLLEXCLUSIVE);
	return ret ? ret : l->fd;
}

bool exi_link_ended(struct exi_sock *sk, int fd)
{
	struct pollfd p = { .fd = exi_ready_bell(sk, fd) };

	if (p.fd < 0 || poll(&p, 1, 0) <= 0 || !(p.revents & POLLHUP))
		return false;
	exi_link_event(sk, 0);
	return true;
}

void exi_link_read(struct exi_sock *sk)
{
	struct exi_half *rx = &exi_sock_shared(sk)->half[EXI_RX];
	bool wanted;

	exi_lock(&rx->lock);
	wanted = rx->end_seen && !rx->link_read;
	exi_unlock(&rx->lock);
	if (!wanted)
		return;
	exi_link_event(sk, 0);
	if (exi_sock_remote(sk))
		return; /* it answers, and may have meanwhile */
	exi_lock(&rx->lock);
	rx->link_read = 1;
	exi_unlock(&rx->lock);
}

/* Sent away; whoever else comes may still be the peer. */
static void dismiss(struct exi_sock *sk, unsigned int slot)
{
	struct exi_link *l = sk->link;

	if (l->prover == (int)slot) {
		exi_link_clear_locked(sk);
		l->prover = -1;
	}
	l->proposed = true;
	forget_fd(l, &l->candidates[slot]);
}

/* The candidate is the peer. */
static void adopt_candidate(struct exi_sock *sk, unsigned int slot,
			    const struct exi_pair_msg *m)
{
	struct exi_link *l = sk->link;

	exi_link_clear_locked(sk);
	l->fd = l->candidates[slot];
	l->candidates[slot] = -1;
	stop_listening(l);
	l->peer_token = m->b;
	l->peer_providers = m->a;
	l->timer.deadline = exi_now_ns() + GREETING_NS;
	atomic_store(&sk->sh->greeting, 1);
	exi_service_rewatch(sk, l->fd, EXI_WATCH_LINK, EPOLLIN);
}

/* Each knows the other by its user. */
static void known_candidate(struct exi_sock *sk, unsigned int slot,
			    const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = hello(true);
	int err;

	adopt_candidate(sk, slot, m);
	sk->link->state = EXI_LINK_PROVED;
	err = send_msg(sk->link->fd, &out, -1);
	if (err)
		refuse(sk, unproved(err));
}

/* The candidate saw all symbols, and showed its own. */
static void proved_candidate(struct exi_sock *sk, unsigned int slot,
			     struct exi_pair_msg *m)
{
	int ret;

	adopt_candidate(sk, slot, m);
	await_segment(sk->link, EXI_LINK_ANSWER);
	ret = offer(sk, m);
	if (ret)
		refuse(sk, -ret);
}

/* A board is seen by one candidate at a time, and not by many. */
static int begin_proof(struct exi_sock *sk, unsigned int slot,
		       const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = hello(false);
	struct exi_link *l = sk->link;
	uint64_t now = exi_now_ns();
	int err;

	if (l->provers == PROVERS ||
	    (l->prover >= 0 && now - l->prover_since < PROVE_NS))
		return -EPERM;
	if (l->prover >= 0)
		dismiss(sk, (unsigned int)l->prover);
	l->provers++;
	l->prover = (int)slot;
	l->prover_since = now;
	err = exi_bound_answer(&l->bound, sk->tcp->fd, m->blob, out.blob);
	return err ? err : send_msg(l->candidates[slot], &out, -1);
}

/* A: B shows a symbol; after the first, which comes with its nonce. */
static int see(struct exi_sock *sk, int link, const struct exi_tuple *t,
	       const struct exi_pair_msg *m)
{
	struct exi_pair_msg out = message(EXI_PAIR_SHOWN);
	struct exi_bound *p = &sk->link->bound;
	int err = 0;

	if (m->a != p->looked || p->looked == EXI_BOUND_SYMBOLS)
		return -EPERM;
	if (m->a == 0)
		err = exi_bound_opened(p, link, t, m->blob);
	if (!err)
		err = exi_bound_look(p, t);
	out.a = m->a;
	return err ? err : show(sk, link, &out);
}

/* 0, or why the candidate is to be sent away. */
static int hear_candidate(struct exi_sock *sk, unsigned int slot,
			  struct exi_pair_msg *m)
{
	struct exi_link *l = sk->link;
	bool prover = l->prover == (int)slot;
	int fd = l->candidates[slot], err;
	struct exi_tuple t;

	err = exi_tuple_of(sk->tcp->fd, &t);
	if (err)
		return err;
	if (prover && m->type == EXI_PAIR_SHOWN)
		return see(sk, fd, &t, m);
	if (prover && m->type == EXI_PAIR_PROVED &&
	    l->bound.looked == EXI_BOUND_SYMBOLS) {
		proved_candidate(sk, slot, m);
		return 0;
	}
	if (prover || (m->type != EXI_PAIR_HELLO && m->type != EXI_PAIR_NO))
		return m->type == EXI_PAIR_NO ? -EOPNOTSUPP : -EPERM;
	err = exi_proof_same_user(&t, fd);
	if (m->type == EXI_PAIR_NO) {
		if (!err)
			give_up_locked(sk, told_reason(m));
		return err ? -EOPNOTSUPP : 0;
	}
	if (err && err != -EPERM)
		return err;
	if (err || (m->c & EXI_HELLO_SHOW))
		return begin_proof(sk, slot, m);
	known_candidate(sk, slot, m);
	return 0;
}

void exi_link_candidate_event(struct exi_sock *sk, unsigned int slot)
{
	struct exi_pair_msg m;
	struct exi_link *l;
	ssize_t n;
	int err;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (!l || l->state != EXI_LINK_LISTEN || l->candidates[slot] < 0)
		goto unlock;
	n = exi_rights_none(l->candidates[slot], &m, sizeof(m));
	if (n == -EAGAIN)
		goto unlock;
	err = n > 0 && well_formed(&m, n) ? hear_candidate(sk, slot, &m)
					  : -EPERM;
	if (!err)
		goto unlock;
	/* Somebody of whom it cannot be told who he is: believed to be the peer
	 * when nobody else comes. */
	if (unproved(err) == EXS_X_REASON_NO_PROOF) {
		l->unprovable = true;
		send_no(l->candidates[slot], EXS_X_REASON_NO_PROOF);
	} else if (unproved(err) == EXS_X_REASON_DESCRIPTORS) {
		l->starved = true;
	}
	dismiss(sk, slot);
unlock:
	exi_unlock(&sk->link_lock);
}

void exi_link_option(struct exi_sock *sk, int level, int name)
{
	struct exi_link *l;

	if (!exi_bound_uses(level, name))
		return;
	exi_lock(&sk->link_lock);
	l = sk->link;
	if (l && l->bound.taken && l->prover >= 0)
		dismiss(sk, (unsigned int)l->prover);
	else if (l && l->bound.taken)
		give_up_locked(sk, EXS_X_REASON_NO_PROOF);
	exi_unlock(&sk->link_lock);
}

static unsigned int candidate_slot(struct exi_sock *sk)
{
	struct exi_link *l = sk->link;
	unsigned int i, oldest = 0;

	for (i = 0; i < EXI_LINK_CANDIDATES; i++) {
		if (l->candidates[i] < 0)
			return i;
		if (l->candidate_since[i] < l->candidate_since[oldest])
			oldest = i;
	}
	dismiss(sk, oldest);
	return oldest;
}

void exi_link_listener_event(struct exi_sock *sk)
{
	struct exi_link *l;
	unsigned int i, slot;
	int fd;

	exi_lock(&sk->link_lock);
	l = sk->link;
	/* No more than there is room for: the rest is told of again. */
	for (i = 0; l && l->listener >= 0 && i < EXI_LINK_CANDIDATES; i++) {
		fd = accept4(l->listener, NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			/* It would be told of again and again; and what is
			 * given up here is a descriptor. */
			give_up_locked(sk, EXS_X_REASON_DESCRIPTORS);
			break;
		}
		if (fd < 0)
			break;
		fd = exi_fd_spare(fd);
		if (fd < 0) {
			l->starved = true;
			break;
		}
		slot = candidate_slot(sk);
		l->candidates[slot] = fd;
		l->candidate_since[slot] = exi_now_ns();
		if (exi_service_watch(sk, fd, EXI_WATCH_CANDIDATE + slot,
				      EPOLLIN))
			forget_fd(l, &l->candidates[slot]);
	}
	exi_unlock(&sk->link_lock);
}

/* TCP is readable: the peer has left a fabric between hosts that still stands
 * here, or has gone on since we left it. True when sleepers are to look. */
static bool fabric_left(struct exi_sock *sk)
{
	struct exi_half *rx = &sk->sh->half[EXI_RX];
	bool called, resumes;

	exi_lock(&rx->lock);
	called = exi_resume_called_locked(sk);
	resumes = rx->resume;
	if (resumes && rx->back >= rx->left)
		exi_resume_look_locked(sk, 1);
	exi_unlock(&rx->lock);
	if (called && sk->link && sk->link->state == EXI_LINK_UP)
		hung_up_locked(sk);
	return called || resumes;
}

/* An end alone says that who did not close died, or that plain calls made it.
 * Who died with bytes unread is told of as a reset: its link hangs up in a
 * moment. Who lives answers. */
static bool may_be_dying(struct exi_sock *sk, short ended)
{
	bool ret;

	if ((ended & POLLHUP) || atomic_load(&sk->sh->rx_fin) || !sk->link ||
	    sk->link->state != EXI_LINK_UP)
		return false;
	lock_halves(sk);
	ret = left_unread_locked(sk);
	unlock_halves(sk);
	return ret;
}

void exi_link_tcp_event(struct exi_sock *sk)
{
	bool called, waits, asks = false;
	struct exi_shared *sh;
	short ended;

	/* A SWITCH or an END that came before it is seen before it. */
	exi_link_event(sk, 0);
	exi_lock(&sk->link_lock);
	/* The event may be of a socket that had this place before: only what
	 * this one says counts, and before it connects the kernel says an end.
	 * Who has no fabric reads of its end where its bytes are. */
	ended = sk->fab ? tcp_ended(sk) : 0;
	called = fabric_left(sk);
	if (ended) {
		sh = sk->sh;
		/* From another host it may come before what was sent before it:
		 * there END counts, or that the link hangs up. */
		waits = exi_sock_remote(sk) || may_be_dying(sk, ended);
		if (!waits)
			atomic_store_explicit(&sh->rx_fin, 1,
					      memory_order_seq_cst);
		exi_lock(&sh->half[EXI_RX].lock);
		if (sh->half[EXI_RX].mode == EXI_MODE_RING ||
		    (exi_sock_remote(sk) &&
		     !exi_resume_end_counts_locked(sk))) {
			ask_locked(sk);
			asks = waits && sk->link &&
			       sk->link->state == EXI_LINK_UP &&
			       !sk->link->timer.deadline;
		}
		exi_unlock(&sh->half[EXI_RX].lock);
		if (asks) {
			be_patient(sk->link);
			sk->link->timer.deadline = exi_now_ns() + ASK_NS;
			exi_service_timed(&sk->link->timer);
		}
		/* A reset. The link will hang up, if it has not. */
		exi_lock(&sh->half[EXI_TX].lock);
		if ((ended & POLLHUP) &&
		    sh->half[EXI_TX].mode == EXI_MODE_RING) {
			atomic_store(&sh->gone, 1);
			exi_flow_bereft_locked(sk);
		}
		exi_unlock(&sh->half[EXI_TX].lock);
	}
	if (ended || called)
		stir(sk);
	exi_unlock(&sk->link_lock);
}

static void end_silent(struct exi_sock *sk)
{
	struct exi_link *l;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (l)
		exi_service_untimed(&l->timer);
	exi_unlock(&sk->link_lock);
	if (l && !exi_link_part(sk))
		exi_link_unanswered(sk);
}

/* A link that is up: the peer said nothing more. */
static void up_expired(struct exi_sock *sk)
{
	struct exi_link *l;
	bool parts = false;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (l && l->state == EXI_LINK_UP && is_over(l)) {
		parts = l->parts;
		if (parts)
			l->timer.deadline = 0;
		else
			ask_again_locked(sk);
	}
	exi_unlock(&sk->link_lock);
	if (parts)
		end_silent(sk);
}

static int why_nobody_came(const struct exi_link *l)
{
	if (l->state != EXI_LINK_LISTEN)
		return EXS_X_REASON_TIMEOUT;
	return l->starved      ? EXS_X_REASON_DESCRIPTORS
	       : l->unprovable ? EXS_X_REASON_NO_PROOF
	       : l->proposed   ? EXS_X_REASON_REFUSED
			       : EXS_X_REASON_PLAIN_PEER;
}

/* Called late, for a link that came up meanwhile, it does nothing. */
static void meeting_expired(struct exi_sock *sk)
{
	struct exi_link *l;
	uint64_t delay, until;

	exi_lock(&sk->link_lock);
	l = sk->link;
	if (!l || l->state == EXI_LINK_UP || !is_over(l))
		goto unlock;
	if (l->state == EXI_LINK_LOOK) {
		delay = l->delay;
		until = l->until;
		exi_link_drop_locked(sk);
		look_locked(sk, delay, until);
	} else {
		give_up_locked(sk, why_nobody_came(l));
	}
unlock:
	exi_unlock(&sk->link_lock);
}
