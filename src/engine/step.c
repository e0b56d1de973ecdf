/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/cpus.h"
#include "engine/engine_internal.h"

#define IDLE_NS   (10 * YB_NS_PER_MS)
#define LOOK_NS   (50 * YB_NS_PER_MS)
#define STEPS_MAX 4096u /* Prompts and running requests that a step looks at. */

/* One step, while it is computed. */
struct step {
    struct yb_engine *engine;
    struct yb_engine_plan plan;
    struct yb_engine_request *prompt; /* NULL: none. */
    struct yb_engine_store *store;    /* Of the blocks that it completes; NULL: none. */
    uint32_t first;                   /* Those: [first, full). */
    uint32_t full;
    uint64_t since_ns; /* What it computes has been there since then. */
    uint64_t begun_ns;
    uint64_t stall_ns;
};

/* ---- ends ------------------------------------------------------------------------------------ */

static void
unlink_request(struct yb_engine *engine, struct yb_engine_request *request)
{
    struct yb_engine_request **place = &engine->first;

    while (*place != request) {
        place = &(*place)->next;
    }
    *place = request->next;
    if (engine->last == &request->next) {
        engine->last = place;
    }
}

static void
add_outcome(struct yb_engine *engine, const struct yb_engine_request *request)
{
    const struct yb_engine_outcome *outcome = &request->outcome;
    struct yb_engine_info *sums = &engine->sums;
    uint32_t reused = outcome->device_tokens + outcome->loaded_tokens + outcome->pulled_tokens;

    sums->ended++;
    sums->failed += outcome->status != YB_OK;
    sums->prompt_tokens += outcome->prompt_tokens;
    sums->device_tokens += outcome->device_tokens;
    sums->loaded_tokens += outcome->loaded_tokens;
    sums->pulled_tokens += outcome->pulled_tokens;
    sums->computed_tokens += request->done_tokens > reused ? request->done_tokens - reused : 0;
    sums->answer_tokens += outcome->answer_tokens;
    sums->pulled_bytes += outcome->pulled_bytes;
    for (uint32_t i = 0; i <= YB_CLIENT_TIER_OBJECT; i++) {
        sums->tier_bytes[i] += outcome->tier_bytes[i];
    }
    sums->compute_ns += outcome->compute_ns;
    sums->stall_ns += outcome->stall_ns;
    sums->load_ns += outcome->load_ns;
    sums->predicted_ns += outcome->predicted_ns;
}

/* The asker learns how it ended. What it uses stays: see leave(). */
static void
conclude(struct yb_engine_request *request, enum yb_status status, const char *why)
{
    struct yb_engine_outcome *outcome = &request->outcome;

    outcome->status = status;
    outcome->answer_tokens = request->answered;
    outcome->last_ns = yb_engine_now(request->engine);
    (void)snprintf(outcome->why, sizeof(outcome->why), "%s", why);
    add_outcome(request->engine, request);
    yb_engine_trace_request(request);
    yb_engine_note_locked(request->engine, outcome);
    (void)pthread_cond_broadcast(&request->told);
}

/* Take the ticket of what is kept back: from here on nobody may take its blocks for what they were.
 */
static void
void_ticket(struct yb_engine_request *request)
{
    __atomic_store_n(request->ticket, 0, __ATOMIC_SEQ_CST);
    request->ticket = NULL;
}

/* It uses nothing any more. */
static void
leave(struct yb_engine_request *request)
{
    struct yb_engine *engine = request->engine;

    YB_ASSERT(!request->busy && request->given_up == 0);
    if (request->state == YB_ENGINE_WAITING) {
        engine->waiting--;
    } else {
        engine->reserved -= request->block_max;
    }
    if (request->ticket != NULL) {
        void_ticket(request);
    }
    yb_engine_shorten_locked(request, 0);
    request->state = YB_ENGINE_ENDED;
    unlink_request(engine, request);
    yb_engine_forget_locked(request);
}

static void
end(struct yb_engine_request *request, enum yb_status status, const char *why)
{
    conclude(request, status, why);
    leave(request);
}

/* End what is to end, or has expired; nobody else may be at work on it. */
static void
reap(struct yb_engine *engine)
{
    struct yb_engine_request *next;
    uint64_t now = yb_engine_now(engine);

    for (struct yb_engine_request *request = engine->first; request != NULL; request = next) {
        next = request->next;
        if (request->state == YB_ENGINE_HELD) {
            if (now >= request->expires_ns || engine->stops) {
                leave(request);
            }
        } else if (request->busy || request->given_up > 0) {
            continue;
        } else if (engine->stops) {
            end(request, YB_CLOSED, "the engine stops");
        } else if (request->fate != YB_OK) {
            end(request, request->fate,
                request->fate == YB_CANCELLED ? "it was given up"
                                              : "the device did not take what was computed");
        }
    }
}

