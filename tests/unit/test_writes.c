/* SPDX-License-Identifier: Apache-2.0
 *
 * What is being written, tenants' credits, and last words.
 */
#include "unit.h"

#include <string.h>

#include "directory/ghosts.h"
#include "directory/tenants.h"
#include "directory/writes.h"

static struct yb_writes_name
name_of(uint8_t key, uint64_t write)
{
    return (struct yb_writes_name){.hash = {{key, 7}}, .write = write, .tenant = 3};
}

static struct yb_writes *
writes_new(uint32_t writes_max)
{
    struct yb_writes *writes;

    assert_int_equal(yb_writes_create(writes_max, 99, &writes), YB_OK);
    return writes;
}

/* Others wait for it as long as it is remembered. */
static void
announce(struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns,
         uint64_t eta_ns, uint64_t expires_ns)
{
    struct yb_writes_times times = {
        .eta_ns = eta_ns, .patience_ns = expires_ns, .expires_ns = expires_ns};

    yb_writes_announce(writes, name, now_ns, &times);
}

static void
test_writes__the_first_writer_is_seen_by_others_and_not_by_itself(void **state)
{
    struct yb_writes *writes = writes_new(16);
    struct yb_writes_name first = name_of(1, 10);
    struct yb_writes_name second = name_of(1, 11);
    struct yb_writes_name stranger = name_of(1, 11);
    struct yb_writes_name any = name_of(1, 0);
    struct yb_writes_found found;

    (void)state;
    stranger.tenant = 4;
    announce(writes, &first, 100, 500, 1000);
    assert_false(yb_writes_other(writes, &first, 200, &found));
    assert_false(yb_writes_other(writes, &stranger, 200, &found));
    assert_true(yb_writes_other(writes, &second, 200, &found));
    assert_int_equal(found.write, 10);
    assert_int_equal(found.eta_ns, 500);
    assert_true(yb_writes_other(writes, &any, 200, &found));
    assert_false(yb_writes_other(writes, &second, 1000, &found)); /* W3 */
    assert_true(yb_writes_announced(writes, &any, 999, &found));
    assert_false(yb_writes_announced(writes, &any, 1000, &found));
    yb_writes_granted(writes, &first, 77, 300, 2000);
    assert_false(yb_writes_other(writes, &second, 400, &found));
    assert_true(yb_writes_find(writes, &first, 400, &found));
    assert_int_equal(found.grant, 77);
    assert_false(yb_writes_find(writes, &second, 400, &found));
    announce(writes, &first, 500, 600, 700); /* Changes nothing: it has its grant. */
    assert_true(yb_writes_find(writes, &first, 1500, &found));
    assert_int_equal(found.grant, 77);
    yb_writes_forget(writes, &first);
    assert_true(yb_writes_find(writes, &first, 1500, &found));
    assert_true(yb_writes_last(writes, &second, 1500, &found));
    assert_int_equal(found.grant, 77);
    yb_writes_destroy(&writes);
    assert_null(writes);
}

/* Whether a write was announced and not granted is known longer than others wait for it. */
static void
test_writes__one_that_takes_long_is_not_waited_for_and_not_forgotten(void **state)
{
    struct yb_writes *writes = writes_new(4);
    struct yb_writes_times times = {.eta_ns = 10, .patience_ns = 20, .expires_ns = 100};
    struct yb_writes_name slow = name_of(1, 10);
    struct yb_writes_name other = name_of(1, 11);
    struct yb_writes_found found;

    (void)state;
    yb_writes_announce(writes, &slow, 1, &times);
    assert_true(yb_writes_other(writes, &other, 19, &found));
    assert_false(yb_writes_other(writes, &other, 20, &found));
    yb_writes_expire(writes, 99, 4);
    assert_true(yb_writes_find(writes, &slow, 99, &found));
    assert_int_equal(found.grant, 0);
    assert_false(yb_writes_find(writes, &slow, 100, &found));
    yb_writes_destroy(&writes);
}

