/* SPDX-License-Identifier: Apache-2.0
 * How batches, peers and engines end: on time, early, twice, in doubt, and while others go on. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transfer_rig.h"

/* ---- ways to learn of the end ------------------------------------------------------------ */

struct told {
    _Atomic(uint32_t) count;
    _Atomic(uint32_t) wrong;
    enum yb_status expected;
    int event_fd;
};

static void
on_done(struct yb_transfer *engine, yb_transfer_batch batch, void *owner)
{
    struct told *told = owner;
    struct yb_transfer_batch_status status;

    if (yb_transfer_poll(engine, batch, &status, NULL, 0) != YB_OK ||
        status.status != told->expected || yb_transfer_wait(engine, batch, 0) != YB_OK ||
        yb_transfer_release(engine, batch) != YB_OK ||
        yb_transfer_release(engine, batch) != YB_CLOSED) {
        atomic_fetch_add(&told->wrong, 1);
    }
    atomic_fetch_add(&told->count, 1);
    if (told->event_fd > 0) {
        (void)!write(told->event_fd, &(uint64_t){1}, 8);
    }
}

static void
test_transfer_life__callback_and_eventfd_tell_each_end_once(void **state)
{
    enum { BATCHES = 200 };
    struct told told = {.expected = YB_OK};
    struct yb_transfer_batch_options options = within_ms(20000);
    struct rig rig;
    struct yb_transfer_item item;
    uint64_t events = 0;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);

    (void)state;
    rig_init(&rig, 1000, false);
    item = rig_item(&rig, YB_TRANSFER_WRITE);
    options.done = on_done;
    options.owner = &told;
    options.event_fd = fd;
    for (uint32_t i = 0; i < BATCHES; i++) {
        (void)duo_submit(&rig.duo, &item, 1, &options);
    }
    for (uint32_t i = 0; i < BATCHES; i++) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        assert_int_equal(poll(&ready, 1, 60000), 1);
        assert_int_equal(read(fd, &events, sizeof(events)), sizeof(events));
    }
    rig_fini(&rig); /* The last callback has run when this returns. */
    assert_int_equal(atomic_load(&told.count), BATCHES);
    assert_int_equal(atomic_load(&told.wrong), 0);
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0);
    close(fd);
}

static void
test_transfer_life__callbacks_may_submit_until_the_engine_is_destroyed(void **state)
{
    struct rig rig;

    (void)state;
    for (uint32_t round = 0; round < 10; round++) {
        static struct rig_chain chains[8];

        rig_init(&rig, 100000, false);
        for (uint32_t i = 0; i < 8; i++) {
            rig_chain(&rig, &chains[i], i % 2);
        }
        while (atomic_load(&chains[0].links) < 50) {
            pause_ms(1);
        }
        if (round % 2 == 0) {
            assert_int_equal(yb_transfer_close(rig.duo.here, rig.duo.peer), YB_OK);
        }
        rig_fini(&rig);
        for (uint32_t i = 0; i < 8; i++) {
            assert_int_equal(chains[i].refused, 1);
        }
    }
}

static void
test_transfer_life__handles_of_the_past_are_refused(void **state)
{
    struct rig rig;
    struct yb_transfer_item item;
    struct yb_transfer_batch_status status;
    struct yb_transfer_probe probe;
    yb_transfer_batch batch, next;
    yb_transfer_peer old;

    (void)state;
    rig_init(&rig, 1000, false);
    item = rig_item(&rig, YB_TRANSFER_WRITE);
    for (uint32_t i = 0; i < 100; i++) {
        batch = duo_submit(&rig.duo, &item, 1, NULL);
        (void)duo_end(rig.duo.here, batch, NULL, 0);
        next = duo_submit(&rig.duo, &item, 1, NULL); /* Takes the same slot. */
        assert_int_equal(yb_transfer_poll(rig.duo.here, batch, &status, NULL, 0), YB_CLOSED);
        assert_int_equal(yb_transfer_wait(rig.duo.here, batch, 0), YB_CLOSED);
        assert_int_equal(yb_transfer_cancel(rig.duo.here, batch), YB_CLOSED);
        assert_int_equal(yb_transfer_release(rig.duo.here, batch), YB_CLOSED);
        assert_int_equal(duo_end(rig.duo.here, next, NULL, 0).status, YB_OK);
    }
    assert_int_equal(yb_transfer_release(rig.duo.here, 0), YB_CLOSED);
    assert_int_equal(yb_transfer_release(rig.duo.here, UINT64_MAX), YB_CLOSED);
    old = rig.duo.peer;
    assert_int_equal(yb_transfer_close(rig.duo.here, old), YB_OK);
    assert_int_equal(yb_transfer_close(rig.duo.here, old), YB_CLOSED);
    rig.duo.peer = duo_open(rig.duo.here, rig.duo.address); /* In the same place. */
    assert_true(rig.duo.peer != old);
    assert_int_equal(yb_transfer_submit(rig.duo.here, old, &item, 1, NULL, &batch), YB_CLOSED);
    assert_int_equal(yb_transfer_ask(rig.duo.here, old, SECOND_NS, &probe), YB_CLOSED);
    assert_int_equal(yb_transfer_drain(rig.duo.here, old, SECOND_NS), YB_CLOSED);
    assert_int_equal(duo_run(&rig.duo, &item, 1, NULL, NULL).status, YB_OK);
    rig_fini(&rig);
}

