/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define OUTPUT_TABLE_MAGIC   0x7461626cu
#define PROGRESS_SILENT_NS   (2 * YB_NS_PER_S)
#define PROGRESS_INTERVAL_NS (200 * YB_NS_PER_MS)

struct yb_output_table {
    uint32_t magic;
    unsigned columns;
    size_t rows;
    size_t room;  /* Rows that `cells` has room for. */
    char **cells; /* Row after row; the headings are row 0. Owned. */
};

/* Columns on a terminal: bytes of UTF-8 that do not continue a character. */
static size_t
width_of(const char *text)
{
    size_t width = 0;

    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static enum yb_status
make_room(struct yb_output_table *table)
{
    size_t room = table->room == 0 ? 16 : table->room * 2;
    char **cells;

    if (table->rows < table->room) {
        return YB_OK;
    }
    if (table->rows > YB_OUTPUT_ROWS_MAX) {
        return YB_TOO_LARGE;
    }
    cells = realloc(table->cells, room * table->columns * sizeof(*cells));
    if (cells == NULL) {
        return YB_NO_MEMORY;
    }
    table->cells = cells;
    table->room = room;
    return YB_OK;
}

enum yb_status
yb_output_table_add(struct yb_output_table *table, const char *const *cells)
{
    enum yb_status status;
    char **row;

    YB_ASSERT_OBJ(table, OUTPUT_TABLE_MAGIC);
    status = make_room(table);
    if (status != YB_OK) {
        return status;
    }
    row = table->cells + table->rows * table->columns;
    for (unsigned i = 0; i < table->columns; i++) {
        row[i] = strdup(cells[i]);
        if (row[i] == NULL) {
            while (i > 0) {
                free(row[--i]);
            }
            return YB_NO_MEMORY;
        }
    }
    table->rows++;
    return YB_OK;
}

enum yb_status
yb_output_table_create(const char *const *columns, unsigned count,
                       struct yb_output_table **table_out)
{
    struct yb_output_table *table;
    enum yb_status status;

    YB_ASSERT(count >= 1 && count <= YB_OUTPUT_COLUMNS_MAX);
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        return YB_NO_MEMORY;
    }
    table->magic = OUTPUT_TABLE_MAGIC;
    table->columns = count;
    status = yb_output_table_add(table, columns);
    if (status != YB_OK) {
        yb_output_table_destroy(&table);
        return status;
    }
    *table_out = table;
    return YB_OK;
}

void
yb_output_table_print(const struct yb_output_table *table, FILE *out, bool terminal)
{
    size_t widths[YB_OUTPUT_COLUMNS_MAX] = {0};

    YB_ASSERT_OBJ(table, OUTPUT_TABLE_MAGIC);
    for (size_t i = 0; i < table->rows * table->columns; i++) {
        size_t width = width_of(table->cells[i]);
        size_t column = i % table->columns;

        widths[column] = width > widths[column] ? width : widths[column];
    }
    for (size_t row = 0; row < table->rows; row++) {
        bool bold = terminal && row == 0;

        fputs(bold ? "\033[1m" : "", out);
        for (unsigned column = 0; column < table->columns; column++) {
            const char *cell = table->cells[row * table->columns + column];
            size_t padding = widths[column] - width_of(cell) + 2;

            /* No blanks at the end of a line. */
            padding = column + 1 == table->columns ? 0 : padding;
            fprintf(out, "%s%*s", cell, (int)padding, "");
        }
        fputs(bold ? "\033[0m\n" : "\n", out);
    }
}

void
yb_output_table_destroy(struct yb_output_table **table)
{
    struct yb_output_table *doomed = *table;

    *table = NULL;
    if (doomed == NULL) {
        return;
    }
    YB_ASSERT_OBJ(doomed, OUTPUT_TABLE_MAGIC);
    for (size_t i = 0; i < doomed->rows * doomed->columns; i++) {
        free(doomed->cells[i]);
    }
    free(doomed->cells);
    doomed->magic = 0;
    free(doomed);
}

enum yb_status
yb_output_json(FILE *out, json_t *value)
{
    enum yb_status status = YB_OK;

    if (value == NULL) {
        return YB_NO_MEMORY;
    }
    if (json_dumpf(value, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0 ||
        fputc('\n', out) == EOF) {
        status = YB_IO;
    }
    json_decref(value);
    return status;
}

void
yb_output_progress_begin(struct yb_output_progress *progress, FILE *out, bool terminal,
                         const struct yb_clock *clock, const char *what, uint64_t total)
{
    *progress = (struct yb_output_progress){
        .out = out,
        .clock = clock,
        .what = what,
        .total = total,
        .next_ns = terminal ? yb_deadline_after(yb_clock_now(clock), PROGRESS_SILENT_NS) : YB_NEVER,
    };
}

void
yb_output_progress_update(struct yb_output_progress *progress, uint64_t done)
{
    uint64_t now_ns;
    double share;

    if (progress->next_ns == YB_NEVER) {
        return;
    }
    now_ns = yb_clock_now(progress->clock);
    if (now_ns < progress->next_ns) {
        return;
    }
    progress->next_ns = now_ns + PROGRESS_INTERVAL_NS;
    share = progress->total == 0 ? 0 : (double)done / (double)progress->total;
    fprintf(progress->out, "\r\033[K%s: %.0f %% (%llu of %llu)", progress->what, 100 * share,
            (unsigned long long)done, (unsigned long long)progress->total);
    fflush(progress->out);
    progress->drawn = true;
}

void
yb_output_progress_end(struct yb_output_progress *progress)
{
    if (progress->drawn) {
        fputs("\r\033[K", progress->out);
        fflush(progress->out);
    }
    progress->next_ns = YB_NEVER;
    progress->drawn = false;
}
