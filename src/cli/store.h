/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h -- what the commands that look into a store share.
 *
 * put, get, ls and rm are written over the public client (include/yuebing/client.h). What people
 * ask about a store beyond that (nodes, node check, stat, explain, drain) goes to the directory
 * and to its nodes in frames of their own:
 *
 *     yb_cli_store_open --> yb_cli_store_ask, yb_cli_store_ask_node ... --> yb_cli_store_close
 *
 * Threads   The calling one.
 * Memory    The struct is the caller's; what it names is owned until close.
 */
#ifndef YB_CLI_STORE_H
#define YB_CLI_STORE_H

#include <jansson.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "directory/wire/directory_wire.h"
#include "node/wire/node_wire.h"
#include "yuebing/client.h"

/* Every command that asks a store has these. */
#define YB_CLI_STORE_OPTIONS                                                          \
    {                                                                                 \
        "timeout-ms", "N", "how long all of it may take, 1 .. 3600000; default 30000" \
    }

struct yb_cli_store {
    struct yb_cli *cli;
    struct yb_cli_client directory;
    uint64_t timeout_ns; /* For each question. */
    struct yb_wire_cluster cluster;
    struct yb_wire_member *members; /* In order of slot; as of the last yb_cli_store_members(). */
    uint32_t member_count;
    uint8_t *reply; /* The last answer, until the next question. */
    uint32_t reply_bytes;
    char error[YB_CONFIG_MESSAGE_MAX]; /* Why the last question failed. */
};

/* Ask the directory of the configuration who is there. `admin`: as an administrator, unless the
 * command line names another role. On OK the caller must close it; otherwise the reason was
 * printed. */
YB_CHECKED enum yb_status yb_cli_store_open(struct yb_cli *cli, bool admin,
                                            struct yb_cli_store *store_out);
void yb_cli_store_close(struct yb_cli_store *store);

/* Ask again who is there. On failure store->error says why. */
YB_CHECKED enum yb_status yb_cli_store_members(struct yb_cli_store *store);

/* A question, and the answer in store->reply. On failure store->error says why. */
struct yb_cli_question {
    uint16_t type;
    const void *body;
    size_t body_bytes;
    uint64_t timeout_ns; /* 0: the store's. */
    bool mutates;
};
YB_CHECKED enum yb_status yb_cli_store_ask(struct yb_cli_store *store,
                                           const struct yb_cli_question *question);
YB_CHECKED enum yb_status yb_cli_store_ask_node(struct yb_cli_store *store,
                                                const struct yb_wire_member *member,
                                                const struct yb_cli_question *question);

/* What a node says of its tiers below memory; empty: it has none, does not answer, or is of a
 * version that does not know the question. */
struct yb_cli_tiers {
    uint32_t count;
    struct yb_wire_tier_state each[8];
};

/* Ask a node for its tiers. One that is dead, and not known to be, must not hold up who looks for
 * it: it is waited for shortly, and for no more than *left_ns, which what it took is taken from. */
void yb_cli_store_tiers(struct yb_cli_store *store, const struct yb_wire_member *member,
                        uint64_t *left_ns, struct yb_cli_tiers *tiers_out);

/* Return the member of a slot; NULL: not there any more. */
const struct yb_wire_member *yb_cli_store_member(const struct yb_cli_store *store, uint16_t slot);

/* Print store->error and return the exit code that goes with the status. */
int yb_cli_store_fail(struct yb_cli_store *store, enum yb_status status);

/* Open the public client for the configuration. Otherwise the reason was printed, and *code_out is
 * the exit code. */
YB_CHECKED enum yb_status yb_cli_open_client(struct yb_cli *cli, uint64_t timeout_ns,
                                             struct yb_client **client_out, int *code_out);

/* Read --timeout-ms. False: it was refused, and why was printed. */
bool yb_cli_store_timeout(const struct yb_cli *cli, uint64_t *timeout_ns_out);

/* Check a key of the command line. False: it was refused, and why was printed. */
bool yb_cli_key_fits(const struct yb_cli *cli, const char *key);

/* What became of a key, in words that say what to do. Static. */
const char *yb_cli_outcome_text(enum yb_status status);

/* "1.5 GiB"; "17 B". */
#define YB_CLI_BYTES_TEXT 24u
void yb_cli_bytes_text(uint64_t bytes, char text_out[YB_CLI_BYTES_TEXT]);

/* "1.2 s", "5 ms", "3 h". */
void yb_cli_span_text(uint64_t ms, char text_out[YB_CLI_BYTES_TEXT]);

/* Print a key: what is not printable, and the backslash, as \xHH. */
void yb_cli_print_key(FILE *out, const void *key, size_t length);

/* Set "key" of an object; of one that is not UTF-8, "key_hex". */
void yb_cli_json_key(json_t *object, const void *key, size_t length);

/* ---- one block, as everybody sees it (explain.c) -------------------------------------------- */

struct yb_cli_copy {
    uint16_t slot;
    uint8_t tier;
    char node[65];
    enum yb_status status; /* Of the question to the node ... */
    bool asked;
    uint64_t size;
    uint64_t ttl_ms, idle_ms;
    uint32_t pins, hold_ms;
    enum yb_status block; /* ... and what it says of the block; */
    uint8_t fate;         /* ... of one that it had: what became of it. */
};

struct yb_cli_block {
    struct yb_id hash;
    struct yb_wire_explanation known; /* By the directory. */
    struct yb_cli_copy copies[4];
    uint32_t copy_count;
};

/* Ask the directory and the nodes that it names. On failure store->error says why. */
YB_CHECKED enum yb_status yb_cli_store_block(struct yb_cli_store *store, const char *key,
                                             struct yb_cli_block *block_out);

/* `yuebing node check`. Returns the exit code. */
int yb_cli_node_check(struct yb_cli *cli);

#endif /* YB_CLI_STORE_H */
