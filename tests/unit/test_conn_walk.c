/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whatever happens to connections, each call ends once, an answer is the right one, and a
 * mutation is run at most once, and not at all if its caller was told that it was not sent.
 * Method: random calls of random sizes with random deadlines, cancelled at random, over
 * connections that are cut and drained at random, against a model: the bytes that were sent, and
 * how often the service ran each operation.
 */
#include "net_duo.h"

#define LIVE_MAX   24u
#define BYTES_MAX  300000u
#define GUARD_BYTE 0x77

struct walker {
    uint64_t number; /* Of its mutation. */
    struct caller caller;
    bool busy;
    uint8_t *out;
    uint8_t *in;
    size_t bytes;
    uint32_t vectors;
    struct iovec out_iov[40];
    struct iovec in_iov[40];
};

struct walk {
    struct duo duo;
    uint64_t random;
    uint64_t operation;
    uint32_t ok;
    uint32_t ended;
    struct walker walkers[LIVE_MAX];
};

static uint64_t
dice(struct walk *walk, uint64_t sides)
{
    return (unit_random(&walk->random) >> 11) % sides;
}

static void
walker_submit(struct walk *walk, struct walker *walker)
{
    static const uint16_t types[] = {YB_WIRE_TYPE_ECHO, DUO_SWAP, DUO_SWAP, DUO_ADD, DUO_HOLD};
    uint16_t type = types[dice(walk, 5)];
    struct yb_call *call = &walker->caller.call;

    caller_init(&walker->caller, &walk->duo, type);
    walker->bytes = dice(walk, 3) == 0 ? dice(walk, BYTES_MAX) : dice(walk, 3000);
    walker->vectors = 1 + (uint32_t)dice(walk, 40);
    io_pattern(walker->out, walker->bytes, unit_random(&walk->random));
    memset(walker->in, GUARD_BYTE, walker->bytes + 1);
    if (type == YB_WIRE_TYPE_ECHO) {
        call->body = walker->out;
        call->body_bytes = (uint32_t)walker->bytes;
        call->reply_body = walker->in;
        call->reply_body_room = (uint32_t)walker->bytes;
    } else if (type == DUO_SWAP) {
        duo_cut(walker->out_iov, walker->vectors, walker->out, walker->bytes, walk->operation);
        duo_cut(walker->in_iov, walker->vectors, walker->in, walker->bytes, walk->operation + 1);
        call->data = walker->out_iov;
        call->reply_data = walker->in_iov;
        call->data_count = call->reply_data_count = walker->vectors;
    } else if (type == DUO_ADD) {
        walker->number = ++walk->operation;
        call->mutates = true;
        call->body = &walker->number;
        call->body_bytes = sizeof(walker->number);
    }
    call->lane = (enum yb_wire_lane)dice(walk, 2);
    call->class = (enum yb_class)dice(walk, YB_CLASS_COUNT);
    call->fail_fast = dice(walk, 8) == 0;
    call->deadline_ns = duo_deadline(&walk->duo, dice(walk, 4) == 0 ? 1 + dice(walk, 20) : 8000);
    walker->busy = true;
    if (caller_submit(&walker->caller) != YB_OK) {
        walker->busy = false;
        assert_int_equal(walker->caller.done, 0);
    }
}

/* The call has ended: compare it with the model, and see that its memory stays quiet. */
static void
walker_check(struct walk *walk, struct walker *walker)
{
    const struct yb_call *call = &walker->caller.call;
    bool ok = call->answered && call->status == YB_OK;

    walker->busy = false;
    walk->ended++;
    walk->ok += ok;
    assert_int_equal(walker->caller.done, 1);
    assert_int_equal(call->state, YB_CALL_IDLE);
    if (call->type == DUO_ADD) {
        uint8_t ran = walk->duo.service.ran[walker->number];

        assert_true(ran <= 1);
        assert_true(!ok || ran == 1);
        assert_true(call->answered || call->sent || ran == 0);
        assert_true(call->answered || !call->sent || call->status == YB_IN_DOUBT);
    } else if (ok && call->type != DUO_HOLD) {
        assert_int_equal(call->reply_body_bytes + call->reply_data_bytes, walker->bytes);
        assert_memory_equal(walker->in, walker->out, walker->bytes);
    }
    assert_int_equal(walker->in[walker->bytes], GUARD_BYTE);
    memset(walker->in, 0xee, walker->bytes);
}

static struct yb_conn *
any_conn(struct walk *walk, enum side side)
{
    struct yb_net *net = walk->duo.nets[side];
    uint32_t skip_count = net->conn_count > 0 ? (uint32_t)dice(walk, net->conn_count) : 0;
    struct yb_conn *conn = net->conns;

    while (conn != NULL && skip_count-- > 0) {
        conn = conn->next;
    }
    return conn;
}

