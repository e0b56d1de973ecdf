/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_duo.h"

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define GUARD_BYTES 256u
#define GUARD_VALUE 0xa5

static const struct duo_row rows[] = {
    {"tcp", YB_TRANSFER_PATH_TCP},
    {"all", YB_TRANSFER_PATH_ALL},
};

uint32_t duo_paths = YB_TRANSFER_PATH_TCP;

bool
duo_choose(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, argv[1]) == 0) {
            duo_paths = rows[i].paths;
            return true;
        }
    }
    return argc <= 1;
}

void
duo_relayed(void)
{
    if (duo_paths != YB_TRANSFER_PATH_TCP) {
        skip();
    }
}

/* The thread sanitizer sees the threads of both engines, but not that the bytes which one sends
 * order what the other does: for it, an engine's access to a test's memory races with the test's
 * own. Whether memory is touched too late is for the tests themselves to find out, by its bytes. */
const char *__tsan_default_suppressions(void);

const char *
__tsan_default_suppressions(void)
{
    return "race:progress_read\nrace:progress_write\nrace:take_data\n";
}

/* ---- memory ---------------------------------------------------------------------------- */

void
area_init(struct area *area, size_t length)
{
    area->raw = malloc(length + 2 * GUARD_BYTES);
    assert_non_null(area->raw);
    area->bytes = area->raw + GUARD_BYTES;
    area->length = length;
    memset(area->raw, GUARD_VALUE, GUARD_BYTES);
    memset(area->bytes, 0, length);
    memset(area->bytes + length, GUARD_VALUE, GUARD_BYTES);
}

void
area_expect_guards(const struct area *area)
{
    assert_true(all_are(area->raw, GUARD_BYTES, GUARD_VALUE));
    assert_true(all_are(area->bytes + area->length, GUARD_BYTES, GUARD_VALUE));
}

void
area_fini(struct area *area)
{
    area_expect_guards(area);
    free(area->raw);
    area->raw = NULL;
    area->bytes = NULL;
}

void
fill(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern(seed, i);
    }
}

size_t
differs(const uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != pattern(seed, i)) {
            return i;
        }
    }
    return length;
}

void
expect_pattern(const uint8_t *bytes, size_t length, uint64_t seed)
{
    assert_int_equal(differs(bytes, length, seed), length);
}

