/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: P1 to P4 of net/peer.h, and what a lost connection means for a call.
 * Method: a simulated network that cuts, swallows and comes back; restarts of a server on its port
 * also over real sockets. Whether a mutation was run is asked of the service, which counts.
 */
#include "net_duo.h"

#include <sys/resource.h>

/* ---- reconnecting ------------------------------------------------------------------------- */

static void
check_restarts(const char *backend, uint32_t count)
{
    struct caller caller;
    struct duo duo;

    if (!duo_possible(backend)) {
        skip();
    }
    duo_init(&duo, backend);
    duo.tls = count < 20;
    duo_start(&duo);
    for (uint32_t i = 0; i < count; i++) {
        caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
        caller_body(&caller, &i, sizeof(i));
        caller_run(&caller);
        caller_expect(&caller, YB_OK);
        assert_memory_equal(caller.reply, &i, sizeof(i));
        duo_stop_server(&duo, i % 2 == 0);
        duo.selfs[SERVER].incarnation++;
        duo_start_server(&duo);
        duo.service.loop = duo.loops[SERVER];
    }
    assert_true(yb_peer_result(duo.peer)->incarnation + 1 == duo.selfs[SERVER].incarnation);
    duo_fini(&duo);
}

static void
test_peer__calls_succeed_after_each_restart_of_the_server(void **state)
{
    (void)state;
    check_restarts("sim", 20);
    check_restarts("epoll", 20);
    check_restarts("epoll", 4);
}

static void
test_peer__calls_succeed_after_each_restart_of_the_server_on_io_uring(void **state)
{
    (void)state;
    check_restarts("io_uring", 20);
}

static void
test_peer__a_call_waits_for_a_server_that_is_not_there_yet(void **state)
{
    struct caller patient;
    struct caller hasty;
    struct caller third;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    duo_stop_server(&duo, false);
    caller_init(&patient, &duo, YB_WIRE_TYPE_ECHO);
    caller_init(&third, &duo, YB_WIRE_TYPE_ECHO);
    third.call.deadline_ns = duo_deadline(&duo, 1000);
    caller_init(&hasty, &duo, YB_WIRE_TYPE_ECHO);
    hasty.call.fail_fast = true;
    assert_int_equal(caller_submit(&patient), YB_OK);
    assert_int_equal(caller_submit(&third), YB_OK);
    assert_int_equal(caller_submit(&hasty), YB_OK);
    DUO_AWAIT(&duo, hasty.done == 1);
    caller_expect_none(&hasty, YB_REFUSED, false);
    assert_true(strlen(yb_peer_error(duo.peer)) > 0);
    DUO_AWAIT(&duo, third.done == 1);
    caller_expect_none(&third, YB_REFUSED, false); /* Says more than TIMED_OUT. */
    duo_pass_ms(&duo, 2000);
    assert_int_equal(patient.done, 0);
    duo_start_server(&duo);
    DUO_AWAIT(&duo, patient.done == 1);
    caller_expect(&patient, YB_OK);
    assert_true(patient.call.took_ns < 5 * YB_NS_PER_S); /* The delays end at a second. */
    duo_fini(&duo);
}

static void
test_peer__the_addresses_of_a_peer_are_tried_in_turn(void **state)
{
    struct yb_address_list list = {.count = 3};
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    list.items[0] = list.items[1] = list.items[2] = duo.address;
    list.items[0].port = 1;
    list.items[1].port = 2;
    yb_peer_destroy(&duo.peer);
    assert_int_equal(yb_peer_create(duo.nets[CLIENT], &list, (struct yb_id){{0}}, &duo.peer),
                     YB_OK);
    caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
    caller_run(&caller);
    caller_expect(&caller, YB_OK);
    list.count = 0;
    yb_peer_destroy(&duo.peer);
    assert_int_equal(yb_peer_create(duo.nets[CLIENT], &list, (struct yb_id){{0}}, &duo.peer),
                     YB_INVALID);
    duo_fini(&duo);
}

/* ---- what a lost connection means ---------------------------------------------------------- */

