/* SPDX-License-Identifier: Apache-2.0
 *
 * store_driver.c -- clients of a store that do what lines of the standard input say.
 *
 * So that a test can act between two steps, and stop, kill and restart processes that really put
 * and get. One line in, one line of JSON out; it has a "status". Values are functions of key,
 * version and offset, so that every byte is checked without a copy; a value of at least 8 bytes
 * begins with its version. Buffers lie between guard bytes, which are looked at after every get.
 *
 *     open c=0 directory=ADDR [tenant= secret= hints= no_shm=1 gate=1 prefill_ns= ms=]
 *     close c=0
 *     put|get|exist|remove|pin|fetch c=0 keys=SPEC [bytes=LIST] [version=N|any] ...
 *                                                see batch_run(); fetch waits for its end, too
 *     release c=0                                of what was pinned last
 *     submit id=N op=put ... / poll id=N / wait id=N ms= / cancel id=N / peek id=N / finish id=N
 *     loop id=N op= keys= threads= batch= ... / loops id=N / unloop id=N
 *     remove_all c=0 [force=1] / remove_matching c=0 match=prefix|regex|all pattern=
 *     list c=0 match= pattern= / nodes c=0 / drain c=0 name= on=1 [force=1] / counters c=0
 *     fork c=0 keys=SPEC                         what a child's call says
 *     lend c=0 bytes=N / unlend c=0              memory registered with the client
 *     quit
 *
 * SPEC is a list such as a:0-99,b:7,a:3. LIST gives the sizes of the items, again from its start
 * when it is used up. `batch=N` makes calls of N keys. `room=LIST` is the room of a get,
 * `pieces=LIST` splits every buffer ("max": a piece of SIZE_MAX bytes, "none": no list at all).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "yuebing/client.h"

#include "store_values.h"

#define CLIENTS_MAX 256u
#define JOBS_MAX    64u
#define LOOPS_MAX   16u
#define THREADS_MAX 64u
#define MS_NS       UINT64_C(1000000)
#define STATUSES    64u
#define SAMPLES_MAX 65536u

static struct yb_client *clients[CLIENTS_MAX];

/* A batch that was submitted, with its arguments. */
struct job {
    struct words words;
    struct buffers buffers;
    struct yb_client *client;
    yb_client_handle handle;
    bool used;
};
static struct job jobs[JOBS_MAX];

/* Threads that do one thing again and again. */
struct looper {
    pthread_t thread;
    struct loop *loop;
    uint64_t random;
    uint64_t calls, keys, wrong, late, max_ns;
    uint64_t by_status[STATUSES];
    uint32_t *samples_us;
};
struct loop {
    struct words words;
    struct keys keys;
    struct yb_client *client;
    struct looper loopers[THREADS_MAX];
    uint32_t threads;
    _Atomic(bool) stop;
    _Atomic(uint64_t) fresh;
    pthread_mutex_t lock; /* Numbers of the loopers. */
};
static struct loop *loops[LOOPS_MAX];

static struct buffers pinned; /* By the last pin. */
static void *lent;

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS_NS + (uint64_t)now.tv_nsec;
}

static void
say_status(enum yb_status status)
{
    printf("{\"status\":\"%s\"}\n", yb_status_name(status));
}

static struct yb_client *
client_of(const struct words *words)
{
    uint64_t number = words_number(words, "c", 0);

    return number < CLIENTS_MAX ? clients[number] : NULL;
}

static uint32_t
index_of(const struct words *words, uint32_t max)
{
    uint64_t number = words_number(words, "id", 0);

    if (number >= max) {
        fprintf(stderr, "id %llu is too large\n", (unsigned long long)number);
        abort();
    }
    return (uint32_t)number;
}

/* ---- calls ---------------------------------------------------------------------------------- */

enum op { OP_PUT, OP_GET, OP_EXIST, OP_REMOVE, OP_PIN, OP_FETCH, OP_NONE };

static enum op
op_of(const char *name)
{
    static const char *const names[] = {"put", "get", "exist", "remove", "pin", "fetch"};

    for (uint32_t i = 0; name != NULL && i < OP_NONE; i++) {
        if (strcmp(name, names[i]) == 0) {
            return (enum op)i;
        }
    }
    return OP_NONE;
}

