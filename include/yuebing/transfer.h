/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer.h -- move bytes between registered memory of processes.
 *
 * An engine registers memory, opens peers, and moves batches of items between
 * its memory and theirs: over TCP, or on the same host through shared memory,
 * with device memory at either end. It can be used alone: two engines and an
 * address are enough.
 *
 *     yb_transfer_create     -> an engine: it listens, and has worker threads
 *     yb_transfer_register   -> a region: memory that peers may read or write
 *     yb_transfer_open       -> a peer, by address; connects in the background
 *     yb_transfer_submit     -> a batch, which ends once, by its deadline
 *     yb_transfer_wait/poll  -> how each item ended
 *     yb_transfer_release    -> the batch's record is given back
 *
 * Outcomes of an item. "Applied" means: the bytes are in the destination's
 * memory, and whoever is told so by its process sees them.
 *
 *     OK            applied, exactly once
 *     in_doubt      no answer; the bytes may have landed, or may still land in the
 *     == true       *remote* memory until yb_transfer_drain() says OK here or
 *                   yb_transfer_fence() has returned there. Local memory is quiet.
 *     BUSY          not applied, quiet at the remote end; but a device's driver did not end
 *                   its copy in time and may still touch *local* memory, until
 *                   yb_transfer_drain() says OK here. That memory stays registered.
 *     anything      not applied, or applied in part by a write that failed; quiet at
 *     else          both ends: nothing of it moves any more
 *
 * Invariants
 *   T1  At any time at most one attempt may be able to write a destination; an item
 *       goes another way only after the way before is closed at its target.
 *   T2  When a batch has ended, no local memory of it is written any more, nor read by
 *       this process, but for items that are BUSY. A target on the same host that was
 *       stopped in the middle of its copy may still read it when it goes on; what it
 *       reads then it throws away.
 *   T3  A region is never unmapped, nor unregistered, under a transfer: unregister
 *       says BUSY, or waits.
 *   T4  One bad item fails alone.
 *   T5  Every call that waits has a deadline.
 *
 * Threads   Every function may be called from any thread, but create and destroy of
 *           one engine from one at a time. Callbacks run on a worker: they must not
 *           block, and may call submit, poll, cancel and release.
 * Memory    Item arrays, fragments' descriptions and notification bytes are copied.
 *           The memory that items name is borrowed until the batch has ended.
 * Units     Lengths and offsets are bytes; times are nanoseconds unless they say ms.
 */
#ifndef YB_TRANSFER_H
#define YB_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct yb_transfer; /* An engine. */

/* Handles are numbers with a generation inside: one that was closed or released is refused with
 * CLOSED, never mistaken for another. 0 is none. */
typedef uint64_t yb_transfer_region;
typedef uint64_t yb_transfer_peer;
typedef uint64_t yb_transfer_batch;

/* ---- the engine ------------------------------------------------------------------------- */

/* Ways from one memory to another; bits, for switching some off. */
#define YB_TRANSFER_PATH_TCP 1u
#define YB_TRANSFER_PATH_SHM 2u
/* Between device memory of two engines in one process: the driver copies, where the devices reach
 * each other. */
#define YB_TRANSFER_PATH_DEVICE 4u
#define YB_TRANSFER_PATH_ALL    7u

/* Zero the struct, set `struct_bytes`, and what you want to differ from the default. */
struct yb_transfer_options {
    size_t struct_bytes;     /* sizeof(struct yb_transfer_options) of the caller. */
    const char *listen;      /* Address; NULL: "127.0.0.1:0", any free port. */
    const char *secret_file; /* NULL: none; then it listens on loopback only. */
    const char *role;        /* "client" (default), "node", "directory" or "admin". */
    const char *tenant;      /* NULL: "default". */
    bool insecure;           /* Listen beyond loopback without a secret all the same. */
    bool tls;
    uint32_t workers;     /* 0: 1. */
    uint32_t paths;       /* 0: all. */
    uint32_t streams;     /* TCP connections per peer and class; 0: 4. */
    uint32_t regions_max; /* 0: 65536. */
    uint32_t batches_max; /* Batches that may exist at once; 0: 4096. */
};

/* Create an engine and start listening.
 *
 * On OK the caller owns *engine_out. Otherwise `message_out` (may be NULL) gets a sentence with
 * the remedy. Fails with INVALID (an option), DENIED (no secret, or one that others can read),
 * ADDRESS_IN_USE, UNREACHABLE (the listening name does not resolve) or NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_transfer_create(const struct yb_transfer_options *options,
                                                    struct yb_transfer **engine_out,
                                                    char *message_out, size_t message_bytes);

/* End all batches (CANCELLED or in doubt), close everything and set *engine to NULL. Memory that
 * was registered is the caller's again when it returns. Takes at most some seconds; longer only
 * while a device's driver does not end a copy. */
YB_API void yb_transfer_destroy(struct yb_transfer **engine);

