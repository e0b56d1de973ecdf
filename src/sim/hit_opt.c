/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks that are there lie in a heap, the one whose next use is the furthest on top. Uses are
 * references in the order of the trace, so that of two blocks which are used next in one request
 * the one further back goes first.
 */
#include "sim/hit_opt.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define NEVER UINT64_MAX

struct opt {
    const struct yb_trace *trace;
    uint64_t *next_use; /* Of each reference: the next one to its block. */
    uint64_t *due;      /* Of each block: its next use. */
    uint32_t *heap;     /* Blocks. */
    uint32_t *at;       /* Of each block: its place in the heap + 1; 0: not there. */
    uint8_t *seen;      /* Of each block: it was there before. */
    uint64_t room;
    uint64_t count;
    struct yb_hit_result result;
};

static void
place(struct opt *opt, uint64_t at, uint32_t block)
{
    opt->heap[at] = block;
    opt->at[block] = (uint32_t)at + 1;
}

static void
sift_up(struct opt *opt, uint64_t at)
{
    uint32_t block = opt->heap[at];

    while (at > 0 && opt->due[opt->heap[(at - 1) / 2]] < opt->due[block]) {
        place(opt, at, opt->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(opt, at, block);
}

static void
sift_down(struct opt *opt, uint64_t at)
{
    uint32_t block = opt->heap[at];

    for (;;) {
        uint64_t child = 2 * at + 1;

        if (child + 1 < opt->count && opt->due[opt->heap[child + 1]] > opt->due[opt->heap[child]]) {
            child++;
        }
        if (child >= opt->count || opt->due[opt->heap[child]] <= opt->due[block]) {
            break;
        }
        place(opt, at, opt->heap[child]);
        at = child;
    }
    place(opt, at, block);
}

/* A block is put whose next use is set. */
static void
put(struct opt *opt, uint32_t block)
{
    opt->result.refetches += opt->seen[block];
    if (opt->due[block] == NEVER) {
        return;
    }
    if (opt->count == opt->room) {
        if (opt->due[opt->heap[0]] < opt->due[block]) {
            return;
        }
        opt->at[opt->heap[0]] = 0;
        place(opt, 0, block);
        sift_down(opt, 0);
    } else {
        place(opt, opt->count++, block);
        sift_up(opt, opt->count - 1);
    }
    opt->seen[block] = 1;
}

/* Let go what is not used again. */
static void
drop(struct opt *opt, uint32_t block)
{
    uint64_t at = opt->at[block] - 1;

    opt->at[block] = 0;
    opt->count--;
    if (at < opt->count) {
        place(opt, at, opt->heap[opt->count]);
        sift_down(opt, at);
        sift_up(opt, opt->at[opt->heap[at]] - 1);
    }
}

static void
request(struct opt *opt, uint32_t index)
{
    uint64_t first = opt->trace->requests[index].first;
    uint64_t end = first + yb_trace_blocks_of(opt->trace, index);
    bool whole = true;

    for (uint64_t i = first; i < end; i++) {
        uint32_t block = opt->trace->blocks[i];
        bool present = opt->at[block] != 0;

        whole = whole && present;
        opt->result.hits += whole;
        opt->result.block_hits += present;
        opt->due[block] = opt->next_use[i];
        if (!present) {
            put(opt, block);
        } else if (opt->due[block] == NEVER) {
            drop(opt, block);
        } else {
            sift_up(opt, opt->at[block] - 1); /* Its next use is further than this one. */
        }
    }
}

enum yb_status
yb_hit_opt(const struct yb_trace *trace, uint64_t room, struct yb_hit_result *result_out)
{
    struct opt opt = {.trace = trace, .room = room};
    enum yb_status status = YB_NO_MEMORY;

    YB_ASSERT(room > 0);
    opt.next_use = calloc(trace->reference_count, sizeof *opt.next_use);
    opt.due = calloc(trace->block_count, sizeof *opt.due);
    opt.heap = calloc(trace->block_count, sizeof *opt.heap);
    opt.at = calloc(trace->block_count, sizeof *opt.at);
    opt.seen = calloc(trace->block_count, sizeof *opt.seen);
    if (opt.next_use == NULL || opt.due == NULL || opt.heap == NULL || opt.at == NULL ||
        opt.seen == NULL) {
        goto end;
    }
    memset(opt.due, 0xff, trace->block_count * sizeof *opt.due);
    for (uint64_t i = trace->reference_count; i-- > 0;) {
        opt.next_use[i] = opt.due[trace->blocks[i]];
        opt.due[trace->blocks[i]] = i;
    }
    for (uint32_t i = 0; i < trace->request_count; i++) {
        request(&opt, i);
    }
    opt.result.references = trace->reference_count;
    opt.result.prefix_hit = (double)opt.result.hits / (double)trace->reference_count;
    *result_out = opt.result;
    status = YB_OK;
end:
    free(opt.next_use);
    free(opt.due);
    free(opt.heap);
    free(opt.at);
    free(opt.seen);
    return status;
}
