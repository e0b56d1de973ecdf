/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/plan.h"

#include <string.h>

#include "unit.h"

#define WALK_ITEMS 64u

static const struct yb_plan_limits full = {
    .bytes_max = YB_SLICE_BYTES,
    .fragments_max = YB_SLICE_FRAGMENTS,
};

static struct yb_plan_item
item_of(enum yb_transfer_op op, uint64_t local, uint64_t length, uint64_t offset)
{
    return (struct yb_plan_item){
        .item =
            {
                .op = op,
                .local = (void *)(uintptr_t)local,
                .length = length,
                .remote = 7,
                .remote_offset = offset,
            },
    };
}

static void
expect_fragment(const struct yb_slice *slice, uint32_t index, uint32_t item, uint64_t offset,
                uint64_t length)
{
    assert_true(index < slice->count);
    assert_int_equal(slice->fragments[index].item, item);
    assert_int_equal(slice->fragments[index].remote_offset, offset);
    assert_int_equal(slice->fragments[index].length, length);
}

static void
test_plan__a_large_item_is_cut_and_its_pieces_follow_each_other(void **state)
{
    struct yb_plan_item item = item_of(YB_TRANSFER_WRITE, 0x10000, 2 * YB_SLICE_BYTES + 1, 5);
    struct yb_plan_cursor cursor = {0};
    static struct yb_slice slice;

    (void)state;
    assert_true(yb_plan_next(&item, 1, &full, &cursor, &slice));
    expect_fragment(&slice, 0, 0, 5, YB_SLICE_BYTES);
    assert_ptr_equal(slice.fragments[0].local, (void *)0x10000);
    assert_int_equal(slice.op, YB_TRANSFER_WRITE);
    assert_true(yb_plan_next(&item, 1, &full, &cursor, &slice));
    expect_fragment(&slice, 0, 0, 5 + YB_SLICE_BYTES, YB_SLICE_BYTES);
    assert_true(yb_plan_next(&item, 1, &full, &cursor, &slice));
    expect_fragment(&slice, 0, 0, 5 + 2 * YB_SLICE_BYTES, 1);
    assert_int_equal(slice.bytes, 1);
    assert_ptr_equal(slice.fragments[0].local, (void *)(uintptr_t)(0x10000 + 2 * YB_SLICE_BYTES));
    assert_false(yb_plan_next(&item, 1, &full, &cursor, &slice));
    assert_false(yb_plan_next(&item, 1, &full, &cursor, &slice));
}

static void
test_plan__small_items_share_a_slice_up_to_its_fragments(void **state)
{
    struct yb_plan_item items[YB_SLICE_FRAGMENTS + 1];
    struct yb_plan_cursor cursor = {0};
    static struct yb_slice slice;

    (void)state;
    for (uint32_t i = 0; i <= YB_SLICE_FRAGMENTS; i++) {
        items[i] = item_of(YB_TRANSFER_READ, 0x1000 + i, 1, i);
    }
    assert_true(yb_plan_next(items, YB_SLICE_FRAGMENTS + 1, &full, &cursor, &slice));
    assert_int_equal(slice.count, YB_SLICE_FRAGMENTS);
    expect_fragment(&slice, YB_SLICE_FRAGMENTS - 1, YB_SLICE_FRAGMENTS - 1, YB_SLICE_FRAGMENTS - 1,
                    1);
    assert_true(yb_plan_next(items, YB_SLICE_FRAGMENTS + 1, &full, &cursor, &slice));
    assert_int_equal(slice.count, 1);
    assert_false(yb_plan_next(items, YB_SLICE_FRAGMENTS + 1, &full, &cursor, &slice));
}

