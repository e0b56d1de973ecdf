/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading objects of 1 MiB out of the page cache costs at the least when they are summed
 * (RULES E4): a thread for each of two cores opens and reads 64 files, and sums while it is warm.
 *
 *     cc -O2 -D_GNU_SOURCE -o file_sum bench/limits/file_sum.c -lisal -lpthread && ./file_sum
 */
#include <fcntl.h>
#include <isa-l.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define FILES   64
#define BYTES   (1u << 20)
#define TURNS   200 /* Of all files, in one run. */
#define THREADS 2
struct job {
    pthread_t thread;
    unsigned first;
    unsigned step; /* Summed after so many; 0: not at all. */
    unsigned sum;
};

static unsigned char memory[FILES][BYTES];

static double
now_s(void)
{
    struct timespec t = {0};
    return clock_gettime(CLOCK_MONOTONIC, &t) + (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *
name_of(unsigned number, char name_out[32])
{
    snprintf(name_out, 32, "file_sum.%u", number);
    return name_out;
}

static void *
work(void *context)
{
    struct job *job = context;

    for (unsigned i = 0; i < TURNS * FILES / THREADS; i++) {
        unsigned number = (job->first + i * THREADS) % FILES;
        unsigned step = job->step == 0 ? BYTES : job->step;
        char name[32];
        int fd = open(name_of(number, name), O_RDONLY);

        for (unsigned at = 0; at < BYTES; at += step) {
            if (pread(fd, memory[number] + at, step, at) == (ssize_t)step && job->step != 0) {
                job->sum ^= crc32_iscsi(memory[number] + at, (int)step, 0);
            }
        }
        close(fd);
    }
    return NULL;
}

static double
run(unsigned step)
{
    struct job jobs[THREADS] = {{.first = 0, .step = step}, {.first = 1, .step = step}};
    double begun = now_s();

    for (unsigned i = 0; i < THREADS; i++) {
        pthread_create(&jobs[i].thread, NULL, work, &jobs[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(jobs[i].thread, NULL);
    }
    return (double)TURNS * FILES * BYTES / (now_s() - begun) / 1e9;
}

int
main(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        char name[32];
        FILE *file = fopen(name_of(i, name), "w");

        if (file == NULL || fwrite(memory[i], BYTES, 1, file) != 1 || fclose(file) != 0) {
            return 1;
        }
    }
    for (unsigned i = 0; i < 5; i++) {
        double bare = run(0), warm = run(128u << 10);

        printf("read %.2f GB/s; summed %.2f, %.3f of it\n", bare, warm, warm / bare);
    }
    for (unsigned i = 0; i < FILES; i++) {
        char name[32];

        unlink(name_of(i, name));
    }
    return 0;
}
