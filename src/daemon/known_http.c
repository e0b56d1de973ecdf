/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/known_http.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "compat/codes.h"
#include "yuebing/client.h"

#define ASK_NS          (5 * YB_NS_PER_S)
#define NODES_MAX       65536u
#define KEYS_BYTES_MAX  (64u * 1024u * 1024u)
#define BATCH_KEYS_MAX  64u
#define JSON_TYPE       "application/json"
#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct yb_known_http {
    struct yb_known_http_options options;
    _Atomic(struct yb_client *) client; /* NULL: nobody has asked yet. */
};

struct yb_known_http *
yb_known_http_create(const struct yb_known_http_options *options)
{
    struct yb_known_http *known = calloc(1, sizeof(*known));

    if (known != NULL) {
        known->options = *options;
    }
    return known;
}

void
yb_known_http_destroy(struct yb_known_http **known_ref)
{
    struct yb_known_http *known = *known_ref;
    struct yb_client *client = atomic_load(&known->client);

    *known_ref = NULL;
    if (client != NULL) {
        yb_client_close(&client);
    }
    free(known);
}

/* Return the client, opened by whoever asks first. */
static enum yb_status
client_of(struct yb_known_http *known, struct yb_client **client_out)
{
    const struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = known->options.directory,
        .secret_file = known->options.secret_file,
        .tenant = known->options.tenant,
        .tls = known->options.tls,
        .no_shared_memory = true,
    };
    struct yb_client *mine = NULL;
    struct yb_client *there = atomic_load(&known->client);
    enum yb_status status;

    if (there == NULL && known->options.directory == NULL) {
        return YB_UNSUPPORTED;
    }
    if (there == NULL) {
        status = yb_client_open(&options, ASK_NS, &mine, NULL, 0);
        if (status != YB_OK) {
            return status;
        }
        if (!atomic_compare_exchange_strong(&known->client, &there, mine)) {
            yb_client_close(&mine); /* Another thread was first. */
        } else {
            there = mine;
        }
    }
    *client_out = there;
    return YB_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* A text that grows; broken once there was no memory. */
struct text {
    char *bytes;
    size_t length;
    size_t room;
    bool broken;
};

