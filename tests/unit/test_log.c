/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants G1-G3 of base/log.h, and what lines look like.
 * Method: a clock that the test turns, a memory file as the sink, golden
 * lines; full pipes, sockets and disks for a sink without room; a random walk of
 * hostile values, in which every line must read back as one JSON object.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

#define STAMP "2026-05-01T12:00:00.000001Z "

struct hand_clock {
    struct yb_clock clock; /* First: the callbacks get its address. */
    uint64_t now_ns;
};

static uint64_t
hand_monotonic(const struct yb_clock *clock)
{
    return ((const struct hand_clock *)clock)->now_ns;
}

static uint64_t
hand_wall(const struct yb_clock *clock)
{
    (void)clock;
    return 1777636800ull * YB_NS_PER_S + 1234;
}

static struct hand_clock hand;

static struct yb_log *
log_to(int fd, enum yb_log_format format)
{
    struct yb_log_options options = {
        .fd = fd, .format = format, .level = YB_LOG_LEVEL_INFO, .clock = &hand.clock};
    struct yb_log *log = NULL;

    hand.clock = (struct yb_clock){.monotonic_ns = hand_monotonic, .wall_ns = hand_wall};
    hand.now_ns = 7;
    assert_int_equal(yb_log_create(&options, &log), YB_OK);
    return log;
}

/* Opened for appending: for a memory file, unlike a regular one, the kernel does not lock the
 * position between two threads that write. */
static int
memory_file(void)
{
    int fd = memfd_create("log", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_APPEND), 0);
    return fd;
}

/* Return what was written so far, NUL-terminated, and start again from nothing. */
static char *
taken_from(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);

    assert_non_null(text);
    assert_true(pread(fd, text, (size_t)size, 0) == size);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_true(lseek(fd, 0, SEEK_SET) == 0);
    return text;
}

static void
assert_written(int fd, const char *want)
{
    char *text = taken_from(fd);

    assert_string_equal(text, want);
    free(text);
}

static uint32_t
lines_in(const char *text)
{
    uint32_t lines = 0;

    for (; *text != '\0'; text++) {
        lines += *text == '\n' ? 1u : 0u;
    }
    return lines;
}

static void
log_everything(struct yb_log *log)
{
    struct yb_id id = {.bytes = {0x1f, [15] = 0xa2}};

    yb_log_warn(log, "lease", "seal refused", yb_log_id("object", id),
                yb_log_status("status", YB_LEASED), yb_log_u64("left_ms", 40),
                yb_log_i64("delta", -3), yb_log_bool("forced", true), yb_log_errno(ECONNREFUSED),
                yb_log_str("address", "[::1]:7000"), yb_log_str("name", "two words"),
                yb_log_str("empty", ""), yb_log_str("none", NULL), yb_log_u64("large", UINT64_MAX));
    yb_log_info(log, "daemon", "started");
    yb_log_debug(log, "daemon", "not shown");
}

static void
test_log__a_text_line_is_the_event_then_names_and_values(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);

    (void)state;
    log_everything(log);
    assert_written(fd, STAMP "warn lease: seal refused, object 1f0000000000000000000000000000a2, "
                             "status LEASED, left_ms 40, delta -3, forced true, "
                             "error \"Connection refused\", address [::1]:7000, "
                             "name \"two words\", empty \"\", none (none), "
                             "large 18446744073709551615\n" STAMP "info daemon: started\n");
    yb_log_destroy(&log);
    assert_null(log);
    close(fd);
}

static void
test_log__a_json_line_keeps_the_types(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_JSON);

    (void)state;
    log_everything(log);
    assert_written(
        fd, "{\"time\":\"2026-05-01T12:00:00.000001Z\",\"level\":\"warn\",\"module\":\"lease\","
            "\"event\":\"seal refused\",\"fields\":{"
            "\"object\":\"1f0000000000000000000000000000a2\",\"status\":\"LEASED\","
            "\"left_ms\":40,\"delta\":-3,\"forced\":true,\"error\":\"Connection refused\","
            "\"address\":\"[::1]:7000\",\"name\":\"two words\",\"empty\":\"\","
            "\"none\":\"(none)\",\"large\":\"18446744073709551615\"}}\n"
            "{\"time\":\"2026-05-01T12:00:00.000001Z\",\"level\":\"info\",\"module\":\"daemon\","
            "\"event\":\"started\",\"fields\":{}}\n");
    yb_log_destroy(&log);
    close(fd);
}