static void
test_peer__a_lost_read_is_asked_again(void **state)
{
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_HOLD);
    assert_int_equal(caller_submit(&caller), YB_OK);
    for (uint32_t i = 1; i <= 3; i++) {
        DUO_AWAIT(&duo, duo.service.handled == i);
        assert_true(yb_sim_cut(duo.sim, NULL, NULL) > 0);
    }
    DUO_AWAIT(&duo, duo.service.handled == 4);
    while (duo.service.held_count > 0) {
        service_reply(&duo.service, YB_OK, "x", 1);
    }
    DUO_AWAIT(&duo, caller.done == 1);
    caller_expect(&caller, YB_OK);
    assert_int_equal(duo_stat(&duo, CLIENT, YB_NET_STAT_RETRIES), 3);
    duo_fini(&duo);
}

static void
test_peer__a_lost_mutation_gets_its_first_answer_and_is_run_once(void **state)
{
    struct caller caller;
    struct caller beside;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_HOLD_ADD);
    caller.call.mutates = true;
    assert_int_equal(caller_submit(&caller), YB_OK);
    DUO_AWAIT(&duo, duo.service.held_count == 1);
    assert_true(yb_sim_cut(duo.sim, NULL, NULL) > 0);
    duo_pass_ms(&duo, 1000); /* Meanwhile it asks again and hears that it still runs. */
    assert_int_equal(caller.done, 0);
    assert_int_equal(duo.service.handled, 1);
    caller_init(&beside, &duo, YB_WIRE_TYPE_ECHO);
    caller_run(&beside); /* Nobody waits behind one that rests. */
    caller_expect(&beside, YB_OK);
    assert_true(beside.call.took_ns < 20 * YB_NS_PER_MS);
    service_reply(&duo.service, YB_EXISTS, "the first answer", 16);
    DUO_AWAIT(&duo, caller.done == 1);
    caller_expect(&caller, YB_EXISTS);
    assert_int_equal(caller.call.reply_body_bytes, 16);
    assert_memory_equal(caller.reply, "the first answer", 16);
    assert_int_equal(duo.service.handled, 1);
    assert_int_equal(duo_stat(&duo, SERVER, YB_NET_STAT_DUPLICATES), 1);
    duo_fini(&duo);
}

/* Cut at every moment of a mutation's life: it is run at most once, and OK means once. */
static void
test_peer__a_mutation_survives_a_cut_at_any_moment(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 60; steps++) {
        struct caller caller;
        struct duo duo;

        duo_init(&duo, "sim");
        duo_start(&duo);
        caller_init(&caller, &duo, DUO_ADD);
        caller.call.mutates = true;
        assert_int_equal(caller_submit(&caller), YB_OK);
        for (uint32_t i = 0; i < steps && caller.done == 0; i++) {
            duo_turn(&duo);
        }
        (void)yb_sim_cut(duo.sim, NULL, NULL);
        DUO_AWAIT(&duo, caller.done == 1);
        caller_expect(&caller, YB_OK);
        assert_int_equal(duo.service.sum, 1);
        assert_memory_equal(caller.reply, &duo.service.sum, sizeof(duo.service.sum));
        duo_fini(&duo);
    }
}

static void
test_peer__another_life_of_the_server_is_not_asked_about_a_mutation(void **state)
{
    (void)state;
    for (int other_lane = 0; other_lane < 2; other_lane++) {
        struct caller caller;
        struct caller beside;
        struct duo duo;

        duo_init(&duo, "sim");
        duo_start(&duo);
        caller_init(&caller, &duo, DUO_HOLD_ADD);
        caller.call.mutates = true;
        caller.call.deadline_ns = duo_deadline(&duo, 100000);
        assert_int_equal(caller_submit(&caller), YB_OK);
        DUO_AWAIT(&duo, duo.service.held_count == 1);
        if (other_lane) { /* Its own lane does not notice; another one meets the new life first. */
            assert_int_equal(yb_sim_black_hole(duo.sim, NULL, NULL), 1);
        }
        duo_stop_server(&duo, false);
        duo.selfs[SERVER].incarnation++;
        duo_start_server(&duo);
        caller_init(&beside, &duo, YB_WIRE_TYPE_ECHO);
        beside.call.class = other_lane ? YB_CLASS_BACKGROUND : YB_CLASS_FIRST_TOKEN;
        caller_run(&beside);
        caller_expect(&beside, YB_OK);
        DUO_AWAIT(&duo, caller.done == 1);
        caller_expect_none(&caller, YB_IN_DOUBT, true);
        assert_int_equal(duo.service.handled, 1);
        assert_int_equal(duo_stat(&duo, SERVER, YB_NET_STAT_DUPLICATES), 0);
        duo_fini(&duo);
    }
}

