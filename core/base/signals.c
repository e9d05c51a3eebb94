/* SPDX-License-Identifier: BSD-2-Clause */
/* Signal handlers that run, or that ran while a call slept. */
#include "core/base/signals.h"

_Thread_local struct exi_signals exi_signals_now, exi_signals_before;
_Thread_local const char *exi_signals_frame;
