/* SPDX-License-Identifier: Apache-2.0
 *
 * Any requests to a transfer engine that lives in the simulation: each is answered or its
 * connection ends, what was written is there, nothing else is, and nothing of it is left.
 * What a decoder takes is encoded to the same bytes.
 *
 * The input is a list of requests: a flag and a type, then a body and how much data there is; or,
 * as the flag says, ranges of memory that is registered, or lies around it. Without that help
 * hardly any range would be one.
 */
#include <stdlib.h>
#include <string.h>

#include "../sim/transfer_world.h"
#include "asker.h"
#include "base/check.h"
#include "transfer/wire/transfer_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENGINE_PORT 7000u
#define STEPS_MAX   24u
#define BODY_MAX    4096u
#define DATA_MAX    65536u
#define RANGES_MAX  8u
#define HELPED      0x40u
#define FIRST_TYPE  YB_WIRE_TRANSFER_TYPE_WRITE
#define TYPES       9u /* One more than there are. */
#define WAIT_STEPS  600u

struct fuzz {
    struct asker_input input;
    struct world *world;
    struct node *node;
    struct asker asker;
    struct iovec data_iov;
    struct iovec reply_iov;
    struct yb_wire_fragment ranges[RANGES_MAX];
    uint32_t range_count;
    uint8_t body[BODY_MAX];
    uint8_t data[DATA_MAX];
    uint8_t reply[BODY_MAX];
    uint8_t reply_data[DATA_MAX];
};

/* ---- decoders alone ------------------------------------------------------------------------- */

