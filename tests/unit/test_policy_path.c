/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of policy/hazard.h and policy/path.h: what was used again, and when, is
 * learned; requests are known again; and workload, bidaw, trajectory keep what goes on.
 * Method: things that come back by a law that the test knows; and conversations among passers-by,
 * in a pool in which the least recently used order finds none of them again.
 */
#include "unit.h"

#include <string.h>

#include "policy/hazard.h"
#include "policy/policy.h"

#define SECOND 1000000000ull

/* ---- hazard.h ------------------------------------------------------------------------------- */

#define EVERY_NS SECOND
#define BACK     10u /* Births until what is used again is. */

static void
classes_apart(struct yb_hazard_class classes[YB_HAZARD_CLASSES])
{
    for (uint32_t c = 0; c < YB_HAZARD_CLASSES; c++) {
        classes[c] = (struct yb_hazard_class){.kind = (uint8_t)(c % 2), .family = (uint8_t)c};
    }
}

/* Class 0 is used again 3 times of 10, class 1 8 times, always after 10 s, which is in
 * the bin up to 20. */
static void
live(struct yb_hazard *hazard, uint32_t births)
{
    static uint32_t records[BACK];
    uint64_t random = unit_seed("hazard");

    for (uint32_t i = 0; i < births; i++) {
        uint64_t now_ns = (uint64_t)i * EVERY_NS;
        uint32_t class_index = i % 2;

        if (i >= BACK && unit_random(&random) % 10 < (class_index == 0 ? 3 : 8)) {
            assert_true(yb_hazard_used(hazard, records[i % BACK], now_ns));
            assert_false(yb_hazard_used(hazard, records[i % BACK], now_ns));
        }
        records[i % BACK] = yb_hazard_born(hazard, class_index, i, now_ns);
    }
}

static void
test_policy_path__shares_and_times_are_learned(void **state)
{
    struct yb_hazard_class classes[YB_HAZARD_CLASSES];
    struct yb_hazard *hazard;
    uint32_t bin = yb_hazard_bin(10 * SECOND);

    (void)state;
    classes_apart(classes);
    assert_int_equal(yb_hazard_create(classes, 20000, &hazard), YB_OK);
    live(hazard, 40000);
    for (uint32_t c = 0; c < 2; c++) {
        double share = c == 0 ? 0.3 : 0.8;
        double chance = yb_hazard_chance(hazard, c, bin);

        assert_true(yb_hazard_share(hazard, c) > share - 0.05);
        assert_true(yb_hazard_share(hazard, c) < share + 0.05);
        assert_true(yb_hazard_mean_s(hazard, c) > 14.0 && yb_hazard_mean_s(hazard, c) < 16.0);
        assert_true(chance > share - 0.06 && chance < share + 0.06); /* All of it at its age. */
    }
    /* More uses for the room; more still shortly before they come; few when they did not. */
    assert_true(yb_hazard_index(hazard, 1, 0) > 2.0 * yb_hazard_index(hazard, 0, 0));
    assert_true(yb_hazard_index(hazard, 1, 8 * SECOND) > yb_hazard_index(hazard, 1, 0));
    assert_true(yb_hazard_index(hazard, 1, 60 * SECOND) < yb_hazard_index(hazard, 1, 0) / 4.0);
    yb_hazard_destroy(&hazard);
    assert_null(hazard);
}

static void
test_policy_path__records_are_forgotten_in_their_order(void **state)
{
    struct yb_hazard_class classes[YB_HAZARD_CLASSES];
    struct yb_hazard *hazard;
    uint32_t records[300];

    (void)state;
    classes_apart(classes);
    assert_int_equal(yb_hazard_create(classes, 100, &hazard), YB_OK);
    for (uint32_t i = 0; i < 300; i++) {
        records[i] = yb_hazard_born(hazard, i % 3, 7000 + i, i);
        assert_true(yb_hazard_count(hazard) >= (i < 100 ? i + 1 : 100));
        assert_int_equal(yb_hazard_find(hazard, 7000 + i), records[i]);
        assert_int_equal(yb_hazard_class_of(hazard, records[i]), i % 3);
        assert_true(yb_hazard_is(hazard, records[i], 7000 + i));
        assert_false(yb_hazard_is(hazard, records[i], 6999 + i));
        assert_int_equal(yb_hazard_idle(hazard, records[i], i + 5), 5);
    }
    for (uint32_t i = 0; i < 300; i++) {
        bool kept = i >= 300 - yb_hazard_count(hazard);

        assert_int_equal(yb_hazard_class_of(hazard, records[i]), kept ? i % 3 : YB_HAZARD_NONE);
        assert_int_equal(yb_hazard_find(hazard, 7000 + i), kept ? records[i] : YB_HAZARD_NONE);
        assert_int_equal(yb_hazard_used(hazard, records[i], 400), kept);
        assert_int_equal(yb_hazard_find(hazard, 7000 + i), YB_HAZARD_NONE); /* It was used. */
    }
    assert_true(yb_hazard_count(hazard) < 200);
    yb_hazard_destroy(&hazard);
}

