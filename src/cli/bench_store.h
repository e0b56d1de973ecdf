/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_store.h -- batches through the public client, against a directory and a node in a process
 * of their own.
 *
 * A flow is one batch after the other, each of `batch` items, by one thread that waits: what a
 * plain caller sees. Values lie in `fragments` pieces, scattered as blocks of a cache are. Puts
 * are of new keys, so that the node evicts once its pool is full; gets go round among keys that
 * were put before and whose places the client knows (warm hints).
 *
 * Every byte of a value is a function of its number (bench_target.h). After a flow one batch more
 * is moved, into memory that was cleared, and compared; of puts, what the store then returns is.
 *
 * Threads   The caller's, beside those of the client. The store is forked before there are any.
 * Memory    Both buffers are touched before they are used, and larger than the caches.
 */
#ifndef YB_CLI_BENCH_STORE_H
#define YB_CLI_BENCH_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "cli/bench_device.h"
#include "net/address.h"
#include "yuebing/client.h"

#define YB_BENCH_STORE_BATCH_MAX  4096u
#define YB_BENCH_STORE_PIECES_MAX 8192u          /* Of a batch: its items, each in its fragments. */
#define YB_BENCH_STORE_BYTES      (128ull << 20) /* Of each buffer. */
#define YB_BENCH_STORE_POOL_BYTES (1ull << 30)

enum yb_bench_store_op {
    YB_BENCH_STORE_PUT,
    YB_BENCH_STORE_GET,
    YB_BENCH_STORE_EXIST,
    YB_BENCH_STORE_PIN,
};
#define YB_BENCH_STORE_OPS 4u

struct yb_bench_store_flow {
    enum yb_bench_store_op op;
    uint64_t size; /* Of a value: a multiple of 8. */
    uint32_t fragments;
    uint32_t batch;
    uint64_t run_ns;
};

struct yb_bench_store_result {
    double gbps; /* 0 for exist and pin, which move nothing. */
    double ops_per_s;
    double p50_us; /* Of a batch. */
    double p99_us;
    double cpu_s_per_gb; /* Both processes. */
    double cpu_us_per_op;
    double node_us_per_op; /* Of those the store's process. */
    bool local;            /* Through shared memory. */
};

struct yb_bench_store {
    pid_t pid;
    char address[YB_ADDRESS_TEXT_BYTES]; /* Of its directory. */
    struct yb_client *client;
    uint8_t *from;                  /* Values that are put. */
    uint8_t *to;                    /* Where they come back. */
    struct yb_bench_device *device; /* NULL: both are ordinary memory. */
    uint64_t next_key;
    struct yb_client_item *items; /* [BATCH_MAX] */
    struct iovec *pieces;         /* [PIECES_MAX] */
    uint64_t *keys;               /* [BATCH_MAX] */
};

/* Start a directory and a node, configured as the command line says but for the pool and for room
 * to remember what was answered. To be called before this process has threads. Returns false,
 * having said why on stderr; close it in any case. */
bool yb_bench_store_start(const struct yb_config *config, struct yb_bench_store *store_out);
/* Join it; `shared`: through shared memory, if there is a way. */
bool yb_bench_store_open(struct yb_bench_store *store, bool shared, bool device);
void yb_bench_store_close(struct yb_bench_store *store);

/* Put a block and pin it: OK, or why nothing is lent here. */
YB_CHECKED enum yb_status yb_bench_store_try_pin(struct yb_bench_store *store);

/* Run a flow and check its last batch. Returns false, having said why on stderr. */
bool yb_bench_store_run(struct yb_bench_store *store, const struct yb_bench_store_flow *flow,
                        struct yb_bench_store_result *result_out);

#endif /* YB_CLI_BENCH_STORE_H */
