/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard is four arrays that refer to each other by index; index 0 of each means "none".
 *
 *     buckets[]   hash -> first record of a chain
 *     records[]   one per mutation; free ones are chained too
 *     heap[]      records that are REMEMBERED, the first window to end on top
 *     chunks[]    answers, cut into pieces of 64 bytes; next_chunk[] chains them
 *
 * RUNNING records are in no heap: there is no moment at which they may leave by themselves.
 * The arrays are handed out from their beginning, so that memory which was never needed is
 * never touched and the kernel never provides it.
 */
#include "net/replay.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/lock.h"

#define REPLAY_MAGIC 0x72706c79u

#define CHUNK_BYTES 64u
/* What a RUNNING record reserves: room for the longest answer. */
#define CHUNKS_RESERVED (YB_REPLY_REMEMBERED_MAX / CHUNK_BYTES)

/* Records past their window that a begin reclaims although it does not need their room. More
 * than one, so that a backlog shrinks. */
#define RECLAIM_STEPS 4u

#define SHARDS_MAX 16u
/* A shard is worth having if it holds this much: the spread of keys over shards then wastes
 * little of the whole. */
#define SHARD_RECORDS_MIN 512u
#define SHARD_BYTES_MIN   (256u * YB_REPLY_REMEMBERED_MAX)

_Static_assert(YB_REPLY_REMEMBERED_MAX % CHUNK_BYTES == 0, "a reservation is whole chunks");
_Static_assert(sizeof(struct yb_replay_key) == 32, "keys are hashed and compared as bytes");
_Static_assert(YB_REPLAY_BYTES_MAX / CHUNK_BYTES < UINT32_MAX, "a chunk has a 32-bit index");

struct record {
    struct yb_replay_key key;
    uint64_t expires_ns;
    uint64_t hash;
    uint32_t next;       /* In its bucket's chain, or in the list of free records. */
    uint32_t heap_place; /* 0: RUNNING. */
    uint32_t first_chunk;
    uint32_t body_bytes;
    enum yb_status status;
};

struct shard {
    _Alignas(64) struct yb_lock lock; /* Guards the rest; the sizes and pointers never change. */
    uint32_t record_capacity;
    uint32_t bucket_mask;
    uint32_t *buckets;
    struct record *records;
    uint32_t *heap;
    uint8_t (*chunks)[CHUNK_BYTES];
    uint32_t *next_chunk;
    uint32_t record_count;
    uint32_t record_fresh; /* The first record that was never used ... */
    uint32_t record_free;  /* ... and the first of those that were and are free. */
    uint32_t heap_count;
    uint32_t chunk_fresh;
    uint32_t chunk_free;
    uint32_t chunk_capacity;
    uint32_t chunk_count; /* Taken or reserved. */
    uint64_t full_refusals;
};

struct yb_replay {
    uint32_t magic;
    uint32_t shard_count; /* Immutable; a power of two. */
    uint64_t hash_seed;   /* Immutable. */
    struct shard shards[SHARDS_MAX];
};

static uint64_t
hash_of(const struct yb_replay *replay, const struct yb_replay_key *key)
{
    return yb_hash_table(replay->hash_seed, key, sizeof(*key));
}

/* The high bits choose the shard, the low ones the bucket. */
static struct shard *
shard_of(struct yb_replay *replay, uint64_t hash)
{
    return &replay->shards[(uint32_t)(hash >> 32) & (replay->shard_count - 1)];
}

static uint32_t *
bucket_of(struct shard *shard, uint64_t hash)
{
    return &shard->buckets[(uint32_t)hash & shard->bucket_mask];
}

