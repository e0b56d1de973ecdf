/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as what comes from an object store: the footer of a pack, the record behind a block, a
 * listing, an answer's text, a name. Each is taken or refused, and nothing beyond the bytes is
 * read. The first byte chooses; where its highest bit is set the checksums are made right, so that
 * the rest is reached.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "tier/object/object_internal.h"
#include "tier/object/s3_xml.h"

#define ENTRIES 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
}

/* Make the checksum of a record right that is as long as it says, if it says so. */
static void
mend_record(uint8_t *bytes, size_t length)
{
    if (length >= YB_OBJECT_RECORD_HEAD) {
        put32(bytes, 0x524f4259u);
        bytes[4] = 1;
        bytes[5] = 0;
        put32(bytes + 92, 0);
        put32(bytes + 92, yb_crc32c(bytes, length));
    }
}

static void
mend_footer(uint8_t *footer, size_t length, uint64_t images)
{
    size_t entries = length - YB_OBJECT_TRAILER_BYTES;
    uint8_t *trailer = footer + entries;

    for (size_t at = 0; at + YB_OBJECT_ENTRY_HEAD <= entries;) {
        uint64_t long_as;

        memcpy(&long_as, footer + at + 8, sizeof(long_as));
        long_as = le64toh(long_as);
        at += YB_OBJECT_ENTRY_HEAD;
        if (long_as > entries - at) {
            break;
        }
        mend_record(footer + at, (size_t)long_as);
        at += (size_t)long_as;
    }
    memset(trailer, 0, YB_OBJECT_TRAILER_BYTES);
    put32(trailer, 0x504f4259u);
    trailer[4] = 1;
    put32(trailer + 12, (uint32_t)entries);
    put32(trailer + 16, (uint32_t)images);
    put32(trailer + 28, yb_crc32c(footer, length - 4));
}

static bool
on_found(void *owner, const struct yb_tier_record *record)
{
    (void)owner;
    YB_ASSERT(strlen(record->tenant) <= YB_OBJECT_TENANT_MAX);
    return record->grant % 2 == 0;
}

static const struct yb_tier_events events = {.found = on_found};

/* A tier with no more than what a footer needs. */
static void
try_footer(const uint8_t *data, size_t size, bool right)
{
    const struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};
    struct object_tier *object = calloc(1, sizeof(*object));
    struct yb_object_name name = {.kind = YB_OBJECT_IS_PACK,
                                  .tenant = "t",
                                  .flush = 1,
                                  .writer = 1,
                                  .number = 1,
                                  .footer_bytes = (uint32_t)size};
    const uint64_t images = 1 << 20;
    uint8_t *footer;

    YB_ASSERT(object != NULL && yb_loop_create(&options, &object->loop) == YB_OK);
    object->head.events = &events;
    object->random = 1;
    YB_ASSERT(yb_object_index_create(1024, 16, &object->index) == YB_OK);
    YB_ASSERT(yb_object_pack_init(object) == YB_OK);
    footer = yb_object_pack_footer_room(object, name.footer_bytes);
    if (footer != NULL) {
        memcpy(footer, data, size);
        if (right) {
            mend_footer(footer, size, images);
        }
        if (yb_object_pack_found(object, &name, images + size, footer) == YB_OK) {
            YB_ASSERT(object->packs[0].used && object->info.blocks == object->packs[0].blocks);
        }
    }
    yb_object_pack_fini(object);
    yb_object_index_destroy(&object->index);
    yb_loop_destroy(&object->loop);
    free(object);
}

static void
try_record(uint8_t *bytes, size_t length, bool right)
{
    struct yb_tier_record record;
    const uint8_t *sums;
    char tenant[72];

    if (right) {
        mend_record(bytes, length);
    }
    if (yb_object_record_decode(bytes, length, &record, tenant, &sums) == YB_OK) {
        uint32_t count = yb_object_sum_count(record.size);

        YB_ASSERT(record.key >= bytes && record.key + record.key_bytes <= bytes + length);
        YB_ASSERT(sums >= bytes && sums + 4ull * count <= bytes + length);
    }
}

static void
try_text(const char *text, size_t length)
{
    struct yb_object_entry *entries = calloc(ENTRIES, sizeof(*entries));
    struct yb_object_page page = {.entries = entries, .entries_max = ENTRIES};
    char value[64];

    YB_ASSERT(entries != NULL);
    if (yb_object_xml_list(text, length, "p/", &page)) {
        YB_ASSERT(page.count <= ENTRIES && strlen(page.token) < sizeof(page.token));
        for (uint32_t i = 0; i < page.count; i++) {
            YB_ASSERT(strlen(entries[i].name) < YB_OBJECT_NAME_MAX);
        }
    }
    if (yb_object_xml_text(text, length, "Code", value, sizeof(value))) {
        YB_ASSERT(strlen(value) < sizeof(value));
    }
    free(entries);
}

static void
try_name(const char *text)
{
    struct yb_object_name name, read;
    char again[YB_OBJECT_NAME_MAX], third[YB_OBJECT_NAME_MAX];

    if (yb_object_name_parse(text, &name)) {
        YB_ASSERT(strlen(name.tenant) <= YB_OBJECT_TENANT_MAX);
        YB_ASSERT(yb_object_name_format(&name, again) == YB_OK);
        YB_ASSERT(yb_object_name_parse(again, &read));
        YB_ASSERT(yb_object_name_format(&read, third) == YB_OK && strcmp(again, third) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;
    bool right;

    if (size < 1) {
        return 0;
    }
    right = (data[0] & 0x80u) != 0;
    copy = malloc(size);
    YB_ASSERT(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    copy[size - 1] = 0;
    switch (data[0] % 4) {
    case 0: try_footer(copy, size - 1, right); break;
    case 1: try_record(copy, size - 1, right); break;
    case 2: try_text((const char *)copy, size - 1); break;
    default: try_name((const char *)copy); break;
    }
    free(copy);
    return 0;
}
