/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/demo_process.h"
#include "cli/verify.h"
#include "yuebing/client.h"

#define BLOCKS     4u    /* Of the prompt. */
#define TOKENS_MAX 8192u /* Of a block. */
#define WORD       4u    /* Bytes of text that are a token of the engine stand-in. */
#define KNOWN_NS   (10 * YB_NS_PER_S)
#define LOOK_NS    (50 * YB_NS_PER_MS)

/* ---- two clients ----------------------------------------------------------------------------- */

static void
between_clients(struct yb_verify *verify, struct yb_verify_link *link)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < YB_VERIFY_NODES_MAX; i++) {
        enum yb_status status = verify->put[i] ? yb_verify_get(verify, i) : YB_NOT_FOUND;

        if (verify->put[i] && status != YB_OK) {
            (void)yb_verify_say(link, YB_VERIFY_BROKEN,
                                "another client does not get what one has put: %s",
                                yb_cli_outcome_text(status));
            return;
        }
        count += verify->put[i];
        link->bytes += verify->put[i] ? YB_VERIFY_BYTES : 0;
    }
    if (count == 0) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN, "nothing could be put: see the metadata map");
        return;
    }
    (void)yb_verify_say(link, YB_VERIFY_OK,
                        "another client got %u blocks; with --conductor engines are tried, too",
                        count);
}

/* ---- two engines ----------------------------------------------------------------------------- */

/* A prompt that nobody has asked before, on its way through engines. */
struct trial {
    struct yb_verify *verify;
    struct yb_curl *curl;
    json_t *hashes;
    char model[64];
    uint32_t block_tokens;
    char *prompt;
    char first[64]; /* Who computed it. */
    json_t *answer; /* What that one said. */
};

static const char *
text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

/* Find out what engines there are. */
static bool
meet(struct trial *trial, struct yb_verify_link *link)
{
    json_t *told = yb_ask_by(trial->curl, trial->verify->conductor, "/v1/conductor", NULL, NULL);
    json_t *list = yb_ask_by(trial->curl, trial->verify->conductor, "/v1/instances", NULL, NULL);
    const json_t *instances = json_object_get(list, "instances");
    size_t i = 0;

    trial->block_tokens = (uint32_t)yb_ask_number(told, "block_tokens");
    while (i < json_array_size(instances) && trial->model[0] == '\0') {
        (void)snprintf(trial->model, sizeof(trial->model), "%s",
                       text_of(json_array_get(instances, i++), "model"));
    }
    json_decref(told);
    json_decref(list);
    if (trial->block_tokens == 0 || trial->block_tokens > TOKENS_MAX) {
        return yb_verify_say(link, YB_VERIFY_BROKEN,
                             "no conductor answers at %s: see that it runs and serves HTTP there",
                             trial->verify->conductor);
    }
    return trial->model[0] != '\0' ||
           yb_verify_say(link, YB_VERIFY_BROKEN,
                         "the conductor knows of no engine: start one with --conductor %s",
                         trial->verify->conductor);
}

/* Make the prompt, and name its blocks as engines do. */
static bool
make_prompt(struct trial *trial)
{
    uint32_t tokens = BLOCKS * trial->block_tokens + 1;
    uint32_t *numbers = calloc(tokens, sizeof(*numbers));
    uint8_t keys[BLOCKS][16];
    uint64_t state = trial->verify->number | 1;

    trial->prompt = calloc(tokens, WORD + 1);
    if (numbers == NULL || trial->prompt == NULL) {
        free(numbers);
        return false;
    }
    for (uint32_t i = 0; i < tokens * WORD; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        trial->prompt[i] = (char)('a' + state % 26);
    }
    memcpy(numbers, trial->prompt, (size_t)tokens * WORD);
    (void)yb_key_chain(numbers, tokens, trial->block_tokens, trial->model, keys, BLOCKS);
    trial->hashes = json_array();
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct yb_id id;
        char hex[33];

        memcpy(id.bytes, keys[i], sizeof(id.bytes));
        yb_id_format(id, hex);
        (void)json_array_append_new(trial->hashes, json_string(hex));
    }
    free(numbers);
    return true;
}

static json_t *
schedule(struct trial *trial)
{
    json_t *question = json_pack("{s:O, s:i, s:i, s:s}", "hashes", trial->hashes, "input_tokens",
                                 (int)(BLOCKS * trial->block_tokens + 1), "output_tokens", 2,
                                 "model", trial->model);

    if (trial->first[0] != '\0') {
        (void)json_object_set_new(question, "not_at", json_string(trial->first));
    }
    return yb_ask_json(trial->curl, trial->verify->conductor, "/v1/schedule", question, NULL);
}

/* Send the prompt where a decision says; there all that is stored is to be loaded, also where less
 * would pay. NULL: the engine does not answer. */
static json_t *
complete(struct trial *trial, const json_t *decision)
{
    json_t *body = json_pack("{s:s, s:i, s:I, s:O, s:I}", "prompt", trial->prompt, "max_tokens", 2,
                             "decision", (json_int_t)yb_ask_number(decision, "decision"),
                             "instructions", json_object_get(decision, "instructions"),
                             "reuse_tokens", (json_int_t)BLOCKS * trial->block_tokens);
    long code = 0;
    json_t *answer = yb_ask_json(trial->curl, text_of(decision, "prefill_address"),
                                 "/v1/completions", body, &code);

    if (code != 200) {
        json_decref(answer);
        return NULL;
    }
    return answer;
}

