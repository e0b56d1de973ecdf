/* SPDX-License-Identifier: Apache-2.0
 *
 * fair.h -- who goes next on a contended resource.
 *
 * One yb_fair stands in front of one thing that serves bytes one after another: a connection's
 * send queue, a device, a helper pool. It decides the order and nothing else.
 *
 * Between classes: the most preferred class with work goes first (first_token, throughput,
 * background), except that a less preferred class is owed a share of what is served while it
 * waits. Strict preference alone would starve repair and demotion for as long as users keep the
 * machine busy, and a machine that cannot demote soon serves nobody.
 * Inside a class: the earliest deadline first; equal deadlines in the order of arrival.
 *
 * How: while class c has work, every pop of b bytes adds s_c * b to what c is owed. If somebody is
 * owed more than nothing, the class that is owed most goes, and pays b; otherwise the most
 * preferred class goes, and pays nothing: what it gets through preference it does not owe. A class
 * without work is owed nothing, so that nobody saves up for a burst, but keeps a debt.
 *
 * Guarantees, with M = cost_bytes_max and s_c = share_permille[c] / 1000
 *   F1  Work-conserving: pop returns an item whenever there is one.
 *   F2  Share: in any run of pops of W bytes throughout which class c had work, c got at least
 *       s_c * W - 3 M bytes.
 *   F3  Preference: in any run of pops of W bytes throughout which class p had work, each class c
 *       less preferred than p got at most s_c * W + 3 M bytes.
 *   F4  Deadlines: pop returns the earliest deadline of its class, and of equal ones the oldest.
 *
 *   Why: no class is ever owed less than -M, since it pays only while it is owed more than
 *   nothing. No class is ever owed more than 2 M. Let P be the sum of what is owed above nothing.
 *   A pop by preference finds P = 0 and leaves at most (s_1 + s_2) M <= M. A pop of class d by
 *   debt that covers its pay of (1 - s_d) b does not raise P, as s_1 + s_2 <= 1; if the debt does
 *   not cover it, d ends below nothing, and the other, which was owed no more than d, ends with at
 *   most (1 - s_d) M + s_c M <= 2 M. F2 and F3 are the change of what c is owed over the run.
 *
 * Threads   One owner; no lock.
 * Memory    The caller owns the scheduler and its items. A pushed item is borrowed until pop or
 *           remove returns it, and must not change or move meanwhile. Nothing is allocated; the
 *           number of items is bounded by whoever owns them.
 * Time      Deadlines are numbers to compare; no clock is read. An item whose deadline has passed
 *           still goes first: whoever pops it decides what that means.
 */
#ifndef YB_BASE_FAIR_H
#define YB_BASE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

/* Bound of cost_bytes_max, so that what is owed fits 64 bits. */
#define YB_FAIR_COST_BYTES_LIMIT (1ull << 48)

struct yb_fair_options {
    uint64_t cost_bytes_max;                 /* M: no item costs more. */
    uint16_t share_permille[YB_CLASS_COUNT]; /* [FIRST_TOKEN] is 0: it is preferred already. */
};

struct yb_fair_item {
    enum yb_class traffic_class; /* Caller. */
    uint64_t deadline_ns;        /* Caller; YB_NEVER: after all others. */
    uint64_t cost_bytes;         /* Caller; 0 counts as 1. */
    uint64_t sequence;           /* Private from here. */
    struct yb_fair_item *child;
    struct yb_fair_item *next;
    struct yb_fair_item *previous; /* The elder sibling, or the parent of the eldest. */
    bool queued;
};

/* What waits in one class. */
struct yb_fair_class {
    struct yb_fair_item *root; /* A pairing heap. */
    uint32_t item_count;
    uint64_t backlog_bytes;
    int64_t owed; /* Bytes times 1000. */
};

/* Owned by the caller; every field is private. */
struct yb_fair {
    uint32_t magic;
    struct yb_fair_options options;
    uint64_t next_sequence;
    struct yb_fair_class classes[YB_CLASS_COUNT];
};

/* Make the scheduler empty. Fails with INVALID: cost_bytes_max is 0 or above the limit, the first
 * class has a share, or the shares add up to more than 1000. */
YB_CHECKED enum yb_status yb_fair_init(struct yb_fair *fair, const struct yb_fair_options *options);

/* End the scheduler's life. It is a bug, and aborts, if an item is still queued. */
void yb_fair_fini(struct yb_fair *fair);

/* Set the caller's fields and make the item ready to be pushed. */
void yb_fair_item_init(struct yb_fair_item *item, enum yb_class traffic_class, uint64_t deadline_ns,
                       uint64_t cost_bytes);

/* Queue an item: O(1). It is a bug, and aborts, if it is queued already, costs more than M, or
 * has a class outside the table. */
void yb_fair_push(struct yb_fair *fair, struct yb_fair_item *item);

/* Return what pop would return, without taking it: O(1). NULL: nothing waits. */
struct yb_fair_item *yb_fair_peek(const struct yb_fair *fair);

/* Return the item of a class with the earliest deadline: O(1). NULL: nothing waits in it. */
struct yb_fair_item *yb_fair_earliest(const struct yb_fair *fair, enum yb_class traffic_class);

/* Take the next item: O(log n) amortised. NULL: nothing waits. */
struct yb_fair_item *yb_fair_pop(struct yb_fair *fair);

/* Take a queued item out without serving it, so that nobody pays: O(log n) amortised. To change
 * an item (a joiner with an earlier deadline), remove it, change it, push it. */
void yb_fair_remove(struct yb_fair *fair, struct yb_fair_item *item);

/* Return the bytes that wait in a class, for ready times and metrics. */
uint64_t yb_fair_backlog_bytes(const struct yb_fair *fair, enum yb_class traffic_class);

/* Return how many items wait in a class. */
uint32_t yb_fair_item_count(const struct yb_fair *fair, enum yb_class traffic_class);

#endif /* YB_BASE_FAIR_H */
