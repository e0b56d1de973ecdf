/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of observe/series.h, gather.h and dashboard.h.
 * Method: texts of numbers by hand and from a generator of nonsense; two real ports on loopback,
 * one that gathers, and one that plays another process and counts what it is asked.
 */
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "net/curl.h"
#include "observe/dashboard.h"
#include "observe/series.h"
#include "unit.h"

/* ---- series --------------------------------------------------------------------------------- */

static json_t *
series_of(const char *text, uint32_t count_max)
{
    json_t *series = json_object();

    yb_series_read(text, strlen(text), count_max, series);
    return series;
}

static void
test_series__numbers_by_name_without_zeros_and_buckets(void **state)
{
    json_t *series = series_of("# HELP yuebing_a_total what\n"
                               "yuebing_a_total 12\n"
                               "yuebing_b{status=\"NOT FOUND\",x=\"1\"} 0.25\n"
                               "yuebing_none 0\n"
                               "yuebing_took_seconds_bucket{le=\"0.1\"} 7\n"
                               "yuebing_engine_ttft_seconds_bucket{le=\"0.1\"} 7\n"
                               "yuebing_conductor_decision_to_arrival_seconds_bucket{le=\"1\"} 8\n"
                               "other_total 3e2\n"
                               "yuebing_stamped 5 1777636800\n"
                               "yuebing_wrong x\nyuebing_inf +Inf\nyuebing_nan NaN\n"
                               "no_value\n 5\nwithout_end 9",
                               100);
    json_t *expected =
        json_pack("{s:i, s:f, s:i, s:i, s:i, s:i}", "a_total", 12,
                  "b{status=\"NOT FOUND\",x=\"1\"}", 0.25, "engine_ttft_seconds_bucket{le=\"0.1\"}",
                  7, "conductor_decision_to_arrival_seconds_bucket{le=\"1\"}", 8, "other_total",
                  300, "without_end", 9);

    (void)state;
    assert_true(json_equal(series, expected));
    json_decref(series);
    json_decref(expected);
    series = series_of("a 1\nb 2\nc 3\n", 2);
    assert_int_equal(json_object_size(series), 2);
    json_decref(series);
}

static void
test_series__nonsense_is_passed_over(void **state)
{
    static const char bytes[] = "yuebing_ab 0123456789.e+-{}\"=,#\n\n\n \\\x01\xff";
    uint64_t random = unit_seed("series");

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t length = unit_random(&random) % 400;
        char *text = malloc(length + 1); /* As long as it is: a sanitizer sees a byte too many. */
        json_t *series = json_object();
        const char *name;
        json_t *value;

        for (size_t i = 0; i < length; i++) {
            text[i] = bytes[unit_random(&random) % (sizeof(bytes) - 1)];
        }
        yb_series_read(text, length, 5, series);
        assert_true(json_object_size(series) <= 5);
        json_object_foreach(series, name, value)
        {
            assert_true(name[0] != '\0' && json_is_number(value));
            assert_true(isfinite(json_number_value(value)) && json_number_value(value) != 0);
        }
        json_decref(series);
        free(text);
    }
}

/* ---- two ports ------------------------------------------------------------------------------ */

struct stand {
    struct yb_http_source own; /* The port that gathers. */
    struct yb_http_source there;
    struct yb_http *own_http;
    struct yb_http *there_http;
    struct yb_dashboard *dashboard;
    struct yb_log *log;
    char where[2][YB_ADDRESS_TEXT_BYTES]; /* own, there */
    char own_url[YB_ADDRESS_TEXT_BYTES + 8];
    _Atomic uint64_t asked; /* /metrics of the other one. */
    _Atomic bool ready;     /* It has been asked for its instances. */
    struct yb_curl *curl;
};

static enum yb_status
own_metrics(void *context, char **text_out, size_t *length_out)
{
    (void)context;
    *text_out = strdup("yuebing_node_get_bytes_total 5\n");
    *length_out = strlen(*text_out);
    return YB_OK;
}

static enum yb_status
own_nodes(void *context, json_t **out)
{
    (void)context;
    *out = json_pack("{s:i, s:[{s:s}]}", "epoch", 3, "nodes", "name", "one");
    return YB_OK;
}

