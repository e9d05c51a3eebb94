/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the ofi fabric share: finding providers, nets, dozing,
 * sockets of the rendezvous, descriptors, shm, the handshake.
 *
 * Objects, as in core/rma/rma.h: a net is a domain of libfabric at one address
 * of this host, with queues for up to OFIP_SLOTS connections; a link is an
 * endpoint of its own (FI_EP_MSG), or a name at the net's one (FI_EP_RDM).
 *
 * Locks: inside a net's lock, its `reap` is for taking requests that are
 * over. */
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
#include "core/trust/auth_wire.h"
#include "providers/ofi/ofi_wire.h"

extern const struct exi_provider ofip_provider;

#define OFIP_VERSION FI_VERSION(1, 17)

/* --- what libfabric finds (ofi_info.c) ---------------------------------- */

/* Finds the first provider that can be used, with endpoints that reach the host
 * at peer from the address at; both null: any. 0, or -ENODEV and why. */
int ofip_info(const struct sockaddr *at, const struct sockaddr *peer,
	      struct fi_info **ret, char *why, size_t len);
/* Returns all that libfabric finds of the provider of that name, or of every
 * provider; may be null. */
struct fi_info *ofip_infos(const char *provider, enum fi_ep_type type,
			   const struct sockaddr *at);
/* The reason why an entry that libfabric found is not used; null: it can be
 * used. */
const char *ofip_unfit(const struct fi_info *i);
/* Whether peer can be reached from at. Without IP addresses it is unknown which
 * host is reached: a provider within one host does not reach another. */
bool ofip_reaches(const struct fi_info *i, const struct sockaddr *at,
		  const struct sockaddr *peer);
/* Whether endpoints are named by addresses of IP. */
bool ofip_inet(const struct fi_info *i);
/* Whether the provider is known to drive a device. Any other moves bytes by the
 * kernel or the CPU, or may. */
bool ofip_hardware(const struct fi_info *i);
/* Whether the provider sends in a thread of its own, after the call that asked
 * for it. */
bool ofip_later(const struct fi_info *i);
/* Whether this is libfabric's shm: a write without data is there when the call
 * returns; all else that is large is fetched by the receiver, if the sender
 * still lives. */
bool ofip_shm(const struct fi_info *i);

/* --- nets (ofi_net.c) --------------------------------------------------- */

#define OFIP_SLOTS 64u
/* The slots of a net for few: each look asks about all of them. */
#define OFIP_FEW 8u

/* A request or a receive buffer, as libfabric knows it. */
struct ofip_op {
	struct fi_context2 context;
	uint16_t slot;
	bool counted; /* counted as over when it was posted */
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
	uint32_t name;		/* the link's */
	uint32_t posted;	/* the last link's, when it left */
	uint32_t done;
	/* EXI_RMA_CREDITS and EXI_RMA_SEND_DEPTH; made when it is used
	 * first. */
	struct ofip_buffer *buffers;
	struct fid_mr *mr; /* for the buffers; null: not needed */
	struct ofip_op *ops;
};

/* RDM: the endpoint of another process, which may have many links. */
struct ofip_peer {
	struct exi_list node;
	unsigned int links;
	uint64_t idle; /* when a peer without links goes; 0 */
	fi_addr_t at;
	unsigned char name[OFIP_NAME_MAX];
};

/* The descriptors that libfabric waits for, for the queues of a net for few. */
struct ofip_waits {
	uint64_t change[2];
	size_t n;
	struct pollfd fd[4 * OFIP_FEW]; /* both queues'; two more for each */
};

struct ofip_net {
	struct exi_rma_net rma;
	struct exi_list node;
	struct fi_info *info;
	bool rdm;
	bool shm;
	bool spoiled; /* no new link joins it */
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
	/* The descriptors in the sets of a net for few, which are received_fd
	 * and sent_fd. Under both locks. */
	struct ofip_waits waits;
	_Atomic bool blind;		   /* the sets could not be filled */
	unsigned char name[OFIP_NAME_MAX]; /* pep's or ep's */
	uint16_t name_len;
	struct exi_rma_event on_eq, on_received, on_sent, on_poke;
	bool polled; /* libfabric has no descriptors */
	/* The provider refused a request, since the last look. */
	_Atomic bool refused;
	_Atomic bool dozes; /* until a peer rings */
	unsigned int rung;  /* rings since then */
	uint64_t rung_since;
	bool later;		    /* as ofip_later() returns */
	_Atomic bool requested;	    /* the descriptors are watched */
	_Atomic unsigned int takes; /* how often any thread took what arrived */
	unsigned int takes_seen;    /* takes when the service looked last */
	uint64_t due;		    /* when the service looks; 0 */
	unsigned int links;
	uint64_t idle;	      /* when a net that no link has goes; 0 */
	pthread_mutex_t reap; /* taking from sent */
	unsigned int slots;
	struct ofip_slot slot[OFIP_SLOTS];
};

