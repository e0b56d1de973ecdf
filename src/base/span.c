/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory order. The usual seqlock needs fences; here the words themselves are
 * stored with release and loaded with acquire, which is free on x86-64, cheap
 * on arm64 and understood by ThreadSanitizer. A reader that loads a word of
 * ticket t has therefore also seen the odd sequence that was set before it, so
 * its second look at the sequence cannot still find the older, even value.
 */
#include "base/span.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/lock.h"

#define RING_MAGIC 0x7962736eu

#define SPAN_WORDS (sizeof(struct yb_span) / sizeof(uint64_t))

/* No ticket: tickets count records from zero. */
#define TICKET_NONE UINT64_MAX

struct slot {
    _Atomic uint64_t seq; /* Zero: never written. 2t + 1: ticket t writes. 2t + 2: it is whole. */
    _Atomic uint64_t words[SPAN_WORDS];
};

_Static_assert(sizeof(struct slot) == 112, "stated in the header");

struct yb_span_ring {
    uint32_t magic;
    uint32_t capacity; /* Immutable, a power of two. */
    struct slot *slots;
    struct yb_lock lock; /* Protects the next four. */
    uint64_t cursor;     /* The next ticket to drain. */
    uint64_t drained;
    uint64_t lost;
    uint64_t stuck;                     /* Found unfinished by the last drain, or TICKET_NONE. */
    _Alignas(64) _Atomic uint64_t next; /* Taken by writers with fetch_add. */
    _Atomic uint64_t collided;
};

const char *
yb_span_kind_name(uint8_t kind)
{
    switch (kind) {
#define X(name, value, word, text) \
    case value: return word;
        YB_SPAN_KIND_MAP(X)
#undef X
    default: return "unknown";
    }
}

const char *
yb_span_path_name(uint8_t path)
{
    switch (path) {
#define X(name, value, word) \
    case value: return word;
        YB_SPAN_PATH_MAP(X)
#undef X
    default: return "unknown";
    }
}

const char *
yb_span_tier_name(uint8_t tier)
{
    switch (tier) {
#define X(name, value, word) \
    case value: return word;
        YB_SPAN_TIER_MAP(X)
#undef X
    default: return "unknown";
    }
}

/* ---- the ring ---- */

enum yb_status
yb_span_ring_create(uint32_t capacity, struct yb_span_ring **ring_out)
{
    struct yb_span_ring *ring;

    YB_ASSERT(ring_out != NULL);
    if (capacity < 2 || capacity > YB_SPAN_CAPACITY_MAX || (capacity & (capacity - 1)) != 0) {
        return YB_INVALID;
    }
    ring = aligned_alloc(64, sizeof(*ring));
    if (ring == NULL) {
        goto err;
    }
    memset(ring, 0, sizeof(*ring));
    ring->slots = calloc(capacity, sizeof(*ring->slots));
    if (ring->slots == NULL) {
        goto err_free_ring;
    }
    ring->capacity = capacity;
    ring->stuck = TICKET_NONE;
    yb_lock_init(&ring->lock, YB_LOCK_SPAN);
    ring->magic = RING_MAGIC;
    *ring_out = ring;
    return YB_OK;

err_free_ring:
    free(ring);
err:
    return YB_NO_MEMORY;
}

void
yb_span_ring_destroy(struct yb_span_ring **ring_ref)
{
    struct yb_span_ring *ring = *ring_ref;

    YB_ASSERT_OBJ(ring, RING_MAGIC);
    *ring_ref = NULL;
    ring->magic = 0;
    yb_lock_fini(&ring->lock);
    free(ring->slots);
    free(ring);
}

void
yb_span_write(struct yb_span_ring *ring, const struct yb_span *span)
{
    uint64_t words[SPAN_WORDS];
    uint64_t ticket;
    uint64_t seq;
    struct slot *slot;

    if (ring == NULL) {
        return;
    }
    YB_ASSERT_OBJ(ring, RING_MAGIC);
    YB_ASSERT(span->end_ns >= span->start_ns);
    memcpy(words, span, sizeof(words));
    ticket = atomic_fetch_add_explicit(&ring->next, 1, memory_order_relaxed);
    slot = &ring->slots[ticket & (ring->capacity - 1)];
    seq = atomic_load_explicit(&slot->seq, memory_order_relaxed);
    /* Odd: another writer is in the slot. Larger: this writer was overtaken. A CAS that fails
     * met one of the two. */
    if ((seq & 1) != 0 || seq > 2 * ticket ||
        !atomic_compare_exchange_strong_explicit(&slot->seq, &seq, 2 * ticket + 1,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&ring->collided, 1, memory_order_relaxed);
        return;
    }
    for (size_t i = 0; i < SPAN_WORDS; i++) {
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release); /* R3 */
    }
    atomic_store_explicit(&slot->seq, 2 * ticket + 2, memory_order_release);
}

