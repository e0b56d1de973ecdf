/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_router.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/lock.h"
#include "engine/engine.h"

#define THREADS_MAX 64u
#define STACK_BYTES (512u * 1024u)
#define FAILED_MAX  20u /* Chunks of an answer that may fail before it is given up. */
#define AGAIN_NS    (50 * YB_NS_PER_MS)
#define LOOK_NS     (100 * YB_NS_PER_MS)

struct answer {
    uint32_t *tokens; /* The prompt's, and those so far. */
    uint32_t group;
    uint32_t length;
    uint32_t generated;
    uint32_t place; /* Of its last chunk; YB_SCHED_NONE: it has had none. */
    uint32_t failed;
    bool probe;
};

struct place {
    uint32_t in_flight;
    uint64_t used; /* Tokens of room. */
};

struct router {
    const struct yb_demo_rollout *options;
    struct yb_demo_rolled *rolled;
    const struct yb_clock *clock;
    uint64_t begun_ns;
    uint64_t tail_from_ns; /* When nine of ten had ended. */
    uint32_t answer_count;

    struct yb_lock lock; /* Rank ROUTER; all below, and the answers that wait. */
    pthread_cond_t changed;
    struct answer *answers;
    struct yb_sched_rollout_group *groups;
    struct yb_sched_rollout_waiter *waiters; /* Made anew for each pick. */
    uint32_t *waiting;                       /* Answers, in the order in which they came. */
    uint32_t waiting_count;
    uint32_t left; /* Answers that are not whole, nor given up. */
    uint64_t picks;
    struct place places[YB_DEMO_ENGINES];
};

/* A chunk on its way. */
struct chunk {
    struct answer *answer;
    uint32_t place;
    uint32_t tokens;
    uint64_t room;
    bool pull; /* What the engine has not, it loads. */
};

/* ---- answers --------------------------------------------------------------------------------- */

/* Sampling makes answers to one prompt differ; here the last token of the prompt does. */
static void
make_prompt(const struct yb_demo_rollout *options, struct answer *answer, uint32_t index)
{
    for (uint32_t i = 0; i < options->prompt_tokens; i++) {
        answer->tokens[i] = (answer->group * 7919u + i) % YB_ENGINE_VOCABULARY;
    }
    answer->tokens[options->prompt_tokens - 1] = index;
}

static bool
make_answers(struct router *router)
{
    const struct yb_demo_rollout *options = router->options;

    for (uint32_t i = 0; i < router->answer_count; i++) {
        struct answer *answer = &router->answers[i];

        *answer = (struct answer){
            .tokens = calloc(options->prompt_tokens + options->lengths[i], sizeof(uint32_t)),
            .group = i / options->group_size,
            .length = options->lengths[i],
            .place = YB_SCHED_NONE,
            .probe = i % options->group_size == 0,
        };
        if (answer->tokens == NULL) {
            return false;
        }
        make_prompt(options, answer, i);
        router->groups[answer->group].longest = options->limit_tokens;
        router->waiting[router->waiting_count++] = i;
    }
    return true;
}

static uint32_t
context_of(const struct router *router, const struct answer *answer)
{
    return router->options->prompt_tokens + answer->generated;
}

static uint32_t
chunk_of(const struct router *router, const struct answer *answer)
{
    uint32_t left = answer->length - answer->generated;

    return left < router->options->chunk_tokens ? left : router->options->chunk_tokens;
}

/* As an engine reserves it, in whole blocks; nobody knows whether a whole chunk will be needed. */
static uint64_t
room_of(const struct router *router, const struct answer *answer)
{
    uint32_t block = router->options->block_tokens;
    uint64_t tokens = (uint64_t)context_of(router, answer) + router->options->chunk_tokens;

    return (tokens + block - 1) / block * block;
}

/* ---- picking --------------------------------------------------------------------------------- */

/* Where an answer could go on; `only`: that place, or YB_SCHED_NONE: any. Lock held. */
static uint32_t
where(const struct router *router, const struct answer *answer, uint32_t only, bool *pull_out)
{
    struct yb_sched_rollout_place places[YB_DEMO_ENGINES];
    const struct yb_demo_rollout *options = router->options;
    uint32_t context = answer->generated == 0 ? 0 : context_of(router, answer);

    for (uint32_t i = 0; i < options->engines; i++) {
        const struct place *place = &router->places[i];
        bool open = place->in_flight < options->batch && (only == YB_SCHED_NONE || only == i);

        places[i] = (struct yb_sched_rollout_place){
            .in_flight = place->in_flight,
            .held_tokens = answer->place == i ? context : 0,
            .free_tokens = open ? options->pool_tokens - place->used : 0,
        };
    }
    return yb_sched_rollout_where(places, options->engines, room_of(router, answer), context,
                                  pull_out);
}

/* The first whose own engine has room for it. Returns its place in the queue; waiting_count: there
 * is none. Lock held. */
