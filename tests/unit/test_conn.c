/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: bodies and data arrive as they were sent, and every request gets the answer that
 * net/request.h promises, whatever carries it.
 * Method: each test runs over epoll, io_uring and the simulation, plain and with TLS, with and
 * without a secret; bytes are compared.
 */
#include "net_duo.h"

#define MIB (1024u * 1024u)

struct mode {
    const char *backend;
    bool tls;
    bool auth;
};

static const struct mode modes[] = {
    {"epoll", false, false},   {"epoll", false, true},     {"epoll", true, false},
    {"epoll", true, true},     {"io_uring", false, false}, {"io_uring", false, true},
    {"io_uring", true, false}, {"io_uring", true, true},   {"sim", false, false},
    {"sim", false, true},      {"sim", true, true},
};

static void
open_mode(struct duo *duo, void **state)
{
    const struct mode *mode = *state;

    if (!duo_possible(mode->backend)) {
        skip();
    }
    duo_init(duo, mode->backend);
    duo->tls = mode->tls;
    duo->auth = mode->auth;
}

static void
test_conn__an_echo_returns_its_body_from_nothing_to_a_mebibyte(void **state)
{
    static const uint32_t sizes[] = {0, 1, 2, 95, 96, 4095, 4096, 16384, 65535, 65536, 300000, MIB};
    uint8_t *body = malloc(MIB);
    uint8_t *reply = malloc(MIB);
    struct caller caller;
    struct duo duo;

    open_mode(&duo, state);
    duo_start(&duo);
    io_pattern(body, MIB, 1);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
        caller.call.body = body;
        caller.call.body_bytes = sizes[i];
        caller.call.reply_body = reply;
        caller.call.reply_body_room = MIB;
        memset(reply, 0, MIB);
        caller_run(&caller);
        caller_expect(&caller, YB_OK);
        assert_int_equal(caller.call.reply_body_bytes, sizes[i]);
        assert_memory_equal(reply, body, sizes[i]);
    }
    assert_true(yb_peer_result(duo.peer)->authenticated == duo.auth);
    assert_int_equal(yb_peer_conn_count(duo.peer), 1);
    duo_fini(&duo);
    free(body);
    free(reply);
}

/* A call with data in both directions, cut into vectors, and more room for the reply than it
 * needs. */
struct swap {
    struct caller caller;
    uint8_t *out;
    uint8_t *in;
    size_t bytes;
    size_t spare;
    struct iovec out_iov[DUO_IOV_MAX];
    struct iovec in_iov[DUO_IOV_MAX];
    uint32_t vectors;
};

static void
swap_init(struct swap *swap, struct duo *duo, size_t bytes, uint32_t vectors, uint64_t key)
{
    caller_init(&swap->caller, duo, DUO_SWAP);
    swap->bytes = bytes;
    swap->spare = 1 + bytes / 2;
    swap->vectors = vectors;
    swap->out = malloc(bytes + 1);
    swap->in = malloc(bytes + swap->spare);
    assert_true(swap->out != NULL && swap->in != NULL);
    io_pattern(swap->out, bytes, key);
    memset(swap->in, 0x55, bytes + swap->spare);
    duo_cut(swap->out_iov, vectors, swap->out, bytes, key);
    duo_cut(swap->in_iov, vectors, swap->in, bytes + swap->spare, key + 1);
    caller_body(&swap->caller, &swap->vectors, sizeof(swap->vectors));
    swap->caller.call.lane = YB_WIRE_LANE_BULK;
    swap->caller.call.data = swap->out_iov;
    swap->caller.call.data_count = vectors;
    swap->caller.call.reply_data = swap->in_iov;
    swap->caller.call.reply_data_count = vectors;
}

/* The bytes are there, and nothing behind them was touched. */
static void
swap_check(struct swap *swap)
{
    caller_expect(&swap->caller, YB_OK);
    assert_int_equal(swap->caller.call.reply_data_bytes, swap->bytes);
    assert_memory_equal(swap->in, swap->out, swap->bytes);
    for (size_t i = 0; i < swap->spare; i++) {
        assert_int_equal(swap->in[swap->bytes + i], 0x55);
    }
    free(swap->in);
    free(swap->out);
}

