/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: C1 to C3 of net/call.h in every state of a call, and flow control.
 * Method: a simulated link with a small window and a server that can be stalled put a call into
 * the state in question; then its deadline passes, it is cancelled, or its connection is cut.
 * What it had lent is overwritten in `done` and must stay so.
 */
#include "net_duo.h"

#define MIB         (1024u * 1024u)
#define DATA_BYTES  (4u * MIB)
#define DEADLINE_MS 500u

/* How a call ends early. */
enum how { BY_DEADLINE, BY_CANCEL, BY_CUT };

struct stage {
    struct duo duo;
    struct caller caller;
    struct caller other; /* Beside it, on the same connection. */
    uint8_t *data;       /* What the call lends; of DATA_BYTES. */
    struct iovec iov;
    enum how how;
};

static void
stage_init(struct stage *stage, enum how how)
{
    duo_init(&stage->duo, "sim");
    stage->how = how;
    stage->duo.link.window_bytes = 64 * 1024;
    duo_start(&stage->duo);
    stage->data = malloc(DATA_BYTES);
    assert_non_null(stage->data);
    memset(stage->data, 0x11, DATA_BYTES);
    stage->iov = (struct iovec){.iov_base = stage->data, .iov_len = DATA_BYTES};
    caller_init(&stage->other, &stage->duo, YB_WIRE_TYPE_ECHO);
    caller_run(&stage->other); /* The connection is open now. */
    caller_expect(&stage->other, YB_OK);
}

static void
stage_submit(struct stage *stage, uint16_t type)
{
    caller_init(&stage->caller, &stage->duo, type);
    stage->caller.scribble = true;
    if (stage->how == BY_DEADLINE) {
        stage->caller.call.deadline_ns = duo_deadline(&stage->duo, DEADLINE_MS);
    }
    assert_int_equal(caller_submit(&stage->caller), YB_OK);
}

static struct yb_conn *
conn_of(struct stage *stage, enum side side)
{
    assert_non_null(stage->duo.nets[side]->conns);
    return stage->duo.nets[side]->conns;
}

/* Let the call end as the stage says, and await its `done`. */
static void
stage_end(struct stage *stage)
{
    assert_int_equal(stage->caller.done, 0);
    if (stage->how == BY_CANCEL) {
        caller_cancel(&stage->caller);
        caller_cancel(&stage->caller); /* Harmless. */
        assert_int_equal(stage->caller.done, 0);
    } else if (stage->how == BY_CUT) {
        assert_true(yb_sim_cut(stage->duo.sim, NULL, NULL) > 0);
    }
    DUO_AWAIT(&stage->duo, stage->caller.done == 1);
}

static enum yb_status
status_of(enum how how)
{
    return how == BY_CANCEL ? YB_CANCELLED : YB_TIMED_OUT;
}

/* Everything goes on, what was lent stays as it was left, and all credit is back. */
static void
stage_fini(struct stage *stage)
{
    yb_sim_host_stall(stage->duo.hosts[SERVER], false);
    caller_init(&stage->other, &stage->duo, YB_WIRE_TYPE_ECHO);
    caller_run(&stage->other);
    caller_expect(&stage->other, YB_OK);
    while (stage->duo.service.held_count > 0) {
        service_reply(&stage->duo.service, YB_OK, "late", 4);
    }
    duo_pass_ms(&stage->duo, 2000);
    assert_int_equal(stage->caller.done, 1);
    assert_int_equal(conn_of(stage, CLIENT)->calls_out, 0);
    assert_int_equal(conn_of(stage, CLIENT)->bytes_out, 0);
    assert_int_equal(conn_of(stage, SERVER)->requests_in, 0);
    assert_int_equal(conn_of(stage, SERVER)->bytes_in, 0);
    if (stage->caller.call.data_count + stage->caller.call.reply_data_count > 0) {
        for (size_t i = 0; i < DATA_BYTES; i++) {
            assert_int_equal(stage->data[i], 0xee);
        }
    }
    duo_fini(&stage->duo);
    free(stage->data);
}

