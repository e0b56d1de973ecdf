/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: packs that are half dead are rewritten, and nothing is lost or comes back by it, wherever
 * it is cut (RULES A15). Method: a service in memory, on a clock of the test's own; it fails from
 * the n-th change on, for every n, before or after it has carried that one out, and is met again by
 * the same tier or by another one, which is told the names in either order.
 */
#include "object_ground.h"

#include "base/clock.h"
#include "tier/object/record.h"

#define OBJECTS_MAX 256u
#define QUEUED_MAX  512u
#define PACKED      40u /* Blocks of each of the two packs. */
#define ALIVE       8u  /* Of each, when all kills are done. */
#define SIZE        3000u
#define LATE        (PACKED + ALIVE - 1u) /* This one is killed while it is being moved. */
#define GRANT       5u

struct object {
    char name[YB_OBJECT_NAME_MAX]; /* "": none. */
    uint8_t *bytes;
    uint64_t length;
};

struct service {
    struct yb_object_backend head; /* First. */
    struct yb_clock clock;
    uint64_t now_ns;
    struct object_ground ground;
    struct yb_task task;
    struct object objects[OBJECTS_MAX];
    struct yb_object_request *queue[QUEUED_MAX]; /* Oldest first. */
    uint32_t queued;
    uint64_t changes;
    uint64_t cut_at; /* It is away from this change on, ... */
    bool lost;       /* ... which it carries out, and does not answer. */
    bool backwards;  /* Listings. */
    bool holds;      /* The next GET is held. */
    struct yb_object_request *held;
    bool kills_late; /* When the new pack is on its way. */
    struct yb_tier_kill late;
    bool late_ended;
    enum yb_status late_status;
};

/* ---- the service ----------------------------------------------------------------------------- */

static uint64_t
clock_now(const struct yb_clock *clock)
{
    return ((const struct service *)((const uint8_t *)clock - offsetof(struct service, clock)))
        ->now_ns;
}

static struct object *
find(struct service *service, const char *name)
{
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        if (strcmp(service->objects[i].name, name) == 0) {
            return &service->objects[i];
        }
    }
    return NULL;
}

static uint32_t
count(const struct service *service, const char *part)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        found +=
            service->objects[i].name[0] != '\0' && strstr(service->objects[i].name, part) != NULL;
    }
    return found;
}

static enum yb_status
put(struct service *service, struct yb_object_request *request)
{
    struct object *object = find(service, request->name);

    object = object != NULL ? object : find(service, "");
    assert_non_null(object);
    if (request->before != NULL) {
        request->before(request);
    }
    free(object->bytes);
    object->length = yb_object_bytes_sum(&request->bytes);
    object->bytes = malloc(object->length + 1);
    assert_non_null(object->bytes);
    (void)yb_object_bytes_read(&request->bytes, 0, object->bytes, object->length);
    (void)snprintf(object->name, sizeof(object->name), "%s", request->name);
    return YB_OK;
}

static enum yb_status
get(struct object *object, struct yb_object_request *request)
{
    uint64_t bytes = yb_object_bytes_sum(&request->bytes);

    if (object == NULL) {
        return YB_NOT_FOUND;
    }
    request->object_bytes = object->length;
    if (request->verb == YB_OBJECT_HEAD) {
        return YB_OK;
    }
    assert_true(request->offset + bytes <= object->length);
    (void)yb_object_bytes_write(&request->bytes, 0, object->bytes + request->offset, bytes);
    request->judged = request->after != NULL;
    return request->after != NULL ? request->after(request) : YB_OK;
}

static enum yb_status
list(struct service *service, struct yb_object_request *request)
{
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        const struct object *object =
            &service->objects[service->backwards ? OBJECTS_MAX - 1 - i : i];

        if (object->name[0] != '\0' &&
            strncmp(object->name, request->name, strlen(request->name)) == 0 &&
            request->entry_count < request->entries_max) {
            request->entries[request->entry_count].size = object->length;
            memcpy(request->entries[request->entry_count++].name, object->name,
                   sizeof(object->name));
        }
    }
    return YB_OK;
}

static void
on_late(struct yb_tier_op *op, enum yb_status status)
{
    struct service *service = (struct service *)((uint8_t *)op - offsetof(struct service, late.op));

    service->late_ended = true;
    service->late_status = status;
}

/* Change something, unless the service is away. */
static enum yb_status
change(struct service *service, struct yb_object_request *request)
{
    uint64_t at = service->changes++;

    if (request->verb == YB_OBJECT_PUT && strstr(request->name, "/pack/") != NULL &&
        service->kills_late) {
        service->kills_late = false;
        assert_int_equal(yb_tier_kill(service->ground.tier, &service->late), YB_OK);
    }
    if (at > service->cut_at || (at == service->cut_at && !service->lost)) {
        return YB_UNREACHABLE;
    }
    if (request->verb == YB_OBJECT_PUT) {
        (void)!put(service, request);
    } else if (find(service, request->name) != NULL) {
        struct object *object = find(service, request->name);

        free(object->bytes);
        memset(object, 0, sizeof(*object));
    }
    request->sent = true;
    return at == service->cut_at ? YB_PEER_LOST : YB_OK;
}

