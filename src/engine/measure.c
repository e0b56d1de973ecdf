/* SPDX-License-Identifier: Apache-2.0
 *
 * What requests were like, as they ended: distributions, failures by kind, where prompts came from.
 *
 * Requests end, and values fail, on several threads, and a shard has one writer: they are noted
 * under the engine's lock, and counted by the thread that computes.
 */
#include "base/check.h"
#include "engine/engine_internal.h"

/* Where a prompt's tokens came from; in the order of enum yb_client_tier up to `object`. */
enum source { SOURCE_DEVICE = 1, SOURCE_OBJECT = 4, SOURCE_ENGINE, SOURCE_MISS, SOURCES };

static const char *const source_words[] = {"unknown", "device", "dram", "ssd",
                                           "object",  "engine", "miss"};
static const struct yb_stats_label source_label = {"tier", source_words, SOURCES};

_Static_assert((int)SOURCE_OBJECT == (int)YB_CLIENT_TIER_OBJECT, "loads say where they came from");

/* clang-format off */
#define ENGINE_STATS(X)                                                                      \
    X(OUTCOMES, COUNTER, COUNT, "outcomes", &yb_stats_label_status, NULL,                    \
      "requests that have ended, by how")                                                    \
    X(TTFT, HISTOGRAM, NANOSECONDS, "ttft", NULL, NULL, "from arrival to the first token")   \
    X(QUEUED, HISTOGRAM, NANOSECONDS, "queued", NULL, NULL, "from arrival to memory for it") \
    X(LOADED, HISTOGRAM, NANOSECONDS, "load_time", NULL, NULL,                               \
      "of KV from the store or an engine")                                                   \
    X(PREDICTED, HISTOGRAM, NANOSECONDS, "load_time_predicted", NULL, NULL,                  \
      "as it was predicted")                                                                 \
    X(GAP, HISTOGRAM, PARTS_PER_MILLION, "load_time_actual_to_predicted", NULL, NULL,        \
      "how long a load took of what was predicted")                                          \
    X(BYTES, COUNTER, BYTES, "loaded", &source_label, NULL, "KV that came, by source")       \
    X(TOKENS, COUNTER, COUNT, "source_tokens", &source_label, NULL,                          \
      "tokens of prompts, by where their KV came from; miss: computed")                      \
    X(HIT, GAUGE, PARTS_PER_MILLION, "hit", &source_label, NULL,                             \
      "share of all prompts' tokens so far; tiers and miss sum to 1")                        \
    X(NOT_LOADED, COUNTER, COUNT, "not_loaded", &yb_stats_label_status, NULL,                \
      "values that were found and did not come, by why; CORRUPT: came, and were wrong")      \
    X(NOT_STORED, COUNTER, COUNT, "not_stored", &yb_stats_label_status, NULL,                \
      "values that the store did not take, by why")                                          \
    X(UNCOUNTED, COUNTER, COUNT, "uncounted", NULL, NULL,                                    \
      "requests that ended too many at once to be counted here")
/* clang-format on */

enum {
#define X(id, ...) STAT_##id,
    ENGINE_STATS(X)
#undef X
        STAT_COUNT
};
static const struct yb_stats_metric metrics[] = {ENGINE_STATS(YB_STATS_ROW)};

_Static_assert((int)SOURCES == YB_ENGINE_SOURCES, "a total for each");

enum yb_status
yb_engine_measure_begin(struct yb_engine *engine)
{
    struct yb_engine_measure *measure = &engine->measure;
    enum yb_status status = YB_OK;

    if (engine->options.stats != NULL) {
        status = yb_stats_register(engine->options.stats, "engine", metrics, STAT_COUNT,
                                   &measure->first);
    }
    return status == YB_OK && engine->options.stats != NULL
               ? yb_stats_shard_take(engine->options.stats, &measure->shard)
               : status;
}

void
yb_engine_measure_end(struct yb_engine *engine)
{
    if (engine->measure.shard != NULL) {
        yb_stats_shard_release(&engine->measure.shard);
    }
}

void
yb_engine_not_loaded_locked(struct yb_engine *engine, enum yb_status status)
{
    yb_lock_assert_held(&engine->lock);
    engine->sums.load_failures++;
    engine->measure.not_loaded[yb_stats_status_index(status)]++;
}

void
yb_engine_not_stored_locked(struct yb_engine *engine, enum yb_status status)
{
    yb_lock_assert_held(&engine->lock);
    engine->sums.store_failures++;
    engine->measure.not_stored[yb_stats_status_index(status)]++;
}

void
yb_engine_note_locked(struct yb_engine *engine, const struct yb_engine_outcome *outcome)
{
    struct yb_engine_measure *measure = &engine->measure;

    yb_lock_assert_held(&engine->lock);
    if (measure->note_count == YB_ENGINE_NOTES_MAX) {
        measure->uncounted++;
    } else {
        measure->notes[measure->note_count++] = *outcome;
    }
}

