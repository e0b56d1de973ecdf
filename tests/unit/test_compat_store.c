/* SPDX-License-Identifier: Apache-2.0
 *
 * The known system's store over ours: keys, put and get. One test for each rule of RULES D and for
 * each trap that engines fell into.
 */
#include "compat_ground.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compat/store_internal.h"

#define KIB      1024u
#define MIB      (1u << 20)
#define KEYS_MAX 64u

static struct ground *ground;
static struct yb_compat_store *store;

static int
set_up(void **state)
{
    const struct ground_options options = {.nodes = 1};

    ground = ground_create(&options);
    store = open_store(ground, 32 * MIB);
    return 0;
}

static int
tear_down(void **state)
{
    yb_compat_store_destroy(&store);
    ground_destroy(&ground);
    return 0;
}

/* ---- short forms ---------------------------------------------------------------------------- */

/* Many keys that name themselves. */
struct many {
    char texts[KEYS_MAX][32];
    yb_compat_key keys[KEYS_MAX];
};

static void
make_keys(struct many *many, const char *prefix, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(many->texts[i], sizeof(many->texts[i]), "%s-%u", prefix, i);
        many->keys[i] = key_of(many->texts[i]);
    }
}

static void
fill(uint8_t *bytes, size_t length, uint64_t name)
{
    uint64_t random = name * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)unit_random(&random);
    }
}

static int32_t
put_as(struct yb_compat_store *into, enum yb_compat_put kind, const char *key, const void *bytes,
       size_t length)
{
    const struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    const struct yb_compat_value value = {.pieces = &piece, .count = 1};
    const struct yb_compat_put_call call = {.kind = kind};
    const yb_compat_key name = key_of(key);
    int32_t code = 1;

    yb_compat_store_put(into, &name, &value, 1, &call, &code);
    return code;
}

static int32_t
put(struct yb_compat_store *into, const char *key, const void *bytes, size_t length)
{
    return put_as(into, YB_COMPAT_PUT_FROM, key, bytes, length);
}

static int64_t
get(struct yb_compat_store *from, const char *key, void *bytes, size_t room)
{
    const struct iovec piece = {.iov_base = bytes, .iov_len = room};
    const struct yb_compat_value into = {.pieces = &piece, .count = 1};
    const yb_compat_key name = key_of(key);
    int64_t code = 1;

    yb_compat_store_get_into(from, &name, &into, 1, &code);
    return code;
}

static int32_t
exist(struct yb_compat_store *in, const char *key)
{
    const yb_compat_key name = key_of(key);
    int32_t code = 7;

    yb_compat_store_exist(in, &name, 1, &code);
    return code;
}

static int32_t
remove_key(struct yb_compat_store *from, const char *key, bool force)
{
    const yb_compat_key name = key_of(key);
    int32_t code = 1;

    yb_compat_store_remove(from, &name, 1, force, &code);
    return code;
}

