/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's life, its places, and what it is told of blocks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sched/sched_internal.h"

#define STRUCT_BYTES_MAX  4096u
#define PLACES_DEFAULT    1024u
#define BLOCKS_DEFAULT    (4u << 20)
#define HOLDERS_DEFAULT   (256ull << 20)
#define PENDING_DEFAULT   65536u
#define BLOCK_TOKENS      512u
#define BLOCK_TOKENS_MAX  65536u
#define HOLDERS_BYTES_MAX (64ull << 30)
#define RATE_MAX          1e15
#define FETCH_THRESHOLD   1.5
#define NEAR_BEST         0.02

/* ---- options --------------------------------------------------------------------------------- */

/* Copy what the caller knows of a struct whose first member is its size. Returns false if that size
 * cannot be. */
static bool
copy_sized(void *to, size_t to_bytes, const void *from)
{
    size_t bytes;

    memcpy(&bytes, from, sizeof(bytes));
    if (bytes < sizeof(size_t) || bytes > STRUCT_BYTES_MAX) {
        return false;
    }
    memcpy(to, from, bytes < to_bytes ? bytes : to_bytes);
    return true;
}

static void
fill_defaults(struct yb_sched_options *options)
{
    options->routing = options->routing != NULL ? options->routing : yb_sched_routing_name(0);
    options->admission =
        options->admission != NULL ? options->admission : yb_sched_admission_name(0);
    options->places_max = options->places_max != 0 ? options->places_max : PLACES_DEFAULT;
    options->blocks_max = options->blocks_max != 0 ? options->blocks_max : BLOCKS_DEFAULT;
    options->holders_bytes_max =
        options->holders_bytes_max != 0 ? options->holders_bytes_max : HOLDERS_DEFAULT;
    options->pending_max = options->pending_max != 0 ? options->pending_max : PENDING_DEFAULT;
    options->block_tokens = options->block_tokens != 0 ? options->block_tokens : BLOCK_TOKENS;
    options->fetch_threshold =
        options->fetch_threshold > 0 ? options->fetch_threshold : FETCH_THRESHOLD;
    options->near_best = options->near_best > 0   ? options->near_best
                         : options->near_best < 0 ? 0
                                                  : NEAR_BEST;
}

/* Return what is wrong with options; NULL: nothing. */
static const char *
problem_of(const struct yb_sched_options *options)
{
    if (options->mode > YB_SCHED_MODE_TIME_SLICED) {
        return "mode is none of enum yb_sched_mode";
    }
    if (options->places_max > YB_SCHED_PLACES_MAX) {
        return "places_max is above 16384";
    }
    if (options->blocks_max > YB_SCHED_INDEX_BLOCKS_MAX) {
        return "blocks_max is above 256 M";
    }
    if (options->holders_bytes_max > HOLDERS_BYTES_MAX) {
        return "holders_bytes_max is above 64 GiB";
    }
    if (options->pending_max > YB_SCHED_INDEX_PRODUCERS_MAX) {
        return "pending_max is above 1048575";
    }
    if (options->block_tokens > BLOCK_TOKENS_MAX) {
        return "block_tokens is above 65536";
    }
    if (options->conductor >= YB_SCHED_CONDUCTORS_MAX) {
        return "conductor is not below 16";
    }
    if (!isfinite(options->fetch_threshold) || !isfinite(options->near_best) ||
        !isfinite(options->weight)) {
        return "fetch_threshold, near_best or weight is no number";
    }
    return NULL;
}

/* Say of a name that is not in its table which ones are. */
static void
say_names(char *message_out, size_t message_bytes, const char *option, const char *given,
          const char *(*name)(uint32_t index))
{
    size_t used = 0;

    if (message_out == NULL) {
        return;
    }
    for (uint32_t i = 0; used < message_bytes && (i == 0 || name(i - 1) != NULL); i++) {
        int more = i == 0 ? snprintf(message_out, message_bytes,
                                     "%s cannot be \"%.64s\"; allowed:", option, given)
                          : snprintf(message_out + used, message_bytes - used, " %s", name(i - 1));

        used += (size_t)more;
    }
}

