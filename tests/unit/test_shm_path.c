/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory path: what is read and written through it, and what becomes of slices when it
 * breaks.
 */
#include "unit.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "transfer/engine_internal.h"
#include "transfer/shm/path_internal.h"
#include "transfer/shm/shm_internal.h"
#include "yuebing/transfer.h"

#define PATIENCE_NS (60 * YB_NS_PER_S) /* Only something broken takes so long. */
#define MIB         (1024u * 1024u)

#define EXPECT_OK(call) assert_int_equal((call), YB_OK)

#if defined(__has_feature)
#define TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define TSAN 1
#else
#define TSAN 0
#endif
#if TSAN
/* Two engines of one process order what they do to each other's memory by messages over sockets,
 * which ThreadSanitizer does not see. */
const char *__tsan_default_suppressions(void);
const char *
__tsan_default_suppressions(void)
{
    return "race:yb_shm_attach_read\nrace:yb_shm_hold_copy\n";
}
#endif

static uint64_t
now_ns(void)
{
    return yb_clock_now(yb_clock_system());
}

/* ---- two engines ----------------------------------------------------------------------------- */

struct engines {
    struct yb_transfer *a; /* Initiator. */
    struct yb_transfer *b;
    yb_transfer_peer peer;
};

static struct yb_transfer *
make_engine(uint32_t paths)
{
    const struct yb_transfer_options options = {.struct_bytes = sizeof(options), .paths = paths};
    struct yb_transfer *engine;
    char message[256] = "";

    if (yb_transfer_create(&options, &engine, message, sizeof(message)) != YB_OK) {
        fail_msg("%s", message);
    }
    return engine;
}

/* Wait until the peer's shared memory is up (or down, with a reason). */
static void
await_shm(struct yb_transfer *engine, yb_transfer_peer peer, bool up)
{
    struct yb_transfer_probe probe;
    uint64_t until = now_ns() + PATIENCE_NS;

    do {
        EXPECT_OK(yb_transfer_ask(engine, peer, PATIENCE_NS, &probe));
        if (now_ns() >= until) {
            fail_msg("shm never %s: %s", up ? "up" : "down", probe.why_not_shm);
        }
    } while (((probe.paths & YB_TRANSFER_PATH_SHM) != 0) != up);
    /* What is up in part says why, too. */
    assert_int_equal(probe.why_not_shm[0] == '\0', up && !atomic_load(&engine->shm->forbid_attach));
}

static void
engines_init(struct engines *engines, uint32_t paths)
{
    char address[64];

    engines->a = make_engine(paths);
    engines->b = make_engine(0);
    EXPECT_OK(yb_transfer_address(engines->b, address, sizeof(address)));
    EXPECT_OK(yb_transfer_open(engines->a, address, &engines->peer));
    await_shm(engines->a, engines->peer, true);
}

static void
engines_fini(struct engines *engines)
{
    yb_transfer_destroy(&engines->a);
    yb_transfer_destroy(&engines->b);
}

/* Move items and return how they ended. */
static struct yb_transfer_batch_status
move(struct yb_transfer *engine, yb_transfer_peer peer, const struct yb_transfer_item *items,
     uint32_t count, struct yb_transfer_item_status *statuses_out)
{
    struct yb_transfer_batch_status status;
    yb_transfer_batch batch;

    EXPECT_OK(yb_transfer_submit(engine, peer, items, count, NULL, &batch));
    EXPECT_OK(yb_transfer_wait(engine, batch, PATIENCE_NS));
    EXPECT_OK(yb_transfer_poll(engine, batch, &status, statuses_out, count));
    EXPECT_OK(yb_transfer_release(engine, batch));
    return status;
}

static struct yb_transfer_item_status
move_one(const struct engines *engines, uint32_t op, void *local, uint64_t length,
         yb_transfer_region region, uint64_t offset)
{
    const struct yb_transfer_item item = {
        .op = op, .local = local, .length = length, .remote = region, .remote_offset = offset};
    struct yb_transfer_item_status status;

    (void)move(engines->a, engines->peer, &item, 1, &status);
    return status;
}

static uint8_t *
ordinary(struct yb_transfer *engine, uint64_t length, yb_transfer_region *region_out)
{
    uint8_t *bytes = malloc(length);

    assert_non_null(bytes);
    memset(bytes, 0x44, length);
    EXPECT_OK(yb_transfer_register(engine, bytes, length, NULL, region_out));
    return bytes;
}

static void
fill(uint8_t *bytes, uint64_t length, uint64_t *random)
{
    for (uint64_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(unit_random(random) >> 32);
    }
}

#define WALK_BYTES (2u * MIB)

