/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_flow.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "cli/bench_ceilings.h"
#include "cli/measure.h"

#define WAIT_NS       (30 * YB_NS_PER_S)
#define CHECKED_ITEMS 1024u

/* One batch that is under way, or may be. */
struct slot {
    struct yb_bench_flow *flow;
    struct yb_transfer_item *items;
    uint64_t began_ns;
    _Atomic(bool) busy;
};

/* `histogram` and the numbers behind it belong to the worker that ends the batches, until `left`
 * is zero. */
struct yb_bench_flow {
    struct yb_bench_pair *pair;
    struct yb_bench_flow_options options;
    uint64_t began_ns;
    uint64_t ended_ns;
    int ended_fd;
    _Atomic(uint32_t) left; /* Batches under way, and one for the flow itself. */
    _Atomic(bool) stopping;
    _Atomic(bool) failed;
    _Atomic(uint64_t) next; /* Number of the next object: its place in the buffers. */
    _Atomic(uint64_t) bytes;
    uint64_t batches;
    struct yb_histogram histogram;
    pthread_t pacer;
    struct slot slots[YB_BENCH_DEPTH_LIMIT];
};

static bool
complain(const char *what, enum yb_status status)
{
    fprintf(stderr, "bench: %s: %s\n", what, yb_status_text(status));
    return false;
}

/* ---- pairs ------------------------------------------------------------------------------- */

bool
yb_bench_pair_open(struct yb_bench_pair *pair)
{
    struct yb_transfer_probe probe;
    enum yb_status status;

    if (!yb_bench_engine_open(&pair->options, &pair->own)) {
        return false;
    }
    status = yb_transfer_open(pair->own.engine, pair->target.address, &pair->peer);
    if (status == YB_OK) {
        status = yb_transfer_ask(pair->own.engine, pair->peer, 5 * YB_NS_PER_S, &probe);
    }
    return status == YB_OK ? true : complain(pair->target.address, status);
}

bool
yb_bench_pair_has(const struct yb_cli *cli, const struct yb_bench_pair *pair, uint32_t paths,
                  struct yb_transfer_probe *probe_out)
{
    enum yb_status status =
        yb_transfer_ask(pair->own.engine, pair->peer, 5 * YB_NS_PER_S, probe_out);

    if (status != YB_OK) {
        fprintf(cli->err, "yuebing bench: the target: %s\n", yb_status_text(status));
        return false;
    }
    if ((probe_out->paths & paths) == 0) {
        const char *why = probe_out->why_not_shm;

        fprintf(cli->err,
                "yuebing bench: there is no path %s between the two processes (%s); over tcp it "
                "can be measured everywhere\n",
                (paths & YB_TRANSFER_PATH_SHM) != 0 ? "shm" : "tcp",
                why[0] != '\0' ? why : "the engine does not offer it");
        return false;
    }
    return true;
}

bool
yb_bench_pair_copy(struct yb_bench_pair *pair, const struct yb_bench_copy *copy, double *gbps_out)
{
    if (pair->twin == NULL) {
        const struct yb_shared_options options = {
            .length = YB_BENCH_BUFFER_BYTES,
            .numa_node = YB_SHARED_NUMA_ANY,
        };
        enum yb_status status = yb_shared_create(&options, &pair->twin, NULL, 0);

        if (status != YB_OK) {
            return complain("memory to copy from", status);
        }
        memset(yb_shared_info(pair->twin).base, 1, YB_BENCH_BUFFER_BYTES);
    }
    return yb_bench_ceiling_copy(pair->own.buffer, yb_shared_info(pair->twin).base, copy, gbps_out);
}

void
yb_bench_pair_close(struct yb_bench_pair *pair)
{
    if (pair->twin != NULL) {
        yb_shared_destroy(&pair->twin);
    }
    yb_bench_engine_close(&pair->options, &pair->own);
    yb_bench_target_close(&pair->target);
}

/* ---- batches ----------------------------------------------------------------------------- */

static void
fill_items(const struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
           uint64_t at, struct yb_transfer_item *items)
{
    uint64_t piece = options->size / options->fragments;

    for (uint32_t i = 0; i < options->fragments; i++) {
        items[i] = (struct yb_transfer_item){
            .op = options->op,
            .local = pair->own.memory + at + yb_bench_scatter(i, options->fragments) * piece,
            .length = piece,
            .remote = pair->target.region,
            .remote_offset = at + i * piece,
        };
    }
}