static void
step(struct walk *walk)
{
    struct walker *walker = &walk->walkers[dice(walk, LIVE_MAX)];
    struct yb_conn *conn;

    switch (dice(walk, 40)) {
    case 0:
        conn = any_conn(walk, dice(walk, 2) == 0 ? CLIENT : SERVER);
        if (conn != NULL) {
            yb_conn_close(conn, YB_PEER_LOST, "cut by the test");
        }
        break;
    case 1:
        conn = any_conn(walk, dice(walk, 2) == 0 ? CLIENT : SERVER);
        if (conn != NULL && conn->opened) {
            yb_conn_drain(conn);
        }
        break;
    case 2:
    case 3:
        if (walker->busy && walker->caller.done == 0) {
            caller_cancel(&walker->caller);
        }
        break;
    case 4:
    case 5:
    case 6:
        if (walk->duo.service.held_count > 0) {
            service_reply(&walk->duo.service, YB_OK, NULL, 0);
        }
        break;
    default:
        if (!walker->busy) {
            walker_submit(walk, walker);
        }
        break;
    }
    while (walk->duo.service.held_count > 2 * LIVE_MAX) { /* Retried at each cut. */
        service_reply(&walk->duo.service, YB_OK, NULL, 0);
    }
    duo_kick(&walk->duo);
    /* An event of the simulation is much less than a turn of a loop. */
    for (uint64_t turns = dice(walk, 6) * (walk->duo.sim != NULL ? 50 : 1); turns > 0; turns--) {
        if (walk->duo.sim != NULL) {
            (void)yb_sim_step(walk->duo.sim); /* It may rest: nobody calls, nothing is open. */
        } else {
            yb_loop_turn(walk->duo.loops[CLIENT], 0);
        }
    }
    for (uint32_t i = 0; i < LIVE_MAX; i++) {
        if (walk->walkers[i].busy && walk->walkers[i].caller.done > 0) {
            walker_check(walk, &walk->walkers[i]);
        } else if (!walk->walkers[i].busy && walk->walkers[i].bytes > 0) {
            assert_int_equal(walk->walkers[i].in[walk->walkers[i].bytes / 2], 0xee);
        }
    }
}

static void
walk_run(const char *backend, bool tls, uint64_t seed, uint32_t steps)
{
    struct walk *walk = calloc(1, sizeof(*walk));

    assert_non_null(walk);
    walk->random = seed;
    duo_init(&walk->duo, backend);
    walk->duo.tls = tls;
    walk->duo.random ^= seed;
    walk->duo.link = yb_sim_link_rough();
    walk->duo.selfs[SERVER].credit_requests = 8;
    walk->duo.selfs[SERVER].credit_bytes = 500000;
    duo_start(&walk->duo);
    for (uint32_t i = 0; i < LIVE_MAX; i++) {
        walk->walkers[i].out = malloc(BYTES_MAX + 1);
        walk->walkers[i].in = malloc(BYTES_MAX + 1);
        assert_true(walk->walkers[i].out != NULL && walk->walkers[i].in != NULL);
    }
    /* Where the kernel takes its time, the walk goes on until enough calls have worked. */
    for (uint32_t i = 0; i < steps || (walk->ok <= steps / 40 && i < 20 * steps); i++) {
        step(walk);
    }
    for (uint32_t i = 0; i < LIVE_MAX; i++) {
        while (walk->walkers[i].busy && walk->walkers[i].caller.done == 0) {
            if (walk->duo.service.held_count > 0) {
                service_reply(&walk->duo.service, YB_OK, NULL, 0);
            }
            duo_turn(&walk->duo);
        }
        if (walk->walkers[i].busy) {
            walker_check(walk, &walk->walkers[i]);
        }
        free(walk->walkers[i].out);
        free(walk->walkers[i].in);
    }
    assert_true(walk->ok > steps / 40);                /* It is a walk among working calls ... */
    assert_true(walk->ended > walk->ok + steps / 100); /* ... and others. */
    duo_fini(&walk->duo);
    free(walk);
}

static void
test_conn_walk__calls_end_once_and_truly_over_real_sockets(void **state)
{
    uint64_t seed = unit_seed("walk");

    (void)state;
    walk_run("epoll", false, seed, 6000);
    walk_run("epoll", true, seed + 1, 3000);
    if (duo_possible("io_uring")) {
        walk_run("io_uring", false, seed + 2, 6000);
        walk_run("io_uring", true, seed + 3, 3000);
    }
}

static void
test_conn_walk__calls_end_once_and_truly_over_a_rough_network(void **state)
{
    uint64_t seed = unit_seed("rough walk");
    uint32_t rounds = unit_long() ? 60 : 3;

    (void)state;
    for (uint32_t i = 0; i < rounds; i++) {
        walk_run("sim", i % 4 == 3, seed + i, 1500);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conn_walk__calls_end_once_and_truly_over_real_sockets),
        cmocka_unit_test(test_conn_walk__calls_end_once_and_truly_over_a_rough_network),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
