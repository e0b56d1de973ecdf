/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the guarantees F1-F4 of base/fair.h.
 * Method: small scenes, then random loads and shares. F2 and F3 speak of every run of pops: for
 * one class, s * W - S over a run is a difference of two values of one walk, so the worst run is
 * known from the walk's running extremes, without trying all of them. F4 is compared with a
 * search through all items.
 */
#include "unit.h"

#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/fair.h"

#define ITEM_COUNT 400u

static struct yb_fair
fair_with(uint64_t cost_bytes_max, uint16_t throughput_permille, uint16_t background_permille)
{
    struct yb_fair fair;
    struct yb_fair_options options = {
        .cost_bytes_max = cost_bytes_max,
        .share_permille = {0, throughput_permille, background_permille},
    };

    assert_int_equal(yb_fair_init(&fair, &options), YB_OK);
    return fair;
}

static void
test_fair__init_refuses_shares_that_cannot_be_kept(void **state)
{
    struct yb_fair fair;
    struct yb_fair_options options = {.cost_bytes_max = 1, .share_permille = {0, 500, 500}};

    (void)state;
    assert_int_equal(yb_fair_init(&fair, &options), YB_OK);
    options.share_permille[2] = 501;
    assert_int_equal(yb_fair_init(&fair, &options), YB_INVALID);
    options = (struct yb_fair_options){.cost_bytes_max = 1, .share_permille = {1, 0, 0}};
    assert_int_equal(yb_fair_init(&fair, &options), YB_INVALID);
    options = (struct yb_fair_options){.cost_bytes_max = 0};
    assert_int_equal(yb_fair_init(&fair, &options), YB_INVALID);
    options.cost_bytes_max = YB_FAIR_COST_BYTES_LIMIT + 1;
    assert_int_equal(yb_fair_init(&fair, &options), YB_INVALID);
}

static void
test_fair__without_shares_preference_is_strict(void **state)
{
    struct yb_fair fair = fair_with(100, 0, 0);
    struct yb_fair_item items[9];

    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        yb_fair_item_init(&items[i], (enum yb_class)(i % 3), 9 - i, 100);
        yb_fair_push(&fair, &items[i]);
    }
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(yb_fair_pop(&fair)->traffic_class, i / 3);
    }
    assert_null(yb_fair_pop(&fair));
    yb_fair_fini(&fair);
}

static void
test_fair__a_lower_class_gets_its_share_under_endless_pressure(void **state)
{
    struct yb_fair fair = fair_with(100, 0, 100);
    struct yb_fair_item items[ITEM_COUNT];
    uint32_t background_count = 0;

    (void)state;
    for (uint32_t i = 0; i < ITEM_COUNT; i++) {
        yb_fair_item_init(&items[i], i % 2 == 0 ? YB_CLASS_FIRST_TOKEN : YB_CLASS_BACKGROUND, i,
                          100);
        yb_fair_push(&fair, &items[i]);
    }
    for (uint32_t i = 0; i < 100; i++) {
        background_count += yb_fair_pop(&fair)->traffic_class == YB_CLASS_BACKGROUND;
    }
    assert_in_range(background_count, 9, 11);
}

static void
test_fair__a_class_that_was_idle_has_saved_up_nothing(void **state)
{
    struct yb_fair fair = fair_with(100, 0, 500);
    struct yb_fair_item urgent[60];
    struct yb_fair_item background[20];
    uint32_t first_background = 0;

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        yb_fair_item_init(&urgent[i], YB_CLASS_FIRST_TOKEN, i, 100);
        yb_fair_push(&fair, &urgent[i]);
    }
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(yb_fair_pop(&fair)->traffic_class, YB_CLASS_FIRST_TOKEN);
    }
    for (uint32_t i = 0; i < 20; i++) {
        yb_fair_item_init(&background[i], YB_CLASS_BACKGROUND, i, 100);
        yb_fair_push(&fair, &background[i]);
    }
    for (uint32_t i = 0; i < 20; i++) {
        first_background += yb_fair_pop(&fair)->traffic_class == YB_CLASS_BACKGROUND;
    }
    assert_in_range(first_background, 9, 11); /* Its share from now on; no burst. */
}

