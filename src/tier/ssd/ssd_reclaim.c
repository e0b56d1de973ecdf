/* SPDX-License-Identifier: Apache-2.0
 *
 * Reclaim: the heads of a sealed segment are read three times. First what is pinned or was read
 * since it came is appended anew, and the owner is told of the rest, which will be lost: if it
 * wants to read some of that, reclaim stands still as long as stores have a segment to go on with.
 * Then the rest is hidden. Then the header says FREE, durably, and only then the entries that point
 * there go, and the owner is told what is lost: until then a restart finds it all again, and a kill
 * sets both bits (A14, S1, T6).
 */
#include <string.h>

#include "base/check.h"
#include "tier/ssd/ssd_internal.h"

#define FREE_WANTED     2u
#define PINNED_PERMILLE 800u /* A segment with more of it is left alone. */
#define DEAD_PERMILLE   250u /* One with less life than that goes before its turn. */
#define HEADS_STEP      64u
#define SWEEP_STEP      4096u

static void page_read(struct yb_ssd *ssd);
static void pass_begin(struct yb_ssd *ssd, enum yb_ssd_pass pass);

/* ---- which segment ---------------------------------------------------------------------- */

/* Return how much of a segment's records that is. */
static uint64_t
permille_of(const struct yb_ssd *ssd, const struct yb_ssd_segment *segment, uint64_t units)
{
    uint64_t bytes = segment->data_end - yb_ssd_data_start(ssd->segment_bytes);

    return bytes == 0 ? 0 : units * YB_SSD_UNIT_BYTES * 1000 / bytes;
}

/* The oldest, unless one is nearly dead. */
static uint32_t
choose_victim(const struct yb_ssd *ssd)
{
    uint32_t oldest = YB_SSD_SEGMENT_NO;
    uint32_t emptiest = YB_SSD_SEGMENT_NO;

    for (uint32_t i = 0; i < ssd->segment_count; i++) {
        const struct yb_ssd_segment *segment = &ssd->segments[i];

        if (segment->state != YB_SSD_SEGMENT_SEALED ||
            permille_of(ssd, segment, segment->pinned_units) > PINNED_PERMILLE) {
            continue;
        }
        if (oldest == YB_SSD_SEGMENT_NO || segment->life < ssd->segments[oldest].life) {
            oldest = i;
        }
        if (emptiest == YB_SSD_SEGMENT_NO ||
            segment->live_units < ssd->segments[emptiest].live_units) {
            emptiest = i;
        }
    }
    return emptiest != YB_SSD_SEGMENT_NO &&
                   permille_of(ssd, &ssd->segments[emptiest], ssd->segments[emptiest].live_units) <
                       DEAD_PERMILLE
               ? emptiest
               : oldest;
}

static bool
is_needed(const struct yb_ssd *ssd)
{
    return yb_ssd_free_segments(ssd) < FREE_WANTED || yb_ssd_index_full(ssd->index);
}

static void
begin(struct yb_ssd *ssd)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;
    uint32_t victim = choose_victim(ssd);

    if (victim == YB_SSD_SEGMENT_NO) {
        if (ssd->sealer.step == YB_SSD_STEP_IDLE && ssd->opener.step == YB_SSD_STEP_IDLE) {
            yb_ssd_write_full(ssd); /* Everything is pinned. */
        }
        return;
    }
    ssd->segments[victim].state = YB_SSD_SEGMENT_RECLAIMED;
    reclaim->segment = victim;
    reclaim->torn = ssd->segments[victim].pages == 0;
    reclaim->wanted = false;
    reclaim->moved_end = 0;
    reclaim->budget = ssd->segment_bytes / 1000 * ssd->options.reinsert_permille;
    pass_begin(ssd, YB_SSD_PASS_MOVE);
}

/* ---- passes ----------------------------------------------------------------------------- */

static void
free_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;

    if (error != 0) {
        yb_ssd_failed(ssd, "write a segment's header", error);
        return;
    }
    ssd->reclaim.step = YB_SSD_RECLAIM_SYNC;
    ssd->reclaim.sync = yb_ssd_sync_request(ssd);
}

