/* SPDX-License-Identifier: Apache-2.0
 *
 * Kills and flush epochs. A kill takes the entries out of the index at once and sets their bits;
 * the blocks of the maps that changed are written in rounds, each ended by a sync, which ends the
 * kills that came before it began. A flush raises the tenant's epoch in memory at once and is done
 * when the superblock is durable.
 */
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "tier/ssd/ssd_internal.h"

#define SWEEP_STEP 4096u

/* ---- tenants and their eras ------------------------------------------------------------- */

static struct yb_ssd_tenant_row *
rows_of(struct yb_ssd *ssd)
{
    return (struct yb_ssd_tenant_row *)(ssd->super + 1);
}

static uint32_t
tenant_slot(const struct yb_ssd *ssd, const char *name)
{
    const struct yb_ssd_tenant_row *rows = (const struct yb_ssd_tenant_row *)(ssd->super + 1);
    uint32_t slot = (uint32_t)yb_hash_table(0, name, strlen(name)) % YB_SSD_TENANT_HASH;

    while (ssd->tenant_hash[slot] != 0 &&
           strcmp(rows[ssd->tenant_hash[slot] - 1].name, name) != 0) {
        slot = (slot + 1) % YB_SSD_TENANT_HASH;
    }
    return slot;
}

bool
yb_ssd_tenant(struct yb_ssd *ssd, const char *name, uint32_t *tenant_out)
{
    uint32_t slot = tenant_slot(ssd, name);
    struct yb_ssd_tenant_row *row;

    if (ssd->tenant_hash[slot] == 0) {
        if (ssd->super->tenant_count == YB_SSD_TENANTS_MAX) {
            return false;
        }
        row = &rows_of(ssd)[ssd->super->tenant_count++];
        memset(row, 0, sizeof *row);
        memcpy(row->name, name, strlen(name) + 1);
        ssd->tenant_hash[slot] = (uint16_t)ssd->super->tenant_count;
    }
    *tenant_out = ssd->tenant_hash[slot] - 1u;
    return true;
}

bool
yb_ssd_era(struct yb_ssd *ssd, const char *name, uint64_t flush, uint32_t *era_out)
{
    uint32_t tenant;
    uint32_t number;

    if (!yb_ssd_tenant(ssd, name, &tenant)) {
        return false;
    }
    for (number = ssd->tenant_era[tenant]; number != 0; number = ssd->eras[number - 1].next) {
        if (ssd->eras[number - 1].flush == flush) {
            *era_out = number - 1;
            return true;
        }
    }
    if (ssd->era_free != 0) {
        number = ssd->era_free;
        ssd->era_free = ssd->eras[number - 1].next;
    } else if (ssd->era_count < YB_SSD_ERAS_MAX) {
        number = ++ssd->era_count;
    } else {
        return false;
    }
    ssd->eras[number - 1] =
        (struct yb_ssd_era){.flush = flush, .tenant = tenant, .next = ssd->tenant_era[tenant]};
    ssd->tenant_era[tenant] = number;
    *era_out = number - 1;
    return true;
}

/* ---- kills ------------------------------------------------------------------------------ */

static struct yb_ssd_killed *
killed_slot(const struct yb_ssd *ssd, struct yb_id hash, uint64_t grant)
{
    return &ssd->killed[yb_hash_table_id(grant, hash) % YB_SSD_KILLED];
}

bool
yb_ssd_was_killed(const struct yb_ssd *ssd, struct yb_id hash, uint64_t grant)
{
    const struct yb_ssd_killed *slot = killed_slot(ssd, hash, grant);

    return slot->grant == grant && yb_id_equal(slot->hash, hash);
}

bool
yb_ssd_kill_parked(const struct yb_ssd *ssd, struct yb_id hash, uint64_t grant)
{
    for (const struct yb_tier_op *op = ssd->parked.head; op != NULL; op = op->next) {
        const struct yb_tier_kill *kill = (const struct yb_tier_kill *)op;

        if (kill->grant == grant && yb_id_equal(kill->hash, hash)) {
            return true;
        }
    }
    return false;
}

