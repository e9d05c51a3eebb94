/* SPDX-License-Identifier: BSD-2-Clause */
/* The page of counters of this process: making it and growing it. A forked
 * child leaves the page to its parent. */
#include "core/sock/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/probe.h"
#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/sock/control.h"
#include "core/sock/table.h"
#include "exi_build.h"

/* No other process can write the page, nor make it shorter. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE)
#define PAGE  4096u
#define TEXT  (4 * PAGE) /* room for the text of an answer */

struct exi_stats_lines exi_stats_lines;

/* How many descriptors the table of sockets has room for. */
static size_t numbers;

static struct exi_lock lock;
/* Guarded by lock; head is set once in a process. */
static struct {
	_Atomic(struct exi_stats_head *) head;
	uint8_t *young;
	size_t head_bytes; /* head, young and text */
	size_t room;	   /* bytes of address space for entries */
	int fd[EXI_STATS_AREAS];
	unsigned int n_areas;
	bool tried;
} page;

static struct exi_stats_head *head_now(void)
{
	/* Acquire: pairs with the release in make(). */
	return atomic_load_explicit(&page.head, memory_order_acquire);
}

static uint64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void exi_stats_rest_locked(const struct exi_half *h)
{
	struct exi_stats_dir *s = exi_stats_of(h);

	EXI_LOCKED(&h->lock);
	if (!s)
		return;
	EXI_STATS_SET(&s->sleeps, (uint32_t)h->sleeps);
	EXI_STATS_SET(&s->spins, (uint32_t)h->spins);
	EXI_STATS_SET(&s->mode, atomic_load(&h->mode));
	EXI_STATS_SET(&s->ups, (uint16_t)h->ups);
	EXI_STATS_SET(&s->downs, (uint16_t)h->downs);
}

void exi_stats_timed_locked(struct exi_half *h)
{
	struct exi_stats_dir *s = exi_stats_of(h);

	EXI_LOCKED(&h->lock);
	h->stats_left = EXI_STATS_TIMED - 1;
	exi_cpu_refresh(); /* as often, for the peers */
	exi_stats_rest_locked(h);
	if (s)
		EXI_STATS_SET(&s->moved, clock_now());
}

void exi_stats_init(uint32_t n)
{
	numbers = n;
}

