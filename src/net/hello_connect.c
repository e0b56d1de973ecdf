/* SPDX-License-Identifier: Apache-2.0
 *
 * The connecting side: hello sent, challenge taken, proof sent, welcome taken.
 */
#include <string.h>

#include "base/check.h"
#include "net/hello_internal.h"

enum yb_status
yb_hello_send_hello(struct yb_hello *hello, uint64_t wall_ns)
{
    const struct yb_hello_self *self = hello->self;
    uint8_t message[YB_WIRE_PREFACE_BYTES + YB_WIRE_HELLO_BYTES_MAX];
    struct yb_wire_hello own = {
        .schema = self->schema,
        .features = self->features,
        .incarnation = self->incarnation,
        .seed_check = self->seed_check,
        .wall_ns = wall_ns,
        .credit_bytes = self->credit_bytes,
        .data_bytes_max = self->data_bytes_max,
        .identity = self->identity,
        .cluster = self->cluster,
        .boot = self->boot,
        .credit_requests = self->credit_requests,
        .body_bytes_max = self->body_bytes_max,
        .role = self->role,
        .lane = hello->params.lane,
        .lane_class = hello->params.lane_class,
        .stripe = hello->params.stripe,
        .generation = hello->params.generation,
        .tenant = yb_wire_text_of(self->tenant),
        .software = yb_wire_text_of(self->software),
    };
    size_t length = 0;
    enum yb_status status;

    memcpy(own.key_id, hello->key.id, sizeof(own.key_id)); /* Zero without a key. */
    memcpy(own.nonce, hello->params.nonce, sizeof(own.nonce));
    status = yb_wire_hello_encode(&own, message + YB_WIRE_PREFACE_BYTES, YB_WIRE_HELLO_BYTES_MAX,
                                  &length);
    if (status != YB_OK) {
        return YB_INVALID;
    }
    length = yb_hello_finish_message(hello, YB_WIRE_HANDSHAKE_HELLO, message, length);
    yb_hello_append_transcript(hello, message, length);
    yb_hello_append_out(hello, message, length);
    hello->wall_start_ns = wall_ns;
    return YB_OK;
}

static void
send_proof(struct yb_hello *hello)
{
    uint8_t message[YB_WIRE_PREFACE_BYTES + YB_WIRE_PROOF_BYTES];
    struct yb_wire_proof proof = {.clock_offset_ns = hello->result.clock_offset_ns,
                                  .clock_error_ns = hello->result.clock_error_ns};
    uint8_t *place = message + YB_WIRE_PREFACE_BYTES + YB_WIRE_PROOF_AT_PROOF;
    size_t length = 0;
    enum yb_status status =
        yb_wire_proof_encode(&proof, message + YB_WIRE_PREFACE_BYTES, YB_WIRE_PROOF_BYTES, &length);

    YB_ASSERT(status == YB_OK);
    length = yb_hello_finish_message(hello, YB_WIRE_HANDSHAKE_PROOF, message, length);
    if (!hello->auth) {
        yb_hello_append_transcript(hello, message, length);
    } else if (yb_hello_make_proof(hello, false, message, length, place) == YB_OK) {
        /* What follows covers the message as it is sent. */
        memcpy(hello->transcript + hello->transcript_length - length, message, length);
    } else {
        yb_hello_fail(hello, YB_HELLO_REASON_INTERNAL,
                      "the connecting side has no memory for a proof");
        return;
    }
    yb_hello_append_out(hello, message, length);
    hello->state = YB_HELLO_WAIT_WELCOME;
}

/* Estimate the peer's clock from four times, as NTP does: sent and received here, received and
 * sent there. Numbers that contradict each other (a clock that jumped, a peer that lies) give
 * no estimate. */
