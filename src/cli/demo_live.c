/* SPDX-License-Identifier: Apache-2.0
 *
 * The main story: the same requests, one after the other on clusters that differ in one thing.
 *
 *     own caches       each engine has its own memory alone
 *     plain pool       engines share blocks; stores and loads are of one class, nothing is loaded
 *                      ahead
 *     pool             as it is
 *     no reuse         no two prompts share anything: what the pool costs when it brings nothing
 *     slow link        loads come through a link on which they hardly pay
 *
 * Beside the pool alone, when they are asked for: chaos, and several conductors.
 *
 * The last two are shorter, and each stands beside a run with own caches alone.
 *
 * Time passes for requests as much faster than in the trace as computing does, and so many of the
 * trace's sessions are taken that computing everything would take LOAD of the time of the engines
 * for prefill.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo.h"
#include "cli/demo_chaos.h"
#include "cli/output.h"
#include "sim/trace_gen.h"

#define BLOCK_TOKENS    512u
#define BLOCK_BYTES     65536u
#define TIME_SCALE      0.05
#define MODEL_TTFT_MS   30000u /* The targets, of the model's time, as in the paper on Mooncake. */
#define MODEL_PACE_MS   100u
#define POOL_BLOCKS     320u
#define TOKENS_MAX      (128u * BLOCK_TOKENS) /* Of a prompt; longer ones are left out. */
#define NODE_MEMORY     "64m"
#define FAR_MS          20u
#define LOAD            0.75
#define ANSWER_MAX      48u
#define SEED            1u
#define SPEED           (1 / TIME_SCALE)
#define GENERATED       80u /* Requests for each second: 3.3 a second, in the trace's time. */
#define SHORT           3u  /* The short columns take that part of a long one's time. */
#define SLOW_LINK_BYTES (20u << 20)
#define POOL            2u /* Which of the acts is the pool as it is. */
#define CONDUCTORS      4u /* In the act with several, unless it is said how many. */

/* A run: which cluster, which requests. */
struct act {
    const char *name;
    const char *doing;
    bool pool, classes, ahead, unique, brief, chaos, several;
    uint64_t load_rate;
    uint32_t beside; /* With which act its times are compared. */
};

#define WITH_POOL .pool = true, .classes = true, .ahead = true

/* In the order of the table. */
static const struct act acts[YB_DEMO_COLUMNS] = {
    {.name = "own caches", .doing = "engines with their own memory alone", .beside = 0},
    {.name = "plain pool",
     .doing = "a pool, without classes and without loading ahead",
     .pool = true,
     .beside = 0},
    {.name = "pool", .doing = "the pool as it is", WITH_POOL, .beside = 0},
    {.name = "no reuse, own",
     .doing = "prompts that share nothing, own memory alone",
     .unique = true,
     .brief = true,
     .beside = 3},
    {.name = "no reuse, pool",
     .doing = "prompts that share nothing, the pool",
     WITH_POOL,
     .unique = true,
     .brief = true,
     .beside = 3},
    {.name = "slow link, own",
     .doing = "own memory alone, beside a slow link",
     .brief = true,
     .beside = 5},
    {.name = "slow link, pool",
     .doing = "the pool behind a slow link",
     WITH_POOL,
     .brief = true,
     .load_rate = SLOW_LINK_BYTES,
     .beside = 5},
    {.name = "chaos",
     .doing = "the pool, while links are cut, a node is killed, the directory is started again, "
              "and the object store is slow, then gone",
     WITH_POOL,
     .chaos = true,
     .beside = POOL},
    {.name = "conductors",
     .doing = "the pool, with several conductors side by side, which are asked in turns",
     WITH_POOL,
     .several = true,
     .beside = POOL},
};

/* In which they are played: the cluster that stays is the pool's. */
static const uint32_t played[YB_DEMO_COLUMNS] = {0, 1, 3, 4, 5, 6, 7, 8, POOL};

