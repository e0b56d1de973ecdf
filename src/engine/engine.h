/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h -- an inference engine without its arithmetic.
 *
 * It does with requests what an engine does: queues them, finds the part of each prompt whose KV it
 * has or can load, computes the rest in pieces, answers token by token, keeps and stores the KV,
 * hands a request over to another engine. Bytes, queues, loads and stores are real; only how long
 * computing takes is reckoned, by the cost model, and slept. What stands for KV is a function of
 * the tokens (kv.h), so that every byte that is loaded is looked at.
 *
 *  ask --> WAITING --> PROMPT ----------------------> RUNNING --> ENDED
 *            |          |  loads: lookup, bytes          |          ^
 *            |          |  computes a piece of it        |          |
 *            |          |  stores what is computed       +----------+
 *            |          +--> HELD: first token, kept for another engine --> released, or expired
 *            +--> pulled from the engine that holds it ------> RUNNING
 *
 * Layer by layer. A block's bytes lie in `parts`, groups of layers. Parts are loaded, computed and
 * stored one after the other: computing part p waits for the load of part p alone, and its result
 * is stored while part p + 1 is computed.
 *
 * In the store a block of K parts is K values. The last part has the block's key, and is put when
 * the others were; the others have the key and one byte more, the part. So a block that is found is
 * whole, or was when it was put; what is missing all the same is computed.
 *
 * Invariants
 *   N1  Each request that was taken ends exactly once.
 *   N2  What is loaded or pulled is used only after all its bytes were compared with what they must
 *       be.
 *   N3  A request is begun when the memory it may need at most is reserved: none is stopped in the
 *       middle for want of it.
 *       It waits while another one computes blocks that it shares, and no longer.
 *   N4  Of what is pulled the holder still had every block when the last byte had been read: its
 *       ticket is read after that, and is gone before a block can become something else.
 *   N5  Queue, memory, threads and what is kept for others are bounded; what is kept has an expiry.
 *
 * Threads   One that computes, some that load and store. Any may ask, read and cancel.
 * Memory    A request is the asker's until release, and the engine's until it has ended.
 * Time      Of computing: the cost model's, times `time_scale`. All else is the clock's.
 */
#ifndef YB_ENGINE_ENGINE_H
#define YB_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/span.h"
#include "base/stats.h"
#include "engine/kv.h"
#include "yuebing/client.h"
#include "yuebing/sched.h"
#include "yuebing/transfer.h"

#define YB_ENGINE_PARTS_MAX   64u
#define YB_ENGINE_TOKENS_MAX  (1u << 21) /* Of a prompt and its answer. */
#define YB_ENGINE_WHY_BYTES   256u
#define YB_ENGINE_MODEL_BYTES 64u
#define YB_ENGINE_VOCABULARY  32000u

struct yb_engine;
struct yb_engine_request;

/* What the outside is told, on threads of the engine: it must not wait, nor call the engine. */
struct yb_engine_listener {
    void *owner;
    /* A block can be found in the engine's own memory, or no more. May be NULL. */
    void (*block)(void *owner, const uint8_t key[YB_KV_KEY_BYTES], bool there);
};

