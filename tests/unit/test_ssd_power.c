/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: T1 and T2 of tier/tier.h over a loss of power, S1 to S5 of tier/ssd/ssd.h.
 * Method: random operations on a small log whose device remembers what no sync covers, holds
 * operations back and completes them out of order. After each, the images that a power cut may
 * leave (none of it, all, some writes, some sectors of 512 bytes) are opened as logs of their own
 * and compared with a table of what was said: what was ever reported RESIDENT is there byte for
 * byte, what a kill or flush that is done named is not, nor what was said to be lost, and whatever
 * is there was once stored.
 * The short form runs some hundred operations, the long form (`make test-power`) ten thousand.
 */
#include "unit.h"

#include <string.h>

#include "ssd_stage.h"
#include "tier/ssd/ssd_internal.h"

#define KEYS      24u
#define GRANTS    4096u
#define OPS_MAX   32u
#define TENANTS   2u
#define SIZE_MAX_ (60u << 10)

enum mark { MARK_NONE, MARK_STORING, MARK_RESIDENT, MARK_UNSURE, MARK_LOST, MARK_GONE };

/* What was said of a grant. Its key, size and tenant follow from its number. */
struct said {
    enum mark mark;
    uint64_t flush;
};

struct op {
    union {
        struct yb_tier_op op;
        struct yb_tier_store store;
        struct yb_tier_load load;
        struct yb_tier_kill kill;
        struct yb_tier_flush flush;
    } any; /* First. */
    struct power *power;
    enum { OP_FREE, OP_STORE, OP_LOAD, OP_KILL, OP_FLUSH } kind;
    uint32_t grant;
    uint32_t key;
    struct iovec iov;
    uint8_t *bytes;
};

struct power {
    struct stage stage;
    struct stage second; /* On the images. */
    uint64_t random;
    struct said said[GRANTS];
    uint64_t flush[TENANTS];       /* Epochs that are given out, */
    uint64_t flush_asked[TENANTS]; /* asked for, */
    uint64_t flush_done[TENANTS];  /* and done. */
    struct op ops[OPS_MAX];
    uint32_t done;
    uint32_t checked;
    uint32_t resident_checked;
    uint32_t stored;
    uint64_t reclaims;
};

static uint32_t
draw(struct power *power, uint32_t below)
{
    return (uint32_t)(unit_random(&power->random) >> 33) % below;
}

static uint32_t
mixed(uint32_t grant)
{
    return grant * 2654435761u >> 7;
}

static uint32_t
key_of(uint32_t grant)
{
    return mixed(grant) % KEYS;
}

static uint32_t
tenant_of(uint32_t grant)
{
    return key_of(grant) % TENANTS;
}

static uint64_t
size_of(uint32_t grant)
{
    uint32_t kind = mixed(grant) / KEYS % 8;

    return kind == 0 ? 0 : kind < 5 ? mixed(grant) % 5000 : mixed(grant) % SIZE_MAX_;
}

static const char *const tenant_names[TENANTS] = {"red", "blue"};

/* ---- operations ------------------------------------------------------------------------- */

static void
free_op(struct op *op)
{
    free(op->bytes);
    op->bytes = NULL;
    op->kind = OP_FREE;
    op->power->done++;
}

static void
store_done(struct op *op, enum yb_status status)
{
    struct power *power = op->power;
    struct said *said = &power->said[op->grant];

    if (status == YB_OK) {
        said->mark = said->mark == MARK_STORING ? MARK_RESIDENT : said->mark;
        power->stored++;
    } else {
        assert_true(status == YB_STALE || status == YB_CANCELLED || status == YB_IN_DOUBT);
        said->mark = said->mark == MARK_STORING ? MARK_UNSURE : said->mark;
    }
}

