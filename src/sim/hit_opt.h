/* SPDX-License-Identifier: Apache-2.0
 *
 * hit_opt.h -- the best that any policy could do: Belady's, with bypass. See hit_table.h.
 *
 * Threads   Any thread, each its own run.
 * Memory    28 bytes for each distinct block and 8 for each reference during the run.
 */
#ifndef YB_SIM_HIT_OPT_H
#define YB_SIM_HIT_OPT_H

#include "sim/hit_table.h"

/* Run the trace through a pool of `room` blocks, 1 or more. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_hit_opt(const struct yb_trace *trace, uint64_t room,
                                     struct yb_hit_result *result_out);

#endif /* YB_SIM_HIT_OPT_H */
