/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of this host: pins of blocks, and memory that values come from and go to.
 *
 * A client without a way into the memory of its host's nodes lends nothing: every pin is
 * UNSUPPORTED, and a get does the same with one copy more.
 */
#include "base/check.h"
#include "client/client_internal.h"

enum yb_status
yb_client_pin(struct yb_client *client, struct yb_client_item *items, uint32_t count,
              const struct yb_client_call *given)
{
    struct yb_client_call call;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = yb_client_read_call(given, &call);
    for (uint32_t i = 0; status == YB_OK && i < count; i++) {
        items[i].data = NULL;
        items[i].pin = 0;
        items[i].status = YB_UNSUPPORTED;
    }
    yb_client_leave(client);
    return status;
}

enum yb_status
yb_client_release(struct yb_client *client, struct yb_client_item *items, uint32_t count)
{
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        items[i].data = NULL;
        items[i].status = YB_CLOSED; /* Never lent. */
    }
    yb_client_leave(client);
    return YB_OK;
}

enum yb_status
yb_client_register(struct yb_client *client, void *base, uint64_t length)
{
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_client_leave(client);
    return base == NULL || length == 0 ? YB_INVALID : YB_UNSUPPORTED;
}

enum yb_status
yb_client_unregister(struct yb_client *client, void *base, uint64_t timeout_ns)
{
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_client_leave(client);
    return base == NULL ? YB_INVALID : YB_NOT_FOUND;
}
