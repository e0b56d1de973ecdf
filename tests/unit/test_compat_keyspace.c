/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: keys of engines are taken apart as the engines make them, families are counted exactly or
 * near it in bounded memory, and what never meets is told.
 * Method: keys as the engines' sources write them; a random walk against plain sets.
 */
#include "unit.h"

#include <inttypes.h>
#include <string.h>

#include "compat/keyspace.h"

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void
expect_part(const char *key, struct yb_keyspace_part part, const char *text)
{
    if (part.bytes != strlen(text) || memcmp(key + part.at, text, part.bytes) != 0) {
        fail_msg("%s: \"%.*s\", not \"%s\"", key, (int)part.bytes, key + part.at, text);
    }
}

static void
expect_key(const char *key, enum yb_keyspace_engine engine, const char *model, const char *rank,
           const char *hash)
{
    struct yb_keyspace_key parsed;

    yb_keyspace_parse(key, strlen(key), &parsed);
    if (parsed.engine != engine) {
        fail_msg("%s: %s", key, yb_keyspace_engine_name(parsed.engine));
    }
    expect_part(key, parsed.model, model);
    expect_part(key, parsed.rank, rank);
    expect_part(key, parsed.hash, hash);
}

static void
test_compat_keyspace__keys_are_taken_apart_as_engines_make_them(void **state)
{
    (void)state;
    expect_key("Llama-3@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@00ff", YB_KEYSPACE_VLLM, "Llama-3",
               "tp_rank:1@pcp0@dcp0@pp_rank:2@group:3", "00ff");
    expect_key("mine@Llama-3@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@00ff", YB_KEYSPACE_VLLM,
               "Llama-3", "tp_rank:1@pcp0@dcp0@pp_rank:2@group:3", "00ff");
    expect_key("a@b@M@store_tp:4@store_pp:1@store_format:f@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@1",
               YB_KEYSPACE_VLLM, "M@store_tp:4@store_pp:1@store_format:f",
               "tp_rank:1@pcp0@dcp0@pp_rank:2@group:3", "1");
    expect_key("m@pcp0@dcp0@head_or_tp_rank:1@pp_rank:0@abcdef01", YB_KEYSPACE_VLLM_ASCEND, "m",
               "pcp0@dcp0@head_or_tp_rank:1@pp_rank:0", "abcdef01");
    expect_key("m@pcp0@dcp0@head_or_tp_rank:1@pp_rank:0@abcdef01@7", YB_KEYSPACE_VLLM_ASCEND, "m",
               "pcp0@dcp0@head_or_tp_rank:1@pp_rank:0", "abcdef01");
    expect_key("meta/llama@2@1@deadbeefdeadbeef@bfloat16", YB_KEYSPACE_LMCACHE, "meta/llama", "2@1",
               "deadbeefdeadbeef");
    expect_key("meta/llama@2@1@deadbeefdeadbeef@bfloat16@t%v@3", YB_KEYSPACE_LMCACHE, "meta/llama",
               "2@1", "deadbeefdeadbeef");
    expect_key("meta/llama@0000000a@deadbeefdeadbeef", YB_KEYSPACE_LMCACHE_MP, "meta/llama",
               "0000000a", "deadbeefdeadbeef");
    expect_key("meta/llama@0000000a@deadbeefdeadbeef@0", YB_KEYSPACE_LMCACHE_MP, "meta/llama",
               "0000000a", "deadbeefdeadbeef");
    expect_key(SHA "_0_k", YB_KEYSPACE_SGLANG, "", "0_k", SHA);
    expect_key("tag_meta-llama_" SHA "_3_1_v", YB_KEYSPACE_SGLANG, "tag_meta-llama", "3_1_v", SHA);
    expect_key("m_" SHA "__k", YB_KEYSPACE_SGLANG, "m", "_k", SHA);
    expect_key("emb_12ab", YB_KEYSPACE_SGLANG, "emb", "", "12ab");
    expect_key("sglang_mooncake_store_warmup_key12", YB_KEYSPACE_SGLANG,
               "sglang_mooncake_store_warmup_key", "", "12");
    expect_key("123_FlexKV_pp_rank_0_of_2", YB_KEYSPACE_FLEXKV, "", "FlexKV_pp_rank_0_of_2", "123");
}

