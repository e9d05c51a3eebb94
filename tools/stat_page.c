/* SPDX-License-Identifier: BSD-2-Clause */
/* exs stat: processes, their sockets and their pages. The data belongs to
 * others and may be hostile: docs/design/stats.md explains each check. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/util.h"
#include "core/sock/table.h"
#include "tools/stat.h"

#define LINK	    "/memfd:" EXI_STATS_NAME " (deleted)"
#define CHUNK	    1024u /* entries, or descriptors, that are read at once */
#define ENTRIES_MAX (1u << 20)
#define TRIES	    3

/* One process, while it is looked at. */
struct look {
	struct stat_view *view;
	struct stat_process *process;
	struct stat_tcps *tcps;
	uint64_t netns;
	uint32_t uid[2]; /* real, effective */
	int pid_inside;	 /* in its own namespace */
	/* Its sockets, by rising descriptor. */
	struct number {
		int fd;
		size_t socket; /* the same for all numbers of it */
		uint64_t inode;
	} * socks;
	size_t n_socks, room;
	bool *listed;			/* by socket */
	int files[4 * EXI_STATS_AREAS]; /* candidates for its page */
	unsigned int n_files;
	int want; /* errno of a limit here that stopped an open; 0 */
	uint64_t now;
};

static uint64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- files --------------------------------------------------------------- */

/* Whether the process, or root for it, made the file, rather than a stranger
 * that passed it to the process. */
static bool is_its_own(const struct look *l, int fd, struct stat *st)
{
	return fstat(fd, st) == 0 && S_ISREG(st->st_mode) &&
	       (st->st_uid == 0 || st->st_uid == l->uid[0] ||
		st->st_uid == l->uid[1]);
}

/* --- the page ----------------------------------------------------------- */

/* Why the head cannot be used, or null. */
static const char *judge(const struct exi_stats_head *h)
{
	if (h->magic != EXI_STATS_MAGIC)
		return "it is none of libexs";
	if (h->version != EXI_STATS_VERSION)
		return "another release of libexs made it";
	if (h->bytes < offsetof(struct exi_stats_head, library) ||
	    h->entry_bytes < sizeof(struct exi_stats_entry) ||
	    h->entry_bytes > 4096 || h->entries_at % 8 ||
	    h->entries_at > INT64_MAX / 2 || h->young_at > INT64_MAX / 2)
		return "its head is nonsense";
	return NULL;
}

/* Area n, for entries from *ret_first on. */
static uint64_t area_at(const struct stat_page *p, uint32_t n,
			uint32_t *ret_first, uint32_t *ret_end)
{
	*ret_first = n ? EXI_STATS_FIRST << (n - 1) : 0;
	*ret_end = EXI_STATS_FIRST << n;
	return n ? 0 : p->head.entries_at;
}

struct chunk {
	int fd;
	uint64_t at;	/* of the first entry, in the file */
	uint32_t bytes; /* of an entry, as the page has it */
	uint32_t n;
	unsigned char *raw;
};

/* The parts of the entries that are known here. */
static uint32_t read_chunk(const struct chunk *c, struct exi_stats_entry *to)
{
	ssize_t got =
		pread(c->fd, c->raw, (size_t)c->n * c->bytes, (off_t)c->at);
	uint32_t n = got > 0 ? (uint32_t)((size_t)got / c->bytes) : 0;

	for (uint32_t i = 0; i < n; i++)
		memcpy(&to[i], c->raw + (size_t)i * c->bytes, sizeof(*to));
	return n;
}

static uint32_t turn_of(const struct exi_stats_entry *e)
{
	return atomic_load_explicit(&e->turn, memory_order_relaxed);
}

/* Reads one entry that changed while it was read with others. */
static bool read_again(const struct chunk *c, uint32_t i,
		       struct exi_stats_entry *ret)
{
	struct chunk one = *c;
	struct exi_stats_entry e[3];