/* Write the address to give to peers, such as "127.0.0.1:40123"; TOO_SMALL needs more room. */
YB_API YB_CHECKED enum yb_status yb_transfer_address(const struct yb_transfer *engine,
                                                     char *text_out, size_t text_bytes);

/* ---- memory ------------------------------------------------------------------------------ */

enum yb_transfer_location_kind {
    YB_TRANSFER_LOCATION_ANY,    /* Host memory, wherever it is; or found out (see below). */
    YB_TRANSFER_LOCATION_NUMA,   /* Host memory of NUMA node `index`: a hint. */
    YB_TRANSFER_LOCATION_DEVICE, /* Memory of device `index`. */
};

#define YB_TRANSFER_MAY_READ  1u /* Peers may read it. */
#define YB_TRANSFER_MAY_WRITE 2u

/* Zero the struct and set `struct_bytes`. */
struct yb_transfer_memory {
    size_t struct_bytes;
    uint32_t access;        /* 0: read and write. */
    uint32_t location_kind; /* enum yb_transfer_location_kind. ANY asks the device drivers whose
                             * memory it is. */
    uint32_t location_index;
};

/* Let peers reach [base, base + length).
 *
 * The same range again, with the same access, is counted: as many unregisters undo it. A range
 * that overlaps a registered one, but is not the same, is refused with EXISTS; touching ranges
 * are fine. On OK, *region_out (may be NULL) names it. Fails with INVALID (empty, or past the
 * end of the address space), EXISTS, TOO_LARGE (regions_max), FAULT (no readable memory there)
 * or NO_MEMORY. `memory` may be NULL: all defaults. */
YB_API YB_CHECKED enum yb_status yb_transfer_register(struct yb_transfer *engine, void *base,
                                                      uint64_t length,
                                                      const struct yb_transfer_memory *memory,
                                                      yb_transfer_region *region_out);

/* Undo one register of the range that starts at `base`. While transfers use it: waits at most
 * `timeout_ns`, then BUSY, with the range still registered. NOT_FOUND: nothing starts there. */
YB_API YB_CHECKED enum yb_status yb_transfer_unregister(struct yb_transfer *engine, void *base,
                                                        uint64_t timeout_ns);

/* Allocate shared memory that peers of this host read by a plain copy: populated, sealed against
 * change of size, and registered with `memory`. On OK *base_out is the caller's until
 * yb_transfer_free(), which unregisters it first and fails like unregister. */
YB_API YB_CHECKED enum yb_status yb_transfer_alloc(struct yb_transfer *engine, uint64_t length,
                                                   const struct yb_transfer_memory *memory,
                                                   void **base_out);
YB_API YB_CHECKED enum yb_status yb_transfer_free(struct yb_transfer *engine, void **base,
                                                  uint64_t timeout_ns);

/* ---- peers ------------------------------------------------------------------------------- */

/* Make a peer of an address "host:port" and begin to connect; does not wait. Opening the same
 * address twice gives two handles. Fails with INVALID (the text) or NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_transfer_open(struct yb_transfer *engine, const char *address,
                                                  yb_transfer_peer *peer_out);

/* Close a peer; its batches end. */
YB_API YB_CHECKED enum yb_status yb_transfer_close(struct yb_transfer *engine,
                                                   yb_transfer_peer peer);

struct yb_transfer_probe {
    struct yb_id identity; /* Of the process that answered. */
    uint64_t incarnation;
    bool authenticated;
    uint32_t paths; /* Ways that work now: YB_TRANSFER_PATH_ bits. */
    uint64_t round_trip_ns;
    char software[65];
    char why_not_shm[128]; /* Why memory goes another way than shm; "" if none does. With shm among
                            * `paths`: only memory of yb_transfer_alloc() goes by it. */
};

/* Ask a peer whether it lives. Waits at most `timeout_ns`. Fails with TIMED_OUT, REFUSED,
 * DENIED, VERSION, UNREACHABLE, PEER_LOST or CLOSED. */
YB_API YB_CHECKED enum yb_status yb_transfer_ask(struct yb_transfer *engine, yb_transfer_peer peer,
                                                 uint64_t timeout_ns,
                                                 struct yb_transfer_probe *probe_out);

/* Make sure that nothing which this engine ever sent to `peer` can still land there, and that no
 * driver touches local memory of items that were BUSY, and clear the doubt of its batches. Waits
 * at most `timeout_ns`; TIMED_OUT and the like leave the doubt. */
YB_API YB_CHECKED enum yb_status yb_transfer_drain(struct yb_transfer *engine,
                                                   yb_transfer_peer peer, uint64_t timeout_ns);

/* On the target: after it returns OK nothing that the process `identity` sent before the call can
 * land in this engine's memory. Its connections are closed; it may connect again. */
YB_API YB_CHECKED enum yb_status yb_transfer_fence(struct yb_transfer *engine,
                                                   struct yb_id identity, uint64_t timeout_ns);

/* ---- batches ----------------------------------------------------------------------------- */

enum yb_transfer_op {
    YB_TRANSFER_READ,  /* remote -> local */
    YB_TRANSFER_WRITE, /* local -> remote */
};

