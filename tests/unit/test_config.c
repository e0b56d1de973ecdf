/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: which source wins, and that nothing unknown or out of range is let in.
 * Method: command lines, environments and files of the test's own; every row is
 * walked; a random walk sets rows from all sources against a trivial model.
 */
#include "unit.h"

#include <string.h>
#include <unistd.h>

#include "base/config.h"

#define WORDS_MAX 16

/* One start of a process. */
struct start {
    char *argv[WORDS_MAX];
    int argc;
    const char *environment[WORDS_MAX];
    unsigned variables;
    struct yb_config_extra extras[2];
    uint32_t sections;
    struct yb_config config;
    int rest;
    char message[YB_CONFIG_MESSAGE_MAX];
};

static char program[] = "yuebing";

static void
begin(struct start *start)
{
    memset(start, 0, sizeof(*start));
    start->argv[start->argc++] = program;
    start->sections = YB_CONFIG_IN_ALL;
    start->extras[0] = (struct yb_config_extra){.name = "json"};
    start->extras[1] = (struct yb_config_extra){.name = "conns", .argument = "N"};
}

/* Words live as long as the test. */
static void
word(struct start *start, const char *text)
{
    char *copy = test_malloc(strlen(text) + 1);

    assert_true(start->argc < WORDS_MAX - 1);
    memcpy(copy, text, strlen(text) + 1);
    start->argv[start->argc++] = copy;
}

static void
variable(struct start *start, const char *text)
{
    assert_true(start->variables < WORDS_MAX - 1);
    start->environment[start->variables++] = text;
}

static enum yb_status
load(struct start *start)
{
    char *words[WORDS_MAX];
    union {
        const char **given;
        char *const *taken;
    } environment = {.given = start->environment};
    struct yb_config_input input = {
        .argc = start->argc,
        .argv = start->argv,
        .environment = environment.taken,
        .sections = start->sections,
        .extras = start->extras,
        .extra_count = 2,
    };
    enum yb_status status;

    memcpy(words, start->argv, sizeof(words));
    status = yb_config_load(&input, &start->config, &start->rest, start->message);
    /* What is freed is what was allocated: getopt only reorders. */
    for (int i = 1; i < start->argc; i++) {
        bool found = false;

        for (int j = 1; j < start->argc; j++) {
            found = found || words[i] == start->argv[j];
        }
        assert_true(found);
    }
    return status;
}

static void
end(struct start *start)
{
    for (int i = 1; i < start->argc; i++) {
        test_free(start->argv[i]);
    }
}

static void
expect_refusal(struct start *start, const char *offending, const char *also)
{
    struct yb_config before;

    memset(&start->config, 0x5a, sizeof(start->config));
    before = start->config;
    assert_int_equal(load(start), YB_INVALID);
    if (strstr(start->message, offending) == NULL || strstr(start->message, also) == NULL) {
        fail_msg("\"%s\" should name \"%s\" and \"%s\"", start->message, offending, also);
    }
    assert_memory_equal(&start->config, &before, sizeof(before));
    end(start);
}

static void
refuse_option(const char *option, const char *offending, const char *also)
{
    struct start start;

    begin(&start);
    word(&start, option);
    expect_refusal(&start, offending, also);
}

static void
refuse_variable(const char *assignment, const char *offending, const char *also)
{
    struct start start;

    begin(&start);
    variable(&start, assignment);
    expect_refusal(&start, offending, also);
}

static void
refuse_file(const char *text, const char *offending, const char *also)
{
    struct yb_config config;
    struct yb_config before;
    char message[YB_CONFIG_MESSAGE_MAX] = "";

    yb_config_init(&config);
    before = config;
    assert_int_equal(yb_config_parse_file(&config, "test.ini", text, strlen(text), message),
                     YB_INVALID);
    if (strstr(message, offending) == NULL || strstr(message, also) == NULL) {
        fail_msg("\"%s\" should name \"%s\" and \"%s\"", message, offending, also);
    }
    assert_memory_equal(&config, &before, sizeof(before));
}