static void
assert_holds(struct yb_compat_store *in, const char *key, const char *text)
{
    char bytes[256] = "";

    assert_int_equal(get(in, key, bytes, sizeof(bytes)), strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

/* ---- the basics ----------------------------------------------------------------------------- */

static void
test_compat_store__gives_back_what_was_put(void **state)
{
    struct yb_compat_store *other = open_store(ground, 0);
    uint8_t *bytes = malloc(3 * MIB);
    uint8_t *back = calloc(1, 4 * MIB);
    struct yb_compat_buffer buffer;
    const yb_compat_key key = key_of("large");

    fill(bytes, 3 * MIB, 1);
    assert_int_equal(put(store, "large", bytes, 3 * MIB), 0);
    assert_int_equal(get(other, "large", back, 4 * MIB), 3 * MIB);
    assert_memory_equal(back, bytes, 3 * MIB);
    assert_int_equal(yb_compat_store_size(other, &key), 3 * MIB);
    yb_compat_store_get(other, &key, 1, &buffer);
    assert_int_equal(buffer.code, 0);
    assert_int_equal(buffer.bytes, 3 * MIB);
    yb_compat_store_destroy(&other);
    assert_memory_equal(buffer.data, bytes, 3 * MIB); /* It outlives the store. */
    yb_compat_buffer_free(&buffer);
    free(back);
    free(bytes);
}

static void
test_compat_store__moves_many_values_of_many_pieces_and_answers_for_each(void **state)
{
    enum { COUNT = 40, PIECES = 8, BYTES = 512 };
    static uint8_t from[COUNT][PIECES][BYTES];
    static uint8_t into[COUNT][PIECES][BYTES];
    struct iovec pieces[COUNT][PIECES];
    struct iovec places[COUNT][PIECES];
    struct yb_compat_value values[COUNT];
    struct yb_compat_value targets[COUNT];
    const struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_BUFFERS};
    struct many many;
    int32_t codes[COUNT];
    int64_t got[COUNT];

    make_keys(&many, "pieces", COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        for (uint32_t k = 0; k < PIECES; k++) {
            fill(from[i][k], BYTES, i * PIECES + k);
            pieces[i][k] = (struct iovec){.iov_base = from[i][k], .iov_len = BYTES};
            places[i][k] = (struct iovec){.iov_base = into[i][k], .iov_len = BYTES};
        }
        values[i] = (struct yb_compat_value){.pieces = pieces[i], .count = PIECES};
        targets[i] = (struct yb_compat_value){.pieces = places[i], .count = PIECES};
    }
    yb_compat_store_put(store, many.keys, values, COUNT - 1, &call, codes);
    for (uint32_t i = 0; i < COUNT - 1; i++) {
        assert_int_equal(codes[i], 0);
    }
    yb_compat_store_get_into(store, many.keys, targets, COUNT, got);
    for (uint32_t i = 0; i < COUNT - 1; i++) {
        assert_int_equal(got[i], PIECES * BYTES);
    }
    assert_int_equal(got[COUNT - 1], -704);
    assert_memory_equal(into, from, sizeof(from[0]) * (COUNT - 1));
    yb_compat_store_exist(store, many.keys, COUNT, codes);
    assert_int_equal(codes[0], 1);
    assert_int_equal(codes[COUNT - 1], 0);
}

/* A question of thousands of keys is asked in parts; each answer has its key's place. */
static void
test_compat_store__answers_for_each_of_thousands_of_keys(void **state)
{
    enum { COUNT = 9000, EACH = 97 };
    static char names[COUNT][16];
    static yb_compat_key keys[COUNT];
    static int32_t codes[COUNT];

    for (uint32_t i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "one-of-%u", i);
        keys[i] = key_of(names[i]);
        assert_int_equal(i % EACH == 0 ? put(store, names[i], "x", 1) : 0, 0);
    }
    yb_compat_store_exist(store, keys, COUNT, codes);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(codes[i], i % EACH == 0);
    }
}

static void
test_compat_store__tells_what_is_not_there_from_what_does_not_fit(void **state)
{
    char bytes[4];
    struct yb_compat_buffer buffer;
    const yb_compat_key key = key_of("nothing");

    assert_int_equal(put(store, "five", "12345", 5), 0);
    assert_int_equal(get(store, "five", bytes, 4), -600);
    assert_int_equal(get(store, "nothing", bytes, 4), -704);
    assert_int_equal(yb_compat_store_size(store, &key), -704);
    yb_compat_store_get(store, &key, 1, &buffer);
    assert_null(buffer.data);
    assert_int_equal(buffer.code, -704);
    assert_int_equal(remove_key(store, "nothing", true), -704);
}

/* RULES D1 */
static void
test_compat_store__holds_what_exist_has_found_until_it_is_forced(void **state)
{
    char bytes[8];

    assert_int_equal(put(store, "held", "abc", 3), 0);
    assert_int_equal(exist(store, "held"), 1);
    assert_int_equal(remove_key(store, "held", false), -706);
    assert_int_equal(get(store, "held", bytes, 8), 3);
    assert_true(yb_compat_store_remove_all(store, false) >= 0);
    assert_int_equal(get(store, "held", bytes, 8), 3);
    assert_int_equal(remove_key(store, "held", true), 0);
    assert_int_equal(exist(store, "held"), 0);
}

static void
test_compat_store__removes_what_nobody_holds(void **state)
{
    assert_int_equal(put(store, "free", "abc", 3), 0);
    assert_int_equal(remove_key(store, "free", false), 0);
    assert_int_equal(exist(store, "free"), 0);
}

/* RULES D2 */
static void
test_compat_store__leaves_a_value_that_is_there_and_says_0(void **state)
{
    assert_int_equal(put(store, "twice", "first", 5), 0);
    assert_int_equal(put(store, "twice", "second", 6), 0);
    assert_holds(store, "twice", "first");
}