static void
answer(struct service *service, struct yb_object_request *request)
{
    enum yb_status status = YB_OK;

    if (request->verb == YB_OBJECT_PUT || request->verb == YB_OBJECT_DELETE) {
        status = change(service, request);
    } else if (service->changes > service->cut_at) {
        status = YB_UNREACHABLE;
    } else if (request->verb == YB_OBJECT_LIST) {
        status = list(service, request);
    } else if (request->verb != YB_OBJECT_TRY) {
        status = get(find(service, request->name), request);
    }
    request->done(request, status);
}

static void
answer_one(struct yb_task *task)
{
    struct service *service = (struct service *)((uint8_t *)task - offsetof(struct service, task));
    struct yb_object_request *request = service->queue[0];

    service->queued--;
    memmove(service->queue, service->queue + 1, service->queued * sizeof(service->queue[0]));
    if (service->queued > 0) {
        yb_loop_defer(service->ground.loop, &service->task);
    }
    if (service->holds && request->verb == YB_OBJECT_GET) {
        service->holds = false;
        service->held = request;
        return;
    }
    answer(service, request);
}

static enum yb_status
submit(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct service *service = (struct service *)backend;

    request->state = 0;
    request->entry_count = 0;
    request->more = request->sent = request->aside = request->judged = false;
    request->wait_hint_ms = 0;
    request->first_byte_ns = request->total_ns = 0;
    request->why[0] = '\0';
    assert_true(service->queued < QUEUED_MAX);
    if (service->queued == 0) {
        yb_loop_defer(service->ground.loop, &service->task);
    }
    service->queue[service->queued++] = request;
    return YB_OK;
}

static void
ignore(struct yb_object_backend *backend, struct yb_object_request *request)
{
    (void)backend;
    (void)request;
}

static void
destroy(struct yb_object_backend *backend)
{
    assert_int_equal(((struct service *)backend)->queued, 0);
}

static const struct yb_object_backend_ops ops = {
    .name = "played", .submit = submit, .cancel = ignore, .end_list = ignore, .destroy = destroy};

/* ---- the tier there -------------------------------------------------------------------------- */

static void
start(struct service *service)
{
    service->ground.options.backend = &service->head;
    ground_start(&service->ground);
    ground_recover(&service->ground);
    assert_int_equal(service->ground.recovered_status, YB_OK);
}

static void
restart(struct service *service)
{
    ground_stop(&service->ground);
    service->cut_at = UINT64_MAX;
    start(service);
}

/* Let time pass, second by second. */
static void
pass(struct service *service, uint32_t seconds)
{
    for (uint32_t i = 0; i < seconds; i++) {
        service->now_ns += YB_NS_PER_S;
        do {
            yb_loop_turn(service->ground.loop, 0);
        } while (service->queued > 0);
        yb_loop_turn(service->ground.loop, 0);
    }
}

/* What has to wait for the end of all requests that may be alive comes to its end. */
static void
settle(struct service *service)
{
    pass(service, 90);
    service->now_ns += 3600 * YB_NS_PER_S;
    pass(service, 90);
    service->now_ns += 3600 * YB_NS_PER_S;
    pass(service, 90);
}

static void
setup(struct service *service)
{
    memset(service, 0, sizeof(*service));
    service->head.ops = &ops;
    service->clock = (struct yb_clock){clock_now, clock_now};
    service->now_ns = YB_NS_PER_S;
    service->cut_at = UINT64_MAX;
    service->task.run = answer_one;
    ground_init(&service->ground);
    service->ground.turn_ns = 0;
    yb_loop_destroy(&service->ground.loop);
    assert_int_equal(
        yb_loop_create(&(struct yb_loop_options){.backend = "epoll", .clock = &service->clock},
                       &service->ground.loop),
        YB_OK);
    service->ground.options.layout = YB_OBJECT_LAYOUT_PACKED;
    service->ground.options.pack_bytes = 1 << 20;
    service->ground.options.pause_ns = 1;
    service->late = (struct yb_tier_kill){.op = {.done = on_late, .deadline_ns = YB_NEVER},
                                          .hash = ground_hash(LATE),
                                          .grant = GRANT,
                                          .tenant = "tenant",
                                          .flush = 1};
    start(service);
}

static void
fini(struct service *service)
{
    ground_fini(&service->ground);
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        free(service->objects[i].bytes);
    }
}

