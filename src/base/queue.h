/* SPDX-License-Identifier: Apache-2.0
 *
 * queue.h -- a bounded first-in first-out queue between threads, of small values.
 *
 * For what is handed over now and then: jobs, spans to export, log lines. Workers that talk all
 * the time use net/mailbox.h, whose mail needs no room of its own.
 *
 * The queue is a ring under one lock that is held for one small copy. A lock-free ring would be
 * faster under contention, but can look empty while a descheduled pusher sits in front of others,
 * and none of its users has contention.
 *
 * Invariants
 *   Q1  What was pushed comes out once, in the order of the pushes.
 *   Q2  Never more than `capacity` items wait; nobody waits for room or for an item.
 *
 * Threads   Any thread, any function but create and destroy. One lock, rank QUEUE; nothing is
 *           called under it.
 * Memory    Items are copied in and out. Everything is allocated by create.
 */
#ifndef YB_BASE_QUEUE_H
#define YB_BASE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_queue;

/* Create a queue for `capacity` items (1 to 2^31) of `item_bytes` (1 to 4096) each. `name` is for
 * logs and metrics: a static string, borrowed.
 *
 * On OK, *queue_out is owned by the caller. Fails with INVALID or NO_MEMORY. */
YB_CHECKED enum yb_status yb_queue_create(const char *name, size_t item_bytes, uint32_t capacity,
                                          struct yb_queue **queue_out);

/* Consume the queue, with what still waits, and set *queue to NULL. No other thread may use it. */
void yb_queue_destroy(struct yb_queue **queue);

/* Append a copy of `item`. Fails with AGAIN when full: room comes with the next pop, and whoever
 * pops says so by its own means. */
YB_CHECKED enum yb_status yb_queue_try_push(struct yb_queue *queue, const void *item);

/* Take the oldest item. Fails with AGAIN when there is none; *item_out is then untouched. */
YB_CHECKED enum yb_status yb_queue_try_pop(struct yb_queue *queue, void *item_out);

/* What a metric shows of a queue. */
struct yb_queue_counts {
    const char *name;
    uint32_t capacity;
    uint32_t waiting;
    uint32_t waiting_max;   /* Since create. */
    uint64_t refused_count; /* Pushes that got AGAIN. */
};

void yb_queue_counts(struct yb_queue *queue, struct yb_queue_counts *counts_out);

#endif /* YB_BASE_QUEUE_H */
