/* SPDX-License-Identifier: Apache-2.0
 *
 * With every descriptor in use a connection cannot be accepted and stays in the kernel's queue; the
 * listener was reported ready again and again, at 100 % of a processor.
 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io_probe.h"

#define WATCH_NS  (200 * YB_NS_PER_MS)
#define POLLS_MAX 100u /* One that spins makes many thousands. */
#define FILES_MAX 128u

/* Take every descriptor there is. Returns how many that were. */
static uint32_t
take_all(int fds_out[FILES_MAX])
{
    uint32_t count = 0;

    while (count < FILES_MAX && (fds_out[count] = open("/dev/null", O_RDONLY)) >= 0) {
        count++;
    }
    assert_true(count < FILES_MAX);
    return count;
}

static void
check(const char *backend)
{
    struct sockaddr_storage storage;
    struct io_acceptor acceptor;
    struct yb_address address;
    char why[YB_ADDRESS_WHY_BYTES];
    struct io_probe probe;
    struct yb_io *io = NULL;
    uint32_t polls = 0;
    socklen_t length = 0;
    int fds[FILES_MAX];
    uint64_t until_ns;
    uint32_t count;
    int client;

    if (yb_io_create(backend, yb_clock_system(), &io) != YB_OK) {
        skip();
    }
    assert_int_equal(yb_address_parse("127.0.0.1:0", 0, &address, why), YB_OK);
    io_probe_init(&probe, io);
    io_acceptor_init(&acceptor, io, &probe, 1);
    assert_int_equal(io_acceptor_listen(&acceptor, &address), YB_OK);
    yb_address_to_sockaddr(&acceptor.address, &storage, &length);
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(client >= 0);
    count = take_all(fds);
    assert_int_equal(connect(client, (const struct sockaddr *)&storage, length), 0);

    until_ns = yb_clock_now(yb_clock_system()) + WATCH_NS;
    while (yb_clock_now(yb_clock_system()) < until_ns && polls < POLLS_MAX) {
        (void)yb_io_poll(io, YB_NS_PER_S);
        polls++;
    }
    assert_true(polls < POLLS_MAX);
    assert_int_equal(acceptor.accepted_count, 0);

    while (count > 0) {
        (void)close(fds[--count]);
    }
    while (acceptor.accepted_count == 0) {
        (void)yb_io_poll(io, YB_NS_PER_S);
    }
    io_probe_close(&probe, YB_CLOSE_ABORT);
    while (probe.closed_count == 0) {
        (void)yb_io_poll(io, YB_NS_PER_S);
    }
    io_probe_fini(&probe);

    /* And a listener that rests can be closed. */
    count = take_all(fds);
    (void)close(client);
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(client >= 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&storage, length), 0);
    (void)yb_io_poll(io, YB_NS_PER_S);
    io_acceptor_close(&acceptor);
    while (count > 0) {
        (void)close(fds[--count]);
    }
    (void)close(client);
    yb_io_destroy(&io);
}

static void
test_regress__epoll_waits_for_descriptors(void **state)
{
    (void)state;
    check("epoll");
}

static void
test_regress__io_uring_waits_for_descriptors(void **state)
{
    (void)state;
    check("io_uring");
}

int
main(void)
{
    const struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regress__epoll_waits_for_descriptors),
        cmocka_unit_test(test_regress__io_uring_waits_for_descriptors),
    };

    if (setrlimit(RLIMIT_NOFILE, &few) != 0) {
        return 77; /* Skipped: not allowed here. */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
