/* SPDX-License-Identifier: Apache-2.0
 *
 * What collecting a scattered object costs at the least, beside copying it in one piece.
 *
 * An object of 2 MiB is copied from one shared memory to another: in one piece past the caches, as
 * the engine does with large copies; and from pieces of 32, 16 and 4 KiB that lie twice their size
 * apart, with memcpy() and past the caches, whichever is faster. There is no engine, no message and
 * no other process. The ratio of the second to the first is the most that a row can reach.
 *
 *     cc -O2 -o scatter_copy bench/limits/scatter_copy.c && ./scatter_copy
 */
#define _GNU_SOURCE
#include <emmintrin.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES  (256ul << 20)
#define OBJECT (2ul << 20)
#define TOTAL  (4096ul << 20)

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
stream(char *to, const char *from, unsigned long bytes)
{
    for (unsigned long at = 0; at < bytes; at += 64) {
        for (unsigned k = 0; k < 64; k += 16) {
            _mm_stream_si128((__m128i *)(to + at + k),
                             _mm_loadu_si128((const __m128i *)(from + at + k)));
        }
    }
}

/* Copy TOTAL bytes in objects made of pieces, whose starts lie `apart`. */
static double
run(char *to, const char *from, unsigned long piece, unsigned long apart, int streams)
{
    double begin = now();

    for (unsigned long done = 0; done < TOTAL; done += OBJECT) {
        char *object = to + done % BYTES;
        const char *source = from + done % (BYTES - 2 * OBJECT) / OBJECT * OBJECT;

        for (unsigned long at = 0; at < OBJECT; at += piece) {
            if (streams) {
                stream(object + at, source + at / piece * apart, piece);
            } else {
                memcpy(object + at, source + at / piece * apart, piece);
            }
        }
        _mm_sfence();
    }
    return (double)TOTAL / (now() - begin) / 1e9;
}

int
main(void)
{
    const unsigned long pieces[] = {32 << 10, 16 << 10, 4 << 10};
    char *to = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *from = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (to == MAP_FAILED || from == MAP_FAILED) {
        return 1;
    }
    memset(to, 1, BYTES);
    memset(from, 2, BYTES);
    for (int round = 0; round < 3; round++) {
        double whole = run(to, from, OBJECT, OBJECT, 1);

        printf("in one piece %.2f GB/s", whole);
        for (int i = 0; i < 3; i++) {
            double plain = run(to, from, pieces[i], 2 * pieces[i], 0);
            double past = run(to, from, pieces[i], 2 * pieces[i], 1);

            printf("; %lu KiB: %.2f (memcpy %.2f, past the caches %.2f)", pieces[i] >> 10,
                   (plain > past ? plain : past) / whole, plain, past);
        }
        printf("\n");
    }
    return 0;
}
