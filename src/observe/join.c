/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/join.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define UNSURE_NS (UINT64_MAX / 1024) /* Of a clock with one bound: these can be added up. */

/* What is known of how far the clock of one process is ahead of another's. */
struct pair {
    bool has_least;
    bool has_most;
    bool served; /* The last two are there: of the call that leaves least open. */
    int64_t least;
    int64_t most;
    int64_t shortest_least;
    int64_t shortest_most;
};

/* How one clock follows from another. */
struct tie {
    int64_t ahead_ns;
    uint64_t unsure_ns;
};

struct join {
    struct yb_joined *spans;
    uint32_t count;
    uint32_t processes;
    uint32_t *by_id; /* Places, sorted by trace and id of their span. */
    struct pair pairs[YB_JOIN_PROCESSES_MAX][YB_JOIN_PROCESSES_MAX]; /* Of [lower][higher]. */
};

/* ---- who caused whom ------------------------------------------------------------------------- */

static int
compare_ids(const struct yb_span *span, const struct yb_id *trace, uint64_t id)
{
    int order = memcmp(span->trace.bytes, trace->bytes, sizeof(trace->bytes));

    return order != 0 ? order : (span->span > id) - (span->span < id);
}

static int
compare_places(const void *a, const void *b, void *context)
{
    const struct yb_joined *spans = context;
    const struct yb_span *other = &spans[*(const uint32_t *)b].span;

    return compare_ids(&spans[*(const uint32_t *)a].span, &other->trace, other->span);
}

