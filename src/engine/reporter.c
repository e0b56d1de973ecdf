/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reporter.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cpus.h"
#include "engine/engine_internal.h"
#include "net/curl.h"

#define REPORTER_MAGIC 0x65727074u
#define REPORT_NS      (100 * YB_NS_PER_MS)
#define LEAST_NS       (10 * YB_NS_PER_MS) /* Between two reports. */
#define AGAIN_NS       YB_NS_PER_S         /* After a failure. */
#define CONNECT_NS     YB_NS_PER_S
#define CALL_NS        (5 * YB_NS_PER_S)
#define CHANGES_A_TIME 4096u
#define MEASURE_NS     (2 * YB_NS_PER_MS) /* Of waiting, before a rate is taken from it. */
#define SMOOTH         0.3
#define CHANGES_EACH   4u /* Waiting, for each block of the engine. */
#define HTTP_OK        200
#define HTTP_NOT_FOUND 404
#define HTTP_CONFLICT  409

struct change {
    uint8_t key[YB_KV_KEY_BYTES];
    bool there;
};

struct done {
    uint64_t decision;
    uint64_t ttft_us;
    uint64_t total_us;
    uint32_t tokens;
    bool first;
    bool failed;
    struct yb_trace_context trace;
    struct yb_engine_verdicts verdicts;
};

struct yb_engine_reporter {
    uint32_t magic;
    struct yb_engine_reporter_options options;
    struct yb_engine *engine;
    struct yb_engine_service *service;
    const struct yb_clock *clock;
    struct yb_curl *curl;
    pthread_t thread;
    bool thread_runs;
    bool known; /* The conductor has registered this incarnation. */
    uint64_t incarnation;
    uint64_t sequence;
    struct yb_engine_info measured;          /* Of the report before. */
    double rates[YB_CLIENT_TIER_OBJECT + 1]; /* Bytes per second, smoothed; 0: not known. */

    struct yb_lock lock; /* Rank REPORTER; all below. */
    pthread_cond_t more;
    bool stops;
    struct change *changes; /* A ring. */
    uint32_t change_max;
    uint32_t change_first;
    uint32_t change_count;
    bool overflown;     /* Changes were lost: all has to be told again. */
    struct done *dones; /* Another one, of YB_ENGINE_DONE_MAX. */
    uint32_t done_first;
    uint32_t done_count;
    bool taken; /* Something came since the last report that this conductor does not know of. */
    struct yb_engine_reporter_info info;
};

/* ---- what waits ------------------------------------------------------------------------------ */

void
yb_engine_reporter_block(void *context, const uint8_t key[YB_KV_KEY_BYTES], bool there)
{
    struct yb_engine_reporter *reporter = context;

    YB_ASSERT_OBJ(reporter, REPORTER_MAGIC);
    yb_lock_acquire(&reporter->lock);
    if (reporter->change_count == reporter->change_max) {
        reporter->overflown = true;
    } else {
        uint32_t at = (reporter->change_first + reporter->change_count++) % reporter->change_max;

        memcpy(reporter->changes[at].key, key, YB_KV_KEY_BYTES);
        reporter->changes[at].there = there;
    }
    yb_lock_release(&reporter->lock);
}

static uint64_t
span_us(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (to_ns - from_ns) / YB_NS_PER_US : 0;
}

void
yb_engine_reporter_taken(struct yb_engine_reporter *reporter)
{
    YB_ASSERT_OBJ(reporter, REPORTER_MAGIC);
    yb_lock_acquire(&reporter->lock);
    reporter->taken = true;
    (void)pthread_cond_signal(&reporter->more);
    yb_lock_release(&reporter->lock);
}

