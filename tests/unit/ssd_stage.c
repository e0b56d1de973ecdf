/* SPDX-License-Identifier: Apache-2.0 */
#include "ssd_stage.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

#define SECTOR 512u
#define TURNS  200000u

/* ---- the device ------------------------------------------------------------------------- */

static struct stage_device *
device_of(struct yb_ssd_device *base)
{
    return (struct stage_device *)base;
}

static void
apply(uint8_t *image, const struct stage_write *write)
{
    memcpy(image + write->offset, write->bytes, write->length);
}

/* The sync is done: what was done before it began is there to stay. */
static void
covered(struct stage_device *device)
{
    uint32_t kept = 0;
    uint32_t covers = device->sync_covers;

    for (uint32_t i = 0; i < device->write_count; i++) {
        struct stage_write *write = &device->writes[i];

        if (i < covers && write->io == NULL) {
            apply(device->durable, write);
            free(write->bytes);
        } else {
            device->writes[kept++] = *write;
        }
    }
    device->write_count = kept;
}

static void
inner_done(struct yb_ssd_io *io, int64_t result)
{
    struct yb_ssd_io *outer = io->inner_owner;
    struct stage_device *device = device_of(outer->device);

    if (device->durable != NULL && io->kind == YB_SSD_IO_SYNC) {
        covered(device);
    }
    for (uint32_t i = 0; i < device->write_count; i++) {
        if (device->writes[i].io == outer) {
            memcpy(device->writes[i].bytes, io->bytes, device->writes[i].length);
            device->writes[i].io = NULL;
        }
    }
    free(io);
    outer->done(outer, result);
}

/* Done writes come first in the list, so that a sync covers the first so many of them. */
static void
sort_writes(struct stage_device *device)
{
    uint32_t done = 0;

    for (uint32_t i = 0; i < device->write_count; i++) {
        if (device->writes[i].io == NULL) {
            struct stage_write write = device->writes[i];

            memmove(&device->writes[done + 1], &device->writes[done],
                    (i - done) * sizeof *device->writes);
            device->writes[done++] = write;
        }
    }
    device->sync_covers = done;
}

static void
remember(struct stage_device *device, struct yb_ssd_io *outer, uint64_t length)
{
    struct stage_write *write = &device->writes[device->write_count++];

    assert_true(device->write_count < STAGE_WRITES);
    *write = (struct stage_write){.offset = outer->offset, .length = length, .io = outer};
    write->bytes = malloc(length);
    assert_non_null(write->bytes);
    memcpy(write->bytes, outer->bytes, length);
}

static int
failure(struct stage_device *device, const struct yb_ssd_io *io)
{
    int *fail = io->kind == YB_SSD_IO_WRITE  ? &device->fail_next_write
                : io->kind == YB_SSD_IO_SYNC ? &device->fail_next_sync
                                             : &device->fail_next_read;
    int error = *fail;

    if (io->kind == YB_SSD_IO_RESERVE) {
        return device->fail_reserve;
    }
    *fail = device->fails ? error : 0;
    return error;
}

static void
pass_on(struct stage_device *device, struct yb_ssd_io *outer)
{
    struct yb_ssd_io *io = calloc(1, sizeof *io);

    assert_non_null(io);
    io->done = inner_done;
    io->kind = outer->kind;
    io->offset = outer->offset;
    io->bytes = outer->bytes;
    io->length = outer->length;
    io->inner_owner = outer;
    if (device->short_transfers && io->kind <= YB_SSD_IO_WRITE && io->length > YB_SSD_BLOCK_BYTES) {
        io->length -=
            unit_random(&device->random) % (io->length / YB_SSD_BLOCK_BYTES) * YB_SSD_BLOCK_BYTES;
    }
    if (device->durable != NULL && io->kind == YB_SSD_IO_WRITE) {
        remember(device, outer, io->length);
    }
    if (device->durable != NULL && io->kind == YB_SSD_IO_SYNC) {
        sort_writes(device);
    }
    device->inner->ops->submit(device->inner, io);
}

/* A failed operation ends in the next turn, as every other does: a SYNC carries it. */
static void
fail_done(struct yb_ssd_io *io, int64_t result)
{
    struct yb_ssd_io *outer = io->inner_owner;

    (void)result;
    outer->done(outer, io->length == 0 ? -(int64_t)io->offset : 0);
    free(io);
}

static void
fail_later(struct stage_device *device, struct yb_ssd_io *outer, int error)
{
    struct yb_ssd_io *io = calloc(1, sizeof *io);

    assert_non_null(io);
    io->done = fail_done;
    io->kind = YB_SSD_IO_SYNC;
    io->offset = (uint64_t)error;
    io->inner_owner = outer;
    device->inner->ops->submit(device->inner, io);
}

