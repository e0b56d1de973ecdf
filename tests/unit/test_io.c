/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the contract of net/io.h on the backends that speak to the machine.
 * Method: the conformance suite on loopback, and what only a real socket can show: a peer that
 * resets, memory that faults, a wake from a thread, descriptors that come back.
 * Where the kernel or a sandbox forbids io_uring its half is skipped.
 */
#include "io_conformance.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io_probe.h"
#include "net/io_internal.h"

#define DEADLINE_NS (60 * YB_NS_PER_S)

/* ---- the backends as the suite wants them ------------------------------------------------ */

static void *
create_io(const char *name, struct yb_io **io_out)
{
    enum yb_status status = yb_io_create(name, yb_clock_system(), io_out);

    if (status == YB_UNSUPPORTED) {
        return NULL;
    }
    assert_int_equal(status, YB_OK);
    return *io_out;
}

static void *
create_epoll(struct yb_io **io_out)
{
    return create_io("epoll", io_out);
}

static void *
create_uring(struct yb_io **io_out)
{
    return create_io("io_uring", io_out);
}

static void
destroy_io(void *world, struct yb_io *io)
{
    (void)world;
    yb_io_destroy(&io);
    assert_null(io);
}

static void
pass(void *world, struct yb_io *io)
{
    (void)world;
    (void)yb_io_poll(io, YB_NS_PER_MS);
}

static uint64_t
now_ns(void *world)
{
    (void)world;
    return yb_clock_now(yb_clock_system());
}

static const struct io_backend backends[] = {
    {"epoll", create_epoll, destroy_io, pass, now_ns},
    {"io_uring", create_uring, destroy_io, pass, now_ns},
};

/* ---- what a simulation cannot show ------------------------------------------------------- */

static struct yb_io *
open_io(void **state)
{
    const struct io_backend *backend = *state;
    struct yb_io *io = NULL;

    if (backend->create(&io) == NULL) {
        skip();
    }
    return io;
}

#define AWAIT(io, condition)                                               \
    do {                                                                   \
        uint64_t until_ns = yb_clock_now(yb_clock_system()) + DEADLINE_NS; \
        while (!(condition)) {                                             \
            assert_true(yb_clock_now(yb_clock_system()) < until_ns);       \
            (void)yb_io_poll((io), YB_NS_PER_MS);                          \
        }                                                                  \
    } while (0)

static uint32_t
count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    uint32_t count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    assert_int_equal(closedir(directory), 0);
    return count;
}

static void
test_io__a_backend_is_called_by_its_name(void **state)
{
    struct yb_io *io = NULL;

    assert_int_equal(yb_io_create("kqueue", yb_clock_system(), &io), YB_INVALID);
    assert_null(io);
    io = open_io(state);
    assert_string_equal(io->ops->name, ((const struct io_backend *)*state)->name);
    yb_io_destroy(&io);
    assert_int_equal(yb_io_create("auto", yb_clock_system(), &io), YB_OK);
    yb_io_destroy(&io);
}

/* Two connected probes in one io. */
struct pair {
    struct io_acceptor acceptor;
    struct io_probe client;
    struct io_probe server;
};

static void
pair_open(struct pair *pair, struct yb_io *io)
{
    struct yb_address loopback;
    char why[YB_ADDRESS_WHY_BYTES];

    assert_int_equal(yb_address_parse("127.0.0.1", 0, &loopback, why), YB_OK);
    io_acceptor_init(&pair->acceptor, io, &pair->server, 1);
    io_probe_init(&pair->client, io);
    assert_int_equal(io_acceptor_listen(&pair->acceptor, &loopback), YB_OK);
    assert_int_equal(io_probe_connect(&pair->client, &pair->acceptor.address, NULL), YB_OK);
    AWAIT(io, pair->client.connected_count == 1 && pair->acceptor.accepted_count == 1);
    assert_int_equal(pair->client.connect_status, YB_OK);
}

static void
pair_close(struct pair *pair, struct yb_io *io)
{
    io_probe_close(&pair->client, YB_CLOSE_ABORT);
    io_probe_close(&pair->server, YB_CLOSE_ABORT);
    io_acceptor_close(&pair->acceptor);
    AWAIT(io, pair->client.closed_count == 1 && pair->server.closed_count == 1);
    io_probe_fini(&pair->client);
    io_probe_fini(&pair->server);
}

/* What the faulting operations below were told. */
struct fault_owner {
    enum yb_status status;
    uint32_t told;
    uint32_t closed;
};

