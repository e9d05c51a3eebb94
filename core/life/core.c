/* SPDX-License-Identifier: BSD-2-Clause */
/* Starts the core; handles forks. */
#include "core/base/lock.h"
#include "core/life/core.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/config.h"
#include "core/base/diag.h"
#include "core/base/fds.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/base/shun.h"
#include "core/call/poll.h"
#include "core/call/unseen.h"
#include "core/fabric/module.h"
#include "core/fabric/registry.h"
#include "core/life/deadline.h"
#include "core/life/exit.h"
#include "core/life/fork.h"
#include "core/life/work.h"
#include "core/meet/marker.h"
#include "core/meet/meetdir.h"
#include "core/meet/remote.h"
#include "core/meet/surroundings.h"
#include "core/sock/capture.h"
#include "core/sock/closing.h"
#include "core/sock/service.h"
#include "core/sock/stats.h"
#include "core/sock/table.h"
#include "core/transfer/family.h"
#include "core/transfer/mem.h"
#include "core/transfer/queue.h"
#include "core/transfer/timeout.h"

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic bool exi_core_started;

static _Thread_local bool frozen; /* while it forks */
static _Thread_local bool begun;  /* a fork of unknown result */

static void fork_begins(void)
{
	begun = true;
	exi_sock_prefork();
	frozen = exi_fds_freeze();
}

static void in_parent(void)
{
	if (frozen)
		exi_fds_thaw();
	exi_process_forked(false);
}

/* The child has one thread. Private memory that other threads of the parent
 * held is initialized again; those threads themselves release what is
 * shared. */
static void in_child(void)
{
	begun = false;
	exi_process_forked(true);
	exi_fds_forked();
	exi_closing_forked();
	exi_shun_forked();
	exi_service_forked();
	exi_unseen_forked();
	exi_family_forked();
	exi_marker_forked();
	exi_diag_forked();
	exi_queue_forked();
	exi_mem_forked();
	exi_poll_forked();
	exi_timeout_forked();
	exi_deadline_forked();
	exi_capture_forked();
	exi_stats_forked();
	exi_sock_forked();
	exi_registry_forked(); /* its modules go after their users */
}

/* The libraries of devices end after this one; the service must not use their
 * objects any more. */
__attribute__((destructor)) static void ends(void)
{
	exi_sock_exit();
	if (exi_remote_used())
		exi_service_stop();
}

void exi_core_fork_begins(void)
{
	if (!exi_core_ready())
		return;
	exi_service_begun();
	fork_begins();
}

void exi_core_forked(bool child)
{
	if (!exi_core_ready())
		return;
	if (child)
		in_child();
	else
		in_parent();
}

void exi_core_fork_over(long pid)
{
	if (begun && pid < 0)
		exi_sock_fork_failed();
	begun = false;
}

/* Two copies of the library would both manage the same descriptors. */
static int check_alone(void)
{
	if (!exi_module_twice())
		return 0;
	exi_error("a program with libexs.a cannot run under exs run: link it "
		  "with libexs.so, or run it without exs run");
	return -EBUSY;
}

/* Without a valid configuration it is unknown what the user wants. */
static int check_config(void)
{
	const char *why = exi_config_refusal();

	if (!why)
		return 0;
	exi_error("%s; nothing leaves TCP", why);
	return -EINVAL;
}

/* EXS_REQUIRE names a fabric without which the program must not run. */
static int check_require(void)
{
	const char *require = exi_config()->require;
	struct exi_registry_row row;

	if (!require[0])
		return 0;
	exi_registry_find(require, &row);
	if (row.configured && row.usable)
		return 0;
	exi_error("EXS_REQUIRE is %s, which cannot be used on this host: %s",
		  require,
		  row.usable ? "EXS_PROVIDER does not list it" : row.why);
	return -ENODEV;
}

int exi_core_init(void)
{
	int ret = 0;

	exi_mutex_lock(&init_lock);
	if (!atomic_load(&exi_core_started)) {
		exi_work_begin();
		ret = check_config();
		exi_surroundings_init();
		exi_meetdir_init();
		if (!ret)
			ret = check_alone();
		if (!ret)
			ret = check_require();
		if (!ret)
			ret = exi_sock_init();
		if (!ret)
			ret = -pthread_atfork(fork_begins, in_parent, in_child);
		if (!ret)
			atomic_store(&exi_core_started, true);
	}
	exi_mutex_unlock(&init_lock);
	return ret;
}