/* Where the tokens of one prompt came from. What the store brought is divided by bytes. */
static void
split_tokens(const struct yb_engine_outcome *outcome, uint64_t tokens_out[SOURCES])
{
    uint64_t bytes = 0;
    uint64_t left = outcome->loaded_tokens;

    for (uint32_t i = 0; i < SOURCES; i++) {
        tokens_out[i] = 0;
    }
    for (uint32_t i = 0; i <= SOURCE_OBJECT; i++) {
        bytes += outcome->tier_bytes[i];
    }
    for (uint32_t i = 0; i <= SOURCE_OBJECT && bytes > 0; i++) {
        uint64_t some = outcome->loaded_tokens * outcome->tier_bytes[i] / bytes;

        tokens_out[i] = some;
        left -= some;
    }
    for (uint32_t i = SOURCE_OBJECT + 1; i-- > 0 && left > 0;) { /* What rounding left over. */
        if (outcome->tier_bytes[i] > 0) {
            tokens_out[i] += left;
            left = 0;
        }
    }
    tokens_out[SOURCE_DEVICE] += outcome->device_tokens;
    tokens_out[SOURCE_ENGINE] = outcome->pulled_tokens;
    tokens_out[SOURCE_MISS] = outcome->prompt_tokens - outcome->device_tokens -
                              outcome->loaded_tokens - outcome->pulled_tokens;
}

static void
count_one(struct yb_engine_measure *measure, const struct yb_engine_outcome *outcome)
{
    struct yb_stats_shard *shard = measure->shard;
    uint32_t first = measure->first;
    uint64_t tokens[SOURCES];

    yb_stats_add_at(shard, first + STAT_OUTCOMES, yb_stats_status_index(outcome->status), 0, 1);
    if (outcome->begun_ns != 0) {
        yb_stats_observe(shard, first + STAT_QUEUED, outcome->begun_ns - outcome->arrival_ns);
    }
    if (outcome->load_ns != 0) {
        yb_stats_observe(shard, first + STAT_LOADED, outcome->load_ns);
    }
    if (outcome->load_ns != 0 && outcome->predicted_ns != 0) {
        yb_stats_observe(shard, first + STAT_PREDICTED, outcome->predicted_ns);
        yb_stats_observe(shard, first + STAT_GAP,
                         outcome->load_ns / ((outcome->predicted_ns + 999999) / 1000000));
    }
    for (uint32_t i = 0; i <= SOURCE_OBJECT; i++) {
        yb_stats_add_at(shard, first + STAT_BYTES, i, 0, outcome->tier_bytes[i]);
    }
    yb_stats_add_at(shard, first + STAT_BYTES, SOURCE_ENGINE, 0, outcome->pulled_bytes);
    if (outcome->first_ns == 0) {
        return; /* Its prompt did not come to an end. */
    }
    yb_stats_observe(shard, first + STAT_TTFT, outcome->first_ns - outcome->arrival_ns);
    split_tokens(outcome, tokens);
    for (uint32_t i = 0; i < SOURCES; i++) {
        measure->tokens[i] += tokens[i];
        yb_stats_add_at(shard, first + STAT_TOKENS, i, 0, tokens[i]);
    }
}

/* The shares, in millionths; the largest takes what rounding leaves, so that they sum to 1. */
static void
show_shares(struct yb_engine_measure *measure)
{
    uint64_t all = 0;
    int64_t left = 1000000;
    int64_t shares[SOURCES];
    uint32_t largest = 0;

    for (uint32_t i = 0; i < SOURCES; i++) {
        all += measure->tokens[i];
    }
    if (all == 0) {
        return;
    }
    for (uint32_t i = 0; i < SOURCES; i++) {
        shares[i] = (int64_t)((double)measure->tokens[i] * 1e6 / (double)all);
        left -= shares[i];
        largest = measure->tokens[i] > measure->tokens[largest] ? i : largest;
    }
    shares[largest] += left;
    for (uint32_t i = 0; i < SOURCES; i++) {
        yb_stats_set_at(measure->shard, measure->first + STAT_HIT, i, 0, shares[i]);
    }
}

/* Failures of each status, and none of them is left. */
static void
count_failures(const struct yb_engine_measure *measure, uint32_t stat, uint32_t *failures)
{
    for (uint32_t i = 0; i < yb_stats_label_status.count; i++) {
        if (failures[i] > 0) {
            yb_stats_add_at(measure->shard, measure->first + stat, i, 0, failures[i]);
            failures[i] = 0;
        }
    }
}

void
yb_engine_count_notes_locked(struct yb_engine *engine)
{
    struct yb_engine_measure *measure = &engine->measure;

    yb_lock_assert_held(&engine->lock);
    if (measure->shard == NULL) {
        measure->note_count = 0;
        return;
    }
    count_failures(measure, STAT_NOT_LOADED, measure->not_loaded);
    count_failures(measure, STAT_NOT_STORED, measure->not_stored);
    if (measure->note_count == 0) {
        return;
    }
    for (uint32_t i = 0; i < measure->note_count; i++) {
        count_one(measure, &measure->notes[i]);
    }
    yb_stats_add(measure->shard, measure->first + STAT_UNCOUNTED, measure->uncounted);
    measure->note_count = 0;
    measure->uncounted = 0;
    show_shares(measure);
}
