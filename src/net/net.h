/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h -- what all connections of one worker share.
 *
 * The loop they run on, who we are, the limits, the service they offer, and the
 * pools that keep the data path free of allocation: chunks of outgoing bytes and
 * request records are taken from lists that grow to a bound and are then reused.
 *
 * Threads   One per worker, made and used on the worker's thread. `self`, TLS
 *           contexts and the memory of results (replay.h) are shared by all of them.
 * Memory    The net owns its pools. What the options name is borrowed for its life.
 */
#ifndef YB_NET_NET_H
#define YB_NET_NET_H

#include <stdint.h>

#include "base/log.h"
#include "base/span.h"
#include "base/stats.h"
#include "net/hello.h"
#include "net/io.h"
#include "net/loop.h"
#include "net/replay.h"
#include "net/request.h"
#include "net/tls.h"
#include "yuebing/status.h"

struct yb_links;
struct yb_net;

struct yb_net_limits {
    uint64_t handshake_timeout_ns; /* From accept or connect to the end of the handshake. */
    uint64_t connect_timeout_ns;
    uint64_t frame_timeout_ns;    /* From the first byte of a frame to its last but for data;
                                * then for every 64 KiB of data; and for every write. */
    uint64_t idle_ping_ns;        /* The connecting side asks after this much silence. */
    uint32_t requests_max;        /* Requests in service at the same time, all connections. */
    uint64_t bodies_bytes_max;    /* Bodies being put together, all connections together. */
    uint32_t committed_bytes_max; /* Unsent bytes a connection takes before it says AGAIN. */
    uint32_t calls_waiting_max;   /* Calls that may wait for one peer. */
};

/* clang-format off */
/*    id           kind       unit         name                labels  help */
#define YB_NET_STATS(X)                                                                             \
    X(ACCEPTED,    COUNTER,   COUNT,       "accepted",         NULL, NULL, "connections accepted")   \
    X(CONNECTED,   COUNTER,   COUNT,       "connected",        NULL, NULL, "connections made")       \
    X(CONNECT_FAILED, COUNTER, COUNT,      "connect_failed",   &yb_stats_label_status, NULL,         \
      "connections that could not be made, by reason")                                              \
    X(OPEN,        GAUGE,     COUNT,       "open",             NULL, NULL,                           \
      "connections with a finished handshake")                                                      \
    X(HANDSHAKE,   HISTOGRAM, NANOSECONDS, "handshake",        NULL, NULL,                           \
      "from accept or connect to the end of the handshake")                                         \
    X(REFUSED,     COUNTER,   COUNT,       "refused",          &yb_net_label_reason, NULL,           \
      "handshakes that failed, by reason")                                                          \
    X(CLOSED,      COUNTER,   COUNT,       "closed",           &yb_stats_label_status, NULL,         \
      "open connections that ended, by reason")                                                     \
    X(FRAMES_IN,   COUNTER,   COUNT,       "frames_received",  NULL, NULL, "frames received")        \
    X(FRAMES_OUT,  COUNTER,   COUNT,       "frames_sent",      NULL, NULL, "frames queued to send")  \
    X(BYTES_IN,    COUNTER,   BYTES,       "received",         NULL, NULL, "bytes received") \
    X(BYTES_OUT,   COUNTER,   BYTES,       "sent",             NULL, NULL, "bytes sent") \
    X(CALLS,       COUNTER,   COUNT,       "calls",            &yb_stats_label_class,                \
      &yb_stats_label_status, "calls made to peers, by class and outcome")                          \
    X(CALL_TIME,   HISTOGRAM, NANOSECONDS, "call",             &yb_stats_label_class, NULL,          \
      "from submit to done")                                                                        \
    X(SERVED,      COUNTER,   COUNT,       "served",           &yb_stats_label_class,                \
      &yb_stats_label_status, "requests answered, by class and outcome")                            \
    X(SERVE_TIME,  HISTOGRAM, NANOSECONDS, "serve",            &yb_stats_label_class, NULL,          \
      "from a request's arrival to its reply")                                                      \
    X(LATE_REPLIES, COUNTER,  COUNT,       "late_replies",     NULL, NULL,                           \
      "replies that came after their call had ended")                                               \
    X(DUPLICATES,  COUNTER,   COUNT,       "duplicates",       NULL, NULL,                           \
      "mutations that were asked again and got the first answer")                                   \
    X(RETRIES,     COUNTER,   COUNT,       "retries",          NULL, NULL,                           \
      "calls sent again after their connection was lost")
