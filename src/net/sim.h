/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.h -- a network, its hosts and its time inside one process, for tests.
 *
 * A world holds hosts, hosts hold processes, and a process is whatever is driven by one
 * struct yb_io: an event loop with everything above it. The io of a simulated process keeps
 * the contract of io.h, so the code under test cannot tell; but what travels is decided
 * by one seeded generator and happens in virtual time, so a run of many seconds takes
 * milliseconds and repeats exactly from its seed.
 *
 *     yb_sim_step:   take the earliest event  ->  clock := its time  ->  apply it
 *                      a packet: it reaches the kernel of its host
 *                      a process is runnable: its `run` polls its io once
 *                      a call that the test asked for: a fault, a new request
 *
 * What it models is TCP as an application sees it: ordered bytes in pieces of any size; a
 * bounded number of unread bytes, then writes wait; loss as delay; silence as silence; resets
 * that overtake bytes not yet delivered. A byte stream cannot carry duplicates: the duplicates
 * that protocols must survive come from the layer above sending again after a reset. Congestion
 * control, zero-window probes and unsent_bytes_max are not modelled.
 *
 * Invariants
 *   N1  Events happen in the order of (time, sequence number), and nothing reads a clock, an
 *       address of memory or randomness of the machine: equal seeds and equal calls give
 *       equal runs (yb_sim_fingerprint).
 *   N2  The bytes of one direction arrive in order, without gaps, at most once.
 *   N3  A direction holds at most `window_bytes` that were written and not yet read.
 *   N4  Every run of a process takes at least YB_SIM_RUN_NS, so that a process that spins
 *       cannot hold the clock. Within one run no time passes: a loop that polls until its
 *       clock moved would never end, and aborts.
 *
 * Threads   A world and all that lives in it belong to one thread, yb_io_wake included.
 * Memory    The world owns hosts, processes and their ios; destroying it frees them all, and
 *           streams that are still open, without callbacks. What callers' `run` functions
 *           drive is theirs.
 * Time      Virtual; it starts at YB_SIM_START_NS. Times given to functions here are world
 *           times; what a process sees is its host's clock.
 * Failure   Running out of memory or of a bound below aborts: there is nothing to test then.
 */
#ifndef YB_NET_SIM_H
#define YB_NET_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "net/io.h"

#define YB_SIM_START_NS      (1000 * YB_NS_PER_S)
#define YB_SIM_START_WALL_NS (1750000000 * YB_NS_PER_S)
#define YB_SIM_RUN_NS        YB_NS_PER_US
#define YB_SIM_HOST_COUNT    256u
#define YB_SIM_TRACE_COUNT   256u /* Events that yb_sim_dump() remembers. */
#define YB_SIM_PPM           1000000u

struct yb_sim;
struct yb_sim_host;
struct yb_sim_process;

/* How connections between two hosts behave. Chances are in parts per million. */
struct yb_sim_link {
    uint64_t delay_ns;             /* One way, always. */
    uint64_t jitter_ns;            /* More, uniform, drawn for each piece of bytes. */
    uint64_t connection_jitter_ns; /* More, drawn once for each connection and direction: */
                                   /* it reorders what travels on different connections. */
    uint64_t bytes_per_s;          /* Of one connection in one direction; 0: no limit. */
    uint64_t retransmit_ns;        /* What one loss costs. */
    uint64_t connect_retry_ns;     /* First wait before a connect is tried again; doubles. */
    uint64_t connect_timeout_ns;   /* Then on_connected says TIMED_OUT. */
    uint64_t give_up_ns;           /* Bytes may be unacknowledged so long, where the stream's */
                                   /* options set no user_timeout_ms. */
    uint64_t cut_after_bytes;      /* Reset both ends once a direction carried so many; 0: never. */
    uint32_t window_bytes;         /* N3: written and unread; then writes wait. */
    uint32_t piece_bytes_max;      /* Writes travel in pieces of at most so many bytes ... */
    bool pieces_random;          /* ... cut anywhere, and reads return any part of what is there. */
    bool reset_drops_unread;     /* A reset voids what arrived before it and was not yet read. */
    bool close_unread_resets;    /* A graceful close with unread bytes resets, as Linux does. */
    uint32_t drop_ppm;           /* A piece is lost, perhaps again and again. */
    uint32_t cut_ppm;            /* A piece is the last: both ends are reset. */
    uint32_t black_hole_ppm;     /* From a piece on nothing passes, in either direction. */
    uint32_t connect_silent_ppm; /* A connect is never answered. */
};

