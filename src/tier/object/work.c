/* SPDX-License-Identifier: Apache-2.0
 *
 * Who goes next, what is tried again, and when it is enough.
 */
#include <string.h>

#include "base/check.h"
#include "tier/object/object_internal.h"

#define P95_EVERY    64u /* Loads between two looks at the histogram. */
#define AVERAGE_PART 8u  /* A new value counts for one in so many. */
#define LATELY_NS    YB_NS_PER_S

static const uint64_t share_permille[YB_CLASS_COUNT] = {
    [YB_CLASS_THROUGHPUT] = YB_OBJECT_SHARE_THROUGHPUT,
    [YB_CLASS_BACKGROUND] = YB_OBJECT_SHARE_BACKGROUND,
};

/* ---- classes --------------------------------------------------------------------------------- */

/* Which way the bytes go that a work asks for next; NULL: it asks for none. */
static struct way *
way_of(const struct work *work)
{
    struct object_tier *object = work->tier;

    return work->stage == STAGE_PUT                                ? &object->to
           : work->stage == STAGE_GET || work->stage == STAGE_TAIL ? &object->from
                                                                   : NULL;
}

static bool
was_asked_lately(const struct object_tier *object, uint32_t traffic_class)
{
    uint64_t asked_ns = object->asked_ns[traffic_class];

    return asked_ns != 0 && yb_loop_now(object->loop) - asked_ns < LATELY_NS;
}

/* Somebody asks for bytes; who is below holds back from now on. */
static void
note_asked(struct work *work)
{
    struct object_tier *object = work->tier;
    uint64_t now = yb_loop_now(object->loop);
    enum yb_class traffic_class = work->item.traffic_class;

    if (work->op == NULL || way_of(work) == NULL) {
        return;
    }
    if (!was_asked_lately(object, traffic_class)) {
        yb_tier_fill_try(&object->from.fill, object->from.bytes, now);
        yb_tier_fill_try(&object->to.fill, object->to.bytes, now);
    }
    object->asked_ns[traffic_class] = now;
}

static bool
holds_back(const struct object_tier *object, uint32_t traffic_class)
{
    for (uint32_t c = 0; c < traffic_class; c++) {
        if (was_asked_lately(object, c)) {
            return true;
        }
    }
    return false;
}

/* Whether a work's bytes may be under way beside those that are. */
static bool
has_room(const struct work *work)
{
    const struct object_tier *object = work->tier;
    const struct way *way = way_of(work);
    enum yb_class traffic_class = work->item.traffic_class;
    uint64_t size = work->item.cost_bytes;

    return way == NULL || way->bytes == 0 || !holds_back(object, traffic_class) ||
           way->of_class[traffic_class] * 1000 < way->bytes * share_permille[traffic_class] ||
           way->bytes + size <= yb_tier_fill_room(&way->fill, size, yb_loop_now(object->loop));
}

/* Flights that are kept for the other classes. */
static uint32_t
kept_for_others(const struct object_tier *object, uint32_t traffic_class)
{
    uint32_t kept = 0;

    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        if (c != traffic_class && object->flying[c] < object->flying_min[c]) {
            kept += object->flying_min[c] - object->flying[c];
        }
    }
    return kept;
}

/* ---- queue ----------------------------------------------------------------------------------- */

static void
enqueue(struct work *work)
{
    struct object_tier *object = work->tier;

    work->state = WORK_QUEUED;
    note_asked(work);
    yb_object_merge_queue(work);
    work->item.deadline_ns = work->deadline_ns;
    yb_fair_push(&object->fair[work->item.traffic_class], &work->item);
    yb_loop_arm(object->loop, &work->timer, work->deadline_ns);
    yb_loop_defer(object->loop, &object->task);
}

static void
dequeue(struct work *work)
{
    if (work->state == WORK_QUEUED) {
        yb_fair_remove(&work->tier->fair[work->item.traffic_class], &work->item);
        yb_object_merge_unqueue(work);
    }
    yb_loop_disarm(work->tier->loop, &work->timer);
}

void
yb_object_work_join(struct work *work)
{
    YB_ASSERT(work->state == WORK_QUEUED);
    dequeue(work);
    work->state = WORK_FLYING;
    work->flight = NULL;
    work->refly = false;
}

