/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.h -- the memory of what mutations were answered.
 *
 * A caller whose connection broke cannot know whether its mutation was applied. It
 * asks again with the same operation, on any connection and so perhaps on another
 * worker; here the second attempt finds the first. A mutation is run at most once,
 * and everybody who asks for it within its window gets the one answer.
 *
 *               begin: NEW                 finish
 *     UNKNOWN ------------> RUNNING -----------------> REMEMBERED
 *       ^  ^                   |  ^  begin: RUNNING       |   ^  begin: REMEMBERED
 *       |  |      forget       |  +--+                    |   +--+
 *       |  +-------------------+                          |
 *       +--------------------- its window has passed -----+
 *
 * The window of a record ends at the latest of: what any begin of it named, and the finish
 * plus YB_REPLAY_MARGIN_NS. A begin names its caller's deadline plus a margin; more than
 * YB_REPLAY_WINDOW_MAX_NS from its `now_ns` counts as that much, so that callers without a
 * deadline cannot fill the memory for ever.
 *
 * Room. A RUNNING record reserves room for the longest answer, so that finish cannot fail.
 * What the answer leaves over is given back at finish. A begin first reclaims a few records
 * whose window has passed; it goes on, as far as needed, only where it would have to say
 * FULL otherwise. Each record is reclaimed once, which makes that work constant per begin,
 * times the logarithm of the heap.
 *
 * Invariants
 *   R1  Of all begins of one key, from any threads, one gets NEW, and no other does until it
 *       was forgotten, or finished and its window has passed.
 *   R2  A RUNNING record leaves only by finish or forget, a REMEMBERED one only after its
 *       window. (It may stay longer; then it is still the answer.)
 *   R3  FULL is said only if the records RUNNING or inside their window leave no room in the
 *       key's shard, as of the caller's `now_ns`.
 *   R4  Never more than `records_max` records, nor more than `bytes_max` of answers and
 *       reservations, and create allocates all of it: nothing allocates afterwards.
 *
 * Threads   Any thread, any function but create and destroy, which have the memory for
 *           themselves. Keys are spread over up to 16 shards, each under a lock of rank
 *           REPLAY. One shard has its even part of `records_max` and of `bytes_max`; small
 *           memories have fewer shards, so that an uneven spread costs little of them; below
 *           1024 records there is one. Which keys share a shard differs from run to run.
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

/* One mutation of one life of one process. `identity` is what the peer proved to be. */
struct yb_replay_key {
    struct yb_id identity;
    uint64_t incarnation;
    uint64_t operation;
};

enum yb_replay_verdict {
    YB_REPLAY_NEW,        /* Run it; then finish or forget. */
    YB_REPLAY_RUNNING,    /* An earlier attempt has not been answered yet. */
    YB_REPLAY_REMEMBERED, /* The answer is in the result. */
    YB_REPLAY_FULL,       /* No room to remember it, so it must not be run. */
};

struct yb_replay_result {
    enum yb_status status;
    uint32_t body_bytes;
    uint8_t body[YB_REPLY_REMEMBERED_MAX];
};

struct yb_replay_counts {
    uint64_t records;       /* RUNNING and REMEMBERED, some past their window. */
    uint64_t running;       /* Of which RUNNING. */
    uint64_t bytes;         /* Taken by answers, in units of 64, or reserved for them. */
    uint64_t full_refusals; /* Begins that got FULL, ever. */
};

/* Create a memory of at most `records_max` mutations and `bytes_max` of their answers.
 *
 * On OK, *replay_out is owned by the caller, who passes it to destroy. Fails with INVALID
 * (`records_max` is 0 or above YB_REPLAY_RECORDS_MAX, or `bytes_max` is below
 * YB_REPLY_REMEMBERED_MAX or above YB_REPLAY_BYTES_MAX) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_replay_create(uint32_t records_max, uint64_t bytes_max,
                                           struct yb_replay **replay_out);

/* Consume the memory and set *replay to NULL. Everything is forgotten, RUNNING or not. */
void yb_replay_destroy(struct yb_replay **replay);

/* Ask whether the mutation `key` is to be run. On NEW it is RUNNING, and the caller must pass
 * the key to finish or forget exactly once. *result_out is written only on REMEMBERED, and of
 * its body only `body_bytes`. RUNNING and REMEMBERED prolong the window to `expires_ns`. */
YB_CHECKED enum yb_replay_verdict yb_replay_begin(struct yb_replay *replay,
                                                  const struct yb_replay_key *key, uint64_t now_ns,
                                                  uint64_t expires_ns,
                                                  struct yb_replay_result *result_out);

/* Remember the answer of a mutation that is RUNNING. `body` may be NULL if `body_bytes` is 0; more
 * than YB_REPLY_REMEMBERED_MAX, or a key that is not RUNNING, is a bug and aborts. */
void yb_replay_finish(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t now_ns,
                      enum yb_status status, const void *body, uint32_t body_bytes);

/* Drop a mutation that is RUNNING because nothing was started (its method said AGAIN): the next
 * begin is NEW. A key that is not RUNNING is a bug and aborts. */
void yb_replay_forget(struct yb_replay *replay, const struct yb_replay_key *key);

/* Return the sums over all shards, one shard at a time: exact while no other thread is busy. */
struct yb_replay_counts yb_replay_count(struct yb_replay *replay);

#endif /* YB_NET_REPLAY_H */