/* Send what `call` was once more, as the network would that kept a copy. */
static void
duplicate(struct duo *duo, const struct yb_call *call, struct caller *copy)
{
    struct yb_conn *conn = duo->nets[CLIENT]->conns;

    while (conn != NULL && (!conn->initiator || conn->lane_class != (uint8_t)call->class ||
                            conn->state != YB_CONN_OPEN)) {
        conn = conn->next;
    }
    assert_non_null(conn);
    caller_init(copy, duo, call->type);
    copy->call.operation = call->operation;
    copy->call.operation_slot = call->operation_slot;
    assert_int_equal(yb_conn_call(conn, &copy->call), YB_OK);
    duo_kick(duo);
    DUO_AWAIT(duo, copy->done == 1);
}

static void
test_peer__a_duplicate_gets_the_first_answer_until_its_slot_goes_on(void **state)
{
    struct caller callers[2];
    struct caller copy;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&callers[0], &duo, DUO_ADD);
    callers[0].call.mutates = true;
    caller_run(&callers[0]);
    caller_expect(&callers[0], YB_OK);
    for (uint32_t i = 0; i < 3; i++) {
        duplicate(&duo, &callers[0].call, &copy);
        caller_expect(&copy, YB_OK);
        assert_memory_equal(copy.reply, callers[0].reply, sizeof(copy.reply));
    }
    callers[1] = callers[0];
    callers[1].call.owner = &callers[1];
    caller_run(&callers[1]);
    caller_expect(&callers[1], YB_OK);
    assert_int_equal(callers[1].call.operation_slot, callers[0].call.operation_slot);
    assert_true(callers[1].call.operation > callers[0].call.operation);
    assert_int_equal(yb_replay_count(duo.replay).records, 1);
    duplicate(&duo, &callers[0].call, &copy);
    caller_expect(&copy, YB_STALE);
    assert_true(copy.call.undecided);
    duplicate(&duo, &callers[1].call, &copy);
    caller_expect(&copy, YB_OK);
    assert_int_equal(duo.service.sum, 2);
    duo_fini(&duo);
}

/* As many as are outstanding are remembered, not as many as are made. */
static void
test_peer__more_mutations_than_can_be_remembered_are_all_answered(void **state)
{
    enum { COUNT = 100000, ABREAST = 20 };
    static struct caller callers[ABREAST];
    uint64_t began_ns;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    began_ns = duo_deadline(&duo, 0);
    for (uint32_t i = 0; i < COUNT; i += ABREAST) {
        for (uint32_t k = 0; k < ABREAST; k++) {
            caller_init(&callers[k], &duo, DUO_ADD);
            callers[k].call.mutates = true;
            assert_int_equal(caller_submit(&callers[k]), YB_OK);
        }
        for (uint32_t k = 0; k < ABREAST; k++) {
            DUO_AWAIT(&duo, callers[k].done == 1);
            caller_expect(&callers[k], YB_OK);
        }
    }
    assert_int_equal(duo.service.sum, COUNT);
    assert_true(duo_deadline(&duo, 0) - began_ns <
                YB_REPLAY_MARGIN_NS); /* On a clock of its own. */
    assert_int_equal(yb_replay_count(duo.replay).records, ABREAST);
    assert_true(yb_replay_count(duo.replay).bytes <= ABREAST * 64);
    duo_fini(&duo);
}

