/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_board.h -- memory of any kind for tests of the engine, and the stand-in for the driver.
 *
 * A buffer lies in host memory or on a device of the stand-in (tests/device), with guards around
 * it. The CPU cannot touch a device's: its bytes come and go by copies of the test's own queue.
 *
 * Threads   The test's.
 */
#ifndef YB_TESTS_TRANSFER_BOARD_H
#define YB_TESTS_TRANSFER_BOARD_H

#include "../device/standin_cuda.h"
#include "memory/memory_type.h"
#include "transfer_duo.h"

/* The test's own way to device memory, beside the engines'. */
struct board {
    struct yb_memory *memory;
    struct yb_memory_queue *queue;
    standin_set_fn set;
    standin_get_fn get;
};

void board_init(struct board *board);
/* Check that nothing of the driver is left over, and let go. */
void board_fini(struct board *board);

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
void buffer_init(struct buffer *buffer, struct board *board, struct yb_memory_place place,
                 size_t length);
/* Check the guards and free. */
void buffer_fini(struct buffer *buffer);
void buffer_fill(const struct buffer *buffer, size_t at, size_t length, uint64_t seed);
void buffer_clear(const struct buffer *buffer);
/* Copy out; the caller frees. */
uint8_t *buffer_bytes(const struct buffer *buffer, size_t at, size_t length);
void buffer_expect(const struct buffer *buffer, size_t at, size_t length, uint64_t seed);
void buffer_expect_clear(const struct buffer *buffer, size_t at, size_t length);

yb_transfer_region buffer_register(struct yb_transfer *engine, const struct buffer *buffer);
/* All of it, to or from the start of a region. */
struct yb_transfer_item buffer_item(enum yb_transfer_op op, const struct buffer *local,
                                    yb_transfer_region remote);

#endif /* YB_TESTS_TRANSFER_BOARD_H */
