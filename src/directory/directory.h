/* SPDX-License-Identifier: Apache-2.0
 *
 * directory.h -- the process that knows where blocks are, decides who wins, and who is a member.
 *
 * One state machine on one net. It serves the frames of docs/protocol-directory.md, and calls
 * nodes (drop, flush, hold, copy) as a directory. docs/store.md tells the protocol; RULES that
 * it keeps: A5-A11, B2-B5, C1, C6-C9.
 *
 *     create --> service (into the options of a net) --> start --> REBUILDING --> SERVING
 *                                                                      stop --> destroy
 *
 * Invariants
 *   D1  Nothing is answered before the epoch is durable in the cluster file, and higher than every
 *       epoch in it and in any grant that was seen.
 *   D2  At most one grant of a key is current; grants only grow.
 *   D3  remove, remove_all and a publication of mode replace are answered OK only when every
 *       slot that held what they end has confirmed, or is dead.
 *   D4  A slot is dead only after a lease and a margin without an answered heartbeat, not
 *       counting the time in which this process itself was stalled.
 *   D5  What is bounded is bounded by the options: records, writes, events, repairs.
 *
 * Threads   The thread of its net's loop.
 * Memory    The directory owns its index and tables, allocated as they fill, up to the options.
 * Time      The loop's clock, monotonic, for leases; the wall clock is only shown.
 */
#ifndef YB_DIRECTORY_DIRECTORY_H
#define YB_DIRECTORY_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_directory;
struct yb_helper_pool;

/* clang-format off */
/*    id           kind       unit         name                labels  help */
#define YB_DIRECTORY_STATS(X)                                                                       \
    X(LOOKUPS,     COUNTER,   COUNT,       "lookups",          NULL, NULL, "keys looked up")        \
    X(HITS,        COUNTER,   COUNT,       "hits",             NULL, NULL,                          \
      "keys looked up that were there")                                                             \
    X(GRANTED,     COUNTER,   COUNT,       "granted",          NULL, NULL,                          \
      "publications of new blocks that were granted")                                               \
    X(LOST_RACES,  COUNTER,   COUNT,       "lost_races",       NULL, NULL,                          \
      "publications that another write had won")                                                    \
    X(EXISTED,     COUNTER,   COUNT,       "existed",          NULL, NULL,                          \
      "announcements of puts that were refused, for their key was there")                           \
    X(IN_PROGRESS, COUNTER,   COUNT,       "in_progress",      NULL, NULL,                          \
      "announcements that were told to wait for another writer")                                    \
    X(WITHDRAWN,   COUNTER,   COUNT,       "withdrawn",        NULL, NULL,                          \
      "replicas that nodes dropped")                                                                \
    X(REMOVED,     COUNTER,   COUNT,       "removed",          NULL, NULL, "keys removed")          \
    X(GAPS,        COUNTER,   COUNT,       "gaps",             NULL, NULL,                          \
      "publications that came before the one that was expected")                                    \
    X(REPLAYED,    COUNTER,   COUNT,       "replayed",         NULL, NULL,                          \
      "publications that came again")                                                               \
    X(ORDERS,      COUNTER,   COUNT,       "orders",           NULL, NULL,                          \
      "drops and flushes that nodes were told")                                                     \
    X(ORDER_RETRIES, COUNTER, COUNT,       "order_retries",    NULL, NULL,                          \
      "messages with orders that had to be sent again")                                             \
    X(HOLDS_LOST,  COUNTER,   COUNT,       "holds_lost",       NULL, NULL,                          \
      "holds that were not passed on to a node for want of room")                                   \
    X(REGISTERED,  COUNTER,   COUNT,       "registered",       NULL, NULL, "registrations of nodes") \
    X(FENCED,      COUNTER,   COUNT,       "fenced",           NULL, NULL,                          \
      "lives of nodes that were fenced")                                                            \
    X(DIED,        COUNTER,   COUNT,       "died",             NULL, NULL,                          \
      "lives of nodes whose lease ran out")                                                         \
    X(REPAIRED,    COUNTER,   COUNT,       "copies",           NULL, NULL,                          \
      "copies made to have as many replicas as wanted, or to drain a node")                         \
    X(REPAIRED_BYTES, COUNTER, BYTES,      "copied",           NULL, NULL, "bytes of such copies")  \
    X(REPAIR_FAILED, COUNTER, COUNT,       "copies_failed",    &yb_stats_label_status, NULL,        \
      "such copies that failed, to be tried again, by why")                                         \
    X(DECLINED,    COUNTER,   COUNT,       "declined",         NULL, NULL,                          \
      "blocks that clients' reuse gates told of having declined")                                   \
    X(REPAIRS_LOST, COUNTER,  COUNT,       "repairs_lost",     NULL, NULL,                          \
      "blocks that had to wait for a later sweep for want of room")                                 \
    X(REPAIRS_WAITING, GAUGE, COUNT,       "copies_waiting",   NULL, NULL,                          \
      "blocks that wait for such a copy, or are being copied")                                      \
    X(REPAIR_RATE, GAUGE,     COUNT,       "copies_per_second", NULL, NULL,                         \
      "blocks copied in the last second")                                                           \
    X(REPAIR_BYTES_RATE, GAUGE, BYTES,     "copied_per_second", NULL, NULL,                         \
      "bytes copied in the last second")                                                            \
    X(RECORDS,     GAUGE,     COUNT,       "records",          NULL, NULL, "blocks in the index")   \
    X(MEMBERS,     GAUGE,     COUNT,       "members",          NULL, NULL, "lives of nodes")        \
    X(REBUILDING,  GAUGE,     COUNT,       "rebuilding",       NULL, NULL,                          \
      "1 while absences are not known")                                                             \
    X(LOOKUP_TIME, HISTOGRAM, NANOSECONDS, "lookup",           NULL, NULL,                          \
      "from a lookup's arrival at the directory to its answer")                                    \
    X(SWEEP_STEP,  HISTOGRAM, NANOSECONDS, "sweep_step",       NULL, NULL,                          \
      "one step of the sweep: how long everything else waits for it")
