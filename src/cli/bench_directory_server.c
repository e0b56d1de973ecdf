/* SPDX-License-Identifier: Apache-2.0
 *
 * The other processes of `yuebing bench directory`: the directory, and an index alone.
 */
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stats.h"
#include "cli/bench_directory.h"
#include "cli/measure.h"
#include "directory/directory.h"
#include "directory/grant.h"
#include "directory/index.h"
#include "net/helper.h"

#define ASK_NS       (10 * YB_NS_PER_MS) /* How often a directory looks whether it is asked. */
#define BATCH        512u
#define WRITES_FLOOR 65536u

/* ---- which block is where -------------------------------------------------------------------- */

/* splitmix64: a name for every number, so that no table of names disturbs the measurement. */
uint64_t
yb_bench_mix(uint64_t number)
{
    number += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

struct yb_id
yb_bench_block_name(uint64_t block)
{
    uint64_t words[2] = {yb_bench_mix(2 * block), yb_bench_mix(2 * block + 1)};
    struct yb_id name;

    memcpy(&name, words, sizeof(name));
    return name;
}

/* ---- processes ------------------------------------------------------------------------------- */

bool
yb_bench_complain(const char *what, enum yb_status status)
{
    fprintf(stderr, "yuebing bench: %s: %s\n", what, yb_status_text(status));
    return false;
}

static void *
shared_page(size_t bytes)
{
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return page == MAP_FAILED ? NULL : page;
}

static void
end_process(pid_t *pid)
{
    if (*pid > 0) {
        (void)kill(*pid, SIGKILL);
        (void)waitpid(*pid, NULL, 0);
        *pid = 0;
    }
}

/* ---- one end of a connection ----------------------------------------------------------------- */

bool
yb_bench_end_open(struct yb_bench_end *end, const struct yb_config *config, struct yb_loop *loop,
                  uint8_t role, const struct yb_service *service)
{
    static const char secret[] = "secret one-secret-for-the-processes-of-a-benchmark\n";
    struct yb_net_options options = {.random = yb_net_random_system};
    char why[256];
    enum yb_status status;

    *end = (struct yb_bench_end){.loop = loop};
    status = yb_auth_parse("bench", secret, sizeof(secret) - 1, &end->auth, why, sizeof(why));
    if (status != YB_OK) {
        return yb_bench_complain(why, status);
    }
    end->self = (struct yb_hello_self){
        .incarnation = 1,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = role,
        .tenant = role == YB_WIRE_ROLE_CLIENT ? "bench" : "",
        .auth = end->auth,
        .credit_requests = config->net_request_credits,
        .credit_bytes = config->net_byte_credits,
        .body_bytes_max = (uint32_t)config->net_body_bytes_max,
        .data_bytes_max = config->net_data_bytes_max,
        .ping_interval_ms = (uint32_t)config->net_idle_ping_ms,
        .software = "yuebing bench",
        .port_name = "yuebing bench",
    };
    yb_net_random_system(NULL, &end->self.identity, sizeof(end->self.identity));
    options.loop = loop;
    options.self = &end->self;
    options.service = service;
    options.stream.congestion =
        strcmp(config->net_congestion, "system") == 0 ? NULL : config->net_congestion;
    options.stream.unsent_bytes_max = (uint32_t)config->net_unsent_bytes_max;
    yb_net_limits_default(&options.limits);
    status = yb_net_create(&options, &end->net);
    return status == YB_OK ? true : yb_bench_complain("net", status);
}

void
yb_bench_end_close(struct yb_bench_end *end)
{
    if (end->net != NULL) {
        yb_net_shut(end->net);
        while (!yb_net_idle(end->net)) {
            yb_loop_turn(end->loop, YB_NS_PER_MS);
        }
        yb_net_destroy(&end->net);
    }
    if (end->auth != NULL) {
        yb_auth_destroy(&end->auth);
    }
}

/* ---- the directory --------------------------------------------------------------------------- */

struct serving {
    const struct yb_config *config;
    struct yb_loop *loop;
    struct yb_stats *stats;
    struct yb_helper_pool *helpers;
    struct yb_directory *directory;
    struct yb_bench_end end;
    struct yb_server *server;
    struct yb_bench_directory_page *page;
};

static enum yb_status
make_directory(struct serving *serving, uint64_t blocks, const char *folder)
{
    uint64_t writes = WRITES_FLOOR + yb_bench_in_flight(blocks);
    char file[96];
    struct yb_directory_options options = {
        .cluster_file = file,
        .records_max = blocks,
        .writes_max = (uint32_t)writes,
        .helpers = serving->helpers,
        .stats = serving->stats,
        .random = yb_net_random_system,
    };
    char why[512];
    enum yb_status status;

    (void)snprintf(file, sizeof(file), "%s/cluster", folder);
    status = yb_directory_create(&options, &serving->directory, why, sizeof(why));
    if (status != YB_OK) {
        (void)yb_bench_complain(why, status);
    }
    return status;
}

static bool
listen_for(struct serving *serving, struct yb_address *address_out)
{
    struct yb_server_options options = {
        .connections_max = serving->config->net_connections_max,
        .unauthenticated_max = serving->config->net_unauthenticated_max,
        .nets = &serving->end.net,
        .net_count = 1,
    };
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status = yb_address_parse("127.0.0.1:0", 0, &options.address, why);

    status = status == YB_OK ? yb_server_create(&options, &serving->server, why) : status;
    if (status != YB_OK) {
        return yb_bench_complain(why, status);
    }
    *address_out = yb_server_address(serving->server);
    return true;
}

static bool
make_serving(struct serving *serving, uint64_t blocks, const char *folder)
{
    const struct yb_config *config = serving->config;
    struct yb_loop_options loop = {
        .backend = config->net_io == YB_CONFIG_NET_IO_EPOLL      ? "epoll"
                   : config->net_io == YB_CONFIG_NET_IO_IO_URING ? "io_uring"
                                                                 : "auto",
        .clock = yb_clock_system(),
        .spin_us = config->net_spin_us,
    };
    enum yb_status status = yb_loop_create(&loop, &serving->loop);

    status = status == YB_OK ? yb_stats_create(&serving->stats) : status;
    status = status == YB_OK ? yb_helper_pool_create(1, 16, &serving->helpers) : status;
    if (status != YB_OK) {
        return yb_bench_complain("directory", status);
    }
    return make_directory(serving, blocks, folder) == YB_OK &&
           yb_bench_end_open(&serving->end, config, serving->loop, YB_WIRE_ROLE_DIRECTORY,
                             yb_directory_service(serving->directory)) &&
           yb_directory_start(serving->directory, serving->end.net) == YB_OK;
}

/* Find a histogram among the statistics: {count, max}. */
static void
read_steps(struct yb_stats *stats, struct yb_bench_directory_page *page)
{
    json_t *all = yb_stats_json(stats);
    json_t *one;
    size_t i;

    json_array_foreach(all, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));

        if (name != NULL && strcmp(name, "yuebing_directory_sweep_step_seconds") == 0) {
            page->sweep_steps = (uint64_t)json_integer_value(json_object_get(one, "count"));
            page->sweep_step_max_ns = (uint64_t)json_integer_value(json_object_get(one, "max"));
        }
    }
    json_decref(all);
}

