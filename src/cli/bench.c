/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench`: which bench, and `net`: our framing beside bare sockets, in the same run.
 */
#include "cli/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/cli.h"
#include "cli/output.h"

const struct yb_cli_option yb_cli_bench_options[] = {
    {"rounds", "N", "times that each row is measured, ours and bare in turns (5)"},
    {"run-ms", "N",
     "how long each measurement takes (net 500, transfer 300, classes 1000, directory 500, store "
     "300)"},
    {"idle", "N", "net: idle connections to open; 0 leaves that row out (1000)"},
    {"path", "PATH", "transfer, store: tcp, shm or auto (auto; store: both)"},
    {"device", NULL, "transfer: memory of a device at both ends; store: at the client"},
    {"sizes", "LIST", "transfer: sizes of objects (4k,64k,1m,16m); store: of values (4k,64k,1m)"},
    {"fragments", "LIST", "transfer, store: pieces that an object of 2 MiB is cut into (1,64,512)"},
    {"batch", "LIST", "store: values in one call (1,16,64)"},
    {"streams", "LIST", "transfer: connections to the target (1,4)"},
    {"op", "OP", "transfer: read, write or both (both); store: put, get, exist, pin or all (all)"},
    {"on", "WHAT", "classes: tcp, shm, ssd or object (tcp)"},
    {"blocks", "LIST",
     "directory: how many blocks (1000000,4000000,10000000); sched: of a request (250)"},
    {"instances", "LIST", "sched: how many instances (16,256,4096); conductor: the first (256)"},
    {"tokens", "LIST", "conductor: of a prompt (8k,32k,128k,1000000)"},
    {"clients", "N", "conductor: connections, which ask in turns (64)"},
    {"beside", NULL, "conductor: also while the store that the configuration names is kept busy"},
    {"routing", "NAME", "sched: which policy decides (ready)"},
    {"outstanding", "LIST",
     "directory: messages under way (1,100,1000); fetch: how many blocks (10000)"},
    {"latency", "MS", "fetch: by how much each read is held up (20ms)"},
    {"keys", "N", "directory: keys in one of them (512)"},
    {"dir", "DIR",
     "ssd, classes: where to write, on the disk that is meant (the current directory)"},
    {"io", "IO", "ssd, classes: io_uring, threads or auto (auto)"},
    {"mib", "N", "ssd: MiB that each row writes (1024)"},
    {"records", "N", "ssd: records that are recovered (4000000)"},
    {"trace", "FILE", "ssd: run a request trace over a pool and a log twice as large instead"},
    {"pool", "N", "ssd --trace: blocks of the pool (10000)"},
    {"store", "URL",
     "object, classes: file:DIR or s3://BUCKET?endpoint=URL (file:yuebing-bench-object, which goes "
     "in the end)"},
    {NULL, NULL, NULL},
};

/* Options that belong to some benches only: their names, each between blanks. */
static const struct {
    const char *option;
    const char *benches;
} options_of[] = {
    {"idle", " net "},
    {"path", " transfer store "},
    {"device", " transfer store "},
    {"sizes", " transfer store "},
    {"fragments", " transfer store "},
    {"streams", " transfer "},
    {"op", " transfer store "},
    {"on", " classes "},
    {"blocks", " directory sched "},
    {"instances", " sched conductor "},
    {"tokens", " conductor "},
    {"clients", " conductor "},
    {"beside", " conductor "},
    {"routing", " sched "},
    {"outstanding", " directory fetch "},
    {"latency", " fetch "},
    {"keys", " directory "},
    {"batch", " store "},
    {"dir", " ssd classes "},
    {"io", " ssd classes "},
    {"mib", " ssd "},
    {"records", " ssd "},
    {"trace", " ssd "},
    {"pool", " ssd "},
    {"store", " object classes "},
};

#define ROUNDS_MAX    99u
#define MESSAGE_BYTES 64u

/* What a row shows of its runs. */
enum figure {
    FIGURE_P50_US,     /* Smaller is better: ratio is ours / bare. */
    FIGURE_P99_US,     /* As above. */
    FIGURE_PER_SECOND, /* Larger is better: ratio is ours / bare too. */
};

struct row {
    const char *what;
    struct yb_bench_load load;
    bool sleeps;    /* Without polling before a sleep. */
    bool connects;  /* Connections instead of messages. */
    uint32_t batch; /* Items that one message, or one round, carries. */
    enum figure figure;
};

/* What is sent: {conns, depth, bytes}; the time of a run is filled in. */
#define ONE                    \
    {                          \
        1, 1, MESSAGE_BYTES, 0 \
    }
#define MANY                    \
    {                           \
        32, 1, MESSAGE_BYTES, 0 \
    }
#define BATCH(conns)                       \
    {                                      \
        (conns), 1, 128 * MESSAGE_BYTES, 0 \
    }
#define PIPE(conns)                    \
    {                                  \
        (conns), 128, MESSAGE_BYTES, 0 \
    }

/* clang-format off */
static const struct row rows[] = {
    {"ping-pong p50 us",             ONE,       false, false, 1,   FIGURE_P50_US},
    {"ping-pong p99 us",             ONE,       false, false, 1,   FIGURE_P99_US},
    {"ping-pong p50 us, no polling", ONE,       true,  false, 1,   FIGURE_P50_US},
    {"requests/s",                   ONE,       false, false, 1,   FIGURE_PER_SECOND},
    {"requests/s",                   MANY,      false, false, 1,   FIGURE_PER_SECOND},
    {"items/s, one message a batch", BATCH(1),  false, false, 128, FIGURE_PER_SECOND},
    {"items/s, one message a batch", BATCH(32), false, false, 128, FIGURE_PER_SECOND},
    /* Each request has its own header and answer; the bare side sends the same payload as one
     * blob and tells nothing apart, which no protocol can. For orientation. */
    {"requests/s, pipelined",        PIPE(1),   false, false, 128, FIGURE_PER_SECOND},
    {"requests/s, pipelined",        PIPE(32),  false, false, 128, FIGURE_PER_SECOND},
    {"handshakes/s, with secret",    ONE,       false, true,  1,   FIGURE_PER_SECOND},
};
/* clang-format on */
#define ROWS (sizeof(rows) / sizeof(rows[0]))

struct bench {
    struct yb_cli *cli;
    uint64_t rounds;
    uint64_t run_ns;
    struct yb_config polling;
    struct yb_config sleeping;
    double ours[ROWS][ROUNDS_MAX];
    double bare[ROWS][ROUNDS_MAX];
};

static int
compare_doubles(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;

    return (*left > *right) - (*left < *right);
}

double
yb_bench_median(double *values, uint64_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double
figure_of(const struct row *row, const struct yb_bench_result *result)
{
    switch (row->figure) {
    case FIGURE_P50_US: return (double)result->p50_ns / 1e3;
    case FIGURE_P99_US: return (double)result->p99_ns / 1e3;
    case FIGURE_PER_SECOND: break;
    }
    /* Pipelined rounds count their messages already; a batch in one message counts its items. */
    return row->load.depth > 1 ? result->per_second : result->per_second * row->batch;
}

typedef bool start_fn(const struct yb_config *config, struct yb_bench_server *server_out);

/* Measure one row once, on one side, against a server of its own. */
static bool
measure(const struct bench *bench, const struct row *row, bool ours, double *value_out)
{
    const struct yb_config *config = row->sleeps ? &bench->sleeping : &bench->polling;
    struct yb_bench_load load = row->load;
    struct yb_bench_server server = {0};
    struct yb_bench_result result = {0};
    start_fn *start = ours ? yb_bench_net_start : yb_bench_bare_start;
    bool ok;

    load.run_ns = bench->run_ns;
    if (!start(config, &server)) {
        return false;
    }
    if (row->connects) {
        ok = ours ? yb_bench_net_connects(config, &server, load.run_ns, &result)
                  : yb_bench_bare_connects(config, &server, load.run_ns, &result);
    } else {
        ok = ours ? yb_bench_net_run(config, &server, &load, &result)
                  : yb_bench_bare_run(config, &server, &load, &result);
    }
    yb_bench_stop(&server);
    *value_out = figure_of(row, &result);
    return ok;
}

static bool
measure_all(struct bench *bench)
{
    struct yb_output_progress progress;
    uint64_t done = 0;
    bool ok = true;

    yb_output_progress_begin(&progress, bench->cli->err, bench->cli->terminal, yb_clock_system(),
                             "measuring", bench->rounds * ROWS);
    for (uint64_t round = 0; ok && round < bench->rounds; round++) {
        for (size_t i = 0; ok && i < ROWS; i++) {
            ok = measure(bench, &rows[i], false, &bench->bare[i][round]) &&
                 measure(bench, &rows[i], true, &bench->ours[i][round]);
            yb_output_progress_update(&progress, ++done);
        }
    }
    yb_output_progress_end(&progress);
    return ok;
}

static bool
measure_idle(const struct bench *bench, uint32_t conns, struct yb_bench_idle *idle_out)
{
    struct yb_bench_server server = {0};
    bool ok;

    if (!yb_bench_net_start(&bench->polling, &server)) {
        return false;
    }
    ok = yb_bench_net_idle(&bench->polling, &server, conns, 6 * bench->run_ns, idle_out);
    yb_bench_stop(&server);
    return ok;
}

/* ---- results ------------------------------------------------------------------------------- */

static json_t *
rows_json(struct bench *bench)
{
    json_t *array = json_array();

    for (size_t i = 0; i < ROWS; i++) {
        double ours = yb_bench_median(bench->ours[i], bench->rounds);
        double bare = yb_bench_median(bench->bare[i], bench->rounds);

        json_array_append_new(array, json_pack("{s:s, s:i, s:i, s:f, s:f, s:f}", "what",
                                               rows[i].what, "conns", (int)rows[i].load.conns,
                                               "batch", (int)rows[i].batch, "ours", ours, "bare",
                                               bare, "ratio", ours / bare));
    }
    return array;
}

static int
print_json(struct bench *bench, uint32_t idle_conns, const struct yb_bench_idle *idle)
{
    json_t *document = json_pack("{s:s, s:I, s:o}", "bench", "net", "rounds",
                                 (json_int_t)bench->rounds, "rows", rows_json(bench));

    if (idle_conns > 0) {
        json_object_set_new(document, "idle",
                            json_pack("{s:i, s:f, s:f, s:f, s:f}", "conns", (int)idle_conns,
                                      "server_bytes_each", idle->server_bytes, "client_bytes_each",
                                      idle->client_bytes, "server_cores", idle->server_cpu,
                                      "client_cores", idle->client_cpu));
    }
    return yb_output_json(bench->cli->out, document) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}

static bool
add_row(struct yb_output_table *table, struct bench *bench, size_t i)
{
    double ours = yb_bench_median(bench->ours[i], bench->rounds);
    double bare = yb_bench_median(bench->bare[i], bench->rounds);
    int digits = rows[i].figure == FIGURE_PER_SECOND ? 0 : 2;
    char cells[5][32];
    const char *list[6] = {rows[i].what, cells[0], cells[1], cells[2], cells[3], cells[4]};

    (void)snprintf(cells[0], sizeof(cells[0]), "%u", rows[i].load.conns);
    (void)snprintf(cells[1], sizeof(cells[1]), "%u", rows[i].batch);
    (void)snprintf(cells[2], sizeof(cells[2]), "%.*f", digits, ours);
    (void)snprintf(cells[3], sizeof(cells[3]), "%.*f", digits, bare);
    (void)snprintf(cells[4], sizeof(cells[4]), "%.2f", ours / bare);
    return yb_output_table_add(table, list) == YB_OK;
}

static int
print_table(struct bench *bench, uint32_t idle_conns, const struct yb_bench_idle *idle)
{
    static const char *const columns[] = {"what", "conns", "batch", "ours", "bare", "ratio"};
    struct yb_output_table *table = NULL;
    FILE *out = bench->cli->out;
    bool ok = yb_output_table_create(columns, 6, &table) == YB_OK;

    for (size_t i = 0; ok && i < ROWS; i++) {
        ok = add_row(table, bench, i);
    }
    if (ok) {
        yb_output_table_print(table, out, bench->cli->terminal);
        fprintf(out,
                "medians of %llu interleaved rounds; for latencies a smaller ratio is better\n",
                (unsigned long long)bench->rounds);
    }
    if (ok && idle_conns > 0) {
        fprintf(out,
                "%u idle connections: %.1f KiB each in the server, %.1f KiB each in the client; "
                "%.2f %% and %.2f %% of a core\n",
                idle_conns, idle->server_bytes / 1024, idle->client_bytes / 1024,
                idle->server_cpu * 100, idle->client_cpu * 100);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_bench_net(struct yb_cli *cli)
{
    struct yb_bench_idle idle = {0};
    uint64_t idle_conns = 1000;
    uint64_t run_ms = 500;
    struct bench *bench = calloc(1, sizeof(*bench));
    int result = YB_CLI_EXIT_FAILED;

    if (bench == NULL) {
        fprintf(cli->err, "yuebing bench: no memory\n");
        return YB_CLI_EXIT_FAILED;
    }
    bench->cli = cli;
    bench->rounds = 5;
    bench->polling = cli->config;
    bench->sleeping = cli->config;
    bench->sleeping.net_spin_us = 0;
    if (!yb_cli_option_number(cli, "rounds", 1, ROUNDS_MAX, &bench->rounds) ||
        !yb_cli_option_number(cli, "run-ms", 10, 60000, &run_ms) ||
        !yb_cli_option_number(cli, "idle", 0, 8000, &idle_conns)) {
        result = YB_CLI_EXIT_REFUSED;
    } else {
        bench->run_ns = run_ms * YB_NS_PER_MS;
        /* Idle connections first: later their memory would come from what others have freed. */
        if ((idle_conns == 0 || measure_idle(bench, (uint32_t)idle_conns, &idle)) &&
            measure_all(bench)) {
            result = cli->json ? print_json(bench, (uint32_t)idle_conns, &idle)
                               : print_table(bench, (uint32_t)idle_conns, &idle);
        }
    }
    free(bench);
    return result;
}

/* ---- which bench --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(struct yb_cli *cli);
} benches[] = {
#define X(name) {#name, yb_bench_##name},
    YB_BENCH_MAP(X, X)
#undef X
};

int
yb_cli_bench(struct yb_cli *cli, int argc, char **argv)
{
    const char *name = argc > 0 ? argv[0] : "net";
    char word[32];

    (void)snprintf(word, sizeof(word), " %s ", name);
    for (size_t i = 0; i < sizeof(options_of) / sizeof(options_of[0]); i++) {
        if (yb_cli_option(cli, options_of[i].option) != NULL &&
            strstr(options_of[i].benches, word) == NULL) {
            fprintf(cli->err, "yuebing bench %s: --%s belongs to `yuebing bench`%s\n", name,
                    options_of[i].option, options_of[i].benches);
            return YB_CLI_EXIT_REFUSED;
        }
    }
    for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++) {
        if (strcmp(benches[i].name, name) == 0) {
            return benches[i].run(cli);
        }
    }
    fprintf(cli->err, "yuebing bench: there is no bench `%s`; try one of " YB_BENCH_LIST "\n",
            name);
    return YB_CLI_EXIT_REFUSED;
}
