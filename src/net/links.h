/* SPDX-License-Identifier: Apache-2.0
 *
 * links.h -- how much goes between this process and each of its peers, by which path, and for which
 * part of the time: yuebing_link_received_bytes_total, _sent_bytes_total, _busy_seconds_total.
 *
 * The rate of the bytes is a link's bandwidth. The rate of the busy time is its utilisation: the
 * part of the time in which something that carries data was under way. Each worker of a process
 * counts its own, so that two that are busy all the time with a peer make 2.
 *
 * A peer is called by the address that this process connects to; one that has connected itself,
 * from a port that means nothing, by its role and host: "client@10.0.0.7". Many are told apart no
 * more than base/stats.h allows.
 *
 * Threads   The worker's.
 * Memory    The registry and the shard are borrowed.
 * Time      Passed in; it never runs back.
 */
#ifndef YB_NET_LINKS_H
#define YB_NET_LINKS_H

#include <stdint.h>

#include "base/stats.h"
#include "net/address.h"

/* Ways of bytes between processes. */
#define YB_LINKS_PATH_MAP(X) \
    X(TCP, "tcp")            \
    X(SHM, "shm")            \
    X(DEVICE, "device")

enum yb_links_path {
#define X(name, word) YB_LINKS_##name,
    YB_LINKS_PATH_MAP(X)
#undef X
        YB_LINKS_PATHS
};

struct yb_links {
    struct yb_stats *stats; /* NULL: nothing is counted, and every function does nothing. */
    struct yb_stats_shard *shard;
    uint32_t first;
    struct {
        uint32_t flying;
        uint64_t since_ns; /* What is later is not counted yet. */
    } busy[YB_STATS_PEERS_MAX + 1][YB_LINKS_PATHS];
};

/* Fails as yb_stats_register(). */
YB_CHECKED enum yb_status yb_links_init(struct yb_links *links, struct yb_stats *stats,
                                        struct yb_stats_shard *shard);

/* Return the number of a peer: `role` is of one that has connected itself, NULL of others. */
uint32_t yb_links_peer(struct yb_links *links, const struct yb_address *address, const char *role);

/* Bytes came, or went. */
void yb_links_received(struct yb_links *links, uint32_t peer, enum yb_links_path path,
                       uint64_t bytes);
void yb_links_sent(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t bytes);

/* Something begins to be under way; `end` is called once for it. `look` counts what has passed of
 * what has not ended. */
void yb_links_begin(struct yb_links *links, uint32_t peer, enum yb_links_path path,
                    uint64_t now_ns);
void yb_links_look(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t now_ns);
void yb_links_end(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t now_ns);

#endif /* YB_NET_LINKS_H */