static struct yb_client_call
call_of(const struct words *words, const char **preferred)
{
    struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = words_number(words, "ms", 10000) * MS_NS,
        .work_class = (uint32_t)words_number(words, "class", 0),
        .hold_ms = (uint32_t)words_number(words, "hold", 0),
        .force = words_number(words, "force", 0) != 0,
        .put =
            {
                .replicas = (uint32_t)words_number(words, "replicas", 0),
                .replace = words_number(words, "replace", 0) != 0,
                .soft_pin = words_number(words, "soft", 0) != 0,
                .hard_pin = words_number(words, "hard", 0) != 0,
                .ttl_ms = words_number(words, "ttl", 0),
            },
    };

    preferred[0] = words_text(words, "preferred", NULL);
    preferred[1] = NULL;
    call.put.preferred = preferred[0] != NULL ? preferred : NULL;
    return call;
}

/* Begin it and wait until all of it has ended. */
static enum yb_status
fetch(struct yb_client *client, struct yb_client_item *items, uint32_t count,
      const struct yb_client_call *call)
{
    const struct yb_client_fetch_options options = {.struct_bytes = sizeof(options)};
    yb_client_handle handle;
    enum yb_status status = yb_client_fetch(client, items, count, call, &options, &handle);

    if (status == YB_OK && (status = yb_client_wait(client, handle, UINT64_MAX)) == YB_OK) {
        status = yb_client_finish(client, handle);
    }
    return status;
}

static enum yb_status
call_client(struct yb_client *client, enum op op, struct yb_client_item *items, uint32_t count,
            const struct yb_client_call *call)
{
    switch (op) {
    case OP_PUT: return yb_client_put(client, items, count, call);
    case OP_GET: return yb_client_get(client, items, count, call);
    case OP_EXIST: return yb_client_exist(client, items, count, call);
    case OP_REMOVE: return yb_client_remove(client, items, count, call);
    case OP_PIN: return yb_client_pin(client, items, count, call);
    case OP_FETCH: return fetch(client, items, count, call);
    default: return YB_INVALID;
    }
}

/* Make the buffers of keys [from, from + count). */
static void
prepare(struct buffers *buffers, const struct words *words, const struct keys *keys, uint32_t from,
        uint32_t count)
{
    enum op op = op_of(words_text(words, "op", words->verb));

    buffers_make(buffers, words, keys, from, count);
    if (op == OP_PUT) {
        buffers_fill(buffers, words_number(words, "version", 1));
    } else if (op == OP_GET || op == OP_FETCH) {
        buffers_blank(buffers);
    }
}

/* Judge what a get or pin brought. */
static void
judge(struct buffers *buffers, const struct words *words, enum op op)
{
    const char *version = words_text(words, "version", "any");

    if (op == OP_GET || op == OP_PIN || op == OP_FETCH) {
        buffers_judge(buffers, op == OP_PIN,
                      strcmp(version, "any") == 0 ? VERSION_ANY : strtoull(version, NULL, 0));
    }
}

static void
forget_pinned(void)
{
    keys_free(&pinned.keys);
    buffers_free(&pinned);
}

/* One command over all its keys, in calls of `batch`: prints the items' results, runs of equal ones
 * as [value, how many]. */
static void
batch_run(const struct words *words, enum op op)
{
    struct yb_client *client = client_of(words);
    struct report *report = report_make();
    uint64_t began_ns = now_ns(), longest_ns = 0;
    enum yb_status status = YB_OK;
    const char *preferred[2];
    struct yb_client_call call = call_of(words, preferred);
    struct keys keys;
    uint32_t step;

    keys_make(&keys, words);
    if (op == OP_PIN) {
        forget_pinned();
    }
    step = (uint32_t)words_number(words, "batch", keys.count);
    for (uint32_t from = 0; from < keys.count || (from == 0 && keys.count == 0); from += step) {
        uint32_t count = keys.count - from < step ? keys.count - from : step;
        struct buffers buffers;
        uint64_t call_ns;

        prepare(&buffers, words, &keys, from, count);
        call_ns = now_ns();
        status = call_client(client, op, buffers.items, count, &call);
        call_ns = now_ns() - call_ns;
        longest_ns = call_ns > longest_ns ? call_ns : longest_ns;
        judge(&buffers, words, op);
        report_add(report, &buffers);
        if (op == OP_PIN) {
            buffers_free(&pinned);
            pinned = buffers;
        } else {
            buffers_free(&buffers);
        }
        if (status != YB_OK || keys.count == 0) {
            break;
        }
    }
    report_print(report, status, (double)(now_ns() - began_ns) / 1e6, (double)longest_ns / 1e6);
    report_free(report);
    if (op == OP_PIN) {
        pinned.keys = keys; /* Its items go on pointing at them. */
    } else {
        keys_free(&keys);
    }
}

