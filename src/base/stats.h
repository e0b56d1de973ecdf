/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h -- the numbers that a process keeps about itself.
 *
 * A metric is a row of a table: its name, kind, unit, labels and help. A module
 * writes its rows once, as an X-macro, and registers them; enumerators, the
 * Prometheus text, JSON and the manual all come from the rows, so that a new
 * counter is one line. A module's table looks like this:
 *
 *     #define CALL_STATS(X)                                                       \
 *         X(SENT,  COUNTER,   BYTES,       "sent",  NULL, NULL, "payload sent")    \
 *         X(ENDED, COUNTER,   COUNT,       "ended", &yb_stats_label_class,         \
 *           &yb_stats_label_status, "calls ended, by outcome")                     \
 *         X(TOOK,  HISTOGRAM, NANOSECONDS, "took",  NULL, NULL, "from send to end")
 *
 *     enum call_stat {
 *     #define X(id, ...) CALL_##id,
 *         CALL_STATS(X)
 *     #undef X
 *     };
 *     static const struct yb_stats_metric call_metrics[] = {CALL_STATS(YB_STATS_ROW)};
 *
 *     status = yb_stats_register(stats, "call", call_metrics, count, &call->stats_first);
 *     yb_stats_add(shard, call->stats_first + CALL_SENT, bytes);
 *
 * Each writing thread has its own shard: a block of words that only it stores
 * to. A reader adds up the shards. Writing is therefore a load, an addition
 * and a store in memory that no other core writes: no lock, no allocation.
 *
 * A label takes its values from a fixed list of words, so the number of series
 * is known when the table is registered and nothing from outside can add one.
 * The label of peers is the one whose words come as the process runs, up to a
 * bound. Never label with a key or a tenant: that is what spans are for.
 *
 * Invariants
 *   S1  A word of a shard is stored to by the shard's owner alone.
 *   S2  What a shard counted is never lost: a released shard keeps its words
 *       and hands them to the next owner.
 *   S3  A metric's number, its row and the place of its words never change.
 *   S4  Full names are unique in a registry.
 *   S5  The first YB_STATS_PEERS_MAX peers that are asked for have words of their own, for good;
 *       all others share one.
 *
 * Threads   Registration, taking and releasing shards: any thread, under one
 *           lock of rank STATS. Writing: the thread that owns the shard (debug
 *           builds assert it). Reading and exporting: any thread, without a lock.
 *           A number read is one that was true for each shard at some moment
 *           during the call; counters never go backwards.
 * Memory    A shard reserves YB_STATS_CELLS_MAX words of address space and uses
 *           the pages it writes. Tables, labels and module names are borrowed
 *           until the registry is destroyed; they are static in practice.
 * Time      None is read.
 */
#ifndef YB_BASE_STATS_H
#define YB_BASE_STATS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/histogram.h"
#include "yuebing/status.h"

#define YB_STATS_MODULES_MAX 64u
#define YB_STATS_METRICS_MAX 1024u
#define YB_STATS_SHARDS_MAX  256u
/* Words per shard: 8 MiB of address space; a histogram series takes 1,922 of them. */
#define YB_STATS_CELLS_MAX (1u << 20)
#define YB_STATS_WORDS_MAX 64u /* Values of one label. */
#define YB_STATS_NAME_MAX  96u /* Characters of a full metric name. */

/*    name       word         what it does */
#define YB_STATS_KIND_MAP(X)                                        \
    X(COUNTER, "counter") /* Only grows. */                         \
    X(GAUGE, "gauge")     /* Goes up and down; shards are added. */ \
    X(HISTOGRAM, "histogram")

enum yb_stats_kind {
#define X(name, word) YB_STATS_##name,
    YB_STATS_KIND_MAP(X)
#undef X
};

/* The unit of the numbers that are written, the word for it, the suffix of the exported
 * name, and by how many decimal places the exported base unit is larger. */
#define YB_STATS_UNIT_MAP(X)            \
    X(COUNT, "count", "", 0)            \
    X(BYTES, "bytes", "_bytes", 0)      \
    X(NANOSECONDS, "ns", "_seconds", 9) \
    X(PARTS_PER_MILLION, "ppm", "_ratio", 6)

enum yb_stats_unit {
#define X(name, word, suffix, decimals) YB_STATS_##name,
    YB_STATS_UNIT_MAP(X)
#undef X
};

/* A dimension with a fixed list of values; value i is written as words[i]. yb_stats_label_peer
 * alone has no words here. */
struct yb_stats_label {
    const char *name;
    const char *const *words;
    uint32_t count; /* 1 .. YB_STATS_WORDS_MAX */
};

struct yb_stats_metric {
    const char *name; /* Lower case, digits and underscores; without module and unit. */
    enum yb_stats_kind kind;
    enum yb_stats_unit unit;
    const struct yb_stats_label *labels[2]; /* NULL: no such dimension. */
    const char *help;
};

/* Turn a row X(ID, KIND, UNIT, "name", label_a, label_b, "help") into an initialiser. */
#define YB_STATS_ROW(id, kind_, unit_, name_, label_a, label_b, help_) \
    {.name = (name_),                                                  \
     .kind = YB_STATS_##kind_,                                         \
     .unit = YB_STATS_##unit_,                                         \
     .labels = {(label_a), (label_b)},                                 \
     .help = (help_)},