/* Whether the policies are there; says which ones are if they are not. */
static bool
has_policies(const struct yb_sched_options *options, char *message_out, size_t message_bytes)
{
    bool routing = yb_sched_route_find(options->routing) != NULL;
    bool admission = yb_sched_admit_find(options->admission) != NULL;

    if (!routing) {
        say_names(message_out, message_bytes, "routing", options->routing, yb_sched_routing_name);
    } else if (!admission) {
        say_names(message_out, message_bytes, "admission", options->admission,
                  yb_sched_admission_name);
    }
    return routing && admission;
}

static bool
allocate(struct yb_sched *sched)
{
    const struct yb_sched_options *options = &sched->options;
    size_t state_bytes = sched->routing->state_bytes;

    YB_ASSERT(state_bytes <= YB_SCHED_STATE_BYTES_MAX);
    sched->state = calloc(1, state_bytes + 1);
    sched->loads = calloc(options->places_max, sizeof(*sched->loads));
    sched->places = calloc(options->places_max, sizeof(*sched->places));
    sched->own = calloc(options->places_max, sizeof(*sched->own));
    sched->racks = calloc(YB_SCHED_RACKS_MAX, sizeof(*sched->racks));
    sched->prefills = calloc(options->places_max, sizeof(*sched->prefills));
    sched->decodes = calloc(options->places_max, sizeof(*sched->decodes));
    sched->pending = calloc(options->pending_max, sizeof(*sched->pending));
    return sched->state != NULL && sched->loads != NULL && sched->places != NULL &&
           sched->own != NULL && sched->racks != NULL && sched->prefills != NULL &&
           sched->decodes != NULL && sched->pending != NULL;
}

enum yb_status
yb_sched_create(const struct yb_sched_options *options, struct yb_sched **sched_out,
                char *message_out, size_t message_bytes)
{
    struct yb_sched_options given = {0};
    struct yb_sched *sched;
    const char *problem = "options.struct_bytes is not the size of the struct";
    enum yb_status status = YB_INVALID;

    if (copy_sized(&given, sizeof(given), options)) {
        fill_defaults(&given);
        problem = problem_of(&given);
        if (problem == NULL && !has_policies(&given, message_out, message_bytes)) {
            return YB_INVALID;
        }
    }
    if (problem != NULL) {
        goto err_said;
    }
    problem = "no memory for the scheduler; lower places_max, blocks_max or pending_max";
    status = YB_NO_MEMORY;
    sched = calloc(1, sizeof(*sched));
    if (sched == NULL) {
        goto err_said;
    }
    sched->magic = YB_SCHED_MAGIC;
    sched->options = given;
    sched->routing = yb_sched_route_find(given.routing);
    sched->admission = yb_sched_admit_find(given.admission);
    sched->options.routing = sched->routing->name; /* The caller's string may go. */
    sched->options.admission = sched->admission->name;
    if (!allocate(sched) ||
        yb_sched_index_create(given.places_max, given.blocks_max, given.holders_bytes_max,
                              given.pending_max, &sched->index) != YB_OK) {
        yb_sched_destroy(&sched);
        goto err_said;
    }
    *sched_out = sched;
    return YB_OK;

err_said:
    if (message_out != NULL) {
        (void)snprintf(message_out, message_bytes, "%s", problem);
    }
    return status;
}

void
yb_sched_destroy(struct yb_sched **sched)
{
    struct yb_sched *old = *sched;

    if (old == NULL) {
        return;
    }
    YB_ASSERT_OBJ(old, YB_SCHED_MAGIC);
    old->magic = 0;
    yb_sched_index_destroy(&old->index);
    free(old->state);
    free(old->loads);
    free(old->places);
    free(old->own);
    free(old->racks);
    free(old->prefills);
    free(old->decodes);
    free(old->pending);
    free(old);
    *sched = NULL;
}