static void
finish(struct yb_ssd *ssd)
{
    ssd->segments[ssd->reclaim.segment].state = YB_SSD_SEGMENT_FREE;
    ssd->segments[ssd->reclaim.segment].pages = 0;
    ssd->reclaim.step = YB_SSD_RECLAIM_IDLE;
    ssd->info.reclaims++;
    yb_ssd_wake(ssd);
}

static void
pass_begin(struct yb_ssd *ssd, enum yb_ssd_pass pass)
{
    ssd->reclaim.pass = pass;
    ssd->reclaim.page = 0;
    page_read(ssd);
}

static void
free_write(struct yb_ssd *ssd)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;

    reclaim->step = YB_SSD_RECLAIM_FREE;
    reclaim->transfer.then = free_then;
    yb_ssd_header_block(ssd, reclaim->segment, YB_SSD_HEADER_FREE, reclaim->block);
    yb_ssd_transfer_start(ssd, &reclaim->transfer, YB_SSD_IO_WRITE,
                          YB_SSD_SEGMENTS_START + reclaim->segment * ssd->segment_bytes,
                          reclaim->block, YB_SSD_BLOCK_BYTES);
}

/* Whether stores have room enough for what is to be lost to wait. */
static bool
may_linger(const struct yb_ssd *ssd)
{
    return yb_ssd_spare_segment(ssd) && !yb_ssd_index_full(ssd->index);
}

static void
pass_end(struct yb_ssd *ssd)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;

    switch (reclaim->pass) {
    case YB_SSD_PASS_MOVE:
        if (ssd->durable_end < reclaim->moved_end) {
            reclaim->step = YB_SSD_RECLAIM_DURABLE;
            yb_ssd_write_flush(ssd);
        } else if (reclaim->wanted && may_linger(ssd)) {
            reclaim->step = YB_SSD_RECLAIM_LINGER;
        } else {
            pass_begin(ssd, YB_SSD_PASS_HIDE);
        }
        break;
    case YB_SSD_PASS_HIDE: free_write(ssd); break;
    case YB_SSD_PASS_LOSE: finish(ssd); break;
    }
}

/* The footer is through. What it did not name the index does. */
static void
footer_end(struct yb_ssd *ssd)
{
    if (ssd->reclaim.torn && ssd->reclaim.pass != YB_SSD_PASS_MOVE) {
        ssd->reclaim.sweep = 0;
        ssd->reclaim.step = YB_SSD_RECLAIM_SWEEP;
        yb_ssd_wake(ssd);
    } else {
        pass_end(ssd);
    }
}

static void
page_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;
    const struct yb_ssd_segment *segment = &ssd->segments[reclaim->segment];

    reclaim->step = YB_SSD_RECLAIM_WALK;
    reclaim->offset = 0;
    if (error != 0 || !yb_ssd_page_check(reclaim->page_bytes, segment->life, reclaim->page)) {
        reclaim->torn = true;
        reclaim->page++;
        page_read(ssd);
    }
}

/* Read the pass's next page, or end it. */
static void
page_read(struct yb_ssd *ssd)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;
    const struct yb_ssd_segment *segment = &ssd->segments[reclaim->segment];

    if (reclaim->page >= segment->pages) {
        footer_end(ssd);
        return;
    }
    reclaim->step = YB_SSD_RECLAIM_PAGE;
    reclaim->transfer.then = page_then;
    yb_ssd_transfer_start(ssd, &reclaim->transfer, YB_SSD_IO_READ,
                          YB_SSD_SEGMENTS_START + reclaim->segment * ssd->segment_bytes +
                              segment->footer_offset + (uint64_t)reclaim->page * YB_SSD_FOOTER_PAGE,
                          reclaim->page_bytes, YB_SSD_FOOTER_PAGE);
}

/* ---- the first pass: what moves --------------------------------------------------------- */

