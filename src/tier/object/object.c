/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier: what it is made of, what it knows without asking, and whether it works at all.
 */
#include "tier/object/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tier/object/object_internal.h"

#define CONCURRENCY_MAX 256u
#define THREADS_MAX     64u
#define TICK_NS         YB_NS_PER_S
#define WAIT_NS_MAX     (3600 * YB_NS_PER_S)

/* ---- trouble --------------------------------------------------------------------------------- */

void
yb_object_step_aside(struct object_tier *object, enum yb_status status, const char *why)
{
    bool news = object->aside == YB_OK;

    object->aside = status;
    object->failures = 0;
    if (!news) {
        return;
    }
    yb_object_work_end_waiting(object, YB_UNREACHABLE);
    yb_loop_arm(object->loop, &object->timer,
                yb_deadline_after(yb_loop_now(object->loop), object->options.aside_ns));
    if (object->head.events->aside != NULL) {
        object->head.events->aside(object->head.owner, status, why);
    }
}

static void
plan_try(struct work *work, struct flight *flight)
{
    flight->request.verb = YB_OBJECT_TRY;
    flight->request.name[0] = '\0';
}

static void
step_try(struct work *work, struct flight *flight, enum yb_status status)
{
    struct object_tier *object = work->tier;

    object->trying = false;
    yb_object_work_end(work, status);
    if (status == YB_OK && object->aside != YB_OK) {
        object->aside = YB_OK;
        object->failures = 0;
        if (object->head.events->aside != NULL) {
            object->head.events->aside(object->head.owner, YB_OK, "");
        }
        yb_object_recover(object);
    }
}

static void
try_failed(struct work *work)
{
    work->tier->trying = false;
}

static const struct work_kind try_kind = {
    .name = "try", .plan = plan_try, .step = step_try, .failed = try_failed};

static void
tick(struct yb_timer *timer)
{
    struct object_tier *object =
        (struct object_tier *)((uint8_t *)timer - offsetof(struct object_tier, timer));
    uint64_t now = yb_loop_now(object->loop);

    yb_object_show(object);
    if (object->stopping) {
        return;
    }
    if (object->aside != YB_OK && !object->trying) {
        struct work *work = yb_object_work_take(object, &try_kind, NULL);

        if (work != NULL) {
            object->trying = true;
            yb_object_work_queue(work, STAGE_TRY, 0);
        }
    }
    yb_object_recover(object);
    yb_object_sweep(object);
    if (object->sweeping) {
        yb_object_sweep_on(object);
    }
    yb_loop_arm(
        object->loop, &object->timer,
        yb_deadline_after(now, object->aside == YB_OK ? TICK_NS : object->options.aside_ns));
}