static void
let_go(struct yb_bench_flow *flow)
{
    uint64_t one = 1;

    if (atomic_fetch_sub(&flow->left, 1) == 1) {
        (void)!write(flow->ended_fd, &one, sizeof(one));
    }
}

static void on_done(struct yb_transfer *engine, yb_transfer_batch handle, void *owner);

/* Submit the next object in a slot. Everybody's objects go round in the buffers, so none meets
 * another that is under way. */
static bool
submit_slot(struct slot *slot, yb_transfer_batch *handle_out)
{
    struct yb_bench_flow *flow = slot->flow;
    const struct yb_bench_flow_options *options = &flow->options;
    const struct yb_transfer_batch_options batch_options = {
        .struct_bytes = sizeof(batch_options),
        .work_class = options->work_class,
        .timeout_ns = WAIT_NS,
        .done = options->mode == YB_BENCH_FLOW_WAITING ? NULL : on_done,
        .owner = slot,
    };
    uint64_t places = YB_BENCH_BUFFER_BYTES / options->size;
    uint64_t at = atomic_fetch_add(&flow->next, 1) % places * options->size;
    enum yb_status status;

    fill_items(flow->pair, options, at, slot->items);
    atomic_fetch_add(&flow->left, 1);
    status = yb_transfer_submit(flow->pair->own.engine, flow->pair->peer, slot->items,
                                options->fragments, &batch_options, handle_out);
    if (status != YB_OK) {
        atomic_store(&flow->failed, true);
        let_go(flow);
        return complain("submit", status);
    }
    return true;
}

/* Count a batch that has ended, and give it back. */
static void
take_result(struct yb_bench_flow *flow, struct slot *slot, yb_transfer_batch handle)
{
    struct yb_transfer_batch_status status;
    enum yb_status found = yb_transfer_poll(flow->pair->own.engine, handle, &status, NULL, 0);

    if (found == YB_OK) {
        found = status.status;
        (void)!yb_transfer_release(flow->pair->own.engine, handle);
    }
    if (found != YB_OK) {
        atomic_store(&flow->failed, true);
        (void)complain("a batch", found);
        return;
    }
    yb_histogram_record(&flow->histogram, yb_measure_now_ns() - slot->began_ns);
    atomic_fetch_add(&flow->bytes, status.bytes);
    flow->batches++;
}

static void
on_done(struct yb_transfer *engine, yb_transfer_batch handle, void *owner)
{
    struct slot *slot = owner;
    struct yb_bench_flow *flow = slot->flow;
    yb_transfer_batch next;

    (void)engine;
    take_result(flow, slot, handle);
    if (flow->options.mode == YB_BENCH_FLOW_DEPTH && !atomic_load(&flow->stopping) &&
        !atomic_load(&flow->failed)) {
        slot->began_ns = yb_measure_now_ns();
        (void)submit_slot(slot, &next);
    }
    atomic_store(&slot->busy, false);
    let_go(flow);
}

/* ---- the three ways ------------------------------------------------------------------------ */

static void
run_waiting(struct yb_bench_flow *flow)
{
    struct slot *slot = &flow->slots[0];
    uint64_t until_ns = yb_measure_now_ns() + flow->options.run_ns;

    do {
        yb_transfer_batch handle;
        enum yb_status status;

        slot->began_ns = yb_measure_now_ns();
        if (!submit_slot(slot, &handle)) {
            return;
        }
        status = yb_transfer_wait(flow->pair->own.engine, handle, WAIT_NS);
        if (status != YB_OK) {
            atomic_store(&flow->failed, true);
            (void)complain("wait", status);
        }
        take_result(flow, slot, handle);
        let_go(flow);
    } while (yb_measure_now_ns() < until_ns && !atomic_load(&flow->failed));
}

static void
sleep_until(uint64_t when_ns)
{
    uint64_t now = yb_measure_now_ns();

    if (when_ns > now) {
        struct timespec span = {
            .tv_sec = (time_t)((when_ns - now) / YB_NS_PER_S),
            .tv_nsec = (long)((when_ns - now) % YB_NS_PER_S),
        };

        (void)ppoll(NULL, 0, &span, NULL);
    }
}

/* Submit by the clock. Where every slot is still busy the batch waits, and its time counts from
 * when it was due: a slow engine does not hide behind a patient caller. */
