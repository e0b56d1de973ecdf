/* SPDX-License-Identifier: Apache-2.0
 *
 * The streams of nodes: what they store, copy, withdraw, and hold from before.
 *
 * Messages of a stream are applied in order of sequence, each once. One that comes early is told
 * which is expected (a gap); one that comes again is answered from what is known and changes
 * nothing: what it brought may have been withdrawn since.
 */
#include "directory/directory_internal.h"

#include <string.h>

#define AHEAD     8u   /* So many items before they are looked at their memory is asked for. */
#define SEEN_BITS 512u /* A filter in front of a walk over up to CHUNK names. */

/* One message. */
struct stream {
    struct yb_directory *directory;
    struct yb_members_slot *slot;
    struct yb_directory_port *port;
    const struct yb_wire_publication *message;
    struct yb_directory_settle *settle; /* NULL: nothing in it can have to wait. */
    uint32_t tenant;
    uint64_t now_ns;
    const uint8_t *key; /* Of the next item. */

    /* Items whose operations are gathered, to be applied together. */
    uint32_t gathered;
    uint64_t seen[SEEN_BITS / 64]; /* Which low bits their names have. */
    struct yb_wire_publish_item items[YB_DIRECTORY_CHUNK];
    const uint8_t *keys[YB_DIRECTORY_CHUNK];
    uint32_t places[YB_DIRECTORY_CHUNK]; /* In the message. */
    bool known[YB_DIRECTORY_CHUNK];      /* A write that has its grant. */
};

static void
answer(struct stream *stream, uint32_t place, enum yb_status status, uint64_t grant, uint32_t flags)
{
    struct yb_wire_grant_answer item = {
        .grant = grant,
        .status = (int32_t)status,
        .flags = flags,
    };

    yb_wire_grant_answer_store(&item, stream->directory->list +
                                          (size_t)place * YB_WIRE_GRANT_ANSWER_BYTES);
}

static struct yb_writes_name
write_name(const struct stream *stream, const struct yb_wire_publish_item *item)
{
    return (struct yb_writes_name){
        .hash = item->hash,
        .write = item->write,
        .tenant = (uint16_t)stream->tenant,
    };
}

static bool
is_put(const struct yb_wire_publish_item *item)
{
    return item->mode == YB_WIRE_MODE_IF_ABSENT || item->mode == YB_WIRE_MODE_REPLACE;
}

/* Return the block's grant if this slot is among its holders, 0 if not. */
static uint64_t
held_grant(struct stream *stream, struct yb_id hash)
{
    struct yb_index_query query = {
        .tenant = stream->tenant,
        .now_ms = stream->now_ns / YB_NS_PER_MS,
    };
    struct yb_index_answer found;

    yb_index_lookup(stream->directory->index, &query, &hash, 1, &found);
    for (uint32_t i = 0; i < found.count; i++) {
        if (found.replicas[i].slot == stream->slot->slot) {
            return found.grant;
        }
    }
    return 0;
}

/* ---- after the index has spoken -------------------------------------------------------------- */

static void
tell(struct stream *stream, uint32_t at, uint8_t kind, uint16_t slot, uint64_t grant)
{
    const struct yb_wire_publish_item *item = &stream->items[at];
    struct yb_directory_news news = {
        .hash = item->hash,
        .grant = grant,
        .parent = kind == YB_WIRE_EVENT_KIND_STORED ? item->parent : 0,
        .size = item->size,
        .tenant = stream->tenant,
        .slot = slot,
        .kind = kind,
        .tier = item->tier,
        .key_bytes = item->key_bytes,
        .key = stream->keys[at],
    };

    yb_directory_event(stream->directory, &news);
}

/* What a new block has put an end to. */
static void
end_older(struct stream *stream, uint32_t at, enum yb_directory_order_kind reason,
          struct yb_directory_settle *settle)
{
    const struct yb_index_result *result = &stream->directory->results[at];

    yb_directory_drop(stream->directory, &stream->directory->ops[at], result, reason, settle);
    for (uint32_t i = 0; i < result->dropped_count; i++) {
        tell(stream, at, YB_WIRE_EVENT_KIND_DROPPED, result->dropped[i].slot,
             result->dropped_grant);
    }
}

