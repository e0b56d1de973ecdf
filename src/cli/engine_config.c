/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing engine-config`: what an engine has to be told to use a store, from one table.
 *
 * A row is one flag, one name of the environment, or one name of a file, as the engine's own
 * connector reads it, with the value that fits the configuration. {directory}, {host}, {segment},
 * {tenant}, {secret} and {file} stand for what is filled in. The text that is printed is a piece
 * of shell: it writes the files, exports the environment and ends with the command.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/output.h"
#include "cli/store.h"
#include "net/address.h"

enum engine { ENGINE_vllm, ENGINE_sglang, ENGINE_lmcache, ENGINES };

/* What the engine is to do with us. */
enum use { USE_store, USE_transfer, USES };

enum place {
    PLACE_FILE,    /* Text in the JSON file; `a.b` is b in the object a. */
    PLACE_NUMBER,  /* A number there, */
    PLACE_SWITCH,  /* or true or false. */
    PLACE_ENV,     /* A name of the environment. */
    PLACE_SECRET,  /* The same, if there is a secret. */
    PLACE_FLAG,    /* A flag of the engine, with its argument. */
    PLACE_COMMAND, /* How it is started; the last row. */
};

#define VLLM_SEED_WHY                                                                          \
    "hashes of blocks begin with it. Older vLLM, and any with xxhash, draws a random one for " \
    "each "                                                                                    \
    "process otherwise; newer ones take a fixed one, which is another one than 0. Where two "  \
    "engines differ in it, neither ever finds a block of the other"
#define LMCACHE_SEED_WHY                                                                    \
    "hashes of chunks are Python's own, which begin with a random number for each process " \
    "otherwise: no engine ever finds a chunk of another one"
#define PORTS_WHY "the range has to be open between hosts"

/* clang-format off */
/*    engine   use       place    name, value, why ("": it speaks for itself) */
#define SETTING_MAP(X)                                                                            \
    X(vllm,    store,    FILE,    "mode", "{mode}",                                               \
      "embedded: each rank gives memory to the store; standalone-store: nodes of ours do")        \
    X(vllm,    store,    FILE,    "metadata_server", "P2PHANDSHAKE", "no metadata server") \
    X(vllm,    store,    FILE,    "master_server_address", "{directory}", "our directory")        \
    X(vllm,    store,    NUMBER,  "global_segment_size", "{segment}", "bytes that each rank gives")\
    X(vllm,    store,    NUMBER,  "local_buffer_size", "1073741824", "")                          \
    X(vllm,    store,    FILE,    "protocol", "tcp", "shared memory is used by itself on one host")\
    X(vllm,    store,    FILE,    "device_name", "", "")                                          \
    X(vllm,    store,    FILE,    "tenant_id", "{tenant}", "engines of one tenant share blocks")  \
    X(vllm,    store,    ENV,     "MOONCAKE_CONFIG_PATH", "{file}", "")                           \
    X(vllm,    store,    ENV,     "MOONCAKE_REQUESTER_LOCAL_HOSTNAME", "{host}",                  \
      "where others reach this host")                                                             \
    X(vllm,    store,    ENV,     "PYTHONHASHSEED", "0", VLLM_SEED_WHY)                           \
    X(vllm,    store,    SECRET,  "YUEBING_SECRET_FILE", "{secret}", "")                          \
    X(vllm,    store,    ENV,     "MC_STORE_CLIENT_MIN_PORT", "12300", PORTS_WHY)                 \
    X(vllm,    store,    ENV,     "MC_STORE_CLIENT_MAX_PORT", "14300", "")                        \
    X(vllm,    store,    FLAG,    "--kv-transfer-config",                                         \
      "{\"kv_connector\":\"MooncakeStoreConnector\",\"kv_role\":\"kv_both\"}",                    \
      "of two engines on one host each needs a lookup_rpc_port of its own: "                      \
      "\"kv_connector_extra_config\":{\"lookup_rpc_port\":1}")                                    \
    X(vllm,    store,    COMMAND, "vllm serve MODEL", "", "")                                     \
    X(vllm,    transfer, ENV,     "VLLM_MOONCAKE_BOOTSTRAP_PORT", "8998",                         \
      "of the prefiller; another one for each prefiller of a host")                               \
    X(vllm,    transfer, SECRET,  "YUEBING_SECRET_FILE", "{secret}", "")                          \
    X(vllm,    transfer, ENV,     "MC_MIN_RPC_PORT", "15000", PORTS_WHY)                          \
    X(vllm,    transfer, ENV,     "MC_MAX_RPC_PORT", "17000", "")                                 \
    X(vllm,    transfer, FLAG,    "--kv-transfer-config",                                         \
      "{\"kv_connector\":\"MooncakeConnector\",\"kv_role\":\"kv_producer\","                      \
      "\"kv_connector_extra_config\":{\"mooncake_protocol\":\"tcp\"}}",                           \
      "kv_producer for the prefiller, kv_consumer for the decoder")                               \
    X(vllm,    transfer, COMMAND, "vllm serve MODEL", "", "")                                     \
    X(sglang,  store,    FILE,    "master_server_address", "{directory}", "our directory")        \
    X(sglang,  store,    FILE,    "metadata_server", "P2PHANDSHAKE", "no metadata server") \
    X(sglang,  store,    FILE,    "local_hostname", "{host}",                                     \
      "where others reach this host; MOONCAKE_LOCAL_HOSTNAME counts before it")                   \
    X(sglang,  store,    NUMBER,  "global_segment_size", "{segment}",                             \
      "bytes that all ranks of the server together give; 0: nodes of ours do")                    \
    X(sglang,  store,    FILE,    "protocol", "tcp", "shared memory is used by itself on one host")\
    X(sglang,  store,    FILE,    "device_name", "", "")                                          \
    X(sglang,  store,    SWITCH,  "check_server", "false",                                        \
      "true asks port 9003 of mooncake_master first, which `yuebing serve` has not")              \
    X(sglang,  store,    FILE,    "tenant_id", "{tenant}", "engines of one tenant share blocks")  \
    X(sglang,  store,    ENV,     "SGLANG_HICACHE_MOONCAKE_CONFIG_PATH", "{file}", "")            \
    X(sglang,  store,    SECRET,  "YUEBING_SECRET_FILE", "{secret}", "")                          \
    X(sglang,  store,    ENV,     "MC_STORE_CLIENT_MIN_PORT", "12300", PORTS_WHY)                 \
    X(sglang,  store,    ENV,     "MC_STORE_CLIENT_MAX_PORT", "14300", "")                        \
    X(sglang,  store,    FLAG,    "--enable-hierarchical-cache", "", "")                          \
    X(sglang,  store,    FLAG,    "--hicache-storage-backend", "mooncake", "")                    \
    X(sglang,  store,    COMMAND, "python -m sglang.launch_server --model-path MODEL", "", "")    \
    X(sglang,  transfer, ENV,     "MOONCAKE_PROTOCOL", "tcp", "")                                 \
    X(sglang,  transfer, SECRET,  "YUEBING_SECRET_FILE", "{secret}", "")                          \
    X(sglang,  transfer, ENV,     "MC_MIN_RPC_PORT", "15000", PORTS_WHY)                          \
    X(sglang,  transfer, ENV,     "MC_MAX_RPC_PORT", "17000", "")                                 \
    X(sglang,  transfer, FLAG,    "--disaggregation-mode", "prefill", "prefill, or decode")       \
    X(sglang,  transfer, FLAG,    "--disaggregation-transfer-backend", "mooncake", "")            \
    X(sglang,  transfer, COMMAND, "python -m sglang.launch_server --model-path MODEL", "", "")    \
    X(lmcache, store,    NUMBER,  "chunk_size", "256", "the same one everywhere: it is hashed")   \
    X(lmcache, store,    FILE,    "remote_url", "mooncakestore://{directory}/", "our directory")  \
    X(lmcache, store,    FILE,    "remote_serde", "naive", "bytes as they are")                   \
    X(lmcache, store,    FILE,    "extra_config.local_hostname", "{host}",                        \
      "where others reach this host")                                                             \
    X(lmcache, store,    FILE,    "extra_config.metadata_server", "P2PHANDSHAKE", "")             \
    X(lmcache, store,    FILE,    "extra_config.master_server_address", "{directory}",            \
      "as older LMCache names it; newer ones hand on names that begin with mooncake_, unchanged") \
    X(lmcache, store,    FILE,    "extra_config.mooncake_master_server_addr", "{directory}", "")  \
    X(lmcache, store,    NUMBER,  "extra_config.global_segment_size", "{segment}",                \
      "bytes that each worker gives; 0: nodes of ours do")                                        \
    X(lmcache, store,    NUMBER,  "extra_config.local_buffer_size", "1073741824", "")             \
    X(lmcache, store,    FILE,    "extra_config.protocol", "tcp", "")                             \
    X(lmcache, store,    FILE,    "extra_config.device_name", "", "")                             \
    X(lmcache, store,    NUMBER,  "extra_config.transfer_timeout", "5",                           \
      "seconds; with the default of 1 a put that is slow once is given up")                       \
    X(lmcache, store,    FILE,    "extra_config.mooncake_tenant_id", "{tenant}",                  \
      "engines of one tenant share blocks")                                                       \
    X(lmcache, store,    ENV,     "LMCACHE_CONFIG_FILE", "{file}",                                \
      "JSON is YAML; MOONCAKE_CONFIG_PATH has to be unset, it would count before extra_config")   \
    X(lmcache, store,    ENV,     "PYTHONHASHSEED", "0", LMCACHE_SEED_WHY)                        \
    X(lmcache, store,    SECRET,  "YUEBING_SECRET_FILE", "{secret}", "")                          \
    X(lmcache, store,    ENV,     "MC_STORE_CLIENT_MIN_PORT", "12300", PORTS_WHY)                 \
    X(lmcache, store,    ENV,     "MC_STORE_CLIENT_MAX_PORT", "14300", "")                        \
    X(lmcache, store,    FLAG,    "--kv-transfer-config",                                         \
      "{\"kv_connector\":\"LMCacheConnectorV1\",\"kv_role\":\"kv_both\"}", "of vLLM")             \
    X(lmcache, store,    COMMAND, "vllm serve MODEL", "", "")
/* clang-format on */

struct setting {
    enum engine engine;
    enum use use;
    enum place place;
    const char *name;
    const char *value;
    const char *why;
};

static const struct setting settings[] = {
#define X(engine_, use_, place_, name_, value_, why_) \
    {.engine = ENGINE_##engine_,                      \
     .use = USE_##use_,                               \
     .place = PLACE_##place_,                         \
     .name = (name_),                                 \
     .value = (value_),                               \
     .why = (why_)},
    SETTING_MAP(X)
#undef X
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static const char *const engine_words[ENGINES] = {"vllm", "sglang", "lmcache"};
static const char *const use_words[USES] = {"store", "transfer"};

const struct yb_cli_option yb_cli_engine_config_options[] = {
    {"for", "store|transfer",
     "share blocks in a store (default), or send them from one to another"},
    {"host", "HOST", "name or address of the engine's host; default: what faces the directory"},
    {"segment", "BYTES", "memory that an engine gives to the store, default 4294967296; 0: none"},
    {"file", "PATH", "where the engine's file is to lie; default: in the working directory"},
    {NULL, NULL, NULL},
};

struct filling {
    struct yb_cli *cli;
    enum engine engine;
    enum use use;
    uint64_t segment;
    char segment_text[24];
    char host[256];
    char file[4096];
};

/* ---- filling in ----------------------------------------------------------------------------- */

/* Which address of this host faces the directory: no packet is sent to find that out. */
static bool
facing(const char *directory, char *host_out, size_t room)
{
    struct sockaddr_storage local;
    socklen_t length = sizeof(local);
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];
    char port[8];
    bool done = false;
    int fd;

    if (yb_endpoint_parse(directory, &endpoint, why) != YB_OK) {
        return false;
    }
    snprintf(port, sizeof(port), "%u", endpoint.port);
    if (getaddrinfo(endpoint.host, port, &hints, &found) != 0) {
        return false;
    }
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        done = connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
               getsockname(fd, (struct sockaddr *)&local, &length) == 0 &&
               getnameinfo((struct sockaddr *)&local, length, host_out, (socklen_t)room, NULL, 0,
                           NI_NUMERICHOST) == 0;
        close(fd);
    }
    freeaddrinfo(found);
    return done;
}

static const char *
value_of(const struct filling *filling, const char *name, size_t length)
{
    const struct yb_config *config = &filling->cli->config;
    const struct {
        const char *name;
        const char *value;
    } known[] = {
        {"directory", config->directory_address},
        {"tenant", config->auth_tenant},
        {"secret", config->auth_secret_file},
        {"host", filling->host},
        {"segment", filling->segment_text},
        {"file", filling->file},
        {"mode", filling->segment == 0 ? "standalone-store" : "embedded"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strlen(known[i].name) == length && memcmp(known[i].name, name, length) == 0) {
            return known[i].value;
        }
    }
    return NULL;
}

/* Write a row's value with what stands in braces filled in. Braces of JSON have a quote behind
 * them. False: it is too long. */
static bool
fill(const struct filling *filling, const char *value, char *out, size_t room)
{
    size_t at = 0;

    while (*value != '\0' && at + 1 < room) {
        const char *end = *value == '{' ? strchr(value, '}') : NULL;
        const char *known =
            end == NULL ? NULL : value_of(filling, value + 1, (size_t)(end - value) - 1);

        if (known == NULL) {
            out[at++] = *value++;
        } else {
            at += (size_t)snprintf(out + at, room - at, "%s", known);
            value = end + 1;
        }
    }
    out[at < room ? at : room - 1] = '\0';
    return at < room && *value == '\0';
}

#define VALUE_ROOM 8192u

static bool
holds(const struct filling *filling, const struct setting *row)
{
    return row->engine == filling->engine && row->use == filling->use &&
           (row->place != PLACE_SECRET || filling->cli->config.auth_secret_file[0] != '\0');
}

static bool
in_file(const struct setting *row)
{
    return row->place == PLACE_FILE || row->place == PLACE_NUMBER || row->place == PLACE_SWITCH;
}

static json_t *
file_value(const struct setting *row, const char *text)
{
    if (row->place == PLACE_NUMBER) {
        return json_integer((json_int_t)strtoull(text, NULL, 10));
    }
    return row->place == PLACE_SWITCH ? json_boolean(text[0] == 't') : json_string(text);
}

/* What is in the engine's file. NULL: no memory, or a value is too long or no UTF-8. */
static json_t *
file_json(const struct filling *filling)
{
    json_t *content = json_object();
    char text[VALUE_ROOM];
    int bad = content == NULL;

    for (size_t i = 0; i < SETTINGS && !bad; i++) {
        const struct setting *row = &settings[i];
        const char *dot = strchr(row->name, '.');
        char outer[64];
        json_t *into = content;

        if (!holds(filling, row) || !in_file(row)) {
            continue;
        }
        if (dot != NULL) {
            snprintf(outer, sizeof(outer), "%.*s", (int)(dot - row->name), row->name);
            if (json_object_get(content, outer) == NULL) {
                bad = json_object_set_new(content, outer, json_object());
            }
            into = json_object_get(content, outer);
        }
        bad = bad || !fill(filling, row->value, text, sizeof(text)) ||
              json_object_set_new(into, dot == NULL ? row->name : dot + 1, file_value(row, text)) !=
                  0;
    }
    if (bad) {
        json_decref(content);
        return NULL;
    }
    return content;
}

/* ---- telling -------------------------------------------------------------------------------- */

/* A word for a shell. */
static void
quoted(FILE *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:@%+=,";

    if (text[0] != '\0' && strspn(text, plain) == strlen(text)) {
        fputs(text, out);
        return;
    }
    (void)fputc('\'', out);
    for (; *text != '\0'; text++) {
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, out);
    }
    (void)fputc('\'', out);
}

/* Why, in lines of at most 100 characters above what it is about. */
static void
comment(FILE *out, const char *name, const char *why)
{
    size_t column = (size_t)fprintf(out, "# %s:", name);

    while (*why != '\0') {
        size_t length = strcspn(why, " ");

        if (column + 1 + length > 100) {
            fputs("\n#", out);
            column = 1;
        }
        column += (size_t)fprintf(out, " %.*s", (int)length, why);
        why += length + (why[length] == ' ');
    }
    (void)fputc('\n', out);
}

static void
print_file(const struct filling *filling, const json_t *content)
{
    FILE *out = filling->cli->out;
    char *text = json_dumps(content, JSON_INDENT(2) | JSON_PRESERVE_ORDER);

    for (size_t i = 0; i < SETTINGS; i++) {
        if (holds(filling, &settings[i]) && in_file(&settings[i]) && settings[i].why[0] != '\0') {
            comment(out, settings[i].name, settings[i].why);
        }
    }
    if (text != NULL) {
        fputs("cat >", out);
        quoted(out, filling->file);
        fprintf(out, " <<'EOF'\n%s\nEOF\n", text);
    }
    free(text);
}

static int
print_shell(const struct filling *filling, const json_t *content)
{
    FILE *out = filling->cli->out;
    const struct setting *command = NULL;
    char text[VALUE_ROOM];

    if (json_object_size(content) > 0) {
        print_file(filling, content);
    }
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct setting *row = &settings[i];

        command = holds(filling, row) && row->place == PLACE_COMMAND ? row : command;
        if (holds(filling, row) && !in_file(row) && row->why[0] != '\0') {
            comment(out, row->name, row->why);
        }
        if (holds(filling, row) && (row->place == PLACE_ENV || row->place == PLACE_SECRET)) {
            if (!fill(filling, row->value, text, sizeof(text))) {
                return YB_CLI_EXIT_FAILED;
            }
            fprintf(out, "export %s=", row->name);
            quoted(out, text);
            (void)fputc('\n', out);
        }
    }
    YB_ASSERT(command != NULL);
    fputs(command->name, out);
    for (size_t i = 0; i < SETTINGS; i++) {
        if (holds(filling, &settings[i]) && settings[i].place == PLACE_FLAG) {
            fprintf(out, " \\\n    %s", settings[i].name);
            if (settings[i].value[0] != '\0') {
                (void)fputc(' ', out);
                quoted(out, settings[i].value);
            }
        }
    }
    (void)fputc('\n', out);
    return 0;
}

static int
print_json(const struct filling *filling, json_t *content)
{
    json_t *environment = json_object();
    json_t *flags = json_array();
    json_t *why = json_object();
    const char *command = "";
    char text[VALUE_ROOM];

    for (size_t i = 0; i < SETTINGS; i++) {
        const struct setting *row = &settings[i];

        if (!holds(filling, row)) {
            continue;
        }
        if (row->why[0] != '\0') {
            json_object_set_new(why, row->name, json_string(row->why));
        }
        if (row->place == PLACE_ENV || row->place == PLACE_SECRET) {
            if (!fill(filling, row->value, text, sizeof(text))) {
                text[0] = '\0';
            }
            json_object_set_new(environment, row->name, json_string(text));
        } else if (row->place == PLACE_FLAG) {
            json_array_append_new(flags, json_string(row->name));
            if (row->value[0] != '\0') {
                json_array_append_new(flags, json_string(row->value));
            }
        } else if (row->place == PLACE_COMMAND) {
            command = row->name;
        }
    }
    return yb_output_json(
               filling->cli->out,
               json_pack("{s:s, s:s, s:o, s:o, s:s, s:o, s:o}", "engine",
                         engine_words[filling->engine], "for", use_words[filling->use], "files",
                         json_object_size(content) == 0
                             ? json_array()
                             : json_pack("[{s:s, s:O}]", "path", filling->file, "content", content),
                         "environment", environment, "command", command, "flags", flags, "why",
                         why)) == YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

/* ---- the command ---------------------------------------------------------------------------- */

/* Which of some words this is; `count`: none. */
static unsigned
which(const char *const *words, unsigned count, const char *word)
{
    unsigned i = 0;

    while (i < count && strcmp(words[i], word) != 0) {
        i++;
    }
    return i;
}

/* Read the command line. False: it was refused, and why was printed. */
static bool
understand(struct filling *filling, int argc, char **argv)
{
    struct yb_cli *cli = filling->cli;
    const char *use = yb_cli_option(cli, "for");
    const char *host = yb_cli_option(cli, "host");
    const char *file = yb_cli_option(cli, "file");
    unsigned engine = argc > 0 ? which(engine_words, ENGINES, argv[0]) : ENGINES;
    unsigned chosen = use == NULL ? USE_store : which(use_words, USES, use);

    if (engine == ENGINES) {
        fprintf(cli->err, "yuebing engine-config: say which engine: vllm, sglang or lmcache\n");
        return false;
    }
    filling->engine = (enum engine)engine;
    if (chosen == USES || (chosen == USE_transfer && engine == ENGINE_lmcache)) {
        fprintf(cli->err,
                "yuebing engine-config: --for is store or, of vllm and sglang, transfer\n");
        return false;
    }
    filling->use = (enum use)chosen;
    if (!yb_cli_option_number(cli, "segment", 0, UINT64_MAX / 2, &filling->segment)) {
        return false;
    }
    snprintf(filling->segment_text, sizeof(filling->segment_text), "%llu",
             (unsigned long long)filling->segment);
    if (file == NULL) {
        snprintf(filling->file, sizeof(filling->file), "yuebing-%s.json", engine_words[engine]);
    } else {
        snprintf(filling->file, sizeof(filling->file), "%s", file);
    }
    if (host != NULL) {
        snprintf(filling->host, sizeof(filling->host), "%s", host);
    } else if (!facing(cli->config.directory_address, filling->host, sizeof(filling->host))) {
        fprintf(cli->err,
                "yuebing engine-config: no way to the directory at %s; --host names this host\n",
                cli->config.directory_address);
        return false;
    }
    return true;
}

int
yb_cli_engine_config(struct yb_cli *cli, int argc, char **argv)
{
    struct filling filling = {.cli = cli, .segment = 4ull << 30};
    json_t *content;
    int code;

    if (!understand(&filling, argc, argv)) {
        return YB_CLI_EXIT_REFUSED;
    }
    content = file_json(&filling);
    if (content == NULL) {
        fprintf(cli->err, "yuebing engine-config: a value is too long, or no UTF-8\n");
        return YB_CLI_EXIT_FAILED;
    }
    code = cli->json ? print_json(&filling, content) : print_shell(&filling, content);
    json_decref(content);
    return code;
}
