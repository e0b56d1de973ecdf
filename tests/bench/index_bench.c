/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes per key and keys per second of one shard of the directory's index (src/directory/index.h),
 * on one thread, without a wire. Times are of the processor.
 *
 *     ninja -C build tests/bench/index_bench && build/tests/bench/index_bench [KEYS...]
 *
 * The blocks lie on 16 slots in 2 tiers, one in ten with two replicas. "resident" is what the
 * process grew by, "index" what the index says of itself.
 */
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "directory/grant.h"
#include "directory/index.h"

enum { BATCH = 512, SLOTS = 16, SECONDS = 1 };

/* Time of the processor, not of the wall: other programs on a machine disturb less. */
static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t
resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long all = 0;
    unsigned long long resident = 0;

    if (file == NULL || fscanf(file, "%llu %llu", &all, &resident) != 2) {
        perror("/proc/self/statm");
        exit(1);
    }
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* splitmix64: a name for every number, so that no table of names disturbs the measurement. */
static uint64_t
mix(uint64_t number)
{
    number += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

static struct yb_id
name_of(uint64_t number)
{
    union {
        uint64_t words[2];
        struct yb_id id;
    } name = {.words = {mix(2 * number), mix(2 * number + 1)}};

    return name.id;
}

static void
check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "index_bench: %s\n", what);
        exit(1);
    }
}

/* Stands for the helper of a directory that has no time to wait for huge pages. */
struct helper {
    struct yb_index *index;
    sem_t work;
    atomic_bool stop;
};

static void *
grow_ahead(void *argument)
{
    struct helper *helper = argument;

    while (!atomic_load(&helper->stop)) {
        yb_index_grow_ahead(helper->index);
        sem_wait(&helper->work);
    }
    return NULL;
}

static void
publish(struct helper *helper, uint32_t keys, uint64_t *longest_ns_out, uint32_t *slow_out)
{
    static struct yb_index_op ops[BATCH];
    static struct yb_index_result results[BATCH];

    *longest_ns_out = 0;
    for (uint32_t done = 0; done < keys; done += BATCH) {
        uint32_t count = keys - done < BATCH ? keys - done : BATCH;
        uint64_t begun;
        uint64_t took;

        for (uint32_t i = 0; i < count; i++) {
            uint32_t key = done + i;

            ops[i] = (struct yb_index_op){
                .hash = name_of(key),
                .grant = yb_grant_make(1, (uint64_t)key + 1),
                .size = 65536,
                .kind = YB_INDEX_CREATE,
                .replica_count = key % 10 == 0 ? 2 : 1,
                .replicas = {{.slot = (uint16_t)(1 + key % SLOTS), .tier = 2},
                             {.slot = (uint16_t)(1 + (key + 1) % SLOTS), .tier = 3}},
            };
        }
        begun = now_ns();
        yb_index_apply(helper->index, ops, count, 0, results);
        took = now_ns() - begun;
        *longest_ns_out = took > *longest_ns_out ? took : *longest_ns_out;
        *slow_out += took > 1000000;
        if (yb_index_growth_due(helper->index)) {
            check(sem_post(&helper->work) == 0, "the helper cannot be woken");
        }
        for (uint32_t i = 0; i < count; i++) {
            check(results[i].status == YB_OK, "a publication failed");
        }
    }
}

/* Look up random keys from `first` on for a while, and return how many there were a second. */
static double
look_up(struct yb_index *index, uint64_t first, uint32_t keys, enum yb_index_presence expected)
{
    static struct yb_id hashes[BATCH];
    static struct yb_index_answer answers[BATCH];
    struct yb_index_query query = {.now_ms = 1};
    uint64_t asked = 0;
    uint64_t spent_ns = 0;
    uint64_t random = 1;

    while (spent_ns < (uint64_t)SECONDS * 1000000000u) {
        uint64_t begun;

        for (uint32_t i = 0; i < BATCH; i++) {
            random = mix(random);
            hashes[i] = name_of(first + random % keys);
        }
        begun = now_ns();
        yb_index_lookup(index, &query, hashes, BATCH, answers);
        spent_ns += now_ns() - begun;
        asked += BATCH;
        for (uint32_t i = 0; i < BATCH; i++) {
            check(answers[i].presence == expected, "a lookup was answered wrongly");
        }
    }
    return (double)asked * 1e9 / (double)spent_ns;
}

