/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing trace gen`: a request trace like a published one. `yuebing trace show`: what a trace is
 * like. What is asked of running processes is in trace_audit.c and trace_request.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/check.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/trace_gen.h"

const struct yb_cli_option yb_cli_trace_options[] = {
    {"audit", NULL, "whether all instructions of a conductor have ended, instead"},
    {"slowest", "N", "the requests that took longest, instead"},
    {"at", "ADDRESS,...",
     "ports of processes to ask (127.0.0.1:14780); a conductor's engines, too"},
    {"follow", NULL, "record: go on with what comes, until the log is taken away"},
    {"perfetto", "FILE", "write the spans of what is shown there, for ui.perfetto.dev"},
    {"like", "KIND", "gen: conversation, toolagent or synthetic (conversation)"},
    {"requests", "N", "gen: how many (as many as the published one of that kind)"},
    YB_CLI_TRACE_OPTIONS,
    {NULL, NULL, NULL},
};

static int
generate(struct yb_cli *cli, struct yb_trace **trace_out)
{
    const char *kind = yb_cli_option(cli, "like");
    uint64_t count = 0;
    uint64_t seed = 1;
    enum yb_status status;

    if (!yb_cli_option_number(cli, "requests", 1, YB_TRACE_GEN_REQUESTS_MAX, &count) ||
        !yb_cli_option_number(cli, "seed", 0, UINT64_MAX - 1, &seed)) {
        return YB_CLI_EXIT_REFUSED;
    }
    status = yb_trace_gen(kind == NULL ? "conversation" : kind, (uint32_t)count, seed, trace_out);
    if (status == YB_INVALID) {
        fprintf(cli->err, "yuebing trace: --like cannot be \"%s\"; allowed:", kind);
        for (uint32_t i = 0; yb_trace_gen_kind(i) != NULL; i++) {
            fprintf(cli->err, " %s", yb_trace_gen_kind(i));
        }
        fputc('\n', cli->err);
        return YB_CLI_EXIT_REFUSED;
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing trace: %s\n", yb_status_text(status));
        return YB_CLI_EXIT_FAILED;
    }
    return 0;
}

static json_t *
list_of(const uint32_t *values, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(list, json_integer(values[i]));
    }
    return list;
}

static void
print_figures(struct yb_cli *cli, const struct yb_trace *trace,
              const struct yb_trace_figures *figures)
{
    const uint32_t *in = figures->input;
    const uint32_t *out = figures->output;

    fprintf(cli->out,
            "requests                  %u in %.0f s, %.2f a second\n"
            "input mean                %.0f\n"
            "p10 p25 p50 p75 p90 p95 p99  %u %u %u %u %u %u %u\n"
            "output mean               %.0f\n"
            "p10 p50 p90 p99           %u %u %u %u\n"
            "blocks a request          %.1f of %u tokens\n"
            "references, distinct      %" PRIu64 ", %u\n"
            "blocks used once          %.3f\n"
            "references of the top 1 %% %.3f\n"
            "ideal block hit ratio     %.4f\n"
            "reuse time p50 p80 p90 p99 s  %.0f %.0f %.0f %.0f\n",
            trace->request_count, figures->span_s, figures->rate, figures->input_mean, in[0], in[1],
            in[2], in[3], in[4], in[5], in[6], figures->output_mean, out[0], out[1], out[2], out[3],
            figures->blocks_mean, trace->block_tokens, figures->references, figures->distinct,
            figures->used_once, figures->top_share, figures->ideal_hit, figures->reuse_s[0],
            figures->reuse_s[1], figures->reuse_s[2], figures->reuse_s[3]);
}

static int
show(struct yb_cli *cli, const struct yb_trace *trace)
{
    struct yb_trace_figures figures;
    enum yb_status status = yb_trace_figures(trace, &figures);

    if (status == YB_OK && cli->json) {
        json_t *object = json_pack(
            "{s:I, s:f, s:f, s:f, s:o, s:f, s:o, s:f, s:I, s:I, s:f, s:f, s:f}", "requests",
            (json_int_t)trace->request_count, "span_s", figures.span_s, "rate", figures.rate,
            "input_mean", figures.input_mean, "input", list_of(figures.input, 7), "output_mean",
            figures.output_mean, "output", list_of(figures.output, 4), "blocks_mean",
            figures.blocks_mean, "references", (json_int_t)figures.references, "distinct",
            (json_int_t)figures.distinct, "used_once", figures.used_once, "top_share",
            figures.top_share, "ideal_hit", figures.ideal_hit);

        status = yb_output_json(cli->out, object);
    } else if (status == YB_OK) {
        print_figures(cli, trace, &figures);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing trace: %s\n", yb_status_text(status));
        return YB_CLI_EXIT_FAILED;
    }
    return 0;
}

int
yb_cli_trace(struct yb_cli *cli, int argc, char **argv)
{
    struct yb_trace *trace = NULL;
    int code = YB_CLI_EXIT_REFUSED;

    if (argc == 0 && yb_cli_option(cli, "audit") != NULL) {
        return yb_cli_trace_audit(cli);
    }
    if (argc == 0 && yb_cli_option(cli, "slowest") != NULL) {
        return yb_cli_trace_slowest(cli);
    }
    if (argc == 2 && strcmp(argv[0], "record") == 0) {
        return yb_cli_trace_record(cli, argv[1]);
    }
    if (argc == 1 && strcmp(argv[0], "gen") != 0 && strcmp(argv[0], "show") != 0 &&
        strcmp(argv[0], "record") != 0) {
        return yb_cli_trace_request(cli, argv[0]);
    }
    if (argc == 1 && strcmp(argv[0], "gen") == 0) {
        code = generate(cli, &trace);
        if (code == 0 && yb_trace_write(trace, cli->out) != YB_OK) {
            fprintf(cli->err, "yuebing trace: cannot write: %s\n", strerror(errno));
            code = YB_CLI_EXIT_FAILED;
        }
    } else if (argc == 2 && strcmp(argv[0], "show") == 0) {
        code = yb_simulate_trace(cli, argv[1], &trace) ? show(cli, trace) : YB_CLI_EXIT_REFUSED;
    } else {
        fprintf(cli->err, "yuebing trace: write yuebing trace %s\n", cli->command->arguments);
    }
    yb_trace_destroy(&trace);
    return code;
}
