/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_internal.h -- the parts of an engine, shared by the files that make it up.
 *
 *     engine.c       create, destroy, notifications
 *     engine_memory.c  register and allocate
 *     engine_peer.c  peers, probe, drain, fence
 *     near.c         what a store needs beside that
 *     engine_batch.c submit, poll, wait, cancel, release
 *     remote.c       a peer on its worker: queue, paths, batches
 *     copies.c       a worker's copies to and from devices, and their staging slices
 *     stage.c        slices of device memory
 *     across.c       slices from device to device, within the process
 *     quiet.c        when nothing can land any more
 *     service.c      the answering side: writes, reads, notifications, drains
 *     plan.c         which bytes move together
 *     tcp/ shm/      the paths
 *
 * Locks: one per engine, rank ENGINE, for the tables of batches and peers and the queue of
 * notifications; no callback, mail excepted, runs under it.
 */
#ifndef YB_TRANSFER_ENGINE_INTERNAL_H
#define YB_TRANSFER_ENGINE_INTERNAL_H

#include <pthread.h>

#include "base/lock.h"
#include "base/stats.h"
#include "memory/memory_type.h"
#include "memory/region.h"
#include "net/credentials.h"
#include "net/replay.h"
#include "net/server.h"
#include "net/worker.h"
#include "transfer/batch.h"
#include "transfer/copies.h"
#include "transfer/path.h"
#include "transfer/remote.h"

#define YB_TRANSFER_MAGIC 0x7472616eu
#define YB_REMOTE_MAGIC   0x72656d6fu

#define YB_TRANSFER_PEERS_MAX         1024u
#define YB_TRANSFER_REFUSALS          64u /* Statuses are numbered down from 0. */
#define YB_TRANSFER_NOTIFICATIONS_MAX 1024u
#define YB_TRANSFER_SLICES_PER_WORKER 2048u /* But for those reserved: remote.h. */

struct yb_shm_host;
struct yb_inbound; /* A request of a peer that is being carried out: service.c. */

/* What an engine stands on: time, chance, and who turns its workers' loops. */
struct yb_transfer_ground {
    const struct yb_clock *clock;
    yb_span_random_fn *random;
    void *random_context;
    struct yb_id identity;      /* Whose engine it is; none: a process of its own. */
    struct yb_span_ring *spans; /* The process's; NULL: the engine makes its own. */
    struct yb_stats *stats;     /* The same. */
    struct yb_io *const *ios;   /* One for each worker, driven by the caller; NULL: threads. */
    void (*wait)(void *driver); /* With ios: let something happen, in place of sleeping. */
    void *driver;
    bool near; /* With ios: every peer is as near as one that maps our memory. */
};

/* What a worker of the engine has beside its loop and net. */
struct yb_transfer_worker {
    struct yb_transfer *engine;
    uint32_t index;
    struct yb_worker *worker;
    struct yb_loop *loop;
    struct yb_net *net;
    struct yb_copies copies;
    struct yb_slice *slices; /* Free ones. */
    uint32_t slices_used;
    uint32_t starved_count; /* Batches of all remotes that wait for a slice. */
    uint32_t parked_count;  /* Slices of all remotes that wait for staging. */
    uint64_t across_slices; /* That a driver has copied to or from a neighbour, */
    uint64_t across_bytes;
    uint64_t across_refused;   /* and those between neighbours that had to go another way. */
    uint32_t quarantined;      /* Slices of all remotes that a driver has not ended, */
    uint64_t quarantined_ever; /* and how many it did not in time. */
    struct yb_inbound *inbound_free;
    struct yb_inbound *inbound;        /* Being carried out. */
    uint64_t inbound_ever;             /* How many there were. */
    struct yb_inbound *unstaged_first; /* Reads among them that wait for staging. */
    struct yb_inbound *unstaged_last;
    struct yb_task unstaged_task; /* Looks for them when a slice was given back. */
    uint8_t *trash;               /* Where the bytes of refused fragments go. */
    uint64_t suspicious_ns;       /* Until then memory is looked at before it is used: service.c. */
    struct yb_remote *remotes;
    uint64_t refused[YB_TRANSFER_REFUSALS]; /* Fragments of peers, by the number of the status. */
};

