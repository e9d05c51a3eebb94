/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that are slow to close. A TCP socket with unsent bytes and
 * SO_LINGER holds up whoever drops its last reference, for as long as it says:
 * a stranger or a peer sends such a one to every name and link of the library,
 * and keeps no copy. Nobody waits for it. Each row runs twice, the second time
 * without SO_PASSRIGHTS, as before Linux 6.16. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "core/base/fds.h"
#include "core/base/proof.h"
#include "core/base/rights.h"
#include "core/link/control.h"
#include "core/meet/find.h"
#include "core/meet/pair.h"
#include "core/sock/closing.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "tests/api/meet.h"
#include "tests/fault/link.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define LINGER_S 100 /* longer than any row may take */
#define BOUND_MS 1000
#define MANY	 40

/* The kernel does not know SO_PASSRIGHTS, in this process and its children. */
static void be_older(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOL_SOCKET, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_PASSRIGHTS, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = T_COUNT(code), .filter = code };

	T_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	T_OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

/* Starts a peer and tells it the port of the listener that is returned. */
static int listen_for(struct t_peer *p, void (*f)(int ctl, void *arg))
{
	struct t_addr at;
	int l;

	t_peer_start(p, f, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(p->ctl, (uint64_t)t_port_of(l));
	return l;
}

/* --- the slow descriptor, and how it is sent ------------------------------ */

/* The port of a plain socket. */
static int port_of(int s)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);

	T_OK(getsockname(s, (struct sockaddr *)&at, &len));
	return ntohs(at.sin_port);
}

