/* SPDX-License-Identifier: Apache-2.0
 *
 * choose.h -- where a put goes, and which replica a get asks first. Pure.
 *
 * A put wants as many different places as it wants replicas. The first is, in this order: a
 * preferred node that may take it, one of this host, or any. Of several that are equally good it is
 * the better of two drawn at random, by the free share of their memory ("the power of two choices":
 * Mitzenmacher, IEEE TPDS 2001), which spreads load without herding to a newcomer. Every further
 * one avoids, as far as there is a choice, the host, then the rack, then the zone of those before;
 * nodes of one host have racks and zones, too, where these say what else fails together.
 *
 * Blocks of a group go where the others of it are, as far as there is room: instead of drawing, of
 * those that are equally good and have room the one is taken that comes first in the group's own
 * order of nodes, which every client finds by hashing ("rendezvous": Thaler and Ravishankar, IEEE
 * ToN 1998). Nobody has to remember a group. Where none has room it is drawn as for any block.
 *
 * A get asks a replica on this host, or else the one with the fewest bytes under way from here; one
 * that failed lately is asked last.
 *
 * Threads   Any; no state. Randomness is passed in.
 */
#ifndef YB_CLIENT_CHOOSE_H
#define YB_CLIENT_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/types.h"

/* What is known of a node; an array of them is one row per member. */
struct yb_choice {
    uint16_t slot;
    bool writable;  /* Serving: not suspect, not draining, and it did not fail lately. */
    bool failed;    /* It failed lately: read from it last. */
    bool local;     /* On this host. */
    bool preferred; /* The caller named it. */
    bool tried;     /* For this item already, in vain. */
    uint32_t zone;  /* Equal numbers: the same one; 0: not known. */
    uint32_t rack;
    uint32_t host;
    uint64_t free_bytes;
    uint64_t capacity;
    uint64_t busy_bytes; /* Under way from here. */
};

#define YB_CHOOSE_MAX 8u

/* A block that is to be placed. */
struct yb_choose_block {
    uint64_t bytes;
    uint64_t group;  /* 0: none. */
    uint32_t wanted; /* Replicas, 1 to YB_CHOOSE_MAX. */
};

/* Choose places for the replicas of a block; writes their rows to `rows_out` and returns how many
 * there are: fewer if there are no more different nodes. `random` has wanted * 2 numbers. */
uint32_t yb_choose_places(const struct yb_choice *choices, uint32_t count,
                          const struct yb_choose_block *block, const uint64_t *random,
                          uint32_t rows_out[YB_CHOOSE_MAX]);

/* Whether so many bytes are more than all these have, whatever is in them. */
bool yb_choose_exceeds(const struct yb_choice *choices, uint32_t count, uint64_t bytes);

/* Choose which of `slots` to read from; returns its place in `slots`, UINT32_MAX: none is known, or
 * all were tried. `rows` maps a slot's place to its row; UINT32_MAX: not a member. `random` decides
 * between equals. */
uint32_t yb_choose_source(const struct yb_choice *choices, const uint32_t *rows, uint32_t count,
                          uint32_t tried_mask, uint64_t random);

/* How long a node that failed lately is tried with a message of so many bytes, where a round trip
 * takes `trip_ns` (0: not known): no longer than a healthy one may need, which has to be connected
 * to first. */
uint64_t yb_choose_probe_ns(uint64_t trip_ns, uint64_t bytes);

#endif /* YB_CLIENT_CHOOSE_H */
