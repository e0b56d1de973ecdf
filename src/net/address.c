/* SPDX-License-Identifier: Apache-2.0
 *
 * The resolver of the C library takes far more than anybody means: 127.1, 0x7f000001 and
 * 017700000001 are all 127.0.0.1 to it. A host whose last label looks like a number must
 * therefore be four decimal numbers, as in the WHATWG URL standard, and never reaches it.
 */
#include "net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define TEXT_BYTES_MAX  300u /* The longest name, brackets, scope and port with room to spare. */
#define NAME_BYTES_MAX  253u /* RFC 1035, without the root's dot. */
#define LABEL_BYTES_MAX 63u
#define QUOTE_BYTES_MAX 64u /* How much of a refused text is repeated. */

/* What one parse carries around. */
struct parse {
    const char *text;
    struct yb_endpoint_text endpoint;
    char *why_out;
};

/* Write `text: sentence` with the text quoted, shortened and made printable. */
static void
explain(char why_out[YB_ADDRESS_WHY_BYTES], const char *text, const char *sentence,
        const char *detail)
{
    char quote[QUOTE_BYTES_MAX + 4];
    size_t used = 0;

    while (text[used] != '\0' && used < QUOTE_BYTES_MAX) {
        quote[used] = text[used] >= ' ' && text[used] <= '~' ? text[used] : '?';
        used++;
    }
    (void)snprintf(quote + used, sizeof(quote) - used, "%s", text[used] != '\0' ? "..." : "");
    (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES, "address \"%s\": %s%s", quote, sentence, detail);
}

static enum yb_status
refuse(const struct parse *parse, const char *sentence)
{
    explain(parse->why_out, parse->text, sentence, "");
    return YB_INVALID;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool
is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool
is_link_local(const struct yb_address *address)
{
    return address->family == YB_ADDRESS_V6 && address->ip[0] == 0xfe &&
           (address->ip[1] & 0xc0) == 0x80;
}

static bool
is_mapped(const uint8_t ip[16])
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(ip, prefix, sizeof(prefix)) == 0;
}

/* A1 */
static void
normalise(struct yb_address *address)
{
    if (address->family == YB_ADDRESS_V6 && is_mapped(address->ip)) {
        memmove(address->ip, address->ip + 12, 4);
        memset(address->ip + 4, 0, 12);
        address->family = YB_ADDRESS_V4;
    }
    if (!is_link_local(address)) {
        address->scope_id = 0;
    }
}

/* Read the digits behind the last colon. */
static enum yb_status
parse_port(struct parse *parse, const char *digits)
{
    uint32_t port = 0;
    size_t length = strlen(digits);

    if (length == 0) {
        return refuse(parse, "no port after the colon; write host:port, or host alone");
    }
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(digits[i]) || length > 5 || (digits[0] == '0' && length > 1)) {
            return refuse(parse, "a port is a decimal number from 0 to 65535, as in host:14700");
        }
        port = port * 10 + (uint32_t)(digits[i] - '0');
    }
    if (port > UINT16_MAX) {
        return refuse(parse, "the port is above 65535; write one from 0 to 65535");
    }
    parse->endpoint.port = (uint16_t)port;
    parse->endpoint.has_port = true;
    return YB_OK;
}

/* Take `length` bytes as the name or number of an interface. */
static enum yb_status
parse_scope(struct parse *parse, const char *scope, size_t length)
{
    if (length == 0 || length >= sizeof(parse->endpoint.scope)) {
        return refuse(parse,
                      "an interface of 1 to 15 characters follows the %, as in fe80::1%eth0");
    }
    for (size_t i = 0; i < length; i++) {
        if (scope[i] <= ' ' || scope[i] > '~' || strchr("/%[]:", scope[i]) != NULL) {
            return refuse(parse, "the text after the % is no interface name, such as eth0");
        }
    }
    memcpy(parse->endpoint.scope, scope, length);
    return YB_OK;
}