bool
all_are(const uint8_t *bytes, size_t length, uint8_t value)
{
    return length == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* ---- engines --------------------------------------------------------------------------- */

struct yb_transfer_options
duo_options(void)
{
    return (struct yb_transfer_options){
        .struct_bytes = sizeof(struct yb_transfer_options),
        .paths = duo_paths,
    };
}

struct yb_transfer *
duo_engine(const struct yb_transfer_options *options)
{
    struct yb_transfer *engine = NULL;
    char message[512] = "";
    enum yb_status status = yb_transfer_create(options, &engine, message, sizeof(message));

    if (status != YB_OK) {
        fail_msg("create: %s: %s", yb_status_name(status), message);
    }
    return engine;
}

yb_transfer_peer
duo_open(struct yb_transfer *engine, const char *address)
{
    yb_transfer_peer peer = 0;

    assert_int_equal(yb_transfer_open(engine, address, &peer), YB_OK);
    assert_true(peer != 0);
    return peer;
}

void
duo_init_with(struct duo *duo, const struct yb_transfer_options *here,
              const struct yb_transfer_options *there)
{
    duo->here = duo_engine(here);
    duo->there = duo_engine(there);
    assert_int_equal(yb_transfer_address(duo->there, duo->address, sizeof(duo->address)), YB_OK);
    duo->peer = duo_open(duo->here, duo->address);
}

void
duo_init(struct duo *duo)
{
    struct yb_transfer_options options = duo_options();

    duo_init_with(duo, &options, &options);
}

void
duo_fini(struct duo *duo)
{
    yb_transfer_destroy(&duo->here);
    assert_null(duo->here);
    if (duo->there != NULL) {
        yb_transfer_destroy(&duo->there);
    }
}

yb_transfer_region
duo_register(struct yb_transfer *engine, const struct area *area)
{
    yb_transfer_region region = 0;

    assert_int_equal(yb_transfer_register(engine, area->bytes, area->length, NULL, &region), YB_OK);
    assert_true(region != 0);
    return region;
}

struct yb_id
duo_identity(struct yb_transfer *asker, yb_transfer_peer peer)
{
    struct yb_transfer_probe probe;
    enum yb_status status = YB_TIMED_OUT;

    /* On a busy machine a handshake may take longer than its time. */
    for (uint32_t i = 0; i < ASK_TRIES && status == YB_TIMED_OUT; i++) {
        status = yb_transfer_ask(asker, peer, PATIENCE_NS, &probe);
    }
    assert_int_equal(status, YB_OK);
    return probe.identity;
}

struct yb_transfer_item
duo_item(enum yb_transfer_op op, const struct area *local, yb_transfer_region remote)
{
    return (struct yb_transfer_item){
        .op = op,
        .local = local->bytes,
        .length = local->length,
        .remote = remote,
    };
}

yb_transfer_batch
duo_submit(const struct duo *duo, const struct yb_transfer_item *items, uint32_t count,
           const struct yb_transfer_batch_options *options)
{
    yb_transfer_batch batch = 0;

    assert_int_equal(yb_transfer_submit(duo->here, duo->peer, items, count, options, &batch),
                     YB_OK);
    assert_true(batch != 0);
    return batch;
}

struct yb_transfer_batch_status
duo_end(struct yb_transfer *engine, yb_transfer_batch batch,
        struct yb_transfer_item_status *statuses, uint32_t room)
{
    struct yb_transfer_batch_status status;

    assert_int_equal(yb_transfer_wait(engine, batch, PATIENCE_NS), YB_OK);
    assert_int_equal(yb_transfer_poll(engine, batch, &status, statuses, room), YB_OK);
    assert_true(status.status != YB_IN_PROGRESS);
    assert_int_equal(status.ended, status.items);
    assert_true(status.took_ns < 10 * PATIENCE_NS);
    assert_int_equal(yb_transfer_release(engine, batch), YB_OK);
    assert_int_equal(yb_transfer_poll(engine, batch, &status, NULL, 0), YB_CLOSED);
    return status;
}

struct yb_transfer_batch_status
duo_run(const struct duo *duo, const struct yb_transfer_item *items, uint32_t count,
        const struct yb_transfer_batch_options *options, struct yb_transfer_item_status *statuses)
{
    return duo_end(duo->here, duo_submit(duo, items, count, options), statuses, count);
}

/* Return one of SOL_SOCKET's numbers, -1 if there is no such socket. */
static int
socket_option(int fd, int option)
{
    int value = -1;
    socklen_t length = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

void
duo_cut_shm(void)
{
    struct rlimit files;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    for (int fd = 0; fd < (int)files.rlim_cur && fd < 1024; fd++) {
        if (socket_option(fd, SO_DOMAIN) == AF_UNIX &&
            socket_option(fd, SO_TYPE) == SOCK_SEQPACKET && socket_option(fd, SO_ACCEPTCONN) == 0) {
            (void)shutdown(fd, SHUT_RDWR);
        }
    }
}

/* ---- holding an engine up --------------------------------------------------------------- */

struct stall {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct yb_transfer *engine;
    bool held;
    bool go;
    bool over;
};

static void
on_stall(struct yb_transfer *engine, yb_transfer_batch batch, void *owner)
{
    struct stall *stall = owner;

    if (yb_transfer_release(engine, batch) != YB_OK) {
        abort(); /* Not the test's thread: its asserts are of no use here. */
    }
    pthread_mutex_lock(&stall->lock);
    stall->held = true;
    pthread_cond_broadcast(&stall->changed);
    while (!stall->go) {
        pthread_cond_wait(&stall->changed, &stall->lock);
    }
    stall->over = true;
    pthread_cond_broadcast(&stall->changed);
    pthread_mutex_unlock(&stall->lock);
}

struct stall *
stall_begin(struct yb_transfer *engine, yb_transfer_peer peer)
{
    struct stall *stall = calloc(1, sizeof(*stall));
    const struct yb_transfer_item nothing = {.op = YB_TRANSFER_READ, .remote = 1};
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .done = on_stall,
        .owner = stall,
    };
    yb_transfer_batch batch;

    assert_non_null(stall);
    pthread_mutex_init(&stall->lock, NULL);
    pthread_cond_init(&stall->changed, NULL);
    stall->engine = engine;
    assert_int_equal(yb_transfer_submit(engine, peer, &nothing, 1, &options, &batch), YB_OK);
    pthread_mutex_lock(&stall->lock);
    while (!stall->held) {
        pthread_cond_wait(&stall->changed, &stall->lock);
    }
    pthread_mutex_unlock(&stall->lock);
    return stall;
}

void
stall_end(struct stall **stall_ref)
{
    struct stall *stall = *stall_ref;

    *stall_ref = NULL;
    pthread_mutex_lock(&stall->lock);
    stall->go = true;
    pthread_cond_broadcast(&stall->changed);
    while (!stall->over) {
        pthread_cond_wait(&stall->changed, &stall->lock);
    }
    pthread_mutex_unlock(&stall->lock);
    pthread_mutex_destroy(&stall->lock);
    pthread_cond_destroy(&stall->changed);
    free(stall);
}

void
pause_ms(uint32_t ms)
{
    (void)poll(NULL, 0, (int)ms);
}
