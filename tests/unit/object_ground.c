/* SPDX-License-Identifier: Apache-2.0 */
#include "object_ground.h"

#include <fts.h>
#include <unistd.h>

#include "base/clock.h"

#define TENANT "tenant"

/* ---- the tier -------------------------------------------------------------------------------- */

static bool
on_found(void *owner, const struct yb_tier_record *record)
{
    struct object_ground *ground = owner;
    uint32_t at = ground->found_count++;

    assert_true(at < GROUND_FOUND_MAX);
    ground->found[at].hash = record->hash;
    ground->found[at].grant = record->grant;
    ground->found[at].flush = record->flush;
    ground->found[at].size = record->size;
    ground->found[at].flags = record->flags;
    ground->found[at].mode = record->mode;
    ground->found[at].replicas = record->replicas;
    (void)snprintf(ground->found[at].tenant, sizeof(ground->found[at].tenant), "%s",
                   record->tenant);
    return !ground->refuse;
}

static void
on_recovered(void *owner, enum yb_status status)
{
    struct object_ground *ground = owner;

    ground->recovered++;
    ground->recovered_status = status;
}

static void
on_lost(void *owner, struct yb_id hash, uint64_t grant, enum yb_status why)
{
    struct object_ground *ground = owner;

    (void)hash;
    (void)grant;
    ground->lost++;
    ground->lost_why = why;
}

static void
on_aside(void *owner, enum yb_status status, const char *why)
{
    struct object_ground *ground = owner;

    ground->aside_count++;
    ground->aside = status;
    (void)snprintf(ground->why, sizeof(ground->why), "%s", why);
}

static const struct yb_tier_events events = {
    .found = on_found, .recovered = on_recovered, .lost = on_lost, .aside = on_aside};

void
ground_init(struct object_ground *ground)
{
    const struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};

    memset(ground, 0, sizeof(*ground));
    ground->turn_ns = 100 * YB_NS_PER_MS;
    assert_int_equal(yb_loop_create(&options, &ground->loop), YB_OK);
    (void)snprintf(ground->folder, sizeof(ground->folder), "/tmp/yuebing-object-XXXXXX");
    assert_non_null(mkdtemp(ground->folder));
    (void)snprintf(ground->url, sizeof(ground->url), "file:%s", ground->folder);
    ground->options = (struct yb_object_options){
        .blocks_max = 8192, .operations_max = 256, .concurrency = 8, .threads = 4};
}

void
ground_start(struct object_ground *ground)
{
    char why[YB_OBJECT_WHY_BYTES];

    ground->options.loop = ground->loop;
    ground->options.events = &events;
    ground->options.owner = ground;
    if (ground->options.url == NULL) {
        ground->options.url = ground->url;
    }
    ground->found_count = ground->recovered = ground->lost = 0;
    if (yb_object_create(&ground->options, &ground->tier, why) != YB_OK) {
        fail_msg("%s", why);
    }
    ground->options.backend = NULL;
}

void
ground_recover(struct object_ground *ground)
{
    while (ground->recovered == 0) {
        yb_loop_turn(ground->loop, ground->turn_ns);
    }
}

void
ground_stop(struct object_ground *ground)
{
    yb_tier_stop(ground->tier);
    while (!yb_tier_idle(ground->tier)) {
        yb_loop_turn(ground->loop, ground->turn_ns);
    }
    yb_tier_destroy(&ground->tier);
    assert_null(ground->tier);
}

static void
remove_all(const char *folder)
{
    char path[64];
    char *const roots[] = {path, NULL};
    FTS *walk;
    FTSENT *entry;

    (void)snprintf(path, sizeof(path), "%s", folder);
    walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    while (walk != NULL && (entry = fts_read(walk)) != NULL) {
        if (entry->fts_info != FTS_D) {
            (void)remove(entry->fts_path);
        }
    }
    if (walk != NULL) {
        (void)fts_close(walk);
    }
}

void
ground_fini(struct object_ground *ground)
{
    if (ground->tier != NULL) {
        ground_stop(ground);
    }
    yb_loop_destroy(&ground->loop);
    remove_all(ground->folder);
}