static int slow_socket(void)
{
	struct linger l = { .l_onoff = 1, .l_linger = LINGER_S };
	static char bytes[65536];
	struct t_addr at = t_loopback(T_IPV4, 0);
	int listener = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int small = 4096, s;

	T_OK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small,
			sizeof(small)));
	T_OK(bind(listener, (struct sockaddr *)&at.ss, at.len));
	T_OK(listen(listener, 1));
	at = t_loopback(T_IPV4, port_of(listener));
	s = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)));
	T_OK(connect(s, (struct sockaddr *)&at.ss, at.len));
	T_OK(accept(listener, NULL, NULL)); /* and is never read */
	close(listener);
	while (send(s, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	T_OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	return s;
}

/* A process that ends does not linger: so a child sends them once they are
 * closed here, and ends. The result of sendmsg(), 0 or -errno. */
static int send_slow(int s, const struct meet_name *to, const void *buf,
		     size_t len, unsigned int n)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int) * MANY)];
	} room = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf,
			     .iov_len = len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &room,
			    .msg_controllen = CMSG_SPACE(sizeof(int) * n) };
	int fds[MANY], status, go[2];
	pid_t pid;

	if (to) {
		m.msg_name = (void *)(uintptr_t)&to->un;
		m.msg_namelen = to->len;
	}
	for (unsigned int i = 0; i < n; i++)
		fds[i] = slow_socket();
	room.head.cmsg_level = SOL_SOCKET;
	room.head.cmsg_type = SCM_RIGHTS;
	room.head.cmsg_len = CMSG_LEN(sizeof(int) * n);
	memcpy(CMSG_DATA(&room.head), fds, sizeof(int) * n);
	T_OK(pipe2(go, O_CLOEXEC));
	pid = t_fork();
	if (!pid) {
		close(go[1]);
		T_EQ(read(go[0], &(char){ 0 }, 1), 0);
		status = sendmsg(s, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0;
		_exit(status ? errno : 0);
	}
	for (unsigned int i = 0; i < n; i++)
		close(fds[i]);
	close(go[0]);
	close(go[1]);
	T_EQ(waitpid(pid, &status, 0), pid);
	T(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

#define WITHIN(call)                                                           \
	do {                                                                   \
		int64_t t_ = t_now_ns();                                       \
		call;                                                          \
		t_ = (t_now_ns() - t_) / 1000000;                              \
		T_MSG(t_ < BOUND_MS * t_slow(), "%s took %lld ms", #call,      \
		      (long long)t_);                                          \
	} while (0)

static void fork_and_wait(void)
{
	t_join(t_fork() ?: (_exit(0), 0));
}

/* The service thread is not held up: somebody is met. */
static void is_served(void)
{
	int fd[2];

	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_close(fd[0]);
	t_close(fd[1]);
}

/* --- a marker ------------------------------------------------------------- */

static void sends_to_marker(int ctl, void *arg)
{
	int s = T_OK(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	struct meet_name name;

	t_become_nobody();
	name = meet_marker((int)t_ask(ctl));
	T_EQ(send_slow(s, &name, "x", 1, 1), -EPIPE);
	t_tell(ctl, 1);
}

static void at_a_marker(void)
{
	struct t_peer p;
	int l;

	l = listen_for(&p, sends_to_marker);
	t_expect(p.ctl, 1);
	WITHIN(t_close(l));
	t_peer_join(&p);
}

/* --- a meeting name ------------------------------------------------------- */

/* A plain server whose marker this stranger has; one candidate with each
 * message, and one that sends nothing more. */
static void visits(int ctl, void *arg)
{
	struct t_addr at;
	unsigned int n = *(unsigned int *)arg;
	struct exi_pair_msg hello = { .magic = EXI_PAIR_MAGIC,
				      .version = EXI_PAIR_VERSION,
				      .type = EXI_PAIR_HELLO };
	int port_a, port_b, s;

	t_become_nobody();
	t_plain_listener(&at);
	port_b = t_port(&at);
	T_OK(meet_claim_marker(port_b));
	t_tell(ctl, (uint64_t)port_b);
	port_a = (int)t_ask(ctl);
	for (int i = 0; i < 3; i++) {
		s = meet_connect(port_a, port_b);
		send_slow(s, NULL, i ? (const void *)&hello : "", i * 96u / 2u,
			  n);
		send_slow(s, NULL, &hello, sizeof(hello), n);
	}
	t_tell(ctl, 1);
	t_expect(ctl, 2);
}

static void at_a_meeting(unsigned int n)
{
	struct t_peer p;
	struct t_addr to;
	char byte = 0;
	int s;

	t_peer_start(&p, visits, &n);
	t_init();
	to = t_loopback(T_IPV4, (int)t_ask(p.ctl));
	s = t_connect(&to);
	t_tell(p.ctl, (uint64_t)t_port_of(s));
	t_send_stream(s, 1, 0, 3000, 3000);
	t_expect(p.ctl, 1);
	T_EQ(t_send(s, &byte, 1, 0), 1);
	WITHIN(fork_and_wait());
	WITHIN(t_close(s));
	WITHIN(fork_and_wait());
	is_served();
	t_tell(p.ctl, 2);
	t_peer_join(&p);
}

static void with_a_candidate(void)
{
	at_a_meeting(1);
}

static void with_too_many(void)
{
	at_a_meeting(MANY);
}

/* A plain end A that listens where B looks, by the link on which B comes. Its
 * user is B's, or B would not look at what it says. */
static int link_from_b(int ctl)
{
	int port_b = (int)t_ask(ctl), s, name;
	struct t_addr to = t_loopback(T_IPV4, port_b);

	s = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(connect(s, (struct sockaddr *)&to.ss, to.len));
	exi_proof_sign(s);
	name = T_OK(meet_claim_meeting(port_of(s), port_b));
	T_EQ(send(s, (char[3000]){ 0 }, 3000, 0), 3000);
	T(t_readable(name, 10000 * t_slow()));
	return T_OK(accept(name, NULL, NULL));
}

/* An A that has sent before B says anything. */
static void waits_for_b(int ctl, void *arg)
{
	int link = link_from_b(ctl);

	send_slow(link, NULL, "", 0, 1);
	send_slow(link, NULL, "x", 1, 2);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
}

static void at_a_listener(void)
{
	struct t_peer p;
	int l, s;

	l = listen_for(&p, waits_for_b);
	s = t_accept(l);
	t_recv_all(s, (char[3000]){ 0 }, 3000);
	t_expect(p.ctl, 1);
	WITHIN(t_close(s));
	is_served();
	t_tell(p.ctl, 2);
	t_close(l);
	t_peer_join(&p);
}

/* An A whose OFFER has more than its segment. */
static void offers_too_much(int ctl, void *arg)
{
	struct exi_pair_msg offer = { .magic = EXI_PAIR_MAGIC,
				      .version = EXI_PAIR_VERSION,
				      .type = EXI_PAIR_OFFER };
	int link = link_from_b(ctl);
	struct meet_msg m;

	T(meet_hear(link, MEET_HELLO, &m));
	meet_say(link, MEET_HELLO, m.a, 1, 0, NULL);
	T(meet_hear(link, MEET_PROVED, &m));
	T_EQ(send_slow(link, NULL, &offer, sizeof(offer), 3), 0);
	t_tell(ctl, 1);
	t_expect(ctl, 2);
}

static void in_an_offer(void)
{
	struct t_peer p;
	int l, s;

	l = listen_for(&p, offers_too_much);
	s = t_accept(l);
	t_recv_all(s, (char[3000]){ 0 }, 3000);
	t_expect(p.ctl, 1);
	T_UNTIL(t_is(s, T_TCP(EXS_X_REASON_PROTOCOL)));
	WITHIN(t_close(s));
	is_served();
	t_tell(p.ctl, 2);
	t_close(l);
	t_peer_join(&p);
}

/* --- a link that is up ---------------------------------------------------- */

static void met_and_sends(int ctl, void *arg)
{
	struct exi_pair_msg m = { .magic = EXI_PAIR_MAGIC,
				  .version = EXI_PAIR_VERSION,
				  .type = EXI_PAIR_GO };
	struct t_addr to = t_loopback(T_IPV4, (int)t_ask(ctl));
	int s, link;

	t_init();
	s = t_connect(&to);
	t_settle(s, T_SHM);
	t_expect(ctl, 1);
	link = t_link_of(s);
	for (int i = 0; i < 5; i++) {
		send_slow(link, NULL, &m, sizeof(m), 1);
		send_slow(link, NULL, "", i & 1, 1);
	}
	t_tell(ctl, 2);
	t_expect(ctl, 3);
	close(link);
}

static void on_a_link(void)
{
	struct t_peer p;
	struct t_addr at;
	int l, s, good[2];

	t_peer_start(&p, met_and_sends, NULL);
	t_init();
	t_pair(T_IPV4, good);
	t_settle_pair(good[0], good[1], T_SHM);
	l = t_listener(T_IPV4, &at);
	t_tell(p.ctl, (uint64_t)t_port_of(l));
	s = t_accept(l);
	t_settle(s, T_SHM);
	t_tell(p.ctl, 1);
	t_expect(p.ctl, 2);
	WITHIN((t_send_stream(good[0], 3, 0, 1000, 1000),
		t_recv_stream(good[1], 3, 0, 1000, 1000)));
	WITHIN(fork_and_wait());
	WITHIN(t_close(s));
	is_served();
	t_tell(p.ctl, 3);
	t_close(good[0]);
	t_close(good[1]);
	t_close(l);
	t_peer_join(&p);
}

/* --- a keeper ------------------------------------------------------------- */

/* A stranger finds it in /proc/net/unix. */
static struct meet_name name_of_keeper(uint64_t number)
{
	struct meet_name ret = { .un.sun_family = AF_UNIX };
	int n = snprintf(ret.un.sun_path + 1, sizeof(ret.un.sun_path) - 1,
			 "libexs/1/keeper/%016llx", (unsigned long long)number);

	ret.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
	return ret;
}

static void sends_to_keeper(int ctl, void *arg)
{
	int s = T_OK(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	struct meet_name name = name_of_keeper(t_ask(ctl));

	/* Where the kernel drops it in the sender's call the sender waits. */
	if (t_fork() == 0)
		send_slow(s, &name, (char[24]){ 0 }, 24, 1);
	else
		t_tell(ctl, 2);
	pause();
}

static void at_a_keeper(void)
{
	struct t_peer p;
	pid_t child;
	int fd[2];

	t_peer_start(&p, sends_to_keeper, NULL);
	t_init();
	t_pair(T_IPV4, fd);
	child = t_fork();
	if (!child) {
		pause();
		_exit(0);
	}
	t_settle_pair(fd[0], fd[1], T_SHM);
	t_tell(p.ctl, atomic_load(&exi_sock_find(fd[0])->sh->keeper));
	t_expect(p.ctl, 2);
	is_served();
	kill(child, SIGKILL);
	T_EQ(waitpid(child, NULL, 0), child);
	WITHIN(t_close(fd[0]));
	WITHIN(t_close(fd[1]));
	t_peer_kill(&p);
}

/* --- graves --------------------------------------------------------------- */

/* A thread of this process; 0: there is none. */
static int thread_named(const char *comm)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[300], name[32];
	struct dirent *e;
	int ret = 0;
	FILE *f;

	T(tasks);
	while (!ret && (e = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			 e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f)) {
			name[strcspn(name, "\n")] = 0;
			ret = strcmp(name, comm) ? 0 : atoi(e->d_name);
		}
		fclose(f);
	}
	closedir(tasks);
	return ret;
}

/* The socket of this process's grave, which is all that is in its table; 0:
 * none. */
static unsigned long inode_of_grave(void)
{
	char path[64], link[64] = "";
	unsigned long ret = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/fd/0",
		 thread_named("libexs-grave"));
	if (readlink(path, link, sizeof(link) - 1) < 0 ||
	    sscanf(link, "socket:[%lu]", &ret) != 1)
		return 0;
	return ret;
}

/* False: it has no name yet. */
static bool find_name(unsigned long inode, struct meet_name *ret)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[300], *at = NULL;
	unsigned long n;

	T(f);
	*ret = (struct meet_name){ .un.sun_family = AF_UNIX };
	while (!at && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu", &n) == 1 &&
		    n == inode)
			at = strchr(line, '@');
	fclose(f);
	if (!at)
		return false;
	at[strcspn(at, "\n")] = 0;
	memcpy(ret->un.sun_path + 1, at + 1, strlen(at + 1));
	ret->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
			       strlen(at));
	return true;
}

