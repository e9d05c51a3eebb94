/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory limit of the process's control group. */
#ifndef EXI_CORE_BASE_CGROUP_H
#define EXI_CORE_BASE_CGROUP_H

#include <stdint.h>

/* The smallest limit in bytes of the group and its ancestors, of versions 2
 * (memory.max, memory.high) and 1; UINT64_MAX: no limit. list is
 * /proc/self/cgroup, mounts is /sys/fs/cgroup. In a container, the first may
 * show the host's path of the group, while the second shows only the group
 * itself. */
uint64_t exi_cgroup_memory(const char *list, const char *mounts);

#endif
