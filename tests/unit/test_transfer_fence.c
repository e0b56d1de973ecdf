/* SPDX-License-Identifier: Apache-2.0
 * What a fence and a drain wait for at the target, and what they do not. */
#include <pthread.h>
#include <sched.h>

#include "transfer_rig.h"

/* Bytes of a write that reach the target before the relay stops: its head, and some of its data. */
#define PART_BYTES (64u * 1024u)
#define DATA_BYTES (200u * 1024u) /* One request. */

static void
test_transfer_fence__what_was_sent_before_it_is_over(void **state)
{
    struct rig rig;
    struct yb_id identity;

    (void)state;
    rig_init(&rig, 2 << 20, false);
    identity = rig_identity(&rig);
    for (uint32_t round = 0; round < 20; round++) {
        struct yb_transfer_item item = rig_item(&rig, YB_TRANSFER_WRITE);
        struct yb_transfer_batch_options options = within_ms(30);
        yb_transfer_batch batch;

        rig_warm(&rig);
        relay_hold(rig.relay, true, true); /* The relay has the bytes; the target not yet. */
        relay_hold_new(rig.relay, true, true);
        batch = duo_submit(&rig.duo, &item, 1, &options);
        (void)duo_end(rig.duo.here, batch, NULL, 0);
        assert_int_equal(yb_transfer_fence(rig.duo.there, identity, PATIENCE_NS), YB_OK);
        memset(rig.remote.bytes, 0xef, rig.remote.length);
        relay_release(rig.relay);
        pause_ms(5);
        assert_true(all_are(rig.remote.bytes, rig.remote.length, 0xef));
    }
    rig_fini(&rig);
}

static void
test_transfer_fence__it_ends_while_its_peer_writes_on(void **state)
{
    static struct rig_chain chains[16];
    struct rig rig;
    struct yb_id identity;

    (void)state;
    rig_init(&rig, 1 << 20, false);
    identity = rig_identity(&rig);
    for (uint32_t i = 0; i < 16; i++) {
        rig_chain(&rig, &chains[i], YB_TRANSFER_WRITE);
    }
    for (uint32_t round = 0; round < 50; round++) {
        assert_int_equal(yb_transfer_fence(rig.duo.there, identity, PATIENCE_NS), YB_OK);
        pause_ms(round % 8);
    }
    rig_fini(&rig);
}

/* ---- writes that have come in part --------------------------------------------------------- */

/* A handle to `there` with a relay of its own, and the memory that is written through it. */
struct lane {
    struct relay *relay;
    struct duo duo; /* Its engines are the rig's. */
    struct yb_transfer_item item;
    const uint8_t *lands; /* Where its first byte comes. */
};

static void
lane_init(struct lane *lane, struct rig *rig, uint32_t number)
{
    lane->relay = relay_create(rig->duo.address, false);
    lane->duo = rig->duo;
    lane->duo.peer = duo_open(rig->duo.here, relay_address(lane->relay));
    lane->item = rig_item(rig, YB_TRANSFER_WRITE);
    lane->item.local = rig->local.bytes + number * DATA_BYTES;
    lane->item.length = DATA_BYTES;
    lane->item.remote_offset = number * DATA_BYTES;
    lane->lands = rig->remote.bytes + number * DATA_BYTES;
    memset(lane->item.local, 0, DATA_BYTES);
    assert_int_equal(duo_run(&lane->duo, &lane->item, 1, NULL, NULL).status, YB_OK);
    fill(lane->item.local, DATA_BYTES, number);
}

/* Submit the lane's write, and return when a part of it has landed and the rest is held. */
static yb_transfer_batch
write_part(struct lane *lane)
{
    const uint8_t first = *(const uint8_t *)lane->item.local;
    struct yb_transfer_batch_options options = within_ms(PATIENCE_NS / MS_NS);
    yb_transfer_batch batch;

    assert_true(first != 0);
    relay_hold(lane->relay, true, false);
    batch = duo_submit(&lane->duo, &lane->item, 1, &options);
    while (relay_kept(lane->relay) < DATA_BYTES) {
        (void)sched_yield();
    }
    relay_pass(lane->relay, PART_BYTES);
    while (__atomic_load_n(lane->lands, __ATOMIC_RELAXED) != first) {
        (void)sched_yield();
    }
    return batch;
}