static bool
own_ready(void *context, char reason_out[YB_HTTP_REASON_BYTES])
{
    (void)context;
    (void)reason_out;
    return true;
}

/* Another process: its counter grows with each question, it has one more event each time it is
 * asked for those, and knows an instance that nobody serves. */
static bool
there_answer(void *context, const struct yb_http_asked *asked, struct yb_http_told *told_out)
{
    struct stand *stand = context;
    const char *after = yb_http_argument(asked, "after");
    unsigned long long last = after != NULL ? strtoull(after, NULL, 10) : 0;
    int length = -1;

    if (strcmp(asked->path, "/metrics") == 0) {
        length = asprintf(&told_out->text, "yuebing_engine_requests_total %llu\n",
                          (unsigned long long)atomic_fetch_add(&stand->asked, 1) + 1);
    } else if (strcmp(asked->path, "/v1/events") == 0) {
        length = asprintf(&told_out->text,
                          "{\"last\": %llu, \"events\": [{\"at_ms\": 1, \"level\": \"warn\", "
                          "\"text\": \"event %llu\"}, 5]}",
                          last + 1, last + 1);
    } else if (strcmp(asked->path, "/v1/instances") == 0 && !atomic_exchange(&stand->ready, true)) {
        told_out->code = 503; /* A conductor that has just come waits for the directory. */
        length = asprintf(&told_out->text, "{}");
    } else if (strcmp(asked->path, "/v1/instances") == 0) {
        length = asprintf(&told_out->text,
                          "{\"instances\": [{\"name\": \"ghost\", \"address\": \"127.0.0.1:1\"}, "
                          "{\"name\": \"odd\", \"address\": \"http://x/y\"}]}");
    }
    told_out->length = length < 0 ? 0 : (size_t)length;
    return length >= 0;
}

static struct yb_http *
listen_with(const struct yb_http_source *source, char where_out[YB_ADDRESS_TEXT_BYTES])
{
    struct yb_http_options options = {.insecure = true, .connections_max = 32, .source = source};
    char why[YB_ADDRESS_WHY_BYTES];
    struct yb_http *http = NULL;
    struct yb_address bound;

    assert_int_equal(yb_address_parse("127.0.0.1:0", 0, &options.address, why), YB_OK);
    assert_int_equal(yb_http_create(&options, &http, why), YB_OK);
    bound = yb_http_address(http);
    yb_address_format(&bound, where_out);
    return http;
}

static void
stand_init(struct stand *stand)
{
    struct yb_log_options options = {
        .fd = 2, .level = YB_LOG_LEVEL_ERROR, .clock = yb_clock_system()};
    char why[YB_GATHER_WHY_BYTES] = "";

    *stand =
        (struct stand){.own = {.metrics = own_metrics, .nodes = own_nodes, .ready = own_ready}};
    if (yb_curl_create(&stand->curl, why) != YB_OK) {
        print_message("# %s\n", why);
        skip();
    }
    assert_int_equal(yb_log_create(&options, &stand->log), YB_OK);
    stand->dashboard = yb_dashboard_create(stand->log);
    assert_non_null(stand->dashboard);
    stand->own.other = yb_dashboard_answer;
    stand->own.other_context = stand->dashboard;
    stand->there.other = there_answer;
    stand->there.other_context = stand;
    stand->own_http = listen_with(&stand->own, stand->where[0]);
    stand->there_http = listen_with(&stand->there, stand->where[1]);
    (void)snprintf(stand->own_url, sizeof(stand->own_url), "http://%s", stand->where[0]);
    assert_int_equal(yb_dashboard_begin(stand->dashboard,
                                        &(struct yb_gather_options){.self = stand->where[0],
                                                                    .watch = stand->where[1]},
                                        why),
                     YB_OK);
}

static void
stand_fini(struct stand *stand)
{
    yb_dashboard_stop(stand->dashboard);
    yb_http_destroy(&stand->own_http);
    yb_dashboard_destroy(&stand->dashboard);
    yb_http_destroy(&stand->there_http);
    yb_log_destroy(&stand->log);
    yb_curl_destroy(&stand->curl);
}

/* What came back; `enough` ends it. */
struct got {
    char *text;
    size_t length;
    const char *enough; /* As soon as this is in it a second time. */
};

