/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the key of exs-key(1) for libexs.so, which links no library of
 * cryptography: core/trust/key.h writes and describes it. */
#ifndef EXI_CORE_BASE_KEYFILE_H
#define EXI_CORE_BASE_KEYFILE_H

#include <stdint.h>

#define EXI_KEYFILE_BYTES 32

/* Reads the key from the configured file, or from where exs key looks for it.
 * -ENOENT: there is none. -EPERM: other users may read the file, or it is
 * another user's. -EINVAL: no plain file. -EBADMSG: no key. -errno. */
int exi_keyfile_read(uint8_t ret[EXI_KEYFILE_BYTES]);

#endif
