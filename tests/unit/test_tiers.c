/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the pieces that keep blocks below memory, one by one: the shelf, what moves when, what was
 *   ended while somebody was away, and who a node is by its folder.
 * Method: tables; random walks against a list.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "directory/kills.h"
#include "net/net.h"
#include "node/media.h"
#include "node/move.h"
#include "node/shelf.h"

static struct yb_id
hash_of(uint64_t number)
{
    struct yb_id hash = {{0}};

    memcpy(hash.bytes, &number, sizeof(number));
    return hash;
}

/* ---- the shelf ------------------------------------------------------------------------------- */

#define WALK_KEYS 40u

static void
test_shelf__finds_what_was_taken_until_it_is_given_back(void **state)
{
    struct yb_shelf_record *live[WALK_KEYS] = {NULL};
    struct yb_shelf *shelf;
    uint64_t seed = unit_seed("shelf");
    uint32_t count = 0;

    (void)state;
    assert_int_equal(yb_shelf_create(WALK_KEYS - 5, 7, &shelf), YB_OK);
    for (uint32_t step = 0; step < 20000; step++) {
        uint32_t key = (uint32_t)(unit_random(&seed) % WALK_KEYS);

        if (live[key] != NULL) {
            assert_ptr_equal(yb_shelf_find(shelf, hash_of(key)), live[key]);
            assert_ptr_equal(yb_shelf_of(shelf, hash_of(key), key + 1), live[key]);
            assert_null(yb_shelf_of(shelf, hash_of(key), key + 2));
            yb_shelf_give(shelf, live[key]);
            live[key] = NULL;
            count--;
        } else if (count == WALK_KEYS - 5) {
            assert_int_equal(yb_shelf_take(shelf, hash_of(key), key + 1, &live[key]), YB_AGAIN);
            live[key] = NULL;
        } else {
            assert_null(yb_shelf_find(shelf, hash_of(key)));
            assert_int_equal(yb_shelf_take(shelf, hash_of(key), key + 1, &live[key]), YB_OK);
            count++;
        }
        assert_int_equal(yb_shelf_count(shelf), count);
    }
    yb_shelf_destroy(&shelf);
    assert_null(shelf);
}

static void
test_shelf__shows_readers_nothing_that_is_on_its_way_out(void **state)
{
    struct yb_shelf_record *old, *new;
    struct yb_shelf *shelf;

    (void)state;
    assert_int_equal(yb_shelf_create(8, 1, &shelf), YB_OK);
    assert_int_equal(yb_shelf_take(shelf, hash_of(1), 10, &old), YB_OK);
    old->state = YB_SHELF_DEAD;
    assert_null(yb_shelf_find(shelf, hash_of(1)));
    assert_int_equal(yb_shelf_take(shelf, hash_of(1), 11, &new), YB_OK);
    assert_ptr_equal(yb_shelf_find(shelf, hash_of(1)), new);
    assert_ptr_equal(yb_shelf_of(shelf, hash_of(1), 10), old);
    yb_shelf_give(shelf, old);
    assert_ptr_equal(yb_shelf_find(shelf, hash_of(1)), new);
    yb_shelf_destroy(&shelf);
}

static void
test_shelf__refuses_sizes_that_make_no_sense(void **state)
{
    struct yb_shelf *shelf = NULL;

    (void)state;
    assert_int_equal(yb_shelf_create(0, 1, &shelf), YB_INVALID);
    assert_int_equal(yb_shelf_create((1u << 30) + 1, 1, &shelf), YB_INVALID);
    assert_null(shelf);
}

/* ---- what moves ------------------------------------------------------------------------------ */

static void
test_move__each_policy_has_its_moment(void **state)
{
    static const struct {
        enum yb_move_policy policy;
        enum yb_move_when when;
        uint32_t accesses;
        bool goes;
    } rows[] = {
        {YB_MOVE_THROUGH, YB_MOVE_GRANTED, 0, true},
        {YB_MOVE_THROUGH, YB_MOVE_ACCESSED, 9, false},
        {YB_MOVE_BACK, YB_MOVE_GRANTED, 0, false},
        {YB_MOVE_BACK, YB_MOVE_ACCESSED, 9, false},
        {YB_MOVE_SELECTIVE, YB_MOVE_GRANTED, 0, false},
        {YB_MOVE_SELECTIVE, YB_MOVE_ACCESSED, 1, false},
        {YB_MOVE_SELECTIVE, YB_MOVE_ACCESSED, 2, true},
        {YB_MOVE_THROUGH, YB_MOVE_EVICTING, 0, true}, /* Nothing is lost if that can be helped. */
        {YB_MOVE_BACK, YB_MOVE_EVICTING, 0, true},
        {YB_MOVE_SELECTIVE, YB_MOVE_EVICTING, 0, true},
        {YB_MOVE_BACK, YB_MOVE_LEAVING, 0, true},
        {YB_MOVE_THROUGH, YB_MOVE_WAITED, 0, true},
        {YB_MOVE_SELECTIVE, YB_MOVE_WAITED, 1, true}, /* It was decided before. */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct yb_move_facts facts = {
            .policy = rows[i].policy,
            .when = rows[i].when,
            .accesses = rows[i].accesses,
            .accesses_min = 2,
            .working = true,
        };

        assert_int_equal(yb_move_down(&facts), rows[i].goes);
        facts.there = true; /* Never twice, */
        assert_false(yb_move_down(&facts));
        facts.there = false;
        facts.working = false; /* nor to a tier that has stepped aside. */
        assert_false(yb_move_down(&facts));
    }
}