/* Take `length` bytes, without brackets, as an IPv6 address with or without a scope. */
static enum yb_status
parse_v6(struct parse *parse, const char *host, size_t length)
{
    struct yb_endpoint_text *endpoint = &parse->endpoint;
    const char *percent = memchr(host, '%', length);
    size_t ip_bytes = percent == NULL ? length : (size_t)(percent - host);
    enum yb_status status = YB_OK;

    if (ip_bytes >= INET6_ADDRSTRLEN) {
        return refuse(parse, "no IPv6 address; write one such as ::1, or [::1]:14700 with a port");
    }
    memcpy(endpoint->host, host, ip_bytes);
    if (inet_pton(AF_INET6, endpoint->host, endpoint->literal.ip) != 1) {
        return refuse(parse, "no IPv6 address; write one such as ::1, or [::1]:14700 with a port");
    }
    endpoint->kind = YB_ENDPOINT_LITERAL;
    endpoint->literal.family = YB_ADDRESS_V6;
    normalise(&endpoint->literal);
    if (percent != NULL) {
        status = parse_scope(parse, percent + 1, length - ip_bytes - 1);
    }
    if (status != YB_OK) {
        return status;
    }
    if (is_link_local(&endpoint->literal) && percent == NULL) {
        return refuse(parse, "a link-local address needs its interface, as in fe80::1%eth0");
    }
    if (!is_link_local(&endpoint->literal) && percent != NULL) {
        return refuse(parse, "only a link-local address (fe80::) has an interface; leave it out");
    }
    return YB_OK;
}

/* Return whether the last label is a number to the C library, decimal, octal or hexadecimal. */
static bool
ends_in_number(const char *host)
{
    const char *label = strrchr(host, '.');

    label = label == NULL ? host : label + 1;
    if (label[0] == '0' && (label[1] == 'x' || label[1] == 'X')) {
        return label[2 + strspn(label + 2, "0123456789abcdefABCDEF")] == '\0';
    }
    return label[0] != '\0' && label[strspn(label, "0123456789")] == '\0';
}

static bool
is_host_name(const char *host)
{
    size_t length = strlen(host);
    size_t label_bytes = 0;

    if (length > 0 && host[length - 1] == '.') {
        length--; /* The root may be spelled out. */
    }
    if (length == 0 || length > NAME_BYTES_MAX) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        bool at_end = i + 1 == length || host[i + 1] == '.';

        if (host[i] == '.') {
            if (label_bytes == 0) {
                return false;
            }
            label_bytes = 0;
            continue;
        }
        label_bytes++;
        /* The underscore is no RFC 1123, but compose files and SRV-like names are full of it. */
        if (!is_letter(host[i]) && !is_digit(host[i]) && host[i] != '_' &&
            (host[i] != '-' || label_bytes == 1 || at_end)) {
            return false;
        }
        if (label_bytes > LABEL_BYTES_MAX) {
            return false;
        }
    }
    return label_bytes > 0;
}

/* Take `length` bytes as an IPv4 address, a name, or every interface. */
static enum yb_status
parse_host(struct parse *parse, const char *host, size_t length)
{
    struct yb_endpoint_text *endpoint = &parse->endpoint;

    if (length == 0 || (length == 1 && host[0] == '*')) {
        endpoint->kind = YB_ENDPOINT_ANY;
        endpoint->host[0] = '*';
        return YB_OK;
    }
    if (length >= sizeof(endpoint->host)) {
        return refuse(parse, "a host name has at most 253 characters");
    }
    memcpy(endpoint->host, host, length);
    if (ends_in_number(endpoint->host)) {
        if (inet_pton(AF_INET, endpoint->host, endpoint->literal.ip) != 1) {
            return refuse(parse, "an IPv4 address is four decimal numbers from 0 to 255, "
                                 "as in 127.0.0.1:14700");
        }
        endpoint->kind = YB_ENDPOINT_LITERAL;
        endpoint->literal.family = YB_ADDRESS_V4;
        return YB_OK;
    }
    if (!is_host_name(endpoint->host)) {
        return refuse(parse, "a host is a name of letters, digits, - and . , an IPv4 address, "
                             "or an IPv6 address in brackets");
    }
    endpoint->kind = YB_ENDPOINT_NAME;
    return YB_OK;
}

static enum yb_status
parse_bracketed(struct parse *parse)
{
    const char *inside = parse->text + 1;
    const char *close = strchr(inside, ']');
    enum yb_status status;

    if (close == NULL) {
        return refuse(parse, "the ] is missing; write [::1] or [::1]:14700");
    }
    if (close[1] != '\0' && close[1] != ':') {
        return refuse(parse, "only :port may follow the ]; write [::1]:14700");
    }
    status = parse_v6(parse, inside, (size_t)(close - inside));
    if (status == YB_OK && close[1] == ':') {
        status = parse_port(parse, close + 2);
    }
    return status;
}