/* Set the bit of a record; the block around it waits for the next round. */
static void
set_bit(struct yb_ssd *ssd, uint64_t unit)
{
    uint32_t segment = yb_ssd_segment_of(ssd, unit);
    uint32_t inside = (uint32_t)(unit - yb_ssd_segment_unit(ssd, segment));
    uint64_t block = (segment * ssd->map_bytes + yb_ssd_map_block(inside)) / YB_SSD_BLOCK_BYTES;

    yb_ssd_map_set(yb_ssd_map_of(ssd, segment), ssd->segments[segment].life, inside);
    ssd->segments[segment].mapped = true;
    if (ssd->map_dirty[block] == 0) {
        ssd->map_dirty[block] = 1;
        ssd->dirty[ssd->dirty_count++] = block;
    }
}

/* S2: every copy. */
static void
kill_entries(struct yb_ssd *ssd, const struct yb_tier_kill *kill)
{
    uint64_t cursor = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, kill->hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (entry.grant == kill->grant) {
            set_bit(ssd, entry.unit);
            yb_ssd_forget(ssd, number, false);
            cursor = 0;
        }
    }
}

static bool
means(const struct yb_tier_kill *kill, const struct yb_tier_record *record)
{
    return kill->grant == record->grant && yb_id_equal(kill->hash, record->hash);
}

/* T2: a store that is under way ends STALE. One that is staged already ends so by itself. */
static void
kill_stores(struct yb_ssd *ssd, const struct yb_tier_kill *kill)
{
    struct yb_ssd_staging *staging = &ssd->staging;
    struct yb_tier_op *next;

    for (struct yb_tier_op *op = ssd->stores.head; op != NULL; op = next) {
        next = op->next;
        if (means(kill, &((struct yb_tier_store *)op)->record)) {
            yb_ssd_store_end_early(ssd, (struct yb_tier_store *)op, YB_STALE);
        }
    }
    if (!staging->busy || staging->op == NULL || !means(kill, &staging->op->record)) {
        return;
    }
    if (staging->op == &ssd->reclaim.store) {
        staging->op = NULL;
        staging->abandoned = true;
        yb_ssd_reclaim_staged(ssd, ssd->staged_end);
    } else {
        yb_ssd_store_end_early(ssd, staging->op, YB_STALE);
    }
}

enum yb_status
yb_ssd_kill(struct yb_tier *tier, struct yb_tier_kill *kill)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);
    uint32_t count = ssd->kills.count + ssd->parked.count + ssd->round.count;

    if (ssd->stopping) {
        return YB_CLOSED;
    }
    if (ssd->aside != YB_OK) {
        return YB_IO;
    }
    if (count >= ssd->options.operations_max) {
        return YB_AGAIN;
    }
    *killed_slot(ssd, kill->hash, kill->grant) =
        (struct yb_ssd_killed){.hash = kill->hash, .grant = kill->grant};
    if (ssd->segments != NULL) {
        kill_entries(ssd, kill);
    }
    kill_stores(ssd, kill);
    kill->op.state = YB_SSD_OP_WAITING;
    /* What the recovery has not found yet it may find later. */
    yb_ssd_list_add(ssd->recover.step == YB_SSD_RECOVER_DONE ? &ssd->kills : &ssd->parked,
                    &kill->op);
    yb_ssd_watch_deadline(ssd, kill->op.deadline_ns);
    yb_ssd_wake(ssd);
    return YB_OK;
}

void
yb_ssd_kill_recovered(struct yb_ssd *ssd)
{
    struct yb_tier_op *op;

    while ((op = yb_ssd_list_take(&ssd->parked)) != NULL) {
        kill_entries(ssd, (struct yb_tier_kill *)op);
        yb_ssd_list_add(&ssd->kills, op);
    }
}

/* ---- rounds ----------------------------------------------------------------------------- */

static void
kill_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;

    ssd->round_writes--;
    if (error != 0) {
        yb_ssd_failed(ssd, "write a kill map", error);
        return;
    }
    if (ssd->round_writes == 0 && ssd->aside == YB_OK) {
        ssd->round_written = true;
        ssd->round_sync = yb_ssd_sync_request(ssd);
    }
}

