/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/record.h"

#include <endian.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"

#define RECORD_MAGIC   0x524f4259u /* "YBOR" */
#define RECORD_VERSION 1u
#define TENANT_MAX     64u
#define KEY_MAX        1024u
#define SUM_AT         92u

#define TRAILER_MAGIC   0x504f4259u /* "YBOP" */
#define TRAILER_VERSION 1u
#define TRAILER_SUM_AT  28u

static void
put16(uint8_t *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof(value));
}

static void
put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
}

static void
put64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

static uint16_t
get16(const uint8_t *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof(value));
    return le16toh(value);
}

static uint32_t
get32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static uint64_t
get64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

/* The sum of a record whose own field counts as 0. */
static uint32_t
record_sum(const uint8_t *record, uint64_t length)
{
    static const uint8_t none[4];
    uint32_t sum = yb_crc32c(record, SUM_AT);

    sum = yb_crc32c_update(sum, none, sizeof(none));
    return yb_crc32c_update(sum, record + SUM_AT + 4, length - SUM_AT - 4);
}

uint32_t
yb_object_sum_count(uint64_t size)
{
    YB_ASSERT(size <= YB_OBJECT_BLOCK_MAX);
    return (uint32_t)((size + YB_TIER_CHUNK_BYTES - 1) / YB_TIER_CHUNK_BYTES);
}

uint64_t
yb_object_record_bytes(uint64_t size, uint32_t key_bytes, size_t tenant_bytes)
{
    uint64_t bare =
        YB_OBJECT_RECORD_HEAD + key_bytes + tenant_bytes + 4ull * yb_object_sum_count(size);
    uint64_t over = (size + bare) % YB_OBJECT_ALIGN;

    return bare + (over == 0 ? 0 : YB_OBJECT_ALIGN - over);
}

uint32_t
yb_object_record_key_bytes(uint64_t size, size_t tenant_bytes, uint64_t object_bytes)
{
    uint64_t bare = size + YB_OBJECT_RECORD_HEAD + tenant_bytes + 4ull * yb_object_sum_count(size);
    uint64_t key_bytes = object_bytes > bare ? object_bytes - bare : 0;

    key_bytes = key_bytes > KEY_MAX && key_bytes < KEY_MAX + YB_OBJECT_ALIGN ? KEY_MAX : key_bytes;
    return key_bytes > KEY_MAX || object_bytes % YB_OBJECT_ALIGN != 0 ? 0 : (uint32_t)key_bytes;
}

void
yb_object_record_encode(const struct yb_tier_record *record, const uint32_t *sums, uint8_t *out)
{
    size_t tenant_bytes = strlen(record->tenant);
    uint32_t count = yb_object_sum_count(record->size);
    uint64_t length = yb_object_record_bytes(record->size, record->key_bytes, tenant_bytes);
    uint8_t *at = out + YB_OBJECT_RECORD_HEAD;

    YB_ASSERT(record->key_bytes >= 1 && record->key_bytes <= KEY_MAX);
    YB_ASSERT(tenant_bytes <= TENANT_MAX);
    memset(out, 0, length);
    put32(out, RECORD_MAGIC);
    put16(out + 4, RECORD_VERSION);
    put16(out + 6, YB_OBJECT_RECORD_HEAD);
    memcpy(out + 8, record->hash.bytes, sizeof(record->hash.bytes));
    put64(out + 24, record->grant);
    put64(out + 32, record->flush);
    put64(out + 40, record->size);
    put64(out + 48, record->group);
    put64(out + 56, record->parent);
    put64(out + 64, record->expires_unix_ms);
    put32(out + 72, record->key_bytes);
    put16(out + 76, (uint16_t)tenant_bytes);
    put16(out + 78, record->flags);
    out[80] = record->mode;
    out[81] = record->replicas;
    put32(out + 84, count);
    memcpy(at, record->key, record->key_bytes);
    at += record->key_bytes;
    memcpy(at, record->tenant, tenant_bytes);
    at += tenant_bytes;
    for (uint32_t i = 0; i < count; i++) {
        put32(at + 4ull * i, sums[i]);
    }
    put32(out + SUM_AT, record_sum(out, length));
}

