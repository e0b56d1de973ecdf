/* SPDX-License-Identifier: Apache-2.0
 *
 * output.h -- results on a terminal, in a pipe, and as JSON.
 *
 * A table is collected first and printed with aligned columns; on a terminal
 * its heading is bold. Elsewhere there is not one escape character.
 *
 * Threads   One table or progress belongs to one thread.
 * Memory    A table copies its cells. JSON values handed over are consumed.
 */
#ifndef YB_CLI_OUTPUT_H
#define YB_CLI_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "yuebing/status.h"

#define YB_OUTPUT_COLUMNS_MAX 16u
#define YB_OUTPUT_ROWS_MAX    65536u

struct yb_output_table;

/* Create a table with the headings `columns`; at most YB_OUTPUT_COLUMNS_MAX of them. On OK,
 * *table_out is owned by the caller, who passes it to destroy. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_output_table_create(const char *const *columns, unsigned count,
                                                 struct yb_output_table **table_out);

/* Append a row of as many cells as there are columns. Fails with NO_MEMORY, or TOO_LARGE when
 * YB_OUTPUT_ROWS_MAX rows are there. */
YB_CHECKED enum yb_status yb_output_table_add(struct yb_output_table *table,
                                              const char *const *cells);

void yb_output_table_print(const struct yb_output_table *table, FILE *out, bool terminal);

/* Consume the table and set *table to NULL; NULL is allowed inside. */
void yb_output_table_destroy(struct yb_output_table **table);

/* Print `value` indented, with a newline, and consume it. NULL (jansson had no memory) and a
 * value that cannot be written fail with NO_MEMORY or IO. */
YB_CHECKED enum yb_status yb_output_json(FILE *out, json_t *value);

/* One line that counts up, for what takes longer than two seconds: silent before that, silent
 * when `out` is no terminal, at most five times a second. */
struct yb_output_progress {
    FILE *out;
    const struct yb_clock *clock;
    const char *what; /* Borrowed until yb_output_progress_end. */
    uint64_t total;
    uint64_t next_ns; /* When it may draw again; YB_NEVER when it must not. */
    bool drawn;
};

/* `out` is where progress goes, usually stderr; it is silent there too unless `terminal`. */
void yb_output_progress_begin(struct yb_output_progress *progress, FILE *out, bool terminal,
                              const struct yb_clock *clock, const char *what, uint64_t total);
void yb_output_progress_update(struct yb_output_progress *progress, uint64_t done);
/* Wipe the line, if there is one. */
void yb_output_progress_end(struct yb_output_progress *progress);

#endif /* YB_CLI_OUTPUT_H */
