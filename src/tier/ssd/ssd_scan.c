/* SPDX-License-Identifier: Apache-2.0
 *
 * A segment without a footer is read as a whole. Where a record ends the next begins, on the next
 * 64 bytes or, with a new batch, on the next block; where nothing whole of this life lies, the scan
 * goes on at the next block, so that a tear costs only what it tore. Then the segment is sealed.
 */
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/ssd/ssd_internal.h"

#define RECORDS_STEP 256u

static uint32_t
scanned(const struct yb_ssd *ssd)
{
    return ssd->recover.order[ssd->recover.at];
}

static uint64_t
window_end(const struct yb_ssd *ssd)
{
    return ssd->recover.window + ssd->recover.window_bytes;
}

static void
window_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd_recover *recover = &transfer->ssd->recover;

    recover->error = error != 0 ? error : recover->error;
    recover->waiting--;
}

/* Read the bytes from `position` on. */
static void
window_read(struct yb_ssd *ssd, uint64_t position)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    uint64_t most = ssd->options.batch_bytes + 4 * YB_SSD_BLOCK_BYTES;
    uint64_t left;

    recover->window = position / YB_SSD_BLOCK_BYTES * YB_SSD_BLOCK_BYTES;
    left = ssd->segment_bytes - YB_SSD_BLOCK_BYTES - recover->window;
    recover->window_bytes = left < most ? left : most;
    recover->waiting++;
    recover->transfer.then = window_then;
    yb_ssd_transfer_start(ssd, &recover->transfer, YB_SSD_IO_READ,
                          YB_SSD_SEGMENTS_START + scanned(ssd) * ssd->segment_bytes +
                              recover->window,
                          recover->bytes, recover->window_bytes);
}

void
yb_ssd_scan_begin(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    struct yb_ssd_footer *footer = &ssd->footers[YB_SSD_FOOTER_SCAN];

    footer->segment = scanned(ssd);
    footer->count = 0;
    footer->records = 0;
    recover->torn = false;
    recover->in_value = false;
    recover->position = yb_ssd_data_start(ssd->segment_bytes);
    recover->data_end = recover->position;
    window_read(ssd, recover->position);
}

static void
scan_end(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    struct yb_ssd_segment *segment = &ssd->segments[scanned(ssd)];
    struct yb_ssd_footer *footer = &ssd->footers[YB_SSD_FOOTER_SCAN];

    segment->data_end =
        (recover->data_end + YB_SSD_BLOCK_BYTES - 1) / YB_SSD_BLOCK_BYTES * YB_SSD_BLOCK_BYTES;
    recover->step = YB_SSD_RECOVER_SEAL;
    if (footer->records == 0) {
        segment->state = YB_SSD_SEGMENT_FREE;
        footer->segment = YB_SSD_SEGMENT_NO;
    } else if (recover->torn || segment->data_end + (uint64_t)footer->count * YB_SSD_FOOTER_PAGE +
                                        YB_SSD_BLOCK_BYTES >
                                    ssd->segment_bytes) {
        segment->state = YB_SSD_SEGMENT_SEALED; /* Without a footer: reclaim asks the index. */
        footer->segment = YB_SSD_SEGMENT_NO;
    }
    yb_ssd_wake(ssd);
}

/* A whole record: it counts, and its head goes into the footer. */
static void
take(struct yb_ssd *ssd, const struct yb_ssd_view *view)
{
    struct yb_ssd_recover *recover = &ssd->recover;

    recover->data_end = recover->position + (uint64_t)view->total_units * YB_SSD_UNIT_BYTES;
    if (!yb_ssd_footer_add(&ssd->footers[YB_SSD_FOOTER_SCAN], &view->record,
                           ssd->segments[scanned(ssd)].life, view->unit,
                           ssd->options.footer_bytes)) {
        recover->torn = true;
    }
    yb_ssd_recover_record(ssd, scanned(ssd), view);
}

