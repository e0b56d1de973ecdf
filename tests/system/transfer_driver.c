/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_driver.c -- a transfer engine that does what lines of its standard input say.
 *
 * So that a test can act between two steps, and stop, kill and restart processes that have real
 * memory. One line in, one line out: "ok ..." or a status's name. Memory is named, lies between
 * pages that cannot be touched, and is filled with functions of a seed and the offset.
 *
 *     create [KEY VALUE]...                        ok ADDRESS
 *     memory NAME BYTES                            ok ADDRESS-IN-MEMORY
 *     alloc NAME BYTES                             ok ADDRESS-IN-MEMORY, shared and registered
 *     fill NAME SEED FROM BYTES / set NAME VALUE FROM BYTES
 *     check NAME SEED FROM BYTES                   ok, or differs OFFSET
 *     same NAME VALUE FROM BYTES                   ok, or differs OFFSET
 *     glance NAME VALUE FROM BYTES                 the same, while a peer writes there
 *     register NAME / register_at ADDRESS BYTES    ok REGION
 *     protect NAME FROM BYTES none|all
 *     unregister NAME TIMEOUT-MS
 *     open ADDRESS / close PEER                    ok PEER
 *     ask PEER TIMEOUT-MS                          ok IDENTITY ROUND-TRIP-NS PATHS WHY-NOT-SHM
 *     submit PEER TIMEOUT-MS OP NAME FROM BYTES REGION OFFSET ITEMS [NOTIFY]   ok BATCH
 *     wait BATCH TIMEOUT-MS / cancel BATCH / release BATCH
 *     poll BATCH                                   ok STATUS ENDED FAILED IN-DOUBT BYTES
 *     ways BATCH ITEMS                             ok ITEMS-BY-TCP BY-SHM BY-NONE
 *     forbid ERRNO       from now on the kernel answers process_vm_readv of this process with it
 *     drain PEER TIMEOUT-MS / fence IDENTITY TIMEOUT-MS
 *     notification                                 ok IDENTITY TEXT
 *     load PEER THREADS OP REGION BYTES TIMEOUT-MS SEED STEP     begins threads that transfer
 *     loads [PEER]                                 ok OK FAILED WRONG LATE, so far
 *     unload                                       the same of all, when they have ended
 *     stats                                        ok JSON
 *     destroy / quit
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "yuebing/transfer.h"

#define MEMORIES_MAX 64u
#define LOADS_MAX    128u
#define WORDS_MAX    16u
#define ENDED_MAX    128u
#define YOUNGER      32u
#define PAGE         4096u
#define MS_NS        UINT64_C(1000000)

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

struct memory {
    char name[32];
    uint8_t *bytes;
    uint64_t length;
};

/* A thread that reads or writes the same ranges again and again. */
struct load {
    pthread_t thread;
    yb_transfer_peer peer;
    uint32_t op;
    yb_transfer_region region;
    uint64_t offset;
    uint64_t bytes;
    uint64_t timeout_ns;
    uint64_t seed;
    uint8_t *local;
    _Atomic(uint64_t) ok, failed, wrong, late;
};

static struct yb_transfer *engine;
static struct memory memories[MEMORIES_MAX];
static uint32_t memory_count;
static struct load loads[LOADS_MAX];
static uint32_t load_count;
static _Atomic(bool) loads_stop;
static _Atomic(uint64_t) ended[ENDED_MAX]; /* When the calls began that ended last. */
static _Atomic(uint32_t) ended_count;

static uint8_t
pattern(uint64_t seed, uint64_t offset)
{
    uint64_t mixed =
        (offset + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xd6e8feb86659fd93);

    return (uint8_t)(mixed >> 56 ^ mixed >> 24);
}

static uint64_t
number(const char *word)
{
    return word != NULL ? strtoull(word, NULL, 0) : 0;
}

static void
say(enum yb_status status)
{
    printf("%s\n", status == YB_OK ? "ok" : yb_status_name(status));
}

static uint8_t *
map_guarded(uint64_t length)
{
    uint64_t whole = (length + PAGE - 1) / PAGE * PAGE;
    uint8_t *base = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED || mprotect(base + PAGE, whole, PROT_READ | PROT_WRITE) != 0) {
        abort();
    }
    return base + PAGE;
}

static struct memory *
find(const char *name)
{
    for (uint32_t i = 0; i < memory_count; i++) {
        if (strcmp(memories[i].name, name) == 0) {
            return &memories[i];
        }
    }
    fprintf(stderr, "no memory `%s`\n", name);
    abort();
}

