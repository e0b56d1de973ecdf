/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/far.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

#define FAR_MAGIC     0x59464152u /* "YFAR" */
#define LOOK_NS       (50 * YB_NS_PER_MS)
#define LATENCY_MS    60000u
#define CONTROL_BYTES 32u

struct far {
    struct yb_object_backend head; /* First. */
    uint32_t magic;
    struct yb_object_far_options options;
    char control[PATH_MAX];
    uint64_t looked_ns;
    bool gone;
};

/* A request that begins later. */
struct held {
    struct yb_timer timer;
    struct far *far;
    struct yb_object_request *request;
    void (*done)(struct yb_object_request *request, enum yb_status status); /* The caller's. */
    uint64_t since_ns;
    uint64_t held_ns;
};

static struct far *
far_of(struct yb_object_backend *backend)
{
    struct far *far = (struct far *)backend;

    YB_ASSERT_OBJ(far, FAR_MAGIC);
    return far;
}

/* Read the file again, if that was some time ago. */
static void
look(struct far *far)
{
    uint64_t now = yb_loop_now(far->options.loop);
    char text[CONTROL_BYTES] = "";
    unsigned long ms;
    int fd;

    if (far->control[0] == '\0' || (far->looked_ns != 0 && now - far->looked_ns < LOOK_NS)) {
        return;
    }
    far->looked_ns = now;
    fd = open(far->control, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, text, sizeof(text) - 1);

        text[got > 0 ? got : 0] = '\0';
        (void)close(fd);
    }
    far->gone = strncmp(text, "gone", 4) == 0;
    ms = strtoul(text, NULL, 10);
    far->options.latency_ns = ms <= LATENCY_MS ? ms * YB_NS_PER_MS : 0;
}

static void
end(struct held *held, enum yb_status status)
{
    struct yb_object_request *request = held->request;

    request->done = held->done;
    free(held);
    request->done(request, status);
}

/* The medium behind is done with it: whoever is told its times hears of a medium that is far. */
static void
on_done(struct yb_object_request *request, enum yb_status status)
{
    struct held *held = request->around;

    request->first_byte_ns += held->held_ns;
    request->total_ns += held->held_ns;
    end(held, status);
}

/* Its time has come: it begins, or nobody is there. The medium behind has room of its own in the
 * request, so that ours is beside it. */
static void
begin(struct yb_timer *timer)
{
    struct held *held = (struct held *)((uint8_t *)timer - offsetof(struct held, timer));
    struct yb_object_request *request = held->request;
    struct far *far = held->far;
    enum yb_status status;

    request->slot = NULL;
    request->backend = NULL;
    if (far->gone) {
        request->aside = true;
        (void)snprintf(request->why, sizeof(request->why), "nobody is there: %.160s says so",
                       far->control);
        end(held, YB_UNREACHABLE);
        return;
    }
    held->held_ns = yb_loop_now(far->options.loop) - held->since_ns;
    request->done = on_done;
    request->around = held;
    status = far->options.behind->ops->submit(far->options.behind, request);
    if (status != YB_OK) {
        on_done(request, status);
    }
}

static enum yb_status
submit(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct far *far = far_of(backend);
    struct held *held;

    look(far);
    if (far->options.seen != NULL) {
        far->options.seen(far->options.context, request);
    }
    if (!far->gone && (far->options.latency_ns == 0 ||
                       (far->options.reads_only && request->verb != YB_OBJECT_GET))) {
        return far->options.behind->ops->submit(far->options.behind, request);
    }
    held = calloc(1, sizeof(*held));
    if (held == NULL) {
        return YB_AGAIN;
    }
    yb_timer_init(&held->timer, begin);
    held->far = far;
    held->request = request;
    held->done = request->done;
    held->since_ns = yb_loop_now(far->options.loop);
    request->more = request->sent = request->aside = request->judged = false;
    request->why[0] = '\0';
    request->slot = held;
    request->backend = far;
    yb_loop_arm(far->options.loop, &held->timer, held->since_ns + far->options.latency_ns);
    return YB_OK;
}

static void
cancel(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct far *far = far_of(backend);

    if (request->backend == far) { /* It has not begun: it does at once, and ends. */
        struct held *held = request->slot;

        yb_loop_arm(far->options.loop, &held->timer, yb_loop_now(far->options.loop));
        return;
    }
    far->options.behind->ops->cancel(far->options.behind, request);
}

static void
end_list(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct far *far = far_of(backend);

    far->options.behind->ops->end_list(far->options.behind, request);
}

static void
destroy(struct yb_object_backend *backend)
{
    struct far *far = far_of(backend);

    far->options.behind->ops->destroy(far->options.behind);
    far->magic = 0;
    free(far);
}

static const struct yb_object_backend_ops far_ops = {
    .name = "far",
    .submit = submit,
    .cancel = cancel,
    .end_list = end_list,
    .destroy = destroy,
};

enum yb_status
yb_object_far_create(const struct yb_object_far_options *options,
                     struct yb_object_backend **backend_out)
{
    struct far *far = calloc(1, sizeof(*far));

    if (far == NULL) {
        return YB_NO_MEMORY;
    }
    if (options->control != NULL && strlen(options->control) >= sizeof(far->control)) {
        free(far);
        return YB_INVALID;
    }
    far->head = *options->behind;
    far->head.ops = &far_ops;
    far->magic = FAR_MAGIC;
    far->options = *options;
    (void)snprintf(far->control, sizeof(far->control), "%s",
                   options->control != NULL ? options->control : "");
    *backend_out = &far->head;
    return YB_OK;
}
