/* SPDX-License-Identifier: BSD-2-Clause */
/* The pair link of a socket: HELLO, messages of a stranger to an end that
 * waits, the proof, the offer, and every message of a link that is up, with
 * descriptors or without, in any order; beside them, bytes on TCP or a UNIX
 * stream, and in the ring. An input can also choose the peer's next honest
 * message, so that all states are reached. Whatever comes, the library leaks no
 * descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/proof.h"
#include "core/base/shun.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/link/control.h"
#include "core/link/ending.h"
#include "core/meet/begin.h"
#include "core/meet/bound.h"
#include "core/meet/candidate.h"
#include "core/meet/meet.h"
#include "core/meet/meetdir.h"
#include "core/meet/pair.h"
#include "core/sock/base.h"
#include "core/sock/closing.h"
#include "core/sock/table.h"
#include "fuzz/ends.h"
#include "fuzz/fuzz.h"
#include "fuzz/segment.h"
#include "tests/support/check.h"
#include "tests/support/net.h"

#define BUF	  9000
#define STRANGERS 10	/* more than A has room for */
#define OTHER	  65534 /* user */
#define SHUNNED	  65533 /* user */

static char buf[BUF];

/* The kernel with a net.core.wmem_max that leaves no room. */
static bool no_room;
#define WMEM_MAX 2304

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int little = WMEM_MAX;

	if (no_room && level == SOL_SOCKET && name == SO_SNDBUFFORCE) {
		errno = EPERM;
		return -1;
	}
	if (no_room && level == SOL_SOCKET && name == SO_SNDBUF)
		value = &little;
	return (int)syscall(SYS_setsockopt, fd, level, name, value, len);
}

struct scene {
	struct fuzz_ends e;
	bool accepts; /* the socket */
	int link;     /* the peer's end */
	struct exi_conn *peer;
	int strangers[STRANGERS];
	struct sockaddr_un name; /* of the listener; without a length: none */
	socklen_t name_len;
	/* How the peer proves that it is the peer. */
	enum proof {
		BY_USER,
		BY_BOARD,
		BY_KEY
	} by;
	unsigned int rounds; /* of the board, at a time */
	struct exi_bound board;
	uint8_t own[EXI_MEETDIR_NONCE], theirs[EXI_MEETDIR_NONCE];
	uint8_t promise[EXI_SHA256];
	struct exi_pair_msg last; /* of what it heard of the proof */
	/* What the peer has said and heard. */
	unsigned int said;
	struct exi_pair_msg answer;
	int answer_fd;
	bool made; /* the peer's end of the fabric */
	uint32_t epoch, their_epoch;
	uint64_t tcp; /* bytes */
	bool few;     /* none is free for who comes */
};

/* --- the socket --------------------------------------------------------- */

static void attach(struct scene *s, int fd, bool known)
{
	struct exi_sock *sk = s->e.sk;
	struct exi_link *l;

	fd = T_OK(exi_fd_keep(fd));
	exi_lock(&sk->link_lock);
	l = exi_meet_link_new(sk, s->accepts ? EXI_LINK_HELLO : EXI_LINK_LISTEN,
			      EXI_MEET_STEP_NS, exi_begin_expired);
	T(l);
	if (s->accepts) {
		l->fd = fd;
		l->known = known;
		T_EQ(exi_bound_promise(&l->bound, s->promise), 0);
		atomic_store(&sk->sh->linked, 1);
	} else {
		l->candidates[0] = fd;
		l->candidate_since[0] = exi_now_ns();
	}
	if (s->by == BY_KEY) {
		l->keyed = calloc(1, sizeof(*l->keyed));
		T(l->keyed);
		T_EQ(exi_meetdir_nonce(l->keyed->own), 0);
		/* B says it when it connects. */
		memcpy(s->theirs, l->keyed->own, sizeof(s->theirs));
	}
	sk->link = l;
	exi_unlock(&sk->link_lock);
}

