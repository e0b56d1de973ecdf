/* SPDX-License-Identifier: Apache-2.0
 *
 * Lives of segments. One is open; the next is made ready before it is needed; one is being sealed.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "tier/ssd/ssd_internal.h"

#define FREE_WANTED 2u

/* ---- room ------------------------------------------------------------------------------- */

uint32_t
yb_ssd_free_segments(const struct yb_ssd *ssd)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < ssd->segment_count; i++) {
        count += ssd->segments[i].state == YB_SSD_SEGMENT_FREE &&
                 (ssd->segments[i].reserved || !ssd->no_growth);
    }
    return count;
}

/* What a segment can take when it is empty, at least, but for many small records. */
static uint64_t
segment_room(const struct yb_ssd *ssd)
{
    return ssd->segment_bytes - yb_ssd_data_start(ssd->segment_bytes) - YB_SSD_BLOCK_BYTES -
           YB_SSD_FOOTER_PAGE;
}

/* Return the pages of the open segment's footer with one more head. */
static uint64_t
footer_pages(const struct yb_ssd *ssd)
{
    const struct yb_ssd_footer *footer = ssd->footer;

    return footer->count > 0 && yb_ssd_page_has_room(footer->pages + (uint64_t)(footer->count - 1) *
                                                                         YB_SSD_FOOTER_PAGE)
               ? footer->count
               : footer->count + 1ull;
}

/* What is left in the open segment. */
static uint64_t
current_room(const struct yb_ssd *ssd)
{
    uint64_t footer_bytes;
    uint64_t taken;

    if (ssd->current == YB_SSD_SEGMENT_NO) {
        return 0;
    }
    footer_bytes = footer_pages(ssd) * YB_SSD_FOOTER_PAGE;
    /* The last batch is filled up to a block; the trailer is one, too. */
    taken = ssd->segments[ssd->current].data_end + footer_bytes + 2 * YB_SSD_BLOCK_BYTES;
    if (taken >= ssd->segment_bytes || footer_bytes > ssd->options.footer_bytes) {
        return 0;
    }
    return ssd->segment_bytes - taken;
}

bool
yb_ssd_segment_fits(const struct yb_ssd *ssd, const struct yb_tier_record *record)
{
    uint64_t bytes = (uint64_t)yb_ssd_total_units(record) * YB_SSD_UNIT_BYTES;

    return ssd->current != YB_SSD_SEGMENT_NO && bytes <= current_room(ssd);
}

/* S5: a whole segment stays for blocks that move. */
uint64_t
yb_ssd_room_total(const struct yb_ssd *ssd)
{
    uint64_t segments = yb_ssd_free_segments(ssd) + (ssd->next_segment != YB_SSD_SEGMENT_NO) +
                        (ssd->opener.step != YB_SSD_STEP_IDLE);
    uint64_t room = current_room(ssd) + segments * segment_room(ssd);

    return room > segment_room(ssd) ? room - segment_room(ssd) : 0;
}

bool
yb_ssd_spare_segment(const struct yb_ssd *ssd)
{
    return yb_ssd_room_total(ssd) >= segment_room(ssd);
}

/* ---- footers ---------------------------------------------------------------------------- */

bool
yb_ssd_footer_add(struct yb_ssd_footer *footer, const struct yb_tier_record *record, uint64_t life,
                  uint32_t unit, uint64_t bytes_max)
{
    uint8_t *page = footer->pages + (uint64_t)(footer->count - 1) * YB_SSD_FOOTER_PAGE;

    if (footer->count > 0 && yb_ssd_page_add(page, record, unit)) {
        footer->records++;
        return true;
    }
    if ((uint64_t)(footer->count + 1) * YB_SSD_FOOTER_PAGE > bytes_max) {
        return false;
    }
    page = footer->pages + (uint64_t)footer->count * YB_SSD_FOOTER_PAGE;
    yb_ssd_page_init(page, life, footer->count);
    footer->count++;
    footer->records++;
    return yb_ssd_page_add(page, record, unit);
}

static struct yb_ssd_footer *
free_footer(struct yb_ssd *ssd)
{
    for (uint32_t i = 0; i < YB_SSD_FOOTER_SCAN; i++) {
        if (ssd->footers[i].segment == YB_SSD_SEGMENT_NO) {
            return &ssd->footers[i];
        }
    }
    return NULL;
}

/* ---- opening ---------------------------------------------------------------------------- */

void
yb_ssd_header_block(struct yb_ssd *ssd, uint32_t segment, uint32_t state, uint8_t *block)
{
    struct yb_ssd_header header = {
        .life = ssd->segments[segment].life, .number = segment, .state = state};

    memcpy(header.log, ssd->super->log, sizeof header.log);
    yb_ssd_header_encode(&header);
    memset(block, 0, YB_SSD_BLOCK_BYTES);
    memcpy(block, &header, sizeof header);
}

static void opener_then(struct yb_ssd_transfer *transfer, int error);

