/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h -- what stands behind the bytes of a block in an object.
 *
 * Format    An image is the value and its record, padded with zeros to a multiple of 16 bytes. All
 *           numbers are little-endian:
 *
 *               0  u32 magic "YBOR"    4  u16 version    6  u16 bytes of this head (96)
 *               8  hash               24  u64 grant     32  u64 flush epoch    40  u64 size
 *              48  u64 group          56  u64 parent    64  u64 expires_unix_ms
 *              72  u32 key bytes      76  u16 tenant bytes           78  u16 flags
 *              80  u8 mode            81  u8 replicas   82  u16 0    84  u32 number of sums
 *              88  u32 0              92  u32 CRC32C of the record, this field as 0
 *              96  key, tenant, a CRC32C for each 64 KiB of the value
 *
 *           An object of one block is one image. A pack is images and, behind them, their records
 *           again, each as 8 bytes of offset, 8 of its own length, and itself; last a trailer:
 *
 *               0  u32 magic "YBOP"    4  u16 version   6  u16 0
 *               8  u32 records        12  u32 bytes of all records
 *              16  u64 bytes of images                 24  u32 0   28  u32 CRC32C of all of it
 *
 * Threads   Any function, any thread; no state.
 */
#ifndef YB_TIER_OBJECT_RECORD_H
#define YB_TIER_OBJECT_RECORD_H

#include "tier/tier.h"
#include "yuebing/status.h"

#define YB_OBJECT_RECORD_HEAD   96u
#define YB_OBJECT_BLOCK_MAX     (256ull << 20)
#define YB_OBJECT_ALIGN         16u
#define YB_OBJECT_TRAILER_BYTES 32u
#define YB_OBJECT_ENTRY_HEAD    16u /* In front of each record of a footer. */

/* Return how many checksums a value has. */
uint32_t yb_object_sum_count(uint64_t size);

/* Return the bytes of a record with its padding, so that size + record is a multiple of 16. */
uint64_t yb_object_record_bytes(uint64_t size, uint32_t key_bytes, size_t tenant_bytes);

/* Return the length of the key of a block whose object has `object_bytes`; 0: that cannot be.
 * Padding hides it, so it may be up to 15 more than it is; then so is the record. */
uint32_t yb_object_record_key_bytes(uint64_t size, size_t tenant_bytes, uint64_t object_bytes);

/* Write a record to `out`, which has yb_object_record_bytes(). */
void yb_object_record_encode(const struct yb_tier_record *record, const uint32_t *sums,
                             uint8_t *out);

/* Read a record: *record_out points into `in`, except for its tenant, which is copied.
 * `sums_at_out` is where the sums begin. CORRUPT: it is not whole. VERSION: it is of another
 * version. */
YB_CHECKED enum yb_status yb_object_record_decode(const uint8_t *in, uint64_t length,
                                                  struct yb_tier_record *record_out,
                                                  char tenant_out[72], const uint8_t **sums_at_out);

/* Return sum `index` of those at `sums_at`. */
uint32_t yb_object_record_sum(const uint8_t *sums_at, uint32_t index);

/* ---- footers of packs: the caller has the room ---- */

/* Add a record whose image begins at `offset`. Returns how many bytes it took. */
uint64_t yb_object_footer_add(uint8_t *at, uint64_t offset, const uint8_t *record, uint64_t length);

/* Write the trailer behind `entry_bytes` of entries. */
void yb_object_footer_end(uint8_t *footer, uint64_t entry_bytes, uint32_t count,
                          uint64_t image_bytes);

/* OK: footer and trailer are whole, and those of an object of so many bytes. CORRUPT: they are not.
 * VERSION: they are of another version. */
YB_CHECKED enum yb_status yb_object_footer_check(const uint8_t *footer, uint32_t footer_bytes,
                                                 uint64_t object_bytes);

struct yb_object_footer_entry {
    bool sound; /* What follows can be used. */
    uint64_t offset;
    uint64_t length; /* Of the record. */
    const uint8_t *bytes;
    struct yb_tier_record record; /* Its tenant lies below. */
    char tenant[72];
};

/* Walk over the entries of a footer that was checked, from *at == 0 on: false after the last.
 * What lies outside of the images is not sound. */
bool yb_object_footer_next(const uint8_t *footer, uint32_t footer_bytes, uint64_t image_bytes,
                           uint32_t *at, struct yb_object_footer_entry *entry_out);

#endif /* YB_TIER_OBJECT_RECORD_H */
