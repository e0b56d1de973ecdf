/* SPDX-License-Identifier: Apache-2.0 */
#include "object_medium.h"

static uint64_t
clock_now(const struct yb_clock *clock)
{
    return ((const struct medium *)((const uint8_t *)clock - offsetof(struct medium, clock)))
        ->now_ns;
}

static enum yb_status
submit(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct medium *medium = (struct medium *)backend;

    request->state = 0;
    request->entry_count = 0;
    request->more = request->sent = request->aside = request->judged = false;
    request->wait_hint_ms = 0;
    request->why[0] = '\0';
    medium->gets += request->verb == YB_OBJECT_GET;
    assert_true(medium->count < MEDIUM_FLYING_MAX);
    medium->flying[medium->count++] = request;
    if (medium->came != NULL) {
        medium->came(medium, request);
    }
    return YB_OK;
}

static void
cancel(struct yb_object_backend *backend, struct yb_object_request *request)
{
    request->state = 1;
    (void)backend;
}

static void
end_list(struct yb_object_backend *backend, struct yb_object_request *request)
{
    (void)backend;
    (void)request;
}

static void
destroy(struct yb_object_backend *backend)
{
    assert_int_equal(((struct medium *)backend)->count, 0);
}

static const struct yb_object_backend_ops ops = {
    .name = "played", .submit = submit, .cancel = cancel, .end_list = end_list, .destroy = destroy};

void
medium_init(struct medium *medium)
{
    memset(medium, 0, sizeof(*medium));
    medium->head.ops = &ops;
    medium->clock = (struct yb_clock){clock_now, clock_now};
    medium->now_ns = YB_NS_PER_S;
    ground_init(&medium->ground);
    yb_loop_destroy(&medium->ground.loop);
    assert_int_equal(
        yb_loop_create(&(struct yb_loop_options){.backend = "epoll", .clock = &medium->clock},
                       &medium->ground.loop),
        YB_OK);
    medium->ground.options.backend = &medium->head;
}

void
medium_start(struct medium *medium)
{
    ground_start(&medium->ground);
    while (medium->ground.recovered == 0) {
        medium_turn(medium, 0);
        while (medium->count > 0) {
            medium_answer(medium, 0, YB_OK);
        }
    }
}

void
medium_answer(struct medium *medium, uint32_t at, enum yb_status status)
{
    struct yb_object_request *request = medium->flying[at];

    medium->count--;
    memmove(medium->flying + at, medium->flying + at + 1,
            (medium->count - at) * sizeof(medium->flying[0]));
    if (request->verb == YB_OBJECT_PUT) {
        request->before(request);
        medium->object_bytes = yb_object_bytes_read(&request->bytes, 0, medium->object,
                                                    yb_object_bytes_sum(&request->bytes));
    } else if (request->verb == YB_OBJECT_GET && status == YB_OK) {
        uint64_t bytes = yb_object_bytes_sum(&request->bytes);

        assert_true(request->offset + bytes <= medium->object_bytes);
        (void)yb_object_bytes_write(&request->bytes, 0, medium->object + request->offset, bytes);
        request->first_byte_ns = medium->far_ns != 0 ? medium->far_ns : YB_NS_PER_MS;
        request->total_ns = request->first_byte_ns + YB_NS_PER_MS / 10;
        request->judged = true;
        status = request->after == NULL ? YB_OK : request->after(request);
    }
    request->done(request, status);
}

void
medium_turn(struct medium *medium, uint64_t later_ms)
{
    medium->now_ns += later_ms * YB_NS_PER_MS;
    yb_loop_turn(medium->ground.loop, 0);
    yb_loop_turn(medium->ground.loop, 0);
}
