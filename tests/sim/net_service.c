/* SPDX-License-Identifier: Apache-2.0
 *
 * The service that simulated processes offer: counters, and bytes in both directions.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "net_world.h"

/* A request that is answered later. */
struct world_held {
    struct yb_timer timer;
    struct world_life *life;
    struct yb_request *request;
    struct world_held *next;
    enum yb_status status;
    struct world_answer answer;
    uint32_t data_bytes;
};

/* Memory that a request's data goes to, or a reply's data comes from. */
struct blob {
    struct iovec iov[2];
    uint8_t bytes[];
};

static struct blob *
blob_create(struct world_life *life, size_t length)
{
    struct blob *blob = malloc(sizeof(*blob) + length + 1);
    size_t half = length / 3;

    WORLD_CHECK(life->world, blob != NULL);
    blob->iov[0] = (struct iovec){.iov_base = blob->bytes, .iov_len = half};
    blob->iov[1] = (struct iovec){.iov_base = blob->bytes + half, .iov_len = length - half};
    return blob;
}

static struct world_question
question_of(struct world_life *life, const struct yb_request *request)
{
    struct world_question question;

    WORLD_CHECK(life->world, request->body_bytes >= sizeof(question));
    memcpy(&question, request->body, sizeof(question));
    return question;
}

/* Draw from the life's own generator: whether a method says AGAIN. */
static bool
toss(struct world_life *life)
{
    life->random = life->random * 6364136223846793005ull + 1442695040888963407ull;
    return (life->random >> 40 & 1) != 0;
}

static void
on_released(struct yb_request *request)
{
    free(request->context);
    request->context = NULL;
}

static void
reply_now(struct yb_request *request, enum yb_status status, const struct world_answer *answer,
          uint32_t data_bytes)
{
    struct world_life *life = request->context;

    request->context = NULL;
    if (status != YB_OK || data_bytes == 0) {
        yb_request_reply(request, status, answer, sizeof(*answer), NULL, 0);
        return;
    }
    {
        struct blob *blob = blob_create(life, data_bytes);

        world_pattern(blob->bytes, data_bytes, answer->pattern);
        request->context = blob;
        request->released = on_released;
        yb_request_reply(request, status, answer, sizeof(*answer), blob->iov, 2);
    }
}

static void
unlink_held(struct world_held *held)
{
    struct world_held **link = &held->life->held;

    while (*link != held) {
        link = &(*link)->next;
    }
    *link = held->next;
}

static void
on_held(struct yb_timer *timer)
{
    struct world_held *held = (struct world_held *)timer;

    unlink_held(held);
    held->request->context = held->life;
    reply_now(held->request, held->status, &held->answer, held->data_bytes);
    free(held);
}

/* Answer now or after the delay that was asked for. */
static void
reply(struct world_life *life, struct yb_request *request, const struct world_question *question,
      enum yb_status status, uint64_t value)
{
    struct world_answer answer = {
        .pattern = question->pattern,
        .value = value,
        .operation = question->operation,
        .life = life->number,
    };
    uint32_t data_bytes = request->method->type == WORLD_READ ? question->reply_bytes : 0;
    struct world_held *held;

    if (question->delay_us == 0) {
        request->context = life;
        reply_now(request, status, &answer, data_bytes);
        return;
    }
    held = calloc(1, sizeof(*held));
    WORLD_CHECK(life->world, held != NULL);
    held->life = life;
    held->request = request;
    held->status = status;
    held->answer = answer;
    held->data_bytes = data_bytes;
    held->next = life->held;
    life->held = held;
    yb_timer_init(&held->timer, on_held);
    yb_loop_arm(life->loop, &held->timer,
                yb_loop_now(life->loop) + question->delay_us * YB_NS_PER_US);
}

void
world_service_end(struct world_life *life)
{
    while (life->held != NULL) {
        struct world_held *held = life->held;

        yb_loop_disarm(life->loop, &held->timer);
        on_held(&held->timer);
    }
}

/* A request has reached its method. */
static void
note(struct world_life *life, const struct yb_request *request)
{
    struct world *world = life->world;
    uint64_t now_ns = yb_loop_now(life->loop);

    WORLD_CHECK(world, !life->over);
    WORLD_CHECK(world, request->deadline_ns > now_ns ||
                           (request->data_bytes > 0 && request->method->place != NULL));
    life->handled++;
    world->remaining_us[world->remaining_count++ % WORLD_REMAINDERS] =
        request->deadline_ns == YB_NEVER || request->deadline_ns < now_ns
            ? 0
            : (request->deadline_ns - now_ns) / YB_NS_PER_US;
}

