/* SPDX-License-Identifier: BSD-2-Clause */
/* Ancillary data that a receive gives to its program. */
#ifndef EXI_CORE_BASE_ANCILLARY_H
#define EXI_CORE_BASE_ANCILLARY_H

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

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

#endif
