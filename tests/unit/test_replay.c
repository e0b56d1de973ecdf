/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants R1-R4 of net/replay.h.
 * Method: one test per rule on a memory of one shard, where FULL is exact; a random walk against
 * an array; then threads that race for the same keys. What a thread writes between NEW and finish
 * is not atomic on purpose: the thread sanitizer sees it if two of them run one mutation.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "net/replay.h"

#define BODY_MAX YB_REPLY_REMEMBERED_MAX
#define SECOND   YB_NS_PER_S

static struct yb_replay_key
key_of(uint64_t operation)
{
    struct yb_replay_key key = {.incarnation = 7, .operation = operation};

    key.identity.bytes[0] = 0xa1;
    return key;
}

static struct yb_replay *
memory_with(uint32_t records_max, uint64_t bytes_max)
{
    struct yb_replay *replay = NULL;

    assert_int_equal(yb_replay_create(records_max, bytes_max, &replay), YB_OK);
    return replay;
}

static enum yb_replay_verdict
begin(struct yb_replay *replay, uint64_t operation, uint64_t now_ns, uint64_t expires_ns)
{
    struct yb_replay_key key = key_of(operation);
    struct yb_replay_result result;

    return yb_replay_begin(replay, &key, now_ns, expires_ns, &result);
}

/* Fill `body` with what the answer `answer` says. */
static void
write_body(uint8_t body[BODY_MAX], uint64_t answer)
{
    for (uint32_t i = 0; i < BODY_MAX; i++) {
        body[i] = (uint8_t)(answer * 31 + i + (i >> 8));
    }
}

static void
finish(struct yb_replay *replay, uint64_t operation, uint64_t now_ns, uint32_t body_bytes)
{
    struct yb_replay_key key = key_of(operation);
    uint8_t body[BODY_MAX];

    write_body(body, operation);
    yb_replay_finish(replay, &key, now_ns, YB_LEASED, body_bytes > 0 ? body : NULL, body_bytes);
}

static void
forget(struct yb_replay *replay, uint64_t operation)
{
    struct yb_replay_key key = key_of(operation);

    yb_replay_forget(replay, &key);
}

static void
expect_answer(struct yb_replay *replay, uint64_t operation, uint64_t now_ns, uint32_t body_bytes)
{
    struct yb_replay_key key = key_of(operation);
    struct yb_replay_result result = {0};
    uint8_t body[BODY_MAX];

    write_body(body, operation);
    assert_int_equal(yb_replay_begin(replay, &key, now_ns, 0, &result), YB_REPLAY_REMEMBERED);
    assert_int_equal(result.status, YB_LEASED);
    assert_int_equal(result.body_bytes, body_bytes);
    assert_memory_equal(result.body, body, body_bytes);
}

static void
test_replay__a_repeated_mutation_gets_the_first_answer(void **state)
{
    static const uint32_t sizes[] = {0, 1, 63, 64, 65, 128, 4095, 4096};
    const uint32_t count = sizeof(sizes) / sizeof(sizes[0]);
    struct yb_replay *replay = memory_with(16, 8 * BODY_MAX);

    (void)state;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(begin(replay, i, 0, SECOND), YB_REPLAY_NEW);
        assert_int_equal(begin(replay, i, 0, SECOND), YB_REPLAY_RUNNING);
    }
    for (uint32_t i = 0; i < count; i++) {
        finish(replay, i, 0, sizes[i]);
    }
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < count; i++) {
            expect_answer(replay, i, 0, sizes[i]);
        }
    }
    yb_replay_destroy(&replay);
    assert_null(replay);
}

static void
test_replay__a_forgotten_mutation_runs_anew(void **state)
{
    struct yb_replay *replay = memory_with(1, BODY_MAX);

    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(begin(replay, 1, 0, SECOND), YB_REPLAY_NEW);
        forget(replay, 1);
        assert_int_equal(yb_replay_count(replay).records, 0);
        assert_int_equal(yb_replay_count(replay).bytes, 0);
    }
    assert_int_equal(begin(replay, 1, 0, SECOND), YB_REPLAY_NEW);
    finish(replay, 1, 0, 5);
    expect_answer(replay, 1, 0, 5);
    yb_replay_destroy(&replay);
}

