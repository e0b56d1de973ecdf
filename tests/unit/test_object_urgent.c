/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: an urgent load does not wait long behind less preferred ones at the service, these come as
 * fast as before, and get their share. Method: a service that is played in virtual time: it takes
 * one request after the other at a rate, and is so far away.
 */
#include "object_medium.h"

#define SIZE        5000u
#define CONCURRENCY 32u
#define DEPTH_MAX   64u
#define NEAR_NS     YB_NS_PER_MS /* And as long for a load's bytes. */
#define PIECE_NS    YB_NS_PER_MS
#define ALONE_NS    (NEAR_NS + PIECE_NS)

struct reader {
    struct object_reading reading; /* First. */
    uint64_t begun_ns;
    bool busy;
};

struct flow {
    enum yb_class traffic_class;
    uint32_t depth;     /* 0: none. */
    uint64_t period_ns; /* 0: as many as may be at a time. */
    uint64_t next_ns;
    uint64_t ended;
    uint64_t worst_ns;
    struct reader readers[DEPTH_MAX];
};

struct service {
    struct medium medium; /* First. */
    uint64_t far_ns;
    uint64_t piece_ns; /* For a load's bytes. */
    uint64_t free_ns;
    uint64_t ends_ns[MEDIUM_FLYING_MAX]; /* As `flying`: they end in their order. */
    uint64_t asked;                      /* Ever. */
    struct flow flows[YB_CLASS_COUNT];
    uint8_t expected[SIZE];
};

static void
on_came(struct medium *medium, struct yb_object_request *request)
{
    struct service *service = (struct service *)medium;
    uint64_t from = service->free_ns > medium->now_ns ? service->free_ns : medium->now_ns;

    (void)request;
    service->asked++;
    service->free_ns = from + service->piece_ns;
    service->ends_ns[medium->count - 1] = service->free_ns + service->far_ns;
}

static void
setup(struct service *service, uint64_t far_ns, uint64_t piece_ns)
{
    struct medium *medium = &service->medium;
    struct object_block block;

    memset(service, 0, sizeof(*service));
    medium_init(medium);
    medium->ground.options.concurrency = CONCURRENCY;
    medium->ground.options.hedge_bytes_max = 1; /* Nothing is asked for twice. */
    medium_start(medium);
    block_init(&block, 1, 5, SIZE);
    block_submit(&medium->ground, &block);
    medium_turn(medium, 0);
    medium_answer(medium, 0, YB_OK);
    medium_turn(medium, 0);
    assert_true(block.ended);
    assert_int_equal(block.status, YB_OK);
    block_fini(&block);
    ground_fill(service->expected, SIZE, 1, 5);
    service->far_ns = far_ns;
    service->piece_ns = piece_ns;
    medium->came = on_came;
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        service->flows[c].traffic_class = (enum yb_class)c;
    }
}

static void
begin_load(struct service *service, struct flow *flow, struct reader *reader)
{
    reading_init(&reader->reading, 1, 5, 0, SIZE);
    reader->reading.load.op.traffic_class = flow->traffic_class;
    reader->begun_ns = service->medium.now_ns;
    reader->busy = true;
    reading_submit(&service->medium.ground, &reader->reading);
}

/* Take what has ended, and begin what is due. */
static void
feed(struct service *service, struct flow *flow)
{
    uint64_t now = service->medium.now_ns;

    for (uint32_t i = 0; i < DEPTH_MAX; i++) {
        struct reader *reader = &flow->readers[i];

        if (reader->busy && reader->reading.ended) {
            assert_int_equal(reader->reading.status, YB_OK);
            assert_memory_equal(reader->reading.bytes, service->expected, SIZE);
            reading_fini(&reader->reading);
            flow->ended++;
            flow->worst_ns =
                now - reader->begun_ns > flow->worst_ns ? now - reader->begun_ns : flow->worst_ns;
            reader->busy = false;
        }
        if (!reader->busy && i < flow->depth && (flow->period_ns == 0 || now >= flow->next_ns)) {
            begin_load(service, flow, reader);
            flow->next_ns = now + flow->period_ns;
        }
    }
}

