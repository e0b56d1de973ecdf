/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard is four arrays that refer to each other by index; index 0 of each means "none".
 *
 *     buckets[]   hash -> first record of a chain
 *     records[]   one per slot; free ones are chained too
 *     heap[]      records of which nothing runs, the first window to end on top
 *     chunks[]    answers, cut into pieces of 64 bytes; next_chunk[] chains them
 *
 * Records of which something runs are in no heap: there is no moment at which they may leave by
 * themselves. The arrays are handed out from their beginning and double when they are used up, in
 * begin, which may fail; so a process whose callers have little outstanding stays small.
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
/* What a RUNNING operation reserves: room for the longest answer. */
#define CHUNKS_RESERVED (YB_REPLY_REMEMBERED_MAX / CHUNK_BYTES)

/* Records past their window that a begin reclaims although it does not need their room. More
 * than one, so that a backlog shrinks. */
#define RECLAIM_STEPS 4u

/* What a shard takes first. */
#define RECORDS_FIRST 32u
#define CHUNKS_FIRST  (2 * CHUNKS_RESERVED)

#define SHARDS_MAX 16u
/* A shard is worth having if it holds this much: the spread of slots over shards then wastes
 * little of the whole. */
#define SHARD_RECORDS_MIN 512u
#define SHARD_BYTES_MIN   (256u * YB_REPLY_REMEMBERED_MAX)

_Static_assert(YB_REPLY_REMEMBERED_MAX % CHUNK_BYTES == 0, "a reservation is whole chunks");
_Static_assert(sizeof(struct yb_replay_key) == 40, "keys are hashed and compared as bytes");
_Static_assert(YB_REPLAY_BYTES_MAX / CHUNK_BYTES < UINT32_MAX, "a chunk has a 32-bit index");

enum record_state { RUNNING, REMEMBERED, NOT_RUN };

struct record {
    struct yb_replay_key key;
    uint64_t operation; /* The latest; `state` and the answer are its own. */
    uint64_t expires_ns;
    uint64_t hash;
    uint32_t next;       /* In its bucket's chain, or in the list of free records. */
    uint32_t heap_place; /* 0: something runs. */
    uint32_t running;    /* Operations, of which all but the latest were superseded. */
    enum record_state state;
    bool alone; /* No other operation of the slot has begun. */
    uint32_t first_chunk;
    uint32_t body_bytes;
    enum yb_status status;
};

struct shard {
    _Alignas(64) struct yb_lock lock; /* Guards the rest; the capacities never change. */
    uint32_t record_capacity;
    uint32_t record_room; /* Allocated; a power of two, or the capacity. */
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
    uint32_t chunk_room;  /* Allocated; never below chunk_count. */
    uint32_t chunk_count; /* Taken or reserved. */
    uint64_t running;
    uint64_t full_refusals;
};

