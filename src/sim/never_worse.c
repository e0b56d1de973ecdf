/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/never_worse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/simulator.h"

#define INSTANCES    8u
#define SHORT_TOKENS 1000u

static const char *const nets[] = {"10G", "25G", "100G", "400G"};

/* Models with much, with usual and with little KV beside their computing. */
static const struct {
    const char *name;
    const char *gpu;
} models[] = {
    {"llama-3-8b", "1xa800"},
    {"llama-3-70b", "8xa800"},
    {"llama-30b", "8xa800"},
    {"deepseek-v3", "16xh800"},
};

static const struct yb_never_worse_workload workloads[] = {
    {"conversation", "conversation_trace", YB_NEVER_WORSE_AS_IS},
    {"synthetic", "synthetic_trace", YB_NEVER_WORSE_AS_IS},
    {"surrogate", "toolagent_surrogate", YB_NEVER_WORSE_AS_IS},
    {"no reuse", "conversation_trace", YB_NEVER_WORSE_NO_REUSE},
    {"prompts < 1k", "conversation_trace", YB_NEVER_WORSE_SHORT},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *
yb_never_worse_net(uint32_t index)
{
    return index < COUNT(nets) ? nets[index] : NULL;
}

const char *
yb_never_worse_model(uint32_t index)
{
    return index < COUNT(models) ? models[index].name : NULL;
}

struct yb_never_worse_workload
yb_never_worse_workload(uint32_t index)
{
    return index < COUNT(workloads) ? workloads[index] : (struct yb_never_worse_workload){0};
}

/* ---- workloads ------------------------------------------------------------------------------- */

static bool
belongs(const struct yb_trace *trace, uint32_t request, enum yb_never_worse_kind kind)
{
    return kind != YB_NEVER_WORSE_SHORT || trace->requests[request].input_tokens < SHORT_TOKENS;
}

/* Copy one request behind the others. Without reuse each of its blocks is a new one. */
static void
copy_request(const struct yb_trace *trace, uint32_t request, enum yb_never_worse_kind kind,
             struct yb_trace *made)
{
    const uint32_t *blocks = &trace->blocks[trace->requests[request].first];
    uint32_t count = yb_trace_blocks_of(trace, request);
    struct yb_trace_request *copy = &made->requests[made->request_count++];

    *copy = trace->requests[request];
    copy->first = made->reference_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = kind == YB_NEVER_WORSE_NO_REUSE ? made->block_count++ : blocks[i];

        made->blocks[made->reference_count++] = block;
        if (kind == YB_NEVER_WORSE_NO_REUSE) {
            made->parents[block] = i == 0 ? YB_TRACE_NONE : block - 1;
        }
    }
}

enum yb_status
yb_never_worse_make(const struct yb_trace *trace, enum yb_never_worse_kind kind,
                    uint32_t requests_max, struct yb_trace **made_out)
{
    struct yb_trace *made = calloc(1, sizeof(*made));
    uint64_t references =
        trace->reference_count > trace->block_count ? trace->reference_count : trace->block_count;
    uint32_t left = requests_max == 0 ? UINT32_MAX : requests_max;

    if (made == NULL) {
        return YB_NO_MEMORY;
    }
    made->block_tokens = trace->block_tokens;
    made->format = trace->format;
    made->requests = calloc(trace->request_count, sizeof(*made->requests));
    made->blocks = calloc(references, sizeof(*made->blocks));
    made->parents = calloc(references, sizeof(*made->parents));
    if (made->requests == NULL || made->blocks == NULL || made->parents == NULL) {
        yb_trace_destroy(&made);
        return YB_NO_MEMORY;
    }
    if (kind != YB_NEVER_WORSE_NO_REUSE) {
        memcpy(made->parents, trace->parents, trace->block_count * sizeof(*made->parents));
        made->block_count = trace->block_count;
    }
    for (uint32_t i = 0; i < trace->request_count && left > 0; i++) {
        if (belongs(trace, i, kind)) {
            copy_request(trace, i, kind, made);
            left--;
        }
    }
    if (made->request_count == 0) {
        yb_trace_destroy(&made);
        return YB_NOT_FOUND;
    }
    *made_out = made;
    return YB_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

struct cell {
    double ttft_ns;
    double p99_ns;
    double requests_per_s;
    double hit;
};

/* One trace at the speed that loads the engines so much. The requests of `view` are its own. */
static void
speed_up(const struct yb_trace *trace, const struct yb_sched_cost *cost, double load,
         struct yb_trace *view)
{
    uint64_t start_ns = trace->requests[0].arrival_ns;
    double span_ns = (double)(trace->requests[trace->request_count - 1].arrival_ns - start_ns) + 1;
    double work_ns = 0;
    double slower;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        work_ns += yb_sched_prefill_ns(cost, trace->requests[i].input_tokens, 0);
    }
    slower = work_ns / (span_ns * INSTANCES * load);
    for (uint32_t i = 0; i < trace->request_count; i++) {
        view->requests[i].arrival_ns =
            (uint64_t)((double)(trace->requests[i].arrival_ns - start_ns) * slower);
    }
}