struct live {
    struct yb_cli *cli;
    const struct yb_demo_wish *wish;
    struct yb_trace *trace;
    struct yb_sched_cost cost;
    double share;         /* Of the trace's sessions. */
    uint32_t whole_count; /* Requests of a long column ... */
    uint32_t brief_count; /* ... and of a short one. */
    uint32_t last;        /* The run whose cluster stays. */
    char workload[192];
    struct yb_demo_cluster cluster;
    struct yb_demo_report report;
};

static bool
fail(const struct live *live, const char *what, const char *why)
{
    fprintf(live->cli->err, "yuebing demo: %s: %s\n", what, why);
    return false;
}

/* ---- the workload ---------------------------------------------------------------------------- */

static bool
read_cost(struct live *live)
{
    enum yb_status status = yb_demo_cost(&live->cost);

    return status == YB_OK || fail(live, "the cost model", yb_status_text(status));
}

/* The cost of computing as it passes here. */
static struct yb_sched_cost
scaled(const struct yb_sched_cost *cost)
{
    struct yb_sched_cost here = *cost;

    here.prefill_base_ns *= TIME_SCALE;
    here.prefill_token_ns *= TIME_SCALE;
    here.prefill_pair_ns *= TIME_SCALE;
    return here;
}

static bool
choose(struct live *live)
{
    const struct yb_sched_cost here = scaled(&live->cost);
    const struct yb_demo_limits limits = {.prompt_max = TOKENS_MAX, .answer_max = ANSWER_MAX};
    double seconds = (double)live->wish->seconds;
    const char *kept = live->wish->keep_trace;

    live->share = yb_demo_choose(live->trace, &here, SPEED, LOAD * (YB_DEMO_ENGINES / 2), &limits);
    if (live->share == 0) {
        return fail(live, "the trace", "it has no two requests that fit an engine's memory");
    }
    live->whole_count = yb_demo_count_within(live->trace, SPEED, seconds);
    live->brief_count = yb_demo_count_within(live->trace, SPEED, seconds / SHORT);
    return kept == NULL || yb_demo_keep_trace(live->trace, live->whole_count, kept) == YB_OK ||
           fail(live, kept, "it cannot be written");
}

static bool
make_workload(struct live *live)
{
    const struct yb_trace_options options = {.format = YB_TRACE_AUTO, .spread = true, .seed = SEED};
    char message[YB_TRACE_MESSAGE_MAX] = "";
    const char *file = live->wish->trace;
    uint32_t wanted = (uint32_t)(live->wish->seconds * GENERATED);
    enum yb_status status = file != NULL ? yb_trace_open(file, &options, &live->trace, message)
                                         : yb_trace_gen("conversation", wanted, SEED, &live->trace);

    if (status != YB_OK) {
        return fail(live, file != NULL ? file : "the workload",
                    message[0] != '\0' ? message : yb_status_text(status));
    }
    if (!read_cost(live) || !choose(live)) {
        return false;
    }
    (void)snprintf(
        live->workload, sizeof(live->workload),
        "%.96s: %.1f %% of its sessions, %u requests, which come %.0f times as fast as in "
        "the trace",
        file != NULL ? file : "conversation, generated", live->share * 100, live->whole_count,
        SPEED);
    return true;
}

/* ---- acts ------------------------------------------------------------------------------------ */

static struct yb_demo_shape
shape_of(const struct live *live, const struct act *act)
{
    uint64_t several = live->wish->conductors > 0 ? live->wish->conductors : CONDUCTORS;

    return (struct yb_demo_shape){
        .pool = act->pool,
        .classes = act->classes,
        .ahead = act->ahead,
        .engines = YB_DEMO_ENGINES,
        .conductors = act->several ? (uint32_t)several : 1,
        .disks = true,
        .load_rate = act->load_rate,
        .model = YB_DEMO_MODEL,
        .time_scale = TIME_SCALE,
        .ttft_ms = (uint64_t)(MODEL_TTFT_MS * TIME_SCALE),
        .pace_ms = (uint64_t)(MODEL_PACE_MS * TIME_SCALE),
        .block_tokens = BLOCK_TOKENS,
        .block_bytes = BLOCK_BYTES,
        .pool_blocks = POOL_BLOCKS,
        .node_memory = NODE_MEMORY,
        .far_ms = FAR_MS,
    };
}

