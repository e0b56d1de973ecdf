/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: both sides of the handshake agree or refuse, and never believe a claim.
 * Method: the two machines against each other, bytes in random pieces, with every
 * byte of every message tampered with once; strangers' bytes; liars made by hand.
 */
#include "unit.h"

#include <string.h>

#include "base/clock.h"
#include "net/hello.h"

#define SECRET_A "secret 0123456789abcdef0123456789abcdef"
#define SECRET_B "secret fedcba9876543210fedcba9876543210"
#define WALL     (1700000000ull * YB_NS_PER_S)
#define SCHEMA   UINT64_C(0x0123456789abcdef)

static struct yb_auth *
parse(const char *text)
{
    struct yb_auth *auth = NULL;
    char message[300];

    assert_int_equal(yb_auth_parse("test", text, strlen(text), &auth, message, sizeof(message)),
                     YB_OK);
    return auth;
}

static struct yb_id
id_of(uint8_t fill)
{
    struct yb_id id;

    memset(id.bytes, fill, sizeof(id.bytes));
    return id;
}

static struct yb_hello_self
make_self(uint8_t fill, uint8_t role, const char *tenant, const struct yb_auth *auth)
{
    return (struct yb_hello_self){
        .identity = id_of(fill),
        .incarnation = fill,
        .boot = id_of(0xb0),
        .features = 0x3,
        .version_min = 1,
        .version_max = 1,
        .schema = SCHEMA,
        .role = role,
        .tenant = tenant,
        .auth = auth,
        .credit_requests = 100u + fill,
        .credit_bytes = 1000u + fill,
        .body_bytes_max = 2000u + fill,
        .data_bytes_max = 3000u + fill,
        .ping_interval_ms = 1000,
        .software = "yuebing 0.1.0",
        .port_name = "Yuebing's node port",
        .port_remedy = "Metrics are on another port.",
    };
}

/* Both sides of one handshake, and what may go wrong between them. */
struct pair {
    struct yb_hello *client;
    struct yb_hello *server;
    uint64_t random;
    uint64_t trip_ns;   /* One way. */
    int64_t ahead_ns;   /* Server's clock minus the client's. */
    size_t tamper_at;   /* Byte to change, counted per direction; SIZE_MAX: none. */
    bool tamper_client; /* In what the client sends, or in what the server sends. */
    uint8_t tamper_mask;
    size_t client_bytes, server_bytes; /* Sent so far. */
    uint64_t wall_ns;                  /* The client's clock. */
};

static struct yb_hello_params
params_of(uint8_t fill)
{
    struct yb_hello_params params = {.lane = YB_WIRE_LANE_BULK, .lane_class = YB_CLASS_BACKGROUND};

    memset(params.nonce, fill, sizeof(params.nonce));
    return params;
}

static void
pair_open(struct pair *pair, const struct yb_hello_self *client, const struct yb_hello_self *server)
{
    struct yb_hello_params client_params = params_of(1), server_params = params_of(2);

    *pair = (struct pair){.random = 77, .tamper_at = SIZE_MAX, .tamper_mask = 1, .wall_ns = WALL};
    assert_int_equal(yb_hello_client_create(client, &client_params, WALL, &pair->client), YB_OK);
    assert_int_equal(yb_hello_server_create(server, &server_params, &pair->server), YB_OK);
}

static void
pair_close(struct pair *pair)
{
    yb_hello_destroy(&pair->client);
    yb_hello_destroy(&pair->server);
    assert_null(pair->client);
}