static uint32_t
pick_atomic(const struct router *router, struct chunk *chunk)
{
    bool full[YB_DEMO_ENGINES] = {false};

    for (uint32_t at = 0; at < router->waiting_count; at++) {
        const struct answer *answer = &router->answers[router->waiting[at]];
        uint32_t own = answer->group % router->options->engines;

        chunk->place = full[own] ? YB_SCHED_NONE : where(router, answer, own, &chunk->pull);
        if (chunk->place != YB_SCHED_NONE) {
            return at;
        }
        full[own] = true; /* Nobody passes who came before. */
    }
    return router->waiting_count;
}

/* The next by the rule, if there is room for it. Lock held. */
static uint32_t
pick_seer(struct router *router, struct chunk *chunk)
{
    uint32_t at;

    if (router->waiting_count == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < router->waiting_count; i++) {
        const struct answer *answer = &router->answers[router->waiting[i]];

        router->waiters[i] = (struct yb_sched_rollout_waiter){
            .group = answer->group, .generated = answer->generated, .probe = answer->probe};
    }
    at = yb_sched_rollout_next(router->waiters, router->waiting_count, router->groups,
                               router->picks);
    chunk->place =
        where(router, &router->answers[router->waiting[at]], YB_SCHED_NONE, &chunk->pull);
    if (chunk->place == YB_SCHED_NONE) {
        return router->waiting_count;
    }
    router->picks++;
    return at;
}

/* Take the next chunk. False: nobody can go on now. Lock held. */
static bool
take_chunk(struct router *router, struct chunk *chunk)
{
    uint32_t at = router->options->atomic ? pick_atomic(router, chunk) : pick_seer(router, chunk);
    struct place *place;

    if (at == router->waiting_count) {
        return false;
    }
    chunk->answer = &router->answers[router->waiting[at]];
    memmove(&router->waiting[at], &router->waiting[at + 1],
            (--router->waiting_count - at) * sizeof(*router->waiting));
    chunk->tokens = chunk_of(router, chunk->answer);
    chunk->room = room_of(router, chunk->answer);
    /* A prompt that nobody has computed yet may be there as another answer's. */
    chunk->pull = chunk->pull || chunk->answer->generated == 0;
    place = &router->places[chunk->place];
    place->in_flight++;
    place->used += chunk->room;
    router->rolled->chunks++;
    router->rolled->migrated +=
        chunk->answer->place != YB_SCHED_NONE && chunk->answer->place != chunk->place;
    chunk->answer->place = chunk->place;
    return true;
}

/* ---- a chunk --------------------------------------------------------------------------------- */

/* Ask an engine for it. NULL: it did not give it. */
static json_t *
ask(const struct router *router, struct yb_curl *curl, const struct chunk *chunk)
{
    const struct answer *answer = chunk->answer;
    const struct yb_demo_engine *engine = &router->options->cluster->engines[chunk->place];
    uint32_t context = context_of(router, answer);
    json_t *prompt = json_array();
    long code = 0;
    json_t *told;

    for (uint32_t i = 0; i < context; i++) {
        (void)json_array_append_new(prompt, json_integer(answer->tokens[i]));
    }
    told =
        yb_ask_json(curl, engine->http, "/v1/completions",
                    json_pack("{s:o, s:i, s:i}", "prompt", prompt, "max_tokens", (int)chunk->tokens,
                              "reuse_tokens", chunk->pull ? (int)context : 0),
                    &code);
    if (code != 200) {
        json_decref(told);
        return NULL;
    }
    return told;
}

/* Append what was generated; false: it is not what was asked for. Nobody else has the answer. */
static bool
append(const struct router *router, const struct chunk *chunk, const json_t *told)
{
    const json_t *ids =
        json_object_get(json_array_get(json_object_get(told, "choices"), 0), "token_ids");
    struct answer *answer = chunk->answer;

    if (json_array_size(ids) != chunk->tokens) {
        return false;
    }
    for (uint32_t i = 0; i < chunk->tokens; i++) {
        answer->tokens[context_of(router, answer) + i] =
            (uint32_t)json_integer_value(json_array_get(ids, i));
    }
    return true;
}

/* An answer is whole, or given up. Lock held. */
static void
end_answer(struct router *router, const struct answer *answer)
{
    struct yb_sched_rollout_group *group = &router->groups[answer->group];
    bool first = group->longest == router->options->limit_tokens;

    if (answer->generated == answer->length) {
        router->rolled->whole++;
        group->longest = first || answer->length > group->longest ? answer->length : group->longest;
    }
    if (--router->left == router->answer_count / 10) {
        router->tail_from_ns = yb_clock_now(router->clock);
    }
}