enum yb_status
yb_endpoint_parse(const char *text, struct yb_endpoint_text *endpoint_out,
                  char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct parse parse = {.text = text, .why_out = why_out};
    const char *colon;
    enum yb_status status;

    YB_ASSERT(text != NULL);
    YB_ASSERT(endpoint_out != NULL && why_out != NULL);
    colon = strchr(text, ':');
    if (text[0] == '\0') {
        return refuse(&parse, "it is empty; write host:port, or * for every interface");
    }
    if (strnlen(text, TEXT_BYTES_MAX + 1) > TEXT_BYTES_MAX) {
        return refuse(&parse, "a host name has at most 253 characters");
    }
    if (text[0] == '[') {
        status = parse_bracketed(&parse);
    } else if (colon != NULL && strchr(colon + 1, ':') != NULL) {
        status = parse_v6(&parse, text, strlen(text));
    } else {
        status = parse_host(&parse, text, colon == NULL ? strlen(text) : (size_t)(colon - text));
        if (status == YB_OK && colon != NULL) {
            status = parse_port(&parse, colon + 1);
        }
    }
    if (status != YB_OK) {
        return status;
    }
    parse.endpoint.literal.port =
        parse.endpoint.kind == YB_ENDPOINT_LITERAL ? parse.endpoint.port : 0;
    *endpoint_out = parse.endpoint;
    return YB_OK;
}

void
yb_endpoint_format(const struct yb_endpoint_text *endpoint, char text_out[YB_ENDPOINT_TEXT_BYTES])
{
    bool brackets = strchr(endpoint->host, ':') != NULL;
    int length;

    length = snprintf(text_out, YB_ENDPOINT_TEXT_BYTES, "%s%s%s%s%s", brackets ? "[" : "",
                      endpoint->host, endpoint->scope[0] != '\0' ? "%" : "", endpoint->scope,
                      brackets ? "]" : "");
    YB_ASSERT(length > 0 && (uint32_t)length < YB_ENDPOINT_TEXT_BYTES);
    if (endpoint->has_port) {
        length += snprintf(text_out + length, YB_ENDPOINT_TEXT_BYTES - (uint32_t)length, ":%u",
                           (unsigned)endpoint->port);
    }
    YB_ASSERT((uint32_t)length < YB_ENDPOINT_TEXT_BYTES);
}

enum yb_status
yb_address_join(const char *host, const char *port, char *text_out, size_t size)
{
    bool bare = strchr(host, ':') != NULL && host[0] != '[';
    int length = snprintf(text_out, size, bare ? "[%s]:%s" : "%s:%s", host, port);

    return length > 0 && (size_t)length < size ? YB_OK : YB_TOO_LARGE;
}

static bool
is_localhost(const struct yb_endpoint_text *endpoint)
{
    return endpoint->kind == YB_ENDPOINT_NAME && (strcasecmp(endpoint->host, "localhost") == 0 ||
                                                  strcasecmp(endpoint->host, "localhost.") == 0);
}

bool
yb_endpoint_needs_lookup(const struct yb_endpoint_text *endpoint)
{
    return endpoint->kind == YB_ENDPOINT_NAME && !is_localhost(endpoint);
}

/* Append unless it is there already, or the list is full. */
static void
append(struct yb_address_list *list, const struct yb_address *address)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (yb_address_equal(&list->items[i], address)) {
            return;
        }
    }
    if (list->count < YB_ADDRESS_CANDIDATES_MAX) {
        list->items[list->count++] = *address;
    }
}

/* Complete a literal with its scope and port. */
static enum yb_status
finish_literal(const struct yb_endpoint_text *endpoint, uint16_t port,
               struct yb_address *address_out, char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct yb_address address = endpoint->literal;
    const char *scope = endpoint->scope;

    address.port = port;
    if (scope[0] != '\0' && scope[strspn(scope, "0123456789")] == '\0') {
        unsigned long long index = strtoull(scope, NULL, 10); /* At most 15 digits: it fits. */

        address.scope_id = index > UINT32_MAX ? 0 : (uint32_t)index;
    } else if (scope[0] != '\0') {
        address.scope_id = if_nametoindex(scope);
    }
    if (scope[0] != '\0' && address.scope_id == 0) {
        char text[YB_ENDPOINT_TEXT_BYTES];

        yb_endpoint_format(endpoint, text);
        explain(why_out, text, "this machine has no such interface; `ip link` lists them", "");
        return YB_UNREACHABLE;
    }
    *address_out = address;
    return YB_OK;
}

