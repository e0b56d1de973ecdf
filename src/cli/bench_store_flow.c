/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in a process of its own, and batches through the public client.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "cli/bench_ceilings.h"
#include "cli/bench_directory.h"
#include "cli/bench_store.h"
#include "cli/measure.h"
#include "daemon/process.h"
#include "daemon/roles.h"

#define READY_NS     (5 * YB_NS_PER_S)
#define OPEN_NS      (5 * YB_NS_PER_S)
#define WORKING_KEYS 32768u /* That gets go round among: fewer than a client has hints for. */

/* ---- the store's process --------------------------------------------------------------------- */

static void
serve(struct yb_config *config, int ready_fd)
{
    const struct yb_process_options options = {
        .config = config,
        .port_name = "yuebing bench",
        .log_fd = STDERR_FILENO,
    };
    const struct yb_roles_options roles = {
        .directory = true,
        .directory_listen = "127.0.0.1:0",
        .nodes = 1,
        .node_listen = "127.0.0.1:0",
    };
    struct yb_process *process = NULL;
    char why[YB_PROCESS_WHY_BYTES] = "";
    char text[YB_ADDRESS_TEXT_BYTES] = "";
    struct yb_address address;

    config->node_memory = YB_BENCH_STORE_POOL_BYTES;
    config->directory_cluster_file[0] = 0; /* None. */
    config->log_level = YB_CONFIG_LOG_LEVEL_ERROR;
    if (yb_process_create(&options, &process, why) != YB_OK ||
        yb_process_serve(process, &roles, why) != YB_OK) {
        fprintf(stderr, "yuebing bench store: %s\n", why);
        _exit(1);
    }
    if (!yb_roles_await_registered(yb_process_roles(process), READY_NS)) {
        fprintf(stderr, "yuebing bench store: the node does not register\n");
        _exit(1);
    }
    address = yb_roles_directory_address(yb_process_roles(process));
    yb_address_format(&address, text);
    if (write(ready_fd, text, sizeof(text)) != (ssize_t)sizeof(text)) {
        _exit(1);
    }
    yb_process_wait(process);
    yb_process_destroy(&process);
    _exit(0);
}

bool
yb_bench_store_start(const struct yb_config *config, struct yb_bench_store *store_out)
{
    char text[YB_ADDRESS_TEXT_BYTES] = "";
    struct yb_config own = *config;
    int ready[2];
    bool ok;

    *store_out = (struct yb_bench_store){.pid = 0};
    if (pipe(ready) != 0) {
        return yb_bench_complain("pipe", YB_NO_MEMORY);
    }
    (void)fflush(NULL);
    store_out->pid = fork();
    if (store_out->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, "yb-store"); /* For whoever looks with ps or perf. */
        (void)close(ready[0]);
        serve(&own, ready[1]);
    }
    (void)close(ready[1]);
    ok = read(ready[0], text, sizeof(text)) == (ssize_t)sizeof(text);
    (void)close(ready[0]);
    (void)snprintf(store_out->address, sizeof(store_out->address), "%s", text);
    return ok ? true : yb_bench_complain("the store did not start", YB_CLOSED);
}

/* ---- the client ------------------------------------------------------------------------------ */

