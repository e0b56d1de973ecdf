/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a store that is asked and never has it says so, once in a while, and only if it holds what
 * should have been found.
 * Method: counting with a time that the test moves; looking with a directory and a node of its own.
 */
#include "store_ground.h"

#include <string.h>

#include "compat/store.h"
#include "compat/zero.h"

#define NAME "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"
#define MIB  (1u << 20)

static struct yb_compat_zero_suspect suspect;

static bool
note(struct yb_compat_zero *zero, const char *key, uint64_t asked, uint64_t found, uint64_t now_s)
{
    return yb_compat_zero_note(zero, (struct yb_hash_bytes){key, strlen(key)}, asked, found,
                               now_s * YB_NS_PER_S, &suspect);
}

static void
test_compat_zero__it_is_time_to_look_after_many_without_a_hit(void **state)
{
    struct yb_compat_zero zero = {0};

    (void)state;
    assert_false(note(&zero, NAME "00", YB_COMPAT_ZERO_ASKED_MAX - 1, 0, 1));
    assert_true(note(&zero, NAME "01", 1, 0, 1));
    assert_int_equal(suspect.engine, YB_KEYSPACE_VLLM);
    assert_int_equal(suspect.asked, YB_COMPAT_ZERO_ASKED_MAX);
    assert_string_equal(suspect.prefix, "m");
    assert_int_equal(zero.asked, YB_COMPAT_ZERO_ASKED_MAX);
}

static void
test_compat_zero__a_hit_forgets_what_was_asked_before(void **state)
{
    struct yb_compat_zero zero = {0};

    (void)state;
    assert_false(note(&zero, NAME "00", YB_COMPAT_ZERO_ASKED_MAX - 1, 0, 1));
    assert_false(note(&zero, NAME "00", 10, 1, 1));
    assert_false(note(&zero, NAME "00", YB_COMPAT_ZERO_ASKED_MAX - 1, 0, 1));
    assert_true(note(&zero, NAME "00", 1, 0, 1));
    assert_int_equal(zero.found, 1);
}

static void
test_compat_zero__it_waits_longer_each_time_up_to_an_hour(void **state)
{
    struct yb_compat_zero zero = {0};
    uint64_t now_s = 1;
    uint64_t wait_s = 60;

    (void)state;
    assert_true(note(&zero, NAME "00", 5000, 0, now_s));
    for (unsigned i = 0; i < 10; i++) {
        assert_false(note(&zero, NAME "00", 5000, 0, now_s + wait_s - 1));
        assert_true(note(&zero, NAME "00", 5000, 0, now_s + wait_s));
        now_s += wait_s;
        wait_s = 2 * wait_s > 3600 ? 3600 : 2 * wait_s;
    }
}

static void
test_compat_zero__kin_are_counted_apart_and_only_so_many(void **state)
{
    struct yb_compat_zero zero = {0};
    char key[64];

    (void)state;
    assert_false(note(&zero, "no engine's", 5000, 0, 1));
    for (unsigned i = 0; i < YB_COMPAT_ZERO_KIN_MAX; i++) {
        (void)snprintf(key, sizeof(key), "m%u@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@00", i);
        assert_false(note(&zero, key, YB_COMPAT_ZERO_ASKED_MAX - 1, 0, 1));
    }
    assert_false(note(&zero, "more@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@00", 5000, 0, 1));
    assert_true(note(&zero, "m3@tp_rank:7@pcp0@dcp0@pp_rank:0@group:0@01", 1, 0, 1));
    assert_string_equal(suspect.prefix, "m3");
}

/* ---- in a store ----------------------------------------------------------------------------- */

/* Ask for so many keys that are not there; how often the log was told is returned. */
static uint64_t
ask(struct yb_compat_store *store, const char *model, unsigned count)
{
    static char texts[2000][96];
    static yb_compat_key keys[2000];
    static int32_t codes[2000];
    struct yb_compat_lookups lookups;

    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "%s@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@%032x",
                       model, i);
        keys[i] = (yb_compat_key){.iov_base = texts[i], .iov_len = strlen(texts[i])};
    }
    yb_compat_store_exist(store, keys, count, codes);
    yb_compat_store_lookups(store, &lookups);
    assert_int_equal(codes[0], 0);
    return lookups.warned;
}

static void
put(struct yb_compat_store *store, const char *key)
{
    char value[] = "value";
    const struct iovec piece = {.iov_base = value, .iov_len = sizeof(value)};
    const struct yb_compat_value from = {.pieces = &piece, .count = 1};
    const yb_compat_key name = {.iov_base = (void *)(uintptr_t)key, .iov_len = strlen(key)};
    const struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_VALUE};
    int32_t code = 1;

    yb_compat_store_put(store, &name, &from, 1, &call, &code);
    assert_int_equal(code, 0);
}

static void
test_compat_zero__the_log_is_told_only_if_the_store_holds_what_should_meet(void **state)
{
    const struct ground_options options = {.nodes = 1};
    struct ground *ground = ground_create(&options);
    const struct yb_compat_setup setup = {
        .local_hostname = "127.0.0.1",
        .metadata_server = "P2PHANDSHAKE",
        .local_buffer_bytes = MIB,
        .protocol = "tcp",
        .devices = "",
        .master = ground->address,
    };
    struct yb_compat_store *store = yb_compat_store_create();
    struct yb_compat_lookups lookups;

    (void)state;
    assert_int_equal(yb_compat_store_setup(store, &setup), 0);
    assert_int_equal(ask(store, "empty", 1500), 0);
    put(store, "no engine's");
    assert_int_equal(ask(store, "other", 1500), 0);
    put(store, "held" NAME "ff");
    assert_int_equal(ask(store, "heldm", 999), 0);
    assert_int_equal(ask(store, "heldm", 1), 1);      /* Of the same model. */
    assert_int_equal(ask(store, "heldm", 1500), 1);   /* Not before its time. */
    assert_int_equal(ask(store, "another", 1500), 2); /* Of the same engine. */
    yb_compat_store_lookups(store, &lookups);
    assert_int_equal(lookups.asked, 1500 + 1500 + 1000 + 1500 + 1500);
    assert_int_equal(lookups.found, 0);
    yb_compat_store_destroy(&store);
    ground_destroy(&ground);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_zero__it_is_time_to_look_after_many_without_a_hit),
        cmocka_unit_test(test_compat_zero__a_hit_forgets_what_was_asked_before),
        cmocka_unit_test(test_compat_zero__it_waits_longer_each_time_up_to_an_hour),
        cmocka_unit_test(test_compat_zero__kin_are_counted_apart_and_only_so_many),
        cmocka_unit_test(
            test_compat_zero__the_log_is_told_only_if_the_store_holds_what_should_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
