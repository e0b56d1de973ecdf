/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear hashing (Litwin, "Linear hashing: a new tool for file and table addressing", 1980). With N
 * the largest power of 2 not above the number of buckets, the buckets below count - N have been
 * split in this round: a hash belongs to bucket h mod 2N if there is such a one, else to h mod N.
 *
 * A bucket that is full has further ones behind it. With 7 records per bucket on average, buckets
 * that wait to be split have 7 to 14; over a round, one lookup in twenty has to look further.
 */
#include "directory/index_internal.h"

#include <string.h>

#include "base/hash.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tags are compared eight at a time");

uint64_t
yb_index_table_hash(const struct yb_index *index, struct yb_id hash)
{
    return yb_hash_table_id(index->seed, hash);
}

static inline uint8_t
tag_of(uint64_t table_hash)
{
    uint8_t tag = (uint8_t)(table_hash >> 56);

    return tag == 0 ? 1 : tag;
}

static inline uint32_t
address_of(const struct yb_index *index, uint64_t table_hash)
{
    uint32_t address = (uint32_t)table_hash & (2 * index->bucket_mask + 1);

    return address < index->bucket_count ? address : address & index->bucket_mask;
}

static inline struct yb_index_bucket *
further_of(const struct yb_index *index, const struct yb_index_bucket *bucket)
{
    return bucket->next == 0 ? NULL : &index->further[bucket->next - 1];
}

/* Return bit 7 of each byte of `bytes` that is zero. Exact: no carry crosses a byte. */
static inline uint64_t
zero_bytes(uint64_t bytes)
{
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);

    return ~(((bytes & low) + low) | bytes | low);
}

/* Return the places, as bits, whose tag is `tag`. */
static inline uint32_t
places_with(const struct yb_index_bucket *bucket, uint8_t tag)
{
    const uint64_t gather = UINT64_C(0x0102040810204080); /* Bit 8i of the factor goes to 56 + i. */
    const uint64_t each = UINT64_C(0x0101010101010101) * tag;
    uint64_t first;
    uint64_t second = UINT64_MAX; /* Four bytes are no places: they stay different from any tag. */
    uint32_t last;

    memcpy(&first, bucket->tag, sizeof(first));
    memcpy(&last, bucket->tag + sizeof(first), sizeof(last));
    second = second << 32 | (last ^ (uint32_t)each);
    first = (zero_bytes(first ^ each) >> 7) * gather >> 56;
    second = (zero_bytes(second) >> 7) * gather >> 56;
    return (uint32_t)(first | second << 8);
}

static inline uint32_t
used_of(const struct yb_index_bucket *bucket)
{
    return YB_INDEX_WAYS - (uint32_t)__builtin_popcount(places_with(bucket, 0));
}

void
yb_index_table_prefetch(const struct yb_index *index, uint64_t table_hash)
{
    yb_index_prefetch(&index->buckets[address_of(index, table_hash)]);
}

/* A record may lie on two cache lines. */
static inline void
prefetch_record(const struct yb_index *index, uint32_t number)
{
    const struct yb_index_record *record = &index->records[number];

    yb_index_prefetch(record);
    yb_index_prefetch((const char *)(record + 1) - 1);
}

static inline void
prefetch_places(const struct yb_index *index, const struct yb_index_bucket *bucket, uint32_t places)
{
    for (; places != 0; places &= places - 1) {
        prefetch_record(index, bucket->record[__builtin_ctz(places)]);
    }
}

void
yb_index_table_prefetch_records(const struct yb_index *index, uint64_t table_hash)
{
    const struct yb_index_bucket *bucket = &index->buckets[address_of(index, table_hash)];
    const struct yb_index_bucket *further = further_of(index, bucket);

    prefetch_places(index, bucket, places_with(bucket, tag_of(table_hash)));
    if (further != NULL) {
        yb_index_prefetch(further);
    }
}

void
yb_index_table_prefetch_further(const struct yb_index *index, uint64_t table_hash)
{
    const struct yb_index_bucket *further =
        further_of(index, &index->buckets[address_of(index, table_hash)]);

    if (further != NULL) {
        prefetch_places(index, further, places_with(further, tag_of(table_hash)));
    }
}

uint32_t
yb_index_table_find(const struct yb_index *index, uint64_t table_hash, struct yb_id hash,
                    uint16_t tenant)
{
    const struct yb_index_bucket *bucket = &index->buckets[address_of(index, table_hash)];
    uint8_t tag = tag_of(table_hash);

    for (; bucket != NULL; bucket = further_of(index, bucket)) {
        for (uint32_t places = places_with(bucket, tag); places != 0; places &= places - 1) {
            uint32_t number = bucket->record[__builtin_ctz(places)];
            const struct yb_index_record *record = &index->records[number];

            if (memcmp(&record->hash, &hash, sizeof(hash)) == 0 &&
                record->tenant == tenant) { /* I1 */
                return number;
            }
        }
    }
    return YB_INDEX_NONE;
}

