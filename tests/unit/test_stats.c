/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants S1-S4 of base/stats.h and the exported text.
 * Method: one registry with a metric of every kind; golden text; writers on
 * real threads beside a reader; a random walk against plain arrays.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/stats.h"
#include "yuebing/types.h"

static const char *const color_words[] = {"red", "green", "blue"};
static const struct yb_stats_label color = {.name = "color", .words = color_words, .count = 3};

/* clang-format off */
#define SHOP_STATS(X)                                                             \
    X(SOLD,  COUNTER,   COUNT,       "sold",    &yb_stats_label_class, &color, "things sold")  \
    X(MOVED, COUNTER,   BYTES,       "moved",   NULL, NULL, "bytes moved")                     \
    X(BUSY,  COUNTER,   NANOSECONDS, "busy",    NULL, NULL, "time spent")                      \
    X(STOCK, GAUGE,     COUNT,       "stock",   &color, NULL, "things in stock")               \
    X(FULL,  GAUGE,     PARTS_PER_MILLION, "full", NULL, NULL, "part of the shelf in use")     \
    X(TOOK,  HISTOGRAM, NANOSECONDS, "took",    &color, NULL, "time to sell")                  \
    X(SIZE,  HISTOGRAM, BYTES,       "size",    NULL, NULL, "size of a thing")
/* clang-format on */

enum shop_stat {
#define X(id, ...) SHOP_##id,
    SHOP_STATS(X)
#undef X
        SHOP_COUNT,
};

static const struct yb_stats_metric shop_metrics[] = {SHOP_STATS(YB_STATS_ROW)};

static struct yb_stats *
registry_with(uint32_t *first_out)
{
    struct yb_stats *stats = NULL;

    assert_int_equal(yb_stats_create(&stats), YB_OK);
    assert_int_equal(yb_stats_register(stats, "shop", shop_metrics, SHOP_COUNT, first_out), YB_OK);
    return stats;
}

static struct yb_stats_shard *
shard_of(struct yb_stats *stats)
{
    struct yb_stats_shard *shard = NULL;

    assert_int_equal(yb_stats_shard_take(stats, &shard), YB_OK);
    return shard;
}

static void
test_stats__readers_see_the_sum_of_the_shards(void **state)
{
    uint32_t first = 99;
    struct yb_stats *stats = registry_with(&first);
    struct yb_stats_shard *a = shard_of(stats);
    struct yb_stats_shard *b = shard_of(stats);
    static struct yb_histogram merged;

    (void)state;
    yb_stats_add_at(a, first + SHOP_SOLD, YB_CLASS_BACKGROUND, 1, 5);
    yb_stats_add_at(b, first + SHOP_SOLD, YB_CLASS_BACKGROUND, 1, 7);
    yb_stats_add_at(b, first + SHOP_SOLD, YB_CLASS_FIRST_TOKEN, 1, 100);
    assert_true(yb_stats_counter(stats, first + SHOP_SOLD, YB_CLASS_BACKGROUND, 1) == 12);
    assert_true(yb_stats_counter(stats, first + SHOP_SOLD, YB_CLASS_BACKGROUND, 2) == 0);
    /* What enters through one shard may leave through the other. */
    yb_stats_adjust_at(a, first + SHOP_STOCK, 2, 0, 3);
    yb_stats_adjust_at(b, first + SHOP_STOCK, 2, 0, -5);
    assert_true(yb_stats_gauge(stats, first + SHOP_STOCK, 2, 0) == -2);
    yb_stats_set_at(a, first + SHOP_STOCK, 2, 0, 10);
    assert_true(yb_stats_gauge(stats, first + SHOP_STOCK, 2, 0) == 5);
    yb_stats_observe(a, first + SHOP_SIZE, 4096);
    yb_stats_observe(b, first + SHOP_SIZE, 65536);
    yb_stats_histogram(stats, first + SHOP_SIZE, 0, 0, &merged);
    assert_true(yb_histogram_count(&merged) == 2);
    assert_true(yb_histogram_quantile(&merged, 1.0) == 65536);
    yb_stats_destroy(&stats);
    assert_null(stats);
}

