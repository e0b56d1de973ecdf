/* SPDX-License-Identifier: Apache-2.0
 *
 * request_spans.h -- the spans of one request from every process that took part, on one clock.
 *
 * Processes are asked at their ports (observe/watch.h). Of a conductor the engines that it knows
 * are asked, too. One that does not answer is named, and left out.
 *
 * Threads   The caller's.
 * Memory    What was found is the caller's, until yb_request_spans_fini().
 */
#ifndef YB_CLI_REQUEST_SPANS_H
#define YB_CLI_REQUEST_SPANS_H

#include "cli/cli.h"
#include "observe/join.h"

#define YB_REQUEST_SPANS_ADDRESS_BYTES 128u
#define YB_REQUEST_SPANS_SPANS_MAX     100000u

/* A process that was asked. */
struct yb_request_spans_process {
    char address[YB_REQUEST_SPANS_ADDRESS_BYTES];
    char kind[32];
    char name[64];
    bool answered;
    struct yb_join_clock clock; /* After yb_request_spans_join(). */
};

struct yb_request_spans {
    struct yb_request_spans_process processes[YB_JOIN_PROCESSES_MAX];
    uint32_t process_count;
    struct yb_joined *spans; /* Owned. */
    uint32_t count;
};

/* Find out whom to ask: `addresses`, separated by commas, and the engines that they know of.
 * Returns false, after having said so, if there is no address. */
bool yb_request_spans_begin(struct yb_cli *cli, const char *addresses,
                            struct yb_request_spans *spans_out);

/* Add what each answers to /v1/spans?QUERY; a span that is there already is not added. Returns
 * false, after having said so, if there is no memory. */
bool yb_request_spans_add(struct yb_cli *cli, struct yb_request_spans *all, const char *query);

/* Forget the spans, to ask for others. */
void yb_request_spans_clear(struct yb_request_spans *all);

/* Put them on one clock. Returns false, after having said so, if there is no memory. */
bool yb_request_spans_join(struct yb_cli *cli, struct yb_request_spans *all);

void yb_request_spans_fini(struct yb_request_spans *all);

/* What a span is, in words: "call lookup", "load". */
void yb_request_spans_what(const struct yb_span *span, char *text_out, size_t room);

/* Whose it is: "engine two". */
void yb_request_spans_where(const struct yb_request_spans *all, const struct yb_joined *joined,
                            char *text_out, size_t room);

/* Write the spans to a file as Perfetto and chrome://tracing read them. Returns false, after
 * having said so, if it cannot be written. */
bool yb_request_spans_perfetto(struct yb_cli *cli, const struct yb_request_spans *all,
                               const char *path);

#endif /* YB_CLI_REQUEST_SPANS_H */