/* Write a file that lives until remove_file. */
static void
write_file(const char *text, char path_out[64])
{
    int fd;

    snprintf(path_out, 64, "/tmp/yuebing-config-XXXXXX");
    fd = mkstemp(path_out);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void
test_config__every_row_has_its_default_and_a_unique_name(void **state)
{
    struct yb_config config;

    (void)state;
    yb_config_init(&config);
    assert_string_equal(config.net_listen, "127.0.0.1:14700");
    assert_int_equal(config.net_workers, 1);
    assert_int_equal(config.net_handshake_timeout_ms, 3000);
    assert_true(config.net_byte_credits == 64ull << 20);
    assert_true(config.net_data_bytes_max == 1ull << 40);
    assert_int_equal(config.auth_role, YB_CONFIG_AUTH_ROLE_CLIENT);
    assert_false(config.auth_insecure);
    assert_true(yb_id_is_none(config.cluster_id));
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];
        size_t length = strlen(row->name);
        char name[YB_CONFIG_NAME_MAX];
        char other[YB_CONFIG_NAME_MAX];

        assert_int_equal(row->type == YB_CONFIG_TYPE_MS,
                         length > 3 && strcmp(row->name + length - 3, "_ms") == 0);
        assert_int_not_equal(row->help[0], '\0');
        for (unsigned j = 0; j < 2 * YB_CONFIG_ROWS; j++) {
            const struct yb_config_row *compared = &yb_config_rows()[j / 2];

            if (j / 2 == i || (j % 2 != 0 && compared->alias[0] == '\0')) {
                continue;
            }
            yb_config_environment_name(row, row->alias[0] != '\0', name);
            yb_config_environment_name(compared, j % 2 != 0, other);
            assert_string_not_equal(name, other);
        }
    }
}

static void
test_config__every_value_reads_back_as_it_was_written(void **state)
{
    struct yb_config config;
    char text[YB_CONFIG_TEXT_MAX];
    char again[YB_CONFIG_TEXT_MAX];
    char message[YB_CONFIG_MESSAGE_MAX];
    struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_OPTION};

    (void)state;
    yb_config_init(&config);
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        yb_config_value_text(&config, i, text);
        assert_int_equal(yb_config_set(&config, i, text, origin, message), YB_OK);
        yb_config_value_text(&config, i, again);
        assert_string_equal(text, again);
    }
    assert_int_equal(yb_config_set(&config, YB_CONFIG_ROW_cluster_id,
                                   "00112233445566778899AABBCCDDEEFF", origin, message),
                     YB_OK);
    yb_config_value_text(&config, YB_CONFIG_ROW_cluster_id, text);
    assert_string_equal(text, "00112233445566778899aabbccddeeff");
}

static void
test_config__units_are_understood(void **state)
{
    static const struct {
        enum yb_config_row_index row;
        const char *text;
        const char *canonical;
    } good[] = {
        {YB_CONFIG_ROW_net_drain_ms, "0", "0"},
        {YB_CONFIG_ROW_net_drain_ms, "250", "250"},
        {YB_CONFIG_ROW_net_drain_ms, "250ms", "250"},
        {YB_CONFIG_ROW_net_drain_ms, "5s", "5000"},
        {YB_CONFIG_ROW_net_drain_ms, "600s", "600000"},
        {YB_CONFIG_ROW_net_data_bytes_max, "4096", "4k"},
        {YB_CONFIG_ROW_net_data_bytes_max, "4097", "4097"},
        {YB_CONFIG_ROW_net_data_bytes_max, "3M", "3m"},
        {YB_CONFIG_ROW_net_data_bytes_max, "1024g", "1t"},
        {YB_CONFIG_ROW_net_data_bytes_max, "256t", "256t"},
        {YB_CONFIG_ROW_auth_insecure, "yes", "true"},
        {YB_CONFIG_ROW_auth_insecure, "off", "false"},
        {YB_CONFIG_ROW_net_io, "io_uring", "io_uring"},
        {YB_CONFIG_ROW_net_workers, "256", "256"},
    };
    struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_OPTION};
    struct yb_config config;
    char text[YB_CONFIG_TEXT_MAX];
    char message[YB_CONFIG_MESSAGE_MAX];

    (void)state;
    yb_config_init(&config);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(yb_config_set(&config, good[i].row, good[i].text, origin, message), YB_OK);
        yb_config_value_text(&config, good[i].row, text);
        assert_string_equal(text, good[i].canonical);
    }
}