/* A's name, to which strangers connect. */
static void listen_for_strangers(struct scene *s)
{
	struct sockaddr_un any = { .sun_family = AF_UNIX };
	struct exi_sock *sk = s->e.sk;
	int fd = T_OK(socket(AF_UNIX,
			     SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	T_OK(bind(fd, (struct sockaddr *)&any, sizeof(any.sun_family)));
	T_OK(listen(fd, STRANGERS));
	s->name_len = sizeof(s->name);
	T_OK(getsockname(fd, (struct sockaddr *)&s->name, &s->name_len));
	fd = T_OK(exi_fd_keep(fd));
	exi_lock(&sk->link_lock);
	sk->link->listener = fd;
	exi_unlock(&sk->link_lock);
}

static void few_descriptors(bool few)
{
	static struct rlimit was;
	struct rlimit none;

	if (!was.rlim_max)
		T_OK(getrlimit(RLIMIT_NOFILE, &was));
	none = (struct rlimit){ 3, was.rlim_max };
	T_OK(setrlimit(RLIMIT_NOFILE, few ? &none : &was));
}

/* What the service would do. */
static void serve(struct scene *s)
{
	struct exi_sock *sk = s->e.sk;
	bool listens;

	exi_lock(&sk->link_lock);
	listens = sk->link && sk->link->state == EXI_LINK_LISTEN;
	exi_unlock(&sk->link_lock);
	if (!listens) {
		exi_link_event(sk, EPOLLIN);
		return;
	}
	few_descriptors(s->few);
	exi_link_listener_event(sk);
	few_descriptors(false);
	for (unsigned int i = 0; i < EXI_LINK_CANDIDATES; i++)
		exi_link_candidate_event(sk, i);
}

static void pass_time(struct scene *s)
{
	struct exi_sock *sk = s->e.sk;
	void (*expired)(struct exi_sock * sk) = NULL;

	exi_lock(&sk->link_lock);
	if (sk->link && atomic_load(&sk->link->timer.deadline)) {
		atomic_store(&sk->link->timer.deadline, 1);
		expired = sk->link->timer.expired;
	}
	exi_unlock(&sk->link_lock);
	if (expired)
		expired(sk);
}

static void do_rarely(struct scene *s, uint8_t what)
{
	int option = 1;

	switch (what % 8) {
	case 0:
		t_shutdown(s->e.s, SHUT_WR);
		break;
	case 1: /* the program wants its descriptor */
		exi_link_over(s->e.sk, atomic_load(&s->e.sk->generation));
		break;
	case 2:
		s->few = !s->few;
		break;
	case 3:
		exi_link_hear(s->e.sk);
		break;
	case 4:
		exi_link_read(s->e.sk);
		break;
	case 5:
		exi_link_reason(s->e.sk);
		break;
	case 6:
		exi_candidate_fork(s->e.sk);
		break;
	default:
		setsockopt(s->e.s, SOL_SOCKET, SO_RCVLOWAT, &option,
			   sizeof(option));
	}
}

static void work(struct scene *s, struct fuzz_in *in)
{
	switch (fuzz_byte(in) % 8) {
	case 0:
		t_send(s->e.s, buf, 1 + fuzz_below(in, BUF),
		       MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 1:
	case 2:
		t_recv(s->e.s, buf, 1 + fuzz_below(in, BUF), MSG_DONTWAIT);
		break;
	case 3:
		t_recv(s->e.s, buf, BUF, MSG_DONTWAIT | MSG_PEEK);
		break;
	case 4:
		exi_link_leave(s->e.sk, EXS_X_REASON_REQUESTED);
		break;
	case 5:
		pass_time(s);
		break;
	case 6:
		exi_link_tcp_event(s->e.sk);
		if (fuzz_byte(in) % 8 == 1)
			exi_link_option(s->e.sk, IPPROTO_TCP, TCP_SYNCNT);
		break;
	default:
		do_rarely(s, fuzz_byte(in));
	}
}

/* --- the peer ----------------------------------------------------------- */

static void put(struct scene *s, const void *m, size_t len, const int *fds,
		unsigned int n)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m, .iov_len = len };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} control = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, n * sizeof(int));
	}
	sendmsg(s->link, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void say(struct scene *s, const struct exi_pair_msg *m)
{
	put(s, m, sizeof(*m), NULL, 0);
}

/* Takes what the socket said. */
static void hear(struct scene *s)
{
	struct exi_pair_msg m;
	int fd = -1;
	ssize_t n;

	while ((n = exi_pair_recv_passing(s->link, &m, &fd)) > 0) {
		if (n != sizeof(m))
			continue;
		if (m.type == EXI_PAIR_OFFER || m.type == EXI_PAIR_ANSWER) {
			if (s->answer_fd >= 0)
				close(s->answer_fd);
			s->answer = m;
			s->answer_fd = fd;
			fd = -1;
		} else if (m.type == EXI_PAIR_HELLO ||
			   m.type == EXI_PAIR_SHOWN) {
			s->last = m;
		} else if (m.type == EXI_PAIR_SWITCH) {
			s->their_epoch = (uint32_t)m.a;
			if (s->made)
				s->peer->swops->start(s->peer, m.c);
		} else if (m.type == EXI_PAIR_TAKEBACK && s->made) {
			s->peer->swops->takeback(s->peer, m.b, m.c);
		}
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
}

static void offer(struct scene *s)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_OFFER);
	struct exi_blob blob = { .fd = -1 };

	if (s->peer->provider->meet_ops->offer(s->peer, &blob))
		return;
	m.a = s->peer->provider->wire_id;
	memcpy(m.blob, blob.bytes, sizeof(m.blob));
	put(s, &m, sizeof(m), &blob.fd, 1);
	close(blob.fd);
}

