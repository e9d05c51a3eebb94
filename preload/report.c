/* SPDX-License-Identifier: BSD-2-Clause */
/* exs run --report: what became of the connections of a process, at its
 * end. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <unistd.h>

#include "core/config.h"
#include "preload/shim.h"

static const char *path = ""; /* no report */
static char name[64];	      /* programs write their titles over theirs */
static int stderr_fd = -1;    /* programs close theirs before the end */
static _Atomic uint32_t connections, on_fabric;
static _Atomic uint64_t fabric_bytes, bytes, bells;
static _Atomic uint32_t by_reason[EXS_X_REASON_MAX_];

/* An accepted connection that found nobody when its peer had to be there is
 * undecided as long as it may look again: at its end it will not. */
static bool looked_in_vain(const struct exi_sock *sk)
{
	const struct exi_shared *sh = exi_sock_shared(sk);
	const struct exi_half *rx = &sh->half[EXI_RX];

	return sk->role == EXI_ROLE_ACCEPT && !sk->link &&
	       atomic_load(&sh->reason) == EXS_X_REASON_UNDECIDED &&
	       atomic_load(&rx->meet_at) == UINT64_MAX &&
	       __atomic_load_n(&rx->bytes, __ATOMIC_RELAXED) >
		       exi_config()->upgrade_bytes;
}

void shim_report_connection(int fd)
{
	struct exi_sock *sk;
	exs_x_sockinfo_t i;

	if (!path[0])
		return;
	sk = shim_sock(fd);
	/* A signal handler may end the process in the midst of a call. */
	if (!sk || sk->unused || exi_lock_held(&sk->sh->half[EXI_RX].lock) ||
	    exi_lock_held(&sk->sh->half[EXI_TX].lock) ||
	    exs_x_sockinfo(fd, &i) < 0)
		return;
	if (looked_in_vain(sk))
		i.exs_x_reason = EXS_X_REASON_PLAIN_PEER;
	atomic_fetch_add(&connections, 1);
	if (i.exs_x_rx_fabric_bytes + i.exs_x_tx_fabric_bytes ||
	    i.exs_x_reason == EXS_X_REASON_NONE)
		atomic_fetch_add(&on_fabric, 1);
	else
		atomic_fetch_add(&by_reason[i.exs_x_reason], 1);
	atomic_fetch_add(&fabric_bytes,
			 i.exs_x_rx_fabric_bytes + i.exs_x_tx_fabric_bytes);
	atomic_fetch_add(&bytes, i.exs_x_rx_bytes + i.exs_x_tx_bytes);
	atomic_fetch_add(&bells, i.exs_x_bells_sent);
}

static void one(struct exi_sock *sk, void *arg)
{
	shim_report_connection(atomic_load(&sk->fd));
}

__attribute__((destructor)) void shim_report(void)
{
	char line[1024];
	int n, fd;

	/* Who has left has said it. */
	if (!path[0] || !shim_ready())
		return;
	exi_sock_each(one, NULL);
	/* What every shell on the way has to say would hide the rest. */
	if (!atomic_load(&connections))
		return;
	n = snprintf(line, sizeof(line),
		     "exs run: %s[%d]: %u connections on a fabric, %llu of "
		     "%llu bytes, %llu bells",
		     name, (int)getpid(), atomic_load(&on_fabric),
		     (unsigned long long)atomic_load(&fabric_bytes),
		     (unsigned long long)atomic_load(&bytes),
		     (unsigned long long)atomic_load(&bells));
	for (int r = 0; r < EXS_X_REASON_MAX_; r++)
		if (atomic_load(&by_reason[r]) && n < (int)sizeof(line) - 80)
			n += snprintf(line + n, sizeof(line) - (size_t)n,
				      "; %u on TCP (%s)",
				      atomic_load(&by_reason[r]),
				      exs_x_reason_name(r));
	line[n++] = '\n';
	fd = strcmp(path, "-")
		     ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
			    0666)
		     : stderr_fd;
	if (fd >= 0 && native.write(fd, line, (size_t)n) < 0)
		n = 0;
	if (fd >= 0 && fd != stderr_fd)
		native.close(fd);
	shim_report_forked();
}

void shim_report_forked(void)
{
	atomic_store(&connections, 0);
	atomic_store(&on_fabric, 0);
	atomic_store(&fabric_bytes, 0);
	atomic_store(&bytes, 0);
	atomic_store(&bells, 0);
	for (int r = 0; r < EXS_X_REASON_MAX_; r++)
		atomic_store(&by_reason[r], 0);
}

void shim_report_init(void)
{
	path = exi_config()->report;
	snprintf(name, sizeof(name), "%s", program_invocation_short_name);
	if (!strcmp(path, "-"))
		stderr_fd = exi_fd_keep(native.dup(2));
	if (path[0])
		at_quick_exit(shim_report);
}
