/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers as callers see them: handles, and the questions that wait for an answer.
 *
 * A question is a record on the asking thread's stack. Its worker answers it by its
 * deadline at the latest, so the asker waits for the answer and for nothing else.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/conn.h"
#include "transfer/engine_internal.h"
#include "transfer/near.h"
#include "transfer/wire/transfer_wire.h"

#define WAIT_STEP_NS  YB_NS_PER_S
#define FENCE_LOOK_NS YB_NS_PER_MS
#define PATH_LOOK_NS  YB_NS_PER_MS

struct question {
    struct yb_mail mail;
    struct yb_transfer *engine;
    struct yb_transfer_worker *worker;
    struct yb_remote *remote;
    uint64_t deadline_ns;
    bool answered; /* Under the engine's lock. */
    enum yb_status status;
    /* ---- what some of them need ---- */
    struct yb_address_list addresses;
    yb_transfer_peer handle;
    struct yb_transfer_probe *probe;
    struct yb_call call;
    struct yb_wire_ping ping;
    uint8_t body[YB_WIRE_PING_BYTES];
    uint8_t reply[YB_WIRE_PING_BYTES];
    uint8_t first[YB_WIRE_FIRST_BYTES];
    struct yb_id identity;
    uint64_t conns_ever; /* Of the worker, when the question reached it. */
    uint64_t inbound_ever;
    struct yb_timer timer;
};

static void
answer(struct question *question, enum yb_status status)
{
    struct yb_transfer *engine = question->engine;

    yb_lock_acquire(&engine->lock);
    question->status = status;
    question->answered = true;
    (void)pthread_cond_broadcast(&engine->changed);
    yb_lock_release(&engine->lock); /* From here on the question is gone. */
}

/* Post a question and wait for its answer. */
static enum yb_status
ask(struct question *question, void (*run)(struct yb_mail *mail))
{
    struct yb_transfer *engine = question->engine;

    yb_mail_init(&question->mail, run);
    yb_mailbox_post_reply(yb_loop_mailbox(question->worker->loop), &question->mail);
    yb_lock_acquire(&engine->lock);
    while (!question->answered) {
        yb_transfer_wait_locked(engine, WAIT_STEP_NS);
    }
    yb_lock_release(&engine->lock);
    return question->status;
}

static struct question *
question_of(struct yb_mail *mail)
{
    return (struct question *)((uint8_t *)mail - offsetof(struct question, mail));
}

/* ---- open and close -------------------------------------------------------------------------- */

struct yb_peer_slot *
yb_transfer_find_peer_locked(struct yb_transfer *engine, yb_transfer_peer peer)
{
    uint32_t index = (uint32_t)peer - 1;

    yb_lock_assert_held(&engine->lock);
    if (index >= YB_TRANSFER_PEERS_MAX || !engine->peers[index].used ||
        engine->peers[index].generation != (uint32_t)(peer >> 32)) {
        return NULL;
    }
    return &engine->peers[index];
}

static void
run_open(struct yb_mail *mail)
{
    struct question *question = question_of(mail);

    answer(question, yb_remote_create(question->worker, question->handle, &question->addresses,
                                      question->identity, &question->remote));
}

/* Take a free slot for a peer. Returns NULL: there is none. */
static struct yb_peer_slot *
take_slot(struct yb_transfer *engine, yb_transfer_peer *handle_out)
{
    struct yb_peer_slot *slot = NULL;

    yb_lock_acquire(&engine->lock);
    for (uint32_t i = 0; i < YB_TRANSFER_PEERS_MAX && slot == NULL; i++) {
        if (!engine->peers[i].used && !engine->peers[i].opening) {
            slot = &engine->peers[i];
            slot->opening = true;
            slot->generation++;
            slot->worker = &engine->workers[i % engine->worker_count];
            *handle_out = (uint64_t)slot->generation << 32 | (i + 1);
        }
    }
    yb_lock_release(&engine->lock);
    return slot;
}

/* Make a peer of what the question names. */
static enum yb_status
open_peer(struct question *question, yb_transfer_peer *peer_out)
{
    struct yb_transfer *engine = question->engine;
    struct yb_peer_slot *slot = take_slot(engine, &question->handle);
    enum yb_status status;

    if (slot == NULL) {
        return YB_TOO_LARGE;
    }
    question->worker = slot->worker;
    status = ask(question, run_open);
    yb_lock_acquire(&engine->lock);
    slot->opening = false;
    slot->used = status == YB_OK;
    slot->remote = question->remote;
    yb_lock_release(&engine->lock);
    if (status == YB_OK) {
        *peer_out = question->handle;
    }
    return status;
}

