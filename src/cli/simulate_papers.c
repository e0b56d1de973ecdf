/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate --papers`: see sim/paper.h.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/catalog.h"
#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/paper.h"

static json_t *
row_json(const struct yb_paper_row *row)
{
    bool order = row->order[0] != '\0';
    json_t *object = json_pack(
        "{s:s,s:s,s:s,s:o,s:o,s:s,s:b,s:b}", "paper", row->paper, "figure", row->figure, "what",
        row->what, "published", order ? json_string(row->order) : json_real(row->published), "ours",
        order ? json_string(row->seen) : json_real(row->ours), "tolerance", row->tolerance, "ok",
        (int)row->ok, "surrogate", (int)row->surrogate);

    if (order) {
        (void)json_object_set_new(object, "without", json_string(row->without));
    }
    if (row->reason[0] != '\0') {
        (void)json_object_set_new(object, "reason", json_string(row->reason));
    }
    return object;
}

static int
print_json(struct yb_cli *cli, const struct yb_papers *papers)
{
    json_t *rows = json_array();
    const struct yb_paper_row *row;
    char hash[32];
    uint32_t ok = 0;
    uint32_t i;

    for (i = 0; (row = yb_papers_row(papers, i)) != NULL; i++) {
        ok += row->ok;
        (void)json_array_append_new(rows, row_json(row));
    }
    snprintf(hash, sizeof(hash), "%016" PRIx64, yb_papers_hash(papers));
    return yb_output_json(cli->out, json_pack("{s:s,s:i,s:i,s:o}", "config_hash", hash, "rows_ok",
                                              (int)ok, "rows_all", (int)i, "rows", rows)) == YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

static bool
add_row(struct yb_output_table *table, const struct yb_paper_row *row)
{
    bool order = row->order[0] != '\0';
    char published[32];
    char ours[32];
    char figure[64];

    snprintf(published, sizeof(published), "%.4g", row->published);
    snprintf(ours, sizeof(ours), "%.4g", row->ours);
    snprintf(figure, sizeof(figure), "%s%s", row->figure, row->surrogate ? " (surrogate)" : "");
    return yb_output_table_add(table,
                               (const char *const[]){row->paper, figure, row->what,
                                                     order ? row->order : published,
                                                     order ? row->seen : ours, row->tolerance,
                                                     row->ok ? "yes" : "NO", row->reason}) == YB_OK;
}

static int
print_table(struct yb_cli *cli, const struct yb_papers *papers)
{
    static const char *const columns[] = {"paper", "figure",    "what", "published",
                                          "ours",  "tolerance", "ok",   "reason"};
    const struct yb_paper_row *row;
    struct yb_output_table *table;
    bool added = true;
    uint32_t ok = 0;
    uint32_t i;

    if (yb_output_table_create(columns, 8, &table) != YB_OK) {
        return YB_CLI_EXIT_FAILED;
    }
    for (i = 0; (row = yb_papers_row(papers, i)) != NULL && added; i++) {
        ok += row->ok;
        added = add_row(table, row);
    }
    if (added) {
        yb_output_table_print(table, cli->out, cli->terminal);
        for (uint32_t j = 0; (row = yb_papers_row(papers, j)) != NULL; j++) {
            if (row->without[0] != '\0') {
                fprintf(cli->out, "%s %s without the mechanism: %s\n", row->paper, row->figure,
                        row->without);
            }
        }
        fprintf(cli->out, "\n%" PRIu32 " of %" PRIu32 " rows ok; configuration %016" PRIx64 "\n",
                ok, i, yb_papers_hash(papers));
    }
    yb_output_table_destroy(&table);
    return added ? 0 : YB_CLI_EXIT_FAILED;
}

static void
show_progress(void *context, uint32_t done, uint32_t all)
{
    struct yb_output_progress *progress = context;

    progress->total = all;
    yb_output_progress_update(progress, done);
}

/* Create the table and fill it; it is there also where that fails. */
static enum yb_status
run(struct yb_cli *cli, const char *config, struct yb_papers **papers_out,
    char message[YB_PAPER_MESSAGE_MAX])
{
    struct yb_output_progress progress;
    enum yb_status status = yb_papers_create(config, yb_simulate_traces(cli), papers_out, message);

    if (status != YB_OK) {
        return status;
    }
    yb_output_progress_begin(&progress, cli->err, cli->terminal, yb_clock_system(), "papers", 0);
    status =
        yb_papers_run(*papers_out, yb_cli_option(cli, "paper"), show_progress, &progress, message);
    yb_output_progress_end(&progress);
    return status;
}

int
yb_simulate_papers(struct yb_cli *cli)
{
    const char *path = yb_cli_option(cli, "config-of-papers");
    struct yb_papers *papers = NULL;
    char message[YB_PAPER_MESSAGE_MAX];
    char *config = NULL;
    int code = YB_CLI_EXIT_REFUSED;

    if (path != NULL) {
        config = yb_cli_read_text(cli, path);
        if (config == NULL) {
            return YB_CLI_EXIT_REFUSED;
        }
    }
    if (run(cli, config, &papers, message) != YB_OK) {
        fprintf(cli->err, "yuebing simulate: %s\n", message);
    } else {
        code = cli->json ? print_json(cli, papers) : print_table(cli, papers);
    }
    yb_papers_destroy(&papers);
    free(config);
    return code;
}
