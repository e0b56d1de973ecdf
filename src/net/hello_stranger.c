/* SPDX-License-Identifier: Apache-2.0
 *
 * What the first bytes of a connection say about who is speaking, and the words
 * for what went wrong.
 */
#include "net/hello.h"

#include <string.h>

/* How a request of coro_rpc begins, which the known system's clients send to their master. */
#define CORO_RPC_MAGIC       21u
#define CORO_RPC_VERSION_MAX 2u

const char *
yb_hello_reason_name(unsigned reason)
{
    switch (reason) {
#define X(name, value, status, word) \
    case value: return word;
        YB_HELLO_REASON_MAP(X)
#undef X
    default: return "unknown";
    }
}

static bool
starts_http(const uint8_t *bytes, size_t length, bool *undecided_out)
{
    static const char *const words[] = {"GET ",    "HEAD ",        "POST ",    "PUT ",
                                        "DELETE ", "OPTIONS ",     "CONNECT ", "TRACE ",
                                        "PATCH ",  "PRI * HTTP/2", "HTTP/"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t whole = strlen(words[i]);

        if (memcmp(bytes, words[i], length < whole ? length : whole) == 0) {
            *undecided_out = length < whole;
            return true;
        }
    }
    return false;
}

enum yb_hello_stranger
yb_hello_stranger(const uint8_t *bytes, size_t length)
{
    static const uint8_t magic[8] = "YUEBING";
    bool undecided = false;

    if (length == 0) {
        return YB_HELLO_STRANGER_UNDECIDED;
    }
    if (memcmp(bytes, magic, length < sizeof(magic) ? length : sizeof(magic)) == 0) {
        return length < sizeof(magic) ? YB_HELLO_STRANGER_UNDECIDED : YB_HELLO_STRANGER_NONE;
    }
    /* A TLS record: handshake (22) or alert (21), version 3.x. */
    if (bytes[0] == 22 || bytes[0] == 21) {
        if (length < 2) {
            return YB_HELLO_STRANGER_UNDECIDED;
        }
        if (bytes[1] == 3) {
            return YB_HELLO_STRANGER_TLS;
        }
        return bytes[0] == CORO_RPC_MAGIC && bytes[1] <= CORO_RPC_VERSION_MAX
                   ? YB_HELLO_STRANGER_CORO_RPC
                   : YB_HELLO_STRANGER_UNKNOWN;
    }
    if (starts_http(bytes, length, &undecided)) {
        return undecided ? YB_HELLO_STRANGER_UNDECIDED : YB_HELLO_STRANGER_HTTP;
    }
    return YB_HELLO_STRANGER_UNKNOWN;
}
