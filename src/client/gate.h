/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.h -- whether loading blocks of a sequence beats computing them again. Pure.
 *
 * An engine asks which blocks of a prompt are there. What it is told it will load, before it
 * computes the rest. So of the leading run of blocks that are there as many are worth naming as
 * save the most time:
 *
 *     saving(n) = prefill of n blocks - load of the first n blocks, n = 0: nothing
 *
 *     load(n)   = the slowest path's latency + bytes of the first n on it / its rate
 *
 * The path of a block is how its bytes come from the node that would be asked. What a path is
 * like is learnt from gets of this client: of small ones the latency, of large ones the rate. A
 * path of which nothing is known yet costs nothing here: how else would it come to be known.
 *
 * Invariants
 *   G1  The run that is named loads faster than it is computed.
 *   G2  No shorter and no longer run saves more.
 *   G3  No number, however large, overflows into a small one.
 *
 * Threads   Any; state is passed in.
 */
#ifndef YB_CLIENT_GATE_H
#define YB_CLIENT_GATE_H

#include <stdint.h>

/* Gets of so few bytes tell a latency; others a rate. */
#define YB_GATE_SMALL_BYTES (64u * 1024u)

/* What is known of a path; all zero: nothing. */
struct yb_gate_path {
    uint64_t latency_ns; /* 0: not known. */
    uint64_t rate;       /* Bytes per second; 0: not known. */
};

/* A get has brought `bytes` in `elapsed_ns`, from its request on. */
void yb_gate_measure(struct yb_gate_path *path, uint64_t bytes, uint64_t elapsed_ns);

/* Return how long `bytes` take. */
uint64_t yb_gate_load_ns(const struct yb_gate_path *path, uint64_t bytes);

/* What computing costs. */
struct yb_gate_cost {
    uint64_t prefill_ns; /* Of one block of the engine; not 0. */
    uint64_t bytes;      /* Of such a block; 0: every key is one. */
};

/* A run that is looked at, block by block. */
struct yb_gate {
    struct yb_gate_cost cost;
    uint64_t prefill_ns;
    uint64_t load_ns;
    uint64_t saving_ns; /* The best one. */
    uint32_t count;
    uint32_t best;
};

void yb_gate_begin(struct yb_gate *gate, const struct yb_gate_cost *cost);

/* The next block of the run has `bytes` and comes by this path, on which `*queued` bytes come
 * before it, to which it is added. */
void yb_gate_add(struct yb_gate *gate, const struct yb_gate_path *path, uint64_t *queued,
                 uint64_t bytes);

/* Return how many blocks are worth loading. */
uint32_t yb_gate_run(const struct yb_gate *gate);

#endif /* YB_CLIENT_GATE_H */
