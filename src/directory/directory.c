/* SPDX-License-Identifier: Apache-2.0
 *
 * A directory's life, and its table of methods.
 */
#include "directory/directory_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define LEASE_MS_DEFAULT 2000u
#define LEASE_MS_MAX     3600000u
#define RECORDS_DEFAULT  (UINT64_C(16) << 20)
#define WRITES_DEFAULT   65536u
#define EVENTS_DEFAULT   65536u
#define REPAIRS_DEFAULT  64u
#define REPAIRS_CEILING  256u
#define TICKS_PER_LEASE  8u
#define DEFAULT_TENANT   "default"
#define FIRST_EPOCHS     (UINT32_C(1) << 22) /* A quarter: the rest is for later starts. */
#define UNMARKED_EPOCHS  256u /* Starts of a directory that no node with the store has seen. */
#define ROLES_ALL        YB_ROLE_ANY
#define ROLES_NODE       YB_ROLE_BIT(YB_WIRE_ROLE_NODE)
#define ROLES_USERS      (YB_ROLE_BIT(YB_WIRE_ROLE_CLIENT) | YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN))
#define ROLES_DRAIN      (YB_ROLE_BIT(YB_WIRE_ROLE_NODE) | YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN))

static const struct yb_stats_metric directory_metrics[] = {YB_DIRECTORY_STATS(YB_STATS_ROW)};

/* ---- small things ---------------------------------------------------------------------------- */

uint64_t
yb_directory_now(const struct yb_directory *directory)
{
    return yb_loop_now(directory->loop);
}

void
yb_directory_count(struct yb_directory *directory, enum yb_directory_stat stat, uint64_t delta)
{
    if (directory->shard != NULL && delta > 0) {
        yb_stats_add(directory->shard, directory->stats_first + (uint32_t)stat, delta);
    }
}

void
yb_directory_count_status(struct yb_directory *directory, enum yb_directory_stat stat,
                          enum yb_status status)
{
    if (directory->shard != NULL) {
        yb_stats_add_at(directory->shard, directory->stats_first + (uint32_t)stat,
                        yb_stats_status_index(status), 0, 1);
    }
}

void
yb_directory_observe(struct yb_directory *directory, enum yb_directory_stat stat, uint64_t value)
{
    if (directory->shard != NULL) {
        yb_stats_observe(directory->shard, directory->stats_first + (uint32_t)stat, value);
    }
}

static struct yb_directory *
directory_of_growth(struct yb_helper_job *job)
{
    return (struct yb_directory *)((uint8_t *)job - offsetof(struct yb_directory, growth));
}

/* On a helper's thread. */
static void
grow_work(struct yb_helper_job *job)
{
    yb_index_grow_ahead(directory_of_growth(job)->index);
}

static void
grow_done(struct yb_helper_job *job)
{
    directory_of_growth(job)->growing = false;
}

void
yb_directory_grow(struct yb_directory *directory)
{
    if (directory->options.helpers == NULL || directory->growing ||
        !yb_index_growth_due(directory->index)) {
        return;
    }
    directory->growth.work = grow_work;
    directory->growth.done = grow_done;
    directory->growing =
        yb_helper_submit(directory->options.helpers, directory->loop, &directory->growth) == YB_OK;
}

void
yb_directory_reply(struct yb_directory *directory, struct yb_request *request,
                   enum yb_status status, size_t length)
{
    YB_ASSERT(length <= YB_DIRECTORY_BODY_BYTES);
    yb_request_reply(request, status, directory->body, (uint32_t)length, NULL, 0);
}

void
yb_directory_refuse(struct yb_request *request, enum yb_status status)
{
    yb_request_reply(request, status, NULL, 0, NULL, 0);
}

uint32_t
yb_directory_tenant_named(struct yb_directory *directory, const char *name, uint32_t length,
                          bool make)
{
    if (length == 0) {
        name = DEFAULT_TENANT;
        length = sizeof(DEFAULT_TENANT) - 1;
    }
    return make ? yb_tenants_take(directory->tenants, name, length)
                : yb_tenants_find(directory->tenants, name, length);
}

uint32_t
yb_directory_tenant_of(struct yb_directory *directory, const struct yb_request *request, bool make)
{
    const char *name = request->peer->tenant;

    return yb_directory_tenant_named(directory, name, (uint32_t)strlen(name), make);
}

/* ---- what survives --------------------------------------------------------------------------- */

static void
copy_name(char *out, const char *text, size_t room)
{
    (void)snprintf(out, room, "%s", text);
}

