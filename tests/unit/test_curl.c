/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "net/curl.h"
#include "observe/http.h"
#include "unit.h"

#define BODY_BYTES 100000u

/* A server that answers with what it was asked. */
struct echo {
    struct yb_http_source source;
    struct yb_http *http;
    char url[256];
};

static bool
answer(void *context, const struct yb_http_asked *asked, struct yb_http_told *told_out)
{
    const char *name = yb_http_argument(asked, "name");
    size_t room = 512 + asked->body_bytes;
    char *text = malloc(room);
    int length;

    (void)context;
    *told_out = (struct yb_http_told){.code = 203, .type = "text/plain", .text = text};
    if (text != NULL) {
        length = snprintf(text, room, "%s %s %s ", asked->method, asked->path,
                          name != NULL ? name : "-");
        if (asked->body_bytes > 0) {
            memcpy(text + length, asked->body, asked->body_bytes);
        }
        told_out->length = (size_t)length + asked->body_bytes;
    }
    return true;
}

static void
echo_init(struct echo *echo)
{
    struct yb_http_options options = {.insecure = true, .connections_max = 4};
    char why[YB_ADDRESS_WHY_BYTES];
    char text[YB_ADDRESS_TEXT_BYTES];
    struct yb_address bound;

    *echo = (struct echo){.source = {.other = answer}};
    options.source = &echo->source;
    assert_int_equal(yb_address_parse("127.0.0.1:0", 0, &options.address, why), YB_OK);
    assert_int_equal(yb_http_create(&options, &echo->http, why), YB_OK);
    bound = yb_http_address(echo->http);
    yb_address_format(&bound, text);
    (void)snprintf(echo->url, sizeof(echo->url), "http://%s", text);
}

/* What came back, up to a number of bytes. */
struct kept {
    char *bytes;
    size_t length;
    size_t room;
    bool typed;
};

static bool
keep(void *context, const void *bytes, size_t length)
{
    struct kept *kept = context;

    if (length > kept->room - kept->length) {
        return false;
    }
    memcpy(kept->bytes + kept->length, bytes, length);
    kept->length += length;
    return true;
}

static bool
keep_header(void *context, const char *line, size_t length)
{
    static const char typed[] = "Content-Type: text/plain";
    struct kept *kept = context;

    kept->typed = kept->typed || (length == sizeof(typed) - 1 && memcmp(line, typed, length) == 0);
    return true;
}

static struct yb_curl *
make(void)
{
    char error[YB_CURL_ERROR_BYTES];
    struct yb_curl *curl = NULL;
    enum yb_status status = yb_curl_create(&curl, error);

    if (status != YB_OK) {
        assert_int_equal(status, YB_UNSUPPORTED);
        assert_non_null(strstr(error, "install it"));
        print_message("# %s\n", error);
        skip();
    }
    return curl;
}

static struct yb_curl_request
request_for(const char *method, const char *url, struct kept *kept)
{
    return (struct yb_curl_request){
        .method = method,
        .url = url,
        .connect_ns = 30 * YB_NS_PER_S,
        .timeout_ns = 60 * YB_NS_PER_S,
        .take = keep,
        .take_header = keep_header,
        .context = kept,
    };
}

