/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants R1-R3 of base/span.h, the slowest spans, and the W3C
 * trace context.
 * Method: spans whose every member follows from one number, so that a mixture
 * of two shows; a random walk in which record i holds number i; the source is
 * included, so that a writer can be stopped half way and a reader interrupted
 * between any two of its loads.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

/* Every load in the module passes here, so that writers can come in between any two. */
static void before_load(void);

#undef atomic_load_explicit
#define atomic_load_explicit(object, order) (before_load(), (void)(order), *(object))

#include "base/span.c"

/* A record in which every word follows from `number`. */
static struct yb_span
span_of(uint64_t number)
{
    struct yb_span span = {
        .span = number + 1,
        .parent = number * 3,
        .start_ns = number * 5,
        .end_ns = number * 7,
        .began_ns = number * 6,
        .wall_ns = number * 11,
        .bytes = number * 13,
        .number = number * 17,
        .outcome = -(int32_t)(number % 37),
        .kind = (uint8_t)(number % 9),
        .path = (uint8_t)(number % 5),
        .tier = (uint8_t)(number % 4),
        .work_class = (uint8_t)(number % 3),
    };

    memcpy(span.trace.bytes, &span.span, sizeof(span.span));
    memcpy(span.trace.bytes + 8, &span.bytes, sizeof(span.bytes));
    memcpy(span.peer.bytes, &span.parent, sizeof(span.parent));
    memcpy(span.peer.bytes + 8, &span.wall_ns, sizeof(span.wall_ns));
    return span;
}

static bool
span_is(const struct yb_span *span, uint64_t number)
{
    struct yb_span want = span_of(number);

    return memcmp(span, &want, sizeof(want)) == 0;
}

static struct yb_span_ring *
ring_with(uint32_t capacity)
{
    struct yb_span_ring *ring = NULL;

    assert_int_equal(yb_span_ring_create(capacity, &ring), YB_OK);
    return ring;
}

static void
write_numbers(struct yb_span_ring *ring, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        struct yb_span span = span_of(i);

        yb_span_write(ring, &span);
    }
}

static void
test_span__a_capacity_that_is_no_power_of_two_is_refused(void **state)
{
    static const uint32_t bad[] = {0, 1, 3, 100, YB_SPAN_CAPACITY_MAX * 2};
    struct yb_span_ring *ring = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(yb_span_ring_create(bad[i], &ring), YB_INVALID);
        assert_null(ring);
    }
    yb_span_write(NULL, NULL);
}

static void
test_span__a_snapshot_shows_the_newest_and_changes_nothing(void **state)
{
    struct yb_span_ring *ring = ring_with(8);
    struct yb_span spans[8];

    (void)state;
    assert_int_equal(yb_span_snapshot(ring, spans, 8), 0);
    write_numbers(ring, 0, 3);
    assert_int_equal(yb_span_snapshot(ring, spans, 8), 3);
    assert_true(span_is(&spans[0], 0) && span_is(&spans[2], 2));
    write_numbers(ring, 3, 21);
    assert_int_equal(yb_span_snapshot(ring, spans, 8), 8);
    assert_true(span_is(&spans[0], 13) && span_is(&spans[7], 20));
    assert_int_equal(yb_span_snapshot(ring, spans, 2), 2);
    assert_true(span_is(&spans[0], 19) && span_is(&spans[1], 20));
    assert_int_equal(yb_span_drain(ring, spans, 8), 8);
    yb_span_ring_destroy(&ring);
    assert_null(ring);
}

