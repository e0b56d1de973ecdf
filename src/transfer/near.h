/* SPDX-License-Identifier: Apache-2.0
 *
 * near.h -- what a store needs of an engine beside its public face.
 *
 * A node and its clients have one identity each, for their net and for their engine, so that what
 * one says can be tied to what the other has proved:
 *
 *     client                                      node
 *       opens the node's engine as its identity --> has the client's process proved: may lend
 *       put_pull on its net, engine's address   --> opens that address as the sender's identity:
 *                                                   nobody has memory of a third one read
 *
 * Threads   Any thread, any function.
 */
#ifndef YB_TRANSFER_NEAR_H
#define YB_TRANSFER_NEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/transfer.h"
#include "yuebing/types.h"

struct yb_shared;
struct yb_span_ring;
struct yb_shm_session;
struct yb_stats;

/* Whose engine it is. */
struct yb_transfer_self {
    struct yb_id identity;      /* As the process is called elsewhere. */
    struct yb_span_ring *spans; /* The process's, borrowed; NULL: the engine has its own. */
    struct yb_stats *stats;     /* The same. */
};

/* yb_transfer_create(), of that process. */
YB_CHECKED enum yb_status yb_transfer_create_as(const struct yb_transfer_options *options,
                                                struct yb_transfer_self self,
                                                struct yb_transfer **engine_out, char *message_out,
                                                size_t message_bytes);

/* yb_transfer_open() of a numeric address, where only the process `identity` may answer. Waits for
 * a turn of the engine's worker, and for nothing else. */
YB_CHECKED enum yb_status yb_transfer_open_as(struct yb_transfer *engine, const char *address,
                                              struct yb_id identity, yb_transfer_peer *peer_out);

/* yb_transfer_register() of shared memory that the caller has made, so that peers of this host may
 * map it; it is borrowed until the unregister. */
YB_CHECKED enum yb_status yb_transfer_register_shared(struct yb_transfer *engine,
                                                      const struct yb_shared *shared,
                                                      uint32_t access,
                                                      yb_transfer_region *region_out);

/* Ask a peer for the first byte of the memory that it has registered first. Waits at most
 * `timeout_ns`. NOT_FOUND: it has registered none; otherwise fails as yb_transfer_ask(). */
YB_CHECKED enum yb_status yb_transfer_first(struct yb_transfer *engine, yb_transfer_peer peer,
                                            uint64_t timeout_ns, uint64_t *address_out);

/* Return where the engine writes its spans, for as long as it lives. */
struct yb_span_ring *yb_transfer_spans(const struct yb_transfer *engine);

/* Whether an address is device memory's. */
bool yb_transfer_is_device(struct yb_transfer *engine, const void *address);

/* What of this process's registered memory a range is, for peers that read. */
enum yb_transfer_cover {
    YB_TRANSFER_COVER_NONE,
    YB_TRANSFER_COVER_SAME,   /* A region of its own. */
    YB_TRANSFER_COVER_AROUND, /* Part of a larger one. */
};
enum yb_transfer_cover yb_transfer_cover(struct yb_transfer *engine, const void *base,
                                         uint64_t length);

/* How near a peer is, now. */
#define YB_TRANSFER_NEAR_MAPS  1u /* Shared memory of both can be mapped by the other ... */
#define YB_TRANSFER_NEAR_READS 2u /* ... and the peer can read this process's ordinary memory. */
uint32_t yb_transfer_nearness(struct yb_transfer *engine, yb_transfer_peer peer);

/* ---- borrowing ------------------------------------------------------------------------------- */

/* A peer's region, mapped here to be read. */
struct yb_transfer_borrowed {
    struct yb_shm_session *session;
    yb_transfer_region region;
    const uint8_t *bytes; /* The region's first. */
    uint64_t length;
};

/* Keep a peer's region mapped until it is given back, whatever becomes of the peer. Fails with
 * AGAIN (the peer, or the region, is being asked for: try in a moment) or UNSUPPORTED (this
 * engine, or that region, has no such way). */
YB_CHECKED enum yb_status yb_transfer_borrow(struct yb_transfer *engine, yb_transfer_peer peer,
                                             yb_transfer_region region,
                                             struct yb_transfer_borrowed *borrowed_out);

/* Give it back, before the engine is destroyed. */
void yb_transfer_give_back(struct yb_transfer_borrowed *borrowed);

/* ---- processes that borrow ------------------------------------------------------------------- */

#define YB_TRANSFER_WATCHES_MAX 1024u

/* Watch the process that has proved to be `identity` on shared memory. Counted. Fails with
 * UNSUPPORTED (none has, or it cannot be watched) or AGAIN (YB_TRANSFER_WATCHES_MAX are). */
YB_CHECKED enum yb_status yb_transfer_process_watch(struct yb_transfer *engine,
                                                    struct yb_id identity);
void yb_transfer_process_unwatch(struct yb_transfer *engine, struct yb_id identity);

/* Whether a watched process is proved to have ended (by its pidfd, not by a closed socket). */
bool yb_transfer_process_gone(struct yb_transfer *engine, struct yb_id identity);

#endif /* YB_TRANSFER_NEAR_H */