static void
test_call__that_waits_for_a_connection_ends_unsent(void **state)
{
    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CANCEL; how++) {
        struct caller caller;
        struct duo duo;

        duo_init(&duo, "sim");
        duo.link.delay_ns = 300 * YB_NS_PER_MS;
        duo_start(&duo);
        caller_init(&caller, &duo, DUO_ADD);
        caller.call.mutates = true;
        caller.call.deadline_ns = duo_deadline(&duo, 100);
        assert_int_equal(caller_submit(&caller), YB_OK);
        assert_int_equal(caller.call.state, YB_CALL_WAITING);
        if (how == BY_CANCEL) {
            caller_cancel(&caller);
        }
        DUO_AWAIT(&duo, caller.done == 1);
        caller_expect_none(&caller, status_of(how), false);
        duo_pass_ms(&duo, 5000);
        assert_int_equal(caller.done, 1);
        assert_int_equal(duo.service.handled, 0);
        duo_fini(&duo);
    }
}

static void
test_call__that_was_cancelled_before_its_connection_opened_is_not_sent(void **state)
{
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_STORE);
    assert_int_equal(caller_submit(&caller), YB_OK);
    /* The connection opens in the very turn before which the call is cancelled. */
    while (duo.nets[CLIENT]->conns == NULL || !yb_conn_is_open(duo.nets[CLIENT]->conns)) {
        if (caller.call.state == YB_CALL_WAITING && caller.call.give_up == YB_OK &&
            duo.nets[SERVER]->conns != NULL && yb_conn_is_open(duo.nets[SERVER]->conns)) {
            caller_cancel(&caller);
        }
        duo_turn(&duo);
    }
    DUO_AWAIT(&duo, caller.done == 1);
    caller_expect_none(&caller, YB_CANCELLED, false);
    duo_fini(&duo);
}

/* SENDING, not begun: a VOID frame goes in its place. */
static void
test_call__whose_frame_was_not_begun_is_withdrawn(void **state)
{
    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CANCEL; how++) {
        struct stage stage;
        struct caller first;
        uint64_t frames;

        stage_init(&stage, how);
        frames = duo_stat(&stage.duo, SERVER, YB_NET_STAT_FRAMES_IN);
        yb_sim_host_stall(stage.duo.hosts[SERVER], true);
        caller_init(&first, &stage.duo, DUO_STORE);
        first.call.data = &stage.iov;
        first.call.data_count = 1;
        stage.duo.nets[CLIENT]->options.limits.committed_bytes_max = 64 * MIB;
        assert_int_equal(caller_submit(&first), YB_OK);
        duo_pass_ms(&stage.duo, 50);
        assert_true(first.call.out.started);
        stage_submit(&stage, DUO_STORE);
        duo_pass_ms(&stage.duo, 50);
        assert_int_equal(stage.caller.call.state, YB_CALL_SENDING);
        assert_false(stage.caller.call.out.started);
        stage_end(&stage);
        caller_expect_none(&stage.caller, status_of(how), false);
        yb_sim_host_stall(stage.duo.hosts[SERVER], false);
        DUO_AWAIT(&stage.duo, first.done == 1);
        caller_expect(&first, YB_OK);
        DUO_AWAIT(&stage.duo, duo_stat(&stage.duo, SERVER, YB_NET_STAT_FRAMES_IN) == frames + 2);
        assert_int_equal(stage.duo.service.handled, 1);
        assert_memory_equal(stage.duo.service.memory, stage.data, DATA_BYTES);
        stage_fini(&stage);
    }
}

