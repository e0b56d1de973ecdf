/* SPDX-License-Identifier: Apache-2.0
 *
 * zero.h -- a store that is asked and asked and never has it, although it is full of just that.
 *
 * An engine whose names differ from everybody else's by one letter or one seed works: it asks,
 * finds nothing, and computes. Nothing fails, and the hit rate is 0 %. So the keys that were asked
 * for since the last one that was there are counted by kin (keyspace.h). When it is time to look,
 * whoever asked finds out whether the store holds blocks of the same model, or of the same engine
 * at all, and one line of the log says so.
 *
 *     COUNTING --YB_COMPAT_ZERO_ASKED_MAX without a hit--> due --> WAITING --wait is over--> due
 *        ^                                                            |
 *        +------------------------- a hit ----------------------------+
 *
 * The wait doubles from a minute to an hour, so a process that is never helped is not disturbed.
 *
 * Invariants
 *   Z1  At most YB_COMPAT_ZERO_KIN_MAX kin are counted; what comes beyond is counted in total only.
 *   Z2  A hit forgets what its kin were asked before.
 *   Z3  Between two times that are due for one kin lies at least a minute.
 *
 * Threads   The caller's lock. Memory: none is taken. Time: passed in.
 */
#ifndef YB_COMPAT_ZERO_H
#define YB_COMPAT_ZERO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/hash.h"
#include "compat/keyspace.h"

#define YB_COMPAT_ZERO_ASKED_MAX 1000u
#define YB_COMPAT_ZERO_KIN_MAX   16u
#define YB_COMPAT_ZERO_WAIT_MIN  (60 * YB_NS_PER_S)
#define YB_COMPAT_ZERO_WAIT_MAX  (3600 * YB_NS_PER_S)
#define YB_COMPAT_ZERO_TEXT_MAX  1025u

struct yb_compat_zero_kin {
    bool used;
    enum yb_keyspace_engine engine;
    uint64_t hash;    /* Of what its keys begin with. */
    uint64_t asked;   /* Since the last hit. */
    uint64_t due_ns;  /* Not before. */
    uint64_t wait_ns; /* After the next time. */
};

/* Zeroed to begin with. */
struct yb_compat_zero {
    uint64_t asked; /* Keys, ever ... */
    uint64_t found; /* ... and those that were there. */
    uint64_t told;  /* Lines of the log. */
    struct yb_compat_zero_kin kin[YB_COMPAT_ZERO_KIN_MAX];
};

/* Who is to be looked after. */
struct yb_compat_zero_suspect {
    enum yb_keyspace_engine engine;
    uint64_t asked;
    uint32_t prefix_bytes; /* What keys of its kin begin with. */
    char prefix[YB_COMPAT_ZERO_TEXT_MAX];
};

/* Note that keys were asked for, `key` and others like it, of which `found` were there. Returns
 * whether it is time to look; *suspect_out is set then. */
bool yb_compat_zero_note(struct yb_compat_zero *zero, struct yb_hash_bytes key, uint64_t asked,
                         uint64_t found, uint64_t now_ns,
                         struct yb_compat_zero_suspect *suspect_out);

#endif /* YB_COMPAT_ZERO_H */
