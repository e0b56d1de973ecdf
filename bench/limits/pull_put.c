/* SPDX-License-Identifier: Apache-2.0
 *
 * pull_put.c -- what a put on this host costs at the least when the node pulls (RULES A4): values
 * lie in ordinary memory of another process, and go to shared memory that is larger than the
 * caches and there already. Copied by process_vm_readv(), by calls of several sizes, and beside it
 * memcpy() between the same two kinds of pages inside one process.
 *
 *     cc -O2 -D_GNU_SOURCE -o pull_put bench/limits/pull_put.c && ./pull_put
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VALUES_BYTES (128ull << 20)
#define POOL_BYTES   (1ull << 30)
#define RUN_S        0.3
#define ROUNDS       5

static double
now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* GB/s of filling the pool with values, `piece` bytes a time; `pid` 0: by memcpy(). */
static double
run(pid_t pid, uint8_t *pool, uint8_t *values, size_t piece)
{
    uint64_t moved = 0;
    double began_s = now_s();
    double took_s;

    do {
        uint8_t *to = pool + moved % POOL_BYTES;
        uint8_t *from = values + moved % VALUES_BYTES;

        if (pid == 0) {
            memcpy(to, from, piece);
        } else {
            struct iovec local = {to, piece};
            struct iovec remote = {from, piece};

            if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)piece) {
                perror("process_vm_readv");
                exit(1);
            }
        }
        moved += piece;
        took_s = now_s() - began_s;
    } while (took_s < RUN_S);
    return (double)moved / took_s / 1e9;
}

int
main(void)
{
    int fd = memfd_create("pool", 0);
    uint8_t *values =
        mmap(NULL, VALUES_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int ready[2];
    uint8_t *pool;
    char byte;
    pid_t pid;

    if (pipe(ready) != 0 || fd < 0 || values == MAP_FAILED || ftruncate(fd, POOL_BYTES) != 0) {
        return 1;
    }
    pool = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    memset(values, 1, VALUES_BYTES);
    memset(pool, 1, POOL_BYTES);
    pid = fork(); /* Another process, which has the values at the same place. */
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(values, 2, VALUES_BYTES); /* Pages of its own. */
        (void)!write(ready[1], "", 1);
        pause();
    }
    (void)!read(ready[0], &byte, 1);
    for (int round = 0; round < ROUNDS; round++) {
        double copy = run(0, pool, values, 1 << 20);
        double pull = run(pid, pool, values, 1 << 20);

        printf("memcpy %.2f GB/s; process_vm_readv %.2f (%.2f of it), by 64 KiB %.2f\n", copy, pull,
               pull / copy, run(pid, pool, values, 64 << 10));
    }
    kill(pid, SIGKILL);
    return 0;
}