/* SENDING, begun, no data: its bytes are copies, so the connection lives. */
static void
test_call__whose_body_is_under_way_ends_and_its_reply_is_late(void **state)
{
    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CANCEL; how++) {
        struct stage stage;
        struct yb_conn *conn;

        stage_init(&stage, how);
        conn = conn_of(&stage, CLIENT);
        yb_sim_host_stall(stage.duo.hosts[SERVER], true);
        caller_init(&stage.caller, &stage.duo, YB_WIRE_TYPE_ECHO);
        stage.caller.call.body = stage.data;
        stage.caller.call.body_bytes = MIB;
        if (how == BY_DEADLINE) {
            stage.caller.call.deadline_ns = duo_deadline(&stage.duo, DEADLINE_MS);
        }
        assert_int_equal(caller_submit(&stage.caller), YB_OK);
        duo_pass_ms(&stage.duo, 50);
        assert_int_equal(stage.caller.call.state, YB_CALL_SENDING);
        assert_true(stage.caller.call.out.started);
        stage_end(&stage);
        caller_expect_none(&stage.caller, status_of(how), true);
        yb_sim_host_stall(stage.duo.hosts[SERVER], false);
        DUO_AWAIT(&stage.duo, duo_stat(&stage.duo, CLIENT, YB_NET_STAT_LATE_REPLIES) == 1);
        assert_ptr_equal(conn_of(&stage, CLIENT), conn);
        assert_int_equal(stage.caller.reply[0], 0xcc);
        stage_fini(&stage);
    }
}

/* SENDING, begun, with data: the kernel reads the caller's memory, so the connection must go. */
static void
test_call__whose_data_is_under_way_aborts_its_connection(void **state)
{
    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CUT; how++) {
        struct stage stage;

        stage_init(&stage, how);
        yb_sim_host_stall(stage.duo.hosts[SERVER], true);
        caller_init(&stage.caller, &stage.duo, DUO_STORE);
        stage.caller.scribble = true;
        stage.caller.call.fail_fast = true;
        stage.caller.call.data = &stage.iov;
        stage.caller.call.data_count = 1;
        if (how == BY_DEADLINE) {
            stage.caller.call.deadline_ns = duo_deadline(&stage.duo, DEADLINE_MS);
        }
        assert_int_equal(caller_submit(&stage.caller), YB_OK);
        duo_pass_ms(&stage.duo, 50);
        assert_int_equal(stage.caller.call.state, YB_CALL_SENDING);
        assert_true(stage.caller.call.out.started);
        stage_end(&stage);
        caller_expect_none(&stage.caller, how == BY_CUT ? YB_PEER_LOST : status_of(how), true);
        stage_fini(&stage);
        assert_int_equal(stage.duo.service.handled, 0);
    }
}

/* SENT: nobody touches anything, so it ends at once; the reply is late and its credit counts. */
static void
test_call__that_was_sent_ends_and_its_reply_is_late(void **state)
{
    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CUT; how++) {
        struct stage stage;

        stage_init(&stage, how);
        stage_submit(&stage, DUO_HOLD);
        stage.caller.call.fail_fast = true;
        DUO_AWAIT(&stage.duo, stage.duo.service.held_count == 1);
        assert_int_equal(stage.caller.call.state, YB_CALL_SENT);
        stage_end(&stage);
        caller_expect_none(&stage.caller, how == BY_CUT ? YB_PEER_LOST : status_of(how), true);
        stage_fini(&stage);
        assert_int_equal(stage.caller.reply[0], 0xcc);
    }
}

static void
test_call__that_names_an_operation_and_was_sent_is_in_doubt(void **state)
{
    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CANCEL; how++) {
        struct stage stage;

        stage_init(&stage, how);
        caller_init(&stage.caller, &stage.duo, DUO_HOLD_ADD);
        stage.caller.call.mutates = true;
        if (how == BY_DEADLINE) {
            stage.caller.call.deadline_ns = duo_deadline(&stage.duo, DEADLINE_MS);
        }
        assert_int_equal(caller_submit(&stage.caller), YB_OK);
        DUO_AWAIT(&stage.duo, stage.duo.service.held_count == 1);
        stage_end(&stage);
        caller_expect_none(&stage.caller, YB_IN_DOUBT, true);
        stage_fini(&stage);
        assert_int_equal(stage.duo.service.handled, 1);
    }
}

