/* SPDX-License-Identifier: BSD-2-Clause */
/* A domain, its ends and its transfers. */
#include "tests/unit/test_tcp_ends.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/fabric/provider.h"
#include "core/fabric/registry.h"
#include "core/sock/table.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/wait.h"

struct tcpp_domain *dom;
const struct exi_conn_ops *ops = &tcpp_conn_ops;
const struct exi_wait_ops *wops = &tcpp_wait_ops;
const struct exi_ready_ops *rops = &tcpp_ready_ops;
const struct exi_kernel_ops *kops = &tcpp_kernel_ops;

static const char *engine;

/* The thread is inside progress(). */
static _Thread_local int inside;

static struct exi_shared counted;

/* In place of the core's: nothing else of the file that has it is needed here,
 * so the linker leaves that out. */
void exi_conn_ready(struct exi_conn *c, enum exi_dir dir)
{
	struct end *e = c->shared;

	T(inside > 0);
	T(!exi_lock_held(&dom->lock));
	atomic_fetch_add(&e->ready[dir], 1);
}

/* In place of the one that goes with connections made by exs_ calls: there are
 * none, and the linker leaves the core out. */
void t_unlisten(void)
{
}

static bool engine_works(void)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = T_OK(fork());
	if (pid == 0) {
		dom_open();
		_exit(strcmp(dom->engine->name, engine) != 0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	return status == 0;
}

int ends_main(int argc, char **argv, const char *group,
	      const struct t_row *rows, size_t n)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s io_uring|epoll [PATTERN]\n",
			argv[0]);
		return 2;
	}
	engine = argv[1];
	setenv("EXS_TCP_ENGINE", engine, 1);
	if (!engine_works()) {
		printf("%s does not work here\n", engine);
		return T_SKIP;
	}
	return t_run(group, rows, n, argc > 2 ? argv[2] : NULL);
}

void dom_open(void)
{
	struct exi_domain *d;
	int ret = exi_provider_tcp.open(&d);

	T_EQ(ret, 0);
	dom = (struct tcpp_domain *)d;
}

void dom_close(void)
{
	exi_provider_tcp.close(&dom->base);
	dom = NULL;
}

bool dom_is_uring(void)
{
	return dom->engine == &tcpp_uring;
}

int dom_progress(void)
{
	int n;

	inside++;
	n = tcpp_domain_ops.progress(&dom->base);
	inside--;
	return n;
}

bool dom_wait(int ms)
{
	struct pollfd p = { .events = POLLIN };
	int ret;

	p.fd = tcpp_domain_ops.event_fd(&dom->base);
	if (dom_progress() > 0)
		return true;
	ret = tcpp_domain_ops.arm(&dom->base);
	if (ret == -EBUSY)
		return true;
	T_EQ(ret, 0);
	ret = poll(&p, 1, ms);
	dom_progress();
	return ret != 0;
}

void end_make(struct end *e, int fd)
{
	size_t size = sizeof(*e->c) + ops->priv_size;

	*e = (struct end){ .fd = fd };
	size = (size + 63) / 64 * 64;
	e->c = aligned_alloc(64, size);
	T(e->c != NULL);
	memset(e->c, 0, size);
	e->c->provider = &exi_provider_tcp;
	e->c->ops = ops;
	e->c->wops = wops;
	e->c->rops = rops;
	e->c->kops = kops;
	e->c->domain = &dom->base;
	e->c->shared = e;
	e->c->fd = fd;
	e->c->bell = -1;
	e->c->sh = &counted;
}

void end_stop(struct end *e)
{
	if (!e->c)
		return;
	ops->close(e->c);
	inside++;
	ops->stop(e->c);
	inside--;
	free(e->c);
	e->c = NULL;
}

void end_close(struct end *e)
{
	end_stop(e);
	if (e->fd >= 0)
		close(e->fd);
	e->fd = -1;
}

void tcp_pair(int fd[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int l = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));

	T_OK(bind(l, (struct sockaddr *)&at, len));
	T_OK(listen(l, 1));
	T_OK(getsockname(l, (struct sockaddr *)&at, &len));
	fd[0] = T_OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	T_OK(connect(fd[0], (struct sockaddr *)&at, len));
	fd[1] = T_OK(accept4(l, NULL, NULL, SOCK_CLOEXEC));
	close(l);
}

void ends_pair(struct end e[2])
{
	int fd[2];

	tcp_pair(fd);
	end_make(&e[0], fd[0]);
	end_make(&e[1], fd[1]);
}

void reset_on_close(int fd)
{
	struct linger l = { .l_onoff = 1, .l_linger = 0 };

	T_OK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
}

size_t fill_up(int fd)
{
	static char zeros[65536];
	size_t sent = 0;
	int refused = 0;
	ssize_t n;

	/* What is on its way to the peer makes room again. */
	while (refused < 20) {
		n = send(fd, zeros, sizeof(zeros), MSG_DONTWAIT);
		if (n > 0) {
			sent += (size_t)n;
			refused = 0;
		} else {
			refused++;
			poll(NULL, 0, 2);
		}
	}
	return sent;
}

static void done(struct exi_xfer *x, ssize_t result)
{
	struct transfer *t = (struct transfer *)x;
	void (*then)(struct transfer *) = t->then;

	T(inside > 0);
	T(!exi_lock_held(&dom->lock));
	t->result = result;
	atomic_fetch_add(&t->dones, 1);
	if (then)
		then(t);
}

void transfer_init(struct transfer *t, struct end *e, const void *buf,
		   size_t len, int flags)
{
	*t = (struct transfer){
		.x = { .buf = (void *)(uintptr_t)buf,
		       .len = len,
		       .flags = flags,
		       .done = done,
		       .conn = e->c },
		.end = e,
		.result = -1000,
		.then = t->then,
		.arg = t->arg,
	};
}

void recv_post(struct transfer *t, struct end *e, void *buf, size_t len,
	       int flags)
{
	int ret;

	transfer_init(t, e, buf, len, flags);
	ret = kops->post_recv(e->c, &t->x);
	T_EQ(ret, 0);
}

void send_post(struct transfer *t, struct end *e, const void *buf, size_t len,
	       int flags)
{
	int ret;

	transfer_init(t, e, buf, len, flags);
	ret = kops->post_send(e->c, &t->x);
	T_EQ(ret, 0);
}

ssize_t transfer_wait(struct transfer *t)
{
	struct t_deadline d = t_deadline_ms(20000);

	while (!atomic_load(&t->dones)) {
		T(!t_over(&d));
		dom_wait(1000);
	}
	T_EQ(atomic_load(&t->dones), 1);
	return t->result;
}

void transfer_idle(struct transfer *t)
{
	T_EQ(dom_progress(), 0);
	T_EQ(atomic_load(&t->dones), 0);
}

static size_t moved(struct end *e, enum exi_dir dir)
{
	size_t n;

	exi_lock(&dom->lock);
	n = tcpp_conn_locked(e->c)->xfer[dir].moved;
	exi_unlock(&dom->lock);
	return n;
}

void moved_wait(struct end *e, enum exi_dir dir, size_t n)
{
	struct t_deadline d = t_deadline_ms(20000);

	while (moved(e, dir) < n) {
		T(!t_over(&d));
		dom_wait(100);
	}
}
