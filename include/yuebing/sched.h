/* SPDX-License-Identifier: Apache-2.0
 *
 * sched.h -- where a request should run, and what has to be moved for it.
 *
 * The scheduler as a library. It is told what instances there are, which blocks lie where and how
 * busy everybody is; it answers, for one request at a time, with an instance for prefill and one
 * for decode, how much of the prompt is reused and from where, when that will be ready, and which
 * moves have to be made. It knows numbers only: no socket, file, thread or clock.
 *
 *     yb_sched_create            -> a scheduler, empty
 *     yb_sched_set_instance      -> an instance: its roles, rack, links, cost
 *     yb_sched_add, _drop        -> a block came to, or left, a tier of an instance
 *     yb_sched_report            -> what an instance says of itself
 *     yb_sched_decide            -> a decision; changes nothing
 *     yb_sched_commit            -> the decision is carried out: counted from now on
 *     yb_sched_prefilled, _ended -> how far the request has come
 *
 * Words
 *   place     what holds blocks, has links and may run an engine: an instance or a node without
 *             one. A number from 0, chosen by the caller. YB_SCHED_SHARED is the object store.
 *   block     the first 8 bytes of a block's name. A name covers all blocks before it, so equal
 *             names mean equal prefixes. Blocks of a request are in their order.
 *   run       how many blocks, from a request's first, a place has without a gap.
 *   landed    what is there; `soon`: also what a running request will have put there.
 *   conductor one of several schedulers side by side; each has a number.
 *
 * Invariants
 *   S1  yb_sched_decide() is a function of the scheduler, the request and `now_ns`: the same
 *       arguments give the same decision. Chance comes from a seed and the request's id.
 *   S2  decide and commit allocate nothing. Everything has a bound, named below.
 *   S3  What is reported to a scheduler is never asserted: it is refused with a status, and nothing
 *       has changed then.
 *   S4  A decision names only places that are set and have the role; ACCEPTED without such a place
 *       does not exist.
 *   S5  A hit is not ready: ready_ns of a decision counts the backlog of every link on the way and
 *       what is still being computed.
 *
 * Several conductors  Each sees reports that are older than what the others have just decided.
 *           Three things keep them from choosing the same place together: a report says which of
 *           each conductor's decisions it has seen, so that a conductor adds its own later ones; it
 *           says how many of its requests come from whom, so that those of the others are guessed
 *           in proportion; and among places that are nearly as good as the best, each conductor
 *           picks by a hash of its number and the request's id. A decision carries the sequence of
 *           the report that it stands on.
 *
 * Threads   decide with a scratch of its own: any thread, as long as no other call changes the
 *           scheduler. All else: one owner.
 * Memory    All is copied. The scheduler is the caller's, from create to destroy.
 * Units     Nanoseconds, bytes, tokens, blocks; rates in bytes per second.
 */
#ifndef YB_SCHED_H
#define YB_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define YB_SCHED_PLACES_MAX         16384u
#define YB_SCHED_RACKS_MAX          1024u
#define YB_SCHED_CONDUCTORS_MAX     16u
#define YB_SCHED_COSTS_MAX          64u
#define YB_SCHED_REQUEST_BLOCKS_MAX (1u << 17)
#define YB_SCHED_INSTRUCTIONS_MAX   8u
#define YB_SCHED_SOURCES_MAX        4u
#define YB_SCHED_NAME_MAX           32u

#define YB_SCHED_NONE   UINT32_MAX        /* No place. */
#define YB_SCHED_SHARED (UINT32_MAX - 1u) /* The object store; as a source: several (`gather`). */

/* Nearest first. */
/* clang-format off */
#define YB_SCHED_TIER_MAP(X)                                            \
    X(DEVICE, 0, "device", "memory of the engine's devices")            \
    X(DRAM,   1, "dram",   "memory of the place's node")                \
    X(SSD,    2, "ssd",    "disks of the place's node")                 \
    X(OBJECT, 3, "object", "the object store, which all places share")

/* Links of a place, by the direction of the bytes. */
#define YB_SCHED_LINK_MAP(X)                                            \
    X(IN,     0, "in",     "from the network")                          \
    X(OUT,    1, "out",    "to the network")                            \
    X(LOAD,   2, "load",   "from dram to device")                       \
    X(SSD,    3, "ssd",    "from ssd to dram")                          \
    X(OBJECT, 4, "object", "from the object store to dram")

/* Links of a rack. */
#define YB_SCHED_UPLINK_MAP(X)                                          \
    X(UP,   0, "up",   "from the rack to others")                       \
    X(DOWN, 1, "down", "from others to the rack")

#define YB_SCHED_KIND_MAP(X)                                            \
    X(FETCH,     0, "fetch",     "a block that the request waits for")  \
    X(PREFETCH,  1, "prefetch",  "a block that it will want soon")      \
    X(REPLICATE, 2, "replicate", "a hot block gets one copy more")      \
    X(MIGRATE,   3, "migrate",   "a block changes its place")           \
    X(STREAM,    4, "stream",    "computed blocks go on to decode, layer by layer")

#define YB_SCHED_REASON_MAP(X)                                          \
    X(NONE,       0, "none",       "accepted")                          \
    X(NO_PREFILL, 1, "no_prefill", "no place for prefill is alive")     \
    X(NO_DECODE,  2, "no_decode",  "no place for decode is alive, or has room") \
    X(TTFT,       3, "ttft",       "the first token would come too late")       \
    X(TPOT,       4, "tpot",       "further tokens would come too slowly")      \
    X(LOAD,       5, "load",       "admission: the pools are loaded fully")

