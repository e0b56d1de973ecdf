/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies were put together in a buffer of their announced length before anybody asked whether the
 * peer had credit for them, or whether they would be refused; so every connection could hold
 * net.body_bytes_max of bytes that nobody wanted.
 */
#include "net_duo.h"

#define HALF   400u
#define PIECES 50u /* More together than a connection may keep room for. */

static struct yb_conn *
server_conn(const struct duo *duo)
{
    assert_int_equal(duo->nets[SERVER]->conn_count, 1);
    return duo->nets[SERVER]->conns;
}

/* Announce a body of a mebibyte and send a part of it. */
static void
send_half(struct raw *raw, struct yb_wire_frame_header *header)
{
    static const uint8_t bytes[HALF];

    header->body_bytes = 1u << 20;
    raw_frame(raw, header, NULL);
    raw_send(raw, bytes, sizeof(bytes));
    duo_pass_ms(raw->duo, 10);
}

static void
expect_kept(uint16_t type, uint16_t flags, uint32_t room)
{
    struct yb_wire_frame_header header;
    struct duo duo;
    struct raw raw;

    duo_init(&duo, "sim");
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    raw_header(&raw, &header, type, 1);
    if (flags != 0) {
        header.flags = flags;
        header.deadline_us = 0;
    }
    send_half(&raw, &header);
    assert_int_equal(server_conn(&duo)->in.body_have, HALF);
    assert_int_equal(server_conn(&duo)->in.body_room, room);
    raw_close(&raw);
    duo_fini(&duo);
}

static void
test_regress__a_body_that_will_be_refused_is_not_kept(void **state)
{
    (void)state;
    expect_kept(250, 0, 0);           /* No such method. */
    expect_kept(DUO_NODE_ONLY, 0, 0); /* Not for this role. */
    expect_kept(DUO_SMALL, 0, 0);     /* Longer than the method takes. */
    expect_kept(YB_WIRE_TYPE_VOID, 0, 0);
    expect_kept(YB_WIRE_TYPE_GOAWAY, 0, 0);
    expect_kept(YB_WIRE_TYPE_ECHO, YB_WIRE_FRAME_FLAG_REPLY, 0); /* To no call. */
    expect_kept(YB_WIRE_TYPE_ECHO, 0, 1u << 20);
}

static void
test_regress__a_request_without_credit_is_dropped_by_its_header(void **state)
{
    struct yb_wire_frame_header header;
    struct duo duo;
    struct raw raw;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[SERVER].credit_requests = 1;
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    raw_header(&raw, &header, DUO_HOLD, 1);
    raw_frame(&raw, &header, NULL);
    header.type = YB_WIRE_TYPE_ECHO;
    header.request_id = 2;
    send_half(&raw, &header);
    assert_int_equal(duo.nets[SERVER]->conn_count, 0);
    service_reply(&duo.service, YB_OK, NULL, 0);
    raw_close(&raw);
    duo_fini(&duo);
}

static void
test_regress__a_connection_at_rest_holds_no_large_body_buffer(void **state)
{
    static const uint8_t bytes[HALF];
    struct yb_wire_frame_header header;
    struct duo duo;
    struct raw raw;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    raw_header(&raw, &header, YB_WIRE_TYPE_ECHO, 1);
    header.body_bytes = PIECES * HALF;
    raw_frame(&raw, &header, NULL);
    for (uint32_t i = 0; i < PIECES; i++) {
        raw_send(&raw, bytes, sizeof(bytes));
    }
    assert_true(raw_next(&raw, &header));
    assert_int_equal(header.body_bytes, PIECES * HALF);
    assert_true(server_conn(&duo)->in.body_room <= 16 * 1024);
    raw_close(&raw);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regress__a_body_that_will_be_refused_is_not_kept),
        cmocka_unit_test(test_regress__a_request_without_credit_is_dropped_by_its_header),
        cmocka_unit_test(test_regress__a_connection_at_rest_holds_no_large_body_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
