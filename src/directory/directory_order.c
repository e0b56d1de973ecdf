/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes are told to do, and the answers that wait for it.
 *
 * Orders of a slot are numbered, sent in order and confirmed in order: one call at a time with all
 * that waits, sent again until it is answered OK, whatever happens to connections. So "this slot
 * has dropped it" is a comparison of two numbers, and an answer that has to wait for several slots
 * waits in the list of one of them after the other.
 */
#include "directory/directory_internal.h"

#include <stdlib.h>
#include <string.h>

#define ORDERS_FIRST 64u
#define RETRY_MIN_NS (10 * YB_NS_PER_MS)
#define RETRY_MAX_NS (500 * YB_NS_PER_MS)
#define HOLD_ROOM    ((size_t)YB_DIRECTORY_HOLDS_MAX * YB_WIRE_HOLD_ITEM_BYTES)
#define HOLD_SPARE   8u   /* This part of a hold is added to it ... */
#define SPARE_MS_MAX 500u /* ... but no more. */
#define HOLD_REST_NS (100 * YB_NS_PER_MS)
#define NEVER_NUMBER UINT64_MAX

static void settle_advance(struct yb_directory *directory, struct yb_directory_settle *settle);
static void send_orders(struct yb_directory_port *port);

static void
mark_dirty(struct yb_directory_port *port)
{
    struct yb_directory *directory = port->directory;

    if (!port->dirty && !directory->stopping) {
        port->dirty = true;
        port->dirty_next = directory->dirty;
        directory->dirty = port;
        yb_loop_defer(directory->loop, &directory->send_task);
    }
}

/* ---- answers that wait ----------------------------------------------------------------------- */

struct yb_directory_settle *
yb_directory_settle_begin(struct yb_directory *directory)
{
    struct yb_directory_settle *settle;

    if (directory->settle_count >= YB_DIRECTORY_SETTLES_MAX) {
        return NULL;
    }
    settle = calloc(1, sizeof(*settle));
    if (settle != NULL) {
        directory->settle_count++;
    }
    return settle;
}

static void
settle_free(struct yb_directory *directory, struct yb_directory_settle *settle)
{
    for (uint32_t i = 0; i < settle->show_count; i++) {
        yb_hidden_show(directory->hidden, &settle->shows[i]);
    }
    directory->settle_count--;
    free(settle->shows);
    free(settle->waits);
    free(settle->body);
    free(settle);
}

void
yb_directory_settle_wait(struct yb_directory *directory, struct yb_directory_settle *settle,
                         uint16_t slot, uint64_t number)
{
    const struct yb_directory_port *port = directory->ports[slot];

    if (port == NULL || !port->open || port->confirmed >= number) {
        return;
    }
    for (uint32_t i = 0; i < settle->wait_count; i++) {
        if (settle->waits[i].slot == slot) {
            settle->waits[i].number =
                settle->waits[i].number > number ? settle->waits[i].number : number;
            return;
        }
    }
    if (settle->wait_count == settle->wait_room) {
        uint32_t room = settle->wait_room > 0 ? settle->wait_room * 2 : 8;
        struct yb_directory_wait *waits = realloc(settle->waits, room * sizeof(*waits));

        YB_ASSERT(waits != NULL); /* A few kilobytes; an answer that is not true is worse. */
        settle->waits = waits;
        settle->wait_room = room;
    }
    settle->waits[settle->wait_count++] =
        (struct yb_directory_wait){.slot = slot, .life = port->life, .number = number};
}

void
yb_directory_settle_hide(struct yb_directory *directory, struct yb_directory_settle *settle,
                         const struct yb_hidden_name *name)
{
    if (settle->show_count == settle->show_room) {
        uint32_t room = settle->show_room > 0 ? settle->show_room * 2 : 8;
        struct yb_hidden_name *shows = realloc(settle->shows, room * sizeof(*shows));

        YB_ASSERT(shows != NULL); /* As for what is waited for. */
        settle->shows = shows;
        settle->show_room = room;
    }
    YB_ASSERT(yb_hidden_hide(directory->hidden, name) == YB_OK);
    settle->shows[settle->show_count++] = *name;
}

