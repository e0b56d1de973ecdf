/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine_internal.h"
#include "net/net.h"

#define CHUNK_TOKENS 2048u
#define RUNNING_MAX  256u
#define WAITING_MAX  1024u
#define TPOT_NS      (100 * YB_NS_PER_MS)
#define LOAD_NS      (30 * YB_NS_PER_S)
#define HELD_NS      (30 * YB_NS_PER_S)
#define FREE_WAIT_NS (5 * YB_NS_PER_S)
#define BLOCK_MAX    (1u << 20) /* Tokens of a block. */
#define SCALE_MAX    1000.0

/* ---- life ----------------------------------------------------------------------------------- */

/* Return what is wrong with the options, NULL: nothing. */
static const char *
complaint(const struct yb_engine_options *options)
{
    if (options->model == NULL || options->model[0] == '\0' ||
        strlen(options->model) >= YB_ENGINE_MODEL_BYTES) {
        return "the model's name has 1 to 63 characters";
    }
    if (!(options->time_scale > 0) || options->time_scale > SCALE_MAX) {
        return "the time scale is above 0 and at most 1000";
    }
    if (options->block_tokens == 0 || options->block_tokens > BLOCK_MAX) {
        return "a block has 1 to 1048576 tokens";
    }
    if (options->parts == 0 || options->parts > YB_ENGINE_PARTS_MAX || options->block_bytes == 0 ||
        options->block_bytes % options->parts != 0) {
        return "a block's bytes are a multiple of its parts, of which there are 1 to 64";
    }
    if (options->pool_bytes < options->block_bytes ||
        options->pool_bytes / options->block_bytes > YB_KV_POOL_SLOTS_MAX) {
        return "the engine's memory holds 1 to 4194304 blocks";
    }
    if (options->mode > YB_SCHED_MODE_TIME_SLICED) {
        return "there is no such mode";
    }
    if (options->on_device && options->block_bytes / options->parts > YB_KV_DEVICE_PART_BYTES) {
        return "a part of a block on a device has at most 1 GiB: take more parts";
    }
    return NULL;
}

static void
set_defaults(struct yb_engine_options *options)
{
    options->chunk_tokens = options->chunk_tokens != 0 ? options->chunk_tokens : CHUNK_TOKENS;
    options->running_max = options->running_max != 0 ? options->running_max : RUNNING_MAX;
    options->waiting_max = options->waiting_max != 0 ? options->waiting_max : WAITING_MAX;
    options->tpot_slo_ns = options->tpot_slo_ns != 0 ? options->tpot_slo_ns : TPOT_NS;
    options->load_timeout_ns = options->load_timeout_ns != 0 ? options->load_timeout_ns : LOAD_NS;
    options->held_ns = options->held_ns != 0 ? options->held_ns : HELD_NS;
}

static void
on_block(void *owner, const uint8_t key[YB_KV_KEY_BYTES], bool there)
{
    const struct yb_engine *engine = owner;

    if (engine->options.listener.block != NULL) {
        engine->options.listener.block(engine->options.listener.owner, key, there);
    }
}

/* The memory of the pool, and where tickets are written: that is the host's. */
static enum yb_status
get_memory(struct yb_engine *engine, uint32_t slots, char why_out[YB_ENGINE_WHY_BYTES])
{
    const struct yb_engine_options *options = &engine->options;
    const struct yb_kv_device_options device = {
        .index = options->device,
        .bytes = slots * options->block_bytes,
        .part_bytes = engine->part_bytes,
    };
    const struct yb_transfer_memory there = {
        .struct_bytes = sizeof(there),
        .location_kind = YB_TRANSFER_LOCATION_DEVICE,
        .location_index = options->device,
    };
    void *memory = NULL;
    void *tickets = NULL;
    enum yb_status status =
        yb_transfer_alloc(options->transfer, slots * sizeof(*engine->tickets), NULL, &tickets);

    engine->tickets = tickets;
    if (status == YB_OK && !options->on_device) {
        status = yb_transfer_alloc(options->transfer, device.bytes, NULL, &memory);
        engine->memory = memory;
    } else if (status == YB_OK) {
        status = yb_kv_device_create(&device, &engine->device, why_out);
        engine->memory = status == YB_OK ? yb_kv_device_memory(engine->device) : NULL;
        if (status == YB_OK) {
            status =
                yb_transfer_register(options->transfer, engine->memory, device.bytes, &there, NULL);
        }
    }
    if (status == YB_OK && options->client != NULL) {
        status = yb_client_register(options->client, engine->memory, device.bytes);
    }
    return status;
}

