/* SPDX-License-Identifier: BSD-2-Clause */
/* exs check --pid: the connections of a running process, by what it and its
 * peers' processes have recorded. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "core/base/util.h"
#include "core/sock/table.h"
#include "tools/check.h"
#include "tools/tool.h"

/* The most kinds of connections that are shown. */
#define KINDS 16
/* With fewer, a process uses no fabric: a quarter is for the library
 * (fds.h). */
#define DESCRIPTORS_LEAST 32

struct ends {
	const struct stat_view *view;
	struct check_process *process;
	struct stat_tcps *tcps; /* of all namespaces that were seen */
};

/* The reasons that only say that the other end has a reason. */
static bool is_vague(int reason)
{
	return reason == EXS_X_REASON_UNDECIDED ||
	       reason == EXS_X_REASON_PLAIN_PEER ||
	       reason == EXS_X_REASON_PEER_REQUEST ||
	       reason == EXS_X_REASON_TIMEOUT;
}

static bool is_mirrored(const struct stat_tcp *a, const struct stat_tcp *b)
{
	return a->port[0] == b->port[1] && a->port[1] == b->port[0] &&
	       !memcmp(a->addr[0], b->addr[1], 16) &&
	       !memcmp(a->addr[1], b->addr[0], 16);
}

static const char *user_name(char buf[40], uid_t uid)
{
	const struct passwd *p = getpwuid(uid);

	if (p)
		snprintf(buf, 40, "%s", p->pw_name);
	else
		snprintf(buf, 40, "%u", (unsigned int)uid);
	return buf;
}

static void step_process(struct check *c, const struct stat_conn *conn,
			 const struct check_process *p)
{
	char user[40];

	check_step(c, "process", CHECK_GOOD, "%s[%d] of user %s, libexs %s",
		   p->name, (int)p->pid, user_name(user, p->uid),
		   conn->process->library);
	if (p->other_root)
		check_more(c, ", with a root directory of its own, whose files "
			      "are not read");
	if (p->seccomp)
		check_more(c, ", under a system call filter");
}

/* Describes a program that has no record of the connection. */
static void say_plain(struct check *c, const struct check_process *p, int fd)
{
	check_more(c, "%s[%d] fd %d, which %s libexs", p->name, (int)p->pid, fd,
		   p->library ? "uses" : "does not use");
	check_note_plain(c, p);
	check_peer_settings(c, p);
	if (p->library && p->descriptors_max < DESCRIPTORS_LEAST) {
		check_more(c, ", with a ulimit -n of %d",
			   (int)p->descriptors_max);
		c->peer_reason = EXS_X_REASON_DESCRIPTORS;
	}
}

static void say_met(struct check *c, const struct stat_conn *peer)
{
	struct check_process p;

	check_more(c, "%s[%d] fd %d, libexs %s, reason %s there",
		   peer->process->name, (int)peer->process->pid, peer->fd,
		   peer->process->library, exs_x_reason_name(peer->reason));
	check_process_read(peer->process->pid, &p);
	check_peer_settings(c, &p);
	check_process_free(&p);
}

static void step_peer(struct check *c, const struct stat_conn *conn,
		      const struct stat_tcp *other)
{
	const struct stat_conn *peer = conn->peer;
	struct check_process p;
	pid_t pid;
	int fd;

	check_step(c, "peer", CHECK_GOOD, "%s", "");
	if (peer) {
		say_met(c, peer);
		return;
	}
	if (other && check_holder(other->inode, &pid, &fd) &&
	    (check_process_read(pid, &p) == 0 || p.name[0])) {
		say_plain(c, &p, fd);
		check_process_free(&p);
		return;
	}
	c->step[c->n - 1].state = CHECK_UNKNOWN;
	check_more(c, "%s",
		   other ? "on this host, in a process that this user may "
			   "not inspect"
			 : "not on this host, or in a process that this "
			   "user may not inspect");
}

static void step_namespace(struct check *c, const struct stat_conn *conn,
			   const struct stat_tcp *other)
{
	if (other && other->netns == conn->tcp.netns)
		check_step(c, "namespace", CHECK_GOOD,
			   "both ends are in one network namespace");
	else if (other)
		check_step(c, "namespace", CHECK_GOOD,
			   "the other end is in another network namespace of "
			   "this host");
	else
		check_step(c, "namespace", CHECK_UNKNOWN,
			   "the other end is on another host, or in another "
			   "network namespace");
}

static bool is_other_end(const struct stat_tcp *t, const void *arg)
{
	return is_mirrored(t, arg);
}

