/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: net/loop.h: the order of a turn, deferred work, stopping, spinning and sleeping.
 * Method: events append letters to a text that is compared; a clock that the test moves; counters
 * instead of times.
 */
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "net/loop.h"

/* A clock that stands until the test moves it. */
struct test_clock {
    struct yb_clock base;
    uint64_t now_ns;
};

static uint64_t
clock_now(const struct yb_clock *clock)
{
    return ((const struct test_clock *)clock)->now_ns;
}

static struct test_clock
clock_at(uint64_t now_ns)
{
    return (struct test_clock){.base = {clock_now, clock_now}, .now_ns = now_ns};
}

static struct yb_loop *
loop_with(const struct yb_clock *clock, uint32_t spin_us)
{
    const struct yb_loop_options options = {
        .backend = "epoll", .clock = clock, .spin_us = spin_us, .mailbox_capacity = 4};
    struct yb_loop *loop = NULL;

    assert_int_equal(yb_loop_create(&options, &loop), YB_OK);
    return loop;
}

/* What happened, as letters. */
struct tape {
    struct yb_loop *loop;
    char text[64];
    size_t length;
};

static void
say(struct tape *tape, char letter)
{
    assert_true(tape->length + 1 < sizeof(tape->text));
    tape->text[tape->length++] = letter;
}

static void
expect(struct tape *tape, const char *text)
{
    tape->text[tape->length] = '\0';
    assert_string_equal(tape->text, text);
    tape->length = 0;
}

struct teller {
    struct yb_task task;
    struct yb_timer timer;
    struct yb_mail mail;
    struct tape *tape;
    struct teller *victim; /* Undeferred when the task runs. */
    bool again;            /* Defer itself when the task runs. */
    bool stops;            /* Stop the loop when the task runs. */
    char letter;
};

static void
task_tells(struct yb_task *task)
{
    struct teller *teller = (struct teller *)((uint8_t *)task - offsetof(struct teller, task));

    say(teller->tape, teller->letter);
    if (teller->victim != NULL) {
        yb_loop_undefer(teller->tape->loop, &teller->victim->task);
    }
    if (teller->again) {
        yb_loop_defer(teller->tape->loop, task);
    }
    if (teller->stops) {
        yb_loop_stop(teller->tape->loop);
    }
}

static void
timer_tells(struct yb_timer *timer)
{
    struct teller *teller = (struct teller *)((uint8_t *)timer - offsetof(struct teller, timer));

    say(teller->tape, 'T');
    yb_loop_defer(teller->tape->loop, &teller->task);
}

static void
mail_tells(struct yb_mail *mail)
{
    struct teller *teller = (struct teller *)((uint8_t *)mail - offsetof(struct teller, mail));

    say(teller->tape, 'M');
    yb_loop_defer(teller->tape->loop, &teller->task);
}

static void
teller_init(struct teller *teller, struct tape *tape, char letter)
{
    *teller = (struct teller){.task = {.run = task_tells}, .tape = tape, .letter = letter};
    yb_timer_init(&teller->timer, timer_tells);
    yb_mail_init(&teller->mail, mail_tells);
}

static void
test_loop__a_turn_runs_timers_then_mail_then_deferred_tasks(void **state)
{
    struct test_clock clock = clock_at(50 * YB_NS_PER_MS);
    struct tape tape = {.loop = loop_with(&clock.base, 0)};
    struct teller a;
    struct teller b;
    struct teller c;

    (void)state;
    teller_init(&a, &tape, 'a');
    teller_init(&b, &tape, 'b');
    teller_init(&c, &tape, 'c');
    yb_loop_defer(tape.loop, &c.task);
    assert_int_equal(yb_mailbox_try_post(yb_loop_mailbox(tape.loop), &b.mail), YB_OK);
    yb_loop_arm(tape.loop, &a.timer, 60 * YB_NS_PER_MS);
    clock.now_ns = 70 * YB_NS_PER_MS;
    yb_loop_turn(tape.loop, 0);
    expect(&tape, "TMcab");
    yb_loop_turn(tape.loop, 0);
    expect(&tape, "");
    assert_int_equal(yb_loop_counters(tape.loop).turns, 2);
    assert_int_equal(yb_loop_counters(tape.loop).sleeps, 0);
    yb_loop_destroy(&tape.loop);
}