static void
test_span__whoever_follows_sees_each_record_once_and_takes_none_away(void **state)
{
    struct yb_span_ring *ring = ring_with(8);
    struct yb_span spans[8];
    uint64_t from_the_first = 0;
    uint64_t from_now = UINT64_MAX;

    (void)state;
    write_numbers(ring, 0, 3);
    assert_int_equal(yb_span_follow(ring, &from_now, spans, 8), 0);
    assert_int_equal(yb_span_follow(ring, &from_the_first, spans, 2), 2);
    assert_true(span_is(&spans[0], 0) && span_is(&spans[1], 1));
    write_numbers(ring, 3, 12);
    assert_int_equal(yb_span_follow(ring, &from_now, spans, 1), 1);
    assert_true(span_is(&spans[0], 4)); /* 3 was overwritten. */
    assert_int_equal(yb_span_follow(ring, &from_the_first, spans, 8), 8);
    assert_true(span_is(&spans[0], 4) && span_is(&spans[7], 11));
    assert_int_equal(yb_span_follow(ring, &from_the_first, spans, 8), 0);
    assert_int_equal(yb_span_drain(ring, spans, 8), 8);
    yb_span_ring_destroy(&ring);
}

static void
test_span__an_unfinished_record_holds_up_who_follows_for_half_a_ring(void **state)
{
    struct yb_span_ring *ring = ring_with(8);
    struct yb_span spans[8];
    uint64_t cursor = 0;

    (void)state;
    atomic_fetch_add(&ring->next, 1); /* A writer took ticket 0 and was stopped. */
    write_numbers(ring, 1, 4);
    assert_int_equal(yb_span_follow(ring, &cursor, spans, 8), 0);
    write_numbers(ring, 4, 5);
    assert_int_equal(yb_span_follow(ring, &cursor, spans, 8), 4);
    assert_true(span_is(&spans[0], 1) && span_is(&spans[3], 4));
    yb_span_ring_destroy(&ring);
}

static void
test_span__a_drain_takes_each_record_once_and_counts_the_overwritten(void **state)
{
    struct yb_span_ring *ring = ring_with(4);
    struct yb_span spans[4];
    struct yb_span_counts counts;

    (void)state;
    write_numbers(ring, 0, 3);
    assert_int_equal(yb_span_drain(ring, spans, 2), 2);
    assert_true(span_is(&spans[0], 0) && span_is(&spans[1], 1));
    write_numbers(ring, 3, 9); /* 2, 3 and 4 are gone; 5 .. 8 remain. */
    yb_span_counts(ring, &counts);
    assert_true(counts.written == 9 && counts.drained == 2 && counts.lost == 3);
    assert_int_equal(yb_span_drain(ring, spans, 4), 4);
    assert_true(span_is(&spans[0], 5) && span_is(&spans[3], 8));
    assert_int_equal(yb_span_drain(ring, spans, 4), 0);
    yb_span_counts(ring, &counts);
    assert_true(counts.written == 9 && counts.drained == 6 && counts.lost == 3);
    assert_true(counts.collided == 0);
    yb_span_ring_destroy(&ring);
}

static void
test_span__an_unfinished_record_stops_a_drain_once(void **state)
{
    struct yb_span_ring *ring = ring_with(8);
    struct yb_span spans[8];
    struct yb_span_counts counts;

    (void)state;
    write_numbers(ring, 0, 1);
    atomic_fetch_add(&ring->next, 1); /* A writer took ticket 1 and was stopped. */
    write_numbers(ring, 2, 4);
    assert_int_equal(yb_span_snapshot(ring, spans, 8), 3);
    assert_int_equal(yb_span_drain(ring, spans, 8), 1);
    assert_int_equal(yb_span_drain(ring, spans, 8), 2);
    assert_true(span_is(&spans[0], 2) && span_is(&spans[1], 3));
    yb_span_counts(ring, &counts);
    assert_true(counts.written == 4 && counts.drained == 3 && counts.lost == 1);
    yb_span_ring_destroy(&ring);
}

static void
test_span__a_record_finished_between_two_drains_is_not_lost(void **state)
{
    struct yb_span_ring *ring = ring_with(8);
    struct yb_span spans[8];

    (void)state;
    atomic_fetch_add(&ring->next, 1);
    assert_int_equal(yb_span_drain(ring, spans, 8), 0);
    atomic_store(&ring->next, 0);
    write_numbers(ring, 0, 1);
    assert_int_equal(yb_span_drain(ring, spans, 8), 1);
    assert_true(span_is(&spans[0], 0));
    yb_span_ring_destroy(&ring);
}