static void
serve(struct serving *serving, uint64_t blocks, const char *folder, int ready_fd)
{
    struct yb_bench_directory_page *page = serving->page;
    struct yb_address address;

    (void)signal(SIGPIPE, SIG_IGN);
    if (!make_serving(serving, blocks, folder) || !listen_for(serving, &address) ||
        write(ready_fd, &address, sizeof(address)) != (ssize_t)sizeof(address)) {
        _exit(1);
    }
    for (;;) {
        uint32_t asked = atomic_load(&page->asked);

        if (asked != atomic_load(&page->answered)) {
            read_steps(serving->stats, page);
            atomic_store(&page->answered, asked);
        }
        yb_loop_turn(serving->loop, ASK_NS);
    }
}

static bool
await_ready(int ready_fd, void *word, size_t bytes)
{
    bool ok = read(ready_fd, word, bytes) == (ssize_t)bytes;

    (void)close(ready_fd);
    return ok ? true : yb_bench_complain("a process did not start", YB_CLOSED);
}

bool
yb_bench_directory_start(const struct yb_config *config, uint64_t blocks,
                         struct yb_bench_directory *directory_out)
{
    struct yb_bench_directory *directory = directory_out;
    struct serving serving = {.config = config};
    int ready[2];

    *directory = (struct yb_bench_directory){.folder = "/tmp/yuebing-bench-XXXXXX"};
    directory->page = shared_page(sizeof(*directory->page));
    if (directory->page == NULL || mkdtemp(directory->folder) == NULL || pipe(ready) != 0) {
        directory->folder[0] = '\0';
        return yb_bench_complain("a folder, a pipe and a page in memory", YB_NO_MEMORY);
    }
    serving.page = directory->page;
    (void)fflush(NULL);
    directory->pid = fork();
    if (directory->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, "yb-directory"); /* For whoever looks with ps or perf. */
        (void)close(ready[0]);
        serve(&serving, blocks, directory->folder, ready[1]);
    }
    (void)close(ready[1]);
    return await_ready(ready[0], &directory->address, sizeof(directory->address));
}