/* Blocks of this key that were ended before may still be served somewhere, though nobody was told
 * yet that they are gone: this put is answered when they are not. Returns whether it has to wait
 * for that. */
static bool
wait_for_older(struct stream *stream, const struct yb_wire_publish_item *item)
{
    return stream->settle != NULL && yb_directory_settle_wait_for(stream->directory, stream->settle,
                                                                  stream->tenant, item->hash);
}

/* A block is in the index. While what was removed before it may still be read nobody is told of it;
 * but what takes the place of a block that is shown leaves no gap. */
static void
show_or_hide(struct stream *stream, uint32_t at, bool waits)
{
    struct yb_directory *directory = stream->directory;
    const struct yb_index_result *result = &directory->results[at];
    struct yb_hidden_name name = {
        .hash = stream->items[at].hash,
        .grant = directory->ops[at].grant,
        .tenant = (uint16_t)stream->tenant,
    };

    if (result->dropped_count > 0) {
        yb_hidden_follow(directory->hidden, &name, result->dropped_grant);
    } else if (waits) {
        yb_directory_settle_hide(directory, stream->settle, &name);
    }
}

/* A put: the write that the index has accepted, or not. */
static void
finish_put(struct stream *stream, uint32_t at)
{
    struct yb_directory *directory = stream->directory;
    const struct yb_wire_publish_item *item = &stream->items[at];
    const struct yb_index_result *result = &directory->results[at];
    struct yb_writes_name name = write_name(stream, item);
    uint64_t grant = directory->ops[at].grant;
    bool waits = wait_for_older(stream, item); /* EXISTS, too: it may be hidden. */

    if (result->status == YB_OK) {
        show_or_hide(stream, at, waits);
        if (item->write != 0) {
            yb_writes_granted(directory->writes, &name, grant, stream->now_ns,
                              stream->now_ns + YB_DIRECTORY_WRITE_KEPT_NS);
        }
        tell(stream, at, YB_WIRE_EVENT_KIND_STORED, stream->slot->slot, grant);
        if (item->mode == YB_WIRE_MODE_REPLACE) {
            yb_directory_ended(directory, stream->tenant, item->hash, grant - 1);
        }
        end_older(stream, at, YB_DIRECTORY_DROP_REPLACED,
                  item->mode == YB_WIRE_MODE_REPLACE ? stream->settle : NULL);
        directory->published++;
        yb_directory_count(directory, YB_DIRECTORY_STAT_GRANTED, 1);
        if (item->replicas > result->slots) {
            yb_directory_repair_after(directory, stream->now_ns + 2 * directory->lease_ns);
        }
        answer(stream, stream->places[at], YB_OK, grant,
               result->slots == 1 ? YB_WIRE_ANSWER_FLAG_SOLE : 0);
        return;
    }
    yb_writes_forget(directory->writes, &name);
    yb_writes_wait_end(directory->writes, &name, stream->slot->slot);
    if (result->status == YB_EXISTS) {
        yb_directory_count(directory, YB_DIRECTORY_STAT_LOST_RACES, 1);
        answer(stream, stream->places[at], YB_EXISTS, result->grant, 0);
    } else {
        answer(stream, stream->places[at],
               result->status == YB_NO_MEMORY ? YB_NO_SPACE : result->status, 0, 0);
    }
}

/* Whether the index has no place for a block, or for one more of its replicas. */
static bool
is_full(enum yb_status status)
{
    return status == YB_NO_SPACE || status == YB_NO_MEMORY || status == YB_TOO_LARGE;
}

/* One more copy: of a write that has its grant (A7), or by an order to copy (A6). */
static void
finish_copy(struct stream *stream, uint32_t at)
{
    struct yb_directory *directory = stream->directory;
    const struct yb_wire_publish_item *item = &stream->items[at];
    const struct yb_index_result *result = &directory->results[at];
    uint64_t grant = directory->ops[at].grant;

    if (result->status == YB_OK) {
        tell(stream, at, YB_WIRE_EVENT_KIND_STORED, stream->slot->slot, grant);
        if (stream->known[at]) {
            (void)wait_for_older(stream, item); /* As the first replica's answer. */
        }
        answer(stream, stream->places[at], YB_OK, grant,
               result->slots == 1 ? YB_WIRE_ANSWER_FLAG_SOLE : 0);
    } else if (stream->known[at] && result->status == YB_REFUSED) {
        answer(stream, stream->places[at], YB_STALE, grant, 0); /* It was; it is gone again. */
    } else {
        answer(stream, stream->places[at], is_full(result->status) ? YB_NO_SPACE : YB_REFUSED,
               result->grant, 0);
    }
}

