/* SPDX-License-Identifier: Apache-2.0
 *
 * What a write over shared memory costs at the least: the target copies (RULES A4), so that behind
 * each piece there is an answer to another process, and before it a request.
 *
 * Process A keeps two requests of 288 bytes under way on a loopback TCP socket; process B takes
 * one, copies a piece of A's memory, which it has mapped, into its own, and answers with 96 bytes.
 * There is nothing else: no engine, no checks. B asks without waiting, as the engine does. A sleeps
 * until the answer, as the engine does when it comes later than in 50 us: waking it is what B pays
 * for most. Beside it the same copy without messages: their ratio is the most that there is.
 *
 *     cc -O2 -o shm_write bench/limits/shm_write.c && ./shm_write
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES (256ul << 20)
#define TOTAL (2048ul << 20)

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
copy(char *to, const char *from, unsigned long piece, unsigned long i)
{
    for (unsigned long at = 0; at < piece; at += 256 << 10) { /* In slices, as the engine. */
        memcpy(to + i * piece % BYTES + at, from + i * piece % BYTES + at, 256 << 10);
    }
}

static void
take(int fd, int flags, char *bytes, size_t length)
{
    for (size_t have = 0; have < length;) {
        ssize_t got = recv(fd, bytes + have, length - have, flags);
        have += got > 0 ? (size_t)got : 0;
        got < 0 ? sched_yield() : 0;
    }
}

/* The target: GB/s without messages go first, then it answers. */
static void
answer(int fd, char *to, const char *from, unsigned long piece)
{
    char bytes[288] = {0};
    double began, rate[2];
    for (int pass = 0; pass < 2; pass++) { /* The first one has the pages made. */
        began = now();
        for (unsigned long i = 0; i < TOTAL / piece; i++) {
            copy(to, from, piece, i);
        }
        rate[pass] = (double)TOTAL / (now() - began) / 1e9;
    }
    (void)!send(fd, &rate[1], sizeof(rate[1]), 0);
    for (unsigned long i = 0; i < TOTAL / piece; i++) {
        take(fd, MSG_DONTWAIT, bytes, 288);
        copy(to, from, piece, i);
        (void)!send(fd, bytes, 96, 0);
    }
    _exit(0);
}

int
main(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, one = 1;
    char *from = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0), bytes[288] = {0};
    char *to = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0), b;

    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(a, (struct sockaddr *)&address, length) != 0) {
        return 1;
    }
    b = accept(listener, NULL, NULL);
    setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    memset(from, 1, BYTES);
    for (int round = 0; round < 15; round++) {
        unsigned long piece = 256ul << 10 << 2 * (round % 3), count = TOTAL / piece;
        double began, alone, rate;
        if (fork() == 0) {
            answer(b, to, from, piece);
        }
        take(a, 0, (char *)&alone, sizeof(alone));
        began = now();
        for (unsigned long i = 0; i < count + 2; i++) {
            if (i >= 2) {
                take(a, 0, bytes, 96);
            }
            if (i < count) {
                (void)!send(a, bytes, 288, 0);
            }
        }
        rate = (double)TOTAL / (now() - began) / 1e9;
        wait(NULL);
        printf("%5lu KiB a message: copy %.2f GB/s, with messages %.2f, ratio %.2f\n", piece >> 10,
               alone, rate, rate / alone);
    }
    return 0;
}