static void
test_replay__every_part_of_a_key_counts(void **state)
{
    struct yb_replay *replay = memory_with(16, 16 * BODY_MAX);
    struct yb_replay_key keys[5];
    struct yb_replay_result result;

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        keys[i] = key_of(9);
    }
    keys[1].identity.bytes[0] ^= 1;
    keys[2].identity.bytes[15] ^= 1;
    keys[3].incarnation++;
    keys[4].operation++;
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(yb_replay_begin(replay, &keys[i], 0, SECOND, &result), YB_REPLAY_NEW);
    }
    yb_replay_destroy(&replay);
}

static void
test_replay__nothing_leaves_inside_its_window(void **state)
{
    enum { COUNT = 8 };
    /* Ends in an order that is not that of arrival, all beyond the margin after the finish. */
    static const uint64_t ends_s[COUNT] = {65, 62, 67, 61, 68, 63, 66, 64};
    struct yb_replay *replay = memory_with(COUNT, COUNT * BODY_MAX);

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(begin(replay, i, 0, ends_s[i] * SECOND), YB_REPLAY_NEW);
        finish(replay, i, 0, 100);
    }
    for (uint64_t end_s = 61; end_s <= 68; end_s++) {
        /* One nanosecond before the first window ends there is no room, and with it there is. */
        assert_int_equal(begin(replay, 100 + end_s, end_s * SECOND - 1, 0), YB_REPLAY_FULL);
        for (uint32_t i = 0; i < COUNT; i++) {
            if (ends_s[i] >= end_s) {
                expect_answer(replay, i, end_s * SECOND - 1, 100);
            }
        }
        assert_int_equal(begin(replay, 100 + end_s, end_s * SECOND, 0), YB_REPLAY_NEW);
    }
    assert_int_equal(yb_replay_count(replay).full_refusals, COUNT);
    yb_replay_destroy(&replay);
}

static void
test_replay__a_running_mutation_never_expires(void **state)
{
    struct yb_replay *replay = memory_with(1, BODY_MAX);

    (void)state;
    assert_int_equal(begin(replay, 1, 0, SECOND), YB_REPLAY_NEW);
    assert_int_equal(begin(replay, 2, 9999 * SECOND, 0), YB_REPLAY_FULL);
    assert_int_equal(begin(replay, 1, 9999 * SECOND, 0), YB_REPLAY_RUNNING);
    /* Late as it is, its answer is kept for the margin. */
    finish(replay, 1, 9999 * SECOND, 10);
    assert_int_equal(begin(replay, 2, 9999 * SECOND + YB_REPLAY_MARGIN_NS - 1, 0), YB_REPLAY_FULL);
    assert_int_equal(begin(replay, 2, 9999 * SECOND + YB_REPLAY_MARGIN_NS, 0), YB_REPLAY_NEW);
    yb_replay_destroy(&replay);
}

static void
test_replay__asking_again_prolongs_the_window(void **state)
{
    struct yb_replay *replay = memory_with(2, 2 * BODY_MAX);

    (void)state;
    assert_int_equal(begin(replay, 1, 0, 50 * SECOND), YB_REPLAY_NEW);
    assert_int_equal(begin(replay, 1, 0, 70 * SECOND), YB_REPLAY_RUNNING);
    finish(replay, 1, 0, 10);
    assert_int_equal(begin(replay, 2, 0, 60 * SECOND), YB_REPLAY_NEW);
    finish(replay, 2, 0, 10);
    assert_int_equal(begin(replay, 2, 0, 80 * SECOND), YB_REPLAY_REMEMBERED);
    assert_int_equal(begin(replay, 2, 0, 10 * SECOND), YB_REPLAY_REMEMBERED); /* Not shorter. */
    assert_int_equal(begin(replay, 3, 70 * SECOND - 1, 0), YB_REPLAY_FULL);
    assert_int_equal(begin(replay, 3, 70 * SECOND, 0), YB_REPLAY_NEW);
    assert_int_equal(begin(replay, 4, 80 * SECOND - 1, 0), YB_REPLAY_FULL);
    assert_int_equal(begin(replay, 4, 80 * SECOND, 0), YB_REPLAY_NEW);
    yb_replay_destroy(&replay);
}