/* Carry a random piece from one side to the other. Returns whether there was any. */
static bool
carry(struct pair *pair, bool from_client)
{
    struct yb_hello *from = from_client ? pair->client : pair->server;
    struct yb_hello *to = from_client ? pair->server : pair->client;
    size_t *sent = from_client ? &pair->client_bytes : &pair->server_bytes;
    uint8_t piece[1024];
    size_t length = 0, used;
    const uint8_t *bytes = yb_hello_output(from, &length);
    uint64_t there = from_client ? pair->wall_ns + (uint64_t)pair->ahead_ns : pair->wall_ns;

    if (length == 0) {
        return false;
    }
    length = 1 + unit_random(&pair->random) % length;
    memcpy(piece, bytes, length);
    if (pair->tamper_client == from_client && pair->tamper_at >= *sent &&
        pair->tamper_at < *sent + length) {
        piece[pair->tamper_at - *sent] ^= pair->tamper_mask;
    }
    *sent += length;
    yb_hello_sent(from, length);
    used = yb_hello_feed(to, piece, length, there);
    assert_true(used == length || yb_hello_state(to) == YB_HELLO_DONE);
    return true;
}

static void
run(struct pair *pair)
{
    for (;;) {
        bool moved = false;

        pair->wall_ns += pair->trip_ns;
        while (carry(pair, true)) {
            moved = true;
        }
        pair->wall_ns += pair->trip_ns;
        while (carry(pair, false)) {
            moved = true;
        }
        if (!moved) {
            return;
        }
    }
}

static bool
both_done(const struct pair *pair)
{
    return yb_hello_state(pair->client) == YB_HELLO_DONE &&
           yb_hello_state(pair->server) == YB_HELLO_DONE;
}

/* Check that both sides failed for the same reason: one found it, the other was told. */
static void
expect_failure(struct pair *pair, enum yb_hello_reason reason, enum yb_status status)
{
    const struct yb_hello_failure *client, *server;

    run(pair);
    assert_int_equal(yb_hello_state(pair->client), YB_HELLO_FAILED);
    assert_int_equal(yb_hello_state(pair->server), YB_HELLO_FAILED);
    client = yb_hello_failure(pair->client);
    server = yb_hello_failure(pair->server);
    assert_int_equal(client->reason, reason);
    assert_int_equal(server->reason, reason);
    assert_int_equal(client->status, status);
    assert_int_equal(server->status, status);
    assert_true(client->by_peer != server->by_peer);
    assert_string_equal(client->text, server->text);
    assert_true(strlen(client->text) > 0);
}

static void
test_hello__two_members_learn_each_other(void **state)
{
    struct yb_auth *auth = parse(SECRET_A);
    struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", auth);
    struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", auth);
    const struct yb_hello_result *at_client, *at_server;
    uint64_t seed = unit_seed("hello pieces");

    (void)state;
    client.features = 0x5;
    server.cluster = id_of(0xcc);
    server.seed_check = 99;
    for (unsigned round = 0; round < 50; round++) {
        struct pair pair;

        pair_open(&pair, &client, &server);
        pair.random = seed + round;
        pair.trip_ns = 1000;
        pair.ahead_ns = 5000000;
        run(&pair);
        assert_true(both_done(&pair));
        at_client = yb_hello_result(pair.client);
        at_server = yb_hello_result(pair.server);
        assert_true(at_client->authenticated && at_server->authenticated);
        assert_true(yb_id_equal(at_client->identity, id_of(2)));
        assert_true(yb_id_equal(at_server->identity, id_of(1)));
        assert_int_equal(at_client->incarnation, 2);
        assert_int_equal(at_server->incarnation, 1);
        assert_true(yb_id_equal(at_client->cluster, id_of(0xcc)));
        assert_true(yb_id_equal(at_server->cluster, id_of(0xcc)));
        assert_int_equal(at_client->seed_check, 99);
        assert_int_equal(at_client->features, 1);
        assert_int_equal(at_server->features, 1);
        assert_int_equal(at_client->version, 1);
        assert_int_equal(at_server->version, 1);
        assert_int_equal(at_server->role, YB_WIRE_ROLE_CLIENT);
        assert_string_equal(at_server->tenant, "team-a");
        assert_string_equal(at_client->tenant, "team-a");
        assert_int_equal(at_server->lane, YB_WIRE_LANE_BULK);
        assert_int_equal(at_server->lane_class, YB_CLASS_BACKGROUND);
        assert_int_equal(at_client->credit_requests, 102);
        assert_int_equal(at_server->credit_bytes, 1001);
        assert_int_equal(at_client->body_bytes_max, 2002);
        assert_int_equal(at_server->data_bytes_max, 3001);
        assert_int_equal(at_client->ping_interval_ms, 1000);
        assert_int_equal(at_client->clock_offset_ns, 5000000);
        assert_int_equal(at_server->clock_offset_ns, -5000000);
        assert_int_equal(at_client->clock_error_ns, 1001);
        assert_string_equal(at_server->software, "yuebing 0.1.0");
        pair_close(&pair);
    }
    yb_auth_destroy(&auth);
}

