/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the outcomes and invariants T1 to T5 of transfer.h, whatever happens in between.
 * Method: random batches over a relay that holds and cuts, with cancels, short deadlines, fences
 * and targets that restart; the model is a copy of the target's memory: a byte may only be what
 * it was, or what a batch of this round wrote there.
 */
#include "transfer_duo.h"
#include "transfer_relay.h"

#define CELLS       24u
#define CELL_BYTES  (100u * 1024u)
#define BATCHES_MAX 6u

struct walk {
    uint64_t random;
    struct duo duo;
    struct yb_transfer_options options;
    struct relay *relay;
    struct yb_id identity; /* Of the engine that writes. */
    struct area remote;
    struct area model; /* What the target had when the round began. */
    struct area quiet; /* What a cell had when it was said to be quiet. */
    yb_transfer_region region;
    uint64_t seeds; /* Each write has its own. */
};

/* One batch of a round; its cells are nobody else's. */
struct
try {
    yb_transfer_batch batch;
    uint32_t first;
    uint32_t count;
    uint32_t op;
    uint64_t seed;
    struct area local;
    struct yb_transfer_item_status ends[CELLS];
};

static uint64_t
dice(struct walk *walk, uint64_t sides)
{
    return unit_random(&walk->random) % sides;
}

static void
start_target(struct walk *walk)
{
    walk->duo.there = duo_engine(&walk->options);
    walk->region = duo_register(walk->duo.there, &walk->remote);
}

static void
learn_identity(struct walk *walk)
{
    char address[64];
    yb_transfer_peer back;

    assert_int_equal(yb_transfer_address(walk->duo.here, address, sizeof(address)), YB_OK);
    back = duo_open(walk->duo.there, address);
    walk->identity = duo_identity(walk->duo.there, back);
    assert_int_equal(yb_transfer_close(walk->duo.there, back), YB_OK);
}

static void
walk_init(struct walk *walk, const char *name)
{
    memset(walk, 0, sizeof(*walk));
    walk->random = unit_seed(name);
    walk->options = duo_options();
    walk->options.workers = 1 + (uint32_t)dice(walk, 2);
    duo_init_with(&walk->duo, &walk->options, &walk->options);
    walk->relay = relay_create(walk->duo.address, false);
    walk->options.listen = walk->duo.address;
    walk->duo.peer = duo_open(walk->duo.here, relay_address(walk->relay));
    area_init(&walk->remote, CELLS * CELL_BYTES);
    area_init(&walk->model, CELLS * CELL_BYTES);
    area_init(&walk->quiet, CELLS * CELL_BYTES);
    walk->region = duo_register(walk->duo.there, &walk->remote);
    learn_identity(walk);
}

static void
walk_fini(struct walk *walk)
{
    duo_fini(&walk->duo);
    relay_destroy(&walk->relay);
    area_fini(&walk->remote);
    area_fini(&walk->model);
    area_fini(&walk->quiet);
}

/* ---- a round ------------------------------------------------------------------------------ */

static void
begin_try(struct walk *walk, struct try *try, uint32_t first, uint32_t count)
{
    static const uint64_t timeouts_ms[] = {1, 5, 20, 20000, 20000, 20000};
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = timeouts_ms[dice(walk, 6)] * MS_NS,
        .work_class = (uint32_t)dice(walk, YB_CLASS_COUNT),
    };
    struct yb_transfer_item items[CELLS];

    try->first = first;
    try->count = count;
    try->op = dice(walk, 3) == 0 ? YB_TRANSFER_READ : YB_TRANSFER_WRITE;
    try->seed = ++walk->seeds;
    area_init(&try->local, (size_t)count * CELL_BYTES);
    if (try->op == YB_TRANSFER_WRITE) {
        fill(try->local.bytes, try->local.length, try->seed);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)(first + i) * CELL_BYTES;
        bool by_address = dice(walk, 2) == 0;

        items[i] = (struct yb_transfer_item){
            .op = try->op,
            .local = try->local.bytes + (size_t)i * CELL_BYTES,
            .length = CELL_BYTES,
            .remote = by_address ? YB_TRANSFER_BY_ADDRESS : walk->region,
            .remote_offset = by_address ? (uint64_t)(uintptr_t)walk->remote.bytes + at : at,
        };
    }
    try->batch = duo_submit(&walk->duo, items, count, &options);
}

