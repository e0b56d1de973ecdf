/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/near.h"

#include "base/check.h"
#include "memory/shared.h"
#include "net/net.h"
#include "transfer/engine_internal.h"
#include "transfer/shm/session.h"

enum yb_status
yb_transfer_create_as(const struct yb_transfer_options *options, struct yb_transfer_self self,
                      struct yb_transfer **engine_out, char *message_out, size_t message_bytes)
{
    const struct yb_transfer_ground machine = {
        .clock = yb_clock_system(),
        .random = yb_net_random_system,
        .identity = self.identity,
        .spans = self.spans,
        .stats = self.stats,
    };

    return yb_transfer_create_on(&machine, options, engine_out, message_out, message_bytes);
}

enum yb_status
yb_transfer_register_shared(struct yb_transfer *engine, const struct yb_shared *shared,
                            uint32_t access, yb_transfer_region *region_out)
{
    struct yb_shared_info memory = yb_shared_info(shared);
    const struct yb_region_info info = {
        .base = memory.base,
        .length = memory.length,
        .access = access,
        .backing.fd = memory.fd,
    };

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    return yb_region_register(engine->regions, &info, region_out);
}

struct yb_span_ring *
yb_transfer_spans(const struct yb_transfer *engine)
{
    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    return engine->spans;
}

bool
yb_transfer_is_device(struct yb_transfer *engine, const void *address)
{
    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    return yb_memory_probe(engine->memory, address).kind != YB_MEMORY_HOST;
}

enum yb_transfer_cover
yb_transfer_cover(struct yb_transfer *engine, const void *base, uint64_t length)
{
    struct yb_region_info info;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    YB_ASSERT(length > 0);
    if (yb_region_find(engine->regions, base, length, &info) != YB_OK ||
        (info.access & YB_REGION_READ) == 0) {
        return YB_TRANSFER_COVER_NONE;
    }
    return info.base == base && info.length == length ? YB_TRANSFER_COVER_SAME
                                                      : YB_TRANSFER_COVER_AROUND;
}

uint32_t
yb_transfer_nearness(struct yb_transfer *engine, yb_transfer_peer peer)
{
    struct yb_shm_session *session;
    struct yb_shm_session_info info;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    if (engine->ground.near) {
        return YB_TRANSFER_NEAR_MAPS | YB_TRANSFER_NEAR_READS;
    }
    session = engine->shm != NULL ? yb_shm_session_of(engine->shm, peer) : NULL;
    if (session == NULL) {
        return 0;
    }
    yb_shm_session_info(session, &info);
    yb_shm_session_unref(session);
    return YB_TRANSFER_NEAR_MAPS | (info.attach_theirs ? YB_TRANSFER_NEAR_READS : 0);
}

/* ---- borrowing ------------------------------------------------------------------------------- */

enum yb_status
yb_transfer_borrow(struct yb_transfer *engine, yb_transfer_peer peer, yb_transfer_region region,
                   struct yb_transfer_borrowed *borrowed_out)
{
    struct yb_shm_session *session;
    struct yb_shm_mapped mapped;
    enum yb_shm_loan loan;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    if (engine->shm == NULL || region == 0 || region == YB_TRANSFER_BY_ADDRESS) {
        return YB_UNSUPPORTED;
    }
    session = yb_shm_session_of(engine->shm, peer);
    if (session == NULL) {
        return YB_AGAIN;
    }
    loan = yb_shm_session_pin(session, region, true, &mapped);
    if (loan == YB_SHM_LOAN_READY) {
        *borrowed_out = (struct yb_transfer_borrowed){
            .session = session,
            .region = region,
            .bytes = mapped.bytes,
            .length = mapped.length,
        };
        return YB_OK; /* With the session's reference. */
    }
    yb_shm_session_unref(session);
    return loan == YB_SHM_LOAN_REFUSED ? YB_UNSUPPORTED : YB_AGAIN;
}

void
yb_transfer_give_back(struct yb_transfer_borrowed *borrowed)
{
    struct yb_transfer_borrowed gone = *borrowed;

    YB_ASSERT(gone.session != NULL);
    *borrowed = (struct yb_transfer_borrowed){.session = NULL};
    yb_shm_session_unpin(gone.session, gone.region);
    yb_shm_session_unref(gone.session);
}

/* ---- processes that borrow ------------------------------------------------------------------- */

enum yb_status
yb_transfer_process_watch(struct yb_transfer *engine, struct yb_id identity)
{
    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    return engine->shm != NULL ? yb_shm_host_witness(engine->shm, identity) : YB_UNSUPPORTED;
}

void
yb_transfer_process_unwatch(struct yb_transfer *engine, struct yb_id identity)
{
    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    yb_shm_host_unwitness(engine->shm, identity);
}

bool
yb_transfer_process_gone(struct yb_transfer *engine, struct yb_id identity)
{
    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    return engine->shm != NULL && yb_shm_host_gone(engine->shm, identity);
}
