/* SPDX-License-Identifier: Apache-2.0
 *
 * object_internal.h -- what the files of the object tier share.
 *
 * An operation, or something the tier does of itself, is a work. A work asks the medium for one
 * thing after the other; while it does it has a flight, of which there are as many as requests may
 * be under way.
 *
 *     FREE -> QUEUED --------> FLYING -> (step) -> ENDED -> FREE
 *               ^  \             |           \        ^
 *               |   +-- deadline, cancel -----+-------+
 *               +---- WAITING <--+
 *                     (pause)
 *
 * `plan` fills in the request of the stage that the work is in; `step` judges the answer, and moves
 * to the next stage or ends the work.
 */
#ifndef YB_TIER_OBJECT_INTERNAL_H
#define YB_TIER_OBJECT_INTERNAL_H

#include "base/check.h"
#include "base/fair.h"
#include "tier/fill.h"
#include "tier/object/index.h"
#include "tier/object/name.h"
#include "tier/object/object.h"
#include "tier/object/record.h"

#define OBJECT_MAGIC     0x594f424au /* "YOBJ" */
#define EDGE_BYTES       ((size_t)YB_TIER_CHUNK_BYTES)
#define RECORD_BYTES_MAX ((size_t)20 * 1024)
#define LIST_ENTRIES     1000u
#define FOUND_ENTRIES    8u
#define GAP_BYTES_MAX    (1u << 20)
#define ATTEMPTS_MAX     5u
#define FAILURES_MAX     3u /* Works in a row: then the tier steps aside. */
#define OWN_WORKS        64u
#define OWN_DELETES_MAX  32u
#define PACKS_MAX        (1u << 17)
#define BUILDERS         4u
#define MEMBERS_MAX      64u
#define PACK_BLOCKS_MAX  8192u
#define PACK_RECORDS_MAX (2u << 20) /* Bytes of the records of one pack. */
#define PACK_FOOTER_MAX \
    (PACK_RECORDS_MAX + PACK_BLOCKS_MAX * YB_OBJECT_ENTRY_HEAD + YB_OBJECT_TRAILER_BYTES)
#define REWRITE_SOURCES 16u
#define MEMBER_RECORD   ((size_t)2048)
#define CHUNKS_MAX      (YB_OBJECT_BLOCK_MAX / YB_TIER_CHUNK_BYTES)
#define MERGED_IOV      512u
#define MERGED_GAP      (64u << 10)
#define MERGED_BYTES    (16u << 20)

#define HEDGES_MAX 4u

struct object_tier;
struct work;
struct builder;

enum work_state {
    WORK_FREE,
    WORK_IDLE,
    WORK_QUEUED,
    WORK_GATHERED,
    WORK_WAITING,
    WORK_FLYING,
    WORK_ENDED
};

enum work_stage {
    STAGE_PUT,
    STAGE_CHECK,      /* HEAD, after an answer that was lost. */
    STAGE_UNDO,       /* DELETE of what was killed meanwhile. */
    STAGE_PROBE,      /* LIST of a hash. */
    STAGE_WAS_KILLED, /* HEAD of the kill object of what a probe found. */
    STAGE_TAIL,       /* GET of a record alone. */
    STAGE_GET,
    STAGE_MARK,   /* PUT of a kill object or a flush marker. */
    STAGE_DELETE, /* Of the object ... */
    STAGE_UNMARK, /* ... and of its kill object. */
    STAGE_LIST_FLUSHES,
    STAGE_LIST_KILLS,
    STAGE_LIST_BLOCKS,
    STAGE_FOOTER, /* GET of what stands behind a pack. */
    STAGE_TRY,
};

enum race { RACE_ALONE, RACE_RACING, RACE_PARKED, RACE_WON, RACE_CLAIMED }; /* object_hedge.c */

