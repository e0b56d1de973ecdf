/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier's face: operations come in, are looked after, and end from the tier's task.
 */
#include "tier/ssd/ssd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tier/ssd/ssd_internal.h"

struct yb_ssd *
yb_ssd_of(struct yb_tier *tier)
{
    struct yb_ssd *ssd = (struct yb_ssd *)tier;

    YB_ASSERT_OBJ(ssd, YB_SSD_MAGIC);
    return ssd;
}

void
yb_ssd_wake(struct yb_ssd *ssd)
{
    yb_loop_defer(ssd->loop, &ssd->task);
}

/* ---- lists ------------------------------------------------------------------------------ */

void
yb_ssd_list_add(struct yb_ssd_ops_list *list, struct yb_tier_op *op)
{
    op->next = NULL;
    op->previous = list->tail;
    if (list->tail == NULL) {
        list->head = op;
    } else {
        list->tail->next = op;
    }
    list->tail = op;
    list->count++;
}

void
yb_ssd_list_remove(struct yb_ssd_ops_list *list, struct yb_tier_op *op)
{
    YB_ASSERT(list->count > 0);
    if (op->previous == NULL) {
        list->head = op->next;
    } else {
        op->previous->next = op->next;
    }
    if (op->next == NULL) {
        list->tail = op->previous;
    } else {
        op->next->previous = op->previous;
    }
    op->next = NULL;
    op->previous = NULL;
    list->count--;
}

struct yb_tier_op *
yb_ssd_list_take(struct yb_ssd_ops_list *list)
{
    struct yb_tier_op *op = list->head;

    if (op != NULL) {
        yb_ssd_list_remove(list, op);
    }
    return op;
}

void
yb_ssd_end(struct yb_ssd *ssd, struct yb_tier_op *op, enum yb_status status)
{
    op->state = YB_SSD_OP_ENDED;
    op->slot = (void *)(intptr_t)status;
    yb_ssd_list_add(&ssd->ended, op);
    yb_ssd_wake(ssd);
}

void
yb_ssd_end_all(struct yb_ssd *ssd, struct yb_ssd_ops_list *list, enum yb_status status)
{
    struct yb_tier_op *op;

    while ((op = yb_ssd_list_take(list)) != NULL) {
        yb_ssd_end(ssd, op, status);
    }
}

/* ---- entries ---------------------------------------------------------------------------- */

uint32_t
yb_ssd_entry_units(const struct yb_ssd_entry *entry)
{
    uint32_t units = entry->head_units + entry->value_units;

    return units > YB_SSD_RECORD_MIN / YB_SSD_UNIT_BYTES ? units
                                                         : YB_SSD_RECORD_MIN / YB_SSD_UNIT_BYTES;
}

uint64_t
yb_ssd_segment_unit(const struct yb_ssd *ssd, uint32_t segment)
{
    return (YB_SSD_SEGMENTS_START + segment * ssd->segment_bytes) / YB_SSD_UNIT_BYTES;
}

uint32_t
yb_ssd_segment_of(const struct yb_ssd *ssd, uint64_t unit)
{
    return (uint32_t)((unit * YB_SSD_UNIT_BYTES - YB_SSD_SEGMENTS_START) / ssd->segment_bytes);
}

uint8_t *
yb_ssd_map_of(struct yb_ssd *ssd, uint32_t segment)
{
    return ssd->maps + segment * ssd->map_bytes;
}

bool
yb_ssd_is_dead(const struct yb_ssd *ssd, const struct yb_ssd_entry *entry)
{
    const struct yb_ssd_era *era = &ssd->eras[entry->era];
    const struct yb_ssd_tenant_row *rows = (const struct yb_ssd_tenant_row *)(ssd->super + 1);

    return era->flush < rows[era->tenant].flush;
}

