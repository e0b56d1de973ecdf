/* SPDX-License-Identifier: Apache-2.0
 *
 * A stack that many push to and one empties whole (Treiber 1986, without its pop and hence
 * without its ABA problem), turned round by the owner to get first-in first-out. It costs one
 * compare-and-swap per mail and one exchange per batch, and has no state in which a poster that
 * was descheduled half-way hides the mail of others.
 */
#include "net/mailbox.h"

#include <stddef.h>

#include "base/check.h"

#define MAILBOX_MAGIC        0x6d61696cu
#define MAILBOX_CAPACITY_MAX (1u << 31)

/* `head` without mail. Neither is the address of a mail. */
#define HEAD_EMPTY  ((uintptr_t)0)
#define HEAD_ASLEEP ((uintptr_t)1)

void
yb_mailbox_init(struct yb_mailbox *mailbox, uint32_t capacity, void (*wake)(void *context),
                void *context)
{
    YB_ASSERT(capacity > 0 && capacity <= MAILBOX_CAPACITY_MAX);
    YB_ASSERT(wake != NULL);
    mailbox->magic = MAILBOX_MAGIC;
    mailbox->capacity = capacity;
    mailbox->wake = wake;
    mailbox->context = context;
    mailbox->ready = NULL;
    mailbox->running = false;
    atomic_init(&mailbox->pending_count, 0);
    atomic_init(&mailbox->head, HEAD_EMPTY);
}

void
yb_mailbox_fini(struct yb_mailbox *mailbox)
{
    YB_ASSERT_OBJ(mailbox, MAILBOX_MAGIC);
    YB_ASSERT(mailbox->ready == NULL);
    /* Relaxed: whoever ends the mailbox has already waited for every poster by other means. */
    YB_ASSERT(atomic_load_explicit(&mailbox->head, memory_order_relaxed) <= HEAD_ASLEEP);
    mailbox->magic = 0;
}

void
yb_mail_init(struct yb_mail *mail, void (*run)(struct yb_mail *mail))
{
    YB_ASSERT(run != NULL);
    mail->next = NULL;
    mail->run = run;
    mail->mailbox = NULL;
    mail->is_request = false;
}

static void
push(struct yb_mailbox *mailbox, struct yb_mail *mail)
{
    /* Relaxed: the value is only a guess that the exchange below confirms; nothing is read
     * through it. */
    uintptr_t head = atomic_load_explicit(&mailbox->head, memory_order_relaxed);

    YB_ASSERT(mail->mailbox == NULL);
    YB_ASSERT(mail->run != NULL);
    mail->mailbox = mailbox;
    do {
        mail->next = head <= HEAD_ASLEEP ? NULL : (struct yb_mail *)head;
        /* Release on success: the mail and the request around it are written before the owner's
         * acquiring exchange in take_all() finds them. Pushes that follow are read-modify-writes,
         * so they carry this release on. Relaxed on failure: see above. */
    } while (!atomic_compare_exchange_weak_explicit(&mailbox->head, &head, (uintptr_t)mail,
                                                    memory_order_release, memory_order_relaxed));
    if (head == HEAD_ASLEEP) {
        mailbox->wake(mailbox->context); /* M4: only one push can have replaced ASLEEP. */
    }
}

enum yb_status
yb_mailbox_try_post(struct yb_mailbox *mailbox, struct yb_mail *mail)
{
    uint32_t pending;

    YB_ASSERT_OBJ(mailbox, MAILBOX_MAGIC);
    /* Relaxed throughout: the count guards no memory. It is one word, so it cannot pass
     * `capacity` whatever the order in which others see it. */
    pending = atomic_load_explicit(&mailbox->pending_count, memory_order_relaxed);
    do {
        if (pending >= mailbox->capacity) {
            return YB_AGAIN; /* M3 */
        }
    } while (!atomic_compare_exchange_weak_explicit(&mailbox->pending_count, &pending, pending + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    mail->is_request = true;
    push(mailbox, mail);
    return YB_OK;
}

void
yb_mailbox_post_reply(struct yb_mailbox *mailbox, struct yb_mail *mail)
{
    YB_ASSERT_OBJ(mailbox, MAILBOX_MAGIC);
    mail->is_request = false;
    push(mailbox, mail);
}

/* Take everything that was posted and return it, oldest first. */
static struct yb_mail *
take_all(struct yb_mailbox *mailbox)
{
    /* Acquire: pairs with the release of every push whose mail is in the list. */
    uintptr_t head = atomic_exchange_explicit(&mailbox->head, HEAD_EMPTY, memory_order_acquire);
    struct yb_mail *newest = head <= HEAD_ASLEEP ? NULL : (struct yb_mail *)head;
    struct yb_mail *oldest = NULL;

    YB_ASSERT(head != HEAD_ASLEEP); /* The owner is awake while it runs mail. */
    while (newest != NULL) {
        struct yb_mail *older = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    return oldest;
}

uint32_t
yb_mailbox_run(struct yb_mailbox *mailbox, uint32_t budget)
{
    uint32_t ran_count = 0;

    YB_ASSERT_OBJ(mailbox, MAILBOX_MAGIC);
    YB_ASSERT(!mailbox->running);
    mailbox->running = true;
    while (ran_count < budget) {
        struct yb_mail *mail = mailbox->ready;

        if (mail == NULL) {
            mail = take_all(mailbox);
        }
        if (mail == NULL) {
            break;
        }
        YB_ASSERT(mail->mailbox == mailbox);
        mailbox->ready = mail->next;
        mail->next = NULL;
        mail->mailbox = NULL;
        if (mail->is_request) {
            /* Relaxed: see try_post. */
            atomic_fetch_sub_explicit(&mailbox->pending_count, 1, memory_order_relaxed);
        }
        ran_count++;
        mail->run(mail); /* May free the mail: it is not touched again. */
    }
    mailbox->running = false;
    return ran_count;
}

bool
yb_mailbox_sleep_prepare(struct yb_mailbox *mailbox)
{
    uintptr_t expected = HEAD_EMPTY;

    YB_ASSERT_OBJ(mailbox, MAILBOX_MAGIC);
    YB_ASSERT(!mailbox->running);
    if (mailbox->ready != NULL) {
        return false;
    }
    /* Relaxed: the word itself is the whole message; what the mail says is acquired later, in
     * take_all(). */
    return atomic_compare_exchange_strong_explicit(&mailbox->head, &expected, HEAD_ASLEEP,
                                                   memory_order_relaxed, memory_order_relaxed);
}

void
yb_mailbox_sleep_finish(struct yb_mailbox *mailbox)
{
    uintptr_t expected = HEAD_ASLEEP;

    YB_ASSERT_OBJ(mailbox, MAILBOX_MAGIC);
    /* Relaxed, and failure is fine: a post has replaced ASLEEP already. */
    (void)atomic_compare_exchange_strong_explicit(&mailbox->head, &expected, HEAD_EMPTY,
                                                  memory_order_relaxed, memory_order_relaxed);
}
