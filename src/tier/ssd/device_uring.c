/* SPDX-License-Identifier: Apache-2.0
 *
 * io_uring, all on the loop's thread: operations go into the ring, those of a turn with one system
 * call; the kernel writes the loop's own eventfd when one is finished, and after each wait the loop
 * looks into the ring. A thread that waited for completions would cost two wake-ups for each.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "tier/ssd/device.h"

#define DEVICE_MAGIC 0x73736475u

struct uring_device {
    struct yb_ssd_device base; /* First. */
    uint32_t magic;
    int fd; /* Owned. */
    struct yb_loop *loop;
    struct io_uring ring;
    struct yb_task push;
    struct yb_loop_source source;
    uint8_t *lent; /* Registered memory; NULL: none. */
    size_t lent_bytes;
};

static struct uring_device *
uring_of(struct yb_ssd_device *base)
{
    struct uring_device *device = (struct uring_device *)base;

    YB_ASSERT_OBJ(device, DEVICE_MAGIC);
    return device;
}

/* ---- completions ------------------------------------------------------------------------ */

/* At most what was pushed before: what `done` submits is pushed in another turn. */
static uint32_t
look(struct yb_loop_source *source)
{
    struct uring_device *device =
        (struct uring_device *)((uint8_t *)source - offsetof(struct uring_device, source));
    struct io_uring_cqe *cqe;
    uint32_t count = 0;

    while (io_uring_peek_cqe(&device->ring, &cqe) == 0) {
        struct yb_ssd_io *io = io_uring_cqe_get_data(cqe);
        int result = cqe->res;

        io_uring_cqe_seen(&device->ring, cqe);
        io->done(io, result);
        count++;
    }
    return count;
}

/* ---- submissions ------------------------------------------------------------------------ */

static void
push(struct yb_task *task)
{
    struct uring_device *device =
        (struct uring_device *)((uint8_t *)task - offsetof(struct uring_device, push));
    int pushed = io_uring_submit(&device->ring);

    /* For want of memory the kernel takes some later: the rest stays in the ring. */
    if (pushed < 0 || io_uring_sq_ready(&device->ring) > 0) {
        YB_ASSERT(pushed >= 0 || pushed == -EAGAIN || pushed == -EBUSY || pushed == -EINTR ||
                  pushed == -ENOMEM);
        yb_loop_defer(device->loop, &device->push);
    }
}

static bool
is_lent(const struct uring_device *device, const struct yb_ssd_io *io)
{
    return device->lent != NULL && io->bytes >= device->lent &&
           io->bytes + io->length <= device->lent + device->lent_bytes;
}

static void
prepare(const struct uring_device *device, struct io_uring_sqe *sqe, const struct yb_ssd_io *io)
{
    unsigned length = (unsigned)io->length;

    switch (io->kind) {
    case YB_SSD_IO_READ:
        if (is_lent(device, io)) {
            io_uring_prep_read_fixed(sqe, device->fd, io->bytes, length, io->offset, 0);
        } else {
            io_uring_prep_read(sqe, device->fd, io->bytes, length, io->offset);
        }
        break;
    case YB_SSD_IO_WRITE:
        if (is_lent(device, io)) {
            io_uring_prep_write_fixed(sqe, device->fd, io->bytes, length, io->offset, 0);
        } else {
            io_uring_prep_write(sqe, device->fd, io->bytes, length, io->offset);
        }
        break;
    case YB_SSD_IO_SYNC: io_uring_prep_fsync(sqe, device->fd, IORING_FSYNC_DATASYNC); break;
    case YB_SSD_IO_RESERVE:
        io_uring_prep_fallocate(sqe, device->fd, 0, (off_t)io->offset, (off_t)io->length);
        break;
    }
}

static struct io_uring_sqe *
next_sqe(struct uring_device *device)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&device->ring);

    YB_ASSERT(sqe != NULL); /* There is room for all that may be under way (YB_SSD_IO_MAX). */
    return sqe;
}

static void
uring_submit(struct yb_ssd_device *base, struct yb_ssd_io *io)
{
    struct uring_device *device = uring_of(base);
    struct io_uring_sqe *sqe = next_sqe(device);

    io->device = base;
    prepare(device, sqe, io);
    io_uring_sqe_set_data(sqe, io);
    yb_loop_defer(device->loop, &device->push);
}

static uint64_t
uring_size(struct yb_ssd_device *base)
{
    struct stat stat_now = {0};

    return fstat(uring_of(base)->fd, &stat_now) == 0 ? (uint64_t)stat_now.st_size : 0;
}

/* Without room for locked memory the transfers go on unregistered. */
static void
uring_lend(struct yb_ssd_device *base, void *memory, size_t bytes)
{
    struct uring_device *device = uring_of(base);
    struct iovec iov = {.iov_base = memory, .iov_len = bytes};

    YB_ASSERT(device->lent == NULL);
    if (io_uring_register_buffers(&device->ring, &iov, 1) == 0) {
        device->lent = memory;
        device->lent_bytes = bytes;
    }
}

static void
uring_close(struct yb_ssd_device *base)
{
    struct uring_device *device = uring_of(base);

    yb_loop_undefer(device->loop, &device->push);
    yb_loop_unwatch(device->loop, &device->source);
    io_uring_queue_exit(&device->ring);
    (void)close(device->fd);
    device->magic = 0;
    free(device);
}

static const struct yb_ssd_device_ops uring_ops = {
    .name = "io_uring",
    .submit = uring_submit,
    .size = uring_size,
    .lend = uring_lend,
    .close = uring_close,
};

/* A completion need not interrupt the thread while it computes: it looks soon enough. An older
 * kernel does not know how. */
static int
init_ring(struct io_uring *ring)
{
    unsigned flags = IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN;
    int error = io_uring_queue_init(2 * YB_SSD_IO_MAX, ring, flags);

    return error == -EINVAL ? io_uring_queue_init(2 * YB_SSD_IO_MAX, ring, IORING_SETUP_CLAMP)
                            : error;
}

enum yb_status
yb_ssd_device_uring(struct yb_loop *loop, int fd, struct yb_ssd_device **device_out)
{
    struct uring_device *device = calloc(1, sizeof *device);
    int wake_fd;

    if (device == NULL) {
        return YB_NO_MEMORY;
    }
    device->base.ops = &uring_ops;
    device->magic = DEVICE_MAGIC;
    device->fd = fd;
    device->loop = loop;
    device->push.run = push;
    device->source.look = look;
    if (init_ring(&device->ring) != 0) {
        goto err_free;
    }
    wake_fd = yb_loop_watch(loop, &device->source);
    if (wake_fd < 0) {
        goto err_exit;
    }
    if (io_uring_register_eventfd(&device->ring, wake_fd) != 0) {
        goto err_unwatch;
    }
    *device_out = &device->base;
    return YB_OK;

err_unwatch:
    yb_loop_unwatch(loop, &device->source);
err_exit:
    io_uring_queue_exit(&device->ring);
err_free:
    free(device);
    return YB_UNSUPPORTED;
}
