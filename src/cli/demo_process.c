/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

#define PROGRAM         "/proc/self/exe"
#define WORDS_MAX       64u
#define WAIT_MS         20000
#define WORK_MS         600000 /* Of a process that does something for us. */
#define CALL_TIMEOUT_NS (10 * YB_NS_PER_S)

static const uint32_t sizes[YB_DEMO_SIZES] = {4096, 65536, 1048576};

/* ---- processes ------------------------------------------------------------------------------ */

/* Start a process whose output goes to a pipe; in the child *out_fd_out is where it writes to.
 * Returns as fork() does. */
static pid_t
start(int *out_fd_out)
{
    int ends[2];
    pid_t parent = getpid();
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    child = fork();
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent) {
            _exit(YB_CLI_EXIT_FAILED);
        }
        *out_fd_out = ends[1];
        return 0;
    }
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return -1;
    }
    *out_fd_out = ends[0];
    return child;
}

bool
yb_demo_start(const char *const *words, struct yb_demo_server *server_out)
{
    char *copies[WORDS_MAX + 2] = {NULL};
    unsigned count = 0;
    int fd = -1;
    pid_t child = start(&fd);

    if (child != 0) {
        *server_out = (struct yb_demo_server){.pid = child > 0 ? child : 0, .out_fd = fd};
        return child > 0;
    }
    copies[count++] = strdup("yuebing");
    while (*words != NULL && count <= WORDS_MAX) {
        copies[count++] = strdup(*words++);
    }
    if (dup2(fd, STDOUT_FILENO) >= 0) {
        execv(PROGRAM, copies);
    }
    _exit(YB_CLI_EXIT_FAILED);
}

/* Read `room` bytes, or up to the end of a line, or, without a buffer, up to the end of the output,
 * waiting for each byte at most so long. Returns how many came; -1: time is up, or it ended before.
 */
static ssize_t
read_some(int fd, char *bytes, size_t room, bool line, int wait_ms)
{
    size_t have = 0;

    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        char byte;
        ssize_t got = -1;

        if (poll(&ready, 1, wait_ms) > 0) {
            got = read(fd, &byte, 1);
        }
        if (got <= 0) {
            return got == 0 && bytes == NULL ? 0 : -1;
        }
        if (bytes == NULL) {
            continue;
        }
        if (line && (byte == '\n' || have + 1 == room)) {
            bytes[have] = '\0';
            return byte == '\n' ? (ssize_t)have : -1;
        }
        bytes[have++] = byte;
        if (have == room) {
            return (ssize_t)have;
        }
    }
}

bool
yb_demo_ready(const struct yb_demo_server *server, char line_out[YB_DEMO_LINE_BYTES])
{
    return read_some(server->out_fd, line_out, YB_DEMO_LINE_BYTES, true, WAIT_MS) >= 0;
}

