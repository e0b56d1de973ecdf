/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants A1-A3 of net/address.h and the wildcard rules.
 * Method: a table of texts with what each must become or why it is refused; the same bytes back
 * from every address, fixed and random; real sockets are not needed for any of it.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "net/address.h"

#define DEFAULT_PORT 14700u

struct good_row {
    const char *text;
    const char *host;
    int kind;
    int port;          /* -1: none. */
    const char *first; /* The first address with the default port; NULL: needs a lookup. */
};

static const struct good_row good_rows[] = {
    {"127.0.0.1:5", "127.0.0.1", YB_ENDPOINT_LITERAL, 5, "127.0.0.1:5"},
    {"127.0.0.1", "127.0.0.1", YB_ENDPOINT_LITERAL, -1, "127.0.0.1:14700"},
    {"10.1.2.3:0", "10.1.2.3", YB_ENDPOINT_LITERAL, 0, "10.1.2.3:0"},
    {"[::1]:65535", "::1", YB_ENDPOINT_LITERAL, 65535, "[::1]:65535"},
    {"::1", "::1", YB_ENDPOINT_LITERAL, -1, "[::1]:14700"},
    {"[::1]", "::1", YB_ENDPOINT_LITERAL, -1, "[::1]:14700"},
    {"2001:DB8:0:0::5", "2001:DB8:0:0::5", YB_ENDPOINT_LITERAL, -1, "[2001:db8::5]:14700"},
    {"[::ffff:10.0.0.1]:7", "::ffff:10.0.0.1", YB_ENDPOINT_LITERAL, 7, "10.0.0.1:7"},
    {"fe80::1%1", "fe80::1", YB_ENDPOINT_LITERAL, -1, "[fe80::1%1]:14700"},
    {"[fe80::1%4294967295]:9", "fe80::1", YB_ENDPOINT_LITERAL, 9, "[fe80::1%4294967295]:9"},
    {"0.0.0.0", "0.0.0.0", YB_ENDPOINT_LITERAL, -1, "0.0.0.0:14700"},
    {"[::]:80", "::", YB_ENDPOINT_LITERAL, 80, "[::]:80"},
    {"*", "*", YB_ENDPOINT_ANY, -1, "[::]:14700"},
    {"*:80", "*", YB_ENDPOINT_ANY, 80, "[::]:80"},
    {":80", "*", YB_ENDPOINT_ANY, 80, "[::]:80"},
    {"localhost", "localhost", YB_ENDPOINT_NAME, -1, "127.0.0.1:14700"},
    {"LocalHost.:81", "LocalHost.", YB_ENDPOINT_NAME, 81, "127.0.0.1:81"},
    {"node-7.cluster_a.example:1", "node-7.cluster_a.example", YB_ENDPOINT_NAME, 1, NULL},
    {"7up", "7up", YB_ENDPOINT_NAME, -1, NULL},
    {"0xcafe.example.", "0xcafe.example.", YB_ENDPOINT_NAME, -1, NULL},
};

struct bad_row {
    const char *text;
    const char *remedy; /* Must be in the message. */
};

static const struct bad_row bad_rows[] = {
    {"", "host:port"},
    {"host:99999", "65535"},
    {"host:65536", "65535"},
    {"host:abc", "decimal number"},
    {"host:123456", "decimal number"},
    {"host:-1", "decimal number"},
    {"host:+1", "decimal number"},
    {"host: 1", "decimal number"},
    {"host:1 ", "decimal number"},
    {"host:080", "decimal number"},
    {"host:0x50", "decimal number"},
    {"host:", "host:port"},
    {":", "host:port"},
    {"127.1", "four decimal numbers"},
    {"127.0.0.256:1", "four decimal numbers"},
    {"127.0.0.1.1", "four decimal numbers"},
    {"0177.0.0.1", "four decimal numbers"},
    {"0x7f000001", "four decimal numbers"},
    {"0x7f.0.0.0x1:80", "four decimal numbers"},
    {"2130706433:80", "four decimal numbers"},
    {"::1:", "[::1]:14700"},
    {"1:2:3", "[::1]:14700"},
    {"::1%lo", "leave it out"},
    {"::ffff:1.2.3.4%lo", "leave it out"},
    {"fe80::1", "fe80::1%eth0"},
    {"[fe80::1]:80", "fe80::1%eth0"},
    {"fe80::1%", "fe80::1%eth0"},
    {"fe80::1%a-very-long-interface-name", "fe80::1%eth0"},
    {"fe80::1%a/b", "eth0"},
    {"[::1", "[::1]:14700"},
    {"[::1]80", "[::1]:14700"},
    {"[::1]:", "host:port"},
    {"[]", "[::1]:14700"},
    {"[127.0.0.1]:80", "[::1]:14700"},
    {"[localhost]:80", "[::1]:14700"},
    {"[*]:80", "[::1]:14700"},
    {"10.0.0.1%lo", "a host is a name"},
    {"two words:80", "a host is a name"},
    {"http://host", "decimal number"},
    {"-host", "a host is a name"},
    {"host-", "a host is a name"},
    {"a..b", "a host is a name"},
    {".", "a host is a name"},
    {"**", "a host is a name"},
    {"h\x80st", "a host is a name"},
};