static void
test_hello__without_secrets_a_connection_is_open_and_says_so(void **state)
{
    struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", NULL);
    struct pair pair;

    (void)state;
    pair_open(&pair, &client, &server);
    run(&pair);
    assert_true(both_done(&pair));
    assert_false(yb_hello_result(pair.client)->authenticated);
    assert_false(yb_hello_result(pair.server)->authenticated);
    pair_close(&pair);
}

static void
test_hello__no_byte_of_any_message_can_be_changed(void **state)
{
    struct yb_auth *auth = parse(SECRET_A);
    struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", auth);
    struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", auth);
    struct pair pair;
    size_t lengths[2];

    (void)state;
    /* A range of versions, so that a lower choice would be possible. */
    client.version_min = server.version_min = 1;
    client.version_max = server.version_max = 2;
    pair_open(&pair, &client, &server);
    run(&pair);
    assert_true(both_done(&pair));
    assert_int_equal(yb_hello_result(pair.client)->version, 2);
    lengths[0] = pair.client_bytes;
    lengths[1] = pair.server_bytes;
    pair_close(&pair);
    for (unsigned direction = 0; direction < 2; direction++) {
        for (size_t at = 0; at < 8 * lengths[direction]; at++) {
            pair_open(&pair, &client, &server);
            pair.tamper_client = direction == 0;
            pair.tamper_at = at / 8;
            pair.tamper_mask = (uint8_t)(1u << at % 8);
            run(&pair);
            if (both_done(&pair)) {
                fail_msg("bit %zu of direction %u could be changed", at, direction);
            }
            /* The accepting side is last to speak: of it, only the welcome is believed late. */
            assert_true(direction == 1 || yb_hello_state(pair.server) != YB_HELLO_DONE);
            pair_close(&pair);
        }
    }
    yb_auth_destroy(&auth);
}

static void
test_hello__the_proofs_belong_to_one_tls_channel(void **state)
{
    struct yb_auth *auth = parse(SECRET_A);
    struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", auth);
    struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", auth);
    struct yb_hello_params params = params_of(2);
    struct pair pair;

    (void)state;
    pair_open(&pair, &client, &server);
    yb_hello_destroy(&pair.server);
    params.binding[5] = 1;
    assert_int_equal(yb_hello_server_create(&server, &params, &pair.server), YB_OK);
    expect_failure(&pair, YB_HELLO_REASON_BAD_CREDENTIAL, YB_DENIED);
    pair_close(&pair);
    yb_auth_destroy(&auth);
}

