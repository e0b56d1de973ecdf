/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.h -- TLS 1.3 as a filter between the socket and the connection, without I/O.
 *
 *     socket --> feed --> [ yb_tls ] --> read  --> frames
 *     socket <-- pending_out <-- [ ] <-- write <-- frames
 *
 * Peers need no certificates: the handshake of hello.h proves the credential of
 * both sides over yb_tls_binding(), which differs on the two connections of an
 * interposed third party. A server without a certificate makes one for itself at
 * start. Verification against an authority can be switched on in addition.
 *
 * Invariants
 *   T1  Nothing below TLS 1.3, no resumption, no early data, no renegotiation.
 *   T2  At most YB_TLS_BUFFER_BYTES wait in each direction: feed and write take what
 *       fits and say how much.
 *
 * Threads   A context may be shared by all threads. A yb_tls belongs to one.
 * Memory    Both are owned by their creator. A context outlives what was made from it.
 * Time      options.wall_ns dates the self-made certificate. With an authority file,
 *           OpenSSL judges validity periods by the machine's clock.
 */
#ifndef YB_NET_TLS_H
#define YB_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

/* One record of 16 KiB with its overhead, twice. */
#define YB_TLS_BUFFER_BYTES 34816u

struct yb_tls_options {
    bool server;
    const char *certificate_file; /* PEM chain; NULL: self-made (server), none (client). */
    const char *key_file;         /* PEM, given exactly when the certificate is. */
    const char *authority_file;   /* PEM; NULL: the peer's certificate is not verified. */
    const char *peer_name; /* Client: name that the verified certificate must carry, or NULL. */
    uint64_t wall_ns;
};

struct yb_tls_context;
struct yb_tls;

/* Fails with INVALID (options that contradict each other), NOT_FOUND, DENIED or IO (a file that
 * cannot be used) or NO_MEMORY, and writes a sentence that names the file and the remedy. */
YB_CHECKED enum yb_status yb_tls_context_create(const struct yb_tls_options *options,
                                                struct yb_tls_context **context_out,
                                                char *message_out, size_t message_room);

void yb_tls_context_destroy(struct yb_tls_context **context);

/* Begin one connection. A client's first bytes are in the output at once. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_tls_create(const struct yb_tls_context *context,
                                        struct yb_tls **tls_out);

void yb_tls_destroy(struct yb_tls **tls);

/* Take bytes from the socket and work on them. Returns how many were taken; fewer than `length`
 * means that plaintext must be read first. After a failure everything is swallowed. */
size_t yb_tls_feed(struct yb_tls *tls, const uint8_t *bytes, size_t length);

/* OK: the TLS handshake is complete. AGAIN: not yet. Otherwise as in yb_tls_read. */
YB_CHECKED enum yb_status yb_tls_state(const struct yb_tls *tls);

/* Take plaintext out. OK: *length_out > 0. AGAIN: feed more. CLOSED: the peer said that it is
 * done. PROTOCOL: broken, or not TLS, see yb_tls_error; what is pending (an alert) should still be
 * sent. DENIED: the peer's certificate was not accepted, or ours was not. */
YB_CHECKED enum yb_status yb_tls_read(struct yb_tls *tls, uint8_t *out, size_t room,
                                      size_t *length_out);

/* Put plaintext in. OK: *taken_out > 0, perhaps fewer than `length`. AGAIN: send what is pending
 * first, or the handshake is not complete. Otherwise as in yb_tls_read. `length` > 0. */
YB_CHECKED enum yb_status yb_tls_write(struct yb_tls *tls, const uint8_t *bytes, size_t length,
                                       size_t *taken_out);

/* Return bytes for the socket and their number, NULL when there are none; borrowed until the next
 * call. There may be more behind them: call again after yb_tls_sent. */
const uint8_t *yb_tls_pending_out(struct yb_tls *tls, size_t *length_out);

/* Drop the first `length` of them: they are sent. */
void yb_tls_sent(struct yb_tls *tls, size_t length);

/* Say to the peer that nothing more will be written. */
void yb_tls_finish(struct yb_tls *tls);

/* Export the channel binding of RFC 9266, equal on both ends of one connection only. AGAIN until
 * the TLS handshake is complete. */
YB_CHECKED enum yb_status yb_tls_binding(const struct yb_tls *tls, uint8_t binding_out[32]);

/* Return a sentence about the first failure, "" before one. Borrowed until destroy. */
const char *yb_tls_error(const struct yb_tls *tls);

#endif /* YB_NET_TLS_H */
