/* SPDX-License-Identifier: Apache-2.0
 *
 * address.h -- where a socket is: the text people write, and the value the code uses.
 *
 * Text becomes a value in two steps. yb_endpoint_parse() is pure and strict, and is what a
 * configuration is checked with. yb_endpoint_resolve() turns a parsed host into addresses; it
 * may ask the name service and then blocks.
 *
 *     text                      kind      meaning
 *     127.0.0.1:p  127.0.0.1    literal   IPv4: four decimal numbers, nothing else
 *     [::1]:p  [::1]  ::1       literal   IPv6: brackets wherever a port follows
 *     fe80::1%lo  [fe80::1%lo]:p  literal link-local, which needs its interface
 *     localhost:p  host  host:p  name     RFC 1123; localhost is loopback without any lookup
 *     0.0.0.0:p  [::]:p         literal   every interface: for binding only
 *     *  *:p  :p                any       every interface, IPv6 and IPv4: for binding only
 *     nothing                   refused   "every interface" has to be asked for
 *
 * Without a port the caller's default is used. Port 0 may be bound (the kernel chooses), but
 * neither connected to nor published.
 *
 * Invariants
 *   A1  One place has one value: IPv4-mapped IPv6 is IPv4, and a scope stays only on
 *       link-local IPv6. So equal places compare equal, byte for byte.
 *   A2  What yb_address_format() writes, yb_endpoint_parse() reads back as the same value
 *       (a link-local address needs its scope).
 *   A3  A refused text leaves the output alone and yields a sentence that quotes the text and
 *       says what would be right.
 *
 * Threads   Any function, any thread; no state. yb_endpoint_resolve() blocks unless
 *           yb_endpoint_needs_lookup() says false: elsewhere it belongs in the helper pool.
 * Memory    Plain values, copied.
 */
#ifndef YB_NET_ADDRESS_H
#define YB_NET_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "yuebing/status.h"

/* Default ports. They lie below 32768, where Linux starts handing out ports to outgoing
 * connections: a default above it is now and then already taken by one of them. */
#define YB_PORT_SERVE     14700u
#define YB_PORT_NODE      14701u
#define YB_PORT_DIRECTORY 14702u
#define YB_PORT_CONDUCTOR 14703u
#define YB_PORT_HTTP      14780u

/* Bytes of a formatted address, of a formatted endpoint, and of a refusal, with the NUL. */
#define YB_ADDRESS_TEXT_BYTES  72u
#define YB_ENDPOINT_TEXT_BYTES 288u
#define YB_ADDRESS_WHY_BYTES   256u

/* A name that has more addresses than this is tried on the first ones. */
#define YB_ADDRESS_CANDIDATES_MAX 16u

enum yb_address_family {
    YB_ADDRESS_NONE, /* A zeroed struct: no address. */
    YB_ADDRESS_V4,
    YB_ADDRESS_V6,
};

struct yb_address {
    uint8_t ip[16];    /* Network order; IPv4 uses the first four, the rest is zero. */
    uint32_t scope_id; /* Interface index of a link-local IPv6 address; otherwise 0. */
    uint16_t port;     /* Host order. */
    uint8_t family;    /* enum yb_address_family */
    uint8_t reserved;  /* 0 */
};

_Static_assert(sizeof(struct yb_address) == 24, "no padding: compared by bytes");

struct yb_address_list {
    uint32_t count;
    struct yb_address items[YB_ADDRESS_CANDIDATES_MAX];
};

enum yb_endpoint_kind {
    YB_ENDPOINT_NAME,    /* `host` has to be looked up. */
    YB_ENDPOINT_LITERAL, /* `literal` is the address, but for its scope. */
    YB_ENDPOINT_ANY,     /* Every interface. */
};

