/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/ssd/format.h"

#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"

#define MAGIC_SUPER   0x4c534259u /* "YBSL" */
#define MAGIC_HEADER  0x47534259u /* "YBSG" */
#define MAGIC_RECORD  0x52534259u /* "YBSR" */
#define MAGIC_PAGE    0x50534259u /* "YBSP" */
#define MAGIC_TRAILER 0x54534259u /* "YBST" */

#define CRC_END   8u /* Every structure begins with its magic and its checksum. */
#define GRAIN     (YB_SSD_RECORD_MIN / YB_SSD_UNIT_BYTES)
#define MAP_START YB_SSD_BLOCK_BYTES

static uint64_t
round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

static uint32_t
crc_of(const void *bytes, size_t length)
{
    return yb_crc32c((const uint8_t *)bytes + CRC_END, length - CRC_END);
}

/* ---- records ---------------------------------------------------------------------------- */

uint32_t
yb_ssd_chunk_count(uint64_t size)
{
    return (uint32_t)((size + YB_TIER_CHUNK_BYTES - 1) / YB_TIER_CHUNK_BYTES);
}

static uint32_t
tenant_bytes(const struct yb_tier_record *record)
{
    return (uint32_t)strlen(record->tenant) + 1;
}

/* Where the sums begin, from the head's beginning. */
static uint32_t
sums_offset(uint32_t tenant_length, uint32_t key_length)
{
    return (uint32_t)round_up(sizeof(struct yb_ssd_record) + tenant_length + key_length, 4);
}

uint32_t
yb_ssd_head_units(const struct yb_tier_record *record)
{
    uint32_t bytes =
        sums_offset(tenant_bytes(record), record->key_bytes) + 4 * yb_ssd_chunk_count(record->size);

    YB_ASSERT(bytes <= YB_SSD_HEAD_BYTES_MAX);
    return (uint32_t)round_up(bytes, YB_SSD_UNIT_BYTES) / YB_SSD_UNIT_BYTES;
}

uint32_t
yb_ssd_total_units(const struct yb_tier_record *record)
{
    uint32_t units = yb_ssd_head_units(record) +
                     (uint32_t)(round_up(record->size, YB_SSD_UNIT_BYTES) / YB_SSD_UNIT_BYTES);

    return units > GRAIN ? units : GRAIN;
}

static void
fill(struct yb_ssd_record *head, const struct yb_tier_record *record, uint64_t life, uint32_t unit)
{
    *head = (struct yb_ssd_record){
        .magic = MAGIC_RECORD,
        .life = life,
        .grant = record->grant,
        .flush = record->flush,
        .size = record->size,
        .group = record->group,
        .parent = record->parent,
        .expires_unix_ms = record->expires_unix_ms,
        .unit = unit,
        .key_bytes = (uint16_t)record->key_bytes,
        .flags = record->flags,
        .tenant_bytes = (uint8_t)tenant_bytes(record),
        .mode = record->mode,
        .replicas = record->replicas,
    };
    memcpy(head->hash, record->hash.bytes, sizeof head->hash);
}

void
yb_ssd_record_encode(const struct yb_tier_record *record, uint64_t life, uint32_t unit,
                     const uint32_t *sums, uint8_t *bytes_out)
{
    uint32_t tenant_length = tenant_bytes(record);
    uint32_t at = sums_offset(tenant_length, record->key_bytes);
    uint32_t sum_bytes = 4 * yb_ssd_chunk_count(record->size);
    struct yb_ssd_record head;

    YB_ASSERT(tenant_length <= YB_SSD_TENANT_BYTES && record->key_bytes <= YB_SSD_KEY_BYTES_MAX);
    memset(bytes_out, 0, (size_t)yb_ssd_head_units(record) * YB_SSD_UNIT_BYTES);
    fill(&head, record, life, unit);
    memcpy(bytes_out, &head, sizeof head);
    memcpy(bytes_out + sizeof head, record->tenant, tenant_length);
    memcpy(bytes_out + sizeof head + tenant_length, record->key, record->key_bytes);
    if (sum_bytes > 0) {
        memcpy(bytes_out + at, sums, sum_bytes);
    }
    head.crc = crc_of(bytes_out, at + sum_bytes);
    memcpy(bytes_out + offsetof(struct yb_ssd_record, crc), &head.crc, sizeof head.crc);
}

/* Whether the numbers of a head are possible, and the tenant is a string. */
static bool
is_sound(const struct yb_ssd_record *head, const uint8_t *strings, size_t length)
{
    return head->magic == MAGIC_RECORD && head->tenant_bytes >= 1 &&
           head->tenant_bytes <= YB_SSD_TENANT_BYTES && head->key_bytes >= 1 &&
           head->key_bytes <= YB_SSD_KEY_BYTES_MAX && head->grant != 0 &&
           head->size <= (uint64_t)YB_SSD_CHUNKS_MAX * YB_TIER_CHUNK_BYTES &&
           sizeof *head + head->tenant_bytes + head->key_bytes <= length &&
           memchr(strings, '\0', head->tenant_bytes) == strings + head->tenant_bytes - 1;
}

