/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench ssd`: the log beside the bare disk under the same rules, in the same run.
 */
#include "cli/bench_ssd.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "net/loop.h"
#include "tier/ssd/ssd.h"

#define KIB           1024ull
#define MIB           (1024 * KIB)
#define ROUNDS_MAX    99u
#define OPS           16384u
#define SOURCE_BYTES  (64 * MIB)
#define SYNC_BYTES    (64 * MIB)
#define SMALL_BYTES   64u
#define SEGMENT_BYTES (256 * MIB)
#define KEY_BYTES     16u

enum row_kind { ROW_WRITE, ROW_READ, ROW_RECOVERY };

struct row {
    enum row_kind kind;
    const char *op;
    uint64_t size;
    uint32_t depth;
    double ours[ROUNDS_MAX]; /* GB/s */
    double bare[ROUNDS_MAX];
};

enum {
    ROW_WRITE_1M,
    ROW_WRITE_64K,
    ROW_WRITE_4K,
    ROW_READ_64K,
    ROW_READ_1M,
    ROW_RECOVERY_SMALL,
    ROWS
};

struct op {
    union {
        struct yb_tier_op op;
        struct yb_tier_store store;
        struct yb_tier_load load;
    } any; /* First. */
    struct bench *bench;
    struct iovec iov;
    uint8_t key[KEY_BYTES];
    uint8_t *bytes; /* Where a load goes. */
    struct op *next;
};

struct bench {
    struct yb_cli *cli;
    uint64_t rounds;
    uint64_t bytes;
    uint64_t records;
    const char *io;
    char directory[4096];
    struct row rows[ROWS];
    struct yb_loop *loop;
    struct yb_tier *tier;
    struct op *ops;
    struct op *free;
    uint32_t under_way;
    uint64_t failed;
    uint8_t *source; /* Values come from here. */
    uint8_t *target; /* And go there. */
    bool recovered;
    bool aside;
    double gathered; /* Puts for one write of 4 KiB values. */
    double recovery_s[ROUNDS_MAX];
    double unsynced[ROUNDS_MAX]; /* The bare disk without syncs. */
    char device[16];
};

/* ---- events -------------------------------------------------------------------------------- */

static bool
on_found(void *owner, const struct yb_tier_record *record)
{
    return true;
}

static void
on_recovered(void *owner, enum yb_status status)
{
    ((struct bench *)owner)->recovered = true;
}

static void
on_lost(void *owner, struct yb_id hash, uint64_t grant, enum yb_status why)
{
}

static void
on_aside(void *owner, enum yb_status status, const char *why)
{
    ((struct bench *)owner)->aside = true;
    fprintf(stderr, "yuebing bench ssd: %s\n", why);
}

static const struct yb_tier_events events = {
    .found = on_found, .recovered = on_recovered, .lost = on_lost, .aside = on_aside};

/* ---- the log ------------------------------------------------------------------------------- */

static double
seconds_since(uint64_t begun_ns)
{
    return (double)(yb_clock_now(yb_clock_system()) - begun_ns) / 1e9;
}

static bool
tier_open(struct bench *bench, uint64_t bytes, uint64_t records)
{
    struct yb_ssd_options options = {
        .loop = bench->loop,
        .directory = bench->directory,
        .io = bench->io,
        .capacity = (bytes / SEGMENT_BYTES + 6) * SEGMENT_BYTES,
        .segment_bytes = SEGMENT_BYTES,
        .records_max = records + 65536,
        .footer_bytes = SEGMENT_BYTES / 4,
        .sync_bytes = SYNC_BYTES,
        .operations_max = OPS,
        .events = &events,
        .owner = bench,
    };

    bench->recovered = false;
    if (yb_ssd_create(&options, &bench->tier) != YB_OK) {
        fprintf(stderr, "yuebing bench ssd: no memory for the log\n");
        return false;
    }
    while (!bench->recovered) {
        yb_loop_turn(bench->loop, 100 * YB_NS_PER_MS);
    }
    (void)snprintf(bench->device, sizeof bench->device, "%s", yb_ssd_device_name(bench->tier));
    return !bench->aside;
}

static void
tier_close(struct bench *bench)
{
    yb_tier_stop(bench->tier);
    while (!yb_tier_idle(bench->tier)) {
        yb_loop_turn(bench->loop, YB_NS_PER_MS);
    }
    yb_tier_destroy(&bench->tier);
}

static void
log_remove(struct bench *bench)
{
    char path[sizeof bench->directory + 8];

    (void)snprintf(path, sizeof path, "%s/log", bench->directory);
    (void)unlink(path);
}

static void
op_done(struct yb_tier_op *base, enum yb_status status)
{
    struct op *op = (struct op *)base;
    struct bench *bench = op->bench;

    bench->failed += status != YB_OK;
    op->next = bench->free;
    bench->free = op;
    bench->under_way--;
}

static struct yb_id
hash_of(uint64_t number)
{
    struct yb_id hash;
    uint64_t mix = (number + 1) * 0x9e3779b97f4a7c15u;

    memcpy(hash.bytes, &mix, sizeof mix);
    mix = (mix ^ mix >> 31) * 0xff51afd7ed558ccdu;
    memcpy(hash.bytes + 8, &mix, sizeof mix);
    return hash;
}

/* Wait until there is an operation to use. */
static struct op *
take_op(struct bench *bench, uint32_t depth)
{
    struct op *op;

    while (bench->under_way >= depth) {
        yb_loop_turn(bench->loop, 100 * YB_NS_PER_MS);
    }
    op = bench->free;
    bench->free = op->next;
    bench->under_way++;
    return op;
}

static void
wait_all(struct bench *bench)
{
    while (bench->under_way > 0) {
        yb_loop_turn(bench->loop, 100 * YB_NS_PER_MS);
    }
}

/* Store `count` values; return the seconds until the last is RESIDENT. */
static double
store_all(struct bench *bench, uint64_t size, uint64_t count)
{
    uint64_t begun_ns = yb_clock_now(yb_clock_system());

    for (uint64_t i = 0; i < count && bench->failed == 0; i++) {
        struct op *op = take_op(bench, OPS - 1);
        uint64_t place = i * size % (SOURCE_BYTES - size + 1);

        memcpy(op->key, &i, sizeof i);
        op->iov = (struct iovec){.iov_base = bench->source + place, .iov_len = size};
        op->any.store = (struct yb_tier_store){
            .op = {.done = op_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_BACKGROUND},
            .record = {.hash = hash_of(i),
                       .grant = i + 1,
                       .size = size,
                       .tenant = "",
                       .key = op->key,
                       .key_bytes = KEY_BYTES,
                       .mode = YB_WIRE_MODE_IF_ABSENT,
                       .replicas = 1},
            .iov = &op->iov,
            .iov_count = 1};
        if (yb_tier_store(bench->tier, &op->any.store) != YB_OK) {
            op_done(&op->any.op, YB_AGAIN);
        }
    }
    wait_all(bench);
    return seconds_since(begun_ns);
}

static double
load_some(struct bench *bench, uint64_t size, uint64_t stored, uint32_t depth, uint64_t count)
{
    uint64_t begun_ns = yb_clock_now(yb_clock_system());
    uint64_t random = 88172645463325252ull;

    for (uint64_t i = 0; i < count && bench->failed == 0; i++) {
        struct op *op = take_op(bench, depth);

        random = random * 6364136223846793005ull + 1442695040888963407ull;
        op->iov = (struct iovec){.iov_base = bench->target + i % depth * size, .iov_len = size};
        op->any.load = (struct yb_tier_load){
            .op = {.done = op_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_FIRST_TOKEN},
            .hash = hash_of((random >> 20) % stored),
            .length = size,
            .iov = &op->iov,
            .iov_count = 1};
        if (yb_tier_load(bench->tier, &op->any.load) != YB_OK) {
            op_done(&op->any.op, YB_AGAIN);
        }
    }
    wait_all(bench);
    return seconds_since(begun_ns);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static double
rate(double seconds, uint64_t bytes)
{
    return seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
}

static bool
measure_write(struct bench *bench, struct row *row, uint64_t round, struct yb_bench_disk *disk)
{
    struct yb_tier_info info;

    /* Both write into room that was never written: later the file system has less to do. */
    for (uint32_t turn = 0; turn < 2; turn++) {
        if ((turn + round) % 2 == 0) {
            if (!yb_bench_disk_renew(disk, bench->directory)) {
                return false;
            }
            row->bare[round] =
                rate(yb_bench_disk_write(disk, MIB, row->depth, SYNC_BYTES), disk->bytes);
            continue;
        }
        if (!tier_open(bench, bench->bytes, bench->bytes / row->size)) {
            return false;
        }
        row->ours[round] =
            rate(store_all(bench, row->size, bench->bytes / row->size), bench->bytes);
        yb_tier_info(bench->tier, &info);
        if (row->size == 4 * KIB) {
            bench->gathered = (double)info.blocks / (double)info.writes;
        }
    }
    return row->bare[round] > 0;
}

static bool
measure_read(struct bench *bench, struct row *row, uint64_t round, struct yb_bench_disk *disk)
{
    uint64_t count = bench->bytes / row->size;

    for (uint32_t turn = 0; turn < 2; turn++) {
        if ((turn + round) % 2 == 0) {
            row->ours[round] =
                rate(load_some(bench, row->size, count, row->depth, count), bench->bytes);
        } else {
            row->bare[round] =
                rate(yb_bench_disk_read(disk, row->size, row->depth, count, false), bench->bytes);
        }
    }
    return row->bare[round] > 0;
}

/* What recovery must read, at the least: the heads of all records, as they lie. */
static bool
measure_recovery(struct bench *bench, struct row *row, uint64_t round, struct yb_bench_disk *disk)
{
    struct yb_tier_info before;
    struct yb_tier_info after;
    uint64_t begun_ns;

    if (!tier_open(bench, bench->records * 256, bench->records)) {
        return false;
    }
    (void)store_all(bench, SMALL_BYTES, bench->records);
    yb_tier_info(bench->tier, &before);
    tier_close(bench);
    begun_ns = yb_clock_now(yb_clock_system());
    if (!tier_open(bench, bench->records * 256, bench->records)) {
        return false;
    }
    bench->recovery_s[round] = seconds_since(begun_ns);
    yb_tier_info(bench->tier, &after);
    if (after.blocks != before.blocks || before.blocks != bench->records) {
        fprintf(stderr, "yuebing bench ssd: %llu of %llu records are back\n",
                (unsigned long long)after.blocks, (unsigned long long)bench->records);
        return false;
    }
    row->ours[round] = rate(bench->recovery_s[round], after.read_bytes);
    row->bare[round] =
        rate(yb_bench_disk_read(disk, MIB, 16, after.read_bytes / MIB + 1, true), after.read_bytes);
    return true;
}

static bool
measure_round(struct bench *bench, uint64_t round, struct yb_bench_disk *disk)
{
    static const struct {
        int write;
        int read;
    } pairs[] = {{ROW_WRITE_1M, ROW_READ_1M}, {ROW_WRITE_64K, ROW_READ_64K}, {ROW_WRITE_4K, -1}};
    bool ok = true;

    bench->unsynced[round] = rate(yb_bench_disk_write(disk, MIB, 16, 0), disk->bytes);
    for (size_t i = 0; ok && i < sizeof pairs / sizeof *pairs; i++) {
        ok = measure_write(bench, &bench->rows[pairs[i].write], round, disk);
        if (ok && pairs[i].read >= 0) {
            ok = measure_read(bench, &bench->rows[pairs[i].read], round, disk);
        }
        if (bench->tier != NULL) {
            tier_close(bench);
        }
        log_remove(bench);
    }
    ok = ok && measure_recovery(bench, &bench->rows[ROW_RECOVERY_SMALL], round, disk);
    if (bench->tier != NULL) {
        tier_close(bench);
    }
    log_remove(bench);
    return ok && bench->failed == 0;
}

/* ---- results ------------------------------------------------------------------------------- */

static double
median_ratio(const struct row *row, uint64_t rounds)
{
    double ratios[ROUNDS_MAX];

    for (uint64_t i = 0; i < rounds; i++) {
        ratios[i] = row->ours[i] / row->bare[i];
    }
    return yb_bench_median(ratios, rounds);
}

static int
print_json(struct bench *bench)
{
    json_t *array = json_array();

    for (size_t i = 0; i < ROWS; i++) {
        struct row *row = &bench->rows[i];
        double ratio = median_ratio(row, bench->rounds);

        json_array_append_new(array,
                              json_pack("{s:s, s:I, s:f, s:f, s:f}", "op", row->op, "size",
                                        (json_int_t)row->size, "gbps",
                                        yb_bench_median(row->ours, bench->rounds), "ceiling_gbps",
                                        yb_bench_median(row->bare, bench->rounds), "ratio", ratio));
    }
    return yb_output_json(bench->cli->out,
                          json_pack("{s:s, s:I, s:s, s:o, s:f, s:f, s:I, s:f}", "bench", "ssd",
                                    "rounds", (json_int_t)bench->rounds, "io", bench->device,
                                    "rows", array, "bare_write_without_sync_gbps",
                                    yb_bench_median(bench->unsynced, bench->rounds),
                                    "puts_for_one_write", bench->gathered, "recovered_records",
                                    (json_int_t)bench->records, "recovery_s",
                                    yb_bench_median(bench->recovery_s, bench->rounds))) == YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

static bool
add_row(struct yb_output_table *table, struct bench *bench, struct row *row)
{
    char cells[4][32];
    const char *list[5] = {row->op, cells[0], cells[1], cells[2], cells[3]};
    double ratio = median_ratio(row, bench->rounds);

    (void)snprintf(cells[0], sizeof cells[0], "%llu", (unsigned long long)row->size);
    (void)snprintf(cells[1], sizeof cells[1], "%.2f", yb_bench_median(row->ours, bench->rounds));
    (void)snprintf(cells[2], sizeof cells[2], "%.2f", yb_bench_median(row->bare, bench->rounds));
    (void)snprintf(cells[3], sizeof cells[3], "%.2f", ratio);
    return yb_output_table_add(table, list) == YB_OK;
}

static int
print_table(struct bench *bench)
{
    static const char *const columns[] = {"op", "size", "GB/s", "bare disk", "ratio"};
    struct yb_output_table *table = NULL;
    bool ok = yb_output_table_create(columns, 5, &table) == YB_OK;
    FILE *out = bench->cli->out;

    for (size_t i = 0; ok && i < ROWS; i++) {
        ok = add_row(table, bench, &bench->rows[i]);
    }
    if (ok) {
        yb_output_table_print(table, out, bench->cli->terminal);
        fprintf(out,
                "medians of %llu interleaved rounds over %s; the bare disk syncs as the log does, "
                "and writes %.2f GB/s without\n"
                "4 KiB values: %.0f puts for one write; %llu records recovered in %.2f s\n",
                (unsigned long long)bench->rounds, bench->device,
                yb_bench_median(bench->unsynced, bench->rounds), bench->gathered,
                (unsigned long long)bench->records,
                yb_bench_median(bench->recovery_s, bench->rounds));
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

/* ---- the run ------------------------------------------------------------------------------- */

static bool
prepare(struct bench *bench)
{
    static const struct row rows[ROWS] = {
        [ROW_WRITE_1M] = {.kind = ROW_WRITE, .op = "write", .size = MIB, .depth = 16},
        [ROW_WRITE_64K] = {.kind = ROW_WRITE, .op = "write", .size = 64 * KIB, .depth = 16},
        [ROW_WRITE_4K] = {.kind = ROW_WRITE, .op = "write", .size = 4 * KIB, .depth = 16},
        [ROW_READ_64K] = {.kind = ROW_READ, .op = "read", .size = 64 * KIB, .depth = 32},
        [ROW_READ_1M] = {.kind = ROW_READ, .op = "read", .size = MIB, .depth = 16},
        [ROW_RECOVERY_SMALL] = {.kind = ROW_RECOVERY, .op = "recovery", .size = SMALL_BYTES},
    };
    struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};

    memcpy(bench->rows, rows, sizeof rows);
    bench->ops = calloc(OPS, sizeof *bench->ops);
    bench->source = malloc(SOURCE_BYTES);
    bench->target = calloc(32, MIB);
    if (bench->ops == NULL || bench->source == NULL || bench->target == NULL ||
        yb_loop_create(&options, &bench->loop) != YB_OK) {
        fprintf(stderr, "yuebing bench ssd: no memory\n");
        return false;
    }
    for (uint64_t i = 0; i < SOURCE_BYTES; i += sizeof i) {
        uint64_t mix = i * 0x9e3779b97f4a7c15u;

        memcpy(bench->source + i, &mix, sizeof mix);
    }
    memset(bench->target, 1, 32 * MIB);
    for (uint32_t i = 0; i < OPS; i++) {
        bench->ops[i].bench = bench;
        bench->ops[i].next = bench->free;
        bench->free = &bench->ops[i];
    }
    return true;
}

static int
run(struct bench *bench)
{
    struct yb_output_progress progress;
    struct yb_bench_disk disk = {.fd = -1};
    bool ok = yb_bench_disk_open(bench->directory, bench->bytes, &disk);

    yb_output_progress_begin(&progress, bench->cli->err, bench->cli->terminal, yb_clock_system(),
                             "measuring", bench->rounds);
    for (uint64_t round = 0; ok && round < bench->rounds; round++) {
        ok = measure_round(bench, round, &disk);
        yb_output_progress_update(&progress, round + 1);
    }
    yb_output_progress_end(&progress);
    yb_bench_disk_close(&disk, bench->directory);
    if (!ok) {
        return YB_CLI_EXIT_FAILED;
    }
    return bench->cli->json ? print_json(bench) : print_table(bench);
}

int
yb_bench_ssd(struct yb_cli *cli)
{
    struct bench *bench = calloc(1, sizeof *bench);
    const char *parent = yb_cli_option(cli, "dir");
    uint64_t mib = 1024;
    int result = YB_CLI_EXIT_REFUSED;

    if (bench == NULL) {
        fprintf(cli->err, "yuebing bench: no memory\n");
        return YB_CLI_EXIT_FAILED;
    }
    bench->cli = cli;
    bench->rounds = 4;
    bench->records = 400000;
    bench->io = yb_cli_option(cli, "io") == NULL ? "auto" : yb_cli_option(cli, "io");
    (void)snprintf(bench->directory, sizeof bench->directory, "%s/yuebing-bench.XXXXXX",
                   parent == NULL ? "." : parent);
    if (yb_cli_option_number(cli, "rounds", 1, ROUNDS_MAX, &bench->rounds) &&
        yb_cli_option_number(cli, "mib", 64, 1 << 20, &mib) &&
        yb_cli_option_number(cli, "records", 1000, 100000000, &bench->records)) {
        bench->bytes = mib * MIB;
        result = YB_CLI_EXIT_FAILED;
        if (mkdtemp(bench->directory) == NULL) {
            fprintf(cli->err,
                    "yuebing bench ssd: %s: %m; name a directory on the disk with --dir\n",
                    bench->directory);
        } else {
            if (yb_cli_option(cli, "trace") != NULL) {
                result = yb_bench_ssd_trace(cli, yb_cli_option(cli, "trace"), bench->directory,
                                            bench->io);
            } else {
                result = prepare(bench) ? run(bench) : YB_CLI_EXIT_FAILED;
            }
            (void)rmdir(bench->directory);
        }
    }
    if (bench->loop != NULL) {
        yb_loop_destroy(&bench->loop);
    }
    free(bench->target);
    free(bench->source);
    free(bench->ops);
    free(bench);
    return result;
}
