/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of this host: the client's engine, memory that values come from and go to, and blocks that
 * are borrowed.
 *
 * The engine has the client's identity, so that a node which has proved whose process that is knows
 * whom it lends to, and fetches values from nobody else (transfer/near.h). It listens where nodes
 * reach it: on the interface that leads to the directory, or, without a secret, on loopback only.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "client/client_internal.h"
#include "transfer/near.h"

/* ---- the engine ------------------------------------------------------------------------------ */

/* Find the address of ours that leads to the directory. Returns false: none is known. */
static bool
own_address(const struct yb_address *directory, struct yb_address *address_out)
{
    struct sockaddr_storage storage;
    socklen_t length;
    bool found = false;
    int fd;

    yb_address_to_sockaddr(directory, &storage, &length);
    fd = socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    if (connect(fd, (const struct sockaddr *)&storage, length) == 0) { /* Sends nothing. */
        length = sizeof(storage);
        found = getsockname(fd, (struct sockaddr *)&storage, &length) == 0 &&
                yb_address_from_sockaddr(&storage, address_out) == YB_OK;
    }
    (void)close(fd);
    address_out->port = 0;
    return found;
}

enum yb_status
yb_client_engine_create(struct yb_client *client, const struct yb_client_options *options,
                        char *message, size_t bytes)
{
    struct yb_transfer_options engine = {
        .struct_bytes = sizeof(engine),
        .secret_file = options->secret_file,
        .role = "client",
        .tenant = client->tenant,
        .tls = options->tls,
        .paths = options->no_shared_memory ? YB_TRANSFER_PATH_ALL & ~YB_TRANSFER_PATH_SHM : 0,
    };
    char listen[YB_ADDRESS_TEXT_BYTES];
    struct yb_address address;
    struct yb_transfer_self self = {.identity = client->self.identity};
    enum yb_status status = yb_stats_create(&client->stats);

    if (status != YB_OK) {
        return status;
    }
    self.stats = client->stats;
    status = YB_UNREACHABLE;
    if (options->secret_file != NULL &&
        own_address(&client->core_options.directory.items[0], &address)) {
        yb_address_format(&address, listen);
        engine.listen = listen;
        status = yb_transfer_create_as(&engine, self, &client->engine, message, bytes);
    }
    if (status != YB_OK) { /* Nodes of this host reach it in any case. */
        engine.listen = NULL;
        status = yb_transfer_create_as(&engine, self, &client->engine, message, bytes);
    }
    if (status == YB_OK) {
        status = yb_transfer_address(client->engine, client->engine_address,
                                     sizeof(client->engine_address));
    }
    client->core_options.engine = client->engine;
    client->core_options.engine_address = client->engine_address;
    return status;
}

/* ---- borrowing ------------------------------------------------------------------------------- */

enum yb_status
yb_client_pin(struct yb_client *client, struct yb_client_item *items, uint32_t count,
              const struct yb_client_call *call)
{
    return yb_client_run_items(client, YB_CLIENT_PIN, items, count, call);
}

enum yb_status
yb_client_release(struct yb_client *client, struct yb_client_item *items, uint32_t count)
{
    return yb_client_run_items(client, YB_CLIENT_RELEASE, items, count, NULL);
}

enum yb_status
yb_client_hold(struct yb_client *client, struct yb_client_item *items, uint32_t count,
               const struct yb_client_call *call)
{
    return yb_client_run_items(client, YB_CLIENT_HOLD, items, count, call);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum yb_status
yb_client_register(struct yb_client *client, void *base, uint64_t length)
{
    const struct yb_transfer_memory memory = {
        .struct_bytes = sizeof(memory),
        .access = YB_TRANSFER_MAY_READ, /* Nodes read what is put; nobody writes here. */
    };
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = base == NULL || length == 0
                 ? YB_INVALID
                 : yb_transfer_register(client->engine, base, length, &memory, NULL);
    yb_client_leave(client);
    return status;
}

enum yb_status
yb_client_unregister(struct yb_client *client, void *base, uint64_t timeout_ns)
{
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = base == NULL ? YB_INVALID : yb_transfer_unregister(client->engine, base, timeout_ns);
    yb_client_leave(client);
    return status;
}
