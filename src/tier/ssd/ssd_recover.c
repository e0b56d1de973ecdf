/* SPDX-License-Identifier: Apache-2.0
 *
 * What a restart reads: the superblock, the headers of all segments, and then, the youngest segment
 * first, its kill map and its footer; the records themselves only where there is no footer. Stores
 * begin as soon as the headers are known, and what was found is served while the rest is read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "tier/ssd/ssd_internal.h"

/* ---- the superblock --------------------------------------------------------------------- */

/* The name of a new log: nobody else's, and nothing that a value could guess. */
static void
make_log(struct yb_ssd *ssd)
{
    uint64_t seed = yb_clock_wall(yb_loop_clock(ssd->loop));

    memset(ssd->super, 0, YB_SSD_SUPER_BYTES);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t half = yb_hash_table(seed + i, ssd->options.node.bytes, 16);

        memcpy(ssd->super->log + 8 * i, &half, sizeof half);
    }
    memcpy(ssd->super->node, ssd->options.node.bytes, sizeof ssd->super->node);
    ssd->super->segment_bytes = ssd->options.segment_bytes;
}

static void
headers_begin(struct yb_ssd *ssd)
{
    enum yb_status status;

    ssd->segment_bytes = ssd->super->segment_bytes;
    status = yb_ssd_segments_init(ssd);
    if (status != YB_OK) {
        yb_ssd_step_aside(ssd, status,
                          "%s: no memory for its segments; give the SSD tier less capacity",
                          ssd->options.directory);
        return;
    }
    if (ssd->device->ops->lend != NULL) {
        ssd->device->ops->lend(ssd->device, ssd->memory, ssd->memory_bytes);
    }
    yb_ssd_super_read(ssd);
    ssd->recover.step = YB_SSD_RECOVER_HEADERS;
    ssd->recover.at = 0;
    yb_ssd_recover_next(ssd);
}

static void
super_refuse(struct yb_ssd *ssd, enum yb_status a, enum yb_status b)
{
    const char *directory = ssd->options.directory;

    if (a == YB_VERSION || b == YB_VERSION) {
        yb_ssd_step_aside(ssd, YB_VERSION,
                          "%s: the log is of another version than %u, which this release writes; "
                          "start the release that made it, or give the node an empty directory",
                          directory, YB_SSD_VERSION);
    } else if (a == YB_UNSUPPORTED || b == YB_UNSUPPORTED) {
        yb_ssd_step_aside(
            ssd, YB_UNSUPPORTED,
            "%s: what is there is no log of Yuebing, and is left alone; give the node "
            "an empty directory, or remove the file",
            directory);
    } else {
        yb_ssd_step_aside(ssd, YB_CORRUPT,
                          "%s: both copies of the log's superblock are damaged; the blocks there "
                          "are lost to this node: look at the disk, then remove the file",
                          directory);
    }
}

/* Whether the superblock is one that this node may use. */
static bool
super_fits(struct yb_ssd *ssd)
{
    const struct yb_ssd_super *super = ssd->super;
    struct yb_id node;
    char theirs[33];
    char ours[33];

    memcpy(node.bytes, super->node, sizeof node.bytes);
    if (!yb_id_equal(node, ssd->options.node)) {
        yb_id_format(node, theirs);
        yb_id_format(ssd->options.node, ours);
        yb_ssd_step_aside(ssd, YB_DENIED,
                          "%s: the log belongs to node %s, and this is node %s; give each node a "
                          "directory of its own",
                          ssd->options.directory, theirs, ours);
        return false;
    }
    if (super->segment_bytes < YB_SSD_SEGMENT_BYTES_MIN ||
        super->segment_bytes > YB_SSD_SEGMENT_BYTES_MAX) {
        super_refuse(ssd, YB_CORRUPT, YB_CORRUPT);
        return false;
    }
    return true;
}

