/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "conductor/service.h"
#include "daemon/conductor_host.h"
#include "daemon/known_http.h"
#include "daemon/process_internal.h"
#include "daemon/visit.h"
#include "directory/index.h"
#include "directory/wire/directory_wire.h"
#include "observe/dashboard.h"
#include "observe/http.h"
#include "observe/watch.h"

#define STALL_NS         YB_NS_PER_S /* A worker that has not turned for so long is not ready. */
#define CONNECTIONS_MAX  64u
#define CONNECTIONS_MANY 512u /* Routers keep theirs to a conductor open. */

struct yb_admin {
    struct yb_process *process;
    struct yb_roles *roles;
    struct yb_http_source source;
    struct yb_http *http;
    struct yb_watch *watch;
    struct yb_known_http *known;         /* NULL: its paths are not asked for. */
    struct yb_conductor_host *conductor; /* NULL: there is none here. */
    struct yb_dashboard *dashboard;
    char directory[YB_ADDRESS_TEXT_BYTES];
};

/* ---- health --------------------------------------------------------------------------------- */

static bool
allowed(void *context, const char *token, size_t length)
{
    const struct yb_admin *admin = context;

    return admin->process->credentials.auth != NULL &&
           yb_auth_is_admin_token(admin->process->credentials.auth, token, length);
}

/* Whether one role does its work; otherwise `reason_out` is why not. */
static bool
role_ready(const struct yb_role_info *info, uint64_t now_ns, char reason_out[YB_HTTP_REASON_BYTES])
{
    const char *kind = info->directory ? "the " : "node ";

    if (now_ns - info->turned_ns > STALL_NS && now_ns > info->turned_ns) {
        snprintf(reason_out, YB_HTTP_REASON_BYTES, "%s%s has not turned for %" PRIu64 " ms", kind,
                 info->name, (uint64_t)((now_ns - info->turned_ns) / YB_NS_PER_MS));
        return false;
    }
    if (info->directory) {
        if (info->rebuilding) {
            snprintf(reason_out, YB_HTTP_REASON_BYTES,
                     "the directory is rebuilding: it is being told what its nodes hold");
        } else if (info->nodes == 0) { /* Nodes come when it is ready: it does not wait for them. */
            snprintf(reason_out, YB_HTTP_REASON_BYTES,
                     "ready, and no node is there yet: puts wait until one comes");
        }
        return !info->rebuilding;
    }
    if (!info->registered) {
        snprintf(reason_out, YB_HTTP_REASON_BYTES, "%s%s is not registered with the directory",
                 kind, info->name);
        return false;
    }
    if (info->lease_until_ns <= now_ns) {
        snprintf(reason_out, YB_HTTP_REASON_BYTES, "the lease of %s%s is out", kind, info->name);
        return false;
    }
    return true;
}

static bool
ready(void *context, char reason_out[YB_HTTP_REASON_BYTES])
{
    struct yb_admin *admin = context;
    uint64_t now_ns = yb_clock_now(admin->process->clock);

    if (admin->conductor != NULL &&
        !yb_conductor_service_ready(yb_conductor_host_service(admin->conductor))) {
        snprintf(reason_out, YB_HTTP_REASON_BYTES,
                 "the conductor waits for the directory, which knows the names of blocks");
        return false;
    }
    for (uint32_t i = 0; i < yb_roles_count(admin->roles); i++) {
        struct yb_role_info info;

        yb_roles_info(admin->roles, i, &info);
        if (!role_ready(&info, now_ns, reason_out)) {
            return false;
        }
    }
    return true;
}

/* Tiers that have stepped aside. The node serves without them: it is as ready as ever. */
static json_t *
ailments(void *context)
{
    const struct yb_admin *admin = context;
    json_t *why = json_array();

    for (uint32_t i = 0; i < yb_roles_count(admin->roles); i++) {
        struct yb_node_tier_info tiers[YB_NODE_TIERS_MAX];
        uint32_t count = yb_roles_tiers(admin->roles, i, tiers);
        struct yb_role_info info;

        yb_roles_info(admin->roles, i, &info);
        for (uint32_t k = 0; k < count; k++) {
            if (tiers[k].aside != YB_OK) {
                json_array_append_new(why, json_sprintf("node %s: tier %s has stepped aside: %s",
                                                        info.name, yb_wire_tier_name(tiers[k].kind),
                                                        tiers[k].why));
            }
        }
    }
    return why;
}

