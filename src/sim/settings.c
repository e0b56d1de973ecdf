/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "policy/policy.h"

static const struct yb_settings_row rows[] = {
#define X(member, name, kind, value, argument, help) \
    {name, YB_SETTINGS_##kind, value, argument, help},
    YB_SETTINGS_MAP(X)
#undef X
};

static const size_t offsets[] = {
#define X(member, name, kind, value, argument, help) offsetof(struct yb_settings, member),
    YB_SETTINGS_MAP(X)
#undef X
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

#define GPUS_MAX 4096u

const struct yb_settings_row *
yb_settings_row(uint32_t index)
{
    return index < ROWS ? &rows[index] : NULL;
}

/* Read a number with a suffix of thousands into *number_out. Returns what follows it, or NULL. */
static const char *
read_number(const char *text, double *number_out)
{
    static const char suffixes[] = "KMGT";
    char *end;
    double number = strtod(text, &end);
    const char *suffix;

    if (end == text || !(number >= -1e18 && number <= 1e18)) {
        return NULL;
    }
    suffix = *end == '\0' ? NULL : strchr(suffixes, *end);
    if (suffix != NULL) {
        for (const char *at = suffixes; at <= suffix; at++) {
            number *= 1000;
        }
        end++;
    }
    *number_out = number;
    return end;
}

static bool
understand_size(const char *text, struct yb_settings_value *value)
{
    const char *rest = read_number(text, &value->number);

    if (rest == NULL || (value->number < 0 && strcmp(text, "-1") != 0)) {
        return false;
    }
    value->tokens = strcmp(rest, "tok") == 0;
    return value->tokens || *rest == '\0' || strcmp(rest, "B") == 0;
}

static bool
understand(enum yb_settings_kind kind, const char *text, struct yb_settings_value *value)
{
    const char *rest;

    switch (kind) {
    case YB_SETTINGS_TEXT: return strlen(text) < YB_SETTINGS_TEXT_MAX;
    case YB_SETTINGS_FLAG:
        value->number = strcmp(text, "yes") == 0 || text[0] == '\0';
        return value->number > 0 || strcmp(text, "no") == 0;
    case YB_SETTINGS_SIZE: return understand_size(text, value);
    case YB_SETTINGS_COUNT:
        rest = read_number(text, &value->number);
        return rest != NULL && *rest == '\0' && value->number >= 0 && value->number <= 1e9 &&
               value->number == (double)(uint64_t)value->number;
    case YB_SETTINGS_REAL:
    case YB_SETTINGS_RATE:
        rest = read_number(text, &value->number);
        return rest != NULL && *rest == '\0' && value->number >= 0;
    }
    return false;
}

static const char *
allowed(enum yb_settings_kind kind)
{
    switch (kind) {
    case YB_SETTINGS_TEXT: return "a name";
    case YB_SETTINGS_FLAG: return "yes or no";
    case YB_SETTINGS_SIZE: return "bytes such as 960G, or tokens such as 3Mtok";
    case YB_SETTINGS_COUNT: return "a whole number";
    case YB_SETTINGS_RATE: return "a rate such as 100G";
    case YB_SETTINGS_REAL: return "a number from 0";
    }
    return "";
}

enum yb_status
yb_settings_set(struct yb_settings *settings, const char *name, const char *text,
                char message[YB_SETTINGS_MESSAGE_MAX])
{
    struct yb_settings_value value = {0};
    size_t i = 0;

    while (i < ROWS && strcmp(rows[i].name, name) != 0) {
        i++;
    }
    if (i == ROWS) {
        snprintf(message, YB_SETTINGS_MESSAGE_MAX, "there is no setting \"%s\"", name);
        return YB_NOT_FOUND;
    }
    if (!understand(rows[i].kind, text, &value)) {
        snprintf(message, YB_SETTINGS_MESSAGE_MAX, "%s cannot be \"%.64s\"; allowed: %s", name,
                 text, allowed(rows[i].kind));
        return YB_INVALID;
    }
    snprintf(value.text, sizeof(value.text), "%s", text);
    memcpy((char *)settings + offsets[i], &value, sizeof(value));
    return YB_OK;
}

void
yb_settings_init(struct yb_settings *settings)
{
    char message[YB_SETTINGS_MESSAGE_MAX];

    memset(settings, 0, sizeof(*settings));
    settings->seed = 1;
    for (size_t i = 0; i < ROWS; i++) {
        enum yb_status status = yb_settings_set(settings, rows[i].name, rows[i].value, message);

        YB_ASSERT(status == YB_OK);
    }
}

/* ---- from settings to a scenario ------------------------------------------------------------- */

static uint64_t
tokens_of(const struct yb_settings_value *size, uint64_t kv_bytes)
{
    return (uint64_t)(size->tokens ? size->number : size->number / (double)kv_bytes);
}

static enum yb_status
set_mode(const struct yb_settings *settings, struct yb_scenario *scenario, char *message)
{
    static const char *const names[] = {
#define X(name, value, word, text) [value] = word,
        YB_SCHED_MODE_MAP(X)
#undef X
    };

    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(settings->mode.text, names[i]) == 0) {
            scenario->sched.mode = i;
            return YB_OK;
        }
    }
    snprintf(message, YB_SETTINGS_MESSAGE_MAX,
             "mode cannot be \"%s\"; allowed: coupled, disaggregated, time-sliced",
             settings->mode.text);
    return YB_INVALID;
}

