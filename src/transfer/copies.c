/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/copies.h"

#include <sched.h>
#include <string.h>

#include "base/check.h"

#define LOOK_NS YB_NS_PER_MS       /* Between looks at a device that is slow ... */
#define SPIN_NS (YB_NS_PER_MS / 5) /* ... after so long without progress. */

static void
look_again(struct yb_copies *copies)
{
    uint64_t now_ns = yb_loop_now(copies->loop);

    if (yb_copies_idle(copies)) {
        return;
    }
    yb_loop_arm(copies->loop, &copies->timer, yb_deadline_after(now_ns, LOOK_NS));
    if (now_ns - copies->progress_ns < SPIN_NS) {
        (void)sched_yield(); /* Whoever makes progress may need this processor. */
        yb_loop_defer(copies->loop, &copies->task);
    }
}

/* Start what waits, as much as there is room for. */
static void
start_waiting(struct yb_copies *copies)
{
    while (copies->waiting != NULL) {
        struct yb_memory_copy *copy = copies->waiting;
        struct yb_memory_copy *next = copy->next; /* The queue uses the link itself. */
        enum yb_status status = yb_memory_copy_start(copies->queue, copy);

        if (status == YB_AGAIN) {
            copy->next = next;
            return;
        }
        copies->waiting = next;
        copies->waiting_last = next != NULL ? copies->waiting_last : NULL;
        if (status != YB_OK) {
            copy->done(copy, status);
        }
    }
}

static void
look(struct yb_copies *copies)
{
    if (yb_memory_poll(copies->queue) > 0) {
        copies->progress_ns = yb_loop_now(copies->loop);
    }
    start_waiting(copies);
    look_again(copies);
}

static void
on_timer(struct yb_timer *timer)
{
    look((struct yb_copies *)((uint8_t *)timer - offsetof(struct yb_copies, timer)));
}

static void
on_task(struct yb_task *task)
{
    look((struct yb_copies *)((uint8_t *)task - offsetof(struct yb_copies, task)));
}

void
yb_copies_init(struct yb_copies *copies, struct yb_memory *memory, struct yb_loop *loop)
{
    memset(copies, 0, sizeof(*copies));
    copies->loop = loop;
    copies->task.run = on_task;
    yb_timer_init(&copies->timer, on_timer);
    if (yb_memory_device_count(memory) > 0 &&
        yb_memory_queue_create(memory, &copies->queue) != YB_OK) {
        copies->queue = NULL;
    }
}

void
yb_copies_fini(struct yb_copies *copies)
{
    YB_ASSERT(yb_copies_idle(copies));
    yb_loop_disarm(copies->loop, &copies->timer);
    yb_loop_undefer(copies->loop, &copies->task);
    if (copies->queue != NULL) {
        yb_memory_queue_destroy(&copies->queue);
    }
}

uint8_t *
yb_copies_take(struct yb_copies *copies, enum yb_copies_side side, struct yb_id owner)
{
    struct yb_copies_lent *place = NULL;
    uint32_t mine = 0;
    uint32_t free = 0;

    if (copies->queue == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < YB_COPIES_SLICES_PER_SIDE; i++) {
        struct yb_copies_lent *lent = &copies->lent[side][i];

        if (lent->bytes == NULL) {
            place = lent;
            free++;
        } else if (yb_id_equal(lent->owner, owner)) {
            mine++;
        }
    }
    if (mine >= free) { /* C2 */
        return NULL;
    }
    place->bytes = yb_memory_staging_take(copies->queue);
    YB_ASSERT(place->bytes != NULL); /* There is one for each place. */
    place->owner = owner;
    return place->bytes;
}

void
yb_copies_give(struct yb_copies *copies, enum yb_copies_side side, uint8_t *bytes)
{
    uint32_t i = 0;

    while (i < YB_COPIES_SLICES_PER_SIDE && copies->lent[side][i].bytes != bytes) {
        i++;
    }
    YB_ASSERT(i < YB_COPIES_SLICES_PER_SIDE);
    copies->lent[side][i].bytes = NULL;
    yb_memory_staging_give(copies->queue, bytes);
}

enum yb_status
yb_copies_start(struct yb_copies *copies, struct yb_memory_copy *copy)
{
    enum yb_status status = YB_AGAIN;

    if (copies->queue == NULL) {
        return YB_UNSUPPORTED;
    }
    if (copies->waiting == NULL) { /* C3 */
        status = yb_memory_copy_start(copies->queue, copy);
    }
    if (status == YB_AGAIN) {
        copy->next = NULL;
        if (copies->waiting == NULL) {
            copies->waiting = copy;
        } else {
            copies->waiting_last->next = copy;
        }
        copies->waiting_last = copy;
        status = YB_OK;
    }
    if (status == YB_OK) {
        copies->progress_ns = yb_loop_now(copies->loop);
        look_again(copies);
    }
    return status;
}

bool
yb_copies_idle(const struct yb_copies *copies)
{
    return copies->queue == NULL ||
           (copies->waiting == NULL && yb_memory_pending(copies->queue) == 0);
}