static inline struct ofip_net *ofip_net(struct exi_rma_net *n)
{
	return exi_container(n, struct ofip_net, rma);
}

enum ofip_stage {
	OFIP_CONNECTING, /* A: the socket connects, too */
	OFIP_ASKED,	 /* A: ANSWER awaited */
	OFIP_ANSWERED,	 /* B: CONFIRM awaited */
	OFIP_PROVED,	 /* A: READY awaited; B: READY to be sent */
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
	uint8_t token[16];	/* MSG, B: the connecting endpoint shows it */
	/* MSG, B: the endpoint that connected before CONFIRM. */
	struct fi_info *by;
	struct exi_list later; /* READY could not be sent yet */
	uint64_t ready_by;     /* B: when READY must be sent at the latest */
	enum ofip_doze doze;   /* whether the other end rings us */
	_Atomic int rings;     /* whether we are to ring the other end */
	/* The rendezvous, and what came of its next message. The socket is
	 * closed with the post lock. */
	int sock;
	struct exi_rma_event on_sock;
	unsigned int fill;
	unsigned char in[sizeof(struct exi_auth_proof)];
};

static inline struct ofip_link *ofip_link(struct exi_rma_link *l)
{
	return exi_container(l, struct ofip_link, rma);
}

/* Joins a net at the address, and takes a slot in it. 0 or -errno. */
int ofip_net_join(struct ofip_link *l, const struct sockaddr *at,
		  const struct sockaddr *peer);
/* Makes the link's own endpoint (MSG), ready to receive. 0 or -errno. */
int ofip_net_endpoint(struct ofip_link *l, struct fi_info *info);
/* Gives the net the name of the other end's endpoint (RDM), which is as long as
 * ours. 0 or -errno. */
int ofip_net_know(struct ofip_link *l, const void *name);
/* Takes the slot and the endpoint away from the link. */
void ofip_net_leave(struct ofip_link *l);
/* Reports that nothing of the link uses the net any more. */
void ofip_net_quit(struct exi_rma_link *l);
/* Makes the service look now at a net without descriptors. */
void ofip_net_wake(struct ofip_net *n);
/* Looks at the nets whose time has come, and frees those without a user. The
 * service lock is held. */
void ofip_nets_tick(uint64_t now);
int ofip_nets_arm(void);
void ofip_nets_forked(void);

/* The calls of struct exi_rma_fabric (core/rma/rma.h). */
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

/* How often work is taken before the caller assumes that it keeps coming. */
#define OFIP_TRIES 16

/* The list of all nets, under nets_lock of ofi_net.c. */
extern struct exi_list ofip_nets;

/* --- what arrived, and requests (ofi_post.c) ------------------------------ */

/* Gives libfabric a buffer for the next message. 0 also if the endpoint is
 * gone. */
ssize_t ofip_post_buffer(struct ofip_net *n, struct ofip_buffer *b);

/* Takes the requests that are over; `reap` is held. */
void ofip_net_reap_locked(struct ofip_net *n);

/* --- who looks, and when (ofi_watch.c) ------------------------------------ */

/* Has the service look at the net in this many ns. */
void ofip_net_poll_in(struct ofip_net *n, uint64_t ns);

/* Keeps other threads from reading a queue, or letting libfabric ask its
 * links. */
void ofip_net_hold(struct ofip_net *n);
void ofip_net_let_go(struct ofip_net *n);

/* Asks libfabric for the descriptors. The net is held, or not known to other
 * threads yet: libfabric copies what poll(2) writes to, and a thread that reads
 * a queue may move that. */
int ofip_net_ask_waits(struct ofip_net *n, struct ofip_waits *ret);

/* Has the service look when something comes: by the descriptors, or by time
 * where there are none. */
void ofip_net_watch(struct ofip_net *n);

/* Removes a descriptor from the set. Disarming would not do: a descriptor in a
 * set adds cost to every message, even when the program takes them all. */
void ofip_net_unwatch(int fd);

/* The service looks at the net, for which something may have come. timed: no
 * thread waits, but it was long enough. */