static void
test_hello__who_has_a_secret_refuses_who_has_none(void **state)
{
    struct yb_auth *auth = parse(SECRET_A), *other = parse(SECRET_B);
    struct yb_hello_self with = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", auth);
    struct yb_hello_self without = make_self(2, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct yb_hello_self stranger = make_self(3, YB_WIRE_ROLE_CLIENT, "team-a", other);
    struct pair pair;

    (void)state;
    pair_open(&pair, &without, &with);
    expect_failure(&pair, YB_HELLO_REASON_NO_CREDENTIAL, YB_DENIED);
    pair_close(&pair);
    pair_open(&pair, &with, &without);
    expect_failure(&pair, YB_HELLO_REASON_UNPROVED, YB_DENIED);
    pair_close(&pair);
    pair_open(&pair, &stranger, &with);
    expect_failure(&pair, YB_HELLO_REASON_UNKNOWN_KEY, YB_DENIED);
    pair_close(&pair);
    yb_auth_destroy(&auth);
    yb_auth_destroy(&other);
}

static void
test_hello__secrets_rotate_while_all_run(void **state)
{
    struct yb_auth *auth[4] = {parse(SECRET_A), parse(SECRET_A "\n" SECRET_B),
                               parse(SECRET_B "\n" SECRET_A), parse(SECRET_B)};

    (void)state;
    /* Step by step every pair of neighbours gets on, in both directions. */
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_NODE, "", auth[i]);
            struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", auth[j]);
            bool expected = (i <= 1 && j <= 2) || (i >= 2 && j >= 1);
            struct pair pair;

            pair_open(&pair, &client, &server);
            run(&pair);
            assert_int_equal(both_done(&pair), expected);
            pair_close(&pair);
        }
    }
    for (int i = 0; i < 4; i++) {
        yb_auth_destroy(&auth[i]);
    }
}

/* Take the hello of a client, change its claim, and let the rest run. */
static void
lie(const struct yb_hello_self *client, const struct yb_hello_self *server, uint8_t role,
    const char *tenant)
{
    struct yb_wire_hello hello;
    uint8_t message[400];
    size_t length = 0;
    const uint8_t *bytes;
    struct pair pair;

    pair_open(&pair, client, server);
    bytes = yb_hello_output(pair.client, &length);
    assert_int_equal(yb_wire_hello_decode(bytes + 16, length - 16, &hello, NULL), YB_OK);
    hello.role = role;
    hello.tenant = yb_wire_text_of(tenant);
    memcpy(message, bytes, 16);
    assert_int_equal(yb_wire_hello_encode(&hello, message + 16, sizeof(message) - 16, &length),
                     YB_OK);
    yb_wire_put_u16(message + YB_WIRE_PREFACE_AT_LENGTH, (uint16_t)length);
    assert_int_equal(yb_hello_feed(pair.server, message, length + 16, WALL), length + 16);
    assert_int_equal(yb_hello_state(pair.server), YB_HELLO_FAILED);
    assert_int_equal(yb_hello_failure(pair.server)->reason, YB_HELLO_REASON_UNKNOWN_KEY);
    pair_close(&pair);
}

static void
test_hello__a_key_holder_can_claim_no_other_tenant_or_role(void **state)
{
    struct yb_auth *secret = parse(SECRET_A), *derived;
    struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", secret);
    struct yb_hello_self client;
    struct yb_hello *hello = NULL;
    struct yb_hello_params params = params_of(1);
    char line[YB_AUTH_LINE_MAX];
    struct pair pair;

    (void)state;
    assert_int_equal(yb_auth_derive_line(secret, YB_WIRE_ROLE_CLIENT, "team-a", line, sizeof(line)),
                     YB_OK);
    derived = parse(line);
    client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", derived);
    pair_open(&pair, &client, &server);
    run(&pair);
    assert_true(both_done(&pair));
    assert_string_equal(yb_hello_result(pair.server)->tenant, "team-a");
    pair_close(&pair);

    lie(&client, &server, YB_WIRE_ROLE_CLIENT, "team-b");
    lie(&client, &server, YB_WIRE_ROLE_NODE, "");
    lie(&client, &server, YB_WIRE_ROLE_DIRECTORY, "");
    lie(&client, &server, YB_WIRE_ROLE_ADMIN, "");
    client.tenant = "team-b";
    assert_int_equal(yb_hello_client_create(&client, &params, WALL, &hello), YB_DENIED);
    client.role = YB_WIRE_ROLE_NODE;
    client.tenant = "";
    assert_int_equal(yb_hello_client_create(&client, &params, WALL, &hello), YB_DENIED);
    client.tenant = "team-a";
    assert_int_equal(yb_hello_client_create(&client, &params, WALL, &hello), YB_INVALID);
    assert_null(hello);
    yb_auth_destroy(&derived);
    yb_auth_destroy(&secret);
}

