/* SPDX-License-Identifier: Apache-2.0 */
#include "net/loop.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"

#define LOOP_MAGIC       0x6c6f6f70u
#define MAIL_BUDGET      256
#define MAILBOX_CAPACITY 1024
#define SPIN_SCORE_SHORT 4
#define SPIN_SCORE_LOST  4

struct yb_loop {
    uint32_t magic;
    bool owns_io;
    bool now_known;
    bool cut;           /* This turn asks the kernel nothing. */
    _Atomic(bool) stop; /* Set by any thread; read by the owner each turn. */
    uint32_t spin_score;
    uint64_t spin_ns; /* Immutable. */
    uint64_t now_ns;
    const struct yb_clock *clock;
    void (*woken)(void *owner); /* Immutable. */
    void *woken_owner;          /* Immutable. */
    struct yb_io *io;
    struct yb_task *tasks_head;
    struct yb_task **tasks_tail;
    struct yb_task *running; /* Queued in an earlier step, to run in this one. */
    struct yb_loop_source *sources;
    bool looking;
    struct yb_loop_counters counters;
    struct yb_mailbox mailbox;
    struct yb_timer_wheel timers;
};

/* The loop that waits, or hands out what it waited for, on this thread. */
static _Thread_local const struct yb_loop *waiting;

static void
wake_loop(void *context)
{
    struct yb_loop *loop = context;

    /* Mail from a callback of its own: it runs before the loop can sleep or rest again, and an io
     * that has delivered anything does not. */
    if (waiting == loop) {
        return;
    }
    yb_io_wake(loop->io);
    if (loop->woken != NULL) {
        loop->woken(loop->woken_owner);
    }
}

enum yb_status
yb_loop_create(const struct yb_loop_options *options, struct yb_loop **loop_out)
{
    struct yb_loop *loop = calloc(1, sizeof(*loop));
    uint32_t capacity = options->mailbox_capacity;

    YB_ASSERT(options->clock != NULL && loop_out != NULL);
    if (loop == NULL) {
        return YB_NO_MEMORY;
    }
    loop->clock = options->clock;
    loop->woken = options->woken;
    loop->woken_owner = options->woken_owner;
    loop->io = options->io;
    if (loop->io == NULL) {
        enum yb_status status = yb_io_create(options->backend, options->clock, &loop->io);

        if (status != YB_OK) {
            free(loop);
            return status;
        }
        loop->owns_io = true;
    }
    /* Spinning on the only core would keep the peer from running. */
    loop->spin_ns =
        sysconf(_SC_NPROCESSORS_ONLN) > 1 ? (uint64_t)options->spin_us * YB_NS_PER_US : 0;
    loop->tasks_tail = &loop->tasks_head;
    yb_timer_wheel_init(&loop->timers, yb_clock_now(loop->clock));
    yb_mailbox_init(&loop->mailbox, capacity == 0 ? MAILBOX_CAPACITY : capacity, wake_loop, loop);
    loop->magic = LOOP_MAGIC;
    *loop_out = loop;
    return YB_OK;
}

void
yb_loop_destroy(struct yb_loop **loop_ref)
{
    struct yb_loop *loop = *loop_ref;

    YB_ASSERT_OBJ(loop, LOOP_MAGIC);
    YB_ASSERT(loop->tasks_head == NULL);
    YB_ASSERT(loop->sources == NULL);
    *loop_ref = NULL;
    yb_mailbox_fini(&loop->mailbox);
    yb_timer_wheel_fini(&loop->timers);
    if (loop->owns_io) {
        yb_io_destroy(&loop->io);
    }
    loop->magic = 0;
    free(loop);
}

uint64_t
yb_loop_now(struct yb_loop *loop)
{
    if (!loop->now_known) {
        loop->now_ns = yb_clock_now(loop->clock);
        loop->now_known = true;
    }
    return loop->now_ns;
}

const struct yb_clock *
yb_loop_clock(const struct yb_loop *loop)
{
    return loop->clock;
}

struct yb_io *
yb_loop_io(struct yb_loop *loop)
{
    return loop->io;
}

struct yb_mailbox *
yb_loop_mailbox(struct yb_loop *loop)
{
    return &loop->mailbox;
}

struct yb_loop_counters
yb_loop_counters(const struct yb_loop *loop)
{
    return loop->counters;
}