static void
say(const struct live *live, const struct yb_demo_column *column)
{
    const struct yb_cli *cli = live->cli;
    double hit = 0;

    for (uint32_t i = 0; i < YB_DEMO_TIERS; i++) {
        hit += column->hit[i];
    }
    fprintf(cli->json ? cli->err : cli->out,
            "  %u of %u answered, TTFT P50 %.0f ms, %.1f %% of the prompts' tokens not computed, "
            "%llu wrong bytes\n",
            column->answered, column->asked, (double)yb_demo_ttft(column, 0.5) / 1e6, hit * 100,
            (unsigned long long)column->wrong_bytes);
}

/* An act while it is played. */
struct scene {
    struct live *live;
    const struct act *act;
    struct yb_demo_shape shape;
    struct yb_demo_work work;
    struct yb_demo_column *column;
    bool ran;
};

static void *
send_requests(void *context)
{
    struct scene *scene = context;

    scene->ran = yb_demo_run(&scene->live->cluster, &scene->shape, &scene->work, &scene->live->cost,
                             scene->column);
    return NULL;
}

/* Send the requests from a thread, as what befalls the cluster comes from this one. */
static bool
send_in_chaos(struct scene *scene)
{
    struct live *live = scene->live;
    struct yb_demo_chaos chaos;
    const char *failure;
    pthread_t thread;

    if (pthread_create(&thread, NULL, send_requests, scene) != 0) {
        return fail(live, scene->act->doing, yb_status_text(YB_NO_MEMORY));
    }
    failure = yb_demo_chaos(&chaos, &live->cluster, (double)live->wish->seconds);
    YB_ASSERT(pthread_join(thread, NULL) == 0);
    scene->column->links_cut = chaos.links.cut;
    if (chaos.links_error != 0) {
        fprintf(live->cli->err,
                "yuebing demo: no links were cut: %s; a process must be allowed to look into those "
                "that it started (pidfd_getfd in the container's seccomp profile, "
                "kernel.yama.ptrace_scope at most 1)\n",
                strerror(chaos.links_error));
    }
    return failure == NULL || fail(live, scene->act->doing, failure);
}

/* Play an act; the cluster is left as it is. */
static bool
play(struct live *live, uint32_t index)
{
    const struct act *act = &acts[index];
    struct scene scene = {
        .live = live,
        .act = act,
        .shape = shape_of(live, act),
        .work = {.trace = live->trace,
                 .count = act->brief ? live->brief_count : live->whole_count,
                 .speed = SPEED,
                 .unique = act->unique},
        .column = &live->report.columns[index],
    };
    FILE *out = live->cli->json ? live->cli->err : live->cli->out;

    fprintf(out, "%s: %u requests\n", act->doing, scene.work.count);
    (void)fflush(out);
    scene.column->name = act->name;
    if (!yb_demo_cluster_start(&live->cluster, live->cli, &scene.shape)) {
        return fail(live, "the cluster", live->cluster.why);
    }
    if (!act->chaos) {
        (void)send_requests(&scene);
    } else if (!send_in_chaos(&scene)) {
        return false;
    }
    if (!scene.ran) {
        return fail(live, act->doing, live->cluster.why);
    }
    say(live, scene.column);
    live->report.beside[index] = act->beside;
    return true;
}

/* End a run's cluster, which tells how much memory it had. */
static bool
stop(struct live *live, uint32_t index)
{
    bool well = yb_demo_cluster_stop(&live->cluster);

    live->report.columns[index].memory_bytes = live->cluster.memory_bytes;
    return well || fail(live, acts[index].doing, "a process did not end well");
}

static bool
is_wanted(const struct live *live, uint32_t index)
{
    const struct yb_demo_wish *wish = live->wish;
    const struct act *act = &acts[index];

    if (wish->only != NULL) {
        return strcmp(wish->only, act->name) == 0;
    }
    if (wish->chaos || wish->conductors > 0) {
        return index == POOL || (wish->chaos && act->chaos) ||
               (wish->conductors > 0 && act->several);
    }
    return !act->chaos && !act->several;
}