void
yb_ssd_account(struct yb_ssd *ssd, const struct yb_ssd_entry *entry, int sign)
{
    struct yb_ssd_segment *segment = &ssd->segments[yb_ssd_segment_of(ssd, entry->unit)];
    uint64_t units = yb_ssd_entry_units(entry);
    uint64_t bytes = (uint64_t)entry->value_units * YB_SSD_UNIT_BYTES;

    if (sign > 0) {
        segment->live_units += units;
        segment->pinned_units += entry->hard_pin ? units : 0;
        ssd->info.live += bytes;
        ssd->info.blocks++;
    } else {
        YB_ASSERT(segment->live_units >= units && ssd->info.blocks > 0);
        segment->live_units -= units;
        segment->pinned_units -= entry->hard_pin ? units : 0;
        ssd->info.live -= bytes;
        ssd->info.blocks--;
    }
}

static void
era_unref(struct yb_ssd *ssd, uint32_t number)
{
    struct yb_ssd_era *era = &ssd->eras[number];
    uint32_t *link = &ssd->tenant_era[era->tenant];

    YB_ASSERT(era->live > 0);
    if (--era->live > 0) {
        return;
    }
    while (*link != number + 1) {
        YB_ASSERT(*link != 0);
        link = &ssd->eras[*link - 1].next;
    }
    *link = era->next;
    era->next = ssd->era_free;
    ssd->era_free = number + 1;
}

void
yb_ssd_forget(struct yb_ssd *ssd, uint32_t number, bool hide)
{
    struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

    if (!entry.hidden) {
        yb_ssd_account(ssd, &entry, -1);
    }
    if (hide) {
        entry.hidden = true;
        yb_ssd_index_set(ssd->index, number, &entry);
    } else {
        yb_ssd_index_remove(ssd->index, number);
        era_unref(ssd, entry.era);
    }
}

uint32_t
yb_ssd_entry_at(const struct yb_ssd *ssd, struct yb_id hash, uint64_t grant, uint64_t unit)
{
    uint64_t cursor = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (entry.grant == grant && entry.unit == unit) {
            return number;
        }
    }
    return YB_SSD_INDEX_NONE;
}

uint32_t
yb_ssd_best(const struct yb_ssd *ssd, struct yb_id hash)
{
    uint32_t best = YB_SSD_INDEX_NONE;
    uint64_t highest = 0;
    uint64_t cursor = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (!entry.hidden && !entry.storing && !yb_ssd_is_dead(ssd, &entry) &&
            entry.grant > highest) {
            highest = entry.grant;
            best = number;
        }
    }
    return best;
}

