/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of sim/trace.h and sim/trace_gen.h.
 * Method: small texts by hand, each kind of wrong line, and generated traces.
 */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "sim/trace.h"
#include "sim/trace_gen.h"

static enum yb_status
read_text(const char *text, const struct yb_trace_options *options, struct yb_trace **trace_out,
          char message[YB_TRACE_MESSAGE_MAX])
{
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    enum yb_status status;

    assert_non_null(file);
    status = yb_trace_read(file, "text", options, trace_out, message);
    fclose(file);
    return status;
}

static struct yb_trace *
trace_of(const char *text, const struct yb_trace_options *options)
{
    char message[YB_TRACE_MESSAGE_MAX] = "";
    struct yb_trace *trace = NULL;

    if (read_text(text, options, &trace, message) != YB_OK) {
        fail_msg("%s", message);
    }
    return trace;
}

#define LINE(stamp, input, ids)                           \
    "{\"timestamp\": " stamp ", \"input_length\": " input \
    ", \"output_length\": 7, \"hash_ids\": [" ids "]}\n"

static void
test_trace__a_published_line_becomes_a_request(void **state)
{
    struct yb_trace_options options = {.seed = 1};
    struct yb_trace *trace =
        trace_of(LINE("0", "1024", "40, 41") "\n" LINE("2999", "1025", "40, 41, 9"), &options);

    (void)state;
    assert_int_equal(trace->format, YB_TRACE_MOONCAKE);
    assert_int_equal(trace->block_tokens, 512);
    assert_int_equal(trace->request_count, 2);
    assert_int_equal(trace->block_count, 3);
    assert_int_equal(trace->requests[1].arrival_ns, 2999000000ull);
    assert_int_equal(trace->requests[1].output_tokens, 7);
    assert_int_equal(yb_trace_blocks_of(trace, 0), 2);
    assert_int_equal(yb_trace_blocks_of(trace, 1), 3);
    assert_int_equal(trace->blocks[trace->requests[1].first + 1], trace->blocks[1]);
    assert_int_equal(trace->parents[trace->blocks[4]], trace->blocks[1]);
    assert_int_equal(trace->parents[0], YB_TRACE_NONE);
    yb_trace_destroy(&trace);
    assert_null(trace);
}

static void
test_trace__ids_of_blocks_alone_are_hashed_in_a_chain(void **state)
{
    struct yb_trace_options options = {.seed = 1};
    /* The same id twice in a prompt, and after different blocks: other blocks each time. */
    struct yb_trace *trace = trace_of("{\"chat_id\": 3, \"timestamp\": 0.5, \"input_length\": 33, "
                                      "\"output_length\": 1, \"hash_ids\": [7, 7, 7]}\n"
                                      "{\"chat_id\": 4, \"timestamp\": 1.25, \"input_length\": 32, "
                                      "\"output_length\": 1, \"hash_ids\": [7, 8]}\n"
                                      "{\"chat_id\": 4, \"timestamp\": 2, \"input_length\": 17, "
                                      "\"output_length\": 1, \"hash_ids\": [9, 8]}\n",
                                      &options);

    (void)state;
    assert_int_equal(trace->format, YB_TRACE_BAILIAN);
    assert_int_equal(trace->block_tokens, 16);
    assert_int_equal(trace->block_count, 6);
    assert_int_equal(trace->blocks[3], trace->blocks[0]);
    assert_int_not_equal(trace->blocks[4], trace->blocks[6]);
    assert_int_equal(trace->requests[1].arrival_ns, 1250000000ull);
    yb_trace_destroy(&trace);
}

static void
test_trace__a_wrong_line_is_named(void **state)
{
    static const struct {
        const char *text;
        const char *why; /* A part of the message. */
    } cases[] = {
        {"", "there is no request"},
        {"nothing\n", "line 1: no JSON object"},
        {"[1]\n", "must be a JSON object"},
        {LINE("0", "1", "1") "{\n", "line 2: no JSON object"},
        {LINE("-1", "1", "1"), "\"timestamp\" must be a number of milliseconds"},
        {LINE("\"x\"", "1", "1"), "\"timestamp\""},
        {LINE("5", "1", "1") LINE("4", "1", "1"), "line 2: \"timestamp\" is before"},
        {LINE("0", "0", ""), "\"input_length\" must be a whole number, 1 to"},
        {LINE("0", "1.5", "1"), "\"input_length\""},
        {LINE("0", "99999999999", "1"), "\"input_length\""},
        {LINE("0", "513", "1"), "list of 2, one for every 512 tokens"},
        {LINE("0", "1", "\"a\""), "hash_ids[0] must be a whole number"},
        {LINE("0", "513", "1, 1"), "hash_ids[1], 1, follows another block"},
        {LINE("0", "513", "1, 2") LINE("1", "513", "3, 2"), "line 2: hash_ids[1], 2, follows"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"hash_ids\": [1]}\n", "\"output_length\""},
    };
    struct yb_trace_options options = {.seed = 1};

    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[YB_TRACE_MESSAGE_MAX] = "";
        struct yb_trace *trace = NULL;

        assert_int_equal(
            read_text(cases[i].text[0] == '\0' ? "\n" : cases[i].text, &options, &trace, message),
            YB_INVALID);
        assert_null(trace);
        if (strstr(message, cases[i].why) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", message, cases[i].why);
        }
    }
}

