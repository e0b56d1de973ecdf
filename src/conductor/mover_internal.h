/* SPDX-License-Identifier: Apache-2.0
 *
 * The mover's state, for its two files.
 *
 *     mover.c        orders, pieces, and how they end
 *     mover_nodes.c  who is in the store, and how to speak to them
 */
#ifndef YB_CONDUCTOR_MOVER_INTERNAL_H
#define YB_CONDUCTOR_MOVER_INTERNAL_H

#include "conductor/mover.h"
#include "directory/wire/directory_wire.h"
#include "net/loop.h"
#include "net/peer.h"
#include "node/wire/node_wire.h"

#define YB_MOVER_MAGIC      0x6d6f7672u
#define YB_MOVER_PIECES     64u
#define YB_MOVER_PEERS      64u
#define YB_MOVER_VALUES_MAX YB_WIRE_INSTRUCTION_BLOCKS_MAX
#define YB_MOVER_NAME_BYTES 65u

/* A node of the store. */
struct yb_mover_node {
    char name[YB_MOVER_NAME_BYTES];
    char address[YB_MOVER_NAME_BYTES];
    uint64_t incarnation;
    uint16_t slot;
};

/* A node that is, or was lately, spoken to. */
struct yb_mover_peer {
    char address[YB_MOVER_NAME_BYTES];
    struct yb_peer *peer; /* NULL: free. */
    uint32_t under_way;
    uint64_t used_ns;
};

/* An order, until it has ended. */
struct yb_mover_order {
    struct yb_mover_order *next;
    struct yb_conductor_order *order;
    uint64_t values;    /* Blocks times parts. */
    uint64_t begun;     /* Of these. */
    uint32_t under_way; /* Pieces. */
    bool over;          /* No more is begun. */
    bool unwanted;
    uint64_t what[YB_WIRE_INSTRUCTED_UNUSED + 1]; /* Values by what became of them, */
    uint64_t timed_out;                           /* of FAILED those for want of time, */
    uint64_t tiers[YB_WIRE_TIER_OBJECT + 1];      /* of those that came by tier. */
    uint64_t started_ns;
    uint64_t finished_ns;
    uint64_t bytes;
};

enum yb_mover_phase { YB_MOVER_LOOKS, YB_MOVER_MOVES, YB_MOVER_LEAVES, YB_MOVER_WATCHES };

/* Values of an order that are asked for together. */
struct yb_mover_piece {
    struct yb_call call;
    struct yb_timer timer;
    struct yb_conductor_mover *mover;
    struct yb_mover_order *of; /* NULL: free. */
    enum yb_mover_phase phase;
    struct yb_mover_peer *peer; /* That its call goes to; NULL: the directory. */
    uint64_t first;
    uint32_t count;
    uint32_t open; /* Values without an outcome. */
    uint64_t sent_ns;
    bool over[YB_MOVER_VALUES_MAX];        /* It has its outcome. */
    bool found[YB_MOVER_VALUES_MAX];       /* And was not asked for since. */
    uint16_t sources[YB_MOVER_VALUES_MAX]; /* Slots; 0: the node itself has it. */
    uint64_t grants[YB_MOVER_VALUES_MAX];
    struct yb_id hashes[YB_MOVER_VALUES_MAX];
    uint8_t asked[YB_MOVER_VALUES_MAX]; /* The values of the present message, in its order. */
    uint32_t asked_count;
    uint16_t source; /* Of that message; 0: none. */
    uint8_t body[8192];
    uint8_t reply[8192];
};

struct yb_conductor_mover {
    uint32_t magic;
    struct yb_conductor_mover_options options;
    struct yb_loop *loop;
    struct yb_timer timer; /* Something may begin. */
    bool stopping;
    struct yb_mover_order *first;
    uint32_t orders;
    struct yb_mover_piece *pieces;

    /* ---- mover_nodes.c ---- */
    struct yb_peer *directory;
    struct yb_call members_call;
    bool asking;
    uint64_t listed_ns; /* 0: never. */
    uint8_t *members;   /* Room for the answer. */
    struct yb_mover_node *nodes;
    uint32_t node_count;
    struct yb_mover_peer peers[YB_MOVER_PEERS];
};

static inline uint64_t
yb_mover_now(const struct yb_conductor_mover *mover)
{
    return yb_loop_now(mover->loop);
}

/* ---- mover_nodes.c --------------------------------------------------------------------------- */

YB_CHECKED enum yb_status yb_mover_nodes_create(struct yb_conductor_mover *mover);
void yb_mover_nodes_stop(struct yb_conductor_mover *mover);
void yb_mover_nodes_destroy(struct yb_conductor_mover *mover);

/* Ask who is there, if that was not asked for a second, or `now` at once; yb_mover_pump() follows.
 */
void yb_mover_nodes_ask(struct yb_conductor_mover *mover, bool now);

/* Whether what is known of them is as of the last second. */
bool yb_mover_nodes_fresh(const struct yb_conductor_mover *mover);

/* Return a node, in its latest life; NULL: it is not there. Borrowed until the next turn of the
 * loop. */
const struct yb_mover_node *yb_mover_node_named(const struct yb_conductor_mover *mover,
                                                const char *name);
const struct yb_mover_node *yb_mover_node_at(const struct yb_conductor_mover *mover, uint16_t slot);

/* Return who is spoken to at an address; NULL: too many are, or it is no address. */
struct yb_mover_peer *yb_mover_peer_of(struct yb_conductor_mover *mover, const char *address);

/* ---- mover.c --------------------------------------------------------------------------------- */

/* Begin what may begin. */
void yb_mover_pump(struct yb_conductor_mover *mover);

#endif /* YB_CONDUCTOR_MOVER_INTERNAL_H */