static void
super_judge(struct yb_ssd *ssd)
{
    const struct yb_ssd_super *other = (const struct yb_ssd_super *)(const void *)ssd->super_out;
    enum yb_status a = yb_ssd_super_check(ssd->super, YB_SSD_SUPER_BYTES);
    enum yb_status b = yb_ssd_super_check(other, YB_SSD_SUPER_BYTES);
    bool is_new = ssd->device->ops->size(ssd->device) <= YB_SSD_SEGMENTS_START;

    if (b == YB_OK && (a != YB_OK || other->sequence > ssd->super->sequence)) {
        memcpy(ssd->super, other, YB_SSD_SUPER_BYTES);
        a = YB_OK;
    }
    if (a == YB_OK && b == YB_VERSION) {
        super_refuse(ssd, b, b);
    } else if (a == YB_OK) {
        if (super_fits(ssd)) {
            headers_begin(ssd);
        }
    } else if (is_new && (a == YB_NOT_FOUND || a == YB_CORRUPT) &&
               (b == YB_NOT_FOUND || b == YB_CORRUPT)) {
        /* Empty, or its making was cut short: no segment can have been there. */
        make_log(ssd);
        ssd->recover.step = YB_SSD_RECOVER_FORMAT;
        yb_ssd_super_write(ssd);
    } else {
        super_refuse(ssd, a, b);
    }
}

static void
recover_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;
    struct yb_ssd_recover *recover = &ssd->recover;

    recover->error = error != 0 ? error : recover->error;
    YB_ASSERT(recover->waiting > 0);
    recover->waiting--;
}

static void
read_into(struct yb_ssd *ssd, struct yb_ssd_transfer *transfer, uint64_t offset, uint8_t *bytes,
          uint64_t length)
{
    transfer->then = recover_then;
    ssd->recover.waiting++;
    yb_ssd_transfer_start(ssd, transfer, YB_SSD_IO_READ, offset, bytes, length);
}

void
yb_ssd_recover_start(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;

    recover->step = YB_SSD_RECOVER_SUPER;
    read_into(ssd, &recover->transfer, 0, (uint8_t *)ssd->super, YB_SSD_SUPER_BYTES);
    read_into(ssd, &recover->second, YB_SSD_SUPER_BYTES, ssd->super_out, YB_SSD_SUPER_BYTES);
}

/* ---- headers ---------------------------------------------------------------------------- */

static uint64_t
segment_start(const struct yb_ssd *ssd, uint32_t segment)
{
    return YB_SSD_SEGMENTS_START + segment * ssd->segment_bytes;
}

static void
header_judge(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    struct yb_ssd_segment *segment = &ssd->segments[recover->at];
    struct yb_ssd_header header;

    memcpy(&header, recover->block, sizeof header);
    if (!yb_ssd_header_check(&header, ssd->super->log, recover->at)) {
        segment->state = YB_SSD_SEGMENT_FREE; /* Reserved, and never opened. */
        return;
    }
    segment->life = header.life;
    if (header.life >> 32 > ssd->life_count) {
        ssd->life_count = header.life >> 32;
    }
    if (header.state == YB_SSD_HEADER_FREE) {
        segment->state = YB_SSD_SEGMENT_FREE;
    } else {
        recover->order[recover->count++] = recover->at;
    }
}

static int
younger(const void *a, const void *b, void *context)
{
    const struct yb_ssd *ssd = context;
    uint64_t left = ssd->segments[*(const uint32_t *)a].life;
    uint64_t right = ssd->segments[*(const uint32_t *)b].life;

    return (left < right) - (left > right);
}

/* ---- one segment after the other -------------------------------------------------------- */

static void
recover_done(struct yb_ssd *ssd)
{
    ssd->recover.step = YB_SSD_RECOVER_DONE;
    yb_ssd_kill_recovered(ssd);
    yb_log_info(ssd->options.log, "ssd", "the log is recovered",
                yb_log_u64("blocks", ssd->info.blocks), yb_log_u64("segments", ssd->recover.count),
                yb_log_str("io", ssd->device->ops->name));
    yb_ssd_wake(ssd);
}

/* Go on with the segment, or header, that `at` names. */
void
yb_ssd_recover_next(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    uint32_t segment;

    if (recover->step == YB_SSD_RECOVER_HEADERS) {
        while (recover->at < ssd->segment_count &&
               ssd->segments[recover->at].state != YB_SSD_SEGMENT_UNREAD) {
            recover->at++;
        }
        if (recover->at < ssd->segment_count) {
            read_into(ssd, &recover->transfer, segment_start(ssd, recover->at), recover->block,
                      YB_SSD_BLOCK_BYTES);
            return;
        }
        qsort_r(recover->order, recover->count, sizeof *recover->order, younger, ssd);
        recover->at = 0;
        recover->step = YB_SSD_RECOVER_MAP;
        /* T1: a process that was killed may have left bytes that are not durable yet. */
        recover->sync = yb_ssd_sync_request(ssd);
        return;
    }
    recover->step = YB_SSD_RECOVER_MAP;
    if (recover->at == recover->count) {
        recover_done(ssd);
        return;
    }
    segment = recover->order[recover->at];
    read_into(ssd, &recover->transfer, segment_start(ssd, segment) + YB_SSD_BLOCK_BYTES,
              yb_ssd_map_of(ssd, segment), ssd->map_bytes);
    read_into(ssd, &recover->second,
              segment_start(ssd, segment) + ssd->segment_bytes - YB_SSD_BLOCK_BYTES, recover->block,
              YB_SSD_BLOCK_BYTES);
}