static bool
take(void *context, const void *bytes, size_t length)
{
    struct got *got = context;
    const char *first;

    got->text = realloc(got->text, got->length + length + 1);
    assert_non_null(got->text);
    memcpy(got->text + got->length, bytes, length);
    got->length += length;
    got->text[got->length] = '\0';
    first = got->enough != NULL ? strstr(got->text, got->enough) : NULL;
    return first == NULL || strstr(first + 1, got->enough) == NULL;
}

static long
ask(struct stand *stand, const char *path, struct got *got)
{
    char url[256];
    struct yb_curl_request request = {
        .method = "GET",
        .url = url,
        .connect_ns = 30 * YB_NS_PER_S,
        .timeout_ns = 60 * YB_NS_PER_S,
        .take = take,
        .context = got,
    };
    enum yb_status status;
    long code = 0;

    (void)snprintf(url, sizeof(url), "%s%s", stand->own_url, path);
    status = yb_curl_ask(stand->curl, &request, &code, NULL);
    assert_true(status == YB_OK || (got->enough != NULL && status == YB_CANCELLED));
    return code;
}

static json_t *
ask_json(struct stand *stand, const char *path)
{
    struct got got = {.text = NULL};
    json_t *value;

    assert_int_equal(ask(stand, path, &got), 200);
    value = json_loadb(got.text, got.length, 0, NULL);
    assert_non_null(value);
    free(got.text);
    return value;
}

static const char *
text_of(json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    assert_non_null(text);
    return text;
}

static json_int_t
number_of(json_t *object, const char *name)
{
    assert_true(json_is_integer(json_object_get(object, name)));
    return json_integer_value(json_object_get(object, name));
}

/* Return the latest sample, once there are so many. */
static json_t *
sample_from(struct stand *stand, json_int_t number)
{
    uint64_t until_ns = yb_clock_now(yb_clock_system()) + 60 * YB_NS_PER_S;

    for (;;) {
        json_t *sample = ask_json(stand, "/v1/cluster");

        if (number_of(sample, "number") >= number) {
            return sample;
        }
        json_decref(sample);
        assert_true(yb_clock_now(yb_clock_system()) < until_ns);
        (void)poll(NULL, 0, 20);
    }
}

static void
check_processes(const struct stand *stand, json_t *processes)
{
    json_t *own = json_array_get(processes, 0);
    json_t *there = json_array_get(processes, 1);
    json_t *ghost = json_array_get(processes, 2);

    assert_int_equal(json_array_size(processes), 3);
    assert_string_equal(text_of(own, "where"), stand->where[0]);
    assert_true(json_is_true(json_object_get(own, "up")));
    assert_int_equal(number_of(json_object_get(own, "series"), "node_get_bytes_total"), 5);
    assert_string_equal(text_of(there, "where"), stand->where[1]);
    assert_true(number_of(json_object_get(there, "series"), "engine_requests_total") > 0);
    assert_string_equal(text_of(ghost, "where"), "127.0.0.1:1");
    assert_string_equal(text_of(ghost, "name"), "ghost");
    assert_true(json_is_false(json_object_get(ghost, "up")));
    assert_true(text_of(ghost, "why")[0] != '\0');
}

static void
test_gather__a_sample_is_what_all_processes_say(void **state)
{
    struct stand stand;
    json_int_t before = 1;
    char expected[32];

    (void)state;
    stand_init(&stand);
    json_decref(sample_from(&stand, before)); /* The instances are not known yet. */
    while (before < 4) {
        json_t *sample = sample_from(&stand, before + 1);
        json_t *events = json_object_get(sample, "events");
        json_int_t number = number_of(sample, "number");

        check_processes(&stand, json_object_get(sample, "processes"));
        assert_string_equal(text_of(json_array_get(json_object_get(sample, "nodes"), 0), "name"),
                            "one");
        /* The other process has one event more in each sample; what is no object is left out. */
        assert_int_equal(json_array_size(events), 1);
        (void)snprintf(expected, sizeof(expected), "event %lld", (long long)number);
        assert_string_equal(text_of(json_array_get(events, 0), "text"), expected);
        assert_string_equal(text_of(json_array_get(events, 0), "where"), stand.where[1]);
        assert_true(json_is_array(json_object_get(sample, "instructions")));
        before = number;
        json_decref(sample);
    }
    stand_fini(&stand);
}

