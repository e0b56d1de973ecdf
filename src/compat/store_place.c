/* SPDX-License-Identifier: Apache-2.0
 *
 * Where values are: replicas, tasks that copy and move them, and segments given by hand.
 *
 * A task runs on a thread of its own, so that whoever ordered it goes on; there are few at a time.
 * What became of them is remembered for the last ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cpus.h"
#include "client/beside.h"
#include "compat/store_internal.h"
#include "net/net.h"

#define TASK_NS   (30 * YB_NS_PER_S) /* For each copy. */
#define NODES_MAX 1024u

/* ---- who is there -------------------------------------------------------------------------- */

struct members {
    struct yb_client_node *nodes; /* Owned. */
    uint32_t count;
};

static bool
members_init(struct members *members, struct yb_client *client)
{
    members->count = 0;
    members->nodes = calloc(NODES_MAX, sizeof(*members->nodes));
    if (members->nodes == NULL ||
        yb_client_nodes(client, members->nodes, NODES_MAX, &members->count) != YB_OK) {
        members->count = 0;
    }
    members->count = members->count < NODES_MAX ? members->count : NODES_MAX;
    return members->nodes != NULL;
}

static const struct yb_client_node *
member_at(const struct members *members, uint16_t slot)
{
    for (uint32_t i = 0; i < members->count; i++) {
        if (members->nodes[i].slot == slot) {
            return &members->nodes[i];
        }
    }
    return NULL;
}

static const struct yb_client_node *
member_named(const struct members *members, const char *name)
{
    for (uint32_t i = 0; i < members->count; i++) {
        if (strcmp(members->nodes[i].name, name) == 0) {
            return &members->nodes[i];
        }
    }
    return NULL;
}

/* ---- replicas ------------------------------------------------------------------------------ */

/* Find out where some keys are. Their codes and places are written; NULL: no memory. */
static struct yb_client_where *
find(struct yb_client *client, const yb_compat_key *keys, uint32_t count, int32_t *codes)
{
    struct yb_client_where *where = calloc(count, sizeof(*where));
    uint32_t *of = calloc(count, sizeof(*of));
    uint32_t known = 0;

    for (uint32_t i = 0; where != NULL && of != NULL && i < count; i++) {
        bool usable = keys[i].iov_base != NULL && keys[i].iov_len > 0 &&
                      keys[i].iov_len <= YB_CLIENT_KEY_BYTES_MAX;

        codes[i] = YB_COMPAT_INVALID_KEY;
        if (usable) {
            where[known].key = keys[i].iov_base;
            where[known].key_bytes = (uint32_t)keys[i].iov_len;
            of[known++] = i;
        }
    }
    for (uint32_t at = 0; at < known;) {
        uint32_t some = known - at < YB_CLIENT_WHERE_MAX ? known - at : YB_CLIENT_WHERE_MAX;
        enum yb_status status = yb_client_where(client, where + at, some, YB_COMPAT_LOOK_NS);

        for (uint32_t i = at; i < at + some; i++) {
            where[i].status = status != YB_OK ? status : where[i].status;
            codes[of[i]] = yb_compat_code(where[i].status, YB_COMPAT_CALL_READ);
        }
        at += some;
    }
    for (uint32_t i = known; of != NULL && i-- > 0;) { /* Back to the places of their keys. */
        struct yb_client_where one = where[i];

        where[i] = (struct yb_client_where){.status = YB_INVALID};
        where[of[i]] = one;
    }
    if (of == NULL) {
        free(where);
        where = NULL;
    }
    free(of);
    return where;
}

/* Bytes of a value, exactly. */
static uint64_t
exact_size(struct yb_compat_store *store, const yb_compat_key *key, uint64_t rounded)
{
    int64_t size = yb_compat_store_size(store, key);

    return size >= 0 ? (uint64_t)size : rounded;
}

uint32_t
yb_compat_store_replicas(struct yb_compat_store *store, const yb_compat_key *keys, uint32_t count,
                         struct yb_compat_replica *replicas_out, uint32_t room)
{
    struct yb_client *client = yb_compat_store_enter(store);
    struct members members = {0};
    struct yb_client_where *where = NULL;
    int32_t *codes = NULL;
    uint32_t found = 0;

