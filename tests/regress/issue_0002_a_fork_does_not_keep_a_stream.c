/* SPDX-License-Identifier: Apache-2.0
 *
 * A child of fork() holds the sockets of its parent. Closing one in the parent then neither took it
 * out of the epoll set, so that its next event named freed memory, nor told the peer anything.
 */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_probe.h"

/* Start a child that does nothing but hold what its parent had open. */
static pid_t
hold_everything(void)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* It goes also when the test fails. */
        for (;;) {
            (void)pause();
        }
    }
    return child;
}

static void
await_polls(struct yb_io *io, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)yb_io_poll(io, YB_NS_PER_MS);
    }
}

static void
check(const char *backend, enum yb_close_how how)
{
    const struct timeval patience = {.tv_sec = 10};
    struct sockaddr_storage storage;
    struct io_acceptor acceptor;
    struct yb_address address;
    char why[YB_ADDRESS_WHY_BYTES];
    struct io_probe probe;
    struct yb_io *io = NULL;
    socklen_t length = 0;
    uint8_t byte;
    pid_t child;
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
    assert_int_equal(connect(client, (const struct sockaddr *)&storage, length), 0);
    while (acceptor.accepted_count == 0) {
        (void)yb_io_poll(io, YB_NS_PER_S);
    }
    child = hold_everything();
    io_probe_close(&probe, how);
    while (probe.closed_count == 0) {
        (void)yb_io_poll(io, YB_NS_PER_S);
    }
    /* The peer hears of it although the child lives. */
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    if (how == YB_CLOSE_ABORT) {
        assert_int_equal(recv(client, &byte, 1, 0), -1);
        assert_int_equal(errno, ECONNRESET);
    } else {
        assert_int_equal(recv(client, &byte, 1, 0), 0);
        (void)!send(client, "x", 1, MSG_NOSIGNAL);
    }
    await_polls(io, 20); /* An event of the freed stream would come here. */
    io_probe_fini(&probe);
    io_acceptor_close(&acceptor);
    await_polls(io, 2);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)close(client);
    yb_io_destroy(&io);
}

static void
test_regress__epoll_forgets_a_stream_that_a_child_holds(void **state)
{
    (void)state;
    check("epoll", YB_CLOSE_GRACEFUL);
    check("epoll", YB_CLOSE_ABORT);
}

static void
test_regress__io_uring_forgets_a_stream_that_a_child_holds(void **state)
{
    (void)state;
    check("io_uring", YB_CLOSE_GRACEFUL);
    check("io_uring", YB_CLOSE_ABORT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regress__epoll_forgets_a_stream_that_a_child_holds),
        cmocka_unit_test(test_regress__io_uring_forgets_a_stream_that_a_child_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