static void
test_replay__a_caller_without_a_deadline_gets_the_longest_window(void **state)
{
    struct yb_replay *replay = memory_with(1, BODY_MAX);

    (void)state;
    assert_int_equal(begin(replay, 1, 5, YB_NEVER), YB_REPLAY_NEW);
    finish(replay, 1, 5, 10);
    assert_int_equal(begin(replay, 2, 5 + YB_REPLAY_WINDOW_MAX_NS - 1, 0), YB_REPLAY_FULL);
    assert_int_equal(begin(replay, 2, 5 + YB_REPLAY_WINDOW_MAX_NS, 0), YB_REPLAY_NEW);
    yb_replay_destroy(&replay);
}

static void
test_replay__full_of_bytes_is_full_and_a_short_answer_gives_the_rest_back(void **state)
{
    struct yb_replay *replay = memory_with(100, 3 * BODY_MAX);

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(begin(replay, i, 0, 60 * SECOND), YB_REPLAY_NEW);
    }
    assert_int_equal(yb_replay_count(replay).bytes, 3 * BODY_MAX);
    assert_int_equal(begin(replay, 3, 0, 60 * SECOND), YB_REPLAY_FULL);
    finish(replay, 0, 0, BODY_MAX);
    assert_int_equal(begin(replay, 3, 0, 60 * SECOND), YB_REPLAY_FULL);
    finish(replay, 1, 0, 0);
    assert_int_equal(begin(replay, 3, 0, 60 * SECOND), YB_REPLAY_NEW);
    finish(replay, 2, 0, 1);
    assert_int_equal(yb_replay_count(replay).bytes, 2 * BODY_MAX + 64);
    assert_int_equal(begin(replay, 4, 0, 60 * SECOND), YB_REPLAY_FULL); /* 64 bytes short. */
    forget(replay, 3);
    assert_int_equal(begin(replay, 4, 0, 60 * SECOND), YB_REPLAY_NEW);
    expect_answer(replay, 0, 0, BODY_MAX);
    expect_answer(replay, 1, 0, 0);
    expect_answer(replay, 2, 0, 1);
    assert_int_equal(yb_replay_count(replay).full_refusals, 3);
    yb_replay_destroy(&replay);
}

static void
test_replay__many_empty_answers_past_their_window_do_not_hide_a_long_one(void **state)
{
    enum { EMPTY = 60 };
    struct yb_replay *replay = memory_with(EMPTY + 1, BODY_MAX);

    (void)state;
    for (uint32_t i = 0; i < EMPTY; i++) {
        assert_int_equal(begin(replay, i, 0, 40 * SECOND), YB_REPLAY_NEW);
        finish(replay, i, 0, 0);
    }
    assert_int_equal(begin(replay, EMPTY, 0, 41 * SECOND), YB_REPLAY_NEW);
    finish(replay, EMPTY, 0, BODY_MAX);
    /* Only the last to expire gives room, and one begin gets as far as that. */
    assert_int_equal(begin(replay, 1000, 41 * SECOND, 0), YB_REPLAY_NEW);
    assert_int_equal(yb_replay_count(replay).records, 1);
    yb_replay_destroy(&replay);
}

static void
test_replay__a_backlog_shrinks_with_every_begin(void **state)
{
    enum { COUNT = 100 };
    struct yb_replay *replay = memory_with(2 * COUNT, 2 * COUNT * BODY_MAX);

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(begin(replay, i, 0, 0), YB_REPLAY_NEW);
        finish(replay, i, 0, 64);
    }
    for (uint32_t i = 0; i < COUNT / 2; i++) {
        assert_int_equal(begin(replay, COUNT + i, 40 * SECOND, 0), YB_REPLAY_NEW);
    }
    assert_int_equal(yb_replay_count(replay).records, COUNT / 2);
    assert_int_equal(yb_replay_count(replay).running, COUNT / 2);
    yb_replay_destroy(&replay);
}

static void
test_replay__create_refuses_sizes_outside_the_contract(void **state)
{
    struct yb_replay *replay = NULL;

    (void)state;
    assert_int_equal(yb_replay_create(0, BODY_MAX, &replay), YB_INVALID);
    assert_int_equal(yb_replay_create(1, BODY_MAX - 1, &replay), YB_INVALID);
    assert_int_equal(yb_replay_create(YB_REPLAY_RECORDS_MAX + 1, BODY_MAX, &replay), YB_INVALID);
    assert_int_equal(yb_replay_create(1, YB_REPLAY_BYTES_MAX + 1, &replay), YB_INVALID);
    assert_null(replay);
    yb_replay_destroy(&replay);
}

/* ---- the walk ---- */