/* Of what a peer still reaches after a while, the host's stays registered until the transfer engine
 * goes, and a device's stays allocated until the process does. */
static void
give_memory(struct yb_engine *engine)
{
    struct yb_transfer *transfer = engine->options.transfer;
    void *memory = engine->memory;
    void *tickets = engine->tickets;

    if (memory != NULL && engine->options.client != NULL) {
        /* NOT_FOUND: the start failed before it was registered. */
        (void)!yb_client_unregister(engine->options.client, memory, FREE_WAIT_NS);
    }
    if (engine->device != NULL) {
        const enum yb_status status =
            memory != NULL ? yb_transfer_unregister(transfer, memory, FREE_WAIT_NS) : YB_OK;

        yb_kv_device_destroy(&engine->device, status == YB_BUSY);
    } else if (memory != NULL) {
        (void)!yb_transfer_free(transfer, &memory, FREE_WAIT_NS);
    }
    if (tickets != NULL) {
        (void)!yb_transfer_free(transfer, &tickets, FREE_WAIT_NS);
    }
}

static enum yb_status
start(struct yb_engine *engine, char why_out[YB_ENGINE_WHY_BYTES])
{
    const struct yb_engine_options *options = &engine->options;
    const struct yb_kv_pool_options pool = {
        .slots = (uint32_t)(options->pool_bytes / options->block_bytes),
        .changed = on_block,
        .owner = engine,
    };
    enum yb_status status = yb_kv_pool_create(&pool, &engine->pool);

    if (status == YB_OK) {
        status = get_memory(engine, pool.slots, why_out);
    }
    if (status == YB_OK) {
        status = yb_engine_measure_begin(engine);
    }
    if (status == YB_OK) {
        status = yb_engine_jobs_start(&engine->loaders, engine, YB_ENGINE_LOADERS);
    }
    if (status == YB_OK) {
        status = yb_engine_jobs_start(&engine->storers, engine, YB_ENGINE_STORERS);
    }
    if (status == YB_OK) {
        engine->thread_runs = pthread_create(&engine->thread, NULL, yb_engine_compute, engine) == 0;
        status = engine->thread_runs ? YB_OK : YB_NO_MEMORY;
    }
    return status;
}

enum yb_status
yb_engine_create(const struct yb_engine_options *options, struct yb_engine **engine_out,
                 char why_out[YB_ENGINE_WHY_BYTES])
{
    const char *wrong = complaint(options);
    struct yb_engine *engine;
    enum yb_status status;

    why_out[0] = '\0';
    if (wrong != NULL) {
        (void)snprintf(why_out, YB_ENGINE_WHY_BYTES, "%s", wrong);
        return YB_INVALID;
    }
    engine = calloc(1, sizeof(*engine));
    if (engine == NULL) {
        return YB_NO_MEMORY;
    }
    engine->magic = YB_ENGINE_MAGIC;
    engine->options = *options;
    set_defaults(&engine->options);
    (void)snprintf(engine->model, sizeof(engine->model), "%s", options->model);
    engine->options.model = engine->model;
    engine->puts_at[0] = options->node;
    engine->clock = yb_clock_system();
    engine->part_bytes = options->block_bytes / options->parts;
    engine->last = &engine->first;
    yb_lock_init(&engine->lock, YB_LOCK_STANDIN);
    yb_lock_cond_init(&engine->changed);
    yb_lock_cond_init(&engine->stopped);
    status = start(engine, why_out);
    if (status != YB_OK) {
        if (why_out[0] == '\0') {
            (void)snprintf(why_out, YB_ENGINE_WHY_BYTES,
                           "the engine does not start: %s; its memory is to hold %" PRIu64
                           " blocks of %" PRIu64 " bytes: ask for fewer, or smaller ones",
                           yb_status_text(status), options->pool_bytes / options->block_bytes,
                           options->block_bytes);
        }
        yb_engine_destroy(&engine);
        return status;
    }
    *engine_out = engine;
    return YB_OK;
}

