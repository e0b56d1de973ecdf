/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench fetch`: blocks that lie far away, waited for one by one and fetched.
 *
 * A directory and a node in a process of their own; below the node's memory is an object store of
 * files, each of whose reads is held up by a fixed time before it begins. More blocks are put than
 * its memory holds, so that whoever goes through them in their order finds each in the store alone.
 * Callers get one block after the other; then as many callers fetch, all together with so many
 * blocks outstanding. The store counts what is read, and every block is compared.
 */
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_directory.h"
#include "cli/folder.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "daemon/process.h"
#include "daemon/roles.h"
#include "node/node.h"
#include "tier/object/far.h"
#include "tier/object/object.h"
#include "yuebing/client.h"

#define BYTES       4096u
#define POOL_BYTES  (16ull << 20)
#define READY_NS    (10 * YB_NS_PER_S)
#define SYNC_NS     (2 * YB_NS_PER_S)
#define CALLERS     16u
#define SAME        1000u
#define REQUESTS    256u /* Of the store at a time. */
#define BLOCKS_MAX  100000u
#define PUT_AT_ONCE 500u

/* Shared with the store's process. */
struct shared {
    _Atomic uint64_t reads;  /* GETs that the medium was asked for ... */
    _Atomic uint64_t writes; /* ... and PUTs. */
};

/* ---- a medium that is far away --------------------------------------------------------------- */

static void
count(void *context, const struct yb_object_request *request)
{
    struct shared *shared = context;

    atomic_fetch_add(&shared->writes, request->verb == YB_OBJECT_PUT);
    atomic_fetch_add(&shared->reads, request->verb == YB_OBJECT_GET);
}

struct medium {
    char folder[128];
    struct yb_helper_pool *pool;
    struct shared *shared;
    uint64_t latency_ns;
};

static enum yb_status
open_far(void *context, const struct yb_node_tier_ground *ground, struct yb_tier **tier_out)
{
    struct medium *medium = context;
    struct yb_object_options options = {
        .loop = ground->loop,
        .events = ground->events,
        .owner = ground->owner,
        .url = "",
        .concurrency = REQUESTS,
        .hedge_bytes_max = 1, /* Reads are counted. */
    };
    struct yb_object_far_options far = {.loop = ground->loop,
                                        .latency_ns = medium->latency_ns,
                                        .reads_only = true,
                                        .seen = count,
                                        .context = medium->shared};
    char why[YB_OBJECT_WHY_BYTES] = "";
    enum yb_status status =
        yb_object_file_create(medium->folder, ground->loop, medium->pool, &far.behind, why);

    if (status == YB_OK) {
        status = yb_object_far_create(&far, &options.backend);
        if (status != YB_OK) {
            far.behind->ops->destroy(far.behind);
        }
    }
    if (status != YB_OK) {
        (void)snprintf(ground->why_out, ground->why_bytes, "%s", why);
        return status;
    }
    status = yb_object_create(&options, tier_out, why);
    if (status != YB_OK) {
        (void)snprintf(ground->why_out, ground->why_bytes, "%s", why);
    }
    return status;
}

/* ---- the store's process --------------------------------------------------------------------- */

static void
serve(struct yb_config *config, struct medium *medium, int ready_fd)
{
    const struct yb_node_tier tier = {
        .kind = YB_WIRE_TIER_OBJECT, .open = open_far, .context = medium};
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
        .tiers = &tier,
        .tier_count = 1,
    };
    struct yb_process *process = NULL;
    char why[YB_PROCESS_WHY_BYTES] = "";
    char text[YB_ADDRESS_TEXT_BYTES] = "";
    struct yb_address address;

    config->node_memory = POOL_BYTES;
    config->directory_cluster_file[0] = 0; /* None. */
    config->log_level = YB_CONFIG_LOG_LEVEL_ERROR;
    if (yb_helper_pool_create(8, 4096, &medium->pool) != YB_OK ||
        yb_process_create(&options, &process, why) != YB_OK ||
        yb_process_serve(process, &roles, why) != YB_OK ||
        !yb_roles_await_registered(yb_process_roles(process), READY_NS)) {
        fprintf(stderr, "yuebing bench fetch: the store does not start: %s\n", why);
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

struct bench {
    struct yb_cli *cli;
    struct medium medium;
    pid_t pid;
    char address[YB_ADDRESS_TEXT_BYTES];
    struct yb_client *client;
    uint32_t outstanding;
    uint32_t blocks;
    uint32_t next; /* The block after those that were read last. */
    uint64_t until_ns;
    uint32_t threads_before;
    uint32_t threads; /* While all are outstanding. */
    double sync_ops_s;
    double fetch_ops_s;
    uint64_t fetch_reads; /* For the fetches of different blocks. */
    uint64_t joined_reads;
    uint32_t joined;
    _Atomic uint32_t wakeups;
    _Atomic uint32_t wrong;
    _Atomic uint64_t done;
};

static bool
start(struct bench *bench)
{
    struct yb_config own = bench->cli->config;
    int ready[2];
    bool ok;

    if (pipe(ready) != 0) {
        return false;
    }
    (void)fflush(NULL);
    bench->pid = fork();
    if (bench->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(ready[0]);
        serve(&own, &bench->medium, ready[1]);
    }
    (void)close(ready[1]);
    ok = read(ready[0], bench->address, sizeof(bench->address)) == (ssize_t)sizeof(bench->address);
    (void)close(ready[0]);
    return ok;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

struct flow {
    struct bench *bench;
    pthread_t thread;
    uint32_t first;
    uint32_t count;
    uint32_t step; /* From a block to the next; 0: all are the same one. */
    struct yb_client_item *items;
    struct iovec *iov;
    char (*keys)[24];
    uint8_t *bytes;
    yb_client_handle handle;
};

static bool
flow_init(struct flow *flow, struct bench *bench, uint32_t first, uint32_t count)
{
    *flow = (struct flow){.bench = bench, .first = first, .count = count, .step = 1};
    flow->items = calloc(count, sizeof(*flow->items));
    flow->iov = calloc(count, sizeof(*flow->iov));
    flow->keys = calloc(count, sizeof(*flow->keys));
    flow->bytes = calloc(count, BYTES);
    return flow->items != NULL && flow->iov != NULL && flow->keys != NULL && flow->bytes != NULL;
}

static void
flow_fini(struct flow *flow)
{
    free(flow->items);
    free(flow->iov);
    free(flow->keys);
    free(flow->bytes);
}

static uint32_t
number_of(const struct flow *flow, uint32_t index)
{
    return (flow->first + index * flow->step) % flow->bench->blocks;
}

static void
name_items(struct flow *flow)
{
    for (uint32_t i = 0; i < flow->count; i++) {
        (void)snprintf(flow->keys[i], sizeof(flow->keys[i]), "far-%u", number_of(flow, i));
        flow->iov[i] = (struct iovec){flow->bytes + (size_t)i * BYTES, BYTES};
        flow->items[i] = (struct yb_client_item){
            .key = flow->keys[i],
            .key_bytes = (uint32_t)strlen(flow->keys[i]),
            .iov = &flow->iov[i],
            .iov_count = 1,
        };
    }
}

static void
stamp(uint8_t *bytes, uint32_t number)
{
    for (uint32_t i = 0; i < BYTES; i += 8) {
        uint64_t word = (number + 1) * 0x9e3779b97f4a7c15ull + i;

        memcpy(bytes + i, &word, sizeof(word));
    }
}

static void
judge(struct flow *flow, uint32_t index)
{
    uint8_t wanted[BYTES];

    stamp(wanted, number_of(flow, index));
    if (flow->items[index].status != YB_OK ||
        memcmp(flow->bytes + (size_t)index * BYTES, wanted, BYTES) != 0) {
        if (atomic_fetch_add(&flow->bench->wrong, 1) == 0) {
            fprintf(flow->bench->cli->err, "yuebing bench fetch: %s: %s\n", flow->keys[index],
                    yb_status_text(flow->items[index].status));
        }
    }
    atomic_fetch_add(&flow->bench->done, 1);
}

/* Wait until so many blocks are on their way to the store: what memory has no room for before that
 * is dropped. */
static bool
await_writes(const struct bench *bench, uint64_t count)
{
    for (uint32_t i = 0; i < 60000; i++) {
        if (atomic_load(&bench->medium.shared->writes) >= count) {
            return true;
        }
        (void)poll(NULL, 0, 1);
    }
    return false;
}

static bool
put_all(struct bench *bench)
{
    struct flow flow;
    bool ok = flow_init(&flow, bench, 0, PUT_AT_ONCE);

    for (uint32_t at = 0; ok && at < bench->blocks; at += PUT_AT_ONCE) {
        flow.first = at;
        name_items(&flow);
        for (uint32_t i = 0; i < flow.count; i++) {
            stamp(flow.bytes + (size_t)i * BYTES, number_of(&flow, i));
        }
        for (uint32_t tries = 0; tries < 1000; tries++) { /* Its memory may still be going down. */
            uint32_t left = 0;

            ok = yb_client_put(bench->client, flow.items, flow.count, NULL) == YB_OK;
            for (uint32_t i = 0; i < flow.count; i++) {
                left += flow.items[i].status != YB_OK && flow.items[i].status != YB_EXISTS;
            }
            ok = ok && left == 0;
            if (ok) {
                break;
            }
        }
        ok = ok && await_writes(bench, at + flow.count);
    }
    flow_fini(&flow);
    return ok;
}

/* ---- callers --------------------------------------------------------------------------------- */

/* One block after the other. */
static void *
get_blocks(void *context)
{
    struct flow *flow = context;

    while (yb_measure_now_ns() < flow->bench->until_ns) {
        name_items(flow);
        if (yb_client_get(flow->bench->client, flow->items, 1, NULL) != YB_OK) {
            flow->items[0].status = YB_INVALID;
        }
        judge(flow, 0);
        flow->first += CALLERS;
    }
    return NULL;
}

/* All at once, then whatever comes. */
static void *
fetch_blocks(void *context)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call),
                                        .timeout_ns = 60 * YB_NS_PER_S};
    struct flow *flow = context;
    struct bench *bench = flow->bench;
    uint32_t index;

    if (yb_client_fetch(bench->client, flow->items, flow->count, &call, NULL, &flow->handle) !=
        YB_OK) {
        atomic_fetch_add(&bench->wrong, flow->count);
        return NULL;
    }
    for (;;) {
        enum yb_status status = yb_client_fetch_next(bench->client, flow->handle, 0, &index);

        if (status == YB_TIMED_OUT) {
            atomic_fetch_add(&bench->wakeups, 1);
            status = yb_client_fetch_next(bench->client, flow->handle, 60 * YB_NS_PER_S, &index);
        }
        if (status != YB_OK) {
            break;
        }
        judge(flow, index);
    }
    return NULL;
}

static bool
run_callers(struct bench *bench, uint32_t first, uint32_t count, uint32_t step,
            void *(*run)(void *context))
{
    struct flow flows[CALLERS];
    uint32_t begun = 0;
    bool ok = true;

    memset(flows, 0, sizeof(flows));
    for (uint32_t i = 0; ok && i < CALLERS; i++) {
        ok = flow_init(&flows[i], bench, first + i * step, count);
        flows[i].step = step == 0 ? 0 : 1;
        if (ok) {
            name_items(&flows[i]);
        }
    }
    while (ok && begun < CALLERS) {
        ok = pthread_create(&flows[begun].thread, NULL, run, &flows[begun]) == 0;
        begun += ok;
    }
    if (ok && run == fetch_blocks) {
        uint32_t seen = yb_measure_threads(getpid());

        bench->threads = seen > bench->threads ? seen : bench->threads;
    }
    for (uint32_t i = 0; i < begun; i++) {
        (void)pthread_join(flows[i].thread, NULL);
        if (flows[i].handle != 0 &&
            (yb_client_wait(bench->client, flows[i].handle, 60 * YB_NS_PER_S) != YB_OK ||
             yb_client_finish(bench->client, flows[i].handle) != YB_OK)) {
            ok = false;
        }
    }
    for (uint32_t i = 0; i < CALLERS; i++) {
        flow_fini(&flows[i]);
    }
    return ok;
}

static bool
measure(struct bench *bench)
{
    uint64_t began_ns;
    uint64_t reads;
    bool ok;

    bench->threads_before = yb_measure_threads(getpid()) + CALLERS;
    bench->until_ns = yb_measure_now_ns() + SYNC_NS;
    began_ns = yb_measure_now_ns();
    ok = run_callers(bench, 0, 1, 1, get_blocks);
    bench->sync_ops_s =
        (double)atomic_load(&bench->done) * 1e9 / (double)(yb_measure_now_ns() - began_ns);
    atomic_store(&bench->wakeups, 0);
    atomic_store(&bench->done, 0);
    reads = atomic_load(&bench->medium.shared->reads);
    began_ns = yb_measure_now_ns();
    ok = ok && run_callers(bench, bench->blocks / 2, bench->outstanding / CALLERS,
                           bench->outstanding / CALLERS, fetch_blocks);
    bench->fetch_ops_s =
        (double)atomic_load(&bench->done) * 1e9 / (double)(yb_measure_now_ns() - began_ns);
    bench->fetch_reads = atomic_load(&bench->medium.shared->reads) - reads;
    reads = atomic_load(&bench->medium.shared->reads);
    /* One that nobody has read, and that memory has no room for since long. */
    ok = ok && run_callers(bench, bench->blocks / 2 - 1, SAME / CALLERS, 0, fetch_blocks);
    bench->joined = SAME / CALLERS * CALLERS;
    bench->joined_reads = atomic_load(&bench->medium.shared->reads) - reads;
    return ok && atomic_load(&bench->wrong) == 0;
}

/* ---- results --------------------------------------------------------------------------------- */

static int
print(const struct bench *bench)
{
    struct yb_cli *cli = bench->cli;
    double ratio = bench->sync_ops_s > 0 ? bench->fetch_ops_s / bench->sync_ops_s : 0;

    if (cli->json) {
        json_t *result = json_pack(
            "{s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:f, s:f, s:f, s:I, s:i, s:I, s:i}", "bench",
            "fetch", "latency_us", (json_int_t)(bench->medium.latency_ns / YB_NS_PER_US),
            "outstanding", (json_int_t)bench->outstanding, "bytes", (json_int_t)BYTES, "callers",
            (int)CALLERS, "threads_before", (int)bench->threads_before, "threads",
            (int)bench->threads, "sync_ops_s", bench->sync_ops_s, "fetch_ops_s", bench->fetch_ops_s,
            "ratio", ratio, "fetch_reads", (json_int_t)bench->fetch_reads, "joined",
            (int)bench->joined, "joined_reads", (json_int_t)bench->joined_reads, "wakeups",
            (int)atomic_load(&bench->wakeups));

        return yb_output_json(cli->out, result) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
    }
    fprintf(cli->out, "%u callers, %u blocks of %u bytes outstanding, reads held up by %.1f ms\n",
            CALLERS, bench->outstanding, BYTES, (double)bench->medium.latency_ns / 1e6);
    fprintf(cli->out, "  get, one after the other   %10.0f blocks/s\n", bench->sync_ops_s);
    fprintf(cli->out, "  fetch                      %10.0f blocks/s, %.1f times; %lu reads\n",
            bench->fetch_ops_s, ratio, (unsigned long)bench->fetch_reads);
    fprintf(cli->out, "  threads of the client      %u before, %u meanwhile; %u wake-ups\n",
            bench->threads_before, bench->threads, atomic_load(&bench->wakeups));
    fprintf(cli->out, "  %u fetches of one block  %lu read\n", bench->joined,
            (unsigned long)bench->joined_reads);
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool
open_client(struct bench *bench)
{
    const struct yb_client_options options = {
        .struct_bytes = sizeof(options), .directory = bench->address, .no_shared_memory = true};
    char why[256] = "";

    if (yb_client_open(&options, READY_NS, &bench->client, why, sizeof(why)) != YB_OK) {
        fprintf(bench->cli->err, "yuebing bench fetch: %s\n", why);
        return false;
    }
    return true;
}

static void
close_all(struct bench *bench)
{
    if (bench->client != NULL) {
        yb_client_close(&bench->client);
    }
    if (bench->pid > 0) {
        (void)kill(bench->pid, SIGKILL);
        (void)waitpid(bench->pid, NULL, 0);
    }
    (void)yb_folder_remove(bench->medium.folder);
    (void)munmap(bench->medium.shared, sizeof(*bench->medium.shared));
}

/* Read "20" or "20ms". */
static bool
read_latency(const struct yb_cli *cli, uint64_t *ms_out)
{
    const char *text = yb_cli_option(cli, "latency");
    char *end = NULL;
    unsigned long ms = text != NULL ? strtoul(text, &end, 10) : *ms_out;

    if (text != NULL && (text[0] < '0' || text[0] > '9' || ms > 10000 ||
                         (strcmp(end, "ms") != 0 && *end != '\0'))) {
        fprintf(cli->err,
                "yuebing bench fetch: --latency cannot be \"%s\"; allowed: 0ms .. 10000ms\n", text);
        return false;
    }
    *ms_out = ms;
    return true;
}

int
yb_bench_fetch(struct yb_cli *cli)
{
    struct bench bench = {.cli = cli, .medium = {.folder = "yuebing-bench-fetch-XXXXXX"}};
    uint64_t outstanding = 10000;
    uint64_t latency_ms = 20;
    int result = YB_CLI_EXIT_FAILED;

    if (!yb_cli_option_number(cli, "outstanding", CALLERS, BLOCKS_MAX / 4, &outstanding) ||
        !read_latency(cli, &latency_ms)) {
        return YB_CLI_EXIT_REFUSED;
    }
    bench.outstanding = (uint32_t)outstanding / CALLERS * CALLERS;
    bench.blocks = bench.outstanding * 2 > 20000 ? bench.outstanding * 2 : 20000;
    bench.medium.latency_ns = latency_ms * YB_NS_PER_MS;
    bench.medium.shared = mmap(NULL, sizeof(*bench.medium.shared), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bench.medium.shared == MAP_FAILED || mkdtemp(bench.medium.folder) == NULL) {
        fprintf(cli->err, "yuebing bench fetch: no folder can be made here; go where one can\n");
        return YB_CLI_EXIT_FAILED;
    }
    if (!start(&bench) || !open_client(&bench)) {
        fprintf(cli->err, "yuebing bench fetch: the store does not start\n");
    } else if (!put_all(&bench)) {
        fprintf(cli->err, "yuebing bench fetch: the blocks could not all be put\n");
    } else if (!measure(&bench)) {
        fprintf(cli->err, "yuebing bench fetch: %u blocks were not what was put\n",
                atomic_load(&bench.wrong));
    } else {
        result = print(&bench);
    }
    close_all(&bench);
    return result;
}