/* Add those that are waited for; the one that is coming back is among the members. */
static uint32_t
collect_awaited(struct yb_directory *directory, const struct yb_directory_change *change,
                struct yb_cluster_member *out)
{
    const struct yb_members_awaited *awaited;
    uint32_t count = 0;
    uint32_t all;

    awaited = yb_members_awaited(directory->members, &all);
    for (uint32_t i = 0; i < all && !change->without_awaited; i++) {
        if (awaited[i].over || (change->plan != NULL && change->plan->awaited == i + 1)) {
            continue;
        }
        copy_name(out[count].name, awaited[i].name, sizeof(out[count].name));
        copy_name(out[count].address, awaited[i].address, sizeof(out[count].address));
        out[count].incarnation = awaited[i].incarnation;
        out[count].previous = awaited[i].previous;
        out[count].draining = awaited[i].draining;
        out[count].owes = awaited[i].owes;
        out[count].keeps = awaited[i].keeps;
        count++;
    }
    return count;
}

/* Add those that are away with what they keep, but for the one that comes back. */
static uint32_t
collect_away(struct yb_directory *directory, const struct yb_directory_change *change,
             struct yb_cluster_member *out)
{
    uint32_t all;
    const struct yb_members_away *away = yb_members_away(directory->members, &all);
    uint32_t count = 0;

    for (uint32_t i = 0; i < all; i++) {
        if (change->plan != NULL && change->facts->keeps &&
            strcmp(change->facts->name, away[i].name) == 0) {
            continue;
        }
        copy_name(out[count].name, away[i].name, sizeof(out[count].name));
        copy_name(out[count].address, away[i].address, sizeof(out[count].address));
        out[count].incarnation = away[i].incarnation;
        out[count].owes = away[i].owes || away[i].distrusted;
        out[count].keeps = out[count].away = true;
        count++;
    }
    return count;
}

/* Whether the one that comes, under this name, owes something from before: also if it is not known
 * at all. */
static bool
owed_before(struct yb_directory *directory, const struct yb_members_facts *facts)
{
    struct yb_members_slot *slot = NULL;
    uint32_t count;
    const struct yb_members_away *away = yb_members_away(directory->members, &count);
    bool known = false;

    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(away[i].name, facts->name) == 0) {
            known = true;
            if (away[i].owes || away[i].distrusted) {
                return true;
            }
        }
    }
    while ((slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        if (slot->facts.keeps && slot->state != YB_WIRE_SLOT_STATE_DEAD &&
            strcmp(slot->facts.name, facts->name) == 0) {
            known = true;
            if (slot->owes || slot->distrusted) {
                return true;
            }
        }
    }
    return !known;
}

/* Add the one that is about to be admitted. */
static void
collect_plan(struct yb_directory *directory, const struct yb_directory_change *change,
             struct yb_cluster_member *out)
{
    uint32_t all;
    const struct yb_members_awaited *awaited = yb_members_awaited(directory->members, &all);
    const struct yb_members_slot *slot = yb_members_at(directory->members, change->plan->slot);

    copy_name(out->name, change->facts->name, sizeof(out->name));
    copy_name(out->address, change->facts->address, sizeof(out->address));
    out->incarnation = yb_members_next_incarnation(directory->members);
    out->previous = change->plan->keep ? change->incarnation : 0;
    out->draining = change->plan->continues && slot->draining;
    out->owes = change->plan->continues && slot->owes;
    if (change->plan->awaited != 0) {
        out->draining = awaited[change->plan->awaited - 1].draining;
        out->owes = awaited[change->plan->awaited - 1].owes;
    }
    out->keeps = change->facts->keeps;
    if (out->keeps && !change->plan->continues && change->plan->awaited == 0) {
        out->owes = out->owes || owed_before(directory, change->facts);
    }
}

static uint32_t
collect_members(struct yb_directory *directory, const struct yb_directory_change *change,
                struct yb_cluster_member *out)
{
    struct yb_members_slot *slot = NULL;
    uint32_t count = collect_awaited(directory, change, out);

