/* SPDX-License-Identifier: Apache-2.0
 *
 * Where values are, and copies of them that somebody asks for by hand.
 */
#include "client/beside.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "client/client_internal.h"
#include "client/core_internal.h"
#include "directory/index.h"
#include "directory/wire/directory_wire.h"
#include "node/wire/node_wire.h"
#include "transfer/near.h"

static uint64_t
deadline_after(uint64_t timeout_ns)
{
    return yb_deadline_after(yb_clock_now(yb_clock_system()), timeout_ns);
}

/* ---- who is there -------------------------------------------------------------------------- */

static void
look_again(void *context)
{
    struct yb_client *client = context;

    yb_client_core_look_again(client->core);
}

void
yb_client_look_again(struct yb_client *client)
{
    if (yb_client_enter(client) == YB_OK) {
        yb_client_run(client, look_again, client);
        yb_client_leave(client);
    }
}

enum yb_status
yb_client_engine_address(struct yb_client *client, char *text_out, size_t room)
{
    enum yb_status status = yb_client_enter(client);

    if (status == YB_OK) {
        status = yb_transfer_address(client->engine, text_out, room);
        yb_client_leave(client);
    }
    return status;
}

struct yb_span_ring *
yb_client_spans(const struct yb_client *client)
{
    YB_ASSERT_OBJ(client, YB_CLIENT_MAGIC);
    return yb_transfer_spans(client->engine);
}

struct yb_stats *
yb_client_registry(const struct yb_client *client)
{
    YB_ASSERT_OBJ(client, YB_CLIENT_MAGIC);
    return client->stats;
}

/* ---- where values are ---------------------------------------------------------------------- */

struct hashing {
    struct yb_client *client;
    struct yb_client_where *keys;
    uint32_t count;
};

/* On the worker, which alone knows the seed. */
static void
hash_keys(void *context)
{
    struct hashing *hashing = context;
    const struct yb_client *client = hashing->client;
    const struct yb_hash_bytes tenant = {client->tenant, strlen(client->tenant)};

    for (uint32_t i = 0; i < hashing->count; i++) {
        struct yb_client_where *key = &hashing->keys[i];

        key->hash = yb_hash_key(client->core->seed, tenant,
                                (struct yb_hash_bytes){key->key, key->key_bytes});
    }
}

static void
take_answer(struct yb_client_where *key, const struct yb_wire_lookup_answer *answer, uint64_t epoch)
{
    const uint16_t slots[4] = {answer->slot0, answer->slot1, answer->slot2, answer->slot3};

    key->status = answer->presence == YB_WIRE_PRESENCE_PRESENT       ? YB_OK
                  : answer->presence == YB_WIRE_PRESENCE_SUSPECT     ? YB_OK
                  : answer->presence == YB_WIRE_PRESENCE_IN_PROGRESS ? YB_IN_PROGRESS
                  : answer->presence == YB_WIRE_PRESENCE_REBUILDING  ? YB_REBUILDING
                                                                     : YB_NOT_FOUND;
    key->grant = answer->grant;
    key->size = yb_index_size_decode(answer->size_code);
    key->epoch = epoch;
    key->count = 0;
    for (uint32_t i = 0; key->status == YB_OK && i < 4; i++) {
        if (slots[i] != 0) {
            key->slots[key->count++] = slots[i];
        }
    }
}

/* Ask the directory; the keys have their hashes. */
static enum yb_status
look_up(struct yb_client *client, struct yb_client_where *keys, uint32_t count, uint64_t timeout_ns)
{
    size_t body_bytes = YB_WIRE_LOOKUP_BYTES + (size_t)count * YB_WIRE_HASH_BYTES;
    size_t reply_bytes = YB_WIRE_LOOKUP_ANSWERS_BYTES + (size_t)count * YB_WIRE_LOOKUP_ANSWER_BYTES;
    uint8_t *body = calloc(1, body_bytes + reply_bytes);
    struct yb_wire_lookup_answers answers;
    struct yb_client_look look;
    enum yb_status status;

    if (body == NULL) {
        return YB_NO_MEMORY;
    }
    yb_wire_put_u16(body + YB_WIRE_LOOKUP_AT_FLAGS, YB_WIRE_LOOKUP_FLAG_EXIST);
    yb_wire_put_u32(body + YB_WIRE_LOOKUP_AT_HASHES, count);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(body + YB_WIRE_LOOKUP_BYTES + (size_t)i * YB_WIRE_HASH_BYTES, keys[i].hash.bytes,
               sizeof(keys[i].hash.bytes));
    }
    look = (struct yb_client_look){
        .type = YB_WIRE_DIRECTORY_TYPE_LOOKUP,
        .deadline_ns = deadline_after(timeout_ns),
        .body = body,
        .body_bytes = (uint32_t)body_bytes,
        .reply = body + body_bytes,
        .reply_room = (uint32_t)reply_bytes,
    };
    status = yb_client_ask(client, &look);
    if (status == YB_OK) {
        status = yb_wire_lookup_answers_decode(look.reply, look.reply_bytes, &answers, NULL);
    }
    if (status == YB_OK && answers.answers.count != count) {
        status = YB_PROTOCOL;
    }
    for (uint32_t i = 0; status == YB_OK && i < count; i++) {
        struct yb_wire_lookup_answer answer;

        yb_wire_lookup_answer_at(&answers.answers, i, &answer);
        take_answer(&keys[i], &answer, answers.epoch);
    }
    free(body);
    return status;
}

