/* SPDX-License-Identifier: BSD-2-Clause */
/* Static probes (USDT), which docs/guide/probes.md describes: each is one nop,
 * and a note that tells a tracer where its arguments are. Arguments are words
 * or pointers that exist anyway; nothing is computed for a probe. */
#ifndef EXI_CORE_BASE_PROBE_H
#define EXI_CORE_BASE_PROBE_H

#include "exi_build.h"

#if EXI_WITH_PROBES
#include <sys/sdt.h>
#define EXI_PROBE1(name, a)	  STAP_PROBE1(libexs, name, a)
#define EXI_PROBE2(name, a, b)	  STAP_PROBE2(libexs, name, a, b)
#define EXI_PROBE3(name, a, b, c) STAP_PROBE3(libexs, name, a, b, c)
#else
#define EXI_PROBE1(name, a)	  ((void)(a))
#define EXI_PROBE2(name, a, b)	  ((void)(a), (void)(b))
#define EXI_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