/* Move random pieces between memory at both ends, and compare all of it with a model. */
static void
walk(struct engines *engines, uint8_t *local, uint8_t *remote, uint64_t seed)
{
    static uint8_t model_local[WALK_BYTES];
    static uint8_t model_remote[WALK_BYTES];
    struct yb_transfer_item items[100];
    struct yb_transfer_item_status statuses[100];
    uint64_t random = seed;

    fill(local, WALK_BYTES, &random);
    fill(remote, WALK_BYTES, &random);
    memcpy(model_local, local, WALK_BYTES);
    memcpy(model_remote, remote, WALK_BYTES);
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t count = 1 + (uint32_t)(unit_random(&random) % 100);
        uint64_t piece = WALK_BYTES / count;
        uint32_t op = (uint32_t)(unit_random(&random) % 2);

        for (uint32_t i = 0; i < count; i++) {
            uint64_t length = unit_random(&random) % (piece + 1);
            uint64_t from = i * piece + unit_random(&random) % (piece - length + 1);
            uint64_t to = (count - 1 - i) * piece + unit_random(&random) % (piece - length + 1);

            items[i] = (struct yb_transfer_item){
                .op = op,
                .local = local + from,
                .length = length,
                .remote = YB_TRANSFER_BY_ADDRESS,
                .remote_offset = (uintptr_t)remote + to,
            };
            if (op == YB_TRANSFER_READ) {
                memcpy(model_local + from, model_remote + to, length);
            } else {
                memcpy(model_remote + to, model_local + from, length);
            }
        }
        EXPECT_OK(move(engines->a, engines->peer, items, count, statuses).status);
        for (uint32_t i = 0; i < count; i++) {
            if (items[i].length > 0) {
                assert_int_equal(statuses[i].path, YB_TRANSFER_PATH_SHM);
            }
        }
        assert_memory_equal(local, model_local, WALK_BYTES);
        assert_memory_equal(remote, model_remote, WALK_BYTES);
    }
}

static void
walk_all(bool attach)
{
    struct engines engines;
    uint64_t seed = unit_seed("walk");
    void *shared_local;
    void *shared_remote;
    uint8_t *local;
    uint8_t *remote;

    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    atomic_store(&engines.a->shm->forbid_attach, !attach);
    atomic_store(&engines.b->shm->forbid_attach, !attach);
    EXPECT_OK(yb_transfer_alloc(engines.a, WALK_BYTES, NULL, &shared_local));
    EXPECT_OK(yb_transfer_alloc(engines.b, WALK_BYTES, NULL, &shared_remote));
    if (attach) {
        local = ordinary(engines.a, WALK_BYTES, NULL);
        remote = ordinary(engines.b, WALK_BYTES, NULL);
        walk(&engines, local, remote, seed);
        walk(&engines, shared_local, remote, seed + 1);
        walk(&engines, local, shared_remote, seed + 2);
        engines_fini(&engines);
        free(local);
        free(remote);
        return;
    }
    /* The session that was made before finds out, and another one comes that only maps. */
    (void)move_one(&engines, YB_TRANSFER_READ, shared_local, 1, YB_TRANSFER_BY_ADDRESS,
                   (uintptr_t)shared_remote);
    await_shm(engines.a, engines.peer, true);
    walk(&engines, shared_local, shared_remote, seed);
    engines_fini(&engines);
}

static void
test_shm_path__bytes_of_any_memory_move_as_a_model_says(void **state)
{
    (void)state;
    walk_all(true);
}

static void
test_shm_path__shared_memory_moves_where_attach_is_forbidden(void **state)
{
    (void)state;
    walk_all(false);
}

static void
test_shm_path__ordinary_memory_goes_over_tcp_where_attach_is_forbidden(void **state)
{
    struct engines engines;
    yb_transfer_region region;
    uint8_t *remote;
    uint8_t local[1000];

    (void)state;
    engines_init(&engines, 0);
    remote = ordinary(engines.b, 4096, &region);
    memset(remote, 0x33, 4096);
    assert_int_equal(move_one(&engines, YB_TRANSFER_READ, local, 1000, region, 0).path,
                     YB_TRANSFER_PATH_SHM);
    atomic_store(&engines.a->shm->forbid_attach, true);
    memset(local, 0, sizeof(local));
    assert_int_equal(move_one(&engines, YB_TRANSFER_READ, local, 1000, region, 0).path,
                     YB_TRANSFER_PATH_TCP);
    assert_memory_equal(local, remote, 1000);
    await_shm(engines.a, engines.peer, true); /* Again, with what is left of it. */
    assert_int_equal(move_one(&engines, YB_TRANSFER_READ, local, 1000, region, 0).path,
                     YB_TRANSFER_PATH_TCP);
    engines_fini(&engines);
    free(remote);
}