static bool
ssd_find(struct yb_tier *tier, struct yb_id hash, struct yb_tier_found *found_out)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);
    bool found = false;
    uint64_t cursor = 0;
    uint32_t number;

    if (ssd->segments == NULL) {
        return false;
    }
    *found_out = (struct yb_tier_found){.grant = 0};
    while ((number = yb_ssd_index_next(ssd->index, hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (entry.hidden || yb_ssd_is_dead(ssd, &entry) || entry.grant < found_out->grant ||
            (entry.grant == found_out->grant && entry.storing)) {
            continue;
        }
        found = true;
        *found_out = (struct yb_tier_found){.grant = entry.grant,
                                            .size = (uint64_t)entry.value_units * YB_SSD_UNIT_BYTES,
                                            .storing = entry.storing,
                                            .accesses = (uint8_t)entry.accesses};
    }
    return found;
}

/* ---- stepping aside --------------------------------------------------------------------- */

void
yb_ssd_step_aside(struct yb_ssd *ssd, enum yb_status status, const char *format, ...)
{
    va_list args;

    if (ssd->aside != YB_OK) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(ssd->why, sizeof ssd->why, format, args);
    va_end(args);
    yb_log_error(ssd->options.log, "ssd", "the tier steps aside", yb_log_status("status", status),
                 yb_log_str("why", ssd->why));
    ssd->aside = status;
    ssd->tell_aside = true;
    yb_ssd_write_aside(ssd);
    yb_ssd_end_all(ssd, &ssd->kills, YB_IO);
    yb_ssd_end_all(ssd, &ssd->round, YB_IO);
    yb_ssd_end_all(ssd, &ssd->parked, YB_IO);
    yb_ssd_end_all(ssd, &ssd->flushes, YB_IO);
    yb_ssd_end_all(ssd, &ssd->flushing, YB_IO);
    yb_ssd_wake(ssd);
}

void
yb_ssd_failed(struct yb_ssd *ssd, const char *what, int error)
{
    if (ssd->aside == YB_OK) {
        yb_ssd_step_aside(ssd, YB_IO,
                          "%s: cannot %s: %s; nothing more is written there until a trial of it "
                          "succeeds: look at the disk and the kernel's log",
                          ssd->options.directory, what, strerrordesc_np(error));
        yb_ssd_back_later(ssd);
    }
}

static void
tell(struct yb_ssd *ssd)
{
    const struct yb_tier_events *events = ssd->options.events;

    if (ssd->tell_aside) {
        ssd->tell_aside = false;
        events->aside(ssd->base.owner, ssd->aside, ssd->why);
    }
    if (!ssd->told_recovered && (ssd->aside != YB_OK || ssd->recover.step == YB_SSD_RECOVER_DONE)) {
        ssd->told_recovered = true;
        events->recovered(ssd->base.owner, ssd->aside);
    }
}

/* ---- deadlines -------------------------------------------------------------------------- */

void
yb_ssd_watch_deadline(struct yb_ssd *ssd, uint64_t deadline_ns)
{
    uint64_t soonest = yb_loop_now(ssd->loop) + YB_NS_PER_MS;

    if (deadline_ns != YB_NEVER && deadline_ns < ssd->deadline_ns) {
        ssd->deadline_ns = deadline_ns > soonest ? deadline_ns : soonest;
        yb_loop_arm(ssd->loop, &ssd->deadline_timer, ssd->deadline_ns);
    }
}

/* Take what has run out of its time from a list of kills or flushes. */
static void
expire_list(struct yb_ssd *ssd, struct yb_ssd_ops_list *list)
{
    uint64_t now_ns = yb_loop_now(ssd->loop);
    struct yb_tier_op *next;

    for (struct yb_tier_op *op = list->head; op != NULL; op = next) {
        next = op->next;
        if (op->deadline_ns <= now_ns) {
            yb_ssd_list_remove(list, op);
            yb_ssd_end(ssd, op, YB_IN_DOUBT);
        } else {
            yb_ssd_watch_deadline(ssd, op->deadline_ns);
        }
    }
}

static void
expire_store(struct yb_ssd *ssd, struct yb_tier_store *store)
{
    if (store->op.deadline_ns <= yb_loop_now(ssd->loop)) {
        yb_ssd_store_end_early(ssd, store, YB_IN_DOUBT);
    } else {
        yb_ssd_watch_deadline(ssd, store->op.deadline_ns);
    }
}

static void
deadline_fired(struct yb_timer *timer)
{
    struct yb_ssd *ssd =
        (struct yb_ssd *)((uint8_t *)timer - offsetof(struct yb_ssd, deadline_timer));
    struct yb_tier_op *next;

    ssd->deadline_ns = YB_NEVER;
    expire_list(ssd, &ssd->kills);
    expire_list(ssd, &ssd->parked);
    expire_list(ssd, &ssd->round);
    expire_list(ssd, &ssd->flushes);
    expire_list(ssd, &ssd->flushing);
    for (struct yb_tier_op *op = ssd->stores.head; op != NULL; op = next) {
        next = op->next;
        expire_store(ssd, (struct yb_tier_store *)op);
    }
    if (ssd->staging.busy && ssd->staging.op != NULL && ssd->staging.op != &ssd->reclaim.store) {
        expire_store(ssd, ssd->staging.op);
    }
    for (struct yb_ssd_stored *stored = ssd->stored_head; stored != NULL; stored = stored->next) {
        if (stored->op != NULL) {
            expire_store(ssd, stored->op);
        }
    }
    for (uint32_t i = 0; i < ssd->options.operations_max + 1; i++) {
        struct yb_tier_load *load = ssd->loading_slots[i].op;

        if (load != NULL && load->op.deadline_ns <= yb_loop_now(ssd->loop)) {
            yb_ssd_load_end_early(ssd, load, YB_TIMED_OUT);
        } else if (load != NULL) {
            yb_ssd_watch_deadline(ssd, load->op.deadline_ns);
        }
    }
}

/* ---- the rest of the calls -------------------------------------------------------------- */

static void
ssd_cancel(struct yb_tier *tier, struct yb_tier_op *op)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);

    switch (op->state) {
    case YB_SSD_OP_LOADING:
        yb_ssd_load_end_early(ssd, (struct yb_tier_load *)op, YB_CANCELLED);
        break;
    case YB_SSD_OP_STAGING:
        yb_ssd_store_end_early(ssd, (struct yb_tier_store *)op, YB_CANCELLED);
        break;
    case YB_SSD_OP_STORING: /* It will be RESIDENT, whatever is said. */
        yb_ssd_store_end_early(ssd, (struct yb_tier_store *)op, YB_IN_DOUBT);
        break;
    case YB_SSD_OP_WAITING: /* A store; kills and flushes go on. */
        for (struct yb_tier_op *at = ssd->stores.head; at != NULL; at = at->next) {
            if (at == op) {
                yb_ssd_store_end_early(ssd, (struct yb_tier_store *)op, YB_CANCELLED);
                break;
            }
        }
        break;
    default: break;
    }
}

