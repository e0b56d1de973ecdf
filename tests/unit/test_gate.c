/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "base/clock.h"
#include "client/gate.h"

#define MIB (1024u * 1024u)

static uint64_t
run(const struct yb_gate_cost *cost, const struct yb_gate_path *paths, const uint32_t *on,
    const uint64_t *bytes, uint32_t count)
{
    struct yb_gate gate;
    uint64_t queued[8] = {0};

    yb_gate_begin(&gate, cost);
    for (uint32_t i = 0; i < count; i++) {
        yb_gate_add(&gate, &paths[on[i]], &queued[on[i]], bytes[i]);
    }
    return yb_gate_run(&gate);
}

static void
test_gate__loading_that_is_slower_than_computing_is_declined(void **state)
{
    const struct yb_gate_path slow = {.latency_ns = 1, .rate = 1000ull * MIB};
    const struct yb_gate_cost cheap = {.prefill_ns = 900000}; /* 1 MiB in 1 ms. */
    const struct yb_gate_cost dear = {.prefill_ns = 1100000};
    const uint32_t on[4] = {0};
    const uint64_t bytes[4] = {MIB, MIB, MIB, MIB};

    (void)state;
    assert_int_equal(run(&cheap, &slow, on, bytes, 4), 0);
    assert_int_equal(run(&dear, &slow, on, bytes, 4), 4);
    assert_int_equal(run(&dear, &slow, on, bytes, 0), 0);
}

static void
test_gate__a_latency_pays_only_for_long_runs(void **state)
{
    const struct yb_gate_path far = {.latency_ns = 10000000, .rate = 4000ull * MIB};
    const struct yb_gate_cost cost = {.prefill_ns = 1000000};
    const uint32_t on[64] = {0};
    uint64_t bytes[64];

    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        bytes[i] = MIB;
    }
    assert_int_equal(run(&cost, &far, on, bytes, 13), 0); /* 13 ms against 10 + 3.25. */
    assert_int_equal(run(&cost, &far, on, bytes, 14), 14);
    assert_int_equal(run(&cost, &far, on, bytes, 64), 64);
}

static void
test_gate__a_slow_tail_is_left_to_be_computed(void **state)
{
    const struct yb_gate_path paths[2] = {{.rate = 10000ull * MIB}, {.rate = 100ull * MIB}};
    const struct yb_gate_cost cost = {.prefill_ns = 1000000};
    const uint32_t on[8] = {0, 0, 0, 0, 0, 0, 0, 1};
    const uint64_t bytes[8] = {MIB, MIB, MIB, MIB, MIB, MIB, MIB, MIB / 2};

    (void)state; /* The last would take 5 ms: less than all 8, and more than it saves. */
    assert_int_equal(run(&cost, paths, on, bytes, 8), 7);
}

static void
test_gate__paths_load_beside_each_other_and_what_is_not_known_is_open(void **state)
{
    const struct yb_gate_path paths[2] = {{.rate = 1000ull * MIB}, {.rate = 1000ull * MIB}};
    const struct yb_gate_path unknown = {0};
    const struct yb_gate_cost cost = {.prefill_ns = 600000};
    const uint32_t one[4] = {0, 0, 0, 0}, both[4] = {0, 1, 0, 1};
    const uint64_t bytes[4] = {MIB, MIB, MIB, MIB};

    (void)state;
    assert_int_equal(run(&cost, paths, one, bytes, 4), 0);
    assert_int_equal(run(&cost, paths, both, bytes, 4), 4);
    assert_int_equal(run(&cost, &unknown, one, bytes, 4), 4);
}

static void
test_gate__a_value_of_several_blocks_counts_as_many(void **state)
{
    const struct yb_gate_path path = {.rate = 1000ull * MIB};
    const struct yb_gate_cost whole = {.prefill_ns = 300000};
    const struct yb_gate_cost quarter = {.prefill_ns = 300000, .bytes = MIB / 4 + 1};
    const uint32_t on[1] = {0};
    const uint64_t bytes[1] = {MIB};

    (void)state;
    assert_int_equal(run(&whole, &path, on, bytes, 1), 0);
    assert_int_equal(run(&quarter, &path, on, bytes, 1), 1); /* Four, of which one is not full. */
}