static void
list_known(const struct yb_sched_catalog *catalog, char *message)
{
    const struct yb_sched_model *model;
    const struct yb_sched_gpu *gpu;
    size_t used = strlen(message);

    for (uint32_t i = 0; (model = yb_sched_catalog_model(catalog, i)) != NULL; i++) {
        used +=
            (size_t)snprintf(message + used, YB_SETTINGS_MESSAGE_MAX - used, " %s", model->name);
        used = used < YB_SETTINGS_MESSAGE_MAX ? used : YB_SETTINGS_MESSAGE_MAX - 1;
    }
    used += (size_t)snprintf(message + used, YB_SETTINGS_MESSAGE_MAX - used, "; devices:");
    used = used < YB_SETTINGS_MESSAGE_MAX ? used : YB_SETTINGS_MESSAGE_MAX - 1;
    for (uint32_t i = 0; (gpu = yb_sched_catalog_gpu(catalog, i)) != NULL; i++) {
        used += (size_t)snprintf(message + used, YB_SETTINGS_MESSAGE_MAX - used, " %s", gpu->name);
        used = used < YB_SETTINGS_MESSAGE_MAX ? used : YB_SETTINGS_MESSAGE_MAX - 1;
    }
}

/* Find out what the model costs, and the rate of the bus beside the devices. */
static enum yb_status
set_cost(const struct yb_settings *settings, const struct yb_sched_catalog *catalog,
         struct yb_scenario *scenario, char *message)
{
    const char *text = settings->gpu.text;
    const struct yb_sched_model *model;
    const struct yb_sched_gpu *gpu;
    char *end;
    unsigned long count = strtoul(text, &end, 10);

    if (end == text || *end != 'x') {
        count = 1;
    } else {
        text = end + 1;
    }
    model = yb_sched_catalog_find_model(catalog, settings->model.text);
    gpu = yb_sched_catalog_find_gpu(catalog, text);
    if (count == 0 || count > GPUS_MAX || model == NULL || gpu == NULL) {
        snprintf(message, YB_SETTINGS_MESSAGE_MAX,
                 "no cost of %s on %s; models:", settings->model.text, settings->gpu.text);
        list_known(catalog, message);
        return YB_INVALID;
    }
    if (yb_sched_catalog_cost(catalog, model->name, gpu->name, (uint32_t)count, &scenario->cost) !=
        YB_OK) {
        snprintf(message, YB_SETTINGS_MESSAGE_MAX,
                 "what the catalog has of %s and %s is not enough: kv_bytes, tflops, memory_tb_s "
                 "and efficiencies above 0 are needed",
                 model->name, gpu->name);
        return YB_INVALID;
    }
    if (scenario->cost.kv_tokens_max == 0) {
        snprintf(message, YB_SETTINGS_MESSAGE_MAX,
                 "%s does not fit on %s: %.4g GB of weights, %.4g GB of memory", model->name,
                 settings->gpu.text, model->weight_bytes / 1e9,
                 gpu->memory_bytes * (double)count / 1e9);
        return YB_INVALID;
    }
    scenario->cost.prefill_base_ns += settings->base_ms.number * 1e6;
    scenario->bytes_per_s[YB_FABRIC_BUS] =
        settings->bus.number > 0 ? settings->bus.number : gpu->host_bytes_per_s * (double)count;
    return YB_OK;
}

static void
set_rates(const struct yb_settings *settings, struct yb_scenario *scenario)
{
    double port = settings->net.number / 8;
    double uplink = settings->rack.number > 0 ? settings->uplink.number / 8 : 0;

    scenario->bytes_per_s[YB_FABRIC_PORT_IN] = port;
    scenario->bytes_per_s[YB_FABRIC_PORT_OUT] = port;
    scenario->bytes_per_s[YB_FABRIC_UPLINK] = uplink;
    scenario->bytes_per_s[YB_FABRIC_DOWNLINK] = uplink;
    scenario->bytes_per_s[YB_FABRIC_SSD] = settings->ssd.number > 0 ? settings->ssd_rate.number : 0;
    scenario->bytes_per_s[YB_FABRIC_OBJECT] = settings->object_rate.number;
    scenario->latency_ns[YB_FABRIC_PORT_OUT] = (uint64_t)(settings->net_us.number * 1e3);
    scenario->latency_ns[YB_FABRIC_SSD] = (uint64_t)(settings->ssd_us.number * 1e3);
    scenario->latency_ns[YB_FABRIC_OBJECT] = (uint64_t)(settings->object_ms.number * 1e6);
    scenario->rack_nodes = (uint32_t)settings->rack.number;
}

