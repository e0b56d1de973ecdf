/* SPDX-License-Identifier: Apache-2.0 */
#include "base/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/lock.h"

#define QUEUE_MAGIC    0x71756575u
#define CAPACITY_MAX   (1u << 31)
#define ITEM_BYTES_MAX 4096u

struct yb_queue {
    uint32_t magic;
    uint32_t capacity; /* Immutable. */
    size_t item_bytes; /* Immutable. */
    const char *name;  /* Immutable. */

    struct yb_lock lock; /* Protects everything below. */
    uint8_t *ring;
    uint32_t oldest;  /* Index of the next pop. */
    uint32_t waiting; /* Items from `oldest` on. */
    uint32_t waiting_max;
    uint64_t refused_count;
};

enum yb_status
yb_queue_create(const char *name, size_t item_bytes, uint32_t capacity, struct yb_queue **queue_out)
{
    struct yb_queue *queue;

    YB_ASSERT(name != NULL);
    YB_ASSERT(queue_out != NULL);
    if (item_bytes == 0 || item_bytes > ITEM_BYTES_MAX || capacity == 0 ||
        capacity > CAPACITY_MAX) {
        return YB_INVALID;
    }
    queue = calloc(1, sizeof(*queue));
    if (queue == NULL) {
        goto err;
    }
    queue->ring = calloc(capacity, item_bytes);
    if (queue->ring == NULL) {
        goto err_free_queue;
    }
    queue->magic = QUEUE_MAGIC;
    queue->capacity = capacity;
    queue->item_bytes = item_bytes;
    queue->name = name;
    yb_lock_init(&queue->lock, YB_LOCK_QUEUE);
    *queue_out = queue;
    return YB_OK;

err_free_queue:
    free(queue);
err:
    return YB_NO_MEMORY;
}

void
yb_queue_destroy(struct yb_queue **queue_ref)
{
    struct yb_queue *queue = *queue_ref;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    *queue_ref = NULL;
    queue->magic = 0;
    yb_lock_fini(&queue->lock);
    free(queue->ring);
    free(queue);
}

/* Return the place of the `position`-th item behind the oldest. */
static uint8_t *
place_locked(struct yb_queue *queue, uint32_t position)
{
    uint64_t index = ((uint64_t)queue->oldest + position) % queue->capacity;

    yb_lock_assert_held(&queue->lock);
    return queue->ring + index * queue->item_bytes;
}

enum yb_status
yb_queue_try_push(struct yb_queue *queue, const void *item)
{
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    YB_ASSERT(item != NULL);
    yb_lock_acquire(&queue->lock);
    if (queue->waiting == queue->capacity) {
        queue->refused_count++;
        status = YB_AGAIN;
    } else {
        memcpy(place_locked(queue, queue->waiting), item, queue->item_bytes);
        queue->waiting++;
        if (queue->waiting > queue->waiting_max) {
            queue->waiting_max = queue->waiting;
        }
    }
    yb_lock_release(&queue->lock);
    return status;
}

enum yb_status
yb_queue_try_pop(struct yb_queue *queue, void *item_out)
{
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    YB_ASSERT(item_out != NULL);
    yb_lock_acquire(&queue->lock);
    if (queue->waiting == 0) {
        status = YB_AGAIN;
    } else {
        memcpy(item_out, place_locked(queue, 0), queue->item_bytes);
        queue->oldest = queue->oldest + 1 == queue->capacity ? 0 : queue->oldest + 1;
        queue->waiting--;
    }
    yb_lock_release(&queue->lock);
    return status;
}

void
yb_queue_counts(struct yb_queue *queue, struct yb_queue_counts *counts_out)
{
    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    yb_lock_acquire(&queue->lock);
    *counts_out = (struct yb_queue_counts){
        .name = queue->name,
        .capacity = queue->capacity,
        .waiting = queue->waiting,
        .waiting_max = queue->waiting_max,
        .refused_count = queue->refused_count,
    };
    yb_lock_release(&queue->lock);
}