/* One request that is under way, and the memory it needs. */
struct flight {
    struct yb_object_request request; /* First. */
    struct object_tier *tier;
    struct work *work; /* NULL: free. */
    struct flight *next;
    uint8_t *record;               /* RECORD_BYTES_MAX. */
    uint8_t *edges[2];             /* EDGE_BYTES each. */
    struct yb_object_entry *found; /* PROBE: a few. */
    struct yb_tier_record parsed;  /* By `after`: what the record says. */
    char tenant[72];
    uint64_t first;  /* Of a GET: of the value, from ... */
    uint64_t last;   /* ... to, in whole chunks; ... */
    uint64_t summed; /* ... so many bytes of that are in ... */
    uint32_t sum;    /* ... the sum of a chunk that has begun, ... */
    uint32_t *sums;  /* ... and in those of whole ones: CHUNKS_MAX. */
    enum yb_class traffic_class;
    uint64_t bytes;
    struct way *way; /* That its request's bytes go; NULL: it has none. */
    uint64_t way_bytes;
    uint64_t way_begun; /* Its number there; 0: it was not alone when it began. */
    uint64_t begun_ns;
    struct work *members[MEMBERS_MAX]; /* Loads of one pack that share the request. */
    enum yb_status verdicts[MEMBERS_MAX];
    uint32_t member_count; /* 0: it is its work's alone. */
    struct iovec merged[MERGED_IOV];
    struct yb_timer late; /* A load's: asks for it once more, ... */
    struct flight *hedge; /* ... which is this one; ... */
    enum race race;
    enum yb_status verdict;     /* ... what it ends with if that one fails, or said of its bytes. */
    struct yb_helper_job claim; /* Copies that one's bytes. */
    struct flight *hedged;      /* A second request's: whose; NULL: nobody waits for it. */
    uint8_t *staging;           /* Where that goes. */
};

/* From the service, or to it. */
struct way {
    uint64_t bytes; /* Under way, ... */
    uint64_t of_class[YB_CLASS_COUNT];
    uint64_t begun; /* Requests, ever. */
    struct yb_tier_fill fill;
};

/* A pack that is there. */
struct pack {
    uint64_t writer;
    uint64_t number;
    uint64_t bytes;
    uint64_t live;
    uint32_t space;
    uint32_t footer_bytes;
    uint32_t blocks; /* That are RESIDENT. */
    uint32_t loads;  /* That know of it, from their call to their end. */
    bool used;
    bool busy;           /* It is being deleted, or rewritten, or written. */
    bool stuck;          /* What a rewrite did not take does not go the next time. */
    bool twin;           /* It holds what another holds, or may: object_rewrite.c. */
    uint64_t until_ns;   /* In doubt: it is not deleted before. */
    struct work *queued; /* Loads that wait, oldest first ... */
    struct work *latest; /* ... and the last of them. */
};

struct work {
    struct yb_fair_item item; /* First. */
    struct object_tier *tier;
    struct work *next;
    const struct work_kind *kind;
    struct yb_tier_op *op; /* NULL: the tier's own. */
    struct yb_timer timer;
    struct flight *flight;
    uint64_t deadline_ns;
    uint64_t again_ns;
    uint32_t place;          /* Of its block. */
    uint32_t pack;           /* A load's; YB_OBJECT_NO_PACK: none. */
    struct builder *builder; /* A packed store's; that of a pack that is written. */
    struct work *sibling;    /* In a builder, or among those that wait for a pack. */
    struct work *elder;      /* Of the latter. */
    uint32_t at;             /* Of a packed store: where its image begins / 16. */
    uint64_t base;           /* A load's: where its image begins in the object ... */
    uint64_t record_bytes;   /* ... and how long the record is. */
    enum work_state state;
    enum work_stage stage;
    enum yb_status ends;
    enum yb_status verdict; /* Of a pack's PUT that has failed. */
    uint8_t attempts;
    bool cancelled;
    bool killed;                /* A store's: what it has put must go again. */
    bool sent;                  /* An answer was lost: it may have happened. */
    bool refly;                 /* Goes on with its flight. */
    bool deletes;               /* A kill's: there is an object of its own. */
    bool more;                  /* A listing goes on. */
    uint32_t page;              /* A sweep's: entries, ... */
    uint32_t swept;             /* ... and those that were looked at. */
    struct yb_object_name name; /* What a probe found; what a work of the tier's own is about. */
    void *cursor;
};

/* What a rewrite has gathered. */
struct gathered {
    uint32_t at;           /* In the footer of the pack that is read: what comes next. */
    uint32_t count;        /* Blocks, ... */
    uint64_t bytes;        /* ... their images, ... */
    uint32_t footer_bytes; /* ... and their entries. */
};

