/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's state, for the files of this folder.
 */
#ifndef YB_SCHED_SCHED_INTERNAL_H
#define YB_SCHED_SCHED_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/decoding.h"
#include "sched/index.h"
#include "sched/route.h"
#include "yuebing/sched.h"

#define YB_SCHED_MAGIC         0x73636864u
#define YB_SCHED_SCRATCH_MAGIC 0x73637273u

/* A decision that is not ended. Its place in the array is number % pending_max. It is in the list
 * of its prefill place until that place's report has it, and then, or at once if decode is
 * elsewhere, in that of its decode place until a report has it there. */
struct yb_sched_pending {
    uint64_t number; /* 0: free. */
    uint64_t finish_ns;
    uint64_t prefilled_ns; /* 0: not yet. */
    double prefill_ns;
    uint64_t fetch_bytes;
    uint32_t new_tokens;
    uint32_t context_tokens;
    uint32_t place[2]; /* YB_SCHED_AT_PREFILL, YB_SCHED_AT_DECODE. */
    uint32_t next[2];  /* Of the lists: index + 1. */
    uint32_t previous[2];
    bool listed[2];
};
#define YB_SCHED_AT_PREFILL 0u
#define YB_SCHED_AT_DECODE  1u

/* What this conductor decided for a place and no report has. */
struct yb_sched_own {
    uint32_t first[2]; /* Of the lists: index + 1. */
    uint32_t count[2];
    uint64_t new_tokens;
    uint64_t context_tokens;
    uint64_t fetch_bytes;
    double prefill_ns;
};

struct yb_sched {
    uint32_t magic;
    struct yb_sched_options options;
    const struct yb_sched_routing *routing;
    const struct yb_sched_admission *admission;
    void *state;
    struct yb_sched_index *index;
    struct yb_sched_load *loads;
    struct yb_sched_place *places;
    struct yb_sched_own *own;
    struct yb_sched_link (*racks)[YB_SCHED_UPLINKS];
    struct yb_sched_cost costs[YB_SCHED_COSTS_MAX];
    uint64_t cost_set;
    uint32_t *prefills;
    uint32_t prefill_count;
    uint32_t *decodes;
    uint32_t decode_count;
    uint32_t place_count;
    uint32_t places_used; /* Places 0 .. places_used - 1 have been set. */
    uint32_t rack_count;
    uint32_t shared_nodes; /* Places that use the node of another. */
    struct yb_sched_pending *pending;
    uint32_t pending_count;
    struct yb_sched_decoding decoding;
    uint64_t number; /* Of the last decision. */
    uint64_t rejected;
    uint64_t forgotten;
    uint64_t in_flight[YB_SCHED_CONDUCTORS_MAX]; /* By all places' reports. */
};

struct yb_sched_scratch {
    uint32_t magic;
    const struct yb_sched *sched;
    struct yb_sched_index_active *active;
    struct yb_sched_hit *hits;
    uint32_t *prefills; /* Without the place that the request avoids. */
    uint32_t *chosen;
    double *figures;
    uint32_t *rack_best;
};

/* Return how many requests there are for each of this conductor's. */
double yb_sched_others_factor(const struct yb_sched *sched);

/* Return how many conductors decide, this one among them; *rank_out: how many come before it. */
uint32_t yb_sched_conductors(const struct yb_sched *sched, uint32_t *rank_out);

/* Work out a place's load again from its report and what this conductor decided since. */
void yb_sched_load_refresh(struct yb_sched *sched, uint32_t place);

/* Put a pending decision into, or take it out of, the list of its prefill or decode place. */
void yb_sched_pending_list(struct yb_sched *sched, uint32_t slot, uint32_t at);
void yb_sched_pending_unlist(struct yb_sched *sched, uint32_t slot, uint32_t at);

/* Forget a pending decision. */
void yb_sched_pending_forget(struct yb_sched *sched, uint32_t slot);

/* Fill in the view of a request. Returns false if there is no place for prefill. */
bool yb_sched_view_fill(const struct yb_sched *sched, struct yb_sched_scratch *scratch,
                        const struct yb_sched_request *request, uint64_t now_ns,
                        struct yb_sched_view *view_out);

/* Write the decision's instructions. */
void yb_sched_instruct(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
                       struct yb_sched_decision *decision);

/* Add what a decision moves to the backlogs of the links on its way. */
void yb_sched_links_take(struct yb_sched *sched, const struct yb_sched_decision *decision,
                         uint64_t now_ns);

/* The links that bytes take from one place's node to another's, without the last one onto the
 * device. Returns how many of links_out[4] there are; 0: the same node. */
uint32_t yb_sched_links_between(const struct yb_sched_place *places,
                                const struct yb_sched_link (*racks)[YB_SCHED_UPLINKS],
                                uint32_t from, uint32_t to,
                                const struct yb_sched_link *links_out[4]);

#endif /* YB_SCHED_SCHED_INTERNAL_H */