static void
stage_submit(struct yb_ssd_device *base, struct yb_ssd_io *io)
{
    struct stage_device *device = device_of(base);
    int error = failure(device, io);

    io->device = base;
    if (error != 0) {
        fail_later(device, io, error);
    } else if (device->holds) {
        assert_true(device->held_count < YB_SSD_IO_MAX);
        device->held[device->held_count++] = io;
    } else {
        pass_on(device, io);
    }
}

static uint64_t
stage_size(struct yb_ssd_device *base)
{
    return yb_ssd_memory_size(device_of(base)->memory);
}

static void
device_free(struct stage_device *device)
{
    for (uint32_t i = 0; i < device->write_count; i++) {
        free(device->writes[i].bytes);
    }
    free(device->durable);
    free(device);
}

static void
device_close(struct yb_ssd_device *base)
{
    struct stage_device *device = device_of(base);

    device->inner->ops->close(device->inner);
    device_free(device);
}

static const struct yb_ssd_device_ops device_ops = {
    .name = "stage", .submit = stage_submit, .size = stage_size, .close = device_close};

void
stage_release(struct stage *stage, bool all)
{
    struct stage_device *device = stage->device;
    uint32_t kept = 0;
    uint32_t count = device->held_count;

    for (uint32_t i = 0; i < count; i++) {
        struct yb_ssd_io *io = device->held[i];

        if (all || unit_random(&device->random) % 2 == 0) {
            pass_on(device, io);
        } else {
            device->held[kept++] = io;
        }
    }
    device->held_count = kept;
}

void
stage_release_first(struct stage *stage)
{
    struct stage_device *device = stage->device;
    struct yb_ssd_io *first;

    if (device->held_count > 0) {
        first = device->held[0];
        device->held_count--;
        memmove(&device->held[0], &device->held[1], device->held_count * sizeof(first));
        pass_on(device, first);
    }
}

/* ---- cuts ------------------------------------------------------------------------------- */

static bool
survives(enum stage_cut cut, uint64_t *random)
{
    return cut == STAGE_CUT_ALL || (cut != STAGE_CUT_NOTHING && unit_random(random) % 2 == 0);
}

void
stage_cut(const struct stage *stage, enum stage_cut cut, uint64_t *random,
          struct yb_ssd_memory *image)
{
    const struct stage_device *device = stage->device;
    uint8_t *bytes = yb_ssd_memory_bytes(image);
    uint64_t size = yb_ssd_memory_size(stage->memory);

    memcpy(bytes, device->durable, size);
    if (yb_ssd_memory_size(image) > size) {
        memset(bytes + size, 0, yb_ssd_memory_size(image) - size);
    }
    yb_ssd_memory_resize(image, size);
    for (uint32_t i = 0; i < device->write_count; i++) {
        const struct stage_write *write = &device->writes[i];

        if (cut != STAGE_CUT_TORN && survives(cut, random)) {
            apply(bytes, write);
        }
        for (uint64_t at = 0; cut == STAGE_CUT_TORN && at < write->length; at += SECTOR) {
            if (survives(cut, random)) {
                memcpy(bytes + write->offset + at, write->bytes + at, SECTOR);
            }
        }
    }
}

/* ---- events ----------------------------------------------------------------------------- */

static bool
on_found(void *owner, const struct yb_tier_record *record)
{
    struct stage *stage = owner;

    assert_true(stage->found_count < STAGE_FOUND);
    stage->found[stage->found_count++] =
        (struct stage_event){.hash = record->hash, .grant = record->grant};
    return stage->wants == NULL || stage->wants(stage, record);
}

static void
on_recovered(void *owner, enum yb_status status)
{
    struct stage *stage = owner;

    assert_false(stage->recovered);
    stage->recovered = true;
    stage->recovered_status = status;
}

static void
on_lost(void *owner, struct yb_id hash, uint64_t grant, enum yb_status why)
{
    struct stage *stage = owner;

    if (stage->lost_count < STAGE_FOUND) {
        stage->lost[stage->lost_count++] =
            (struct stage_event){.hash = hash, .grant = grant, .why = why};
    }
    if (stage->on_lost != NULL) {
        stage->on_lost(stage, hash, grant);
    }
}

static bool
on_leaving(void *owner, struct yb_id hash, uint64_t grant)
{
    struct stage *stage = owner;

    return stage->on_leaving != NULL && stage->on_leaving(stage, hash, grant);
}

static bool
is_held(void *owner, struct yb_id hash, uint64_t grant)
{
    struct stage *stage = owner;

    return stage->is_held != NULL && stage->is_held(stage, hash, grant);
}

