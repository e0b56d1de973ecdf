/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench ssd`: the log beside the bare disk under the same rules, in the same run. Rows of
 * a fresh log and of one that is full, where every store waits for reclaim; both sides of a row
 * write into room of the same kind, never written before or written once.
 */
#include "cli/bench_ssd.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_tier.h"
#include "cli/measure.h"
#include "cli/output.h"

#define KIB           1024ull
#define MIB           (1024 * KIB)
#define ROUNDS_MAX    99u
#define OPS           16384u
#define SYNC_BYTES    (64 * MIB)
#define SMALL_BYTES   64u
#define SEGMENT_BYTES (256 * MIB)
#define KEY_BYTES     16u
#define SLICES        4u
#define AHEAD_BYTES   (4 * SYNC_BYTES) /* Stores under way, at most. */

struct row {
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
    ROW_REWRITE_1M,
    ROW_RECOVERY_SMALL,
    ROWS
};

struct op {
    union yb_bench_tier_any any; /* First. */
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
    struct yb_bench_tier log;
    struct yb_bench_disk disk;
    struct op *ops;
    struct op *free;
    uint32_t under_way;
    double gathered;  /* Puts for one write of 4 KiB values. */
    double amplified; /* Bytes written for one that is stored, in a full log. */
    double recovery_s;
    double unsynced[ROUNDS_MAX]; /* The bare disk without syncs. */
    char device[16];
};

/* ---- the log ------------------------------------------------------------------------------- */

static double
seconds_since(uint64_t begun_ns)
{
    return (double)(yb_measure_now_ns() - begun_ns) / 1e9;
}

static bool
tier_open(struct bench *bench, uint64_t segment_bytes, uint64_t segments, uint64_t records)
{
    const struct yb_ssd_options options = {
        .directory = bench->directory,
        .io = bench->io,
        .capacity = segments * segment_bytes,
        .segment_bytes = segment_bytes,
        .records_max = records + 65536,
        .footer_bytes = segment_bytes / 4,
        .sync_bytes = SYNC_BYTES,
        .operations_max = OPS,
    };
    bool opened = yb_bench_tier_open_log(&bench->log, &options);

    if (opened) {
        (void)snprintf(bench->device, sizeof bench->device, "%s",
                       yb_ssd_device_name(bench->log.tier));
    }
    return opened;
}

/* A log that does not fill up: of its segments one is open, one is kept, and some are to come. */
static bool
tier_open_for(struct bench *bench, uint64_t bytes, uint64_t records)
{
    return tier_open(bench, SEGMENT_BYTES, bytes / SEGMENT_BYTES + 6, records);
}

/* Close the log, and let the next one begin anew. */
static void
log_remove(struct bench *bench)
{
    char path[sizeof bench->directory + 8];

    yb_bench_tier_close(&bench->log);
    (void)snprintf(path, sizeof path, "%s/log", bench->directory);
    (void)unlink(path);
}

static void
op_done(struct yb_tier_op *base, enum yb_status status)
{
    struct op *op = (struct op *)base;
    struct bench *bench = op->bench;

    yb_bench_tier_note(&bench->log, status);
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
        yb_loop_turn(bench->log.loop, YB_BENCH_TIER_TURN_NS);
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
        yb_loop_turn(bench->log.loop, YB_BENCH_TIER_TURN_NS);
    }
}

/* Where a value comes from or goes to: the memory of the bare disk, in the same order. */
static uint8_t *
place_of(const struct bench *bench, uint64_t number, uint64_t size)
{
    return bench->disk.memory + number * size % bench->disk.memory_bytes;
}

static void
store_one(struct bench *bench, uint64_t size, uint64_t number)
{
    struct op *op = take_op(bench, OPS - 1);

    memcpy(op->key, &number, sizeof number);
    op->iov = (struct iovec){place_of(bench, number, size), size};
    op->any.store = (struct yb_tier_store){
        .op = {.done = op_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_BACKGROUND},
        .record = {.hash = hash_of(number),
                   .grant = number + 1,
                   .size = size,
                   .tenant = "",
                   .key = op->key,
                   .key_bytes = KEY_BYTES,
                   .mode = YB_WIRE_MODE_IF_ABSENT,
                   .replicas = 1},
        .iov = &op->iov,
        .iov_count = 1};
    if (yb_tier_store(bench->log.tier, &op->any.store) != YB_OK) {
        op_done(&op->any.op, YB_AGAIN);
    }
}

/* Store `count` values and wait until they are RESIDENT. */
static void
store_all(struct bench *bench, uint64_t size, uint64_t count)
{
    for (uint64_t i = 0; i < count && bench->log.status == YB_OK; i++) {
        store_one(bench, size, i);
    }
    wait_all(bench);
}

/* Store values from `first` on without a pause until `count` of them are RESIDENT; return the
 * seconds that so many took. What was under way then is waited for afterwards: the last of a
 * stream would wait for nothing but the time after which a sync is due. */
static double
store_stream(struct bench *bench, uint64_t size, uint64_t first, uint64_t count)
{
    uint64_t begun_ns = yb_measure_now_ns();
    uint64_t ahead = AHEAD_BYTES / size < OPS - 1 ? AHEAD_BYTES / size : OPS - 1;
    uint64_t next = first;
    double seconds;
    uint64_t done;

    while ((done = next - first - bench->under_way) < count && bench->log.status == YB_OK) {
        if (bench->under_way < ahead) {
            store_one(bench, size, next++);
        } else {
            yb_loop_turn(bench->log.loop, YB_BENCH_TIER_TURN_NS);
        }
    }
    seconds = seconds_since(begun_ns) * (double)count / (double)done;
    wait_all(bench);
    return seconds;
}

static double
load_some(struct bench *bench, uint64_t size, uint64_t stored, uint32_t depth, uint64_t count)
{
    uint64_t begun_ns = yb_measure_now_ns();
    uint64_t random = begun_ns;

    for (uint64_t i = 0; i < count && bench->log.status == YB_OK; i++) {
        struct op *op = take_op(bench, depth);

        random = random * 6364136223846793005ull + 1442695040888963407ull;
        op->iov = (struct iovec){place_of(bench, i, size), size};
        op->any.load = (struct yb_tier_load){
            .op = {.done = op_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_FIRST_TOKEN},
            .hash = hash_of((random >> 20) % stored),
            .length = size,
            .iov = &op->iov,
            .iov_count = 1};
        if (yb_tier_load(bench->log.tier, &op->any.load) != YB_OK) {
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

static uint64_t
slice_of(uint64_t count, uint32_t slice)
{
    return count * slice / SLICES;
}

static double
slice_loaded(struct bench *bench, const struct row *row, uint32_t slice)
{
    uint64_t count = bench->bytes / row->size;

    return load_some(bench, row->size, count, row->depth,
                     slice_of(count, slice + 1) - slice_of(count, slice));
}

static double
slice_read(struct bench *bench, const struct row *row, uint32_t slice)
{
    uint64_t count = bench->bytes / row->size;

    return yb_bench_disk_read(&bench->disk, row->size, row->depth,
                              slice_of(count, slice + 1) - slice_of(count, slice), false);
}

/* The two sides take turns, slice by slice, so that what else goes on meets both. */
static bool
measure_read(struct bench *bench, struct row *row, uint64_t round)
{
    double seconds[2] = {0, 0};

    for (uint32_t turn = 0; turn < 2 * SLICES; turn++) {
        bool ours = (turn + turn / 2 + round) % 2 == 0;
        double took = (ours ? slice_loaded : slice_read)(bench, row, turn / 2);

        if (took <= 0 || bench->log.status != YB_OK) {
            return false;
        }
        seconds[ours] += took;
    }
    row->ours[round] = rate(seconds[true], bench->bytes);
    row->bare[round] = rate(seconds[false], bench->bytes);
    return true;
}

/* The same of what is written, each in one go. `stored` values are in the log already. */
static bool
measure_stream(struct bench *bench, struct row *row, uint64_t round, uint64_t stored)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        if ((turn + round) % 2 == 0) {
            row->ours[round] = rate(
                store_stream(bench, row->size, stored, bench->bytes / row->size), bench->bytes);
        } else {
            row->bare[round] =
                rate(yb_bench_disk_write(&bench->disk, bench->bytes, MIB, row->depth, SYNC_BYTES),
                     bench->bytes);
        }
    }
    return row->bare[round] > 0 && bench->log.status == YB_OK;
}

/* Both write into room that was never written: later the file system has less to do. */
static bool
measure_write(struct bench *bench, struct row *row, uint64_t round)
{
    uint64_t bytes = bench->bytes + AHEAD_BYTES;
    struct yb_tier_info info;

    if (!yb_bench_disk_renew(&bench->disk, bench->directory) ||
        !tier_open_for(bench, bytes, bytes / row->size) || !measure_stream(bench, row, round, 0)) {
        return false;
    }
    yb_tier_info(bench->log.tier, &info);
    if (row->size == 4 * KIB) {
        bench->gathered = (double)info.blocks / (double)info.writes;
    }
    return true;
}

/* Write as much again as there is room for, into a log that is full. */
static bool
measure_rewrite(struct bench *bench, struct row *row, uint64_t round)
{
    uint64_t segment = bench->bytes / (YB_SSD_SEGMENTS_MIN - 1) / YB_SSD_BLOCK_BYTES;
    uint64_t segments, stored;
    struct yb_tier_info before;
    struct yb_tier_info after;

    segment *= YB_SSD_BLOCK_BYTES;
    segment = segment < SEGMENT_BYTES ? segment : SEGMENT_BYTES;
    segments = bench->bytes / segment + 1;
    stored = segments * segment / row->size;
    if (!tier_open(bench, segment, segments, stored)) {
        return false;
    }
    store_all(bench, row->size, stored);
    yb_tier_info(bench->log.tier, &before);
    if (!measure_stream(bench, row, round, stored)) {
        return false;
    }
    yb_tier_info(bench->log.tier, &after);
    if (after.reclaims == before.reclaims) {
        fprintf(stderr, "yuebing bench ssd: the log was full, and nothing of it was reclaimed\n");
        return false;
    }
    bench->amplified = (double)(after.written_bytes - before.written_bytes) /
                       (double)(after.stored_bytes - before.stored_bytes);
    return true;
}

/* What recovery must read, at the least: the heads of all records, as they lie. */
static bool
measure_recovery(struct bench *bench, struct row *row)
{
    struct yb_tier_info before;
    struct yb_tier_info after;
    uint64_t begun_ns;

    if (!tier_open_for(bench, bench->records * 256, bench->records)) {
        return false;
    }
    store_all(bench, SMALL_BYTES, bench->records);
    yb_tier_info(bench->log.tier, &before);
    yb_bench_tier_close(&bench->log);
    begun_ns = yb_measure_now_ns();
    if (!tier_open_for(bench, bench->records * 256, bench->records)) {
        return false;
    }
    bench->recovery_s = seconds_since(begun_ns);
    yb_tier_info(bench->log.tier, &after);
    if (after.blocks != before.blocks || before.blocks != bench->records) {
        fprintf(stderr, "yuebing bench ssd: %llu of %llu records are back\n",
                (unsigned long long)after.blocks, (unsigned long long)bench->records);
        return false;
    }
    row->ours[0] = rate(bench->recovery_s, after.read_bytes);
    row->bare[0] = rate(yb_bench_disk_read(&bench->disk, MIB, 16, after.read_bytes / MIB + 1, true),
                        after.read_bytes);
    return true;
}

static bool
measure_round(struct bench *bench, uint64_t round)
{
    struct row *rows = bench->rows;
    bool ok;

    bench->unsynced[round] =
        rate(yb_bench_disk_write(&bench->disk, bench->bytes, MIB, 16, 0), bench->bytes);
    ok = measure_write(bench, &rows[ROW_WRITE_1M], round) &&
         measure_read(bench, &rows[ROW_READ_1M], round);
    log_remove(bench);
    ok = ok && measure_write(bench, &rows[ROW_WRITE_64K], round) &&
         measure_read(bench, &rows[ROW_READ_64K], round);
    log_remove(bench);
    ok = ok && measure_write(bench, &rows[ROW_WRITE_4K], round);
    log_remove(bench);
    ok = ok && measure_rewrite(bench, &rows[ROW_REWRITE_1M], round);
    log_remove(bench);
    return ok;
}

/* ---- results ------------------------------------------------------------------------------- */

/* A recovery is measured once: to store what is recovered takes longer than all the rest. */
static uint64_t
rounds_of(const struct bench *bench, const struct row *row)
{
    return row == &bench->rows[ROW_RECOVERY_SMALL] ? 1 : bench->rounds;
}

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
        double ratio = median_ratio(row, rounds_of(bench, row));

        json_array_append_new(
            array,
            json_pack("{s:s, s:I, s:f, s:f, s:f}", "op", row->op, "size", (json_int_t)row->size,
                      "gbps", yb_bench_median(row->ours, rounds_of(bench, row)), "ceiling_gbps",
                      yb_bench_median(row->bare, rounds_of(bench, row)), "ratio", ratio));
    }
    return yb_output_json(bench->cli->out,
                          json_pack("{s:s, s:I, s:s, s:o, s:f, s:f, s:f, s:I, s:f}", "bench", "ssd",
                                    "rounds", (json_int_t)bench->rounds, "io", bench->device,
                                    "rows", array, "bare_write_without_sync_gbps",
                                    yb_bench_median(bench->unsynced, bench->rounds),
                                    "puts_for_one_write", bench->gathered, "write_amplification",
                                    bench->amplified, "recovered_records",
                                    (json_int_t)bench->records, "recovery_s", bench->recovery_s)) ==
                   YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

static bool
add_row(struct yb_output_table *table, struct bench *bench, struct row *row)
{
    char cells[4][32];
    const char *list[5] = {row->op, cells[0], cells[1], cells[2], cells[3]};
    double ratio = median_ratio(row, rounds_of(bench, row));

    (void)snprintf(cells[0], sizeof cells[0], "%llu", (unsigned long long)row->size);
    (void)snprintf(cells[1], sizeof cells[1], "%.2f",
                   yb_bench_median(row->ours, rounds_of(bench, row)));
    (void)snprintf(cells[2], sizeof cells[2], "%.2f",
                   yb_bench_median(row->bare, rounds_of(bench, row)));
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
        fprintf(
            out,
            "medians of %llu interleaved rounds over %s; the bare disk syncs as the log does, "
            "and writes %.2f GB/s without\n"
            "4 KiB values: %.0f puts for one write; a full log writes %.3f bytes for one that is "
            "stored; %llu records recovered in %.2f s\n",
            (unsigned long long)bench->rounds, bench->device,
            yb_bench_median(bench->unsynced, bench->rounds), bench->gathered, bench->amplified,
            (unsigned long long)bench->records, bench->recovery_s);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

/* ---- the run ------------------------------------------------------------------------------- */

static bool
prepare(struct bench *bench)
{
    static const struct row rows[ROWS] = {
        [ROW_WRITE_1M] = {.op = "write", .size = MIB, .depth = 16},
        [ROW_WRITE_64K] = {.op = "write", .size = 64 * KIB, .depth = 16},
        [ROW_WRITE_4K] = {.op = "write", .size = 4 * KIB, .depth = 16},
        [ROW_READ_64K] = {.op = "read", .size = 64 * KIB, .depth = 32},
        [ROW_READ_1M] = {.op = "read", .size = MIB, .depth = 16},
        [ROW_REWRITE_1M] = {.op = "rewrite", .size = MIB, .depth = 16},
        [ROW_RECOVERY_SMALL] = {.op = "recovery", .size = SMALL_BYTES},
    };

    memcpy(bench->rows, rows, sizeof rows);
    bench->ops = calloc(OPS, sizeof *bench->ops);
    if (bench->ops == NULL) {
        fprintf(stderr, "yuebing bench ssd: no memory\n");
        return false;
    }
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
    bool ok = yb_bench_disk_open(bench->directory, bench->bytes, bench->bytes + AHEAD_BYTES,
                                 &bench->disk);

    yb_output_progress_begin(&progress, bench->cli->err, bench->cli->terminal, yb_clock_system(),
                             "measuring", bench->rounds);
    for (uint64_t round = 0; ok && round < bench->rounds; round++) {
        ok = measure_round(bench, round);
        yb_output_progress_update(&progress, round + 1);
    }
    yb_output_progress_end(&progress);
    ok = ok && measure_recovery(bench, &bench->rows[ROW_RECOVERY_SMALL]);
    log_remove(bench);
    yb_bench_disk_close(&bench->disk, bench->directory);
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
    bench->records = 4000000;
    bench->log = (struct yb_bench_tier){.name = "ssd", .err = cli->err};
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
    yb_bench_tier_fini(&bench->log);
    free(bench->ops);
    free(bench);
    return result;
}