static void
test_dashboard__a_stream_has_every_sample_once_in_order(void **state)
{
    struct got got = {.text = NULL, .enough = "\n\ndata: "};
    struct stand stand;
    json_int_t number = 0;

    (void)state;
    stand_init(&stand);
    json_decref(sample_from(&stand, 2)); /* There is something to begin with. */
    (void)ask(&stand, "/v1/cluster/stream", &got);
    for (char *at = got.text, *end; (end = strstr(at, "\n\n")) != NULL; at = end + 2) {
        json_t *sample;

        if (at[0] == ':') { /* Nothing happened for long. */
            continue;
        }
        assert_memory_equal(at, "data: ", 6);
        sample = json_loadb(at + 6, (size_t)(end - at) - 6, 0, NULL);
        assert_non_null(sample);
        assert_int_equal(number_of(sample, "number"), number + 1);
        number++;
        json_decref(sample);
    }
    assert_true(number >= 2);
    free(got.text);
    stand_fini(&stand);
}

static void
test_dashboard__events_are_the_log_after_a_number(void **state)
{
    struct stand stand;
    json_t *told;

    (void)state;
    stand_init(&stand);
    told = ask_json(&stand, "/v1/events?after=7");
    assert_int_equal(number_of(told, "last"), 0); /* Seven were another process's. */
    json_decref(told);
    yb_log_error(stand.log, "m", "cry", yb_log_u64("i", 1));
    yb_log_error(stand.log, "m", "cry", yb_log_u64("i", 2));
    told = ask_json(&stand, "/v1/events?after=1");
    assert_int_equal(number_of(told, "last"), 2);
    assert_int_equal(json_array_size(json_object_get(told, "events")), 1);
    assert_string_equal(text_of(json_array_get(json_object_get(told, "events"), 0), "text"),
                        "m: cry, i 2");
    json_decref(told);
    told = ask_json(&stand, "/v1/events?after=2");
    assert_int_equal(number_of(told, "last"), 2);
    assert_int_equal(json_array_size(json_object_get(told, "events")), 0);
    json_decref(told);
    stand_fini(&stand);
}

static void
test_http__a_number_that_is_none_is_refused_by_name(void **state)
{
    static const char *const wrong[] = {
        "x", "-1", "+1", "1x", "0x1", "", "1.5", "%201", "99999999999999999999999",
    };
    struct stand stand;

    (void)state;
    stand_init(&stand);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        static const char *const paths[] = {"/v1/events", "/v1/cluster/stream"};

        for (size_t j = 0; j < sizeof(paths) / sizeof(paths[0]); j++) {
            struct got got = {.text = NULL};
            char path[96];

            (void)snprintf(path, sizeof(path), "%s?after=%s", paths[j], wrong[i]);
            assert_int_equal(ask(&stand, path, &got), 400);
            assert_non_null(strstr(got.text, "after"));
            free(got.text);
        }
    }
    stand_fini(&stand);
}

static void
test_gather__who_watches_nonsense_is_told(void **state)
{
    static const char *const wrong[] = {"http://x:1/", "host",  "host:",    ":5",
                                        "a:1,,b:2",    "a:1,b", "a:1 ,b:2", "a:x"};
    char why[YB_GATHER_WHY_BYTES];
    struct yb_gather *gather = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(
            yb_gather_create(&(struct yb_gather_options){.self = "127.0.0.1:1", .watch = wrong[i]},
                             &gather, why),
            YB_INVALID);
        assert_non_null(strstr(why, "http.watch"));
    }
    assert_null(gather);
    assert_true(yb_gather_is_port("node-1.rack_2:14780") && yb_gather_is_port("[::1]:14780"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_series__numbers_by_name_without_zeros_and_buckets),
        cmocka_unit_test(test_series__nonsense_is_passed_over),
        cmocka_unit_test(test_gather__a_sample_is_what_all_processes_say),
        cmocka_unit_test(test_dashboard__a_stream_has_every_sample_once_in_order),
        cmocka_unit_test(test_dashboard__events_are_the_log_after_a_number),
        cmocka_unit_test(test_http__a_number_that_is_none_is_refused_by_name),
        cmocka_unit_test(test_gather__who_watches_nonsense_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