/* What a begin asks. */
struct begin {
    uint64_t operation;
    uint64_t now_ns;
    uint64_t expires_ns;
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

/* Bring record `index` from `place` up to where no parent ends later. */
static void
heap_rise(struct shard *shard, uint32_t place, uint32_t index)
{
    uint64_t expires_ns = shard->records[index].expires_ns;

    while (place > 1 && heap_expires(shard, place / 2) > expires_ns) {
        heap_put(shard, place, shard->heap[place / 2]);
        place /= 2;
    }
    heap_put(shard, place, index);
}

static void
heap_insert(struct shard *shard, uint32_t index)
{
    YB_ASSERT(shard->heap_count < shard->record_room);
    heap_rise(shard, ++shard->heap_count, index);
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

static void
heap_remove(struct shard *shard, uint32_t index)
{
    uint32_t place = shard->records[index].heap_place;
    uint32_t last = shard->heap[shard->heap_count--];

    YB_ASSERT(place != 0);
    shard->records[index].heap_place = 0;
    if (last == index) {
        return;
    }
    if (place > 1 && heap_expires(shard, place / 2) > shard->records[last].expires_ns) {
        heap_rise(shard, place, last);
    } else {
        heap_sink(shard, place, last);
    }
}

/* ---- answers in chunks ---- */

static uint32_t
chunk_take(struct shard *shard)
{
    uint32_t chunk = shard->chunk_free;

    if (chunk == 0) {
        chunk = shard->chunk_fresh++;
        YB_ASSERT(chunk <= shard->chunk_room); /* A reservation is always there. */
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

/* Give back what the latest operation's answer takes or has reserved. */
static void
answer_drop(struct shard *shard, struct record *record)
{
    if (record->state == RUNNING) {
        shard->chunk_count -= CHUNKS_RESERVED;
    } else {
        shard->chunk_count -= chunks_for(record->body_bytes);
        body_free(shard, record);
        record->body_bytes = 0;
    }
    record->state = NOT_RUN;
}

/* ---- memory ---- */

/* Double what a bounded array has room for. */
static uint32_t
doubled(uint32_t room, uint32_t first, uint32_t capacity)
{
    uint64_t next = room == 0 ? first : 2 * (uint64_t)room;

    return next < capacity ? (uint32_t)next : capacity;
}

/* Make an array larger, with an entry 0 that is nobody's; what is new in it stays untouched. */
static bool
array_grow(void *array_ref, uint32_t room, size_t item_bytes)
{
    void **array = array_ref;
    void *larger = realloc(*array, ((size_t)room + 1) * item_bytes);

    if (larger == NULL) {
        return false; /* The old one stays good. */
    }
    *array = larger;
    return true;
}

/* Hang every record into a larger table of buckets. */
static bool
rehash_locked(struct shard *shard, uint32_t room)
{
    uint32_t *old = shard->buckets;
    uint32_t old_count = old == NULL ? 0 : shard->bucket_mask + 1;
    uint32_t count = 1;

    while (count < room) {
        count *= 2;
    }
    shard->buckets = calloc(count, sizeof(*shard->buckets));
    if (shard->buckets == NULL) {
        shard->buckets = old;
        return false;
    }
    shard->bucket_mask = count - 1;
    for (uint32_t i = 0; i < old_count; i++) {
        uint32_t index = old[i];

        while (index != 0) {
            uint32_t next = shard->records[index].next;
            uint32_t *bucket = bucket_of(shard, shard->records[index].hash);

            shard->records[index].next = *bucket;
            *bucket = index;
            index = next;
        }
    }
    free(old);
    return true;
}

/* Return whether there is memory for one more record, all being in use. */
static bool
grow_records_locked(struct shard *shard)
{
    uint32_t room = doubled(shard->record_room, RECORDS_FIRST, shard->record_capacity);

    yb_lock_assert_held(&shard->lock);
    if (!array_grow(&shard->records, room, sizeof(*shard->records)) ||
        !array_grow(&shard->heap, room, sizeof(*shard->heap)) || !rehash_locked(shard, room)) {
        return false;
    }
    shard->record_room = room;
    return true;
}

/* Return whether there is memory for one more reservation. */
static bool
grow_chunks_locked(struct shard *shard)
{
    uint32_t room = doubled(shard->chunk_room, CHUNKS_FIRST, shard->chunk_capacity);

    yb_lock_assert_held(&shard->lock);
    if (!array_grow(&shard->chunks, room, sizeof(*shard->chunks)) ||
        !array_grow(&shard->next_chunk, room, sizeof(*shard->next_chunk))) {
        return false;
    }
    shard->chunk_room = room;
    return true;
}

/* ---- records ---- */

/* Return the record of `key`, or 0. */
static uint32_t
find_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash)
{
    uint32_t index = shard->buckets == NULL ? 0 : *bucket_of(shard, hash);

    yb_lock_assert_held(&shard->lock);
    while (index != 0 && memcmp(&shard->records[index].key, key, sizeof(*key)) != 0) {
        index = shard->records[index].next;
    }
    return index;
}

/* Return the record of a mutation that got NEW, which ends now. */
static uint32_t
end_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash, uint64_t operation)
{
    uint32_t index = find_locked(shard, key, hash);
    const struct record *record;

    YB_ASSERT(index != 0);
    record = &shard->records[index];
    YB_ASSERT(record->running > 0 && operation <= record->operation);
    YB_ASSERT(operation < record->operation || record->state == RUNNING);
    shard->records[index].running--;
    shard->running--;
    return index;
}

/* Return whether the bounds allow `records` more, and one more reservation. */
static bool
has_room(const struct shard *shard, uint32_t records)
{
    return shard->record_count + records <= shard->record_capacity &&
           shard->chunk_capacity - shard->chunk_count >= CHUNKS_RESERVED;
}

/* Add a record of which nothing ran yet; there is room and memory. */
static uint32_t
record_add_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash)
{
    uint32_t *bucket = bucket_of(shard, hash);
    uint32_t index = shard->record_free;
    struct record *record;

    yb_lock_assert_held(&shard->lock);
    if (index == 0) {
        index = shard->record_fresh++;
        YB_ASSERT(index <= shard->record_room);
    } else {
        shard->record_free = shard->records[index].next;
    }
    record = &shard->records[index];
    *record = (struct record){.key = *key, .hash = hash, .state = NOT_RUN, .alone = true};
    record->next = *bucket;
    *bucket = index;
    shard->record_count++;
    return index;
}

/* Free a record that is in no heap and has no answer. */
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

