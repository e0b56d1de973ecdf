/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: device memory through a driver that the loader finds: bytes, order, failures, counts; and
 * that without a usable driver all works but device memory.
 * Method: the stand-in of tests/device as libcuda.so.1. The first argument says which driver the
 * loader will find: standin, old, failing (its cuInit fails), or none.
 */
#include "unit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/device/cuda.h"
#include "memory/memory_type.h"
#include "standin_cuda.h"

#define SLICE (64u << 10)

static const struct yb_memory_staging staging = {.queues = 2, .slices = 8, .slice_bytes = SLICE};
static const struct yb_memory_place host = {YB_MEMORY_HOST, 0};
static const struct yb_memory_place device0 = {YB_MEMORY_CUDA, 0};
static const struct yb_memory_place device1 = {YB_MEMORY_CUDA, 1};

struct bench {
    struct yb_memory *memory;
    struct yb_memory_queue *queue;
    uint64_t random;
    standin_set_fn set;
    standin_get_fn get;
    yb_cuda_result (*current)(yb_cuda_context *context);
};

static void *
function(void *library, const char *name)
{
    void *found = dlsym(library, name);

    assert_non_null(found);
    return found;
}

static int
set_up(void **state)
{
    void *library = dlopen(YB_CUDA_LIBRARY, RTLD_NOW);
    struct bench *bench = calloc(1, sizeof(*bench));
    void *found;

    assert_non_null(library);
    found = function(library, STANDIN_SET);
    memcpy(&bench->set, &found, sizeof(found));
    found = function(library, STANDIN_GET);
    memcpy(&bench->get, &found, sizeof(found));
    found = function(library, "cuCtxGetCurrent");
    memcpy(&bench->current, &found, sizeof(found));
    bench->random = unit_seed("memory_type");
    assert_int_equal(bench->set("seed", bench->random), 0);
    assert_int_equal(yb_memory_create(&staging, &bench->memory, NULL, 0), YB_OK);
    assert_int_equal(yb_memory_queue_create(bench->memory, &bench->queue), YB_OK);
    *state = bench;
    return 0;
}

/* Nothing of the driver may be left over, whatever the test did. */
static int
tear_down(void **state)
{
    static const char *const left[] = {"page_locked_bytes", "allocations", "streams", "events",
                                       "wrong_context",     "contexts"};
    struct bench *bench = *state;

    bench->set("hold", 0);
    if (bench->queue != NULL) {
        yb_memory_queue_destroy(&bench->queue);
    }
    yb_memory_destroy(&bench->memory);
    assert_null(bench->memory);
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (bench->get(left[i]) != 0) {
            fail_msg("%s: %llu left", left[i], (unsigned long long)bench->get(left[i]));
        }
    }
    free(bench);
    return 0;
}

/* How a copy ended. */
struct outcome {
    struct yb_memory_copy copy;
    uint32_t times;
    uint32_t turn; /* The how manyth of the test. */
    enum yb_status status;
    uint32_t *turns;
};

static void
on_done(struct yb_memory_copy *copy, enum yb_status status)
{
    struct outcome *outcome = copy->owner;

    outcome->times++;
    outcome->status = status;
    outcome->turn = outcome->turns == NULL ? 0 : (*outcome->turns)++;
}

/* lint: size, a copy has two sides of two values each. */
static enum yb_status
start(struct bench *bench, struct outcome *outcome, void *to, struct yb_memory_place to_place,
      const void *from, struct yb_memory_place from_place, uint64_t length)
{
    outcome->copy = (struct yb_memory_copy){.to = to,
                                            .from = from,
                                            .length = length,
                                            .to_place = to_place,
                                            .from_place = from_place,
                                            .done = on_done,
                                            .owner = outcome};
    return yb_memory_copy_start(bench->queue, &outcome->copy);
}

static void
poll_all(struct bench *bench)
{
    while (yb_memory_pending(bench->queue) > 0) {
        yb_memory_poll(bench->queue);
    }
}

/* Copy and wait; the copy must end well, once, and not inside start. */
static void
move(struct bench *bench, void *to, struct yb_memory_place to_place, const void *from,
     struct yb_memory_place from_place, uint64_t length)
{
    struct outcome outcome = {0};

