/* SPDX-License-Identifier: Apache-2.0
 *
 * hello_internal.h -- a handshake under way, for the files that carry it out.
 *
 * hello.c has life, what arrives and what both sides do; hello_accept.c and hello_connect.c have
 * what each side says and how it judges what the other one said.
 */
#ifndef YB_NET_HELLO_INTERNAL_H
#define YB_NET_HELLO_INTERNAL_H

#include "net/hello.h"

#define YB_HELLO_MAGIC 0x68656c6fu

#define YB_HELLO_BODY_MAX ((size_t)YB_WIRE_REFUSAL_BYTES_MAX)
#define YB_HELLO_OUT_MAX  1024u
#define YB_HELLO_TRANSCRIPT_MAX                                          \
    (4u * YB_WIRE_PREFACE_BYTES + (size_t)YB_WIRE_HELLO_BYTES_MAX +      \
     (size_t)YB_WIRE_CHALLENGE_BYTES_MAX + (size_t)YB_WIRE_PROOF_BYTES + \
     (size_t)YB_WIRE_WELCOME_BYTES)

struct yb_hello {
    uint32_t magic;
    bool server;
    bool spoke; /* The peer has sent a preface of ours: it can read a refusal. */
    bool have_key;
    bool auth; /* Both sides prove: set by the challenge. */
    enum yb_hello_state state;
    const struct yb_hello_self *self;
    struct yb_hello_params params;
    struct yb_auth_key key; /* Of this connection, while have_key. */

    uint64_t wall_start_ns;       /* Client: when the hello was made. */
    uint16_t version_min_of_peer; /* From its first preface; the later ones repeat it. */
    uint16_t version_max_of_peer;

    struct yb_wire_preface preface; /* Of the message that is arriving, once complete. */
    size_t in_length;
    size_t out_length;
    size_t transcript_length;
    uint8_t in[YB_WIRE_PREFACE_BYTES + YB_HELLO_BODY_MAX];
    uint8_t out[YB_HELLO_OUT_MAX];
    uint8_t transcript[YB_HELLO_TRANSCRIPT_MAX];

    struct yb_hello_result result;
    struct yb_hello_failure failure;
};

/* ---- hello.c --------------------------------------------------------------------------------- */

/* Enter FAILED and tell the peer why, if it can read that. */
void yb_hello_fail(struct yb_hello *hello, enum yb_hello_reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void yb_hello_fail_decode(struct yb_hello *hello, const struct yb_wire_error *error);

/* Bytes to send; bytes that the proofs cover. */
void yb_hello_append_out(struct yb_hello *hello, const void *bytes, size_t length);
void yb_hello_append_transcript(struct yb_hello *hello, const uint8_t *bytes, size_t length);

/* Put the preface in front of a body that stands at message + YB_WIRE_PREFACE_BYTES; returns how
 * long both are. */
size_t yb_hello_finish_message(const struct yb_hello *hello, uint16_t type, uint8_t *message,
                               size_t body_length);

/* Fill `proof_out` at its place in `message`, which holds zeros there, over all before it and it.
 * Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_hello_make_proof(struct yb_hello *hello, bool server,
                                              const uint8_t *message, size_t length,
                                              uint8_t proof_out[32]);

/* Judge the proof of the message that has just arrived (made over the same with the proof blanked),
 * and the peer's cluster. False: it failed. */
bool yb_hello_check_proof(struct yb_hello *hello, const uint8_t proof[32], size_t at);
bool yb_hello_check_cluster(struct yb_hello *hello, struct yb_id cluster, uint64_t seed_check);

/* Enter DONE; check_proof has judged the peer. */
void yb_hello_finish(struct yb_hello *hello);

void yb_hello_copy_text(char *out, size_t room, struct yb_wire_text text);

/* ---- hello_accept.c -------------------------------------------------------------------------- */

void yb_hello_take_hello(struct yb_hello *hello, const uint8_t *body, size_t length,
                         uint64_t wall_ns);
void yb_hello_take_proof(struct yb_hello *hello, const uint8_t *body, size_t length);

/* ---- hello_connect.c ------------------------------------------------------------------------- */

/* Fails with INVALID: what we say of ourselves breaks the table. */
YB_CHECKED enum yb_status yb_hello_send_hello(struct yb_hello *hello, uint64_t wall_ns);
void yb_hello_take_challenge(struct yb_hello *hello, const uint8_t *body, size_t length,
                             uint64_t wall_ns);
void yb_hello_take_welcome(struct yb_hello *hello, const uint8_t *body, size_t length);

#endif /* YB_NET_HELLO_INTERNAL_H */