static uint32_t *
pending_drops(struct yb_directory *directory, struct yb_id hash)
{
    return &directory->drops_pending[hash.bytes[0] | (uint32_t)hash.bytes[1] << 8];
}

/* Return the number of the last order of a slot that is about a block; 0: there is none. */
static uint64_t
last_order(const struct yb_directory_port *port, uint32_t tenant, struct yb_id hash)
{
    if (port->overflowed) {
        return NEVER_NUMBER; /* Some of its orders were not remembered. */
    }
    for (uint32_t i = port->order_count; i > 0; i--) {
        const struct yb_directory_order *order =
            &port->orders[(port->order_first + i - 1) & (port->order_room - 1)];

        if (order->tenant == tenant &&
            (order->kind == YB_DIRECTORY_FLUSH || yb_id_equal(order->hash, hash))) {
            return port->confirmed + i;
        }
    }
    return 0;
}

bool
yb_directory_settle_wait_for(struct yb_directory *directory, struct yb_directory_settle *settle,
                             uint32_t tenant, struct yb_id hash)
{
    bool waits = false;

    if (*pending_drops(directory, hash) == 0 && directory->flushes_pending == 0 &&
        directory->ports_overflowed == 0) {
        return false;
    }
    for (uint32_t i = 1; i <= YB_MEMBERS_SLOTS_MAX; i++) {
        const struct yb_directory_port *port = directory->ports[i];
        uint64_t number = port != NULL && port->open ? last_order(port, tenant, hash) : 0;

        if (number != 0) {
            yb_directory_settle_wait(directory, settle, (uint16_t)i, number);
            waits = true;
        }
    }
    return waits;
}

/* Count an order that is pending from now on (1), or no longer (-1). */
static void
count_pending(struct yb_directory *directory, const struct yb_directory_order *order, int by)
{
    uint32_t *counter = order->kind == YB_DIRECTORY_FLUSH ? &directory->flushes_pending
                                                          : pending_drops(directory, order->hash);

    *counter += (uint32_t)by;
    directory->orders_pending += (uint32_t)by;
}

static void
settle_finish(struct yb_directory *directory, struct yb_directory_settle *settle)
{
    struct yb_request *request = settle->request;

    if (settle->flush) {
        struct yb_wire_flushed flushed = {
            .flush = settle->flush_epoch,
            .count = settle->flush_count,
        };
        uint8_t body[YB_WIRE_FLUSHED_BYTES_MAX];
        size_t length = 0;

        YB_ASSERT(yb_wire_flushed_encode(&flushed, body, sizeof(body), &length) == YB_OK);
        yb_request_reply(request, settle->status, body, (uint32_t)length, NULL, 0);
    } else {
        yb_request_reply(request, settle->status, settle->body, settle->body_bytes, NULL, 0);
    }
    settle_free(directory, settle);
}

/* Go on to the first thing that is still to be waited for. */
static void
settle_advance(struct yb_directory *directory, struct yb_directory_settle *settle)
{
    for (; settle->wait_at < settle->wait_count; settle->wait_at++) {
        const struct yb_directory_wait *wait = &settle->waits[settle->wait_at];
        struct yb_directory_port *port = directory->ports[wait->slot];

        if (port->open && port->life == wait->life && port->confirmed < wait->number) {
            settle->next = port->settles;
            port->settles = settle;
            return;
        }
    }
    if (settle->after_rebuild && directory->rebuilding) {
        settle->next = directory->after_rebuild;
        directory->after_rebuild = settle;
        return;
    }
    settle_finish(directory, settle);
}

