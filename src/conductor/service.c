/* SPDX-License-Identifier: Apache-2.0 */
#include "conductor/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "conductor/forms.h"
#include "conductor/service_internal.h"

/* Room for what is said between two pulses; what is more is not written, and said. */
#define WAITING_BYTES (32u << 20)

/* clang-format off */
#define CONDUCTOR_STATS(X)                                                                        \
    X(CALLS,      COUNTER, COUNT, "calls", NULL, NULL, "calls that were answered")                \
    X(REFUSED,    COUNTER, COUNT, "calls_refused", &code_label, NULL,                              \
      "calls that could not be, by the code of the answer")                                       \
    X(DECISIONS,  COUNTER, COUNT, "decisions", NULL, NULL, "requests that were decided")          \
    X(REJECTED,   COUNTER, COUNT, "rejected", &reason_label, NULL, "of these, not accepted: why")  \
    X(ISSUED,     COUNTER, COUNT, "instructions", NULL, NULL, "moves that decisions asked for")   \
    X(OUTCOMES,   COUNTER, COUNT, "instructions_ended", &outcome_label, NULL, "by how they ended") \
    X(ARRIVAL,    HISTOGRAM, NANOSECONDS, "decision_to_arrival", &tier_label, NULL,                \
      "from a decision to the arrival of what it moved, by the tier that it came from")           \
    X(EXPIRED,    COUNTER, COUNT, "instances_expired", NULL, NULL, "that did not report")         \
    X(FORGOTTEN,  COUNTER, COUNT, "requests_forgotten", NULL, NULL, "that nobody ended")          \
    X(HOT,        COUNTER, COUNT, "heat_moves", NULL, NULL, "of these, those that heat asked for") \
    X(WINDOWED,   COUNTER, COUNT, "windowed", NULL, NULL,                                          \
      "of these, those that the prefetch window lets wait")                                       \
    X(WINDOW,     GAUGE,   COUNT, "window_steps", NULL, NULL,                                      \
      "the prefetch window of the first model; 0: nothing was measured yet")                      \
    X(LEAD,       GAUGE,   NANOSECONDS, "window_lead", NULL, NULL,                                 \
      "so long before it is wanted a move begins")                                                \
    X(OPEN,       GAUGE,   COUNT, "instructions_open", NULL, NULL, "that have not ended")         \
    X(REQUESTS,   GAUGE,   COUNT, "requests", NULL, NULL, "that have not ended")                  \
    X(INSTANCES,  GAUGE,   COUNT, "instances", NULL, NULL, "that report")                         \
    X(NODES,      GAUGE,   COUNT, "nodes", NULL, NULL, "of the store, that are known")            \
    X(BLOCKS,     GAUGE,   COUNT, "blocks", NULL, NULL, "that are known of, of all models")       \
    X(STORE_AGE,  GAUGE,   NANOSECONDS, "store_age", NULL, NULL, "since the directory last told") \
    X(LOG_BYTES,  GAUGE,   BYTES, "decision_log", NULL, NULL, "written to the log of decisions")
/* clang-format on */

static const struct yb_stats_label outcome_label = {"outcome", yb_form_outcomes,
                                                    YB_CONDUCTOR_OUTCOMES};
static const struct yb_stats_label reason_label = {"reason", yb_form_reasons, YB_CONDUCTOR_REASONS};
static const struct yb_stats_label tier_label = {"tier", yb_form_tiers, YB_SCHED_TIERS};
static const char *const code_words[] = {
#define X(code) #code,
    YB_CONDUCTOR_REFUSALS(X)
#undef X
        "other",
};
static const struct yb_stats_label code_label = {"code", code_words,
                                                 sizeof(code_words) / sizeof(code_words[0])};
_Static_assert(sizeof(code_words) / sizeof(code_words[0]) == YB_CONDUCTOR_REFUSAL_COUNT,
               "each code has a word");

enum {
#define X(id, ...) STAT_##id,
    CONDUCTOR_STATS(X)
#undef X
        STAT_COUNT
};
static const struct yb_stats_metric metrics[] = {CONDUCTOR_STATS(YB_STATS_ROW)};

/* ---- the log --------------------------------------------------------------------------------- */

static void
on_record(void *owner, const void *bytes, size_t length)
{
    struct yb_conductor_service *service = owner;

    yb_lock_assert_held(&service->lock);
    if (service->log_full || length > WAITING_BYTES - service->waiting_bytes ||
        length > service->options.log_bytes - service->log_bytes) {
        service->log_full = true; /* V2: a log with a gap would tell something else. */
        return;
    }
    memcpy(service->waiting + service->waiting_bytes, bytes, length);
    service->waiting_bytes += length;
    service->log_bytes += length;
}