/* S3: the life is durable before anything of it is written. */
static void
opener_write(struct yb_ssd *ssd)
{
    struct yb_ssd_opener *opener = &ssd->opener;
    struct yb_ssd_segment *segment = &ssd->segments[opener->segment];
    uint64_t count = ++ssd->life_count;
    uint64_t salt = yb_hash_table(count, ssd->super->log, sizeof ssd->super->log);

    segment->life = count << 32 | (salt & UINT32_MAX);
    if (segment->mapped) {
        memset(yb_ssd_map_of(ssd, opener->segment), 0, (size_t)ssd->map_bytes);
        segment->mapped = false;
    }
    yb_ssd_header_block(ssd, opener->segment, YB_SSD_HEADER_OPEN, opener->block);
    opener->step = YB_SSD_STEP_WRITE;
    yb_ssd_transfer_start(ssd, &opener->transfer, YB_SSD_IO_WRITE,
                          YB_SSD_SEGMENTS_START + opener->segment * ssd->segment_bytes,
                          opener->block, YB_SSD_BLOCK_BYTES);
}

/* The file system is full: the log stays as large as it is. */
static void
opener_no_room(struct yb_ssd *ssd)
{
    ssd->segments[ssd->opener.segment].state = YB_SSD_SEGMENT_FREE;
    ssd->opener.step = YB_SSD_STEP_IDLE;
    ssd->no_growth = true;
    for (uint32_t i = 0, reserved = 0; i < ssd->segment_count; i++) {
        reserved += ssd->segments[i].reserved;
        if (reserved == YB_SSD_SEGMENTS_MIN) {
            yb_log_warn(ssd->options.log, "ssd", "no room to grow: the log stays as it is");
            return;
        }
    }
    yb_ssd_step_aside(ssd, YB_NO_SPACE,
                      "%s: the file system is full before the log has %u segments; make room, or "
                      "give the SSD tier less capacity or smaller segments",
                      ssd->options.directory, YB_SSD_SEGMENTS_MIN);
    yb_ssd_back_later(ssd);
}

static void
opener_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;
    struct yb_ssd_opener *opener = &ssd->opener;

    if (opener->step == YB_SSD_STEP_RESERVE) {
        if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
            opener_no_room(ssd);
        } else if (error != 0 && error != EOPNOTSUPP) {
            yb_ssd_failed(ssd, "reserve room", error);
        } else {
            ssd->segments[opener->segment].reserved = true;
            opener_write(ssd);
        }
        return;
    }
    if (error != 0) {
        yb_ssd_failed(ssd, "write a segment's header", error);
        return;
    }
    opener->step = YB_SSD_STEP_SYNC;
    opener->sync = yb_ssd_sync_request(ssd);
}

/* A segment that the medium has already comes before one that makes it grow. */
static uint32_t
choose_free(const struct yb_ssd *ssd)
{
    uint32_t fresh = YB_SSD_SEGMENT_NO;

    for (uint32_t i = 0; i < ssd->segment_count; i++) {
        const struct yb_ssd_segment *segment = &ssd->segments[i];

        if (segment->state != YB_SSD_SEGMENT_FREE || segment->readers > 0) {
            continue;
        }
        if (segment->reserved) {
            return i;
        }
        if (fresh == YB_SSD_SEGMENT_NO && !ssd->no_growth) {
            fresh = i;
        }
    }
    return fresh;
}

static void
open_next(struct yb_ssd *ssd)
{
    struct yb_ssd_opener *opener = &ssd->opener;
    uint32_t chosen;

    if (opener->step != YB_SSD_STEP_IDLE || ssd->next_segment != YB_SSD_SEGMENT_NO ||
        ssd->stopping || opener->transfer.busy) {
        return;
    }
    chosen = choose_free(ssd);
    if (chosen == YB_SSD_SEGMENT_NO) {
        return;
    }
    opener->segment = chosen;
    opener->transfer.then = opener_then;
    ssd->segments[chosen].state = YB_SSD_SEGMENT_OPENING;
    if (ssd->segments[chosen].reserved) {
        opener_write(ssd);
        return;
    }
    opener->step = YB_SSD_STEP_RESERVE;
    yb_ssd_transfer_start(ssd, &opener->transfer, YB_SSD_IO_RESERVE,
                          YB_SSD_SEGMENTS_START + chosen * ssd->segment_bytes, NULL,
                          ssd->segment_bytes);
}

/* ---- sealing ---------------------------------------------------------------------------- */

static void
sealer_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;
    struct yb_ssd_sealer *sealer = &ssd->sealer;

    sealer->waiting--;
    if (error != 0) {
        yb_ssd_failed(ssd, "write a footer", error);
        return;
    }
    if (sealer->waiting == 0 && ssd->aside == YB_OK) {
        sealer->step = YB_SSD_STEP_SYNC;
        sealer->sync = yb_ssd_sync_request(ssd);
    }
}