void
yb_object_tell_lost(struct object_tier *object, struct yb_id hash, uint64_t grant,
                    enum yb_status why)
{
    if (object->head.events->lost != NULL) {
        object->head.events->lost(object->head.owner, hash, grant, why);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void
yb_object_block_name(const struct object_tier *object, const struct yb_object_block *block,
                     struct yb_object_name *name_out)
{
    const struct yb_object_space *space = yb_object_index_space_at(object->index, block->space);

    *name_out = (struct yb_object_name){
        .kind = YB_OBJECT_IS_BLOCK,
        .flush = space->flush,
        .hash = block->hash,
        .grant = block->grant,
        .size = yb_object_block_size(block),
        .expires_unix_s = block->where,
        .flags = block->kind & 0x3ffu,
        .mode = (uint8_t)(block->kind >> 14),
        .replicas = (uint8_t)(block->kind >> 10 & 15u),
    };
    memcpy(name_out->tenant, space->tenant, sizeof(name_out->tenant));
}

uint64_t
yb_object_block_bytes(const struct object_tier *object, const struct yb_object_block *block)
{
    const struct yb_object_space *space = yb_object_index_space_at(object->index, block->space);

    return yb_object_block_size(block) + yb_object_record_bytes(yb_object_block_size(block),
                                                                yb_object_block_key_bytes(block),
                                                                strlen(space->tenant));
}

static bool
find(struct yb_tier *tier, struct yb_id hash, struct yb_tier_found *found_out)
{
    struct object_tier *object = object_of(tier);
    const struct yb_object_block *block = yb_object_index_highest(object->index, hash, false);

    if (block == NULL) {
        return false;
    }
    *found_out = (struct yb_tier_found){
        .grant = block->grant,
        .size = yb_object_block_size(block),
        .storing = yb_object_block_state_of(block) == YB_OBJECT_BLOCK_STORING,
        .accesses = yb_object_block_reads(block),
    };
    return true;
}

/* What waits comes at the rate of all together; one alone takes longer than its bytes at that rate,
 * and the rest of that is how far the service is. */
static void
forecast_filled(const struct object_tier *object, struct yb_tier_forecast *told)
{
    double bytes = (double)object->load_bytes * (double)YB_NS_PER_S;
    double alone_ns = (double)yb_tier_fill_alone_ns(&object->from.fill, object->load_bytes);
    double rate = (double)yb_tier_fill_rate(&object->from.fill);

    if (alone_ns == 0 || rate * alone_ns <= bytes) {
        return; /* Little was asked for at a time. */
    }
    if (rate > (double)told->bytes_per_second) {
        told->bytes_per_second = (uint64_t)rate;
    }
    alone_ns -= bytes / (double)told->bytes_per_second;
    told->base_us = alone_ns > 0 ? (uint64_t)alone_ns / YB_NS_PER_US : 0;
}

static struct yb_tier_forecast
forecast(struct yb_tier *tier, enum yb_class traffic_class)
{
    const struct object_tier *object = object_of(tier);
    struct yb_tier_forecast told = {
        .base_us = object->base_us != 0 ? object->base_us : object->asked_us,
        .backlog_bytes = object->flying_bytes,
        .bytes_per_second = object->rate,
    };

    forecast_filled(object, &told);
    for (uint32_t c = 0; c <= (uint32_t)traffic_class; c++) {
        told.backlog_bytes += yb_fair_backlog_bytes(&object->fair[c], (enum yb_class)c);
    }
    return told;
}

static void
info(struct yb_tier *tier, struct yb_tier_info *info_out)
{
    const struct object_tier *object = object_of(tier);

    *info_out = object->info;
    info_out->recovering = object->recovering;
    info_out->aside = object->aside;
    info_out->capacity = object->options.capacity_bytes;
    info_out->index_bytes = yb_object_index_bytes(object->index);
}

struct yb_object_stats
yb_object_stats(const struct yb_tier *tier)
{
    const struct object_tier *object = (const struct object_tier *)tier;
    struct yb_object_stats stats;

    YB_ASSERT_OBJ(object, OBJECT_MAGIC);
    stats = object->stats;
    stats.first_byte_us = &object->first_byte_us;
    stats.transfer_us = &object->transfer_us;
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        stats.waiting += yb_fair_item_count(&object->fair[c], (enum yb_class)c);
    }
    return stats;
}

static void
cancel(struct yb_tier *tier, struct yb_tier_op *op)
{
    (void)object_of(tier);
    if (op->slot != NULL) {
        yb_object_work_cancel(op->slot);
    }
}

static void
urge(struct yb_tier *tier, struct yb_tier_op *op, enum yb_class traffic_class, uint64_t deadline_ns)
{
    (void)object_of(tier);
    if (op->slot != NULL) {
        yb_object_work_urge(op->slot, traffic_class, deadline_ns);
    }
}

/* ---- its life -------------------------------------------------------------------------------- */

static void
run_task(struct yb_task *task)
{
    yb_object_pump((struct object_tier *)((uint8_t *)task - offsetof(struct object_tier, task)));
}

static void
stop(struct yb_tier *tier)
{
    struct object_tier *object = object_of(tier);

    yb_object_pack_close_all(object);
    object->stopping = true;
    yb_loop_disarm(object->loop, &object->timer);
    for (uint32_t i = 0; i < object->options.operations_max + OWN_WORKS; i++) {
        struct work *work = &object->works[i];

        if (work->op == NULL && work->state != WORK_FREE && work->state != WORK_ENDED &&
            work->kind != &yb_object_pack_kind) {
            yb_object_work_cancel(work); /* What is asked for is brought to its end. */
        }
    }
    if (object->sweeping) {
        yb_object_sweep_on(object);
    }
}

static bool
idle(const struct yb_tier *tier)
{
    const struct object_tier *object = (const struct object_tier *)tier;

    YB_ASSERT_OBJ(object, OBJECT_MAGIC);
    return object->stopping && object->busy == 0 && object->stats.flying == 0 &&
           !object->task.queued;
}

static void
free_all(struct object_tier *object)
{
    if (object->backend != NULL) {
        object->backend->ops->destroy(object->backend);
    }
    yb_helper_pool_destroy(&object->pool);
    yb_object_rewrite_fini(object);
    yb_object_pack_fini(object);
    yb_object_hedge_fini(object);
    yb_object_show_fini(object);
    yb_object_index_destroy(&object->index);
    if (object->memory != NULL) {
        (void)munmap(object->memory, object->memory_bytes);
    }
    free(object->entries);
    free(object->flights);
    free(object->works);
    free(object);
}

static void
destroy(struct yb_tier *tier)
{
    struct object_tier *object = object_of(tier);

    yb_loop_disarm(object->loop, &object->timer);
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        yb_fair_fini(&object->fair[c]);
    }
    object->head.magic = 0;
    object->magic = 0;
    free_all(object);
}