void
yb_bench_directory_stop(struct yb_bench_directory *directory)
{
    char file[96];

    end_process(&directory->pid);
    if (directory->folder[0] != '\0') {
        (void)snprintf(file, sizeof(file), "%s/cluster", directory->folder);
        (void)unlink(file);
        (void)snprintf(file, sizeof(file), "%s/cluster.lock", directory->folder);
        (void)unlink(file);
        (void)rmdir(directory->folder);
    }
    if (directory->page != NULL) {
        (void)munmap(directory->page, sizeof(*directory->page));
        directory->page = NULL;
    }
}

bool
yb_bench_directory_ask(struct yb_bench_directory *directory)
{
    uint32_t asked = atomic_load(&directory->page->asked) + 1;

    atomic_store(&directory->page->asked, asked);
    for (uint32_t i = 0; i < 10000 && atomic_load(&directory->page->answered) != asked; i++) {
        (void)poll(NULL, 0, 1);
    }
    return atomic_load(&directory->page->answered) == asked
               ? true
               : yb_bench_complain("the directory does not tell its figures", YB_TIMED_OUT);
}

/* ---- an index alone -------------------------------------------------------------------------- */

struct alone {
    uint64_t blocks;
    struct yb_index *index;
    struct yb_bench_index_figures *figures;
    sem_t work; /* For the thread that takes memory ahead. */
};

static uint64_t
thread_cpu_ns(void)
{
    struct timespec used;

    /* lint: allow, this thread's processor time, which struct yb_clock does not know */
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * YB_NS_PER_S + (uint64_t)used.tv_nsec;
}

static void
expect(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "yuebing bench directory: index: %s\n", what);
        _exit(1);
    }
}

static void *
grow_ahead(void *argument)
{
    struct alone *alone = argument;

    for (;;) {
        (void)sem_wait(&alone->work);
        yb_index_grow_ahead(alone->index);
    }
    return NULL;
}

static void
fill_op(uint64_t block, struct yb_index_op *op)
{
    *op = (struct yb_index_op){
        .hash = yb_bench_block_name(block),
        .grant = yb_grant_make(1, block + 1),
        .size = YB_BENCH_BLOCK_BYTES,
        .kind = YB_INDEX_CREATE,
        .flags = yb_index_with_wanted(0, yb_bench_block_replicas(block)),
        .replica_count = (uint8_t)yb_bench_block_replicas(block),
    };
    for (uint32_t i = 0; i < op->replica_count; i++) {
        op->replicas[i].slot = (uint16_t)(1 + yb_bench_block_node(block, i));
        op->replicas[i].tier = yb_bench_block_tier(block, i);
    }
}

static void
publish_alone(struct alone *alone)
{
    static struct yb_index_op ops[BATCH];
    static struct yb_index_result results[BATCH];
    uint64_t spent_ns = 0;

    for (uint64_t done = 0; done < alone->blocks; done += BATCH) {
        uint32_t count =
            alone->blocks - done < BATCH ? (uint32_t)(alone->blocks - done) : (uint32_t)BATCH;
        uint64_t begun_ns;

        for (uint32_t i = 0; i < count; i++) {
            fill_op(done + i, &ops[i]);
        }
        begun_ns = thread_cpu_ns();
        yb_index_apply(alone->index, ops, count, 0, results);
        spent_ns += thread_cpu_ns() - begun_ns;
        for (uint32_t i = 0; i < count; i++) {
            expect(results[i].status == YB_OK, "a publication failed");
        }
        if (yb_index_growth_due(alone->index)) {
            (void)sem_post(&alone->work);
        }
    }
    alone->figures->publish_keys_per_s = (double)alone->blocks * 1e9 / (double)spent_ns;
}

static void
look_up_alone(struct alone *alone, uint64_t run_ns)
{
    static struct yb_id hashes[BATCH];
    static struct yb_index_answer answers[BATCH];
    static uint64_t blocks[BATCH];
    struct yb_index_query query = {.now_ms = 1};
    uint64_t random = 1;
    uint64_t asked = 0;
    uint64_t spent_ns = 0;

    while (spent_ns < run_ns) {
        uint64_t begun_ns;

        for (uint32_t i = 0; i < BATCH; i++) {
            random = yb_bench_mix(random);
            blocks[i] = random % alone->blocks;
            hashes[i] = yb_bench_block_name(blocks[i]);
        }
        begun_ns = thread_cpu_ns();
        yb_index_lookup(alone->index, &query, hashes, BATCH, answers);
        spent_ns += thread_cpu_ns() - begun_ns;
        asked += BATCH;
        for (uint32_t i = 0; i < BATCH; i++) {
            expect(answers[i].count == yb_bench_block_replicas(blocks[i]) &&
                       answers[i].replicas[0].slot == 1 + yb_bench_block_node(blocks[i], 0),
                   "a lookup was answered wrongly");
        }
    }
    alone->figures->lookup_keys_per_s = (double)asked * 1e9 / (double)spent_ns;
}

