/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/classes.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "sim/agenda.h"
#include "sim/fabric.h"
#include "sim/random.h"
#include "sim/simulator.h"

enum event {
    REQUEST,
    BULK,
    LOADED, /* The load of request `who` may be through. */
};

struct node {
    const struct yb_classes_case *one;
    struct yb_agenda *agenda;
    struct yb_fabric *fabric;
    struct yb_fabric_flow *flows; /* By request. */
    uint64_t *arrived_ns;
    uint64_t *ttft_ns;
    struct yb_sim_random requests; /* Two, so that bulk does not change when requests come. */
    struct yb_sim_random bulk;
    uint64_t free_ns; /* When the engine has nothing more to do. */
    double load_ns;   /* Sum. */
    uint32_t done;
};

static enum yb_status
enter(struct node *node, enum event kind, uint32_t who, uint64_t at_ns)
{
    struct yb_agenda_event event = {.kind = kind, .who = who, .at_ns = at_ns};

    return yb_agenda_enter(node->agenda, &event);
}

static enum yb_status
begin(struct node *node, enum yb_pipe_class class, double bytes, uint64_t now_ns,
      struct yb_fabric_flow *flow_out)
{
    struct yb_fabric_order order = {
        .from = YB_FABRIC_FROM_PEER,
        .peer = 1,
        .class = node->one->classes ? class : YB_PIPE_FIRST_TOKEN,
        .bytes = bytes,
    };

    return yb_fabric_begin(node->fabric, &order, now_ns, flow_out);
}

static uint64_t
after(struct yb_sim_random *random, double mean_ns, uint64_t now_ns)
{
    return now_ns + 1 + (uint64_t)yb_sim_random_exponential(random, mean_ns);
}

static uint32_t
reused(const struct yb_classes_case *one)
{
    return (uint32_t)(one->hit * one->tokens);
}

static enum yb_status
request(struct node *node, uint32_t index, uint64_t now_ns)
{
    const struct yb_classes_case *one = node->one;
    double bytes = (double)one->cost.kv_bytes * reused(one);
    enum yb_status status = begin(node, YB_PIPE_FIRST_TOKEN, bytes, now_ns, &node->flows[index]);

    node->arrived_ns[index] = now_ns;
    if (status == YB_OK && index + 1 < one->requests) {
        status = enter(node, REQUEST, index + 1, after(&node->requests, one->gap_ns, now_ns));
    }
    return status == YB_OK ? enter(node, LOADED, index, now_ns) : status;
}

static enum yb_status
bulk(struct node *node, uint64_t now_ns)
{
    const struct yb_classes_case *one = node->one;
    double gap_ns = YB_CLASSES_BULK_BYTES / (one->bytes_per_s * one->background) * 1e9;
    struct yb_fabric_flow flow;
    enum yb_status status;

    if (node->done == one->requests) {
        return YB_OK;
    }
    status = begin(node, YB_PIPE_BACKGROUND, YB_CLASSES_BULK_BYTES, now_ns, &flow);
    return status == YB_OK ? enter(node, BULK, 0, after(&node->bulk, gap_ns, now_ns)) : status;
}

/* Loads are of one class, so they are through in the order in which the engine takes them. */
static enum yb_status
loaded(struct node *node, uint32_t index, uint64_t now_ns)
{
    const struct yb_classes_case *one = node->one;
    uint64_t through_ns = yb_fabric_finish_ns(node->fabric, &node->flows[index], now_ns);
    double prefill_ns = yb_sched_prefill_ns(&one->cost, one->tokens, reused(one));
    uint64_t begin_ns = node->arrived_ns[index];
    uint64_t computed_ns;

    if (through_ns > now_ns) {
        return enter(node, LOADED, index, through_ns);
    }
    begin_ns = node->free_ns > begin_ns ? node->free_ns : begin_ns;
    computed_ns = begin_ns + (uint64_t)prefill_ns;
    through_ns += (uint64_t)(prefill_ns / one->cost.layers); /* The last layer comes after it. */
    node->free_ns = computed_ns > through_ns ? computed_ns : through_ns;
    node->load_ns += (double)(now_ns - node->arrived_ns[index]);
    node->ttft_ns[index] = node->free_ns - node->arrived_ns[index];
    node->done++;
    return YB_OK;
}

static enum yb_status
run(struct node *node)
{
    struct yb_agenda_event event;
    enum yb_status status = enter(node, REQUEST, 0, 0);

    if (status == YB_OK && node->one->background > 0) {
        status = enter(node, BULK, 0, 0);
    }
    while (status == YB_OK && yb_agenda_next(node->agenda, &event)) {
        switch ((enum event)event.kind) {
        case REQUEST: status = request(node, event.who, event.at_ns); break;
        case BULK: status = bulk(node, event.at_ns); break;
        case LOADED: status = loaded(node, event.who, event.at_ns); break;
        }
    }
    YB_ASSERT(status != YB_OK || node->done == node->one->requests);
    return status;
}

static bool
makes_sense(const struct yb_classes_case *one)
{
    return one->bytes_per_s > 0 && one->tokens > 0 && one->gap_ns > 0 && one->requests > 0 &&
           one->requests <= YB_CLASSES_REQUESTS_MAX && one->hit >= 0 && one->hit < 1 &&
           one->background >= 0 && one->background < 1 && one->cost.layers > 0;
}

enum yb_status
yb_classes_run(const struct yb_classes_case *one, struct yb_classes_result *result_out)
{
    struct node node = {.one = one, .requests = {one->seed}, .bulk = {~one->seed}};
    struct yb_fabric_options options = {.nodes = 2};
    struct yb_result_times times;
    enum yb_status status;

    if (!makes_sense(one)) {
        return YB_INVALID;
    }
    options.bytes_per_s[YB_FABRIC_PORT_IN] = one->bytes_per_s;
    options.bytes_per_s[YB_FABRIC_PORT_OUT] = one->bytes_per_s;
    node.flows = calloc(one->requests, sizeof(*node.flows));
    node.arrived_ns = calloc(one->requests, sizeof(*node.arrived_ns));
    node.ttft_ns = calloc(one->requests, sizeof(*node.ttft_ns));
    status = YB_NO_MEMORY;
    if (node.flows != NULL && node.arrived_ns != NULL && node.ttft_ns != NULL) {
        status = yb_fabric_create(&options, &node.fabric);
    }
    if (status == YB_OK) {
        status = yb_agenda_create(&node.agenda);
    }
    if (status == YB_OK) {
        status = run(&node);
    }
    if (status == YB_OK) {
        times = yb_result_times(node.ttft_ns, one->requests);
        result_out->mean_ns = times.mean_ns;
        result_out->p99_ns = (double)times.p99_ns;
        result_out->load_mean_ns = node.load_ns / one->requests;
    }
    yb_agenda_destroy(&node.agenda);
    yb_fabric_destroy(&node.fabric);
    free(node.ttft_ns);
    free(node.arrived_ns);
    free(node.flows);
    return status;
}
