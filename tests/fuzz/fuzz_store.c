/* SPDX-License-Identifier: Apache-2.0
 *
 * Any requests, of any role, to a directory and a node that live in the simulation: each is
 * answered or its connection ends, the node's books stay right, and nothing is used after it is
 * gone.
 *
 * The input is a list of requests: who asks, whom, which type, whether the numbers that name the
 * present life are filled in, then the lengths and bytes of body and data. Without that help
 * hardly anything would get behind the first check.
 */
#include <stdlib.h>
#include <string.h>

#include "../sim/store_world.h"
#include "asker.h"
#include "base/check.h"
#include "directory/wire/directory_wire.h"
#include "node/wire/node_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 24u
#define BODY_MAX  8192u
#define DATA_MAX  16384u
#define REPLY_MAX (1u << 20)
#define ASKERS    4u /* Client, node, directory, administrator. */

struct fuzz {
    struct asker_input input;
    struct store_world *world;
    struct asker askers[ASKERS];
    struct iovec data_iov;
    struct iovec reply_iov;
    uint8_t body[BODY_MAX];
    uint8_t data[DATA_MAX];
    uint8_t reply[REPLY_MAX];
    uint8_t reply_data[DATA_MAX];
};

/* Fill in what names the present life, at the places where messages of this type have it. */
static void
help(struct fuzz *fuzz, uint16_t type, uint8_t *body, uint32_t bytes)
{
    struct store_life *node = store_node(fuzz->world, 0)->life;
    struct yb_node_info info;

    yb_node_info(node->node, &info);
    if (bytes < 32) {
        return;
    }
    switch (type) {
    case YB_WIRE_DIRECTORY_TYPE_PUBLISH:
        yb_wire_put_u64(body + YB_WIRE_PUBLICATION_AT_INCARNATION, info.incarnation);
        yb_wire_put_u64(body + YB_WIRE_PUBLICATION_AT_EPOCH, info.epoch);
        yb_wire_put_u16(body + YB_WIRE_PUBLICATION_AT_SLOT, info.slot);
        break;
    case YB_WIRE_DIRECTORY_TYPE_HEARTBEAT:
        yb_wire_put_u64(body + YB_WIRE_HEARTBEAT_AT_INCARNATION, info.incarnation);
        yb_wire_put_u64(body + YB_WIRE_HEARTBEAT_AT_EPOCH, info.epoch);
        break;
    case YB_WIRE_NODE_TYPE_DROP:
    case YB_WIRE_NODE_TYPE_FLUSH:
    case YB_WIRE_NODE_TYPE_HOLD:
    case YB_WIRE_NODE_TYPE_COPY:
        yb_wire_put_u64(body, info.epoch); /* All of them begin with these two. */
        yb_wire_put_u64(body + 8, info.incarnation);
        break;
    default: break;
    }
}

static void
step(struct fuzz *fuzz)
{
    uint8_t who = (uint8_t)asker_take(&fuzz->input, 1);
    struct asker *asker = &fuzz->askers[who % ASKERS];
    uint16_t type = (uint16_t)asker_take(&fuzz->input, 1);
    uint32_t body_bytes = (uint32_t)asker_take(&fuzz->input, 2) % BODY_MAX;
    uint32_t data_bytes = (uint32_t)asker_take(&fuzz->input, 2) % DATA_MAX;

    asker_take_bytes(&fuzz->input, fuzz->body, body_bytes);
    memset(fuzz->data, (int)(who + type), data_bytes);
    if ((who & 0x40) != 0) {
        help(fuzz, type, fuzz->body, body_bytes);
    }
    fuzz->data_iov = (struct iovec){.iov_base = fuzz->data, .iov_len = data_bytes};
    fuzz->reply_iov = (struct iovec){.iov_base = fuzz->reply_data, .iov_len = DATA_MAX};
    asker->call = (struct yb_call){
        .type = type,
        .class = YB_CLASS_THROUGHPUT,
        .lane = data_bytes > 0 ? YB_WIRE_LANE_BULK : YB_WIRE_LANE_CONTROL,
        .mutates = (who & 0x20) != 0,
        .body = fuzz->body,
        .body_bytes = body_bytes,
        .data = &fuzz->data_iov,
        .data_count = data_bytes > 0 ? 1 : 0,
        .reply_body = fuzz->reply,
        .reply_body_room = REPLY_MAX,
        .reply_data = &fuzz->reply_iov,
        .reply_data_count = 1,
    };
    asker_send(asker, type >= 96 ? 1 : 0);
    for (uint32_t i = 0; i < 600 && asker->busy; i++) {
        store_run_ms(fuzz->world, 5);
    }
    YB_ASSERT(!asker->busy); /* Answered, or ended by its deadline. */
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_options options = {.seed = 1, .nodes = 1, .pool_bytes = 64 * 1024};
    static const uint8_t roles[ASKERS] = {YB_WIRE_ROLE_CLIENT, YB_WIRE_ROLE_NODE,
                                          YB_WIRE_ROLE_DIRECTORY, YB_WIRE_ROLE_ADMIN};
    struct fuzz *fuzz = calloc(1, sizeof(*fuzz));
    struct yb_sim_host *host;

    YB_ASSERT(fuzz != NULL);
    fuzz->input = (struct asker_input){data, size};
    fuzz->world = store_world_create(&options);
    host = yb_sim_host_create(fuzz->world->sim, "asker", "10.0.1.1");
    for (uint8_t i = 0; i < ASKERS; i++) {
        asker_init(&fuzz->askers[i], host, i, roles[i]);
        asker_knows(&fuzz->askers[i], fuzz->world->roles[0].host, STORE_PORT);
        asker_knows(&fuzz->askers[i], fuzz->world->roles[1].host, STORE_PORT);
    }
    for (uint32_t i = 0; i < 100 && !store_ready(fuzz->world); i++) {
        store_run_ms(fuzz->world, 10);
    }
    for (uint32_t i = 0; i < STEPS_MAX && fuzz->input.left > 0; i++) {
        step(fuzz);
    }
    for (uint32_t i = 0; i < ASKERS; i++) {
        asker_fini(&fuzz->askers[i]);
    }
    store_run_ms(fuzz->world, 1000);
    store_world_destroy(&fuzz->world);
    free(fuzz);
    return 0;
}
