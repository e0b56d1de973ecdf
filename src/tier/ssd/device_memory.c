/* SPDX-License-Identifier: Apache-2.0
 *
 * A medium in memory. Its operations happen when they are done, one after the other, on the loop's
 * clock: for tests and the simulation, in virtual time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tier/ssd/device.h"

#define MEMORY_MAGIC 0x7373646du
#define DEVICE_MAGIC 0x7373646eu

struct yb_ssd_memory {
    uint32_t magic;
    bool open;
    uint8_t *bytes; /* Pages that were never written take no memory. */
    uint64_t bytes_max;
    uint64_t size;
};

struct memory_device {
    struct yb_ssd_device base; /* First. */
    uint32_t magic;
    struct yb_ssd_memory *memory;
    struct yb_loop *loop;
    uint64_t latency_ns;
    uint64_t bytes_per_s;
    uint64_t free_ns; /* When what was submitted before is through. */
    struct yb_ssd_io *head;
    struct yb_ssd_io **tail;
    struct yb_timer timer;
    struct yb_task task;
};

enum yb_status
yb_ssd_memory_create(uint64_t bytes_max, struct yb_ssd_memory **memory_out)
{
    struct yb_ssd_memory *memory = calloc(1, sizeof *memory);

    if (memory == NULL) {
        return YB_NO_MEMORY;
    }
    memory->bytes = mmap(NULL, (size_t)bytes_max, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory->bytes == MAP_FAILED) {
        free(memory);
        return YB_NO_MEMORY;
    }
    memory->magic = MEMORY_MAGIC;
    memory->bytes_max = bytes_max;
    *memory_out = memory;
    return YB_OK;
}

void
yb_ssd_memory_destroy(struct yb_ssd_memory **memory_ref)
{
    struct yb_ssd_memory *memory = *memory_ref;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    YB_ASSERT(!memory->open);
    *memory_ref = NULL;
    YB_ASSERT(munmap(memory->bytes, (size_t)memory->bytes_max) == 0);
    memory->magic = 0;
    free(memory);
}

uint8_t *
yb_ssd_memory_bytes(struct yb_ssd_memory *memory)
{
    return memory->bytes;
}

uint64_t
yb_ssd_memory_size(const struct yb_ssd_memory *memory)
{
    return memory->size;
}

void
yb_ssd_memory_resize(struct yb_ssd_memory *memory, uint64_t size)
{
    YB_ASSERT(size <= memory->bytes_max);
    memory->size = size;
}

static struct memory_device *
memory_of(struct yb_ssd_device *base)
{
    struct memory_device *device = (struct memory_device *)base;

    YB_ASSERT_OBJ(device, DEVICE_MAGIC);
    return device;
}

static int64_t
carry_out(struct yb_ssd_memory *memory, const struct yb_ssd_io *io)
{
    uint64_t end = io->offset + io->length;

    switch (io->kind) {
    case YB_SSD_IO_READ:
        if (io->offset >= memory->size) {
            return 0;
        }
        end = end < memory->size ? end : memory->size;
        memcpy(io->bytes, memory->bytes + io->offset, (size_t)(end - io->offset));
        return (int64_t)(end - io->offset);
    case YB_SSD_IO_WRITE:
    case YB_SSD_IO_RESERVE:
        if (end > memory->bytes_max) {
            return -ENOSPC;
        }
        memory->size = memory->size > end ? memory->size : end;
        if (io->kind == YB_SSD_IO_WRITE) {
            memcpy(memory->bytes + io->offset, io->bytes, (size_t)io->length);
        }
        return io->kind == YB_SSD_IO_WRITE ? (int64_t)io->length : 0;
    case YB_SSD_IO_SYNC: break;
    }
    return 0;
}

static void
arm(struct memory_device *device)
{
    if (device->head == NULL) {
        return;
    }
    if (device->head->due_ns <= yb_loop_now(device->loop)) {
        yb_loop_defer(device->loop, &device->task);
    } else {
        yb_loop_arm(device->loop, &device->timer, device->head->due_ns);
    }
}

/* Do what is due. What its completions submit waits for the next turn. */
static void
run(struct memory_device *device)
{
    uint64_t now_ns = yb_loop_now(device->loop);
    struct yb_ssd_io *io = device->head;
    struct yb_ssd_io **last = device->tail;

    while (io != NULL && io->due_ns <= now_ns) {
        bool end = &io->next == last;
        int64_t result = carry_out(device->memory, io);

        device->head = io->next;
        if (device->head == NULL) {
            device->tail = &device->head;
        }
        io->done(io, result);
        io = end ? NULL : device->head;
    }
    arm(device);
}

static void
run_task(struct yb_task *task)
{
    run((struct memory_device *)((uint8_t *)task - offsetof(struct memory_device, task)));
}

static void
run_timer(struct yb_timer *timer)
{
    run((struct memory_device *)((uint8_t *)timer - offsetof(struct memory_device, timer)));
}

static void
memory_submit(struct yb_ssd_device *base, struct yb_ssd_io *io)
{
    struct memory_device *device = memory_of(base);
    uint64_t now_ns = yb_loop_now(device->loop);
    uint64_t moved = io->kind == YB_SSD_IO_SYNC || io->kind == YB_SSD_IO_RESERVE ? 0 : io->length;
    uint64_t busy_ns = device->bytes_per_s == 0 ? 0 : moved * YB_NS_PER_S / device->bytes_per_s;

    device->free_ns = (device->free_ns > now_ns ? device->free_ns : now_ns) + busy_ns;
    io->device = base;
    io->due_ns = device->free_ns + device->latency_ns;
    io->next = NULL;
    *device->tail = io;
    device->tail = &io->next;
    arm(device);
}

static uint64_t
memory_size(struct yb_ssd_device *base)
{
    return memory_of(base)->memory->size;
}

static void
memory_close(struct yb_ssd_device *base)
{
    struct memory_device *device = memory_of(base);

    YB_ASSERT(device->head == NULL);
    yb_loop_undefer(device->loop, &device->task);
    yb_loop_disarm(device->loop, &device->timer);
    device->memory->open = false;
    device->magic = 0;
    free(device);
}

static const struct yb_ssd_device_ops memory_ops = {
    .name = "memory",
    .submit = memory_submit,
    .size = memory_size,
    .close = memory_close,
};

enum yb_status
yb_ssd_memory_open(struct yb_ssd_memory *memory, struct yb_loop *loop, uint64_t latency_ns,
                   uint64_t bytes_per_s, struct yb_ssd_device **device_out)
{
    struct memory_device *device;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    YB_ASSERT(!memory->open);
    device = calloc(1, sizeof *device);
    if (device == NULL) {
        return YB_NO_MEMORY;
    }
    device->base.ops = &memory_ops;
    device->magic = DEVICE_MAGIC;
    device->memory = memory;
    device->loop = loop;
    device->latency_ns = latency_ns;
    device->bytes_per_s = bytes_per_s;
    device->tail = &device->head;
    device->task.run = run_task;
    yb_timer_init(&device->timer, run_timer);
    memory->open = true;
    *device_out = &device->base;
    return YB_OK;
}
