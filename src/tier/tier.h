/* SPDX-License-Identifier: Apache-2.0
 *
 * tier.h -- a medium below DRAM, as its node sees it.
 *
 * A tier keeps blocks whole: bytes, full key, and what must come back with them after a restart. It
 * keeps an index of its own, finds what it holds without being asked twice, and says of every block
 * only what is true: a block is RESIDENT once the medium has acknowledged it, and not before.
 * What to keep, and where else it lies, is the node's business.
 *
 *               store                 durable                  kill, flush, lost
 *     absent ----------> STORING --------------------> RESIDENT -----------------> absent
 *        ^                  |                             |  ^
 *        |                  | failed, cancelled, killed   |  | moved by reclaim: stays RESIDENT
 *        +------------------+                             +--+
 *
 * A block is named by (hash, grant). Of one hash a tier may hold several grants for a while; find
 * and load by hash alone mean the highest grant that is not killed (RULES A14, A15).
 *
 * Invariants
 *   T1  RESIDENT is readable byte for byte after a loss of power (RULES H6): `done` of a store runs
 *       only after that, and so does `found` of a recovery.
 *   T2  What a kill or a flush that is done has named is never found again: not by a restart, not
 *       by a late store, whose `done` is then STALE.
 *   T3  Bytes are compared with their checksums on every load. CORRUPT: the record is dropped, and
 *       `lost` has told of it.
 *   T4  The medium's trouble stays here: full, failing, read-only or away, a tier steps aside.
 *       Every operation under way ends; no other tier waits.
 *   T5  store, load and kill never wait for each other's memory: what a tier needs to go on
 *       (segments for reclaim, staging) is its own since create (RULES C2).
 *   T6  What a tier said that it has lost for want of room is never found again: `lost` runs when
 *       no restart would find it. So what nobody is asked to kill does not come back.
 *
 * Completion  If an operation returns OK, its `done` runs exactly once, later, on the owner's loop,
 *             never inside the call. Anything else means that it never runs.
 * Threads     One owner, the thread of the loop that the tier was created on. Whatever threads a
 *             tier has of its own are its own business.
 * Memory      Operations are the caller's, borrowed until `done`, with the bytes and strings that
 *             they name. Nothing is allocated for one after create.
 * Time        Deadlines are on the loop's clock; YB_NEVER: none. One that passes makes a load end
 *             TIMED_OUT, and a store or kill IN_DOUBT: it may still be carried out, by T2 without
 *             harm.
 */
#ifndef YB_TIER_TIER_H
#define YB_TIER_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "directory/wire/directory_wire.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_TIER_CHUNK_BYTES (64u * 1024u) /* Each has a checksum of its own (RULES E4). */

struct yb_tier;

/* What is kept with a block, beside its bytes. */
struct yb_tier_record {
    struct yb_id hash;
    uint64_t grant;
    uint64_t flush; /* The tenant's flush epoch at its put. */
    uint64_t size;
    uint64_t group;           /* 0: none. */
    uint64_t parent;          /* First 8 bytes of the hash of the block before it; 0: none. */
    uint64_t expires_unix_ms; /* 0: never. */
    const char *tenant;
    const uint8_t *key; /* The full key. */
    uint32_t key_bytes; /* 0: not known yet (`found` alone). */
    uint16_t flags;     /* YB_WIRE_BLOCK_FLAG_ */
    uint8_t mode;       /* enum yb_wire_mode of its put. */
    uint8_t replicas;
};

/* Every operation starts with this head. The fields below the line are the tier's. */
struct yb_tier_op {
    void (*done)(struct yb_tier_op *op, enum yb_status status);
    uint64_t deadline_ns;
    enum yb_class traffic_class;
    /* ---- */
    uint8_t state;
    struct yb_tier_op *next;
    struct yb_tier_op *previous;
    void *slot;
};

/* Keep a block. Blocks that belong together (a chain, a group, one batch) are stored one after the
 * other, in their order: a tier gathers what comes together into one write.
 *
 * Ends OK (RESIDENT), NO_SPACE (full, and nothing here is worth less), QUOTA (the write budget is
 * used up), STALE (killed or flushed meanwhile), CANCELLED, IN_DOUBT, UNREACHABLE or IO. */