static void
test_shm_path__each_item_is_judged_by_itself(void **state)
{
    const struct yb_transfer_memory reads = {.struct_bytes = sizeof(reads),
                                             .access = YB_TRANSFER_MAY_READ};
    struct engines engines;
    struct yb_transfer_item items[6];
    struct yb_transfer_item_status statuses[6];
    yb_transfer_region region;
    uint8_t *remote = calloc(1, 4096);
    uint8_t local[6][100];

    (void)state;
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_register(engines.b, remote, 4096, &reads, &region));
    for (uint32_t op = 0; op < 2; op++) {
        for (uint32_t i = 0; i < 6; i++) {
            items[i] = (struct yb_transfer_item){
                .op = op, .local = local[i], .length = 100, .remote = region};
        }
        items[1].remote_offset = 4000;            /* Four bytes too long. */
        items[2].remote = region + 1;             /* Nobody's. */
        items[3].remote_offset = UINT64_MAX - 50; /* Wraps. */
        items[4].remote = YB_TRANSFER_BY_ADDRESS;
        items[4].remote_offset = (uintptr_t)local[4]; /* Not registered. */
        (void)move(engines.a, engines.peer, items, 6, statuses);
        assert_int_equal(statuses[0].status, op == YB_TRANSFER_READ ? YB_OK : YB_DENIED);
        assert_int_equal(statuses[1].status, YB_INVALID);
        assert_true(statuses[2].status == YB_NOT_FOUND || statuses[2].status == YB_STALE);
        assert_int_equal(statuses[3].status, YB_INVALID);
        assert_int_equal(statuses[4].status, YB_NOT_FOUND);
        assert_int_equal(statuses[5].status, op == YB_TRANSFER_READ ? YB_OK : YB_DENIED);
    }
    engines_fini(&engines);
    free(remote);
}

/* Memory that cannot be written fails its own item, at either end and by mapping or by attach, and
 * ends no process. */
static void
test_shm_path__memory_that_cannot_be_written_is_a_fault(void **state)
{
    struct engines engines;
    struct yb_transfer_item items[2];
    struct yb_transfer_item_status statuses[2];
    uint8_t *bad = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *ours;
    void *theirs;

    (void)state;
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_alloc(engines.a, 4096, NULL, &ours));
    EXPECT_OK(yb_transfer_alloc(engines.b, 4096, NULL, &theirs));
    EXPECT_OK(yb_transfer_register(engines.b, bad, 2 * 4096, NULL, NULL));
    memset(ours, 1, 4096);
    memset(theirs, 2, 4096);
    assert_int_equal(mprotect(bad + 4096, 4096, PROT_NONE), 0);
    for (uint32_t round = 0; round < 20; round++) { /* The loans come meanwhile. */
        uint32_t op = round % 2;

        for (uint32_t i = 0; i < 2; i++) {
            items[i] = (struct yb_transfer_item){
                .op = op,
                .local = op == YB_TRANSFER_READ ? bad + i * 4096 : ours,
                .length = 4096,
                .remote = YB_TRANSFER_BY_ADDRESS,
                .remote_offset =
                    op == YB_TRANSFER_READ ? (uintptr_t)theirs : (uintptr_t)bad + i * 4096,
            };
        }
        (void)move(engines.a, engines.peer, items, 2, statuses);
        EXPECT_OK(statuses[0].status);
        assert_int_equal(statuses[1].status, YB_FAULT);
        assert_int_equal(bad[4095], op == YB_TRANSFER_READ ? 2 : 1);
    }
    engines_fini(&engines);
    assert_int_equal(munmap(bad, 2 * 4096), 0);
}

/* Small pieces that lie beside each other are looked at together, in each batch anew. */
static void
test_shm_path__one_of_many_small_pieces_that_cannot_be_written_fails_alone(void **state)
{
    enum { PIECES = 32, BAD = 13, PAGE = 4096 };
    struct engines engines;
    struct yb_transfer_item items[PIECES];
    struct yb_transfer_item_status statuses[PIECES];
    uint8_t *to =
        mmap(NULL, PIECES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *theirs;

    (void)state;
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_alloc(engines.b, PAGE, NULL, &theirs));
    for (uint32_t i = 0; i < PIECES; i++) {
        items[i] = (struct yb_transfer_item){
            .op = YB_TRANSFER_READ,
            .local = to + i * PAGE,
            .length = PAGE,
            .remote = YB_TRANSFER_BY_ADDRESS,
            .remote_offset = (uintptr_t)theirs,
        };
    }
    for (uint32_t round = 0; round < 30; round++) { /* The loan comes meanwhile. */
        bool bad = round % 3 == 1;

        memset(theirs, (int)round + 1, PAGE);
        assert_int_equal(mprotect(to + BAD * PAGE, PAGE, bad ? PROT_READ : PROT_READ | PROT_WRITE),
                         0);
        (void)move(engines.a, engines.peer, items, PIECES, statuses);
        for (uint32_t i = 0; i < PIECES; i++) {
            bool fails = bad && i == BAD;

            assert_int_equal(statuses[i].status, fails ? YB_FAULT : YB_OK);
            assert_int_equal(to[i * PAGE + PAGE - 1], fails ? round : round + 1);
        }
    }
    engines_fini(&engines);
    assert_int_equal(munmap(to, PIECES * PAGE), 0);
}

