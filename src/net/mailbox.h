/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.h -- how one worker asks another to do something.
 *
 * Workers share nothing; they send mail. A mail is a struct inside the request that it
 * carries and a function that the owner of the mailbox calls. Nobody waits: a poster
 * returns at once, and the owner reads mail between events.
 *
 * Two kinds of mail keep the wait-for graph without a cycle (C1 of the protocol's rules):
 *   request   takes one of the mailbox's `capacity` places, or is refused with AGAIN;
 *   reply     is always accepted: it is the request's own memory on its way back, so the
 *             number of replies is bounded by the number of requests that were accepted.
 *
 * Waking. The mailbox is one atomic word, `head`:
 *
 *              post                   run takes all
 *     EMPTY ----------> a list, newest mail first ----------> EMPTY
 *       |  ^                    ^
 *       |  | sleep_finish       | post, and this poster calls `wake`
 *       v  |                    |
 *     ASLEEP -------------------+          (sleep_prepare: EMPTY -> ASLEEP)
 *
 * The owner says ASLEEP before it blocks in the kernel, and only if the box is empty. All
 * changes are to one word, and one word has one order of changes: either the post came
 * first, and sleep_prepare refuses, or ASLEEP came first, and exactly that post wakes the
 * owner. No wake-up is lost, and a busy owner is never woken (a wake is a system call).
 * `wake` must leave something that a later block in the kernel still sees, as writing to an
 * eventfd does: it may run between sleep_prepare and the block.
 *
 * Invariants
 *   M1  Mails of one poster run in the order in which they were posted; so do mails of
 *       different posters when one was posted after the other's post had returned.
 *   M2  Every accepted mail runs exactly once, on the owner's thread, inside run.
 *   M3  At most `capacity` requests wait. A place is free again once its mail starts to run.
 *   M4  After sleep_prepare said true, the first post calls `wake`, and only the first.
 *
 * Threads   Any thread posts. run and sleep_ belong to the owner's thread. No function takes
 *           a lock or blocks.
 * Memory    The caller owns the mailbox and every mail. A mail is borrowed from an accepted
 *           post until its `run` is called, which may free it or post it again.
 */
#ifndef YB_NET_MAILBOX_H
#define YB_NET_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_mailbox;

struct yb_mail {
    struct yb_mail *next; /* Private: the mail posted before it, later the one after it. */
    void (*run)(struct yb_mail *mail);
    struct yb_mailbox *mailbox; /* Private: where it waits; NULL: nowhere. */
    bool is_request;            /* Private. */
};

/* Owned by the caller; every field is private. */
struct yb_mailbox {
    uint32_t magic;
    uint32_t capacity;                    /* Immutable. */
    void (*wake)(void *context);          /* Immutable. */
    void *context;                        /* Immutable. */
    struct yb_mail *ready;                /* Owner: taken from `head`, oldest first. */
    bool running;                         /* Owner. */
    _Atomic(uint32_t) pending_count;      /* Requests that wait; partner: try_post and run. */
    _Alignas(64) _Atomic(uintptr_t) head; /* Posters and owner; see the diagram. */
};

/* Make the mailbox empty with room for `capacity` requests (1 to 2^31). `wake` is called with
 * `context` on a poster's thread, as the diagram says; it must not block or call back. */
void yb_mailbox_init(struct yb_mailbox *mailbox, uint32_t capacity, void (*wake)(void *context),
                     void *context);

/* End the mailbox's life. It is a bug, and aborts, if mail waits. */
void yb_mailbox_fini(struct yb_mailbox *mailbox);

/* Make `mail` ready to be posted. */
void yb_mail_init(struct yb_mail *mail, void (*run)(struct yb_mail *mail));

/* Post a request.
 *
 * Fails with AGAIN when `capacity` requests wait already; the mail is then untouched. Room comes
 * as the owner runs its mail, which it does without waiting for anybody: try again from a later
 * turn of your own loop, and read your own mail meanwhile. */
YB_CHECKED enum yb_status yb_mailbox_try_post(struct yb_mailbox *mailbox, struct yb_mail *mail);

/* Post a reply: the memory of a request that came from the mailbox's owner. Never refused. */
void yb_mailbox_post_reply(struct yb_mailbox *mailbox, struct yb_mail *mail);

/* Run at most `budget` mails (M1). Returns how many ran; fewer than `budget` means that the box
 * was found empty. Mails posted meanwhile may run too. */
uint32_t yb_mailbox_run(struct yb_mailbox *mailbox, uint32_t budget);

/* Announce that the owner is about to block. False: there is mail, do not block. True: block now
 * (M4) and call sleep_finish afterwards. Whatever else is to wake the owner must be mail too, or
 * something the kernel waits for. */
bool yb_mailbox_sleep_prepare(struct yb_mailbox *mailbox);

/* The owner is awake again, for whatever reason. */
void yb_mailbox_sleep_finish(struct yb_mailbox *mailbox);

#endif /* YB_NET_MAILBOX_H */