static void
test_curl__a_server_is_asked_what_was_meant(void **state)
{
    struct yb_curl *curl = make();
    struct kept kept = {.bytes = malloc(2 * BODY_BYTES), .room = 2 * BODY_BYTES};
    struct yb_curl_request request;
    char url[512], expected[128];
    char *body = malloc(BODY_BYTES);
    struct echo echo;
    size_t used;
    long code;

    (void)state;
    echo_init(&echo);
    used = (size_t)snprintf(url, sizeof(url), "%s/a?name=", echo.url);
    assert_int_equal(yb_curl_escape("x/ y&z%", false, url + used, sizeof(url) - used), YB_OK);
    memset(body, 'b', BODY_BYTES);

    request = request_for("GET", url, &kept);
    assert_int_equal(yb_curl_ask(curl, &request, &code, NULL), YB_OK);
    assert_int_equal(code, 203);
    assert_true(kept.typed);
    assert_int_equal(kept.length, strlen("GET /a x/ y&z% "));
    assert_memory_equal(kept.bytes, "GET /a x/ y&z% ", kept.length);

    kept.length = 0;
    request = request_for("PUT", url, &kept);
    request.body = body;
    request.body_bytes = BODY_BYTES;
    assert_int_equal(yb_curl_ask(curl, &request, &code, NULL), YB_OK);
    used = (size_t)snprintf(expected, sizeof(expected), "PUT /a x/ y&z%% ");
    assert_int_equal(kept.length, used + BODY_BYTES);
    assert_memory_equal(kept.bytes, expected, used);
    assert_memory_equal(kept.bytes + used, body, BODY_BYTES);

    /* Nothing of one request is left in the next. */
    kept.length = 0;
    request = request_for("DELETE", url, &kept);
    assert_int_equal(yb_curl_ask(curl, &request, &code, NULL), YB_OK);
    assert_int_equal(kept.length, strlen("DELETE /a x/ y&z% "));
    assert_memory_equal(kept.bytes, "DELETE /a x/ y&z% ", kept.length);

    yb_http_destroy(&echo.http);
    yb_curl_destroy(&curl);
    assert_null(curl);
    free(body);
    free(kept.bytes);
}

static void
test_curl__what_goes_wrong_has_its_code_and_a_sentence(void **state)
{
    static const char *const many[YB_CURL_HEADERS_MAX + 1] = {0};
    struct yb_curl *curl = make();
    struct kept kept = {.bytes = malloc(4), .room = 4};
    char error[YB_CURL_ERROR_BYTES], url[300];
    struct yb_curl_request request;
    struct echo echo;
    long code;

    (void)state;
    echo_init(&echo);
    (void)snprintf(url, sizeof(url), "%s/long", echo.url);
    request = request_for("GET", url, &kept);
    assert_int_equal(yb_curl_ask(curl, &request, &code, error), YB_CANCELLED); /* No room. */
    assert_true(strlen(error) > 0);
    request.headers = many;
    request.header_count = YB_CURL_HEADERS_MAX + 1;
    assert_int_equal(yb_curl_ask(curl, &request, &code, error), YB_INVALID);
    request = request_for("GET", "file:///etc/hostname", &kept);
    assert_int_equal(yb_curl_ask(curl, &request, &code, error), YB_INVALID);
    assert_int_equal(kept.length, 0);
    yb_http_destroy(&echo.http);
    request = request_for("GET", url, &kept);
    assert_int_equal(yb_curl_ask(curl, &request, &code, error), YB_UNREACHABLE);
    assert_int_equal(code, 0);
    assert_true(strlen(error) > 0);
    yb_curl_destroy(&curl);
    free(kept.bytes);
}

static void
test_curl__text_is_escaped_within_its_room(void **state)
{
    char out[16];

    (void)state;
    assert_int_equal(yb_curl_escape("a-Z_0.~", false, out, sizeof(out)), YB_OK);
    assert_string_equal(out, "a-Z_0.~");
    assert_int_equal(yb_curl_escape("\xe6/+ ", false, out, sizeof(out)), YB_OK);
    assert_string_equal(out, "%E6%2F%2B%20");
    assert_int_equal(yb_curl_escape("a/b c", true, out, sizeof(out)), YB_OK);
    assert_string_equal(out, "a/b%20c");
    assert_int_equal(yb_curl_escape("abc", true, out, 4), YB_OK);
    assert_int_equal(yb_curl_escape("abcd", true, out, 4), YB_TOO_LARGE);
    assert_int_equal(yb_curl_escape("ab ", true, out, 5), YB_TOO_LARGE);
    assert_int_equal(yb_curl_escape("", true, out, 0), YB_TOO_LARGE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curl__a_server_is_asked_what_was_meant),
        cmocka_unit_test(test_curl__what_goes_wrong_has_its_code_and_a_sentence),
        cmocka_unit_test(test_curl__text_is_escaped_within_its_room),
    };

    return cmocka_run_group_tests_name("curl", tests, NULL, NULL);
}
