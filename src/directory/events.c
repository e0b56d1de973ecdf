/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of events and a ring of bytes.
 */
#include "directory/events.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct yb_events {
    struct yb_event *ring;
    uint32_t mask;
    uint64_t next;
    uint8_t *keys;   /* NULL: not kept. */
    uint64_t key_at; /* Where the next key goes: bytes ever, a key never wraps around. */
};

enum yb_status
yb_events_create(uint32_t events_max, bool keys, struct yb_events **events_out)
{
    struct yb_events *events;

    if (events_max == 0 || events_max > YB_EVENTS_MAX || (events_max & (events_max - 1)) != 0) {
        return YB_INVALID;
    }
    events = calloc(1, sizeof(*events));
    if (events == NULL) {
        return YB_NO_MEMORY;
    }
    events->ring = calloc(events_max, sizeof(*events->ring));
    events->keys = keys ? malloc(YB_EVENTS_KEY_BYTES) : NULL;
    if (events->ring == NULL || (keys && events->keys == NULL)) {
        yb_events_destroy(&events);
        return YB_NO_MEMORY;
    }
    events->mask = events_max - 1;
    events->next = 1;
    *events_out = events;
    return YB_OK;
}

void
yb_events_destroy(struct yb_events **events)
{
    free((*events)->ring);
    free((*events)->keys);
    free(*events);
    *events = NULL;
}

void
yb_events_add(struct yb_events *events, const struct yb_event *event, const uint8_t *key)
{
    struct yb_event *place = &events->ring[events->next & events->mask];
    uint64_t room = YB_EVENTS_KEY_BYTES - events->key_at % YB_EVENTS_KEY_BYTES;

    *place = *event;
    events->next++;
    if (events->keys == NULL || key == NULL) {
        place->key_bytes = 0;
    }
    if (place->key_bytes > 0) {
        events->key_at += room < place->key_bytes ? room : 0;
        place->key_at = events->key_at;
        memcpy(events->keys + events->key_at % YB_EVENTS_KEY_BYTES, key, place->key_bytes);
        events->key_at += place->key_bytes;
    }
}

uint64_t
yb_events_next(const struct yb_events *events)
{
    return events->next;
}

uint64_t
yb_events_first(const struct yb_events *events)
{
    return events->next - 1 > events->mask ? events->next - 1 - events->mask : 1;
}

const struct yb_event *
yb_events_at(const struct yb_events *events, uint64_t number, const uint8_t **key_out)
{
    const struct yb_event *event = &events->ring[number & events->mask];

    YB_ASSERT(number >= yb_events_first(events) && number < events->next);
    *key_out = NULL;
    if (event->key_bytes > 0 && events->key_at - event->key_at <= YB_EVENTS_KEY_BYTES) {
        *key_out = events->keys + event->key_at % YB_EVENTS_KEY_BYTES;
    }
    return event;
}
