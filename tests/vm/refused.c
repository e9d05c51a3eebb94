/* SPDX-License-Identifier: BSD-2-Clause */
/* A device, or rdma_cm, refuses what a meeting asks of it, one call after the
 * other, at either end: the connection is where it was, on TCP, and the next
 * one is on the fabric. Needs the emulated machine. */
#include <dlfcn.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/net.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

static const struct t_want on_verbs = { "verbs", EXS_X_REASON_NONE };

/* --- what is refused ----------------------------------------------------- */

/* Once, the call of that number; by an end whose device is open. */
static struct {
	const char *what;
	int number;
	bool here; /* by this process */
	bool armed;
	bool done;
} refusal;

static bool refuses(const char *what)
{
	if (!refusal.armed || strcmp(refusal.what, what) || --refusal.number)
		return false;
	refusal.done = true;
	errno = ENOMEM;
	return true;
}

static void *next_of(const char *library, const char *name)
{
	void *ret = dlsym(dlopen(library, RTLD_NOW), name);

	T(ret);
	return ret;
}

#define IN_FRONT(library, type, name, params, args, fails)                     \
	type name params;                                                      \
	type name params                                                       \
	{                                                                      \
		type(*next) params;                                            \
                                                                               \
		*(void **)&next = next_of(library, #name);                     \
		return refuses(#name) ? (fails) : next args;                   \
	}

#define VERBS  "libibverbs.so.1"
#define RDMACM "librdmacm.so.1"

IN_FRONT(VERBS, struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * c), (c),
	 NULL)
IN_FRONT(VERBS, struct ibv_comp_channel *, ibv_create_comp_channel,
	 (struct ibv_context * c), (c), NULL)
IN_FRONT(VERBS, struct ibv_cq *, ibv_create_cq,
	 (struct ibv_context * c, int n, void *arg, struct ibv_comp_channel *ch,
	  int v),
	 (c, n, arg, ch, v), NULL)
#undef ibv_reg_mr
IN_FRONT(VERBS, struct ibv_mr *, ibv_reg_mr,
	 (struct ibv_pd * pd, void *at, size_t len, int access),
	 (pd, at, len, access), NULL)
IN_FRONT(VERBS, struct ibv_mr *, ibv_reg_mr_iova2,
	 (struct ibv_pd * pd, void *at, size_t len, uint64_t iova,
	  unsigned int access),
	 (pd, at, len, iova, access), NULL)
IN_FRONT(VERBS, int, ibv_modify_qp,
	 (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask),
	 (qp, attr, mask), ENOMEM)
IN_FRONT(RDMACM, int, rdma_resolve_addr,
	 (struct rdma_cm_id * id, struct sockaddr *from, struct sockaddr *to,
	  int ms),
	 (id, from, to, ms), -1)
IN_FRONT(RDMACM, int, rdma_resolve_route, (struct rdma_cm_id * id, int ms),
	 (id, ms), -1)
IN_FRONT(RDMACM, int, rdma_connect,
	 (struct rdma_cm_id * id, struct rdma_conn_param *p), (id, p), -1)
IN_FRONT(RDMACM, int, rdma_accept,
	 (struct rdma_cm_id * id, struct rdma_conn_param *p), (id, p), -1)

static int (*next_send)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad);
static int (*next_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad);

static int send_refused(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad)
{
	*bad = wr;
	return refuses("ibv_post_send") ? ENOMEM : next_send(qp, wr, bad);
}

static int recv_refused(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad)
{
	*bad = wr;
	return refuses("ibv_post_srq_recv") ? ENOMEM : next_recv(srq, wr, bad);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *(*next)(struct ibv_pd *, struct ibv_srq_init_attr *);
	struct ibv_srq *ret;

	*(void **)&next = next_of(VERBS, "ibv_create_srq");
	ret = refuses("ibv_create_srq") ? NULL : next(pd, attr);
	if (ret && ret->context->ops.post_srq_recv != recv_refused) {
		next_recv = ret->context->ops.post_srq_recv;
		ret->context->ops.post_srq_recv = recv_refused;
	}
	return ret;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	int (*next)(struct rdma_cm_id *, struct ibv_pd *,
		    struct ibv_qp_init_attr *);
	int ret;

	*(void **)&next = next_of(RDMACM, "rdma_create_qp");
	/* With fewer bytes inline it is asked again. */
	if (refusal.armed && !attr->cap.max_inline_data &&
	    refuses("rdma_create_qp"))
		return -1;
	if (refusal.armed && !refusal.done &&
	    !strcmp(refusal.what, "rdma_create_qp") &&
	    attr->cap.max_inline_data) {
		errno = EINVAL;
		return -1;
	}
	ret = next(id, pd, attr);
	if (!ret && id->qp->context->ops.post_send != send_refused) {
		next_send = id->qp->context->ops.post_send;
		id->qp->context->ops.post_send = send_refused;
	}
	return ret;
}

/* The end that connects has looked at its devices. */
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret,
		   void *context, enum rdma_port_space ps)
{
	int (*next)(struct rdma_event_channel *, struct rdma_cm_id **, void *,
		    enum rdma_port_space);

	*(void **)&next = next_of(RDMACM, "rdma_create_id");
	if (context && refusal.here)
		refusal.armed = true;
	return refuses("rdma_create_id") ? -1 : next(channel, ret, context, ps);
}

