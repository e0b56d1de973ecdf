/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what one worker keeps of bodies that are not complete is bounded for all its
 * connections together. (Each connection could hold net.body_bytes_max, whatever their number.)
 * Method: three peers each announce a mebibyte and send a little; there is room for two.
 */
#include "net_duo.h"

#define HALF 400u

static void
test_regress__the_third_half_body_finds_no_room_and_the_others_live_on(void **state)
{
    static const uint8_t bytes[HALF];
    struct yb_wire_frame_header header;
    struct raw raws[3];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.limits[SERVER].bodies_bytes_max = 2u << 20;
    duo_start(&duo);
    for (uint32_t i = 0; i < 3; i++) {
        raw_open(&raws[i], &duo, false);
        raw_header(&raws[i], &header, YB_WIRE_TYPE_ECHO, 1);
        header.body_bytes = 1u << 20;
        raw_frame(&raws[i], &header, NULL);
        raw_send(&raws[i], bytes, sizeof(bytes));
        duo_pass_ms(&duo, 10);
        assert_true(duo.nets[SERVER]->bodies_bytes <= 2u << 20);
    }
    assert_int_equal(duo.nets[SERVER]->conn_count, 2);
    assert_false(raw_lost(&raws[0]));
    assert_false(raw_lost(&raws[1]));
    for (uint32_t i = 0; i < 3; i++) {
        raw_close(&raws[i]);
    }
    duo_pass_ms(&duo, 10);
    assert_int_equal(duo.nets[SERVER]->bodies_bytes, 0);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regress__the_third_half_body_finds_no_room_and_the_others_live_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