#define WALK_KEYS  40u
#define WALK_STEPS 60000u

struct model {
    enum { ABSENT, RUNNING, REMEMBERED } state;
    uint64_t expires_ns;
    uint64_t answer;
    uint32_t body_bytes;
};

struct walk {
    struct yb_replay *replay;
    uint64_t random;
    uint64_t now_ns;
    uint32_t records_max;
    uint64_t bytes_max;
    struct model models[WALK_KEYS];
};

/* Return whether what must be kept at this time leaves room for one more. */
static bool
model_has_room(const struct walk *walk)
{
    uint64_t bytes = BODY_MAX;
    uint32_t records = 1;

    for (uint32_t k = 0; k < WALK_KEYS; k++) {
        const struct model *model = &walk->models[k];

        if (model->state == RUNNING) {
            records++;
            bytes += BODY_MAX;
        } else if (model->state == REMEMBERED && model->expires_ns > walk->now_ns) {
            records++;
            bytes += (model->body_bytes + 63) / 64 * 64;
        }
    }
    return records <= walk->records_max && bytes <= walk->bytes_max;
}

static void
walk_begin(struct walk *walk, uint32_t k)
{
    struct model *model = &walk->models[k];
    struct yb_replay_key key = key_of(k);
    uint64_t expires_ns = walk->now_ns + unit_random(&walk->random) % (60 * SECOND);
    bool expired = model->state == REMEMBERED && model->expires_ns <= walk->now_ns;
    struct yb_replay_result result = {0};
    uint8_t body[BODY_MAX];

    switch (yb_replay_begin(walk->replay, &key, walk->now_ns, expires_ns, &result)) {
    case YB_REPLAY_NEW:
        assert_true(model->state == ABSENT || expired);
        assert_true(model_has_room(walk));
        model->state = RUNNING;
        model->expires_ns = expires_ns;
        return;
    case YB_REPLAY_FULL:
        assert_true(model->state == ABSENT || expired);
        assert_false(model_has_room(walk));
        return;
    case YB_REPLAY_RUNNING: assert_int_equal(model->state, RUNNING); break;
    case YB_REPLAY_REMEMBERED:
        assert_int_equal(model->state, REMEMBERED);
        assert_int_equal(result.status, model->answer % 2 == 0 ? YB_OK : YB_EXISTS);
        assert_int_equal(result.body_bytes, model->body_bytes);
        write_body(body, model->answer);
        assert_memory_equal(result.body, body, model->body_bytes);
        break;
    }
    if (expires_ns > model->expires_ns) {
        model->expires_ns = expires_ns;
    }
}

static void
walk_finish(struct walk *walk, uint32_t k)
{
    struct model *model = &walk->models[k];
    struct yb_replay_key key = key_of(k);
    uint64_t earliest_ns = walk->now_ns + YB_REPLAY_MARGIN_NS;
    uint8_t body[BODY_MAX];

    model->state = REMEMBERED;
    model->answer = unit_random(&walk->random);
    model->body_bytes = (uint32_t)(unit_random(&walk->random) % (BODY_MAX + 1));
    if (model->answer % 3 != 0) {
        model->body_bytes %= 130;
    }
    if (model->expires_ns < earliest_ns) {
        model->expires_ns = earliest_ns;
    }
    write_body(body, model->answer);
    yb_replay_finish(walk->replay, &key, walk->now_ns, model->answer % 2 == 0 ? YB_OK : YB_EXISTS,
                     body, model->body_bytes);
}

static void
walk_check(const struct walk *walk)
{
    struct yb_replay_counts counts = yb_replay_count(walk->replay);
    uint32_t running = 0;
    uint32_t kept = 0;

    for (uint32_t k = 0; k < WALK_KEYS; k++) {
        const struct model *model = &walk->models[k];

        running += model->state == RUNNING;
        kept += model->state == RUNNING ||
                (model->state == REMEMBERED && model->expires_ns > walk->now_ns);
    }
    assert_int_equal(counts.running, running);
    assert_true(counts.records >= kept && counts.records <= walk->records_max);
    assert_true(counts.bytes >= (uint64_t)running * BODY_MAX && counts.bytes <= walk->bytes_max);
}