static void
test_loop__a_turn_in_which_a_timer_or_a_mail_ran_does_not_wait(void **state)
{
    struct test_clock clock = clock_at(50 * YB_NS_PER_MS);
    struct tape tape = {.loop = loop_with(&clock.base, 0)};
    struct teller a;

    (void)state;
    teller_init(&a, &tape, 'a');
    yb_loop_arm(tape.loop, &a.timer, 60 * YB_NS_PER_MS);
    clock.now_ns = 70 * YB_NS_PER_MS;
    yb_loop_turn(tape.loop, 50 * YB_NS_PER_MS);
    expect(&tape, "Ta");
    assert_int_equal(yb_mailbox_try_post(yb_loop_mailbox(tape.loop), &a.mail), YB_OK);
    yb_loop_turn(tape.loop, 50 * YB_NS_PER_MS);
    expect(&tape, "Ma");
    assert_int_equal(yb_loop_counters(tape.loop).sleeps, 0);
    yb_loop_turn(tape.loop, YB_NS_PER_MS);
    assert_int_equal(yb_loop_counters(tape.loop).sleeps, 1);
    yb_loop_destroy(&tape.loop);
}

static void
test_loop__a_timer_that_was_disarmed_is_silent(void **state)
{
    struct test_clock clock = clock_at(1);
    struct tape tape = {.loop = loop_with(&clock.base, 0)};
    struct teller a;

    (void)state;
    teller_init(&a, &tape, 'a');
    yb_loop_arm(tape.loop, &a.timer, YB_NS_PER_MS);
    yb_loop_disarm(tape.loop, &a.timer);
    clock.now_ns = YB_NS_PER_S;
    yb_loop_turn(tape.loop, 0);
    expect(&tape, "");
    yb_loop_destroy(&tape.loop);
}

static void
test_loop__time_is_read_once_in_a_turn(void **state)
{
    struct test_clock clock = clock_at(5 * YB_NS_PER_MS);
    struct yb_loop *loop = loop_with(&clock.base, 0);

    (void)state;
    yb_loop_turn(loop, 0);
    assert_int_equal(yb_loop_now(loop), 5 * YB_NS_PER_MS);
    clock.now_ns = 6 * YB_NS_PER_MS;
    assert_int_equal(yb_loop_now(loop), 5 * YB_NS_PER_MS);
    yb_loop_turn(loop, 0);
    assert_int_equal(yb_loop_now(loop), 6 * YB_NS_PER_MS);
    assert_ptr_equal(yb_loop_clock(loop), &clock.base);
    yb_loop_destroy(&loop);
}

static void
test_loop__a_task_runs_once_however_often_it_is_deferred(void **state)
{
    struct test_clock clock = clock_at(1);
    struct tape tape = {.loop = loop_with(&clock.base, 0)};
    struct teller a;
    struct teller b;

    (void)state;
    teller_init(&a, &tape, 'a');
    teller_init(&b, &tape, 'b');
    yb_loop_defer(tape.loop, &a.task);
    yb_loop_defer(tape.loop, &b.task);
    yb_loop_defer(tape.loop, &a.task);
    yb_loop_turn(tape.loop, 0);
    expect(&tape, "ab");
    yb_loop_undefer(tape.loop, &a.task); /* Harmless. */
    yb_loop_defer(tape.loop, &a.task);
    yb_loop_defer(tape.loop, &b.task);
    yb_loop_undefer(tape.loop, &b.task);
    yb_loop_turn(tape.loop, 0);
    expect(&tape, "a");
    yb_loop_destroy(&tape.loop);
}

static void
test_loop__a_task_that_defers_itself_runs_in_the_next_turn(void **state)
{
    struct test_clock clock = clock_at(1);
    struct tape tape = {.loop = loop_with(&clock.base, 0)};
    struct teller a;
    struct teller b;

    (void)state;
    teller_init(&a, &tape, 'a');
    teller_init(&b, &tape, 'b');
    a.again = true;
    a.victim = &b; /* Also if the last of the queue is taken back meanwhile. */
    yb_loop_defer(tape.loop, &a.task);
    yb_loop_defer(tape.loop, &b.task);
    yb_loop_turn(tape.loop, 0);
    expect(&tape, "a");
    yb_loop_turn(tape.loop, YB_NEVER); /* Does not sleep: there is work. */
    expect(&tape, "a");
    assert_int_equal(yb_loop_counters(tape.loop).sleeps, 0);
    yb_loop_undefer(tape.loop, &a.task);
    yb_loop_destroy(&tape.loop);
}