#define THERE_AND_BACK(message, bytes, length)                                                 \
    do {                                                                                       \
        struct yb_wire_##message value_;                                                       \
        size_t size_ = 0;                                                                      \
                                                                                               \
        if (yb_wire_##message##_decode((bytes), (length), &value_, NULL) == YB_OK) {           \
            uint8_t *again_ = malloc((length) + 1);                                            \
                                                                                               \
            YB_ASSERT(again_ != NULL);                                                         \
            YB_ASSERT(yb_wire_##message##_encode(&value_, again_, (length), &size_) == YB_OK); \
            YB_ASSERT(size_ == (length) && memcmp(again_, (bytes), size_) == 0);               \
            free(again_);                                                                      \
        }                                                                                      \
    } while (0)

static void
decode_all(const uint8_t *bytes, size_t length)
{
    THERE_AND_BACK(fragments, bytes, length);
    THERE_AND_BACK(outcomes, bytes, length);
    THERE_AND_BACK(first, bytes, length);
    THERE_AND_BACK(shm_question, bytes, length);
    THERE_AND_BACK(shm_answer, bytes, length);
    THERE_AND_BACK(shm_note, bytes, length);
    THERE_AND_BACK(shm_regions, bytes, length);
    THERE_AND_BACK(pulls, bytes, length);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Name some ranges. Returns how long they are together. */
static uint64_t
take_ranges(struct fuzz *fuzz)
{
    uint64_t total = 0;

    fuzz->range_count = 1 + (uint32_t)(asker_take(&fuzz->input, 1) % RANGES_MAX);
    for (uint32_t i = 0; i < fuzz->range_count; i++) {
        uint8_t how = (uint8_t)asker_take(&fuzz->input, 1);
        uint64_t offset = asker_take(&fuzz->input, 3) % (2 * WORLD_AREA_BYTES);
        uint64_t length = asker_take(&fuzz->input, 2) % (DATA_MAX / RANGES_MAX);

        fuzz->ranges[i] = (struct yb_wire_fragment){
            .region = fuzz->node->regions[how % WORLD_CELLS], .offset = offset, .length = length};
        if (how >= 128) {
            fuzz->ranges[i].region = YB_WIRE_BY_ADDRESS;
            fuzz->ranges[i].offset = (uint64_t)(uintptr_t)fuzz->node->area.bytes + offset;
        }
        total += length;
    }
    return total;
}

/* Where a range lies in the area; WORLD_AREA_BYTES: not there. */
static uint64_t
place_of(const struct fuzz *fuzz, const struct yb_wire_fragment *range)
{
    const struct node *node = fuzz->node;
    uint64_t base = (uint64_t)(uintptr_t)node->area.bytes;
    uint64_t at = range->offset - base;

    for (uint32_t cell = 0; range->region != YB_WIRE_BY_ADDRESS && cell < WORLD_CELLS; cell++) {
        if (node->regions[cell] == range->region) {
            at = (uint64_t)cell * WORLD_CELL_BYTES + range->offset;
            break;
        }
    }
    return at <= WORLD_AREA_BYTES && range->length <= WORLD_AREA_BYTES - at ? at : WORLD_AREA_BYTES;
}

/* What was answered is so: where all ranges are taken they are in the area, and have the bytes. */
static void
judge(struct fuzz *fuzz, uint16_t type)
{
    const struct yb_call *call = &fuzz->asker.call;
    struct yb_wire_outcomes outcomes;
    uint64_t at = 0;

    if (call->status != YB_OK || fuzz->range_count == 0) {
        return;
    }
    if (call->reply_body_bytes > 0) { /* Some are refused. */
        YB_ASSERT(type > YB_WIRE_TRANSFER_TYPE_READ ||
                  (yb_wire_outcomes_decode(fuzz->reply, call->reply_body_bytes, &outcomes, NULL) ==
                       YB_OK &&
                   outcomes.outcomes.count <= fuzz->range_count));
        return;
    }
    for (uint32_t i = 0; i < fuzz->range_count; i++) {
        const struct yb_wire_fragment *range = &fuzz->ranges[i];
        uint64_t place = place_of(fuzz, range);

        if (type == YB_WIRE_TRANSFER_TYPE_WRITE) {
            YB_ASSERT(range->length == 0 ||
                      (place < WORLD_AREA_BYTES && fuzz->node->area.bytes[place] == fuzz->data[0]));
        } else if (type == YB_WIRE_TRANSFER_TYPE_READ && call->reply_data_bytes > 0) {
            YB_ASSERT(place < WORLD_AREA_BYTES || range->length == 0);
            YB_ASSERT(
                memcmp(fuzz->reply_data + at, fuzz->node->area.bytes + place, range->length) == 0);
        }
        at += range->length;
    }
}

static void
await_end(struct fuzz *fuzz)
{
    struct yb_transfer_notification note;

    for (uint32_t i = 0; i < WAIT_STEPS && fuzz->asker.busy; i++) {
        (void)yb_sim_run_until(fuzz->world->sim, NULL, NULL,
                               yb_sim_now_ns(fuzz->world->sim) + 5 * YB_NS_PER_MS, UINT64_MAX);
    }
    YB_ASSERT(!fuzz->asker.busy); /* Answered, or ended by its deadline. */
    while (yb_transfer_next_notification(fuzz->node->engine, &note) == YB_OK) {
        YB_ASSERT(note.bytes <= YB_WIRE_NOTIFY_BYTES_MAX);
    }
}

static void
step(struct fuzz *fuzz)
{
    uint8_t flags = (uint8_t)asker_take(&fuzz->input, 1);
    uint16_t type = (uint16_t)(FIRST_TYPE + flags % TYPES);
    uint64_t data_bytes;
    size_t body_bytes;

    if ((flags & HELPED) != 0) {
        struct yb_wire_fragments body;

        data_bytes = take_ranges(fuzz);
        body.fragments.count = fuzz->range_count;
        body.fragments.native = fuzz->ranges;
        body.fragments.wire = NULL;
        YB_ASSERT(yb_wire_fragments_encode(&body, fuzz->body, BODY_MAX, &body_bytes) == YB_OK);
        data_bytes = type == YB_WIRE_TRANSFER_TYPE_WRITE ? data_bytes : 0;
    } else {
        fuzz->range_count = 0;
        body_bytes = (size_t)(asker_take(&fuzz->input, 2) % BODY_MAX);
        data_bytes = asker_take(&fuzz->input, 2) % DATA_MAX;
        asker_take_bytes(&fuzz->input, fuzz->body, body_bytes);
        decode_all(fuzz->body, body_bytes);
    }
    memset(fuzz->data, flags, data_bytes);
    fuzz->data_iov = (struct iovec){.iov_base = fuzz->data, .iov_len = data_bytes};
    fuzz->reply_iov = (struct iovec){.iov_base = fuzz->reply_data, .iov_len = DATA_MAX};
    fuzz->asker.call = (struct yb_call){
        .type = type,
        .class = YB_CLASS_THROUGHPUT,
        .lane = YB_WIRE_LANE_BULK,
        .mutates = type == YB_WIRE_TRANSFER_TYPE_NOTIFY,
        .body = fuzz->body,
        .body_bytes = (uint32_t)body_bytes,
        .data = &fuzz->data_iov,
        .data_count = data_bytes > 0 ? 1 : 0,
        .reply_body = fuzz->reply,
        .reply_body_room = BODY_MAX,
        .reply_data = &fuzz->reply_iov,
        .reply_data_count = 1,
    };
    asker_send(&fuzz->asker, 0);
    await_end(fuzz);
    judge(fuzz, type);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world_options options = {.seed = 1, .node_count = 2, .workers = 1, .streams = 1};
    struct fuzz *fuzz = calloc(1, sizeof(*fuzz));
    struct yb_sim_host *host;

    YB_ASSERT(fuzz != NULL);
    fuzz->input = (struct asker_input){data, size};
    fuzz->world = world_create(&options);
    fuzz->node = &fuzz->world->nodes[0];
    host = yb_sim_host_create(fuzz->world->sim, "asker", "10.0.1.1");
    asker_init(&fuzz->asker, host, 1, YB_WIRE_ROLE_CLIENT);
    asker_knows(&fuzz->asker, fuzz->node->host, ENGINE_PORT);
    for (uint32_t i = 0; i < STEPS_MAX && fuzz->input.left > 0; i++) {
        step(fuzz);
    }
    asker_fini(&fuzz->asker);
    world_refill(fuzz->world, &fuzz->node->area, 0, WORLD_AREA_BYTES); /* It could be written. */
    world_destroy(&fuzz->world);
    free(fuzz);
    return 0;
}