/* clang-format on */

enum yb_directory_stat {
#define X(id, ...) YB_DIRECTORY_STAT_##id,
    YB_DIRECTORY_STATS(X)
#undef X
        YB_DIRECTORY_STAT_COUNT
};

struct yb_directory_options {
    const char *cluster_file; /* Borrowed for create; NULL or "": none, a new cluster each time. */
    /* A cluster file that lives in memory, for the simulation: load() copies what was stored last
     * (0 bytes: nothing) and store() is durable when it returns OK. NULL: the file above. */
    const struct yb_directory_storage *storage;
    /* Without a file: go on as this cluster; borrowed for create. NULL: begin a new one. */
    const struct yb_directory_known *known;
    uint32_t lease_ms;    /* 0: 2000. */
    uint64_t records_max; /* 0: 16 Mi. */
    uint32_t writes_max;  /* Intents and recent writes; 0: 65536. */
    uint32_t events_max;  /* Events kept for subscribers, a power of two; 0: 65536. */
    uint32_t repairs_max; /* Copies under way at a time; 0: 64. */
    /* For subscribers: publications carry full keys, and the index keeps parents. */
    bool want_keys;
    const struct yb_directory_limit *limits; /* Bytes that tenants may use; borrowed for create. */
    uint32_t limit_count;
    /* A thread of it takes memory for the index ahead, so that a publication never waits for that;
     * borrowed until destroy. NULL: the directory takes the time itself. */
    struct yb_helper_pool *helpers;
    struct yb_stats *stats; /* As for a net; may be NULL. */
    struct yb_log *log;
    yb_span_random_fn *random; /* For a new cluster's id and seed. */
    void *random_context;
};

/* Most bytes that a tenant may use on all nodes together. */
struct yb_directory_limit {
    const char *tenant;
    uint64_t bytes;
};

/* A cluster whose file is lost, as far as an object store tells (tier/object/claim.h): who were its
 * members, and what they hold in memory and on disks, is not known any more. */
struct yb_directory_known {
    struct yb_id cluster;
    uint8_t seed[16];
    uint64_t epoch; /* A mark's: a few starts may not have left one. */
    const struct yb_directory_flushed {
        const char *tenant;
        uint64_t flush;
    } * flushed;
    uint32_t flushed_count;
};

struct yb_directory_storage {
    enum yb_status (*load)(void *owner, void *bytes_out, size_t room, size_t *length_out);
    enum yb_status (*store)(void *owner, const void *bytes, size_t length);
    void *owner;
};

/* Read the cluster file, raise the epoch and store it (D1).
 *
 * On OK the caller owns *directory_out. Otherwise `why_out` gets a sentence with the remedy. Fails
 * with INVALID (an option; a cluster file that is not one), VERSION (a cluster file of a newer
 * version), BUSY (another process has it), IO or NO_MEMORY. */
YB_CHECKED enum yb_status yb_directory_create(const struct yb_directory_options *options,
                                              struct yb_directory **directory_out, char *why_out,
                                              size_t why_bytes);

/* What to put into the options of its net. Borrowed for the directory's life. */
const struct yb_service *yb_directory_service(struct yb_directory *directory);

/* Begin to serve, on the net that was made with its service. */
YB_CHECKED enum yb_status yb_directory_start(struct yb_directory *directory, struct yb_net *net);

/* End timers and calls; requests that wait are answered CLOSED. The net can be shut afterwards;
 * turns of the loop later yb_directory_idle() is true. */
void yb_directory_stop(struct yb_directory *directory);
bool yb_directory_idle(const struct yb_directory *directory);

/* Consume the stopped, idle directory and set *directory to NULL. */
void yb_directory_destroy(struct yb_directory **directory);

/* What hellos need: the cluster's id, and the check value of its seed. */
struct yb_id yb_directory_cluster(const struct yb_directory *directory);
uint64_t yb_directory_seed_check(const struct yb_directory *directory);
bool yb_directory_rebuilding(const struct yb_directory *directory);

/* Return how many nodes are members, in whatever state but dead. */
uint32_t yb_directory_nodes(const struct yb_directory *directory);

#endif /* YB_DIRECTORY_DIRECTORY_H */
