/* SPDX-License-Identifier: Apache-2.0
 *
 * index_internal.h -- the parts of an index, shared by the files that make it up.
 *
 *     index.c         create, slots, tenants, counts; sizes
 *     index_table.c   buckets: from a hash to a record's number
 *     index_record.c  records and their replicas
 *     index_lookup.c  lookups and the scan
 *     index_apply.c   operations
 *     index_sweep.c   the sweep
 *
 * Format of a replica's `where`: the tier in the high 4 bits, the mark in the low 4. The mark is
 * the number, modulo 16, of the slot's inventory that named it last; how many have begun since is
 * its age. An END makes every replica of age 1 and more gone, later ones too as the ages go up
 * (`purge_age`), until a whole sweep has removed them. So that ages never reach 16, a sweep makes
 * those above AGE_KEPT that, and a slot begins no inventory while one may be 15 (`age_max`).
 */
#ifndef YB_DIRECTORY_INDEX_INTERNAL_H
#define YB_DIRECTORY_INDEX_INTERNAL_H

#include "base/check.h"
#include "directory/index.h"
#include "directory/stretch.h"

#define YB_INDEX_MAGIC 0x696e6478u

#define YB_INDEX_WAYS            12u
#define YB_INDEX_FILL            7u /* Records per bucket on average, at which one is split. */
#define YB_INDEX_BUCKETS_FIRST   64u
#define YB_INDEX_INLINE_REPLICAS 3u
#define YB_INDEX_LINK_MAX        0xffffffu /* 24 bits. */
#define YB_INDEX_NONE            UINT32_MAX
#define YB_INDEX_GROUP_KEYS      32u /* Whose waiting for memory overlaps. */
#define YB_INDEX_MARKS           16u
#define YB_INDEX_AGE_KEPT        7u

/* One that is free has slot[0] 0 and the next free one's number in `grant`. */
struct yb_index_record {
    struct yb_id hash;
    uint64_t grant;
    uint32_t hold_until; /* Low 32 bits of a time in ms, within 24 days either way; 0: none. */
    uint16_t size_code;
    uint16_t tenant;
    uint16_t flush_epoch; /* Low 16 bits: I6 is kept by yb_index_flush(). */
    uint16_t flags;
    uint16_t slot[YB_INDEX_INLINE_REPLICAS]; /* Dense: the first 0 ends them. */
    uint8_t where[YB_INDEX_INLINE_REPLICAS];
    uint8_t link[3]; /* Number of an overflow plus 1, little-endian; 0: none. */
};
_Static_assert(sizeof(struct yb_index_record) == 48, "a record");

/* Replicas 4 to 8. One that is free has the next free one's link in `slot[0]` and `slot[1]`. */
struct yb_index_overflow {
    uint16_t slot[5];
    uint8_t where[5];
    uint8_t unused;
};
_Static_assert(sizeof(struct yb_index_overflow) == 16, "an overflow");

/* A chain of buckets is dense: only its last one may have free places, and those come last. */
struct yb_index_bucket {
    uint32_t record[YB_INDEX_WAYS];
    uint8_t tag[YB_INDEX_WAYS]; /* Of the hash; 0: free. */
    uint32_t next;              /* Number of a further bucket plus 1; 0: none. */
};
_Static_assert(sizeof(struct yb_index_bucket) == 64, "a bucket is a cache line");

struct yb_index_slot {
    uint64_t bytes;
    uint32_t replicas;
    uint8_t state;         /* enum yb_index_slot_state */
    uint8_t mark;          /* Of what is named now: 0 to 15. */
    uint8_t age_max;       /* No replica is older. */
    uint8_t age_max_after; /* The same, once the sweep under way has ended. */
    uint8_t purge_age;     /* Older ones are gone, if `purging`. */
    bool purging;
    bool begun;          /* An inventory, which has not ended. */
    bool purge_in_sweep; /* The sweep under way began after the END. */
    bool dead_in_sweep;  /* ... after the death. */
    uint8_t unused[3];
};
_Static_assert(sizeof(struct yb_index_slot) == 24, "a slot");

struct yb_index_tenant {
    uint64_t epoch;
    uint32_t records;
    /* How many epochs ago its oldest record may have been stored: now, and once the sweep under way
     * has ended. */
    uint16_t behind;
    uint16_t behind_after;
};
_Static_assert(sizeof(struct yb_index_tenant) == 16, "a tenant");

struct yb_index {
    uint32_t magic;
    uint32_t records_max; /* Immutable. */
    uint32_t slots_max;   /* Immutable. */
    uint32_t tenants_max; /* Immutable. */
    uint64_t seed;        /* Immutable. */
    bool keeps_parents;   /* Immutable. */

    struct yb_index_bucket *buckets; /* = bucket_memory.base; the others likewise. */
    uint32_t bucket_count;
    uint32_t bucket_mask; /* Of the round: the largest power of 2 not above bucket_count, less 1. */
    struct yb_index_bucket *further;
    uint32_t further_top;  /* Numbers from here on were never used. */
    uint32_t further_free; /* Link of the first free one; 0: none. Chained by `next`. */
    uint32_t further_used;

    struct yb_index_record *records;
    uint32_t record_top;
    uint32_t record_free; /* Number, or NONE. */
    uint32_t record_used;
    uint64_t *parents; /* Of each record; NULL: not kept. */
    struct yb_index_overflow *overflows;
    uint32_t overflow_top;
    uint32_t overflow_free; /* Link; 0: none. */
    uint32_t overflow_used;
    uint32_t overflow_max; /* Immutable. */