static void
test_peer__a_mutation_in_doubt_keeps_its_slot_until_its_end(void **state)
{
    struct caller held;
    struct caller others[2];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&held, &duo, DUO_HOLD_ADD);
    held.call.mutates = true;
    assert_int_equal(caller_submit(&held), YB_OK);
    DUO_AWAIT(&duo, duo.service.held_count == 1);
    assert_true(yb_sim_cut(duo.sim, NULL, NULL) > 0);
    for (uint32_t i = 0; i < 2; i++) {
        caller_init(&others[i], &duo, DUO_ADD);
        others[i].call.mutates = true;
        caller_run(&others[i]);
        caller_expect(&others[i], YB_OK);
        assert_int_not_equal(others[i].call.operation_slot, held.call.operation_slot);
    }
    service_reply(&duo.service, YB_EXISTS, NULL, 0);
    DUO_AWAIT(&duo, held.done == 1);
    caller_expect(&held, YB_EXISTS);
    assert_int_equal(duo.service.handled, 3);
    duo_fini(&duo);
}

/* What a peer numbers is higher than what a peer before it did, whose place it takes. */
static void
test_peer__a_peer_that_follows_another_is_not_taken_for_its_duplicate(void **state)
{
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 5; i++) {
            caller_init(&caller, &duo, DUO_ADD);
            caller.call.mutates = true;
            caller_run(&caller);
            caller_expect(&caller, YB_OK);
        }
        if (round == 0) {
            yb_peer_destroy(&duo.peer);
            duo_kick(&duo);
            duo.peer = duo_peer(&duo);
        } else {
            duo_renew_client(&duo);
        }
    }
    assert_int_equal(duo.service.sum, 15);
    assert_int_equal(yb_replay_count(duo.replay).records, 1);
    duo_fini(&duo);
}

static void
test_peer__a_mutation_that_was_not_started_may_be_asked_again(void **state)
{
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_BUSY_ADD);
    caller.call.mutates = true;
    caller_run(&caller);
    caller_expect(&caller, YB_AGAIN);
    assert_false(caller.call.undecided);
    caller_run(&caller);
    caller_expect(&caller, YB_OK);
    assert_int_equal(duo.service.sum, 1);
    duo_fini(&duo);
}

static void
test_peer__an_undecided_mutation_is_in_doubt_at_its_deadline(void **state)
{
    struct caller caller;
    struct caller copy;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_HOLD_ADD);
    caller.call.mutates = true;
    caller.call.deadline_ns = duo_deadline(&duo, 1500);
    assert_int_equal(caller_submit(&caller), YB_OK);
    DUO_AWAIT(&duo, duo.service.held_count == 1);
    duplicate(&duo, &caller.call, &copy);
    caller_expect(&copy, YB_AGAIN);
    assert_true(copy.call.undecided);
    assert_true(yb_sim_cut(duo.sim, NULL, NULL) > 0);
    DUO_AWAIT(&duo, caller.done == 1);
    caller_expect_none(&caller, YB_IN_DOUBT, true);
    assert_int_equal(duo.service.handled, 1);
    duo_fini(&duo);
}