struct yb_peer_slot {
    uint32_t generation;
    bool used;
    bool opening;
    struct yb_transfer_worker *worker;
    struct yb_remote *remote; /* Its worker's; here to be handed there. */
};

struct yb_transfer {
    uint32_t magic;
    struct yb_transfer_options options; /* Texts are not kept. */
    struct yb_transfer_ground ground;
    char tenant[YB_AUTH_TENANT_MAX + 1];
    struct yb_credentials credentials;
    struct yb_hello_self self;
    struct yb_stats *stats;
    struct yb_span_ring *spans; /* The ground's, or its own. */
    struct yb_replay *replay;
    struct yb_memory *memory;
    struct yb_memory_neighbour neighbour; /* What other engines of the process find. */
    struct yb_region_table *regions;
    struct yb_shm_host *shm; /* NULL: that path is switched off. */
    struct yb_server *server;
    struct yb_address address;
    struct yb_method methods[8];
    uint32_t method_count;
    struct yb_service service;
    struct yb_transfer_worker *workers;
    uint32_t worker_count;
    struct yb_net *nets[64]; /* Of the workers, for the server. */

    struct yb_lock lock;    /* Protects everything below. */
    pthread_cond_t changed; /* A batch has ended, or an order was carried out. */
    struct yb_batch **batches;
    uint32_t batch_count;
    uint64_t batches_ended; /* Ever. */
    uint32_t *batch_free;
    uint32_t batch_free_count;
    struct yb_peer_slot peers[YB_TRANSFER_PEERS_MAX];
    struct yb_allocation *allocations;              /* engine_memory.c */
    struct yb_transfer_notification *notifications; /* A ring. */
    uint32_t notification_head;
    uint32_t notification_count;
};

/* ---- engine.c ---- */

/* yb_transfer_create(), with other ground than the machine's: a simulated host, where everything
 * happens in the thread of its driver. Paths that need the machine (shm) must be switched off. What
 * `ground` names is borrowed for the engine's life. */
YB_CHECKED enum yb_status yb_transfer_create_on(const struct yb_transfer_ground *ground,
                                                const struct yb_transfer_options *options,
                                                struct yb_transfer **engine_out, char *message_out,
                                                size_t message_bytes);

uint64_t yb_transfer_now(const struct yb_transfer *engine);

/* Give the lock up until something may have changed, for at most `step_ns`. */
void yb_transfer_wait_locked(struct yb_transfer *engine, uint64_t step_ns);

/* ---- engine_memory.c ---- */

/* Unmap what was allocated; nothing may use it any more. */
void yb_transfer_memory_fini(struct yb_transfer *engine);

/* ---- engine_batch.c ---- */

/* The last item of a batch has ended: tell whoever waits. On its worker. */
void yb_transfer_batch_ended(struct yb_batch *batch);

/* A peer is quiet: those of its batches that had ended by `ended_as` are in doubt no more. */
void yb_transfer_clear_doubt(struct yb_transfer *engine, yb_transfer_peer peer, uint64_t ended_as);

/* ---- engine_peer.c ---- */

/* Return the slot of an open peer, NULL if it is none. */
struct yb_peer_slot *yb_transfer_find_peer_locked(struct yb_transfer *engine,
                                                  yb_transfer_peer peer);

/* ---- service.c ---- */

void yb_transfer_service_init(struct yb_transfer *engine);
/* Whether anything that `identity` sent is still being carried out here, of the first `ever`
 * requests that the worker took. */
bool yb_transfer_inbound_busy(struct yb_transfer_worker *worker, struct yb_id identity,
                              uint64_t ever);
/* Free what the worker has for answering; nothing may be under way. */
void yb_transfer_inbound_fini(struct yb_transfer_worker *worker);
/* A peer may reach this engine's memory: same tenant, or a node or admin. */
bool yb_transfer_peer_allowed(const struct yb_transfer *engine, const struct yb_hello_result *peer);

#endif /* YB_TRANSFER_ENGINE_INTERNAL_H */
