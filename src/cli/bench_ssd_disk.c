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

#include "base/clock.h"
#include "cli/bench_ssd.h"

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
    if (disk->fd < 0 || fallocate(disk->fd, 0, 0, (off_t)disk->bytes) != 0 ||
        fsync(disk->fd) != 0) {
        fprintf(stderr, "yuebing bench ssd: %s: %m\n", path);
        return false;
    }
    return true;
}

bool
yb_bench_disk_open(const char *directory, uint64_t bytes, struct yb_bench_disk *disk_out)
{
    void *memory;

    *disk_out = (struct yb_bench_disk){.fd = -1, .bytes = bytes, .memory_bytes = 64u << 20};
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

/* Wait for one completion. Returns its tag; *failed is set if it moved less than `size`. */
static uint64_t
wait_one(struct io_uring *ring, uint64_t size, bool *failed)
{
    struct io_uring_cqe *cqe = NULL;
    uint64_t tag;

    if (io_uring_submit_and_wait(ring, 1) < 0 || io_uring_peek_cqe(ring, &cqe) != 0) {
        *failed = true;
        return 0;
    }
    tag = cqe->user_data;
    if (cqe->res < 0 || (tag != SYNC_TAG && (uint64_t)cqe->res != size)) {
        *failed = true;
    }
    io_uring_cqe_seen(ring, cqe);
    return tag;
}

static void
push_sync(struct io_uring *ring, int fd)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    sqe->user_data = SYNC_TAG;
}

static void
push_write(struct io_uring *ring, const struct yb_bench_disk *disk, uint64_t size, uint64_t number)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    uint8_t *bytes = disk->memory + number * size % (disk->memory_bytes - size + 1) / 4096 * 4096;

    io_uring_prep_write_fixed(sqe, disk->fd, bytes, (unsigned)size, number * size, 0);
    sqe->user_data = number;
}

double
yb_bench_disk_write(struct yb_bench_disk *disk, uint64_t size, uint32_t depth, uint64_t sync_bytes)
{
    uint64_t count = disk->bytes / size;
    uint64_t begun_ns = yb_clock_now(yb_clock_system());
    uint64_t next = 0;
    uint64_t done = 0;
    uint64_t unsynced = 0;
    bool syncing = false;
    bool failed = false;
    struct io_uring ring;

    if (!ring_open(disk, &ring)) {
        return -1;
    }
    while (!failed && (done < count || syncing)) {
        while (next < count && next - done < depth) {
            push_write(&ring, disk, size, next++);
        }
        if (wait_one(&ring, size, &failed) == SYNC_TAG) {
            syncing = false;
        } else {
            done++;
            unsynced += size;
        }
        if (!syncing && sync_bytes > 0 && unsynced >= sync_bytes) {
            push_sync(&ring, disk->fd);
            syncing = true;
            unsynced = 0;
        }
    }
    if (!failed && sync_bytes > 0) {
        push_sync(&ring, disk->fd);
        (void)wait_one(&ring, size, &failed);
    }
    io_uring_queue_exit(&ring);
    return failed ? -1 : (double)(yb_clock_now(yb_clock_system()) - begun_ns) / 1e9;
}

double
yb_bench_disk_read(struct yb_bench_disk *disk, uint64_t size, uint32_t depth, uint64_t count,
                   bool in_order)
{
    uint64_t begun_ns = yb_clock_now(yb_clock_system());
    uint64_t places = disk->bytes / size;
    uint64_t random = 88172645463325252ull;
    uint64_t next = 0;
    uint64_t done = 0;
    bool failed = false;
    struct io_uring ring;

    if (!ring_open(disk, &ring)) {
        return -1;
    }
    while (!failed && done < count) {
        while (next < count && next - done < depth) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

            random = random * 6364136223846793005ull + 1442695040888963407ull;
            io_uring_prep_read_fixed(
                sqe, disk->fd,
                disk->memory + next * size % (disk->memory_bytes - size + 1) / 4096 * 4096,
                (unsigned)size, (in_order ? next % places : (random >> 20) % places) * size, 0);
            sqe->user_data = next++;
        }
        (void)wait_one(&ring, size, &failed);
        done++;
    }
    io_uring_queue_exit(&ring);
    return failed ? -1 : (double)(yb_clock_now(yb_clock_system()) - begun_ns) / 1e9;
}