static void
test_conn__data_arrives_in_both_directions_whatever_its_vectors(void **state)
{
    static const struct {
        size_t bytes;
        uint32_t vectors;
    } rows[] = {
        {0, 1},     {1, 1},      {1, 5},        {4095, 2}, {4097, 3},     {8191, 1},
        {8192, 64}, {65536, 33}, {100000, 512}, {MIB, 1},  {MIB + 1, 65}, {3 * MIB + 11, 512},
    };
    struct swap swap;
    struct duo duo;

    open_mode(&duo, state);
    duo_start(&duo);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        swap_init(&swap, &duo, rows[i].bytes, rows[i].vectors, i);
        caller_run(&swap.caller);
        swap_check(&swap);
    }
    duo_fini(&duo);
}

static void
test_conn__requests_with_data_follow_each_other_without_waiting(void **state)
{
    enum { COUNT = 24 };
    static const size_t sizes[] = {10, 9000, 70000, 0, 600000, 1, 200000, 8192};
    struct swap *swaps = calloc(COUNT, sizeof(*swaps));
    struct duo duo;

    open_mode(&duo, state);
    duo_start(&duo);
    service_room(&duo.service, MIB);
    io_pattern(duo.service.memory, MIB, 77);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct duo_load load = {.bytes = sizes[i % 8], .vectors = 1 + i, .body_bytes = i};

        swap_init(&swaps[i], &duo, sizes[i % 8], 1 + i, i);
        swaps[i].caller.call.type = DUO_LOAD;
        swaps[i].caller.call.data_count = 0;
        caller_body(&swaps[i].caller, &load, sizeof(load));
        memcpy(swaps[i].out, duo.service.memory, sizes[i % 8]);
        assert_int_equal(caller_submit(&swaps[i].caller), YB_OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        DUO_AWAIT(&duo, swaps[i].caller.done == 1);
        assert_int_equal(swaps[i].caller.call.reply_body_bytes, i);
        swap_check(&swaps[i]);
    }
    free(swaps);
    duo_fini(&duo);
}

