/* SPDX-License-Identifier: Apache-2.0
 *
 * stock.h -- which blocks lie on which tier of which node of a simulated cluster.
 *
 * A shelf is one tier of one node: so many blocks of room, and an eviction policy of src/policy
 * that says what goes when it is full. The copies of a block on all shelves are chained, so that a
 * peer that has it is found without a search.
 *
 * Invariants
 *   S1  A shelf has a block at most once, and never more blocks than room.
 *   S2  What was put was evicted, was removed or is there: the counts of a shelf balance.
 *   S3  A pinned copy stays.
 *
 * Threads   One owner. `gone` is called inside put, and may not change the stock.
 * Memory    Copies are allocated in runs and used again; the table of copies grows by doubling.
 * Time      Passed in, for the policies.
 */
#ifndef YB_SIM_STOCK_H
#define YB_SIM_STOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"
#include "yuebing/status.h"

#define YB_STOCK_SHELVES_MAX (1u << 20)
#define YB_STOCK_UNBOUNDED   UINT64_MAX
#define YB_STOCK_NO_BLOCK    UINT32_MAX

struct yb_stock;

struct yb_stock_copy {
    struct yb_policy_linked policy; /* First: policies hand entries back. */
    uint32_t block;
    uint32_t shelf;
    struct yb_stock_copy *next; /* Of the block, on other shelves. */
    struct yb_stock_copy *previous;
};

/* A copy that was evicted, by the number of its block and shelf. */
typedef void yb_stock_gone_fn(void *context, uint32_t shelf, uint32_t block);

struct yb_stock_counts {
    uint64_t put;
    uint64_t evicted;
    uint64_t removed;
    uint64_t refused; /* Puts for which nothing could go. */
    uint64_t present;
};

/* Create a stock without shelves for blocks 0 .. blocks - 1. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_stock_create(uint32_t blocks, yb_stock_gone_fn *gone, void *context,
                                          struct yb_stock **stock_out);

/* Tell policies nothing of which block stands on which, from now on. */
void yb_stock_without_chains(struct yb_stock *stock);

/* Consume the stock and set *stock to NULL; NULL is allowed inside. */
void yb_stock_destroy(struct yb_stock **stock);

/* Add a shelf with room for `room` blocks (0: it takes nothing). Its number is the count of shelves
 * before. Fails with INVALID (no such policy, too many shelves) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_stock_add_shelf(struct yb_stock *stock, const char *policy,
                                             uint64_t room, uint32_t *shelf_out);

/* Return the copy of a block on a shelf; NULL: there is none. */
struct yb_stock_copy *yb_stock_find(struct yb_stock *stock, uint32_t shelf, uint32_t block);

/* Return a copy of the block on any shelf, from which `next` leads to all others. */
struct yb_stock_copy *yb_stock_first(struct yb_stock *stock, uint32_t block);

/* What a policy may be told of a use. */
struct yb_stock_use {
    uint32_t parent;        /* The block before it; YB_STOCK_NO_BLOCK: none, or unknown. */
    uint32_t position;      /* In its prompt, the first is 1; 0: not known. */
    uint32_t answer_tokens; /* How long the answer is; 0: not known. */
    uint64_t request;       /* A number that no other has; 0: not known. */
    uint64_t now_ns;
};

/* Put a block on a shelf, as used now; if it is there, as yb_stock_touch(). What has to go goes
 * first. Fails with NO_SPACE (nothing may go, or there is no room at all) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_stock_put(struct yb_stock *stock, uint32_t shelf, uint32_t block,
                                       const struct yb_stock_use *use);

void yb_stock_touch(struct yb_stock *stock, struct yb_stock_copy *copy,
                    const struct yb_stock_use *use);

/* Keep a copy until as many unpins. Fails with BUSY beyond the bound of the policy. */
YB_CHECKED enum yb_status yb_stock_pin(struct yb_stock *stock, struct yb_stock_copy *copy);
void yb_stock_unpin(struct yb_stock *stock, struct yb_stock_copy *copy);

void yb_stock_remove(struct yb_stock *stock, struct yb_stock_copy *copy);

struct yb_stock_counts yb_stock_counts(const struct yb_stock *stock, uint32_t shelf);

#endif /* YB_SIM_STOCK_H */