/* Something happens while batches are under way. */
static void
disturb(struct walk *walk, struct try *tries, uint32_t count)
{
    switch (dice(walk, 12)) {
    case 0: relay_cut(walk->relay); break;
    case 1: relay_cut_near(walk->relay); break;
    case 2: relay_hold(walk->relay, dice(walk, 2), dice(walk, 2)); break;
    case 3: relay_hold_new(walk->relay, dice(walk, 2), dice(walk, 2)); break;
    case 4: relay_release(walk->relay); break;
    case 5:
        for (uint32_t i = 0; i < count; i += 2) {
            assert_int_equal(yb_transfer_cancel(walk->duo.here, tries[i].batch), YB_OK);
        }
        break;
    case 6:
        assert_int_equal(yb_transfer_fence(walk->duo.there, walk->identity, PATIENCE_NS), YB_OK);
        break;
    case 7:
        assert_true(yb_transfer_drain(walk->duo.here, walk->duo.peer, dice(walk, 20) * MS_NS) !=
                    YB_CLOSED);
        break;
    case 8:
        if (dice(walk, 4) == 0) {
            yb_transfer_destroy(&walk->duo.there);
            start_target(walk);
        }
        break;
    default: pause_ms((uint32_t)dice(walk, 4)); break;
    }
}

/* A batch has ended: what it promised holds now, and its local memory is the test's again. */
static void
end_try(struct walk *walk, struct try *try)
{
    struct yb_transfer_batch_status end =
        duo_end(walk->duo.here, try->batch, try->ends, try->count);
    uint64_t bytes = 0;
    uint32_t failed = 0;

    for (uint32_t i = 0; i < try->count; i++) {
        const struct yb_transfer_item_status *one = &try->ends[i];
        size_t at = (size_t)(try->first + i) * CELL_BYTES;
        size_t local = (size_t)i * CELL_BYTES;

        assert_true(one->status != YB_IN_PROGRESS && one->bytes <= CELL_BYTES);
        assert_true(!one->in_doubt || try->op == YB_TRANSFER_WRITE);
        bytes += one->bytes;
        failed += one->status != YB_OK;
        if (!one->in_doubt) {
            memcpy(walk->quiet.bytes + at, walk->remote.bytes + at, CELL_BYTES);
        }
        if (one->status != YB_OK) {
            continue;
        }
        assert_false(one->in_doubt);
        assert_int_equal(one->bytes, CELL_BYTES);
        if (try->op == YB_TRANSFER_READ) {
            assert_memory_equal(try->local.bytes + local, walk->model.bytes + at, CELL_BYTES);
        } else {
            assert_memory_equal(walk->remote.bytes + at, try->local.bytes + local, CELL_BYTES);
        }
    }
    assert_int_equal(end.failed, failed);
    assert_true((end.status == YB_OK) == (failed == 0));
    assert_int_equal(end.bytes, bytes);
    memset(try->local.bytes, 0xab, try->local.length); /* T2: looked at when all is quiet. */
}

/* Everything is quiet: judge the target's memory byte by byte. */
static void
judge_try(const struct walk *walk, const struct try *try)
{
    assert_true(all_are(try->local.bytes, try->local.length, 0xab));
    for (uint32_t i = 0; i < try->count; i++) {
        size_t at = (size_t)(try->first + i) * CELL_BYTES;
        bool ok = try->ends[i].status == YB_OK;

        if (!try->ends[i].in_doubt) { /* It was quiet when it ended. */
            assert_memory_equal(walk->quiet.bytes + at, walk->remote.bytes + at, CELL_BYTES);
        }
        for (size_t k = 0; k < CELL_BYTES; k++) {
            uint8_t found = walk->remote.bytes[at + k];
            uint8_t old = walk->model.bytes[at + k];
            uint8_t new = try->op == YB_TRANSFER_READ
                              ? old
                              : pattern(try->seed, (uint64_t)i * CELL_BYTES + k);

            if (found != new && (ok || found != old)) {
                fail_msg("cell %u byte %zu: %02x, not %02x nor %02x (%s)", try->first + i, k, found,
                         new, old, yb_status_name(try->ends[i].status));
            }
        }
    }
}