static uint64_t
later(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* Return how many chunks hold `bytes`. */
static uint32_t
chunks_for(uint32_t bytes)
{
    return (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

/* ---- the heap of windows ---- */

static uint64_t
heap_expires(const struct shard *shard, uint32_t place)
{
    return shard->records[shard->heap[place]].expires_ns;
}

static void
heap_put(struct shard *shard, uint32_t place, uint32_t index)
{
    shard->heap[place] = index;
    shard->records[index].heap_place = place;
}

static void
heap_insert(struct shard *shard, uint32_t index)
{
    uint64_t expires_ns = shard->records[index].expires_ns;
    uint32_t place = ++shard->heap_count;

    YB_ASSERT(place <= shard->record_capacity);
    while (place > 1 && heap_expires(shard, place / 2) > expires_ns) {
        heap_put(shard, place, shard->heap[place / 2]);
        place /= 2;
    }
    heap_put(shard, place, index);
}

/* Bring record `index` from `place` down to where no child ends earlier. */
static void
heap_sink(struct shard *shard, uint32_t place, uint32_t index)
{
    uint64_t expires_ns = shard->records[index].expires_ns;

    for (;;) {
        uint32_t child = 2 * place;

        if (child < shard->heap_count &&
            heap_expires(shard, child + 1) < heap_expires(shard, child)) {
            child++;
        }
        if (child > shard->heap_count || heap_expires(shard, child) >= expires_ns) {
            break;
        }
        heap_put(shard, place, shard->heap[child]);
        place = child;
    }
    heap_put(shard, place, index);
}

/* ---- answers in chunks ---- */

static uint32_t
chunk_take(struct shard *shard)
{
    uint32_t chunk = shard->chunk_free;

    if (chunk == 0) {
        chunk = shard->chunk_fresh++;
        YB_ASSERT(chunk <= shard->chunk_capacity); /* A reservation is always there. */
        return chunk;
    }
    shard->chunk_free = shard->next_chunk[chunk];
    return chunk;
}

static void
body_store(struct shard *shard, struct record *record, const uint8_t *body, uint32_t body_bytes)
{
    uint32_t *link = &record->first_chunk;

    for (uint32_t done = 0; done < body_bytes; done += CHUNK_BYTES) {
        uint32_t left = body_bytes - done;
        uint32_t chunk = chunk_take(shard);

        memcpy(shard->chunks[chunk], body + done, left < CHUNK_BYTES ? left : CHUNK_BYTES);
        *link = chunk;
        link = &shard->next_chunk[chunk];
    }
    *link = 0;
    record->body_bytes = body_bytes;
}

static void
body_load(const struct shard *shard, const struct record *record, uint8_t *body_out)
{
    uint32_t chunk = record->first_chunk;

    for (uint32_t done = 0; done < record->body_bytes; done += CHUNK_BYTES) {
        uint32_t left = record->body_bytes - done;

        YB_ASSERT(chunk != 0);
        memcpy(body_out + done, shard->chunks[chunk], left < CHUNK_BYTES ? left : CHUNK_BYTES);
        chunk = shard->next_chunk[chunk];
    }
    YB_ASSERT(chunk == 0);
}

static void
body_free(struct shard *shard, struct record *record)
{
    uint32_t chunk = record->first_chunk;

    while (chunk != 0) {
        uint32_t next = shard->next_chunk[chunk];

        shard->next_chunk[chunk] = shard->chunk_free;
        shard->chunk_free = chunk;
        chunk = next;
    }
    record->first_chunk = 0;
}

/* ---- records ---- */

/* Return the record of `key`, or 0. */
static uint32_t
find_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash)
{
    uint32_t index = *bucket_of(shard, hash);

    yb_lock_assert_held(&shard->lock);
    while (index != 0 && memcmp(&shard->records[index].key, key, sizeof(*key)) != 0) {
        index = shard->records[index].next;
    }
    return index;
}

/* Return the record of `key`, which the caller got NEW for and has not ended since. */
static uint32_t
find_running_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash)
{
    uint32_t index = find_locked(shard, key, hash);

    YB_ASSERT(index != 0);
    YB_ASSERT(shard->records[index].heap_place == 0);
    return index;
}

static bool
has_room(const struct shard *shard)
{
    return shard->record_count < shard->record_capacity &&
           shard->chunk_capacity - shard->chunk_count >= CHUNKS_RESERVED;
}

static void
record_add_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash,
                  uint64_t expires_ns)
{
    uint32_t *bucket = bucket_of(shard, hash);
    uint32_t index = shard->record_free;
    struct record *record;

    yb_lock_assert_held(&shard->lock);
    YB_ASSERT(has_room(shard));
    if (index == 0) {
        index = shard->record_fresh++;
        YB_ASSERT(index <= shard->record_capacity);
    } else {
        shard->record_free = shard->records[index].next;
    }
    record = &shard->records[index];
    record->key = *key;
    record->hash = hash;
    record->expires_ns = expires_ns;
    record->heap_place = 0;
    record->first_chunk = 0;
    record->body_bytes = 0;
    record->next = *bucket;
    *bucket = index;
    shard->record_count++;
    shard->chunk_count += CHUNKS_RESERVED;
}

/* Free a record that is in no heap and whose chunks were given back. */
static void
record_drop_locked(struct shard *shard, uint32_t index)
{
    uint32_t *link = bucket_of(shard, shard->records[index].hash);

    yb_lock_assert_held(&shard->lock);
    YB_ASSERT(shard->record_count > 0);
    while (*link != index) {
        YB_ASSERT(*link != 0);
        link = &shard->records[*link].next;
    }
    *link = shard->records[index].next;
    shard->records[index].next = shard->record_free;
    shard->record_free = index;
    shard->record_count--;
}

