/* SPDX-License-Identifier: Apache-2.0
 *
 * client.h -- put, get and share the blocks of a store.
 *
 * A client joins a cluster by the address of its directory and then moves batches of
 * blocks between its memory and the nodes. Every call is a batch with one deadline and
 * a status of its own for each key.
 *
 *     yb_client_open      -> a client, with a worker thread of its own
 *     yb_client_put       -> blocks into the store
 *     yb_client_get       -> blocks, or ranges of them, into your buffers
 *     yb_client_fetch     -> the same without waiting: where blocks are and when they can be here
 *                            is known at once, the bytes come one block after the other
 *     yb_client_exist     -> which are there, without reading them
 *     yb_client_remove    -> away with them
 *     yb_client_pin       -> borrow blocks of a node on this host, without a copy
 *     yb_client_hold      -> keep blocks where they lie, as long as they are read now and then
 *
 * What one may rely on (docs/semantics.md has a row for each call and failure)
 *   S1  put OK: from now on every get and exist of every client finds the block, until it is
 *       evicted, expires or is removed. Nobody saw it before it was whole.
 *   S2  get OK: exactly the bytes of one put of that key, never a mixture.
 *   S3  remove OK: no get that starts from now on returns what was removed.
 *   S4  IN_DOUBT: it may have been applied or not; put may be repeated safely (the same key has
 *       one winner), remove too.
 *   S5  When a call returns, nothing touches your memory any more. (What was borrowed by a pin
 *       stays readable until its release.)
 *   S6  A call returns by its deadline, and the moment that a reset takes.
 *
 * Threads   Every function, any thread; open and close of one client from one at a time. A forked
 *           child must not use its parent's client: every call there fails with INVALID.
 * Memory    Items, keys and buffers are the caller's, borrowed until the call returns, or, of the
 *           asynchronous form, until the batch has ended.
 * Units     Bytes; times in nanoseconds unless the name says ms.
 */
#ifndef YB_CLIENT_H
#define YB_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct yb_client;

#define YB_CLIENT_KEY_BYTES_MAX   1024u
#define YB_CLIENT_VALUE_BYTES_MAX (1ull << 48)
#define YB_CLIENT_ITEMS_MAX       (1u << 20)
#define YB_CLIENT_REPLICAS_MAX    8u

/* Whether existence is answered for the engine's sake: reuse must beat recomputing. */
enum yb_client_gate {
    YB_CLIENT_GATE_OFF, /* Present means present. */

    /* Of the keys of one exist, in their order, those are present that are the leading run of
     * blocks that are there, as far as loading it saves more time than any other such run. How long
     * loading takes is predicted from what gets of this client have been like: by node, and by
     * its way. What else is there is NOT_FOUND and `gated`. */
    YB_CLIENT_GATE_AUTO,
};

/* Zero the struct, set `struct_bytes`, and what you want to differ from the default. */
struct yb_client_options {
    size_t struct_bytes;
    const char *directory;   /* "host:port"; NULL: "127.0.0.1:14700". */
    const char *secret_file; /* NULL: none. */
    const char *tenant;      /* NULL: "default". */
    bool tls;
    const char *rack;
    const char *zone;
    uint32_t hints_max; /* 0: 65536 blocks. */
    bool no_shared_memory;
    uint32_t reuse_gate; /* enum yb_client_gate */
    /* For YB_CLIENT_GATE_AUTO: how long the engine computes one block of tokens, and how large one
     * is; a value of several counts as many. 0 ns: not known, the gate is open. 0 bytes: each key
     * is one. */
    uint64_t prefill_ns_per_block;
    uint64_t bytes_per_block;
};

/* Where a block lies, as far as the directory knows. */
enum yb_client_tier {
    YB_CLIENT_TIER_NONE, /* Nowhere, or nobody knows. */
    YB_CLIENT_TIER_DEVICE,
    YB_CLIENT_TIER_DRAM,
    YB_CLIENT_TIER_SSD,
    YB_CLIENT_TIER_OBJECT,
};