static void
do_release(const struct words *words)
{
    struct report *report = report_make();
    enum yb_status status;

    if (words_number(words, "check", 0) != 0) {
        buffers_judge(&pinned, true, VERSION_ANY);
    }
    status = yb_client_release(client_of(words), pinned.items, pinned.count);
    report_add(report, &pinned);
    report_print(report, status, 0, 0);
    report_free(report);
    forget_pinned();
}

/* ---- clients -------------------------------------------------------------------------------- */

static void
do_open(const struct words *words)
{
    struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = words_text(words, "directory", NULL),
        .secret_file = words_text(words, "secret", NULL),
        .tenant = words_text(words, "tenant", NULL),
        .hints_max = (uint32_t)words_number(words, "hints", 0),
        .no_shared_memory = words_number(words, "no_shm", 0) != 0,
        .reuse_gate = (uint32_t)words_number(words, "gate", 0),
        .prefill_ns_per_block = words_number(words, "prefill_ns", 0),
    };
    uint64_t from = words_number(words, "c", 0), count = words_number(words, "clients", 1);
    char message[512] = "";
    enum yb_status status = YB_OK;
    uint64_t began_ns = now_ns();

    for (uint64_t i = from; i < from + count && i < CLIENTS_MAX && status == YB_OK; i++) {
        status = yb_client_open(&options, words_number(words, "ms", 10000) * MS_NS, &clients[i],
                                message, sizeof(message));
    }
    printf("{\"status\":\"%s\",\"ms\":%.3f,\"message\":", yb_status_name(status),
           (double)(now_ns() - began_ns) / 1e6);
    print_text(message);
    printf("}\n");
}

static void
do_close(const struct words *words)
{
    uint64_t from = words_number(words, "c", 0), count = words_number(words, "clients", 1);

    for (uint64_t i = from; i < from + count && i < CLIENTS_MAX; i++) {
        yb_client_close(&clients[i]);
    }
    say_status(YB_OK);
}

static void
do_cycle(const struct words *words)
{
    struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = words_text(words, "directory", NULL),
    };
    enum yb_status status = YB_OK;

    for (uint64_t i = 0; i < words_number(words, "rounds", 1) && status == YB_OK; i++) {
        struct yb_client *client = NULL;
        struct yb_client_item item = {.key = "cycle", .key_bytes = 5};

        status = yb_client_open(&options, 10000 * MS_NS, &client, NULL, 0);
        if (status == YB_OK) {
            status = yb_client_exist(client, &item, 1, NULL);
        }
        yb_client_close(&client);
        yb_client_close(&client); /* Nothing is left to close. */
    }
    say_status(status);
}

static void
do_fork(const struct words *words)
{
    struct yb_client *client = client_of(words);
    struct keys keys;
    struct buffers buffers;
    enum yb_status status = YB_OK;
    int told = 0;
    pid_t child;

    keys_make(&keys, words);
    buffers_make(&buffers, words, &keys, 0, keys.count);
    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        status = yb_client_exist(client, buffers.items, buffers.count, NULL);
        yb_client_close(&client);
        _exit(-(int)status);
    }
    (void)waitpid(child, &told, 0);
    status = WIFEXITED(told) ? (enum yb_status)(-WEXITSTATUS(told)) : YB_FAULT;
    buffers_free(&buffers);
    keys_free(&keys);
    say_status(status);
}