    assert_int_equal(start(bench, &outcome, to, to_place, from, from_place, length), YB_OK);
    assert_int_equal(outcome.times, 0);
    poll_all(bench);
    assert_int_equal(outcome.times, 1);
    assert_int_equal(outcome.status, YB_OK);
}

static void *
device_memory(struct bench *bench, struct yb_memory_place place, uint64_t length)
{
    void *base = NULL;

    assert_int_equal(yb_memory_alloc(bench->memory, place, length, &base), YB_OK);
    return base;
}

static void
scribble(struct bench *bench, uint8_t *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)unit_random(&bench->random);
    }
}

static void
test_memory_type__bytes_survive_every_way_through_the_devices(void **state)
{
    enum { BYTES = 1000003 };
    struct bench *bench = *state;
    bool two = yb_memory_device_count(bench->memory) > 1;
    struct yb_memory_place other = two ? device1 : device0;
    uint8_t *sent = malloc(BYTES);
    uint8_t *got = calloc(1, BYTES);
    uint8_t *first = device_memory(bench, device0, BYTES + 64);
    uint8_t *second = device_memory(bench, other, BYTES);

    scribble(bench, sent, BYTES);
    move(bench, first + 17, device0, sent, host, BYTES);
    move(bench, second, other, first + 17, device0, BYTES);
    move(bench, first, device0, second, other, BYTES);
    move(bench, first + 32, device0, first, device0, 32); /* Inside one device. */
    move(bench, got, host, first, device0, BYTES);
    assert_memory_equal(got, sent, 32);
    assert_memory_equal(got + 32, sent, 32);
    assert_memory_equal(got + 64, sent + 64, BYTES - 64);
    assert_int_equal(bench->get("peer_copies"), two ? 2 : 0);
    assert_int_equal(yb_memory_counts(bench->memory).copies, 5);
    assert_int_equal(yb_memory_counts(bench->memory).copied_bytes, 4ull * BYTES + 32);
    assert_int_equal(yb_memory_counts(bench->memory).failures, 0);
    yb_memory_free(bench->memory, device0, (void **)&first, BYTES + 64);
    yb_memory_free(bench->memory, other, (void **)&second, BYTES);
    assert_null(first);
    free(got);
    free(sent);
}

static void
test_memory_type__a_probe_tells_whose_memory_it_is_and_touches_no_context(void **state)
{
    struct bench *bench = *state;
    yb_cuda_context before = NULL;
    yb_cuda_context context = NULL;
    int local = 0;
    uint32_t last = yb_memory_device_count(bench->memory) - 1;
    struct yb_memory_place place = {YB_MEMORY_CUDA, last};
    uint8_t *base;

    assert_int_equal(bench->current(&before), YB_CUDA_SUCCESS);
    assert_int_equal(yb_memory_probe(bench->memory, &local).kind, YB_MEMORY_HOST);
    assert_int_equal(bench->get("contexts"), 0);
    base = device_memory(bench, place, 4096);
    assert_int_equal(bench->get("contexts"), 1);
    assert_int_equal(yb_memory_probe(bench->memory, base + 4095).kind, YB_MEMORY_CUDA);
    assert_int_equal(yb_memory_probe(bench->memory, base + 4095).index, last);
    assert_int_equal(yb_memory_probe(bench->memory, base + 4096).kind, YB_MEMORY_HOST);
    assert_int_equal(bench->current(&context), YB_CUDA_SUCCESS);
    assert_ptr_equal(context, before);
    yb_memory_free(bench->memory, place, (void **)&base, 4096);
}

static void
test_memory_type__the_cpu_cannot_touch_device_memory(void **state)
{
    struct bench *bench = *state;
    uint8_t *base = device_memory(bench, device0, 4096);

    assert_int_equal(yb_memory_check(base, 4096), YB_FAULT);
    yb_memory_free(bench->memory, device0, (void **)&base, 4096);
}