bool
yb_demo_reap(struct yb_demo_server *server)
{
    bool in_time = read_some(server->out_fd, NULL, 0, false, WAIT_MS) == 0;
    int state = 0;

    if (!in_time) {
        (void)kill(server->pid, SIGKILL);
    }
    while (waitpid(server->pid, &state, 0) < 0 && errno == EINTR) {
    }
    (void)close(server->out_fd);
    server->pid = 0;
    return in_time && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

bool
yb_demo_folder_make(char path_out[YB_DEMO_FOLDER])
{
    (void)snprintf(path_out, YB_DEMO_FOLDER, "/tmp/yuebing-demo.%ld.XXXXXX", (long)getpid());
    if (mkdtemp(path_out) == NULL) {
        path_out[0] = '\0';
        return false;
    }
    return true;
}

void
yb_demo_pause(uint64_t span_ns)
{
    const struct timespec span = {
        .tv_sec = (time_t)(span_ns / YB_NS_PER_S),
        .tv_nsec = (long)(span_ns % YB_NS_PER_S),
    };

    (void)ppoll(NULL, 0, &span, NULL);
}

void
yb_demo_kill(struct yb_demo_server *server)
{
    (void)kill(server->pid, SIGKILL);
    (void)yb_demo_reap(server);
}

/* ---- the programs --------------------------------------------------------------------------- */

bool
yb_demo_replicated(uint32_t index)
{
    return index % 2 == 0;
}

void
yb_demo_key(uint32_t index, char key_out[32])
{
    snprintf(key_out, 32, "demo/%s/%02" PRIu32, yb_demo_replicated(index) ? "two" : "one", index);
}

static uint32_t
size_of(uint32_t index)
{
    return sizes[index / 2 % YB_DEMO_SIZES];
}

/* Fill `bytes` with what only this block has. */
static void
fill(uint8_t *bytes, size_t length, uint32_t index)
{
    uint64_t state = (index + 1) * 2685821657736338717ull;

    for (size_t i = 0; i < length; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (uint8_t)(state >> 24);
    }
}

struct program {
    struct yb_client *client;
    bool writer;
    uint8_t *bytes; /* Of all blocks, one behind the other ... */
    uint8_t *model; /* ... and one as it should be. */
    struct yb_client_item items[YB_DEMO_BLOCKS];
    struct iovec pieces[YB_DEMO_BLOCKS];
    char keys[YB_DEMO_BLOCKS][32];
    struct yb_demo_result result;
};

/* Describe every `step`th block, from `first` on. */
static uint32_t
describe(struct program *program, uint32_t first, uint32_t step)
{
    size_t offset = 0;
    uint32_t count = 0;

    for (uint32_t i = first; i < YB_DEMO_BLOCKS; i += step) {
        uint8_t *place = program->bytes + offset;

        yb_demo_key(i, program->keys[count]);
        program->pieces[count] = (struct iovec){.iov_base = place, .iov_len = size_of(i)};
        program->items[count] = (struct yb_client_item){
            .key = program->keys[count],
            .key_bytes = (uint32_t)strlen(program->keys[count]),
            .iov = &program->pieces[count],
            .iov_count = 1,
        };
        if (program->writer) {
            fill(place, size_of(i), i);
        } else {
            memset(place, 0xee, size_of(i));
        }
        offset += size_of(i);
        count++;
    }
    return count;
}

static void
judge(struct program *program, const struct yb_client_item *item, uint32_t index)
{
    struct yb_demo_result *result = &program->result;
    uint32_t length = size_of(index);

    result->blocks++;
    if (item->status == YB_NOT_FOUND && !program->writer) {
        result->missing++;
    } else if (item->status != YB_OK) {
        if (result->failed++ == 0) {
            snprintf(result->error, sizeof(result->error), "%.*s: %s", (int)item->key_bytes,
                     (const char *)item->key, yb_status_text(item->status));
        }
    } else {
        fill(program->model, length, index);
        if (program->writer ||
            (item->size == length && memcmp(item->iov->iov_base, program->model, length) == 0)) {
            result->there++;
            result->bytes += length;
        } else {
            result->wrong++;
        }
    }
}

/* Put (or get) every `step`th block in a batch. */
static enum yb_status
run_batch(struct program *program, uint32_t first, uint32_t step, const char *node)
{
    const char *const preferred[] = {node, NULL};
    struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = CALL_TIMEOUT_NS};
    uint32_t count = describe(program, first, step);
    const struct yb_clock *clock = yb_clock_system();
    uint64_t began_ns = yb_clock_now(clock);
    enum yb_status status;

    call.put.replicas = yb_demo_replicated(first) ? 2 : 1;
    call.put.preferred = node != NULL ? preferred : NULL;
    status = program->writer ? yb_client_put(program->client, program->items, count, &call)
                             : yb_client_get(program->client, program->items, count, &call);
    program->result.took_ns += yb_clock_now(clock) - began_ns;
    for (uint32_t i = 0; i < count; i++) {
        program->items[i].status = status == YB_OK ? program->items[i].status : status;
        judge(program, &program->items[i], first + step * i);
    }
    return status;
}

/* Blocks of two copies go wherever there is room; those of one to the three nodes in turn. */
static enum yb_status
run_all(struct program *program)
{
    static const char *const nodes[] = {"home", "left", "right"};
    enum yb_status status = run_batch(program, 0, 2, NULL);

    for (uint32_t i = 0; i < 3 && status == YB_OK; i++) {
        status = run_batch(program, 1 + 2 * i, 6, nodes[i]);
    }
    return status;
}

static void
be_program(const struct yb_client_options *options, struct program *program)
{
    struct yb_demo_result *result = &program->result;
    enum yb_status status = yb_client_open(options, CALL_TIMEOUT_NS, &program->client,
                                           result->error, sizeof(result->error));

    if (status == YB_OK) {
        status = run_all(program);
        yb_client_close(&program->client);
    }
    if (status != YB_OK) {
        result->failed += YB_DEMO_BLOCKS - result->blocks;
    }
}

/* What a program is asked for. */
struct order {
    const struct yb_client_options *options;
    bool writer;
};

static bool
run_program(const void *context, void *result_out)
{
    const struct order *order = context;
    struct program *program = calloc(1, sizeof(*program));

    if (program == NULL) {
        return false;
    }
    program->writer = order->writer;
    program->bytes = malloc(YB_DEMO_BLOCKS / 2 * (size_t)sizes[YB_DEMO_SIZES - 1]);
    program->model = malloc(sizes[YB_DEMO_SIZES - 1]);
    if (program->bytes == NULL || program->model == NULL) {
        return false;
    }
    be_program(order->options, program);
    memcpy(result_out, &program->result, sizeof(program->result));
    return true;
}

bool
yb_demo_elsewhere(bool (*work)(const void *context, void *result_out), const void *context,
                  void *result_out, size_t result_bytes)
{
    struct yb_demo_server process = {.out_fd = -1};
    int fd = -1;
    bool ok;

    process.pid = start(&fd);
    if (process.pid == 0) {
        ok = work(context, result_out) &&
             write(fd, result_out, result_bytes) == (ssize_t)result_bytes;
        _exit(ok ? 0 : YB_CLI_EXIT_FAILED);
    }
    if (process.pid < 0) {
        return false;
    }
    process.out_fd = fd;
    ok = read_some(fd, result_out, result_bytes, false, WORK_MS) == (ssize_t)result_bytes;
    return yb_demo_reap(&process) && ok;
}

bool
yb_demo_program(const struct yb_client_options *options, bool writer,
                struct yb_demo_result *result_out)
{
    const struct order order = {.options = options, .writer = writer};

    return yb_demo_elsewhere(run_program, &order, result_out, sizeof(*result_out));
}
