/* SPDX-License-Identifier: Apache-2.0
 *
 * A hierarchical timing wheel after Varghese and Lauck (1987), with the level chosen by the
 * highest digit that differs instead of by distance. No slot wraps around then, which is what
 * makes T2 true and the search for the earliest timer two instructions per level.
 */
#include "net/timer.h"

#include <stddef.h>

#include "base/check.h"
#include "base/clock.h"

#define WHEEL_MAGIC 0x74696d72u

/* `place` of a timer that is in no slot. */
#define PLACE_IDLE   0xffffu
#define PLACE_LATE   0xfffeu
#define PLACE_FIRING 0xfffdu

/* Binary digits of a slot number. */
#define SLOT_BITS 6u

_Static_assert(YB_TIMER_SLOT_COUNT == 1u << SLOT_BITS, "a slot is one base-64 digit");
_Static_assert(UINT64_MAX / YB_TIMER_TICK_NS < 1ull << (SLOT_BITS * YB_TIMER_LEVEL_COUNT),
               "every deadline has a level");
_Static_assert(offsetof(struct yb_timer, link) == 0, "a link is cast to its timer");

static void
ring_init(struct yb_timer_link *ring)
{
    ring->next = ring;
    ring->previous = ring;
}

static bool
ring_is_empty(const struct yb_timer_link *ring)
{
    return ring->next == ring;
}

static void
ring_append(struct yb_timer_link *ring, struct yb_timer_link *link)
{
    link->previous = ring->previous;
    link->next = ring;
    ring->previous->next = link;
    ring->previous = link;
}

static void
ring_remove(struct yb_timer_link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    link->next = NULL;
    link->previous = NULL;
}

static struct yb_timer *
ring_first(struct yb_timer_link *ring)
{
    return (struct yb_timer *)ring->next;
}

/* Put a timer that is in no ring where its tick belongs. */
static void
place_timer(struct yb_timer_wheel *wheel, struct yb_timer *timer)
{
    uint32_t level;
    uint32_t slot;

    if (timer->tick <= wheel->now_tick) {
        timer->place = PLACE_LATE;
        ring_append(&wheel->late, &timer->link);
        return;
    }
    level = (63u - (uint32_t)__builtin_clzll(timer->tick ^ wheel->now_tick)) / SLOT_BITS;
    YB_ASSERT(level < YB_TIMER_LEVEL_COUNT);
    slot = (uint32_t)(timer->tick >> (level * SLOT_BITS)) % YB_TIMER_SLOT_COUNT;
    timer->place = (uint16_t)(level * YB_TIMER_SLOT_COUNT + slot);
    wheel->occupied[level] |= 1ull << slot;
    ring_append(&wheel->slots[level][slot], &timer->link);
}

/* Take a timer out of its ring and keep the occupancy map true. */
static void
displace_timer(struct yb_timer_wheel *wheel, struct yb_timer *timer)
{
    uint32_t level = timer->place / YB_TIMER_SLOT_COUNT;
    uint32_t slot = timer->place % YB_TIMER_SLOT_COUNT;

    YB_ASSERT(timer->place != PLACE_IDLE);
    ring_remove(&timer->link);
    if (timer->place < YB_TIMER_LEVEL_COUNT * YB_TIMER_SLOT_COUNT &&
        ring_is_empty(&wheel->slots[level][slot])) {
        wheel->occupied[level] &= ~(1ull << slot);
    }
    timer->place = PLACE_IDLE;
}

void
yb_timer_wheel_init(struct yb_timer_wheel *wheel, uint64_t now_ns)
{
    wheel->magic = WHEEL_MAGIC;
    wheel->armed_count = 0;
    wheel->now_tick = now_ns / YB_TIMER_TICK_NS;
    wheel->advancing = false;
    for (uint32_t level = 0; level < YB_TIMER_LEVEL_COUNT; level++) {
        wheel->occupied[level] = 0;
        for (uint32_t slot = 0; slot < YB_TIMER_SLOT_COUNT; slot++) {
            ring_init(&wheel->slots[level][slot]);
        }
    }
    ring_init(&wheel->late);
    ring_init(&wheel->firing);
}

void
yb_timer_wheel_fini(struct yb_timer_wheel *wheel)
{
    YB_ASSERT_OBJ(wheel, WHEEL_MAGIC);
    YB_ASSERT(wheel->armed_count == 0);
    YB_ASSERT(!wheel->advancing);
    wheel->magic = 0;
}

void
yb_timer_init(struct yb_timer *timer, void (*fired)(struct yb_timer *timer))
{
    YB_ASSERT(fired != NULL);
    timer->link.next = NULL;
    timer->link.previous = NULL;
    timer->fired = fired;
    timer->tick = 0;
    timer->place = PLACE_IDLE;
}