static uint32_t
find(const struct join *join, const struct yb_id *trace, uint64_t id)
{
    uint32_t low = 0;
    uint32_t high = join->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare_ids(&join->spans[join->by_id[middle]].span, trace, id);

        if (order == 0) {
            return join->by_id[middle];
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return YB_JOIN_NONE;
}

static void
find_parents(struct join *join)
{
    for (uint32_t i = 0; i < join->count; i++) {
        struct yb_joined *joined = &join->spans[i];

        joined->parent = joined->span.parent == 0
                             ? YB_JOIN_NONE
                             : find(join, &joined->span.trace, joined->span.parent);
        joined->start_ns = (int64_t)joined->span.wall_ns;
    }
    for (uint32_t i = 0; i < join->count; i++) {
        uint32_t at = join->spans[i].parent;
        uint32_t depth = 0;

        while (at != YB_JOIN_NONE && depth <= join->count) {
            at = join->spans[at].parent;
            depth++;
        }
        if (depth > join->count) { /* A circle: ids are not what they should be. */
            join->spans[i].parent = YB_JOIN_NONE;
            depth = 0;
        }
        join->spans[i].depth = depth;
    }
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static void
raise_least(struct pair *pair, int64_t least)
{
    pair->least = pair->has_least && pair->least > least ? pair->least : least;
    pair->has_least = true;
}

static void
lower_most(struct pair *pair, int64_t most)
{
    pair->most = pair->has_most && pair->most < most ? pair->most : most;
    pair->has_most = true;
}

/* Of one call that was waited for. */
static void
note_call(struct pair *pair, int64_t least, int64_t most)
{
    if (!pair->served || most - least < pair->shortest_most - pair->shortest_least) {
        pair->shortest_least = least;
        pair->shortest_most = most;
    }
    pair->served = true;
}

/* What a span says of its clock and that of what caused it. */
static void
look_at(struct join *join, const struct yb_joined *child, const struct yb_joined *parent)
{
    const bool served =
        parent->span.kind == YB_SPAN_KIND_CALL && child->span.kind == YB_SPAN_KIND_SERVE;
    const int64_t least = yb_joined_end(child) - yb_joined_end(parent);
    const int64_t most = child->start_ns - parent->start_ns;
    struct pair *pair;

    if (child->process < parent->process) {
        pair = &join->pairs[child->process][parent->process];
        lower_most(pair, most);
        if (served) {
            raise_least(pair, least);
            note_call(pair, least, most);
        }
    } else {
        pair = &join->pairs[parent->process][child->process];
        raise_least(pair, -most);
        if (served) {
            lower_most(pair, -least);
            note_call(pair, -most, -least);
        }
    }
}

static void
look_at_all(struct join *join)
{
    for (uint32_t i = 0; i < join->count; i++) {
        const struct yb_joined *child = &join->spans[i];

        if (child->parent != YB_JOIN_NONE && join->spans[child->parent].process != child->process) {
            look_at(join, child, &join->spans[child->parent]);
        }
    }
}

/* The best guess between two bounds: none if there is no need of one. */
static struct tie
between(int64_t least, int64_t most)
{
    if (least <= 0 && most >= 0) {
        return (struct tie){.unsure_ns = (uint64_t)(most > -least ? most : -least)};
    }
    return (struct tie){
        .ahead_ns = least + (most - least) / 2,
        .unsure_ns = (uint64_t)(most - least + 1) / 2,
    };
}

/* How far the lower one of two is ahead. False: nothing is known. */
static bool
tie_of_pair(const struct pair *pair, struct tie *tie_out)
{
    if (pair->has_least && pair->has_most && pair->least <= pair->most) {
        *tie_out = between(pair->least, pair->most);
    } else if (pair->served) { /* They drift. */
        *tie_out = between(pair->shortest_least, pair->shortest_most);
    } else if (pair->has_least && pair->has_most) {
        *tie_out = between(pair->most, pair->least);
    } else { /* One bound: no more is changed than it demands. */
        *tie_out = (struct tie){.unsure_ns = UNSURE_NS};
        if (pair->has_least && pair->least > 0) {
            tie_out->ahead_ns = pair->least;
        } else if (pair->has_most && pair->most < 0) {
            tie_out->ahead_ns = pair->most;
        }
    }
    return pair->has_least || pair->has_most;
}

static bool
tie_of(const struct join *join, uint32_t one, uint32_t other, struct tie *tie_out)
{
    if (one < other) {
        return tie_of_pair(&join->pairs[one][other], tie_out);
    }
    if (!tie_of_pair(&join->pairs[other][one], tie_out)) {
        return false;
    }
    tie_out->ahead_ns = -tie_out->ahead_ns;
    return true;
}

/* Tie clocks to the first one, along what is known best. */
static void
tie_clocks(const struct join *join, struct yb_join_clock *clocks)
{
    bool tied[YB_JOIN_PROCESSES_MAX] = {true};

    for (uint32_t i = 0; i < join->processes; i++) {
        clocks[i] = (struct yb_join_clock){.unsure_ns = i == 0 ? 0 : UINT64_MAX};
    }
    for (;;) {
        uint32_t best = YB_JOIN_NONE;
        struct yb_join_clock clock = {.unsure_ns = UINT64_MAX};
        struct tie tie;

        for (uint32_t i = 0; i < join->processes; i++) {
            for (uint32_t j = 0; j < join->processes && !tied[i]; j++) {
                if (tied[j] && tie_of(join, i, j, &tie) &&
                    tie.unsure_ns + clocks[j].unsure_ns < clock.unsure_ns) {
                    best = i;
                    clock.ahead_ns = clocks[j].ahead_ns + tie.ahead_ns;
                    clock.unsure_ns = tie.unsure_ns + clocks[j].unsure_ns;
                }
            }
        }
        if (best == YB_JOIN_NONE) {
            return;
        }
        clocks[best] = clock;
        tied[best] = true;
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

/* J2: parents first, so that a move moves what follows from it. */
static void
move_behind_parents(struct join *join)
{
    uint32_t deepest = 0;

    for (uint32_t i = 0; i < join->count; i++) {
        deepest = join->spans[i].depth > deepest ? join->spans[i].depth : deepest;
    }
    for (uint32_t depth = 1; depth <= deepest; depth++) {
        for (uint32_t i = 0; i < join->count; i++) {
            struct yb_joined *joined = &join->spans[i];

            if (joined->depth == depth && joined->start_ns < join->spans[joined->parent].start_ns) {
                joined->start_ns = join->spans[joined->parent].start_ns;
            }
        }
    }
}

enum yb_status
yb_join(struct yb_joined *spans, uint32_t count, uint32_t processes,
        struct yb_join_clock *clocks_out)
{
    struct join *join = calloc(1, sizeof(*join));

    YB_ASSERT(processes <= YB_JOIN_PROCESSES_MAX);
    if (join == NULL) {
        return YB_NO_MEMORY;
    }
    *join = (struct join){.spans = spans, .count = count, .processes = processes};
    join->by_id = malloc(sizeof(*join->by_id) * ((size_t)count + 1));
    if (join->by_id == NULL) {
        free(join);
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(spans[i].process < processes);
        join->by_id[i] = i;
    }
    qsort_r(join->by_id, count, sizeof(*join->by_id), compare_places, spans);
    find_parents(join);
    look_at_all(join);
    tie_clocks(join, clocks_out);
    for (uint32_t i = 0; i < count; i++) {
        spans[i].start_ns -= clocks_out[spans[i].process].ahead_ns;
    }
    move_behind_parents(join);
    free(join->by_id);
    free(join);
    return YB_OK;
}