static void
ssd_urge(struct yb_tier *tier, struct yb_tier_op *op, enum yb_class traffic_class,
         uint64_t deadline_ns)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);

    if (op->state == YB_SSD_OP_LOADING) {
        yb_ssd_load_urge(ssd, (struct yb_tier_load *)op, traffic_class, deadline_ns);
    } else {
        op->traffic_class = traffic_class;
        op->deadline_ns = deadline_ns;
    }
    yb_ssd_watch_deadline(ssd, deadline_ns);
}

static struct yb_tier_forecast
ssd_forecast(struct yb_tier *tier, enum yb_class traffic_class)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);
    uint64_t backlog = ssd->load_backlog;
    uint64_t rate = 500000000; /* Until something was read. */

    for (uint32_t c = 0; c <= (uint32_t)traffic_class; c++) {
        backlog += yb_fair_backlog_bytes(&ssd->queue, (enum yb_class)c);
    }
    if (ssd->rate_ns > YB_NS_PER_MS) {
        rate = (uint64_t)((double)ssd->rate_bytes * 1e9 / (double)ssd->rate_ns);
    }
    return (struct yb_tier_forecast){
        .base_us = 200, .backlog_bytes = backlog, .bytes_per_second = rate > 0 ? rate : 1};
}

static void
ssd_info(struct yb_tier *tier, struct yb_tier_info *info_out)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);
    uint64_t used = 0;

    for (uint32_t i = 0; ssd->segments != NULL && i < ssd->segment_count; i++) {
        used += ssd->segments[i].state != YB_SSD_SEGMENT_FREE ? ssd->segment_bytes : 0;
    }
    *info_out = ssd->info;
    info_out->recovering = !ssd->told_recovered;
    info_out->aside = ssd->aside;
    info_out->capacity = ssd->options.capacity;
    info_out->used = used;
    info_out->index_bytes = ssd->index != NULL ? yb_ssd_index_bytes(ssd->index) : 0;
}

static void
ssd_stop(struct yb_tier *tier)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);

    ssd->stopping = true;
    yb_loop_disarm(ssd->loop, &ssd->back.timer);
    yb_ssd_wake(ssd);
}

bool
yb_ssd_is_quiet(const struct yb_ssd *ssd)
{
    return ssd->ended.count == 0 && ssd->under_way == 0 && yb_ssd_write_idle(ssd) &&
           yb_ssd_load_idle(ssd) && yb_ssd_kill_idle(ssd) && yb_ssd_reclaim_idle(ssd);
}

