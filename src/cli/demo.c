/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing demo`: two processes, one secret, and bytes that are compared.
 *
 * This process is a client of tenant "demo"; the other is `yuebing serve`, started from the
 * same program. A third one, with another secret, is turned away.
 */
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
#include "base/histogram.h"
#include "cli/client.h"
#include "cli/output.h"

const struct yb_cli_option yb_cli_demo_options[] = {
    {NULL, NULL, NULL},
};

#define PROGRAM          "/proc/self/exe"
#define FOLDER_BYTES     32u
#define PATH_BYTES       (FOLDER_BYTES + 16u)
#define LINE_BYTES       1024u
#define CHILD_TIMEOUT_MS 20000
#define CALL_TIMEOUT_NS  (10 * YB_NS_PER_S)
#define SIZES            4u
#define BYTES_MAX        (1024u * 1024u)

static const struct {
    uint32_t bytes;
    uint32_t messages;
} plan[SIZES] = {{64, 2000}, {4096, 1000}, {65536, 200}, {BYTES_MAX, 50}};

struct demo_row {
    uint64_t messages;
    uint64_t bytes; /* That came back as they were sent. */
    uint64_t wrong; /* Messages that did not. */
    uint64_t took_ns;
    struct yb_histogram times;
};

struct demo {
    struct yb_cli *cli;
    char folder[FOLDER_BYTES];
    char secret[PATH_BYTES];
    char other_secret[PATH_BYTES];
    pid_t child;
    int child_out; /* What the child says; its end means that the child has ended. */
    char address[YB_ADDRESS_TEXT_BYTES];
    struct yb_hello_result peer;
    enum yb_status stranger;
    char stranger_text[YB_CONFIG_MESSAGE_MAX];
    struct demo_row rows[SIZES];
};

/* ---- the other process ----------------------------------------------------------------------- */

/* Start this program with other words, its output in a pipe. It dies with us. */
static pid_t
start(char *const *words, int *out_fd_out)
{
    int ends[2];
    pid_t parent = getpid();
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    child = fork();
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent ||
            dup2(ends[1], STDOUT_FILENO) < 0) {
            _exit(YB_CLI_EXIT_FAILED);
        }
        execv(PROGRAM, words);
        _exit(YB_CLI_EXIT_FAILED);
    }
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return -1;
    }
    *out_fd_out = ends[0];
    return child;
}

/* Read up to the end of a line, or of the output if `line` is NULL. False: time is up, or the
 * output ended before. */
static bool
read_until(int fd, char *line, size_t room)
{
    size_t have = 0;

    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        char byte;
        ssize_t got;

        if (poll(&ready, 1, CHILD_TIMEOUT_MS) <= 0) {
            return false;
        }
        got = read(fd, &byte, 1);
        if (got <= 0) {
            return got == 0 && line == NULL;
        }
        if (line != NULL && (byte == '\n' || have + 1 == room)) {
            line[have] = '\0';
            return byte == '\n';
        }
        if (line != NULL) {
            line[have++] = byte;
        }
    }
}

/* Wait for the end of a child. True: exit code 0, in time. */
static bool
reap(pid_t child, int out_fd)
{
    int state = 0;
    bool in_time = read_until(out_fd, NULL, 0);

    if (!in_time) {
        (void)kill(child, SIGKILL);
    }
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    (void)close(out_fd);
    return in_time && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static bool
make_secret(char *path)
{
    char name[] = "yuebing", command[] = "secret", what[] = "new", option[] = "--out";
    char *const words[] = {name, command, what, option, path, NULL};
    int out_fd = -1;
    pid_t child = start(words, &out_fd);

    return child > 0 && reap(child, out_fd);
}

/* Start the server and wait until it says where it listens. */
static bool
start_server(struct demo *demo)
{
    const struct yb_config *config = &demo->cli->config;
    char name[] = "yuebing", command[] = "serve", json[] = "--json";
    char listen[] = "--listen", address[] = "127.0.0.1:0", secret[] = "--secret-file";
    char io[] = "--net-io", tls[] = "--tls", level[] = "--log-level", error[] = "error";
    char io_value[YB_CONFIG_TEXT_MAX], tls_value[YB_CONFIG_TEXT_MAX], line[LINE_BYTES];
    char *const words[] = {name, command,  json, listen,    address, secret, demo->secret,
                           io,   io_value, tls,  tls_value, level,   error,  NULL};
    json_t *ready;
    const char *where;

    yb_config_value_text(config, YB_CONFIG_ROW_net_io, io_value);
    yb_config_value_text(config, YB_CONFIG_ROW_tls_mode, tls_value);
    demo->child = start(words, &demo->child_out);
    if (demo->child < 0 || !read_until(demo->child_out, line, sizeof(line))) {
        return false;
    }
    ready = json_loads(line, 0, NULL);
    where = json_string_value(json_object_get(ready, "published"));
    if (where != NULL) {
        snprintf(demo->address, sizeof(demo->address), "%s", where);
    }
    json_decref(ready);
    return where != NULL;
}

/* ---- messages ----------------------------------------------------------------------------- */

/* Fill `bytes` with what only this message of this size has. */
static void
fill(uint8_t *bytes, size_t length, uint64_t seed)
{
    uint64_t state = seed * 2685821657736338717ull + 1;

    for (size_t i = 0; i < length; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (uint8_t)(state >> 24);
    }
}

/* Exchange the messages of one row and compare every byte that comes back. */
static enum yb_status
exchange(struct yb_cli_client *client, unsigned index, uint8_t *body, struct demo_row *row)
{
    uint32_t length = plan[index].bytes;
    uint8_t *reply = body + BYTES_MAX;

    for (uint32_t i = 0; i < plan[index].messages; i++) {
        struct yb_call call = {
            .type = YB_WIRE_TYPE_ECHO,
            .body = body,
            .body_bytes = length,
            .reply_body = reply,
            .reply_body_room = length,
        };
        enum yb_status status;

        fill(body, length, ((uint64_t)index << 32) + i);
        memset(reply, ~body[0], length);
        status = yb_cli_client_call(client, &call, CALL_TIMEOUT_NS);
        if (status != YB_OK) {
            return status;
        }
        row->messages++;
        row->took_ns += call.took_ns;
        yb_histogram_record(&row->times, call.took_ns);
        if (call.reply_body_bytes == length && memcmp(body, reply, length) == 0) {
            row->bytes += length;
        } else {
            row->wrong++;
        }
    }
    return YB_OK;
}

/* Make a client out of our own configuration and another secret. */
static enum yb_status
open_client(struct demo *demo, struct yb_cli *cli, const char *secret,
            struct yb_cli_client *client_out)
{
    struct yb_config *config = &cli->config;

    *cli = *demo->cli;
    config->auth_role = YB_CONFIG_AUTH_ROLE_CLIENT;
    snprintf(config->auth_tenant, sizeof(config->auth_tenant), "demo");
    snprintf(config->auth_secret_file, sizeof(config->auth_secret_file), "%s", secret);
    return yb_cli_client_open(cli, demo->address, (struct yb_id){{0}}, client_out);
}

/* Somebody with another secret knocks: DENIED is what must come out. */
static bool
meet_stranger(struct demo *demo)
{
    struct yb_cli cli;
    struct yb_cli_client client;

    if (open_client(demo, &cli, demo->other_secret, &client) != YB_OK) {
        return false;
    }
    demo->stranger = yb_cli_client_connect(&client, CALL_TIMEOUT_NS);
    snprintf(demo->stranger_text, sizeof(demo->stranger_text), "%s", client.error);
    yb_cli_client_close(&client);
    return demo->stranger == YB_DENIED;
}

/* Be the client: authenticate, exchange, compare. */
static bool
be_client(struct demo *demo)
{
    struct yb_cli cli;
    struct yb_cli_client client;
    uint8_t *bytes = malloc(2 * (size_t)BYTES_MAX);
    enum yb_status status = YB_NO_MEMORY;

    if (bytes == NULL || open_client(demo, &cli, demo->secret, &client) != YB_OK) {
        free(bytes);
        return false;
    }
    status = yb_cli_client_connect(&client, CALL_TIMEOUT_NS);
    if (status == YB_OK) {
        demo->peer = *yb_peer_result(client.peer);
    }
    for (unsigned i = 0; i < SIZES && status == YB_OK; i++) {
        status = exchange(&client, i, bytes, &demo->rows[i]);
    }
    if (status != YB_OK) {
        fprintf(demo->cli->err, "yuebing demo: %s: %s\n", yb_status_name(status), client.error);
    }
    yb_cli_client_close(&client);
    free(bytes);
    return status == YB_OK && demo->peer.authenticated && strcmp(demo->peer.tenant, "demo") == 0;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static double
row_mb_per_s(const struct demo_row *row)
{
    return row->took_ns == 0 ? 0 : (double)row->bytes * 1e3 / (double)row->took_ns;
}

static enum yb_status
print_table(const struct demo *demo)
{
    static const char *const columns[] = {"SIZE",   "MESSAGES", "BYTES VERIFIED",
                                          "P50 us", "P99 us",   "MB/s each way"};
    struct yb_output_table *table = NULL;
    enum yb_status status = yb_output_table_create(columns, 6, &table);

    for (unsigned i = 0; i < SIZES && status == YB_OK; i++) {
        const struct demo_row *row = &demo->rows[i];
        struct yb_histogram_summary times;
        char texts[6][32];
        const char *cells[6];

        yb_histogram_summarize(&row->times, &times);
        snprintf(texts[0], sizeof(texts[0]), "%" PRIu32, plan[i].bytes);
        snprintf(texts[1], sizeof(texts[1]), "%" PRIu64, row->messages);
        snprintf(texts[2], sizeof(texts[2]), "%" PRIu64, row->bytes);
        snprintf(texts[3], sizeof(texts[3]), "%.1f", (double)times.p50 / 1e3);
        snprintf(texts[4], sizeof(texts[4]), "%.1f", (double)times.p99 / 1e3);
        snprintf(texts[5], sizeof(texts[5]), "%.1f", row_mb_per_s(row));
        for (unsigned c = 0; c < 6; c++) {
            cells[c] = texts[c];
        }
        status = yb_output_table_add(table, cells);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, demo->cli->out, demo->cli->terminal);
    }
    yb_output_table_destroy(&table);
    return status;
}

static json_t *
as_json(const struct demo *demo, const struct demo_row *total)
{
    json_t *rows = json_array();

    for (unsigned i = 0; i < SIZES; i++) {
        const struct demo_row *row = &demo->rows[i];
        struct yb_histogram_summary times;

        yb_histogram_summarize(&row->times, &times);
        json_array_append_new(
            rows, json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "bytes", (json_int_t)plan[i].bytes,
                            "messages", (json_int_t)row->messages, "bytes_verified",
                            (json_int_t)row->bytes, "p50_ns", (json_int_t)times.p50, "p99_ns",
                            (json_int_t)times.p99, "mb_per_s", row_mb_per_s(row)));
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:b, s:s, s:s}", "sizes", rows, "messages",
                     (json_int_t)total->messages, "bytes_verified", (json_int_t)total->bytes,
                     "wrong", (json_int_t)total->wrong, "authenticated",
                     (int)demo->peer.authenticated, "stranger", yb_status_name(demo->stranger),
                     "stranger_text", demo->stranger_text);
}

static void
print_text(const struct demo *demo, const struct demo_row *total)
{
    FILE *out = demo->cli->out;
    char identity[33];

    yb_id_format(demo->peer.identity, identity);
    fprintf(out, "server   pid %ld at %s, identity %s\n", (long)demo->child, demo->address,
            identity);
    fprintf(out, "client   pid %ld, tenant %s, %s\n", (long)getpid(), demo->peer.tenant,
            demo->peer.authenticated ? "both sides proved the secret" : "open");
    fprintf(out, "stranger %s: %s\n\n", yb_status_name(demo->stranger), demo->stranger_text);
    (void)print_table(demo);
    fprintf(out, "\ndemo: %" PRIu64 " messages, %" PRIu64 " bytes verified, %" PRIu64 " wrong\n",
            total->messages, total->bytes, total->wrong);
}

static bool
show(const struct demo *demo)
{
    struct demo_row total = {0};

    for (unsigned i = 0; i < SIZES; i++) {
        total.messages += demo->rows[i].messages;
        total.bytes += demo->rows[i].bytes;
        total.wrong += demo->rows[i].wrong;
    }
    if (!demo->cli->json) {
        print_text(demo, &total);
    } else if (yb_output_json(demo->cli->out, as_json(demo, &total)) != YB_OK) {
        return false;
    }
    return total.wrong == 0;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void
remove_folder(const struct demo *demo)
{
    (void)unlink(demo->secret);
    (void)unlink(demo->other_secret);
    (void)rmdir(demo->folder);
}

/* Make the secrets and the server. Both are in place, or the reason was printed. */
static bool
prepare(struct demo *demo)
{
    snprintf(demo->folder, sizeof(demo->folder), "/tmp/yuebing-demo.XXXXXX");
    if (mkdtemp(demo->folder) == NULL) {
        fprintf(demo->cli->err, "yuebing demo: no folder in /tmp: %s\n", strerror(errno));
        return false;
    }
    snprintf(demo->secret, sizeof(demo->secret), "%s/secret", demo->folder);
    snprintf(demo->other_secret, sizeof(demo->other_secret), "%s/other", demo->folder);
    if (!make_secret(demo->secret) || !make_secret(demo->other_secret) || !start_server(demo)) {
        fprintf(demo->cli->err, "yuebing demo: the other process did not start\n");
        return false;
    }
    return true;
}

int
yb_cli_demo(struct yb_cli *cli, int argc, char **argv)
{
    struct demo *demo = calloc(1, sizeof(*demo));
    bool ok;

    (void)argc;
    (void)argv;
    if (demo == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    demo->cli = cli;
    ok = prepare(demo) && meet_stranger(demo) && be_client(demo);
    if (demo->folder[0] != '\0') {
        remove_folder(demo);
    }
    if (demo->child > 0) {
        (void)kill(demo->child, SIGTERM);
        ok = reap(demo->child, demo->child_out) && ok;
    }
    ok = ok && show(demo);
    if (!ok) {
        fprintf(cli->err, "yuebing demo: something was wrong, see above\n");
    }
    free(demo);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}
