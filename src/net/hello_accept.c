/* SPDX-License-Identifier: Apache-2.0
 *
 * The accepting side: hello taken, challenge sent, proof taken, welcome sent.
 */
#include <string.h>

#include "base/check.h"
#include "net/hello_internal.h"

/* Two sources may call different layouts by one version, while it is not released: whoever
 * connects says which ones it means, in the first bytes of its hello, whatever follows. Versions
 * that are not the newest of both are known from a release. */
static bool
check_schema(struct yb_hello *hello, const uint8_t *body, size_t length)
{
    const struct yb_hello_self *self = hello->self;
    bool said = length >= sizeof(uint64_t) && hello->version_max_of_peer == self->version_max;
    uint64_t schema = said ? yb_wire_get_u64(body + YB_WIRE_HELLO_AT_SCHEMA) : self->schema;

    if (schema != self->schema) {
        yb_hello_fail(
            hello, YB_HELLO_REASON_VERSION,
            "both sides speak protocol version %u, but not the same one: the accepting side "
            "(%.64s) has wire schema %016llx, the connecting side %016llx; they were built from "
            "different sources: run the same build of Yuebing on both",
            self->version_max, self->software, (unsigned long long)self->schema,
            (unsigned long long)schema);
    }
    return schema == self->schema;
}

static void
send_challenge(struct yb_hello *hello, uint64_t wall_ns)
{
    const struct yb_hello_self *self = hello->self;
    uint8_t message[YB_WIRE_PREFACE_BYTES + YB_WIRE_CHALLENGE_BYTES_MAX];
    struct yb_wire_challenge challenge = {
        .features = self->features,
        .incarnation = self->incarnation,
        .seed_check = self->seed_check,
        .wall_received_ns = wall_ns,
        .wall_sent_ns = wall_ns, /* Made at once: the time between is below the clock's error. */
        .credit_bytes = self->credit_bytes,
        .data_bytes_max = self->data_bytes_max,
        .identity = self->identity,
        .cluster = self->cluster,
        .boot = self->boot,
        .credit_requests = self->credit_requests,
        .body_bytes_max = self->body_bytes_max,
        .version = hello->result.version,
        .auth_required = hello->auth,
        .software = yb_wire_text_of(self->software),
    };
    size_t length = 0;
    enum yb_status status;

    memcpy(challenge.nonce, hello->params.nonce, sizeof(challenge.nonce));
    status = yb_wire_challenge_encode(&challenge, message + YB_WIRE_PREFACE_BYTES,
                                      YB_WIRE_CHALLENGE_BYTES_MAX, &length);
    YB_ASSERT(status == YB_OK);
    length = yb_hello_finish_message(hello, YB_WIRE_HANDSHAKE_CHALLENGE, message, length);
    yb_hello_append_transcript(hello, message, length);
    yb_hello_append_out(hello, message, length);
    hello->state = YB_HELLO_WAIT_PROOF;
}

/* Find the key that the peer says it will prove. An open port needs none. */
static bool
find_credential(struct yb_hello *hello, const struct yb_wire_hello *peer)
{
    enum yb_status status;

    hello->auth = hello->self->auth != NULL;
    if (!hello->auth) {
        return true;
    }
    if (yb_wire_zero(peer->key_id, sizeof(peer->key_id))) {
        yb_hello_fail(
            hello, YB_HELLO_REASON_NO_CREDENTIAL,
            "this port asks for a credential and none was offered: give the secret file (option "
            "secret_file) to the connecting side");
        return false;
    }
    status = yb_auth_key_find(hello->self->auth, peer->role, hello->result.tenant, peer->key_id,
                              &hello->key);
    if (status != YB_OK) {
        yb_hello_fail(
            hello, status == YB_NO_MEMORY ? YB_HELLO_REASON_INTERNAL : YB_HELLO_REASON_UNKNOWN_KEY,
            "the credential offered is not one for role %s%s%s: the secret was changed, or the "
            "key was made for another role or tenant",
            yb_wire_role_name(peer->role), hello->result.tenant[0] != '\0' ? " and tenant " : "",
            hello->result.tenant);
        return false;
    }
    hello->have_key = true;
    return true;
}

