/* SPDX-License-Identifier: Apache-2.0
 *
 * decoding.h -- how many requests will be decoded at some time ahead, all places together.
 *
 * Each accepted request is expected to be decoded from the end of its prefill on, until it is known
 * to have ended. How many of them will still be there at some time is learned from how long decodes
 * lasted: survival(age) is the share of those that lasted longer. What has lasted for `age` now
 * will be there later with survival(later age) / survival(age). (The paper that this is from,
 * Mooncake, arXiv 2407.00079 v3, lets all last equally long; answers of two kinds, short and long,
 * are then counted badly.)
 *
 * Requests are counted by when their prefill ends, in slots of half a second, so a question costs
 * as many steps as there are slots, 512.
 *
 * Threads   One owner; questions from any thread while nothing changes.
 * Memory    A plain struct; a zeroed one is empty.
 * Time      Passed in.
 */
#ifndef YB_SCHED_DECODING_H
#define YB_SCHED_DECODING_H

#include <stdint.h>

#define YB_SCHED_DECODING_SLOTS 512u
#define YB_SCHED_DECODING_BINS  40u

struct yb_sched_decoding_load {
    double requests;
    double context_tokens;
};

struct yb_sched_decoding {
    double ended;                        /* So many have been learned from; older ones fade. */
    double bins[YB_SCHED_DECODING_BINS]; /* Those by how long they lasted: bins grow by 2^(1/4). */
    struct {
        uint64_t slot; /* Of absolute time, plus 1; an old one is empty. */
        uint32_t requests;
        uint64_t context_tokens;
    } slots[YB_SCHED_DECODING_SLOTS];
};

/* The prefill of a request is expected to end then. */
void yb_sched_decoding_add(struct yb_sched_decoding *decoding, uint64_t prefilled_ns,
                           uint64_t context_tokens);

/* That request is gone; the arguments are those of its add. */
void yb_sched_decoding_drop(struct yb_sched_decoding *decoding, uint64_t prefilled_ns,
                            uint64_t context_tokens);

/* A decode has ended after so long. */
void yb_sched_decoding_ended(struct yb_sched_decoding *decoding, uint64_t took_ns);

/* Return what is being decoded at `at_ns`, as is expected at `now_ns`. */
struct yb_sched_decoding_load yb_sched_decoding_at(const struct yb_sched_decoding *decoding,
                                                   uint64_t now_ns, uint64_t at_ns);

#endif /* YB_SCHED_DECODING_H */
