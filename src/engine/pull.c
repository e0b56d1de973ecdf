/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt that another engine has computed: its blocks are read from that engine's memory, all
 * their bytes are compared, and the answer goes on behind the first token.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine_internal.h"

#define ALIVE_NS (2 * YB_NS_PER_S) /* Within that the holder answers, or it is taken for dead. */

/* A pull, while a loader is at it. */
struct pull {
    struct yb_engine *engine;
    struct yb_engine_request *request;
    uint32_t first; /* Blocks before it are here already. */
    uint32_t blocks;
    struct yb_transfer_item *items;
    uint64_t until_ns; /* No connection is tried after that. */
};

/* Take memory for the blocks that are not here. Lock held. */
static void
place(struct pull *pull)
{
    struct yb_engine *engine = pull->engine;
    struct yb_engine_request *request = pull->request;

    yb_engine_take_locked(request, pull->first + pull->blocks);
    for (uint32_t i = 0; i < pull->blocks; i++) {
        pull->items[i] = (struct yb_transfer_item){
            .op = YB_TRANSFER_READ,
            .local = yb_engine_bytes(engine, request->blocks[pull->first + i], 0),
            .length = engine->options.block_bytes,
            .remote = YB_TRANSFER_BY_ADDRESS,
            .remote_offset = request->from.addresses[pull->first + i],
        };
    }
}

/* Read some memory, and wait until that has ended; the holder is then sent `ticket`, unless it is
 * NULL. */
static enum yb_status
read_items(const struct pull *pull, yb_transfer_peer peer, const struct yb_transfer_item *items,
           uint32_t count, const uint64_t *ticket)
{
    const struct yb_engine_request *request = pull->request;
    struct yb_transfer *transfer = pull->engine->options.transfer;
    const struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = pull->engine->options.load_timeout_ns,
        .work_class = request->work_class,
        .trace_id = request->trace_id,
        .parent_span = request->load_span,
        .notify = ticket,
        .notify_bytes = ticket != NULL ? sizeof(*ticket) : 0,
    };
    struct yb_transfer_batch_status ended = {.status = YB_IN_PROGRESS};
    yb_transfer_batch batch;
    enum yb_status status = yb_transfer_submit(transfer, peer, items, count, &options, &batch);

    if (status == YB_OK) {
        while (yb_transfer_wait(transfer, batch, options.timeout_ns) == YB_TIMED_OUT) {
        }
        status = yb_transfer_poll(transfer, batch, &ended, NULL, 0);
        status = status == YB_OK ? ended.status : status;
        (void)!yb_transfer_release(transfer, batch);
    }
    return status;
}

/* N4: the ticket is still there after all blocks were read; then the holder may let go. */
static enum yb_status
read_ticket(const struct pull *pull, yb_transfer_peer peer)
{
    const struct yb_engine_handover *from = &pull->request->from;
    uint64_t found = 0;
    const struct yb_transfer_item item = {
        .op = YB_TRANSFER_READ,
        .local = &found,
        .length = sizeof(found),
        .remote = YB_TRANSFER_BY_ADDRESS,
        .remote_offset = from->ticket_at,
    };
    enum yb_status status = read_items(pull, peer, &item, 1, &from->ticket);

    return status == YB_OK && found != from->ticket ? YB_STALE : status;
}

/* Have a connection to the holder that is known to work. A batch waits for a peer that may come
 * back; this one would come back without the blocks: so it is asked first. One that was kept may
 * have ended since, then a new one is made. */
static enum yb_status
reach(const struct pull *pull, yb_transfer_peer *peer_out)
{
    struct yb_transfer *transfer = pull->engine->options.transfer;
    const char *address = pull->request->from.address;
    struct yb_transfer_probe probe;
    enum yb_status status;
    bool kept;

    do {
        kept = yb_engine_holder_take(pull->engine, address, peer_out);
        status = kept ? YB_OK : yb_transfer_open(transfer, address, peer_out);
        if (status != YB_OK) {
            return status;
        }
        status = yb_transfer_ask(transfer, *peer_out, ALIVE_NS, &probe);
        if (status != YB_OK) {
            (void)!yb_transfer_close(transfer, *peer_out);
        }
    } while (status != YB_OK && kept && yb_engine_now(pull->engine) < pull->until_ns);
    return status;
}