/* The last one's cluster is left as it is. */
static bool
play_all(struct live *live)
{
    uint32_t before = YB_DEMO_COLUMNS; /* Whose cluster is there; YB_DEMO_COLUMNS: none. */

    for (uint32_t i = 0; i < YB_DEMO_COLUMNS; i++) {
        if (!is_wanted(live, played[i])) {
            continue;
        }
        if (before < YB_DEMO_COLUMNS && !stop(live, before)) {
            return false;
        }
        before = played[i];
        if (!play(live, before)) {
            return false;
        }
    }
    if (before == YB_DEMO_COLUMNS) {
        return fail(live, "--only",
                    "there is no such column; write one as the table's head has it");
    }
    live->last = before;
    return true;
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool
as_promised(const struct live *live)
{
    for (uint32_t i = 0; i < YB_DEMO_COLUMNS; i++) {
        const struct yb_demo_column *column = &live->report.columns[i];

        if (column->wrong_bytes > 0) {
            return fail(live, column->name, "bytes were wrong");
        }
        if (column->answered < column->asked) {
            return fail(live, column->name, column->unanswered);
        }
        if (column->issued != column->terminal + column->watched || column->open > 0) {
            return fail(live, column->name, "an instruction did not end");
        }
    }
    return true;
}

/* Leave the cluster as it is until somebody has looked at it. */
static void
linger(const struct live *live)
{
    sigset_t signals;
    int number;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    fprintf(live->cli->out,
            "\nThe cluster is still there. Its dashboard: http://%s/ (the store's alone: "
            "http://%s/). Ctrl-C ends it.\n",
            live->cluster.conductors[0], live->cluster.admin);
    (void)fflush(live->cli->out);
    (void)sigwait(&signals, &number);
    (void)sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

static bool
show(struct live *live)
{
    struct yb_demo_report *report = &live->report;

    report->header = (struct yb_demo_header){
        .workload = live->workload,
        .time_scale = TIME_SCALE,
        .model_ttft_ms = MODEL_TTFT_MS,
        .model_pace_ms = MODEL_PACE_MS,
        .block_bytes = BLOCK_BYTES,
        .model_bytes = (uint64_t)BLOCK_TOKENS * live->cost.kv_bytes,
        .block_tokens = BLOCK_TOKENS,
        .far_ms = FAR_MS,
        .processors = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
    };
    if (live->cli->json) {
        json_t *value = yb_demo_json(report);
        bool done = value != NULL && json_dumpf(value, live->cli->out, JSON_COMPACT) == 0 &&
                    fputc('\n', live->cli->out) != EOF;

        json_decref(value);
        return done;
    }
    return yb_demo_print(report, live->cli);
}

int
yb_cli_demo_live(struct yb_cli *cli, const struct yb_demo_wish *wish)
{
    struct live *live = calloc(1, sizeof(*live));
    const struct yb_clock *clock = yb_clock_system();
    uint64_t begun_ns = yb_clock_now(clock);
    bool ok;

    if (live == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    live->cli = cli;
    live->wish = wish;
    fprintf(cli->json ? cli->err : cli->out,
            "yuebing demo: a directory, a conductor, 3 nodes and 4 engines as processes on this "
            "machine; each byte that an engine loads is compared\n");
    (void)fflush(cli->out);
    ok = make_workload(live) && play_all(live);
    if (ok && wish->leave) {
        ok = stop(live, live->last);
    }
    live->report.took_s = (double)(yb_clock_now(clock) - begun_ns) / 1e9;
    ok = ok && show(live) && as_promised(live);
    if (ok && !wish->leave) {
        linger(live);
    }
    ok = yb_demo_cluster_stop(&live->cluster) && ok;
    for (uint32_t i = 0; i < YB_DEMO_COLUMNS; i++) {
        yb_demo_column_fini(&live->report.columns[i]);
    }
    if (live->trace != NULL) {
        yb_trace_destroy(&live->trace);
    }
    free(live);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}
