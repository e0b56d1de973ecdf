/* SPDX-License-Identifier: Apache-2.0
 *
 * The forecasts of heat_replay.h.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/heat_replay.h"
#include "yuebing/sched.h"

struct seen {
    uint32_t span; /* The last one that it came in, from 1; 0: none. */
    bool wanted;   /* In the span that is scored, and known before. */
};

struct forecast {
    const struct yb_trace *trace;
    struct yb_sched_heat *heat;
    struct seen *seen; /* By block. */
    uint32_t *latest;  /* Blocks of the last span, each once, in the order of coming. */
    uint32_t *now;     /* And of this one. */
    uint32_t latest_count;
    uint32_t now_count;
    uint32_t budget;
    struct yb_sched_hot *hot;
    struct yb_heat_score scores[YB_HEAT_FORECASTERS];
};

const char *
yb_heat_forecaster_name(enum yb_heat_forecaster forecaster)
{
    static const char *const names[YB_HEAT_FORECASTERS] = {
#define X(name, text) text,
        YB_HEAT_FORECASTER_MAP(X)
#undef X
    };

    return names[forecaster];
}

double
yb_heat_precision(const struct yb_heat_score *score)
{
    return score->named == 0 ? 0 : (double)score->right / (double)score->named;
}

double
yb_heat_recall(const struct yb_heat_score *score)
{
    return score->wanted == 0 ? 0 : (double)score->right / (double)score->wanted;
}

/* ---- one span -------------------------------------------------------------------------------- */

static void
score(struct forecast *forecast, enum yb_heat_forecaster who, uint64_t named, uint64_t right)
{
    forecast->scores[who].named += named;
    forecast->scores[who].right += right;
}

/* The hottest at the end of the last span, before anything of this one is known. */
static uint32_t
name_hot(struct forecast *forecast, uint64_t now_ns)
{
    return yb_sched_heat_hottest(forecast->heat, 0, now_ns, forecast->hot, forecast->budget);
}

/* Take the requests of a span: from `first` up to, not including, what is returned. */
static uint32_t
take_span(struct forecast *forecast, uint32_t first, uint64_t end_ns, uint32_t span)
{
    const struct yb_trace *trace = forecast->trace;
    uint32_t i = first;

    forecast->now_count = 0;
    for (; i < trace->request_count && trace->requests[i].arrival_ns < end_ns; i++) {
        const uint32_t *blocks = &trace->blocks[trace->requests[i].first];
        uint32_t count = yb_trace_blocks_of(trace, i);

        for (uint32_t j = 0; j < count; j++) {
            struct seen *seen = &forecast->seen[blocks[j]];

            if (seen->span != span) {
                seen->wanted = seen->span != 0;
                seen->span = span;
                forecast->now[forecast->now_count++] = blocks[j];
            }
        }
    }
    return i;
}

/* Tell the chain of the span's requests: only now, as it was asked before them. */
static enum yb_status
tell_heat(struct forecast *forecast, uint32_t first, uint32_t end)
{
    const struct yb_trace *trace = forecast->trace;
    uint64_t *names = NULL;
    uint32_t room = 0;

    for (uint32_t i = first; i < end; i++) {
        const uint32_t *blocks = &trace->blocks[trace->requests[i].first];
        uint32_t count = yb_trace_blocks_of(trace, i);

        if (count > room) {
            uint64_t *more = realloc(names, count * sizeof(*names));

            if (more == NULL) {
                free(names);
                return YB_NO_MEMORY;
            }
            names = more;
            room = count;
        }
        for (uint32_t j = 0; j < count; j++) {
            names[j] = blocks[j];
        }
        yb_sched_heat_access(forecast->heat, names, count, trace->requests[i].arrival_ns);
    }
    free(names);
    return YB_OK;
}

static void
score_span(struct forecast *forecast, uint32_t hot_count)
{
    uint32_t latest =
        forecast->latest_count < forecast->budget ? forecast->latest_count : forecast->budget;
    uint64_t wanted = 0;
    uint64_t right = 0;

    for (uint32_t i = 0; i < forecast->now_count; i++) {
        wanted += forecast->seen[forecast->now[i]].wanted;
    }
    for (uint32_t i = 0; i < YB_HEAT_FORECASTERS; i++) {
        forecast->scores[i].wanted += wanted;
    }
    for (uint32_t i = 0; i < latest; i++) {
        right += forecast->seen[forecast->latest[forecast->latest_count - 1 - i]].wanted;
    }
    score(forecast, YB_HEAT_PERSISTENCE, latest, right);
    right = 0;
    for (uint32_t i = 0; i < hot_count; i++) {
        right += forecast->seen[forecast->hot[i].block].wanted;
    }
    score(forecast, YB_HEAT_HEAT, hot_count, right);
    right = wanted < forecast->budget ? wanted : forecast->budget;
    score(forecast, YB_HEAT_ORACLE, right, right);
}

static void
turn_span(struct forecast *forecast)
{
    uint32_t *kept = forecast->latest;

    for (uint32_t i = 0; i < forecast->now_count; i++) {
        forecast->seen[forecast->now[i]].wanted = false;
    }
    forecast->latest = forecast->now;
    forecast->latest_count = forecast->now_count;
    forecast->now = kept;
}

static enum yb_status
run(struct forecast *forecast, uint64_t horizon_ns)
{
    const struct yb_trace *trace = forecast->trace;
    uint64_t end_ns = trace->requests[0].arrival_ns;
    uint32_t first = 0;
    enum yb_status status = YB_OK;

    for (uint32_t span = 1; first < trace->request_count && status == YB_OK; span++) {
        uint32_t hot = span == 1 ? 0 : name_hot(forecast, end_ns);
        uint32_t next;

        end_ns += horizon_ns;
        next = take_span(forecast, first, end_ns, span);
        if (span > 1) {
            score_span(forecast, hot);
        }
        turn_span(forecast);
        status = tell_heat(forecast, first, next);
        first = next;
    }
    return status;
}

enum yb_status
yb_heat_forecast(const struct yb_trace *trace, uint64_t horizon_ns, uint32_t budget,
                 struct yb_heat_score scores_out[YB_HEAT_FORECASTERS])
{
    struct forecast forecast = {.trace = trace, .budget = budget};
    enum yb_status status;

    if (horizon_ns == 0 || budget == 0 || budget > YB_HEAT_BUDGET_MAX) {
        return YB_INVALID;
    }
    status = yb_sched_heat_create(YB_HEAT_BLOCKS, horizon_ns, &forecast.heat);
    if (status != YB_OK) {
        return status;
    }
    forecast.seen = calloc(trace->block_count, sizeof(*forecast.seen));
    forecast.latest = calloc(trace->block_count, sizeof(*forecast.latest));
    forecast.now = calloc(trace->block_count, sizeof(*forecast.now));
    forecast.hot = calloc(budget, sizeof(*forecast.hot));
    status = YB_NO_MEMORY;
    if (forecast.seen != NULL && forecast.latest != NULL && forecast.now != NULL &&
        forecast.hot != NULL) {
        status = run(&forecast, horizon_ns);
    }
    if (status == YB_OK) {
        memcpy(scores_out, forecast.scores, sizeof(forecast.scores));
    }
    free(forecast.hot);
    free(forecast.now);
    free(forecast.latest);
    free(forecast.seen);
    yb_sched_heat_destroy(&forecast.heat);
    return status;
}
