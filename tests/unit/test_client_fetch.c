/* SPDX-License-Identifier: Apache-2.0
 *
 * Fetches, against a directory and nodes on real sockets in this process, all in memory.
 */
#include "store_ground.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/core_internal.h"

#define COUNT    300u
#define BYTES    4096u
#define PATIENCE 30 /* Seconds until what has not come counts as lost. */

static struct ground *ground;

static int
set_up(void **state)
{
    const struct ground_options options = {.nodes = 2};

    ground = ground_create(&options);
    return 0;
}

static int
tear_down(void **state)
{
    ground_destroy(&ground);
    return 0;
}

/* ---- lists of blocks that name themselves ---------------------------------------------------- */

struct list {
    struct yb_client_item items[COUNT];
    struct iovec iov[COUNT];
    char keys[COUNT][32];
    uint8_t bytes[COUNT][BYTES];
};

static void
stamp(uint8_t *bytes, uint32_t number)
{
    uint64_t random = number + 1;

    for (size_t i = 0; i < BYTES; i += 8) {
        uint64_t word = unit_random(&random);

        memcpy(bytes + i, &word, sizeof(word));
    }
}

static struct list *
make_list(const char *prefix, bool stamped)
{
    struct list *list = calloc(1, sizeof(*list));

    assert_non_null(list);
    for (uint32_t i = 0; i < COUNT; i++) {
        (void)snprintf(list->keys[i], sizeof(list->keys[i]), "%s-%u", prefix, i);
        list->iov[i] = (struct iovec){list->bytes[i], BYTES};
        list->items[i] = (struct yb_client_item){
            .key = list->keys[i],
            .key_bytes = (uint32_t)strlen(list->keys[i]),
            .iov = &list->iov[i],
            .iov_count = 1,
        };
        if (stamped) {
            stamp(list->bytes[i], i);
        }
    }
    return list;
}

static void
put_list(struct yb_client *client, const char *prefix)
{
    struct list *list = make_list(prefix, true);

    assert_int_equal(yb_client_put(client, list->items, COUNT, NULL), YB_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(list->items[i].status, YB_OK);
    }
    free(list);
}