void
yb_hello_take_hello(struct yb_hello *hello, const uint8_t *body, size_t length, uint64_t wall_ns)
{
    struct yb_hello_result *result = &hello->result;
    struct yb_wire_hello peer;
    struct yb_wire_error error;
    bool is_client;

    if (!check_schema(hello, body, length)) {
        return;
    }
    if (yb_wire_hello_decode(body, length, &peer, &error) != YB_OK) {
        yb_hello_fail_decode(hello, &error);
        return;
    }
    is_client = peer.role == YB_WIRE_ROLE_CLIENT;
    if (is_client ? !yb_auth_tenant_valid(peer.tenant.bytes, peer.tenant.length)
                  : peer.tenant.length != 0) {
        yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED,
                      "a client's tenant is 1 to 64 of [A-Za-z0-9._-]; other roles have none");
        return;
    }
    yb_hello_copy_text(result->tenant, sizeof(result->tenant), peer.tenant);
    if (!yb_hello_check_cluster(hello, peer.cluster, peer.seed_check) ||
        !find_credential(hello, &peer)) {
        return;
    }
    yb_hello_copy_text(result->software, sizeof(result->software), peer.software);
    result->identity = peer.identity;
    result->incarnation = peer.incarnation;
    result->boot = peer.boot;
    result->features = peer.features & hello->self->features;
    result->role = peer.role;
    result->lane = peer.lane;
    result->lane_class = peer.lane_class;
    result->stripe = peer.stripe;
    result->generation = peer.generation;
    result->credit_requests = peer.credit_requests;
    result->credit_bytes = peer.credit_bytes;
    result->body_bytes_max = peer.body_bytes_max;
    result->data_bytes_max = peer.data_bytes_max;
    result->ping_interval_ms = hello->self->ping_interval_ms;
    yb_hello_append_transcript(hello, hello->in, hello->in_length);
    send_challenge(hello, wall_ns);
}

void
yb_hello_take_proof(struct yb_hello *hello, const uint8_t *body, size_t length)
{
    uint8_t message[YB_WIRE_PREFACE_BYTES + YB_WIRE_WELCOME_BYTES];
    struct yb_wire_welcome welcome = {.ping_interval_ms = hello->self->ping_interval_ms,
                                      .role = hello->result.role};
    struct yb_wire_proof proof;
    struct yb_wire_error error;
    enum yb_status status;
    size_t sent = 0;

    if (yb_wire_proof_decode(body, length, &proof, &error) != YB_OK) {
        yb_hello_fail_decode(hello, &error);
        return;
    }
    if (!yb_hello_check_proof(hello, proof.proof, YB_WIRE_PROOF_AT_PROOF)) {
        return;
    }
    status = yb_wire_welcome_encode(&welcome, message + YB_WIRE_PREFACE_BYTES,
                                    YB_WIRE_WELCOME_BYTES, &sent);
    YB_ASSERT(status == YB_OK);
    sent = yb_hello_finish_message(hello, YB_WIRE_HANDSHAKE_WELCOME, message, sent);
    if (hello->auth &&
        yb_hello_make_proof(hello, true, message, sent,
                            message + YB_WIRE_PREFACE_BYTES + YB_WIRE_WELCOME_AT_PROOF) != YB_OK) {
        yb_hello_fail(hello, YB_HELLO_REASON_INTERNAL,
                      "the accepting side has no memory for a proof");
        return;
    }
    yb_hello_append_out(hello, message, sent);
    hello->result.clock_error_ns = proof.clock_error_ns;
    hello->result.clock_offset_ns =
        proof.clock_offset_ns == INT64_MIN ? INT64_MAX : -proof.clock_offset_ns;
    yb_hello_finish(hello);
}
