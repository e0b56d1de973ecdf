/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo_process.h"
#include "cli/measure.h"

#define FLIGHTS   4u                   /* Fetches that the window is asked for in. */
#define OPEN_NS   (10 * YB_NS_PER_S)   /* To join the cluster. */
#define NEXT_NS   (60 * YB_NS_PER_S)   /* Until a block is there. */
#define BATCH     64u                  /* Blocks of a put. */
#define LOOK      4096u                /* Blocks of a question whether they are there. */
#define ROUNDS    20u                  /* In which what is missing is put again. */
#define PACE_NS   (100 * YB_NS_PER_MS) /* A batch goes down to the object store meanwhile. */
#define TRIES     200u                 /* For a batch that the nodes have no room for yet. */
#define AGAIN_NS  (50 * YB_NS_PER_MS)
#define FILLER    "filler"
#define FILLER_AT 8u /* Where its number is in a filler's key. */

static bool
join(const char *directory, struct yb_client **client_out, char error[160])
{
    const struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = directory,
        .no_shared_memory = true, /* As from another machine; and nodes' memory is not its own. */
    };

    return yb_client_open(&options, OPEN_NS, client_out, error, 160) == YB_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A part of the window. */
struct flight {
    yb_client_handle handle;
    uint32_t first; /* Of the prompt's blocks. */
    uint32_t count;
    struct yb_client_item *items;
    struct iovec *iov;
    uint8_t *bytes;
};

struct reader {
    const struct yb_demo_reading *reading;
    struct yb_demo_read *read;
    struct yb_client *client;
    struct flight flights[FLIGHTS];
    uint32_t flight_blocks;
    uint32_t asked; /* Blocks, from the first. */
    uint64_t begun_ns;
};

static void
reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");

    if (file != NULL) {
        (void)fputs("5", file);
        (void)fclose(file);
    }
}

static bool
make_flights(struct reader *reader)
{
    reader->flight_blocks = reader->reading->window / FLIGHTS;
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &reader->flights[i];

        flight->items = calloc(reader->flight_blocks, sizeof(*flight->items));
        flight->iov = calloc(reader->flight_blocks, sizeof(*flight->iov));
        flight->bytes = malloc((size_t)reader->flight_blocks * reader->reading->block_bytes);
        if (flight->items == NULL || flight->iov == NULL || flight->bytes == NULL) {
            return false;
        }
    }
    return true;
}

static void
free_flights(struct reader *reader)
{
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        free(reader->flights[i].items);
        free(reader->flights[i].iov);
        free(reader->flights[i].bytes);
    }
}

/* Ask for what comes next in the prompt. False: the client does not take it. */
static bool
ask(struct reader *reader, struct flight *flight)
{
    const struct yb_demo_reading *reading = reader->reading;
    const struct yb_client_fetch_options options = {.struct_bytes = sizeof(options),
                                                    .ordered = true};
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = NEXT_NS};
    uint32_t left = reading->blocks - reader->asked;

    flight->first = reader->asked;
    flight->count = left < reader->flight_blocks ? left : reader->flight_blocks;
    for (uint32_t i = 0; i < flight->count; i++) {
        flight->iov[i] =
            (struct iovec){flight->bytes + (size_t)i * reading->block_bytes, reading->block_bytes};
        flight->items[i] = (struct yb_client_item){
            .key = reading->keys[flight->first + i],
            .key_bytes = YB_KV_KEY_BYTES,
            .iov = &flight->iov[i],
            .iov_count = 1,
        };
    }
    reader->asked += flight->count;
    return flight->count == 0 || yb_client_fetch(reader->client, flight->items, flight->count,
                                                 &call, &options, &flight->handle) == YB_OK;
}

/* Consume a block: look at each of its bytes. */
static void
consume(struct reader *reader, const struct flight *flight, uint32_t index)
{
    const struct yb_demo_reading *reading = reader->reading;
    const struct yb_client_item *item = &flight->items[index];
    struct yb_demo_read *read = reader->read;
    size_t wrong = 0;

    if (item->status != YB_OK || item->bytes != reading->block_bytes) {
        read->failed++;
        return;
    }
    if (read->blocks++ == 0) {
        read->first_ns = yb_measure_now_ns() - reader->begun_ns;
    }
    (void)yb_kv_check(reading->keys[flight->first + index], 0, flight->iov[index].iov_base,
                      reading->block_bytes, &wrong);
    read->bytes += reading->block_bytes;
    read->wrong_bytes += wrong;
    read->tier_blocks[item->tier <= YB_CLIENT_TIER_OBJECT ? item->tier : YB_CLIENT_TIER_NONE]++;
}

/* Consume a part of the window, one block after the other. */
static bool
consume_flight(struct reader *reader, struct flight *flight)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        uint32_t index = i;

        if (yb_client_fetch_next(reader->client, flight->handle, NEXT_NS, &index) != YB_OK) {
            return false;
        }
        reader->read->out_of_order += index != i;
        consume(reader, flight, index);
    }
    return flight->count == 0 ||
           (yb_client_wait(reader->client, flight->handle, NEXT_NS) == YB_OK &&
            yb_client_finish(reader->client, flight->handle) == YB_OK);
}

static bool
read_all(struct reader *reader)
{
    uint32_t taken = 0;

    reader->begun_ns = yb_measure_now_ns();
    for (uint32_t i = 0; i < FLIGHTS; i++) {
        if (!ask(reader, &reader->flights[i])) {
            return false;
        }
    }
    for (uint32_t turn = 0; taken < reader->reading->blocks; turn++) {
        struct flight *flight = &reader->flights[turn % FLIGHTS];

        if (!consume_flight(reader, flight)) {
            return false;
        }
        taken += flight->count;
        if (!ask(reader, flight)) {
            return false;
        }
    }
    reader->read->took_ns = yb_measure_now_ns() - reader->begun_ns;
    return true;
}