/* The value of a metric without labels. */
static uint64_t
metric(struct yb_transfer *engine, const char *name)
{
    const char *at;
    uint64_t value;
    char *text;

    assert_int_equal(yb_transfer_stats(engine, &text), YB_OK);
    at = strstr(text, name);
    assert_non_null(at);
    at = strstr(at, "\"value\": ");
    assert_non_null(at);
    value = strtoull(at + strlen("\"value\": "), NULL, 10);
    free(text);
    return value;
}

static void
test_transfer_life__two_handles_of_one_address_do_not_disturb_each_other(void **state)
{
    enum { BATCHES = 50 };
    struct yb_transfer_options options = duo_options();
    struct area local, remote;
    yb_transfer_region region;
    struct duo duo;

    (void)state;
    for (uint32_t workers = 1; workers <= 2; workers++) {
        yb_transfer_batch batches[2][BATCHES];
        yb_transfer_peer peers[2];
        struct yb_transfer_item item;

        options.workers = workers;
        duo_init_with(&duo, &options, &options);
        area_init(&local, 1000000);
        area_init(&remote, 1000000);
        region = duo_register(duo.there, &remote);
        fill(local.bytes, local.length, 3);
        item = duo_item(YB_TRANSFER_WRITE, &local, region);
        peers[0] = duo.peer;
        peers[1] = duo_open(duo.here, duo.address);
        for (uint32_t i = 0; i < 2 * BATCHES; i++) {
            assert_int_equal(
                yb_transfer_submit(duo.here, peers[i % 2], &item, 1, NULL, &batches[i % 2][i / 2]),
                YB_OK);
        }
        for (uint32_t i = 0; i < 2 * BATCHES; i++) {
            assert_int_equal(duo_end(duo.here, batches[i % 2][i / 2], NULL, 0).status, YB_OK);
        }
        expect_pattern(remote.bytes, remote.length, 3);
        assert_int_equal(metric(duo.here, "yuebing_net_retries_total"), 0);
        area_fini(&local);
        duo_fini(&duo);
        area_fini(&remote);
    }
}

/* ---- cancel ------------------------------------------------------------------------------- */

static void
test_transfer_life__a_cancelled_batch_ends_soon_and_can_be_released_at_once(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, 1 << 20, true);
    rig_warm(&rig);
    for (uint32_t round = 0; round < 12; round++) {
        struct yb_transfer_item item = rig_item(&rig, round % 2);
        struct yb_transfer_batch_options options = within_ms(60000);
        struct yb_transfer_batch_status end;
        yb_transfer_batch batch;

        relay_hold(rig.relay, true, true);
        relay_hold_new(rig.relay, true, true);
        batch = duo_submit(&rig.duo, &item, 1, &options);
        pause_ms(round % 3);
        assert_int_equal(yb_transfer_release(rig.duo.here, batch), YB_BUSY);
        for (uint32_t i = 0; i <= round % 4; i++) {
            assert_int_equal(yb_transfer_cancel(rig.duo.here, batch), YB_OK);
        }
        end = duo_end(rig.duo.here, batch, NULL, 0); /* Releases at once. */
        assert_int_equal(end.status, YB_CANCELLED);
        assert_true(end.bytes < item.length);
        memset(rig.local.bytes, 0xab, rig.local.length); /* T2 */
        relay_release(rig.relay);
        assert_int_equal(yb_transfer_drain(rig.duo.here, rig.duo.peer, PATIENCE_NS), YB_OK);
        assert_true(all_are(rig.local.bytes, rig.local.length, 0xab));
        rig_reopen(&rig);
        rig_warm(&rig);
    }
    rig_fini(&rig);
}