static void
test_span__a_slot_that_is_being_written_is_left_to_its_writer(void **state)
{
    struct yb_span_ring *ring = ring_with(2);
    struct yb_span spans[2];
    struct yb_span_counts counts;

    (void)state;
    atomic_fetch_add(&ring->next, 1);
    atomic_store(&ring->slots[0].seq, 1); /* Ticket 0 stopped between its two stores. */
    write_numbers(ring, 1, 4);            /* 2 meets it. */
    assert_true(atomic_load(&ring->slots[0].seq) == 1);
    yb_span_counts(ring, &counts);
    assert_true(counts.collided == 1);
    assert_int_equal(yb_span_snapshot(ring, spans, 2), 1);
    assert_true(span_is(&spans[0], 3));
    yb_span_ring_destroy(&ring);
}

static void
test_span__a_writer_that_was_overtaken_does_not_overwrite_a_newer_record(void **state)
{
    struct yb_span_ring *ring = ring_with(2);
    struct yb_span spans[2];

    (void)state;
    write_numbers(ring, 0, 4);
    atomic_store(&ring->next, 1); /* Ticket 1 arrives after ticket 3. */
    write_numbers(ring, 99, 100);
    atomic_store(&ring->next, 4);
    assert_int_equal(yb_span_snapshot(ring, spans, 2), 2);
    assert_true(span_is(&spans[0], 2) && span_is(&spans[1], 3));
    yb_span_ring_destroy(&ring);
}

static void
check_whole(const struct yb_span *spans, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_true(span_is(&spans[i], spans[i].span - 1)); /* R1 */
    }
}

/* When `loads_left` loads have been made, `intruder` gets as many records as it holds. */
static _Thread_local struct yb_span_ring *intruder;
static _Thread_local uint32_t loads_left;

static void
before_load(void)
{
    struct yb_span_ring *ring = intruder;

    if (ring != NULL && loads_left-- == 0) {
        intruder = NULL;
        write_numbers(ring, 1000, 1000 + ring->capacity);
    }
}

static void
test_span__writers_between_any_two_loads_of_a_reader_do_not_tear_a_record(void **state)
{
    struct yb_span spans[4];

    (void)state;
    for (uint32_t loads = 0; loads < 4 * (SPAN_WORDS + 2) + 4; loads++) {
        for (uint32_t drain = 0; drain < 2; drain++) {
            struct yb_span_ring *ring = ring_with(4);
            uint32_t count;

            write_numbers(ring, 0, 4);
            intruder = ring;
            loads_left = loads;
            count = drain != 0 ? yb_span_drain(ring, spans, 4) : yb_span_snapshot(ring, spans, 4);
            intruder = NULL;
            check_whole(spans, count); /* R1 */
            yb_span_ring_destroy(&ring);
        }
    }
}

/* The model: record i holds number i, so what is drained can be named. */
static void
test_span__random_walk_agrees_with_the_model(void **state)
{
    enum { CAPACITY = 16, STEPS = 20000 };
    struct yb_span_ring *ring = ring_with(CAPACITY);
    struct yb_span spans[CAPACITY];
    struct yb_span_counts counts;
    uint64_t rng = unit_seed("span");
    uint64_t written = 0;
    uint64_t taken = 0;
    uint64_t drained = 0;

    (void)state;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t amount = (uint32_t)(unit_random(&rng) % (CAPACITY + 4));
        uint64_t oldest;
        uint32_t want;
        uint32_t got;

        write_numbers(ring, written, written + amount);
        written += amount;
        oldest = written > CAPACITY ? written - CAPACITY : 0;
        taken = taken < oldest ? oldest : taken;
        amount = (uint32_t)(unit_random(&rng) % (CAPACITY + 1));
        want = written - taken < amount ? (uint32_t)(written - taken) : amount;
        got = yb_span_drain(ring, spans, amount);
        assert_int_equal(got, want);
        for (uint32_t i = 0; i < got; i++) {
            assert_true(span_is(&spans[i], taken + i));
        }
        taken += got;
        drained += got;
        yb_span_counts(ring, &counts);
        assert_true(counts.written == written && counts.drained == drained);
        assert_true(counts.written == counts.drained + counts.lost + (written - taken)); /* R2 */
    }
    yb_span_ring_destroy(&ring);
}

