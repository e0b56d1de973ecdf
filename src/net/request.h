/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h -- one request, as the side that answers it sees it.
 *
 * A service is a table of methods. net checks what it can before a method runs:
 * that the type exists, that the peer's role may call it, the body's length,
 * the deadline, and for a mutation whether the same operation was answered
 * before (replay.h). A refused request gets a reply with the reason; its data,
 * if any, is read and dropped.
 *
 *     header, body --> place (only with data) --> data arrives --> handle --> reply
 *                                |                     |
 *                                +-- not OK: refused   +-- connection lost: abort
 *
 * Promise   Every request that `handle` was given must be replied to, exactly once,
 *           at once or later: the peer's credit comes back with the reply.
 * Memory    The request is net's. `body` is borrowed until `handle` returns. The vectors
 *           that `place` hands out, and the memory that they name, are lent until
 *           `handle` or `abort` runs. What a reply's data names is lent until `released`.
 * Threads   The loop's. A service that works elsewhere comes back by mail to reply.
 */
#ifndef YB_NET_REQUEST_H
#define YB_NET_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/call.h"
#include "net/hello.h"
#include "net/replay.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_conn;
struct yb_method;
struct yb_net;

/* Frame types that one net can serve: 0 .. YB_METHOD_TYPES - 1. */
#define YB_METHOD_TYPES 256u

struct yb_request {
    /* ---- for the service to read ---- */
    const struct yb_method *method;
    const struct yb_hello_result *peer; /* Who asks, with proved role and tenant. */
    enum yb_class class;
    struct yb_id trace_id;
    uint64_t span_id;   /* This request's own span: parent of what the service does for it. */
    uint64_t operation; /* 0: not a mutation. */
    uint32_t operation_slot;
    uint64_t deadline_ns; /* Absolute, on the loop's clock; YB_NEVER: none. */
    const uint8_t *body;
    uint32_t body_bytes;
    uint64_t data_bytes;

    /* ---- for the service to use as it likes ---- */
    void *context;
    /* Runs once when the data of the reply is no longer needed: sent, or never to be. */
    void (*released)(struct yb_request *request);

    /* ---- net's ---- */
    struct yb_conn *conn;
    struct yb_request *next;
    uint64_t request_id;
    uint64_t parent_span;
    uint64_t cost;
    uint64_t began_ns;
    bool refused; /* Its data is being dropped; it was answered by net. */
    bool handled;
    bool replied;
    bool remembered; /* replay.h waits for its result. */
    bool undecided;  /* Refused without knowing what became of it; see frame_flag. */
    bool landing;    /* Counted in its connection's `landing`. */
    bool faulted;    /* Memory of its data could not be touched; for `abort` and `released`. */
    struct yb_out out;
};

struct yb_method {
    uint16_t type;
    const char *name; /* The word in metrics and logs. */
    uint32_t roles;   /* YB_ROLE_BIT(...) of everybody who may call it. */
    bool mutates;     /* Needs an operation; is run at most once per operation. */
    uint32_t body_bytes_max;

    /* Say where the request's data goes: vectors that hold exactly data_bytes. Anything but OK
     * refuses the request with that status. NULL: the method takes no data. */
    enum yb_status (*place)(void *service, struct yb_request *request, const struct iovec **iov_out,
                            uint32_t *count_out);
    void (*handle)(void *service, struct yb_request *request);
    /* The connection was lost between `place` and `handle`; nothing more will be written to the
     * placed memory. The request must not be replied to. NULL: nothing to undo. */
    void (*abort)(void *service, struct yb_request *request);
    /* May write memory that its caller names, even after the connection is gone: a newer
     * connection of the peer is welcomed only after its reply (fence.h, RULES A2). */
    bool lands;
};

#define YB_ROLE_BIT(role) (1u << (role))
#define YB_ROLE_ANY       (~0u)

struct yb_service {
    const struct yb_method *methods;
    uint32_t method_count;
    void *owner; /* The `service` of the methods. */
};

/* Answer. `body` is copied; `data` is lent until `released`, which runs before this returns if
 * there is nothing to send; nothing else of the service's does. May be called inside `handle` or
 * later, on the loop's thread; if the connection is gone the reply is dropped (a mutation's result
 * is still remembered). The request must not be touched afterwards, except in `released`. */
void yb_request_reply(struct yb_request *request, enum yb_status status, const void *body,
                      uint32_t body_bytes, const struct iovec *data, uint32_t data_count);

/* Return the net that the request came through: whose worker this is. */
struct yb_net *yb_request_net(const struct yb_request *request);

/* Return whether the connection that it came by is gone, so that nobody would hear its answer. It
 * must be replied to all the same. */
bool yb_request_lost(const struct yb_request *request);

#endif /* YB_NET_REQUEST_H */