static void
test_log__the_last_lines_are_kept_whatever_the_sink_does(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_JSON);
    struct yb_log_kept kept[YB_LOG_KEPT_MAX + 1];
    char long_value[300];

    (void)state;
    assert_int_equal(yb_log_recent(NULL, 0, kept, 1), 0);
    assert_int_equal(yb_log_recent(log, 0, kept, YB_LOG_KEPT_MAX), 0);
    yb_log_warn(log, "m", "shout", yb_log_u64("count", 3));
    yb_log_debug(log, "m", "whisper");
    memset(long_value, 'x', sizeof(long_value));
    yb_log_error(log, "m", "cry", yb_log_bytes("text", long_value, sizeof(long_value)));
    assert_int_equal(yb_log_recent(log, 0, kept, YB_LOG_KEPT_MAX), 2);
    assert_true(kept[0].number == 1 && kept[0].level == YB_LOG_LEVEL_WARN);
    assert_true(kept[0].wall_ns == hand_wall(&hand.clock));
    assert_string_equal(kept[0].text, "m: shout, count 3");
    assert_true(kept[1].number == 2 && kept[1].level == YB_LOG_LEVEL_ERROR);
    assert_int_equal(strlen(kept[1].text), YB_LOG_KEPT_BYTES - 1);
    assert_int_equal(yb_log_recent(log, 1, kept, YB_LOG_KEPT_MAX), 1);
    assert_true(kept[0].number == 2);
    assert_int_equal(yb_log_recent(log, 2, kept, YB_LOG_KEPT_MAX), 0);
    for (uint64_t i = 0; i < YB_LOG_KEPT_MAX; i++) {
        hand.now_ns += YB_NS_PER_S;
        yb_log_info(log, "m", "turn", yb_log_u64("i", i));
    }
    assert_int_equal(yb_log_recent(log, 0, kept, YB_LOG_KEPT_MAX + 1), YB_LOG_KEPT_MAX);
    assert_string_equal(kept[0].text, "m: turn, i 0");
    assert_true(kept[0].number == 3);
    assert_true(kept[YB_LOG_KEPT_MAX - 1].number == YB_LOG_KEPT_MAX + 2);
    assert_int_equal(yb_log_recent(log, 3, kept, 2), 2);
    assert_string_equal(kept[1].text, "m: turn, i 2");
    yb_log_destroy(&log);
    assert_int_equal(close(fd), 0);
}

static void
test_log__a_value_from_outside_cannot_forge_a_line(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    char *text;

    (void)state;
    yb_log_warn(log, "m", "e", yb_log_str("key", "a\n" STAMP "error m: forged, x \"y\\\r\t"));
    assert_written(fd,
                   STAMP "warn m: e, key \"a\\n" STAMP "error m: forged, x \\\"y\\\\\\r\\t\"\n");
    yb_log_warn(log, "m", "e", yb_log_bytes("key", "\0\x1b[2J\x7f\xe6\x9c\x88", 9));
    assert_written(fd, STAMP "warn m: e, key \"\\x00\\x1b[2J\\x7f\\xe6\\x9c\\x88\"\n");
    yb_log_warn(log, "m", "e", yb_log_str("key", "a, status OK"));
    assert_written(fd, STAMP "warn m: e, key \"a, status OK\"\n");
    yb_log_destroy(&log);
    log = log_to(fd, YB_LOG_JSON);
    yb_log_warn(log, "m", "e", yb_log_bytes("key", "\n\"\xff", 3),
                yb_log_str("moon", "\xe6\x9c\x88"));
    text = taken_from(fd);
    assert_non_null(strstr(text, "{\"key\":\"\\\\n\\\\\\\"\\\\xff\",\"moon\":\"\\u6708\"}"));
    assert_int_equal(lines_in(text), 1);
    free(text);
    yb_log_destroy(&log);
    close(fd);
}