/* Drop the record whose window ended first. */
static void
reclaim_one_locked(struct shard *shard)
{
    uint32_t index = shard->heap[1];
    uint32_t last = shard->heap[shard->heap_count];
    struct record *record = &shard->records[index];

    YB_ASSERT(record->heap_place == 1);
    shard->heap_count--;
    if (shard->heap_count > 0) {
        heap_sink(shard, 1, last);
    }
    shard->chunk_count -= chunks_for(record->body_bytes);
    body_free(shard, record);
    record_drop_locked(shard, index);
}

/* Return whether there is room for a record, after dropping some past their window. */
static bool
make_room_locked(struct shard *shard, uint64_t now_ns)
{
    for (uint32_t step = 0; step < RECLAIM_STEPS || !has_room(shard); step++) {
        if (shard->heap_count == 0 || heap_expires(shard, 1) > now_ns) {
            break; /* R2 */
        }
        reclaim_one_locked(shard);
    }
    return has_room(shard); /* R3 */
}

/* Answer a begin whose record exists. */
static enum yb_replay_verdict
meet_again_locked(struct shard *shard, uint32_t index, uint64_t expires_ns,
                  struct yb_replay_result *result_out)
{
    struct record *record = &shard->records[index];

    yb_lock_assert_held(&shard->lock);
    record->expires_ns = later(record->expires_ns, expires_ns);
    if (record->heap_place == 0) {
        return YB_REPLAY_RUNNING;
    }
    heap_sink(shard, record->heap_place, index);
    result_out->status = record->status;
    result_out->body_bytes = record->body_bytes;
    body_load(shard, record, result_out->body);
    return YB_REPLAY_REMEMBERED;
}

enum yb_replay_verdict
yb_replay_begin(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t now_ns,
                uint64_t expires_ns, struct yb_replay_result *result_out)
{
    uint64_t latest_ns = yb_deadline_after(now_ns, YB_REPLAY_WINDOW_MAX_NS);
    uint64_t hash = hash_of(replay, key);
    enum yb_replay_verdict verdict;
    struct shard *shard;
    uint32_t index;

    YB_ASSERT_OBJ(replay, REPLAY_MAGIC);
    YB_ASSERT(result_out != NULL);
    expires_ns = expires_ns < latest_ns ? expires_ns : latest_ns;
    shard = shard_of(replay, hash);
    yb_lock_acquire(&shard->lock);
    index = find_locked(shard, key, hash);
    if (index != 0) {
        verdict = meet_again_locked(shard, index, expires_ns, result_out);
    } else if (make_room_locked(shard, now_ns)) {
        record_add_locked(shard, key, hash, expires_ns);
        verdict = YB_REPLAY_NEW;
    } else {
        shard->full_refusals++;
        verdict = YB_REPLAY_FULL;
    }
    yb_lock_release(&shard->lock);
    return verdict;
}

void
yb_replay_finish(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t now_ns,
                 enum yb_status status, const void *body, uint32_t body_bytes)
{
    uint64_t hash = hash_of(replay, key);
    struct shard *shard;
    struct record *record;
    uint32_t index;

    YB_ASSERT_OBJ(replay, REPLAY_MAGIC);
    YB_ASSERT(body_bytes <= YB_REPLY_REMEMBERED_MAX);
    YB_ASSERT(body != NULL || body_bytes == 0);
    shard = shard_of(replay, hash);
    yb_lock_acquire(&shard->lock);
    index = find_running_locked(shard, key, hash);
    record = &shard->records[index];
    record->status = status;
    record->expires_ns = later(record->expires_ns, yb_deadline_after(now_ns, YB_REPLAY_MARGIN_NS));
    body_store(shard, record, body, body_bytes);
    shard->chunk_count -= CHUNKS_RESERVED - chunks_for(body_bytes);
    heap_insert(shard, index);
    yb_lock_release(&shard->lock);
}

void
yb_replay_forget(struct yb_replay *replay, const struct yb_replay_key *key)
{
    uint64_t hash = hash_of(replay, key);
    struct shard *shard;

    YB_ASSERT_OBJ(replay, REPLAY_MAGIC);
    shard = shard_of(replay, hash);
    yb_lock_acquire(&shard->lock);
    shard->chunk_count -= CHUNKS_RESERVED;
    record_drop_locked(shard, find_running_locked(shard, key, hash));
    yb_lock_release(&shard->lock);
}