static void
on_aside(void *owner, enum yb_status status, const char *why)
{
    struct stage *stage = owner;

    stage->aside = status;
    (void)snprintf(stage->why, sizeof stage->why, "%s", why);
}

static const struct yb_tier_events events = {.found = on_found,
                                             .recovered = on_recovered,
                                             .lost = on_lost,
                                             .leaving = on_leaving,
                                             .held = is_held,
                                             .aside = on_aside};

/* ---- the stage -------------------------------------------------------------------------- */

static uint64_t
stage_now(const struct yb_clock *clock)
{
    return ((const struct stage *)clock)->now_ns;
}

void
stage_init(struct stage *stage)
{
    struct yb_loop_options options = {.backend = "epoll", .clock = &stage->clock};

    memset(stage, 0, sizeof *stage);
    stage->clock = (struct yb_clock){.monotonic_ns = stage_now, .wall_ns = stage_now};
    stage->now_ns = 1000 * YB_NS_PER_S;
    assert_int_equal(yb_loop_create(&options, &stage->loop), YB_OK);
    assert_int_equal(yb_ssd_memory_create(STAGE_IMAGE_BYTES, &stage->memory), YB_OK);
    stage->options = (struct yb_ssd_options){.loop = stage->loop,
                                             .capacity = 6ull * STAGE_SEGMENT,
                                             .segment_bytes = STAGE_SEGMENT,
                                             .records_max = 4096,
                                             .batch_bytes = 64u << 10,
                                             .write_buffers = 4,
                                             .read_buffers = 4,
                                             .operations_max = 64,
                                             .sync_ns = 5 * YB_NS_PER_MS,
                                             .events = &events,
                                             .owner = stage};
}

void
stage_fini(struct stage *stage)
{
    if (stage->tier != NULL) {
        stage_close(stage);
    }
    yb_ssd_memory_destroy(&stage->memory);
    yb_loop_destroy(&stage->loop);
}

void
stage_start(struct stage *stage, bool record)
{
    struct stage_device *device = calloc(1, sizeof *device);

    assert_non_null(device);
    device->base.ops = &device_ops;
    device->memory = stage->memory;
    device->random = 88172645463325252ull;
    assert_int_equal(yb_ssd_memory_open(stage->memory, stage->loop, 0, 0, &device->inner), YB_OK);
    if (record) {
        device->durable = malloc(STAGE_IMAGE_BYTES);
        assert_non_null(device->durable);
        memcpy(device->durable, yb_ssd_memory_bytes(stage->memory), STAGE_IMAGE_BYTES);
    }
    stage->device = device;
    stage->options.device = &device->base;
    stage->found_count = 0;
    stage->lost_count = 0;
    stage->recovered = false;
    stage->aside = YB_OK;
    assert_int_equal(yb_ssd_create(&stage->options, &stage->tier), YB_OK);
}

void
stage_open(struct stage *stage, bool record)
{
    stage_start(stage, record);
    for (uint32_t i = 0; !stage->recovered; i++) {
        assert_true(i < TURNS);
        stage_turn(stage);
    }
}

void
stage_close(struct stage *stage)
{
    if (stage->device != NULL) {
        stage->device->holds = false;
        stage_release(stage, true);
    }
    yb_tier_stop(stage->tier);
    for (uint32_t i = 0; !yb_tier_idle(stage->tier); i++) {
        assert_true(i < TURNS);
        stage_turn(stage);
    }
    yb_tier_destroy(&stage->tier);
    stage->device = NULL;
}

void
stage_turn(struct stage *stage)
{
    stage->now_ns += YB_NS_PER_MS;
    yb_loop_turn(stage->loop, stage->turn_ns);
}

void
stage_turns(struct stage *stage, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        stage_turn(stage);
    }
}

/* ---- operations ------------------------------------------------------------------------- */

struct waiter {
    bool done;
    enum yb_status status;
};

union any_op {
    struct yb_tier_op op;
    struct yb_tier_store store;
    struct yb_tier_load load;
    struct yb_tier_kill kill;
    struct yb_tier_flush flush;
};

struct waiting {
    union any_op any; /* First. */
    struct waiter waiter;
};

static void
waited(struct yb_tier_op *op, enum yb_status status)
{
    struct waiting *waiting = (struct waiting *)op;

    assert_false(waiting->waiter.done);
    waiting->waiter = (struct waiter){.done = true, .status = status};
}

static enum yb_status
wait_for(struct stage *stage, const struct waiting *waiting, enum yb_status submitted)
{
    if (submitted != YB_OK) {
        return submitted;
    }
    for (uint32_t i = 0; !waiting->waiter.done; i++) {
        assert_true(i < TURNS);
        stage_turn(stage);
    }
    return waiting->waiter.status;
}