/* Large pieces are looked at far ahead: up to the end of a mapping, and no further. */
static void
test_shm_path__one_of_many_large_pieces_that_cannot_be_written_fails_alone(void **state)
{
    enum { PIECES = 4, BAD = 2, PAGE = 4096 };
    struct engines engines;
    struct yb_transfer_item items[PIECES];
    struct yb_transfer_item_status statuses[PIECES];
    uint8_t *to = mmap(NULL, PIECES * YB_SLICE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *hole = to + (BAD + 1) * YB_SLICE_BYTES - PAGE;
    void *theirs;

    (void)state;
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_alloc(engines.b, YB_SLICE_BYTES, NULL, &theirs));
    for (uint32_t i = 0; i < PIECES; i++) {
        items[i] = (struct yb_transfer_item){
            .op = YB_TRANSFER_READ,
            .local = to + i * YB_SLICE_BYTES,
            .length = YB_SLICE_BYTES,
            .remote = YB_TRANSFER_BY_ADDRESS,
            .remote_offset = (uintptr_t)theirs,
        };
    }
    for (uint32_t round = 0; round < 30; round++) { /* The loan comes meanwhile. */
        bool bad = round % 3 == 1;

        memset(theirs, (int)round + 1, YB_SLICE_BYTES);
        assert_int_equal(mprotect(hole, PAGE, bad ? PROT_READ : PROT_READ | PROT_WRITE), 0);
        (void)move(engines.a, engines.peer, items, PIECES, statuses);
        for (uint32_t i = 0; i < PIECES; i++) {
            bool fails = bad && i == BAD;

            assert_int_equal(statuses[i].status, fails ? YB_FAULT : YB_OK);
            assert_int_equal(to[(i + 1) * YB_SLICE_BYTES - 1], fails ? round : round + 1);
        }
    }
    engines_fini(&engines);
    assert_int_equal(munmap(to, PIECES * YB_SLICE_BYTES), 0);
}

static void
test_shm_path__what_was_unregistered_is_neither_read_nor_written(void **state)
{
    struct engines engines;
    yb_transfer_region region;
    yb_transfer_region again;
    uint8_t *remote;
    uint8_t local[100];

    (void)state;
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    remote = ordinary(engines.b, 4096, &region);
    EXPECT_OK(move_one(&engines, YB_TRANSFER_READ, local, 100, region, 0).status); /* Known now. */
    EXPECT_OK(yb_transfer_unregister(engines.b, remote, 0));
    memset(remote, 0x5a, 4096);
    memset(local, 0x77, sizeof(local));
    assert_int_equal(move_one(&engines, YB_TRANSFER_WRITE, local, 100, region, 0).status, YB_STALE);
    assert_int_equal(remote[0], 0x5a);
    assert_int_equal(move_one(&engines, YB_TRANSFER_READ, local, 100, region, 0).status, YB_STALE);
    assert_int_equal(
        move_one(&engines, YB_TRANSFER_READ, local, 100, YB_TRANSFER_BY_ADDRESS, (uintptr_t)remote)
            .status,
        YB_NOT_FOUND);
    EXPECT_OK(yb_transfer_register(engines.b, remote, 4096, NULL, &again));
    assert_true(again != region);
    EXPECT_OK(
        move_one(&engines, YB_TRANSFER_READ, local, 100, YB_TRANSFER_BY_ADDRESS, (uintptr_t)remote)
            .status);
    assert_int_equal(local[99], 0x5a);
    assert_int_equal(move_one(&engines, YB_TRANSFER_READ, local, 100, region, 0).status, YB_STALE);
    engines_fini(&engines);
    free(remote);
}