static void
test_compat_store__replaces_a_value_by_upsert(void **state)
{
    const struct iovec piece = {.iov_base = (void *)(uintptr_t) "second", .iov_len = 6};
    const struct yb_compat_value value = {.pieces = &piece, .count = 1};
    const struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_VALUE, .upsert = true};
    const yb_compat_key key = key_of("upsert");
    int32_t code;

    assert_int_equal(put(store, "upsert", "first", 5), 0);
    yb_compat_store_put(store, &key, &value, 1, &call, &code);
    assert_int_equal(code, 0);
    assert_holds(store, "upsert", "second");
}

static void
test_compat_store__says_200_when_there_is_no_room(void **state)
{
    uint8_t *bytes = calloc(1, 8 * MIB);
    const struct iovec piece = {.iov_base = bytes, .iov_len = 8 * MIB};
    const struct yb_compat_value value = {.pieces = &piece, .count = 1};
    struct yb_compat_replicate replicate;
    const struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_FROM, .replicate = &replicate};
    struct many many;
    int32_t code = 0;

    assert_non_null(bytes);
    make_keys(&many, "full", 20); /* More than both segments have. */
    yb_compat_replicate_default(&replicate);
    replicate.hard_pin = true;
    for (uint32_t i = 0; i < 20 && code == 0; i++) {
        yb_compat_store_put(store, &many.keys[i], &value, 1, &call, &code);
    }
    assert_int_equal(code, -200);
    assert_true(yb_compat_store_remove_all(store, true) > 0);
    free(bytes);
}

/* RULES D10 */
static void
test_compat_store__takes_empty_values_as_each_call_has_them(void **state)
{
    assert_int_equal(put_as(store, YB_COMPAT_PUT_VALUE, "empty", "", 0), -600);
    assert_int_equal(put_as(store, YB_COMPAT_PUT_BATCH, "empty", "", 0), -600);
    assert_int_equal(put_as(store, YB_COMPAT_PUT_BUFFERS, "empty", "", 0), -600);
    assert_int_equal(put_as(store, YB_COMPAT_PUT_PARTS, "empty", "", 0), 0);
    assert_int_equal(put_as(store, YB_COMPAT_PUT_FROM, "empty", "", 0), 0);
    assert_int_equal(exist(store, "empty"), 0);
}

static void
put_twins(const char *key, enum yb_compat_put kind, bool upsert)
{
    const struct iovec pieces[3] = {
        {.iov_base = (void *)(uintptr_t) "first", .iov_len = 5},
        {.iov_base = (void *)(uintptr_t) "other", .iov_len = 5},
        {.iov_base = (void *)(uintptr_t) "last", .iov_len = 4},
    };
    const struct yb_compat_value values[3] = {{&pieces[0], 1}, {&pieces[1], 1}, {&pieces[2], 1}};
    const struct yb_compat_put_call call = {.kind = kind, .upsert = upsert};
    const yb_compat_key keys[3] = {key_of(key), key_of("between"), key_of(key)};
    int32_t codes[3] = {1, 1, 1};

    yb_compat_store_put(store, keys, values, 3, &call, codes);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 0);
    assert_int_equal(codes[2], 0);
    assert_holds(store, "between", "other");
}

static void
test_compat_store__lets_the_first_of_equal_keys_count_or_the_last(void **state)
{
    put_twins("batch", YB_COMPAT_PUT_BATCH, false);
    assert_holds(store, "batch", "first");
    put_twins("buffers", YB_COMPAT_PUT_BUFFERS, false);
    assert_holds(store, "buffers", "last");
    put_twins("batch", YB_COMPAT_PUT_BATCH, true);
    assert_holds(store, "batch", "first");
    put_twins("batch", YB_COMPAT_PUT_BUFFERS, true);
    assert_holds(store, "batch", "last");
    put_twins("pieces", YB_COMPAT_PUT_PIECES, false);
    assert_holds(store, "pieces", "first");
}

