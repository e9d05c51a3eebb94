/* SPDX-License-Identifier: BSD-2-Clause */
/* What the core knows about each reason (EXS_X_REASON_*) in addition to the
 * public calls. The table is core/base/reasons. */
#ifndef EXI_CORE_BASE_REASON_H
#define EXI_CORE_BASE_REASON_H

/* How long a reason lasts. */
enum exi_reason_lasts {
	EXI_REASON_SOON,  /* the direction may still move by itself */
	EXI_REASON_ASKED, /* it moves on request */
	EXI_REASON_STAYS, /* this connection stays on TCP; new ones may move */
	EXI_REASON_NEVER, /* no connection of its kind moves */
};

/* The cause, and the cure, each as the rest of a sentence; the cure is "" if
 * nothing needs to be done. Never null. exs_x_reason_text() has both. */
const char *exi_reason_means(int reason);
const char *exi_reason_cure(int reason);
enum exi_reason_lasts exi_reason_lasts(int reason);

/* The step of exs check that finds this reason, such as "peer"; "none" for
 * EXS_X_REASON_NONE. */
const char *exi_reason_step(int reason);

/* The reason with this word, or -1. */
int exi_reason_of(const char *word);

#endif