enum yb_status
yb_sched_scratch_create(const struct yb_sched *sched, struct yb_sched_scratch **scratch_out)
{
    struct yb_sched_scratch *scratch = calloc(1, sizeof(*scratch));
    size_t places = sched->options.places_max;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (scratch == NULL) {
        return YB_NO_MEMORY;
    }
    scratch->magic = YB_SCHED_SCRATCH_MAGIC;
    scratch->sched = sched;
    scratch->active = calloc(places, sizeof(*scratch->active));
    scratch->hits = calloc(places, sizeof(*scratch->hits));
    scratch->prefills = calloc(places, sizeof(*scratch->prefills));
    scratch->chosen = calloc(places, sizeof(*scratch->chosen));
    scratch->figures = calloc(places, sizeof(*scratch->figures));
    scratch->rack_best = calloc(YB_SCHED_RACKS_MAX, sizeof(*scratch->rack_best));
    if (scratch->active == NULL || scratch->hits == NULL || scratch->prefills == NULL ||
        scratch->chosen == NULL || scratch->figures == NULL || scratch->rack_best == NULL) {
        yb_sched_scratch_destroy(&scratch);
        return YB_NO_MEMORY;
    }
    *scratch_out = scratch;
    return YB_OK;
}

void
yb_sched_scratch_destroy(struct yb_sched_scratch **scratch)
{
    struct yb_sched_scratch *old = *scratch;

    if (old == NULL) {
        return;
    }
    YB_ASSERT_OBJ(old, YB_SCHED_SCRATCH_MAGIC);
    old->magic = 0;
    free(old->active);
    free(old->hits);
    free(old->prefills);
    free(old->chosen);
    free(old->figures);
    free(old->rack_best);
    free(old);
    *scratch = NULL;
}

/* ---- what there is --------------------------------------------------------------------------- */

static bool
is_figure(double value)
{
    return isfinite(value) && value >= 0;
}

enum yb_status
yb_sched_set_cost(struct yb_sched *sched, uint32_t index, const struct yb_sched_cost *cost)
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (index >= YB_SCHED_COSTS_MAX || cost->kv_bytes == 0 || cost->layers == 0 ||
        !is_figure(cost->prefill_base_ns) || !is_figure(cost->prefill_token_ns) ||
        !is_figure(cost->prefill_pair_ns) || !is_figure(cost->step_base_ns) ||
        !is_figure(cost->step_sequence_ns) || !is_figure(cost->step_token_ns)) {
        return YB_INVALID;
    }
    sched->costs[index] = *cost;
    sched->cost_set |= 1ull << index;
    return YB_OK;
}

static bool
is_link(const struct yb_sched_link *link)
{
    return is_figure(link->rate) && link->rate <= RATE_MAX;
}

enum yb_status
yb_sched_set_rack(struct yb_sched *sched, uint32_t rack,
                  const struct yb_sched_link links[YB_SCHED_UPLINKS])
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (rack >= YB_SCHED_RACKS_MAX || !is_link(&links[YB_SCHED_UPLINK_UP]) ||
        !is_link(&links[YB_SCHED_UPLINK_DOWN])) {
        return YB_INVALID;
    }
    memcpy(sched->racks[rack], links, sizeof(sched->racks[rack]));
    return YB_OK;
}

/* Put a place into a list of numbers that grow, or take it out. */
static void
list_set(uint32_t *list, uint32_t *count, uint32_t place, bool in)
{
    uint32_t at = 0;
    bool is_in;

    while (at < *count && list[at] < place) {
        at++;
    }
    is_in = at < *count && list[at] == place;
    if (in && !is_in) {
        memmove(&list[at + 1], &list[at], (*count - at) * sizeof(*list));
        list[at] = place;
        ++*count;
    } else if (!in && is_in) {
        memmove(&list[at], &list[at + 1], (*count - at - 1) * sizeof(*list));
        --*count;
    }
}

/* Put the place where requests for it are looked for. With prefill and decode at one place, it
 * needs both roles. */
static void
place_lists(struct yb_sched *sched, uint32_t place)
{
    uint32_t roles = sched->loads[place].roles;
    uint32_t both = YB_SCHED_PREFILL | YB_SCHED_DECODE;
    bool one = sched->options.mode != YB_SCHED_MODE_DISAGGREGATED;
    bool prefill = one ? roles == both : (roles & YB_SCHED_PREFILL) != 0;
    bool decode = one ? roles == both : (roles & YB_SCHED_DECODE) != 0;

    list_set(sched->prefills, &sched->prefill_count, place, prefill);
    list_set(sched->decodes, &sched->decode_count, place, decode);
}

