/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/fabric.h"

#include <stdlib.h>

#include "base/check.h"

#define MAGIC 0x66616272u

struct yb_fabric {
    uint32_t magic;
    uint32_t racks;
    struct yb_fabric_options options;
    struct yb_pipe *pipes; /* Those of node 0, of node 1, ...; then those of the racks. */
};

#define RACK_KINDS (YB_FABRIC_KINDS - YB_FABRIC_NODE_KINDS)

static uint32_t
pipe_count(const struct yb_fabric *fabric)
{
    return fabric->options.nodes * YB_FABRIC_NODE_KINDS + fabric->racks * RACK_KINDS;
}

/* Only for kinds that there are. */
static uint32_t
pipe_index(const struct yb_fabric *fabric, enum yb_fabric_kind kind, uint32_t node)
{
    YB_ASSERT(node < fabric->options.nodes);
    if ((unsigned)kind < YB_FABRIC_NODE_KINDS) {
        return node * YB_FABRIC_NODE_KINDS + (uint32_t)kind;
    }
    YB_ASSERT(fabric->racks > 0);
    return fabric->options.nodes * YB_FABRIC_NODE_KINDS +
           node / fabric->options.rack_nodes * RACK_KINDS + (uint32_t)kind - YB_FABRIC_NODE_KINDS;
}

enum yb_status
yb_fabric_create(const struct yb_fabric_options *options, struct yb_fabric **fabric_out)
{
    struct yb_fabric *fabric;

    if (options->nodes == 0 || options->nodes > YB_FABRIC_NODES_MAX) {
        return YB_INVALID;
    }
    for (unsigned i = 0; i < YB_FABRIC_KINDS; i++) {
        if (!(options->bytes_per_s[i] >= 0)) {
            return YB_INVALID;
        }
    }
    fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL) {
        return YB_NO_MEMORY;
    }
    fabric->magic = MAGIC;
    fabric->options = *options;
    fabric->racks = options->rack_nodes == 0
                        ? 0
                        : (options->nodes + options->rack_nodes - 1) / options->rack_nodes;
    fabric->pipes = calloc(pipe_count(fabric), sizeof(*fabric->pipes));
    if (fabric->pipes == NULL) {
        free(fabric);
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < pipe_count(fabric); i++) {
        uint32_t nodes = options->nodes * YB_FABRIC_NODE_KINDS;
        uint32_t kind =
            i < nodes ? i % YB_FABRIC_NODE_KINDS : YB_FABRIC_NODE_KINDS + (i - nodes) % RACK_KINDS;

        if (options->bytes_per_s[kind] > 0) {
            yb_pipe_init(&fabric->pipes[i], options->bytes_per_s[kind]);
        }
    }
    *fabric_out = fabric;
    return YB_OK;
}

void
yb_fabric_destroy(struct yb_fabric **fabric)
{
    if (*fabric == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*fabric, MAGIC);
    (*fabric)->magic = 0;
    free((*fabric)->pipes);
    free(*fabric);
    *fabric = NULL;
}

struct yb_pipe *
yb_fabric_pipe(struct yb_fabric *fabric, enum yb_fabric_kind kind, uint32_t node)
{
    YB_ASSERT_OBJ(fabric, MAGIC);
    if (fabric->options.bytes_per_s[kind] <= 0 ||
        ((unsigned)kind >= YB_FABRIC_NODE_KINDS && fabric->racks == 0)) {
        return NULL;
    }
    return &fabric->pipes[pipe_index(fabric, kind, node)];
}

uint64_t
yb_fabric_latency_ns(const struct yb_fabric *fabric, enum yb_fabric_kind kind)
{
    return fabric->options.latency_ns[kind];
}

/* A path while it is put together. */
struct path {
    enum yb_fabric_kind kinds[YB_FABRIC_PIPES_MAX];
    uint32_t nodes[YB_FABRIC_PIPES_MAX];
    uint32_t count;
};

static void
pass(struct path *path, enum yb_fabric_kind kind, uint32_t node)
{
    YB_ASSERT(path->count < YB_FABRIC_PIPES_MAX);
    path->kinds[path->count] = kind;
    path->nodes[path->count++] = node;
}