struct work *
yb_object_work_take(struct object_tier *object, const struct work_kind *kind, struct yb_tier_op *op)
{
    struct work *work = object->free_works;

    if (work == NULL ||
        (op == NULL ? object->own_works == OWN_WORKS
                    : object->busy - object->own_works == object->options.operations_max)) {
        return NULL;
    }
    object->free_works = work->next;
    object->busy++;
    object->own_works += op == NULL;
    work->kind = kind;
    work->op = op;
    work->next = NULL;
    work->flight = NULL;
    work->deadline_ns = op == NULL ? YB_NEVER : op->deadline_ns;
    work->attempts = 0;
    work->pack = YB_OBJECT_NO_PACK;
    work->builder = NULL;
    work->sibling = NULL;
    work->cancelled = work->killed = work->sent = work->refly = false;
    work->cursor = NULL;
    work->state = WORK_IDLE;
    work->stage = STAGE_PUT;
    yb_fair_item_init(&work->item, op == NULL ? YB_CLASS_BACKGROUND : op->traffic_class,
                      work->deadline_ns, 0);
    if (op != NULL) {
        op->slot = work;
    }
    return work;
}

void
yb_object_work_queue(struct work *work, enum work_stage stage, uint64_t cost)
{
    work->stage = stage;
    work->item.cost_bytes = cost;
    enqueue(work);
}

struct work *
yb_object_work_start(struct object_tier *object, const struct work_kind *kind,
                     struct yb_tier_op *op, enum work_stage stage, uint64_t cost)
{
    struct work *work = yb_object_work_take(object, kind, op);

    if (work != NULL) {
        yb_object_work_queue(work, stage, cost);
    }
    return work;
}

struct work *
yb_object_work_end_at_once(struct object_tier *object, const struct work_kind *kind,
                           struct yb_tier_op *op, enum yb_status status)
{
    struct work *work = yb_object_work_take(object, kind, op);

    if (work != NULL) {
        yb_object_work_end(work, status);
    }
    return work;
}

void
yb_object_work_end(struct work *work, enum yb_status status)
{
    struct object_tier *object = work->tier;

    YB_ASSERT(work->state != WORK_ENDED);
    yb_loop_disarm(object->loop, &work->timer);
    work->state = WORK_ENDED;
    work->ends = status;
    work->next = NULL;
    *object->ended_tail = work;
    object->ended_tail = &work->next;
    yb_loop_defer(object->loop, &object->task);
}

static void
deliver(struct object_tier *object)
{
    struct work *work;

    while ((work = object->ended) != NULL) {
        struct yb_tier_op *op = work->op;
        enum yb_status status = work->ends;

        object->ended = work->next;
        if (object->ended == NULL) {
            object->ended_tail = &object->ended;
        }
        if (work->kind->over != NULL) {
            work->kind->over(work);
        }
        object->busy--;
        object->own_works -= op == NULL;
        work->state = WORK_FREE;
        work->next = object->free_works;
        object->free_works = work;
        if (op != NULL) {
            op->slot = NULL;
            op->done(op, status);
        }
    }
}

const struct work_kind yb_object_plain_kind = {.name = "plain"};

/* ---- flights --------------------------------------------------------------------------------- */

struct flight *
yb_object_flight_take(struct object_tier *object, struct work *work)
{
    struct flight *flight = object->free_flights;

    object->free_flights = flight->next;
    flight->next = NULL;
    flight->work = work;
    flight->traffic_class = work->item.traffic_class;
    flight->bytes = work->item.cost_bytes;
    object->flying[flight->traffic_class]++;
    object->flying_bytes += flight->bytes;
    object->flights_free--;
    object->stats.flying++;
    return flight;
}

static void
leave_way(struct flight *flight)
{
    if (flight->way != NULL) {
        flight->way->bytes -= flight->way_bytes;
        flight->way->of_class[flight->traffic_class] -= flight->way_bytes;
        flight->way = NULL;
    }
}