    count += collect_away(directory, change, out + count);
    while ((slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        bool changing = change->plan != NULL && change->plan->slot == slot->slot;

        if (slot->state == YB_WIRE_SLOT_STATE_DEAD || slot == change->without || changing) {
            continue;
        }
        copy_name(out[count].name, slot->facts.name, sizeof(out[count].name));
        copy_name(out[count].address, slot->facts.address, sizeof(out[count].address));
        out[count].incarnation = slot->incarnation;
        out[count].previous = slot->previous;
        out[count].draining = slot->draining;
        out[count].owes = slot->owes;
        out[count].keeps = slot->facts.keeps;
        count++;
    }
    if (change->plan != NULL) {
        collect_plan(directory, change, &out[count++]);
    }
    return count;
}

static uint32_t
collect_tenants(struct yb_directory *directory, struct yb_cluster_tenant *out)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < yb_tenants_count(directory->tenants); i++) {
        const struct yb_tenant *tenant = yb_tenants_at(directory->tenants, i);

        if (tenant->flush == 0 && tenant->limit == YB_TENANTS_NO_LIMIT) {
            continue;
        }
        copy_name(out[count].name, tenant->name, sizeof(out[count].name));
        out[count].flush = tenant->flush;
        out[count].limit = tenant->limit;
        count++;
    }
    return count;
}

enum yb_status
yb_directory_store(struct yb_directory *directory, const struct yb_directory_change *change)
{
    static const struct yb_directory_change nothing = {.without = NULL};
    struct yb_cluster_state state = {.cluster = directory->cluster, .epoch = directory->epoch};
    char why[512] = "";
    enum yb_status status;
    uint32_t awaited, away;

    change = change != NULL ? change : &nothing;
    state.epoch = change->epoch != 0 ? change->epoch : directory->epoch;
    memcpy(state.seed, directory->seed, sizeof(state.seed));
    (void)yb_members_awaited(directory->members, &awaited);
    (void)yb_members_away(directory->members, &away);
    state.members =
        calloc(awaited + away + yb_members_live(directory->members) + 2, sizeof(*state.members));
    state.tenants = calloc(yb_tenants_count(directory->tenants) + 1, sizeof(*state.tenants));
    if (state.members == NULL || state.tenants == NULL) {
        status = YB_NO_MEMORY;
    } else {
        state.member_count = collect_members(directory, change, state.members);
        state.tenant_count = collect_tenants(directory, state.tenants);
        status = yb_cluster_file_store(directory->file, &state, why, sizeof(why));
    }
    if (status != YB_OK) {
        yb_log_error(directory->options.log, "directory", "the cluster's state is not stored",
                     yb_log_status("status", status), yb_log_str("why", why));
    }
    yb_cluster_state_fini(&state);
    return status;
}

void
yb_directory_rebuild_check(struct yb_directory *directory)
{
    bool was = directory->rebuilding;

    directory->rebuilding = yb_members_rebuilding(directory->members, &directory->rebuilt_permille);
    directory->all_named = yb_members_all_named(directory->members);
    if (was && !directory->rebuilding) {
        yb_log_info(directory->options.log, "directory", "rebuilt",
                    yb_log_u64("members", yb_members_live(directory->members)));
        yb_index_sweep_request(directory->index);
        yb_directory_sweep_soon(directory);
        yb_directory_settles_rebuilt(directory);
    }
}

/* ---- join and numbers ------------------------------------------------------------------------ */