static void
view_of(const struct yb_ssd_record *head, const uint8_t *strings, struct yb_ssd_view *view_out)
{
    *view_out = (struct yb_ssd_view){
        .record =
            {
                .grant = head->grant,
                .flush = head->flush,
                .size = head->size,
                .group = head->group,
                .parent = head->parent,
                .expires_unix_ms = head->expires_unix_ms,
                .tenant = (const char *)strings,
                .key = strings + head->tenant_bytes,
                .key_bytes = head->key_bytes,
                .flags = head->flags,
                .mode = head->mode,
                .replicas = head->replicas,
            },
        .sum_count = yb_ssd_chunk_count(head->size),
        .unit = head->unit,
    };
    memcpy(view_out->record.hash.bytes, head->hash, sizeof head->hash);
    view_out->head_units = yb_ssd_head_units(&view_out->record);
    view_out->total_units = yb_ssd_total_units(&view_out->record);
}

bool
yb_ssd_record_decode(const uint8_t *bytes, size_t length, uint64_t life,
                     struct yb_ssd_view *view_out)
{
    struct yb_ssd_record head;
    uint32_t at;
    uint32_t sum_bytes;

    if (length < sizeof head) {
        return false;
    }
    memcpy(&head, bytes, sizeof head);
    if (!is_sound(&head, bytes + sizeof head, length) || head.life != life) {
        return false;
    }
    at = sums_offset(head.tenant_bytes, head.key_bytes);
    sum_bytes = 4 * yb_ssd_chunk_count(head.size);
    if (at + sum_bytes > length || head.crc != crc_of(bytes, at + sum_bytes)) {
        return false;
    }
    view_of(&head, bytes + sizeof head, view_out);
    view_out->sums = bytes + at;
    return true;
}

/* ---- footers ---------------------------------------------------------------------------- */

void
yb_ssd_page_init(uint8_t *page, uint64_t life, uint32_t number)
{
    const struct yb_ssd_footer_page head = {
        .magic = MAGIC_PAGE, .life = life, .number = number, .used = sizeof head};

    memset(page, 0, YB_SSD_FOOTER_PAGE);
    memcpy(page, &head, sizeof head);
}

bool
yb_ssd_page_add(uint8_t *page, const struct yb_tier_record *record, uint32_t unit)
{
    uint32_t tenant_length = tenant_bytes(record);
    uint32_t bytes =
        (uint32_t)round_up(sizeof(struct yb_ssd_record) + tenant_length + record->key_bytes, 8);
    struct yb_ssd_footer_page head;
    struct yb_ssd_record entry;
    uint8_t *to;

    memcpy(&head, page, sizeof head);
    YB_ASSERT(head.magic == MAGIC_PAGE);
    if (head.used + bytes > YB_SSD_FOOTER_PAGE) {
        return false;
    }
    to = page + head.used;
    fill(&entry, record, head.life, unit);
    memcpy(to, &entry, sizeof entry);
    memcpy(to + sizeof entry, record->tenant, tenant_length);
    memcpy(to + sizeof entry + tenant_length, record->key, record->key_bytes);
    head.used += bytes;
    head.count++;
    memcpy(page, &head, sizeof head);
    return true;
}

bool
yb_ssd_page_has_room(const uint8_t *page)
{
    struct yb_ssd_footer_page head;

    memcpy(&head, page, sizeof head);
    return head.used + YB_SSD_ENTRY_BYTES_MAX <= YB_SSD_FOOTER_PAGE;
}

void
yb_ssd_page_seal(uint8_t *page)
{
    uint32_t crc = crc_of(page, YB_SSD_FOOTER_PAGE);

    memcpy(page + offsetof(struct yb_ssd_footer_page, crc), &crc, sizeof crc);
}

bool
yb_ssd_page_check(const uint8_t *page, uint64_t life, uint32_t number)
{
    struct yb_ssd_footer_page head;

    memcpy(&head, page, sizeof head);
    return head.magic == MAGIC_PAGE && head.life == life && head.number == number &&
           head.used >= sizeof head && head.used <= YB_SSD_FOOTER_PAGE &&
           head.crc == crc_of(page, YB_SSD_FOOTER_PAGE);
}

bool
yb_ssd_page_next(const uint8_t *page, uint32_t *offset, struct yb_ssd_view *view_out)
{
    struct yb_ssd_footer_page head;
    struct yb_ssd_record entry;
    uint32_t at = *offset == 0 ? (uint32_t)sizeof head : *offset;

    memcpy(&head, page, sizeof head);
    if (at + sizeof entry > head.used || head.used > YB_SSD_FOOTER_PAGE) {
        return false;
    }
    memcpy(&entry, page + at, sizeof entry);
    if (!is_sound(&entry, page + at + sizeof entry, head.used - at)) {
        return false;
    }
    view_of(&entry, page + at + sizeof entry, view_out);
    *offset = (uint32_t)round_up(at + sizeof entry + entry.tenant_bytes + entry.key_bytes, 8);
    return true;
}