static void
test_writes__when_the_table_is_full_the_oldest_goes(void **state)
{
    struct yb_writes *writes = writes_new(4);
    struct yb_writes_found found;

    (void)state;
    for (uint8_t i = 0; i < 4; i++) {
        struct yb_writes_name name = name_of(i, i + 1u);

        announce(writes, &name, 0, 10, 100);
    }
    {
        struct yb_writes_name oldest = name_of(0, 1);
        struct yb_writes_name second = name_of(1, 2);
        struct yb_writes_name fresh = name_of(9, 9);

        announce(writes, &oldest, 5, 10, 100); /* Touched: now the second is oldest. */
        announce(writes, &fresh, 6, 10, 100);
        assert_int_equal(yb_writes_count(writes), 4);
        assert_true(yb_writes_find(writes, &oldest, 7, &found));
        assert_true(yb_writes_find(writes, &fresh, 7, &found));
        assert_false(yb_writes_find(writes, &second, 7, &found));
        assert_true(yb_writes_complete(writes, 7)); /* It had no grant. */
    }
    yb_writes_expire(writes, 100, 100);
    assert_int_equal(yb_writes_count(writes), 0);
    assert_int_equal(yb_writes_open(writes), 0);
    yb_writes_destroy(&writes);
}

static void
test_writes__one_that_was_granted_and_had_to_go_is_owned_up_to(void **state)
{
    struct yb_writes *writes = writes_new(2);
    struct yb_writes_name names[4] = {name_of(0, 1), name_of(1, 2), name_of(2, 3), name_of(3, 4)};

    (void)state;
    yb_writes_granted(writes, &names[0], 70, 5, 100);
    announce(writes, &names[1], 6, 10, 300);
    assert_true(yb_writes_complete(writes, 6));
    assert_true(yb_writes_whole(writes, 99));
    assert_false(yb_writes_whole(writes, 100));       /* Its time is over. */
    yb_writes_granted(writes, &names[2], 71, 7, 200); /* In the place of the first. */
    assert_false(yb_writes_whole(writes, 7));
    assert_false(yb_writes_complete(writes, 7));
    assert_false(yb_writes_complete(writes, 99));
    assert_true(yb_writes_complete(writes, 100)); /* It would have expired. */
    yb_writes_expire(writes, 300, 2);
    assert_true(yb_writes_complete(writes, 300));
    yb_writes_granted(writes, &names[3], 72, 300, 400);
    assert_true(yb_writes_complete(writes, 300));
    yb_writes_destroy(&writes);
}

/* A random walk against the plainest of tables. */
static void
test_writes__a_walk_agrees_with_a_plain_table(void **state)
{
    struct model {
        bool known;
        uint64_t grant;
        uint64_t expires_ns;
    } model[8][4] = {{{0}}};
    struct yb_writes *writes = writes_new(64); /* Never full. */
    uint64_t random = unit_seed("writes");
    uint64_t now_ns = 1;

    (void)state;
    for (uint32_t step = 0; step < 20000; step++) {
        uint8_t key = (uint8_t)(unit_random(&random) % 8);
        uint64_t write = unit_random(&random) % 4;
        struct yb_writes_name name = name_of(key, write + 1);
        struct model *is = &model[key][write];
        struct yb_writes_found found;
        bool open = false;

        now_ns += unit_random(&random) % 3;
        for (uint32_t i = 0; i < 4; i++) {
            if (model[key][i].expires_ns <= now_ns) {
                model[key][i] = (struct model){.known = false};
            }
        }
        switch (unit_random(&random) % 5) {
        case 0:
            announce(writes, &name, now_ns, now_ns + 5, now_ns + 20);
            if (is->grant == 0) {
                *is = (struct model){.known = true, .expires_ns = now_ns + 20};
            }
            break;
        case 1:
            yb_writes_granted(writes, &name, step + 1, now_ns, now_ns + 50);
            *is = (struct model){.known = true, .grant = step + 1, .expires_ns = now_ns + 50};
            break;
        case 2:
            yb_writes_forget(writes, &name);
            if (is->grant == 0) {
                is->known = false;
            }
            break;
        default: break;
        }
        if (unit_random(&random) % 4 == 0) {
            yb_writes_expire(writes, now_ns, 64);
        }
        for (uint32_t i = 0; i < 4; i++) {
            open = open || (i != write && model[key][i].known && model[key][i].grant == 0);
        }
        assert_int_equal(yb_writes_find(writes, &name, now_ns, &found), is->known);
        assert_true(!is->known || found.grant == is->grant);
        assert_int_equal(yb_writes_other(writes, &name, now_ns, &found), open);
    }
    yb_writes_destroy(&writes);
}