/* One pack of PACKED blocks. */
static void
store_pack(struct service *service, uint32_t first)
{
    struct object_block blocks[PACKED];

    for (uint32_t i = 0; i < PACKED; i++) {
        block_init(&blocks[i], first + i, GRANT, SIZE + i);
        block_submit(&service->ground, &blocks[i]);
    }
    pass(service, 1);
    for (uint32_t i = 0; i < PACKED; i++) {
        assert_true(blocks[i].ended);
        assert_int_equal(blocks[i].status, YB_OK);
        block_fini(&blocks[i]);
    }
}

static bool
lives(uint32_t number)
{
    return number % PACKED < ALIVE;
}

/* Two packs, of which a fifth lives; no time passes after that. */
static void
store_both(struct service *service)
{
    store_pack(service, 0);
    store_pack(service, PACKED);
    for (uint32_t i = 0; i < 2 * PACKED; i++) {
        if (!lives(i)) {
            assert_int_equal(block_kill(&service->ground, i, GRANT), YB_OK);
        }
    }
    assert_int_equal(count(service, "/pack/"), 2);
}

/* What lives is there byte for byte, and nothing else is. */
static void
check(struct service *service)
{
    bool late_gone = service->late_ended && service->late_status == YB_OK;

    for (uint32_t i = 0; i < 2 * PACKED; i++) {
        enum yb_status status = block_load(&service->ground, i, 0, SIZE + i % PACKED);

        if (i != LATE || late_gone) {
            assert_int_equal(status, lives(i) && i != LATE ? YB_OK : YB_NOT_FOUND);
        } else if (service->late_ended) { /* Its kill was not acknowledged. */
            assert_true(status == YB_OK || status == YB_NOT_FOUND);
        } else {
            assert_int_equal(status, YB_OK);
        }
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void
test_object_rewrite__what_lives_in_half_dead_packs_moves_to_one(void **state)
{
    struct service service;
    struct yb_tier_info info;

    setup(&service);
    store_both(&service);
    pass(&service, 5);
    assert_int_equal(count(&service, "/pack/"), 1);
    assert_int_equal(yb_object_stats(service.ground.tier).moved, 2 * ALIVE);
    yb_tier_info(service.ground.tier, &info);
    assert_int_equal(info.blocks, 2 * ALIVE);
    assert_true(info.used < 2 * info.live);
    check(&service);
    pass(&service, 60);
    assert_int_equal(yb_object_stats(service.ground.tier).moved, 2 * ALIVE);
    restart(&service);
    check(&service);
    assert_int_equal(service.ground.lost, 0);
    fini(&service);
    (void)state;
}

/* How it is met again. */
struct meeting {
    bool lost;
    bool backwards;
    bool same_tier;
    bool kills;
};

/* Returns whether the cut came after all changes. */
static bool
cut(uint64_t at, const struct meeting *meeting)
{
    struct service service;
    bool all;

    print_message("# cut at %llu, lost %d, backwards %d, same tier %d, kills %d\n",
                  (unsigned long long)at, meeting->lost, meeting->backwards, meeting->same_tier,
                  meeting->kills);
    setup(&service);
    store_both(&service);
    service.backwards = meeting->backwards;
    service.kills_late = meeting->kills;
    service.lost = meeting->lost;
    service.changes = 0;
    service.cut_at = at;
    pass(&service, 20);
    all = service.changes <= at;
    if (meeting->same_tier) {
        service.cut_at = UINT64_MAX;
        pass(&service, 5);
    } else {
        restart(&service);
    }
    assert_true(!meeting->kills || service.late_ended);
    check(&service);
    settle(&service);
    check(&service);
    assert_int_equal(count(&service, "/pack/"), 1);
    restart(&service);
    check(&service);
    for (uint32_t i = 0; i < 2 * PACKED; i++) {
        assert_int_equal(block_kill(&service.ground, i, GRANT), YB_OK);
    }
    settle(&service);
    assert_int_equal(count(&service, ""), 0); /* Kill objects have gone, too. */
    restart(&service);
    assert_int_equal(service.ground.found_count, 0);
    fini(&service);
    return all;
}

static void
test_object_rewrite__no_cut_loses_a_block_or_brings_one_back(void **state)
{
    for (uint32_t i = 0; i < 16; i++) {
        const struct meeting meeting = {.lost = (i & 1) != 0,
                                        .backwards = (i & 2) != 0,
                                        .same_tier = (i & 4) != 0,
                                        .kills = (i & 8) != 0};
        uint64_t at = 0;

        while (!cut(at, &meeting)) {
            at++;
        }
        assert_in_range(at, 3, 40); /* A pack comes, two go. */
    }
    (void)state;
}

static void
test_object_rewrite__a_pack_stays_while_a_load_is_at_it(void **state)
{
    struct service service;
    struct object_reading reading;
    uint8_t bytes[SIZE];

    setup(&service);
    store_both(&service);
    service.holds = true;
    reading_init(&reading, 0, 0, 0, SIZE);
    reading_submit(&service.ground, &reading);
    while (service.held == NULL) {
        yb_loop_turn(service.ground.loop, 0);
    }
    pass(&service, 5);
    assert_int_equal(yb_object_stats(service.ground.tier).moved, 2 * ALIVE);
    assert_int_equal(count(&service, "/pack/"), 2); /* The new one, and where it reads. */
    answer(&service, service.held);
    ground_turn(&service.ground, &reading.ended);
    assert_int_equal(reading.status, YB_OK);
    ground_fill(bytes, SIZE, 0, GRANT);
    assert_memory_equal(reading.bytes, bytes, SIZE);
    pass(&service, 2);
    assert_int_equal(count(&service, "/pack/"), 1);
    assert_int_equal(service.ground.lost, 0);
    reading_fini(&reading);
    fini(&service);
    (void)state;
}

/* Hurt a footer: the living stay readable while they are known, as each image has a record of its
 * own. A restart that cannot read it passes it over. */
static struct object *
hurt(struct service *service, uint64_t from_end)
{
    struct object *object = NULL;

    setup(service);
    store_both(service);
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        object = strstr(service->objects[i].name, "/pack/") != NULL ? &service->objects[i] : object;
    }
    assert_non_null(object);
    object->bytes[object->length - from_end] ^= 2;
    pass(service, 60);
    assert_int_equal(yb_object_stats(service->ground.tier).moved, ALIVE);
    check(service);
    restart(service);
    assert_int_equal(service->ground.found_count, ALIVE);
    assert_int_equal(count(service, "/pack/"), 2);
    settle(service);
    return object;
}

static void
test_object_rewrite__a_damaged_footer_goes_with_its_pack(void **state)
{
    struct service service;

    (void)hurt(&service, YB_OBJECT_TRAILER_BYTES + 200);
    assert_int_equal(count(&service, "/pack/"), 1);
    fini(&service);
    (void)state;
}

static void
test_object_rewrite__a_pack_of_another_version_is_left_alone_with_its_kills(void **state)
{
    struct service service;
    struct object *object = hurt(&service, YB_OBJECT_TRAILER_BYTES - 4);

    assert_int_equal(count(&service, "/pack/"), 2);
    object->bytes[object->length - (YB_OBJECT_TRAILER_BYTES - 4)] ^= 2;
    restart(&service);
    check(&service);
    fini(&service);
    (void)state;
}

static void
test_object_rewrite__a_block_of_another_version_is_a_miss_and_stays(void **state)
{
    struct service service;
    struct yb_tier_info info;
    struct object *object = NULL;

    setup(&service);
    service.ground.options.layout = YB_OBJECT_LAYOUT_BLOCK;
    restart(&service);
    assert_int_equal(block_store(&service.ground, 0, GRANT, SIZE), YB_OK);
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        object = service.objects[i].name[0] != '\0' ? &service.objects[i] : object;
    }
    assert_non_null(object);
    object->bytes[SIZE + 4] ^= 2;
    assert_int_equal(block_load(&service.ground, 0, GRANT, SIZE), YB_NOT_FOUND);
    assert_int_equal(service.ground.lost, 1);
    settle(&service);
    yb_tier_info(service.ground.tier, &info);
    assert_int_equal(info.corrupt, 0);
    assert_int_equal(count(&service, ""), 1);
    object->bytes[SIZE + 4] ^= 2; /* Whoever knows the version still has it. */
    restart(&service);
    assert_int_equal(block_load(&service.ground, 0, GRANT, SIZE), YB_OK);
    object->bytes[SIZE + 4] ^= 2;
    assert_int_equal(block_load(&service.ground, 0, GRANT, SIZE), YB_NOT_FOUND);
    assert_int_equal(block_kill(&service.ground, 0, GRANT), YB_OK); /* Removed, whoever wrote it. */
    settle(&service);
    assert_int_equal(count(&service, ""), 0);
    fini(&service);
    (void)state;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object_rewrite__what_lives_in_half_dead_packs_moves_to_one),
        cmocka_unit_test(test_object_rewrite__no_cut_loses_a_block_or_brings_one_back),
        cmocka_unit_test(test_object_rewrite__a_pack_stays_while_a_load_is_at_it),
        cmocka_unit_test(test_object_rewrite__a_damaged_footer_goes_with_its_pack),
        cmocka_unit_test(
            test_object_rewrite__a_pack_of_another_version_is_left_alone_with_its_kills),
        cmocka_unit_test(test_object_rewrite__a_block_of_another_version_is_a_miss_and_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