static void
do_lend(const struct words *words)
{
    uint64_t bytes = words_number(words, "bytes", 1 << 20);

    if (strcmp(words->verb, "lend") == 0) {
        if (lent == NULL) {
            lent = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        }
        say_status(yb_client_register(client_of(words), lent, bytes));
    } else {
        say_status(
            yb_client_unregister(client_of(words), lent, words_number(words, "ms", 1000) * MS_NS));
    }
}

/* ---- looking around -------------------------------------------------------------------------- */

static enum yb_client_match
match_of(const struct words *words)
{
    const char *match = words_text(words, "match", "all");

    return match[0] == 'p'   ? YB_CLIENT_MATCH_PREFIX
           : match[0] == 'r' ? YB_CLIENT_MATCH_REGEX
                             : YB_CLIENT_MATCH_ALL;
}

struct listing {
    uint64_t seen;
    uint64_t bytes;
    uint64_t stop_after;
};

static bool
visit(void *context, const struct yb_client_entry *entry)
{
    struct listing *listing = context;

    if (listing->seen < 1000) {
        printf("%s", listing->seen == 0 ? "" : ",");
        print_text_of(entry->key, entry->key_bytes);
    }
    listing->seen++;
    listing->bytes += entry->size;
    return listing->seen != listing->stop_after;
}

static void
do_list(const struct words *words)
{
    struct listing listing = {.stop_after = words_number(words, "stop_after", 0)};
    const char *preferred[2];
    struct yb_client_call call = call_of(words, preferred);
    enum yb_status status;

    printf("{\"keys\":[");
    status = yb_client_list(client_of(words), match_of(words), words_text(words, "pattern", ""),
                            &call, visit, &listing);
    printf("],\"count\":%llu,\"bytes\":%llu,\"status\":\"%s\"}\n", (unsigned long long)listing.seen,
           (unsigned long long)listing.bytes, yb_status_name(status));
}

static void
do_removal(const struct words *words)
{
    const char *preferred[2];
    struct yb_client_call call = call_of(words, preferred);
    uint64_t count = 0, began_ns = now_ns();
    enum yb_status status =
        strcmp(words->verb, "remove_all") == 0
            ? yb_client_remove_all(client_of(words), &call, &count)
            : yb_client_remove_matching(client_of(words), match_of(words),
                                        words_text(words, "pattern", ""), &call, &count);

    printf("{\"status\":\"%s\",\"count\":%llu,\"ms\":%.3f}\n", yb_status_name(status),
           (unsigned long long)count, (double)(now_ns() - began_ns) / 1e6);
}

static void
do_nodes(const struct words *words)
{
    static struct yb_client_node nodes[1024];
    uint32_t count = 0;
    enum yb_status status = yb_client_nodes(client_of(words), nodes, 1024, &count);

    printf("{\"status\":\"%s\",\"nodes\":[", yb_status_name(status));
    for (uint32_t i = 0; i < count && i < 1024; i++) {
        printf("%s{\"name\":\"%s\",\"address\":\"%s\",\"state\":\"%s\",\"slot\":%u,"
               "\"incarnation\":%llu,\"capacity\":%llu,\"used\":%llu,\"age_ms\":%llu,"
               "\"local\":%s}",
               i == 0 ? "" : ",", nodes[i].name, nodes[i].address, nodes[i].state, nodes[i].slot,
               (unsigned long long)nodes[i].incarnation, (unsigned long long)nodes[i].capacity,
               (unsigned long long)nodes[i].used, (unsigned long long)nodes[i].age_ms,
               nodes[i].local ? "true" : "false");
    }
    printf("]}\n");
}

static void
do_drain(const struct words *words)
{
    const char *preferred[2];
    struct yb_client_call call = call_of(words, preferred);

    say_status(yb_client_drain(client_of(words), words_text(words, "name", ""),
                               words_number(words, "on", 1) != 0, call.force, &call));
}