void
yb_directory_settle_go(struct yb_directory *directory, struct yb_directory_settle *settle,
                       struct yb_request *request, enum yb_status status, const uint8_t *body,
                       size_t body_bytes)
{
    settle->request = request;
    settle->status = status;
    if (body_bytes > 0) {
        settle->body = malloc(body_bytes);
        YB_ASSERT(settle->body != NULL);
        memcpy(settle->body, body, body_bytes);
        settle->body_bytes = (uint32_t)body_bytes;
    }
    settle_advance(directory, settle);
}

static void
advance_list(struct yb_directory *directory, struct yb_directory_settle **list)
{
    struct yb_directory_settle *settle = *list;

    *list = NULL;
    while (settle != NULL) {
        struct yb_directory_settle *next = settle->next;

        settle_advance(directory, settle);
        settle = next;
    }
}

void
yb_directory_settles_rebuilt(struct yb_directory *directory)
{
    advance_list(directory, &directory->after_rebuild);
}

static void
end_list(struct yb_directory *directory, struct yb_directory_settle **list)
{
    while (*list != NULL) {
        struct yb_directory_settle *settle = *list;

        *list = settle->next;
        yb_directory_refuse(settle->request, YB_CLOSED);
        settle_free(directory, settle);
    }
}

/* ---- ordering -------------------------------------------------------------------------------- */

/* Make room for one more order. */
static bool
make_room(struct yb_directory_port *port)
{
    uint32_t room = port->order_room > 0 ? port->order_room * 2 : ORDERS_FIRST;
    struct yb_directory_order *orders;

    if (port->order_count < port->order_room) {
        return true;
    }
    orders = room <= YB_DIRECTORY_ORDERS_MAX ? malloc(room * sizeof(*orders)) : NULL;
    if (orders == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < port->order_count; i++) {
        orders[i] = port->orders[(port->order_first + i) & (port->order_room - 1)];
    }
    free(port->orders);
    port->orders = orders;
    port->order_room = room;
    port->order_first = 0;
    return true;
}

uint64_t
yb_directory_order(struct yb_directory *directory, uint16_t slot,
                   const struct yb_directory_order *order)
{
    struct yb_directory_port *port = directory->ports[slot];

    if (port == NULL || !port->open) {
        return 0;
    }
    if (port->overflowed || !make_room(port)) {
        struct yb_members_slot *member = yb_members_at(directory->members, slot);

        if (!port->overflowed) {
            yb_log_warn(directory->options.log, "directory",
                        "a node does not confirm drops; it is fenced",
                        yb_log_str("name", member->facts.name), yb_log_u64("slot", slot),
                        yb_log_u64("unconfirmed", port->order_count));
        }
        directory->ports_overflowed += port->overflowed ? 0 : 1;
        port->overflowed = true;
        yb_directory_fence(directory, member);
        return NEVER_NUMBER; /* Until it is dead. */
    }
    port->orders[(port->order_first + port->order_count) & (port->order_room - 1)] = *order;
    port->order_count++;
    port->issued++;
    count_pending(directory, order, 1);
    yb_directory_count(directory, YB_DIRECTORY_STAT_ORDERS, 1);
    mark_dirty(port);
    return port->issued;
}

static bool
is_repeated(const struct yb_index_result *result, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (result->dropped[i].slot == result->dropped[index].slot) {
            return true;
        }
    }
    return false;
}

void
yb_directory_drop(struct yb_directory *directory, const struct yb_index_op *op,
                  const struct yb_index_result *result, enum yb_directory_order_kind reason,
                  struct yb_directory_settle *settle)
{
    struct yb_directory_order order = {
        .hash = op->hash,
        .number = result->dropped_grant,
        .tenant = op->tenant,
        .kind = (uint8_t)reason,
    };

    for (uint32_t i = 0; i < result->dropped_count; i++) {
        uint64_t number;

        if (is_repeated(result, i)) { /* One order is for all tiers of a slot. */
            continue;
        }
        number = yb_directory_order(directory, result->dropped[i].slot, &order);

        if (settle != NULL) {
            yb_directory_settle_wait(directory, settle, result->dropped[i].slot, number);
        }
    }
}

