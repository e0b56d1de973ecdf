/* SPDX-License-Identifier: Apache-2.0 */
#include "node/shelf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/hash.h"

#define MAGIC       0x59425348u /* "YBSH" */
#define RECORDS_MAX (UINT32_C(1) << 30)

struct yb_shelf {
    uint32_t magic;
    uint32_t records_max;
    uint32_t span;
    uint32_t free; /* Index + 1. */
    uint32_t count;
    uint32_t mask;
    uint64_t seed;
    uint32_t *chains;
    struct yb_shelf_record *records;
};

/* Addresses for zeroed memory, which comes when it is touched. */
static void *
reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

enum yb_status
yb_shelf_create(uint32_t records_max, uint64_t seed, struct yb_shelf **shelf_out)
{
    struct yb_shelf *shelf;
    uint32_t chains = 64;

    if (records_max == 0 || records_max > RECORDS_MAX) {
        return YB_INVALID;
    }
    while (chains < records_max) {
        chains *= 2;
    }
    shelf = calloc(1, sizeof(*shelf));
    if (shelf == NULL) {
        return YB_NO_MEMORY;
    }
    shelf->magic = MAGIC;
    shelf->records_max = records_max;
    shelf->seed = seed;
    shelf->mask = chains - 1;
    shelf->chains = reserve((size_t)chains * sizeof(*shelf->chains));
    shelf->records = reserve((size_t)records_max * sizeof(*shelf->records));
    if (shelf->chains == NULL || shelf->records == NULL) {
        yb_shelf_destroy(&shelf);
        return YB_NO_MEMORY;
    }
    *shelf_out = shelf;
    return YB_OK;
}

void
yb_shelf_destroy(struct yb_shelf **shelf_in)
{
    struct yb_shelf *shelf = *shelf_in;

    if (shelf == NULL) {
        return;
    }
    YB_ASSERT(shelf->magic == MAGIC);
    shelf->magic = 0;
    if (shelf->chains != NULL) {
        (void)munmap(shelf->chains, ((size_t)shelf->mask + 1) * sizeof(*shelf->chains));
    }
    if (shelf->records != NULL) {
        (void)munmap(shelf->records, (size_t)shelf->records_max * sizeof(*shelf->records));
    }
    free(shelf);
    *shelf_in = NULL;
}

static uint32_t *
chain_of(const struct yb_shelf *shelf, struct yb_id hash)
{
    return &shelf->chains[yb_hash_table_id(shelf->seed, hash) & shelf->mask];
}

enum yb_status
yb_shelf_take(struct yb_shelf *shelf, struct yb_id hash, uint64_t grant,
              struct yb_shelf_record **record_out)
{
    struct yb_shelf_record *record;
    uint32_t *chain = chain_of(shelf, hash);

    YB_ASSERT(shelf->magic == MAGIC && yb_shelf_find(shelf, hash) == NULL); /* S1 */
    if (shelf->free != 0) {
        record = &shelf->records[shelf->free - 1];
        shelf->free = record->next;
    } else if (shelf->span < shelf->records_max) {
        record = &shelf->records[shelf->span++];
    } else {
        return YB_AGAIN;
    }
    *record = (struct yb_shelf_record){
        .hash = hash, .grant = grant, .next = *chain, .state = YB_SHELF_LIVE};
    *chain = yb_shelf_index(shelf, record) + 1;
    shelf->count++;
    *record_out = record;
    return YB_OK;
}

void
yb_shelf_give(struct yb_shelf *shelf, struct yb_shelf_record *record)
{
    uint32_t number = yb_shelf_index(shelf, record) + 1;
    uint32_t *link = chain_of(shelf, record->hash);

    YB_ASSERT(record->state != YB_SHELF_FREE);
    while (*link != number) {
        YB_ASSERT(*link != 0);
        link = &shelf->records[*link - 1].next;
    }
    *link = record->next;
    record->state = YB_SHELF_FREE;
    record->next = shelf->free;
    shelf->free = number;
    shelf->count--;
}

struct yb_shelf_record *
yb_shelf_find(const struct yb_shelf *shelf, struct yb_id hash)
{
    for (uint32_t at = *chain_of(shelf, hash); at != 0; at = shelf->records[at - 1].next) {
        struct yb_shelf_record *record = &shelf->records[at - 1];

        if (record->state == YB_SHELF_LIVE && yb_id_equal(record->hash, hash)) {
            return record;
        }
    }
    return NULL;
}

struct yb_shelf_record *
yb_shelf_of(const struct yb_shelf *shelf, struct yb_id hash, uint64_t grant)
{
    for (uint32_t at = *chain_of(shelf, hash); at != 0; at = shelf->records[at - 1].next) {
        struct yb_shelf_record *record = &shelf->records[at - 1];

        if (record->grant == grant && yb_id_equal(record->hash, hash)) {
            return record;
        }
    }
    return NULL;
}

struct yb_shelf_record *
yb_shelf_at(const struct yb_shelf *shelf, uint32_t index)
{
    YB_ASSERT(index < shelf->span);
    return &shelf->records[index];
}

uint32_t
yb_shelf_index(const struct yb_shelf *shelf, const struct yb_shelf_record *record)
{
    YB_ASSERT(record >= shelf->records && record < shelf->records + shelf->records_max);
    return (uint32_t)(record - shelf->records);
}

uint32_t
yb_shelf_span(const struct yb_shelf *shelf)
{
    return shelf->span;
}

uint32_t
yb_shelf_count(const struct yb_shelf *shelf)
{
    return shelf->count;
}
