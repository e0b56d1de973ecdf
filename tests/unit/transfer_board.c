/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_board.h"

#include <dlfcn.h>

#include "memory/device/cuda.h"

#define GUARD_BYTES 256u
#define GUARD_VALUE 0x5a

static void *
function(void *library, const char *name)
{
    void *found = dlsym(library, name);

    assert_non_null(found);
    return found;
}

void
board_init(struct board *board)
{
    static const struct yb_memory_staging none = {.queues = 1};
    void *library = dlopen(YB_CUDA_LIBRARY, RTLD_NOW);
    void *found;

    assert_non_null(library);
    found = function(library, STANDIN_SET);
    memcpy(&board->set, &found, sizeof(found));
    found = function(library, STANDIN_GET);
    memcpy(&board->get, &found, sizeof(found));
    assert_int_equal(board->set("seed", unit_seed("order of copies")), 0);
    assert_int_equal(yb_memory_create(&none, &board->memory, NULL, 0), YB_OK);
    assert_int_equal(yb_memory_queue_create(board->memory, &board->queue), YB_OK);
}

void
board_fini(struct board *board)
{
    static const char *const left[] = {"page_locked_bytes", "allocations", "streams", "events",
                                       "wrong_context",     "contexts"};

    yb_memory_queue_destroy(&board->queue);
    yb_memory_destroy(&board->memory);
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (board->get(left[i]) != 0) {
            fail_msg("%s: %llu left", left[i], (unsigned long long)board->get(left[i]));
        }
    }
}

/* ---- buffers --------------------------------------------------------------------------- */

static void
on_moved(struct yb_memory_copy *copy, enum yb_status status)
{
    *(enum yb_status *)copy->owner = status;
}

/* Copy between host memory and a buffer, and wait. */
static void
move(const struct buffer *buffer, uint8_t *place, uint8_t *host, size_t length, bool in)
{
    enum yb_status status = YB_IN_PROGRESS;
    struct yb_memory_copy copy = {
        .to = in ? place : host,
        .from = in ? host : place,
        .length = length,
        .to_place = in ? buffer->place : place_host,
        .from_place = in ? place_host : buffer->place,
        .done = on_moved,
        .owner = &status,
    };

    if (length == 0) {
        return;
    }
    if (buffer->place.kind == YB_MEMORY_HOST) {
        memcpy(in ? place : host, in ? host : place, length);
        return;
    }
    assert_int_equal(yb_memory_copy_start(buffer->board->queue, &copy), YB_OK);
    while (status == YB_IN_PROGRESS) {
        yb_memory_poll(buffer->board->queue);
    }
    assert_int_equal(status, YB_OK);
}

void
buffer_init(struct buffer *buffer, struct board *board, struct yb_memory_place place, size_t length)
{
    size_t whole = length + 2 * GUARD_BYTES;
    uint8_t *bytes = calloc(1, whole);
    void *raw = NULL;

    assert_non_null(bytes);
    memset(bytes, GUARD_VALUE, GUARD_BYTES);
    memset(bytes + GUARD_BYTES + length, GUARD_VALUE, GUARD_BYTES);
    assert_int_equal(yb_memory_alloc(board->memory, place, whole, &raw), YB_OK);
    *buffer = (struct buffer){
        .board = board,
        .place = place,
        .raw = raw,
        .bytes = (uint8_t *)raw + GUARD_BYTES,
        .length = length,
    };
    move(buffer, buffer->raw, bytes, whole, true);
    free(bytes);
}

void
buffer_fini(struct buffer *buffer)
{
    uint8_t guards[2 * GUARD_BYTES];

    move(buffer, buffer->raw, guards, GUARD_BYTES, false);
    move(buffer, buffer->bytes + buffer->length, guards + GUARD_BYTES, GUARD_BYTES, false);
    assert_true(all_are(guards, sizeof(guards), GUARD_VALUE));
    yb_memory_free(buffer->board->memory, buffer->place, (void **)&buffer->raw,
                   buffer->length + 2 * GUARD_BYTES);
    buffer->bytes = NULL;
}

void
buffer_fill(const struct buffer *buffer, size_t at, size_t length, uint64_t seed)
{
    uint8_t *bytes = malloc(length + 1);

    assert_non_null(bytes);
    assert_true(at + length <= buffer->length);
    fill(bytes, length, seed);
    move(buffer, buffer->bytes + at, bytes, length, true);
    free(bytes);
}

void
buffer_clear(const struct buffer *buffer)
{
    uint8_t *bytes = calloc(1, buffer->length + 1);

    assert_non_null(bytes);
    move(buffer, buffer->bytes, bytes, buffer->length, true);
    free(bytes);
}

uint8_t *
buffer_bytes(const struct buffer *buffer, size_t at, size_t length)
{
    uint8_t *bytes = malloc(length + 1);

    assert_non_null(bytes);
    assert_true(at + length <= buffer->length);
    move(buffer, buffer->bytes + at, bytes, length, false);
    return bytes;
}

void
buffer_expect(const struct buffer *buffer, size_t at, size_t length, uint64_t seed)
{
    uint8_t *bytes = buffer_bytes(buffer, at, length);
    uint8_t *expected = malloc(length + 1);

    assert_non_null(expected);
    fill(expected, length, seed);
    if (memcmp(bytes, expected, length) != 0) {
        fail_msg("byte %zu of %zu is wrong", differs(bytes, length, seed), length);
    }
    free(expected);
    free(bytes);
}

void
buffer_expect_clear(const struct buffer *buffer, size_t at, size_t length)
{
    uint8_t *bytes = buffer_bytes(buffer, at, length);

    assert_true(all_are(bytes, length, 0));
    free(bytes);
}

yb_transfer_region
buffer_register(struct yb_transfer *engine, const struct buffer *buffer)
{
    const struct yb_transfer_memory memory = {
        .struct_bytes = sizeof(memory),
        .location_kind = buffer->place.kind == YB_MEMORY_HOST ? YB_TRANSFER_LOCATION_ANY
                                                              : YB_TRANSFER_LOCATION_DEVICE,
        .location_index = buffer->place.index,
    };
    yb_transfer_region region = 0;

    assert_int_equal(yb_transfer_register(engine, buffer->bytes, buffer->length, &memory, &region),
                     YB_OK);
    return region;
}

struct yb_transfer_item
buffer_item(enum yb_transfer_op op, const struct buffer *local, yb_transfer_region remote)
{
    return (struct yb_transfer_item){
        .op = op,
        .local = local->bytes,
        .length = local->length,
        .remote = remote,
    };
}