static void
test_transfer_life__a_cancel_that_races_with_the_end_does_no_harm(void **state)
{
    struct rig rig;
    struct yb_transfer_item item;

    (void)state;
    rig_init(&rig, 5000, false);
    item = rig_item(&rig, YB_TRANSFER_WRITE);
    for (uint32_t round = 0; round < 3000; round++) {
        yb_transfer_batch batch = duo_submit(&rig.duo, &item, 1, NULL);
        struct yb_transfer_batch_status end;

        for (uint32_t spin = 0; spin < round % 500; spin++) {
            atomic_signal_fence(memory_order_seq_cst);
        }
        assert_int_equal(yb_transfer_cancel(rig.duo.here, batch), YB_OK);
        end = duo_end(rig.duo.here, batch, NULL, 0);
        assert_true(end.status == YB_OK || end.status == YB_CANCELLED);
        assert_true(end.status == YB_OK ? end.bytes == item.length : end.bytes < item.length);
    }
    assert_int_equal(duo_run(&rig.duo, &item, 1, NULL, NULL).status, YB_OK);
    rig_fini(&rig);
}

/* Each end releases its batch and submits another, in the same slot. */
struct wheel {
    struct yb_transfer_item item;
    yb_transfer_peer peer;
    _Atomic(bool) stop;
    _Atomic(uint64_t) current;
    _Atomic(uint32_t) turns;
};

static void
turn(struct yb_transfer *engine, yb_transfer_batch batch, void *owner)
{
    struct wheel *wheel = owner;
    struct yb_transfer_batch_options options = within_ms(20000);
    yb_transfer_batch next = 0;

    options.done = turn;
    options.owner = wheel;
    if ((batch != 0 && yb_transfer_release(engine, batch) != YB_OK) ||
        (!atomic_load(&wheel->stop) &&
         yb_transfer_submit(engine, wheel->peer, &wheel->item, 1, &options, &next) != YB_OK)) {
        abort();
    }
    atomic_store(&wheel->current, next);
    atomic_fetch_add(&wheel->turns, 1);
}

static void
test_transfer_life__a_cancel_under_way_does_not_meet_the_slots_next_batch(void **state)
{
    static struct wheel wheel;
    struct rig rig;

    (void)state;
    rig_init(&rig, 100, false);
    wheel.item = rig_item(&rig, YB_TRANSFER_WRITE);
    wheel.peer = rig.duo.peer;
    turn(rig.duo.here, 0, &wheel);
    while (atomic_load(&wheel.turns) < 1500) {
        enum yb_status status = yb_transfer_cancel(rig.duo.here, atomic_load(&wheel.current));

        assert_true(status == YB_OK || status == YB_CLOSED);
    }
    atomic_store(&wheel.stop, true);
    while (atomic_load(&wheel.current) != 0) {
        pause_ms(1);
    }
    assert_int_equal(duo_run(&rig.duo, &wheel.item, 1, NULL, NULL).status, YB_OK);
    rig_fini(&rig);
}

/* ---- deadlines, doubt, drain --------------------------------------------------------------- */

/* Submit an item to a target that hears nothing, and wait for its deadline. A deadline that was
 * over before anything was sent, on a busy machine, has shown nothing: a longer one follows. */
static yb_transfer_batch
run_out_of_time(struct rig *rig, const struct yb_transfer_item *item,
                struct yb_transfer_batch_options *options)
{
    for (;; options->timeout_ns *= 2) {
        yb_transfer_batch batch = duo_submit(&rig->duo, item, 1, options);
        struct yb_transfer_batch_status status;

        assert_int_equal(yb_transfer_wait(rig->duo.here, batch, PATIENCE_NS), YB_OK);
        assert_int_equal(yb_transfer_poll(rig->duo.here, batch, &status, NULL, 0), YB_OK);
        if (status.in_doubt || options->timeout_ns > PATIENCE_NS / 4) {
            return batch;
        }
        assert_int_equal(yb_transfer_release(rig->duo.here, batch), YB_OK);
    }
}