/* ---- tenants ------------------------------------------------------------------------------ */

static void
test_writes__tenants_have_numbers_and_epochs(void **state)
{
    struct yb_tenants *tenants;
    uint64_t version;
    uint32_t a;
    uint32_t b;

    (void)state;
    assert_int_equal(yb_tenants_create(8, 3, 5, &tenants), YB_OK);
    assert_int_equal(yb_tenants_find(tenants, "a", 1), YB_TENANTS_NONE);
    a = yb_tenants_take(tenants, "a", 1);
    b = yb_tenants_take(tenants, "ab", 2);
    assert_int_not_equal(a, b);
    assert_int_equal(yb_tenants_take(tenants, "a", 1), a);
    assert_int_equal(yb_tenants_find(tenants, "ab", 2), b);
    version = yb_tenants_version(tenants);
    yb_tenants_flush(tenants, a, 4, 100);
    assert_true(yb_tenants_version(tenants) > version);
    assert_int_equal(yb_tenants_at(tenants, a)->flush, 4);
    for (uint32_t i = 2; i < YB_TENANTS_MAX; i++) {
        char name[16];
        int length = snprintf(name, sizeof(name), "t%u", i);

        assert_int_equal(yb_tenants_take(tenants, name, (uint32_t)length), i);
    }
    assert_int_equal(yb_tenants_take(tenants, "more", 4), YB_TENANTS_NONE);
    yb_tenants_destroy(&tenants);
}

/* F4: whatever nodes do with their credits, together they exceed the limit by at most one credit
 * each, and what they use is not taken from them while all is within the limit. */
static void
test_writes__credits_keep_the_limit(void **state)
{
    enum { NODES = 4, LIMIT = 100000 };
    struct yb_tenants *tenants;
    uint64_t random = unit_seed("credits");
    uint64_t credit[NODES + 1] = {0};
    uint64_t used[NODES + 1] = {0};
    uint32_t tenant;

    (void)state;
    assert_int_equal(yb_tenants_create(8, 3, 5, &tenants), YB_OK);
    tenant = yb_tenants_take(tenants, "a", 1);
    assert_int_equal(yb_tenants_credit(tenants, tenant, 1, NODES), YB_TENANTS_NO_LIMIT);
    assert_int_equal(yb_tenants_limit(tenants, tenant, LIMIT), YB_OK);
    assert_true(yb_tenants_limited(tenants));
    for (uint32_t step = 0; step < 5000; step++) {
        uint32_t slot = 1 + (uint32_t)(unit_random(&random) % NODES);
        uint64_t total = 0;

        /* The node uses what it may, or frees some. */
        if (unit_random(&random) % 3 != 0) {
            used[slot] = credit[slot];
        } else {
            used[slot] = used[slot] * (unit_random(&random) % 100) / 100;
        }
        yb_tenants_use_begin(tenants, slot);
        yb_tenants_use(tenants, tenant, slot, used[slot]);
        credit[slot] = yb_tenants_credit(tenants, tenant, slot, NODES);
        for (uint32_t i = 1; i <= NODES; i++) {
            total += used[i];
        }
        assert_true(total <= LIMIT);
        assert_true(credit[slot] >= used[slot]);
    }
    yb_tenants_forget(tenants, 1);
    yb_tenants_destroy(&tenants);
}