bool
yb_demo_read(const void *context, void *result_out)
{
    struct reader reader = {.reading = context, .read = result_out};
    struct yb_demo_read *read = result_out;

    *read = (struct yb_demo_read){.error = ""};
    YB_ASSERT(reader.reading->window >= FLIGHTS);
    if (!join(reader.reading->directory, &reader.client, read->error)) {
        return true;
    }
    reset_peak();
    read->before_bytes = yb_measure_resident_bytes(getpid());
    if (!make_flights(&reader) || !read_all(&reader)) {
        (void)snprintf(read->error, sizeof(read->error), "the store did not bring block %u",
                       (unsigned)(read->blocks + read->failed));
    }
    read->peak_bytes = yb_measure_peak_bytes(getpid());
    yb_client_close(&reader.client);
    free_flights(&reader);
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A batch of blocks that are put. */
struct batch {
    struct yb_client_item items[BATCH];
    struct iovec iov[BATCH];
    uint8_t keys[BATCH][YB_KV_KEY_BYTES];
    uint32_t count;
    uint8_t *bytes;
};

static void
add(struct batch *batch, const uint8_t key[YB_KV_KEY_BYTES], uint32_t block_bytes)
{
    uint32_t at = batch->count++;

    YB_ASSERT(at < BATCH);
    memcpy(batch->keys[at], key, YB_KV_KEY_BYTES);
    batch->iov[at] = (struct iovec){batch->bytes + (size_t)at * block_bytes, block_bytes};
    yb_kv_fill(key, 0, batch->iov[at].iov_base, block_bytes);
    batch->items[at] = (struct yb_client_item){
        .key = batch->keys[at],
        .key_bytes = YB_KV_KEY_BYTES,
        .iov = &batch->iov[at],
        .iov_count = 1,
    };
}

/* Put a batch, and empty it; again while the nodes' memory is still going down. What comes faster
 * than it can go down is given up by a node that needs the room. */
static void
put(struct yb_client *client, struct batch *batch, struct yb_demo_written *written)
{
    for (uint32_t tries = 0; tries < TRIES && batch->count > 0; tries++) {
        enum yb_status status = yb_client_put(client, batch->items, batch->count, NULL);
        uint32_t left = 0;

        for (uint32_t i = 0; i < batch->count; i++) {
            enum yb_status one = status == YB_OK ? batch->items[i].status : status;

            if (one != YB_OK && one != YB_EXISTS) {
                left++;
                (void)snprintf(written->error, sizeof(written->error), "a block is not put: %s",
                               yb_status_text(one));
            }
        }
        if (left == 0) {
            break;
        }
        yb_demo_pause(AGAIN_NS);
    }
    batch->count = 0;
}

/* Put what is not there. Returns how many that were. */
static uint64_t
put_missing(struct yb_client *client, const struct yb_demo_reading *what, struct batch *batch,
            struct yb_client_item *items, struct yb_demo_written *written)
{
    uint64_t missing = 0;

    for (uint32_t at = 0; at < what->blocks; at += LOOK) {
        uint32_t count = what->blocks - at < LOOK ? what->blocks - at : LOOK;
        enum yb_status status;

        memset(items, 0, count * sizeof(*items));
        for (uint32_t i = 0; i < count; i++) {
            items[i].key = what->keys[at + i];
            items[i].key_bytes = YB_KV_KEY_BYTES;
        }
        status = yb_client_exist(client, items, count, NULL);
        for (uint32_t i = 0; i < count; i++) {
            if (status != YB_OK || items[i].status != YB_OK) {
                missing++;
                add(batch, what->keys[at + i], what->block_bytes);
                if (batch->count == BATCH) {
                    put(client, batch, written);
                    yb_demo_pause(PACE_NS);
                }
            }
        }
    }
    put(client, batch, written);
    yb_demo_pause(PACE_NS);
    return missing;
}

/* What other prompts would have put meanwhile. */
static void
put_filler(struct yb_client *client, const struct yb_demo_writing *writing, struct batch *batch,
           struct yb_demo_written *written)
{
    for (uint32_t i = 0; i < writing->filler; i++) {
        uint8_t key[YB_KV_KEY_BYTES] = FILLER;

        memcpy(key + FILLER_AT, &i, sizeof(i));
        add(batch, key, writing->what.block_bytes);
        if (batch->count == BATCH || i + 1 == writing->filler) {
            put(client, batch, written);
        }
    }
}

bool
yb_demo_write(const void *context, void *result_out)
{
    const struct yb_demo_writing *writing = context;
    struct yb_demo_written *written = result_out;
    struct batch *batch = calloc(1, sizeof(*batch));
    struct yb_client_item *items = calloc(LOOK, sizeof(*items));
    struct yb_client *client = NULL;

    *written = (struct yb_demo_written){.missing = writing->what.blocks};
    if (batch != NULL) {
        batch->bytes = malloc((size_t)BATCH * writing->what.block_bytes);
    }
    if (batch == NULL || batch->bytes == NULL || items == NULL) {
        return false;
    }
    if (join(writing->what.directory, &client, written->error)) {
        (void)put_missing(client, &writing->what, batch, items, written);
        put_filler(client, writing, batch, written);
        for (uint32_t i = 0; i < ROUNDS && written->missing > 0; i++) {
            written->missing = put_missing(client, &writing->what, batch, items, written);
        }
        yb_client_close(&client);
    }
    return true;
}