static void
finish_withdrawal(struct stream *stream, uint32_t at)
{
    struct yb_directory *directory = stream->directory;
    const struct yb_index_op *op = &directory->ops[at];
    const struct yb_index_result *result = &directory->results[at];

    if (result->status == YB_OK) {
        yb_directory_count(directory, YB_DIRECTORY_STAT_WITHDRAWN, 1);
        tell(stream, at, YB_WIRE_EVENT_KIND_DROPPED, stream->slot->slot, op->grant);
        if (result->replicas == 0) {
            struct yb_ghost ghost = {
                .hash = op->hash,
                .grant = op->grant,
                .at_ns = stream->now_ns,
                .tenant = op->tenant,
                .slot = stream->slot->slot,
                .size_code = yb_index_size_encode(stream->items[at].size),
                .tier = stream->items[at].tier,
                .fate = YB_WIRE_FATE_EVICTED,
            };

            yb_ghosts_add(directory->ghosts, &ghost);
        } else if (result->slots == 1) {
            yb_directory_sole(directory, op->tenant, op->hash, op->grant);
        }
    }
    answer(stream, stream->places[at], result->status == YB_OK ? YB_OK : YB_NOT_FOUND, op->grant,
           0);
}

static void
finish_inventory(struct stream *stream, uint32_t at)
{
    struct yb_directory *directory = stream->directory;
    const struct yb_index_result *result = &directory->results[at];
    enum yb_status status = result->status;

    if (status == YB_OK) {
        end_older(stream, at, YB_DIRECTORY_DROP_LOST, NULL);
        if (!stream->slot->complete || stream->slot->open) {
            struct yb_writes_name name = write_name(stream, &stream->items[at]);

            tell(stream, at, YB_WIRE_EVENT_KIND_STORED, stream->slot->slot, result->grant);
            if (name.write != 0) { /* Another replica of it may have missed its grant (A7). */
                yb_writes_granted(directory->writes, &name, result->grant, stream->now_ns,
                                  stream->now_ns + YB_DIRECTORY_WRITE_KEPT_NS);
            }
        }
    } else if (is_full(status)) {
        status = YB_NO_SPACE;
    } else {
        status = YB_FENCED; /* Another copy has won, or it is of an older flush: drop it. */
    }
    answer(stream, stream->places[at], status, result->grant,
           status == YB_OK && result->slots == 1 ? YB_WIRE_ANSWER_FLAG_SOLE : 0);
}

/* Apply what was gathered. */
static void
apply(struct stream *stream)
{
    struct yb_directory *directory = stream->directory;

    yb_index_apply(directory->index, directory->ops, stream->gathered,
                   stream->now_ns / YB_NS_PER_MS, directory->results);
    for (uint32_t i = 0; i < stream->gathered; i++) {
        const struct yb_wire_publish_item *item = &stream->items[i];

        if (is_put(item) && !stream->known[i]) {
            finish_put(stream, i);
        } else if (is_put(item) || item->mode == YB_WIRE_MODE_ADD_REPLICA) {
            finish_copy(stream, i);
        } else if (item->mode == YB_WIRE_MODE_WITHDRAW) {
            finish_withdrawal(stream, i);
        } else {
            finish_inventory(stream, i);
        }
    }
    stream->gathered = 0;
    memset(stream->seen, 0, sizeof(stream->seen));
}

/* ---- before ---------------------------------------------------------------------------------- */

static uint32_t
seen_bit(struct yb_id hash)
{
    return (hash.bytes[0] | (uint32_t)hash.bytes[1] << 8) % SEEN_BITS;
}

/* Whether an operation on this key is gathered already: then it has to be seen first. */
static bool
is_gathered(const struct stream *stream, struct yb_id hash)
{
    uint32_t bit = seen_bit(hash);

    if ((stream->seen[bit / 64] >> (bit % 64) & 1) == 0) {
        return false;
    }
    for (uint32_t i = 0; i < stream->gathered; i++) {
        if (yb_id_equal(stream->items[i].hash, hash)) {
            return true;
        }
    }
    return false;
}

