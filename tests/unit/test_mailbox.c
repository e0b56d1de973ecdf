/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants M1-M4 of net/mailbox.h.
 * Method: one test per rule on one thread; then producers and an owner that really blocks on
 * an eventfd whenever it may. A lost wake-up would block the owner for ever: an alarm, far beyond
 * what the test can take, ends the program then. The thread sanitizer judges the rest.
 */
#include "unit.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/mailbox.h"

#define CAPACITY 4u

struct letter {
    struct yb_mail mail;
    uint32_t number;
    struct yb_mailbox *again; /* Post itself there once more. */
};

static uint32_t seen[64];
static uint32_t seen_count;
static uint32_t wake_count;

static void
count_wake(void *context)
{
    (void)context;
    wake_count++;
}

static void
letter_run(struct yb_mail *mail)
{
    struct letter *letter = (struct letter *)mail;
    struct yb_mailbox *again = letter->again;

    assert_true(seen_count < 64);
    seen[seen_count++] = letter->number;
    letter->again = NULL;
    if (again != NULL) {
        yb_mailbox_post_reply(again, mail);
    }
}

static void
fresh(struct yb_mailbox *mailbox, struct letter letters[8])
{
    seen_count = 0;
    wake_count = 0;
    yb_mailbox_init(mailbox, CAPACITY, count_wake, NULL);
    for (uint32_t i = 0; i < 8; i++) {
        yb_mail_init(&letters[i].mail, letter_run);
        letters[i].number = i;
        letters[i].again = NULL;
    }
}

static void
test_mailbox__mails_run_once_in_the_order_posted_and_within_the_budget(void **state)
{
    struct yb_mailbox mailbox;
    struct letter letters[8];

    (void)state;
    fresh(&mailbox, letters);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[i].mail), YB_OK);
    }
    assert_int_equal(yb_mailbox_run(&mailbox, 3), 3);
    assert_false(yb_mailbox_sleep_prepare(&mailbox));
    yb_mailbox_post_reply(&mailbox, &letters[4].mail);
    yb_mailbox_post_reply(&mailbox, &letters[5].mail);
    assert_int_equal(yb_mailbox_run(&mailbox, 100), 3);
    assert_int_equal(seen_count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(seen[i], i);
    }
    assert_int_equal(yb_mailbox_run(&mailbox, 100), 0);
    yb_mailbox_fini(&mailbox);
}

static void
test_mailbox__requests_beyond_the_capacity_are_refused_and_replies_never(void **state)
{
    struct yb_mailbox mailbox;
    struct letter letters[8];

    (void)state;
    fresh(&mailbox, letters);
    for (uint32_t i = 0; i < CAPACITY; i++) {
        assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[i].mail), YB_OK);
    }
    assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[4].mail), YB_AGAIN);
    yb_mailbox_post_reply(&mailbox, &letters[5].mail);
    yb_mailbox_post_reply(&mailbox, &letters[6].mail);
    assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[4].mail), YB_AGAIN);
    assert_int_equal(yb_mailbox_run(&mailbox, 1), 1);
    assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[4].mail), YB_OK);
    assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[7].mail), YB_AGAIN);
    assert_int_equal(yb_mailbox_run(&mailbox, 100), 6);
    /* A reply that ran gave no place back: it had taken none. */
    for (uint32_t i = 0; i < CAPACITY; i++) {
        assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[i].mail), YB_OK);
    }
    assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[4].mail), YB_AGAIN);
    assert_int_equal(yb_mailbox_run(&mailbox, 100), CAPACITY);
}

static void
test_mailbox__only_the_first_post_to_a_sleeper_wakes_it(void **state)
{
    struct yb_mailbox mailbox;
    struct letter letters[8];

    (void)state;
    fresh(&mailbox, letters);
    yb_mailbox_post_reply(&mailbox, &letters[0].mail);
    assert_int_equal(wake_count, 0);
    assert_false(yb_mailbox_sleep_prepare(&mailbox));
    assert_int_equal(yb_mailbox_run(&mailbox, 100), 1);
    assert_true(yb_mailbox_sleep_prepare(&mailbox));
    yb_mailbox_post_reply(&mailbox, &letters[1].mail);
    yb_mailbox_post_reply(&mailbox, &letters[2].mail);
    assert_int_equal(wake_count, 1);
    yb_mailbox_sleep_finish(&mailbox);
    assert_int_equal(yb_mailbox_run(&mailbox, 100), 2);
    assert_true(yb_mailbox_sleep_prepare(&mailbox));
    yb_mailbox_sleep_finish(&mailbox); /* Woken by something else. */
    yb_mailbox_post_reply(&mailbox, &letters[3].mail);
    assert_int_equal(wake_count, 1);
    assert_int_equal(yb_mailbox_run(&mailbox, 100), 1);
}

