/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/measure.h"

#define REPLY_ROOM         (1024u * 1024u)
#define TIMEOUT_MS_DEFAULT 30000u
#define TIMEOUT_MS_MAX     3600000u
#define TIERS_NS           (YB_NS_PER_S / 2) /* For one node to tell of its tiers. */

bool
yb_cli_store_timeout(const struct yb_cli *cli, uint64_t *timeout_ns_out)
{
    uint64_t ms = TIMEOUT_MS_DEFAULT;

    if (!yb_cli_option_number(cli, "timeout-ms", 1, TIMEOUT_MS_MAX, &ms)) {
        return false;
    }
    *timeout_ns_out = ms * YB_NS_PER_MS;
    return true;
}

bool
yb_cli_key_fits(const struct yb_cli *cli, const char *key)
{
    size_t length = strlen(key);

    if (length >= 1 && length <= YB_CLIENT_KEY_BYTES_MAX) {
        return true;
    }
    fprintf(cli->err, "yuebing %s: a key of %zu bytes; allowed: 1 .. %u\n", cli->command->name,
            length, YB_CLIENT_KEY_BYTES_MAX);
    return false;
}

/* ---- questions ------------------------------------------------------------------------------ */

static int
exit_code(enum yb_status status)
{
    return status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
}

int
yb_cli_store_fail(struct yb_cli_store *store, enum yb_status status)
{
    fprintf(store->cli->err, "yuebing %s: %s: %s\n", store->cli->command->name,
            yb_status_name(status), store->error);
    return exit_code(status);
}

static enum yb_status
ask(struct yb_cli_store *store, struct yb_cli_client *client,
    const struct yb_cli_question *question)
{
    struct yb_call call = {
        .type = question->type,
        .lane = YB_WIRE_LANE_CONTROL,
        .body = question->body,
        .body_bytes = (uint32_t)question->body_bytes,
        .reply_body = store->reply,
        .reply_body_room = REPLY_ROOM,
        .mutates = question->mutates,
    };
    enum yb_status status = yb_cli_client_call(
        client, &call, question->timeout_ns != 0 ? question->timeout_ns : store->timeout_ns);

    store->reply_bytes = call.answered ? call.reply_body_bytes : 0;
    if (status != YB_OK) {
        snprintf(store->error, sizeof(store->error), "%s", client->error);
    }
    return status;
}

enum yb_status
yb_cli_store_ask(struct yb_cli_store *store, const struct yb_cli_question *question)
{
    return ask(store, &store->directory, question);
}

/* Copy a text that is padded with zero bytes. */
static void
take_text(char *out, size_t room, const uint8_t *bytes, size_t length)
{
    snprintf(out, room, "%.*s", (int)length, (const char *)bytes);
}

enum yb_status
yb_cli_store_ask_node(struct yb_cli_store *store, const struct yb_wire_member *member,
                      const struct yb_cli_question *question)
{
    struct yb_cli_client client;
    char address[sizeof(member->address) + 1];
    enum yb_status status;

    take_text(address, sizeof(address), member->address, sizeof(member->address));
    status = yb_cli_client_open(store->cli, address, member->identity, &client);
    if (status != YB_OK) {
        snprintf(store->error, sizeof(store->error), "%s: %s", address, yb_status_text(status));
        return status;
    }
    status = ask(store, &client, question);
    yb_cli_client_close(&client);
    return status;
}

void
yb_cli_store_tiers(struct yb_cli_store *store, const struct yb_wire_member *member,
                   uint64_t *left_ns, struct yb_cli_tiers *tiers_out)
{
    const uint64_t begun_ns = yb_measure_now_ns();
    const struct yb_cli_question question = {
        .type = YB_WIRE_NODE_TYPE_TIER_STAT,
        .timeout_ns = *left_ns < TIERS_NS ? *left_ns : TIERS_NS,
    };
    struct yb_wire_tier_states states;
    enum yb_status status;
    uint64_t took_ns;

    tiers_out->count = 0;
    if (member->age_ms > store->cluster.lease_ms || *left_ns == 0) {
        return;
    }
    status = yb_cli_store_ask_node(store, member, &question);
    took_ns = yb_measure_now_ns() - begun_ns;
    *left_ns -= took_ns < *left_ns ? took_ns : *left_ns;
    if (status != YB_OK ||
        yb_wire_tier_states_decode(store->reply, store->reply_bytes, &states, NULL) != YB_OK) {
        return;
    }
    for (; tiers_out->count < states.tiers.count && tiers_out->count < 8; tiers_out->count++) {
        yb_wire_tier_state_at(&states.tiers, tiers_out->count, &tiers_out->each[tiers_out->count]);
    }
}

