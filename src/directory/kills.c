/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/kills.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define KEYS_MAX (UINT32_C(1) << 24)

struct kill {
    struct yb_id hash;
    uint64_t grant; /* 0: free. */
    uint32_t tenant;
    uint32_t unused;
};

struct yb_kills {
    uint32_t keys_max;
    uint32_t count;
    uint32_t mask;
    uint64_t seed;
    struct kill kills[]; /* Open addressing, at most half full. */
};

enum yb_status
yb_kills_create(uint32_t keys_max, uint64_t seed, struct yb_kills **kills_out)
{
    struct yb_kills *kills;
    uint32_t places = 16;

    if (keys_max == 0 || keys_max > KEYS_MAX) {
        return YB_INVALID;
    }
    while (places < keys_max * 2) {
        places *= 2;
    }
    kills = calloc(1, sizeof(*kills) + places * sizeof(kills->kills[0]));
    if (kills == NULL) {
        return YB_NO_MEMORY;
    }
    kills->keys_max = keys_max;
    kills->mask = places - 1;
    kills->seed = seed;
    *kills_out = kills;
    return YB_OK;
}

void
yb_kills_destroy(struct yb_kills **kills)
{
    free(*kills);
    *kills = NULL;
}

/* Return where a key is, or where it would be. */
static uint32_t
place_of(const struct yb_kills *kills, uint32_t tenant, struct yb_id hash)
{
    uint32_t place = (uint32_t)yb_hash_table_id(kills->seed, hash) & kills->mask;

    while (kills->kills[place].grant != 0 &&
           (kills->kills[place].tenant != tenant || !yb_id_equal(kills->kills[place].hash, hash))) {
        place = (place + 1) & kills->mask;
    }
    return place;
}

enum yb_status
yb_kills_add(struct yb_kills *kills, uint32_t tenant, struct yb_id hash, uint64_t grant)
{
    struct kill *kill = &kills->kills[place_of(kills, tenant, hash)];

    YB_ASSERT(grant != 0);
    if (kill->grant == 0) {
        if (kills->count == kills->keys_max) {
            return YB_NO_SPACE;
        }
        kills->count++;
        *kill = (struct kill){.hash = hash, .tenant = tenant};
    }
    kill->grant = grant > kill->grant ? grant : kill->grant;
    return YB_OK;
}

bool
yb_kills_cover(const struct yb_kills *kills, uint32_t tenant, struct yb_id hash, uint64_t grant)
{
    return grant <= kills->kills[place_of(kills, tenant, hash)].grant;
}

uint32_t
yb_kills_count(const struct yb_kills *kills)
{
    return kills->count;
}

void
yb_kills_clear(struct yb_kills *kills)
{
    if (kills->count > 0) {
        memset(kills->kills, 0, ((size_t)kills->mask + 1) * sizeof(kills->kills[0]));
        kills->count = 0;
    }
}