static void
set_tiers(const struct yb_settings *settings, struct yb_scenario *scenario)
{
    uint64_t kv_bytes = scenario->cost.kv_bytes;
    uint64_t room = scenario->cost.kv_tokens_max;
    bool pool = settings->pool.number > 0;

    scenario->device_tokens =
        settings->device_cache.number < 0 ? room / 2 : tokens_of(&settings->device_cache, kv_bytes);
    if (settings->device_room.number >= 0) {
        uint64_t running = tokens_of(&settings->device_room, kv_bytes);

        scenario->cost.kv_tokens_max = running == 0 ? 0 : running + scenario->device_tokens;
    }
    scenario->dram_tokens = tokens_of(&settings->pool, kv_bytes);
    scenario->ssd_tokens = pool ? tokens_of(&settings->ssd, kv_bytes) : 0;
    scenario->object = pool && settings->object_rate.number > 0;
    scenario->sched.fetch_none = !pool || settings->fetch_none.number > 0;
}

/* Whether the policies are there; says which ones are if one is not. */
static bool
has_policies(const struct yb_settings *settings, char *message)
{
    const struct {
        const char *setting;
        const char *given;
        const char *(*name)(uint32_t index);
    } tables[] = {{"policy", settings->policy.text, yb_sched_routing_name},
                  {"admission", settings->admission.text, yb_sched_admission_name},
                  {"eviction", settings->eviction.text, yb_policy_name}};

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        uint32_t at = 0;
        size_t used;

        while (tables[i].name(at) != NULL && strcmp(tables[i].name(at), tables[i].given) != 0) {
            at++;
        }
        if (tables[i].name(at) != NULL) {
            continue;
        }
        used =
            (size_t)snprintf(message, YB_SETTINGS_MESSAGE_MAX,
                             "%s cannot be \"%s\"; allowed:", tables[i].setting, tables[i].given);
        for (at = 0; tables[i].name(at) != NULL && used < YB_SETTINGS_MESSAGE_MAX; at++) {
            used += (size_t)snprintf(message + used, YB_SETTINGS_MESSAGE_MAX - used, " %s",
                                     tables[i].name(at));
        }
        return false;
    }
    return true;
}

enum yb_status
yb_settings_scenario(const struct yb_settings *settings, const struct yb_sched_catalog *catalog,
                     struct yb_scenario *scenario_out, char message[YB_SETTINGS_MESSAGE_MAX])
{
    struct yb_scenario scenario = {
        .instances = (uint32_t)settings->instances.number,
        .decode_instances = (uint32_t)settings->decode.number,
        .conductors = (uint32_t)settings->conductors.number,
        .chunk_tokens = (uint32_t)settings->chunk.number,
        .batch_max = (uint32_t)settings->batch.number,
        .in_order = settings->in_order.number > 0,
        .no_overlap = settings->no_overlap.number > 0,
        .apart = settings->apart.number > 0,
        .no_classes = settings->no_classes.number > 0,
        .no_chains = settings->no_chains.number > 0,
        .recheck = settings->recheck.number > 0,
        .no_begin = settings->no_begin.number > 0,
        .eviction = settings->eviction.text,
        .report_ns = (uint64_t)(settings->report_ms.number * 1e6),
        .seed = settings->seed,
        .sched =
            {
                .routing = settings->policy.text,
                .admission = settings->admission.text,
                .ttft_slo_ns = (uint64_t)(settings->ttft_slo.number * 1e9),
                .tpot_slo_ns = (uint64_t)(settings->tpot_slo.number * 1e6),
                .fetch_threshold = settings->threshold.number,
                .near_best = settings->near_best.number > 0 ? settings->near_best.number : -1,
                .rack_cost_ns = (uint64_t)(settings->rack_cost.number * 1e3),
                .weight = settings->weight.number,
                .spread_max = (uint32_t)settings->spread.number,
                .no_detector = settings->no_detector.number > 0,
                .no_split = settings->no_split.number > 0,
                .no_ready = settings->no_ready.number > 0,
                .no_soon = settings->no_soon.number > 0,
            },
    };
    struct yb_sched_catalog *built_in = NULL;
    enum yb_status status = set_mode(settings, &scenario, message);

    if (status == YB_OK && !has_policies(settings, message)) {
        status = YB_INVALID;
    }
    if (status == YB_OK && catalog == NULL) {
        status = yb_sched_catalog_create(&built_in);
        catalog = built_in;
    }
    if (status == YB_OK) {
        status = set_cost(settings, catalog, &scenario, message);
    }
    if (built_in != NULL) {
        yb_sched_catalog_destroy(&built_in);
    }
    if (status != YB_OK) {
        return status;
    }
    set_rates(settings, &scenario);
    set_tiers(settings, &scenario);
    *scenario_out = scenario;
    return YB_OK;
}
