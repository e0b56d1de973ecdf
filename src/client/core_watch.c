/* SPDX-License-Identifier: Apache-2.0
 *
 * Hearing from nodes which of the blocks that were read there are gone.
 *
 * A node remembers the last few readers of a block, and tells those of them who watch
 * (node_watch.c). A client watches the nodes from which it has read immutable blocks lately: one
 * call that waits at the node, on the connection that the reads use. What it hears saves a trip
 * with a stale hint, and nothing else (C4): a watch that is refused, lost or late makes no answer
 * wrong.
 *
 *     a member:   unwatched --read--> watched --answer--> watched, while reads go on
 *                     ^                  |
 *                     +-- no read for a minute, or no answer (then not at once again)
 */
#include <stdlib.h>

#include "base/check.h"
#include "client/core_internal.h"

#define WATCH_NS    (20 * YB_NS_PER_S) /* How long one call waits. */
#define INTEREST_NS (60 * YB_NS_PER_S) /* A node is of interest for so long after a read. */
#define BACK_OFF_NS (1 * YB_NS_PER_S)  /* After a refusal. */
#define WATCHES_MAX 256u
#define REPLY_ROOM  YB_WIRE_GONE_BYTES_MAX

struct yb_core_watch {
    struct yb_call call;
    struct yb_client_core *core;
    struct yb_core_watch *next; /* In the list of free ones. */
    uint16_t slot;
    uint64_t incarnation;
    uint8_t reply[REPLY_ROOM];
};

static void on_gone(struct yb_call *call);

static struct yb_core_watch *
take(struct yb_client_core *core)
{
    struct yb_core_watch *watch = core->free_watches;

    if (watch != NULL) {
        core->free_watches = watch->next;
    } else if (core->watch_count < WATCHES_MAX) {
        watch = malloc(sizeof(*watch));
        core->watch_count += watch != NULL;
    }
    return watch;
}

static void
give(struct yb_core_watch *watch)
{
    struct yb_client_core *core = watch->core;

    watch->next = core->free_watches;
    core->free_watches = watch;
}

/* Send a watch. */
static void
arm(struct yb_core_watch *watch, struct yb_core_member *member, enum yb_class class)
{
    struct yb_client_core *core = watch->core;

    watch->call = (struct yb_call){
        .type = YB_WIRE_NODE_TYPE_WATCH,
        .class = class,
        .lane = YB_WIRE_LANE_BULK, /* Where the reads are. */
        .fail_fast = true,
        .deadline_ns = yb_core_now(core) + WATCH_NS,
        .reply_body = watch->reply,
        .reply_body_room = sizeof(watch->reply),
        .done = on_gone,
        .owner = watch,
    };
    if (yb_peer_call(member->peer, &watch->call) == YB_OK) {
        member->watched = true;
        core->watches++;
        core->counters.calls++;
        return;
    }
    member->watch_after_ns = yb_core_now(core) + BACK_OFF_NS;
    give(watch);
}

static void
drop_hints(struct yb_core_watch *watch)
{
    struct yb_client_core *core = watch->core;
    struct yb_wire_gone gone;

    if (yb_wire_gone_decode(watch->reply, watch->call.reply_body_bytes, &gone, NULL) != YB_OK) {
        return;
    }
    for (uint32_t i = 0; i < gone.items.count; i++) {
        struct yb_wire_grant_name name;

        yb_wire_grant_name_at(&gone.items, i, &name);
        if (name.grant != 0 && yb_hints_drop(core->hints, name.hash, name.grant)) {
            core->counters.invalidated++;
        }
    }
}

static void
on_gone(struct yb_call *call)
{
    struct yb_core_watch *watch = call->owner;
    struct yb_client_core *core = watch->core;
    struct yb_core_member *member = yb_core_member(core, watch->slot);
    uint64_t now_ns = yb_core_now(core);

    core->watches--;
    if (call->status == YB_OK) {
        drop_hints(watch);
    }
    if (member == NULL || member->wire.incarnation != watch->incarnation) {
        give(watch); /* That life is over. */
        return;
    }
    member->watched = false;
    if (core->stopping || (call->status != YB_OK && call->status != YB_TIMED_OUT)) {
        member->watch_after_ns = now_ns + BACK_OFF_NS;
        give(watch);
    } else if (now_ns >= member->watch_until_ns) {
        give(watch);
    } else {
        arm(watch, member, call->class);
    }
}

void
yb_core_watch(struct yb_client_core *core, const struct yb_core_io *io)
{
    struct yb_core_member *member = yb_core_member(core, io->slot);
    uint64_t now_ns = yb_core_now(core);
    struct yb_core_watch *watch;

    if (member == NULL || member->wire.incarnation != io->incarnation || member->peer == NULL ||
        core->stopping) {
        return;
    }
    member->watch_until_ns = now_ns + INTEREST_NS;
    if (member->watched || now_ns < member->watch_after_ns || (watch = take(core)) == NULL) {
        return;
    }
    watch->core = core;
    watch->slot = io->slot;
    watch->incarnation = io->incarnation;
    arm(watch, member, io->call.class);
}

void
yb_core_watches_fini(struct yb_client_core *core)
{
    YB_ASSERT(core->watches == 0);
    while (core->free_watches != NULL) {
        struct yb_core_watch *watch = core->free_watches;

        core->free_watches = watch->next;
        free(watch);
    }
}
