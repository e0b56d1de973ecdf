/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_internal.h -- what the files of the engine share.
 *
 *     engine.c   life, asking, reading, numbers
 *     step.c     the thread that computes: admission, steps, what is kept
 *     blocks.c   the blocks of a request: found, taken, made known, given back
 *     load.c     lookup and loads, on a loader
 *     pull.c     blocks from the engine that holds a request, on a loader
 *     holders.c  connections to such engines, kept for the next pull
 *     keep.c     stores, on a storer
 *     measure.c  what requests were like, as metrics
 *     spans.c    what became of requests, loads, pulls and stores
 *     jobs.c     loaders and storers: threads with a queue
 *
 * Who touches a request: its blocks and counters belong to the thread that computes, but for the
 * range of blocks that a load, a pull or a store was given, until that has ended. All states change
 * under the engine's lock; bytes are moved and compared without it.
 */
#ifndef YB_ENGINE_ENGINE_INTERNAL_H
#define YB_ENGINE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "engine/engine.h"
#include "engine/kv_device.h"
#include "engine/kv_pool.h"
#include "engine/orders.h"
#include "engine/plan.h"

#define YB_ENGINE_MAGIC         0x656e676eu
#define YB_ENGINE_REQUEST_MAGIC 0x65726571u
#define YB_ENGINE_LOADERS       8u
#define YB_ENGINE_STORERS       4u
#define YB_ENGINE_STORES_MAX    256u /* Waiting or running. */
#define YB_ENGINE_HOLDERS_MAX   16u
#define YB_ENGINE_PART_KEY_MAX  (YB_KV_KEY_BYTES + 1u)
#define YB_ENGINE_NOTES_MAX     256u /* Requests that have ended and are not counted yet. */
#define YB_ENGINE_SOURCES       7u   /* Of a prompt's KV; see measure.c. */

enum yb_engine_state {
    YB_ENGINE_WAITING,
    YB_ENGINE_PROMPT,
    YB_ENGINE_RUNNING,
    YB_ENGINE_HELD,
    YB_ENGINE_ENDED,
};

enum yb_engine_load {
    YB_ENGINE_LOAD_NONE,
    YB_ENGINE_LOAD_LOOKING, /* It is not known yet what there is. */
    YB_ENGINE_LOAD_COMING,  /* `parts_ready` parts of it are there. */
    YB_ENGINE_LOAD_DONE,
    YB_ENGINE_LOAD_SHORT, /* Some of what was found did not come, while computing relied on it. */
};

struct yb_engine_job {
    struct yb_engine_job *next;
    void (*run)(struct yb_engine_job *job);
};

struct yb_engine_jobs {
    struct yb_engine *engine;
    pthread_t threads[YB_ENGINE_LOADERS];
    uint32_t thread_count;
    bool over; /* Nobody adds any more. */
    struct yb_engine_job *first;
    struct yb_engine_job **last;
    pthread_cond_t more;
};

/* Connections to other engines that nobody uses now, the one that was used last at the end. */
struct yb_engine_holders {
    uint32_t count;
    struct {
        char address[64];
        yb_transfer_peer peer;
    } rows[YB_ENGINE_HOLDERS_MAX];
};

/* What is awaited from a tier of the store. */
struct yb_engine_source {
    uint32_t values;
    uint64_t since_ns; /* `values` > 0: from then on; or else: until then. */
};

struct yb_engine_request {
    uint32_t magic;
    uint32_t references;
    struct yb_engine *engine;
    struct yb_engine_request *next; /* Of the engine's, the oldest first. */
    enum yb_engine_state state;
    enum yb_status fate; /* OK: it goes on. Else it ends so, once nobody is at work on it. */
    bool keep;
    bool busy; /* A loader has it. */
    bool late; /* It is loaded when no older prompt is computed any more (late_loads). */
    uint32_t work_class;
    struct yb_id trace_id; /* Given, or its own. */
    uint64_t parent_span;
    uint64_t span;
    uint64_t number;
    uint32_t reuse_tokens;

    pthread_cond_t told; /* A token, or the end, for who asked. Its own: each of the hundreds that
                            wait would be woken by each token of all others. */
    uint32_t *tokens;    /* The prompt and the answer. */
    uint32_t prompt_tokens;
    uint32_t answer_max;
    uint32_t answered;
    uint8_t answer_key[YB_KV_KEY_BYTES]; /* What the answer follows from. */
    uint8_t (*keys)[YB_KV_KEY_BYTES];    /* Of whole blocks, as far as there are tokens. */
    uint32_t key_count;
    uint64_t *names; /* The first bytes of the prompt's keys, for the scheduler's library. */
    uint32_t name_count;

    struct yb_kv_pool_block **blocks;
    uint32_t block_count; /* That it uses now ... */
    uint32_t block_max;   /* ... and that are reserved for it. */
    uint32_t done_tokens; /* Of the prompt: reused or computed. */
    uint32_t given_up; /* Stores of blocks that it computes again, which still have the old ones. */