/* What lmetric's detector says of a request's prefix: more requests want it than its holders' part
 * of all places; and so they are left out. */
#define YB_SCHED_HOTSPOT_MAP(X)                                         \
    X(NONE,    0, "none",    "its holders are enough")                  \
    X(ALARM,   1, "alarm",   "more want the prefix than its holders should get") \
    X(AVOIDED, 2, "avoided", "the holders are left out until there are more")

#define YB_SCHED_MODE_MAP(X)                                            \
    X(COUPLED,       0, "coupled",       "prefill and decode of a request at one place")  \
    X(DISAGGREGATED, 1, "disaggregated", "prefill and decode at places of their own")     \
    X(TIME_SLICED,   2, "time-sliced",   "each place takes turns: prefill, then decode")
/* clang-format on */

#define X(name, value, word, text) YB_SCHED_TIER_##name = value,
enum yb_sched_tier { YB_SCHED_TIER_MAP(X) };
#undef X
#define X(name, value, word, text) YB_SCHED_LINK_##name = value,
enum yb_sched_link_index { YB_SCHED_LINK_MAP(X) };
#undef X
#define X(name, value, word, text) YB_SCHED_UPLINK_##name = value,
enum yb_sched_uplink_index { YB_SCHED_UPLINK_MAP(X) };
#undef X
#define X(name, value, word, text) YB_SCHED_KIND_##name = value,
enum yb_sched_kind { YB_SCHED_KIND_MAP(X) };
#undef X
#define X(name, value, word, text) YB_SCHED_REASON_##name = value,
enum yb_sched_reason { YB_SCHED_REASON_MAP(X) };
#undef X
#define X(name, value, word, text) YB_SCHED_MODE_##name = value,
enum yb_sched_mode { YB_SCHED_MODE_MAP(X) };
#undef X
#define X(name, value, word, text) YB_SCHED_HOTSPOT_##name = value,
enum yb_sched_hotspot { YB_SCHED_HOTSPOT_MAP(X) };
#undef X

#define YB_SCHED_TIERS       4u
#define YB_SCHED_LOCAL_TIERS 3u /* Those of a place: device, dram, ssd. */
#define YB_SCHED_LINKS       5u
#define YB_SCHED_UPLINKS     2u

/* ---- what things cost ------------------------------------------------------------------------ */

/* One model on one kind of instance. Prefill of n tokens of which p are reused takes
 *
 *     prefill_base_ns + prefill_token_ns (n - p) + prefill_pair_ns (n^2 - p^2)
 *
 * and one step that gives each of `sequences` answers one token, with `context` tokens before them
 * in all,
 *
 *     step_base_ns + step_sequence_ns sequences + step_token_ns context            */
struct yb_sched_cost {
    double prefill_base_ns;
    double prefill_token_ns;
    double prefill_pair_ns;
    double step_base_ns;
    double step_sequence_ns;
    double step_token_ns;
    uint64_t kv_bytes;      /* Of one token, all layers. */
    uint64_t kv_tokens_max; /* Room on the instance's devices; 0: not known, no limit. */
    uint32_t layers;
    uint32_t pass_tokens; /* That the engine computes in one pass over the layers; 0: all. */
};

/* Return how long the prefill of `tokens` takes when `reused` <= tokens of them need not be
 * computed. 0 if all are reused. */
YB_API double yb_sched_prefill_ns(const struct yb_sched_cost *cost, uint64_t tokens,
                                  uint64_t reused);

/* Return how long one decode step takes. */
YB_API double yb_sched_step_ns(const struct yb_sched_cost *cost, uint32_t sequences,
                               uint64_t context_tokens);

/* Return the bytes per second above which loading the KV of a prompt's first `tokens` tokens (above
 * 0) takes less time than computing it. */
YB_API double yb_sched_break_even(const struct yb_sched_cost *cost, uint64_t tokens);

/* What is known of a model, beside which device it runs on. */
struct yb_sched_model {
    char name[YB_SCHED_NAME_MAX];
    uint32_t layers;
    double kv_bytes;     /* Of one token, all layers. */
    double token_flops;  /* To compute a token, without attention to others. */
    double pair_flops;   /* A: attention of n tokens takes A n^2. */
    double weight_bytes; /* All of them. */
    double step_bytes;   /* Those that a step reads: of mixtures the active ones. */
};

struct yb_sched_gpu {
    char name[YB_SCHED_NAME_MAX];
    double flops; /* Of one, at its peak. */
    double memory_bytes_per_s;
    double memory_bytes;
    double token_efficiency;  /* What of the peak is reached in token_flops, */
    double pair_efficiency;   /* in pair_flops, */
    double memory_efficiency; /* and of the memory's rate. */
    double host_bytes_per_s;  /* Between the host's memory and one device. */
};

/* Models and devices that are known by name: a table that comes with the library and what is read
 * over it. */
struct yb_sched_catalog;

/* Create a catalog with the built-in table. Fails with NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_sched_catalog_create(struct yb_sched_catalog **catalog_out);
YB_API void yb_sched_catalog_destroy(struct yb_sched_catalog **catalog);

/* Take rows from the text of an INI file, which docs/scheduling.md describes: sections
 * [model NAME], [gpu NAME] and [cost MODEL on N GPU]. Rows of a known name change it. Fails with
 * INVALID, having written to `message_out` where and what is wrong, and what is allowed; the
 * catalog is then as before. `file_name` is for the message. */
YB_API YB_CHECKED enum yb_status yb_sched_catalog_read(struct yb_sched_catalog *catalog,
                                                       const char *file_name, const char *text,
                                                       char *message_out, size_t message_bytes);