static void
test_peer__a_cancelled_transfer_costs_its_neighbours_a_retry_and_not_their_lives(void **state)
{
    uint8_t *data = calloc(1, 4u << 20);
    const struct iovec iov = {.iov_base = data, .iov_len = 4u << 20};
    struct caller transfer;
    struct caller read;
    struct caller hasty;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.link.window_bytes = 64 * 1024;
    duo.selfs[SERVER].credit_requests = 2;
    duo_start(&duo);
    caller_init(&read, &duo, DUO_HOLD);
    caller_init(&transfer, &duo, DUO_STORE);
    caller_init(&hasty, &duo, YB_WIRE_TYPE_ECHO);
    transfer.call.data = &iov;
    transfer.call.data_count = 1;
    hasty.call.fail_fast = true;
    assert_int_equal(caller_submit(&read), YB_OK);
    DUO_AWAIT(&duo, duo.service.held_count == 1);
    yb_sim_host_stall(duo.hosts[SERVER], true);
    assert_int_equal(caller_submit(&transfer), YB_OK);
    assert_int_equal(caller_submit(&hasty), YB_OK); /* Waits for credit. */
    duo_pass_ms(&duo, 50);
    assert_int_equal(hasty.call.state, YB_CALL_WAITING);
    caller_cancel(&transfer);
    DUO_AWAIT(&duo, transfer.done == 1 && hasty.done == 1);
    caller_expect_none(&transfer, YB_CANCELLED, true);
    caller_expect_none(&hasty, YB_PEER_LOST, false);
    yb_sim_host_stall(duo.hosts[SERVER], false);
    DUO_AWAIT(&duo, duo.service.handled == 2);
    service_reply(&duo.service, YB_OK, NULL, 0);
    service_reply(&duo.service, YB_OK, NULL, 0);
    DUO_AWAIT(&duo, read.done == 1);
    caller_expect(&read, YB_OK);
    duo_fini(&duo);
    free(data);
}

/* ---- refusals ------------------------------------------------------------------------------ */

/* Submit two calls to a server that does not want us: both end at once, with its words. */
static void
check_refused(struct duo *duo, enum yb_status status, const char *part)
{
    struct caller callers[2];

    for (uint32_t i = 0; i < 2; i++) {
        caller_init(&callers[i], duo, DUO_ADD);
        callers[i].call.mutates = true;
        callers[i].call.deadline_ns = YB_NEVER;
        assert_int_equal(caller_submit(&callers[i]), YB_OK);
    }
    DUO_AWAIT(duo, callers[0].done == 1 && callers[1].done == 1);
    caller_expect_none(&callers[0], status, false);
    caller_expect_none(&callers[1], status, false);
    if (strstr(yb_peer_error(duo->peer), part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, yb_peer_error(duo->peer));
    }
    assert_int_equal(duo->service.handled, 0);
    duo_fini(duo);
}

static void
test_peer__a_server_that_refuses_what_we_are_ends_all_calls_with_its_words(void **state)
{
    struct yb_auth *other = NULL;
    char why[400];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.auth = true;
    duo_start(&duo);
    assert_int_equal(yb_auth_parse("other", "secret ffffffffffffffffffffffffffffffffffff\n", 44,
                                   &other, why, sizeof(why)),
                     YB_OK);
    duo.selfs[CLIENT].auth = other;
    check_refused(&duo, YB_DENIED, "secret");
    yb_auth_destroy(&other);

    duo_init(&duo, "sim");
    duo.auth = true;
    duo_start(&duo);
    duo.selfs[CLIENT].auth = NULL;
    check_refused(&duo, YB_DENIED, "secret");

    duo_init(&duo, "sim");
    duo_start(&duo);
    duo.selfs[CLIENT].version_min = duo.selfs[CLIENT].version_max = 99;
    check_refused(&duo, YB_VERSION, "99");
}

static void
test_peer__another_identity_at_the_address_is_not_called(void **state)
{
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.wanted = (struct yb_id){{0xdd}};
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_STORE);
    caller.call.deadline_ns = duo_deadline(&duo, 3000);
    caller_run(&caller);
    caller_expect_none(&caller, YB_STALE, false);
    assert_non_null(strstr(yb_peer_error(duo.peer), "another process answers"));
    assert_int_equal(duo.service.handled, 0);
    assert_null(yb_peer_result(duo.peer));
    duo_fini(&duo);
}

