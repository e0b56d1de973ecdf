/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the medium, and the way back after it could not be opened or has failed.
 *
 *     aside, no medium ------ timer: open it -----------------------------------+--> recovery
 *     aside, it failed ------ timer: a trial ---- passed, or nothing is read ---+
 *                                |                 either: end what is under way, forget all
 *                                +-- refused: later
 *
 * After a write or sync that failed nobody knows what the medium holds, so nothing of the old state
 * is gone on with: everything is read anew, as by a start. Before that a trial shows whether it is
 * worth it, for meanwhile what was RESIDENT is still read: the first block of the superblock is
 * read and written back as it is, whatever tears that, and synced. Pauses are 1, 2, 4 ... up to 60
 * seconds, and 1 again only after the tier has worked for that long.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "tier/ssd/ssd_internal.h"

#define PAUSE_NS     YB_NS_PER_S
#define PAUSE_MAX_NS (60 * YB_NS_PER_S)

void
yb_ssd_back_later(struct yb_ssd *ssd)
{
    struct yb_ssd_back *back = &ssd->back;
    uint64_t now_ns = yb_loop_now(ssd->loop);

    if (back->since_ns != 0 && now_ns - back->since_ns > PAUSE_MAX_NS) {
        back->pause_ns = PAUSE_NS;
    }
    back->since_ns = 0;
    if (!ssd->stopping) {
        yb_loop_arm(ssd->loop, &back->timer, yb_deadline_after(now_ns, back->pause_ns));
        back->pause_ns *= back->pause_ns < PAUSE_MAX_NS / 2 ? 2 : 1;
    }
}

/* ---- forgetting -------------------------------------------------------------------------- */

/* Forget everything that was known of the medium, but what the day's budget is. */
static enum yb_status
forget_all(struct yb_ssd *ssd)
{
    const size_t kept = offsetof(struct yb_ssd, memory); /* What is behind it is of the medium. */
    double budget = ssd->budget;
    uint64_t budget_ns = ssd->budget_ns;

    yb_loop_disarm(ssd->loop, &ssd->deadline_timer);
    yb_loop_disarm(ssd->loop, &ssd->sync_timer);
    yb_ssd_memory_fini(ssd);
    memset((uint8_t *)ssd + kept, 0, sizeof(*ssd) - kept);
    yb_timer_init(&ssd->sync_timer, yb_ssd_sync_timer);
    ssd->deadline_ns = YB_NEVER;
    ssd->read_errors = 0;
    ssd->info.live = 0;
    ssd->info.blocks = 0;
    ssd->info.storing_bytes = 0;
    if (yb_ssd_memory_init(ssd) != YB_OK) {
        return YB_NO_MEMORY;
    }
    ssd->budget = budget;
    ssd->budget_ns = budget_ns;
    return YB_OK;
}

/* ---- opening ----------------------------------------------------------------------------- */

void
yb_ssd_back_open(struct yb_ssd *ssd)
{
    char why[YB_SSD_WHY_BYTES] = "";
    enum yb_status status = YB_OK;

    if (ssd->index == NULL && forget_all(ssd) != YB_OK) {
        status = YB_NO_MEMORY;
        (void)snprintf(why, sizeof(why), "%s: no memory for the index of its log: give it back",
                       ssd->options.directory);
    } else if (ssd->device == NULL) {
        status = yb_ssd_device_open(ssd->loop, ssd->options.directory, ssd->options.io,
                                    &ssd->device, why);
    }
    if (status != YB_OK) {
        ssd->aside = YB_OK; /* What is wrong now is told, and no longer what was. */
        yb_ssd_step_aside(ssd, status, "%s", why);
        yb_ssd_back_later(ssd);
        return;
    }
    if (ssd->aside != YB_OK) {
        yb_log_info(ssd->options.log, "ssd", "the tier is back",
                    yb_log_str("directory", ssd->options.directory));
        ssd->aside = YB_OK;
        ssd->why[0] = '\0';
        ssd->tell_aside = true;
        ssd->told_recovered = false;
    }
    ssd->back.since_ns = yb_loop_now(ssd->loop);
    yb_ssd_recover_start(ssd);
    yb_ssd_wake(ssd);
}

/* Read all of it again, once nothing is under way. */
void
yb_ssd_back_pump(struct yb_ssd *ssd)
{
    if (!ssd->back.again || ssd->stopping || !yb_ssd_is_quiet(ssd)) {
        return;
    }
    ssd->back.again = false;
    if (ssd->options.device == NULL) { /* It may be another one by now, in the same place. */
        ssd->device->ops->close(ssd->device);
        ssd->device = NULL;
    }
    (void)forget_all(ssd); /* If there is no memory, opening says so. */
    yb_ssd_back_open(ssd);
}

/* ---- the trial --------------------------------------------------------------------------- */

static void
read_again(struct yb_ssd *ssd)
{
    ssd->back.again = true;
    yb_ssd_wake(ssd);
}

static void
trial_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;

    if (ssd->stopping) {
        return;
    }
    if (error != 0 && transfer->io.kind != YB_SSD_IO_READ) {
        yb_ssd_back_later(ssd);
        return;
    }
    switch (transfer->io.kind) {
    case YB_SSD_IO_READ:
        if (error != 0) { /* Nothing is lost by closing what cannot even be read. */
            read_again(ssd);
            break;
        }
        yb_ssd_transfer_start(ssd, transfer, YB_SSD_IO_WRITE, 0, ssd->back.block,
                              YB_SSD_BLOCK_BYTES);
        break;
    case YB_SSD_IO_WRITE: yb_ssd_transfer_start(ssd, transfer, YB_SSD_IO_SYNC, 0, NULL, 0); break;
    case YB_SSD_IO_SYNC:
        if (ssd->aside == YB_NO_SPACE) {
            yb_ssd_transfer_start(ssd, transfer, YB_SSD_IO_RESERVE,
                                  YB_SSD_SEGMENTS_START + ssd->opener.segment * ssd->segment_bytes,
                                  NULL, ssd->segment_bytes);
            break;
        }
        read_again(ssd);
        break;
    case YB_SSD_IO_RESERVE: read_again(ssd); break;
    }
}

static void
fired(struct yb_timer *timer)
{
    struct yb_ssd_back *back =
        (struct yb_ssd_back *)((uint8_t *)timer - offsetof(struct yb_ssd_back, timer));
    struct yb_ssd *ssd = (struct yb_ssd *)((uint8_t *)back - offsetof(struct yb_ssd, back));

    YB_ASSERT(ssd->aside != YB_OK && !back->transfer.busy);
    if (ssd->device == NULL) {
        yb_ssd_back_open(ssd);
    } else if (ssd->super_io.busy) {
        yb_ssd_back_later(ssd); /* What it writes is not to be written over. */
    } else {
        back->transfer.then = trial_then;
        yb_ssd_transfer_start(ssd, &back->transfer, YB_SSD_IO_READ, 0, back->block,
                              YB_SSD_BLOCK_BYTES);
    }
}

void
yb_ssd_back_init(struct yb_ssd *ssd)
{
    ssd->back.pause_ns = PAUSE_NS;
    yb_timer_init(&ssd->back.timer, fired);
}