/* Of one client, or of `clients` from `c` together. */
static void
do_counters(const struct words *words)
{
    struct yb_client_counters all = {0};
    uint64_t from = words_number(words, "c", 0), count = words_number(words, "clients", 1);

#define COUNTERS(X) \
    X(puts)         \
    X(put_bytes)    \
    X(gets)         \
    X(hits)         \
    X(get_bytes)    \
    X(exists)       \
    X(lookups)      \
    X(hinted)       \
    X(stale)        \
    X(invalidated)  \
    X(calls)        \
    X(retries)      \
    X(gated)        \
    X(local_bytes)
    for (uint64_t i = from; i < from + count && i < CLIENTS_MAX; i++) {
        struct yb_client_counters one;

        yb_client_counters(clients[i], &one);
#define X(name) all.name += one.name;
        COUNTERS(X)
#undef X
    }
    printf("{");
#define X(name) printf("\"" #name "\":%llu,", (unsigned long long)all.name);
    COUNTERS(X)
#undef X
    printf("\"status\":\"OK\"}\n");
}

/* ---- asynchronous ---------------------------------------------------------------------------- */

static void
do_submit(const struct words *words)
{
    static const enum yb_client_op ops[] = {YB_CLIENT_OP_PUT, YB_CLIENT_OP_GET, YB_CLIENT_OP_EXIST,
                                            YB_CLIENT_OP_REMOVE};
    struct job *job = &jobs[index_of(words, JOBS_MAX)];
    enum op op = op_of(words_text(words, "op", NULL));
    const char *preferred[2];
    struct yb_client_call call = call_of(words, preferred);
    struct keys keys;
    enum yb_status status = YB_INVALID;

    if (job->used || op > OP_REMOVE) {
        say_status(YB_INVALID);
        return;
    }
    words_copy(&job->words, words);
    job->client = client_of(words);
    keys_make(&keys, words); /* Lives as long as the job. */
    prepare(&job->buffers, words, &keys, 0, keys.count);
    job->buffers.keys = keys;
    status = yb_client_submit(job->client, ops[op], job->buffers.items, job->buffers.count, &call,
                              NULL, NULL, 0, &job->handle);
    if (status == YB_OK) {
        job->used = true;
    } else {
        buffers_free(&job->buffers);
        words_free(&job->words);
        keys_free(&keys);
    }
    say_status(status);
}

static void
do_finish(struct job *job)
{
    struct report *report = report_make();
    enum yb_status status = yb_client_finish(job->client, job->handle);

    if (status == YB_OK) {
        judge(&job->buffers, &job->words, op_of(words_text(&job->words, "op", NULL)));
        report_add(report, &job->buffers);
        keys_free(&job->buffers.keys);
        buffers_free(&job->buffers);
        words_free(&job->words);
        job->used = false;
    }
    report_print(report, status, 0, 0);
    report_free(report);
}

static bool
act_on_job(const struct words *words)
{
    const char *verb = words->verb;
    struct job *job = &jobs[index_of(words, JOBS_MAX)];

    if (strcmp(verb, "submit") == 0) {
        do_submit(words);
    } else if (strcmp(verb, "poll") == 0) {
        say_status(yb_client_poll(job->client, job->handle));
    } else if (strcmp(verb, "wait") == 0) {
        say_status(
            yb_client_wait(job->client, job->handle, words_number(words, "ms", 10000) * MS_NS));
    } else if (strcmp(verb, "cancel") == 0) {
        yb_client_cancel(job->client, job->handle);
        say_status(YB_OK);
    } else if (strcmp(verb, "peek") == 0) {
        /* How many values lie in their buffers already, while the batch runs. */
        printf("{\"status\":\"OK\",\"there\":%u}\n", buffers_there(&job->buffers));
    } else if (strcmp(verb, "finish") == 0) {
        do_finish(job);
    } else {
        return false;
    }
    return true;
}

/* ---- loops ----------------------------------------------------------------------------------- */

static uint64_t
next_random(struct looper *looper)
{
    looper->random ^= looper->random << 13;
    looper->random ^= looper->random >> 7;
    looper->random ^= looper->random << 17;
    return looper->random;
}

/* Some of the loop's keys, or keys that never were. */
static void
loop_keys(struct looper *looper, uint32_t batch, struct keys *keys_out)
{
    struct loop *loop = looper->loop;

    if (words_number(&loop->words, "fresh", 0) != 0) {
        char spec[256];
        uint64_t from = atomic_fetch_add(&loop->fresh, batch);

        (void)snprintf(spec, sizeof(spec), "%s:%llu-%llu", words_text(&loop->words, "keys", "f"),
                       (unsigned long long)from, (unsigned long long)from + batch - 1);
        keys_parse(keys_out, spec, 0);
        return;
    }
    keys_pick(keys_out, &loop->keys, (uint32_t)(next_random(looper) % loop->keys.count), batch);
}