static void
test_plan__an_item_fills_the_rest_of_a_slice_and_goes_on_in_the_next(void **state)
{
    struct yb_plan_item items[] = {
        item_of(YB_TRANSFER_READ, 0x1000, 100, 0),
        item_of(YB_TRANSFER_READ, 0x9000, YB_SLICE_BYTES, 1000),
    };
    struct yb_plan_cursor cursor = {0};
    static struct yb_slice slice;

    (void)state;
    assert_true(yb_plan_next(items, 2, &full, &cursor, &slice));
    assert_int_equal(slice.count, 2);
    assert_int_equal(slice.bytes, YB_SLICE_BYTES);
    expect_fragment(&slice, 1, 1, 1000, YB_SLICE_BYTES - 100);
    assert_true(yb_plan_next(items, 2, &full, &cursor, &slice));
    expect_fragment(&slice, 0, 1, 1000 + YB_SLICE_BYTES - 100, 100);
}

static void
test_plan__directions_and_kinds_of_memory_do_not_mix(void **state)
{
    struct yb_plan_item items[] = {
        item_of(YB_TRANSFER_READ, 0x1000, 1, 0),
        item_of(YB_TRANSFER_WRITE, 0x1000, 1, 0),
        item_of(YB_TRANSFER_WRITE, 0x1000, 1, 0),
        item_of(YB_TRANSFER_WRITE, 0x1000, 1, 0),
    };
    struct yb_plan_cursor cursor = {0};
    static struct yb_slice slice;

    (void)state;
    items[2].place.index = 1;
    items[3].place.index = 1;
    items[3].place.kind = YB_MEMORY_HOST + 1;
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(yb_plan_next(items, 4, &full, &cursor, &slice));
        assert_int_equal(slice.count, 1);
        assert_int_equal(slice.fragments[0].item, i);
        assert_int_equal(slice.place.index, items[i].place.index);
        assert_int_equal(slice.place.kind, items[i].place.kind);
    }
    assert_false(yb_plan_next(items, 4, &full, &cursor, &slice));
}

static void
test_plan__nothing_to_move_leaves_the_slice_alone(void **state)
{
    struct yb_plan_item items[] = {
        item_of(YB_TRANSFER_READ, 0x1000, 0, 0),
        item_of(YB_TRANSFER_READ, 0x1000, 10, 0),
    };
    struct yb_plan_cursor cursor = {0};
    static struct yb_slice slice;

    (void)state;
    items[1].skip = true;
    memset(&slice, 0x77, sizeof(slice));
    assert_false(yb_plan_next(items, 2, &full, &cursor, &slice));
    assert_int_equal(slice.count, 0x77777777);
    assert_false(yb_plan_next(items, 0, &full, &cursor, &slice));
}

