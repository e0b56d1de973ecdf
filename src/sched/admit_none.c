/* SPDX-License-Identifier: Apache-2.0
 *
 * none: every request is let in, whatever its first token takes.
 */
#include "sched/route.h"

static enum yb_sched_reason
judge(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
      const struct yb_sched_decision *decision)
{
    (void)view;
    (void)plan;
    (void)decision;
    return YB_SCHED_REASON_NONE;
}

const struct yb_sched_admission yb_sched_admit_none = {
    .name = "none",
    .text = "every request is let in",
    .judge = judge,
};