static void
round_write(struct yb_ssd *ssd)
{
    uint64_t per_map = ssd->map_bytes / YB_SSD_BLOCK_BYTES;

    while (ssd->round_writes < YB_SSD_KILL_PAGES && ssd->dirty_count > 0) {
        uint64_t block = ssd->dirty[--ssd->dirty_count];
        uint64_t offset = YB_SSD_SEGMENTS_START + block / per_map * ssd->segment_bytes +
                          (1 + block % per_map) * YB_SSD_BLOCK_BYTES;
        struct yb_ssd_transfer *io = &ssd->kill_io[ssd->round_writes++];

        ssd->map_dirty[block] = 0;
        io->then = kill_then;
        yb_ssd_transfer_start(ssd, io, YB_SSD_IO_WRITE, offset,
                              ssd->maps + block * YB_SSD_BLOCK_BYTES, YB_SSD_BLOCK_BYTES);
    }
}

static void
flush_write(struct yb_ssd *ssd)
{
    struct yb_tier_op *op;

    while ((op = yb_ssd_list_take(&ssd->flushes)) != NULL) {
        yb_ssd_list_add(&ssd->flushing, op);
    }
    yb_ssd_super_write(ssd);
}

void
yb_ssd_kill_pump(struct yb_ssd *ssd)
{
    struct yb_tier_op *op;

    if (ssd->aside != YB_OK) {
        return;
    }
    if (ssd->stopping) {
        yb_ssd_end_all(ssd, &ssd->parked, YB_IN_DOUBT);
        if (ssd->segments == NULL) {
            yb_ssd_end_all(ssd, &ssd->flushes, YB_IN_DOUBT);
        }
    }
    if (!ssd->round_busy && (ssd->kills.count > 0 || ssd->dirty_count > 0)) {
        ssd->round_busy = true;
        ssd->round_written = false;
        round_write(ssd);
        /* A round takes so many blocks; kills whose blocks are left wait for the next. */
        while (ssd->dirty_count == 0 && (op = yb_ssd_list_take(&ssd->kills)) != NULL) {
            yb_ssd_list_add(&ssd->round, op);
        }
        if (ssd->round_writes == 0) { /* Nothing was here: nothing has to be written. */
            ssd->round_busy = false;
            yb_ssd_end_all(ssd, &ssd->round, YB_OK);
        }
    }
    if (!ssd->super_busy && ssd->flushes.count > 0 && ssd->recover.step > YB_SSD_RECOVER_HEADERS) {
        flush_write(ssd);
    }
}

void
yb_ssd_kill_synced(struct yb_ssd *ssd)
{
    if (ssd->round_busy && ssd->round_written && ssd->sync_done >= ssd->round_sync) {
        ssd->round_busy = false;
        yb_ssd_end_all(ssd, &ssd->round, YB_OK);
        yb_ssd_wake(ssd);
    }
    if (ssd->super_busy && ssd->super_written && ssd->sync_done >= ssd->super_sync) {
        ssd->super_busy = false;
        yb_ssd_end_all(ssd, &ssd->flushing, YB_OK);
        ssd->sweep_again = true;
        yb_ssd_wake(ssd);
    }
}

/* ---- the superblock --------------------------------------------------------------------- */

static void
super_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd *ssd = transfer->ssd;

    if (error != 0) {
        yb_ssd_failed(ssd, "write the superblock", error);
        return;
    }
    ssd->super_written = true;
    ssd->super_sync = yb_ssd_sync_request(ssd);
}

void
yb_ssd_super_write(struct yb_ssd *ssd)
{
    size_t length = yb_ssd_super_bytes(ssd->super->tenant_count);

    YB_ASSERT(!ssd->super_busy);
    ssd->super->sequence++;
    memcpy(ssd->super_out, ssd->super, length);
    yb_ssd_super_encode((struct yb_ssd_super *)(void *)ssd->super_out);
    ssd->super_busy = true;
    ssd->super_written = false;
    ssd->super_io.then = super_then;
    yb_ssd_transfer_start(ssd, &ssd->super_io, YB_SSD_IO_WRITE,
                          ssd->super->sequence % 2 * YB_SSD_SUPER_BYTES, ssd->super_out, length);
}