static void answer(struct scene *s)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_ANSWER);
	struct exi_blob in, blob = { .fd = -1 };

	if (s->made || s->answer.type != EXI_PAIR_OFFER)
		return;
	memcpy(in.bytes, s->answer.blob, sizeof(in.bytes));
	in.fd = s->answer_fd;
	s->made = !s->peer->provider->meet_ops->answer(s->peer, &in, &blob);
	if (!s->made)
		return;
	memcpy(m.blob, blob.bytes, sizeof(m.blob));
	put(s, &m, sizeof(m), &blob.fd, 1);
	close(blob.fd);
}

static void accepted(struct scene *s)
{
	struct exi_blob in;

	if (s->made || s->answer.type != EXI_PAIR_ANSWER)
		return;
	memcpy(in.bytes, s->answer.blob, sizeof(in.bytes));
	in.fd = s->answer_fd;
	s->made = !s->peer->provider->meet_ops->accepted(s->peer, &in);
}

/* A switch of the peer's direction, from here on. */
static struct exi_pair_msg switch_up(struct scene *s)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_SWITCH);

	m.a = ++s->epoch;
	m.b = s->tcp;
	if (s->made)
		s->peer->swops->head(s->peer, &m.c);
	return m;
}

static struct exi_pair_msg take_back(struct scene *s)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_TAKEBACK);

	m.a = s->their_epoch;
	if (s->made)
		s->peer->swops->cursor(s->peer, &m.b, &m.c);
	return m;
}

static void say_anything(struct scene *s, struct fuzz_in *in);

/* --- the proof ----------------------------------------------------------- */

static bool prove_by_key(struct scene *s, struct exi_pair_msg *m, bool as_a)
{
	struct exi_tuple t;
	struct exi_meetdir_claim c = {
		.connects = s->accepts,
		.t = &t,
		.own = s->own,
		.peer = s->theirs,
		.said = { as_a ? 0 : m->a, as_a ? 0 : m->b },
	};

	return !exi_tuple_of(s->e.peer, &t) &&
	       !exi_meetdir_proof(&c, s->link, as_a,
				  as_a ? m->blob + EXI_MEETDIR_NONCE : m->blob);
}

/* The peer is A: its nonce and its proof. B: its nonce; its proof comes with
 * what it says next. */
