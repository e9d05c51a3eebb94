/* SPDX-License-Identifier: BSD-2-Clause */
/* exs stat: the same view for people, for programs and for Prometheus. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>

#include "core/base/reason.h"
#include "core/base/util.h"
#include "core/sock/table.h"
#include "exi_build.h"
#include "tools/stat.h"
#include "tools/tool.h"

static const char *role_name(int role)
{
	return role == EXI_ROLE_CONNECT ? "connect" : "accept";
}

static uint64_t both(const struct stat_conn *c, size_t at)
{
	uint64_t ret = 0;

	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		uint64_t one;

		memcpy(&one, (const char *)&c->dir[d] + at, sizeof(one));
		ret += one;
	}
	return ret;
}
#define BOTH(c, member) both(c, offsetof(struct stat_dir, member))

static const char *share(char buf[TOOL_TEXT], uint64_t part, uint64_t all)
{
	if (all)
		snprintf(buf, TOOL_TEXT, "%.0f%%",
			 100.0 * (double)part / (double)all);
	else
		strcpy(buf, "-");
	return buf;
}

static const char *count(char buf[TOOL_TEXT], uint64_t n, const char *unit)
{
	char *end;

	tool_text_count(buf, (double)n);
	end = buf + strlen(buf);
	while (end > buf && end[-1] == ' ')
		*--end = '\0';
	snprintf(end, (size_t)(buf + TOOL_TEXT - end), "%s", unit);
	return buf;
}

static const char *ago(char buf[TOOL_TEXT], uint64_t ns)
{
	if (ns == UINT64_MAX)
		strcpy(buf, "-");
	else if (ns < 60000000000u)
		snprintf(buf, TOOL_TEXT, "%.1fs", (double)ns / 1e9);
	else
		snprintf(buf, TOOL_TEXT, "%" PRIu64 "m%02" PRIu64 "s",
			 ns / 60000000000u, ns / 1000000000u % 60);
	return buf;
}

/* Orders connections by what identifies them in every view. */
static int by_holder(const void *a, const void *b)
{
	const struct stat_conn *x = *(const struct stat_conn *const *)a,
			       *y = *(const struct stat_conn *const *)b;
	const uint64_t of_x[] = { x->tcp.inode, (uint64_t)x->fd,
				  (uint64_t)x->process->pid,
				  x->process->started },
		       of_y[] = { y->tcp.inode, (uint64_t)y->fd,
				  (uint64_t)y->process->pid,
				  y->process->started };

	for (int i = 0; i < 4; i++)
		if (of_x[i] != of_y[i])
			return of_x[i] < of_y[i] ? -1 : 1;
	return 0;
}

void stat_order(struct stat_view *v)
{
	v->order = calloc(v->n_conns + 1, sizeof(*v->order));
	if (!v->order)
		return;
	for (size_t i = 0; i < v->n_conns; i++)
		v->order[i] = &v->conns[i];
	qsort(v->order, v->n_conns, sizeof(*v->order), by_holder);
}

/* The same connection in the earlier view. */
static const struct stat_conn *earlier(const struct stat_view *v,
				       const struct stat_conn *c)
{
	const struct stat_conn **found;

	if (!v || !v->order)
		return NULL;
	found = bsearch(&c, v->order, v->n_conns, sizeof(*v->order), by_holder);
	return found ? *found : NULL;
}

static uint64_t rate(uint64_t now, uint64_t before, double seconds)
{
	return now > before && seconds > 0
		       ? (uint64_t)((double)(now - before) / seconds)
		       : 0;
}

static void show_extended(const struct stat_conn *c)
{
	static const char *const words[] = { "received", "sent" };
	char a[TOOL_TEXT], b[TOOL_TEXT], e[TOOL_TEXT], f[TOOL_TEXT];

	for (int d = EXI_TX; d >= EXI_RX; d--) {
		const struct stat_dir *h = &c->dir[d];

		printf("      %-8s %s in %s transfers, %s without a copy, "
		       "moved %s ago",
		       words[d], count(a, h->bytes, "B"),
		       count(b, h->moves, ""), count(e, h->direct_bytes, "B"),
		       ago(f, h->idle_ns));
		printf(", wake-ups %s %s, sleeps %s, spins %s",
		       d == EXI_TX ? "given" : "taken", count(a, h->bells, ""),
		       count(b, h->sleeps, ""), count(e, h->spins, ""));
		if (h->held >= 0 && h->ring)
			printf(", ring holds %s of %s",
			       count(a, (uint64_t)h->held, "B"),
			       tool_text_bytes(b, h->ring));
		printf(", switched up %u, down %u\n", h->ups, h->downs);
	}
	printf("      %s, age %s", role_name(c->role),
	       c->young ? "-" : ago(a, c->age_ns));
	if (c->peer)
		printf(", peer %s/%d fd %d (%s)", c->peer->process->name,
		       (int)c->peer->process->pid, c->peer->fd,
		       exs_x_reason_name(c->peer->reason));
	putchar('\n');
}