static enum yb_status
run_once(const struct yb_settings *settings, const struct yb_trace *trace, double load,
         struct yb_trace *view, struct yb_result *result_out, char *message)
{
    struct yb_scenario scenario;
    enum yb_status status = yb_settings_scenario(settings, NULL, &scenario, message);

    if (status == YB_OK) {
        speed_up(trace, &scenario.cost, load, view);
        status = yb_simulator_run(&scenario, view, result_out, message);
    }
    return status;
}

/* What the cells of a workload share. */
struct bench {
    const struct yb_never_worse_options *options;
    const char *workload;
    const struct yb_trace *trace;
    struct yb_trace view; /* Its requests are its own. */
    uint64_t *ttft_ns;    /* Of all runs of a cell. */
    uint32_t runs;
};

/* Add one run to a cell, whose mean and P99 are left for the end. */
static enum yb_status
add_run(struct bench *bench, struct yb_settings *settings, uint32_t run, struct cell *cell,
        char *message)
{
    uint32_t count = bench->trace->request_count;
    struct yb_result result;
    enum yb_status status;

    settings->seed = bench->options->seed + run;
    status = run_once(settings, bench->trace, YB_NEVER_WORSE_LOAD, &bench->view, &result, message);
    if (status != YB_OK) {
        return status;
    }
    memcpy(&bench->ttft_ns[(size_t)run * count], result.ttft_ns, count * sizeof(*result.ttft_ns));
    cell->hit += yb_result_hit(&result) / bench->runs;
    yb_result_fini(&result);
    status = run_once(settings, bench->trace, YB_NEVER_WORSE_LOAD * YB_NEVER_WORSE_SATURATION,
                      &bench->view, &result, message);
    if (status == YB_OK) {
        cell->requests_per_s += result.steady_per_s / bench->runs;
        yb_result_fini(&result);
    }
    return status;
}

static enum yb_status
run_cell(struct bench *bench, struct yb_settings *settings, struct cell *cell_out, char *message)
{
    struct yb_result_times times;
    enum yb_status status = YB_OK;

    *cell_out = (struct cell){0};
    for (uint32_t run = 0; run < bench->runs && status == YB_OK; run++) {
        status = add_run(bench, settings, run, cell_out, message);
    }
    if (status == YB_OK) {
        times = yb_result_times(bench->ttft_ns, bench->runs * bench->trace->request_count);
        cell_out->ttft_ns = times.mean_ns;
        cell_out->p99_ns = (double)times.p99_ns;
    }
    return status;
}

/* Without a pool a cell does not depend on the network. */
static enum yb_status
set_cell(struct yb_settings *settings, uint32_t model, const char *net, bool pool, char *message)
{
    const struct {
        const char *name;
        const char *value;
    } changes[] = {{"model", models[model].name},
                   {"gpu", models[model].gpu},
                   {"instances", "8"},
                   {"net", net},
                   {"pool", pool ? "1T" : "0"}};

    for (size_t i = 0; i < COUNT(changes); i++) {
        enum yb_status status =
            yb_settings_set(settings, changes[i].name, changes[i].value, message);

        if (status != YB_OK) {
            return status;
        }
    }
    return YB_OK;
}