static void
test_stats__a_missing_shard_counts_nothing(void **state)
{
    (void)state;
    yb_stats_add(NULL, 0, 1);
    yb_stats_set(NULL, 0, 1);
    yb_stats_adjust(NULL, 0, 1);
    yb_stats_observe(NULL, 0, 1);
}

static void
test_stats__a_released_shard_keeps_what_it_counted(void **state)
{
    uint32_t first;
    struct yb_stats *stats = registry_with(&first);
    struct yb_stats_shard *shard = shard_of(stats);

    (void)state;
    yb_stats_add(shard, first + SHOP_MOVED, 10);
    yb_stats_shard_release(&shard);
    assert_null(shard);
    assert_true(yb_stats_counter(stats, first + SHOP_MOVED, 0, 0) == 10);
    shard = shard_of(stats);
    yb_stats_add(shard, first + SHOP_MOVED, 5);
    assert_true(yb_stats_counter(stats, first + SHOP_MOVED, 0, 0) == 15);
    yb_stats_destroy(&stats);
}

static void
test_stats__the_number_of_shards_is_bounded_and_released_ones_are_reused(void **state)
{
    uint32_t first;
    struct yb_stats *stats = registry_with(&first);
    struct yb_stats_shard *shards[YB_STATS_SHARDS_MAX];
    struct yb_stats_shard *extra = NULL;

    (void)state;
    for (uint32_t i = 0; i < YB_STATS_SHARDS_MAX; i++) {
        shards[i] = shard_of(stats);
    }
    assert_int_equal(yb_stats_shard_take(stats, &extra), YB_TOO_LARGE);
    assert_null(extra);
    yb_stats_shard_release(&shards[17]);
    assert_int_equal(yb_stats_shard_take(stats, &extra), YB_OK);
    yb_stats_destroy(&stats);
}

static void
test_stats__metrics_registered_after_a_shard_was_taken_work_on_it(void **state)
{
    static const struct yb_stats_metric late[] = {
        {.name = "late", .kind = YB_STATS_COUNTER, .help = "registered late"}};
    uint32_t first;
    uint32_t second;
    struct yb_stats *stats = registry_with(&first);
    struct yb_stats_shard *shard = shard_of(stats);

    (void)state;
    assert_int_equal(yb_stats_register(stats, "other", late, 1, &second), YB_OK);
    assert_int_equal(second, first + SHOP_COUNT);
    yb_stats_add(shard, second, 3);
    yb_stats_observe(shard, first + SHOP_SIZE, UINT64_MAX);
    assert_true(yb_stats_counter(stats, second, 0, 0) == 3);
    yb_stats_destroy(&stats);
}

static void
test_stats__the_same_table_twice_gets_the_same_numbers_and_another_is_refused(void **state)
{
    static const struct yb_stats_metric other[] = {
        {.name = "sold", .kind = YB_STATS_GAUGE, .help = "another table"}};
    /* yuebing_shop_moved_bytes_total, by another route. */
    static const struct yb_stats_metric alias[] = {
        {.name = "fine", .kind = YB_STATS_COUNTER, .help = "not taken"},
        {.name = "bytes", .kind = YB_STATS_COUNTER, .help = "taken"}};
    uint32_t first;
    uint32_t again = 7;
    struct yb_stats *stats = registry_with(&first);

    (void)state;
    assert_int_equal(yb_stats_register(stats, "shop", shop_metrics, SHOP_COUNT, &again), YB_OK);
    assert_int_equal(again, first);
    again = 7;
    assert_int_equal(yb_stats_register(stats, "shop", other, 1, &again), YB_EXISTS);
    assert_int_equal(yb_stats_register(stats, "shop_moved", alias, 2, &again), YB_EXISTS);
    assert_int_equal(again, 7);
    /* The refused table left nothing behind. */
    assert_int_equal(yb_stats_register(stats, "shop_moved", alias, 1, &again), YB_OK);
    assert_int_equal(again, first + SHOP_COUNT);
    yb_stats_destroy(&stats);
}