static void
test_move__what_wants_room_goes_one_tier_down(void **state)
{
    static const struct {
        enum yb_move_policy policy;
        enum yb_move_when when;
        bool goes; /* Though a tier above has it. */
    } rows[] = {
        {YB_MOVE_BACK, YB_MOVE_EVICTING, false},     {YB_MOVE_SELECTIVE, YB_MOVE_EVICTING, false},
        {YB_MOVE_THROUGH, YB_MOVE_EVICTING, true},   {YB_MOVE_THROUGH, YB_MOVE_LEAVING, false},
        {YB_MOVE_THROUGH, YB_MOVE_GRANTED, true},    {YB_MOVE_THROUGH, YB_MOVE_WAITED, true},
        {YB_MOVE_SELECTIVE, YB_MOVE_ACCESSED, true}, {YB_MOVE_SELECTIVE, YB_MOVE_WAITED, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct yb_move_facts facts = {
            .policy = rows[i].policy, .when = rows[i].when, .working = true, .faster = true};

        assert_int_equal(yb_move_down(&facts), rows[i].goes);
    }
}

static void
test_move__versions_never_lie_in_an_object_store(void **state)
{
    struct yb_move_facts facts = {
        .policy = YB_MOVE_THROUGH, .when = YB_MOVE_GRANTED, .working = true, .versioned = true};

    (void)state;
    assert_true(yb_move_down(&facts));
    facts.object = true;
    assert_false(yb_move_down(&facts));
    facts.when = YB_MOVE_EVICTING;
    assert_false(yb_move_down(&facts));
    facts.versioned = false;
    assert_true(yb_move_down(&facts));
}

static void
test_move__stores_keep_a_part_of_the_memory_and_no_more(void **state)
{
    struct yb_move_room room = {.storing_max = 100, .pool_bytes = 1000};

    (void)state;
    assert_true(yb_move_fits(&room, 100));
    assert_true(yb_move_fits(&room, 500));  /* One may always be under way, */
    assert_false(yb_move_fits(&room, 501)); /* if half of the pool is left. */
    room.storing_bytes = 1;
    assert_true(yb_move_fits(&room, 99));
    assert_false(yb_move_fits(&room, 100));
}

static void
test_move__policies_have_names(void **state)
{
    enum yb_move_policy policy;

    (void)state;
    assert_true(yb_move_policy_named("through", &policy) && policy == YB_MOVE_THROUGH);
    assert_true(yb_move_policy_named("selective", &policy) && policy == YB_MOVE_SELECTIVE);
    assert_true(yb_move_policy_named("back", &policy) && policy == YB_MOVE_BACK);
    assert_false(yb_move_policy_named("around", &policy));
}

/* ---- what was ended -------------------------------------------------------------------------- */

static void
test_kills__cover_what_was_added_and_everything_older(void **state)
{
    struct yb_kills *kills;

    (void)state;
    assert_int_equal(yb_kills_create(3, 5, &kills), YB_OK);
    assert_false(yb_kills_cover(kills, 0, hash_of(1), 1));
    assert_int_equal(yb_kills_add(kills, 0, hash_of(1), 10), YB_OK);
    assert_int_equal(yb_kills_add(kills, 0, hash_of(1), 7), YB_OK); /* Never less. */
    assert_true(yb_kills_cover(kills, 0, hash_of(1), 10));
    assert_true(yb_kills_cover(kills, 0, hash_of(1), 1));
    assert_false(yb_kills_cover(kills, 0, hash_of(1), 11));
    assert_false(yb_kills_cover(kills, 1, hash_of(1), 5)); /* Another tenant's. */
    assert_int_equal(yb_kills_add(kills, 1, hash_of(1), 5), YB_OK);
    assert_int_equal(yb_kills_add(kills, 0, hash_of(2), 5), YB_OK);
    assert_int_equal(yb_kills_add(kills, 0, hash_of(3), 5), YB_NO_SPACE);
    assert_int_equal(yb_kills_add(kills, 0, hash_of(2), 6), YB_OK); /* It is there already. */
    assert_int_equal(yb_kills_count(kills), 3);
    yb_kills_clear(kills);
    assert_int_equal(yb_kills_count(kills), 0);
    assert_false(yb_kills_cover(kills, 0, hash_of(1), 10));
    yb_kills_destroy(&kills);
}

/* ---- who a node is --------------------------------------------------------------------------- */

static struct yb_media_options
media_options(const char *folder, const char *name)
{
    return (struct yb_media_options){
        .data_dir = folder,
        .object_store = "",
        .name = name,
        .ssd_io = "threads",
        .random = yb_net_random_system,
    };
}

static void
make_folder(char *path)
{
    assert_non_null(mkdtemp(path));
}

/* What a folder of ours can have in it. */
static void
remove_folder(const char *path)
{
    static const char *const names[] = {"lock", "node.json", "node.json.new", "ssd"};
    char inside[256];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(inside, sizeof(inside), "%s/%s", path, names[i]);
        (void)remove(inside);
    }
    assert_int_equal(rmdir(path), 0);
}