static void
loop_once(struct looper *looper, enum op op)
{
    struct loop *loop = looper->loop;
    const struct words *words = &loop->words;
    const char *preferred[2];
    struct yb_client_call call = call_of(words, preferred);
    struct buffers buffers;
    struct keys keys;
    enum yb_status status;
    uint64_t took_ns;

    loop_keys(looper, (uint32_t)words_number(words, "batch", 1), &keys);
    prepare(&buffers, words, &keys, 0, keys.count);
    took_ns = now_ns();
    status = call_client(loop->client, op, buffers.items, buffers.count, &call);
    took_ns = now_ns() - took_ns;
    judge(&buffers, words, op);
    (void)pthread_mutex_lock(&loop->lock);
    looper->samples_us[looper->calls % SAMPLES_MAX] = (uint32_t)(took_ns / 1000);
    looper->calls++;
    looper->max_ns = took_ns > looper->max_ns ? took_ns : looper->max_ns;
    looper->late += took_ns > call.timeout_ns + 500 * MS_NS;
    looper->wrong += buffers.wrong + buffers.broken;
    for (uint32_t i = 0; i < buffers.count; i++) {
        looper->by_status[-(int)(status != YB_OK ? status : buffers.items[i].status)]++;
        looper->keys++;
    }
    (void)pthread_mutex_unlock(&loop->lock);
    buffers_free(&buffers);
    keys_free(&keys);
}

static void *
loop_main(void *arg)
{
    struct looper *looper = arg;
    enum op op = op_of(words_text(&looper->loop->words, "op", NULL));
    uint64_t rest_us = words_number(&looper->loop->words, "rest_us", 0);

    while (!atomic_load(&looper->loop->stop)) {
        loop_once(looper, op);
        if (rest_us > 0) {
            /* lint: allow, the load that was asked for; nothing is awaited */
            (void)usleep((useconds_t)rest_us);
        }
    }
    return NULL;
}

static void
do_loop(const struct words *words)
{
    uint32_t id = index_of(words, LOOPS_MAX);
    struct loop *loop = calloc(1, sizeof(*loop));

    if (loop == NULL || loops[id] != NULL || op_of(words_text(words, "op", NULL)) > OP_REMOVE) {
        abort();
    }
    loops[id] = loop;
    words_copy(&loop->words, words);
    if (words_number(words, "fresh", 0) == 0) {
        keys_make(&loop->keys, words);
    }
    loop->client = client_of(words);
    loop->threads = (uint32_t)words_number(words, "threads", 1);
    (void)pthread_mutex_init(&loop->lock, NULL);
    for (uint32_t i = 0; i < loop->threads && i < THREADS_MAX; i++) {
        struct looper *looper = &loop->loopers[i];

        looper->loop = loop;
        looper->random = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        looper->samples_us = calloc(SAMPLES_MAX, sizeof(uint32_t));
        if (looper->samples_us == NULL ||
            pthread_create(&looper->thread, NULL, loop_main, looper) != 0) {
            abort();
        }
    }
    say_status(YB_OK);
}

static int
by_value(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return a < b ? -1 : a > b;
}

/* How long calls took, of those remembered: [median, 99 %]. */
static void
print_quantiles(const struct loop *loop)
{
    uint32_t *all = malloc((size_t)loop->threads * SAMPLES_MAX * sizeof(*all));
    size_t count = 0;

    if (all == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < loop->threads; i++) {
        const struct looper *looper = &loop->loopers[i];
        size_t some = looper->calls < SAMPLES_MAX ? looper->calls : SAMPLES_MAX;

        memcpy(all + count, looper->samples_us, some * sizeof(*all));
        count += some;
    }
    qsort(all, count, sizeof(*all), by_value);
    printf("\"p50_us\":%u,\"p99_us\":%u", count > 0 ? all[count / 2] : 0,
           count > 0 ? all[count - 1 - count / 100] : 0);
    free(all);
}

