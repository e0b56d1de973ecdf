/* SPDX-License-Identifier: Apache-2.0
 *
 * lmetric: the least (tokens to prefill, with this request) x (requests, with this one). A product
 * needs no weight: what a weight would be is the same factor for all places. Where decode is
 * elsewhere, a place for prefill has no batch, and the tokens alone decide.
 *
 * The product is drawn to those that have a prefix, M, also when that many requests want it that
 * these few places cannot be right. So there is a detector. A class of requests is a prefix that
 * somebody has; x is its share of the last minute's requests. As long as
 *
 *     x / (1 - x) <= |M| / |not M|
 *
 * M is not overrun. The first phase is an alarm: this does not hold. The second: 2 |M| requests of
 * the class one after the other have gone to M nevertheless. Then M is left out, until what is
 * computed elsewhere has made M large enough.
 */
#include <math.h>

#include "sched/route.h"

#define WINDOW_NS 60000000000ull
#define CLASSES   64u /* Only the most frequent are followed. */

struct class
{
    uint64_t block;     /* The last of the prefix. */
    uint32_t counts[2]; /* Of this minute, and the one before. */
    uint32_t in_a_row;  /* Requests that went to M during an alarm. */
};

struct state {
    uint64_t window;
    uint32_t counts[2]; /* All requests. */
    uint32_t used;
    struct class classes[CLASSES];
};

/* ---- classes --------------------------------------------------------------------------------- */

static const struct class *
find(const struct state *state, uint64_t block)
{
    for (uint32_t i = 0; i < state->used; i++) {
        if (state->classes[i].block == block) {
            return &state->classes[i];
        }
    }
    return NULL;
}

/* Return the class of a block; if there is none it takes the place of the least frequent. */
static struct class *
take(struct state *state, uint64_t block)
{
    struct class *least = &state->classes[0];

    for (uint32_t i = 0; i < state->used; i++) {
        struct class *class = &state->classes[i];

        if (class->block == block) {
            return class;
        }
        if (class->counts[0] + class->counts[1] < least->counts[0] + least->counts[1]) {
            least = class;
        }
    }
    if (state->used < CLASSES) {
        least = &state->classes[state->used++];
    }
    *least = (struct class){.block = block};
    return least;
}

/* Return how many there are of two counts, a minute back from now. */
static double
sliding(const uint32_t counts[2], uint64_t window, uint64_t now_ns)
{
    uint64_t current = now_ns / WINDOW_NS;
    double left = 1 - (double)(now_ns % WINDOW_NS) / (double)WINDOW_NS;

    if (current == window) {
        return counts[0] + left * counts[1];
    }
    return current == window + 1 ? left * counts[0] : 0;
}

static void
move_window(struct state *state, uint64_t window)
{
    bool next = state->window + 1 == window;

    if (state->window == window) {
        return;
    }
    state->window = window;
    state->counts[1] = next ? state->counts[0] : 0;
    state->counts[0] = 0;
    for (uint32_t i = 0; i < state->used; i++) {
        state->classes[i].counts[1] = next ? state->classes[i].counts[0] : 0;
        state->classes[i].counts[0] = 0;
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool
holds(const struct yb_sched_view *view, uint32_t place)
{
    return yb_sched_view_run(view, place, true) >= view->best_blocks;
}

static double
score(const struct yb_sched_view *view, uint32_t place)
{
    double tokens =
        (double)view->loads[place].prefill_tokens + (double)yb_sched_view_new_tokens(view, place);

    if (view->options->mode == YB_SCHED_MODE_DISAGGREGATED) {
        return tokens;
    }
    return tokens * (yb_sched_view_requests(view, place) + 1);
}

static double
score_elsewhere(const struct yb_sched_view *view, uint32_t place)
{
    return holds(view, place) ? INFINITY : score(view, place);
}

static enum yb_sched_hotspot
look_for_hotspot(const struct yb_sched_view *view)
{
    const struct state *state = view->state;
    const struct class *class;
    uint32_t holders = 0;
    double all;
    double share;

    if (view->options->no_detector || view->best_blocks == 0 ||
        view->best_blocks > view->request->block_count) {
        return YB_SCHED_HOTSPOT_NONE;
    }
    for (uint32_t i = 0; i < view->prefill_count; i++) {
        holders += holds(view, view->prefills[i]);
    }
    class = find(state, view->request->blocks[view->best_blocks - 1]);
    all = sliding(state->counts, state->window, view->now_ns);
    if (class == NULL || holders == 0 || holders == view->prefill_count || !(all > 0)) {
        return YB_SCHED_HOTSPOT_NONE;
    }
    share = sliding(class->counts, state->window, view->now_ns) / all;
    if (share * (view->prefill_count - holders) <= (1 - share) * holders) {
        return YB_SCHED_HOTSPOT_NONE;
    }
    return class->in_a_row >= 2 * holders ? YB_SCHED_HOTSPOT_AVOIDED : YB_SCHED_HOTSPOT_ALARM;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    enum yb_sched_hotspot hotspot = look_for_hotspot(view);
    bool avoided = hotspot == YB_SCHED_HOTSPOT_AVOIDED;

    yb_sched_plan_local(view, yb_sched_view_least(view, avoided ? score_elsewhere : score),
                        plan_out);
    plan_out->hotspot = hotspot;
}

static uint32_t
choose_decode(const struct yb_sched_view *view, const struct yb_sched_plan *plan)
{
    (void)plan;
    return yb_sched_decode_fewest(view);
}

static void
commit(void *state_in, const struct yb_sched_options *options,
       const struct yb_sched_request *request, const struct yb_sched_decision *decision,
       uint64_t now_ns)
{
    struct state *state = state_in;
    struct class *class;

    (void)options;
    move_window(state, now_ns / WINDOW_NS);
    state->counts[0]++;
    if (decision->best_blocks == 0 || decision->best_blocks > request->block_count) {
        return;
    }
    class = take(state, request->blocks[decision->best_blocks - 1]);
    class->counts[0]++;
    if (decision->hotspot == YB_SCHED_HOTSPOT_AVOIDED) {
        return; /* It stays so until there is no alarm any more. */
    }
    class->in_a_row = decision->hotspot == YB_SCHED_HOTSPOT_ALARM &&
                              decision->soon_blocks >= decision->best_blocks
                          ? class->in_a_row + 1
                          : 0;
}

const struct yb_sched_routing yb_sched_route_lmetric = {
    .name = "lmetric",
    .text = "the least (tokens to prefill) x (requests), and a detector of hotspots",
    .state_bytes = sizeof(struct state),
    .choose = choose,
    .choose_decode = choose_decode,
    .commit = commit,
};
