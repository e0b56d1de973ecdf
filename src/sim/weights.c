/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/weights.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "sim/pipe.h"

/* An engine that pulls. */
struct engine {
    struct yb_pipe port;
    uint64_t has_ns; /* When it has all buckets so far. */
    double pull_ns;  /* Sum, of each from when it could begin. */
};

struct exchange {
    const struct yb_weights_options *options;
    struct yb_pipe push;
    struct yb_pipe out;
    struct engine *engines;
    uint64_t stored_ns;
};

static uint64_t
later(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* Let each engine pull a bucket that is stored now. A pipe is asked right after its last entry, so
 * what it says is final: nothing is preferred to a pull. */
static void
pull(struct exchange *exchange, double bytes, uint64_t now_ns)
{
    for (uint32_t i = 0; i < exchange->options->engines; i++) {
        struct engine *engine = &exchange->engines[i];
        uint64_t from_ns = later(engine->has_ns, now_ns);
        double mark = yb_pipe_enter(&engine->port, YB_PIPE_BACKGROUND, bytes, now_ns);
        uint64_t end_ns = yb_pipe_finish_ns(&engine->port, YB_PIPE_BACKGROUND, mark, now_ns);

        if (exchange->options->out_bytes_per_s > 0) {
            mark = yb_pipe_enter(&exchange->out, YB_PIPE_BACKGROUND, bytes, now_ns);
            end_ns =
                later(end_ns, yb_pipe_finish_ns(&exchange->out, YB_PIPE_BACKGROUND, mark, now_ns));
        }
        engine->pull_ns += (double)(end_ns - from_ns);
        engine->has_ns = end_ns;
    }
}

/* The trainer stores one bucket after the other. */
static void
push_all(struct exchange *exchange)
{
    double left = exchange->options->bytes;
    double bucket = exchange->options->bucket_bytes > 0 ? exchange->options->bucket_bytes : left;

    while (left > 0) {
        double bytes = fmin(bucket, left);
        double mark =
            yb_pipe_enter(&exchange->push, YB_PIPE_BACKGROUND, bytes, exchange->stored_ns);

        exchange->stored_ns =
            yb_pipe_finish_ns(&exchange->push, YB_PIPE_BACKGROUND, mark, exchange->stored_ns);
        left -= bytes;
        pull(exchange, bytes, exchange->stored_ns);
    }
}

static struct yb_weights_result
result_of(const struct exchange *exchange)
{
    const struct yb_weights_options *options = exchange->options;
    double load_s = options->bytes / options->load_bytes_per_s;
    struct yb_weights_result result = {.push_s = (double)exchange->stored_ns / 1e9};

    for (uint32_t i = 0; i < options->engines; i++) {
        double has_s = (double)exchange->engines[i].has_ns / 1e9;
        double waited_s = options->overlap ? fmax(0, has_s - options->busy_s) : has_s;

        result.pull_s += exchange->engines[i].pull_ns / 1e9;
        result.exposed_s += (waited_s + load_s) / options->engines;
        result.done_s = fmax(result.done_s, fmax(has_s, options->overlap ? options->busy_s : 0));
    }
    result.done_s += load_s;
    return result;
}

static bool
is_possible(const struct yb_weights_options *options)
{
    return options->bytes > 0 && options->push_bytes_per_s > 0 && options->pull_bytes_per_s > 0 &&
           options->load_bytes_per_s > 0 && options->engines > 0 &&
           options->engines <= YB_WEIGHTS_ENGINES_MAX &&
           (options->bucket_bytes <= 0 ||
            options->bytes / options->bucket_bytes <= YB_WEIGHTS_BUCKETS_MAX);
}

enum yb_status
yb_weights_run(const struct yb_weights_options *options, struct yb_weights_result *result_out)
{
    struct exchange exchange = {.options = options};

    if (!is_possible(options)) {
        return YB_INVALID;
    }
    exchange.engines = calloc(options->engines, sizeof(*exchange.engines));
    if (exchange.engines == NULL) {
        return YB_NO_MEMORY;
    }
    yb_pipe_init(&exchange.push, options->push_bytes_per_s);
    if (options->out_bytes_per_s > 0) {
        yb_pipe_init(&exchange.out, options->out_bytes_per_s);
    }
    for (uint32_t i = 0; i < options->engines; i++) {
        yb_pipe_init(&exchange.engines[i].port, options->pull_bytes_per_s);
    }
    push_all(&exchange);
    *result_out = result_of(&exchange);
    free(exchange.engines);
    return YB_OK;
}