enum yb_status
yb_transfer_open(struct yb_transfer *engine, const char *address, yb_transfer_peer *peer_out)
{
    struct question question = {.engine = engine};
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    status = yb_endpoint_parse(address, &endpoint, why);
    if (status == YB_OK && !endpoint.has_port) {
        status = YB_INVALID;
    }
    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, 0, &question.addresses, why);
    }
    return status == YB_OK ? open_peer(&question, peer_out) : status;
}

enum yb_status
yb_transfer_open_as(struct yb_transfer *engine, const char *address, struct yb_id identity,
                    yb_transfer_peer *peer_out)
{
    struct question question = {
        .engine = engine,
        .identity = identity,
        .addresses.count = 1,
    };
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    status = yb_address_parse(address, 0, &question.addresses.items[0], why);
    return status == YB_OK ? open_peer(&question, peer_out) : status;
}

static void
run_close(struct yb_mail *mail)
{
    struct question *question = question_of(mail);

    yb_remote_close(question->remote);
    answer(question, YB_OK);
}

enum yb_status
yb_transfer_close(struct yb_transfer *engine, yb_transfer_peer peer)
{
    struct question question = {.engine = engine};
    struct yb_peer_slot *slot;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    yb_lock_acquire(&engine->lock);
    slot = yb_transfer_find_peer_locked(engine, peer);
    if (slot != NULL) {
        question.worker = slot->worker;
        question.remote = slot->remote;
        slot->used = false;
        slot->remote = NULL;
    }
    yb_lock_release(&engine->lock);
    return slot != NULL ? ask(&question, run_close) : YB_CLOSED;
}

/* Fill in who is asked. Returns false: no such peer. */
static bool
aim(struct question *question, yb_transfer_peer peer)
{
    struct yb_transfer *engine = question->engine;
    struct yb_peer_slot *slot;

    yb_lock_acquire(&engine->lock);
    slot = yb_transfer_find_peer_locked(engine, peer);
    if (slot != NULL) {
        question->worker = slot->worker;
        question->handle = peer;
    }
    yb_lock_release(&engine->lock);
    return slot != NULL;
}

/* On the worker: the remote of a question; NULL: it was closed meanwhile. */
static struct yb_remote *
remote_of(struct question *question)
{
    struct yb_remote *remote = question->worker->remotes;

    while (remote != NULL && (remote->handle != question->handle || remote->closing)) {
        remote = remote->next;
    }
    return remote;
}

/* ---- ask: does it live, and which ways lead there -------------------------------------------- */

static void
fill_probe(struct question *question)
{
    struct yb_remote *remote = question->remote;
    struct yb_transfer_probe *probe = question->probe;
    const struct yb_hello_result *result = yb_peer_result(remote->control);

    memset(probe, 0, sizeof(*probe));
    probe->round_trip_ns = question->call.took_ns;
    if (result != NULL) {
        probe->identity = result->identity;
        probe->incarnation = result->incarnation;
        probe->authenticated = result->authenticated;
        memcpy(probe->software, result->software, sizeof(probe->software));
    }
    for (uint32_t i = 0; i < YB_REMOTE_PATHS_MAX && remote->paths[i] != NULL; i++) {
        const struct yb_path *path = remote->paths[i];

        if (path->state == YB_PATH_UP) {
            probe->paths |= path->ops->bit;
        }
        if (path->ops->bit == YB_TRANSFER_PATH_SHM) {
            (void)snprintf(probe->why_not_shm, sizeof(probe->why_not_shm), "%s", path->why);
        }
    }
}

static bool
any_opening(const struct yb_remote *remote)
{
    for (uint32_t i = 0; i < YB_REMOTE_PATHS_MAX && remote->paths[i] != NULL; i++) {
        if (remote->paths[i]->state == YB_PATH_OPENING) {
            return true;
        }
    }
    return false;
}

/* Answer when every path is known to be up or down, so that the first question after open finds
 * out which ways there are. */
