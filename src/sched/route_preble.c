/* SPDX-License-Identifier: Apache-2.0
 *
 * preble: a prompt of which more than half is somewhere goes there (of such places, the one with
 * the fewest tokens to prefill); others go where the least work was sent within three minutes:
 * alpha x tokens to prefill + beta x requests. Preble measures alpha and beta on its machines; here
 * beta is `weight` (512) times alpha: a request's decode is worth so many tokens of prefill.
 *
 * So who has a prompt gets it, however many wait there, and the wait grows for as long as the load
 * lasts. With `spread_max` a prompt goes there only while requests are spread no further than that,
 * and else to the queue that is worked off first.
 */
#include "sched/route.h"

#define WINDOW_NS 180000000000ull
#define WEIGHT    512.0

/* What was sent to a place, by the window it was sent in. */
struct sent {
    uint64_t window;
    uint64_t tokens[2]; /* In that window and the one before. */
    uint32_t requests[2];
};

struct state {
    struct sent sent[YB_SCHED_PLACES_MAX];
};
_Static_assert(sizeof(struct state) <= YB_SCHED_STATE_BYTES_MAX, "the state has a bound");

static struct sent
sent_by(const struct sent *sent, uint64_t window)
{
    struct sent moved = {.window = window};

    if (sent->window == window) {
        return *sent;
    }
    if (sent->window + 1 == window) {
        moved.tokens[1] = sent->tokens[0];
        moved.requests[1] = sent->requests[0];
    }
    return moved;
}

/* The window slides: of the one before, the part that is not yet three minutes ago. */
static double
sent_score(const struct yb_sched_view *view, uint32_t place)
{
    const struct state *state = view->state;
    struct sent sent = sent_by(&state->sent[place], view->now_ns / WINDOW_NS);
    double left = 1 - (double)(view->now_ns % WINDOW_NS) / (double)WINDOW_NS;
    double beta = view->options->weight > 0 ? view->options->weight : WEIGHT;

    return (double)sent.tokens[0] + left * (double)sent.tokens[1] +
           beta * (sent.requests[0] + left * sent.requests[1]) +
           (double)yb_sched_view_new_tokens(view, place);
}

/* Places without the longest prefix are out. */
static double
holder_score(const struct yb_sched_view *view, uint32_t place)
{
    return yb_sched_view_run(view, place, true) * -0x1p40 +
           (double)view->loads[place].prefill_tokens;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    uint32_t most = view->options->spread_max;
    uint32_t place = yb_sched_view_least(view, holder_score);
    uint32_t fresh = yb_sched_view_new_tokens(view, place);

    if (most != 0 && yb_sched_view_spread(view) > most) {
        place = yb_sched_view_least(view, yb_sched_view_start_ns);
    } else if (2ull * (view->request->input_tokens - fresh) <= view->request->input_tokens) {
        place = yb_sched_view_least(view, sent_score);
    }
    yb_sched_plan_local(view, place, plan_out);
}

static void
commit(void *state_in, const struct yb_sched_options *options,
       const struct yb_sched_request *request, const struct yb_sched_decision *decision,
       uint64_t now_ns)
{
    struct state *state = state_in;
    struct sent *sent;

    (void)options;
    if (!decision->accepted) {
        return;
    }
    sent = &state->sent[decision->prefill];
    *sent = sent_by(sent, now_ns / WINDOW_NS);
    sent->tokens[0] += request->input_tokens - decision->reuse_tokens;
    sent->requests[0]++;
}

const struct yb_sched_routing yb_sched_route_preble = {
    .name = "preble",
    .text = "where more than half of the prompt is; or else where the least work was sent",
    .state_bytes = sizeof(struct state),
    .choose = choose,
    .commit = commit,
};
