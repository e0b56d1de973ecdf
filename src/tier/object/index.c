/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/hash.h"

#define INDEX_MAGIC 0x594f4958u /* "YOIX" */
#define NONE        UINT32_MAX
#define TABLE_SEED  0x6f626a6563740001ull

struct floor {
    char tenant[YB_OBJECT_TENANT_MAX + 1];
    uint64_t flush;
};

struct yb_object_index {
    uint32_t magic;
    uint32_t blocks_max;
    uint32_t spaces_max;
    uint32_t places; /* Blocks that were ever used. */
    uint32_t free;   /* A chain of those that are not used now. */
    uint32_t count;
    uint32_t space_count;
    uint32_t mask;
    size_t blocks_bytes;
    size_t table_bytes;
    struct yb_object_block *blocks; /* Mapped. */
    uint32_t *table;                /* Mapped: place + 1 of the first in its bucket. */
    struct yb_object_space *spaces;
    struct floor *floors; /* spaces_max of them. */
    uint32_t floor_count;
};

static void *
map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

enum yb_status
yb_object_index_create(uint32_t blocks_max, uint32_t spaces_max, struct yb_object_index **index_out)
{
    struct yb_object_index *index;
    uint32_t buckets = 64;

    if (blocks_max == 0 || blocks_max > 1u << 30 || spaces_max == 0) {
        return YB_INVALID;
    }
    while (buckets < blocks_max) {
        buckets *= 2;
    }
    index = calloc(1, sizeof(*index));
    if (index == NULL) {
        return YB_NO_MEMORY;
    }
    index->magic = INDEX_MAGIC;
    index->blocks_max = blocks_max;
    index->spaces_max = spaces_max;
    index->mask = buckets - 1;
    index->free = NONE;
    index->blocks_bytes = (size_t)blocks_max * sizeof(struct yb_object_block);
    index->table_bytes = (size_t)buckets * sizeof(uint32_t);
    index->blocks = map(index->blocks_bytes);
    index->table = map(index->table_bytes);
    index->spaces = calloc(spaces_max, sizeof(*index->spaces));
    index->floors = calloc(spaces_max, sizeof(*index->floors));
    if (index->blocks == NULL || index->table == NULL || index->spaces == NULL ||
        index->floors == NULL) {
        yb_object_index_destroy(&index);
        return YB_NO_MEMORY;
    }
    *index_out = index;
    return YB_OK;
}

void
yb_object_index_destroy(struct yb_object_index **index)
{
    if (*index == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*index, INDEX_MAGIC);
    if ((*index)->blocks != NULL) {
        (void)munmap((*index)->blocks, (*index)->blocks_bytes);
    }
    if ((*index)->table != NULL) {
        (void)munmap((*index)->table, (*index)->table_bytes);
    }
    free((*index)->spaces);
    free((*index)->floors);
    (*index)->magic = 0;
    free(*index);
    *index = NULL;
}

static uint32_t *
bucket(struct yb_object_index *index, struct yb_id hash)
{
    return &index->table[yb_hash_table_id(TABLE_SEED, hash) & index->mask];
}

struct yb_object_block *
yb_object_index_find(struct yb_object_index *index, struct yb_id hash, uint64_t grant)
{
    for (uint32_t at = *bucket(index, hash); at != 0; at = index->blocks[at - 1].next) {
        struct yb_object_block *block = &index->blocks[at - 1];

        if (block->grant == grant && yb_id_equal(block->hash, hash)) {
            return block;
        }
    }
    return NULL;
}

struct yb_object_block *
yb_object_index_highest(struct yb_object_index *index, struct yb_id hash, bool resident)
{
    struct yb_object_block *best = NULL;

    for (uint32_t at = *bucket(index, hash); at != 0; at = index->blocks[at - 1].next) {
        struct yb_object_block *block = &index->blocks[at - 1];
        enum yb_object_block_state state = yb_object_block_state_of(block);

        if (yb_id_equal(block->hash, hash) && (best == NULL || block->grant > best->grant) &&
            state != YB_OBJECT_BLOCK_GONE && (!resident || state == YB_OBJECT_BLOCK_RESIDENT) &&
            !index->spaces[block->space].dead) {
            best = block;
        }
    }
    return best;
}

struct yb_object_block *
yb_object_index_insert(struct yb_object_index *index, struct yb_id hash, uint64_t grant,
                       uint32_t space)
{
    uint32_t *head = bucket(index, hash);
    uint32_t place = index->free;
    struct yb_object_block *block;

    YB_ASSERT(space < index->space_count);
    YB_ASSERT_SLOW(yb_object_index_find(index, hash, grant) == NULL); /* I1 */
    if (place == NONE && index->places == index->blocks_max) {
        return NULL;
    }
    if (place == NONE) {
        place = index->places++;
    } else {
        index->free = index->blocks[place].next;
    }
    block = &index->blocks[place];
    *block = (struct yb_object_block){
        .hash = hash, .grant = grant, .space = space, .next = *head, .pack = YB_OBJECT_NO_PACK};
    yb_object_block_set_state(block, YB_OBJECT_BLOCK_STORING);
    *head = place + 1;
    index->count++;
    index->spaces[space].blocks++;
    return block;
}