/* Half-dead packs that become one: object_rewrite.c. */
struct rewrite {
    struct work *work;    /* NULL: none is under way. */
    uint8_t *images;      /* pack_bytes, mapped. */
    uint8_t *footer;      /* PACK_FOOTER_MAX behind them. */
    uint64_t again_ns;    /* Not before, after a failure. */
    struct gathered is;   /* What is here ... */
    struct gathered will; /* ... once the request that is under way has ended well. */
    uint32_t to;
    uint32_t from[REWRITE_SOURCES];
    bool was_twin[REWRITE_SOURCES];
    uint32_t from_count;
};

struct work_kind {
    const char *name;
    void (*plan)(struct work *work, struct flight *flight);
    void (*step)(struct work *work, struct flight *flight, enum yb_status status);
    void (*failed)(struct work *work); /* Before it ends badly; NULL: nothing. */
    void (*over)(struct work *work);   /* When it has ended, however; NULL: nothing. */
};

struct object_tier {
    struct yb_tier head; /* First. */
    uint32_t magic;
    struct yb_object_options options; /* With the defaults. */
    struct yb_loop *loop;
    struct yb_object_backend *backend;
    struct yb_helper_pool *pool;
    struct yb_object_index *index;
    struct pack *packs; /* Mapped. */
    uint32_t packs_used;
    uint32_t empty_packs;
    uint32_t twins; /* While there are any, no kill object is removed. */
    struct rewrite rewrite;
    uint64_t next_pack;
    uint64_t writer;
    struct builder *builders;

    struct work *works;
    struct work *free_works;
    uint32_t own_works; /* Of the tier's own, under way. */
    struct flight *flights;
    struct flight *free_flights;
    void *memory; /* Of the flights. */
    size_t memory_bytes;
    struct yb_object_entry *entries;     /* LIST_ENTRIES, for the one listing at a time. */
    struct yb_fair fair[YB_CLASS_COUNT]; /* Earliest deadline first in each. */
    uint32_t flying[YB_CLASS_COUNT];
    uint32_t flying_max[YB_CLASS_COUNT];
    uint32_t flying_min[YB_CLASS_COUNT]; /* Kept for each. */
    uint32_t flights_free;
    uint64_t flying_bytes;
    struct way from, to;               /* Bytes to and from the service. */
    uint64_t asked_ns[YB_CLASS_COUNT]; /* When it was asked for bytes last; 0: never. */
    uint8_t *staging;                  /* Of second requests: RULES A3. */
    size_t staging_bytes;
    uint8_t *staging_free[HEDGES_MAX];
    uint32_t staging_count;
    uint32_t hedge_credit;
    struct work *ended;
    struct work **ended_tail;
    struct yb_task task;
    struct yb_timer timer; /* Once a second: what is gone is collected; whether it is back. */
    uint32_t busy;         /* Works that are not free. */
    uint64_t random;

    bool stopping;
    bool recovering;
    bool kills_known; /* Its listings of flushes and kills are complete. */
    bool begun;       /* Recovery's work is under way, or over. */
    uint32_t gone;    /* Blocks that are GONE. */
    uint32_t sweep_at;
    bool flushed; /* A listing for what is flushed is due, or under way. */
    bool sweeping;
    struct work *sweeper;
    uint32_t flush_left; /* Places that have still to be looked at for what was flushed. */
    enum yb_status recovery_status;
    uint32_t failures;
    enum yb_status aside;
    bool trying;
    char last_why[YB_OBJECT_WHY_BYTES];

    struct yb_tier_info info; /* Its counters. */
    struct yb_object_stats stats;
    struct yb_object_stats told; /* What the metrics know of them. */
    struct yb_stats_shard *shard;
    uint32_t stats_first;
    struct yb_histogram first_byte_us;
    struct yb_histogram transfer_us;
    uint64_t asked_us; /* Of all requests but GETs, the quickest answer; 0: none has come. */
    uint64_t base_us;  /* Averages, for the forecast; 0: nothing was read yet. */
    uint64_t rate;
    uint64_t load_bytes;
    uint64_t p95_ns; /* Until the first byte; 0: not known. */
    uint32_t since_p95;
};

