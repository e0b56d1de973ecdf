/* SPDX-License-Identifier: Apache-2.0
 *
 * What a write over shared memory costs at the least: the target copies (RULES A4), so that before
 * each piece there is a request, and behind it an answer to another process.
 *
 * A keeps two requests of 288 bytes under way on a loopback TCP socket; B, which asks without
 * waiting, copies a piece of A's memory, which it has mapped, and answers with 96 bytes. A sleeps
 * until then, as the engine does after 50 us. The ratio to the copy alone is the most there is.
 *
 *     cc -O2 -o shm_write bench/limits/shm_write.c && ./shm_write
 */
#define _GNU_SOURCE
#include <netinet/in.h>
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
    struct timespec t = {0};
    return clock_gettime(CLOCK_MONOTONIC, &t) + (double)t.tv_sec + (double)t.tv_nsec / 1e9;
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
        have += got > 0 ? (size_t)got : (size_t)sched_yield(); /* Which returns 0. */
    }
}

/* The target says how fast it copies alone, and then answers. */
static void
answer(int fd, char *to, const char *from, unsigned long piece)
{
    char bytes[288];
    double began = 0, rate = 0;
    for (unsigned long i = 0; i < 2 * TOTAL / piece; i++) {
        began = i == TOTAL / piece ? now() : began; /* Until then pages are mapped. */
        copy(to, from, piece, i);
    }
    rate = (double)TOTAL / (now() - began) / 1e9;
    (void)!send(fd, &rate, sizeof(rate), 0);
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
    struct sockaddr_in address;
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0), b;
    (void)!listen(listener, 1); /* At any port. */
    (void)!getsockname(listener, (struct sockaddr *)&address, &length);
    (void)!connect(a, (struct sockaddr *)&address, length);
    b = accept(listener, NULL, NULL);
    (void)setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    for (int round = 0; round < 15; round++) {
        unsigned long piece = 256ul << 10 << 2 * (round % 3), count = TOTAL / piece;
        double began, alone = 0, rate;
        fork() == 0 ? answer(b, to, from, piece) : take(a, 0, (char *)&alone, sizeof(alone));
        began = now();
        for (unsigned long i = 0; i < count + 2; i++) {
            i >= 2 ? take(a, 0, bytes, 96) : (void)0;
            i < count ? (void)!send(a, bytes, 288, 0) : (void)0;
        }
        rate = (double)TOTAL / (now() - began) / 1e9;
        printf("%5lu KiB a message: copy %.2f GB/s, with messages %.2f, ratio %.2f\n", piece >> 10,
               alone, rate, rate / alone);
        wait(NULL);
    }
    return 0;
}