void
yb_loop_arm(struct yb_loop *loop, struct yb_timer *timer, uint64_t deadline_ns)
{
    yb_timer_arm(&loop->timers, timer, deadline_ns);
}

void
yb_loop_disarm(struct yb_loop *loop, struct yb_timer *timer)
{
    yb_timer_cancel(&loop->timers, timer);
}

void
yb_loop_defer(struct yb_loop *loop, struct yb_task *task)
{
    YB_ASSERT(task->run != NULL);
    if (task->queued) {
        return;
    }
    task->queued = true;
    task->next = NULL;
    *loop->tasks_tail = task;
    loop->tasks_tail = &task->next;
}

void
yb_loop_undefer(struct yb_loop *loop, struct yb_task *task)
{
    struct yb_task **link = &loop->running;

    if (!task->queued) {
        return;
    }
    while (*link != NULL && *link != task) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        link = &loop->tasks_head;
        while (*link != task) {
            YB_ASSERT(*link != NULL);
            link = &(*link)->next;
        }
        if (task->next == NULL) {
            loop->tasks_tail = link;
        }
    }
    *link = task->next;
    task->queued = false;
}

/* Run what is queued now. A task that queues itself again runs in the next turn. */
static void
run_tasks(struct yb_loop *loop)
{
    loop->running = loop->tasks_head;
    loop->tasks_head = NULL;
    loop->tasks_tail = &loop->tasks_head;
    while (loop->running != NULL) {
        struct yb_task *task = loop->running;

        loop->running = task->next;
        task->queued = false;
        task->run(task);
    }
}

int
yb_loop_watch(struct yb_loop *loop, struct yb_loop_source *source)
{
    int wake_fd = yb_io_wake_fd(loop->io);

    YB_ASSERT_OBJ(loop, LOOP_MAGIC);
    YB_ASSERT(source->look != NULL && !loop->looking);
    if (wake_fd >= 0) {
        source->next = loop->sources;
        loop->sources = source;
    }
    return wake_fd;
}

void
yb_loop_unwatch(struct yb_loop *loop, struct yb_loop_source *source)
{
    struct yb_loop_source **link = &loop->sources;

    YB_ASSERT_OBJ(loop, LOOP_MAGIC);
    YB_ASSERT(!loop->looking);
    while (*link != source) {
        YB_ASSERT(*link != NULL);
        link = &(*link)->next;
    }
    *link = source->next;
}

uint32_t
yb_loop_spin_next(uint32_t score, enum yb_spin_outcome outcome)
{
    switch (outcome) {
    case YB_SPIN_WON: return score < YB_SPIN_SCORE_MAX ? score + 1 : score;
    case YB_SPIN_LOST: return score > SPIN_SCORE_LOST ? score - SPIN_SCORE_LOST : 0;
    case YB_SPIN_SHORT: return score < SPIN_SCORE_SHORT ? SPIN_SCORE_SHORT : score;
    case YB_SPIN_LONG: return 0;
    }
    return 0;
}

/* Every poll may have eaten the wake of a source, so each is followed by a look. */
static uint32_t
poll_io(struct yb_loop *loop, uint64_t timeout_ns)
{
    uint32_t delivered;

    loop->now_known = false;
    delivered = yb_io_poll(loop->io, timeout_ns);
    loop->looking = true;
    for (struct yb_loop_source *source = loop->sources; source != NULL; source = source->next) {
        delivered += source->look(source);
    }
    loop->looking = false;
    loop->counters.delivered += delivered;
    return delivered;
}

/* Ask without waiting until there is work or the spin time is over. */
static bool
spin(struct yb_loop *loop, uint64_t timeout_ns)
{
    uint64_t budget = timeout_ns < loop->spin_ns ? timeout_ns : loop->spin_ns;
    uint64_t until = yb_clock_now(loop->clock) + budget;

    loop->counters.spins++;
    do {
        if (poll_io(loop, 0) > 0 || yb_mailbox_run(&loop->mailbox, MAIL_BUDGET) > 0 ||
            loop->tasks_head != NULL) {
            loop->counters.spins_won++;
            loop->spin_score = yb_loop_spin_next(loop->spin_score, YB_SPIN_WON);
            return true;
        }
        /* The one that is waited for may be in line for this very core: without this it would run
         * only after the spin, and each message would cost two of them. */
        (void)sched_yield();
    } while (yb_clock_now(loop->clock) < until);
    loop->spin_score = yb_loop_spin_next(loop->spin_score, YB_SPIN_LOST);
    return false;
}