static void
assert_stamped(const struct list *list, uint32_t index)
{
    uint8_t wanted[BYTES];

    stamp(wanted, index);
    assert_int_equal(list->items[index].bytes, BYTES);
    assert_memory_equal(list->bytes[index], wanted, BYTES);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void
test_fetch__says_where_blocks_are_and_brings_each_once(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct list *list = make_list("each", false);
    bool seen[COUNT] = {false};
    yb_client_handle handle;
    uint32_t index;

    put_list(client, "each");
    list->items[7].key = "nobody put this";
    list->items[7].key_bytes = 15;
    assert_int_equal(yb_client_fetch(client, list->items, COUNT, NULL, NULL, &handle), YB_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(list->items[i].tier, i == 7 ? YB_CLIENT_TIER_NONE : YB_CLIENT_TIER_DRAM);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(yb_client_fetch_next(client, handle, PATIENCE * YB_NS_PER_S, &index),
                         YB_OK);
        assert_true(index < COUNT && !seen[index]);
        seen[index] = true;
        assert_int_equal(yb_client_fetch_poll(client, handle, index), YB_OK);
        assert_int_equal(list->items[index].status, index == 7 ? YB_NOT_FOUND : YB_OK);
        if (index != 7) {
            assert_stamped(list, index);
        }
    }
    assert_int_equal(yb_client_fetch_next(client, handle, 0, &index), YB_NOT_FOUND);
    assert_int_equal(yb_client_wait(client, handle, PATIENCE * YB_NS_PER_S), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(yb_client_fetch_poll(client, handle, 0), YB_CLOSED);
    assert_int_equal(yb_client_fetch_next(client, handle, 0, &index), YB_CLOSED);
    free(list);
    yb_client_close(&client);
}

static void
test_fetch__hands_an_ordered_list_out_in_its_order(void **state)
{
    const struct yb_client_fetch_options options = {
        .struct_bytes = sizeof(options), .ordered = true, .window = 8};
    struct yb_client *client = ground_client(ground, NULL);
    struct list *list = make_list("order", false);
    yb_client_handle handle;
    uint32_t index;

    put_list(client, "order");
    for (uint32_t i = 0; i < COUNT; i++) { /* The last is the most urgent one. */
        list->items[i].timeout_ns = (60 - i / 10) * YB_NS_PER_S;
    }
    assert_int_equal(yb_client_fetch(client, list->items, COUNT, NULL, &options, &handle), YB_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(yb_client_fetch_next(client, handle, PATIENCE * YB_NS_PER_S, &index),
                         YB_OK);
        assert_int_equal(index, i);
        assert_int_equal(list->items[i].status, YB_OK);
        assert_stamped(list, i);
    }
    assert_int_equal(yb_client_wait(client, handle, PATIENCE * YB_NS_PER_S), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    free(list);
    yb_client_close(&client);
}

static void
test_fetch__tells_an_eventfd_of_each_item_and_of_the_end(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct list *list = make_list("event", false);
    struct yb_client_fetch_options options = {.struct_bytes = sizeof(options)};
    yb_client_handle handle;
    uint64_t told = 0;

    put_list(client, "event");
    options.event_fd = eventfd(0, 0);
    assert_true(options.event_fd > 0);
    assert_int_equal(yb_client_fetch(client, list->items, COUNT, NULL, &options, &handle), YB_OK);
    while (told < COUNT + 1) {
        struct pollfd wanted = {.fd = options.event_fd, .events = POLLIN};
        uint64_t some;

        assert_int_equal(poll(&wanted, 1, PATIENCE * 1000), 1);
        assert_int_equal(read(options.event_fd, &some, sizeof(some)), sizeof(some));
        told += some;
    }
    assert_int_equal(told, COUNT + 1);
    assert_int_equal(yb_client_poll(client, handle), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(close(options.event_fd), 0);
    free(list);
    yb_client_close(&client);
}

/* Fetch from nodes that stand still: nothing comes until they are let go. */
static void
test_fetch__ends_one_item_early_and_lets_the_others_come(void **state)
{
    const struct yb_client_fetch_options options = {.struct_bytes = sizeof(options), .window = 1};
    struct yb_client *client = ground_client(ground, NULL);
    struct list *list = make_list("early", false);
    uint32_t cancelled = 0;
    yb_client_handle handle;
    uint32_t index;

    put_list(client, "early");
    ground_stop(&ground->nodes[0]);
    ground_stop(&ground->nodes[1]);
    list->items[5].timeout_ns = YB_NS_PER_MS;
    assert_int_equal(yb_client_fetch(client, list->items, 20, NULL, &options, &handle), YB_OK);
    assert_int_equal(yb_client_fetch_next(client, handle, PATIENCE * YB_NS_PER_S, &index), YB_OK);
    assert_int_equal(index, 5);
    assert_int_equal(list->items[5].status, YB_TIMED_OUT);
    yb_client_fetch_cancel(client, handle, 11);
    yb_client_fetch_cancel(client, handle, 11);
    yb_client_fetch_cancel(client, handle, 400);
    assert_int_equal(yb_client_fetch_next(client, handle, PATIENCE * YB_NS_PER_S, &index), YB_OK);
    assert_int_equal(index, 11);
    assert_int_equal(list->items[11].status, YB_CANCELLED);
    yb_client_fetch_cancel(client, handle, 5); /* It has ended. */
    assert_int_equal(yb_client_poll(client, handle), YB_IN_PROGRESS);
    ground_go(&ground->nodes[0]);
    ground_go(&ground->nodes[1]);
    assert_int_equal(yb_client_wait(client, handle, PATIENCE * YB_NS_PER_S), YB_OK);
    for (uint32_t i = 0; i < 20; i++) {
        cancelled += list->items[i].status == YB_CANCELLED;
        if (i != 5 && i != 11) {
            assert_int_equal(list->items[i].status, YB_OK);
            assert_stamped(list, i);
        }
    }
    assert_int_equal(cancelled, 1);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    free(list);
    yb_client_close(&client);
}

static void
test_fetch__cancelled_as_a_whole_ends_every_item_once(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct list *list = make_list("whole", false);
    yb_client_handle handle;
    uint32_t index;

    put_list(client, "whole");
    ground_stop(&ground->nodes[0]);
    ground_stop(&ground->nodes[1]);
    assert_int_equal(yb_client_fetch(client, list->items, COUNT, NULL, NULL, &handle), YB_OK);
    yb_client_fetch_cancel(client, handle, 3);
    yb_client_cancel(client, handle);
    assert_int_equal(yb_client_wait(client, handle, PATIENCE * YB_NS_PER_S), YB_OK);
    memset(list->bytes, 0x5a, sizeof(list->bytes));
    ground_go(&ground->nodes[0]);
    ground_go(&ground->nodes[1]);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(yb_client_fetch_next(client, handle, 0, &index), YB_OK);
        assert_int_equal(list->items[index].status, YB_CANCELLED);
    }
    assert_int_equal(yb_client_fetch_next(client, handle, 0, &index), YB_NOT_FOUND);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    put_list(client, "behind"); /* Whatever the nodes had to say has been said. */
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(list->bytes[i][0], 0x5a); /* S5 */
    }
    free(list);
    yb_client_close(&client);
}

static void
count_end(void *owner, yb_client_handle handle)
{
    (void)handle;
    (void)sem_post(owner);
}

static void
test_fetch__calls_back_once_and_refuses_what_makes_no_sense(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct list *list = make_list("back", false);
    struct yb_client_fetch_options options = {.struct_bytes = sizeof(options), .done = count_end};
    yb_client_handle handle;
    struct timespec patience;
    uint32_t index;
    sem_t ended;

    assert_int_equal(sem_init(&ended, 0, 0), 0);
    put_list(client, "back");
    options.owner = &ended;
    assert_int_equal(yb_client_fetch(client, list->items, COUNT, NULL, &options, &handle), YB_OK);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &patience), 0);
    patience.tv_sec += PATIENCE;
    assert_int_equal(sem_timedwait(&ended, &patience), 0);
    assert_int_equal(sem_trywait(&ended), -1);
    assert_int_equal(yb_client_fetch_poll(client, handle, COUNT), YB_INVALID);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(yb_client_fetch(client, NULL, 1, NULL, NULL, &handle), YB_INVALID);
    assert_int_equal(yb_client_fetch(client, list->items, 0, NULL, NULL, &handle), YB_INVALID);
    list->items[1].key_bytes = 0;
    assert_int_equal(yb_client_fetch(client, list->items, 2, NULL, NULL, &handle), YB_INVALID);
    options.struct_bytes = 1;
    assert_int_equal(yb_client_fetch(client, list->items, 1, NULL, &options, &handle), YB_INVALID);
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_GET, list->items, 1, NULL, NULL, NULL, 0, &handle),
        YB_OK);
    assert_int_equal(yb_client_fetch_next(client, handle, 0, &index), YB_CLOSED);
    assert_int_equal(yb_client_wait(client, handle, PATIENCE * YB_NS_PER_S), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(sem_destroy(&ended), 0);
    free(list);
    yb_client_close(&client);
}