/* Return a further bucket, empty; NULL: no memory. */
static struct yb_index_bucket *
take_further(struct yb_index *index)
{
    struct yb_index_bucket *bucket;

    if (index->further_free != 0) {
        bucket = &index->further[index->further_free - 1];
        index->further_free = bucket->next;
        bucket->next = 0;
    } else {
        size_t bytes = ((size_t)index->further_top + 1) * sizeof(*bucket);

        if (yb_stretch_reach(&index->further_memory, bytes) != YB_OK) {
            return NULL;
        }
        bucket = &index->further[index->further_top++];
    }
    index->further_used++;
    return bucket;
}

/* Give back a further bucket, which nothing links to any more. */
static void
give_further(struct yb_index *index, struct yb_index_bucket *bucket)
{
    memset(bucket, 0, sizeof(*bucket));
    bucket->next = index->further_free;
    index->further_free = (uint32_t)(bucket - index->further) + 1;
    index->further_used--;
}

/* Append to the chain that ends with *last, which is moved on if it is full. */
static bool
append(struct yb_index *index, struct yb_index_bucket **last, uint8_t tag, uint32_t number)
{
    struct yb_index_bucket *bucket = *last;
    uint32_t place = used_of(bucket);

    if (place == YB_INDEX_WAYS) {
        struct yb_index_bucket *further = take_further(index);

        if (further == NULL) {
            return false;
        }
        bucket->next = (uint32_t)(further - index->further) + 1;
        bucket = further;
        place = 0;
        *last = bucket;
    }
    bucket->tag[place] = tag;
    bucket->record[place] = number;
    return true;
}

/* Load the records of the bucket that is split next, for their hashes. */
static void
prefetch_split(const struct yb_index *index)
{
    uint32_t next = index->bucket_count - index->bucket_mask - 1;
    const struct yb_index_bucket *bucket = &index->buckets[next];

    prefetch_places(index, bucket, ~places_with(bucket, 0) & ((1u << YB_INDEX_WAYS) - 1));
    yb_index_prefetch(bucket + 1);
    yb_index_prefetch(&index->buckets[index->bucket_count]);
}

/* Split the next bucket in two. Only a bucket's memory can be missing: of k buckets in a chain,
 * k - 1 further ones are freed before their records are entered, and two chains of the same records
 * want no more than that. */
static void
split(struct yb_index *index)
{
    uint32_t low = index->bucket_count - index->bucket_mask - 1;
    uint32_t round_bit = index->bucket_mask + 1;
    struct yb_index_bucket *last[2];
    struct yb_index_bucket *source;
    struct yb_index_bucket copy;

    if (yb_stretch_reach(&index->bucket_memory, ((size_t)index->bucket_count + 1) * sizeof(copy)) !=
        YB_OK) {
        return; /* Buckets get longer; the next insertion tries again. */
    }
    last[0] = &index->buckets[low];
    last[1] = &index->buckets[index->bucket_count];
    copy = *last[0];
    memset(last[0], 0, sizeof(copy));
    for (;;) {
        uint32_t used = used_of(&copy);

        source = further_of(index, &copy);
        for (uint32_t i = 0; i < used; i++) {
            uint64_t hash = yb_index_table_hash(index, index->records[copy.record[i]].hash);
            bool done = append(index, &last[(hash & round_bit) != 0], copy.tag[i], copy.record[i]);

            YB_ASSERT(done);
        }
        if (source == NULL) {
            break;
        }
        copy = *source;
        give_further(index, source);
    }
    index->bucket_count++;
    if (index->bucket_count == 2 * round_bit) {
        index->bucket_mask = 2 * round_bit - 1;
    }
    prefetch_split(index);
}

enum yb_status
yb_index_table_insert(struct yb_index *index, uint64_t table_hash, uint32_t number)
{
    struct yb_index_bucket *last = &index->buckets[address_of(index, table_hash)];

    YB_ASSERT(number < index->record_top);
    while (last->next != 0) {
        last = further_of(index, last);
    }
    if (!append(index, &last, tag_of(table_hash), number)) {
        return YB_NO_MEMORY;
    }
    /* At most two for one: what could not be split for want of memory is caught up with. */
    for (uint32_t i = 0; i < 2 && index->record_used / YB_INDEX_FILL >= index->bucket_count; i++) {
        split(index);
    }
    return YB_OK;
}

void
yb_index_table_erase(struct yb_index *index, uint64_t table_hash, uint32_t number)
{
    struct yb_index_bucket *bucket = &index->buckets[address_of(index, table_hash)];
    struct yb_index_bucket *found = NULL;
    struct yb_index_bucket *before = NULL;
    uint8_t tag = tag_of(table_hash);
    uint32_t place = 0;
    uint32_t from;

    for (;;) {
        uint32_t places = found == NULL ? places_with(bucket, tag) : 0;

        for (; places != 0; places &= places - 1) {
            if (bucket->record[__builtin_ctz(places)] == number) {
                found = bucket;
                place = (uint32_t)__builtin_ctz(places);
                break;
            }
        }
        if (bucket->next == 0) {
            break;
        }
        before = bucket;
        bucket = further_of(index, bucket);
    }
    YB_ASSERT(found != NULL);
    from = used_of(bucket) - 1; /* The chain's last record fills the gap. */
    found->tag[place] = bucket->tag[from];
    found->record[place] = bucket->record[from];
    bucket->tag[from] = 0;
    bucket->record[from] = 0;
    if (from == 0 && before != NULL) {
        before->next = 0;
        give_further(index, bucket);
    }
}