void
yb_timer_arm(struct yb_timer_wheel *wheel, struct yb_timer *timer, uint64_t deadline_ns)
{
    yb_timer_cancel(wheel, timer);
    if (deadline_ns == YB_NEVER) {
        return;
    }
    /* Rounded up, while the current tick is rounded down: never early (T1). */
    timer->tick = deadline_ns / YB_TIMER_TICK_NS + (deadline_ns % YB_TIMER_TICK_NS != 0 ? 1u : 0u);
    place_timer(wheel, timer);
    wheel->armed_count++;
}

void
yb_timer_cancel(struct yb_timer_wheel *wheel, struct yb_timer *timer)
{
    YB_ASSERT_OBJ(wheel, WHEEL_MAGIC);
    YB_ASSERT(timer->fired != NULL);
    if (timer->place == PLACE_IDLE) {
        return;
    }
    YB_ASSERT(wheel->armed_count > 0);
    displace_timer(wheel, timer);
    wheel->armed_count--;
}

bool
yb_timer_is_armed(const struct yb_timer *timer)
{
    return timer->place != PLACE_IDLE;
}

/* Find the earliest occupied slot (T2). Returns false when every slot is empty; otherwise
 * *tick_out is the first tick of the slot. */
static bool
find_earliest(const struct yb_timer_wheel *wheel, uint32_t *level_out, uint32_t *slot_out,
              uint64_t *tick_out)
{
    for (uint32_t level = 0; level < YB_TIMER_LEVEL_COUNT; level++) {
        uint32_t shift = level * SLOT_BITS;

        if (wheel->occupied[level] != 0) {
            *level_out = level;
            *slot_out = (uint32_t)__builtin_ctzll(wheel->occupied[level]);
            *tick_out = ((wheel->now_tick >> shift) & ~63ull) << shift;
            *tick_out |= (uint64_t)*slot_out << shift;
            return true;
        }
    }
    return false;
}

uint64_t
yb_timer_wheel_next_ns(const struct yb_timer_wheel *wheel)
{
    uint32_t level;
    uint32_t slot;
    uint64_t tick;

    YB_ASSERT_OBJ(wheel, WHEEL_MAGIC);
    if (!ring_is_empty(&wheel->late) || !ring_is_empty(&wheel->firing)) {
        return wheel->now_tick * YB_TIMER_TICK_NS;
    }
    if (!find_earliest(wheel, &level, &slot, &tick) || tick > YB_NEVER / YB_TIMER_TICK_NS) {
        return YB_NEVER;
    }
    return tick * YB_TIMER_TICK_NS;
}

static void
make_due(struct yb_timer_wheel *wheel, struct yb_timer *timer)
{
    displace_timer(wheel, timer);
    timer->place = PLACE_FIRING;
    ring_append(&wheel->firing, &timer->link);
}

/* Move time to `target_tick`, slot by occupied slot, and queue what became due in order. */
static void
collect_due(struct yb_timer_wheel *wheel, uint64_t target_tick)
{
    uint32_t level;
    uint32_t slot;
    uint64_t tick;

    while (!ring_is_empty(&wheel->late)) {
        make_due(wheel, ring_first(&wheel->late));
    }
    while (find_earliest(wheel, &level, &slot, &tick) && tick <= target_tick) {
        struct yb_timer_link *ring = &wheel->slots[level][slot];

        YB_ASSERT(tick > wheel->now_tick);
        wheel->now_tick = tick;
        while (!ring_is_empty(ring)) {
            struct yb_timer *timer = ring_first(ring);

            if (timer->tick <= tick) {
                make_due(wheel, timer);
            } else {
                displace_timer(wheel, timer);
                place_timer(wheel, timer);
                YB_ASSERT(timer->place / YB_TIMER_SLOT_COUNT < level);
            }
        }
    }
    wheel->now_tick = target_tick;
}

uint32_t
yb_timer_wheel_advance(struct yb_timer_wheel *wheel, uint64_t now_ns)
{
    uint64_t target_tick = now_ns / YB_TIMER_TICK_NS;
    uint32_t fired_count = 0;

    YB_ASSERT_OBJ(wheel, WHEEL_MAGIC);
    YB_ASSERT(!wheel->advancing);
    if (target_tick < wheel->now_tick) {
        target_tick = wheel->now_tick;
    }
    collect_due(wheel, target_tick);
    wheel->advancing = true;
    while (!ring_is_empty(&wheel->firing)) {
        struct yb_timer *timer = ring_first(&wheel->firing);

        displace_timer(wheel, timer);
        YB_ASSERT(wheel->armed_count > 0);
        wheel->armed_count--;
        fired_count++;
        timer->fired(timer); /* May free the timer: it is not touched again. */
    }
    wheel->advancing = false;
    return fired_count;
}