    uint64_t replica_count;
    uint64_t replica_bytes;
    struct yb_index_slot *slots;     /* [slots_max + 1]; 0 is never used. */
    struct yb_index_tenant *tenants; /* [tenants_max] */

    bool sweep_wanted;
    bool sweeping;
    uint32_t sweep_next; /* Record to visit next. */
    uint32_t sweep_end;
    uint32_t sweeps;
    bool holds;              /* There may be holds in records... */
    bool holds_after;        /* ... once the sweep under way has ended. */
    uint64_t holds_swept_ms; /* None had run out then. */
    uint64_t holds_begun_ms; /* When the sweep under way began. */

    struct yb_stretch bucket_memory;
    struct yb_stretch further_memory;
    struct yb_stretch record_memory;
    struct yb_stretch parent_memory;
    struct yb_stretch overflow_memory;
};

/* Replicas as they are in a record, in order. */
struct yb_index_list {
    uint32_t count;
    uint16_t slot[YB_INDEX_REPLICAS_MAX];
    uint8_t where[YB_INDEX_REPLICAS_MAX];
};

/* Begin to load a cache line. (gcc takes a function that does nothing but prefetch for one without
 * effect, and leaves out its calls: hence the empty statement.) */
static inline void
yb_index_prefetch(const void *address)
{
    __builtin_prefetch(address);
    __asm__ volatile("");
}

/* ---- index_table.c ---- */

/* Return the hash of a name for the table. (The tenant is in the name, but for forgeries.) */
uint64_t yb_index_table_hash(const struct yb_index *index, struct yb_id hash);

/* Begin to load the bucket; then, when it is there, what it leads to. */
void yb_index_table_prefetch(const struct yb_index *index, uint64_t table_hash);
void yb_index_table_prefetch_records(const struct yb_index *index, uint64_t table_hash);

/* The further bucket, if there is one: the third step. */
void yb_index_table_prefetch_further(const struct yb_index *index, uint64_t table_hash);

/* Return the number of the record of (tenant, hash), visible or not; NONE: there is none. */
uint32_t yb_index_table_find(const struct yb_index *index, uint64_t table_hash, struct yb_id hash,
                             uint16_t tenant);

/* Enter a record that is not there, and split a bucket if it is time to. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_index_table_insert(struct yb_index *index, uint64_t table_hash,
                                                uint32_t number);

/* Take out a record that is there. */
void yb_index_table_erase(struct yb_index *index, uint64_t table_hash, uint32_t number);

/* ---- index_record.c ---- */

/* Take a free record. Its contents are unspecified, but it is no longer free only when it has
 * replicas. Fails with NO_SPACE or NO_MEMORY. */
YB_CHECKED enum yb_status yb_index_record_take(struct yb_index *index, uint32_t *number_out);

/* Give back a record without replicas. */
void yb_index_record_give(struct yb_index *index, uint32_t number);

void yb_index_record_read(const struct yb_index *index, const struct yb_index_record *record,
                          struct yb_index_list *list_out);

/* Store `list` in the place of what the record has. Fails, changing nothing, with NO_SPACE or
 * NO_MEMORY: only if the list is longer than 3 and the record's is not. Counts nothing. */
YB_CHECKED enum yb_status yb_index_record_write(struct yb_index *index,
                                                struct yb_index_record *record,
                                                const struct yb_index_list *list);

/* Return on how many slots the replicas of a list are. */
uint32_t yb_index_list_slots(const struct yb_index_list *list);

/* Count a replica of `size_code` on a slot, or no longer. */
void yb_index_record_count(struct yb_index *index, uint16_t slot, uint16_t size_code);
void yb_index_record_discount(struct yb_index *index, uint16_t slot, uint16_t size_code);

/* Return whether a replica is gone: its slot is dead, or did not name it. */
static inline bool
yb_index_replica_gone(const struct yb_index *index, uint16_t slot, uint8_t where)
{
    const struct yb_index_slot *of = &index->slots[slot];

    if (of->state == YB_INDEX_SLOT_DEAD) {
        return true;
    }
    return of->purging && ((of->mark - where) & (YB_INDEX_MARKS - 1)) > of->purge_age;
}

/* Return whether the record was stored in its tenant's flush epoch. */
static inline bool
yb_index_record_current(const struct yb_index *index, const struct yb_index_record *record)
{
    return record->flush_epoch == (uint16_t)index->tenants[record->tenant].epoch;
}

static inline bool
yb_index_record_held(const struct yb_index_record *record, uint64_t now_ms)
{
    return record->hold_until != 0 && (int32_t)(record->hold_until - (uint32_t)now_ms) > 0;
}

/* Hold until `now_ms + hold_ms` at least. */
void yb_index_record_hold(struct yb_index *index, struct yb_index_record *record, uint64_t now_ms,
                          uint32_t hold_ms);

/* Read the record's replicas without those that are gone; take these out of it, too. Returns how
 * many there were. `list_out` is empty, and everything is taken out, if it is of a past epoch. */
uint32_t yb_index_record_prune(struct yb_index *index, struct yb_index_record *record,
                               struct yb_index_list *list_out);

/* Free a record that has no replica left. */
void yb_index_record_free(struct yb_index *index, uint64_t table_hash, uint32_t number);

#endif /* YB_DIRECTORY_INDEX_INTERNAL_H */
