/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/rollout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/agenda.h"
#include "sim/instance.h"
#include "sim/random.h"

#define PIECE_TOKENS 2048u /* Of a prompt beside decode. */

enum event {
    STEP,  /* Of engine `who`, with its stamp. */
    READY, /* The KV of request `who` has come. */
};

struct request {
    struct yb_instance_job job;
    uint32_t group;
    uint32_t length;
    uint32_t generated;
    uint32_t place; /* Of its last chunk; YB_SCHED_NONE: it has had none. */
    uint64_t held;  /* Tokens of room there. */
    bool probe;
};

struct place {
    struct yb_instance instance;
    struct yb_tally gaps;
    uint64_t used;    /* Tokens of KV, with room for the chunks. */
    uint64_t port_ns; /* When what is being pulled will be there. */
    uint32_t in_flight;
};

struct rollout {
    const struct yb_rollout_options *options;
    struct yb_agenda *agenda;
    struct place *places;
    struct request *requests;
    uint32_t request_count;
    struct yb_sched_rollout_group *groups; /* Of ORACLE: one for each request. */
    struct yb_sched_rollout_waiter *waiters;
    uint32_t *waiting; /* Who the waiters are. */
    uint32_t waiting_count;
    uint64_t picks;
    uint32_t ended;
    uint64_t tail_ns; /* When nine of ten had ended. */
    struct yb_rollout_result result;
};

/* ---- lengths --------------------------------------------------------------------------------- */

uint32_t *
yb_rollout_draw(const struct yb_rollout_lengths *wanted)
{
    struct yb_sim_random random = {wanted->seed};
    uint32_t count = wanted->groups * wanted->group_size;
    uint32_t *lengths = calloc(count, sizeof(*lengths));
    double *drawn = calloc(count, sizeof(*drawn));
    double scale = wanted->mean_tokens;
    double mean = 0;

    for (uint32_t i = 0; drawn != NULL && i < count; i++) {
        mean = i % wanted->group_size == 0 ? yb_sim_random_normal(&random) : mean;
        drawn[i] = exp(wanted->sigma * mean + wanted->group_sigma * yb_sim_random_normal(&random));
    }
    for (uint32_t round = 0; drawn != NULL && lengths != NULL && round < 30; round++) {
        double sum = 0;

        for (uint32_t i = 0; i < count; i++) {
            lengths[i] = (uint32_t)fmin(wanted->limit_tokens, 1 + scale * drawn[i]);
            sum += lengths[i];
        }
        scale *= wanted->mean_tokens * count / sum;
    }
    free(drawn);
    if (drawn == NULL) {
        free(lengths);
        return NULL;
    }
    return lengths;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void
rollout_fini(struct rollout *rollout)
{
    for (uint32_t i = 0; rollout->places != NULL && i < rollout->options->places; i++) {
        yb_instance_fini(&rollout->places[i].instance);
    }
    yb_agenda_destroy(&rollout->agenda);
    free(rollout->places);
    free(rollout->requests);
    free(rollout->groups);
    free(rollout->waiters);
    free(rollout->waiting);
}

static enum yb_status
init_places(struct rollout *rollout)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < rollout->options->places && status == YB_OK; i++) {
        struct yb_instance_options options = {.cost = rollout->options->cost,
                                              .chunk_tokens = PIECE_TOKENS,
                                              .batch_max = rollout->options->batch,
                                              .kv_tokens = rollout->options->cost->kv_tokens_max,
                                              .gaps = &rollout->places[i].gaps};

        status = yb_instance_init(&rollout->places[i].instance, &options);
    }
    return status;
}

