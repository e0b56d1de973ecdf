/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions that are not ended: what they add to the load of places until a report says it itself.
 */
#include <math.h>

#include "base/check.h"
#include "sched/sched_internal.h"

/* The others are not believed to be more than all conductors that there can be. */
#define FACTOR_MAX ((double)YB_SCHED_CONDUCTORS_MAX)

double
yb_sched_others_factor(const struct yb_sched *sched)
{
    uint64_t own = sched->in_flight[sched->options.conductor];
    uint64_t all = 0;
    double factor;

    if (own == 0) {
        return 1; /* No report has anything of this conductor: nothing is known of shares. */
    }
    for (uint32_t i = 0; i < YB_SCHED_CONDUCTORS_MAX; i++) {
        all += sched->in_flight[i];
    }
    factor = (double)all / (double)own;
    return factor < FACTOR_MAX ? factor : FACTOR_MAX;
}

uint32_t
yb_sched_conductors(const struct yb_sched *sched, uint32_t *rank_out)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < YB_SCHED_CONDUCTORS_MAX; i++) {
        if (i == sched->options.conductor) {
            *rank_out = count++;
        } else {
            count += sched->in_flight[i] > 0;
        }
    }
    return count;
}

/* Return `count` times the factor, as a whole number. */
static uint64_t
times(double factor, uint64_t count)
{
    return (uint64_t)(factor * (double)count + 0.5);
}

void
yb_sched_load_refresh(struct yb_sched *sched, uint32_t place)
{
    const struct yb_sched_report *report = &sched->places[place].report;
    const struct yb_sched_own *own = &sched->own[place];
    struct yb_sched_load *load = &sched->loads[place];
    double factor = yb_sched_others_factor(sched);

    const struct yb_sched_link *links =
        sched->places[sched->places[place].instance.node].instance.links;

    load->sequence = report->sequence;
    load->fetch_rate = sched->options.gather
                           ? links[YB_SCHED_LINK_IN].rate + links[YB_SCHED_LINK_OBJECT].rate
                       : links[YB_SCHED_LINK_IN].rate > links[YB_SCHED_LINK_OBJECT].rate
                           ? links[YB_SCHED_LINK_IN].rate
                           : links[YB_SCHED_LINK_OBJECT].rate;
    load->prefill_tokens = report->prefill_tokens + times(factor, own->new_tokens);
    load->queued = report->queued + (uint32_t)times(factor, own->count[YB_SCHED_AT_PREFILL]);
    load->running = report->running + (uint32_t)times(factor, own->count[YB_SCHED_AT_DECODE]);
    load->context_tokens = report->context_tokens + times(factor, own->context_tokens);
    load->kv_tokens_used = report->kv_tokens_used + times(factor, own->context_tokens);
}

/* Count what is in a list, or no more. */
static void
count_in(struct yb_sched_own *own, const struct yb_sched_pending *pending, uint32_t at, bool in)
{
    uint64_t sign = in ? 1 : UINT64_MAX; /* Times it, modulo 2^64: minus. */

    own->count[at] += (uint32_t)sign;
    if (at == YB_SCHED_AT_PREFILL) {
        own->new_tokens += sign * pending->new_tokens;
        own->fetch_bytes += sign * pending->fetch_bytes;
        own->prefill_ns += in ? pending->prefill_ns : -pending->prefill_ns;
        if (own->count[at] == 0) {
            own->prefill_ns = 0; /* Rounding does not add up. */
        }
    } else {
        own->context_tokens += sign * pending->context_tokens;
    }
}

void
yb_sched_pending_list(struct yb_sched *sched, uint32_t slot, uint32_t at)
{
    struct yb_sched_pending *pending = &sched->pending[slot];
    struct yb_sched_own *own = &sched->own[pending->place[at]];

    YB_ASSERT(!pending->listed[at]);
    YB_ASSERT(pending->number != 0);
    pending->previous[at] = 0;
    pending->next[at] = own->first[at];
    if (own->first[at] != 0) {
        sched->pending[own->first[at] - 1].previous[at] = slot + 1;
    }
    own->first[at] = slot + 1;
    pending->listed[at] = true;
    count_in(own, pending, at, true);
}