/* How a process or host ends, as its peers see it. */
enum yb_sim_death {
    YB_SIM_DEATH_RESET,  /* Its kernel resets its connections. */
    YB_SIM_DEATH_FLUSH,  /* Its kernel still delivers what was written, then closes. */
    YB_SIM_DEATH_SILENT, /* Nothing is said: the power is gone. */
};

enum yb_sim_outcome {
    YB_SIM_REACHED,    /* The predicate holds. */
    YB_SIM_QUIET,      /* Nothing will ever happen by itself; the clock stands at the limit. */
    YB_SIM_TIME_LIMIT, /* The clock stands at the limit. */
    YB_SIM_STEP_LIMIT,
};

/* Poll the process's io, as an event loop does once. */
typedef void yb_sim_run_fn(void *arg);
typedef void yb_sim_call_fn(void *arg);
typedef bool yb_sim_predicate_fn(void *arg);

/* Return a quiet, fast network: 100 us one way, nothing is lost, whole pieces of 64 KiB. */
struct yb_sim_link yb_sim_link_default(void);

/* Return a bad one: pieces cut at random, delays that differ tenfold, one in fifty lost. Its
 * connections live; add cut_ppm or black_hole_ppm for those that do not. */
struct yb_sim_link yb_sim_link_rough(void);

/* ---- the world ----------------------------------------------------------------------- */

/* Create an empty world with the default link between all hosts. The caller owns it. */
struct yb_sim *yb_sim_create(uint64_t seed);

/* Consume the world and set *sim to NULL. Not from inside a step. */
void yb_sim_destroy(struct yb_sim **sim);

uint64_t yb_sim_seed(const struct yb_sim *sim);
uint64_t yb_sim_now_ns(const struct yb_sim *sim);
uint64_t yb_sim_step_count(const struct yb_sim *sim);

/* Draw from the world's generator: tests that draw from it too repeat with the seed. */
uint64_t yb_sim_random(struct yb_sim *sim);

/* Draw from 0 .. `bound` - 1. */
uint64_t yb_sim_random_below(struct yb_sim *sim, uint64_t bound);

/* Let the next event happen. Returns false if there is none, ever. */
bool yb_sim_step(struct yb_sim *sim);

/* Step until `predicate` (NULL: never) holds, which is asked before each step, or world time
 * `until_ns` is reached, or `step_count_max` steps were made. */
enum yb_sim_outcome yb_sim_run_until(struct yb_sim *sim, yb_sim_predicate_fn *predicate, void *arg,
                                     uint64_t until_ns, uint64_t step_count_max);

/* Run `call` at world time `when_ns` (at once, if that has passed), as an event of its own:
 * the way to hurt something in the middle of a run. `arg` is borrowed until then. */
void yb_sim_call_at(struct yb_sim *sim, uint64_t when_ns, yb_sim_call_fn *call, void *arg);

/* A hash over every event so far: time, kind, connection and bytes (N1). */
uint64_t yb_sim_fingerprint(const struct yb_sim *sim);

/* Write seed, time, hosts and the last events, for a test that failed. */
void yb_sim_dump(const struct yb_sim *sim, FILE *out);

/* ---- hosts and processes ------------------------------------------------------------- */

/* Add a host with the address `ip`, such as "10.0.0.1"; its processes reach each other by the
 * loopback addresses too. `name` is copied, for dumps. Owned by the world. */
struct yb_sim_host *yb_sim_host_create(struct yb_sim *sim, const char *name, const char *ip);

/* Set *address_out to the host's address with `port`. */
void yb_sim_host_address(const struct yb_sim_host *host, uint16_t port,
                         struct yb_address *address_out);

/* The clock of the host's processes, borrowed for the world's life. */
const struct yb_clock *yb_sim_host_clock(const struct yb_sim_host *host);

/* Let the host's monotonic clock run `drift_ppm` fast (or slow; above -1000000), from now on. */
void yb_sim_host_set_drift(struct yb_sim_host *host, int32_t drift_ppm);