static void hello_by_key(struct scene *s)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_HELLO);

	m.c = EXI_HELLO_KEY;
	T_EQ(exi_meetdir_nonce(s->own), 0);
	memcpy(m.blob, s->own, sizeof(s->own));
	if (!s->accepts || prove_by_key(s, &m, true))
		say(s, &m);
}

/* One step of the board: false when all symbols were shown and seen. */
static bool show_next(struct scene *s)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_SHOWN);
	struct exi_bound *b = &s->board;
	struct exi_tuple t;

	if (exi_tuple_of(s->e.peer, &t))
		return false;
	hear(s);
	if (!s->accepts && !b->taken) {
		if (s->last.type != EXI_PAIR_HELLO ||
		    exi_bound_open(b, s->e.peer, s->link, &t, s->last.blob,
				   m.blob))
			return false;
	} else if (s->last.type != EXI_PAIR_SHOWN ||
		   (s->accepts && b->looked == 0 &&
		    exi_bound_opened(b, s->link, &t, s->last.blob)) ||
		   exi_bound_check(b, &t)) {
		return false;
	}
	m.a = s->accepts ? b->looked - 1 : b->looked;
	s->last.type = 0;
	if (m.a == EXI_BOUND_SYMBOLS ||
	    exi_bound_show(b, s->e.peer, (unsigned int)m.a))
		return false;
	say(s, &m);
	return true;
}

static void hello_by_board(struct scene *s)
{
	struct exi_pair_msg m = exi_pair_message(EXI_PAIR_HELLO);

	m.c = EXI_HELLO_SHOW;
	if (s->accepts ? !exi_bound_answer(&s->board, s->e.peer, s->promise,
					   m.blob)
		       : !exi_bound_promise(&s->board, m.blob))
		say(s, &m);
}

static void hello(struct scene *s)
{
	struct exi_pair_msg m = exi_meet_hello(s->e.sk, true);

	if (s->by == BY_KEY)
		hello_by_key(s);
	else if (s->by == BY_BOARD)
		hello_by_board(s);
	else
		say(s, &m);
}

/* Of this thread: what it makes is another user's, if it may. */
static void become(uid_t uid)
{
	syscall(SYS_setresuid, -1, uid, -1);
}

/* A stranger comes, of this user, another or one that is shunned, or one that
 * is there says something. */
static void be_strange(struct scene *s, struct fuzz_in *in)
{
	uint8_t how = fuzz_byte(in);
	int *fd = &s->strangers[(how & 63) % STRANGERS], link = s->link;
	uid_t own = geteuid();
	int err;

	if (*fd < 0 && s->name_len) {
		*fd = T_OK(socket(AF_UNIX,
				  SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
				  0));
		if ((how & 63) >= 32)
			become((how & 63) < 56 ? OTHER : SHUNNED);
		err = connect(*fd, (struct sockaddr *)&s->name, s->name_len);
		become(own);
		if (err) {
			close(*fd);
			*fd = -1;
		}
	}
	if (*fd < 0)
		return;
	if (how & 64) {
		close(*fd);
		*fd = -1;
		return;
	}
	s->link = *fd;
	if (how & 128)
		hello(s);
	else
		say_anything(s, in);
	s->link = link;
}

/* True: it is not over. */
static bool show_for_a_while(struct scene *s)
{
	for (unsigned int i = 0; i <= s->rounds; i++) {
		serve(s);
		if (!show_next(s))
			return false;
	}
	s->said--;
	return true;
}

/* What an honest peer would say next, until the link is up. */
static void go_on(struct scene *s)
{
	struct exi_pair_msg m;

	hear(s);
	switch (s->said++) {
	case 0:
		hello(s);
		break;
	case 1:
		if (s->by == BY_BOARD && show_for_a_while(s))
			break;
		m = exi_pair_message(EXI_PAIR_PROVED);
		m.a = exi_registry_wire_ids();
		if (s->by == BY_KEY && !s->accepts) {
			memcpy(s->theirs, s->last.blob, sizeof(s->theirs));
			prove_by_key(s, &m, false);
		}
		if (s->accepts)
			offer(s);
		else
			say(s, &m);
		break;
	case 2:
		if (s->accepts)
			accepted(s);
		else
			answer(s);
		break;
	case 3:
		m = exi_pair_message(EXI_PAIR_GO);
		say(s, &m);
		break;
	case 4:
		m = switch_up(s);
		say(s, &m);
		break;
	default:
		s->said = 3;
	}
}