static void
test_hello__other_versions_are_told_both_ranges(void **state)
{
    static const struct {
        uint16_t min, max;
    } ranges[] = {{0, 0}, {2, 2}, {101, 101}, {2, 65535}};
    struct yb_hello_self ours = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);

    (void)state;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct yb_hello_self other = ours;
        char range[32];
        struct pair pair;

        other.version_min = ranges[i].min;
        other.version_max = ranges[i].max;
        snprintf(range, sizeof(range), "speaks %u to %u", ranges[i].min, ranges[i].max);
        for (unsigned side = 0; side < 2; side++) {
            pair_open(&pair, side == 0 ? &ours : &other, side == 0 ? &other : &ours);
            expect_failure(&pair, YB_HELLO_REASON_VERSION, YB_VERSION);
            assert_non_null(strstr(yb_hello_failure(pair.client)->text, range));
            assert_non_null(strstr(yb_hello_failure(pair.client)->text, "speaks 1 to 1"));
            assert_non_null(
                strstr(yb_hello_failure(pair.client)->text, (side == 0) == (ranges[i].min == 0)
                                                                ? "upgrade the accepting side"
                                                                : "upgrade the connecting side"));
            pair_close(&pair);
        }
    }
}

static void
test_hello__other_layouts_of_one_version_are_told_both_schemas(void **state)
{
    struct yb_hello_self ours = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct yb_hello_self other = ours;
    struct pair pair;

    (void)state;
    other.schema ^= UINT64_C(1) << 63;
    for (unsigned side = 0; side < 2; side++) {
        const char *text;

        pair_open(&pair, side == 0 ? &ours : &other, side == 0 ? &other : &ours);
        expect_failure(&pair, YB_HELLO_REASON_VERSION, YB_VERSION);
        text = yb_hello_failure(pair.client)->text;
        assert_non_null(strstr(text, side == 0 ? "the connecting side 0123456789abcdef"
                                               : "the connecting side 8123456789abcdef"));
        assert_non_null(strstr(text, side == 0 ? "has wire schema 8123456789abcdef"
                                               : "has wire schema 0123456789abcdef"));
        assert_non_null(strstr(text, "run the same build of Yuebing on both"));
        pair_close(&pair);
    }
    /* A version later, one side still speaks what was released: both ways, by the older one. */
    other.version_max = 2;
    for (unsigned side = 0; side < 2; side++) {
        pair_open(&pair, side == 0 ? &ours : &other, side == 0 ? &other : &ours);
        run(&pair);
        assert_int_equal(yb_hello_state(pair.client), YB_HELLO_DONE);
        assert_int_equal(yb_hello_result(pair.client)->version, 1);
        assert_int_equal(yb_hello_result(pair.server)->version, 1);
        pair_close(&pair);
    }
}

static void
test_hello__another_schema_is_told_before_the_rest_of_the_hello_is_looked_at(void **state)
{
    struct yb_hello_self self = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct yb_wire_preface preface = {YB_WIRE_HANDSHAKE_HELLO, 1, 1, 16};
    struct yb_hello_params params = params_of(1);
    struct yb_hello *server = NULL;
    uint8_t bytes[16 + 16];
    size_t length = 0;

    (void)state;
    memset(bytes, 0xee, sizeof(bytes));
    assert_int_equal(yb_hello_server_create(&self, &params, &server), YB_OK);
    assert_int_equal(yb_wire_preface_encode(&preface, bytes, sizeof(bytes), &length), YB_OK);
    yb_hello_feed(server, bytes, sizeof(bytes), WALL);
    assert_int_equal(yb_hello_state(server), YB_HELLO_FAILED);
    assert_int_equal(yb_hello_failure(server)->reason, YB_HELLO_REASON_VERSION);
    assert_non_null(strstr(yb_hello_failure(server)->text, "eeeeeeeeeeeeeeee"));
    yb_hello_destroy(&server);
}

