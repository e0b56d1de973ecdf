/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_run.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo_turn.h"
#include "cli/measure.h"
#include "yuebing/client.h"

#define THREADS     96u
#define TRIES_MAX   40u
#define TRY_NS      (120 * YB_NS_PER_S) /* A request that is not answered by then is not. */
#define REFUSED     429                 /* There is no room now. */
#define AGAIN_NS    (50 * YB_NS_PER_MS)
#define WORD        4u /* Bytes of text that are a token. */
#define KEY_BYTES   16u
#define STACK_BYTES (512u * 1024u)

struct run {
    struct yb_demo_cluster *cluster;
    const struct yb_demo_shape *shape;
    const struct yb_demo_work *work;
    const struct yb_clock *clock;
    uint64_t begun_ns;
    struct yb_demo_served *served;
    struct yb_demo_turns turns;
    _Atomic uint32_t next;
};

/* A request on its way. */
struct ride {
    struct run *run;
    struct yb_curl *curl;
    const struct yb_trace_request *request;
    uint32_t index;
    char *prompt;   /* Text; `tokens` lie in it, too. */
    json_t *hashes; /* Names of its blocks. */
    uint32_t answer_tokens;
    uint32_t conductor; /* Whose turn it is: the request is its until it is asked anew. */
    uint64_t asked_ns;  /* When somebody was asked last. */
    bool refused;       /* The conductor had no room, and that alone. */
    char failed[16];    /* The engine that has just failed; "": none. */
    struct yb_demo_served *served;
};

/* ---- prompts --------------------------------------------------------------------------------- */

static uint64_t
mix(uint64_t value)
{
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9ull;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

/* Write the text of a request's prompt. NULL: no memory. */
static char *
make_prompt(const struct yb_demo_work *work, uint32_t index)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    const struct yb_trace *trace = work->trace;
    const struct yb_trace_request *request = &trace->requests[index];
    char *text = malloc((size_t)request->input_tokens * WORD + 1);

    for (uint32_t i = 0; i < request->input_tokens && text != NULL; i++) {
        uint64_t block = trace->blocks[request->first + i / trace->block_tokens] + 1ull;
        uint64_t family = work->unique ? (uint64_t)(index + 1) << 32 : 0;
        uint64_t token = mix((family + block) * 0x9e3779b97f4a7c15ull + i % trace->block_tokens);

        for (uint32_t j = 0; j < WORD; j++) {
            text[i * WORD + j] = letters[(token >> (6 * j)) & 63];
        }
    }
    if (text != NULL) {
        text[request->input_tokens * WORD] = '\0';
    }
    return text;
}

/* Name the blocks of a prompt, as the engines do. NULL: no memory. */
static json_t *
name_blocks(const struct ride *ride)
{
    const struct yb_demo_shape *shape = ride->run->shape;
    uint32_t tokens = ride->request->input_tokens;
    uint32_t room = tokens / shape->block_tokens;
    uint32_t *numbers = malloc(sizeof(*numbers) * tokens);
    uint8_t(*keys)[KEY_BYTES] = malloc((size_t)(room + 1) * KEY_BYTES);
    json_t *hashes = numbers != NULL && keys != NULL ? json_array() : NULL;

    if (hashes != NULL) {
        char hex[KEY_BYTES * 2 + 1];

        memcpy(numbers, ride->prompt, (size_t)tokens * WORD);
        room = yb_key_chain(numbers, tokens, shape->block_tokens, shape->model, keys, room);
        for (uint32_t i = 0; i < room; i++) {
            struct yb_id id;

            memcpy(id.bytes, keys[i], sizeof(id.bytes));
            yb_id_format(id, hex);
            (void)json_array_append_new(hashes, json_string(hex));
        }
    }
    free(numbers);
    free(keys);
    return hashes;
}

/* ---- one request ----------------------------------------------------------------------------- */

static uint64_t
now_of(const struct ride *ride)
{
    return yb_clock_now(ride->run->clock);
}

static const char *
text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

/* Note who did not do what was asked. Status 0: there was no answer. */
static void
note_why(struct ride *ride, const char *who, long code)
{
    (void)snprintf(ride->served->why, YB_DEMO_WHY, "%.32s: HTTP status %ld after %.1f s", who, code,
                   (double)(now_of(ride) - ride->asked_ns) / 1e9);
}

static const char *
conductor_of(const struct ride *ride)
{
    return ride->run->cluster->conductors[ride->conductor];
}

/* Ask the conductor. NULL: it does not answer, or not now. */
static json_t *
schedule(struct ride *ride)
{
    json_t *question = json_pack("{s:O, s:i, s:i, s:s}", "hashes", ride->hashes, "input_tokens",
                                 (int)ride->request->input_tokens, "output_tokens",
                                 (int)ride->answer_tokens, "model", ride->run->shape->model);
    json_t *decision;
    long code = 0;

    if (ride->failed[0] != '\0') {
        (void)json_object_set_new(question, "not_at", json_string(ride->failed));
    }
    ride->asked_ns = now_of(ride);
    decision = yb_ask_json(ride->curl, conductor_of(ride), "/v1/schedule", question, &code);
    if (decision == NULL || code != 200) {
        note_why(ride, "the conductor", code);
        ride->refused = code == REFUSED;
        json_decref(decision);
        return NULL;
    }
    return decision;
}

