/* SPDX-License-Identifier: BSD-2-Clause */
/* Starting the library: nothing works before, the version is checked, and it
 * can be started again, in threads and after fork. */
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "tests/conformance/conf.h"

static void every_call_fails_with_enxio(void)
{
	int s = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), val = 0;
	struct t_addr at = t_loopback(T_IPV4, 0);
	struct sockaddr *addr = (struct sockaddr *)&at.ss;
	struct timeval none = { 0 };
	socklen_t len = sizeof(val);
	size_t size = sizeof(val);
	exs_x_sockinfo_t info;
	exs_msghdr_t msg = { 0 };
	exs_event_t e;
	char buf[8] = { 0 };
	const void *bytes;
	void *room;

	T_ERR(exs_qcreate(1), ENXIO);
	T_ERR(exs_qdelete(1), ENXIO);
	T_ERR(exs_qmodify(1, EXS_QATTR_DEPTH, &val, sizeof(val)), ENXIO);
	T_ERR(exs_qstatus(1, EXS_QATTR_DEPTH, &val, &size), ENXIO);
	T_ERR(exs_qdequeue(1, &e, 1, &none), ENXIO);
	T_ERR(exs_mregister(buf, sizeof(buf), 0), ENXIO);
	T_ERR(exs_mderegister(1, 0), ENXIO);
	T_ERR(t_send(s, buf, sizeof(buf), 0), ENXIO);
	T_ERR(t_recv(s, buf, sizeof(buf), 0), ENXIO);
	T_ERR(exs_sendmsg(s, &msg, 0, T_SYNC), ENXIO);
	T_ERR(exs_recvmsg(s, &msg, 0, T_SYNC), ENXIO);
	T_ERR(exs_sendfile(s, NULL, 0, 0, T_SYNC), ENXIO);
	T_ERR(exs_connect(s, addr, at.len, 0, T_SYNC), ENXIO);
	T_ERR(exs_accept(s, NULL, 0, T_SYNC), ENXIO);
	T_ERR(exs_poll(NULL, 0, 0, T_SYNC), ENXIO);
	T_ERR(exs_cancel(s, NULL, EXS_CAF_FILDES), ENXIO);
	T_ERR(exs_shutdown(s, SHUT_WR, T_SYNC), ENXIO);
	T_ERR(exs_close(s, T_SYNC), ENXIO);
	T_ERR(exs_socket(AF_INET, SOCK_STREAM, 0), ENXIO);
	T_ERR(exs_bind(s, addr, at.len), ENXIO);
	T_ERR(exs_listen(s, 1), ENXIO);
	T_ERR(exs_fcntl(s, F_GETFL), ENXIO);
	T_ERR(exs_getsockopt(s, SOL_SOCKET, SO_TYPE, &val, &len), ENXIO);
	T_ERR(exs_setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &val, len), ENXIO);
	T_ERR(exs_getsockname(s, addr, &at.len), ENXIO);
	T_ERR(exs_getpeername(s, addr, &at.len), ENXIO);
	T_ERR(exs_x_qfd(1), ENXIO);
	T_ERR(exs_x_submit(1, NULL, 0), ENXIO);
	T_ERR(exs_x_sockinfo(s, &info), ENXIO);
	T_ERR(exs_x_adopt(s), ENXIO);
	T_ERR(exs_x_downgrade(s), ENXIO);
	T_ERR(exs_x_recv_loan(s, &bytes, 0), ENXIO);
	T_ERR(exs_x_recv_return(s, 0), ENXIO);
	T_ERR(exs_x_send_loan(s, &room, 1, 0), ENXIO);
	T_ERR(exs_x_send_commit(s, 0, 0), ENXIO);
	close(s);
}

static void nothing_works_before_the_start(void)
{
	every_call_fails_with_enxio();
}

static void an_unknown_version_is_refused_and_starts_nothing(void)
{
	static const int wrong[] = { 0, -1, 2, 99, INT_MAX, INT_MIN };
	int i;

	for (i = 0; i < T_COUNT(wrong); i++)
		T_ERR(exs_init(wrong[i]), EPROTONOSUPPORT);
	every_call_fails_with_enxio();
	T_EQ(exs_init(EXS_VERSION), 0);
	T_ERR(exs_init(99), EPROTONOSUPPORT);
	T_OK(exs_qdelete(T_OK(exs_qcreate(1))));
}

static void starting_twice_is_the_same_as_once(void)
{
	exs_qhandle_t q;

	T_EQ(exs_init(EXS_VERSION1), 0);
	q = T_OK(exs_qcreate(1));
	T_EQ(exs_init(EXS_VERSION), 0);
	T_OK(exs_qdelete(q));
}

static void *start(void *arg)
{
	T_EQ(exs_init(EXS_VERSION), 0);
	T_OK(exs_qdelete(T_OK(exs_qcreate(8))));
	return NULL;
}

static void threads_may_start_it_at_once(void)
{
	pthread_t t[8];
	int fd[2], i;

	for (i = 0; i < T_COUNT(t); i++)
		t[i] = t_thread(start, NULL);
	for (i = 0; i < T_COUNT(t); i++)
		t_thread_join(t[i]);
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	t_close(fd[0]);
	t_close(fd[1]);
}

static void a_forked_child_has_it_started(void)
{
	int fd[2];
	pid_t pid;

	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	pid = t_fork();
	if (pid == 0) {
		t_pair(T_IPV4, fd);
		t_settle_pair(fd[0], fd[1], conf_here());
		exit(0);
	}
	t_join(pid);
	t_close(fd[0]);
	t_close(fd[1]);
}

