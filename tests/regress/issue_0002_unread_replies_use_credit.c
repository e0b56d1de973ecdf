/* SPDX-License-Identifier: Apache-2.0
 *
 * A request gave its credit back when its reply was queued, so a peer that sent requests and
 * never read a reply made replies pile up without bound.
 */
#include "net_duo.h"

#define CREDIT 8u
/* Replies that fit the piece of outgoing bytes that the kernel already has a part of. */
#define SLACK (YB_CHUNK_BYTES / YB_WIRE_FRAME_HEADER_BYTES)

static void
send_pings(struct raw *raw, uint32_t count)
{
    struct yb_wire_ping ping = {.wall_sent_ns = 1};
    uint8_t body[YB_WIRE_PING_BYTES_MAX];
    struct yb_wire_frame_header header;
    size_t length = 0;

    assert_int_equal(yb_wire_ping_encode(&ping, body, sizeof(body), &length), YB_OK);
    for (uint32_t i = 0; i < count; i++) {
        if (raw->duo->nets[SERVER]->conn_count == 0) {
            return;
        }
        raw_header(raw, &header, YB_WIRE_TYPE_PING, i + 1);
        header.body_bytes = (uint32_t)length;
        raw_frame(raw, &header, body);
    }
}

static void
test_regress__a_peer_that_never_reads_replies_exceeds_its_credit(void **state)
{
    struct duo duo;
    struct raw raw;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[SERVER].credit_requests = CREDIT;
    duo.link.window_bytes = 2048;
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    raw.probe.keep_reading = false;
    send_pings(&raw, 2 * SLACK + CREDIT);
    duo_pass_ms(&duo, 10);
    assert_int_equal(duo.nets[SERVER]->conn_count, 0);
    raw_close(&raw);
    duo_fini(&duo);
}

static void
test_regress__a_peer_that_reads_may_use_its_credit_for_ever(void **state)
{
    struct yb_wire_frame_header header;
    struct duo duo;
    struct raw raw;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[SERVER].credit_requests = 1;
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    for (uint32_t i = 0; i < 3 * SLACK; i++) {
        send_pings(&raw, 1);
        assert_true(raw_next(&raw, &header));
        assert_int_equal(header.status, YB_OK);
    }
    raw_close(&raw);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regress__a_peer_that_never_reads_replies_exceeds_its_credit),
        cmocka_unit_test(test_regress__a_peer_that_reads_may_use_its_credit_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
