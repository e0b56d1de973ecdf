/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h -- what was asked of a cluster, and when: request traces, read or generated.
 *
 * A trace is a list of requests in the order of their arrival. The prompt of each is a chain of
 * blocks; a block is a number that stands for its tokens and all before it, so that two prompts
 * share their beginning as far as their numbers are equal. Numbers are dense, from 0 in the order
 * of first appearance as read, and each has at most one parent: the block before it.
 *
 * Formats, one JSON object a line:
 *
 *   mooncake  {"timestamp": ms, "input_length": tokens, "output_length": tokens,
 *             "hash_ids": [int, ...]}: one id for every 512 tokens, the last block may be partial;
 *             an id covers its block and all before it.
 *   bailian   "timestamp" in seconds, a real number; one id for every 16 tokens; an id covers its
 *             block alone, so ids are hashed in a chain here. More fields ("chat_id", "turn", ...)
 *             are allowed and not used.
 *   auto      bailian if the first line has a "chat_id" or a "parent_chat_id", or a timestamp with
 *             a fraction; otherwise mooncake.
 *
 * Changes made while reading, in this order: arrivals that were rounded to a tick are
 * spread over it (`spread`), some requests come within a second of one with which they share much
 * (`delay_hit`), keys become those of one request (`request_keys`), time passes faster (`speed`).
 *
 * Invariants
 *   T1  Arrivals never go back.
 *   T2  A request has ceil(input_tokens / block_tokens) blocks, at least one, no block twice.
 *   T3  A block has the same parent wherever it appears.
 *
 * Threads   Any thread, each its own trace; a trace that is made does not change.
 * Memory    A trace is owned by whoever made it: 24 bytes a request, 4 a reference, 4 a block.
 *           Bounded by YB_TRACE_*_MAX.
 * Failure   A line that is not as above ends the reading: INVALID, and a message that names the
 *           line, what is wrong and what is expected.
 */
#ifndef YB_SIM_TRACE_H
#define YB_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "yuebing/status.h"

#define YB_TRACE_REQUESTS_MAX     (1u << 24)
#define YB_TRACE_REFERENCES_MAX   (1u << 28)
#define YB_TRACE_LINE_MAX         (8u << 20) /* Bytes; a million ids. */
#define YB_TRACE_TOKENS_MAX       (1u << 24) /* In one prompt or answer. */
#define YB_TRACE_BLOCK_TOKENS_MAX 65536u
#define YB_TRACE_SPEED_MAX        1000.0
#define YB_TRACE_MESSAGE_MAX      256u
#define YB_TRACE_NONE             UINT32_MAX

/* What `delay_hit` counts: requests that share this many tokens, beyond what most requests share,
 * with another one that arrived so shortly before (Strata, section 5.3.4). */
#define YB_TRACE_DELAY_HIT_TOKENS 6000u
#define YB_TRACE_DELAY_HIT_NS     1000000000ull

enum yb_trace_format {
    YB_TRACE_AUTO,
    YB_TRACE_MOONCAKE,
    YB_TRACE_BAILIAN,
};

struct yb_trace_options {
    enum yb_trace_format format;
    uint32_t block_tokens; /* 0: 512 or 16, as the format has it. */
    bool spread;           /* Spread arrivals that share a tick; see yb_trace_spread(). */
    bool request_keys;     /* Nothing is shared between requests. */
    double speed;          /* 0: 1. */
    double delay_hit;      /* Share of requests, 0 to 1; 0: as they are. */
    uint64_t seed;         /* Of spreading and of the choice of delay hits. */
};

struct yb_trace_request {
    uint64_t arrival_ns;
    uint64_t first; /* Its blocks are blocks[first] and the block_count - 1 after it. */
    uint32_t input_tokens;
    uint32_t output_tokens;
};

struct yb_trace {
    struct yb_trace_request *requests;
    uint32_t *blocks;  /* Of all requests, one after the other. */
    uint32_t *parents; /* Of each block; YB_TRACE_NONE: it begins prompts. */
    uint64_t reference_count;
    uint32_t request_count;
    uint32_t block_count; /* Distinct ones. */
    uint32_t block_tokens;
    enum yb_trace_format format; /* What it was read as; mooncake for a generated one. */
};

/* Read a whole trace from `file`, which `name` stands for in messages.
 *
 * On OK, *trace_out is owned by the caller, who passes it to yb_trace_destroy(). Fails with INVALID
 * (a line or an option is wrong, or there is no request), TOO_LARGE (beyond a bound), IO or
 * NO_MEMORY; `message` then says more. */
YB_CHECKED enum yb_status yb_trace_read(FILE *file, const char *name,
                                        const struct yb_trace_options *options,
                                        struct yb_trace **trace_out,
                                        char message[YB_TRACE_MESSAGE_MAX]);

/* The same for a file by its path; "-" is standard input. */
YB_CHECKED enum yb_status yb_trace_open(const char *path, const struct yb_trace_options *options,
                                        struct yb_trace **trace_out,
                                        char message[YB_TRACE_MESSAGE_MAX]);

/* Consume the trace and set *trace to NULL; NULL is allowed inside. */
void yb_trace_destroy(struct yb_trace **trace);

/* Return how many blocks the prompt of a request has. */
static inline uint32_t
yb_trace_blocks_of(const struct yb_trace *trace, uint32_t request)
{
    uint64_t end = request + 1 < trace->request_count ? trace->requests[request + 1].first
                                                      : trace->reference_count;

    return (uint32_t)(end - trace->requests[request].first);
}

/* Write a trace as JSON lines of the mooncake format. Fails with IO. */
YB_CHECKED enum yb_status yb_trace_write(const struct yb_trace *trace, FILE *file);

/* Change a trace in place as the options of the same names do, without reading.
 *
 * Spread: a trace whose arrivals stand on ticks (at most one distinct arrival in four requests) was
 * rounded; each request then arrives at a random time between its tick and the next, at most 3 s
 * later. The order of requests stays. Other traces are left as they are. */
void yb_trace_spread(struct yb_trace *trace, uint64_t seed);

/* Let a `share` of the requests, or more, come within YB_TRACE_DELAY_HIT_NS after one with which
 * they share YB_TRACE_DELAY_HIT_TOKENS or more, by letting them come earlier.
 *
 * Fails with INVALID, and changes nothing, if too few requests share so much with an earlier one:
 * *possible_out is then the largest share. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_trace_delay_hit(struct yb_trace *trace, double share, uint64_t seed,
                                             double *possible_out);

#endif /* YB_SIM_TRACE_H */
