/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/decoding.h"

#include <math.h>

#define SLOT_NS     500000000ull
#define FIRST_SLOTS 20u    /* How long decodes are taken to last until one has ended. */
#define ENDED_MAX   1024.0 /* Then each counts half. */
#define LEAST       0.01   /* Of a request. */

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
yb_sched_decoding_drop(struct yb_sched_decoding *decoding, uint64_t prefilled_ns,
                       uint64_t context_tokens)
{
    uint64_t slot = prefilled_ns / SLOT_NS;
    uint32_t at = (uint32_t)(slot % YB_SCHED_DECODING_SLOTS);

    if (decoding->slots[at].slot == slot + 1) {
        decoding->slots[at].requests--;
        decoding->slots[at].context_tokens -= context_tokens;
    }
}

/* The bin of a time: 0 up to half a slot, then four to each doubling. */
static uint32_t
bin_of(uint64_t ns)
{
    double steps = 4 * log2(2 * (double)ns / (double)SLOT_NS);

    return !(steps > 0)                          ? 0
           : steps + 1 >= YB_SCHED_DECODING_BINS ? YB_SCHED_DECODING_BINS - 1
                                                 : (uint32_t)steps + 1;
}

void
yb_sched_decoding_ended(struct yb_sched_decoding *decoding, uint64_t took_ns)
{
    decoding->bins[bin_of(took_ns)]++;
    decoding->ended++;
    if (decoding->ended >= ENDED_MAX) {
        decoding->ended /= 2;
        for (uint32_t i = 0; i < YB_SCHED_DECODING_BINS; i++) {
            decoding->bins[i] /= 2;
        }
    }
}

/* Fill in, for each number of slots, the share of decodes that last longer; never 0. */
static void
fill_survival(const struct yb_sched_decoding *decoding, double survival[YB_SCHED_DECODING_SLOTS])
{
    double left = decoding->ended;
    uint32_t next = 0;

    for (uint32_t age = 0; age < YB_SCHED_DECODING_SLOTS; age++) {
        uint32_t bin = bin_of(age * SLOT_NS);

        for (; next < bin; next++) {
            left -= decoding->bins[next];
        }
        survival[age] = decoding->ended > 0 ? fmax(left, LEAST) / decoding->ended
                        : age < FIRST_SLOTS ? 1
                                            : LEAST;
    }
}

struct yb_sched_decoding_load
yb_sched_decoding_at(const struct yb_sched_decoding *decoding, uint64_t now_ns, uint64_t at_ns)
{
    double survival[YB_SCHED_DECODING_SLOTS];
    struct yb_sched_decoding_load load = {0};
    uint64_t now = now_ns / SLOT_NS;
    uint64_t last = at_ns / SLOT_NS;

    fill_survival(decoding, survival);
    for (uint64_t back = 0; back < YB_SCHED_DECODING_SLOTS && back <= last; back++) {
        uint64_t slot = last - back;
        uint32_t at = (uint32_t)(slot % YB_SCHED_DECODING_SLOTS);
        double there = survival[back];

        if (decoding->slots[at].slot != slot + 1) {
            continue;
        }
        if (slot <= now) { /* Those that have ended since have been dropped. */
            there /= survival[now - slot];
        }
        load.requests += there * decoding->slots[at].requests;
        load.context_tokens += there * (double)decoding->slots[at].context_tokens;
    }
    return load;
}