/* Read them, and tell the holder. STALE: it did not hold them any more. */
static enum yb_status
read_blocks(const struct pull *pull)
{
    yb_transfer_peer peer;
    enum yb_status status = reach(pull, &peer);

    if (status != YB_OK) {
        return status;
    }
    if (pull->blocks > 0) {
        status = read_items(pull, peer, pull->items, pull->blocks, NULL);
    }
    if (status == YB_OK) {
        status = read_ticket(pull, peer);
    }
    if (status == YB_OK) {
        yb_engine_holder_keep(pull->engine, pull->request->from.address, peer);
    } else {
        (void)!yb_transfer_close(pull->engine->options.transfer, peer);
    }
    return status;
}

/* N2 */
static enum yb_status
verify(struct pull *pull)
{
    struct yb_engine *engine = pull->engine;
    struct yb_engine_request *request = pull->request;
    enum yb_status status =
        request->from.first_token == yb_kv_token(request->answer_key, 0, YB_ENGINE_VOCABULARY)
            ? YB_OK
            : YB_CORRUPT;

    for (uint32_t i = pull->first; i < pull->first + pull->blocks; i++) {
        const uint8_t *key = i < request->key_count ? request->keys[i] : request->answer_key;

        for (uint32_t part = 0; part < engine->options.parts; part++) {
            enum yb_status one =
                yb_engine_verify(engine, key, part, request->blocks[i], &request->outcome);

            status = status == YB_OK ? one : status;
        }
    }
    return status;
}

/* Lock held. */
static void
settle(struct pull *pull, enum yb_status status)
{
    struct yb_engine *engine = pull->engine;
    struct yb_engine_request *request = pull->request;

    request->busy = false;
    request->outcome.arrived_ns = yb_engine_now(engine);
    request->outcome.load_ns = request->outcome.arrived_ns - request->load_begun_ns;
    request->outcome.pulled_bytes =
        status == YB_OK ? (uint64_t)pull->blocks * engine->options.block_bytes : 0;
    yb_engine_trace_load(request, YB_SPAN_KIND_PULL, status);
    (void)pthread_cond_broadcast(&engine->changed);
    if (request->fate != YB_OK || engine->stops) {
        return;
    }
    if (status != YB_OK) {
        /* It cannot be had there any more: load and compute it, like any other. */
        yb_engine_not_loaded_locked(engine, status);
        request->outcome.load_failures++;
        yb_engine_shorten_locked(request, 0);
        request->load = YB_ENGINE_LOAD_NONE;
        request->ready_ns = request->outcome.arrived_ns;
        request->from.block_count = 0;
        yb_engine_load_locked(request);
        return;
    }
    yb_engine_publish_locked(request, pull->first, request->key_count);
    request->outcome.device_tokens = pull->first * engine->options.block_tokens;
    request->outcome.pulled_tokens = request->prompt_tokens - request->outcome.device_tokens;
    request->done_tokens = request->prompt_tokens;
    request->load = YB_ENGINE_LOAD_DONE;
    yb_engine_first_token_locked(request);
}

static void
run_pull(struct yb_engine_job *job)
{
    struct yb_engine_request *request =
        (struct yb_engine_request *)((uint8_t *)job - offsetof(struct yb_engine_request, job));
    struct pull pull = {
        .engine = request->engine,
        .request = request,
        .first = request->block_count,
        .blocks = request->from.block_count - request->block_count,
    };
    enum yb_status status = YB_NO_MEMORY;

    pull.request->load_run_ns = yb_engine_now(pull.engine);
    pull.until_ns = yb_deadline_after(pull.request->load_run_ns, ALIVE_NS);
    pull.items = calloc(pull.blocks + 1, sizeof(struct yb_transfer_item));
    if (pull.items != NULL) {
        yb_lock_acquire(&pull.engine->lock);
        place(&pull);
        yb_lock_release(&pull.engine->lock);
        status = read_blocks(&pull);
    }
    status = status == YB_OK ? verify(&pull) : status;
    yb_lock_acquire(&pull.engine->lock);
    settle(&pull, status);
    yb_lock_release(&pull.engine->lock);
    free(pull.items);
}

void
yb_engine_pull_locked(struct yb_engine_request *request)
{
    struct yb_engine *engine = request->engine;

    yb_lock_assert_held(&engine->lock);
    yb_engine_find_locked(request, request->key_count);
    request->load = YB_ENGINE_LOAD_LOOKING;
    request->load_begun_ns = yb_engine_now(engine);
    request->load_span = yb_engine_new_span();
    request->busy = true;
    request->job.run = run_pull;
    yb_engine_jobs_add_locked(&engine->loaders, &request->job);
}