static struct yb_endpoint_text
parsed(const char *text)
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES] = "";

    if (yb_endpoint_parse(text, &endpoint, why) != YB_OK) {
        fail_msg("%s", why);
    }
    return endpoint;
}

static struct yb_address
literal(const char *text)
{
    struct yb_address address = {.family = YB_ADDRESS_NONE};
    char why[YB_ADDRESS_WHY_BYTES] = "";

    if (yb_address_parse(text, DEFAULT_PORT, &address, why) != YB_OK) {
        fail_msg("%s", why);
    }
    return address;
}

static void
test_address__each_shape_means_one_thing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good_rows) / sizeof(good_rows[0]); i++) {
        const struct good_row *row = &good_rows[i];
        struct yb_endpoint_text endpoint = parsed(row->text);
        struct yb_address_list list = {.count = 0};
        char text[YB_ADDRESS_TEXT_BYTES];
        char why[YB_ADDRESS_WHY_BYTES] = "";

        assert_string_equal(endpoint.host, row->host);
        assert_int_equal(endpoint.kind, row->kind);
        assert_int_equal(endpoint.has_port ? endpoint.port : -1, row->port);
        assert_int_equal(yb_endpoint_needs_lookup(&endpoint), row->first == NULL);
        if (row->first != NULL) {
            assert_int_equal(yb_endpoint_resolve(&endpoint, DEFAULT_PORT, &list, why), YB_OK);
            yb_address_format(&list.items[0], text);
            assert_string_equal(text, row->first);
            assert_int_equal(list.count, row->kind == YB_ENDPOINT_LITERAL ? 1 : 2);
        }
    }
}

static void
test_address__nonsense_is_refused_with_its_text_and_a_remedy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(bad_rows[0]); i++) {
        struct yb_endpoint_text endpoint;
        struct yb_endpoint_text before;
        char why[YB_ADDRESS_WHY_BYTES] = "";
        char quoted[64];

        memset(&endpoint, 0x5a, sizeof(endpoint));
        before = endpoint;
        if (yb_endpoint_parse(bad_rows[i].text, &endpoint, why) != YB_INVALID) {
            fail_msg("taken: %s", bad_rows[i].text);
        }
        assert_memory_equal(&endpoint, &before, sizeof(endpoint)); /* A3 */
        (void)snprintf(quoted, sizeof(quoted), "address \"%.*s",
                       (int)strcspn(bad_rows[i].text, "\x80"), bad_rows[i].text);
        if (strstr(why, quoted) == NULL || strstr(why, bad_rows[i].remedy) == NULL) {
            fail_msg("%s: %s", bad_rows[i].text, why);
        }
    }
}

static void
test_address__a_long_or_binary_text_is_refused_in_a_short_printable_sentence(void **state)
{
    struct yb_endpoint_text endpoint;
    char text[4096];
    char why[YB_ADDRESS_WHY_BYTES];

    (void)state;
    for (size_t length = 60; length < sizeof(text); length++) {
        memset(text, 'a', length);
        text[0] = '\x1b';
        text[length] = '\0';
        assert_int_equal(yb_endpoint_parse(text, &endpoint, why), YB_INVALID);
        assert_true(strlen(why) < YB_ADDRESS_WHY_BYTES);
        assert_null(strchr(why, '\x1b'));
    }
    memset(text, 'a', 253);
    for (size_t i = 50; i < 253; i += 50) {
        text[i] = '.';
    }
    (void)snprintf(text + 253, sizeof(text) - 253, ":14700");
    assert_int_equal(yb_endpoint_parse(text, &endpoint, why), YB_OK); /* The longest name. */
    memcpy(text + 253, "a", 2);
    assert_int_equal(yb_endpoint_parse(text, &endpoint, why), YB_INVALID);
}

static void
test_address__localhost_is_both_loopbacks_without_asking_anybody(void **state)
{
    struct yb_endpoint_text endpoint = parsed("localhost:9");
    struct yb_address_list list;
    char why[YB_ADDRESS_WHY_BYTES] = "";

    (void)state;
    assert_int_equal(yb_endpoint_resolve(&endpoint, 1, &list, why), YB_OK);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.items[0].family, YB_ADDRESS_V4);
    assert_int_equal(list.items[1].family, YB_ADDRESS_V6);
    for (uint32_t i = 0; i < list.count; i++) {
        assert_true(yb_address_is_loopback(&list.items[i]));
        assert_int_equal(list.items[i].port, 9);
    }
}