/* Of a directory before: each of its places counts once, whatever happens to it. */
static void
test_writes__a_write_waits_at_each_of_its_places_once(void **state)
{
    struct yb_writes *writes = writes_new(2);
    struct yb_writes_name name = name_of(1, 10);
    struct yb_writes_name other = name_of(1, 11);
    struct yb_writes_found found;

    (void)state;
    yb_writes_wait(writes, &name, 5, 100, 1000);
    yb_writes_wait(writes, &name, 5, 200, 1000);
    assert_int_equal(yb_writes_waiting(writes, &name, 250), 1);
    yb_writes_wait(writes, &name, 6, 300, 1000);
    yb_writes_wait(writes, &other, 7, 300, 1000);
    assert_int_equal(yb_writes_waiting(writes, &other, 400), 1);
    assert_int_equal(yb_writes_waiting(writes, &name, 400), 2);
    assert_true(yb_writes_waits(writes, &name, 6, 400));
    assert_false(yb_writes_waits(writes, &name, 7, 400));
    assert_int_equal(yb_writes_waiting(writes, &name, 1000), 0); /* W3 */
    assert_false(yb_writes_find(writes, &name, 400, &found));
    assert_false(yb_writes_other(writes, &name, 400, &found)); /* It is nobody's who waits here. */
    assert_int_equal(yb_writes_open(writes), 0);
    assert_true(yb_writes_whole(writes, 400));

    yb_writes_wait_end(writes, &name, 7);
    yb_writes_wait_end(writes, &name, 5);
    assert_int_equal(yb_writes_waiting(writes, &name, 400), 1);
    assert_true(yb_writes_waits(writes, &name, 6, 400));
    yb_writes_wait_end(writes, &name, 6);
    assert_int_equal(yb_writes_count(writes), 1);

    announce(writes, &other, 500, 600, 1000);
    assert_int_equal(yb_writes_open(writes), 1);
    yb_writes_wait(writes, &other, 7, 600, 1000);
    assert_int_equal(yb_writes_waiting(writes, &other, 600), 0);
    yb_writes_granted(writes, &other, 77, 700, 2000);
    yb_writes_wait(writes, &other, 7, 800, 1000);
    assert_int_equal(yb_writes_waiting(writes, &other, 800), 0);
    yb_writes_wait_end(writes, &other, 7);
    assert_true(yb_writes_find(writes, &other, 800, &found) && found.grant == 77);
    for (uint16_t slot = 1; slot <= 9; slot++) { /* No put has more places. */
        yb_writes_wait(writes, &name, slot, 900, 1000);
        assert_int_equal(yb_writes_waiting(writes, &name, 900), slot < 8 ? slot : 8);
    }
    yb_writes_granted(writes, &name, 78, 900, 2000);
    assert_int_equal(yb_writes_waiting(writes, &name, 950), 0);
    yb_writes_destroy(&writes);
}

static void
test_writes__last_words_are_found_until_newer_ones_come(void **state)
{
    struct yb_ghosts *ghosts;
    struct yb_ghost ghost = {.at_ns = 1, .tenant = 3, .fate = 1};
    struct yb_ghost found;

    (void)state;
    assert_int_equal(yb_ghosts_create(4, &ghosts), YB_OK);
    for (uint8_t i = 0; i < 5; i++) {
        ghost.hash.bytes[8] = i;
        ghost.at_ns = i + 1;
        yb_ghosts_add(ghosts, &ghost);
        yb_ghosts_add(ghosts, &ghost);
    }
    ghost.hash.bytes[8] = 0;
    assert_false(yb_ghosts_find(ghosts, 3, ghost.hash, &found));
    ghost.hash.bytes[8] = 1;
    assert_true(yb_ghosts_find(ghosts, 3, ghost.hash, &found));
    assert_int_equal(found.at_ns, 2);
    assert_false(yb_ghosts_find(ghosts, 4, ghost.hash, &found));
    yb_ghosts_destroy(&ghosts);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes__the_first_writer_is_seen_by_others_and_not_by_itself),
        cmocka_unit_test(test_writes__one_that_takes_long_is_not_waited_for_and_not_forgotten),
        cmocka_unit_test(test_writes__when_the_table_is_full_the_oldest_goes),
        cmocka_unit_test(test_writes__one_that_was_granted_and_had_to_go_is_owned_up_to),
        cmocka_unit_test(test_writes__a_walk_agrees_with_a_plain_table),
        cmocka_unit_test(test_writes__a_write_waits_at_each_of_its_places_once),
        cmocka_unit_test(test_writes__tenants_have_numbers_and_epochs),
        cmocka_unit_test(test_writes__credits_keep_the_limit),
        cmocka_unit_test(test_writes__last_words_are_found_until_newer_ones_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