void
ground_turn(struct object_ground *ground, const bool *until)
{
    while (!*until) {
        yb_loop_turn(ground->loop, ground->turn_ns);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

struct yb_id
ground_hash(uint64_t number)
{
    struct yb_id id = {{0x5a}};

    for (uint32_t i = 0; i < 8; i++) {
        id.bytes[15 - i] = (uint8_t)(number >> 8 * i);
    }
    return id;
}

void
ground_fill(uint8_t *bytes, uint64_t size, uint64_t number, uint64_t grant)
{
    uint64_t state = (number + 1) * 0x9e3779b97f4a7c15ull + grant;

    for (uint64_t i = 0; i < size; i++) {
        state += i % 8 == 0 ? unit_random(&state) : 0;
        bytes[i] = (uint8_t)(state >> 8 * (i % 8));
    }
}

static void
on_stored(struct yb_tier_op *op, enum yb_status status)
{
    struct object_block *block = (struct object_block *)op;

    assert_false(block->ended);
    block->ended = true;
    block->status = status;
}

void
block_init(struct object_block *block, uint64_t number, uint64_t grant, uint64_t size)
{
    uint64_t third = size / 3;

    memset(block, 0, sizeof(*block));
    block->bytes = malloc(size + 1);
    assert_non_null(block->bytes);
    ground_fill(block->bytes, size, number, grant);
    block->iov[0] = (struct iovec){block->bytes, third};
    block->iov[1] = (struct iovec){block->bytes + third, third};
    block->iov[2] = (struct iovec){block->bytes + 2 * third, size - 2 * third};
    block->store = (struct yb_tier_store){
        .op = {.done = on_stored, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_THROUGHPUT},
        .record = {.hash = ground_hash(number),
                   .grant = grant,
                   .flush = 1,
                   .size = size,
                   .parent = number * 3,
                   .tenant = TENANT,
                   .key = block->key,
                   .flags = YB_WIRE_BLOCK_FLAG_SOFT_PIN,
                   .mode = YB_WIRE_MODE_IF_ABSENT,
                   .replicas = 2},
        .iov = block->iov,
        .iov_count = 3,
    };
    block->store.record.key_bytes = (uint32_t)snprintf((char *)block->key, sizeof(block->key),
                                                       "key %llu", (unsigned long long)number);
}

void
block_fini(struct object_block *block)
{
    free(block->bytes);
}

void
block_submit(struct object_ground *ground, struct object_block *block)
{
    assert_int_equal(yb_tier_store(ground->tier, &block->store), YB_OK);
    assert_false(block->ended);
}

enum yb_status
block_store(struct object_ground *ground, uint64_t number, uint64_t grant, uint64_t size)
{
    struct object_block block;

    block_init(&block, number, grant, size);
    block_submit(ground, &block);
    ground_turn(ground, &block.ended);
    block_fini(&block);
    return block.status;
}

static void
on_loaded(struct yb_tier_op *op, enum yb_status status)
{
    struct object_reading *reading = (struct object_reading *)op;

    assert_false(reading->ended);
    reading->ended = true;
    reading->status = status;
}

void
reading_init(struct object_reading *reading, uint64_t number, uint64_t grant, uint64_t offset,
             uint64_t length)
{
    memset(reading, 0, sizeof(*reading));
    reading->bytes = malloc(length + 1);
    assert_non_null(reading->bytes);
    memset(reading->bytes, 0xee, length + 1);
    reading->iov[0] = (struct iovec){reading->bytes, length / 2};
    reading->iov[1] = (struct iovec){reading->bytes + length / 2, length - length / 2};
    reading->load = (struct yb_tier_load){
        .op = {.done = on_loaded, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_FIRST_TOKEN},
        .hash = ground_hash(number),
        .grant = grant,
        .tenant = TENANT,
        .flush = 1,
        .offset = offset,
        .length = length,
        .iov = reading->iov,
        .iov_count = 2,
    };
}

void
reading_fini(struct object_reading *reading)
{
    free(reading->bytes);
}

void
reading_submit(struct object_ground *ground, struct object_reading *reading)
{
    assert_int_equal(yb_tier_load(ground->tier, &reading->load), YB_OK);
    assert_false(reading->ended);
}

enum yb_status
block_load_range(struct object_ground *ground, uint64_t number, uint64_t grant, uint64_t offset,
                 uint64_t length)
{
    struct object_reading reading;
    uint8_t *expected = malloc(offset + length + 1);
    char key[64];

    assert_non_null(expected);
    reading_init(&reading, number, grant, offset, length);
    reading_submit(ground, &reading);
    ground_turn(ground, &reading.ended);
    assert_int_equal(reading.bytes[length], 0xee);
    if (reading.status == YB_OK) {
        (void)snprintf(key, sizeof(key), "key %llu", (unsigned long long)number);
        ground_fill(expected, offset + length, number, reading.load.record_out.grant);
        assert_memory_equal(reading.bytes, expected + offset, length);
        assert_true(grant == 0 || reading.load.record_out.grant == grant);
        assert_int_equal(reading.load.record_out.key_bytes, strlen(key));
        assert_memory_equal(reading.load.record_out.key, key, strlen(key));
        assert_string_equal(reading.load.record_out.tenant, TENANT);
        assert_int_equal(reading.load.record_out.parent, number * 3);
    }
    free(expected);
    reading_fini(&reading);
    return reading.status;
}

enum yb_status
block_load(struct object_ground *ground, uint64_t number, uint64_t grant, uint64_t size)
{
    return block_load_range(ground, number, grant, 0, size);
}

struct simple {
    union {
        struct yb_tier_op op;
        struct yb_tier_kill kill;
        struct yb_tier_flush flush;
    };
    bool ended;
    enum yb_status status;
};

static void
on_simple(struct yb_tier_op *op, enum yb_status status)
{
    struct simple *simple = (struct simple *)op;

    simple->ended = true;
    simple->status = status;
}

enum yb_status
block_kill(struct object_ground *ground, uint64_t number, uint64_t grant)
{
    struct simple simple = {.kill = {.op = {.done = on_simple, .deadline_ns = YB_NEVER},
                                     .hash = ground_hash(number),
                                     .grant = grant,
                                     .tenant = TENANT,
                                     .flush = 1}};

    assert_int_equal(yb_tier_kill(ground->tier, &simple.kill), YB_OK);
    ground_turn(ground, &simple.ended);
    return simple.status;
}

enum yb_status
tenant_flush(struct object_ground *ground, uint64_t flush)
{
    struct simple simple = {.flush = {.op = {.done = on_simple, .deadline_ns = YB_NEVER},
                                      .tenant = TENANT,
                                      .flush = flush}};

    assert_int_equal(yb_tier_flush(ground->tier, &simple.flush), YB_OK);
    ground_turn(ground, &simple.ended);
    return simple.status;
}