static void
handle_join(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_cluster cluster = {
        .cluster = directory->cluster,
        .epoch = directory->epoch,
        .members_version = yb_members_version(directory->members),
        .lease_ms = directory->options.lease_ms,
        .rebuilding = directory->rebuilding ? 1 : 0,
        .rebuilt_permille = directory->rebuilt_permille,
    };
    size_t length = 0;

    memcpy(cluster.seed, directory->seed, sizeof(cluster.seed));
    YB_ASSERT(yb_wire_cluster_encode(&cluster, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    yb_directory_reply(directory, request, YB_OK, length);
}

static void
handle_stat(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_directory_numbers numbers = {.epoch = directory->epoch};
    struct yb_index_counts counts;
    size_t length = 0;

    yb_index_counts(directory->index, &counts);
    numbers.records = counts.records;
    numbers.records_max = counts.records_max;
    numbers.replicas = counts.replicas;
    numbers.bytes = yb_index_bytes(directory->index);
    numbers.writes = yb_writes_count(directory->writes);
    numbers.lookups = directory->lookups;
    numbers.hits = directory->hits;
    numbers.published = directory->published;
    numbers.removed = directory->removed;
    numbers.events_next = yb_events_next(directory->events);
    numbers.repairs_waiting = directory->repair_count + directory->copying;
    numbers.repaired_bytes = directory->repaired_bytes;
    numbers.repair_blocks_rate = directory->repair_rate.blocks;
    numbers.repair_bytes_rate = directory->repair_rate.bytes;
    numbers.members = yb_members_live(directory->members);
    numbers.rebuilding = directory->rebuilding ? 1 : 0;
    YB_ASSERT(yb_wire_directory_numbers_encode(&numbers, directory->body, YB_DIRECTORY_BODY_BYTES,
                                               &length) == YB_OK);
    yb_directory_reply(directory, request, YB_OK, length);
}

/* ---- the table of methods -------------------------------------------------------------------- */

/*    type           name             roles        mutates body_bytes_max                 handler */
/* clang-format off */
#define METHODS(X)                                                                                 \
    X(JOIN,          "join",          ROLES_ALL,   false,  0,                  handle_join) \
    X(MEMBERS,       "members",       ROLES_ALL,   false,  YB_WIRE_MEMBERS_QUESTION_BYTES_MAX,     \
      yb_directory_handle_members)                                                                 \
    X(REGISTER,      "register",      ROLES_NODE,  false,  YB_WIRE_REGISTER_BYTES_MAX,             \
      yb_directory_handle_register)                                                                \
    X(HEARTBEAT,     "heartbeat",     ROLES_NODE,  false,  YB_WIRE_HEARTBEAT_BYTES_MAX,            \
      yb_directory_handle_heartbeat)                                                               \
    X(PUBLISH,       "publish",       ROLES_NODE,  false,  YB_WIRE_PUBLICATION_BYTES_MAX,          \
      yb_directory_handle_publish)                                                                 \
    X(INTENT,        "intent",        ROLES_USERS, false,  YB_WIRE_INTENTS_BYTES_MAX,              \
      yb_directory_handle_intent)                                                                  \
    X(LOOKUP,        "lookup",        ROLES_ALL,   false,  YB_WIRE_LOOKUP_BYTES_MAX,               \
      yb_directory_handle_lookup)                                                                  \
    X(REMOVE,        "remove",        ROLES_USERS, true,   YB_WIRE_REMOVAL_BYTES_MAX,              \
      yb_directory_handle_remove)                                                                  \
    X(REMOVE_ALL,    "remove_all",    ROLES_USERS, true,   0, yb_directory_handle_remove_all)      \
    X(REPORT,        "report",        ROLES_ALL,   false,  YB_WIRE_REPORTS_BYTES_MAX,              \
      yb_directory_handle_report)                                                                  \
    X(SET_STATE,     "set_state",     ROLES_DRAIN, true,   YB_WIRE_STATE_ORDER_BYTES_MAX,          \
      yb_directory_handle_set_state)                                                               \
    X(EVENTS,        "events",        ROLES_ALL,   false,  YB_WIRE_EVENTS_QUESTION_BYTES_MAX,      \
      yb_directory_handle_events)                                                                  \
    X(SNAPSHOT,      "snapshot",      ROLES_ALL,   false,  YB_WIRE_SNAPSHOT_QUESTION_BYTES_MAX,    \
      yb_directory_handle_snapshot)                                                                \
    X(EXPLAIN_KEY,   "explain_key",   ROLES_ALL,   false,  YB_WIRE_EXPLAIN_QUESTION_BYTES_MAX,     \
      yb_directory_handle_explain)                                                                 \
    X(DIRECTORY_STAT, "directory_stat", ROLES_ALL, false,  0, handle_stat)                         \
    X(DECLINED,      "declined",      ROLES_USERS, false,  YB_WIRE_DECLINES_BYTES_MAX,             \
      yb_directory_handle_declined)                                                                \
    X(EXIST,         "exist",         ROLES_ALL,   false,  YB_WIRE_LOOKUP_BYTES_MAX,               \
      yb_directory_handle_exist)
/* clang-format on */

typedef void handler_fn(struct yb_directory *directory, struct yb_request *request);

static handler_fn *const handlers[YB_DIRECTORY_TYPE_COUNT] = {
#define X(type, name, roles, mutates, bytes, handler) \
    [YB_WIRE_DIRECTORY_TYPE_##type - YB_DIRECTORY_TYPE_FIRST] = (handler),
    METHODS(X)
#undef X
};

static void
handle(void *service, struct yb_request *request)
{
    struct yb_directory *directory = service;

    YB_ASSERT_OBJ(directory, YB_DIRECTORY_MAGIC);
    if (directory->stopping || !directory->started) {
        yb_directory_refuse(request, directory->stopping ? YB_CLOSED : YB_AGAIN);
        return;
    }
    handlers[request->method->type - YB_DIRECTORY_TYPE_FIRST](directory, request);
}

static void
make_service(struct yb_directory *directory)
{
    uint32_t count = 0;

#define X(type_, name_, roles_, mutates_, bytes_, handler_) \
    directory->methods[count++] = (struct yb_method){       \
        .type = YB_WIRE_DIRECTORY_TYPE_##type_,             \
        .name = (name_),                                    \
        .roles = (roles_),                                  \
        .mutates = (mutates_),                              \
        .body_bytes_max = (bytes_),                         \
        .handle = handle,                                   \
    };
    METHODS(X)
#undef X
    YB_ASSERT(count == YB_DIRECTORY_TYPE_COUNT);
    directory->service = (struct yb_service){
        .methods = directory->methods,
        .method_count = count,
        .owner = directory,
    };
}

/* ---- create ---------------------------------------------------------------------------------- */

static bool
fill_options(struct yb_directory_options *options, char *why_out, size_t why_bytes)
{
    options->lease_ms = options->lease_ms != 0 ? options->lease_ms : LEASE_MS_DEFAULT;
    options->records_max = options->records_max != 0 ? options->records_max : RECORDS_DEFAULT;
    options->writes_max = options->writes_max != 0 ? options->writes_max : WRITES_DEFAULT;
    options->events_max = options->events_max != 0 ? options->events_max : EVENTS_DEFAULT;
    options->repairs_max = options->repairs_max != 0 ? options->repairs_max : REPAIRS_DEFAULT;
    if (options->lease_ms < 16 || options->lease_ms > LEASE_MS_MAX) {
        (void)snprintf(why_out, why_bytes, "a lease of %u ms: give one from 16 ms to an hour",
                       options->lease_ms);
        return false;
    }
    if (options->records_max > YB_INDEX_RECORDS_MAX || options->writes_max > YB_WRITES_MAX ||
        options->events_max > YB_EVENTS_MAX ||
        (options->events_max & (options->events_max - 1)) != 0) {
        (void)snprintf(why_out, why_bytes,
                       "too many records, writes or events, or a number of events that is no "
                       "power of two: give smaller ones");
        return false;
    }
    if (options->repairs_max > REPAIRS_CEILING) {
        options->repairs_max = REPAIRS_CEILING;
    }
    return true;
}

static void
draw(struct yb_directory *directory, void *out, size_t bytes)
{
    directory->options.random(directory->options.random_context, out, bytes);
}

/* Go on as a cluster whose file is lost: with epochs, and so grants, that were never given; as for
 * its members, their leases have to pass. */
static enum yb_status
take_known(struct yb_directory *directory, struct yb_cluster_state *state)
{
    const struct yb_directory_known *known = directory->options.known;
    char cluster[33];

    if (known->epoch == 0 || known->epoch >= YB_GRANT_EPOCH_MAX - UNMARKED_EPOCHS) {
        return YB_INVALID;
    }
    *state = (struct yb_cluster_state){
        .cluster = known->cluster,
        .epoch = known->epoch + UNMARKED_EPOCHS,
        .members = calloc(1, sizeof(*state->members)),
        .member_count = 1,
        .tenants = calloc(known->flushed_count + 1, sizeof(*state->tenants)),
        .tenant_count = known->flushed_count,
    };
    if (state->members == NULL || state->tenants == NULL) {
        return YB_NO_MEMORY;
    }
    memcpy(state->seed, known->seed, sizeof(state->seed));
    copy_name(state->members[0].name, "(all of before)", sizeof(state->members[0].name));
    state->members[0].incarnation = yb_grant_make(known->epoch, YB_GRANT_COUNTER_MAX);
    for (uint32_t i = 0; i < known->flushed_count; i++) {
        copy_name(state->tenants[i].name, known->flushed[i].tenant, sizeof(state->tenants[i].name));
        state->tenants[i].flush = known->flushed[i].flush;
        state->tenants[i].limit = YB_CLUSTER_NO_LIMIT;
    }
    yb_id_format(state->cluster, cluster);
    yb_log_warn(directory->options.log, "directory",
                "there is no cluster file: this goes on as the cluster that the object store "
                "names; what nodes had in memory and on their disks is lost",
                yb_log_str("cluster", cluster), yb_log_u64("epoch", state->epoch));
    return YB_OK;
}

/* Take up what the file says, or begin a new cluster. */
static enum yb_status
take_state(struct yb_directory *directory, struct yb_cluster_state *state, char *why_out,
           size_t why_bytes)
{
    enum yb_status status = yb_cluster_file_load(directory->file, state, why_out, why_bytes);
    uint32_t first = 0;

    if (status == YB_NOT_FOUND && directory->options.known != NULL) {
        status = take_known(directory, state);
        if (status != YB_OK) {
            (void)snprintf(why_out, why_bytes,
                           "the cluster of the object store has used up its epochs: begin a new "
                           "one, with another store");
            return status;
        }
    } else if (status == YB_NOT_FOUND) {
        *state = (struct yb_cluster_state){.epoch = 0};
        draw(directory, state->cluster.bytes, sizeof(state->cluster.bytes));
        draw(directory, state->seed, sizeof(state->seed));
        /* Orders for members of the cluster that was here before name its epochs and incarnations.
         * They may still be under way, and must not be taken for ours (RULES A10, H8). */
        draw(directory, &first, sizeof(first));
        state->epoch = first % FIRST_EPOCHS;
        state->cluster.bytes[0] |= yb_id_is_none(state->cluster) ? 1 : 0;
    } else if (status != YB_OK) {
        return status;
    }
    if (state->epoch >= YB_GRANT_EPOCH_MAX) {
        (void)snprintf(why_out, why_bytes, "the cluster has used up its epochs: begin a new one");
        return YB_INVALID;
    }
    directory->cluster = state->cluster;
    memcpy(directory->seed, state->seed, sizeof(directory->seed));
    directory->epoch = state->epoch + 1; /* D1 */
    directory->last_grant = yb_grant_epoch_start(directory->epoch);
    return YB_OK;
}

static enum yb_status
make_tables(struct yb_directory *directory)
{
    const struct yb_directory_options *options = &directory->options;
    struct yb_index_options index = {
        .records_max = (uint32_t)options->records_max,
        .slots_max = YB_MEMBERS_SLOTS_MAX,
        .tenants_max = YB_TENANTS_MAX,
        .parents = options->want_keys,
    };
    struct yb_members_options members = {
        .slots_max = YB_MEMBERS_SLOTS_MAX,
        .live_max = YB_WIRE_MEMBERS_MAX,
        .epoch = directory->epoch,
        .lease_ns = directory->lease_ns,
        .tick_ns = directory->lease_ns / TICKS_PER_LEASE,
    };
    uint64_t seed = 0;
    enum yb_status status;

    draw(directory, &index.seed, sizeof(index.seed));
    draw(directory, &seed, sizeof(seed));
    status = yb_index_create(&index, &directory->index);
    status = status == YB_OK ? yb_members_create(&members, &directory->members) : status;
    status = status == YB_OK ? yb_tenants_create(YB_MEMBERS_SLOTS_MAX, directory->epoch, seed,
                                                 &directory->tenants)
                             : status;
    status =
        status == YB_OK ? yb_writes_create(options->writes_max, seed, &directory->writes) : status;
    status = status == YB_OK
                 ? yb_events_create(options->events_max, options->want_keys, &directory->events)
                 : status;
    status = status == YB_OK ? yb_ghosts_create(YB_DIRECTORY_GHOSTS, &directory->ghosts) : status;
    status =
        status == YB_OK ? yb_kills_create(YB_DIRECTORY_KILLS_MAX, seed, &directory->kills) : status;
    status =
        status == YB_OK ? yb_ghosts_create(YB_DIRECTORY_DECLINED, &directory->declined) : status;
    status = status == YB_OK ? yb_hidden_create(seed, &directory->hidden) : status;
    status = status == YB_OK ? yb_told_create(YB_DIRECTORY_TOLD, &directory->told) : status;
    status = status == YB_OK ? yb_trims_create(YB_DIRECTORY_TRIMS, &directory->trims) : status;
    directory->list = malloc(YB_DIRECTORY_BODY_BYTES);
    directory->body = malloc(YB_DIRECTORY_BODY_BYTES);
    if (status == YB_OK && (directory->list == NULL || directory->body == NULL)) {
        status = YB_NO_MEMORY;
    }
    return status;
}

/* One that was away already. What it owes was only in the memory of the directory before. */
static void
restore_away(struct yb_directory *directory, const struct yb_cluster_member *stored)
{
    struct yb_members_away away = {
        .incarnation = stored->incarnation, .owes = stored->owes, .distrusted = stored->owes};

    copy_name(away.name, stored->name, sizeof(away.name));
    copy_name(away.address, stored->address, sizeof(away.address));
    yb_members_put_away(directory->members, &away);
}

/* Put what was stored into the tables. */
static enum yb_status
restore(struct yb_directory *directory, const struct yb_cluster_state *state)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; status == YB_OK && i < state->tenant_count; i++) {
        const struct yb_cluster_tenant *stored = &state->tenants[i];
        uint32_t tenant =
            yb_tenants_take(directory->tenants, stored->name, (uint32_t)strlen(stored->name));

        if (tenant == YB_TENANTS_NONE) {
            return YB_NO_MEMORY;
        }
        yb_tenants_flush(directory->tenants, tenant, stored->flush, 0);
        status = yb_index_flush(directory->index, tenant, stored->flush);
        if (status == YB_OK && stored->limit != YB_CLUSTER_NO_LIMIT) {
            status = yb_tenants_limit(directory->tenants, tenant, stored->limit);
        }
    }
    for (uint32_t i = 0; status == YB_OK && i < state->member_count; i++) {
        const struct yb_cluster_member *stored = &state->members[i];
        struct yb_members_awaited awaited = {
            .incarnation = stored->incarnation,
            .previous = stored->previous,
            .draining = stored->draining,
            .keeps = stored->keeps,
            .owes = stored->owes,
        };

        if (stored->away) {
            restore_away(directory, stored);
            continue;
        }
        copy_name(awaited.name, stored->name, sizeof(awaited.name));
        copy_name(awaited.address, stored->address, sizeof(awaited.address));
        status = yb_members_await(directory->members, &awaited);
    }
    return status;
}

static enum yb_status
take_limits(struct yb_directory *directory, char *why_out, size_t why_bytes)
{
    const struct yb_directory_options *options = &directory->options;
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; status == YB_OK && i < options->limit_count; i++) {
        const char *name = options->limits[i].tenant;
        uint32_t tenant = YB_TENANTS_NONE;

        if (name[0] != '\0' && strlen(name) <= YB_TENANTS_NAME_BYTES) {
            tenant = yb_tenants_take(directory->tenants, name, (uint32_t)strlen(name));
        }
        if (tenant == YB_TENANTS_NONE) {
            (void)snprintf(why_out, why_bytes,
                           "a limit of tenant \"%.80s\": a name has 1 to %u bytes, and there are "
                           "at most %u tenants",
                           name, YB_TENANTS_NAME_BYTES, YB_TENANTS_MAX);
            return YB_INVALID;
        }
        status = yb_tenants_limit(directory->tenants, tenant, options->limits[i].bytes);
    }
    return status;
}

