/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/known.h"

#define SOCKET_MAGIC 0x6b6e736bu
#define BACKLOG      64

struct yb_known_socket {
    uint32_t magic;
    int fd;
    int stop; /* An eventfd. */
    pthread_t thread;
    char line[1024];
};

/* Whoever connects gets the line, which fits any socket's buffer, and the end. */
static void *
run(void *context)
{
    struct yb_known_socket *opened = context;
    struct pollfd polled[] = {
        {.fd = opened->fd, .events = POLLIN},
        {.fd = opened->stop, .events = POLLIN},
    };

    while ((polled[1].revents & POLLIN) == 0) {
        if (poll(polled, 2, -1) < 0) {
            YB_ASSERT(errno == EINTR);
            continue;
        }
        if ((polled[0].revents & POLLIN) != 0) {
            int fd = accept4(opened->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

            if (fd >= 0) {
                (void)!send(fd, opened->line, strlen(opened->line), MSG_NOSIGNAL);
                (void)close(fd);
            }
        }
    }
    return NULL;
}

static bool
listen_as(struct yb_known_socket *opened, uint16_t port)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "mooncake_client_%u.sock", port);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);

    opened->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    opened->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return opened->fd >= 0 && opened->stop >= 0 &&
           bind(opened->fd, (const struct sockaddr *)&address, bytes) == 0 &&
           listen(opened->fd, BACKLOG) == 0;
}

static void
close_all(struct yb_known_socket *opened)
{
    if (opened->fd >= 0) {
        (void)close(opened->fd);
    }
    if (opened->stop >= 0) {
        (void)close(opened->stop);
    }
    opened->magic = 0;
    free(opened);
}

struct yb_known_socket *
yb_known_socket_open(uint16_t port, const char *line, char why_out[256])
{
    struct yb_known_socket *opened = calloc(1, sizeof(*opened));

    if (opened == NULL) {
        (void)snprintf(why_out, 256, "no memory");
        return NULL;
    }
    opened->magic = SOCKET_MAGIC;
    opened->fd = -1;
    opened->stop = -1;
    (void)snprintf(opened->line, sizeof(opened->line), "%s", line);
    if (!listen_as(opened, port) || pthread_create(&opened->thread, NULL, run, opened) != 0) {
        (void)snprintf(why_out, 256, "the socket @mooncake_client_%u.sock: %s", port,
                       strerror(errno));
        close_all(opened);
        return NULL;
    }
    return opened;
}

void
yb_known_socket_close(struct yb_known_socket **opened_ref)
{
    struct yb_known_socket *opened = *opened_ref;
    uint64_t one = 1;

    YB_ASSERT_OBJ(opened, SOCKET_MAGIC);
    *opened_ref = NULL;
    YB_ASSERT(write(opened->stop, &one, sizeof(one)) == sizeof(one));
    YB_ASSERT(pthread_join(opened->thread, NULL) == 0);
    close_all(opened);
}