struct yb_engine_options {
    const char *model; /* Separates the KV of models. */
    struct yb_sched_cost cost;
    uint32_t mode;     /* enum yb_sched_mode */
    double time_scale; /* Above 0. 0.1: ten times as fast as the model's machine. */
    uint32_t block_tokens;
    uint64_t block_bytes; /* A multiple of `parts`. */
    uint32_t parts;
    uint64_t pool_bytes; /* Of the engine's own memory for KV: at least one block. */
    bool on_device;      /* That memory is device `device`'s; or else the host's. */
    uint32_t device;
    uint32_t chunk_tokens;        /* Of a prompt in one step; 0: 2048. */
    uint32_t running_max;         /* 0: 256. */
    uint32_t waiting_max;         /* 0: 1024. */
    uint64_t tpot_slo_ns;         /* time-sliced: the pace of answers; 0: 100 ms. */
    uint64_t load_timeout_ns;     /* What is not loaded by then is computed; 0: 30 s. */
    uint64_t held_ns;             /* How long a request is kept for another engine; 0: 30 s. */
    double load_rate;             /* Bytes per second that loads are held back to, as if by a slow
                                     link to the store; 0: they are not. */
    bool one_class;               /* Stores are of their request's class, like loads: to show what
                                     classes bring. */
    bool late_loads;              /* Nothing is loaded while an older prompt is computed: to show
                                     what loading ahead brings. */
    struct yb_client *client;     /* The store; NULL: own memory only. Borrowed. */
    const char *node;             /* Of the store: where it puts what it computes, as long as that
                                     node takes it; NULL: anywhere. Borrowed. */
    struct yb_transfer *transfer; /* Borrowed. The engine's memory is allocated in it. */
    struct yb_span_ring *spans;   /* What became of requests; NULL: nobody asks. Borrowed. */
    struct yb_stats *stats;       /* What they were like; NULL: nobody asks. Borrowed. */
    struct yb_engine_listener listener;
};

/* A request that was computed elsewhere up to its first token. */
struct yb_engine_handover {
    char address[64]; /* Of the holder's transfer engine. */
    uint64_t ticket;
    uint64_t ticket_at; /* Where it is written there, as long as the request is held. */
    uint32_t first_token;
    uint32_t block_count;      /* Blocks of the prompt, the last perhaps in part. */
    const uint64_t *addresses; /* Of their bytes there. */
};

struct yb_engine_ask {
    const uint32_t *tokens; /* Copied. */
    uint32_t token_count;   /* At least 1. */
    uint32_t answer_tokens; /* At least 1. */
    uint32_t reuse_tokens;  /* No more than these are loaded: the conductor's split. */
    bool keep;              /* One token, and keep the KV for another engine. */
    const struct yb_engine_handover *from; /* NULL: nowhere. Copied. */
    uint32_t work_class;
    struct yb_id trace_id; /* None: it gets one of its own. */
    uint64_t parent_span;
    uint64_t number; /* What others call it: a conductor's decision; 0: nothing. */
};

/* What became of a request; times are the clock's. */
struct yb_engine_outcome {
    enum yb_status status;
    char why[YB_ENGINE_WHY_BYTES]; /* Of a failure. */
    struct yb_trace_context trace; /* What it causes elsewhere belongs there. */
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    uint32_t device_tokens; /* Of the prompt: from this engine's memory, */
    uint32_t loaded_tokens; /* from the store, */
    uint32_t pulled_tokens; /* from the engine that handed it over; the rest was computed. */
    uint64_t tier_bytes[YB_CLIENT_TIER_OBJECT + 1]; /* What was loaded, by where it was. */
    uint64_t pulled_bytes;
    uint64_t wrong_bytes;
    uint64_t arrival_ns;
    uint64_t begun_ns; /* When memory was reserved for it. */
    uint64_t first_ns; /* First token. */
    uint64_t last_ns;
    uint64_t predicted_ns; /* How long the load would take, as the store said; 0: nothing loaded. */
    uint64_t load_ns;      /* How long it took. */
    uint64_t arrived_ns;   /* When all that came of it was there; 0: nothing was to be loaded. */
    uint32_t load_failures; /* Values that were found and did not come. */
    uint64_t stall_ns;      /* How long computing waited for it. */
    uint64_t compute_ns;    /* How long its prompt was computed. */
};