static void
test_log__a_long_value_is_cut_and_says_by_how_much(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    char value[1001];
    char want[400];

    (void)state;
    memset(value, 'a', 1000);
    value[1000] = '\0';
    yb_log_warn(log, "m", "e", yb_log_str("key", value), yb_log_u64("n", 1));
    (void)snprintf(want, sizeof(want), STAMP "warn m: e, key \"%.256s\"[+744 bytes], n 1\n", value);
    assert_written(fd, want);
    yb_log_destroy(&log);
    log = log_to(fd, YB_LOG_JSON);
    /* The 256th byte lies inside a character, which goes as a whole. */
    memcpy(value + 255, "\xe6\x9c\x88", 3);
    yb_log_warn(log, "m", "e", yb_log_str("key", value));
    (void)snprintf(want, sizeof(want),
                   "{\"time\":\"2026-05-01T12:00:00.000001Z\",\"level\":\"warn\",\"module\":\"m\","
                   "\"event\":\"e\",\"fields\":{\"key\":\"%.255s[+745 bytes]\"}}\n",
                   value);
    assert_written(fd, want);
    yb_log_destroy(&log);
    close(fd);
}

#define EIGHT(field) field, field, field, field, field, field, field, field

static void
test_log__a_line_is_never_longer_than_its_limit(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    char value[YB_LOG_VALUE_MAX];
    struct yb_log_field fields[YB_LOG_FIELDS_MAX];
    static const struct yb_log_site site = {YB_LOG_LEVEL_ERROR, "m", "e"};
    static const char names[YB_LOG_FIELDS_MAX][2] = {EIGHT("a"), EIGHT("b")};
    json_t *object;
    char *text;

    (void)state;
    memset(value, '\n', sizeof(value));
    for (uint32_t i = 0; i < YB_LOG_FIELDS_MAX; i++) {
        fields[i] = yb_log_bytes(names[i], value, sizeof(value));
    }
    yb_log_write(log, &site, fields, YB_LOG_FIELDS_MAX);
    text = taken_from(fd);
    assert_int_equal(strlen(text), YB_LOG_LINE_MAX);
    assert_string_equal(text + YB_LOG_LINE_MAX - 7, " [cut]\n");
    free(text);
    yb_log_destroy(&log);
    log = log_to(fd, YB_LOG_JSON);
    memset(value, 1, sizeof(value)); /* Six characters each. */
    yb_log_error(log, "m", "e", yb_log_bytes("a", value, 256), yb_log_bytes("b", value, 256),
                 yb_log_bytes("c", value, 256), yb_log_bytes("d", value, 256));
    text = taken_from(fd);
    assert_true(strlen(text) <= YB_LOG_LINE_MAX);
    object = json_loads(text, 0, NULL);
    assert_int_equal(json_object_size(json_object_get(object, "fields")), 2);
    assert_int_equal(json_integer_value(json_object_get(object, "fields_cut")), 2);
    json_decref(object);
    free(text);
    yb_log_destroy(&log);
    close(fd);
}

static void
test_log__a_secret_is_not_written(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);

    (void)state;
    yb_log_warn(log, "auth", "refused", yb_log_str("secret", "hunter2"),
                yb_log_str("old_secret", "hunter2"), yb_log_u64("password", 7),
                yb_log_str("secret_file", "/etc/yuebing/secret"));
    assert_written(fd, STAMP "warn auth: refused, secret [redacted], old_secret [redacted], "
                             "password [redacted], secret_file /etc/yuebing/secret\n");
    yb_log_destroy(&log);
    close(fd);
}