static void
pass_network(const struct yb_fabric *fabric, struct path *path, uint32_t from, uint32_t to)
{
    bool racks = fabric->racks > 1 && fabric->options.bytes_per_s[YB_FABRIC_UPLINK] > 0 &&
                 fabric->options.bytes_per_s[YB_FABRIC_DOWNLINK] > 0 &&
                 from / fabric->options.rack_nodes != to / fabric->options.rack_nodes;

    pass(path, YB_FABRIC_PORT_OUT, from);
    if (racks) {
        pass(path, YB_FABRIC_UPLINK, from);
        pass(path, YB_FABRIC_DOWNLINK, to);
    }
    pass(path, YB_FABRIC_PORT_IN, to);
}

static void
find_path(const struct yb_fabric *fabric, const struct yb_fabric_order *order, struct path *path)
{
    switch (order->from) {
    case YB_FABRIC_FROM_DRAM: pass(path, YB_FABRIC_BUS, order->node); break;
    case YB_FABRIC_FROM_SSD:
    case YB_FABRIC_TO_SSD: pass(path, YB_FABRIC_SSD, order->node); break;
    case YB_FABRIC_FROM_PEER_SSD:
        pass(path, YB_FABRIC_SSD, order->peer);
        pass_network(fabric, path, order->peer, order->node);
        break;
    case YB_FABRIC_FROM_PEER: pass_network(fabric, path, order->peer, order->node); break;
    case YB_FABRIC_FROM_OBJECT:
        pass(path, YB_FABRIC_OBJECT, order->node);
        pass(path, YB_FABRIC_PORT_IN, order->node);
        break;
    case YB_FABRIC_TO_OBJECT:
        pass(path, YB_FABRIC_OBJECT, order->node);
        pass(path, YB_FABRIC_PORT_OUT, order->node);
        break;
    }
}

enum yb_status
yb_fabric_begin(struct yb_fabric *fabric, const struct yb_fabric_order *order, uint64_t now_ns,
                struct yb_fabric_flow *flow_out)
{
    struct path path = {.count = 0};
    struct yb_fabric_flow flow = {.class = order->class};

    YB_ASSERT_OBJ(fabric, MAGIC);
    find_path(fabric, order, &path);
    for (uint32_t i = 0; i < path.count; i++) {
        if (yb_fabric_pipe(fabric, path.kinds[i], path.nodes[i]) == NULL) {
            return YB_INVALID;
        }
    }
    for (uint32_t i = 0; i < path.count; i++) {
        flow.pipes[i] = pipe_index(fabric, path.kinds[i], path.nodes[i]);
        flow.marks[i] =
            yb_pipe_enter(&fabric->pipes[flow.pipes[i]], order->class, order->bytes, now_ns);
    }
    flow.pipe_count = path.count;
    flow.earliest_ns = now_ns + fabric->options.latency_ns[path.kinds[0]];
    *flow_out = flow;
    return YB_OK;
}

uint64_t
yb_fabric_finish_ns(struct yb_fabric *fabric, const struct yb_fabric_flow *flow, uint64_t now_ns)
{
    uint64_t finish_ns = flow->earliest_ns > now_ns ? flow->earliest_ns : now_ns;

    YB_ASSERT_OBJ(fabric, MAGIC);
    for (uint32_t i = 0; i < flow->pipe_count; i++) {
        uint64_t pipe_ns =
            yb_pipe_finish_ns(&fabric->pipes[flow->pipes[i]], flow->class, flow->marks[i], now_ns);

        finish_ns = pipe_ns > finish_ns ? pipe_ns : finish_ns;
    }
    return finish_ns;
}

struct yb_fabric_use
yb_fabric_use(struct yb_fabric *fabric, enum yb_fabric_kind kind, uint64_t now_ns)
{
    struct yb_fabric_use use = {0};
    bool of_racks = (unsigned)kind >= YB_FABRIC_NODE_KINDS;
    uint32_t step = of_racks && fabric->racks > 0 ? fabric->options.rack_nodes : 1;
    uint32_t count = 0;

    for (uint32_t node = 0; node < fabric->options.nodes && now_ns > 0; node += step) {
        struct yb_pipe *pipe = yb_fabric_pipe(fabric, kind, node);
        double share;

        if (pipe == NULL) {
            break;
        }
        yb_pipe_advance(pipe, now_ns);
        for (unsigned i = 0; i < YB_PIPE_CLASSES; i++) {
            use.bytes += pipe->served[i];
        }
        share = pipe->busy_ns / (double)now_ns;
        use.mean += share;
        use.busiest = share > use.busiest ? share : use.busiest;
        count++;
    }
    use.mean = count > 0 ? use.mean / count : 0;
    return use;
}

const char *
yb_fabric_kind_name(enum yb_fabric_kind kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        YB_FABRIC_KIND_MAP(X)
#undef X
    };

    return names[kind];
}
