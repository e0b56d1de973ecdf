/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: net/worker.h: a loop that is lent has one owner at a time, and goes back to its worker as
 * soon as there is something to do that nobody else does.
 * Method: orders and mail that note on which thread they run; a counter that is not atomic, which
 * only the owner of the loop touches.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "net/worker.h"

#define THREADS 4u
#define ROUNDS  2000u

struct room {
    struct yb_worker *worker;
    struct yb_hello_self self;
    pthread_t own; /* The worker's thread. */
    _Atomic(bool) calm;
    uint64_t count; /* Whoever has the loop. */
};

static bool
is_calm(void *owner)
{
    return atomic_load(&((struct room *)owner)->calm);
}

static void
order_own(void *context)
{
    ((struct room *)context)->own = pthread_self();
}

static void
room_open(struct room *room, const char *backend)
{
    struct yb_worker_options options = {
        .loop = {.backend = backend, .clock = yb_clock_system(), .spin_us = 20},
        .net = {.self = &room->self, .random = yb_net_random_system},
        .calm = is_calm,
        .calm_owner = room,
    };

    *room = (struct room){.calm = true};
    yb_net_limits_default(&options.net.limits);
    assert_int_equal(yb_worker_create(&options, &room->worker), YB_OK);
    yb_worker_run(room->worker, order_own, room);
}

static void
order_calmed(void *context)
{
    yb_worker_calmed(((struct room *)context)->worker);
}

/* Take the loop: it is free soon after it was wanted. */
static void
take(struct room *room)
{
    while (!yb_worker_take(room->worker)) {
        yb_worker_run(room->worker, order_calmed, room);
    }
}

/* Mail that notes who runs it. */
struct note {
    struct yb_mail mail;
    struct room *room;
    pthread_t by;
    _Atomic(bool) ran;
};

static void
run_note(struct yb_mail *mail)
{
    struct note *note = (struct note *)((uint8_t *)mail - offsetof(struct note, mail));

    note->by = pthread_self();
    note->room->count++;
    atomic_store(&note->ran, true);
}

static void
post(struct room *room, struct note *note)
{
    *note = (struct note){.room = room};
    yb_mail_init(&note->mail, run_note);
    yb_mailbox_post_reply(yb_loop_mailbox(yb_worker_loop(room->worker)), &note->mail);
}

static void
await(const struct note *note)
{
    while (!atomic_load(&note->ran)) {
        (void)sched_yield();
    }
}

static void
test_worker__whoever_has_taken_the_loop_runs_what_is_on_it(void **state)
{
    struct room room;
    struct note note;

    (void)state;
    room_open(&room, "epoll");
    for (uint32_t i = 0; i < 20; i++) {
        take(&room);
        post(&room, &note);
        while (!atomic_load(&note.ran)) {
            yb_loop_turn(yb_worker_loop(room.worker), YB_NEVER);
        }
        assert_true(pthread_equal(note.by, pthread_self()));
        yb_worker_give(room.worker, false);
    }
    yb_worker_destroy(&room.worker);
}

static void
test_worker__mail_to_a_loop_that_nobody_has_is_run_by_the_worker(void **state)
{
    struct room room;
    struct note note;

    (void)state;
    room_open(&room, "epoll");
    for (uint32_t i = 0; i < 20; i++) {
        take(&room);
        yb_worker_give(room.worker, false);
        post(&room, &note);
        await(&note);
        assert_true(pthread_equal(note.by, room.own));
    }
    yb_worker_destroy(&room.worker);
}

static void
test_worker__what_is_left_undone_goes_back_with_the_loop(void **state)
{
    struct room room;
    struct note note;

    (void)state;
    room_open(&room, "epoll");
    for (uint32_t i = 0; i < 20; i++) {
        take(&room);
        post(&room, &note);
        yb_worker_give(room.worker, i % 2 == 0); /* It is found either way. */
        await(&note);
        assert_true(pthread_equal(note.by, room.own));
    }
    yb_worker_destroy(&room.worker);
}

static void
test_worker__a_loop_is_not_lent_while_something_is_under_way(void **state)
{
    struct room room;

    (void)state;
    room_open(&room, "epoll");
    atomic_store(&room.calm, false);
    for (uint32_t i = 0; i < 100; i++) {
        assert_false(yb_worker_take(room.worker));
        yb_worker_run(room.worker, order_calmed, &room);
    }
    atomic_store(&room.calm, true);
    take(&room);
    yb_worker_give(room.worker, false);
    yb_worker_destroy(&room.worker);
}

static void
test_worker__a_ring_stays_with_the_thread_that_made_it(void **state)
{
    struct room room;

    (void)state;
    room_open(&room, "io_uring");
    for (uint32_t i = 0; i < 100; i++) {
        assert_false(yb_worker_take(room.worker));
        yb_worker_run(room.worker, order_calmed, &room);
    }
    yb_worker_destroy(&room.worker);
}

/* ---- many at once ---------------------------------------------------------------------------- */

struct rival {
    pthread_t thread;
    struct room *room;
    uint64_t state;
    uint64_t added;
};

static void *
rival_main(void *context)
{
    struct rival *rival = context;
    struct room *room = rival->room;
    struct note note;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t dice = unit_random(&rival->state);
        bool taken = dice % 4 != 0 && yb_worker_take(room->worker);

        rival->added++;
        post(room, &note);
        if (taken) {
            uint64_t seen = room->count;

            for (uint32_t k = 0; k < dice % 32; k++) {
                (void)sched_yield(); /* Nobody else counts meanwhile. */
            }
            room->count = seen + 1;
            rival->added++;
            while (dice % 5 != 0 && !atomic_load(&note.ran)) {
                yb_loop_turn(yb_worker_loop(room->worker), YB_NEVER);
            }
            yb_worker_give(room->worker, dice % 7 == 0);
        }
        await(&note);
    }
    return NULL;
}

static void
test_worker__a_loop_has_one_owner_at_a_time(void **state)
{
    uint64_t seed = unit_seed("worker");
    struct rival rivals[THREADS] = {{.added = 0}};
    struct room room;
    uint64_t added = 0;

    (void)state;
    room_open(&room, "epoll");
    for (uint32_t i = 0; i < THREADS; i++) {
        rivals[i].room = &room;
        rivals[i].state = seed + i;
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(rivals[i].thread, NULL), 0);
        added += rivals[i].added;
    }
    take(&room);
    assert_int_equal(room.count, added);
    yb_worker_give(room.worker, false);
    yb_worker_destroy(&room.worker);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker__whoever_has_taken_the_loop_runs_what_is_on_it),
        cmocka_unit_test(test_worker__mail_to_a_loop_that_nobody_has_is_run_by_the_worker),
        cmocka_unit_test(test_worker__what_is_left_undone_goes_back_with_the_loop),
        cmocka_unit_test(test_worker__a_loop_is_not_lent_while_something_is_under_way),
        cmocka_unit_test(test_worker__a_ring_stays_with_the_thread_that_made_it),
        cmocka_unit_test(test_worker__a_loop_has_one_owner_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
