/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench conductor`: how long a question takes through the socket, in each form, beside a
 * body of the same size that is refused when it has come, and beside the hashing alone.
 *
 * The server is of this process. As many connections are open as there are clients; they ask in
 * turns, one after the other, so that a time is a question's and not that of a queue.
 *
 * With --beside, also while a store's paths of data are kept busy (bench_load.h): rounds with and
 * without take turns, so that both saw the same machine; and so do rounds in which nobody asks.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_load.h"
#include "cli/demo_process.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "conductor/service.h"
#include "yuebing/client.h"

#define BLOCK_TOKENS  512u
#define ROUND_ASKS    100u
#define CLIENTS_MAX   256u
#define INSTANCES_MAX 4096u
#define TOKENS_MAX    (1u << 20)
#define ANSWER_BYTES  16384u
#define BESIDE_ROUNDS 5u
#define REPORT_BLOCKS 64u /* Of the prompt, in an instance's cache, at most. */

enum figure { FIGURE_BARE_HASHES, FIGURE_HASHES, FIGURE_BARE_TOKENS, FIGURE_TOKENS, FIGURES };
static const char *const figure_names[] = {"bare_hashes", "hashes", "bare_tokens", "tokens"};

struct bench {
    struct yb_cli *cli;
    struct yb_conductor_service *service;
    struct yb_http *http;
    int sockets[CLIENTS_MAX];
    uint32_t clients;
    uint32_t instances;
    uint32_t asked;
    uint64_t sequence;
    uint32_t *tokens;
    struct yb_wire_conductor_key *keys;
    uint8_t *body;
    size_t body_bytes;
    size_t room;
    double *times_us;
    uint64_t rounds;
    struct yb_bench_load *load; /* NULL: nothing is busy beside. */
};

/* ---- the cluster ----------------------------------------------------------------------------- */

/* Call the service without a socket. */
static bool
tell(struct bench *bench, const char *path, json_t *said)
{
    char *text = json_dumps(said, JSON_COMPACT);
    struct yb_http_asked asked = {
        .method = "POST",
        .path = path,
        .body = text,
        .body_bytes = text != NULL ? strlen(text) : 0,
        .may_change = true,
    };
    struct yb_http_told told = {.code = 0};

    json_decref(said);
    if (text == NULL || !yb_conductor_service_answer(bench->service, &asked, &told)) {
        free(text);
        return false;
    }
    if (told.code != 200) {
        fprintf(bench->cli->err, "yuebing bench conductor: %s: %s\n", path,
                told.text != NULL ? told.text : "no memory");
    }
    free(text);
    free(told.text);
    return told.code == 200;
}

static bool
report(struct bench *bench, uint32_t instance)
{
    char name[32];
    json_t *blocks = json_array();

    (void)snprintf(name, sizeof(name), "p%u", instance);
    for (uint32_t i = 0; bench->sequence == 0 && i < instance % REPORT_BLOCKS; i++) {
        char hex[33];

        yb_id_format(bench->keys[i].key, hex);
        (void)json_array_append_new(blocks, json_pack("{s:s}", "key", hex));
    }
    return tell(bench, "/v1/report",
                json_pack("{s:s, s:I, s:i, s:o}", "name", name, "sequence",
                          (json_int_t)bench->sequence + 1, "running", (int)(instance % 30),
                          "blocks", blocks));
}

static bool
report_all(struct bench *bench)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < bench->instances; i++) {
        ok = report(bench, i);
    }
    bench->sequence++;
    return ok;
}

static bool
fill(struct bench *bench)
{
    bool ok = true;

    for (uint32_t i = 0; i < TOKENS_MAX; i++) {
        bench->tokens[i] = i * 2654435761u >> 15;
    }
    (void)yb_key_chain(bench->tokens, TOKENS_MAX, BLOCK_TOKENS, "m", (uint8_t(*)[16])bench->keys,
                       TOKENS_MAX / BLOCK_TOKENS);
    for (uint32_t i = 0; ok && i < bench->instances; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "p%u", i);
        ok = tell(bench, "/v1/register",
                  json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:i, s:I, s:I}", "name", name,
                            "model", "m", "roles", "both", "kv_bytes", 327680, "layers", 80,
                            "prefill_token_ns", 108300.0, "prefill_pair_ns", 0.768, "step_base_ns",
                            26800000, "load_rate", (json_int_t)100000000000, "in_rate",
                            (json_int_t)25000000000));
    }
    return ok && report_all(bench);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Write the request: a header, and the question in the binary form. */
static void
write_request(struct bench *bench, uint32_t tokens, bool hashes, const char *path)
{
    struct yb_wire_conductor_schedule question = {
        .input_tokens = tokens,
        .model = yb_wire_text_of("m"),
    };
    size_t length = 0;
    int header;

    if (hashes) {
        question.hashes.count = tokens / BLOCK_TOKENS;
        question.hashes.native = bench->keys;
    } else {
        question.tokens = (struct yb_wire_blob){(const uint8_t *)bench->tokens, tokens * 4};
    }
    header = snprintf((char *)bench->body, bench->room,
                      "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: " YB_CONDUCTOR_TYPE
                      "\r\nContent-Length: %zu\r\n\r\n",
                      path, yb_wire_conductor_schedule_size(&question));
    YB_ASSERT(yb_wire_conductor_schedule_encode(&question, bench->body + header,
                                                bench->room - (size_t)header, &length) == YB_OK);
    bench->body_bytes = (size_t)header + length;
}

/* Send it, and read the answer to its end. Returns its code; 0: the connection failed. */
static unsigned
ask(struct bench *bench, int fd)
{
    char answer[ANSWER_BYTES];
    size_t got = 0;

    for (size_t sent = 0; sent < bench->body_bytes;) {
        ssize_t some = send(fd, bench->body + sent, bench->body_bytes - sent, MSG_NOSIGNAL);

        if (some <= 0) {
            return 0;
        }
        sent += (size_t)some;
    }
    for (;;) {
        ssize_t some = recv(fd, answer + got, sizeof(answer) - 1 - got, 0);
        const char *body;
        const char *length;

        if (some <= 0) {
            return 0;
        }
        got += (size_t)some;
        answer[got] = '\0';
        body = memmem(answer, got, "\r\n\r\n", 4);
        length = strcasestr(answer, "Content-Length:");
        if (body != NULL && length != NULL &&
            got >= (size_t)(body + 4 - answer) + strtoul(length + 15, NULL, 10)) {
            return (unsigned)strtoul(answer + 9, NULL, 10);
        }
    }
}

static bool
measure(struct bench *bench, uint32_t tokens, enum figure figure, double figures_out[2])
{
    const struct yb_clock *clock = yb_clock_system();
    const bool bare = figure == FIGURE_BARE_HASHES || figure == FIGURE_BARE_TOKENS;
    const bool hashes = figure == FIGURE_BARE_HASHES || figure == FIGURE_HASHES;
    const uint64_t count = ROUND_ASKS * bench->rounds;

    if (!report_all(bench)) {
        return false;
    }
    /* A form that does not know the body refuses it when all of it has come. */
    write_request(bench, tokens, hashes, bare ? "/v1/done" : "/v1/schedule");
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t began_ns = yb_clock_now(clock);
        const unsigned code = ask(bench, bench->sockets[bench->asked++ % bench->clients]);

        if (code != (bare ? 400u : 200u)) {
            fprintf(bench->cli->err, "yuebing bench conductor: an answer of %u\n", code);
            return false;
        }
        bench->times_us[i] = (double)(yb_clock_now(clock) - began_ns) / 1e3;
    }
    figures_out[0] = yb_bench_median(bench->times_us, count);
    figures_out[1] = bench->times_us[count * 99 / 100]; /* The median has sorted them. */
    return true;
}

static double
hash_us(struct bench *bench, uint32_t tokens)
{
    const struct yb_clock *clock = yb_clock_system();
    const uint64_t count = 10 * bench->rounds;

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t began_ns = yb_clock_now(clock);

        (void)yb_key_chain(bench->tokens, tokens, BLOCK_TOKENS, "m", (uint8_t(*)[16])bench->keys,
                           TOKENS_MAX / BLOCK_TOKENS);
        bench->times_us[i] = (double)(yb_clock_now(clock) - began_ns) / 1e3;
    }
    return yb_bench_median(bench->times_us, count);
}

/* ---- beside a busy store --------------------------------------------------------------------- */

/* Rounds take turns: nothing but questions; questions and load; load alone, for as long. */
enum beside { QUIET, BUSY, ALONE, BESIDES };

struct beside_round {
    double us[2]; /* p50, p99. */
    double gbps;  /* That the store moved. */
    double cpu;   /* Share of the time in which the machine's processors had something to do. */
};

static bool
run_beside(struct bench *bench, uint32_t tokens, enum beside kind, uint64_t *asked_ns,
           struct beside_round *round_out)
{
    const struct yb_measure_machine machine = yb_measure_machine_now();
    const uint64_t bytes = yb_bench_load_bytes(bench->load);
    const uint64_t begun_ns = yb_measure_now_ns();
    bool ok = yb_bench_load_switch(bench->load, kind != QUIET);

    if (kind == ALONE) {
        yb_demo_pause(*asked_ns);
    } else {
        ok = ok && measure(bench, tokens, FIGURE_HASHES, round_out->us);
    }
    *asked_ns = yb_measure_now_ns() - begun_ns;
    round_out->cpu = yb_measure_machine_busy(&machine);
    /* It waits for what is under way, which counts, too. */
    ok = yb_bench_load_switch(bench->load, false) && ok;
    round_out->gbps = (double)(yb_bench_load_bytes(bench->load) - bytes) /
                      (double)(yb_measure_now_ns() - begun_ns);
    return ok;
}

/* The median over the rounds of a kind of what is at `offset` in each. */
static double
beside_median(const struct beside_round rounds[BESIDE_ROUNDS], size_t offset)
{
    double values[BESIDE_ROUNDS];

    for (uint32_t i = 0; i < BESIDE_ROUNDS; i++) {
        memcpy(&values[i], (const uint8_t *)&rounds[i] + offset, sizeof(values[i]));
    }
    return yb_bench_median(values, BESIDE_ROUNDS);
}

/* Questions by names of blocks, quiet and beside the load: medians over the rounds. That the store
 * was as busy as it can be shows by what it moves when nobody asks. */
static bool
measure_beside(struct bench *bench, uint32_t tokens, json_t *row)
{
    struct beside_round rounds[BESIDES][BESIDE_ROUNDS];
    double p50[2], p99[2];
    double gbps[BESIDES];
    double cpu;
    uint64_t asked_ns = 0;
    uint64_t bytes = yb_bench_load_bytes(bench->load);

    for (uint32_t i = 0; i < BESIDE_ROUNDS; i++) {
        for (uint32_t kind = 0; kind < BESIDES; kind++) {
            if (!run_beside(bench, tokens, (enum beside)kind, &asked_ns, &rounds[kind][i])) {
                return false;
            }
        }
    }
    bytes = yb_bench_load_bytes(bench->load) - bytes;
    for (uint32_t kind = 0; kind < BESIDES; kind++) {
        gbps[kind] = beside_median(rounds[kind], offsetof(struct beside_round, gbps));
    }
    for (uint32_t kind = QUIET; kind <= BUSY; kind++) {
        p50[kind] = beside_median(rounds[kind], offsetof(struct beside_round, us[0]));
        p99[kind] = beside_median(rounds[kind], offsetof(struct beside_round, us[1]));
    }
    cpu = beside_median(rounds[BUSY], offsetof(struct beside_round, cpu));
    (void)json_object_set_new(
        row, "beside",
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "quiet_p50_us", p50[QUIET],
                  "quiet_p99_us", p99[QUIET], "busy_p50_us", p50[BUSY], "busy_p99_us", p99[BUSY],
                  "p99_ratio", p99[BUSY] / p99[QUIET], "store_gbps", gbps[BUSY], "store_alone_gbps",
                  gbps[ALONE], "cpu_busy", cpu, "moved_bytes", (json_int_t)bytes));
    if (!bench->cli->json) {
        fprintf(bench->cli->out,
                "%8u tokens  quiet p50 %.1f us, p99 %.1f us; beside a busy store %.1f us, %.1f us: "
                "p99 %.2f times\n%8s         the store moved %.2f GB/s, alone %.2f GB/s (%" PRIu64
                " MiB in all); processors busy %.0f %%\n",
                tokens, p50[QUIET], p99[QUIET], p50[BUSY], p99[BUSY], p99[BUSY] / p99[QUIET], "",
                gbps[BUSY], gbps[ALONE], bytes >> 20, 100 * cpu);
    }
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static json_t *
row_of(struct bench *bench, uint32_t tokens)
{
    json_t *row = json_pack("{s:I, s:I, s:I, s:f}", "tokens", (json_int_t)tokens, "clients",
                            (json_int_t)bench->clients, "instances", (json_int_t)bench->instances,
                            "hash_us", hash_us(bench, tokens));

    for (int figure = 0; figure < FIGURES; figure++) {
        double us[2];

        if (!measure(bench, tokens, (enum figure)figure, us)) {
            json_decref(row);
            return NULL;
        }
        (void)json_object_set_new(row, figure_names[figure],
                                  json_pack("{s:f, s:f}", "p50_us", us[0], "p99_us", us[1]));
        if (!bench->cli->json) {
            fprintf(bench->cli->out, "%8u tokens  %-12s p50 %9.1f us  p99 %9.1f us\n", tokens,
                    figure_names[figure], us[0], us[1]);
        }
    }
    if (!bench->cli->json) {
        fprintf(bench->cli->out, "%8u tokens  hashing alone %.1f us\n", tokens,
                json_number_value(json_object_get(row, "hash_us")));
    }
    if (bench->load != NULL && !measure_beside(bench, tokens, row)) {
        json_decref(row);
        return NULL;
    }
    return row;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool
bench_open(struct bench *bench, struct yb_http_source *source)
{
    const struct yb_conductor_service_options options = {
        .conductor = {.places_max = bench->instances, .block_tokens = BLOCK_TOKENS, .seed = 7},
        .clock = yb_clock_system(),
    };
    static const uint8_t seed[YB_HASH_SEED_BYTES];
    struct yb_http_options http = {
        .connections_max = CLIENTS_MAX + 1, .body_max = YB_CONDUCTOR_BODY_MAX, .source = source};
    char why[YB_ADDRESS_WHY_BYTES > YB_CONDUCTOR_WHY_BYTES ? YB_ADDRESS_WHY_BYTES
                                                           : YB_CONDUCTOR_WHY_BYTES] = "";
    struct yb_address address;
    struct sockaddr_storage storage;
    socklen_t length;

    bench->room = 5u << 20;
    bench->tokens = calloc(TOKENS_MAX, sizeof(*bench->tokens));
    bench->keys = calloc(TOKENS_MAX / BLOCK_TOKENS, sizeof(*bench->keys));
    bench->body = malloc(bench->room);
    bench->times_us = calloc(ROUND_ASKS * bench->rounds, sizeof(*bench->times_us));
    http.address = (struct yb_address){.family = YB_ADDRESS_V4, .ip = {127, 0, 0, 1}};
    if (bench->tokens == NULL || bench->keys == NULL || bench->body == NULL ||
        bench->times_us == NULL ||
        yb_conductor_service_create(&options, &bench->service, why) != YB_OK ||
        yb_conductor_service_begin(bench->service, seed, why) != YB_OK) {
        fprintf(bench->cli->err, "yuebing bench conductor: %s\n", why);
        return false;
    }
    source->other_context = bench->service;
    if (yb_http_create(&http, &bench->http, why) != YB_OK) {
        fprintf(bench->cli->err, "yuebing bench conductor: %s\n", why);
        return false;
    }
    address = yb_http_address(bench->http);
    yb_address_to_sockaddr(&address, &storage, &length);
    for (uint32_t i = 0; i < bench->clients; i++) {
        bench->sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bench->sockets[i] < 0 ||
            connect(bench->sockets[i], (struct sockaddr *)&storage, length) != 0) {
            fprintf(bench->cli->err, "yuebing bench conductor: cannot connect: %m\n");
            return false;
        }
    }
    return fill(bench);
}

static void
bench_close(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->clients; i++) {
        if (bench->sockets[i] >= 0) {
            (void)close(bench->sockets[i]);
        }
    }
    if (bench->http != NULL) {
        yb_http_destroy(&bench->http);
    }
    yb_conductor_service_destroy(&bench->service);
    free(bench->tokens);
    free(bench->keys);
    free(bench->body);
    free(bench->times_us);
}

int
yb_bench_conductor(struct yb_cli *cli)
{
    struct yb_http_source source = {.other = yb_conductor_service_answer};
    uint64_t tokens[YB_BENCH_LIST_MAX] = {8192, 32768, 131072, 1000000};
    uint64_t instances[YB_BENCH_LIST_MAX] = {256};
    uint64_t clients = 64;
    uint32_t token_count = 4;
    uint32_t instance_count = 1;
    struct bench bench = {.cli = cli, .rounds = 5};
    const bool beside = yb_cli_option(cli, "beside") != NULL;
    json_t *rows = json_array();
    int code = YB_CLI_EXIT_FAILED;
    bool ok;

    if (!yb_bench_list_read(cli, "tokens", TOKENS_MAX, tokens, &token_count) ||
        !yb_bench_list_read(cli, "instances", INSTANCES_MAX, instances, &instance_count) ||
        !yb_cli_option_number(cli, "clients", 1, CLIENTS_MAX, &clients) ||
        !yb_cli_option_number(cli, "rounds", 1, 99, &bench.rounds)) {
        json_decref(rows);
        return YB_CLI_EXIT_REFUSED;
    }
    bench.clients = (uint32_t)clients;
    bench.instances = (uint32_t)instances[0];
    memset(bench.sockets, 0xff, sizeof(bench.sockets));
    if (beside) { /* A process: before this one has threads. */
        bench.load = yb_bench_load_open(cli);
    }
    ok = (!beside || bench.load != NULL) && bench_open(&bench, &source);
    for (uint32_t i = 0; ok && i < token_count; i++) {
        json_t *row = row_of(&bench, (uint32_t)tokens[i]);

        ok = row != NULL && json_array_append_new(rows, row) == 0;
    }
    yb_bench_load_close(&bench.load);
    bench_close(&bench);
    if (ok) {
        code = !cli->json || yb_output_json(cli->out, json_incref(rows)) == YB_OK
                   ? 0
                   : YB_CLI_EXIT_FAILED;
    }
    json_decref(rows);
    return code;
}