struct yb_tier_store {
    struct yb_tier_op op; /* First. */
    struct yb_tier_record record;
    const struct iovec *iov; /* The value. */
    uint32_t iov_count;
    const uint32_t *sums; /* CRC32C of each chunk; NULL: the tier makes them. */
};

/* Read a block, or `length` bytes of it from `offset`, into the caller's memory. The memory may be
 * written until `done`, and is not afterwards (RULES A3). What of the range lies beyond the value's
 * end is left alone: `record_out` says how long the value is.
 *
 * Ends OK with `record_out` filled (its strings point into the operation), NOT_FOUND, STALE
 * (another grant is here), CORRUPT, TIMED_OUT, CANCELLED, UNREACHABLE or IO. */
struct yb_tier_load {
    struct yb_tier_op op; /* First. */
    struct yb_id hash;
    uint64_t grant;     /* YB_WIRE_NO_GRANT (0): the highest. */
    const uint8_t *key; /* Compared with the record's: a collision of hashes is NOT_FOUND. */
    uint32_t key_bytes; /* 0: not compared. */
    const char
        *tenant; /* With `flush`: where a medium that is still being recovered may be asked for
                         * what is not known yet; NULL: only what is known. */
    uint64_t flush;
    uint64_t offset;
    uint64_t length;
    const struct iovec *iov; /* Exactly `length` bytes. */
    uint32_t iov_count;
    uint32_t *sums_out; /* Of each chunk that the range touches; NULL: not wanted. */
    struct yb_tier_record record_out;
    char tenant_out[72];
    uint8_t key_out[1024];
};

/* Forget a block, durably. What is not here is killed, too (T2: a store may be under way). Ends
 * OK, IN_DOUBT, UNREACHABLE or IO: then the caller may not say that the block is removed. */
struct yb_tier_kill {
    struct yb_tier_op op; /* First. */
    struct yb_id hash;
    uint64_t grant; /* This one alone. */
    const char *tenant;
    uint64_t flush;
};

/* Everything of the tenant that is older than `flush` is a miss, durably. */
struct yb_tier_flush {
    struct yb_tier_op op; /* First. */
    const char *tenant;
    uint64_t flush;
};

/* What a tier knows of a block without touching the medium. */
struct yb_tier_found {
    uint64_t grant;
    uint64_t size;    /* Rounded up to 64 bytes where the index keeps no more. */
    bool storing;     /* Not RESIDENT yet. */
    uint8_t accesses; /* Loads since it came, up to 255. */
};

/* How soon a load would be there: ready = base + (backlog + bytes) / rate (DESIGN 5). */
struct yb_tier_forecast {
    uint64_t base_us;
    uint64_t backlog_bytes;
    uint64_t bytes_per_second;
};

/* What a tier tells of itself, always from the loop, never inside a call. */
struct yb_tier_events {
    /* Recovery found a RESIDENT block; returns false if nobody wants it (another grant is newer,
     * its tenant was flushed): the tier then drops it. Before `recovered` ran, what is not found
     * is not known. A medium whose names say enough is not read for it: the key, group and parent
     * are then 0, and a load's record has them. The strings are borrowed for the call. */
    bool (*found)(void *owner, const struct yb_tier_record *record);
    void (*recovered)(void *owner, enum yb_status status);

    /* A RESIDENT block is not any more, and nobody asked for that: reclaimed (T6), corrupt, its
     * medium is gone. It may have been found by nobody for a while before. */
    void (*lost)(void *owner, struct yb_id hash, uint64_t grant, enum yb_status why);

    /* A RESIDENT block will be lost before long, for want of room. Returns whether somebody wants
     * to read it before: for that the tier puts the loss off, as long as stores have room without
     * it, and no longer (T4). NULL: nobody ever does. */
    bool (*leaving)(void *owner, struct yb_id hash, uint64_t grant);

    /* Returns whether somebody has asked for the block to stay: of what has to go it goes last, as
     * what was read does. NULL: nobody ever does. */
    bool (*held)(void *owner, struct yb_id hash, uint64_t grant);

    /* The tier steps aside, or is back (OK). `why` is a sentence with the remedy, borrowed. */
    void (*aside)(void *owner, enum yb_status status, const char *why);
};