static void
walk_for(uint32_t records_max, uint64_t bytes_max)
{
    struct walk walk = {
        .replay = memory_with(records_max, bytes_max),
        .random = unit_seed("replay walk"),
        .records_max = records_max,
        .bytes_max = bytes_max,
    };

    for (uint32_t step = 0; step < WALK_STEPS; step++) {
        uint32_t k = (uint32_t)(unit_random(&walk.random) % WALK_KEYS);
        uint64_t dice = unit_random(&walk.random) % 8;

        walk.now_ns += unit_random(&walk.random) % (2 * SECOND);
        if (walk.models[k].state == RUNNING && dice == 0) {
            struct yb_replay_key key = key_of(k);

            yb_replay_forget(walk.replay, &key);
            walk.models[k].state = ABSENT;
        } else if (walk.models[k].state == RUNNING && dice < 6) {
            walk_finish(&walk, k);
        } else {
            walk_begin(&walk, k);
        }
        walk_check(&walk);
    }
    yb_replay_destroy(&walk.replay);
}

static void
test_replay__a_random_walk_agrees_with_an_array(void **state)
{
    (void)state;
    walk_for(13, 64 * BODY_MAX);                /* Short of records. */
    walk_for(100, 5 * BODY_MAX + 64);           /* Short of bytes. */
    walk_for(16 * 512, 16 * 256ull * BODY_MAX); /* Sixteen shards, short of nothing. */
}

/* ---- threads ---- */

#define THREAD_COUNT 4u
#define RACE_KEYS    3000u

struct race {
    struct yb_replay *replay;
    uint32_t begun[RACE_KEYS]; /* Written between NEW and finish or forget. */
    uint32_t failures[THREAD_COUNT];
    pthread_barrier_t barrier;
};

struct racer {
    struct race *race;
    uint32_t number;
};

/* Attempt one mutation until it is answered; the first run of every fifth says AGAIN. */
static void
race_for(struct race *race, uint32_t *failures, uint64_t k)
{
    struct yb_replay_key key = key_of(k);
    struct yb_replay_result result;

    for (;;) {
        switch (yb_replay_begin(race->replay, &key, 0, SECOND, &result)) {
        case YB_REPLAY_NEW:
            race->begun[k]++;
            if (k % 5 == 0 && race->begun[k] == 1) {
                yb_replay_forget(race->replay, &key);
                continue;
            }
            yb_replay_finish(race->replay, &key, 0, YB_OK, &k, sizeof(k));
            continue;
        case YB_REPLAY_RUNNING: (void)sched_yield(); continue;
        case YB_REPLAY_REMEMBERED:
            *failures += result.status != YB_OK || result.body_bytes != sizeof(k) ||
                         memcmp(result.body, &k, sizeof(k)) != 0;
            return;
        case YB_REPLAY_FULL: (*failures)++; return;
        }
    }
}

static void *
run_race(void *argument)
{
    struct racer *racer = argument;

    for (uint32_t k = 0; k < RACE_KEYS; k++) {
        if (k % 100 == 0) {
            (void)pthread_barrier_wait(&racer->race->barrier);
        }
        race_for(racer->race, &racer->race->failures[racer->number], k);
    }
    return NULL;
}

static void
test_replay__racing_threads_run_every_mutation_exactly_once(void **state)
{
    static struct race race;
    struct racer racers[THREAD_COUNT];
    pthread_t threads[THREAD_COUNT];

    (void)state;
    race.replay = memory_with(16 * 1024, 64 << 20);
    assert_int_equal(pthread_barrier_init(&race.barrier, NULL, THREAD_COUNT), 0);
    for (uint32_t t = 0; t < THREAD_COUNT; t++) {
        racers[t] = (struct racer){.race = &race, .number = t};
        assert_int_equal(pthread_create(&threads[t], NULL, run_race, &racers[t]), 0);
    }
    for (uint32_t t = 0; t < THREAD_COUNT; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        assert_int_equal(race.failures[t], 0);
    }
    for (uint32_t k = 0; k < RACE_KEYS; k++) {
        assert_int_equal(race.begun[k], k % 5 == 0 ? 2 : 1);
    }
    assert_int_equal(yb_replay_count(race.replay).records, RACE_KEYS);
    assert_int_equal(yb_replay_count(race.replay).running, 0);
    assert_int_equal(pthread_barrier_destroy(&race.barrier), 0);
    yb_replay_destroy(&race.replay);
}

#define CHURN_STEPS 5000u