/* Sums over all requests, and what is there now. */
struct yb_engine_info {
    uint32_t waiting;
    uint32_t prompts;
    uint32_t running;
    uint32_t held;
    uint32_t stores;         /* Under way. */
    uint64_t prefill_tokens; /* That are to be computed yet for those that wait or are prompts. */
    uint64_t prefill_ns;     /* How long that will take, scaled. */
    uint64_t context_tokens; /* Of the running ones. */
    double saved_ns;         /* time-sliced: as in struct yb_sched_slice; 0: there are none. */
    uint32_t slots, slots_used, slots_published;
    uint64_t evicted;
    uint64_t asked, refused, ended, failed;
    uint64_t prompt_tokens, device_tokens, loaded_tokens, pulled_tokens, computed_tokens;
    uint64_t answer_tokens;
    uint64_t tier_bytes[YB_CLIENT_TIER_OBJECT + 1];
    uint64_t
        tier_came_bytes[YB_CLIENT_TIER_OBJECT + 1];   /* Also for requests that have not ended. */
    uint64_t tier_busy_ns[YB_CLIENT_TIER_OBJECT + 1]; /* While something was awaited there. */
    uint64_t pulled_bytes, stored_bytes, verified_bytes, wrong_bytes;
    uint64_t store_failures; /* Parts that the store did not take; that it has them is none. */
    uint64_t load_failures;  /* Parts that were found and did not come. */
    uint64_t dropped_stores; /* Blocks that were not stored, as too many waited for it. */
    uint64_t compute_ns, stall_ns, load_ns, predicted_ns;
    uint64_t steps;
};

/* Start an engine. On OK the caller owns *engine_out; otherwise why_out says what to do. Fails with
 * INVALID, UNSUPPORTED (there is no such device), NO_MEMORY or IO (the device's driver). */
YB_CHECKED enum yb_status yb_engine_create(const struct yb_engine_options *options,
                                           struct yb_engine **engine_out,
                                           char why_out[YB_ENGINE_WHY_BYTES]);

/* End all requests (CLOSED), and take none any more. Waits for what is being moved. */
void yb_engine_stop(struct yb_engine *engine);

/* Stop it and set *engine to NULL. All requests must have been released. */
void yb_engine_destroy(struct yb_engine **engine);

/* Take a request. On OK *request_out is the caller's until release. Fails with INVALID (a number),
 * TOO_LARGE (for the engine's memory), AGAIN (waiting_max), NO_MEMORY or CLOSED. */
YB_CHECKED enum yb_status yb_engine_submit(struct yb_engine *engine,
                                           const struct yb_engine_ask *ask,
                                           struct yb_engine_request **request_out);

/* Read tokens of the answer from the `from`th on, at most `room`, waiting at most `timeout_ns` for
 * the first of them. OK: *count_out of them are there, at least one. NOT_FOUND: the answer has no
 * more, the request has ended. TIMED_OUT: not yet. */
YB_CHECKED enum yb_status yb_engine_read(struct yb_engine_request *request, uint32_t from,
                                         uint64_t timeout_ns, uint32_t *tokens_out, uint32_t room,
                                         uint32_t *count_out);

/* Copy what became of it; false: it has not ended (a kept one has, with its first token). */
bool yb_engine_outcome(struct yb_engine_request *request, struct yb_engine_outcome *outcome_out);

/* Of one that was kept and has ended OK: where its KV is. `addresses` is borrowed until release. */
YB_CHECKED enum yb_status yb_engine_handover(struct yb_engine_request *request,
                                             struct yb_engine_handover *handover_out);

/* Ask it to end early. */
void yb_engine_cancel(struct yb_engine_request *request);

/* Give it back and set *request to NULL. One that has not ended is cancelled. */
void yb_engine_release(struct yb_engine_request **request);

/* Call `visit` for each block that can be found in the engine's memory; it must not wait, nor call
 * the engine. */
void yb_engine_visit(struct yb_engine *engine,
                     void (*visit)(void *context, const uint8_t key[YB_KV_KEY_BYTES]),
                     void *context);

uint32_t yb_engine_block_tokens(const struct yb_engine *engine);
void yb_engine_info(struct yb_engine *engine, struct yb_engine_info *info_out);

#endif /* YB_ENGINE_ENGINE_H */