/* One key of a batch. */
struct yb_client_item {
    const void *key;
    uint32_t key_bytes; /* 1 .. YB_CLIENT_KEY_BYTES_MAX */
    uint32_t iov_count;
    const struct iovec *iov; /* put: the value's pieces; get: where it goes. */
    uint64_t offset;         /* get of a range: its first byte. */
    bool ranged;             /* get: as much from `offset` as the room takes. */
    uint64_t group;  /* put: blocks of a group lie on one node if it has room, and are evicted
                                together; 0: none. */
    uint64_t parent; /* put: first 8 bytes of the hash of the block before; 0: none. */
    uint64_t
        timeout_ns; /* fetch: its own limit, if it is shorter than the call's; 0: the call's. */
    uint64_t held;  /* get: read what yb_client_hold() keeps, by the `pin` that it gave; 0: none. */

    /* ---- results ---- */
    enum yb_status status;
    uint64_t size;     /* Of the whole value. */
    uint64_t bytes;    /* get: written to `iov`. */
    uint64_t grant;    /* The version. */
    uint32_t replicas; /* put: copies that were made; exist: that there are. */
    uint64_t eta_ns;   /* exist, IN_PROGRESS: when it may be there. */
    const void *data;  /* pin: the value. */
    uint64_t pin;      /* pin, hold: for the release; hold: for `held`. */
    uint64_t ready_ns; /* fetch: how long it will take, as of the lookup; 0: not known. */
    uint32_t tier;     /* fetch: enum yb_client_tier, as of the lookup. */
    bool gated; /* exist, NOT_FOUND: it is there (`grant`, `size`, `replicas`), and the reuse gate
                 * says that loading it does not pay. */
};

/* What a put wants. All zeroes: one replica, if absent, no limit of time. */
struct yb_client_put_options {
    uint32_t replicas; /* 0: 1; at most YB_CLIENT_REPLICAS_MAX. */
    bool replace;      /* Write a new version; otherwise the first writer wins. */
    bool soft_pin;
    bool hard_pin;
    uint64_t ttl_ms;              /* 0: none. */
    const char *const *preferred; /* Names of nodes to try first; NULL-terminated; NULL: none. */
    uint64_t soft_pin_ms; /* Of a soft pin: it ends after so long without a use; 0: never. */
};

/* Zero the struct and set `struct_bytes`. May be NULL in every call: all defaults. */
struct yb_client_call {
    size_t struct_bytes;
    uint64_t timeout_ns; /* 0: 30 s. */
    uint32_t work_class; /* enum yb_class */
    struct yb_id trace_id;
    uint64_t parent_span;
    struct yb_client_put_options put;
    uint32_t hold_ms; /* exist, hold: keep what is there so long; get by `held`: from now on. */
    bool force;       /* remove: even what is held. */
    /* exist: only each item's `status` is wanted. That takes a byte on the wire instead of 32, so
     * that a long list is answered sooner; no other result is told, unless the gate is on. */
    bool brief;
};

/* Join a cluster. Waits at most `timeout_ns` (0: 10 s) for the directory's first answer. On OK the
 * caller owns *client_out; otherwise `message_out` (may be NULL) gets a sentence with the remedy.
 * Fails with INVALID, DENIED, VERSION, TIMED_OUT, UNREACHABLE or NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_client_open(const struct yb_client_options *options,
                                                uint64_t timeout_ns, struct yb_client **client_out,
                                                char *message_out, size_t message_bytes);

/* Leave: batches end, pins are released. Sets *client to NULL. Never removes a block. */
YB_API void yb_client_close(struct yb_client **client);

