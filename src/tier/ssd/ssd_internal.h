/* SPDX-License-Identifier: Apache-2.0
 *
 * ssd_internal.h -- the state of the log, for the files of this folder.
 *
 *     ssd.c          the tier's face: lists of operations, their ends, deadlines
 *     ssd_io.c       whole transfers over a device that moves less; the grouped sync
 *     ssd_write.c    stores: staging, batches, and when they are durable
 *     ssd_segment.c  lives of segments: open, seal, free
 *     ssd_load.c     loads
 *     ssd_kill.c     kills, flush epochs, the superblock
 *     ssd_reclaim.c  reclaim
 *     ssd_recover.c  what a restart reads; ssd_scan.c: segments without a footer
 *     ssd_back.c     opening the medium, and how the tier comes back after it failed
 *
 * Everything runs on the loop's thread. The public operations only queue: what they cause happens
 * in the tier's task, later in the turn.
 */
#ifndef YB_TIER_SSD_SSD_INTERNAL_H
#define YB_TIER_SSD_SSD_INTERNAL_H

#include "base/fair.h"
#include "tier/fill.h"
#include "tier/ssd/format.h"
#include "tier/ssd/index.h"
#include "tier/ssd/ssd.h"

#define YB_SSD_MAGIC       0x79737364u
#define YB_SSD_SEGMENT_NO  UINT32_MAX
#define YB_SSD_KILL_PAGES  64u /* Of one round. */
#define YB_SSD_TENANT_HASH 8192u
#define YB_SSD_KILLED      4096u /* Kills that are remembered for stores that come late (T2). */

/* States of an operation. */
enum yb_ssd_op_state {
    YB_SSD_OP_NONE,
    YB_SSD_OP_WAITING, /* In a list. */
    YB_SSD_OP_STAGING, /* A store that is being copied. */
    YB_SSD_OP_STORING, /* A store that waits for its sync; `slot` is a struct yb_ssd_stored. */
    YB_SSD_OP_LOADING, /* `slot` is a struct yb_ssd_loading. */
    YB_SSD_OP_ENDED,   /* `slot` is its status. */
};

struct yb_ssd_ops_list {
    struct yb_tier_op *head;
    struct yb_tier_op *tail;
    uint32_t count;
};

/* A transfer that is done when all of it is done. */
struct yb_ssd_transfer {
    struct yb_ssd_io io; /* First. */
    struct yb_ssd *ssd;
    void (*then)(struct yb_ssd_transfer *transfer, int error);
    uint64_t left;
    bool busy;
};

enum yb_ssd_segment_state {
    YB_SSD_SEGMENT_UNREAD, /* Recovery has not been here yet. */
    YB_SSD_SEGMENT_FREE,
    YB_SSD_SEGMENT_OPENING,
    YB_SSD_SEGMENT_READY, /* Its life is durable, and nothing is in it. */
    YB_SSD_SEGMENT_OPEN,
    YB_SSD_SEGMENT_SEALING,
    YB_SSD_SEGMENT_SEALED,
    YB_SSD_SEGMENT_RECLAIMED, /* What is in it is being moved or lost. */
};

struct yb_ssd_segment {
    uint64_t life;
    uint64_t data_end; /* Where the next record begins. */
    uint64_t footer_offset;
    uint64_t live_units; /* Of entries that are not dead. */
    uint64_t pinned_units;
    uint32_t pages;
    uint32_t readers; /* Loads that read here: it is not opened anew meanwhile. */
    uint8_t state;
    bool reserved; /* The medium has room for it. */
    bool mapped;   /* Its kill map in memory may have bits. */
};

/* The footer of a segment that is open or being sealed. */
struct yb_ssd_footer {
    uint8_t *pages;
    uint32_t count; /* Pages begun. */
    uint32_t records;
    uint32_t segment; /* YB_SSD_SEGMENT_NO: free. */
};
#define YB_SSD_FOOTERS     3u /* Open, being sealed, and recovery's. */
#define YB_SSD_FOOTER_SCAN 2u

/* A batch that is gathered or written. */
struct yb_ssd_buffer {
    struct yb_ssd_transfer transfer; /* First. */
    uint8_t *bytes;
    uint64_t offset; /* On the medium. */
    uint64_t filled;
    uint64_t end; /* The stream's position behind it. */
    bool written;
};

