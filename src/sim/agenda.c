/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/agenda.h"

#include <stdlib.h>

#include "base/check.h"

#define MAGIC    0x61676e64u
#define ROOM     1024u /* At first. */
#define CHILDREN 4u    /* A flat heap: fewer cache misses than two. */

struct yb_agenda {
    uint32_t magic;
    uint32_t count;
    uint32_t room;
    uint64_t now_ns;
    uint64_t entered;
    uint64_t taken;
    struct yb_agenda_event *heap;
};

enum yb_status
yb_agenda_create(struct yb_agenda **agenda_out)
{
    struct yb_agenda *agenda = calloc(1, sizeof(*agenda));

    if (agenda == NULL) {
        return YB_NO_MEMORY;
    }
    agenda->heap = calloc(ROOM, sizeof(*agenda->heap));
    if (agenda->heap == NULL) {
        free(agenda);
        return YB_NO_MEMORY;
    }
    agenda->magic = MAGIC;
    agenda->room = ROOM;
    *agenda_out = agenda;
    return YB_OK;
}

void
yb_agenda_destroy(struct yb_agenda **agenda)
{
    if (*agenda == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*agenda, MAGIC);
    (*agenda)->magic = 0;
    free((*agenda)->heap);
    free(*agenda);
    *agenda = NULL;
}

static bool
before(const struct yb_agenda_event *a, const struct yb_agenda_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static enum yb_status
grow(struct yb_agenda *agenda)
{
    struct yb_agenda_event *heap;

    if (agenda->room >= YB_AGENDA_EVENTS_MAX) {
        return YB_TOO_LARGE;
    }
    heap = realloc(agenda->heap, 2 * agenda->room * sizeof(*heap));
    if (heap == NULL) {
        return YB_NO_MEMORY;
    }
    agenda->heap = heap;
    agenda->room *= 2;
    return YB_OK;
}

enum yb_status
yb_agenda_enter(struct yb_agenda *agenda, const struct yb_agenda_event *event)
{
    struct yb_agenda_event entered = *event;
    enum yb_status status;
    uint32_t at;

    YB_ASSERT_OBJ(agenda, MAGIC);
    YB_ASSERT(event->at_ns >= agenda->now_ns);
    if (agenda->count == agenda->room) {
        status = grow(agenda);
        if (status != YB_OK) {
            return status;
        }
    }
    entered.order = agenda->entered++;
    at = agenda->count++;
    while (at > 0 && before(&entered, &agenda->heap[(at - 1) / CHILDREN])) {
        agenda->heap[at] = agenda->heap[(at - 1) / CHILDREN];
        at = (at - 1) / CHILDREN;
    }
    agenda->heap[at] = entered;
    return YB_OK;
}

/* Return the child of `at` that comes first; `count` or more: it has none. */
static uint32_t
first_child(const struct yb_agenda *agenda, uint32_t at)
{
    uint32_t first = at * CHILDREN + 1;
    uint32_t end = first + CHILDREN < agenda->count ? first + CHILDREN : agenda->count;

    for (uint32_t child = first + 1; child < end; child++) {
        if (before(&agenda->heap[child], &agenda->heap[first])) {
            first = child;
        }
    }
    return first;
}

bool
yb_agenda_next(struct yb_agenda *agenda, struct yb_agenda_event *event_out)
{
    struct yb_agenda_event last;
    uint32_t at = 0;

    YB_ASSERT_OBJ(agenda, MAGIC);
    if (agenda->count == 0) {
        return false;
    }
    *event_out = agenda->heap[0];
    YB_ASSERT(event_out->at_ns >= agenda->now_ns);
    agenda->now_ns = event_out->at_ns;
    agenda->taken++;
    last = agenda->heap[--agenda->count];
    for (;;) {
        uint32_t child = first_child(agenda, at);

        if (child >= agenda->count || !before(&agenda->heap[child], &last)) {
            break;
        }
        agenda->heap[at] = agenda->heap[child];
        at = child;
    }
    agenda->heap[at] = last;
    return true;
}

uint64_t
yb_agenda_now(const struct yb_agenda *agenda)
{
    return agenda->now_ns;
}

uint64_t
yb_agenda_count(const struct yb_agenda *agenda)
{
    return agenda->taken;
}
