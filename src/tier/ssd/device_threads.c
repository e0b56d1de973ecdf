/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads for where io_uring is forbidden: each operation is one blocking call.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "tier/ssd/device.h"

#define DEVICE_MAGIC 0x73736474u
#define THREADS      16u

struct threads_device {
    struct yb_ssd_device base; /* First. */
    uint32_t magic;
    int fd; /* Owned. */
    struct yb_loop *loop;
    struct yb_helper_pool *pool;
};

static struct threads_device *
threads_of(struct yb_ssd_device *base)
{
    struct threads_device *device = (struct threads_device *)base;

    YB_ASSERT_OBJ(device, DEVICE_MAGIC);
    return device;
}

static struct yb_ssd_io *
io_of(struct yb_helper_job *job)
{
    return (struct yb_ssd_io *)((uint8_t *)job - offsetof(struct yb_ssd_io, job));
}

static int64_t
carry_out(int fd, const struct yb_ssd_io *io)
{
    int64_t result = -1;

    do {
        switch (io->kind) {
        case YB_SSD_IO_READ:
            result = pread(fd, io->bytes, (size_t)io->length, (off_t)io->offset);
            break;
        case YB_SSD_IO_WRITE:
            result = pwrite(fd, io->bytes, (size_t)io->length, (off_t)io->offset);
            break;
        case YB_SSD_IO_SYNC: result = fdatasync(fd); break;
        case YB_SSD_IO_RESERVE:
            result = fallocate(fd, 0, (off_t)io->offset, (off_t)io->length);
            break;
        }
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : result;
}

static void
work(struct yb_helper_job *job)
{
    struct yb_ssd_io *io = io_of(job);

    io->result = carry_out(threads_of(io->device)->fd, io);
}

static void
finished(struct yb_helper_job *job)
{
    struct yb_ssd_io *io = io_of(job);

    io->done(io, io->result);
}

static void
threads_submit(struct yb_ssd_device *base, struct yb_ssd_io *io)
{
    struct threads_device *device = threads_of(base);

    io->device = base;
    io->job = (struct yb_helper_job){.work = work, .done = finished};
    /* The queue has room for all that may be under way (YB_SSD_IO_MAX). */
    YB_ASSERT(yb_helper_submit(device->pool, device->loop, &io->job) == YB_OK);
}

static uint64_t
threads_size(struct yb_ssd_device *base)
{
    struct stat stat_now = {0};

    return fstat(threads_of(base)->fd, &stat_now) == 0 ? (uint64_t)stat_now.st_size : 0;
}

static void
threads_close(struct yb_ssd_device *base)
{
    struct threads_device *device = threads_of(base);

    yb_helper_pool_destroy(&device->pool);
    (void)close(device->fd);
    device->magic = 0;
    free(device);
}

static const struct yb_ssd_device_ops threads_ops = {
    .name = "threads",
    .submit = threads_submit,
    .size = threads_size,
    .close = threads_close,
};

enum yb_status
yb_ssd_device_threads(struct yb_loop *loop, int fd, struct yb_ssd_device **device_out)
{
    struct threads_device *device = calloc(1, sizeof *device);
    enum yb_status status;

    if (device == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_helper_pool_create(THREADS, YB_SSD_IO_MAX, &device->pool);
    if (status != YB_OK) {
        free(device);
        return status;
    }
    device->base.ops = &threads_ops;
    device->magic = DEVICE_MAGIC;
    device->fd = fd;
    device->loop = loop;
    *device_out = &device->base;
    return YB_OK;
}