/* Queue a wish about a block. Those beyond the bound are lost: returns false. */
static bool
wish(struct yb_directory *directory, uint16_t slot, const struct yb_wire_hold_item *item)
{
    struct yb_directory_port *port = directory->ports[slot];

    if (port == NULL || !port->open) {
        return false;
    }
    if (port->holds == NULL) {
        port->holds = malloc(HOLD_ROOM);
    }
    if (port->holds == NULL || port->hold_count == YB_DIRECTORY_HOLDS_MAX) {
        yb_directory_count(directory, YB_DIRECTORY_STAT_HOLDS_LOST, 1);
        return false;
    }
    yb_wire_hold_item_store(item, port->holds + (size_t)port->hold_count * YB_WIRE_HOLD_ITEM_BYTES);
    port->hold_count++;
    mark_dirty(port);
    return true;
}

/* The node is told of a hold that lasts a little longer than what is promised, so that those who
 * ask again within that time are promised the same without another message. */
void
yb_directory_hold(struct yb_directory *directory, uint16_t slot, struct yb_id hash, uint64_t grant,
                  uint32_t hold_ms)
{
    const struct yb_directory_port *port = directory->ports[slot];
    uint64_t now_ns = yb_directory_now(directory);
    uint64_t now_ms = now_ns / YB_NS_PER_MS;
    uint32_t spare_ms = hold_ms / HOLD_SPARE < SPARE_MS_MAX ? hold_ms / HOLD_SPARE : SPARE_MS_MAX;
    struct yb_wire_hold_item item = {.hash = hash, .grant = grant, .hold_ms = hold_ms + spare_ms};

    if (port == NULL || now_ns < port->hold_after_ns ||
        yb_told_lasts(directory->told, port->hold_life, grant, now_ms + hold_ms)) {
        return;
    }
    if (wish(directory, slot, &item)) {
        yb_told_note(directory->told, port->hold_life, grant, now_ms + item.hold_ms);
    }
}