/* Wait until an engine has stored what it computed. */
static void
await_stored(struct trial *trial, const char *address)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t until_ns = yb_clock_now(clock) + KNOWN_NS;
    uint64_t stores = 1;

    while (stores > 0 && yb_clock_now(clock) < until_ns) {
        json_t *told = yb_ask_by(trial->curl, address, "/v1/engine", NULL, NULL);

        stores = yb_ask_number(told, "stores");
        json_decref(told);
        if (stores > 0) {
            yb_demo_pause(LOOK_NS);
        }
    }
}

static bool
compute_first(struct trial *trial, struct yb_verify_link *link)
{
    json_t *decision = schedule(trial);
    bool done = false;

    if (!json_is_true(json_object_get(decision, "accepted"))) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN, "the conductor takes no request: %s",
                            text_of(decision, "reason"));
    } else {
        trial->answer = complete(trial, decision);
        done = trial->answer != NULL ||
               yb_verify_say(link, YB_VERIFY_BROKEN, "engine %s does not answer at %s",
                             text_of(decision, "prefill"), text_of(decision, "prefill_address"));
        (void)snprintf(trial->first, sizeof(trial->first), "%s", text_of(decision, "prefill"));
        await_stored(trial, text_of(decision, "prefill_address"));
    }
    json_decref(decision);
    return done;
}

/* Whether the conductor knows that blocks of the prompt lie in the pool. */
static bool
is_in_pool(struct trial *trial)
{
    json_t *told =
        yb_ask_json(trial->curl, trial->verify->conductor, "/v1/query",
                    json_pack("{s:O, s:s}", "hashes", trial->hashes, "model", trial->model), NULL);
    const json_t *place;
    size_t i;
    bool known = false;

    json_array_foreach(json_object_get(told, "places"), i, place)
    {
        known = known || yb_ask_number(place, "dram") > 0 || yb_ask_number(place, "ssd") > 0;
    }
    json_decref(told);
    return known;
}

/* Ask for another engine until it is told to reuse something; or could be, where computing is as
 * fast as loading, and the conductor rightly has it compute. NULL: neither, in time. */
static json_t *
await_known(struct trial *trial)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t until_ns = yb_clock_now(clock) + KNOWN_NS;
    json_t *decision = NULL;

    do {
        json_decref(decision);
        decision = schedule(trial);
        if (yb_ask_number(decision, "reuse_tokens") > 0 ||
            (json_is_true(json_object_get(decision, "accepted")) && is_in_pool(trial))) {
            return decision;
        }
        json_decref(yb_ask_json(trial->curl, trial->verify->conductor, "/v1/done",
                                json_pack("{s:I, s:s, s:b}", "decision",
                                          (json_int_t)yb_ask_number(decision, "decision"), "stage",
                                          "ended", "failed", 1),
                                NULL));
        yb_demo_pause(LOOK_NS);
    } while (yb_clock_now(clock) < until_ns);
    json_decref(decision);
    return NULL;
}

static const json_t *
tokens_of(const json_t *answer)
{
    return json_object_get(json_array_get(json_object_get(answer, "choices"), 0), "token_ids");
}

/* Another engine loads what the first one has computed, and says the same. */
static void
reuse(struct trial *trial, struct yb_verify_link *link)
{
    json_t *decision = await_known(trial);
    json_t *answer = decision != NULL ? complete(trial, decision) : NULL;
    const json_t *said = json_object_get(answer, "yuebing");
    uint64_t loaded = yb_ask_number(said, "loaded_tokens");

    if (decision == NULL) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN,
                            "no engine beside %s is told to reuse its blocks: are there two, and "
                            "do both use this store?",
                            trial->first);
    } else if (answer == NULL) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN, "engine %s does not answer at %s",
                            text_of(decision, "prefill"), text_of(decision, "prefill_address"));
    } else if (loaded == 0 || yb_ask_number(said, "wrong_bytes") > 0 ||
               !json_equal(tokens_of(answer), tokens_of(trial->answer))) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN,
                            "engine %s loaded %lld tokens of engine %s, with %llu wrong bytes: see "
                            "its load_failures at /v1/engine",
                            text_of(decision, "prefill"), (long long)loaded, trial->first,
                            (unsigned long long)yb_ask_number(said, "wrong_bytes"));
    } else {
        const json_t *tiers = json_object_get(said, "tier_bytes");

        link->bytes = yb_ask_number(tiers, "dram") + yb_ask_number(tiers, "ssd") +
                      yb_ask_number(tiers, "object");
        link->took_ns = yb_ask_number(said, "load_us") * YB_NS_PER_US;
        (void)yb_verify_say(link, YB_VERIFY_OK,
                            "engine %s loaded %lld tokens that engine %s has computed, and answers "
                            "the same",
                            text_of(decision, "prefill"), (long long)loaded, trial->first);
    }
    json_decref(decision);
    json_decref(answer);
}

void
yb_verify_reuse(struct yb_verify *verify, struct yb_verify_link *link)
{
    struct trial trial = {.verify = verify};
    char why[YB_CURL_ERROR_BYTES] = "";

    if (verify->conductor == NULL) {
        between_clients(verify, link);
        return;
    }
    if (yb_curl_create(&trial.curl, why) != YB_OK) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN, "%.256s", why);
        return;
    }
    if (meet(&trial, link) && !make_prompt(&trial)) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN, "%s", yb_status_text(YB_NO_MEMORY));
    } else if (trial.prompt != NULL && compute_first(&trial, link)) {
        reuse(&trial, link);
    }
    json_decref(trial.hashes);
    json_decref(trial.answer);
    free(trial.prompt);
    yb_curl_destroy(&trial.curl);
}
