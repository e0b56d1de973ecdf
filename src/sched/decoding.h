/* SPDX-License-Identifier: Apache-2.0
 *
 * decoding.h -- how many requests will be decoded at some time ahead, all places together.
 *
 * Each accepted request is expected to be decoded from the end of its prefill on, for as long as
 * decodes last on the average; that is learned from those that have ended. Requests are counted by
 * when their prefill ends, in slots of half a second, so a question costs as many steps as there
 * are slots in a decode, 512 at most.
 *
 * Threads   One owner; questions from any thread while nothing changes.
 * Memory    A plain struct; a zeroed one is empty.
 * Time      Passed in.
 */
#ifndef YB_SCHED_DECODING_H
#define YB_SCHED_DECODING_H

#include <stdint.h>

#define YB_SCHED_DECODING_SLOTS 512u

struct yb_sched_decoding {
    double span_ns; /* How long decodes last; 0: none has ended. */
    struct {
        uint64_t slot; /* Of absolute time, plus 1; an old one is empty. */
        uint32_t requests;
        uint64_t context_tokens;
    } slots[YB_SCHED_DECODING_SLOTS];
};

struct yb_sched_decoding_load {
    double requests;
    double context_tokens;
};

/* The prefill of a request is expected to end then. */
void yb_sched_decoding_add(struct yb_sched_decoding *decoding, uint64_t prefilled_ns,
                           uint64_t context_tokens);

/* A decode has ended after so long. */
void yb_sched_decoding_ended(struct yb_sched_decoding *decoding, uint64_t took_ns);

/* Return what is being decoded at `at_ns`, as expected. */
struct yb_sched_decoding_load yb_sched_decoding_at(const struct yb_sched_decoding *decoding,
                                                   uint64_t at_ns);

#endif /* YB_SCHED_DECODING_H */
