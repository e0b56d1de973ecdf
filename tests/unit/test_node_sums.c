/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a value that was put with a checksum, or to a node that sums what it holds, is what its
 *   sender summed, and every byte that changes later is found.
 * Method: a node that is nothing but a pool; blocks of lengths around the ends of chunks.
 */
#include "unit.h"

#include <string.h>

#include "base/crc32c.h"
#include "node/node_internal.h"

#define POOL_BYTES (4u << 20)

static const uint64_t sizes[] = {0, 1, 65535, 65536, 65537, 131072, 300001};

/* A node whose memory is `memory`, and a block in it whose bytes have just come. */
static void
arrive(struct yb_node *node, void *memory, uint64_t size, struct yb_block *block_out)
{
    const struct yb_dram_pool_options options = {
        .capacity = POOL_BYTES,
        .pending_permille = 1000,
        .tenant_count = 1,
        .borrowed = true,
        .base = memory,
    };
    uint64_t random = unit_seed("node_sums");
    uint8_t *bytes;

    assert_int_equal(yb_dram_pool_create(&options, &node->pool, NULL, 0), YB_OK);
    *block_out = (struct yb_block){.size = size, .key_bytes = 3, .state = YB_BLOCK_IN_FLIGHT};
    assert_int_equal(
        yb_dram_alloc(node->pool, yb_block_extent_bytes(size, 3, true), 0, &block_out->extent),
        YB_OK);
    bytes = yb_dram_bytes(node->pool, &block_out->extent);
    for (uint64_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)unit_random(&random);
    }
}

static void
test_node_sums__what_is_not_what_its_sender_summed_is_corrupt(void **state)
{
    void *memory = aligned_alloc(4096, POOL_BYTES);

    (void)state;
    assert_non_null(memory);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int way = 0; way < 4; way++) { /* Summed by the node or not; as it was, or not. */
            struct yb_node node = {.pool = NULL};
            struct yb_block block;

            arrive(&node, memory, sizes[i], &block);
            block.checked = true;
            block.summed = way % 2 != 0;
            block.checksum = yb_crc32c(yb_node_bytes(&node, &block), sizes[i]) ^ (way >= 2);
            assert_int_equal(yb_node_commit(&node, &block), way >= 2 ? YB_CORRUPT : YB_OK);
            assert_int_equal(block.state, way >= 2 ? YB_BLOCK_IN_FLIGHT : YB_BLOCK_COMMITTED);
            yb_dram_pool_destroy(&node.pool);
        }
    }
    free(memory);
}

static void
test_node_sums__every_byte_that_changes_later_is_found(void **state)
{
    void *memory = aligned_alloc(4096, POOL_BYTES);

    (void)state;
    assert_non_null(memory);
    for (size_t i = 1; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int checked = 0; checked < 2; checked++) {
            const uint64_t places[] = {0, sizes[i] / 2, sizes[i] - 1};
            struct yb_node node = {.pool = NULL};
            struct yb_block block;
            uint8_t *bytes;

            arrive(&node, memory, sizes[i], &block);
            bytes = yb_dram_bytes(node.pool, &block.extent);
            block.checked = checked != 0;
            block.summed = true;
            block.checksum = checked != 0 ? yb_crc32c(bytes, sizes[i]) : 0;
            assert_int_equal(yb_node_commit(&node, &block), YB_OK);
            assert_true(yb_node_verify(&node, &block, 0, sizes[i]));
            for (size_t j = 0; j < 3; j++) {
                bytes[places[j]] ^= 1;
                assert_false(yb_node_verify(&node, &block, 0, sizes[i]));
                assert_false(yb_node_verify(&node, &block, places[j], 1));
                bytes[places[j]] ^= 1;
            }
            yb_dram_pool_destroy(&node.pool);
        }
    }
    free(memory);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node_sums__what_is_not_what_its_sender_summed_is_corrupt),
        cmocka_unit_test(test_node_sums__every_byte_that_changes_later_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
