/* SPDX-License-Identifier: BSD-2-Clause */
/* The proof that names its link, both ends in one process: it holds on one link
 * and not on two, and leaves the options of TCP as they were. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/base/diag.h"
#include "core/base/fds.h"
#include "core/base/hash.h"
#include "core/base/proof.h"
#include "core/meet/bound.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/run.h"

/* --- the digest ----------------------------------------------------------- */

static void is_digest(const char *text, size_t n, const char *want)
{
	uint8_t d[EXI_SHA256];
	char hex[2 * EXI_SHA256 + 1];
	unsigned int i;

	exi_sha256(text, n, d);
	for (i = 0; i < EXI_SHA256; i++)
		snprintf(hex + 2 * i, 3, "%02x", d[i]);
	assert_string_equal(hex, want);
}

/* The examples of FIPS 180-4, and the digest of nothing. */
static void digests_are_those_of_the_standard(void **state)
{
	char *a = malloc(1000000);

	is_digest("", 0,
		  "e3b0c44298fc1c149afbf4c8996fb924"
		  "27ae41e4649b934ca495991b7852b855");
	is_digest("abc", 3,
		  "ba7816bf8f01cfea414140de5dae2223"
		  "b00361a396177a9cb410ff61f20015ad");
	is_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  56,
		  "248d6a61d20638b8e5c026930c3e6039"
		  "a33ce45964ff2167f6ecedd419db06c1");
	memset(a, 'a', 1000000);
	is_digest(a, 1000000,
		  "cdc76e5c9914fb9281a1c7e284d73e67"
		  "f1809a48a497200e046d39ccc7112cd0");
	free(a);
}

/* --- another network namespace -------------------------------------------- */

static void bring_up_loopback(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int s = T_OK(socket(AF_INET, SOCK_DGRAM, 0));

	T_OK(ioctl(s, SIOCSIFFLAGS, &lo));
	close(s);
}

/* A connection of the same addresses and ports. */
static void make_twin(const struct exi_tuple *t)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(t->peer_port),
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int l = T_OK(socket(AF_INET, SOCK_STREAM, 0));
	int s = T_OK(socket(AF_INET, SOCK_STREAM, 0));

	T_OK(bind(l, (struct sockaddr *)&a, sizeof(a)));
	T_OK(listen(l, 1));
	a.sin_port = htons(t->local_port);
	T_OK(bind(s, (struct sockaddr *)&a, sizeof(a)));
	a.sin_port = htons(t->peer_port);
	T_OK(connect(s, (struct sockaddr *)&a, sizeof(a)));
	T_OK(accept(l, NULL, NULL));
}

/* How the socket's own namespace is known: by its cookie, or, before Linux
 * 5.14, by the socket. */
static struct exi_tuple known_by_itself(int fd, struct exi_tuple t)
{
	t.netns = 0;
	t.cookie = exi_sock_cookie(fd);
	return t;
}

