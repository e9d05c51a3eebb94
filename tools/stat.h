/* SPDX-License-Identifier: BSD-2-Clause */
/* What exs stat knows about processes and their connections, and the functions
 * that find it out. */
#ifndef EXS_TOOLS_STAT_H
#define EXS_TOOLS_STAT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/fabric/provider.h"
#include "core/sock/stats_page.h"

#define STAT_NAME 40

/* What the kernel reports of a TCP socket, or of a UNIX stream. The addresses
 * of a UNIX stream are the inode numbers of both ends, 4 bytes each; 0:
 * unknown. */
struct stat_tcp {
	uint64_t inode;
	uint64_t netns; /* the inode of its network namespace */
	int family;
	int state; /* TCP_ESTABLISHED, ... */
	uint16_t port[2];
	uint8_t addr[2][16];	 /* here, there */
	char name[2][STAT_NAME]; /* of UNIX sockets; may be cut */
	bool hearsay;		 /* from a text that names may forge */
	bool counted;		 /* the next two are known */
	uint64_t sent;
	uint64_t received;
};

struct stat_dir {
	char fabric[16]; /* "tcp", "unix", or the fabric's name */
	bool off;	 /* not carried by the kernel */
	uint64_t bytes;
	uint64_t fabric_bytes;
	uint64_t direct_bytes;
	uint64_t moves;
	uint64_t bells;
	uint64_t sleeps;
	uint64_t spins;
	uint32_t ups;
	uint32_t downs;
	uint64_t idle_ns; /* since bytes last moved; UINT64_MAX: unknown */
	/* Bytes in the fabric: sent, and not received; -1: unknown, because the
	 * peer's process cannot be seen. */
	int64_t held;
	uint64_t ring; /* the largest size of the ring; 0: unknown */
};

struct stat_process;

struct stat_conn {
	struct stat_process *process;
	struct stat_tcp tcp;
	int fd;
	int role;	 /* enum exi_role */
	int reason;	 /* EXS_X_REASON_*; NONE: both ends are on a fabric */
	int last_reason; /* the last one, even if there is none now */
	bool young;	 /* the library only watches it yet */
	char name[16];	 /* of the fabric, or "" */
	uint64_t age_ns;
	struct stat_dir dir[2];
	const struct stat_conn *peer; /* its other end, if that is seen */
};

struct stat_process {
	bool wanted; /* by the command line; the others may be peers */
	pid_t pid;
	uint64_t started; /* of /proc/PID/stat; identifies it with pid */
	char name[32];
	char library[32];
	uint32_t ring_bytes;
	uint64_t upgrade_bytes;
	uint32_t unlisted;
	uint32_t unread; /* entries that changed while they were read */
	uint64_t ended;
	uint64_t ended_bytes[2];
	uint64_t ended_fabric_bytes[2];
	uint64_t ended_moves[2];
};

/* One look at the host. */
struct stat_view {
	struct stat_process **processes;
	size_t n_processes;
	struct stat_conn *conns;
	size_t n_conns;
	size_t room;
	const struct stat_conn **order; /* of conns, see stat_order() */
	unsigned int denied; /* processes that may not be looked at */
	char strange[160];   /* the last page that could not be read, or "" */
	void *claims;	     /* files that were read, each with its user */
};

/* Looks at all processes; at pid first, if it is not 0. 0, or -EACCES or -ESRCH
 * for pid. */
int stat_look(pid_t pid, struct stat_view *ret);
void stat_forget(struct stat_view *v);

/* The kernel's sockets, of this network namespace and of those of processes
 * that were seen. */
struct stat_tcps;
struct stat_tcps *stat_tcps_new(void);
/* pid: a process in the namespace, whose inode is netns. */
int stat_tcps_read(struct stat_tcps *t, pid_t pid, uint64_t netns);
const struct stat_tcp *stat_tcps_find(const struct stat_tcps *t,
				      uint64_t inode);
/* The first socket for which is() returns true; null: none. */
const struct stat_tcp *stat_tcps_search(const struct stat_tcps *t,
					bool (*is)(const struct stat_tcp *s,
						   const void *arg),
					const void *arg);
void stat_tcps_free(struct stat_tcps *t);

/* The stats page of a process: its files, and a copy of the head. Its contents
 * are not trusted. */
struct stat_page {
	int fd[EXI_STATS_AREAS];
	struct exi_stats_head head;
};
/* Calls f for each entry that is in use and whole. */
int stat_page_each(const struct stat_page *p, struct stat_process *of,
		   void (*f)(const struct exi_stats_entry *e, void *arg),
		   void *arg);

/* Opens the page of the process, and the folder of its descriptors. 0; -EACCES;
 * -ESRCH; -ENOENT: it has no page; or a limit of this process, such as
 * -EMFILE. */
int stat_open(pid_t pid, struct stat_page *ret, int *ret_fds);
void stat_close(struct stat_page *p, int fds);
/* Opens the file of a descriptor of the process if it is a memfd; no other file
 * is opened. -1, and errno. */
int stat_open_memfd(int fds, const char *number);
/* The mount of an open file; -1: unknown. */
long stat_mount_of(int fd);

/* Claims a file for a user. A file is read for one process of a user only: many
 * processes could refer to one large file, which costs their user its memory
 * once, but the reader its time for each. False: it was read before. */
bool stat_claim(struct stat_view *v, uint64_t inode, uint32_t uid);
void stat_claims_free(struct stat_view *v);

/* Sets the peers of a view. */
void stat_find_peers(struct stat_view *v);

/* As text: "127.0.0.1:80", or "/run/redis.sock:4711" with the inode. */
#define STAT_ADDR 64
const char *stat_addr(char buf[STAT_ADDR], const struct stat_tcp *t, int end);
const char *stat_state(int state);

/* Sorts the view, so that it can be the earlier view of another. Without memory
 * for that, it counts as empty. */
void stat_order(struct stat_view *v);

/* How a view is shown. before: an earlier view, after stat_order(), or null;
 * rates are computed over `seconds`. */
struct stat_style {
	bool extended;
	bool summary;
	const struct stat_view *before;
	double seconds;
};
void stat_show(const struct stat_view *v, const struct stat_style *how);
void stat_show_json(const struct stat_view *v);
void stat_show_prometheus(const struct stat_view *v);

#endif
