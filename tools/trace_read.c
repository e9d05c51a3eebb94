/* SPDX-License-Identifier: BSD-2-Clause */
/* The capture of a process: begins it, finds it among the process's
 * descriptors, and reads it. The data belongs to others and may be hostile,
 * like the page of counters: docs/design/stats.md. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/control.h"
#include "tools/stat.h"
#include "tools/tool.h"
#include "tools/trace.h"

#define LINK	"/memfd:" EXI_CAPTURE_NAME " (deleted)"
#define CHUNK	(1u << 20) /* bytes to read at once */
#define WAIT_MS 5	   /* until an empty ring is looked at again */

/* The memfd of the process that has this inode, if the user who made its page
 * made it. */
static int open_ring(int fds, const struct stat_page *p, uint64_t inode)
{
	int copy = openat(fds, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct stat st, page;
	struct dirent *e;
	char text[64];
	int ret = -1;

	if (!d) {
		if (copy >= 0)
			close(copy);
		return -1;
	}
	while (ret < 0 && (e = readdir(d))) {
		ssize_t n = readlinkat(fds, e->d_name, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = '\0';
		if (strcmp(text, LINK))
			continue;
		ret = stat_open_memfd(fds, e->d_name);
		if (ret < 0)
			continue;
		if (fstat(ret, &st) == 0 && fstat(p->fd[0], &page) == 0 &&
		    st.st_ino == inode && st.st_uid == page.st_uid)
			break;
		close(ret);
		ret = -1;
	}
	closedir(d);
	return ret;
}

/* Whether the head is one of this release. */
static bool judge(struct trace_reader *r)
{
	struct exi_capture_head h;

	if (pread(r->file, &h, sizeof(h), 0) != sizeof(h) ||
	    h.magic != EXI_CAPTURE_MAGIC || h.version != EXI_CAPTURE_VERSION ||
	    h.ring_bytes < EXI_CAPTURE_LEAST ||
	    h.ring_bytes > EXI_CAPTURE_MOST ||
	    (h.ring_bytes & (h.ring_bytes - 1)))
		return false;
	r->ring_bytes = h.ring_bytes;
	return true;
}

/* Asks the process to begin, and opens its ring. */
static int begin(const struct trace_wish *w, const struct stat_page *page,
		 int fds, struct trace_reader *r)
{
	struct exi_control_ask what = { .what = EXI_CONTROL_OFFER };
	int64_t inode;
	int code = control_ask(w->pid, &what, &inode);

	if (code)
		return code;
	r->life = control_open_pipe(fds, page, (uint64_t)inode);
	if (r->life < 0)
		return tool_fail("process %d has no pipe for a capture",
				 (int)w->pid);
	what = (struct exi_control_ask){
		.what = EXI_CONTROL_CAPTURE,
		.fd = w->fd,
		.value = w->port,
		.snap = w->snap,
		.life = (uint64_t)inode,
		.ring = w->ring,
	};
	code = control_ask(w->pid, &what, &inode);
	if (code)
		return code;
	r->file = open_ring(fds, page, (uint64_t)inode);
	if (r->file < 0 || !judge(r))
		return tool_fail("the capture of process %d cannot be read",
				 (int)w->pid);
	return TOOL_OK;
}

int trace_begin(const struct trace_wish *w, struct trace_reader *ret)
{
	struct exi_control_ask nothing = { .what = EXI_CONTROL_LOG,
					   .value = -1 };
	struct stat_page page;
	int64_t level;
	int fds, code;

	*ret = (struct trace_reader){ .file = -1, .life = -1 };
	/* Prints the reason if the process cannot be asked. */
	code = control_ask(w->pid, &nothing, &level);
	if (code)
		return code;
	ret->buf = malloc(CHUNK);
	if (!ret->buf || stat_open(w->pid, &page, &fds))
		return tool_fail("process %d has ended", (int)w->pid);
	code = begin(w, &page, fds, ret);
	stat_close(&page, fds);
	return code;
}

/* Copies n bytes of the ring, which may wrap around. */
static bool copy_out(const struct trace_reader *r, uint64_t at, size_t n)
{
	uint64_t offset = at & (r->ring_bytes - 1);
	size_t first = r->ring_bytes - offset;

	first = first < n ? first : n;
	return pread(r->file, r->buf, first,
		     (off_t)(EXI_CAPTURE_RING + offset)) == (ssize_t)first &&
	       (first == n || pread(r->file, r->buf + first, n - first,
				    EXI_CAPTURE_RING) == (ssize_t)(n - first));
}

static bool is_record(const struct exi_capture_record *rec)
{
	return rec->bytes >= sizeof(*rec) && !(rec->bytes % 8) &&
	       rec->stored <= rec->bytes - sizeof(*rec) &&
	       rec->bytes - sizeof(*rec) < rec->stored + 8ull &&
	       rec->length <= EXI_CAPTURE_PIECE && rec->stored <= rec->length &&
	       rec->dir <= 1;
}

/* Calls f for the whole records in the n bytes that were copied from r->at on,
 * except for the first `skip' of them. Returns how many, at least 1; r->at is
 * then after them. */
static int take(struct trace_reader *r, size_t skip, size_t n,
		int (*f)(const struct exi_capture_record *rec,
			 const unsigned char *bytes, uint64_t lost, void *arg),
		void *arg)
{
	struct exi_capture_record rec;
	int ret = 0, err = 0;
	size_t at = skip;

	while (!err && n - at >= sizeof(rec)) {
		uint64_t missing;

		memcpy(&rec, r->buf + at, sizeof(rec));
		if (!is_record(&rec))
			return -EPROTO;
		if (rec.bytes > n - at) /* its rest was not copied */
			break;
		missing = rec.number - r->number;
		r->number = rec.number + 1;
		r->lost += missing;
		err = f(&rec, r->buf + at + sizeof(rec), missing, arg);
		at += rec.bytes;
		ret++;
	}
	if (!at) /* no record is so long */
		return -EPROTO;
	r->at += at;
	return err ? err : ret ? ret : 1;
}

int trace_read(struct trace_reader *r,
	       int (*f)(const struct exi_capture_record *rec,
			const unsigned char *bytes, uint64_t lost, void *arg),
	       void *arg)
{
	struct exi_capture_head h;
	uint64_t head, tail;
	size_t n;

	if (pread(r->file, &h, sizeof(h), 0) != sizeof(h))
		return -EPROTO;
	atomic_thread_fence(memory_order_acquire);
	head = atomic_load(&h.head);
	tail = atomic_load(&h.tail);
	r->at = tail > r->at ? tail : r->at;
	if (head < r->at)
		return -EPROTO;
	if (r->last && !r->stop)
		r->stop = head - r->at < r->ring_bytes ? head
						       : r->at + r->ring_bytes;
	if (r->last && r->at >= r->stop)
		return 0;
	n = head - r->at < CHUNK ? (size_t)(head - r->at) : CHUNK;
	if (!n)
		return 0;
	if (!copy_out(r, r->at, n))
		return -EPROTO;
	/* Bytes that were overwritten during the copy lie before this tail. */
	atomic_thread_fence(memory_order_acquire);
	if (pread(r->file, &h, sizeof(h), 0) != sizeof(h))
		return -EPROTO;
	tail = atomic_load(&h.tail);
	if (tail > r->at && tail - r->at >= n) {
		r->at = tail;
		return 1;
	}
	return take(r, tail > r->at ? tail - r->at : 0, n, f, arg);
}

bool trace_over(struct trace_reader *r)
{
	struct pollfd p = { .fd = r->life };

	/* The process's end is closed: POLLERR. */
	return poll(&p, 1, WAIT_MS) > 0;
}

void trace_end(struct trace_reader *r)
{
	if (r->life >= 0)
		close(r->life);
	if (r->file >= 0)
		close(r->file);
	free(r->buf);
}