static void a_twin_in_another_namespace_is_not_the_peer(void **state)
{
	struct exi_tuple t, old;
	int fd[2], status;
	pid_t pid;

	t_plain_pair(fd);
	T_OK(exi_tuple_of(fd[0], &t));
	old = known_by_itself(fd[0], t);
	T_EQ(exi_proof_peer_here(&t), 0);
	T_EQ(exi_proof_peer_here(&old), 0);
	pid = T_OK(fork());
	if (pid == 0) {
		if (unshare(CLONE_NEWNET)) /* not root */
			_exit(errno == EPERM ? 0 : 1);
		T_EQ(exi_proof_peer_here(&t), -ENOENT);
		T_EQ(exi_proof_peer_here(&old), -ENOENT);
		bring_up_loopback();
		make_twin(&t);
		T_EQ(exi_proof_peer_here(&t), -ENOENT);
		T_EQ(exi_proof_peer_here(&old), -ENOENT);
		_exit(0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	close(fd[0]);
	close(fd[1]);
}

/* --- a device ------------------------------------------------------------- */

static void bind_to_loopback(int s)
{
	T_OK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
}

/* Another device may have a connection of the same addresses. */
static void an_end_that_is_bound_to_another_device_is_not_the_peer(void **state)
{
	int fd[2], link[2], who;
	struct exi_tuple t[2];

	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link));
	for (who = 0; who < 2; who++) {
		t_plain_pair(fd);
		bind_to_loopback(fd[who]);
		T_OK(exi_tuple_of(fd[0], &t[0]));
		T_OK(exi_tuple_of(fd[1], &t[1]));
		T_EQ(exi_proof_peer_here(&t[who]), -EOPNOTSUPP);
		T_EQ(exi_proof_same_user(&t[who], link[0]), -EOPNOTSUPP);
		T_EQ(exi_proof_peer_here(&t[!who]), -ENOENT);
		T_EQ(exi_proof_same_user(&t[!who], link[0]), -ENOENT);
		bind_to_loopback(fd[!who]);
		T_OK(exi_tuple_of(fd[!who], &t[!who]));
		T_EQ(exi_proof_peer_here(&t[0]), 0);
		/* Neither has the sign yet. */
		T_EQ(exi_proof_same_user(&t[0], link[0]), -EPERM);
		exi_proof_sign(fd[1]);
		T_EQ(exi_proof_same_user(&t[0], link[0]), 0);
		T_EQ(exi_proof_same_user(&t[1], link[0]), -EPERM);
		exi_proof_sign(fd[0]);
		T_EQ(exi_proof_same_user(&t[1], link[0]), 0);
		close(fd[0]);
		close(fd[1]);
	}
	close(link[0]);
	close(link[1]);
}

/* --- a connection that takes the place ------------------------------------ */

static int connect_from(int port, const struct sockaddr_in *to)
{
	struct sockaddr_in from = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				    .sin_port = htons((uint16_t)port) };
	int s = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), on = 1;

	T_OK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	T_OK(bind(s, (struct sockaddr *)&from, sizeof(from)));
	T_OK(connect(s, (const struct sockaddr *)to, sizeof(*to)));
	return s;
}

static int port_of(int s)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);

	T_OK(getsockname(s, (struct sockaddr *)&at, &len));
	return ntohs(at.sin_port);
}

/* The other end is reset, and a stranger connects from its address, after this
 * end has looked at its addresses. */
static void who_takes_a_reset_peers_addresses_is_not_the_peer(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct linger now = { .l_onoff = 1 };
	int a, b, stranger, other, link[2];
	struct exi_tuple t;

	T_OK(bind(l, (struct sockaddr *)&at, sizeof(at)));
	T_OK(listen(l, 2));
	at.sin_port = htons((uint16_t)port_of(l));
	a = connect_from(0, &at);
	b = T_OK(accept(l, NULL, NULL));
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link));
	exi_proof_sign(a);
	T_OK(exi_tuple_of(b, &t));
	T_EQ(exi_proof_peers_user(&t, b, link[0]), 0);
	T_OK(setsockopt(a, SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
	close(a);
	stranger = connect_from(t.peer_port, &at);
	exi_proof_sign(stranger);
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	T_EQ(exi_proof_peers_user(&t, b, link[0]), -ENOTCONN);
	other = T_OK(accept(l, NULL, NULL));
	T_EQ(exi_proof_peers_user(&t, other, link[0]), 0);
	close(l);
	close(b);
	close(other);
	close(stranger);
	close(link[0]);
	close(link[1]);
}

/* A peer that only closes keeps its addresses until this end has closed, too:
 * nobody connects from them. */
static void who_has_closed_keeps_its_addresses(void **state)
{
	int fd[2], link[2];
	struct exi_tuple t;

	t_plain_pair(fd);
	exi_proof_sign(fd[0]);
	T_OK(exi_tuple_of(fd[1], &t));
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link));
	close(fd[0]);
	T_EQ(exi_proof_peers_user(&t, fd[1], link[0]), -ENOTCONN);
	close(fd[1]);
	close(link[0]);
	close(link[1]);
}

