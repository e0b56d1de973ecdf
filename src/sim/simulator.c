/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a run: what comes, what ends, and who is told.
 */
#include "sim/simulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/simulator_internal.h"

uint64_t
yb_simulator_name(uint32_t block)
{
    uint64_t name = (uint64_t)block + 1;

    /* The finisher of splitmix64: a bijection, so names of different blocks differ. */
    name = (name ^ name >> 30) * 0xbf58476d1ce4e5b9ull;
    name = (name ^ name >> 27) * 0x94d049bb133111ebull;
    return name ^ name >> 31;
}

uint32_t
yb_simulator_block(const struct yb_simulator *simulator, uint32_t request, uint32_t index)
{
    return simulator->trace->blocks[simulator->trace->requests[request].first + index];
}

uint32_t
yb_simulator_block_tokens(const struct yb_simulator *simulator, uint32_t request, uint32_t index)
{
    uint32_t input = simulator->trace->requests[request].input_tokens;
    uint32_t size = simulator->trace->block_tokens;
    uint32_t before = index * size;

    return input - before < size ? input - before : size;
}

enum yb_status
yb_simulator_enter(struct yb_simulator *simulator, enum yb_simulator_event kind, uint32_t who,
                   uint64_t at_ns, uint64_t stamp)
{
    return yb_agenda_enter(simulator->agenda,
                           &(struct yb_agenda_event){
                               .at_ns = at_ns, .kind = (uint32_t)kind, .who = who, .stamp = stamp});
}

/* ---- reports --------------------------------------------------------------------------------- */

static void
changed(struct yb_simulator *simulator, uint32_t place)
{
    if (!simulator->places[place].changed) {
        simulator->places[place].changed = true;
        simulator->changed[simulator->changed_count++] = place;
    }
}

/* How far those that a place decodes are ahead of their objective, on the average. Whose window of
 * prefills has not ended is not decoded yet. */
static double
saved_ns(const struct yb_simulator *simulator, const struct yb_instance *instance, uint64_t now_ns)
{
    double slo_ns = (double)simulator->scenario->sched.tpot_slo_ns;
    double steps = yb_instance_steps(instance, now_ns);
    double sum = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < instance->running_count; i++) {
        const struct yb_instance_job *job = instance->running[i];
        double left = (double)job->end_step - steps;

        if (job->decode_ns != 0) {
            sum += ((double)job->output_tokens - left) * slo_ns - (double)(now_ns - job->decode_ns);
            count++;
        }
    }
    return count == 0 ? INFINITY : sum / count; /* Nobody waits. */
}

static void
report(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    static const enum yb_fabric_kind kinds[YB_SCHED_LINKS] = {
        [YB_SCHED_LINK_IN] = YB_FABRIC_PORT_IN,
        [YB_SCHED_LINK_OUT] = YB_FABRIC_PORT_OUT,
        [YB_SCHED_LINK_LOAD] = YB_FABRIC_BUS,
        [YB_SCHED_LINK_SSD] = YB_FABRIC_SSD,
        [YB_SCHED_LINK_OBJECT] = YB_FABRIC_OBJECT};
    struct yb_simulator_place *place = &simulator->places[index];
    const struct yb_instance *instance = &place->instance;
    struct yb_sched_report said = {
        .struct_bytes = sizeof(said),
        .sequence = ++place->report_sequence,
        .at_ns = now_ns,
        .prefill_done_ns = yb_instance_prefill_done_ns(instance, now_ns),
        .prefill_tokens = instance->waiting_tokens,
        .queued = place->queued,
        .running = instance->running_count + instance->joining.count,
        .context_tokens = instance->context_tokens,
        .kv_tokens_used = instance->kv_used,
        .phase_ns = instance->phase_ns,
        .prefilling = instance->prefilling && instance->state != YB_INSTANCE_IDLE,
    };

    if (simulator->scenario->sched.mode == YB_SCHED_MODE_TIME_SLICED) {
        said.saved_ns = saved_ns(simulator, instance, now_ns);
    }

    if (instance->job != NULL) {
        said.prefill_tokens += instance->job->input_tokens - instance->job->done_tokens;
    }
    for (unsigned i = 0; i < YB_SCHED_LINKS; i++) {
        bool apart = i == YB_SCHED_LINK_LOAD && simulator->scenario->apart;
        struct yb_pipe *pipe =
            yb_fabric_pipe(simulator->fabric, apart ? YB_FABRIC_PORT_IN : kinds[i], index);

        said.backlog_bytes[i] =
            pipe == NULL ? 0 : (uint64_t)yb_pipe_backlog(pipe, YB_PIPE_FIRST_TOKEN, now_ns);
    }
    memcpy(said.in_flight, place->in_flight, sizeof(said.in_flight));
    memcpy(said.seen, place->seen, sizeof(said.seen));
    for (uint32_t i = 0; i < simulator->conductors; i++) {
        enum yb_status status = yb_sched_report(simulator->scheds[i], index, &said);

        YB_ASSERT(status == YB_OK);
    }
    place->reported_ns = now_ns;
    place->changed = false;
}