/* Whether another record of the same grant is RESIDENT. */
static bool
has_twin(const struct yb_ssd *ssd, const struct yb_ssd_entry *one)
{
    uint64_t cursor = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, one->hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (entry.grant == one->grant && entry.unit != one->unit && !entry.hidden &&
            !entry.storing) {
            return true;
        }
    }
    return false;
}

static bool
is_held(const struct yb_ssd *ssd, const struct yb_ssd_entry *entry)
{
    const struct yb_tier_events *events = ssd->options.events;

    return events->held != NULL && events->held(ssd->base.owner, entry->hash, entry->grant);
}

static bool
moves(struct yb_ssd *ssd, const struct yb_ssd_entry *entry)
{
    uint64_t bytes = (uint64_t)yb_ssd_entry_units(entry) * YB_SSD_UNIT_BYTES;

    if (entry->hidden || entry->storing || yb_ssd_is_dead(ssd, entry) ||
        yb_ssd_index_full(ssd->index)) {
        return false;
    }
    if (entry->hard_pin) {
        return true;
    }
    if (ssd->reclaim.budget < bytes ||
        (entry->accesses == 0 && !entry->soft_pin && !is_held(ssd, entry))) {
        return false;
    }
    ssd->reclaim.budget -= bytes;
    return true;
}

/* What does not move will be lost: somebody may want to read it before. */
static void
announce(struct yb_ssd *ssd, const struct yb_ssd_entry *entry)
{
    const struct yb_tier_events *events = ssd->options.events;

    if (events->leaving != NULL && !entry->hidden && !entry->storing &&
        !yb_ssd_is_dead(ssd, entry) && !has_twin(ssd, entry)) {
        ssd->reclaim.wanted |= events->leaving(ssd->base.owner, entry->hash, entry->grant);
    }
}

static void
load_done(struct yb_tier_op *op, enum yb_status status)
{
    struct yb_tier_load *load = (struct yb_tier_load *)op;
    struct yb_ssd_reclaim *reclaim =
        (struct yb_ssd_reclaim *)((uint8_t *)load - offsetof(struct yb_ssd_reclaim, load));
    struct yb_ssd *ssd = (struct yb_ssd *)((uint8_t *)reclaim - offsetof(struct yb_ssd, reclaim));

    YB_ASSERT(reclaim->step == YB_SSD_RECLAIM_LOAD);
    if (status != YB_OK) {
        reclaim->step = YB_SSD_RECLAIM_WALK;
        yb_ssd_wake(ssd);
        return;
    }
    reclaim->iov.iov_len = load->record_out.size;
    reclaim->store = (struct yb_tier_store){
        .record = load->record_out, .iov = &reclaim->iov, .iov_count = 1, .sums = reclaim->sums};
    reclaim->step = YB_SSD_RECLAIM_STORE;
    yb_ssd_wake(ssd);
}

void
yb_ssd_reclaim_staged(struct yb_ssd *ssd, uint64_t end)
{
    YB_ASSERT(ssd->reclaim.step == YB_SSD_RECLAIM_STORE);
    ssd->reclaim.moved_end = end;
    ssd->reclaim.step = YB_SSD_RECLAIM_WALK;
    yb_ssd_wake(ssd);
}

static void
move_entry(struct yb_ssd *ssd, const struct yb_ssd_entry *entry)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;
    uint64_t bytes = (uint64_t)entry->value_units * YB_SSD_UNIT_BYTES;

    reclaim->unit = entry->unit;
    reclaim->iov = (struct iovec){.iov_base = reclaim->value, .iov_len = bytes};
    reclaim->load = (struct yb_tier_load){
        .op = {.done = load_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_BACKGROUND},
        .hash = entry->hash,
        .grant = entry->grant,
        .length = bytes,
        .iov = &reclaim->iov,
        .iov_count = 1,
        .sums_out = reclaim->sums,
    };
    reclaim->step = YB_SSD_RECLAIM_LOAD;
    YB_ASSERT(yb_ssd_load_entry(ssd, &reclaim->load, entry) == YB_OK); /* A slot is its own. */
}

/* ---- the second and third pass: what is lost -------------------------------------------- */

