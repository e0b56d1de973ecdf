/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys a question is about, and that no question is about more work than it may be.
 */
#include <string.h>

#include "node/match.h"
#include "unit.h"

static enum yb_status
ask(enum yb_wire_match kind, const char *pattern, const void *key, size_t key_bytes)
{
    struct yb_match match;
    enum yb_status status = yb_match_init(&match, kind, pattern, strlen(pattern));

    if (status == YB_OK) {
        status = yb_match_try(&match, key, key_bytes);
        yb_match_fini(&match);
    }
    return status;
}

static enum yb_status
finds(const char *pattern, const char *key)
{
    return ask(YB_WIRE_MATCH_REGEX, pattern, key, strlen(key));
}

static void
test_match__all_a_prefix_and_one(void **state)
{
    static const char binary[] = "a\0b";

    (void)state;
    assert_int_equal(ask(YB_WIRE_MATCH_ALL, "", binary, 3), YB_OK);
    assert_int_equal(ask(YB_WIRE_MATCH_PREFIX, "a", binary, 3), YB_OK);
    assert_int_equal(ask(YB_WIRE_MATCH_PREFIX, "", "", 0), YB_OK);
    assert_int_equal(ask(YB_WIRE_MATCH_PREFIX, "ab", binary, 3), YB_NOT_FOUND);
    assert_int_equal(ask(YB_WIRE_MATCH_PREFIX, "ab", "a", 1), YB_NOT_FOUND);
    assert_int_equal(ask(YB_WIRE_MATCH_KEY, "a.b", "a.b", 3), YB_OK);
    assert_int_equal(ask(YB_WIRE_MATCH_KEY, "a.b", "acb", 3), YB_NOT_FOUND);
    assert_int_equal(ask(YB_WIRE_MATCH_KEY, "a.b", "a.b.", 4), YB_NOT_FOUND);
    assert_int_equal(ask(YB_WIRE_MATCH_KEY, "a.b", "a.", 2), YB_NOT_FOUND);
    assert_int_equal(ask(YB_WIRE_MATCH_REGEX, "b$", binary, 3), YB_OK); /* Behind a NUL, too. */
}

/* Written as for C++'s std::regex, which the known package takes, or for a shell's grep -E. */
static void
test_match__expressions_find_what_they_say(void **state)
{
    static const struct {
        const char *pattern;
        const char *is;
        const char *is_not;
    } rows[] = {
        {"^rd\\d$", "rd7", "rdd"},
        {"^\\D+$", "abc", "ab1"},
        {"^\\w+\\s\\w+$", "a_1 b", "a-1 b"},
        {"^[\\d.]+$", "1.5", "1-5"},
        {"^[\\D]+$", "ab", "a1"},
        {"^[\\w\\-]+$", "a-b_c", "a.b"},
        {"^[^\\s]+$", "ab", "a b"},
        {"^[\\]\\[]+$", "[]", "a"},
        {"^[a\\^]+$", "^a", "b"},
        {"^[\\\\]$", "\\", "/"},
        {"^[a[b]$", "[", "]"},
        {"^[[:digit:]x]+$", "1x2", "1y2"},
        {"^a[^]b$", "a]b", "ab"},
        {"^(?:ab)+$", "abab", "aba"},
        {"^(?:a|b)c$", "bc", "cc"},
        {"^a+?b*?c??$", "aab", "bb"},
        {"^a{2,3}?$", "aaa", "a"},
        {"^a\\+?$", "a+", "a++"},
        {"\\bkey\\b", "a key b", "akeyb"},
        {"^a\\tb$", "a\tb", "atb"},
        {"^\\<a\\>$", "<a>", "a"},
        {"^a\\.b$", "a.b", "acb"},
        {"^\\x41\\u0042$", "AB", "x41u0042"},
        {"^a(?=b)", "ab", "ac"},
        {"^a(?!b)", "ac", "ab"},
        {"^(a|b)-\\1$", "b-b", "a-b"},
        {"^a$", "a", "a\n"},
        {"^layer/[0-9]+@\\d{2}$", "layer/7@12", "layer/7@1"},
        {"", "anything", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (finds(rows[i].pattern, rows[i].is) != YB_OK ||
            (rows[i].is_not != NULL && finds(rows[i].pattern, rows[i].is_not) != YB_NOT_FOUND)) {
            fail_msg("%s", rows[i].pattern);
        }
    }
}

static void
test_match__what_is_no_expression_is_refused(void **state)
{
    static const char *const rows[] = {"(",  "([",        "[ab", "a\\",
                                       "*a", "[[:key:]]", "\\C", "(*UTF)a"};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (finds(rows[i], "a") != YB_INVALID) {
            fail_msg("%s", rows[i]);
        }
    }
}

/* Of those that compile to too much two would come to gigabytes, and one to 30 KiB. The last three
 * try a million ways, or more than anybody could. */
static void
test_match__what_is_too_much_work_is_refused(void **state)
{
    char nested[1024], many[1025];

    (void)state;
    assert_int_equal(finds("(((a{255}){255}){255}){255}", "a"), YB_TOO_LARGE);
    assert_int_equal(finds("((a{1,255}){1,255}){1,100}x", "a"), YB_TOO_LARGE);
    assert_int_equal(finds("(abc){2000}", "a"), YB_TOO_LARGE);
    assert_int_equal(finds("(abc){200}", "a"), YB_NOT_FOUND);
    memset(nested, '(', 300);
    memset(nested + 300, ')', 300);
    nested[600] = '\0';
    assert_int_equal(finds(nested, "a"), YB_TOO_LARGE);
    assert_int_equal(finds("^(.|.|.|.)+[xyz]$", "0123456789"), YB_TOO_LARGE);
    memset(many, 'a', sizeof(many) - 1);
    many[sizeof(many) - 1] = '\0';
    assert_int_equal(finds("^(a|aa)+$", many), YB_OK);
    many[sizeof(many) - 2] = 'b';
    assert_int_equal(finds("^(a|aa)+$", many), YB_TOO_LARGE);
    assert_int_equal(finds("^(a*)*\\1c|b$", many), YB_TOO_LARGE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match__all_a_prefix_and_one),
        cmocka_unit_test(test_match__expressions_find_what_they_say),
        cmocka_unit_test(test_match__what_is_no_expression_is_refused),
        cmocka_unit_test(test_match__what_is_too_much_work_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
