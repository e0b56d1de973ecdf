/* SPDX-License-Identifier: Apache-2.0
 *
 * far.h -- a medium that is farther away than it is, slower, or gone for a while: on purpose.
 *
 * Around another medium: each request begins later. What a demo, a measurement or a test asks for
 * is written in a file, which is read again as it changes:
 *
 *     20      each request begins 20 ms later
 *     gone    each request fails as if nobody were there
 *
 * With no such file, or another text in it, requests begin at once.
 *
 * Threads   The loop's.
 * Memory    The medium behind is consumed.
 */
#ifndef YB_TIER_OBJECT_FAR_H
#define YB_TIER_OBJECT_FAR_H

#include "tier/object/backend.h"

struct yb_object_far_options {
    struct yb_loop *loop;
    struct yb_object_backend *behind; /* Consumed on OK. */
    const char *control;              /* The file; NULL: `latency_ns` holds for ever. Copied. */
    uint64_t latency_ns;
    bool reads_only; /* Only GETs begin later. */
    /* Called with each request as it comes; may be NULL. */
    void (*seen)(void *context, const struct yb_object_request *request);
    void *context;
};

/* Fails with INVALID (the file's name is too long) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_object_far_create(const struct yb_object_far_options *options,
                                               struct yb_object_backend **backend_out);

#endif /* YB_TIER_OBJECT_FAR_H */
