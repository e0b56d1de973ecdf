/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a trace: refused with one printable sentence, or taken; then what trace.h promises
 * of it holds, and what is written of it reads back as the same.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_invariants(const struct yb_trace *trace)
{
    uint64_t last_ns = 0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        const struct yb_trace_request *request = &trace->requests[i];
        uint32_t count = yb_trace_blocks_of(trace, i);

        YB_ASSERT(request->arrival_ns >= last_ns); /* T1 */
        last_ns = request->arrival_ns;
        YB_ASSERT(count == (request->input_tokens + trace->block_tokens - 1) / trace->block_tokens);
        for (uint32_t j = 0; j < count; j++) {
            uint32_t block = trace->blocks[request->first + j];

            YB_ASSERT(block < trace->block_count);
            YB_ASSERT(trace->parents[block] ==
                      (j == 0 ? YB_TRACE_NONE : trace->blocks[request->first + j - 1])); /* T3 */
        }
    }
}

static void
check_round(const struct yb_trace *trace)
{
    struct yb_trace_options options = {
        .format = YB_TRACE_MOONCAKE,
        .block_tokens = trace->block_tokens,
    };
    char message[YB_TRACE_MESSAGE_MAX];
    struct yb_trace *again = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    YB_ASSERT(file != NULL);
    YB_ASSERT(yb_trace_write(trace, file) == YB_OK);
    fclose(file);
    file = fmemopen(text, size, "r");
    YB_ASSERT(file != NULL);
    YB_ASSERT(yb_trace_read(file, "again", &options, &again, message) == YB_OK);
    fclose(file);
    YB_ASSERT(again->reference_count == trace->reference_count);
    YB_ASSERT(again->request_count == trace->request_count);
    YB_ASSERT(
        memcmp(again->blocks, trace->blocks, trace->reference_count * sizeof *trace->blocks) == 0);
    yb_trace_destroy(&again);
    free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yb_trace_options options = {.spread = size % 2 == 0, .seed = 1};
    char message[YB_TRACE_MESSAGE_MAX] = "";
    struct yb_trace *trace = NULL;
    FILE *file;

    if (size == 0) {
        return 0;
    }
    file = fmemopen((void *)(uintptr_t)data, size, "r");
    YB_ASSERT(file != NULL);
    if (yb_trace_read(file, "fuzz", &options, &trace, message) != YB_OK) {
        YB_ASSERT(strncmp(message, "fuzz, line ", 11) == 0);
        for (const char *c = message; *c != '\0'; c++) {
            YB_ASSERT(*c >= ' ' && *c <= '~');
        }
    } else {
        check_invariants(trace);
        check_round(trace);
        yb_trace_destroy(&trace);
    }
    fclose(file);
    return 0;
}
