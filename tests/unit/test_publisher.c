/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: P1, P2, P5 of node/publisher.h, and that news do not wait behind an inventory (RULES C6).
 * Method: a directory that is played: it writes down what comes, in order, and answers as the test
 *   wishes. Virtual time.
 */
#include "net_duo.h"

#include "node/publisher.h"

#define ITEMS_MAX    65536u
#define MESSAGES_MAX 4096u
#define EPOCH        7u

/* One message as it came. */
struct came {
    uint64_t sequence;
    uint32_t items;
    uint8_t phase;
};

struct board {
    struct duo duo;
    struct yb_publisher *publisher;
    uint32_t inventory; /* So many blocks are there. */
    bool rebuilding;    /* News are AGAIN until the end of the inventory has come. */
    struct came came[MESSAGES_MAX];
    uint32_t came_count;
    uint32_t answered[ITEMS_MAX]; /* By the number of the item, its `write`. */
    uint32_t fenced;
    uint8_t reply[YB_WIRE_GRANTS_BYTES_MAX];
};

/* ---- the directory -------------------------------------------------------------------------- */

static void
handle_publish(void *owner, struct yb_request *request)
{
    static struct yb_wire_grant_answer answers[YB_PUBLISHER_MESSAGE_ITEMS];
    struct board *board = owner;
    struct yb_wire_publication message;
    struct yb_wire_grants grants = {.epoch = EPOCH, .grants = {.native = answers}};
    size_t length = 0;

    assert_int_equal(yb_wire_publication_decode(request->body, request->body_bytes, &message, NULL),
                     YB_OK);
    assert_true(board->came_count < MESSAGES_MAX);
    board->came[board->came_count++] =
        (struct came){message.sequence, message.items.count, message.phase};
    if (message.phase == YB_WIRE_PHASE_END) {
        board->rebuilding = false;
    }
    for (uint32_t i = 0; i < message.items.count; i++) {
        bool again = board->rebuilding && message.phase == YB_WIRE_PHASE_DELTA;

        answers[i] = (struct yb_wire_grant_answer){.grant = again ? 0 : i + 1,
                                                   .status = again ? YB_AGAIN : YB_OK};
    }
    grants.grants.count = message.items.count;
    assert_int_equal(yb_wire_grants_encode(&grants, board->reply, sizeof(board->reply), &length),
                     YB_OK);
    yb_request_reply(request, YB_OK, board->reply, (uint32_t)length, NULL, 0);
}

static const struct yb_method directory_methods[] = {
    {
        .type = YB_WIRE_DIRECTORY_TYPE_PUBLISH,
        .name = "publish",
        .roles = YB_ROLE_ANY,
        .body_bytes_max = YB_WIRE_PUBLICATION_BYTES_MAX,
        .handle = handle_publish,
    },
};

/* ---- the node ------------------------------------------------------------------------------- */

static void
on_answer(void *owner, const struct yb_publisher_item *item,
          const struct yb_wire_grant_answer *answer)
{
    struct board *board = owner;

    assert_int_equal(answer->status, YB_OK);
    assert_true(item->wire.write < ITEMS_MAX);
    board->answered[item->wire.write] += item->wire.mode != YB_WIRE_MODE_INVENTORY;
}

static bool
on_inventory(void *owner, uint64_t *cursor, struct yb_publisher_item *item_out)
{
    const struct board *board = owner;

    if (*cursor == board->inventory) {
        return false;
    }
    *item_out = (struct yb_publisher_item){
        .wire = {.grant = *cursor + 1, .mode = YB_WIRE_MODE_INVENTORY, .tier = YB_WIRE_TIER_DRAM}};
    (*cursor)++;
    return true;
}

static uint32_t
on_key(void *owner, const struct yb_publisher_item *item, uint8_t key_out[YB_PUBLISHER_KEY_ROOM])
{
    (void)owner;
    (void)item;
    (void)key_out;
    return 0;
}

static const char *
tenant_name(void *owner, uint16_t tenant)
{
    (void)owner;
    return tenant == 0 ? "default" : "other";
}

static void
on_fenced(void *owner, enum yb_status status)
{
    struct board *board = owner;

    print_message("fenced: %s\n", yb_status_name(status));
    board->fenced++;
}

static const struct yb_publisher_events events = {
    .on_answer = on_answer,
    .on_inventory = on_inventory,
    .on_key = on_key,
    .tenant_name = tenant_name,
    .on_fenced = on_fenced,
};

/* ---- both ----------------------------------------------------------------------------------- */

static struct board *
board_begin(uint32_t inventory)
{
    struct board *board = calloc(1, sizeof(*board));

    assert_non_null(board);
    board->inventory = inventory;
    duo_init(&board->duo, "sim");
    board->duo.instead =
        (struct yb_service){.methods = directory_methods, .method_count = 1, .owner = board};
    duo_start(&board->duo);
    assert_int_equal(yb_publisher_create(&events, board, &board->publisher), YB_OK);
    return board;
}

