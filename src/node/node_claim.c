/* SPDX-License-Identifier: Apache-2.0
 *
 * Media that others can reach, too, are claimed for the cluster that the node has joined, before
 * they are opened: what another cluster has there is not listed, killed or flushed. Until then, and
 * while nobody can be asked, the node lives on without them.
 *
 *     WAITS --registered--> claiming --OK------> opened, and claimed again now and then
 *       ^                      |    \--REFUSED-> another cluster's
 *       +--- after a pause ----+
 *
 * STALE: a later directory has gone on as the cluster that ours is. Until we follow it we write,
 * kill and flush nothing there.
 */
#include <stdio.h>
#include <string.h>

#include "node/node_below.h"

#define AGAIN_NS   YB_NS_PER_S
#define REFUSED_NS (10 * YB_NS_PER_S)
#define CLAIMED_NS (30 * YB_NS_PER_S)

static const struct yb_node_tier *
maker_of(const struct yb_node_level *level)
{
    return &level->node->options.tiers[level->number];
}

bool
yb_node_claim_waits(const struct yb_node_level *level)
{
    return maker_of(level)->claim != NULL && level->claimed != YB_OK &&
           (level->claimed != YB_REFUSED || level->tier != NULL);
}

bool
yb_node_claim_begins(const struct yb_node *node)
{
    bool begins = false;

    for (uint32_t i = 0; i < node->below->level_count; i++) {
        begins = begins || (maker_of(&node->below->levels[i])->claim != NULL &&
                            node->below->levels[i].claimed == YB_NOT_READY);
    }
    return begins && node->registered;
}

/* ---- one claim ------------------------------------------------------------------------------- */

static void
say_why(struct yb_node_level *level, enum yb_status status, const char *why)
{
    bool news = level->claimed != status;

    level->claimed = status;
    level->aside = status;
    (void)snprintf(level->why, sizeof(level->why), "%s", why);
    if (news) {
        yb_log_warn(level->node->options.log, "node", "a tier cannot be claimed",
                    yb_log_str("tier", yb_wire_tier_name(level->kind)),
                    yb_log_status("status", status), yb_log_str("why", why));
    }
}

/* It is ours, still or again. */
static void
have(struct yb_node_level *level)
{
    if (level->tier != NULL && level->claimed != YB_OK) {
        struct yb_tier_info info;

        yb_tier_info(level->tier, &info);
        level->aside = info.aside;
        yb_node_level_back(level);
        yb_log_info(level->node->options.log, "node", "a tier is claimed again",
                    yb_log_str("tier", yb_wire_tier_name(level->kind)));
    }
    level->claimed = YB_OK;
}

static void
on_claimed(void *owner, enum yb_status status, const char *why)
{
    struct yb_node_level *level = owner;
    struct yb_loop *loop = yb_net_loop(level->node->net);

    level->claim_ns = yb_deadline_after(yb_loop_now(loop), status == YB_OK        ? CLAIMED_NS
                                                           : status == YB_REFUSED ? REFUSED_NS
                                                                                  : AGAIN_NS);
    if (level->node->stopping || level->claim_cluster != level->node->cluster) {
        status = YB_CANCELLED;
    } else if (status == YB_OK) {
        have(level);
    } else if (level->tier == NULL || status == YB_REFUSED || status == YB_STALE) {
        say_why(level, status, why);
    }
    level->opens = status == YB_OK && level->tier == NULL;
    yb_loop_defer(loop, &level->claim_task); /* The claim cannot end within its own call. */
}

static void
run_task(struct yb_task *task)
{
    struct yb_node_level *level =
        (struct yb_node_level *)((uint8_t *)task - offsetof(struct yb_node_level, claim_task));
    struct yb_node *node = level->node;

    maker_of(level)->claim_over(maker_of(level)->context);
    level->claiming = false;
    if (level->opens && !node->stopping) {
        yb_node_level_open(level);
        yb_node_level_flush(level);
        yb_node_level_back(level);
    }
    level->opens = false;
}

static void
begin(struct yb_node_level *level)
{
    struct yb_node *node = level->node;
    char why[YB_NODE_WHY_BYTES] = "";
    struct yb_node_tier_claim claim = {
        .loop = yb_net_loop(node->net),
        .cluster = node->cluster_id,
        .epoch = node->epoch,
        .done = on_claimed,
        .owner = level,
        .why_out = why,
        .why_bytes = sizeof(why),
    };
    enum yb_status status;

    memcpy(claim.seed, node->seed, sizeof(claim.seed));
    status = maker_of(level)->claim(maker_of(level)->context, &claim);
    if (status != YB_OK) {
        level->claim_ns = yb_deadline_after(yb_node_now(node), REFUSED_NS);
        if (level->tier == NULL) {
            say_why(level, status, why);
        }
        return;
    }
    level->claiming = true;
    level->claim_cluster = node->cluster;
}

/* ---- when ------------------------------------------------------------------------------------ */

void
yb_node_claim_init(struct yb_node_level *level)
{
    level->claim_task.run = run_task;
    if (maker_of(level)->claim != NULL) {
        level->claimed = YB_NOT_READY;
        (void)snprintf(level->why, sizeof(level->why),
                       "the node has not joined a cluster yet to claim it for");
    }
}

/* What was opened for the cluster before stays with that one. */
static void
leave(struct yb_node_level *level)
{
    struct yb_shelf *shelf = level->node->below->shelf;
    uint8_t others = (uint8_t) ~(1u << level->number);

    level->foreign = true;
    say_why(level, YB_REFUSED,
            "it was opened for the cluster that the node has left: start the node again to claim "
            "it for the one that it has joined");
    for (uint32_t i = 0; i < yb_shelf_span(shelf); i++) {
        struct yb_shelf_record *record = yb_shelf_at(shelf, i);

        if (record->state == YB_SHELF_LIVE) {
            record->resident &= others;
            record->claimed &= others;
            record->told &= others;
            yb_node_doubt(record, level->number, false);
            (void)yb_node_below_forget(level->node, record);
        }
    }
}

void
yb_node_claim_registered(struct yb_node *node)
{
    for (uint32_t i = 0; i < node->below->level_count; i++) {
        struct yb_node_level *level = &node->below->levels[i];

        if (maker_of(level)->claim == NULL) {
            continue;
        }
        if (level->tier != NULL && !level->foreign && level->claim_cluster != node->cluster) {
            leave(level);
        }
        level->claim_ns = 0; /* At once. */
    }
}

void
yb_node_claim_tick(struct yb_node *node)
{
    for (uint32_t i = 0; i < node->below->level_count; i++) {
        struct yb_node_level *level = &node->below->levels[i];

        if (maker_of(level)->claim != NULL && !level->claiming && !level->foreign &&
            node->registered && yb_node_now(node) >= level->claim_ns) {
            begin(level);
        }
    }
}

void
yb_node_claim_stop(struct yb_node *node)
{
    for (uint32_t i = 0; i < node->below->level_count; i++) {
        struct yb_node_level *level = &node->below->levels[i];

        if (level->claiming) {
            maker_of(level)->claim_cancel(maker_of(level)->context);
        }
    }
}

bool
yb_node_claim_idle(const struct yb_node *node)
{
    for (uint32_t i = 0; i < node->below->level_count; i++) {
        if (node->below->levels[i].claiming) {
            return false;
        }
    }
    return true;
}