static void
add_bytes(struct text *text, const void *bytes, size_t length)
{
    if (text->length + length + 1 > text->room) {
        size_t room = 2 * (text->length + length + 1);
        char *grown = text->broken ? NULL : realloc(text->bytes, room);

        text->broken = grown == NULL;
        if (text->broken) {
            return;
        }
        text->bytes = grown;
        text->room = room;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

__attribute__((format(printf, 2, 3))) static void
add(struct text *text, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    YB_ASSERT(length >= 0 && (size_t)length < sizeof(line));
    add_bytes(text, line, (size_t)length);
}

static void
tell(struct yb_http_told *told, struct text *text)
{
    if (text->bytes == NULL && !text->broken) {
        add_bytes(text, "", 0);
    }
    told->text = text->broken ? NULL : text->bytes;
    told->length = text->length;
    if (text->broken) {
        free(text->bytes);
    }
}

static void
tell_line(struct yb_http_told *told, unsigned code, const char *line)
{
    struct text text = {0};

    add(&text, "%s", line);
    told->code = code;
    tell(told, &text);
}

static void
tell_status(struct yb_http_told *told, enum yb_status status)
{
    tell_line(told, status == YB_NOT_FOUND ? 404 : 503, yb_status_text(status));
}

/* The same where an answer is JSON: their number, and what it means. */
static void
tell_code(struct yb_http_told *told, unsigned http, int32_t code, const char *message)
{
    *told = yb_http_json(http, json_pack("{s:b, s:i, s:s}", "success", 0, "error_code", (int)code,
                                         "error_message", message));
}

static void
tell_failure(struct yb_http_told *told, enum yb_status status)
{
    int32_t code = yb_compat_code(status, YB_COMPAT_CALL_READ);

    tell_code(told, status == YB_NOT_FOUND ? 404 : 503, code, yb_compat_code_text(code));
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* On OK *nodes_out is the caller's to free(). */
static enum yb_status
nodes_of(struct yb_known_http *known, struct yb_client_node **nodes_out, uint32_t *count_out)
{
    struct yb_client *client;
    struct yb_client_node *nodes = NULL;
    uint32_t count = 0;
    enum yb_status status = client_of(known, &client);

    if (status == YB_OK) {
        status = yb_client_nodes(client, NULL, 0, &count);
    }
    if (status == YB_OK) {
        uint32_t room = (count < NODES_MAX ? count : NODES_MAX) + 16;

        nodes = calloc(room, sizeof(*nodes));
        status = nodes != NULL ? yb_client_nodes(client, nodes, room, &count) : YB_NO_MEMORY;
        count = count < room ? count : room;
    }
    if (status != YB_OK) {
        free(nodes);
        return status;
    }
    *nodes_out = nodes;
    *count_out = count;
    return YB_OK;
}

static void
get_all_segments(struct yb_known_http *known, const struct yb_http_asked *asked,
                 struct yb_http_told *told)
{
    struct yb_client_node *nodes;
    struct text text = {0};
    uint32_t count;
    enum yb_status status = nodes_of(known, &nodes, &count);

    (void)asked;
    if (status != YB_OK) {
        tell_status(told, status);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        add(&text, "%s\n", nodes[i].name);
    }
    free(nodes);
    tell(told, &text);
}

static bool
is_serving(const struct yb_client_node *node)
{
    return strcmp(node->state, "serving") == 0;
}

/* Name and number of what they call a segment's status. */
static const char *
segment_status(const struct yb_client_node *node, int *number_out)
{
    *number_out = is_serving(node) ? 1 : 2;
    return is_serving(node) ? "OK" : "UNMOUNTING";
}

static json_t *
segment_json(const struct yb_client_node *node)
{
    double share = node->capacity == 0 ? 0 : (double)node->used / (double)node->capacity;
    int number;

    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:f, s:s}", "segment_name",
                     node->name, "segment_id", node->name, "size_bytes", (json_int_t)node->capacity,
                     "te_endpoint", node->address, "protocol", "tcp", "status",
                     segment_status(node, &number), "allocator_used_bytes", (json_int_t)node->used,
                     "allocator_capacity_bytes", (json_int_t)node->capacity,
                     "allocator_usage_percent", 100 * share, "state", node->state);
}

static void
get_segments_detail(struct yb_known_http *known, const struct yb_http_asked *asked,
                    struct yb_http_told *told)
{
    struct yb_client_node *nodes;
    json_t *rows;
    uint32_t count;
    enum yb_status status = nodes_of(known, &nodes, &count);

    (void)asked;
    if (status != YB_OK) {
        tell_failure(told, status);
        return;
    }
    rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(rows, segment_json(&nodes[i]));
    }
    free(nodes);
    *told = yb_http_json(
        200, json_pack("{s:I, s:o}", "total_segments", (json_int_t)count, "segments", rows));
}

/* The node that `?segment=` names. */
static enum yb_status
node_of(struct yb_known_http *known, const struct yb_http_asked *asked,
        struct yb_client_node *node_out)
{
    const char *name = yb_http_argument(asked, "segment");
    struct yb_client_node *nodes = NULL;
    uint32_t count = 0;
    enum yb_status status = nodes_of(known, &nodes, &count);
    bool found = false;

    for (uint32_t i = 0; status == YB_OK && i < count && name != NULL && !found; i++) {
        found = strcmp(nodes[i].name, name) == 0;
        *node_out = nodes[i];
    }
    free(nodes);
    return status == YB_OK && !found ? YB_NOT_FOUND : status;
}

static void
query_segment(struct yb_known_http *known, const struct yb_http_asked *asked,
              struct yb_http_told *told)
{
    struct yb_client_node node;
    struct text text = {0};
    enum yb_status status = node_of(known, asked, &node);

