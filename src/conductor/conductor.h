/* SPDX-License-Identifier: Apache-2.0
 *
 * conductor.h -- where each request runs, live: the scheduler's library with names instead of
 * numbers.
 *
 * It is told who is there, what each says of itself and which blocks lie where; it answers
 * questions, and keeps account of the moves that its answers ask for. It knows no socket, no thread
 * and no clock: src/conductor/service.h puts HTTP around it, and a log of everything that it was
 * told gives the same answers again.
 *
 *     an instance:     register --> [report]* --> unregister, or no report for `expire_ns`
 *     a request:       schedule --> accepted --> done(first token) --> done(ended)
 *                               \-> rejected: when to ask again
 *     an instruction:  issued --> in_time, late, ... : exactly one outcome, at the latest when its
 *                      request has ended or its time is over
 *
 * Several models may be served: each has a scheduler of its own, and nodes of the store are known
 * to all of them.
 *
 * Invariants
 *   O1  The same calls with the same times give the same answers, to the last byte. `record` gets
 *       all of them.
 *   O2  What comes from outside is refused with a status and a sentence; nothing has changed then.
 *   O3  issued = the outcomes in all + open.
 *   O4  A name is one place at a time; a new incarnation of an instance begins without blocks.
 *   O5  All it keeps is bounded by its options.
 *
 * Threads   One owner at a time; yb_conductor_prompt_read() from any thread beside.
 * Memory    All is copied; answers are whole in themselves.
 * Time      Passed in, never running backwards.
 */
#ifndef YB_CONDUCTOR_CONDUCTOR_H
#define YB_CONDUCTOR_CONDUCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "conductor/order.h"
#include "conductor/wire/conductor_wire.h"
#include "yuebing/sched.h"
#include "yuebing/status.h"

#define YB_CONDUCTOR_NAME_BYTES 64u
#define YB_CONDUCTOR_WHY_BYTES  256u
#define YB_CONDUCTOR_MODELS_MAX 8u

struct yb_conductor;

/* Zero it, and set what differs from the default. */
struct yb_conductor_options {
    const char *routing;   /* NULL or "": the library's default. */
    const char *admission; /* The same. */
    uint32_t mode;         /* enum yb_sched_mode */
    uint32_t places_max;   /* Instances and nodes; 0: 1024. */
    uint32_t blocks_max;   /* Known of, for each model; 0: 1 M. */
    uint32_t pending_max;  /* Decisions that have not ended; 0: 16384. */
    uint32_t block_tokens; /* 0: 512. */
    uint32_t conductor;    /* Which of several this is: below YB_SCHED_CONDUCTORS_MAX. */
    uint64_t seed;
    uint64_t ttft_slo_ns; /* 0: none. */
    uint64_t tbt_slo_ns;  /* 0: none. */
    uint64_t expire_ns;   /* 0: 3 s. */
    uint64_t node_rate;   /* Bytes per second, of nodes that nobody spoke of; 0: 1 GB/s. */
    uint64_t heat_ns;     /* How often hot blocks are brought up; 0: never. */
    bool moves;           /* It has instructions carried out by nodes of the store. */
    uint8_t hash_seed[YB_HASH_SEED_BYTES];

    /* Gets each record of the log (docs/protocol-conductor.md) in order; NULL: nobody wants it. */
    void (*record)(void *owner, const void *bytes, size_t length);
    /* Gets each move that no request asked for; consumed if the answer is true, and else cancelled.
     * NULL: it is only kept account of. */
    bool (*order)(void *owner, struct yb_conductor_order *order);
    void *owner;
};

/* Fails with INVALID, having said which option and what is allowed, or NO_MEMORY. */
YB_CHECKED enum yb_status yb_conductor_create(const struct yb_conductor_options *options,
                                              struct yb_conductor **conductor_out,
                                              char why_out[YB_CONDUCTOR_WHY_BYTES]);
void yb_conductor_destroy(struct yb_conductor **conductor);

/* ---- who is there ---------------------------------------------------------------------------- */

/* An instance comes. Again with the same incarnation: what it says replaces what it said. Fails
 * with INVALID (a cost or link that cannot be), NOT_FOUND (the catalog has no such model or GPU) or
 * NO_SPACE (too many places, models or costs). */
YB_CHECKED enum yb_status yb_conductor_register(struct yb_conductor *conductor,
                                                const struct yb_wire_conductor_register *said,
                                                uint64_t now_ns,
                                                char why_out[YB_CONDUCTOR_WHY_BYTES]);

/* A node of the store is there; *place_out is its number for yb_conductor_blocks(). Fails with
 * INVALID, EXISTS (an instance has that name) or NO_SPACE. */
