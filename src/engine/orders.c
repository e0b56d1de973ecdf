/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/orders.h"

#include <string.h>

#include "base/check.h"

#define X(name, value, word, text) [value] = (word),
static const char *const kinds[] = {YB_SCHED_KIND_MAP(X)};
#undef X
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- reading --------------------------------------------------------------------------------- */

static bool
read_number(const json_t *object, const char *name, uint64_t *number_out)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *number_out = (uint64_t)json_integer_value(value);
    return true;
}

static bool
read_order(const json_t *object, uint64_t decided_ns, struct yb_engine_order *order_out)
{
    const char *kind = json_string_value(json_object_get(object, "kind"));
    uint64_t first, count, deadline_us;

    if (kind == NULL || !read_number(object, "id", &order_out->id) ||
        !read_number(object, "first", &first) || !read_number(object, "count", &count) ||
        !read_number(object, "deadline_us", &deadline_us) || first > YB_SCHED_REQUEST_BLOCKS_MAX ||
        count > YB_SCHED_REQUEST_BLOCKS_MAX || deadline_us > UINT64_MAX / YB_NS_PER_US) {
        return false;
    }
    order_out->kind = 0;
    while (order_out->kind < KINDS && strcmp(kinds[order_out->kind], kind) != 0) {
        order_out->kind++;
    }
    order_out->first = (uint32_t)first;
    order_out->count = (uint32_t)count;
    order_out->deadline_ns =
        deadline_us == 0 ? YB_NEVER : yb_deadline_after(decided_ns, deadline_us * YB_NS_PER_US);
    return order_out->kind < KINDS;
}

bool
yb_engine_orders_read(const json_t *list, uint64_t decided_ns, struct yb_engine_orders *orders_out)
{
    orders_out->count = 0;
    orders_out->decided_ns = decided_ns;
    if (!json_is_array(list) || json_array_size(list) > YB_SCHED_INSTRUCTIONS_MAX) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!read_order(json_array_get(list, i), decided_ns, &orders_out->orders[i])) {
            return false;
        }
    }
    orders_out->count = (uint32_t)json_array_size(list);
    return true;
}

/* ---- judging --------------------------------------------------------------------------------- */

static uint32_t
farthest_tier(const struct yb_engine_outcome *outcome)
{
    if (outcome->tier_bytes[YB_CLIENT_TIER_OBJECT] > 0) {
        return YB_SCHED_TIER_OBJECT;
    }
    if (outcome->tier_bytes[YB_CLIENT_TIER_SSD] > 0) {
        return YB_SCHED_TIER_SSD;
    }
    return outcome->tier_bytes[YB_CLIENT_TIER_DRAM] > 0 ? YB_SCHED_TIER_DRAM : YB_SCHED_TIER_DEVICE;
}

static const struct {
    const char *word;
    enum yb_status status;
} endings[] = {
    {"in_time", YB_OK},
    {"late", YB_TIMED_OUT},
    {"already_there", YB_EXISTS},
    {"source_gone", YB_NOT_FOUND},
    {"failed", YB_IO},
};
enum ending { IN_TIME, LATE, ALREADY_THERE, SOURCE_GONE, FAILED };

/* How one ended whose blocks came, or did not. */
static enum ending
ending_of(const struct yb_engine_order *order, const struct yb_engine_outcome *outcome,
          uint32_t block_tokens)
{
    bool stream = order->kind == YB_SCHED_KIND_STREAM;
    /* Of a stream the last block may be there in part. */
    uint64_t wanted =
        stream ? outcome->prompt_tokens : ((uint64_t)order->first + order->count) * block_tokens;
    uint64_t moved = stream ? outcome->pulled_tokens : outcome->loaded_tokens;

    if (wanted <= outcome->device_tokens) {
        return ALREADY_THERE;
    }
    if (wanted > outcome->device_tokens + moved) {
        return outcome->load_failures > 0 ? FAILED : SOURCE_GONE;
    }
    return outcome->arrived_ns <= order->deadline_ns ? IN_TIME : LATE;
}

void
yb_engine_orders_judge(const struct yb_engine_orders *orders,
                       const struct yb_engine_outcome *outcome, uint32_t block_tokens, bool handed,
                       struct yb_engine_verdicts *verdicts_out)
{
    YB_ASSERT(block_tokens > 0 && orders->count <= YB_SCHED_INSTRUCTIONS_MAX);
    verdicts_out->count = 0;
    for (uint32_t i = 0; i < orders->count; i++) {
        const struct yb_engine_order *order = &orders->orders[i];

        if ((order->kind == YB_SCHED_KIND_STREAM) == handed) {
            const enum ending ending = ending_of(order, outcome, block_tokens);

            verdicts_out->verdicts[verdicts_out->count++] = (struct yb_engine_verdict){
                .id = order->id,
                .outcome = endings[ending].word,
                .status = endings[ending].status,
                .took_us = outcome->load_ns / YB_NS_PER_US,
                .tier = farthest_tier(outcome),
            };
        }
    }
}

json_t *
yb_engine_verdicts_json(const struct yb_engine_verdicts *verdicts)
{
    static const char *const tiers[] = {"device", "dram", "ssd", "object"};
    json_t *list = json_array();

    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct yb_engine_verdict *verdict = &verdicts->verdicts[i];

        (void)json_array_append_new(
            list, json_pack("{s:I, s:s, s:I, s:s}", "id", (json_int_t)verdict->id, "outcome",
                            verdict->outcome, "took_us", (json_int_t)verdict->took_us,
                            "source_tier", tiers[verdict->tier]));
    }
    return list;
}