/* Return row `index`; NULL past the end. Borrowed until the next read. */
YB_API const struct yb_sched_model *yb_sched_catalog_model(const struct yb_sched_catalog *catalog,
                                                           uint32_t index);
YB_API const struct yb_sched_gpu *yb_sched_catalog_gpu(const struct yb_sched_catalog *catalog,
                                                       uint32_t index);

/* Return the row of a name, capitals aside; NULL: there is none. */
YB_API const struct yb_sched_model *
yb_sched_catalog_find_model(const struct yb_sched_catalog *catalog, const char *name);
YB_API const struct yb_sched_gpu *yb_sched_catalog_find_gpu(const struct yb_sched_catalog *catalog,
                                                            const char *name);

/* Fill in what a model costs on `gpus` devices (1 .. 4096): the measured coefficients where the
 * catalog has such for these, or else the peak rates times the efficiencies. Fails with NOT_FOUND
 * or INVALID: what the rows have is not enough. Where the weights leave no room for KV on these
 * devices, kv_tokens_max is 0: the model does not fit. */
YB_API YB_CHECKED enum yb_status yb_sched_catalog_cost(const struct yb_sched_catalog *catalog,
                                                       const char *model, const char *gpu,
                                                       uint32_t gpus,
                                                       struct yb_sched_cost *cost_out);

/* What a prefill was seen to take. */
struct yb_sched_prefill_sample {
    uint64_t tokens;
    uint64_t reused;
    double ns;
};

/* What a step was seen to take. */
struct yb_sched_step_sample {
    uint32_t sequences;
    uint64_t context_tokens;
    double ns;
};

/* Set the coefficients of prefill, or of steps, to those that are nearest to what was seen: least
 * squares of the relative error, none below 0. The other fields stay. Fails with INVALID (fewer
 * than 3 samples, one that takes no time or reuses more than there is, or all alike) and leaves
 * *cost alone then. */
YB_API YB_CHECKED enum yb_status yb_sched_fit_prefill(struct yb_sched_cost *cost,
                                                      const struct yb_sched_prefill_sample *samples,
                                                      size_t count);
YB_API YB_CHECKED enum yb_status yb_sched_fit_steps(struct yb_sched_cost *cost,
                                                    const struct yb_sched_step_sample *samples,
                                                    size_t count);

/* ---- what is there --------------------------------------------------------------------------- */

/* A way of bytes. `backlog_bytes` were waiting at `at_ns`; it drains at `rate`. */
struct yb_sched_link {
    double rate; /* 0: there is no such link. */
    uint64_t latency_ns;
    uint64_t backlog_bytes;
    uint64_t at_ns;
};

#define YB_SCHED_PREFILL 1u /* Roles. */
#define YB_SCHED_DECODE  2u

/* What is known of a place for as long as it lives. */
struct yb_sched_instance {
    size_t struct_bytes;
    uint32_t roles; /* YB_SCHED_PREFILL | YB_SCHED_DECODE; 0: it only holds blocks. */
    uint32_t node;  /* The place whose dram and ssd it uses: itself, unless several engines share a
                       node. */
    uint32_t rack;
    uint32_t group; /* Places that take turns together (time-sliced); any number. */
    uint32_t cost;  /* Index of a cost. Of a place with a role it must be set. */
    struct yb_sched_link links[YB_SCHED_LINKS];
};

/* What a place says of itself. Absolute times are those of the caller's clock. */
struct yb_sched_report {
    size_t struct_bytes;
    uint64_t sequence; /* Grows by each report of the place. An older one is STALE. */
    uint64_t at_ns;
    uint64_t prefill_done_ns; /* When what is queued or running now will have been prefilled. */
    uint64_t prefill_tokens;  /* Tokens that it still has to compute for that. */
    uint32_t queued;          /* Requests before their first token. */
    uint32_t running;         /* Requests that are being decoded. */
    uint64_t context_tokens;  /* Of the running ones, in all. */
    uint64_t kv_tokens_used;  /* On its devices, what is in use by requests. */
    uint64_t phase_ns;        /* time-sliced: when it changed between prefill and decode last. */
    bool prefilling;          /* time-sliced: it is in its prefill window. */
    uint64_t backlog_bytes[YB_SCHED_LINKS];
    double rate[YB_SCHED_LINKS]; /* As measured; 0: as before. */

    /* By conductor: requests here that are not ended, and the newest decision (`number`) that is
     * among them or was. */
    uint32_t in_flight[YB_SCHED_CONDUCTORS_MAX];
    uint64_t seen[YB_SCHED_CONDUCTORS_MAX];

    double saved_ns; /* time-sliced: as in struct yb_sched_slice. May be below 0; 0: not known. */
    uint64_t latency_ns[YB_SCHED_LINKS]; /* As measured; 0: as before. */
};

/* ---- requests and decisions ------------------------------------------------------------------ */

struct yb_sched_request {
    size_t struct_bytes;
    uint64_t id; /* Of the caller; not 0. Decides between equals. */
    uint64_t arrival_ns;
    uint32_t input_tokens;  /* At least 1. */
    uint32_t output_tokens; /* As predicted; 0: not known. */
    const uint64_t *blocks; /* Borrowed for the call. The last may be partial, or left out. */
    uint32_t block_count;
    uint32_t work_class;  /* enum yb_class */
    uint64_t session;     /* Requests that belong together (a conversation, a group); 0: none. */
    uint64_t ttft_slo_ns; /* 0: the scheduler's. */
    uint64_t tpot_slo_ns; /* 0: the scheduler's. */
    uint32_t not_at; /* A place, plus 1, that must not be chosen, as it has just failed; 0: none. */
    uint32_t decode_at; /* A place, plus 1, where decode must be, as it runs already; 0: none. */
};

