/* SPDX-License-Identifier: Apache-2.0 */
#include "client/choose.h"

#include "base/check.h"
#include "base/clock.h"

#define PROBE_MIN_NS (100 * YB_NS_PER_MS)
#define PROBE_MAX_NS (2 * YB_NS_PER_S) /* It is waited for in vain for so long. */

/* TCP, TLS, two of the handshake, the question; and as many again for one that is busy. */
#define PROBE_TRIPS   10u
#define PROBE_BYTE_NS 15u /* 64 MiB/s: half of a slow link. */

/* How much a node may fail together with, of those that are chosen already: a host weighs more than
 * a rack and a zone, a rack more than a zone. The first one: whether it is elsewhere. The smaller
 * the better. */
#define SAME_ZONE  1u
#define SAME_RACK  2u
#define SAME_HOST  4u
#define SHARED_MAX (SAME_ZONE | SAME_RACK | SAME_HOST)

static uint32_t
closeness(const struct yb_choice *choices, const struct yb_choice *one, const uint32_t *chosen,
          uint32_t chosen_count)
{
    uint32_t worst = chosen_count == 0 && !one->local ? 1 : 0;

    for (uint32_t i = 0; i < chosen_count; i++) {
        const struct yb_choice *other = &choices[chosen[i]];
        uint32_t level = 0;

        if (other->zone != 0 && other->zone == one->zone) {
            level |= SAME_ZONE;
        }
        if (other->rack != 0 && other->rack == one->rack) {
            level |= SAME_RACK;
        }
        if (other->host != 0 && other->host == one->host) {
            level |= SAME_HOST;
        }
        worst = level > worst ? level : worst;
    }
    return worst;
}

static bool
possible(const struct yb_choice *choices, uint32_t row, uint64_t bytes, const uint32_t *chosen,
         uint32_t chosen_count)
{
    const struct yb_choice *one = &choices[row];

    if (!one->writable || one->tried || one->capacity < bytes) {
        return false;
    }
    for (uint32_t i = 0; i < chosen_count; i++) {
        if (chosen[i] == row || choices[chosen[i]].slot == one->slot) {
            return false;
        }
    }
    return true;
}

/* lint: size, what is to be placed and what was chosen already are apart.
 * Return the `number`-th possible row of the given closeness; `count_out`, if not NULL, is how many
 * there are. */
static uint32_t
nth(const struct yb_choice *choices, uint32_t count, uint64_t bytes, const uint32_t *chosen,
    uint32_t chosen_count, uint32_t level, uint32_t number, uint32_t *count_out)
{
    uint32_t found = UINT32_MAX;
    uint32_t seen = 0;

    for (uint32_t row = 0; row < count; row++) {
        if (!possible(choices, row, bytes, chosen, chosen_count) ||
            closeness(choices, &choices[row], chosen, chosen_count) != level) {
            continue;
        }
        if (seen == number) {
            found = row;
        }
        seen++;
    }
    if (count_out != NULL) {
        *count_out = seen;
    }
    return found;
}

/* Return the row of a preferred node, the one with the most room; UINT32_MAX: none. */
static uint32_t
favourite(const struct yb_choice *choices, uint32_t count, uint64_t bytes, const uint32_t *chosen,
          uint32_t chosen_count)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t row = 0; row < count; row++) {
        if (choices[row].preferred && possible(choices, row, bytes, chosen, chosen_count) &&
            (best == UINT32_MAX || choices[row].free_bytes > choices[best].free_bytes)) {
            best = row;
        }
    }
    return best;
}

/* Whether `a` is the better of two: by the free share of its capacity. */
static bool
roomier(const struct yb_choice *a, const struct yb_choice *b)
{
    long double share_a = a->capacity == 0 ? 0 : (long double)a->free_bytes / a->capacity;
    long double share_b = b->capacity == 0 ? 0 : (long double)b->free_bytes / b->capacity;

    return share_a >= share_b;
}

/* A node's place in a group's order of nodes: the highest comes first. The mixing is that of
 * splitmix64, and has to be the same in every client. */