static void
test_memory_type__copies_of_different_streams_overtake_each_other(void **state)
{
    struct bench *bench = *state;
    struct outcome outcomes[3] = {{.times = 0}};
    uint8_t *base = device_memory(bench, device0, 3 * 4096);
    uint8_t bytes[3][4096];
    uint8_t back[3][4096];
    uint32_t turns = 0;

    scribble(bench, bytes[0], sizeof(bytes));
    move(bench, base, device0, bytes, host, sizeof(bytes));
    memset(back, 0, sizeof(back));
    bench->set("hold", 1);
    for (int i = 0; i < 3; i++) {
        outcomes[i].turns = &turns;
        assert_int_equal(start(bench, &outcomes[i], back[i], host, base + i * 4096, device0, 4096),
                         YB_OK);
    }
    assert_int_equal(yb_memory_poll(bench->queue), 0);
    bench->set("step_newest", 1);
    while (yb_memory_poll(bench->queue) == 0) {
    }
    assert_int_equal(outcomes[2].times, 1);
    assert_int_equal(outcomes[0].times + outcomes[1].times, 0);
    assert_memory_equal(back[2], bytes[2], 4096);
    bench->set("step_oldest", 1);
    while (yb_memory_poll(bench->queue) == 0) {
    }
    assert_int_equal(outcomes[0].times, 1);
    assert_int_equal(outcomes[1].times, 0);
    assert_memory_equal(back[0], bytes[0], 4096);
    assert_int_equal(yb_memory_pending(bench->queue), 1);
    bench->set("hold", 0);
    poll_all(bench);
    assert_int_equal(outcomes[1].turn, 2);
    assert_memory_equal(back, bytes, sizeof(bytes));
    yb_memory_free(bench->memory, device0, (void **)&base, 3 * 4096);
}

static void
test_memory_type__thousands_of_copies_end_once_each_with_their_bytes(void **state)
{
    enum { PIECE = 512, PIECES = 4096 };
    struct bench *bench = *state;
    struct outcome *outcomes = calloc(PIECES, sizeof(*outcomes));
    uint8_t *sent = malloc((size_t)PIECE * PIECES);
    uint8_t *got = calloc(PIECES, PIECE);
    uint8_t *base = device_memory(bench, device0, (uint64_t)PIECE * PIECES);
    uint32_t refused = 0;

    scribble(bench, sent, (uint64_t)PIECE * PIECES);
    move(bench, base, device0, sent, host, (uint64_t)PIECE * PIECES);
    for (uint32_t i = 0; i < PIECES;) {
        enum yb_status status = start(bench, &outcomes[i], got + (size_t)i * PIECE, host,
                                      base + (size_t)i * PIECE, device0, PIECE);

        if (status == YB_AGAIN) {
            assert_int_equal(yb_memory_pending(bench->queue), YB_MEMORY_COPIES_MAX);
            refused++;
            yb_memory_poll(bench->queue);
        } else {
            assert_int_equal(status, YB_OK);
            i++;
        }
    }
    poll_all(bench);
    assert_true(refused > 0);
    assert_memory_equal(got, sent, (size_t)PIECE * PIECES);
    for (uint32_t i = 0; i < PIECES; i++) {
        assert_int_equal(outcomes[i].times, 1);
        assert_int_equal(outcomes[i].status, YB_OK);
    }
    assert_true(bench->get("events") <= YB_MEMORY_COPIES_MAX);
    assert_int_equal(yb_memory_counts(bench->memory).failures, 0);
    yb_memory_free(bench->memory, device0, (void **)&base, (uint64_t)PIECE * PIECES);
    free(got);
    free(sent);
    free(outcomes);
}

