/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.h -- the memory of what mutations were answered.
 *
 * A caller whose connection broke cannot know whether its mutation was applied. It
 * asks again with the same operation, on any connection and so perhaps on another
 * worker; here the second attempt finds the first. A mutation is run at most once,
 * and everybody who asks for it within its window gets the one answer.
 *
 * A caller numbers the mutations that it has outstanding: each has a slot of its own,
 * and of two that use one slot after the other the later has the higher operation
 * (slots.h). So the later one acknowledges the earlier: nobody waits for its answer any
 * more. What is remembered is one answer per slot, in proportion to the mutations that
 * callers have outstanding, and not to how many they make in a window.
 *
 *     a slot's latest operation:
 *
 *               begin: NEW                 finish
 *     UNKNOWN ------------> RUNNING -----------------> REMEMBERED
 *        ^                   ^  |                          |
 *        |                   |  | forget                   |
 *        |        begin: NEW |  v                          |
 *        +----------------- NOT_RUN                        |
 *        |                                                 |
 *        +---------------- its window has passed ----------+
 *
 *     from any state to RUNNING: begin of a higher operation (NEW)
 *     in any state but UNKNOWN:  begin of a lower one: SUPERSEDED, which must not be run
 *
 * The window of a slot ends at the latest of: what any begin of it named, and the finish
 * plus YB_REPLAY_MARGIN_NS. A begin names its caller's deadline plus a margin; more than
 * YB_REPLAY_WINDOW_MAX_NS from its `now_ns` counts as that much, so that callers without a
 * deadline cannot fill the memory for ever. A caller that died is forgotten that way.
 *
 * Room. A RUNNING operation reserves room for the longest answer, so that finish cannot fail.
 * What the answer leaves over is given back at finish, and all of it when a higher operation
 * of the slot begins. A begin first reclaims a few records whose window has passed; it goes
 * on, as far as needed, only where it would have to say FULL otherwise. Each record is
 * reclaimed once, which makes that work constant per begin, times the logarithm of the heap.
 *
 * Invariants
 *   R1  Of all begins of one operation of a slot, from any threads, one gets NEW, and no other
 *       does until it was forgotten, or finished and its window has passed.
 *   R2  A slot is forgotten only after its window, and only when every operation of it that
 *       got NEW was finished or forgotten; or at once when its only operation was forgotten.
 *       (It may stay longer; then it is still the answer.)
 *   R3  FULL is said only if the slots RUNNING or inside their window leave no room in the
 *       key's shard, as of the caller's `now_ns`, or if there is no memory.
 *   R4  Never more than `records_max` slots, nor more than `bytes_max` of answers and
 *       reservations. Memory is taken in begin, as it is needed for the first time, and
 *       kept; finish and forget allocate nothing.
 *   R5  A begin of an operation lower than one that began in its slot is SUPERSEDED until the
 *       slot is forgotten, however long ago its own answer was dropped.
 *
 * Threads   Any thread, any function but create and destroy, which have the memory for
 *           themselves. Slots are spread over up to 16 shards, each under a lock of rank
 *           REPLAY. One shard has its even part of `records_max` and of `bytes_max`; small
 *           memories have fewer shards, so that an uneven spread costs little of them; below
 *           1024 records there is one. Which slots share a shard differs from run to run.
 * Memory    The memory owns its records. Keys and answers are copied, in and out.
 * Time      Passed in, on one clock for all threads; it may differ a little between them.
 */
#ifndef YB_NET_REPLAY_H
#define YB_NET_REPLAY_H

#include <stdint.h>

#include "base/clock.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

/* Longest answer that can be remembered, and so the longest reply to a mutation. */
#define YB_REPLY_REMEMBERED_MAX 4096u

/* How long an answer is kept at least, counted from the moment at which it was given. */
#define YB_REPLAY_MARGIN_NS (30 * YB_NS_PER_S)

/* The longest window that a begin can ask for. */
#define YB_REPLAY_WINDOW_MAX_NS (600 * YB_NS_PER_S)

#define YB_REPLAY_RECORDS_MAX (1u << 24)
#define YB_REPLAY_BYTES_MAX   (1ull << 36)

struct yb_replay;

/* A slot of one line of calls of one life of one process. `identity` is what the peer proved to
 * be; `line` tells its lines apart, as whoever accepts them does (fence.h). No padding. */
struct yb_replay_key {
    struct yb_id identity;
    uint64_t incarnation;
    uint64_t line;
    uint64_t slot;
};

enum yb_replay_verdict {
    YB_REPLAY_NEW,        /* Run it; then finish or forget. */
    YB_REPLAY_RUNNING,    /* An earlier attempt has not been answered yet. */
    YB_REPLAY_REMEMBERED, /* The answer is in the result. */
    YB_REPLAY_FULL,       /* No room to remember it, so it must not be run. */
    YB_REPLAY_SUPERSEDED, /* Its caller has gone on (R5), so it must not be run. */
};

struct yb_replay_result {
    enum yb_status status;
    uint32_t body_bytes;
    uint8_t body[YB_REPLY_REMEMBERED_MAX];
};

/* An answer to remember; `body` is borrowed for the call. */
struct yb_replay_answer {
    enum yb_status status;
    uint32_t body_bytes;
    const void *body;
};

struct yb_replay_counts {
    uint64_t records;       /* Slots that are known, some past their window. */
    uint64_t running;       /* Operations that got NEW and were not ended yet. */
    uint64_t bytes;         /* Taken by answers, in units of 64, or reserved for them. */
    uint64_t full_refusals; /* Begins that got FULL, ever. */
};

/* Create a memory of at most `records_max` slots and `bytes_max` of their answers.
 *
 * On OK, *replay_out is owned by the caller, who passes it to destroy. Fails with INVALID
 * (`records_max` is 0 or above YB_REPLAY_RECORDS_MAX, or `bytes_max` is below
 * YB_REPLY_REMEMBERED_MAX or above YB_REPLAY_BYTES_MAX) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_replay_create(uint32_t records_max, uint64_t bytes_max,
                                           struct yb_replay **replay_out);

/* Consume the memory and set *replay to NULL. Everything is forgotten, RUNNING or not. */
void yb_replay_destroy(struct yb_replay **replay);

/* Ask whether the mutation `operation` (not 0) of the slot `key` is to be run. On NEW the caller
 * must pass both to finish or forget exactly once. *result_out is written only on REMEMBERED, and
 * of its body only `body_bytes`. All but FULL and SUPERSEDED prolong the window to `expires_ns`. */
YB_CHECKED enum yb_replay_verdict
yb_replay_begin(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t operation,
                uint64_t now_ns, uint64_t expires_ns, struct yb_replay_result *result_out);

/* Remember the answer of a mutation that got NEW, unless it was superseded since. `body` may be
 * NULL if its `body_bytes` is 0; more than YB_REPLY_REMEMBERED_MAX, or a mutation that does not
 * run, is a bug and aborts. */
void yb_replay_finish(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t operation,
                      uint64_t now_ns, const struct yb_replay_answer *answer);

/* Drop a mutation that got NEW because nothing was started (its method said AGAIN): the next
 * begin is NEW again. One that does not run is a bug and aborts. */
void yb_replay_forget(struct yb_replay *replay, const struct yb_replay_key *key,
                      uint64_t operation);

/* Return the sums over all shards, one shard at a time: exact while no other thread is busy. */
struct yb_replay_counts yb_replay_count(struct yb_replay *replay);

#endif /* YB_NET_REPLAY_H */