static void
run_round(struct walk *walk)
{
    struct try tries[BATCHES_MAX];
    uint32_t count = 0;
    uint32_t cell = 0;

    memcpy(walk->model.bytes, walk->remote.bytes, walk->remote.length);
    while (cell < CELLS && count < BATCHES_MAX) {
        uint32_t cells = 1 + (uint32_t)dice(walk, CELLS - cell);

        begin_try(walk, &tries[count++], cell, cells);
        cell += cells;
        if (dice(walk, 2) == 0) {
            disturb(walk, tries, count);
        }
    }
    for (uint64_t i = dice(walk, 4); i > 0; i--) {
        disturb(walk, tries, count);
    }
    relay_release(walk->relay);
    for (uint32_t i = 0; i < count; i++) {
        end_try(walk, &tries[i]);
    }
    assert_int_equal(yb_transfer_drain(walk->duo.here, walk->duo.peer, PATIENCE_NS), YB_OK);
    for (uint32_t i = 0; i < count; i++) {
        judge_try(walk, &tries[i]);
    }
    memcpy(walk->quiet.bytes, walk->remote.bytes, walk->remote.length);
    pause_ms(1);
    assert_memory_equal(walk->quiet.bytes, walk->remote.bytes, walk->remote.length);
    area_expect_guards(&walk->remote);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(all_are(tries[i].local.bytes, tries[i].local.length, 0xab));
        area_fini(&tries[i].local);
    }
}

static void
test_transfer_walk__every_outcome_is_true_whatever_happens(void **state)
{
    struct walk walk;
    uint32_t rounds = unit_long() ? 3000 : 60;

    (void)state;
    walk_init(&walk, "transfer");
    for (uint32_t round = 0; round < rounds; round++) {
        if (round % 4 == 3) { /* A new handle is patient again. */
            assert_int_equal(yb_transfer_close(walk.duo.here, walk.duo.peer), YB_OK);
            walk.duo.peer = duo_open(walk.duo.here, relay_address(walk.relay));
        }
        run_round(&walk);
    }
    walk_fini(&walk);
}

/* ---- late bytes (RULES A2) ------------------------------------------------------------------ */

struct late {
    struct duo duo;
    struct relay *relay;
    struct area local;
    struct area remote;
    yb_transfer_region region;
    yb_transfer_peer back;
};

static void
late_init(struct late *late)
{
    char address[64];

    duo_init(&late->duo);
    late->relay = relay_create(late->duo.address, false);
    area_init(&late->local, 1 << 20);
    area_init(&late->remote, 1 << 20);
    late->region = duo_register(late->duo.there, &late->remote);
    assert_int_equal(yb_transfer_address(late->duo.here, address, sizeof(address)), YB_OK);
    late->back = duo_open(late->duo.there, address);
}

static void
late_fini(struct late *late)
{
    duo_fini(&late->duo);
    relay_destroy(&late->relay);
    area_fini(&late->local);
    area_fini(&late->remote);
}

static yb_transfer_batch
late_write(struct late *late, uint64_t seed, uint64_t timeout_ns)
{
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = timeout_ns,
    };
    struct yb_transfer_item item = duo_item(YB_TRANSFER_WRITE, &late->local, late->region);

    fill(late->local.bytes, late->local.length, seed);
    return duo_submit(&late->duo, &item, 1, &options);
}

static void
late_open(struct late *late)
{
    if (late->duo.peer != 0) {
        assert_int_equal(yb_transfer_close(late->duo.here, late->duo.peer), YB_OK);
    }
    late->duo.peer = duo_open(late->duo.here, relay_address(late->relay));
    assert_int_equal(duo_end(late->duo.here, late_write(late, 1, PATIENCE_NS), NULL, 0).status,
                     YB_OK);
}

/* Whether so many bytes of the batch are on their way, before it ended. */
static bool
late_kept(struct late *late, yb_transfer_batch batch, uint64_t bytes)
{
    struct yb_transfer_batch_status now = {.status = YB_IN_PROGRESS};

    while (relay_kept(late->relay) < bytes && now.status == YB_IN_PROGRESS) {
        pause_ms(1);
        assert_int_equal(yb_transfer_poll(late->duo.here, batch, &now, NULL, 0), YB_OK);
    }
    return relay_kept(late->relay) >= bytes;
}

static void late_await_shm(struct late *late);

/* A first attempt of which so many bytes are held by the relay. If it shall run out of time, it may
 * do so before, on a busy machine: then it gets a longer time. */
