/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/window_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/random.h"
#include "yuebing/sched.h"

#define STREAMS      6u  /* Engines on one way. */
#define STEP_NS      5e6 /* To compute a block. */
#define TRANSFER_NS  5e5 /* Of a block's bytes. */
#define BLOCKS_LEAST 48u /* Of a prompt. */
#define BLOCKS_MOST  80u
#define WINDOW_MOST  256u

static const uint32_t sizes[YB_WINDOW_SIZES] = {1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64};

static const struct {
    const char *name;
    struct yb_window_world worlds[YB_WINDOW_HALVES];
} rows[] = {
    {"nothing", {{20e6, 0.1, 0.97}, {20e6, 0.1, 0.97}}},
    {"latency up", {{20e6, 0.1, 0.97}, {60e6, 0.1, 0.97}}},
    {"latency down", {{60e6, 0.1, 0.97}, {20e6, 0.1, 0.97}}},
    {"jitter", {{20e6, 0.1, 0.97}, {20e6, 0.6, 0.97}}},
    {"hits drop", {{20e6, 0.1, 0.97}, {20e6, 0.1, 0.88}}},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* An engine and the prompt that it computes. */
struct stream {
    double now_ns;     /* When its last step ended, or its block is there: see `waiting`. */
    double began_ns;   /* Its prompt. */
    double latency_ns; /* Sum over what was asked for. */
    double there_ns[WINDOW_MOST]; /* When the block of a step is there, by step % WINDOW_MOST. */
    uint32_t asked;               /* Blocks asked for, those that were of no use not counted. */
    uint32_t fetches;             /* All. */
    uint32_t step;
    uint32_t blocks;
    uint32_t window;
    bool waiting; /* For the block of `step`. */
};

struct ground {
    const struct yb_window_world *world;
    struct yb_sim_random random;
    struct stream streams[STREAMS];
    double free_ns; /* When the way has nothing more to carry. */
};

uint32_t
yb_window_size(uint32_t index)
{
    YB_ASSERT(index < YB_WINDOW_SIZES);
    return sizes[index];
}

const char *
yb_window_row_name(uint32_t index)
{
    return index < ROWS ? rows[index].name : NULL;
}

/* ---- the world ------------------------------------------------------------------------------- */

/* Ask for blocks, in their order, up to `end`. Bytes pass the way one block after the other;
 * latencies overlap. */
static void
ask(struct ground *ground, struct stream *stream, uint32_t end)
{
    end = end < stream->blocks ? end : stream->blocks;
    for (; stream->asked < end; stream->asked++) {
        double latency_ns = ground->world->latency_ns *
                            exp(ground->world->jitter * yb_sim_random_normal(&ground->random));

        ground->free_ns = fmax(ground->free_ns, stream->now_ns) + TRANSFER_NS;
        stream->there_ns[stream->asked % WINDOW_MOST] = ground->free_ns + latency_ns;
        stream->latency_ns += latency_ns;
        stream->fetches++;
    }
}

static void
begin(struct ground *ground, struct stream *stream, uint32_t window)
{
    YB_ASSERT(window >= 1);
    stream->window = window < WINDOW_MOST ? window : WINDOW_MOST;
    stream->began_ns = stream->now_ns;
    stream->latency_ns = 0;
    stream->fetches = 0;
    stream->step = 0;
    stream->asked = 0;
    stream->waiting = false;
    stream->blocks = BLOCKS_LEAST +
                     (uint32_t)yb_sim_random_below(&ground->random, BLOCKS_MOST - BLOCKS_LEAST + 1);
    ask(ground, stream, stream->window);
}

/* The engine comes to its next step, or begins to compute it. Returns whether the prompt is
 * done. */
static bool
advance(struct ground *ground, struct stream *stream)
{
    if (!stream->waiting) {
        if (yb_sim_random_unit(&ground->random) >= ground->world->hit) {
            stream->asked = stream->step; /* What is on its way is of no use. */
            ask(ground, stream, stream->step + stream->window);
        }
        stream->now_ns = fmax(stream->now_ns, stream->there_ns[stream->step % WINDOW_MOST]);
        stream->waiting = true;
        return false;
    }
    ask(ground, stream, stream->step + 1 + stream->window);
    stream->waiting = false;
    stream->now_ns += STEP_NS;
    stream->step++;
    return stream->step == stream->blocks;
}

static struct stream *
next_stream(struct ground *ground)
{
    struct stream *first = &ground->streams[0];

    for (uint32_t i = 1; i < STREAMS; i++) {
        first = ground->streams[i].now_ns < first->now_ns ? &ground->streams[i] : first;
    }
    return first;
}

/* Let requests come one after the other to each engine until one is done; returns it. */
static struct stream *
until_done(struct ground *ground)
{
    for (;;) {
        struct stream *stream = next_stream(ground);

        if (advance(ground, stream)) {
            return stream;
        }
    }
}

static void
start(struct ground *ground, const struct yb_window_world *world, uint64_t seed, uint32_t window)
{
    memset(ground, 0, sizeof(*ground));
    ground->world = world;
    ground->random.state = seed;
    for (uint32_t i = 0; i < STREAMS; i++) {
        ground->streams[i].now_ns = i * STEP_NS; /* They do not march in step. */
        begin(ground, &ground->streams[i], window);
    }
}

enum yb_status
yb_window_fixed_run(const struct yb_window_world *world, uint32_t window, uint32_t count,
                    uint64_t seed, double *ttft_ns_out)
{
    struct ground *ground = malloc(sizeof(*ground));

    if (ground == NULL) {
        return YB_NO_MEMORY;
    }
    start(ground, world, seed, window);
    for (uint32_t i = 0; i < count; i++) {
        struct stream *stream = until_done(ground);

        ttft_ns_out[i] = stream->now_ns - stream->began_ns;
        begin(ground, stream, window);
    }
    free(ground);
    return YB_OK;
}

/* ---- what came out --------------------------------------------------------------------------- */

static int
compare(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;

    return (*left > *right) - (*left < *right);
}

/* `scratch` has room for `count`. */
static struct yb_window_times
times_of(const double *ttft_ns, uint32_t count, double *scratch)
{
    memcpy(scratch, ttft_ns, count * sizeof(*scratch));
    qsort(scratch, count, sizeof(*scratch), compare);
    return (struct yb_window_times){
        .p50_ns = scratch[(count * 50ull + 99) / 100 - 1],
        .p95_ns = scratch[(count * 95ull + 99) / 100 - 1],
        .p99_ns = scratch[(count * 99ull + 99) / 100 - 1],
    };
}

static enum yb_status
run_fixed(struct yb_window_row *row, uint32_t requests, uint64_t seed, double *ttft_ns,
          double *scratch)
{
    for (uint32_t half = 0; half < YB_WINDOW_HALVES; half++) {
        struct yb_window_times *fixed = row->fixed[half];

        for (uint32_t i = 0; i < YB_WINDOW_SIZES; i++) {
            enum yb_status status =
                yb_window_fixed_run(&row->worlds[half], sizes[i], requests, seed + half, ttft_ns);

            if (status != YB_OK) {
                return status;
            }
            fixed[i] = times_of(ttft_ns, requests, scratch);
            row->best[half] = fixed[i].p95_ns < fixed[row->best[half]].p95_ns ? i : row->best[half];
        }
    }
    return YB_OK;
}

enum yb_status
yb_window_steered_run(const struct yb_window_world *worlds, uint32_t requests, uint64_t seed,
                      double *ttft_ns_out, uint32_t *window_out)
{
    struct ground *ground = malloc(sizeof(*ground));
    struct yb_sched_window_limits limits = {.most = WINDOW_MOST};
    struct yb_sched_window window = yb_sched_window_start(limits, worlds[0].latency_ns, STEP_NS);

    if (ground == NULL) {
        return YB_NO_MEMORY;
    }
    start(ground, &worlds[0], seed, window.size);
    for (uint32_t i = 0; i < YB_WINDOW_HALVES * requests; i++) {
        struct stream *stream;

        ground->world = &worlds[i / requests];
        stream = until_done(ground);
        ttft_ns_out[i] = stream->now_ns - stream->began_ns;
        window = yb_sched_window_next(&window, ttft_ns_out[i], stream->latency_ns / stream->fetches,
                                      STEP_NS);
        window_out[i] = window.size;
        begin(ground, stream, window.size);
    }
    free(ground);
    return YB_OK;
}

/* How many requests passed before the P95 of the next ones was that of the best fixed window. */
static uint32_t
recovery_of(const struct yb_window_row *row, const double *ttft_ns, uint32_t requests,
            double *scratch)
{
    double best_ns = row->fixed[1][row->best[1]].p95_ns;
    uint32_t after = 0;

    while (after + YB_WINDOW_RECOVERY <= requests &&
           times_of(&ttft_ns[after], YB_WINDOW_RECOVERY, scratch).p95_ns >
               YB_WINDOW_P95 * best_ns) {
        after++;
    }
    return after;
}

static void
judge(struct yb_window_row *row)
{
    row->ok = row->recovery <= YB_WINDOW_RECOVERY;
    for (uint32_t half = 0; half < YB_WINDOW_HALVES; half++) {
        const struct yb_window_times *best = &row->fixed[half][row->best[half]];

        row->ok = row->ok && row->steered[half].p95_ns <= YB_WINDOW_P95 * best->p95_ns &&
                  row->steered[half].p99_ns <= YB_WINDOW_P99 * best->p99_ns;
    }
}

static uint32_t
most_used(const uint32_t *windows, uint32_t count)
{
    uint32_t used[WINDOW_MOST + 1] = {0};
    uint32_t most = 1;

    for (uint32_t i = 0; i < count; i++) {
        used[windows[i]]++;
    }
    for (uint32_t i = 1; i <= WINDOW_MOST; i++) {
        most = used[i] > used[most] ? i : most;
    }
    return most;
}

enum yb_status
yb_window_row_run(uint32_t index, uint32_t requests, uint64_t seed, struct yb_window_row *row_out)
{
    struct yb_window_row row = {0};
    double *ttft_ns;
    double *scratch;
    uint32_t *windows;
    enum yb_status status = YB_NO_MEMORY;

    if (index >= ROWS || requests < 2 * YB_WINDOW_SETTLE || requests > YB_WINDOW_REQUESTS_MAX) {
        return YB_INVALID;
    }
    row.name = rows[index].name;
    memcpy(row.worlds, rows[index].worlds, sizeof(row.worlds));
    ttft_ns = calloc((size_t)YB_WINDOW_HALVES * requests, sizeof(*ttft_ns));
    scratch = calloc(requests, sizeof(*scratch));
    windows = calloc((size_t)YB_WINDOW_HALVES * requests, sizeof(*windows));
    if (ttft_ns != NULL && scratch != NULL && windows != NULL) {
        status = run_fixed(&row, requests, seed, ttft_ns, scratch);
    }
    if (status == YB_OK) {
        status = yb_window_steered_run(row.worlds, requests, seed, ttft_ns, windows);
    }
    for (uint32_t half = 0; half < YB_WINDOW_HALVES && status == YB_OK; half++) {
        uint32_t first = half * requests + YB_WINDOW_SETTLE;

        row.steered[half] = times_of(&ttft_ns[first], requests - YB_WINDOW_SETTLE, scratch);
        row.landed[half] = most_used(&windows[first], requests - YB_WINDOW_SETTLE);
    }
    if (status == YB_OK) {
        row.recovery = recovery_of(&row, &ttft_ns[requests], requests, scratch);
        judge(&row);
        *row_out = row;
    }
    free(windows);
    free(scratch);
    free(ttft_ns);
    return status;
}
