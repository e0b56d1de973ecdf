/* SPDX-License-Identifier: Apache-2.0
 *
 * All the memory there is: most of it at once, the rest when the superblock says how long segments
 * are. What is large comes from the system as it is touched.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tier/ssd/ssd_internal.h"

/* A record of one batch with its head, on whole blocks at both ends. */
#define READER_EXTRA (4u * YB_SSD_BLOCK_BYTES)
#define BLOCKS       5u /* Opener, sealer, reclaim, recovery, the trial. */

static uint8_t *
pages(uint64_t bytes)
{
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static void
unmap(void *memory, uint64_t bytes)
{
    if (memory != NULL) {
        YB_ASSERT(munmap(memory, (size_t)bytes) == 0);
    }
}

/* Hand out the staging memory. */
static void
share_out(struct yb_ssd *ssd)
{
    const struct yb_ssd_options *o = &ssd->options;
    uint8_t *at = ssd->memory;

    for (uint32_t i = 0; i < o->write_buffers; i++, at += o->batch_bytes) {
        ssd->buffers[i].bytes = at;
    }
    for (uint32_t i = 0; i < o->read_buffers; i++, at += o->batch_bytes + READER_EXTRA) {
        ssd->readers[i].bytes = at;
        ssd->readers[i].next = ssd->reader_free;
        ssd->reader_free = &ssd->readers[i];
    }
    ssd->recover.bytes = at;
    at += o->batch_bytes + READER_EXTRA;
    ssd->recover.block = at;
    ssd->opener.block = at + YB_SSD_BLOCK_BYTES;
    ssd->sealer.block = at + 2 * YB_SSD_BLOCK_BYTES;
    ssd->reclaim.block = at + 3 * YB_SSD_BLOCK_BYTES;
    ssd->back.block = at + 4 * YB_SSD_BLOCK_BYTES;
    at += BLOCKS * YB_SSD_BLOCK_BYTES;
    ssd->reclaim.page_bytes = at;
    at += YB_SSD_FOOTER_PAGE;
    YB_ASSERT(at == ssd->memory + ssd->memory_bytes);
}

static void
chain_slots(struct yb_ssd *ssd)
{
    for (uint32_t i = ssd->options.operations_max + 1; i-- > 0;) {
        ssd->stored_slots[i].next = ssd->stored_free;
        ssd->stored_free = &ssd->stored_slots[i];
        ssd->loading_slots[i].next = ssd->loading_free;
        ssd->loading_free = &ssd->loading_slots[i];
    }
    ssd->stored_tail = &ssd->stored_head;
    ssd->current = YB_SSD_SEGMENT_NO;
    ssd->next_segment = YB_SSD_SEGMENT_NO;
    ssd->budget = (double)ssd->options.write_budget;
    ssd->budget_ns = yb_loop_now(ssd->loop);
}

enum yb_status
yb_ssd_memory_init(struct yb_ssd *ssd)
{
    static const struct yb_fair_options fair = {
        .cost_bytes_max = 1ull << 32,
        .share_permille = {0, YB_SSD_SHARE_THROUGHPUT, YB_SSD_SHARE_BACKGROUND}};
    const struct yb_ssd_options *o = &ssd->options;
    size_t slots = (size_t)o->operations_max + 1; /* One more for reclaim. */

    YB_ASSERT(yb_fair_init(&ssd->queue, &fair) == YB_OK);
    ssd->memory_bytes = o->write_buffers * o->batch_bytes +
                        (o->read_buffers + 1) * (o->batch_bytes + READER_EXTRA) +
                        BLOCKS * YB_SSD_BLOCK_BYTES + YB_SSD_FOOTER_PAGE;
    ssd->memory = pages(ssd->memory_bytes);
    ssd->reclaim.value = pages(YB_SSD_VALUE_BYTES_MAX);
    ssd->super = (struct yb_ssd_super *)(void *)pages(YB_SSD_SUPER_BYTES);
    ssd->super_out = pages(YB_SSD_SUPER_BYTES);
    ssd->buffers = calloc(o->write_buffers, sizeof *ssd->buffers);
    ssd->readers = calloc(o->read_buffers, sizeof *ssd->readers);
    ssd->stored_slots = calloc(slots, sizeof *ssd->stored_slots);
    ssd->loading_slots = calloc(slots, sizeof *ssd->loading_slots);
    ssd->killed = calloc(YB_SSD_KILLED, sizeof *ssd->killed);
    ssd->eras = calloc(YB_SSD_ERAS_MAX, sizeof *ssd->eras);
    ssd->tenant_era = calloc(YB_SSD_TENANTS_MAX, sizeof *ssd->tenant_era);
    ssd->tenant_hash = calloc(YB_SSD_TENANT_HASH, sizeof *ssd->tenant_hash);
    for (uint32_t i = 0; i < YB_SSD_FOOTERS; i++) {
        ssd->footers[i].segment = YB_SSD_SEGMENT_NO;
    }
    if (ssd->memory == NULL || ssd->reclaim.value == NULL || ssd->super == NULL ||
        ssd->super_out == NULL || ssd->buffers == NULL || ssd->readers == NULL ||
        ssd->stored_slots == NULL || ssd->loading_slots == NULL || ssd->killed == NULL ||
        ssd->eras == NULL || ssd->tenant_era == NULL || ssd->tenant_hash == NULL ||
        yb_ssd_index_create(o->records_max, &ssd->index) != YB_OK) {
        return YB_NO_MEMORY;
    }
    share_out(ssd);
    chain_slots(ssd);
    return YB_OK;
}

enum yb_status
yb_ssd_segments_init(struct yb_ssd *ssd)
{
    uint64_t size = ssd->device->ops->size(ssd->device);
    uint64_t there =
        size <= YB_SSD_SEGMENTS_START
            ? 0
            : (size - YB_SSD_SEGMENTS_START + ssd->segment_bytes - 1) / ssd->segment_bytes;
    uint64_t wanted = ssd->options.capacity / ssd->segment_bytes;
    uint64_t count = there > wanted ? there : wanted;
    struct yb_ssd_segment *segments;
    bool complete = true;

    if (count > YB_SSD_CAPACITY_MAX / ssd->segment_bytes) {
        return YB_INVALID;
    }
    if (ssd->options.footer_bytes > ssd->segment_bytes / 2) {
        ssd->options.footer_bytes = ssd->segment_bytes / 4;
    }
    segments = calloc(count, sizeof *segments);
    ssd->map_bytes = yb_ssd_map_bytes(ssd->segment_bytes);
    ssd->segment_count = (uint32_t)count;
    ssd->maps = pages(count * ssd->map_bytes);
    ssd->map_dirty = calloc(count * ssd->map_bytes / YB_SSD_BLOCK_BYTES, 1);
    ssd->dirty = calloc(count * ssd->map_bytes / YB_SSD_BLOCK_BYTES, sizeof *ssd->dirty);
    ssd->recover.order = calloc(count, sizeof *ssd->recover.order);
    for (uint32_t i = 0; i < YB_SSD_FOOTERS; i++) {
        ssd->footers[i].pages = pages(ssd->options.footer_bytes);
        complete = complete && ssd->footers[i].pages != NULL;
    }
    if (segments == NULL || ssd->maps == NULL || ssd->map_dirty == NULL || ssd->dirty == NULL ||
        ssd->recover.order == NULL || !complete) {
        free(segments);
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        segments[i].state = i < there ? YB_SSD_SEGMENT_UNREAD : YB_SSD_SEGMENT_FREE;
        segments[i].reserved =
            i < there && YB_SSD_SEGMENTS_START + (i + 1) * ssd->segment_bytes <= size;
    }
    ssd->segments = segments;
    return YB_OK;
}

void
yb_ssd_memory_fini(struct yb_ssd *ssd)
{
    struct yb_fair_item *item;

    while ((item = yb_fair_pop(&ssd->queue)) != NULL) {
    }
    yb_fair_fini(&ssd->queue);
    if (ssd->index != NULL) {
        yb_ssd_index_destroy(&ssd->index);
    }
    for (uint32_t i = 0; i < YB_SSD_FOOTERS; i++) {
        unmap(ssd->footers[i].pages, ssd->options.footer_bytes);
    }
    free(ssd->recover.order);
    free(ssd->map_dirty);
    unmap(ssd->maps, ssd->segment_count * ssd->map_bytes);
    free(ssd->segments);
    free(ssd->tenant_hash);
    free(ssd->tenant_era);
    free(ssd->eras);
    free(ssd->killed);
    free(ssd->dirty);
    free(ssd->loading_slots);
    free(ssd->stored_slots);
    free(ssd->readers);
    free(ssd->buffers);
    unmap(ssd->super_out, YB_SSD_SUPER_BYTES);
    unmap(ssd->super, YB_SSD_SUPER_BYTES);
    unmap(ssd->reclaim.value, YB_SSD_VALUE_BYTES_MAX);
    unmap(ssd->memory, ssd->memory_bytes);
}