/* REPLYING: data arrives in the caller's memory, so the connection must go. */
static void
test_call__whose_reply_is_arriving_aborts_its_connection(void **state)
{
    const struct duo_load load = {.bytes = DATA_BYTES, .vectors = 3};

    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CUT; how++) {
        struct yb_sim_link slow = yb_sim_link_default();
        struct stage stage;

        stage_init(&stage, how);
        slow.bytes_per_s = MIB;
        slow.window_bytes = 64 * 1024;
        yb_sim_set_link(stage.duo.sim, NULL, NULL, &slow);
        caller_init(&stage.caller, &stage.duo, DUO_LOAD);
        caller_body(&stage.caller, &load, sizeof(load));
        stage.caller.scribble = true;
        stage.caller.call.fail_fast = true;
        stage.caller.call.reply_data = &stage.iov;
        stage.caller.call.reply_data_count = 1;
        if (how == BY_DEADLINE) {
            stage.caller.call.deadline_ns = duo_deadline(&stage.duo, 2 * DEADLINE_MS);
        }
        assert_int_equal(caller_submit(&stage.caller), YB_OK);
        DUO_AWAIT(&stage.duo, stage.caller.call.state == YB_CALL_REPLYING);
        duo_pass_ms(&stage.duo, 400);
        stage_end(&stage);
        caller_expect_none(&stage.caller, how == BY_CUT ? YB_PEER_LOST : status_of(how), true);
        stage_fini(&stage);
    }
}

/* ANSWERED before the data was read: the answer counts, but the memory must become quiet. */
static void
test_call__that_was_answered_early_keeps_its_answer_however_it_ends(void **state)
{
    (void)state;
    for (enum how how = BY_DEADLINE; how <= BY_CUT; how++) {
        struct yb_sim_link slow = yb_sim_link_default();
        struct stage stage;

        stage_init(&stage, how);
        slow.bytes_per_s = MIB;
        slow.window_bytes = 64 * 1024;
        yb_sim_set_link(stage.duo.sim, NULL, NULL, &slow);
        caller_init(&stage.caller, &stage.duo, DUO_PICKY);
        stage.caller.scribble = true;
        stage.caller.call.data = &stage.iov;
        stage.caller.call.data_count = 1;
        if (how == BY_DEADLINE) {
            stage.caller.call.deadline_ns = duo_deadline(&stage.duo, 2 * DEADLINE_MS);
        }
        assert_int_equal(caller_submit(&stage.caller), YB_OK);
        DUO_AWAIT(&stage.duo, stage.caller.call.state == YB_CALL_ANSWERED);
        stage_end(&stage);
        caller_expect(&stage.caller, YB_NO_SPACE);
        stage_fini(&stage);
    }
}

/* ---- a reply that is placed when it comes -------------------------------------------------- */

struct placed {
    struct caller caller;
    struct iovec iov;
    enum yb_status verdict;
    uint32_t asked;
    uint64_t bytes_told;
};

static enum yb_status
place_reply(struct yb_call *call)
{
    struct placed *placed = (struct placed *)call->owner;

    assert_int_equal(call->reply_body_bytes, 8); /* The body is there already. */
    placed->asked++;
    placed->bytes_told = call->reply_data_bytes;
    call->reply_data = &placed->iov;
    call->reply_data_count = 1;
    return placed->verdict;
}

static void
placed_done(struct yb_call *call)
{
    ((struct placed *)call->owner)->caller.done++;
}