/* W5 */
static void
apply(struct world_life *life, const struct world_question *question)
{
    struct world *world = life->world;
    struct world_operation *operation;

    WORLD_CHECK(world, question->operation > 0 && question->operation < world->operation_count);
    operation = &world->operations[question->operation];
    operation->applied[life->number]++;
    operation->applied_count++;
    WORLD_CHECK(world, operation->applied[life->number] == 1);
    WORLD_CHECK(world, operation->applied_count == 1 || operation->asked_again);
    life->counters[question->key % WORLD_KEY_COUNT]++;
}

static void
handle_add(void *service, struct yb_request *request)
{
    struct world_life *life = service;
    struct world_question question = question_of(life, request);

    note(life, request);
    if (question.says_again != 0 && toss(life)) {
        reply(life, request, &question, YB_AGAIN, 0);
        return;
    }
    apply(life, &question);
    reply(life, request, &question, YB_OK, life->counters[question.key % WORLD_KEY_COUNT]);
}

static void
handle_get(void *service, struct yb_request *request)
{
    struct world_life *life = service;
    struct world_question question = question_of(life, request);

    note(life, request);
    reply(life, request, &question, YB_OK, life->counters[question.key % WORLD_KEY_COUNT]);
}

static enum yb_status
place(void *service, struct yb_request *request, const struct iovec **iov_out, uint32_t *count_out)
{
    struct world_life *life = service;
    struct world_question question = question_of(life, request);
    struct blob *blob;

    if (question.refuses != 0) {
        return YB_NO_SPACE;
    }
    blob = blob_create(life, request->data_bytes);
    request->context = blob;
    *iov_out = blob->iov;
    *count_out = 2;
    return YB_OK;
}

/* Give placed memory back, having compared what came. */
static void
take_blob(struct world_life *life, struct yb_request *request,
          const struct world_question *question)
{
    struct blob *blob = request->context;

    request->context = NULL;
    if (request->data_bytes > 0) {
        WORLD_CHECK(life->world, blob != NULL);
        WORLD_CHECK(life->world,
                    XXH3_64bits(blob->bytes, request->data_bytes) == question->hash); /* W6 */
        free(blob);
    }
}

static void
handle_write(void *service, struct yb_request *request)
{
    struct world_life *life = service;
    struct world_question question = question_of(life, request);

    note(life, request);
    take_blob(life, request, &question);
    apply(life, &question);
    reply(life, request, &question, YB_OK, question.hash);
}

static void
handle_digest(void *service, struct yb_request *request)
{
    struct world_life *life = service;
    struct world_question question = question_of(life, request);

    note(life, request);
    take_blob(life, request, &question);
    reply(life, request, &question, YB_OK, question.hash);
}

static void
abort_placed(void *service, struct yb_request *request)
{
    (void)service;
    free(request->context);
    request->context = NULL;
}

const struct yb_method world_methods[] = {
    {
        .type = WORLD_ADD,
        .name = "add",
        .roles = YB_ROLE_ANY,
        .mutates = true,
        .body_bytes_max = 65536,
        .handle = handle_add,
    },
    {
        .type = WORLD_GET,
        .name = "get",
        .roles = YB_ROLE_ANY,
        .body_bytes_max = 65536,
        .handle = handle_get,
    },
    {
        .type = WORLD_WRITE,
        .name = "write",
        .roles = YB_ROLE_ANY,
        .mutates = true,
        .body_bytes_max = 65536,
        .place = place,
        .handle = handle_write,
        .abort = abort_placed,
    },
    {
        .type = WORLD_READ,
        .name = "read",
        .roles = YB_ROLE_ANY,
        .body_bytes_max = 65536,
        .handle = handle_get,
    },
    {
        .type = WORLD_DIGEST,
        .name = "digest",
        .roles = YB_ROLE_ANY,
        .body_bytes_max = 65536,
        .place = place,
        .handle = handle_digest,
        .abort = abort_placed,
    },
};
const uint32_t world_method_count = sizeof(world_methods) / sizeof(world_methods[0]);