int exi_stats_file(const char *name, size_t bytes)
{
	struct rlimit files = { .rlim_cur = RLIM_INFINITY };
	int fd;

	getrlimit(RLIMIT_FSIZE, &files);
	if (files.rlim_cur != RLIM_INFINITY && files.rlim_cur < bytes)
		return -EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

/* Maps the entries of a file to their place, closes the file to all others and
 * keeps its descriptor, by which it is found. */
static int map_entries_locked(int fd, size_t from, size_t at, size_t bytes)
{
	void *to = exi_stats_lines.at + at;

	EXI_LOCKED(&lock);
	if (mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 (off_t)from) == MAP_FAILED)
		return -errno;
	madvise(to, bytes, MADV_DONTDUMP);
	return fcntl(fd, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}

static int keep(int fd, int err)
{
	if (err) {
		close(fd);
		return err;
	}
	fd = exi_fd_spare(fd);
	if (fd >= 0)
		page.fd[page.n_areas++] = fd;
	return fd < 0 ? fd : 0;
}

static void fill_head(struct exi_stats_head *h, size_t young)
{
	const struct exi_config *cfg = exi_config();

	h->magic = EXI_STATS_MAGIC;
	h->version = EXI_STATS_VERSION;
	h->bytes = sizeof(*h);
	h->pid = getpid();
	h->entry_bytes = sizeof(struct exi_stats_entry);
	h->entries_at = PAGE + young + TEXT;
	h->young_at = PAGE;
	h->young_bytes = young;
	h->text_at = PAGE + young;
	h->text_bytes = TEXT;
	h->born = clock_now();
	h->ring_bytes = cfg->ring_kb * 1024;
	h->upgrade_bytes = cfg->upgrade ? cfg->upgrade_bytes : UINT64_MAX;
	strncpy(h->library, EXI_VERSION_STRING, sizeof(h->library) - 1);
}

/* The first area: head, young, text, entries. */
static int make_locked(void)
{
	size_t young = (numbers + PAGE - 1) & ~(size_t)(PAGE - 1);
	size_t head_bytes = PAGE + young + TEXT;
	size_t bytes = EXI_STATS_FIRST * sizeof(struct exi_stats_entry);
	size_t room = numbers * sizeof(struct exi_stats_entry);
	void *head, *entries;
	int fd, err;

	EXI_LOCKED(&lock);
	fd = exi_stats_file(EXI_STATS_NAME, head_bytes + bytes);
	if (fd < 0)
		return fd;
	head = mmap(NULL, head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    0);
	entries = mmap(NULL, room, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	err = head == MAP_FAILED || entries == MAP_FAILED ? -ENOMEM : 0;
	if (!err) {
		madvise(head, head_bytes, MADV_DONTDUMP);
		fill_head(head, young);
		exi_stats_lines.at = entries;
		err = map_entries_locked(fd, head_bytes, 0, bytes);
	}
	err = keep(fd, err);
	if (!err) /* readers find it by the head */
		((struct exi_stats_head *)head)->control = exi_control_make();
	if (err) {
		if (head != MAP_FAILED)
			munmap(head, head_bytes);
		if (entries != MAP_FAILED)
			munmap(entries, room);
		return err;
	}
	page.room = room;
	page.head_bytes = head_bytes;
	page.young = (uint8_t *)head + PAGE;
	__atomic_store_n(&exi_stats_lines.n, (uint32_t)(bytes / EXI_STATS_LINE),
			 __ATOMIC_RELEASE);
	atomic_store_explicit(&page.head, head, memory_order_release);
	return 0;
}

/* One area more, as large as all before it. */
static int grow_locked(void)
{
	struct exi_stats_head *h = atomic_load(&page.head);
	size_t bytes = (size_t)exi_stats_lines.n * EXI_STATS_LINE;
	unsigned int n = page.n_areas;
	struct stat st;
	int fd, err;

	EXI_LOCKED(&lock);
	if (n == EXI_STATS_AREAS || 2 * bytes > page.room)
		return -ENOSPC;
	fd = exi_stats_file(EXI_STATS_NAME, bytes);
	if (fd < 0)
		return fd;
	err = fstat(fd, &st) < 0 ? -errno
				 : map_entries_locked(fd, 0, bytes, bytes);
	err = keep(fd, err);
	if (err) /* what was mapped there is private again */
		mmap(exi_stats_lines.at + bytes, bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		     -1, 0);
	if (err)
		return err;
	EXI_STATS_SET(&h->areas[n], st.st_ino);
	__atomic_store_n(&exi_stats_lines.n,
			 (uint32_t)(2 * bytes / EXI_STATS_LINE),
			 __ATOMIC_RELEASE);
	return 0;
}

/* The page, which is made at first need; null: there is none. */
static struct exi_stats_head *head_made(void)
{
	struct exi_stats_head *h = head_now();
	bool made = false;
	int err = 0;

	/* A signal handler of the thread that makes it goes without. */
	if (exi_likely(h) || __atomic_load_n(&page.tried, __ATOMIC_RELAXED) ||
	    exi_lock_held(&lock))
		return h;
	exi_lock(&lock);
	if (!page.tried) {
		if (exi_config()->stats && numbers &&
		    exi_fds_soft_limit() >= EXI_STATS_FDS) {
			exi_fds_begin();
			err = make_locked();
			made = !err;
			exi_fds_end();
		}
		__atomic_store_n(&page.tried, true, __ATOMIC_RELAXED);
	}
	exi_unlock(&lock);
	if (made)
		exi_control_watch();
	if (err)
		exi_info("no page of counters: %s", strerrordesc_np(-err));
	return head_now();
}

/* Raises the mark up to which an array is used. */
static void raise_to(_Atomic uint32_t *high, uint32_t n)
{
	uint32_t was = atomic_load(high);

	while (was < n && !atomic_compare_exchange_weak(high, &was, n))
		;
}

void exi_stats_young(int fd, uint8_t what)
{
	struct exi_stats_head *h = what ? head_made() : head_now();

	if (!h || (uint32_t)fd >= h->young_bytes)
		return;
	__atomic_store_n(&page.young[fd], what, __ATOMIC_RELAXED);
	if (what && (uint32_t)fd >= atomic_load_explicit(&h->young_high,
							 memory_order_relaxed))
		raise_to(&h->young_high, (uint32_t)fd + 1);
}

/* Memory for the entry of this index. */
static bool has_room(struct exi_stats_head *h, uint32_t index)
{
	uint64_t line = ((uint64_t)index + 1) * 4;
	int err = 0;

	if (exi_likely(line <=
		       __atomic_load_n(&exi_stats_lines.n, __ATOMIC_ACQUIRE)))
		return true;
	if (exi_lock_held(&lock))
		return false;
	exi_lock(&lock);
	exi_fds_begin();
	while (!err && line > exi_stats_lines.n)
		err = grow_locked();
	exi_fds_end();
	exi_unlock(&lock);
	if (err)
		atomic_fetch_add(&h->unlisted, 1);
	return !err;
}

static struct exi_stats_entry *entry_of(const struct exi_sock *sk)
{
	uint64_t line = ((uint64_t)sk->index + 1) * 4;

	if (line > __atomic_load_n(&exi_stats_lines.n, __ATOMIC_ACQUIRE))
		return NULL;
	return (struct exi_stats_entry *)(void *)exi_stats_lines.at + sk->index;
}

/* The name of the fabric, which does not go meanwhile: link_lock is held, or
 * both halves are. */
static void name_fabric(struct exi_stats_entry *e, const struct exi_conn *fab)
{
	union {
		char text[16];
		uint64_t word[2];
	} name = { .text = "" };

	if (fab)
		strncpy(name.text, fab->provider->name, sizeof(name.text) - 1);
	EXI_STATS_SET(&e->fabric[0], name.word[0]);
	EXI_STATS_SET(&e->fabric[1], name.word[1]);
}

static void note(struct exi_stats_entry *e, const struct exi_sock *sk)
{
	EXI_STATS_SET(&e->fd, atomic_load(&sk->fd));
	EXI_STATS_SET(&e->role, (uint32_t)atomic_load(&sk->role));
	EXI_STATS_SET(&e->reason, atomic_load(&exi_sock_shared(sk)->reason));
}

static bool is_used(const struct exi_stats_entry *e)
{
	return e && EXI_STATS_GET(&e->fd) >= 0 && EXI_STATS_GET(&e->turn);
}

void exi_stats_fabric(const struct exi_sock *sk)
{
	struct exi_stats_entry *e = entry_of(sk);

	if (is_used(e))
		name_fabric(e, __atomic_load_n(&sk->fab, __ATOMIC_RELAXED));
}

void exi_stats_note(const struct exi_sock *sk)
{
	struct exi_stats_entry *e = entry_of(sk);

	if (is_used(e))
		note(e, sk);
}

/* Begins, or ends, a change of which connection an entry is. */
static void turn(struct exi_stats_entry *e)
{
	/* Between two fences, so that a reader that finds the same even turn
	 * before and after it read the entry has read one connection. */
	atomic_thread_fence(memory_order_release);
	EXI_STATS_SET(&e->turn, EXI_STATS_GET(&e->turn) + 1);
	atomic_thread_fence(memory_order_release);
}

static void begin_half(struct exi_stats_dir *s, struct exi_half *h,
		       uint32_t line)
{
	EXI_STATS_SET(&s->bytes,
		      __atomic_load_n(&h->bytes, __ATOMIC_RELAXED) -
			      __atomic_load_n(&h->beside, __ATOMIC_RELAXED));
	EXI_STATS_SET(&s->fabric_bytes, 0);
	EXI_STATS_SET(&s->direct_bytes, 0);
	EXI_STATS_SET(&s->moves, 0);
	EXI_STATS_SET(&s->moved, 0);
	EXI_STATS_SET(&s->bells, 0);
	EXI_STATS_SET(&s->sleeps, 0);
	EXI_STATS_SET(&s->spins, 0);
	EXI_STATS_SET(&s->mode, atomic_load(&h->mode));
	EXI_STATS_SET(&s->ups, 0);
	EXI_STATS_SET(&s->downs, 0);
	__atomic_store_n(&h->stats_line, line, __ATOMIC_RELAXED);
}

void exi_stats_begin(struct exi_sock *sk)
{
	struct exi_stats_head *h = head_made();
	struct exi_stats_entry *e;
	enum exi_dir d;

	EXI_LOCKED(&sk->link_lock);
	if (!h || !has_room(h, sk->index))
		return;
	e = entry_of(sk);
	if (EXI_STATS_GET(&e->turn) &&
	    EXI_STATS_GET(&e->fd) == atomic_load(&sk->fd))
		return;
	turn(e);
	for (d = EXI_RX; d <= EXI_TX; d++)
		begin_half(&e->dir[d], &sk->sh->half[d], sk->index * 4 + 2 + d);
	note(e, sk);
	name_fabric(e, sk->fab);
	EXI_STATS_SET(&e->born, clock_now());
	turn(e);
	raise_to(&h->entries_high, sk->index + 1);
}

/* Counts a direction of a connection that is over. */
static void count_ended(struct exi_stats_head *h, const struct exi_half *half,
			enum exi_dir d)
{
	atomic_fetch_add(&h->ended_bytes[d], half->bytes - half->beside);
	atomic_fetch_add(&h->ended_fabric_bytes[d],
			 half->fabric_bytes - half->fabric_beside);
	atomic_fetch_add(&h->ended_moves[d], half->moves);
}

void exi_stats_end(const struct exi_sock *sk)
{
	struct exi_stats_head *h = head_now();
	struct exi_stats_entry *e = h ? entry_of(sk) : NULL;

	if (!e || !EXI_STATS_GET(&e->turn) || EXI_STATS_GET(&e->fd) < 0)
		return;
	count_ended(h, &sk->sh->half[EXI_RX], EXI_RX);
	count_ended(h, &sk->sh->half[EXI_TX], EXI_TX);
	atomic_fetch_add(&h->ended, 1);
	turn(e);
	EXI_STATS_SET(&e->fd, -1);
	turn(e);
}

void exi_stats_woken(const struct exi_sock *sk)
{
	struct exi_stats_entry *e = entry_of(sk);

	if (!e)
		return;
	EXI_STATS_SET(
		&e->dir[EXI_RX].bells,
		__atomic_load_n(&sk->sh->bells_received, __ATOMIC_RELAXED));
	EXI_STATS_SET(&e->dir[EXI_RX].moved, clock_now());
}

void exi_conn_rang(struct exi_conn *c)
{
	struct exi_shared *sh = c->sh;
	struct exi_stats_dir *s = exi_stats_of(&sh->half[EXI_TX]);
	uint64_t n = __atomic_add_fetch(&sh->bells_sent, 1, __ATOMIC_RELAXED);

	EXI_PROBE1(wake, c->fd);
	if (!s)
		return;
	EXI_STATS_SET(&s->bells, n);
	EXI_STATS_SET(&s->moved, clock_now());
}

char *exi_stats_text(size_t *ret_room)
{
	struct exi_stats_head *h = head_now();

	if (!h)
		return NULL;
	/* Before the first byte: a process that has read a byte of this text no
	 * longer finds the token of the text before it. */
	atomic_store_explicit(&h->answer_token, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	*ret_room = h->text_bytes;
	return (char *)h + h->text_at;
}

void exi_stats_answer(uint64_t token, int64_t result)
{
	struct exi_stats_head *h = head_now();

	if (!h)
		return;
	EXI_STATS_SET(&h->answer, result);
	/* Release: a reader that finds the token finds the rest. */
	atomic_store_explicit(&h->answer_token, token, memory_order_release);
}

void exi_stats_forked(void)
{
	struct exi_stats_head *h = head_now();

	atomic_store(&lock.word, 0);
	exi_stats_lines.n = 0;
	if (h) {
		munmap(h, page.head_bytes);
		munmap(exi_stats_lines.at, page.room);
	}
	for (unsigned int i = 0; i < page.n_areas; i++)
		exi_fd_close(page.fd[i]);
	memset(&page, 0, sizeof(page));
	exi_control_forked();
}
