/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/batching.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/stock.h"

/* A request that is decoded. */
struct running {
    uint32_t request;
    uint32_t left; /* Tokens that it still gets. */
};

struct batching {
    const struct yb_trace *trace;
    const struct yb_batching_options *options;
    struct yb_stock *stock; /* Of one shelf: the devices. */
    uint32_t shelf;
    uint64_t room; /* Blocks of the shelf. */
    uint64_t pinned;
    uint32_t *pins;  /* By block: how many running requests have it. */
    bool *held;      /* By block: it was computed once. */
    uint64_t *names; /* Of all references, for the scheduler. */
    uint32_t *queue; /* Requests, in the order in which they are to be looked at. */
    uint32_t *other; /* The queue of the next round. */
    uint32_t queued;
    struct yb_sched_waiter *waiters;
    enum yb_sched_turn *turns;
    uint32_t next; /* Request to come. */
    struct running *running;
    uint32_t running_count;
    uint64_t context_tokens;
    uint32_t ended;
    double now_ns;
    double ttft_ns; /* Sum. */
    struct yb_batching_result result;
};

/* What leaves the devices stays in the host's memory. */
static void
gone(void *context, uint32_t shelf, uint32_t block)
{
    (void)context;
    (void)shelf;
    (void)block;
}

static void
batching_fini(struct batching *batching)
{
    yb_stock_destroy(&batching->stock);
    free(batching->pins);
    free(batching->held);
    free(batching->names);
    free(batching->queue);
    free(batching->other);
    free(batching->waiters);
    free(batching->turns);
    free(batching->running);
}

