/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking around: who the members are, and single questions to one of them.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

/* Copy a text of the wire that is padded with zero bytes, and perhaps fills all of its room. */
static void
take_text(char *out, size_t room, const uint8_t *bytes, size_t length)
{
    (void)snprintf(out, room, "%.*s", (int)length, (const char *)bytes);
}

static void
describe(const struct yb_client_core *core, uint32_t row, struct yb_client_node *out)
{
    const struct yb_wire_member *wire = &core->members[row].wire;

    *out = (struct yb_client_node){
        .slot = wire->slot,
        .incarnation = wire->incarnation,
        .capacity = wire->capacity,
        .used = wire->used,
        .age_ms = wire->age_ms,
        .local = core->choices[row].local,
    };
    take_text(out->name, sizeof(out->name), wire->name, sizeof(wire->name));
    take_text(out->address, sizeof(out->address), wire->address, sizeof(wire->address));
    take_text(out->rack, sizeof(out->rack), wire->rack, sizeof(wire->rack));
    take_text(out->zone, sizeof(out->zone), wire->zone, sizeof(wire->zone));
    (void)snprintf(out->state, sizeof(out->state), "%s", yb_wire_slot_state_name(wire->state));
}

static int
by_slot(const void *a, const void *b)
{
    const struct yb_client_node *left = a;
    const struct yb_client_node *right = b;

    return (left->slot > right->slot) - (left->slot < right->slot);
}

uint32_t
yb_client_core_nodes(struct yb_client_core *core, struct yb_client_node *nodes_out, uint32_t room)
{
    uint32_t copied = core->member_count < room ? core->member_count : room;

    for (uint32_t row = 0; row < copied; row++) {
        describe(core, row, &nodes_out[row]);
    }
    if (copied > 1) {
        qsort(nodes_out, copied, sizeof(*nodes_out), by_slot);
    }
    return core->member_count;
}

static void
on_looked(struct yb_call *call)
{
    struct yb_client_look *look = call->owner;
    struct yb_client_core *core = look->core;

    look->status = call->status;
    look->reply_bytes = call->answered ? call->reply_body_bytes : 0;
    core->looks--;
    look->done(look);
}

void
yb_client_core_look_again(struct yb_client_core *core)
{
    yb_core_refresh(core);
}

enum yb_status
yb_client_core_look(struct yb_client_core *core, struct yb_client_look *look)
{
    struct yb_core_member *member = look->slot != 0 ? yb_core_member(core, look->slot) : NULL;
    struct yb_peer *peer = look->slot == 0 ? core->directory : NULL;
    enum yb_status status;

    YB_ASSERT(core->magic == YB_CORE_MAGIC);
    if (core->stopping) {
        return YB_CLOSED;
    }
    if (member != NULL && member->wire.incarnation == look->incarnation) {
        peer = member->peer;
    }
    if (peer == NULL) {
        return YB_PEER_LOST;
    }
    look->core = core;
    look->call = (struct yb_call){
        .type = look->type,
        .class = look->work_class,
        .lane = YB_WIRE_LANE_CONTROL,
        .fail_fast = look->slot != 0,
        .deadline_ns = look->deadline_ns,
        .mutates = look->mutates,
        .body = look->body,
        .body_bytes = look->body_bytes,
        .reply_body = look->reply,
        .reply_body_room = look->reply_room,
        .done = on_looked,
        .owner = look,
    };
    status = yb_peer_call(peer, &look->call);
    if (status == YB_OK) {
        core->looks++;
        core->counters.calls++;
    }
    return status;
}
