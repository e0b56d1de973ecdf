/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes that keep blocks on a medium of their own, and are away, or have not named all of them yet:
 * the *parties*. What is removed or replaced meanwhile is in the list of kills, so that they are
 * refused what is over when they name it. The list is in memory. That it is needed is durable
 * before anything in it is acknowledged: the party `owes`. A directory that starts again has no
 * list, and believes a party that owes nothing but what others hold, too (RULES A5, A14). Nor does
 * it believe what a party of a new name has on a disk: who knows where that was. An object store is
 * the cluster's own (tier/object/claim.h), so that a new name says nothing against it.
 *
 *     a life that keeps --> OPEN --"listed"--> (nothing to remember)
 *          ^                                        |
 *          +------- AWAY <--------------------------+   its life has ended
 */
#include "directory/directory_internal.h"

enum yb_status
yb_directory_owe(struct yb_directory *directory)
{
    enum yb_status status;

    if (!yb_members_owe(directory->members, true)) {
        return YB_OK;
    }
    status = yb_directory_store(directory, NULL);
    if (status != YB_OK) {
        (void)yb_members_owe(directory->members, false);
    }
    return status;
}

void
yb_directory_ended(struct yb_directory *directory, uint32_t tenant, struct yb_id hash,
                   uint64_t grant)
{
    if (grant == 0 || !yb_members_parties(directory->members)) {
        return;
    }
    if (yb_kills_add(directory->kills, tenant, hash, grant) != YB_OK) {
        yb_log_warn(directory->options.log, "directory",
                    "more was removed than can be remembered for nodes that are away: what they "
                    "keep is not believed",
                    yb_log_u64("kills", yb_kills_count(directory->kills)));
        yb_members_distrust(directory->members);
        yb_kills_clear(directory->kills);
    }
}

void
yb_directory_unconfirmed(struct yb_directory *directory, uint16_t slot)
{
    const struct yb_directory_port *port = directory->ports[slot];

    if (port == NULL || !port->open) {
        return;
    }
    if (port->overflowed) { /* Some of its orders were not remembered. */
        yb_members_distrust(directory->members);
    }
    for (uint32_t i = 0; i < port->order_count; i++) {
        const struct yb_directory_order *order =
            &port->orders[(port->order_first + i) & (port->order_room - 1)];

        /* What was trimmed is not over: others have it. */
        if (order->kind != YB_DIRECTORY_FLUSH && order->kind != YB_DIRECTORY_DROP_TRIMMED) {
            yb_directory_ended(directory, order->tenant, order->hash, order->number);
        }
    }
}

bool
yb_directory_has_unconfirmed(const struct yb_directory *directory, uint16_t slot)
{
    const struct yb_directory_port *port = directory->ports[slot];

    return port != NULL && port->open && (port->order_count > 0 || port->overflowed);
}

enum yb_status
yb_directory_believes(struct yb_directory *directory, const struct yb_members_slot *slot,
                      uint32_t tenant, const struct yb_wire_publish_item *item)
{
    struct yb_index_query query = {.tenant = tenant, .now_ms = yb_directory_now_ms(directory)};
    struct yb_index_answer found;

    if (yb_kills_cover(directory->kills, tenant, item->hash, item->grant)) {
        return YB_FENCED;
    }
    if (!slot->distrusted && !slot->unknown) {
        return YB_OK;
    }
    /* Kills are in an object store itself, whoever has it open: it is as good as what is known of
     * those that nobody could be told there. */
    if (item->tier == YB_WIRE_TIER_OBJECT && !yb_members_kills_lost(directory->members)) {
        return YB_OK;
    }
    yb_index_lookup(directory->index, &query, &item->hash, 1, &found);
    return found.grant == item->grant ? YB_OK : YB_REFUSED; /* OK: others hold it. */
}

void
yb_directory_listed(struct yb_directory *directory, struct yb_members_slot *slot)
{
    bool owed = slot->owes;

    if (!slot->open) {
        return;
    }
    slot->open = slot->distrusted = slot->unknown = slot->owes = false;
    if (owed && yb_directory_store(directory, NULL) != YB_OK) {
        slot->owes = true; /* In the file, too: it may be distrusted once more, without need. */
    }
    if (!yb_members_parties(directory->members)) {
        yb_kills_clear(directory->kills);
    }
    yb_log_info(directory->options.log, "directory", "a node has named all that it keeps",
                yb_log_str("name", slot->facts.name), yb_log_u64("slot", slot->slot));
}