static inline struct object_tier *
object_of(struct yb_tier *tier)
{
    struct object_tier *object = (struct object_tier *)tier;

    YB_ASSERT_OBJ(object, OBJECT_MAGIC);
    return object;
}

/* ---- works (work.c) ---- */

/* Take a work, IDLE. NULL: there is none. The tier's own have a few to themselves. */
struct work *yb_object_work_take(struct object_tier *object, const struct work_kind *kind,
                                 struct yb_tier_op *op);
void yb_object_work_queue(struct work *work, enum work_stage stage, uint64_t cost);
/* Take a work and queue it. */
struct work *yb_object_work_start(struct object_tier *object, const struct work_kind *kind,
                                  struct yb_tier_op *op, enum work_stage stage, uint64_t cost);
/* Take one that ends at once, without having asked. */
struct work *yb_object_work_end_at_once(struct object_tier *object, const struct work_kind *kind,
                                        struct yb_tier_op *op, enum yb_status status);
/* From `step`: ask for the next thing. */
void yb_object_work_go(struct work *work, enum work_stage stage);
/* From `step`: the same again, after a pause; false: it has been tried often enough, or there is no
 * time for it. */
YB_CHECKED bool yb_object_work_again(struct work *work, const struct flight *flight,
                                     enum yb_status status);
void yb_object_work_end(struct work *work, enum yb_status status);
/* End it with what the failure means for whoever asked. */
void yb_object_work_fail(struct work *work, enum yb_status status);
void yb_object_work_end_waiting(struct object_tier *object, enum yb_status status);
void yb_object_work_fired(struct yb_timer *timer);
/* A queued work goes with another's flight. */
void yb_object_work_join(struct work *work);
void yb_object_work_cancel(struct work *work);
void yb_object_work_urge(struct work *work, enum yb_class traffic_class, uint64_t deadline_ns);
void yb_object_pump(struct object_tier *object);
void yb_object_flight_done(struct yb_object_request *request, enum yb_status status);
struct flight *yb_object_flight_take(struct object_tier *object, struct work *work);
void yb_object_flight_free(struct flight *flight);
/* Its request is made: count what is under way. */
void yb_object_flight_begin(struct flight *flight);
void yb_object_count(struct object_tier *object, const struct yb_object_request *request,
                     enum yb_status status);
/* The flight's work goes on. */
void yb_object_flight_over(struct flight *flight, enum yb_status status);

/* ---- metrics (object_show.c) ---- */
YB_CHECKED enum yb_status yb_object_show_init(struct object_tier *object);
void yb_object_show_fini(struct object_tier *object);
void yb_object_show_request(struct object_tier *object, const struct yb_object_request *request,
                            enum yb_status status);
void yb_object_show(struct object_tier *object);

/* ---- second requests (object_hedge.c) ---- */
YB_CHECKED enum yb_status yb_object_hedge_init(struct object_tier *object);
void yb_object_hedge_fini(struct object_tier *object);
void yb_object_hedge_flight_init(struct flight *flight);
void yb_object_hedge_watch(struct flight *flight);
YB_CHECKED bool yb_object_hedge_ended(struct flight *flight, enum yb_status status);
void yb_object_hedge_ask_back(struct flight *flight);

/* ---- the tier (object.c) ---- */
void yb_object_step_aside(struct object_tier *object, enum yb_status status, const char *why);
/* A block is GONE from now on; its object is to be deleted, unless somebody else does it. */
void yb_object_drop(struct object_tier *object, struct yb_object_block *block);
void yb_object_tell_lost(struct object_tier *object, struct yb_id hash, uint64_t grant,
                         enum yb_status why);
void yb_object_block_name(const struct object_tier *object, const struct yb_object_block *block,
                          struct yb_object_name *name_out);
uint64_t yb_object_block_bytes(const struct object_tier *object,
                               const struct yb_object_block *block);