static void
free_all(struct yb_directory *directory)
{
    yb_directory_ports_free(directory);
    yb_directory_repairs_free(directory);
    if (directory->index != NULL) {
        yb_index_destroy(&directory->index);
    }
    if (directory->members != NULL) {
        yb_members_destroy(&directory->members);
    }
    if (directory->tenants != NULL) {
        yb_tenants_destroy(&directory->tenants);
    }
    if (directory->writes != NULL) {
        yb_writes_destroy(&directory->writes);
    }
    if (directory->events != NULL) {
        yb_events_destroy(&directory->events);
    }
    yb_kills_destroy(&directory->kills);
    if (directory->ghosts != NULL) {
        yb_ghosts_destroy(&directory->ghosts);
    }
    if (directory->declined != NULL) {
        yb_ghosts_destroy(&directory->declined);
    }
    if (directory->hidden != NULL) {
        yb_hidden_destroy(&directory->hidden);
    }
    yb_told_destroy(&directory->told);
    yb_trims_destroy(&directory->trims);
    if (directory->file != NULL) {
        yb_cluster_file_close(&directory->file);
    }
    if (directory->shard != NULL) {
        yb_stats_shard_release(&directory->shard);
    }
    free(directory->list);
    free(directory->body);
    directory->magic = 0;
    free(directory);
}