void
yb_engine_reporter_done(struct yb_engine_reporter *reporter, uint64_t decision,
                        const struct yb_engine_outcome *outcome, bool first,
                        const struct yb_engine_verdicts *verdicts)
{
    YB_ASSERT_OBJ(reporter, REPORTER_MAGIC);
    yb_lock_acquire(&reporter->lock);
    if (reporter->done_count == YB_ENGINE_DONE_MAX) {
        reporter->info.lost++;
    } else {
        uint32_t at = (reporter->done_first + reporter->done_count++) % YB_ENGINE_DONE_MAX;

        reporter->dones[at] = (struct done){
            .decision = decision,
            .ttft_us = span_us(outcome->arrival_ns, outcome->first_ns),
            .total_us = span_us(outcome->arrival_ns, outcome->last_ns),
            .tokens = outcome->answer_tokens,
            .first = first,
            .failed = outcome->status != YB_OK,
            .trace = outcome->trace,
            .verdicts = *verdicts,
        };
    }
    (void)pthread_cond_signal(&reporter->more);
    yb_lock_release(&reporter->lock);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Ask, and consume `body`; `caused` (may be NULL): it belongs there. Returns the code; 0: no
 * answer. */
static long
call(struct yb_engine_reporter *reporter, const char *path, json_t *body,
     const struct yb_trace_context *caused)
{
    static const char trace_name[] = "traceparent: ";
    char url[YB_ENGINE_URL_BYTES + 32];
    char authorization[256];
    char trace[sizeof(trace_name) + YB_TRACEPARENT_LENGTH];
    const char *headers[3] = {"Content-Type: application/json"};
    uint32_t header_count = 1;
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct yb_curl_request request = {
        .method = "POST",
        .url = url,
        .headers = headers,
        .body = text,
        .body_bytes = text != NULL ? strlen(text) : 0,
        .connect_ns = CONNECT_NS,
        .timeout_ns = CALL_NS,
    };
    long code = 0;

    json_decref(body);
    (void)snprintf(url, sizeof(url), "%s%s", reporter->options.url, path);
    if (reporter->options.secret != NULL) {
        (void)snprintf(authorization, sizeof(authorization), "Authorization: Bearer %s",
                       reporter->options.secret);
        headers[header_count++] = authorization;
    }
    if (caused != NULL) {
        memcpy(trace, trace_name, sizeof(trace_name));
        yb_traceparent_format(caused, trace + sizeof(trace_name) - 1);
        headers[header_count++] = trace;
    }
    request.header_count = header_count;
    if (text == NULL || yb_curl_ask(reporter->curl, &request, &code, NULL) != YB_OK) {
        code = 0;
    }
    explicit_bzero(authorization, sizeof(authorization));
    free(text);
    if (code != HTTP_OK) {
        yb_lock_acquire(&reporter->lock);
        reporter->info.failures++;
        yb_lock_release(&reporter->lock);
    }
    return code;
}

static void
tell_again(void *context, const uint8_t key[YB_KV_KEY_BYTES])
{
    yb_engine_reporter_block(context, key, true);
}

static bool
say_hello(struct yb_engine_reporter *reporter)
{
    const struct yb_engine_reporter_options *options = &reporter->options;
    const struct yb_sched_cost *cost = &options->cost;
    static const char *const roles[] = {"", "prefill", "decode", "both"};
    json_t *body;

    reporter->incarnation++;
    body = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:I, s:I, s:I, s:I}",
        "name", options->name, "model", options->model, "address", options->address, "roles",
        roles[options->roles], "incarnation", (json_int_t)reporter->incarnation, "prefill_base_ns",
        (json_int_t)cost->prefill_base_ns, "prefill_token_ns", cost->prefill_token_ns,
        "prefill_pair_ns", cost->prefill_pair_ns, "step_base_ns", (json_int_t)cost->step_base_ns,
        "step_sequence_ns", (json_int_t)cost->step_sequence_ns, "step_token_ns",
        cost->step_token_ns, "kv_bytes", (json_int_t)cost->kv_bytes, "kv_tokens_max",
        (json_int_t)cost->kv_tokens_max, "layers", (json_int_t)cost->layers, "pass_tokens",
        (json_int_t)cost->pass_tokens, "in_rate", (json_int_t)options->net_rate, "out_rate",
        (json_int_t)options->net_rate, "load_rate", (json_int_t)options->load_rate, "ssd_rate",
        (json_int_t)options->ssd_rate, "object_rate", (json_int_t)options->object_rate, "rack",
        (json_int_t)options->rack, "group", (json_int_t)options->group, "parts",
        (json_int_t)options->parts);
    if (options->node != NULL) {
        (void)json_object_set_new(body, "node", json_string(options->node));
    }
    if (call(reporter, "/v1/register", body, NULL) != HTTP_OK) {
        return false;
    }
    /* A new incarnation has no blocks: tell of all. Between the two locks others may add changes of
     * their own; what is told twice does no harm. */
    yb_lock_acquire(&reporter->lock);
    reporter->change_count = 0;
    reporter->overflown = false;
    reporter->info.registered++;
    yb_lock_release(&reporter->lock);
    yb_engine_visit(reporter->engine, tell_again, reporter);
    reporter->known = true;
    return true;
}

