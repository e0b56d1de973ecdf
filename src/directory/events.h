/* SPDX-License-Identifier: Apache-2.0
 *
 * events.h -- the latest changes, numbered, for those who follow every one.
 *
 * Invariants
 *   E1  Events are numbered from 1 without gaps; the last `events_max` are kept.
 *   E2  A key is kept with its event until YB_EVENTS_KEY_BYTES of later keys have come.
 *
 * Threads   One owner.
 * Memory    All of it is allocated by create; the room for keys only if they are wanted.
 */
#ifndef YB_DIRECTORY_EVENTS_H
#define YB_DIRECTORY_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_EVENTS_MAX       (1u << 24)
#define YB_EVENTS_KEY_BYTES (8u << 20)

struct yb_events;

struct yb_event {
    struct yb_id hash;
    uint64_t grant;
    uint64_t parent; /* Of what was stored; 0: not known. */
    uint64_t key_at; /* Private. */
    uint16_t tenant;
    uint16_t slot;
    uint16_t size_code;
    uint16_t key_bytes;
    uint8_t kind; /* enum yb_wire_event_kind */
    uint8_t tier;
};

/* `events_max`: a power of two. Fails with INVALID or NO_MEMORY. */
YB_CHECKED enum yb_status yb_events_create(uint32_t events_max, bool keys,
                                           struct yb_events **events_out);
void yb_events_destroy(struct yb_events **events);

/* Add an event; `key` (event->key_bytes of it) is copied, if keys are kept. */
void yb_events_add(struct yb_events *events, const struct yb_event *event, const uint8_t *key);

/* The number that the next event will have, and the first that is kept. */
uint64_t yb_events_next(const struct yb_events *events);
uint64_t yb_events_first(const struct yb_events *events);

/* Return an event that is kept; *key_out is its key, NULL if it is not kept. Borrowed until the
 * next add. */
const struct yb_event *yb_events_at(const struct yb_events *events, uint64_t number,
                                    const uint8_t **key_out);

#endif /* YB_DIRECTORY_EVENTS_H */