void
yb_engine_stop(struct yb_engine *engine)
{
    YB_ASSERT_OBJ(engine, YB_ENGINE_MAGIC);
    yb_lock_acquire(&engine->lock);
    engine->stops = true;
    (void)pthread_cond_broadcast(&engine->changed);
    (void)pthread_cond_broadcast(&engine->stopped);
    yb_lock_release(&engine->lock);
    if (engine->thread_runs) {
        YB_ASSERT(pthread_join(engine->thread, NULL) == 0);
        engine->thread_runs = false;
    }
    /* What the last step has computed is still put. */
    yb_engine_jobs_stop(&engine->loaders);
    yb_engine_jobs_stop(&engine->storers);
}

void
yb_engine_destroy(struct yb_engine **engine_ref)
{
    struct yb_engine *engine = *engine_ref;

    YB_ASSERT_OBJ(engine, YB_ENGINE_MAGIC);
    *engine_ref = NULL;
    if (engine->loaders.engine != NULL) {
        yb_engine_stop(engine);
    }
    YB_ASSERT(engine->first == NULL);
    yb_engine_measure_end(engine);
    yb_engine_holders_close(engine);
    give_memory(engine);
    if (engine->pool != NULL) {
        yb_kv_pool_destroy(&engine->pool);
    }
    (void)pthread_cond_destroy(&engine->changed);
    (void)pthread_cond_destroy(&engine->stopped);
    yb_lock_fini(&engine->lock);
    engine->magic = 0;
    free(engine);
}

/* ---- asking --------------------------------------------------------------------------------- */

static void
free_request(struct yb_engine_request *request)
{
    request->magic = 0;
    (void)pthread_cond_destroy(&request->told);
    free(request->tokens);
    free(request->keys);
    free(request->names);
    free(request->blocks);
    free(request->addresses);
    free(request);
}

void
yb_engine_forget_locked(struct yb_engine_request *request)
{
    yb_lock_assert_held(&request->engine->lock);
    if (--request->references == 0) {
        free_request(request);
    }
}

/* Make the record of a request, with room for all that it will need. NULL: no memory. */
static struct yb_engine_request *
make_request(struct yb_engine *engine, const struct yb_engine_ask *ask, uint32_t block_max)
{
    struct yb_engine_request *request = calloc(1, sizeof(*request));
    uint32_t total = ask->token_count + ask->answer_tokens;

    if (request == NULL) {
        return NULL;
    }
    request->magic = YB_ENGINE_REQUEST_MAGIC;
    request->engine = engine;
    yb_lock_cond_init(&request->told);
    request->tokens = malloc(sizeof(*request->tokens) * total);
    request->keys = malloc(sizeof(*request->keys) * block_max);
    request->names = malloc(sizeof(*request->names) * block_max);
    request->blocks = calloc(block_max, sizeof(struct yb_kv_pool_block *));
    request->addresses = malloc(sizeof(*request->addresses) * block_max);
    if (request->tokens == NULL || request->keys == NULL || request->names == NULL ||
        request->blocks == NULL || request->addresses == NULL) {
        free_request(request);
        return NULL;
    }
    memcpy(request->tokens, ask->tokens, sizeof(*request->tokens) * ask->token_count);
    if (ask->from != NULL) {
        request->from = *ask->from;
        memcpy(request->addresses, ask->from->addresses,
               sizeof(*request->addresses) * ask->from->block_count);
        request->from.addresses = request->addresses;
    }
    request->prompt_tokens = ask->token_count;
    request->answer_max = ask->answer_tokens;
    request->reuse_tokens = ask->reuse_tokens;
    request->keep = ask->keep;
    request->work_class = ask->work_class;
    request->trace_id =
        yb_id_is_none(ask->trace_id) ? yb_trace_new_id(yb_net_random_system, NULL) : ask->trace_id;
    request->parent_span = ask->parent_span;
    request->span = yb_engine_new_span();
    request->number = ask->number;
    request->outcome.trace = (struct yb_trace_context){request->trace_id, request->span, true};
    request->block_max = block_max;
    request->references = 2; /* The asker's and the engine's. */
    request->outcome.prompt_tokens = ask->token_count;
    request->outcome.arrival_ns = yb_engine_now(engine);
    request->key_count =
        yb_key_chain(request->tokens, ask->token_count, engine->options.block_tokens, engine->model,
                     request->keys, block_max);
    request->name_count = request->key_count;
    for (uint32_t i = 0; i < request->name_count; i++) {
        memcpy(&request->names[i], request->keys[i], sizeof(*request->names));
    }
    yb_kv_tail_key(request->tokens, ask->token_count, engine->model, request->answer_key);
    return request;
}

