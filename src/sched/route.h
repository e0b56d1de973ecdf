/* SPDX-License-Identifier: Apache-2.0
 *
 * route.h -- the contract of a routing policy, and of an admission policy.
 *
 * A policy is a table of functions in a file of its own, src/sched/route_<name>.c or
 * admit_<name>.c, and one line in route.c. docs/scheduling.md says how to add one.
 *
 * What the scheduler does around it: it looks the prompt up, asks the policy for a place and a
 * plan, chooses a place for decode (unless the policy has a way of its own), asks the admission
 * policy, and writes the instructions that the plan needs. So a policy that only has an opinion on
 * the place is three lines long.
 *
 * Invariants
 *   R1  choose() changes nothing but the plan, and the same view gives the same plan. Chance comes
 *       from view->chance. What a policy remembers is in `state`, and only commit() changes it.
 *   R2  choose() names a place of view->prefills. (There is at least one.)
 *   R3  No function allocates.
 *
 * Threads   choose(): several at a time, each with its own view. commit(): the scheduler's owner.
 * Memory    The view is borrowed for the call.
 * Time      view->now_ns.
 */
#ifndef YB_SCHED_ROUTE_H
#define YB_SCHED_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/decoding.h"
#include "sched/index.h"
#include "yuebing/sched.h"

/* How busy a place is, as far as this conductor knows: its last report, its own decisions since,
 * and a guess at those of other conductors. One cache line. */
struct yb_sched_load {
    uint64_t done_ns;        /* When all that waits for prefill will have been prefilled. */
    uint64_t prefill_tokens; /* That this takes. */
    uint64_t context_tokens; /* Of what is being decoded, or will be. */
    uint64_t kv_tokens_used;
    uint32_t queued;  /* Requests before their first token. */
    uint32_t running; /* Requests that are being decoded, or will be here. */
    uint32_t rack;
    uint16_t cost;
    uint8_t roles; /* 0: none, or not alive. */
    uint8_t alive;
    uint64_t sequence; /* Of the report. */
    double fetch_rate; /* The faster of its ways in: network, object store; both, if gathered. */
};
_Static_assert(sizeof(struct yb_sched_load) == 64, "one cache line for each place");

/* A place in full. */
struct yb_sched_place {
    struct yb_sched_instance instance; /* Links with their backlog as it is known now. */
    struct yb_sched_report report;     /* The last one; zeroes before the first. */
};

/* What is being computed, of the request's prompt. */
struct yb_sched_view_coming {
    uint32_t place;
    uint32_t first; /* Blocks. */
    uint32_t end;
    uint64_t finish_ns;
};

/* Everything that a policy may know about one request. */
struct yb_sched_view {
    const struct yb_sched_options *options; /* Defaults filled in. */
    const struct yb_sched_request *request;
    uint64_t now_ns;
    uint64_t chance; /* 64 random bits: of the seed, the conductor and the request. */
    const void *state;

    /* By place, up to places_max. Those that are not alive have roles 0 and no hit. */
    uint32_t places_max;
    const struct yb_sched_load *loads;
    const struct yb_sched_place *places;
    const struct yb_sched_hit *hits;
    const struct yb_sched_cost *costs; /* By index. */
    const struct yb_sched_link (*racks)[YB_SCHED_UPLINKS];
    uint32_t rack_count; /* Racks 0 .. rack_count - 1 have places. */

    /* Those that may be chosen, in the order of their numbers. */
    const uint32_t *prefills;
    uint32_t prefill_count;
    const uint32_t *decodes;
    uint32_t decode_count;

    uint32_t best;        /* The place with the longest run, lowest number first; NONE. */
    uint32_t best_blocks; /* Its run. */
    uint32_t object_blocks;
    uint32_t pool_blocks;  /* The run of what lies at some place or in the object store. */
    uint32_t reach_blocks; /* The longest of all, with what is being computed. */
    uint32_t coming_count;
    struct yb_sched_view_coming coming[YB_SCHED_COMING_MAX];

    const struct yb_sched_index *index; /* Who holds the stretches of the run of pool_blocks. */
    uint32_t stretch_count;
    struct yb_sched_stretch stretches[YB_SCHED_STRETCHES_MAX];

    const struct yb_sched_decoding *decoding; /* What will be decoded when. */
    double others_factor; /* Requests of all conductors for each of this one's. */