    if (client == NULL) {
        return 0;
    }
    if (count > 0 && members_init(&members, client) &&
        (codes = calloc(count, sizeof(*codes))) != NULL) {
        where = find(client, keys, count, codes);
    }
    for (uint32_t i = 0; where != NULL && i < count; i++) {
        uint64_t size = codes[i] == YB_COMPAT_OK && found < room
                            ? exact_size(store, &keys[i], where[i].size)
                            : where[i].size;

        for (uint32_t k = 0; codes[i] == YB_COMPAT_OK && k < where[i].count; k++) {
            const struct yb_client_node *node = member_at(&members, where[i].slots[k]);

            if (node != NULL && found < room) {
                struct yb_compat_replica *replica = &replicas_out[found];

                *replica = (struct yb_compat_replica){
                    .bytes = size, .key = i, .memory = true, .complete = true};
                (void)snprintf(replica->segment, sizeof(replica->segment), "%s", node->name);
                (void)snprintf(replica->endpoint, sizeof(replica->endpoint), "%s", node->address);
            }
            found += node != NULL ? 1 : 0;
        }
    }
    free(where);
    free(codes);
    free(members.nodes);
    yb_compat_store_leave(store);
    return found;
}

/* Drop one key's replicas on a segment, or on all. */
static int32_t
clear(struct yb_client *client, const struct members *members, const struct yb_client_where *where,
      const char *segment)
{
    int32_t code = YB_COMPAT_REPLICA_NOT_FOUND;

    for (uint32_t i = 0; i < where->count; i++) {
        const struct yb_client_node *node = member_at(members, where->slots[i]);
        enum yb_status status;
        bool dropped;

        if (node == NULL || (segment[0] != '\0' && strcmp(segment, node->name) != 0)) {
            continue;
        }
        status = yb_client_drop_copy(client, where->key, where->key_bytes, node, YB_COMPAT_LOOK_NS,
                                     &dropped);
        if (status != YB_OK) {
            return yb_compat_code(status, YB_COMPAT_CALL_REMOVE);
        }
        if (!dropped) {
            return YB_COMPAT_OBJECT_HAS_LEASE;
        }
        code = YB_COMPAT_OK;
    }
    return code;
}

void
yb_compat_store_replica_clear(struct yb_compat_store *store, const yb_compat_key *keys,
                              uint32_t count, const char *segment, int32_t *codes_out)
{
    struct yb_client *client = yb_compat_store_enter(store);
    struct members members = {0};
    struct yb_client_where *where = NULL;

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    if (client == NULL) {
        return;
    }
    if (count > 0 && segment != NULL && members_init(&members, client)) {
        where = find(client, keys, count, codes_out);
    }
    for (uint32_t i = 0; where != NULL && i < count; i++) {
        if (codes_out[i] == YB_COMPAT_OK) {
            codes_out[i] = clear(client, &members, &where[i], segment);
        }
    }
    free(where);
    free(members.nodes);
    yb_compat_store_leave(store);
}

/* ---- tasks --------------------------------------------------------------------------------- */

struct yb_compat_job {
    struct yb_compat_store *store;
    struct yb_client *client;
    struct yb_compat_task_record *record;
    struct yb_client_where where;
    struct yb_client_node source;
    struct yb_client_node targets[YB_CLIENT_REPLICAS_MAX];
    uint32_t target_count;
    bool move;
    char key[YB_CLIENT_KEY_BYTES_MAX];
};

static uint64_t
wall_ms(void)
{
    return yb_clock_wall(yb_clock_system()) / YB_NS_PER_MS;
}

static void
tell_locked(struct yb_compat_task_record *record, enum yb_compat_task_state state,
            const char *message)
{
    record->task.state = state;
    record->task.updated_ms = wall_ms();
    (void)snprintf(record->task.message, sizeof(record->task.message), "%s", message);
}

/* Copy to every target; then, of a move, away with the source. */
static enum yb_status
run_job(struct yb_compat_job *job)
{
    bool dropped = true;

    for (uint32_t i = 0; i < job->target_count; i++) {
        enum yb_status status =
            yb_client_copy(job->client, &job->where, &job->source, &job->targets[i], TASK_NS);

        if (status != YB_OK && status != YB_EXISTS) {
            return status;
        }
    }
    if (job->move) {
        enum yb_status status = yb_client_drop_copy(
            job->client, job->where.key, job->where.key_bytes, &job->source, TASK_NS, &dropped);

        if (status != YB_OK) {
            return status;
        }
    }
    return dropped ? YB_OK : YB_LEASED; /* It is in two places now. */
}