/* Let those report that have something new and have not reported for long enough. */
static void
reports(struct yb_simulator *simulator, uint64_t now_ns)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < simulator->changed_count; i++) {
        uint32_t index = simulator->changed[i];
        const struct yb_simulator_place *place = &simulator->places[index];

        if (place->report_sequence > 0 &&
            now_ns - place->reported_ns < simulator->scenario->report_ns) {
            simulator->changed[left++] = index;
        } else {
            report(simulator, index, now_ns);
        }
    }
    simulator->changed_count = left;
}

/* ---- how a request goes ---------------------------------------------------------------------- */

static enum yb_status
settle(struct yb_simulator *simulator, uint32_t place, uint64_t now_ns)
{
    struct yb_instance *instance = &simulator->places[place].instance;
    bool event;
    enum yb_status status = yb_instance_settle(instance, now_ns, &event);

    changed(simulator, place);
    if (status == YB_OK && event) {
        status = yb_simulator_enter(simulator, YB_SIMULATOR_STEP, place, instance->end_ns,
                                    instance->stamp);
    }
    return status == YB_OK ? simulator->status : status;
}

/* A request leaves the places that it was counted at. */
static void
leave_places(struct yb_simulator *simulator, uint32_t index)
{
    const struct yb_simulator_request *request = &simulator->requests[index];

    simulator->places[request->prefill].in_flight[request->conductor]--;
    changed(simulator, request->prefill);
    if (request->decode != request->prefill) {
        simulator->places[request->decode].in_flight[request->conductor]--;
        changed(simulator, request->decode);
    }
}

static void
end_request(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    struct yb_simulator_request *request = &simulator->requests[index];

    YB_ASSERT(request->state == YB_SIMULATOR_PREFILL || request->state == YB_SIMULATOR_DECODE);
    request->state = YB_SIMULATOR_DONE;
    request->last_ns = now_ns;
    simulator->ended++;
    simulator->last_ns = now_ns;
    leave_places(simulator, index);
    yb_sched_ended(simulator->scheds[request->conductor], request->number, now_ns);
}

static void
reject(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    simulator->requests[index].state = YB_SIMULATOR_REJECTED;
    simulator->ended++;
    simulator->last_ns = now_ns;
}

/* Let the engine expect what is being loaded, but never a whole prompt. */
static void
expect_reuse(struct yb_simulator_request *request)
{
    uint32_t tokens = 0;

    for (uint32_t i = 0; i < YB_RESULT_COMPUTED; i++) {
        tokens += request->tokens_from[i];
    }
    request->job.reused_tokens =
        tokens < request->job.input_tokens ? tokens : request->job.input_tokens - 1;
}

/* Carry out a decision that was accepted. */
static enum yb_status
carry_out(struct yb_simulator *simulator, uint32_t index, const struct yb_sched_decision *decision,
          uint64_t now_ns)
{
    const struct yb_trace_request *asked = &simulator->trace->requests[index];
    struct yb_simulator_request *request = &simulator->requests[index];
    struct yb_simulator_place *place;
    enum yb_status status;

    request->number = decision->number;
    request->prefill = decision->prefill;
    request->decode = asked->output_tokens <= 1 || decision->decode == YB_SCHED_NONE ||
                              simulator->scenario->decode_instances == 0
                          ? decision->prefill
                          : decision->decode;
    request->state = YB_SIMULATOR_PREFILL;
    request->job.request = index;
    request->job.input_tokens = asked->input_tokens;
    request->job.output_tokens = asked->output_tokens == 0 ? 1 : asked->output_tokens;
    if (simulator->scenario->decode_instances == 0 &&
        simulator->scenario->sched.mode == YB_SCHED_MODE_DISAGGREGATED) {
        request->job.output_tokens = 1;
    }
    request->job.stays = request->decode == request->prefill && request->job.output_tokens > 1;
    place = &simulator->places[request->prefill];
    place->queued++;
    place->in_flight[request->conductor]++;
    place->seen[request->conductor] = request->number;
    if (request->decode != request->prefill) {
        simulator->places[request->decode].in_flight[request->conductor]++;
        simulator->places[request->decode].seen[request->conductor] = request->number;
        changed(simulator, request->decode);
    }
    status = yb_simulator_load(simulator, index, decision);
    if (status != YB_OK) {
        return status;
    }
    expect_reuse(request);
    yb_instance_add(&place->instance, &request->job);
    return settle(simulator, request->prefill, now_ns);
}