static uint64_t
weight(uint64_t group, uint16_t slot)
{
    uint64_t x = group + (slot + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Return the row, among those of the given closeness that have room, which comes first in the
 * block's group's order; UINT32_MAX: it is in no group, or none has room. */
static uint32_t
home(const struct yb_choice *choices, uint32_t count, const struct yb_choose_block *block,
     const uint32_t *chosen, uint32_t chosen_count, uint32_t level)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t row = 0; row < count && block->group != 0; row++) {
        const struct yb_choice *one = &choices[row];

        if (one->free_bytes >= block->bytes &&
            possible(choices, row, block->bytes, chosen, chosen_count) &&
            closeness(choices, one, chosen, chosen_count) == level &&
            (best == UINT32_MAX ||
             weight(block->group, one->slot) > weight(block->group, choices[best].slot))) {
            best = row;
        }
    }
    return best;
}

static uint32_t
draw(const struct yb_choice *choices, uint32_t count, const struct yb_choose_block *block,
     const uint32_t *chosen, uint32_t chosen_count, const uint64_t random[2])
{
    uint64_t bytes = block->bytes;

    for (uint32_t level = 0; level <= SHARED_MAX; level++) {
        uint32_t members = 0;
        uint32_t a, b;

        (void)nth(choices, count, bytes, chosen, chosen_count, level, 0, &members);
        if (members == 0) {
            continue;
        }
        a = home(choices, count, block, chosen, chosen_count, level);
        if (a != UINT32_MAX) {
            return a;
        }
        a = nth(choices, count, bytes, chosen, chosen_count, level, (uint32_t)(random[0] % members),
                NULL);
        b = nth(choices, count, bytes, chosen, chosen_count, level, (uint32_t)(random[1] % members),
                NULL);
        return roomier(&choices[a], &choices[b]) ? a : b;
    }
    return UINT32_MAX;
}

uint32_t
yb_choose_places(const struct yb_choice *choices, uint32_t count,
                 const struct yb_choose_block *block, const uint64_t *random,
                 uint32_t rows_out[YB_CHOOSE_MAX])
{
    uint32_t made = 0;

    YB_ASSERT(block->wanted >= 1 && block->wanted <= YB_CHOOSE_MAX);
    while (made < block->wanted) {
        uint32_t row = favourite(choices, count, block->bytes, rows_out, made);

        if (row == UINT32_MAX) {
            row = draw(choices, count, block, rows_out, made, random + (size_t)2 * made);
        }
        if (row == UINT32_MAX) {
            break;
        }
        rows_out[made++] = row;
    }
    return made;
}

bool
yb_choose_exceeds(const struct yb_choice *choices, uint32_t count, uint64_t bytes)
{
    for (uint32_t row = 0; row < count; row++) {
        uint64_t capacity = choices[row].capacity; /* From outside: a sum of them may wrap. */

        bytes -= capacity < bytes ? capacity : bytes;
    }
    return bytes > 0;
}

uint32_t
yb_choose_source(const struct yb_choice *choices, const uint32_t *rows, uint32_t count,
                 uint32_t tried_mask, uint64_t random)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t step = 0; step < count; step++) {
        uint32_t i = (uint32_t)((random + step) % count); /* Of equals the first one is taken. */
        const struct yb_choice *one, *other;

        if ((tried_mask & 1u << i) != 0 || rows[i] == UINT32_MAX) {
            continue;
        }
        one = &choices[rows[i]];
        other = best == UINT32_MAX ? NULL : &choices[rows[best]];
        if (other == NULL || (!one->failed && other->failed) ||
            (one->failed == other->failed &&
             ((one->local && !other->local) ||
              (one->local == other->local && one->busy_bytes < other->busy_bytes)))) {
            best = i;
        }
    }
    return best;
}

uint64_t
yb_choose_probe_ns(uint64_t trip_ns, uint64_t bytes)
{
    uint64_t trips_ns = trip_ns < PROBE_MAX_NS ? PROBE_TRIPS * trip_ns : PROBE_MAX_NS;
    uint64_t bytes_ns = bytes < PROBE_MAX_NS ? PROBE_BYTE_NS * bytes : PROBE_MAX_NS;
    uint64_t takes_ns = trips_ns + bytes_ns;

    takes_ns = takes_ns > PROBE_MIN_NS ? takes_ns : PROBE_MIN_NS;
    return takes_ns < PROBE_MAX_NS ? takes_ns : PROBE_MAX_NS;
}
