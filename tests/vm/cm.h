/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernels' connection managers say to each other. */
#ifndef TESTS_VM_CM_H
#define TESTS_VM_CM_H

#include <stdbool.h>

/* The kernel of who connects does not say that the answer came: the other end
 * goes on, but to its kernel the connection is not established. iWARP says no
 * such thing. */
extern bool vm_cm_unconfirmed;

#endif