static void *
run_paced(void *context)
{
    struct yb_bench_flow *flow = context;
    uint64_t due_ns = yb_measure_now_ns();

    for (uint32_t i = 0; !atomic_load(&flow->stopping) && !atomic_load(&flow->failed);
         i = (i + 1) % flow->options.depth) {
        struct slot *slot = &flow->slots[i];
        yb_transfer_batch handle;
        bool late = false;

        sleep_until(due_ns);
        while (atomic_load(&slot->busy) && !atomic_load(&flow->failed)) {
            late = true;
            sleep_until(yb_measure_now_ns() + 100 * YB_NS_PER_US);
        }
        slot->began_ns = late ? due_ns : yb_measure_now_ns();
        atomic_store(&slot->busy, true);
        if (!submit_slot(slot, &handle)) {
            break;
        }
        due_ns = (late ? due_ns : slot->began_ns) + flow->options.period_ns;
    }
    return NULL;
}

/* ---- a flow -------------------------------------------------------------------------------- */

static void
flow_free(struct yb_bench_flow *flow)
{
    for (uint32_t i = 0; i < YB_BENCH_DEPTH_LIMIT; i++) {
        free(flow->slots[i].items);
    }
    if (flow->ended_fd > 0) {
        (void)close(flow->ended_fd);
    }
    free(flow);
}

static struct yb_bench_flow *
flow_make(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options)
{
    struct yb_bench_flow *flow = calloc(1, sizeof(*flow));
    bool ok = flow != NULL;

    YB_ASSERT(options->depth > 0 && options->depth <= YB_BENCH_DEPTH_LIMIT);
    YB_ASSERT(options->size * options->depth <= YB_BENCH_BUFFER_BYTES);
    if (ok) {
        flow->pair = pair;
        flow->options = *options;
        flow->left = 1;
        flow->ended_fd = eventfd(0, EFD_CLOEXEC);
        ok = flow->ended_fd >= 0;
    }
    for (uint32_t i = 0; ok && i < options->depth; i++) {
        flow->slots[i].flow = flow;
        flow->slots[i].items = calloc(options->fragments, sizeof(*flow->slots[i].items));
        ok = flow->slots[i].items != NULL;
    }
    if (!ok) {
        (void)complain("flow", YB_NO_MEMORY);
        if (flow != NULL) {
            flow_free(flow);
        }
        return NULL;
    }
    return flow;
}

bool
yb_bench_flow_start(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
                    struct yb_bench_flow **flow_out)
{
    struct yb_bench_flow *flow = flow_make(pair, options);
    yb_transfer_batch handle;

    if (flow == NULL) {
        return false;
    }
    flow->began_ns = yb_measure_now_ns();
    if (options->mode == YB_BENCH_FLOW_PACED &&
        pthread_create(&flow->pacer, NULL, run_paced, flow) != 0) {
        flow_free(flow);
        return complain("thread", YB_NO_MEMORY);
    }
    for (uint32_t i = 0; options->mode == YB_BENCH_FLOW_DEPTH && i < options->depth; i++) {
        flow->slots[i].began_ns = yb_measure_now_ns();
        if (!submit_slot(&flow->slots[i], &handle)) {
            break;
        }
    }
    *flow_out = flow;
    return true;
}

