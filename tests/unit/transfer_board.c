/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_board.h"

#include <dlfcn.h>

#include "memory/device/cuda.h"

#define GUARD_BYTES 256u
#define GUARD_VALUE 0x5a

struct board board;

static void *
function(void *library, const char *name)
{
    void *found = dlsym(library, name);

    assert_non_null(found);
    return found;
}

void
board_init(struct board *made)
{
    static const struct yb_memory_staging none = {.queues = 1};
    void *library = dlopen(YB_CUDA_LIBRARY, RTLD_NOW);
    void *found;

    assert_non_null(library);
    found = function(library, STANDIN_SET);
    memcpy(&made->set, &found, sizeof(found));
    found = function(library, STANDIN_GET);
    memcpy(&made->get, &found, sizeof(found));
    found = function(library, STANDIN_TOUCH);
    memcpy(&made->touch, &found, sizeof(found));
    assert_int_equal(made->set("seed", unit_seed("order of copies")), 0);
    assert_int_equal(yb_memory_create(&none, &made->memory, NULL, 0), YB_OK);
}

void
board_fini(struct board *made)
{
    static const char *const left[] = {"page_locked_bytes", "allocations", "streams", "events",
                                       "wrong_context",     "contexts"};

    yb_memory_destroy(&made->memory);
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (made->get(left[i]) != 0) {
            fail_msg("%s: %llu left", left[i], (unsigned long long)made->get(left[i]));
        }
    }
}

/* ---- buffers --------------------------------------------------------------------------- */

/* Copy between host memory and a buffer. */
static void
move(const struct buffer *buffer, uint8_t *place, uint8_t *host, size_t length, bool in)
{
    assert_int_equal(buffer->board->touch(in ? place : host, in ? host : place, length), 0);
}

void
buffer_init(struct buffer *buffer, struct board *on, struct yb_memory_place place, size_t length)
{
    size_t whole = length + 2 * GUARD_BYTES;
    uint8_t *bytes = calloc(1, whole);
    void *raw = NULL;

    assert_non_null(bytes);
    memset(bytes, GUARD_VALUE, GUARD_BYTES);
    memset(bytes + GUARD_BYTES + length, GUARD_VALUE, GUARD_BYTES);
    assert_int_equal(yb_memory_alloc(on->memory, place, whole, &raw), YB_OK);
    *buffer = (struct buffer){
        .board = on,
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
buffer_clear_range(const struct buffer *buffer, size_t at, size_t length)
{
    uint8_t *bytes = calloc(1, length + 1);

    assert_non_null(bytes);
    assert_true(at + length <= buffer->length);
    move(buffer, buffer->bytes + at, bytes, length, true);
    free(bytes);
}

void
buffer_clear(const struct buffer *buffer)
{
    buffer_clear_range(buffer, 0, buffer->length);
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

/* ---- a pair of engines ------------------------------------------------------------------ */

void
pair_init(struct pair *pair, struct yb_memory_place local, struct yb_memory_place remote,
          size_t length)
{
    duo_init(&pair->duo);
    buffer_init(&pair->local, &board, local, length);
    buffer_init(&pair->remote, &board, remote, length);
    pair->region = buffer_register(pair->duo.there, &pair->remote);
}

void
pair_fini(struct pair *pair)
{
    duo_fini(&pair->duo);
    buffer_fini(&pair->local);
    buffer_fini(&pair->remote);
}

void
await_copies(uint64_t copies)
{
    while (board.get("copies") < copies) {
        pause_ms(1);
    }
}

bool
await_copies_of(struct yb_transfer *engine, yb_transfer_batch batch, uint64_t copies)
{
    struct yb_transfer_batch_status now = {.status = YB_IN_PROGRESS};

    while (board.get("copies") < copies && now.status == YB_IN_PROGRESS) {
        pause_ms(1);
        assert_int_equal(yb_transfer_poll(engine, batch, &now, NULL, 0), YB_OK);
    }
    return board.get("copies") >= copies;
}

uint64_t
device_number(struct yb_transfer *engine, const char *name)
{
    char *text = NULL;
    char *part;
    char quoted[64];
    uint64_t number;

    assert_int_equal(yb_transfer_stats(engine, &text), YB_OK);
    part = strstr(text, "\"device\": {");
    assert_non_null(part);
    snprintf(quoted, sizeof(quoted), "\"%s\": ", name);
    part = strstr(part, quoted);
    assert_non_null(part);
    number = strtoull(part + strlen(quoted), NULL, 10);
    free(text);
    return number;
}
