/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous I/O of the C library, whose threads read and write the
 * descriptor by calls that are not intercepted. */
#include <aio.h>
#include <sys/exs_ext.h>

#include "core/call/feed.h"
#include "core/transfer/switch.h"
#include "preload/shim.h"

HOOK int aio_read(struct aiocb *cb)
{
	shim_plain(cb->aio_fildes, EXS_X_REASON_STDIO);
	return native.aio_read(cb);
}

HOOK int aio_write(struct aiocb *cb)
{
	shim_plain(cb->aio_fildes, EXS_X_REASON_STDIO);
	return native.aio_write(cb);
}

HOOK int lio_listio(int mode, struct aiocb *const *list, int n,
		    struct sigevent *event)
{
	struct exi_patience p = { 0 };

	for (int i = 0; i < n; i++)
		if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)
			shim_tell(list[i]->aio_fildes, EXS_X_REASON_STDIO);
	for (int i = 0; i < n; i++)
		if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)
			shim_plain_of(list[i]->aio_fildes, EXS_X_REASON_STDIO,
				      &p);
	exi_feed_rest();
	return native.lio_listio(mode, list, n, event);
}

/* aiocb64 is aiocb: off_t has 64 bits on every supported machine. */
_Static_assert(sizeof(struct aiocb) == sizeof(struct aiocb64), "aiocb");

HOOK int aio_read64(struct aiocb64 *cb)
{
	return aio_read((struct aiocb *)cb);
}

HOOK int aio_write64(struct aiocb64 *cb)
{
	return aio_write((struct aiocb *)cb);
}

HOOK int lio_listio64(int mode, struct aiocb64 *const *list, int n,
		      struct sigevent *event)
{
	return lio_listio(mode, (struct aiocb *const *)list, n, event);
}