/* Whether another replica of this put may have been granted, though nobody remembers it: seen,
 * and removed or replaced since, it would be back with this one, however long ago that was (RULES
 * A7, B5). By an earlier directory it was not if it waits at all of its places: what ends a block
 * is told to whoever has it, and waits no more. */
static bool
may_have_been(struct stream *stream, const struct yb_wire_publish_item *item)
{
    struct yb_writes *writes = stream->directory->writes;
    struct yb_writes_name name = write_name(stream, item);

    if (item->places > 0) {
        return item->places > 1 && yb_writes_waiting(writes, &name, stream->now_ns) < item->places;
    }
    return item->replicas > 1 && item->write != 0 && !yb_writes_whole(writes, stream->now_ns);
}

/* Decide what the index is asked for a put. NO_SPACE: all grants of the epoch are used up. STALE:
 * it is refused, and its writer has to announce it again. IN_DOUBT: so it is, and may have been
 * granted by an earlier directory. */
static enum yb_status
plan_put(struct stream *stream, const struct yb_wire_publish_item *item, struct yb_index_op *op)
{
    struct yb_directory *directory = stream->directory;
    struct yb_writes_name name = write_name(stream, item);
    struct yb_writes_found found = {.grant = 0};
    bool remembered =
        item->write != 0 && yb_writes_find(directory->writes, &name, stream->now_ns, &found);

    if (found.grant != 0) {
        stream->known[stream->gathered] = true;
        op->kind = YB_INDEX_ADD;
        op->grant = found.grant;
        return YB_OK;
    }
    if (!remembered && may_have_been(stream, item)) {
        return item->told != 0 && item->places > 0 ? YB_IN_DOUBT : YB_STALE;
    }
    if (!yb_grant_next(&directory->last_grant)) {
        return YB_NO_SPACE;
    }
    op->kind = item->mode == YB_WIRE_MODE_REPLACE ? YB_INDEX_REPLACE : YB_INDEX_CREATE;
    op->grant = directory->last_grant;
    op->flags = (uint16_t)(op->flags & ~YB_INDEX_VERSIONED);
    return YB_OK;
}

/* Decide whether the node's word on what it holds from before is to be heard. What is known of a
 * slot that never died is complete: its inventory can only take away from it. An item that is not
 * known was dropped by our order while the inventory was under way (RULES A5, A9). */
static enum yb_status
inventory_counts(struct stream *stream, const struct yb_wire_publish_item *item)
{
    const struct yb_members_slot *slot = stream->slot;
    bool below = item->tier != YB_WIRE_TIER_DRAM && item->tier != YB_WIRE_TIER_DEVICE;

    if (item->grant > stream->directory->last_grant || !yb_grant_valid(item->grant)) {
        /* Another cluster gave it, and may still have it there. */
        return item->tier == YB_WIRE_TIER_OBJECT ? YB_REFUSED : YB_FENCED;
    }
    if (held_grant(stream, item->hash) == item->grant) {
        return YB_OK;
    }
    if (!below) {
        return slot->complete ? YB_FENCED : YB_OK;
    }
    /* From before: unless that is over, or nobody knows. */
    return slot->open || !slot->complete
               ? yb_directory_believes(stream->directory, slot, stream->tenant, item)
               : YB_FENCED;
}

/* While members are waited for, a put that an earlier directory was told of waits here: it is
 * remembered where. */
static void
note_who_waits(struct stream *stream, const struct yb_wire_publish_item *item)
{
    struct yb_writes_name name = write_name(stream, item);

    if (stream->directory->rebuilding && is_put(item) && item->write != 0 &&
        (item->told != 0 || item->places != 0)) {
        yb_writes_wait(stream->directory->writes, &name, stream->slot->slot, stream->now_ns,
                       stream->now_ns + YB_DIRECTORY_WRITE_KEPT_NS);
    }
}

/* Whether an item has to wait: nothing is new while members have still to name what they hold
 * (RULES A6, A9). Then comes first what an earlier directory was told of: it may have been granted
 * there, and others have heard that it is there. Of several replicas the other places may still say
 * that they wait, too, for as long as members are waited for (may_have_been). */
