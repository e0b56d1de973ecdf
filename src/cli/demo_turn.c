/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_turn.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

enum yb_status
yb_demo_turns_init(struct yb_demo_turns *turns, uint32_t count)
{
    *turns = (struct yb_demo_turns){
        .waits = calloc(count, sizeof(*turns->waits)), .count = count, .first = count};
    yb_lock_init(&turns->lock, YB_LOCK_ROUTER);
    yb_lock_cond_init(&turns->changed);
    return turns->waits != NULL ? YB_OK : YB_NO_MEMORY;
}

void
yb_demo_turns_fini(struct yb_demo_turns *turns)
{
    (void)pthread_cond_destroy(&turns->changed);
    yb_lock_fini(&turns->lock);
    free(turns->waits);
    turns->waits = NULL;
}

bool
yb_demo_turn_await(struct yb_demo_turns *turns, uint32_t number, uint64_t timeout_ns)
{
    const struct yb_clock *clock = yb_clock_system();
    const uint64_t deadline_ns = yb_deadline_after(yb_clock_now(clock), timeout_ns);
    uint64_t now_ns;
    bool may;

    YB_ASSERT(number < turns->count);
    yb_lock_acquire(&turns->lock);
    while (turns->first < number && (now_ns = yb_clock_now(clock)) < deadline_ns) {
        (void)yb_lock_wait(&turns->lock, &turns->changed, deadline_ns - now_ns);
    }
    may = turns->first >= number;
    yb_lock_release(&turns->lock);
    return may;
}

void
yb_demo_turn_refused(struct yb_demo_turns *turns, uint32_t number)
{
    YB_ASSERT(number < turns->count);
    yb_lock_acquire(&turns->lock);
    turns->waits[number] = true;
    turns->first = number < turns->first ? number : turns->first;
    yb_lock_release(&turns->lock);
}

void
yb_demo_turn_end(struct yb_demo_turns *turns, uint32_t number)
{
    YB_ASSERT(number < turns->count);
    yb_lock_acquire(&turns->lock);
    turns->waits[number] = false;
    while (turns->first < turns->count && !turns->waits[turns->first]) {
        turns->first++;
    }
    (void)pthread_cond_broadcast(&turns->changed);
    yb_lock_release(&turns->lock);
}
