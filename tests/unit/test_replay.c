/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants R1-R5 of net/replay.h.
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
key_of(uint64_t slot)
{
    struct yb_replay_key key = {.incarnation = 7, .line = 3, .slot = slot};

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

/* What most tests begin: the first operation of a slot. */
#define FIRST 5u

static enum yb_replay_verdict
begin_next(struct yb_replay *replay, uint64_t slot, uint64_t operation, uint64_t now_ns)
{
    struct yb_replay_key key = key_of(slot);
    struct yb_replay_result result;

    return yb_replay_begin(replay, &key, operation, now_ns, now_ns + SECOND, &result);
}

static enum yb_replay_verdict
begin(struct yb_replay *replay, uint64_t slot, uint64_t now_ns, uint64_t expires_ns)
{
    struct yb_replay_key key = key_of(slot);
    struct yb_replay_result result;

    return yb_replay_begin(replay, &key, FIRST, now_ns, expires_ns, &result);
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
finish_next(struct yb_replay *replay, uint64_t slot, uint64_t operation, uint64_t now_ns,
            uint32_t body_bytes)
{
    struct yb_replay_key key = key_of(slot);
    uint8_t body[BODY_MAX];
    const struct yb_replay_answer answer = {
        .status = YB_LEASED,
        .body_bytes = body_bytes,
        .body = body_bytes > 0 ? body : NULL,
    };

    write_body(body, slot + operation);
    yb_replay_finish(replay, &key, operation, now_ns, &answer);
}

static void
finish(struct yb_replay *replay, uint64_t slot, uint64_t now_ns, uint32_t body_bytes)
{
    finish_next(replay, slot, FIRST, now_ns, body_bytes);
}

static void
forget_next(struct yb_replay *replay, uint64_t slot, uint64_t operation)
{
    struct yb_replay_key key = key_of(slot);

    yb_replay_forget(replay, &key, operation);
}

static void
forget(struct yb_replay *replay, uint64_t slot)
{
    forget_next(replay, slot, FIRST);
}

static void
expect_answer_next(struct yb_replay *replay, uint64_t slot, uint64_t operation, uint64_t now_ns,
                   uint32_t body_bytes)
{
    struct yb_replay_key key = key_of(slot);
    struct yb_replay_result result = {0};
    uint8_t body[BODY_MAX];

    write_body(body, slot + operation);
    assert_int_equal(yb_replay_begin(replay, &key, operation, now_ns, 0, &result),
                     YB_REPLAY_REMEMBERED);
    assert_int_equal(result.status, YB_LEASED);
    assert_int_equal(result.body_bytes, body_bytes);
    assert_memory_equal(result.body, body, body_bytes);
}

static void
expect_answer(struct yb_replay *replay, uint64_t slot, uint64_t now_ns, uint32_t body_bytes)
{
    expect_answer_next(replay, slot, FIRST, now_ns, body_bytes);
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
    struct yb_replay_key keys[6];
    struct yb_replay_result result;

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        keys[i] = key_of(9);
    }
    keys[1].identity.bytes[0] ^= 1;
    keys[2].identity.bytes[15] ^= 1;
    keys[3].incarnation++;
    keys[4].line++;
    keys[5].slot++;
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(yb_replay_begin(replay, &keys[i], FIRST, 0, SECOND, &result),
                         YB_REPLAY_NEW);
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

/* ---- slots that go on ---- */

static void
test_replay__a_higher_operation_is_run_and_lower_ones_never_again(void **state)
{
    struct yb_replay *replay = memory_with(1, BODY_MAX);

    (void)state;
    assert_int_equal(begin_next(replay, 1, 10, 0), YB_REPLAY_NEW);
    finish_next(replay, 1, 10, 0, BODY_MAX);
    expect_answer_next(replay, 1, 10, 0, BODY_MAX);
    /* There is room for one answer only: the first one is dropped, since nobody waits for it. */
    assert_int_equal(begin_next(replay, 1, 12, 0), YB_REPLAY_NEW);
    assert_int_equal(yb_replay_count(replay).bytes, BODY_MAX);
    for (uint64_t operation = 1; operation < 12; operation++) {
        assert_int_equal(begin_next(replay, 1, operation, 0), YB_REPLAY_SUPERSEDED);
    }
    finish_next(replay, 1, 12, 0, 70);
    assert_int_equal(yb_replay_count(replay).bytes, 128);
    assert_int_equal(begin_next(replay, 1, 11, YB_REPLAY_MARGIN_NS - 1), YB_REPLAY_SUPERSEDED);
    expect_answer_next(replay, 1, 12, YB_REPLAY_MARGIN_NS - 1, 70);
    yb_replay_destroy(&replay);
}

static void
test_replay__a_duplicate_of_an_acknowledged_answer_is_refused_for_its_whole_window(void **state)
{
    struct yb_replay *replay = memory_with(2, 2 * BODY_MAX);

    (void)state;
    assert_int_equal(begin(replay, 1, 0, 500 * SECOND), YB_REPLAY_NEW);
    finish(replay, 1, 0, 10);
    /* What follows in the slot has a window that ends much earlier. */
    assert_int_equal(begin_next(replay, 1, FIRST + 1, 0), YB_REPLAY_NEW);
    finish_next(replay, 1, FIRST + 1, 0, 10);
    assert_int_equal(begin(replay, 2, 0, 0), YB_REPLAY_NEW);
    assert_int_equal(begin(replay, 3, 500 * SECOND - 1, 0), YB_REPLAY_FULL);
    assert_int_equal(begin(replay, 1, 500 * SECOND - 1, 0), YB_REPLAY_SUPERSEDED);
    assert_int_equal(begin(replay, 3, 500 * SECOND, 0), YB_REPLAY_NEW);
    yb_replay_destroy(&replay);
}

static void
test_replay__what_still_runs_when_its_slot_goes_on_leaves_no_answer(void **state)
{
    struct yb_replay *replay = memory_with(1, BODY_MAX);

    (void)state;
    assert_int_equal(begin_next(replay, 1, 1, 0), YB_REPLAY_NEW);
    assert_int_equal(begin_next(replay, 1, 2, 0), YB_REPLAY_NEW);
    assert_int_equal(begin_next(replay, 1, 3, 0), YB_REPLAY_NEW);
    assert_int_equal(yb_replay_count(replay).running, 3);
    assert_int_equal(yb_replay_count(replay).bytes, BODY_MAX);
    finish_next(replay, 1, 1, 0, 100);
    assert_int_equal(begin_next(replay, 1, 1, 0), YB_REPLAY_SUPERSEDED);
    finish_next(replay, 1, 3, 0, 200);
    expect_answer_next(replay, 1, 3, 0, 200);
    /* Two still runs: the slot stays for as long as that takes. */
    assert_int_equal(begin(replay, 9, 9999 * SECOND, 0), YB_REPLAY_FULL);
    assert_int_equal(begin_next(replay, 1, 2, 9999 * SECOND), YB_REPLAY_SUPERSEDED);
    forget_next(replay, 1, 2);
    expect_answer_next(replay, 1, 3, 9999 * SECOND, 200);
    assert_int_equal(yb_replay_count(replay).running, 0);
    assert_int_equal(begin(replay, 9, 9999 * SECOND, 0), YB_REPLAY_NEW);
    yb_replay_destroy(&replay);
}

static void
test_replay__forgetting_an_operation_keeps_what_its_slot_knows(void **state)
{
    struct yb_replay *replay = memory_with(1, BODY_MAX);

    (void)state;
    assert_int_equal(begin_next(replay, 1, 1, 0), YB_REPLAY_NEW);
    finish_next(replay, 1, 1, 0, 100);
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(begin_next(replay, 1, 2, 0), YB_REPLAY_NEW);
        assert_int_equal(begin_next(replay, 1, 1, 0), YB_REPLAY_SUPERSEDED);
        forget_next(replay, 1, 2);
        assert_int_equal(yb_replay_count(replay).bytes, 0);
        assert_int_equal(begin_next(replay, 1, 1, 0), YB_REPLAY_SUPERSEDED);
    }
    yb_replay_destroy(&replay);
}

static void
test_replay__a_full_memory_still_learns_that_a_slot_went_on(void **state)
{
    struct yb_replay *replay = memory_with(4, BODY_MAX + 128);

    (void)state;
    assert_int_equal(begin_next(replay, 1, 1, 0), YB_REPLAY_NEW);
    finish_next(replay, 1, 1, 0, 128);
    assert_int_equal(begin_next(replay, 2, 1, 0), YB_REPLAY_NEW); /* Takes all of the bytes. */
    assert_int_equal(begin_next(replay, 1, 2, 0), YB_REPLAY_FULL);
    assert_int_equal(begin_next(replay, 1, 1, 0), YB_REPLAY_SUPERSEDED);
    finish_next(replay, 2, 1, 0, 0);
    assert_int_equal(begin_next(replay, 1, 2, 0), YB_REPLAY_NEW);
    yb_replay_destroy(&replay);
}

/* What one busy caller needs does not grow with what it does. */
static void
test_replay__a_million_mutations_of_a_few_slots_take_the_memory_of_a_few(void **state)
{
    enum { SLOTS = 8, COUNT = 1000000 };
    struct yb_replay *replay = memory_with(16, 16 * BODY_MAX);

    (void)state;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t now_ns = i * (10 * SECOND / COUNT); /* All inside the window of the first. */

        assert_int_equal(begin_next(replay, i % SLOTS, 1 + i, now_ns), YB_REPLAY_NEW);
        finish_next(replay, i % SLOTS, 1 + i, now_ns, 30);
    }
    assert_int_equal(yb_replay_count(replay).records, SLOTS);
    assert_int_equal(yb_replay_count(replay).bytes, SLOTS * 64);
    assert_int_equal(yb_replay_count(replay).full_refusals, 0);
    assert_int_equal(begin_next(replay, 0, 1, 10 * SECOND), YB_REPLAY_SUPERSEDED);
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

#define WALK_OLDER 3u

struct model {
    enum { ABSENT, RUNNING, REMEMBERED, NOT_RUN } state; /* Of the latest operation. */
    enum { ALONE, FOLLOWS, UNKNOWN } place; /* UNKNOWN: follows what may have been forgotten. */
    uint64_t operation;
    uint64_t older[WALK_OLDER]; /* Superseded ones that still run. */
    uint32_t older_count;
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

/* Return whether a slot must be known at this time. */
static bool
model_is_kept(const struct walk *walk, const struct model *model)
{
    return model->state != ABSENT &&
           (model->state == RUNNING || model->older_count > 0 || model->expires_ns > walk->now_ns);
}

/* Return whether what must be kept at this time leaves room for an operation of slot `k`. */
static bool
model_has_room(const struct walk *walk, uint32_t k)
{
    uint64_t bytes = BODY_MAX;
    uint32_t records = 1;

    for (uint32_t i = 0; i < WALK_KEYS; i++) {
        const struct model *model = &walk->models[i];

        if (i != k && model_is_kept(walk, model)) {
            records++;
            bytes += model->state == RUNNING      ? BODY_MAX
                     : model->state == REMEMBERED ? (model->body_bytes + 63) / 64 * 64
                                                  : 0;
        }
    }
    return records <= walk->records_max && bytes <= walk->bytes_max;
}

/* The memory says that an operation is to be run. */
static void
model_start(const struct walk *walk, struct model *model, uint64_t operation, uint64_t expires_ns)
{
    bool kept = model_is_kept(walk, model);

    if (model->state == ABSENT || operation < model->operation) {
        assert_false(kept);
        *model = (struct model){.place = ALONE};
    } else if (operation > model->operation) {
        if (model->state == RUNNING) {
            model->older[model->older_count++] = model->operation;
        }
        model->place = kept ? FOLLOWS : UNKNOWN;
    } else {
        assert_true(model->state == NOT_RUN || !kept);
        model->place = kept ? model->place : UNKNOWN;
    }
    model->state = RUNNING;
    model->operation = operation;
    model->expires_ns = expires_ns > model->expires_ns ? expires_ns : model->expires_ns;
}

/* The memory says that an operation is not to be run because there is no room. */
static void
model_refuse(const struct walk *walk, struct model *model, uint64_t operation)
{
    bool kept = model_is_kept(walk, model);

    assert_true(!kept || operation > model->operation || model->state == NOT_RUN);
    if (model->state == ABSENT || operation <= model->operation) {
        return;
    }
    if (model->state == RUNNING) {
        model->older[model->older_count++] = model->operation;
    }
    model->state = NOT_RUN;
    model->place = kept ? FOLLOWS : UNKNOWN;
    model->operation = operation;
}

static void
check_answer(const struct model *model, const struct yb_replay_result *result)
{
    uint8_t body[BODY_MAX];

    assert_int_equal(model->state, REMEMBERED);
    assert_int_equal(result->status, model->answer % 2 == 0 ? YB_OK : YB_EXISTS);
    assert_int_equal(result->body_bytes, model->body_bytes);
    write_body(body, model->answer);
    assert_memory_equal(result->body, body, model->body_bytes);
}

static void
walk_begin(struct walk *walk, uint32_t k)
{
    struct model *model = &walk->models[k];
    struct yb_replay_key key = key_of(k);
    uint64_t expires_ns = walk->now_ns + unit_random(&walk->random) % (60 * SECOND);
    uint64_t operation = 1 + model->operation + unit_random(&walk->random) % 4;
    struct yb_replay_result result = {0};

    operation -= operation > 2 ? 2 : 0; /* One lower, the same, or higher. */
    if (model->older_count == WALK_OLDER && operation > model->operation) {
        operation = model->operation;
    }
    switch (yb_replay_begin(walk->replay, &key, operation, walk->now_ns, expires_ns, &result)) {
    case YB_REPLAY_NEW:
        assert_true(model_has_room(walk, k));
        model_start(walk, model, operation, expires_ns);
        return;
    case YB_REPLAY_FULL:
        assert_false(model_has_room(walk, k));
        model_refuse(walk, model, operation);
        return;
    case YB_REPLAY_SUPERSEDED:
        assert_true(model->state != ABSENT && operation < model->operation);
        return;
    case YB_REPLAY_RUNNING: assert_int_equal(model->state, RUNNING); break;
    case YB_REPLAY_REMEMBERED: check_answer(model, &result); break;
    }
    assert_true(operation == model->operation);
    if (expires_ns > model->expires_ns) {
        model->expires_ns = expires_ns;
    }
}

/* Finish the latest operation of a slot, or an older one. */
static void
walk_finish(struct walk *walk, uint32_t k)
{
    struct model *model = &walk->models[k];
    struct yb_replay_key key = key_of(k);
    uint64_t earliest_ns = walk->now_ns + YB_REPLAY_MARGIN_NS;
    uint64_t value = unit_random(&walk->random);
    uint32_t bytes = (uint32_t)(unit_random(&walk->random) % (BODY_MAX + 1));
    uint64_t operation = model->operation;
    uint8_t body[BODY_MAX];
    struct yb_replay_answer answer = {.status = value % 2 == 0 ? YB_OK : YB_EXISTS, .body = body};

    answer.body_bytes = value % 3 != 0 ? bytes % 130 : bytes;
    if (model->state == RUNNING && (model->older_count == 0 || value % 5 != 0)) {
        model->state = REMEMBERED;
        model->answer = value;
        model->body_bytes = answer.body_bytes;
    } else {
        operation = model->older[--model->older_count];
    }
    if (model->expires_ns < earliest_ns) {
        model->expires_ns = earliest_ns;
    }
    write_body(body, value);
    yb_replay_finish(walk->replay, &key, operation, walk->now_ns, &answer);
}

static void
walk_forget(struct walk *walk, uint32_t k)
{
    uint64_t records = yb_replay_count(walk->replay).records;
    struct model *model = &walk->models[k];

    if (model->state != RUNNING) {
        forget_next(walk->replay, k, model->older[--model->older_count]);
        assert_int_equal(yb_replay_count(walk->replay).records, records);
        return;
    }
    forget_next(walk->replay, k, model->operation);
    if (model->place == UNKNOWN) {
        model->place = yb_replay_count(walk->replay).records < records ? ALONE : FOLLOWS;
    }
    model->state = model->place == ALONE ? ABSENT : NOT_RUN;
    assert_int_equal(yb_replay_count(walk->replay).records, records - (model->place == ALONE));
    if (model->state == ABSENT) {
        *model = (struct model){.operation = model->operation};
    }
}

static void
walk_check(const struct walk *walk)
{
    struct yb_replay_counts counts = yb_replay_count(walk->replay);
    uint32_t running = 0;
    uint32_t latest = 0;
    uint32_t kept = 0;

    for (uint32_t k = 0; k < WALK_KEYS; k++) {
        const struct model *model = &walk->models[k];

        latest += model->state == RUNNING;
        running += (model->state == RUNNING) + model->older_count;
        kept += model_is_kept(walk, model);
    }
    assert_int_equal(counts.running, running);
    assert_true(counts.records >= kept && counts.records <= walk->records_max);
    assert_true(counts.bytes >= (uint64_t)latest * BODY_MAX && counts.bytes <= walk->bytes_max);
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
        bool runs = walk.models[k].state == RUNNING || walk.models[k].older_count > 0;

        walk.now_ns += unit_random(&walk.random) % (2 * SECOND);
        if (runs && dice == 0) {
            walk_forget(&walk, k);
        } else if (runs && dice < 5) {
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
    const struct yb_replay_answer answer = {.body = &k, .body_bytes = sizeof(k)};
    struct yb_replay_key key = key_of(k);
    struct yb_replay_result result;

    for (;;) {
        switch (yb_replay_begin(race->replay, &key, FIRST, 0, SECOND, &result)) {
        case YB_REPLAY_NEW:
            race->begun[k]++;
            if (k % 5 == 0 && race->begun[k] == 1) {
                yb_replay_forget(race->replay, &key, FIRST);
                continue;
            }
            yb_replay_finish(race->replay, &key, FIRST, 0, &answer);
            continue;
        case YB_REPLAY_RUNNING: (void)sched_yield(); continue;
        case YB_REPLAY_REMEMBERED:
            *failures += result.status != YB_OK || result.body_bytes != sizeof(k) ||
                         memcmp(result.body, &k, sizeof(k)) != 0;
            return;
        case YB_REPLAY_FULL:
        case YB_REPLAY_SUPERSEDED: (*failures)++; return;
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

    switch (yb_replay_begin(churn->replay, key, FIRST, now_ns, 0, &result)) {
    case YB_REPLAY_REMEMBERED:
        atomic_fetch_add(&churn->answers, 1);
        if (result.body_bytes != 20 * sizeof(*answer) ||
            memcmp(result.body, answer, 20 * sizeof(*answer)) != 0) {
            atomic_fetch_add(&churn->failures, 1);
        }
        return;
    case YB_REPLAY_SUPERSEDED:
    case YB_REPLAY_RUNNING: atomic_fetch_add(&churn->failures, 1); return;
    case YB_REPLAY_NEW: yb_replay_forget(churn->replay, key, FIRST); break;
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
        const struct yb_replay_answer kept = {.body = answer, .body_bytes = sizeof(answer)};

        for (uint32_t n = 0; n < 20; n++) {
            answer[n] = base + i * n;
        }
        while (yb_replay_begin(churn->replay, &key, FIRST, now_ns, 0, &result) == YB_REPLAY_FULL) {
            now_ns = atomic_fetch_add(&churn->now_ns, SECOND);
        }
        yb_replay_finish(churn->replay, &key, FIRST, now_ns, &kept);
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
        cmocka_unit_test(test_replay__a_higher_operation_is_run_and_lower_ones_never_again),
        cmocka_unit_test(
            test_replay__a_duplicate_of_an_acknowledged_answer_is_refused_for_its_whole_window),
        cmocka_unit_test(test_replay__what_still_runs_when_its_slot_goes_on_leaves_no_answer),
        cmocka_unit_test(test_replay__forgetting_an_operation_keeps_what_its_slot_knows),
        cmocka_unit_test(test_replay__a_full_memory_still_learns_that_a_slot_went_on),
        cmocka_unit_test(test_replay__a_million_mutations_of_a_few_slots_take_the_memory_of_a_few),
        cmocka_unit_test(test_replay__create_refuses_sizes_outside_the_contract),
        cmocka_unit_test(test_replay__a_random_walk_agrees_with_an_array),
        cmocka_unit_test(test_replay__racing_threads_run_every_mutation_exactly_once),
        cmocka_unit_test(test_replay__threads_that_share_a_full_shard_keep_their_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
