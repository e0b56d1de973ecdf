/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h -- what policies share that judge a block by the request that used it.
 *
 * The prompt of a request is a path of blocks. Either it goes on from where an earlier request had
 * ended (the next turn of a conversation, the next step of an agent), or it begins something new,
 * perhaps behind a prefix that many share. So the blocks of a path are of three sorts:
 *
 *   body    what the request has for itself; it is used again if the conversation goes on
 *   tail    the last block, which is seldom full and so seldom found again
 *   shared  what others go on from too: where YB_PATH_BRANCHES children came while there were
 *           others, or where something new begins behind it
 *
 * A record (hazard.h) is made for each request: of the last block but one, which stands for the
 * body, of the tail, and of the deepest shared block. A request that uses, or brings again, a block
 * of which there is a record, goes on from there. So a conversation is known again when its blocks
 * are long gone. Which class a record has, and what that is worth, says the policy (struct
 * yb_path_kind).
 *
 * Which uses are one request: those of one number; without numbers those whose positions go on;
 * without positions those of one moment, as a batch has.
 *
 * Requests overlap. The blocks of one that is under way are in a slot, in their order; when it
 * rests for 2 s, when the slot is needed, or another request goes on from it, the slot is closed:
 * its blocks get their classes, the last one first, so that what is furthest back is the oldest of
 * its list.
 *
 * The lists: one for each class and weight, in the order of the last use, and one for each slot. A
 * weight is how dear a block is to have again, by its size, beside the mean: three steps. A block
 * of which it is told when it is used next (or how often) is believed: lists by that time.
 *
 * The victim is what is worth least of the oldest of all lists; of the newest too, if the policy
 * says that worth may rise with age; and of the last block of each slot but the one that grows. So
 * a victim costs O(classes).
 *
 * Threads   One owner; no lock.
 * Memory    As policy.h: all at create.
 */
#ifndef YB_POLICY_PATH_H
#define YB_POLICY_PATH_H

#include "policy/hazard.h"
#include "policy/policy_internal.h"

#define YB_PATH_BRANCHES 10u
#define YB_PATH_FULL     100e9 /* Of the clock by volume, when as much was used as is there. */

/* What a policy knows of a request when it gives a class to what it used. */
struct yb_path_request {
    bool goes_on;           /* From an earlier one, whose ... */
    uint32_t class_before;  /* ... record had this class, and ... */
    uint64_t idle;          /* ... was made so long before, by the clock of records. */
    uint32_t blocks;        /* In all. */
    uint32_t new_blocks;    /* Behind the last that was known. */
    uint32_t answer_tokens; /* 0: not known. */
};

struct yb_path;

struct yb_path_kind {
    bool by_volume; /* The clock of records is what was used, YB_PATH_FULL for the policy's size. */
    bool may_rise;  /* What is older may be worth more. */

    /* Set how classes lean on each other. */
    void (*classes)(struct yb_hazard_class classes[YB_HAZARD_CLASSES]);

    /* Return the class of a body. */
    uint32_t (*body)(const struct yb_path_request *request);

    /* Return the class of a tail, or of a shared block; NULL: that of the body, without a record of
     * its own. */
    uint32_t (*tail)(uint32_t body);
    uint32_t (*shared)(uint32_t uses);

    /* Say which classes are those; NULL: none. */
    bool (*is_tail)(uint32_t class_index);
    bool (*is_shared)(uint32_t class_index);

    /* Return what a block is worth; the least goes first. */
    double (*worth)(const struct yb_path *path, uint32_t class_index, uint64_t age);

    /* Hear of a use that was recorded, `idle` after the one before; NULL: not wanted. */
    void (*used)(struct yb_path *path, uint32_t class_index, uint64_t idle);
};

/* What the policies' tables are made of, beside `create`. */
enum yb_status yb_path_create(const struct yb_policy_options *options,
                              const struct yb_path_kind *kind, void **state_out);
void yb_path_destroy(void *state);
void yb_path_insert(void *state, struct yb_policy_entry *entry,
                    const struct yb_policy_touch *touch);
void yb_path_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch);
void yb_path_take(void *state, struct yb_policy_entry *entry);
void yb_path_leave(void *state, struct yb_policy_entry *entry, bool evicted);
struct yb_policy_entry *yb_path_first(void *state, bool look);
uint32_t yb_path_remembered(const void *state);

/* For `worth` and `used`. */
const struct yb_hazard *yb_path_hazard(const struct yb_path *path);

/* Return how long blocks had not been used when they were evicted, on the average of late. */
double yb_path_left_age_s(const struct yb_path *path);

/* Return the clock of records, and how much the last request used, in sizes of what is there. */
double yb_path_clock(const struct yb_path *path);
double yb_path_request_size(const struct yb_path *path);

/* What a policy keeps for itself; zero at first. */
#define YB_PATH_OWN 512u
double *yb_path_own(struct yb_path *path);
const double *yb_path_own_read(const struct yb_path *path);

#endif /* YB_POLICY_PATH_H */