/* An owner that has killed it, or was told before, knows of no such block any more. */
static void
let_go(struct yb_ssd *ssd, uint32_t number)
{
    struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);
    bool silent = yb_ssd_is_dead(ssd, &entry) || has_twin(ssd, &entry);

    if (ssd->reclaim.pass == YB_SSD_PASS_HIDE) {
        if (!entry.hidden) {
            yb_ssd_forget(ssd, number, true);
        }
        return;
    }
    yb_ssd_forget(ssd, number, false);
    if (!silent) {
        ssd->options.events->lost(ssd->base.owner, entry.hash, entry.grant, YB_NO_SPACE); /* T6 */
    }
}

/* ---- steps ------------------------------------------------------------------------------ */

static void
walk(struct yb_ssd *ssd)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;
    struct yb_ssd_view view;

    for (uint32_t i = 0; i < HEADS_STEP; i++) {
        uint32_t number;

        if (!yb_ssd_page_next(reclaim->page_bytes, &reclaim->offset, &view)) {
            reclaim->page++;
            page_read(ssd);
            return;
        }
        number = yb_ssd_entry_at(ssd, view.record.hash, view.record.grant,
                                 yb_ssd_segment_unit(ssd, reclaim->segment) + view.unit);
        if (number == YB_SSD_INDEX_NONE) {
            continue;
        }
        if (reclaim->pass != YB_SSD_PASS_MOVE) {
            let_go(ssd, number);
        } else {
            struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

            if (moves(ssd, &entry)) {
                move_entry(ssd, &entry);
                return;
            }
            announce(ssd, &entry);
        }
    }
    yb_ssd_wake(ssd);
}

static void
sweep(struct yb_ssd *ssd)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;
    uint32_t limit = yb_ssd_index_limit(ssd->index);
    uint32_t end = limit - reclaim->sweep < SWEEP_STEP ? limit : reclaim->sweep + SWEEP_STEP;

    for (; reclaim->sweep < end; reclaim->sweep++) {
        if (yb_ssd_index_used(ssd->index, reclaim->sweep) &&
            yb_ssd_segment_of(ssd, yb_ssd_index_get(ssd->index, reclaim->sweep).unit) ==
                reclaim->segment) {
            let_go(ssd, reclaim->sweep);
        }
    }
    if (reclaim->sweep == limit) {
        pass_end(ssd);
    } else {
        yb_ssd_wake(ssd);
    }
}

void
yb_ssd_reclaim_pump(struct yb_ssd *ssd)
{
    if (ssd->aside != YB_OK || ssd->stopping) {
        return;
    }
    switch (ssd->reclaim.step) {
    case YB_SSD_RECLAIM_IDLE:
        if (ssd->recover.step == YB_SSD_RECOVER_DONE && is_needed(ssd)) {
            begin(ssd);
        }
        break;
    case YB_SSD_RECLAIM_WALK: walk(ssd); break;
    case YB_SSD_RECLAIM_SWEEP: sweep(ssd); break;
    case YB_SSD_RECLAIM_LINGER:
        if (!may_linger(ssd)) {
            pass_begin(ssd, YB_SSD_PASS_HIDE);
        }
        break;
    default: break;
    }
}

void
yb_ssd_reclaim_synced(struct yb_ssd *ssd)
{
    struct yb_ssd_reclaim *reclaim = &ssd->reclaim;

    if (ssd->aside != YB_OK || ssd->stopping) {
        return;
    }
    if (reclaim->step == YB_SSD_RECLAIM_DURABLE && ssd->durable_end >= reclaim->moved_end) {
        pass_end(ssd);
    } else if (reclaim->step == YB_SSD_RECLAIM_SYNC && ssd->sync_done >= reclaim->sync) {
        pass_begin(ssd, YB_SSD_PASS_LOSE);
    }
}

bool
yb_ssd_reclaim_idle(const struct yb_ssd *ssd)
{
    return !ssd->reclaim.transfer.busy && ssd->reclaim.step != YB_SSD_RECLAIM_LOAD;
}
