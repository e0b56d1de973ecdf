/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections to engines that prompts were pulled from. To make one takes as long as a small pull:
 * they are kept for the next. Each is lent to one pull at a time.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine_internal.h"

/* Take the one at `index` out. */
static yb_transfer_peer
take_out(struct yb_engine_holders *holders, uint32_t index)
{
    yb_transfer_peer peer = holders->rows[index].peer;

    holders->count--;
    memmove(&holders->rows[index], &holders->rows[index + 1],
            (holders->count - index) * sizeof(holders->rows[0]));
    return peer;
}

bool
yb_engine_holder_take(struct yb_engine *engine, const char *address, yb_transfer_peer *peer_out)
{
    struct yb_engine_holders *holders = &engine->holders;
    bool found = false;

    yb_lock_acquire(&engine->lock);
    for (uint32_t i = holders->count; i > 0 && !found; i--) {
        found = strcmp(holders->rows[i - 1].address, address) == 0;
        if (found) {
            *peer_out = take_out(holders, i - 1);
        }
    }
    yb_lock_release(&engine->lock);
    return found;
}

void
yb_engine_holder_keep(struct yb_engine *engine, const char *address, yb_transfer_peer peer)
{
    struct yb_engine_holders *holders = &engine->holders;
    yb_transfer_peer oldest = 0;
    bool full;

    yb_lock_acquire(&engine->lock);
    full = holders->count == YB_ENGINE_HOLDERS_MAX;
    if (full) {
        oldest = take_out(holders, 0);
    }
    (void)snprintf(holders->rows[holders->count].address,
                   sizeof(holders->rows[holders->count].address), "%s", address);
    holders->rows[holders->count++].peer = peer;
    yb_lock_release(&engine->lock);
    if (full) {
        (void)!yb_transfer_close(engine->options.transfer, oldest);
    }
}

void
yb_engine_holders_close(struct yb_engine *engine)
{
    struct yb_engine_holders *holders = &engine->holders;

    while (holders->count > 0) {
        (void)!yb_transfer_close(engine->options.transfer, take_out(holders, 0));
    }
}