enum yb_status
stage_store(struct stage *stage, struct yb_tier_store *store)
{
    struct waiting waiting = {.any.store = *store};

    waiting.any.op.done = waited;
    waiting.any.op.deadline_ns = YB_NEVER;
    return wait_for(stage, &waiting, yb_tier_store(stage->tier, &waiting.any.store));
}

enum yb_status
stage_load(struct stage *stage, struct yb_tier_load *load)
{
    struct waiting *waiting = calloc(1, sizeof *waiting);
    enum yb_status status;

    assert_non_null(waiting);
    waiting->any.load = *load;
    waiting->any.op.done = waited;
    waiting->any.op.deadline_ns = YB_NEVER;
    status = wait_for(stage, waiting, yb_tier_load(stage->tier, &waiting->any.load));
    *load = waiting->any.load;
    load->record_out.tenant = load->tenant_out;
    load->record_out.key = load->key_out;
    free(waiting);
    return status;
}

enum yb_status
stage_kill(struct stage *stage, struct yb_id hash, uint64_t grant)
{
    struct waiting waiting = {.any.kill = {.op = {.done = waited, .deadline_ns = YB_NEVER},
                                           .hash = hash,
                                           .grant = grant}};

    return wait_for(stage, &waiting, yb_tier_kill(stage->tier, &waiting.any.kill));
}

enum yb_status
stage_flush(struct stage *stage, const char *tenant, uint64_t flush)
{
    struct waiting waiting = {.any.flush = {.op = {.done = waited, .deadline_ns = YB_NEVER},
                                            .tenant = tenant,
                                            .flush = flush}};

    return wait_for(stage, &waiting, yb_tier_flush(stage->tier, &waiting.any.flush));
}

struct yb_id
stage_hash(uint32_t key)
{
    struct yb_id hash = {.bytes = {1}};

    memcpy(hash.bytes + 4, &key, sizeof key);
    return hash;
}

void
stage_pattern(uint32_t key, uint64_t grant, uint8_t *bytes, uint64_t size)
{
    uint64_t state = (uint64_t)key << 32 ^ grant * 0x9e3779b97f4a7c15ull ^ 0x123456789abcdefull;

    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t word = unit_random(&state);

        memcpy(bytes + i, &word, size - i < 8 ? size - i : 8);
    }
}

enum yb_status
stage_put(struct stage *stage, uint32_t key, uint64_t grant, uint64_t size)
{
    uint8_t *bytes = malloc(size + 1);
    struct iovec iov = {.iov_base = bytes, .iov_len = size};
    struct yb_tier_store store = {.record = {.hash = stage_hash(key),
                                             .grant = grant,
                                             .flush = 1,
                                             .size = size,
                                             .tenant = "tenant",
                                             .key = (const uint8_t *)&key,
                                             .key_bytes = sizeof key,
                                             .mode = YB_WIRE_MODE_IF_ABSENT,
                                             .replicas = 1},
                                  .iov = &iov,
                                  .iov_count = 1};
    enum yb_status status;

    assert_non_null(bytes);
    stage_pattern(key, grant, bytes, size);
    status = stage_store(stage, &store);
    free(bytes);
    return status;
}

enum yb_status
stage_put_pinned(struct stage *stage, uint32_t key)
{
    uint8_t bytes[8000] = {1};
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct yb_tier_store store = {.record = {.hash = stage_hash(key),
                                             .grant = 1000 + key,
                                             .size = sizeof bytes,
                                             .tenant = "tenant",
                                             .key = (const uint8_t *)&key,
                                             .key_bytes = sizeof key,
                                             .flags = YB_WIRE_BLOCK_FLAG_HARD_PIN},
                                  .iov = &iov,
                                  .iov_count = 1};

    return stage_store(stage, &store);
}

enum yb_status
stage_get(struct stage *stage, uint32_t key, uint64_t grant, uint64_t *grant_out)
{
    uint64_t most = 128u << 10;
    uint8_t *bytes = calloc(2, most);
    struct iovec iov = {.iov_base = bytes, .iov_len = most};
    struct yb_tier_load load = {.hash = stage_hash(key),
                                .grant = grant,
                                .key = (const uint8_t *)&key,
                                .key_bytes = sizeof key,
                                .length = most,
                                .iov = &iov,
                                .iov_count = 1};
    enum yb_status status = stage_load(stage, &load);

    assert_non_null(bytes);
    if (status == YB_OK) {
        assert_true(load.record_out.size <= most);
        stage_pattern(key, load.record_out.grant, bytes + most, load.record_out.size);
        assert_memory_equal(bytes, bytes + most, load.record_out.size);
        if (grant_out != NULL) {
            *grant_out = load.record_out.grant;
        }
    }
    free(bytes);
    return status;
}