static void
test_config__a_bad_value_refuses_with_the_text_and_what_is_allowed(void **state)
{
    static const struct {
        const char *option;
        const char *offending;
        const char *also;
    } bad[] = {
        {"--net-workers=0", "\"0\"", "1 .. 256 threads"},
        {"--net-workers=257", "\"257\"", "--net-workers: net.workers"},
        {"--net-workers=", "\"\"", "1 .. 256"},
        {"--net-workers=-1", "\"-1\"", "1 .. 256"},
        {"--net-workers=+1", "\"+1\"", "1 .. 256"},
        {"--net-workers= 1", "\" 1\"", "1 .. 256"},
        {"--net-workers=1 ", "\"1 \"", "1 .. 256"},
        {"--net-workers=1k", "\"1k\"", "1 .. 256"},
        {"--net-workers=0x10", "\"0x10\"", "1 .. 256"},
        {"--net-workers=4294967297", "\"4294967297\"", "1 .. 256"},
        {"--net-workers=18446744073709551617", "\"18446744073709551617\"", "1 .. 256"},
        {"--net-byte-credits=1", "\"1\"", "64k .. 64g bytes"},
        {"--net-data-bytes-max=257t", "\"257t\"", "4k .. 256t bytes"},
        {"--net-data-bytes-max=18014398509481984k", "\"18014398509481984k\"", "256t"},
        {"--net-data-bytes-max=1q", "\"1q\"", "256t"},
        {"--net-data-bytes-max=1kb", "\"1kb\"", "256t"},
        {"--net-data-bytes-max=k", "\"k\"", "256t"},
        {"--net-drain-ms=601s", "\"601s\"", "0 .. 600000 ms"},
        {"--net-drain-ms=5m", "\"5m\"", "0 .. 600000 ms"},
        {"--net-drain-ms=1.5s", "\"1.5s\"", "0 .. 600000 ms"},
        {"--net-io=eppol", "\"eppol\"", "did you mean epoll?"},
        {"--net-io=windows", "\"windows\"", "auto, epoll or io_uring"},
        {"--net-io=AUTO", "\"AUTO\"", "auto, epoll or io_uring"},
        {"--net-listen=", "\"\"", "1 .. 255"},
        {"--net-congestion=a\nb", "\"a\\x0ab\"", "1 .. 15"},
        {"--net-congestion=abcdefghijklmnop", "abcdefghijklmnop", "1 .. 15"},
        {"--auth-insecure=maybe", "\"maybe\"", "true or false"},
        {"--cluster-id=abc", "\"abc\"", "32 hex digits"},
        {"--log-level=loud", "\"loud\"", "error, warn, info, debug or trace"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        refuse_option(bad[i].option, bad[i].offending, bad[i].also);
    }
    refuse_variable("YUEBING_NET_WORKERS=many", "\"many\"", "YUEBING_NET_WORKERS: ");
    refuse_variable("YUEBING_SECRET_FILE=a\tb", "\"a\\x09b\"", "YUEBING_SECRET_FILE: ");
    refuse_file("[net]\n\nworkers = many\n", "\"many\"", "test.ini:3: ");
}

static void
test_config__a_number_outside_its_row_refuses_on_both_ends(void **state)
{
    struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_OPTION};
    struct yb_config config;
    char text[32];
    char message[YB_CONFIG_MESSAGE_MAX];

    (void)state;
    yb_config_init(&config);
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];

        if (row->type != YB_CONFIG_TYPE_U32 && row->type != YB_CONFIG_TYPE_U64 &&
            row->type != YB_CONFIG_TYPE_MS && row->type != YB_CONFIG_TYPE_BYTES) {
            continue;
        }
        snprintf(text, sizeof(text), "%llu", (unsigned long long)row->low);
        assert_int_equal(yb_config_set(&config, i, text, origin, message), YB_OK);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)row->high);
        assert_int_equal(yb_config_set(&config, i, text, origin, message), YB_OK);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)row->high + 1);
        assert_int_equal(yb_config_set(&config, i, text, origin, message), YB_INVALID);
        if (row->low > 0) {
            snprintf(text, sizeof(text), "%llu", (unsigned long long)row->low - 1);
            assert_int_equal(yb_config_set(&config, i, text, origin, message), YB_INVALID);
        }
        assert_true(row->type != YB_CONFIG_TYPE_U32 || row->high <= UINT32_MAX);
    }
}