enum yb_status
yb_object_record_decode(const uint8_t *in, uint64_t length, struct yb_tier_record *record_out,
                        char tenant_out[72], const uint8_t **sums_at_out)
{
    struct yb_tier_record record = {0};
    uint16_t tenant_bytes;

    if (length < YB_OBJECT_RECORD_HEAD || get32(in) != RECORD_MAGIC) {
        return YB_CORRUPT;
    }
    if (get16(in + 4) != RECORD_VERSION) {
        return YB_VERSION;
    }
    record.size = get64(in + 40);
    record.key_bytes = get32(in + 72);
    tenant_bytes = get16(in + 76);
    if (get16(in + 6) != YB_OBJECT_RECORD_HEAD || record.size > YB_OBJECT_BLOCK_MAX ||
        record.key_bytes == 0 || record.key_bytes > KEY_MAX || tenant_bytes > TENANT_MAX ||
        get32(in + 84) != yb_object_sum_count(record.size) ||
        length != yb_object_record_bytes(record.size, record.key_bytes, tenant_bytes) ||
        get32(in + SUM_AT) != record_sum(in, length)) {
        return YB_CORRUPT;
    }
    memcpy(record.hash.bytes, in + 8, sizeof(record.hash.bytes));
    record.grant = get64(in + 24);
    record.flush = get64(in + 32);
    record.group = get64(in + 48);
    record.parent = get64(in + 56);
    record.expires_unix_ms = get64(in + 64);
    record.flags = get16(in + 78);
    record.mode = in[80];
    record.replicas = in[81];
    record.key = in + YB_OBJECT_RECORD_HEAD;
    memcpy(tenant_out, record.key + record.key_bytes, tenant_bytes);
    tenant_out[tenant_bytes] = '\0';
    if (record.grant == 0 || strlen(tenant_out) != tenant_bytes) {
        return YB_CORRUPT;
    }
    record.tenant = tenant_out;
    *sums_at_out = record.key + record.key_bytes + tenant_bytes;
    *record_out = record;
    return YB_OK;
}

uint32_t
yb_object_record_sum(const uint8_t *sums_at, uint32_t index)
{
    return get32(sums_at + 4ull * index);
}

/* ---- footers --------------------------------------------------------------------------------- */

uint64_t
yb_object_footer_add(uint8_t *at, uint64_t offset, const uint8_t *record, uint64_t length)
{
    put64(at, offset);
    put64(at + 8, length);
    memcpy(at + YB_OBJECT_ENTRY_HEAD, record, length);
    return YB_OBJECT_ENTRY_HEAD + length;
}

void
yb_object_footer_end(uint8_t *footer, uint64_t entry_bytes, uint32_t count, uint64_t image_bytes)
{
    uint8_t *trailer = footer + entry_bytes;

    memset(trailer, 0, YB_OBJECT_TRAILER_BYTES);
    put32(trailer, TRAILER_MAGIC);
    put16(trailer + 4, TRAILER_VERSION);
    put32(trailer + 8, count);
    put32(trailer + 12, (uint32_t)entry_bytes);
    put64(trailer + 16, image_bytes);
    put32(trailer + TRAILER_SUM_AT, yb_crc32c(footer, entry_bytes + TRAILER_SUM_AT));
}

enum yb_status
yb_object_footer_check(const uint8_t *footer, uint32_t footer_bytes, uint64_t object_bytes)
{
    uint64_t entry_bytes = (uint64_t)footer_bytes - YB_OBJECT_TRAILER_BYTES;
    const uint8_t *trailer = footer + entry_bytes;

    if (footer_bytes < YB_OBJECT_TRAILER_BYTES || footer_bytes > object_bytes ||
        get32(trailer) != TRAILER_MAGIC) {
        return YB_CORRUPT;
    }
    if (get16(trailer + 4) != TRAILER_VERSION) {
        return YB_VERSION;
    }
    return get32(trailer + 12) == entry_bytes &&
                   get64(trailer + 16) == object_bytes - footer_bytes &&
                   get32(trailer + TRAILER_SUM_AT) ==
                       yb_crc32c(footer, entry_bytes + TRAILER_SUM_AT)
               ? YB_OK
               : YB_CORRUPT;
}

bool
yb_object_footer_next(const uint8_t *footer, uint32_t footer_bytes, uint64_t image_bytes,
                      uint32_t *at, struct yb_object_footer_entry *entry_out)
{
    uint32_t left = footer_bytes - YB_OBJECT_TRAILER_BYTES - *at;
    const uint8_t *head = footer + *at, *sums;

    if (left < YB_OBJECT_ENTRY_HEAD || get64(head + 8) > left - YB_OBJECT_ENTRY_HEAD) {
        return false;
    }
    entry_out->offset = get64(head);
    entry_out->length = get64(head + 8);
    entry_out->bytes = head + YB_OBJECT_ENTRY_HEAD;
    entry_out->sound =
        yb_object_record_decode(entry_out->bytes, entry_out->length, &entry_out->record,
                                entry_out->tenant, &sums) == YB_OK &&
        entry_out->offset % YB_OBJECT_ALIGN == 0 && entry_out->offset <= image_bytes &&
        entry_out->record.size + entry_out->length <= image_bytes - entry_out->offset;
    *at += YB_OBJECT_ENTRY_HEAD + (uint32_t)entry_out->length;
    return true;
}