	one.at += (uint64_t)i * c->bytes;
	one.n = 1;
	for (int try = 0; try < TRIES; try++) {
		for (int k = 0; k < 3; k++) {
			if (read_chunk(&one, &e[k]) != 1)
				return false;
			atomic_thread_fence(memory_order_acquire);
		}
		if (!(turn_of(&e[0]) % 2) && turn_of(&e[0]) == turn_of(&e[2])) {
			*ret = e[1];
			return true;
		}
	}
	return false;
}

static void each_of_chunk(const struct chunk *c, struct exi_stats_entry *e[3],
			  struct stat_process *of,
			  void (*f)(const struct exi_stats_entry *e, void *arg),
			  void *arg)
{
	uint32_t n = c->n;

	/* The copy in the middle is of one connection where those before and
	 * after it have the same even turn. */
	for (int k = 0; k < 3; k++) {
		uint32_t got = read_chunk(c, e[k]);

		n = got < n ? got : n;
		atomic_thread_fence(memory_order_acquire);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t turn = turn_of(&e[0][i]);
		struct exi_stats_entry *one = &e[1][i];

		if (!turn && !turn_of(&e[2][i]))
			continue;
		if ((turn % 2 || turn != turn_of(&e[2][i])) &&
		    !read_again(c, i, one)) {
			of->unread++;
			continue;
		}
		if (atomic_load(&one->fd) >= 0)
			f(one, arg);
	}
}

/* How much of a file is read. Parts that were never written cost their owner
 * nothing, so the reader must not pay for them either. SEEK_DATA is not used to
 * find them: the kernel then waits for a lock, which a thread of the owner may
 * hold for any time. The entries of an honest process lie close together. */
#define SLACK (1u << 20)
static uint64_t room_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0
				  : 2 * 512 * (uint64_t)st.st_blocks + SLACK;
}

int stat_page_each(const struct stat_page *p, struct stat_process *of,
		   void (*f)(const struct exi_stats_entry *e, void *arg),
		   void *arg)
{
	uint32_t high = atomic_load(&p->head.entries_high), first, end;
	struct chunk c = { .bytes = p->head.entry_bytes };
	struct exi_stats_entry *e[3];
	uint64_t room;

	if (high > ENTRIES_MAX)
		high = ENTRIES_MAX;
	c.raw = malloc((size_t)CHUNK * c.bytes);
	e[0] = calloc(3 * CHUNK, sizeof(*e[0]));
	if (!c.raw || !e[0]) {
		free(c.raw);
		free(e[0]);
		return -ENOMEM;
	}
	e[1] = e[0] + CHUNK;
	e[2] = e[1] + CHUNK;
	for (uint32_t a = 0, at = 0; at < high && a < EXI_STATS_AREAS; a++) {
		uint64_t from = area_at(p, a, &first, &end);

		c.fd = p->fd[a];
		end = end < high ? end : high;
		room = c.fd < 0 ? 0 : room_of(c.fd);
		for (at = first; at < end; at += c.n) {
			c.at = from + (uint64_t)(at - first) * c.bytes;
			c.n = end - at < CHUNK ? end - at : CHUNK;
			if (room < (uint64_t)c.n * c.bytes)
				break;
			room -= (uint64_t)c.n * c.bytes;
			each_of_chunk(&c, e, of, f, arg);
		}
	}
	free(c.raw);
	free(e[0]);
	return 0;
}

/* --- a process ---------------------------------------------------------- */

static int read_status(struct look *l, int dir)
{
	int fd = openat(dir, "status", O_RDONLY | O_CLOEXEC);
	char text[4096], *at, *end;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "Name:\t");
	if (at) {
		end = strchr(at, '\n');
		snprintf(l->process->name, sizeof(l->process->name), "%.*s",
			 end ? (int)(end - at - 6) : 0, at + 6);
	}
	for (char *c = l->process->name; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
	at = strstr(text, "\nUid:");
	if (!at || sscanf(at + 5, "%u %u", &l->uid[0], &l->uid[1]) != 2)
		return -ESRCH;
	at = strstr(text, "\nNSpid:");
	end = at ? strchr(at + 1, '\n') : NULL;
	if (!end)
		return -ESRCH;
	while (end > at && end[-1] != '\t' && end[-1] != ' ')
		end--;
	l->pid_inside = atoi(end);
	return 0;
}