static uint8_t *
touched_buffer(void)
{
    uint8_t *buffer = mmap(NULL, YB_BENCH_STORE_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (buffer == MAP_FAILED) {
        return NULL;
    }
    memset(buffer, 1, YB_BENCH_STORE_BYTES);
    return buffer;
}

/* A device's memory in the place of both buffers. */
static bool
open_device(struct yb_bench_store *store)
{
    enum yb_status status;

    if (!yb_bench_device_open(2 * YB_BENCH_STORE_BYTES, &store->device)) {
        return false;
    }
    status = yb_client_register(store->client, yb_bench_device_base(store->device),
                                2 * YB_BENCH_STORE_BYTES);
    return status == YB_OK ? true : yb_bench_complain("registering memory of a device", status);
}

bool
yb_bench_store_open(struct yb_bench_store *store, bool shared, bool device)
{
    const struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = store->address,
        .no_shared_memory = !shared,
    };
    char why[512] = "";
    enum yb_status status;

    store->items = calloc(YB_BENCH_STORE_BATCH_MAX, sizeof(*store->items));
    store->pieces = calloc(YB_BENCH_STORE_PIECES_MAX, sizeof(*store->pieces));
    store->keys = calloc(YB_BENCH_STORE_BATCH_MAX, sizeof(*store->keys));
    store->from = touched_buffer();
    store->to = touched_buffer();
    if (store->items == NULL || store->pieces == NULL || store->keys == NULL ||
        store->from == NULL || store->to == NULL) {
        return yb_bench_complain("buffers", YB_NO_MEMORY);
    }
    status = yb_client_open(&options, OPEN_NS, &store->client, why, sizeof(why));
    if (status != YB_OK) {
        return yb_bench_complain(why, status);
    }
    return !device || open_device(store);
}

void
yb_bench_store_close(struct yb_bench_store *store)
{
    if (store->client != NULL) {
        yb_client_close(&store->client);
    }
    yb_bench_device_close(&store->device);
    if (store->from != NULL) {
        (void)munmap(store->from, YB_BENCH_STORE_BYTES);
    }
    if (store->to != NULL) {
        (void)munmap(store->to, YB_BENCH_STORE_BYTES);
    }
    free(store->items);
    free(store->pieces);
    free(store->keys);
    if (store->pid > 0) {
        (void)kill(store->pid, SIGKILL);
        (void)waitpid(store->pid, NULL, 0);
    }
    *store = (struct yb_bench_store){.pid = 0};
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Values under way: value `number` has its bytes at place number % places, and the key of
 * `base` + number. */
struct round {
    struct yb_bench_store *store;
    const struct yb_bench_store_flow *flow;
    uint64_t base;
    uint64_t places; /* Of a value in a buffer. */
    uint64_t keys;   /* GET, EXIST, PIN: those that are there; PUT: as many as there are numbers. */
    uint64_t next;   /* Number of the next value. */
};

static uint64_t
place_of(const struct round *round, uint64_t number)
{
    return number % round->places * round->flow->size;
}

/* Where a value's bytes lie as the client is told. */
static uint8_t *
memory_of(const struct round *round, bool out)
{
    const struct yb_bench_store *store = round->store;

    if (store->device != NULL) {
        return yb_bench_device_base(store->device) + (out ? 0 : YB_BENCH_STORE_BYTES);
    }
    return out ? store->from : store->to;
}

/* Fill in the items of a batch that begins with value `first`. */
static void
fill_items(const struct round *round, uint64_t first, bool out)
{
    struct yb_bench_store *store = round->store;
    const struct yb_bench_store_flow *flow = round->flow;
    uint64_t piece = flow->size / flow->fragments;
    uint8_t *memory = memory_of(round, out);

    for (uint32_t i = 0; i < flow->batch; i++) {
        uint64_t number = (first + i) % round->keys;
        struct iovec *pieces = &store->pieces[(size_t)i * flow->fragments];

        for (uint32_t k = 0; k < flow->fragments; k++) {
            pieces[k].iov_base =
                memory + place_of(round, number) + yb_bench_scatter(k, flow->fragments) * piece;
            pieces[k].iov_len = piece;
        }
        store->keys[i] = round->base + number;
        store->items[i] = (struct yb_client_item){
            .key = &store->keys[i],
            .key_bytes = sizeof(store->keys[i]),
            .iov = pieces,
            .iov_count = flow->fragments,
        };
    }
}

/* Return what a batch's items came to: the first that is not OK. */
static enum yb_status
judge(const struct yb_bench_store *store, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (store->items[i].status != YB_OK) {
            return store->items[i].status;
        }
    }
    return YB_OK;
}