static void
test_compat_keyspace__what_no_engine_makes_is_other(void **state)
{
    static const char *const keys[] = {
        "",
        "hello",
        "@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@00ff",
        "m@tp_rank:1@pcp0@dcp0@pp_rank:2@00ff",
        "m@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@",
        "m@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@no",
        "m@pcp0@dcp0@head_or_tp_rank:1@pp_rank:0",
        "m@2@1@short@bfloat16",
        "m@2@1@abc@bfloat16",
        "@2@1@deadbeefdeadbeef@bfloat16",
        "m@0000000@deadbeefdeadbeef",
        "x0123456789_" SHA,
        SHA "0_0_k",
        "_FlexKV",
        "12_Flex",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        expect_key(keys[i], YB_KEYSPACE_OTHER, "", "", "");
    }
}

static void
add(struct yb_keyspace *keyspace, unsigned rank, uint64_t hash, uint64_t bytes)
{
    char key[128];
    int length = snprintf(key, sizeof(key), "m@tp_rank:%u@pcp0@dcp0@pp_rank:0@group:0@%064" PRIx64,
                          rank, hash);

    assert_int_equal(yb_keyspace_add(keyspace, key, (size_t)length, bytes), YB_OK);
}

static void
expect_warnings(struct yb_keyspace *keyspace, uint32_t count, enum yb_keyspace_warning_kind kind)
{
    struct yb_keyspace_warning warnings[8];

    (void)yb_keyspace_judge(keyspace);
    assert_int_equal(yb_keyspace_warnings(keyspace, warnings, 8), count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(warnings[i].kind, kind);
    }
}

static struct yb_keyspace *
made(void)
{
    struct yb_keyspace *keyspace = NULL;

    assert_int_equal(yb_keyspace_create(&keyspace), YB_OK);
    return keyspace;
}

static void
test_compat_keyspace__kin_that_never_meet_are_told_once_and_few_blocks_say_nothing(void **state)
{
    struct yb_keyspace *keyspace = made();

    (void)state;
    for (unsigned i = 0; i < YB_KEYSPACE_JUDGED_MIN; i++) {
        add(keyspace, 0, i, 10);
        add(keyspace, 1, 1000 + i, 10);
    }
    expect_warnings(keyspace, 1, YB_KEYSPACE_APART);
    yb_keyspace_destroy(&keyspace);
    assert_null(keyspace);

    keyspace = made();
    for (unsigned i = 0; i + 1 < YB_KEYSPACE_JUDGED_MIN; i++) {
        add(keyspace, 0, i, 10);
        add(keyspace, 1, 1000 + i, 10);
    }
    expect_warnings(keyspace, 0, YB_KEYSPACE_APART);
    yb_keyspace_destroy(&keyspace);

    keyspace = made();
    for (unsigned i = 0; i < YB_KEYSPACE_JUDGED_MIN; i++) {
        add(keyspace, 0, i, 10);
        add(keyspace, 1, i == 0 ? 0 : 1000 + i, 10);
    }
    expect_warnings(keyspace, 0, YB_KEYSPACE_APART);
    yb_keyspace_destroy(&keyspace);

    keyspace = made();
    for (unsigned i = 0; i < 100; i++) {
        add(keyspace, 0, i, 10);
    }
    add(keyspace, 1, 1000, 10);
    expect_warnings(keyspace, 0, YB_KEYSPACE_APART);
    yb_keyspace_destroy(&keyspace);
}