void
yb_object_index_remove(struct yb_object_index *index, struct yb_object_block *block)
{
    uint32_t place = yb_object_index_place_of(index, block);
    uint32_t *link = bucket(index, block->hash);

    YB_ASSERT(yb_object_block_state_of(block) != YB_OBJECT_BLOCK_FREE);
    while (*link != place + 1) {
        YB_ASSERT(*link != 0);
        link = &index->blocks[*link - 1].next;
    }
    *link = block->next;
    index->spaces[block->space].blocks--;
    index->count--;
    *block = (struct yb_object_block){.next = index->free};
    index->free = place;
}

uint32_t
yb_object_index_space(struct yb_object_index *index, const char *tenant, uint64_t flush)
{
    uint32_t unused = YB_OBJECT_NO_SPACE;
    struct yb_object_space *space;

    for (uint32_t i = index->space_count; i > 0; i--) { /* The latest is asked for most. */
        space = &index->spaces[i - 1];
        if (space->flush == flush && strcmp(space->tenant, tenant) == 0) {
            return i - 1;
        }
        if (space->dead && space->blocks == 0) {
            unused = i - 1;
        }
    }
    if (strlen(tenant) > YB_OBJECT_TENANT_MAX) {
        return YB_OBJECT_NO_SPACE;
    }
    if (index->space_count < index->spaces_max) {
        unused = index->space_count++;
    }
    if (unused != YB_OBJECT_NO_SPACE) {
        space = &index->spaces[unused];
        *space = (struct yb_object_space){.flush = flush,
                                          .dead = flush < yb_object_index_floor(index, tenant)};
        memcpy(space->tenant, tenant, strlen(tenant) + 1);
    }
    return unused;
}

enum yb_status
yb_object_index_flush(struct yb_object_index *index, const char *tenant, uint64_t flush)
{
    uint32_t at = 0;

    while (at < index->floor_count && strcmp(index->floors[at].tenant, tenant) != 0) {
        at++;
    }
    if (at == index->spaces_max || strlen(tenant) > YB_OBJECT_TENANT_MAX) {
        return YB_NO_SPACE;
    }
    if (at == index->floor_count) {
        index->floor_count++;
        memcpy(index->floors[at].tenant, tenant, strlen(tenant) + 1);
    }
    if (flush > index->floors[at].flush) {
        index->floors[at].flush = flush;
    }
    for (uint32_t i = 0; i < index->space_count; i++) {
        struct yb_object_space *space = &index->spaces[i];

        space->dead = space->dead || (space->flush < flush && strcmp(space->tenant, tenant) == 0);
    }
    return YB_OK;
}

uint64_t
yb_object_index_floor(const struct yb_object_index *index, const char *tenant)
{
    for (uint32_t i = 0; i < index->floor_count; i++) {
        if (strcmp(index->floors[i].tenant, tenant) == 0) {
            return index->floors[i].flush;
        }
    }
    return 0;
}

struct yb_object_space *
yb_object_index_space_at(struct yb_object_index *index, uint32_t space)
{
    YB_ASSERT(space < index->space_count);
    return &index->spaces[space];
}

void
yb_object_index_space_name(struct yb_object_index *index, uint32_t space,
                           struct yb_object_name *name_out)
{
    const struct yb_object_space *at = yb_object_index_space_at(index, space);

    *name_out = (struct yb_object_name){.flush = at->flush};
    memcpy(name_out->tenant, at->tenant, sizeof(name_out->tenant));
}

uint32_t
yb_object_index_spaces(const struct yb_object_index *index)
{
    return index->space_count;
}

struct yb_object_block *
yb_object_index_at(struct yb_object_index *index, uint32_t place)
{
    YB_ASSERT(place < index->places);
    return yb_object_block_state_of(&index->blocks[place]) == YB_OBJECT_BLOCK_FREE
               ? NULL
               : &index->blocks[place];
}

uint32_t
yb_object_index_places(const struct yb_object_index *index)
{
    return index->places;
}

uint32_t
yb_object_index_place_of(const struct yb_object_index *index, const struct yb_object_block *block)
{
    YB_ASSERT(block >= index->blocks && block < index->blocks + index->places);
    return (uint32_t)(block - index->blocks);
}

uint32_t
yb_object_index_blocks(const struct yb_object_index *index)
{
    return index->count;
}

uint64_t
yb_object_index_bytes(const struct yb_object_index *index)
{
    return (uint64_t)index->places * sizeof(struct yb_object_block) + index->table_bytes;
}