static void
refuse(const char *module, struct yb_stats_metric row, enum yb_status want)
{
    struct yb_stats *stats = NULL;
    uint32_t first = 7;

    assert_int_equal(yb_stats_create(&stats), YB_OK);
    assert_int_equal(yb_stats_register(stats, module, &row, 1, &first), want);
    assert_int_equal(first, 7);
    yb_stats_destroy(&stats);
}

static void
test_stats__rows_that_cannot_be_exported_are_refused(void **state)
{
    static const char *const bad_words[] = {"fine", "a\"b"};
    static const struct yb_stats_label bad = {.name = "x", .words = bad_words, .count = 2};
    static const struct yb_stats_label le = {.name = "le", .words = bad_words, .count = 1};
    static const char *const many_words[] = {"w"};
    static const struct yb_stats_label many = {.name = "m", .words = many_words, .count = 65};
    struct yb_stats_metric row = {.name = "n", .kind = YB_STATS_COUNTER, .help = "h"};
    char name[YB_STATS_NAME_MAX + 1];

    (void)state;
    refuse("", row, YB_INVALID);
    refuse("Shop", row, YB_INVALID);
    row.labels[0] = &bad;
    refuse("shop", row, YB_INVALID);
    row.labels[0] = &le;
    refuse("shop", row, YB_INVALID);
    row.labels[0] = &many;
    refuse("shop", row, YB_INVALID);
    row.labels[0] = &color;
    row.labels[1] = &color;
    refuse("shop", row, YB_INVALID);
    row.labels[0] = NULL;
    refuse("shop", row, YB_INVALID);
    row.labels[1] = NULL;
    row.help = "two\nlines";
    refuse("shop", row, YB_INVALID);
    row.help = "h";
    row.name = "a-b";
    refuse("shop", row, YB_INVALID);
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    row.name = name;
    refuse("shop", row, YB_TOO_LARGE);
}

static void
test_stats__words_per_shard_are_bounded(void **state)
{
    static const struct yb_stats_metric wide[] = {
        {.name = "wide",
         .kind = YB_STATS_HISTOGRAM,
         .labels = {&yb_stats_label_status, &yb_stats_label_class},
         .help = "114 series of 1922 words"}};
    static const char *const modules[] = {"a", "b", "c", "d", "e"};
    struct yb_stats *stats = NULL;
    uint32_t first;
    uint32_t i = 0;

    (void)state;
    assert_int_equal(yb_stats_create(&stats), YB_OK);
    while (i < 5 && yb_stats_register(stats, modules[i], wide, 1, &first) == YB_OK) {
        struct yb_stats_shard *shard = shard_of(stats);

        yb_stats_observe_at(shard, first, yb_stats_status_index((enum yb_status) - 999), 2, 1);
        yb_stats_shard_release(&shard);
        i++;
    }
    assert_int_equal(i, YB_STATS_CELLS_MAX / (1922u * yb_stats_label_status.count * 3u));
    yb_stats_destroy(&stats);
}

static const char golden_head[] =
    "# HELP yuebing_shop_sold_total things sold\n"
    "# TYPE yuebing_shop_sold_total counter\n"
    "yuebing_shop_sold_total{class=\"first_token\",color=\"red\"} 0\n"
    "yuebing_shop_sold_total{class=\"first_token\",color=\"green\"} 0\n"
    "yuebing_shop_sold_total{class=\"first_token\",color=\"blue\"} 0\n"
    "yuebing_shop_sold_total{class=\"throughput\",color=\"red\"} 0\n"
    "yuebing_shop_sold_total{class=\"throughput\",color=\"green\"} 0\n"
    "yuebing_shop_sold_total{class=\"throughput\",color=\"blue\"} 9\n"
    "yuebing_shop_sold_total{class=\"background\",color=\"red\"} 0\n"
    "yuebing_shop_sold_total{class=\"background\",color=\"green\"} 0\n"
    "yuebing_shop_sold_total{class=\"background\",color=\"blue\"} 0\n"
    "# HELP yuebing_shop_moved_bytes_total bytes moved\n"
    "# TYPE yuebing_shop_moved_bytes_total counter\n"
    "yuebing_shop_moved_bytes_total 18446744073709551615\n"
    "# HELP yuebing_shop_busy_seconds_total time spent\n"
    "# TYPE yuebing_shop_busy_seconds_total counter\n"
    "yuebing_shop_busy_seconds_total 1.00000002\n"
    "# HELP yuebing_shop_stock things in stock\n"
    "# TYPE yuebing_shop_stock gauge\n"
    "yuebing_shop_stock{color=\"red\"} -4\n"
    "yuebing_shop_stock{color=\"green\"} 0\n"
    "yuebing_shop_stock{color=\"blue\"} 0\n"
    "# HELP yuebing_shop_full_ratio part of the shelf in use\n"
    "# TYPE yuebing_shop_full_ratio gauge\n"
    "yuebing_shop_full_ratio 0.25\n"
    "# HELP yuebing_shop_took_seconds time to sell\n"
    "# TYPE yuebing_shop_took_seconds histogram\n"
    "yuebing_shop_took_seconds_bucket{color=\"red\",le=\"0.000001\"} 1\n"
    "yuebing_shop_took_seconds_bucket{color=\"red\",le=\"0.0000025\"} 2\n";