static void
test_memory_type__staging_is_page_locked_by_one_call_for_all_queues(void **state)
{
    struct bench *bench = *state;
    uint64_t pageable = bench->get("pageable_copies");
    uint64_t locks = bench->get("page_locks");
    struct yb_memory_queue *second = NULL;
    struct yb_memory_queue *third = NULL;
    void *slices[2][8];
    uint8_t *base;
    char text[512];

    assert_int_equal(yb_memory_queue_create(bench->memory, &second), YB_OK);
    assert_int_equal(yb_memory_queue_create(bench->memory, &third), YB_AGAIN);
    assert_null(third);
    assert_int_equal(yb_memory_staging_bytes(second), SLICE);
    for (int i = 0; i < 8; i++) {
        slices[0][i] = yb_memory_staging_take(bench->queue);
        slices[1][i] = yb_memory_staging_take(second);
        assert_non_null(slices[1][i]);
        memset(slices[0][i], i, SLICE); /* Before any device was opened: ordinary memory. */
        memset(slices[1][i], 8 + i, SLICE);
    }
    assert_null(yb_memory_staging_take(bench->queue));
    assert_null(yb_memory_staging_take(second));
    base = device_memory(bench, device0, SLICE);
    for (int i = 0; i < 8; i++) {
        move(bench, base, device0, slices[0][i], host, SLICE);
        move(bench, slices[1][i], host, base, device0, SLICE);
        for (uint32_t j = 0; j < SLICE; j++) {
            assert_int_equal(((uint8_t *)slices[1][i])[j], i);
        }
    }
    assert_int_equal(bench->get("pageable_copies"), pageable);
    assert_int_equal(bench->get("page_locks"), locks + 1);
    assert_true(bench->get("page_locked_bytes") >= 2 * 8 * SLICE);
    assert_int_equal(yb_memory_counts(bench->memory).page_locks, 1);
    yb_memory_describe(bench->memory, text, sizeof(text));
    assert_non_null(strstr(text, "33554432 bytes of staging memory are page-locked"));
    for (int i = 0; i < 8; i++) {
        yb_memory_staging_give(bench->queue, slices[0][i]);
        yb_memory_staging_give(second, slices[1][7 - i]);
    }
    assert_non_null(yb_memory_staging_take(second) == slices[1][0] ? slices[1][0] : NULL);
    yb_memory_staging_give(second, slices[1][0]);
    yb_memory_queue_destroy(&second);
    assert_null(second);
    yb_memory_free(bench->memory, device0, (void **)&base, SLICE);
}

static void
test_memory_type__staging_that_cannot_be_locked_still_works_and_says_so(void **state)
{
    struct bench *bench = *state;
    uint64_t pageable = bench->get("pageable_copies");
    uint8_t *slice = yb_memory_staging_take(bench->queue);
    uint8_t *base;
    char text[512];

    bench->set("fail_page_lock", 1);
    base = device_memory(bench, device0, SLICE);
    memset(slice, 3, SLICE);
    move(bench, base, device0, slice, host, SLICE);
    memset(slice, 0, SLICE);
    move(bench, slice, host, base, device0, SLICE);
    assert_int_equal(slice[0] + slice[SLICE - 1], 6);
    bench->set("fail_page_lock", 0);
    assert_int_equal(yb_memory_counts(bench->memory).page_locks_failed, 1);
    assert_int_equal(yb_memory_counts(bench->memory).page_locks, 1);
    assert_int_equal(bench->get("pageable_copies"), pageable + 2);
    yb_memory_describe(bench->memory, text, sizeof(text));
    assert_non_null(strstr(text, "33554432 bytes"));
    assert_non_null(strstr(text, "ulimit -l"));
    yb_memory_staging_give(bench->queue, slice);
    yb_memory_free(bench->memory, device0, (void **)&base, SLICE);
}

static void
test_memory_type__failures_reach_their_copy_only_and_leave_it_quiet(void **state)
{
    struct bench *bench = *state;
    struct outcome outcomes[3] = {{.times = 0}};
    uint8_t *base = device_memory(bench, device0, 4096);
    uint8_t bytes[4096];
    uint8_t back[4096];

    scribble(bench, bytes, sizeof(bytes));
    bench->set("fail_start", 1);
    assert_int_equal(start(bench, &outcomes[0], base, device0, bytes, host, 4096), YB_IO);
    bench->set("fail_record", 1);
    bench->set("hold", 1);
    assert_int_equal(start(bench, &outcomes[0], base, device0, bytes, host, 4096), YB_IO);
    assert_int_equal(yb_memory_pending(bench->queue), 0);
    /* Its event was refused, but the copy had been started: it ended before start returned. */
    bytes[0]++;
    bench->set("hold", 0);
    move(bench, back, host, base, device0, 4096);
    bytes[0]--;
    assert_memory_equal(back, bytes, 4096);
    bench->set("fail_copy", 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(start(bench, &outcomes[i], back, host, base, device0, 4096), YB_OK);
    }
    poll_all(bench);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(outcomes[i].times, 1);
        assert_int_equal(outcomes[i].status, i == 1 ? YB_IO : YB_OK);
    }
    assert_int_equal(yb_memory_counts(bench->memory).failures, 3);
    move(bench, back, host, base, device0, 4096);
    assert_memory_equal(back, bytes, 4096);
    yb_memory_free(bench->memory, device0, (void **)&base, 4096);
}