/* A message that is right but for what the input changes. */
static struct exi_pair_msg message(struct scene *s, struct fuzz_in *in)
{
	static const uint16_t types[] = {
		EXI_PAIR_GO,	   EXI_PAIR_SWITCH,   EXI_PAIR_DOWN,
		EXI_PAIR_DOWN_ACK, EXI_PAIR_TAKEBACK, EXI_PAIR_UP,
		EXI_PAIR_FINSEEN,  EXI_PAIR_TAKEN,
	};
	uint8_t type = fuzz_byte(in), change = fuzz_byte(in);
	struct exi_pair_msg m;

	m = exi_pair_message(
		type & 128 ? type % (EXI_PAIR_TYPE_MAX + 1)
			   : types[type % (sizeof(types) / sizeof(types[0]))]);
	if (m.type == EXI_PAIR_SWITCH)
		m = switch_up(s);
	else if (m.type == EXI_PAIR_TAKEBACK)
		m = take_back(s);
	else if (m.type == EXI_PAIR_TAKEN)
		m.a = s->epoch;
	else if (m.type == EXI_PAIR_FINSEEN)
		m.a = fuzz_byte(in) % 4;
	if (change & 1)
		m.a = fuzz_number(in);
	if (change & 2)
		m.b = change & 64 ? m.b + fuzz_number(in) : fuzz_number(in);
	if (change & 4)
		m.c = change & 64 ? m.c + fuzz_number(in) : fuzz_number(in);
	if (change & 8)
		fuzz_copy(in, m.blob, sizeof(m.blob));
	if ((change & 48) == 48)
		m.version = (uint16_t)fuzz_number(in);
	return m;
}

static void say_anything(struct scene *s, struct fuzz_in *in)
{
	struct exi_pair_msg m = message(s, in);
	uint8_t how = fuzz_byte(in);
	size_t len = sizeof(m);
	unsigned int n = 0, i;
	int fds[4];

	if (how % 16 == 1) {
		len = fuzz_byte(in) % (sizeof(m) + 1);
	} else if (how % 16 == 2) {
		fuzz_copy(in, &m, sizeof(m));
	} else if (how % 16 == 3) {
		n = 1 + fuzz_byte(in) % 4;
		for (i = 0; i < n; i++)
			fds[i] = i & 1 ? s->link : s->e.peer;
	}
	put(s, &m, len, fds, n);
}

/* Into the ring, or over TCP. */
static void carry(struct scene *s, struct fuzz_in *in)
{
	uint8_t how = fuzz_byte(in);
	size_t len = 1 + fuzz_below(in, BUF);
	ssize_t n;

	switch (how % 6) {
	case 0:
	case 1:
		n = send(s->e.peer, buf, len,
			 (how < 192 ? 0 : MSG_OOB) | MSG_DONTWAIT |
				 MSG_NOSIGNAL);
		s->tcp += n > 0 ? (uint64_t)n : 0;
		break;
	case 2:
		recv(s->e.peer, buf, len, MSG_DONTWAIT);
		break;
	case 3:
		if (s->made)
			s->peer->ops->send(s->peer, buf, len, 0);
		break;
	case 4:
		if (s->made)
			s->peer->ops->recv(s->peer, buf, len, 0);
		break;
	default:
		if (how & 128)
			shutdown(s->e.peer, SHUT_WR);
		else
			put(s, "", 1, NULL, 0);
	}
}

/* Before the library starts: the key of processes in other namespaces, and a
 * folder in which nothing can be made. */
