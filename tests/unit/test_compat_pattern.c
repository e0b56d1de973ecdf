/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of the known package find in our words what they find there.
 */
#include <regex.h>
#include <string.h>

#include "compat/pattern.h"
#include "unit.h"

/* Whether what it becomes finds something in `text`. */
static bool
finds(const char *known, const char *text)
{
    char ours[256];
    regex_t regex;
    bool found;

    assert_true(yb_compat_pattern(known, ours, sizeof(ours)));
    assert_int_equal(regcomp(&regex, ours, REG_EXTENDED | REG_NOSUB), 0);
    found = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

static void
test_compat_pattern__finds_the_same(void **state)
{
    static const struct {
        const char *known;
        const char *is;
        const char *is_not;
    } rows[] = {
        {"^rd\\d$", "rd7", "rdd"},
        {"^\\D+$", "abc", "ab1"},
        {"^\\w+\\s\\w+$", "a_1 b", "a-1 b"},
        {"^[\\d.]+$", "1.5", "1-5"},
        {"^[\\w\\-]+$", "a-b_c", "a.b"},
        {"^[^\\s]+$", "ab", "a b"},
        {"^[\\]\\[]+$", "[]", "a"},
        {"^[a\\^]+$", "^a", "b"},
        {"^[\\\\]$", "\\", "/"},
        {"^[a[b]$", "[", "]"},
        {"^[[:digit:]x]+$", "1x2", "1y2"},
        {"^(?:ab)+$", "abab", "aba"},
        {"^(?:a|b)c$", "bc", "cc"},
        {"^a+?b*?c??$", "aab", "bb"},
        {"^a{2,3}?$", "aaa", "a"},
        {"^a\\+?$", "a+", "a++"},
        {"\\bkey\\b", "a key b", "akeyb"},
        {"^a\\tb$", "a\tb", "atb"},
        {"^\\<a\\>$", "<a>", "a"},
        {"^a\\.b$", "a.b", "acb"},
        {"^layer/[0-9]+@\\d{2}$", "layer/7@12", "layer/7@1"},
        {"", "anything", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!finds(rows[i].known, rows[i].is) ||
            (rows[i].is_not != NULL && finds(rows[i].known, rows[i].is_not))) {
            fail_msg("%s", rows[i].known);
        }
    }
}

static void
test_compat_pattern__refuses_what_it_cannot_say(void **state)
{
    static const char *const rows[] = {"a(?=b)",  "a(?!b)", "[\\D]", "[]",  "[^]", "\\x41",
                                       "\\u0041", "\\0",    "a\\",   "[ab", "[a\\"};
    char ours[64];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (yb_compat_pattern(rows[i], ours, sizeof(ours))) {
            fail_msg("%s: %s", rows[i], ours);
        }
    }
    assert_false(yb_compat_pattern("\\d\\d\\d", ours, 15));
    assert_true(yb_compat_pattern("\\d\\d\\d", ours, 16));
    assert_string_equal(ours, "[0-9][0-9][0-9]");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_pattern__finds_the_same),
        cmocka_unit_test(test_compat_pattern__refuses_what_it_cannot_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