    YB_ASSERT(shard->records[index].running == 0);
    heap_remove(shard, index);
    answer_drop(shard, &shard->records[index]);
    record_drop_locked(shard, index);
}

/* Return whether there is room and memory for `records` more and for one more reservation, after
 * dropping some past their window. */
static bool
make_room_locked(struct shard *shard, uint32_t records, uint64_t now_ns)
{
    for (uint32_t step = 0; step < RECLAIM_STEPS || !has_room(shard, records); step++) {
        if (shard->heap_count == 0 || heap_expires(shard, 1) > now_ns) {
            break; /* R2 */
        }
        reclaim_one_locked(shard);
    }
    if (!has_room(shard, records)) {
        return false; /* R3 */
    }
    if (shard->record_count + records > shard->record_room && !grow_records_locked(shard)) {
        return false;
    }
    return shard->chunk_count + CHUNKS_RESERVED <= shard->chunk_room || grow_chunks_locked(shard);
}

/* Let an operation run: there is room, and its record is in no heap. */
static enum yb_replay_verdict
start_locked(struct shard *shard, struct record *record, uint64_t operation, uint64_t expires_ns)
{
    yb_lock_assert_held(&shard->lock);
    YB_ASSERT(record->heap_place == 0 && record->state == NOT_RUN);
    record->operation = operation;
    record->expires_ns = later(record->expires_ns, expires_ns);
    record->state = RUNNING;
    record->running++;
    shard->running++;
    shard->chunk_count += CHUNKS_RESERVED;
    return YB_REPLAY_NEW;
}

/* Answer a begin whose slot is not known. */
static enum yb_replay_verdict
meet_first_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash,
                  const struct begin *begin)
{
    uint32_t index;

    if (!make_room_locked(shard, 1, begin->now_ns)) {
        shard->full_refusals++;
        return YB_REPLAY_FULL;
    }
    index = record_add_locked(shard, key, hash);
    return start_locked(shard, &shard->records[index], begin->operation, begin->expires_ns);
}

/* Answer a begin of an operation that is higher than those of its slot (R5), or was not run. */
static enum yb_replay_verdict
meet_next_locked(struct shard *shard, uint32_t index, const struct begin *begin)
{
    struct record *record = &shard->records[index];

    if (record->heap_place != 0) {
        heap_remove(shard, index);
    }
    answer_drop(shard, record);
    record->alone = record->alone && record->operation == begin->operation;
    record->operation = begin->operation;
    if (!make_room_locked(shard, 0, begin->now_ns)) {
        if (record->running == 0) {
            heap_insert(shard, index);
        }
        shard->full_refusals++;
        return YB_REPLAY_FULL;
    }
    return start_locked(shard, record, begin->operation, begin->expires_ns);
}

/* Answer a begin whose operation has begun before. */
static enum yb_replay_verdict
meet_again_locked(struct shard *shard, uint32_t index, uint64_t expires_ns,
                  struct yb_replay_result *result_out)
{
    struct record *record = &shard->records[index];

    yb_lock_assert_held(&shard->lock);
    record->expires_ns = later(record->expires_ns, expires_ns);
    if (record->state == RUNNING) {
        return YB_REPLAY_RUNNING;
    }
    if (record->heap_place != 0) { /* Otherwise one that it superseded still runs. */
        heap_sink(shard, record->heap_place, index);
    }
    result_out->status = record->status;
    result_out->body_bytes = record->body_bytes;
    body_load(shard, record, result_out->body);
    return YB_REPLAY_REMEMBERED;
}

