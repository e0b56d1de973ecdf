/* SPDX-License-Identifier: Apache-2.0
 *
 * CLOCK_BOOTTIME costs a system call on kernels without a vdso entry for it;
 * Linux has had one since 5.3 on x86-64 and arm64.
 */
#include "base/clock.h"

#include <time.h>

#include "base/check.h"

static uint64_t
read_clock(clockid_t id)
{
    struct timespec now;

    YB_ASSERT(clock_gettime(id, &now) == 0);
    return (uint64_t)now.tv_sec * YB_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t
system_monotonic_ns(const struct yb_clock *clock)
{
    (void)clock;
    return read_clock(CLOCK_BOOTTIME);
}

static uint64_t
system_wall_ns(const struct yb_clock *clock)
{
    (void)clock;
    return read_clock(CLOCK_REALTIME);
}

const struct yb_clock *
yb_clock_system(void)
{
    static const struct yb_clock clock = {
        .monotonic_ns = system_monotonic_ns,
        .wall_ns = system_wall_ns,
    };

    return &clock;
}
