/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/instance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define MAGIC     0x696e7374u
#define BATCH_MAX 65536u
#define ROOM      16u /* Of the running, at first. */

/* Gaps of one run differ a little; it is told in so many parts of equal gaps. */
#define GAP_PARTS 4u

enum yb_status
yb_instance_init(struct yb_instance *instance, const struct yb_instance_options *options)
{
    memset(instance, 0, sizeof(*instance));
    instance->running = calloc(ROOM, sizeof(struct yb_instance_job *));
    if (instance->running == NULL) {
        return YB_NO_MEMORY;
    }
    instance->magic = MAGIC;
    instance->options = *options;
    if (options->batch_max == 0) {
        instance->options.batch_max = BATCH_MAX;
    }
    instance->running_room = ROOM;
    return YB_OK;
}

void
yb_instance_fini(struct yb_instance *instance)
{
    free(instance->running);
    instance->running = NULL;
    instance->magic = 0;
}

static void
list_add(struct yb_instance_list *list, struct yb_instance_job *job)
{
    job->next = NULL;
    if (list->last == NULL) {
        list->first = job;
    } else {
        list->last->next = job;
    }
    list->last = job;
    list->count++;
}

/* Take out the job after `before`; NULL: the first. */
static struct yb_instance_job *
list_take(struct yb_instance_list *list, struct yb_instance_job *before)
{
    struct yb_instance_job *job = before == NULL ? list->first : before->next;

    if (before == NULL) {
        list->first = job->next;
    } else {
        before->next = job->next;
    }
    if (list->last == job) {
        list->last = before;
    }
    list->count--;
    job->next = NULL;
    return job;
}

/* ---- the heap of those that are decoded ------------------------------------------------------ */

static enum yb_status
running_reserve(struct yb_instance *instance)
{
    struct yb_instance_job **running;

    if (instance->running_count < instance->running_room) {
        return YB_OK;
    }
    running =
        realloc(instance->running, 2 * instance->running_room * sizeof(struct yb_instance_job *));
    if (running == NULL) {
        return YB_NO_MEMORY;
    }
    instance->running = running;
    instance->running_room *= 2;
    return YB_OK;
}