static enum yb_replay_verdict
begin_locked(struct shard *shard, const struct yb_replay_key *key, uint64_t hash,
             const struct begin *begin, struct yb_replay_result *result_out)
{
    uint32_t index = find_locked(shard, key, hash);
    const struct record *record;

    yb_lock_assert_held(&shard->lock);
    if (index == 0) {
        return meet_first_locked(shard, key, hash, begin);
    }
    record = &shard->records[index];
    if (begin->operation < record->operation) {
        return YB_REPLAY_SUPERSEDED;
    }
    if (begin->operation > record->operation || record->state == NOT_RUN) {
        return meet_next_locked(shard, index, begin);
    }
    return meet_again_locked(shard, index, begin->expires_ns, result_out);
}

enum yb_replay_verdict
yb_replay_begin(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t operation,
                uint64_t now_ns, uint64_t expires_ns, struct yb_replay_result *result_out)
{
    uint64_t latest_ns = yb_deadline_after(now_ns, YB_REPLAY_WINDOW_MAX_NS);
    const struct begin begin = {
        .operation = operation,
        .now_ns = now_ns,
        .expires_ns = expires_ns < latest_ns ? expires_ns : latest_ns,
    };
    uint64_t hash = hash_of(replay, key);
    enum yb_replay_verdict verdict;
    struct shard *shard;

    YB_ASSERT_OBJ(replay, REPLAY_MAGIC);
    YB_ASSERT(result_out != NULL && operation != 0);
    shard = shard_of(replay, hash);
    yb_lock_acquire(&shard->lock);
    verdict = begin_locked(shard, key, hash, &begin, result_out);
    yb_lock_release(&shard->lock);
    return verdict;
}

void
yb_replay_finish(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t operation,
                 uint64_t now_ns, const struct yb_replay_answer *answer)
{
    uint64_t hash = hash_of(replay, key);
    struct shard *shard;
    struct record *record;
    uint32_t index;

    YB_ASSERT_OBJ(replay, REPLAY_MAGIC);
    YB_ASSERT(answer->body_bytes <= YB_REPLY_REMEMBERED_MAX);
    YB_ASSERT(answer->body != NULL || answer->body_bytes == 0);
    shard = shard_of(replay, hash);
    yb_lock_acquire(&shard->lock);
    index = end_locked(shard, key, hash, operation);
    record = &shard->records[index];
    record->expires_ns = later(record->expires_ns, yb_deadline_after(now_ns, YB_REPLAY_MARGIN_NS));
    if (record->operation == operation) {
        record->status = answer->status;
        body_store(shard, record, answer->body, answer->body_bytes);
        shard->chunk_count -= CHUNKS_RESERVED - chunks_for(answer->body_bytes);
        record->state = REMEMBERED;
    }
    if (record->running == 0) {
        heap_insert(shard, index);
    }
    yb_lock_release(&shard->lock);
}

void
yb_replay_forget(struct yb_replay *replay, const struct yb_replay_key *key, uint64_t operation)
{
    uint64_t hash = hash_of(replay, key);
    struct shard *shard;
    struct record *record;
    uint32_t index;

    YB_ASSERT_OBJ(replay, REPLAY_MAGIC);
    shard = shard_of(replay, hash);
    yb_lock_acquire(&shard->lock);
    index = end_locked(shard, key, hash, operation);
    record = &shard->records[index];
    if (record->operation == operation) {
        answer_drop(shard, record);
    }
    if (record->alone) {
        record_drop_locked(shard, index);
    } else if (record->running == 0) {
        heap_insert(shard, index); /* R5: what came before it is remembered all the same. */
    }
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
        counts.running += shard->running;
        counts.bytes += (uint64_t)shard->chunk_count * CHUNK_BYTES;
        counts.full_refusals += shard->full_refusals;
        yb_lock_release(&shard->lock);
    }
    return counts;
}

/* ---- life ---- */

/* Free a shard's arrays; those that were never needed are NULL. */
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

static void
shard_init(struct shard *shard, uint32_t record_capacity, uint32_t chunk_capacity)
{
    YB_ASSERT(record_capacity > 0);
    YB_ASSERT(chunk_capacity >= CHUNKS_RESERVED);
    yb_lock_init(&shard->lock, YB_LOCK_REPLAY);
    shard->record_capacity = record_capacity;
    shard->chunk_capacity = chunk_capacity;
    shard->record_fresh = 1;
    shard->chunk_fresh = 1;
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
        shard_init(&replay->shards[replay->shard_count++], records_max / count,
                   (uint32_t)(bytes_max / count / CHUNK_BYTES));
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
