/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes of the store measure of their disks, object stores and links, for the schedulers.
 *
 * An engine that registers with a node may have said how fast that is; what the node itself has
 * measured counts more, and it alone knows what waits there.
 */
#include "base/check.h"
#include "base/clock.h"
#include "conductor/conductor_internal.h"

/* Return what a scheduler is to hear. The node says nothing of what comes to it: that stays. */
static struct yb_sched_report
report_of(const struct yb_conductor_seat *seat, const struct yb_wire_conductor_ways *said,
          uint64_t now_ns)
{
    const uint64_t age_ns = said->age_ms * YB_NS_PER_MS;
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report),
        .sequence = seat->ways,
        .at_ns = now_ns > age_ns ? now_ns - age_ns : 0,
    };

    report.backlog_bytes[YB_SCHED_LINK_OUT] = said->out_backlog;
    report.backlog_bytes[YB_SCHED_LINK_SSD] = said->ssd_backlog;
    report.backlog_bytes[YB_SCHED_LINK_OBJECT] = said->object_backlog;
    report.rate[YB_SCHED_LINK_OUT] = (double)said->out_rate;
    report.rate[YB_SCHED_LINK_SSD] = (double)said->ssd_rate;
    report.rate[YB_SCHED_LINK_OBJECT] = (double)said->object_rate;
    report.latency_ns[YB_SCHED_LINK_SSD] = said->ssd_base_us * YB_NS_PER_US;
    report.latency_ns[YB_SCHED_LINK_OBJECT] = said->object_base_us * YB_NS_PER_US;
    return report;
}

enum yb_status
yb_conductor_ways(struct yb_conductor *conductor, const struct yb_wire_conductor_ways *said,
                  uint64_t now_ns)
{
    struct yb_conductor_seat *seat;
    struct yb_sched_report report;
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    YB_CONDUCTOR_RECORD(conductor, WAYS, ways, said, now_ns);
    seat = yb_conductor_find(conductor, said->name);
    if (seat == NULL || seat->kind != YB_CONDUCTOR_STORAGE) {
        return YB_NOT_FOUND;
    }
    seat->ways++;
    report = report_of(seat, said, now_ns);
    for (uint32_t i = 0; status == YB_OK && i < conductor->model_count; i++) {
        status = yb_sched_report(conductor->models[i].sched, (uint32_t)(seat - conductor->seats),
                                 &report);
    }
    for (uint32_t i = 0; status == YB_OK && i < YB_SCHED_LINKS; i++) { /* For models to come. */
        struct yb_sched_link *link = &seat->sched.links[i];

        link->rate = report.rate[i] > 0 ? report.rate[i] : link->rate;
        link->latency_ns = report.latency_ns[i] > 0 ? report.latency_ns[i] : link->latency_ns;
    }
    return status;
}