static void
test_plan__an_item_is_judged_by_itself(void **state)
{
    static const struct {
        enum yb_status status;
        uint32_t op;
        uint64_t local, length, offset;
    } rows[] = {
        {YB_OK, YB_TRANSFER_READ, 0x1000, 1, 0},
        {YB_OK, YB_TRANSFER_WRITE, 0, 0, 0},
        {YB_OK, YB_TRANSFER_WRITE, 0x1000, 1ull << 40, 0},
        {YB_OK, YB_TRANSFER_WRITE, 0x1000, 1, UINT64_MAX - 1},
        {YB_INVALID, 2, 0x1000, 1, 0},
        {YB_INVALID, UINT32_MAX, 0x1000, 1, 0},
        {YB_INVALID, YB_TRANSFER_READ, 0, 1, 0},
        {YB_INVALID, YB_TRANSFER_READ, UINT64_MAX - 4095, 8192, 0},
        {YB_INVALID, YB_TRANSFER_READ, 0x1000, 8192, UINT64_MAX - 4095},
        {YB_TOO_LARGE, YB_TRANSFER_READ, 0x1000, (1ull << 48) + 1, 0},
        {YB_TOO_LARGE, YB_TRANSFER_READ, 0x1000, 1ull << 63, 0},
        {YB_TOO_LARGE, YB_TRANSFER_READ, 0x1000, UINT64_MAX, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct yb_transfer_item item = {
            .op = rows[i].op,
            .local = (void *)(uintptr_t)rows[i].local,
            .length = rows[i].length,
            .remote_offset = rows[i].offset,
        };

        assert_int_equal(yb_plan_check(&item), rows[i].status);
    }
}

/* ---- walk: P1 to P3 against a model that knows only where each item stands ---------------- */

struct walk {
    uint64_t random;
    uint32_t count;
    struct yb_plan_item items[WALK_ITEMS];
    uint64_t moved[WALK_ITEMS];
};

static void
walk_init(struct walk *walk)
{
    static const uint64_t lengths[] = {0,
                                       1,
                                       7,
                                       4096,
                                       65536,
                                       YB_SLICE_BYTES - 1,
                                       YB_SLICE_BYTES,
                                       YB_SLICE_BYTES + 1,
                                       3 * YB_SLICE_BYTES + 5};

    walk->count = (uint32_t)(unit_random(&walk->random) % WALK_ITEMS) + 1;
    for (uint32_t i = 0; i < walk->count; i++) {
        uint64_t dice = unit_random(&walk->random);

        walk->items[i] = item_of(dice % 4 == 0 ? YB_TRANSFER_READ : YB_TRANSFER_WRITE,
                                 0x100000 + (dice >> 8) % 1000000, lengths[(dice >> 32) % 9],
                                 (dice >> 40) % 100000);
        walk->items[i].item.remote = i;
        walk->items[i].skip = (dice >> 5) % 8 == 0;
        walk->items[i].place.index = (dice >> 2) % 8 == 0;
        walk->moved[i] = 0;
    }
}

static void
walk_slice(struct walk *walk, const struct yb_plan_limits *limits, const struct yb_slice *slice,
           uint32_t *last)
{
    uint64_t bytes = 0;

    assert_true(slice->count > 0 && slice->count <= limits->fragments_max); /* P2 */
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct yb_fragment *fragment = &slice->fragments[i];
        const struct yb_plan_item *plan = &walk->items[fragment->item];

        assert_true(fragment->item < walk->count && fragment->item >= *last);
        *last = fragment->item;
        assert_true(!plan->skip && fragment->length > 0); /* P3 */
        assert_int_equal(plan->item.op, slice->op);
        assert_int_equal(plan->place.index, slice->place.index);
        assert_int_equal(fragment->region, plan->item.remote);
        assert_ptr_equal(fragment->local,
                         (uint8_t *)plan->item.local + walk->moved[fragment->item]);
        assert_int_equal(fragment->remote_offset,
                         plan->item.remote_offset + walk->moved[fragment->item]);
        walk->moved[fragment->item] += fragment->length;
        bytes += fragment->length;
    }
    assert_int_equal(bytes, slice->bytes);
    assert_true(bytes <= limits->bytes_max);
}

static void
test_plan__every_byte_is_in_one_fragment_whatever_the_items(void **state)
{
    static struct yb_slice slice;
    struct walk walk = {.random = unit_seed("plan")};

    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        struct yb_plan_limits limits = full;
        struct yb_plan_cursor cursor = {0};
        uint32_t last = 0;

        if (round % 3 == 0) {
            limits.bytes_max = unit_random(&walk.random) % 70000 + 1000;
            limits.fragments_max = (uint32_t)(unit_random(&walk.random) % YB_SLICE_FRAGMENTS) + 1;
        }
        walk_init(&walk);
        while (yb_plan_next(walk.items, walk.count, &limits, &cursor, &slice)) {
            walk_slice(&walk, &limits, &slice, &last);
        }
        for (uint32_t i = 0; i < walk.count; i++) { /* P1 */
            assert_int_equal(walk.moved[i], walk.items[i].skip ? 0 : walk.items[i].item.length);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__a_large_item_is_cut_and_its_pieces_follow_each_other),
        cmocka_unit_test(test_plan__small_items_share_a_slice_up_to_its_fragments),
        cmocka_unit_test(test_plan__an_item_fills_the_rest_of_a_slice_and_goes_on_in_the_next),
        cmocka_unit_test(test_plan__directions_and_kinds_of_memory_do_not_mix),
        cmocka_unit_test(test_plan__nothing_to_move_leaves_the_slice_alone),
        cmocka_unit_test(test_plan__an_item_is_judged_by_itself),
        cmocka_unit_test(test_plan__every_byte_is_in_one_fragment_whatever_the_items),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