static void
board_stream(struct board *board)
{
    struct yb_publisher_stream stream = {
        .net = board->duo.nets[CLIENT],
        .peer = board->duo.peer,
        .incarnation = 1,
        .epoch = EPOCH,
        .slot = 1,
    };

    yb_publisher_begin(board->publisher, &stream);
    duo_kick(&board->duo);
}

static void
board_end(struct board *board)
{
    struct yb_publisher_item item;

    assert_int_equal(board->fenced, 0);
    for (uint32_t i = 0; i < board->came_count; i++) {
        assert_int_equal(board->came[i].sequence, i + 1); /* P1 */
    }
    yb_publisher_end(board->publisher);
    assert_false(yb_publisher_take(board->publisher, &item));
    DUO_AWAIT(&board->duo, yb_publisher_idle(board->publisher));
    yb_publisher_destroy(&board->publisher);
    duo_fini(&board->duo);
    free(board);
}

/* Queue news: of two tenants in turn, so that each goes in a message of its own. */
static void
push(struct board *board, uint32_t number)
{
    struct yb_publisher_item item = {
        .wire = {.write = number, .mode = YB_WIRE_MODE_IF_ABSENT, .tier = YB_WIRE_TIER_DRAM},
        .tenant = (uint16_t)(number % 2),
    };

    item.wire.hash.bytes[0] = 1;
    assert_int_equal(yb_publisher_push(board->publisher, &item), YB_OK);
    duo_kick(&board->duo);
}

static uint32_t
count_phase(const struct board *board, uint8_t phase)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < board->came_count; i++) {
        count += board->came[i].phase == phase;
    }
    return count;
}

static bool
all_answered(const struct board *board, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (board->answered[i] != 1) { /* P2 */
            assert_int_equal(board->answered[i], 0);
            return false;
        }
    }
    return true;
}

static void
test_publisher__news_that_cannot_be_taken_yet_do_not_keep_the_inventory(void **state)
{
    struct board *board = board_begin(3000);
    uint64_t begun_ns;

    (void)state;
    board->rebuilding = true;
    board_stream(board);
    for (uint32_t i = 0; i < 10 * YB_PUBLISHER_MESSAGES; i++) { /* They fill every message. */
        push(board, i);
    }
    begun_ns = duo_now(&board->duo);
    DUO_AWAIT(&board->duo, !board->rebuilding);
    assert_true(duo_now(&board->duo) - begun_ns < YB_NS_PER_S); /* Of virtual time. */
    DUO_AWAIT(&board->duo, all_answered(board, 10 * YB_PUBLISHER_MESSAGES));
    assert_int_equal(board->came[0].phase, YB_WIRE_PHASE_BEGIN);
    assert_int_equal(count_phase(board, YB_WIRE_PHASE_BEGIN), 1);
    assert_int_equal(count_phase(board, YB_WIRE_PHASE_END), 1);
    assert_int_equal(count_phase(board, YB_WIRE_PHASE_CHUNK), 6);
    board_end(board);
}

static void
test_publisher__news_do_not_wait_behind_an_inventory(void **state)
{
    struct board *board = board_begin(400 * YB_PUBLISHER_MESSAGE_ITEMS);
    uint32_t before;

    (void)state;
    board_stream(board);
    DUO_AWAIT(&board->duo, count_phase(board, YB_WIRE_PHASE_CHUNK) > 20);
    before = count_phase(board, YB_WIRE_PHASE_CHUNK);
    push(board, 0);
    DUO_AWAIT(&board->duo, all_answered(board, 1));
    /* What was under way when they came, and no more. */
    assert_true(count_phase(board, YB_WIRE_PHASE_CHUNK) - before <= 3 * YB_PUBLISHER_MESSAGES);
    assert_int_equal(count_phase(board, YB_WIRE_PHASE_END), 0);
    DUO_AWAIT(&board->duo, count_phase(board, YB_WIRE_PHASE_END) == 1);
    assert_int_equal(count_phase(board, YB_WIRE_PHASE_CHUNK), 400);
    board_end(board);
}

static void
test_publisher__a_stream_that_begins_again_answers_what_it_sent_and_nothing_twice(void **state)
{
    struct board *board = board_begin(0);
    struct yb_publisher_item item;
    uint32_t taken = 0;

    (void)state;
    board_stream(board);
    for (uint32_t i = 0; i < 50; i++) {
        push(board, i);
    }
    yb_publisher_end(board->publisher); /* Nothing was answered, some of it may be under way. */
    while (yb_publisher_take(board->publisher, &item)) {
        assert_int_equal(item.wire.write, taken); /* In the order in which it came. */
        taken++;
    }
    assert_int_equal(taken, 50);
    DUO_AWAIT(&board->duo, yb_publisher_idle(board->publisher));
    duo_pass_ms(&board->duo, 1000);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(board->answered[i], 0);
    }
    board->came_count = 0;
    board_stream(board);
    push(board, 3);
    DUO_AWAIT(&board->duo, board->answered[3] == 1);
    board_end(board);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_publisher__news_that_cannot_be_taken_yet_do_not_keep_the_inventory),
        cmocka_unit_test(test_publisher__news_do_not_wait_behind_an_inventory),
        cmocka_unit_test(
            test_publisher__a_stream_that_begins_again_answers_what_it_sent_and_nothing_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