static enum yb_status
take_stats(struct yb_directory *directory, struct yb_stats *stats)
{
    enum yb_status status = YB_OK;

    if (stats != NULL) {
        status = yb_stats_register(stats, "directory", directory_metrics, YB_DIRECTORY_STAT_COUNT,
                                   &directory->stats_first);
        status = status == YB_OK ? yb_stats_shard_take(stats, &directory->shard) : status;
        status = status == YB_OK || status == YB_NO_MEMORY ? status : YB_INVALID;
    }
    return status;
}

static void
tick_fired(struct yb_timer *timer)
{
    struct yb_directory *directory =
        (struct yb_directory *)((uint8_t *)timer - offsetof(struct yb_directory, tick));

    yb_loop_arm(directory->loop, timer,
                yb_directory_now(directory) + directory->lease_ns / TICKS_PER_LEASE);
    yb_directory_tick(directory);
}

enum yb_status
yb_directory_create(const struct yb_directory_options *options, struct yb_directory **directory_out,
                    char *why_out, size_t why_bytes)
{
    struct yb_directory *directory = calloc(1, sizeof(*directory));
    struct yb_cluster_state state = {.epoch = 0};
    enum yb_status status = YB_INVALID;

    YB_ASSERT(options->random != NULL && why_bytes > 0);
    (void)snprintf(why_out, why_bytes, "no memory for the directory");
    if (directory == NULL) {
        return YB_NO_MEMORY;
    }
    directory->magic = YB_DIRECTORY_MAGIC;
    directory->options = *options;
    if (!fill_options(&directory->options, why_out, why_bytes)) {
        goto out;
    }
    directory->lease_ns = directory->options.lease_ms * YB_NS_PER_MS;
    status = yb_cluster_file_open(options->cluster_file, options->storage, &directory->file,
                                  why_out, why_bytes);
    status = status == YB_OK ? take_state(directory, &state, why_out, why_bytes) : status;
    status = status == YB_OK ? make_tables(directory) : status;
    status = status == YB_OK ? restore(directory, &state) : status;
    status = status == YB_OK ? take_limits(directory, why_out, why_bytes) : status;
    status = status == YB_OK ? take_stats(directory, options->stats) : status;
    if (status == YB_OK) {
        status = yb_directory_store(directory, NULL); /* D1 */
        (void)snprintf(why_out, why_bytes, "%s",
                       status == YB_OK ? "" : "the cluster file cannot be written: see the log");
    }
    if (status == YB_OK) {
        yb_timer_init(&directory->tick, tick_fired);
        yb_timer_init(&directory->sweep, yb_directory_sweep_fired);
        yb_timer_init(&directory->poll_timer, yb_directory_poll_fired);
        directory->poll_task.run = yb_directory_poll_run;
        directory->repair_sweep_ns = YB_NEVER;
        make_service(directory);
        yb_directory_rebuild_check(directory);
    }
out:
    yb_cluster_state_fini(&state);
    if (status != YB_OK) {
        free_all(directory);
        return status;
    }
    *directory_out = directory;
    return YB_OK;
}