static void
test_fair__items_that_cost_nothing_cannot_starve_anybody(void **state)
{
    struct yb_fair fair = fair_with(10, 0, 200);
    struct yb_fair_item items[ITEM_COUNT];
    uint32_t background_count = 0;

    (void)state;
    for (uint32_t i = 0; i < ITEM_COUNT; i++) {
        yb_fair_item_init(&items[i], i % 2 == 0 ? YB_CLASS_FIRST_TOKEN : YB_CLASS_BACKGROUND, 0, 0);
        yb_fair_push(&fair, &items[i]);
    }
    for (uint32_t i = 0; i < 100; i++) {
        background_count += yb_fair_pop(&fair)->traffic_class == YB_CLASS_BACKGROUND;
    }
    assert_in_range(background_count, 19, 21);
}

static void
test_fair__equal_deadlines_go_in_the_order_of_arrival(void **state)
{
    struct yb_fair fair = fair_with(1, 0, 0);
    struct yb_fair_item items[ITEM_COUNT];

    (void)state;
    for (uint32_t i = 0; i < ITEM_COUNT; i++) {
        yb_fair_item_init(&items[i], YB_CLASS_THROUGHPUT, YB_NEVER, 1);
        yb_fair_push(&fair, &items[i]);
    }
    yb_fair_remove(&fair, &items[7]);
    yb_fair_push(&fair, &items[7]); /* It arrives anew, behind all others. */
    for (uint32_t i = 0; i < ITEM_COUNT - 1; i++) {
        assert_ptr_equal(yb_fair_pop(&fair), &items[i < 7 ? i : i + 1]);
    }
    assert_ptr_equal(yb_fair_pop(&fair), &items[7]);
}

/* One class's walk of s * W - S, in bytes times 1000, since it last had no work (F2), and, for F3,
 * since the class that it is measured against last had none. */
struct walk {
    int64_t value;
    int64_t lowest;
    int64_t highest;
};

struct load {
    struct yb_fair fair;
    struct yb_fair_item items[ITEM_COUNT];
    uint64_t order[ITEM_COUNT]; /* When it was pushed. */
    uint64_t pushes;
    struct walk share[YB_CLASS_COUNT];
    struct walk preference[YB_CLASS_COUNT][YB_CLASS_COUNT]; /* [who has work][who is measured] */
};

static void
check_walk(struct walk *walk, bool running, int64_t step, int64_t rise_max, int64_t fall_max)
{
    if (!running) {
        memset(walk, 0, sizeof(*walk));
        return;
    }
    walk->value += step;
    assert_true(walk->value - walk->lowest <= rise_max);
    assert_true(walk->highest - walk->value <= fall_max);
    walk->lowest = walk->value < walk->lowest ? walk->value : walk->lowest;
    walk->highest = walk->value > walk->highest ? walk->value : walk->highest;
}

/* F2 and F3 after a pop of `item`; `had_work` is from before it. */
static void
check_guarantees(struct load *load, const struct yb_fair_item *item,
                 const bool had_work[YB_CLASS_COUNT])
{
    int64_t cost = item->cost_bytes == 0 ? 1 : (int64_t)item->cost_bytes;
    int64_t slack = 3 * 1000 * (int64_t)load->fair.options.cost_bytes_max;

    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        int64_t step = cost * load->fair.options.share_permille[c];

        step -= c == (uint32_t)item->traffic_class ? cost * 1000 : 0;
        check_walk(&load->share[c], had_work[c], step, slack, INT64_MAX);
        for (uint32_t p = 0; p < c; p++) {
            check_walk(&load->preference[p][c], had_work[p], step, INT64_MAX, slack);
        }
    }
}

/* F1 and F4: the popped item against all that are queued. */
static void
check_order(const struct load *load, const struct yb_fair_item *popped)
{
    for (uint32_t i = 0; i < ITEM_COUNT; i++) {
        const struct yb_fair_item *item = &load->items[i];

        if (item->queued && item->traffic_class == popped->traffic_class) {
            assert_true(popped->deadline_ns <= item->deadline_ns);
            assert_true(popped->deadline_ns < item->deadline_ns ||
                        load->order[popped - load->items] < load->order[i]);
        }
    }
}

static void
check_counts(const struct load *load)
{
    uint64_t bytes[YB_CLASS_COUNT] = {0};
    uint32_t counts[YB_CLASS_COUNT] = {0};

    for (uint32_t i = 0; i < ITEM_COUNT; i++) {
        if (load->items[i].queued) {
            bytes[load->items[i].traffic_class] += load->items[i].cost_bytes;
            counts[load->items[i].traffic_class]++;
        }
    }
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        assert_true(yb_fair_backlog_bytes(&load->fair, (enum yb_class)c) == bytes[c]);
        assert_int_equal(yb_fair_item_count(&load->fair, (enum yb_class)c), counts[c]);
    }
}

