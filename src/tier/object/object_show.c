/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tier met, among the metrics. Times and failures are told as they happen; counters that
 * the tier has anyway are brought up to date once a second.
 */
#include "base/stats.h"
#include "tier/object/object_internal.h"

static const char *const verbs[YB_OBJECT_VERBS] = {"put", "get", "head", "delete", "list", "try"};
static const struct yb_stats_label label_verb = {
    .name = "verb", .words = verbs, .count = YB_OBJECT_VERBS};

/* clang-format off */
#define OBJECT_STATS(X)                                                                            \
    X(FIRST_BYTE,  HISTOGRAM, NANOSECONDS, "first_byte", NULL, NULL,                               \
      "from a read's request to the first byte of its answer")                                     \
    X(TRANSFER,    HISTOGRAM, NANOSECONDS, "transfer", NULL, NULL,                                 \
      "from there to the last byte of it")                                                         \
    X(REQUESTS,    COUNTER, COUNT, "requests", &label_verb, NULL, "requests that have ended")      \
    X(ERRORS,      COUNTER, COUNT, "errors", &label_verb, &yb_stats_label_status,                  \
      "requests that have ended badly, by what and how")                                           \
    X(RETRIES,     COUNTER, COUNT, "retries", NULL, NULL, "requests that were tried again")        \
    X(HEDGES,      COUNTER, COUNT, "hedges", NULL, NULL, "reads that were late, and asked twice")  \
    X(HEDGES_WON,  COUNTER, COUNT, "hedges_won", NULL, NULL, "of which the second came first")     \
    X(PROBES,      COUNTER, COUNT, "probes", NULL, NULL,                                           \
      "reads that asked the service for what was not known yet")                                   \
    X(RESOLVED,    COUNTER, COUNT, "resolved", NULL, NULL, "lost answers that were successes")     \
    X(KILLS,       COUNTER, COUNT, "kill_objects", NULL, NULL, "kill objects that were written")   \
    X(MOVED,       COUNTER, COUNT, "moved", NULL, NULL, "blocks that left half-dead packs")        \
    X(MERGED,      COUNTER, COUNT, "merged", NULL, NULL, "reads that shared a neighbour's request")\
    X(FLYING,      GAUGE,   COUNT, "flying", NULL, NULL, "requests under way")
/* clang-format on */

enum object_stat {
#define X(id, ...) STAT_##id,
    OBJECT_STATS(X)
#undef X
        STAT_COUNT
};

static const struct yb_stats_metric object_stats[] = {OBJECT_STATS(YB_STATS_ROW)};

enum yb_status
yb_object_show_init(struct object_tier *object)
{
    enum yb_status status = YB_OK;

    if (object->options.stats != NULL) {
        status = yb_stats_register(object->options.stats, "object", object_stats, STAT_COUNT,
                                   &object->stats_first);
        status =
            status == YB_OK ? yb_stats_shard_take(object->options.stats, &object->shard) : status;
    }
    return status;
}

void
yb_object_show_fini(struct object_tier *object)
{
    if (object->shard != NULL) {
        yb_object_show(object);
        yb_stats_shard_release(&object->shard);
    }
}

/* A request has ended. */
void
yb_object_show_request(struct object_tier *object, const struct yb_object_request *request,
                       enum yb_status status)
{
    uint32_t first = object->stats_first;

    if (object->shard == NULL) {
        return;
    }
    yb_stats_add_at(object->shard, first + STAT_REQUESTS, request->verb, 0, 1);
    if (status != YB_OK) {
        yb_stats_add_at(object->shard, first + STAT_ERRORS, request->verb,
                        yb_stats_status_index(status), 1);
    } else if (request->verb == YB_OBJECT_GET) {
        yb_stats_observe(object->shard, first + STAT_FIRST_BYTE, request->first_byte_ns);
        yb_stats_observe(object->shard, first + STAT_TRANSFER,
                         request->total_ns - request->first_byte_ns);
    }
}

void
yb_object_show(struct object_tier *object)
{
    const struct yb_object_stats *now = &object->stats;
    struct yb_object_stats *told = &object->told;
    const struct {
        enum object_stat stat;
        uint64_t delta;
    } rows[] = {
        {STAT_RETRIES, now->retries - told->retries},
        {STAT_HEDGES, now->hedges - told->hedges},
        {STAT_HEDGES_WON, now->hedges_won - told->hedges_won},
        {STAT_PROBES, now->probes - told->probes},
        {STAT_RESOLVED, now->resolved - told->resolved},
        {STAT_KILLS, now->kill_objects - told->kill_objects},
        {STAT_MOVED, now->moved - told->moved},
        {STAT_MERGED, now->merged - told->merged},
    };

    if (object->shard == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        yb_stats_add(object->shard, object->stats_first + (uint32_t)rows[i].stat, rows[i].delta);
    }
    yb_stats_set(object->shard, object->stats_first + STAT_FLYING, (int64_t)now->flying);
    *told = *now;
}