    struct yb_engine_job job; /* Its load, or pull. */
    enum yb_engine_load load;
    uint32_t load_first; /* Blocks that are loaded. */
    uint32_t load_count;
    uint32_t parts_ready;
    uint64_t ready_ns;      /* It can be computed from then on, as far as it is concerned. */
    uint64_t load_begun_ns; /* It waits for a loader from here on. */
    uint64_t load_run_ns;   /* A loader has it. */
    uint64_t load_due_ns;   /* By then it will have come, as the store said; 0: it said nothing. */
    uint64_t load_span;

    struct yb_engine_handover from;
    uint64_t *addresses; /* Of `from`, or of what is held. */
    uint64_t *ticket;    /* HELD: what releases it, where others read it. */
    uint64_t expires_ns;

    struct yb_engine_outcome outcome;
};

/* Metrics of requests that have ended; of the thread that computes, but for the notes and the
 * shard, which are of whoever holds the lock. */
struct yb_engine_measure {
    uint32_t first;
    struct yb_stats_shard *shard; /* NULL: nobody asks. */
    uint64_t tokens[YB_ENGINE_SOURCES];
    uint64_t uncounted;
    uint32_t not_loaded[YB_STATS_WORDS_MAX]; /* By status: not counted yet. */
    uint32_t not_stored[YB_STATS_WORDS_MAX];
    uint32_t note_count;
    struct yb_engine_outcome notes[YB_ENGINE_NOTES_MAX];
};

struct yb_engine {
    uint32_t magic;
    struct yb_engine_options options;
    char model[YB_ENGINE_MODEL_BYTES];
    const char *puts_at[2]; /* The node of the options, and the end of the list. */
    const struct yb_clock *clock;
    uint64_t part_bytes;
    struct yb_kv_device *device; /* NULL: `memory` is the host's. */
    uint8_t *memory;             /* Of the pool: slot by slot. */
    uint64_t *tickets;           /* Of what is held, as many as slots; 0: none. */
    pthread_t thread;
    bool thread_runs;

    struct yb_lock lock;    /* Rank STANDIN; all below. */
    pthread_cond_t changed; /* Anything that whoever computes, or holds a load back, waits for. */
    pthread_cond_t stopped; /* `stops`, for the thread that computes. */
    bool stops;
    struct yb_kv_pool *pool;
    uint32_t reserved; /* Blocks, by all requests. */
    struct yb_engine_request *first;
    struct yb_engine_request **last;
    uint32_t waiting; /* Of them. */
    uint32_t stores;
    uint64_t device_free_ns; /* When the last step is computed; 0: there was nothing to do since. */
    uint64_t load_free_ns;   /* load_rate: when what comes next may be there. */
    struct yb_engine_source sources[YB_CLIENT_TIER_OBJECT + 1];
    struct yb_engine_holders holders;
    struct yb_engine_jobs loaders;
    struct yb_engine_jobs storers;
    struct yb_engine_info sums; /* The counters of it. */
    struct yb_engine_measure measure;
};

static inline uint64_t
yb_engine_now(const struct yb_engine *engine)
{
    return yb_clock_now(engine->clock);
}

/* When a running request's next token is due, by the pace that is promised. */
static inline double
yb_engine_due_ns(const struct yb_engine_request *request)
{
    return (double)request->outcome.first_ns +
           (double)request->answered * (double)request->engine->options.tpot_slo_ns;
}

static inline uint32_t
yb_engine_blocks_of(const struct yb_engine *engine, uint32_t tokens)
{
    return (tokens + engine->options.block_tokens - 1) / engine->options.block_tokens;
}

static inline uint8_t *
yb_engine_bytes(const struct yb_engine *engine, const struct yb_kv_pool_block *block, uint32_t part)
{
    return engine->memory + (uint64_t)block->slot * engine->options.block_bytes +
           part * engine->part_bytes;
}

/* ---- engine.c ---- */

/* One user of the request less; the last one frees it. Lock held. */
void yb_engine_forget_locked(struct yb_engine_request *request);

/* Let it end with a status, the first that it is given. Lock held. */
void yb_engine_doom_locked(struct yb_engine_request *request, enum yb_status fate);

/* Write a part's key in the store; returns its length. */
uint32_t yb_engine_part_key(const struct yb_engine *engine, const uint8_t key[YB_KV_KEY_BYTES],
                            uint32_t part, uint8_t out[YB_ENGINE_PART_KEY_MAX]);

/* The call for a question to the store about that request, caused by `span` of it. */
struct yb_client_call yb_engine_call(const struct yb_engine_request *request, uint64_t span,
                                     uint64_t timeout_ns);

/* Write a part's bytes: what computing brings forth. Fails as yb_kv_device_fill(). */
YB_CHECKED enum yb_status yb_engine_fill(const struct yb_engine *engine,
                                         const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
                                         const struct yb_kv_pool_block *block);

/* Compare a part's bytes, and count. Fails as yb_kv_device_check(). */
YB_CHECKED enum yb_status yb_engine_verify(struct yb_engine *engine,
                                           const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
                                           const struct yb_kv_pool_block *block,
                                           struct yb_engine_outcome *outcome);