/* --- the socket by which is asked ----------------------------------------- */

static void a_question_leaves_one_socket_that_the_next_one_uses(void **state)
{
	unsigned int kept;
	struct exi_tuple t;
	int fd[2], i;

	t_plain_pair(fd);
	T_OK(exi_tuple_of(fd[0], &t));
	T_EQ(exi_proof_peer_here(&t), 0);
	kept = exi_fd_kept();
	for (i = 0; i < 20; i++)
		T_EQ(exi_proof_peer_here(&t), 0);
	T_EQ(exi_fd_kept(), kept);
	close(fd[0]);
	close(fd[1]);
}

static int netlink_socket(void)
{
	for (int fd = 3; fd < 65536; fd++) {
		int family = 0;
		socklen_t len = sizeof(family);

		if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) &&
		    family == AF_NETLINK)
			return fd;
	}
	fail_msg("no socket was kept");
	return -1;
}

static void a_program_may_close_it_and_use_the_number(void **state)
{
	int fd[2], pair[2], kept;
	struct exi_tuple t;
	char byte;

	t_plain_pair(fd);
	T_OK(exi_tuple_of(fd[0], &t));
	T_EQ(exi_proof_peer_here(&t), 0);
	kept = netlink_socket();
	T_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	T_OK(dup2(pair[0], kept));
	T_EQ(exi_proof_peer_here(&t), 0);
	T_EQ(recv(pair[1], &byte, 1, MSG_DONTWAIT), -1);
	T_EQ(exi_sock_cookie(kept), exi_sock_cookie(pair[0]));
	close(kept);
	close(pair[0]);
	close(pair[1]);
	close(fd[0]);
	close(fd[1]);
}

static int ask_often(const struct exi_tuple *t, int answer)
{
	for (int i = 0; i < 5000; i++)
		if (exi_proof_peer_here(t) != answer)
			return 1;
	return 0;
}

static void a_forked_child_does_not_take_the_answers(void **state)
{
	struct exi_tuple t, none;
	int fd[2], status;
	pid_t pid;

	t_plain_pair(fd);
	T_OK(exi_tuple_of(fd[0], &t));
	none = t;
	none.peer_port = 1;
	T_EQ(exi_proof_peer_here(&t), 0);
	pid = T_OK(fork());
	if (pid == 0)
		_exit(ask_often(&none, -ENOENT));
	T_EQ(ask_often(&t, 0), 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	close(fd[0]);
	close(fd[1]);
}

static int map_user(uid_t inside, uid_t outside)
{
	int fd = open("/proc/self/uid_map", O_WRONLY), ret;

	ret = dprintf(fd, "%u %u 1", inside, outside);
	close(fd);
	return ret;
}

static void users_are_named_as_the_asking_thread_names_them(void **state)
{
	int fd[2], link[2], status;
	uid_t self = geteuid();
	struct exi_tuple t;
	pid_t pid;

	t_plain_pair(fd);
	exi_proof_sign(fd[1]);
	T_OK(exi_tuple_of(fd[0], &t));
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link));
	pid = T_OK(fork());
	if (pid == 0) {
		T_EQ(exi_proof_peer_here(&t), 0);
		T_EQ(exi_proof_same_user(&t, link[0]), 0);
		if (unshare(CLONE_NEWUSER) || map_user(self + 5, self) < 0)
			_exit(0); /* not allowed here */
		T_EQ(exi_proof_same_user(&t, link[0]), 0);
		_exit(0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	close(link[0]);
	close(link[1]);
	close(fd[0]);
	close(fd[1]);
}

/* A question for users makes no socket where the process has kept its user
 * namespace since the kept one was made. */
static void ask_for_users(void)
{
	int fd[2], link[2];
	uid_t self = geteuid();
	struct exi_tuple t;
	struct rlimit had;

	t_plain_pair(fd);
	exi_proof_sign(fd[1]);
	T_OK(exi_tuple_of(fd[0], &t));
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link));
	T_OK(getrlimit(RLIMIT_NOFILE, &had));
	T_EQ(exi_proof_peer_here(&t), 0);
	exi_diag_threaded(true);
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	T_OK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, had.rlim_max }));
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	exi_diag_threaded(false);
	T_EQ(exi_proof_peer_here(&t), 0);
	T_EQ(exi_proof_same_user(&t, link[0]), -EMFILE);
	T_OK(setrlimit(RLIMIT_NOFILE, &had));
	if (unshare(CLONE_NEWUSER) || map_user(self + 5, self) < 0)
		_exit(0); /* not allowed here */
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	exi_diag_threaded(true);
	T_EQ(exi_proof_same_user(&t, link[0]), 0);
	_exit(0);
}

