/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_rig.h"

#include <stdlib.h>

void
rig_init(struct rig *rig, size_t bytes, bool tight)
{
    duo_init(&rig->duo);
    rig->relay = relay_create(rig->duo.address, tight);
    assert_int_equal(yb_transfer_close(rig->duo.here, rig->duo.peer), YB_OK);
    rig->duo.peer = duo_open(rig->duo.here, relay_address(rig->relay));
    area_init(&rig->local, bytes);
    area_init(&rig->remote, bytes);
    rig->region = duo_register(rig->duo.there, &rig->remote);
}

void
rig_fini(struct rig *rig)
{
    duo_fini(&rig->duo);
    relay_destroy(&rig->relay);
    area_fini(&rig->local);
    area_fini(&rig->remote);
}

struct yb_transfer_item
rig_item(const struct rig *rig, enum yb_transfer_op op)
{
    return duo_item(op, &rig->local, rig->region);
}

struct yb_transfer_batch_options
within_ms(uint64_t ms)
{
    return (struct yb_transfer_batch_options){
        .struct_bytes = sizeof(struct yb_transfer_batch_options),
        .timeout_ns = ms * MS_NS,
    };
}

void
rig_reopen(struct rig *rig)
{
    assert_int_equal(yb_transfer_close(rig->duo.here, rig->duo.peer), YB_OK);
    rig->duo.peer = duo_open(rig->duo.here, relay_address(rig->relay));
}

void
rig_warm(struct rig *rig)
{
    struct yb_transfer_item item = rig_item(rig, YB_TRANSFER_WRITE);

    assert_int_equal(duo_run(&rig->duo, &item, 1, NULL, NULL).status, YB_OK);
}

struct yb_id
rig_identity(const struct rig *rig)
{
    struct yb_id identity;
    yb_transfer_peer back;
    char address[64];

    assert_int_equal(yb_transfer_address(rig->duo.here, address, sizeof(address)), YB_OK);
    back = duo_open(rig->duo.there, address);
    identity = duo_identity(rig->duo.there, back);
    assert_int_equal(yb_transfer_close(rig->duo.there, back), YB_OK);
    return identity;
}

static void
next_link(struct yb_transfer *engine, yb_transfer_batch batch, void *owner)
{
    struct rig_chain *chain = owner;
    struct yb_transfer_batch_options options = within_ms(20000);
    yb_transfer_batch next;

    options.done = next_link;
    options.owner = chain;
    if (batch != 0 && yb_transfer_release(engine, batch) != YB_OK) {
        abort();
    }
    atomic_fetch_add(&chain->links, 1);
    if (yb_transfer_submit(engine, chain->peer, &chain->item, 1, &options, &next) != YB_OK) {
        atomic_fetch_add(&chain->refused, 1);
    }
}

void
rig_chain(const struct rig *rig, struct rig_chain *chain, enum yb_transfer_op op)
{
    chain->item = rig_item(rig, op);
    chain->peer = rig->duo.peer;
    chain->links = chain->refused = 0;
    next_link(rig->duo.here, 0, chain);
}