/* ---- conversations among passers-by --------------------------------------------------------- */

#define TALKERS 10u
#define TALK    6u  /* Blocks of a conversation when it begins; each turn adds one. */
#define TURNS   12u /* After which another one begins in its place. */
#define PASSER  20u /* Blocks of a request that nobody goes on from. */
#define ROUNDS  1500u
#define ROOM    220u /* Conversations take 120; between two turns come 200 others. */
#define NUMBERS (ROUNDS * (PASSER + 1) + TALKERS * ROUNDS)

enum tags { TAGS_NONE, TAGS_INFERRED, TAGS_FULL };

struct block {
    struct yb_policy_linked linked;
    bool present;
};

struct pool {
    struct yb_policy *policy;
    struct block *blocks;
    enum tags tags;
    uint64_t now_ns;
    uint32_t count;
    uint32_t answer_tokens; /* Of the next request. */
};

/* Use one block of a request. Returns whether it was there. */
static bool
step(struct pool *pool, const uint32_t *path, uint32_t i, uint64_t request)
{
    struct block *block = &pool->blocks[path[i]];
    struct yb_policy_facts facts = {
        .hash = unit_random(&(uint64_t){path[i] + 1}),
        .size = 1,
        .linked = pool->tags != TAGS_NONE,
        .use = {.request = pool->tags == TAGS_FULL ? request : 0,
                .position = pool->tags == TAGS_NONE ? 0 : i + 1,
                .answer_tokens = pool->answer_tokens},
    };

    if (block->present) {
        yb_policy_use(pool->policy, &block->linked.entry, &facts.use, pool->now_ns);
        return true;
    }
    if (pool->count == ROOM) {
        struct yb_policy_entry *entry = yb_policy_victim(pool->policy);

        assert_non_null(entry);
        yb_policy_evict(pool->policy, entry);
        ((struct block *)(void *)entry)->present = false;
        pool->count--;
    }
    yb_policy_insert(pool->policy, &block->linked.entry, &facts, pool->now_ns);
    block->present = true;
    pool->count++;
    if (facts.linked && i > 0 && pool->blocks[path[i - 1]].present) {
        assert_int_equal(
            yb_policy_attach(pool->policy, &block->linked, &pool->blocks[path[i - 1]].linked),
            YB_OK);
    }
    return false;
}

struct talk {
    uint32_t path[TALK + TURNS];
    uint32_t length;
};

/* One passer-by and one turn of one conversation each second, a block of each in turn if `mixed`.
 * Returns the share of what conversations had used before that was there. */
static double
hits_of_talks(const char *name, enum tags tags, bool mixed)
{
    struct yb_policy_options options = {.name = name, .ghost_count = ROOM};
    struct pool pool = {.tags = tags};
    struct talk talks[TALKERS] = {{.length = 0}};
    uint32_t number = 0, wanted = 0, found = 0;

    pool.blocks = calloc(NUMBERS, sizeof *pool.blocks);
    assert_non_null(pool.blocks);
    assert_int_equal(yb_policy_create(&options, &pool.policy), YB_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct talk *talk = &talks[round % TALKERS];
        uint32_t known = talk->length == TALK + TURNS ? 0 : talk->length;
        uint32_t passer[PASSER];
        uint32_t at = 0;

        talk->length = known == 0 ? TALK : known + 1;
        for (uint32_t i = known; i < talk->length; i++) {
            talk->path[i] = number++;
        }
        for (uint32_t i = 0; i < PASSER; i++) {
            passer[i] = number++;
        }
        pool.now_ns += SECOND / 2;
        for (uint32_t i = 0; i < talk->length; i++) {
            bool hit = step(&pool, talk->path, i, 2ull * round + 1);

            if (round > ROUNDS / 3) {
                wanted += i < known;
                found += i < known && hit;
            }
            if (mixed && at < PASSER) {
                (void)step(&pool, passer, at++, 2ull * round + 2);
            }
        }
        pool.now_ns += SECOND / 2;
        while (at < PASSER) {
            (void)step(&pool, passer, at, 2ull * round + 2);
            at++;
        }
    }
    yb_policy_destroy(&pool.policy);
    free(pool.blocks);
    return (double)found / wanted;
}