static void users_are_asked_for_by_a_kept_socket(void **state)
{
	int status;
	pid_t pid = T_OK(fork());

	if (pid == 0)
		ask_for_users();
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
}

/* --- a connection, and who talks about it --------------------------------- */

struct ends {
	int tcp[2]; /* A, B */
	struct exi_tuple t[2];
	int near[2]; /* one link: ours at A, and at B */
	int far[2];  /* another */
};

static void make(struct ends *e)
{
	t_plain_pair(e->tcp);
	assert_int_equal(exi_tuple_of(e->tcp[0], &e->t[0]), 0);
	assert_int_equal(exi_tuple_of(e->tcp[1], &e->t[1]), 0);
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, e->near));
	T_OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, e->far));
}

static void unmake(struct ends *e)
{
	int i;

	for (i = 0; i < 2; i++) {
		close(e->tcp[i]);
		close(e->near[i]);
		close(e->far[i]);
	}
}

/* 0, or the first error of either end: links as A and B have them. What goes
 * between them is passed on as it is. */
static int prove(struct ends *e, int link_a, int link_b)
{
	uint8_t promise[EXI_SHA256], nonce_a[EXI_BOUND_NONCE],
		nonce_b[EXI_BOUND_NONCE];
	struct exi_bound a, b;
	unsigned int i;
	int err;

	assert_int_equal(exi_bound_promise(&b, promise), 0);
	assert_int_equal(exi_bound_answer(&a, e->tcp[0], promise, nonce_a), 0);
	assert_int_equal(exi_bound_open(&b, e->tcp[1], link_b, &e->t[1],
					nonce_a, nonce_b),
			 0);
	assert_int_equal(exi_bound_show(&b, e->tcp[1], 0), 0);
	err = exi_bound_opened(&a, link_a, &e->t[0], nonce_b);
	for (i = 0; !err && i < EXI_BOUND_SYMBOLS; i++) {
		err = exi_bound_check(&a, &e->t[0]);
		if (!err)
			err = exi_bound_show(&a, e->tcp[0], i);
		if (!err)
			err = exi_bound_check(&b, &e->t[1]);
		if (!err && i + 1 < EXI_BOUND_SYMBOLS)
			err = exi_bound_show(&b, e->tcp[1], i + 1);
	}
	exi_bound_end(&a, e->tcp[0]);
	exi_bound_end(&b, e->tcp[1]);
	return err;
}

static void it_holds_on_one_link(void **state)
{
	struct ends e;
	int i;

	for (i = 0; i < 50; i++) {
		make(&e);
		assert_int_equal(prove(&e, e.near[0], e.near[1]), 0);
		unmake(&e);
	}
}

static void it_fails_on_two_links(void **state)
{
	struct ends e;
	int i;

	for (i = 0; i < 200; i++) {
		make(&e);
		assert_int_equal(prove(&e, e.near[0], e.far[1]), -EPERM);
		unmake(&e);
	}
}

/* Whoever passes on what B says has a link to A, and may choose its name, but
 * not the one that B has. */