static void
test_memory_type__what_is_no_copy_is_refused(void **state)
{
    struct bench *bench = *state;
    struct outcome outcome = {0};
    const struct yb_memory_place nowhere = {YB_MEMORY_CUDA, 63};
    const struct yb_memory_place nothing = {7, 0};
    uint8_t *base = device_memory(bench, device0, 4096);
    uint8_t bytes[4096] = {0};
    void *none = NULL;

    assert_int_equal(start(bench, &outcome, bytes, host, bytes + 8, host, 8), YB_INVALID);
    assert_int_equal(start(bench, &outcome, base, device0, bytes, host, 0), YB_INVALID);
    assert_int_equal(start(bench, &outcome, base, nowhere, bytes, host, 8), YB_UNSUPPORTED);
    assert_int_equal(start(bench, &outcome, bytes, nothing, base, device0, 8), YB_UNSUPPORTED);
    assert_int_equal(start(bench, &outcome, bytes, device0, bytes, host, 8), YB_FAULT);
    assert_int_equal(start(bench, &outcome, base + 4090, device0, bytes, host, 8), YB_FAULT);
    assert_int_equal(yb_memory_alloc(bench->memory, nowhere, 8, &none), YB_UNSUPPORTED);
    assert_int_equal(yb_memory_alloc(bench->memory, device0, 0, &none), YB_INVALID);
    assert_int_equal(outcome.times, 0);
    assert_string_equal(yb_memory_kind_name(YB_MEMORY_CUDA), "cuda");
    assert_string_equal(yb_memory_kind_name(7), "?");
    yb_memory_free(bench->memory, device0, (void **)&base, 4096);
}

static void
test_memory_type__destroy_waits_for_the_device(void **state)
{
    struct bench *bench = *state;
    struct outcome outcomes[16] = {{.times = 0}};
    uint8_t *base = device_memory(bench, device0, 4096);
    uint8_t back[16][256];
    uint8_t bytes[4096];

    scribble(bench, bytes, sizeof(bytes));
    move(bench, base, device0, bytes, host, 4096);
    bench->set("hold", 1);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(start(bench, &outcomes[i], back[i], host, base + i * 256, device0, 256),
                         YB_OK);
    }
    yb_memory_queue_destroy(&bench->queue);
    assert_null(bench->queue);
    assert_memory_equal(back, bytes, 4096);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(outcomes[i].times, 1);
        assert_int_equal(outcomes[i].status, YB_OK);
    }
    yb_memory_free(bench->memory, device0, (void **)&base, 4096);
}

/* A `done` that starts the same copy again, a given number of times. */
static void
on_done_again(struct yb_memory_copy *copy, enum yb_status status)
{
    struct outcome *outcome = copy->owner;
    struct yb_memory_queue *queue = (struct yb_memory_queue *)(void *)outcome->turns;

    assert_int_equal(status, YB_OK);
    outcome->times++;
    if (outcome->times < 100) {
        assert_int_equal(yb_memory_copy_start(queue, copy), YB_OK);
    }
}

static void
test_memory_type__done_may_start_the_next_copy(void **state)
{
    struct bench *bench = *state;
    struct outcome outcome = {.turns = (uint32_t *)(void *)bench->queue};
    uint8_t *base = device_memory(bench, device0, 64);
    uint8_t bytes[64] = {1};

    outcome.copy = (struct yb_memory_copy){.to = base,
                                           .from = bytes,
                                           .length = 64,
                                           .to_place = device0,
                                           .done = on_done_again,
                                           .owner = &outcome};
    assert_int_equal(yb_memory_copy_start(bench->queue, &outcome.copy), YB_OK);
    while (yb_memory_pending(bench->queue) > 0) {
        assert_true(yb_memory_poll(bench->queue) <= 1);
    }
    assert_int_equal(outcome.times, 100);
    yb_memory_free(bench->memory, device0, (void **)&base, 64);
}

struct opener {
    struct yb_memory *memory;
    enum yb_status status;
};