static void
footer_read(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    uint32_t index = recover->order[recover->at];
    const struct yb_ssd_segment *segment = &ssd->segments[index];
    uint32_t most = (uint32_t)(ssd->options.batch_bytes / YB_SSD_FOOTER_PAGE);
    uint32_t left = segment->pages - recover->page;

    recover->page_count = left < most ? left : most;
    recover->page_at = 0;
    recover->offset = 0;
    read_into(ssd, &recover->transfer,
              segment_start(ssd, index) + segment->footer_offset +
                  (uint64_t)recover->page * YB_SSD_FOOTER_PAGE,
              recover->bytes, (uint64_t)recover->page_count * YB_SSD_FOOTER_PAGE);
}

static void
scan_begin(struct yb_ssd *ssd)
{
    ssd->segments[ssd->recover.order[ssd->recover.at]].pages = 0;
    ssd->recover.step = YB_SSD_RECOVER_SCAN;
    yb_ssd_scan_begin(ssd);
}

static void
map_judge(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    struct yb_ssd_segment *segment = &ssd->segments[recover->order[recover->at]];
    struct yb_ssd_trailer trailer;

    segment->mapped = true;
    memcpy(&trailer, recover->block, sizeof trailer);
    if (!yb_ssd_trailer_check(&trailer, segment->life, ssd->segment_bytes) || trailer.pages == 0) {
        scan_begin(ssd);
        return;
    }
    segment->footer_offset = trailer.footer_offset;
    segment->data_end = trailer.footer_offset;
    segment->pages = trailer.pages;
    recover->step = YB_SSD_RECOVER_FOOTER;
    recover->page = 0;
    footer_read(ssd);
}

/* Take in one page of the footer. */
static void
footer_step(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    uint32_t index = recover->order[recover->at];
    struct yb_ssd_segment *segment = &ssd->segments[index];
    const uint8_t *page = recover->bytes + (uint64_t)recover->page_at * YB_SSD_FOOTER_PAGE;
    struct yb_ssd_view view;

    if (!yb_ssd_page_check(page, segment->life, recover->page)) {
        scan_begin(ssd); /* Torn: it was never durable as a whole. */
        return;
    }
    recover->offset = 0;
    while (ssd->aside == YB_OK && yb_ssd_page_next(page, &recover->offset, &view)) {
        yb_ssd_recover_record(ssd, index, &view);
    }
    recover->page++;
    recover->page_at++;
    if (recover->page == segment->pages) {
        segment->state = YB_SSD_SEGMENT_SEALED;
        recover->at++;
        yb_ssd_recover_next(ssd);
    } else if (recover->page_at == recover->page_count) {
        footer_read(ssd);
    } else {
        yb_ssd_wake(ssd);
    }
}

/* ---- records ---------------------------------------------------------------------------- */

static bool
is_inside(const struct yb_ssd *ssd, const struct yb_ssd_view *view)
{
    uint64_t start = (uint64_t)view->unit * YB_SSD_UNIT_BYTES;

    return start >= yb_ssd_data_start(ssd->segment_bytes) &&
           start + (uint64_t)view->total_units * YB_SSD_UNIT_BYTES <=
               ssd->segment_bytes - YB_SSD_BLOCK_BYTES;
}

/* Whether the same record, or a copy of it, is known. */
static bool
is_known(const struct yb_ssd *ssd, const struct yb_tier_record *record)
{
    uint64_t cursor = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, record->hash, &cursor)) != YB_SSD_INDEX_NONE) {
        if (yb_ssd_index_get(ssd->index, number).grant == record->grant) {
            return true;
        }
    }
    return false;
}

