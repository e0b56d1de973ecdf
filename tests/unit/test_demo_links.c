/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections of another process, cut: which ones, and that nothing else of it is touched.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/demo_links.h"
#include "unit.h"

#define LINKS   8u
#define WAIT_MS 60000

/* A process with connections to this one, a port, and a pair of sockets of another kind. */
struct peer {
    pid_t pid;
    int links[LINKS]; /* This end of its connections. */
    int port;         /* Its port, as a number. */
};

static int
listen_somewhere(int *port_out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(fd, LINKS), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *port_out = ntohs(address.sin_port);
    return fd;
}

static int
connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                                  .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? fd : -1;
}

static struct peer
start_peer(void)
{
    struct peer peer = {.pid = 0};
    int port, own, pair[2];
    int near = listen_somewhere(&port);
    int far = listen_somewhere(&peer.port);

    peer.pid = fork();
    assert_true(peer.pid >= 0);
    if (peer.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* If a test fails. */
        (void)close(near);
        for (uint32_t i = 0; i < LINKS; i++) {
            (void)connect_to(port);
        }
        own = socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 ? pair[0] : -1;
        for (char byte; read(own, &byte, 1) != 0 || errno == EINTR;) {
        }
        _exit(1); /* Somebody has cut what is no connection. */
    }
    (void)close(far);
    for (uint32_t i = 0; i < LINKS; i++) {
        peer.links[i] = accept(near, NULL, NULL);
        assert_true(peer.links[i] >= 0);
    }
    (void)close(near);
    return peer;
}

/* Its port still answers, it is alive, and goes. */
static void
end_peer(const struct peer *peer)
{
    int fd = connect_to(peer->port);

    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(waitpid(peer->pid, NULL, WNOHANG), 0);
    assert_int_equal(kill(peer->pid, SIGKILL), 0);
    assert_int_equal(waitpid(peer->pid, NULL, 0), peer->pid);
    for (uint32_t i = 0; i < LINKS; i++) {
        (void)close(peer->links[i]);
    }
}

/* How many links have ended; at least `least` will. */
static uint32_t
count_ended(const struct peer *peer, uint32_t least)
{
    uint32_t ended = 0;

    for (uint32_t tries = 0; ended < least && tries < WAIT_MS; tries++) {
        ended = 0;
        for (uint32_t i = 0; i < LINKS; i++) {
            char byte;

            ended += recv(peer->links[i], &byte, 1, MSG_DONTWAIT) == 0;
        }
        (void)poll(NULL, 0, ended < least ? 1 : 0);
    }
    return ended;
}

static void
test_demo_links__one_is_cut_in_any_case_and_all_if_asked_and_nothing_else(void **state)
{
    struct yb_demo_links links = {.random = {unit_seed("links")}};
    struct peer peer = start_peer();
    int error = yb_demo_links_cut(&links, &peer.pid, 1, 0);

    (void)state;
    if (error == EPERM || error == ENOSYS) {
        end_peer(&peer);
        skip();
    }
    assert_int_equal(error, 0);
    assert_int_equal(links.seen, LINKS);
    assert_int_equal(links.cut, 1);
    assert_int_equal(count_ended(&peer, 1), 1);
    /* Of the seven that are left each is cut. */
    assert_int_equal(yb_demo_links_cut(&links, &peer.pid, 1, 1), 0);
    assert_int_equal(links.cut, LINKS);
    assert_int_equal(count_ended(&peer, LINKS), LINKS);
    end_peer(&peer);
}

static void
test_demo_links__a_process_that_has_ended_has_none(void **state)
{
    struct yb_demo_links links = {.random = {1}};
    struct peer peer = start_peer();

    (void)state;
    end_peer(&peer);
    assert_int_equal(yb_demo_links_cut(&links, &peer.pid, 1, 1), 0);
    assert_int_equal(links.seen, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo_links__one_is_cut_in_any_case_and_all_if_asked_and_nothing_else),
        cmocka_unit_test(test_demo_links__a_process_that_has_ended_has_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