/* ---- one sector each -------------------------------------------------------------------- */

void
yb_ssd_header_encode(struct yb_ssd_header *header)
{
    header->magic = MAGIC_HEADER;
    header->crc = crc_of(header, sizeof *header);
}

bool
yb_ssd_header_check(const struct yb_ssd_header *header, const uint8_t log[16], uint64_t number)
{
    return header->magic == MAGIC_HEADER && header->number == number &&
           memcmp(header->log, log, 16) == 0 && header->crc == crc_of(header, sizeof *header) &&
           (header->state == YB_SSD_HEADER_OPEN || header->state == YB_SSD_HEADER_FREE);
}

void
yb_ssd_trailer_encode(struct yb_ssd_trailer *trailer)
{
    trailer->magic = MAGIC_TRAILER;
    trailer->crc = crc_of(trailer, sizeof *trailer);
}

bool
yb_ssd_trailer_check(const struct yb_ssd_trailer *trailer, uint64_t life, uint64_t segment_bytes)
{
    uint64_t pages = trailer->pages;

    return trailer->magic == MAGIC_TRAILER && trailer->life == life &&
           trailer->crc == crc_of(trailer, sizeof *trailer) &&
           trailer->footer_offset >= yb_ssd_data_start(segment_bytes) &&
           trailer->footer_offset % YB_SSD_BLOCK_BYTES == 0 &&
           trailer->footer_offset <= segment_bytes &&
           pages * YB_SSD_FOOTER_PAGE + YB_SSD_BLOCK_BYTES <=
               segment_bytes - trailer->footer_offset;
}

size_t
yb_ssd_super_bytes(uint32_t tenant_count)
{
    return (size_t)round_up(sizeof(struct yb_ssd_super) +
                                (uint64_t)tenant_count * sizeof(struct yb_ssd_tenant_row),
                            YB_SSD_BLOCK_BYTES);
}

void
yb_ssd_super_encode(struct yb_ssd_super *super)
{
    super->magic = MAGIC_SUPER;
    super->version = YB_SSD_VERSION;
    super->crc = crc_of(super, yb_ssd_super_bytes(super->tenant_count));
}

enum yb_status
yb_ssd_super_check(const struct yb_ssd_super *super, size_t length)
{
    static const uint8_t nothing[sizeof *super];

    if (length < sizeof *super || memcmp(super, nothing, sizeof *super) == 0) {
        return YB_NOT_FOUND;
    }
    if (super->magic != MAGIC_SUPER) {
        return YB_UNSUPPORTED;
    }
    if (super->version != YB_SSD_VERSION) {
        return YB_VERSION;
    }
    if (super->tenant_count > YB_SSD_TENANTS_MAX ||
        yb_ssd_super_bytes(super->tenant_count) > length ||
        super->crc != crc_of(super, yb_ssd_super_bytes(super->tenant_count)) ||
        super->segment_bytes % YB_SSD_BLOCK_BYTES != 0) {
        return YB_CORRUPT;
    }
    return YB_OK;
}

/* ---- kill maps -------------------------------------------------------------------------- */

uint64_t
yb_ssd_map_bytes(uint64_t segment_bytes)
{
    uint64_t sectors =
        round_up(segment_bytes / YB_SSD_RECORD_MIN, YB_SSD_SECTOR_BITS) / YB_SSD_SECTOR_BITS;

    return round_up(sectors * YB_SSD_SECTOR_BYTES, YB_SSD_BLOCK_BYTES);
}

uint64_t
yb_ssd_data_start(uint64_t segment_bytes)
{
    return MAP_START + yb_ssd_map_bytes(segment_bytes);
}

static size_t
sector_of(uint32_t unit)
{
    return (size_t)(unit / GRAIN / YB_SSD_SECTOR_BITS) * YB_SSD_SECTOR_BYTES;
}

uint64_t
yb_ssd_map_block(uint32_t unit)
{
    return sector_of(unit) / YB_SSD_BLOCK_BYTES * YB_SSD_BLOCK_BYTES;
}

void
yb_ssd_map_set(uint8_t *map, uint64_t life, uint32_t unit)
{
    uint8_t *sector = map + sector_of(unit);
    uint32_t bit = unit / GRAIN % YB_SSD_SECTOR_BITS;

    if (memcmp(sector, &life, sizeof life) != 0) {
        memset(sector, 0, YB_SSD_SECTOR_BYTES);
        memcpy(sector, &life, sizeof life);
    }
    sector[sizeof life + bit / 8] = (uint8_t)(sector[sizeof life + bit / 8] | 1u << bit % 8);
}

bool
yb_ssd_map_get(const uint8_t *map, uint64_t life, uint32_t unit)
{
    const uint8_t *sector = map + sector_of(unit);
    uint32_t bit = unit / GRAIN % YB_SSD_SECTOR_BITS;

    return memcmp(sector, &life, sizeof life) == 0 &&
           ((uint32_t)sector[sizeof life + bit / 8] >> bit % 8 & 1u) != 0;
}