static void
test_compat_store__reads_ranges_each_with_a_code_of_its_own(void **state)
{
    uint8_t bytes[1000];
    uint8_t a[100] = {0};
    uint8_t b[10] = {0};
    const yb_compat_key keys[2] = {key_of("ranged"), key_of("nothing")};
    struct yb_compat_range ranges[] = {
        {.key = 0, .into = a, .source = 900, .bytes = 100},
        {.key = 0, .into = b, .source = 10, .bytes = 10},
        {.key = 0, .into = a, .source = 901, .bytes = 100}, /* One byte too far. */
        {.key = 0, .into = a, .source = UINT64_MAX, .bytes = 2},
        {.key = 1, .into = a, .source = 0, .bytes = 1},
        {.key = 0, .into = NULL, .source = 5, .bytes = 0},
        {.key = 2, .into = a, .source = 0, .bytes = 1},
        {.key = 0, .into = NULL, .source = 0, .bytes = 1},
    };

    fill(bytes, sizeof(bytes), 3);
    assert_int_equal(put(store, "ranged", bytes, sizeof(bytes)), 0);
    yb_compat_store_get_ranges(store, keys, 2, ranges, 8);
    assert_int_equal(ranges[0].code_out, 100);
    assert_memory_equal(a, bytes + 900, 100);
    assert_int_equal(ranges[1].code_out, 10);
    assert_memory_equal(b, bytes + 10, 10);
    assert_int_equal(ranges[2].code_out, -600);
    assert_int_equal(ranges[3].code_out, -600);
    assert_int_equal(ranges[4].code_out, -704);
    assert_int_equal(ranges[5].code_out, 0);
    assert_int_equal(ranges[6].code_out, -600);
    assert_int_equal(ranges[7].code_out, -600);
}

static void
test_compat_store__removes_by_pattern_and_counts(void **state)
{
    struct many many;

    make_keys(&many, "pattern", 10);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(put(store, many.texts[i], "x", 1), 0);
    }
    assert_int_equal(yb_compat_store_remove_regex(store, "tern-[0-4]$", false), 5);
    assert_int_equal(exist(store, "pattern-4"), 0);
    assert_int_equal(exist(store, "pattern-5"), 1);
    assert_int_equal(yb_compat_store_remove_regex(store, "^(?:pat)tern-\\d$", true), 5);
    assert_int_equal(exist(store, "pattern-9"), 0);
    assert_int_equal(yb_compat_store_remove_regex(store, "([", false), -600);
    assert_int_equal(yb_compat_store_remove_regex(store, "^a(?=b)", false), 0);
    assert_int_equal(put(store, "another", "x", 1), 0);
    assert_true(yb_compat_store_remove_all(store, true) >= 1);
    assert_int_equal(exist(store, "another"), 0);
}

/* ---- arguments ------------------------------------------------------------------------------ */

static void
test_compat_store__refuses_keys_that_cannot_be_alone(void **state)
{
    static char large[1025];
    const yb_compat_key keys[3] = {
        {.iov_base = large, .iov_len = 1025}, key_of("fine"), {.iov_base = large, .iov_len = 0}};
    const struct iovec piece = {.iov_base = large, .iov_len = 8};
    const struct yb_compat_value values[3] = {{&piece, 1}, {&piece, 1}, {&piece, 1}};
    const struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_BUFFERS};
    int32_t codes[3];
    int64_t got[3];

    yb_compat_store_put(store, keys, values, 3, &call, codes);
    assert_int_equal(codes[0], -400);
    assert_int_equal(codes[1], 0);
    assert_int_equal(codes[2], -400);
    /* What cannot be is not there: a negative code of `is_exist` is true for some engines. */
    yb_compat_store_exist(store, keys, 3, codes);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 1);
    assert_int_equal(codes[2], 0);
    yb_compat_store_get_into(store, keys, values, 3, got);
    assert_int_equal(got[0], -704);
    assert_int_equal(got[1], 8);
    assert_int_equal(got[2], -704);
    yb_compat_store_remove(store, keys, 3, true, codes);
    assert_int_equal(codes[0], -704);
    assert_int_equal(codes[1], 0);
    assert_int_equal(yb_compat_store_size(store, &keys[2]), -704);
}

static int32_t
put_replicated(const struct yb_compat_replicate *replicate, enum yb_compat_put kind)
{
    const struct iovec piece = {.iov_base = (void *)(uintptr_t) "value", .iov_len = 5};
    const struct yb_compat_value value = {.pieces = &piece, .count = 1};
    const struct yb_compat_put_call call = {.kind = kind, .replicate = replicate};
    const yb_compat_key key = key_of("replicated");
    int32_t code = 1;

    yb_compat_store_put(store, &key, &value, 1, &call, &code);
    return code;
}

