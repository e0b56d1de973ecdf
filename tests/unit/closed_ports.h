/* SPDX-License-Identifier: Apache-2.0
 *
 * closed_ports.h -- ports of this host at which nobody listens.
 *
 * The kernel chooses them, so that programs which run beside each other get different ones.
 */
#ifndef YB_TESTS_CLOSED_PORTS_H
#define YB_TESTS_CLOSED_PORTS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit.h"

/* Return the first of `count` closed ports that follow each other. */
static inline uint16_t
closed_ports(uint16_t count)
{
    uint16_t first = 0;
    uint16_t bound = 0;

    while (bound < count) {
        int fds[4];

        first = 0;
        for (bound = 0; bound < count; bound++) {
            struct sockaddr_in address = {.sin_family = AF_INET,
                                          .sin_port = htons((uint16_t)(first + bound)),
                                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            socklen_t length = sizeof(address);

            fds[bound] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            assert_true(fds[bound] >= 0);
            if (bind(fds[bound], (struct sockaddr *)&address, length) != 0) {
                assert_int_equal(close(fds[bound]), 0);
                break; /* Somebody has that one. */
            }
            assert_int_equal(getsockname(fds[bound], (struct sockaddr *)&address, &length), 0);
            first = bound == 0 ? ntohs(address.sin_port) : first;
        }
        for (uint16_t i = 0; i < bound; i++) {
            assert_int_equal(close(fds[i]), 0);
        }
    }
    return first;
}

#endif /* YB_TESTS_CLOSED_PORTS_H */