/* A record that is staged, until it is durable. */
struct yb_ssd_stored {
    struct yb_ssd_stored *next;
    struct yb_tier_store *op; /* NULL: nobody waits. */
    struct yb_id hash;
    uint64_t grant;
    uint64_t unit;
    uint64_t end; /* Of the stream. */
};

/* The record that is being copied into batches. */
struct yb_ssd_staging {
    bool busy;
    bool abandoned;
    struct yb_tier_store *op; /* NULL: abandoned. */
    struct yb_ssd_entry entry;
    uint64_t done;
    uint64_t total;
    uint64_t head_bytes;
    uint32_t iov_index;
    uint64_t iov_offset;
    uint32_t sums[YB_SSD_CHUNKS_MAX];
    uint8_t head[YB_SSD_HEAD_BYTES_MAX];
};

/* A load, from the queue to its end. */
struct yb_ssd_loading {
    struct yb_fair_item item; /* First. */
    struct yb_ssd_loading *next;
    struct yb_tier_load *op; /* NULL: ended already. */
    struct yb_ssd_entry entry;
    struct yb_ssd_reader *reader; /* NULL: it waits in the queue. */
    uint64_t begun_ns;            /* When it began to be read, and ... */
    uint64_t begun;               /* ... its number; 0: others were being read then. */
};

/* Memory for one load that reads, and where it stands. */
struct yb_ssd_reader {
    struct yb_ssd_transfer transfer; /* First. */
    struct yb_ssd_reader *next;
    struct yb_ssd_loading *loading;
    uint8_t *bytes;
    uint64_t start; /* Where on the medium the bytes come from. */
    uint64_t length;
    uint64_t chunk;     /* The next to be checked and copied, ... */
    uint64_t chunk_end; /* ... and the one after the last. */
    uint64_t begun_ns;
    uint32_t iov_index;
    uint64_t iov_offset;
    uint32_t segment;
    bool headed;             /* The head was read. */
    struct yb_ssd_view view; /* Into `head`. */
    uint8_t head[YB_SSD_HEAD_BYTES_MAX];
};

struct yb_ssd_era {
    uint64_t flush;
    uint32_t tenant;
    uint32_t live;
    uint32_t next; /* Of the tenant; + 1. */
};

struct yb_ssd_killed {
    struct yb_id hash;
    uint64_t grant;
};

enum yb_ssd_step {
    YB_SSD_STEP_IDLE,
    YB_SSD_STEP_RESERVE,
    YB_SSD_STEP_WAIT_DATA,
    YB_SSD_STEP_WRITE,
    YB_SSD_STEP_SYNC,
};

struct yb_ssd_opener {
    struct yb_ssd_transfer transfer; /* First. */
    enum yb_ssd_step step;
    uint32_t segment;
    uint64_t sync;
    uint8_t *block;
};

struct yb_ssd_sealer {
    struct yb_ssd_transfer pages; /* First. */
    struct yb_ssd_transfer trailer;
    enum yb_ssd_step step;
    struct yb_ssd_footer *footer;
    uint64_t end; /* Of its data in the stream. */
    uint64_t sync;
    uint32_t waiting;
    uint8_t *block;
};

enum yb_ssd_pass {
    YB_SSD_PASS_MOVE, /* Pinned and hot blocks are appended anew. */
    YB_SSD_PASS_HIDE, /* The rest is found by nobody. */
    YB_SSD_PASS_LOSE, /* The header says FREE: entries go, and their owner is told. */
};

enum yb_ssd_reclaim_step {
    YB_SSD_RECLAIM_IDLE,
    YB_SSD_RECLAIM_PAGE,    /* Reads a page of the footer. */
    YB_SSD_RECLAIM_WALK,    /* Looks at its heads. */
    YB_SSD_RECLAIM_LOAD,    /* Reads a block that moves ... */
    YB_SSD_RECLAIM_STORE,   /* ... until it is staged. */
    YB_SSD_RECLAIM_DURABLE, /* Waits until all that moved is durable, ... */
    YB_SSD_RECLAIM_LINGER,  /* ... and until the room is needed, for who reads what will be lost. */
    YB_SSD_RECLAIM_FREE,    /* Writes the header ... */
    YB_SSD_RECLAIM_SYNC,    /* ... until that is durable. */
    YB_SSD_RECLAIM_SWEEP,   /* Asks the index for what a torn footer does not name. */
};