/* An item leaves the list that it waits in from wherever it stands; the others keep their order. */
static void
test_fetch__lists_of_items_keep_their_order_whoever_leaves(void **state)
{
    static struct yb_core_item items[COUNT];
    struct yb_core_work work = {.items = items};
    struct yb_core_list list = {YB_CORE_NONE, YB_CORE_NONE};
    uint64_t seed = unit_seed("client_fetch");
    uint32_t model[COUNT];
    uint32_t outside[COUNT];
    uint32_t count = 0;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        outside[i] = i;
    }
    for (uint32_t step = 0; step < 20000; step++) {
        uint32_t out = COUNT - count;
        uint32_t at = (uint32_t)(unit_random(&seed) % COUNT);
        uint32_t what = (uint32_t)(unit_random(&seed) % 3);

        if (at < out && what == 0) {
            model[count++] = outside[at];
            yb_core_push(&work, &list, outside[at], YB_CORE_READY);
            outside[at] = outside[out - 1];
        } else if (at < count) {
            at = what == 1 ? 0 : at;
            outside[out] = model[at];
            if (what == 1) {
                assert_int_equal(yb_core_pop(&work, &list), model[0]);
            } else {
                yb_core_take_out(&work, &list, model[at]);
            }
            memmove(model + at, model + at + 1, (--count - at) * sizeof(model[0]));
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(yb_core_pop(&work, &list), model[i]);
    }
    assert_int_equal(yb_core_pop(&work, &list), YB_CORE_NONE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch__lists_of_items_keep_their_order_whoever_leaves),
        cmocka_unit_test_setup_teardown(test_fetch__says_where_blocks_are_and_brings_each_once,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fetch__hands_an_ordered_list_out_in_its_order, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_fetch__tells_an_eventfd_of_each_item_and_of_the_end,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fetch__ends_one_item_early_and_lets_the_others_come,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fetch__cancelled_as_a_whole_ends_every_item_once,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fetch__calls_back_once_and_refuses_what_makes_no_sense,
                                        set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
