/* SPDX-License-Identifier: Apache-2.0
 *
 * Dummies: processes that use the memory of a `mooncake_client` on their host.
 *
 * That process gives the segment. A dummy asks it where the directory is (door.h), and is a client
 * without a segment from then on; values of this host go through shared memory as they do for
 * every client.
 */
#include "compat/door.h"
#include "compat/store_internal.h"
#include "net/address.h"

int32_t
yb_compat_store_setup_dummy(struct yb_compat_store *store, uint64_t pool_bytes,
                            uint64_t local_buffer_bytes, const char *server)
{
    struct yb_endpoint_text endpoint;
    struct yb_compat_door_line line;
    char why[YB_ADDRESS_WHY_BYTES] = "empty";
    enum yb_status status;

    (void)pool_bytes; /* Memory comes from yb_compat_host_alloc(), as much as is asked for. */
    if (server == NULL || yb_endpoint_parse(server, &endpoint, why) != YB_OK ||
        !endpoint.has_port) {
        yb_log_error(store->log, "store", "setup is refused",
                     yb_log_str("argument", "server_address"), yb_log_str("reason", why));
        return YB_COMPAT_INVALID_PARAMS;
    }
    status = yb_compat_door_ask(endpoint.port, &line);
    if (status != YB_OK) {
        yb_log_error(
            store->log, "store", "no mooncake_client of ours answers on this host; start one",
            yb_log_u64("port", endpoint.port), yb_log_str("reason", yb_status_text(status)));
        return YB_COMPAT_RPC_FAIL;
    }
    return yb_compat_store_setup(store, &(struct yb_compat_setup){
                                            .local_hostname = "127.0.0.1",
                                            .local_buffer_bytes = local_buffer_bytes,
                                            .protocol = "tcp",
                                            .master = line.directory,
                                            .tenant = line.tenant,
                                        });
}