static void
test_address__a_scope_must_be_an_interface_of_this_machine(void **state)
{
    struct yb_endpoint_text endpoint = parsed("[fe80::1%lo]:7");
    struct yb_address_list list = {.count = 77};
    char why[YB_ADDRESS_WHY_BYTES] = "";

    (void)state;
    if (if_nametoindex("lo") != 0) {
        assert_int_equal(yb_endpoint_resolve(&endpoint, 1, &list, why), YB_OK);
        assert_int_equal(list.items[0].scope_id, if_nametoindex("lo"));
    }
    list.count = 77;
    endpoint = parsed("[fe80::1%nosuchnic0]:7");
    assert_int_equal(yb_endpoint_resolve(&endpoint, 1, &list, why), YB_UNREACHABLE);
    assert_int_equal(list.count, 77);
    assert_non_null(strstr(why, "[fe80::1%nosuchnic0]:7"));
    endpoint = parsed("fe80::1%0");
    assert_int_equal(yb_endpoint_resolve(&endpoint, 1, &list, why), YB_UNREACHABLE);
    endpoint = parsed("fe80::1%4294967296");
    assert_int_equal(yb_endpoint_resolve(&endpoint, 1, &list, why), YB_UNREACHABLE);
}

static void
test_address__a_name_without_an_address_is_unreachable_and_named(void **state)
{
    struct yb_endpoint_text endpoint = parsed("no-such-host.invalid:7");
    struct yb_address_list list = {.count = 77};
    char why[YB_ADDRESS_WHY_BYTES] = "";

    (void)state;
    assert_int_equal(setenv("RES_OPTIONS", "timeout:1 attempts:1", 1), 0);
    if (yb_endpoint_resolve(&endpoint, 1, &list, why) == YB_OK) {
        skip(); /* A name server here answers even what RFC 6761 says does not exist. */
    }
    assert_int_equal(list.count, 77);
    assert_non_null(strstr(why, "no-such-host.invalid"));
}

static void
test_address__what_names_no_one_machine_is_never_published(void **state)
{
    static const char *const never[] = {
        "0.0.0.0:80", "[::]:80",      "[::ffff:0.0.0.0]:80", "10.0.0.1:0",
        "0.1.2.3:80", "224.0.0.1:80", "[ff02::1]:80",        "255.255.255.255:80",
    };
    static const char *const fine[] = {"127.0.0.1:80", "[::1]:80", "10.0.0.1:80",
                                       "[2001:db8::1]:80"};
    struct yb_address address = {.family = YB_ADDRESS_NONE};

    (void)state;
    assert_false(yb_address_publishable(&address));
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        address = literal(never[i]);
        assert_false(yb_address_publishable(&address));
        assert_false(yb_address_connectable(&address));
        assert_non_null(yb_address_why_unpublishable(&address));
    }
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        address = literal(fine[i]);
        assert_true(yb_address_publishable(&address));
        assert_null(yb_address_why_unpublishable(&address));
    }
    address = literal("[fe80::1%1]:80");
    assert_true(yb_address_connectable(&address));
    assert_false(yb_address_publishable(&address));
    address = literal("[::]:80");
    assert_true(yb_address_is_wildcard(&address));
    address = literal("0.0.0.0:80");
    assert_true(yb_address_is_wildcard(&address));
    address = literal("[::1]:80");
    assert_false(yb_address_is_wildcard(&address));
}

static void
test_address__only_the_machine_itself_is_loopback(void **state)
{
    static const char *const inside[] = {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"};
    static const char *const outside[] = {"0.0.0.0",          "::",       "128.0.0.1",
                                          "10.127.0.1",       "::7f00:1", "::1:1",
                                          "::ffff:126.0.0.1", "100::1",   "fe80::1%1"};
    struct yb_address by_hand = {.family = YB_ADDRESS_V6};

    (void)state;
    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
        struct yb_address address = literal(inside[i]);

        assert_true(yb_address_is_loopback(&address));
    }
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        struct yb_address address = literal(outside[i]);

        assert_false(yb_address_is_loopback(&address));
    }
    assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", by_hand.ip), 1);
    assert_true(yb_address_is_loopback(&by_hand));
}

static void
test_address__mapped_and_plain_ipv4_are_one_address(void **state)
{
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(99)};
    struct sockaddr_storage storage = {0};
    struct yb_address address;
    struct yb_address plain = literal("10.9.8.7:99");

    (void)state;
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.9.8.7", &mapped.sin6_addr), 1);
    mapped.sin6_scope_id = 5;
    memcpy(&storage, &mapped, sizeof(mapped));
    assert_int_equal(yb_address_from_sockaddr(&storage, &address), YB_OK);
    assert_memory_equal(&address, &plain, sizeof(address)); /* A1 */
    storage.ss_family = AF_UNIX;
    assert_int_equal(yb_address_from_sockaddr(&storage, &address), YB_INVALID);
    assert_memory_equal(&address, &plain, sizeof(address));
}

