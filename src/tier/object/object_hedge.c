/* SPDX-License-Identifier: Apache-2.0
 *
 * A load that takes longer than most is asked for once more. The second request reads into memory
 * of the tier's own, so that one request at a time can write the caller's (RULES A3):
 *
 *     ALONE --late--> RACING --the first ends well, or for good--> the second is cancelled
 *                       |  +----the second fails---------> ALONE
 *                       |  +----the first fails----------> PARKED --the second fails--> it failed
 *                       |                                    |
 *                       +--the second ends well--> WON       | the second ends well
 *                               (the first is cancelled)     |
 *                                           |                |
 *                                 quiet     +--> CLAIMED <---+   copied and judged by a helper
 *
 * One request more for twenty loads, and a few to begin with, and none while more than half of what
 * may be under way is: a service that is slow because it has too much to do is not helped by more.
 * A load that is late then is looked at again after as long.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tier/object/object_internal.h"

#define CREDIT_PER_LOAD 5u
#define CREDIT_PRICE    100u
#define CREDIT_MAX      (4u * CREDIT_PRICE)
#define LATE_NS_MIN     (2 * YB_NS_PER_MS)

static struct flight *
flight_of_timer(struct yb_timer *timer)
{
    return (struct flight *)((uint8_t *)timer - offsetof(struct flight, late));
}

static struct flight *
flight_of_job(struct yb_helper_job *job)
{
    return (struct flight *)((uint8_t *)job - offsetof(struct flight, claim));
}

static uint64_t
room(const struct object_tier *object)
{
    return object->options.hedge_bytes_max + 2 * EDGE_BYTES + RECORD_BYTES_MAX;
}

/* The second request is over, and its memory free. */
static void
end_hedge(struct flight *hedge)
{
    struct object_tier *object = hedge->tier;

    object->staging_free[object->staging_count++] = hedge->staging;
    hedge->staging = NULL;
    hedge->hedged = NULL;
    yb_object_flight_free(hedge);
}

/* The first goes on without it. */
static void
part(struct flight *flight)
{
    flight->hedge->hedged = NULL;
    flight->hedge = NULL;
    flight->race = RACE_ALONE;
}

/* ---- the winner is copied -------------------------------------------------------------------- */

static void
copy_and_judge(struct yb_helper_job *job)
{
    struct flight *flight = flight_of_job(job);
    struct yb_object_request *request = &flight->request;

    (void)yb_object_bytes_write(&request->bytes, 0, flight->hedge->staging,
                                yb_object_bytes_sum(&request->bytes));
    flight->summed = 0; /* Those were other bytes. */
    flight->verdict = request->after == NULL ? YB_OK : request->after(request);
}

static void
claimed(struct yb_helper_job *job)
{
    struct flight *flight = flight_of_job(job);
    struct flight *hedge = flight->hedge;

    part(flight);
    end_hedge(hedge);
    flight->tier->stats.hedges_won++;
    flight->request.judged = true;
    yb_object_flight_over(flight, flight->verdict);
}

/* The first is quiet. */
static void
claim(struct flight *flight, enum yb_status otherwise)
{
    struct flight *hedge = flight->hedge;

    flight->race = RACE_CLAIMED;
    flight->claim = (struct yb_helper_job){.work = copy_and_judge, .done = claimed};
    if (yb_helper_submit(flight->tier->pool, flight->tier->loop, &flight->claim) != YB_OK) {
        part(flight);
        end_hedge(hedge);
        yb_object_flight_over(flight, otherwise);
    }
}

/* ---- the second request ---------------------------------------------------------------------- */

static void
hedge_done(struct yb_object_request *request, enum yb_status status)
{
    struct flight *hedge = (struct flight *)request;
    struct flight *flight = hedge->hedged;
    struct object_tier *object = hedge->tier;

    yb_object_count(object, request, status);
    if (flight == NULL) {
        end_hedge(hedge);
    } else if (status == YB_OK && flight->race == RACE_PARKED) {
        claim(flight, flight->verdict);
    } else if (status == YB_OK) {
        flight->race = RACE_WON;
        object->backend->ops->cancel(object->backend, &flight->request);
    } else {
        bool parked = flight->race == RACE_PARKED;

        part(flight);
        end_hedge(hedge);
        if (parked) {
            yb_object_flight_over(flight, flight->verdict);
        }
    }
}

static void
race(struct flight *flight)
{
    struct object_tier *object = flight->tier;
    const struct yb_object_request *first = &flight->request;
    struct flight *hedge = yb_object_flight_take(object, flight->work);
    struct yb_object_request *request = &hedge->request;

    object->hedge_credit -= CREDIT_PRICE;
    object->stats.hedges++;
    object->stats.requests[YB_OBJECT_GET]++;
    hedge->staging = object->staging_free[--object->staging_count];
    hedge->hedged = flight;
    hedge->member_count = 0;
    flight->hedge = hedge;
    flight->race = RACE_RACING;
    hedge->merged[0] = (struct iovec){hedge->staging, yb_object_bytes_sum(&first->bytes)};
    request->done = hedge_done;
    request->before = NULL;
    request->came = NULL;
    request->after = NULL;
    request->verb = YB_OBJECT_GET;
    memcpy(request->name, first->name, sizeof(request->name));
    request->offset = first->offset;
    request->whole = first->whole;
    request->bytes = (struct yb_object_bytes){.iov = hedge->merged, .iov_count = 1};
    request->deadline_ns = first->deadline_ns;
    request->cursor = NULL;
    yb_object_flight_begin(hedge);
    YB_ASSERT(object->backend->ops->submit(object->backend, request) == YB_OK);
}

