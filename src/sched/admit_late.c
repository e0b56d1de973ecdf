/* SPDX-License-Identifier: Apache-2.0
 *
 * late: a request is let in while its first token is expected in time; whether there is room for
 * its decode is found out after the prefill, by the place for decode itself (the baseline of
 * Mooncake, arXiv 2407.00079 v3, section 7). `early` is to spare the prefills that are in vain.
 */
#include "sched/route.h"

static enum yb_sched_reason
judge(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
      const struct yb_sched_decision *decision)
{
    (void)plan;
    return yb_sched_view_late(view, decision) ? YB_SCHED_REASON_TTFT : YB_SCHED_REASON_NONE;
}

const struct yb_sched_admission yb_sched_admit_late = {
    .name = "late",
    .text = "let in while its first token is expected in time, whatever decode is loaded with",
    .judge = judge,
};