/* A decision that nobody will carry out, as the engine of that role did not. */
static void
note_failure(struct ride *ride, const json_t *decision, const char *role, long code)
{
    note_why(ride, text_of(decision, role), code);
    (void)snprintf(ride->failed, sizeof(ride->failed), "%s", text_of(decision, role));
    json_decref(yb_ask_json(ride->curl, conductor_of(ride), "/v1/done",
                            json_pack("{s:I, s:s, s:b}", "decision",
                                      json_integer_value(json_object_get(decision, "decision")),
                                      "stage", "ended", "failed", 1),
                            NULL));
}

/* Ask the engine of that role, `params` being consumed. NULL: it failed. */
static json_t *
complete(struct ride *ride, const json_t *decision, const char *role, uint32_t tokens,
         json_t *params, uint64_t decided_ns)
{
    const bool prefill = strcmp(role, "prefill") == 0;
    const char *address = text_of(decision, prefill ? "prefill_address" : "decode_address");
    json_t *body = json_pack("{s:s, s:i, s:o, s:I, s:i, s:I, s:I, s:O}", "prompt", ride->prompt,
                             "max_tokens", (int)tokens, "kv_transfer_params", params, "decision",
                             json_integer_value(json_object_get(decision, "decision")), "conductor",
                             (int)ride->conductor, "reuse_tokens",
                             json_integer_value(json_object_get(decision, "reuse_tokens")),
                             "decided_us", (json_int_t)((now_of(ride) - decided_ns) / YB_NS_PER_US),
                             "instructions", json_object_get(decision, "instructions"));
    long code = 0;
    json_t *answer;

    ride->asked_ns = now_of(ride);
    answer = yb_ask_traced(ride->curl, address, "/v1/completions", body,
                           json_string_value(json_object_get(decision, "traceparent")), &code);
    if (answer == NULL || code != 200) {
        note_failure(ride, decision, role, code);
        json_decref(answer);
        return NULL;
    }
    return answer;
}

/* Note how the moves ended that an engine has judged. */
static void
note_moves(struct yb_demo_moves *moves, const json_t *answer)
{
    const json_t *list = json_object_get(json_object_get(answer, "yuebing"), "instructions");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *outcome = text_of(json_array_get(list, i), "outcome");

        moves->in_time += strcmp(outcome, "in_time") == 0;
        moves->late += strcmp(outcome, "late") == 0;
        moves->otherwise += strcmp(outcome, "in_time") != 0 && strcmp(outcome, "late") != 0;
    }
}

/* Note where its prompt came from, and when, beside what the conductor said. */
static void
note_prefill(struct ride *ride, const json_t *decision, const json_t *answer)
{
    const json_t *times = json_object_get(decision, "times");
    static const char *const tiers[YB_DEMO_TIERS] = {"device", "dram", "ssd", "object"};
    const json_t *said = json_object_get(answer, "yuebing");
    struct yb_demo_served *served = ride->served;

    served->device_tokens = (uint32_t)yb_ask_number(said, "device_tokens");
    served->loaded_tokens = (uint32_t)yb_ask_number(said, "loaded_tokens");
    for (uint32_t i = 0; i < YB_DEMO_TIERS; i++) {
        served->tier_bytes[i] = yb_ask_number(json_object_get(said, "tier_bytes"), tiers[i]);
    }
    served->predicted_ttft_ns = yb_ask_number(times, "ttft_us") * YB_NS_PER_US;
    if (served->loaded_tokens > 0) {
        served->predicted_us = yb_ask_number(times, "load_us");
        served->load_us = yb_ask_number(said, "load_us");
    }
    note_moves(&served->fetches, answer);
}

/* Have it computed up to its first token, and then to its end elsewhere. */
static bool
carry_out(struct ride *ride, const json_t *decision, uint64_t decided_ns)
{
    uint64_t due_ns = ride->run->begun_ns +
                      (uint64_t)((double)ride->request->arrival_ns / ride->run->work->speed);
    json_t *first = complete(ride, decision, "prefill", 1,
                             json_pack("{s:b}", "do_remote_decode", 1), decided_ns);
    const json_t *said;
    json_t *last;
    bool answered;

    if (first == NULL) {
        return false;
    }
    ride->served->ttft_ns = now_of(ride) - due_ns;
    ride->served->measured_ttft_ns = now_of(ride) - decided_ns;
    note_prefill(ride, decision, first);
    last = complete(ride, decision, "decode", ride->answer_tokens,
                    json_incref(json_object_get(first, "kv_transfer_params")), decided_ns);
    json_decref(first);
    said = json_object_get(last, "yuebing");
    answered =
        yb_ask_number(json_object_get(last, "usage"), "completion_tokens") == ride->answer_tokens;
    if (last != NULL && !answered) {
        note_why(ride, "too short an answer", 200);
    }
    note_moves(&ride->served->streams, last);
    ride->served->pulled_bytes = yb_ask_number(said, "pulled_bytes");
    ride->served->pull_us = yb_ask_number(said, "load_us");
    json_decref(last);
    return answered;
}