static void
test_gate__learns_latency_from_small_gets_and_rate_from_large_ones(void **state)
{
    struct yb_gate_path path = {0};

    (void)state;
    assert_int_equal(yb_gate_load_ns(&path, 100 * MIB), 0);
    for (uint32_t i = 0; i < 100; i++) {
        yb_gate_measure(&path, 4096, 100000);
        yb_gate_measure(&path, 16 * MIB, 100000 + 16000000); /* 1 MiB in each ms. */
    }
    assert_in_range(path.latency_ns, 99000, 101000);
    assert_in_range(path.rate, 999ull * MIB, 1001ull * MIB);
    assert_in_range(yb_gate_load_ns(&path, 4 * MIB), 4090000, 4110000);
    for (uint32_t i = 0; i < 100; i++) { /* It has become slow. */
        yb_gate_measure(&path, 16 * MIB, 160100000);
    }
    assert_in_range(path.rate, 99ull * MIB, 101ull * MIB);
    yb_gate_measure(&path, 16 * MIB, 0);
    assert_true(yb_gate_load_ns(&path, 1) >= path.latency_ns);
}

static void
test_gate__no_number_overflows(void **state)
{
    struct yb_gate_path path = {.latency_ns = UINT64_MAX, .rate = 1};
    const struct yb_gate_cost cost = {.prefill_ns = UINT64_MAX, .bytes = 1};
    const uint32_t on[2] = {0};
    const uint64_t bytes[2] = {UINT64_MAX, UINT64_MAX};

    (void)state;
    assert_int_equal(yb_gate_load_ns(&path, UINT64_MAX), UINT64_MAX);
    assert_int_equal(run(&cost, &path, on, bytes, 2), 0);
    yb_gate_measure(&path, UINT64_MAX, 0);
    yb_gate_measure(&path, 1, UINT64_MAX);
    assert_true(path.rate > 1 && path.latency_ns > UINT64_MAX / 2);
}

/* The trivial model: look at every run. */
static void
test_gate__no_other_run_saves_more(void **state)
{
    uint64_t random = unit_seed("gate");

    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        struct yb_gate_path paths[3];
        struct yb_gate_cost cost = {.prefill_ns = 1 + unit_random(&random) % 1000};
        uint32_t on[12], count = (uint32_t)(unit_random(&random) % 13), best = 0, found;
        uint64_t bytes[12], saving = 0;

        for (uint32_t i = 0; i < 3; i++) {
            paths[i].latency_ns = unit_random(&random) % 3000;
            paths[i].rate = unit_random(&random) % 4 * YB_NS_PER_S;
        }
        for (uint32_t i = 0; i < count; i++) {
            on[i] = (uint32_t)(unit_random(&random) % 3);
            bytes[i] = unit_random(&random) % 1500;
        }
        for (uint32_t n = 1; n <= count; n++) {
            uint64_t on_path[3] = {0}, load = 0;

            for (uint32_t i = 0; i < n; i++) {
                on_path[on[i]] += bytes[i];
            }
            for (uint32_t i = 0; i < 3; i++) {
                uint64_t takes = yb_gate_load_ns(&paths[i], on_path[i]);
                bool used = false;

                for (uint32_t k = 0; k < n; k++) {
                    used = used || on[k] == i;
                }
                load = used && takes > load ? takes : load;
            }
            if (n * cost.prefill_ns > load && n * cost.prefill_ns - load >= saving) {
                saving = n * cost.prefill_ns - load;
                best = n;
            }
        }
        found = (uint32_t)run(&cost, paths, on, bytes, count);
        assert_int_equal(found, best);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate__loading_that_is_slower_than_computing_is_declined),
        cmocka_unit_test(test_gate__a_latency_pays_only_for_long_runs),
        cmocka_unit_test(test_gate__a_slow_tail_is_left_to_be_computed),
        cmocka_unit_test(test_gate__paths_load_beside_each_other_and_what_is_not_known_is_open),
        cmocka_unit_test(test_gate__a_value_of_several_blocks_counts_as_many),
        cmocka_unit_test(test_gate__learns_latency_from_small_gets_and_rate_from_large_ones),
        cmocka_unit_test(test_gate__no_number_overflows),
        cmocka_unit_test(test_gate__no_other_run_saves_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