static void floods_a_grave(int ctl, void *arg)
{
	int s = T_OK(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	const int *buried = arg;
	struct meet_name name;
	unsigned long inode;

	t_become_nobody();
	close(buried[1]); /* or its close would be no last one */
	T_EQ(send_slow(buried[0], NULL, "", 1, 1), 0);
	t_tell(ctl, 1);
	inode = t_ask(ctl);
	T_UNTIL(find_name(inode, &name));
	T_EQ(send_slow(s, &name, "12345678", 8, 1), 0);
	for (int i = 0; i < 2000; i++)
		sendto(s, "12345678", 8, MSG_DONTWAIT,
		       (struct sockaddr *)&name.un, name.len);
	t_tell(ctl, 2);
	pause();
}

/* Strangers see its name. The thread that fills it is kept waiting while it is
 * open, so that they have the time. */
static void a_grave_that_strangers_flood_is_one(void)
{
	unsigned long inode;
	struct t_peer p;
	int pair[2];

	T_OK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair));
	t_peer_start(&p, floods_a_grave, pair);
	t_init();
	is_served(); /* so the service runs */
	t_expect(p.ctl, 1);
	pair[1] = T_OK(exi_fd_keep(pair[1]));
	T(exi_fds_freeze());
	exi_closing_socket(pair[1], false);
	exi_closing_work();
	T_UNTIL((inode = inode_of_grave()));
	t_tell(p.ctl, inode);
	t_expect(p.ctl, 2);
	T(thread_named("libexs-closer"));
	exi_fds_thaw();
	WITHIN(T_UNTIL(!thread_named("libexs-closer")));
	close(pair[0]);
	t_peer_kill(&p);
}