/* ---- the rest of its life -------------------------------------------------------------------- */

const struct yb_service *
yb_directory_service(struct yb_directory *directory)
{
    return &directory->service;
}

enum yb_status
yb_directory_start(struct yb_directory *directory, struct yb_net *net)
{
    YB_ASSERT_OBJ(directory, YB_DIRECTORY_MAGIC);
    YB_ASSERT(!directory->started);
    directory->net = net;
    directory->loop = yb_net_loop(net);
    directory->started = true;
    yb_members_begin(directory->members, yb_directory_now(directory));
    yb_loop_arm(directory->loop, &directory->tick,
                yb_directory_now(directory) + directory->lease_ns / TICKS_PER_LEASE);
    yb_log_info(directory->options.log, "directory", "started",
                yb_log_id("cluster", directory->cluster), yb_log_u64("epoch", directory->epoch),
                yb_log_bool("rebuilding", directory->rebuilding));
    return YB_OK;
}

void
yb_directory_stop(struct yb_directory *directory)
{
    YB_ASSERT_OBJ(directory, YB_DIRECTORY_MAGIC);
    if (directory->stopping || !directory->started) {
        directory->stopping = true;
        return;
    }
    directory->stopping = true;
    yb_loop_disarm(directory->loop, &directory->tick);
    yb_loop_disarm(directory->loop, &directory->sweep);
    yb_loop_disarm(directory->loop, &directory->poll_timer);
    yb_loop_undefer(directory->loop, &directory->poll_task);
    for (uint32_t i = 0; i < directory->poll_count; i++) {
        yb_directory_refuse(directory->polls[i].request, YB_CLOSED);
    }
    directory->poll_count = 0;
    yb_directory_ports_stop(directory);
}

bool
yb_directory_idle(const struct yb_directory *directory)
{
    return directory->calls == 0 && directory->settle_count == 0 && !directory->growing;
}

void
yb_directory_destroy(struct yb_directory **directory_ref)
{
    struct yb_directory *directory = *directory_ref;

    YB_ASSERT_OBJ(directory, YB_DIRECTORY_MAGIC);
    YB_ASSERT(yb_directory_idle(directory));
    *directory_ref = NULL;
    free_all(directory);
}

struct yb_id
yb_directory_cluster(const struct yb_directory *directory)
{
    return directory->cluster;
}

uint64_t
yb_directory_seed_check(const struct yb_directory *directory)
{
    struct yb_id check = yb_hash_key(directory->seed, (struct yb_hash_bytes){NULL, 0},
                                     (struct yb_hash_bytes){"seed", 4});
    uint64_t value;

    memcpy(&value, check.bytes, sizeof(value));
    value = le64toh(value);
    return value != 0 ? value : 1;
}

bool
yb_directory_rebuilding(const struct yb_directory *directory)
{
    return directory->rebuilding;
}

uint32_t
yb_directory_nodes(const struct yb_directory *directory)
{
    return yb_members_live(directory->members);
}
