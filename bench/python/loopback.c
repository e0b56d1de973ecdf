/* SPDX-License-Identifier: Apache-2.0
 *
 * What a question and its answer cost on this machine at the least: two processes on loopback, each
 * of which does nothing but spin on a socket, and neither looks at a byte.
 *
 *     cc -O2 -o loopback bench/python/loopback.c
 *     ./loopback QUESTION-BYTES ANSWER-BYTES     prints the median of 20,000, in microseconds
 *
 * is_exist() asks with about 150 bytes and is answered with as many; batch_is_exist() of n keys
 * asks with 16 bytes and is answered with one for each.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 20000

static char bytes[1 << 20];

static double
now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Send or receive all of it. */
static void
move(int fd, size_t length, int sends)
{
    for (size_t at = 0; at < length;) {
        ssize_t some = sends ? send(fd, bytes + at, length - at, MSG_DONTWAIT)
                             : recv(fd, bytes + at, length - at, MSG_DONTWAIT);

        if (some == 0 || (some < 0 && errno != EAGAIN)) {
            exit(0); /* The other one is gone. */
        }
        at += some > 0 ? (size_t)some : 0;
    }
}

static int
by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int
main(int argc, char **argv)
{
    static double took[ROUNDS];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    size_t question = argc > 1 ? strtoul(argv[1], NULL, 10) : 150;
    size_t answer = argc > 2 ? strtoul(argv[2], NULL, 10) : 150;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    socklen_t length = sizeof(address);
    int fd;

    if (question > sizeof(bytes) || answer > sizeof(bytes) ||
        bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        perror("loopback");
        return 1;
    }
    if (fork() == 0) {
        fd = accept(listener, NULL, NULL);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        for (;;) {
            move(fd, question, 0);
            move(fd, answer, 1);
        }
    }
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        perror("loopback");
        return 1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    for (int i = 0; i < ROUNDS; i++) {
        double from = now_us();

        move(fd, question, 1);
        move(fd, answer, 0);
        took[i] = now_us() - from;
    }
    qsort(took, ROUNDS, sizeof(took[0]), by_size);
    printf("%.1f us\n", took[ROUNDS / 2]);
    return 0;
}