/* Let the monotonic clock jump forward, as after a suspend. */
void yb_sim_host_skip(struct yb_sim_host *host, uint64_t skip_ns);

/* Let the wall clock be wrong by `offset_ns`. */
void yb_sim_host_set_wall(struct yb_sim_host *host, int64_t offset_ns);

/* Stop (as SIGSTOP does) or resume the host's processes. Meanwhile their polls deliver nothing,
 * clocks go on, and the kernel goes on receiving and accepting. */
void yb_sim_host_stall(struct yb_sim_host *host, bool stalled);

/* Let listeners of the host hold at most `count` connections that nobody has accepted; others
 * wait for room, as connects to a full accept queue do. 0: every connect hangs. */
void yb_sim_host_set_backlog(struct yb_sim_host *host, uint32_t count);

/* Crash every process of the host. After YB_SIM_DEATH_SILENT the host is down: what is sent to
 * it is held until yb_sim_host_restart(), and then answered by a reset. */
void yb_sim_host_crash(struct yb_sim_host *host, enum yb_sim_death how);
void yb_sim_host_restart(struct yb_sim_host *host);

/* Add a process to a host that is up. `run` is called once at the start and then whenever
 * something happened for its io, a poll's timeout passed or yb_io_wake() was called. A process
 * whose run never polls is never told of a timeout. Owned by the world. */
struct yb_sim_process *yb_sim_process_create(struct yb_sim_host *host, const char *name,
                                             yb_sim_run_fn *run, void *arg);

/* The process's io, owned by the process; yb_io_destroy() gives it back early. Its poll never
 * blocks: it delivers what is due and asks for the next run in `timeout_ns`. Connections
 * accepted by one process may be adopted by any other of the same host. */
struct yb_io *yb_sim_process_io(struct yb_sim_process *process);
const struct yb_clock *yb_sim_process_clock(const struct yb_sim_process *process);

/* End a process: to the world its listeners and connections are gone, and it is never run
 * again. Its io stays, so that the test can tear down what stood on it by polling it: reads and
 * writes there fail with PEER_LOST, closes complete, and nothing reaches anybody. */
void yb_sim_process_crash(struct yb_sim_process *process, enum yb_sim_death how);
bool yb_sim_process_crashed(const struct yb_sim_process *process);

/* Consume a process and set *process to NULL, crashing it (RESET) if it lives. Streams that are
 * still open are freed without callbacks. Not from inside its own run. */
void yb_sim_process_destroy(struct yb_sim_process **process);

/* ---- the network between them -------------------------------------------------------- */

/* Let connections between `a` and `b`, in both directions, behave like `link`; it is copied
 * and counts from the next piece on. NULL and NULL: between all hosts that have no link of
 * their own. */
void yb_sim_set_link(struct yb_sim *sim, struct yb_sim_host *a, struct yb_sim_host *b,
                     const struct yb_sim_link *link);

/* Let nothing pass from `from` to `to` (one way) until unblocked. What is sent meanwhile is
 * held; after that it arrives within a retransmission, unless a timeout came first. */
void yb_sim_block(struct yb_sim *sim, struct yb_sim_host *from, struct yb_sim_host *to,
                  bool blocked);

/* Block both ways between the `count` hosts of `side` and all the others. */
void yb_sim_partition(struct yb_sim *sim, struct yb_sim_host *const *side, uint32_t count);

/* Unblock everything. */
void yb_sim_heal(struct yb_sim *sim);

/* Reset both ends of every connection between `a` and `b` (NULL: any host); bytes under way are
 * lost. Returns how many connections that were. */
uint32_t yb_sim_cut(struct yb_sim *sim, struct yb_sim_host *a, struct yb_sim_host *b);

/* Let every present connection between `a` and `b` (NULL: any host) go silent for good while
 * both ends stay open; new connections work. Returns how many. */
uint32_t yb_sim_black_hole(struct yb_sim *sim, struct yb_sim_host *a, struct yb_sim_host *b);

/* How many connections have an end in some process or are still being closed. */
uint32_t yb_sim_connection_count(const struct yb_sim *sim);

/* Bytes that were written by somebody and have not been read or dropped (N3). */
uint64_t yb_sim_held_bytes(const struct yb_sim *sim);

#endif /* YB_NET_SIM_H */