static void show_conn(const struct stat_conn *c, const struct stat_style *how)
{
	const struct stat_conn *was = earlier(how->before, c);
	const struct stat_dir *rx = &c->dir[EXI_RX], *tx = &c->dir[EXI_TX];
	char here[STAT_ADDR], there[STAT_ADDR], who[64], on[40];
	char a[TOOL_TEXT], b[TOOL_TEXT], e[TOOL_TEXT];

	snprintf(who, sizeof(who), "%s/%d", c->process->name,
		 (int)c->process->pid);
	snprintf(on, sizeof(on), "%.15s/%.15s", tx->fabric, rx->fabric);
	printf("%-10s %-22s %5d %-24s %-24s %-9s %8s %8s %5s",
	       stat_state(c->tcp.state), who, c->fd,
	       stat_addr(here, &c->tcp, 0), stat_addr(there, &c->tcp, 1), on,
	       count(a, tx->bytes, "B"), count(b, rx->bytes, "B"),
	       share(e, BOTH(c, fabric_bytes), BOTH(c, bytes)));
	if (how->before)
		printf(" %8s %8s",
		       was ? count(a,
				   rate(tx->bytes, was->dir[EXI_TX].bytes,
					how->seconds),
				   "B")
			   : "-",
		       was ? count(b,
				   rate(rx->bytes, was->dir[EXI_RX].bytes,
					how->seconds),
				   "B")
			   : "-");
	printf("  %s\n", c->reason ? exs_x_reason_name(c->reason) : "-");
	if (how->extended)
		show_extended(c);
}

static void show_conns(const struct stat_view *v, const struct stat_style *how)
{
	printf("%-10s %-22s %5s %-24s %-24s %-9s %8s %8s %5s", "State",
	       "Process", "Fd", "Local", "Peer", "Out/In", "Sent", "Received",
	       "Off");
	if (how->before)
		printf(" %8s %8s", "Sent/s", "Recv/s");
	printf("  Reason\n");
	for (size_t i = 0; i < v->n_conns; i++)
		show_conn(&v->conns[i], how);
}

/* --- sums --------------------------------------------------------------- */

struct sum {
	const struct stat_process *process;
	uint64_t n, on_fabric;
	uint64_t bytes[2], fabric_bytes[2], moves[2], bells[2];
};

static void add_conn(struct sum *s, const struct stat_conn *c)
{
	s->n++;
	s->on_fabric += !c->reason;
	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		s->bytes[d] += c->dir[d].bytes;
		s->fabric_bytes[d] += c->dir[d].fabric_bytes;
		s->moves[d] += c->dir[d].moves;
		s->bells[d] += c->dir[d].bells;
	}
}

/* The sum over the listed connections and those that have ended. */
static struct sum sum_of(const struct stat_view *v,
			 const struct stat_process *p)
{
	struct sum s = { .process = p };

	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		s.bytes[d] = p->ended_bytes[d];
		s.fabric_bytes[d] = p->ended_fabric_bytes[d];
		s.moves[d] = p->ended_moves[d];
	}
	for (size_t i = 0; i < v->n_conns; i++)
		if (v->conns[i].process == p)
			add_conn(&s, &v->conns[i]);
	return s;
}

static void show_summary(const struct stat_view *v)
{
	char who[64], a[TOOL_TEXT], b[TOOL_TEXT], e[TOOL_TEXT], f[TOOL_TEXT];

	printf("%-22s %7s %7s %7s %9s %9s %5s %9s  %s\n", "Process", "Conns",
	       "Fabric", "Ended", "Sent", "Received", "Off", "Wake-ups",
	       "libexs");
	for (size_t i = 0; i < v->n_processes; i++) {
		const struct stat_process *p = v->processes[i];
		struct sum s = sum_of(v, p);
		uint64_t all = s.bytes[EXI_RX] + s.bytes[EXI_TX];

		if (!p->wanted)
			continue;
		snprintf(who, sizeof(who), "%s/%d", p->name, (int)p->pid);
		printf("%-22s %7" PRIu64 " %7" PRIu64 " %7" PRIu64
		       " %9s %9s %5s %9s  %s\n",
		       who, s.n, s.on_fabric, p->ended,
		       count(a, s.bytes[EXI_TX], "B"),
		       count(b, s.bytes[EXI_RX], "B"),
		       share(e, s.fabric_bytes[EXI_RX] + s.fabric_bytes[EXI_TX],
			     all),
		       count(f, s.bells[EXI_TX], ""), p->library);
	}
}