static void
finish_write(struct lane *lane, yb_transfer_batch batch, uint64_t seed)
{
    relay_release(lane->relay);
    assert_int_equal(duo_end(lane->duo.here, batch, NULL, 0).status, YB_OK);
    expect_pattern(lane->lands, DATA_BYTES, seed);
}

static void
test_transfer_fence__one_for_nobody_waits_for_nobody(void **state)
{
    struct yb_id nobody = {{0}};
    struct yb_id stranger = {{1, 2, 3}};
    struct lane lane;
    struct rig rig;
    yb_transfer_batch batch;

    duo_relayed();
    (void)state;
    rig_init(&rig, DATA_BYTES, false);
    lane_init(&lane, &rig, 0);
    batch = write_part(&lane);
    assert_int_equal(yb_transfer_fence(rig.duo.there, nobody, 0), YB_OK);
    assert_int_equal(yb_transfer_fence(rig.duo.there, stranger, 0), YB_OK);
    finish_write(&lane, batch, 0); /* Over the connection that it had. */
    rig_fini(&rig);
    relay_destroy(&lane.relay);
}

struct drain {
    struct lane *lane;
    enum yb_status status;
};

static void *
drain_main(void *arg)
{
    struct drain *drain = arg;

    drain->status = yb_transfer_drain(drain->lane->duo.here, drain->lane->duo.peer, PATIENCE_NS);
    return NULL;
}

/* Two writes of one process stand half-way at the target, and between them a drain of the same
 * process has come. Returns whether the drain was over with the first of them: otherwise it was
 * when the target gave up waiting for the rest of the second, which does not stand there then. */
static bool
drain_between(struct rig *rig)
{
    enum { BEFORE, ASKS, AFTER, LANES };
    struct lane lanes[LANES];
    struct drain drain = {.lane = &lanes[ASKS]};
    yb_transfer_batch before, after;
    pthread_t thread;
    bool stands;

    for (uint32_t i = 0; i < LANES; i++) {
        lane_init(&lanes[i], rig, i);
    }
    before = write_part(&lanes[BEFORE]);
    relay_hold(lanes[ASKS].relay, true, false);
    assert_int_equal(pthread_create(&thread, NULL, drain_main, &drain), 0);
    while (relay_kept(lanes[ASKS].relay) == 0) {
        (void)sched_yield();
    }
    relay_release(lanes[ASKS].relay);
    /* Frames of a connection are taken in order: when this is answered, the drain has come. */
    assert_int_equal(duo_run(&lanes[ASKS].duo, &lanes[ASKS].item, 1, NULL, NULL).status, YB_OK);
    after = write_part(&lanes[AFTER]);
    finish_write(&lanes[BEFORE], before, BEFORE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(drain.status, YB_OK);
    stands = relay_kept(lanes[AFTER].relay) > 0;
    finish_write(&lanes[AFTER], after, AFTER);
    for (uint32_t i = 0; i < LANES; i++) {
        assert_int_equal(yb_transfer_close(rig->duo.here, lanes[i].duo.peer), YB_OK);
        relay_destroy(&lanes[i].relay);
    }
    return stands;
}

static void
test_transfer_fence__a_drain_waits_for_what_came_before_it_alone(void **state)
{
    struct rig rig;
    uint32_t rounds = 0;

    duo_relayed();
    (void)state;
    rig_init(&rig, 3 * DATA_BYTES, false);
    while (!drain_between(&rig)) { /* A machine may be too busy for it once. */
        assert_true(++rounds < 3);
    }
    rig_fini(&rig);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_fence__what_was_sent_before_it_is_over),
        cmocka_unit_test(test_transfer_fence__it_ends_while_its_peer_writes_on),
        cmocka_unit_test(test_transfer_fence__one_for_nobody_waits_for_nobody),
        cmocka_unit_test(test_transfer_fence__a_drain_waits_for_what_came_before_it_alone),
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