void
yb_object_flight_begin(struct flight *flight)
{
    struct object_tier *object = flight->tier;
    enum yb_object_verb verb = flight->request.verb;
    struct way *way = verb == YB_OBJECT_GET   ? &object->from
                      : verb == YB_OBJECT_PUT ? &object->to
                                              : NULL;

    leave_way(flight);
    flight->begun_ns = yb_loop_now(object->loop);
    flight->way = way;
    if (way != NULL) {
        way->begun++;
        flight->way_begun = way->bytes == 0 ? way->begun : 0;
        flight->way_bytes = yb_object_bytes_sum(&flight->request.bytes);
        way->bytes += flight->way_bytes;
        way->of_class[flight->traffic_class] += flight->way_bytes;
    }
}

void
yb_object_flight_free(struct flight *flight)
{
    struct object_tier *object = flight->tier;

    leave_way(flight);
    object->flights_free++;
    object->flying[flight->traffic_class]--;
    object->flying_bytes -= flight->bytes;
    object->stats.flying--;
    flight->work = NULL;
    flight->next = object->free_flights;
    object->free_flights = flight;
    yb_loop_defer(object->loop, &object->task);
}

/* Fill in the request of the work's stage, and hand it over. */
static void
fly(struct work *work, struct flight *flight)
{
    struct object_tier *object = work->tier;
    struct yb_object_request *request = &flight->request;
    uint64_t now = yb_loop_now(object->loop);
    enum yb_status status;

    work->state = WORK_FLYING;
    work->flight = flight;
    flight->member_count = 0;
    flight->hedge = NULL;
    flight->race = RACE_ALONE;
    work->refly = false;
    yb_loop_disarm(object->loop, &work->timer);
    request->done = yb_object_flight_done;
    request->before = NULL;
    request->came = NULL;
    request->after = NULL;
    request->offset = 0;
    request->whole = false;
    request->bytes = (struct yb_object_bytes){0};
    request->cursor = NULL;
    request->deadline_ns = yb_deadline_after(now, object->options.attempt_timeout_ns);
    if (work->deadline_ns < request->deadline_ns) {
        request->deadline_ns = work->deadline_ns;
    }
    work->kind->plan(work, flight);
    object->stats.requests[request->verb]++;
    yb_object_flight_begin(flight);
    status = object->backend->ops->submit(object->backend, request);
    YB_ASSERT(status == YB_OK); /* A backend has room for all flights. */
    if (work->kind == &yb_object_load_kind && work->stage == STAGE_GET) {
        yb_object_hedge_watch(flight);
    }
}

static bool
may_fly(const struct object_tier *object, uint32_t traffic_class)
{
    const struct yb_fair_item *next = yb_fair_peek(&object->fair[traffic_class]);

    return next != NULL && object->flying[traffic_class] < object->flying_max[traffic_class] &&
           object->flights_free > kept_for_others(object, traffic_class) &&
           has_room((const struct work *)next);
}

void
yb_object_pump(struct object_tier *object)
{
    deliver(object);
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        while (may_fly(object, c)) {
            struct work *work = (struct work *)yb_fair_pop(&object->fair[c]);

            yb_object_merge_unqueue(work);
            fly(work, yb_object_flight_take(object, work));
        }
    }
}

/* What a GET tells of the service. */
static void
learn(struct object_tier *object, const struct yb_object_request *request)
{
    uint64_t first_us = request->first_byte_ns / YB_NS_PER_US;
    uint64_t rest_ns = request->total_ns - request->first_byte_ns;
    uint64_t bytes = yb_object_bytes_sum(&request->bytes);

    yb_histogram_record(&object->first_byte_us, first_us);
    yb_histogram_record(&object->transfer_us, rest_ns / YB_NS_PER_US);
    object->info.read_bytes += bytes;
    object->base_us += object->base_us == 0 ? first_us : 0;
    object->base_us = (object->base_us * (AVERAGE_PART - 1) + first_us) / AVERAGE_PART;
    object->load_bytes += object->load_bytes == 0 ? bytes : 0;
    object->load_bytes = (object->load_bytes * (AVERAGE_PART - 1) + bytes) / AVERAGE_PART;
    if (rest_ns > 0 && bytes >= YB_TIER_CHUNK_BYTES) {
        uint64_t rate = (uint64_t)((double)bytes * (double)YB_NS_PER_S / (double)rest_ns);

        object->rate += object->rate == 0 ? rate : 0;
        object->rate = object->rate / AVERAGE_PART * (AVERAGE_PART - 1) + rate / AVERAGE_PART;
    }
    if (++object->since_p95 >= P95_EVERY) {
        object->since_p95 = 0;
        object->p95_ns = yb_histogram_quantile(&object->first_byte_us, 0.95) * YB_NS_PER_US;
    }
}