/* Shows each reason in the list once. */
static void show_reasons(const struct stat_view *v)
{
	static const char *const lasts[] = {
		[EXI_REASON_SOON] = "may still move",
		[EXI_REASON_ASKED] = "moves when asked to",
		[EXI_REASON_STAYS] = "stays on TCP; a new one may move",
		[EXI_REASON_NEVER] = "never moves",
	};
	size_t n[EXS_X_REASON_MAX_ + 1] = { 0 };
	bool any = false;

	for (size_t i = 0; i < v->n_conns; i++)
		n[v->conns[i].reason < 0 ? EXS_X_REASON_MAX_
					 : v->conns[i].reason]++;
	for (int r = EXS_X_REASON_UNDECIDED; r <= EXS_X_REASON_MAX_; r++) {
		if (!n[r])
			continue;
		printf("%s%s: %zu connection%s: %s\n", any ? "" : "\n",
		       exs_x_reason_name(r), n[r], n[r] == 1 ? "" : "s",
		       exi_reason_means(r));
		if (exi_reason_cure(r)[0])
			printf("  to do: %s\n", exi_reason_cure(r));
		printf("  lasts: %s\n", lasts[exi_reason_lasts(r)]);
		any = true;
	}
}

void stat_show(const struct stat_view *v, const struct stat_style *how)
{
	if (how->summary)
		show_summary(v);
	else
		show_conns(v, how);
	show_reasons(v);
	for (size_t i = 0; i < v->n_processes; i++) {
		const struct stat_process *p = v->processes[i];

		if (p->wanted && p->unlisted)
			printf("%s/%d has %u connection%s that its page has no "
			       "room for\n",
			       p->name, (int)p->pid, p->unlisted,
			       p->unlisted == 1 ? "" : "s");
		if (p->wanted && p->unread)
			printf("%s/%d has %u connection%s that changed during "
			       "the read\n",
			       p->name, (int)p->pid, p->unread,
			       p->unread == 1 ? "" : "s");
	}
}

/* --- JSON --------------------------------------------------------------- */

static json_t *dir_json(const struct stat_dir *d)
{
	json_t *o = json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i}", "fabric",
		d->fabric, "bytes", (json_int_t)d->bytes, "fabric_bytes",
		(json_int_t)d->fabric_bytes, "direct_bytes",
		(json_int_t)d->direct_bytes, "transfers", (json_int_t)d->moves,
		"wakeups", (json_int_t)d->bells, "sleeps",
		(json_int_t)d->sleeps, "spins", (json_int_t)d->spins,
		"switched_up", (int)d->ups, "switched_down", (int)d->downs);

	json_object_set_new(o, "idle_ns",
			    d->idle_ns == UINT64_MAX
				    ? json_null()
				    : json_integer((json_int_t)d->idle_ns));
	json_object_set_new(o, "ring_holds",
			    d->held < 0 ? json_null() : json_integer(d->held));
	json_object_set_new(o, "ring_bytes",
			    d->ring ? json_integer((json_int_t)d->ring)
				    : json_null());
	return o;
}

static json_t *conn_json(const struct stat_conn *c)
{
	char here[STAT_ADDR], there[STAT_ADDR];
	json_t *o = json_pack(
		"{s:i, s:s, s:i, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, "
		"s:o, s:o}",
		"pid", (int)c->process->pid, "process", c->process->name, "fd",
		c->fd, "inode", (json_int_t)c->tcp.inode, "state",
		stat_state(c->tcp.state), "local", stat_addr(here, &c->tcp, 0),
		"peer", stat_addr(there, &c->tcp, 1), "role",
		role_name(c->role), "reason", exs_x_reason_name(c->reason),
		"means", exi_reason_means(c->reason), "cure",
		exi_reason_cure(c->reason), "young", c->young, "sends",
		dir_json(&c->dir[EXI_TX]), "receives",
		dir_json(&c->dir[EXI_RX]));

	if (!c->young)
		json_object_set_new(o, "age_ns",
				    json_integer((json_int_t)c->age_ns));
	if (c->peer)
		json_object_set_new(
			o, "other_end",
			json_pack("{s:i, s:s, s:i, s:s}", "pid",
				  (int)c->peer->process->pid, "process",
				  c->peer->process->name, "fd", c->peer->fd,
				  "reason",
				  exs_x_reason_name(c->peer->reason)));
	return o;
}