    if (status == YB_NOT_FOUND) {
        tell_line(told, 404, "no such segment");
    } else if (status != YB_OK) {
        tell_status(told, status);
    } else {
        add(&text, "%s\nUsed(bytes): %" PRIu64 "\nCapacity(bytes) : %" PRIu64 "\n", node.name,
            node.used, node.capacity);
        tell(told, &text);
    }
}

static void
segments_status(struct yb_known_http *known, const struct yb_http_asked *asked,
                struct yb_http_told *told)
{
    struct yb_client_node node;
    enum yb_status status = node_of(known, asked, &node);
    const char *name;
    int number;

    if (status == YB_NOT_FOUND) {
        tell_code(told, 404, YB_COMPAT_SEGMENT_NOT_FOUND,
                  yb_compat_code_text(YB_COMPAT_SEGMENT_NOT_FOUND));
    } else if (status != YB_OK) {
        tell_failure(told, status);
    } else {
        name = segment_status(&node, &number);
        *told = yb_http_json(200, json_pack("{s:b, s:s, s:i, s:s, s:i, s:s}", "success", 1,
                                            "segment", node.name, "status", number, "status_name",
                                            name, "error_code", 0, "error_message", ""));
    }
}

static void
drain_jobs(struct yb_known_http *known, const struct yb_http_asked *asked,
           struct yb_http_told *told)
{
    (void)known;
    (void)asked;
    tell_code(told, 501, YB_COMPAT_NOT_SUPPORTED,
              "no jobs here: `yuebing drain NAME` moves a node's blocks away and waits for it");
}

static void
tenant_quotas(struct yb_known_http *known, const struct yb_http_asked *asked,
              struct yb_http_told *told)
{
    (void)known;
    (void)asked;
    tell_code(told, 409, YB_COMPAT_UNAVAILABLE_IN_CURRENT_MODE,
              "limits of tenants are not set over HTTP");
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct keys {
    char **items;
    uint32_t count;
    uint32_t room;
    uint64_t bytes;
    bool broken;
};

static bool
on_key(void *context, const struct yb_client_entry *entry)
{
    struct keys *keys = context;
    char *copy = NULL;

    keys->bytes += entry->key_bytes + sizeof(char *);
    if (keys->count == keys->room) {
        uint32_t room = keys->room == 0 ? 1024 : keys->room * 2;
        char **items = realloc(keys->items, room * sizeof(*items));

        keys->broken = items == NULL;
        keys->items = items != NULL ? items : keys->items;
        keys->room = items != NULL ? room : keys->room;
    }
    copy = keys->broken || keys->bytes > KEYS_BYTES_MAX ? NULL : malloc(entry->key_bytes + 1u);
    if (copy == NULL) {
        keys->broken = true;
        return false;
    }
    memcpy(copy, entry->key, entry->key_bytes);
    copy[entry->key_bytes] = '\0';
    keys->items[keys->count++] = copy;
    return true;
}

static int
compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static const struct yb_client_call the_call = {
    .struct_bytes = sizeof(the_call),
    .timeout_ns = ASK_NS,
};

static void
get_all_keys(struct yb_known_http *known, const struct yb_http_asked *asked,
             struct yb_http_told *told)
{
    struct keys keys = {0};
    struct text text = {0};
    struct yb_client *client;
    enum yb_status status = client_of(known, &client);