static const struct yb_tier_ops object_ops = {
    .name = "object",
    .tier = YB_WIRE_TIER_OBJECT,
    .store = yb_object_store,
    .load = yb_object_load,
    .kill = yb_object_kill,
    .flush = yb_object_flush,
    .cancel = cancel,
    .urge = urge,
    .find = find,
    .forecast = forecast,
    .info = info,
    .stop = stop,
    .idle = idle,
    .destroy = destroy,
};

/* ---- create ---------------------------------------------------------------------------------- */

static uint64_t or (uint64_t value, uint64_t otherwise)
{
    return value == 0 ? otherwise : value;
}

static void
set_defaults(struct object_tier *object, const struct yb_object_options *options)
{
    struct yb_object_options *to = &object->options;

    *to = *options;
    to->blocks_max = (uint32_t) or (to->blocks_max, 4u << 20);
    to->spaces_max = (uint32_t) or (to->spaces_max, 4096);
    to->operations_max = (uint32_t) or (to->operations_max, 4096);
    to->concurrency = (uint32_t) or (to->concurrency, 64);
    to->threads = (uint32_t) or (to->threads, 8);
    to->attempt_timeout_ns = or (to->attempt_timeout_ns, 30 * YB_NS_PER_S);
    to->pause_ns = or (to->pause_ns, 50 * YB_NS_PER_MS);
    to->aside_ns = or (to->aside_ns, YB_NS_PER_S);
    to->kill_life_ns = or (to->kill_life_ns, 3600 * YB_NS_PER_S);
    to->hedge_bytes_max = or (to->hedge_bytes_max, 4u << 20);
    to->pack_block_max = or (to->pack_block_max, 4u << 20);
    to->pack_bytes = or (to->pack_bytes, 64u << 20);
    to->pack_wait_ns = or (to->pack_wait_ns, 50 * YB_NS_PER_MS);
    object->random =
        or (to->seed, yb_clock_wall(yb_loop_clock(to->loop)) ^ (uint64_t)(uintptr_t)object);
}

/* Each class may have as many as are asked for, whatever the others have: a few are kept for each.
 */
static uint32_t
set_classes(struct object_tier *object)
{
    uint32_t most = object->options.concurrency;
    uint32_t kept = (most + 7) / 8, kept_last = (most + 15) / 16;

    object->flying_max[YB_CLASS_FIRST_TOKEN] = most;
    object->flying_max[YB_CLASS_THROUGHPUT] = most;
    object->flying_max[YB_CLASS_BACKGROUND] = (most + 1) / 2;
    object->flying_min[YB_CLASS_FIRST_TOKEN] = kept;
    object->flying_min[YB_CLASS_THROUGHPUT] = kept;
    object->flying_min[YB_CLASS_BACKGROUND] = kept_last;
    return most + kept + kept_last;
}

