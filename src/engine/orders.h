/* SPDX-License-Identifier: Apache-2.0
 *
 * orders.h -- how the moves ended that a conductor ordered for a request.
 *
 * A decision names moves: blocks of the prompt that are to be there by a deadline. Whoever sends
 * the request to the engine hands them on; the engine moves what it needs as it always does, and
 * then looks at each: did its blocks come, and when.
 *
 *     fetch, prefetch, replicate, migrate    judged where the prompt is computed
 *     stream                                 judged where the answer goes on
 *
 * Threads   Any; pure.
 */
#ifndef YB_ENGINE_ORDERS_H
#define YB_ENGINE_ORDERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

struct yb_engine_order {
    uint64_t id;
    uint32_t kind;  /* enum yb_sched_kind */
    uint32_t first; /* Of the prompt's blocks. */
    uint32_t count;
    uint64_t deadline_ns; /* Of the engine's clock; YB_NEVER: it has none. */
};

struct yb_engine_orders {
    struct yb_engine_order orders[YB_SCHED_INSTRUCTIONS_MAX];
    uint32_t count;
    uint64_t decided_ns;
};

struct yb_engine_verdict {
    uint64_t id;
    const char *outcome;   /* As conductors call it: "in_time", "late", ... */
    enum yb_status status; /* The same, in the word for it that spans have. */
    uint64_t took_us;
    uint32_t tier; /* enum yb_sched_tier: the farthest one that bytes came from. */
};

struct yb_engine_verdicts {
    struct yb_engine_verdict verdicts[YB_SCHED_INSTRUCTIONS_MAX];
    uint32_t count;
};

/* Read the `instructions` of a decision. Their deadlines count from `decided_ns`. False: it is no
 * such list, or too long. */
bool yb_engine_orders_read(const json_t *list, uint64_t decided_ns,
                           struct yb_engine_orders *orders_out);

/* Say how they ended that are this engine's to judge: with `handed`, the prompt was computed
 * elsewhere. The request has ended well, or has its first token. */
void yb_engine_orders_judge(const struct yb_engine_orders *orders,
                            const struct yb_engine_outcome *outcome, uint32_t block_tokens,
                            bool handed, struct yb_engine_verdicts *verdicts_out);

/* As conductors take them; NULL: no memory. */
json_t *yb_engine_verdicts_json(const struct yb_engine_verdicts *verdicts);

#endif /* YB_ENGINE_ORDERS_H */