enum read_result { READ_WHOLE, READ_UNFINISHED, READ_GONE };

/* Copy the record of `ticket`. GONE: overwritten. UNFINISHED: not there yet, or given up. */
static enum read_result
read_slot(const struct yb_span_ring *ring, uint64_t ticket, struct yb_span *span_out)
{
    const struct slot *slot = &ring->slots[ticket & (ring->capacity - 1)];
    uint64_t whole = 2 * ticket + 2;
    uint64_t seq = atomic_load_explicit(&slot->seq, memory_order_acquire);
    uint64_t words[SPAN_WORDS];

    if (seq != whole) {
        return seq > whole ? READ_GONE : READ_UNFINISHED;
    }
    for (size_t i = 0; i < SPAN_WORDS; i++) {
        words[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
    }
    if (atomic_load_explicit(&slot->seq, memory_order_relaxed) != whole) {
        return READ_GONE; /* R1 */
    }
    memcpy(span_out, words, sizeof(words));
    return READ_WHOLE;
}

uint32_t
yb_span_snapshot(const struct yb_span_ring *ring, struct yb_span *spans_out, uint32_t spans_max)
{
    uint64_t next;
    uint64_t wanted;
    uint32_t count = 0;

    YB_ASSERT_OBJ(ring, RING_MAGIC);
    next = atomic_load_explicit(&ring->next, memory_order_relaxed);
    wanted = spans_max < ring->capacity ? spans_max : ring->capacity;
    wanted = wanted < next ? wanted : next;
    for (uint64_t ticket = next - wanted; ticket < next; ticket++) {
        if (read_slot(ring, ticket, &spans_out[count]) == READ_WHOLE) {
            count++;
        }
    }
    return count;
}

uint32_t
yb_span_follow(const struct yb_span_ring *ring, uint64_t *cursor, struct yb_span *spans_out,
               uint32_t spans_max)
{
    uint64_t next;
    uint32_t count = 0;

    YB_ASSERT_OBJ(ring, RING_MAGIC);
    next = atomic_load_explicit(&ring->next, memory_order_relaxed);
    if (*cursor > next) {
        *cursor = next;
    }
    if (next - *cursor > ring->capacity) {
        *cursor = next - ring->capacity;
    }
    while (count < spans_max && *cursor < next) {
        enum read_result result = read_slot(ring, *cursor, &spans_out[count]);

        /* Half a ring later nobody writes it any more: its writer gave it up. */
        if (result == READ_UNFINISHED && next - *cursor <= ring->capacity / 2) {
            break;
        }
        count += result == READ_WHOLE;
        (*cursor)++;
    }
    return count;
}

/* Step over what the writers have overwritten since the last drain. */
static void
skip_overwritten_locked(struct yb_span_ring *ring, uint64_t next)
{
    yb_lock_assert_held(&ring->lock);
    if (next > ring->capacity && next - ring->capacity > ring->cursor) {
        ring->lost += next - ring->capacity - ring->cursor;
        ring->cursor = next - ring->capacity;
    }
}

/* Decide about the unfinished record under the cursor. True: it was given up, go on. */
static bool
give_up_stuck_locked(struct yb_span_ring *ring, uint64_t stuck_before)
{
    if (ring->cursor != stuck_before) {
        ring->stuck = ring->cursor;
        return false;
    }
    ring->lost++;
    ring->cursor++;
    return true;
}

static uint32_t
drain_locked(struct yb_span_ring *ring, struct yb_span *spans_out, uint32_t spans_max)
{
    uint64_t next = atomic_load_explicit(&ring->next, memory_order_relaxed);
    uint64_t stuck_before = ring->stuck;
    uint32_t count = 0;

    ring->stuck = TICKET_NONE;
    skip_overwritten_locked(ring, next);
    while (count < spans_max && ring->cursor < next) {
        enum read_result result = read_slot(ring, ring->cursor, &spans_out[count]);

        if (result == READ_UNFINISHED) {
            if (!give_up_stuck_locked(ring, stuck_before)) {
                break;
            }
            continue;
        }
        ring->cursor++;
        if (result == READ_WHOLE) {
            count++;
        } else {
            ring->lost++;
        }
    }
    ring->drained += count;
    return count;
}

uint32_t
yb_span_drain(struct yb_span_ring *ring, struct yb_span *spans_out, uint32_t spans_max)
{
    uint32_t count;

    YB_ASSERT_OBJ(ring, RING_MAGIC);
    yb_lock_acquire(&ring->lock);
    count = drain_locked(ring, spans_out, spans_max);
    yb_lock_release(&ring->lock);
    return count;
}

void
yb_span_counts(struct yb_span_ring *ring, struct yb_span_counts *counts_out)
{
    YB_ASSERT_OBJ(ring, RING_MAGIC);
    yb_lock_acquire(&ring->lock);
    counts_out->written = atomic_load_explicit(&ring->next, memory_order_relaxed);
    skip_overwritten_locked(ring, counts_out->written);
    counts_out->drained = ring->drained;
    counts_out->lost = ring->lost;
    counts_out->collided = atomic_load_explicit(&ring->collided, memory_order_relaxed);
    yb_lock_release(&ring->lock);
}

uint32_t
yb_span_slowest(const struct yb_span *spans, uint32_t count, struct yb_span *slowest_out,
                uint32_t slowest_max)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t took_ns = spans[i].end_ns - spans[i].start_ns;
        uint32_t place = kept;

        while (place > 0 &&
               slowest_out[place - 1].end_ns - slowest_out[place - 1].start_ns < took_ns) {
            place--;
        }
        if (place == slowest_max) {
            continue;
        }
        kept += kept < slowest_max ? 1u : 0u;
        memmove(&slowest_out[place + 1], &slowest_out[place],
                (kept - place - 1u) * sizeof(slowest_out[0]));
        slowest_out[place] = spans[i];
    }
    return kept;
}