static void
test_hello__a_newer_peer_is_answered_before_its_body_is_looked_at(void **state)
{
    struct yb_hello_self self = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct yb_wire_preface preface = {YB_WIRE_HANDSHAKE_HELLO, 7, 9, 4096};
    struct yb_hello_params params = params_of(1);
    struct yb_hello *server = NULL;
    uint8_t bytes[16];
    size_t length = 0;

    (void)state;
    assert_int_equal(yb_hello_server_create(&self, &params, &server), YB_OK);
    assert_int_equal(yb_wire_preface_encode(&preface, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(yb_hello_feed(server, bytes, length, WALL), length);
    assert_int_equal(yb_hello_state(server), YB_HELLO_FAILED);
    assert_int_equal(yb_hello_failure(server)->reason, YB_HELLO_REASON_VERSION);
    yb_hello_output(server, &length);
    assert_true(length > 16);
    yb_hello_destroy(&server);
}

static void
test_hello__other_clusters_and_seeds_are_refused_with_both_values(void **state)
{
    struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", NULL);
    struct pair pair;
    char text[33];

    (void)state;
    client.cluster = id_of(0xaa);
    server.cluster = id_of(0xbb);
    pair_open(&pair, &client, &server);
    expect_failure(&pair, YB_HELLO_REASON_CLUSTER, YB_VERSION);
    yb_id_format(client.cluster, text);
    assert_non_null(strstr(yb_hello_failure(pair.client)->text, text));
    yb_id_format(server.cluster, text);
    assert_non_null(strstr(yb_hello_failure(pair.client)->text, text));
    pair_close(&pair);

    server.cluster = client.cluster;
    client.seed_check = 0x1234;
    server.seed_check = 0x5678;
    pair_open(&pair, &client, &server);
    expect_failure(&pair, YB_HELLO_REASON_SEED, YB_VERSION);
    assert_non_null(strstr(yb_hello_failure(pair.client)->text, "0000000000001234"));
    assert_non_null(strstr(yb_hello_failure(pair.client)->text, "0000000000005678"));
    pair_close(&pair);
}

/* Feed bytes to an accepting side, one by one, and return its reason. */
static enum yb_hello_reason
greet(const void *bytes, size_t length, char *answer, size_t room)
{
    struct yb_hello_self self = make_self(2, YB_WIRE_ROLE_NODE, "", NULL);
    struct yb_hello_params params = params_of(2);
    struct yb_hello *server = NULL;
    enum yb_hello_reason reason = YB_HELLO_REASON_NONE;
    const uint8_t *out;
    size_t out_length = 0;

    assert_int_equal(yb_hello_server_create(&self, &params, &server), YB_OK);
    for (size_t i = 0; i < length; i++) {
        assert_int_equal(yb_hello_feed(server, (const uint8_t *)bytes + i, 1, WALL), 1);
    }
    if (yb_hello_state(server) == YB_HELLO_FAILED) {
        reason = yb_hello_failure(server)->reason;
    }
    out = yb_hello_output(server, &out_length);
    assert_true(out_length < room);
    memcpy(answer, out, out_length);
    memset(answer + out_length, 0, room - out_length);
    yb_hello_destroy(&server);
    return reason;
}

static void
test_hello__strangers_get_an_answer_in_their_own_language(void **state)
{
    static const char *const requests[] = {"GET / HTTP/1.1\r\n", "POST /v1 HTTP/1.0\r\n",
                                           "PRI * HTTP/2.0\r\n", "DELETE /x HTTP/1.1\r\n"};
    char answer[1024];

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(greet(requests[i], strlen(requests[i]), answer, sizeof(answer)),
                         YB_HELLO_REASON_HTTP);
        assert_int_equal(strncmp(answer, "HTTP/1.1 400 Bad Request\r\n", 26), 0);
        assert_non_null(strstr(answer, "This is Yuebing's node port."));
        assert_non_null(strstr(answer, "Metrics are on another port."));
    }
    assert_int_equal(greet("\x16\x03\x01\x02\x00\x01", 6, answer, sizeof(answer)),
                     YB_HELLO_REASON_TLS);
    assert_memory_equal(answer, "\x15\x03\x03\x00\x02\x02", 6);
    assert_int_equal(greet("SSH-2.0-OpenSSH\r\n", 17, answer, sizeof(answer)),
                     YB_HELLO_REASON_MAGIC);
    assert_int_equal(answer[0], 0);
    assert_int_equal(greet("YUEBINX", 7, answer, sizeof(answer)), YB_HELLO_REASON_MAGIC);
    assert_int_equal(greet("\0", 1, answer, sizeof(answer)), YB_HELLO_REASON_MAGIC);
    assert_int_equal(greet("YUEBING", 7, answer, sizeof(answer)), YB_HELLO_REASON_NONE);
    assert_int_equal(greet("GE", 2, answer, sizeof(answer)), YB_HELLO_REASON_NONE);
}

static void
test_hello__the_connecting_side_names_what_answered_instead(void **state)
{
    struct yb_hello_self self = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    static const struct {
        const char *bytes;
        size_t length;
        enum yb_hello_reason reason;
    } peers[] = {{"HTTP/1.1 400 Bad Request\r\n", 26, YB_HELLO_REASON_HTTP},
                 {"\x15\x03\x03\x00\x02\x02\x0a", 7, YB_HELLO_REASON_TLS},
                 {"220 smtp ready\r\n", 16, YB_HELLO_REASON_MAGIC}};
    struct yb_hello_params params = params_of(1);

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct yb_hello *client = NULL;
        size_t before = 0, after = 0;

        assert_int_equal(yb_hello_client_create(&self, &params, WALL, &client), YB_OK);
        yb_hello_output(client, &before);
        assert_int_equal(
            yb_hello_feed(client, (const uint8_t *)peers[i].bytes, peers[i].length, WALL),
            peers[i].length);
        assert_int_equal(yb_hello_state(client), YB_HELLO_FAILED);
        assert_int_equal(yb_hello_failure(client)->reason, peers[i].reason);
        yb_hello_output(client, &after);
        assert_int_equal(after, before);
        yb_hello_destroy(&client);
    }
}