/* Compare a chunk with its checksum; `bytes` are those of the window. */
static bool
chunk_is_whole(const struct yb_ssd *ssd, const struct yb_ssd_view *view, uint64_t chunk)
{
    const struct yb_ssd_recover *recover = &ssd->recover;
    uint64_t from = chunk * YB_TIER_CHUNK_BYTES;
    uint64_t to = from + YB_TIER_CHUNK_BYTES;
    uint64_t at = recover->position + (uint64_t)view->head_units * YB_SSD_UNIT_BYTES + from;
    uint32_t sum;

    to = to < view->record.size ? to : view->record.size;
    memcpy(&sum, view->sums + 4 * chunk, sizeof sum);
    YB_ASSERT(at >= recover->window && at + (to - from) <= window_end(ssd));
    return yb_crc32c(recover->bytes + (at - recover->window), (size_t)(to - from)) == sum;
}

/* A record that is larger than a window: its chunks, window after window. */
static void
value_step(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    const struct yb_ssd_view *view = &recover->view;
    uint64_t value = recover->position + (uint64_t)view->head_units * YB_SSD_UNIT_BYTES;
    bool whole = true;

    while (whole && recover->chunk < view->sum_count) {
        uint64_t end = (recover->chunk + 1) * YB_TIER_CHUNK_BYTES;

        end = value + (end < view->record.size ? end : view->record.size);
        if (end > window_end(ssd)) {
            window_read(ssd, value + recover->chunk * YB_TIER_CHUNK_BYTES);
            return;
        }
        whole = chunk_is_whole(ssd, view, recover->chunk);
        recover->chunk += whole;
    }
    if (whole) {
        take(ssd, view);
    }
    recover->in_value = false;
    recover->position += (uint64_t)view->total_units * YB_SSD_UNIT_BYTES;
    yb_ssd_wake(ssd);
}

/* A head that is whole, of a record that is in the window or is not. Returns whether the window
 * still holds what comes next. */
static bool
record_step(struct yb_ssd *ssd, const struct yb_ssd_view *view)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    uint64_t end = recover->position + (uint64_t)view->total_units * YB_SSD_UNIT_BYTES;
    bool whole = true;

    if (end > window_end(ssd)) {
        if (recover->position / YB_SSD_BLOCK_BYTES * YB_SSD_BLOCK_BYTES > recover->window) {
            window_read(ssd, recover->position);
            return false;
        }
        memcpy(recover->head, recover->bytes + (recover->position - recover->window),
               (size_t)view->head_units * YB_SSD_UNIT_BYTES);
        recover->in_value =
            yb_ssd_record_decode(recover->head, (size_t)view->head_units * YB_SSD_UNIT_BYTES,
                                 ssd->segments[scanned(ssd)].life, &recover->view);
        recover->chunk = 0;
        value_step(ssd);
        return false;
    }
    for (uint32_t i = 0; whole && i < view->sum_count; i++) {
        whole = chunk_is_whole(ssd, view, i);
    }
    if (whole) {
        take(ssd, view);
    }
    recover->position = end;
    return true;
}

void
yb_ssd_scan_step(struct yb_ssd *ssd)
{
    struct yb_ssd_recover *recover = &ssd->recover;
    uint64_t limit = ssd->segment_bytes - YB_SSD_BLOCK_BYTES;

    if (recover->in_value) {
        value_step(ssd);
        return;
    }
    for (uint32_t i = 0; i < RECORDS_STEP && ssd->aside == YB_OK; i++) {
        struct yb_ssd_view view;
        uint64_t left;

        if (recover->position >= limit) {
            scan_end(ssd);
            return;
        }
        left = recover->position < window_end(ssd) ? window_end(ssd) - recover->position : 0;
        if (left < YB_SSD_HEAD_BYTES_MAX && window_end(ssd) < limit) {
            window_read(ssd, recover->position);
            return;
        }
        if (!yb_ssd_record_decode(recover->bytes + (recover->position - recover->window),
                                  (size_t)left, ssd->segments[scanned(ssd)].life, &view) ||
            (uint64_t)view.unit * YB_SSD_UNIT_BYTES != recover->position ||
            recover->position + (uint64_t)view.total_units * YB_SSD_UNIT_BYTES > limit) {
            recover->position = (recover->position / YB_SSD_BLOCK_BYTES + 1) * YB_SSD_BLOCK_BYTES;
        } else if (!record_step(ssd, &view)) {
            return;
        }
    }
    yb_ssd_wake(ssd);
}
