/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory path: how it comes up, goes down and is brought to quiet.
 *
 * Pulls travel on the bulk lane, class by class, of the peer that questions go to. Frames
 * of a lane are carried out in order, each before the next is looked at, so that an answered drain
 * speaks for all pulls before it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "transfer/shm/path_internal.h"

#define OFFER_NS     (5 * YB_NS_PER_S)
#define PAUSE_MIN_NS (100 * YB_NS_PER_MS)
#define PAUSE_MAX_NS (30 * YB_NS_PER_S)

static void make_offer(struct yb_shm_path *path);
static void on_news(void *owner, bool gone);

static struct yb_shm_path *
shm_of(struct yb_path *path)
{
    return (struct yb_shm_path *)path;
}

static struct yb_loop *
loop_of(struct yb_shm_path *path)
{
    return path->base.remote->worker->loop;
}

void
yb_shm_path_check_gone(struct yb_shm_path *path)
{
    if (!path->closing || path->base.flying > 0 || path->offering || path->session != NULL ||
        path->holds > 0) {
        return;
    }
    yb_loop_disarm(loop_of(path), &path->timer);
    yb_loop_undefer(loop_of(path), &path->task);
    if (path->has_tickets) {
        yb_shm_host_give_tickets(path->host, path->ticket_first);
    }
    yb_remote_path_closed(&path->base);
    free(path);
}

/* ---- up and down ----------------------------------------------------------------------------- */

static void
go_down(struct yb_shm_path *path, const char *why)
{
    path->base.state = YB_PATH_DOWN;
    (void)snprintf(path->base.why, sizeof(path->base.why), "%s", why);
}

/* Try again later, each time later. */
static void
pause_offers(struct yb_shm_path *path)
{
    if (path->closing) {
        return;
    }
    yb_loop_arm(loop_of(path), &path->timer,
                yb_deadline_after(yb_loop_now(loop_of(path)), path->pause_ns));
    path->pause_ns = path->pause_ns * 2 < PAUSE_MAX_NS ? path->pause_ns * 2 : PAUSE_MAX_NS;
}

static void
close_session(struct yb_shm_path *path)
{
    if (path->session != NULL && !path->session_closing) {
        path->session_closing = true;
        yb_shm_session_close(path->session);
    }
}

void
yb_shm_path_lost(struct yb_shm_path *path, const char *why)
{
    if (path->base.state == YB_PATH_UP) {
        go_down(path, why);
        yb_shm_catalogue_clear(&path->catalogue);
    }
    close_session(path);
}

/* Say what has to go another way, although the session is UP. */
static void
tell_limits(struct yb_shm_path *path)
{
    const struct yb_shm_session_info *info = &path->info;

    _Static_assert(sizeof(path->base.why) >= sizeof(info->why_no_attach), "a reason fits");
    if (!info->attach) {
        memcpy(path->base.why, info->why_no_attach, sizeof(info->why_no_attach));
    } else {
        (void)snprintf(path->base.why, sizeof(path->base.why), "%s",
                       info->attach_theirs ? ""
                                           : "the peer cannot read this process's memory; its own "
                                             "statistics or `yuebing doctor` there say why");
    }
}

static void
come_up(struct yb_shm_path *path)
{
    path->base.state = YB_PATH_UP;
    tell_limits(path);
    path->pause_ns = PAUSE_MIN_NS;
    yb_shm_catalogue_clear(&path->catalogue);
    if (!path->has_tickets) {
        path->has_tickets = yb_shm_host_take_tickets(path->host, &path->ticket_first) == YB_OK;
    }
    yb_remote_room(&path->base);
}

static void
on_news(void *owner, bool gone)
{
    struct yb_shm_path *path = owner;

    yb_shm_session_info(path->session, &path->info);
    if (gone) {
        yb_shm_session_unref(path->session);
        path->session = NULL;
        path->session_closing = false;
        yb_shm_flight_news(path);
        pause_offers(path);
        yb_shm_path_check_gone(path);
        return;
    }
    if (path->session_closing) {
        return;
    }
    if (path->info.state == YB_SHM_DOWN) {
        if (path->info.process_ended) {
            memset(path->doubts, 0, sizeof(path->doubts)); /* Nothing of it can land. */
        }
        if (path->base.state != YB_PATH_UP) {
            go_down(path, path->info.why);
        }
        yb_shm_path_lost(path, path->info.why);
    } else if (path->info.state == YB_SHM_UP && path->base.state != YB_PATH_UP) {
        come_up(path);
    }
    yb_shm_flight_news(path);
}

/* ---- the offer ------------------------------------------------------------------------------- */

