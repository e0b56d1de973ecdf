/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a key is hidden from its grant until a grant of its own chain shows it.
 * Method: by hand; then a random walk beside a table that remembers each key's chain in its place.
 */
#include "unit.h"

#include <string.h>

#include "directory/hidden.h"

#define KEYS 512u

static struct yb_hidden_name
name_of(uint32_t key, uint64_t grant)
{
    struct yb_hidden_name name = {.grant = grant, .tenant = (uint16_t)(key & 1u)};

    key /= 2; /* Two tenants' keys have one hash. */
    memcpy(name.hash.bytes, &key, sizeof(key));
    return name;
}

static bool
is(const struct yb_hidden *hidden, uint32_t key, uint64_t grant)
{
    struct yb_hidden_name name = name_of(key, grant);

    return yb_hidden_is(hidden, &name);
}

static void
hide(struct yb_hidden *hidden, uint32_t key, uint64_t grant)
{
    struct yb_hidden_name name = name_of(key, grant);

    assert_int_equal(yb_hidden_hide(hidden, &name), YB_OK);
}

static void
follow(struct yb_hidden *hidden, uint32_t key, uint64_t grant, uint64_t before)
{
    struct yb_hidden_name name = name_of(key, grant);

    yb_hidden_follow(hidden, &name, before);
}

static void
show(struct yb_hidden *hidden, uint32_t key, uint64_t grant)
{
    struct yb_hidden_name name = name_of(key, grant);

    yb_hidden_show(hidden, &name);
}

static void
test_hidden__a_key_is_shown_by_its_own_chain(void **state)
{
    struct yb_hidden *hidden;

    (void)state;
    assert_int_equal(yb_hidden_create(5, &hidden), YB_OK);
    assert_false(is(hidden, 1, 10));
    hide(hidden, 1, 10);
    assert_true(is(hidden, 1, 10));
    assert_false(is(hidden, 1, 9));
    assert_false(is(hidden, 0, 10)); /* Another tenant's. */
    follow(hidden, 1, 12, 11);       /* Of something that is shown. */
    assert_true(is(hidden, 1, 10));
    follow(hidden, 1, 12, 10);
    assert_true(is(hidden, 1, 12));
    assert_false(is(hidden, 1, 10));
    hide(hidden, 1, 20); /* Removed meanwhile. D1 */
    assert_int_equal(yb_hidden_count(hidden), 1);
    show(hidden, 1, 10); /* D2 */
    show(hidden, 1, 12);
    show(hidden, 1, 21);
    assert_true(is(hidden, 1, 20));
    follow(hidden, 1, 25, 20);
    show(hidden, 1, 20); /* Between versions there is no gap. */
    assert_false(is(hidden, 1, 25));
    assert_int_equal(yb_hidden_count(hidden), 0);
    yb_hidden_destroy(&hidden);
    assert_null(hidden);
}

struct chain {
    uint64_t first; /* 0: it is shown. */
    uint64_t last;
};

static void
test_hidden__knows_what_a_plain_table_knows(void **state)
{
    uint64_t random = unit_seed("hidden");
    uint32_t steps = unit_long() ? 2000000 : 50000;
    struct chain chains[KEYS] = {{0}};
    struct yb_hidden *hidden;
    uint64_t grant = 0;
    uint32_t count = 0;

    (void)state;
    assert_int_equal(yb_hidden_create(unit_random(&random), &hidden), YB_OK);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t key = (uint32_t)(unit_random(&random) % KEYS);
        struct chain *chain = &chains[key];
        uint64_t near = chain->last + unit_random(&random) % 5 - 2;

        switch (unit_random(&random) % 4) {
        case 0:
            grant += 3;
            hide(hidden, key, grant);
            count += chain->first == 0;
            *chain = (struct chain){grant, grant};
            break;
        case 1:
            grant += 3;
            follow(hidden, key, grant, near);
            chain->last = chain->first != 0 && chain->last == near ? grant : chain->last;
            break;
        default:
            near = unit_random(&random) % 2 != 0 ? chain->first : near;
            show(hidden, key, near);
            if (chain->first != 0 && near >= chain->first && near <= chain->last) {
                chain->first = 0;
                count--;
            }
            break;
        }
        key = (uint32_t)(unit_random(&random) % KEYS);
        assert_int_equal(is(hidden, key, chains[key].last),
                         chains[key].first != 0 && chains[key].last != 0);
        assert_int_equal(yb_hidden_count(hidden), count);
    }
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_int_equal(is(hidden, key, chains[key].last), chains[key].first != 0);
    }
    yb_hidden_destroy(&hidden);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden__a_key_is_shown_by_its_own_chain),
        cmocka_unit_test(test_hidden__knows_what_a_plain_table_knows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