void ofip_net_look_at(struct ofip_net *n, bool timed);

/* The calls of the events of the same name in struct ofip_net. */
void ofip_net_on_received(struct exi_rma_event *e);
void ofip_net_on_sent(struct exi_rma_event *e);
void ofip_net_on_poke(struct exi_rma_event *e);

/* --- nets without descriptors (ofi_doze.c) ------------------------------ */

/* Rings the other end, if it asked for that: requests of the link were posted.
 * The post lock is held. */
void ofip_doze_posted(struct ofip_link *l);
/* Reads what the other end sends over the rendezvous. 1: the net is to be
 * looked at; 0: nothing. -errno. */
int ofip_doze_heard(struct ofip_link *l);
/* Whether all ends send wake-ups: a look from here on may be the last. The
 * service lock is held, here and for the next. */
bool ofip_doze_agreed(struct ofip_net *n);
/* Asks the ends that would send no wake-up, if the net is quiet; and sends one
 * for what is under way, as libfabric may send more about it. */
void ofip_doze_ask(struct ofip_net *n, bool quiet);

/* --- the rendezvous' sockets (ofi_sock.c) ------------------------------- */

/* A peer that asked, until its REQUEST is whole and taken. */
struct ofip_asker {
	struct exi_list node;
	struct exi_rma_event event;
	int sock;
	void *listener;
	uint64_t deadline;
	unsigned int fill;
	unsigned char in[sizeof(struct exi_auth_request)];
};

int ofip_sock_listen(const struct exi_listening *at, void **ret);
void ofip_sock_unlisten(void *listener);
uint16_t ofip_sock_port_of(const void *listener);
/* Begins a connection from one address to another. 0 or -errno. */
int ofip_sock_connect(const struct sockaddr *from, const struct sockaddr *to,
		      int *ret);
/* Sends all of the bytes. 0 or -errno. */
int ofip_sock_say(int sock, const void *bytes, size_t len);
/* Takes the next message, as long as its head states, up to len bytes; in
 * parts. Returns its length; 0: not yet. -ENOTCONN: the other end has closed.
 * -EPROTO. */
ssize_t ofip_sock_take(int sock, unsigned char *in, unsigned int *fill,
		       size_t len);
void ofip_sock_close(int *sock);
void ofip_asker_free(struct ofip_asker *a);
/* Frees the askers that sent nothing for long. The service lock is held. */
void ofip_socks_tick(uint64_t now);
void ofip_socks_forked(void);

/* --- descriptors of libfabric's (ofi_fds.c) ----------------------------- */

/* Keeps the descriptors that libfabric opens from here on high, like the
 * library's. */
void ofip_fds_take(void);
/* Called in a forked child: libfabric's descriptors are the parent's, which
 * must be able to end them. */
void ofip_fds_forked(void);

/* Whether libfabric's calls are redirected to us. */
bool ofip_fds_taken(void);

/* --- libfabric's shm (ofi_shm.c) ---------------------------------------- */

/* Gives an endpoint a name of ours, as long as all others. 0 or -errno. */
int ofip_shm_name(struct fid_ep *ep);
/* Whether the endpoint of that name can be written to. -errno. */
int ofip_shm_reach(const unsigned char *name, size_t len);
/* Whether a write of this thread failed since the last call of this
 * function. */
bool ofip_shm_write_failed(void);
/* Calls of libfabric that come here instead of going to the C library. */
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
/* Called before any of the functions above. */
void ofip_shm_start(void);
/* Called in a forked child, single-threaded: the memory is the parent's. */
void ofip_shm_forked(void);

/* --- meeting (ofi_meet.c) ----------------------------------------------- */

/* Take an event of the connection manager. The service lock is held. */
void ofip_meet_connected_by(struct ofip_net *n, struct fi_info *info,
			    const uint8_t *token, size_t len);
void ofip_meet_connected(struct ofip_link *l);

/* The calls of struct exi_rma_fabric (core/rma/rma.h). */
uint16_t ofip_meet_port_for(uint16_t tcp);
int ofip_meet_ask(struct exi_rma_link *l);
void ofip_meet_part(struct exi_rma_link *l);
void ofip_meet_accept(struct exi_rma_link *l, void *asker);
void ofip_meet_reject(void *asker, const struct exi_auth_reject *r);
void ofip_meet_proof(struct exi_rma_link *l, const struct exi_rma_msg *m,
		     const void *extra, uint32_t len);
void ofip_meet_sever(struct exi_rma_link *l);
void ofip_meet_tick(uint64_t now);

#endif