static enum yb_status
metrics(void *context, char **text_out, size_t *length_out)
{
    const struct yb_admin *admin = context;

    return yb_stats_prometheus_text(admin->process->stats, text_out, length_out);
}

static enum yb_status
config(void *context, json_t **out)
{
    const struct yb_admin *admin = context;
    json_t *rows = json_array();

    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];
        char value[YB_CONFIG_TEXT_MAX];
        char origin[YB_CONFIG_ORIGIN_MAX];

        yb_config_value_text(admin->process->config, i, value);
        yb_config_origin_text(admin->process->config, i, origin);
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s}", "section",
                            yb_config_section_name((enum yb_config_section)row->section), "name",
                            row->name, "value", value, "origin", origin));
    }
    *out = json_pack("{s:o}", "parameters", rows);
    return YB_OK;
}

/* Ask the directory as an administrator, or as a client of a tenant. */
static enum yb_status
begin(struct yb_admin *admin, const char *tenant, struct yb_visit *visit)
{
    const struct yb_address where = yb_roles_directory_address(admin->roles);

    return yb_visit_begin(admin->process, &where, tenant, visit);
}

/* ---- the store ------------------------------------------------------------------------------ */

static enum yb_status
ask_members(struct yb_visit *visit, struct yb_wire_members *members_out)
{
    const struct yb_wire_members_question asked = {.known = 0};
    uint8_t body[YB_WIRE_MEMBERS_QUESTION_BYTES];
    size_t length = 0;
    enum yb_status status;

    YB_ASSERT(yb_wire_members_question_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_visit_ask(visit, YB_WIRE_DIRECTORY_TYPE_MEMBERS,
                          (struct yb_visit_body){body, length}, false);
    return status == YB_OK
               ? yb_wire_members_decode(visit->reply, visit->reply_bytes, members_out, NULL)
               : status;
}

static json_t *
padded(const uint8_t *bytes, size_t room)
{
    return json_stringn((const char *)bytes, strnlen((const char *)bytes, room));
}

static json_t *
member_json(const struct yb_wire_member *member)
{
    bool huge_known = member->huge_bytes != UINT64_MAX; /* Its kernel says so. */

    return json_pack("{s:o*, s:o*, s:o*, s:o*, s:s, s:i, s:I, s:I, s:I, s:o, s:I}", "name",
                     padded(member->name, sizeof(member->name)), "address",
                     padded(member->address, sizeof(member->address)), "rack",
                     padded(member->rack, sizeof(member->rack)), "zone",
                     padded(member->zone, sizeof(member->zone)), "state",
                     yb_wire_slot_state_name(member->state), "slot", (int)member->slot,
                     "drain_stuck", (json_int_t)member->drain_stuck, "capacity",
                     (json_int_t)member->capacity, "used", (json_int_t)member->used, "huge_bytes",
                     huge_known ? json_integer((json_int_t)member->huge_bytes) : json_null(),
                     "age_ms", (json_int_t)member->age_ms);
}

static enum yb_status
nodes(void *context, json_t **out)
{
    struct yb_visit visit;
    struct yb_wire_members members;
    enum yb_status status = begin(context, NULL, &visit);

    if (status != YB_OK) {
        return status;
    }
    status = ask_members(&visit, &members);
    if (status == YB_OK) {
        json_t *rows = json_array();

        for (uint32_t i = 0; i < members.members.count; i++) {
            struct yb_wire_member member;

            yb_wire_member_at(&members.members, i, &member);
            json_array_append_new(rows, member_json(&member));
        }
        *out = json_pack("{s:I, s:o}", "epoch", (json_int_t)members.epoch, "nodes", rows);
    }
    yb_visit_end(&visit);
    return status;
}

static const char *
tenant_or_own(const struct yb_admin *admin, const char *tenant)
{
    return tenant != NULL ? tenant : admin->process->config->auth_tenant;
}

/* Learn the seed, and hash a key of a tenant. */
static enum yb_status
hash_key(struct yb_visit *visit, const char *tenant, const char *key, struct yb_id *hash_out)
{
    struct yb_wire_cluster cluster;
    enum yb_status status =
        yb_visit_ask(visit, YB_WIRE_DIRECTORY_TYPE_JOIN, (struct yb_visit_body){NULL, 0}, false);

    if (status == YB_OK) {
        status = yb_wire_cluster_decode(visit->reply, visit->reply_bytes, &cluster, NULL);
    }
    if (status == YB_OK) {
        *hash_out = yb_hash_key(cluster.seed, (struct yb_hash_bytes){tenant, strlen(tenant)},
                                (struct yb_hash_bytes){key, strlen(key)});
    }
    return status;
}

static json_t *
block_json(const struct yb_wire_explanation *known, const char *key)
{
    const uint16_t slots[] = {known->slot0, known->slot1, known->slot2, known->slot3};
    bool there =
        known->presence == YB_WIRE_PRESENCE_PRESENT || known->presence == YB_WIRE_PRESENCE_SUSPECT;
    json_t *where = json_array();

    for (unsigned i = 0; i < 4 && slots[i] != 0; i++) {
        json_array_append_new(where, json_integer(slots[i]));
    }
    return json_pack("{s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:i, s:o}", "key", key, "presence",
                     yb_wire_presence_name(known->presence), "hidden", (int)known->hidden, "fate",
                     there ? "" : yb_wire_fate_name(known->fate), "grant", (json_int_t)known->grant,
                     "bytes_at_most",
                     (json_int_t)(there ? yb_index_size_decode(known->size_code) : 0), "ago_ms",
                     (json_int_t)known->ago_ms, "hold_ms", (json_int_t)known->hold_ms, "replicas",
                     (int)known->count, "slots", where);
}

static enum yb_status
explain(struct yb_visit *visit, struct yb_id hash, struct yb_wire_explanation *known_out)
{
    const struct yb_wire_explain_question asked = {.hash = hash};
    uint8_t body[YB_WIRE_EXPLAIN_QUESTION_BYTES];
    size_t length = 0;
    enum yb_status status;

    YB_ASSERT(yb_wire_explain_question_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_visit_ask(visit, YB_WIRE_DIRECTORY_TYPE_EXPLAIN_KEY,
                          (struct yb_visit_body){body, length}, false);
    return status == YB_OK
               ? yb_wire_explanation_decode(visit->reply, visit->reply_bytes, known_out, NULL)
               : status;
}

static enum yb_status
block(void *context, const char *tenant_given, const char *key, json_t **out)
{
    struct yb_admin *admin = context;
    const char *tenant = tenant_or_own(admin, tenant_given);
    struct yb_wire_explanation known;
    struct yb_id hash;
    struct yb_visit visit;
    enum yb_status status;

    if (!yb_auth_tenant_valid(tenant, strlen(tenant))) {
        return YB_INVALID;
    }
    status = begin(admin, tenant, &visit);
    if (status != YB_OK) {
        return status;
    }
    status = hash_key(&visit, tenant, key, &hash);
    status = status == YB_OK ? explain(&visit, hash, &known) : status;
    if (status == YB_OK) {
        *out = block_json(&known, key);
    }
    yb_visit_end(&visit);
    return status;
}

static enum yb_status
remove_block(void *context, const char *tenant_given, const char *key, bool force)
{
    struct yb_admin *admin = context;
    const char *tenant = tenant_or_own(admin, tenant_given);
    struct yb_wire_hash hash;
    const struct yb_wire_removal asked = {
        .force = force,
        .hashes = {.count = 1, .native = &hash},
    };
    uint8_t body[YB_WIRE_REMOVAL_BYTES + YB_WIRE_HASH_BYTES];
    struct yb_wire_removed removed;
    struct yb_wire_removal_answer answer;
    size_t length = 0;
    struct yb_visit visit;
    enum yb_status status;

    if (!yb_auth_tenant_valid(tenant, strlen(tenant))) {
        return YB_INVALID;
    }
    status = begin(admin, tenant, &visit);
    if (status != YB_OK) {
        return status;
    }
    status = hash_key(&visit, tenant, key, &hash.hash);
    if (status == YB_OK) {
        YB_ASSERT(yb_wire_removal_encode(&asked, body, sizeof(body), &length) == YB_OK);
        status = yb_visit_ask(&visit, YB_WIRE_DIRECTORY_TYPE_REMOVE,
                              (struct yb_visit_body){body, length}, true);
    }
    if (status == YB_OK) {
        status = yb_wire_removed_decode(visit.reply, visit.reply_bytes, &removed, NULL);
    }
    if (status == YB_OK && removed.answers.count == 1) {
        yb_wire_removal_answer_at(&removed.answers, 0, &answer);
        status = (enum yb_status)answer.status;
    }
    yb_visit_end(&visit);
    return status;
}

static enum yb_status
drain(void *context, const char *node, bool draining, bool force)
{
    const struct yb_wire_state_order asked = {
        .state = draining ? YB_WIRE_SLOT_STATE_DRAINING : YB_WIRE_SLOT_STATE_SERVING,
        .force = force,
        .name = {.bytes = node, .length = (uint16_t)strlen(node)},
    };
    uint8_t body[YB_WIRE_STATE_ORDER_BYTES_MAX];
    size_t length = 0;
    struct yb_visit visit;
    enum yb_status status = begin(context, NULL, &visit);

    if (status != YB_OK) {
        return status;
    }
    YB_ASSERT(yb_wire_state_order_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_visit_ask(&visit, YB_WIRE_DIRECTORY_TYPE_SET_STATE,
                          (struct yb_visit_body){body, length}, true);
    yb_visit_end(&visit);
    return status;
}

/* ---- paths of others ------------------------------------------------------------------------ */

static json_t *
numbers(void *context)
{
    const struct yb_admin *admin = context;

    return yb_stats_json(admin->process->stats);
}

static enum yb_status
open_watch(struct yb_admin *admin)
{
    struct yb_process *process = admin->process;
    struct yb_watch_options options = {
        .identity = process->self.identity,
        .rings = {process->spans},
        .stats = numbers,
        .context = admin,
        .clock = process->clock,
    };

    options.kind = yb_roles_word(admin->roles, options.name);
    return yb_watch_create(&options, &admin->watch);
}

static bool
other(void *context, const struct yb_http_asked *asked, struct yb_http_told *told_out)
{
    struct yb_admin *admin = context;

    if (yb_watch_answer(admin->watch, asked, told_out) ||
        yb_dashboard_answer(admin->dashboard, asked, told_out)) {
        return true;
    }
    if (admin->conductor != NULL) {
        return yb_conductor_service_answer(yb_conductor_host_service(admin->conductor), asked,
                                           told_out);
    }
    return admin->known != NULL && yb_known_http_answer(admin->known, asked, told_out);
}

/* ---- life ----------------------------------------------------------------------------------- */

static enum yb_status
open_port(struct yb_admin *admin, char why_out[YB_PROCESS_WHY_BYTES])
{
    const struct yb_config *settings = admin->process->config;
    struct yb_http_options options = {
        .insecure = settings->auth_insecure,
        .connections_max = CONNECTIONS_MAX,
        .source = &admin->source,
    };
    struct yb_endpoint_text endpoint;
    struct yb_address_list where;
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status = yb_endpoint_parse(settings->http_listen, &endpoint, why);

    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, YB_PORT_HTTP, &where, why);
    }
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "http.listen: %s", why);
        return status;
    }
    options.address = where.items[0];
    if (admin->conductor != NULL) {
        options.body_max = YB_CONDUCTOR_BODY_MAX;
        options.connections_max = CONNECTIONS_MANY;
    }
    status = yb_http_create(&options, &admin->http, why);
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", why);
    }
    return status;
}

