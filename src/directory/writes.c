/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of writes: chains by the key's hash, and one list by age.
 */
#include "directory/writes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/hash.h"

#define NONE        UINT32_MAX
#define DROPS_AHEAD 4u
#define HUGE_BYTES  ((size_t)2 << 20)
#define PLACES      8u /* Of a put, at most. */

enum state { OPEN, GRANTED, WAITING };

struct entry {
    struct yb_id hash;
    uint64_t write;
    union {
        struct {
            uint64_t number; /* GRANTED: the grant; OPEN: when it may be done. */
            uint64_t at_ns;  /* GRANTED: when; OPEN: until then others wait for it. */
        };
        uint16_t slots[PLACES]; /* WAITING: where; those behind the last are 0. */
    };
    uint64_t expires_ns;
    uint32_t next;  /* In its chain, the latest first; or in the list of free ones. */
    uint32_t older; /* In the list by age. */
    uint32_t newer;
    uint16_t tenant;
    uint8_t state;
};
_Static_assert(sizeof(struct entry) == 64, "an entry is a cache line");

struct yb_writes {
    uint64_t seed;
    struct entry *entries;
    uint32_t *heads; /* [mask + 1] */
    uint32_t mask;
    uint32_t free;
    uint32_t oldest;
    uint32_t newest;
    uint32_t count;
    uint32_t open;
    uint64_t missed_ns; /* Until then one would be remembered that had to go. */
    bool forgot;        /* A GRANTED one is gone. */
};

/* Both tables are walked at random: with huge pages, where they are large and the kernel has
 * some. */
static void *
take_pages(size_t bytes)
{
    size_t page = bytes >= HUGE_BYTES ? HUGE_BYTES : sizeof(struct entry);
    void *pages = aligned_alloc(page, (bytes + page - 1) / page * page);

    if (pages != NULL && page == HUGE_BYTES) {
        (void)madvise(pages, bytes, MADV_HUGEPAGE); /* Only advice. */
    }
    return pages;
}

enum yb_status
yb_writes_create(uint32_t writes_max, uint64_t seed, struct yb_writes **writes_out)
{
    struct yb_writes *writes;
    uint32_t heads = 1;

    if (writes_max == 0 || writes_max > YB_WRITES_MAX) {
        return YB_INVALID;
    }
    while (heads / 2 < writes_max) {
        heads *= 2;
    }
    writes = calloc(1, sizeof(*writes));
    if (writes == NULL) {
        return YB_NO_MEMORY;
    }
    writes->entries = take_pages(writes_max * sizeof(*writes->entries));
    writes->heads = take_pages(heads * sizeof(*writes->heads));
    if (writes->entries == NULL || writes->heads == NULL) {
        yb_writes_destroy(&writes);
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < writes_max; i++) {
        writes->entries[i].next = i + 1 < writes_max ? i + 1 : NONE;
    }
    for (uint32_t i = 0; i < heads; i++) {
        writes->heads[i] = NONE;
    }
    writes->mask = heads - 1;
    writes->seed = seed;
    writes->oldest = NONE;
    writes->newest = NONE;
    *writes_out = writes;
    return YB_OK;
}

void
yb_writes_destroy(struct yb_writes **writes)
{
    free((*writes)->entries);
    free((*writes)->heads);
    free(*writes);
    *writes = NULL;
}

static uint32_t *
head_of(const struct yb_writes *writes, struct yb_id hash)
{
    return &writes->heads[yb_hash_table_id(writes->seed, hash) & writes->mask];
}

static bool
same_key(const struct entry *entry, const struct yb_writes_name *name)
{
    return entry->tenant == name->tenant && yb_id_equal(entry->hash, name->hash);
}

static uint32_t
find(const struct yb_writes *writes, const struct yb_writes_name *name)
{
    uint32_t index = *head_of(writes, name->hash);

    while (index != NONE && !(writes->entries[index].write == name->write &&
                              same_key(&writes->entries[index], name))) {
        index = writes->entries[index].next;
    }
    return index;
}

/* ---- the list by age ------------------------------------------------------------------------- */

static void
unlink_age(struct yb_writes *writes, struct entry *entry)
{
    if (entry->older != NONE) {
        writes->entries[entry->older].newer = entry->newer;
    } else {
        writes->oldest = entry->newer;
    }
    if (entry->newer != NONE) {
        writes->entries[entry->newer].older = entry->older;
    } else {
        writes->newest = entry->older;
    }
}

static void
append_age(struct yb_writes *writes, uint32_t index)
{
    struct entry *entry = &writes->entries[index];

    entry->older = writes->newest;
    entry->newer = NONE;
    if (writes->newest != NONE) {
        writes->entries[writes->newest].newer = index;
    } else {
        writes->oldest = index;
    }
    writes->newest = index;
}

