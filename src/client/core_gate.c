/* SPDX-License-Identifier: Apache-2.0
 *
 * The reuse gate: what gets have been like, and which blocks an existence lookup is to name. Of
 * those that it does not name the directory is told in batches, so that `yuebing explain` can say
 * so; what a message has no room for, or is lost with one, is not remembered.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

void
yb_core_gate_measure(struct yb_core_io *io, enum yb_core_route route, uint64_t bytes,
                     uint64_t now_ns)
{
    struct yb_client_core *core = io->core;
    struct yb_core_member *member = yb_core_member(core, io->slot);
    uint64_t elapsed_ns = now_ns > io->sent_ns ? now_ns - io->sent_ns : 0;

    YB_ASSERT(route < YB_CORE_GATE_ROUTES);
    if (member == NULL || member->wire.incarnation != io->incarnation || bytes == 0) {
        return;
    }
    yb_gate_measure(&member->paths[route], bytes, elapsed_ns);
    yb_gate_measure(&core->paths[core->choices[member - core->members].local ? 1 : 0][route], bytes,
                    elapsed_ns);
}

/* How the bytes of a node would come. What nothing is known of is taken to be like the others. */
static struct yb_gate_path
path_of(const struct yb_client_core *core, const struct yb_core_member *member, uint64_t bytes)
{
    bool near = member->near != 0 && bytes >= core->options.near_bytes_min;
    enum yb_core_route route = near ? YB_CORE_NEAR : YB_CORE_FRAMES;
    bool local = core->choices[member - core->members].local;
    struct yb_gate_path path = member->paths[route];
    const struct yb_gate_path *others = &core->paths[local ? 1 : 0][route];

    path.latency_ns = path.latency_ns != 0 ? path.latency_ns : others->latency_ns;
    path.rate = path.rate != 0 ? path.rate : others->rate;
    return path;
}

/* Add an item that is there to the run. */
static void
add(struct yb_core_work *work, uint32_t index, struct yb_gate *gate)
{
    struct yb_client_core *core = work->core;
    const struct yb_core_item *item = &work->items[index];
    uint64_t bytes = work->batch->items[index].size;
    struct yb_gate_path path = {0};
    uint64_t none = 0;
    uint64_t *queued = &none;
    uint32_t rows[4];
    uint32_t at;

    for (uint32_t i = 0; i < item->slot_count; i++) {
        rows[i] = yb_core_row(core, item->slots[i]);
    }
    at = yb_choose_source(core->choices, rows, item->slot_count, 0, index);
    if (at != UINT32_MAX && bytes != YB_CORE_STRIPED_SIZE) {
        path = path_of(core, &core->members[rows[at]], bytes);
        queued = &core->members[rows[at]].gate_bytes;
    }
    yb_gate_add(gate, &path, queued, bytes == YB_CORE_STRIPED_SIZE ? 0 : bytes);
}

/* Begin to look at a run, from its first block on. */
static void
begin(struct yb_client_core *core, struct yb_gate *gate)
{
    struct yb_gate_cost cost = {core->options.prefill_ns_per_block, core->options.bytes_per_block};

    for (uint32_t row = 0; row < core->member_count; row++) {
        core->members[row].gate_bytes = core->choices[row].busy_bytes;
    }
    yb_gate_begin(gate, &cost);
}

/* Do not name an item, though it is there. `gate` has been through the run up to it; NULL: it is
 * behind the end of the run. */
static void
decline(struct yb_core_work *work, uint32_t index, const struct yb_gate *gate)
{
    struct yb_client_batch *batch = work->batch;
    struct yb_client_item *out = &batch->items[index];

    out->status = YB_NOT_FOUND;
    out->gated = true;
    work->core->counters.gated++;
    if (out->size == YB_CORE_STRIPED_SIZE) {
        out->size = 0;
        batch->striped--;
    }
    yb_core_declined(work->core, work->items[index].hash, gate);
}

void
yb_core_gate(struct yb_core_work *work)
{
    struct yb_client_core *core = work->core;
    struct yb_client_batch *batch = work->batch;
    struct yb_gate gate;
    uint32_t run = 0;
    uint32_t named;

    if (core->options.reuse_gate != YB_CLIENT_GATE_AUTO ||
        core->options.prefill_ns_per_block == 0 || batch->raw) {
        return;
    }
    begin(core, &gate);
    while (run < batch->count && batch->items[run].status == YB_OK) {
        add(work, run++, &gate);
    }
    named = yb_gate_run(&gate);
    if (named < run) { /* Once more, for what those cost that are declined. */
        begin(core, &gate);
    }
    for (uint32_t i = 0; named < run && i < run; i++) {
        add(work, i, &gate);
        if (i >= named) {
            decline(work, i, &gate);
        }
    }
    for (uint32_t i = run; i < batch->count; i++) {
        if (batch->items[i].status == YB_OK) {
            decline(work, i, NULL);
        }
    }
}

