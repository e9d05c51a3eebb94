/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory that the process's control group may use. */
#ifndef EXI_CORE_BASE_CGROUP_H
#define EXI_CORE_BASE_CGROUP_H

#include <stdint.h>

/* The smallest limit in bytes of the group and those around it, of versions 2
 * (memory.max, memory.high) and 1; UINT64_MAX: none. list is /proc/self/cgroup,
 * mounts is /sys/fs/cgroup. A container may see the host's path of its group in
 * the first and the group alone under the second. */
uint64_t exi_cgroup_memory(const char *list, const char *mounts);

#endif