/* And how much under way is enough for it. */
static void
learn_fill(const struct flight *flight)
{
    uint64_t now = yb_loop_now(flight->tier->loop);
    struct way *way = flight->way;

    yb_tier_fill_ended(&way->fill,
                       &(struct yb_tier_fill_end){
                           .bytes = flight->way_bytes,
                           .took_ns = now - flight->begun_ns,
                           .alone = flight->way_begun == way->begun,
                           .under_way = way->bytes - flight->way_bytes,
                       },
                       now);
}

/* Whatever answers is no nearer than its answers: what is said before the first load. */
static void
learn_distance(struct object_tier *object, const struct yb_object_request *request)
{
    uint64_t us = request->first_byte_ns / YB_NS_PER_US;

    if (us != 0 && (object->asked_us == 0 || us < object->asked_us)) {
        object->asked_us = us;
    }
}

void
yb_object_count(struct object_tier *object, const struct yb_object_request *request,
                enum yb_status status)
{
    yb_object_show_request(object, request, status);
    if (status == YB_OK && ((const struct flight *)request)->way != NULL) {
        learn_fill((const struct flight *)request);
    }
    if (status == YB_OK || status == YB_NOT_FOUND) {
        object->failures = 0;
        learn_distance(object, request);
    }
    if (status == YB_OK && request->verb == YB_OBJECT_GET) {
        learn(object, request);
    } else if (status == YB_OK && request->verb == YB_OBJECT_PUT) {
        object->info.written_bytes += yb_object_bytes_sum(&request->bytes);
        object->info.writes++;
        object->info.syncs++;
    }
    if (status != YB_OK && request->aside) {
        yb_object_step_aside(object, status, request->why);
    }
}

/* The work goes on; the flight is given back, unless the work goes on with it. */
void
yb_object_flight_over(struct flight *flight, enum yb_status status)
{
    const struct yb_object_request *request = &flight->request;
    struct work *work = flight->work;

    work->flight = NULL;
    work->sent = work->sent ||
                 (request->sent &&
                  (status == YB_TIMED_OUT || status == YB_PEER_LOST || status == YB_CANCELLED));
    work->kind->step(work, flight, status);
    if (work->refly && work->state == WORK_FLYING) {
        fly(work, flight);
    } else {
        yb_object_flight_free(flight);
    }
}

void
yb_object_flight_done(struct yb_object_request *request, enum yb_status status)
{
    struct flight *flight = (struct flight *)request;
    struct object_tier *object = flight->tier;

    yb_object_count(object, request, status);
    if (status != YB_OK && request->why[0] != '\0') {
        memcpy(object->last_why, request->why, sizeof(object->last_why));
    }
    if (!yb_object_hedge_ended(flight, status)) {
        yb_object_flight_over(flight, status);
    }
}

/* ---- what comes next ------------------------------------------------------------------------- */

void
yb_object_work_go(struct work *work, enum work_stage stage)
{
    work->stage = stage;
    work->attempts = 0;
    work->refly = true;
}

/* xorshift64*. */
static uint64_t
next_random(struct object_tier *object)
{
    object->random ^= object->random >> 12;
    object->random ^= object->random << 25;
    object->random ^= object->random >> 27;
    return object->random * 2685821657736338717ull;
}

bool
yb_object_work_again(struct work *work, const struct flight *flight, enum yb_status status)
{
    struct object_tier *object = work->tier;
    uint64_t now = yb_loop_now(object->loop);
    uint64_t pause = object->options.pause_ns << work->attempts;
    uint64_t hint = (uint64_t)flight->request.wait_hint_ms * YB_NS_PER_MS;

    if (!yb_object_retryable(status) || work->cancelled || object->aside != YB_OK ||
        object->stopping || ++work->attempts >= ATTEMPTS_MAX) {
        return false;
    }
    pause = pause / 2 + next_random(object) % (pause / 2 + 1);
    pause = pause < hint ? hint : pause;
    if (yb_deadline_after(now, pause) >= work->deadline_ns) {
        return false;
    }
    object->stats.retries++;
    work->state = WORK_WAITING;
    work->again_ns = now + pause;
    yb_loop_arm(object->loop, &work->timer, work->again_ns);
    return true;
}