static void
test_trace__options_outside_their_bounds_are_refused(void **state)
{
    static const struct yb_trace_options wrong[] = {
        {.block_tokens = YB_TRACE_BLOCK_TOKENS_MAX + 1},
        {.speed = -1.0},
        {.speed = 1001.0},
        {.delay_hit = 1.5},
    };
    char message[YB_TRACE_MESSAGE_MAX];
    struct yb_trace *trace = NULL;

    (void)state;
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_text(LINE("0", "1", "1"), &wrong[i], &trace, message), YB_INVALID);
    }
}

static void
test_trace__arrivals_on_ticks_are_spread_until_the_next(void **state)
{
    struct yb_trace_options options = {.spread = true, .seed = unit_seed("spread")};
    struct yb_trace *trace;
    char text[8192] = "";
    uint64_t distinct = 0;

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"timestamp\": %u, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": "
                 "[%u]}\n",
                 i / 20 * 3000, i);
    }
    trace = trace_of(text, &options);
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t at_ns = trace->requests[i].arrival_ns;

        assert_in_range(at_ns, i / 20 * 3000000000ull, (i / 20 + 1) * 3000000000ull - 1);
        assert_true(i == 0 || at_ns >= trace->requests[i - 1].arrival_ns);
        assert_int_equal(trace->blocks[i], i);
        distinct += i == 0 || at_ns != trace->requests[i - 1].arrival_ns;
    }
    assert_true(distinct > 55);
    yb_trace_destroy(&trace);
    trace = trace_of(LINE("0", "1", "1") LINE("3000", "1", "1"), &options);
    assert_int_equal(trace->requests[1].arrival_ns, 3000000000ull); /* No ticks. */
    yb_trace_destroy(&trace);
}

static void
test_trace__speed_and_keys_change_what_they_say(void **state)
{
    struct yb_trace_options options = {.speed = 2.0, .request_keys = true};
    struct yb_trace *trace =
        trace_of(LINE("0", "513", "1, 2") LINE("3000", "513", "1, 2"), &options);

    (void)state;
    assert_int_equal(trace->requests[1].arrival_ns, 1500000000ull);
    assert_int_equal(trace->block_count, 4);
    assert_int_equal(trace->blocks[2], 2);
    assert_int_equal(trace->parents[3], 2);
    assert_int_equal(trace->parents[2], YB_TRACE_NONE);
    yb_trace_destroy(&trace);
}

/* The share of requests that come soon after one with which they share enough. */
static double
delay_hits(const struct yb_trace *trace, uint32_t common)
{
    uint32_t need = common + (YB_TRACE_DELAY_HIT_TOKENS + 511) / 512;
    uint64_t *last_ns = calloc(trace->block_count, sizeof *last_ns);
    uint32_t hits = 0;

    assert_non_null(last_ns);
    for (uint32_t i = 0; i < trace->request_count; i++) {
        const struct yb_trace_request *request = &trace->requests[i];

        if (yb_trace_blocks_of(trace, i) >= need) {
            uint64_t *last = &last_ns[trace->blocks[request->first + need - 1]];

            hits += *last != 0 && request->arrival_ns - (*last - 1) <= YB_TRACE_DELAY_HIT_NS;
            *last = request->arrival_ns + 1;
        }
    }
    free(last_ns);
    return (double)hits / trace->request_count;
}