static enum yb_status
arrive(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    const struct yb_trace_request *asked = &simulator->trace->requests[index];
    uint32_t conductor = index % simulator->conductors;
    struct yb_sched_request question = {
        .struct_bytes = sizeof(question),
        .id = index + 1ull,
        .arrival_ns = now_ns,
        .input_tokens = asked->input_tokens,
        .blocks = simulator->names,
        .block_count = yb_trace_blocks_of(simulator->trace, index),
    };
    struct yb_sched_decision decision;
    enum yb_status status;

    if (index + 1 < simulator->trace->request_count) {
        status = yb_simulator_enter(simulator, YB_SIMULATOR_ARRIVAL, index + 1,
                                    simulator->trace->requests[index + 1].arrival_ns, 0);
        if (status != YB_OK) {
            return status;
        }
    }
    for (uint32_t i = 0; i < question.block_count; i++) {
        simulator->names[i] = yb_simulator_name(yb_simulator_block(simulator, index, i));
    }
    reports(simulator, now_ns);
    status = yb_sched_decide(simulator->scheds[conductor], simulator->scratches[conductor],
                             &question, now_ns, &decision);
    if (status != YB_OK) {
        return status;
    }
    status = yb_sched_commit(simulator->scheds[conductor], &question, &decision, now_ns);
    if (status != YB_OK) {
        return status;
    }
    simulator->requests[index].conductor = (uint8_t)conductor;
    simulator->avoided += decision.hotspot == YB_SCHED_HOTSPOT_AVOIDED;
    if (!decision.accepted) {
        reject(simulator, index, now_ns);
        return YB_OK;
    }
    return carry_out(simulator, index, &decision, now_ns);
}

/* What it waited for is there. */
static enum yb_status
loaded(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    struct yb_simulator_request *request = &simulator->requests[index];

    if (request->flows > 0 || request->fetching) {
        return YB_OK;
    }
    yb_instance_ready(&simulator->places[request->prefill].instance, &request->job, now_ns);
    return settle(simulator, request->prefill, now_ns);
}

/* Whether steps of the places for decode take as long as is allowed, on the average. */
static bool
decode_is_full(const struct yb_simulator *simulator)
{
    const struct yb_scenario *scenario = simulator->scenario;
    uint64_t slo_ns = scenario->sched.tpot_slo_ns;
    double step_ns = 0;

    for (uint32_t i = 0; i < scenario->decode_instances; i++) {
        const struct yb_instance *instance = &simulator->places[scenario->instances + i].instance;

        step_ns +=
            yb_sched_step_ns(&scenario->cost, instance->running_count + instance->joining.count,
                             instance->context_tokens);
    }
    return slo_ns > 0 && step_ns >= (double)slo_ns * scenario->decode_instances;
}

/* The request is let go after its prefill; how long its decode did not last is not learned from. */
static void
refuse_decode(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    struct yb_simulator_request *request = &simulator->requests[index];

    request->refused = true;
    leave_places(simulator, index);
    yb_sched_ended(simulator->scheds[request->conductor], request->number, request->first_ns);
    reject(simulator, index, now_ns);
}

/* Decode elsewhere begins when its prompt's blocks are there and the first token is. */
static enum yb_status
try_join(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    struct yb_simulator_request *request = &simulator->requests[index];

    if (request->streaming || !request->prefilled) {
        return YB_OK;
    }
    if (simulator->scenario->recheck && decode_is_full(simulator)) {
        refuse_decode(simulator, index, now_ns);
        return YB_OK;
    }
    request->state = YB_SIMULATOR_DECODE;
    yb_instance_join(&simulator->places[request->decode].instance, &request->job);
    return settle(simulator, request->decode, now_ns);
}