/* Make a tenant's older blocks a miss. */
static bool
raise(struct yb_ssd *ssd, const struct yb_tier_flush *flush)
{
    uint32_t tenant;

    if (!yb_ssd_tenant(ssd, flush->tenant, &tenant)) {
        return false;
    }
    if (rows_of(ssd)[tenant].flush < flush->flush) {
        rows_of(ssd)[tenant].flush = flush->flush;
    }
    return true;
}

void
yb_ssd_super_read(struct yb_ssd *ssd)
{
    for (uint32_t i = 0; i < ssd->super->tenant_count; i++) {
        rows_of(ssd)[i].name[YB_SSD_TENANT_BYTES - 1] = '\0';
        ssd->tenant_hash[tenant_slot(ssd, rows_of(ssd)[i].name)] = (uint16_t)(i + 1);
    }
    for (struct yb_tier_op *op = ssd->flushes.head; op != NULL; op = op->next) {
        (void)raise(ssd, (struct yb_tier_flush *)op); /* There are fewer than rows. */
    }
}

static void
flush_stores(struct yb_ssd *ssd, const struct yb_tier_flush *flush)
{
    struct yb_tier_op *next;

    for (struct yb_tier_op *op = ssd->stores.head; op != NULL; op = next) {
        struct yb_tier_store *store = (struct yb_tier_store *)op;

        next = op->next;
        if (store->record.flush < flush->flush &&
            strcmp(store->record.tenant, flush->tenant) == 0) {
            yb_ssd_store_end_early(ssd, store, YB_STALE);
        }
    }
}

enum yb_status
yb_ssd_flush(struct yb_tier *tier, struct yb_tier_flush *flush)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);

    if (ssd->stopping) {
        return YB_CLOSED;
    }
    if (ssd->aside != YB_OK) {
        return YB_IO;
    }
    if (strlen(flush->tenant) >= YB_SSD_TENANT_BYTES) {
        return YB_INVALID;
    }
    if (ssd->flushes.count + ssd->flushing.count >= ssd->options.operations_max) {
        return YB_AGAIN;
    }
    if (ssd->segments != NULL && !raise(ssd, flush)) {
        return YB_NO_SPACE;
    }
    flush_stores(ssd, flush);
    flush->op.state = YB_SSD_OP_WAITING;
    yb_ssd_list_add(&ssd->flushes, &flush->op);
    yb_ssd_watch_deadline(ssd, flush->op.deadline_ns);
    yb_ssd_wake(ssd);
    return YB_OK;
}

/* Take what flushes have made a miss out of the index, some of it at a time. */
void
yb_ssd_sweep(struct yb_ssd *ssd)
{
    uint32_t limit = yb_ssd_index_limit(ssd->index);
    uint32_t end;

    /* S1: what a flush makes a miss keeps its entry until the superblock says so. */
    if (ssd->super_busy || ssd->flushes.count > 0) {
        return;
    }
    if (!ssd->sweeping && ssd->sweep_again) {
        ssd->sweeping = true;
        ssd->sweep_again = false;
        ssd->sweep_at = 0;
    }
    if (!ssd->sweeping) {
        return;
    }
    end = limit - ssd->sweep_at < SWEEP_STEP ? limit : ssd->sweep_at + SWEEP_STEP;
    for (; ssd->sweep_at < end; ssd->sweep_at++) {
        if (yb_ssd_index_used(ssd->index, ssd->sweep_at)) {
            struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, ssd->sweep_at);

            if (yb_ssd_is_dead(ssd, &entry)) {
                yb_ssd_forget(ssd, ssd->sweep_at, false);
            }
        }
    }
    ssd->sweeping = ssd->sweep_at < limit;
    if (ssd->sweeping || ssd->sweep_again) {
        yb_ssd_wake(ssd);
    }
}

bool
yb_ssd_kill_idle(const struct yb_ssd *ssd)
{
    return ssd->kills.count == 0 && ssd->parked.count == 0 && ssd->round.count == 0 &&
           ssd->flushes.count == 0 && ssd->flushing.count == 0;
}
