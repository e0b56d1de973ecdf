/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/show.h"

#include <inttypes.h>
#include <string.h>

/* clang-format off */
/* field, name, kind, unit, help */
#define NUMBERS(X) \
    X(waiting, "requests_waiting", "gauge", "count", "requests that wait for memory") \
    X(prompts, "requests_prefilling", "gauge", "count", "requests before their first token") \
    X(running, "requests_running", "gauge", "count", "requests that are being decoded") \
    X(held, "requests_held", "gauge", "count", "requests kept for another engine") \
    X(stores, "stores_running", "gauge", "count", "stores under way") \
    X(slots, "kv_blocks", "gauge", "count", "blocks that the memory holds") \
    X(slots_used, "kv_blocks_used", "gauge", "count", "blocks in use by requests") \
    X(slots_published, "kv_blocks_cached", "gauge", "count", "blocks that can be found") \
    X(prefill_tokens, "prefill_tokens_queued", "gauge", "count", "tokens to be computed yet") \
    X(context_tokens, "context_tokens", "gauge", "count", "tokens of requests being decoded") \
    X(asked, "requests", "counter", "count", "requests that were taken") \
    X(refused, "requests_refused", "counter", "count", "requests for which there was no room") \
    X(ended, "requests_ended", "counter", "count", "requests that have ended") \
    X(failed, "requests_failed", "counter", "count", "of those, not well") \
    X(prompt_tokens, "prompt_tokens", "counter", "count", "tokens of prompts") \
    X(device_tokens, "device_hit_tokens", "counter", "count", \
      "of those, from this engine's memory") \
    X(loaded_tokens, "store_hit_tokens", "counter", "count", "from the store") \
    X(pulled_tokens, "pulled_tokens", "counter", "count", "from the engine that computed them") \
    X(computed_tokens, "computed_tokens", "counter", "count", "computed") \
    X(answer_tokens, "answer_tokens", "counter", "count", "tokens of answers") \
    X(pulled_bytes, "pulled_bytes", "counter", "bytes", "bytes from engines") \
    X(stored_bytes, "stored_bytes", "counter", "bytes", "bytes that the store took") \
    X(verified_bytes, "verified_bytes", "counter", "bytes", "bytes that were compared") \
    X(wrong_bytes, "wrong_bytes", "counter", "bytes", "of those, wrong") \
    X(load_failures, "load_failures", "counter", "count", \
      "values that were found and did not come") \
    X(store_failures, "store_failures", "counter", "count", "values that the store did not take") \
    X(dropped_stores, "dropped_stores", "counter", "count", \
      "blocks not stored, as too many waited") \
    X(evicted, "evicted_blocks", "counter", "count", "blocks that left the memory") \
    X(steps, "steps", "counter", "count", "steps") \
    X(compute_ns, "compute_seconds", "counter", "ns", "time in which prompts were computed") \
    X(stall_ns, "stall_seconds", "counter", "ns", "time in which that waited for loads") \
    X(load_ns, "load_seconds", "counter", "ns", "time that loads took") \
    X(predicted_ns, "predicted_load_seconds", "counter", "ns", "as they were predicted")
/* clang-format on */

json_t *
yb_engine_show_tiers(const uint64_t numbers[YB_CLIENT_TIER_OBJECT + 1])
{
    static const char *const names[] = {"none", "device", "dram", "ssd", "object"};
    json_t *tiers = json_object();

    for (uint32_t i = 1; i <= YB_CLIENT_TIER_OBJECT; i++) {
        (void)json_object_set_new(tiers, names[i], json_integer((json_int_t)numbers[i]));
    }
    return tiers;
}

json_t *
yb_engine_show(const struct yb_engine_info *info, const char *model)
{
    json_t *value = json_pack("{s:s}", "model", model);

#define X(field, name, kind, unit, help) \
    (void)json_object_set_new(value, #field, json_integer((json_int_t)info->field));
    NUMBERS(X)
#undef X
    (void)json_object_set_new(value, "tier_came_bytes",
                              yb_engine_show_tiers(info->tier_came_bytes));
    (void)json_object_set_new(value, "tier_busy_ns", yb_engine_show_tiers(info->tier_busy_ns));
    return value;
}

static const char *
suffix_of(const char *kind)
{
    return strcmp(kind, "counter") == 0 ? "_total" : "";
}

json_t *
yb_engine_show_series(const struct yb_engine_info *info)
{
    json_t *rows = json_array();

#define X(field, name, kind, unit, help)                                                          \
    (void)json_array_append_new(rows, json_pack("{s:s++, s:s, s:s, s:{}, s:I}", "name",           \
                                                "yuebing_engine_", name, suffix_of(kind), "kind", \
                                                kind, "unit", unit, "labels", "value",            \
                                                (json_int_t)info->field));
    NUMBERS(X)
#undef X
    return rows;
}

static void
write_head(FILE *out, const char *name, const char *kind, const char *help)
{
    fprintf(out, "# HELP yuebing_engine_%s%s %s\n# TYPE yuebing_engine_%s%s %s\n", name,
            suffix_of(kind), help, name, suffix_of(kind), kind);
}

static void
write_value(FILE *out, const char *name, const char *kind, const char *unit, uint64_t value)
{
    fprintf(out, "yuebing_engine_%s%s ", name, suffix_of(kind));
    if (strcmp(unit, "ns") == 0) {
        fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", (uint64_t)(value / YB_NS_PER_S),
                (uint64_t)(value % YB_NS_PER_S));
    } else {
        fprintf(out, "%" PRIu64 "\n", value);
    }
}

void
yb_engine_show_text(const struct yb_engine_info *info, FILE *out)
{
#define X(field, name, kind, unit, help) \
    write_head(out, name, kind, help);   \
    write_value(out, name, kind, unit, info->field);
    NUMBERS(X)
#undef X
}