/* Read the answer, and begin to prove. Returns false, with `why`, if it is no. */
static bool
take_answer(struct yb_shm_path *path, char *why)
{
    struct yb_wire_shm_answer answer;
    struct yb_shm_intro theirs = {.tickets = 0};
    struct yb_shm_session_options options = {
        .loop = loop_of(path),
        .tag = path->base.remote->handle,
        .mine = &path->mine,
        .theirs = &theirs,
        .news = on_news,
        .owner = path,
    };
    enum yb_status status =
        yb_wire_shm_answer_decode(path->answer, path->offer.reply_body_bytes, &answer, NULL);

    if (status != YB_OK) {
        (void)snprintf(why, YB_SHM_WHY_BYTES, "the peer's answer cannot be read");
        return false;
    }
    if (answer.name.length == 0) {
        (void)snprintf(why, YB_SHM_WHY_BYTES, "%.*s", (int)answer.why.length, answer.why.bytes);
        return false;
    }
    theirs.token = answer.token;
    theirs.nonce = answer.nonce;
    theirs.page = answer.page;
    theirs.tickets = answer.tickets;
    memcpy(theirs.name, answer.name.bytes, answer.name.length);
    status = yb_shm_session_connect(path->host, &options, &path->session);
    if (status != YB_OK) {
        path->session = NULL;
        (void)snprintf(why, YB_SHM_WHY_BYTES, "no session: %s", yb_status_text(status));
    }
    return status == YB_OK;
}

static void
on_answer(struct yb_call *call)
{
    struct yb_shm_path *path = call->owner;
    char why[YB_SHM_WHY_BYTES];
    bool begun = false;

    path->offering = false;
    if (call->answered && call->status == YB_OK) {
        begun = !path->closing && take_answer(path, why);
    } else if (call->answered && call->status == YB_UNSUPPORTED) {
        (void)snprintf(why, sizeof(why), "the peer does not speak shared memory");
    } else {
        (void)snprintf(why, sizeof(why), "the peer did not say where it lives: %s",
                       yb_status_text(call->status));
    }
    if (!begun && !path->closing) {
        go_down(path, why);
        pause_offers(path);
    }
    yb_shm_path_check_gone(path);
}

static void
make_offer(struct yb_shm_path *path)
{
    struct yb_remote *remote = path->base.remote;
    struct yb_wire_shm_question question = {.boot = yb_shm_host_boot(path->host)};
    char why[YB_SHM_WHY_BYTES];
    size_t length = 0;
    enum yb_status status = yb_shm_host_introduce(path->host, &path->mine, why);

    if (status == YB_OK) {
        question.token = path->mine.token;
        question.nonce = path->mine.nonce;
        question.page = path->mine.page;
        question.tickets = path->mine.tickets;
        YB_ASSERT(yb_wire_shm_question_encode(&question, path->question, sizeof(path->question),
                                              &length) == YB_OK);
        path->offer = (struct yb_call){
            .type = YB_WIRE_TRANSFER_TYPE_SHM_OFFER,
            .class = YB_CLASS_FIRST_TOKEN,
            .lane = YB_WIRE_LANE_CONTROL,
            .fail_fast = true,
            .deadline_ns = yb_deadline_after(yb_loop_now(loop_of(path)), OFFER_NS),
            .body = path->question,
            .body_bytes = (uint32_t)length,
            .reply_body = path->answer,
            .reply_body_room = sizeof(path->answer),
            .done = on_answer,
            .owner = path,
        };
        status = yb_peer_call(remote->control, &path->offer);
        (void)snprintf(why, sizeof(why), "the peer cannot be asked: %s", yb_status_text(status));
    }
    if (status == YB_OK) {
        path->offering = true;
        return;
    }
    go_down(path, why);
    pause_offers(path);
}

static void
on_timer(struct yb_timer *timer)
{
    struct yb_shm_path *path =
        (struct yb_shm_path *)((uint8_t *)timer - offsetof(struct yb_shm_path, timer));

    if (!path->closing && path->session == NULL && !path->offering) {
        make_offer(path);
    }
}

/* ---- the table's functions ------------------------------------------------------------------- */

static void
run_task(struct yb_task *task)
{
    yb_shm_flight_run((struct yb_shm_path *)((uint8_t *)task - offsetof(struct yb_shm_path, task)));
}

static enum yb_status
shm_open(struct yb_remote *remote, struct yb_path **path_out)
{
    struct yb_shm_path *path;

    if (remote->engine->shm == NULL) {
        return YB_UNSUPPORTED;
    }
    path = calloc(1, sizeof(*path));
    if (path == NULL) {
        return YB_NO_MEMORY;
    }
    path->base.ops = &yb_path_shm;
    path->base.remote = remote;
    path->base.state = YB_PATH_OPENING;
    (void)snprintf(path->base.why, sizeof(path->base.why), "the peer is being asked");
    path->host = remote->engine->shm;
    path->pause_ns = PAUSE_MIN_NS;
    path->task.run = run_task;
    yb_timer_init(&path->timer, on_timer);
    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        path->flights[i].path = path;
    }
    make_offer(path);
    *path_out = &path->base;
    return YB_OK;
}

