/* SPDX-License-Identifier: BSD-2-Clause */
/* Handlers of signals that ran while a call slept. */
#include "core/base/signals.h"

_Thread_local struct exi_signals exi_signals_now, exi_signals_before;