static void
estimate_clock(struct yb_hello *hello, uint64_t sent, uint64_t received_there, uint64_t sent_there,
               uint64_t received)
{
    __int128 there = (__int128)sent_there - received_there;
    __int128 trip = (__int128)received - sent - there;
    __int128 offset = ((__int128)received_there - sent + (__int128)sent_there - received) / 2;

    hello->result.clock_offset_ns = 0;
    hello->result.clock_error_ns = UINT64_MAX;
    if (there >= 0 && trip >= 0 && offset <= INT64_MAX && offset >= -(__int128)INT64_MAX) {
        hello->result.clock_offset_ns = (int64_t)offset;
        hello->result.clock_error_ns = (uint64_t)(trip / 2) + 1;
    }
}

/* Judge what the challenge says about proofs against what we have. */
static bool
agree_on_auth(struct yb_hello *hello, const struct yb_wire_challenge *peer)
{
    if (hello->have_key && peer->auth_required == 0) {
        yb_hello_fail(
            hello, YB_HELLO_REASON_UNPROVED,
            "the accepting side has no secret and cannot prove who it is: give it the secret "
            "file, or take the secret from the connecting side");
        return false;
    }
    if (!hello->have_key && peer->auth_required != 0) {
        yb_hello_fail(
            hello, YB_HELLO_REASON_NO_CREDENTIAL,
            "the accepting side asks for a credential: give the secret file (option secret_file) "
            "to the connecting side");
        return false;
    }
    hello->auth = peer->auth_required != 0;
    return true;
}

void
yb_hello_take_challenge(struct yb_hello *hello, const uint8_t *body, size_t length,
                        uint64_t wall_ns)
{
    struct yb_hello_result *result = &hello->result;
    struct yb_wire_challenge peer;
    struct yb_wire_error error;

    if (yb_wire_challenge_decode(body, length, &peer, &error) != YB_OK) {
        yb_hello_fail_decode(hello, &error);
        return;
    }
    if (peer.version != result->version) {
        yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED,
                      "the accepting side chose version %u where %u is the highest of both",
                      peer.version, result->version);
        return;
    }
    if (!yb_hello_check_cluster(hello, peer.cluster, peer.seed_check) ||
        !agree_on_auth(hello, &peer)) {
        return;
    }
    yb_hello_copy_text(result->software, sizeof(result->software), peer.software);
    result->identity = peer.identity;
    result->incarnation = peer.incarnation;
    result->boot = peer.boot;
    result->features = peer.features & hello->self->features;
    result->credit_requests = peer.credit_requests;
    result->credit_bytes = peer.credit_bytes;
    result->body_bytes_max = peer.body_bytes_max;
    result->data_bytes_max = peer.data_bytes_max;
    estimate_clock(hello, hello->wall_start_ns, peer.wall_received_ns, peer.wall_sent_ns, wall_ns);
    yb_hello_append_transcript(hello, hello->in, hello->in_length);
    send_proof(hello);
}

void
yb_hello_take_welcome(struct yb_hello *hello, const uint8_t *body, size_t length)
{
    struct yb_wire_welcome welcome;
    struct yb_wire_error error;

    if (yb_wire_welcome_decode(body, length, &welcome, &error) != YB_OK) {
        yb_hello_fail_decode(hello, &error);
        return;
    }
    if (!yb_hello_check_proof(hello, welcome.proof, YB_WIRE_WELCOME_AT_PROOF)) {
        return;
    }
    if (welcome.role != hello->self->role) {
        yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED,
                      "the accepting side granted role %s instead of %s",
                      yb_wire_role_name(welcome.role), yb_wire_role_name(hello->self->role));
        return;
    }
    hello->result.role = welcome.role;
    hello->result.lane = hello->params.lane;
    hello->result.lane_class = hello->params.lane_class;
    hello->result.stripe = hello->params.stripe;
    hello->result.generation = hello->params.generation;
    hello->result.ping_interval_ms = welcome.ping_interval_ms;
    yb_hello_copy_text(hello->result.tenant, sizeof(hello->result.tenant),
                       yb_wire_text_of(hello->self->tenant));
    yb_hello_finish(hello);
}