/* Values above 64 MiB lie in parts, and are there as long as all of these are.
 *
 * Each returns OK when every item has its own status, which may be a failure; otherwise nothing
 * was started: INVALID, AGAIN, CLOSED.
 *
 * put: OK; EXISTS (if absent: somebody was first, or an item before it of the same batch; with
 *      replace the last item of a key goes for all); IN_PROGRESS (somebody still is); NO_SPACE;
 *      TOO_LARGE (for every node); AGAIN; DENIED (quota); CORRUPT; IN_DOUBT; TIMED_OUT, PEER_LOST
 *      ... (not applied); UNREACHABLE (no node was there, or none that answers); REBUILDING.
 * get: OK; NOT_FOUND; TOO_SMALL (`size` tells what it takes); CORRUPT; TIMED_OUT, PEER_LOST ...;
 *      REBUILDING (not found, and the index is not complete yet).
 * exist: OK (it is there); NOT_FOUND (with `gated`: not worth loading); IN_PROGRESS; REBUILDING.
 * remove: OK; NOT_FOUND; LEASED (held, and not forced); IN_DOUBT; REBUILDING. */
YB_API YB_CHECKED enum yb_status yb_client_put(struct yb_client *client,
                                               struct yb_client_item *items, uint32_t count,
                                               const struct yb_client_call *call);
YB_API YB_CHECKED enum yb_status yb_client_get(struct yb_client *client,
                                               struct yb_client_item *items, uint32_t count,
                                               const struct yb_client_call *call);
YB_API YB_CHECKED enum yb_status yb_client_exist(struct yb_client *client,
                                                 struct yb_client_item *items, uint32_t count,
                                                 const struct yb_client_call *call);
YB_API YB_CHECKED enum yb_status yb_client_remove(struct yb_client *client,
                                                  struct yb_client_item *items, uint32_t count,
                                                  const struct yb_client_call *call);

/* Remove all blocks of the tenant: with `force` everything; otherwise what nobody holds or reads.
 * *count_out (may be NULL) is how many that were. Fails with TIMED_OUT, IN_DOUBT, ... */
YB_API YB_CHECKED enum yb_status yb_client_remove_all(struct yb_client *client,
                                                      const struct yb_client_call *call,
                                                      uint64_t *count_out);

/* Borrow blocks that lie on a node of this host: `data` and `size` of each item that is OK are
 * readable until yb_client_release(). UNSUPPORTED: no replica is on this host; LEASED: too much is
 * lent to this process already. */
YB_API YB_CHECKED enum yb_status yb_client_pin(struct yb_client *client,
                                               struct yb_client_item *items, uint32_t count,
                                               const struct yb_client_call *call);

/* Keep blocks in the memory of their nodes, wherever these are, for `hold_ms` (a minute at most). A
 * get whose item has `held` set asks that node, and no directory, and keeps the block for `hold_ms`
 * more from then on; STALE, NOT_FOUND: it was removed or replaced, or the time between two reads
 * was too long. `size` and `grant` are known then. UNSUPPORTED: it lies below memory, or in parts;
 * LEASED: too much is lent to this process already. */
YB_API YB_CHECKED enum yb_status yb_client_hold(struct yb_client *client,
                                                struct yb_client_item *items, uint32_t count,
                                                const struct yb_client_call *call);

/* Give borrowed and held blocks back. Each item's status says whether it was there to the end: OK
 * or STALE: it was removed or replaced meanwhile; borrowed bytes stayed what they were. */
YB_API YB_CHECKED enum yb_status yb_client_release(struct yb_client *client,
                                                   struct yb_client_item *items, uint32_t count);

/* ---- listing ------------------------------------------------------------------------------ */

enum yb_client_match {
    YB_CLIENT_MATCH_ALL,
    YB_CLIENT_MATCH_PREFIX,
    YB_CLIENT_MATCH_REGEX, /* Of PCRE2, over bytes; found anywhere unless it says ^ and $. */
};

struct yb_client_entry {
    const void *key; /* Borrowed until `visit` returns. */
    uint32_t key_bytes;
    uint64_t size;
    uint64_t grant;
    const char *node;
    uint64_t idle_ms; /* Since it was read or written there. */
    const char *tier; /* "dram", ...; static. */
};

/* Call `visit` for the tenant's keys that match, on this thread; a key with replicas is named once
 * for each. `visit` returns false to stop. Not atomic: what changes meanwhile may be missing. */
