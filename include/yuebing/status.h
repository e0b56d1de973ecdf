/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h -- the one error type.
 *
 * Every function that can fail returns enum yb_status. A code answers two
 * questions: what happened (its name) and how far the damage reaches (its
 * scope). Recovery code switches on the scope, never on a list of names, so a
 * code added next year cannot slip past it.
 *
 * Threads   Every function here may be called from any thread.
 * Memory    All strings are static and never NULL.
 */
#ifndef YB_STATUS_H
#define YB_STATUS_H

#include <stdbool.h>

#include "yuebing/version.h"

/* How far a failure reaches, and therefore what recovery may touch. */
enum yb_scope {
    YB_SCOPE_NONE,   /* Success. */
    YB_SCOPE_CALL,   /* This call only: fix the argument, or wait and retry. */
    YB_SCOPE_OBJECT, /* This key or replica: try another replica. */
    YB_SCOPE_PEER,   /* This connection: reconnect or fail over. */
    YB_SCOPE_NODE,   /* This process or device: stop admitting work. */
};

/* Values are on the wire: append, never renumber. */
/* clang-format off */
#define YB_STATUS_MAP(X)                                                                     \
    X(OK,              0, NONE,   "ok")                                                       \
    X(AGAIN,          -1, CALL,   "nothing was started for want of room; retry later")        \
    X(INVALID,        -2, CALL,   "argument outside the contract")                            \
    X(NOT_FOUND,      -3, OBJECT, "no such object")                                           \
    X(LEASED,         -4, OBJECT, "a reader holds a lease; the bytes may not move")           \
    X(SEALED,         -5, OBJECT, "the object is being moved or freed")                       \
    X(CORRUPT,        -6, OBJECT, "the bytes do not match their checksum")                    \
    X(TIMED_OUT,      -7, PEER,   "the peer did not answer in time")                          \
    X(PEER_LOST,      -8, PEER,   "the connection is gone")                                   \
    X(NO_SPACE,       -9, NODE,   "every tier is full and nothing may be evicted")            \
    X(IO,            -10, NODE,   "a local device failed")                                    \
    X(EXISTS,        -11, OBJECT, "the key already has a value")                              \
    X(IN_PROGRESS,   -12, OBJECT, "another writer is putting this key")                       \
    X(IN_DOUBT,      -13, PEER,   "sent, but the answer was lost; it may have been applied")  \
    X(CANCELLED,     -14, CALL,   "cancelled by the caller")                                  \
    X(DENIED,        -15, CALL,   "the peer's credential does not allow this")                \
    X(VERSION,       -16, PEER,   "no version or cluster in common with the peer")            \
    X(PROTOCOL,      -17, PEER,   "the peer broke the protocol")                              \
    X(FENCED,        -18, NODE,   "this incarnation is no longer a member")                   \
    X(REBUILDING,    -19, CALL,   "the index is being rebuilt; absence is not known yet")     \
    X(NOT_READY,     -20, OBJECT, "committed but not yet granted")                            \
    X(STALE,         -21, OBJECT, "the object or region changed meanwhile")                   \
    X(TOO_LARGE,     -22, CALL,   "larger than the limit")                                    \
    X(TOO_SMALL,     -23, CALL,   "the buffer cannot hold the answer")                        \
    X(BUSY,          -24, CALL,   "in use; retry when it is released")                        \
    X(BUSY_BUFFER,   -25, CALL,   "the buffer may still be written; drain before reuse")      \
    X(UNSUPPORTED,   -26, CALL,   "not offered by this peer, kernel or build")                \
    X(QUOTA,         -27, CALL,   "the tenant's quota is used up")                            \
    X(HELD,          -28, OBJECT, "a hold keeps the object")                                  \
    X(LAPSED,        -29, OBJECT, "the pin ran out before the read was judged")               \
    X(LOST,          -30, OBJECT, "another copy won; this one must be freed")                 \
    X(REFUSED,       -31, PEER,   "the peer refuses connections or work")                     \
    X(FAULT,         -32, CALL,   "memory that cannot be read or written")                    \
    X(ADDRESS_IN_USE,-33, NODE,   "another process listens on that address")                  \
    X(UNREACHABLE,   -34, PEER,   "the address does not resolve or no route leads to it")     \
    X(NO_MEMORY,     -35, NODE,   "the operating system gave no memory or descriptor")        \
    X(CLOSED,        -36, CALL,   "the handle is closed or closing")
/* clang-format on */

enum yb_status {
#define X(name, value, scope, text) YB_##name = (value),
    YB_STATUS_MAP(X)
#undef X
};

#if defined(__GNUC__)
#define YB_CHECKED __attribute__((warn_unused_result))
#else
#define YB_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Return a static string such as "LEASED"; "UNKNOWN" for a value outside the table. */
YB_API const char *yb_status_name(enum yb_status status);

/* Return a static sentence for a log line. */
YB_API const char *yb_status_text(enum yb_status status);

/* Return how far the failure reaches. A value outside the table counts as PEER:
 * only a newer peer can have sent it. */
YB_API enum yb_scope yb_status_scope(enum yb_status status);

/* Return whether `value` is a row of the table: the check for a number off the wire. */
YB_API bool yb_status_known(int value);

#ifdef __cplusplus
}
#endif

#endif /* YB_STATUS_H */