/* --- the ends ------------------------------------------------------------ */

#define BLOCK 1000

/* The accepting end need not learn the reason. */
static void first(int s, bool a)
{
	t_send_stream(s, a ? 1 : 2, 0, 20000, BLOCK);
	t_recv_stream(s, a ? 2 : 1, 0, 20000, BLOCK);
	t_settle_anywhere(s, a);
	T_MSG(!a || t_is(s, T_TCP(T_ANY)) ||
		      t_info(s).exs_x_reason == EXS_X_REASON_NONE,
	      "%s", t_where(s));
}

static void second(int s, bool a)
{
	t_settle(s, on_verbs);
	t_send_stream(s, a ? 3 : 4, 0, 30000, 300);
	t_recv_stream(s, a ? 4 : 3, 0, 30000, 300);
	T_MSG(t_is(s, on_verbs), "%s", t_where(s));
}

static void accepts(int ctl, void *arg)
{
	struct t_addr at;
	int l, s;

	refusal.here = !refusal.here;
	t_init();
	l = t_listener(T_IPV4, &at);
	refusal.armed = refusal.here;
	t_tell(ctl, (uint64_t)t_port_of(l));
	s = t_accept(l);
	first(s, false);
	t_expect(ctl, 1);
	refusal.armed = false;
	t_close(s);
	s = t_accept(l);
	second(s, false);
	t_tell(ctl, refusal.done);
	t_expect(ctl, 2);
	t_close(s);
	t_close(l);
}

/* Whether there was such a call. */
static bool meet(const char *what, int number, bool there)
{
	struct t_peer peer;
	struct t_addr at;
	bool done;
	int s;

	refusal.what = what;
	refusal.number = number;
	refusal.here = !there;
	refusal.armed = refusal.done = false;
	t_peer_start(&peer, accepts, NULL);
	t_init();
	at = t_loopback(T_IPV4, (int)t_ask(peer.ctl));
	s = t_connect(&at);
	first(s, true);
	t_tell(peer.ctl, 1);
	refusal.here = refusal.armed = false;
	t_close(s);
	s = t_connect(&at);
	second(s, true);
	done = t_ask(peer.ctl) || refusal.done;
	t_tell(peer.ctl, 2);
	t_close(s);
	t_peer_join(&peer);
	return done;
}

/* Each call of a meeting, until there are no more; not more than so many. */
static void refuse_some(const char *what, bool there, int most)
{
	int status, number = 0;
	bool more = true;

	while (more && number < most) {
		pid_t pid = t_fork();

		number++;
		t_note("%s %d%s", what, number, there ? ", there" : "");
		if (pid == 0)
			exit(meet(what, number, there) ? 0 : 3);
		T_EQ(waitpid(pid, &status, 0), pid);
		T(WIFEXITED(status));
		T(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
		more = WEXITSTATUS(status) == 0;
	}
	T(number > 1); /* there was one at least */
}

static void refuse_each(const char *what, bool there)
{
	refuse_some(what, there, 99);
}

static void what_makes_a_net_may_be_refused(void)
{
	static const char *const calls[] = { "ibv_alloc_pd",
					     "ibv_create_comp_channel",
					     "ibv_create_cq",
					     "ibv_create_srq" };

	for (size_t i = 0; i < T_COUNT(calls); i++) {
		refuse_each(calls[i], false);
		refuse_each(calls[i], true);
	}
}

static void memory_may_be_refused(void)
{
	refuse_each("ibv_reg_mr_iova2", false);
	refuse_each("ibv_reg_mr_iova2", true);
}

static void a_queue_pair_may_be_refused(void)
{
	refuse_each("rdma_create_qp", false);
	refuse_each("rdma_create_qp", true);
	refuse_each("ibv_modify_qp", false);
	refuse_each("ibv_modify_qp", true);
}

static void buffers_may_be_refused(void)
{
	refuse_some("ibv_post_srq_recv", false, 4);
	refuse_some("ibv_post_srq_recv", true, 4);
}

static void the_first_messages_may_be_refused(void)
{
	refuse_some("ibv_post_send", false, 3);
	refuse_some("ibv_post_send", true, 3);
}

static void each_step_of_rdma_cm_may_be_refused(void)
{
	refuse_each("rdma_create_id", false);
	refuse_each("rdma_resolve_addr", false);
	refuse_each("rdma_resolve_route", false);
	refuse_each("rdma_connect", false);
	refuse_each("rdma_accept", true);
}

static const struct t_row rows[] = {
	T_ROW_LONG(what_makes_a_net_may_be_refused, 200),
	T_ROW_LONG(memory_may_be_refused, 200),
	T_ROW_LONG(a_queue_pair_may_be_refused, 200),
	T_ROW_LONG(buffers_may_be_refused, 200),
	T_ROW_LONG(the_first_messages_may_be_refused, 200),
	T_ROW_LONG(each_step_of_rdma_cm_may_be_refused, 200),
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	setenv("EXS_PROVIDER", "verbs,tcp", 1);
	setenv("EXS_RING_KB", "64", 1);
	setenv("EXS_LOG", "off", 0);
	return t_run("refused", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