static void
load_done(struct op *op, enum yb_status status)
{
    const struct yb_tier_load *load = &op->any.load;
    uint8_t *want;

    assert_true(status == YB_OK || status == YB_NOT_FOUND || status == YB_CANCELLED);
    if (status != YB_OK) {
        return;
    }
    assert_int_equal(key_of((uint32_t)load->record_out.grant), op->key);
    assert_int_equal(load->record_out.size, size_of((uint32_t)load->record_out.grant));
    want = malloc(load->record_out.size + 1);
    assert_non_null(want);
    stage_pattern(op->key, load->record_out.grant, want, load->record_out.size);
    assert_memory_equal(op->bytes, want, load->record_out.size);
    free(want);
}

static void
op_done(struct yb_tier_op *base, enum yb_status status)
{
    struct op *op = (struct op *)base;
    struct power *power = op->power;

    switch (op->kind) {
    case OP_STORE: store_done(op, status); break;
    case OP_LOAD: load_done(op, status); break;
    case OP_KILL:
        assert_int_equal(status, YB_OK);
        power->said[op->grant].mark = MARK_GONE;
        break;
    case OP_FLUSH:
        assert_int_equal(status, YB_OK);
        if (power->flush_done[op->key] < op->any.flush.flush) {
            power->flush_done[op->key] = op->any.flush.flush;
        }
        break;
    case OP_FREE: fail_msg("ended twice"); break;
    }
    free_op(op);
}

static struct op *
new_op(struct power *power)
{
    for (uint32_t i = 0; i < OPS_MAX; i++) {
        struct op *op = &power->ops[i];

        if (op->kind == OP_FREE) {
            memset(op, 0, sizeof *op);
            op->power = power;
            op->any.op.done = op_done;
            op->any.op.deadline_ns = YB_NEVER;
            return op;
        }
    }
    return NULL;
}

static void
store_some(struct power *power)
{
    struct op *op = new_op(power);
    uint32_t grant = 1 + draw(power, GRANTS - 1);
    uint32_t tenant = tenant_of(grant);
    struct said *said = &power->said[grant];

    if (op == NULL || said->mark != MARK_NONE) {
        return;
    }
    op->kind = OP_STORE;
    op->grant = grant;
    op->key = key_of(grant);
    op->bytes = malloc(size_of(grant) + 1);
    assert_non_null(op->bytes);
    stage_pattern(op->key, grant, op->bytes, size_of(grant));
    op->iov = (struct iovec){.iov_base = op->bytes, .iov_len = size_of(grant)};
    op->any.store.record = (struct yb_tier_record){.hash = stage_hash(op->key),
                                                   .grant = grant,
                                                   .flush = power->flush[tenant],
                                                   .size = size_of(grant),
                                                   .tenant = tenant_names[tenant],
                                                   .key = (const uint8_t *)&op->key,
                                                   .key_bytes = sizeof op->key,
                                                   .mode = YB_WIRE_MODE_REPLACE,
                                                   .replicas = 1};
    if (grant % 64 == 0) {
        op->any.store.record.flags = YB_WIRE_BLOCK_FLAG_HARD_PIN;
    }
    op->any.store.iov = &op->iov;
    op->any.store.iov_count = 1;
    said->mark = MARK_STORING;
    said->flush = power->flush[tenant];
    if (yb_tier_store(power->stage.tier, &op->any.store) != YB_OK) {
        said->mark = MARK_NONE;
        free_op(op);
    }
}

static void
load_some(struct power *power)
{
    struct op *op = new_op(power);

    if (op == NULL) {
        return;
    }
    op->kind = OP_LOAD;
    op->key = draw(power, KEYS);
    op->bytes = malloc(SIZE_MAX_);
    assert_non_null(op->bytes);
    op->iov = (struct iovec){.iov_base = op->bytes, .iov_len = SIZE_MAX_};
    op->any.load.hash = stage_hash(op->key);
    op->any.load.length = SIZE_MAX_;
    op->any.load.iov = &op->iov;
    op->any.load.iov_count = 1;
    assert_int_equal(yb_tier_load(power->stage.tier, &op->any.load), YB_OK);
}