static void
tell_found(struct yb_ssd *ssd, const struct yb_tier_record *record, uint64_t unit)
{
    uint32_t number;

    if (ssd->options.events->found(ssd->base.owner, record)) {
        return;
    }
    number = yb_ssd_entry_at(ssd, record->hash, record->grant, unit);
    if (number != YB_SSD_INDEX_NONE) {
        yb_ssd_forget(ssd, number, true);
    }
}

void
yb_ssd_recover_record(struct yb_ssd *ssd, uint32_t segment, const struct yb_ssd_view *view)
{
    const struct yb_tier_record *record = &view->record;
    struct yb_ssd_entry entry = {
        .hash = record->hash,
        .grant = record->grant,
        .unit = yb_ssd_segment_unit(ssd, segment) + view->unit,
        .value_units = (uint32_t)((record->size + YB_SSD_UNIT_BYTES - 1) / YB_SSD_UNIT_BYTES),
        .head_units = view->head_units,
        .hard_pin = (record->flags & YB_WIRE_BLOCK_FLAG_HARD_PIN) != 0,
        .soft_pin = (record->flags & YB_WIRE_BLOCK_FLAG_SOFT_PIN) != 0,
    };
    bool known = is_known(ssd, record);
    bool dead;

    if (!is_inside(ssd, view) ||
        yb_ssd_map_get(yb_ssd_map_of(ssd, segment), ssd->segments[segment].life, view->unit) ||
        yb_ssd_entry_at(ssd, entry.hash, entry.grant, entry.unit) != YB_SSD_INDEX_NONE) {
        return;
    }
    if (yb_ssd_index_full(ssd->index) ||
        !yb_ssd_era(ssd, record->tenant, record->flush, &entry.era)) {
        yb_ssd_step_aside(ssd, YB_NO_SPACE,
                          "%s: the log has more records or tenants than the SSD tier may keep in "
                          "memory; allow it more records",
                          ssd->options.directory);
        return;
    }
    dead = yb_ssd_is_dead(ssd, &entry);
    if (dead && !ssd->super_busy && ssd->flushes.count == 0) {
        return;
    }
    (void)yb_ssd_index_add(ssd->index, &entry);
    ssd->eras[entry.era].live++;
    yb_ssd_account(ssd, &entry, 1);
    if (!known && !dead && !yb_ssd_kill_parked(ssd, record->hash, record->grant)) {
        tell_found(ssd, record, entry.unit);
    }
}

/* ---- the way through -------------------------------------------------------------------- */

static void
recover_read(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;

    switch (recover->step) {
    case YB_SSD_RECOVER_SUPER: super_judge(ssd); break;
    case YB_SSD_RECOVER_FORMAT:
        if (!ssd->super_busy) {
            headers_begin(ssd);
        }
        break;
    case YB_SSD_RECOVER_HEADERS:
        header_judge(ssd);
        recover->at++;
        yb_ssd_recover_next(ssd);
        break;
    case YB_SSD_RECOVER_MAP:
        if (recover->sync == 0) {
            map_judge(ssd);
        }
        break;
    case YB_SSD_RECOVER_FOOTER: footer_step(ssd); break;
    case YB_SSD_RECOVER_SCAN: yb_ssd_scan_step(ssd); break;
    case YB_SSD_RECOVER_SEAL:
        if (ssd->sealer.step == YB_SSD_STEP_IDLE) {
            struct yb_ssd_footer *footer = &ssd->footers[YB_SSD_FOOTER_SCAN];

            if (footer->segment == YB_SSD_SEGMENT_NO) {
                recover->at++;
                yb_ssd_recover_next(ssd);
            } else {
                yb_ssd_seal(ssd, footer, 0);
            }
        }
        break;
    case YB_SSD_RECOVER_DONE: break;
    }
}

void
yb_ssd_recover_pump(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;

    if (ssd->aside != YB_OK || ssd->stopping || recover->waiting > 0) {
        return;
    }
    if (recover->error != 0) {
        yb_ssd_failed(ssd, "read", recover->error);
        return;
    }
    recover_read(ssd);
}

void
yb_ssd_recover_synced(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;

    if (recover->step == YB_SSD_RECOVER_MAP && recover->sync != 0 &&
        ssd->sync_done >= recover->sync && ssd->aside == YB_OK) {
        recover->sync = 0;
        yb_ssd_recover_next(ssd);
    }
    yb_ssd_wake(ssd);
}
