/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing demo --store`: a store, two programs that share blocks through it, and a node that dies.
 *
 * All of them are processes of this program: `yuebing serve`, two times `yuebing node`, a writer
 * and readers. Every byte that a reader gets is compared. A stranger with another secret is turned
 * away.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "cli/demo.h"
#include "cli/demo_process.h"
#include "cli/output.h"

#define PATH_BYTES      (YB_DEMO_FOLDER + 16u)
#define CALL_TIMEOUT_NS (10 * YB_NS_PER_S)
#define LOOK_NS         (5 * YB_NS_PER_MS)
#define LEASE_TEXT      "500"
#define MEMORY_TEXT     "64m"
#define TENANT          "demo"

enum step {
    STEP_PUT,
    STEP_GET,
    STEP_GET_DEAD,     /* Once the death was noticed. */
    STEP_GET_REPAIRED, /* Once every block that had two copies has two again. */
    STEP_COUNT,
};

static const char *const step_names[STEP_COUNT] = {
    "one program puts",
    "another one gets",
    "a node is dead: get",
    "copies are made: get",
};

struct demo {
    struct yb_cli *cli;
    char folder[YB_DEMO_FOLDER];
    char secret[PATH_BYTES];
    char other_secret[PATH_BYTES];
    struct yb_demo_server store;
    struct yb_demo_server left;
    struct yb_demo_server right;
    char address[YB_ADDRESS_TEXT_BYTES];
    enum yb_status stranger;
    char stranger_text[YB_CONFIG_MESSAGE_MAX];
    struct yb_demo_result steps[STEP_COUNT];
    uint64_t noticed_ns;
    uint64_t repaired_ns;
    uint64_t only_there; /* Blocks whose one copy was on the node that is killed. */
    uint64_t halved;     /* Blocks that had one of two copies there. */
};

static bool
fail(const struct demo *demo, const char *what, const char *why)
{
    fprintf(demo->cli->err, "yuebing demo: %s%s%s\n", what, why[0] == '\0' ? "" : ": ", why);
    return false;
}

/* ---- the store ------------------------------------------------------------------------------ */

static bool
make_secret(const char *path)
{
    const char *const words[] = {"secret", "new", "--out", path, NULL};
    struct yb_demo_server process;

    return yb_demo_start(words, &process) && yb_demo_reap(&process);
}

/* Start a server, with our own choice of io and TLS, and wait until it serves. */
static bool
start_server(struct demo *demo, const char *command, const char *name,
             struct yb_demo_server *server, char line_out[YB_DEMO_LINE_BYTES])
{
    const struct yb_config *config = &demo->cli->config;
    char io[YB_CONFIG_TEXT_MAX], tls[YB_CONFIG_TEXT_MAX];
    bool node = strcmp(command, "node") == 0;
    const char *const words[] = {
        command,
        "--json",
        "--listen",
        "127.0.0.1:0",
        node ? "--directory" : "--name",
        node ? demo->address : name,
        node ? "--name" : "--directory-lease-ms",
        node ? name : LEASE_TEXT,
        "--memory",
        MEMORY_TEXT,
        "--secret-file",
        demo->secret,
        "--net-io",
        io,
        "--tls",
        tls,
        "--log-level",
        "error",
        NULL,
    };

    yb_config_value_text(config, YB_CONFIG_ROW_net_io, io);
    yb_config_value_text(config, YB_CONFIG_ROW_tls_mode, tls);
    return yb_demo_start(words, server) && yb_demo_ready(server, line_out);
}

static bool
start_store(struct demo *demo)
{
    char line[YB_DEMO_LINE_BYTES];
    json_t *ready;
    const char *where;

    if (!start_server(demo, "serve", "home", &demo->store, line)) {
        return fail(demo, "the store did not start", "");
    }
    ready = json_loads(line, 0, NULL);
    where = json_string_value(json_object_get(ready, "published"));
    snprintf(demo->address, sizeof(demo->address), "%s", where == NULL ? "" : where);
    json_decref(ready);
    if (where == NULL || !start_server(demo, "node", "left", &demo->left, line) ||
        !start_server(demo, "node", "right", &demo->right, line)) {
        return fail(demo, "a node did not start", "");
    }
    return true;
}

/* Make the secrets and the store. All is in place, or the reason was printed. */
static bool
prepare(struct demo *demo)
{
    if (!yb_demo_folder_make(demo->folder)) {
        return fail(demo, "no folder in /tmp", strerror(errno));
    }
    snprintf(demo->secret, sizeof(demo->secret), "%s/secret", demo->folder);
    snprintf(demo->other_secret, sizeof(demo->other_secret), "%s/other", demo->folder);
    if (!make_secret(demo->secret) || !make_secret(demo->other_secret)) {
        return fail(demo, "no secret could be made", "");
    }
    return start_store(demo);
}

/* ---- looking on ----------------------------------------------------------------------------- */

/* Our own configuration, with another secret. */
static void
become(const struct demo *demo, struct yb_cli *cli, const char *secret)
{
    struct yb_config *config = &cli->config;

    *cli = *demo->cli;
    config->auth_role = YB_CONFIG_AUTH_ROLE_CLIENT;
    snprintf(config->auth_tenant, sizeof(config->auth_tenant), TENANT);
    snprintf(config->auth_secret_file, sizeof(config->auth_secret_file), "%s", secret);
    snprintf(config->directory_address, sizeof(config->directory_address), "%s", demo->address);
}

/* Somebody with another secret knocks: DENIED is what must come out. */
static bool
meet_stranger(struct demo *demo)
{
    struct yb_cli cli;
    struct yb_cli_client client;

    become(demo, &cli, demo->other_secret);
    if (yb_cli_client_open(&cli, demo->address, (struct yb_id){{0}}, &client) != YB_OK) {
        return false;
    }
    demo->stranger = yb_cli_client_connect(&client, CALL_TIMEOUT_NS);
    snprintf(demo->stranger_text, sizeof(demo->stranger_text), "%s", client.error);
    yb_cli_client_close(&client);
    return demo->stranger == YB_DENIED || fail(demo, "a stranger was let in", "");
}

/* Let a program of its own put or get. */
static bool
run_program(struct demo *demo, enum step step)
{
    const struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = demo->address,
        .secret_file = demo->secret,
        .tenant = TENANT,
        .tls = demo->cli->config.tls_mode == YB_CONFIG_TLS_MODE_ON,
    };
    struct yb_demo_result *result = &demo->steps[step];

    if (!yb_demo_program(&options, step == STEP_PUT, result)) {
        return fail(demo, step_names[step], "the program did not come back");
    }
    if (result->failed > 0) {
        return fail(demo, step_names[step], result->error);
    }
    return result->wrong == 0 || fail(demo, step_names[step], "bytes are wrong");
}

/* Ask where all blocks are. */
static bool
look_up(struct yb_cli_store *store, struct yb_wire_lookup_answer answers_out[YB_DEMO_BLOCKS])
{
    struct yb_wire_hash hashes[YB_DEMO_BLOCKS];
    const struct yb_wire_lookup asked = {
        .flags = YB_WIRE_LOOKUP_FLAG_EXIST,
        .hashes = {.count = YB_DEMO_BLOCKS, .native = hashes},
    };
    uint8_t body[YB_WIRE_LOOKUP_BYTES + YB_DEMO_BLOCKS * YB_WIRE_HASH_BYTES];
    struct yb_wire_lookup_answers told;
    struct yb_cli_question question = {.type = YB_WIRE_DIRECTORY_TYPE_LOOKUP, .body = body};

    for (uint32_t i = 0; i < YB_DEMO_BLOCKS; i++) {
        char key[32];

        yb_demo_key(i, key);
        hashes[i].hash =
            yb_hash_key(store->cluster.seed, (struct yb_hash_bytes){TENANT, strlen(TENANT)},
                        (struct yb_hash_bytes){key, strlen(key)});
    }
    YB_ASSERT(yb_wire_lookup_encode(&asked, body, sizeof(body), &question.body_bytes) == YB_OK);
    if (yb_cli_store_ask(store, &question) != YB_OK ||
        yb_wire_lookup_answers_decode(store->reply, store->reply_bytes, &told, NULL) != YB_OK ||
        told.answers.count != YB_DEMO_BLOCKS) {
        return false;
    }
    for (uint32_t i = 0; i < YB_DEMO_BLOCKS; i++) {
        yb_wire_lookup_answer_at(&told.answers, i, &answers_out[i]);
    }
    return true;
}

static const struct yb_wire_member *
find_left(const struct yb_cli_store *store)
{
    for (uint32_t i = 0; i < store->member_count; i++) {
        if (memcmp(store->members[i].name, "left", sizeof("left")) == 0) {
            return &store->members[i];
        }
    }
    return NULL;
}

static bool
count_what_is_there(struct demo *demo, struct yb_cli_store *store)
{
    struct yb_wire_lookup_answer answers[YB_DEMO_BLOCKS];
    const struct yb_wire_member *left = find_left(store);

    if (left == NULL || !look_up(store, answers)) {
        return fail(demo, "the directory does not know what it should", store->error);
    }
    for (uint32_t i = 0; i < YB_DEMO_BLOCKS; i++) {
        bool there = answers[i].slot0 == left->slot || answers[i].slot1 == left->slot;

        demo->only_there += there && answers[i].count == 1 ? 1 : 0;
        demo->halved += there && answers[i].count > 1 ? 1 : 0;
    }
    return true;
}

static bool
is_repaired(struct yb_cli_store *store)
{
    struct yb_wire_lookup_answer answers[YB_DEMO_BLOCKS];
    bool repaired = look_up(store, answers);

    for (uint32_t i = 0; i < YB_DEMO_BLOCKS && repaired; i++) {
        repaired = !yb_demo_replicated(i) || answers[i].count >= 2;
    }
    return repaired;
}

static bool
is_noticed(struct yb_cli_store *store)
{
    return yb_cli_store_members(store) == YB_OK && find_left(store) == NULL;
}

/* Ask until it is so; returns after how long, or 0: it did not become so in time. */
static uint64_t
watch(struct yb_cli_store *store, bool (*is_so)(struct yb_cli_store *store))
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t began_ns = yb_clock_now(clock);

    while (!is_so(store)) {
        if (yb_clock_now(clock) - began_ns > CALL_TIMEOUT_NS) {
            return 0;
        }
        yb_cli_client_rest(&store->directory, LOOK_NS);
    }
    return yb_clock_now(clock) - began_ns + 1;
}

/* Kill a node, and see what becomes of its blocks. */
static bool
lose_a_node(struct demo *demo, struct yb_cli_store *store)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t began_ns;

    if (!count_what_is_there(demo, store)) {
        return false;
    }
    yb_demo_kill(&demo->left);
    demo->noticed_ns = watch(store, is_noticed);
    if (demo->noticed_ns == 0) {
        return fail(demo, "nobody noticed that a node died", "");
    }
    began_ns = yb_clock_now(clock);
    if (!run_program(demo, STEP_GET_DEAD)) {
        return false;
    }
    demo->repaired_ns = watch(store, is_repaired) != 0 ? yb_clock_now(clock) - began_ns : 0;
    return demo->repaired_ns != 0 || fail(demo, "the lost copies were not made again", "");
}

static bool
tell_the_story(struct demo *demo)
{
    struct yb_cli cli;
    struct yb_cli_store store;
    bool ok;

    if (!meet_stranger(demo) || !run_program(demo, STEP_PUT) || !run_program(demo, STEP_GET)) {
        return false;
    }
    become(demo, &cli, demo->secret);
    if (yb_cli_store_open(&cli, false, &store) != YB_OK) {
        return false;
    }
    ok = lose_a_node(demo, &store) && run_program(demo, STEP_GET_REPAIRED);
    yb_cli_store_close(&store);
    return ok;
}

/* ---- what is shown -------------------------------------------------------------------------- */

static enum yb_status
print_table(const struct demo *demo)
{
    static const char *const columns[] = {"STEP",           "BLOCKS", "HITS", "NOT FOUND",
                                          "BYTES VERIFIED", "WRONG",  "ms"};
    struct yb_output_table *table = NULL;
    enum yb_status status = yb_output_table_create(columns, 7, &table);

    for (unsigned i = 0; i < STEP_COUNT && status == YB_OK; i++) {
        const struct yb_demo_result *row = &demo->steps[i];
        char texts[6][24];
        const char *cells[] = {step_names[i], texts[0], texts[1], texts[2],
                               texts[3],      texts[4], texts[5]};

        snprintf(texts[0], sizeof(texts[0]), "%" PRIu64, row->blocks);
        snprintf(texts[1], sizeof(texts[1]), "%" PRIu64, row->there);
        snprintf(texts[2], sizeof(texts[2]), "%" PRIu64, row->missing);
        snprintf(texts[3], sizeof(texts[3]), "%" PRIu64, i == STEP_PUT ? 0 : row->bytes);
        snprintf(texts[4], sizeof(texts[4]), "%" PRIu64, row->wrong);
        snprintf(texts[5], sizeof(texts[5]), "%.1f", (double)row->took_ns / 1e6);
        status = yb_output_table_add(table, cells);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, demo->cli->out, demo->cli->terminal);
    }
    yb_output_table_destroy(&table);
    return status;
}

static json_t *
as_json(const struct demo *demo, const struct yb_demo_result *total)
{
    json_t *rows = json_array();

    for (unsigned i = 0; i < STEP_COUNT; i++) {
        const struct yb_demo_result *row = &demo->steps[i];

        json_array_append_new(
            rows, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "step", step_names[i], "blocks",
                            (json_int_t)row->blocks, "hits", (json_int_t)row->there, "not_found",
                            (json_int_t)row->missing, "bytes", (json_int_t)row->bytes, "wrong",
                            (json_int_t)row->wrong, "took_ns", (json_int_t)row->took_ns));
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "steps", rows, "gets",
                     (json_int_t)total->blocks, "bytes_verified", (json_int_t)total->bytes, "wrong",
                     (json_int_t)total->wrong, "lost", (json_int_t)demo->only_there, "repaired",
                     (json_int_t)demo->halved, "noticed_ns", (json_int_t)demo->noticed_ns,
                     "repaired_ns", (json_int_t)demo->repaired_ns, "stranger",
                     yb_status_name(demo->stranger), "stranger_text", demo->stranger_text);
}

static void
print_text(const struct demo *demo, const struct yb_demo_result *total)
{
    FILE *out = demo->cli->out;

    fprintf(out, "store    %s: a directory and a node in one process, and two nodes apart\n",
            demo->address);
    fprintf(out, "stranger %s: %s\n\n", yb_status_name(demo->stranger), demo->stranger_text);
    (void)print_table(demo);
    fprintf(out,
            "\nkill -9 of a node: noticed after %.0f ms (its lease is " LEASE_TEXT " ms)\n"
            "%" PRIu64 " blocks had their only copy there and are gone; %" PRIu64
            " had another: they were read all the time,\n"
            "and %.0f ms later all of them had two copies again\n",
            (double)demo->noticed_ns / 1e6, demo->only_there, demo->halved,
            (double)demo->repaired_ns / 1e6);
    fprintf(out, "\ndemo: %" PRIu64 " blocks read, %" PRIu64 " bytes verified, %" PRIu64 " wrong\n",
            total->blocks, total->bytes, total->wrong);
}

/* What must have come out. */
static bool
is_as_promised(const struct demo *demo, const struct yb_demo_result *total)
{
    const struct yb_demo_result *steps = demo->steps;

    return total->wrong == 0 && steps[STEP_PUT].there == YB_DEMO_BLOCKS &&
           steps[STEP_GET].there == YB_DEMO_BLOCKS &&
           steps[STEP_GET_DEAD].missing == demo->only_there &&
           steps[STEP_GET_REPAIRED].missing == demo->only_there;
}

static bool
show(const struct demo *demo)
{
    struct yb_demo_result total = {0};

    for (unsigned i = STEP_GET; i < STEP_COUNT; i++) {
        total.blocks += demo->steps[i].blocks;
        total.bytes += demo->steps[i].bytes;
        total.wrong += demo->steps[i].wrong;
    }
    if (!demo->cli->json) {
        print_text(demo, &total);
    } else if (yb_output_json(demo->cli->out, as_json(demo, &total)) != YB_OK) {
        return false;
    }
    return is_as_promised(demo, &total) || fail(demo, "not what was promised", "see above");
}

/* ---- the whole ---------------------------------------------------------------------------- */

static bool
clean_up(struct demo *demo)
{
    struct yb_demo_server *const servers[] = {&demo->left, &demo->right, &demo->store};
    bool ok = true;

    for (unsigned i = 0; i < 3; i++) {
        if (servers[i]->pid > 0) {
            (void)kill(servers[i]->pid, SIGTERM);
            ok = yb_demo_reap(servers[i]) && ok;
        }
    }
    if (demo->folder[0] != '\0') {
        (void)unlink(demo->secret);
        (void)unlink(demo->other_secret);
        (void)rmdir(demo->folder);
    }
    return ok || fail(demo, "a server did not end well", "");
}

int
yb_cli_demo_store(struct yb_cli *cli)
{
    struct demo *demo = calloc(1, sizeof(*demo));
    bool ok;

    if (demo == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    demo->cli = cli;
    ok = prepare(demo) && tell_the_story(demo);
    ok = clean_up(demo) && ok;
    ok = ok && show(demo);
    free(demo);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}
