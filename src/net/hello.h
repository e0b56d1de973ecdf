/* SPDX-License-Identifier: Apache-2.0
 *
 * hello.h -- the handshake, both sides, without I/O.
 *
 * The owner of a connection feeds received bytes, sends what appears in the
 * output, and asks for the state. docs/protocol.md says what is on the wire.
 *
 *     connecting side                            accepting side
 *
 *     WAIT_CHALLENGE --- hello -------------->   WAIT_HELLO
 *           |        <-- challenge -----------      |
 *     WAIT_WELCOME   --- proof -------------->   WAIT_PROOF
 *           |        <-- welcome -------------      |
 *         DONE                                    DONE
 *
 *     From every state: FAILED, by a refusal sent or received, by a stranger's
 *     bytes, or by the owner (yb_hello_refuse: too slow, too many). DONE and
 *     FAILED are final.
 *
 * Invariants
 *   H1  Role and tenant of an authenticated peer are those of the credential that
 *       it proved. A claim alone never sets them.
 *   H2  A side that has a secret never reaches DONE with a peer that did not prove
 *       the same credential. The connecting side proves first.
 *   H3  Each proof covers every byte of the handshake before it, and of its own
 *       message, in both directions, and the channel binding.
 *   H4  Once FAILED, feed swallows everything: the owner sends the output, shuts its
 *       sending direction and reads a bounded while, so that the refusal is not
 *       lost to a reset.
 *   H5  The connecting side never sends again after its proof is out until DONE,
 *       and the accepting side's bytes behind the welcome are left to the owner:
 *       feed consumes exactly the handshake.
 *
 * Threads   One object belongs to one thread. Several may share one `self`, which is
 *           borrowed until the last of them is destroyed.
 * Memory    About 3 KiB per object, allocated by create, which is all there is.
 * Time      Wall-clock times are passed in; deadlines are the owner's (yb_hello_refuse).
 */
#ifndef YB_NET_HELLO_H
#define YB_NET_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/auth.h"
#include "net/wire/wire.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

/* Why a handshake failed: for counters, logs and the refusal. Values are on the wire: append.
 *      name            value status     word */
/* clang-format off */
#define YB_HELLO_REASON_MAP(X)                                                                     \
    X(NONE,            0, OK,        "none")             /* It did not fail. */                     \
    X(MAGIC,           1, PROTOCOL,  "magic")            /* Not our protocol: random bytes. */      \
    X(HTTP,            2, PROTOCOL,  "http")             /* An HTTP client, or server. */           \
    X(TLS,             3, PROTOCOL,  "tls")              /* TLS where it is switched off. */        \
    X(VERSION,         4, VERSION,   "version")          /* No version, or schema, in common. */    \
    X(CLUSTER,         5, VERSION,   "cluster")          /* Another cluster id. */                  \
    X(SEED,            6, VERSION,   "seed")             /* Another hash seed. */                   \
    X(NO_CREDENTIAL,   7, DENIED,    "no_credential")    /* A secret is needed; none was offered. */\
    X(UNKNOWN_KEY,     8, DENIED,    "unknown_key")      /* No key of that id, role and tenant. */  \
    X(BAD_CREDENTIAL,  9, DENIED,    "bad_credential")   /* The proof is wrong. */                  \
    X(UNPROVED,       10, DENIED,    "unproved")         /* The accepting side proves nothing. */   \
    X(MALFORMED,      11, PROTOCOL,  "malformed")        /* A message that breaks its table. */     \
    X(TOO_SLOW,       12, TIMED_OUT, "too_slow")         /* The owner's deadline passed. */         \
    X(TOO_MANY,       13, REFUSED,   "too_many")         /* The owner has no room for another. */   \
    X(TLS_REQUIRED,   14, REFUSED,   "tls_required")     /* Plain bytes where TLS is switched on. */\
    X(STOPPING,       15, REFUSED,   "stopping")         /* The owner takes no new connections. */  \
    X(INTERNAL,       16, NO_MEMORY, "internal")         /* No memory for a proof. */
/* clang-format on */

enum yb_hello_reason {
#define X(name, value, status, word) YB_HELLO_REASON_##name = (value),
    YB_HELLO_REASON_MAP(X)
#undef X
};
#define YB_HELLO_REASON_COUNT 17u

enum yb_hello_state {
    YB_HELLO_WAIT_CHALLENGE,
    YB_HELLO_WAIT_WELCOME,
    YB_HELLO_WAIT_HELLO,
    YB_HELLO_WAIT_PROOF,
    YB_HELLO_DONE,
    YB_HELLO_FAILED,
};

/* Who we are: made at start, borrowed by every handshake. Strings are borrowed too. */
struct yb_hello_self {
    struct yb_id identity;
    uint64_t incarnation;
    struct yb_id cluster; /* None: any (connecting), none yet (accepting). */
    uint64_t seed_check;  /* 0: not known yet. */
    struct yb_id boot;
    uint64_t features;
    uint16_t version_min; /* YB_WIRE_VERSION_MIN and _MAX outside tests. */
    uint16_t version_max;
    uint64_t schema;            /* YB_WIRE_SCHEMA outside tests: what version_max means to us. */
    uint8_t role;               /* enum yb_wire_role: what we connect as. */
    const char *tenant;         /* "" for every role but client. */
    const struct yb_auth *auth; /* NULL: an open port, a client without credential. */
    uint32_t credit_requests;   /* What we grant to every peer. */
    uint64_t credit_bytes;
    uint32_t body_bytes_max; /* What we take. */
    uint64_t data_bytes_max;
    uint32_t ping_interval_ms; /* What we tell those who connect to us. */
    const char *software;      /* Such as "yuebing 0.1.0". */
    const char *port_name;     /* Such as "Yuebing's binary port (node)": told to strangers. */
    const char *port_remedy;   /* What a lost HTTP client should do; NULL: nothing to add. */
};

