/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a reply that is larger than its asker takes is answered TOO_LARGE, and the
 * connection lives on. (It was dropped, with everything else that was on it.)
 * Method: a client that announces small limits asks for more.
 */
#include "../unit/net_duo.h"

static void
ask(struct duo *duo, uint32_t body_bytes, uint64_t data_bytes, enum yb_status status)
{
    const struct duo_load load = {.bytes = data_bytes, .vectors = 1, .body_bytes = body_bytes};
    static uint8_t data[65536];
    struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
    struct caller caller;

    caller_init(&caller, duo, DUO_LOAD);
    caller_body(&caller, &load, sizeof(load));
    caller.call.reply_data = &iov;
    caller.call.reply_data_count = 1;
    caller_run(&caller);
    caller_expect(&caller, status);
}

static void
test_reply__one_above_the_askers_limit_is_too_large_and_the_next_is_answered(void **state)
{
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[CLIENT].body_bytes_max = 32;
    duo.selfs[CLIENT].data_bytes_max = 1000;
    duo_start(&duo);
    service_room(&duo.service, 65536);
    ask(&duo, 32, 1000, YB_OK);
    ask(&duo, 33, 0, YB_TOO_LARGE);
    ask(&duo, 0, 1001, YB_TOO_LARGE);
    ask(&duo, 1, 1, YB_OK);
    assert_int_equal(duo_stat(&duo, CLIENT, YB_NET_STAT_CONNECTED), 1);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_reply__one_above_the_askers_limit_is_too_large_and_the_next_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