static void *
work_alone(void *owner)
{
    struct opener *opener = owner;
    struct bench bench = {.memory = opener->memory, .random = 5};
    uint8_t bytes[4096];
    uint8_t back[4096] = {0};
    uint8_t *base;

    opener->status = yb_memory_queue_create(bench.memory, &bench.queue);
    if (opener->status != YB_OK) {
        return NULL;
    }
    base = device_memory(&bench, device0, 4096);
    scribble(&bench, bytes, sizeof(bytes));
    for (int i = 0; i < 50; i++) {
        move(&bench, base, device0, bytes, host, 4096);
        move(&bench, back, host, base, device0, 4096);
        opener->status = memcmp(bytes, back, 4096) == 0 ? YB_OK : YB_CORRUPT;
    }
    yb_memory_free(bench.memory, device0, (void **)&base, 4096);
    yb_memory_queue_destroy(&bench.queue);
    return NULL;
}

static void
test_memory_type__workers_open_a_device_at_once(void **state)
{
    struct bench *bench = *state;
    struct opener openers[2] = {{bench->memory, YB_AGAIN}, {bench->memory, YB_AGAIN}};
    uint64_t locks = bench->get("page_locks");
    pthread_t threads[2];

    yb_memory_queue_destroy(&bench->queue);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &openers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(openers[i].status, YB_OK);
    }
    assert_int_equal(bench->get("contexts"), 1);
    assert_int_equal(bench->get("page_locks"), locks + 1);
}

/* ---- what a process has once --------------------------------------------------------------- */

/* Copy a staging slice of the queue into a device. */
static void
copy_staged(struct yb_memory_queue *queue, uint8_t *base, struct yb_memory_place place)
{
    struct outcome outcome = {0};
    uint8_t *slice = yb_memory_staging_take(queue);

    assert_non_null(slice);
    memset(slice, 7, SLICE);
    outcome.copy = (struct yb_memory_copy){
        .to = base, .from = slice, .length = SLICE, .to_place = place, .done = on_done};
    outcome.copy.owner = &outcome;
    assert_int_equal(yb_memory_copy_start(queue, &outcome.copy), YB_OK);
    while (outcome.times == 0) {
        yb_memory_poll(queue);
    }
    assert_int_equal(outcome.status, YB_OK);
    yb_memory_staging_give(queue, slice);
}

static void
test_memory_type__all_memories_of_a_process_share_one_page_lock(void **state)
{
    struct bench *bench = *state;
    uint64_t locks = bench->get("page_locks");
    uint64_t pageable = bench->get("pageable_copies");
    struct yb_memory *second = NULL;
    struct yb_memory_queue *queue = NULL;
    uint8_t *base = device_memory(bench, device0, SLICE);
    void *other = NULL;
    uint8_t *ours, *theirs;

    assert_int_equal(yb_memory_create(&staging, &second, NULL, 0), YB_OK);
    assert_int_equal(yb_memory_queue_create(second, &queue), YB_OK);
    ours = yb_memory_staging_take(bench->queue);
    theirs = yb_memory_staging_take(queue);
    assert_true(ours + SLICE <= theirs || theirs + SLICE <= ours);
    yb_memory_staging_give(bench->queue, ours);
    yb_memory_staging_give(queue, theirs);
    copy_staged(bench->queue, base, device0);
    copy_staged(queue, base, device0);
    assert_int_equal(bench->get("page_locks"), locks + 1);
    assert_int_equal(yb_memory_counts(second).page_locks, 1);
    assert_int_equal(yb_memory_counts(bench->memory).page_locks, 1);
    /* Who page-locked it goes; it stays page-locked for the other, on another device too. */
    yb_memory_free(bench->memory, device0, (void **)&base, SLICE);
    yb_memory_queue_destroy(&bench->queue);
    yb_memory_destroy(&bench->memory);
    bench->memory = second;
    bench->queue = queue;
    if (yb_memory_device_count(second) > 1) {
        assert_int_equal(yb_memory_alloc(second, device1, SLICE, &other), YB_OK);
        copy_staged(queue, other, device1);
        yb_memory_free(second, device1, &other, SLICE);
    }
    assert_int_equal(bench->get("pageable_copies"), pageable);
    assert_int_equal(bench->get("page_locks"), locks + 1);
}