static struct yb_address
loopback_of(const struct yb_address *wildcard)
{
    struct yb_address address = *wildcard;

    address.ip[0] = address.family == YB_ADDRESS_V4 ? 127 : 0;
    address.ip[address.family == YB_ADDRESS_V4 ? 3 : 15] = 1;
    return address;
}

/* Answer the known system's paths, too. */
static bool
open_known(struct yb_admin *admin)
{
    const struct yb_config *settings = admin->process->config;
    struct yb_address where = yb_roles_directory_address(admin->roles);
    struct yb_known_http_options options = {
        .directory = admin->directory,
        .secret_file = settings->auth_secret_file[0] != '\0' ? settings->auth_secret_file : NULL,
        .tenant = settings->auth_tenant,
        .tls = settings->tls_mode == YB_CONFIG_TLS_MODE_ON,
        .stats = admin->process->stats,
        .metadata = admin->process->metadata,
    };
    struct yb_role_info first;

    if (yb_address_is_wildcard(&where)) { /* It is ours: then loopback leads there. */
        where = loopback_of(&where);
    }
    yb_address_format(&where, admin->directory);
    yb_roles_info(admin->roles, 0, &first);
    options.leads = first.directory;
    admin->known = yb_known_http_create(&options);
    return admin->known != NULL;
}

