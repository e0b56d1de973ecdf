/* SPDX-License-Identifier: Apache-2.0
 *
 * timer.h -- many deadlines, one wheel, no allocation.
 *
 * Every request, connection and lease has a deadline, most of which are cancelled
 * before they pass. So arming and cancelling are O(1), and a timer is a struct
 * inside whatever it guards.
 *
 * Time is cut into ticks of one millisecond. A wheel has 8 levels of 64 slots. A
 * timer sits on the level of the highest base-64 digit in which its tick differs from
 * the wheel's current tick, in the slot of that digit:
 *
 *     now   = ..0 0 5          timer at tick ..0 0 9  level 0, slot 9
 *     (base-64 digits)         timer at tick ..0 2 3  level 1, slot 2
 *                              timer at tick ..1 0 0  level 2, slot 1
 *
 * When the current tick enters a slot above level 0, the slot's timers move down; each
 * timer moves at most 7 times in its life. 8 levels hold 2^48 ticks, more than 64 bits of
 * nanoseconds can name, so that no deadline is too far away to have a place of its own.
 *
 *     IDLE --arm--> ARMED --advance--> DUE --just before its callback--> IDLE
 *       ^             |                 |
 *       +---cancel----+-----------------+        arm moves an ARMED or DUE timer
 *
 * Invariants
 *   T1  A timer never fires before its deadline; in an advance to `now_ns` every timer
 *       whose deadline is at least one tick before `now_ns` fires.
 *   T2  Everything on level n is due before everything on level n + 1: the earliest slot
 *       is the lowest bit of the lowest occupied level.
 *   T3  Within one advance, callbacks run in the order of their ticks.
 *   T4  What a callback arms fires in a later advance, even if it is due already, so that
 *       a timer that re-arms itself in the past cannot hold the loop.
 *   T5  The work of one advance depends on how many timers move, never on how far time
 *       jumped.
 *
 * Threads   A wheel and its timers belong to one worker; callbacks run on it, inside advance.
 * Memory    The caller owns wheel and timers. An armed timer is borrowed until it fires or
 *           is cancelled; its callback may free it. Neither may move in memory meanwhile.
 * Time      Passed in. Time that goes backwards is ignored.
 */
#ifndef YB_NET_TIMER_H
#define YB_NET_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#define YB_TIMER_TICK_NS     1000000ull
#define YB_TIMER_LEVEL_COUNT 8u
#define YB_TIMER_SLOT_COUNT  64u

/* A ring of timers, or a timer's place in one. */
struct yb_timer_link {
    struct yb_timer_link *next;
    struct yb_timer_link *previous;
};

/* Owned by the caller; every field is private to the wheel. */
struct yb_timer {
    struct yb_timer_link link; /* First: the wheel finds the timer by it. */
    void (*fired)(struct yb_timer *timer);
    uint64_t tick;  /* The first tick at which it may fire. */
    uint16_t place; /* level * 64 + slot, or one of the PLACE_ values of timer.c. */
};

/* Owned by the caller; every field is private. */
struct yb_timer_wheel {
    uint32_t magic;
    uint32_t armed_count; /* ARMED and DUE timers. */
    uint64_t now_tick;
    bool advancing;
    uint64_t occupied[YB_TIMER_LEVEL_COUNT]; /* Bit s: slot s holds a timer. */
    struct yb_timer_link slots[YB_TIMER_LEVEL_COUNT][YB_TIMER_SLOT_COUNT];
    struct yb_timer_link late;   /* Armed for a tick that had passed: the next advance. */
    struct yb_timer_link firing; /* What the advance in progress has still to call. */
};

void yb_timer_wheel_init(struct yb_timer_wheel *wheel, uint64_t now_ns);

/* End the wheel's life. It is a bug, and aborts, if a timer is still armed. */
void yb_timer_wheel_fini(struct yb_timer_wheel *wheel);

/* Make `timer` IDLE for the first time; `fired` is called each time it fires. */
void yb_timer_init(struct yb_timer *timer, void (*fired)(struct yb_timer *timer));

/* Make `timer` fire once `deadline_ns` has passed, whether or not it was armed before.
 * YB_NEVER disarms it. */
void yb_timer_arm(struct yb_timer_wheel *wheel, struct yb_timer *timer, uint64_t deadline_ns);

/* Make `timer` IDLE: its callback will not run, even if it was DUE. Harmless when IDLE. */
void yb_timer_cancel(struct yb_timer_wheel *wheel, struct yb_timer *timer);

/* Return whether the timer's callback is still to come. */
bool yb_timer_is_armed(const struct yb_timer *timer);

/* Return a time not after the first moment at which advance would run a callback: sleep until
 * then at most. It may be earlier, because a far timer has first to move down a level; the
 * advance at that time brings it nearer. YB_NEVER: no timer is armed. */
uint64_t yb_timer_wheel_next_ns(const struct yb_timer_wheel *wheel);

/* Let time be `now_ns` and run what is due (T1, T3, T4). A callback may arm and cancel any
 * timer of the wheel; it may not advance it. Returns how many callbacks ran. */
uint32_t yb_timer_wheel_advance(struct yb_timer_wheel *wheel, uint64_t now_ns);

#endif /* YB_NET_TIMER_H */
