/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket of the library, and the plain end of its connection. */
#include "fuzz/ends.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/meet/find.h"
#include "core/sock/closing.h"
#include "core/sock/service.h"
#include "core/sock/table.h"
#include "fuzz/fuzz.h"
#include "tests/support/check.h"
#include "tests/support/net.h"

/* --- the service, without its thread ------------------------------------ */

void exi_service_serve(const struct exi_service_work *w)
{
}

int exi_service_start(void)
{
	return 0;
}

bool exi_service_stop(void)
{
	return false;
}

void exi_service_begun(void)
{
}

int exi_service_watch(struct exi_sock *sk, int fd, unsigned int what,
		      uint32_t events)
{
	return 0;
}

int exi_service_rewatch(struct exi_sock *sk, int fd, unsigned int what,
			uint32_t events)
{
	return 0;
}

void exi_service_unwatch(int fd)
{
}

uint64_t exi_service_data(struct exi_sock *sk, unsigned int what)
{
	return 0;
}

void exi_service_dispatch(uint64_t data, uint32_t events)
{
}

int exi_service_watch_family(int fd)
{
	return 0;
}

void exi_service_watch_told(int fd)
{
}

void exi_service_watch_control(int fd)
{
}

int exi_service_watch_capture(int fd)
{
	return 0;
}

int exi_service_domain(struct exi_domain *d)
{
	return 0;
}

void exi_service_timed(struct exi_timer *t)
{
}

void exi_service_untimed(struct exi_timer *t)
{
}

bool exi_service_is_late(void)
{
	return false;
}

int exi_service_progress(struct exi_sock *sk, enum exi_dir dir)
{
	return 0;
}

void exi_service_tick(void)
{
}

void exi_service_reschedule(void)
{
}

void exi_service_later(void (*fn)(void))
{
}

bool exi_service_runs(void)
{
	return false;
}

bool exi_service_self(void)
{
	return false;
}

void exi_service_forked(void)
{
}

/* --- the two ends ------------------------------------------------------- */

/* [0]: of TCP, [1]: of UNIX streams. */
static struct t_addr ours[2], plain[2];
static int listener[2], plain_listener[2];

static void setup(void)
{
	static bool once;

	if (once)
		return;
	once = true;
	setenv("EXS_UPGRADE", "never", 1);
	setenv("EXS_LOG", "off", 1);
	setenv("EXS_RING_KB", "16", 1);
	setenv("EXS_UNIX", "on", 1);
	t_init();
	for (int i = 0; i < 2; i++) {
		if (i)
			setenv("T_UNIX", "1", 1);
		listener[i] = t_listener(T_IPV4, &ours[i]);
		plain_listener[i] = t_plain_listener(&plain[i]);
	}
	unsetenv("T_UNIX");
}

/* The alarm by which libFuzzer finds an input that hangs would interrupt a
 * connect. */
static void hold_alarm(bool hold)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	T_EQ(pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL), 0);
}

void fuzz_ends_begin(struct fuzz_ends *e, bool accepts, bool is_unix)
{
	setup();
	hold_alarm(true);
	if (accepts) {
		const struct t_addr *to = &ours[is_unix];

		e->peer =
			T_OK(socket(to->domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
		T_OK(connect(e->peer, (const struct sockaddr *)&to->ss,
			     to->len));
		e->s = t_accept(listener[is_unix]);
	} else {
		e->s = t_connect(&plain[is_unix]);
		e->peer = T_OK(accept4(plain_listener[is_unix], NULL, NULL,
				       SOCK_CLOEXEC));
	}
	hold_alarm(false);
	e->sk = exi_sock_find(e->s);
	T(e->sk);
}

void fuzz_ends_end(struct fuzz_ends *e)
{
	struct linger reset = { .l_onoff = 1 };

	T_OK(setsockopt(e->peer, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
	close(e->peer);
	t_close(e->s);
	/* Links in which something lies unread are closed by threads that the
	 * service would start. Until then they count as the library's. */
	exi_closing_work();
	exi_closing_settle();
}