/* One move. It speaks of blocks `first` .. `first + count - 1` of the request. */
struct yb_sched_instruction {
    uint64_t id;   /* Unique in this conductor: number * YB_SCHED_INSTRUCTIONS_MAX + index. */
    uint32_t kind; /* enum yb_sched_kind */
    uint32_t first;
    uint32_t count;
    uint32_t from; /* A place, or YB_SCHED_SHARED. */
    uint32_t from_tier;
    uint32_t to;
    uint32_t to_tier;
    uint32_t work_class; /* enum yb_class */
    uint64_t bytes;
    uint64_t not_before_ns; /* 0: at once. */
    uint64_t deadline_ns;   /* When the request wants it; 0: whenever it comes. */
    uint64_t ready_ns;      /* When it is expected. */
};

/* Where some of the blocks of a request lie that are gathered. */
struct yb_sched_source {
    uint32_t from; /* A place, or YB_SCHED_SHARED. */
    uint32_t tier;
    uint32_t blocks;
};

struct yb_sched_decision {
    uint64_t number;  /* 0 until commit; then of this conductor's: 1, 2, 3, ... */
    bool accepted;    /* If not, only `reason`, `number` and the estimates mean something. */
    uint32_t reason;  /* enum yb_sched_reason */
    uint32_t mode;    /* enum yb_sched_mode */
    uint32_t prefill; /* Places. */
    uint32_t decode;

    /* Of the request's blocks, in their order: those that the prefill place has in each tier or
     * nearer (a run), those that it will have soon, those that are fetched from `source`, those
     * that are computed. reuse_blocks is what is not computed, in all. */
    uint32_t hit_blocks[YB_SCHED_TIERS];
    uint32_t soon_blocks;
    uint32_t local_blocks; /* Reused from the place's own tiers. */
    uint32_t reuse_blocks; /* Those, and what is fetched behind them. */
    uint32_t source;       /* YB_SCHED_NONE: nothing is fetched. */
    uint32_t source_tier;  /* Of several: the farthest. */
    uint32_t source_count; /* With `gather`: those behind `source`, the object store among them. */
    struct yb_sched_source sources[YB_SCHED_SOURCES_MAX];
    uint32_t reuse_tokens;
    uint32_t best_blocks; /* The longest run anywhere, and where. */
    uint32_t best;

    uint64_t start_ns;   /* When the place can begin. */
    uint64_t ready_ns;   /* When the last reused block is there. */
    uint64_t ttft_ns;    /* From arrival to the first token. */
    uint64_t queue_ns;   /* Its parts, which overlap: waiting, */
    uint64_t load_ns;    /* moving, */
    uint64_t prefill_ns; /* computing. */
    uint64_t tpot_ns;    /* A token after the first, with this request in the batch. */

    uint64_t report_sequence; /* Of the prefill place's report that this stands on. */
    uint64_t decode_sequence; /* And of the decode place's. */
    uint32_t considered;      /* Places that were looked at closely. */
    uint32_t hotspot;         /* enum yb_sched_hotspot */
    uint32_t instruction_count;
    struct yb_sched_instruction instructions[YB_SCHED_INSTRUCTIONS_MAX];
};

/* ---- the scheduler --------------------------------------------------------------------------- */

struct yb_sched;
struct yb_sched_scratch;

/* Zero the struct, set `struct_bytes`, and what you want to differ from the default. */
struct yb_sched_options {
    size_t struct_bytes;
    const char *routing;   /* NULL: "ready". yb_sched_routing_name() lists them. */
    const char *admission; /* NULL: "none". */
    uint32_t mode;         /* enum yb_sched_mode */
    uint32_t places_max;   /* 0: 1024. */
    uint32_t blocks_max;   /* Different blocks that are known of; 0: 4 M. 16 bytes each, and half
                                  as much again. */
    uint64_t holders_bytes_max; /* For who holds them; 0: 256 MiB. */
    uint32_t pending_max;       /* Decisions that are not ended; 0: 65536. */
    uint32_t block_tokens;      /* 0: 512. */
    uint32_t conductor;         /* Which of several this is: below YB_SCHED_CONDUCTORS_MAX. */
    uint64_t seed;
    uint64_t ttft_slo_ns; /* 0: none. */
    uint64_t tpot_slo_ns; /* 0: none. */
    bool gather;          /* What is fetched comes block by block from where it lies, at how many
                                  places it may be; otherwise all of it from one that has a run. */
    bool exact;           /* Look at each block of a prompt, also where places may have gaps in
                                  their runs; otherwise runs are found by jumping (S6 below). */

    /* ---- routing ---- */
    double fetch_threshold; /* mooncake: fetch from the best place if its run is that much longer;
                               0: 1.5. */
    double near_best;       /* ready: places within that share of the best TTFT are as good as it,
                               and that with the fewest requests is taken. One step at most; where
                               other conductors decide, too, one step more. 0: 0.02; below 0: 0. */
    double weight;          /* Of policies that have one; 0: theirs. */
    uint32_t spread_max;    /* Of policies that bound how far loads drift apart; 0: theirs. */
    uint64_t rack_cost_ns;  /* ready: what a transfer between racks costs beside its time. */
    bool no_split;    /* ready: load all there is or nothing. To show what splitting brings. */
    bool no_ready;    /* ready: take each hit for ready. To show what ready times bring. */
    bool no_soon;     /* ready: do not wait for what others are computing. */
    bool no_detector; /* lmetric: look for no hotspots. To show what that brings. */
    bool fetch_none;  /* Nothing is fetched from elsewhere: each place is on its own. */
};