static void
test_peer__descriptors_that_run_out_fail_the_hasty_and_only_delay_the_patient(void **state)
{
    struct rlimit before;
    struct rlimit none;
    struct caller patient;
    struct caller hasty;
    struct duo duo;
    uint64_t turns;

    (void)state;
    duo_init(&duo, "epoll");
    duo_start(&duo);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    caller_init(&patient, &duo, YB_WIRE_TYPE_ECHO);
    caller_init(&hasty, &duo, YB_WIRE_TYPE_ECHO);
    hasty.call.fail_fast = true;
    assert_int_equal(caller_submit(&patient), YB_OK);
    assert_int_equal(caller_submit(&hasty), YB_OK);
    DUO_AWAIT(&duo, hasty.done == 1);
    caller_expect_none(&hasty, YB_NO_MEMORY, false);
    turns = yb_loop_counters(duo.loops[CLIENT]).turns;
    for (uint64_t until_ns = duo_now(&duo) + 100 * YB_NS_PER_MS; duo_now(&duo) < until_ns;) {
        yb_loop_turn(duo.loops[CLIENT], YB_NS_PER_S);
    }
    turns = yb_loop_counters(duo.loops[CLIENT]).turns - turns;
    assert_true(turns < 40); /* It backs off instead of asking in every turn. */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    DUO_AWAIT(&duo, patient.done == 1);
    caller_expect(&patient, YB_OK);
    duo_fini(&duo);
}

/* ---- bounds and the end --------------------------------------------------------------------- */

static void
test_peer__so_many_calls_wait_and_more_are_told_again(void **state)
{
    struct caller callers[6];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.limits[CLIENT].calls_waiting_max = 4;
    duo_start(&duo);
    for (uint32_t i = 0; i < 6; i++) {
        caller_init(&callers[i], &duo, YB_WIRE_TYPE_ECHO);
        assert_int_equal(caller_submit(&callers[i]), i < 4 ? YB_OK : YB_AGAIN);
    }
    for (uint32_t i = 0; i < 4; i++) {
        DUO_AWAIT(&duo, callers[i].done == 1);
        caller_expect(&callers[i], YB_OK);
    }
    assert_int_equal(callers[4].done + callers[5].done, 0);
    callers[4].call.deadline_ns = 1;
    assert_int_equal(caller_submit(&callers[4]), YB_TIMED_OUT);
    duo_fini(&duo);
}

static void
destroy_peer(struct caller *caller)
{
    yb_peer_destroy(&caller->duo->peer);
}

static void
test_peer__destroying_it_ends_every_call_even_inside_done(void **state)
{
    (void)state;
    for (int inside = 0; inside < 2; inside++) {
        struct caller held[3];
        struct caller waiting[3];
        struct duo duo;

        duo_init(&duo, "sim");
        duo.selfs[SERVER].credit_requests = 3;
        duo_start(&duo);
        for (uint32_t i = 0; i < 3; i++) {
            caller_init(&held[i], &duo, i == 2 ? DUO_HOLD_ADD : DUO_HOLD);
            held[i].call.mutates = i == 2;
            caller_init(&waiting[i], &duo, DUO_HOLD);
            assert_int_equal(caller_submit(&held[i]), YB_OK);
        }
        DUO_AWAIT(&duo, duo.service.held_count == 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(caller_submit(&waiting[i]), YB_OK);
        }
        if (inside) {
            waiting[0].then = destroy_peer;
            caller_cancel(&waiting[0]);
            DUO_AWAIT(&duo, duo.peer == NULL);
        } else {
            yb_peer_destroy(&duo.peer);
        }
        duo_kick(&duo);
        for (uint32_t i = 0; i < 3; i++) {
            DUO_AWAIT(&duo, held[i].done == 1 && waiting[i].done == 1);
            caller_expect_none(&waiting[i], inside && i == 0 ? YB_CANCELLED : YB_CLOSED, false);
            assert_false(held[i].call.answered);
        }
        assert_int_equal(held[2].call.status, YB_IN_DOUBT);
        duo_fini(&duo);
    }
}

static void
test_peer__destroying_it_ends_calls_on_a_connection_that_drains(void **state)
{
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_HOLD);
    caller.call.deadline_ns = YB_NEVER;
    assert_int_equal(caller_submit(&caller), YB_OK);
    DUO_AWAIT(&duo, duo.service.held_count == 1);
    yb_net_drain(duo.nets[SERVER]);
    duo_kick(&duo);
    duo_pass_ms(&duo, 100);
    assert_int_equal(caller.done, 0);
    yb_peer_destroy(&duo.peer);
    duo_kick(&duo);
    DUO_AWAIT(&duo, caller.done == 1);
    assert_false(caller.call.answered);
    duo_fini(&duo);
}