static void
test_transfer_life__a_silent_target_costs_the_deadline_and_a_drain_ends_the_doubt(void **state)
{
    struct yb_transfer_batch_options options = within_ms(20);
    struct rig rig;

    (void)state;
    duo_relayed();
    rig_init(&rig, 1 << 20, false);
    for (uint32_t round = 0; round < 20; round++) {
        struct yb_transfer_item item = rig_item(&rig, YB_TRANSFER_WRITE);
        struct yb_transfer_batch_status status;
        struct yb_transfer_item_status one;
        yb_transfer_batch batch;

        memset(rig.remote.bytes, 0, rig.remote.length);
        fill(rig.local.bytes, rig.local.length, round);
        rig_warm(&rig);
        memset(rig.remote.bytes, 0, rig.remote.length);
        relay_hold(rig.relay, true, false); /* The target hears nothing, or not all. */
        relay_hold_new(rig.relay, true, false);
        batch = run_out_of_time(&rig, &item, &options);
        assert_int_equal(yb_transfer_poll(rig.duo.here, batch, &status, &one, 1), YB_OK);
        assert_int_equal(status.status, YB_TIMED_OUT);
        assert_true(status.in_doubt && one.in_doubt);
        assert_int_equal(one.status, YB_TIMED_OUT);
        assert_int_equal(yb_transfer_drain(rig.duo.here, rig.duo.peer, 20 * MS_NS), YB_TIMED_OUT);
        assert_int_equal(yb_transfer_poll(rig.duo.here, batch, &status, &one, 1), YB_OK);
        assert_true(status.in_doubt && one.in_doubt);
        relay_release(rig.relay);
        assert_int_equal(yb_transfer_drain(rig.duo.here, rig.duo.peer, PATIENCE_NS), YB_OK);
        assert_int_equal(yb_transfer_poll(rig.duo.here, batch, &status, &one, 1), YB_OK);
        assert_false(status.in_doubt || one.in_doubt);
        memset(rig.remote.bytes, 0xcd, rig.remote.length); /* Nothing lands any more. */
        assert_int_equal(yb_transfer_drain(rig.duo.here, rig.duo.peer, PATIENCE_NS), YB_OK);
        pause_ms(2);
        assert_true(all_are(rig.remote.bytes, rig.remote.length, 0xcd));
        assert_int_equal(yb_transfer_release(rig.duo.here, batch), YB_OK);
    }
    rig_fini(&rig);
}

static void
test_transfer_life__reads_and_what_was_never_sent_are_not_in_doubt(void **state)
{
    struct rig rig;
    struct yb_transfer_item item;
    struct yb_transfer_batch_options options = within_ms(50);
    struct yb_transfer_batch_status end;
    struct yb_transfer *gone;
    struct yb_transfer_options engine_options = duo_options();

    (void)state;
    rig_init(&rig, 1 << 20, false);
    rig_warm(&rig);
    relay_hold(rig.relay, true, true);
    relay_hold_new(rig.relay, true, true);
    item = rig_item(&rig, YB_TRANSFER_READ);
    end = duo_run(&rig.duo, &item, 1, &options, NULL);
    assert_int_equal(end.status, YB_TIMED_OUT);
    assert_false(end.in_doubt);
    relay_release(rig.relay);
    gone = duo_engine(&engine_options); /* A port where nobody is. */
    assert_int_equal(yb_transfer_address(gone, rig.duo.address, sizeof(rig.duo.address)), YB_OK);
    yb_transfer_destroy(&gone);
    assert_int_equal(yb_transfer_close(rig.duo.here, rig.duo.peer), YB_OK);
    rig.duo.peer = duo_open(rig.duo.here, rig.duo.address);
    item = rig_item(&rig, YB_TRANSFER_WRITE);
    end = duo_run(&rig.duo, &item, 1, &options, NULL);
    assert_true(end.status == YB_REFUSED || end.status == YB_TIMED_OUT);
    assert_false(end.in_doubt);
    rig_fini(&rig);
}

static void
test_transfer_life__a_deadline_of_nothing_and_one_of_never_both_hold(void **state)
{
    struct yb_transfer_batch_options options = within_ms(0);
    struct yb_transfer_batch_status end;
    struct rig rig;
    struct yb_transfer_item item;
    yb_transfer_batch batch;

    (void)state;
    rig_init(&rig, 1 << 20, false);
    rig_warm(&rig);
    item = rig_item(&rig, YB_TRANSFER_WRITE);
    options.timeout_ns = 1;
    end = duo_run(&rig.duo, &item, 1, &options, NULL);
    assert_int_equal(end.status, YB_TIMED_OUT);
    options.timeout_ns = UINT64_MAX;
    assert_int_equal(duo_run(&rig.duo, &item, 1, &options, NULL).status, YB_OK);
    relay_hold(rig.relay, true, true);
    relay_hold_new(rig.relay, true, true);
    batch = duo_submit(&rig.duo, &item, 1, &options);
    assert_int_equal(yb_transfer_wait(rig.duo.here, batch, 30 * MS_NS), YB_TIMED_OUT);
    relay_release(rig.relay);
    assert_int_equal(duo_end(rig.duo.here, batch, NULL, 0).status, YB_OK);
    rig_fini(&rig);
}

