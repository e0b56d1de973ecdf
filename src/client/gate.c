/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gate.h"

#include "base/check.h"
#include "base/clock.h"

#define PART 8u /* A new measurement counts an eighth. */

static uint64_t
sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Return a * b / c, or UINT64_MAX. */
static uint64_t
scale(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 product = (unsigned __int128)a * b / c;

    return product > UINT64_MAX ? UINT64_MAX : (uint64_t)product;
}

static uint64_t
smooth(uint64_t old, uint64_t now)
{
    if (old == 0) {
        return now > 0 ? now : 1;
    }
    return old - old / PART + now / PART;
}

void
yb_gate_measure(struct yb_gate_path *path, uint64_t bytes, uint64_t elapsed_ns)
{
    if (bytes <= YB_GATE_SMALL_BYTES) {
        path->latency_ns = smooth(path->latency_ns, elapsed_ns);
    } else {
        uint64_t moving_ns =
            elapsed_ns > 2 * path->latency_ns ? elapsed_ns - path->latency_ns : elapsed_ns / 2 + 1;

        path->rate = smooth(path->rate, scale(bytes, YB_NS_PER_S, moving_ns));
    }
}

uint64_t
yb_gate_load_ns(const struct yb_gate_path *path, uint64_t bytes)
{
    return path->rate == 0 ? path->latency_ns
                           : sum(path->latency_ns, scale(bytes, YB_NS_PER_S, path->rate));
}

void
yb_gate_begin(struct yb_gate *gate, const struct yb_gate_cost *cost)
{
    YB_ASSERT(cost->prefill_ns > 0);
    *gate = (struct yb_gate){.cost = *cost};
}

void
yb_gate_add(struct yb_gate *gate, const struct yb_gate_path *path, uint64_t *queued, uint64_t bytes)
{
    uint64_t unit = gate->cost.bytes;
    uint64_t blocks = unit == 0 || bytes <= unit ? 1 : bytes / unit + (bytes % unit != 0);
    uint64_t load_ns;

    *queued = sum(*queued, bytes);
    load_ns = yb_gate_load_ns(path, *queued);
    gate->load_ns = load_ns > gate->load_ns ? load_ns : gate->load_ns;
    gate->prefill_ns = sum(gate->prefill_ns, scale(blocks, gate->cost.prefill_ns, 1));
    gate->count++;
    if (gate->prefill_ns > gate->load_ns &&
        gate->prefill_ns - gate->load_ns >= gate->saving_ns) { /* G1, G2 */
        gate->saving_ns = gate->prefill_ns - gate->load_ns;
        gate->best = gate->count;
    }
}

uint32_t
yb_gate_run(const struct yb_gate *gate)
{
    return gate->best;
}