/* Whether the connection has carried as many bytes as its end counts. */
static bool carried_enough(const struct stat_conn *conn)
{
	uint64_t n = conn->dir[EXI_RX].bytes + conn->dir[EXI_TX].bytes;

	return conn->reason == EXS_X_REASON_UNDECIDED &&
	       n > conn->process->upgrade_bytes;
}

/* Whether only the peer is missing. */
static bool awaits_peer(const struct stat_conn *conn)
{
	return carried_enough(conn) && !conn->peer;
}

static void step_traffic(struct check *c, const struct stat_conn *conn)
{
	const struct stat_dir *rx = &conn->dir[EXI_RX],
			      *tx = &conn->dir[EXI_TX];
	char a[TOOL_TEXT], b[TOOL_TEXT], e[TOOL_TEXT];
	uint64_t least = conn->process->upgrade_bytes;

	check_step(c, "traffic", CHECK_GOOD, "%s sent, %s received",
		   tool_text_bytes(a, tx->bytes),
		   tool_text_bytes(b, rx->bytes));
	if (awaits_peer(conn))
		check_more(c, "; the peer has not answered yet");
	else if (carried_enough(conn))
		check_more(c, "; those that the connecting end sends count, of "
			      "the others more are needed (EXS_UPGRADE in "
			      "exs(7))");
	else if (least != UINT64_MAX && least)
		check_more(c, "; the connection may move after %s",
			   tool_text_bytes(e, least));
}

/* The verdict: the reason of this end, or that of the other end if this one
 * only refers to it. */
static void judge(struct check *c, const struct stat_conn *conn)
{
	const struct stat_conn *peer = conn->peer;
	char at[64] = "";
	int reason = conn->reason < 0 ? EXS_X_REASON_UNDECIDED : conn->reason;

	if (!reason) {
		check_reason(c, reason, "");
		snprintf(c->verdict, sizeof(c->verdict),
			 "%s in both directions", conn->dir[EXI_TX].fabric);
		return;
	}
	if (peer && peer->reason > 0 && is_vague(reason) &&
	    !is_vague(peer->reason)) {
		reason = peer->reason;
		c->there = true;
		snprintf(at, sizeof(at), "%s[%d]", peer->process->name,
			 (int)peer->process->pid);
	} else if (is_vague(reason) && c->peer_reason) {
		reason = c->peer_reason;
		c->there = true;
	}
	check_reason(c, reason, at);
	if (reason == EXS_X_REASON_UNDECIDED && awaits_peer(conn))
		snprintf(c->cure, sizeof(c->cure),
			 "wait: an end that has no answer for ten seconds "
			 "gives another reason; and see exs check --pid where "
			 "the peer runs");
}

/* The reasons for which the system may be to blame. */
static bool may_be_system(const struct stat_conn *conn)
{
	return conn->reason == EXS_X_REASON_MEMORY ||
	       conn->reason == EXS_X_REASON_DESCRIPTORS ||
	       conn->reason == EXS_X_REASON_NO_PROOF ||
	       conn->reason == EXS_X_REASON_NO_PROVIDER;
}

static void check_conn(const struct ends *e, const struct stat_conn *conn,
		       struct check *c)
{
	const struct stat_tcp *other =
		stat_tcps_search(e->tcps, is_other_end, &conn->tcp);
	char here[STAT_ADDR], there[STAT_ADDR];
	bool remote = !other || other->netns != conn->tcp.netns ||
		      !strcmp(exi_reason_step(conn->reason), "key");

	snprintf(c->what, sizeof(c->what), "%s[%d] fd %d: %s to %s",
		 e->process->name, (int)e->process->pid, conn->fd,
		 stat_addr(here, &conn->tcp, 0),
		 stat_addr(there, &conn->tcp, 1));
	step_process(c, conn, e->process);
	check_step(c, "socket", CHECK_GOOD, "%s, %s",
		   stat_state(conn->tcp.state),
		   conn->role == EXI_ROLE_CONNECT ? "made by connect"
						  : "made by accept");
	check_settings(c, e->process);
	/* Only if that is the cause: the process may have met its peer before
	 * the system denied this. */
	if (check_system(c) && !may_be_system(conn))
		c->step[c->n - 1].state = CHECK_UNKNOWN;
	check_filter(c, e->process);
	step_namespace(c, conn, other);
	step_peer(c, conn, other);
	check_fabrics(c, conn->tcp.port[conn->role == EXI_ROLE_CONNECT]);
	check_key(c, remote);
	check_limits(c, e->process);
	check_step(c, "program", CHECK_GOOD,
		   "it has done nothing that keeps the connection on TCP");
	step_traffic(c, conn);
	judge(c, conn);
	for (unsigned int i = 0; i < c->n; i++)
		if (!strcmp(c->step[i].name, "program") &&
		    c->step[i].state != CHECK_GOOD)
			c->step[i].text[0] = '\0';
}