static void
test_transfer_life__a_mute_peer_does_not_starve_the_others(void **state)
{
    enum { BATCHES = 2500 };
    static yb_transfer_batch batches[BATCHES];
    struct yb_transfer_batch_options options = within_ms(60000);
    struct rig rig;
    struct yb_transfer_item item;
    yb_transfer_peer mute, healthy;

    (void)state;
    rig_init(&rig, 100000, false);
    mute = rig.duo.peer;
    healthy = duo_open(rig.duo.here, rig.duo.address);
    relay_hold_new(rig.relay, true, true);
    item = rig_item(&rig, YB_TRANSFER_WRITE);
    for (uint32_t i = 0; i < BATCHES; i++) {
        batches[i] = duo_submit(&rig.duo, &item, 1, &options);
    }
    rig.duo.peer = healthy;
    fill(rig.local.bytes, rig.local.length, 77);
    for (uint32_t i = 0; i < 20; i++) {
        options.timeout_ns = 10 * SECOND_NS;
        assert_int_equal(duo_run(&rig.duo, &item, 1, &options, NULL).status, YB_OK);
    }
    expect_pattern(rig.remote.bytes, rig.remote.length, 77);
    assert_int_equal(yb_transfer_close(rig.duo.here, mute), YB_OK);
    for (uint32_t i = 0; i < BATCHES; i++) {
        assert_int_equal(duo_end(rig.duo.here, batches[i], NULL, 0).status, YB_CLOSED);
    }
    rig_fini(&rig);
}

/* ---- close, destroy, restart ---------------------------------------------------------------- */

static void
test_transfer_life__closing_a_peer_ends_its_batches_wherever_they_are(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, 3 << 20, false);
    for (uint32_t round = 0; round < 60; round++) {
        yb_transfer_batch batches[6];
        struct yb_transfer_item item;

        rig.duo.peer = duo_open(rig.duo.here, relay_address(rig.relay));
        if (round % 3 == 1) {
            rig_warm(&rig);
            relay_hold(rig.relay, round % 2, true);
        }
        for (uint32_t i = 0; i < 6; i++) {
            item = rig_item(&rig, i % 2);
            batches[i] = duo_submit(&rig.duo, &item, 1, NULL);
        }
        pause_ms(round % 4);
        assert_int_equal(yb_transfer_close(rig.duo.here, rig.duo.peer), YB_OK);
        for (uint32_t i = 0; i < 6; i++) {
            struct yb_transfer_batch_status end = duo_end(rig.duo.here, batches[i], NULL, 0);

            assert_true(end.status == YB_OK || end.status == YB_CLOSED);
        }
        relay_release(rig.relay);
    }
    rig_fini(&rig);
}

static void
test_transfer_life__an_engine_may_be_destroyed_in_the_middle(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        struct told told = {.expected = YB_CLOSED};
        struct yb_transfer_batch_options options = within_ms(20000);
        struct rig rig;

        rig_init(&rig, 4 << 20, round % 3 == 2);
        rig_warm(&rig);
        if (round % 3 == 1) {
            relay_hold(rig.relay, true, true);
        }
        options.done = on_done;
        options.owner = &told;
        for (uint32_t i = 0; i < 5; i++) {
            struct yb_transfer_item item = rig_item(&rig, i % 2);

            (void)duo_submit(&rig.duo, &item, 1, &options);
        }
        pause_ms(round % 3);
        if (round % 2 == 0) {
            yb_transfer_destroy(&rig.duo.there); /* The target first: its memory is quiet. */
            memset(rig.remote.bytes, 0x5a, rig.remote.length);
        }
        yb_transfer_destroy(&rig.duo.here);
        assert_int_equal(atomic_load(&told.count), 5);
        memset(rig.local.bytes, 0x5b, rig.local.length);
        if (rig.duo.there != NULL) {
            yb_transfer_destroy(&rig.duo.there);
        } else {
            assert_true(all_are(rig.remote.bytes, rig.remote.length, 0x5a));
        }
        assert_true(all_are(rig.local.bytes, rig.local.length, 0x5b));
        relay_destroy(&rig.relay);
        area_fini(&rig.local);
        area_fini(&rig.remote);
    }
}

