/* SPDX-License-Identifier: Apache-2.0
 *
 * Notifications of any length in messages of a bounded one. Each part stands alone, so that parts
 * of several senders may come in any order:
 *
 *     0   4  "YBN1"
 *     4   4  bytes of the name            then the bytes of this part: name and text in one row,
 *     8   4  bytes of the text            cut every PART_BYTES
 *     12  4  which part
 *     16  4  of how many
 *     20  4  0
 *     24  8  number that the sender gave
 *
 * Numbers are little-endian. A message without that head, of a program that uses the engine below,
 * is a text without a name.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/engine_internal.h"

#define HEAD_BYTES  32u
#define PART_BYTES  (4096u - HEAD_BYTES)
#define TEXTS_MAX   (1024u * 1024u) /* As the known system's own limit of a message. */
#define PARTS_MAX   (TEXTS_MAX / PART_BYTES + 1)
#define MAGIC_BYTES "YBN1"

struct head {
    uint64_t number;
    uint32_t name_bytes;
    uint32_t text_bytes;
    uint32_t part;
    uint32_t parts;
};

/* A notification of which parts are missing. */
struct yb_compat_engine_partial {
    struct yb_compat_engine_partial *next;
    struct yb_id from;
    struct head head;
    uint32_t missing;
    bool there[PARTS_MAX];
    char *texts;
};

static uint32_t
parts_of(uint64_t bytes)
{
    return bytes == 0 ? 1 : (uint32_t)((bytes + PART_BYTES - 1) / PART_BYTES);
}

/* ---- sending --------------------------------------------------------------------------------- */

enum yb_status
yb_compat_engine_message_init(struct yb_compat_engine *engine,
                              const struct yb_compat_notify *notify,
                              struct yb_compat_engine_message *message_out)
{
    struct yb_compat_engine_message message = {.notify = *notify};
    size_t bytes;

    if (notify->name_bytes > TEXTS_MAX || notify->text_bytes > TEXTS_MAX - notify->name_bytes) {
        return YB_TOO_LARGE;
    }
    bytes = notify->name_bytes + notify->text_bytes;
    message.parts = parts_of(bytes);
    message.texts = malloc(bytes + 1);
    if (message.texts == NULL) {
        return YB_NO_MEMORY;
    }
    if (notify->name_bytes > 0) {
        memcpy(message.texts, notify->name, notify->name_bytes);
    }
    if (notify->text_bytes > 0) {
        memcpy(message.texts + notify->name_bytes, notify->text, notify->text_bytes);
    }
    yb_lock_acquire(&engine->lock);
    message.number = ++engine->message;
    yb_lock_release(&engine->lock);
    *message_out = message;
    return YB_OK;
}

void
yb_compat_engine_message_fini(struct yb_compat_engine_message *message)
{
    free(message->texts);
    message->texts = NULL;
}

static void
put_u32(uint8_t *at, uint64_t value)
{
    uint32_t little = htole32((uint32_t)value);

    memcpy(at, &little, sizeof(little));
}

static uint32_t
get_u32(const uint8_t *at)
{
    uint32_t little;

    memcpy(&little, at, sizeof(little));
    return le32toh(little);
}