    (void)asked;
    if (status == YB_OK) {
        status = yb_client_list(client, YB_CLIENT_MATCH_ALL, NULL, &the_call, on_key, &keys);
    }
    if (keys.count > 0) {
        qsort(keys.items, keys.count, sizeof(*keys.items), compare);
    }
    for (uint32_t i = 0; i < keys.count; i++) {
        /* One with replicas is there once for each. */
        if (i == 0 || strcmp(keys.items[i], keys.items[i - 1]) != 0) {
            add_bytes(&text, keys.items[i], strlen(keys.items[i]));
            add_bytes(&text, "\n", 1);
        }
    }
    for (uint32_t i = 0; i < keys.count; i++) {
        free(keys.items[i]);
    }
    free(keys.items);
    if (status == YB_OK && !keys.broken) {
        tell(told, &text);
        return;
    }
    free(text.bytes);
    if (status == YB_OK) {
        tell_line(told, 503, "more keys than fit: list them by prefix, with `yuebing ls`");
    } else {
        tell_status(told, status);
    }
}

struct replicas {
    const char *key;
    const struct yb_client_node *nodes;
    uint32_t node_count;
    json_t *rows;
};

static bool
on_replica(void *context, const struct yb_client_entry *entry)
{
    struct replicas *replicas = context;
    const char *address = entry->node;

    if (entry->key_bytes != strlen(replicas->key) ||
        memcmp(entry->key, replicas->key, entry->key_bytes) != 0) {
        return true; /* It only begins like it. */
    }
    for (uint32_t i = 0; i < replicas->node_count; i++) {
        if (strcmp(replicas->nodes[i].name, entry->node) == 0) {
            address = replicas->nodes[i].address;
        }
    }
    (void)json_array_append_new(
        replicas->rows,
        json_pack("{s:I, s:i, s:s, s:s, s:s}", "size_", (json_int_t)entry->size, "buffer_address_",
                  0, "protocol_", "tcp", "transport_endpoint_", address, "segment", entry->node));
    return true;
}

/* On OK *rows_out has a row for each replica. */
static enum yb_status
replicas_of(struct yb_known_http *known, const char *key, json_t **rows_out)
{
    struct replicas replicas = {.key = key, .rows = json_array()};
    struct yb_client_node *nodes = NULL;
    struct yb_client *client;
    enum yb_status status = client_of(known, &client);

    if (status == YB_OK) {
        status = nodes_of(known, &nodes, &replicas.node_count);
    }
    if (status == YB_OK) {
        replicas.nodes = nodes;
        status =
            yb_client_list(client, YB_CLIENT_MATCH_PREFIX, key, &the_call, on_replica, &replicas);
    }
    free(nodes);
    if (status == YB_OK && json_array_size(replicas.rows) == 0) {
        status = YB_NOT_FOUND;
    }
    if (status != YB_OK) {
        json_decref(replicas.rows);
        return status;
    }
    *rows_out = replicas.rows;
    return YB_OK;
}

static void
query_key(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    const char *key = yb_http_argument(asked, "key");
    json_t *rows;
    enum yb_status status;

    if (key == NULL || key[0] == '\0' || strlen(key) > YB_CLIENT_KEY_BYTES_MAX) {
        tell_code(told, 400, YB_COMPAT_INVALID_PARAMS, "key is required: 1 to 1024 bytes");
        return;
    }
    status = replicas_of(known, key, &rows);
    if (status != YB_OK) {
        tell_failure(told, status);
        return;
    }
    *told = yb_http_json(200, json_pack("{s:b, s:o}", "success", 1, "data", rows));
}

static void
batch_query_keys(struct yb_known_http *known, const struct yb_http_asked *asked,
                 struct yb_http_told *told)
{
    const char *given = yb_http_argument(asked, "keys");
    char *keys = given != NULL && given[0] != '\0' ? strdup(given) : NULL;
    json_t *data = json_object();
    char *rest = NULL;
    uint32_t count = 0;