static void
test_config__an_unknown_name_refuses_and_the_nearest_is_offered(void **state)
{
    (void)state;
    refuse_option("--net-wrokers=2", "\"--net-wrokers\"", "did you mean --net-workers?");
    refuse_option("--confg=x", "\"--confg\"", "did you mean --config?");
    refuse_option("--jsno", "\"--jsno\"", "did you mean --json?");
    refuse_option("--quite-something-else", "\"--quite-something-else\"", "unknown option");
    refuse_option("-x", "\"-x\"", "unknown option");
    refuse_option("--net-handshake=5", "\"--net-handshake\"", "--net-handshake-timeout-ms?");
    refuse_option("--net-worker=5", "\"--net-worker\"", "--net-workers?");
    refuse_option("--json=yes", "--json=yes", "takes no value");
    refuse_option("--conns", "--conns", "needs a value");
    refuse_option("--net-workers", "--net-workers", "needs a value");
    refuse_variable("YUEBING_NET_WORKRES=2", "YUEBING_NET_WORKRES",
                    "did you mean YUEBING_NET_WORKERS?");
    refuse_variable("YUEBING_SECRET=/s", "YUEBING_SECRET", "unknown environment variable");
    refuse_variable("YUEBING_=1", "\"YUEBING_\"", "unknown environment variable");
    refuse_variable("YUEBING_NET_WORKERS", "\"\"", "1 .. 256");
    refuse_file("[net]\nwrokers = 2\n", "test.ini:2: ", "did you mean workers?");
    refuse_file("# x\n[nte]\nworkers = 2\n", "test.ini:2: unknown section \"nte\"", "[net]");
    refuse_file("[nte]\n", "test.ini:1: unknown section \"nte\"", "[net]");
    refuse_file("[]\n", "test.ini:1: unknown section \"\"", "");
    refuse_file("workers = 2\n", "test.ini:1: ", "\"workers\"");
    refuse_file("[net]\nworkers\n", "test.ini:2: ", "name = value");
    refuse_file("[net\nworkers = 1\n", "test.ini:1: ", "name = value");
    refuse_file("[config]\nfile = other.ini\n", "test.ini:2: ", "\"other.ini\"");
    refuse_file("[net]\nworkers = 2\nworkers = 2\n", "test.ini:3: ", "second time");
}

static void
test_config__an_option_of_another_section_refuses(void **state)
{
    struct start start;

    (void)state;
    begin(&start);
    start.sections = YB_CONFIG_IN(config) | YB_CONFIG_IN(log);
    word(&start, "--net-workers=2");
    expect_refusal(&start, "--net-workers", "no effect on this command");

    /* The environment is shared by all commands. */
    begin(&start);
    start.sections = YB_CONFIG_IN(log);
    variable(&start, "YUEBING_NET_WORKERS=2");
    word(&start, "--log-level=debug");
    assert_int_equal(load(&start), YB_OK);
    assert_int_equal(start.config.net_workers, 2);
    end(&start);
}