/* Put a request at the end of those that wait; GROUPED: what was begun goes on first. */
static void
wait_for_chunk(struct rollout *rollout, uint32_t index)
{
    const struct request *request = &rollout->requests[index];
    bool oracle = rollout->options->policy == YB_ROLLOUT_ORACLE;
    uint32_t at = rollout->waiting_count;

    if (rollout->options->policy == YB_ROLLOUT_GROUPED && request->generated > 0) {
        memmove(&rollout->waiting[1], rollout->waiting, at * sizeof(uint32_t));
        memmove(&rollout->waiters[1], rollout->waiters,
                at * sizeof(struct yb_sched_rollout_waiter));
        at = 0;
    }
    rollout->waiting_count++;
    rollout->waiting[at] = index;
    rollout->waiters[at] =
        (struct yb_sched_rollout_waiter){.group = oracle ? index : request->group,
                                         .generated = request->generated,
                                         .probe = request->probe && !oracle};
}

static void
init_requests(struct rollout *rollout)
{
    const struct yb_rollout_options *options = rollout->options;
    bool oracle = options->policy == YB_ROLLOUT_ORACLE;

    for (uint32_t i = 0; i < rollout->request_count; i++) {
        rollout->requests[i] = (struct request){.group = i / options->group_size,
                                                .length = options->lengths[i],
                                                .place = YB_SCHED_NONE,
                                                .probe = i % options->group_size == 0};
        rollout->groups[i].longest = oracle ? options->lengths[i] : options->limit_tokens;
        wait_for_chunk(rollout, i);
    }
}