/* ---- memory ------------------------------------------------------------------------------- */

static void
do_memory(char **words)
{
    struct memory *memory = &memories[memory_count++];

    if (memory_count > MEMORIES_MAX) {
        abort();
    }
    (void)snprintf(memory->name, sizeof(memory->name), "%s", words[1]);
    memory->length = number(words[2]);
    memory->bytes = map_guarded(memory->length);
    memset(memory->bytes, 0, memory->length);
    printf("ok %llu\n", (unsigned long long)(uintptr_t)memory->bytes);
}

/* Shared memory of the engine, which lives until that is destroyed. */
static void
do_alloc(char **words)
{
    struct memory *memory = &memories[memory_count++];
    void *base = NULL;
    enum yb_status status;

    if (memory_count > MEMORIES_MAX) {
        abort();
    }
    (void)snprintf(memory->name, sizeof(memory->name), "%s", words[1]);
    memory->length = number(words[2]);
    status = yb_transfer_alloc(engine, memory->length, NULL, &base);
    memory->bytes = base;
    if (status == YB_OK) {
        printf("ok %llu\n", (unsigned long long)(uintptr_t)base);
    } else {
        say(status);
    }
}

/* What a peer moves here and what lines do here are ordered by the test, over processes, which a
 * sanitizer of threads does not see: it is shown by asking every worker for its numbers. */
static void
show_order(void)
{
#ifdef UNDER_TSAN
    char *text = NULL;

    if (engine != NULL && yb_transfer_stats(engine, &text) == YB_OK) {
        free(text);
    }
#endif
}

/* Of memory that is being written: nothing orders this look, and nothing is to. */
__attribute__((noinline, no_sanitize("thread"))) static bool
glance(const uint8_t *at, uint8_t byte)
{
    return *(const volatile uint8_t *)at == byte;
}

/* Write bytes, or compare them. Returns the first that differs, or `end`. */
static uint64_t
over_bytes(char **words, struct memory *memory, uint64_t from, uint64_t end)
{
    uint64_t value = number(words[2]);
    bool patterned = words[0][0] == 'f' || words[0][0] == 'c';
    bool writes = words[0][0] == 'f' || strcmp(words[0], "set") == 0;
    bool glances = words[0][0] == 'g';

    for (uint64_t i = from; i < end; i++) {
        uint8_t byte = patterned ? pattern(value, i) : (uint8_t)value;

        if (writes) {
            memory->bytes[i] = byte;
        } else if (glances ? !glance(&memory->bytes[i], byte) : memory->bytes[i] != byte) {
            return i;
        }
    }
    return end;
}

/* fill, set, check, same, glance: over BYTES from FROM; the pattern counts from the start of the
 * memory. */
static void
do_bytes(char **words)
{
    struct memory *memory = find(words[1]);
    uint64_t from = number(words[3]), end = from + number(words[4]);
    uint64_t at;

    if (end > memory->length) {
        abort();
    }
    show_order();
    at = over_bytes(words, memory, from, end);
    show_order();
    if (at == end) {
        printf("ok\n");
    } else {
        printf("differs %llu\n", (unsigned long long)at);
    }
}

static void
do_register(char **words)
{
    yb_transfer_region region = 0;
    enum yb_status status;

    if (strcmp(words[0], "register") == 0) {
        struct memory *memory = find(words[1]);

        status = yb_transfer_register(engine, memory->bytes, memory->length, NULL, &region);
    } else {
        status = yb_transfer_register(engine, (void *)(uintptr_t)number(words[1]), number(words[2]),
                                      NULL, &region);
    }
    if (status == YB_OK) {
        printf("ok %llu\n", (unsigned long long)region);
    } else {
        say(status);
    }
}

static void
do_protect(char **words)
{
    struct memory *memory = find(words[1]);
    int rights = strcmp(words[4], "none") == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;

    printf("%s\n", mprotect(memory->bytes + number(words[2]), number(words[3]), rights) == 0
                       ? "ok"
                       : "failed");
}

/* ---- engine and peers ---------------------------------------------------------------------- */