static void
test_conn__many_stores_are_in_flight_and_small_answers_come_before_large_writes_end(void **state)
{
    enum { COUNT = 40 };
    struct caller *callers = calloc(COUNT, sizeof(*callers));
    uint8_t *data = malloc(MIB);
    struct iovec iov = {.iov_base = data};
    struct iovec iovs[COUNT];
    struct duo duo;

    open_mode(&duo, state);
    duo.limits[CLIENT].committed_bytes_max = 64 * MIB;
    duo.selfs[SERVER].credit_bytes = 64 * MIB;
    duo_start(&duo);
    service_room(&duo.service, MIB);
    io_pattern(data, MIB, 3);
    for (uint32_t i = 0; i < COUNT; i++) {
        iov.iov_len = i % 2 == 0 ? 100 : MIB;
        iovs[i] = iov;
        caller_init(&callers[i], &duo, i % 4 == 3 ? DUO_PICKY : DUO_STORE);
        callers[i].call.lane = YB_WIRE_LANE_BULK;
        callers[i].call.data = &iovs[i];
        callers[i].call.data_count = 1;
        assert_int_equal(caller_submit(&callers[i]), YB_OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        DUO_AWAIT(&duo, callers[i].done == 1);
        caller_expect(&callers[i], i % 4 == 3 ? YB_NO_SPACE : YB_OK);
    }
    assert_memory_equal(duo.service.memory, data, 100);
    assert_int_equal(duo.service.placed, COUNT - COUNT / 4);
    assert_int_equal(duo_stat(&duo, CLIENT, YB_NET_STAT_CONNECTED), 1);
    duo_fini(&duo);
    free(callers);
    free(data);
}

/* What is to be sent waits for a read that seems near, but not for ever: here each turn finds that
 * there is more to read. */
static void
test_conn__answers_do_not_wait_for_the_end_of_what_pours_in(void **state)
{
    struct caller caller;
    struct duo duo;

    open_mode(&duo, state);
    duo_start(&duo);
    caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
    caller.call.lane = YB_WIRE_LANE_BULK;
    caller.call.class = YB_CLASS_THROUGHPUT;
    caller_run(&caller); /* Connected. */
    caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
    caller.call.lane = YB_WIRE_LANE_BULK;
    caller.call.class = YB_CLASS_THROUGHPUT;
    assert_int_equal(caller_submit(&caller), YB_OK);
    for (uint32_t i = 0; i < 2000 && caller.done == 0; i++) {
        for (struct yb_conn *conn = duo.nets[SERVER]->conns; conn != NULL; conn = conn->next) {
            conn->in.read_full = true;
            assert_true(conn->stream->patient);
        }
        duo_turn(&duo);
    }
    assert_int_equal(caller.done, 1);
    caller_expect(&caller, YB_OK);
    duo_fini(&duo);
}

static void
test_conn__a_refused_request_is_answered_and_its_data_is_dropped(void **state)
{
    static const struct {
        uint16_t type;
        bool data;
        uint64_t operation;
        uint32_t body_bytes;
        enum yb_status status;
    } rows[] = {
        {99, false, 0, 4, YB_UNSUPPORTED},
        {99, true, 0, 4, YB_UNSUPPORTED},
        {300, true, 0, 4, YB_UNSUPPORTED},
        {DUO_NODE_ONLY, false, 0, 4, YB_DENIED},
        {DUO_NODE_ONLY, true, 0, 4, YB_DENIED},
        {DUO_SMALL, false, 0, 8, YB_OK},
        {DUO_SMALL, true, 0, 9, YB_TOO_LARGE},
        {DUO_SMALL, true, 0, 8, YB_INVALID},
        {DUO_LOAD, true, 0, 16, YB_INVALID},
        {DUO_ADD, false, 0, 4, YB_INVALID},
        {DUO_STORE, true, 7, 4, YB_INVALID},
        {DUO_PICKY, true, 0, 4, YB_NO_SPACE},
        {YB_WIRE_TYPE_PING, false, 0, 4, YB_INVALID},
    };
    uint8_t *data = malloc(2 * MIB);
    const struct iovec iov = {.iov_base = data, .iov_len = 2 * MIB};
    struct caller caller;
    struct duo duo;

    open_mode(&duo, state);
    duo_start(&duo);
    memset(data, 1, 2 * MIB);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        caller_init(&caller, &duo, rows[i].type);
        memset(caller.body, 0, sizeof(caller.body));
        caller.call.body = caller.body;
        caller.call.body_bytes = rows[i].body_bytes;
        caller.call.mutates = rows[i].operation != 0;
        caller.call.data = &iov;
        caller.call.data_count = rows[i].data ? 1 : 0;
        caller.scribble = true;
        caller_run(&caller);
        caller_expect(&caller, rows[i].status);
        assert_int_equal(caller.call.reply_body_bytes, 0);
    }
    assert_int_equal(duo_stat(&duo, CLIENT, YB_NET_STAT_CONNECTED), 1); /* All of them on one. */
    duo_fini(&duo);
    free(data);
}

static void
test_conn__a_reply_that_does_not_fit_leaves_the_buffers_untouched(void **state)
{
    static const struct {
        uint32_t body_bytes;
        uint64_t data_bytes;
        enum yb_status status;
    } rows[] = {
        {32, 50000, YB_OK},
        {33, 50000, YB_TOO_SMALL},
        {32, 50001, YB_TOO_SMALL},
        {33, 50001, YB_TOO_SMALL},
        {0, 90000, YB_TOO_SMALL},
        {60, 0, YB_TOO_SMALL},
        {0, 0, YB_OK},
    };
    uint8_t *data = malloc(50000);
    struct iovec iov[3];
    struct caller caller;
    struct duo duo;

    open_mode(&duo, state);
    duo_start(&duo);
    service_room(&duo.service, 100000);
    memset(duo.service.memory, 0xb1, 100000);
    duo_cut(iov, 3, data, 50000, 5);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct duo_load load = {
            .bytes = rows[i].data_bytes, .vectors = 2, .body_bytes = rows[i].body_bytes};
        bool fits = rows[i].status == YB_OK;

        caller_init(&caller, &duo, DUO_LOAD);
        caller_body(&caller, &load, sizeof(load));
        caller.call.reply_body_room = 32;
        caller.call.reply_data = iov;
        caller.call.reply_data_count = 3;
        memset(data, 0xcc, 50000);
        caller_run(&caller);
        caller_expect(&caller, rows[i].status);
        assert_int_equal(caller.call.reply_body_bytes, rows[i].body_bytes);
        assert_int_equal(caller.call.reply_data_bytes, rows[i].data_bytes);
        for (uint32_t j = 0; j < 50000; j++) {
            assert_int_equal(data[j], fits && j < rows[i].data_bytes ? 0xb1 : 0xcc);
        }
        for (uint32_t j = 0; j < sizeof(caller.reply); j++) {
            assert_int_equal(caller.reply[j], fits && j < rows[i].body_bytes ? 0xb0 : 0xcc);
        }
    }
    duo_fini(&duo);
    free(data);
}