static void
drop(struct yb_writes *writes, uint32_t index)
{
    struct entry *entry = &writes->entries[index];
    uint32_t *link = head_of(writes, entry->hash);

    while (*link != index) {
        link = &writes->entries[*link].next;
    }
    *link = entry->next;
    unlink_age(writes, entry);
    writes->forgot = writes->forgot || entry->state == GRANTED;
    writes->open -= entry->state == OPEN ? 1 : 0;
    writes->count--;
    entry->next = writes->free;
    writes->free = index;
}

/* Begin to load what it takes to drop the ones that are about to be the oldest: a full table drops
 * one for each that comes. */
static void
prefetch_oldest(const struct yb_writes *writes)
{
    uint32_t index = writes->oldest;

    for (uint32_t i = 0; i < DROPS_AHEAD && index != NONE; i++) {
        index = writes->entries[index].newer;
    }
    if (index != NONE) {
        __builtin_prefetch(head_of(writes, writes->entries[index].hash));
        if (writes->entries[index].newer != NONE) {
            __builtin_prefetch(&writes->entries[writes->entries[index].newer]);
        }
    }
}

/* Return the entry of a write, made if need be, as the one that was touched last. */
static struct entry *
touch(struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns)
{
    uint32_t index = find(writes, name);
    struct entry *entry;

    if (index != NONE && writes->entries[index].expires_ns <= now_ns) {
        drop(writes, index); /* W3 */
        index = NONE;
    }
    if (index != NONE) {
        unlink_age(writes, &writes->entries[index]);
        append_age(writes, index);
        return &writes->entries[index];
    }
    if (writes->free == NONE) {
        const struct entry *oldest = &writes->entries[writes->oldest];

        if (oldest->state == GRANTED && oldest->expires_ns > writes->missed_ns) {
            writes->missed_ns = oldest->expires_ns;
        }
        drop(writes, writes->oldest); /* W1 */
        prefetch_oldest(writes);
    }
    index = writes->free;
    entry = &writes->entries[index];
    writes->free = entry->next;
    *entry = (struct entry){.hash = name->hash, .write = name->write, .tenant = name->tenant};
    entry->next = *head_of(writes, name->hash);
    *head_of(writes, name->hash) = index;
    append_age(writes, index);
    writes->count++;
    writes->open++; /* OPEN is 0. */
    return entry;
}

static void
set_state(struct yb_writes *writes, struct entry *entry, enum state state)
{
    writes->open -= entry->state == OPEN ? 1 : 0;
    writes->open += state == OPEN ? 1 : 0;
    entry->state = (uint8_t)state;
}

