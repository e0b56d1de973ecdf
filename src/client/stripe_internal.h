/* SPDX-License-Identifier: Apache-2.0
 *
 * stripe_internal.h -- a batch with long values under way, for the files that carry it out.
 *
 * stripe.c has what all kinds of batches need, and get, exist and remove; stripe_put.c has put.
 */
#ifndef YB_CLIENT_STRIPE_INTERNAL_H
#define YB_CLIENT_STRIPE_INTERNAL_H

#include "client/core_internal.h"
#include "client/stripe.h"

#define YB_STRIPE_SWEEP_NS (5 * YB_NS_PER_S) /* For parts that nobody names, when it is late. */

/* A manifest, little-endian:
 *
 *     0  magic "YBMF"   4  version 1   8  bytes of the value   16  bytes of each part but the last
 *     24 write id (16)  40 CRC32C of the 40 bytes before       44  zero */
#define YB_STRIPE_MANIFEST_BYTES 48u

/* The name of a part: a zero byte and three letters, write id, number. */
#define YB_STRIPE_KEY_BYTES 24u

struct yb_stripe_plan {
    uint64_t total;
    uint64_t part_bytes;
    uint8_t write[16];
};

/* A batch with long values. */
struct yb_stripe_job {
    struct yb_client_core *core;
    struct yb_stripe_job *newer; /* In the list of the core's jobs. */
    struct yb_stripe_job *older;
    struct yb_client_batch *outer;
    struct yb_client_batch inner;
    struct yb_task task;
    void (*next)(struct yb_stripe_job *job); /* When `inner` has ended. */
    bool running;                            /* It is in the core. */
    bool resting;                            /* `rest` is armed. */
    struct yb_timer rest;
    bool cancelled;
    uint32_t at;       /* The item of the batch that is worked on. */
    uint64_t began_ns; /* The attempt that is under way. */
    uint32_t tries;
    uint32_t replicas; /* Of a put: the fewest of a part. */
    uint32_t placed;   /* Parts that were put. */
    bool lost;         /* Some of those were evicted meanwhile. */
    enum yb_status status;
    uint64_t grant; /* Of the manifest. */
    struct yb_stripe_plan plan;
    struct yb_stripe_plan *plans; /* REMOVE: of every item; a total of 0: it is not striped. */
    struct yb_client_item one;
    struct iovec one_iov;
    uint8_t manifest[YB_STRIPE_MANIFEST_BYTES];
    /* ---- of the value that is worked on; owned ---- */
    struct yb_client_item *items;
    struct iovec *iov;
    uint8_t (*keys)[YB_STRIPE_KEY_BYTES];
    uint32_t count;
    uint32_t first; /* Number of the first of these parts. */
};

/* Bytes of an item's pieces, and whether they are too many for one block. */
uint64_t yb_stripe_value_bytes(const struct yb_client_item *item);
bool yb_stripe_is_long(const struct yb_client_core *core, const struct yb_client_item *item);

/* Write the manifest of the plan into the job; read one, of which no part but the last is shorter
 * than `part_min` (0: as stripe.h says). False: it is none. */
void yb_stripe_write_manifest(struct yb_stripe_job *job);
bool yb_stripe_read_manifest(const uint8_t *bytes, uint64_t part_min,
                             struct yb_stripe_plan *plan_out);
uint64_t yb_stripe_part_count(const struct yb_stripe_plan *plan);

/* Name the parts that bytes `from` to `until` of the value lie in, and lay the caller's pieces over
 * them in that order; NULL: no memory is moved. False: there is no memory for it. */
YB_CHECKED bool yb_stripe_make_parts(struct yb_stripe_job *job, uint64_t from, uint64_t until,
                                     const struct yb_client_item *caller);
void yb_stripe_free_parts(struct yb_stripe_job *job);

/* A batch inside of the batch; put options, flags and deadline may be changed before launch(). When
 * it has ended, `next` is called. */
struct yb_client_batch *yb_stripe_prepare(struct yb_stripe_job *job, enum yb_client_batch_kind kind,
                                          struct yb_client_item *items, uint32_t count);
void yb_stripe_launch(struct yb_stripe_job *job, void (*next)(struct yb_stripe_job *job));

/* Remove the parts that were made, as long as the batch has time; then `next` is called. What is
 * left of them is for sweep(), which frees them and lets the batch go on at once: what nobody names
 * goes by itself, and nobody waits for it past his deadline. */
void yb_stripe_undo(struct yb_stripe_job *job, void (*next)(struct yb_stripe_job *job));
void yb_stripe_sweep(struct yb_stripe_job *job);

/* The batch is over. */
void yb_stripe_finish(struct yb_stripe_job *job);

/* Why nothing new is begun; OK: it may be. */
enum yb_status yb_stripe_is_over(const struct yb_stripe_job *job);

/* The item that is worked on; and that item under its key, with room for a manifest, as `one`. */
struct yb_client_item *yb_stripe_current(const struct yb_stripe_job *job);
void yb_stripe_take_one(struct yb_stripe_job *job);

/* ---- stripe_put.c ---------------------------------------------------------------------------- */

/* Begin a put with long values. Fails with NO_MEMORY. */
enum yb_status yb_stripe_put_begin(struct yb_stripe_job *job);

#endif /* YB_CLIENT_STRIPE_INTERNAL_H */