/* A text that was understood. */
struct yb_endpoint_text {
    char host[256];            /* Without brackets, scope and port. */
    char scope[16];            /* Interface name or number after '%'; "" if none. */
    struct yb_address literal; /* LITERAL only; its port is `port`. */
    uint16_t port;             /* 0 unless has_port. */
    bool has_port;
    uint8_t kind; /* enum yb_endpoint_kind */
};

/* Understand `text`. Fails with INVALID (A3). Pure. */
YB_CHECKED enum yb_status yb_endpoint_parse(const char *text, struct yb_endpoint_text *endpoint_out,
                                            char why_out[YB_ADDRESS_WHY_BYTES]);

/* Write the canonical text of a parsed endpoint; parsing it gives the same endpoint. */
void yb_endpoint_format(const struct yb_endpoint_text *endpoint,
                        char text_out[YB_ENDPOINT_TEXT_BYTES]);

/* Write "host:port", with brackets around an IPv6 address that has none; nothing is checked.
 * TOO_LARGE: it does not fit. */
YB_CHECKED enum yb_status yb_address_join(const char *host, const char *port, char *text_out,
                                          size_t size);

/* Return whether yb_endpoint_resolve() would ask the name service, and so may block. */
bool yb_endpoint_needs_lookup(const struct yb_endpoint_text *endpoint);

/* Turn a parsed endpoint into addresses to try in order, without doubles, with `default_port`
 * where the text had none. Answers do not depend on which families the machine has configured
 * at the moment: a loopback of either family works with no network at all.
 *
 * Fails with UNREACHABLE (the name has no address, no interface is called like the scope) or
 * NO_MEMORY; *list_out is then untouched and why_out says why. Blocks; see Threads. */
YB_CHECKED enum yb_status yb_endpoint_resolve(const struct yb_endpoint_text *endpoint,
                                              uint16_t default_port,
                                              struct yb_address_list *list_out,
                                              char why_out[YB_ADDRESS_WHY_BYTES]);

/* Parse a text that must be a literal address. Never blocks. Fails with INVALID (A3; a name or
 * `*` too) or UNREACHABLE (no such interface). */
YB_CHECKED enum yb_status yb_address_parse(const char *text, uint16_t default_port,
                                           struct yb_address *address_out,
                                           char why_out[YB_ADDRESS_WHY_BYTES]);

/* Write ip:port or [ip%scope]:port (A2); "none" for a zeroed address. */
void yb_address_format(const struct yb_address *address, char text_out[YB_ADDRESS_TEXT_BYTES]);

bool yb_address_equal(const struct yb_address *a, const struct yb_address *b);

/* A total order: negative, zero or positive, as memcmp. */
int yb_address_compare(const struct yb_address *a, const struct yb_address *b);

/* Return whether it names every interface of a machine: 0.0.0.0 or ::. */
bool yb_address_is_wildcard(const struct yb_address *address);

/* Return whether only this machine can reach it: 127.0.0.0/8, ::1, or such an IPv4 mapped. */
bool yb_address_is_loopback(const struct yb_address *address);

/* Return whether somebody may connect to it: no wildcard, no port 0, one receiver. */
bool yb_address_connectable(const struct yb_address *address);

/* Return NULL if the address may be told to others, otherwise a static sentence that says why
 * not. Publishable is what is connectable and means the same on every machine: a link-local
 * address does not, since its scope is a number of this machine. */
const char *yb_address_why_unpublishable(const struct yb_address *address);

/* Return whether the address may be told to others. Only addresses read back from a bound
 * socket should be asked about. */
bool yb_address_publishable(const struct yb_address *address);

/* Read an AF_INET or AF_INET6 address (A1). Fails with INVALID for another family. */
YB_CHECKED enum yb_status yb_address_from_sockaddr(const struct sockaddr_storage *storage,
                                                   struct yb_address *address_out);

/* Write what bind and connect take. The address must not be NONE. */
void yb_address_to_sockaddr(const struct yb_address *address, struct sockaddr_storage *storage_out,
                            socklen_t *length_out);

#endif /* YB_NET_ADDRESS_H */