void stat_show_json(const struct stat_view *v)
{
	json_t *conns = json_array(), *processes = json_array(), *all;

	for (size_t i = 0; i < v->n_conns; i++)
		json_array_append_new(conns, conn_json(&v->conns[i]));
	for (size_t i = 0; i < v->n_processes; i++) {
		const struct stat_process *p = v->processes[i];

		if (!p->wanted)
			continue;
		json_array_append_new(
			processes,
			json_pack("{s:i, s:s, s:s, s:I, s:i, s:i}", "pid",
				  (int)p->pid, "process", p->name, "libexs",
				  p->library, "ended", (json_int_t)p->ended,
				  "unlisted", (int)p->unlisted, "unread",
				  (int)p->unread));
	}
	all = json_pack("{s:s, s:i, s:o, s:o}", "version", EXI_VERSION_STRING,
			"denied", (int)v->denied, "processes", processes,
			"connections", conns);
	json_dumpf(all, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(all);
}

/* --- Prometheus --------------------------------------------------------- */

/* A name within quotes. */
static void put_label(const char *name)
{
	for (; *name; name++) {
		if (*name == '"' || *name == '\\')
			putchar('\\');
		putchar(*name);
	}
}

static void put_of(const char *metric, const struct stat_process *p)
{
	printf("%s{pid=\"%d\",process=\"", metric, (int)p->pid);
	put_label(p->name);
	putchar('"');
}

static void head(const char *metric, const char *type, const char *help)
{
	printf("# HELP %s %s\n# TYPE %s %s\n", metric, help, metric, type);
}

static void put_reasons(const struct stat_view *v, const struct stat_process *p)
{
	size_t n[EXS_X_REASON_MAX_ + 1] = { 0 };

	for (size_t i = 0; i < v->n_conns; i++)
		if (v->conns[i].process == p)
			n[v->conns[i].reason < 0 ? EXS_X_REASON_MAX_
						 : v->conns[i].reason]++;
	for (int r = 0; r <= EXS_X_REASON_MAX_; r++) {
		if (!n[r])
			continue;
		put_of("exs_connections", p);
		printf(",reason=\"%s\"} %zu\n", exs_x_reason_name(r), n[r]);
	}
}

static void put_bytes(const struct sum *s)
{
	static const char *const words[] = { "in", "out" };

	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		uint64_t tcp = s->bytes[d] > s->fabric_bytes[d]
				       ? s->bytes[d] - s->fabric_bytes[d]
				       : 0;

		put_of("exs_bytes_total", s->process);
		printf(",direction=\"%s\",path=\"fabric\"} %" PRIu64 "\n",
		       words[d], s->fabric_bytes[d]);
		put_of("exs_bytes_total", s->process);
		printf(",direction=\"%s\",path=\"tcp\"} %" PRIu64 "\n",
		       words[d], tcp);
	}
}

void stat_show_prometheus(const struct stat_view *v)
{
	struct sum *s = calloc(v->n_processes + 1, sizeof(*s));
	size_t i, n = 0;

	if (!s)
		return;
	for (i = 0; i < v->n_processes; i++)
		if (v->processes[i]->wanted)
			s[n++] = sum_of(v, v->processes[i]);
	head("exs_connections", "gauge",
	     "Connections by reason; none: on a fabric");
	for (i = 0; i < n; i++)
		put_reasons(v, s[i].process);
	head("exs_bytes_total", "counter", "Bytes of programs, by their path");
	for (i = 0; i < n; i++)
		put_bytes(&s[i]);
	head("exs_connections_ended_total", "counter",
	     "Connections that are over");
	for (i = 0; i < n; i++) {
		put_of("exs_connections_ended_total", s[i].process);
		printf("} %" PRIu64 "\n", s[i].process->ended);
	}
	head("exs_processes", "gauge", "Processes that use libexs");
	printf("exs_processes %zu\n", n);
	free(s);
}