/* Ask the name service. AI_ADDRCONFIG stays off: with it, a machine whose only IPv6 address is
 * loopback would not resolve ::1's names, and an answer would change with the network. */
static enum yb_status
look_up(const struct yb_endpoint_text *endpoint, uint16_t port, struct yb_address_list *list,
        char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(endpoint->host, NULL, &hints, &found);

    if (error != 0) {
        explain(why_out, endpoint->host, "the name has no address; check it or write an IP: ",
                error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        return error == EAI_MEMORY ? YB_NO_MEMORY : YB_UNREACHABLE;
    }
    for (const struct addrinfo *each = found; each != NULL; each = each->ai_next) {
        struct sockaddr_storage storage = {.ss_family = AF_UNSPEC};
        struct yb_address address;

        if (each->ai_addrlen > sizeof(storage)) {
            continue;
        }
        memcpy(&storage, each->ai_addr, each->ai_addrlen);
        if (yb_address_from_sockaddr(&storage, &address) == YB_OK) {
            address.port = port;
            append(list, &address);
        }
    }
    freeaddrinfo(found);
    if (list->count == 0) {
        explain(why_out, endpoint->host, "the name has neither an IPv4 nor an IPv6 address", "");
        return YB_UNREACHABLE;
    }
    return YB_OK;
}

enum yb_status
yb_endpoint_resolve(const struct yb_endpoint_text *endpoint, uint16_t default_port,
                    struct yb_address_list *list_out, char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct yb_address_list list = {.count = 0};
    uint16_t port = endpoint->has_port ? endpoint->port : default_port;
    struct yb_address v4 = {.family = YB_ADDRESS_V4, .port = port};
    struct yb_address v6 = {.family = YB_ADDRESS_V6, .port = port};
    enum yb_status status = YB_OK;

    YB_ASSERT(list_out != NULL && why_out != NULL);
    YB_ASSERT(endpoint->host[0] != '\0');
    if (endpoint->kind == YB_ENDPOINT_LITERAL) {
        status = finish_literal(endpoint, port, &list.items[0], why_out);
        list.count = 1;
    } else if (endpoint->kind == YB_ENDPOINT_ANY) {
        append(&list, &v6); /* A dual-stack socket serves both; v4 is for machines without v6. */
        append(&list, &v4);
    } else if (is_localhost(endpoint)) {
        /* RFC 6761, 6.3: no server, hosts file or search list may send localhost elsewhere. */
        v4.ip[0] = 127;
        v4.ip[3] = 1;
        v6.ip[15] = 1;
        append(&list, &v4);
        append(&list, &v6);
    } else {
        status = look_up(endpoint, port, &list, why_out);
    }
    if (status == YB_OK) {
        *list_out = list;
    }
    return status;
}

enum yb_status
yb_address_parse(const char *text, uint16_t default_port, struct yb_address *address_out,
                 char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct yb_endpoint_text endpoint;
    enum yb_status status = yb_endpoint_parse(text, &endpoint, why_out);

    if (status != YB_OK) {
        return status;
    }
    if (endpoint.kind != YB_ENDPOINT_LITERAL) {
        explain(why_out, text, "an IP address is needed here, as in 127.0.0.1:14700", "");
        return YB_INVALID;
    }
    return finish_literal(&endpoint, endpoint.has_port ? endpoint.port : default_port, address_out,
                          why_out);
}

void
yb_address_format(const struct yb_address *address, char text_out[YB_ADDRESS_TEXT_BYTES])
{
    char ip[INET6_ADDRSTRLEN] = "";
    char scope[12] = "";

    if (address->family == YB_ADDRESS_NONE) {
        (void)snprintf(text_out, YB_ADDRESS_TEXT_BYTES, "none");
        return;
    }
    if (address->family == YB_ADDRESS_V4) {
        YB_ASSERT(inet_ntop(AF_INET, address->ip, ip, sizeof(ip)) != NULL);
        (void)snprintf(text_out, YB_ADDRESS_TEXT_BYTES, "%s:%u", ip, (unsigned)address->port);
        return;
    }
    YB_ASSERT(address->family == YB_ADDRESS_V6);
    YB_ASSERT(inet_ntop(AF_INET6, address->ip, ip, sizeof(ip)) != NULL);
    if (address->scope_id != 0) {
        (void)snprintf(scope, sizeof(scope), "%%%u", (unsigned)address->scope_id);
    }
    (void)snprintf(text_out, YB_ADDRESS_TEXT_BYTES, "[%s%s]:%u", ip, scope,
                   (unsigned)address->port);
}

bool
yb_address_equal(const struct yb_address *a, const struct yb_address *b)
{
    return yb_address_compare(a, b) == 0;
}

int
yb_address_compare(const struct yb_address *a, const struct yb_address *b)
{
    int order = (int)a->family - (int)b->family;

    if (order == 0) {
        order = memcmp(a->ip, b->ip, sizeof(a->ip));
    }
    if (order == 0) {
        order = (a->scope_id > b->scope_id) - (a->scope_id < b->scope_id);
    }
    return order != 0 ? order : (int)a->port - (int)b->port;
}

bool
yb_address_is_wildcard(const struct yb_address *address)
{
    static const uint8_t zero[16];

    return address->family != YB_ADDRESS_NONE && memcmp(address->ip, zero, sizeof(zero)) == 0;
}

bool
yb_address_is_loopback(const struct yb_address *address)
{
    static const uint8_t one[16] = {[15] = 1};

    if (address->family == YB_ADDRESS_V4) {
        return address->ip[0] == 127;
    }
    /* Mapped ones do not survive normalise(), but a struct may have been filled by hand, and a
     * wrong answer here would open a port to the network. */
    return address->family == YB_ADDRESS_V6 && (memcmp(address->ip, one, sizeof(one)) == 0 ||
                                                (is_mapped(address->ip) && address->ip[12] == 127));
}

/* Return NULL, or why nobody can connect to it. */
static const char *
why_unconnectable(const struct yb_address *address)
{
    bool v4 = address->family == YB_ADDRESS_V4;

    if (address->family == YB_ADDRESS_NONE) {
        return "it is no address";
    }
    if (yb_address_is_wildcard(address)) {
        return "it is a wildcard, which names no machine; name one of the machine's addresses";
    }
    if (address->port == 0) {
        return "port 0 is none; bind first and read the port back";
    }
    if ((v4 && address->ip[0] >= 224) || (!v4 && address->ip[0] == 0xff)) {
        return "it is a multicast or reserved address, which no single process answers";
    }
    if (v4 && address->ip[0] == 0) {
        return "0.0.0.0/8 names no machine; name one of the machine's addresses";
    }
    return NULL;
}

bool
yb_address_connectable(const struct yb_address *address)
{
    return why_unconnectable(address) == NULL;
}

const char *
yb_address_why_unpublishable(const struct yb_address *address)
{
    const char *why = why_unconnectable(address);

    if (why == NULL && is_link_local(address)) {
        why = "a link-local address means something else on every machine; name a global one";
    }
    return why;
}

bool
yb_address_publishable(const struct yb_address *address)
{
    return yb_address_why_unpublishable(address) == NULL;
}

enum yb_status
yb_address_from_sockaddr(const struct sockaddr_storage *storage, struct yb_address *address_out)
{
    struct yb_address address = {.family = YB_ADDRESS_NONE};

    if (storage->ss_family == AF_INET) {
        struct sockaddr_in v4;

        memcpy(&v4, storage, sizeof(v4));
        address.family = YB_ADDRESS_V4;
        address.port = ntohs(v4.sin_port);
        memcpy(address.ip, &v4.sin_addr, sizeof(v4.sin_addr));
    } else if (storage->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;

        memcpy(&v6, storage, sizeof(v6));
        address.family = YB_ADDRESS_V6;
        address.port = ntohs(v6.sin6_port);
        address.scope_id = v6.sin6_scope_id;
        memcpy(address.ip, &v6.sin6_addr, sizeof(v6.sin6_addr));
    } else {
        return YB_INVALID;
    }
    normalise(&address);
    *address_out = address;
    return YB_OK;
}

void
yb_address_to_sockaddr(const struct yb_address *address, struct sockaddr_storage *storage_out,
                       socklen_t *length_out)
{
    memset(storage_out, 0, sizeof(*storage_out));
    if (address->family == YB_ADDRESS_V4) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(address->port)};

        memcpy(&v4.sin_addr, address->ip, sizeof(v4.sin_addr));
        memcpy(storage_out, &v4, sizeof(v4));
        *length_out = sizeof(v4);
    } else {
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                                  .sin6_port = htons(address->port),
                                  .sin6_scope_id = address->scope_id};

        YB_ASSERT(address->family == YB_ADDRESS_V6);
        memcpy(&v6.sin6_addr, address->ip, sizeof(v6.sin6_addr));
        memcpy(storage_out, &v6, sizeof(v6));
        *length_out = sizeof(v6);
    }
}
