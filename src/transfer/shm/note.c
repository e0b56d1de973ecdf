/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets of the unix socket: one note, and perhaps one descriptor.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "transfer/shm/shm_internal.h"

/* Room for exactly one descriptor: the kernel closes what else a peer sends. */
union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

enum yb_status
yb_shm_note_send(int socket, const struct yb_wire_shm_note *note, int fd)
{
    uint8_t bytes[YB_WIRE_SHM_NOTE_BYTES];
    union control control = {.bytes = {0}};
    struct iovec iov = {.iov_base = bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    enum yb_status status = yb_wire_shm_note_encode(note, bytes, sizeof(bytes), &iov.iov_len);

    YB_ASSERT(status == YB_OK);
    if (fd >= 0) {
        struct cmsghdr *head;

        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    }
    if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)iov.iov_len) {
        return YB_OK;
    }
    return errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS ? YB_AGAIN : YB_PEER_LOST;
}

static int
descriptor_of(struct msghdr *message)
{
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    }
    return fd;
}

enum yb_status
yb_shm_note_receive(int socket, struct yb_wire_shm_note *note_out, int *fd_out)
{
    uint8_t bytes[YB_WIRE_SHM_NOTE_BYTES + 1];
    union control control;
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int fd;

    if (length < 0) {
        return errno == EAGAIN || errno == EINTR ? YB_AGAIN : YB_PEER_LOST;
    }
    fd = descriptor_of(&message);
    if (length == 0 && fd < 0) {
        return YB_PEER_LOST;
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
        yb_wire_shm_note_decode(bytes, (size_t)length, note_out, NULL) != YB_OK) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return YB_PROTOCOL;
    }
    *fd_out = fd;
    return YB_OK;
}
