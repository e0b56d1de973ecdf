/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h -- the benches of `yuebing bench`, and what `net` measures, ours and bare.
 *
 * Each measurement runs a server in a child process and a client here, for a
 * fixed time, and is repeated in turns with its bare counterpart, so that both
 * see the same machine. "Bare" is the least that sockets can do for the same
 * bytes: one epoll loop, no framing, the same socket options, the same time of
 * polling before a sleep.
 *
 * Threads   One, in each process. The server child dies with its parent.
 */
#ifndef YB_CLI_BENCH_H
#define YB_CLI_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "cli/bench_table.h"
#include "cli/cli.h"
#include "net/address.h"

/* The benches. Each returns the exit code. */
#define X(name) int yb_bench_##name(struct yb_cli *cli);
YB_BENCH_MAP(X, X)
#undef X

/* Return the median, and sort `values`. */
double yb_bench_median(double *values, uint64_t count);

/* Read a list of numbers, such as 4k,1m, from an option; each from 1 to `high`, at most
 * YB_BENCH_LIST_MAX. What is not given keeps its value. Returns false, having said on cli->err what
 * is wrong. */
#define YB_BENCH_LIST_MAX 16u
bool yb_bench_list_read(const struct yb_cli *cli, const char *name, uint64_t high, uint64_t *list,
                        uint32_t *count);

/* What one run sends: `conns` connections, each with `depth` messages of `bytes` in flight. */
struct yb_bench_load {
    uint32_t conns;
    uint32_t depth;
    uint32_t bytes;
    uint64_t run_ns;
};

struct yb_bench_result {
    double per_second; /* Messages. */
    uint64_t p50_ns;   /* Of a round: from sending `depth` messages to having their answers. */
    uint64_t p99_ns;
};

/* A server in a child process. */
struct yb_bench_server {
    pid_t pid;
    struct yb_address address;
};

#define YB_BENCH_CONNS_MAX 64u
#define YB_BENCH_DEPTH_MAX 256u

/* Start a server that echoes. Returns false, having said why on stderr. */
bool yb_bench_bare_start(const struct yb_config *config, struct yb_bench_server *server_out);
bool yb_bench_net_start(const struct yb_config *config, struct yb_bench_server *server_out);
void yb_bench_stop(struct yb_bench_server *server);

/* Run `load` against a server. Returns false, having said why on stderr. */
bool yb_bench_bare_run(const struct yb_config *config, const struct yb_bench_server *server,
                       const struct yb_bench_load *load, struct yb_bench_result *result_out);
bool yb_bench_net_run(const struct yb_config *config, const struct yb_bench_server *server,
                      const struct yb_bench_load *load, struct yb_bench_result *result_out);

/* Connect, exchange one message, close, one after the other. per_second counts connections. */
bool yb_bench_bare_connects(const struct yb_config *config, const struct yb_bench_server *server,
                            uint64_t run_ns, struct yb_bench_result *result_out);
bool yb_bench_net_connects(const struct yb_config *config, const struct yb_bench_server *server,
                           uint64_t run_ns, struct yb_bench_result *result_out);

/* What `conns` open, idle connections cost. */
struct yb_bench_idle {
    double server_bytes; /* Resident memory of the server for each. */
    double client_bytes; /* And of this process. */
    double server_cpu;   /* Share of a core that the server uses. */
    double client_cpu;
};
bool yb_bench_net_idle(const struct yb_config *config, const struct yb_bench_server *server,
                       uint32_t conns, uint64_t run_ns, struct yb_bench_idle *idle_out);

#endif /* YB_CLI_BENCH_H */
