/* SPDX-License-Identifier: BSD-2-Clause */
/* Ancillary data that a receive returns to the program. */
#ifndef EXI_CORE_BASE_ANCILLARY_H
#define EXI_CORE_BASE_ANCILLARY_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Appends one control message at offset *used of m's buffer, which has
 * msg_controllen bytes, and advances *used. As in the kernel, a message that
 * does not fit is cut, and MSG_CTRUNC is set. */
static inline void exi_ancillary_put(struct msghdr *m, size_t *used, int level,
				     int type, const void *data, size_t n)
{
	size_t room = m->msg_control ? m->msg_controllen - *used : 0;
	struct cmsghdr c = { .cmsg_len = CMSG_LEN(n),
			     .cmsg_level = level,
			     .cmsg_type = type };
	char *to = (char *)m->msg_control + *used;

	if (room < CMSG_LEN(n))
		m->msg_flags |= MSG_CTRUNC;
	if (room < sizeof(c))
		return;
	if (room < c.cmsg_len)
		c.cmsg_len = room;
	memcpy(to, &c, sizeof(c));
	memcpy(to + sizeof(c), data, c.cmsg_len - sizeof(c));
	*used += room < CMSG_SPACE(n) ? room : CMSG_SPACE(n);
}

/* The buffer for ancillary data that only the kernel delivers with a receive:
 * descriptors and credentials on a UNIX stream. */
struct exi_beside {
	void *room;
	size_t size;
	int flags;  /* of each receive: MSG_CMSG_CLOEXEC, or 0 */
	size_t len; /* bytes that arrived */
	int cut;    /* MSG_CTRUNC: the buffer was too small */
};

/* Ancillary data arrived, so the receive is over: the kernel, too, ends a
 * receive behind a message that carries some, and the next recvmsg(2) would
 * overwrite it. */
static inline bool exi_beside_came(const struct exi_beside *b)
{
	return b && (b->len || b->cut);
}

/* Called before a recvmsg(2), whose flags include b->flags; b may be null. */
static inline void exi_beside_give(const struct exi_beside *b, struct msghdr *m)
{
	if (!b)
		return;
	m->msg_control = b->room;
	m->msg_controllen = b->size;
}

static inline void exi_beside_take(struct exi_beside *b, const struct msghdr *m,
				   ssize_t ret)
{
	if (!b || ret < 0)
		return;
	b->len = m->msg_controllen;
	b->cut = m->msg_flags & MSG_CTRUNC;
}

#endif