static void
flush_log(struct yb_conductor_service *service)
{
    uint8_t *bytes;
    size_t length;
    bool full;

    if (service->file == NULL) {
        return;
    }
    yb_lock_acquire(&service->lock);
    bytes = service->waiting;
    length = service->waiting_bytes;
    full = service->log_full;
    service->waiting = service->flushing;
    service->waiting_bytes = 0;
    yb_lock_release(&service->lock);
    service->flushing = bytes;
    if (fwrite(bytes, 1, length, service->file) != length || fflush(service->file) != 0) {
        yb_log_error(service->options.log, "conductor", "the log of decisions ends: cannot write",
                     yb_log_u64("errno", (uint64_t)errno));
        full = true;
    } else {
        service->written += length;
    }
    if (full) {
        yb_log_warn(service->options.log, "conductor",
                    "the log of decisions ends: its bound is reached",
                    yb_log_u64("bytes", service->written));
        (void)fclose(service->file);
        service->file = NULL;
    }
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void
count_up(struct yb_conductor_service *service, uint32_t stat, uint64_t now, uint64_t before)
{
    yb_stats_add(service->shard, service->stats_first + stat, now - before);
}

static void
show(struct yb_conductor_service *service, uint32_t stat, uint64_t value)
{
    yb_stats_set(service->shard, service->stats_first + stat, (int64_t)value);
}

/* Whether the blocks of an instruction came, for whomever. */
static bool
arrived(const struct yb_conductor_moved *moved)
{
    return moved->outcome == YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME ||
           moved->outcome == YB_WIRE_CONDUCTOR_OUTCOME_LATE ||
           moved->outcome == YB_WIRE_CONDUCTOR_OUTCOME_JOINED;
}

/* Those that ended since the last time, as far as they are remembered. */
static void
measure_arrivals(struct yb_conductor_service *service)
{
    yb_lock_acquire(&service->lock);
    if (service->shown_ever - service->measured > YB_CONDUCTOR_SHOWN) {
        service->measured = service->shown_ever - YB_CONDUCTOR_SHOWN;
    }
    for (; service->measured < service->shown_ever; service->measured++) {
        const struct yb_conductor_moved *moved =
            &service->shown[service->measured % YB_CONDUCTOR_SHOWN];

        if (arrived(moved) && moved->finished_ns > moved->decided_ns) {
            yb_stats_observe_at(service->shard, service->stats_first + STAT_ARRIVAL,
                                moved->source_tier, 0, moved->finished_ns - moved->decided_ns);
        }
    }
    yb_lock_release(&service->lock);
}

static void
measure(struct yb_conductor_service *service, const struct yb_conductor_info *info, uint64_t age_ns)
{
    const struct yb_conductor_info *before = &service->before;

    if (service->shard == NULL) {
        return;
    }
    count_up(service, STAT_CALLS, atomic_exchange(&service->calls, 0), 0);
    for (uint32_t i = 0; i < YB_CONDUCTOR_REFUSAL_COUNT; i++) {
        yb_stats_add_at(service->shard, service->stats_first + STAT_REFUSED, i, 0,
                        atomic_exchange(&service->refused[i], 0));
    }
    measure_arrivals(service);
    count_up(service, STAT_DECISIONS, info->decisions, before->decisions);
    for (uint32_t i = 1; i < YB_CONDUCTOR_REASONS; i++) {
        yb_stats_add_at(service->shard, service->stats_first + STAT_REJECTED, i, 0,
                        info->rejected_for[i] - before->rejected_for[i]);
    }
    count_up(service, STAT_HOT, info->hot, before->hot);
    count_up(service, STAT_WINDOWED, info->windowed, before->windowed);
    count_up(service, STAT_ISSUED, info->issued, before->issued);
    count_up(service, STAT_EXPIRED, info->expired, before->expired);
    count_up(service, STAT_FORGOTTEN, info->forgotten, before->forgotten);
    for (uint32_t i = 1; i < YB_CONDUCTOR_OUTCOMES; i++) {
        yb_stats_add_at(service->shard, service->stats_first + STAT_OUTCOMES, i, 0,
                        info->outcomes[i] - before->outcomes[i]);
    }
    show(service, STAT_WINDOW, info->windows[0].size);
    show(service, STAT_LEAD, info->windows[0].lead_ns);
    show(service, STAT_OPEN, info->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN]);
    show(service, STAT_REQUESTS, info->requests);
    show(service, STAT_INSTANCES, info->instances);
    show(service, STAT_NODES, info->nodes);
    show(service, STAT_BLOCKS, info->blocks);
    show(service, STAT_STORE_AGE, age_ns);
    show(service, STAT_LOG_BYTES, service->written);
    service->before = *info;
}