/* ---- operations ---- */
enum yb_status yb_object_store(struct yb_tier *tier, struct yb_tier_store *store);
enum yb_status yb_object_load(struct yb_tier *tier, struct yb_tier_load *load);
enum yb_status yb_object_kill(struct yb_tier *tier, struct yb_tier_kill *kill);
enum yb_status yb_object_flush(struct yb_tier *tier, struct yb_tier_flush *flush);
void yb_object_recover(struct object_tier *object);
void yb_object_sweep(struct object_tier *object);
void yb_object_sweep_begin(struct object_tier *object);
void yb_object_sweep_on(struct object_tier *object);
/* Delete an object in the background; false: too many are being deleted. */
bool yb_object_delete_later(struct object_tier *object, const struct yb_object_name *name);
void yb_object_found(struct object_tier *object, struct yb_object_block *block,
                     const struct yb_tier_record *record);

/* ---- packs (object_pack.c) ---- */
YB_CHECKED enum yb_status yb_object_pack_init(struct object_tier *object);
void yb_object_pack_fini(struct object_tier *object);
/* Gather a store with others; false: there is no room for it now, so it goes alone. */
YB_CHECKED bool yb_object_pack_add(struct work *work);
void yb_object_pack_leave(struct work *work);
void yb_object_pack_close_all(struct object_tier *object);
void yb_object_pack_lost(struct object_tier *object, uint32_t pack, uint64_t bytes);
bool yb_object_pack_holds(const struct object_tier *object, const struct yb_object_block *block);
void yb_object_pack_deleted(struct object_tier *object, const struct yb_object_name *name,
                            bool done);
void yb_object_pack_sweep(struct object_tier *object);
/* Return a place in the table that is free, or NO_PACK. */
uint32_t yb_object_pack_new(struct object_tier *object);
void yb_object_pack_set_twin(struct object_tier *object, struct pack *pack, bool twin);
/* It may be there, or come: it is deleted when no request can be alive any more. */
void yb_object_pack_in_doubt(struct object_tier *object, uint32_t pack);
void yb_object_pack_name(const struct object_tier *object, uint32_t pack,
                         struct yb_object_name *name_out);
/* Recovery: what a footer says. CORRUPT, VERSION: nothing of it. */
YB_CHECKED enum yb_status yb_object_pack_found(struct object_tier *object,
                                               const struct yb_object_name *name, uint64_t bytes,
                                               const uint8_t *footer);
/* Recovery: a footer is damaged, or of another version. */
void yb_object_pack_unread(struct object_tier *object, const struct yb_object_name *name,
                           uint64_t bytes, enum yb_status why);
bool yb_object_pack_known(const struct object_tier *object, const struct yb_object_name *name);
uint8_t *yb_object_pack_footer_room(const struct object_tier *object, uint32_t footer_bytes);

/* ---- half-dead packs (object_rewrite.c) ---- */
YB_CHECKED enum yb_status yb_object_rewrite_init(struct object_tier *object);
void yb_object_rewrite_fini(struct object_tier *object);
/* Begin one, if one is due. */
void yb_object_rewrite(struct object_tier *object);

/* ---- shared by loads (object_merge.c) ---- */
void yb_object_merge_queue(struct work *work);
void yb_object_merge_unqueue(struct work *work);
void yb_object_merge_plan(struct work *work, struct flight *flight);
void yb_object_merge_done(struct flight *flight, enum yb_status status);

/* ---- of single loads and stores, for those that share ---- */
enum yb_status yb_object_load_judge(const struct work *work, const uint8_t *record,
                                    struct yb_tier_record *parsed_out, char tenant_out[72]);
void yb_object_load_finish(struct work *work, const struct yb_tier_record *parsed,
                           const char *tenant);
void yb_object_load_drop(struct work *work, enum yb_status why);
void yb_object_sum_chunks(const struct yb_tier_store *store, uint32_t *sums_out);
/* It lies in its object, in a pack from `where` * 16 on; false: it was killed or flushed. */
YB_CHECKED bool yb_object_store_arrived(struct work *work, uint32_t pack, uint32_t where);
void yb_object_store_did_not(struct work *work);

extern const struct work_kind yb_object_packed_kind;
extern const struct work_kind yb_object_pack_kind;
extern const struct work_kind yb_object_load_kind;
extern const struct work_kind yb_object_store_kind;
extern const struct work_kind yb_object_plain_kind; /* It ends, and that is all. */

#endif /* YB_TIER_OBJECT_INTERNAL_H */
