/* SPDX-License-Identifier: Apache-2.0
 *
 * store_history.h -- whether what callers were told of one key can be true.
 *
 * A history is a list of operations on one key, each with the times at which it was called and
 * returned, and its outcome. It is good if there is an order of their effects, each between call
 * and return, in which every outcome is right. The search is that of Wing and Gong, with Lowe's
 * memory of what was tried.
 *
 *     state:    the current value, or none, and values that a removal has ended but which may still
 *               be read until that removal is answered (RULES A5: its ack waits, not its effect)
 *
 *     put       there is no current value; then there is, and ended ones cannot be read any more
 *     upsert    whatever there was is gone, at once and everywhere
 *               either one may be removed, flushed or replaced before it is answered: then what was
 *               there before it may be read until it is, and nobody was told of it
 *     remove    begin: the current value becomes an ended one; end: what was there at the
 *               beginning cannot be read any more
 *     get       the current value or an ended one; or there is no current one
 *     exist     there is a current value, or there is none
 *
 * With `loss` (nodes die, are suspected, run out of memory) the current value may become an ended
 * one at any time, and an ended one come back: a read may miss, a put may win against a value that
 * was there. What an acknowledged upsert, removal or flush has ended never comes back (RULES H4).
 *
 * Threads   Any, one history each.
 * Memory    The search allocates what it remembers and frees it.
 */
#ifndef YB_TESTS_STORE_HISTORY_H
#define YB_TESTS_STORE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_HISTORY_EVENTS_MAX 384u
#define STORE_HISTORY_VALUES_MAX 64u /* Different ones of a key. */
#define STORE_HISTORY_FOREVER    UINT64_MAX

enum store_did {
    STORE_DID_PUT,    /* If absent. */
    STORE_DID_UPSERT, /* Replace. */
    STORE_DID_GET,
    STORE_DID_EXIST,
    STORE_DID_REMOVE,
    STORE_DID_FLUSH, /* remove_all, as seen by one key. */
};

enum store_outcome {
    STORE_DONE,    /* put, upsert, remove, flush: OK; get: read `value`; exist: it is there. */
    STORE_ABSENT,  /* get, exist, remove: there is nothing. */
    STORE_PRESENT, /* put: somebody was first. */
    STORE_DOUBT,   /* It has its effect at any time from its call on, or never. */
    STORE_FAILED,  /* It has none. Ignored, but its value may not be read. */
};

struct store_event {
    uint64_t call_ns;
    uint64_t return_ns;
    uint64_t value; /* put, upsert: of this operation alone; get: what was read. */
    uint32_t number;
    uint8_t did;     /* enum store_did */
    uint8_t outcome; /* enum store_outcome */
};

enum store_verdict { STORE_GOOD, STORE_BAD, STORE_TOO_HARD };

struct store_history {
    const struct store_event *events;
    uint32_t count;
    bool loss;
    bool returns;    /* Without loss: what an unacknowledged removal has ended may come back. */
    uint64_t budget; /* Steps of the search; 0: a million. */
};

/* Judge; `why_out` says what is wrong. */
enum store_verdict store_history_judge(const struct store_history *history, char *why_out,
                                       size_t why_bytes);

#endif /* YB_TESTS_STORE_HISTORY_H */