static uint64_t started_at(int dir)
{
	int fd = openat(dir, "stat", O_RDONLY | O_CLOEXEC);
	unsigned long long ret = 0;
	char text[1024], *at;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strrchr(text, ')');
	if (at)
		sscanf(at + 1,
		       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u "
		       "%*u %*u %*d %*d %*d %*d %*d %*d %llu",
		       &ret);
	return ret;
}

static void add_number(struct look *l, int fd, uint64_t inode)
{
	size_t room = l->room ? 2 * l->room : 64;

	if (l->n_socks == l->room) {
		struct number *more = realloc(l->socks, room * sizeof(*more));

		if (!more)
			return;
		l->socks = more;
		l->room = room;
	}
	l->socks[l->n_socks++] = (struct number){ .fd = fd, .inode = inode };
}

static int by_inode(const void *a, const void *b)
{
	const struct number *x = a, *y = b;

	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static int by_fd(const void *a, const void *b)
{
	const struct number *x = a, *y = b;

	return x->fd < y->fd ? -1 : x->fd > y->fd;
}

/* A socket may have any number of descriptors, at almost no cost to the
 * process: it is listed once. */
static int sort_numbers(struct look *l)
{
	struct number *n = l->socks;

	if (!l->n_socks)
		return 0;
	l->listed = calloc(l->n_socks, sizeof(*l->listed));
	if (!l->listed)
		return -ENOMEM;
	qsort(n, l->n_socks, sizeof(*n), by_inode);
	for (size_t i = 0; i < l->n_socks; i++)
		n[i].socket =
			i && n[i].inode == n[i - 1].inode ? n[i - 1].socket : i;
	qsort(n, l->n_socks, sizeof(*n), by_fd);
	return 0;
}

/* Reads its descriptors: sockets, and candidates for its page. */
static int read_numbers(struct look *l, int fds)
{
	int copy = openat(fds, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!d) {
		int err = errno;

		if (copy >= 0)
			close(copy);
		return -err;
	}
	while ((e = readdir(d))) {
		char text[64];
		ssize_t n = readlinkat(fds, e->d_name, text, sizeof(text) - 1);

		if (n <= 0 || !isdigit((unsigned char)e->d_name[0]))
			continue;
		text[n] = '\0';
		if (!strncmp(text, "socket:[", 8))
			add_number(l, atoi(e->d_name),
				   strtoull(text + 8, NULL, 10));
		else if (!strcmp(text, LINK) &&
			 l->n_files < sizeof(l->files) / sizeof(l->files[0]))
			l->files[l->n_files++] = atoi(e->d_name);
	}
	closedir(d);
	return sort_numbers(l);
}

static struct number *number_of(const struct look *l, int fd)
{
	struct number key = { .fd = fd };

	if (!l->n_socks)
		return NULL;
	return bsearch(&key, l->socks, l->n_socks, sizeof(key), by_fd);
}

/* --- connections -------------------------------------------------------- */

static struct stat_conn *new_conn(struct look *l, int fd)
{
	struct stat_view *v = l->view;
	struct number *n = number_of(l, fd);
	const struct stat_tcp *t;
	size_t room = v->room ? 2 * v->room : 256;

	/* Closed meanwhile, no socket, or listed already. */
	if (!n || l->listed[n->socket])
		return NULL;
	t = stat_tcps_find(l->tcps, n->inode);
	if (!t)
		return NULL;
	if (v->n_conns == v->room) {
		struct stat_conn *more =
			realloc(v->conns, room * sizeof(*more));

		if (!more)
			return NULL;
		v->conns = more;
		v->room = room;
	}
	l->listed[n->socket] = true;
	v->conns[v->n_conns] = (struct stat_conn){
		.process = l->process,
		.tcp = *t,
		.fd = fd,
		.dir = { { .held = -1 }, { .held = -1 } },
	};
	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++)
		strcpy(v->conns[v->n_conns].dir[d].fabric,
		       t->family == AF_UNIX ? "unix" : "tcp");
	return &v->conns[v->n_conns++];
}