static const char golden_tail[] = "yuebing_shop_size_bytes_bucket{le=\"256\"} 0\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"1024\"} 0\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"4096\"} 0\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"16384\"} 0\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"65536\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"262144\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"1048576\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"4194304\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"16777216\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"67108864\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"268435456\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"1073741824\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"4294967296\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"17179869184\"} 3\n"
                                  "yuebing_shop_size_bytes_bucket{le=\"+Inf\"} 4\n"
                                  "yuebing_shop_size_bytes_sum 17179865696609\n"
                                  "yuebing_shop_size_bytes_count 4\n";

static struct yb_stats *
shop_with_a_day_of_work(uint32_t *first_out)
{
    struct yb_stats *stats = registry_with(first_out);
    struct yb_stats_shard *shard = shard_of(stats);
    uint32_t first = *first_out;

    yb_stats_add_at(shard, first + SHOP_SOLD, YB_CLASS_THROUGHPUT, 2, 9);
    yb_stats_add(shard, first + SHOP_MOVED, UINT64_MAX);
    yb_stats_add(shard, first + SHOP_BUSY, 1000000020);
    yb_stats_adjust_at(shard, first + SHOP_STOCK, 0, 0, -4);
    yb_stats_set(shard, first + SHOP_FULL, 250000);
    yb_stats_observe_at(shard, first + SHOP_TOOK, 0, 0, 900);
    yb_stats_observe_at(shard, first + SHOP_TOOK, 0, 0, 2500);
    yb_stats_observe_at(shard, first + SHOP_TOOK, 0, 0, 2700);
    for (uint64_t i = 0; i < 3; i++) {
        yb_stats_observe(shard, first + SHOP_SIZE, 65536);
    }
    yb_stats_observe(shard, first + SHOP_SIZE, 17179865500001);
    return stats;
}

static void
test_stats__the_prometheus_text_is_golden(void **state)
{
    uint32_t first;
    struct yb_stats *stats = shop_with_a_day_of_work(&first);
    char *text = NULL;
    size_t length = 0;
    size_t tail = sizeof(golden_tail) - 1;

    (void)state;
    assert_int_equal(yb_stats_prometheus_text(stats, &text, &length), YB_OK);
    assert_true(length == strlen(text) && length > sizeof(golden_head) + tail);
    text[sizeof(golden_head) - 1] = text[sizeof(golden_head) - 1] == 'y' ? '\0' : 'x';
    assert_string_equal(text, golden_head);
    assert_string_equal(text + length - tail, golden_tail);
    free(text);
    yb_stats_destroy(&stats);
}

static void
test_stats__an_output_that_refuses_is_told(void **state)
{
    uint32_t first;
    struct yb_stats *stats = registry_with(&first);
    FILE *full = fopen("/dev/full", "w");

    (void)state;
    if (full == NULL) {
        yb_stats_destroy(&stats);
        skip();
    }
    assert_int_equal(yb_stats_prometheus(stats, full), YB_IO);
    (void)fclose(full);
    yb_stats_destroy(&stats);
}

