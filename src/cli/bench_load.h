/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_load.h -- a store that is kept as busy as it can be, while something else is measured.
 *
 * Some threads put blocks, which make room for each other and go down to the tiers below, and read
 * them again, all the time that the load is on.
 *
 * It is a process of its own, as it is where a conductor answers: what both had in common, memory
 * and the locks of its mapping, would be measured otherwise.
 *
 * Threads   One that opens, switches and closes; it forks: open before there are others. If it has
 *           a real-time priority (chrt -r 2), the load's is one below: what is measured is then
 *           whether it gets in the way of somebody who goes first.
 */
#ifndef YB_CLI_BENCH_LOAD_H
#define YB_CLI_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"

struct yb_bench_load;

/* Begin, switched off, in the store that the configuration names. Returns NULL, having said why. */
struct yb_bench_load *yb_bench_load_open(struct yb_cli *cli);

/* Switch it on, or off: what is under way ends, and no more begins. Returns when that is so. False:
 * its process has ended. */
bool yb_bench_load_switch(struct yb_bench_load *load, bool on);

/* Bytes that it has moved so far. */
uint64_t yb_bench_load_bytes(const struct yb_bench_load *load);

/* End it; sets *load to NULL. Harmless for NULL. */
void yb_bench_load_close(struct yb_bench_load **load);

#endif /* YB_CLI_BENCH_LOAD_H */