static void setup(void)
{
	static const char line[] =
		"exs-key-1 ff8c1988ddfac9f7bf73588ffe6ab59a49546e39405d2810af40"
		"f2d8c5ef8ea2 4377e04c66ff64be\n";
	static bool once;
	char path[64];
	int fd;

	if (once)
		return;
	once = true;
	fd = T_OK(memfd_create("key", MFD_CLOEXEC));
	T_OK(fchmod(fd, 0600));
	T_EQ(write(fd, line, sizeof(line) - 1), sizeof(line) - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("EXS_KEY_FILE", path, 1);
	setenv("EXS_MEET_DIR", "/proc/self/fdinfo", 1);
}

/* What the library keeps for the process, it makes when it is needed first; and
 * some numbers are in reserve. */
#define OF_PROCESS 20

/* Between two inputs. Nothing is closed that was not kept, either: from then on
 * the library would take nobody in, for all numbers would seem to be used. */
static void keeps_nothing(void)
{
	static unsigned int first = UINT_MAX;
	unsigned int now = exi_fd_kept();

	if (first == UINT_MAX)
		first = now;
	for (int i = 0; i < 100 && now - first > OF_PROCESS; i++) {
		exi_closing_settle();
		now = exi_fd_kept();
	}
	FUZZ_TRUE(now - first <= OF_PROCESS);
}

static void begin(struct scene *s, struct fuzz_in *in)
{
	uint8_t how = fuzz_byte(in);
	int pair[2], little = 1;
	bool is_unix;

	setup();
	exi_shun(SHUNNED, exi_now_ns());
	memset(s, 0, sizeof(*s));
	memset(s->strangers, -1, sizeof(s->strangers));
	s->answer_fd = -1;
	s->accepts = how & 1;
	is_unix = (how & 12) == 12; /* whose proof is the user */
	s->by = is_unix	  ? BY_USER
		: how & 4 ? BY_BOARD
		: how & 8 ? BY_KEY
			  : BY_USER;
	s->rounds = how >> 4;
	fuzz_ends_begin(&s->e, s->accepts, is_unix);
	keeps_nothing();
	/* As the peer's library does: else its user alone does not prove it. */
	if (s->by == BY_USER && how < 128)
		s->e.sk->base->sign(s->e.peer);
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0, pair));
	s->link = pair[1];
	s->peer = fuzz_segment_new();
	/* TCP has room for a part of a ring, also when more is wanted. */
	no_room = (how & 48) == 48;
	if (how & 16) {
		T_OK(setsockopt(s->e.s, SOL_SOCKET, SO_SNDBUF, &little,
				sizeof(little)));
		T_OK(setsockopt(s->e.peer, SOL_SOCKET, SO_RCVBUF, &little,
				sizeof(little)));
	}
	attach(s, pair[0], how & 2);
	if (!s->accepts && how & 2)
		listen_for_strangers(s);
}

static void end(struct scene *s)
{
	exi_bound_end(&s->board, s->e.peer);
	close(s->link);
	for (int i = 0; i < STRANGERS; i++)
		if (s->strangers[i] >= 0)
			close(s->strangers[i]);
	serve(s);
	t_recv(s->e.s, buf, BUF, MSG_DONTWAIT);
	if (s->answer_fd >= 0)
		close(s->answer_fd);
	fuzz_ends_end(&s->e);
	fuzz_segment_free(s->peer);
	no_room = false;
	keeps_nothing();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	struct scene s;

	begin(&s, &in);
	while (in.left) {
		switch (fuzz_byte(&in) % 7) {
		case 0:
		case 1:
			go_on(&s);
			serve(&s);
			break;
		case 2:
			hear(&s);
			say_anything(&s, &in);
			serve(&s);
			break;
		case 3:
			hear(&s);
			say_anything(&s, &in);
			break;
		case 4:
			carry(&s, &in);
			break;
		case 6:
			be_strange(&s, &in);
			serve(&s);
			break;
		default:
			work(&s, &in);
		}
	}
	end(&s);
	return 0;
}