static enum yb_status
batching_init(struct batching *batching, const struct yb_trace *trace,
              const struct yb_batching_options *options)
{
    uint32_t count = trace->request_count;
    enum yb_status status;

    *batching = (struct batching){.trace = trace, .options = options};
    batching->room = options->device_tokens / trace->block_tokens;
    batching->pins = calloc(trace->block_count, sizeof(*batching->pins));
    batching->held = calloc(trace->block_count, sizeof(*batching->held));
    batching->names = calloc(trace->reference_count, sizeof(*batching->names));
    batching->queue = calloc(count, sizeof(*batching->queue));
    batching->other = calloc(count, sizeof(*batching->other));
    batching->waiters = calloc(count, sizeof(*batching->waiters));
    batching->turns = calloc(count, sizeof(*batching->turns));
    batching->running = calloc(count, sizeof(*batching->running));
    if (batching->pins == NULL || batching->held == NULL || batching->names == NULL ||
        batching->queue == NULL || batching->other == NULL || batching->waiters == NULL ||
        batching->turns == NULL || batching->running == NULL) {
        return YB_NO_MEMORY;
    }
    for (uint64_t i = 0; i < trace->reference_count; i++) {
        batching->names[i] = trace->blocks[i] + 1ull;
    }
    status = yb_stock_create(trace->block_count, gone, NULL, &batching->stock);
    return status != YB_OK
               ? status
               : yb_stock_add_shelf(batching->stock, "lru", batching->room, &batching->shelf);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static struct yb_stock_use
use_of(const struct batching *batching, uint32_t request, uint32_t index)
{
    const uint32_t *blocks = &batching->trace->blocks[batching->trace->requests[request].first];

    return (struct yb_stock_use){.parent = index == 0 ? YB_STOCK_NO_BLOCK : blocks[index - 1],
                                 .position = index + 1,
                                 .request = request + 1ull,
                                 .now_ns = (uint64_t)batching->now_ns};
}

/* Keep a block on the devices for a request, where it comes to if it is not there. */
static enum yb_status
pin(struct batching *batching, uint32_t request, uint32_t index)
{
    uint32_t block = batching->trace->blocks[batching->trace->requests[request].first + index];
    struct yb_stock_use use = use_of(batching, request, index);
    enum yb_status status = YB_OK;

    if (batching->pins[block]++ > 0) {
        return YB_OK;
    }
    status = yb_stock_put(batching->stock, batching->shelf, block, &use);
    if (status == YB_OK) {
        status =
            yb_stock_pin(batching->stock, yb_stock_find(batching->stock, batching->shelf, block));
        batching->pinned++;
    }
    return status;
}

static void
unpin_all(struct batching *batching, uint32_t request)
{
    uint64_t first = batching->trace->requests[request].first;

    for (uint32_t i = 0; i < yb_trace_blocks_of(batching->trace, request); i++) {
        uint32_t block = batching->trace->blocks[first + i];

        if (--batching->pins[block] == 0) {
            yb_stock_unpin(batching->stock, yb_stock_find(batching->stock, batching->shelf, block));
            batching->pinned--;
        }
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void
let_come(struct batching *batching)
{
    const struct yb_trace *trace = batching->trace;

    while (batching->next < trace->request_count &&
           (double)trace->requests[batching->next].arrival_ns <= batching->now_ns) {
        batching->queue[batching->queued++] = batching->next++;
    }
}

static struct yb_sched_waiter
waiter_of(struct batching *batching, uint32_t request)
{
    const struct yb_trace_request *row = &batching->trace->requests[request];
    struct yb_sched_waiter waiter = {.blocks = &batching->names[row->first],
                                     .block_count = yb_trace_blocks_of(batching->trace, request),
                                     .input_tokens = row->input_tokens};
    const uint32_t *blocks = &batching->trace->blocks[row->first];

    while (waiter.held_blocks < waiter.block_count && batching->held[blocks[waiter.held_blocks]]) {
        waiter.held_blocks++;
    }
    while (waiter.device_blocks < waiter.held_blocks &&
           yb_stock_find(batching->stock, batching->shelf, blocks[waiter.device_blocks]) != NULL) {
        waiter.device_blocks++;
    }
    while (waiter.used_blocks < waiter.device_blocks &&
           batching->pins[blocks[waiter.used_blocks]] > 0) {
        waiter.used_blocks++;
    }
    return waiter;
}

/* Ask the scheduler for a batch. */
static struct yb_sched_batch
form(struct batching *batching)
{
    uint32_t most = batching->options->batch_requests;
    uint32_t slots = most > batching->running_count ? most - batching->running_count : 0;
    uint32_t look = batching->queued < YB_SCHED_BATCH_LOOK ? batching->queued : YB_SCHED_BATCH_LOOK;
    struct yb_sched_batch_options options = {
        .block_tokens = batching->trace->block_tokens,
        .requests_max = slots,
        .new_tokens = batching->options->batch_tokens,
        .room_blocks = batching->room - batching->pinned,
        .load_ratio = batching->options->no_balance ? -1 : 0,
        .shared_tokens = batching->options->no_deferral ? UINT32_MAX : 0,
    };

    for (uint32_t i = 0; i < look; i++) {
        batching->waiters[i] = waiter_of(batching, batching->queue[i]);
    }
    if (slots == 0) {
        return (struct yb_sched_batch){0};
    }
    return yb_sched_batch_form(&options, NULL, 0, batching->waiters, look, batching->turns);
}

/* ---- decode ---------------------------------------------------------------------------------- */

static void
end_request(struct batching *batching, uint32_t index)
{
    uint32_t request = batching->running[index].request;
    const struct yb_trace_request *row = &batching->trace->requests[request];

    batching->context_tokens -= (uint64_t)row->input_tokens + row->output_tokens;
    unpin_all(batching, request);
    batching->running[index] = batching->running[--batching->running_count];
    batching->ended++;
}

/* Give each running request so many tokens, or as many as it still gets. */
static void
decode(struct batching *batching, uint32_t steps)
{
    for (uint32_t i = 0; i < batching->running_count;) {
        struct running *one = &batching->running[i];
        uint32_t given = steps < one->left ? steps : one->left;

        one->left -= given;
        batching->context_tokens += given;
        if (one->left == 0) {
            end_request(batching, i);
        } else {
            i++;
        }
    }
}

static uint32_t
least_left(const struct batching *batching)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < batching->running_count; i++) {
        least = batching->running[i].left < least ? batching->running[i].left : least;
    }
    return least;
}

/* Decode until somebody is done or comes. */
static void
run_decode(struct batching *batching)
{
    const struct yb_trace *trace = batching->trace;
    double step_ns = yb_sched_step_ns(batching->options->cost, batching->running_count,
                                      batching->context_tokens);
    uint32_t steps = least_left(batching);

    if (batching->next < trace->request_count) {
        double until_ns = (double)trace->requests[batching->next].arrival_ns - batching->now_ns;

        steps = (uint32_t)fmax(1, fmin(steps, ceil(until_ns / step_ns)));
    }
    batching->now_ns += steps * step_ns;
    decode(batching, steps);
}

/* Let those that run already get tokens while a batch loads. Returns how long that takes. */
static double
fill_bubble(struct batching *batching, double load_ns, double compute_ns)
{
    const struct yb_sched_cost *cost = batching->options->cost;
    double step_ns = yb_sched_step_ns(cost, batching->running_count, batching->context_tokens);
    uint32_t steps = yb_sched_batch_bubble(cost, load_ns, compute_ns, batching->running_count,
                                           batching->context_tokens);

    if (batching->options->no_bubble) {
        return 0;
    }
    batching->result.bubble_steps += steps;
    decode(batching, steps);
    return steps * step_ns;
}

/* ---- prefill --------------------------------------------------------------------------------- */

/* Count what a request computes, and what another of this batch has computed, too. */
static void
count_computed(struct batching *batching, uint32_t request, uint32_t held_blocks)
{
    const struct yb_trace_request *row = &batching->trace->requests[request];
    uint64_t block_tokens = batching->trace->block_tokens;
    uint64_t twice = 0;

    for (uint32_t i = held_blocks; i < yb_trace_blocks_of(batching->trace, request); i++) {
        bool *held = &batching->held[batching->trace->blocks[row->first + i]];

        twice += *held ? block_tokens : 0;
        *held = true;
    }
    batching->result.twice_tokens += twice;
    batching->result.missed += twice > 0;
}

/* Those that were taken, in their order: blocks that are there first, so that what comes does not
 * put them out. */
static enum yb_status
place_batch(struct batching *batching, uint32_t look)
{
    enum yb_status status = YB_OK;

    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < look && status == YB_OK; i++) {
            const struct yb_sched_waiter *waiter = &batching->waiters[i];
            uint32_t from = pass == 0 ? 0 : waiter->device_blocks;
            uint32_t to = pass == 0 ? waiter->device_blocks : waiter->block_count;

            for (; from < to && batching->turns[i] == YB_SCHED_TURN_TAKEN && status == YB_OK;
                 from++) {
                status = pin(batching, batching->queue[i], from);
            }
        }
    }
    return status;
}