YB_CHECKED enum yb_status yb_conductor_storage(struct yb_conductor *conductor,
                                               struct yb_wire_text name, uint64_t now_ns,
                                               uint32_t *place_out);

/* How bytes come from a node of the store, as it measures: its disk, its object store and its link
 * are that fast and that busy from now on. Fails with NOT_FOUND (there is no such node) or INVALID
 * (a rate that cannot be). */
YB_CHECKED enum yb_status yb_conductor_ways(struct yb_conductor *conductor,
                                            const struct yb_wire_conductor_ways *said,
                                            uint64_t now_ns);

/* An instance or node is gone. Fails with NOT_FOUND. */
YB_CHECKED enum yb_status yb_conductor_unregister(struct yb_conductor *conductor,
                                                  struct yb_wire_text name, uint64_t now_ns);

/* What an instance says of itself, and of its own cache. Fails with NOT_FOUND (it must register),
 * STALE (an older report, or another incarnation) or INVALID. */
YB_CHECKED enum yb_status yb_conductor_report(struct yb_conductor *conductor,
                                              const struct yb_wire_conductor_report *said,
                                              uint64_t now_ns,
                                              char why_out[YB_CONDUCTOR_WHY_BYTES]);

/* Blocks came to, or left, tiers of the store's nodes. What does not fit is not known of. */
void yb_conductor_blocks(struct yb_conductor *conductor,
                         const struct yb_wire_conductor_change_list *changes, uint64_t now_ns);

/* Everything that nodes and the object store hold will be told again: from here on they hold
 * nothing, and nodes have other numbers. */
void yb_conductor_reset(struct yb_conductor *conductor, uint64_t now_ns);

/* Who has not reported is gone, instructions whose time is over have expired. A few times a second.
 */
void yb_conductor_tick(struct yb_conductor *conductor, uint64_t now_ns);

/* ---- requests -------------------------------------------------------------------------------- */

/* The blocks of a question, as the scheduler names them: hashing a long prompt takes longer than
 * deciding about it. */
struct yb_conductor_prompt {
    uint64_t *blocks; /* Owned. */
    uint32_t count;
    uint32_t tokens;
    struct yb_wire_conductor_key_list keys; /* Their names; of hashes, a view of the question. */
    struct yb_wire_conductor_key *own;      /* Owned: of tokens. */
};

/* Read them from tokens or hashes. Fails with INVALID or NO_MEMORY. Any thread, at any time. */
YB_CHECKED enum yb_status yb_conductor_prompt_read(const struct yb_conductor *conductor,
                                                   const struct yb_wire_conductor_schedule *asked,
                                                   struct yb_conductor_prompt *prompt_out,
                                                   char why_out[YB_CONDUCTOR_WHY_BYTES]);
void yb_conductor_prompt_fini(struct yb_conductor_prompt *prompt);

/* Return the name that the scheduler has for a block of a tenant ("": `default`). */
uint64_t yb_conductor_block_name(const struct yb_conductor *conductor, struct yb_wire_text tenant,
                                 struct yb_id key);

#define YB_CONDUCTOR_NAMES 6u

/* Copy a text of the wire with a NUL behind, into YB_CONDUCTOR_NAME_BYTES. */
void yb_conductor_take_text(char *out, struct yb_wire_text text);

/* Copy the seed of names: it never changes. */
void yb_conductor_seed(const struct yb_conductor *conductor, uint8_t seed_out[YB_HASH_SEED_BYTES]);

/* An answer; it must not be copied, as `wire` points into it. */
struct yb_conductor_answer {
    struct yb_wire_conductor_decision wire;
    struct yb_wire_conductor_instruction instructions[YB_SCHED_INSTRUCTIONS_MAX];
    uint8_t parts; /* Values that the instance has of a block. */
    char names[YB_CONDUCTOR_NAMES][YB_CONDUCTOR_NAME_BYTES];
};

/* Decide, and count the decision. A rejection is an answer, too. Fails with NOT_FOUND (nobody runs
 * that model; no model was named, and there are several), INVALID or NO_SPACE. */
YB_CHECKED enum yb_status yb_conductor_schedule(struct yb_conductor *conductor,
                                                const struct yb_wire_conductor_schedule *asked,
                                                const struct yb_conductor_prompt *prompt,
                                                uint64_t now_ns,
                                                struct yb_conductor_answer *answer_out,
                                                char why_out[YB_CONDUCTOR_WHY_BYTES]);

#define YB_CONDUCTOR_HITS_MAX 16u