static void
fault_bytes(void *owner, enum yb_status status, const uint8_t *bytes, size_t length)
{
    (void)owner;
    (void)status;
    (void)bytes;
    (void)length;
    fail_msg("nothing was asked to be read as bytes");
}

static void
fault_told(void *owner, enum yb_status status, size_t length)
{
    struct fault_owner *fault = owner;

    (void)length;
    fault->status = status;
    fault->told++;
}

static void
fault_connected(void *owner, enum yb_status status)
{
    fault_told(owner, status, 0);
}

static void
fault_closed(void *owner)
{
    ((struct fault_owner *)owner)->closed++;
}

static const struct yb_stream_events fault_events = {
    .on_connected = fault_connected,
    .on_bytes = fault_bytes,
    .on_filled = fault_told,
    .on_written = fault_told,
    .on_closed = fault_closed,
};

static void
test_io__memory_that_cannot_be_touched_is_a_fault_and_not_a_lost_peer(void **state)
{
    struct yb_io *io = open_io(state);
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct iovec iov = {.iov_base = page, .iov_len = 4096};
    struct fault_owner owner = {0};
    struct yb_stream *stream = NULL;
    struct pair pair;

    assert_true(page != MAP_FAILED);
    pair_open(&pair, io);
    pair.acceptor.keep = true;
    assert_int_equal(
        yb_io_connect(io, &pair.acceptor.address, NULL, &fault_events, &owner, &stream), YB_OK);
    AWAIT(io, owner.told == 1 && pair.acceptor.accepted_count == 2);
    assert_int_equal(owner.status, YB_OK);
    assert_int_equal(yb_stream_write(stream, &iov, 1), YB_OK);
    AWAIT(io, owner.told == 2);
    assert_int_equal(owner.status, YB_FAULT);
    yb_stream_close(stream, YB_CLOSE_ABORT);
    yb_io_discard(io, &pair.acceptor.accepted);
    AWAIT(io, owner.closed == 1);
    pair_close(&pair, io);
    yb_io_destroy(&io);
    assert_int_equal(munmap(page, 4096), 0);
}

/* Both have bytes to read: the patient one comes second, and comes although the other goes on. */
static void
test_io__a_patient_stream_waits_for_others_though_not_for_ever(void **state)
{
    static const uint8_t bytes[4096];
    struct io_probe clients[2];
    struct io_probe servers[2];
    struct io_acceptor acceptor;
    struct yb_address any;
    struct yb_io *io = open_io(state);
    char why[YB_ADDRESS_WHY_BYTES];

    if (strcmp(io->ops->name, "epoll") != 0) {
        yb_io_destroy(&io);
        skip(); /* The kernel decides there. */
    }
    assert_int_equal(yb_address_parse("127.0.0.1", 0, &any, why), YB_OK);
    io_acceptor_init(&acceptor, io, servers, 2);
    assert_int_equal(io_acceptor_listen(&acceptor, &any), YB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        io_probe_init(&clients[i], io);
        assert_int_equal(io_probe_connect(&clients[i], &acceptor.address, NULL), YB_OK);
        AWAIT(io, clients[i].connected_count == 1 && acceptor.accepted_count == i + 1);
        io_probe_send(&clients[i], bytes, sizeof(bytes));
        AWAIT(io, clients[i].written_count == 1);
    }
    while (yb_io_poll(io, YB_NS_PER_MS) > 0) {
    }
    servers[1].read_limit = 1;
    servers[1].keep_reading = true;
    yb_stream_set_patient(servers[0].stream);
    io_probe_read(&servers[0]);
    io_probe_read(&servers[1]);
    (void)yb_io_poll(io, 0);
    assert_int_equal(servers[0].received_length, 0);
    assert_int_equal(servers[1].received_length, 1);
    assert_true(io->contended);
    for (uint32_t i = 0; i < 100 && servers[0].received_length == 0; i++) {
        (void)yb_io_poll(io, 0);
    }
    assert_int_equal(servers[0].received_length, sizeof(bytes));
    assert_in_range(servers[1].received_length, 5, 1000);
    io_acceptor_close(&acceptor);
    for (uint32_t i = 0; i < 2; i++) {
        io_probe_close(&clients[i], YB_CLOSE_ABORT);
        io_probe_close(&servers[i], YB_CLOSE_ABORT);
        AWAIT(io, clients[i].closed_count == 1 && servers[i].closed_count == 1);
        io_probe_fini(&clients[i]);
        io_probe_fini(&servers[i]);
    }
    yb_io_destroy(&io);
}

