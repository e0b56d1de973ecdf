/* SPDX-License-Identifier: Apache-2.0
 *
 * object_ground.h -- an object tier on a loop of the test's own: calls that wait for their end, a
 * folder that is removed afterwards, and what the tier told of itself.
 */
#ifndef YB_TESTS_OBJECT_GROUND_H
#define YB_TESTS_OBJECT_GROUND_H

#include "unit.h"

#include <string.h>

#include "tier/object/object.h"
#include "tier/tier.h"

#define GROUND_FOUND_MAX 4096u

struct object_ground {
    struct yb_loop *loop;
    uint64_t turn_ns; /* So long a turn waits at most: 0 where time is played. */
    struct yb_tier *tier;
    char folder[64];
    char url[80];
    struct yb_object_options options; /* What the next start is given. */
    struct {
        struct yb_id hash;
        uint64_t grant, flush, size;
        uint16_t flags;
        uint8_t mode, replicas;
        char tenant[72];
    } found[GROUND_FOUND_MAX];
    uint32_t found_count;
    bool refuse; /* `found` says that nobody wants it. */
    uint32_t lost;
    enum yb_status lost_why;
    uint32_t recovered;
    enum yb_status recovered_status;
    uint32_t aside_count;
    enum yb_status aside;
    char why[YB_OBJECT_WHY_BYTES];
};

/* A block that the tests make up: its bytes follow from its number and grant. */
struct object_block {
    struct yb_tier_store store;
    struct iovec iov[3];
    uint8_t *bytes;
    uint8_t key[64];
    bool ended;
    enum yb_status status;
};

struct object_reading {
    struct yb_tier_load load;
    struct iovec iov[3];
    uint8_t *bytes;
    bool ended;
    enum yb_status status;
};

void ground_init(struct object_ground *ground);
void ground_start(struct object_ground *ground);
void ground_recover(struct object_ground *ground);
void ground_stop(struct object_ground *ground);
void ground_fini(struct object_ground *ground);
void ground_turn(struct object_ground *ground, const bool *until);

struct yb_id ground_hash(uint64_t number);
void ground_fill(uint8_t *bytes, uint64_t size, uint64_t number, uint64_t grant);

void block_init(struct object_block *block, uint64_t number, uint64_t grant, uint64_t size);
void block_fini(struct object_block *block);
void block_submit(struct object_ground *ground, struct object_block *block);
enum yb_status block_store(struct object_ground *ground, uint64_t number, uint64_t grant,
                           uint64_t size);

void reading_init(struct object_reading *reading, uint64_t number, uint64_t grant, uint64_t offset,
                  uint64_t length);
void reading_fini(struct object_reading *reading);
void reading_submit(struct object_ground *ground, struct object_reading *reading);
/* Read and compare. */
enum yb_status block_load(struct object_ground *ground, uint64_t number, uint64_t grant,
                          uint64_t size);
enum yb_status block_load_range(struct object_ground *ground, uint64_t number, uint64_t grant,
                                uint64_t offset, uint64_t length);

enum yb_status block_kill(struct object_ground *ground, uint64_t number, uint64_t grant);
enum yb_status tenant_flush(struct object_ground *ground, uint64_t flush);

#endif /* YB_TESTS_OBJECT_GROUND_H */