static struct yb_never_worse_row
compare(const struct cell *without, const struct cell *with)
{
    struct yb_never_worse_row row = {
        .ttft_ratio = with->ttft_ns / without->ttft_ns,
        .p99_ratio = with->p99_ns / without->p99_ns,
        .throughput_ratio = with->requests_per_s / without->requests_per_s,
        .hit_without = without->hit,
        .hit_with = with->hit,
    };

    row.ok = row.ttft_ratio <= YB_NEVER_WORSE_TTFT && row.p99_ratio <= YB_NEVER_WORSE_TTFT &&
             row.throughput_ratio >= YB_NEVER_WORSE_THROUGHPUT;
    return row;
}

static bool
wanted(const char *only, const char *name)
{
    return only == NULL || strcmp(only, name) == 0;
}

/* On OK the caller frees what it points to. */
static enum yb_status
bench_init(struct bench *bench, const struct yb_trace *trace, const char *workload,
           const struct yb_never_worse_options *options)
{
    uint32_t runs = (YB_NEVER_WORSE_REQUESTS + trace->request_count - 1) / trace->request_count;

    runs = runs < YB_NEVER_WORSE_RUNS_MAX ? runs : YB_NEVER_WORSE_RUNS_MAX;
    *bench = (struct bench){
        .options = options,
        .workload = workload,
        .trace = trace,
        .view = *trace,
        .runs = options->requests_max == 0 ? runs : 1,
    };
    bench->view.requests = calloc(trace->request_count, sizeof(*bench->view.requests));
    bench->ttft_ns = calloc((size_t)bench->runs * trace->request_count, sizeof(*bench->ttft_ns));
    if (bench->view.requests == NULL || bench->ttft_ns == NULL) {
        free(bench->view.requests);
        free(bench->ttft_ns);
        return YB_NO_MEMORY;
    }
    memcpy(bench->view.requests, trace->requests,
           trace->request_count * sizeof(*bench->view.requests));
    return YB_OK;
}

/* Run a model on all networks. */
static enum yb_status
run_model(struct bench *bench, uint32_t model, yb_never_worse_row_fn *on_row, void *context,
          char *message)
{
    struct yb_settings settings;
    struct cell without;
    enum yb_status status;

    yb_settings_init(&settings);
    status = set_cell(&settings, model, nets[0], false, message);
    if (status == YB_OK) {
        status = run_cell(bench, &settings, &without, message);
    }
    for (uint32_t net = 0; net < COUNT(nets) && status == YB_OK; net++) {
        struct cell with;

        if (!wanted(bench->options->net, nets[net])) {
            continue;
        }
        status = set_cell(&settings, model, nets[net], true, message);
        if (status == YB_OK) {
            status = run_cell(bench, &settings, &with, message);
        }
        if (status == YB_OK) {
            struct yb_never_worse_row row = compare(&without, &with);

            row.net = nets[net];
            row.model = models[model].name;
            row.workload = bench->workload;
            row.runs = bench->runs;
            on_row(context, &row);
        }
    }
    return status;
}

enum yb_status
yb_never_worse_run(const struct yb_trace *trace, const char *workload,
                   const struct yb_never_worse_options *options, yb_never_worse_row_fn *on_row,
                   void *context, char message[YB_NEVER_WORSE_MESSAGE_MAX])
{
    struct bench bench;
    enum yb_status status = bench_init(&bench, trace, workload, options);

    if (status != YB_OK) {
        return status;
    }
    for (uint32_t model = 0; model < COUNT(models) && status == YB_OK; model++) {
        if (wanted(options->model, models[model].name)) {
            status = run_model(&bench, model, on_row, context, message);
        }
    }
    free(bench.view.requests);
    free(bench.ttft_ns);
    return status;
}