static void
test_transfer_life__a_peer_that_restarts_is_reached_again_without_help(void **state)
{
    struct yb_transfer_options options = duo_options();
    struct rig rig;
    struct yb_transfer_item item;
    struct yb_transfer_batch_status end;

    (void)state;
    rig_init(&rig, 300000, false);
    assert_int_equal(yb_transfer_close(rig.duo.here, rig.duo.peer), YB_OK);
    rig.duo.peer = duo_open(rig.duo.here, rig.duo.address);
    options.listen = rig.duo.address;
    for (uint32_t round = 0; round < 8; round++) {
        yb_transfer_batch batch;

        fill(rig.local.bytes, rig.local.length, round);
        item = rig_item(&rig, YB_TRANSFER_WRITE);
        assert_int_equal(duo_run(&rig.duo, &item, 1, NULL, NULL).status, YB_OK);
        expect_pattern(rig.remote.bytes, rig.remote.length, round);
        yb_transfer_destroy(&rig.duo.there);
        batch = 0;
        if (round % 2 == 0) { /* While nobody is there. */
            batch = duo_submit(&rig.duo, &item, 1, NULL);
            pause_ms(5);
        }
        rig.duo.there = duo_engine(&options);
        memset(rig.remote.bytes, 0, rig.remote.length);
        if (batch == 0) {
            batch = duo_submit(&rig.duo, &item, 1, NULL);
        }
        end = duo_end(rig.duo.here, batch, NULL, 0); /* The old life's region is nobody's. */
        assert_true(end.status == YB_STALE || end.status == YB_NOT_FOUND);
        assert_false(end.in_doubt);
        assert_true(all_are(rig.remote.bytes, rig.remote.length, 0));
        rig.region = duo_register(rig.duo.there, &rig.remote);
    }
    rig_fini(&rig);
}

static void
test_transfer_life__cut_connections_cost_no_batch(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, 4 << 20, false);
    for (uint32_t round = 0; round < 40; round++) {
        struct yb_transfer_item item = rig_item(&rig, round % 2);
        struct yb_transfer_batch_options options = within_ms(20000);
        yb_transfer_batch batch;

        rig_reopen(&rig);
        rig_warm(&rig);
        fill(round % 2 == YB_TRANSFER_READ ? rig.remote.bytes : rig.local.bytes, rig.local.length,
             round);
        batch = duo_submit(&rig.duo, &item, 1, &options);
        pause_ms(round % 5);
        relay_cut(rig.relay);
        assert_int_equal(duo_end(rig.duo.here, batch, NULL, 0).status, YB_OK);
        expect_pattern(rig.local.bytes, rig.local.length, round);
        expect_pattern(rig.remote.bytes, rig.remote.length, round);
    }
    rig_fini(&rig);
}

/* ---- notifications --------------------------------------------------------------------------- */

static void
test_transfer_life__a_notification_comes_once_and_after_the_data(void **state)
{
    static struct yb_transfer_notification found;
    static const uint32_t lengths[] = {0, 1, 100, 4096};
    uint8_t payload[4096];
    struct rig rig;

    (void)state;
    rig_init(&rig, 700000, false);
    assert_int_equal(yb_transfer_next_notification(rig.duo.there, &found), YB_AGAIN);
    for (uint32_t round = 0; round < 100; round++) {
        struct yb_transfer_item item = rig_item(&rig, YB_TRANSFER_WRITE);
        struct yb_transfer_batch_options options = within_ms(20000);
        yb_transfer_batch batch;
        enum yb_status status;

        fill(rig.local.bytes, rig.local.length, round);
        fill(payload, sizeof(payload), round);
        options.notify = payload;
        options.notify_bytes = lengths[round % 4];
        batch = duo_submit(&rig.duo, &item, 1, &options);
        memset(payload, 0, sizeof(payload)); /* It was copied. */
        if (round % 5 == 0) {
            relay_cut(rig.relay);
        }
        do {
            status = yb_transfer_next_notification(rig.duo.there, &found);
        } while (status == YB_AGAIN);
        expect_pattern(rig.remote.bytes, rig.remote.length, round);
        assert_int_equal(status, YB_OK);
        assert_int_equal(found.bytes, lengths[round % 4]);
        expect_pattern(found.payload, found.bytes, round);
        assert_int_equal(duo_end(rig.duo.here, batch, NULL, 0).status, YB_OK);
        assert_int_equal(yb_transfer_next_notification(rig.duo.there, &found), YB_AGAIN);
        rig_reopen(&rig);
    }
    rig_fini(&rig);
}

static void
test_transfer_life__no_notification_comes_for_a_batch_that_failed(void **state)
{
    static struct yb_transfer_notification found;
    struct yb_transfer_batch_options options = within_ms(20000);
    struct yb_transfer_item items[2];
    struct rig rig;

    (void)state;
    rig_init(&rig, 1000, false);
    options.notify = "no";
    options.notify_bytes = 2;
    items[0] = rig_item(&rig, YB_TRANSFER_WRITE);
    items[1] = items[0];
    items[1].remote = 12345;
    assert_true(duo_run(&rig.duo, items, 2, &options, NULL).status != YB_OK);
    assert_int_equal(duo_run(&rig.duo, items, 1, NULL, NULL).status, YB_OK);
    assert_int_equal(yb_transfer_next_notification(rig.duo.there, &found), YB_AGAIN);
    rig_fini(&rig);
}