static void
test_log__the_level_decides_and_can_be_changed(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    enum yb_log_level level = YB_LOG_LEVEL_INFO;

    (void)state;
    assert_false(yb_log_enabled(log, YB_LOG_LEVEL_DEBUG));
    yb_log_set_level(log, YB_LOG_LEVEL_DEBUG);
    yb_log_debug(log, "m", "shown");
    yb_log_trace(log, "m", "compiled out", yb_log_u64("n", 1));
    yb_log_set_level(log, YB_LOG_LEVEL_ERROR);
    yb_log_warn(log, "m", "hidden");
    assert_written(fd, STAMP "debug m: shown\n");
    assert_true(yb_log_level_parse("warn", &level) && level == YB_LOG_LEVEL_WARN);
    assert_false(yb_log_level_parse("Warn", &level));
    assert_false(yb_log_level_parse("", &level));
    assert_string_equal(yb_log_level_name(YB_LOG_LEVEL_TRACE), "trace");
    assert_string_equal(yb_log_level_name((enum yb_log_level)77), "unknown");
    yb_log_destroy(&log);
    close(fd);
}

static void
test_log__no_log_means_no_line_and_no_evaluation(void **state)
{
    uint64_t evaluated = 0;

    (void)state;
    yb_log_error(NULL, "m", "nobody listens", yb_log_u64("n", ++evaluated));
    yb_log_report_suppressed(NULL);
    assert_true(evaluated == 0);
    assert_false(yb_log_enabled(NULL, YB_LOG_LEVEL_ERROR));
}

static void
test_log__options_outside_their_range_are_refused(void **state)
{
    struct yb_log_options good = {
        .fd = memory_file(), .level = YB_LOG_LEVEL_INFO, .clock = yb_clock_system()};
    struct yb_log_options bad = good;
    struct yb_log *log = NULL;

    (void)state;
    bad.fd = -1;
    assert_int_equal(yb_log_create(&bad, &log), YB_INVALID);
    bad = good;
    bad.clock = NULL;
    assert_int_equal(yb_log_create(&bad, &log), YB_INVALID);
    bad = good;
    bad.level = YB_LOG_LEVELS;
    assert_int_equal(yb_log_create(&bad, &log), YB_INVALID);
    assert_null(log);
    close(good.fd);
}

/* ---- the limiter ---- */

static void
shout(struct yb_log *log, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        yb_log_warn(log, "m", "shout", yb_log_u64("i", i));
    }
}

static void
test_log__a_site_that_fires_without_end_is_limited_and_tells_what_it_kept(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    struct yb_log_counts counts;
    char *text;

    (void)state;
    shout(log, 100);
    text = taken_from(fd);
    assert_int_equal(lines_in(text), YB_LOG_LINES_PER_SECOND);
    free(text);
    yb_log_warn(log, "m", "another site");
    assert_written(fd, STAMP "warn m: another site\n");
    hand.now_ns += YB_NS_PER_S - 1;
    shout(log, 1);
    assert_written(fd, "");
    hand.now_ns += 1;
    shout(log, 1);
    assert_written(fd, STAMP "warn m: lines suppressed, event shout, count 96\n" STAMP
                             "warn m: shout, i 0\n");
    yb_log_counts(log, &counts);
    assert_true(counts.emitted[YB_LOG_LEVEL_WARN] == 7);
    assert_true(counts.suppressed[YB_LOG_LEVEL_WARN] == 96);
    assert_true(counts.notices == 1 && counts.dropped == 0);
    yb_log_destroy(&log);
    close(fd);
}

static void
test_log__a_site_that_fell_silent_is_told_about_by_the_timer_and_at_the_end(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);

    (void)state;
    shout(log, 8);
    free(taken_from(fd));
    yb_log_report_suppressed(log);
    assert_written(fd, "");
    hand.now_ns += YB_NS_PER_S;
    yb_log_report_suppressed(log);
    assert_written(fd, STAMP "warn m: lines suppressed, event shout, count 3\n");
    yb_log_report_suppressed(log);
    assert_written(fd, "");
    shout(log, 6);
    free(taken_from(fd));
    yb_log_destroy(&log);
    assert_written(fd, STAMP "warn m: lines suppressed, event shout, count 1\n");
    close(fd);
}

