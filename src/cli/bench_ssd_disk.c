/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare disk of `yuebing bench ssd`.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/bench_ssd.h"
#include "cli/measure.h"

#define SYNC_TAG UINT64_MAX

bool
yb_bench_disk_renew(struct yb_bench_disk *disk, const char *directory)
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/bare", directory);
    if (disk->fd >= 0) {
        (void)close(disk->fd);
        (void)unlink(path);
    }
    disk->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
    if (disk->fd < 0 || fallocate(disk->fd, 0, 0, (off_t)disk->room) != 0 || fsync(disk->fd) != 0) {
        fprintf(stderr, "yuebing bench ssd: %s: %m\n", path);
        return false;
    }
    return true;
}

bool
yb_bench_disk_open(const char *directory, uint64_t bytes, uint64_t room,
                   struct yb_bench_disk *disk_out)
{
    void *memory;

    *disk_out =
        (struct yb_bench_disk){.fd = -1, .bytes = bytes, .room = room, .memory_bytes = 64u << 20};
    if (!yb_bench_disk_renew(disk_out, directory)) {
        return false;
    }
    memory = mmap(NULL, disk_out->memory_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "yuebing bench ssd: no memory\n");
        return false;
    }
    disk_out->memory = memory;
    for (size_t i = 0; i < disk_out->memory_bytes; i += sizeof i) {
        memcpy(disk_out->memory + i, &i, sizeof i);
    }
    return true;
}

void
yb_bench_disk_close(struct yb_bench_disk *disk, const char *directory)
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/bare", directory);
    (void)close(disk->fd);
    (void)unlink(path);
    if (disk->memory != NULL) {
        (void)munmap(disk->memory, disk->memory_bytes);
    }
}

static double
seconds_since(uint64_t begun_ns)
{
    return (double)(yb_measure_now_ns() - begun_ns) / 1e9;
}

static bool
ring_open(const struct yb_bench_disk *disk, struct io_uring *ring)
{
    struct iovec iov = {.iov_base = disk->memory, .iov_len = disk->memory_bytes};

    if (io_uring_queue_init(128, ring, 0) != 0) {
        fprintf(stderr, "yuebing bench ssd: no io_uring here to compare with\n");
        return false;
    }
    if (io_uring_register_buffers(ring, &iov, 1) != 0) {
        fprintf(stderr, "yuebing bench ssd: memory cannot be registered; see ulimit -l\n");
        io_uring_queue_exit(ring);
        return false;
    }
    return true;
}

struct run {
    struct io_uring ring;
    const struct yb_bench_disk *disk;
    uint64_t size;
    uint64_t begun; /* Transfers, ... */
    uint64_t ended; /* ... and those that are over. */
    bool failed;
};

static bool
run_begin(struct run *run, const struct yb_bench_disk *disk, uint64_t size, uint32_t depth)
{
    YB_ASSERT(depth <= YB_BENCH_DISK_DEPTH_MAX && depth * size <= disk->memory_bytes);
    *run = (struct run){.disk = disk, .size = size};
    return ring_open(disk, &run->ring);
}

/* Where the next transfer comes from or goes to: one place after the other. */
static uint8_t *
next_place(struct run *run)
{
    return run->disk->memory + run->begun++ * run->size % run->disk->memory_bytes;
}

static void
push_write(struct run *run, uint64_t offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&run->ring);

    io_uring_prep_write_fixed(sqe, run->disk->fd, next_place(run), (unsigned)run->size, offset, 0);
    sqe->user_data = 0;
}

static void
push_read(struct run *run, uint64_t offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&run->ring);

    io_uring_prep_read_fixed(sqe, run->disk->fd, next_place(run), (unsigned)run->size, offset, 0);
    sqe->user_data = 0;
}

static void
push_sync(struct run *run)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&run->ring);

    io_uring_prep_fsync(sqe, run->disk->fd, IORING_FSYNC_DATASYNC);
    sqe->user_data = SYNC_TAG;
}

/* Take one completion; if there is none, submit what was pushed and wait. False: the sync's. */
static bool
take_one(struct run *run)
{
    struct io_uring_cqe *cqe = NULL;
    bool sync;

    if (io_uring_peek_cqe(&run->ring, &cqe) != 0 &&
        (io_uring_submit_and_wait(&run->ring, 1) < 0 || io_uring_peek_cqe(&run->ring, &cqe) != 0)) {
        run->failed = true;
        return false;
    }
    sync = cqe->user_data == SYNC_TAG;
    run->failed = run->failed || cqe->res < 0 || (!sync && (uint64_t)cqe->res != run->size);
    run->ended += !sync;
    io_uring_cqe_seen(&run->ring, cqe);
    return !sync;
}

double
yb_bench_disk_write(const struct yb_bench_disk *disk, uint64_t bytes, uint64_t size, uint32_t depth,
                    uint64_t sync_bytes)
{
    uint64_t begun_ns = yb_measure_now_ns();
    uint64_t covered = 0; /* Bytes that the last sync is about, ... */
    uint64_t there = 0;   /* ... and those that are there to stay. */
    bool syncing = false;
    double seconds;
    struct run run;

    if (!run_begin(&run, disk, size, depth)) {
        return -1;
    }
    while (!run.failed && there < bytes) {
        while (run.begun - run.ended < depth) {
            push_write(&run, run.begun * size % disk->room);
        }
        if (!take_one(&run)) {
            there = covered;
            syncing = false;
        }
        if (sync_bytes == 0) {
            there = run.ended * size;
        } else if (!syncing && run.ended * size - covered >= sync_bytes) {
            push_sync(&run);
            syncing = true;
            covered = run.ended * size;
        }
    }
    seconds = seconds_since(begun_ns) * (double)bytes / (double)there;
    while (!run.failed && (run.begun > run.ended || syncing)) {
        syncing = take_one(&run) && syncing;
    }
    io_uring_queue_exit(&run.ring);
    return run.failed ? -1 : seconds;
}

double
yb_bench_disk_read(const struct yb_bench_disk *disk, uint64_t size, uint32_t depth, uint64_t count,
                   bool in_order)
{
    uint64_t begun_ns = yb_measure_now_ns();
    uint64_t random = begun_ns;
    uint64_t places = disk->bytes / size;
    struct run run;

    if (!run_begin(&run, disk, size, depth)) {
        return -1;
    }
    while (!run.failed && run.ended < count) {
        while (run.begun < count && run.begun - run.ended < depth) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            push_read(&run, (in_order ? run.begun % places : (random >> 20) % places) * size);
        }
        (void)take_one(&run);
    }
    io_uring_queue_exit(&run.ring);
    return run.failed ? -1 : seconds_since(begun_ns);
}