/* Wait for completions or mail, at most `timeout_ns`. */
static void
wait_for_work(struct yb_loop *loop, uint64_t timeout_ns)
{
    bool may_spin = loop->spin_ns > 0;
    bool spun = may_spin && loop->spin_score > 0;
    uint64_t began_ns = 0;

    if (spun && spin(loop, timeout_ns)) {
        return;
    }
    if (!yb_mailbox_sleep_prepare(&loop->mailbox)) {
        return;
    }
    if (atomic_load(&loop->stop)) { /* The polls of a spin may have eaten its wake. */
        yb_mailbox_sleep_finish(&loop->mailbox);
        return;
    }
    if (may_spin && !spun) {
        began_ns = yb_clock_now(loop->clock);
    }
    loop->counters.sleeps++;
    waiting = loop;
    (void)poll_io(loop, timeout_ns);
    waiting = NULL;
    yb_mailbox_sleep_finish(&loop->mailbox);
    if (may_spin && !spun) {
        bool was_short = yb_loop_now(loop) - began_ns <= loop->spin_ns;

        loop->spin_score =
            yb_loop_spin_next(loop->spin_score, was_short ? YB_SPIN_SHORT : YB_SPIN_LONG);
    }
}

/* A simulated io never blocks: the loop sleeps while it is not turned, and mail that comes then
 * must be a reason to turn it. */
static void
sleep_between_turns(struct yb_loop *loop)
{
    if (!loop->owns_io && !yb_mailbox_sleep_prepare(&loop->mailbox)) {
        yb_io_wake(loop->io);
    }
}

void
yb_loop_turn(struct yb_loop *loop, uint64_t wait_max_ns)
{
    uint64_t now_ns;
    uint64_t next_ns;
    uint32_t fired;
    uint32_t mails;

    YB_ASSERT_OBJ(loop, LOOP_MAGIC);
    loop->counters.turns++;
    loop->now_known = false;
    now_ns = yb_loop_now(loop);
    yb_mailbox_sleep_finish(&loop->mailbox);
    fired = yb_timer_wheel_advance(&loop->timers, now_ns);
    mails = yb_mailbox_run(&loop->mailbox, MAIL_BUDGET);
    run_tasks(loop);

    next_ns = yb_timer_wheel_next_ns(&loop->timers);
    if (next_ns != YB_NEVER) {
        uint64_t until_next = next_ns > now_ns ? next_ns - now_ns : 0;

        wait_max_ns = until_next < wait_max_ns ? until_next : wait_max_ns;
    }
    /* What a timer or a mail did may be what the caller turns the loop for. */
    if (fired > 0 || mails > 0 || loop->tasks_head != NULL || atomic_load(&loop->stop)) {
        wait_max_ns = 0;
    }
    if (loop->cut) {
        loop->cut = false;
    } else if (wait_max_ns == 0) {
        (void)poll_io(loop, 0);
    } else {
        wait_for_work(loop, wait_max_ns);
    }
    sleep_between_turns(loop);
}

void
yb_loop_cut(struct yb_loop *loop)
{
    YB_ASSERT_OBJ(loop, LOOP_MAGIC);
    loop->cut = true;
}

bool
yb_loop_rest(struct yb_loop *loop)
{
    YB_ASSERT_OBJ(loop, LOOP_MAGIC);
    return loop->tasks_head == NULL && yb_mailbox_sleep_prepare(&loop->mailbox);
}

void
yb_loop_resume(struct yb_loop *loop)
{
    yb_mailbox_sleep_finish(&loop->mailbox);
}

void
yb_loop_run(struct yb_loop *loop)
{
    while (!atomic_load(&loop->stop)) {
        yb_loop_turn(loop, YB_NEVER);
    }
}

void
yb_loop_stop(struct yb_loop *loop)
{
    atomic_store(&loop->stop, true);
    yb_io_wake(loop->io);
}

bool
yb_loop_stopping(const struct yb_loop *loop)
{
    return atomic_load(&loop->stop);
}
