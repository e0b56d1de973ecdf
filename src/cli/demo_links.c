/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_links.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A round: each connection is cut, or may be the one that is if none was. */
struct round {
    struct yb_demo_links *links;
    double share;
    uint64_t seen;
    uint64_t cut;
    int spare; /* A connection that was spared; -1: none. */
};

static bool
is_connection(int fd)
{
    struct tcp_info info;
    socklen_t length = sizeof(info);

    memset(&info, 0, sizeof(info));
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           info.tcpi_state == TCP_ESTABLISHED;
}

/* Consume a copy of a connection. Each of those that are spared is kept as the spare one with the
 * same probability. */
static void
take_connection(struct round *round, int fd)
{
    struct yb_sim_random *random = &round->links->random;

    round->seen++;
    if (yb_sim_random_unit(random) < round->share) {
        round->cut += shutdown(fd, SHUT_RDWR) == 0;
    } else if (yb_sim_random_below(random, round->seen) == 0) {
        int before = round->spare;

        round->spare = fd;
        fd = before;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int
take_process(struct round *round, pid_t pid, DIR *folder)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    const struct dirent *entry;
    int error = pidfd < 0 && errno != ESRCH ? errno : 0;

    while (pidfd >= 0 && error == 0 && (entry = readdir(folder)) != NULL) {
        char target[16] = "";

        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1) > 0 &&
            strncmp(target, "socket:", 7) == 0) {
            long number = strtol(entry->d_name, NULL, 10);
            int copy = (int)syscall(SYS_pidfd_getfd, pidfd, (int)number, 0);

            if (copy < 0) {
                error = errno == EBADF || errno == ESRCH ? 0 : errno; /* It has just been closed. */
            } else if (is_connection(copy)) {
                take_connection(round, copy);
            } else {
                (void)close(copy);
            }
        }
    }
    if (pidfd >= 0) {
        (void)close(pidfd);
    }
    return error;
}

int
yb_demo_links_cut(struct yb_demo_links *links, const pid_t *pids, uint32_t count, double share)
{
    struct round round = {.links = links, .share = share, .spare = -1};
    int error = 0;

    for (uint32_t i = 0; i < count && error == 0; i++) {
        char path[40];
        DIR *folder;

        (void)snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pids[i]);
        folder = opendir(path);
        if (folder != NULL) {
            error = take_process(&round, pids[i], folder);
            (void)closedir(folder);
        }
    }
    if (round.spare >= 0) {
        if (round.cut == 0) {
            round.cut += shutdown(round.spare, SHUT_RDWR) == 0;
        }
        (void)close(round.spare);
    }
    links->seen += round.seen;
    links->cut += round.cut;
    return error;
}