/* Create a scheduler without places. On OK *sched_out is the caller's. Fails with INVALID, having
 * written to `message_out` (may be NULL) which option and what is allowed, or NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_sched_create(const struct yb_sched_options *options,
                                                 struct yb_sched **sched_out, char *message_out,
                                                 size_t message_bytes);
YB_API void yb_sched_destroy(struct yb_sched **sched);

/* Return the name of row `index` of the tables of policies, and what it does; NULL past the end. */
YB_API const char *yb_sched_routing_name(uint32_t index);
YB_API const char *yb_sched_routing_text(uint32_t index);
YB_API const char *yb_sched_admission_name(uint32_t index);
YB_API const char *yb_sched_admission_text(uint32_t index);

/* Create what one thread needs to decide: it fits the scheduler's options. It may serve one
 * scheduler only. Fails with NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_sched_scratch_create(const struct yb_sched *sched,
                                                         struct yb_sched_scratch **scratch_out);
YB_API void yb_sched_scratch_destroy(struct yb_sched_scratch **scratch);

/* Set cost `index`, of those below YB_SCHED_COSTS_MAX. Fails with INVALID: a coefficient is
 * negative or no number, kv_bytes or layers are 0. */
YB_API YB_CHECKED enum yb_status yb_sched_set_cost(struct yb_sched *sched, uint32_t index,
                                                   const struct yb_sched_cost *cost);

/* Set the links of a rack; without, they are no limit. Fails with INVALID: no such rack, or a rate
 * that is negative or no number. */
YB_API YB_CHECKED enum yb_status
yb_sched_set_rack(struct yb_sched *sched, uint32_t rack,
                  const struct yb_sched_link links[YB_SCHED_UPLINKS]);

/* Bring a place, or change one. It is alive from now on, with an empty report; its blocks stay.
 * Fails with INVALID: place, node, rack or cost out of range, a rate that is no number. */
YB_API YB_CHECKED enum yb_status yb_sched_set_instance(struct yb_sched *sched, uint32_t place,
                                                       const struct yb_sched_instance *instance);

/* A place is gone. Its blocks count no longer at once; what they took is given back step by step,
 * by yb_sched_sweep(). The place's number may be used again when yb_sched_is_swept() says so. Fails
 * with INVALID (no such number) or NOT_FOUND. */
YB_API YB_CHECKED enum yb_status yb_sched_remove_instance(struct yb_sched *sched, uint32_t place);

/* Look at up to `steps` places of the table of blocks, freeing what nobody has any more. Returns
 * whether anything of a removed place may be left. */
YB_API bool yb_sched_sweep(struct yb_sched *sched, uint32_t steps);

/* Return whether nothing is left of a removed place: its number may be used again. At the latest
 * after two passes over the table, whatever else is removed meanwhile. */
YB_API bool yb_sched_is_swept(const struct yb_sched *sched, uint32_t place);

/* Forget what is in the object store: all of it will be told again. It walks over the whole table
 * of blocks, which takes some milliseconds if it is large. */
YB_API void yb_sched_drop_shared(struct yb_sched *sched);

/* A block came to a tier of a place (YB_SCHED_SHARED with the tier OBJECT). Again is OK. Fails with
 * INVALID or NO_SPACE: blocks_max or holders_bytes_max are used up; the block is then not known of
 * there, which costs a hit and nothing else. */
YB_API YB_CHECKED enum yb_status yb_sched_add(struct yb_sched *sched, uint64_t block,
                                              uint32_t place, uint32_t tier);

/* A block left. Fails with INVALID, or NOT_FOUND if it was not known of there. */
YB_API YB_CHECKED enum yb_status yb_sched_drop(struct yb_sched *sched, uint64_t block,
                                               uint32_t place, uint32_t tier);

/* Take what a place says of itself. Fails with INVALID, NOT_FOUND (no such place) or STALE. */
YB_API YB_CHECKED enum yb_status yb_sched_report(struct yb_sched *sched, uint32_t place,
                                                 const struct yb_sched_report *report);

/* How much of a prompt a place has. */
struct yb_sched_hit {
    uint32_t run[YB_SCHED_LOCAL_TIERS]; /* By tier: in that one or nearer. */
    uint32_t soon;                      /* And with what is being computed there. */
};

/* Look up a prompt: the hits of all places, by number, into `hits_out[places_max]`; returns the
 * longest run that some place has. S6: without the option `exact`, a place that has a block is
 * taken to have all before it, too. (Policies that never leave a suffix without its prefix see to
 * that; where it is not so, the hit is too long, and the fetch finds out.) */
YB_API uint32_t yb_sched_match(const struct yb_sched *sched, struct yb_sched_scratch *scratch,
                               const uint64_t *blocks, uint32_t count, uint64_t now_ns,
                               struct yb_sched_hit *hits_out);

/* Decide about a request: *decision_out is written whole. That it is rejected is no failure. Fails
 * with INVALID: the request is not within its limits. */
YB_API YB_CHECKED enum yb_status yb_sched_decide(const struct yb_sched *sched,
                                                 struct yb_sched_scratch *scratch,
                                                 const struct yb_sched_request *request,
                                                 uint64_t now_ns,
                                                 struct yb_sched_decision *decision_out);

/* Count a decision about this very request: the places' queues and links are that much fuller until
 * a report says so itself, and what will be computed is known of as `soon`. Gives the decision and
 * its instructions their numbers. A decision that was not accepted is counted, too. Fails with
 * STALE: one of its places was removed meanwhile; nothing has changed then, decide again. */
YB_API YB_CHECKED enum yb_status yb_sched_commit(struct yb_sched *sched,
                                                 const struct yb_sched_request *request,
                                                 struct yb_sched_decision *decision,
                                                 uint64_t now_ns);

