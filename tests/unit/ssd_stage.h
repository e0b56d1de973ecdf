/* SPDX-License-Identifier: Apache-2.0
 *
 * ssd_stage.h -- an SSD log on a medium in memory, in a time of the test's own, behind a device
 * that remembers, fails and holds back as it is told.
 *
 * The device keeps apart what a loss of power may take: `durable` is the medium as the syncs left
 * it, and every write after that is kept until a sync covers it.
 */
#ifndef YB_TESTS_SSD_STAGE_H
#define YB_TESTS_SSD_STAGE_H

#include "unit.h"

#include "tier/ssd/ssd.h"

#define STAGE_IMAGE_BYTES (8u << 20)
#define STAGE_SEGMENT     (256u << 10)
#define STAGE_WRITES      4096u
#define STAGE_FOUND       4096u

/* A write that no sync covers yet. */
struct stage_write {
    uint64_t offset;
    uint64_t length;
    uint8_t *bytes;
    struct yb_ssd_io *io; /* Not NULL: it is not done. */
};

struct stage_device {
    struct yb_ssd_device base; /* First. */
    struct yb_ssd_device *inner;
    struct yb_ssd_memory *memory;
    uint8_t *durable; /* NULL: nothing is recorded. */
    struct stage_write writes[STAGE_WRITES];
    uint32_t write_count;
    uint32_t sync_covers; /* So many of them were done when the sync began. */
    struct yb_ssd_io *held[YB_SSD_IO_MAX];
    uint32_t held_count;
    bool holds;          /* Operations wait for stage_release(). */
    int fail_next_write; /* errno, once. */
    int fail_next_sync;
    int fail_next_read;
    bool fails;       /* Not the next one alone, but all that follow. */
    int fail_reserve; /* Every one. */
    bool short_transfers;
    uint64_t random;
};

struct stage_event {
    struct yb_id hash;
    uint64_t grant;
    enum yb_status why;
};

struct stage {
    struct yb_clock clock; /* First: its functions find the stage by it. */
    uint64_t now_ns;
    uint64_t turn_ns; /* So long a turn waits at most for a medium that is no memory. */
    struct yb_loop *loop;
    struct yb_ssd_memory *memory;
    struct stage_device *device;
    struct yb_tier *tier;
    struct yb_ssd_options options;
    struct stage_event found[STAGE_FOUND];
    uint32_t found_count;
    struct stage_event lost[STAGE_FOUND];
    uint32_t lost_count;
    bool (*wants)(struct stage *stage, const struct yb_tier_record *record); /* NULL: everything. */
    void (*on_lost)(struct stage *stage, struct yb_id hash, uint64_t grant);
    bool (*on_leaving)(struct stage *stage, struct yb_id hash, uint64_t grant);
    bool (*is_held)(struct stage *stage, struct yb_id hash, uint64_t grant);
    void *owner;
    bool recovered;
    enum yb_status recovered_status;
    enum yb_status aside;
    char why[YB_SSD_WHY_BYTES];
};

/* Make a stage with an empty medium; the options are those of small logs and may be changed. */
void stage_init(struct stage *stage);
void stage_fini(struct stage *stage);

/* Start a log on the medium as it is, and run until it is recovered. `record`: for a cut. */
void stage_open(struct stage *stage, bool record);
void stage_start(struct stage *stage, bool record);

/* Stop and destroy it; or only drop it, as a process that is killed does. */
void stage_close(struct stage *stage);

/* One turn, a millisecond later. */
void stage_turn(struct stage *stage);
void stage_turns(struct stage *stage, uint32_t count);

/* Let some of what is held go to the medium, or all. */
void stage_release(struct stage *stage, bool all);
void stage_release_first(struct stage *stage);

/* Run one operation to its end. */
enum yb_status stage_store(struct stage *stage, struct yb_tier_store *store);
enum yb_status stage_load(struct stage *stage, struct yb_tier_load *load);
enum yb_status stage_kill(struct stage *stage, struct yb_id hash, uint64_t grant);
enum yb_status stage_flush(struct stage *stage, const char *tenant, uint64_t flush);

/* Store `size` bytes of a pattern that (key, grant) makes, or compare with it. */
struct yb_id stage_hash(uint32_t key);
void stage_pattern(uint32_t key, uint64_t grant, uint8_t *bytes, uint64_t size);
enum yb_status stage_put(struct stage *stage, uint32_t key, uint64_t grant, uint64_t size);

/* Store 8000 bytes that must not be lost, with the grant 1000 + key. */
enum yb_status stage_put_pinned(struct stage *stage, uint32_t key);

/* Load the highest grant (0) or that one whole and compare; the status of the load. */
enum yb_status stage_get(struct stage *stage, uint32_t key, uint64_t grant, uint64_t *grant_out);

/* What a power cut may leave. */
enum stage_cut { STAGE_CUT_NOTHING, STAGE_CUT_ALL, STAGE_CUT_SOME, STAGE_CUT_TORN, STAGE_CUTS };
void stage_cut(const struct stage *stage, enum stage_cut cut, uint64_t *random,
               struct yb_ssd_memory *image);

#endif /* YB_TESTS_SSD_STAGE_H */
