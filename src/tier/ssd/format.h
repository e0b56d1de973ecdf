/* SPDX-License-Identifier: Apache-2.0
 *
 * format.h -- the log's bytes on the medium.
 *
 *     0          superblock, first copy       512 KiB
 *     512 KiB    superblock, second copy      512 KiB; the copies are written in turns
 *     1 MiB      segment 0, 1, ...            segment_bytes each
 *
 *     a segment
 *     0          header                       4 KiB, its content in the first 512 bytes
 *     4 KiB      kill map                     sectors of 512 bytes: life, then 4032 bits
 *     ...        records                      each begins on 64 bytes and takes at least 256;
 *                                             a batch begins on 4 KiB
 *     ...        footer                       pages of 64 KiB: heads of the records, as they lie
 *     end-4 KiB  trailer                      where the footer is
 *
 *     a record
 *     0          struct yb_ssd_record
 *     96         tenant with its NUL, full key, CRC32C of each 64 KiB of the value (on 4 bytes)
 *     on 64      the value
 *
 * The kill bit of a record is that of the 256 bytes in which it begins. All numbers are
 * little-endian. Every checksum is CRC32C of all that follows it in its structure. A life is the
 * number of a use of a segment, in the upper half counted over the whole log, in the lower half
 * unpredictable, so that a value cannot contain what looks like a record around it.
 *
 * Versions  YB_SSD_VERSION is in the superblock. This is the first; a later one reads this one.
 *
 * Threads   Pure functions. Memory: views borrow the bytes that they were decoded from.
 */
#ifndef YB_TIER_SSD_FORMAT_H
#define YB_TIER_SSD_FORMAT_H

#include "tier/ssd/device.h"
#include "tier/tier.h"

#define YB_SSD_VERSION         1u
#define YB_SSD_UNIT_BYTES      64u
#define YB_SSD_RECORD_MIN      256u /* So that a record has a kill bit of its own. */
#define YB_SSD_SUPER_BYTES     (512u * 1024u)
#define YB_SSD_SEGMENTS_START  (1024u * 1024u)
#define YB_SSD_SECTOR_BYTES    512u
#define YB_SSD_SECTOR_BITS     (8u * (YB_SSD_SECTOR_BYTES - 8u))
#define YB_SSD_FOOTER_PAGE     (64u * 1024u)
#define YB_SSD_TENANTS_MAX     4096u
#define YB_SSD_TENANT_BYTES    72u /* With its NUL. */
#define YB_SSD_KEY_BYTES_MAX   1024u
#define YB_SSD_CHUNKS_MAX      1024u
#define YB_SSD_HEAD_BYTES_MAX  5376u
#define YB_SSD_ENTRY_BYTES_MAX 1216u

struct yb_ssd_tenant_row {
    char name[YB_SSD_TENANT_BYTES];
    uint64_t flush;
};

struct yb_ssd_super {
    uint32_t magic;
    uint32_t crc;
    uint32_t version;
    uint32_t tenant_count;
    uint64_t sequence; /* The copy with the higher one counts. */
    uint8_t log[16];   /* Random, of its making. */
    uint8_t node[16];
    uint64_t segment_bytes;
    uint8_t zero[448];
};

struct yb_ssd_header {
    uint32_t magic;
    uint32_t crc;
    uint64_t life;
    uint64_t number; /* Of the segment. */
    uint32_t state;  /* YB_SSD_HEADER_ */
    uint32_t zero32;
    uint8_t log[16];
    uint8_t zero[464];
};
#define YB_SSD_HEADER_OPEN 1u
#define YB_SSD_HEADER_FREE 2u

struct yb_ssd_record {
    uint32_t magic;
    uint32_t crc; /* Of the head as a whole, key and sums included. */
    uint64_t life;
    uint64_t grant;
    uint64_t flush;
    uint8_t hash[16];
    uint64_t size;
    uint64_t group;
    uint64_t parent;
    uint64_t expires_unix_ms;
    uint32_t unit; /* Where it begins in its segment, in units. */
    uint16_t key_bytes;
    uint16_t flags;
    uint8_t tenant_bytes; /* With the NUL. */
    uint8_t mode;
    uint8_t replicas;
    uint8_t zero;
    uint32_t zero32;
};

struct yb_ssd_footer_page {
    uint32_t magic;
    uint32_t crc; /* Of the whole page. */
    uint64_t life;
    uint32_t number;
    uint32_t count;
    uint32_t used; /* Bytes, this head included. */
    uint32_t zero;
};

