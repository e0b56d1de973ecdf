/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_table.h -- the benches of `yuebing bench`, a row each: what runs, what usage and refusals
 * name, and the function yb_bench_<name>().
 */
#ifndef YB_CLI_BENCH_TABLE_H
#define YB_CLI_BENCH_TABLE_H

/* The first runs when none is named. FIRST and X differ where something stands between two. */
#define YB_BENCH_MAP(FIRST, X) \
    FIRST(net)                 \
    X(transfer)                \
    X(classes)                 \
    X(directory)               \
    X(store)                   \
    X(ssd)                     \
    X(object)                  \
    X(fetch)                   \
    X(sched)                   \
    X(conductor)

#define YB_BENCH_NAME(name)       #name
#define YB_BENCH_OR_NAME(name)    "|" #name
#define YB_BENCH_COMMA_NAME(name) ", " #name

#define YB_BENCH_USAGE "[" YB_BENCH_MAP(YB_BENCH_NAME, YB_BENCH_OR_NAME) "]"
#define YB_BENCH_LIST  YB_BENCH_MAP(YB_BENCH_NAME, YB_BENCH_COMMA_NAME)

#endif /* YB_CLI_BENCH_TABLE_H */