/* Describes a process that has no connection to show. */
static int no_connection(const struct check_process *p, int fd)
{
	if (!p->library)
		return tool_fail("%s[%d] does not use libexs: start it with "
				 "exs run",
				 p->name, (int)p->pid);
	if (fd >= 0)
		return tool_fail("descriptor %d of %s[%d] is no connection "
				 "that libexs knows; exs stat %d lists them",
				 fd, p->name, (int)p->pid, (int)p->pid);
	if (p->descriptors_max < EXI_STATS_FDS)
		return tool_fail("%s[%d] keeps no counters, for it may have "
				 "%d descriptors only: start it with a higher "
				 "ulimit -n, %d at least",
				 p->name, (int)p->pid, (int)p->descriptors_max,
				 (int)EXI_STATS_FDS);
	if (p->file_max != UINT64_MAX)
		return tool_fail("%s[%d] has no connection yet, or it keeps no "
				 "counters: they count as a file, of which it "
				 "may have %llu bytes (ulimit -f)",
				 p->name, (int)p->pid,
				 (unsigned long long)p->file_max);
	return tool_fail("%s[%d] uses libexs and has no connection yet, or was "
			 "started with EXS_STATS=off",
			 p->name, (int)p->pid);
}

static bool is_alike(const struct stat_conn *a, const struct stat_conn *b)
{
	return a->reason == b->reason && !a->peer == !b->peer &&
	       (!a->peer || a->peer->reason == b->peer->reason);
}

/* Chooses one connection of each kind, with the number of others like it. */
static size_t choose(const struct stat_view *v, pid_t pid, int fd,
		     const struct stat_conn *ret[KINDS], size_t alike[KINDS])
{
	size_t n = 0, k;

	for (size_t i = 0; i < v->n_conns; i++) {
		const struct stat_conn *c = &v->conns[i];

		if (c->process->pid != pid || (fd >= 0 && c->fd != fd) ||
		    (c->role != EXI_ROLE_CONNECT && c->role != EXI_ROLE_ACCEPT))
			continue;
		for (k = 0; k < n && !is_alike(ret[k], c); k++)
			;
		if (k < n)
			alike[k]++;
		else if (n < KINDS)
			ret[n++] = c;
	}
	return n;
}

static void read_namespaces(const struct stat_view *v, struct stat_tcps *t)
{
	for (size_t i = 0; i < v->n_processes; i++) {
		char path[48];
		struct stat ns;

		snprintf(path, sizeof(path), "/proc/%d/ns/net",
			 (int)v->processes[i]->pid);
		if (stat(path, &ns) == 0)
			stat_tcps_read(t, v->processes[i]->pid, ns.st_ino);
	}
}

static int check_all(struct ends *e, int fd, struct check **ret, size_t *ret_n)
{
	const struct stat_conn *chosen[KINDS];
	size_t alike[KINDS] = { 0 }, n;
	struct check *all;
	int err;

	n = choose(e->view, e->process->pid, fd, chosen, alike);
	if (!n)
		return no_connection(e->process, fd);
	all = calloc(n, sizeof(*all));
	if (!all)
		return tool_fail("there is no memory");
	read_namespaces(e->view, e->tcps);
	err = check_become(e->process);
	if (err) {
		free(all);
		return tool_fail("cannot try things as %s[%d] would: %s",
				 e->process->name, (int)e->process->pid,
				 strerrordesc_np(-err));
	}
	for (size_t i = 0; i < n; i++) {
		check_conn(e, chosen[i], &all[i]);
		all[i].alike = alike[i];
	}
	*ret = all;
	*ret_n = n;
	return TOOL_OK;
}

int check_pid(pid_t pid, int fd, struct check **ret, size_t *ret_n)
{
	struct check_process p;
	struct stat_view v = { 0 };
	struct ends e = { .view = &v, .process = &p };
	int err = check_process_read(pid, &p), code;

	*ret_n = 0;
	if (!err)
		err = stat_look(pid, &v);
	e.tcps = err ? NULL : stat_tcps_new();
	if (err == -EACCES || err == -EPERM)
		code = tool_fail("process %d is another user's, or may not be "
				 "looked at: run exs check as that user or as "
				 "root",
				 (int)pid);
	else if (err == -ESRCH)
		code = tool_fail("there is no process %d", (int)pid);
	else if (err || !e.tcps)
		code = tool_fail("process %d: %s", (int)pid,
				 strerrordesc_np(err ? -err : ENOMEM));
	else
		code = check_all(&e, fd, ret, ret_n);
	stat_tcps_free(e.tcps);
	stat_forget(&v);
	check_process_free(&p);
	return code;
}