static void
test_loop__an_idle_loop_sleeps_until_its_next_timer(void **state)
{
    struct tape tape = {.loop = loop_with(yb_clock_system(), 0)};
    struct yb_loop_counters counters;
    struct teller a;

    (void)state;
    teller_init(&a, &tape, 'a');
    a.stops = true;
    yb_loop_arm(tape.loop, &a.timer, yb_loop_now(tape.loop) + 20 * YB_NS_PER_MS);
    yb_loop_run(tape.loop);
    expect(&tape, "Ta");
    counters = yb_loop_counters(tape.loop);
    assert_true(counters.sleeps >= 1);
    assert_true(counters.turns <= 8); /* It slept through, it did not turn. */
    assert_int_equal(counters.spins, 0);
    assert_int_equal(counters.delivered, 0);
    yb_loop_destroy(&tape.loop);
}

static void *
stop_from_elsewhere(void *arg)
{
    yb_loop_stop(arg);
    return NULL;
}

static void
test_loop__another_thread_stops_a_loop_that_sleeps(void **state)
{
    static const uint32_t spins_us[] = {0, 50};

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        struct yb_loop *loop = loop_with(yb_clock_system(), spins_us[i % 2]);
        pthread_t thread;

        assert_false(yb_loop_stopping(loop));
        assert_int_equal(pthread_create(&thread, NULL, stop_from_elsewhere, loop), 0);
        yb_loop_run(loop);
        assert_true(yb_loop_stopping(loop));
        assert_int_equal(pthread_join(thread, NULL), 0);
        yb_loop_destroy(&loop);
    }
}

static struct yb_loop *signal_loop; /* What the handler below stops. */

static void
on_signal(int number)
{
    (void)number;
    yb_loop_stop(signal_loop);
}

static void
raise_it(struct yb_task *task)
{
    (void)task;
    assert_int_equal(raise(SIGUSR1), 0);
}

static void
test_loop__a_signal_handler_stops_a_loop(void **state)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before;
    struct yb_task task = {.run = raise_it};

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    signal_loop = loop_with(yb_clock_system(), 0);
    yb_loop_defer(signal_loop, &task);
    yb_loop_run(signal_loop);
    assert_true(yb_loop_stopping(signal_loop));
    yb_loop_destroy(&signal_loop);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

static void
test_loop__the_spinning_rule_is_this_table(void **state)
{
    static const struct {
        uint32_t score;
        enum yb_spin_outcome outcome;
        uint32_t next;
    } rows[] = {
        {0, YB_SPIN_SHORT, 4}, {0, YB_SPIN_LONG, 0},  {0, YB_SPIN_LOST, 0},  {1, YB_SPIN_WON, 2},
        {4, YB_SPIN_WON, 5},   {15, YB_SPIN_WON, 16}, {16, YB_SPIN_WON, 16}, {16, YB_SPIN_LOST, 12},
        {12, YB_SPIN_LOST, 8}, {8, YB_SPIN_LOST, 4},  {4, YB_SPIN_LOST, 0},  {3, YB_SPIN_LOST, 0},
        {2, YB_SPIN_SHORT, 4}, {9, YB_SPIN_SHORT, 9}, {9, YB_SPIN_LONG, 0},  {16, YB_SPIN_LONG, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(yb_loop_spin_next(rows[i].score, rows[i].outcome), rows[i].next);
        assert_true(rows[i].next <= YB_SPIN_SCORE_MAX);
    }
}

static void
test_loop__an_idle_loop_does_not_spin_even_if_it_may(void **state)
{
    struct yb_loop *loop = loop_with(yb_clock_system(), 50);
    struct yb_loop_counters counters;

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        yb_loop_turn(loop, YB_NS_PER_MS); /* Nothing comes: each wait is a long one. */
    }
    counters = yb_loop_counters(loop);
    assert_int_equal(counters.sleeps, 20);
    assert_true(counters.spins <= 8); /* At most what a wait that returned early had opened. */
    yb_loop_destroy(&loop);
}