/* Put it into the queue, unless that is full or over. */
static enum yb_status
enqueue(struct yb_engine *engine, struct yb_engine_request *request)
{
    enum yb_status status = YB_OK;

    yb_lock_acquire(&engine->lock);
    if (engine->stops) {
        status = YB_CLOSED;
    } else if (engine->waiting >= engine->options.waiting_max) {
        status = YB_AGAIN;
    }
    if (status == YB_OK) {
        *engine->last = request;
        engine->last = &request->next;
        engine->waiting++;
        engine->sums.asked++;
        (void)pthread_cond_broadcast(&engine->changed);
    } else {
        engine->sums.refused++;
    }
    yb_lock_release(&engine->lock);
    return status;
}

enum yb_status
yb_engine_submit(struct yb_engine *engine, const struct yb_engine_ask *ask,
                 struct yb_engine_request **request_out)
{
    struct yb_engine_request *request;
    uint32_t block_max;
    enum yb_status status;

    YB_ASSERT_OBJ(engine, YB_ENGINE_MAGIC);
    if (ask->token_count == 0 || ask->answer_tokens == 0 ||
        ask->token_count > YB_ENGINE_TOKENS_MAX ||
        ask->answer_tokens > YB_ENGINE_TOKENS_MAX - ask->token_count ||
        ask->work_class >= YB_CLASS_COUNT) {
        return YB_INVALID;
    }
    block_max = yb_engine_blocks_of(engine, ask->token_count + ask->answer_tokens);
    if (ask->from != NULL &&
        ask->from->block_count != yb_engine_blocks_of(engine, ask->token_count)) {
        return YB_INVALID;
    }
    if (block_max > yb_kv_pool_slots(engine->pool)) {
        return YB_TOO_LARGE;
    }
    request = make_request(engine, ask, block_max);
    if (request == NULL) {
        return YB_NO_MEMORY;
    }
    status = enqueue(engine, request);
    if (status != YB_OK) {
        free_request(request);
        return status;
    }
    *request_out = request;
    return YB_OK;
}

enum yb_status
yb_engine_read(struct yb_engine_request *request, uint32_t from, uint64_t timeout_ns,
               uint32_t *tokens_out, uint32_t room, uint32_t *count_out)
{
    struct yb_engine *engine = request->engine;
    uint64_t deadline_ns = yb_deadline_after(yb_engine_now(engine), timeout_ns);
    enum yb_status status = YB_TIMED_OUT;

    YB_ASSERT_OBJ(request, YB_ENGINE_REQUEST_MAGIC);
    yb_lock_acquire(&engine->lock);
    for (;;) {
        uint64_t now = yb_engine_now(engine);

        if (request->answered > from) {
            uint32_t count = request->answered - from;

            *count_out = count < room ? count : room;
            memcpy(tokens_out, request->tokens + request->prompt_tokens + from,
                   sizeof(*tokens_out) * *count_out);
            status = YB_OK;
            break;
        }
        if (request->state >= YB_ENGINE_HELD) {
            status = YB_NOT_FOUND;
            break;
        }
        if (now >= deadline_ns) {
            break;
        }
        (void)yb_lock_wait(&engine->lock, &request->told, deadline_ns - now);
    }
    yb_lock_release(&engine->lock);
    return status;
}

