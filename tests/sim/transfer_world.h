/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_world.h -- transfer engines on the simulated network, and what must hold of them.
 *
 * A world holds nodes. A node is a host; while it is up an engine lives there, driven by hand
 * (yb_transfer_create_on), with an area that the others write and read, and local memory of
 * its own. A claim is one batch and the cells of the target's area that it may touch:
 *
 *     submit --> RUNNING --done--> quiet: judged, its memory is filled anew and free
 *                             \--> DOUBTED --drain or fence--> judged, filled anew, free
 *
 * Calls that wait let the world go on meanwhile, and `meddle` do more harm.
 *
 * Invariants
 *   X1  Each batch ends once, by its deadline on its host's clock or when it is cancelled;
 *       each item has one outcome, and the batch's sums are those of its items.
 *   X2  An item that is OK has exactly the source's bytes at its destination; any other has
 *       none but its old bytes and the source's.
 *   X3  What is quiet stays so: memory that was filled anew when an item had ended without
 *       doubt, or when a drain or fence had returned, keeps its bytes (T2, RULES A2).
 *   X4  A cell is pinned for writing at most once for each of its items, and not at all when
 *       they are quiet: at most one attempt can write (T1).
 *   X5  A notification arrives at most once, when all bytes are there, and never if an item
 *       failed.
 *   X6  When nothing is asked for any more, no batch, slice, request, or pin is left.
 *
 * Threads   One.
 * Failure   What does not hold is printed with the seed and the last events, and aborts.
 */
#ifndef YB_TESTS_TRANSFER_WORLD_H
#define YB_TESTS_TRANSFER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "net/sim.h"
#include "transfer/engine_internal.h"

#define WORLD_NODES_MAX   3u
#define WORLD_WORKERS_MAX 2u
#define WORLD_HANDLES     2u /* Of each other node. */
#define WORLD_CELLS       24u
#define WORLD_CELL_BYTES  32768u
#define WORLD_AREA_BYTES  (WORLD_CELLS * WORLD_CELL_BYTES)
#define WORLD_ITEMS_MAX   (8u * WORLD_CELLS)
#define WORLD_CLAIMS_MAX  4096u
#define WORLD_DEAD_MAX    64u

/* Cells below this are written only, so that their pins are those of writes. */
#define WORLD_READ_FROM (WORLD_CELLS / 2)

/* The end of a batch may be late by ticks of the wheel and the runs that a reset takes. */
#define WORLD_SLACK_NS (20 * YB_TIMER_TICK_NS)

struct world;
struct node;

struct world_process {
    struct node *node;
    uint32_t index;
    struct yb_sim_process *process;
};

/* Bytes that others use, and what they must be where nobody may. */
struct world_area {
    uint8_t *bytes;
    uint8_t *model;
};

struct node {
    struct world *world;
    uint32_t number;
    struct yb_sim_host *host;
    struct yb_transfer *engine; /* NULL: down, or going. */
    struct yb_loop *loops[WORLD_WORKERS_MAX];
    struct world_process processes[WORLD_WORKERS_MAX];
    uint32_t life; /* Counts starts and ends. */
    struct yb_id identity;
    uint64_t random;
    bool stalled;
    bool silent; /* Its host has lost power. */
    bool dying;  /* Crashed: its loops are turned by hand until it is buried. */
    uint32_t busy;
    uint64_t disturbed_ns; /* On its own clock: it was stopped, or its clock jumped. */
    bool registered;       /* Its memory is. */
    bool cell_regions;     /* Each cell is a region, or all are one. */
    yb_transfer_region regions[WORLD_CELLS];
    yb_transfer_peer peers[WORLD_NODES_MAX][WORLD_HANDLES];
    struct world_area area;
    struct world_area local;
    struct claim *cells[WORLD_CELLS];
    struct claim *local_cells[WORLD_CELLS];
};

struct claim {
    struct world *world;
    struct claim *next;
    uint32_t number;
    struct node *from;
    struct node *to;
    uint32_t from_life;
    uint32_t to_life;
    struct yb_id identity; /* Of the engine that moves. */
    yb_transfer_peer peer;
    yb_transfer_batch batch;
    uint32_t op;
    bool by_address;
    bool notifies;
    bool ended;
    bool doubted;
    uint32_t asked; /* The drain or fence that was begun after it was in doubt. */
    uint32_t notified;
    uint32_t first; /* Of the target's cells ... */
    uint32_t count;
    uint32_t local_first; /* ... and of the source's. */
    uint64_t submitted_ns;
    uint64_t deadline_ns; /* Of its own, or from when it was cancelled. */
    uint32_t item_count;
    uint32_t at[WORLD_ITEMS_MAX + 1]; /* Where each item begins; and the end. */
    struct yb_transfer_item_status ends[WORLD_ITEMS_MAX];
    uint8_t *moved; /* The bytes of the source. */
    uint8_t *old;   /* Those of the destination before. */
};

