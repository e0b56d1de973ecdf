/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_directory.h -- a directory in a process of its own, 16 nodes and a client in this one.
 *
 *     directory   its real service over loopback; a thread of its own takes memory ahead
 *     index       one more process with an index alone, the same blocks, no wire
 *     nodes       16 processes as far as the directory can tell: each with its identity, its
 *                 registration, its heartbeats, its port and its stream of publications; they
 *                 keep no bytes, and answer every order with a refusal
 *     client      one connection, over which the questions go
 *
 * Block n has its own name, lies on node n % 16 in one of two tiers, and if n is a multiple of 10
 * on the next node too, in the other tier. Those after the last one are in flight: announced, and
 * not there yet.
 *
 * Threads   One in each process, but for the two that take memory ahead. The others die with the
 *           parent.
 */
#ifndef YB_CLI_BENCH_DIRECTORY_H
#define YB_CLI_BENCH_DIRECTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "directory/wire/directory_wire.h"
#include "net/net.h"
#include "net/peer.h"
#include "net/server.h"

#define YB_BENCH_NODES           16u
#define YB_BENCH_BLOCKS_MAX      (100u << 20)
#define YB_BENCH_OUTSTANDING_MAX 4096u
#define YB_BENCH_BLOCK_BYTES     65536u
#define YB_BENCH_MANY_KEYS       8000u /* In the one large message. */

/* ---- which block is where (pure) ------------------------------------------------------------- */

struct yb_id yb_bench_block_name(uint64_t block);
/* A pseudo-random number for every number. */
uint64_t yb_bench_mix(uint64_t number);

static inline uint32_t
yb_bench_block_node(uint64_t block, uint32_t replica)
{
    return (uint32_t)((block + replica) % YB_BENCH_NODES);
}

static inline uint8_t
yb_bench_block_tier(uint64_t block, uint32_t replica)
{
    return ((block / YB_BENCH_NODES + replica) & 1) == 0 ? YB_WIRE_TIER_DRAM : YB_WIRE_TIER_SSD;
}

#define YB_BENCH_PAIR_STEP 10u /* From one block with two replicas to the next. */

static inline uint32_t
yb_bench_block_replicas(uint64_t block)
{
    return block % YB_BENCH_PAIR_STEP == 0 ? 2 : 1;
}

static inline uint64_t
yb_bench_in_flight(uint64_t blocks)
{
    return blocks / 100 > 0 ? blocks / 100 : 1;
}

/* ---- one end of a connection ----------------------------------------------------------------- */

struct yb_bench_end {
    struct yb_loop *loop; /* Borrowed. */
    struct yb_net *net;
    struct yb_auth *auth;
    struct yb_hello_self self;
};

/* Make a net on `loop`, which speaks as `role`. Returns false, having said why on stderr; close it
 * in any case. */
bool yb_bench_end_open(struct yb_bench_end *end, const struct yb_config *config,
                       struct yb_loop *loop, uint8_t role, const struct yb_service *service);
/* Its peers must be gone. */
void yb_bench_end_close(struct yb_bench_end *end);

bool yb_bench_complain(const char *what, enum yb_status status);

/* ---- the other processes (bench_directory_server.c) ------------------------------------------ */

/* What the directory's process tells when it is asked. */
struct yb_bench_directory_page {
    atomic_uint asked;
    atomic_uint answered;
    uint64_t sweep_steps;
    uint64_t sweep_step_max_ns;
};

struct yb_bench_directory {
    pid_t pid;
    struct yb_address address;
    struct yb_bench_directory_page *page; /* Shared with it. */
    char folder[64];                      /* Of its cluster file. */
};

/* Start a directory for so many blocks. Returns false, having said why on stderr. */
bool yb_bench_directory_start(const struct yb_config *config, uint64_t blocks,
                              struct yb_bench_directory *directory_out);
void yb_bench_directory_stop(struct yb_bench_directory *directory);
bool yb_bench_directory_ask(struct yb_bench_directory *directory);

/* What an index alone, in a process of its own, does with the same blocks. Rates are per second of
 * its processor time. */
struct yb_bench_index_figures {
    double bytes_per_block;
    double publish_keys_per_s;
    double lookup_keys_per_s; /* Of the last run. */
    double sweep_step_us_max;
};

struct yb_bench_index {
    pid_t pid;
    int order_fd;
    struct yb_bench_index_figures *figures; /* Shared with it. */
};

bool yb_bench_index_start(uint64_t blocks, struct yb_bench_index *index_out);
/* Let it look up for a while; order_fd is readable when it has. */
bool yb_bench_index_begin(struct yb_bench_index *index, uint64_t run_ns);
bool yb_bench_index_end(struct yb_bench_index *index);
/* Let a node die in it, sweep, and end. Harmless if it was not started. */
bool yb_bench_index_stop(struct yb_bench_index *index);

/* ---- nodes and client (bench_directory_load.c) ----------------------------------------------- */

struct yb_bench_world;

bool yb_bench_world_open(const struct yb_config *config, const struct yb_bench_directory *directory,
                         uint64_t blocks, struct yb_bench_world **world_out);
void yb_bench_world_close(struct yb_bench_world **world);

/* Publish every block. Returns false, having said why on stderr. */
bool yb_bench_world_publish(struct yb_bench_world *world, uint64_t *keys_out);

/* Announce those in flight, again and again. */
bool yb_bench_world_announce(struct yb_bench_world *world);

struct yb_bench_lookups {
    uint32_t outstanding; /* Messages under way. */
    uint32_t keys;        /* In each of them. */
    uint64_t run_ns;
    /* ---- results ---- */
    uint64_t looked_up;
    uint64_t took_ns;
    uint64_t p50_ns; /* From sending a message to having its answer. */
    uint64_t p99_ns;
};

/* Ask for a while, then check every answer of each last message. */
bool yb_bench_world_look_up(struct yb_bench_world *world, struct yb_bench_lookups *lookups);

/* Let the nodes live until `fd` is readable. */
void yb_bench_world_rest(struct yb_bench_world *world, int fd);

struct yb_bench_death {
    uint64_t visible_ns;     /* From the fencing on. */
    uint64_t after_lease_ns; /* The part of it after the lease of the life had run out. */
};

/* Fence a node, as one that registers anew under its name does, and wait until a lookup does not
 * name it any more: until its lease has run out it may serve. Then wait until the sweep has freed
 * what was on it alone. */
bool yb_bench_world_kill(struct yb_bench_world *world, uint32_t node,
                         struct yb_bench_death *death_out);

#endif /* YB_CLI_BENCH_DIRECTORY_H */