static yb_transfer_batch
late_first(struct late *late, uint64_t seed, bool runs_out, uint64_t bytes)
{
    uint64_t timeout_ns = runs_out ? 20 * MS_NS : PATIENCE_NS;

    for (;; timeout_ns *= 2) {
        yb_transfer_batch batch;

        relay_hold(late->relay, true, false);
        batch = late_write(late, seed, timeout_ns);
        if (late_kept(late, batch, bytes)) {
            return batch;
        }
        assert_true(runs_out && timeout_ns < PATIENCE_NS);
        (void)duo_end(late->duo.here, batch, NULL, 0);
        relay_release(late->relay);
        assert_int_equal(yb_transfer_drain(late->duo.here, late->duo.peer, PATIENCE_NS), YB_OK);
        late_open(late);
        if ((duo_paths & YB_TRANSFER_PATH_SHM) != 0) {
            late_await_shm(late);
        }
    }
}

static void
test_transfer_walk__late_bytes_of_a_first_attempt_never_land(void **state)
{
    uint32_t rounds = unit_long() ? 1000 : 50;
    struct late late;

    (void)state;
    duo_relayed();
    late_init(&late);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t kind = round % 3;
        struct stall *stall = NULL;
        yb_transfer_batch batch;

        late_open(&late);
        batch = late_first(&late, 2 * round + 2, kind == 1, 100000);
        if (kind == 2) { /* The bytes reach a target that reads nothing. */
            stall = stall_begin(late.duo.there, late.back);
            relay_hold(late.relay, false, true);
            pause_ms(2);
        }
        if (kind == 1) { /* Out of time, in doubt, drained over new connections. */
            struct yb_transfer_batch_status end = duo_end(late.duo.here, batch, NULL, 0);

            assert_int_equal(end.status, YB_TIMED_OUT);
            assert_true(end.in_doubt);
            relay_cut_near(late.relay);
            assert_int_equal(yb_transfer_drain(late.duo.here, late.duo.peer, PATIENCE_NS), YB_OK);
        } else { /* Tried again by the engine itself over new connections. */
            relay_cut_near(late.relay);
            if (stall != NULL) {
                pause_ms(2);
                stall_end(&stall);
            }
            assert_int_equal(duo_end(late.duo.here, batch, NULL, 0).status, YB_OK);
        }
        batch = late_write(&late, 2 * round + 3, PATIENCE_NS);
        assert_int_equal(duo_end(late.duo.here, batch, NULL, 0).status, YB_OK);
        expect_pattern(late.remote.bytes, late.remote.length, 2 * round + 3);
        relay_release(late.relay); /* Now the late bytes come. */
        pause_ms(2);
        assert_int_equal(yb_transfer_drain(late.duo.here, late.duo.peer, PATIENCE_NS), YB_OK);
        expect_pattern(late.remote.bytes, late.remote.length, 2 * round + 3);
    }
    late_fini(&late);
}

/* Wait until bytes go by shared memory, and all that they need for it stands. */
static void
late_await_shm(struct late *late)
{
    struct yb_transfer_item_status item = {.path = 0};
    struct yb_transfer_probe probe;

    while (item.path != YB_TRANSFER_PATH_SHM) {
        assert_int_equal(yb_transfer_ask(late->duo.here, late->duo.peer, PATIENCE_NS, &probe),
                         YB_OK);
        assert_int_equal(duo_end(late->duo.here, late_write(late, 1, PATIENCE_NS), &item, 1).status,
                         YB_OK);
    }
}

/* The first attempt is a question to the target to copy (a pull): it is kept in the relay, or by a
 * target that stands still, and comes when its slice has gone another way or was given up. Returns
 * whether the last slice went over TCP in the end. */