static void
test_transfer_life__a_full_queue_of_notifications_refuses_one_more(void **state)
{
    static struct yb_transfer_notification found;
    struct yb_transfer_batch_options options = within_ms(20000);
    struct yb_transfer_item item = {.op = YB_TRANSFER_WRITE};
    struct yb_transfer_batch_status end;
    struct rig rig;
    uint32_t number;

    (void)state;
    rig_init(&rig, 1000, false);
    options.notify = &number;
    options.notify_bytes = sizeof(number);
    for (number = 0; number < 1024; number++) {
        assert_int_equal(duo_run(&rig.duo, &item, 1, &options, NULL).status, YB_OK);
    }
    end = duo_run(&rig.duo, &item, 1, &options, NULL);
    assert_int_equal(end.status, YB_AGAIN);
    assert_false(end.in_doubt);
    for (uint32_t i = 0; i < 1024; i++) {
        assert_int_equal(yb_transfer_next_notification(rig.duo.there, &found), YB_OK);
        assert_int_equal(found.bytes, sizeof(i));
        assert_memory_equal(found.payload, &i, sizeof(i));
    }
    assert_int_equal(yb_transfer_next_notification(rig.duo.there, &found), YB_AGAIN);
    assert_int_equal(duo_run(&rig.duo, &item, 1, &options, NULL).status, YB_OK);
    rig_fini(&rig);
}

static void
test_transfer_life__a_notification_without_an_answer_is_in_doubt_or_never_sent(void **state)
{
    static struct yb_transfer_notification found;
    struct yb_transfer_batch_options options = within_ms(PATIENCE_NS / MS_NS);
    struct yb_transfer_item item = {.op = YB_TRANSFER_WRITE};
    struct yb_transfer_batch_status end;
    enum yb_status status;
    struct rig rig;

    (void)state;
    rig_init(&rig, 1000, false);
    options.notify = "x";
    options.notify_bytes = 1;
    assert_int_equal(duo_run(&rig.duo, &item, 1, &options, NULL).status, YB_OK);
    assert_int_equal(yb_transfer_next_notification(rig.duo.there, &found), YB_OK);
    relay_hold(rig.relay, false, true); /* The answer is lost. */
    options.timeout_ns = 50 * MS_NS;
    end = duo_end(rig.duo.here, run_out_of_time(&rig, &item, &options), NULL, 0);
    assert_int_equal(end.status, YB_IN_DOUBT);
    assert_true(end.in_doubt);
    assert_int_equal(end.failed, 0);
    relay_release(rig.relay);
    do { /* It is on its way. */
        status = yb_transfer_next_notification(rig.duo.there, &found);
    } while (status == YB_AGAIN);
    assert_int_equal(status, YB_OK);
    assert_int_equal(yb_transfer_next_notification(rig.duo.there, &found), YB_AGAIN);
    rig_fini(&rig);
}

/* ---- unregister while in use ----------------------------------------------------------------- */

#define LEFT_BYTES 1024u /* More than a handshake or a reply without data has. */

static void *
unregister_later(void *arg)
{
    struct rig *rig = arg;

    return (void *)(uintptr_t)(uint32_t)yb_transfer_unregister(rig->duo.there, rig->remote.bytes,
                                                               PATIENCE_NS);
}

static void
test_transfer_life__unregister_waits_for_what_uses_the_range_or_says_busy(void **state)
{
    struct rig rig;
    struct yb_transfer_item item;
    struct yb_transfer_batch_options options = within_ms(60000);
    struct yb_transfer_batch_status end;
    yb_transfer_batch batch;
    pthread_t thread;
    void *status;

    (void)state;
    duo_relayed();
    rig_init(&rig, 8 << 20, true);
    for (uint32_t round = 0; round < 3; round++) {
        rig_reopen(&rig);
        rig_warm(&rig);
        relay_hold(rig.relay, false, true); /* Replies are stuck, in small buffers. */
        item = rig_item(&rig, YB_TRANSFER_READ);
        batch = duo_submit(&rig.duo, &item, 1, &options);
        while (relay_left(rig.relay) < LEFT_BYTES) {
            pause_ms(1);
        }
        assert_int_equal(yb_transfer_unregister(rig.duo.there, rig.remote.bytes, 0), YB_BUSY);
        assert_int_equal(yb_transfer_unregister(rig.duo.there, rig.remote.bytes, 10 * MS_NS),
                         YB_BUSY);
        assert_int_equal(pthread_create(&thread, NULL, unregister_later, &rig), 0);
        pause_ms(5);
        if (round % 2 == 0) {
            assert_int_equal(yb_transfer_cancel(rig.duo.here, batch), YB_OK);
        }
        relay_release(rig.relay);
        end = duo_end(rig.duo.here, batch, NULL, 0);
        assert_true(end.status == YB_CANCELLED || end.status == YB_BUSY || end.status == YB_STALE ||
                    end.status == YB_NOT_FOUND);
        assert_int_equal(pthread_join(thread, &status), 0);
        assert_int_equal((uintptr_t)status, YB_OK);
        rig.region = duo_register(rig.duo.there, &rig.remote);
    }
    rig_fini(&rig);
}