static bool
reads(enum work_stage stage)
{
    return stage == STAGE_GET || stage == STAGE_TAIL || stage == STAGE_PROBE ||
           stage == STAGE_WAS_KILLED;
}

/* What a work that did not come to its end ends with. */
static enum yb_status
given_up(const struct work *work, enum yb_status status)
{
    if (work->killed) {
        return YB_STALE;
    }
    if (!reads(work->stage) && (work->sent || status == YB_TIMED_OUT) && work->op != NULL) {
        return YB_IN_DOUBT;
    }
    switch (status) {
    case YB_BUSY:
    case YB_DENIED:
    case YB_PEER_LOST:
    case YB_REFUSED: return YB_UNREACHABLE;
    case YB_CANCELLED:
    case YB_TIMED_OUT:
        if (work->cancelled) {
            return YB_CANCELLED;
        }
        return yb_loop_now(work->tier->loop) >= work->deadline_ns ? YB_TIMED_OUT : YB_UNREACHABLE;
    default: return status;
    }
}

void
yb_object_work_fail(struct work *work, enum yb_status status)
{
    struct object_tier *object = work->tier;
    bool nobody = status == YB_UNREACHABLE; /* There is no service at all. */

    status = given_up(work, status);
    if (status == YB_UNREACHABLE && object->aside == YB_OK &&
        (nobody || ++object->failures >= FAILURES_MAX)) {
        yb_object_step_aside(object, status, object->last_why);
    }
    if (work->kind->failed != NULL) {
        work->kind->failed(work);
    }
    yb_object_work_end(work, status);
}

static void
ask_back(struct work *work)
{
    if (work->flight != NULL && work->flight->member_count == 0) {
        yb_object_hedge_ask_back(work->flight);
    }
}

/* The deadline of one that waits, or the end of its pause. */
void
yb_object_work_fired(struct yb_timer *timer)
{
    struct work *work = (struct work *)((uint8_t *)timer - offsetof(struct work, timer));

    if (work->state == WORK_GATHERED) {
        yb_object_pack_leave(work);
    } else if (work->state == WORK_WAITING && work->again_ns < work->deadline_ns) {
        enqueue(work);
    } else if (work->state == WORK_QUEUED || work->state == WORK_WAITING) {
        dequeue(work);
        yb_object_work_fail(work, YB_TIMED_OUT);
    } else if (work->state == WORK_FLYING) { /* Its time was cut meanwhile. */
        ask_back(work);
    }
}

void
yb_object_work_cancel(struct work *work)
{
    work->cancelled = true;
    if (work->state == WORK_GATHERED) {
        yb_object_pack_leave(work);
    } else if (work->state == WORK_QUEUED || work->state == WORK_WAITING) {
        dequeue(work);
        yb_object_work_fail(work, YB_CANCELLED);
    } else if (work->state == WORK_FLYING) {
        ask_back(work);
    }
}

void
yb_object_work_urge(struct work *work, enum yb_class traffic_class, uint64_t deadline_ns)
{
    struct yb_loop *loop = work->tier->loop;

    work->deadline_ns = deadline_ns;
    if (work->state == WORK_QUEUED) {
        dequeue(work);
        work->item.traffic_class = traffic_class;
        enqueue(work);
    } else if (work->state == WORK_WAITING) {
        work->item.traffic_class = traffic_class;
        yb_loop_arm(loop, &work->timer,
                    deadline_ns < work->again_ns ? deadline_ns : work->again_ns);
    } else if (work->state == WORK_FLYING || work->state == WORK_GATHERED) {
        yb_loop_arm(loop, &work->timer, deadline_ns);
    }
}

/* Nobody asks a service that is away: what waits ends now. */
void
yb_object_work_end_waiting(struct object_tier *object, enum yb_status status)
{
    uint32_t count_all = object->options.operations_max + OWN_WORKS;

    for (uint32_t i = 0; i < count_all; i++) {
        struct work *work = &object->works[i];

        if (work->state == WORK_GATHERED) {
            yb_object_pack_leave(work);
        } else if (work->state == WORK_QUEUED || work->state == WORK_WAITING) {
            dequeue(work);
            yb_object_work_fail(work, status);
        }
    }
}
