/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/trace_internal.h"

#define NAMES_FIRST 1024u

/* Make room for one more of an array of `*room` things; it doubles. */
static enum yb_status
grow(void *array, uint64_t *room, uint64_t count, size_t size)
{
    uint64_t more = *room == 0 ? 1024 : *room * 2;
    void *old;
    void *grown;

    if (count < *room) {
        return YB_OK;
    }
    memcpy(&old, array, sizeof old); /* Pointers of several types come here. */
    grown = realloc(old, more * size);
    if (grown == NULL) {
        return YB_NO_MEMORY;
    }
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return YB_OK;
}

static uint64_t
slot_of(const struct yb_trace_names *names, uint64_t name)
{
    uint64_t at = (name * 0x9e3779b97f4a7c15ull) >> 20 & names->mask;

    while (names->numbers[at] != 0 && names->names[at] != name) {
        at = (at + 1) & names->mask;
    }
    return at;
}

static enum yb_status
names_grow(struct yb_trace_names *names)
{
    struct yb_trace_names more = {.mask = names->mask * 2 + 1, .count = names->count};

    more.names = calloc(more.mask + 1, sizeof *more.names);
    more.numbers = calloc(more.mask + 1, sizeof *more.numbers);
    if (more.names == NULL || more.numbers == NULL) {
        free(more.names);
        free(more.numbers);
        return YB_NO_MEMORY;
    }
    for (uint64_t i = 0; i <= names->mask; i++) {
        if (names->numbers[i] != 0) {
            uint64_t at = slot_of(&more, names->names[i]);

            more.names[at] = names->names[i];
            more.numbers[at] = names->numbers[i];
        }
    }
    free(names->names);
    free(names->numbers);
    *names = more;
    return YB_OK;
}

enum yb_status
yb_trace_builder_init(struct yb_trace_builder *builder)
{
    *builder = (struct yb_trace_builder){.names.mask = NAMES_FIRST - 1, .last = YB_TRACE_NONE};
    builder->names.names = calloc(NAMES_FIRST, sizeof *builder->names.names);
    builder->names.numbers = calloc(NAMES_FIRST, sizeof *builder->names.numbers);
    builder->trace = calloc(1, sizeof *builder->trace);
    if (builder->names.names == NULL || builder->names.numbers == NULL || builder->trace == NULL) {
        yb_trace_builder_fini(builder);
        return YB_NO_MEMORY;
    }
    return YB_OK;
}

void
yb_trace_builder_fini(struct yb_trace_builder *builder)
{
    free(builder->names.names);
    free(builder->names.numbers);
    yb_trace_destroy(&builder->trace);
    *builder = (struct yb_trace_builder){.trace = NULL};
}

enum yb_status
yb_trace_builder_request(struct yb_trace_builder *builder, const struct yb_trace_request *request)
{
    struct yb_trace *trace = builder->trace;
    enum yb_status status;

    if (trace->request_count == YB_TRACE_REQUESTS_MAX) {
        return YB_TOO_LARGE;
    }
    status = grow(&trace->requests, &builder->request_room, trace->request_count,
                  sizeof *trace->requests);
    if (status == YB_OK) {
        trace->requests[trace->request_count] = *request;
        trace->requests[trace->request_count++].first = trace->reference_count;
        builder->last = YB_TRACE_NONE;
    }
    return status;
}

/* Return in *number_out the number of a block by its name; a new one gets `parent`. */
static enum yb_status
number_of(struct yb_trace_builder *builder, uint64_t name, uint32_t parent, uint32_t *number_out)
{
    struct yb_trace_names *names = &builder->names;
    struct yb_trace *trace = builder->trace;
    uint64_t at = slot_of(names, name);
    enum yb_status status;

    if (names->numbers[at] != 0) {
        *number_out = names->numbers[at] - 1;
        return YB_OK;
    }
    if (names->count * 2 > names->mask) {
        status = names_grow(names);
        if (status != YB_OK) {
            return status;
        }
        at = slot_of(names, name);
    }
    status =
        grow(&trace->parents, &builder->block_room, trace->block_count, sizeof *trace->parents);
    if (status != YB_OK) {
        return status;
    }
    *number_out = trace->block_count;
    trace->parents[trace->block_count++] = parent;
    names->names[at] = name;
    names->numbers[at] = trace->block_count;
    names->count++;
    return YB_OK;
}

enum yb_status
yb_trace_builder_block(struct yb_trace_builder *builder, uint64_t name)
{
    struct yb_trace *trace = builder->trace;
    uint32_t number;
    enum yb_status status;

    YB_ASSERT(trace->request_count > 0);
    if (trace->reference_count == YB_TRACE_REFERENCES_MAX) {
        return YB_TOO_LARGE;
    }
    status = number_of(builder, name, builder->last, &number);
    if (status == YB_OK) {
        status = grow(&trace->blocks, &builder->reference_room, trace->reference_count,
                      sizeof *trace->blocks);
    }
    if (status != YB_OK) {
        return status;
    }
    if (trace->parents[number] != builder->last) { /* T3 */
        return YB_EXISTS;
    }
    trace->blocks[trace->reference_count++] = number;
    builder->last = number;
    return YB_OK;
}

struct yb_trace *
yb_trace_builder_end(struct yb_trace_builder *builder)
{
    struct yb_trace *trace = builder->trace;

    builder->trace = NULL;
    yb_trace_builder_fini(builder);
    return trace;
}