struct yb_ssd_reclaim {
    struct yb_ssd_transfer transfer; /* First. */
    enum yb_ssd_reclaim_step step;
    enum yb_ssd_pass pass;
    bool torn;   /* The footer does not name everything. */
    bool wanted; /* Somebody reads what will be lost. */
    uint32_t segment;
    uint32_t page;
    uint32_t offset; /* In the page. */
    uint32_t sweep;
    uint64_t unit;      /* Of the record that moves. */
    uint64_t moved_end; /* Of the stream. */
    uint64_t budget;    /* Bytes that may still move because they are hot. */
    uint64_t sync;
    uint8_t *block;
    uint8_t *page_bytes;
    uint8_t *value;
    struct yb_tier_load load;
    struct yb_tier_store store;
    struct iovec iov;
    uint32_t sums[YB_SSD_CHUNKS_MAX];
};

enum yb_ssd_recover_step {
    YB_SSD_RECOVER_SUPER,
    YB_SSD_RECOVER_FORMAT,
    YB_SSD_RECOVER_HEADERS,
    YB_SSD_RECOVER_MAP,    /* Kill map and trailer of a segment. */
    YB_SSD_RECOVER_FOOTER, /* Its pages. */
    YB_SSD_RECOVER_SCAN,   /* Its records, for want of a footer. */
    YB_SSD_RECOVER_SEAL,
    YB_SSD_RECOVER_DONE,
};

struct yb_ssd_recover {
    struct yb_ssd_transfer transfer; /* First. */
    struct yb_ssd_transfer second;
    enum yb_ssd_recover_step step;
    uint32_t waiting;
    int error;
    uint32_t at; /* The place in the order, or the header that is read. */
    uint32_t count;
    uint32_t *order; /* Segments with records, the youngest first. */
    uint32_t page;   /* Of the footer: the first of the bytes ... */
    uint32_t page_count;
    uint32_t page_at; /* ... and the one that is looked at. */
    uint32_t offset;
    uint64_t sync;
    uint64_t position; /* Of the scan, in the segment. */
    uint64_t window;   /* Where its bytes begin there ... */
    uint64_t window_bytes;
    uint64_t data_end;
    uint64_t chunk; /* Of a record larger than a window. */
    bool in_value;
    bool torn;
    struct yb_ssd_view view;
    uint8_t head[YB_SSD_HEAD_BYTES_MAX];
    uint8_t *bytes;
    uint8_t *block;
};

/* The way back, after the medium could not be opened or did not take what was written. */
struct yb_ssd_back {
    struct yb_ssd_transfer transfer; /* First: of the trial. */
    struct yb_timer timer;           /* The next try ... */
    uint64_t pause_ns;               /* ... after this. */
    uint64_t since_ns;               /* It works since then. */
    uint8_t *block;
    bool again; /* All is to be read again, once nothing is under way. */
};

struct yb_ssd {
    struct yb_tier base; /* First. */
    uint32_t magic;
    struct yb_ssd_options options;
    char *strings; /* The options'. */
    struct yb_loop *loop;
    struct yb_ssd_device *device; /* NULL: none could be opened. */
    struct yb_task task;
    struct yb_ssd_back back;
    struct yb_timer deadline_timer;
    uint64_t deadline_ns; /* For which it is armed. */
    uint32_t under_way;   /* Transfers. */
    bool stopping;
    bool told_recovered;
    enum yb_status aside;
    bool tell_aside;
    char why[YB_SSD_WHY_BYTES];
    struct yb_tier_info info; /* Counters. */
    uint32_t read_errors;

    /* ---- from here on: of the medium, and forgotten with it (ssd_back.c) ---- */
    uint8_t *memory; /* Staging, registered with the device. */
    size_t memory_bytes;
    struct yb_ssd_index *index;
    struct yb_ssd_segment *segments; /* NULL until the superblock was read. */
    uint32_t segment_count;
    uint64_t segment_bytes;
    uint64_t life_count;
    uint8_t *maps;
    uint64_t map_bytes; /* Of one segment. */
    uint8_t *map_dirty; /* By block of all maps. */
    bool no_growth;

