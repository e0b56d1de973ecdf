/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers that are done when all of it is, and the one sync at a time that everybody shares.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "tier/ssd/ssd_internal.h"

static void
transfer_submit(struct yb_ssd_transfer *transfer)
{
    struct yb_ssd *ssd = transfer->ssd;

    ssd->info.writes += transfer->io.kind == YB_SSD_IO_WRITE;
    ssd->device->ops->submit(ssd->device, &transfer->io);
}

static void
transfer_end(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;

    transfer->busy = false;
    ssd->under_way--;
    transfer->then(transfer, error);
    yb_ssd_wake(ssd);
}

/* D2: less may have moved. Whole blocks count; beyond the end there are zeros. */
static void
transfer_done(struct yb_ssd_io *io, int64_t result)
{
    struct yb_ssd_transfer *transfer = (struct yb_ssd_transfer *)io;
    struct yb_ssd *ssd = transfer->ssd;
    uint64_t moved = result > 0 ? (uint64_t)result : 0;

    if (result < 0) {
        transfer_end(transfer, (int)-result);
        return;
    }
    if (io->kind == YB_SSD_IO_SYNC || io->kind == YB_SSD_IO_RESERVE) {
        transfer_end(transfer, 0);
        return;
    }
    YB_ASSERT(moved <= io->length);
    ssd->info.written_bytes += io->kind == YB_SSD_IO_WRITE ? moved : 0;
    ssd->info.read_bytes += io->kind == YB_SSD_IO_READ ? moved : 0;
    if (io->kind == YB_SSD_IO_READ && moved < YB_SSD_BLOCK_BYTES) {
        memset(io->bytes + moved, 0, (size_t)(io->length - moved));
        moved = io->length;
    }
    moved = moved < io->length ? moved - moved % YB_SSD_BLOCK_BYTES : moved;
    if (moved == io->length) {
        transfer_end(transfer, 0);
    } else if (moved == 0) {
        transfer_end(transfer, EIO);
    } else {
        io->bytes += moved;
        io->offset += moved;
        io->length -= moved;
        transfer_submit(transfer);
    }
}

void
yb_ssd_transfer_start(struct yb_ssd *ssd, struct yb_ssd_transfer *transfer,
                      enum yb_ssd_io_kind kind, uint64_t offset, uint8_t *bytes, uint64_t length)
{
    YB_ASSERT(!transfer->busy && transfer->then != NULL);
    YB_ASSERT(kind == YB_SSD_IO_RESERVE || offset % YB_SSD_BLOCK_BYTES == 0);
    YB_ASSERT(kind == YB_SSD_IO_RESERVE || length % YB_SSD_BLOCK_BYTES == 0);
    transfer->ssd = ssd;
    transfer->busy = true;
    transfer->io.done = transfer_done;
    transfer->io.kind = kind;
    transfer->io.offset = offset;
    transfer->io.bytes = bytes;
    transfer->io.length = length;
    ssd->under_way++;
    transfer_submit(transfer);
}

static void sync_then(struct yb_ssd_transfer *transfer, int error);

static void
sync_start(struct yb_ssd *ssd)
{
    ssd->sync.then = sync_then;
    ssd->sync_started++;
    ssd->sync_target = ssd->written_end;
    ssd->info.syncs++;
    yb_ssd_transfer_start(ssd, &ssd->sync, YB_SSD_IO_SYNC, 0, NULL, 0);
}

/* Everybody looks whether that was the sync that it waits for. */
static void
sync_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;

    if (error != 0) {
        yb_ssd_failed(ssd, "sync", error);
        return;
    }
    ssd->sync_done = ssd->sync_started;
    ssd->durable_end = ssd->sync_target;
    yb_ssd_write_synced(ssd);
    yb_ssd_segments_synced(ssd);
    yb_ssd_kill_synced(ssd);
    yb_ssd_reclaim_synced(ssd);
    yb_ssd_recover_synced(ssd);
    if (ssd->sync_wanted > ssd->sync_started && !ssd->sync.busy && ssd->aside == YB_OK) {
        sync_start(ssd);
    }
}

uint64_t
yb_ssd_sync_request(struct yb_ssd *ssd)
{
    uint64_t number = ssd->sync_started + 1;

    if (ssd->sync.busy) {
        ssd->sync_wanted = number;
    } else {
        sync_start(ssd);
    }
    return number;
}
