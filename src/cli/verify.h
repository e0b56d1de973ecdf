/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h -- the links of a chain that a running cluster is: each is tried with bytes of its own.
 *
 *     metadata map           a block is put on each node: the directory and that node say the same
 *     prefetch               a node is told to have a block, and has it
 *     local hit              what lies on this host comes through shared memory
 *     return to origin       what memory has no more comes from the disk or the object store
 *     end-to-end reuse       what one has put, another one gets; through engines, with --conductor
 *
 *     verify.c          the command, and what it says
 *     verify_store.c    the first four
 *     verify_reuse.c    the last one
 *
 * Threads   The calling one.
 * Memory    A run is the caller's; blocks that it has put are removed at the end.
 */
#ifndef YB_CLI_VERIFY_H
#define YB_CLI_VERIFY_H

#include "cli/ask.h"
#include "cli/store.h"

#define YB_VERIFY_LINKS     5u
#define YB_VERIFY_NODES_MAX 64u
#define YB_VERIFY_BYTES     (1u << 20)
#define YB_VERIFY_KEY       64u
#define YB_VERIFY_TEXT      320u

enum yb_verify_state {
    YB_VERIFY_UNTRIED,
    YB_VERIFY_OK,
    YB_VERIFY_ABSENT, /* The cluster has no such link. */
    YB_VERIFY_BROKEN,
};

struct yb_verify_link {
    enum yb_verify_state state;
    char text[YB_VERIFY_TEXT]; /* What was found; of a broken link, what to do. */
    uint64_t took_ns;
    uint64_t bytes;
};

struct yb_verify {
    struct yb_cli *cli;
    uint64_t timeout_ns;
    uint64_t number; /* Of this run: no two have the same keys. */
    struct yb_cli_store store;
    struct yb_client *writer;
    struct yb_client *reader;
    uint8_t *bytes;
    uint8_t *back;
    bool put[YB_VERIFY_NODES_MAX]; /* A block is on the node at that place of the members. */
    const char *conductor;         /* "HOST:PORT"; NULL: none. */
    struct yb_verify_link links[YB_VERIFY_LINKS];
};

/* ---- what the links have in common (verify.c) ------------------------------------------------ */

/* Write the key of the block for a node. */
void yb_verify_key(const struct yb_verify *verify, uint32_t index, char key_out[YB_VERIFY_KEY]);

/* Fill in what a block has. */
void yb_verify_fill(uint8_t *bytes, uint64_t number, uint32_t index);

/* Put, or get, the block for a node; a get compares: CORRUPT. `node`: where it should go; NULL:
 * anywhere. */
enum yb_status yb_verify_put(struct yb_verify *verify, uint32_t index, const char *node);
enum yb_status yb_verify_get(struct yb_verify *verify, uint32_t index);

/* Say how a link is. Returns whether it is not broken. */
bool yb_verify_say(struct yb_verify_link *link, enum yb_verify_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- links ----------------------------------------------------------------------------------- */

void yb_verify_map(struct yb_verify *verify, struct yb_verify_link *link);
void yb_verify_prefetch(struct yb_verify *verify, struct yb_verify_link *link);
void yb_verify_local(struct yb_verify *verify, struct yb_verify_link *link);
void yb_verify_origin(struct yb_verify *verify, struct yb_verify_link *link);
void yb_verify_reuse(struct yb_verify *verify, struct yb_verify_link *link);

#endif /* YB_CLI_VERIFY_H */