/* Print the numbers of a loop; with `reset` they start again. */
static void
say_loop(struct loop *loop, bool reset)
{
    uint64_t calls = 0, keys = 0, wrong = 0, late = 0, max_ns = 0, by_status[STATUSES] = {0};
    bool first = true;

    (void)pthread_mutex_lock(&loop->lock);
    for (uint32_t i = 0; i < loop->threads; i++) {
        struct looper *looper = &loop->loopers[i];

        calls += looper->calls;
        keys += looper->keys;
        wrong += looper->wrong;
        late += looper->late;
        max_ns = looper->max_ns > max_ns ? looper->max_ns : max_ns;
        for (uint32_t k = 0; k < STATUSES; k++) {
            by_status[k] += looper->by_status[k];
        }
    }
    printf("{\"status\":\"OK\",\"calls\":%llu,\"keys\":%llu,\"wrong\":%llu,\"late\":%llu,"
           "\"max_ms\":%.3f,",
           (unsigned long long)calls, (unsigned long long)keys, (unsigned long long)wrong,
           (unsigned long long)late, (double)max_ns / 1e6);
    print_quantiles(loop);
    printf(",\"items\":{");
    for (uint32_t k = 0; k < STATUSES; k++) {
        if (by_status[k] > 0) {
            printf("%s\"%s\":%llu", first ? "" : ",", yb_status_name((enum yb_status)(-(int)k)),
                   (unsigned long long)by_status[k]);
            first = false;
        }
    }
    printf("}}\n");
    for (uint32_t i = 0; reset && i < loop->threads; i++) {
        struct looper *looper = &loop->loopers[i];

        looper->calls = looper->keys = looper->wrong = looper->late = looper->max_ns = 0;
        memset(looper->by_status, 0, sizeof(looper->by_status));
    }
    (void)pthread_mutex_unlock(&loop->lock);
}

static void
do_unloop(uint32_t id)
{
    struct loop *loop = loops[id];

    atomic_store(&loop->stop, true);
    for (uint32_t i = 0; i < loop->threads; i++) {
        (void)pthread_join(loop->loopers[i].thread, NULL);
    }
    say_loop(loop, false);
    for (uint32_t i = 0; i < loop->threads; i++) {
        free(loop->loopers[i].samples_us);
    }
    keys_free(&loop->keys);
    words_free(&loop->words);
    (void)pthread_mutex_destroy(&loop->lock);
    free(loop);
    loops[id] = NULL;
}

static bool
act_on_loop(const struct words *words)
{
    uint32_t id = (uint32_t)words_number(words, "id", 0) % LOOPS_MAX;

    if (strcmp(words->verb, "loop") == 0) {
        do_loop(words);
    } else if (strcmp(words->verb, "loops") == 0 && loops[id] != NULL) {
        say_loop(loops[id], words_number(words, "reset", 0) != 0);
    } else if (strcmp(words->verb, "unloop") == 0 && loops[id] != NULL) {
        do_unloop(id);
    } else {
        return false;
    }
    return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool
act_on_client(const struct words *words)
{
    static const struct {
        const char *verb;
        void (*run)(const struct words *words);
    } verbs[] = {
        {"open", do_open},          {"close", do_close},
        {"cycle", do_cycle},        {"fork", do_fork},
        {"lend", do_lend},          {"unlend", do_lend},
        {"release", do_release},    {"list", do_list},
        {"remove_all", do_removal}, {"remove_matching", do_removal},
        {"nodes", do_nodes},        {"drain", do_drain},
        {"counters", do_counters},
    };

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(words->verb, verbs[i].verb) == 0) {
            verbs[i].run(words);
            return true;
        }
    }
    return false;
}

int
main(void)
{
    static char line[65536];

    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct words words;

        words_split(&words, line);
        if (words.verb == NULL) {
            continue;
        }
        if (strcmp(words.verb, "quit") == 0) {
            break;
        }
        if (op_of(words.verb) != OP_NONE) {
            batch_run(&words, op_of(words.verb));
        } else if (!act_on_client(&words) && !act_on_loop(&words) && !act_on_job(&words)) {
            printf("{\"status\":\"what?\"}\n");
        }
        (void)fflush(stdout);
    }
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        yb_client_close(&clients[i]);
    }
    forget_pinned();
    free(lent);
    return 0;
}