/* The prefill of decision `number` has ended: nothing more is expected from it. Unknown numbers
 * are ignored. */
YB_API void yb_sched_prefilled(struct yb_sched *sched, uint64_t number, uint64_t now_ns);

/* The request of decision `number` has ended, well or not. Unknown numbers are ignored. */
YB_API void yb_sched_ended(struct yb_sched *sched, uint64_t number, uint64_t now_ns);

/* What a metric shows of a scheduler. */
struct yb_sched_info {
    const char *routing;
    const char *admission;
    uint32_t places;
    uint32_t pending;   /* Decisions that are not ended. */
    uint64_t decisions; /* Committed. */
    uint64_t rejected;
    uint64_t blocks;      /* Known of. */
    uint64_t holder_sets; /* Different ones. */
    uint64_t holders_bytes;
    uint64_t refused_blocks; /* For want of room. */
    uint64_t forgotten;      /* Decisions that were dropped as pending_max was reached. */
};
YB_API struct yb_sched_info yb_sched_info(const struct yb_sched *sched);

/* ---- moving bytes ---------------------------------------------------------------------------- */

/* Return when `bytes` that go over all `count` links, piece by piece, are there: the slowest link
 * decides, each being `base_ns` + the sum of latencies + (its backlog at `now_ns` + bytes) / rate.
 * A link with rate 0 is never passed: UINT64_MAX. */
YB_API uint64_t yb_sched_ready_ns(const struct yb_sched_link *const *links, uint32_t count,
                                  uint64_t base_ns, uint64_t bytes, uint64_t now_ns);

/* How much of what could be loaded should be. */
struct yb_sched_split {
    uint32_t reuse_tokens; /* The rest is computed. */
    uint64_t load_ns;      /* From now until all of it is there. */
    uint64_t prefill_ns;
    uint64_t finish_ns; /* From now until the first token. */
};

/* What could be loaded, and how. */
struct yb_sched_loadable {
    uint32_t tokens;       /* Of the prompt. */
    uint32_t local_tokens; /* Those on the device already: free. */
    uint32_t reach_tokens; /* Those there are, `local` ones among them. */
    uint32_t step_tokens;  /* Only whole steps from local_tokens, or all: a block. At least 1. */
    uint64_t start_ns;     /* From now until the engine can begin. */
    uint64_t base_ns;      /* From now until the first byte could be there: latency, backlog, and
                              what is still being computed. */
    double rate;           /* Bytes per second. */
};

/* Find the split with the earliest first token. Layers are loaded and computed one after the other:
 * layer j of L can be computed when it is loaded and layer j - 1 is computed, so that
 *
 *     finish = max(start + C, load / L + C, load + C / L)
 *
 * with C = prefill(tokens, reuse) and load the time until all is there. Where a pass over the
 * layers takes less than all tokens, all passes but the first need all layers: the last term is
 * then load + C - P + P / L, with P the first pass. Of equal splits it is that which loads less. */
YB_API struct yb_sched_split yb_sched_split(const struct yb_sched_cost *cost,
                                            const struct yb_sched_loadable *loadable);

/* ---- modes ----------------------------------------------------------------------------------- */

/* What a place that takes turns says of itself, for the check of a request (EcoServe, Algorithm 1).
 * Spans in nanoseconds. */
struct yb_sched_slice {
    double window_ns;     /* Prefills that it has got in this window, without those that wait. */
    double waiting_ns;    /* Prefill of those that wait. */
    double saved_ns;      /* How far decodes are ahead of their objective, on the average: tokens x
                             objective - time since the first. */
    uint32_t decoding;    /* Those whose decode waits meanwhile. */
    uint64_t room_tokens; /* For their KV; UINT64_MAX: no limit. */
};

/* Return why a request should not be added to the place's prefill window; NONE if it may: the
 * window stays within the objective of the first token (TTFT), what decodes are ahead by covers it
 * (TPOT), and its tokens have room (NO_DECODE). */
YB_API enum yb_sched_reason yb_sched_slice_check(const struct yb_sched_slice *slice,
                                                 double prefill_ns, uint64_t kv_tokens,
                                                 double ttft_slo_ns);

/* What is asked of a cluster, on the average. */
struct yb_sched_demand {
    double input_tokens;  /* At least 1. */
    double reused_tokens; /* Of these, what need not be computed. */
    double output_tokens; /* At least 1. */
    double ttft_slo_ns;   /* Above 0. */
    double tpot_slo_ns;   /* Above 0. */
};

/* What a mode could serve. */
struct yb_sched_serving {
    double requests_per_s;
    uint32_t prefill_places; /* disaggregated: the best split; otherwise all. */
    double batch;            /* Answers in one step. */
};

/* Return the rate of requests that `places` alike could serve in a mode within the objectives, as
 * steady flows:
 *
 *   disaggregated  the least of what P places prefill, what the others decode with the largest
 *                  batch that the objective and their room allow, and what `link_rate` (bytes per
 *                  second, out of one place) carries; for the best P
 *   time-sliced    each place's time is divided between prefills and steps; answers get their
 *                  tokens in time on the average, so steps may be as much shorter than the
 *                  objective as prefills take
 *   coupled        the same, but each step carries a piece of a prompt, of at least
 *                  `piece_tokens`, and has to be within the objective by itself
 *
 * Prefills wait for each other: 1 - 2.3 x prefill / objective of the time can be used (90 % of the
 * first tokens in time, when arrivals are random). 0: not at all. */
