/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the bytes and names of objects stay what they are (tier/object/record.h, name.h).
 * Method: what a tier wrote to a folder is compared with golden bytes, which were made from the
 * description in record.h by a program of its own, with a CRC32C of its own.
 */
#include "object_ground.h"

#include <dirent.h>

#include "golden.h"
#include "tier/object/record.h"

#define GRANT 5u
#define BLOCK "5a000000000000000000000000000007,0000000000000005-14-12001"

static const char golden_block[] =
    "0708090a0b0c0d0e0f101112131415161718191a59424f52010060005a0000000000000000000000"
    "00000007050000000000000001000000000000001400000000000000000000000000000015000000"
    "0000000000000000000000000500000006000100010200000100000000000000d5286afd6b657920"
    "3774656e616e74f825106900000000000000000000000000";

static const char golden_pack[] =
    "0102030405060708090a59424f52010060005a000000000000000000000000000001050000000000"
    "000001000000000000000a0000000000000000000000000000000300000000000000000000000000"
    "00000500000006000100010200000100000000000000143cae846b6579203174656e616e7469db19"
    "b20000000000000002030459424f52010060005a0000000000000000000000000000020500000000"
    "00000001000000000000000300000000000000000000000000000006000000000000000000000000"
    "0000000500000006000100010200000100000000000000a3c7562f6b6579203274656e616e74f1ce"
    "76dc00000000000000000000000000000000000000000000760000000000000059424f5201006000"
    "5a000000000000000000000000000001050000000000000001000000000000000a00000000000000"
    "00000000000000000300000000000000000000000000000005000000060001000102000001000000"
    "00000000143cae846b6579203174656e616e7469db19b20000000000000080000000000000007d00"
    "00000000000059424f52010060005a00000000000000000000000000000205000000000000000100"
    "00000000000003000000000000000000000000000000060000000000000000000000000000000500"
    "000006000100010200000100000000000000a3c7562f6b6579203274656e616e74f1ce76dc000000"
    "000000000000000000000059424f5001000000020000001301000000010000000000000000000001"
    "798623";

/* A block whose bytes count from its number on. */
static void
begin(struct object_ground *ground, struct object_block *block, uint64_t number, uint64_t size)
{
    block_init(block, number, GRANT, size);
    for (uint64_t i = 0; i < size; i++) {
        block->bytes[i] = (uint8_t)(number + i);
    }
    block_submit(ground, block);
}

static void
end(struct object_ground *ground, struct object_block *block)
{
    ground_turn(ground, &block->ended);
    assert_int_equal(block->status, YB_OK);
    block_fini(block);
}

/* The one object of the tenant: its name is the one that is wanted, as far as that goes. */
static void
compare(const struct object_ground *ground, const char *name, const char *golden)
{
    static uint8_t bytes[4096];
    char path[512] = "";
    char folder[128];
    struct dirent *entry;
    DIR *listing;
    FILE *file;
    size_t length;

    (void)snprintf(folder, sizeof(folder), "%s/tenant/0000000000000001", ground->folder);
    listing = opendir(folder);
    assert_non_null(listing);
    while ((entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] != '.') {
            assert_string_equal(path, "");
            assert_int_equal(strncmp(entry->d_name, name, strlen(name)), 0);
            (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        }
    }
    (void)closedir(listing);
    file = fopen(path, "rb");
    assert_non_null(file);
    length = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    assert_int_equal(length, strlen(golden) / 2);
    golden_compare(bytes, length, golden);
}

static void
test_object_format__a_block_has_its_name_and_bytes(void **state)
{
    struct object_ground ground;
    struct object_block block;

    ground_init(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    begin(&ground, &block, 7, 20);
    end(&ground, &block);
    compare(&ground, BLOCK, golden_block);
    ground_fini(&ground);
    (void)state;
}

static void
test_object_format__a_pack_has_its_bytes(void **state)
{
    struct object_ground ground;
    struct object_block blocks[2];

    ground_init(&ground);
    ground.options.layout = YB_OBJECT_LAYOUT_PACKED;
    ground_start(&ground);
    ground_recover(&ground);
    begin(&ground, &blocks[0], 1, 10);
    begin(&ground, &blocks[1], 2, 3);
    end(&ground, &blocks[0]);
    end(&ground, &blocks[1]);
    compare(&ground, "pack,", golden_pack);
    ground_fini(&ground);
    (void)state;
}

static void
test_object_format__a_footer_of_another_version_is_told_from_damage(void **state)
{
    uint8_t footer[YB_OBJECT_TRAILER_BYTES];

    yb_object_footer_end(footer, 0, 0, 0);
    assert_int_equal(yb_object_footer_check(footer, sizeof(footer), sizeof(footer)), YB_OK);
    footer[8] ^= 1;
    assert_int_equal(yb_object_footer_check(footer, sizeof(footer), sizeof(footer)), YB_CORRUPT);
    footer[4]++; /* Its checksum may be another kind's, too. */
    assert_int_equal(yb_object_footer_check(footer, sizeof(footer), sizeof(footer)), YB_VERSION);
    (void)state;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object_format__a_block_has_its_name_and_bytes),
        cmocka_unit_test(test_object_format__a_pack_has_its_bytes),
        cmocka_unit_test(test_object_format__a_footer_of_another_version_is_told_from_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