static void *
job_main(void *context)
{
    struct yb_compat_job *job = context;
    struct yb_compat_store *store = job->store;
    enum yb_status status;

    yb_cpus_as_process();
    yb_lock_acquire(&store->lock);
    tell_locked(job->record, YB_COMPAT_TASK_PROCESSING, "");
    yb_lock_release(&store->lock);
    status = run_job(job);
    yb_lock_acquire(&store->lock);
    tell_locked(job->record, status == YB_OK ? YB_COMPAT_TASK_SUCCESS : YB_COMPAT_TASK_FAILED,
                status == YB_OK ? "" : yb_status_text(status));
    store->task_threads--;
    yb_lock_release(&store->lock);
    free(job);
    yb_compat_store_leave(store); /* Its user since it was ordered: the store is still there. */
    return NULL;
}

/* Take the record of the oldest task that has ended. NULL: too many run. */
static struct yb_compat_task_record *
take_record_locked(struct yb_compat_store *store)
{
    if (store->task_threads >= YB_COMPAT_TASKS_RUNNING_MAX) {
        return NULL;
    }
    for (uint32_t i = 0; i < YB_COMPAT_TASKS_MAX; i++) {
        struct yb_compat_task_record *record =
            &store->tasks[(store->task_next + i) % YB_COMPAT_TASKS_MAX];

        if (!record->used || record->task.state >= YB_COMPAT_TASK_SUCCESS) {
            store->task_next = (store->task_next + i + 1) % YB_COMPAT_TASKS_MAX;
            store->task_threads++;
            return record;
        }
    }
    return NULL;
}