bool
yb_bench_flow_finish(struct yb_bench_flow **flow_ref, struct yb_bench_flow_result *result_out)
{
    struct yb_bench_flow *flow = *flow_ref;
    uint64_t took_ns;
    uint64_t count;
    bool ok;

    *flow_ref = NULL;
    atomic_store(&flow->stopping, true);
    if (flow->options.mode == YB_BENCH_FLOW_PACED) {
        (void)pthread_join(flow->pacer, NULL);
    }
    let_go(flow);
    while (read(flow->ended_fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    took_ns = yb_measure_now_ns() - flow->began_ns;
    ok = !atomic_load(&flow->failed) && flow->batches > 0;
    memset(result_out, 0, sizeof(*result_out));
    result_out->bytes = atomic_load(&flow->bytes);
    result_out->batches = flow->batches;
    result_out->gbps = (double)result_out->bytes / (double)took_ns;
    result_out->p50_us = (double)yb_histogram_quantile(&flow->histogram, 0.50) / 1e3;
    result_out->p99_us = (double)yb_histogram_quantile(&flow->histogram, 0.99) / 1e3;
    flow_free(flow);
    return ok;
}

uint64_t
yb_bench_flow_bytes(const struct yb_bench_flow *flow)
{
    return atomic_load(&flow->bytes);
}

/* ---- bytes --------------------------------------------------------------------------------- */

static bool
ask_target(const struct yb_bench_pair *pair, uint32_t kind, uint64_t length, uint64_t seed)
{
    const struct yb_bench_order order = {.kind = kind, .length = length, .seed = seed};
    uint64_t value = 0;

    return yb_bench_target_ask(&pair->target, &order, &value) &&
           (kind != YB_BENCH_ORDER_CHECK || value == 1);
}

/* Stamp or check the local fragments of the object at the start of the buffers. */
static bool
local_bytes(const struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
            bool check, uint64_t seed)
{
    uint64_t piece = options->size / options->fragments;

    for (uint32_t i = 0; i < options->fragments; i++) {
        uint64_t at = yb_bench_scatter(i, options->fragments) * piece;
        uint8_t *bytes = pair->own.buffer + at;

        if (!check) {
            yb_bench_stamp(bytes, i * piece, piece, seed);
        }
        if (pair->own.device != NULL &&
            !yb_bench_device_copy(pair->own.device, at, bytes, piece, !check)) {
            return false;
        }
        if (check && !yb_bench_check(bytes, i * piece, piece, seed)) {
            return false;
        }
    }
    return true;
}

/* Move the object at the start of the buffers. */
static bool
move_one(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
         uint32_t *paths_out)
{
    struct yb_transfer_item *items = calloc(options->fragments, sizeof(*items));
    struct yb_transfer_item_status *states = calloc(CHECKED_ITEMS, sizeof(*states));
    struct yb_transfer_batch_status status = {.status = YB_NO_MEMORY};
    const struct yb_transfer_batch_options batch_options = {
        .struct_bytes = sizeof(batch_options),
        .work_class = options->work_class,
    };
    yb_transfer_batch handle;
    enum yb_status found = YB_NO_MEMORY;

    *paths_out = 0;
    if (items != NULL && states != NULL) {
        fill_items(pair, options, 0, items);
        found = yb_transfer_submit(pair->own.engine, pair->peer, items, options->fragments,
                                   &batch_options, &handle);
    }
    if (found == YB_OK) {
        found = yb_transfer_wait(pair->own.engine, handle, WAIT_NS);
        if (yb_transfer_poll(pair->own.engine, handle, &status, states, CHECKED_ITEMS) == YB_OK) {
            found = status.status;
        }
        for (uint32_t i = 0; i < options->fragments && i < CHECKED_ITEMS; i++) {
            *paths_out |= states[i].path;
        }
        (void)!yb_transfer_release(pair->own.engine, handle);
    }
    free(items);
    free(states);
    return found == YB_OK ? true : complain("the checked batch", found);
}

bool
yb_bench_flow_check(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
                    uint32_t *paths_out)
{
    bool reads = options->op == YB_TRANSFER_READ;
    uint64_t seed = yb_measure_now_ns();
    bool ok;

    ok = reads ? ask_target(pair, YB_BENCH_ORDER_STAMP, options->size, seed)
               : local_bytes(pair, options, false, seed);
    ok = ok && move_one(pair, options, paths_out);
    if (ok) {
        ok = reads ? local_bytes(pair, options, true, seed)
                   : ask_target(pair, YB_BENCH_ORDER_CHECK, options->size, seed);
        if (!ok) {
            fprintf(stderr, "bench: the bytes that arrived are not those that were sent\n");
        }
    }
    return ok;
}

/* ---- one run ------------------------------------------------------------------------------- */

/* Processor time that both processes have used. */
static bool
cpu_of_both(const struct yb_bench_pair *pair, uint64_t *ns_out)
{
    const struct yb_bench_order order = {.kind = YB_BENCH_ORDER_CPU};
    uint64_t theirs = 0;

    if (!yb_bench_target_ask(&pair->target, &order, &theirs)) {
        return false;
    }
    *ns_out = theirs + yb_bench_cpu_ns();
    return true;
}

bool
yb_bench_flow_run(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
                  struct yb_bench_flow_result *result_out)
{
    struct yb_bench_flow *flow = NULL;
    uint64_t before_ns = 0;
    uint64_t after_ns = 0;
    uint32_t paths = 0;
    bool ok = cpu_of_both(pair, &before_ns) && yb_bench_flow_start(pair, options, &flow);

    if (!ok) {
        return false;
    }
    if (options->mode == YB_BENCH_FLOW_WAITING) {
        run_waiting(flow);
    } else {
        sleep_until(yb_measure_now_ns() + options->run_ns);
    }
    ok = yb_bench_flow_finish(&flow, result_out) && cpu_of_both(pair, &after_ns);
    if (ok) {
        result_out->cpu_s_per_gb = (double)(after_ns - before_ns) / (double)result_out->bytes;
    }
    ok = ok && yb_bench_flow_check(pair, options, &paths);
    result_out->paths = paths;
    return ok;
}