/* Wake up when the load's bytes should have come. */
static void
arm(struct flight *flight)
{
    const struct object_tier *object = flight->tier;
    uint64_t bytes = yb_object_bytes_sum(&flight->request.bytes);
    uint64_t wait_ns = object->p95_ns;

    wait_ns += object->rate == 0
                   ? 0
                   : (uint64_t)((double)bytes * (double)YB_NS_PER_S / (double)object->rate);
    wait_ns = wait_ns < LATE_NS_MIN ? LATE_NS_MIN : wait_ns;
    yb_loop_arm(object->loop, &flight->late, yb_deadline_after(yb_loop_now(object->loop), wait_ns));
}

static bool
is_crowded(const struct object_tier *object, enum yb_class traffic_class)
{
    return 2 * object->flying[traffic_class] > object->flying_max[traffic_class];
}

static void
late(struct yb_timer *timer)
{
    struct flight *flight = flight_of_timer(timer);
    struct object_tier *object = flight->tier;

    if (is_crowded(object, flight->traffic_class)) {
        arm(flight);
    } else if (object->hedge_credit >= CREDIT_PRICE && object->staging_count > 0 &&
               object->free_flights != NULL && !flight->work->cancelled && object->aside == YB_OK) {
        race(flight);
    }
}

/* ---- the first one --------------------------------------------------------------------------- */

/* Whether a second request would be of blocks that are small enough, and have room. */
static bool
is_small(const struct flight *flight)
{
    const struct object_tier *object = flight->tier;
    const struct yb_object_bytes *bytes = &flight->request.bytes;
    uint64_t values = 0;

    for (uint32_t i = 0; i < bytes->iov_count; i++) {
        values += bytes->iov[i].iov_len;
    }
    return values <= object->options.hedge_bytes_max && yb_object_bytes_sum(bytes) <= room(object);
}

/* A load's bytes have been asked for: when are they late? */
void
yb_object_hedge_watch(struct flight *flight)
{
    struct object_tier *object = flight->tier;

    object->hedge_credit += object->hedge_credit < CREDIT_MAX ? CREDIT_PER_LOAD : 0;
    if (object->p95_ns != 0 && is_small(flight)) {
        arm(flight);
    }
}

/* The first request has ended; true: what becomes of its work shows later. */
bool
yb_object_hedge_ended(struct flight *flight, enum yb_status status)
{
    struct object_tier *object = flight->tier;
    struct flight *hedge = flight->hedge;
    bool given_up = flight->work->cancelled && flight->member_count == 0;

    yb_loop_disarm(object->loop, &flight->late);
    if (hedge == NULL) {
        return false;
    }
    if (flight->race == RACE_WON && status != YB_OK && !given_up) {
        claim(flight, status);
        return true;
    }
    if (flight->race == RACE_RACING && yb_object_retryable(status) && status != YB_TIMED_OUT &&
        !given_up) {
        flight->race = RACE_PARKED;
        flight->verdict = status;
        return true;
    }
    if (flight->race == RACE_WON) {
        part(flight);
        end_hedge(hedge);
    } else {
        part(flight);
        object->backend->ops->cancel(object->backend, &hedge->request);
    }
    return false;
}

/* Nobody waits for the flight any more. */
void
yb_object_hedge_ask_back(struct flight *flight)
{
    struct object_tier *object = flight->tier;

    if (flight->race == RACE_PARKED) {
        flight->verdict = YB_CANCELLED;
        object->backend->ops->cancel(object->backend, &flight->hedge->request);
    } else if (flight->race != RACE_CLAIMED) {
        object->backend->ops->cancel(object->backend, &flight->request);
    }
}

/* ---- its memory ------------------------------------------------------------------------------ */

enum yb_status
yb_object_hedge_init(struct object_tier *object)
{
    size_t each = (size_t)(room(object) + 63) / 64 * 64;
    uint8_t *memory = mmap(NULL, HEDGES_MAX * each, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        return YB_NO_MEMORY;
    }
    object->staging = memory;
    object->staging_bytes = HEDGES_MAX * each;
    for (uint32_t i = 0; i < HEDGES_MAX; i++) {
        object->staging_free[object->staging_count++] = memory + i * each;
    }
    return YB_OK;
}

void
yb_object_hedge_fini(struct object_tier *object)
{
    if (object->staging != NULL) {
        (void)munmap(object->staging, object->staging_bytes);
    }
}

void
yb_object_hedge_flight_init(struct flight *flight)
{
    yb_timer_init(&flight->late, late);
}
