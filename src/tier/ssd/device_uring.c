/* SPDX-License-Identifier: Apache-2.0
 *
 * io_uring. The loop's thread puts operations into the ring, all of a turn with one system call; a
 * thread of the device's own waits for completions and mails them to the loop. The two ends of a
 * ring are independent: nothing is shared but what the kernel orders.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpus.h"
#include "tier/ssd/device.h"

#define DEVICE_MAGIC 0x73736475u

struct uring_device {
    struct yb_ssd_device base; /* First. */
    uint32_t magic;
    int fd; /* Owned. */
    struct yb_loop *loop;
    struct io_uring ring; /* Submissions: the loop's thread; completions: the reaper. */
    struct yb_task push;
    atomic_uint handed; /* Counts submissions: the order that the kernel keeps, made visible. */
    pthread_t reaper;
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

/* ---- completions: the reaper's thread -------------------------------------------------- */

static void
deliver(struct yb_mail *mail)
{
    struct yb_ssd_io *io = (struct yb_ssd_io *)((uint8_t *)mail - offsetof(struct yb_ssd_io, job) -
                                                offsetof(struct yb_helper_job, mail));

    io->done(io, io->result);
}

static void *
reap(void *arg)
{
    struct uring_device *device = arg;
    bool last = false;

    yb_cpus_as_process();
    while (!last) {
        struct io_uring_cqe *cqe = NULL;
        struct yb_ssd_io *io;
        int error = io_uring_wait_cqe(&device->ring, &cqe);

        if (error != 0) {
            YB_ASSERT(error == -EINTR || error == -EAGAIN);
            continue;
        }
        (void)atomic_load_explicit(&device->handed, memory_order_acquire);
        io = io_uring_cqe_get_data(cqe);
        last = io == NULL;
        if (!last) {
            io->result = cqe->res;
        }
        io_uring_cqe_seen(&device->ring, cqe);
        if (!last) {
            yb_mailbox_post_reply(yb_loop_mailbox(device->loop), &io->job.mail);
        }
    }
    return NULL;
}

/* ---- submissions: the loop's thread ---------------------------------------------------- */

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
    yb_mail_init(&io->job.mail, deliver);
    prepare(device, sqe, io);
    io_uring_sqe_set_data(sqe, io);
    (void)atomic_fetch_add_explicit(&device->handed, 1, memory_order_release);
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
    struct io_uring_sqe *sqe = next_sqe(device);

    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    while (io_uring_submit(&device->ring) < 0) {
    }
    YB_ASSERT(pthread_join(device->reaper, NULL) == 0);
    yb_loop_undefer(device->loop, &device->push);
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

enum yb_status
yb_ssd_device_uring(struct yb_loop *loop, int fd, struct yb_ssd_device **device_out)
{
    struct uring_device *device = calloc(1, sizeof *device);
    enum yb_status status = YB_NO_MEMORY;

    if (device == NULL) {
        goto err;
    }
    device->base.ops = &uring_ops;
    device->magic = DEVICE_MAGIC;
    device->fd = fd;
    device->loop = loop;
    device->push.run = push;
    if (io_uring_queue_init(2 * YB_SSD_IO_MAX, &device->ring, IORING_SETUP_CLAMP) != 0) {
        status = YB_UNSUPPORTED;
        goto err_free;
    }
    if (pthread_create(&device->reaper, NULL, reap, device) != 0) {
        goto err_exit;
    }
    *device_out = &device->base;
    return YB_OK;

err_exit:
    io_uring_queue_exit(&device->ring);
err_free:
    free(device);
err:
    return status;
}