/* Kill something that is there or on its way, if there is. */
static void
kill_some(struct power *power)
{
    struct op *op = new_op(power);
    uint32_t grant = 1 + draw(power, GRANTS - 1);

    for (uint32_t i = 0; i < GRANTS; i++) {
        uint32_t at = 1 + (grant + i) % (GRANTS - 1);

        if (power->said[at].mark == MARK_STORING || power->said[at].mark == MARK_RESIDENT ||
            (power->said[at].mark == MARK_UNSURE && draw(power, 8) == 0)) {
            grant = at;
            break;
        }
    }
    if (op == NULL || power->said[grant].mark == MARK_NONE) {
        return;
    }
    op->kind = OP_KILL;
    op->grant = grant;
    op->any.kill.hash = stage_hash(key_of(grant));
    op->any.kill.grant = grant;
    op->any.kill.tenant = tenant_names[tenant_of(grant)];
    if (power->said[grant].mark != MARK_GONE) {
        power->said[grant].mark = MARK_UNSURE;
    }
    assert_int_equal(yb_tier_kill(power->stage.tier, &op->any.kill), YB_OK);
}

static void
flush_some(struct power *power)
{
    struct op *op = new_op(power);
    uint32_t tenant = draw(power, TENANTS);

    if (op == NULL) {
        return;
    }
    op->kind = OP_FLUSH;
    op->key = tenant;
    op->any.flush.tenant = tenant_names[tenant];
    op->any.flush.flush = ++power->flush[tenant];
    power->flush_asked[tenant] = power->flush[tenant];
    assert_int_equal(yb_tier_flush(power->stage.tier, &op->any.flush), YB_OK);
}

static void
on_lost(struct stage *stage, struct yb_id hash, uint64_t grant)
{
    struct power *power = stage->owner;

    if (power->said[grant].mark == MARK_RESIDENT) {
        power->said[grant].mark = MARK_LOST;
    }
}

/* Whether nobody finds the block any more, and nobody has been told yet that it is lost: then a
 * restart may find it, or not (T6). */
static bool
is_leaving(const struct power *power, uint32_t grant)
{
    const struct yb_ssd *ssd = (const struct yb_ssd *)power->stage.tier;
    const struct yb_id hash = stage_hash(key_of(grant));
    bool there = false;
    uint64_t cursor = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        there = there || (entry.grant == grant && !entry.hidden);
    }
    return !there;
}

/* ---- what an image holds ---------------------------------------------------------------- */

static bool
is_flushed(const struct power *power, uint32_t grant, const uint64_t flush[TENANTS])
{
    return power->said[grant].flush < flush[tenant_of(grant)];
}

/* Nothing is claimed that was not stored whole, or that is gone. */
static void
check_found(struct power *power, bool found[GRANTS])
{
    const struct stage *second = &power->second;

    memset(found, 0, GRANTS * sizeof *found);
    for (uint32_t i = 0; i < second->found_count; i++) {
        uint32_t grant = (uint32_t)second->found[i].grant;

        assert_true(grant > 0 && grant < GRANTS);
        assert_true(yb_id_equal(second->found[i].hash, stage_hash(key_of(grant))));
        assert_false(found[grant]);
        assert_true(power->said[grant].mark != MARK_NONE);
        if (power->said[grant].mark == MARK_GONE || power->said[grant].mark == MARK_LOST) {
            fail_msg("grant %u was killed, or lost, and is found", grant);
        }
        assert_false(is_flushed(power, grant, power->flush_done));
        found[grant] = true;
    }
}

