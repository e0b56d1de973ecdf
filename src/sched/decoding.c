/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/decoding.h"

#define SLOT_NS  500000000ull
#define FIRST_NS 10000000000.0 /* Until a decode has ended. */
#define WEIGHT   0.05          /* Of the newest. */

void
yb_sched_decoding_add(struct yb_sched_decoding *decoding, uint64_t prefilled_ns,
                      uint64_t context_tokens)
{
    uint64_t slot = prefilled_ns / SLOT_NS;
    uint32_t at = (uint32_t)(slot % YB_SCHED_DECODING_SLOTS);

    if (decoding->slots[at].slot != slot + 1) {
        if (decoding->slots[at].slot > slot + 1) {
            return; /* A whole round ahead: this one is over. */
        }
        decoding->slots[at].slot = slot + 1;
        decoding->slots[at].requests = 0;
        decoding->slots[at].context_tokens = 0;
    }
    decoding->slots[at].requests++;
    decoding->slots[at].context_tokens += context_tokens;
}

void
yb_sched_decoding_ended(struct yb_sched_decoding *decoding, uint64_t took_ns)
{
    double took = (double)took_ns;

    decoding->span_ns += decoding->span_ns > 0 ? WEIGHT * (took - decoding->span_ns) : took;
}

struct yb_sched_decoding_load
yb_sched_decoding_at(const struct yb_sched_decoding *decoding, uint64_t at_ns)
{
    double span_ns = decoding->span_ns > 0 ? decoding->span_ns : FIRST_NS;
    struct yb_sched_decoding_load load = {0};
    uint64_t last = at_ns / SLOT_NS;
    uint64_t slots = (uint64_t)(span_ns / (double)SLOT_NS) + 1;

    slots = slots < YB_SCHED_DECODING_SLOTS ? slots : YB_SCHED_DECODING_SLOTS;
    for (uint64_t back = 0; back < slots && back <= last; back++) {
        uint64_t slot = last - back;
        uint32_t at = (uint32_t)(slot % YB_SCHED_DECODING_SLOTS);

        if (decoding->slots[at].slot == slot + 1) {
            load.requests += decoding->slots[at].requests;
            load.context_tokens += (double)decoding->slots[at].context_tokens;
        }
    }
    return load;
}