void
yb_sched_pending_unlist(struct yb_sched *sched, uint32_t slot, uint32_t at)
{
    struct yb_sched_pending *pending = &sched->pending[slot];
    struct yb_sched_own *own = &sched->own[pending->place[at]];

    if (!pending->listed[at]) {
        return;
    }
    if (pending->previous[at] != 0) {
        sched->pending[pending->previous[at] - 1].next[at] = pending->next[at];
    } else {
        YB_ASSERT(own->first[at] == slot + 1);
        own->first[at] = pending->next[at];
    }
    if (pending->next[at] != 0) {
        sched->pending[pending->next[at] - 1].previous[at] = pending->previous[at];
    }
    pending->listed[at] = false;
    count_in(own, pending, at, false);
}

void
yb_sched_pending_forget(struct yb_sched *sched, uint32_t slot)
{
    struct yb_sched_pending *pending = &sched->pending[slot];

    YB_ASSERT(pending->number != 0);
    yb_sched_pending_unlist(sched, slot, YB_SCHED_AT_PREFILL);
    yb_sched_pending_unlist(sched, slot, YB_SCHED_AT_DECODE);
    if (pending->prefilled_ns == 0) {
        yb_sched_index_retire(sched->index, slot);
    }
    for (uint32_t at = 0; at < 2; at++) {
        if (sched->loads[pending->place[at]].alive) {
            yb_sched_load_refresh(sched, pending->place[at]);
        }
    }
    *pending = (struct yb_sched_pending){0};
    YB_ASSERT(sched->pending_count > 0);
    sched->pending_count--;
}

/* Return the slot of a decision; pending_max: it is not there any more. */
static uint32_t
slot_of(const struct yb_sched *sched, uint64_t number)
{
    uint32_t slot = (uint32_t)(number % sched->options.pending_max);

    return number != 0 && sched->pending[slot].number == number ? slot : sched->options.pending_max;
}

void
yb_sched_prefilled(struct yb_sched *sched, uint64_t number, uint64_t now_ns)
{
    uint32_t slot;
    struct yb_sched_pending *pending;
    uint32_t place;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    slot = slot_of(sched, number);
    if (slot == sched->options.pending_max || sched->pending[slot].prefilled_ns != 0) {
        return;
    }
    pending = &sched->pending[slot];
    place = pending->place[YB_SCHED_AT_PREFILL];
    pending->prefilled_ns = now_ns == 0 ? 1 : now_ns;
    yb_sched_index_retire(sched->index, slot);
    if (!pending->listed[YB_SCHED_AT_PREFILL]) {
        return; /* A report has it, and the next one will say how it went on. */
    }
    yb_sched_pending_unlist(sched, slot, YB_SCHED_AT_PREFILL);
    if (pending->place[YB_SCHED_AT_DECODE] == place) {
        yb_sched_pending_list(sched, slot, YB_SCHED_AT_DECODE);
    }
    yb_sched_load_refresh(sched, place);
    if (sched->places[place].report.prefill_done_ns <= now_ns) {
        double left_ns = yb_sched_others_factor(sched) * sched->own[place].prefill_ns;
        uint64_t done_ns = now_ns + (uint64_t)left_ns;

        sched->loads[place].done_ns =
            done_ns < sched->loads[place].done_ns ? done_ns : sched->loads[place].done_ns;
    }
}

void
yb_sched_ended(struct yb_sched *sched, uint64_t number, uint64_t now_ns)
{
    uint32_t slot;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    yb_sched_prefilled(sched, number, now_ns);
    slot = slot_of(sched, number);
    if (slot != sched->options.pending_max) {
        const struct yb_sched_pending *pending = &sched->pending[slot];
        uint64_t since_ns = pending->prefilled_ns;

        yb_sched_decoding_drop(&sched->decoding, pending->finish_ns, pending->context_tokens);

        if (now_ns > since_ns) {
            yb_sched_decoding_ended(&sched->decoding, now_ns - since_ns);
        }
        yb_sched_pending_forget(sched, slot);
    }
}