static enum yb_status
make_flights(struct object_tier *object)
{
    uint32_t count = set_classes(object);
    size_t found = FOUND_ENTRIES * sizeof(struct yb_object_entry);
    size_t sums = CHUNKS_MAX * sizeof(uint32_t);
    size_t each = (RECORD_BYTES_MAX + 2 * EDGE_BYTES + sums + found + 63) / 64 * 64;
    uint8_t *at;

    object->memory_bytes = count * each;
    object->flights = calloc(count, sizeof(*object->flights));
    at = mmap(NULL, object->memory_bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || object->flights == NULL) {
        object->memory = at == MAP_FAILED ? NULL : at;
        return YB_NO_MEMORY;
    }
    object->memory = at;
    for (uint32_t i = 0; i < count; i++, at += each) {
        struct flight *flight = &object->flights[i];

        flight->tier = object;
        yb_object_hedge_flight_init(flight);
        flight->edges[0] = at;
        flight->edges[1] = at + EDGE_BYTES;
        flight->record = at + 2 * EDGE_BYTES;
        flight->sums = (uint32_t *)(void *)(flight->record + RECORD_BYTES_MAX);
        flight->found = (struct yb_object_entry *)(void *)(flight->sums + CHUNKS_MAX);
        flight->next = object->free_flights;
        object->free_flights = flight;
    }
    object->flights_free = count;
    return YB_OK;
}

static enum yb_status
make_works(struct object_tier *object)
{
    uint32_t count = object->options.operations_max + OWN_WORKS;

    object->works = calloc(count, sizeof(*object->works));
    object->entries = calloc(LIST_ENTRIES, sizeof(*object->entries));
    if (object->works == NULL || object->entries == NULL) {
        return YB_NO_MEMORY;
    }
    for (uint32_t i = count; i > 0; i--) {
        struct work *work = &object->works[i - 1];

        work->tier = object;
        yb_timer_init(&work->timer, yb_object_work_fired);
        work->next = object->free_works;
        object->free_works = work;
    }
    object->ended_tail = &object->ended;
    return YB_OK;
}

static bool
sensible(const struct yb_object_options *options)
{
    return options->concurrency <= CONCURRENCY_MAX && options->threads <= THREADS_MAX &&
           options->operations_max <= 1u << 20 && options->attempt_timeout_ns <= WAIT_NS_MAX &&
           options->pause_ns <= WAIT_NS_MAX / 64 && options->hedge_bytes_max <= 64u << 20 &&
           options->pack_bytes <= 1ull << 30;
}

enum yb_status
yb_object_create(const struct yb_object_options *options, struct yb_tier **tier_out,
                 char why_out[YB_OBJECT_WHY_BYTES])
{
    struct object_tier *object = calloc(1, sizeof(*object));
    const struct yb_fair_options fair = {.cost_bytes_max = YB_OBJECT_BLOCK_MAX};
    enum yb_status status = YB_NO_MEMORY;

    (void)snprintf(why_out, YB_OBJECT_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
    if (object == NULL || !sensible(options)) {
        (void)snprintf(why_out, object == NULL ? 0 : YB_OBJECT_WHY_BYTES,
                       "a bound of the object tier is out of its range");
        if (options->backend != NULL) {
            options->backend->ops->destroy(options->backend);
        }
        free(object);
        return object == NULL ? YB_NO_MEMORY : YB_INVALID;
    }
    object->magic = OBJECT_MAGIC;
    object->head = (struct yb_tier){.magic = YB_TIER_MAGIC,
                                    .ops = &object_ops,
                                    .events = options->events,
                                    .owner = options->owner};
    object->loop = options->loop;
    object->backend = options->backend;
    set_defaults(object, options);
    status = yb_object_index_create(object->options.blocks_max, object->options.spaces_max,
                                    &object->index);
    status = status == YB_OK ? make_flights(object) : status;
    status = status == YB_OK ? make_works(object) : status;
    status = status == YB_OK ? yb_object_hedge_init(object) : status;
    status = status == YB_OK ? yb_object_show_init(object) : status;
    status = status == YB_OK ? yb_object_pack_init(object) : status;
    status = status == YB_OK ? yb_object_rewrite_init(object) : status;
    status = status == YB_OK ? yb_helper_pool_create(object->options.threads, 2 * CONCURRENCY_MAX,
                                                     &object->pool)
                             : status;
    if (status == YB_OK && object->backend == NULL) {
        status = yb_object_backend_open(options->url, object->loop, object->pool, &object->backend,
                                        why_out);
    }
    if (status != YB_OK) {
        free_all(object);
        return status;
    }
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        YB_ASSERT(yb_fair_init(&object->fair[c], &fair) == YB_OK);
    }
    object->task.run = run_task;
    yb_timer_init(&object->timer, tick);
    object->recovering = true;
    yb_loop_arm(object->loop, &object->timer,
                yb_deadline_after(yb_loop_now(object->loop), TICK_NS));
    yb_object_recover(object);
    *tier_out = &object->head;
    return YB_OK;
}
