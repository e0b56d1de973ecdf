/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_internal.h -- a trace that is being made: requests and blocks are appended.
 *
 * Threads   One owner.
 * Memory    The builder owns what it has until yb_trace_builder_end().
 */
#ifndef YB_SIM_TRACE_INTERNAL_H
#define YB_SIM_TRACE_INTERNAL_H

#include "sim/trace.h"

/* Outside names of blocks to dense numbers: open addressing, linear probing. */
struct yb_trace_names {
    uint64_t *names;
    uint32_t *numbers; /* Number + 1; 0: free. */
    uint64_t mask;
    uint64_t count;
};

struct yb_trace_builder {
    struct yb_trace *trace;
    struct yb_trace_names names;
    uint64_t request_room;
    uint64_t reference_room;
    uint64_t block_room;
    uint32_t last; /* The last block of the request that is being made; YB_TRACE_NONE: none. */
};

YB_CHECKED enum yb_status yb_trace_builder_init(struct yb_trace_builder *builder);
/* Free what there is; nothing after yb_trace_builder_end(). */
void yb_trace_builder_fini(struct yb_trace_builder *builder);

/* Begin a request; its blocks follow. Fails with TOO_LARGE or NO_MEMORY. */
YB_CHECKED enum yb_status yb_trace_builder_request(struct yb_trace_builder *builder,
                                                   const struct yb_trace_request *request);

/* Append a block, known by an outside name, to the last request. Fails with EXISTS if the block
 * had another parent before (T3), TOO_LARGE or NO_MEMORY. */
YB_CHECKED enum yb_status yb_trace_builder_block(struct yb_trace_builder *builder, uint64_t name);

/* Return the trace; the builder is empty then. */
struct yb_trace *yb_trace_builder_end(struct yb_trace_builder *builder);

#endif /* YB_SIM_TRACE_INTERNAL_H */