YB_API YB_CHECKED enum yb_status
yb_client_list(struct yb_client *client, enum yb_client_match match, const char *pattern,
               const struct yb_client_call *call,
               bool (*visit)(void *context, const struct yb_client_entry *entry), void *context);

/* Remove the keys that match; *count_out (may be NULL) is how many that were. */
YB_API YB_CHECKED enum yb_status
yb_client_remove_matching(struct yb_client *client, enum yb_client_match match, const char *pattern,
                          const struct yb_client_call *call, uint64_t *count_out);

/* ---- asynchronous form -------------------------------------------------------------------- */

enum yb_client_op {
    YB_CLIENT_OP_PUT,
    YB_CLIENT_OP_GET,
    YB_CLIENT_OP_EXIST,
    YB_CLIENT_OP_REMOVE,
};

typedef uint64_t yb_client_handle; /* With a generation inside; 0 is none. */

/* Begin; on OK the batch will end once. `done` (may be NULL) runs on the client's worker and must
 * not block. `event_fd` > 0: an eventfd to which 1 is added. Fails with INVALID, AGAIN, CLOSED. */
YB_API YB_CHECKED enum yb_status
yb_client_submit(struct yb_client *client, enum yb_client_op op, struct yb_client_item *items,
                 uint32_t count, const struct yb_client_call *call,
                 void (*done)(void *owner, yb_client_handle handle), void *owner, int event_fd,
                 yb_client_handle *handle_out);

/* OK: it has ended; IN_PROGRESS; CLOSED: no such batch. */
YB_API YB_CHECKED enum yb_status yb_client_poll(struct yb_client *client, yb_client_handle handle);

/* Wait until it has ended, at most `timeout_ns`: TIMED_OUT leaves it running. */
YB_API YB_CHECKED enum yb_status yb_client_wait(struct yb_client *client, yb_client_handle handle,
                                                uint64_t timeout_ns);

/* Ask it to end early; it still ends once. */
YB_API void yb_client_cancel(struct yb_client *client, yb_client_handle handle);

/* Give an ended batch's record back. */
YB_API YB_CHECKED enum yb_status yb_client_finish(struct yb_client *client,
                                                  yb_client_handle handle);

/* ---- fetch: half synchronous, half asynchronous --------------------------------------------- */

/* Zero the struct and set `struct_bytes`. May be NULL: all defaults. */
struct yb_client_fetch_options {
    size_t struct_bytes;
    bool ordered;    /* yb_client_fetch_next() hands items out in the order of the list. */
    uint32_t window; /* At most so many items are asked of nodes at a time; 0: what the client's
                          * messages take. */
    int event_fd;    /* > 0: an eventfd to which 1 is added for each item that ends, and 1 for
                          * the fetch. */
    void (*done)(void *owner, yb_client_handle handle); /* As for yb_client_submit(). */
    void *owner;
};

/* Get blocks, and return as soon as it is known where they are: after one question to the
 * directory, for however many items. Of each item `tier` and `ready_ns` are then set, and stay;
 * status and bytes are its outcome's, as of a get, and may be read once the item has ended. Items
 * end one by one, each once, in the order in which they come; from then on nothing touches its
 * memory. What lies in memory of this host is moved by this very thread before the call returns, as
 * far as two milliseconds take it, and unless the fetch has a callback.
 *
 * Those whose time is shortest are asked for first. A block that is still being put is waited for;
 * its `ready_ns` is when its writer may be done. Fetches of one block join, at its node, in one
 * reading from below; it takes the highest class and the earliest deadline of them. A cancelled
 * item leaves it: the others are served, and if there are none the reading is cancelled, too.
 *
 * poll, wait, cancel and finish take its handle as that of any batch. On OK the fetch ends once, by
 * the call's deadline. Fails with INVALID, AGAIN, CLOSED; nothing was started then. */
YB_API YB_CHECKED enum yb_status yb_client_fetch(struct yb_client *client,
                                                 struct yb_client_item *items, uint32_t count,
                                                 const struct yb_client_call *call,
                                                 const struct yb_client_fetch_options *options,
                                                 yb_client_handle *handle_out);

