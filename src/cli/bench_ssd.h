/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ssd.h -- what the disk can do under the same rules as the log: io_uring past the page cache
 * into a file whose room was taken before, with registered memory, and a sync after every 64 MiB
 * that overlaps the writes. Values come from, or go to, one place of its memory after the other,
 * and so do the log's.
 */
#ifndef YB_CLI_BENCH_SSD_H
#define YB_CLI_BENCH_SSD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct yb_bench_disk {
    int fd;
    uint64_t bytes;  /* That are read ... */
    uint64_t room;   /* ... of those that may be written. */
    uint8_t *memory; /* More than the processor's caches hold. */
    size_t memory_bytes;
};

#define YB_BENCH_DISK_DEPTH_MAX 64u

/* Make the file and take its room, or make it anew. False, having said why on stderr. */
bool yb_bench_disk_open(const char *directory, uint64_t bytes, uint64_t room,
                        struct yb_bench_disk *disk_out);
bool yb_bench_disk_renew(struct yb_bench_disk *disk, const char *directory);
void yb_bench_disk_close(struct yb_bench_disk *disk, const char *directory);

/* Write in order, in writes of `size`, `depth` at a time; a sync begins whenever `sync_bytes` were
 * written (0: none). It goes on without a pause until `bytes` are there to stay (0: are written),
 * from the file's begin again if need be. Return the seconds that so many took; below 0: it
 * failed. */
double yb_bench_disk_write(const struct yb_bench_disk *disk, uint64_t bytes, uint64_t size,
                           uint32_t depth, uint64_t sync_bytes);

/* Read `count` times `size` bytes, at random or in order. */
double yb_bench_disk_read(const struct yb_bench_disk *disk, uint64_t size, uint32_t depth,
                          uint64_t count, bool in_order);

struct yb_cli;

/* Run a trace over a pool and a log in `directory`; return an exit status. */
int yb_bench_ssd_trace(struct yb_cli *cli, const char *path, const char *directory, const char *io);

#endif /* YB_CLI_BENCH_SSD_H */
