/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a prompt that need not be computed: what the engine has, then what the store has.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine_internal.h"

#define LOOK_NS (50 * YB_NS_PER_MS)
#define TAKEN   UINT8_MAX

/* A load, while a loader is at it. Item p * blocks + b is part p of block b. */
struct load {
    struct yb_engine *engine;
    struct yb_engine_request *request;
    uint32_t first; /* Of the request's blocks. */
    uint32_t blocks;
    uint32_t parts;
    uint64_t deadline_ns;
    struct yb_client_item *items;
    struct iovec *iov;
    uint8_t (*keys)[YB_ENGINE_PART_KEY_MAX];
    uint32_t *left; /* By part: items that are not there yet. */
    uint32_t *good; /* By block: parts that are there. */
    uint8_t *tiers; /* By item: where it is awaited from; TAKEN: no more. */
};

/* ---- looking --------------------------------------------------------------------------------- */

static bool
make_load(struct load *load, struct yb_engine_request *request, uint32_t blocks)
{
    struct yb_engine *engine = request->engine;
    size_t items = (size_t)blocks * engine->options.parts;

    *load = (struct load){
        .engine = engine,
        .request = request,
        .first = request->load_first,
        .blocks = blocks,
        .parts = engine->options.parts,
        .deadline_ns = yb_engine_now(engine) + engine->options.load_timeout_ns,
        .items = calloc(items, sizeof(struct yb_client_item)),
        .iov = calloc(items, sizeof(struct iovec)),
        .keys = calloc(items, YB_ENGINE_PART_KEY_MAX),
        .left = calloc(engine->options.parts, sizeof(uint32_t)),
        .good = calloc(blocks, sizeof(uint32_t)),
        .tiers = calloc(items, sizeof(uint8_t)),
    };
    return load->items != NULL && load->iov != NULL && load->keys != NULL && load->left != NULL &&
           load->good != NULL && load->tiers != NULL;
}

static void
free_load(struct load *load)
{
    free(load->items);
    free(load->iov);
    free(load->keys);
    free(load->left);
    free(load->good);
    free(load->tiers);
}

static uint64_t
time_left(const struct load *load)
{
    uint64_t now = yb_engine_now(load->engine);

    return load->deadline_ns > now ? load->deadline_ns - now : 1;
}

