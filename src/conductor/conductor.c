/* SPDX-License-Identifier: Apache-2.0
 *
 * Life, places, and what is said of them.
 */
#include "conductor/conductor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "conductor/conductor_internal.h"

#define PLACES_DEFAULT    1024u
#define BLOCKS_DEFAULT    (1u << 20)
#define PENDING_DEFAULT   16384u
#define PENDING_MAX       (1u << 20)
#define BLOCK_TOKENS      512u
#define EXPIRE_DEFAULT_NS (3 * YB_NS_PER_S)
#define NODE_RATE_DEFAULT 1000000000ull
#define SWEEP_STEPS       65536u
#define HOLDERS_BYTES     64ull /* For who has a block, on average. */
#define HOLDERS_BYTES_MIN (1ull << 20)
#define NAME_SEED         0x79626e6dull

/* ---- words ----------------------------------------------------------------------------------- */

void
yb_conductor_take_text(char *out, struct yb_wire_text text)
{
    size_t length =
        text.length < YB_CONDUCTOR_NAME_BYTES ? text.length : YB_CONDUCTOR_NAME_BYTES - 1;

    if (length > 0) {
        memcpy(out, text.bytes, length);
    }
    out[length] = '\0';
}

enum yb_status
yb_conductor_say(char why_out[YB_CONDUCTOR_WHY_BYTES], enum yb_status status, const char *format,
                 ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(why_out, YB_CONDUCTOR_WHY_BYTES, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool
seated(const struct yb_conductor_seat *seat)
{
    return seat->kind == YB_CONDUCTOR_INSTANCE || seat->kind == YB_CONDUCTOR_STORAGE;
}

struct yb_conductor_seat *
yb_conductor_find(const struct yb_conductor *conductor, struct yb_wire_text name)
{
    uint64_t at = yb_hash_table(NAME_SEED, name.bytes, name.length);

    for (;; at++) {
        uint32_t number = conductor->by_name[at & conductor->by_name_mask];

        if (number == 0) {
            return NULL;
        }
        if (yb_wire_text_equal(name, conductor->seats[number - 1].name)) {
            return &conductor->seats[number - 1];
        }
    }
}

static void
name_add(struct yb_conductor *conductor, uint32_t number)
{
    const char *name = conductor->seats[number].name;
    uint64_t at = yb_hash_table(NAME_SEED, name, strlen(name));

    while (conductor->by_name[at & conductor->by_name_mask] != 0) {
        at++;
    }
    conductor->by_name[at & conductor->by_name_mask] = number + 1;
}

/* After a name has gone: places come and go seldom. */
static void
names_again(struct yb_conductor *conductor)
{
    memset(conductor->by_name, 0,
           ((size_t)conductor->by_name_mask + 1) * sizeof(*conductor->by_name));
    for (uint32_t i = 0; i < conductor->seats_used; i++) {
        if (seated(&conductor->seats[i])) {
            name_add(conductor, i);
        }
    }
}

static uint32_t
number_of(const struct yb_conductor *conductor, const struct yb_conductor_seat *seat)
{
    return (uint32_t)(seat - conductor->seats);
}

/* Return a number that nobody has; places_max: none is left. */
static uint32_t
free_seat(struct yb_conductor *conductor)
{
    for (uint32_t i = 0; i < conductor->options.places_max; i++) {
        if (conductor->seats[i].kind == YB_CONDUCTOR_FREE) {
            return i;
        }
    }
    return conductor->options.places_max;
}

static void
sit(struct yb_conductor *conductor, uint32_t number, struct yb_wire_text name,
    enum yb_conductor_kind kind)
{
    struct yb_conductor_seat *seat = &conductor->seats[number];

    *seat = (struct yb_conductor_seat){.kind = kind};
    yb_conductor_take_text(seat->name, name);
    conductor->seats_used = number < conductor->seats_used ? conductor->seats_used : number + 1;
    name_add(conductor, number);
}

/* A place goes: its blocks count no longer; its number is free when they have been swept. */
static void
leave(struct yb_conductor *conductor, struct yb_conductor_seat *seat)
{
    const uint32_t number = number_of(conductor, seat);

    for (uint32_t i = 0; i < conductor->model_count; i++) {
        if (yb_sched_remove_instance(conductor->models[i].sched, number) == YB_OK) {
            continue; /* Of an instance only its own model's scheduler knew. */
        }
    }
    *seat = (struct yb_conductor_seat){.kind = YB_CONDUCTOR_LEAVING};
    conductor->sweeping = true;
    names_again(conductor);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void
fill_defaults(struct yb_conductor_options *options)
{
    const char *routing = options->routing;
    const char *admission = options->admission;

    options->routing = routing != NULL && routing[0] != '\0' ? routing : yb_sched_routing_name(0);
    options->admission =
        admission != NULL && admission[0] != '\0' ? admission : yb_sched_admission_name(0);
    options->places_max = options->places_max != 0 ? options->places_max : PLACES_DEFAULT;
    options->blocks_max = options->blocks_max != 0 ? options->blocks_max : BLOCKS_DEFAULT;
    options->pending_max = options->pending_max != 0 ? options->pending_max : PENDING_DEFAULT;
    options->block_tokens = options->block_tokens != 0 ? options->block_tokens : BLOCK_TOKENS;
    options->expire_ns = options->expire_ns != 0 ? options->expire_ns : EXPIRE_DEFAULT_NS;
    options->node_rate = options->node_rate != 0 ? options->node_rate : NODE_RATE_DEFAULT;
}

static struct yb_sched_options
sched_options(const struct yb_conductor *conductor)
{
    const struct yb_conductor_options *options = &conductor->options;

    return (struct yb_sched_options){
        .struct_bytes = sizeof(struct yb_sched_options),
        .routing = conductor->routing,
        .admission = conductor->admission,
        .mode = options->mode,
        .places_max = options->places_max,
        .blocks_max = options->blocks_max,
        .holders_bytes_max = HOLDERS_BYTES_MIN + HOLDERS_BYTES * options->blocks_max,
        .pending_max = options->pending_max,
        .block_tokens = options->block_tokens,
        .gather = true, /* As clients do: each block is fetched from where it is there first. */
        .conductor = options->conductor,
        .seed = options->seed,
        .ttft_slo_ns = options->ttft_slo_ns,
        .tpot_slo_ns = options->tbt_slo_ns,
    };
}

/* Whether the library would take these options; otherwise it says which one it would not. */
static enum yb_status
try_options(const struct yb_conductor *conductor, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_sched_options options = sched_options(conductor);
    struct yb_sched *sched = NULL;
    enum yb_status status;

    options.blocks_max = options.blocks_max < 1024 ? options.blocks_max : 1024;
    options.holders_bytes_max = HOLDERS_BYTES_MIN;
    status = yb_sched_create(&options, &sched, why_out, YB_CONDUCTOR_WHY_BYTES);
    if (status == YB_OK) {
        yb_sched_destroy(&sched);
    }
    return status;
}

static void
record_options(struct yb_conductor *conductor)
{
    const struct yb_conductor_options *options = &conductor->options;
    struct yb_wire_conductor_options wire = {
        .places_max = options->places_max,
        .blocks_max = options->blocks_max,
        .pending_max = options->pending_max,
        .block_tokens = options->block_tokens,
        .conductor = options->conductor,
        .mode = options->mode,
        .random_seed = options->seed,
        .ttft_slo_us = options->ttft_slo_ns / YB_NS_PER_US,
        .tbt_slo_us = options->tbt_slo_ns / YB_NS_PER_US,
        .expire_us = options->expire_ns / YB_NS_PER_US,
        .node_rate = options->node_rate,
        .heat_ms = (uint32_t)(options->heat_ns / YB_NS_PER_MS),
        .moves = options->moves,
        .routing = yb_wire_text_of(conductor->routing),
        .admission = yb_wire_text_of(conductor->admission),
    };

    memcpy(wire.hash_seed, options->hash_seed, sizeof(wire.hash_seed));
    YB_CONDUCTOR_RECORD(conductor, OPTIONS, options, &wire, 0);
}

static bool
allocate(struct yb_conductor *conductor)
{
    const struct yb_conductor_options *options = &conductor->options;
    uint32_t names = 4;

    while (names < 2 * options->places_max) {
        names *= 2;
    }
    conductor->by_name_mask = names - 1;
    conductor->by_name = calloc(names, sizeof(*conductor->by_name));
    conductor->seats = calloc(options->places_max, sizeof(*conductor->seats));
    conductor->open = calloc(options->pending_max, sizeof(*conductor->open));
    if (options->record != NULL) {
        conductor->record =
            malloc(YB_WIRE_CONDUCTOR_ENTRY_BYTES + YB_WIRE_CONDUCTOR_REPORT_BYTES_MAX);
    }
    return conductor->by_name != NULL && conductor->seats != NULL && conductor->open != NULL &&
           (options->record == NULL || conductor->record != NULL) &&
           yb_sched_catalog_create(&conductor->catalog) == YB_OK;
}

enum yb_status
yb_conductor_create(const struct yb_conductor_options *options, struct yb_conductor **conductor_out,
                    char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor *conductor = calloc(1, sizeof(*conductor));
    enum yb_status status;

    if (conductor == NULL) {
        return yb_conductor_say(why_out, YB_NO_MEMORY, "no memory for a conductor");
    }
    conductor->magic = YB_CONDUCTOR_MAGIC;
    conductor->options = *options;
    fill_defaults(&conductor->options);
    (void)snprintf(conductor->routing, sizeof(conductor->routing), "%s",
                   conductor->options.routing);
    (void)snprintf(conductor->admission, sizeof(conductor->admission), "%s",
                   conductor->options.admission);
    conductor->options.routing = conductor->routing;
    conductor->options.admission = conductor->admission;
    status = conductor->options.pending_max > PENDING_MAX
                 ? yb_conductor_say(why_out, YB_INVALID, "pending_max is above %u", PENDING_MAX)
                 : try_options(conductor, why_out);
    if (status == YB_OK && !allocate(conductor)) {
        status = yb_conductor_say(why_out, YB_NO_MEMORY,
                                  "no memory for a conductor: lower places_max or pending_max");
    }
    if (status != YB_OK) {
        yb_conductor_destroy(&conductor);
        return status;
    }
    record_options(conductor);
    *conductor_out = conductor;
    return YB_OK;
}

void
yb_conductor_destroy(struct yb_conductor **conductor)
{
    struct yb_conductor *old = *conductor;

    if (old == NULL) {
        return;
    }
    YB_ASSERT_OBJ(old, YB_CONDUCTOR_MAGIC);
    *conductor = NULL;
    for (uint32_t i = 0; i < old->model_count; i++) {
        yb_sched_scratch_destroy(&old->models[i].scratch);
        yb_sched_destroy(&old->models[i].sched);
        free(old->models[i].hits);
        yb_conductor_heat_destroy(&old->models[i].heat);
    }
    if (old->catalog != NULL) {
        yb_sched_catalog_destroy(&old->catalog);
    }
    free(old->by_name);
    free(old->seats);
    free(old->open);
    free(old->record);
    old->magic = 0;
    free(old);
}

/* ---- models ---------------------------------------------------------------------------------- */

static struct yb_sched_instance
storage_instance(const struct yb_conductor *conductor, uint32_t number)
{
    double rate = (double)conductor->options.node_rate;

    return (struct yb_sched_instance){
        .struct_bytes = sizeof(struct yb_sched_instance),
        .node = number,
        .links =
            {
                [YB_SCHED_LINK_IN] = {.rate = rate},
                [YB_SCHED_LINK_OUT] = {.rate = rate},
                [YB_SCHED_LINK_SSD] = {.rate = rate},
                [YB_SCHED_LINK_OBJECT] = {.rate = rate},
            },
    };
}

/* Return the index of a model; model_count: it is not known. */
static uint32_t
find_model(const struct yb_conductor *conductor, struct yb_wire_text name)
{
    for (uint32_t i = 0; i < conductor->model_count; i++) {
        if (yb_wire_text_equal(name, conductor->models[i].name)) {
            return i;
        }
    }
    return conductor->model_count;
}

/* The nodes of the store are places of every model. */
static enum yb_status
make_model(struct yb_conductor *conductor, struct yb_wire_text name,
           char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_model *model = &conductor->models[conductor->model_count];
    const struct yb_sched_options options = sched_options(conductor);
    enum yb_status status;

    if (conductor->model_count == YB_CONDUCTOR_MODELS_MAX) {
        return yb_conductor_say(why_out, YB_NO_SPACE,
                                "a conductor serves at most %u models; start another one",
                                YB_CONDUCTOR_MODELS_MAX);
    }
    *model = (struct yb_conductor_model){.cost_count = 0};
    yb_conductor_take_text(model->name, name);
    status = yb_sched_create(&options, &model->sched, why_out, YB_CONDUCTOR_WHY_BYTES);
    if (status != YB_OK) {
        return status;
    }
    model->hits = calloc(conductor->options.places_max, sizeof(*model->hits));
    status =
        model->hits == NULL ? YB_NO_MEMORY : yb_sched_scratch_create(model->sched, &model->scratch);
    if (status == YB_OK && conductor->options.moves && conductor->options.heat_ns != 0) {
        status = yb_conductor_heat_create(&model->heat);
    }
    for (uint32_t i = 0; status == YB_OK && i < conductor->seats_used; i++) {
        if (conductor->seats[i].kind == YB_CONDUCTOR_STORAGE) {
            status = yb_sched_set_instance(model->sched, i, &conductor->seats[i].sched);
        }
    }
    if (status != YB_OK) {
        yb_sched_scratch_destroy(&model->scratch);
        yb_sched_destroy(&model->sched);
        free(model->hits);
        yb_conductor_heat_destroy(&model->heat);
        return yb_conductor_say(why_out, status, "no memory for another model");
    }
    conductor->model_count++;
    return YB_OK;
}

enum yb_status
yb_conductor_model_of(struct yb_conductor *conductor, struct yb_wire_text name, uint32_t *model_out,
                      char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    uint32_t model = find_model(conductor, name);

    if (name.length == 0 && conductor->model_count == 1) {
        model = 0;
    }
    if (model == conductor->model_count) {
        return name.length == 0 && conductor->model_count > 1
                   ? yb_conductor_say(why_out, YB_NOT_FOUND,
                                      "there are %u models here: name one by `model`",
                                      conductor->model_count)
                   : yb_conductor_say(why_out, YB_NOT_FOUND,
                                      "no instance has registered for model \"%.*s\"",
                                      (int)name.length, name.length > 0 ? name.bytes : "");
    }
    *model_out = model;
    return YB_OK;
}

/* ---- what an instance costs ------------------------------------------------------------------ */

static enum yb_status
read_cost(const struct yb_conductor *conductor, const struct yb_wire_conductor_register *said,
          struct yb_sched_cost *cost_out, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    char model[YB_CONDUCTOR_NAME_BYTES];
    char gpu[YB_CONDUCTOR_NAME_BYTES];

    if (said->gpu.length > 0) {
        yb_conductor_take_text(model, said->model);
        yb_conductor_take_text(gpu, said->gpu);
        if (said->gpus == 0 ||
            yb_sched_catalog_cost(conductor->catalog, model, gpu, said->gpus, cost_out) != YB_OK) {
            return yb_conductor_say(
                why_out, YB_NOT_FOUND,
                "the catalog has no cost of model \"%s\" on %u \"%s\": give the costs instead",
                model, said->gpus, gpu);
        }
        return YB_OK;
    }
    *cost_out = (struct yb_sched_cost){
        .prefill_base_ns = (double)said->prefill_base_ns,
        .prefill_token_ns = (double)said->prefill_token_ps / 1e3,
        .prefill_pair_ns = (double)said->prefill_pair_fs / 1e6,
        .step_base_ns = (double)said->step_base_ns,
        .step_sequence_ns = (double)said->step_sequence_ns,
        .step_token_ns = (double)said->step_token_ps / 1e3,
        .kv_bytes = said->kv_bytes,
        .kv_tokens_max = said->kv_tokens_max,
        .layers = said->layers,
        .pass_tokens = said->pass_tokens,
    };
    return cost_out->kv_bytes != 0 && cost_out->layers != 0
               ? YB_OK
               : yb_conductor_say(why_out, YB_INVALID,
                                  "kv_bytes and layers are needed, or gpu and gpus of the catalog");
}

/* Instances of one kind share a cost. */
static enum yb_status
set_cost(struct yb_conductor_model *model, const struct yb_sched_cost *cost, uint32_t *index_out,
         char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    uint32_t index = 0;

    while (index < model->cost_count && memcmp(&model->costs[index], cost, sizeof(*cost)) != 0) {
        index++;
    }
    if (index == YB_SCHED_COSTS_MAX) {
        return yb_conductor_say(why_out, YB_NO_SPACE, "more than %u different costs",
                                YB_SCHED_COSTS_MAX);
    }
    if (yb_sched_set_cost(model->sched, index, cost) != YB_OK) {
        return yb_conductor_say(why_out, YB_INVALID, "a cost is no number that can be");
    }
    model->costs[index] = *cost;
    model->cost_count = index < model->cost_count ? model->cost_count : index + 1;
    *index_out = index;
    return YB_OK;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Bring a seat to the schedulers that should know of it. */
static enum yb_status
place(struct yb_conductor *conductor, uint32_t number)
{
    const struct yb_conductor_seat *seat = &conductor->seats[number];
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; status == YB_OK && i < conductor->model_count; i++) {
        if (seat->kind == YB_CONDUCTOR_STORAGE || seat->model == i) {
            status = yb_sched_set_instance(conductor->models[i].sched, number, &seat->sched);
        }
    }
    return status;
}

/* Those who use a node by name find it, or stand alone when it has gone. */
static void
link_to_node(struct yb_conductor *conductor, const char *name, uint32_t node)
{
    for (uint32_t i = 0; i < conductor->seats_used; i++) {
        struct yb_conductor_seat *seat = &conductor->seats[i];

        if (seat->kind == YB_CONDUCTOR_INSTANCE && seat->node_name[0] != '\0' &&
            strcmp(seat->node_name, name) == 0) {
            seat->sched.node = node != YB_SCHED_NONE ? node : i;
            YB_ASSERT(place(conductor, i) == YB_OK);
        }
    }
}

static enum yb_status
add_storage(struct yb_conductor *conductor, struct yb_wire_text name, uint64_t now_ns,
            uint32_t *place_out)
{
    struct yb_conductor_seat *seat = yb_conductor_find(conductor, name);
    uint32_t number;

    if (name.length == 0 || name.length >= YB_CONDUCTOR_NAME_BYTES) {
        return YB_INVALID;
    }
    if (seat != NULL) {
        seat->heard_ns = now_ns;
        *place_out = number_of(conductor, seat);
        return seat->kind == YB_CONDUCTOR_STORAGE ? YB_OK : YB_EXISTS;
    }
    number = free_seat(conductor);
    if (number == conductor->options.places_max) {
        return YB_NO_SPACE;
    }
    sit(conductor, number, name, YB_CONDUCTOR_STORAGE);
    seat = &conductor->seats[number];
    seat->heard_ns = now_ns;
    seat->sched = storage_instance(conductor, number);
    YB_ASSERT(place(conductor, number) == YB_OK);
    link_to_node(conductor, seat->name, number);
    *place_out = number;
    return YB_OK;
}

enum yb_status
yb_conductor_storage(struct yb_conductor *conductor, struct yb_wire_text name, uint64_t now_ns,
                     uint32_t *place_out)
{
    const struct yb_wire_conductor_name wire = {.name = name};

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    YB_CONDUCTOR_RECORD(conductor, STORAGE, name, &wire, now_ns);
    return add_storage(conductor, name, now_ns, place_out);
}

static void
set_links(struct yb_sched_link links[YB_SCHED_LINKS], const struct yb_wire_conductor_register *said)
{
    const uint64_t net_ns = said->net_latency_us * YB_NS_PER_US;

    links[YB_SCHED_LINK_IN] = (struct yb_sched_link){(double)said->in_rate, net_ns, 0, 0};
    links[YB_SCHED_LINK_OUT] = (struct yb_sched_link){(double)said->out_rate, net_ns, 0, 0};
    links[YB_SCHED_LINK_LOAD] =
        (struct yb_sched_link){(double)said->load_rate, said->load_latency_us * YB_NS_PER_US, 0, 0};
    links[YB_SCHED_LINK_SSD] =
        (struct yb_sched_link){(double)said->ssd_rate, said->ssd_latency_us * YB_NS_PER_US, 0, 0};
    links[YB_SCHED_LINK_OBJECT] = (struct yb_sched_link){
        (double)said->object_rate, said->object_latency_us * YB_NS_PER_US, 0, 0};
}

/* What the instance says of its node's links goes for the node; of what it does not speak, what was
 * known before does. */
static uint32_t
node_of(struct yb_conductor *conductor, const struct yb_wire_conductor_register *said,
        uint32_t number, uint64_t now_ns)
{
    uint32_t node = number;
    struct yb_sched_link told[YB_SCHED_LINKS];
    struct yb_conductor_seat *seat;

    if (said->node.length == 0 || yb_wire_text_equal(said->name, "") ||
        add_storage(conductor, said->node, now_ns, &node) != YB_OK) {
        return number;
    }
    seat = &conductor->seats[node];
    set_links(told, said);
    for (uint32_t i = 0; i < YB_SCHED_LINKS; i++) {
        if (told[i].rate > 0) {
            seat->sched.links[i] = told[i];
        }
    }
    seat->sched.rack = said->rack;
    return place(conductor, node) == YB_OK ? node : number;
}

/* Return the seat for an instance, after an older life of it has left; NULL: there is none. */
static struct yb_conductor_seat *
seat_for(struct yb_conductor *conductor, const struct yb_wire_conductor_register *said,
         uint32_t model)
{
    struct yb_conductor_seat *seat = yb_conductor_find(conductor, said->name);
    uint32_t number;

    if (seat != NULL && seat->kind == YB_CONDUCTOR_INSTANCE && seat->model == model &&
        seat->incarnation == said->incarnation) {
        return seat;
    }
    if (seat != NULL) {
        leave(conductor, seat);
    }
    number = free_seat(conductor);
    if (number == conductor->options.places_max) {
        return NULL;
    }
    sit(conductor, number, said->name, YB_CONDUCTOR_INSTANCE);
    return &conductor->seats[number];
}

static enum yb_status
check_register(struct yb_conductor *conductor, const struct yb_wire_conductor_register *said,
               char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    const struct yb_conductor_seat *seat = yb_conductor_find(conductor, said->name);

    if (said->name.length == 0 || said->model.length == 0) {
        return yb_conductor_say(why_out, YB_INVALID, "name and model are needed");
    }
    if (seat != NULL && seat->kind == YB_CONDUCTOR_STORAGE) {
        return yb_conductor_say(why_out, YB_INVALID,
                                "\"%s\" is a node of the store: take another "
                                "name, and give that one as `node`",
                                seat->name);
    }
    if (conductor->options.mode != YB_SCHED_MODE_DISAGGREGATED &&
        said->roles != (YB_SCHED_PREFILL | YB_SCHED_DECODE)) {
        return yb_conductor_say(why_out, YB_INVALID,
                                "in this mode an instance has both roles: prefill and decode");
    }
    if (seat == NULL && free_seat(conductor) == conductor->options.places_max) {
        return yb_conductor_say(why_out, YB_NO_SPACE, "there are %u places already",
                                conductor->options.places_max);
    }
    return YB_OK;
}

static enum yb_status
add_instance(struct yb_conductor *conductor, const struct yb_wire_conductor_register *said,
             uint64_t now_ns, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_seat *seat;
    struct yb_sched_cost cost = {0};
    uint32_t model = find_model(conductor, said->model);
    uint32_t index = 0;
    uint32_t number;
    enum yb_status status = check_register(conductor, said, why_out);

    status = status == YB_OK ? read_cost(conductor, said, &cost, why_out) : status;
    if (status == YB_OK && model == conductor->model_count) {
        status = make_model(conductor, said->model, why_out);
    }
    if (status == YB_OK) {
        status = set_cost(&conductor->models[model], &cost, &index, why_out);
    }
    if (status != YB_OK) {
        return status;
    }
    seat = seat_for(conductor, said, model);
    if (seat == NULL) { /* Its older life's number is not free yet. */
        return yb_conductor_say(why_out, YB_NO_SPACE, "no place is free yet; try again");
    }
    number = number_of(conductor, seat);
    seat->model = model;
    seat->incarnation = said->incarnation;
    seat->heard_ns = now_ns;
    seat->parts = said->parts != 0 ? said->parts : 1;
    yb_conductor_take_text(seat->address, said->address);
    yb_conductor_take_text(seat->node_name, said->node);
    seat->sched = (struct yb_sched_instance){
        .struct_bytes = sizeof(struct yb_sched_instance),
        .roles = said->roles,
        .rack = said->rack,
        .group = said->group,
        .cost = index,
    };
    set_links(seat->sched.links, said);
    seat->sched.node = node_of(conductor, said, number, now_ns);
    status = place(conductor, number);
    if (status != YB_OK) {
        leave(conductor, seat);
        return yb_conductor_say(why_out, status, "a rate is no number that can be");
    }
    return YB_OK;
}

enum yb_status
yb_conductor_register(struct yb_conductor *conductor, const struct yb_wire_conductor_register *said,
                      uint64_t now_ns, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    YB_CONDUCTOR_RECORD(conductor, REGISTER, register, said, now_ns);
    return add_instance(conductor, said, now_ns, why_out);
}

enum yb_status
yb_conductor_unregister(struct yb_conductor *conductor, struct yb_wire_text name, uint64_t now_ns)
{
    const struct yb_wire_conductor_name wire = {.name = name};
    struct yb_conductor_seat *seat;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    seat = yb_conductor_find(conductor, name);
    YB_CONDUCTOR_RECORD(conductor, UNREGISTER, name, &wire, now_ns);
    if (seat == NULL) {
        return YB_NOT_FOUND;
    }
    if (seat->kind == YB_CONDUCTOR_STORAGE) {
        link_to_node(conductor, seat->name, YB_SCHED_NONE);
    }
    leave(conductor, seat);
    return YB_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void
take_cached(struct yb_conductor *conductor, const struct yb_conductor_seat *seat,
            const struct yb_wire_conductor_report *said)
{
    struct yb_sched *sched = conductor->models[seat->model].sched;
    const uint32_t number = number_of(conductor, seat);

    for (uint32_t i = 0; i < said->blocks.count; i++) {
        struct yb_wire_conductor_cached cached;
        uint64_t block;
        enum yb_status status;

        yb_wire_conductor_cached_at(&said->blocks, i, &cached);
        block = yb_conductor_block_name(conductor, said->tenant, cached.key);
        status = cached.gone ? yb_sched_drop(sched, block, number, cached.tier)
                             : yb_sched_add(sched, block, number, cached.tier);
        (void)status; /* No room: a hit fewer, and counted by the library; not known: as it is. */
    }
}

static struct yb_sched_report
sched_report(const struct yb_conductor_seat *seat, const struct yb_wire_conductor_report *said,
             uint64_t now_ns)
{
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report),
        .sequence = said->sequence,
        .at_ns = now_ns,
        .prefill_done_ns = yb_deadline_after(now_ns, said->prefill_left_us * YB_NS_PER_US),
        .prefill_tokens = said->prefill_tokens,
        .queued = said->queued,
        .running = said->running,
        .context_tokens = said->context_tokens,
        .kv_tokens_used = said->kv_tokens_used,
        .phase_ns =
            now_ns - (said->phase_age_us * YB_NS_PER_US < now_ns ? said->phase_age_us * YB_NS_PER_US
                                                                 : now_ns),
        .prefilling = said->prefilling != 0,
        .backlog_bytes = {said->in_backlog, said->out_backlog, said->load_backlog,
                          said->ssd_backlog, said->object_backlog},
        .rate = {(double)said->in_rate, (double)said->out_rate, (double)said->load_rate,
                 (double)said->ssd_rate, (double)said->object_rate},
        .saved_ns = (double)said->saved_us * (double)YB_NS_PER_US,
    };

    for (uint32_t i = 0; i < said->seen.count; i++) {
        struct yb_wire_conductor_seen seen;

        yb_wire_conductor_seen_at(&said->seen, i, &seen);
        report.in_flight[seen.conductor] = seen.in_flight;
        report.seen[seen.conductor] = seen.seen % YB_CONDUCTOR_MODELS_MAX == seat->model
                                          ? seen.seen / YB_CONDUCTOR_MODELS_MAX
                                          : 0;
    }
    return report;
}

enum yb_status
yb_conductor_report(struct yb_conductor *conductor, const struct yb_wire_conductor_report *said,
                    uint64_t now_ns, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_seat *seat;
    struct yb_sched_report report;
    enum yb_status status;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    YB_CONDUCTOR_RECORD(conductor, REPORT, report, said, now_ns);
    seat = yb_conductor_find(conductor, said->name);
    if (seat == NULL || seat->kind != YB_CONDUCTOR_INSTANCE) {
        return yb_conductor_say(
            why_out, YB_NOT_FOUND, "there is no instance \"%.*s\": it must register (again)",
            (int)said->name.length, said->name.length > 0 ? said->name.bytes : "");
    }
    if (seat->incarnation != said->incarnation) {
        return yb_conductor_say(why_out, YB_STALE, "another incarnation of \"%s\" is registered",
                                seat->name);
    }
    report = sched_report(seat, said, now_ns);
    status =
        yb_sched_report(conductor->models[seat->model].sched, number_of(conductor, seat), &report);
    if (status != YB_OK) {
        return yb_conductor_say(why_out, status,
                                status == YB_STALE ? "a later report of \"%s\" has come already"
                                                   : "the report of \"%s\" cannot be",
                                seat->name);
    }
    seat->heard_ns = now_ns;
    take_cached(conductor, seat, said);
    return YB_OK;
}

/* ---- blocks of the store --------------------------------------------------------------------- */

void
yb_conductor_blocks(struct yb_conductor *conductor,
                    const struct yb_wire_conductor_change_list *changes, uint64_t now_ns)
{
    const struct yb_wire_conductor_changes wire = {.changes = *changes};

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    YB_CONDUCTOR_RECORD(conductor, BLOCKS, changes, &wire, now_ns);
    for (uint32_t i = 0; i < changes->count; i++) {
        struct yb_wire_conductor_change change;

        yb_wire_conductor_change_at(changes, i, &change);
        for (uint32_t model = 0; model < conductor->model_count; model++) {
            struct yb_sched *sched = conductor->models[model].sched;
            enum yb_status status =
                change.gone ? yb_sched_drop(sched, change.block, change.place, change.tier)
                            : yb_sched_add(sched, change.block, change.place, change.tier);

            (void)status; /* A place that has left meanwhile; a block that was not known. */
        }
    }
}

void
yb_conductor_reset(struct yb_conductor *conductor, uint64_t now_ns)
{
    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    yb_conductor_record(conductor, YB_WIRE_CONDUCTOR_RECORD_RESET, now_ns, 0);
    for (uint32_t i = 0; i < conductor->seats_used; i++) {
        if (conductor->seats[i].kind == YB_CONDUCTOR_STORAGE) {
            link_to_node(conductor, conductor->seats[i].name, YB_SCHED_NONE);
            leave(conductor, &conductor->seats[i]);
        }
    }
    for (uint32_t i = 0; i < conductor->model_count; i++) {
        yb_sched_drop_shared(conductor->models[i].sched);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Whether no scheduler has anything of a place that left. */
static bool
is_swept(const struct yb_conductor *conductor, uint32_t number)
{
    for (uint32_t i = 0; i < conductor->model_count; i++) {
        if (!yb_sched_is_swept(conductor->models[i].sched, number)) {
            return false;
        }
    }
    return true;
}

/* Numbers of places that left are free when no scheduler has anything of theirs. */
static void
sweep(struct yb_conductor *conductor)
{
    bool more = false;

    for (uint32_t i = 0; i < conductor->model_count; i++) {
        more = yb_sched_sweep(conductor->models[i].sched, SWEEP_STEPS) || more;
    }
    conductor->sweeping = more;
    for (uint32_t i = 0; i < conductor->seats_used; i++) {
        if (conductor->seats[i].kind == YB_CONDUCTOR_LEAVING && is_swept(conductor, i)) {
            conductor->seats[i].kind = YB_CONDUCTOR_FREE;
        }
    }
}

void
yb_conductor_tick(struct yb_conductor *conductor, uint64_t now_ns)
{
    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    yb_conductor_record(conductor, YB_WIRE_CONDUCTOR_RECORD_TICK, now_ns, 0);
    if (conductor->sweeping) {
        sweep(conductor);
    }
    for (uint32_t i = 0; i < conductor->seats_used; i++) {
        struct yb_conductor_seat *seat = &conductor->seats[i];

        if (seat->kind == YB_CONDUCTOR_INSTANCE && seat->heard_ns < now_ns &&
            now_ns - seat->heard_ns > conductor->options.expire_ns) {
            conductor->expired++;
            leave(conductor, seat);
        }
    }
    yb_conductor_ledger_tick(conductor, now_ns);
    yb_conductor_heat_tick(conductor, now_ns);
}

/* ---- looking --------------------------------------------------------------------------------- */

void
yb_conductor_info(const struct yb_conductor *conductor, struct yb_conductor_info *info_out)
{
    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    *info_out = (struct yb_conductor_info){
        .routing = conductor->routing,
        .admission = conductor->admission,
        .conductor = conductor->options.conductor,
        .block_tokens = conductor->options.block_tokens,
        .models = conductor->model_count,
        .requests = conductor->open_count,
        .rejected = conductor->rejected,
        .forgotten = conductor->forgotten,
        .expired = conductor->expired,
        .issued = conductor->issued,
        .hot = conductor->hot,
        .windowed = conductor->windowed,
    };
    memcpy(info_out->outcomes, conductor->outcomes, sizeof(info_out->outcomes));
    info_out->carried_open = conductor->carried_open;
    memcpy(info_out->rejected_for, conductor->rejected_for, sizeof(info_out->rejected_for));
    for (uint32_t i = 0; i < conductor->seats_used; i++) {
        info_out->instances += conductor->seats[i].kind == YB_CONDUCTOR_INSTANCE;
        info_out->nodes += conductor->seats[i].kind == YB_CONDUCTOR_STORAGE;
    }
    for (uint32_t i = 0; i < conductor->model_count; i++) {
        const struct yb_sched_info sched = yb_sched_info(conductor->models[i].sched);

        info_out->decisions += sched.decisions;
        info_out->blocks += sched.blocks;
        info_out->refused_blocks += sched.refused_blocks;
        info_out->windows[i].size = conductor->models[i].window.size;
        info_out->windows[i].lead_ns = yb_conductor_window_lead(&conductor->models[i]);
    }
}

bool
yb_conductor_place(const struct yb_conductor *conductor, uint32_t number,
                   struct yb_conductor_place *place_out)
{
    const struct yb_conductor_seat *seat;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    if (number >= conductor->seats_used) {
        return false;
    }
    seat = &conductor->seats[number];
    *place_out = (struct yb_conductor_place){.storage = seat->kind == YB_CONDUCTOR_STORAGE};
    if (!seated(seat)) {
        return true;
    }
    memcpy(place_out->name, seat->name, sizeof(place_out->name));
    memcpy(place_out->address, seat->address, sizeof(place_out->address));
    memcpy(place_out->node, seat->node_name, sizeof(place_out->node));
    place_out->roles = (uint8_t)seat->sched.roles;
    place_out->incarnation = seat->incarnation;
    place_out->heard_ns = seat->heard_ns;
    if (seat->kind == YB_CONDUCTOR_INSTANCE) {
        memcpy(place_out->model, conductor->models[seat->model].name, sizeof(place_out->model));
    }
    return true;
}