/* Whatever happens next, until then. */
static void
run_ms(struct service *service, uint64_t length_ms)
{
    struct medium *medium = &service->medium;
    uint64_t until = medium->now_ns + length_ms * YB_NS_PER_MS;

    while (medium->now_ns < until) {
        uint64_t next = until;

        for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
            feed(service, &service->flows[c]);
        }
        medium_turn(medium, 0);
        for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
            const struct flow *flow = &service->flows[c];

            if (flow->depth > 0 && flow->next_ns > medium->now_ns && flow->next_ns < next) {
                next = flow->next_ns;
            }
        }
        next = medium->count > 0 && service->ends_ns[0] < next ? service->ends_ns[0] : next;
        medium->now_ns = next > medium->now_ns ? next : medium->now_ns;
        if (medium->count > 0 && service->ends_ns[0] <= medium->now_ns) {
            memmove(service->ends_ns, service->ends_ns + 1,
                    (medium->count - 1) * sizeof(service->ends_ns[0]));
            medium_answer(medium, 0, YB_OK);
        }
        medium_turn(medium, 0);
    }
}

static void
begin_counting(struct service *service)
{
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        service->flows[c].ended = service->flows[c].worst_ns = 0;
    }
}

static void
teardown(struct service *service)
{
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        service->flows[c].depth = 0;
    }
    run_ms(service, 60000);
    assert_int_equal(service->medium.count, 0);
    ground_fini(&service->medium.ground);
    free(service);
}

static struct flow *
flow_of(struct service *service, enum yb_class traffic_class, uint32_t depth, uint64_t period_ns)
{
    struct flow *flow = &service->flows[traffic_class];

    flow->depth = depth;
    flow->period_ns = period_ns;
    flow->next_ns = service->medium.now_ns;
    return flow;
}

/* Others have all that may be under way; then one load in ten is urgent. */
static void
test_object_urgent__waits_for_little_where_others_saturate(void **state)
{
    struct service *service = malloc(sizeof(*service));
    struct flow *urgent, *others;

    (void)state;
    assert_non_null(service);
    setup(service, NEAR_NS, PIECE_NS);
    others = flow_of(service, YB_CLASS_THROUGHPUT, DEPTH_MAX, 0);
    run_ms(service, 2000);
    assert_int_equal(service->medium.count, CONCURRENCY);
    begin_counting(service);
    run_ms(service, 1000);
    assert_in_range(others->ended, 990, 1010); /* All that the service can do. */
    urgent = flow_of(service, YB_CLASS_FIRST_TOKEN, 1, 10 * PIECE_NS);
    run_ms(service, 1000); /* What was under way has come, and it was tried. */
    begin_counting(service);
    run_ms(service, 30000); /* Three epochs. */
    assert_true(urgent->ended > 2900);
    /* Just after a trial all others come at once. */
    assert_true(urgent->worst_ns <= 2 * ALONE_NS + 2 * PIECE_NS);
    assert_in_range(urgent->ended + others->ended, 28500, 30010);
    flow_of(service, YB_CLASS_FIRST_TOKEN, 0, 0);
    run_ms(service, 2000); /* There are none any more. */
    assert_int_equal(service->medium.count, CONCURRENCY);
    teardown(service);
}

/* A service that is far, and has little to do, is not slowed down. */
static void
test_object_urgent__holds_nothing_back_from_a_service_that_is_far(void **state)
{
    struct service *service = malloc(sizeof(*service));
    struct flow *urgent, *others;

    (void)state;
    assert_non_null(service);
    setup(service, 50 * YB_NS_PER_MS, 10 * YB_NS_PER_US);
    others = flow_of(service, YB_CLASS_THROUGHPUT, DEPTH_MAX, 0);
    urgent = flow_of(service, YB_CLASS_FIRST_TOKEN, 4, 20 * YB_NS_PER_MS);
    run_ms(service, 3000);
    begin_counting(service);
    run_ms(service, 20000);
    assert_true(urgent->ended > 900);
    assert_true(urgent->worst_ns < 51 * YB_NS_PER_MS);
    /* 32 in 50 ms, but for the trials. */
    assert_in_range(others->ended, 32u * 20u * 20u * 95u / 100u, 32u * 20u * 20u);
    teardown(service);
}

/* Where urgent loads take all they can get, the others have their share. */
static void
test_object_urgent__leaves_the_others_their_share(void **state)
{
    struct service *service = malloc(sizeof(*service));
    struct flow *urgent, *middle, *last;

    (void)state;
    assert_non_null(service);
    setup(service, NEAR_NS, PIECE_NS);
    urgent = flow_of(service, YB_CLASS_FIRST_TOKEN, DEPTH_MAX, 0);
    middle = flow_of(service, YB_CLASS_THROUGHPUT, DEPTH_MAX, 0);
    last = flow_of(service, YB_CLASS_BACKGROUND, DEPTH_MAX, 0);
    run_ms(service, 1000);
    begin_counting(service);
    run_ms(service, 20000);
    assert_in_range(middle->ended, 20000 * YB_OBJECT_SHARE_THROUGHPUT / 1000, 20000 * 14 / 100);
    assert_in_range(last->ended, 20000 * YB_OBJECT_SHARE_BACKGROUND / 1000, 20000 * 8 / 100);
    assert_true(urgent->ended > 20000 * 78 / 100);
    teardown(service);
}