/* An address that is known as part of one region belongs to another one by now. */
static void
test_shm_path__an_address_is_looked_up_again_when_its_region_has_changed(void **state)
{
    struct engines engines;
    uint8_t *remote;
    uint8_t local[100];

    (void)state;
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    remote = ordinary(engines.b, 4096, NULL);
    for (uint32_t round = 0; round < 20; round++) {
        memset(remote, (int)round, 4096);
        EXPECT_OK(move_one(&engines, YB_TRANSFER_READ, local, 100, YB_TRANSFER_BY_ADDRESS,
                           (uintptr_t)remote + round)
                      .status);
        assert_int_equal(local[99], round);
        EXPECT_OK(yb_transfer_unregister(engines.b, remote, 0));
        EXPECT_OK(yb_transfer_register(engines.b, remote, 4096 - round, NULL, NULL));
    }
    engines_fini(&engines);
    free(remote);
}

/* Start to read a region, take it away and use its memory for something else. */
static void
read_and_unregister(struct engines *engines, bool shared)
{
    const uint64_t length = 32u * MIB;
    uint8_t *local = malloc(length);
    uint8_t *ours = shared ? NULL : malloc(length);
    uint32_t refused = 0;

    for (uint32_t round = 0; round < 10; round++) {
        struct yb_transfer_item item = {.op = YB_TRANSFER_READ, .local = local, .length = length};
        struct yb_transfer_batch_status status;
        yb_transfer_batch batch;
        void *remote = ours;

        if (shared) {
            EXPECT_OK(yb_transfer_alloc(engines->b, length, NULL, &remote));
        } else {
            EXPECT_OK(yb_transfer_register(engines->b, remote, length, NULL, NULL));
        }
        item.remote = YB_TRANSFER_BY_ADDRESS;
        item.remote_offset = (uintptr_t)remote;
        memset(remote, 0x11, length);
        memset(local, 0, length);
        EXPECT_OK(yb_transfer_submit(engines->a, engines->peer, &item, 1, NULL, &batch));
        while (yb_transfer_poll(engines->a, batch, &status, NULL, 0) == YB_OK &&
               status.bytes < (uint64_t)round * MIB && status.status == YB_IN_PROGRESS) {
        }
        if (shared) {
            /* Freed memory lives on in mappings, so that only a change before shows. */
            EXPECT_OK(yb_region_unregister(engines->b->regions, remote, 0));
            memset(remote, 0xee, length);
            EXPECT_OK(yb_region_register(
                engines->b->regions,
                &(struct yb_region_info){
                    .base = remote, .length = 4096, .access = 3, .backing.fd = -1},
                NULL));
        } else {
            EXPECT_OK(yb_transfer_unregister(engines->b, remote, 0));
            memset(remote, 0xee, length);
        }
        EXPECT_OK(yb_transfer_wait(engines->a, batch, PATIENCE_NS));
        EXPECT_OK(yb_transfer_poll(engines->a, batch, &status, NULL, 0));
        EXPECT_OK(yb_transfer_release(engines->a, batch));
        if (status.status == YB_OK) {
            assert_null(memchr(local, 0xee, length));
        } else {
            assert_true(status.status == YB_NOT_FOUND || status.status == YB_INVALID);
            assert_false(status.in_doubt);
            refused++;
        }
        if (shared) {
            EXPECT_OK(yb_transfer_free(engines->b, &remote, 0));
        }
    }
    assert_true(refused > 0);
    free(local);
    free(ours);
}

static void
test_shm_path__bytes_of_a_region_that_went_meanwhile_do_not_count(void **state)
{
    struct engines engines;

    (void)state;
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    read_and_unregister(&engines, false);
    read_and_unregister(&engines, true);
    engines_fini(&engines);
}

/* ---- when it breaks -------------------------------------------------------------------------- */

/* Cut the unix sockets of all sessions of a host. */
static void
cut(struct yb_shm_host *host)
{
    yb_lock_acquire(&host->lock);
    for (struct yb_shm_session *session = host->sessions; session != NULL;
         session = session->next) {
        if (session->info.state == YB_SHM_UP) {
            (void)shutdown(session->socket.fd, SHUT_RDWR);
        }
    }
    yb_lock_release(&host->lock);
}