static void
test_mailbox__a_mail_may_post_itself_again_while_it_runs(void **state)
{
    struct yb_mailbox mailbox;
    struct letter letters[8];

    (void)state;
    fresh(&mailbox, letters);
    letters[0].again = &mailbox;
    assert_int_equal(yb_mailbox_try_post(&mailbox, &letters[0].mail), YB_OK);
    assert_int_equal(yb_mailbox_run(&mailbox, 1), 1);
    assert_int_equal(yb_mailbox_run(&mailbox, 1), 1);
    assert_int_equal(seen_count, 2);
    assert_int_equal(yb_mailbox_run(&mailbox, 1), 0);
}

#define PRODUCER_COUNT 4u
#define ROUND_COUNT    20000u
#define PARCEL_COUNT   8u
#define STUCK_AFTER_S  30u

struct parcel {
    struct yb_mail mail;
    uint32_t producer;
    uint32_t number; /* Written by the producer, read by the owner: not atomic on purpose. */
    _Atomic(bool) home;
};

struct crowd {
    struct yb_mailbox mailbox;
    int event_fd;
    uint32_t expected[PRODUCER_COUNT]; /* Owner: the next number of each producer. */
    uint32_t received_count;
    _Atomic(uint32_t) next_producer;
    struct parcel parcels[PRODUCER_COUNT][PARCEL_COUNT];
};

static struct crowd crowd;

static void
wake_owner(void *context)
{
    uint64_t one = 1;

    assert_int_equal(write(*(int *)context, &one, sizeof(one)), sizeof(one));
}

static void
parcel_run(struct yb_mail *mail)
{
    struct parcel *parcel = (struct parcel *)mail;

    assert_int_equal(parcel->number, crowd.expected[parcel->producer]);
    crowd.expected[parcel->producer]++;
    crowd.received_count++;
    atomic_store_explicit(&parcel->home, true, memory_order_release);
}

static void *
produce(void *argument)
{
    uint32_t producer = atomic_fetch_add(&crowd.next_producer, 1);

    for (uint32_t number = 0; number < ROUND_COUNT; number++) {
        struct parcel *parcel = &crowd.parcels[producer][number % PARCEL_COUNT];

        while (!atomic_load_explicit(&parcel->home, memory_order_acquire)) {
            (void)sched_yield();
        }
        atomic_store_explicit(&parcel->home, false, memory_order_relaxed);
        parcel->number = number;
        if (number % 2 == 0) {
            yb_mailbox_post_reply(&crowd.mailbox, &parcel->mail);
            continue;
        }
        while (yb_mailbox_try_post(&crowd.mailbox, &parcel->mail) != YB_OK) {
            (void)sched_yield();
        }
    }
    return argument;
}

static void
own(void)
{
    while (crowd.received_count < PRODUCER_COUNT * ROUND_COUNT) {
        uint64_t wakes;

        (void)yb_mailbox_run(&crowd.mailbox, 7);
        if (crowd.received_count < PRODUCER_COUNT * ROUND_COUNT &&
            yb_mailbox_sleep_prepare(&crowd.mailbox)) {
            assert_int_equal(read(crowd.event_fd, &wakes, sizeof(wakes)), sizeof(wakes));
            assert_true(wakes == 1); /* M4: one wake for one sleep. */
            yb_mailbox_sleep_finish(&crowd.mailbox);
        }
    }
}

static void
test_mailbox__an_owner_that_blocks_misses_no_mail_of_many_producers(void **state)
{
    pthread_t threads[PRODUCER_COUNT];

    (void)state;
    (void)alarm(STUCK_AFTER_S);
    crowd.event_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(crowd.event_fd >= 0);
    yb_mailbox_init(&crowd.mailbox, CAPACITY, wake_owner, &crowd.event_fd);
    for (uint32_t p = 0; p < PRODUCER_COUNT; p++) {
        for (uint32_t i = 0; i < PARCEL_COUNT; i++) {
            yb_mail_init(&crowd.parcels[p][i].mail, parcel_run);
            crowd.parcels[p][i].producer = p;
            atomic_init(&crowd.parcels[p][i].home, true);
        }
    }
    for (uint32_t p = 0; p < PRODUCER_COUNT; p++) {
        assert_int_equal(pthread_create(&threads[p], NULL, produce, NULL), 0);
    }
    own();
    for (uint32_t p = 0; p < PRODUCER_COUNT; p++) {
        assert_int_equal(pthread_join(threads[p], NULL), 0);
        assert_int_equal(crowd.expected[p], ROUND_COUNT);
    }
    yb_mailbox_fini(&crowd.mailbox);
    assert_int_equal(close(crowd.event_fd), 0);
    (void)alarm(0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mailbox__mails_run_once_in_the_order_posted_and_within_the_budget),
        cmocka_unit_test(test_mailbox__requests_beyond_the_capacity_are_refused_and_replies_never),
        cmocka_unit_test(test_mailbox__only_the_first_post_to_a_sleeper_wakes_it),
        cmocka_unit_test(test_mailbox__a_mail_may_post_itself_again_while_it_runs),
        cmocka_unit_test(test_mailbox__an_owner_that_blocks_misses_no_mail_of_many_producers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