/* ---- trace context ---- */

/* Draws before a generator that returns zeros only is helped out. */
enum { DRAWS_MAX = 4 };

struct yb_id
yb_trace_new_id(yb_span_random_fn *fill, void *context)
{
    struct yb_id id = {{0}};

    for (int i = 0; i < DRAWS_MAX && yb_id_is_none(id); i++) {
        fill(context, id.bytes, sizeof(id.bytes));
    }
    if (yb_id_is_none(id)) {
        id.bytes[15] = 1;
    }
    return id;
}

uint64_t
yb_span_new_id(yb_span_random_fn *fill, void *context)
{
    uint64_t id = 0;

    for (int i = 0; i < DRAWS_MAX && id == 0; i++) {
        fill(context, &id, sizeof(id));
    }
    return id == 0 ? 1 : id;
}

/* Read `digits` (at most 16) lower-case hex digits; the Recommendation allows no others. */
static bool
parse_hex(const char *text, uint32_t digits, uint64_t *value_out)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < digits; i++) {
        char digit = text[i];

        if (digit >= '0' && digit <= '9') {
            value = value << 4 | (uint64_t)(digit - '0');
        } else if (digit >= 'a' && digit <= 'f') {
            value = value << 4 | (uint64_t)(digit - 'a' + 10);
        } else {
            return false;
        }
    }
    *value_out = value;
    return true;
}

static bool
parse_trace_id(const char *text, struct yb_id *id_out)
{
    for (uint32_t i = 0; i < sizeof(id_out->bytes); i++) {
        uint64_t byte;

        if (!parse_hex(text + 2 * i, 2, &byte)) {
            return false;
        }
        id_out->bytes[i] = (uint8_t)byte;
    }
    return !yb_id_is_none(*id_out);
}

/*  0  3                                36               53
 *  00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 */
enum { AT_TRACE = 3, AT_PARENT = 36, AT_FLAGS = 53 };

enum yb_status
yb_traceparent_parse(const char *text, size_t length, struct yb_trace_context *context_out)
{
    struct yb_trace_context context;
    uint64_t version;
    uint64_t flags;

    if (length < YB_TRACEPARENT_LENGTH || !parse_hex(text, 2, &version) || version == 0xff) {
        return YB_INVALID;
    }
    if (length > YB_TRACEPARENT_LENGTH && (version == 0 || text[YB_TRACEPARENT_LENGTH] != '-')) {
        return YB_INVALID;
    }
    if (text[AT_TRACE - 1] != '-' || text[AT_PARENT - 1] != '-' || text[AT_FLAGS - 1] != '-') {
        return YB_INVALID;
    }
    if (!parse_trace_id(text + AT_TRACE, &context.trace) ||
        !parse_hex(text + AT_PARENT, 16, &context.parent) || context.parent == 0 ||
        !parse_hex(text + AT_FLAGS, 2, &flags)) {
        return YB_INVALID;
    }
    context.sampled = (flags & 1) != 0;
    *context_out = context;
    return YB_OK;
}

void
yb_traceparent_format(const struct yb_trace_context *context,
                      char text_out[YB_TRACEPARENT_LENGTH + 1])
{
    static const char digits[] = "0123456789abcdef";

    YB_ASSERT(!yb_id_is_none(context->trace));
    YB_ASSERT(context->parent != 0);
    memcpy(text_out, "00-", 3);
    yb_id_format(context->trace, text_out + AT_TRACE);
    text_out[AT_PARENT - 1] = '-';
    for (uint32_t i = 0; i < 16; i++) {
        text_out[AT_PARENT + i] = digits[(context->parent >> (60u - 4u * i)) & 15u];
    }
    /* Flags without a meaning must be sent as zero. */
    memcpy(text_out + AT_FLAGS - 1, context->sampled ? "-01" : "-00", 4);
}
