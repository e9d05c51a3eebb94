/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the ofi fabric share.
 *
 * Objects, as in core/rma.h: a net is a domain of libfabric at one address of
 * this host, with queues for up to OFIP_SLOTS connections; a link is an endpoint
 * of its own (FI_EP_MSG), or a name at the net's one (FI_EP_RDM).
 *
 * Locks: inside a net's, its `reap` is for taking requests that are over. */
#ifndef EXI_PROVIDERS_OFI_INT_H
#define EXI_PROVIDERS_OFI_INT_H

#include <poll.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "core/base/list.h"
#include "core/fabric/provider.h"
#include "core/rma/rma.h"
#include "core/rma/wire.h"
#include "core/trust/pact_wire.h"
#include "providers/ofi/ofi_wire.h"

extern const struct exi_provider ofip_provider;

#define OFIP_VERSION FI_VERSION(1, 17)

/* --- what libfabric finds (ofi_info.c) ---------------------------------- */

/* The first that is as we need it, with endpoints that reach the host at peer
 * from the address at; both null: any. -ENODEV, and why. */
int ofip_info(const struct sockaddr *at, const struct sockaddr *peer,
	      struct fi_info **ret, char *why, size_t len);
/* Of the provider of that name, or of all that there are; may be null. */
struct fi_info *ofip_infos(const char *provider, enum fi_ep_type type,
			   const struct sockaddr *at);
/* Why one that libfabric found is not used; null: it can be. */
const char *ofip_unfit(const struct fi_info *i);
/* Without addresses of IP nothing says who is reached: a provider within one host
 * does not reach another. */
bool ofip_reaches(const struct fi_info *i, const struct sockaddr *at,
		  const struct sockaddr *peer);
/* Its endpoints are named by addresses of IP. */
bool ofip_inet(const struct fi_info *i);
/* A provider that is known to drive a device. What is not, moves bytes by the kernel
 * or the CPU, or may. */
bool ofip_hardware(const struct fi_info *i);
/* It sends in a thread of its own, after the call that asked for it. */
bool ofip_later(const struct fi_info *i);
/* Libfabric's shm: a write without data is there when the call returns; all else that
 * is large is fetched by the receiver, if the sender still lives. */
bool ofip_shm(const struct fi_info *i);

/* --- nets (ofi_net.c) --------------------------------------------------- */

#define OFIP_SLOTS 64u
/* Of a net for few: each look asks about all of them. */
#define OFIP_FEW 8u

/* A request or a receive buffer, as libfabric knows it. */
struct ofip_op {
	struct fi_context2 context;
	uint16_t slot;
	bool counted; /* as over, when it was posted */
	bool over;
};

struct ofip_buffer {
	struct fi_context2 context;
	uint16_t slot;
	_Alignas(16) unsigned char bytes[EXI_RMA_MSG_MAX];
};

struct ofip_link;

struct ofip_slot {
	struct ofip_link *link; /* null: free, if nothing is under way */
	uint32_t name;		/* of the link */
	uint32_t posted;	/* of the last link, when it left */
	uint32_t done;
	/* EXI_RMA_CREDITS and EXI_RMA_SEND_DEPTH; made when it is used first. */
	struct ofip_buffer *buffers;
	struct fid_mr *mr; /* of the buffers; null: not needed */
	struct ofip_op *ops;
};

/* RDM: the endpoint of another process, which may have many links. */
struct ofip_peer {
	struct exi_list node;
	unsigned int links;
	uint64_t idle; /* no link for that long; it goes, then; 0 */
	fi_addr_t at;
	unsigned char name[OFIP_NAME_MAX];
};

/* What libfabric waits for, for the queues of a net for few. */
struct ofip_waits {
	uint64_t change[2];
	size_t n;
	struct pollfd fd[4 * OFIP_FEW]; /* of both; two more for each */
};

struct ofip_net {
	struct exi_rma_net rma;
	struct exi_list node;
	struct fi_info *info;
	bool rdm;
	bool shm;
	bool spoiled; /* nobody new joins it */
	bool few;     /* libfabric's descriptors are many, and change */
	uint8_t at[16];
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_pep *pep;   /* MSG: where others connect to */
	struct fid_av *av;     /* RDM */
	struct fid_ep *ep;     /* RDM */
	struct exi_list peers; /* RDM; the service lock */
	struct fid_cq *received, *sent;
	int eq_fd, received_fd, sent_fd, poke;
	/* Of a net for few: what is in its sets, which are received_fd and
	 * sent_fd. Under both locks. */
	struct ofip_waits waits;
	_Atomic bool blind;		   /* they could not be filled */
	unsigned char name[OFIP_NAME_MAX]; /* of pep or ep */
	uint16_t name_len;
	struct exi_rma_event on_eq, on_received, on_sent, on_poke;
	bool polled;	      /* there are none */
	_Atomic bool refused; /* a request, since the last look */
	_Atomic bool dozes;   /* until somebody rings */
	unsigned int rung;    /* since then */
	uint64_t rung_since;
	bool later;		    /* as ofip_later() says */
	_Atomic bool requested;	    /* the descriptors are watched */
	_Atomic unsigned int takes; /* of what arrived, by any thread */
	unsigned int takes_seen;    /* by the service */
	uint64_t due;		    /* they will be, then; 0 */
	unsigned int links;
	uint64_t idle;	      /* nobody has it; it goes, then; 0 */
	pthread_mutex_t reap; /* taking from sent */
	unsigned int slots;
	struct ofip_slot slot[OFIP_SLOTS];
};