/* Ask once, when it is its turn. True: there was an answer. */
static bool
try_once(struct ride *ride, uint64_t until_ns)
{
    struct yb_demo_turns *turns = &ride->run->turns;
    uint64_t decided_ns = now_of(ride);
    json_t *decision;
    bool answered;

    if (until_ns <= decided_ns || !yb_demo_turn_await(turns, ride->index, until_ns - decided_ns)) {
        return false;
    }
    ride->refused = false;
    ride->conductor = (ride->index + ride->served->tries) % ride->run->cluster->conductor_count;
    decided_ns = now_of(ride);
    decision = schedule(ride);
    if (ride->refused) {
        yb_demo_turn_refused(turns, ride->index);
    } else {
        yb_demo_turn_end(turns, ride->index);
    }
    answered = decision != NULL && carry_out(ride, decision, decided_ns);
    json_decref(decision);
    return answered;
}

static void
serve(struct ride *ride)
{
    uint64_t until_ns = now_of(ride) + TRY_NS;
    struct yb_demo_served *served = ride->served;
    uint32_t failures = 0;

    served->prompt_tokens = ride->request->input_tokens;
    while (!served->answered && failures < TRIES_MAX && now_of(ride) < until_ns) {
        served->answered = try_once(ride, until_ns);
        served->tries++;
        if (!served->answered) {
            failures += !ride->refused;
            yb_demo_pause(ride->refused ? AGAIN_NS : AGAIN_NS * failures);
        }
    }
    yb_demo_turn_end(&ride->run->turns, ride->index);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void
ride_one(struct run *run, struct yb_curl *curl, uint32_t index)
{
    const struct yb_trace_request *request = &run->work->trace->requests[index];
    uint64_t due_ns = run->begun_ns + (uint64_t)((double)request->arrival_ns / run->work->speed);
    struct ride ride = {
        .run = run,
        .curl = curl,
        .request = request,
        .index = index,
        .answer_tokens = request->output_tokens,
        .served = &run->served[index],
    };
    uint64_t now;

    ride.prompt = make_prompt(run->work, index);
    ride.hashes = ride.prompt != NULL ? name_blocks(&ride) : NULL;
    now = yb_clock_now(run->clock);
    if (ride.hashes != NULL) {
        if (due_ns > now) {
            yb_demo_pause(due_ns - now);
        }
        serve(&ride);
    }
    json_decref(ride.hashes);
    free(ride.prompt);
}

static void *
be_rider(void *context)
{
    struct run *run = context;
    struct yb_curl *curl = NULL;
    uint32_t index;

    if (yb_curl_create(&curl, NULL) != YB_OK) {
        return NULL;
    }
    while ((index = atomic_fetch_add(&run->next, 1)) < run->work->count) {
        ride_one(run, curl, index);
    }
    yb_curl_destroy(&curl);
    return NULL;
}

/* Let riders serve all requests. False: there could be none. */
static bool
ride_all(struct run *run)
{
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    uint32_t count = 0;

    YB_ASSERT(pthread_attr_init(&attributes) == 0);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (count < THREADS && count < run->work->count &&
           pthread_create(&threads[count], &attributes, be_rider, run) == 0) {
        count++;
    }
    (void)pthread_attr_destroy(&attributes);
    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(pthread_join(threads[i], NULL) == 0);
    }
    return count > 0;
}

bool
yb_demo_run(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape,
            const struct yb_demo_work *work, const struct yb_sched_cost *cost,
            struct yb_demo_column *column_out)
{
    struct run run = {
        .cluster = cluster,
        .shape = shape,
        .work = work,
        .clock = yb_clock_system(),
        .served = calloc(work->count, sizeof(struct yb_demo_served)),
    };
    struct yb_measure_machine before = yb_measure_machine_now();
    struct yb_curl *curl = NULL;
    bool done;

    YB_ASSERT(work->count > 0 && work->count <= work->trace->request_count);
    column_out->asked = work->count;
    run.begun_ns = yb_clock_now(run.clock);
    done = yb_demo_turns_init(&run.turns, work->count) == YB_OK && run.served != NULL &&
           ride_all(&run);
    column_out->span_s = (double)(yb_clock_now(run.clock) - run.begun_ns) / 1e9;
    column_out->cpu_busy = yb_measure_machine_busy(&before);
    done = done && yb_demo_column_add_up(column_out, run.served, cost) &&
           yb_curl_create(&curl, cluster->why) == YB_OK &&
           yb_demo_column_ask(column_out, cluster, curl);
    if (curl != NULL) {
        yb_curl_destroy(&curl);
    }
    yb_demo_turns_fini(&run.turns);
    free(run.served);
    return done;
}