static void
cut_in_the_middle(uint32_t op)
{
    const uint32_t count = 200;
    struct engines engines;
    struct yb_transfer_item items[200];
    uint8_t *local = malloc(count * MIB / 4);
    uint8_t *remote;
    uint64_t random = unit_seed("cut");

    engines_init(&engines, 0);
    remote = ordinary(engines.b, count * MIB / 4, NULL);
    for (uint32_t round = 0; round < 5; round++) {
        struct yb_transfer_batch_status status;
        yb_transfer_batch batch;

        await_shm(engines.a, engines.peer, true);
        fill(local, count * MIB / 4, &random);
        fill(remote, count * MIB / 4, &random);
        for (uint32_t i = 0; i < count; i++) {
            items[i] = (struct yb_transfer_item){
                .op = op,
                .local = local + i * MIB / 4,
                .length = MIB / 4,
                .remote = YB_TRANSFER_BY_ADDRESS,
                .remote_offset = (uintptr_t)remote + i * MIB / 4,
            };
        }
        EXPECT_OK(yb_transfer_submit(engines.a, engines.peer, items, count, NULL, &batch));
        while (yb_transfer_poll(engines.a, batch, &status, NULL, 0) == YB_OK &&
               status.ended < 10 * (round + 1)) {
        }
        cut(round % 2 == 0 ? engines.a->shm : engines.b->shm);
        EXPECT_OK(yb_transfer_wait(engines.a, batch, PATIENCE_NS));
        EXPECT_OK(yb_transfer_poll(engines.a, batch, &status, NULL, 0));
        EXPECT_OK(yb_transfer_release(engines.a, batch));
        assert_int_equal(status.status, YB_OK);
        assert_int_equal(status.bytes, count * MIB / 4);
        assert_memory_equal(local, remote, count * MIB / 4);
    }
    engines_fini(&engines);
    free(local);
    free(remote);
}

static void
test_shm_path__a_socket_cut_in_mid_batch_loses_nothing(void **state)
{
    (void)state;
    cut_in_the_middle(YB_TRANSFER_READ);
    cut_in_the_middle(YB_TRANSFER_WRITE);
}

/* ---- two processes --------------------------------------------------------------------------- */

struct other {
    pid_t pid;
    struct {
        char address[64];
        uint64_t ordinary; /* Its memory, 16 MiB each, filled with 0x44. */
        uint64_t shared;
    } told;
};

#define OTHER_BYTES (16u * MIB)

/* The other process: an engine until it is killed. Fork it while this one has no threads. */
static void
other_main(int out)
{
    struct other other = {.pid = 0};
    struct yb_transfer *engine;
    void *shared;
    uint8_t *bytes;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    engine = make_engine(0);
    EXPECT_OK(yb_transfer_alloc(engine, OTHER_BYTES, NULL, &shared));
    memset(shared, 0x44, OTHER_BYTES);
    bytes = ordinary(engine, OTHER_BYTES, NULL); /* Last: what was written before is seen. */
    EXPECT_OK(yb_transfer_address(engine, other.told.address, sizeof(other.told.address)));
    other.told.ordinary = (uintptr_t)bytes;
    other.told.shared = (uintptr_t)shared;
    if (write(out, &other.told, sizeof(other.told)) != (ssize_t)sizeof(other.told)) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

static void
other_start(struct other *other)
{
    int pipes[2];

    assert_int_equal(pipe(pipes), 0);
    other->pid = fork();
    assert_true(other->pid >= 0);
    if (other->pid == 0) {
        (void)close(pipes[0]);
        other_main(pipes[1]);
        _exit(1);
    }
    (void)close(pipes[1]);
    assert_int_equal(read(pipes[0], &other->told, sizeof(other->told)), sizeof(other->told));
    (void)close(pipes[0]);
}

static void
other_kill(struct other *other)
{
    assert_int_equal(kill(other->pid, SIGKILL), 0);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
}

static void
test_shm_path__another_process_is_read_and_written(void **state)
{
    struct other other;
    struct engines engines = {.b = NULL};
    uint8_t *local = malloc(OTHER_BYTES);
    uint8_t *back = malloc(OTHER_BYTES);
    uint64_t random = unit_seed("processes");

    (void)state;
    other_start(&other);
    engines.a = make_engine(YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_open(engines.a, other.told.address, &engines.peer));
    await_shm(engines.a, engines.peer, true);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t remote = i == 0 ? other.told.ordinary : other.told.shared;

        fill(local, OTHER_BYTES, &random);
        EXPECT_OK(move_one(&engines, YB_TRANSFER_WRITE, local, OTHER_BYTES, YB_TRANSFER_BY_ADDRESS,
                           remote)
                      .status);
        EXPECT_OK(
            move_one(&engines, YB_TRANSFER_READ, back, OTHER_BYTES, YB_TRANSFER_BY_ADDRESS, remote)
                .status);
        assert_memory_equal(local, back, OTHER_BYTES);
    }
    other_kill(&other);
    yb_transfer_destroy(&engines.a);
    free(local);
    free(back);
}