static void
test_config__a_stronger_source_wins_and_is_remembered(void **state)
{
    struct start start;
    char path[64];
    char option[96];
    char expected[96];
    char text[YB_CONFIG_ORIGIN_MAX];

    (void)state;
    write_file("; all of them\n[net]\n  workers = 2 ; two\nspin_us = 2\nidle_ping_ms = 2s\n"
               "[log]\nlevel = warn\n",
               path);
    begin(&start);
    snprintf(option, sizeof(option), "--config=%s", path);
    word(&start, option);
    variable(&start, "HOME=/nowhere");
    variable(&start, "YUEBING_NET_SPIN_US=3");
    variable(&start, "YUEBING_NET_WORKERS=3");
    variable(&start, "YUEBING_TEST_SEED=anything");
    word(&start, "--workers");
    word(&start, "4");
    word(&start, "bench");
    word(&start, "--json");
    word(&start, "--conns=32");
    word(&start, "net");
    word(&start, "--insecure");
    assert_int_equal(load(&start), YB_OK);
    unlink(path);

    assert_int_equal(start.config.net_workers, 4);
    assert_int_equal(start.config.net_spin_us, 3);
    assert_int_equal(start.config.net_idle_ping_ms, 2000);
    assert_int_equal(start.config.net_drain_ms, 1500);
    assert_int_equal(start.config.log_level, YB_CONFIG_LOG_LEVEL_WARN);
    assert_true(start.config.auth_insecure);
    assert_string_equal(start.extras[0].value_out, "");
    assert_string_equal(start.extras[1].value_out, "32");
    assert_int_equal(start.argc - start.rest, 2);
    assert_string_equal(start.argv[start.rest], "bench");
    assert_string_equal(start.argv[start.rest + 1], "net");

    yb_config_origin_text(&start.config, YB_CONFIG_ROW_net_workers, text);
    assert_string_equal(text, "--workers");
    yb_config_origin_text(&start.config, YB_CONFIG_ROW_net_spin_us, text);
    assert_string_equal(text, "YUEBING_NET_SPIN_US");
    yb_config_origin_text(&start.config, YB_CONFIG_ROW_net_idle_ping_ms, text);
    snprintf(expected, sizeof(expected), "%s:5", path);
    assert_string_equal(text, expected);
    yb_config_origin_text(&start.config, YB_CONFIG_ROW_net_drain_ms, text);
    assert_string_equal(text, "default");
    end(&start);
}

static void
test_config__a_bad_value_refuses_even_where_a_stronger_source_overrides_it(void **state)
{
    struct start start;

    (void)state;
    begin(&start);
    word(&start, "--net-workers=2");
    variable(&start, "YUEBING_NET_WORKERS=300");
    expect_refusal(&start, "\"300\"", "YUEBING_NET_WORKERS");

    begin(&start);
    word(&start, "--net-workers=300");
    word(&start, "--net-workers=2");
    expect_refusal(&start, "\"300\"", "--net-workers");

    begin(&start);
    word(&start, "--net-workers=3");
    word(&start, "--workers=2");
    assert_int_equal(load(&start), YB_OK);
    assert_int_equal(start.config.net_workers, 2);
    end(&start);

    begin(&start);
    word(&start, "--secret-file=/s");
    variable(&start, "YUEBING_SECRET_FILE=/a");
    variable(&start, "YUEBING_AUTH_SECRET_FILE=/b");
    expect_refusal(&start, "auth.secret_file", "second time");
}

static void
test_config__a_file_that_cannot_be_read_is_named(void **state)
{
    struct start start;

    (void)state;
    begin(&start);
    variable(&start, "YUEBING_CONFIG=/nonexistent/yuebing.ini");
    assert_int_equal(load(&start), YB_IO);
    assert_non_null(strstr(start.message, "/nonexistent/yuebing.ini: cannot be read"));
    end(&start);
    begin(&start);
    word(&start, "--config=/");
    assert_int_equal(load(&start), YB_IO);
    assert_non_null(strstr(start.message, "/: cannot be read: Is a directory"));
    end(&start);
}

static void
test_config__long_lines_and_nul_bytes_in_a_file_refuse(void **state)
{
    struct yb_config config;
    char message[YB_CONFIG_MESSAGE_MAX];
    char text[512];
    int length;

    (void)state;
    yb_config_init(&config);
    for (int fill = 150; fill < 400; fill++) {
        enum yb_status status;

        length = snprintf(text, sizeof(text), "[auth]\nsecret_file = /%0*d\n", fill, 0);
        yb_config_init(&config);
        status = yb_config_parse_file(&config, "test.ini", text, (size_t)length, message);
        if (status == YB_OK) {
            assert_int_equal(strlen(config.auth_secret_file), (size_t)fill + 1);
        } else {
            assert_true(fill > 170);
            assert_non_null(strstr(message, "test.ini:2: "));
        }
    }
    assert_int_equal(yb_config_parse_file(&config, "test.ini", "[net]\nio =\0epoll\n", 16, message),
                     YB_INVALID);
    assert_non_null(strstr(message, "test.ini:2: "));
    /* No newline at the end, carriage returns, a byte order mark, indentation: all harmless. */
    yb_config_init(&config);
    length = snprintf(text, sizeof(text), "\xef\xbb\xbf[net]\r\n\tworkers: 7\r\n   spin_us=8");
    assert_int_equal(yb_config_parse_file(&config, "test.ini", text, (size_t)length, message),
                     YB_OK);
    assert_int_equal(config.net_workers, 7);
    assert_int_equal(config.net_spin_us, 8);
}