static void
note_congestion(void *owner, const struct yb_accepted *accepted)
{
    char *name = owner;
    socklen_t length = 16;

    assert_int_equal(getsockopt((int)accepted->handle, IPPROTO_TCP, TCP_CONGESTION, name, &length),
                     0);
    assert_int_equal(close((int)accepted->handle), 0);
}

/* A congestion control that was in charge first leaves its pacing behind. */
static void
test_io__a_listener_s_options_hold_before_a_connection_is_adopted(void **state)
{
    const struct yb_stream_options options = {.congestion = "reno"}; /* Every kernel has it. */
    struct yb_io *io = open_io(state);
    struct yb_listener *listener = NULL;
    struct yb_stream *stream = NULL;
    struct fault_owner owner = {0};
    struct yb_address address;
    char why[YB_ADDRESS_WHY_BYTES];
    char name[16] = "";

    assert_int_equal(yb_address_parse("127.0.0.1", 0, &address, why), YB_OK);
    assert_int_equal(yb_io_listen(io, &address, &options, note_congestion, name, &listener), YB_OK);
    yb_io_listener_address(io, listener, &address);
    assert_int_equal(yb_io_connect(io, &address, NULL, &fault_events, &owner, &stream), YB_OK);
    AWAIT(io, owner.told > 0 && name[0] != '\0');
    assert_string_equal(name, "reno");
    yb_stream_close(stream, YB_CLOSE_ABORT);
    yb_io_listener_close(io, &listener);
    AWAIT(io, owner.closed == 1);
    yb_io_destroy(&io);
}

static void *
wake_soon(void *arg)
{
    yb_io_wake(arg);
    return NULL;
}

static void
test_io__a_thread_wakes_a_poll_that_waits_for_ever(void **state)
{
    struct yb_io *io = open_io(state);
    pthread_t thread;

    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(pthread_create(&thread, NULL, wake_soon, io), 0);
        assert_int_equal(yb_io_poll(io, YB_NEVER), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    yb_io_destroy(&io);
}

static void
test_io__every_descriptor_comes_back(void **state)
{
    struct yb_io *io = open_io(state);
    uint32_t before;
    struct pair pair;

    yb_io_destroy(&io);
    before = count_descriptors();
    for (uint32_t i = 0; i < 10; i++) {
        io = open_io(state);
        pair_open(&pair, io);
        pair_close(&pair, io);
        yb_io_destroy(&io);
    }
    assert_int_equal(count_descriptors(), before);
}

static void
test_io__every_errno_has_a_status_that_says_what_to_do(void **state)
{
    (void)state;
    assert_int_equal(yb_io_status_of_errno(0), YB_OK);
    assert_int_equal(yb_io_status_of_errno(ECONNREFUSED), YB_REFUSED);
    assert_int_equal(yb_io_status_of_errno(ETIMEDOUT), YB_TIMED_OUT);
    assert_int_equal(yb_io_status_of_errno(EADDRINUSE), YB_ADDRESS_IN_USE);
    assert_int_equal(yb_io_status_of_errno(ENETUNREACH), YB_UNREACHABLE);
    assert_int_equal(yb_io_status_of_errno(EACCES), YB_DENIED);
    assert_int_equal(yb_io_status_of_errno(EADDRNOTAVAIL), YB_INVALID);
    assert_int_equal(yb_io_status_of_errno(EMFILE), YB_NO_MEMORY);
    assert_int_equal(yb_io_status_of_errno(EFAULT), YB_FAULT);
    assert_int_equal(yb_io_status_of_errno(ECANCELED), YB_CANCELLED);
    assert_int_equal(yb_io_status_of_errno(ECONNRESET), YB_PEER_LOST);
}

int
main(void)
{
    int failed = 0;

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
#define T(name) cmocka_unit_test_prestate(name, (void *)(uintptr_t)&backends[i])
        const struct CMUnitTest tests[] = {
            T(test_io__a_backend_is_called_by_its_name),
            T(test_io__memory_that_cannot_be_touched_is_a_fault_and_not_a_lost_peer),
            T(test_io__a_patient_stream_waits_for_others_though_not_for_ever),
            T(test_io__a_listener_s_options_hold_before_a_connection_is_adopted),
            T(test_io__a_thread_wakes_a_poll_that_waits_for_ever),
            T(test_io__every_descriptor_comes_back),
            T(test_io__every_errno_has_a_status_that_says_what_to_do),
        };
#undef T

        failed += io_conformance_run(&backends[i]);
        failed += cmocka_run_group_tests_name(backends[i].name, tests, NULL, NULL);
    }
    return failed;
}