    for (char *key = keys != NULL ? strtok_r(keys, ",", &rest) : NULL;
         key != NULL && count <= BATCH_KEYS_MAX; key = strtok_r(NULL, ",", &rest)) {
        json_t *rows = NULL;
        enum yb_status status =
            count++ < BATCH_KEYS_MAX ? replicas_of(known, key, &rows) : YB_TOO_LARGE;

        (void)json_object_set_new(
            data, key,
            status == YB_OK
                ? json_pack("{s:b, s:n, s:o}", "ok", 1, "error", "values", rows)
                : json_pack("{s:b, s:s, s:n}", "ok", 0, "error", yb_status_text(status), "values"));
    }
    free(keys);
    if (count == 0 || count > BATCH_KEYS_MAX) {
        json_decref(data);
        *told = yb_http_json(400, json_pack("{s:b, s:s}", "success", 0, "error",
                                            "keys is required: 1 to 64 of them, with commas "
                                            "between"));
        return;
    }
    *told = yb_http_json(200, json_pack("{s:b, s:o}", "success", 1, "data", data));
}

static void
remove_all(struct yb_known_http *known, const struct yb_http_asked *asked,
           struct yb_http_told *told)
{
    struct yb_client_call call = the_call;
    struct yb_client *client;
    uint64_t count = 0;
    enum yb_status status;