static struct yb_address
random_address(uint64_t *seed)
{
    struct yb_address address = {.port = (uint16_t)unit_random(seed)};
    uint32_t bytes = unit_random(seed) % 2 == 0 ? 4 : 16;

    address.family = bytes == 4 ? YB_ADDRESS_V4 : YB_ADDRESS_V6;
    for (uint32_t i = 0; i < bytes; i++) {
        address.ip[i] = unit_random(seed) % 3 == 0 ? (uint8_t)unit_random(seed) : 0;
    }
    if (bytes == 16) {
        address.ip[0] |= 0x20; /* Never mapped. */
    }
    if (bytes == 16 && unit_random(seed) % 3 == 0) {
        address.ip[0] = 0xfe;
        address.ip[1] = 0x80;
        address.scope_id = (uint32_t)unit_random(seed) | 1u;
    } else if (bytes == 16 && address.ip[0] == 0xfe) {
        address.ip[0] = 0x20;
    }
    return address;
}

static void
test_address__every_address_survives_text_and_sockaddr(void **state)
{
    uint64_t seed = unit_seed("address");
    struct yb_address previous = random_address(&seed);

    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        struct yb_address address = random_address(&seed);
        struct yb_address back;
        struct sockaddr_storage storage;
        socklen_t length = 0;
        char text[YB_ADDRESS_TEXT_BYTES];
        char why[YB_ADDRESS_WHY_BYTES] = "";
        int order = yb_address_compare(&address, &previous);

        yb_address_format(&address, text);
        back = literal(text);
        assert_memory_equal(&address, &back, sizeof(address)); /* A2 */
        yb_address_to_sockaddr(&address, &storage, &length);
        assert_int_equal(length, storage.ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                                              : sizeof(struct sockaddr_in6));
        assert_int_equal(yb_address_from_sockaddr(&storage, &back), YB_OK);
        assert_true(yb_address_equal(&address, &back));
        assert_int_equal(order == 0, memcmp(&address, &previous, sizeof(address)) == 0);
        assert_int_equal(order > 0, yb_address_compare(&previous, &address) < 0);
        assert_int_equal(strlen(why), 0);
        previous = address;
    }
}

static void
test_address__default_ports_lie_below_those_of_outgoing_connections(void **state)
{
    static const unsigned ports[] = {YB_PORT_SERVE, YB_PORT_NODE, YB_PORT_DIRECTORY,
                                     YB_PORT_CONDUCTOR, YB_PORT_HTTP};

    (void)state;
    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
        assert_in_range(ports[i], 1024, 32767);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(ports[i], ports[j]);
        }
    }
}

static void
test_address__host_and_port_are_joined_with_brackets_where_they_are_missing(void **state)
{
    char text[16];

    (void)state;
    assert_int_equal(yb_address_join("name", "80", text, sizeof(text)), YB_OK);
    assert_string_equal(text, "name:80");
    assert_int_equal(yb_address_join("::1", "80", text, sizeof(text)), YB_OK);
    assert_string_equal(text, "[::1]:80");
    assert_int_equal(yb_address_join("[::1]", "80", text, sizeof(text)), YB_OK);
    assert_string_equal(text, "[::1]:80");
    assert_int_equal(yb_address_join("12345678901", "123", text, sizeof(text)), YB_OK);
    assert_int_equal(yb_address_join("12345678901", "1234", text, sizeof(text)), YB_TOO_LARGE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address__each_shape_means_one_thing),
        cmocka_unit_test(test_address__nonsense_is_refused_with_its_text_and_a_remedy),
        cmocka_unit_test(
            test_address__a_long_or_binary_text_is_refused_in_a_short_printable_sentence),
        cmocka_unit_test(test_address__localhost_is_both_loopbacks_without_asking_anybody),
        cmocka_unit_test(test_address__a_scope_must_be_an_interface_of_this_machine),
        cmocka_unit_test(test_address__a_name_without_an_address_is_unreachable_and_named),
        cmocka_unit_test(test_address__what_names_no_one_machine_is_never_published),
        cmocka_unit_test(test_address__only_the_machine_itself_is_loopback),
        cmocka_unit_test(test_address__mapped_and_plain_ipv4_are_one_address),
        cmocka_unit_test(
            test_address__host_and_port_are_joined_with_brackets_where_they_are_missing),
        cmocka_unit_test(test_address__every_address_survives_text_and_sockaddr),
        cmocka_unit_test(test_address__default_ports_lie_below_those_of_outgoing_connections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