static void no_other_link_has_the_name_of_b(void **state)
{
	uint8_t promise[EXI_SHA256], nonce_a[EXI_BOUND_NONCE],
		nonce_b[EXI_BOUND_NONCE];
	struct exi_bound a, b, thief;
	struct ends e;

	make(&e);
	assert_int_equal(exi_bound_promise(&b, promise), 0);
	assert_int_equal(exi_bound_answer(&a, e.tcp[0], promise, nonce_a), 0);
	assert_int_equal(exi_bound_open(&b, e.tcp[1], e.far[1], &e.t[1],
					nonce_a, nonce_b),
			 0);
	thief = b;
	assert_int_equal(exi_bound_open(&thief, e.tcp[1], e.near[1], &e.t[1],
					nonce_a, nonce_b),
			 -EADDRINUSE);
	assert_int_equal(exi_bound_opened(&a, e.near[0], &e.t[0], nonce_b),
			 -EPERM);
	assert_int_equal(exi_bound_opened(&a, e.far[0], &e.t[0], nonce_b), 0);
	exi_bound_end(&a, e.tcp[0]);
	exi_bound_end(&b, e.tcp[1]);
	unmake(&e);
}

static void another_nonce_than_was_promised_is_refused(void **state)
{
	uint8_t promise[EXI_SHA256], nonce[EXI_BOUND_NONCE];
	uint8_t nonce_b[EXI_BOUND_NONCE];
	struct exi_bound a, b;
	struct ends e;

	make(&e);
	assert_int_equal(exi_bound_promise(&b, promise), 0);
	assert_int_equal(exi_bound_answer(&a, e.tcp[0], promise, nonce), 0);
	assert_int_equal(exi_bound_open(&b, e.tcp[1], e.near[1], &e.t[1], nonce,
					nonce_b),
			 0);
	assert_int_equal(exi_bound_opened(&a, e.near[0], &e.t[0], b.nonce), 0);
	b.nonce[31] ^= 1;
	assert_int_equal(exi_bound_opened(&a, e.near[0], &e.t[0], b.nonce),
			 -EPERM);
	exi_bound_end(&a, e.tcp[0]);
	exi_bound_end(&b, e.tcp[1]);
	unmake(&e);
}

/* --- the options ---------------------------------------------------------- */

static int get(int fd, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	T_OK(getsockopt(fd, IPPROTO_IP, name, &v, &len));
	return v;
}

static void set(int fd, int name, int v)
{
	T_OK(setsockopt(fd, IPPROTO_IP, name, &v, sizeof(v)));
}

static void begin(struct ends *e, struct exi_bound *a)
{
	uint8_t promise[EXI_SHA256] = { 0 }, nonce[EXI_BOUND_NONCE];

	assert_int_equal(exi_bound_answer(a, e->tcp[0], promise, nonce), 0);
	memset(a->digest, 0x15, sizeof(a->digest));
	assert_int_equal(exi_bound_show(a, e->tcp[0], 0), 0);
	assert_int_equal(get(e->tcp[0], IP_FREEBIND), 1);
	assert_int_equal(get(e->tcp[0], IP_BIND_ADDRESS_NO_PORT), 0);
	assert_int_equal(get(e->tcp[0], IP_MULTICAST_LOOP), 1);
	assert_int_equal(get(e->tcp[0], IP_MULTICAST_ALL), 0);
}

static void options_are_what_they_were(void **state)
{
	struct exi_bound a;
	struct ends e;
	int i;

	make(&e);
	for (i = 0; i < 16; i++) {
		set(e.tcp[0], IP_FREEBIND, i & 1);
		set(e.tcp[0], IP_BIND_ADDRESS_NO_PORT, i >> 1 & 1);
		set(e.tcp[0], IP_MULTICAST_LOOP, i >> 2 & 1);
		set(e.tcp[0], IP_MULTICAST_ALL, i >> 3 & 1);
		begin(&e, &a);
		exi_bound_end(&a, e.tcp[0]);
		assert_int_equal(get(e.tcp[0], IP_FREEBIND), i & 1);
		assert_int_equal(get(e.tcp[0], IP_BIND_ADDRESS_NO_PORT),
				 i >> 1 & 1);
		assert_int_equal(get(e.tcp[0], IP_MULTICAST_LOOP), i >> 2 & 1);
		assert_int_equal(get(e.tcp[0], IP_MULTICAST_ALL), i >> 3 & 1);
	}
	unmake(&e);
}