static void
do_create(char **words, uint32_t count)
{
    struct yb_transfer_options options = {.struct_bytes = sizeof(options)};
    char message[512] = "";
    char address[64];
    enum yb_status status;

    for (uint32_t i = 1; i + 1 < count; i += 2) {
        const char *key = words[i];
        uint32_t value = (uint32_t)number(words[i + 1]);

        if (strcmp(key, "listen") == 0) {
            options.listen = words[i + 1];
        } else if (strcmp(key, "secret") == 0) {
            options.secret_file = words[i + 1];
        } else if (strcmp(key, "role") == 0) {
            options.role = words[i + 1];
        } else if (strcmp(key, "tenant") == 0) {
            options.tenant = words[i + 1];
        } else if (strcmp(key, "paths") == 0) {
            options.paths = value;
        } else if (strcmp(key, "workers") == 0) {
            options.workers = value;
        } else if (strcmp(key, "streams") == 0) {
            options.streams = value;
        } else if (strcmp(key, "tls") == 0) {
            options.tls = value != 0;
        }
    }
    status = yb_transfer_create(&options, &engine, message, sizeof(message));
    if (status == YB_OK) {
        status = yb_transfer_address(engine, address, sizeof(address));
    }
    if (status == YB_OK) {
        printf("ok %s\n", address);
    } else {
        printf("%s %s\n", yb_status_name(status), message);
    }
}

static void
print_identity(const struct yb_id *id)
{
    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        printf("%02x", id->bytes[i]);
    }
}

static void
do_ask(char **words)
{
    struct yb_transfer_probe probe;
    enum yb_status status =
        yb_transfer_ask(engine, number(words[1]), number(words[2]) * MS_NS, &probe);

    if (status != YB_OK) {
        say(status);
        return;
    }
    printf("ok ");
    print_identity(&probe.identity);
    printf(" %llu %u %s\n", (unsigned long long)probe.round_trip_ns, probe.paths,
           probe.why_not_shm);
}

static void
do_fence(char **words)
{
    struct yb_id identity = {{0}};

    for (size_t i = 0; i < sizeof(identity.bytes); i++) {
        char digits[3] = {words[1][2 * i], words[1][2 * i + 1], '\0'};

        identity.bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    say(yb_transfer_fence(engine, identity, number(words[2]) * MS_NS));
}

static void
do_open(char **words)
{
    yb_transfer_peer peer = 0;
    enum yb_status status = yb_transfer_open(engine, words[1], &peer);

    if (status == YB_OK) {
        printf("ok %llu\n", (unsigned long long)peer);
    } else {
        say(status);
    }
}

static void
do_notification(void)
{
    static struct yb_transfer_notification found;
    enum yb_status status = yb_transfer_next_notification(engine, &found);

    if (status != YB_OK) {
        say(status);
        return;
    }
    printf("ok ");
    print_identity(&found.from);
    printf(" %.*s\n", (int)found.bytes, (const char *)found.payload);
}

static void
do_stats(void)
{
    char *text = NULL;
    enum yb_status status = yb_transfer_stats(engine, &text);

    if (status != YB_OK) {
        say(status);
        return;
    }
    for (char *at = text; *at != '\0'; at++) {
        *at = *at == '\n' ? ' ' : *at;
    }
    printf("ok %s\n", text);
    free(text);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void
do_submit(char **words, uint32_t count)
{
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = number(words[2]) * MS_NS,
        .notify = count > 10 ? words[10] : NULL,
        .notify_bytes = count > 10 ? (uint32_t)strlen(words[10]) : 0,
    };
    struct memory *memory = find(words[4]);
    uint64_t from = number(words[5]), bytes = number(words[6]), offset = number(words[8]);
    uint32_t items_count = (uint32_t)number(words[9]);
    struct yb_transfer_item *items = calloc(items_count, sizeof(*items));
    yb_transfer_batch batch = 0;
    enum yb_status status;

    for (uint32_t i = 0; i < items_count; i++) {
        uint64_t begin = bytes * i / items_count, end = bytes * (i + 1) / items_count;

        items[i] = (struct yb_transfer_item){
            .op = words[3][0] == 'r' ? YB_TRANSFER_READ : YB_TRANSFER_WRITE,
            .local = memory->bytes + from + begin,
            .length = end - begin,
            .remote = number(words[7]),
            .remote_offset = offset + begin,
        };
    }
    status = yb_transfer_submit(engine, number(words[1]), items, items_count, &options, &batch);
    free(items);
    if (status == YB_OK) {
        printf("ok %llu\n", (unsigned long long)batch);
    } else {
        say(status);
    }
}

static void
do_poll(char **words)
{
    struct yb_transfer_batch_status found;
    enum yb_status status = yb_transfer_poll(engine, number(words[1]), &found, NULL, 0);

    if (status != YB_OK) {
        say(status);
        return;
    }
    printf("ok %s %u %u %d %llu\n", yb_status_name(found.status), found.ended, found.failed,
           found.in_doubt, (unsigned long long)found.bytes);
}

static void
do_ways(char **words)
{
    uint32_t count = (uint32_t)number(words[2]);
    struct yb_transfer_item_status *items = calloc(count, sizeof(*items));
    struct yb_transfer_batch_status found;
    uint32_t ways[3] = {0, 0, 0};
    enum yb_status status = yb_transfer_poll(engine, number(words[1]), &found, items, count);

    for (uint32_t i = 0; status == YB_OK && i < count; i++) {
        switch (items[i].path) {
        case YB_TRANSFER_PATH_TCP: ways[0]++; break;
        case YB_TRANSFER_PATH_SHM: ways[1]++; break;
        default: ways[2]++; break;
        }
    }
    free(items);
    if (status == YB_OK) {
        printf("ok %u %u %u\n", ways[0], ways[1], ways[2]);
    } else {
        say(status);
    }
}

/* ---- what a container does ------------------------------------------------------------------ */

/* As a container's seccomp profile does, but for all threads of a process that already runs. */
static void
do_forbid(char **words)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)number(words[1])),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

    printf("%s\n", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
                                   &program) == 0
                       ? "ok"
                       : "failed");
}