static void
check_image(struct power *power)
{
    static bool found[GRANTS];
    uint32_t highest[KEYS] = {0};

    stage_open(&power->second, false);
    assert_int_equal(power->second.recovered_status, YB_OK);
    check_found(power, found);
    for (uint32_t grant = 1; grant < GRANTS; grant++) {
        if (power->said[grant].mark == MARK_RESIDENT &&
            !is_flushed(power, grant, power->flush_asked)) {
            if (!found[grant] && !is_leaving(power, grant)) {
                fail_msg("grant %u was RESIDENT and is not found", grant);
            }
            power->resident_checked += found[grant];
        }
        if (found[grant]) {
            highest[key_of(grant)] = grant;
        }
    }
    for (uint32_t grant = 1; grant < GRANTS; grant++) {
        if (found[grant]) {
            assert_int_equal(stage_get(&power->second, key_of(grant), grant, NULL), YB_OK);
        }
    }
    for (uint32_t key = 0; key < KEYS; key++) {
        uint64_t grant = 0;

        assert_int_equal(stage_get(&power->second, key, 0, &grant),
                         highest[key] == 0 ? YB_NOT_FOUND : YB_OK);
        assert_int_equal(grant, highest[key]);
    }
    stage_close(&power->second);
    power->checked++;
}

static void
cut(struct power *power, uint32_t cuts)
{
    for (uint32_t i = 0; i < cuts; i++) {
        enum stage_cut how = (enum stage_cut)(cuts == STAGE_CUTS ? i : draw(power, STAGE_CUTS));

        stage_cut(&power->stage, how, &power->random, power->second.memory);
        check_image(power);
    }
}

/* ---- the walk --------------------------------------------------------------------------- */

static void
step(struct power *power)
{
    uint32_t what = draw(power, 100);

    if (what < 55) {
        store_some(power);
    } else if (what < 72) {
        kill_some(power);
    } else if (what < 96) {
        load_some(power);
    } else if (what < 97) {
        flush_some(power);
    }
    power->stage.device->holds = draw(power, 3) > 0;
    for (uint32_t turns = draw(power, 6); turns > 0; turns--) {
        stage_release(&power->stage, draw(power, 8) == 0);
        stage_turn(&power->stage);
    }
}

static void
drain(struct power *power)
{
    bool busy = true;

    power->stage.device->holds = false;
    for (uint32_t i = 0; busy; i++) {
        assert_true(i < 100000);
        stage_release(&power->stage, true);
        stage_turn(&power->stage);
        busy = false;
        for (uint32_t j = 0; j < OPS_MAX; j++) {
            busy = busy || power->ops[j].kind != OP_FREE;
        }
    }
}

/* The process is killed, the medium stays: a new one goes on with it. */
static void
restart(struct power *power)
{
    struct yb_tier_info info;

    drain(power);
    yb_tier_info(power->stage.tier, &info);
    power->reclaims += info.reclaims;
    stage_close(&power->stage);
    stage_open(&power->stage, true);
    assert_int_equal(power->stage.recovered_status, YB_OK);
}

static void
walk(uint64_t seed, uint32_t operations, uint32_t cuts)
{
    struct power *power = calloc(1, sizeof *power);

    assert_non_null(power);
    power->random = seed;
    stage_init(&power->stage);
    stage_init(&power->second);
    power->second.options.capacity = 20ull * STAGE_SEGMENT; /* So that it reclaims nothing. */
    power->stage.owner = power;
    power->stage.on_lost = on_lost;
    power->flush[0] = power->flush[1] = 1;
    stage_start(&power->stage, true);
    for (uint32_t i = 0; i < operations; i++) {
        step(power);
        assert_int_equal(power->stage.aside, YB_OK);
        cut(power, cuts);
        if (i % 250 == 249) {
            restart(power);
        }
    }
    drain(power);
    printf("power: %u operations done, %u stored, %u reclaims, %u images, %u blocks compared\n",
           power->done, power->stored, (unsigned)power->reclaims, power->checked,
           power->resident_checked);
    stage_fini(&power->stage);
    stage_fini(&power->second);
    free(power);
}

static void
test_ssd_power__what_was_said_holds_after_every_cut(void **state)
{
    uint64_t seed = unit_seed("ssd_power");
    bool is_long = *(const bool *)*state;

    if (is_long) {
        walk(seed, 10000, STAGE_CUTS);
    } else {
        for (uint32_t i = 0; i < 5; i++) {
            walk(seed + i * 7919, 300, 2);
        }
    }
}

int
main(int argc, char **argv)
{
    bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_ssd_power__what_was_said_holds_after_every_cut, &is_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