    uint32_t conductors; /* That decide, this one among them, */
    uint32_t rank;       /* and how many of them come before it. */

    /* Room for the policy's own use. */
    uint32_t *chosen;    /* places_max */
    double *figures;     /* places_max */
    uint32_t *rack_best; /* rack_count */
};

/* What is to be done with a prompt at one place. */
struct yb_sched_plan {
    uint32_t place;
    uint32_t local_blocks; /* Reused from the place itself (what it will have soon among it). */
    uint32_t reuse_blocks; /* Those, and what is fetched behind them. */
    uint32_t source;       /* A place, YB_SCHED_SHARED, or YB_SCHED_NONE: nothing is fetched. */
    uint32_t reuse_tokens;
    uint32_t considered;
    double start_ns;   /* From now until the engine can begin. */
    double load_ns;    /* From now until all that is reused is there. */
    double prefill_ns; /* Computing. */
    double finish_ns;  /* From now until the first token. */
    uint32_t hotspot;  /* enum yb_sched_hotspot */
};

/* A routing policy. */
struct yb_sched_routing {
    const char *name;
    const char *text;   /* One line for help. */
    size_t state_bytes; /* Of what it remembers; zeroed at create. 0: nothing. At most
                           YB_SCHED_STATE_BYTES_MAX. */

    /* Choose a place and what is reused there. `plan_out` is zeroed. It is enough to call one of
     * the functions below. */
    void (*choose)(const struct yb_sched_view *view, struct yb_sched_plan *plan_out);

    /* Choose a place of view->decodes for what `plan` prefills; NULL: yb_sched_decode_least(). Not
     * asked if the mode has prefill and decode at one place. */
    uint32_t (*choose_decode)(const struct yb_sched_view *view, const struct yb_sched_plan *plan);

    /* The decision is carried out. NULL: nothing to remember. */
    void (*commit)(void *state, const struct yb_sched_options *options,
                   const struct yb_sched_request *request, const struct yb_sched_decision *decision,
                   uint64_t now_ns);
};

#define YB_SCHED_STATE_BYTES_MAX (1u << 20)

/* An admission policy: whether a decision is accepted. `decision` is complete, but for its
 * instructions. Returns YB_SCHED_REASON_NONE to accept. */
struct yb_sched_admission {
    const char *name;
    const char *text;
    enum yb_sched_reason (*judge)(const struct yb_sched_view *view,
                                  const struct yb_sched_plan *plan,
                                  const struct yb_sched_decision *decision);
};

extern const struct yb_sched_routing yb_sched_route_random;
extern const struct yb_sched_routing yb_sched_route_round_robin;
extern const struct yb_sched_routing yb_sched_route_rolling;
extern const struct yb_sched_routing yb_sched_route_least_load;
extern const struct yb_sched_routing yb_sched_route_cache_local;
extern const struct yb_sched_routing yb_sched_route_mooncake;
extern const struct yb_sched_routing yb_sched_route_ready;
extern const struct yb_sched_routing yb_sched_route_seer;
extern const struct yb_sched_routing yb_sched_route_lmetric;
extern const struct yb_sched_routing yb_sched_route_vllm;
extern const struct yb_sched_routing yb_sched_route_dynamo;
extern const struct yb_sched_routing yb_sched_route_preble;
extern const struct yb_sched_routing yb_sched_route_aibrix;
extern const struct yb_sched_routing yb_sched_route_linear;
extern const struct yb_sched_admission yb_sched_admit_none;
extern const struct yb_sched_admission yb_sched_admit_late;
extern const struct yb_sched_admission yb_sched_admit_early;
extern const struct yb_sched_admission yb_sched_admit_early_predicted;

/* Return the policy of a name; NULL: there is none. */
const struct yb_sched_routing *yb_sched_route_find(const char *name);
const struct yb_sched_admission *yb_sched_admit_find(const char *name);

/* ---- for policies ---------------------------------------------------------------------------- */

/* Return the cost of a place. */
const struct yb_sched_cost *yb_sched_view_cost(const struct yb_sched_view *view, uint32_t place);

/* Return from now until the engine of a place can begin with one request more. */
double yb_sched_view_start_ns(const struct yb_sched_view *view, uint32_t place);