/* How long the batch computes; and what of it is computed twice. */
static double
compute(struct batching *batching, uint32_t look)
{
    double ns = 0;

    for (uint32_t i = 0; i < look; i++) {
        const struct yb_sched_waiter *waiter = &batching->waiters[i];
        uint64_t held = (uint64_t)waiter->held_blocks * batching->trace->block_tokens;

        if (batching->turns[i] == YB_SCHED_TURN_TAKEN) {
            held = held < waiter->input_tokens ? held : waiter->input_tokens - 1u;
            ns += yb_sched_prefill_ns(batching->options->cost, waiter->input_tokens, held);
            count_computed(batching, batching->queue[i], waiter->held_blocks);
        }
    }
    return ns;
}

static void
begin_decode(struct batching *batching, uint32_t request)
{
    const struct yb_trace_request *row = &batching->trace->requests[request];

    batching->ttft_ns += batching->now_ns - (double)row->arrival_ns;
    batching->context_tokens += (uint64_t)row->input_tokens + 1;
    batching->running[batching->running_count++] =
        (struct running){request, row->output_tokens > 0 ? row->output_tokens - 1 : 0};
    if (row->output_tokens <= 1) {
        end_request(batching, batching->running_count - 1);
    }
}

/* Those that were deferred first, then those that were left. */
static void
requeue(struct batching *batching, uint32_t look)
{
    uint32_t *queue = batching->other;
    uint32_t count = 0;

    for (uint32_t i = 0; i < look; i++) {
        if (batching->turns[i] == YB_SCHED_TURN_DEFERRED) {
            queue[count++] = batching->queue[i];
        } else if (batching->turns[i] == YB_SCHED_TURN_TAKEN) {
            begin_decode(batching, batching->queue[i]);
        }
    }
    for (uint32_t i = 0; i < look; i++) {
        if (batching->turns[i] == YB_SCHED_TURN_LEFT) {
            queue[count++] = batching->queue[i];
        }
    }
    memcpy(&queue[count], &batching->queue[look], (batching->queued - look) * sizeof(*queue));
    batching->queued = count + (batching->queued - look);
    batching->other = batching->queue;
    batching->queue = queue;
}