/* A hasty call that fails destroys the peer while it is told so. */
static void
test_peer__a_failed_attempt_may_be_answered_by_destroying_the_peer(void **state)
{
    struct caller callers[3];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    duo_stop_server(&duo, false);
    for (uint32_t i = 0; i < 3; i++) {
        caller_init(&callers[i], &duo, YB_WIRE_TYPE_ECHO);
        callers[i].call.fail_fast = i < 2;
        assert_int_equal(caller_submit(&callers[i]), YB_OK);
    }
    callers[0].then = destroy_peer;
    for (uint32_t i = 0; i < 3; i++) {
        DUO_AWAIT(&duo, callers[i].done == 1);
    }
    assert_null(duo.peer);
    duo_pass_ms(&duo, 2000);
    duo_fini(&duo);
}

/* A call that another one's `done` submits is a call like any other. */
static void
submit_again(struct caller *caller)
{
    if (caller->duo->service.handled < 50) {
        caller->call.deadline_ns = duo_deadline(caller->duo, 1000);
        assert_int_equal(caller_submit(caller), YB_OK);
    }
}

static void
test_peer__done_may_submit_the_next_call(void **state)
{
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_STORE);
    caller.then = submit_again;
    assert_int_equal(caller_submit(&caller), YB_OK);
    DUO_AWAIT(&duo, duo.service.handled == 50 && caller.done == 1);
    caller_expect(&caller, YB_OK);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer__calls_succeed_after_each_restart_of_the_server),
        cmocka_unit_test(test_peer__calls_succeed_after_each_restart_of_the_server_on_io_uring),
        cmocka_unit_test(test_peer__a_call_waits_for_a_server_that_is_not_there_yet),
        cmocka_unit_test(test_peer__the_addresses_of_a_peer_are_tried_in_turn),
        cmocka_unit_test(test_peer__a_lost_read_is_asked_again),
        cmocka_unit_test(test_peer__a_lost_mutation_gets_its_first_answer_and_is_run_once),
        cmocka_unit_test(test_peer__a_mutation_survives_a_cut_at_any_moment),
        cmocka_unit_test(test_peer__another_life_of_the_server_is_not_asked_about_a_mutation),
        cmocka_unit_test(test_peer__a_duplicate_gets_the_first_answer_until_its_slot_goes_on),
        cmocka_unit_test(test_peer__more_mutations_than_can_be_remembered_are_all_answered),
        cmocka_unit_test(test_peer__a_mutation_in_doubt_keeps_its_slot_until_its_end),
        cmocka_unit_test(test_peer__a_peer_that_follows_another_is_not_taken_for_its_duplicate),
        cmocka_unit_test(test_peer__a_mutation_that_was_not_started_may_be_asked_again),
        cmocka_unit_test(test_peer__an_undecided_mutation_is_in_doubt_at_its_deadline),
        cmocka_unit_test(
            test_peer__a_cancelled_transfer_costs_its_neighbours_a_retry_and_not_their_lives),
        cmocka_unit_test(
            test_peer__a_server_that_refuses_what_we_are_ends_all_calls_with_its_words),
        cmocka_unit_test(test_peer__another_identity_at_the_address_is_not_called),
        cmocka_unit_test(
            test_peer__descriptors_that_run_out_fail_the_hasty_and_only_delay_the_patient),
        cmocka_unit_test(test_peer__so_many_calls_wait_and_more_are_told_again),
        cmocka_unit_test(test_peer__destroying_it_ends_every_call_even_inside_done),
        cmocka_unit_test(test_peer__destroying_it_ends_calls_on_a_connection_that_drains),
        cmocka_unit_test(test_peer__a_failed_attempt_may_be_answered_by_destroying_the_peer),
        cmocka_unit_test(test_peer__done_may_submit_the_next_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