static void reasons_have_a_word_and_a_sentence_each(void)
{
	int i, j;

	for (i = 0; i < EXS_X_REASON_MAX_; i++) {
		T(*exs_x_reason_name(i));
		T(*exs_x_reason_text(i));
		T(!strchr(exs_x_reason_name(i), ' '));
		for (j = 0; j < i; j++)
			T(strcmp(exs_x_reason_name(i), exs_x_reason_name(j)));
	}
	T(exs_x_reason_name(-1) && exs_x_reason_text(-1));
	T(exs_x_reason_name(INT_MAX) && exs_x_reason_text(INT_MAX));
	T(!strcmp(exs_x_reason_name(EXS_X_REASON_MEMORY), "memory"));
	T(!strcmp(exs_x_reason_name(EXS_X_REASON_DESCRIPTORS), "descriptors"));
	T(!strcmp(exs_x_reason_name(EXS_X_REASON_ORPHAN), "orphan"));
	T(!strcmp(exs_x_reason_name(EXS_X_REASON_NO_KEY), "no-key"));
	T(!strcmp(exs_x_reason_name(EXS_X_REASON_KEY_MISMATCH),
		  "key-mismatch"));
	T(!strcmp(exs_x_reason_name(EXS_X_REASON_FABRIC_LOST), "fabric-lost"));
	T(strstr(exs_x_reason_text(EXS_X_REASON_NO_KEY), "exs key"));
	T(strstr(exs_x_reason_text(EXS_X_REASON_KEY_MISMATCH), "exs key copy"));
}

/* An idle, connected program uses no CPU. */
static void an_idle_program_sleeps(void)
{
	struct timespec before, after;
	struct timeval tv = { .tv_usec = 500000 };
	exs_qhandle_t q;
	exs_event_t e;
	int64_t used;
	int fd[2];
	char byte;

	t_init();
	t_pair(T_IPV4, fd);
	t_settle_pair(fd[0], fd[1], conf_here());
	q = T_OK(exs_qcreate(1));
	t_post_recv(fd[0], &byte, 1, 0, q, 1);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	T_EQ(exs_qdequeue(q, &e, 1, &tv), 0);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	used = (after.tv_sec - before.tv_sec) * INT64_C(1000000000) +
	       after.tv_nsec - before.tv_nsec;
	T_MSG(used < 20000000 * t_slow(), "used %lld us of half a second",
	      (long long)used / 1000);
	t_close(fd[1]);
	t_event_is(q, EXS_EVT_RECV, 1);
	t_close(fd[0]);
	T_OK(exs_qdelete(q));
}

static void next_numbers(int ret[4])
{
	for (int i = 0; i < 4; i++)
		ret[i] = T_OK(dup(STDERR_FILENO));
	for (int i = 0; i < 4; i++)
		close(ret[i]);
}

static bool on_rdma(void)
{
	const char *of_ofi = getenv("EXS_OFI_PROVIDER");

	return conf_is("verbs") ||
	       (conf_is("ofi") && of_ofi && !strncmp(of_ofi, "verbs", 5));
}

/* What the library and those beneath it open has high numbers: the program's
 * next is what it would be. But for those of an RDMA device, which the library
 * of devices opens once. */
static void numbers_stay_the_programs(void)
{
	int first[2], fd[2], next[4], then[4], n = 3;

	t_init();
	if (on_rdma()) {
		t_pair(T_IPV4, first);
		t_settle_pair(first[0], first[1], conf_here());
		n = 2;
	}
	next_numbers(next);
	t_pair(T_IPV4, fd); /* with a listener, if it is the first */
	T_EQ(fd[1], next[n - 1]);
	t_settle_pair(fd[0], fd[1], conf_here());
	next_numbers(then);
	T_EQ(then[0], next[n]);
	t_close(fd[0]);
	t_close(fd[1]);
	if (on_rdma()) {
		t_close(first[0]);
		t_close(first[1]);
	}
}

static _Atomic int asked;

/* Also for the libraries beneath a fabric. */
int getifaddrs(struct ifaddrs **ret)
{
	int (*real)(struct ifaddrs **) = dlsym(RTLD_NEXT, "getifaddrs");

	asked++;
	return real(ret);
}

/* For these the C library opens the lowest number, in a thread of the
 * library's: a program that closes one twice would close that. */
static void addresses_are_not_asked_for_with_each_connection(void)
{
	const char *provider = getenv("EXS_OFI_PROVIDER");
	int fd[3][2], before = 0;

	t_init();
	for (int i = 0; i < 3; i++) {
		t_pair(T_IPV4, fd[i]);
		t_settle_pair(fd[i][0], fd[i][1], conf_here());
		if (i == 0)
			before = asked;
	}
	/* Libfabric's sockets ask for each endpoint. */
	if (strcmp(provider ? provider : "", "sockets"))
		T_EQ(asked, before);
	for (int i = 0; i < 3; i++) {
		t_close(fd[i][0]);
		t_close(fd[i][1]);
	}
}

static const struct t_row rows[] = {
	T_ROW(nothing_works_before_the_start),
	T_ROW(an_unknown_version_is_refused_and_starts_nothing),
	T_ROW(starting_twice_is_the_same_as_once),
	T_ROW(threads_may_start_it_at_once),
	T_ROW(a_forked_child_has_it_started),
	T_ROW(reasons_have_a_word_and_a_sentence_each),
	T_ROW(an_idle_program_sleeps),
	T_ROW(numbers_stay_the_programs),
	T_ROW(addresses_are_not_asked_for_with_each_connection),
};

int main(int argc, char **argv)
{
	return conf_main(argc, argv, "init", rows, T_COUNT(rows));
}