/* What one handshake needs beside that. */
struct yb_hello_params {
    uint8_t nonce[32];   /* Fresh random bytes, from the owner's generator. */
    uint8_t binding[32]; /* yb_tls_binding(), or zero. Its TLS handshake must be complete. */
    uint8_t lane;        /* enum yb_wire_lane; connecting side only. */
    uint8_t lane_class;  /* enum yb_class; connecting side only. */
    uint8_t stripe;      /* Which of several parallel connections; connecting side only. */
    uint64_t generation; /* yb_hello_generation(); connecting side only. */
};

/* A stripe has 24 bits: 8 on the wire as such, the others in front of the generation. */
#define YB_STRIPES_MAX (1u << 24)

/* Grows with every connection of a lane and stripe; `count` stays below 2^48. */
static inline uint64_t
yb_hello_generation(uint32_t stripe, uint64_t count)
{
    return (uint64_t)(stripe >> 8) << 48 | count;
}

/* What both sides know in DONE. */
struct yb_hello_result {
    struct yb_id identity; /* The peer's. */
    uint64_t incarnation;
    struct yb_id cluster; /* The one that both are in, or that either knows. */
    uint64_t seed_check;
    struct yb_id boot;
    uint16_t version;
    uint64_t features;                   /* Offered by both. */
    bool authenticated;                  /* Both proved the same credential. */
    uint8_t role;                        /* Connecting side's role, as granted (H1). */
    char tenant[YB_AUTH_TENANT_MAX + 1]; /* Connecting side's tenant (H1). */
    uint8_t lane;
    uint8_t lane_class;
    uint8_t stripe;
    uint64_t generation;
    uint32_t credit_requests; /* What the peer granted to us. */
    uint64_t credit_bytes;
    uint32_t body_bytes_max; /* What the peer takes. */
    uint64_t data_bytes_max;
    uint32_t ping_interval_ms;
    int64_t clock_offset_ns; /* Peer's wall clock minus ours ... */
    uint64_t clock_error_ns; /* ... give or take this; UINT64_MAX: unknown. */
    char software[65];       /* The peer's. */
};

struct yb_hello_failure {
    enum yb_hello_reason reason;
    enum yb_status status;
    bool by_peer;   /* The peer refused us: `text` is what it said. */
    char text[513]; /* A sentence: what happened, both sides' values, what to do. */
};

struct yb_hello;

/* Begin the connecting side: the hello is in the output at once.
 *
 * Fails with DENIED (self->auth has no key for our role and tenant), INVALID (self or params
 * outside their tables) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_hello_client_create(const struct yb_hello_self *self,
                                                 const struct yb_hello_params *params,
                                                 uint64_t wall_ns, struct yb_hello **hello_out);

/* Begin the accepting side. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_hello_server_create(const struct yb_hello_self *self,
                                                 const struct yb_hello_params *params,
                                                 struct yb_hello **hello_out);

/* Wipe, free and set *hello to NULL. */
void yb_hello_destroy(struct yb_hello **hello);

/* Take received bytes; `wall_ns` is the time of their arrival. Returns how many were consumed:
 * all of them until DONE; the bytes behind the last message are left to the owner (H5). */
size_t yb_hello_feed(struct yb_hello *hello, const uint8_t *bytes, size_t length, uint64_t wall_ns);

enum yb_hello_state yb_hello_state(const struct yb_hello *hello);

/* Return the bytes to send and their number; borrowed until the next call on `hello`. There may
 * be some in every state, DONE and FAILED too. */
const uint8_t *yb_hello_output(const struct yb_hello *hello, size_t *length_out);

/* Drop the first `length` bytes of the output: they are sent. */
void yb_hello_sent(struct yb_hello *hello, size_t length);

/* Give up for the owner's reasons. `text` is told to the peer (cut at 512 bytes). The peer is
 * told only while it can understand it: before the first byte, or once it spoke our protocol.
 * Does nothing in DONE and FAILED. */
void yb_hello_refuse(struct yb_hello *hello, enum yb_hello_reason reason, const char *text);

/* Return the outcome; only in DONE. Borrowed until destroy. */
const struct yb_hello_result *yb_hello_result(const struct yb_hello *hello);

/* Return why not; only in FAILED. Borrowed until destroy. */
const struct yb_hello_failure *yb_hello_failure(const struct yb_hello *hello);

/* Return the word of the table, such as "bad_credential"; "unknown" outside it. */
const char *yb_hello_reason_name(unsigned reason);

/* Who may be speaking, judged by the first bytes: for a port that must decide before it knows
 * whether to start TLS. */
enum yb_hello_stranger {
    YB_HELLO_STRANGER_UNDECIDED, /* More bytes are needed, never more than 16. */
    YB_HELLO_STRANGER_NONE,      /* Our preface. */
    YB_HELLO_STRANGER_TLS,       /* A TLS record. */
    YB_HELLO_STRANGER_HTTP,      /* An HTTP request or answer. */
    YB_HELLO_STRANGER_CORO_RPC,  /* A client of the known system: its RPC, or its engine's. */
    YB_HELLO_STRANGER_UNKNOWN,
};
enum yb_hello_stranger yb_hello_stranger(const uint8_t *bytes, size_t length);

#endif /* YB_NET_HELLO_H */
