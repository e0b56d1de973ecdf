/* SPDX-License-Identifier: Apache-2.0
 *
 * object_medium.h -- a medium that holds one object and answers when the test says so, with a clock
 * that the test moves, below an object tier.
 */
#ifndef YB_TESTS_OBJECT_MEDIUM_H
#define YB_TESTS_OBJECT_MEDIUM_H

#include "base/clock.h"
#include "object_ground.h"

#define MEDIUM_FLYING_MAX 128u
#define MEDIUM_BYTES_MAX  200000u

struct medium {
    struct yb_object_backend head; /* First. */
    struct yb_clock clock;
    uint64_t far_ns; /* To the first byte of an answer; 0: a millisecond. */
    uint64_t now_ns;
    struct object_ground ground; /* Its options count until medium_start. */
    uint8_t object[MEDIUM_BYTES_MAX];
    uint64_t object_bytes;
    struct yb_object_request *flying[MEDIUM_FLYING_MAX]; /* Oldest first; `state` 1: asked back. */
    uint32_t count;
    uint64_t gets;
    void (*came)(struct medium *medium, struct yb_object_request *request); /* NULL: nobody. */
};

void medium_init(struct medium *medium);
/* Start the tier, and let it find that nothing is there. */
void medium_start(struct medium *medium);
/* Answer the request that is at this place. */
void medium_answer(struct medium *medium, uint32_t at, enum yb_status status);
void medium_turn(struct medium *medium, uint64_t later_ms);

#endif /* YB_TESTS_OBJECT_MEDIUM_H */