/* ---- load ------------------------------------------------------------------------------------ */

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS_NS + (uint64_t)now.tv_nsec;
}

/* Whether a call outlived its deadline. On a loaded machine all that is due may be late, so that it
 * is judged by the order of ends: it is late if YOUNGER of those that ended lately, before it,
 * began a second after its deadline. */
static bool
is_late(const struct load *load, uint64_t began_ns)
{
    uint64_t due_ns = began_ns + load->timeout_ns + 1000 * MS_NS;
    uint32_t younger = 0;

    for (uint32_t i = 0; i < ENDED_MAX; i++) {
        younger += atomic_load(&ended[i]) > due_ns;
    }
    atomic_store(&ended[atomic_fetch_add(&ended_count, 1) % ENDED_MAX], began_ns);
    return younger >= YOUNGER;
}

/* One transfer of a load, judged by its bytes. */
static void
run_once(struct load *load)
{
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = load->timeout_ns,
    };
    struct yb_transfer_item item = {
        .op = load->op,
        .local = load->local,
        .length = load->bytes,
        .remote = load->region,
        .remote_offset = load->offset,
    };
    struct yb_transfer_batch_status end = {.status = YB_CLOSED};
    uint64_t began = now_ns();
    yb_transfer_batch batch;

    if (load->op == YB_TRANSFER_READ) {
        memset(load->local, 0, load->bytes);
    }
    if (yb_transfer_submit(engine, load->peer, &item, 1, &options, &batch) == YB_OK) {
        if (yb_transfer_wait(engine, batch, load->timeout_ns + 5000 * MS_NS) != YB_OK ||
            yb_transfer_poll(engine, batch, &end, NULL, 0) != YB_OK ||
            yb_transfer_release(engine, batch) != YB_OK) {
            abort();
        }
    }
    atomic_fetch_add(&load->late, is_late(load, began));
    if (end.status != YB_OK) {
        /* lint: allow, a rest between attempts on a peer that is down; nothing is awaited */
        (void)usleep(1000);
        atomic_fetch_add(&load->failed, 1);
        return;
    }
    for (uint64_t i = 0; load->op == YB_TRANSFER_READ && i < load->bytes; i++) {
        if (load->local[i] != pattern(load->seed, load->offset + i)) {
            atomic_fetch_add(&load->wrong, 1);
            return;
        }
    }
    atomic_fetch_add(&load->ok, 1);
}

static void *
load_main(void *arg)
{
    while (!atomic_load(&loads_stop)) {
        run_once(arg);
    }
    return NULL;
}

static void
do_load(char **words)
{
    uint32_t threads = (uint32_t)number(words[2]);

    for (uint32_t i = 0; i < threads; i++) {
        struct load *load = &loads[load_count++];

        if (load_count > LOADS_MAX) {
            abort();
        }
        *load = (struct load){
            .peer = number(words[1]),
            .op = words[3][0] == 'r' ? YB_TRANSFER_READ : YB_TRANSFER_WRITE,
            .region = number(words[4]),
            .bytes = number(words[5]),
            .timeout_ns = number(words[6]) * MS_NS,
            .seed = number(words[7]),
            .offset = i * number(words[8]),
        };
        load->local = map_guarded(load->bytes);
        for (uint64_t k = 0; k < load->bytes; k++) {
            load->local[k] = pattern(load->seed, load->offset + k);
        }
        if (pthread_create(&load->thread, NULL, load_main, load) != 0) {
            abort();
        }
    }
    printf("ok\n");
}