static json_t *
take_changes(struct yb_engine_reporter *reporter)
{
    json_t *list = json_array();
    char hex[33];

    yb_lock_acquire(&reporter->lock);
    for (uint32_t i = 0; i < CHANGES_A_TIME && reporter->change_count > 0; i++) {
        const struct change *change = &reporter->changes[reporter->change_first];
        struct yb_id key;

        memcpy(key.bytes, change->key, sizeof(key.bytes));
        yb_id_format(key, hex);
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s}", "key", hex, "change", change->there ? "came" : "left"));
        reporter->change_first = (reporter->change_first + 1) % reporter->change_max;
        reporter->change_count--;
    }
    yb_lock_release(&reporter->lock);
    return list;
}

/* Learn how fast each tier of the store brings bytes while something is awaited from it. */
static void
measure(struct yb_engine_reporter *reporter, const struct yb_engine_info *info)
{
    for (uint32_t i = 0; i <= YB_CLIENT_TIER_OBJECT; i++) {
        uint64_t bytes = info->tier_came_bytes[i] - reporter->measured.tier_came_bytes[i];
        uint64_t took = info->tier_busy_ns[i] - reporter->measured.tier_busy_ns[i];
        double rate = took == 0 ? 0 : (double)bytes * (double)YB_NS_PER_S / (double)took;

        if (took < MEASURE_NS) {
            continue; /* Too short to say; it is counted the next time. */
        }
        reporter->measured.tier_came_bytes[i] = info->tier_came_bytes[i];
        reporter->measured.tier_busy_ns[i] = info->tier_busy_ns[i];
        reporter->rates[i] = reporter->rates[i] > 0
                                 ? reporter->rates[i] + (rate - reporter->rates[i]) * SMOOTH
                                 : rate;
    }
}

static void
report(struct yb_engine_reporter *reporter)
{
    struct yb_engine_info info;
    struct yb_engine_seen seen[YB_SCHED_CONDUCTORS_MAX];
    json_t *heard = json_array();
    const double *rates = reporter->rates;
    long code;

    yb_engine_info(reporter->engine, &info);
    yb_engine_service_seen(reporter->service, seen);
    for (uint32_t i = 0; i < YB_SCHED_CONDUCTORS_MAX; i++) {
        if (seen[i].newest > 0) {
            (void)json_array_append_new(heard, json_pack("{s:i, s:I, s:i}", "conductor", (int)i,
                                                         "seen", (json_int_t)seen[i].newest,
                                                         "in_flight", (int)seen[i].in_flight));
        }
    }
    measure(reporter, &info);
    code = call(
        reporter, "/v1/report",
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, "
                  "s:o}",
                  "name", reporter->options.name, "incarnation", (json_int_t)reporter->incarnation,
                  "sequence", (json_int_t)++reporter->sequence, "prefill_left_us",
                  (json_int_t)(info.prefill_ns / YB_NS_PER_US), "prefill_tokens",
                  (json_int_t)info.prefill_tokens, "queued", (int)(info.waiting + info.prompts),
                  "running", (int)info.running, "context_tokens", (json_int_t)info.context_tokens,
                  "kv_tokens_used",
                  (json_int_t)info.slots_used * yb_engine_block_tokens(reporter->engine), "in_rate",
                  (json_int_t)rates[YB_CLIENT_TIER_DRAM], "load_rate",
                  (json_int_t)rates[YB_CLIENT_TIER_DRAM], "ssd_rate",
                  (json_int_t)rates[YB_CLIENT_TIER_SSD], "object_rate",
                  (json_int_t)rates[YB_CLIENT_TIER_OBJECT], "saved_us",
                  (json_int_t)(info.saved_ns / (double)YB_NS_PER_US), "seen", heard, "blocks",
                  take_changes(reporter)),
        NULL);
    yb_lock_acquire(&reporter->lock);
    reporter->info.reports += code == HTTP_OK;
    yb_lock_release(&reporter->lock);
    /* What an unanswered report had of changes may be lost: all is told again. */
    reporter->known = code == HTTP_OK;
}