/* What a killed process was asked ends, and is in doubt no longer than it takes to see it dead. */
static void
test_shm_path__a_killed_process_leaves_no_doubt(void **state)
{
    struct other other;
    struct engines engines = {.b = NULL};
    uint8_t *local = calloc(1, OTHER_BYTES);
    const struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = 20 * YB_NS_PER_S,
    };
    struct yb_transfer_batch_status status;
    struct yb_transfer_item item = {.op = YB_TRANSFER_WRITE,
                                    .local = local,
                                    .length = OTHER_BYTES,
                                    .remote = YB_TRANSFER_BY_ADDRESS};
    yb_transfer_batch batch;

    (void)state;
    other_start(&other);
    engines.a = make_engine(YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_open(engines.a, other.told.address, &engines.peer));
    await_shm(engines.a, engines.peer, true);
    item.remote_offset = other.told.ordinary;
    EXPECT_OK(
        move_one(&engines, YB_TRANSFER_WRITE, local, 1, YB_TRANSFER_BY_ADDRESS, other.told.ordinary)
            .status);
    assert_int_equal(kill(other.pid, SIGSTOP), 0); /* So that it flies. */
    assert_int_equal(waitpid(other.pid, NULL, WUNTRACED), other.pid);
    EXPECT_OK(yb_transfer_submit(engines.a, engines.peer, &item, 1, &options, &batch));
    while (atomic_load(&engines.a->shm->page->tickets[0]) == 0) {
        /* Until a pull is on its way. */
    }
    EXPECT_OK(yb_transfer_poll(engines.a, batch, &status, NULL, 0));
    other_kill(&other);
    EXPECT_OK(yb_transfer_wait(engines.a, batch, PATIENCE_NS));
    EXPECT_OK(yb_transfer_poll(engines.a, batch, &status, NULL, 0));
    assert_int_not_equal(status.status, YB_OK);
    assert_false(status.in_doubt);
    EXPECT_OK(yb_transfer_release(engines.a, batch));
    yb_transfer_destroy(&engines.a);
    free(local);
}

/* A write that was given up on while the target stood still: once the buffer is used for something
 * else, none of that may be pulled (RULES A2). */
static void
test_shm_path__a_target_that_comes_to_life_late_pulls_nothing(void **state)
{
    struct other other;
    struct engines engines = {.b = NULL};
    uint8_t *local = malloc(OTHER_BYTES);
    const struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = 100 * YB_NS_PER_MS,
    };
    struct yb_transfer_batch_status status;
    struct yb_transfer_item item = {.op = YB_TRANSFER_WRITE,
                                    .local = local,
                                    .length = OTHER_BYTES,
                                    .remote = YB_TRANSFER_BY_ADDRESS};
    yb_transfer_batch batch;

    (void)state;
    other_start(&other);
    engines.a = make_engine(YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_open(engines.a, other.told.address, &engines.peer));
    await_shm(engines.a, engines.peer, true);
    item.remote_offset = other.told.ordinary;
    memset(local, 0x55, OTHER_BYTES);
    /* Its regions are known, and its connection stands. */
    EXPECT_OK(
        move_one(&engines, YB_TRANSFER_WRITE, local, 1, YB_TRANSFER_BY_ADDRESS, other.told.ordinary)
            .status);
    assert_int_equal(kill(other.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(other.pid, NULL, WUNTRACED), other.pid);
    EXPECT_OK(yb_transfer_submit(engines.a, engines.peer, &item, 1, &options, &batch));
    EXPECT_OK(yb_transfer_wait(engines.a, batch, PATIENCE_NS));
    EXPECT_OK(yb_transfer_poll(engines.a, batch, &status, NULL, 0));
    assert_true(status.in_doubt);
    memset(local, 0xab, OTHER_BYTES); /* The buffer is ours again. */
    assert_int_equal(kill(other.pid, SIGCONT), 0);
    EXPECT_OK(yb_transfer_drain(engines.a, engines.peer, PATIENCE_NS));
    EXPECT_OK(yb_transfer_poll(engines.a, batch, &status, NULL, 0));
    assert_false(status.in_doubt);
    EXPECT_OK(yb_transfer_release(engines.a, batch));
    await_shm(engines.a, engines.peer, true);
    EXPECT_OK(move_one(&engines, YB_TRANSFER_READ, local, OTHER_BYTES, YB_TRANSFER_BY_ADDRESS,
                       other.told.ordinary)
                  .status);
    assert_null(memchr(local, 0xab, OTHER_BYTES));
    other_kill(&other);
    yb_transfer_destroy(&engines.a);
    free(local);
}