/* Labels that every layer uses. Index with enum yb_class, and with
 * yb_stats_status_index(). */
extern const struct yb_stats_label yb_stats_label_class;
extern const struct yb_stats_label yb_stats_label_status;

/* Return the value of yb_stats_label_status for `status`; one outside the table, as a newer
 * peer may send, shares the last value, "UNKNOWN". */
uint32_t yb_stats_status_index(enum yb_status status);

struct yb_stats;
struct yb_stats_shard;

#define YB_STATS_PEERS_MAX  32u
#define YB_STATS_PEER_BYTES 96u

/* Peers: whoever a process deals with, by names of its own choice. Values that nobody has asked for
 * are not exported. */
extern const struct yb_stats_label yb_stats_label_peer;

/* Return the value of yb_stats_label_peer for a name (S5); what cannot be exported of it becomes
 * '_', what is too long is cut off. Any thread. */
uint32_t yb_stats_peer(struct yb_stats *stats, const char *name);

/* Create an empty registry. On OK, *stats_out is owned by the caller, who passes it to
 * destroy. Fails with NO_MEMORY; *stats_out is then untouched. */
YB_CHECKED enum yb_status yb_stats_create(struct yb_stats **stats_out);

/* Consume the registry and set *stats to NULL. Every shard of it is gone: no thread may
 * write any more. */
void yb_stats_destroy(struct yb_stats **stats);

/* Register the `count` rows of `metrics` under `module`. Row i gets the number
 * *first_out + i. The same table under the same name again gets the same numbers.
 *
 * Fails with INVALID (a name, label or help that cannot be exported), EXISTS (the module or a
 * full name is taken by another table) or TOO_LARGE (one of the limits above); nothing is
 * registered then. */
YB_CHECKED enum yb_status yb_stats_register(struct yb_stats *stats, const char *module,
                                            const struct yb_stats_metric *metrics, uint32_t count,
                                            uint32_t *first_out);

/* Take a shard for the calling thread, or for the thread it is handed to before the first
 * write. On OK, *shard_out is borrowed until it is released or the registry destroyed.
 * Fails with TOO_LARGE (YB_STATS_SHARDS_MAX are in use) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_stats_shard_take(struct yb_stats *stats,
                                              struct yb_stats_shard **shard_out);

/* Give a shard back and set *shard to NULL. Its counts stay (S2); so do its gauges, which the
 * owner should bring to zero first. */
void yb_stats_shard_release(struct yb_stats_shard **shard);

/* Leave the shard to the thread that writes next. The caller has ordered that behind all writes of
 * the thread before. `shard` may be NULL. */
void yb_stats_shard_hand_over(struct yb_stats_shard *shard);

/* Writing. `shard` may be NULL, then nothing is counted. `metric` must be registered and of
 * the kind named, and label values below the number of words (zero where there is no such
 * label): both are asserted. Owner thread only.
 *
 *   add      counter: plus delta                  adjust   gauge: plus delta, may be negative
 *   observe  histogram: one value                 set      gauge: this shard's part */
void yb_stats_add(struct yb_stats_shard *shard, uint32_t metric, uint64_t delta);
void yb_stats_add_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                     uint64_t delta);
void yb_stats_set(struct yb_stats_shard *shard, uint32_t metric, int64_t value);
void yb_stats_set_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                     int64_t value);
void yb_stats_adjust(struct yb_stats_shard *shard, uint32_t metric, int64_t delta);
void yb_stats_adjust_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                        int64_t delta);
void yb_stats_observe(struct yb_stats_shard *shard, uint32_t metric, uint64_t value);
void yb_stats_observe_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                         uint64_t value);

/* Return the sum over all shards of a counter, or of a gauge as a signed number. */
uint64_t yb_stats_counter(const struct yb_stats *stats, uint32_t metric, uint32_t a, uint32_t b);
int64_t yb_stats_gauge(const struct yb_stats *stats, uint32_t metric, uint32_t a, uint32_t b);

/* Add a histogram of all shards to *into, which belongs to the caller. */
void yb_stats_histogram(const struct yb_stats *stats, uint32_t metric, uint32_t a, uint32_t b,
                        struct yb_histogram *into);

/* Write everything in the Prometheus text format, version 0.0.4, in order of registration:
 * yuebing_<module>_<name><unit suffix>, counters with _total; histograms as cumulative coarse
 * buckets, _sum and _count. An observation up to 1/32 above a bucket's edge may count as
 * within it. Fails with IO (`out` refused). */
YB_CHECKED enum yb_status yb_stats_prometheus(const struct yb_stats *stats, FILE *out);

/* The same into memory. On OK, *text_out is owned by the caller, who frees it, ends in a NUL
 * and has *length_out bytes before that. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_stats_prometheus_text(const struct yb_stats *stats, char **text_out,
                                                   size_t *length_out);

/* Return an array with one object per series: "name", "kind", "unit" (of the numbers, which
 * are those written: nanoseconds, not seconds), "labels", and "value", or "count", "sum",
 * "max", "p50", "p99", "p999". Numbers above 2^63 - 1 are given as that. The reference is
 * owned by the caller. NULL: no memory. */
json_t *yb_stats_json(const struct yb_stats *stats);

#endif /* YB_BASE_STATS_H */
