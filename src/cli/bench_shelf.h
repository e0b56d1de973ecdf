/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_shelf.h -- blocks in a tier below memory, read by flows of several classes at once.
 *
 * Threads   The caller's, which turns the tier's loop.
 * Memory    A shelf owns its tier, its blocks and what they are read into.
 */
#ifndef YB_CLI_BENCH_SHELF_H
#define YB_CLI_BENCH_SHELF_H

#include "cli/bench_flow.h"

#define YB_BENCH_SHELF_DEPTH 64u /* Loads of one flow at the same time, at most. */
#define YB_BENCH_SHELF_FLOWS 3u

struct yb_bench_shelf;

/* Open a tier and store the blocks, of 1 MiB: `on` is "ssd" (a log of its own below --dir) or
 * "object" (--store). Returns false, having said why on cli->err. */
bool yb_bench_shelf_open(struct yb_cli *cli, const char *on, struct yb_bench_shelf **shelf_out);
void yb_bench_shelf_close(struct yb_bench_shelf **shelf);

/* Let flows read (`mode` DEPTH or PACED; `depth`, `work_class` and `period_ns` count) for a fifth
 * of `run_ns`, and then measure them for as long as that. Returns false, having said why on stderr.
 */
bool yb_bench_shelf_play(struct yb_bench_shelf *shelf, const struct yb_bench_flow_options *flows,
                         uint32_t count, uint64_t run_ns, struct yb_bench_flow_result *results_out);

/* Read all blocks, and compare them. */
bool yb_bench_shelf_check(struct yb_bench_shelf *shelf);

#endif /* YB_CLI_BENCH_SHELF_H */