/* --- where a segment belongs ---------------------------------------------- */

/* A, of another user than root: what it passes is no memory. */
static void passes_a_file(int ctl, void *arg)
{
	struct exi_pair_msg offer = { .magic = EXI_PAIR_MAGIC,
				      .version = EXI_PAIR_VERSION,
				      .type = EXI_PAIR_OFFER,
				      .a = 1 };
	struct t_addr to;
	struct meet_msg m;
	int port_b, s, link;

	T_OK(setresuid(1, 1, 1));
	port_b = (int)t_ask(ctl);
	to = t_loopback(T_IPV4, port_b);
	for (int i = 0; i < 2; i++) {
		s = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
		T_OK(connect(s, (struct sockaddr *)&to.ss, to.len));
		exi_proof_sign(s);
		link = T_OK(meet_claim_meeting(port_of(s), port_b));
		T_EQ(send(s, (char[3000]){ 0 }, 3000, 0), 3000);
		T(t_readable(link, 10000 * t_slow()));
		link = T_OK(accept(link, NULL, NULL));
		T_EQ(meet_hear(link, MEET_HELLO, &m), i == 0);
		if (i == 0) {
			meet_say(link, MEET_HELLO, m.a, 1, 0, NULL);
			T(meet_hear(link, MEET_PROVED, &m));
			T(meet_send(link, &offer, sizeof(offer),
				    T_OK(open("/dev/null", O_RDONLY))));
			T(!meet_hear(link, MEET_ANSWER, &m));
		}
		t_expect(ctl, 1);
	}
}

static void who_passes_a_file_does_it_once(void)
{
	struct t_peer p;
	struct t_addr at;
	int l, i, s;

	t_need_root("become another user");
	t_peer_start(&p, passes_a_file, NULL);
	t_init();
	l = t_listener(T_IPV4, &at);
	t_tell(p.ctl, (uint64_t)t_port_of(l));
	for (i = 0; i < 2; i++) {
		s = t_accept(l);
		t_recv_all(s, (char[3000]){ 0 }, 3000);
		T_UNTIL(t_info(s).exs_x_reason ==
			(i ? EXS_X_REASON_TIMEOUT : EXS_X_REASON_PROTOCOL));
		t_tell(p.ctl, 1);
		t_close(s);
	}
	t_close(l);
	t_peer_join(&p);
}