static bool
is_instance(const struct yb_sched *sched, uint32_t place, const struct yb_sched_instance *instance)
{
    if (place >= sched->options.places_max || instance->node >= sched->options.places_max ||
        instance->rack >= YB_SCHED_RACKS_MAX ||
        (instance->roles & ~(YB_SCHED_PREFILL | YB_SCHED_DECODE)) != 0 ||
        instance->cost >= YB_SCHED_COSTS_MAX ||
        (instance->roles != 0 && (sched->cost_set & 1ull << instance->cost) == 0)) {
        return false;
    }
    for (uint32_t i = 0; i < YB_SCHED_LINKS; i++) {
        if (!is_link(&instance->links[i])) {
            return false;
        }
    }
    return true;
}

enum yb_status
yb_sched_set_instance(struct yb_sched *sched, uint32_t place,
                      const struct yb_sched_instance *instance)
{
    struct yb_sched_instance given = {0};
    struct yb_sched_place *old;
    struct yb_sched_load *load;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (!copy_sized(&given, sizeof(given), instance) || !is_instance(sched, place, &given)) {
        return YB_INVALID;
    }
    old = &sched->places[place];
    load = &sched->loads[place];
    sched->shared_nodes -= load->alive && old->instance.node != place;
    sched->shared_nodes += given.node != place;
    sched->place_count += !load->alive;
    old->instance = given;
    load->alive = 1;
    load->roles = (uint8_t)given.roles;
    load->rack = given.rack;
    load->cost = (uint16_t)given.cost;
    sched->places_used = place < sched->places_used ? sched->places_used : place + 1;
    sched->rack_count = given.rack < sched->rack_count ? sched->rack_count : given.rack + 1;
    place_lists(sched, place);
    yb_sched_load_refresh(sched, place);
    return YB_OK;
}

/* Take what the reports of a place count for out of the sums, or put it in. */
static void
count_in_flight(struct yb_sched *sched, const struct yb_sched_report *report, bool in)
{
    for (uint32_t i = 0; i < YB_SCHED_CONDUCTORS_MAX; i++) {
        sched->in_flight[i] += in ? report->in_flight[i] : -(uint64_t)report->in_flight[i];
    }
}

enum yb_status
yb_sched_remove_instance(struct yb_sched *sched, uint32_t place)
{
    struct yb_sched_load *load;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (place >= sched->options.places_max) {
        return YB_INVALID;
    }
    load = &sched->loads[place];
    if (!load->alive) {
        return YB_NOT_FOUND;
    }
    for (uint32_t at = 0; at < 2; at++) {
        while (sched->own[place].first[at] != 0) {
            yb_sched_pending_forget(sched, sched->own[place].first[at] - 1);
        }
    }
    count_in_flight(sched, &sched->places[place].report, false);
    sched->shared_nodes -= sched->places[place].instance.node != place;
    sched->places[place] = (struct yb_sched_place){.instance = {.node = place}};
    *load = (struct yb_sched_load){0};
    place_lists(sched, place);
    sched->place_count--;
    yb_sched_index_remove_place(sched->index, place);
    return YB_OK;
}

bool
yb_sched_sweep(struct yb_sched *sched, uint32_t steps)
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    return yb_sched_index_sweep(sched->index, steps);
}

bool
yb_sched_is_swept(const struct yb_sched *sched, uint32_t place)
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    return place < sched->options.places_max && yb_sched_index_is_swept(sched->index, place);
}

void
yb_sched_drop_shared(struct yb_sched *sched)
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    yb_sched_index_drop_shared(sched->index);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool
is_holder(const struct yb_sched *sched, uint32_t place, uint32_t tier)
{
    if (place == YB_SCHED_SHARED) {
        return tier == YB_SCHED_TIER_OBJECT;
    }
    return place < sched->options.places_max && sched->loads[place].alive &&
           tier < YB_SCHED_LOCAL_TIERS;
}

enum yb_status
yb_sched_add(struct yb_sched *sched, uint64_t block, uint32_t place, uint32_t tier)
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (!is_holder(sched, place, tier)) {
        return YB_INVALID;
    }
    return yb_sched_index_add(sched->index, block, place, tier);
}

