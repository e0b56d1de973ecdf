/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- which blocks there are, in 48 bytes each.
 *
 * What tells a block's object and its place there is all that is kept; the rest lies behind its
 * bytes (record.h). A block's tenant and flush epoch are a space, which has a number.
 *
 * Invariants
 *   I1  One block for a (hash, grant).
 *   I2  Of a hash, the highest grant is found.
 *   I3  Nothing is allocated after create; a block stays where it is until it is removed.
 *
 * Threads   One owner.
 * Memory    48 bytes a block and 4 to 8 for the table, used as blocks come; spaces_max spaces.
 */
#ifndef YB_TIER_OBJECT_INDEX_H
#define YB_TIER_OBJECT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "tier/object/name.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_OBJECT_NO_PACK  UINT32_MAX
#define YB_OBJECT_NO_SPACE UINT32_MAX

enum yb_object_block_state {
    YB_OBJECT_BLOCK_FREE,
    YB_OBJECT_BLOCK_STORING,
    YB_OBJECT_BLOCK_RESIDENT,
    YB_OBJECT_BLOCK_GONE, /* Killed or dropped: never found again, until no trace is left of it. */
};

struct yb_object_block {
    struct yb_id hash;
    uint64_t grant;
    uint32_t space;
    uint32_t next;  /* The index's. */
    uint32_t size;  /* 29 bits; above it how often it was read, up to 7. */
    uint32_t pack;  /* YB_OBJECT_NO_PACK: an object of its own. GONE: since when, in seconds. */
    uint32_t where; /* In a pack: offset / 16. Else expires_unix_s. STORING: whose work it is. */
    uint16_t kind;  /* Mode, replicas, flags: as below. */
    uint16_t more;  /* Key bytes - 1 (10 bits), state (2), and the bits below. */
};

_Static_assert(sizeof(struct yb_object_block) == 48, "stated in the header");

struct yb_object_space {
    char tenant[YB_OBJECT_TENANT_MAX + 1];
    bool dead; /* Flushed: its blocks are a miss. */
    uint64_t flush;
    uint32_t blocks;
};

struct yb_object_index;

YB_CHECKED enum yb_status yb_object_index_create(uint32_t blocks_max, uint32_t spaces_max,
                                                 struct yb_object_index **index_out);
void yb_object_index_destroy(struct yb_object_index **index);

/* Return the block, or NULL. */
struct yb_object_block *yb_object_index_find(struct yb_object_index *index, struct yb_id hash,
                                             uint64_t grant);

/* Return the block of the hash with the highest grant, or NULL. What is GONE or flushed is passed
 * over, and with `resident` also what is not RESIDENT. */
struct yb_object_block *yb_object_index_highest(struct yb_object_index *index, struct yb_id hash,
                                                bool resident);

/* Add one that is not there, STORING. NULL: the index is full. */
struct yb_object_block *yb_object_index_insert(struct yb_object_index *index, struct yb_id hash,
                                               uint64_t grant, uint32_t space);
void yb_object_index_remove(struct yb_object_index *index, struct yb_object_block *block);

/* Return the number of a space, which is made if it is new; YB_OBJECT_NO_SPACE: there is no room.
 * */
uint32_t yb_object_index_space(struct yb_object_index *index, const char *tenant, uint64_t flush);

/* Everything of the tenant below `flush` is a miss from now on; it never goes back. NO_SPACE:
 * there is no room for one more tenant. floor: what was said last, 0 at first. */
YB_CHECKED enum yb_status yb_object_index_flush(struct yb_object_index *index, const char *tenant,
                                                uint64_t flush);
uint64_t yb_object_index_floor(const struct yb_object_index *index, const char *tenant);

struct yb_object_space *yb_object_index_space_at(struct yb_object_index *index, uint32_t space);
/* Write tenant and flush epoch of a space to a name. */
void yb_object_index_space_name(struct yb_object_index *index, uint32_t space,
                                struct yb_object_name *name_out);
uint32_t yb_object_index_spaces(const struct yb_object_index *index);

/* Return the block at a place, 0 .. places - 1, or NULL if none is there: for walks in steps. */
struct yb_object_block *yb_object_index_at(struct yb_object_index *index, uint32_t place);
uint32_t yb_object_index_places(const struct yb_object_index *index);
uint32_t yb_object_index_place_of(const struct yb_object_index *index,
                                  const struct yb_object_block *block);

uint32_t yb_object_index_blocks(const struct yb_object_index *index);
uint64_t yb_object_index_bytes(const struct yb_object_index *index);

/* An upload of it may still be under way somewhere: its DELETE alone is no end. */
#define YB_OBJECT_BLOCK_DOUBT 0x1000u
/* Of what is GONE: its object is not there any more, or not ours to delete, ... */
#define YB_OBJECT_BLOCK_DELETED 0x1000u
/* ... there is a kill object, ... */
#define YB_OBJECT_BLOCK_MARKED 0x2000u
/* ... and somebody is at it. */
#define YB_OBJECT_BLOCK_BUSY 0x4000u
/* GONE: its bytes are in the pack whose number is `where`. */
#define YB_OBJECT_BLOCK_PACKED 0x8000u

/* What stands in `kind` and `more`. */
static inline uint16_t
yb_object_kind_of(uint8_t mode, uint8_t replicas, uint16_t flags)
{
    return (uint16_t)((mode & 3u) << 14 | (uint32_t)(replicas & 15u) << 10 | (flags & 0x3ffu));
}

static inline enum yb_object_block_state
yb_object_block_state_of(const struct yb_object_block *block)
{
    return (enum yb_object_block_state)(block->more >> 10 & 3u);
}

static inline void
yb_object_block_set_state(struct yb_object_block *block, enum yb_object_block_state state)
{
    block->more = (uint16_t)((block->more & ~(3u << 10)) | (uint32_t)state << 10);
}

static inline uint32_t
yb_object_block_key_bytes(const struct yb_object_block *block)
{
    return (block->more & 0x3ffu) + 1u;
}

static inline void
yb_object_block_set(struct yb_object_block *block, uint32_t bits)
{
    block->more = (uint16_t)(block->more | bits);
}

static inline void
yb_object_block_clear(struct yb_object_block *block, uint32_t bits)
{
    block->more = (uint16_t)(block->more & ~bits);
}

static inline void
yb_object_block_set_in_pack(struct yb_object_block *block, uint32_t pack)
{
    block->where = pack;
    yb_object_block_set(block, YB_OBJECT_BLOCK_PACKED);
}

static inline void
yb_object_block_set_key_bytes(struct yb_object_block *block, uint32_t key_bytes)
{
    block->more = (uint16_t)((block->more & ~0x3ffu) | ((key_bytes - 1u) & 0x3ffu));
}

static inline uint32_t
yb_object_block_size(const struct yb_object_block *block)
{
    return block->size & 0x1fffffffu;
}

static inline uint8_t
yb_object_block_reads(const struct yb_object_block *block)
{
    return (uint8_t)(block->size >> 29);
}

static inline void
yb_object_block_was_read(struct yb_object_block *block)
{
    block->size += yb_object_block_reads(block) < 7 ? 1u << 29 : 0;
}

#endif /* YB_TIER_OBJECT_INDEX_H */
