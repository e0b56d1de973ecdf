/* SPDX-License-Identifier: Apache-2.0
 *
 * Dummies: processes that use the memory of a `mooncake_client` on their host.
 *
 * That process gives the segment. A dummy asks it, at the local socket that the known system uses,
 * where the directory is, and is a client without a segment from then on; values of this host go
 * through shared memory as they do for every client. What is told is one line of text:
 *
 *     dummy --> connect "@mooncake_client_<port>.sock" --> "yuebing <directory> <tenant>\n", closed
 *
 * Only processes of the same user are told.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "compat/store_internal.h"
#include "net/address.h"

#define LINE_BYTES 512u
#define ANSWER_MS  3000

/* Return the length of the local address that goes with a port. */
static socklen_t
local_address(uint16_t port, struct sockaddr_un *address_out)
{
    int length;

    memset(address_out, 0, sizeof(*address_out));
    address_out->sun_family = AF_UNIX;
    length = snprintf(address_out->sun_path + 1, sizeof(address_out->sun_path) - 1,
                      "mooncake_client_%u.sock", port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* ---- the client's side --------------------------------------------------------------------- */

struct yb_compat_door {
    int listener;
    int wake[2]; /* A byte in it: the thread ends. */
    pthread_t thread;
    char line[LINE_BYTES];
};

static bool
is_same_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void *
door_main(void *context)
{
    struct yb_compat_door *door = context;
    struct pollfd fds[2] = {{.fd = door->listener, .events = POLLIN},
                            {.fd = door->wake[0], .events = POLLIN}};

    while (fds[1].revents == 0) {
        int fd = -1;

        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            break;
        }
        if ((fds[0].revents & POLLIN) != 0) {
            fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        }
        if (fd >= 0 && is_same_user(fd)) {
            /* A line fits into any socket's room. */
            (void)!send(fd, door->line, strlen(door->line), MSG_NOSIGNAL);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return NULL;
}

void
yb_compat_door_close(struct yb_compat_store *store)
{
    struct yb_compat_door *door = store->door;

    store->door = NULL;
    if (door == NULL) {
        return;
    }
    while (write(door->wake[1], "", 1) < 0 && errno == EINTR) {
    }
    (void)pthread_join(door->thread, NULL);
    (void)close(door->wake[0]);
    (void)close(door->wake[1]);
    (void)close(door->listener);
    free(door);
}

static bool
open_door(struct yb_compat_door *door, uint16_t port)
{
    struct sockaddr_un address;
    socklen_t length = local_address(port, &address);

    door->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door->listener < 0) {
        return false;
    }
    if (bind(door->listener, (const struct sockaddr *)&address, length) == 0 &&
        listen(door->listener, SOMAXCONN) == 0 && pipe2(door->wake, O_CLOEXEC) == 0) {
        if (pthread_create(&door->thread, NULL, door_main, door) == 0) {
            return true;
        }
        (void)close(door->wake[0]);
        (void)close(door->wake[1]);
    }
    (void)close(door->listener);
    return false;
}

int32_t
yb_compat_store_serve_dummies(struct yb_compat_store *store, uint16_t port)
{
    struct yb_compat_door *door = NULL;
    int32_t code = YB_COMPAT_INVALID_PARAMS;
    bool taken;

    if (yb_compat_store_enter(store) == NULL) {
        return code;
    }
    door = calloc(1, sizeof(*door));
    if (door != NULL) {
        (void)snprintf(door->line, sizeof(door->line), "yuebing %s %s\n", store->directory,
                       store->tenant);
    }
    yb_lock_acquire(&store->lock);
    taken = store->door != NULL || door == NULL || !open_door(door, port);
    if (!taken) {
        store->door = door;
        code = YB_COMPAT_OK;
    }
    yb_lock_release(&store->lock);
    if (taken) {
        free(door);
    }
    yb_compat_store_leave(store);
    return code;
}

/* ---- the dummy's side ---------------------------------------------------------------------- */

/* Read until the other side closes, or the time is over. Returns whether a line came. */
static bool
read_line(int fd, char line[LINE_BYTES])
{
    size_t length = 0;

    for (;;) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (length == LINE_BYTES - 1 || poll(&one, 1, ANSWER_MS) <= 0) {
            return false;
        }
        got = recv(fd, line + length, LINE_BYTES - 1 - length, 0);
        if (got < 0) {
            return false;
        }
        if (got == 0) {
            line[length] = '\0';
            return length > 0 && line[length - 1] == '\n';
        }
        length += (size_t)got;
    }
}

static bool
ask(uint16_t port, char line[LINE_BYTES])
{
    struct sockaddr_un address;
    socklen_t length = local_address(port, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool told = fd >= 0 && connect(fd, (const struct sockaddr *)&address, length) == 0 &&
                read_line(fd, line);

    if (fd >= 0) {
        (void)close(fd);
    }
    return told;
}

int32_t
yb_compat_store_setup_dummy(struct yb_compat_store *store, uint64_t pool_bytes,
                            uint64_t local_buffer_bytes, const char *server)
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES] = "empty";
    char line[LINE_BYTES];
    char directory[300];
    char tenant[80];

    (void)pool_bytes; /* Memory comes from yb_compat_host_alloc(), as much as is asked for. */
    if (server == NULL || yb_endpoint_parse(server, &endpoint, why) != YB_OK ||
        !endpoint.has_port) {
        yb_log_error(store->log, "store", "setup is refused",
                     yb_log_str("argument", "server_address"), yb_log_str("reason", why));
        return YB_COMPAT_INVALID_PARAMS;
    }
    if (!ask(endpoint.port, line) || sscanf(line, "yuebing %299s %79s\n", directory, tenant) != 2) {
        yb_log_error(store->log, "store",
                     "no mooncake_client of ours answers on this host; start one",
                     yb_log_u64("port", endpoint.port));
        return YB_COMPAT_RPC_FAIL;
    }
    return yb_compat_store_setup(store, &(struct yb_compat_setup){
                                            .local_hostname = "127.0.0.1",
                                            .local_buffer_bytes = local_buffer_bytes,
                                            .protocol = "tcp",
                                            .master = directory,
                                            .tenant = tenant,
                                        });
}
