/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h -- time, passed in.
 *
 * Nothing outside base/clock.c reads the machine's clock: whoever needs the
 * time is given a struct yb_clock, so that the simulation can hand out its own
 * and tests never sleep.
 *
 * `monotonic` never goes backwards and counts from an arbitrary start; leases
 * and deadlines use it (on Linux CLOCK_BOOTTIME, so that suspended time
 * counts). `wall` is nanoseconds since 1970 UTC and may jump; only logs, spans
 * and stored times use it.
 *
 * Threads   yb_clock_system() may be read from any thread. A simulated clock
 *           belongs to the simulation's one thread.
 */
#ifndef YB_BASE_CLOCK_H
#define YB_BASE_CLOCK_H

#include <stdint.h>

#define YB_NS_PER_US 1000ull
#define YB_NS_PER_MS 1000000ull
#define YB_NS_PER_S  1000000000ull

/* A deadline that never passes. */
#define YB_NEVER UINT64_MAX

struct yb_clock {
    uint64_t (*monotonic_ns)(const struct yb_clock *clock);
    uint64_t (*wall_ns)(const struct yb_clock *clock);
};

/* Return the machine's clock: static, never NULL. */
const struct yb_clock *yb_clock_system(void);

static inline uint64_t
yb_clock_now(const struct yb_clock *clock)
{
    return clock->monotonic_ns(clock);
}

static inline uint64_t
yb_clock_wall(const struct yb_clock *clock)
{
    return clock->wall_ns(clock);
}

/* Return `now + delta`, saturating at YB_NEVER: a huge timeout means never, not the past. */
static inline uint64_t
yb_deadline_after(uint64_t now_ns, uint64_t delta_ns)
{
    return delta_ns > YB_NEVER - now_ns ? YB_NEVER : now_ns + delta_ns;
}

#endif /* YB_BASE_CLOCK_H */