static enum yb_status
malformed(struct yb_cli_store *store)
{
    snprintf(store->error, sizeof(store->error), "the answer is none to that question");
    return YB_PROTOCOL;
}

enum yb_status
yb_cli_store_members(struct yb_cli_store *store)
{
    const struct yb_wire_members_question asked = {.known = 0};
    uint8_t body[YB_WIRE_MEMBERS_QUESTION_BYTES];
    struct yb_wire_members told;
    size_t length = 0;
    enum yb_status status;

    YB_ASSERT(yb_wire_members_question_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_cli_store_ask(store, &(struct yb_cli_question){
                                         .type = YB_WIRE_DIRECTORY_TYPE_MEMBERS,
                                         .body = body,
                                         .body_bytes = length,
                                     });
    if (status != YB_OK) {
        return status;
    }
    if (yb_wire_members_decode(store->reply, store->reply_bytes, &told, NULL) != YB_OK) {
        return malformed(store);
    }
    for (uint32_t i = 0; i < told.members.count; i++) {
        yb_wire_member_at(&told.members, i, &store->members[i]);
    }
    store->member_count = told.members.count;
    return YB_OK;
}

const struct yb_wire_member *
yb_cli_store_member(const struct yb_cli_store *store, uint16_t slot)
{
    for (uint32_t i = 0; i < store->member_count; i++) {
        if (store->members[i].slot == slot) {
            return &store->members[i];
        }
    }
    return NULL;
}

static enum yb_status
join(struct yb_cli_store *store)
{
    enum yb_status status =
        yb_cli_store_ask(store, &(struct yb_cli_question){.type = YB_WIRE_DIRECTORY_TYPE_JOIN});

    if (status == YB_OK &&
        yb_wire_cluster_decode(store->reply, store->reply_bytes, &store->cluster, NULL) != YB_OK) {
        status = malformed(store);
    }
    return status == YB_OK ? yb_cli_store_members(store) : status;
}

enum yb_status
yb_cli_store_open(struct yb_cli *cli, bool admin, struct yb_cli_store *store_out)
{
    struct yb_cli_store store = {.cli = cli};
    struct yb_config *config = &cli->config;
    enum yb_status status;

    if (!yb_cli_store_timeout(cli, &store.timeout_ns)) {
        return YB_INVALID;
    }
    if (admin && config->origins[YB_CONFIG_ROW_auth_role].source == YB_CONFIG_SOURCE_DEFAULT) {
        config->auth_role = YB_CONFIG_AUTH_ROLE_ADMIN;
    }
    status =
        yb_cli_client_open(cli, config->directory_address, (struct yb_id){{0}}, &store.directory);
    if (status != YB_OK) {
        return status;
    }
    store.reply = malloc(REPLY_ROOM);
    store.members = malloc(YB_WIRE_MEMBERS_MAX * sizeof(*store.members));
    snprintf(store.error, sizeof(store.error), "%s", yb_status_text(YB_NO_MEMORY));
    status = store.reply == NULL || store.members == NULL ? YB_NO_MEMORY : YB_OK;
    if (status == YB_OK) {
        status = yb_cli_client_connect(&store.directory, store.timeout_ns);
        snprintf(store.error, sizeof(store.error), "%s", store.directory.error);
    }
    status = status == YB_OK ? join(&store) : status;
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing %s: no directory at %s: %s: %s; --directory says where it is\n",
                cli->command->name, config->directory_address, yb_status_name(status), store.error);
        yb_cli_store_close(&store);
        return status;
    }
    *store_out = store;
    return YB_OK;
}