static void
test_call__chooses_the_memory_of_a_reply_when_it_comes(void **state)
{
    static const struct {
        enum yb_status verdict;
        size_t room;
        enum yb_status wanted;
    } rows[] = {
        {YB_OK, 5000, YB_OK},
        {YB_OK, 4999, YB_TOO_SMALL},
        {YB_NO_SPACE, 5000, YB_NO_SPACE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct duo_load load = {.bytes = 5000, .vectors = 3, .body_bytes = 8};
        struct placed placed = {.verdict = rows[i].verdict};
        uint8_t *room = calloc(1, 5000);
        struct caller other;
        struct duo duo;

        duo_init(&duo, "sim");
        duo_start(&duo);
        duo.service.memory = realloc(duo.service.memory, 5000);
        duo.service.memory_bytes = 5000;
        for (size_t at = 0; at < 5000; at++) {
            duo.service.memory[at] = (uint8_t)(at * 7 + 1);
        }
        caller_init(&placed.caller, &duo, DUO_LOAD);
        caller_body(&placed.caller, &load, sizeof(load));
        placed.iov = (struct iovec){.iov_base = room, .iov_len = rows[i].room};
        placed.caller.call.owner = &placed;
        placed.caller.call.place = place_reply;
        placed.caller.call.done = placed_done;
        assert_int_equal(caller_submit(&placed.caller), YB_OK);
        DUO_AWAIT(&duo, placed.caller.done == 1);
        caller_expect(&placed.caller, rows[i].wanted);
        assert_int_equal(placed.asked, 1);
        assert_int_equal(placed.bytes_told, 5000);
        for (size_t at = 0; at < 5000; at++) {
            assert_int_equal(room[at], rows[i].wanted == YB_OK ? (uint8_t)(at * 7 + 1) : 0);
        }
        caller_init(&other, &duo, YB_WIRE_TYPE_ECHO); /* What was discarded is out of the way. */
        caller_run(&other);
        caller_expect(&other, YB_OK);
        duo_fini(&duo);
        free(room);
    }
}

/* ---- flow control ------------------------------------------------------------------------- */

static void
test_call__never_more_requests_are_outstanding_than_were_granted(void **state)
{
    enum { COUNT = 20 };
    struct caller callers[COUNT];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[SERVER].credit_requests = 3;
    duo_start(&duo);
    for (uint32_t i = 0; i < COUNT; i++) {
        caller_init(&callers[i], &duo, DUO_HOLD);
        assert_int_equal(caller_submit(&callers[i]), YB_OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t wanted = COUNT - i < 3 ? COUNT - i : 3;

        DUO_AWAIT(&duo, duo.service.held_count == wanted);
        duo_pass_ms(&duo, 20);
        assert_int_equal(duo.service.held_count, wanted);
        service_reply(&duo.service, YB_OK, &i, sizeof(i));
        DUO_AWAIT(&duo, callers[i].done == 1); /* In the order of their submission. */
        caller_expect(&callers[i], YB_OK);
        assert_memory_equal(callers[i].reply, &i, sizeof(i));
    }
    duo_fini(&duo);
}

static void
test_call__byte_credit_holds_back_and_what_exceeds_all_of_it_goes_alone(void **state)
{
    struct caller callers[5];
    uint8_t *body = calloc(1, MIB);
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[SERVER].credit_bytes = 10000;
    duo_start(&duo);
    for (uint32_t i = 0; i < 5; i++) {
        caller_init(&callers[i], &duo, DUO_HOLD);
        callers[i].call.body = body;
        callers[i].call.body_bytes = i == 3 ? MIB : 4000;
        assert_int_equal(caller_submit(&callers[i]), YB_OK);
    }
    DUO_AWAIT(&duo, duo.service.held_count == 2);
    duo_pass_ms(&duo, 50);
    assert_int_equal(duo.service.held_count, 2);
    service_reply(&duo.service, YB_OK, NULL, 0);
    duo_pass_ms(&duo, 50);
    assert_int_equal(duo.service.held_count, 2); /* The third; the large one waits. */
    service_reply(&duo.service, YB_OK, NULL, 0);
    duo_pass_ms(&duo, 50);
    assert_int_equal(duo.service.held_count, 1); /* Not even a small one overtakes it (P2). */
    service_reply(&duo.service, YB_OK, NULL, 0);
    duo_pass_ms(&duo, 50);
    assert_int_equal(duo.service.held_count, 1);
    assert_int_equal(duo.service.held[0]->body_bytes, MIB);
    service_reply(&duo.service, YB_OK, NULL, 0);
    DUO_AWAIT(&duo, duo.service.held_count == 1 && callers[3].done == 1);
    service_reply(&duo.service, YB_OK, NULL, 0);
    DUO_AWAIT(&duo, callers[4].done == 1);
    for (uint32_t i = 0; i < 5; i++) {
        caller_expect(&callers[i], YB_OK);
    }
    duo_fini(&duo);
    free(body);
}

/* ---- on a connection itself ---------------------------------------------------------------- */

struct direct {
    struct yb_conn *conn;
    uint32_t opened;
    uint32_t rooms;
    struct yb_call *retry; /* Was answered AGAIN. */
    uint32_t closed;
    enum yb_status end;
};

static void
direct_open(void *owner, struct yb_conn *conn)
{
    (void)conn;
    ((struct direct *)owner)->opened++;
}

static void
direct_room(void *owner, struct yb_conn *conn)
{
    struct direct *direct = owner;

    direct->rooms++;
    if (direct->retry != NULL && yb_conn_call(conn, direct->retry) == YB_OK) {
        direct->retry = NULL;
    }
}

static void
direct_closed(void *owner, struct yb_conn *conn, const struct yb_conn_end *end)
{
    struct direct *direct = owner;

    assert_ptr_equal(direct->conn, conn);
    direct->closed++;
    direct->end = end->status;
    direct->conn = NULL;
}

static const struct yb_conn_events direct_events = {
    .on_open = direct_open, .on_room = direct_room, .on_closed = direct_closed};

static void
test_call__a_connection_says_again_and_tells_when_there_is_room(void **state)
{
    struct yb_conn_target target = {.lane_class = YB_CLASS_FIRST_TOKEN};
    struct direct direct = {0};
    struct caller callers[4];
    uint8_t *body = calloc(1, 2 * MIB);
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[SERVER].credit_requests = 2;
    duo_start(&duo);
    target.address = duo.address;
    assert_int_equal(
        yb_conn_connect(duo.nets[CLIENT], &target, &direct_events, &direct, &direct.conn), YB_OK);
    for (uint32_t i = 0; i < 4; i++) {
        caller_init(&callers[i], &duo, DUO_HOLD);
    }
    callers[1].call.type = DUO_HOLD_ADD;
    callers[1].call.operation = 5;
    assert_int_equal(yb_conn_call(direct.conn, &callers[0].call), YB_CLOSED); /* Not open yet. */
    DUO_AWAIT(&duo, direct.opened == 1);
    assert_true(yb_conn_is_open(direct.conn) && yb_conn_is_initiator(direct.conn));
    assert_true(yb_id_equal(yb_conn_peer(direct.conn)->identity, duo.selfs[SERVER].identity));
    assert_int_equal(yb_conn_address(direct.conn)->port, duo.address.port);
    assert_int_equal(yb_conn_call(direct.conn, &callers[0].call), YB_OK);
    assert_int_equal(yb_conn_call(direct.conn, &callers[1].call), YB_OK);
    assert_int_equal(yb_conn_outstanding(direct.conn), 2);
    assert_int_equal(yb_conn_call(direct.conn, &callers[2].call), YB_AGAIN);
    direct.retry = &callers[2].call;
    duo_kick(&duo);
    DUO_AWAIT(&duo, duo.service.held_count == 2);
    assert_non_null(direct.retry);
    service_reply(&duo.service, YB_OK, NULL, 0);
    DUO_AWAIT(&duo, duo.service.held_count == 2);
    assert_true(direct.rooms > 0);
    assert_null(direct.retry);
    caller_expect(&callers[0], YB_OK);
    callers[3].call.body = body;
    callers[3].call.body_bytes = MIB + 1;
    assert_int_equal(yb_conn_call(direct.conn, &callers[3].call), YB_TOO_LARGE);
    callers[3].call.body_bytes = 0;
    callers[3].call.deadline_ns = 1;
    assert_int_equal(yb_conn_call(direct.conn, &callers[3].call), YB_TIMED_OUT);
    yb_conn_close(direct.conn, YB_STALE, "the test is over");
    yb_conn_close(direct.conn, YB_OK, "not this"); /* The first reason counts. */
    assert_int_equal(yb_conn_call(direct.conn, &callers[3].call), YB_CLOSED);
    assert_int_equal(callers[1].done, 0);
    DUO_AWAIT(&duo, direct.closed == 1);
    assert_int_equal(direct.end, YB_STALE);
    caller_expect_none(&callers[1], YB_IN_DOUBT, true);
    caller_expect_none(&callers[2], YB_PEER_LOST, true);
    assert_int_equal(callers[3].done, 0);
    duo_fini(&duo);
    free(body);
}

static void
test_call__what_is_committed_is_bounded_and_room_is_told(void **state)
{
    struct yb_conn_target target = {.lane_class = YB_CLASS_FIRST_TOKEN};
    struct direct direct = {0};
    struct caller callers[2];
    uint8_t *body = calloc(1, MIB);
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.limits[CLIENT].committed_bytes_max = 1000;
    duo_start(&duo);
    target.address = duo.address;
    assert_int_equal(
        yb_conn_connect(duo.nets[CLIENT], &target, &direct_events, &direct, &direct.conn), YB_OK);
    DUO_AWAIT(&duo, direct.opened == 1);
    caller_init(&callers[0], &duo, DUO_HOLD);
    caller_init(&callers[1], &duo, DUO_HOLD);
    callers[0].call.body = body;
    callers[0].call.body_bytes = MIB;
    assert_int_equal(yb_conn_call(direct.conn, &callers[0].call), YB_OK);
    assert_int_equal(yb_conn_call(direct.conn, &callers[1].call), YB_AGAIN);
    duo_kick(&duo);
    DUO_AWAIT(&duo, direct.rooms == 1);
    assert_int_equal(callers[0].done, 0); /* Sent is enough; it need not be answered. */
    assert_int_equal(yb_conn_call(direct.conn, &callers[1].call), YB_OK);
    duo_kick(&duo);
    DUO_AWAIT(&duo, duo.service.held_count == 2);
    yb_conn_cancel(direct.conn, &callers[1].call);
    duo_kick(&duo);
    DUO_AWAIT(&duo, callers[1].done == 1);
    caller_expect_none(&callers[1], YB_CANCELLED, true);
    yb_conn_close(direct.conn, YB_CLOSED, "the test is over");
    DUO_AWAIT(&duo, direct.closed == 1 && callers[0].done == 1);
    duo_fini(&duo);
    free(body);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call__that_waits_for_a_connection_ends_unsent),
        cmocka_unit_test(test_call__that_was_cancelled_before_its_connection_opened_is_not_sent),
        cmocka_unit_test(test_call__whose_frame_was_not_begun_is_withdrawn),
        cmocka_unit_test(test_call__whose_body_is_under_way_ends_and_its_reply_is_late),
        cmocka_unit_test(test_call__whose_data_is_under_way_aborts_its_connection),
        cmocka_unit_test(test_call__that_was_sent_ends_and_its_reply_is_late),
        cmocka_unit_test(test_call__that_names_an_operation_and_was_sent_is_in_doubt),
        cmocka_unit_test(test_call__whose_reply_is_arriving_aborts_its_connection),
        cmocka_unit_test(test_call__that_was_answered_early_keeps_its_answer_however_it_ends),
        cmocka_unit_test(test_call__chooses_the_memory_of_a_reply_when_it_comes),
        cmocka_unit_test(test_call__never_more_requests_are_outstanding_than_were_granted),
        cmocka_unit_test(test_call__byte_credit_holds_back_and_what_exceeds_all_of_it_goes_alone),
        cmocka_unit_test(test_call__a_connection_says_again_and_tells_when_there_is_room),
        cmocka_unit_test(test_call__what_is_committed_is_bounded_and_room_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