/* Model: for each row the strongest source that spoke, and the last text of that source. */
static void
test_config__a_random_order_of_sources_ends_as_the_strongest_says(void **state)
{
    uint64_t random = unit_seed("config sources");

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct yb_config config;
        uint32_t model_value = 1;
        int model_source = YB_CONFIG_SOURCE_DEFAULT;
        bool seen[4] = {false};
        char text[16];
        char message[YB_CONFIG_MESSAGE_MAX];

        yb_config_init(&config);
        for (int step = 0; step < 6; step++) {
            int source = 1 + (int)(unit_random(&random) % 3);
            uint32_t value = (uint32_t)(unit_random(&random) % 300);
            bool good =
                value >= 1 && value <= 256 && (source == YB_CONFIG_SOURCE_OPTION || !seen[source]);
            struct yb_config_origin origin = {.source = (enum yb_config_source)source};

            snprintf(text, sizeof(text), "%u", value);
            assert_int_equal(
                yb_config_set(&config, YB_CONFIG_ROW_net_workers, text, origin, message),
                good ? YB_OK : YB_INVALID);
            seen[source] = seen[source] || good;
            if (good && source >= model_source) {
                model_source = source;
                model_value = value;
            }
            assert_int_equal(config.net_workers, model_value);
            assert_int_equal(config.origins[YB_CONFIG_ROW_net_workers].source, model_source);
        }
    }
}

static void
test_config__nearness_counts_slips_and_gives_up_on_strangers(void **state)
{
    struct yb_config_nearest nearest;

    (void)state;
    yb_config_nearest_init(&nearest, "dcotor");
    yb_config_nearest_offer(&nearest, "config");
    yb_config_nearest_offer(&nearest, "doctor");
    assert_string_equal(nearest.best, "doctor");
    assert_int_equal(nearest.distance, 1);
    yb_config_nearest_init(&nearest, "bench");
    yb_config_nearest_offer(&nearest, "doctor");
    assert_string_equal(nearest.best, "");
    yb_config_nearest_init(&nearest, "");
    yb_config_nearest_offer(&nearest, "a");
    assert_string_equal(nearest.best, "");
    yb_config_nearest_init(&nearest,
                           "a-word-that-is-longer-than-any-name-that-there-is-in-the-table");
    yb_config_nearest_offer(&nearest, "word");
    assert_string_equal(nearest.best, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config__every_row_has_its_default_and_a_unique_name),
        cmocka_unit_test(test_config__every_value_reads_back_as_it_was_written),
        cmocka_unit_test(test_config__units_are_understood),
        cmocka_unit_test(test_config__a_bad_value_refuses_with_the_text_and_what_is_allowed),
        cmocka_unit_test(test_config__a_number_outside_its_row_refuses_on_both_ends),
        cmocka_unit_test(test_config__an_unknown_name_refuses_and_the_nearest_is_offered),
        cmocka_unit_test(test_config__an_option_of_another_section_refuses),
        cmocka_unit_test(test_config__a_stronger_source_wins_and_is_remembered),
        cmocka_unit_test(
            test_config__a_bad_value_refuses_even_where_a_stronger_source_overrides_it),
        cmocka_unit_test(test_config__a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(test_config__long_lines_and_nul_bytes_in_a_file_refuse),
        cmocka_unit_test(test_config__a_random_order_of_sources_ends_as_the_strongest_says),
        cmocka_unit_test(test_config__nearness_counts_slips_and_gives_up_on_strangers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