/* ---- admit.c ---- */

/* Begin those of the waiting whose turn it is. Lock held. */
void yb_engine_admit_locked(struct yb_engine *engine);

/* ---- step.c ---- */

void *yb_engine_compute(void *engine);

/* The prompt has its first token, wherever it was computed. Lock held. */
void yb_engine_first_token_locked(struct yb_engine_request *request);

/* ---- blocks.c ---- */

/* Use the blocks behind those that the request has, as far as they can be found here, up to `most`
 * in all. Lock held. */
void yb_engine_find_locked(struct yb_engine_request *request, uint32_t most);
/* Take memory for as many as are missing of `count`: there is room, by N3. Lock held. */
void yb_engine_take_locked(struct yb_engine_request *request, uint32_t count);
/* Blocks [first, end) are whole and right: from now on they are found. Lock held. */
void yb_engine_publish_locked(struct yb_engine_request *request, uint32_t first, uint32_t end);
/* Give blocks back from `count` on. Lock held. */
void yb_engine_shorten_locked(struct yb_engine_request *request, uint32_t count);

/* ---- load.c, pull.c ---- */

/* Look into the engine's own memory, and begin to load what is behind. Lock held. */
void yb_engine_load_locked(struct yb_engine_request *request);
/* Begin to pull a request's blocks from where it was computed. Lock held. */
void yb_engine_pull_locked(struct yb_engine_request *request);

/* ---- holders.c ---- */

/* Take a connection to that engine that was kept, the one used last; false: there is none. It is
 * the caller's, to be kept again, or closed. */
bool yb_engine_holder_take(struct yb_engine *engine, const char *address,
                           yb_transfer_peer *peer_out);

/* Keep one that works, for the next pull; of too many the one that was used longest ago is closed.
 */
void yb_engine_holder_keep(struct yb_engine *engine, const char *address, yb_transfer_peer peer);

/* Close all of them. The engine has been stopped. */
void yb_engine_holders_close(struct yb_engine *engine);

/* ---- keep.c ---- */

/* A store of blocks that are about to be computed. */
struct yb_engine_store;

/* Prepare to store blocks [first, first + count) of the request; NULL: there is no store, or too
 * many wait already. Lock held. */
struct yb_engine_store *yb_engine_store_locked(struct yb_engine_request *request, uint32_t first,
                                               uint32_t count);
/* So many parts of them are computed. With fewer than all and `over`, no more will be. Lock held.
 */
void yb_engine_store_filled_locked(struct yb_engine_store *store, uint32_t parts, bool over);
/* No more of them will be: the request computes them anew, when the store has let go of their
 * memory (N3: both at a time are not reserved). Lock held. */
void yb_engine_store_given_up_locked(struct yb_engine_store *store,
                                     struct yb_engine_request *request);

/* ---- measure.c ---- */

/* Register the metrics, and give the shard back. Fails as yb_stats_register() and
 * yb_stats_shard_take(). */
YB_CHECKED enum yb_status yb_engine_measure_begin(struct yb_engine *engine);
void yb_engine_measure_end(struct yb_engine *engine);

/* A value was found and did not come, or was wrong (CORRUPT); the store did not take one.
 * Lock held. */
void yb_engine_not_loaded_locked(struct yb_engine *engine, enum yb_status status);
void yb_engine_not_stored_locked(struct yb_engine *engine, enum yb_status status);

/* A request has ended; and, on the thread that computes: count those that have. */
void yb_engine_note_locked(struct yb_engine *engine, const struct yb_engine_outcome *outcome);
void yb_engine_count_notes_locked(struct yb_engine *engine);

/* ---- spans.c ---- */

/* Return a new span's id. */
uint64_t yb_engine_new_span(void);

/* Remember a span; its wall clock is filled in. What did not begin leaves none. */
void yb_engine_trace(const struct yb_engine *engine, struct yb_span span);

/* It has ended; and its load, or pull, has. */
void yb_engine_trace_request(const struct yb_engine_request *request);
void yb_engine_trace_load(const struct yb_engine_request *request, enum yb_span_kind kind,
                          enum yb_status status);

/* So ended what a conductor ordered for a request that has ended itself, at `decided_ns`. */
void yb_engine_trace_verdicts(const struct yb_engine_request *request, uint64_t decided_ns,
                              const struct yb_engine_verdicts *verdicts);

/* ---- jobs.c ---- */

YB_CHECKED enum yb_status yb_engine_jobs_start(struct yb_engine_jobs *jobs,
                                               struct yb_engine *engine, uint32_t threads);
/* Join the threads; jobs that wait are run first. Nobody but those may add more: whoever else does
 * has been stopped before. Without effect unless it was started. */
void yb_engine_jobs_stop(struct yb_engine_jobs *jobs);
void yb_engine_jobs_add_locked(struct yb_engine_jobs *jobs, struct yb_engine_job *job);

#endif /* YB_ENGINE_ENGINE_INTERNAL_H */
