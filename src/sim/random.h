/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h -- numbers that look random and are the same for a seed on every machine: splitmix64
 * (Steele, Lea and Flood, OOPSLA 2014).
 *
 * Threads   One owner.
 */
#ifndef YB_SIM_RANDOM_H
#define YB_SIM_RANDOM_H

#include <math.h>
#include <stdint.h>

struct yb_sim_random {
    uint64_t state; /* The seed, to begin with. */
};

static inline uint64_t
yb_sim_random_next(struct yb_sim_random *random)
{
    uint64_t mixed = random->state += 0x9e3779b97f4a7c15ull;

    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
    return mixed ^ mixed >> 31;
}

/* Return a number from 0 up to, not including, `bound`, which is not 0. */
static inline uint64_t
yb_sim_random_below(struct yb_sim_random *random, uint64_t bound)
{
    return (uint64_t)((unsigned __int128)yb_sim_random_next(random) * bound >> 64);
}

/* Return a number from 0 up to, not including, 1. */
static inline double
yb_sim_random_unit(struct yb_sim_random *random)
{
    return (double)(yb_sim_random_next(random) >> 11) * 0x1p-53;
}

/* Return a time until the next of events that come `mean` apart on the average (Poisson). */
static inline double
yb_sim_random_exponential(struct yb_sim_random *random, double mean)
{
    return -mean * log1p(-yb_sim_random_unit(random));
}

/* Return a number of the normal distribution of mean 0 and deviation 1 (Box and Muller). */
static inline double
yb_sim_random_normal(struct yb_sim_random *random)
{
    double radius = sqrt(yb_sim_random_exponential(random, 2.0));

    return radius * cos(2.0 * 3.14159265358979323846 * yb_sim_random_unit(random));
}

#endif /* YB_SIM_RANDOM_H */