static void
sweep_alone(struct alone *alone)
{
    struct yb_index_swept swept = {0};
    uint64_t longest_ns = 0;

    expect(yb_index_slot_set(alone->index, 1, YB_INDEX_SLOT_DEAD) == YB_OK, "a slot did not die");
    while (!swept.done) {
        uint64_t begun_ns = thread_cpu_ns();
        uint64_t took_ns;

        yb_index_sweep(alone->index, 1, YB_INDEX_SWEEP_STEP, NULL, 0, &swept);
        took_ns = thread_cpu_ns() - begun_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    alone->figures->sweep_step_us_max = (double)longest_ns / 1e3;
}

static void
open_alone(struct alone *alone)
{
    struct yb_index_options options = {
        .records_max = (uint32_t)alone->blocks,
        .slots_max = 1024,
        .tenants_max = 1024,
        .seed = 42,
    };
    pthread_t thread;

    expect(yb_index_create(&options, &alone->index) == YB_OK, "no memory");
    for (uint16_t slot = 1; slot <= YB_BENCH_NODES; slot++) {
        expect(yb_index_slot_open(alone->index, slot) == YB_OK, "a slot did not open");
    }
    expect(sem_init(&alone->work, 0, 0) == 0 &&
               pthread_create(&thread, NULL, grow_ahead, alone) == 0,
           "no thread");
}

/* An order is how long to look up; 0: the last one. */
static void
run_alone(struct alone *alone, int order_fd)
{
    double resident = (double)yb_measure_resident_bytes(getpid());
    uint64_t run_ns = 0;

    open_alone(alone);
    publish_alone(alone);
    alone->figures->bytes_per_block =
        ((double)yb_measure_resident_bytes(getpid()) - resident) / (double)alone->blocks;
    do {
        expect(write(order_fd, &run_ns, sizeof(run_ns)) == (ssize_t)sizeof(run_ns) &&
                   read(order_fd, &run_ns, sizeof(run_ns)) == (ssize_t)sizeof(run_ns),
               "nobody listens");
        if (run_ns > 0) {
            look_up_alone(alone, run_ns);
        }
    } while (run_ns > 0);
    sweep_alone(alone);
    _exit(0);
}

bool
yb_bench_index_start(uint64_t blocks, struct yb_bench_index *index_out)
{
    struct alone alone = {.blocks = blocks};
    uint64_t word;
    int pair[2];

    *index_out = (struct yb_bench_index){.order_fd = -1};
    index_out->figures = shared_page(sizeof(*index_out->figures));
    if (index_out->figures == NULL || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        return yb_bench_complain("a page in memory and a pair of sockets", YB_NO_MEMORY);
    }
    alone.figures = index_out->figures;
    (void)fflush(NULL);
    index_out->pid = fork();
    if (index_out->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, "yb-index");
        (void)close(pair[0]);
        run_alone(&alone, pair[1]);
    }
    (void)close(pair[1]);
    index_out->order_fd = pair[0];
    return read(pair[0], &word, sizeof(word)) == (ssize_t)sizeof(word)
               ? true
               : yb_bench_complain("the index's process", YB_CLOSED);
}

bool
yb_bench_index_begin(struct yb_bench_index *index, uint64_t run_ns)
{
    bool ok = write(index->order_fd, &run_ns, sizeof(run_ns)) == (ssize_t)sizeof(run_ns);

    return ok ? true : yb_bench_complain("the index's process", YB_CLOSED);
}

bool
yb_bench_index_end(struct yb_bench_index *index)
{
    uint64_t word;
    bool ok = read(index->order_fd, &word, sizeof(word)) == (ssize_t)sizeof(word);

    return ok ? true : yb_bench_complain("the index's process", YB_CLOSED);
}

bool
yb_bench_index_stop(struct yb_bench_index *index)
{
    uint64_t last = 0;
    int state = 1;

    if (index->order_fd >= 0) {
        if (write(index->order_fd, &last, sizeof(last)) == (ssize_t)sizeof(last)) {
            (void)waitpid(index->pid, &state, 0);
            index->pid = 0;
        }
        (void)close(index->order_fd);
        index->order_fd = -1;
    }
    end_process(&index->pid);
    return state == 0;
}
