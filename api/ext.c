/* SPDX-License-Identifier: BSD-2-Clause */
/* What libexs offers beyond the Extended Sockets API. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "core/call/loan.h"
#include "core/life/info.h"
#include "core/life/plain.h"
#include "core/meet/find.h"

static int sockinfo(int s, exs_x_sockinfo_t *ret)
{
	struct exi_sock *sk;
	int err;

	if (!ret)
		return -EFAULT;
	err = exi_sock_get(s, &sk);
	return err ? err : exi_info_of(sk, s, ret);
}

EXI_PUBLIC int exs_x_sockinfo(int s, exs_x_sockinfo_t *info)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(sockinfo(s, info));
}

EXI_PUBLIC int exs_x_adopt(int s)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_adopt(s));
}

EXI_PUBLIC int exs_x_downgrade(int s)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_downgrade(s));
}

EXI_PUBLIC ssize_t exs_x_recv_loan(int s, const void **at, int flags)
{
	void *bytes = NULL;
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = !at ? -EFAULT
	      : flags & ~MSG_DONTWAIT
		      ? -EINVAL
		      : exi_loan_borrow(s, EXI_RX, SIZE_MAX, flags, &bytes);
	if (ret > 0)
		*at = bytes;
	return exi_result(ret);
}

EXI_PUBLIC int exs_x_recv_return(int s, size_t len)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(exi_loan_repay(s, EXI_RX, len, 0));
}

EXI_PUBLIC ssize_t exs_x_send_loan(int s, void **at, size_t want, int flags)
{
	ssize_t ret;

	EXI_NEEDS_INIT();
	ret = !at ? -EFAULT
	      : !want || flags & ~MSG_DONTWAIT
		      ? -EINVAL
		      : exi_loan_borrow(s, EXI_TX, want, flags, at);
	return exi_result(ret);
}

EXI_PUBLIC int exs_x_send_commit(int s, size_t len, int flags)
{
	EXI_NEEDS_INIT();
	return (int)exi_result(flags & ~MSG_NOSIGNAL
				       ? -EINVAL
				       : exi_loan_repay(s, EXI_TX, len, flags));
}
