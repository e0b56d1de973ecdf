/* SPDX-License-Identifier: Apache-2.0
 *
 * What epoll and io_uring share: making, tuning and closing TCP sockets.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/io_internal.h"

#define LISTEN_BACKLOG 1024

/* Set an integer option. A refusal costs speed, never correctness, so it is not an error. */
static void
set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

enum yb_status
yb_socket_open(const struct yb_address *address, int *fd_out)
{
    struct sockaddr_storage storage;
    socklen_t length;
    int fd;

    yb_address_to_sockaddr(address, &storage, &length);
    fd = socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return yb_io_status_of_errno(errno);
    }
    *fd_out = fd;
    return YB_OK;
}

void
yb_socket_set_options(int fd, const struct yb_stream_options *options)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (options == NULL) {
        return;
    }
    if (options->congestion != NULL && options->congestion[0] != '\0') {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options->congestion,
                         (socklen_t)strlen(options->congestion));
    }
    if (options->unsent_bytes_max > 0) {
        set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, (int)options->unsent_bytes_max);
    }
    if (options->user_timeout_ms > 0) {
        set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)options->user_timeout_ms);
    }
}

/* A listener never shares its port: SO_REUSEPORT would let a second process of the same user
 * take half of the connections in silence. SO_REUSEADDR only forgives TIME_WAIT. */
enum yb_status
yb_socket_listen(const struct yb_address *address, const struct yb_stream_options *options,
                 int *fd_out, struct yb_address *bound_out)
{
    struct sockaddr_storage storage;
    socklen_t length;
    enum yb_status status;
    int fd = -1;

    status = yb_socket_open(address, &fd);
    if (status != YB_OK) {
        return status;
    }
    yb_address_to_sockaddr(address, &storage, &length);
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (storage.ss_family == AF_INET6) {
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, yb_address_is_wildcard(address) ? 0 : 1);
    }
    yb_socket_set_options(fd, options); /* Accepted sockets inherit them. */
    if (bind(fd, (const struct sockaddr *)&storage, length) != 0 ||
        listen(fd, LISTEN_BACKLOG) != 0) {
        status = yb_io_status_of_errno(errno);
        goto err_close;
    }
    length = sizeof(storage);
    if (getsockname(fd, (struct sockaddr *)&storage, &length) != 0) {
        status = yb_io_status_of_errno(errno);
        goto err_close;
    }
    status = yb_address_from_sockaddr(&storage, bound_out);
    if (status != YB_OK) {
        goto err_close;
    }
    *fd_out = fd;
    return YB_OK;

err_close:
    (void)close(fd);
    return status;
}

void
yb_socket_close(int fd, enum yb_close_how how)
{
    YB_ASSERT(fd >= 0);
    if (how == YB_CLOSE_ABORT) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        struct sockaddr nobody = {.sa_family = AF_UNSPEC};

        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        /* Resets and drops unsent bytes whoever else holds the socket; close() alone would not. */
        (void)connect(fd, &nobody, sizeof(nobody));
    } else {
        (void)shutdown(fd, SHUT_WR);
    }
    (void)close(fd);
}
