/* SPDX-License-Identifier: BSD-2-Clause */
/* The buffers of one call, one or several, and how many of their bytes have
 * moved. */
#ifndef EXI_CORE_BASE_PIECES_H
#define EXI_CORE_BASE_PIECES_H

#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

/* The most pieces in one system call if the first piece was begun already, or
 * the last one is to be cut: the pieces are copied then. */
#define EXI_PIECES_COPIED 256

struct exi_beside;

struct exi_pieces {
	const struct iovec *v; /* the next piece, of which `at` bytes moved */
	size_t n;	       /* this piece and those behind it */
	size_t at;
	size_t left;		   /* bytes, in all */
	struct exi_beside *beside; /* of a receive; null: none */
};

/* Sets *ret to the next bytes, and returns how many the piece has; 0 if no
 * piece is left. */
static inline size_t exi_pieces_next(struct exi_pieces *p, void **ret)
{
	while (p->n && p->v->iov_len == p->at) {
		p->v++;
		p->n--;
		p->at = 0;
	}
	*ret = p->n ? (char *)p->v->iov_base + p->at : NULL;
	return p->n ? p->v->iov_len - p->at : 0;
}

/* Advances by n bytes. */
static inline void exi_pieces_moved(struct exi_pieces *p, size_t n)
{
	p->left -= n;
	while (p->n && n >= p->v->iov_len - p->at) {
		n -= p->v->iov_len - p->at;
		p->v++;
		p->n--;
		p->at = 0;
	}
	p->at += n;
}

/* Copies what is left, at most n bytes, to buf; returns how many bytes. */
static inline size_t exi_pieces_gather(struct exi_pieces p, void *buf, size_t n)
{
	size_t len, done = 0;
	void *from;

	while (done < n && (len = exi_pieces_next(&p, &from))) {
		len = len < n - done ? len : n - done;
		memcpy((char *)buf + done, from, len);
		exi_pieces_moved(&p, len);
		done += len;
	}
	return done;
}

/* The reverse: fills the next pieces with the n bytes of buf, and advances. */
static inline void exi_pieces_scatter(struct exi_pieces *p, const void *buf,
				      size_t n)
{
	for (size_t len, done = 0; done < n; done += len) {
		void *to;

		len = exi_pieces_next(p, &to);
		len = len < n - done ? len : n - done;
		memcpy(to, (const char *)buf + done, len);
		exi_pieces_moved(p, len);
	}
}

/* Gives the next pieces, at most `most` bytes, for one system call. Uses `room`
 * if they cannot be used as they are. *ret is the first of *ret_n pieces;
 * returns how many bytes they have. */
static inline size_t exi_pieces_cut(const struct exi_pieces *p, size_t most,
				    struct iovec room[EXI_PIECES_COPIED],
				    const struct iovec **ret, size_t *ret_n)
{
	size_t i, bytes = 0, at = p->at;

	if (!at && p->left <= most) {
		*ret = p->v;
		*ret_n = p->n;
		return p->left;
	}
	for (i = 0; i < p->n && i < EXI_PIECES_COPIED && bytes < most; i++) {
		size_t len = p->v[i].iov_len - at;

		room[i].iov_base = (char *)p->v[i].iov_base + at;
		room[i].iov_len = len < most - bytes ? len : most - bytes;
		bytes += room[i].iov_len;
		at = 0;
	}
	*ret = room;
	*ret_n = i;
	return bytes;
}

#endif