struct yb_ssd_trailer {
    uint32_t magic;
    uint32_t crc;
    uint64_t life;
    uint64_t footer_offset; /* In the segment. */
    uint64_t records;
    uint32_t pages;
    uint32_t zero32;
    uint8_t zero[472];
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the structures are the bytes");
_Static_assert(sizeof(struct yb_ssd_tenant_row) == 80, "on the medium");
_Static_assert(sizeof(struct yb_ssd_super) == 512, "one sector");
_Static_assert(sizeof(struct yb_ssd_header) == 512, "one sector");
_Static_assert(sizeof(struct yb_ssd_record) == 96, "on the medium");
_Static_assert(sizeof(struct yb_ssd_footer_page) == 32, "on the medium");
_Static_assert(sizeof(struct yb_ssd_trailer) == 512, "one sector");

/* What a head says. Its strings and sums lie in the bytes that it was decoded from. */
struct yb_ssd_view {
    struct yb_tier_record record;
    const uint8_t *sums; /* 4 bytes each; NULL in a footer. */
    uint32_t sum_count;
    uint32_t unit;
    uint32_t head_units;  /* The value begins after so many units, ... */
    uint32_t total_units; /* ... the next record after so many, or later. */
};

/* Return the units of a record's head and of the whole. */
uint32_t yb_ssd_head_units(const struct yb_tier_record *record);
uint32_t yb_ssd_total_units(const struct yb_tier_record *record);
uint32_t yb_ssd_chunk_count(uint64_t size);

/* Write a record's head, filled up to whole units; `bytes_out` has YB_SSD_HEAD_BYTES_MAX. */
void yb_ssd_record_encode(const struct yb_tier_record *record, uint64_t life, uint32_t unit,
                          const uint32_t *sums, uint8_t *bytes_out);

/* Read one. False: that is none, or one of another life. */
YB_CHECKED bool yb_ssd_record_decode(const uint8_t *bytes, size_t length, uint64_t life,
                                     struct yb_ssd_view *view_out);

/* Add a head to a footer page, which begins with init and ends with seal. False: it is full. */
void yb_ssd_page_init(uint8_t *page, uint64_t life, uint32_t number);
YB_CHECKED bool yb_ssd_page_add(uint8_t *page, const struct yb_tier_record *record, uint32_t unit);
YB_CHECKED bool yb_ssd_page_has_room(const uint8_t *page); /* For any head. */
void yb_ssd_page_seal(uint8_t *page);

/* Read a page. False: it is torn, or of another life. */
YB_CHECKED bool yb_ssd_page_check(const uint8_t *page, uint64_t life, uint32_t number);

/* Read its next head; *offset begins with 0. False: there is none. */
YB_CHECKED bool yb_ssd_page_next(const uint8_t *page, uint32_t *offset,
                                 struct yb_ssd_view *view_out);

void yb_ssd_header_encode(struct yb_ssd_header *header);
YB_CHECKED bool yb_ssd_header_check(const struct yb_ssd_header *header, const uint8_t log[16],
                                    uint64_t number);
void yb_ssd_trailer_encode(struct yb_ssd_trailer *trailer);
YB_CHECKED bool yb_ssd_trailer_check(const struct yb_ssd_trailer *trailer, uint64_t life,
                                     uint64_t segment_bytes);

/* A superblock with its rows of tenants after it. check: OK, NOT_FOUND (nothing was ever here),
 * UNSUPPORTED (that is no log), VERSION (another version's) or CORRUPT. */
size_t yb_ssd_super_bytes(uint32_t tenant_count);
void yb_ssd_super_encode(struct yb_ssd_super *super);
YB_CHECKED enum yb_status yb_ssd_super_check(const struct yb_ssd_super *super, size_t length);

/* The kill map of a segment: how long it is, and its bits. */
uint64_t yb_ssd_map_bytes(uint64_t segment_bytes);
uint64_t yb_ssd_data_start(uint64_t segment_bytes);
void yb_ssd_map_set(uint8_t *map, uint64_t life, uint32_t unit);
YB_CHECKED bool yb_ssd_map_get(const uint8_t *map, uint64_t life, uint32_t unit);

/* Return where in the map the block with the unit's bit begins. */
uint64_t yb_ssd_map_block(uint32_t unit);

#endif /* YB_TIER_SSD_FORMAT_H */
