/* SPDX-License-Identifier: BSD-2-Clause */
/* Ancillary data that a receive gives to its program. */
#ifndef EXI_CORE_BASE_ANCILLARY_H
#define EXI_CORE_BASE_ANCILLARY_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Puts one piece behind the *used bytes in m's buffer, whose room is
 * msg_controllen, and adds to *used. As the kernel does it: what has no room is
 * cut, and MSG_CTRUNC says so. */
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

/* Room for what comes beside the bytes of a receive, which the kernel alone
 * gives: descriptors and credentials on a UNIX stream. */
struct exi_beside {
	void *room;
	size_t size;
	int flags;  /* of each receive: MSG_CMSG_CLOEXEC, or 0 */
	size_t len; /* so much came; */
	int cut;    /* MSG_CTRUNC: and more, for which there was no room */
};

/* The receive is over: the kernel ends one behind a message with more than
 * bytes, too, and the next would write over what came. */
static inline bool exi_beside_came(const struct exi_beside *b)
{
	return b && (b->len || b->cut);
}

/* Around a recvmsg(2), with b's flags among its own; b may be null. */
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