    struct yb_ssd_ops_list ended;
    struct yb_ssd_ops_list stores; /* Waiting to be staged. */
    struct yb_ssd_staging staging;
    struct yb_ssd_buffer *buffers;
    uint32_t buffer_first; /* The oldest that is written. */
    uint32_t buffer_count; /* Those that are written. */
    bool filling;          /* Whether the next after them is being filled. */
    struct yb_ssd_stored *stored_slots;
    struct yb_ssd_stored *stored_free;
    struct yb_ssd_stored *stored_head; /* In the order of `end`. */
    struct yb_ssd_stored **stored_tail;
    uint32_t stored_count;
    uint64_t staged_end;  /* Of the stream. */
    uint64_t written_end; /* Everything before it is on the medium. */
    uint64_t durable_end; /* Everything before it is there to stay. */
    uint64_t want_end;    /* A sync is wanted once so much is written. */
    struct yb_timer sync_timer;
    bool sync_armed;
    double budget; /* Bytes that may be written now. */
    uint64_t budget_ns;

    struct yb_ssd_transfer sync;
    uint64_t sync_started; /* The number of the last that was started, and ... */
    uint64_t sync_done;    /* ... the last that is done. */
    uint64_t sync_wanted;
    uint64_t sync_target;

    uint32_t current; /* Segment, or YB_SSD_SEGMENT_NO. */
    uint32_t next_segment;
    struct yb_ssd_footer footers[YB_SSD_FOOTERS];
    struct yb_ssd_footer *footer; /* Of `current`. */
    struct yb_ssd_opener opener;
    struct yb_ssd_sealer sealer;
    struct yb_ssd_reclaim reclaim;

    struct yb_fair queue;
    struct yb_ssd_loading *loading_slots;
    struct yb_ssd_loading *loading_free;
    struct yb_ssd_reader *readers;
    struct yb_ssd_reader *reader_free;
    uint32_t loads;        /* With an operation. */
    uint64_t load_backlog; /* Bytes being read. */
    uint64_t loads_begun;
    struct yb_tier_fill fill;
    uint64_t urgent_ns;  /* When a load of the most urgent class came last; 0: never. */
    uint64_t rate_bytes; /* Read, and ... */
    uint64_t rate_ns;    /* ... the time that took, for the forecast. */
    uint64_t last_read_ns;

    struct yb_ssd_ops_list kills;  /* Wait for a round. */
    struct yb_ssd_ops_list parked; /* Wait for the end of the recovery. */
    struct yb_ssd_ops_list round;  /* Of the round that is written. */
    struct yb_ssd_transfer kill_io[YB_SSD_KILL_PAGES];
    uint64_t *dirty; /* Blocks of the maps that a round must write. */
    uint32_t dirty_count;
    uint32_t round_writes;
    bool round_busy;
    bool round_written;
    uint64_t round_sync;
    struct yb_ssd_killed *killed;

    struct yb_ssd_super *super; /* With its rows. */
    uint8_t *super_out;         /* What is being written. */
    struct yb_ssd_transfer super_io;
    struct yb_ssd_ops_list flushes; /* Wait for the superblock. */
    struct yb_ssd_ops_list flushing;
    bool super_busy;
    bool super_written;
    uint64_t super_sync;
    struct yb_ssd_era *eras;
    uint32_t era_count;
    uint32_t era_free;     /* + 1 */
    uint32_t *tenant_era;  /* By tenant: its first, + 1. */
    uint16_t *tenant_hash; /* + 1 */
    uint32_t sweep_at;
    bool sweeping;
    bool sweep_again;

    struct yb_ssd_recover recover;
};

/* ---- ssd.c ---- */
struct yb_ssd *yb_ssd_of(struct yb_tier *tier);
void yb_ssd_wake(struct yb_ssd *ssd);
void yb_ssd_list_add(struct yb_ssd_ops_list *list, struct yb_tier_op *op);
void yb_ssd_list_remove(struct yb_ssd_ops_list *list, struct yb_tier_op *op);
struct yb_tier_op *yb_ssd_list_take(struct yb_ssd_ops_list *list);