static void
test_transfer_life__local_memory_stays_registered_while_a_batch_uses_it(void **state)
{
    struct yb_transfer_batch_options options = within_ms(60000);
    struct yb_transfer_item items[3];
    struct rig rig;
    struct area plain;
    void *shared = NULL;

    (void)state;
    duo_relayed();
    rig_init(&rig, 300000, false);
    rig_warm(&rig);
    area_init(&plain, 100000);
    assert_int_equal(yb_transfer_alloc(rig.duo.here, 100000, NULL, &shared), YB_OK);
    (void)duo_register(rig.duo.here, &rig.local);
    for (uint32_t round = 0; round < 20; round++) {
        yb_transfer_batch batch;
        void *base = shared;

        relay_hold(rig.relay, true, true);
        relay_hold_new(rig.relay, true, true);
        items[0] = rig_item(&rig, round % 2);
        items[1] = items[2] = items[0];
        items[1].local = shared;
        items[2].local = plain.bytes;
        items[1].length = items[2].length = 100000;
        batch = duo_submit(&rig.duo, items, 3, &options);
        assert_int_equal(yb_transfer_unregister(rig.duo.here, rig.local.bytes, 0), YB_BUSY);
        assert_int_equal(yb_transfer_free(rig.duo.here, &base, MS_NS), YB_BUSY);
        assert_ptr_equal(base, shared);
        if (round % 3 == 0) {
            assert_int_equal(yb_transfer_cancel(rig.duo.here, batch), YB_OK);
        } else {
            relay_release(rig.relay);
        }
        (void)duo_end(rig.duo.here, batch, NULL, 0);
        assert_int_equal(yb_transfer_unregister(rig.duo.here, rig.local.bytes, 0), YB_OK);
        (void)duo_register(rig.duo.here, &rig.local);
        relay_release(rig.relay);
        rig_reopen(&rig);
        rig_warm(&rig);
    }
    assert_int_equal(yb_transfer_free(rig.duo.here, &shared, 0), YB_OK);
    rig_fini(&rig);
    area_fini(&plain);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_life__callback_and_eventfd_tell_each_end_once),
        cmocka_unit_test(test_transfer_life__callbacks_may_submit_until_the_engine_is_destroyed),
        cmocka_unit_test(test_transfer_life__handles_of_the_past_are_refused),
        cmocka_unit_test(test_transfer_life__two_handles_of_one_address_do_not_disturb_each_other),
        cmocka_unit_test(
            test_transfer_life__a_cancelled_batch_ends_soon_and_can_be_released_at_once),
        cmocka_unit_test(test_transfer_life__a_cancel_that_races_with_the_end_does_no_harm),
        cmocka_unit_test(test_transfer_life__a_cancel_under_way_does_not_meet_the_slots_next_batch),
        cmocka_unit_test(
            test_transfer_life__a_silent_target_costs_the_deadline_and_a_drain_ends_the_doubt),
        cmocka_unit_test(test_transfer_life__reads_and_what_was_never_sent_are_not_in_doubt),
        cmocka_unit_test(test_transfer_life__a_deadline_of_nothing_and_one_of_never_both_hold),
        cmocka_unit_test(test_transfer_life__a_mute_peer_does_not_starve_the_others),
        cmocka_unit_test(test_transfer_life__closing_a_peer_ends_its_batches_wherever_they_are),
        cmocka_unit_test(test_transfer_life__an_engine_may_be_destroyed_in_the_middle),
        cmocka_unit_test(test_transfer_life__a_peer_that_restarts_is_reached_again_without_help),
        cmocka_unit_test(test_transfer_life__cut_connections_cost_no_batch),
        cmocka_unit_test(test_transfer_life__a_notification_comes_once_and_after_the_data),
        cmocka_unit_test(test_transfer_life__no_notification_comes_for_a_batch_that_failed),
        cmocka_unit_test(test_transfer_life__a_full_queue_of_notifications_refuses_one_more),
        cmocka_unit_test(
            test_transfer_life__a_notification_without_an_answer_is_in_doubt_or_never_sent),
        cmocka_unit_test(test_transfer_life__local_memory_stays_registered_while_a_batch_uses_it),
        cmocka_unit_test(test_transfer_life__unregister_waits_for_what_uses_the_range_or_says_busy),
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
