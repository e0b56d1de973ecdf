/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.h -- one worker's event loop: time, mail, deferred work and bytes.
 *
 * One turn of the loop, in this order:
 *
 *     1  timers whose deadline has passed
 *     2  mail from other workers
 *     3  deferred tasks (a connection's flush: one write for all that a turn produced)
 *     4  completions of the io backend, and of sources; waits for the first if 1-3 left nothing
 *        to do
 *
 * Before it sleeps in the kernel a loop may spin: ask for completions without
 * waiting, for at most `spin_us`. Whether it does is decided by what spinning
 * would have brought lately (yb_loop_spin_next), so that a request-reply
 * exchange does not pay for two wake-ups and an idle process burns nothing.
 *
 * Threads   A loop belongs to the thread that created it. From elsewhere only
 *           yb_loop_stop() and the mailbox's post functions may be called;
 *           yb_loop_stop() is async-signal-safe too.
 * Memory    The loop owns its io unless one was passed in. Tasks, timers and
 *           mails are the caller's, borrowed until they ran.
 * Time      From the clock passed in; yb_loop_now() reads it once per turn and
 *           once after each wait.
 */
#ifndef YB_NET_LOOP_H
#define YB_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "net/io.h"
#include "net/mailbox.h"
#include "net/timer.h"
#include "yuebing/status.h"

struct yb_loop;

/* Work put off to the end of the turn. Zero it before its first use. */
struct yb_task {
    struct yb_task *next;
    void (*run)(struct yb_task *task);
    bool queued;
};

/* Work that the kernel finishes for somebody else than the io: the ring of a disk. */
struct yb_loop_source {
    struct yb_loop_source *next;
    uint32_t (*look)(struct yb_loop_source *source); /* Deliver what is finished; how much. */
};

struct yb_loop_options {
    const char *backend;          /* "auto", "epoll" or "io_uring"; unused if `io` is given. */
    struct yb_io *io;             /* Use this one (the simulation's); NULL: create one. */
    const struct yb_clock *clock; /* borrowed for the loop's life */
    uint32_t spin_us;             /* Longest spin before a sleep; 0: never. */
    uint32_t mailbox_capacity;    /* Requests that may wait; 0: 1024. */
    void (*woken)(void *owner);   /* Any thread: mail came while the loop slept; NULL: none. */
    void *woken_owner;
};

/* What the loop did, for metrics and tests. */
struct yb_loop_counters {
    uint64_t turns;
    uint64_t sleeps;    /* Waits in the kernel. */
    uint64_t spins;     /* Spins begun ... */
    uint64_t spins_won; /* ... and those that found work before their time was up. */
    uint64_t delivered; /* Completions. */
};

/* Create a loop on the calling thread. Fails as yb_io_create() does. */
YB_CHECKED enum yb_status yb_loop_create(const struct yb_loop_options *options,
                                         struct yb_loop **loop_out);

/* Consume the loop and set it to NULL. Streams, listeners and timers must be gone. */
void yb_loop_destroy(struct yb_loop **loop);

/* Run one turn; wait at most `wait_max_ns` for something to happen. It does not wait after a timer
 * or a mail has run: what they did may be what the caller turns the loop for. */
void yb_loop_turn(struct yb_loop *loop, uint64_t wait_max_ns);

/* What this turn was for has happened: it ends without asking the kernel. */
void yb_loop_cut(struct yb_loop *loop);

/* No turn is run for a while: the first mail that comes meanwhile calls `woken`. False: there is
 * work already. The next turn may be another thread's, to which the caller hands the loop over. */
YB_CHECKED bool yb_loop_rest(struct yb_loop *loop);

/* The rest is over: mail wakes nobody, as during a turn. */
void yb_loop_resume(struct yb_loop *loop);

/* Run turns until yb_loop_stop(). */
void yb_loop_run(struct yb_loop *loop);

/* Make yb_loop_run() return after the turn it is in. Any thread, any signal handler. */
void yb_loop_stop(struct yb_loop *loop);
bool yb_loop_stopping(const struct yb_loop *loop);

/* Return the monotonic time of this turn. */
uint64_t yb_loop_now(struct yb_loop *loop);

const struct yb_clock *yb_loop_clock(const struct yb_loop *loop);
struct yb_io *yb_loop_io(struct yb_loop *loop);
struct yb_mailbox *yb_loop_mailbox(struct yb_loop *loop);
struct yb_loop_counters yb_loop_counters(const struct yb_loop *loop);

/* Arm or disarm a timer of this loop; see timer.h. */
void yb_loop_arm(struct yb_loop *loop, struct yb_timer *timer, uint64_t deadline_ns);
void yb_loop_disarm(struct yb_loop *loop, struct yb_timer *timer);

/* Run `task` once, in step 3 of this turn or the next. Harmless if it is queued already. */
void yb_loop_defer(struct yb_loop *loop, struct yb_task *task);

/* Take a queued task back; harmless if it is not queued. */
void yb_loop_undefer(struct yb_loop *loop, struct yb_task *task);

/* Look at `source` after each wait. Returns the eventfd that must be written when something is
 * finished, so that the loop does not sleep on; -1: this loop has none (a simulated one), and the
 * source is not looked at. The source is borrowed until unwatch, which may not run in a look. */
int yb_loop_watch(struct yb_loop *loop, struct yb_loop_source *source);
void yb_loop_unwatch(struct yb_loop *loop, struct yb_loop_source *source);

/* What a wait brought, as seen by the spinning rule. */
enum yb_spin_outcome {
    YB_SPIN_WON,   /* Spinning found work. */
    YB_SPIN_LOST,  /* Spinning found nothing; the loop went to sleep. */
    YB_SPIN_SHORT, /* Slept without spinning, and work came within the spin time. */
    YB_SPIN_LONG,  /* Slept without spinning, and work took longer. */
};
#define YB_SPIN_SCORE_MAX 16u

/* Return the next score; the loop spins while it is above zero. Pure. A short sleep opens the
 * spin, each win keeps it open, two losses in a row from the top close it within four. */
uint32_t yb_loop_spin_next(uint32_t score, enum yb_spin_outcome outcome);

#endif /* YB_NET_LOOP_H */
