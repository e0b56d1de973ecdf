/* SPDX-License-Identifier: Apache-2.0
 *
 * hazard.h -- when will it be used again? Learned from what was used again, and when.
 *
 * Things come in classes (turns of a conversation of one depth, say). Each thing that comes is
 * recorded: its class, the time, and a hash by which it is known when it is used again. From the
 * records follows, for each class and age, how likely the next use is, and from that the index:
 *
 *     index(class, age) = max over T of P(used before age + T) / E[time that it is kept until then]
 *
 * both given that it was not used up to `age`. This is Gittins' index of the place that the thing
 * takes up: uses per second that it will bring, if it is kept for as long as is best. What has the
 * least index goes first. It rises while a use comes nearer (a user reads the answer before asking
 * on) and falls when it did not come.
 *
 * The model: of a class c a share P(c) is used again at all; when, is alike for all classes
 * of a kind: the probability of class c and time bin b is P(c) f(kind, b), fitted by turns
 * (counts are Poisson). Classes with few records lean on their family, bins on the model, by
 * weights that count like so many records.
 *
 * What was not used again yet counts only up to its age (censoring): for each bin a pointer runs
 * along the ring of records and stands at the first that has not reached that bin.
 *
 * Threads   One owner; no lock.
 * Memory    All is allocated by create: 24 to 28 bytes for each record that is kept, and 230 KiB.
 * Time      Passed in; it may stand still, and a step back counts as standing still. A record costs
 *           O(bins), a fit O(classes x bins^2), one every YB_HAZARD_FIT records.
 */
#ifndef YB_POLICY_HAZARD_H
#define YB_POLICY_HAZARD_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_HAZARD_CLASSES 224u
#define YB_HAZARD_KINDS   4u
#define YB_HAZARD_BINS    32u
#define YB_HAZARD_FIT     192u
#define YB_HAZARD_NONE    UINT32_MAX

struct yb_hazard;

/* What a class leans on; the table is the caller's, borrowed until destroy. */
struct yb_hazard_class {
    uint8_t kind;   /* Below YB_HAZARD_KINDS: whose times of use it shares. */
    uint8_t family; /* Below YB_HAZARD_CLASSES: whose share it leans on. */
};

/* Create with room for `record_count` records, 1 or more. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_hazard_create(const struct yb_hazard_class *classes,
                                           uint32_t record_count, struct yb_hazard **hazard_out);
void yb_hazard_destroy(struct yb_hazard **hazard);

/* Record that a thing of a class came, at a time that should not be before that of the record
 * before; returns its number, which other records get only after
 * 2^32 others. */
uint32_t yb_hazard_born(struct yb_hazard *hazard, uint32_t class_index, uint32_t hash,
                        uint64_t now_ns);

/* Return the last record of a hash that was not used again, YB_HAZARD_NONE: none is known. */
uint32_t yb_hazard_find(const struct yb_hazard *hazard, uint32_t hash);

/* Return the class of a record, YB_HAZARD_NONE if it is forgotten. */
uint32_t yb_hazard_class_of(const struct yb_hazard *hazard, uint32_t record);

/* Return how long before `at` a record was made; UINT64_MAX if it is forgotten. */
uint64_t yb_hazard_idle(const struct yb_hazard *hazard, uint32_t record, uint64_t at);

/* Whether a record is kept and of this hash. */
bool yb_hazard_is(const struct yb_hazard *hazard, uint32_t record, uint32_t hash);

/* Note that what was recorded is used again. Returns false, and nothing happens, if it was before,
 * or is forgotten. */
bool yb_hazard_used(struct yb_hazard *hazard, uint32_t record, uint64_t now_ns);

/* Return the index of something of a class that was last used `age_ns` ago, in uses per second. */
double yb_hazard_index(const struct yb_hazard *hazard, uint32_t class_index, uint64_t age_ns);

/* Return how many records are kept. */
uint32_t yb_hazard_count(const struct yb_hazard *hazard);

/* What is believed now: the share of a class that is used again; the mean time until then; the
 * probability that the next use is in a bin; and which bin an age is in. */
double yb_hazard_share(const struct yb_hazard *hazard, uint32_t class_index);
double yb_hazard_mean_s(const struct yb_hazard *hazard, uint32_t class_index);
double yb_hazard_chance(const struct yb_hazard *hazard, uint32_t class_index, uint32_t bin);
uint32_t yb_hazard_bin(uint64_t age_ns);

#endif /* YB_POLICY_HAZARD_H */
