/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_internal.h -- the state of one run, for simulator*.c alone.
 *
 *   simulator.c        the loop: arrivals, events, ends
 *   simulator_make.c   making and freeing a run; the result
 *   simulator_load.c   what is moved for a request, and what its prefill leaves in the tiers
 */
#ifndef YB_SIM_SIMULATOR_INTERNAL_H
#define YB_SIM_SIMULATOR_INTERNAL_H

#include "sim/agenda.h"
#include "sim/instance.h"
#include "sim/simulator.h"
#include "sim/stock.h"

enum yb_simulator_event {
    YB_SIMULATOR_ARRIVAL,
    YB_SIMULATOR_STEP,  /* Of instance `who`, with its stamp. */
    YB_SIMULATOR_FLOW,  /* Flow `who` may be through. */
    YB_SIMULATOR_FETCH, /* Request `who` may fetch what others had to compute first. */
};

enum yb_simulator_state {
    YB_SIMULATOR_COMING,
    YB_SIMULATOR_PREFILL, /* Loading, waiting or in prefill. */
    YB_SIMULATOR_DECODE,
    YB_SIMULATOR_DONE,
    YB_SIMULATOR_REJECTED,
};

/* Copies that stay where they are until a request has used them. */
struct yb_simulator_pins {
    struct yb_stock_copy **copies;
    uint32_t count;
    uint32_t room;
};

struct yb_simulator_request {
    struct yb_instance_job job;
    struct yb_simulator_pins pins; /* At its own place, until its prefill begins. */
    uint64_t number;               /* Of the conductor's decision. */
    uint64_t first_ns;             /* Tokens. */
    uint64_t last_ns;
    uint32_t prefill; /* Places. */
    uint32_t decode;
    uint32_t source;
    uint32_t source_tier;
    uint32_t local_blocks;
    uint32_t reuse_blocks; /* Wanted; then: begun to load. */
    uint32_t flows;        /* Loads that are not through. */
    uint32_t tokens_from[YB_RESULT_SOURCES];
    uint8_t state;
    uint8_t conductor;
    bool streaming; /* To the decode place; not through. */
    bool prefilled;
    bool refused;  /* By its decode place. */
    bool fetching; /* Waits for its FETCH event. */
};

/* What a flow is for. */
struct yb_simulator_flow {
    struct yb_fabric_flow flow;
    struct yb_simulator_pins pins; /* At its source. */
    uint32_t request;
    uint32_t next; /* Of those that are not in use. */
    bool stream;
};

struct yb_simulator_place {
    struct yb_instance instance;
    struct yb_tally gaps;
    uint32_t shelves[YB_SCHED_LOCAL_TIERS];
    uint64_t report_sequence;
    uint64_t reported_ns;
    uint32_t queued; /* Requests before their first token. */
    uint32_t in_flight[YB_SIMULATOR_CONDUCTORS_MAX];
    uint64_t seen[YB_SIMULATOR_CONDUCTORS_MAX];
    bool changed;
};

/* What `gone` of the stock was told, to be dealt with after the put. */
struct yb_simulator_gone {
    uint32_t shelf;
    uint32_t block;
};

struct yb_simulator {
    const struct yb_scenario *scenario;
    const struct yb_trace *trace;
    struct yb_agenda *agenda;
    struct yb_fabric *fabric;
    struct yb_stock *stock;
    struct yb_sched *scheds[YB_SIMULATOR_CONDUCTORS_MAX];
    struct yb_sched_scratch *scratches[YB_SIMULATOR_CONDUCTORS_MAX];
    uint32_t conductors;
    uint32_t place_count;
    struct yb_simulator_place *places;
    struct yb_simulator_request *requests;
    uint32_t *changed; /* Places whose report is not the newest. */
    uint32_t changed_count;
    struct yb_simulator_flow *flows;
    uint32_t flow_count;
    uint32_t flow_room;
    uint32_t flow_unused; /* Chain by `next`; UINT32_MAX: none. */
    struct yb_simulator_gone *gone;
    uint32_t gone_count;
    uint32_t gone_room;
    uint64_t *names; /* Of the blocks of the request that is looked at. */
    uint32_t object_shelf;
    uint32_t ended;
    uint32_t avoided; /* Decisions past a hotspot. */
    uint64_t last_ns;
    uint64_t held_pins;
    enum yb_status status; /* The first failure, inside callbacks. */
};

/* The name of a block for the scheduler: spread over 64 bits, never 0. */
uint64_t yb_simulator_name(uint32_t block);

/* Return the tokens of block `index` of a request. */
uint32_t yb_simulator_block_tokens(const struct yb_simulator *simulator, uint32_t request,
                                   uint32_t index);
uint32_t yb_simulator_block(const struct yb_simulator *simulator, uint32_t request, uint32_t index);

YB_CHECKED enum yb_status yb_simulator_enter(struct yb_simulator *simulator,
                                             enum yb_simulator_event kind, uint32_t who,
                                             uint64_t at_ns, uint64_t stamp);

/* ---- simulator_make.c ------------------------------------------------------------------------ */

YB_CHECKED enum yb_status yb_simulator_make(struct yb_simulator *simulator, char *message);
void yb_simulator_free(struct yb_simulator *simulator);
YB_CHECKED enum yb_status yb_simulator_result(struct yb_simulator *simulator,
                                              struct yb_result *result_out);

/* ---- simulator_load.c ------------------------------------------------------------------------ */

/* Begin to load what a decision wants reused, as far as it is there. */
YB_CHECKED enum yb_status yb_simulator_load(struct yb_simulator *simulator, uint32_t request,
                                            const struct yb_sched_decision *decision);

/* Fetch what comes from the source now. */
YB_CHECKED enum yb_status yb_simulator_fetch(struct yb_simulator *simulator, uint32_t request);

/* What yb_instance_begin_fn wants: `context` is the simulator. */
void yb_simulator_begin(void *context, struct yb_instance_job *job, uint64_t now_ns);

/* The event of a flow has come. *through_out: it is done, and is given back; its request is
 * *request_out, and whether it was a stream. */
struct yb_simulator_through {
    uint32_t request;
    bool through;
    bool stream;
};
YB_CHECKED enum yb_status yb_simulator_flow_event(struct yb_simulator *simulator, uint32_t flow,
                                                  struct yb_simulator_through *through_out);

/* Put the blocks of a request that is prefilled where it ran. */
YB_CHECKED enum yb_status yb_simulator_keep(struct yb_simulator *simulator, uint32_t request);

/* The callback of the stock. */
void yb_simulator_gone(void *context, uint32_t shelf, uint32_t block);

void yb_simulator_unpin(struct yb_simulator *simulator, struct yb_simulator_pins *pins);

#endif /* YB_SIM_SIMULATOR_INTERNAL_H */
