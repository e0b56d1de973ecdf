/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.h -- cmocka with the headers it wants in front, and seeded randomness.
 *
 * A random test calls unit_seed(), which prints the seed it runs with and takes
 * another one from YUEBING_TEST_SEED, so that a failure can be repeated. With YUEBING_TEST_LONG
 * set, walks go on for longer.
 */
#ifndef YB_TESTS_UNIT_H
#define YB_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* xorshift64*: small, fast, the same everywhere. */
static inline uint64_t
unit_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static inline uint64_t
unit_seed(const char *what)
{
    const char *given = getenv("YUEBING_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);

    seed = seed == 0 ? 1 : seed;
    printf("%s: seed %llu (repeat with YUEBING_TEST_SEED)\n", what, (unsigned long long)seed);
    return seed;
}

/* Whether the long form of the tests was asked for. */
static inline bool
unit_long(void)
{
    return getenv("YUEBING_TEST_LONG") != NULL;
}

/* Write the path of a published request trace, such as "conversation_trace.jsonl": in the directory
 * YUEBING_TRACES, or in shared/traces beside the project. Whether it is there is another matter. */
static inline void
unit_trace_path(const char *name, char *path_out, size_t size)
{
    const char *given = getenv("YUEBING_TRACES");
    const char *source = getenv("PROJECT_SOURCE"); /* Set by the build. */

    if (given != NULL) {
        snprintf(path_out, size, "%s/%s", given, name);
    } else {
        snprintf(path_out, size, "%s/../shared/traces/%s", source != NULL ? source : ".", name);
    }
}

#endif /* YB_TESTS_UNIT_H */