static void
test_conn__a_drain_ends_when_everything_was_answered(void **state)
{
    enum { COUNT = 8 };
    struct swap *swaps = calloc(COUNT, sizeof(*swaps));
    struct caller late;
    struct duo duo;

    open_mode(&duo, state);
    duo.link.window_bytes = 16 * 1024; /* The last bytes have to wait. */
    duo_start(&duo);
    service_room(&duo.service, 3 * MIB);
    io_pattern(duo.service.memory, 3 * MIB, 78);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct duo_load load = {.bytes = (i + 1) * 300000, .vectors = 9};

        swap_init(&swaps[i], &duo, load.bytes, 9, i);
        swaps[i].caller.call.type = DUO_LOAD;
        swaps[i].caller.call.data_count = 0;
        caller_body(&swaps[i].caller, &load, sizeof(load));
        memcpy(swaps[i].out, duo.service.memory, load.bytes);
        assert_int_equal(caller_submit(&swaps[i].caller), YB_OK);
    }
    DUO_AWAIT(&duo, duo.service.handled == COUNT);
    duo_stop_server(&duo, true);
    caller_init(&late, &duo, YB_WIRE_TYPE_ECHO);
    late.call.fail_fast = true;
    caller_run(&late); /* Nobody takes new ones. */
    assert_false(late.call.answered);
    for (uint32_t i = 0; i < COUNT; i++) {
        DUO_AWAIT(&duo, swaps[i].caller.done == 1);
        swap_check(&swaps[i]);
    }
    free(swaps);
    duo_fini(&duo);
}

static void
test_conn__a_large_transfer_of_64_mebibytes_is_exact(void **state)
{
    const struct mode *mode = *state;
    struct swap swap;
    struct duo duo;

    if (mode->auth) {
        skip(); /* Once for each backend, with and without TLS, is enough. */
    }
    open_mode(&duo, state);
    duo_start(&duo);
    swap_init(&swap, &duo, 64 * MIB, 7, 4);
    caller_run(&swap.caller);
    swap_check(&swap);
    duo_fini(&duo);
}

int
main(void)
{
    int failed = 0;

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        char name[64];
#define T(test) cmocka_unit_test_prestate(test, (void *)(uintptr_t)&modes[i])
        const struct CMUnitTest tests[] = {
            T(test_conn__an_echo_returns_its_body_from_nothing_to_a_mebibyte),
            T(test_conn__data_arrives_in_both_directions_whatever_its_vectors),
            T(test_conn__requests_with_data_follow_each_other_without_waiting),
            T(test_conn__many_stores_are_in_flight_and_small_answers_come_before_large_writes_end),
            T(test_conn__answers_do_not_wait_for_the_end_of_what_pours_in),
            T(test_conn__a_refused_request_is_answered_and_its_data_is_dropped),
            T(test_conn__a_reply_that_does_not_fit_leaves_the_buffers_untouched),
            T(test_conn__a_drain_ends_when_everything_was_answered),
            T(test_conn__a_large_transfer_of_64_mebibytes_is_exact),
        };
#undef T

        (void)snprintf(name, sizeof(name), "%s%s%s", modes[i].backend, modes[i].tls ? " tls" : "",
                       modes[i].auth ? " auth" : "");
        failed += cmocka_run_group_tests_name(name, tests, NULL, NULL);
    }
    return failed;
}
