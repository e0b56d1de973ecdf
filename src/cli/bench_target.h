/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_target.h -- the other process of `yuebing bench transfer` and `bench classes`.
 *
 * A target is a child process with an engine, one large buffer that the engine has
 * registered, and bare sockets beside them. It carries out orders one after another:
 *
 *     open --fork--> target --hello--> [ order --> answer ]* --> stop
 *
 * Both processes write and check the same pattern: the 64-bit word at byte 8 i of an
 * object is a function of a seed and i, so that an object can be checked where it lies,
 * and bytes of an earlier run are never taken for those of this one.
 *
 * Threads   The parent opens all targets before it has a thread. A target dies with
 *           its parent.
 * Memory    Buffers are touched before they are used, and larger than the caches.
 */
#ifndef YB_CLI_BENCH_TARGET_H
#define YB_CLI_BENCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/bench_device.h"
#include "yuebing/transfer.h"

#define YB_BENCH_BUFFER_BYTES (256ull << 20)
#define YB_BENCH_STREAMS_MAX  16u
#define YB_BENCH_SOCKETS_MAX  (2u * YB_BENCH_STREAMS_MAX)

struct yb_bench_target_options {
    bool shared; /* The buffer is shared memory of the engine; otherwise ordinary memory. */
    bool device; /* What moves is in a device's memory; the buffer is beside it. */
    bool tls;
    uint32_t streams;
    uint32_t paths;
    const char *congestion; /* Of the bare sockets; NULL: as the system has it. */
};

enum yb_bench_order_kind {
    YB_BENCH_ORDER_STAMP,   /* Write the pattern to [offset, offset + length). */
    YB_BENCH_ORDER_CHECK,   /* Answer 1 if the pattern is there. */
    YB_BENCH_ORDER_CPU,     /* Answer the nanoseconds of processor time used so far. */
    YB_BENCH_ORDER_RECEIVE, /* Receive messages from `streams` sockets until each has ended. */
    YB_BENCH_ORDER_SEND,    /* Send messages for `run_ns`. */
    YB_BENCH_ORDER_ECHO,    /* Return messages of one socket until the last. */
    YB_BENCH_ORDER_STOP,
};

struct yb_bench_order {
    uint32_t kind;
    uint32_t streams;
    uint64_t offset;
    uint64_t length; /* Or the size of a message. */
    uint64_t seed;
    uint64_t run_ns;
    uint64_t spin_ns; /* ECHO: how long to ask without sleeping. */
};

struct yb_bench_answer {
    uint64_t ok;
    uint64_t value;
};

struct yb_bench_target {
    pid_t pid;
    int order_fd;
    char address[64];
    yb_transfer_region region;
    uint64_t base; /* Of the buffer, in the target. */
    uint32_t socket_count;
    int sockets[YB_BENCH_SOCKETS_MAX]; /* Connected to the target's, in the same order. */
};

/* An engine with a buffer of YB_BENCH_BUFFER_BYTES. */
struct yb_bench_engine {
    struct yb_transfer *engine;
    uint8_t *buffer;                /* Touched host memory. */
    struct yb_bench_device *device; /* Or as much of a device; NULL: the buffer is what moves. */
    uint8_t *memory;                /* What moves: of the buffer, or of the device. */
    yb_transfer_region region;      /* Of that. */
};

/* Create an engine, and register what moves. Returns false, having said why on stderr. */
bool yb_bench_engine_open(const struct yb_bench_target_options *options,
                          struct yb_bench_engine *engine_out);
/* Harmless if it was not opened. */
void yb_bench_engine_close(const struct yb_bench_target_options *options,
                           struct yb_bench_engine *engine);

/* Start a target. Returns false, having said why on stderr; nothing is left then. */
bool yb_bench_target_open(const struct yb_bench_target_options *options,
                          struct yb_bench_target *target_out);
void yb_bench_target_close(struct yb_bench_target *target);

/* Give an order; the answer is fetched by the other, so that this side can work meanwhile. */
bool yb_bench_target_order(const struct yb_bench_target *target,
                           const struct yb_bench_order *order);
bool yb_bench_target_answer(const struct yb_bench_target *target, uint64_t *value_out);
/* Both. */
bool yb_bench_target_ask(const struct yb_bench_target *target, const struct yb_bench_order *order,
                         uint64_t *value_out);

/* Processor time that this process has used. */
uint64_t yb_bench_cpu_ns(void);

/* Write, or look for, the pattern of an object's bytes from `object_offset` on. Offsets and lengths
 * are multiples of 8. */
void yb_bench_stamp(void *bytes, uint64_t object_offset, uint64_t length, uint64_t seed);
bool yb_bench_check(const void *bytes, uint64_t object_offset, uint64_t length, uint64_t seed);

#endif /* YB_CLI_BENCH_TARGET_H */