static void
test_policy_path__what_goes_on_stays_among_what_passes_by(void **state)
{
    static const char *const names[] = {"workload", "bidaw", "trajectory"};
    static const double least[] = {0.95, 0.8, 0.95};

    (void)state;
    assert_true(hits_of_talks("lru", TAGS_INFERRED, false) < 0.05);
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (uint32_t tags = TAGS_NONE; tags <= TAGS_FULL; tags++) {
            assert_true(hits_of_talks(names[i], (enum tags)tags, false) > least[i]);
        }
        assert_true(hits_of_talks(names[i], TAGS_FULL, true) > least[i]); /* Numbers tell apart. */
    }
}

#define ANSWER_BLOCKS 10u
#define ANSWER_ROUNDS 43u /* 110 blocks will come again; 320 come meanwhile. */

/* A prompt each second, all alike. One in three is answered with a word and comes again, once, when
 * ANSWER_ROUNDS others have come; the rest get long answers and do not. Returns the share of
 * what came again that was there. */
static double
hits_of_answers(bool told)
{
    struct yb_policy_options options = {.name = "trajectory", .ghost_count = ROOM};
    struct pool pool = {.tags = TAGS_FULL};
    uint32_t wanted = 0, found = 0;

    pool.blocks = calloc(NUMBERS, sizeof *pool.blocks);
    assert_non_null(pool.blocks);
    assert_int_equal(yb_policy_create(&options, &pool.policy), YB_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bool again = round % 4 == 3 && round >= ANSWER_ROUNDS;
        uint32_t prompt = again ? round - ANSWER_ROUNDS : round;

        pool.now_ns += SECOND;
        pool.answer_tokens = !told ? 0 : !again && prompt % 4 == 0 ? 1 : 500;
        for (uint32_t i = 0; i < ANSWER_BLOCKS; i++) {
            uint32_t path[ANSWER_BLOCKS];
            bool hit;

            for (uint32_t j = 0; j < ANSWER_BLOCKS; j++) {
                path[j] = prompt * ANSWER_BLOCKS + j;
            }
            hit = step(&pool, path, i, round + 1ull);
            wanted += again && round > ROUNDS / 2;
            found += again && round > ROUNDS / 2 && hit;
        }
    }
    yb_policy_destroy(&pool.policy);
    free(pool.blocks);
    return (double)found / wanted;
}

static void
test_policy_path__trajectory_learns_which_answers_are_asked_about_again(void **state)
{
    (void)state;
    assert_true(hits_of_answers(true) > 0.95);
    assert_true(hits_of_answers(false) < 0.5);
}

/* ---- what it is told ------------------------------------------------------------------------ */

static void
test_policy_path__a_plan_is_believed_until_it_is_twice_too_late(void **state)
{
    static const char *const names[] = {"workload", "bidaw", "trajectory"};

    (void)state;
    for (uint32_t p = 0; p < sizeof names / sizeof names[0]; p++) {
        struct yb_policy_options options = {.name = names[p]};
        struct yb_policy_linked blocks[3];
        struct yb_policy *policy;

        assert_int_equal(yb_policy_create(&options, &policy), YB_OK);
        for (uint32_t i = 0; i < 3; i++) { /* Each a request: the third closes those before. */
            struct yb_policy_facts facts = {
                .hash = i + 1,
                .size = 1,
                .linked = true,
                .use = {.request = i + 1, .position = 1},
            };

            facts.use.next_use_ns = i == 0 ? 20 * SECOND : i == 1 ? 1000 * SECOND : 0;
            yb_policy_insert(policy, &blocks[i].entry, &facts, (1 + 3 * i) * SECOND);
        }
        assert_ptr_equal(yb_policy_victim(policy), &blocks[1].entry); /* Used last of the two. */
        yb_policy_use(policy, &blocks[2].entry, &(struct yb_policy_use){.request = 4},
                      100 * SECOND);
        assert_ptr_equal(yb_policy_victim(policy), &blocks[0].entry); /* It was not true. */
        yb_policy_destroy(&policy);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_path__shares_and_times_are_learned),
        cmocka_unit_test(test_policy_path__records_are_forgotten_in_their_order),
        cmocka_unit_test(test_policy_path__what_goes_on_stays_among_what_passes_by),
        cmocka_unit_test(test_policy_path__trajectory_learns_which_answers_are_asked_about_again),
        cmocka_unit_test(test_policy_path__a_plan_is_believed_until_it_is_twice_too_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