static void
answer_probe(struct question *question)
{
    struct yb_remote *remote = question->remote;
    struct yb_loop *loop = question->worker->loop;
    enum yb_status status = question->call.status;

    if (question->call.answered && status == YB_OK && !remote->closing) {
        if (any_opening(remote) && yb_loop_now(loop) < question->deadline_ns) {
            yb_loop_arm(loop, &question->timer, yb_deadline_after(yb_loop_now(loop), PATH_LOOK_NS));
            return;
        }
        fill_probe(question);
    }
    answer(question, status);
    remote->references--;
    yb_remote_check_gone(remote);
}

static void
on_look(struct yb_timer *timer)
{
    answer_probe((struct question *)((uint8_t *)timer - offsetof(struct question, timer)));
}

static void
on_pong(struct yb_call *call)
{
    answer_probe(call->owner);
}

static void
run_ask(struct yb_mail *mail)
{
    struct question *question = question_of(mail);
    struct yb_remote *remote = remote_of(question);
    size_t length = 0;
    enum yb_status status;

    if (remote == NULL) {
        answer(question, YB_CLOSED);
        return;
    }
    YB_ASSERT(yb_wire_ping_encode(&question->ping, question->body, sizeof(question->body),
                                  &length) == YB_OK);
    question->remote = remote;
    question->call = (struct yb_call){
        .type = YB_WIRE_TYPE_PING,
        .lane = YB_WIRE_LANE_CONTROL,
        .fail_fast = true,
        .deadline_ns = question->deadline_ns,
        .body = question->body,
        .body_bytes = (uint32_t)length,
        .reply_body = question->reply,
        .reply_body_room = sizeof(question->reply),
        .done = on_pong,
        .owner = question,
    };
    yb_timer_init(&question->timer, on_look);
    remote->references++;
    status = yb_peer_call(remote->control, &question->call);
    if (status != YB_OK) {
        remote->references--;
        answer(question, status);
    }
}

enum yb_status
yb_transfer_ask(struct yb_transfer *engine, yb_transfer_peer peer, uint64_t timeout_ns,
                struct yb_transfer_probe *probe_out)
{
    struct question question = {
        .engine = engine,
        .deadline_ns = yb_deadline_after(yb_transfer_now(engine), timeout_ns),
        .probe = probe_out,
    };

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    return aim(&question, peer) ? ask(&question, run_ask) : YB_CLOSED;
}

/* ---- first: where a peer's memory begins ----------------------------------------------------- */

static void
on_first(struct yb_call *call)
{
    struct question *question = call->owner;
    struct yb_remote *remote = question->remote;

    answer(question, call->status);
    remote->references--;
    yb_remote_check_gone(remote);
}

static void
run_first(struct yb_mail *mail)
{
    struct question *question = question_of(mail);
    struct yb_remote *remote = remote_of(question);
    enum yb_status status;

    if (remote == NULL) {
        answer(question, YB_CLOSED);
        return;
    }
    question->remote = remote;
    question->call = (struct yb_call){
        .type = YB_WIRE_TRANSFER_TYPE_FIRST,
        .lane = YB_WIRE_LANE_CONTROL,
        .fail_fast = true,
        .deadline_ns = question->deadline_ns,
        .reply_body = question->first,
        .reply_body_room = sizeof(question->first),
        .done = on_first,
        .owner = question,
    };
    remote->references++;
    status = yb_peer_call(remote->control, &question->call);
    if (status != YB_OK) {
        remote->references--;
        answer(question, status);
    }
}

enum yb_status
yb_transfer_first(struct yb_transfer *engine, yb_transfer_peer peer, uint64_t timeout_ns,
                  uint64_t *address_out)
{
    struct question question = {
        .engine = engine,
        .deadline_ns = yb_deadline_after(yb_transfer_now(engine), timeout_ns),
    };
    struct yb_wire_first first;
    enum yb_status status;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    status = aim(&question, peer) ? ask(&question, run_first) : YB_CLOSED;
    if (status == YB_OK) {
        status = yb_wire_first_decode(question.first, question.call.reply_body_bytes, &first, NULL);
    }
    if (status == YB_OK) {
        *address_out = first.address;
    }
    return status;
}

/* ---- drain ----------------------------------------------------------------------------------- */

static void
on_drained(void *owner, enum yb_status status)
{
    answer(owner, status);
}