static void
test_hello__random_bytes_never_get_far(void **state)
{
    uint64_t random = unit_seed("random strangers");
    char answer[1024];

    (void)state;
    for (unsigned round = 0; round < 2000; round++) {
        uint8_t bytes[64];
        size_t from = unit_random(&random) % 2 == 0 ? 0 : 8;

        memcpy(bytes, "YUEBING", 8);
        for (size_t i = from; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)unit_random(&random);
        }
        if (from == 8) {
            bytes[9] = 0; /* A type that may exist. */
            bytes[8] &= 7;
        }
        assert_int_not_equal(greet(bytes, sizeof(bytes), answer, sizeof(answer)),
                             YB_HELLO_REASON_INTERNAL);
    }
}

static void
test_hello__the_owner_can_refuse_and_frames_behind_the_welcome_stay(void **state)
{
    struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct yb_hello_self server = make_self(2, YB_WIRE_ROLE_NODE, "", NULL);
    uint8_t joined[512];
    const uint8_t *bytes;
    size_t length = 0;
    struct pair pair;

    (void)state;
    pair_open(&pair, &client, &server);
    yb_hello_refuse(pair.server, YB_HELLO_REASON_TOO_MANY, "1000 connections are open; retry\n");
    expect_failure(&pair, YB_HELLO_REASON_TOO_MANY, YB_REFUSED);
    assert_string_equal(yb_hello_failure(pair.client)->text, "1000 connections are open; retry?");
    pair_close(&pair);

    pair_open(&pair, &client, &server);
    while (carry(&pair, true)) {
    }
    while (carry(&pair, false)) {
    }
    while (carry(&pair, true)) {
    }
    bytes = yb_hello_output(pair.server, &length);
    memcpy(joined, bytes, length);
    memcpy(joined + length, "YBF1", 4);
    assert_int_equal(yb_hello_feed(pair.client, joined, length + 4, WALL), length);
    assert_int_equal(yb_hello_state(pair.client), YB_HELLO_DONE);
    assert_int_equal(yb_hello_feed(pair.client, joined + length, 4, WALL), 0);
    yb_hello_refuse(pair.client, YB_HELLO_REASON_TOO_SLOW, "too late");
    assert_int_equal(yb_hello_state(pair.client), YB_HELLO_DONE);
    pair_close(&pair);
}