static bool
has_to_wait(const struct stream *stream, const struct yb_wire_publish_item *item)
{
    const struct yb_directory *directory = stream->directory;
    struct yb_writes_name name = write_name(stream, item);
    uint32_t waiting;

    if (!directory->rebuilding || (!is_put(item) && item->mode != YB_WIRE_MODE_ADD_REPLICA)) {
        return false;
    }
    waiting = yb_writes_waiting(directory->writes, &name, stream->now_ns);
    return !directory->all_named || !is_put(item) || item->told == 0 ||
           (waiting > 0 && waiting < item->places &&
            !yb_members_awaited_overdue(directory->members));
}

/* Whether an item is about a replica that was trimmed: it is answered. What the node has said
 * before it heard of that does not count (RULES B4). */
static bool
is_over(struct stream *stream, uint32_t place, const struct yb_wire_publish_item *item)
{
    struct yb_trims *trims = stream->directory->trims;
    bool names = item->mode == YB_WIRE_MODE_ADD_REPLICA || item->mode == YB_WIRE_MODE_INVENTORY;

    if (item->mode == YB_WIRE_MODE_TRIMMED) {
        yb_trims_hear(trims, stream->slot->slot, item->grant);
        answer(stream, place, YB_OK, item->grant, 0);
        return true;
    }
    if (!names || !yb_trims_has(trims, stream->slot->slot, item->grant)) {
        return false;
    }
    answer(stream, place, item->mode == YB_WIRE_MODE_ADD_REPLICA ? YB_REFUSED : YB_FENCED,
           item->grant, 0);
    return true;
}

static void
gather(struct stream *stream, uint32_t place, const struct yb_wire_publish_item *item)
{
    struct yb_directory *directory = stream->directory;
    uint32_t at;
    struct yb_index_op *op;
    enum yb_status status;

    note_who_waits(stream, item);
    if (has_to_wait(stream, item)) {
        answer(stream, place, YB_AGAIN, 0, 0);
        return;
    }
    if (is_over(stream, place, item)) {
        return;
    }
    yb_members_decided(stream->slot, item->told);
    if (stream->gathered == YB_DIRECTORY_CHUNK || is_gathered(stream, item->hash)) {
        apply(stream);
    }
    at = stream->gathered;
    op = &directory->ops[at];
    stream->items[at] = *item;
    stream->keys[at] = item->key_bytes > 0 ? stream->key : NULL;
    stream->places[at] = place;
    stream->known[at] = false;
    *op = (struct yb_index_op){
        .hash = item->hash,
        .grant = item->grant,
        .flush_epoch = item->flush,
        .size = item->size,
        .parent = item->parent,
        .tenant = (uint16_t)stream->tenant,
        .flags = yb_index_with_wanted(item->flags, item->replicas > 0 ? item->replicas : 1),
        .replica_count = 1,
        .replicas = {{.slot = stream->slot->slot, .tier = item->tier}},
    };
    if (item->mode == YB_WIRE_MODE_WITHDRAW) {
        op->kind = YB_INDEX_WITHDRAW;
    } else if (item->mode == YB_WIRE_MODE_ADD_REPLICA) {
        op->kind = YB_INDEX_ADD;
    } else if (item->mode == YB_WIRE_MODE_INVENTORY) {
        status = inventory_counts(stream, item);
        op->kind = YB_INDEX_INVENTORY;
        if (status != YB_OK) {
            answer(stream, place, status, 0, 0);
            return;
        }
    } else if ((status = plan_put(stream, item, op)) != YB_OK) {
        struct yb_writes_name name = write_name(stream, item);

        yb_writes_wait_end(directory->writes, &name, stream->slot->slot);
        answer(stream, place, status, 0, 0);
        return;
    }
    stream->seen[seen_bit(item->hash) / 64] |= UINT64_C(1) << seen_bit(item->hash) % 64;
    stream->gathered++;
}

