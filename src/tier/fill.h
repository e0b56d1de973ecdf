/* SPDX-License-Identifier: Apache-2.0
 *
 * fill.h -- how much under way makes a disk or a service as fast as it can be.
 *
 * What is under way beyond that waits there, in an order that nobody here has a say in,
 * and an urgent request waits behind it. By Little's law a service is busy with as many bytes as
 * it brings in the time that one request takes alone:
 *
 *     room = 2 * rate * alone
 *
 * Twice, so that a request takes twice as long as alone at the most, and what is measured while no
 * more is under way can still grow. Of a service that is far, and has little to do, `alone` is
 * long: nothing is held back there.
 *
 *     rate   the most that came in a span of 100 ms, or of two requests alone
 *     alone  the mean of those beside which nothing else was under way, ever; where there were
 *            none, the least of the others
 *
 * both of this epoch (10 s) and of the one before, since services change. An epoch begins with a
 * trial, in which there is no room, so that some are alone: for as long as what is under way needs
 * to come, and 80 ms more.
 *
 * Threads   One owner. Pure: time is told, none is read.
 */
#ifndef YB_TIER_FILL_H
#define YB_TIER_FILL_H

#include <stdbool.h>
#include <stdint.h>

struct yb_tier_fill_seen {
    double rate;          /* Bytes a nanosecond. */
    uint64_t least_ns;    /* Of those that were not alone: the quickest, ... */
    uint64_t least_bytes; /* ... and its size. */
    uint64_t alone;
    uint64_t alone_bytes;
    uint64_t alone_ns;
};

/* All zero: nothing has ended yet. Every field is private. */
struct yb_tier_fill {
    uint64_t epoch_ns; /* When it began; 0: it has not. */
    uint64_t trial_until_ns;
    uint64_t span_ns; /* The same. */
    uint64_t span_bytes;
    struct yb_tier_fill_seen seen;
    struct yb_tier_fill_seen before;
};

struct yb_tier_fill_end {
    uint64_t bytes;
    uint64_t took_ns;
    bool alone;         /* Nothing else was under way meanwhile. */
    uint64_t under_way; /* Bytes of others that still are. */
};

/* A request has ended well. */
void yb_tier_fill_ended(struct yb_tier_fill *fill, const struct yb_tier_fill_end *end,
                        uint64_t now_ns);

/* Begin an epoch: somebody has come for whom others hold back. */
void yb_tier_fill_try(struct yb_tier_fill *fill, uint64_t under_way, uint64_t now_ns);

/* Nanoseconds that a request of `size` takes alone; 0: not known. */
uint64_t yb_tier_fill_alone_ns(const struct yb_tier_fill *fill, uint64_t size);

/* Bytes a second, of all that was under way together; 0: not known. */
uint64_t yb_tier_fill_rate(const struct yb_tier_fill *fill);

/* Bytes that may be under way, in requests of `size`. 0: it is tried, or not known. */
uint64_t yb_tier_fill_room(const struct yb_tier_fill *fill, uint64_t size, uint64_t now_ns);

#endif /* YB_TIER_FILL_H */