static enum yb_status
run_batch(struct batching *batching, const struct yb_sched_batch *batch)
{
    uint32_t look = batching->queued < YB_SCHED_BATCH_LOOK ? batching->queued : YB_SCHED_BATCH_LOOK;
    double bytes = (double)batch->load_tokens * (double)batching->options->cost->kv_bytes;
    double load_ns = bytes * 1e9 / batching->options->load_bytes_per_s;
    enum yb_status status = place_batch(batching, look);
    double compute_ns = compute(batching, look);

    batching->now_ns += fmax(yb_sched_batch_ns(batching->options->cost, load_ns, compute_ns),
                             compute_ns + fill_bubble(batching, load_ns, compute_ns));
    batching->result.batches++;
    batching->result.load_bound += batch->load_bound;
    batching->result.deferrals += batch->deferred;
    batching->result.computed_tokens += batch->new_tokens;
    batching->result.loaded_tokens += batch->load_tokens;
    requeue(batching, look);
    return status;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static enum yb_status
round_of(struct batching *batching)
{
    struct yb_sched_batch batch;

    let_come(batching);
    if (batching->queued == 0 && batching->running_count == 0) {
        batching->now_ns = (double)batching->trace->requests[batching->next].arrival_ns;
        return YB_OK;
    }
    batch = form(batching);
    if (batch.taken > 0) {
        return run_batch(batching, &batch);
    }
    if (batching->running_count == 0) {
        return YB_INVALID; /* All the room is free, and the first prompt needs more. */
    }
    run_decode(batching);
    return YB_OK;
}

enum yb_status
yb_batching_run(const struct yb_trace *trace, const struct yb_batching_options *options,
                struct yb_batching_result *result_out)
{
    struct batching batching;
    enum yb_status status;

    if (!(options->load_bytes_per_s > 0) || options->batch_requests == 0) {
        return YB_INVALID;
    }
    status = batching_init(&batching, trace, options);
    while (status == YB_OK && batching.ended < trace->request_count) {
        status = round_of(&batching);
    }
    if (status == YB_OK) {
        double took_ns = batching.now_ns - (double)trace->requests[0].arrival_ns;

        YB_ASSERT(batching.queued == 0 && batching.pinned == 0);
        *result_out = batching.result;
        result_out->requests_per_s = trace->request_count * 1e9 / fmax(1, took_ns);
        result_out->ttft_mean_ns = batching.ttft_ns / trace->request_count;
    }
    batching_fini(&batching);
    return status;
}