/* If only the kernel carried the connection, the kernel's counts are better. */
static void count_by_kernel(struct stat_conn *c)
{
	struct stat_dir *rx = &c->dir[EXI_RX], *tx = &c->dir[EXI_TX];

	if (!c->tcp.counted || rx->fabric_bytes || tx->fabric_bytes)
		return;
	rx->bytes = c->tcp.received;
	/* For the end that called connect, the kernel counts the SYN, too. */
	tx->bytes = c->tcp.sent - (c->role == EXI_ROLE_CONNECT && c->tcp.sent);
}

static uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static const char *copy_name(char to[16], const struct exi_stats_entry *e)
{
	uint64_t word[2] = { atomic_load(&e->fabric[0]),
			     atomic_load(&e->fabric[1]) };

	memcpy(to, word, 16);
	to[15] = '\0';
	for (char *c = to; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-')
			*c = '?';
	return to;
}

static void copy_dir(const struct look *l, const struct exi_stats_dir *from,
		     struct stat_dir *to)
{
	uint64_t moved = atomic_load(&from->moved);

	to->bytes = atomic_load(&from->bytes);
	to->fabric_bytes = atomic_load(&from->fabric_bytes);
	to->direct_bytes = atomic_load(&from->direct_bytes);
	to->moves = atomic_load(&from->moves);
	to->bells = atomic_load(&from->bells);
	to->sleeps = atomic_load(&from->sleeps);
	to->spins = atomic_load(&from->spins);
	to->ups = atomic_load(&from->ups);
	to->downs = atomic_load(&from->downs);
	to->idle_ns = moved ? since(l->now, moved) : UINT64_MAX;
}

static bool on_fabric(const struct exi_stats_dir *d)
{
	uint32_t mode = atomic_load(&d->mode);

	return mode == EXI_MODE_RING;
}

/* As exi_link_reason() has it. */
static bool closed_as_it_met(const struct stat_conn *c)
{
	return c->last_reason == EXS_X_REASON_PEER_LOST &&
	       !c->dir[EXI_RX].fabric_bytes && !c->dir[EXI_TX].fabric_bytes &&
	       c->tcp.state == TCP_CLOSE_WAIT;
}

static void take_entry(const struct exi_stats_entry *e, void *arg)
{
	struct look *l = arg;
	uint32_t reason = atomic_load(&e->reason);
	struct stat_conn *c = new_conn(l, atomic_load(&e->fd));

	if (!c)
		return;
	c->role = (int)atomic_load(&e->role);
	c->last_reason = (int)(reason < EXS_X_REASON_MAX_ ? reason : 0);
	c->age_ns = since(l->now, atomic_load(&e->born));
	copy_name(c->name, e);
	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++)
		copy_dir(l, &e->dir[d], &c->dir[d]);
	c->reason = on_fabric(&e->dir[EXI_RX]) && on_fabric(&e->dir[EXI_TX])
			    ? EXS_X_REASON_NONE
			    : (int)(reason < EXS_X_REASON_MAX_ ? reason : -1);
	if (closed_as_it_met(c))
		c->reason = EXS_X_REASON_UNDECIDED;
	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++)
		if (on_fabric(&e->dir[d]) && c->name[0]) {
			c->dir[d].off = true;
			strcpy(c->dir[d].fabric, c->name);
		}
	/* The ring of a UNIX stream is smaller, like its buffer in the
	 * kernel. */
	if (c->name[0] && c->tcp.family != AF_UNIX)
		c->dir[EXI_TX].ring = l->process->ring_bytes;
	count_by_kernel(c);
}