static inline struct ofip_net *ofip_net(struct exi_rma_net *n)
{
	return exi_container(n, struct ofip_net, rma);
}

enum ofip_stage {
	OFIP_CONNECTING, /* A: the socket is, too */
	OFIP_ASKED,	 /* A: ANSWER awaited */
	OFIP_ANSWERED,	 /* B: CONFIRM awaited */
	OFIP_PROVED,	 /* A: READY awaited; B: to be said */
	OFIP_UP,
};

enum ofip_doze {
	OFIP_DOZE_NO,
	OFIP_DOZE_ASKED,
	OFIP_DOZE_AGREED
};

struct ofip_link {
	struct exi_rma_link rma;
	unsigned int slot;
	_Atomic enum ofip_stage stage;
	uint32_t peer_name;
	struct fid_ep *ep;	/* RDM: the net's */
	struct ofip_peer *peer; /* RDM */
	uint8_t token[16];	/* MSG, B: who connects shows it */
	struct fi_info *by;	/* MSG, B: who connected before CONFIRM came */
	struct exi_list later;	/* READY could not be said yet */
	uint64_t ready_by;	/* it is to be, B */
	enum ofip_doze doze;	/* whether the other end rings us */
	_Atomic int rings;	/* we are to ring it */
	/* The rendezvous, and what came of its next message. It is closed with
	 * the post lock. */
	int sock;
	struct exi_rma_event on_sock;
	unsigned int fill;
	unsigned char in[sizeof(struct exi_pact_proof)];
};

static inline struct ofip_link *ofip_link(struct exi_rma_link *l)
{
	return exi_container(l, struct ofip_link, rma);
}

/* A net at the address, and a slot in it. -errno. */
int ofip_net_join(struct ofip_link *l, const struct sockaddr *at,
		  const struct sockaddr *peer);
/* An endpoint of its own (MSG), ready to receive. -errno. */
int ofip_net_endpoint(struct ofip_link *l, struct fi_info *info);
/* RDM: the other end's endpoint has that name, as long as ours. -errno. */
int ofip_net_know(struct ofip_link *l, const void *name);
/* Takes the slot and the endpoint away. */
void ofip_net_leave(struct ofip_link *l);
/* Nothing of it uses the net any more. */
void ofip_net_quit(struct exi_rma_link *l);
/* One without descriptors is looked at now. */
void ofip_net_wake(struct ofip_net *n);
/* Nets that are to be looked at, or to go. */
void ofip_nets_look(uint64_t now);
int ofip_nets_arm(void);
void ofip_nets_forked(void);

/* Of struct exi_rma_fabric. */
int ofip_net_reg(struct exi_rma_net *n, void *addr, size_t len,
		 enum exi_rma_access access, struct exi_rma_mr *ret);
void ofip_net_dereg(struct exi_rma_mr *m);
int ofip_net_post(struct exi_rma_link *l, const struct exi_rma_req *r,
		  unsigned int n);
void ofip_net_kill(struct exi_rma_link *l);
int ofip_net_take(struct exi_rma_net *n);
void ofip_net_reap(struct exi_rma_net *n);
void ofip_net_request(struct exi_rma_net *n);
void ofip_net_links(struct exi_rma_net *n, void (*f)(struct exi_rma_link *l));
void ofip_nets_each(void (*f)(struct exi_rma_net *n));

/* Looks before it is believed that work keeps coming. */
#define OFIP_TRIES 16

/* All nets, under nets_lock of ofi_net.c. */
extern struct exi_list ofip_nets;

/* --- what arrived, and requests (ofi_post.c) ------------------------------ */

/* Libfabric may put the next message there. 0 also where the endpoint has gone. */
ssize_t ofip_post_buffer(struct ofip_net *n, struct ofip_buffer *b);

/* Takes the requests that are over; `reap` is held. */
void ofip_net_reap_locked(struct ofip_net *n);

/* --- who looks, and when (ofi_watch.c) ------------------------------------- */

/* The service looks at the net in so many ns. */
void ofip_net_poll_in(struct ofip_net *n, uint64_t ns);

/* Nobody else reads a queue, or lets libfabric ask its links. */
void ofip_net_hold(struct ofip_net *n);
void ofip_net_let_go(struct ofip_net *n);

/* Held, or nobody knows the net yet: libfabric copies what poll(2) writes to, and who
 * reads a queue may move. */
int ofip_net_ask_waits(struct ofip_net *n, struct ofip_waits *ret);