/* Whoever pulled what is kept here says so: it can go. */
static void
take_notifications(struct yb_engine *engine)
{
    static _Thread_local struct yb_transfer_notification note;

    while (yb_transfer_next_notification(engine->options.transfer, &note) == YB_OK) {
        uint64_t ticket;

        if (note.bytes != sizeof(ticket)) {
            continue;
        }
        memcpy(&ticket, note.payload, sizeof(ticket));
        for (struct yb_engine_request *request = engine->first; request != NULL;
             request = request->next) {
            if (request->state == YB_ENGINE_HELD && *request->ticket == ticket) {
                leave(request);
                break;
            }
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Return a place for a ticket: there are as many as blocks, and who is kept has at least one. */
static uint64_t *
free_ticket(const struct yb_engine *engine)
{
    uint32_t slots = yb_kv_pool_slots(engine->pool);
    uint32_t at = 0;

    while (at < slots && engine->tickets[at] != 0) {
        at++;
    }
    YB_ASSERT(at < slots);
    return &engine->tickets[at];
}

static void
keep(struct yb_engine_request *request)
{
    struct yb_engine *engine = request->engine;
    uint64_t ticket;

    for (uint32_t i = 0; i < request->block_count; i++) {
        request->addresses[i] = (uintptr_t)yb_engine_bytes(engine, request->blocks[i], 0);
    }
    if (getrandom(&ticket, sizeof(ticket), 0) != sizeof(ticket)) {
        end(request, YB_IO, "the kernel has no randomness");
        return;
    }
    request->ticket = free_ticket(engine);
    __atomic_store_n(request->ticket, ticket | 1, __ATOMIC_SEQ_CST); /* 0 is none. */
    request->expires_ns = yb_engine_now(engine) + engine->options.held_ns;
    request->state = YB_ENGINE_HELD;
    conclude(request, YB_OK, "");
}

/* Append one token of the answer, and end with the last. */
static void
answer(struct yb_engine_request *request)
{
    request->tokens[request->prompt_tokens + request->answered] =
        yb_kv_token(request->answer_key, request->answered, YB_ENGINE_VOCABULARY);
    request->answered++;
    (void)pthread_cond_broadcast(&request->told);
    if (request->answered == request->answer_max) {
        end(request, YB_OK, "");
    }
}

void
yb_engine_first_token_locked(struct yb_engine_request *request)
{
    yb_lock_assert_held(&request->engine->lock);
    request->outcome.first_ns = yb_engine_now(request->engine);
    request->state = YB_ENGINE_RUNNING;
    if (request->keep) {
        request->answer_max = 2; /* The second one is another engine's. */
        answer(request);
        keep(request);
    } else {
        answer(request);
    }
}

/* ---- computing ------------------------------------------------------------------------------- */

/* Computing takes until then; a stop cuts it short. */
static void
sleep_until(struct yb_engine *engine, uint64_t until_ns)
{
    uint64_t now = yb_engine_now(engine);

    yb_lock_acquire(&engine->lock);
    while (until_ns > now && !engine->stops) {
        (void)yb_lock_wait(&engine->lock, &engine->stopped, until_ns - now);
        now = yb_engine_now(engine);
    }
    yb_lock_release(&engine->lock);
}

/* Wait until the load has brought `part`, and with the last one, has ended. False: it has come
 * short, or the request is to end. */
static bool
await_part(struct step *step, uint32_t part)
{
    struct yb_engine *engine = step->engine;
    const struct yb_engine_request *request = step->prompt;
    bool last = part + 1 == engine->options.parts;
    uint64_t begun = yb_engine_now(engine);
    bool there;

    yb_lock_acquire(&engine->lock);
    while (request->load == YB_ENGINE_LOAD_COMING && (last || request->parts_ready <= part) &&
           !engine->stops && request->fate == YB_OK) {
        (void)yb_lock_wait(&engine->lock, &engine->changed, LOOK_NS);
    }
    there = request->load != YB_ENGINE_LOAD_SHORT && !engine->stops && request->fate == YB_OK;
    step->stall_ns += yb_engine_now(engine) - begun;
    yb_lock_release(&engine->lock);
    return there;
}

/* The bytes that computing this part brings forth. Without them the request has failed. */
static bool
fill_part(const struct step *step, uint32_t part)
{
    struct yb_engine *engine = step->engine;
    struct yb_engine_request *request = step->prompt;
    uint32_t end_tokens = request->done_tokens + step->plan.tokens;
    enum yb_status status = YB_OK;

    for (uint32_t i = step->first; i < step->full && status == YB_OK; i++) {
        status = yb_engine_fill(engine, request->keys[i], part, request->blocks[i]);
    }
    if (status == YB_OK && request->keep && end_tokens == request->prompt_tokens &&
        end_tokens % engine->options.block_tokens != 0) {
        status = yb_engine_fill(engine, request->answer_key, part, request->blocks[step->full]);
    }
    if (status != YB_OK) {
        yb_lock_acquire(&engine->lock);
        yb_engine_doom_locked(request, status);
        yb_lock_release(&engine->lock);
    }
    return status == YB_OK;
}

/* When so many parts of it are computed. */
static uint64_t
parts_end_ns(const struct step *step, uint32_t parts)
{
    const struct yb_engine_options *options = &step->engine->options;
    double part_ns = step->plan.ns * options->time_scale / options->parts;

    return step->begun_ns + step->stall_ns + (uint64_t)(part_ns * parts);
}

/* Compute the step, part by part; the lock is free meanwhile. False: what it relied on did not come
 * (the prompt's piece is void). */
static bool
compute_parts(struct step *step)
{
    struct yb_engine *engine = step->engine;
    uint32_t parts = engine->options.parts;

    for (uint32_t part = 0; part < parts; part++) {
        if (step->prompt != NULL && (!await_part(step, part) || !fill_part(step, part))) {
            return false;
        }
        sleep_until(engine, parts_end_ns(step, part + 1));
        if (step->store != NULL) {
            yb_lock_acquire(&engine->lock);
            yb_engine_store_filled_locked(step->store, part + 1, false);
            yb_lock_release(&engine->lock);
        }
    }
    return true;
}

/* The piece is void. If the load came short, go on from what there is of it. */
static void
fall_back(struct step *step)
{
    struct yb_engine_request *request = step->prompt;

    if (step->store != NULL) {
        yb_engine_store_given_up_locked(step->store, request);
    }
    if (request->load == YB_ENGINE_LOAD_SHORT) {
        yb_engine_shorten_locked(request, request->load_first + request->load_count);
        request->done_tokens = request->block_count * step->engine->options.block_tokens;
        request->load = YB_ENGINE_LOAD_DONE;
    }
}

/* A token for each running request, and what that makes whole: the answer's KV, as far as steps
 * have read it, is a prefix of the next turn. */
static void
decode_one(struct yb_engine_request *request)
{
    struct yb_engine *engine = request->engine;
    uint32_t block_tokens = engine->options.block_tokens;
    uint32_t covered = request->prompt_tokens + request->answered;
    uint32_t full = covered / block_tokens;
    enum yb_status status = YB_OK;
    struct yb_engine_store *store;

    yb_engine_take_locked(request, yb_engine_blocks_of(engine, covered));
    if (covered % block_tokens == 0) {
        request->key_count = yb_key_chain(request->tokens, covered, block_tokens, engine->model,
                                          request->keys, request->block_max);
        store = yb_engine_store_locked(request, full - 1, 1);
        yb_lock_release(&engine->lock);
        for (uint32_t part = 0; part < engine->options.parts && status == YB_OK; part++) {
            status =
                yb_engine_fill(engine, request->keys[full - 1], part, request->blocks[full - 1]);
        }
        yb_lock_acquire(&engine->lock);
        if (store != NULL) {
            yb_engine_store_filled_locked(store, status == YB_OK ? engine->options.parts : 0, true);
        }
        if (status != YB_OK) { /* What comes next would read it. */
            yb_engine_doom_locked(request, status);
            return;
        }
        yb_engine_publish_locked(request, full - 1, full);
    }
    answer(request);
}

/* The first request from there on that runs. Only this thread ends one of those: prompts may end at
 * any time when the lock is free, with what was pulled. */
static struct yb_engine_request *
running_from(struct yb_engine_request *request)
{
    while (request != NULL && request->state != YB_ENGINE_RUNNING) {
        request = request->next;
    }
    return request;
}

static void
end_step(struct step *step, bool whole)
{
    struct yb_engine *engine = step->engine;
    struct yb_engine_request *prompt = step->prompt;
    struct yb_engine_request *next;

    engine->sums.steps++;
    for (struct yb_engine_request *request = step->plan.decode ? running_from(engine->first) : NULL;
         request != NULL; request = next) {
        next = running_from(request->next);
        decode_one(request);
    }
    if (prompt == NULL) {
        return;
    }
    prompt->outcome.stall_ns += step->stall_ns;
    prompt->outcome.compute_ns += yb_engine_now(engine) - step->begun_ns - step->stall_ns;
    if (!whole) {
        fall_back(step);
        return;
    }
    yb_engine_publish_locked(prompt, step->first, step->full);
    if (step->store != NULL) {
        yb_engine_store_filled_locked(step->store, engine->options.parts, true);
    }
    prompt->done_tokens += step->plan.tokens;
    if (prompt->done_tokens == prompt->prompt_tokens) {
        yb_engine_first_token_locked(prompt);
    }
}

static void
run_step(struct step *step)
{
    struct yb_engine *engine = step->engine;
    struct yb_engine_request *prompt = step->prompt;
    bool whole;

    if (prompt != NULL) {
        uint32_t block_tokens = engine->options.block_tokens;

        step->first = prompt->done_tokens / block_tokens;
        step->full = (prompt->done_tokens + step->plan.tokens) / block_tokens;
        yb_engine_take_locked(prompt,
                              yb_engine_blocks_of(engine, prompt->done_tokens + step->plan.tokens));
        step->store = yb_engine_store_locked(prompt, step->first, step->full - step->first);
    }
    step->begun_ns =
        yb_engine_plan_begin_ns(engine->device_free_ns, step->since_ns, yb_engine_now(engine));
    yb_lock_release(&engine->lock);
    whole = compute_parts(step);
    yb_lock_acquire(&engine->lock);
    engine->device_free_ns = whole ? parts_end_ns(step, engine->options.parts) : 0;
    end_step(step, whole);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* How long what is still under way of a prompt's load will take, in the model's time. */
static double
load_left_ns(const struct yb_engine_request *request, uint64_t now_ns)
{
    if (request->load != YB_ENGINE_LOAD_COMING || request->load_due_ns <= now_ns) {
        return 0;
    }
    return (double)(request->load_due_ns - now_ns) / request->engine->options.time_scale;
}

/* Decide on the next step; false: there is nothing to compute. */
static bool
plan_step(struct yb_engine *engine, struct step *step_out)
{
    static _Thread_local struct yb_engine_plan_prompt prompts[STEPS_MAX];
    static _Thread_local struct yb_engine_request *requests[STEPS_MAX];
    struct yb_engine_plan_state state = {
        .cost = &engine->options.cost,
        .mode = engine->options.mode,
        .chunk_tokens = engine->options.chunk_tokens,
        .prompts = prompts,
        .slack_ns = 1e18,
    };
    uint64_t now = yb_engine_now(engine);

    for (struct yb_engine_request *request = engine->first; request != NULL;
         request = request->next) {
        if (request->state == YB_ENGINE_PROMPT && request->fate == YB_OK &&
            state.prompt_count < STEPS_MAX) {
            requests[state.prompt_count] = request;
            prompts[state.prompt_count++] = (struct yb_engine_plan_prompt){
                .done_tokens = request->done_tokens,
                .tokens = request->prompt_tokens,
                .waits = request->late || request->given_up > 0 ||
                         request->load == YB_ENGINE_LOAD_LOOKING ||
                         (request->load == YB_ENGINE_LOAD_COMING && request->parts_ready == 0),
                .load_ns = load_left_ns(request, now),
            };
        } else if (request->state == YB_ENGINE_RUNNING) {
            double slack = (yb_engine_due_ns(request) - (double)now) / engine->options.time_scale;

            state.slack_ns = slack < state.slack_ns ? slack : state.slack_ns;
            state.running++;
            state.context_tokens += request->prompt_tokens + request->answered;
        }
    }
    *step_out = (struct step){.engine = engine, .plan = yb_engine_plan_next(&state)};
    if (step_out->plan.prompt != YB_ENGINE_PLAN_NONE) {
        step_out->prompt = requests[step_out->plan.prompt];
        step_out->since_ns = step_out->prompt->ready_ns;
    }
    return step_out->prompt != NULL || step_out->plan.decode;
}

void *
yb_engine_compute(void *context)
{
    struct yb_engine *engine = context;
    struct step step;

    yb_cpus_as_process();
    yb_lock_acquire(&engine->lock);
    while (!engine->stops || engine->first != NULL) {
        take_notifications(engine);
        reap(engine);
        yb_engine_count_notes_locked(engine);
        if (!engine->stops) {
            yb_engine_admit_locked(engine);
        }
        if (!engine->stops && plan_step(engine, &step)) {
            run_step(&step);
        } else {
            engine->device_free_ns = 0;
            (void)yb_lock_wait(&engine->lock, &engine->changed, IDLE_NS);
        }
    }
    yb_engine_count_notes_locked(engine);
    yb_lock_release(&engine->lock);
    return NULL;
}
