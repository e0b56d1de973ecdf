/* SPDX-License-Identifier: Apache-2.0
 *
 * instance.h -- one simulated engine: what it runs next, and how long that takes.
 *
 * An engine takes jobs. A job is prefilled, in pieces or whole, and then decoded, here or
 * elsewhere. Work is done in steps, one at a time:
 *
 *   piece     some tokens of the first job's prompt, and one token for each job that is decoded
 *             (chunked prefill); or a whole prompt, while decoding waits (chunk_tokens 0)
 *   run       one token for each job that is decoded, many times over, until one of them has all
 *             of its own or another job comes: one event, however many steps it is
 *
 *      add --> waiting --> prefill --> (prefilled) --> join --> joining --> running --> (done)
 *                 ^ ready                                          ^ memory
 *
 * A job waits until it is ready: what it reuses has arrived. Jobs that are ready go before those
 * that are not, each in the order of its coming (unless `in_order`). A job that is not ready is
 * begun when nothing else can be and what it waits for will have come before its computing ends:
 * layers are computed while later ones are loaded (unless `no_overlap`). If it comes late after
 * all, the engine stands still, and then computes the last layer.
 *
 * A job that is decoded has room for its prompt and its whole answer, from before its prefill
 * (coupled) or its join (decode elsewhere) on, so that none is ever put out.
 *
 * Invariants
 *   I1  A job is in one list, or is in the step, or is out.
 *   I2  kv_used is the sum of what jobs hold; it exceeds kv_tokens only for a job that is alone.
 *   I3  An engine with a job that can be run is not idle after settle.
 *   I4  Each job that joins gets exactly output_tokens - 1 tokens of decode.
 *
 * Threads   One owner.
 * Memory    Jobs are borrowed from add or join until they come out.
 * Time      Passed in, never back. The caller enters an event for each end, with the stamp; an
 *           event with an old stamp is to be ignored.
 */
#ifndef YB_SIM_INSTANCE_H
#define YB_SIM_INSTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/tally.h"
#include "yuebing/sched.h"

struct yb_instance_job {
    struct yb_instance_job *next;
    uint64_t ready_ns;  /* When what is loaded is expected, if not `ready`. */
    uint64_t end_step;  /* While running: the step of the engine that gives its last token. */
    uint64_t decode_ns; /* When its first step of decode began; 0: it has not. */
    uint64_t held;      /* Tokens of room. */
    double expected_ns; /* Its prefill, as it was expected when it was added. */
    uint64_t expected_tokens;
    uint32_t request;
    uint32_t input_tokens;
    uint32_t reused_tokens; /* Need no computing. */
    uint32_t done_tokens;   /* Reused or computed. */
    uint32_t output_tokens; /* At least 1; the first comes from prefill. */
    bool ready;
    bool begun;
    bool stays; /* It is decoded here. */
};

struct yb_instance_list {
    struct yb_instance_job *first;
    struct yb_instance_job *last;
    uint32_t count;
};

/* Called when a job's first piece is about to be computed: the last moment to find out that more of
 * it can be reused. May change reused_tokens, ready and ready_ns. */
typedef void yb_instance_begin_fn(void *context, struct yb_instance_job *job, uint64_t now_ns);

struct yb_instance_options {
    const struct yb_sched_cost *cost; /* Borrowed until fini. */
    uint32_t chunk_tokens;            /* 0: whole prompts. */
    uint32_t batch_max;               /* Jobs that are decoded at once; 0: 65536. */
    uint64_t kv_tokens;               /* Room; 0: no limit. */
    bool in_order;
    bool no_overlap;
    yb_instance_begin_fn *begin;
    void *context;
    struct yb_tally *gaps; /* Times between tokens; borrowed until fini. */
};

enum yb_instance_state {
    YB_INSTANCE_IDLE,
    YB_INSTANCE_PIECE,
    YB_INSTANCE_STALL, /* A piece that is computed, and waits for its load. */
    YB_INSTANCE_WAIT,  /* Nothing to do until it is worth to begin a job that is not ready. */
    YB_INSTANCE_RUN,
};

struct yb_instance {
    uint32_t magic;
    struct yb_instance_options options;
    struct yb_instance_list waiting;
    struct yb_instance_list joining;
    struct yb_instance_job *fresh;    /* Of the running, a chain: no step of decode yet. */
    struct yb_instance_job **running; /* A heap by end_step. */
    uint32_t running_count;
    uint32_t running_room;
    uint64_t context_tokens; /* Of the running. */
    uint64_t kv_used;
    uint64_t step_count;

    enum yb_instance_state state;
    uint64_t stamp;
    uint64_t start_ns; /* Of the step. */
    uint64_t end_ns;
    uint64_t run_steps;
    struct yb_instance_job *job; /* Of the piece. */
    uint32_t piece_tokens;

    double prefill_busy_ns;
    double decode_busy_ns;
    double stall_ns;
    double waiting_ns; /* Sum of the prefill of those that wait: for reports. */
    uint64_t waiting_tokens;
    uint64_t computed_tokens;
    double pause_ns;   /* For how long those that are decoded have got nothing. */
    bool prefilling;   /* What it does, or did last, is prefill alone; */
    uint64_t phase_ns; /* since then. */
};

YB_CHECKED enum yb_status yb_instance_init(struct yb_instance *instance,
                                           const struct yb_instance_options *options);
void yb_instance_fini(struct yb_instance *instance);

/* Let a job wait for prefill. */
void yb_instance_add(struct yb_instance *instance, struct yb_instance_job *job);

/* What a job waited for is there. */
void yb_instance_ready(struct yb_instance *instance, struct yb_instance_job *job, uint64_t now_ns);

/* Let a job that was prefilled elsewhere be decoded here. */
void yb_instance_join(struct yb_instance *instance, struct yb_instance_job *job);

/* Begin a step if there is none, or end a run earlier as something waits for its end. Returns true
 * when the caller has to enter an event for instance->end_ns with instance->stamp. Fails with
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_instance_settle(struct yb_instance *instance, uint64_t now_ns,
                                             bool *event_out);

/* What came out of a step. */
struct yb_instance_outcome {
    struct yb_instance_job *prefilled; /* NULL: none. If it stays it goes on here. */
    struct yb_instance_job *done;      /* A chain by `next`. */
};

/* The event of the current stamp has come. Call settle afterwards. */
void yb_instance_end(struct yb_instance *instance, uint64_t now_ns,
                     struct yb_instance_outcome *outcome_out);

/* Return how many steps of decode have been made, with part of the one under way. */
double yb_instance_steps(const struct yb_instance *instance, uint64_t now_ns);

/* Return when all that waits now will have been prefilled, as far as can be said. */
uint64_t yb_instance_prefill_done_ns(const struct yb_instance *instance, uint64_t now_ns);

#endif /* YB_SIM_INSTANCE_H */