static void
test_log__sites_beyond_the_table_share_one_limit(void **state)
{
    enum { SITES = 4 * YB_LOG_SITES_MAX };
    static struct yb_log_site sites[SITES];
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    struct yb_log_counts counts;

    (void)state;
    for (uint32_t i = 0; i < SITES; i++) {
        sites[i] = (struct yb_log_site){YB_LOG_LEVEL_WARN, "m", "e"};
        yb_log_write(log, &sites[i], NULL, 0);
    }
    yb_log_counts(log, &counts);
    assert_true(counts.emitted[YB_LOG_LEVEL_WARN] <= YB_LOG_SITES_MAX + YB_LOG_LINES_PER_SECOND);
    assert_true(counts.emitted[YB_LOG_LEVEL_WARN] > YB_LOG_SITES_MAX / 2);
    assert_true(counts.emitted[YB_LOG_LEVEL_WARN] + counts.suppressed[YB_LOG_LEVEL_WARN] == SITES);
    free(taken_from(fd));
    yb_log_destroy(&log);
    close(fd);
}

/* ---- sinks without room ---- */

static void
fill_until_dropped(struct yb_log *log)
{
    struct yb_log_counts counts;
    uint32_t lines = 0;

    do {
        hand.now_ns += YB_NS_PER_S;
        yb_log_warn(log, "m", "filler", yb_log_u64("line", lines));
        yb_log_counts(log, &counts);
        assert_true(++lines < 1000000);
    } while (counts.dropped == 0);
    assert_true(counts.emitted[YB_LOG_LEVEL_WARN] == lines - 1); /* G2 */
}