static bool
late_pull(struct late *late, uint32_t kind, uint64_t seed)
{
    struct yb_transfer_item_status item;
    struct yb_transfer_batch_status end;
    struct stall *stall = NULL;
    yb_transfer_batch batch;

    if (kind == 2) {
        stall = stall_begin(late->duo.there, late->back);
        batch = late_write(late, seed, PATIENCE_NS);
        pause_ms(2); /* Nothing tells that a target which stands still has bytes to read. */
    } else {
        batch = late_first(late, seed, kind == 1, 200); /* A pull is longer than anything else. */
    }
    if (kind == 1) { /* Out of time, in doubt, drained over new connections. */
        end = duo_end(late->duo.here, batch, NULL, 0);
        assert_int_equal(end.status, YB_TIMED_OUT);
        relay_cut_near(late->relay);
        assert_int_equal(yb_transfer_drain(late->duo.here, late->duo.peer, PATIENCE_NS), YB_OK);
        return false;
    }
    duo_cut_shm();
    if (stall != NULL) {
        stall_end(&stall);
    } else {
        relay_cut_near(late->relay);
    }
    end = duo_end(late->duo.here, batch, &item, 1);
    assert_int_equal(end.status, YB_OK);
    expect_pattern(late->remote.bytes, late->remote.length, seed);
    return item.path == YB_TRANSFER_PATH_TCP;
}

static void
test_transfer_walk__late_pulls_never_land_after_another_way(void **state)
{
    uint32_t rounds = unit_long() ? 1000 : 50;
    uint32_t switched = 0; /* Slices that were not sent yet may find shared memory up again. */
    struct late late;

    (void)state;
    if ((duo_paths & YB_TRANSFER_PATH_SHM) == 0) {
        skip();
    }
    late_init(&late);
    for (uint32_t round = 0; round < rounds; round++) {
        yb_transfer_batch batch;

        late_open(&late);
        late_await_shm(&late);
        switched += late_pull(&late, round % 3, 2 * round + 2);
        batch = late_write(&late, 2 * round + 3, PATIENCE_NS);
        assert_int_equal(duo_end(late.duo.here, batch, NULL, 0).status, YB_OK);
        expect_pattern(late.remote.bytes, late.remote.length, 2 * round + 3);
        memset(late.local.bytes, 0x3c, late.local.length); /* What a late pull would copy. */
        relay_release(late.relay);                         /* Now the late pulls come. */
        pause_ms(2);
        assert_int_equal(yb_transfer_drain(late.duo.here, late.duo.peer, PATIENCE_NS), YB_OK);
        expect_pattern(late.remote.bytes, late.remote.length, 2 * round + 3);
    }
    assert_true(switched > 0);
    late_fini(&late);
}

static void
test_transfer_walk__timeouts_and_cancels_without_end_leave_nothing_behind(void **state)
{
    uint32_t rounds = unit_long() ? 10000 : 500;
    struct late late;
    yb_transfer_batch batch;

    (void)state;
    late_init(&late);
    late_open(&late);
    relay_hold(late.relay, true, true);
    relay_hold_new(late.relay, true, true);
    for (uint32_t round = 0; round < rounds; round++) {
        struct yb_transfer_item items[8];
        struct yb_transfer_batch_options options = {
            .struct_bytes = sizeof(options),
            .timeout_ns = round % 2 == 0 ? MS_NS / 10 : PATIENCE_NS,
        };

        for (uint32_t i = 0; i < 8; i++) {
            items[i] = (struct yb_transfer_item){
                .op = i % 2,
                .local = late.local.bytes + i * 100000,
                .length = 100000,
                .remote = late.region,
                .remote_offset = i * 100000,
            };
        }
        batch = duo_submit(&late.duo, items, 8, &options);
        if (round % 2 == 1) {
            assert_int_equal(yb_transfer_cancel(late.duo.here, batch), YB_OK);
        }
        (void)duo_end(late.duo.here, batch, NULL, 0);
        memset(late.local.bytes, 0x6b, late.local.length);
    }
    relay_release(late.relay);
    assert_int_equal(yb_transfer_drain(late.duo.here, late.duo.peer, PATIENCE_NS), YB_OK);
    assert_true(all_are(late.local.bytes, late.local.length, 0x6b));
    batch = late_write(&late, 99, PATIENCE_NS);
    assert_int_equal(duo_end(late.duo.here, batch, NULL, 0).status, YB_OK);
    expect_pattern(late.remote.bytes, late.remote.length, 99);
    assert_int_equal(yb_transfer_unregister(late.duo.there, late.remote.bytes, 0), YB_OK);
    late_fini(&late);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_walk__every_outcome_is_true_whatever_happens),
        cmocka_unit_test(test_transfer_walk__late_bytes_of_a_first_attempt_never_land),
        cmocka_unit_test(test_transfer_walk__late_pulls_never_land_after_another_way),
        cmocka_unit_test(test_transfer_walk__timeouts_and_cancels_without_end_leave_nothing_behind),
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