void
yb_conductor_service_pulse(struct yb_conductor_service *service)
{
    struct yb_conductor_info info;
    struct yb_conductor *conductor;
    uint64_t now_ns;
    uint64_t age_ns;

    YB_ASSERT_OBJ(service, YB_CONDUCTOR_SERVICE_MAGIC);
    conductor = yb_conductor_service_enter(service, &now_ns);
    if (conductor == NULL) {
        return;
    }
    yb_conductor_tick(conductor, now_ns);
    yb_conductor_info(conductor, &info);
    age_ns = service->heard_ns != 0 && now_ns > service->heard_ns ? now_ns - service->heard_ns : 0;
    yb_conductor_service_leave(service);
    measure(service, &info, age_ns);
    flush_log(service);
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum yb_status
open_log(struct yb_conductor_service *service, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    const char *path = service->options.log_file;

    if (path == NULL || path[0] == '\0') {
        service->options.log_file = NULL;
        return YB_OK;
    }
    service->waiting = malloc(WAITING_BYTES);
    service->flushing = malloc(WAITING_BYTES);
    if (service->waiting == NULL || service->flushing == NULL) {
        (void)snprintf(why_out, YB_CONDUCTOR_WHY_BYTES, "no memory for the log of decisions");
        return YB_NO_MEMORY;
    }
    service->file = fopen(path, "we");
    if (service->file == NULL) {
        (void)snprintf(why_out, YB_CONDUCTOR_WHY_BYTES, "conductor.log_file: %.160s: %m", path);
        return YB_IO;
    }
    return YB_OK;
}

static bool
open_stats(struct yb_conductor_service *service)
{
    struct yb_stats *stats = service->options.stats;

    return stats == NULL || (yb_stats_register(stats, "conductor", metrics, STAT_COUNT,
                                               &service->stats_first) == YB_OK &&
                             yb_stats_shard_take(stats, &service->shard) == YB_OK);
}

/* Make a conductor, only to see whether it can be. */
static enum yb_status
try_conductor(const struct yb_conductor_options *options, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_options bare = *options;
    struct yb_conductor *conductor = NULL;
    enum yb_status status;

    bare.record = NULL;
    status = yb_conductor_create(&bare, &conductor, why_out);
    yb_conductor_destroy(&conductor);
    return status;
}

enum yb_status
yb_conductor_service_create(const struct yb_conductor_service_options *options,
                            struct yb_conductor_service **service_out,
                            char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_service *service;
    enum yb_status status = try_conductor(&options->conductor, why_out);

    if (status != YB_OK) {
        return status;
    }
    service = calloc(1, sizeof(*service));
    if (service == NULL) {
        (void)snprintf(why_out, YB_CONDUCTOR_WHY_BYTES, "no memory for a conductor");
        return YB_NO_MEMORY;
    }
    service->magic = YB_CONDUCTOR_SERVICE_MAGIC;
    service->options = *options;
    yb_lock_init(&service->lock, YB_LOCK_CONDUCTOR);
    if (options->conductor.routing != NULL) {
        (void)snprintf(service->routing, sizeof(service->routing), "%s",
                       options->conductor.routing);
    }
    if (options->conductor.admission != NULL) {
        (void)snprintf(service->admission, sizeof(service->admission), "%s",
                       options->conductor.admission);
    }
    service->options.conductor.routing = service->routing;
    service->options.conductor.admission = service->admission;
    status = open_log(service, why_out);
    if (status == YB_OK && !open_stats(service)) {
        (void)snprintf(why_out, YB_CONDUCTOR_WHY_BYTES, "no room for a conductor's metrics");
        status = YB_NO_MEMORY;
    }
    if (status != YB_OK) {
        yb_conductor_service_destroy(&service);
        return status;
    }
    *service_out = service;
    return YB_OK;
}

enum yb_status
yb_conductor_service_begin(struct yb_conductor_service *service,
                           const uint8_t seed[YB_HASH_SEED_BYTES],
                           char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_options options;
    enum yb_status status;

    YB_ASSERT_OBJ(service, YB_CONDUCTOR_SERVICE_MAGIC);
    YB_ASSERT(!atomic_load(&service->began));
    options = service->options.conductor;
    memcpy(options.hash_seed, seed, sizeof(options.hash_seed));
    options.record = service->options.log_file != NULL ? on_record : NULL;
    options.order = yb_conductor_service_on_order;
    options.owner = service;
    yb_lock_acquire(&service->lock);
    status = yb_conductor_create(&options, &service->conductor, why_out);
    yb_lock_release(&service->lock);
    atomic_store(&service->began, status == YB_OK);
    return status;
}

void
yb_conductor_service_destroy(struct yb_conductor_service **service)
{
    struct yb_conductor_service *old = *service;

    if (old == NULL) {
        return;
    }
    YB_ASSERT_OBJ(old, YB_CONDUCTOR_SERVICE_MAGIC);
    *service = NULL;
    flush_log(old);
    if (old->file != NULL) {
        (void)fclose(old->file);
    }
    if (old->shard != NULL) {
        yb_stats_shard_release(&old->shard);
    }
    yb_conductor_destroy(&old->conductor);
    yb_lock_fini(&old->lock);
    free(old->waiting);
    free(old->flushing);
    old->magic = 0;
    free(old);
}

void
yb_conductor_service_seed(const struct yb_conductor_service *service,
                          uint8_t seed_out[YB_HASH_SEED_BYTES])
{
    YB_ASSERT(yb_conductor_service_ready(service));
    yb_conductor_seed(service->conductor, seed_out);
}

bool
yb_conductor_service_ready(const struct yb_conductor_service *service)
{
    return atomic_load(&service->began);
}

struct yb_conductor *
yb_conductor_service_enter(struct yb_conductor_service *service, uint64_t *now_ns_out)
{
    if (!atomic_load(&service->began)) {
        return NULL;
    }
    yb_lock_acquire(&service->lock);
    *now_ns_out = yb_clock_now(service->options.clock); /* Inside, so that it never runs back. */
    return service->conductor;
}

void
yb_conductor_service_leave(struct yb_conductor_service *service)
{
    yb_lock_release(&service->lock);
}

/* ---- what the directory tells ---------------------------------------------------------------- */

enum yb_status
yb_conductor_service_storage(struct yb_conductor_service *service, const char *name,
                             uint32_t *place_out)
{
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);
    enum yb_status status;

    if (conductor == NULL) {
        return YB_NOT_READY;
    }
    status = yb_conductor_storage(conductor, yb_wire_text_of(name), now_ns, place_out);
    yb_conductor_service_leave(service);
    return status;
}