static bool
ssd_idle(const struct yb_tier *tier)
{
    const struct yb_ssd *ssd = (const struct yb_ssd *)tier;

    YB_ASSERT_OBJ(ssd, YB_SSD_MAGIC);
    return !ssd->tell_aside && yb_ssd_is_quiet(ssd);
}

static void
ssd_destroy(struct yb_tier *tier)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);

    yb_loop_undefer(ssd->loop, &ssd->task);
    yb_loop_disarm(ssd->loop, &ssd->back.timer);
    yb_loop_disarm(ssd->loop, &ssd->deadline_timer);
    yb_loop_disarm(ssd->loop, &ssd->sync_timer);
    if (ssd->device != NULL) {
        ssd->device->ops->close(ssd->device);
    }
    yb_ssd_memory_fini(ssd);
    free(ssd->strings);
    ssd->magic = 0;
    ssd->base.magic = 0;
    free(ssd);
}

static const struct yb_tier_ops ssd_ops = {
    .name = "ssd",
    .tier = YB_WIRE_TIER_SSD,
    .store = yb_ssd_store,
    .load = yb_ssd_load,
    .kill = yb_ssd_kill,
    .flush = yb_ssd_flush,
    .cancel = ssd_cancel,
    .urge = ssd_urge,
    .find = ssd_find,
    .forecast = ssd_forecast,
    .info = ssd_info,
    .stop = ssd_stop,
    .idle = ssd_idle,
    .destroy = ssd_destroy,
};

const char *
yb_ssd_device_name(const struct yb_tier *tier)
{
    const struct yb_ssd *ssd = (const struct yb_ssd *)tier;

    YB_ASSERT_OBJ(ssd, YB_SSD_MAGIC);
    return ssd->device == NULL ? "none" : ssd->device->ops->name;
}

/* ---- the task --------------------------------------------------------------------------- */

/* One pass over everything that may go on. What a pass makes possible is seen by the next. */
static void
run_task(struct yb_task *task)
{
    struct yb_ssd *ssd = (struct yb_ssd *)((uint8_t *)task - offsetof(struct yb_ssd, task));
    struct yb_tier_op *last;
    struct yb_tier_op *op = NULL;

    if (ssd->segments != NULL) {
        yb_ssd_load_pump(ssd);
        yb_ssd_write_pump(ssd);
        yb_ssd_segments_pump(ssd);
        yb_ssd_kill_pump(ssd);
        yb_ssd_reclaim_pump(ssd);
        yb_ssd_sweep(ssd);
    } else if (ssd->stopping) {
        yb_ssd_write_pump(ssd);
        yb_ssd_kill_pump(ssd);
    }
    yb_ssd_recover_pump(ssd);
    yb_ssd_back_pump(ssd);
    tell(ssd);
    last = ssd->ended.tail;
    while (last != NULL && op != last) {
        op = yb_ssd_list_take(&ssd->ended);
        op->state = YB_SSD_OP_NONE;
        op->done(op, (enum yb_status)(intptr_t)op->slot);
    }
}

/* ---- create ----------------------------------------------------------------------------- */

static uint64_t
or_else(uint64_t value, uint64_t fallback)
{
    return value == 0 ? fallback : value;
}