YB_API struct yb_sched_serving yb_sched_mode_serves(const struct yb_sched_cost *cost,
                                                    const struct yb_sched_demand *demand,
                                                    enum yb_sched_mode mode, uint32_t places,
                                                    double link_rate);

/* Return the mode that serves most; of equals the one that is named first. */
YB_API enum yb_sched_mode yb_sched_mode_choose(const struct yb_sched_cost *cost,
                                               const struct yb_sched_demand *demand,
                                               uint32_t places, double link_rate);

/* Return the link rate, in bytes per second, from which on `disaggregated` serves at least as much
 * as `time-sliced`; 0: on any, INFINITY: on none. */
YB_API double yb_sched_mode_crossover(const struct yb_sched_cost *cost,
                                      const struct yb_sched_demand *demand, uint32_t places);

/* ---- batches --------------------------------------------------------------------------------- */

/* A request that waits at an engine, as it is now. Of its blocks the first `held_blocks` need not
 * be computed; of these the first `device_blocks` need not be loaded either; and the first
 * `used_blocks` of these stay on the devices anyway, as a running request uses them. */
struct yb_sched_waiter {
    const uint64_t *blocks; /* Borrowed for the call. */
    uint32_t block_count;
    uint32_t held_blocks;
    uint32_t device_blocks;
    uint32_t used_blocks;
    uint32_t input_tokens; /* At least 1. */
};

/* What bounds a batch. A batch of one request has no bound but `room_blocks`. */
struct yb_sched_batch_options {
    uint32_t block_tokens; /* 0: 512. */
    uint32_t requests_max; /* 0: no limit. */
    uint64_t new_tokens;   /* That are computed in it, at most; 0: no limit. */
    uint64_t room_blocks;  /* Of the devices, what running requests do not use. */
    double load_ratio;     /* Tokens to load for one to compute, above which a batch is bound by its
                               loads; 0: 100; below 0: the batch is not balanced. */
    uint32_t shared_tokens; /* A request waits for what others compute if it shares more; 0: 100;
                               UINT32_MAX: it never waits. */
};

/* What becomes of a waiter. */
enum yb_sched_turn {
    YB_SCHED_TURN_LEFT,     /* It waits on. */
    YB_SCHED_TURN_TAKEN,    /* It is in the batch. */
    YB_SCHED_TURN_DEFERRED, /* A delay hit: what it shares is being computed, or will be by one
                               before it. It should come first in the next round. */
};

struct yb_sched_batch {
    uint32_t taken;
    uint32_t deferred;
    uint64_t load_tokens; /* What several of the batch load is loaded once. */
    uint64_t new_tokens;
    bool load_bound;
};

/* Waiters that are looked at in one round; those behind them are left. */
#define YB_SCHED_BATCH_LOOK 256u

/* Form the next batch of prefill (Strata, OSDI 2026). Of a queue in its order,
 *
 *   1  a request that shares more than `shared_tokens` of what it would compute with one in
 *      `running`, or with one before it in the queue that is not deferred itself, is deferred:
 *      computing that twice helps nobody;
 *   2  the first of the others opens the batch; one that follows is passed over if the batch with
 *      it would be bound by its loads. Who loads nothing that the batch does not load already
 *      (its bundle) comes in at once;
 *   3  those that were passed over fill what is left of the batch, in their order.
 *
 * `running` is what is computed now, its `held_blocks` as they were when that began. *turns_out
 * has `count` entries. Nobody starves: the first of the queue is taken unless it waits for what is
 * running or has no room. */
YB_API struct yb_sched_batch yb_sched_batch_form(const struct yb_sched_batch_options *options,
                                                 const struct yb_sched_waiter *running,
                                                 uint32_t running_count,
                                                 const struct yb_sched_waiter *queue,
                                                 uint32_t count, enum yb_sched_turn *turns_out);

/* Return how long a batch takes whose layers are loaded while earlier ones are computed:
 * max(load / L + compute, load + compute / L), in nanoseconds; L layers. */
YB_API double yb_sched_batch_ns(const struct yb_sched_cost *cost, double load_ns,
                                double compute_ns);

/* Return how many steps of decode should be made while a batch only loads: the bubble. A step is
 * made if at least half of it fits, as it has to be made some time; what does not fit delays the
 * batch. */
YB_API uint32_t yb_sched_batch_bubble(const struct yb_sched_cost *cost, double load_ns,
                                      double compute_ns, uint32_t sequences,
                                      uint64_t context_tokens);

/* ---- rollouts -------------------------------------------------------------------------------- */

/* Many answers to each of many prompts, all of which are wanted before anything else goes on (Seer,
 * OSDI 2026). An answer is not generated in one go but in chunks; after each its KV lies in the
 * pool, and the next chunk may be generated anywhere. */

/* What is known of the answers to one prompt. */
struct yb_sched_rollout_group {
    uint32_t longest; /* The longest answer that has ended; while there is none, the limit. */
    uint64_t served;  /* Tokens that its answers have got. */
};

/* An answer that waits for its next chunk. */
struct yb_sched_rollout_waiter {
    uint32_t group;
    uint32_t generated; /* Tokens so far. */
    bool probe;         /* One of each group goes ahead: how long is it? */
};

/* Every so many picks one is for the group that has got the fewest tokens. */
#define YB_SCHED_ROLLOUT_SERVE 32u

/* Return which of `count` (above 0) waiters goes on next: a probe, of which the one with the fewest
 * tokens, as short ones tell soonest; else one of the group whose longest answer is the longest, as
 * what takes long has to begin early. Of equals the first. `picks` counts the calls. */
YB_API uint32_t yb_sched_rollout_next(const struct yb_sched_rollout_waiter *waiters, uint32_t count,
                                      const struct yb_sched_rollout_group *groups, uint64_t picks);