/* End an operation that is in no list any more: its `done` runs from the task. */
void yb_ssd_end(struct yb_ssd *ssd, struct yb_tier_op *op, enum yb_status status);
void yb_ssd_end_all(struct yb_ssd *ssd, struct yb_ssd_ops_list *list, enum yb_status status);
void yb_ssd_watch_deadline(struct yb_ssd *ssd, uint64_t deadline_ns);

/* Take nothing more to the medium: the first reason counts. */
__attribute__((format(printf, 3, 4))) void
yb_ssd_step_aside(struct yb_ssd *ssd, enum yb_status status, const char *format, ...);
void yb_ssd_failed(struct yb_ssd *ssd, const char *what, int error);

/* Whether no operation and no transfer is under way. */
bool yb_ssd_is_quiet(const struct yb_ssd *ssd);

/* A RESIDENT entry goes: out of the accounts and, if `hide`, hidden, else out of the index. */
void yb_ssd_forget(struct yb_ssd *ssd, uint32_t number, bool hide);
void yb_ssd_account(struct yb_ssd *ssd, const struct yb_ssd_entry *entry, int sign);
bool yb_ssd_is_dead(const struct yb_ssd *ssd, const struct yb_ssd_entry *entry);
uint32_t yb_ssd_segment_of(const struct yb_ssd *ssd, uint64_t unit);
uint64_t yb_ssd_segment_unit(const struct yb_ssd *ssd, uint32_t segment);
uint8_t *yb_ssd_map_of(struct yb_ssd *ssd, uint32_t segment);
uint32_t yb_ssd_entry_units(const struct yb_ssd_entry *entry);

/* Return the entry of (hash, grant) at the unit; YB_SSD_INDEX_NONE. */
uint32_t yb_ssd_entry_at(const struct yb_ssd *ssd, struct yb_id hash, uint64_t grant,
                         uint64_t unit);

/* Return the RESIDENT entry of a hash with the highest grant. */
uint32_t yb_ssd_best(const struct yb_ssd *ssd, struct yb_id hash);

/* ---- ssd_setup.c ---- */
enum yb_status yb_ssd_memory_init(struct yb_ssd *ssd);
enum yb_status yb_ssd_segments_init(struct yb_ssd *ssd);
void yb_ssd_memory_fini(struct yb_ssd *ssd);

/* ---- ssd_io.c ---- */
void yb_ssd_transfer_start(struct yb_ssd *ssd, struct yb_ssd_transfer *transfer,
                           enum yb_ssd_io_kind kind, uint64_t offset, uint8_t *bytes,
                           uint64_t length);

/* Ask for a sync that begins after this call; return its number for sync_done. */
uint64_t yb_ssd_sync_request(struct yb_ssd *ssd);

/* ---- ssd_write.c ---- */
void yb_ssd_write_pump(struct yb_ssd *ssd);
void yb_ssd_write_synced(struct yb_ssd *ssd);
void yb_ssd_write_stopping(struct yb_ssd *ssd);
void yb_ssd_write_aside(struct yb_ssd *ssd);
/* No segment can be reclaimed: stores for which there is no room end NO_SPACE. */
void yb_ssd_write_full(struct yb_ssd *ssd);
bool yb_ssd_write_idle(const struct yb_ssd *ssd);
enum yb_status yb_ssd_store(struct yb_tier *tier, struct yb_tier_store *store);
void yb_ssd_store_end_early(struct yb_ssd *ssd, struct yb_tier_store *store, enum yb_status status);
void yb_ssd_sync_timer(struct yb_timer *timer);

/* Write what is gathered; the sync follows. */
void yb_ssd_write_flush(struct yb_ssd *ssd);

/* ---- ssd_segment.c ---- */
void yb_ssd_segments_pump(struct yb_ssd *ssd);
void yb_ssd_segments_synced(struct yb_ssd *ssd);

/* Whether the open segment has room for a record; room_total: all that stores may use. */
bool yb_ssd_segment_fits(const struct yb_ssd *ssd, const struct yb_tier_record *record);
uint64_t yb_ssd_room_total(const struct yb_ssd *ssd);

/* Whether stores could fill one whole segment more without reclaim. */
bool yb_ssd_spare_segment(const struct yb_ssd *ssd);