static void
set_defaults(struct yb_ssd_options *o)
{
    o->segment_bytes = or_else(o->segment_bytes, 256ull << 20);
    o->capacity = or_else(o->capacity, 256 * o->segment_bytes);
    o->records_max = or_else(o->records_max, o->capacity >> 14 > 65536 ? o->capacity >> 14 : 65536);
    o->footer_bytes = or_else(o->footer_bytes, o->segment_bytes / 16);
    if (o->footer_bytes < YB_SSD_FOOTER_PAGE) {
        o->footer_bytes = YB_SSD_FOOTER_PAGE;
    }
    o->batch_bytes = or_else(o->batch_bytes, 1ull << 20);
    o->write_buffers = (uint32_t)or_else(o->write_buffers, 16);
    o->read_buffers = (uint32_t)or_else(o->read_buffers, 32);
    o->operations_max = (uint32_t)or_else(o->operations_max, 4096);
    o->sync_bytes = or_else(o->sync_bytes, 64ull << 20);
    o->sync_ns = or_else(o->sync_ns, 50 * YB_NS_PER_MS);
    o->reinsert_permille = (uint32_t)or_else(o->reinsert_permille, 150);
    o->io = o->io == NULL ? "auto" : o->io;
    o->directory = o->directory == NULL ? "the log" : o->directory;
}

/* The medium may have to be opened again at any time: its names are kept. */
static bool
keep_names(struct yb_ssd *ssd)
{
    struct yb_ssd_options *o = &ssd->options;
    size_t directory_bytes = strlen(o->directory) + 1;
    size_t io_bytes = strlen(o->io) + 1;

    ssd->strings = malloc(directory_bytes + io_bytes);
    if (ssd->strings == NULL) {
        return false;
    }
    o->directory = memcpy(ssd->strings, o->directory, directory_bytes);
    o->io = memcpy(ssd->strings + directory_bytes, o->io, io_bytes);
    return true;
}

static bool
are_valid(const struct yb_ssd_options *o)
{
    return o->segment_bytes >= YB_SSD_SEGMENT_BYTES_MIN &&
           o->segment_bytes <= YB_SSD_SEGMENT_BYTES_MAX &&
           o->segment_bytes % YB_SSD_BLOCK_BYTES == 0 && o->capacity <= YB_SSD_CAPACITY_MAX &&
           o->capacity / o->segment_bytes >= YB_SSD_SEGMENTS_MIN &&
           o->footer_bytes <= o->segment_bytes / 2 && o->batch_bytes >= YB_TIER_CHUNK_BYTES &&
           o->batch_bytes % YB_TIER_CHUNK_BYTES == 0 && o->write_buffers >= 2 &&
           o->write_buffers <= 128 && o->read_buffers >= 1 && o->read_buffers <= 256 &&
           o->operations_max <= 1u << 20 && o->reinsert_permille <= 800;
}

enum yb_status
yb_ssd_create(const struct yb_ssd_options *options, struct yb_tier **tier_out)
{
    struct yb_ssd *ssd = calloc(1, sizeof *ssd);
    enum yb_status status = YB_NO_MEMORY;

    YB_ASSERT(options->loop != NULL && options->events != NULL);
    if (ssd == NULL) {
        goto err;
    }
    ssd->options = *options;
    set_defaults(&ssd->options);
    if (!are_valid(&ssd->options)) {
        status = YB_INVALID;
        goto err_free;
    }
    if (!keep_names(ssd)) {
        goto err_free;
    }
    ssd->base = (struct yb_tier){.magic = YB_TIER_MAGIC,
                                 .ops = &ssd_ops,
                                 .events = options->events,
                                 .owner = options->owner};
    ssd->magic = YB_SSD_MAGIC;
    ssd->loop = options->loop;
    ssd->task.run = run_task;
    ssd->deadline_ns = YB_NEVER;
    yb_ssd_back_init(ssd);
    yb_timer_init(&ssd->deadline_timer, deadline_fired);
    yb_timer_init(&ssd->sync_timer, yb_ssd_sync_timer);
    status = yb_ssd_memory_init(ssd);
    if (status != YB_OK) {
        goto err_fini;
    }
    ssd->device = options->device;
    if (ssd->device != NULL) {
        yb_ssd_recover_start(ssd);
    } else {
        yb_ssd_back_open(ssd);
    }
    *tier_out = &ssd->base;
    return YB_OK;

err_fini:
    yb_ssd_memory_fini(ssd);
err_free:
    free(ssd->strings);
    free(ssd);
err:
    if (options->device != NULL) {
        options->device->ops->close(options->device);
    }
    return status;
}