/* Start the job on a thread of its own, which frees it. */
static int32_t
start(struct yb_compat_store *store, struct yb_compat_job *job, uint64_t id_out[2])
{
    struct yb_compat_task task = {
        .move = job->move,
        .state = YB_COMPAT_TASK_PENDING,
        .created_ms = wall_ms(),
        .updated_ms = wall_ms(),
    };
    pthread_attr_t attributes;
    pthread_t thread;
    bool started;

    yb_net_random_system(NULL, task.id, sizeof(task.id));
    yb_lock_acquire(&store->lock);
    job->record = take_record_locked(store);
    if (job->record != NULL) {
        *job->record = (struct yb_compat_task_record){.used = true, .task = task};
        store->users++; /* The thread's. */
    }
    yb_lock_release(&store->lock);
    if (job->record == NULL) {
        return YB_COMPAT_TASK_PENDING_LIMIT_EXCEEDED;
    }
    id_out[0] = task.id[0];
    id_out[1] = task.id[1];
    YB_ASSERT(pthread_attr_init(&attributes) == 0);
    YB_ASSERT(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    started = pthread_create(&thread, &attributes, job_main, job) == 0;
    (void)pthread_attr_destroy(&attributes);
    if (started) {
        return YB_COMPAT_OK;
    }
    yb_lock_acquire(&store->lock);
    tell_locked(job->record, YB_COMPAT_TASK_FAILED, "no thread could be started");
    store->task_threads--;
    yb_lock_release(&store->lock);
    yb_compat_store_leave(store);
    return YB_COMPAT_INTERNAL_ERROR;
}

/* Find the nodes that are named. */
static int32_t
find_nodes(struct yb_compat_job *job, const struct members *members, const char *source,
           const char *const *targets)
{
    const struct yb_client_node *from = NULL;

    for (uint32_t i = 0; i < job->where.count && from == NULL; i++) {
        from = member_at(members, job->where.slots[i]);
        if (from != NULL && source != NULL && strcmp(from->name, source) != 0) {
            from = NULL;
        }
    }
    if (source != NULL && member_named(members, source) == NULL) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    if (from == NULL) {
        return YB_COMPAT_REPLICA_NOT_FOUND;
    }
    job->source = *from;
    for (uint32_t i = 0; targets[i] != NULL; i++) {
        const struct yb_client_node *to = member_named(members, targets[i]);

        if (to == NULL || i == YB_CLIENT_REPLICAS_MAX) {
            return YB_COMPAT_INVALID_PARAMS;
        }
        job->targets[job->target_count++] = *to;
    }
    return job->target_count > 0 ? YB_COMPAT_OK : YB_COMPAT_INVALID_PARAMS;
}

int32_t
yb_compat_store_task(struct yb_compat_store *store, const yb_compat_key *key, const char *source,
                     const char *const *targets, uint64_t id_out[2])
{
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_compat_job *job = NULL;
    struct yb_client_where *where = NULL;
    struct members members = {0};
    int32_t code = YB_COMPAT_INVALID_PARAMS;

    id_out[0] = id_out[1] = 0;
    if (client == NULL) {
        return code;
    }
    if (targets != NULL && members_init(&members, client) &&
        (job = calloc(1, sizeof(*job))) != NULL) {
        where = find(client, key, 1, &code);
    }
    if (where != NULL && code == YB_COMPAT_OK) {
        *job = (struct yb_compat_job){
            .store = store, .client = client, .where = *where, .move = source != NULL};
        memcpy(job->key, where->key, where->key_bytes);
        job->where.key = job->key;
        code = find_nodes(job, &members, source, targets);
    }
    if (where != NULL && code == YB_COMPAT_OK) {
        code = start(store, job, id_out);
        job = code == YB_COMPAT_OK ? NULL : job;
    }
    free(job);
    free(where);
    free(members.nodes);
    yb_compat_store_leave(store);
    return code;
}

int32_t
yb_compat_store_task_query(struct yb_compat_store *store, const uint64_t id[2],
                           struct yb_compat_task *task_out)
{
    int32_t code = YB_COMPAT_TASK_NOT_FOUND;

    *task_out = (struct yb_compat_task){0};
    if (yb_compat_store_enter(store) == NULL) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    yb_lock_acquire(&store->lock);
    for (uint32_t i = 0; i < YB_COMPAT_TASKS_MAX; i++) {
        const struct yb_compat_task_record *record = &store->tasks[i];

        if (record->used && record->task.id[0] == id[0] && record->task.id[1] == id[1]) {
            *task_out = record->task;
            code = YB_COMPAT_OK;
        }
    }
    yb_lock_release(&store->lock);
    yb_compat_store_leave(store);
    return code;
}

/* ---- segments given by hand ---------------------------------------------------------------- */

int32_t
yb_compat_store_mount(struct yb_compat_store *store, uint64_t bytes, char name_out[64])
{
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_node_embedded *node = NULL;
    struct yb_node_standing standing;
    bool kept = false;
    int32_t code;

    name_out[0] = '\0';
    if (client == NULL) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    code =
        bytes > 0 ? yb_compat_segment_open(store, client, bytes, &node) : YB_COMPAT_INVALID_PARAMS;
    if (code == YB_COMPAT_OK) {
        yb_node_state(node, &standing);
        yb_lock_acquire(&store->lock);
        for (uint32_t i = 1; i < YB_COMPAT_SEGMENTS_MAX && !kept; i++) {
            kept = store->segments[i] == NULL;
            store->segments[i] = kept ? node : store->segments[i];
        }
        yb_lock_release(&store->lock);
        (void)snprintf(name_out, 64, "%s", kept ? standing.name : "");
    }
    if (code == YB_COMPAT_OK && !kept) {
        yb_node_close(&node, 0);
        code = YB_COMPAT_INTERNAL_ERROR; /* There are as many as there can be. */
    }
    yb_compat_store_leave(store);
    return code;
}

int32_t
yb_compat_store_unmount(struct yb_compat_store *store, const char *name, uint64_t grace_ms)
{
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_node_embedded *node = NULL;

    if (client == NULL) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    yb_lock_acquire(&store->lock);
    for (uint32_t i = 1; name != NULL && i < YB_COMPAT_SEGMENTS_MAX && node == NULL; i++) {
        struct yb_node_standing standing;

        if (store->segments[i] != NULL) {
            yb_node_state(store->segments[i], &standing);
        }
        if (store->segments[i] != NULL && strcmp(standing.name, name) == 0) {
            node = store->segments[i];
            store->segments[i] = NULL;
        }
    }
    yb_lock_release(&store->lock);
    if (node != NULL) {
        yb_node_close(&node, grace_ms * YB_NS_PER_MS);
        yb_compat_store_leave(store);
        return YB_COMPAT_OK;
    }
    yb_compat_store_leave(store);
    return YB_COMPAT_SEGMENT_NOT_FOUND;
}