/* Of one peer; 0: of all. */
static void
say_loads(yb_transfer_peer peer)
{
    uint64_t ok = 0, failed = 0, wrong = 0, late = 0;

    for (uint32_t i = 0; i < load_count; i++) {
        const struct load *load = &loads[i];

        if (peer == 0 || load->peer == peer) {
            ok += atomic_load(&load->ok);
            failed += atomic_load(&load->failed);
            wrong += atomic_load(&load->wrong);
            late += atomic_load(&load->late);
        }
    }
    printf("ok %llu %llu %llu %llu\n", (unsigned long long)ok, (unsigned long long)failed,
           (unsigned long long)wrong, (unsigned long long)late);
}

static void
do_unload(void)
{
    atomic_store(&loads_stop, true);
    for (uint32_t i = 0; i < load_count; i++) {
        (void)pthread_join(loads[i].thread, NULL);
        (void)munmap(loads[i].local - PAGE, (loads[i].bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE);
    }
    say_loads(0);
    load_count = 0;
    atomic_store(&loads_stop, false);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool
is(const char *word, const char *wanted)
{
    return strcmp(word, wanted) == 0;
}

/* The commands about batches and peers. Returns false if it is none. */
static bool
act_on_handles(char **words, uint32_t count)
{
    if (is(words[0], "submit")) {
        do_submit(words, count);
    } else if (is(words[0], "wait")) {
        say(yb_transfer_wait(engine, number(words[1]), number(words[2]) * MS_NS));
    } else if (is(words[0], "poll")) {
        do_poll(words);
    } else if (is(words[0], "ways")) {
        do_ways(words);
    } else if (is(words[0], "cancel")) {
        say(yb_transfer_cancel(engine, number(words[1])));
    } else if (is(words[0], "release")) {
        say(yb_transfer_release(engine, number(words[1])));
    } else if (is(words[0], "open")) {
        do_open(words);
    } else if (is(words[0], "close")) {
        say(yb_transfer_close(engine, number(words[1])));
    } else if (is(words[0], "ask")) {
        do_ask(words);
    } else if (is(words[0], "drain")) {
        say(yb_transfer_drain(engine, number(words[1]), number(words[2]) * MS_NS));
    } else if (is(words[0], "fence")) {
        do_fence(words);
    } else {
        return false;
    }
    return true;
}

/* Carry out one line. Returns false at the end. */
static bool
act(char **words, uint32_t count)
{
    if (act_on_handles(words, count)) {
        return true;
    }
    if (is(words[0], "create")) {
        do_create(words, count);
    } else if (is(words[0], "memory")) {
        do_memory(words);
    } else if (is(words[0], "alloc")) {
        do_alloc(words);
    } else if (is(words[0], "forbid")) {
        do_forbid(words);
    } else if (is(words[0], "fill") || is(words[0], "set") || is(words[0], "check") ||
               is(words[0], "same") || is(words[0], "glance")) {
        do_bytes(words);
    } else if (is(words[0], "register") || is(words[0], "register_at")) {
        do_register(words);
    } else if (is(words[0], "protect")) {
        do_protect(words);
    } else if (is(words[0], "unregister")) {
        say(yb_transfer_unregister(engine, find(words[1])->bytes, number(words[2]) * MS_NS));
    } else if (is(words[0], "notification")) {
        do_notification();
    } else if (is(words[0], "load")) {
        do_load(words);
    } else if (is(words[0], "loads")) {
        say_loads(number(words[1]));
    } else if (is(words[0], "unload")) {
        do_unload();
    } else if (is(words[0], "stats")) {
        do_stats();
    } else if (is(words[0], "destroy")) {
        yb_transfer_destroy(&engine);
        printf("ok\n");
    } else if (is(words[0], "quit")) {
        return false;
    } else {
        printf("what?\n");
    }
    return true;
}

int
main(void)
{
    static char line[8192];
    bool more = true;

    setvbuf(stdout, NULL, _IOLBF, 0);
    while (more && fgets(line, sizeof(line), stdin) != NULL) {
        char *words[WORDS_MAX + 1] = {NULL};
        uint32_t count = 0;
        char *rest = NULL;

        for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < WORDS_MAX;
             word = strtok_r(NULL, " \n", &rest)) {
            words[count++] = word;
        }
        more = count == 0 || act(words, count);
    }
    if (engine != NULL) {
        yb_transfer_destroy(&engine);
    }
    printf("ok\n");
    return 0;
}
