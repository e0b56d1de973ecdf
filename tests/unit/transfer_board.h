/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_board.h -- memory of any kind for tests of the engine, and the stand-in for the driver.
 *
 * A buffer lies in host memory or on a device of the stand-in (tests/device), with guards around
 * it. The CPU cannot touch a device's: its bytes come and go through the stand-in, at once and
 * beside its streams, so that a test waits for the engine only.
 *
 * Threads   The test's.
 */
#ifndef YB_TESTS_TRANSFER_BOARD_H
#define YB_TESTS_TRANSFER_BOARD_H

#include "../device/standin_cuda.h"
#include "memory/memory_type.h"
#include "transfer_duo.h"

#define SLICE (256u * 1024u)

/* The test's own way to device memory, beside the engines'. */
struct board {
    struct yb_memory *memory;
    standin_set_fn set;
    standin_get_fn get;
    standin_touch_fn touch;
};

extern struct board board; /* The test program's. */

void board_init(struct board *made);
/* Check that nothing of the driver is left over, and let go. */
void board_fini(struct board *made);

static const struct yb_memory_place place_host = {YB_MEMORY_HOST, 0};
static const struct yb_memory_place place_first = {YB_MEMORY_CUDA, 0};
static const struct yb_memory_place place_second = {YB_MEMORY_CUDA, 1};

struct buffer {
    struct board *board;
    struct yb_memory_place place;
    uint8_t *raw;
    uint8_t *bytes; /* Between the guards. */
    size_t length;
};

/* All bytes are 0. */
void buffer_init(struct buffer *buffer, struct board *on, struct yb_memory_place place,
                 size_t length);
/* Check the guards and free. */
void buffer_fini(struct buffer *buffer);
void buffer_fill(const struct buffer *buffer, size_t at, size_t length, uint64_t seed);
void buffer_clear_range(const struct buffer *buffer, size_t at, size_t length);
void buffer_clear(const struct buffer *buffer);
/* Copy out; the caller frees. */
uint8_t *buffer_bytes(const struct buffer *buffer, size_t at, size_t length);
void buffer_expect(const struct buffer *buffer, size_t at, size_t length, uint64_t seed);
void buffer_expect_clear(const struct buffer *buffer, size_t at, size_t length);

yb_transfer_region buffer_register(struct yb_transfer *engine, const struct buffer *buffer);
/* All of it, to or from the start of a region. */
struct yb_transfer_item buffer_item(enum yb_transfer_op op, const struct buffer *local,
                                    yb_transfer_region remote);

/* Two engines, memory at both ends, and the region of what is there. */
struct pair {
    struct duo duo;
    struct buffer local;
    struct buffer remote;
    yb_transfer_region region;
};

void pair_init(struct pair *pair, struct yb_memory_place local, struct yb_memory_place remote,
               size_t length);
void pair_fini(struct pair *pair);

/* Wait until the driver has been given that many copies. */
void await_copies(uint64_t copies);
/* Wait for that, or for the batch to end before. Returns whether the copies have begun. */
bool await_copies_of(struct yb_transfer *engine, yb_transfer_batch batch, uint64_t copies);

/* Read a number of the statistics' part about devices. */
uint64_t device_number(struct yb_transfer *engine, const char *name);

#endif /* YB_TESTS_TRANSFER_BOARD_H */
