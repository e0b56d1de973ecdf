/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ceilings.h -- what the machine itself can do: the least that any program needs
 * for the same bytes.
 *
 *     memory copy    one thread, or one for each core, in blocks of the size asked for, by
 *                    memcpy(); past the caches only where a row says so
 *     sockets        the same messages over as many connections, with the same options,
 *                    from one buffer straight into the other; one thread at each end
 *     process_vm     one process_vm_readv for each list of fragments
 *     ping-pong      a message there and back on one connection
 *
 * Every buffer is walked through once before a byte is used again, so that all copies
 * are cold. The first word of a message says whether it is the last of its connection.
 *
 * Threads   The caller's, but for the copy on all cores.
 */
#ifndef YB_CLI_BENCH_CEILINGS_H
#define YB_CLI_BENCH_CEILINGS_H

#include "cli/bench_target.h"

struct yb_bench_sockets {
    uint32_t count;
    int fds[YB_BENCH_SOCKETS_MAX];
};

/* One side of a run with bare sockets. */
struct yb_bench_raw {
    const struct yb_bench_sockets *sockets;
    uint8_t *buffer; /* Of YB_BENCH_BUFFER_BYTES. */
    uint32_t streams;
    uint64_t size; /* Of a message: a multiple of 8. */
    uint64_t run_ns;
    uint64_t spin_ns;
};

struct yb_bench_times {
    double p50_us;
    double p99_us;
};

void yb_bench_socket_options(int fd, const char *congestion);

/* Send for run_ns, then a last message on each stream. Returns false on a lost connection. */
bool yb_bench_raw_send(const struct yb_bench_raw *raw, uint64_t *bytes_out);
/* Receive until the last message of every stream is in. */
bool yb_bench_raw_receive(const struct yb_bench_raw *raw, uint64_t *bytes_out);
/* Return messages of the first stream until the last. */
bool yb_bench_raw_echo(const struct yb_bench_raw *raw);

/* The parent's half of those, against the orders of a target. Rates are 10^9 bytes a second. */
bool yb_bench_ceiling_sockets(const struct yb_bench_target *target, const struct yb_bench_raw *raw,
                              bool read, double *gbps_out);
bool yb_bench_ceiling_ping(const struct yb_bench_target *target, const struct yb_bench_raw *raw,
                           struct yb_bench_times *times_out);

/* Read objects of `size` in `fragments` pieces out of the target's buffer. */
bool yb_bench_ceiling_process_vm(const struct yb_bench_target *target, uint8_t *buffer,
                                 uint64_t size, uint32_t fragments, uint64_t run_ns,
                                 double *gbps_out);

/* Copy from one buffer of YB_BENCH_BUFFER_BYTES to another. */
struct yb_bench_copy {
    uint64_t size;
    uint32_t threads;
    bool streams; /* By base/copy.h, not by memcpy(). */
    uint64_t run_ns;
};

bool yb_bench_ceiling_copy(uint8_t *to, const uint8_t *from, const struct yb_bench_copy *copy,
                           double *gbps_out);

/* Where fragment `index` of `count` lies in local memory: everywhere but behind its
 * predecessor, as blocks of a cache do. A permutation of 0 .. count - 1. */
uint32_t yb_bench_scatter(uint32_t index, uint32_t count);

#endif /* YB_CLI_BENCH_CEILINGS_H */