/* --- at the limit of descriptors ------------------------------------------ */

static void sends_before_it_is_accepted(int ctl, void *arg)
{
	struct meet_name name = { .un.sun_family = AF_UNIX };
	int s = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));

	snprintf(name.un.sun_path + 1, 32, "slow-test/%d", (int)t_ask(ctl));
	name.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			       strlen(name.un.sun_path + 1));
	T_OK(connect(s, (struct sockaddr *)&name.un, name.len));
	T_EQ(send_slow(s, NULL, "", 1, 1), 0);
	t_tell(ctl, 1);
	pause();
}

/* The library has no number for it. */
static void what_is_refused_is_not_waited_for(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int n = snprintf(at.sun_path + 1, 32, "slow-test/%d", getpid()), l;
	struct rlimit old, small;
	struct t_peer p;

	t_peer_start(&p, sends_before_it_is_accepted, NULL);
	t_init();
	is_served(); /* so the service runs */
	l = T_OK(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	T_OK(bind(l, (struct sockaddr *)&at,
		  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			      (size_t)n)));
	T_OK(listen(l, 1));
	t_tell(p.ctl, (uint64_t)getpid());
	t_expect(p.ctl, 1);
	T_OK(getrlimit(RLIMIT_NOFILE, &old));
	small = old;
	small.rlim_cur = 4 * exi_fd_kept();
	T(small.rlim_cur > 20);
	T_OK(setrlimit(RLIMIT_NOFILE, &small));
	WITHIN(T_EQ(exi_closing_accept(l, false), -ENOSPC));
	T_OK(setrlimit(RLIMIT_NOFILE, &old));
	close(l);
	t_peer_kill(&p);
}

/* --- packets without end -------------------------------------------------- */

/* As many as there is room for, all the time. */
static void met_and_floods(int ctl, void *arg)
{
	struct t_addr to = t_loopback(T_IPV4, (int)t_ask(ctl));
	struct pollfd p = { .fd = ctl, .events = POLLIN };
	int s, link;

	t_init();
	s = t_connect(&to);
	t_settle(s, T_SHM);
	t_expect(ctl, 1);
	link = t_link_of(s);
	while (poll(&p, 1, 0) == 0)
		for (int i = 0; i < 1000; i++)
			send(link, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(link);
}

static void be_flooded(void)
{
	struct exi_sock *sk;
	struct t_peer p;
	uint64_t seen, most = 0, all = 0;
	int l, s;

	l = listen_for(&p, met_and_floods);
	s = t_accept(l);
	t_settle(s, T_SHM);
	/* This thread reads alone: the service is not started again. */
	T(exi_service_stop());
	t_refuse(SYS_clone3);
	t_refuse(SYS_clone);
	t_tell(p.ctl, 1);
	sk = exi_sock_find(s);
	seen = __atomic_load_n(&sk->sh->bells_received, __ATOMIC_SEQ_CST);
	while (all < 100000) {
		uint64_t now;

		exi_link_event(sk, EPOLLIN);
		now = __atomic_load_n(&sk->sh->bells_received,
				      __ATOMIC_SEQ_CST);
		most = now - seen > most ? now - seen : most;
		all += now - seen;
		seen = now;
	}
	T_MSG(most <= 16, "%llu packets in one call", (unsigned long long)most);
	t_tell(p.ctl, 2);
	t_peer_join(&p);
	t_close(s);
	t_close(l);
}

/* In a process of its own, which leaves at once: what a sanitizer looks for at
 * the end needs threads. */
static void a_flood_ends_no_call(void)
{
	pid_t pid = t_fork();

	if (!pid) {
		be_flooded();
		_exit(0);
	}
	t_join(pid);
}

static const struct t_row rows[] = {
	T_ROW(at_a_marker),
	T_ROW(with_a_candidate),
	T_ROW(with_too_many),
	T_ROW(at_a_listener),
	T_ROW(in_an_offer),
	T_ROW(on_a_link),
	T_ROW(at_a_keeper),
	T_ROW(a_flood_ends_no_call),
	T_ROW(a_grave_that_strangers_flood_is_one),
	T_ROW(what_is_refused_is_not_waited_for),
	T_ROW(who_passes_a_file_does_it_once),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "shm,tcp", 1);
	/* What peers break is worth a warning: not here. */
	setenv("EXS_LOG", "off", 0);
	if (argc > 1 && !strcmp(argv[1], "older")) {
		be_older();
		argv++;
		argc--;
	}
	return t_run("slow", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
