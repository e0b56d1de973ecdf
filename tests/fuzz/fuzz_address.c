/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as an address: it is taken or refused with a printable sentence, and what is taken
 * reads back from its canonical form as the same endpoint and, for a literal, the same address.
 */
#include <string.h>

#include "base/check.h"
#include "net/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_refusal(const char *why)
{
    YB_ASSERT(strncmp(why, "address \"", 9) == 0);
    for (const char *c = why; *c != '\0'; c++) {
        YB_ASSERT(*c >= ' ' && *c <= '~');
    }
}

static void
check_literal(const struct yb_endpoint_text *endpoint)
{
    struct yb_address address = endpoint->literal;
    struct yb_address back;
    char text[YB_ADDRESS_TEXT_BYTES];
    char why[YB_ADDRESS_WHY_BYTES];

    if (endpoint->scope[0] != '\0') {
        address.scope_id = 3;
    }
    yb_address_format(&address, text);
    YB_ASSERT(yb_address_parse(text, 1, &back, why) == YB_OK);
    YB_ASSERT(yb_address_equal(&address, &back));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yb_endpoint_text endpoint = {.port = 0};
    struct yb_endpoint_text back = {.port = 0};
    char text[512];
    char canonical[YB_ENDPOINT_TEXT_BYTES];
    char again[YB_ENDPOINT_TEXT_BYTES];
    char why[YB_ADDRESS_WHY_BYTES] = "";

    size = size < sizeof(text) ? size : sizeof(text) - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    if (yb_endpoint_parse(text, &endpoint, why) != YB_OK) {
        check_refusal(why);
        return 0;
    }
    yb_endpoint_format(&endpoint, canonical);
    YB_ASSERT(yb_endpoint_parse(canonical, &back, why) == YB_OK);
    yb_endpoint_format(&back, again);
    YB_ASSERT(strcmp(canonical, again) == 0);
    YB_ASSERT(back.kind == endpoint.kind && back.port == endpoint.port);
    YB_ASSERT(yb_address_equal(&back.literal, &endpoint.literal));
    if (endpoint.kind == YB_ENDPOINT_LITERAL) {
        check_literal(&endpoint);
    }
    return 0;
}