static void
test_stats__json_carries_the_numbers_as_written(void **state)
{
    uint32_t first;
    struct yb_stats *stats = shop_with_a_day_of_work(&first);
    json_t *array = yb_stats_json(stats);
    json_t *sold = json_array_get(array, 5);
    json_t *stock = json_array_get(array, 11);
    json_t *took = json_array_get(array, 15);

    (void)state;
    assert_int_equal(json_array_size(array), 9 + 1 + 1 + 3 + 1 + 3 + 1);
    assert_string_equal(json_string_value(json_object_get(sold, "name")),
                        "yuebing_shop_sold_total");
    assert_int_equal(json_integer_value(json_object_get(sold, "value")), 9);
    sold = json_object_get(sold, "labels");
    assert_string_equal(json_string_value(json_object_get(sold, "class")), "throughput");
    assert_string_equal(json_string_value(json_object_get(sold, "color")), "blue");
    assert_int_equal(json_integer_value(json_object_get(stock, "value")), -4);
    assert_string_equal(json_string_value(json_object_get(took, "unit")), "ns");
    assert_int_equal(json_integer_value(json_object_get(took, "count")), 3);
    assert_int_equal(json_integer_value(json_object_get(took, "sum")), 6100);
    assert_int_equal(json_integer_value(json_object_get(took, "max")), 2700);
    json_decref(array);
    yb_stats_destroy(&stats);
}

static void
test_stats__an_unknown_status_shares_the_last_word(void **state)
{
    (void)state;
    assert_int_equal(yb_stats_status_index(YB_OK), 0);
    assert_string_equal(yb_stats_label_status.words[yb_stats_status_index(YB_CORRUPT)], "CORRUPT");
    assert_int_equal(yb_stats_status_index((enum yb_status) - 999),
                     yb_stats_label_status.count - 1);
    assert_string_equal(yb_stats_label_status.words[yb_stats_label_status.count - 1], "UNKNOWN");
    for (uint32_t i = 0; i < yb_stats_label_status.count; i++) {
        assert_non_null(yb_stats_label_status.words[i]);
    }
}

/* ---- threads ---- */

enum { WRITERS = 4, WRITES = 50000 };

struct writer {
    struct yb_stats *stats;
    uint32_t first;
    _Atomic uint32_t *done;
};

static void *
write_many(void *argument)
{
    const struct writer *writer = argument;
    struct yb_stats_shard *shard = NULL;

    if (yb_stats_shard_take(writer->stats, &shard) != YB_OK) {
        return NULL;
    }
    for (uint64_t i = 0; i < WRITES; i++) {
        yb_stats_add(shard, writer->first + SHOP_MOVED, 2);
        yb_stats_adjust_at(shard, writer->first + SHOP_STOCK, 1, 0, i % 2 == 0 ? 1 : -1);
        yb_stats_observe(shard, writer->first + SHOP_SIZE, i);
    }
    yb_stats_shard_release(&shard);
    atomic_fetch_add(writer->done, 1);
    return NULL;
}

static void
test_stats__a_reader_beside_many_writers_sees_counters_that_only_grow(void **state)
{
    uint32_t first;
    struct yb_stats *stats = registry_with(&first);
    _Atomic uint32_t done = 0;
    struct writer writer = {.stats = stats, .first = first, .done = &done};
    pthread_t threads[WRITERS];
    static struct yb_histogram merged;
    uint64_t before = 0;

    (void)state;
    for (uint32_t i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writer), 0);
    }
    while (atomic_load(&done) < WRITERS) {
        uint64_t now = yb_stats_counter(stats, first + SHOP_MOVED, 0, 0);
        char *text = NULL;
        size_t length;

        assert_true(now >= before && now <= 2ull * WRITERS * WRITES);
        before = now;
        assert_int_equal(yb_stats_prometheus_text(stats, &text, &length), YB_OK);
        free(text);
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_true(yb_stats_counter(stats, first + SHOP_MOVED, 0, 0) == 2ull * WRITERS * WRITES);
    assert_true(yb_stats_gauge(stats, first + SHOP_STOCK, 1, 0) == 0);
    yb_stats_histogram(stats, first + SHOP_SIZE, 0, 0, &merged);
    assert_true(yb_histogram_count(&merged) == (uint64_t)WRITERS * WRITES);
    yb_stats_destroy(&stats);
}