static void
random_pop(struct load *load)
{
    bool had_work[YB_CLASS_COUNT];
    bool any = false;
    struct yb_fair_item *peeked = yb_fair_peek(&load->fair);
    struct yb_fair_item *popped;

    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        had_work[c] = yb_fair_item_count(&load->fair, (enum yb_class)c) > 0;
        any = any || had_work[c];
    }
    popped = yb_fair_pop(&load->fair);
    assert_ptr_equal(popped, peeked);
    assert_int_equal(popped != NULL, any); /* F1 */
    if (popped != NULL) {
        check_order(load, popped);
        check_guarantees(load, popped, had_work);
    }
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        if (yb_fair_item_count(&load->fair, (enum yb_class)c) == 0) {
            memset(&load->share[c], 0, sizeof(load->share[c]));
            memset(&load->preference[c], 0, sizeof(load->preference[c]));
        }
    }
}

static void
random_push(struct load *load, uint64_t *seed, const uint32_t weights[YB_CLASS_COUNT])
{
    uint32_t index = (uint32_t)(unit_random(seed) % ITEM_COUNT);
    uint64_t draw = unit_random(seed) % (weights[0] + weights[1] + weights[2]);
    uint64_t max = load->fair.options.cost_bytes_max;
    enum yb_class traffic_class = draw < weights[0]                ? YB_CLASS_FIRST_TOKEN
                                  : draw < weights[0] + weights[1] ? YB_CLASS_THROUGHPUT
                                                                   : YB_CLASS_BACKGROUND;

    if (!load->items[index].queued) {
        yb_fair_item_init(&load->items[index], traffic_class, unit_random(seed) % 50,
                          unit_random(seed) % 3 == 0 ? max : unit_random(seed) % (max + 1));
        load->order[index] = load->pushes++;
        yb_fair_push(&load->fair, &load->items[index]);
    }
}

static void
test_fair__the_guarantees_hold_in_every_run_of_random_loads(void **state)
{
    uint64_t seed = unit_seed("fair");

    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        static struct load load;
        uint16_t throughput = (uint16_t)(unit_random(&seed) % 1001);
        uint16_t background = (uint16_t)(unit_random(&seed) % (1001u - throughput));
        uint32_t weights[YB_CLASS_COUNT] = {1 + (uint32_t)(unit_random(&seed) % 9),
                                            1 + (uint32_t)(unit_random(&seed) % 9),
                                            1 + (uint32_t)(unit_random(&seed) % 9)};
        uint64_t push_percent = 40 + unit_random(&seed) % 30;

        memset(&load, 0, sizeof(load));
        load.fair = fair_with(1 + unit_random(&seed) % 1000, throughput, background);
        for (uint32_t step = 0; step < 2000; step++) {
            uint64_t action = unit_random(&seed) % 100;
            uint32_t index = (uint32_t)(unit_random(&seed) % ITEM_COUNT);

            if (action < push_percent) {
                random_push(&load, &seed, weights);
            } else if (action < push_percent + 3 && load.items[index].queued) {
                enum yb_class traffic_class = load.items[index].traffic_class;

                yb_fair_remove(&load.fair, &load.items[index]);
                if (yb_fair_item_count(&load.fair, traffic_class) == 0) {
                    memset(&load.share[traffic_class], 0, sizeof(load.share[0]));
                    memset(&load.preference[traffic_class], 0, sizeof(load.preference[0]));
                }
            } else {
                random_pop(&load);
            }
            if (step % 64 == 0) {
                check_counts(&load);
            }
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fair__init_refuses_shares_that_cannot_be_kept),
        cmocka_unit_test(test_fair__without_shares_preference_is_strict),
        cmocka_unit_test(test_fair__a_lower_class_gets_its_share_under_endless_pressure),
        cmocka_unit_test(test_fair__a_class_that_was_idle_has_saved_up_nothing),
        cmocka_unit_test(test_fair__items_that_cost_nothing_cannot_starve_anybody),
        cmocka_unit_test(test_fair__equal_deadlines_go_in_the_order_of_arrival),
        cmocka_unit_test(test_fair__the_guarantees_hold_in_every_run_of_random_loads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