void
yb_writes_prefetch(const struct yb_writes *writes, struct yb_id hash, bool soon)
{
    const uint32_t *head = head_of(writes, hash);

    if (!soon) {
        __builtin_prefetch(head);
    } else if (*head != NONE) {
        __builtin_prefetch(&writes->entries[*head]);
    }
    __asm__ volatile(""); /* Or gcc takes this for a function without effect. */
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct yb_writes_found
found(const struct entry *entry)
{
    return (struct yb_writes_found){
        .write = entry->write,
        .grant = entry->state == GRANTED ? entry->number : 0,
        .eta_ns = entry->state == GRANTED ? 0 : entry->number,
        .at_ns = entry->state == GRANTED ? entry->at_ns : 0,
    };
}

bool
yb_writes_find(const struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns,
               struct yb_writes_found *found_out)
{
    uint32_t index = find(writes, name);

    if (index == NONE || writes->entries[index].expires_ns <= now_ns ||
        writes->entries[index].state == WAITING) {
        return false;
    }
    *found_out = found(&writes->entries[index]);
    return true;
}

/* Find an OPEN write with another id whose writer others wait for until `patient_ns`, or longer. */
static bool
find_open(const struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns,
          uint64_t patient_ns, struct yb_writes_found *found_out)
{
    for (uint32_t index = *head_of(writes, name->hash); index != NONE;
         index = writes->entries[index].next) {
        const struct entry *entry = &writes->entries[index];

        if (entry->state == OPEN && entry->at_ns >= patient_ns && entry->expires_ns > now_ns &&
            same_key(entry, name) && (name->write == 0 || entry->write != name->write)) {
            *found_out = found(entry);
            return true;
        }
    }
    return false;
}

bool
yb_writes_other(const struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns,
                struct yb_writes_found *found_out)
{
    return find_open(writes, name, now_ns, now_ns + 1, found_out);
}

bool
yb_writes_announced(const struct yb_writes *writes, const struct yb_writes_name *name,
                    uint64_t now_ns, struct yb_writes_found *found_out)
{
    return find_open(writes, name, now_ns, 0, found_out);
}

bool
yb_writes_last(const struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns,
               struct yb_writes_found *found_out)
{
    bool any = false;

    for (uint32_t index = *head_of(writes, name->hash); index != NONE;
         index = writes->entries[index].next) {
        const struct entry *entry = &writes->entries[index];

        if (entry->state == GRANTED && entry->expires_ns > now_ns && same_key(entry, name) &&
            (!any || entry->number > found_out->grant)) {
            *found_out = found(entry);
            any = true;
        }
    }
    return any;
}

/* ---- telling --------------------------------------------------------------------------------- */

void
yb_writes_announce(struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns,
                   const struct yb_writes_times *times)
{
    struct entry *entry = touch(writes, name, now_ns);

    if (entry->state != GRANTED) {
        set_state(writes, entry, OPEN);
        entry->at_ns = times->patience_ns;
        entry->number = times->eta_ns;
        entry->expires_ns = times->expires_ns;
    }
}

void
yb_writes_granted(struct yb_writes *writes, const struct yb_writes_name *name, uint64_t grant,
                  uint64_t now_ns, uint64_t expires_ns)
{
    struct entry *entry = touch(writes, name, now_ns);

    YB_ASSERT(grant != 0);
    set_state(writes, entry, GRANTED);
    entry->number = grant;
    entry->at_ns = now_ns;
    entry->expires_ns = expires_ns;
}

void
yb_writes_forget(struct yb_writes *writes, const struct yb_writes_name *name)
{
    uint32_t index = find(writes, name);

    if (index != NONE && writes->entries[index].state == OPEN) {
        drop(writes, index);
    }
}

/* ---- who waits from before ------------------------------------------------------------------- */

/* Return the place of a slot among those where a write waits, or the first free one, or PLACES. */
static uint32_t
place_of(const struct entry *entry, uint16_t slot)
{
    uint32_t place = 0;

    while (place < PLACES && entry->slots[place] != 0 && entry->slots[place] != slot) {
        place++;
    }
    return place;
}

static uint32_t
places(const struct entry *entry)
{
    return place_of(entry, 0);
}

void
yb_writes_wait(struct yb_writes *writes, const struct yb_writes_name *name, uint16_t slot,
               uint64_t now_ns, uint64_t expires_ns)
{
    struct yb_writes_found found;
    struct entry *entry;
    uint32_t place;

    YB_ASSERT(slot != 0);
    if (yb_writes_find(writes, name, now_ns, &found)) {
        return;
    }
    entry = touch(writes, name, now_ns);
    if (entry->state != WAITING) {
        set_state(writes, entry, WAITING); /* It is new. */
        memset(entry->slots, 0, sizeof(entry->slots));
    }
    entry->expires_ns = expires_ns;
    place = place_of(entry, slot);
    if (place < PLACES) {
        entry->slots[place] = slot;
    }
}

void
yb_writes_wait_end(struct yb_writes *writes, const struct yb_writes_name *name, uint16_t slot)
{
    uint32_t index = find(writes, name);
    struct entry *entry;
    uint32_t place, last;

    if (index == NONE || writes->entries[index].state != WAITING) {
        return;
    }
    entry = &writes->entries[index];
    place = place_of(entry, slot);
    if (place == PLACES || entry->slots[place] == 0) {
        return;
    }
    last = places(entry) - 1;
    entry->slots[place] = entry->slots[last];
    entry->slots[last] = 0;
    if (last == 0) {
        drop(writes, index);
    }
}

/* Return the entry of a write that waits, or NULL. */
static const struct entry *
find_waiting(const struct yb_writes *writes, const struct yb_writes_name *name, uint64_t now_ns)
{
    uint32_t index = find(writes, name);

    return index != NONE && writes->entries[index].state == WAITING &&
                   writes->entries[index].expires_ns > now_ns
               ? &writes->entries[index]
               : NULL;
}

uint32_t
yb_writes_waiting(const struct yb_writes *writes, const struct yb_writes_name *name,
                  uint64_t now_ns)
{
    const struct entry *entry = find_waiting(writes, name, now_ns);

    return entry != NULL ? places(entry) : 0;
}

bool
yb_writes_waits(const struct yb_writes *writes, const struct yb_writes_name *name, uint16_t slot,
                uint64_t now_ns)
{
    const struct entry *entry = find_waiting(writes, name, now_ns);
    uint32_t place = entry != NULL ? place_of(entry, slot) : PLACES;

    return place < PLACES && entry->slots[place] == slot;
}

void
yb_writes_expire(struct yb_writes *writes, uint64_t now_ns, uint32_t steps)
{
    uint32_t index = writes->oldest;

    while (index != NONE && steps-- > 0) {
        uint32_t newer = writes->entries[index].newer;

        if (writes->entries[index].expires_ns <= now_ns) {
            drop(writes, index);
        }
        index = newer;
    }
}

bool
yb_writes_complete(const struct yb_writes *writes, uint64_t now_ns)
{
    return writes->missed_ns <= now_ns;
}

bool
yb_writes_whole(const struct yb_writes *writes, uint64_t now_ns)
{
    /* What has expired is not found any more, and the oldest does so first. */
    return !writes->forgot &&
           (writes->oldest == NONE || writes->entries[writes->oldest].expires_ns > now_ns);
}

uint32_t
yb_writes_count(const struct yb_writes *writes)
{
    return writes->count;
}

uint32_t
yb_writes_open(const struct yb_writes *writes)
{
    return writes->open;
}
