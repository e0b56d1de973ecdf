/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the peer of either side of the handshake, open and with a secret:
 * it ends or waits, sends a bounded answer, and never calls a peer authenticated
 * where nothing was proved. The first byte chooses side, secret and piece size.
 */
#include <string.h>

#include "base/check.h"
#include "net/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "secret 0123456789abcdef0123456789abcdef"

static const struct yb_auth *
secret(void)
{
    static struct yb_auth *auth; /* Made once: the fuzzer has one thread. */
    char message[100];

    if (auth == NULL) {
        YB_ASSERT(yb_auth_parse("fuzz", SECRET, sizeof(SECRET) - 1, &auth, message,
                                sizeof(message)) == YB_OK);
    }
    return auth;
}

static void
check_end(const struct yb_hello *hello, const struct yb_hello_self *self)
{
    size_t length = 0;

    yb_hello_output(hello, &length);
    YB_ASSERT(length <= 1024);
    if (yb_hello_state(hello) == YB_HELLO_DONE) {
        const struct yb_hello_result *result = yb_hello_result(hello);

        YB_ASSERT(result->authenticated == (self->auth != NULL));
        YB_ASSERT(result->version == 1);
        YB_ASSERT(result->role >= YB_WIRE_ROLE_CLIENT && result->role <= YB_WIRE_ROLE_ADMIN);
        YB_ASSERT((result->role == YB_WIRE_ROLE_CLIENT) == (result->tenant[0] != '\0'));
        YB_ASSERT(strlen(result->software) <= YB_WIRE_HELLO_SOFTWARE_MAX);
    } else if (yb_hello_state(hello) == YB_HELLO_FAILED) {
        const struct yb_hello_failure *failure = yb_hello_failure(hello);

        YB_ASSERT(failure->reason != YB_HELLO_REASON_NONE && failure->status != YB_OK);
        YB_ASSERT(yb_wire_text_valid(failure->text, strlen(failure->text)));
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yb_hello_self self = {
        .features = 3,
        .version_min = 1,
        .version_max = 1,
        .role = YB_WIRE_ROLE_CLIENT,
        .tenant = "team-a",
        .software = "fuzz",
        .seed_check = 7,
    };
    struct yb_hello_params params = {.lane = YB_WIRE_LANE_CONTROL};
    struct yb_hello *hello = NULL;
    size_t step, at = 1;

    if (size == 0) {
        return 0;
    }
    self.auth = (data[0] & 2) != 0 ? secret() : NULL;
    step = 1 + (data[0] >> 2);
    if ((data[0] & 1) != 0) {
        YB_ASSERT(yb_hello_server_create(&self, &params, &hello) == YB_OK);
    } else {
        YB_ASSERT(yb_hello_client_create(&self, &params, 1000, &hello) == YB_OK);
    }
    while (at < size) {
        size_t piece = step < size - at ? step : size - at;
        size_t used = yb_hello_feed(hello, data + at, piece, 2000 + at);

        YB_ASSERT(used <= piece);
        if (used < piece) {
            YB_ASSERT(yb_hello_state(hello) == YB_HELLO_DONE);
            break;
        }
        at += used;
    }
    check_end(hello, &self);
    yb_hello_destroy(&hello);
    return 0;
}