/* Connections that have no entry yet: a byte each, by descriptor. */
static void take_young(struct look *l, const struct stat_page *p)
{
	uint32_t high = atomic_load(&p->head.young_high);
	uint8_t bytes[CHUNK];
	int from = -1;

	for (size_t i = 0; i < l->n_socks; i++) {
		int fd = l->socks[i].fd;
		struct stat_conn *c;
		uint8_t what;

		if ((uint32_t)fd >= high || l->listed[l->socks[i].socket])
			continue;
		if (from < 0 || fd - from >= (int)CHUNK) {
			from = fd;
			memset(bytes, 0, sizeof(bytes));
			if (pread(p->fd[0], bytes, sizeof(bytes),
				  (off_t)(p->head.young_at + (uint64_t)fd)) < 0)
				return;
		}
		what = bytes[fd - from];
		c = what ? new_conn(l, fd) : NULL;
		if (!c)
			continue;
		c->young = true;
		c->role = what - 1;
		c->reason = EXS_X_REASON_UNDECIDED;
		c->dir[EXI_RX].idle_ns = c->dir[EXI_TX].idle_ns = UINT64_MAX;
		count_by_kernel(c);
	}
}

/* --- the page of a process ---------------------------------------------- */

static void take_head(struct stat_process *p, const struct exi_stats_head *h)
{
	snprintf(p->library, sizeof(p->library), "%.*s",
		 (int)sizeof(h->library) - 1, h->library);
	for (char *c = p->library; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
	p->ring_bytes = h->ring_bytes;
	p->upgrade_bytes = h->upgrade_bytes;
	p->unlisted = atomic_load(&h->unlisted);
	p->ended = atomic_load(&h->ended);
	for (enum exi_dir d = EXI_RX; d <= EXI_TX; d++) {
		p->ended_bytes[d] = atomic_load(&h->ended_bytes[d]);
		p->ended_fabric_bytes[d] =
			atomic_load(&h->ended_fabric_bytes[d]);
		p->ended_moves[d] = atomic_load(&h->ended_moves[d]);
	}
}

static void close_page(struct stat_page *p)
{
	for (unsigned int i = 0; i < EXI_STATS_AREAS; i++)
		if (p->fd[i] >= 0)
			close(p->fd[i]);
}

/* Puts a file where the head says it is. */
static bool place_area(struct look *l, struct stat_page *p,
		       const struct stat *st, int fd)
{
	for (unsigned int i = 1; i < EXI_STATS_AREAS; i++)
		if (p->fd[i] < 0 &&
		    atomic_load(&p->head.areas[i]) == st->st_ino &&
		    stat_claim(l->view, st->st_ino, l->uid[1])) {
			p->fd[i] = fd;
			return true;
		}
	return false;
}

/* Whether the file is the process's own page; its head then. */
static bool is_page(struct look *l, int fd, struct exi_stats_head *ret)
{
	const char *why;

	memset(ret, 0, sizeof(*ret));
	if (pread(fd, ret, sizeof(*ret), 0) <
	    (ssize_t)offsetof(struct exi_stats_head, library))
		return false;
	if (ret->magic != EXI_STATS_MAGIC) /* an area */
		return false;
	if (ret->pid != l->pid_inside) /* inherited: its parent's */
		return false;
	why = judge(ret);
	if (why)
		snprintf(l->view->strange, sizeof(l->view->strange),
			 "the page of %s[%d] cannot be read: %s",
			 l->process->name, (int)l->process->pid, why);
	return !why;
}

/* Whether the error is due to a limit of this process, and says nothing about
 * the file. */
static bool is_want(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOMEM;
}

/* The page, and its areas, of the files that may be it. */
static bool open_page(struct look *l, int fds, struct stat_page *p)
{
	bool found = false;
	struct stat st;
	char number[16];
	int fd;

	for (unsigned int i = 0; i < EXI_STATS_AREAS; i++)
		p->fd[i] = -1;
	for (int round = 0; round < 2; round++)
		for (unsigned int i = 0; i < l->n_files; i++) {
			snprintf(number, sizeof(number), "%d", l->files[i]);
			fd = stat_open_memfd(fds, number);
			if (fd < 0 && is_want(errno))
				l->want = errno;
			if (fd < 0)
				continue;
			if (is_its_own(l, fd, &st) &&
			    (round ? place_area(l, p, &st, fd)
				   : !found && is_page(l, fd, &p->head) &&
					     stat_claim(l->view, st.st_ino,
							l->uid[1]))) {
				if (!round)
					p->fd[0] = fd;
				found = true;
				continue;
			}
			close(fd);
		}
	return p->fd[0] >= 0;
}

static bool keep_process(struct stat_view *v, const struct stat_process *p)
{
	struct stat_process **more =
		realloc(v->processes, (v->n_processes + 1) * sizeof(*more));
	struct stat_process *copy = more ? malloc(sizeof(*copy)) : NULL;

	if (more)
		v->processes = more;
	if (!copy)
		return false;
	*copy = *p;
	v->processes[v->n_processes++] = copy;
	return true;
}

static int look_at(struct look *l, int dir, int fds)
{
	struct stat_page page;
	struct stat ns;
	int err = read_numbers(l, fds);

	if (err || !l->n_files || !open_page(l, fds, &page))
		return err;
	take_head(l->process, &page.head);
	l->process->started = started_at(dir);
	if (keep_process(l->view, l->process) &&
	    fstatat(dir, "ns/net", &ns, 0) == 0) {
		l->process = l->view->processes[l->view->n_processes - 1];
		l->netns = ns.st_ino;
		err = stat_tcps_read(l->tcps, l->process->pid, l->netns);
		if (!err)
			err = stat_page_each(&page, l->process, take_entry, l);
		if (!err)
			take_young(l, &page);
	}
	close_page(&page);
	return err;
}

static int look_at_pid(struct stat_view *v, struct stat_tcps *tcps, pid_t pid)
{
	struct stat_process p = { .pid = pid };
	struct look l = { .view = v, .process = &p, .tcps = tcps };
	char path[32];
	int dir, fds, err;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	err = read_status(&l, dir);
	fds = err ? -1 : openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!err && fds < 0)
		err = -errno;
	l.now = clock_now();
	if (!err)
		err = look_at(&l, dir, fds);
	if (fds >= 0)
		close(fds);
	close(dir);
	free(l.socks);
	free(l.listed);
	return err;
}