enum yb_status
yb_client_where(struct yb_client *client, struct yb_client_where *keys, uint32_t count,
                uint64_t timeout_ns)
{
    struct hashing hashing = {.client = client, .keys = keys, .count = count};
    enum yb_status status = yb_client_enter(client);

    YB_ASSERT(count > 0 && count <= YB_CLIENT_WHERE_MAX);
    if (status != YB_OK) {
        return status;
    }
    yb_client_run(client, hash_keys, &hashing);
    status = look_up(client, keys, count, timeout_ns);
    yb_client_leave(client);
    return status;
}

/* ---- copies -------------------------------------------------------------------------------- */

static enum yb_status
copy_outcome(const uint8_t *reply, uint32_t bytes)
{
    struct yb_wire_copy_answers answers;
    struct yb_wire_copy_answer answer;
    enum yb_status status = yb_wire_copy_answers_decode(reply, bytes, &answers, NULL);

    if (status != YB_OK || answers.answers.count != 1) {
        return YB_PROTOCOL;
    }
    yb_wire_copy_answer_at(&answers.answers, 0, &answer);
    return (enum yb_status)answer.status;
}

enum yb_status
yb_client_copy(struct yb_client *client, const struct yb_client_where *where,
               const struct yb_client_node *source, const struct yb_client_node *target,
               uint64_t timeout_ns)
{
    const struct yb_wire_copy_item item = {
        .hash = where->hash, .grant = where->grant, .size = where->size};
    const struct yb_wire_copies copies = {
        .epoch = where->epoch,
        .incarnation = target->incarnation,
        .source = source->incarnation,
        .address = yb_wire_text_of(source->address),
        .items = {.native = &item, .count = 1},
    };
    uint8_t body[YB_WIRE_COPIES_BYTES + 64 + YB_WIRE_COPY_ITEM_BYTES];
    uint8_t reply[YB_WIRE_COPY_ANSWERS_BYTES + YB_WIRE_COPY_ANSWER_BYTES];
    struct yb_call call = {
        .type = YB_WIRE_NODE_TYPE_COPY,
        .class = YB_CLASS_BACKGROUND,
        .fail_fast = true,
        .deadline_ns = deadline_after(timeout_ns),
        .body = body,
        .reply_body = reply,
        .reply_body_room = sizeof(reply),
    };
    uint32_t reply_bytes = 0;
    size_t length = 0;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = yb_wire_copies_encode(&copies, body, sizeof(body), &length);
    if (status == YB_OK) {
        call.body_bytes = (uint32_t)length;
        status = yb_client_admin_call(client, target->address, &call, &reply_bytes);
    }
    if (status == YB_OK) {
        status = copy_outcome(reply, reply_bytes);
    }
    yb_client_leave(client);
    return status;
}

enum yb_status
yb_client_drop_copy(struct yb_client *client, const void *key, uint32_t key_bytes,
                    const struct yb_client_node *node, uint64_t timeout_ns, bool *dropped_out)
{
    struct yb_wire_list_question question = {
        .items_max = 1,
        .kind = YB_WIRE_MATCH_KEY,
        .pattern = {.bytes = key, .length = (uint16_t)key_bytes},
    };
    struct yb_wire_remove_unheld_answer answer = {.cursor = 0};
    uint8_t body[YB_WIRE_LIST_QUESTION_BYTES_MAX];
    uint8_t reply[YB_WIRE_REMOVE_UNHELD_ANSWER_BYTES];
    struct yb_client_look look = {
        .type = YB_WIRE_NODE_TYPE_REMOVE_UNHELD,
        .slot = node->slot,
        .incarnation = node->incarnation,
        .mutates = true,
        .deadline_ns = deadline_after(timeout_ns),
        .body = body,
        .reply = reply,
        .reply_room = sizeof(reply),
    };
    enum yb_status status = yb_client_enter(client);

    *dropped_out = false;
    if (status != YB_OK) {
        return status;
    }
    if (key_bytes == 0 || key_bytes > YB_CLIENT_KEY_BYTES_MAX ||
        !yb_wire_text_valid(key, key_bytes)) {
        status = YB_UNSUPPORTED;
    }
    do {
        size_t length = 0;

        question.cursor = answer.cursor;
        if (status == YB_OK) {
            status = yb_wire_list_question_encode(&question, body, sizeof(body), &length);
        }
        look.body_bytes = (uint32_t)length;
        if (status == YB_OK) {
            status = yb_client_ask(client, &look);
        }
        if (status == YB_OK) {
            status = yb_wire_remove_unheld_answer_decode(reply, look.reply_bytes, &answer, NULL);
        }
        *dropped_out = *dropped_out || (status == YB_OK && answer.removed > 0);
    } while (status == YB_OK && !*dropped_out && answer.cursor != 0);
    yb_client_leave(client);
    return status;
}