struct world_options {
    uint64_t seed;
    uint32_t node_count;
    uint32_t workers;
    uint32_t streams;
};

/* Of all seeds together. */
struct world_counts {
    uint64_t batches;
    uint64_t ok;
    uint64_t failed;
    uint64_t doubted;
    uint64_t drained;
    uint64_t fenced;
    uint64_t crashes;
    uint64_t retries;
};

struct world {
    struct world_options options;
    struct yb_sim *sim;
    struct node nodes[WORLD_NODES_MAX];
    struct claim *claims; /* Running or in doubt. */
    uint32_t running;
    uint32_t claim_count; /* Ever. */
    uint8_t notified[WORLD_CLAIMS_MAX];
    struct yb_id dead[WORLD_DEAD_MAX]; /* Identities of engines that crashed. */
    uint32_t dead_count;
    uint32_t asks;
    uint64_t fills;
    uint64_t digest; /* Of all outcomes: equal seeds, equal digests. */
    uint32_t waiting;
    void (*meddle)(void *arg); /* Between two steps of a call that waits; must not wait. */
    void *meddle_arg;
    struct world_counts counts;
    const char *repeat; /* What to type to see a failure again. */
};

#define WORLD_CHECK(world, condition)                              \
    do {                                                           \
        if (!(condition)) {                                        \
            world_failed((world), #condition, __FILE__, __LINE__); \
        }                                                          \
    } while (0)

_Noreturn void world_failed(const struct world *world, const char *what, const char *file,
                            int line);

struct world *world_create(const struct world_options *options);

/* Check X6, end all engines and set *world to NULL. */
void world_destroy(struct world **world);

/* Let virtual time pass. */
void world_run_ms(struct world *world, uint64_t ms);

/* Let time pass until no batch runs. Returns whether that was within `limit_ms`. */
bool world_run_until_ended(struct world *world, uint64_t limit_ms);

/* Check X3 and X4 of all memory. */
void world_check(struct world *world);

/* What to submit. */
struct world_ask {
    uint32_t from;
    uint32_t to;
    uint32_t handle;
    uint32_t op;
    uint32_t cells;
    uint32_t items_per_cell;
    uint64_t timeout_ns;
    uint32_t work_class;
    bool by_address;
    bool notifies;
    bool whole; /* Items that are larger than slices, where regions allow it. */
};

/* Submit a batch on cells that are free. Returns its number, UINT32_MAX if there are none. */
uint32_t world_submit(struct world *world, const struct world_ask *ask);
struct claim *world_find(const struct world *world, uint32_t number);
void world_cancel(struct claim *claim);

/* These wait. */
enum yb_status world_drain(struct world *world, uint32_t from, uint32_t to, uint32_t handle,
                           uint64_t timeout_ns);
enum yb_status world_fence(struct world *world, uint32_t at, struct yb_id identity,
                           uint64_t timeout_ns);
void world_reopen(struct world *world, uint32_t from, uint32_t to, uint32_t handle);
enum yb_status world_ask_peer(struct world *world, uint32_t from, uint32_t to, uint32_t handle,
                              uint64_t timeout_ns);
void world_start(struct world *world, uint32_t node);
void world_stop(struct world *world, uint32_t node);

void world_crash(struct world *world, uint32_t node, enum yb_sim_death how);
void world_stall(struct world *world, uint32_t node, bool stalled);
void world_skip(struct world *world, uint32_t node, uint64_t skip_ms);

/* Heal the network, resume what is stopped, start what is down. */
void world_heal(struct world *world);

/* How often calls of a node were sent again after their connection was lost. */
uint64_t world_retries(const struct node *node);
/* Whether calls of a node are under way on bulk connections. */
bool world_is_sending(const struct node *node);

/* ---- transfer_claim.c ------------------------------------------------------------------- */

void world_digest(struct world *world, uint64_t a, uint64_t b);
uint64_t world_now(const struct node *node);

/* The program uses its memory for something else: whatever was there is over. */
void world_refill(struct world *world, struct world_area *area, size_t at, size_t length);
void world_expect_model(struct world *world, const struct world_area *area, size_t at,
                        size_t length);

/* Whether the target still lives the life in which the batch was submitted. */
bool world_target_is_same(const struct claim *claim);
uint32_t world_pins(struct node *node, uint32_t cell);
/* X4, of the cells that lie in the bytes of a claim. */
void world_expect_pins(struct claim *claim, uint32_t at, uint32_t length);
void world_take_notifications(struct node *node);

/* Nothing of what was in doubt can land any more: judge it, and free the claim. */
void world_clear_doubt(struct claim *claim);
void world_release_cells(struct claim **cells, uint32_t first, uint32_t count,
                         const struct claim *claim);
void world_free_claim(struct claim *claim);

#endif /* YB_TESTS_TRANSFER_WORLD_H */