/* Close the open segment and go on in the next. False: not yet. */
bool yb_ssd_segment_switch(struct yb_ssd *ssd);
uint32_t yb_ssd_free_segments(const struct yb_ssd *ssd);
void yb_ssd_header_block(struct yb_ssd *ssd, uint32_t segment, uint32_t state, uint8_t *block);
bool yb_ssd_footer_add(struct yb_ssd_footer *footer, const struct yb_tier_record *record,
                       uint64_t life, uint32_t unit, uint64_t bytes_max);

/* Write the footer of a segment whose data is durable. */
void yb_ssd_seal(struct yb_ssd *ssd, struct yb_ssd_footer *footer, uint64_t end);

/* ---- ssd_load.c ---- */
enum yb_status yb_ssd_load(struct yb_tier *tier, struct yb_tier_load *load);
enum yb_status yb_ssd_load_entry(struct yb_ssd *ssd, struct yb_tier_load *load,
                                 const struct yb_ssd_entry *entry);
void yb_ssd_load_pump(struct yb_ssd *ssd);
void yb_ssd_load_end_early(struct yb_ssd *ssd, struct yb_tier_load *load, enum yb_status status);
void yb_ssd_load_urge(struct yb_ssd *ssd, struct yb_tier_load *load, enum yb_class traffic_class,
                      uint64_t deadline_ns);
bool yb_ssd_load_idle(const struct yb_ssd *ssd);

/* ---- ssd_kill.c ---- */
enum yb_status yb_ssd_kill(struct yb_tier *tier, struct yb_tier_kill *kill);
enum yb_status yb_ssd_flush(struct yb_tier *tier, struct yb_tier_flush *flush);
void yb_ssd_kill_pump(struct yb_ssd *ssd);
void yb_ssd_kill_synced(struct yb_ssd *ssd);
void yb_ssd_kill_recovered(struct yb_ssd *ssd);
bool yb_ssd_kill_idle(const struct yb_ssd *ssd);
bool yb_ssd_was_killed(const struct yb_ssd *ssd, struct yb_id hash, uint64_t grant);
bool yb_ssd_kill_parked(const struct yb_ssd *ssd, struct yb_id hash, uint64_t grant);
void yb_ssd_super_write(struct yb_ssd *ssd);

/* The number of a tenant, and of its blocks of a flush epoch; it is made if it is new. False: too
 * many. */
bool yb_ssd_tenant(struct yb_ssd *ssd, const char *name, uint32_t *tenant_out);
bool yb_ssd_era(struct yb_ssd *ssd, const char *name, uint64_t flush, uint32_t *era_out);
/* The superblock was read: its rows, and the flushes that waited for it. */
void yb_ssd_super_read(struct yb_ssd *ssd);
void yb_ssd_sweep(struct yb_ssd *ssd);

/* ---- ssd_reclaim.c ---- */
void yb_ssd_reclaim_pump(struct yb_ssd *ssd);
void yb_ssd_reclaim_synced(struct yb_ssd *ssd);
bool yb_ssd_reclaim_idle(const struct yb_ssd *ssd);

/* The store of reclaim was staged; its end in the stream. */
void yb_ssd_reclaim_staged(struct yb_ssd *ssd, uint64_t end);

/* ---- ssd_back.c ---- */
void yb_ssd_back_init(struct yb_ssd *ssd);

/* Open the medium and read what is there, now; if that fails the tier is aside, and tries again. */
void yb_ssd_back_open(struct yb_ssd *ssd);

/* The tier has stepped aside for what may pass: try later whether it has. */
void yb_ssd_back_later(struct yb_ssd *ssd);
void yb_ssd_back_pump(struct yb_ssd *ssd);

/* ---- ssd_recover.c, ssd_scan.c ---- */
void yb_ssd_recover_start(struct yb_ssd *ssd);
void yb_ssd_recover_pump(struct yb_ssd *ssd);
void yb_ssd_recover_synced(struct yb_ssd *ssd);

/* Take in a record that lies in a segment. */
void yb_ssd_recover_record(struct yb_ssd *ssd, uint32_t segment, const struct yb_ssd_view *view);
void yb_ssd_scan_begin(struct yb_ssd *ssd);
void yb_ssd_scan_read(struct yb_ssd *ssd);
void yb_ssd_scan_step(struct yb_ssd *ssd);
void yb_ssd_recover_next(struct yb_ssd *ssd);

#endif /* YB_TIER_SSD_SSD_INTERNAL_H */
