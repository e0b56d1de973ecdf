/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is in the store, as the directory says, and how to speak to them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "conductor/mover_internal.h"

#define ASK_NS   (2 * YB_NS_PER_S)
#define FRESH_NS YB_NS_PER_S

enum yb_status
yb_mover_nodes_create(struct yb_conductor_mover *mover)
{
    const struct yb_address_list where = {.count = 1, .items = {mover->options.directory}};

    mover->members = malloc(YB_WIRE_MEMBERS_BYTES_MAX);
    mover->nodes = calloc(YB_WIRE_MEMBERS_MEMBERS_MAX, sizeof(*mover->nodes));
    if (mover->members == NULL || mover->nodes == NULL) {
        return YB_NO_MEMORY;
    }
    return yb_peer_create(mover->options.net, &where, (struct yb_id){{0}}, &mover->directory);
}

void
yb_mover_nodes_stop(struct yb_conductor_mover *mover)
{
    if (mover->directory != NULL) {
        yb_peer_destroy(&mover->directory);
    }
    for (uint32_t i = 0; i < YB_MOVER_PEERS; i++) {
        if (mover->peers[i].peer != NULL) {
            yb_peer_destroy(&mover->peers[i].peer);
        }
    }
}

void
yb_mover_nodes_destroy(struct yb_conductor_mover *mover)
{
    free(mover->members);
    free(mover->nodes);
}

/* ---- the list -------------------------------------------------------------------------------- */

static void
take_members(struct yb_conductor_mover *mover, const struct yb_wire_members *said)
{
    mover->node_count = 0;
    for (uint32_t i = 0; i < said->members.count; i++) {
        struct yb_mover_node *node = &mover->nodes[mover->node_count];
        struct yb_wire_member member;

        yb_wire_member_at(&said->members, i, &member);
        if (member.state == YB_WIRE_SLOT_STATE_DEAD) {
            continue;
        }
        *node = (struct yb_mover_node){.incarnation = member.incarnation, .slot = member.slot};
        memcpy(node->name, member.name, sizeof(member.name));
        memcpy(node->address, member.address, sizeof(member.address));
        mover->node_count++;
    }
}

static void
on_members(struct yb_call *call)
{
    struct yb_conductor_mover *mover = call->owner;
    struct yb_wire_members members;

    mover->asking = false;
    if (mover->stopping) {
        return;
    }
    if (call->status == YB_OK && call->answered &&
        yb_wire_members_decode(mover->members, call->reply_body_bytes, &members, NULL) == YB_OK) {
        take_members(mover, &members);
        mover->listed_ns = yb_mover_now(mover);
    }
    yb_mover_pump(mover);
}

void
yb_mover_nodes_ask(struct yb_conductor_mover *mover, bool now)
{
    static const uint8_t everything[YB_WIRE_MEMBERS_QUESTION_BYTES];

    if (mover->asking || mover->stopping || (!now && yb_mover_nodes_fresh(mover))) {
        return;
    }
    mover->members_call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_MEMBERS,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_deadline_after(yb_mover_now(mover), ASK_NS),
        .body = everything,
        .body_bytes = sizeof(everything),
        .reply_body = mover->members,
        .reply_body_room = YB_WIRE_MEMBERS_BYTES_MAX,
        .done = on_members,
        .owner = mover,
    };
    mover->asking = yb_peer_call(mover->directory, &mover->members_call) == YB_OK;
}

bool
yb_mover_nodes_fresh(const struct yb_conductor_mover *mover)
{
    return mover->listed_ns != 0 && yb_mover_now(mover) - mover->listed_ns < FRESH_NS;
}

const struct yb_mover_node *
yb_mover_node_named(const struct yb_conductor_mover *mover, const char *name)
{
    const struct yb_mover_node *newest = NULL;

    for (uint32_t i = 0; i < mover->node_count; i++) { /* A life that is over may be there, too. */
        const struct yb_mover_node *node = &mover->nodes[i];

        if (strcmp(node->name, name) == 0 &&
            (newest == NULL || node->incarnation > newest->incarnation)) {
            newest = node;
        }
    }
    return newest;
}

const struct yb_mover_node *
yb_mover_node_at(const struct yb_conductor_mover *mover, uint16_t slot)
{
    for (uint32_t i = 0; i < mover->node_count; i++) {
        if (mover->nodes[i].slot == slot) {
            return &mover->nodes[i];
        }
    }
    return NULL;
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Return where a new one may stand: a free place, or that of one who is idle the longest. */
static struct yb_mover_peer *
place_for_peer(struct yb_conductor_mover *mover)
{
    struct yb_mover_peer *oldest = NULL;

    for (uint32_t i = 0; i < YB_MOVER_PEERS; i++) {
        struct yb_mover_peer *peer = &mover->peers[i];

        if (peer->peer == NULL) {
            return peer;
        }
        if (peer->under_way == 0 && (oldest == NULL || peer->used_ns < oldest->used_ns)) {
            oldest = peer;
        }
    }
    if (oldest != NULL) {
        yb_peer_destroy(&oldest->peer);
    }
    return oldest;
}

struct yb_mover_peer *
yb_mover_peer_of(struct yb_conductor_mover *mover, const char *address)
{
    struct yb_address_list list = {.count = 1};
    char why[YB_ADDRESS_WHY_BYTES];
    struct yb_mover_peer *peer;

    for (uint32_t i = 0; i < YB_MOVER_PEERS; i++) {
        peer = &mover->peers[i];
        if (peer->peer != NULL && strcmp(peer->address, address) == 0) {
            peer->used_ns = yb_mover_now(mover);
            return peer;
        }
    }
    if (yb_address_parse(address, 0, &list.items[0], why) != YB_OK) {
        return NULL;
    }
    peer = place_for_peer(mover);
    if (peer == NULL ||
        yb_peer_create(mover->options.net, &list, (struct yb_id){{0}}, &peer->peer) != YB_OK) {
        return NULL;
    }
    (void)snprintf(peer->address, sizeof(peer->address), "%s", address);
    peer->under_way = 0;
    peer->used_ns = yb_mover_now(mover);
    return peer;
}