/* Slices of one batch go in one pull: an outcome is the item's whose bytes it is about. */
static void
test_shm_path__a_pull_of_many_slices_tells_which_one_failed(void **state)
{
    struct engines engines;
    struct yb_transfer_item items[4];
    struct yb_transfer_item_status statuses[4];
    uint8_t *remote =
        mmap(NULL, 4 * YB_SLICE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *local = malloc(4 * YB_SLICE_BYTES);
    uint64_t random = unit_seed("pull");
    yb_transfer_region region;

    (void)state;
    fill(local, 4 * YB_SLICE_BYTES, &random);
    engines_init(&engines, YB_TRANSFER_PATH_SHM);
    EXPECT_OK(yb_transfer_register(engines.b, remote, 4 * YB_SLICE_BYTES, NULL, &region));
    assert_int_equal(mprotect(remote + 2 * YB_SLICE_BYTES, YB_SLICE_BYTES, PROT_NONE), 0);
    for (uint32_t i = 0; i < 4; i++) {
        items[i] = (struct yb_transfer_item){
            .op = YB_TRANSFER_WRITE,
            .local = local + i * YB_SLICE_BYTES,
            .length = YB_SLICE_BYTES,
            .remote = region,
            .remote_offset = i * YB_SLICE_BYTES,
        };
    }
    for (uint32_t round = 0; round < 4; round++) { /* In the first one regions are asked for. */
        memset(remote, 0, 2 * YB_SLICE_BYTES);
        memset(remote + 3 * YB_SLICE_BYTES, 0, YB_SLICE_BYTES);
        (void)move(engines.a, engines.peer, items, 4, statuses);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(statuses[i].status, i == 2 ? YB_FAULT : YB_OK);
        }
        assert_memory_equal(remote, local, 2 * YB_SLICE_BYTES);
        assert_memory_equal(remote + 3 * YB_SLICE_BYTES, local + 3 * YB_SLICE_BYTES,
                            YB_SLICE_BYTES);
    }
    engines_fini(&engines);
    assert_int_equal(munmap(remote, 4 * YB_SLICE_BYTES), 0);
    free(local);
}

/* A region may turn out to be a device's while other slices for it wait for their turn: they ask,
 * and step aside with the answer. */
static void
test_shm_path__memory_of_a_device_is_not_read_however_late_it_is_known(void **state)
{
    struct yb_shm_path *path = calloc(1, sizeof(*path));
    struct yb_shm_flight *flight = calloc(1, sizeof(*flight));
    struct yb_slice *slice = calloc(1, sizeof(*slice));
    struct yb_shm_entry entry = {
        .region = 7, .base = 1 << 20, .length = 4096, .access = YB_REGION_READ};

    (void)state;
    assert_true(path != NULL && flight != NULL && slice != NULL);
    slice->op = YB_TRANSFER_READ;
    slice->count = 1;
    slice->fragments[0] = (struct yb_fragment){.region = 7, .remote_offset = 96, .length = 1000};
    flight->path = path;
    flight->slice = slice;
    entry.kind = YB_MEMORY_CUDA;
    assert_int_equal(yb_shm_catalogue_add(&path->catalogue, &entry), YB_OK);
    assert_false(yb_shm_flight_resolve(flight));
    assert_int_equal(flight->asked_count, 1);
    assert_false(flight->places[0].known);
    entry.kind = YB_MEMORY_HOST;
    assert_int_equal(yb_shm_catalogue_add(&path->catalogue, &entry), YB_OK);
    assert_true(yb_shm_flight_resolve(flight));
    assert_true(flight->places[0].known && flight->places[0].address == entry.base + 96);
    free(slice);
    free(flight);
    free(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_path__another_process_is_read_and_written),
        cmocka_unit_test(test_shm_path__a_killed_process_leaves_no_doubt),
        cmocka_unit_test(test_shm_path__a_target_that_comes_to_life_late_pulls_nothing),
        cmocka_unit_test(test_shm_path__bytes_of_any_memory_move_as_a_model_says),
        cmocka_unit_test(test_shm_path__shared_memory_moves_where_attach_is_forbidden),
        cmocka_unit_test(test_shm_path__ordinary_memory_goes_over_tcp_where_attach_is_forbidden),
        cmocka_unit_test(test_shm_path__each_item_is_judged_by_itself),
        cmocka_unit_test(test_shm_path__memory_that_cannot_be_written_is_a_fault),
        cmocka_unit_test(
            test_shm_path__one_of_many_small_pieces_that_cannot_be_written_fails_alone),
        cmocka_unit_test(
            test_shm_path__one_of_many_large_pieces_that_cannot_be_written_fails_alone),
        cmocka_unit_test(test_shm_path__what_was_unregistered_is_neither_read_nor_written),
        cmocka_unit_test(test_shm_path__an_address_is_looked_up_again_when_its_region_has_changed),
        cmocka_unit_test(test_shm_path__bytes_of_a_region_that_went_meanwhile_do_not_count),
        cmocka_unit_test(test_shm_path__a_pull_of_many_slices_tells_which_one_failed),
        cmocka_unit_test(test_shm_path__a_socket_cut_in_mid_batch_loses_nothing),
        cmocka_unit_test(test_shm_path__memory_of_a_device_is_not_read_however_late_it_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