static void *
write_once(void *shard)
{
    yb_stats_add(shard, SHOP_MOVED, 2);
    return NULL;
}

static void
test_stats__a_shard_that_is_handed_over_is_the_next_writers(void **state)
{
    uint32_t first;
    struct yb_stats *stats = registry_with(&first);
    struct yb_stats_shard *shard = shard_of(stats);
    pthread_t thread;

    (void)state;
    assert_int_equal(first, 0); /* write_once() knows */
    yb_stats_add(shard, SHOP_MOVED, 1);
    yb_stats_shard_hand_over(shard);
    assert_int_equal(pthread_create(&thread, NULL, write_once, shard), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    yb_stats_shard_hand_over(shard);
    yb_stats_add(shard, SHOP_MOVED, 4);
    assert_true(yb_stats_counter(stats, SHOP_MOVED, 0, 0) == 7);
    yb_stats_shard_release(&shard);
    yb_stats_destroy(&stats);
}

/* The model: one number per series, whatever shard it went through. */
static void
test_stats__random_walk_agrees_with_the_model(void **state)
{
    enum { SHARDS = 3, STEPS = 20000 };
    uint32_t first;
    struct yb_stats *stats = registry_with(&first);
    struct yb_stats_shard *shards[SHARDS];
    uint64_t sold[3][3] = {{0}};
    int64_t stock[3] = {0};
    uint64_t rng = unit_seed("stats");

    (void)state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        shards[i] = shard_of(stats);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t i = (uint32_t)(unit_random(&rng) % SHARDS);
        uint32_t a = (uint32_t)(unit_random(&rng) % 3);
        uint32_t b = (uint32_t)(unit_random(&rng) % 3);
        uint64_t delta = unit_random(&rng) % 1000;

        switch (unit_random(&rng) % 3) {
        case 0:
            yb_stats_add_at(shards[i], first + SHOP_SOLD, a, b, delta);
            sold[a][b] += delta;
            break;
        case 1:
            yb_stats_adjust_at(shards[i], first + SHOP_STOCK, a, 0, (int64_t)delta - 500);
            stock[a] += (int64_t)delta - 500;
            break;
        default: yb_stats_shard_release(&shards[i]); shards[i] = shard_of(stats);
        }
        assert_true(yb_stats_counter(stats, first + SHOP_SOLD, a, b) == sold[a][b]);
        assert_true(yb_stats_gauge(stats, first + SHOP_STOCK, a, 0) == stock[a]);
    }
    yb_stats_destroy(&stats);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats__readers_see_the_sum_of_the_shards),
        cmocka_unit_test(test_stats__a_missing_shard_counts_nothing),
        cmocka_unit_test(test_stats__a_released_shard_keeps_what_it_counted),
        cmocka_unit_test(test_stats__the_number_of_shards_is_bounded_and_released_ones_are_reused),
        cmocka_unit_test(test_stats__metrics_registered_after_a_shard_was_taken_work_on_it),
        cmocka_unit_test(
            test_stats__the_same_table_twice_gets_the_same_numbers_and_another_is_refused),
        cmocka_unit_test(test_stats__rows_that_cannot_be_exported_are_refused),
        cmocka_unit_test(test_stats__words_per_shard_are_bounded),
        cmocka_unit_test(test_stats__the_prometheus_text_is_golden),
        cmocka_unit_test(test_stats__an_output_that_refuses_is_told),
        cmocka_unit_test(test_stats__json_carries_the_numbers_as_written),
        cmocka_unit_test(test_stats__an_unknown_status_shares_the_last_word),
        cmocka_unit_test(test_stats__a_reader_beside_many_writers_sees_counters_that_only_grow),
        cmocka_unit_test(test_stats__a_shard_that_is_handed_over_is_the_next_writers),
        cmocka_unit_test(test_stats__random_walk_agrees_with_the_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
