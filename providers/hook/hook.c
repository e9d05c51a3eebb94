/* SPDX-License-Identifier: BSD-2-Clause */
/* A provider around another one. To the core it is that provider: it has its
 * name, its capabilities and its state, and other functions. */
#include "providers/hook/hook.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"

struct hook {
	struct exi_provider p; /* what the core sees */
	const struct exi_provider *real;
	struct exi_domain_ops domain;
	struct exi_meet_ops meet;
	struct exi_conn_ops conn;
	struct exi_wait_ops wait;
	struct exi_ready_ops ready;
	struct exi_kernel_ops kernel;
	struct exi_switch_ops switches;
	struct exi_loan_ops loan;
};

/* --- what is to happen --------------------------------------------------- */

static struct {
	uint32_t most;	/* bytes of a transfer; 0: any */
	uint32_t delay; /* in microseconds */
	bool trace;
} settings;

static struct {
	const char *fabric;
	enum hookp_op op;
	int error;
	_Atomic uint32_t left; /* calls, the one that fails included */
	_Atomic bool failed;
} plan;

const char *hookp_name(enum hookp_op op)
{
#define NAME(table, name)		#table " " #name,
#define NAME_OF(type, table, name, ...) #table " " #name,
#define NAME_VOID(table, name, ...)	#table " " #name,
	static const char *const names[] = { HOOKP_EACH(NAME_OF, NAME_OF,
							NAME_VOID, NAME) };

	return names[op];
}

const int *hookp_errors(enum hookp_op op)
{
	static const int errors[HOOKP_OPS][4] = {
		[HOOKP_provider_open] = { -ENOMEM },
		[HOOKP_meet_offer] = { -ENOMEM },
		[HOOKP_meet_answer] = { -EPROTO, -ENOMEM },
		[HOOKP_meet_accepted] = { -EPROTO },
		[HOOKP_conn_send] = { -EAGAIN, -ENOBUFS, -EPROTO },
		[HOOKP_conn_recv] = { -EAGAIN, -ENOBUFS, -EPROTO },
		[HOOKP_wait_arm] = { -EBUSY },
		[HOOKP_kernel_sendv] = { -EAGAIN },
		[HOOKP_kernel_recvv] = { -EAGAIN },
		[HOOKP_kernel_post_send] = { -ENOBUFS },
		[HOOKP_kernel_post_recv] = { -ENOBUFS },
		[HOOKP_switch_head] = { -ENOBUFS },
		[HOOKP_switch_start] = { -EPROTO },
		[HOOKP_switch_takeback] = { -EPROTO },
		[HOOKP_loan_room] = { -EAGAIN },
		[HOOKP_domain_arm] = { -EBUSY },
	};

	return errors[op];
}

void hookp_fail(const char *fabric, enum hookp_op op, unsigned int n, int error)
{
	atomic_store(&plan.left, 0);
	plan.fabric = fabric;
	plan.op = op;
	plan.error = error;
	atomic_store(&plan.failed, false);
	atomic_store(&plan.left, n);
}

bool hookp_failed(void)
{
	return atomic_load(&plan.failed);
}

static uint32_t some(uint32_t below)
{
	static _Thread_local uint64_t state;

	if (!state)
		state = (uintptr_t)&state ^ exi_ticks();
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((state >> 33) % below);
}