/* Move the items that are filled in. */
static enum yb_status
move(struct yb_bench_store *store, enum yb_bench_store_op op, uint32_t count)
{
    enum yb_status status = YB_INVALID;

    switch (op) {
    case YB_BENCH_STORE_PUT:
        status = yb_client_put(store->client, store->items, count, NULL);
        break;
    case YB_BENCH_STORE_GET:
        status = yb_client_get(store->client, store->items, count, NULL);
        break;
    case YB_BENCH_STORE_EXIST:
        status = yb_client_exist(store->client, store->items, count, NULL);
        break;
    case YB_BENCH_STORE_PIN:
        status = yb_client_pin(store->client, store->items, count, NULL);
        if (status == YB_OK && judge(store, count) == YB_OK) {
            status = yb_client_release(store->client, store->items, count);
        }
        break;
    }
    return status == YB_OK ? judge(store, count) : status;
}

static const char *
op_name(enum yb_bench_store_op op)
{
    switch (op) {
    case YB_BENCH_STORE_PUT: return "put";
    case YB_BENCH_STORE_GET: return "get";
    case YB_BENCH_STORE_EXIST: return "exist";
    case YB_BENCH_STORE_PIN: break;
    }
    return "pin";
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Write every value of a round into the buffer that puts are from. */
static bool
stamp_values(const struct round *round)
{
    struct yb_bench_store *store = round->store;
    uint64_t piece = round->flow->size / round->flow->fragments;

    for (uint64_t place = 0; place < round->places; place++) {
        for (uint32_t k = 0; k < round->flow->fragments; k++) {
            yb_bench_stamp(store->from + place_of(round, place) +
                               yb_bench_scatter(k, round->flow->fragments) * piece,
                           k * piece, piece, round->base + place);
        }
    }
    return store->device == NULL ||
           yb_bench_device_copy(store->device, 0, store->from, YB_BENCH_STORE_BYTES, true);
}

/* Clear where the batch that begins with `first` is going to be. */
static bool
clear_values(const struct round *round, uint64_t first)
{
    struct yb_bench_store *store = round->store;
    bool ok = true;

    for (uint32_t i = 0; ok && i < round->flow->batch; i++) {
        uint64_t at = place_of(round, (first + i) % round->keys);

        memset(store->to + at, 0, round->flow->size);
        ok = store->device == NULL || yb_bench_device_copy(store->device, YB_BENCH_STORE_BYTES + at,
                                                           store->to + at, round->flow->size, true);
    }
    return ok;
}

static bool
check_values(const struct round *round, uint64_t first)
{
    struct yb_bench_store *store = round->store;
    uint64_t piece = round->flow->size / round->flow->fragments;

    for (uint32_t i = 0; i < round->flow->batch; i++) {
        uint64_t number = (first + i) % round->keys;
        uint64_t at = place_of(round, number);

        if (store->device != NULL &&
            !yb_bench_device_copy(store->device, YB_BENCH_STORE_BYTES + at, store->to + at,
                                  round->flow->size, false)) {
            return false;
        }
        for (uint32_t k = 0; k < round->flow->fragments; k++) {
            if (!yb_bench_check(store->to + at +
                                    yb_bench_scatter(k, round->flow->fragments) * piece,
                                k * piece, piece, round->base + number % round->places)) {
                return yb_bench_complain("a value is not what was put", YB_CORRUPT);
            }
        }
    }
    return true;
}

/* Get the batch that begins with `first`, and compare it. */
static bool
prove(const struct round *round, uint64_t first)
{
    enum yb_status status;

    if (!clear_values(round, first)) {
        return false;
    }
    fill_items(round, first, false);
    status = move(round->store, YB_BENCH_STORE_GET, round->flow->batch);
    return status == YB_OK ? check_values(round, first)
                           : yb_bench_complain("the last batch", status);
}

/* Look at the bytes of a batch that is pinned. */
static bool
prove_pinned(const struct round *round, uint64_t first)
{
    struct yb_bench_store *store = round->store;
    bool ok = true;
    enum yb_status status;

    fill_items(round, first, false);
    status = yb_client_pin(store->client, store->items, round->flow->batch, NULL);
    status = status == YB_OK ? judge(store, round->flow->batch) : status;
    if (status != YB_OK) {
        return yb_bench_complain("the last batch", status);
    }
    for (uint32_t i = 0; i < round->flow->batch; i++) {
        uint64_t number = (first + i) % round->keys;

        ok = ok && store->items[i].size == round->flow->size &&
             yb_bench_check(store->items[i].data, 0, round->flow->size,
                            round->base + number % round->places);
    }
    status = yb_client_release(store->client, store->items, round->flow->batch);
    if (!ok || status != YB_OK) {
        return yb_bench_complain("what is pinned is not what was put",
                                 status == YB_OK ? YB_CORRUPT : status);
    }
    return true;
}

/* ---- flows ----------------------------------------------------------------------------------- */

/* Put every key of a round, in batches that are large enough. */
static bool
put_all(struct round *round)
{
    struct yb_bench_store_flow flow = *round->flow;
    struct round putting = *round;
    uint64_t batch = (16ull << 20) / flow.size;

    flow.fragments = round->flow->fragments;
    batch = batch < 1 ? 1 : batch;
    batch = batch < YB_BENCH_STORE_BATCH_MAX ? batch : YB_BENCH_STORE_BATCH_MAX;
    batch = batch * flow.fragments < YB_BENCH_STORE_PIECES_MAX
                ? batch
                : YB_BENCH_STORE_PIECES_MAX / flow.fragments;
    putting.flow = &flow;
    for (uint64_t done = 0; done < round->keys; done += flow.batch) {
        enum yb_status status;

        flow.batch = round->keys - done < batch ? (uint32_t)(round->keys - done) : (uint32_t)batch;
        fill_items(&putting, done, true);
        status = move(round->store, YB_BENCH_STORE_PUT, flow.batch);
        if (status != YB_OK) {
            return yb_bench_complain("putting what is read later", status);
        }
        fill_items(&putting, done, false);
        status = move(round->store, YB_BENCH_STORE_GET, flow.batch); /* Warm hints. */
        if (status != YB_OK) {
            return yb_bench_complain("reading for the first time", status);
        }
    }
    return true;
}

static bool
begin_round(struct yb_bench_store *store, const struct yb_bench_store_flow *flow,
            struct round *round)
{
    uint64_t keys = YB_BENCH_STORE_BYTES / flow->size;
    const struct yb_client_call all = {.struct_bytes = sizeof(all), .force = true};
    enum yb_status status;

    status = yb_client_remove_all(store->client, &all, NULL); /* What others have left. */
    if (status != YB_OK) {
        return yb_bench_complain("removing everything", status);
    }
    keys = keys < WORKING_KEYS ? keys : WORKING_KEYS;
    keys -= keys % flow->batch;
    *round = (struct round){
        .store = store,
        .flow = flow,
        .base = store->next_key,
        .places = YB_BENCH_STORE_BYTES / flow->size,
        .keys = keys > 0 ? keys : flow->batch,
    };
    if (flow->op == YB_BENCH_STORE_PUT) {
        round->keys = UINT64_MAX / 2; /* Always new ones. */
        return stamp_values(round);
    }
    store->next_key += round->keys;
    round->places = round->places < round->keys ? round->places : round->keys;
    return stamp_values(round) && put_all(round);
}

static bool
run_batches(struct round *round, struct yb_histogram *times, uint64_t *batches_out)
{
    const struct yb_bench_store_flow *flow = round->flow;
    uint64_t until_ns = yb_measure_now_ns() + flow->run_ns;
    uint64_t began_ns;

    *batches_out = 0;
    do {
        enum yb_status status;

        fill_items(round, round->next, flow->op == YB_BENCH_STORE_PUT);
        began_ns = yb_measure_now_ns();
        status = move(round->store, flow->op, flow->batch);
        if (status != YB_OK) {
            return yb_bench_complain(op_name(flow->op), status);
        }
        yb_histogram_record(times, yb_measure_now_ns() - began_ns);
        round->next += flow->batch;
        ++*batches_out;
    } while (yb_measure_now_ns() < until_ns);
    return true;
}

static bool
prove_last(struct round *round)
{
    uint64_t first = round->next - round->flow->batch;

    switch (round->flow->op) {
    case YB_BENCH_STORE_PUT:
    case YB_BENCH_STORE_GET:
    case YB_BENCH_STORE_EXIST: return prove(round, first);
    case YB_BENCH_STORE_PIN: break;
    }
    return prove_pinned(round, first);
}

enum yb_status
yb_bench_store_try_pin(struct yb_bench_store *store)
{
    const struct yb_bench_store_flow flow = {
        .op = YB_BENCH_STORE_PUT,
        .size = 64,
        .fragments = 1,
        .batch = 1,
    };
    struct round round = {.store = store, .flow = &flow, .places = 1, .keys = UINT64_MAX / 2};
    enum yb_status status;

    fill_items(&round, store->next_key++, true);
    status = move(store, YB_BENCH_STORE_PUT, 1);
    return status == YB_OK ? move(store, YB_BENCH_STORE_PIN, 1) : status;
}

bool
yb_bench_store_run(struct yb_bench_store *store, const struct yb_bench_store_flow *flow,
                   struct yb_bench_store_result *result_out)
{
    struct yb_histogram *times = calloc(1, sizeof(*times));
    struct yb_client_counters before;
    struct yb_client_counters after;
    struct round round;
    uint64_t batches = 0;
    uint64_t began_ns;
    double node_ns;
    double cpu_ns;
    double span;
    double bytes;
    bool ok;

    YB_ASSERT((uint64_t)flow->batch * flow->fragments <= YB_BENCH_STORE_PIECES_MAX);
    if (times == NULL || !begin_round(store, flow, &round)) {
        free(times);
        return false;
    }
    yb_client_counters(store->client, &before);
    node_ns = (double)yb_measure_cpu_ns(store->pid);
    cpu_ns = (double)yb_bench_cpu_ns();
    began_ns = yb_measure_now_ns();
    ok = run_batches(&round, times, &batches);
    span = (double)(yb_measure_now_ns() - began_ns);
    node_ns = (double)yb_measure_cpu_ns(store->pid) - node_ns;
    cpu_ns = node_ns + (double)yb_bench_cpu_ns() - cpu_ns;
    yb_client_counters(store->client, &after);
    bytes = flow->op <= YB_BENCH_STORE_GET
                ? (double)batches * (double)flow->batch * (double)flow->size
                : 0;
    *result_out = (struct yb_bench_store_result){
        .gbps = bytes / span,
        .ops_per_s = (double)batches * flow->batch * 1e9 / span,
        .p50_us = (double)yb_histogram_quantile(times, 0.50) / 1e3,
        .p99_us = (double)yb_histogram_quantile(times, 0.99) / 1e3,
        .cpu_s_per_gb = bytes > 0 ? cpu_ns / bytes : 0,
        .cpu_us_per_op = batches > 0 ? cpu_ns / 1e3 / ((double)batches * flow->batch) : 0,
        .node_us_per_op = batches > 0 ? node_ns / 1e3 / ((double)batches * flow->batch) : 0,
        .local = after.local_bytes - before.local_bytes > 0 || flow->op == YB_BENCH_STORE_PIN,
    };
    ok = ok && prove_last(&round);
    if (flow->op == YB_BENCH_STORE_PUT) {
        store->next_key += round.next;
    }
    free(times);
    return ok;
}