static void
test_trace__the_share_of_delay_hits_is_what_was_asked_for(void **state)
{
    uint64_t seed = unit_seed("delay hits");
    struct yb_trace *trace = NULL;
    double possible = 0.0;

    (void)state;
    assert_int_equal(yb_trace_gen("conversation", 4000, seed, &trace), YB_OK);
    assert_true(delay_hits(trace, 1) < 0.05);
    assert_int_equal(yb_trace_delay_hit(trace, 0.9, seed, &possible), YB_INVALID);
    assert_true(possible > 0.1 && possible < 0.9);
    assert_int_equal(yb_trace_delay_hit(trace, 0.12, seed, &possible), YB_OK);
    assert_true(delay_hits(trace, 1) >= 0.115); /* A pair may have got a third between. */
    assert_true(delay_hits(trace, 1) < 0.2);
    for (uint32_t i = 1; i < trace->request_count; i++) {
        assert_true(trace->requests[i].arrival_ns >= trace->requests[i - 1].arrival_ns);
        assert_int_equal(yb_trace_blocks_of(trace, i),
                         (trace->requests[i].input_tokens + 511) / 512);
    }
    yb_trace_destroy(&trace);
}

static void
test_trace__what_is_generated_is_like_what_was_published(void **state)
{
    /* Of the published traces; a trace is one hour, and a seed may differ from it by so much. */
    static const struct {
        const char *kind;
        uint32_t requests;
        double rate, input, output, ideal, once;
    } published[] = {
        {"conversation", 12031, 3.40, 12035, 343, 0.366, 0.758},
        {"synthetic", 3993, 3.91, 15325, 149, 0.640, 0.584},
        {"toolagent", 23608, 6.67, 8596, 182, 0.538, 0.785},
    };
    uint64_t seed = unit_seed("generated");

    (void)state;
    for (uint32_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct yb_trace_figures figures;
        struct yb_trace *trace = NULL;

        assert_int_equal(yb_trace_gen(published[i].kind, 0, seed, &trace), YB_OK);
        assert_int_equal(trace->request_count, published[i].requests);
        assert_int_equal(yb_trace_figures(trace, &figures), YB_OK);
        printf("%s: rate %.2f input %.0f output %.0f ideal %.3f once %.3f\n", published[i].kind,
               figures.rate, figures.input_mean, figures.output_mean, figures.ideal_hit,
               figures.used_once);
        assert_true(fabs(figures.rate / published[i].rate - 1.0) < 0.15);
        assert_true(fabs(figures.input_mean / published[i].input - 1.0) < 0.15);
        assert_true(fabs(figures.output_mean / published[i].output - 1.0) < 0.15);
        assert_true(fabs(figures.ideal_hit - published[i].ideal) < 0.08);
        assert_true(fabs(figures.used_once - published[i].once) < 0.12);
        yb_trace_destroy(&trace);
    }
}

static void
test_trace__a_seed_gives_the_same_trace_and_writing_keeps_it(void **state)
{
    struct yb_trace_options options = {.format = YB_TRACE_MOONCAKE};
    struct yb_trace *first = NULL;
    struct yb_trace *second = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    (void)state;
    assert_non_null(file);
    assert_int_equal(yb_trace_gen("toolagent", 300, 5, &first), YB_OK);
    assert_int_equal(yb_trace_gen("toolagent", 300, 5, &second), YB_OK);
    assert_memory_equal(first->blocks, second->blocks, first->reference_count * 4);
    yb_trace_destroy(&second);
    assert_int_equal(yb_trace_write(first, file), YB_OK);
    fclose(file);
    second = trace_of(text, &options);
    assert_int_equal(second->reference_count, first->reference_count);
    assert_memory_equal(first->blocks, second->blocks, first->reference_count * 4);
    yb_trace_destroy(&first);
    yb_trace_destroy(&second);
    free(text);
    assert_int_equal(yb_trace_gen("nothing", 300, 5, &first), YB_INVALID);
    assert_int_equal(yb_trace_gen("synthetic", YB_TRACE_GEN_REQUESTS_MAX + 1, 5, &first),
                     YB_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace__a_published_line_becomes_a_request),
        cmocka_unit_test(test_trace__ids_of_blocks_alone_are_hashed_in_a_chain),
        cmocka_unit_test(test_trace__a_wrong_line_is_named),
        cmocka_unit_test(test_trace__options_outside_their_bounds_are_refused),
        cmocka_unit_test(test_trace__arrivals_on_ticks_are_spread_until_the_next),
        cmocka_unit_test(test_trace__speed_and_keys_change_what_they_say),
        cmocka_unit_test(test_trace__the_share_of_delay_hits_is_what_was_asked_for),
        cmocka_unit_test(test_trace__what_is_generated_is_like_what_was_published),
        cmocka_unit_test(test_trace__a_seed_gives_the_same_trace_and_writing_keeps_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