static void
test_compat_store__takes_the_configurations_that_the_known_system_takes(void **state)
{
    struct yb_compat_replicate plain;
    struct yb_compat_replicate other;
    const yb_compat_key groups[2] = {key_of("one"), key_of("two")};
    const yb_compat_key replicated = key_of("replicated");
    int32_t code;

    yb_compat_replicate_default(&plain);
    assert_int_equal(put_replicated(&plain, YB_COMPAT_PUT_BUFFERS), 0);
#define REFUSED(change)                                                     \
    do {                                                                    \
        other = plain;                                                      \
        change;                                                             \
        assert_int_equal(put_replicated(&other, YB_COMPAT_PUT_FROM), -600); \
    } while (0)
    REFUSED(other.replica_num = 0);
    REFUSED(other.replica_num = -1);
    REFUSED(other.nof_replica_num = 1);
    REFUSED(other.dfs_replica_num = 2);
    REFUSED((other.dfs_replica_num = 1, other.replica_num = 0));
    REFUSED((other.soft_pin_has_ttl = true, other.soft_pin_ttl_ms = 1));
    REFUSED((other.soft_pin_has_ttl = true, other.soft_pin_action = YB_COMPAT_SOFT_PIN_DISABLE));
    REFUSED(other.same_node = true);
    REFUSED((other.groups = groups, other.group_count = 2));
#undef REFUSED
    other = plain;
    other.same_node = true;
    other.groups = groups;
    other.group_count = 1;
    other.soft_pin_action = YB_COMPAT_SOFT_PIN_ENABLE;
    other.soft_pin_has_ttl = true;
    other.soft_pin_ttl_ms = 1000;
    assert_int_equal(put_replicated(&other, YB_COMPAT_PUT_PIECES), 0);
    other = plain;
    other.replica_num = 100; /* As many as there can be. */
    yb_compat_store_remove(store, &replicated, 1, true, &code);
    assert_int_equal(put_replicated(&other, YB_COMPAT_PUT_BUFFERS), 0);
}

static void
test_compat_store__a_soft_pin_lasts_as_long_as_the_known_systems(void **state)
{
    const struct {
        bool has_ttl;
        uint64_t ttl_ms, lasts_ms;
    } rows[] = {{false, 0, 1800000}, {true, 1000, 1000}, {true, UINT64_MAX, 86400000}};
    struct yb_compat_replicate replicate;
    struct yb_client_put_options put = {0};

    (void)state;
    yb_compat_replicate_default(&replicate);
    yb_compat_replicate_read(&replicate, &put);
    assert_false(put.soft_pin);
    replicate.soft_pin_action = YB_COMPAT_SOFT_PIN_ENABLE;
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        replicate.soft_pin_has_ttl = rows[i].has_ttl;
        replicate.soft_pin_ttl_ms = rows[i].ttl_ms;
        yb_compat_replicate_read(&replicate, &put);
        assert_true(put.soft_pin);
        assert_int_equal(put.soft_pin_ms, rows[i].lasts_ms);
    }
    replicate.soft_pin_ttl_ms = 0; /* It ends at once. */
    yb_compat_replicate_read(&replicate, &put);
    assert_false(put.soft_pin);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* RULES D9 */
static void
test_compat_store__refuses_ranges_that_are_registered_already(void **state)
{
    uint8_t *bytes = malloc(4 * KIB);

    assert_int_equal(yb_compat_store_register(store, NULL, 4096), -600);
    assert_int_equal(yb_compat_store_register(store, bytes, 0), -600);
    assert_int_equal(yb_compat_store_register(store, bytes + 1024, 1024), 0);
    assert_int_equal(yb_compat_store_register(store, bytes + 1024, 1024), -7);
    assert_int_equal(yb_compat_store_register(store, bytes + 1024, 512), -7);
    assert_int_equal(yb_compat_store_register(store, bytes + 2047, 10), -7);
    assert_int_equal(yb_compat_store_register(store, bytes, 1025), -7);
    assert_int_equal(yb_compat_store_register(store, bytes, 4096), -7);
    assert_int_equal(yb_compat_store_register(store, bytes, 1024), 0);
    assert_int_equal(yb_compat_store_register(store, bytes + 2048, 1024), 0);
    assert_int_equal(yb_compat_store_registered(store, bytes + 1024), 1024);
    assert_int_equal(yb_compat_store_registered(store, bytes + 2047), 1);
    assert_int_equal(yb_compat_store_registered(store, bytes + 3072), 0);
    fill(bytes, 4 * KIB, 5);
    assert_int_equal(put(store, "inside", bytes + 1100, 100), 0); /* An address inside counts. */
    assert_int_equal(get(store, "inside", bytes, 1024), 100);
    assert_memory_equal(bytes, bytes + 1100, 100);
    assert_int_equal(yb_compat_store_unregister(store, bytes + 1), -600);
    assert_int_equal(yb_compat_store_unregister(store, bytes + 1024), 0);
    assert_int_equal(yb_compat_store_unregister(store, bytes + 1024), -600);
    assert_int_equal(yb_compat_store_unregister(store, bytes), 0);
    assert_int_equal(yb_compat_store_unregister(store, bytes + 2048), 0);
    free(bytes);
}