static void
run_drain(struct yb_mail *mail)
{
    struct question *question = question_of(mail);
    struct yb_remote *remote = remote_of(question);

    if (remote == NULL) {
        answer(question, YB_CLOSED);
        return;
    }
    yb_remote_quiesce(remote, question->deadline_ns, on_drained, question);
}

enum yb_status
yb_transfer_drain(struct yb_transfer *engine, yb_transfer_peer peer, uint64_t timeout_ns)
{
    struct question question = {
        .engine = engine,
        .deadline_ns = yb_deadline_after(yb_transfer_now(engine), timeout_ns),
    };
    enum yb_status status;
    uint64_t ended_as;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    yb_lock_acquire(&engine->lock);
    ended_as = engine->batches_ended; /* The answer says nothing about what is sent from now on. */
    yb_lock_release(&engine->lock);
    status = aim(&question, peer) ? ask(&question, run_drain) : YB_CLOSED;
    if (status == YB_OK) {
        yb_transfer_clear_doubt(engine, peer, ended_as);
    }
    return status;
}

/* ---- fence ----------------------------------------------------------------------------------- */

/* Close what the process had open here, and look again until nothing of that is left. What it opens
 * meanwhile is not looked at: it brings what was sent later, and may come without end. */
static void
look_at_fence(struct question *question)
{
    struct yb_transfer_worker *worker = question->worker;
    uint64_t now = yb_loop_now(worker->loop);

    if (yb_net_close_peer(worker->net, question->identity, question->conns_ever) == 0 &&
        !yb_transfer_inbound_busy(worker, question->identity, question->inbound_ever) &&
        atomic_load(&worker->engine->neighbour.holds) == 0) { /* X2 of across.h */
        answer(question, YB_OK);
    } else if (now >= question->deadline_ns) {
        answer(question, YB_TIMED_OUT);
    } else {
        yb_loop_arm(worker->loop, &question->timer, now + FENCE_LOOK_NS);
    }
}

static void
on_fence_timer(struct yb_timer *timer)
{
    look_at_fence((struct question *)((uint8_t *)timer - offsetof(struct question, timer)));
}

static void
run_fence(struct yb_mail *mail)
{
    struct question *question = question_of(mail);

    yb_timer_init(&question->timer, on_fence_timer);
    question->conns_ever = yb_net_conns_ever(question->worker->net);
    question->inbound_ever = question->worker->inbound_ever;
    look_at_fence(question);
}

enum yb_status
yb_transfer_fence(struct yb_transfer *engine, struct yb_id identity, uint64_t timeout_ns)
{
    uint64_t deadline_ns = yb_deadline_after(yb_transfer_now(engine), timeout_ns);

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    for (uint32_t i = 0; i < engine->worker_count; i++) {
        struct question question = {
            .engine = engine,
            .worker = &engine->workers[i],
            .deadline_ns = deadline_ns,
            .identity = identity,
        };
        enum yb_status status = ask(&question, run_fence);

        if (status != YB_OK) {
            return status;
        }
    }
    return YB_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

struct report {
    struct yb_transfer_worker *worker;
    json_t *peers;
    uint64_t refused[YB_TRANSFER_REFUSALS];
    uint64_t quarantined;
    uint64_t quarantined_ever;
    uint64_t across_slices;
    uint64_t across_bytes;
    uint64_t across_refused;
};

static json_t *
path_json(const struct yb_path *path)
{
    static const char *const states[] = {"opening", "up", "down"};

    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:i}", "path", path->ops->name, "state",
        states[path->state], "why", path->why, "slices", (json_int_t)path->counts.slices,
        "bytes_read", (json_int_t)path->counts.bytes_read, "bytes_written",
        (json_int_t)path->counts.bytes_written, "failures", (json_int_t)path->counts.failures,
        "switches_away", (json_int_t)path->counts.switches_away, "flying", (int)path->flying);
}

