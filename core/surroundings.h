/* SPDX-License-Identifier: BSD-2-Clause */
/* What the program does besides, where it makes upgrades unsafe: rings of
 * io_uring (their calls are seen by nobody), and filters of system calls that
 * it put on itself since the library started (those it was started under are
 * its container's, and do not count). */
#ifndef EXI_CORE_SURROUNDINGS_H
#define EXI_CORE_SURROUNDINGS_H

/* Remembers the filters that are there at the start. */
void exi_surroundings_init(void);

/* EXS_X_REASON_IO_URING, EXS_X_REASON_SECCOMP or EXS_X_REASON_NONE. Looks at
 * most once in a tenth of a second. */
int exi_surroundings_reason(void);

#endif