/* clang-format on */

enum yb_net_stat {
#define X(id, ...) YB_NET_STAT_##id,
    YB_NET_STATS(X)
#undef X
        YB_NET_STAT_COUNT
};

/* The reasons of net/hello.h as label values. */
extern const struct yb_stats_label yb_net_label_reason;

struct yb_net_options {
    struct yb_loop *loop;
    const struct yb_hello_self *self;
    const struct yb_tls_context *tls_server; /* NULL: plain. */
    const struct yb_tls_context *tls_client;
    struct yb_stream_options stream;
    struct yb_net_limits limits;
    const struct yb_service *service; /* NULL: only what every port answers (ping, echo). */
    struct yb_replay *replay;         /* NULL: mutations are refused with UNSUPPORTED. */
    struct yb_stats *stats;           /* NULL: nothing is counted. */
    struct yb_span_ring *spans;       /* NULL: nothing is traced. */
    struct yb_log *log;               /* NULL: nothing is logged. */
    /* Fill `out` with random bytes: the system's, or a seeded generator's in simulation. */
    yb_span_random_fn *random;
    void *random_context;
};

/* Limits as the configuration's defaults have them. */
void yb_net_limits_default(struct yb_net_limits *limits_out);

/* The system's random bytes, for yb_net_options. Aborts if the kernel has none. */
void yb_net_random_system(void *context, void *out, size_t bytes);

/* Fails with INVALID (a method of the service breaks its contract), NO_MEMORY, or TOO_LARGE (the
 * statistics are full). */
YB_CHECKED enum yb_status yb_net_create(const struct yb_net_options *options,
                                        struct yb_net **net_out);

/* Consume the net and set it to NULL. All its connections and requests must be gone:
 * yb_net_shut() and turns of the loop bring that about. */
void yb_net_destroy(struct yb_net **net);

/* From here on another thread turns the net's loop. It has taken that from the one before. */
void yb_net_hand_over(struct yb_net *net);

/* Abort every connection. They are gone some turns later: see yb_net_idle(). */
void yb_net_shut(struct yb_net *net);

/* How many connections there ever were; they are numbered in the order in which they began. */
uint64_t yb_net_conns_ever(const struct yb_net *net);

/* Abort every connection of the process `identity` among the first `ever`. Returns how many of them
 * still exist: when a later call returns 0, nothing that came through them can be applied any more.
 * One that was not open yet when the caller learned `ever` can only bring what is sent later. */
uint32_t yb_net_close_peer(struct yb_net *net, struct yb_id identity, uint64_t ever);

/* Tell every connection's peer to send no new request, and close each when its last request was
 * answered and its last call has ended. */
void yb_net_drain(struct yb_net *net);

/* Return whether no connection and no request is left. */
bool yb_net_idle(const struct yb_net *net);

/* Return how many requests of peers are being served. */
uint32_t yb_net_request_count(const struct yb_net *net);

/* Return how many connections are alive, in any state. */
uint32_t yb_net_conn_count(const struct yb_net *net);

struct yb_loop *yb_net_loop(struct yb_net *net);
/* What is counted of its peers: others add what goes beside its connections. */
struct yb_links *yb_net_links(struct yb_net *net);
const struct yb_hello_self *yb_net_self(const struct yb_net *net);
const struct yb_stream_options *yb_net_stream_options(const struct yb_net *net);

#endif /* YB_NET_NET_H */