static void
test_compat_store__gives_memory_that_is_taken_back_once(void **state)
{
    uint8_t *bytes = yb_compat_host_alloc(100000);
    int here;

    assert_non_null(bytes);
    fill(bytes, 100000, 9);
    assert_int_equal(put(store, "shared", bytes, 100000), 0);
    assert_int_equal(yb_compat_host_free(bytes + 4096), -600);
    assert_int_equal(yb_compat_host_free(bytes), 0);
    assert_int_equal(yb_compat_host_free(bytes), -600);
    assert_int_equal(yb_compat_host_free(&here), -600);
    assert_int_equal(yb_compat_host_free(NULL), -600);
    assert_null(yb_compat_host_alloc(0));
}

/* ---- life ----------------------------------------------------------------------------------- */

static void
test_compat_store__answers_before_setup_and_after_close_with_codes(void **state)
{
    struct yb_compat_store *idle = yb_compat_store_create();
    const yb_compat_key key = key_of("key");
    struct yb_compat_setup setup = setup_of(ground);
    char bytes[8];
    char name[64] = "x";
    struct yb_compat_buffer buffer;
    struct yb_compat_range range = {.into = bytes, .bytes = 1};

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(exist(idle, "key"), -600);
        assert_int_equal(put(idle, "key", "value", 5), -600);
        assert_int_equal(get(idle, "key", bytes, 8), -600);
        assert_int_equal(remove_key(idle, "key", false), -600);
        assert_int_equal(yb_compat_store_size(idle, &key), -600);
        assert_int_equal(yb_compat_store_remove_regex(idle, "x", false), -600);
        assert_int_equal(yb_compat_store_remove_all(idle, false), -600);
        yb_compat_store_get(idle, &key, 1, &buffer);
        assert_int_equal(buffer.code, -600);
        yb_compat_store_get_ranges(idle, &key, 1, &range, 1);
        assert_int_equal(range.code_out, -600);
        assert_int_equal(yb_compat_store_register(idle, bytes, 8), -600);
        assert_int_equal(yb_compat_store_unregister(idle, bytes), -600);
        assert_int_equal(yb_compat_store_registered(idle, bytes), 0);
        assert_int_equal(yb_compat_store_health(idle), 1);
        assert_int_equal(yb_compat_store_hostname(idle, name, sizeof(name)), 0);
        assert_string_equal(name, "");
        assert_int_equal(yb_compat_store_close(idle), 0);
        if (i == 0) {
            setup.segment_bytes = 0;
            assert_int_equal(yb_compat_store_setup(idle, &setup), 0);
            assert_int_equal(yb_compat_store_health(idle), 0);
            assert_int_equal(yb_compat_store_close(idle), 0);
        }
    }
    yb_compat_store_destroy(&idle);
    assert_null(idle);
}

static void
test_compat_store__refuses_a_setup_with_a_code(void **state)
{
    struct yb_compat_store *other = yb_compat_store_create();
    const struct yb_compat_setup good = setup_of(ground);
    struct yb_compat_setup setup;

#define REFUSED(change)                                               \
    do {                                                              \
        setup = good;                                                 \
        change;                                                       \
        assert_int_equal(yb_compat_store_setup(other, &setup), -600); \
    } while (0)
    REFUSED(setup.local_hostname = "");
    REFUSED(setup.local_hostname = NULL);
    REFUSED(setup.local_hostname = "1.2.3.4:99999");
    REFUSED(setup.protocol = "");
    REFUSED(setup.master = "");
    REFUSED(setup.master = "etcd://127.0.0.1:2379");
    REFUSED(setup.segment_bytes = 1000);
    REFUSED(setup.tenant = "no/tenant");
    REFUSED(setup.local_hostname = ground->address); /* That port is taken. */
#undef REFUSED
    assert_int_equal(yb_compat_store_health(other), 1);
    assert_int_equal(yb_compat_store_setup(other, &good), 0);
    assert_int_equal(yb_compat_store_setup(other, &good), -600);
    yb_compat_store_destroy(&other);
}