/* Let the dashboard ask our own port like any other. */
static enum yb_status
begin_dashboard(struct yb_admin *admin, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_address self = yb_http_address(admin->http);
    char text[YB_ADDRESS_TEXT_BYTES];

    if (yb_address_is_wildcard(&self)) {
        self = loopback_of(&self);
    }
    yb_address_format(&self, text);
    return yb_dashboard_begin(
        admin->dashboard,
        &(struct yb_gather_options){.self = text, .watch = admin->process->config->http_watch},
        why_out);
}

enum yb_status
yb_admin_create(struct yb_process *process, struct yb_roles *roles, struct yb_admin **admin_out,
                char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_admin *admin = calloc(1, sizeof(*admin));
    enum yb_status status = YB_NO_MEMORY;

    (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
    if (admin == NULL) {
        return YB_NO_MEMORY;
    }
    admin->process = process;
    admin->roles = roles;
    admin->source = (struct yb_http_source){
        .context = admin,
        .secret = process->credentials.auth != NULL,
        .allowed = allowed,
        .ready = ready,
        .ailments = ailments,
        .metrics = metrics,
        .nodes = nodes,
        .config = config,
        .block = block,
        .remove = remove_block,
        .drain = drain,
        .other = other,
        .other_context = admin,
    };
    admin->conductor = process->conductor;
    YB_ASSERT(admin->conductor == NULL || !process->known_paths);
    admin->dashboard = yb_dashboard_create(process->log);
    if (admin->dashboard != NULL && open_watch(admin) == YB_OK &&
        (!process->known_paths || open_known(admin))) {
        status = open_port(admin, why_out);
    }
    if (status == YB_OK) {
        status = begin_dashboard(admin, why_out);
    }
    if (status != YB_OK) {
        yb_admin_destroy(&admin);
        return status;
    }
    *admin_out = admin;
    return YB_OK;
}

void
yb_admin_destroy(struct yb_admin **admin_ref)
{
    struct yb_admin *admin = *admin_ref;

    *admin_ref = NULL;
    if (admin->dashboard != NULL) {
        yb_dashboard_stop(admin->dashboard);
    }
    if (admin->watch != NULL) {
        yb_watch_stop(admin->watch);
    }
    if (admin->http != NULL) {
        yb_http_destroy(&admin->http);
    }
    if (admin->dashboard != NULL) {
        yb_dashboard_destroy(&admin->dashboard);
    }
    if (admin->known != NULL) {
        yb_known_http_destroy(&admin->known);
    }
    if (admin->watch != NULL) {
        yb_watch_destroy(&admin->watch);
    }
    free(admin);
}

struct yb_address
yb_admin_address(const struct yb_admin *admin)
{
    return yb_http_address(admin->http);
}