/* Copy the oldest of them; false: there is none. */
static bool
first_done(struct yb_engine_reporter *reporter, struct done *done_out)
{
    bool any;

    yb_lock_acquire(&reporter->lock);
    any = reporter->done_count > 0;
    if (any) {
        *done_out = reporter->dones[reporter->done_first];
    }
    yb_lock_release(&reporter->lock);
    return any;
}

static void
drop_first_done(struct yb_engine_reporter *reporter)
{
    yb_lock_acquire(&reporter->lock);
    reporter->done_first = (reporter->done_first + 1) % YB_ENGINE_DONE_MAX;
    reporter->done_count--;
    yb_lock_release(&reporter->lock);
}

/* What is not answered is told again the next time: whoever never hears of a request's end takes it
 * for running. That it ended twice does no harm. */
static void
tell_done(struct yb_engine_reporter *reporter)
{
    struct done done;

    while (first_done(reporter, &done)) {
        long code = call(reporter, "/v1/done",
                         json_pack("{s:I, s:s, s:I, s:I, s:i, s:b, s:o}", "decision",
                                   (json_int_t)done.decision, "stage",
                                   done.first ? "first_token" : "ended", "ttft_us",
                                   (json_int_t)done.ttft_us, "total_us", (json_int_t)done.total_us,
                                   "output_tokens", (int)done.tokens, "failed", (int)done.failed,
                                   "instructions", yb_engine_verdicts_json(&done.verdicts)),
                         &done.trace);

        if (code == 0) {
            return;
        }
        drop_first_done(reporter);
    }
}

/* Wait until there is something to tell, for `pause_ns` at the most. */
static void
rest(struct yb_engine_reporter *reporter, uint64_t pause_ns)
{
    uint64_t begun_ns = yb_clock_now(reporter->clock);
    uint64_t rested_ns = 0;

    yb_lock_acquire(&reporter->lock);
    while (!reporter->stops && (reporter->done_count == 0 || !reporter->known)) {
        uint64_t until_ns = reporter->taken && reporter->known ? LEAST_NS : pause_ns;

        if (rested_ns >= until_ns) {
            break;
        }
        (void)yb_lock_wait(&reporter->lock, &reporter->more, until_ns - rested_ns);
        rested_ns = yb_clock_now(reporter->clock) - begun_ns;
    }
    yb_lock_release(&reporter->lock);
}