/* Sweep to the end, and return how long that took and its longest step. */
static uint64_t
sweep(struct yb_index *index, uint64_t *longest_ns_out, uint64_t *freed_out)
{
    struct yb_index_swept swept = {0};
    uint64_t total = 0;

    *longest_ns_out = 0;
    *freed_out = 0;
    while (!swept.done) {
        uint64_t begun = now_ns();
        uint64_t took;

        yb_index_sweep(index, 1, YB_INDEX_SWEEP_STEP, NULL, 0, &swept);
        took = now_ns() - begun;
        total += took;
        *freed_out += swept.records_freed;
        *longest_ns_out = took > *longest_ns_out ? took : *longest_ns_out;
    }
    return total;
}

static void
show_sweep(struct yb_index *index, const char *what)
{
    uint64_t longest_ns;
    uint64_t freed;
    uint64_t total_ns = sweep(index, &longest_ns, &freed);

    printf("  sweep, %-22s %8.1f ms in all, longest step %6.0f us, freed %" PRIu64 "\n", what,
           (double)total_ns / 1e6, (double)longest_ns / 1e3, freed);
}

static void
measure(uint32_t keys)
{
    struct yb_index_options options = {
        .records_max = keys,
        .slots_max = 1024,
        .tenants_max = 1024,
        .seed = 42,
    };
    struct yb_index_counts counts;
    struct yb_index *index = NULL;
    uint64_t resident = resident_bytes();
    struct helper helper = {0};
    uint64_t longest_ns;
    uint32_t slow = 0;
    pthread_t thread;
    uint64_t begun;
    double seconds;

    check(yb_index_create(&options, &index) == YB_OK, "no memory");
    for (uint16_t slot = 1; slot <= SLOTS; slot++) {
        check(yb_index_slot_open(index, slot) == YB_OK, "a slot did not open");
    }
    helper.index = index;
    check(sem_init(&helper.work, 0, 0) == 0, "no semaphore");
    check(pthread_create(&thread, NULL, grow_ahead, &helper) == 0, "no thread");
    begun = now_ns();
    publish(&helper, keys, &longest_ns, &slow);
    seconds = (double)(now_ns() - begun) / 1e9;
    atomic_store(&helper.stop, true);
    check(sem_post(&helper.work) == 0, "the helper cannot be woken");
    check(pthread_join(thread, NULL) == 0, "no end");
    yb_index_counts(index, &counts);
    printf("%u keys, %u buckets and %u further\n", keys, counts.buckets, counts.buckets_further);
    printf("  bytes per key          %6.2f index, %6.2f resident\n",
           (double)yb_index_bytes(index) / keys,
           ((double)resident_bytes() - (double)resident) / keys);
    printf("  publish                %6.2f M/s, longest batch of %d: %.0f us, above 1 ms: %u\n",
           keys / seconds / 1e6, BATCH, (double)longest_ns / 1e3, slow);
    printf("  lookup, present        %6.2f M/s\n", look_up(index, 0, keys, YB_INDEX_PRESENT) / 1e6);
    printf("  lookup, absent         %6.2f M/s\n",
           look_up(index, keys, keys, YB_INDEX_ABSENT) / 1e6);
    yb_index_sweep_request(index);
    show_sweep(index, "nothing to do");
    check(yb_index_slot_set(index, 1, YB_INDEX_SLOT_DEAD) == YB_OK, "a slot did not die");
    show_sweep(index, "1 slot of 16 is dead");
    check(yb_index_flush(index, 0, 1) == YB_OK, "a flush failed");
    show_sweep(index, "everything is flushed");
    yb_index_destroy(&index);
}

int
main(int argc, char **argv)
{
    if (argc < 2) {
        measure(1000000);
        measure(10000000);
    }
    for (int i = 1; i < argc; i++) {
        measure((uint32_t)strtoul(argv[i], NULL, 10));
    }
    return 0;
}
