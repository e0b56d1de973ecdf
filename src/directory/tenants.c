/* SPDX-License-Identifier: Apache-2.0
 *
 * Names, flush epochs and credits of tenants.
 */
#include "directory/tenants.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "directory/grant.h"

#define PLACES (YB_TENANTS_MAX * 2)

struct share {
    uint64_t used;   /* As the node told. */
    uint64_t credit; /* As it was told. */
};

struct yb_tenants {
    uint32_t slots_max;
    uint32_t count;
    uint32_t limited;
    uint32_t slot_top; /* No higher slot has a share. */
    uint64_t seed;
    uint64_t version;
    struct yb_tenant *tenants[YB_TENANTS_MAX];
    struct share *shares[YB_TENANTS_MAX]; /* [slots_max + 1], of those with a limit. */
    uint16_t places[PLACES];              /* Number plus 1; 0: empty. */
};

enum yb_status
yb_tenants_create(uint32_t slots_max, uint64_t epoch, uint64_t seed,
                  struct yb_tenants **tenants_out)
{
    struct yb_tenants *tenants = calloc(1, sizeof(*tenants));

    if (tenants == NULL) {
        return YB_NO_MEMORY;
    }
    tenants->slots_max = slots_max;
    tenants->seed = seed;
    tenants->version = yb_grant_epoch_start(epoch) + 1;
    *tenants_out = tenants;
    return YB_OK;
}

void
yb_tenants_destroy(struct yb_tenants **tenants_ref)
{
    struct yb_tenants *tenants = *tenants_ref;

    *tenants_ref = NULL;
    for (uint32_t i = 0; i < tenants->count; i++) {
        free(tenants->tenants[i]);
        free(tenants->shares[i]);
    }
    free(tenants);
}

/* Return the place of a name: where it is, or where it would be. */
static uint32_t
place_of(const struct yb_tenants *tenants, const char *name, uint32_t length)
{
    uint32_t place = (uint32_t)(yb_hash_table(tenants->seed, name, length) % PLACES);

    while (tenants->places[place] != 0) {
        const struct yb_tenant *tenant = tenants->tenants[tenants->places[place] - 1];

        if (strlen(tenant->name) == length && memcmp(tenant->name, name, length) == 0) {
            break;
        }
        place = (place + 1) % PLACES;
    }
    return place;
}

uint32_t
yb_tenants_find(const struct yb_tenants *tenants, const char *name, uint32_t length)
{
    uint32_t number = tenants->places[place_of(tenants, name, length)];

    return number == 0 ? YB_TENANTS_NONE : number - 1;
}

uint32_t
yb_tenants_take(struct yb_tenants *tenants, const char *name, uint32_t length)
{
    uint32_t place = place_of(tenants, name, length);
    struct yb_tenant *tenant;

    YB_ASSERT(length >= 1 && length <= YB_TENANTS_NAME_BYTES);
    if (tenants->places[place] != 0) {
        return tenants->places[place] - 1u;
    }
    tenant = tenants->count < YB_TENANTS_MAX ? calloc(1, sizeof(*tenant)) : NULL;
    if (tenant == NULL) {
        return YB_TENANTS_NONE;
    }
    memcpy(tenant->name, name, length);
    tenant->limit = YB_TENANTS_NO_LIMIT;
    tenants->tenants[tenants->count++] = tenant;
    tenants->places[place] = (uint16_t)tenants->count;
    return tenants->count - 1;
}

struct yb_tenant *
yb_tenants_at(struct yb_tenants *tenants, uint32_t number)
{
    YB_ASSERT(number < tenants->count);
    return tenants->tenants[number];
}

uint32_t
yb_tenants_count(const struct yb_tenants *tenants)
{
    return tenants->count;
}

enum yb_status
yb_tenants_limit(struct yb_tenants *tenants, uint32_t number, uint64_t bytes)
{
    struct yb_tenant *tenant = yb_tenants_at(tenants, number);

    if (bytes != YB_TENANTS_NO_LIMIT && tenants->shares[number] == NULL) {
        tenants->shares[number] = calloc((size_t)tenants->slots_max + 1, sizeof(struct share));
        if (tenants->shares[number] == NULL) {
            return YB_NO_MEMORY;
        }
    }
    tenants->limited += bytes != YB_TENANTS_NO_LIMIT ? 1 : 0;
    tenants->limited -= tenant->limit != YB_TENANTS_NO_LIMIT ? 1 : 0;
    tenant->limit = bytes;
    tenants->version++;
    return YB_OK;
}

void
yb_tenants_flush(struct yb_tenants *tenants, uint32_t number, uint64_t epoch, uint64_t now_ns)
{
    struct yb_tenant *tenant = yb_tenants_at(tenants, number);

    tenant->flush = epoch;
    tenant->flushed_ns = now_ns;
    tenants->version++;
}

bool
yb_tenants_limited(const struct yb_tenants *tenants)
{
    return tenants->limited > 0;
}

uint64_t
yb_tenants_version(const struct yb_tenants *tenants)
{
    return tenants->version;
}

/* ---- credits --------------------------------------------------------------------------------- */

void
yb_tenants_use_begin(struct yb_tenants *tenants, uint32_t slot)
{
    for (uint32_t i = 0; tenants->limited > 0 && i < tenants->count; i++) {
        if (tenants->shares[i] != NULL) {
            tenants->shares[i][slot].used = 0;
        }
    }
}

void
yb_tenants_use(struct yb_tenants *tenants, uint32_t number, uint32_t slot, uint64_t used)
{
    YB_ASSERT(slot <= tenants->slots_max);
    if (tenants->shares[number] != NULL) {
        tenants->slot_top = slot > tenants->slot_top ? slot : tenants->slot_top;
        tenants->shares[number][slot].used = used;
    }
}

static uint64_t
less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t
sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t
yb_tenants_credit(struct yb_tenants *tenants, uint32_t number, uint32_t slot, uint32_t nodes)
{
    const struct yb_tenant *tenant = yb_tenants_at(tenants, number);
    struct share *shares = tenants->shares[number];
    uint64_t others_used = 0;
    uint64_t others_may = 0; /* Use, if each uses up its credit. */
    uint64_t used;
    uint64_t left;
    uint64_t credit;

    if (tenant->limit == YB_TENANTS_NO_LIMIT) {
        return YB_TENANTS_NO_LIMIT;
    }
    tenants->slot_top = slot > tenants->slot_top ? slot : tenants->slot_top;
    for (uint32_t i = 1; i <= tenants->slot_top; i++) {
        if (i != slot) {
            others_used = sum(others_used, shares[i].used);
            others_may = sum(others_may,
                             shares[i].used > shares[i].credit ? shares[i].used : shares[i].credit);
        }
    }
    used = shares[slot].used;
    left = tenant->limit - less(tenant->limit, sum(others_used, used));
    credit = less(sum(used, left / (nodes > 0 ? nodes : 1)),
                  tenant->limit - less(tenant->limit, others_may)); /* T1 */
    if (credit < used) {                                            /* T2 */
        credit = less(used, tenant->limit - less(tenant->limit, others_used));
    }
    shares[slot].credit = credit;
    return credit;
}

void
yb_tenants_forget(struct yb_tenants *tenants, uint32_t slot)
{
    for (uint32_t i = 0; i < tenants->count; i++) {
        if (tenants->shares[i] != NULL) {
            tenants->shares[i][slot] = (struct share){0};
        }
    }
}