struct yb_tier_info {
    const char *name; /* "ssd", "object". */
    enum yb_wire_tier tier;
    bool recovering;
    enum yb_status aside; /* OK: it works. */
    uint64_t capacity;    /* 0: no bound is known. */
    uint64_t used;        /* Bytes of the medium, with what is dead and not reclaimed. */
    uint64_t live;        /* Bytes of RESIDENT values. */
    uint64_t blocks;
    uint64_t storing_bytes;
    uint64_t index_bytes;   /* Memory of its index. */
    uint64_t stored_bytes;  /* Ever: values given to store ... */
    uint64_t written_bytes; /* ... and bytes written to the medium: their ratio is the write
                              * amplification. */
    uint64_t read_bytes;
    uint64_t writes; /* Submitted to the medium. */
    uint64_t syncs;
    uint64_t reclaims;
    uint64_t corrupt;
};

/* The medium's half. Callers use the functions below, which check the contract. */
struct yb_tier_ops {
    const char *name;
    enum yb_wire_tier tier;
    enum yb_status (*store)(struct yb_tier *tier, struct yb_tier_store *store);
    enum yb_status (*load)(struct yb_tier *tier, struct yb_tier_load *load);
    enum yb_status (*kill)(struct yb_tier *tier, struct yb_tier_kill *kill);
    enum yb_status (*flush)(struct yb_tier *tier, struct yb_tier_flush *flush);
    void (*cancel)(struct yb_tier *tier, struct yb_tier_op *op);
    void (*urge)(struct yb_tier *tier, struct yb_tier_op *op, enum yb_class traffic_class,
                 uint64_t deadline_ns);
    bool (*find)(struct yb_tier *tier, struct yb_id hash, struct yb_tier_found *found_out);
    struct yb_tier_forecast (*forecast)(struct yb_tier *tier, enum yb_class traffic_class);
    void (*info)(struct yb_tier *tier, struct yb_tier_info *info_out);
    void (*stop)(struct yb_tier *tier);
    bool (*idle)(const struct yb_tier *tier);
    void (*destroy)(struct yb_tier *tier);
};

/* The head of every tier. Each medium has a create function of its own (tier/ssd/ssd.h,
 * tier/object/object.h), which returns at once: recovery goes on in the background, and what it
 * finds is served meanwhile. */
struct yb_tier {
    uint32_t magic;
    const struct yb_tier_ops *ops;
    const struct yb_tier_events *events; /* Borrowed for the tier's life. */
    void *owner;
};

#define YB_TIER_MAGIC 0x59425449u /* "YBTI" */

/* AGAIN: there is no room for one more operation; `done` of an earlier one makes some. */
YB_CHECKED enum yb_status yb_tier_store(struct yb_tier *tier, struct yb_tier_store *store);
YB_CHECKED enum yb_status yb_tier_load(struct yb_tier *tier, struct yb_tier_load *load);
YB_CHECKED enum yb_status yb_tier_kill(struct yb_tier *tier, struct yb_tier_kill *kill);
YB_CHECKED enum yb_status yb_tier_flush(struct yb_tier *tier, struct yb_tier_flush *flush);

/* End an operation soon, with CANCELLED if it has not happened. Its `done` still runs. */
void yb_tier_cancel(struct yb_tier *tier, struct yb_tier_op *op);

/* Somebody more urgent waits for it, too (RULES C5): raise its class, shorten or lengthen its time.
 * */
void yb_tier_urge(struct yb_tier *tier, struct yb_tier_op *op, enum yb_class traffic_class,
                  uint64_t deadline_ns);

/* Return whether the tier has a block of the hash; what it knows without I/O. */
bool yb_tier_find(struct yb_tier *tier, struct yb_id hash, struct yb_tier_found *found_out);

struct yb_tier_forecast yb_tier_forecast(struct yb_tier *tier, enum yb_class traffic_class);
void yb_tier_info(struct yb_tier *tier, struct yb_tier_info *info_out);

/* Take nothing more, end what is under way (what is being gathered is written and synced first);
 * later idle() is true. Then destroy consumes the tier and sets *tier to NULL. */
void yb_tier_stop(struct yb_tier *tier);
bool yb_tier_idle(const struct yb_tier *tier);
void yb_tier_destroy(struct yb_tier **tier);

#endif /* YB_TIER_TIER_H */
