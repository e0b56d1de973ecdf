/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a bucket is where its URL, or else the environment, says, and who we are there comes from
 * the environment or a file, and from nowhere else. Method: an environment of the test's own.
 */
#include "unit.h"

#include <string.h>
#include <unistd.h>

#include "tier/object/s3_settings.h"

#define NAMES_MAX 8u

static struct {
    const char *name;
    const char *value;
} set[NAMES_MAX];

static const char *
environment(const char *name)
{
    for (uint32_t i = 0; i < NAMES_MAX; i++) {
        if (set[i].name != NULL && strcmp(set[i].name, name) == 0) {
            return set[i].value;
        }
    }
    return NULL;
}

/* Let a name have a value, among those that are set; NULL: no name has one any more. */
static void
let(const char *name, const char *value)
{
    uint32_t i = 0;

    if (name == NULL) {
        memset(set, 0, sizeof(set));
        return;
    }
    while (set[i].name != NULL && strcmp(set[i].name, name) != 0) {
        i++;
        assert_true(i < NAMES_MAX);
    }
    set[i].name = name;
    set[i].value = value;
}

static void
let_key(const char *key, const char *secret)
{
    let("AWS_ACCESS_KEY_ID", key);
    let("AWS_SECRET_ACCESS_KEY", secret);
}

static struct yb_object_s3_settings
read_well(const char *url)
{
    struct yb_object_s3_settings settings;
    char why[YB_OBJECT_WHY_BYTES] = "";

    assert_int_equal(yb_object_s3_settings_read(url, environment, &settings, why), YB_OK);
    return settings;
}

static void
read_badly(const char *url, enum yb_status status, const char *word)
{
    struct yb_object_s3_settings settings;
    char why[YB_OBJECT_WHY_BYTES] = "";

    assert_int_equal(yb_object_s3_settings_read(url, environment, &settings, why), status);
    assert_non_null(strstr(why, word));
}

static void
test_object_settings__the_url_goes_before_the_environment(void **state)
{
    struct yb_object_s3_settings settings;

    (void)state;
    let(NULL, NULL);
    let_key("k", "s");
    let("AWS_REGION", "eu-west-1");
    let("AWS_ENDPOINT_URL", "http://other:9000/");
    let("AWS_CA_BUNDLE", "/etc/ca");
    settings = read_well("s3://bucket/a/b/?region=us-west-2&endpoint=https://here:1/&ca=/my/ca");
    assert_string_equal(settings.bucket, "bucket");
    assert_string_equal(settings.prefix, "a/b/");
    assert_string_equal(settings.region, "us-west-2");
    assert_string_equal(settings.endpoint, "https://here:1");
    assert_string_equal(settings.ca_file, "/my/ca");
    settings = read_well("s3://bucket");
    assert_string_equal(settings.prefix, "");
    assert_string_equal(settings.region, "eu-west-1");
    assert_string_equal(settings.endpoint, "http://other:9000");
    assert_string_equal(settings.ca_file, "/etc/ca");
}

static void
test_object_settings__a_service_of_ones_own_has_buckets_in_its_path(void **state)
{
    (void)state;
    let(NULL, NULL);
    let_key("k", "s");
    assert_true(read_well("s3://bucket").host_style);
    assert_string_equal(read_well("s3://bucket").endpoint, "https://s3.us-east-1.amazonaws.com");
    assert_false(read_well("s3://bucket?endpoint=http://here:1").host_style);
    assert_true(read_well("s3://bucket?endpoint=http://here:1&style=host").host_style);
    assert_false(read_well("s3://bucket?style=path").host_style);
}

static void
test_object_settings__credentials_come_from_the_environment_or_a_file(void **state)
{
    char path[] = "/tmp/yuebing-credentials-XXXXXX";
    struct yb_object_s3_settings settings;
    static const char text[] = "# mine\n[default]\naws_access_key_id=one\n"
                               "aws_secret_access_key =  first \n\n[ lent ]\n[lent]\r\n"
                               "aws_access_key_id = two\r\naws_secret_access_key = second\r\n"
                               "aws_session_token = for a while\n[half]\naws_access_key_id = x\n"
                               "[token]\naws_access_key_id = three\naws_secret_access_key = third\n"
                               "aws_session_token = abc==\n";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
    assert_int_equal(close(fd), 0);
    let(NULL, NULL);
    let("AWS_SHARED_CREDENTIALS_FILE", path);
    settings = read_well("s3://bucket");
    assert_string_equal(settings.key, "one");
    assert_string_equal(settings.secret, "first");
    settings = read_well("s3://bucket?profile=token");
    assert_string_equal(settings.key, "three");
    assert_string_equal(settings.token, "abc==");
    let("AWS_PROFILE", "token");
    assert_string_equal(read_well("s3://bucket").secret, "third");
    let_key("k", "s"); /* The environment's go before the files' ... */
    assert_string_equal(read_well("s3://bucket").key, "k");
    assert_string_equal(read_well("s3://bucket?profile=default").key, "one"); /* ... but not ... */
    read_badly("s3://bucket?profile=half", YB_DENIED, "[half]"); /* ... before a profile's. */
    read_badly("s3://bucket?profile=lent", YB_DENIED, "[lent]"); /* A token with spaces in it. */
    assert_int_equal(unlink(path), 0);
    read_badly("s3://bucket?profile=default", YB_DENIED, "AWS_ACCESS_KEY_ID");
}

static void
test_object_settings__what_is_wrong_is_named_and_no_secret_is(void **state)
{
    (void)state;
    let(NULL, NULL);
    read_badly("s3://bucket", YB_DENIED, "~/.aws/credentials");
    let_key("k", "s\r\nx-evil: 1");
    read_badly("s3://bucket", YB_DENIED, "no credentials");
    let_key("k", "s");
    read_badly("http://bucket", YB_INVALID, "no s3:// URL");
    read_badly("s3://b", YB_INVALID, "3 to 63");
    read_badly("s3://bucket/a b", YB_INVALID, "prefix");
    read_badly("s3://bucket?endpoint=ftp://x", YB_INVALID, "endpoint");
    read_badly("s3://bucket?endpoint=http://user@x", YB_INVALID, "endpoint");
    read_badly("s3://bucket?region=a/b", YB_INVALID, "region");
    read_badly("s3://bucket?style=both", YB_INVALID, "path or host");
    read_badly("s3://bucket?secret=x", YB_INVALID, "~/.aws/credentials");
    read_badly("s3://bucket?region", YB_INVALID, "pairs");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object_settings__the_url_goes_before_the_environment),
        cmocka_unit_test(test_object_settings__a_service_of_ones_own_has_buckets_in_its_path),
        cmocka_unit_test(test_object_settings__credentials_come_from_the_environment_or_a_file),
        cmocka_unit_test(test_object_settings__what_is_wrong_is_named_and_no_secret_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