/* Where it could go on. */
struct yb_sched_rollout_place {
    uint32_t in_flight;   /* Requests there. */
    uint32_t held_tokens; /* Of this one's KV, what is there. */
    uint64_t free_tokens; /* Room for KV. */
};

/* Return where it goes on with so many tokens of KV, or YB_SCHED_NONE if none has room: while
 * requests in flight are spread by no more than 32, where most of its KV is; else where the fewest
 * requests are. *pull_out: it should be pulled from the pool, as more than 512 tokens are missing
 * of the `pool_tokens` that it has there, rather than computed again. */
YB_API uint32_t yb_sched_rollout_where(const struct yb_sched_rollout_place *places, uint32_t count,
                                       uint64_t tokens, uint32_t pool_tokens, bool *pull_out);

/* ---- the prefetch window --------------------------------------------------------------------- */

/* How many steps ahead blocks are asked for. A value: copy it, compare it, keep it where you like.
 *
 *     start --> size, measured for a round --> another size --> ... --> the best, held
 *                     ^                                                     |
 *                     +-- latency or step changed, or the best got worse ---+
 *
 * It begins at ceil(latency / step) x 1.5 and tries sizes around it, smaller ones first, each for a
 * round. A size is taken for its P95 if its P99 and its longest time are not worse than those of
 * the best so far; of sizes that are alike, the one that was there. Two that are taken one after
 * the other double the stride. When steps of one bring nothing in either direction it holds still
 * for a while, and looks around again. */
#define YB_SCHED_WINDOW_SAMPLES 100u

struct yb_sched_window_limits {
    uint32_t least;     /* 0: 1. */
    uint32_t most;      /* 0: 4096. */
    double worse_share; /* Times that differ by no more are alike; 0: 0.05. */
};

struct yb_sched_window {
    struct yb_sched_window_limits limits;
    uint32_t size;     /* What to use. */
    uint32_t start;    /* ceil(latency / step) x 1.5, of which `size` is a correction. */
    uint32_t best;     /* The best size of this search. */
    double latency_ns; /* Smoothed. */
    double step_ns;
    double best_p95_ns; /* What `best` brought. */
    double best_p99_ns;
    double best_max_ns;
    int32_t direction; /* Where the search goes: -1 or +1. */
    uint32_t stride;   /* And how far at once. */
    uint32_t failures; /* Moves in a row that brought nothing. */
    uint32_t holding;  /* Rounds that it holds still yet. */
    uint32_t patience; /* How many it holds still the next time. */
    uint32_t late;     /* Samples of this round that are worse than the best's P95. */
    uint32_t count;    /* Samples of this round. */
    double samples_ns[YB_SCHED_WINDOW_SAMPLES];
};

/* Begin at ceil(latency / step) x 1.5. Step and latency above 0. */
YB_API struct yb_sched_window yb_sched_window_start(struct yb_sched_window_limits limits,
                                                    double latency_ns, double step_ns);

/* Take one TTFT, and the latency of a fetch and the time of a step as they are now; returns the new
 * state. What is no number above 0 is ignored. */
YB_API struct yb_sched_window yb_sched_window_next(const struct yb_sched_window *window,
                                                   double ttft_ns, double latency_ns,
                                                   double step_ns);

/* ---- heat ------------------------------------------------------------------------------------ */

struct yb_sched_heat;

/* A block and its heat: the accesses that are expected within one half-life. */
struct yb_sched_hot {
    uint64_t block;
    double heat;
};

/* A block that should come from the object store before anybody asks for it. */
struct yb_sched_move {
    uint64_t block;
    double heat;
    uint32_t to; /* The place whose dram it should go to. */
};

/* Create a Markov chain over accesses to blocks with room for `blocks_max` of them (1 .. 16 M, 88
 * bytes each): how often each is accessed, and which comes after which: the four most frequent
 * successors of each. Where there is no room, what is coldest makes way. Counts lose half of
 * their weight in `half_life_ns`. Fails with INVALID or NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_sched_heat_create(uint32_t blocks_max, uint64_t half_life_ns,
                                                      struct yb_sched_heat **heat_out);
YB_API void yb_sched_heat_destroy(struct yb_sched_heat **heat);

/* The blocks of one request were accessed, in this order. */
YB_API void yb_sched_heat_access(struct yb_sched_heat *heat, const uint64_t *blocks, uint32_t count,
                                 uint64_t now_ns);

/* Return the heat of a block; 0 if it is not known. It is what the block has been accessed itself,
 * or what flows to it along the chain from those before it, if that is more. */
YB_API double yb_sched_heat_of(const struct yb_sched_heat *heat, uint64_t block, uint64_t now_ns);

/* Write the blocks with at least `least` heat, the hottest first, at most `count_max`, and return
 * how many. It walks over all there is. */
YB_API uint32_t yb_sched_heat_hottest(const struct yb_sched_heat *heat, double least,
                                      uint64_t now_ns, struct yb_sched_hot *hot_out,
                                      uint32_t count_max);

/* Write which blocks should be moved from the object store to a place's dram: those with at least
 * `least` heat that are there and in no place's device, dram or ssd, the hottest first, at most
 * `count_max` and 64. They go where the block before them is, or else to the place that will
 * be idle first. Returns how many. */
YB_API uint32_t yb_sched_heat_moves(const struct yb_sched_heat *heat, const struct yb_sched *sched,
                                    double least, uint64_t now_ns, struct yb_sched_move *moves_out,
                                    uint32_t count_max);

#ifdef __cplusplus
}
#endif

#endif /* YB_SCHED_H */