bool
yb_engine_outcome(struct yb_engine_request *request, struct yb_engine_outcome *outcome_out)
{
    struct yb_engine *engine = request->engine;
    bool ended;

    YB_ASSERT_OBJ(request, YB_ENGINE_REQUEST_MAGIC);
    yb_lock_acquire(&engine->lock);
    ended = request->state >= YB_ENGINE_HELD;
    *outcome_out = request->outcome;
    yb_lock_release(&engine->lock);
    return ended;
}

enum yb_status
yb_engine_handover(struct yb_engine_request *request, struct yb_engine_handover *handover_out)
{
    struct yb_engine *engine = request->engine;
    enum yb_status status;

    YB_ASSERT_OBJ(request, YB_ENGINE_REQUEST_MAGIC);
    yb_lock_acquire(&engine->lock);
    status = request->state == YB_ENGINE_HELD ? YB_OK : YB_NOT_FOUND;
    if (status == YB_OK) {
        *handover_out = (struct yb_engine_handover){
            .ticket = *request->ticket,
            .ticket_at = (uintptr_t)request->ticket,
            .first_token = request->tokens[request->prompt_tokens],
            .block_count = yb_engine_blocks_of(engine, request->prompt_tokens),
            .addresses = request->addresses,
        };
    }
    yb_lock_release(&engine->lock);
    return status != YB_OK ? status
                           : yb_transfer_address(engine->options.transfer, handover_out->address,
                                                 sizeof(handover_out->address));
}

void
yb_engine_doom_locked(struct yb_engine_request *request, enum yb_status fate)
{
    yb_lock_assert_held(&request->engine->lock);
    request->fate = request->fate == YB_OK ? fate : request->fate;
}

void
yb_engine_cancel(struct yb_engine_request *request)
{
    struct yb_engine *engine = request->engine;

    YB_ASSERT_OBJ(request, YB_ENGINE_REQUEST_MAGIC);
    yb_lock_acquire(&engine->lock);
    yb_engine_doom_locked(request, YB_CANCELLED);
    (void)pthread_cond_broadcast(&engine->changed);
    yb_lock_release(&engine->lock);
}