static void
test_media__a_node_keeps_its_name_with_its_folder(void **state)
{
    char folder[] = "/tmp/yuebing-media-XXXXXX";
    char why[512];
    struct yb_media_options options;
    struct yb_media *media, *other = NULL;
    uint32_t count;

    (void)state;
    make_folder(folder);
    options = media_options(folder, "first");
    assert_int_equal(yb_media_open(&options, &media, why, sizeof(why)), YB_OK);
    assert_string_equal(yb_media_name(media), "first");
    assert_int_equal(yb_media_tiers(media, &count)[0].kind, YB_WIRE_TIER_SSD);
    assert_int_equal(count, 1);
    /* Nobody else gets it meanwhile. */
    assert_int_equal(yb_media_open(&options, &other, why, sizeof(why)), YB_BUSY);
    assert_non_null(strstr(why, folder));
    yb_media_close(&media);
    options = media_options(folder, "second");
    assert_int_equal(yb_media_open(&options, &media, why, sizeof(why)), YB_OK);
    assert_string_equal(yb_media_name(media), "first");
    yb_media_close(&media);
    options.named = true; /* Who says so has another one. */
    assert_int_equal(yb_media_open(&options, &media, why, sizeof(why)), YB_OK);
    assert_string_equal(yb_media_name(media), "second");
    yb_media_close(&media);
    remove_folder(folder);
}

static void
test_media__what_it_cannot_read_it_leaves_alone(void **state)
{
    static const struct {
        const char *text;
        enum yb_status status;
    } rows[] = {
        {"", YB_INVALID},
        {"{", YB_INVALID},
        {"{\"format\": \"another\"}", YB_INVALID},
        {"{\"format\": \"yuebing node\", \"version\": 2}", YB_VERSION},
        {"{\"format\": \"yuebing node\", \"version\": 1, \"id\": \"7\", \"name\": \"a\"}",
         YB_INVALID},
        {"{\"format\": \"yuebing node\", \"version\": 1, \"name\": \"\","
         " \"id\": \"000102030405060708090a0b0c0d0e0f\"}",
         YB_INVALID},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char folder[] = "/tmp/yuebing-media-XXXXXX";
        char path[64], why[512], text[256] = "";
        struct yb_media_options options;
        struct yb_media *media = NULL;
        FILE *file;

        make_folder(folder);
        (void)snprintf(path, sizeof(path), "%s/node.json", folder);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(rows[i].text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        options = media_options(folder, "n");
        assert_int_equal(yb_media_open(&options, &media, why, sizeof(why)), rows[i].status);
        assert_non_null(strstr(why, "node.json"));
        file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fread(text, 1, sizeof(text) - 1, file), strlen(rows[i].text));
        assert_int_equal(fclose(file), 0);
        assert_string_equal(text, rows[i].text);
        remove_folder(folder);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shelf__finds_what_was_taken_until_it_is_given_back),
        cmocka_unit_test(test_shelf__shows_readers_nothing_that_is_on_its_way_out),
        cmocka_unit_test(test_shelf__refuses_sizes_that_make_no_sense),
        cmocka_unit_test(test_move__each_policy_has_its_moment),
        cmocka_unit_test(test_move__what_wants_room_goes_one_tier_down),
        cmocka_unit_test(test_move__versions_never_lie_in_an_object_store),
        cmocka_unit_test(test_move__stores_keep_a_part_of_the_memory_and_no_more),
        cmocka_unit_test(test_move__policies_have_names),
        cmocka_unit_test(test_kills__cover_what_was_added_and_everything_older),
        cmocka_unit_test(test_media__a_node_keeps_its_name_with_its_folder),
        cmocka_unit_test(test_media__what_it_cannot_read_it_leaves_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