/* ---- threads ---- */

enum { WRITERS = 4, WRITES = 30000, SMALL = 16 };

struct writer {
    struct yb_span_ring *ring;
    _Atomic uint32_t *done;
    uint64_t first;
};

static void *
write_some(void *argument)
{
    const struct writer *writer = argument;

    for (uint64_t i = 0; i < WRITES; i++) {
        struct yb_span span = span_of(writer->first + i);

        yb_span_write(writer->ring, &span);
    }
    atomic_fetch_add(writer->done, 1);
    return NULL;
}

static void
test_span__readers_beside_writers_see_whole_records(void **state)
{
    struct yb_span_ring *ring = ring_with(SMALL);
    _Atomic uint32_t done = 0;
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    struct yb_span spans[SMALL];
    struct yb_span_counts counts;

    (void)state;
    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.ring = ring, .done = &done, .first = i * 1000000ull};
        assert_int_equal(pthread_create(&threads[i], NULL, write_some, &writers[i]), 0);
    }
    while (atomic_load(&done) < WRITERS) {
        check_whole(spans, yb_span_snapshot(ring, spans, SMALL));
        check_whole(spans, yb_span_drain(ring, spans, SMALL));
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    /* Each drain gives up at most one collided record for good. */
    for (uint32_t i = 0; i < 2 * SMALL + 2; i++) {
        check_whole(spans, yb_span_drain(ring, spans, SMALL));
    }
    yb_span_counts(ring, &counts);
    assert_true(counts.written == (uint64_t)WRITERS * WRITES);
    assert_true(counts.drained + counts.lost == counts.written); /* R2 */
    yb_span_ring_destroy(&ring);
}

static void
test_span__the_slowest_come_slowest_first(void **state)
{
    static const uint64_t took[] = {5, 9, 1, 9, 0, 7, 3};
    enum { COUNT = sizeof(took) / sizeof(took[0]) };
    struct yb_span spans[COUNT] = {{.span = 0}};
    struct yb_span slowest[COUNT + 1];

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        spans[i] = (struct yb_span){.span = i, .start_ns = 100 * i, .end_ns = 100 * i + took[i]};
    }
    assert_int_equal(yb_span_slowest(spans, COUNT, slowest, 0), 0);
    assert_int_equal(yb_span_slowest(spans, COUNT, slowest, 3), 3);
    assert_true(slowest[0].span == 1 && slowest[1].span == 3 && slowest[2].span == 5);
    assert_int_equal(yb_span_slowest(spans, COUNT, slowest, COUNT + 1), COUNT);
    assert_true(slowest[3].span == 0 && slowest[6].span == 4);
}

/* ---- trace context ---- */

#define GOOD "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static void
test_span__a_traceparent_round_trips(void **state)
{
    struct yb_trace_context context;
    char text[YB_TRACEPARENT_LENGTH + 1];
    char id[33];

    (void)state;
    assert_int_equal(yb_traceparent_parse(GOOD, strlen(GOOD), &context), YB_OK);
    yb_id_format(context.trace, id);
    assert_string_equal(id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_true(context.parent == 0x00f067aa0ba902b7ull && context.sampled);
    yb_traceparent_format(&context, text);
    assert_string_equal(text, GOOD);
    context.sampled = false;
    yb_traceparent_format(&context, text);
    assert_string_equal(text + 52, "-00");
}

static void
test_span__a_traceparent_outside_the_recommendation_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
        " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01-what",
    };
    struct yb_trace_context context = {.parent = 7};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(yb_traceparent_parse(bad[i], strlen(bad[i]), &context), YB_INVALID);
        assert_true(context.parent == 7);
    }
}

