/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions that nodes carry out: from a decision to an order, and from its end to the account.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "conductor/service_internal.h"
#include "node/wire/node_wire.h"

#define HAND_NS (10 * YB_NS_PER_S)

/* Hand an order on, or end it (V4). */
static void
hand_on(struct yb_conductor_service *service, struct yb_conductor_order *order)
{
    const struct yb_conductor_moved cancelled = yb_conductor_order_cancelled(order);

    if (service->options.order == NULL ||
        !service->options.order(service->options.order_owner, order)) {
        free(order);
        yb_conductor_service_moved(service, &cancelled);
    }
}

static struct yb_conductor_order *
order_of(const struct yb_wire_conductor_instruction *instruction,
         const struct yb_wire_conductor_key_list *keys, uint64_t now_ns)
{
    struct yb_conductor_order *order = yb_conductor_order_create(instruction->count);

    if (order == NULL) {
        return NULL;
    }
    order->id = instruction->id;
    order->kind = instruction->kind;
    order->reason = instruction->reason;
    order->work_class = instruction->class;
    order->decided_ns = now_ns;
    order->not_before_ns =
        instruction->not_before_us != 0 ? now_ns + instruction->not_before_us * YB_NS_PER_US : 0;
    order->deadline_ns = now_ns + instruction->deadline_us * YB_NS_PER_US;
    memcpy(order->to, instruction->to, sizeof(order->to));
    for (uint32_t i = 0; i < instruction->count; i++) {
        struct yb_wire_conductor_key key;

        yb_wire_conductor_key_at(keys, instruction->first + i, &key);
        order->keys[i] = key.key;
    }
    return order;
}

static void
cancel(struct yb_conductor_service *service, uint64_t id, uint64_t now_ns)
{
    yb_conductor_service_moved(
        service, &(struct yb_conductor_moved){.id = id,
                                              .outcome = YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED,
                                              .decided_ns = now_ns,
                                              .finished_ns = now_ns,
                                              .deadline_ns = now_ns});
}

void
yb_conductor_service_order(struct yb_conductor_service *service,
                           const struct yb_wire_conductor_schedule *asked,
                           const struct yb_conductor_prompt *prompt,
                           const struct yb_conductor_answer *answer,
                           const struct yb_trace_context *caused, uint64_t now_ns)
{
    for (uint32_t i = 0; i < answer->wire.instructions.count; i++) {
        const struct yb_wire_conductor_instruction *instruction = &answer->instructions[i];
        const uint64_t end = (uint64_t)instruction->first + instruction->count;
        struct yb_conductor_order *order = NULL;

        if (instruction->carrier == 0) {
            continue;
        }
        if (instruction->count > 0 && end <= prompt->keys.count) {
            order = order_of(instruction, &prompt->keys, now_ns);
        }
        if (order == NULL) {
            cancel(service, instruction->id, now_ns);
            continue;
        }
        order->trace = caused->trace;
        order->parent = caused->parent;
        order->parts = answer->parts > 0 ? answer->parts : 1;
        order->expected = instruction->not_before_us != 0;
        yb_conductor_take_text(order->tenant, asked->tenant);
        hand_on(service, order);
    }
}

void
yb_conductor_service_order_move(struct yb_conductor_service *service,
                                const struct yb_wire_conductor_move *asked, uint64_t id,
                                uint64_t now_ns)
{
    struct yb_conductor_order *order = yb_conductor_order_create(asked->hashes.count);

    if (order == NULL) {
        cancel(service, id, now_ns);
        return;
    }
    order->id = id;
    order->kind = asked->kind;
    order->reason = YB_WIRE_INSTRUCTION_REASON_REQUEST;
    order->work_class = asked->class;
    order->parts = asked->parts != 0 ? asked->parts : 1;
    order->decided_ns = now_ns;
    order->deadline_ns = yb_deadline_after(
        now_ns, asked->deadline_us != 0 ? asked->deadline_us * YB_NS_PER_US : HAND_NS);
    yb_conductor_take_text(order->to, asked->to);
    yb_conductor_take_text(order->tenant, asked->tenant);
    for (uint32_t i = 0; i < asked->hashes.count; i++) {
        struct yb_wire_conductor_key key;

        yb_wire_conductor_key_at(&asked->hashes, i, &key);
        order->keys[i] = key.key;
    }
    hand_on(service, order);
}

bool
yb_conductor_service_on_order(void *context, struct yb_conductor_order *order)
{
    struct yb_conductor_service *service = context;

    return service->options.order != NULL &&
           service->options.order(service->options.order_owner, order);
}

/* ---- how they end ---------------------------------------------------------------------------- */

bool
yb_conductor_service_wants(struct yb_conductor_service *service, uint64_t id)
{
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);
    bool open;

    if (conductor == NULL) {
        return false;
    }
    open = yb_conductor_is_open(conductor, id);
    yb_conductor_service_leave(service);
    return open;
}

static uint64_t
took_us(const struct yb_conductor_moved *moved)
{
    return moved->started_ns != 0 && moved->finished_ns > moved->started_ns
               ? (moved->finished_ns - moved->started_ns) / YB_NS_PER_US
               : 0;
}

void
yb_conductor_service_moved(struct yb_conductor_service *service,
                           const struct yb_conductor_moved *moved)
{
    const struct yb_wire_conductor_ended ended = {
        .id = moved->id,
        .took_us = took_us(moved),
        .outcome = moved->outcome,
        .source_tier = moved->source_tier,
    };
    const struct yb_wire_conductor_done done = {
        .stage = YB_WIRE_CONDUCTOR_STAGE_MOVED,
        .instructions = {.count = 1, .native = &ended},
    };
    uint64_t now_ns;
    struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);

    if (conductor == NULL) {
        return;
    }
    if (yb_conductor_is_open(conductor, moved->id)) {
        service->shown[service->shown_ever++ % YB_CONDUCTOR_SHOWN] = *moved;
        (void)!yb_conductor_done(conductor, &done, now_ns);
    }
    yb_conductor_service_leave(service);
}

void
yb_conductor_service_orders(struct yb_conductor_service *service,
                            const struct yb_conductor_orders *orders)
{
    yb_lock_acquire(&service->lock);
    service->orders = *orders;
    yb_lock_release(&service->lock);
}

uint32_t
yb_conductor_service_ended(struct yb_conductor_service *service, uint64_t after,
                           struct yb_conductor_moved *moved_out, uint64_t *last_out)
{
    uint32_t taken = 0;
    uint64_t first;

    yb_lock_acquire(&service->lock);
    first = service->shown_ever > YB_CONDUCTOR_SHOWN ? service->shown_ever - YB_CONDUCTOR_SHOWN : 0;
    first = after > first && after <= service->shown_ever ? after : first;
    for (uint64_t at = first; at < service->shown_ever; at++) {
        moved_out[taken++] = service->shown[at % YB_CONDUCTOR_SHOWN];
    }
    *last_out = service->shown_ever;
    yb_lock_release(&service->lock);
    return taken;
}
