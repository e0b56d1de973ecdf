/* SPDX-License-Identifier: Apache-2.0
 *
 * span.h -- what happened to one piece of work, and the ring that remembers it.
 *
 * Counters say how often; a span says which one. Every request, connection,
 * handshake and transfer leaves one record when it ends: who it belonged to
 * (trace), inside what (parent), from when to when, how long of that it
 * waited, how many bytes, with whom, on which path and tier, and how it ended.
 * Spans with the same trace id, from all processes, make the tree of one
 * request.
 *
 * The ring keeps the last `capacity` records of the process. Writers never
 * wait: a full ring overwrites its oldest record. Each slot carries a sequence
 * word, which makes it a seqlock of its own:
 *
 *     writer   ticket = next++; the slot is ticket % capacity
 *              seq: anything older --CAS--> 2 * ticket + 1, words, 2 * ticket + 2
 *     reader   seq == 2 * ticket + 2, copy the words, seq still the same: whole
 *
 * A writer that finds its slot still being written by another, which was
 * overtaken by the whole ring meanwhile, gives its record up rather than wait.
 *
 * There are three ways to read. A snapshot looks and changes nothing: for the
 * admin port and for tests. Following does, too, and goes on where it was: for
 * streams, of which there may be several. A drain takes each record once, in
 * order of tickets: for the exporter, of which there is one.
 *
 * Invariants
 *   R1  A record that is read is one that was written: no mixture of two.
 *   R2  written == drained + lost + still to be drained.
 *   R3  The words of a slot are stored only between the CAS that makes its
 *       sequence odd and the store that makes it even.
 *
 * Trace context is the W3C Recommendation "Trace Context" (level 1): the
 * `traceparent` header, version 00.
 *
 * Threads   Any thread may write, without a lock; any thread may take a
 *           snapshot, without a lock. Drains serialise on a lock of rank SPAN.
 * Memory    The ring allocates its slots at create: 112 bytes each. Records are
 *           copied in and out.
 * Time      None is read: callers fill in the times.
 */
#ifndef YB_BASE_SPAN_H
#define YB_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

/* What the span is about. Words are exported: append rows, never rename. */
/* clang-format off */
#define YB_SPAN_KIND_MAP(X)                                                   \
    X(NONE,      0, "none",      "not filled in")                             \
    X(CALL,      1, "call",      "a request, as the one who asks sees it")    \
    X(SERVE,     2, "serve",     "a request, as the one who answers sees it") \
    X(CONNECT,   3, "connect",   "from dialling to a usable connection")      \
    X(HANDSHAKE, 4, "handshake", "hello, challenge and answer")               \
    X(RESOLVE,   5, "resolve",   "a name turned into addresses")              \
    X(JOB,       6, "job",       "a blocking call in the helper pool")        \
    X(TRANSFER,  7, "transfer",  "bytes moved between two memories")          \
    X(FETCH,     8, "fetch",     "blocks brought to where they are needed")   \
    X(REQUEST,   9, "request",   "a prompt, from its arrival to its last token") \
    X(PREFILL,  10, "prefill",   "its prompt, from memory for it to its first token") \
    X(LOAD,     11, "load",      "KV from the store")                         \
    X(PULL,     12, "pull",      "KV from the engine that computed it")       \
    X(STORE,    13, "store",     "KV into the store")                         \
    X(DECIDE,   14, "decide",    "where a request runs, and what is moved for it") \
    X(INSTRUCTION, 15, "instruction", "a move, from its decision to its one outcome") \
    X(DONE,     16, "done",      "an engine's word on a request, as its conductor took it")

#define YB_SPAN_PATH_MAP(X)                                                   \
    X(NONE,   0, "none")                                                      \
    X(TCP,    1, "tcp")                                                       \
    X(SHM,    2, "shm")                                                       \
    X(RDMA,   3, "rdma")                                                      \
    X(DEVICE, 4, "device")

#define YB_SPAN_TIER_MAP(X)                                                   \
    X(NONE,   0, "none")                                                      \
    X(DEVICE, 1, "device")                                                    \
    X(DRAM,   2, "dram")                                                      \
    X(SSD,    3, "ssd")                                                       \
    X(OBJECT, 4, "object")
/* clang-format on */

enum yb_span_kind {
#define X(name, value, word, text) YB_SPAN_KIND_##name = value,
    YB_SPAN_KIND_MAP(X)
#undef X
};

enum yb_span_path {
#define X(name, value, word) YB_SPAN_PATH_##name = value,
    YB_SPAN_PATH_MAP(X)
#undef X
};

enum yb_span_tier {
#define X(name, value, word) YB_SPAN_TIER_##name = value,
    YB_SPAN_TIER_MAP(X)
#undef X
};

/* The record. Zero means none, for every member. It never leaves the process as it is:
 * exporters translate it. */
struct yb_span {
    struct yb_id trace;
    struct yb_id peer;  /* The process at the other end. */
    uint64_t span;      /* This span's id, unique within the trace. */
    uint64_t parent;    /* Zero: the root. */
    uint64_t start_ns;  /* Monotonic. */
    uint64_t end_ns;    /* Monotonic, not before start_ns. */
    uint64_t began_ns;  /* Monotonic: it waited until then. Zero: it did not, or nobody knows. */
    uint64_t wall_ns;   /* Wall clock at start_ns. */
    uint64_t bytes;     /* Payload moved. */
    uint64_t number;    /* What others call it: a call's type, the number of a decision, of an
                         * instruction. */
    int32_t outcome;    /* enum yb_status */
    uint8_t kind;       /* enum yb_span_kind */
    uint8_t path;       /* enum yb_span_path */
    uint8_t tier;       /* enum yb_span_tier */
    uint8_t work_class; /* enum yb_class */
};