struct yb_conductor_hits {
    uint32_t count;
    struct {
        char name[YB_CONDUCTOR_NAME_BYTES];
        struct yb_sched_hit hit;
    } rows[YB_CONDUCTOR_HITS_MAX];
};

/* What a prompt would find where, without deciding: the places with the longest runs, the longest
 * first. Changes nothing. Fails as schedule does. */
YB_CHECKED enum yb_status yb_conductor_query(struct yb_conductor *conductor,
                                             const struct yb_wire_conductor_schedule *asked,
                                             const struct yb_conductor_prompt *prompt,
                                             uint64_t now_ns, struct yb_conductor_hits *hits_out,
                                             char why_out[YB_CONDUCTOR_WHY_BYTES]);

/* How far a request has come; with the stage `moved`, how instructions of any request, or of none,
 * have ended. Fails with NOT_FOUND: it has ended, or was never accepted. */
YB_CHECKED enum yb_status yb_conductor_done(struct yb_conductor *conductor,
                                            const struct yb_wire_conductor_done *said,
                                            uint64_t now_ns);

/* Bring blocks to a node, though no request asks for it. On OK *id_out is the instruction's. Fails
 * with NOT_FOUND (no such node), INVALID, UNSUPPORTED (it orders no moves) or NO_SPACE (too many
 * such moves have not ended). */
YB_CHECKED enum yb_status yb_conductor_move(struct yb_conductor *conductor,
                                            const struct yb_wire_conductor_move *asked,
                                            uint64_t now_ns, uint64_t *id_out,
                                            char why_out[YB_CONDUCTOR_WHY_BYTES]);

/* Whether an instruction has not ended. */
bool yb_conductor_is_open(struct yb_conductor *conductor, uint64_t id);

/* ---- looking --------------------------------------------------------------------------------- */

#define YB_CONDUCTOR_REASONS  6u  /* Of enum yb_sched_reason; 0 is `none`. */
#define YB_CONDUCTOR_OUTCOMES 10u /* Of enum yb_wire_conductor_outcome; 0 is `open`. */

struct yb_conductor_info {
    const char *routing;
    const char *admission;
    uint32_t conductor;
    uint32_t block_tokens;
    uint32_t models;
    uint32_t instances;
    uint32_t nodes;
    uint32_t requests; /* That have not ended. */
    uint64_t decisions;
    uint64_t rejected;
    uint64_t rejected_for[YB_CONDUCTOR_REASONS];
    uint64_t forgotten; /* For want of room. */
    uint64_t expired;   /* Instances that did not report. */
    uint64_t blocks;
    uint64_t refused_blocks;
    uint64_t issued; /* Instructions. */
    uint64_t outcomes[YB_CONDUCTOR_OUTCOMES];
    uint64_t carried_open; /* Of those that are open, what the conductor has carried out. */
    uint64_t hot;          /* Instructions that heat asked for, ... */
    uint64_t windowed;     /* ... and those that the window has wait. */
    struct {               /* Of each model; size 0: nothing was measured yet. */
        uint32_t size;
        uint64_t lead_ns; /* So long before it is wanted a move begins. */
    } windows[YB_CONDUCTOR_MODELS_MAX];
};
void yb_conductor_info(const struct yb_conductor *conductor, struct yb_conductor_info *info_out);

/* One place; false past the last. */
struct yb_conductor_place {
    char name[YB_CONDUCTOR_NAME_BYTES]; /* "": there is none with this number. */
    char address[YB_CONDUCTOR_NAME_BYTES];
    char model[YB_CONDUCTOR_NAME_BYTES];
    char node[YB_CONDUCTOR_NAME_BYTES];
    bool storage;
    uint8_t roles;
    uint64_t incarnation;
    uint64_t heard_ns; /* When it last said something. */
    uint64_t sequence;
};
bool yb_conductor_place(const struct yb_conductor *conductor, uint32_t number,
                        struct yb_conductor_place *place_out);

/* ---- the log --------------------------------------------------------------------------------- */

struct yb_conductor_replayed {
    uint64_t records;
    uint64_t decisions;
    uint64_t differing;
    uint64_t first_differing; /* The number of its record, from 1; 0: none. */
    uint64_t used_bytes;      /* Less than there are: the end is cut off. */
};

/* Run a log again and compare its decisions. Fails with INVALID (it is no log; the sentence says
 * where and why) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_conductor_replay(const void *bytes, size_t length,
                                              struct yb_conductor_replayed *replayed_out,
                                              char why_out[YB_CONDUCTOR_WHY_BYTES]);

#endif /* YB_CONDUCTOR_CONDUCTOR_H */