void
yb_conductor_service_ways(struct yb_conductor_service *service,
                          const struct yb_wire_conductor_ways *said)
{
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);

    if (conductor != NULL) {
        (void)!yb_conductor_ways(conductor, said, now_ns); /* What cannot be is as before. */
        yb_conductor_service_leave(service);
    }
}

void
yb_conductor_service_gone(struct yb_conductor_service *service, const char *name)
{
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);

    if (conductor != NULL) {
        (void)!yb_conductor_unregister(conductor, yb_wire_text_of(name), now_ns);
        yb_conductor_service_leave(service);
    }
}

void
yb_conductor_service_reset(struct yb_conductor_service *service)
{
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);

    if (conductor != NULL) {
        yb_conductor_reset(conductor, now_ns);
        yb_conductor_service_leave(service);
    }
}

void
yb_conductor_service_blocks(struct yb_conductor_service *service,
                            const struct yb_wire_conductor_change *changes, uint32_t count)
{
    const struct yb_wire_conductor_change_list list = {.count = count, .native = changes};
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);

    if (conductor != NULL) {
        yb_conductor_blocks(conductor, &list, now_ns);
        service->events += count;
        yb_conductor_service_leave(service);
    }
}

void
yb_conductor_service_heard(struct yb_conductor_service *service)
{
    uint64_t now_ns;

    if (yb_conductor_service_enter(service, &now_ns) != NULL) {
        service->heard_ns = now_ns;
        yb_conductor_service_leave(service);
    }
}

uint32_t
yb_conductor_service_models(struct yb_conductor_service *service)
{
    struct yb_conductor_info info = {.models = 0};
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);

    if (conductor != NULL) {
        yb_conductor_info(conductor, &info);
        yb_conductor_service_leave(service);
    }
    return info.models;
}