static void *
run_reporter(void *context)
{
    struct yb_engine_reporter *reporter = context;

    yb_cpus_as_process();
    for (;;) {
        uint64_t pause_ns = reporter->options.report_ns;
        bool over, again;

        yb_lock_acquire(&reporter->lock);
        over = reporter->stops;
        again = reporter->overflown;
        reporter->taken = false;
        yb_lock_release(&reporter->lock);
        if (over) {
            break;
        }
        if ((reporter->known && !again) || say_hello(reporter)) {
            tell_done(reporter);
            report(reporter);
        } else {
            pause_ns = AGAIN_NS;
        }
        rest(reporter, pause_ns);
    }
    if (reporter->known) {
        tell_done(reporter);
        (void)call(reporter, "/v1/unregister", json_pack("{s:s}", "name", reporter->options.name),
                   NULL);
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_engine_reporter_create(const struct yb_engine_reporter_options *options,
                          struct yb_engine_reporter **reporter_out,
                          char why_out[YB_ENGINE_WHY_BYTES])
{
    struct yb_engine_reporter *reporter;
    char error[YB_CURL_ERROR_BYTES] = "";
    enum yb_status status;

    why_out[0] = '\0';
    if (strncmp(options->url, "http://", 7) != 0 || strlen(options->url) >= YB_ENGINE_URL_BYTES) {
        (void)snprintf(why_out, YB_ENGINE_WHY_BYTES,
                       "the conductor's URL is written http://HOST:PORT");
        return YB_INVALID;
    }
    reporter = calloc(1, sizeof(*reporter));
    if (reporter == NULL) {
        return YB_NO_MEMORY;
    }
    reporter->magic = REPORTER_MAGIC;
    reporter->options = *options;
    if (options->report_ns == 0) {
        reporter->options.report_ns = REPORT_NS;
    }
    reporter->clock = yb_clock_system();
    /* Lives must not be mistaken for each other, also when the engine's process is a new one. */
    reporter->incarnation = yb_clock_wall(reporter->clock) / YB_NS_PER_US;
    yb_lock_init(&reporter->lock, YB_LOCK_REPORTER);
    yb_lock_cond_init(&reporter->more);
    reporter->dones = calloc(YB_ENGINE_DONE_MAX, sizeof(*reporter->dones));
    reporter->change_max = CHANGES_A_TIME;
    reporter->changes = calloc(reporter->change_max, sizeof(*reporter->changes));
    status = reporter->dones == NULL || reporter->changes == NULL
                 ? YB_NO_MEMORY
                 : yb_curl_create(&reporter->curl, error);
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_ENGINE_WHY_BYTES, "%.159s", error);
        yb_engine_reporter_destroy(&reporter);
        return status;
    }
    *reporter_out = reporter;
    return YB_OK;
}

enum yb_status
yb_engine_reporter_attach(struct yb_engine_reporter *reporter, struct yb_engine *engine,
                          struct yb_engine_service *service)
{
    struct yb_engine_info info;
    struct change *changes;

    YB_ASSERT_OBJ(reporter, REPORTER_MAGIC);
    yb_engine_info(engine, &info);
    yb_lock_acquire(&reporter->lock);
    changes = calloc((size_t)info.slots * CHANGES_EACH, sizeof(*changes));
    if (changes != NULL) {
        free(reporter->changes); /* All is told when it registers. */
        reporter->changes = changes;
        reporter->change_max = info.slots * CHANGES_EACH;
        reporter->change_first = reporter->change_count = 0;
    }
    yb_lock_release(&reporter->lock);
    if (changes == NULL) {
        return YB_NO_MEMORY;
    }
    reporter->engine = engine;
    reporter->service = service;
    reporter->thread_runs = pthread_create(&reporter->thread, NULL, run_reporter, reporter) == 0;
    return reporter->thread_runs ? YB_OK : YB_NO_MEMORY;
}

void
yb_engine_reporter_quiet(struct yb_engine_reporter *reporter)
{
    YB_ASSERT_OBJ(reporter, REPORTER_MAGIC);
    yb_lock_acquire(&reporter->lock);
    reporter->stops = true;
    (void)pthread_cond_signal(&reporter->more);
    yb_lock_release(&reporter->lock);
    if (reporter->thread_runs) {
        YB_ASSERT(pthread_join(reporter->thread, NULL) == 0);
        reporter->thread_runs = false;
    }
}

void
yb_engine_reporter_destroy(struct yb_engine_reporter **reporter_ref)
{
    struct yb_engine_reporter *reporter = *reporter_ref;

    yb_engine_reporter_quiet(reporter);
    *reporter_ref = NULL;
    if (reporter->curl != NULL) {
        yb_curl_destroy(&reporter->curl);
    }
    (void)pthread_cond_destroy(&reporter->more);
    yb_lock_fini(&reporter->lock);
    reporter->magic = 0;
    free(reporter->changes);
    free(reporter->dones);
    free(reporter);
}

void
yb_engine_reporter_info(struct yb_engine_reporter *reporter,
                        struct yb_engine_reporter_info *info_out)
{
    YB_ASSERT_OBJ(reporter, REPORTER_MAGIC);
    yb_lock_acquire(&reporter->lock);
    *info_out = reporter->info;
    yb_lock_release(&reporter->lock);
}