    if (!asked->may_change) {
        tell_line(told, 403,
                  "without a secret only loopback may do this; with one give it: "
                  "Authorization: Bearer SECRET");
        return;
    }
    call.force = yb_http_argument(asked, "force") != NULL &&
                 strcmp(yb_http_argument(asked, "force"), "true") == 0;
    status = client_of(known, &client);
    status = status == YB_OK ? yb_client_remove_all(client, &call, &count) : status;
    if (status == YB_OK) {
        *told = yb_http_json(
            200, json_pack("{s:b, s:I}", "success", 1, "removed_count", (json_int_t)count));
    } else {
        tell_failure(told, status);
    }
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* Their names for what boards draw. */
static void
add_theirs(struct text *text, const struct yb_client_node *nodes, uint32_t count)
{
    uint64_t used = 0;
    uint64_t capacity = 0;

    for (uint32_t i = 0; i < count; i++) {
        used += nodes[i].used;
        capacity += nodes[i].capacity;
    }
    add(text, "# TYPE master_allocated_bytes gauge\nmaster_allocated_bytes %" PRIu64 "\n", used);
    add(text, "# TYPE master_total_capacity_bytes gauge\nmaster_total_capacity_bytes %" PRIu64 "\n",
        capacity);
    add(text, "# TYPE master_active_clients gauge\nmaster_active_clients %u\n", count);
    add(text, "# TYPE segment_allocated_bytes gauge\n");
    for (uint32_t i = 0; i < count; i++) {
        add(text, "segment_allocated_bytes{segment=\"%s\"} %" PRIu64 "\n", nodes[i].name,
            nodes[i].used);
    }
    add(text, "# TYPE segment_total_capacity_bytes gauge\n");
    for (uint32_t i = 0; i < count; i++) {
        add(text, "segment_total_capacity_bytes{segment=\"%s\"} %" PRIu64 "\n", nodes[i].name,
            nodes[i].capacity);
    }
}

static void
metrics(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    struct yb_client_node *nodes;
    struct text text = {0};
    uint32_t count;
    char *ours = NULL;
    size_t length = 0;

    (void)asked;
    if (yb_stats_prometheus_text(known->options.stats, &ours, &length) == YB_OK) {
        add_bytes(&text, ours, length);
    }
    free(ours);
    add(&text,
        "# HELP yuebing_auth_open 1: there is no secret, whoever reaches the ports may do "
        "anything\n# TYPE yuebing_auth_open gauge\nyuebing_auth_open %d\n",
        known->options.secret_file == NULL);
    if (known->options.leads && nodes_of(known, &nodes, &count) == YB_OK) {
        add_theirs(&text, nodes, count);
        free(nodes);
    }
    told->type = PROMETHEUS_TYPE;
    tell(told, &text);
}

static const char *
role_of(const struct yb_known_http *known)
{
    return known->options.leads ? "leader" : "client";
}

static void
summary(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    struct yb_client_node *nodes;
    struct text text = {0};
    uint32_t count;
    uint64_t used = 0;
    uint64_t capacity = 0;
    enum yb_status status = nodes_of(known, &nodes, &count);

    (void)asked;
    if (status != YB_OK) {
        tell_status(told, status);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        used += nodes[i].used;
        capacity += nodes[i].capacity;
    }
    free(nodes);
    add(&text,
        "role=%s, state=serving, service_ready=true, master={Mem Storage: %" PRIu64 " B / %" PRIu64
        " B | Clients: %u}\n",
        role_of(known), used, capacity, count);
    tell(told, &text);
}

/* ---- small ones ------------------------------------------------------------------------------ */

/* Of the directory as theirs; of the others one word. */
static void
health(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    (void)asked;
    if (!known->options.leads) {
        tell_line(told, 200, "OK");
        return;
    }
    *told =
        yb_http_json(200, json_pack("{s:s, s:s, s:s, s:b, s:s, s:n}", "status", "ok", "role",
                                    role_of(known), "ha_state", "serving", "service_ready", 1,
                                    "leader_address", known->options.directory, "view_version"));
}

static void
role(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    (void)asked;
    tell_line(told, 200, role_of(known));
}

static void
ha_status(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    (void)known;
    (void)asked;
    tell_line(told, 200, "serving");
}

static void
leader(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    (void)asked;
    *told = yb_http_json(200, json_pack("{s:b, s:s, s:n}", "present", 1, "leader_address",
                                        known->options.directory, "view_version"));
}

static void
kv_events(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    (void)known;
    (void)asked;
    *told = yb_http_json(200, json_pack("{s:b, s:i, s:i, s:i, s:i}", "enabled", 0,
                                        "published_batches", 0, "published_events", 0,
                                        "dropped_events", 0, "skipped_unparsed_keys", 0));
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* A key without the blanks around it; "" if there is none. */
static void
read_key(const struct yb_http_asked *asked, char key_out[YB_METADATA_KEY_MAX + 1])
{
    const char *given = yb_http_argument(asked, "key");
    size_t length;

    key_out[0] = '\0';
    if (given == NULL) {
        return;
    }
    given += strspn(given, " \t\r\n");
    length = strlen(given);
    while (length > 0 && strchr(" \t\r\n", given[length - 1]) != NULL) {
        length--;
    }
    if (length <= YB_METADATA_KEY_MAX) {
        memcpy(key_out, given, length);
        key_out[length] = '\0';
    }
}

static void
put_metadata(struct yb_known_http *known, const char *key, const struct yb_http_asked *asked,
             struct yb_http_told *told)
{
    switch (yb_metadata_put(known->options.metadata, key, asked->body, asked->body_bytes)) {
    case YB_OK: tell_line(told, 200, "metadata updated"); break;
    case YB_EXISTS: tell_line(told, 400, "Duplicate rpc_meta key not allowed"); break;
    case YB_NO_SPACE: tell_line(told, 507, "no room: delete what nobody uses"); break;
    default: tell_line(told, 503, "no memory"); break;
    }
}

static void
metadata(struct yb_known_http *known, const struct yb_http_asked *asked, struct yb_http_told *told)
{
    char key[YB_METADATA_KEY_MAX + 1];

    read_key(asked, key);
    if (key[0] == '\0') {
        tell_line(told, 400, "metadata key is required");
    } else if (strcmp(asked->method, "GET") == 0) {
        enum yb_status status =
            yb_metadata_get(known->options.metadata, key, &told->text, &told->length);

        told->type = JSON_TYPE;
        if (status == YB_NOT_FOUND) {
            told->type = "text/plain; charset=utf-8";
            tell_line(told, 404, "metadata not found");
        }
    } else if (strcmp(asked->method, "PUT") == 0) {
        put_metadata(known, key, asked, told);
    } else if (yb_metadata_delete(known->options.metadata, key) == YB_OK) {
        tell_line(told, 200, "metadata deleted");
    } else {
        tell_line(told, 404, "metadata not found");
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

/* clang-format off */
#define OF_DIRECTORY_MAP(X)                                                                      \
    X(get_all_segments, "GET", "/get_all_segments", "names of the nodes, one a line")           \
    X(get_all_keys, "GET", "/get_all_keys", "keys of the tenant, one a line")                   \
    X(query_key, "GET", "/query_key", "`?key=`: its replicas, as JSON; 404")                    \
    X(batch_query_keys, "GET", "/batch_query_keys",                                             \
      "`?keys=a,b`: the same for up to 64 keys")                                                \
    X(get_segments_detail, "GET", "/get_segments_detail",                                       \
      "name, address, capacity, used and status of each node, as JSON")                         \
    X(query_segment, "GET", "/query_segment", "`?segment=`: used and capacity; 404")            \
    X(segments_status, "GET", "/api/v1/segments/status",                                        \
      "`?segment=`: `OK`, or `UNMOUNTING` of a node that is drained or not heard; 404")         \
    X(summary, "GET", "/metrics/summary", "memory and clients, in one line")                    \
    X(metrics, "GET", "/metrics",                                                               \
      "our metrics, `yuebing_auth_open`, and `master_*`, `segment_*` for boards")               \
    X(role, "GET", "/role", "`leader` for the directory, `client` for a node")                  \
    X(ha_status, "GET", "/ha_status",                                                           \
      "`serving`: there is one directory, which remembers by its cluster file")                 \
    X(leader, "GET", "/leader", "address of the directory")                                     \
    X(kv_events, "GET", "/kv_events/status", "`enabled` is false")                              \
    X(drain_jobs, "POST", "/api/v1/drain_jobs",                                                 \
      "501, with the remedy: `yuebing drain NAME`, which waits for its end")                    \
    X(drain_jobs, "GET", "/api/v1/drain_jobs/query", "the same")                                \
    X(drain_jobs, "POST", "/api/v1/drain_jobs/cancel", "the same")                              \
    X(tenant_quotas, "GET PUT DELETE", "/api/v1/tenant_quotas",                                 \
      "409, as theirs without tenants")                    \
    X(remove_all, "POST", "/api/v1/remove_all",                                                 \
      "removes the tenant's keys (`?force=true`: held ones too); needs the secret, or loopback " \
      "where there is none")
/* clang-format on */

typedef void answer_fn(struct yb_known_http *known, const struct yb_http_asked *asked,
                       struct yb_http_told *told);

static const struct yb_known_path paths[] = {
#define X(function, methods, path, help) {methods, path, help},
    OF_DIRECTORY_MAP(X)
#undef X
        {"GET", "/health",
         "200 as long as the process lives: of `mooncake_master` JSON with `status`, `role` and "
         "`service_ready`, of the others `OK`"},
    {"GET PUT DELETE", "/metadata",
     "`?key=`: values of the metadata server; 404 `metadata not found`; 400 for an address "
     "(`rpc_meta`) that is kept already"},
    {NULL, NULL, NULL},
};

static answer_fn *const answers[] = {
#define X(function, methods, path, help) function,
    OF_DIRECTORY_MAP(X)
#undef X
        health,
    metadata,
};

const struct yb_known_path *
yb_known_paths(void)
{
    return paths;
}

/* Whether a word is one of a list with blanks between. */
static bool
names(const char *words, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = words; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

bool
yb_known_http_answer(void *context, const struct yb_http_asked *asked,
                     struct yb_http_told *told_out)
{
    struct yb_known_http *known = context;

    for (size_t i = 0; paths[i].path != NULL; i++) {
        const bool small = answers[i] == health || answers[i] == metadata;
        const bool head =
            strcmp(asked->method, "HEAD") == 0 && strcmp(paths[i].methods, "GET") == 0;

        if (strcmp(paths[i].path, asked->path) != 0 ||
            (!small && known->options.directory == NULL) ||
            (answers[i] == metadata && known->options.metadata == NULL)) {
            continue;
        }
        if (head || names(paths[i].methods, asked->method)) {
            answers[i](known, asked, told_out);
        } else {
            tell_line(told_out, 405, "method not allowed");
        }
        return true;
    }
    return false;
}
