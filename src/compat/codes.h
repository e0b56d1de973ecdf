/* SPDX-License-Identifier: Apache-2.0
 *
 * codes.h -- the numbers by which the known system's callers are told how a call ended.
 *
 * Engines compare some of them exactly (-200: no room; -704: not there), so they are never
 * renumbered. Only those that we return are listed.
 */
#ifndef YB_COMPAT_CODES_H
#define YB_COMPAT_CODES_H

#include <stdint.h>

#include "yuebing/status.h"

/* clang-format off */
#define YB_COMPAT_CODE_MAP(X)                                                                \
    X(OK,                      0, "ok")                                                       \
    X(INTERNAL_ERROR,         -1, "internal error")                                           \
    X(ADDRESS_OVERLAPPED,     -7, "the memory, or part of it, is registered already")         \
    X(BUFFER_OVERFLOW,       -10, "buffer overflow")                                          \
    X(SEGMENT_NOT_FOUND,    -101, "no such segment")                                          \
    X(SEGMENT_ALREADY_EXISTS, -102, "the segment exists already")                             \
    X(CLIENT_NOT_FOUND,     -103, "no such client")                                           \
    X(NO_AVAILABLE_HANDLE,  -200, "no room for the value")                                    \
    X(INVALID_VERSION,      -300, "version or cluster not in common")                         \
    X(INVALID_KEY,          -400, "key outside 1..1024 bytes")                                \
    X(WRITE_FAIL,           -500, "the value could not be written")                           \
    X(INVALID_PARAMS,       -600, "argument outside the contract, or not set up")             \
    X(ILLEGAL_CLIENT,       -601, "the credential does not allow this")                       \
    X(INVALID_WRITE,        -700, "write refused")                                            \
    X(INVALID_READ,         -701, "read refused")                                             \
    X(INVALID_REPLICA,      -702, "no replica in memory")                                     \
    X(REPLICA_IS_NOT_READY, -703, "a replica is not complete yet")                            \
    X(OBJECT_NOT_FOUND,     -704, "no such object")                                           \
    X(OBJECT_ALREADY_EXISTS, -705, "the object exists already")                               \
    X(OBJECT_HAS_LEASE,     -706, "a reader holds the object")                                \
    X(LEASE_EXPIRED,        -707, "the session's lease has run out")                          \
    X(OBJECT_HAS_REPLICATION_TASK, -708, "the object is being copied or moved")               \
    X(REPLICA_NOT_FOUND,    -710, "no such replica")                                          \
    X(REPLICA_ALREADY_EXISTS, -711, "the replica exists already")                             \
    X(REPLICA_IS_GONE,      -712, "the replica is gone")                                      \
    X(OBJECT_REPLICA_BUSY,  -714, "the replica is in use")                                    \
    X(TRANSFER_FAIL,        -800, "the transfer failed")                                      \
    X(CHECKSUM_MISMATCH,    -801, "the bytes do not match their checksum")                    \
    X(RPC_FAIL,             -900, "the other side could not be reached")                      \
    X(RPC_TIMEOUT,          -901, "the other side did not answer in time")                    \
    X(UNAVAILABLE_IN_CURRENT_STATUS, -1010, "the index is being rebuilt")                     \
    X(UNAVAILABLE_IN_CURRENT_MODE,   -1011, "not in this mode")                               \
    X(NOT_SUPPORTED,       -1012, "not supported")                                            \
    X(FILE_NOT_FOUND,      -1100, "no such file")                                             \
    X(FILE_OPEN_FAIL,      -1101, "the file cannot be opened")                                \
    X(TASK_NOT_FOUND,      -1400, "no such task")                                             \
    X(TASK_PENDING_LIMIT_EXCEEDED, -1401, "too many tasks wait")                              \
    X(TENANT_QUOTA_EXCEEDED, -1700, "the tenant's quota is used up")
/* clang-format on */

enum yb_compat_code {
#define X(name, value, text) YB_COMPAT_##name = (value),
    YB_COMPAT_CODE_MAP(X)
#undef X
};

/* What kind of call it was: one status has different numbers in some of them. */
enum yb_compat_call {
    YB_COMPAT_CALL_READ,
    YB_COMPAT_CALL_PUT, /* If absent: a value that is there is a success. */
    YB_COMPAT_CALL_UPSERT,
    YB_COMPAT_CALL_RESERVE, /* A put session: a value that is there is -705. */
    YB_COMPAT_CALL_REMOVE,
    YB_COMPAT_CALL_SETUP,
};

/* The table of RULES D2, pure. */
int32_t yb_compat_code(enum yb_status status, enum yb_compat_call call);

/* Return a static sentence; "unknown" for a number outside the table. */
const char *yb_compat_code_text(int32_t code);

#endif /* YB_COMPAT_CODES_H */