static void
test_compat_store__is_known_by_the_name_that_it_was_given_and_a_port(void **state)
{
    struct yb_compat_store *other = yb_compat_store_create();
    struct yb_compat_setup setup = setup_of(ground);
    char name[64];
    char segment[64];

    assert_in_range(yb_compat_store_hostname(store, name, sizeof(name)), 15, 63);
    assert_memory_equal(name, "127.0.0.1:", 10);
    assert_in_range(strtoul(name + 10, NULL, 10), 12300, 14300);
    setup.local_hostname = "localhost";
    assert_int_equal(yb_compat_store_setup(other, &setup), 0);
    (void)yb_compat_store_hostname(other, segment, sizeof(segment));
    assert_memory_equal(segment, "localhost:", 10);
    yb_compat_store_destroy(&other);
}

static void
test_compat_store__looks_up_keys_without_memory_of_its_own(void **state)
{
    struct yb_compat_store *other = yb_compat_store_create();
    struct yb_compat_setup setup = setup_of(ground);
    struct yb_compat_buffer buffer;
    const yb_compat_key key = key_of("rpc");

    setup.protocol = "rpc_only";
    setup.segment_bytes = setup.local_buffer_bytes = 0;
    assert_int_equal(yb_compat_store_setup(other, &setup), 0);
    assert_int_equal(put(store, "rpc", "abc", 3), 0);
    assert_int_equal(exist(other, "rpc"), 1);
    assert_int_equal(put_as(other, YB_COMPAT_PUT_VALUE, "copied", "abc", 3), -600);
    yb_compat_store_get(other, &key, 1, &buffer);
    assert_null(buffer.data);
    assert_int_equal(buffer.code, -600);
    yb_compat_store_destroy(&other);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_store__gives_back_what_was_put),
        cmocka_unit_test(test_compat_store__moves_many_values_of_many_pieces_and_answers_for_each),
        cmocka_unit_test(test_compat_store__answers_for_each_of_thousands_of_keys),
        cmocka_unit_test(test_compat_store__tells_what_is_not_there_from_what_does_not_fit),
        cmocka_unit_test(test_compat_store__holds_what_exist_has_found_until_it_is_forced),
        cmocka_unit_test(test_compat_store__removes_what_nobody_holds),
        cmocka_unit_test(test_compat_store__leaves_a_value_that_is_there_and_says_0),
        cmocka_unit_test(test_compat_store__replaces_a_value_by_upsert),
        cmocka_unit_test(test_compat_store__says_200_when_there_is_no_room),
        cmocka_unit_test(test_compat_store__takes_empty_values_as_each_call_has_them),
        cmocka_unit_test(test_compat_store__lets_the_first_of_equal_keys_count_or_the_last),
        cmocka_unit_test(test_compat_store__reads_ranges_each_with_a_code_of_its_own),
        cmocka_unit_test(test_compat_store__removes_by_pattern_and_counts),
        cmocka_unit_test(test_compat_store__refuses_keys_that_cannot_be_alone),
        cmocka_unit_test(test_compat_store__takes_the_configurations_that_the_known_system_takes),
        cmocka_unit_test(test_compat_store__a_soft_pin_lasts_as_long_as_the_known_systems),
        cmocka_unit_test(test_compat_store__refuses_ranges_that_are_registered_already),
        cmocka_unit_test(test_compat_store__gives_memory_that_is_taken_back_once),
        cmocka_unit_test(test_compat_store__answers_before_setup_and_after_close_with_codes),
        cmocka_unit_test(test_compat_store__refuses_a_setup_with_a_code),
        cmocka_unit_test(test_compat_store__is_known_by_the_name_that_it_was_given_and_a_port),
        cmocka_unit_test(test_compat_store__looks_up_keys_without_memory_of_its_own),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
