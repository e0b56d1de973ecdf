/* SPDX-License-Identifier: Apache-2.0
 *
 * tier.c -- the contract of tier.h, checked for every medium in one place.
 */
#include "tier/tier.h"

#include "base/check.h"

static void
check_op(const struct yb_tier *tier, const struct yb_tier_op *op)
{
    YB_ASSERT(tier->magic == YB_TIER_MAGIC);
    YB_ASSERT(op->done != NULL);
}

static uint64_t
iov_sum(const struct iovec *iov, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += iov[i].iov_len;
    }
    return sum;
}

enum yb_status
yb_tier_store(struct yb_tier *tier, struct yb_tier_store *store)
{
    check_op(tier, &store->op);
    YB_ASSERT(iov_sum(store->iov, store->iov_count) == store->record.size);
    YB_ASSERT(store->record.grant != 0 && store->record.key_bytes > 0);
    return tier->ops->store(tier, store);
}

enum yb_status
yb_tier_load(struct yb_tier *tier, struct yb_tier_load *load)
{
    check_op(tier, &load->op);
    YB_ASSERT(iov_sum(load->iov, load->iov_count) == load->length);
    return tier->ops->load(tier, load);
}

enum yb_status
yb_tier_kill(struct yb_tier *tier, struct yb_tier_kill *kill)
{
    check_op(tier, &kill->op);
    return tier->ops->kill(tier, kill);
}

enum yb_status
yb_tier_flush(struct yb_tier *tier, struct yb_tier_flush *flush)
{
    check_op(tier, &flush->op);
    return tier->ops->flush(tier, flush);
}

void
yb_tier_cancel(struct yb_tier *tier, struct yb_tier_op *op)
{
    check_op(tier, op);
    tier->ops->cancel(tier, op);
}

void
yb_tier_urge(struct yb_tier *tier, struct yb_tier_op *op, enum yb_class traffic_class,
             uint64_t deadline_ns)
{
    check_op(tier, op);
    tier->ops->urge(tier, op, traffic_class, deadline_ns);
}

bool
yb_tier_find(struct yb_tier *tier, struct yb_id hash, struct yb_tier_found *found_out)
{
    YB_ASSERT(tier->magic == YB_TIER_MAGIC);
    return tier->ops->find(tier, hash, found_out);
}

struct yb_tier_forecast
yb_tier_forecast(struct yb_tier *tier, enum yb_class traffic_class)
{
    YB_ASSERT(tier->magic == YB_TIER_MAGIC);
    return tier->ops->forecast(tier, traffic_class);
}

void
yb_tier_info(struct yb_tier *tier, struct yb_tier_info *info_out)
{
    YB_ASSERT(tier->magic == YB_TIER_MAGIC);
    tier->ops->info(tier, info_out);
    info_out->name = tier->ops->name;
    info_out->tier = tier->ops->tier;
}

void
yb_tier_stop(struct yb_tier *tier)
{
    YB_ASSERT(tier->magic == YB_TIER_MAGIC);
    tier->ops->stop(tier);
}

bool
yb_tier_idle(const struct yb_tier *tier)
{
    YB_ASSERT(tier->magic == YB_TIER_MAGIC);
    return tier->ops->idle(tier);
}

void
yb_tier_destroy(struct yb_tier **tier)
{
    if (*tier == NULL) {
        return;
    }
    YB_ASSERT((*tier)->magic == YB_TIER_MAGIC);
    YB_ASSERT((*tier)->ops->idle(*tier));
    (*tier)->ops->destroy(*tier);
    *tier = NULL;
}