static enum yb_status
prefilled(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    struct yb_simulator_request *request = &simulator->requests[index];
    enum yb_status status = yb_simulator_keep(simulator, index);

    request->first_ns = now_ns;
    request->prefilled = true;
    simulator->places[request->prefill].queued--;
    yb_sched_prefilled(simulator->scheds[request->conductor], request->number, now_ns);
    if (status != YB_OK) {
        return status;
    }
    if (request->job.output_tokens == 1) {
        end_request(simulator, index, now_ns);
        return YB_OK;
    }
    if (request->job.stays) {
        request->state = YB_SIMULATOR_DECODE;
        return YB_OK;
    }
    return try_join(simulator, index, now_ns);
}

static enum yb_status
step_ended(struct yb_simulator *simulator, uint32_t place, uint64_t stamp, uint64_t now_ns)
{
    struct yb_instance *instance = &simulator->places[place].instance;
    struct yb_instance_outcome outcome;
    enum yb_status status = YB_OK;

    if (stamp != instance->stamp) {
        return YB_OK;
    }
    yb_instance_end(instance, now_ns, &outcome);
    if (outcome.prefilled != NULL) {
        status = prefilled(simulator, outcome.prefilled->request, now_ns);
    }
    while (outcome.done != NULL) {
        struct yb_instance_job *job = outcome.done;

        outcome.done = job->next;
        end_request(simulator, job->request, now_ns);
    }
    return status == YB_OK ? settle(simulator, place, now_ns) : status;
}

static enum yb_status
flow_ended(struct yb_simulator *simulator, uint32_t flow, uint64_t now_ns)
{
    struct yb_simulator_through through;
    struct yb_simulator_request *request;
    enum yb_status status = yb_simulator_flow_event(simulator, flow, &through);

    if (status != YB_OK || !through.through) {
        return status;
    }
    request = &simulator->requests[through.request];
    if (through.stream) {
        request->streaming = false;
        return try_join(simulator, through.request, now_ns);
    }
    YB_ASSERT(request->flows > 0);
    request->flows--;
    return loaded(simulator, through.request, now_ns);
}

static enum yb_status
fetch_now(struct yb_simulator *simulator, uint32_t index, uint64_t now_ns)
{
    enum yb_status status = YB_OK;

    /* Its prefill may have begun without it, if the engine takes jobs in order. */
    if (!simulator->requests[index].job.begun) {
        simulator->requests[index].job.ready_ns = now_ns;
        status = yb_simulator_fetch(simulator, index);
        expect_reuse(&simulator->requests[index]);
    }
    simulator->requests[index].fetching = false;
    return status == YB_OK ? loaded(simulator, index, now_ns) : status;
}

static enum yb_status
handle(struct yb_simulator *simulator, const struct yb_agenda_event *event)
{
    switch ((enum yb_simulator_event)event->kind) {
    case YB_SIMULATOR_ARRIVAL: return arrive(simulator, event->who, event->at_ns);
    case YB_SIMULATOR_STEP: return step_ended(simulator, event->who, event->stamp, event->at_ns);
    case YB_SIMULATOR_FLOW: return flow_ended(simulator, event->who, event->at_ns);
    case YB_SIMULATOR_FETCH: return fetch_now(simulator, event->who, event->at_ns);
    }
    YB_ASSERT(false);
    return YB_INVALID;
}

enum yb_status
yb_simulator_run(const struct yb_scenario *scenario, const struct yb_trace *trace,
                 struct yb_result *result_out, char message[YB_SIMULATOR_MESSAGE_MAX])
{
    struct yb_simulator simulator = {.scenario = scenario, .trace = trace};
    struct yb_agenda_event event;
    enum yb_status status;

    message[0] = '\0';
    status = yb_simulator_make(&simulator, message);
    if (status == YB_OK) {
        status = yb_simulator_enter(&simulator, YB_SIMULATOR_ARRIVAL, 0,
                                    trace->requests[0].arrival_ns, 0);
    }
    for (uint64_t events = 1; status == YB_OK && yb_agenda_next(simulator.agenda, &event);
         events++) {
        status = handle(&simulator, &event);
        if (scenario->progress != NULL && events % YB_SIMULATOR_PROGRESS_EVENTS == 0) {
            scenario->progress(scenario->progress_context, simulator.ended);
        }
    }
    if (status == YB_OK) {
        /* Z1: nobody waits for ever. */
        YB_ASSERT(simulator.ended == trace->request_count);
        status = yb_simulator_result(&simulator, result_out);
    }
    if (status != YB_OK && message[0] == '\0') {
        snprintf(message, YB_SIMULATOR_MESSAGE_MAX, "%s", yb_status_text(status));
    }
    yb_simulator_free(&simulator);
    return status;
}