/* Room was reserved. */
static void
running_add(struct yb_instance *instance, struct yb_instance_job *job)
{
    uint32_t at = instance->running_count++;

    job->end_step = instance->step_count + job->output_tokens - 1;
    instance->context_tokens += (uint64_t)job->input_tokens + 1;
    while (at > 0 && job->end_step < instance->running[(at - 1) / 2]->end_step) {
        instance->running[at] = instance->running[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    instance->running[at] = job;
    job->decode_ns = 0;
    job->next = instance->fresh;
    instance->fresh = job;
}

/* A step begins that decodes all that run. */
static void
running_begin(struct yb_instance *instance, uint64_t now_ns)
{
    while (instance->fresh != NULL) {
        struct yb_instance_job *job = instance->fresh;

        instance->fresh = job->next;
        job->next = NULL;
        job->decode_ns = now_ns;
    }
}

static struct yb_instance_job *
running_take(struct yb_instance *instance)
{
    struct yb_instance_job *first = instance->running[0];
    struct yb_instance_job *last = instance->running[--instance->running_count];
    uint32_t at = 0;

    for (uint32_t child; (child = 2 * at + 1) < instance->running_count; at = child) {
        if (child + 1 < instance->running_count &&
            instance->running[child + 1]->end_step < instance->running[child]->end_step) {
            child++;
        }
        if (instance->running[child]->end_step >= last->end_step) {
            break;
        }
        instance->running[at] = instance->running[child];
    }
    instance->running[at] = last;
    instance->context_tokens -= (uint64_t)first->input_tokens + first->output_tokens;
    return first;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool
fits(const struct yb_instance *instance, uint64_t tokens)
{
    return instance->options.kv_tokens == 0 || instance->kv_used == 0 ||
           instance->kv_used + tokens <= instance->options.kv_tokens;
}

static void
hold(struct yb_instance *instance, struct yb_instance_job *job, uint64_t tokens)
{
    YB_ASSERT(job->held == 0);
    job->held = tokens;
    instance->kv_used += tokens;
}

static void
release(struct yb_instance *instance, struct yb_instance_job *job)
{
    YB_ASSERT(instance->kv_used >= job->held);
    instance->kv_used -= job->held;
    job->held = 0;
}

/* ---- coming ---------------------------------------------------------------------------------- */

void
yb_instance_add(struct yb_instance *instance, struct yb_instance_job *job)
{
    YB_ASSERT_OBJ(instance, MAGIC);
    YB_ASSERT(job->reused_tokens < job->input_tokens && job->output_tokens > 0);
    job->begun = false;
    job->done_tokens = 0;
    job->held = 0;
    job->expected_tokens = job->input_tokens - job->reused_tokens;
    job->expected_ns =
        yb_sched_prefill_ns(instance->options.cost, job->input_tokens, job->reused_tokens);
    instance->waiting_ns += job->expected_ns;
    instance->waiting_tokens += job->expected_tokens;
    list_add(&instance->waiting, job);
}

void
yb_instance_ready(struct yb_instance *instance, struct yb_instance_job *job, uint64_t now_ns)
{
    YB_ASSERT_OBJ(instance, MAGIC);
    job->ready = true;
    job->ready_ns = now_ns;
}

void
yb_instance_join(struct yb_instance *instance, struct yb_instance_job *job)
{
    YB_ASSERT_OBJ(instance, MAGIC);
    YB_ASSERT(job->output_tokens > 1);
    job->held = 0;
    list_add(&instance->joining, job);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint64_t
whole_ns(double ns)
{
    return (uint64_t)fmax(1, ceil(ns));
}

/* How long the next piece of a job takes without what is decoded beside it. */
static double
piece_ns(const struct yb_instance *instance, const struct yb_instance_job *job, uint32_t from,
         uint32_t tokens)
{
    const struct yb_sched_cost *cost = instance->options.cost;
    double ns = yb_sched_prefill_ns(cost, (uint64_t)from + tokens, from);

    return job->begun && from > job->reused_tokens ? fmax(0, ns - cost->prefill_base_ns) : ns;
}

static uint32_t
next_tokens(const struct yb_instance *instance, const struct yb_instance_job *job)
{
    uint32_t left = job->input_tokens - (job->begun ? job->done_tokens : job->reused_tokens);
    uint32_t chunk = instance->options.chunk_tokens;

    return chunk != 0 && left > chunk ? chunk : left;
}

static bool
mixes(const struct yb_instance *instance)
{
    return instance->options.chunk_tokens != 0 && instance->running_count > 0;
}

static double
with_decode_ns(const struct yb_instance *instance, double ns)
{
    const struct yb_sched_cost *cost = instance->options.cost;

    if (!mixes(instance)) {
        return ns;
    }
    return fmax(ns, cost->step_base_ns) +
           yb_sched_step_ns(cost, instance->running_count, instance->context_tokens) -
           cost->step_base_ns;
}

static uint64_t
wanted_room(const struct yb_instance_job *job)
{
    return job->stays ? (uint64_t)job->input_tokens + job->output_tokens : job->input_tokens;
}

/* Let all join that can. */
static enum yb_status
admit(struct yb_instance *instance)
{
    while (instance->joining.first != NULL &&
           instance->running_count < instance->options.batch_max) {
        struct yb_instance_job *job = instance->joining.first;
        uint64_t tokens = (uint64_t)job->input_tokens + job->output_tokens;
        enum yb_status status;

        if (job->held == 0 && !fits(instance, tokens)) {
            break;
        }
        status = running_reserve(instance);
        if (status != YB_OK) {
            return status;
        }
        (void)list_take(&instance->joining, NULL);
        if (job->held == 0) {
            hold(instance, job, tokens);
        }
        running_add(instance, job);
    }
    return YB_OK;
}

/* Which job of the waiting to begin: the first that is ready; or one whose load will be hidden.
 * *wait_ns_out: when to look again, if there is none because of loads. */
static bool
choose(const struct yb_instance *instance, uint64_t now_ns, struct yb_instance_job **before_out,
       uint64_t *wait_ns_out)
{
    struct yb_instance_job *before = NULL;
    struct yb_instance_job *best_before = NULL;
    uint64_t best_ns = UINT64_MAX;

    *wait_ns_out = UINT64_MAX;
    for (struct yb_instance_job *job = instance->waiting.first; job != NULL;
         before = job, job = job->next) {
        uint64_t begin_ns = now_ns;

        if (!job->ready) {
            uint64_t hidden_ns = instance->options.no_overlap
                                     ? 0
                                     : whole_ns(piece_ns(instance, job, job->reused_tokens,
                                                         next_tokens(instance, job)));

            begin_ns = job->ready_ns > hidden_ns ? job->ready_ns - hidden_ns : 0;
        }
        if (job->ready || (job->ready_ns != UINT64_MAX && begin_ns < best_ns)) {
            best_ns = job->ready ? now_ns : begin_ns;
            best_before = before;
        }
        if (job->ready || instance->options.in_order) {
            break;
        }
    }
    if (best_ns == UINT64_MAX) {
        return false;
    }
    if (best_ns > now_ns) {
        *wait_ns_out = best_ns;
        return false;
    }
    *before_out = best_before;
    return fits(instance,
                wanted_room(best_before == NULL ? instance->waiting.first : best_before->next));
}

static void
note_phase(struct yb_instance *instance, bool prefilling, uint64_t now_ns)
{
    if (instance->prefilling != prefilling) {
        instance->prefilling = prefilling;
        instance->phase_ns = now_ns;
    }
}

static void
begin_piece(struct yb_instance *instance, uint64_t now_ns)
{
    struct yb_instance_job *job = instance->job;
    double ns;

    instance->piece_tokens = next_tokens(instance, job);
    ns =
        with_decode_ns(instance, piece_ns(instance, job, job->done_tokens, instance->piece_tokens));
    note_phase(instance, true, now_ns);
    if (mixes(instance)) {
        running_begin(instance, now_ns);
    }
    instance->state = YB_INSTANCE_PIECE;
    instance->start_ns = now_ns;
    instance->end_ns = now_ns + whole_ns(ns);
    if (!job->ready && job->ready_ns != UINT64_MAX && job->ready_ns > instance->end_ns) {
        instance->end_ns = job->ready_ns;
    }
    instance->stamp++;
}

static void
begin_job(struct yb_instance *instance, struct yb_instance_job *before, uint64_t now_ns)
{
    struct yb_instance_job *job = list_take(&instance->waiting, before);

    instance->waiting_ns = fmax(0, instance->waiting_ns - job->expected_ns);
    instance->waiting_tokens -= job->expected_tokens;
    hold(instance, job, wanted_room(job));
    if (instance->options.begin != NULL) {
        instance->options.begin(instance->options.context, job, now_ns);
        YB_ASSERT(job->reused_tokens < job->input_tokens);
    }
    job->begun = true;
    job->done_tokens = job->reused_tokens;
    instance->job = job;
    begin_piece(instance, now_ns);
}

/* How long the first `steps` steps of a run take. */
static double
run_ns(const struct yb_instance *instance, uint64_t steps)
{
    const struct yb_sched_cost *cost = instance->options.cost;
    uint32_t batch = instance->running_count;
    double first = yb_sched_step_ns(cost, batch, instance->context_tokens);
    double last =
        yb_sched_step_ns(cost, batch, instance->context_tokens + (steps - 1) * (uint64_t)batch);

    return (double)steps * (first + last) / 2;
}

static void
begin_run(struct yb_instance *instance, uint64_t now_ns)
{
    instance->run_steps = instance->running[0]->end_step - instance->step_count;
    YB_ASSERT(instance->run_steps > 0);
    note_phase(instance, false, now_ns);
    running_begin(instance, now_ns);
    instance->state = YB_INSTANCE_RUN;
    instance->start_ns = now_ns;
    instance->end_ns = now_ns + whole_ns(run_ns(instance, instance->run_steps));
    instance->stamp++;
}

/* End a run with the step that is under way. Returns whether that is earlier than it was. */
static bool
cut_run(struct yb_instance *instance, uint64_t now_ns)
{
    uint64_t low = 1;
    uint64_t high = instance->run_steps;

    while (low < high) {
        uint64_t middle = (low + high) / 2;

        if (instance->start_ns + whole_ns(run_ns(instance, middle)) >= now_ns) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (low == instance->run_steps) {
        return false;
    }
    instance->run_steps = low;
    instance->end_ns = instance->start_ns + whole_ns(run_ns(instance, low));
    instance->end_ns = instance->end_ns < now_ns ? now_ns : instance->end_ns;
    instance->stamp++;
    return true;
}

static bool
somebody_can_join(const struct yb_instance *instance)
{
    const struct yb_instance_job *job = instance->joining.first;

    return job != NULL && instance->running_count < instance->options.batch_max &&
           (job->held > 0 || fits(instance, (uint64_t)job->input_tokens + job->output_tokens));
}

/* Begin whatever can be begun. Returns whether there is an event. */
static bool
begin_step(struct yb_instance *instance, uint64_t now_ns)
{
    struct yb_instance_job *before = NULL;
    uint64_t wait_ns;

    if (instance->job != NULL) { /* The next piece of a job that was begun. */
        begin_piece(instance, now_ns);
        return true;
    }
    if (choose(instance, now_ns, &before, &wait_ns)) {
        begin_job(instance, before, now_ns);
        return true;
    }
    if (instance->running_count > 0) {
        begin_run(instance, now_ns);
        return true;
    }
    instance->state = YB_INSTANCE_IDLE;
    if (wait_ns != UINT64_MAX) {
        instance->state = YB_INSTANCE_WAIT;
        instance->end_ns = wait_ns;
        instance->stamp++;
        return true;
    }
    return false;
}

enum yb_status
yb_instance_settle(struct yb_instance *instance, uint64_t now_ns, bool *event_out)
{
    struct yb_instance_job *before;
    enum yb_status status = YB_OK;
    uint64_t wait_ns;

    YB_ASSERT_OBJ(instance, MAGIC);
    *event_out = false;
    switch (instance->state) {
    case YB_INSTANCE_IDLE:
    case YB_INSTANCE_WAIT:
        status = admit(instance);
        if (status == YB_OK) {
            *event_out = begin_step(instance, now_ns);
        }
        break;
    case YB_INSTANCE_RUN:
        if (somebody_can_join(instance) || choose(instance, now_ns, &before, &wait_ns)) {
            *event_out = cut_run(instance, now_ns);
        }
        break;
    case YB_INSTANCE_STALL:
        if (instance->job->ready) {
            instance->stall_ns += (double)(now_ns - instance->end_ns);
            instance->state = YB_INSTANCE_PIECE;
            instance->end_ns =
                now_ns + whole_ns(piece_ns(instance, instance->job, instance->job->done_tokens,
                                           instance->piece_tokens) /
                                  instance->options.cost->layers);
            instance->stamp++;
            *event_out = true;
        }
        break;
    case YB_INSTANCE_PIECE: break;
    }
    return status;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Let those go that have all their tokens. */
static void
end_running(struct yb_instance *instance, struct yb_instance_outcome *outcome)
{
    while (instance->running_count > 0 && instance->running[0]->end_step <= instance->step_count) {
        struct yb_instance_job *job = running_take(instance);

        release(instance, job);
        job->next = outcome->done;
        outcome->done = job;
    }
}

static void
end_run(struct yb_instance *instance, struct yb_instance_outcome *outcome)
{
    uint64_t steps = instance->run_steps;
    uint64_t batch = instance->running_count;
    uint64_t told = 0;

    if (instance->pause_ns > 0) { /* The first gap holds what was computed meanwhile. */
        yb_tally_add(instance->options.gaps, whole_ns(run_ns(instance, 1) + instance->pause_ns),
                     batch);
        told = 1;
    }
    for (unsigned part = 0; part < GAP_PARTS; part++) {
        uint64_t until = steps * (part + 1) / GAP_PARTS;
        double ns;

        if (until <= told) {
            continue;
        }
        ns = (run_ns(instance, until) - (told == 0 ? 0 : run_ns(instance, told))) /
             (double)(until - told);
        yb_tally_add(instance->options.gaps, whole_ns(ns), batch * (until - told));
        told = until;
    }
    instance->pause_ns = 0;
    instance->decode_busy_ns += (double)(instance->end_ns - instance->start_ns);
    instance->step_count += steps;
    instance->context_tokens += steps * batch;
    end_running(instance, outcome);
}

static void
end_piece(struct yb_instance *instance, struct yb_instance_outcome *outcome)
{
    struct yb_instance_job *job = instance->job;
    uint64_t took_ns = instance->end_ns - instance->start_ns;

    instance->prefill_busy_ns += (double)took_ns;
    instance->computed_tokens += instance->piece_tokens;
    job->done_tokens += instance->piece_tokens;
    if (mixes(instance)) {
        yb_tally_add(instance->options.gaps, whole_ns((double)took_ns + instance->pause_ns),
                     instance->running_count);
        instance->pause_ns = 0;
        instance->step_count++;
        instance->context_tokens += instance->running_count;
        end_running(instance, outcome);
    } else if (instance->running_count > 0) {
        instance->pause_ns += (double)took_ns;
    }
    if (job->done_tokens < job->input_tokens) {
        return;
    }
    instance->job = NULL;
    outcome->prefilled = job;
    if (!job->stays || job->output_tokens == 1) {
        release(instance, job);
    } else {
        list_add(&instance->joining, job);
    }
}

void
yb_instance_end(struct yb_instance *instance, uint64_t now_ns,
                struct yb_instance_outcome *outcome_out)
{
    enum yb_instance_state state = instance->state;

    YB_ASSERT_OBJ(instance, MAGIC);
    YB_ASSERT(now_ns == instance->end_ns);
    YB_ASSERT(state == YB_INSTANCE_PIECE || state == YB_INSTANCE_RUN || state == YB_INSTANCE_WAIT);
    memset(outcome_out, 0, sizeof(*outcome_out));
    if (state == YB_INSTANCE_PIECE && !instance->job->ready) {
        instance->state = YB_INSTANCE_STALL;
        return;
    }
    instance->state = YB_INSTANCE_IDLE;
    if (state == YB_INSTANCE_PIECE) {
        end_piece(instance, outcome_out);
    } else if (state == YB_INSTANCE_RUN) {
        end_run(instance, outcome_out);
    }
}

double
yb_instance_steps(const struct yb_instance *instance, uint64_t now_ns)
{
    double steps = (double)instance->step_count;

    if (instance->state == YB_INSTANCE_RUN && now_ns > instance->start_ns) {
        steps += (double)instance->run_steps * (double)(now_ns - instance->start_ns) /
                 (double)(instance->end_ns - instance->start_ns);
    }
    return steps;
}

/* What decoding beside it adds to the prefill of so many tokens, as it is now. */
static double
beside_ns(const struct yb_instance *instance, uint64_t tokens)
{
    const struct yb_sched_cost *cost = instance->options.cost;
    double pieces;

    if (!mixes(instance) || tokens == 0) {
        return 0;
    }
    pieces = ceil((double)tokens / instance->options.chunk_tokens);
    return pieces * (yb_sched_step_ns(cost, instance->running_count, instance->context_tokens) -
                     cost->step_base_ns);
}

uint64_t
yb_instance_prefill_done_ns(const struct yb_instance *instance, uint64_t now_ns)
{
    double ns = instance->waiting_ns + beside_ns(instance, instance->waiting_tokens);

    if (instance->job != NULL) {
        const struct yb_instance_job *job = instance->job;
        uint32_t done = job->done_tokens + instance->piece_tokens;
        uint64_t end_ns = instance->end_ns > now_ns ? instance->end_ns : now_ns;

        ns += (double)(end_ns - now_ns);
        if (done < job->input_tokens) {
            ns += yb_sched_prefill_ns(instance->options.cost, job->input_tokens, done) +
                  beside_ns(instance, job->input_tokens - done);
        }
    } else if (instance->waiting.count > 0 && instance->state == YB_INSTANCE_RUN) {
        ns += (double)(instance->end_ns > now_ns ? instance->end_ns - now_ns : 0);
    }
    return now_ns + (uint64_t)ns;
}
