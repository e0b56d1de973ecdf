/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- where the log's records are: at most 40 bytes of memory each.
 *
 * A dense slab of packed entries of 35 bytes, and an open-addressed table of their numbers, at most
 * 85 % full, with the spare bits of a number as a tag: 39.8 bytes. Keys are not kept; who reads a
 * record compares its key. A hash may have several entries.
 *
 * Threads   One owner. Memory: all of it in create, taken from the system as it is touched.
 */
#ifndef YB_TIER_SSD_INDEX_H
#define YB_TIER_SSD_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_SSD_INDEX_NONE        UINT32_MAX
#define YB_SSD_INDEX_RECORDS_MAX (1u << 28)
#define YB_SSD_ERAS_MAX          (1u << 17)
#define YB_SSD_ACCESSES_MAX      7u

struct yb_ssd_index;

struct yb_ssd_entry {
    struct yb_id hash;
    uint64_t grant;       /* Not 0. */
    uint64_t unit;        /* Of the medium: 36 bits. */
    uint32_t value_units; /* 21 bits. */
    uint32_t head_units;  /* 7 bits. */
    uint32_t era;         /* 17 bits: tenant and flush epoch. */
    uint32_t accesses;    /* 3 bits. */
    bool hard_pin;
    bool soft_pin;
    bool hidden;  /* Dropped, but a restart would find it (S1). */
    bool storing; /* Not RESIDENT yet. */
};

/* Create an index for `records_max` entries (1 .. YB_SSD_INDEX_RECORDS_MAX). Fails with INVALID or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_ssd_index_create(uint64_t records_max,
                                              struct yb_ssd_index **index_out);
void yb_ssd_index_destroy(struct yb_ssd_index **index);

/* Add an entry and return its number. YB_SSD_INDEX_NONE: it is full. */
uint32_t yb_ssd_index_add(struct yb_ssd_index *index, const struct yb_ssd_entry *entry);

/* Find the entries of a hash one by one: *cursor begins with 0. Nothing may be added or removed
 * meanwhile. YB_SSD_INDEX_NONE: there are no more. */
uint32_t yb_ssd_index_next(const struct yb_ssd_index *index, struct yb_id hash, uint64_t *cursor);

/* Read or change an entry; hash and grant stay. */
struct yb_ssd_entry yb_ssd_index_get(const struct yb_ssd_index *index, uint32_t number);
void yb_ssd_index_set(struct yb_ssd_index *index, uint32_t number,
                      const struct yb_ssd_entry *entry);
void yb_ssd_index_remove(struct yb_ssd_index *index, uint32_t number);

/* Whether there is an entry of that number; numbers are below the limit. */
bool yb_ssd_index_used(const struct yb_ssd_index *index, uint32_t number);
uint32_t yb_ssd_index_limit(const struct yb_ssd_index *index);
uint32_t yb_ssd_index_count(const struct yb_ssd_index *index);
bool yb_ssd_index_full(const struct yb_ssd_index *index);

/* Return the memory of a full index, and that of one with the entries that it has. */
uint64_t yb_ssd_index_bytes_max(const struct yb_ssd_index *index);
uint64_t yb_ssd_index_bytes(const struct yb_ssd_index *index);

#endif /* YB_TIER_SSD_INDEX_H */