static void
test_span__a_later_version_of_traceparent_is_read_as_far_as_it_is_known(void **state)
{
    static const char *const later[] = {
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-what-the-future-holds",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
    };
    char text[YB_TRACEPARENT_LENGTH + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        struct yb_trace_context context = {.parent = 0};

        assert_int_equal(yb_traceparent_parse(later[i], strlen(later[i]), &context), YB_OK);
        yb_traceparent_format(&context, text);
        assert_string_equal(text, GOOD);
    }
}

static void
fill_zeros(void *context, void *bytes_out, size_t length)
{
    uint32_t *calls = context;

    (*calls)++;
    memset(bytes_out, 0, length);
}

static void
fill_seeded(void *context, void *bytes_out, size_t length)
{
    uint8_t *bytes = bytes_out;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(unit_random(context) >> 56);
    }
}

static void
test_span__a_new_id_is_never_zero(void **state)
{
    uint32_t calls = 0;
    uint64_t rng = unit_seed("span ids");
    struct yb_id first = yb_trace_new_id(fill_seeded, &rng);

    (void)state;
    assert_false(yb_id_is_none(yb_trace_new_id(fill_zeros, &calls)));
    assert_true(yb_span_new_id(fill_zeros, &calls) != 0);
    assert_true(calls > 0 && calls < 100);
    assert_false(yb_id_equal(first, yb_trace_new_id(fill_seeded, &rng)));
    assert_true(yb_span_new_id(fill_seeded, &rng) != yb_span_new_id(fill_seeded, &rng));
}

static void
test_span__words_name_every_row_and_nothing_else(void **state)
{
    (void)state;
    assert_string_equal(yb_span_kind_name(YB_SPAN_KIND_HANDSHAKE), "handshake");
    assert_string_equal(yb_span_path_name(YB_SPAN_PATH_RDMA), "rdma");
    assert_string_equal(yb_span_tier_name(YB_SPAN_TIER_SSD), "ssd");
    assert_string_equal(yb_span_kind_name(200), "unknown");
    assert_string_equal(yb_span_path_name(200), "unknown");
    assert_string_equal(yb_span_tier_name(200), "unknown");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_span__a_capacity_that_is_no_power_of_two_is_refused),
        cmocka_unit_test(test_span__a_snapshot_shows_the_newest_and_changes_nothing),
        cmocka_unit_test(test_span__whoever_follows_sees_each_record_once_and_takes_none_away),
        cmocka_unit_test(test_span__an_unfinished_record_holds_up_who_follows_for_half_a_ring),
        cmocka_unit_test(test_span__a_drain_takes_each_record_once_and_counts_the_overwritten),
        cmocka_unit_test(test_span__an_unfinished_record_stops_a_drain_once),
        cmocka_unit_test(test_span__a_record_finished_between_two_drains_is_not_lost),
        cmocka_unit_test(test_span__a_slot_that_is_being_written_is_left_to_its_writer),
        cmocka_unit_test(test_span__a_writer_that_was_overtaken_does_not_overwrite_a_newer_record),
        cmocka_unit_test(test_span__writers_between_any_two_loads_of_a_reader_do_not_tear_a_record),
        cmocka_unit_test(test_span__random_walk_agrees_with_the_model),
        cmocka_unit_test(test_span__readers_beside_writers_see_whole_records),
        cmocka_unit_test(test_span__the_slowest_come_slowest_first),
        cmocka_unit_test(test_span__a_traceparent_round_trips),
        cmocka_unit_test(test_span__a_traceparent_outside_the_recommendation_is_refused),
        cmocka_unit_test(test_span__a_later_version_of_traceparent_is_read_as_far_as_it_is_known),
        cmocka_unit_test(test_span__a_new_id_is_never_zero),
        cmocka_unit_test(test_span__words_name_every_row_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