enum yb_status
yb_sched_drop(struct yb_sched *sched, uint64_t block, uint32_t place, uint32_t tier)
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (!is_holder(sched, place, tier)) {
        return YB_INVALID;
    }
    return yb_sched_index_drop(sched->index, block, place, tier);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* What the report has is not this conductor's alone to count any more. */
static void
unlist_reported(struct yb_sched *sched, uint32_t place, const struct yb_sched_report *report)
{
    uint64_t seen = report->seen[sched->options.conductor];
    uint32_t next;

    for (uint32_t i = sched->own[place].first[YB_SCHED_AT_PREFILL]; i != 0; i = next) {
        next = sched->pending[i - 1].next[YB_SCHED_AT_PREFILL];
        if (sched->pending[i - 1].number <= seen) {
            yb_sched_pending_unlist(sched, i - 1, YB_SCHED_AT_PREFILL);
        }
    }
    /* For decode a request is there when its prefill has ended; numbers arrive in any order. */
    for (uint32_t i = sched->own[place].first[YB_SCHED_AT_DECODE]; i != 0; i = next) {
        const struct yb_sched_pending *pending = &sched->pending[i - 1];

        next = pending->next[YB_SCHED_AT_DECODE];
        if (pending->prefilled_ns != 0 && report->at_ns >= pending->prefilled_ns) {
            yb_sched_pending_unlist(sched, i - 1, YB_SCHED_AT_DECODE);
        }
    }
}

enum yb_status
yb_sched_report(struct yb_sched *sched, uint32_t place, const struct yb_sched_report *report)
{
    struct yb_sched_report given = {0};
    struct yb_sched_place *old;
    struct yb_sched_load *load;
    double pending_ns;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    if (!copy_sized(&given, sizeof(given), report) || place >= sched->options.places_max) {
        return YB_INVALID;
    }
    for (uint32_t i = 0; i < YB_SCHED_LINKS; i++) {
        if (!is_figure(given.rate[i]) || given.rate[i] > RATE_MAX) {
            return YB_INVALID;
        }
    }
    old = &sched->places[place];
    load = &sched->loads[place];
    if (!load->alive) {
        return YB_NOT_FOUND;
    }
    if (given.sequence <= old->report.sequence) {
        return YB_STALE;
    }
    count_in_flight(sched, &old->report, false);
    count_in_flight(sched, &given, true);
    old->report = given;
    for (uint32_t i = 0; i < YB_SCHED_LINKS; i++) {
        struct yb_sched_link *link = &old->instance.links[i];

        link->rate = given.rate[i] > 0 ? given.rate[i] : link->rate;
        link->latency_ns = given.latency_ns[i] > 0 ? given.latency_ns[i] : link->latency_ns;
        link->backlog_bytes = given.backlog_bytes[i];
        link->at_ns = given.at_ns;
    }
    unlist_reported(sched, place, &given);
    yb_sched_load_refresh(sched, place);
    /* What the place does not know of comes behind what it has. */
    old->instance.links[YB_SCHED_LINK_IN].backlog_bytes += sched->own[place].fetch_bytes;
    pending_ns = yb_sched_others_factor(sched) * sched->own[place].prefill_ns;
    load->done_ns = given.prefill_done_ns;
    if (load->done_ns == 0 && given.prefill_tokens > 0) {
        load->done_ns = given.at_ns + (uint64_t)(sched->costs[load->cost].prefill_token_ns *
                                                 (double)given.prefill_tokens);
    }
    load->done_ns = load->done_ns > given.at_ns ? load->done_ns : given.at_ns;
    load->done_ns += (uint64_t)pending_ns;
    return YB_OK;
}

struct yb_sched_info
yb_sched_info(const struct yb_sched *sched)
{
    struct yb_sched_index_info index;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    index = yb_sched_index_info(sched->index);
    return (struct yb_sched_info){
        .routing = sched->routing->name,
        .admission = sched->admission->name,
        .places = sched->place_count,
        .pending = sched->pending_count,
        .decisions = sched->number,
        .rejected = sched->rejected,
        .blocks = index.blocks,
        .holder_sets = index.sets,
        .holders_bytes = index.set_bytes,
        .refused_blocks = index.refused,
        .forgotten = sched->forgotten,
    };
}
