/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "client/hints.h"

#define WAYS    4u
#define BUCKETS 4u
#define KEYS    48u

static struct yb_id
hash_of(uint32_t number)
{
    struct yb_id hash = {{(uint8_t)(number % BUCKETS), 0, 0, 0, (uint8_t)number, 1}};

    return hash;
}

static struct yb_hint
hint_of(uint64_t grant)
{
    return (struct yb_hint){.grant = grant, .size = grant * 3, .slots = {(uint16_t)grant, 7, 0}};
}

/* The trivial model: each bucket is a list, the last used first. */
struct model {
    uint32_t keys[BUCKETS][WAYS + 1];
    struct yb_hint hints[BUCKETS][WAYS + 1];
    uint32_t counts[BUCKETS];
};

static uint32_t
model_find(const struct model *model, uint32_t key)
{
    uint32_t bucket = key % BUCKETS;

    for (uint32_t i = 0; i < model->counts[bucket]; i++) {
        if (model->keys[bucket][i] == key) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void
model_take_out(struct model *model, uint32_t key, uint32_t at)
{
    uint32_t bucket = key % BUCKETS;

    model->counts[bucket]--;
    for (uint32_t i = at; i < model->counts[bucket]; i++) {
        model->keys[bucket][i] = model->keys[bucket][i + 1];
        model->hints[bucket][i] = model->hints[bucket][i + 1];
    }
}

static void
model_put_first(struct model *model, uint32_t key, struct yb_hint hint)
{
    uint32_t bucket = key % BUCKETS;

    for (uint32_t i = model->counts[bucket]; i > 0; i--) {
        model->keys[bucket][i] = model->keys[bucket][i - 1];
        model->hints[bucket][i] = model->hints[bucket][i - 1];
    }
    model->keys[bucket][0] = key;
    model->hints[bucket][0] = hint;
    if (model->counts[bucket] < WAYS) {
        model->counts[bucket]++;
    }
}

static uint32_t
model_count(const struct model *model)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < BUCKETS; i++) {
        count += model->counts[i];
    }
    return count;
}

static void
walk_step(struct yb_hints *hints, struct model *model, uint64_t *random)
{
    uint32_t key = (uint32_t)(unit_random(random) % KEYS);
    uint32_t bucket = key % BUCKETS;
    uint32_t at = model_find(model, key);
    uint64_t grant = unit_random(random) % 5 + 1;
    struct yb_hint hint;
    bool matches;

    switch (unit_random(random) % 16) {
    case 0:
    case 1:
        grant = grant == 5 ? 0 : grant;
        matches = at != UINT32_MAX && (grant == 0 || model->hints[bucket][at].grant == grant);
        assert_int_equal(yb_hints_drop(hints, hash_of(key), grant), matches);
        if (matches) {
            model_take_out(model, key, at);
        }
        break;
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
        hint = hint_of(grant);
        yb_hints_set(hints, hash_of(key), &hint);
        if (at != UINT32_MAX) {
            model_take_out(model, key, at);
        }
        model_put_first(model, key, hint);
        break;
    default:
        assert_int_equal(yb_hints_find(hints, hash_of(key), &hint), at != UINT32_MAX);
        if (at != UINT32_MAX) {
            struct yb_hint wanted = model->hints[bucket][at];

            assert_memory_equal(&hint, &wanted, sizeof(hint));
            model_take_out(model, key, at);
            model_put_first(model, key, wanted);
        }
        break;
    }
    if (unit_random(random) % 5000 == 0) {
        yb_hints_clear(hints);
        memset(model, 0, sizeof(*model));
    }
    assert_int_equal(yb_hints_count(hints), model_count(model));
}

static void
test_client_hints__a_full_bucket_forgets_the_least_recently_used(void **state)
{
    uint64_t random = unit_seed("client_hints");
    struct model model = {0};
    struct yb_hints *hints;

    assert_int_equal(yb_hints_create(WAYS * BUCKETS, &hints), YB_OK);
    for (uint32_t i = 0; i < (unit_long() ? 2000000 : 200000); i++) {
        walk_step(hints, &model, &random);
    }
    yb_hints_destroy(&hints);
    assert_null(hints);
    yb_hints_destroy(&hints);
}

static void
test_client_hints__remembers_nothing_when_told_to(void **state)
{
    const struct yb_hint hint = hint_of(1);
    struct yb_hint found;
    struct yb_hints *hints;

    assert_int_equal(yb_hints_create(1, &hints), YB_OK);
    yb_hints_set(hints, hash_of(1), &hint);
    assert_false(yb_hints_find(hints, hash_of(1), &found));
    assert_false(yb_hints_drop(hints, hash_of(1), 0));
    assert_int_equal(yb_hints_count(hints), 0);
    yb_hints_clear(hints);
    yb_hints_destroy(&hints);
}

static void
test_client_hints__takes_powers_of_two_only(void **state)
{
    struct yb_hints *hints = NULL;

    assert_int_equal(yb_hints_create(2, &hints), YB_INVALID);
    assert_int_equal(yb_hints_create(12, &hints), YB_INVALID);
    assert_int_equal(yb_hints_create(1u << 29, &hints), YB_INVALID);
    assert_null(hints);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_hints__a_full_bucket_forgets_the_least_recently_used),
        cmocka_unit_test(test_client_hints__remembers_nothing_when_told_to),
        cmocka_unit_test(test_client_hints__takes_powers_of_two_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