/* How many blocks from the first on are in the store; they are held there for the load. */
static uint32_t
look(struct load *load)
{
    struct yb_client_call call =
        yb_engine_call(load->request, load->request->load_span, time_left(load));
    uint32_t run = 0;

    call.hold_ms = (uint32_t)(load->engine->options.load_timeout_ns / YB_NS_PER_MS);
    for (uint32_t i = 0; i < load->blocks; i++) {
        load->items[i].key = load->request->keys[load->first + i];
        load->items[i].key_bytes = YB_KV_KEY_BYTES;
    }
    if (yb_client_exist(load->engine->options.client, load->items, load->blocks, &call) != YB_OK) {
        return 0;
    }
    while (run < load->blocks && load->items[run].status == YB_OK) {
        run++;
    }
    return run;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Take memory for what was found. Lock held. */
static void
place(struct load *load)
{
    struct yb_engine *engine = load->engine;
    struct yb_engine_request *request = load->request;

    YB_ASSERT(request->block_count == load->first);
    yb_engine_take_locked(request, load->first + load->blocks);
    for (uint32_t p = 0; p < load->parts; p++) {
        load->left[p] = load->blocks;
        for (uint32_t b = 0; b < load->blocks; b++) {
            uint32_t i = p * load->blocks + b;

            load->iov[i] = (struct iovec){
                .iov_base = yb_engine_bytes(engine, request->blocks[load->first + b], p),
                .iov_len = engine->part_bytes,
            };
            load->items[i] = (struct yb_client_item){
                .key = load->keys[i],
                .key_bytes =
                    yb_engine_part_key(engine, request->keys[load->first + b], p, load->keys[i]),
                .iov = &load->iov[i],
                .iov_count = 1,
            };
        }
    }
    request->load = YB_ENGINE_LOAD_COMING;
    request->load_count = load->blocks;
    request->done_tokens = (load->first + load->blocks) * engine->options.block_tokens;
    (void)pthread_cond_broadcast(&engine->changed);
}

static uint32_t
tier_of(const struct yb_client_item *item)
{
    return item->tier <= YB_CLIENT_TIER_OBJECT ? item->tier : YB_CLIENT_TIER_NONE;
}

/* From `begun_ns` on all values are awaited from where the store says they are, and for as long as
 * it says. */
static void
await_items(struct load *load, uint64_t begun_ns)
{
    struct yb_engine *engine = load->engine;
    uint64_t longest_ns = 0;

    yb_lock_acquire(&engine->lock);
    for (uint32_t i = 0; i < load->blocks * load->parts; i++) {
        struct yb_engine_source *source = &engine->sources[tier_of(&load->items[i])];
        uint64_t ready_ns = load->items[i].ready_ns;

        load->tiers[i] = (uint8_t)tier_of(&load->items[i]);
        if (source->values++ == 0) {
            source->since_ns = begun_ns > source->since_ns ? begun_ns : source->since_ns;
        }
        longest_ns = ready_ns > longest_ns ? ready_ns : longest_ns;
    }
    load->request->outcome.predicted_ns = longest_ns;
    load->request->load_due_ns = longest_ns == 0 ? 0 : begun_ns + longest_ns;
    yb_lock_release(&engine->lock);
}

/* One of them no more. Lock held. */
static void
take_from_source(struct load *load, uint32_t index)
{
    struct yb_engine *engine = load->engine;
    struct yb_engine_source *source;
    uint64_t now = yb_engine_now(engine);

    if (load->tiers[index] == TAKEN) {
        return;
    }
    source = &engine->sources[load->tiers[index]];
    YB_ASSERT(source->values > 0);
    if (--source->values == 0) {
        engine->sums.tier_busy_ns[load->tiers[index]] += now - source->since_ns;
        source->since_ns = now;
    }
    load->tiers[index] = TAKEN;
}

/* Hold a value back until the link to the store would have brought it. Lock held. */
static void
pass_link(struct load *load)
{
    struct yb_engine *engine = load->engine;
    uint64_t now = yb_engine_now(engine);
    uint64_t until_ns;

    if (!(engine->options.load_rate > 0)) {
        return;
    }
    until_ns = engine->load_free_ns > now ? engine->load_free_ns : now;
    until_ns += (uint64_t)((double)engine->part_bytes / engine->options.load_rate * 1e9);
    engine->load_free_ns = until_ns;
    while (now < until_ns && !engine->stops && load->request->fate == YB_OK) {
        (void)yb_lock_wait(&engine->lock, &engine->changed, until_ns - now);
        now = yb_engine_now(engine);
    }
}

/* One value has come, or will not. */
static void
take_item(struct load *load, uint32_t index)
{
    struct yb_engine *engine = load->engine;
    struct yb_engine_request *request = load->request;
    const struct yb_client_item *item = &load->items[index];
    uint32_t p = index / load->blocks;
    uint32_t b = index % load->blocks;
    enum yb_status status = item->status;

    if (status == YB_OK && item->bytes != engine->part_bytes) {
        status = YB_CORRUPT;
    }
    if (status == YB_OK) {
        status = yb_engine_verify(engine, request->keys[load->first + b], p,
                                  request->blocks[load->first + b], &request->outcome);
    }
    yb_lock_acquire(&engine->lock);
    if (status == YB_OK) {
        pass_link(load);
    }
    take_from_source(load, index);
    if (status == YB_OK) {
        request->outcome.tier_bytes[tier_of(item)] += engine->part_bytes;
        engine->sums.tier_came_bytes[tier_of(item)] += engine->part_bytes;
        load->good[b]++;
        load->left[p]--;
        while (request->parts_ready < load->parts && load->left[request->parts_ready] == 0) {
            request->ready_ns =
                request->parts_ready == 0 ? yb_engine_now(engine) : request->ready_ns;
            request->parts_ready++;
        }
        (void)pthread_cond_broadcast(&engine->changed);
    } else {
        yb_engine_not_loaded_locked(engine, status);
        request->outcome.load_failures++;
    }
    yb_lock_release(&engine->lock);
}

static bool
given_up(struct load *load)
{
    struct yb_engine *engine = load->engine;
    bool over;

    yb_lock_acquire(&engine->lock);
    over = load->request->fate != YB_OK || engine->stops;
    yb_lock_release(&engine->lock);
    return over;
}

/* Fetch all of it, and look at each value as it comes. */
static void
fetch(struct load *load)
{
    struct yb_client *client = load->engine->options.client;
    struct yb_client_call call =
        yb_engine_call(load->request, load->request->load_span, time_left(load));
    const struct yb_client_fetch_options options = {.struct_bytes = sizeof(options)};
    yb_client_handle handle;
    enum yb_status status;
    uint32_t index;
    uint64_t begun_ns = yb_engine_now(load->engine);
    bool cancelled = false;

    status =
        yb_client_fetch(client, load->items, load->blocks * load->parts, &call, &options, &handle);
    if (status != YB_OK) {
        return;
    }
    await_items(load, begun_ns);
    do {
        status = yb_client_fetch_next(client, handle, LOOK_NS, &index);
        if (status == YB_OK) {
            take_item(load, index);
        }
        /* What is missing makes the rest useless only if it comes before it; the run tells. */
        if (!cancelled && given_up(load)) {
            yb_client_cancel(client, handle);
            cancelled = true;
        }
    } while (status == YB_OK || status == YB_TIMED_OUT);
    /* By its deadline it has ended, and then nothing touches the memory any more. */
    while (yb_client_wait(client, handle, LOOK_NS) == YB_TIMED_OUT) {
    }
    (void)!yb_client_finish(client, handle);
    yb_lock_acquire(&load->engine->lock);
    for (uint32_t i = 0; i < load->blocks * load->parts; i++) {
        take_from_source(load, i); /* Those that nobody handed out any more. */
    }
    yb_lock_release(&load->engine->lock);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What came whole can be found by others, too. Lock held. */
static void
settle(struct load *load, uint32_t looked)
{
    struct yb_engine *engine = load->engine;
    struct yb_engine_request *request = load->request;
    uint32_t run = 0;

    while (run < load->blocks && looked > 0 && load->good[run] == load->parts) {
        run++;
    }
    yb_engine_publish_locked(request, load->first, load->first + run);
    request->outcome.loaded_tokens = run * engine->options.block_tokens;
    request->outcome.arrived_ns = yb_engine_now(engine);
    request->outcome.load_ns = request->outcome.arrived_ns - request->load_begun_ns;
    request->load = run < looked ? YB_ENGINE_LOAD_SHORT : YB_ENGINE_LOAD_DONE;
    request->load_count = run;
    if (request->parts_ready == 0) {
        request->ready_ns = request->outcome.arrived_ns;
    }
    request->busy = false;
    yb_engine_trace_load(request, YB_SPAN_KIND_LOAD, run < looked ? YB_NOT_FOUND : YB_OK);
    (void)pthread_cond_broadcast(&engine->changed);
}

static void
run_load(struct yb_engine_job *job)
{
    struct yb_engine_request *request =
        (struct yb_engine_request *)((uint8_t *)job - offsetof(struct yb_engine_request, job));
    struct yb_engine *engine = request->engine;
    struct load load;
    uint32_t found = 0;

    request->load_run_ns = yb_engine_now(engine);
    if (make_load(&load, request, request->load_count) && !given_up(&load)) {
        found = look(&load);
    }
    if (found > 0) {
        load.blocks = found;
        memset(load.items, 0, sizeof(struct yb_client_item) * found);
        yb_lock_acquire(&engine->lock);
        place(&load);
        yb_lock_release(&engine->lock);
        fetch(&load);
    }
    yb_lock_acquire(&engine->lock);
    settle(&load, found);
    yb_lock_release(&engine->lock);
    free_load(&load);
}

void
yb_engine_load_locked(struct yb_engine_request *request)
{
    struct yb_engine *engine = request->engine;
    uint32_t block_tokens = engine->options.block_tokens;
    /* The last token is computed in any case: it brings the first one of the answer. */
    uint32_t most = (request->prompt_tokens - 1) / block_tokens;
    uint32_t reuse = request->reuse_tokens / block_tokens;

    yb_lock_assert_held(&engine->lock);
    yb_engine_find_locked(request, most);
    request->done_tokens = request->block_count * block_tokens;
    request->outcome.device_tokens = request->done_tokens;
    reuse = reuse < most ? reuse : most;
    if (engine->options.client == NULL || reuse <= request->block_count) {
        return;
    }
    request->load = YB_ENGINE_LOAD_LOOKING;
    request->load_first = request->block_count;
    request->load_count = reuse - request->block_count;
    request->load_begun_ns = yb_engine_now(engine);
    request->load_span = yb_engine_new_span();
    request->busy = true;
    request->job.run = run_load;
    yb_engine_jobs_add_locked(&engine->loaders, &request->job);
}