/* Answer an item of a message that was applied before, and change nothing. */
static void
repeat(struct stream *stream, uint32_t place, const struct yb_wire_publish_item *item)
{
    struct yb_directory *directory = stream->directory;
    struct yb_writes_name name = write_name(stream, item);
    uint64_t held = held_grant(stream, item->hash);
    struct yb_writes_found found = {.grant = 0};
    bool known = is_put(item) && yb_writes_find(directory->writes, &name, stream->now_ns, &found) &&
                 found.grant != 0;

    if (item->mode == YB_WIRE_MODE_WITHDRAW || item->mode == YB_WIRE_MODE_TRIMMED) {
        answer(stream, place, YB_OK, item->grant, 0);
    } else if (item->mode == YB_WIRE_MODE_INVENTORY) {
        enum yb_status counts = inventory_counts(stream, item);

        counts = counts == YB_OK && held != item->grant ? YB_FENCED : counts;
        answer(stream, place, counts, held, 0);
    } else if (item->mode == YB_WIRE_MODE_ADD_REPLICA) {
        answer(stream, place, held == item->grant ? YB_OK : YB_REFUSED, held, 0);
    } else if (known && held == found.grant) {
        answer(stream, place, YB_OK, held, 0);
        (void)wait_for_older(stream, item);
    } else if (is_put(item) &&
               yb_writes_waits(directory->writes, &name, stream->slot->slot, stream->now_ns)) {
        answer(stream, place, YB_AGAIN, 0, 0); /* It was told so. */
    } else if (known || yb_writes_complete(directory->writes, stream->now_ns)) {
        answer(stream, place, YB_STALE, known ? found.grant : 0, 0);
    } else {
        answer(stream, place, YB_IN_DOUBT, 0, 0); /* It was granted and forgotten, or refused. */
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Look through the items: whether the keys are there, and whether one of them may have to wait. */
static bool
survey(const struct yb_wire_publication *message, bool *may_wait_out)
{
    uint64_t key_bytes = 0;

    *may_wait_out = false;
    for (uint32_t i = 0; i < message->items.count; i++) {
        struct yb_wire_publish_item item;

        yb_wire_publish_item_at(&message->items, i, &item);
        key_bytes += item.key_bytes;
        *may_wait_out = *may_wait_out || item.mode == YB_WIRE_MODE_REPLACE;
    }
    return key_bytes <= message->keys.length;
}

static void
reply_whole(struct yb_directory *directory, struct yb_request *request, enum yb_status status,
            uint64_t expected)
{
    struct yb_wire_grants grants = {.epoch = directory->epoch, .expected = expected};
    size_t length = 0;

    YB_ASSERT(yb_wire_grants_encode(&grants, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    yb_directory_reply(directory, request, status, length);
}

/* The beginning or the end of an inventory. */
static enum yb_status
turn_phase(struct stream *stream)
{
    struct yb_directory *directory = stream->directory;
    uint16_t slot = stream->slot->slot;
    enum yb_status status = YB_OK;

    if (stream->message->phase == YB_WIRE_PHASE_BEGIN) {
        status = yb_index_inventory_begin(directory->index, slot);
        if (status == YB_AGAIN) {
            yb_directory_sweep_soon(directory);
        }
        stream->port->inventory = stream->port->inventory || status == YB_OK;
        if (status == YB_OK && directory->rebuilding) {
            yb_members_tells(stream->slot);
        }
    } else if (stream->message->phase == YB_WIRE_PHASE_END) {
        if (!stream->port->inventory) {
            return YB_INVALID;
        }
        status = yb_index_inventory_end(directory->index, slot);
        if (status == YB_OK) {
            stream->port->inventory = false;
            yb_members_complete(stream->slot, directory->rebuilding ? stream->message->told : 0);
            yb_directory_sweep_soon(directory);
        }
    } else if (stream->message->phase == YB_WIRE_PHASE_CHUNK && !stream->port->inventory) {
        status = YB_INVALID;
    } else if (stream->message->phase == YB_WIRE_PHASE_LISTED) {
        yb_directory_listed(directory, stream->slot);
    }
    return status;
}

/* Begin to load what is known of the writes further on. */
static void
prefetch(const struct stream *stream, uint32_t place, bool soon)
{
    const struct yb_wire_publish_item_list *items = &stream->message->items;
    struct yb_id hash;

    if (place < items->count) {
        memcpy(&hash,
               items->wire + (size_t)place * YB_WIRE_PUBLISH_ITEM_BYTES +
                   YB_WIRE_PUBLISH_ITEM_AT_HASH,
               sizeof(hash));
        yb_writes_prefetch(stream->directory->writes, hash, soon);
    }
}

static void
take_items(struct stream *stream, bool again)
{
    stream->key = stream->message->keys.bytes;
    for (uint32_t i = 0; i < stream->message->items.count; i++) {
        struct yb_wire_publish_item item;

        prefetch(stream, i + 2 * AHEAD, false);
        prefetch(stream, i + AHEAD, true);
        yb_wire_publish_item_at(&stream->message->items, i, &item);
        if (again) {
            repeat(stream, i, &item);
        } else {
            gather(stream, i, &item);
        }
        stream->key += item.key_bytes;
    }
    if (stream->gathered > 0) {
        apply(stream);
    }
}

static void
reply_items(struct stream *stream, struct yb_request *request)
{
    struct yb_directory *directory = stream->directory;
    struct yb_wire_grants grants = {
        .epoch = directory->epoch,
        .expected = stream->port->expected,
        .grants = {.count = stream->message->items.count, .wire = directory->list},
    };
    size_t length = 0;

    YB_ASSERT(yb_wire_grants_encode(&grants, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    if (stream->settle != NULL) {
        yb_directory_settle_go(directory, stream->settle, request, YB_OK, directory->body, length);
    } else {
        yb_directory_reply(directory, request, YB_OK, length);
    }
}

/* Apply a message of a node that may speak. */
static void
take_message(struct stream *stream, struct yb_request *request)
{
    struct yb_directory *directory = stream->directory;
    const struct yb_wire_publication *message = stream->message;
    uint64_t expected = stream->port->expected;
    bool again = message->sequence < expected;
    bool may_wait, replaces;
    enum yb_status status;

    if (message->sequence > expected) {
        yb_directory_count(directory, YB_DIRECTORY_STAT_GAPS, 1);
        reply_whole(directory, request, YB_AGAIN, expected);
        return;
    }
    yb_directory_count(directory, YB_DIRECTORY_STAT_REPLAYED, again ? 1 : 0);
    if (!survey(message, &may_wait)) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    if (message->items.count > 0) {
        stream->tenant = yb_directory_tenant_named(directory, message->tenant.bytes,
                                                   message->tenant.length, true);
        if (stream->tenant == YB_TENANTS_NONE) {
            yb_directory_refuse(request, YB_NO_SPACE);
            return;
        }
    }
    replaces = may_wait;
    may_wait = may_wait || (directory->orders_pending > 0 && message->items.count > 0);
    stream->settle = may_wait ? yb_directory_settle_begin(directory) : NULL;
    if (may_wait && stream->settle == NULL) {
        reply_whole(directory, request, YB_AGAIN, message->sequence);
        return;
    }
    status = again ? YB_OK : turn_phase(stream);
    if (status == YB_OK && replaces) {
        status = yb_directory_owe(directory); /* Before an older version is ended. */
    }
    if (status != YB_OK) {
        if (stream->settle != NULL) {
            yb_directory_settle_go(directory, stream->settle, request, status, NULL, 0);
        } else {
            reply_whole(directory, request, status, message->sequence);
        }
        return;
    }
    stream->port->expected += again ? 0 : 1;
    take_items(stream, again);
    reply_items(stream, request);
    if (message->phase == YB_WIRE_PHASE_END || (directory->rebuilding && directory->all_named)) {
        yb_directory_rebuild_check(directory);
    }
}

void
yb_directory_handle_publish(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_publication message;
    struct stream stream;
    struct yb_members_slot *slot;

    if (yb_wire_publication_decode(request->body, request->body_bytes, &message, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    slot = yb_members_speaker(directory->members, message.slot, message.incarnation);
    if (slot == NULL || message.epoch != directory->epoch) {
        reply_whole(directory, request, YB_FENCED, 0);
        return;
    }
    stream.directory = directory;
    stream.slot = slot;
    stream.port = directory->ports[slot->slot];
    stream.message = &message;
    stream.settle = NULL;
    stream.tenant = YB_TENANTS_NONE;
    stream.now_ns = yb_directory_now(directory);
    stream.gathered = 0;
    memset(stream.seen, 0, sizeof(stream.seen));
    take_message(&stream, request);
    yb_directory_grow(directory);
}
