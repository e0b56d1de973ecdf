/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling nodes what is not wanted any more.
 *
 * A cancelled get ends here at once, but at its node it may be waiting for a load from below
 * memory, which others may have joined. The node hears that it has left (RULES C5): by the ticket
 * of the message, and the places of the items in it. Leaving follows on the connection that the
 * message went by, so that it does not come first. Nothing depends on it: what nobody told the
 * node of goes on to its end or deadline.
 *
 * A cancel gathers what it has to say to one node: yb_core_leave() ... yb_core_leave_send().
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

#define LEAVE_ITEMS 256u
#define LEAVES_MAX  64u /* Under way; beyond them nodes are not told. */
#define LEAVE_NS    (2 * YB_NS_PER_S)

struct yb_core_leave {
    struct yb_call call;
    struct yb_client_core *core;
    struct yb_core_leave *next; /* In the list of free ones. */
    uint32_t count;
    uint8_t body[YB_WIRE_LEAVES_BYTES + LEAVE_ITEMS * YB_WIRE_LEAVE_BYTES];
};

static struct yb_core_leave *
take(struct yb_client_core *core)
{
    struct yb_core_leave *leave = core->free_leaves;

    if (leave != NULL) {
        core->free_leaves = leave->next;
    } else if (core->leave_count < LEAVES_MAX) {
        leave = malloc(sizeof(*leave));
        core->leave_count += leave != NULL;
    }
    return leave;
}

static void
give(struct yb_core_leave *leave)
{
    leave->next = leave->core->free_leaves;
    leave->core->free_leaves = leave;
}

static void
on_left(struct yb_call *call)
{
    struct yb_core_leave *leave = call->owner;

    leave->core->leaves--;
    give(leave);
}

static void
say(struct yb_core_member *member)
{
    struct yb_core_leave *leave = member->leave;
    struct yb_client_core *core = leave->core;

    member->leave = NULL;
    memset(leave->body, 0, YB_WIRE_LEAVES_BYTES);
    yb_wire_put_u32(leave->body + YB_WIRE_LEAVES_AT_ITEMS, leave->count);
    leave->call.body_bytes =
        (uint32_t)(YB_WIRE_LEAVES_BYTES + (size_t)leave->count * YB_WIRE_LEAVE_BYTES);
    if (yb_peer_call(member->peer, &leave->call) == YB_OK) {
        core->leaves++;
        core->counters.calls++;
    } else {
        give(leave);
    }
}

/* Begin what is said to a member, on the way that `call` went. */
static struct yb_core_leave *
begin(struct yb_client_core *core, struct yb_core_member *member, const struct yb_call *call)
{
    struct yb_core_leave *leave = take(core);

    if (leave != NULL) {
        leave->core = core;
        leave->count = 0;
        leave->call = (struct yb_call){
            .type = YB_WIRE_NODE_TYPE_LEAVE,
            .class = call->class,
            .lane = call->lane,
            .fail_fast = true,
            .deadline_ns = yb_core_now(core) + LEAVE_NS,
            .body = leave->body,
            .done = on_left,
            .owner = leave,
        };
        member->leave = leave;
    }
    return leave;
}

void
yb_core_leave(struct yb_core_io *io, uint32_t place)
{
    struct yb_client_core *core = io->core;
    struct yb_core_member *member = io->slot != 0 ? yb_core_member(core, io->slot) : NULL;
    const struct yb_wire_leave wire = {.ticket = io->leave_ticket, .item = place};
    struct yb_core_leave *leave;

    if (member == NULL || member->peer == NULL || member->wire.incarnation != io->incarnation ||
        (io->type != YB_WIRE_NODE_TYPE_GET && io->type != YB_WIRE_NODE_TYPE_PIN) ||
        (io->call.state != YB_CALL_SENDING && io->call.state != YB_CALL_SENT)) {
        return; /* The node knows nothing of it, or has answered. */
    }
    leave = member->leave;
    if (leave != NULL && (leave->count == LEAVE_ITEMS || leave->call.lane != io->call.lane ||
                          leave->call.class != io->call.class)) {
        say(member);
        leave = NULL;
    }
    if (leave == NULL && (leave = begin(core, member, &io->call)) == NULL) {
        return;
    }
    yb_wire_leave_store(&wire, leave->body + YB_WIRE_LEAVES_BYTES +
                                   (size_t)leave->count * YB_WIRE_LEAVE_BYTES);
    leave->count++;
}

void
yb_core_leave_send(struct yb_client_core *core)
{
    for (uint32_t row = 0; row < core->member_count; row++) {
        if (core->members[row].leave != NULL) {
            say(&core->members[row]);
        }
    }
}

void
yb_core_leaves_fini(struct yb_client_core *core)
{
    YB_ASSERT(core->leaves == 0);
    while (core->free_leaves != NULL) {
        struct yb_core_leave *leave = core->free_leaves;

        core->free_leaves = leave->next;
        free(leave);
    }
}