static void
test_memory_type__who_does_not_fit_gets_a_block_of_its_own(void **state)
{
    const struct yb_memory_staging large = {.queues = 1, .slices = 40, .slice_bytes = 1u << 20};
    struct bench *bench = *state;
    uint64_t locks = bench->get("page_locks");
    struct yb_memory *memories[3] = {NULL};

    assert_int_equal(yb_memory_open(bench->memory, device0), YB_OK);
    for (int round = 0; round < 2; round++) { /* What was given back is used again. */
        for (int i = 0; i < 3; i++) {
            assert_int_equal(yb_memory_create(&large, &memories[i], NULL, 0), YB_OK);
            assert_int_equal(yb_memory_open(memories[i], device0), YB_OK);
        }
        for (int i = 0; i < 3; i++) {
            yb_memory_destroy(&memories[(i + 1) % 3]);
        }
    }
    assert_int_equal(bench->get("page_locks"), locks + 4);
    assert_int_equal(yb_memory_counts(bench->memory).page_locks, 4);
}

static void
test_memory_type__a_child_begins_with_memory_of_its_own(void **state)
{
    struct bench *bench = *state;
    pid_t child;
    int how = -1;

    assert_int_equal(yb_memory_open(bench->memory, device0), YB_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct yb_memory *memory = NULL;
        struct yb_memory_queue *queue = NULL;
        uint8_t *slice;

        alarm(30);
        if (yb_memory_create(&staging, &memory, NULL, 0) != YB_OK ||
            yb_memory_queue_create(memory, &queue) != YB_OK) {
            _exit(1);
        }
        slice = yb_memory_staging_take(queue);
        if (slice != NULL) {
            memset(slice, 1, SLICE); /* The parent's is not mapped here. */
        }
        _exit(slice != NULL ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

/* ---- with and without a driver ------------------------------------------------------------ */

/* What the loader finds, and what the sentence about it must hold. */
static const char *expected_words[2];

static void
test_memory_type__without_a_usable_driver_only_device_memory_is_missing(void **state)
{
    struct yb_memory *memory = NULL;
    struct yb_memory_queue *queue = NULL;
    struct outcome outcome = {0};
    char why[256];
    char text[256];
    void *base = NULL;

    (void)state;
    assert_int_equal(yb_memory_create(&staging, &memory, why, sizeof(why)), YB_OK);
    printf("%s\n", why);
    assert_non_null(strstr(why, expected_words[0]));
    assert_non_null(strstr(why, expected_words[1]));
    yb_memory_describe(memory, text, sizeof(text));
    assert_string_equal(text, why);
    assert_true(yb_memory_has(memory, YB_MEMORY_HOST));
    assert_false(yb_memory_has(memory, YB_MEMORY_CUDA));
    assert_int_equal(yb_memory_device_count(memory), 0);
    assert_int_equal(yb_memory_probe(memory, &outcome).kind, YB_MEMORY_HOST);
    assert_int_equal(yb_memory_open(memory, device0), YB_UNSUPPORTED);
    assert_int_equal(yb_memory_alloc(memory, device0, 1, &base), YB_UNSUPPORTED);
    assert_int_equal(yb_memory_queue_create(memory, &queue), YB_OK);
    assert_null(yb_memory_staging_take(queue));
    assert_int_equal(yb_memory_staging_bytes(queue), 0);
    outcome.copy = (struct yb_memory_copy){
        .to = why, .from = text, .length = 1, .to_place = device0, .done = on_done};
    assert_int_equal(yb_memory_copy_start(queue, &outcome.copy), YB_UNSUPPORTED);
    assert_int_equal(yb_memory_poll(queue), 0);
    yb_memory_queue_destroy(&queue);
    yb_memory_destroy(&memory);
}

static void
test_memory_type__host_memory_is_allocated_and_checked(void **state)
{
    const struct yb_memory_staging odd = {.queues = 1, .slices = 1, .slice_bytes = 5000};
    struct yb_memory *memory = NULL;
    uint8_t *base = NULL;
    uint8_t *same;

    (void)state;
    assert_int_equal(yb_memory_create(&odd, &memory, NULL, 0), YB_INVALID);
    assert_int_equal(yb_memory_create(&(struct yb_memory_staging){.queues = 1}, &memory, NULL, 0),
                     YB_OK);
    assert_int_equal(yb_memory_alloc(memory, host, 4 * 4096, (void **)&base), YB_OK);
    assert_int_equal(base[0] + base[4 * 4096 - 1], 0);
    same = base;
    assert_int_equal(yb_memory_check(base, 4 * 4096), YB_OK);
    assert_int_equal(yb_memory_check(base + 100, 5000), YB_OK);
    assert_int_equal(yb_memory_check(NULL, 0), YB_OK);
    assert_int_equal(yb_memory_check(NULL, 1), YB_FAULT);
    assert_int_equal(yb_memory_check(base, UINT64_MAX), YB_FAULT);
    assert_int_equal(mprotect(base + 3 * 4096, 4096, PROT_NONE), 0);
    assert_int_equal(yb_memory_check(base, 4 * 4096), YB_FAULT);
    assert_int_equal(yb_memory_check(base, 3 * 4096), YB_OK);
    assert_int_equal(munmap(base + 4096, 4096), 0);
    assert_int_equal(yb_memory_check(base, 3 * 4096), YB_FAULT); /* Both ends are readable. */
    yb_memory_free(memory, host, (void **)&base, 4 * 4096);
    assert_int_equal(yb_memory_check(same, 1), YB_FAULT);
    yb_memory_destroy(&memory);
}

#define WITH_DRIVER(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(int argc, char **argv)
{
    const char *driver = argc > 1 ? argv[1] : "none";
    const struct CMUnitTest with[] = {
        WITH_DRIVER(test_memory_type__bytes_survive_every_way_through_the_devices),
        WITH_DRIVER(test_memory_type__a_probe_tells_whose_memory_it_is_and_touches_no_context),
        WITH_DRIVER(test_memory_type__the_cpu_cannot_touch_device_memory),
        WITH_DRIVER(test_memory_type__copies_of_different_streams_overtake_each_other),
        WITH_DRIVER(test_memory_type__thousands_of_copies_end_once_each_with_their_bytes),
        WITH_DRIVER(test_memory_type__staging_is_page_locked_by_one_call_for_all_queues),
        WITH_DRIVER(test_memory_type__all_memories_of_a_process_share_one_page_lock),
        WITH_DRIVER(test_memory_type__who_does_not_fit_gets_a_block_of_its_own),
        WITH_DRIVER(test_memory_type__a_child_begins_with_memory_of_its_own),
        WITH_DRIVER(test_memory_type__staging_that_cannot_be_locked_still_works_and_says_so),
        WITH_DRIVER(test_memory_type__failures_reach_their_copy_only_and_leave_it_quiet),
        WITH_DRIVER(test_memory_type__what_is_no_copy_is_refused),
        WITH_DRIVER(test_memory_type__destroy_waits_for_the_device),
        WITH_DRIVER(test_memory_type__done_may_start_the_next_copy),
        WITH_DRIVER(test_memory_type__workers_open_a_device_at_once),
        cmocka_unit_test(test_memory_type__host_memory_is_allocated_and_checked),
    };
    const struct CMUnitTest without[] = {
        cmocka_unit_test(test_memory_type__without_a_usable_driver_only_device_memory_is_missing),
        cmocka_unit_test(test_memory_type__host_memory_is_allocated_and_checked),
    };

    if (strcmp(driver, "standin") == 0) {
        return cmocka_run_group_tests(with, NULL, NULL);
    }
    if (strcmp(driver, "none") == 0 && dlopen(YB_CUDA_LIBRARY, RTLD_NOW) != NULL) {
        return 77; /* This machine has a driver of its own. */
    }
    expected_words[0] = YB_CUDA_LIBRARY;
    expected_words[1] = "no CUDA driver";
    if (strcmp(driver, "old") == 0) {
        expected_words[0] = "too old";
        expected_words[1] = "cuMemHostUnregister";
    } else if (strcmp(driver, "failing") == 0) {
        expected_words[0] = "cuInit";
        expected_words[1] = "CUDA_ERROR_NO_DEVICE (100)";
    }
    return cmocka_run_group_tests(without, NULL, NULL);
}