/* A service that has become ten times as slow is known for that after two epochs, and again. */
static void
test_object_urgent__follows_a_service_that_changes(void **state)
{
    struct service *service = malloc(sizeof(*service));
    struct flow *urgent, *others;

    (void)state;
    assert_non_null(service);
    setup(service, NEAR_NS, PIECE_NS);
    others = flow_of(service, YB_CLASS_THROUGHPUT, DEPTH_MAX, 0);
    urgent = flow_of(service, YB_CLASS_FIRST_TOKEN, 1, 100 * PIECE_NS);
    run_ms(service, 2000);
    for (int turn = 0; turn < 2; turn++) {
        uint64_t slow = turn == 0 ? 10 : 1;

        service->piece_ns = slow * PIECE_NS;
        run_ms(service, 31000);
        begin_counting(service);
        run_ms(service, 20000);
        assert_true(urgent->worst_ns <= 2 * (NEAR_NS + slow * PIECE_NS) + slow * PIECE_NS);
        assert_in_range((urgent->ended + others->ended) * slow, 18500, 20010);
    }
    teardown(service);
}

/* What others have under way keeps nobody from being asked for at once. */
static void
test_object_urgent__has_requests_that_are_kept_for_it(void **state)
{
    struct service *service = malloc(sizeof(*service));
    uint64_t asked;

    (void)state;
    assert_non_null(service);
    setup(service, NEAR_NS, PIECE_NS);
    flow_of(service, YB_CLASS_BACKGROUND, DEPTH_MAX, 0);
    run_ms(service, 1000);
    assert_int_equal(service->medium.count, CONCURRENCY / 2);
    flow_of(service, YB_CLASS_THROUGHPUT, DEPTH_MAX, 0);
    feed(service, &service->flows[YB_CLASS_THROUGHPUT]);
    medium_turn(&service->medium, 0);
    asked = service->asked;
    flow_of(service, YB_CLASS_FIRST_TOKEN, CONCURRENCY / 8, 0);
    feed(service, &service->flows[YB_CLASS_FIRST_TOKEN]);
    medium_turn(&service->medium, 0);
    assert_int_equal(service->asked, asked + CONCURRENCY / 8);
    teardown(service);
}

/* By its forecast, in nanoseconds, a load that is asked for now is there. */
static double
forecast_ns(const struct service *service, enum yb_class traffic_class)
{
    struct yb_tier_forecast told = yb_tier_forecast(service->medium.ground.tier, traffic_class);

    return (double)told.base_us * 1e3 +
           (told.bytes_per_second == 0
                ? 0
                : (double)(told.backlog_bytes + SIZE) * 1e9 / (double)told.bytes_per_second);
}

/* What waits goes by the rate of all together, which a load on its own does not have. */
static void
test_object_urgent__forecasts_are_what_loads_take(void **state)
{
    struct service *service = malloc(sizeof(*service));
    struct flow *one;
    double alone, behind;

    (void)state;
    assert_non_null(service);
    setup(service, 20 * NEAR_NS, PIECE_NS);
    service->medium.far_ns = service->far_ns;
    one = flow_of(service, YB_CLASS_THROUGHPUT, 1, 50 * PIECE_NS);
    run_ms(service, 2000);
    one->depth = 0;
    run_ms(service, 100);
    alone = forecast_ns(service, YB_CLASS_THROUGHPUT) / (double)one->worst_ns;
    print_message("alone: said / took %.2f\n", alone);
    flow_of(service, YB_CLASS_THROUGHPUT, DEPTH_MAX, 0);
    run_ms(service, 3000);
    begin_counting(service);
    behind = forecast_ns(service, YB_CLASS_THROUGHPUT);
    run_ms(service, 1000);
    behind /= (double)one->worst_ns;
    print_message("behind %u others: said / took %.2f\n", DEPTH_MAX, behind);
    assert_true(alone > 0.8 && alone < 1.25);
    assert_true(behind > 0.8 && behind < 1.5);
    teardown(service);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object_urgent__waits_for_little_where_others_saturate),
        cmocka_unit_test(test_object_urgent__holds_nothing_back_from_a_service_that_is_far),
        cmocka_unit_test(test_object_urgent__leaves_the_others_their_share),
        cmocka_unit_test(test_object_urgent__follows_a_service_that_changes),
        cmocka_unit_test(test_object_urgent__has_requests_that_are_kept_for_it),
        cmocka_unit_test(test_object_urgent__forecasts_are_what_loads_take),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