static void
test_compat_keyspace__mixed_sizes_are_told_when_they_are_not_rare(void **state)
{
    struct yb_keyspace *keyspace = made();

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        add(keyspace, 0, i, 10);
    }
    add(keyspace, 0, 100, 11);
    expect_warnings(keyspace, 0, YB_KEYSPACE_SIZES);
    assert_int_equal(yb_keyspace_family(keyspace, 0)->value_bytes, 10);
    yb_keyspace_destroy(&keyspace);

    keyspace = made();
    for (unsigned i = 0; i < 20; i++) {
        add(keyspace, 0, i, 10);
        add(keyspace, 0, 100 + i, 11);
    }
    expect_warnings(keyspace, 1, YB_KEYSPACE_SIZES);
    yb_keyspace_destroy(&keyspace);
}

static void
test_compat_keyspace__copies_count_twice_and_blocks_once(void **state)
{
    struct yb_keyspace *keyspace = made();
    const struct yb_keyspace_family *family;

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        add(keyspace, 0, i % 50, 10);
    }
    assert_int_equal(yb_keyspace_judge(keyspace), 1);
    family = yb_keyspace_family(keyspace, 0);
    assert_int_equal(family->copies, 100);
    assert_int_equal(family->blocks, 50);
    assert_true(family->exact);
    assert_int_equal(family->bytes, 1000);
    assert_string_equal(family->text, "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@*");
    assert_int_equal(family->peer, 0);
    yb_keyspace_destroy(&keyspace);
}

/* Two families of many blocks with a part in common: estimates against what is known. */
static void
test_compat_keyspace__samples_of_large_families_are_samples_of_the_same_hashes(void **state)
{
    uint64_t random = unit_seed("keyspace");
    uint64_t first = unit_random(&random) >> 8;
    struct yb_keyspace *keyspace = made();
    const struct yb_keyspace_family *family;

    (void)state;
    for (unsigned i = 0; i < 60000; i++) {
        add(keyspace, 0, first + i, 10);
        if (i < 30000) {
            add(keyspace, 1, first + 45000 + i, 10); /* Half of them. */
        }
    }
    assert_int_equal(yb_keyspace_judge(keyspace), 2);
    family = yb_keyspace_family(keyspace, 0);
    assert_false(family->exact);
    assert_in_range(family->blocks, 54000, 66000);
    family = yb_keyspace_family(keyspace, 1);
    assert_in_range(family->blocks, 27000, 33000);
    /* Far more than six deviations from one half. */
    assert_true(family->shared_judged > 1000);
    assert_in_range(family->shared * 100 / family->shared_judged, 40, 60);
    yb_keyspace_destroy(&keyspace);
}

static void
test_compat_keyspace__more_families_than_fit_are_counted_together(void **state)
{
    struct yb_keyspace *keyspace = made();

    (void)state;
    for (unsigned i = 0; i < YB_KEYSPACE_FAMILIES_MAX + 10; i++) {
        add(keyspace, i, 1, 10);
        add(keyspace, i, 2, 10);
    }
    assert_int_equal(yb_keyspace_judge(keyspace), YB_KEYSPACE_FAMILIES_MAX);
    assert_int_equal(yb_keyspace_totals(keyspace).others, 20);
    assert_int_equal(yb_keyspace_totals(keyspace).copies, 2 * (YB_KEYSPACE_FAMILIES_MAX + 10));
    yb_keyspace_destroy(&keyspace);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_keyspace__keys_are_taken_apart_as_engines_make_them),
        cmocka_unit_test(test_compat_keyspace__what_no_engine_makes_is_other),
        cmocka_unit_test(
            test_compat_keyspace__kin_that_never_meet_are_told_once_and_few_blocks_say_nothing),
        cmocka_unit_test(test_compat_keyspace__mixed_sizes_are_told_when_they_are_not_rare),
        cmocka_unit_test(test_compat_keyspace__copies_count_twice_and_blocks_once),
        cmocka_unit_test(
            test_compat_keyspace__samples_of_large_families_are_samples_of_the_same_hashes),
        cmocka_unit_test(test_compat_keyspace__more_families_than_fit_are_counted_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