static void delay(void)
{
	struct timespec ts = { 0 };

	if (!settings.delay || some(8))
		return;
	ts.tv_nsec = 1000l * some(settings.delay);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

/* Before each call. Below zero: it fails so. */
static int enter(const struct hook *h, enum hookp_op op)
{
	uint32_t left = atomic_load(&plan.left);

	delay();
	if (settings.trace)
		exi_error("%s: %s", h->real->name, hookp_name(op));
	if (!left || plan.op != op || strcmp(plan.fabric, h->real->name))
		return 0;
	do {
		if (!left)
			return 0;
	} while (!atomic_compare_exchange_weak(&plan.left, &left, left - 1));
	if (left > 1)
		return 0;
	atomic_store(&plan.failed, true);
	return plan.error;
}

/* How much of len bytes a transfer may move. */
static size_t cut(size_t len)
{
	size_t most;

	if (!settings.most || !len)
		return len;
	most = 1 + some(settings.most);
	return len < most ? len : most;
}

/* --- the operations ------------------------------------------------------ */

static const struct hook *of_provider(const struct exi_provider *p)
{
	return exi_container(p, struct hook, p);
}

#define OF(c)	       of_provider((c)->provider)
#define REAL_conn(c)   OF(c)->real->conn_ops
#define REAL_wait(c)   REAL_conn(c)->wait_ops
#define REAL_ready(c)  REAL_conn(c)->ready_ops
#define REAL_kernel(c) REAL_conn(c)->kernel_ops
#define REAL_switch(c) REAL_conn(c)->switch_ops
#define REAL_loan(c)   REAL_conn(c)->loan_ops
#define REAL_meet(c)   OF(c)->real->meet_ops
#define REAL_domain(d) OF(d)->real->domain_ops

#define FAILS(type, table, name, parameters, arguments)                        \
	static type table##_##name parameters                                  \
	{                                                                      \
		int err = enter(OF(c), HOOKP_##table##_##name);                \
                                                                               \
		return err ? err : REAL_##table(c)->name arguments;            \
	}
#define TELLS(type, table, name, parameters, arguments)                        \
	static type table##_##name parameters                                  \
	{                                                                      \
		enter(OF(c), HOOKP_##table##_##name);                          \
		return REAL_##table(c)->name arguments;                        \
	}
#define DOES(table, name, parameters, arguments)                               \
	static void table##_##name parameters                                  \
	{                                                                      \
		enter(OF(c), HOOKP_##table##_##name);                          \
		REAL_##table(c)->name arguments;                               \
	}
#define OTHER(table, name)
HOOKP_EACH(FAILS, TELLS, DOES, OTHER)

static int open_as(const struct hook *h, struct exi_domain **ret)
{
	struct exi_domain *d;
	int err = enter(h, HOOKP_provider_open);

	if (err)
		return err;
	if (h->real->open)
		return h->real->open(ret);
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	*ret = d;
	return 0;
}

static void close_any(struct exi_domain *d)
{
	if (!d)
		return;
	if (OF(d)->real->close)
		OF(d)->real->close(d);
	else
		free(d);
}

static ssize_t conn_send(struct exi_conn *c, const void *buf, size_t len,
			 int flags)
{
	int err = enter(OF(c), HOOKP_conn_send);

	return err ? err : REAL_conn(c)->send(c, buf, cut(len), flags);
}

static ssize_t conn_recv(struct exi_conn *c, void *buf, size_t len, int flags)
{
	int err = enter(OF(c), HOOKP_conn_recv);

	return err ? err : REAL_conn(c)->recv(c, buf, cut(len), flags);
}

/* The first piece, and of that a part, where transfers are short. */
static struct iovec first(const struct iovec *v, size_t n)
{
	while (n > 1 && !v->iov_len) {
		v++;
		n--;
	}
	return (struct iovec){ v->iov_base, cut(v->iov_len) };
}

static ssize_t kernel_sendv(struct exi_conn *c, const struct iovec *v, size_t n,
			    int flags)
{
	int err = enter(OF(c), HOOKP_kernel_sendv);
	struct iovec one;

	if (err)
		return err;
	if (!settings.most || !n)
		return REAL_kernel(c)->sendv(c, v, n, flags);
	one = first(v, n);
	return REAL_kernel(c)->sendv(c, &one, 1, flags);
}

static ssize_t kernel_recvv(struct exi_conn *c, const struct iovec *v, size_t n,
			    int flags)
{
	int err = enter(OF(c), HOOKP_kernel_recvv);
	struct iovec one;

	if (err)
		return err;
	if (!settings.most || !n)
		return REAL_kernel(c)->recvv(c, v, n, flags);
	one = first(v, n);
	return REAL_kernel(c)->recvv(c, &one, 1, flags);
}

static size_t switch_drain(struct exi_conn *c, const void **ret)
{
	enter(OF(c), HOOKP_switch_drain);
	return cut(REAL_switch(c)->drain(c, ret));
}

static size_t loan_look(struct exi_conn *c, const void **ret)
{
	enter(OF(c), HOOKP_loan_look);
	return cut(REAL_loan(c)->look(c, ret));
}

static ssize_t loan_room(struct exi_conn *c, size_t len, void **ret)
{
	int err = enter(OF(c), HOOKP_loan_room);

	return err ? err : REAL_loan(c)->room(c, cut(len), ret);
}

static int domain_progress(struct exi_domain *d)
{
	enter(OF(d), HOOKP_domain_progress);
	return REAL_domain(d)->progress(d);
}

static int domain_arm(struct exi_domain *d)
{
	int err = enter(OF(d), HOOKP_domain_arm);

	return err ? err : REAL_domain(d)->arm(d);
}

/* --- the tables ---------------------------------------------------------- */

/* Each operation that the fabric has is wrapped; others pass. */
static void wrap_conn(struct hook *h)
{
	h->conn = *h->real->conn_ops;
	h->wait = *h->conn.wait_ops;
	h->ready = *h->conn.ready_ops;
	h->conn.wait_ops = &h->wait;
	h->conn.ready_ops = &h->ready;
	if (h->conn.kernel_ops) {
		h->kernel = *h->conn.kernel_ops;
		h->conn.kernel_ops = &h->kernel;
	}
	if (h->conn.switch_ops) {
		h->switches = *h->conn.switch_ops;
		h->conn.switch_ops = &h->switches;
	}
	if (h->conn.loan_ops) {
		h->loan = *h->conn.loan_ops;
		h->conn.loan_ops = &h->loan;
	}
	h->p.conn_ops = &h->conn;
}

static void wrap(struct hook *h, const struct exi_provider *real,
		 int (*open)(struct exi_domain **ret))
{
	h->real = real;
	h->p = *real;
	/* What a test puts in front of a call may do anything. */
	h->p.caps &= ~(uint32_t)EXI_CAP_LOCK_FREE;
	h->p.open = open;
	h->p.close = close_any;
	if (real->domain_ops) {
		h->domain = *real->domain_ops;
		h->p.domain_ops = &h->domain;
	}
	if (real->meet_ops) {
		h->meet = *real->meet_ops;
		h->p.meet_ops = &h->meet;
	}
	wrap_conn(h);
#define HERE_domain   h->domain
#define HERE_meet     h->meet
#define HERE_conn     h->conn
#define HERE_wait     h->wait
#define HERE_ready    h->ready
#define HERE_kernel   h->kernel
#define HERE_switch   h->switches
#define HERE_loan     h->loan
#define HERE_provider h->p
#define provider_open open
#define PUT(table, name)                                                       \
	if (HERE_##table.name)                                                 \
		HERE_##table.name = table##_##name;
#define PUT_OF(type, table, name, ...) PUT(table, name)
#define PUT_VOID(table, name, ...)     PUT(table, name)
	HOOKP_EACH(PUT_OF, PUT_OF, PUT_VOID, PUT)
}

/* The linker gives the wrapped provider to all code that names the fabric. The
 * build defines HOOKP_FABRICS(X): X(tcp) X(shm), and so on. */
#define HOOK(fabric)                                                           \
	extern const struct exi_provider __real_exi_provider_##fabric;         \
	extern struct hook __wrap_exi_provider_##fabric;                       \
	struct hook __wrap_exi_provider_##fabric;                              \
	static int open_##fabric(struct exi_domain **ret)                      \
	{                                                                      \
		return open_as(&__wrap_exi_provider_##fabric, ret);            \
	}
HOOKP_FABRICS(HOOK)

static void read_settings(void)
{
	const char *text = getenv("T_HOOK"), *at;

	if (!text)
		return;
	at = strstr(text, "short=");
	settings.most = at ? (uint32_t)atoi(at + strlen("short=")) : 0;
	at = strstr(text, "delay=");
	settings.delay = at ? (uint32_t)atoi(at + strlen("delay=")) : 0;
	settings.trace = strstr(text, "trace");
	setenv("T_HOOKED", "1", 1);
}

#define WRAP(fabric)                                                           \
	wrap(&__wrap_exi_provider_##fabric, &__real_exi_provider_##fabric,     \
	     open_##fabric);

/* Before the library looks for its fabrics. */
__attribute__((constructor(101))) static void begin(void)
{
	read_settings();
	HOOKP_FABRICS(WRAP)
}