static void what_the_program_sets_meanwhile_survives(void **state)
{
	struct exi_bound a;
	struct ends e;

	make(&e);
	set(e.tcp[0], IP_BIND_ADDRESS_NO_PORT, 0);
	begin(&e, &a);
	set(e.tcp[0], IP_BIND_ADDRESS_NO_PORT, 1);
	exi_bound_end(&a, e.tcp[0]);
	assert_int_equal(get(e.tcp[0], IP_BIND_ADDRESS_NO_PORT), 1);
	assert_int_equal(get(e.tcp[0], IP_FREEBIND), 0);
	unmake(&e);
}

/* The child's end of a proof that is its parent's changes nothing. */
static void a_forked_child_does_not_touch_the_board(void **state)
{
	struct exi_bound a;
	struct ends e;
	int status;
	pid_t pid;

	make(&e);
	begin(&e, &a);
	pid = fork();
	if (pid == 0) {
		a.process++; /* as exi_use_token() differs there */
		exi_bound_end(&a, e.tcp[0]);
		_exit(0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	assert_int_equal(get(e.tcp[0], IP_FREEBIND), 1);
	exi_bound_end(&a, e.tcp[0]);
	assert_int_equal(get(e.tcp[0], IP_FREEBIND), 0);
	unmake(&e);
}

/* Plain calls closed the descriptor, and its number is another socket's. */
static void another_socket_is_not_touched(void **state)
{
	struct exi_bound a;
	struct ends e;
	int other;

	make(&e);
	begin(&e, &a);
	other = T_OK(socket(AF_INET, SOCK_STREAM, 0));
	T_OK(dup2(other, e.tcp[0]));
	close(other);
	assert_int_equal(exi_bound_show(&a, e.tcp[0], 1), -EBADF);
	exi_bound_end(&a, e.tcp[0]);
	assert_int_equal(get(e.tcp[0], IP_FREEBIND), 0);
	assert_int_equal(get(e.tcp[0], IP_MULTICAST_ALL), 1);
	unmake(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(digests_are_those_of_the_standard),
		cmocka_unit_test(a_twin_in_another_namespace_is_not_the_peer),
		cmocka_unit_test(
			an_end_that_is_bound_to_another_device_is_not_the_peer),
		cmocka_unit_test(
			who_takes_a_reset_peers_addresses_is_not_the_peer),
		cmocka_unit_test(who_has_closed_keeps_its_addresses),
		cmocka_unit_test(
			a_question_leaves_one_socket_that_the_next_one_uses),
		cmocka_unit_test(a_program_may_close_it_and_use_the_number),
		cmocka_unit_test(a_forked_child_does_not_take_the_answers),
		cmocka_unit_test(
			users_are_named_as_the_asking_thread_names_them),
		cmocka_unit_test(users_are_asked_for_by_a_kept_socket),
		cmocka_unit_test(it_holds_on_one_link),
		cmocka_unit_test(it_fails_on_two_links),
		cmocka_unit_test(no_other_link_has_the_name_of_b),
		cmocka_unit_test(another_nonce_than_was_promised_is_refused),
		cmocka_unit_test(options_are_what_they_were),
		cmocka_unit_test(what_the_program_sets_meanwhile_survives),
		cmocka_unit_test(a_forked_child_does_not_touch_the_board),
		cmocka_unit_test(another_socket_is_not_touched),
	};

	if (!t_can(t_has_sock_diag(), "sock_diag"))
		return T_SKIP;
	return cmocka_run_group_tests_name("bound", tests, NULL, NULL);
}
