/* SPDX-License-Identifier: Apache-2.0
 *
 * agenda.h -- what happens next in a simulated cluster.
 *
 * A heap of events in the order of their time; events of one time come in the order in which they
 * were entered. So a run is the same each time: nothing here asks a clock or an address.
 *
 * An event cannot be taken back. Whoever changes its mind counts up a stamp of its own, and ignores
 * events that carry an older one.
 *
 * Invariants
 *   A1  Time never goes back: an event is entered for now or later, and `now` is the time of the
 *       event that came out last.
 *   A2  What was entered comes out once.
 *
 * Threads   One owner.
 * Memory    The heap grows by doubling, up to YB_AGENDA_EVENTS_MAX.
 * Time      Simulated nanoseconds from 0.
 */
#ifndef YB_SIM_AGENDA_H
#define YB_SIM_AGENDA_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_AGENDA_EVENTS_MAX (1u << 26)

struct yb_agenda;

struct yb_agenda_event {
    uint64_t at_ns;
    uint64_t order; /* Filled in by enter. */
    uint64_t stamp;
    uint32_t who;
    uint32_t kind;
};

/* Create an empty agenda at time 0. On OK *agenda_out is owned by the caller. Fails with NO_MEMORY.
 */
YB_CHECKED enum yb_status yb_agenda_create(struct yb_agenda **agenda_out);

/* Consume the agenda and set *agenda to NULL; NULL is allowed inside. */
void yb_agenda_destroy(struct yb_agenda **agenda);

/* Enter a copy of `event`. Fails with NO_MEMORY or TOO_LARGE (the bound). An event of the past is a
 * bug, and aborts (A1). */
YB_CHECKED enum yb_status yb_agenda_enter(struct yb_agenda *agenda,
                                          const struct yb_agenda_event *event);

/* Take the next event out and let time be its time; false: there is none. */
bool yb_agenda_next(struct yb_agenda *agenda, struct yb_agenda_event *event_out);

uint64_t yb_agenda_now(const struct yb_agenda *agenda);

/* Return how many events came out since create. */
uint64_t yb_agenda_count(const struct yb_agenda *agenda);

#endif /* YB_SIM_AGENDA_H */