static void
shm_close(struct yb_path *base)
{
    struct yb_shm_path *path = shm_of(base);

    path->closing = true;
    go_down(path, "closed");
    yb_loop_disarm(loop_of(path), &path->timer);
    if (path->offering) {
        yb_peer_cancel(base->remote->control, &path->offer);
    }
    close_session(path);
    path->holds++; /* Flights that end must not free it. */
    yb_shm_flight_news(path);
    path->holds--;
    yb_shm_path_check_gone(path);
}

static bool
shm_serves(const struct yb_path *base, const struct yb_slice *slice)
{
    /* The catalogue remembers where it looked last; nothing else changes. */
    return yb_shm_flight_serves((struct yb_shm_path *)(uintptr_t)base, slice);
}

static enum yb_status
shm_submit(struct yb_path *base, struct yb_slice *slice)
{
    return yb_shm_flight_submit(shm_of(base), slice);
}

static void
shm_cancel(struct yb_path *base, struct yb_slice *slice)
{
    yb_shm_flight_cancel(shm_of(base), slice);
}

void
yb_shm_path_call(struct yb_shm_flight *flight, uint16_t type, uint32_t body_bytes,
                 void (*done)(struct yb_call *call))
{
    const struct yb_slice *slice = flight->slice;

    flight->call = (struct yb_call){
        .type = type,
        .class = slice->queue.traffic_class,
        .lane = YB_WIRE_LANE_BULK,
        .deadline_ns = slice->deadline_ns,
        .trace_id = slice->batch->options.trace_id,
        .parent_span = slice->batch->options.parent_span,
        .body = flight->body,
        .body_bytes = body_bytes,
        .reply_body = flight->reply,
        .reply_body_room = sizeof(flight->reply),
        .done = done,
        .owner = flight,
    };
}

/* ---- quiesce --------------------------------------------------------------------------------- */

struct shm_drain {
    struct yb_shm_path *path;
    void (*done)(void *owner, enum yb_status status);
    void *owner;
    uint32_t left;
    enum yb_status status;
    uint32_t doubts[YB_CLASS_COUNT]; /* When it was asked. */
    struct yb_call calls[YB_CLASS_COUNT];
};

static void
end_drain(struct shm_drain *drain)
{
    struct yb_shm_path *path = drain->path;

    if (--drain->left > 0) {
        return;
    }
    drain->done(drain->owner, drain->status);
    free(drain);
    path->holds--;
    yb_shm_path_check_gone(path);
}

static void
on_drained(struct yb_call *call)
{
    struct shm_drain *drain = call->owner;

    if (call->status != YB_OK) {
        drain->status = call->status;
    } else if (drain->path->doubts[call->class] == drain->doubts[call->class]) {
        drain->path->doubts[call->class] = 0;
    }
    end_drain(drain);
}

static bool
lane_pulls(const struct yb_shm_path *path, enum yb_class class)
{
    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        const struct yb_shm_flight *flight = &path->flights[i];

        if (flight->state == YB_SHM_FLIGHT_PULLING && flight->leader->call.class == class) {
            return true;
        }
    }
    return path->doubts[class] > 0;
}

static void
shm_quiesce(struct yb_path *base, uint64_t deadline_ns,
            void (*done)(void *owner, enum yb_status status), void *owner)
{
    struct yb_shm_path *path = shm_of(base);
    struct shm_drain *drain = calloc(1, sizeof(*drain));

    if (drain == NULL || path->closing) {
        done(owner, drain == NULL ? YB_NO_MEMORY : YB_CLOSED);
        free(drain);
        return;
    }
    *drain = (struct shm_drain){.path = path, .done = done, .owner = owner, .left = 1};
    path->holds++;
    for (uint32_t i = 0; i < YB_CLASS_COUNT; i++) {
        enum yb_status status;

        if (!lane_pulls(path, (enum yb_class)i)) {
            continue; /* Nothing can land. */
        }
        drain->calls[i] = (struct yb_call){
            .type = YB_WIRE_TRANSFER_TYPE_DRAIN,
            .class = (enum yb_class)i,
            .lane = YB_WIRE_LANE_BULK,
            .deadline_ns = deadline_ns,
            .done = on_drained,
            .owner = drain,
        };
        drain->doubts[i] = path->doubts[i];
        drain->left++;
        status = yb_peer_call(base->remote->control, &drain->calls[i]);
        if (status != YB_OK) {
            drain->status = status;
            drain->left--;
        }
    }
    end_drain(drain);
}

const struct yb_path_ops yb_path_shm = {
    .name = "shm",
    .bit = YB_TRANSFER_PATH_SHM,
    .rank = 50,
    .open = shm_open,
    .close = shm_close,
    .serves = shm_serves,
    .submit = shm_submit,
    .cancel = shm_cancel,
    .quiesce = shm_quiesce,
};
