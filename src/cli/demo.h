/* SPDX-License-Identifier: Apache-2.0
 *
 * demo.h -- the stories that `yuebing demo` tells.
 *
 *     demo.c          which one
 *     demo_live.c     a workload on a cluster: what the pool saves
 *     demo_million.c  one request of a million tokens, through a window; demo_reader.h: its reader
 *     demo_rollout.c  a rollout, by groups and by the rule of Seer; demo_router.h: its router
 *     demo_store.c    two programs that share blocks, and a node that dies
 *     demo_cluster.h  the processes of a cluster
 *     demo_chaos.h    what befalls it; demo_links.h: links that are cut
 *     demo_run.h      a workload that is sent to it
 *     demo_table.c    what came of it, as a table and as JSON
 */
#ifndef YB_CLI_DEMO_H
#define YB_CLI_DEMO_H

#include "cli/demo_run.h"

/* What was asked for on the command line. */
struct yb_demo_wish {
    const char *trace;      /* A file in the published format; NULL: a generated conversation. */
    const char *keep_trace; /* Where the requests that are sent are written; NULL: nowhere. */
    uint64_t seconds;       /* That a main column takes. */
    const char *only;       /* One column; NULL: all. */
    bool chaos;             /* The pool, and the pool in chaos. */
    uint64_t conductors;    /* The pool, and the pool with so many; 0: not asked for. */
    bool leave;             /* Also on a terminal. */
};

int yb_cli_demo_live(struct yb_cli *cli, const struct yb_demo_wish *wish);
int yb_cli_demo_store(struct yb_cli *cli);

/* One request of so many tokens. */
int yb_cli_demo_million(struct yb_cli *cli, uint64_t tokens);

/* So many answers, by groups and by the rule; `only`: one of these, NULL: both. */
int yb_cli_demo_rollout(struct yb_cli *cli, uint64_t answers, const char *only);

/* ---- demo_table.c ---------------------------------------------------------------------------- */

/* What the columns have in common. */
struct yb_demo_header {
    const char *workload;
    double time_scale;
    uint32_t model_ttft_ms; /* The targets, of the model's time: of a first token ... */
    uint32_t model_pace_ms; /* ... and of each further one. */
    uint64_t block_bytes;   /* In place of ... */
    uint64_t model_bytes;   /* ... these. */
    uint32_t block_tokens;
    uint32_t far_ms;
    uint32_t processors;
};

#define YB_DEMO_COLUMNS 9u

/* `columns[i]`'s times are compared with those of `columns[beside[i]]`. Of a column that was not
 * run `asked` is 0. */
struct yb_demo_report {
    struct yb_demo_header header;
    struct yb_demo_column columns[YB_DEMO_COLUMNS];
    uint32_t beside[YB_DEMO_COLUMNS];
    double took_s;
};

bool yb_demo_print(const struct yb_demo_report *report, const struct yb_cli *cli);
json_t *yb_demo_json(const struct yb_demo_report *report);

#endif /* YB_CLI_DEMO_H */