static void
test_hello__a_long_refusal_is_cut_between_characters(void **state)
{
    struct yb_hello_self client = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    char text[700];
    struct pair pair;

    (void)state;
    for (size_t i = 0; i + 3 < sizeof(text); i += 3) {
        memcpy(text + i, "\xe6\x9c\x88", 4);
    }
    pair_open(&pair, &client, &client);
    yb_hello_refuse(pair.server, YB_HELLO_REASON_STOPPING, text);
    run(&pair);
    assert_int_equal(strlen(yb_hello_failure(pair.client)->text), 510);
    assert_int_equal(strncmp(yb_hello_failure(pair.client)->text, text, 510), 0);
    pair_close(&pair);
}

static void
test_hello__clocks_that_contradict_themselves_give_no_estimate(void **state)
{
    struct yb_hello_self self = make_self(1, YB_WIRE_ROLE_CLIENT, "team-a", NULL);
    struct pair pair;

    (void)state;
    pair_open(&pair, &self, &self);
    while (carry(&pair, true)) {
    }
    pair.wall_ns = WALL - 1000; /* The client's clock was set back meanwhile. */
    run(&pair);
    assert_true(both_done(&pair));
    assert_int_equal(yb_hello_result(pair.client)->clock_offset_ns, 0);
    assert_true(yb_hello_result(pair.client)->clock_error_ns == UINT64_MAX);
    assert_true(yb_hello_result(pair.server)->clock_error_ns == UINT64_MAX);
    pair_close(&pair);
}

static void
test_hello__every_reason_has_its_word(void **state)
{
    (void)state;
#define X(name, value, status, word) assert_string_equal(yb_hello_reason_name(value), word);
    YB_HELLO_REASON_MAP(X)
#undef X
    assert_string_equal(yb_hello_reason_name(YB_HELLO_REASON_COUNT), "unknown");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello__two_members_learn_each_other),
        cmocka_unit_test(test_hello__without_secrets_a_connection_is_open_and_says_so),
        cmocka_unit_test(test_hello__no_byte_of_any_message_can_be_changed),
        cmocka_unit_test(test_hello__the_proofs_belong_to_one_tls_channel),
        cmocka_unit_test(test_hello__who_has_a_secret_refuses_who_has_none),
        cmocka_unit_test(test_hello__secrets_rotate_while_all_run),
        cmocka_unit_test(test_hello__a_key_holder_can_claim_no_other_tenant_or_role),
        cmocka_unit_test(test_hello__other_versions_are_told_both_ranges),
        cmocka_unit_test(test_hello__other_layouts_of_one_version_are_told_both_schemas),
        cmocka_unit_test(
            test_hello__another_schema_is_told_before_the_rest_of_the_hello_is_looked_at),
        cmocka_unit_test(test_hello__a_newer_peer_is_answered_before_its_body_is_looked_at),
        cmocka_unit_test(test_hello__other_clusters_and_seeds_are_refused_with_both_values),
        cmocka_unit_test(test_hello__strangers_get_an_answer_in_their_own_language),
        cmocka_unit_test(test_hello__the_connecting_side_names_what_answered_instead),
        cmocka_unit_test(test_hello__random_bytes_never_get_far),
        cmocka_unit_test(test_hello__the_owner_can_refuse_and_frames_behind_the_welcome_stay),
        cmocka_unit_test(test_hello__a_long_refusal_is_cut_between_characters),
        cmocka_unit_test(test_hello__clocks_that_contradict_themselves_give_no_estimate),
        cmocka_unit_test(test_hello__every_reason_has_its_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