/* The service looks when something comes: by the descriptors, or where there are none
 * by the time. */
void ofip_net_watch(struct ofip_net *n);

/* Not only disarmed: in a set it costs every message, also when the program takes
 * them all. */
void ofip_net_unwatch(int fd);

/* The service: something may have come. timed: nobody waits, but it was long
 * enough. */
void ofip_net_look_at(struct ofip_net *n, bool timed);

/* Of the events of the same name in struct ofip_net. */
void ofip_net_on_received(struct exi_rma_event *e);
void ofip_net_on_sent(struct exi_rma_event *e);
void ofip_net_on_poke(struct exi_rma_event *e);

/* --- nets without descriptors (ofi_doze.c) ------------------------------ */

/* Requests of the link were posted; the post lock is held. */
void ofip_doze_posted(struct ofip_link *l);
/* What the other end says over the rendezvous. 1: the net is to be looked at; 0:
 * nothing. -errno. */
int ofip_doze_heard(struct ofip_link *l);
/* All ends ring: a look from here on may be the last. The service lock is held, here
 * and for the next. */
bool ofip_doze_agreed(struct ofip_net *n);
/* Asks those who would not, if the net is quiet; and rings for what is under way, as
 * libfabric may say more of it. */
void ofip_doze_ask(struct ofip_net *n, bool quiet);

/* --- the rendezvous' sockets (ofi_sock.c) ------------------------------- */

/* Who asked, until his REQUEST is whole and taken. */
struct ofip_asker {
	struct exi_list node;
	struct exi_rma_event event;
	int sock;
	void *listener;
	uint64_t deadline;
	unsigned int fill;
	unsigned char in[sizeof(struct exi_pact_request)];
};

int ofip_sock_listen(const struct exi_listening *at, void **ret);
void ofip_sock_unlisten(void *listener);
uint16_t ofip_sock_port_of(const void *listener);
/* A connection to there is under way. -errno. */
int ofip_sock_connect(const struct sockaddr *from, const struct sockaddr *to,
		      int *ret);
/* All of it. -errno. */
int ofip_sock_say(int sock, const void *bytes, size_t len);
/* The next message of up to len bytes, as its head tells; in parts. 0: not yet.
 * -ENOTCONN: the other end has closed. -EPROTO. */
ssize_t ofip_sock_take(int sock, unsigned char *in, unsigned int *fill,
		       size_t len);
void ofip_sock_close(int *sock);
void ofip_asker_free(struct ofip_asker *a);
/* Askers that said nothing for long. */
void ofip_socks_look(uint64_t now);
void ofip_socks_forked(void);

/* --- descriptors of libfabric's (ofi_fds.c) ----------------------------- */

/* Those that it opens from here on are high, and kept like the library's. */
void ofip_fds_take(void);
/* In a forked child: they are the parent's, who must be able to end them. */
void ofip_fds_forked(void);

/* Its calls lead to us. */
bool ofip_fds_taken(void);

/* --- libfabric's shm (ofi_shm.c) ---------------------------------------- */

/* A name of ours for an endpoint, as long as all others. -errno. */
int ofip_shm_name(struct fid_ep *ep);
/* Whether the endpoint of that name can be written to. -errno. */
int ofip_shm_reach(const unsigned char *name, size_t len);
/* This thread's, since it was asked last. */
bool ofip_shm_write_failed(void);
/* Instead of the C library's. */
long ofip_shm_syscall(long number, long a, long b, long c, long d, long e,
		      long f);
int ofip_shm_open(const char *name, int flags, mode_t mode);
int ofip_shm_unlink(const char *name);
int ofip_shm_stat(const char *path, struct stat *ret);
int ofip_shm_sigaction(int number, const struct sigaction *act,
		       struct sigaction *old);
int ofip_shm_spin_lock(pthread_spinlock_t *l);
int ofip_shm_spin_trylock(pthread_spinlock_t *l);
int ofip_shm_spin_unlock(pthread_spinlock_t *l);
/* Before any of these. */
void ofip_shm_start(void);
/* In a forked child, single-threaded: the memory is the parent's. */
void ofip_shm_forked(void);

/* --- meeting (ofi_meet.c) ----------------------------------------------- */

/* An event of the connection manager. The service lock is held. */
void ofip_meet_connected_by(struct ofip_net *n, struct fi_info *info,
			    const uint8_t *token, size_t len);
void ofip_meet_connected(struct ofip_link *l);

/* Of struct exi_rma_fabric. */
uint16_t ofip_meet_port_for(uint16_t tcp);
int ofip_meet_ask(struct exi_rma_link *l);
void ofip_meet_part(struct exi_rma_link *l);
void ofip_meet_accept(struct exi_rma_link *l, void *asker);
void ofip_meet_reject(void *asker, const struct exi_pact_reject *r);
void ofip_meet_proof(struct exi_rma_link *l, const struct exi_rma_msg *m,
		     const void *extra, uint32_t len);
void ofip_meet_sever(struct exi_rma_link *l);
void ofip_meet_look(uint64_t now);

#endif
