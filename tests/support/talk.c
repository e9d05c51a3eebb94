/* SPDX-License-Identifier: BSD-2-Clause */
/* A talk over a connection that may end in any call. */
#include "tests/support/talk.h"

#include <sys/exs.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>

#include "tests/support/bytes.h"
#include "tests/support/net.h"
#include "tests/support/wait.h"

static void called(const struct t_talk *t, int64_t began, const char *call)
{
	if (t->called)
		t->called(began, call);
}

bool t_talk_ended(struct t_talk *t, ssize_t n, const char *call)
{
	if (n > 0)
		return false;
	t->may_end(t, n, call);
	t->lost = true;
	return true;
}

void t_talk_put(struct t_talk *t, uint64_t seed, size_t len)
{
	char buf[4096];
	int64_t began;
	ssize_t n;

	while (len && !t->lost) {
		t_fill(buf, len, seed, t->sent);
		began = t_now_ns();
		n = t->plain ? send(t->s, buf, len, MSG_NOSIGNAL)
			     : t_send(t->s, buf, len, MSG_NOSIGNAL);
		called(t, began, "send");
		if (t_talk_ended(t, n, "send"))
			return;
		t->sent += (uint64_t)n;
		len -= (size_t)n;
	}
}

ssize_t t_talk_get(struct t_talk *t, uint64_t seed, size_t len)
{
	char buf[4096];
	int64_t began = t_now_ns();
	ssize_t n =
		t->plain ? recv(t->s, buf, len, 0) : t_recv(t->s, buf, len, 0);

	called(t, began, "recv");
	if (n > 0) {
		t_check_bytes(buf, (size_t)n, seed, t->received);
		t->received += (uint64_t)n;
	}
	return n;
}

void t_talk_get_all(struct t_talk *t, uint64_t seed, size_t len)
{
	while (len && !t->lost) {
		ssize_t n = t_talk_get(t, seed, len);

		if (t_talk_ended(t, n, "recv"))
			return;
		len -= (size_t)n;
	}
}

void t_talk_swap(struct t_talk *t, size_t len)
{
	t_talk_put(t, 1, len);
	t_talk_get_all(t, 2, len);
}

void t_talk_loan(struct t_talk *t)
{
	int64_t began = t_now_ns();
	void *to;
	ssize_t n = exs_x_send_loan(t->s, &to, 700, 0);

	called(t, began, "a loan");
	if (n > 0) {
		t_fill(to, (size_t)n, 1, t->sent);
		began = t_now_ns();
		if (exs_x_send_commit(t->s, (size_t)n, MSG_NOSIGNAL))
			n = -1;
		called(t, began, "a loan's end");
	}
	if (t_talk_ended(t, n, "a loan"))
		return;
	t->sent += (uint64_t)n;
	t_talk_get_all(t, 2, (size_t)n);
}

ssize_t t_talk_answer(struct t_talk *t)
{
	ssize_t n;

	while ((n = t_talk_get(t, 1, 1000)) > 0 && !t->lost)
		t_talk_put(t, 2, (size_t)n);
	return n;
}