static int look_at_all(struct stat_view *v, struct stat_tcps *tcps, pid_t but)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int err;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		pid_t pid = atoi(e->d_name);

		err = pid > 0 && pid != but ? look_at_pid(v, tcps, pid) : 0;
		if (err == -EACCES || err == -EPERM)
			v->denied++;
	}
	closedir(d);
	return 0;
}

int stat_open(pid_t pid, struct stat_page *ret, int *ret_fds)
{
	struct stat_view v = { 0 };
	struct stat_process p = { .pid = pid };
	struct look l = { .view = &v, .process = &p };
	char path[32];
	int dir, err;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret_fds = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	err = *ret_fds < 0 ? -errno : read_status(&l, dir);
	if (!err)
		err = read_numbers(&l, *ret_fds);
	if (!err && !(l.n_files && open_page(&l, *ret_fds, ret)))
		err = l.want ? -l.want : -ENOENT;
	else if (!err && l.want) { /* an area may be missing */
		close_page(ret);
		err = -l.want;
	}
	if (err && *ret_fds >= 0)
		close(*ret_fds);
	close(dir);
	free(l.socks);
	free(l.listed);
	stat_claims_free(&v);
	return err;
}

void stat_close(struct stat_page *p, int fds)
{
	close_page(p);
	close(fds);
}

int stat_look(pid_t pid, struct stat_view *ret)
{
	struct stat_tcps *tcps = stat_tcps_new();
	int err = tcps ? 0 : -ENOMEM;

	*ret = (struct stat_view){ 0 };
	if (!err && pid)
		err = look_at_pid(ret, tcps, pid);
	if (!err)
		err = look_at_all(ret, tcps, pid);
	stat_find_peers(ret);
	stat_tcps_free(tcps);
	return err;
}

void stat_forget(struct stat_view *v)
{
	for (size_t i = 0; i < v->n_processes; i++)
		free(v->processes[i]);
	free(v->processes);
	free(v->conns);
	free(v->order);
	stat_claims_free(v);
	*v = (struct stat_view){ 0 };
}