void
yb_cli_store_close(struct yb_cli_store *store)
{
    yb_cli_client_close(&store->directory);
    free(store->members);
    free(store->reply);
    store->members = NULL;
    store->reply = NULL;
}

/* ---- the public client ---------------------------------------------------------------------- */

enum yb_status
yb_cli_open_client(struct yb_cli *cli, uint64_t timeout_ns, struct yb_client **client_out,
                   int *code_out)
{
    const struct yb_config *config = &cli->config;
    const struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = config->directory_address,
        .secret_file = config->auth_secret_file[0] == '\0' ? NULL : config->auth_secret_file,
        .tenant = config->auth_tenant,
        .tls = config->tls_mode == YB_CONFIG_TLS_MODE_ON,
    };
    char message[YB_CONFIG_MESSAGE_MAX] = "";
    enum yb_status status =
        yb_client_open(&options, timeout_ns, client_out, message, sizeof(message));

    if (status != YB_OK) {
        fprintf(cli->err, "yuebing %s: %s: %s\n", cli->command->name, yb_status_name(status),
                message[0] == '\0' ? yb_status_text(status) : message);
        *code_out = exit_code(status);
    }
    return status;
}

const char *
yb_cli_outcome_text(enum yb_status status)
{
    switch (status) {
    case YB_NOT_FOUND: return "not found; `yuebing explain` tells why";
    case YB_EXISTS: return "is there already; --replace writes a new version";
    case YB_IN_PROGRESS: return "somebody else is writing it; ask again in a moment";
    case YB_LEASED: return "is held or read; --force removes it all the same";
    case YB_NO_SPACE:
        return "no node has room for it; `yuebing nodes` shows them, --memory gives a node more";
    case YB_REBUILDING:
        return "the directory is still being told what its nodes hold; ask again in a moment";
    case YB_IN_DOUBT: return "it may have been done or not; asking again is safe";
    case YB_DENIED: return "not allowed: the tenant's limit, or the key of another role or tenant";
    default: return yb_status_text(status);
    }
}

/* ---- texts ---------------------------------------------------------------------------------- */

void
yb_cli_bytes_text(uint64_t bytes, char text_out[YB_CLI_BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(text_out, YB_CLI_BYTES_TEXT, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void
yb_cli_span_text(uint64_t ms, char text_out[YB_CLI_BYTES_TEXT])
{
    if (ms < 1000) {
        snprintf(text_out, YB_CLI_BYTES_TEXT, "%" PRIu64 " ms", ms);
    } else if (ms < 120u * 1000) {
        snprintf(text_out, YB_CLI_BYTES_TEXT, "%.1f s", (double)ms / 1e3);
    } else if (ms < 120u * 60 * 1000) {
        snprintf(text_out, YB_CLI_BYTES_TEXT, "%.1f min", (double)ms / 60e3);
    } else {
        snprintf(text_out, YB_CLI_BYTES_TEXT, "%.1f h", (double)ms / 3600e3);
    }
}

void
yb_cli_print_key(FILE *out, const void *key, size_t length)
{
    const uint8_t *bytes = key;

    for (size_t i = 0; i < length; i++) {
        if (bytes[i] < 0x20 || bytes[i] == 0x7f || bytes[i] == '\\') {
            fprintf(out, "\\x%02x", bytes[i]);
        } else {
            (void)fputc(bytes[i], out);
        }
    }
}

void
yb_cli_json_key(json_t *object, const void *key, size_t length)
{
    json_t *text = json_stringn(key, length);
    char hex[2 * YB_CLIENT_KEY_BYTES_MAX + 1];

    if (text != NULL) {
        json_object_set_new(object, "key", text);
        return;
    }
    YB_ASSERT(length <= YB_CLIENT_KEY_BYTES_MAX);
    for (size_t i = 0; i < length; i++) {
        snprintf(hex + 2 * i, 3, "%02x", ((const uint8_t *)key)[i]);
    }
    json_object_set_new(object, "key_hex", json_string(hex));
}