struct churn {
    struct yb_replay *replay;
    _Atomic(uint64_t) now_ns;
    _Atomic(uint32_t) next_thread;
    _Atomic(uint32_t) failures;
    _Atomic(uint32_t) answers;
};

/* Ask again for what was finished at `now_ns`. A thread that was descheduled may come after the
 * window, which is fine; the clock, read afterwards, tells that no thread was so late. */
static void
churn_again(struct churn *churn, const struct yb_replay_key *key, uint64_t now_ns,
            const uint64_t answer[20])
{
    struct yb_replay_result result;

    switch (yb_replay_begin(churn->replay, key, now_ns, 0, &result)) {
    case YB_REPLAY_REMEMBERED:
        atomic_fetch_add(&churn->answers, 1);
        if (result.body_bytes != 20 * sizeof(*answer) ||
            memcmp(result.body, answer, 20 * sizeof(*answer)) != 0) {
            atomic_fetch_add(&churn->failures, 1);
        }
        return;
    case YB_REPLAY_RUNNING: atomic_fetch_add(&churn->failures, 1); return;
    case YB_REPLAY_NEW: yb_replay_forget(churn->replay, key); break;
    case YB_REPLAY_FULL: break;
    }
    if (atomic_load(&churn->now_ns) < now_ns + YB_REPLAY_MARGIN_NS) {
        atomic_fetch_add(&churn->failures, 1);
    }
}

/* Run own mutations while those of other threads, in the same shard, expire and make room. */
static void *
run_churn(void *argument)
{
    struct churn *churn = argument;
    uint64_t base = 1000000ull * (1 + atomic_fetch_add(&churn->next_thread, 1));

    for (uint64_t i = 0; i < CHURN_STEPS; i++) {
        struct yb_replay_key key = key_of(base + i);
        uint64_t now_ns = atomic_fetch_add(&churn->now_ns, SECOND);
        struct yb_replay_result result;
        uint64_t answer[20];

        for (uint32_t n = 0; n < 20; n++) {
            answer[n] = base + i * n;
        }
        while (yb_replay_begin(churn->replay, &key, now_ns, 0, &result) == YB_REPLAY_FULL) {
            now_ns = atomic_fetch_add(&churn->now_ns, SECOND);
        }
        yb_replay_finish(churn->replay, &key, now_ns, YB_OK, answer, sizeof(answer));
        churn_again(churn, &key, now_ns, answer);
    }
    return NULL;
}

static void
test_replay__threads_that_share_a_full_shard_keep_their_answers(void **state)
{
    static struct churn churn;
    pthread_t threads[THREAD_COUNT];

    (void)state;
    churn.replay = memory_with(32, 16 * BODY_MAX);
    for (uint32_t t = 0; t < THREAD_COUNT; t++) {
        assert_int_equal(pthread_create(&threads[t], NULL, run_churn, &churn), 0);
    }
    for (uint32_t t = 0; t < THREAD_COUNT; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    }
    assert_int_equal(atomic_load(&churn.failures), 0);
    assert_true(atomic_load(&churn.answers) > 0);
    assert_int_equal(yb_replay_count(churn.replay).running, 0);
    yb_replay_destroy(&churn.replay);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay__a_repeated_mutation_gets_the_first_answer),
        cmocka_unit_test(test_replay__a_forgotten_mutation_runs_anew),
        cmocka_unit_test(test_replay__every_part_of_a_key_counts),
        cmocka_unit_test(test_replay__nothing_leaves_inside_its_window),
        cmocka_unit_test(test_replay__a_running_mutation_never_expires),
        cmocka_unit_test(test_replay__asking_again_prolongs_the_window),
        cmocka_unit_test(test_replay__a_caller_without_a_deadline_gets_the_longest_window),
        cmocka_unit_test(test_replay__full_of_bytes_is_full_and_a_short_answer_gives_the_rest_back),
        cmocka_unit_test(test_replay__many_empty_answers_past_their_window_do_not_hide_a_long_one),
        cmocka_unit_test(test_replay__a_backlog_shrinks_with_every_begin),
        cmocka_unit_test(test_replay__create_refuses_sizes_outside_the_contract),
        cmocka_unit_test(test_replay__a_random_walk_agrees_with_an_array),
        cmocka_unit_test(test_replay__racing_threads_run_every_mutation_exactly_once),
        cmocka_unit_test(test_replay__threads_that_share_a_full_shard_keep_their_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