/* Name the remote place by virtual address instead of region and offset. An item of which the peer
 * got a part before it was restarted, and another part after that, fails with STALE. */
#define YB_TRANSFER_BY_ADDRESS UINT64_MAX

struct yb_transfer_item {
    uint32_t op; /* enum yb_transfer_op */
    uint32_t reserved;
    void *local;               /* Any memory of this process; device memory too. */
    uint64_t length;           /* 0 is fine: OK without a byte. */
    yb_transfer_region remote; /* A region of the peer, or YB_TRANSFER_BY_ADDRESS. */
    uint64_t remote_offset;    /* Into the region, or the peer's virtual address. */
};

/* How one item stands. */
struct yb_transfer_item_status {
    enum yb_status status; /* IN_PROGRESS until it has ended. */
    bool in_doubt;         /* See "Outcomes". */
    uint8_t path;          /* The YB_TRANSFER_PATH_ bit that finished it; 0: none did. */
    uint64_t bytes;        /* Moved. */
};

struct yb_transfer_batch_status {
    enum yb_status status; /* IN_PROGRESS; OK: all items are; otherwise the first failure. */
    uint32_t items;
    uint32_t ended;
    uint32_t failed;
    bool in_doubt;
    uint64_t bytes;
    uint64_t took_ns;
};

/* Zero the struct and set `struct_bytes`. */
struct yb_transfer_batch_options {
    size_t struct_bytes;
    uint64_t timeout_ns; /* From now, for everything. 0: 30 s. UINT64_MAX: never. */
    uint32_t work_class; /* enum yb_class */
    struct yb_id trace_id;
    uint64_t parent_span;
    const void *notify;    /* Delivered to the peer after all items are applied; NULL: none. */
    uint32_t notify_bytes; /* At most 4096. */
    /* Called once, when the batch has ended; NULL: none. */
    void (*done)(struct yb_transfer *engine, yb_transfer_batch batch, void *owner);
    void *owner;
    int event_fd; /* An eventfd to which 1 is added when it has ended; 0: none. */
};

#define YB_TRANSFER_ITEMS_MAX (1u << 20)

/* Start moving `count` items to or from `peer`. On OK the batch will end once, whatever happens,
 * and must be released. Otherwise nothing was started: INVALID (a count, an op; with one bad item
 * among good ones the batch starts and that item fails alone, T4), AGAIN (batches_max exist),
 * CLOSED (peer) or NO_MEMORY. */
YB_API YB_CHECKED enum yb_status
yb_transfer_submit(struct yb_transfer *engine, yb_transfer_peer peer,
                   const struct yb_transfer_item *items, uint32_t count,
                   const struct yb_transfer_batch_options *options, yb_transfer_batch *batch_out);

/* Look at a batch. `items_out` (may be NULL) gets the first `items_room` items' status. Fails
 * with CLOSED (no such batch). */
YB_API YB_CHECKED enum yb_status yb_transfer_poll(struct yb_transfer *engine,
                                                  yb_transfer_batch batch,
                                                  struct yb_transfer_batch_status *status_out,
                                                  struct yb_transfer_item_status *items_out,
                                                  uint32_t items_room);

/* Wait until it has ended, at most `timeout_ns`: OK, TIMED_OUT (it goes on) or CLOSED. */
YB_API YB_CHECKED enum yb_status yb_transfer_wait(struct yb_transfer *engine,
                                                  yb_transfer_batch batch, uint64_t timeout_ns);

/* Ask a batch to end soon; items that are not applied end CANCELLED, or in doubt. */
YB_API YB_CHECKED enum yb_status yb_transfer_cancel(struct yb_transfer *engine,
                                                    yb_transfer_batch batch);

/* Give the record of a batch that has ended back. Fails with BUSY (it has not) or CLOSED. */
YB_API YB_CHECKED enum yb_status yb_transfer_release(struct yb_transfer *engine,
                                                     yb_transfer_batch batch);

/* ---- notifications and numbers ----------------------------------------------------------- */

struct yb_transfer_notification {
    struct yb_id from; /* The sender's identity. */
    uint32_t bytes;
    uint8_t payload[4096];
};

/* Take the oldest notification that arrived. AGAIN: there is none. At most 1024 wait; a sender
 * whose notification finds no room is told AGAIN, and its batch ends with that status. */
YB_API YB_CHECKED enum yb_status
yb_transfer_next_notification(struct yb_transfer *engine,
                              struct yb_transfer_notification *notification_out);

/* Write statistics per peer and path, or what connects this machine's memories, as a JSON text.
 * On OK *text_out is the caller's to free(). */
YB_API YB_CHECKED enum yb_status yb_transfer_stats(struct yb_transfer *engine, char **text_out);
YB_API YB_CHECKED enum yb_status yb_transfer_topology(struct yb_transfer *engine, char **text_out);

#ifdef __cplusplus
}
#endif

#endif /* YB_TRANSFER_H */