/* ---- what the directory is told, for those who ask it later --------------------------------- */

#define TELL_AFTER_NS (100 * YB_NS_PER_MS) /* Lookups of this time in one message. */
#define TELL_NS       YB_NS_PER_S

struct yb_core_declines {
    struct yb_call call;
    struct yb_client_core *core;
    struct yb_timer timer;
    bool busy; /* The call is under way. */
    uint32_t count;
    uint8_t waiting[YB_WIRE_DECLINES_MAX * YB_WIRE_DECLINED_BYTES];
    uint8_t body[YB_WIRE_DECLINES_BYTES + YB_WIRE_DECLINES_MAX * YB_WIRE_DECLINED_BYTES];
};

static void
tell_soon(struct yb_core_declines *all)
{
    if (!all->busy && all->count > 0 && !all->core->stopping) {
        yb_loop_arm(yb_net_loop(all->core->net), &all->timer,
                    yb_core_now(all->core) + TELL_AFTER_NS);
    }
}

static void
on_told(struct yb_call *call)
{
    struct yb_core_declines *all = call->owner;

    all->busy = false; /* Lost or not: it was for people. */
    tell_soon(all);
}

static void
tell(struct yb_timer *timer)
{
    struct yb_core_declines *all =
        (struct yb_core_declines *)((uint8_t *)timer - offsetof(struct yb_core_declines, timer));
    size_t bytes = (size_t)all->count * YB_WIRE_DECLINED_BYTES;

    memset(all->body, 0, YB_WIRE_DECLINES_BYTES);
    yb_wire_put_u32(all->body + YB_WIRE_DECLINES_AT_ITEMS, all->count);
    memcpy(all->body + YB_WIRE_DECLINES_BYTES, all->waiting, bytes);
    all->call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_DECLINED,
        .class = YB_CLASS_BACKGROUND,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_core_now(all->core) + TELL_NS,
        .body = all->body,
        .body_bytes = (uint32_t)(YB_WIRE_DECLINES_BYTES + bytes),
        .done = on_told,
        .owner = all,
    };
    all->count = 0;
    all->busy = yb_peer_call(all->core->directory, &all->call) == YB_OK;
}

void
yb_core_declined(struct yb_client_core *core, struct yb_id hash, const struct yb_gate *gate)
{
    struct yb_core_declines *all = core->declines;
    struct yb_wire_declined wire = {.hash = hash, .reason = YB_WIRE_DECLINE_BEHIND_GAP};

    if (all->count == YB_WIRE_DECLINES_MAX) {
        return;
    }
    if (gate != NULL) {
        uint64_t load_us = gate->load_ns / YB_NS_PER_US;
        uint64_t compute_us = gate->prefill_ns / YB_NS_PER_US;

        wire.reason = YB_WIRE_DECLINE_SLOWER;
        wire.load_us = load_us < UINT32_MAX ? (uint32_t)load_us : UINT32_MAX;
        wire.compute_us = compute_us < UINT32_MAX ? (uint32_t)compute_us : UINT32_MAX;
    }
    yb_wire_declined_store(&wire, all->waiting + (size_t)all->count++ * YB_WIRE_DECLINED_BYTES);
    if (all->count == 1) {
        tell_soon(all);
    }
}

enum yb_status
yb_core_declines_create(struct yb_client_core *core)
{
    if (core->options.reuse_gate != YB_CLIENT_GATE_AUTO) {
        return YB_OK;
    }
    core->declines = calloc(1, sizeof(*core->declines));
    if (core->declines == NULL) {
        return YB_NO_MEMORY;
    }
    core->declines->core = core;
    yb_timer_init(&core->declines->timer, tell);
    return YB_OK;
}

void
yb_core_declines_stop(struct yb_client_core *core)
{
    if (core->declines != NULL) {
        yb_loop_disarm(yb_net_loop(core->net), &core->declines->timer);
    }
}

bool
yb_core_declines_idle(const struct yb_client_core *core)
{
    return core->declines == NULL || !core->declines->busy;
}

void
yb_core_declines_fini(struct yb_client_core *core)
{
    free(core->declines);
    core->declines = NULL;
}