static void
sealer_write(struct yb_ssd *ssd)
{
    struct yb_ssd_sealer *sealer = &ssd->sealer;
    struct yb_ssd_footer *footer = sealer->footer;
    struct yb_ssd_segment *segment = &ssd->segments[footer->segment];
    uint64_t start = YB_SSD_SEGMENTS_START + footer->segment * ssd->segment_bytes;
    struct yb_ssd_trailer trailer = {.life = segment->life,
                                     .footer_offset = segment->data_end,
                                     .records = footer->records,
                                     .pages = footer->count};

    YB_ASSERT(segment->data_end % YB_SSD_BLOCK_BYTES == 0);
    yb_ssd_trailer_encode(&trailer);
    memset(sealer->block, 0, YB_SSD_BLOCK_BYTES);
    memcpy(sealer->block, &trailer, sizeof trailer);
    for (uint32_t i = 0; i < footer->count; i++) {
        yb_ssd_page_seal(footer->pages + (uint64_t)i * YB_SSD_FOOTER_PAGE);
    }
    segment->footer_offset = segment->data_end;
    segment->pages = footer->count;
    sealer->step = YB_SSD_STEP_WRITE;
    sealer->waiting = footer->count > 0 ? 2 : 1;
    sealer->pages.then = sealer_then;
    sealer->trailer.then = sealer_then;
    if (footer->count > 0) {
        yb_ssd_transfer_start(ssd, &sealer->pages, YB_SSD_IO_WRITE, start + segment->data_end,
                              footer->pages, (uint64_t)footer->count * YB_SSD_FOOTER_PAGE);
    }
    yb_ssd_transfer_start(ssd, &sealer->trailer, YB_SSD_IO_WRITE,
                          start + ssd->segment_bytes - YB_SSD_BLOCK_BYTES, sealer->block,
                          YB_SSD_BLOCK_BYTES);
}

void
yb_ssd_seal(struct yb_ssd *ssd, struct yb_ssd_footer *footer, uint64_t end)
{
    struct yb_ssd_sealer *sealer = &ssd->sealer;

    YB_ASSERT(sealer->step == YB_SSD_STEP_IDLE);
    ssd->segments[footer->segment].state = YB_SSD_SEGMENT_SEALING;
    sealer->footer = footer;
    sealer->end = end;
    sealer->step = YB_SSD_STEP_WAIT_DATA;
    yb_ssd_segments_pump(ssd);
}

bool
yb_ssd_segment_switch(struct yb_ssd *ssd)
{
    struct yb_ssd_footer *footer = free_footer(ssd);

    YB_ASSERT(!ssd->staging.busy);
    if (ssd->next_segment == YB_SSD_SEGMENT_NO || footer == NULL ||
        (ssd->current != YB_SSD_SEGMENT_NO && ssd->sealer.step != YB_SSD_STEP_IDLE)) {
        return false;
    }
    if (ssd->current != YB_SSD_SEGMENT_NO) {
        struct yb_ssd_footer *full = ssd->footer;

        yb_ssd_write_flush(ssd);
        ssd->footer = NULL;
        ssd->current = YB_SSD_SEGMENT_NO;
        yb_ssd_seal(ssd, full, ssd->staged_end);
    }
    ssd->current = ssd->next_segment;
    ssd->next_segment = YB_SSD_SEGMENT_NO;
    ssd->segments[ssd->current].state = YB_SSD_SEGMENT_OPEN;
    ssd->segments[ssd->current].data_end = yb_ssd_data_start(ssd->segment_bytes);
    footer->segment = ssd->current;
    footer->count = 0;
    footer->records = 0;
    ssd->footer = footer;
    yb_ssd_wake(ssd);
    return true;
}

void
yb_ssd_segments_pump(struct yb_ssd *ssd)
{
    if (ssd->aside != YB_OK || ssd->segments == NULL) {
        return;
    }
    if (ssd->recover.step > YB_SSD_RECOVER_HEADERS) {
        open_next(ssd);
    }
    if (ssd->sealer.step == YB_SSD_STEP_WAIT_DATA && ssd->durable_end >= ssd->sealer.end) {
        sealer_write(ssd);
    }
}

void
yb_ssd_segments_synced(struct yb_ssd *ssd)
{
    struct yb_ssd_opener *opener = &ssd->opener;
    struct yb_ssd_sealer *sealer = &ssd->sealer;

    if (opener->step == YB_SSD_STEP_SYNC && ssd->sync_done >= opener->sync) {
        opener->step = YB_SSD_STEP_IDLE;
        ssd->segments[opener->segment].state = YB_SSD_SEGMENT_READY;
        ssd->next_segment = opener->segment;
    }
    if (sealer->step == YB_SSD_STEP_SYNC && ssd->sync_done >= sealer->sync) {
        sealer->step = YB_SSD_STEP_IDLE;
        ssd->segments[sealer->footer->segment].state = YB_SSD_SEGMENT_SEALED;
        sealer->footer->segment = YB_SSD_SEGMENT_NO;
        sealer->footer = NULL;
    }
    yb_ssd_segments_pump(ssd);
}
