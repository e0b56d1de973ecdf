/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/visit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "daemon/process_internal.h"
#include "directory/wire/directory_wire.h"
#include "net/peer.h"

#define REPLY_ROOM YB_WIRE_EVENTS_BYTES_MAX /* The longest answer. */

void
yb_visit_end(struct yb_visit *visit)
{
    if (visit->peer != NULL) {
        yb_peer_destroy(&visit->peer);
    }
    if (visit->net != NULL) {
        yb_net_shut(visit->net);
        while (!yb_net_idle(visit->net)) {
            yb_loop_turn(visit->loop, YB_NS_PER_MS);
        }
        yb_net_destroy(&visit->net);
    }
    if (visit->loop != NULL) {
        yb_loop_destroy(&visit->loop);
    }
    free(visit->reply);
}

static enum yb_status
visit_open(struct yb_visit *visit, const struct yb_address *directory)
{
    const struct yb_process *process = visit->process;
    struct yb_loop_options loop;
    struct yb_net_options net;
    struct yb_address_list where = {.count = 1};
    enum yb_status status;

    yb_process_net_options(process, &loop, &net);
    loop.spin_us = 0;
    net.self = &visit->self;
    net.stats = NULL; /* Looking is not what is looked at. */
    net.spans = NULL;
    net.log = NULL;
    status = yb_loop_create(&loop, &visit->loop);
    if (status != YB_OK) {
        return status;
    }
    net.loop = visit->loop;
    status = yb_net_create(&net, &visit->net);
    if (status != YB_OK) {
        return status;
    }
    where.items[0] = *directory;
    return yb_peer_create(visit->net, &where, (struct yb_id){{0}}, &visit->peer);
}

enum yb_status
yb_visit_begin(const struct yb_process *process, const struct yb_address *directory,
               const char *tenant, struct yb_visit *visit)
{
    enum yb_status status = YB_NO_MEMORY;

    *visit = (struct yb_visit){.process = process, .self = process->self};
    visit->self.role = tenant != NULL ? YB_WIRE_ROLE_CLIENT : YB_WIRE_ROLE_ADMIN;
    visit->self.tenant = tenant != NULL ? tenant : "";
    yb_net_random_system(NULL, &visit->self.identity, sizeof(visit->self.identity));
    visit->reply = malloc(REPLY_ROOM);
    if (visit->reply != NULL) {
        status = visit_open(visit, directory);
    }
    if (status != YB_OK) {
        yb_visit_end(visit);
    }
    return status;
}

static void
on_done(struct yb_call *call)
{
    struct yb_visit *visit = call->owner;

    visit->done = true;
    yb_io_wake(yb_loop_io(visit->loop));
}

enum yb_status
yb_visit_ask(struct yb_visit *visit, uint16_t type, struct yb_visit_body body, bool mutates)
{
    struct yb_call call = {
        .type = type,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_deadline_after(yb_clock_now(visit->process->clock), YB_VISIT_ASK_NS),
        .mutates = mutates,
        .body = body.bytes,
        .body_bytes = (uint32_t)body.length,
        .reply_body = visit->reply,
        .reply_body_room = REPLY_ROOM,
        .done = on_done,
        .owner = visit,
    };
    enum yb_status status = yb_peer_call(visit->peer, &call);

    visit->done = false;
    while (status == YB_OK && !visit->done) {
        yb_loop_turn(visit->loop, YB_NEVER);
    }
    visit->reply_bytes = call.answered ? call.reply_body_bytes : 0;
    return status == YB_OK ? call.status : status;
}
