/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/memory_type.h"

struct yb_bench_device {
    struct yb_memory *memory;
    struct yb_memory_queue *queue;
    void *base;
    uint64_t length;
};

static const struct yb_memory_staging no_staging = {.queues = 1};
static const struct yb_memory_place first = {YB_MEMORY_CUDA, 0};

static bool
complain(const char *what, enum yb_status status)
{
    fprintf(stderr, "bench: %s: %s\n", what, yb_status_text(status));
    return false;
}

/* In the child: say what the drivers are; the exit status says whether there is a device. */
static void
look(int fd)
{
    struct yb_memory *memory = NULL;
    char why[256] = "no memory";
    bool found = yb_memory_create(&no_staging, &memory, why, sizeof(why)) == YB_OK &&
                 yb_memory_device_count(memory) > 0;

    (void)!write(fd, why, strlen(why));
    _exit(found ? 0 : 1);
}

bool
yb_bench_device_found(char *why_out, uint32_t why_bytes)
{
    int ends[2];
    int status = -1;
    ssize_t got = 0;
    pid_t child;

    if (pipe(ends) != 0) {
        (void)snprintf(why_out, why_bytes, "%m");
        return false;
    }
    child = fork();
    if (child == 0) {
        look(ends[1]);
    }
    (void)close(ends[1]);
    if (child > 0) {
        got = read(ends[0], why_out, why_bytes - 1); /* One write, shorter than a pipe. */
        (void)waitpid(child, &status, 0);
    }
    (void)close(ends[0]);
    why_out[got > 0 ? got : 0] = '\0';
    return status == 0;
}

bool
yb_bench_device_open(uint64_t length, struct yb_bench_device **device_out)
{
    struct yb_bench_device *device = calloc(1, sizeof(*device));
    enum yb_status status = YB_NO_MEMORY;

    if (device != NULL) {
        device->length = length;
        status = yb_memory_create(&no_staging, &device->memory, NULL, 0);
    }
    if (status == YB_OK) {
        status = yb_memory_queue_create(device->memory, &device->queue);
    }
    if (status == YB_OK) {
        status = yb_memory_alloc(device->memory, first, length, &device->base);
    }
    if (status != YB_OK) {
        yb_bench_device_close(&device);
        return complain("device memory", status);
    }
    *device_out = device;
    return true;
}

void
yb_bench_device_close(struct yb_bench_device **device_ref)
{
    struct yb_bench_device *device = *device_ref;

    *device_ref = NULL;
    if (device == NULL) {
        return;
    }
    if (device->base != NULL) {
        yb_memory_free(device->memory, first, &device->base, device->length);
    }
    if (device->queue != NULL) {
        yb_memory_queue_destroy(&device->queue);
    }
    if (device->memory != NULL) {
        yb_memory_destroy(&device->memory);
    }
    free(device);
}

uint8_t *
yb_bench_device_base(const struct yb_bench_device *device)
{
    return device->base;
}

static void
on_copied(struct yb_memory_copy *copy, enum yb_status status)
{
    *(enum yb_status *)copy->owner = status;
}

bool
yb_bench_device_copy(struct yb_bench_device *device, uint64_t offset, void *host, uint64_t length,
                     bool in)
{
    uint8_t *bytes = (uint8_t *)device->base + offset;
    enum yb_status status = YB_IN_PROGRESS;
    struct yb_memory_copy copy = {
        .to = in ? (void *)bytes : host,
        .from = in ? host : (void *)bytes,
        .length = length,
        .done = on_copied,
        .owner = &status,
    };
    enum yb_status started;

    *(in ? &copy.to_place : &copy.from_place) = first;
    started = yb_memory_copy_start(device->queue, &copy);
    if (started != YB_OK) {
        return complain("copy", started);
    }
    while (status == YB_IN_PROGRESS) {
        (void)yb_memory_poll(device->queue);
    }
    return status == YB_OK ? true : complain("copy", status);
}
