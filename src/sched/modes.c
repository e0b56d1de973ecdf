/* SPDX-License-Identifier: Apache-2.0
 *
 * Which mode serves most, and when a place that takes turns may take one more request.
 */
#include <math.h>

#include "base/check.h"
#include "yuebing/sched.h"

#define PIECE_TOKENS 512.0 /* Of a prompt, beside decode: smaller ones waste the devices. */
#define LATE_TENTH   2.302585092994046 /* ln 10: of an exponential time, a tenth is longer. */
#define BATCH_MAX    65536.0
#define HALVINGS     60u

enum yb_sched_reason
yb_sched_slice_check(const struct yb_sched_slice *slice, double prefill_ns, uint64_t kv_tokens,
                     double ttft_slo_ns)
{
    double total_ns = slice->window_ns + slice->waiting_ns + prefill_ns;

    if (ttft_slo_ns > 0 && total_ns > ttft_slo_ns) {
        return YB_SCHED_REASON_TTFT;
    }
    if (slice->decoding > 0 && slice->saved_ns < total_ns) {
        return YB_SCHED_REASON_TPOT;
    }
    return kv_tokens > slice->room_tokens ? YB_SCHED_REASON_NO_DECODE : YB_SCHED_REASON_NONE;
}

/* ---- what a mode serves ---------------------------------------------------------------------- */

/* How long a step with a batch of such requests takes; in the middle of their answers. */
static double
step_ns(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand, double batch)
{
    double context = demand->input_tokens + demand->output_tokens / 2;

    return cost->step_base_ns + batch * (cost->step_sequence_ns + cost->step_token_ns * context);
}

/* The largest batch whose step takes at most so long, and that has room. */
static double
batch_within(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand, double ns)
{
    double each = step_ns(cost, demand, 1) - cost->step_base_ns;
    double most = each > 0 ? (ns - cost->step_base_ns) / each : BATCH_MAX;
    double room = cost->kv_tokens_max == 0 ? BATCH_MAX
                                           : (double)cost->kv_tokens_max /
                                                 (demand->input_tokens + demand->output_tokens);

    return ns < cost->step_base_ns ? 0 : fmin(most, fmin(room, BATCH_MAX));
}

static double
prefill_ns(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand)
{
    return yb_sched_prefill_ns(cost, (uint64_t)demand->input_tokens,
                               (uint64_t)demand->reused_tokens);
}

/* What of the time can be used for prefills if they come at random. */
static double
usable(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand)
{
    return fmax(0, 1 - LATE_TENTH * prefill_ns(cost, demand) / demand->ttft_slo_ns);
}

static struct yb_sched_serving
disaggregated(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand,
              uint32_t places, double link_rate)
{
    struct yb_sched_serving best = {0};
    double batch = batch_within(cost, demand, demand->tpot_slo_ns);
    double steps = fmax(1, demand->output_tokens - 1);
    double prefills = usable(cost, demand) / fmax(1, prefill_ns(cost, demand));
    double sends = link_rate / ((double)cost->kv_bytes * demand->input_tokens) / 1e9;
    double decodes = batch / (steps * step_ns(cost, demand, batch));

    for (uint32_t prefill = 1; prefill < places; prefill++) {
        double rate = fmin(prefill * fmin(prefills, sends),
                           (places - prefill) * fmin(decodes, sends)); /* Each has one port. */

        if (rate * 1e9 > best.requests_per_s) {
            best = (struct yb_sched_serving){rate * 1e9, prefill, batch};
        }
    }
    return best;
}

/* Whether one place can serve a rate (per ns), its steps being at most `most_ns` long. With a rate
 * r, prefills take r x prefill of the time; the rest is for steps, so that tokens come
 * step / (1 - r x prefill) apart, and r x tokens x that is the batch (Little). */
static bool
place_serves(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand, double rate,
             double most_ns, double *batch_out)
{
    double busy = rate * prefill_ns(cost, demand);
    double steps = fmax(1, demand->output_tokens - 1);
    double apart_ns = demand->tpot_slo_ns;
    double batch = rate * steps * apart_ns;

    if (busy > usable(cost, demand) || busy >= 1) {
        return false;
    }
    *batch_out = batch;
    return batch <= batch_within(cost, demand, fmin(most_ns, apart_ns * (1 - busy)));
}

static struct yb_sched_serving
together(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand, uint32_t places,
         double most_ns)
{
    double low = 0;
    double high = 1 / fmax(1, prefill_ns(cost, demand));
    double batch = 0;

    for (uint32_t i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;

        if (place_serves(cost, demand, middle, most_ns, &batch)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (void)place_serves(cost, demand, low, most_ns, &batch);
    return (struct yb_sched_serving){low * places * 1e9, places, batch};
}

struct yb_sched_serving
yb_sched_mode_serves(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand,
                     enum yb_sched_mode mode, uint32_t places, double link_rate)
{
    double piece_ns = cost->prefill_token_ns * fmin(PIECE_TOKENS, demand->input_tokens);

    YB_ASSERT(demand->input_tokens >= 1 && demand->output_tokens >= 1);
    YB_ASSERT(demand->ttft_slo_ns > 0 && demand->tpot_slo_ns > 0);
    switch (mode) {
    case YB_SCHED_MODE_DISAGGREGATED: return disaggregated(cost, demand, places, link_rate);
    case YB_SCHED_MODE_TIME_SLICED: return together(cost, demand, places, demand->tpot_slo_ns);
    case YB_SCHED_MODE_COUPLED: break;
    }
    return together(cost, demand, places, demand->tpot_slo_ns - piece_ns);
}

enum yb_sched_mode
yb_sched_mode_choose(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand,
                     uint32_t places, double link_rate)
{
    enum yb_sched_mode best = YB_SCHED_MODE_COUPLED;
    double most = 0;

    for (uint32_t i = YB_SCHED_MODE_COUPLED; i <= YB_SCHED_MODE_TIME_SLICED; i++) {
        enum yb_sched_mode mode = (enum yb_sched_mode)i;
        double serves = yb_sched_mode_serves(cost, demand, mode, places, link_rate).requests_per_s;

        if (serves > most) {
            best = mode;
            most = serves;
        }
    }
    return best;
}

double
yb_sched_mode_crossover(const struct yb_sched_cost *cost, const struct yb_sched_demand *demand,
                        uint32_t places)
{
    double other =
        yb_sched_mode_serves(cost, demand, YB_SCHED_MODE_TIME_SLICED, places, 0).requests_per_s;
    double low = 0;
    double high = 1e13;

    if (disaggregated(cost, demand, places, low).requests_per_s >= other) {
        return 0;
    }
    if (disaggregated(cost, demand, places, high).requests_per_s < other) {
        return INFINITY;
    }
    for (uint32_t i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;

        if (disaggregated(cost, demand, places, middle).requests_per_s >= other) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}