static void
test_log__a_full_pipe_loses_the_line_and_does_not_block(void **state)
{
    int ends[2];
    struct yb_log *log;
    struct yb_log_counts counts;
    char bytes[65536];

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    log = log_to(ends[1], YB_LOG_TEXT);
    fill_until_dropped(log);
    while (read(ends[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) {
    }
    yb_log_error(log, "m", "room again");
    yb_log_counts(log, &counts);
    assert_true(counts.emitted[YB_LOG_LEVEL_ERROR] == 1);
    close(ends[0]);
    yb_log_error(log, "m", "nobody reads: no signal either");
    yb_log_counts(log, &counts);
    assert_true(counts.emitted[YB_LOG_LEVEL_ERROR] == 1 && counts.dropped == 2);
    yb_log_destroy(&log);
    close(ends[1]);
}

static void
test_log__a_full_socket_loses_the_line_and_does_not_block(void **state)
{
    int ends[2];
    struct yb_log *log;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    log = log_to(ends[1], YB_LOG_TEXT);
    fill_until_dropped(log);
    close(ends[0]);
    yb_log_error(log, "m", "nobody reads: no signal either");
    yb_log_destroy(&log);
    close(ends[1]);
}

static void
test_log__a_full_disk_is_counted(void **state)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct yb_log *log;
    struct yb_log_counts counts;

    (void)state;
    if (fd < 0) {
        skip();
    }
    log = log_to(fd, YB_LOG_TEXT);
    yb_log_error(log, "m", "no room");
    yb_log_counts(log, &counts);
    assert_true(counts.dropped == 1 && counts.emitted[YB_LOG_LEVEL_ERROR] == 0);
    yb_log_destroy(&log);
    close(fd);
}

static void
test_log__a_line_that_was_torn_does_not_run_into_the_next(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    struct rlimit before;
    struct rlimit tight;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = (struct rlimit){.rlim_cur = 10, .rlim_max = before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    yb_log_info(log, "m", "torn");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    yb_log_info(log, "m", "whole");
    yb_log_info(log, "m", "whole again");
    assert_written(fd, "2026-05-01\n" STAMP "info m: whole\n" STAMP "info m: whole again\n");
    yb_log_destroy(&log);
    close(fd);
}

/* ---- many ---- */

static void
test_log__hostile_values_always_make_one_json_object_a_line(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_JSON);
    uint64_t rng = unit_seed("log");
    unsigned char value[600];

    (void)state;
    for (uint32_t step = 0; step < 2000; step++) {
        size_t length = unit_random(&rng) % sizeof(value);
        json_t *object;
        char *text;

        for (size_t i = 0; i < length; i++) {
            value[i] = (unsigned char)(unit_random(&rng) >> 56);
        }
        hand.now_ns += YB_NS_PER_S;
        yb_log_info(log, "m", "e", yb_log_bytes("value", value, length));
        text = taken_from(fd);
        object = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        assert_non_null(object);
        assert_int_equal(lines_in(text), 1);
        assert_true(text[strlen(text) - 1] == '\n');
        json_decref(object);
        free(text);
    }
    yb_log_destroy(&log);
    close(fd);
}

enum { WRITERS = 4, WRITES = 2000 };

static void *
write_lines(void *argument)
{
    struct yb_log *log = argument;

    for (uint32_t i = 0; i < WRITES; i++) {
        yb_log_warn(log, "m", "one of many", yb_log_u64("i", i));
        yb_log_debug(log, "m", "perhaps", yb_log_u64("i", i));
        yb_log_set_level(log, i % 2 == 0 ? YB_LOG_LEVEL_DEBUG : YB_LOG_LEVEL_WARN);
    }
    return NULL;
}

static void
test_log__threads_lose_no_line_and_mix_none(void **state)
{
    int fd = memory_file();
    struct yb_log *log = log_to(fd, YB_LOG_TEXT);
    struct yb_log_counts counts;
    pthread_t threads[WRITERS];
    char *rest = NULL;
    char *text;

    (void)state;
    for (uint32_t i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, log), 0);
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    yb_log_counts(log, &counts);
    assert_true(counts.emitted[YB_LOG_LEVEL_WARN] == YB_LOG_LINES_PER_SECOND); /* G3 */
    assert_true(counts.emitted[YB_LOG_LEVEL_WARN] + counts.suppressed[YB_LOG_LEVEL_WARN] ==
                (uint64_t)WRITERS * WRITES); /* G2 */
    assert_true(counts.dropped == 0);
    text = taken_from(fd);
    assert_true(lines_in(text) ==
                counts.emitted[YB_LOG_LEVEL_WARN] + counts.emitted[YB_LOG_LEVEL_DEBUG]);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        assert_true(strncmp(line, STAMP, strlen(STAMP)) == 0);
    }
    free(text);
    yb_log_destroy(&log);
    close(fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__a_text_line_is_the_event_then_names_and_values),
        cmocka_unit_test(test_log__a_json_line_keeps_the_types),
        cmocka_unit_test(test_log__the_last_lines_are_kept_whatever_the_sink_does),
        cmocka_unit_test(test_log__a_value_from_outside_cannot_forge_a_line),
        cmocka_unit_test(test_log__a_long_value_is_cut_and_says_by_how_much),
        cmocka_unit_test(test_log__a_line_is_never_longer_than_its_limit),
        cmocka_unit_test(test_log__a_secret_is_not_written),
        cmocka_unit_test(test_log__the_level_decides_and_can_be_changed),
        cmocka_unit_test(test_log__no_log_means_no_line_and_no_evaluation),
        cmocka_unit_test(test_log__options_outside_their_range_are_refused),
        cmocka_unit_test(test_log__a_site_that_fires_without_end_is_limited_and_tells_what_it_kept),
        cmocka_unit_test(
            test_log__a_site_that_fell_silent_is_told_about_by_the_timer_and_at_the_end),
        cmocka_unit_test(test_log__sites_beyond_the_table_share_one_limit),
        cmocka_unit_test(test_log__a_full_pipe_loses_the_line_and_does_not_block),
        cmocka_unit_test(test_log__a_full_socket_loses_the_line_and_does_not_block),
        cmocka_unit_test(test_log__a_full_disk_is_counted),
        cmocka_unit_test(test_log__a_line_that_was_torn_does_not_run_into_the_next),
        cmocka_unit_test(test_log__hostile_values_always_make_one_json_object_a_line),
        cmocka_unit_test(test_log__threads_lose_no_line_and_mix_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
