/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing engine`: an inference engine without its arithmetic, on the real data path
 * (src/engine/engine.h). Only how long computing takes is reckoned, by the cost model, at a scale
 * that is printed; requests, queues, loads, stores and hand-overs are real.
 */
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/catalog.h"
#include "cli/cli.h"
#include "cli/store.h"
#include "client/beside.h"
#include "engine/reporter.h"
#include "engine/service.h"
#include "net/net.h"
#include "observe/otlp.h"
#include "transfer/near.h"

#define LISTEN_DEFAULT  "127.0.0.1:8000"
#define CONNECTIONS_MAX 512u
#define OPEN_NS         (10 * YB_NS_PER_S)
#define NAME_BYTES      64u

const struct yb_cli_option yb_cli_engine_options[] = {
    {"model", "NAME", "what it stands for, of the catalog; default llama-3-70b"},
    YB_CLI_CATALOG_OPTION,
    {"gpu", "NAME", "on which devices, of the catalog; default a800"},
    {"gpus", "N", "how many; default 8"},
    {"roles", "WORD", "both (default), prefill or decode: what a conductor sends it"},
    {"mode", "WORD", "coupled (default), disaggregated or time-sliced"},
    {"time-scale", "X", "computing takes its time times this; default 1"},
    {"block-tokens", "N", "tokens of a block; default 512"},
    {"block-bytes", "N", "bytes of a block; default: the model's, which is large"},
    {"parts", "N", "groups of layers that are loaded and stored one after the other; default 4"},
    {"pool", "N", "blocks that the engine's own memory holds; default 256"},
    {"device", "N", "that memory is device N's; default: the host's"},
    {"chunk-tokens", "N", "of a prompt in one step; default 2048"},
    {"running", "N", "requests at once; default 256"},
    {"name", "WORD", "of the instance; default engine-PID"},
    {"conductor", "URLS",
     "that are told of it, http://HOST:PORT, several with commas, in the order of their numbers; "
     "default none"},
    {"node", "NAME", "of the store's node beside it: what it computes is put there"},
    {"rack", "N", "where it stands"},
    {"no-store", NULL, "keep KV in its own memory alone"},
    {"one-class", NULL, "stores in the class of loads: to show what classes bring"},
    {"report-ms", "N", "how often conductors are told what it does, 10 .. 60000 (100)"},
    {"late-loads", NULL, "nothing is loaded ahead: to show what that brings"},
    {"load-rate", "BYTES", "hold loads back to so many bytes per second: a slow link to the store"},
    {NULL, NULL, NULL},
};

/* All that a running engine consists of. */
struct stand {
    struct yb_cli *cli;
    struct yb_engine_options options;
    struct yb_engine_reporter_options report;
    uint32_t pool_blocks;
    uint8_t roles;
    char name[NAME_BYTES];
    char address[YB_ADDRESS_TEXT_BYTES];
    struct yb_stats *own_stats; /* Of one without a client, which brings its own. */
    struct yb_otlp *otlp;       /* NULL: no collector gets the spans. */
    struct yb_client *client;
    struct yb_transfer *transfer;
    struct yb_engine_reporter *reporters[YB_SCHED_CONDUCTORS_MAX]; /* By conductor. */
    char urls[YB_SCHED_CONDUCTORS_MAX][YB_ENGINE_URL_BYTES];
    uint32_t reporter_count;
    struct yb_engine *engine;
    struct yb_engine_service *service;
};

static int
refuse(const struct stand *stand, const char *why)
{
    fprintf(stand->cli->err, "yuebing engine: %s\n", why);
    return YB_CLI_EXIT_REFUSED;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Return which of the words, separated by '|', an option is; -1: none of them. */
static int
choose(const struct yb_cli *cli, const char *option, const char *words)
{
    const char *given = yb_cli_option(cli, option);
    size_t length;

    if (given == NULL) {
        return 0;
    }
    for (int i = 0;; i++, words += length + 1) {
        length = strcspn(words, "|");
        if (strlen(given) == length && strncmp(given, words, length) == 0) {
            return i;
        }
        if (words[length] == '\0') {
            return -1;
        }
    }
}

static const char *
option_or(const struct yb_cli *cli, const char *option, const char *otherwise)
{
    const char *given = yb_cli_option(cli, option);

    return given != NULL ? given : otherwise;
}

/* Times and bytes as they are here: the conductor reckons with them. */
static struct yb_sched_cost
scaled(const struct yb_engine_options *options, uint32_t pool_blocks)
{
    struct yb_sched_cost cost = options->cost;

    cost.prefill_base_ns *= options->time_scale;
    cost.prefill_token_ns *= options->time_scale;
    cost.prefill_pair_ns *= options->time_scale;
    cost.step_base_ns *= options->time_scale;
    cost.step_sequence_ns *= options->time_scale;
    cost.step_token_ns *= options->time_scale;
    cost.kv_bytes = options->block_bytes / options->block_tokens;
    cost.kv_tokens_max = (uint64_t)pool_blocks * options->block_tokens;
    cost.pass_tokens = options->chunk_tokens;
    return cost;
}

static int
read_cost(struct stand *stand, uint64_t gpus)
{
    struct yb_cli *cli = stand->cli;
    const char *model = option_or(cli, "model", "llama-3-70b");
    const char *gpu = option_or(cli, "gpu", "a800");
    struct yb_sched_catalog *catalog;
    enum yb_status status;

    if (!yb_cli_catalog(cli, &catalog)) {
        return YB_CLI_EXIT_REFUSED;
    }
    status = yb_sched_catalog_cost(catalog, model, gpu, (uint32_t)gpus, &stand->options.cost);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing engine: the catalog has no cost of %s on %s; models:", model,
                gpu);
        for (uint32_t i = 0; yb_sched_catalog_model(catalog, i) != NULL; i++) {
            fprintf(cli->err, " %s", yb_sched_catalog_model(catalog, i)->name);
        }
        fprintf(cli->err, "; devices:");
        for (uint32_t i = 0; yb_sched_catalog_gpu(catalog, i) != NULL; i++) {
            fprintf(cli->err, " %s", yb_sched_catalog_gpu(catalog, i)->name);
        }
        fprintf(cli->err, "\n");
    }
    yb_sched_catalog_destroy(&catalog);
    stand->options.model = model;
    return status == YB_OK ? 0 : YB_CLI_EXIT_REFUSED;
}

static int
read_options(struct stand *stand)
{
    struct yb_cli *cli = stand->cli;
    struct yb_engine_options *options = &stand->options;
    const char *scale = option_or(cli, "time-scale", "1");
    uint64_t gpus = 8, tokens = 512, bytes = 0, parts = 4, pool = 256, chunk = 2048;
    uint64_t running = 256, rack = 0, load_rate = 0, device = 0, report_ms = 0;
    int mode = choose(cli, "mode", "coupled|disaggregated|time-sliced");
    int roles = choose(cli, "roles", "both|prefill|decode");
    char *end;

    if (!yb_cli_option_number(cli, "gpus", 1, 4096, &gpus) ||
        !yb_cli_option_number(cli, "block-tokens", 1, 65536, &tokens) ||
        !yb_cli_option_number(cli, "block-bytes", 1, 1ull << 36, &bytes) ||
        !yb_cli_option_number(cli, "parts", 1, YB_ENGINE_PARTS_MAX, &parts) ||
        !yb_cli_option_number(cli, "pool", 1, 1u << 22, &pool) ||
        !yb_cli_option_number(cli, "device", 0, 1023, &device) ||
        !yb_cli_option_number(cli, "chunk-tokens", 1, 1u << 20, &chunk) ||
        !yb_cli_option_number(cli, "running", 1, 4096, &running) ||
        !yb_cli_option_number(cli, "load-rate", 1, 1ull << 40, &load_rate) ||
        !yb_cli_option_number(cli, "report-ms", 10, 60000, &report_ms) ||
        !yb_cli_option_number(cli, "rack", 0, 1023, &rack)) {
        return YB_CLI_EXIT_REFUSED;
    }
    options->time_scale = strtod(scale, &end);
    if (*end != '\0' || !(options->time_scale > 0)) {
        return refuse(stand, "--time-scale: a number above 0, such as 0.1");
    }
    if (mode < 0 || roles < 0) {
        return refuse(stand, mode < 0 ? "--mode: coupled, disaggregated or time-sliced"
                                      : "--roles: both, prefill or decode");
    }
    if (read_cost(stand, gpus) != 0) {
        return YB_CLI_EXIT_REFUSED;
    }
    options->mode = (uint32_t)mode;
    stand->roles = roles == 0 ? YB_SCHED_PREFILL | YB_SCHED_DECODE : (uint8_t)roles;
    options->block_tokens = (uint32_t)tokens;
    options->parts = (uint32_t)parts;
    options->block_bytes = bytes != 0 ? bytes : tokens * options->cost.kv_bytes;
    options->block_bytes = (options->block_bytes + parts - 1) / parts * parts;
    options->pool_bytes = pool * options->block_bytes;
    options->on_device = yb_cli_option(cli, "device") != NULL;
    options->device = (uint32_t)device;
    options->chunk_tokens = (uint32_t)chunk;
    options->running_max = (uint32_t)running;
    options->load_rate = (double)load_rate;
    options->one_class = yb_cli_option(cli, "one-class") != NULL;
    options->late_loads = yb_cli_option(cli, "late-loads") != NULL;
    options->node = yb_cli_option(cli, "node");
    stand->pool_blocks = (uint32_t)pool;
    stand->report.rack = (uint32_t)rack;
    stand->report.report_ns = report_ms * YB_NS_PER_MS;
    return 0;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Who decided knows; the others hear of it. */
static void
on_taken(void *context, const struct yb_engine_decided *decided)
{
    const struct stand *stand = context;

    for (uint32_t i = 0; i < stand->reporter_count; i++) {
        if (decided->decision == 0 || i != decided->conductor) {
            yb_engine_reporter_taken(stand->reporters[i]);
        }
    }
}

static void
on_ended(void *context, const struct yb_engine_decided *decided,
         const struct yb_engine_outcome *outcome, bool first,
         const struct yb_engine_verdicts *verdicts)
{
    const struct stand *stand = context;

    if (decided->conductor < stand->reporter_count) {
        yb_engine_reporter_done(stand->reporters[decided->conductor], decided->decision, outcome,
                                first, verdicts);
    }
}

/* A block came or left: every conductor hears of it. */
static void
on_block(void *context, const uint8_t key[YB_KV_KEY_BYTES], bool there)
{
    const struct stand *stand = context;

    for (uint32_t i = 0; i < stand->reporter_count; i++) {
        yb_engine_reporter_block(stand->reporters[i], key, there);
    }
}

static int
fail(const struct stand *stand, enum yb_status status, const char *why)
{
    fprintf(stand->cli->err, "yuebing engine: %s\n", why[0] != '\0' ? why : yb_status_text(status));
    return status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
}

/* Take the URLs apart. Returns false: too many, or one that is too long. */
static bool
read_urls(struct stand *stand, const char *given)
{
    for (const char *at = given; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");

        if (stand->reporter_count == YB_SCHED_CONDUCTORS_MAX || length >= YB_ENGINE_URL_BYTES) {
            return false;
        }
        memcpy(stand->urls[stand->reporter_count++], at, length);
        at += length + (at[length] == ',');
    }
    return true;
}

static int
start_reporters(struct stand *stand)
{
    char why[YB_ENGINE_WHY_BYTES] = "at most 16 conductors, each http://HOST:PORT";
    enum yb_status status = YB_OK;
    uint32_t count;

    if (!read_urls(stand, yb_cli_option(stand->cli, "conductor"))) {
        stand->reporter_count = 0;
        return fail(stand, YB_INVALID, why);
    }
    count = stand->reporter_count;
    stand->reporter_count = 0;
    stand->report.name = stand->name;
    stand->report.address = stand->address;
    stand->report.node = stand->options.node;
    stand->report.model = stand->options.model;
    stand->report.parts = stand->options.parts;
    stand->report.roles = stand->roles;
    stand->report.cost = scaled(&stand->options, stand->pool_blocks);
    stand->report.net_rate = 2000000000; /* Until loads were measured. */
    stand->report.load_rate = 8000000000;
    stand->report.ssd_rate = 1000000000;
    stand->report.object_rate = 500000000;
    while (status == YB_OK && stand->reporter_count < count) {
        stand->report.url = stand->urls[stand->reporter_count];
        status = yb_engine_reporter_create(&stand->report, &stand->reporters[stand->reporter_count],
                                           why);
        stand->reporter_count += status == YB_OK;
    }
    if (status != YB_OK) {
        return fail(stand, status, why);
    }
    if (count > 0) {
        stand->options.listener.owner = stand;
        stand->options.listener.block = on_block;
    }
    return 0;
}

static int
start_transfer(struct stand *stand)
{
    const struct yb_config *config = &stand->cli->config;
    const struct yb_transfer_options options = {
        .struct_bytes = sizeof(options),
        .secret_file = config->auth_secret_file[0] != '\0' ? config->auth_secret_file : NULL,
        .tenant = config->auth_tenant,
        .tls = config->tls_mode == YB_CONFIG_TLS_MODE_ON,
    };
    char message[YB_CONFIG_MESSAGE_MAX] = "";
    enum yb_status status = YB_OK;

    if (stand->client == NULL) {
        status = yb_stats_create(&stand->own_stats);
    }
    if (status == YB_OK) {
        stand->options.stats =
            stand->client != NULL ? yb_client_registry(stand->client) : stand->own_stats;
        status = yb_transfer_create_as(&options,
                                       (struct yb_transfer_self){.stats = stand->options.stats},
                                       &stand->transfer, message, sizeof(message));
    }
    return status == YB_OK ? 0 : fail(stand, status, message);
}

static int
start_service(struct stand *stand)
{
    const struct yb_config *config = &stand->cli->config;
    struct yb_engine_service_options options = {
        .engine = stand->engine,
        .model = stand->options.model,
        .name = stand->name,
        .stats = stand->options.stats,
        .spans = {yb_transfer_spans(stand->transfer)},
        .connections_max = CONNECTIONS_MAX,
        .taken = on_taken,
        .ended = on_ended,
        .context = stand,
    };
    char why[YB_ADDRESS_WHY_BYTES] = "";
    const char *listen = config->http_listen[0] != '\0' ? config->http_listen : LISTEN_DEFAULT;
    struct yb_address bound;
    enum yb_status status = yb_address_parse(listen, 0, &options.address, why);

    if (stand->client != NULL) {
        options.spans[1] = yb_client_spans(stand->client);
    }
    if (status == YB_OK) {
        status = yb_engine_service_create(&options, &stand->service, why);
    }
    if (status != YB_OK) {
        return fail(stand, status, why);
    }
    bound = yb_engine_service_address(stand->service);
    yb_address_format(&bound, stand->address);
    return 0;
}

static int
start_otlp(struct stand *stand)
{
    const struct yb_config *config = &stand->cli->config;
    struct yb_otlp_options options = {
        .url = config->trace_otlp_url,
        .timeout_ns = config->trace_otlp_timeout_ms * YB_NS_PER_MS,
        .resource = {.kind = "engine", .name = stand->name},
        .rings = {yb_transfer_spans(stand->transfer)},
        .clock = yb_clock_system(),
        .stats = stand->options.stats,
    };
    char why[YB_CURL_ERROR_BYTES];
    enum yb_status status;

    if (config->trace_otlp_url[0] == '\0') {
        return 0;
    }
    yb_net_random_system(NULL, &options.resource.identity, sizeof(options.resource.identity));
    if (stand->client != NULL) {
        options.rings[1] = yb_client_spans(stand->client);
    }
    status = yb_otlp_create(&options, &stand->otlp, why);
    return status == YB_OK ? 0 : fail(stand, status, why);
}

static int
start(struct stand *stand)
{
    char why[YB_ENGINE_WHY_BYTES];
    enum yb_status status;
    int code = 0;

    if (yb_cli_option(stand->cli, "no-store") == NULL &&
        yb_cli_open_client(stand->cli, OPEN_NS, &stand->client, &code) != YB_OK) {
        return code;
    }
    code = start_reporters(stand);
    if (code == 0) {
        code = start_transfer(stand);
    }
    if (code != 0) {
        return code;
    }
    stand->options.client = stand->client;
    stand->options.transfer = stand->transfer;
    stand->options.spans = yb_transfer_spans(stand->transfer);
    status = yb_engine_create(&stand->options, &stand->engine, why);
    if (status != YB_OK) {
        return fail(stand, status, why);
    }
    code = start_service(stand);
    if (code == 0) {
        code = start_otlp(stand);
    }
    for (uint32_t i = 0; code == 0 && i < stand->reporter_count; i++) {
        status = yb_engine_reporter_attach(stand->reporters[i], stand->engine, stand->service);
        code = status == YB_OK ? 0 : fail(stand, status, "");
    }
    return code;
}

/* Those that are served end first, then what serves them. */
static void
stop(struct stand *stand)
{
    if (stand->engine != NULL) {
        yb_engine_stop(stand->engine);
    }
    for (uint32_t i = 0; i < stand->reporter_count; i++) {
        yb_engine_reporter_quiet(stand->reporters[i]);
    }
    if (stand->service != NULL) {
        yb_engine_service_destroy(&stand->service);
    }
    if (stand->engine != NULL) {
        yb_engine_destroy(&stand->engine);
    }
    for (uint32_t i = 0; i < stand->reporter_count; i++) {
        yb_engine_reporter_destroy(&stand->reporters[i]);
    }
    if (stand->otlp != NULL) {
        yb_otlp_destroy(&stand->otlp); /* It sends the last spans, too. */
    }
    if (stand->transfer != NULL) {
        yb_transfer_destroy(&stand->transfer);
    }
    if (stand->own_stats != NULL) {
        yb_stats_destroy(&stand->own_stats);
    }
    if (stand->client != NULL) {
        yb_client_close(&stand->client);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static int
print_ready(const struct stand *stand)
{
    struct yb_cli *cli = stand->cli;
    const struct yb_engine_options *options = &stand->options;
    char transfer[YB_ADDRESS_TEXT_BYTES] = "";
    char memory[24] = "host";
    int failed;

    (void)!yb_transfer_address(stand->transfer, transfer, sizeof(transfer));
    if (options->on_device) {
        (void)snprintf(memory, sizeof(memory), "device %u", options->device);
    }
    if (cli->json) {
        json_t *ready = json_pack("{s:s, s:s, s:s, s:s, s:f, s:I, s:i, s:i, s:i, s:s, s:b, s:I}",
                                  "http", stand->address, "transfer", transfer, "name", stand->name,
                                  "model", options->model, "time_scale", options->time_scale,
                                  "block_bytes", (json_int_t)options->block_bytes, "block_tokens",
                                  (int)options->block_tokens, "parts", (int)options->parts,
                                  "pool_blocks", (int)stand->pool_blocks, "memory", memory, "store",
                                  stand->client != NULL, "pid", (json_int_t)getpid());

        failed = ready == NULL || json_dumpf(ready, cli->out, JSON_COMPACT) != 0 ||
                 fputc('\n', cli->out) == EOF;
        json_decref(ready);
    } else {
        failed = fprintf(cli->out,
                         "engine %s at http://%s: %s, time x %g, blocks of %u tokens as %llu "
                         "bytes of the %s instead of %llu\n",
                         stand->name, stand->address, options->model, options->time_scale,
                         options->block_tokens, (unsigned long long)options->block_bytes, memory,
                         (unsigned long long)(options->block_tokens * options->cost.kv_bytes)) < 0;
    }
    return failed || fflush(cli->out) != 0 ? YB_CLI_EXIT_FAILED : 0;
}

int
yb_cli_engine(struct yb_cli *cli, int argc, char **argv)
{
    struct stand stand = {.cli = cli};
    sigset_t signals;
    int signal_number;
    int code;

    (void)argc;
    (void)argv;
    /* Before there are threads, which inherit it. */
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(stand.name, sizeof(stand.name), "%s", option_or(cli, "name", ""));
    if (stand.name[0] == '\0') {
        (void)snprintf(stand.name, sizeof(stand.name), "engine-%d", (int)getpid());
    }
    code = read_options(&stand);
    if (code == 0) {
        code = start(&stand);
    }
    if (code == 0) {
        code = print_ready(&stand);
    }
    if (code == 0) {
        (void)sigwait(&signals, &signal_number);
        (void)pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* A second one ends it at once. */
    }
    stop(&stand);
    return code;
}
