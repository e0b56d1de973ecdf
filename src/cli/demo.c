/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing demo`: which story is told.
 */
#include "cli/demo.h"

#define SECONDS_DEFAULT 40u
#define SECONDS_MAX     3600u
#define TOKENS_DEFAULT  1000000u
#define TOKENS_LEAST    1024u
#define TOKENS_MAX      2000000u
#define ANSWERS_DEFAULT 256u
#define ANSWERS_LEAST   16u
#define ANSWERS_MAX     8192u

const struct yb_cli_option yb_cli_demo_options[] = {
    {"store", NULL, "tell another story: two programs share blocks, and a node dies"},
    {"trace", "FILE", "requests in the published format; default: a generated conversation"},
    {"keep-trace", "FILE", "write the requests of a long column, for yuebing simulate"},
    {"seconds", "N", "that a column takes, of the last four a third; default 40"},
    {"chaos", NULL,
     "run the pool, and the pool while links, a node, the directory and the object store fail"},
    {"conductors", "N", "run the pool, and the pool with N conductors, which are asked in turns"},
    {"million", NULL, "one request of a million tokens, fetched from the object store by a window"},
    {"tokens", "N", "that this one has; default 1000000"},
    {"rollout", NULL, "many answers to each of many prompts: by groups, and any chunk anywhere"},
    {"answers", "N", "that there are; default 256"},
    {"only", "COLUMN", "run one column of the table, as its head has it"},
    {"exit", NULL, "end when the table is printed, on a terminal, too"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

int
yb_cli_demo(struct yb_cli *cli, int argc, char **argv)
{
    struct yb_demo_wish wish = {
        .trace = yb_cli_option(cli, "trace"),
        .keep_trace = yb_cli_option(cli, "keep-trace"),
        .seconds = SECONDS_DEFAULT,
        .only = yb_cli_option(cli, "only"),
        .chaos = yb_cli_option(cli, "chaos") != NULL,
        .leave = yb_cli_option(cli, "exit") != NULL || cli->json || !cli->terminal,
    };
    uint64_t tokens = TOKENS_DEFAULT;
    uint64_t answers = ANSWERS_DEFAULT;

    (void)argc;
    (void)argv;
    if (yb_cli_option(cli, "store") != NULL) {
        return yb_cli_demo_store(cli);
    }
    if (!yb_cli_option_number(cli, "seconds", 1, SECONDS_MAX, &wish.seconds) ||
        !yb_cli_option_number(cli, "conductors", 1, YB_DEMO_CONDUCTORS, &wish.conductors) ||
        !yb_cli_option_number(cli, "tokens", TOKENS_LEAST, TOKENS_MAX, &tokens) ||
        !yb_cli_option_number(cli, "answers", ANSWERS_LEAST, ANSWERS_MAX, &answers)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (yb_cli_option(cli, "million") != NULL) {
        return yb_cli_demo_million(cli, tokens);
    }
    if (yb_cli_option(cli, "rollout") != NULL) {
        return yb_cli_demo_rollout(cli, answers, wish.only);
    }
    return yb_cli_demo_live(cli, &wish);
}