static void *
post_from_elsewhere(void *arg)
{
    struct teller *teller = arg;

    yb_mailbox_post_reply(yb_loop_mailbox(teller->tape->loop), &teller->mail);
    return NULL;
}

static void
test_loop__mail_wakes_a_sleeping_loop(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        struct tape tape = {.loop = loop_with(yb_clock_system(), 0)};
        struct teller a;
        pthread_t thread;

        teller_init(&a, &tape, 'a');
        a.stops = true;
        assert_int_equal(pthread_create(&thread, NULL, post_from_elsewhere, &a), 0);
        yb_loop_run(tape.loop);
        assert_int_equal(pthread_join(thread, NULL), 0);
        expect(&tape, "Ma");
        yb_loop_destroy(&tape.loop);
    }
}

/* Something that a kernel finishes: here the test does. */
struct ring {
    struct yb_loop_source source; /* First. */
    struct tape *tape;
    uint32_t finished;
};

static uint32_t
look_into_ring(struct yb_loop_source *source)
{
    struct ring *ring = (struct ring *)source;
    uint32_t count = ring->finished;

    for (uint32_t i = 0; i < count; i++) {
        say(ring->tape, 'S');
    }
    ring->finished = 0;
    return count;
}

static void
finish(struct ring *ring, int wake_fd)
{
    const uint64_t one = 1;

    ring->finished++;
    assert_int_equal(write(wake_fd, &one, sizeof(one)), sizeof(one));
}

static void
test_loop__what_a_source_has_finished_ends_a_sleep_and_is_delivered(void **state)
{
    static const uint32_t spins_us[] = {0, 50};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct tape tape = {.loop = loop_with(yb_clock_system(), spins_us[i])};
        struct ring rings[2] = {{.source.look = look_into_ring, .tape = &tape},
                                {.source.look = look_into_ring, .tape = &tape}};
        int fd = yb_loop_watch(tape.loop, &rings[0].source);

        assert_true(fd >= 0);
        assert_int_equal(yb_loop_watch(tape.loop, &rings[1].source), fd);
        for (uint32_t round = 0; round < 8; round++) { /* The later ones spin, if they may. */
            finish(&rings[round % 2], fd);
            yb_loop_turn(tape.loop, YB_NEVER);
            expect(&tape, "S");
        }
        finish(&rings[0], fd);
        finish(&rings[1], fd);
        yb_loop_turn(tape.loop, YB_NEVER);
        expect(&tape, "SS");
        assert_int_equal(yb_loop_counters(tape.loop).delivered, 10);
        yb_loop_unwatch(tape.loop, &rings[0].source);
        finish(&rings[0], fd);
        yb_loop_turn(tape.loop, 0);
        expect(&tape, "");
        yb_loop_unwatch(tape.loop, &rings[1].source);
        yb_loop_destroy(&tape.loop);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop__a_turn_runs_timers_then_mail_then_deferred_tasks),
        cmocka_unit_test(test_loop__a_turn_in_which_a_timer_or_a_mail_ran_does_not_wait),
        cmocka_unit_test(test_loop__a_timer_that_was_disarmed_is_silent),
        cmocka_unit_test(test_loop__time_is_read_once_in_a_turn),
        cmocka_unit_test(test_loop__a_task_runs_once_however_often_it_is_deferred),
        cmocka_unit_test(test_loop__a_task_that_defers_itself_runs_in_the_next_turn),
        cmocka_unit_test(test_loop__an_idle_loop_sleeps_until_its_next_timer),
        cmocka_unit_test(test_loop__another_thread_stops_a_loop_that_sleeps),
        cmocka_unit_test(test_loop__a_signal_handler_stops_a_loop),
        cmocka_unit_test(test_loop__the_spinning_rule_is_this_table),
        cmocka_unit_test(test_loop__an_idle_loop_does_not_spin_even_if_it_may),
        cmocka_unit_test(test_loop__mail_wakes_a_sleeping_loop),
        cmocka_unit_test(test_loop__what_a_source_has_finished_ends_a_sleep_and_is_delivered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