/* OK: the item has ended; IN_PROGRESS; INVALID: no such item; CLOSED: no such fetch. */
YB_API YB_CHECKED enum yb_status yb_client_fetch_poll(struct yb_client *client,
                                                      yb_client_handle handle, uint32_t index);

/* Wait at most `timeout_ns` (0: not at all) for an item that has ended and was not handed out yet.
 * TIMED_OUT; NOT_FOUND: all were; CLOSED. */
YB_API YB_CHECKED enum yb_status yb_client_fetch_next(struct yb_client *client,
                                                      yb_client_handle handle, uint64_t timeout_ns,
                                                      uint32_t *index_out);

/* Ask one item to end early; it still ends once. The other items go on. */
YB_API void yb_client_fetch_cancel(struct yb_client *client, yb_client_handle handle,
                                   uint32_t index);

/* ---- memory ------------------------------------------------------------------------------- */

/* Tell the client of memory that values come from and go to, so that nodes of this host and device
 * copies reach it without another step. Optional; like yb_transfer_register(). */
YB_API YB_CHECKED enum yb_status yb_client_register(struct yb_client *client, void *base,
                                                    uint64_t length);
YB_API YB_CHECKED enum yb_status yb_client_unregister(struct yb_client *client, void *base,
                                                      uint64_t timeout_ns);

/* ---- looking around ------------------------------------------------------------------------ */

struct yb_client_node {
    char name[64];
    char address[64];
    char rack[32];
    char zone[32];
    char state[16]; /* "serving", "suspect", "draining". */
    uint16_t slot;
    uint64_t incarnation;
    uint64_t capacity;
    uint64_t used;
    uint64_t age_ms;
    bool local; /* On this host. */
};

/* Copy the members, at most `room`; *count_out is how many there are. */
YB_API YB_CHECKED enum yb_status yb_client_nodes(struct yb_client *client,
                                                 struct yb_client_node *nodes_out, uint32_t room,
                                                 uint32_t *count_out);

/* Drain the node of that name, or take it back. Returns when the order is given. */
YB_API YB_CHECKED enum yb_status yb_client_drain(struct yb_client *client, const char *name,
                                                 bool draining, bool force,
                                                 const struct yb_client_call *call);

struct yb_client_counters {
    uint64_t puts, put_bytes;
    uint64_t gets, hits, get_bytes; /* hits <= gets. */
    uint64_t exists;
    uint64_t lookups;     /* Keys that were asked of the directory ... */
    uint64_t hinted;      /* ... and that were not, thanks to a hint ... */
    uint64_t stale;       /* ... which was wrong. */
    uint64_t invalidated; /* Hints dropped because a node told. */
    uint64_t calls;       /* Messages sent. */
    uint64_t retries;
    uint64_t gated;         /* Keys that are there, and that the reuse gate declined. */
    uint64_t local_bytes;   /* Moved through shared memory. */
    uint64_t fetched;       /* Blocks that a fetch brought from below memory, ... */
    uint64_t fetch_said_ns; /* ... the sum of their `ready_ns` ... */
    uint64_t fetch_took_ns; /* ... and of how long they took from then. */
};
YB_API void yb_client_counters(struct yb_client *client, struct yb_client_counters *counters_out);

/* ---- chains of keys -------------------------------------------------------------------------- */

/* Name the blocks of a sequence of tokens: key i covers tokens [0, (i + 1) * block_tokens), so that
 * equal prefixes have equal keys. `salt` (may be NULL) separates models and adapters. Writes
 * count / block_tokens keys of 16 bytes each, and returns how many. Pure; the same on every
 * machine and in every version. */
YB_API uint32_t yb_key_chain(const uint32_t *tokens, uint32_t count, uint32_t block_tokens,
                             const char *salt, uint8_t (*keys_out)[16], uint32_t room);

#ifdef __cplusplus
}
#endif

#endif /* YB_CLIENT_H */