struct yb_replay_counts
yb_replay_count(struct yb_replay *replay)
{
    struct yb_replay_counts counts = {0};

    YB_ASSERT_OBJ(replay, REPLAY_MAGIC);
    for (uint32_t i = 0; i < replay->shard_count; i++) {
        struct shard *shard = &replay->shards[i];

        yb_lock_acquire(&shard->lock);
        counts.records += shard->record_count;
        counts.running += shard->record_count - shard->heap_count;
        counts.bytes += (uint64_t)shard->chunk_count * CHUNK_BYTES;
        counts.full_refusals += shard->full_refusals;
        yb_lock_release(&shard->lock);
    }
    return counts;
}

/* ---- life ---- */

/* Free a shard's arrays; those that were never allocated are NULL. */
static void
shard_fini(struct shard *shard)
{
    yb_lock_fini(&shard->lock);
    free(shard->buckets);
    free(shard->records);
    free(shard->heap);
    free(shard->chunks);
    free(shard->next_chunk);
}

/* Returns false if there is no memory; shard_fini() is due in either case. */
static bool
shard_init(struct shard *shard, uint32_t record_capacity, uint32_t chunk_capacity)
{
    uint32_t bucket_count = 1;

    YB_ASSERT(record_capacity > 0);
    YB_ASSERT(chunk_capacity >= CHUNKS_RESERVED);
    while (bucket_count < record_capacity) {
        bucket_count *= 2;
    }
    yb_lock_init(&shard->lock, YB_LOCK_REPLAY);
    shard->record_capacity = record_capacity;
    shard->chunk_capacity = chunk_capacity;
    shard->bucket_mask = bucket_count - 1;
    shard->record_fresh = 1;
    shard->chunk_fresh = 1;
    /* Zeroed memory of this size comes untouched from the kernel. */
    shard->buckets = calloc(bucket_count, sizeof(*shard->buckets));
    shard->records = calloc((size_t)record_capacity + 1, sizeof(*shard->records));
    shard->heap = calloc((size_t)record_capacity + 1, sizeof(*shard->heap));
    shard->chunks = calloc((size_t)chunk_capacity + 1, sizeof(*shard->chunks));
    shard->next_chunk = calloc((size_t)chunk_capacity + 1, sizeof(*shard->next_chunk));
    return shard->buckets != NULL && shard->records != NULL && shard->heap != NULL &&
           shard->chunks != NULL && shard->next_chunk != NULL;
}

/* Return the largest allowed number of shards that are all worth having. */
static uint32_t
choose_shard_count(uint32_t records_max, uint64_t bytes_max)
{
    uint32_t count = SHARDS_MAX;

    while (count > 1 &&
           (records_max / count < SHARD_RECORDS_MIN || bytes_max / count < SHARD_BYTES_MIN)) {
        count /= 2;
    }
    return count;
}

enum yb_status
yb_replay_create(uint32_t records_max, uint64_t bytes_max, struct yb_replay **replay_out)
{
    struct yb_replay *replay;
    uint32_t count;

    if (records_max == 0 || records_max > YB_REPLAY_RECORDS_MAX ||
        bytes_max < YB_REPLY_REMEMBERED_MAX || bytes_max > YB_REPLAY_BYTES_MAX) {
        return YB_INVALID;
    }
    replay = aligned_alloc(_Alignof(struct yb_replay), sizeof(*replay));
    if (replay == NULL) {
        return YB_NO_MEMORY;
    }
    memset(replay, 0, sizeof(*replay));
    replay->magic = REPLAY_MAGIC;
    /* Peers choose their operations. What they cannot know is where this process keeps its
     * memory, so they cannot choose operations that share a bucket. */
    replay->hash_seed = (uint64_t)(uintptr_t)replay;
    count = choose_shard_count(records_max, bytes_max);
    while (replay->shard_count < count) {
        struct shard *shard = &replay->shards[replay->shard_count++];

        if (!shard_init(shard, records_max / count, (uint32_t)(bytes_max / count / CHUNK_BYTES))) {
            yb_replay_destroy(&replay);
            return YB_NO_MEMORY;
        }
    }
    *replay_out = replay;
    return YB_OK;
}

void
yb_replay_destroy(struct yb_replay **replay)
{
    YB_ASSERT(replay != NULL);
    if (*replay == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*replay, REPLAY_MAGIC);
    for (uint32_t i = 0; i < (*replay)->shard_count; i++) {
        shard_fini(&(*replay)->shards[i]);
    }
    (*replay)->magic = 0;
    free(*replay);
    *replay = NULL;
}
