/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as what lies on an SSD log's medium: a superblock, a header, a trailer, a record, a
 * page of a footer. Each is taken or refused, and nothing beyond the bytes is read. The first byte
 * chooses; where its highest bit is set the checksums are made right, so that the rest is reached.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/ssd/format.h"

#define LIFE          0x0000000100000002ull
#define SEGMENT_BYTES (256u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Make the magic, the checksum and, where there is one, the life right. */
static void
mend(uint8_t *bytes, size_t length, const char magic[4], bool has_life)
{
    const uint64_t life = LIFE;
    uint32_t crc;

    if (length < 16) {
        return;
    }
    memcpy(bytes, magic, 4);
    if (has_life) {
        memcpy(bytes + 8, &life, sizeof life);
    }
    crc = yb_crc32c(bytes + 8, length - 8);
    memcpy(bytes + 4, &crc, sizeof crc);
}

static void
check_view(const struct yb_ssd_view *view)
{
    YB_ASSERT(view->record.grant != 0 && view->record.key_bytes >= 1);
    YB_ASSERT(view->record.key_bytes <= YB_SSD_KEY_BYTES_MAX);
    YB_ASSERT(strlen(view->record.tenant) < YB_SSD_TENANT_BYTES);
    YB_ASSERT(view->head_units * YB_SSD_UNIT_BYTES <= YB_SSD_HEAD_BYTES_MAX);
    YB_ASSERT(view->total_units >= view->head_units);
}

/* A record's head ends where its sums end: the length that the checksum covers is in it. */
static void
try_record(uint8_t *bytes, size_t length, bool right)
{
    struct yb_ssd_view view;
    struct yb_ssd_record head;
    uint8_t again[YB_SSD_HEAD_BYTES_MAX];

    if (right && length >= sizeof head) {
        size_t end;

        memcpy(&head, bytes, sizeof head);
        end = (sizeof head + head.tenant_bytes + head.key_bytes + 3) / 4 * 4 +
              4 * (size_t)yb_ssd_chunk_count(head.size % (64u << 20));
        mend(bytes, end < length ? end : length, "YBSR", true);
    }
    if (yb_ssd_record_decode(bytes, length, LIFE, &view)) {
        uint32_t sums[YB_SSD_CHUNKS_MAX];

        check_view(&view);
        memcpy(sums, view.sums, 4 * (size_t)view.sum_count);
        yb_ssd_record_encode(&view.record, LIFE, view.unit, sums, again);
        YB_ASSERT(yb_ssd_record_decode(again, sizeof again, LIFE, &view));
    }
}

static void
try_page(const uint8_t *data, size_t size, bool right)
{
    uint8_t *page = calloc(1, YB_SSD_FOOTER_PAGE);
    struct yb_ssd_view view;
    uint32_t offset = 0;

    YB_ASSERT(page != NULL);
    memcpy(page, data, size < YB_SSD_FOOTER_PAGE ? size : YB_SSD_FOOTER_PAGE);
    if (right) {
        memset(page + 16, 0, 4);
        mend(page, YB_SSD_FOOTER_PAGE, "YBSP", true);
    }
    if (yb_ssd_page_check(page, LIFE, 0)) {
        while (yb_ssd_page_next(page, &offset, &view)) {
            check_view(&view);
        }
    }
    free(page);
}

static void
try_sectors(const uint8_t *data, size_t size, bool right)
{
    static const uint8_t log[16];
    struct yb_ssd_header header = {.magic = 0};
    struct yb_ssd_trailer trailer = {.magic = 0};

    memcpy(&header, data, size < sizeof header ? size : sizeof header);
    memcpy(&trailer, data, size < sizeof trailer ? size : sizeof trailer);
    if (right) {
        memset(header.log, 0, sizeof header.log);
        header.number = 3;
        yb_ssd_header_encode(&header);
        trailer.life = LIFE;
        yb_ssd_trailer_encode(&trailer);
    }
    if (yb_ssd_header_check(&header, log, 3)) {
        YB_ASSERT(header.state == YB_SSD_HEADER_OPEN || header.state == YB_SSD_HEADER_FREE);
    }
    if (yb_ssd_trailer_check(&trailer, LIFE, SEGMENT_BYTES)) {
        YB_ASSERT(trailer.footer_offset + (uint64_t)trailer.pages * YB_SSD_FOOTER_PAGE <
                  SEGMENT_BYTES);
    }
}

static void
try_super(uint8_t *bytes, size_t length, bool right)
{
    struct yb_ssd_super *super = (struct yb_ssd_super *)(void *)bytes;

    if (right && length >= sizeof *super) {
        super->tenant_count %= 4;
        if (yb_ssd_super_bytes(super->tenant_count) <= length) {
            yb_ssd_super_encode(super);
        }
    }
    if (yb_ssd_super_check(super, length) == YB_OK) {
        YB_ASSERT(super->tenant_count <= YB_SSD_TENANTS_MAX);
        YB_ASSERT(yb_ssd_super_bytes(super->tenant_count) <= length);
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
    copy = malloc(size + 1);
    YB_ASSERT(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    switch (data[0] % 4) {
    case 0: try_record(copy, size - 1, right); break;
    case 1: try_page(copy, size - 1, right); break;
    case 2: try_sectors(copy, size - 1, right); break;
    default: try_super(copy, size - 1, right); break;
    }
    free(copy);
    return 0;
}
