/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: C1 of base/copy.h; C2 as far as a machine shows it.
 * Method: the whole destination, with what lies around the range, against one that was made byte
 * by byte: at every pair of alignments within a line and lengths around every border, and at
 * random; and with pieces from anywhere in a large range. A second thread looks at the bytes when
 * it sees a word that was stored after them.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/copy.h"

#define LINE        64u
#define ROOM        (3u * LINE) /* Around the range. */
#define LENGTH_MAX  20000u
#define BYTES       (LENGTH_MAX + 2 * ROOM)
#define ROUNDS      200u
#define SHARED_SIZE (64u * 1024u)

static void
fill(uint64_t *seed, uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(unit_random(seed) >> 32);
    }
}

/* Copy a range that begins where it is told, and look at everything. */
static void
compare(const uint8_t *source, const uint8_t *before, size_t from, size_t to, size_t length)
{
    static _Alignas(64) uint8_t got[BYTES];
    static _Alignas(64) uint8_t want[BYTES];

    memcpy(got, before, BYTES);
    memcpy(want, before, BYTES);
    for (size_t i = 0; i < length; i++) {
        want[to + i] = source[from + i];
    }
    yb_copy_stream(got + to, source + from, length);
    if (memcmp(got, want, BYTES) != 0) {
        fail_msg("wrong bytes: from %zu, to %zu, length %zu", from, to, length);
    }
}

static void
test_copy__any_alignment_and_length_is_like_a_copy_byte_by_byte(void **state)
{
    static const size_t lengths[] = {0,    1,    63,   64,   65,   2047, 2048, 2049,
                                     2111, 2112, 2113, 4095, 4096, 4097, 4159, 8200};
    static _Alignas(64) uint8_t source[BYTES];
    static uint8_t before[BYTES];
    uint64_t seed = unit_seed("copy");

    (void)state;
    fill(&seed, source, sizeof(source));
    fill(&seed, before, sizeof(before));
    for (size_t from = 0; from < LINE; from++) {
        for (size_t to = 0; to < LINE; to++) {
            size_t which = (from + to) % (sizeof(lengths) / sizeof(lengths[0]));

            compare(source, before, ROOM + from, ROOM + to, lengths[which]);
        }
    }
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t to = 0; to < LINE; to++) {
            compare(source, before, ROOM, ROOM + to, lengths[i]);
        }
    }
    for (uint32_t i = 0; i < 2000; i++) {
        size_t from = ROOM + unit_random(&seed) % LINE;
        size_t to = ROOM + unit_random(&seed) % LINE;

        compare(source, before, from, to, unit_random(&seed) % LENGTH_MAX);
    }
    yb_copy_stream(NULL, NULL, 0);
}

#define PIECES     300u
#define PLACES     (1u << 20)
#define PIECE_LAST (PLACES - 1)

/* Cut the destination at random, leave gaps, and bring pieces to it from anywhere. */
static uint32_t
draw_pieces(uint64_t *seed, uint8_t *to, const uint8_t *from, size_t length_max,
            struct yb_copy_piece *pieces)
{
    size_t at = unit_random(seed) % LINE;
    uint32_t count = 0;

    while (count < PIECES) {
        size_t length = unit_random(seed) % (length_max + 1);

        if (at + length > PIECE_LAST) {
            break;
        }
        pieces[count++] = (struct yb_copy_piece){
            .to = to + at,
            .from = from + unit_random(seed) % (PLACES - length),
            .length = length,
        };
        at += length + unit_random(seed) % 3 * (unit_random(seed) % LINE);
    }
    return count;
}

static void
test_copy__pieces_from_anywhere_are_like_copies_byte_by_byte(void **state)
{
    static const size_t lengths_max[] = {40, 300, 1500, 5000, 40000, 200000, PLACES};
    static _Alignas(64) uint8_t source[PLACES];
    static _Alignas(64) uint8_t got[PLACES];
    static _Alignas(64) uint8_t want[PLACES];
    struct yb_copy_piece pieces[PIECES];
    uint64_t seed = unit_seed("copy pieces");

    (void)state;
    fill(&seed, source, sizeof(source));
    for (uint32_t round = 0; round < 140; round++) {
        size_t length_max = lengths_max[round % (sizeof(lengths_max) / sizeof(lengths_max[0]))];
        uint32_t count;

        memset(got, (int)round, sizeof(got));
        memset(want, (int)round, sizeof(want));
        count = draw_pieces(&seed, got, source, length_max, pieces);
        for (uint32_t i = 0; i < count; i++) {
            size_t at = (size_t)((uint8_t *)pieces[i].to - got);

            memcpy(want + at, pieces[i].from, pieces[i].length);
        }
        yb_copy_stream_pieces(pieces, count);
        if (memcmp(got, want, sizeof(got)) != 0) {
            fail_msg("round %u: %u pieces up to %zu", round, count, length_max);
        }
    }
    yb_copy_stream_pieces(NULL, 0);
}

struct handed {
    uint8_t bytes[SHARED_SIZE];
    _Atomic(uint32_t) told; /* The value of all bytes. */
    _Atomic(uint32_t) seen;
};

static void *
hand_over(void *context)
{
    static uint8_t source[SHARED_SIZE];
    struct handed *handed = context;

    for (uint32_t round = 1; round <= ROUNDS; round++) {
        memset(source, (int)round, sizeof(source));
        yb_copy_stream(handed->bytes, source, sizeof(source));
        atomic_store_explicit(&handed->told, round, memory_order_release);
        while (atomic_load_explicit(&handed->seen, memory_order_acquire) != round) {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void
test_copy__who_sees_a_later_store_sees_the_bytes(void **state)
{
    static struct handed handed;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, hand_over, &handed), 0);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        while (atomic_load_explicit(&handed.told, memory_order_acquire) != round) {
            (void)sched_yield();
        }
        for (size_t i = SHARED_SIZE; i > 0; i--) { /* The last one first. */
            if (handed.bytes[i - 1] != (uint8_t)round) {
                fail_msg("round %u: byte %zu came late", round, i - 1);
            }
        }
        atomic_store_explicit(&handed.seen, round, memory_order_release);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy__any_alignment_and_length_is_like_a_copy_byte_by_byte),
        cmocka_unit_test(test_copy__pieces_from_anywhere_are_like_copies_byte_by_byte),
        cmocka_unit_test(test_copy__who_sees_a_later_store_sees_the_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
