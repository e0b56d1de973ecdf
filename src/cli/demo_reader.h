/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_reader.h -- a long prompt's blocks: who puts them, and who reads them through a window.
 *
 *     the prompt    [ consumed | in the window: here, or on their way | not asked for yet ]
 *                                ^ the next to be consumed
 *
 * The window is asked for in a few fetches, one behind the other. When the oldest has been consumed
 * its memory is asked to be filled with what comes next, so that the store always has something to
 * do. Blocks are consumed in the prompt's order, as attention over them would be, and each of their
 * bytes is compared.
 *
 * Threads   Each is meant to be run by yb_demo_elsewhere(): a process of its own.
 * Memory    What it is told is borrowed.
 */
#ifndef YB_CLI_DEMO_READER_H
#define YB_CLI_DEMO_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/kv.h"
#include "yuebing/client.h"

/* What is to be read. */
struct yb_demo_reading {
    const char *directory;
    const uint8_t (*keys)[YB_KV_KEY_BYTES]; /* The bytes of each block follow from its key. */
    uint32_t blocks;
    uint32_t block_bytes;
    uint32_t window; /* Blocks. */
};

/* How that was. */
struct yb_demo_read {
    uint64_t blocks; /* That were consumed ... */
    uint64_t bytes;  /* ... and their bytes, all of which were compared. */
    uint64_t wrong_bytes;
    uint64_t failed;       /* Blocks that did not come. */
    uint64_t out_of_order; /* Blocks that were handed out before their turn. */
    uint64_t tier_blocks[YB_CLIENT_TIER_OBJECT + 1];
    uint64_t first_ns;     /* Until the first was there ... */
    uint64_t took_ns;      /* ... and the last. */
    uint64_t before_bytes; /* Resident memory before the first was asked for ... */
    uint64_t peak_bytes;   /* ... and the most that there was. */
    char error[160];       /* Why nothing was read. */
};

/* What is to be put. */
struct yb_demo_writing {
    struct yb_demo_reading what;
    uint32_t filler; /* So many other blocks after them. */
};

struct yb_demo_written {
    uint64_t missing; /* Blocks that are not there in the end. */
    char error[160];
};

/* `context`: struct yb_demo_reading; `result_out`: struct yb_demo_read. */
bool yb_demo_read(const void *context, void *result_out);

/* `context`: struct yb_demo_writing; `result_out`: struct yb_demo_written. */
bool yb_demo_write(const void *context, void *result_out);

#endif /* YB_CLI_DEMO_READER_H */