static void
run_report(void *context)
{
    struct report *report = context;

    for (uint32_t i = 0; i < YB_TRANSFER_REFUSALS; i++) {
        report->refused[i] += report->worker->refused[i];
    }
    report->quarantined += report->worker->quarantined;
    report->quarantined_ever += report->worker->quarantined_ever;
    report->across_slices += report->worker->across_slices;
    report->across_bytes += report->worker->across_bytes;
    report->across_refused += report->worker->across_refused;
    for (struct yb_remote *remote = report->worker->remotes; remote != NULL;
         remote = remote->next) {
        char address[YB_ADDRESS_TEXT_BYTES];
        json_t *paths = json_array();

        yb_address_format(&remote->addresses.items[0], address);
        for (uint32_t i = 0; i < YB_REMOTE_PATHS_MAX && remote->paths[i] != NULL; i++) {
            (void)json_array_append_new(paths, path_json(remote->paths[i]));
        }
        (void)json_array_append_new(report->peers,
                                    json_pack("{s:I, s:s, s:o}", "peer", (json_int_t)remote->handle,
                                              "address", address, "paths", paths));
    }
}

/* What peers were refused here, by reason. */
static json_t *
refused_json(const struct report *report)
{
    json_t *refused = json_object();

    for (uint32_t i = 0; i < YB_TRANSFER_REFUSALS; i++) {
        if (report->refused[i] > 0) {
            (void)json_object_set_new(refused, yb_status_name((enum yb_status) - (int32_t)i),
                                      json_integer((json_int_t)report->refused[i]));
        }
    }
    return refused;
}

static json_t *
device_json(const struct report *report, const struct yb_memory_counts *counts)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "page_locks",
        (json_int_t)counts->page_locks, "page_locks_failed", (json_int_t)counts->page_locks_failed,
        "copies", (json_int_t)counts->copies, "copied_bytes", (json_int_t)counts->copied_bytes,
        "failures", (json_int_t)counts->failures, "quarantined", (json_int_t)report->quarantined,
        "quarantined_ever", (json_int_t)report->quarantined_ever, "across_slices",
        (json_int_t)report->across_slices, "across_bytes", (json_int_t)report->across_bytes,
        "across_refused", (json_int_t)report->across_refused);
}

/* Consume a document and hand its text out. */
static enum yb_status
text_of(json_t *document, char **text_out)
{
    char *text = document != NULL ? json_dumps(document, JSON_INDENT(2)) : NULL;

    json_decref(document);
    if (text == NULL) {
        return YB_NO_MEMORY;
    }
    *text_out = text;
    return YB_OK;
}

enum yb_status
yb_transfer_stats(struct yb_transfer *engine, char **text_out)
{
    struct yb_memory_counts copies;
    struct report report = {.peers = json_array()};

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    for (uint32_t i = 0; i < engine->worker_count; i++) {
        report.worker = &engine->workers[i];
        yb_worker_run(engine->workers[i].worker, run_report, &report);
    }
    copies = yb_memory_counts(engine->memory);
    return text_of(json_pack("{s:o, s:o, s:o, s:o}", "peers", report.peers, "refused",
                             refused_json(&report), "device", device_json(&report, &copies),
                             "metrics", yb_stats_json(engine->stats)),
                   text_out);
}

enum yb_status
yb_transfer_topology(struct yb_transfer *engine, char **text_out)
{
    char devices[256];
    char address[YB_ADDRESS_TEXT_BYTES];
    json_t *regions = json_array();
    struct yb_region_info *infos;
    uint32_t count;
    uint32_t found;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    count = yb_region_list(engine->regions, NULL, 0);
    infos = calloc(count + 1, sizeof(*infos));
    if (infos == NULL) {
        json_decref(regions);
        return YB_NO_MEMORY;
    }
    found = yb_region_list(engine->regions, infos, count); /* They may have changed meanwhile. */
    count = found < count ? found : count;
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(
            regions,
            json_pack("{s:I, s:I, s:I, s:s, s:i, s:b}", "region", (json_int_t)infos[i].id, "base",
                      (json_int_t)(uintptr_t)infos[i].base, "length", (json_int_t)infos[i].length,
                      "kind", yb_memory_kind_name(infos[i].place.kind), "index",
                      (int)infos[i].place.index, "shared", infos[i].backing.fd >= 0));
    }
    free(infos);
    yb_memory_describe(engine->memory, devices, sizeof(devices));
    yb_address_format(&engine->address, address);
    return text_of(json_pack("{s:s, s:i, s:i, s:s, s:o}", "address", address, "workers",
                             (int)engine->worker_count, "devices",
                             (int)yb_memory_device_count(engine->memory), "memory", devices,
                             "regions", regions),
                   text_out);
}