_Static_assert(sizeof(struct yb_span) == 104,
               "thirteen words without padding; 112 with the sequence");

/* Return the word of a value, "unknown" outside the table. Static strings. */
const char *yb_span_kind_name(uint8_t kind);
const char *yb_span_path_name(uint8_t path);
const char *yb_span_tier_name(uint8_t tier);

/* ---- the ring ---- */

#define YB_SPAN_CAPACITY_MAX (1u << 20)

struct yb_span_ring;

struct yb_span_counts {
    uint64_t written;  /* Records given to yb_span_write(). */
    uint64_t drained;  /* Taken by yb_span_drain(). */
    uint64_t lost;     /* Overwritten before they were drained, or given up by their writer. */
    uint64_t collided; /* The part of `written` that was given up: the slot was being written. */
};

/* Create a ring of `capacity` records. On OK, *ring_out is owned by the caller, who passes
 * it to destroy. Fails with INVALID (not a power of two from 2 to YB_SPAN_CAPACITY_MAX) or
 * NO_MEMORY; *ring_out is then untouched. */
YB_CHECKED enum yb_status yb_span_ring_create(uint32_t capacity, struct yb_span_ring **ring_out);

/* Consume the ring and set *ring to NULL. No thread may use it any more. */
void yb_span_ring_destroy(struct yb_span_ring **ring);

/* Remember a copy of *span. Never waits, never fails; `ring` may be NULL, then nothing is
 * remembered. */
void yb_span_write(struct yb_span_ring *ring, const struct yb_span *span);

/* Copy the newest records, at most `spans_max`, to `spans_out`, oldest first, and return how
 * many. Records that are being written are left out. */
uint32_t yb_span_snapshot(const struct yb_span_ring *ring, struct yb_span *spans_out,
                          uint32_t spans_max);

/* Copy the oldest records from ticket *cursor on, at most `spans_max`, to `spans_out`, oldest
 * first, move *cursor behind them and return how many. Zero begins with the oldest that is kept,
 * and UINT64_MAX, which becomes where writers are now, with what comes next. A record that is
 * being written ends it; what was overwritten meanwhile, or given up, is passed over. */
uint32_t yb_span_follow(const struct yb_span_ring *ring, uint64_t *cursor,
                        struct yb_span *spans_out, uint32_t spans_max);

/* Take the oldest records not yet taken, at most `spans_max`, to `spans_out`, oldest first,
 * and return how many: zero when there is none, or when the next one is still being written.
 * A record found unfinished by two drains in a row is given up as lost, so that a stuck
 * writer cannot hold up the exporter. */
uint32_t yb_span_drain(struct yb_span_ring *ring, struct yb_span *spans_out, uint32_t spans_max);

/* Fill in every field of *counts_out. `lost` includes what is overwritten by now. */
void yb_span_counts(struct yb_span_ring *ring, struct yb_span_counts *counts_out);

/* Copy the `slowest_max` records with the longest time from start to end to `slowest_out`,
 * slowest first, and return how many. Of equals the earlier in `spans` comes first. Takes
 * count * slowest_max steps at worst: keep slowest_max small. */
uint32_t yb_span_slowest(const struct yb_span *spans, uint32_t count, struct yb_span *slowest_out,
                         uint32_t slowest_max);

/* ---- trace context ---- */

/* Fill `length` bytes with random ones: the system's generator, or a seeded one in tests. */
typedef void yb_span_random_fn(void *context, void *bytes_out, size_t length);

/* Where a span belongs; what a request carries from process to process. */
struct yb_trace_context {
    struct yb_id trace;
    uint64_t parent; /* The sender's span: the parent of the receiver's. */
    bool sampled;    /* The caller may have recorded it. */
};

/* Characters of a version 00 traceparent. */
#define YB_TRACEPARENT_LENGTH 55u

/* Return a new trace id, or span id. Never zero, which would mean none. */
struct yb_id yb_trace_new_id(yb_span_random_fn *fill, void *context);
uint64_t yb_span_new_id(yb_span_random_fn *fill, void *context);

/* Read the `length` characters of a traceparent header without surrounding white space.
 *
 * Version 00 must have exactly 55 characters. A later version may have more, if a dash comes
 * next; its first four fields are read as those of version 00. Flags other than `sampled`
 * are ignored. Fails with INVALID (version ff, a wrong length, a character outside 0-9a-f, an
 * id of zeros), with *context_out untouched: start a new trace then. */
YB_CHECKED enum yb_status yb_traceparent_parse(const char *text, size_t length,
                                               struct yb_trace_context *context_out);

/* Write version 00 and a NUL to `text_out`. Neither id may be zero: asserted. */
void yb_traceparent_format(const struct yb_trace_context *context,
                           char text_out[YB_TRACEPARENT_LENGTH + 1]);

#endif /* YB_BASE_SPAN_H */