void
yb_engine_release(struct yb_engine_request **request_ref)
{
    struct yb_engine_request *request = *request_ref;
    struct yb_engine *engine = request->engine;

    YB_ASSERT_OBJ(request, YB_ENGINE_REQUEST_MAGIC);
    *request_ref = NULL;
    yb_lock_acquire(&engine->lock);
    if (request->state < YB_ENGINE_HELD) {
        yb_engine_doom_locked(request, YB_CANCELLED);
    }
    yb_engine_forget_locked(request);
    yb_lock_release(&engine->lock);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void
count_request(const struct yb_engine *engine, const struct yb_engine_request *request,
              struct yb_engine_info *info)
{
    const struct yb_sched_cost *cost = &engine->options.cost;

    switch (request->state) {
    case YB_ENGINE_WAITING: info->waiting++; break;
    case YB_ENGINE_PROMPT: info->prompts++; break;
    case YB_ENGINE_RUNNING:
        info->running++;
        info->context_tokens += request->prompt_tokens + request->answered;
        if (engine->options.mode == YB_SCHED_MODE_TIME_SLICED) {
            info->saved_ns += yb_engine_due_ns(request) - (double)yb_engine_now(engine);
        }
        break;
    case YB_ENGINE_HELD: info->held++; break;
    case YB_ENGINE_ENDED: break;
    }
    if (request->state <= YB_ENGINE_PROMPT && request->from.block_count == 0) {
        info->prefill_tokens += request->prompt_tokens - request->done_tokens;
        info->prefill_ns +=
            (uint64_t)(yb_sched_prefill_ns(cost, request->prompt_tokens, request->done_tokens) *
                       engine->options.time_scale);
    }
}

void
yb_engine_info(struct yb_engine *engine, struct yb_engine_info *info_out)
{
    struct yb_kv_pool_info pool;

    YB_ASSERT_OBJ(engine, YB_ENGINE_MAGIC);
    yb_lock_acquire(&engine->lock);
    *info_out = engine->sums;
    for (const struct yb_engine_request *request = engine->first; request != NULL;
         request = request->next) {
        count_request(engine, request, info_out);
    }
    if (info_out->running > 0) {
        info_out->saved_ns /= info_out->running;
    }
    pool = yb_kv_pool_info(engine->pool);
    info_out->stores = engine->stores;
    for (uint32_t i = 0; i <= YB_CLIENT_TIER_OBJECT; i++) {
        const struct yb_engine_source *source = &engine->sources[i];

        info_out->tier_busy_ns[i] +=
            source->values > 0 ? yb_engine_now(engine) - source->since_ns : 0;
    }
    yb_lock_release(&engine->lock);
    info_out->slots = pool.slots;
    info_out->slots_used = pool.used;
    info_out->slots_published = pool.published;
    info_out->evicted = pool.evicted;
}

void
yb_engine_visit(struct yb_engine *engine,
                void (*visit)(void *context, const uint8_t key[YB_KV_KEY_BYTES]), void *context)
{
    YB_ASSERT_OBJ(engine, YB_ENGINE_MAGIC);
    yb_lock_acquire(&engine->lock);
    yb_kv_pool_visit(engine->pool, visit, context);
    yb_lock_release(&engine->lock);
}

uint32_t
yb_engine_block_tokens(const struct yb_engine *engine)
{
    return engine->options.block_tokens;
}

/* ---- what the threads share ----------------------------------------------------------------- */

uint32_t
yb_engine_part_key(const struct yb_engine *engine, const uint8_t key[YB_KV_KEY_BYTES],
                   uint32_t part, uint8_t out[YB_ENGINE_PART_KEY_MAX])
{
    memcpy(out, key, YB_KV_KEY_BYTES);
    out[YB_KV_KEY_BYTES] = (uint8_t)part;
    return part + 1 == engine->options.parts ? YB_KV_KEY_BYTES : YB_ENGINE_PART_KEY_MAX;
}

struct yb_client_call
yb_engine_call(const struct yb_engine_request *request, uint64_t span, uint64_t timeout_ns)
{
    return (struct yb_client_call){
        .struct_bytes = sizeof(struct yb_client_call),
        .timeout_ns = timeout_ns,
        .work_class = request->work_class,
        .trace_id = request->trace_id,
        .parent_span = span,
    };
}

enum yb_status
yb_engine_fill(const struct yb_engine *engine, const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
               const struct yb_kv_pool_block *block)
{
    uint8_t *bytes = yb_engine_bytes(engine, block, part);

    if (engine->device != NULL) {
        return yb_kv_device_fill(engine->device, key, part, bytes);
    }
    yb_kv_fill(key, part, bytes, engine->part_bytes);
    return YB_OK;
}

enum yb_status
yb_engine_verify(struct yb_engine *engine, const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
                 const struct yb_kv_pool_block *block, struct yb_engine_outcome *outcome)
{
    size_t wrong = 0;
    const uint8_t *bytes = yb_engine_bytes(engine, block, part);
    enum yb_status status;

    if (engine->device != NULL) {
        status = yb_kv_device_check(engine->device, key, part, bytes, &wrong);
    } else {
        status = yb_kv_check(key, part, bytes, engine->part_bytes, &wrong) ? YB_OK : YB_CORRUPT;
    }
    yb_lock_acquire(&engine->lock);
    if (status == YB_OK || status == YB_CORRUPT) {
        engine->sums.verified_bytes += engine->part_bytes;
    }
    engine->sums.wrong_bytes += wrong;
    outcome->wrong_bytes += wrong;
    yb_lock_release(&engine->lock);
    return status;
}