static enum yb_status
rollout_init(struct rollout *rollout, const struct yb_rollout_options *options)
{
    uint32_t count = options->groups * options->group_size;
    enum yb_status status;

    *rollout = (struct rollout){.options = options, .request_count = count};
    rollout->places = calloc(options->places, sizeof(*rollout->places));
    rollout->requests = calloc(count, sizeof(*rollout->requests));
    rollout->groups = calloc(count, sizeof(*rollout->groups));
    rollout->waiters = calloc(count, sizeof(*rollout->waiters));
    rollout->waiting = calloc(count, sizeof(*rollout->waiting));
    if (rollout->places == NULL || rollout->requests == NULL || rollout->groups == NULL ||
        rollout->waiters == NULL || rollout->waiting == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_agenda_create(&rollout->agenda);
    if (status == YB_OK) {
        status = init_places(rollout);
    }
    if (status == YB_OK) {
        init_requests(rollout);
    }
    return status;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static uint32_t
chunk_of(const struct rollout *rollout, const struct request *request)
{
    uint32_t left = request->length - request->generated;

    return left < rollout->options->chunk_tokens ? left : rollout->options->chunk_tokens;
}

/* Room is taken for a whole chunk, as nobody knows whether it will be needed. */
static uint64_t
room_of(const struct rollout *rollout, const struct request *request)
{
    return (uint64_t)rollout->options->prompt_tokens + request->generated +
           rollout->options->chunk_tokens;
}

static uint32_t
where(const struct rollout *rollout, const struct request *request, bool *pull_out)
{
    struct yb_sched_rollout_place places[YB_ROLLOUT_PLACES_MAX];
    uint32_t context =
        request->generated == 0 ? 0 : rollout->options->prompt_tokens + request->generated;
    bool grouped = rollout->options->policy == YB_ROLLOUT_GROUPED;

    for (uint32_t i = 0; i < rollout->options->places; i++) {
        const struct place *place = &rollout->places[i];
        bool may = !grouped || request->group % rollout->options->places == i;

        places[i] = (struct yb_sched_rollout_place){
            .in_flight = place->in_flight,
            .held_tokens = request->place == i ? context : 0,
            .free_tokens = may && place->in_flight < rollout->options->batch
                               ? rollout->options->cost->kv_tokens_max - place->used
                               : 0,
        };
    }
    return yb_sched_rollout_where(places, rollout->options->places, room_of(rollout, request),
                                  context, pull_out);
}

static enum yb_status
enter(struct rollout *rollout, enum event kind, uint32_t who, uint64_t at_ns, uint64_t stamp)
{
    struct yb_agenda_event event = {.at_ns = at_ns, .stamp = stamp, .who = who, .kind = kind};

    return yb_agenda_enter(rollout->agenda, &event);
}

static enum yb_status
settle(struct rollout *rollout, uint32_t place)
{
    struct yb_instance *instance = &rollout->places[place].instance;
    bool event = false;
    enum yb_status status = yb_instance_settle(instance, yb_agenda_now(rollout->agenda), &event);

    return status == YB_OK && event ? enter(rollout, STEP, place, instance->end_ns, instance->stamp)
                                    : status;
}

/* Let a request get its next chunk at a place. */
static enum yb_status
start(struct rollout *rollout, uint32_t index, uint32_t at, bool pull)
{
    struct request *request = &rollout->requests[index];
    struct place *place = &rollout->places[at];
    uint64_t now_ns = yb_agenda_now(rollout->agenda);
    uint32_t context = rollout->options->prompt_tokens + request->generated;
    bool reused = request->generated > 0 && (pull || request->place == at);

    request->job = (struct yb_instance_job){.request = index,
                                            .input_tokens = context,
                                            .reused_tokens = reused ? context - 1 : 0,
                                            .output_tokens = chunk_of(rollout, request),
                                            .ready = !pull,
                                            .ready_ns = now_ns,
                                            .stays = true};
    request->place = at;
    request->held = room_of(rollout, request);
    place->used += request->held;
    place->in_flight++;
    rollout->result.chunks++;
    if (pull) {
        double bytes = (double)rollout->options->cost->kv_bytes * context;
        uint64_t from_ns = place->port_ns > now_ns ? place->port_ns : now_ns;

        place->port_ns = from_ns + (uint64_t)(bytes * 1e9 / rollout->options->bytes_per_s);
        request->job.ready_ns = place->port_ns;
        rollout->result.moved_bytes += bytes;
    }
    yb_instance_add(&place->instance, &request->job);
    return pull ? enter(rollout, READY, index, place->port_ns, 0) : settle(rollout, at);
}

static uint32_t
pick(struct rollout *rollout)
{
    switch (rollout->options->policy) {
    case YB_ROLLOUT_GROUPED:
    case YB_ROLLOUT_DIVIDED: return 0;
    case YB_ROLLOUT_ORACLE: /* No group is less served than it should be. */
        return yb_sched_rollout_next(rollout->waiters, rollout->waiting_count, rollout->groups, 0);
    case YB_ROLLOUT_CONTEXT: break;
    }
    return yb_sched_rollout_next(rollout->waiters, rollout->waiting_count, rollout->groups,
                                 rollout->picks++);
}

static void
take_waiter(struct rollout *rollout, uint32_t at)
{
    uint32_t behind = --rollout->waiting_count - at;

    memmove(&rollout->waiting[at], &rollout->waiting[at + 1], behind * sizeof(uint32_t));
    memmove(&rollout->waiters[at], &rollout->waiters[at + 1],
            behind * sizeof(struct yb_sched_rollout_waiter));
}

/* GROUPED: each place has a queue of its own. */
static enum yb_status
dispatch_groups(struct rollout *rollout)
{
    bool full[YB_ROLLOUT_PLACES_MAX] = {false};
    enum yb_status status = YB_OK;

    for (uint32_t at = 0; status == YB_OK && at < rollout->waiting_count;) {
        uint32_t index = rollout->waiting[at];
        uint32_t own = rollout->requests[index].group % rollout->options->places;
        bool pull = false;

        full[own] = full[own] || where(rollout, &rollout->requests[index], &pull) == YB_SCHED_NONE;
        if (full[own]) {
            at++;
        } else {
            take_waiter(rollout, at);
            status = start(rollout, index, own, false);
        }
    }
    return status;
}

/* Let go on who can. */
static enum yb_status
dispatch(struct rollout *rollout)
{
    enum yb_status status = YB_OK;

    if (rollout->options->policy == YB_ROLLOUT_GROUPED) {
        return dispatch_groups(rollout);
    }
    while (status == YB_OK && rollout->waiting_count > 0) {
        uint32_t next = pick(rollout);
        uint32_t index = rollout->waiting[next];
        bool pull = false;
        uint32_t place = where(rollout, &rollout->requests[index], &pull);

        if (place == YB_SCHED_NONE) {
            break;
        }
        take_waiter(rollout, next);
        status = start(rollout, index, place, pull);
    }
    return status;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* A chunk has ended. */
static void
end_chunk(struct rollout *rollout, uint32_t index)
{
    struct request *request = &rollout->requests[index];
    struct place *place = &rollout->places[request->place];
    struct yb_sched_rollout_group *group = &rollout->groups[request->group];
    uint32_t tokens = chunk_of(rollout, request);

    request->generated += tokens;
    place->used -= request->held;
    place->in_flight--;
    if (rollout->options->policy != YB_ROLLOUT_ORACLE) {
        group->served += tokens;
    }
    if (request->generated < request->length) {
        wait_for_chunk(rollout, index);
        return;
    }
    if (rollout->options->policy != YB_ROLLOUT_ORACLE) {
        bool first = group->longest == rollout->options->limit_tokens;

        group->longest =
            first || request->length > group->longest ? request->length : group->longest;
    }
    if (++rollout->ended == rollout->request_count - rollout->request_count / 10) {
        rollout->tail_ns = yb_agenda_now(rollout->agenda);
    }
}

static enum yb_status
end_step(struct rollout *rollout, uint32_t at)
{
    struct yb_instance *instance = &rollout->places[at].instance;
    struct yb_instance_outcome outcome;
    struct yb_instance_job *done;
    bool ended = false;
    enum yb_status status;

    yb_instance_end(instance, yb_agenda_now(rollout->agenda), &outcome);
    if (outcome.prefilled != NULL && outcome.prefilled->output_tokens == 1) {
        end_chunk(rollout, outcome.prefilled->request);
        ended = true;
    }
    for (done = outcome.done; done != NULL; done = done->next) {
        end_chunk(rollout, done->request);
        ended = true;
    }
    status = settle(rollout, at);
    return status == YB_OK && ended ? dispatch(rollout) : status;
}

static enum yb_status
take_event(struct rollout *rollout, const struct yb_agenda_event *event)
{
    if (event->kind == READY) {
        struct request *request = &rollout->requests[event->who];

        yb_instance_ready(&rollout->places[request->place].instance, &request->job, event->at_ns);
        return settle(rollout, request->place);
    }
    return event->stamp == rollout->places[event->who].instance.stamp
               ? end_step(rollout, event->who)
               : YB_OK;
}

static bool
is_possible(const struct yb_rollout_options *options)
{
    return options->places > 0 && options->places <= YB_ROLLOUT_PLACES_MAX && options->groups > 0 &&
           options->group_size > 0 && options->batch > 0 && options->prompt_tokens > 0 &&
           options->chunk_tokens > 0 && options->bytes_per_s > 0 &&
           options->cost->kv_tokens_max >=
               (uint64_t)options->prompt_tokens + options->limit_tokens + options->chunk_tokens;
}

enum yb_status
yb_rollout_run(const struct yb_rollout_options *options, struct yb_rollout_result *result_out)
{
    struct rollout rollout;
    struct yb_agenda_event event;
    double tokens = 0;
    enum yb_status status;

    if (!is_possible(options)) {
        return YB_INVALID;
    }
    status = rollout_init(&rollout, options);
    if (status == YB_OK) {
        status = dispatch(&rollout);
    }
    while (status == YB_OK && yb_agenda_next(rollout.agenda, &event)) {
        status = take_event(&rollout, &event);
    }
    if (status == YB_OK) {
        double end_ns = (double)yb_agenda_now(rollout.agenda);

        YB_ASSERT(rollout.ended == rollout.request_count);
        for (uint32_t i = 0; i < rollout.request_count; i++) {
            tokens += options->lengths[i];
        }
        *result_out = rollout.result;
        result_out->total_s = end_ns / 1e9;
        result_out->tail_s = (end_ns - (double)rollout.tail_ns) / 1e9;
        result_out->tokens_per_s = tokens / result_out->total_s;
    }
    rollout_fini(&rollout);
    return status;
}
