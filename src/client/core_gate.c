/* SPDX-License-Identifier: Apache-2.0
 *
 * The reuse gate: what gets have been like, and which blocks an existence lookup is to name.
 */
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
path_of(const struct yb_client_core *core, const struct yb_core_member *member)
{
    enum yb_core_route route = member->near != 0 ? YB_CORE_NEAR : YB_CORE_FRAMES;
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
        path = path_of(core, &core->members[rows[at]]);
        queued = &core->members[rows[at]].gate_bytes;
    }
    yb_gate_add(gate, &path, queued, bytes == YB_CORE_STRIPED_SIZE ? 0 : bytes);
}

void
yb_core_gate(struct yb_core_work *work)
{
    struct yb_client_core *core = work->core;
    struct yb_client_batch *batch = work->batch;
    struct yb_gate_cost cost = {core->options.prefill_ns_per_block, core->options.bytes_per_block};
    struct yb_gate gate;

    if (core->options.reuse_gate != YB_CLIENT_GATE_AUTO || cost.prefill_ns == 0 || batch->raw) {
        return;
    }
    for (uint32_t row = 0; row < core->member_count; row++) {
        core->members[row].gate_bytes = core->choices[row].busy_bytes;
    }
    yb_gate_begin(&gate, &cost);
    for (uint32_t i = 0; i < batch->count && batch->items[i].status == YB_OK; i++) {
        add(work, i, &gate);
    }
    for (uint32_t i = yb_gate_run(&gate); i < batch->count; i++) {
        struct yb_client_item *out = &batch->items[i];

        if (out->status == YB_OK) {
            out->status = YB_NOT_FOUND;
            out->gated = true;
            core->counters.gated++;
            if (out->size == YB_CORE_STRIPED_SIZE) {
                out->size = 0;
                batch->striped--;
            }
        }
    }
}
