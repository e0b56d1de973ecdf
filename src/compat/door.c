/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/door.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpus.h"

#define DOOR_MAGIC 0x646f6f72u /* "door" */
#define TEXT_BYTES 1024u       /* Fits any socket's buffer. */
#define BACKLOG    64
#define ANSWER_MS  3000

struct yb_compat_door {
    uint32_t magic;
    int fd;
    int stop; /* An eventfd. */
    pthread_t thread;
    char text[TEXT_BYTES];
};

/* Return the length of the local address that goes with a port. */
static socklen_t
local_address(uint16_t port, struct sockaddr_un *address_out)
{
    int length;

    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    length = snprintf(address_out->sun_path + 1, sizeof(address_out->sun_path) - 1,
                      "mooncake_client_%u.sock", port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* ---- telling --------------------------------------------------------------------------------- */

/* Whoever connects gets the line, and the end. */
static void *
run(void *context)
{
    struct yb_compat_door *door = context;
    struct pollfd polled[] = {
        {.fd = door->fd, .events = POLLIN},
        {.fd = door->stop, .events = POLLIN},
    };

    yb_cpus_as_process();
    while ((polled[1].revents & POLLIN) == 0) {
        if (poll(polled, 2, -1) < 0) {
            YB_ASSERT(errno == EINTR);
            continue;
        }
        if ((polled[0].revents & POLLIN) != 0) {
            int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

            if (fd >= 0) {
                (void)!send(fd, door->text, strlen(door->text), MSG_NOSIGNAL);
                (void)close(fd);
            }
        }
    }
    return NULL;
}

static bool
write_text(struct yb_compat_door *door, const struct yb_compat_door_line *line)
{
    json_t *json = json_pack("{s:s, s:s, s:s}", "directory", line->directory, "node", line->node,
                             "tenant", line->tenant);
    size_t length =
        json == NULL ? 0 : json_dumpb(json, door->text, sizeof(door->text) - 2, JSON_COMPACT);

    json_decref(json);
    if (length == 0 || length > sizeof(door->text) - 2) {
        return false;
    }
    memcpy(door->text + length, "\n", 2);
    return true;
}

static void
destroy(struct yb_compat_door *door)
{
    if (door->fd >= 0) {
        (void)close(door->fd);
    }
    if (door->stop >= 0) {
        (void)close(door->stop);
    }
    door->magic = 0;
    free(door);
}

static bool
listen_at(struct yb_compat_door *door, uint16_t port)
{
    struct sockaddr_un address;
    socklen_t length = local_address(port, &address);

    door->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    door->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return door->fd >= 0 && door->stop >= 0 &&
           bind(door->fd, (const struct sockaddr *)&address, length) == 0 &&
           listen(door->fd, BACKLOG) == 0 && pthread_create(&door->thread, NULL, run, door) == 0;
}

enum yb_status
yb_compat_door_open(uint16_t port, const struct yb_compat_door_line *line,
                    struct yb_compat_door **door_out, char why_out[YB_COMPAT_DOOR_WHY_BYTES])
{
    struct yb_compat_door *door = calloc(1, sizeof(*door));
    enum yb_status status;

    if (door == NULL) {
        (void)snprintf(why_out, YB_COMPAT_DOOR_WHY_BYTES, "no memory");
        return YB_NO_MEMORY;
    }
    door->magic = DOOR_MAGIC;
    door->fd = -1;
    door->stop = -1;
    if (!write_text(door, line)) {
        (void)snprintf(why_out, YB_COMPAT_DOOR_WHY_BYTES,
                       "the addresses are too long, or not UTF-8");
        destroy(door);
        return YB_INVALID;
    }
    if (!listen_at(door, port)) {
        status = errno == EADDRINUSE ? YB_EXISTS : YB_IO;
        (void)snprintf(why_out, YB_COMPAT_DOOR_WHY_BYTES, "the socket @mooncake_client_%u.sock: %s",
                       port, strerror(errno));
        destroy(door);
        return status;
    }
    *door_out = door;
    return YB_OK;
}

void
yb_compat_door_close(struct yb_compat_door **door_ref)
{
    struct yb_compat_door *door = *door_ref;
    uint64_t one = 1;

    YB_ASSERT_OBJ(door, DOOR_MAGIC);
    *door_ref = NULL;
    YB_ASSERT(write(door->stop, &one, sizeof(one)) == sizeof(one));
    YB_ASSERT(pthread_join(door->thread, NULL) == 0);
    destroy(door);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Read until the other side closes, or the time is over. */
static enum yb_status
read_text(int fd, char text[TEXT_BYTES], size_t *length_out)
{
    *length_out = 0;
    for (;;) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (*length_out == TEXT_BYTES) {
            return YB_PROTOCOL;
        }
        if (poll(&one, 1, ANSWER_MS) <= 0) {
            return YB_TIMED_OUT;
        }
        got = recv(fd, text + *length_out, TEXT_BYTES - *length_out, 0);
        if (got <= 0) {
            return got == 0 ? YB_OK : YB_PROTOCOL;
        }
        *length_out += (size_t)got;
    }
}

static bool
take_text(const json_t *json, const char *name, char *out, size_t room)
{
    const char *text = json_string_value(json_object_get(json, name));

    return text != NULL && text[0] != '\0' && (size_t)snprintf(out, room, "%s", text) < room;
}

enum yb_status
yb_compat_door_ask(uint16_t port, struct yb_compat_door_line *line_out)
{
    struct sockaddr_un address;
    socklen_t length = local_address(port, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    enum yb_status status = YB_NOT_FOUND;
    char text[TEXT_BYTES];
    size_t bytes = 0;

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, length) == 0) {
        status = read_text(fd, text, &bytes);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (status == YB_OK) {
        json_t *json = json_loadb(text, bytes, 0, NULL);

        if (!take_text(json, "directory", line_out->directory, sizeof(line_out->directory)) ||
            !take_text(json, "node", line_out->node, sizeof(line_out->node)) ||
            !take_text(json, "tenant", line_out->tenant, sizeof(line_out->tenant))) {
            status = YB_PROTOCOL;
        }
        json_decref(json);
    }
    return status;
}
