/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of sched/decoding.h: what will be decoded later is what was told, less what is
 * known or likely to have ended.
 * Method: beside sums over all requests, one by one.
 */
#include "unit.h"

#include <string.h>

#include "sched/decoding.h"

#define SECOND 1000000000ull

static void
assert_near(double value, double wanted, double by)
{
    if (value < wanted - by || value > wanted + by) {
        print_error("%f instead of %f\n", value, wanted);
        fail();
    }
}

static void
test_sched_decoding__what_was_dropped_is_not_counted(void **state)
{
    static struct yb_sched_decoding decoding;
    struct yb_sched_decoding_load load;
    uint64_t random = unit_seed("decoding");
    uint64_t at_ns[40];
    uint64_t tokens[40];
    uint64_t sum = 0;

    (void)state;
    memset(&decoding, 0, sizeof decoding);
    for (uint32_t i = 0; i < 40; i++) {
        at_ns[i] = 100 * SECOND + unit_random(&random) % (20 * SECOND);
        tokens[i] = unit_random(&random) % 10000;
        yb_sched_decoding_add(&decoding, at_ns[i], tokens[i]);
    }
    for (uint32_t i = 0; i < 40; i += 2) {
        yb_sched_decoding_drop(&decoding, at_ns[i], tokens[i]);
    }
    for (uint32_t i = 1; i < 40; i += 2) {
        yb_sched_decoding_drop(&decoding, at_ns[i], tokens[i]);
        sum += tokens[i];
        yb_sched_decoding_add(&decoding, 130 * SECOND, tokens[i]);
    }
    /* As soon as they are there nothing has ended; before that they are not there. */
    load = yb_sched_decoding_at(&decoding, 130 * SECOND, 130 * SECOND);
    assert_near(load.requests, 20, 0.01);
    assert_near(load.context_tokens, (double)sum, 0.01 * (double)sum);
    load = yb_sched_decoding_at(&decoding, 100 * SECOND, 129 * SECOND);
    assert_near(load.requests, 0, 0.01);
    assert_near(load.context_tokens, 0, 0.01);
}

/* Half of the decodes last 2 s, half 60 s. */
static void
test_sched_decoding__what_lasts_is_learned_from_what_has_lasted(void **state)
{
    static struct yb_sched_decoding decoding;

    (void)state;
    memset(&decoding, 0, sizeof decoding);
    for (uint32_t i = 0; i < 1000; i++) {
        yb_sched_decoding_ended(&decoding, (i % 2 == 0 ? 2 : 60) * SECOND);
    }
    for (uint32_t i = 0; i < 100; i++) {
        yb_sched_decoding_add(&decoding, 1000 * SECOND, 10);
    }
    assert_near(yb_sched_decoding_at(&decoding, 1000 * SECOND, 1010 * SECOND).requests, 50, 5);
    assert_near(yb_sched_decoding_at(&decoding, 1000 * SECOND, 1100 * SECOND).requests, 0, 2);
    /* Who has lasted for 10 s, lasts for 60. */
    assert_near(yb_sched_decoding_at(&decoding, 1010 * SECOND, 1040 * SECOND).requests, 100, 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_decoding__what_was_dropped_is_not_counted),
        cmocka_unit_test(test_sched_decoding__what_lasts_is_learned_from_what_has_lasted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