uint32_t
yb_compat_engine_message_part(const struct yb_compat_engine_message *message, uint32_t index,
                              uint8_t part_out[4096])
{
    uint64_t bytes = message->notify.name_bytes + message->notify.text_bytes;
    uint64_t at = (uint64_t)index * PART_BYTES;
    uint64_t length = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;

    YB_ASSERT(index < message->parts && at <= bytes);
    memset(part_out, 0, HEAD_BYTES);
    memcpy(part_out, MAGIC_BYTES, 4);
    put_u32(part_out + 4, message->notify.name_bytes);
    put_u32(part_out + 8, message->notify.text_bytes);
    put_u32(part_out + 12, index);
    put_u32(part_out + 16, message->parts);
    put_u32(part_out + 24, message->number);
    put_u32(part_out + 28, message->number >> 32);
    memcpy(part_out + HEAD_BYTES, message->texts + at, length);
    return (uint32_t)(HEAD_BYTES + length);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Read a head; false: the message has none. */
static bool
read_head(const struct yb_transfer_notification *found, struct head *head_out)
{
    const uint8_t *at = found->payload;
    uint64_t texts;
    uint64_t first;

    if (found->bytes < HEAD_BYTES || memcmp(at, MAGIC_BYTES, 4) != 0) {
        return false;
    }
    *head_out = (struct head){
        .name_bytes = get_u32(at + 4),
        .text_bytes = get_u32(at + 8),
        .part = get_u32(at + 12),
        .parts = get_u32(at + 16),
        .number = (uint64_t)get_u32(at + 28) << 32 | get_u32(at + 24),
    };
    texts = (uint64_t)head_out->name_bytes + head_out->text_bytes;
    if (texts > TEXTS_MAX || head_out->parts != parts_of(texts) ||
        head_out->part >= head_out->parts) {
        return false;
    }
    first = (uint64_t)head_out->part * PART_BYTES;
    return found->bytes - HEAD_BYTES == (texts - first < PART_BYTES ? texts - first : PART_BYTES);
}

/* Return the notification that a part belongs to; NULL: no memory. */
static struct yb_compat_engine_partial *
partial_locked(struct yb_compat_engine *engine, struct yb_id from, const struct head *head)
{
    struct yb_compat_engine_partial *partial = engine->partials;

    yb_lock_assert_held(&engine->lock);
    while (partial != NULL &&
           (!yb_id_equal(partial->from, from) || partial->head.number != head->number)) {
        partial = partial->next;
    }
    if (partial != NULL) {
        return partial->head.name_bytes == head->name_bytes &&
                       partial->head.text_bytes == head->text_bytes
                   ? partial
                   : NULL;
    }
    partial = calloc(1, sizeof(*partial));
    if (partial == NULL) {
        return NULL;
    }
    partial->from = from;
    partial->head = *head;
    partial->missing = head->parts;
    partial->texts = malloc((size_t)head->name_bytes + head->text_bytes + 1);
    if (partial->texts == NULL) {
        free(partial);
        return NULL;
    }
    partial->next = engine->partials;
    engine->partials = partial;
    engine->partial_count++;
    return partial;
}

static void
drop_locked(struct yb_compat_engine *engine, struct yb_compat_engine_partial *partial)
{
    struct yb_compat_engine_partial **link = &engine->partials;

    yb_lock_assert_held(&engine->lock);
    while (*link != partial) {
        link = &(*link)->next;
    }
    *link = partial->next;
    engine->partial_count--;
    free(partial->texts);
    free(partial);
}

static char *
copy_of(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);

    if (copy != NULL) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

static bool
hand_out(const char *texts, size_t name_bytes, size_t text_bytes,
         struct yb_compat_notified *notified_out)
{
    struct yb_compat_notified notified = {
        .name = copy_of(texts, name_bytes),
        .text = copy_of(texts + name_bytes, text_bytes),
        .name_bytes = name_bytes,
        .text_bytes = text_bytes,
    };

    if (notified.name == NULL || notified.text == NULL) {
        free(notified.name);
        free(notified.text);
        return false;
    }
    *notified_out = notified;
    return true;
}

/* Take a part in; true: it was the last one that was missing, and the whole was handed out. */
static bool
take_part(struct yb_compat_engine *engine, const struct yb_transfer_notification *found,
          const struct head *head, struct yb_compat_notified *notified_out)
{
    struct yb_compat_engine_partial *partial;
    bool whole = false;

    yb_lock_acquire(&engine->lock);
    partial = partial_locked(engine, found->from, head);
    if (partial != NULL && !partial->there[head->part]) {
        memcpy(partial->texts + (size_t)head->part * PART_BYTES, found->payload + HEAD_BYTES,
               found->bytes - HEAD_BYTES);
        partial->there[head->part] = true;
        partial->missing--;
    }
    if (partial != NULL && partial->missing == 0) {
        whole = hand_out(partial->texts, head->name_bytes, head->text_bytes, notified_out);
        drop_locked(engine, partial);
    }
    if (engine->partial_count > YB_COMPAT_PARTIALS_MAX) {
        struct yb_compat_engine_partial *oldest = engine->partials;

        while (oldest->next != NULL) {
            oldest = oldest->next;
        }
        drop_locked(engine, oldest); /* Its sender was lost in the middle. */
    }
    yb_lock_release(&engine->lock);
    return whole;
}

bool
yb_compat_engine_next_notify(struct yb_compat_engine *engine,
                             struct yb_compat_notified *notified_out)
{
    struct yb_transfer_notification found;

    if (!yb_compat_engine_ready(engine)) {
        return false;
    }
    while (yb_transfer_next_notification(engine->transfer, &found) == YB_OK) {
        struct head head;

        if (!read_head(&found, &head)) {
            return hand_out((const char *)found.payload, 0, found.bytes, notified_out);
        }
        if (head.parts == 1) {
            return hand_out((const char *)found.payload + HEAD_BYTES, head.name_bytes,
                            head.text_bytes, notified_out);
        }
        if (take_part(engine, &found, &head, notified_out)) {
            return true;
        }
    }
    return false;
}

void
yb_compat_engine_notify_fini(struct yb_compat_engine *engine)
{
    yb_lock_acquire(&engine->lock);
    while (engine->partials != NULL) {
        drop_locked(engine, engine->partials);
    }
    yb_lock_release(&engine->lock);
}