/* It waits for its next chunk. With ATOMIC what was begun goes before what was not. Lock held. */
static void
wait_again(struct router *router, uint32_t index)
{
    uint32_t at = router->options->atomic ? 0 : router->waiting_count;

    memmove(&router->waiting[at + 1], &router->waiting[at],
            (router->waiting_count++ - at) * sizeof(*router->waiting));
    router->waiting[at] = index;
}

/* Lock held. */
static void
end_chunk(struct router *router, const struct chunk *chunk, const json_t *told, bool good)
{
    struct yb_demo_rolled *rolled = router->rolled;
    struct answer *answer = chunk->answer;
    struct place *place = &router->places[chunk->place];
    const json_t *said = json_object_get(told, "yuebing");

    place->in_flight--;
    place->used -= chunk->room;
    if (good) {
        answer->generated += chunk->tokens;
        router->groups[answer->group].served += chunk->tokens;
        rolled->tokens += chunk->tokens;
        rolled->engine_tokens[chunk->place] += chunk->tokens;
        rolled->device_tokens += yb_ask_number(said, "device_tokens");
        rolled->loaded_tokens += yb_ask_number(said, "loaded_tokens");
        rolled->load_us += yb_ask_number(said, "load_us");
    } else {
        rolled->failed++;
        answer->failed++;
    }
    if (answer->generated == answer->length || answer->failed == FAILED_MAX) {
        end_answer(router, answer);
    } else {
        wait_again(router, (uint32_t)(answer - router->answers));
    }
    (void)pthread_cond_broadcast(&router->changed);
}

static void *
carry_chunks(void *context)
{
    struct router *router = context;
    struct yb_curl *curl = NULL;

    if (yb_curl_create(&curl, NULL) != YB_OK) {
        return NULL;
    }
    yb_lock_acquire(&router->lock);
    while (router->left > 0) {
        struct chunk chunk = {.pull = false};
        json_t *told;
        bool good;

        if (!take_chunk(router, &chunk)) {
            (void)yb_lock_wait(&router->lock, &router->changed, LOOK_NS);
            continue;
        }
        yb_lock_release(&router->lock);
        told = ask(router, curl, &chunk);
        good = told != NULL && append(router, &chunk, told);
        if (!good) {
            yb_demo_pause(AGAIN_NS);
        }
        yb_lock_acquire(&router->lock);
        end_chunk(router, &chunk, told, good);
        json_decref(told);
    }
    yb_lock_release(&router->lock);
    yb_curl_destroy(&curl);
    return NULL;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool
carry_all(struct router *router)
{
    pthread_t threads[THREADS_MAX];
    pthread_attr_t attributes;
    uint32_t wanted = router->options->engines * router->options->batch;
    uint32_t count = 0;

    wanted = wanted < THREADS_MAX ? wanted : THREADS_MAX;
    YB_ASSERT(pthread_attr_init(&attributes) == 0);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (count < wanted &&
           pthread_create(&threads[count], &attributes, carry_chunks, router) == 0) {
        count++;
    }
    (void)pthread_attr_destroy(&attributes);
    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(pthread_join(threads[i], NULL) == 0);
    }
    return count > 0;
}

static void
router_fini(struct router *router)
{
    for (uint32_t i = 0; router->answers != NULL && i < router->answer_count; i++) {
        free(router->answers[i].tokens);
    }
    free(router->answers);
    free(router->groups);
    free(router->waiters);
    free(router->waiting);
    (void)pthread_cond_destroy(&router->changed);
    yb_lock_fini(&router->lock);
}

bool
yb_demo_rollout_run(const struct yb_demo_rollout *rollout, struct yb_demo_rolled *rolled_out)
{
    uint32_t count = rollout->groups * rollout->group_size;
    struct router router = {
        .options = rollout,
        .rolled = rolled_out,
        .clock = yb_clock_system(),
        .answer_count = count,
        .left = count,
        .answers = calloc(count, sizeof(struct answer)),
        .groups = calloc(rollout->groups, sizeof(struct yb_sched_rollout_group)),
        .waiters = calloc(count, sizeof(struct yb_sched_rollout_waiter)),
        .waiting = calloc(count, sizeof(uint32_t)),
    };
    bool done;

    YB_ASSERT(rollout->engines > 0 && rollout->engines <= YB_DEMO_ENGINES);
    *rolled_out = (struct yb_demo_rolled){.took_ns = 0};
    yb_lock_init(&router.lock, YB_LOCK_ROUTER);
    yb_lock_cond_init(&router.changed);
    done = router.answers != NULL && router.groups != NULL && router.waiters != NULL &&
           router.waiting != NULL && make_answers(&router);
    if (done) {
        router.begun_ns = yb_clock_now(router.clock);
        done = carry_all(&router);
        rolled_out->took_ns = yb_clock_now(router.clock) - router.begun_ns;
        rolled_out->tail_ns = yb_clock_now(router.clock) - router.tail_from_ns;
    }
    router_fini(&router);
    return done;
}