void
yb_directory_sole(struct yb_directory *directory, uint32_t tenant, struct yb_id hash,
                  uint64_t grant)
{
    struct yb_index_query query = {.tenant = tenant, .now_ms = yb_directory_now_ms(directory)};
    struct yb_wire_hold_item item = {.hash = hash, .grant = grant, .sole = 1};
    struct yb_index_answer found;
    bool alone = true;

    yb_index_lookup(directory->index, &query, &hash, 1, &found);
    for (uint32_t i = 1; i < found.count; i++) {
        alone = alone && found.replicas[i].slot == found.replicas[0].slot;
    }
    if (found.grant == grant && found.count > 0 && alone) {
        (void)wish(directory, found.replicas[0].slot, &item);
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

static const struct yb_members_slot *
member_of(const struct yb_directory_port *port)
{
    return yb_members_at(port->directory->members, port->slot);
}

static void
confirm(struct yb_directory_port *port, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct yb_directory_order *order =
            &port->orders[(port->order_first + i) & (port->order_room - 1)];

        count_pending(port->directory, order, -1);
        if (order->kind == YB_DIRECTORY_DROP_TRIMMED) {
            yb_trims_confirm(port->directory->trims, port->slot, order->number);
        }
    }
    port->order_first = (port->order_first + count) & (port->order_room - 1);
    port->order_count -= count;
    port->confirmed += count;
    advance_list(port->directory, &port->settles);
}

static void
retry_later(struct yb_directory_port *port)
{
    struct yb_directory *directory = port->directory;

    yb_directory_count(directory, YB_DIRECTORY_STAT_ORDER_RETRIES, 1);
    port->retry_ns = port->retry_ns == 0 ? RETRY_MIN_NS : port->retry_ns * 2;
    port->retry_ns = port->retry_ns < RETRY_MAX_NS ? port->retry_ns : RETRY_MAX_NS;
    yb_loop_arm(directory->loop, &port->retry, yb_directory_now(directory) + port->retry_ns);
}

static void
retry_fired(struct yb_timer *timer)
{
    mark_dirty(
        (struct yb_directory_port *)((uint8_t *)timer - offsetof(struct yb_directory_port, retry)));
}

static void
orders_done(struct yb_call *call)
{
    struct yb_directory_port *port = call->owner;
    struct yb_directory *directory = port->directory;
    const struct yb_directory_order *first;

    port->busy = false;
    directory->calls--;
    if (directory->stopping || !port->open) {
        return;
    }
    if (port->call_life != port->life) {
        mark_dirty(port);
        return;
    }
    if (!call->answered || call->status != YB_OK) {
        retry_later(port);
        return;
    }
    port->retry_ns = 0;
    first = &port->orders[port->order_first];
    if (first->kind == YB_DIRECTORY_FLUSH) {
        struct yb_wire_flush_answer answer;

        if (first->settle != NULL &&
            yb_wire_flush_answer_decode(port->call_reply, call->reply_body_bytes, &answer, NULL) ==
                YB_OK) {
            first->settle->flush_count += answer.count;
        }
    }
    confirm(port, port->call_orders);
    if (port->order_count > 0) {
        mark_dirty(port);
    }
}

/* Write the first orders that are of one kind to the call's body. Returns its length. */
static size_t
encode_orders(struct yb_directory_port *port)
{
    struct yb_directory *directory = port->directory;
    const struct yb_directory_order *first = &port->orders[port->order_first];
    uint64_t incarnation = member_of(port)->incarnation;
    size_t length = 0;

    if (first->kind == YB_DIRECTORY_FLUSH) {
        struct yb_wire_flush_order flush = {
            .epoch = directory->epoch,
            .incarnation = incarnation,
            .flush = first->number,
            .tenant = yb_wire_text_of(yb_tenants_at(directory->tenants, first->tenant)->name),
        };

        port->call_orders = 1;
        YB_ASSERT(yb_wire_flush_order_encode(&flush, port->call_body, YB_WIRE_DROPS_BYTES_MAX,
                                             &length) == YB_OK);
    } else {
        struct yb_wire_drops drops = {
            .epoch = directory->epoch,
            .incarnation = incarnation,
            .reason = first->kind,
            .items = {.wire = directory->list},
        };

        while (drops.items.count < port->order_count &&
               drops.items.count < YB_WIRE_DROPS_ITEMS_MAX) {
            const struct yb_directory_order *order =
                &port->orders[(port->order_first + drops.items.count) & (port->order_room - 1)];
            struct yb_wire_grant_name name = {.hash = order->hash, .grant = order->number};

            if (order->kind != first->kind) {
                break;
            }
            yb_wire_grant_name_store(&name, directory->list + (size_t)drops.items.count *
                                                                  YB_WIRE_GRANT_NAME_BYTES);
            drops.items.count++;
        }
        port->call_orders = drops.items.count;
        YB_ASSERT(yb_wire_drops_encode(&drops, port->call_body, YB_WIRE_DROPS_BYTES_MAX, &length) ==
                  YB_OK);
    }
    return length;
}

static void
send_orders(struct yb_directory_port *port)
{
    struct yb_directory *directory = port->directory;
    bool flush;

    if (port->busy || port->order_count == 0 || yb_timer_is_armed(&port->retry)) {
        return;
    }
    if (port->call_body == NULL) {
        port->call_body = malloc(YB_WIRE_DROPS_BYTES_MAX);
    }
    if (port->call_body == NULL || port->peer == NULL) {
        retry_later(port);
        return;
    }
    flush = port->orders[port->order_first].kind == YB_DIRECTORY_FLUSH;
    port->call = (struct yb_call){
        .type = flush ? YB_WIRE_NODE_TYPE_FLUSH : YB_WIRE_NODE_TYPE_DROP,
        .class = YB_CLASS_THROUGHPUT,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_directory_now(directory) + directory->lease_ns,
        .body = port->call_body,
        .body_bytes = (uint32_t)encode_orders(port),
        .reply_body = port->call_reply,
        .reply_body_room = sizeof(port->call_reply),
        .done = orders_done,
        .owner = port,
    };
    port->call_life = port->life;
    if (yb_peer_call(port->peer, &port->call) != YB_OK) {
        retry_later(port);
        return;
    }
    port->busy = true;
    directory->calls++;
}

/* What the node was told to hold it may not know (any more). */
static void
untell(struct yb_directory_port *port)
{
    port->hold_life = ++port->directory->hold_lives;
}

/* It was not told. Every lookup would try again: not before a while is over. */
static void
rest_holds(struct yb_directory_port *port)
{
    untell(port);
    port->hold_after_ns = yb_directory_now(port->directory) + HOLD_REST_NS;
}

static void
holds_done(struct yb_call *call)
{
    struct yb_directory_port *port = call->owner;

    port->hold_busy = false;
    port->directory->calls--;
    if (call->status != YB_OK) {
        rest_holds(port);
    }
    if (port->open && port->hold_count > 0) {
        mark_dirty(port);
    }
}

/* A hold that does not arrive is not sent again, until it is asked for again: the record keeps it
 * from removal in any case. */
static void
send_holds(struct yb_directory_port *port)
{
    struct yb_directory *directory = port->directory;
    struct yb_wire_holds holds = {
        .epoch = directory->epoch,
        .incarnation = member_of(port)->incarnation,
        .items = {.wire = port->holds, .count = port->hold_count},
    };
    size_t length = 0;

    if (port->hold_busy || port->hold_count == 0) {
        return;
    }
    if (port->hold_body == NULL) {
        port->hold_body = malloc(YB_WIRE_HOLDS_BYTES_MAX);
    }
    port->hold_count = 0;
    if (port->hold_body == NULL || port->peer == NULL) {
        rest_holds(port);
        return;
    }
    YB_ASSERT(yb_wire_holds_encode(&holds, port->hold_body, YB_WIRE_HOLDS_BYTES_MAX, &length) ==
              YB_OK);
    port->hold_call = (struct yb_call){
        .type = YB_WIRE_NODE_TYPE_HOLD,
        .class = YB_CLASS_BACKGROUND,
        .lane = YB_WIRE_LANE_CONTROL,
        .fail_fast = true,
        .deadline_ns = yb_directory_now(directory) + directory->lease_ns,
        .body = port->hold_body,
        .body_bytes = (uint32_t)length,
        .done = holds_done,
        .owner = port,
    };
    if (yb_peer_call(port->peer, &port->hold_call) == YB_OK) {
        port->hold_busy = true;
        directory->calls++;
    } else {
        rest_holds(port);
    }
}

/* Send what this turn has ordered. */
static void
send_all(struct yb_task *task)
{
    struct yb_directory *directory =
        (struct yb_directory *)((uint8_t *)task - offsetof(struct yb_directory, send_task));

    while (directory->dirty != NULL) {
        struct yb_directory_port *port = directory->dirty;

        directory->dirty = port->dirty_next;
        port->dirty = false;
        if (port->open && !directory->stopping) {
            send_orders(port);
            send_holds(port);
        }
    }
}

/* ---- a slot's life --------------------------------------------------------------------------- */

static struct yb_directory_port *
port_at(struct yb_directory *directory, uint16_t slot)
{
    struct yb_directory_port *port = directory->ports[slot];

    if (port == NULL) {
        port = calloc(1, sizeof(*port));
        if (port == NULL) {
            return NULL;
        }
        port->directory = directory;
        port->slot = slot;
        yb_timer_init(&port->retry, retry_fired);
        directory->ports[slot] = port;
        directory->send_task.run = send_all;
    }
    return port;
}

static enum yb_status
connect_port(struct yb_directory_port *port, const struct yb_members_facts *facts)
{
    struct yb_address_list addresses = {.count = 1};
    char why[YB_ADDRESS_WHY_BYTES];

    if (yb_address_parse(facts->address, YB_PORT_NODE, &addresses.items[0], why) != YB_OK) {
        return YB_INVALID;
    }
    memcpy(port->address, facts->address, sizeof(port->address));
    port->identity = facts->identity;
    return yb_peer_create(port->directory->net, &addresses, facts->identity, &port->peer);
}

/* A new stream begins: only what is not confirmed yet is to be heard in it. */
static void
remember_trims(struct yb_directory_port *port)
{
    yb_trims_forget(port->directory->trims, port->slot);
    for (uint32_t i = 0; i < port->order_count; i++) {
        const struct yb_directory_order *order =
            &port->orders[(port->order_first + i) & (port->order_room - 1)];

        YB_ASSERT(order->kind != YB_DIRECTORY_DROP_TRIMMED ||
                  yb_trims_note(port->directory->trims, port->slot, order->number) == YB_OK);
    }
}

enum yb_status
yb_directory_port_open(struct yb_directory *directory, const struct yb_members_slot *slot,
                       bool continues)
{
    struct yb_directory_port *port = port_at(directory, slot->slot);
    bool moved;

    if (port == NULL) {
        return YB_NO_MEMORY;
    }
    if (!continues) {
        port->open = true;
        port->life++;
        port->mirrored = YB_INDEX_SLOT_SERVING;
        port->issued = 0;
        port->confirmed = 0;
        port->overflowed = false;
    }
    untell(port);
    remember_trims(port);
    port->expected = 1;
    port->inventory = false;
    moved = strcmp(port->address, slot->facts.address) != 0 ||
            !yb_id_equal(port->identity, slot->facts.identity);
    if (port->peer != NULL && moved) {
        yb_peer_destroy(&port->peer);
    }
    if (port->order_count > 0) {
        mark_dirty(port); /* Under the new incarnation. */
    }
    return port->peer != NULL ? YB_OK : connect_port(port, &slot->facts);
}

/* Forget what was ordered. */
static void
port_clear(struct yb_directory_port *port)
{
    for (uint32_t i = 0; i < port->order_count; i++) {
        count_pending(port->directory,
                      &port->orders[(port->order_first + i) & (port->order_room - 1)], -1);
    }
    port->directory->ports_overflowed -= port->open && port->overflowed ? 1 : 0;
    yb_trims_forget(port->directory->trims, port->slot);
    port->open = false;
    port->order_first = 0;
    port->order_count = 0;
    port->hold_count = 0;
    port->retry_ns = 0;
    port->drain_walking = false;
    port->drain_cursor = 0;
    port->drain_next_ns = 0;
    if (port->directory->loop != NULL) {
        yb_loop_disarm(port->directory->loop, &port->retry);
    }
    if (port->peer != NULL) {
        yb_peer_destroy(&port->peer);
    }
}

void
yb_directory_port_close(struct yb_directory *directory, uint16_t slot)
{
    struct yb_directory_port *port = directory->ports[slot];

    if (port != NULL && port->open) {
        port_clear(port);
        advance_list(directory, &port->settles);
    }
}

void
yb_directory_ports_stop(struct yb_directory *directory)
{
    yb_loop_undefer(directory->loop, &directory->send_task);
    for (uint32_t i = 1; i <= YB_MEMBERS_SLOTS_MAX; i++) {
        struct yb_directory_port *port = directory->ports[i];

        if (port != NULL) {
            port_clear(port);
            end_list(directory, &port->settles);
        }
    }
    end_list(directory, &directory->after_rebuild);
}

void
yb_directory_ports_free(struct yb_directory *directory)
{
    for (uint32_t i = 1; i <= YB_MEMBERS_SLOTS_MAX; i++) {
        struct yb_directory_port *port = directory->ports[i];

        if (port != NULL) {
            free(port->orders);
            free(port->call_body);
            free(port->holds);
            free(port->hold_body);
            free(port);
        }
    }
}