/* Return the blocks that a place has in its own tiers. `soon`: with those that it will have. */
uint32_t yb_sched_view_run(const struct yb_sched_view *view, uint32_t place, bool soon);

/* Return how many tokens the first `blocks` blocks are: never the whole prompt, as the last token
 * has to be computed to get an answer. */
uint32_t yb_sched_view_tokens(const struct yb_sched_view *view, uint32_t blocks);

/* Return how many tokens of the prompt have to be computed at a place if nothing is fetched. At
 * least 1. */
uint32_t yb_sched_view_new_tokens(const struct yb_sched_view *view, uint32_t place);

/* Return how many requests a place has, before their first token or after. */
double yb_sched_view_requests(const struct yb_sched_view *view, uint32_t place);

/* Return by how much the places for prefill differ in that at most. */
double yb_sched_view_spread(const struct yb_sched_view *view);

/* Return the place for prefill with the least score; the draw decides between equals. */
uint32_t yb_sched_view_least(const struct yb_sched_view *view,
                             double (*score)(const struct yb_sched_view *view, uint32_t place));

/* Return how long the first token may take from arrival; 0: no matter. */
uint64_t yb_sched_view_ttft_slo_ns(const struct yb_sched_view *view);

/* Return how long a token after the first may take; 0: no matter. */
uint64_t yb_sched_view_tpot_slo_ns(const struct yb_sched_view *view);

/* Whether the first token would come later than is allowed. */
bool yb_sched_view_late(const struct yb_sched_view *view, const struct yb_sched_decision *decision);

/* Return 64 bits that differ for each place: the highest wins a draw. */
uint64_t yb_sched_view_draw(const struct yb_sched_view *view, uint32_t place);

/* Return how long it takes until the bytes of `tokens` tokens have come from a place, or from
 * YB_SCHED_SHARED, to another: backlogs counted, but not whether they are there yet. Infinity:
 * there is no way. */
double yb_sched_view_transfer_ns(const struct yb_sched_view *view, uint32_t from, uint32_t to,
                                 uint32_t tokens);

/* Sources of blocks that are gathered. Those of a source come one behind the other. */
struct yb_sched_gathered {
    uint32_t count;
    uint32_t end; /* What is behind lies nowhere, or at more places than there are sources. */
    struct {
        struct yb_sched_source at;
        uint32_t first; /* Its first and last block: others' may be between. */
        uint32_t end;
        double base_ns;
        double rate;
    } sources[YB_SCHED_SOURCES_MAX];
};

/* Say from where the blocks first .. end - 1 of the prompt come to a place: each from where it will
 * have come first. */
void yb_sched_view_gather(const struct yb_sched_view *view, uint32_t place, uint32_t first,
                          uint32_t end, struct yb_sched_gathered *gathered_out);

/* Plan to reuse what the place has, all of it, and no more. */
void yb_sched_plan_local(const struct yb_sched_view *view, uint32_t place,
                         struct yb_sched_plan *plan_out);

/* Plan to reuse `blocks` blocks, those that the place does not have from `source` (a place or
 * YB_SCHED_SHARED; with the option `gather` that is wherever they lie): all of them. What cannot be
 * fetched, as there is no link, ends never. */
void yb_sched_plan_fetch(const struct yb_sched_view *view, uint32_t place, uint32_t source,
                         uint32_t blocks, struct yb_sched_plan *plan_out);

/* Plan to reuse as many of these blocks as give the earliest first token. */
void yb_sched_plan_split(const struct yb_sched_view *view, uint32_t place, uint32_t source,
                         uint32_t blocks, struct yb_sched_plan *plan_out);

/* Return the place of view->decodes with the shortest step, as it will be with this request, among
 * those with room. YB_SCHED_NONE: there is none. */
uint32_t yb_sched_decode_least(const struct yb_sched_view *view, const struct yb_sched_plan *plan);

/* Return the place of view->decodes with the fewest requests, and of these the fewest tokens, among
 * those with room. YB_SCHED_NONE: there is none. */
uint32_t yb_sched_decode_fewest(const struct yb_sched_view *view);

/* Return how long a step of a place takes with one request more. */
double yb_sched_view_step_ns(const struct yb_sched_view *view, uint32_t place);

#endif /* YB_SCHED_ROUTE_H */
