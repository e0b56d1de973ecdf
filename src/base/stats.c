/* SPDX-License-Identifier: Apache-2.0
 *
 * Every shard is one anonymous mapping with the same layout: a header line,
 * then YB_STATS_CELLS_MAX words. Registration gives a metric its words in all
 * shards, present and future, at once, because unwritten pages are zero. So
 * neither order of registering metrics and taking shards needs a copy.
 */
#include "base/stats.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/lock.h"
#include "yuebing/types.h"

#define STATS_MAGIC 0x79627374u
#define SHARD_MAGIC 0x79627368u

#define HISTOGRAM_CELLS ((uint32_t)(sizeof(struct yb_histogram) / sizeof(uint64_t)))

/* What registration made of a row; immutable once `metrics_count` covers it (S3). */
struct metric {
    const struct yb_stats *stats;
    const struct yb_stats_metric *row;
    const char *module;
    uint32_t first_cell;
    uint32_t cells_each; /* Words of one series. */
    uint32_t count_a;    /* Values of each label; one where there is none. */
    uint32_t count_b;
};

struct module {
    const char *name;
    const struct yb_stats_metric *rows;
    uint32_t count;
    uint32_t first;
};

struct yb_stats_shard {
    uint32_t magic;
    bool taken; /* Under the registry's lock. */
    struct yb_stats *stats;
    _Atomic uintptr_t owner; /* Debug: the thread of the first write, zero before it. */
    _Alignas(64) _Atomic uint64_t cells[YB_STATS_CELLS_MAX]; /* S1 */
};

_Static_assert(offsetof(struct yb_stats_shard, cells) == 64, "the words begin a cache line");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "a histogram is an array of words");

struct yb_stats {
    uint32_t magic;

    struct yb_lock lock; /* Writers of everything below. */
    struct module modules[YB_STATS_MODULES_MAX];
    uint32_t modules_count;
    uint32_t cells_used;
    struct metric metrics[YB_STATS_METRICS_MAX];
    struct yb_stats_shard *shards[YB_STATS_SHARDS_MAX];
    char peers[YB_STATS_PEERS_MAX + 1][YB_STATS_PEER_BYTES]; /* The last: all others. */
    /* Stored with release after the entries they cover; read with acquire, without the lock. */
    _Atomic uint32_t metrics_count;
    _Atomic uint32_t shards_count;
    _Atomic uint32_t peers_count;
};

static const char *const class_words[] = {
#define X(name, value, word, text) [value] = word,
    YB_CLASS_MAP(X)
#undef X
};

/* Statuses count down from zero without gaps, so their number is free for all others. */
enum {
    STATUS_WORDS_UNKNOWN = 0
#define X(name, value, scope, text) +1
    YB_STATUS_MAP(X)
#undef X
};

static const char *const status_words[STATUS_WORDS_UNKNOWN + 1] = {
#define X(name, value, scope, text) [-(value)] = #name,
    YB_STATUS_MAP(X)
#undef X
        [STATUS_WORDS_UNKNOWN] = "UNKNOWN",
};

const struct yb_stats_label yb_stats_label_class = {
    .name = "class", .words = class_words, .count = sizeof(class_words) / sizeof(class_words[0])};
const struct yb_stats_label yb_stats_label_status = {.name = "status",
                                                     .words = status_words,
                                                     .count = sizeof(status_words) /
                                                              sizeof(status_words[0])};
const struct yb_stats_label yb_stats_label_peer = {.name = "peer", .count = YB_STATS_PEERS_MAX + 1};

_Static_assert(sizeof(status_words) / sizeof(status_words[0]) <= YB_STATS_WORDS_MAX,
               "the table of statuses has outgrown a label");

uint32_t
yb_stats_status_index(enum yb_status status)
{
    return yb_status_known((int)status) ? (uint32_t)(-(int)status) : STATUS_WORDS_UNKNOWN;
}

static const char *
kind_word(enum yb_stats_kind kind)
{
    static const char *const words[] = {
#define X(name, word) word,
        YB_STATS_KIND_MAP(X)
#undef X
    };

    return words[kind];
}

struct unit {
    const char *word;
    const char *suffix;
    uint32_t decimals;
};

static const struct unit *
unit_of(const struct metric *metric)
{
    static const struct unit units[] = {
#define X(name, word, suffix, decimals) {word, suffix, decimals},
        YB_STATS_UNIT_MAP(X)
#undef X
    };

    return &units[metric->row->unit];
}

/* Write the exported name to `name_out`. False: it does not fit. */
static bool
full_name(const struct metric *metric, char name_out[YB_STATS_NAME_MAX + 1])
{
    const char *total = metric->row->kind == YB_STATS_COUNTER ? "_total" : "";
    int length = snprintf(name_out, YB_STATS_NAME_MAX + 1, "yuebing_%s_%s%s%s", metric->module,
                          metric->row->name, unit_of(metric)->suffix, total);

    return length > 0 && (uint32_t)length <= YB_STATS_NAME_MAX;
}

enum yb_status
yb_stats_create(struct yb_stats **stats_out)
{
    struct yb_stats *stats = calloc(1, sizeof(*stats));

    YB_ASSERT(stats_out != NULL);
    if (stats == NULL) {
        return YB_NO_MEMORY;
    }
    yb_lock_init(&stats->lock, YB_LOCK_STATS);
    stats->magic = STATS_MAGIC;
    *stats_out = stats;
    return YB_OK;
}

void
yb_stats_destroy(struct yb_stats **stats_ref)
{
    struct yb_stats *stats = *stats_ref;
    uint32_t count;

    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    *stats_ref = NULL;
    count = atomic_load_explicit(&stats->shards_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(munmap(stats->shards[i], sizeof(*stats->shards[i])) == 0);
    }
    stats->magic = 0;
    yb_lock_fini(&stats->lock);
    free(stats);
}

/* ---- registration ---- */

static bool
name_valid(const char *name)
{
    if (name == NULL || name[0] < 'a' || name[0] > 'z') {
        return false;
    }
    for (const char *at = name; *at != '\0'; at++) {
        bool letter = *at >= 'a' && *at <= 'z';
        bool digit = *at >= '0' && *at <= '9';

        if (!letter && !digit && *at != '_') {
            return false;
        }
    }
    return true;
}

/* Words and help are written between quotes or to the end of a line, without escapes. */
static bool
text_valid(const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\') {
            return false;
        }
    }
    return true;
}

static bool
label_valid(const struct yb_stats_label *label)
{
    if (label == &yb_stats_label_peer) {
        return true;
    }
    if (!name_valid(label->name) || strcmp(label->name, "le") == 0) {
        return false;
    }
    if (label->words == NULL || label->count == 0 || label->count > YB_STATS_WORDS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < label->count; i++) {
        if (!text_valid(label->words[i])) {
            return false;
        }
    }
    return true;
}

static bool
row_valid(const struct yb_stats_metric *row)
{
    const struct yb_stats_label *a = row->labels[0];
    const struct yb_stats_label *b = row->labels[1];

    if (!name_valid(row->name) || !text_valid(row->help)) {
        return false;
    }
    if ((a == NULL && b != NULL) || (a != NULL && !label_valid(a))) {
        return false;
    }
    return b == NULL || (label_valid(b) && strcmp(a->name, b->name) != 0);
}

static struct metric
metric_of_row(const struct yb_stats *stats, const char *module, const struct yb_stats_metric *row)
{
    struct metric metric = {
        .stats = stats,
        .row = row,
        .module = module,
        .cells_each = row->kind == YB_STATS_HISTOGRAM ? HISTOGRAM_CELLS : 1,
        .count_a = row->labels[0] == NULL ? 1 : row->labels[0]->count,
        .count_b = row->labels[1] == NULL ? 1 : row->labels[1]->count,
    };

    return metric;
}

static bool
name_taken_locked(const struct yb_stats *stats, uint32_t count, const char *name)
{
    char other[YB_STATS_NAME_MAX + 1];

    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(full_name(&stats->metrics[i], other));
        if (strcmp(name, other) == 0) {
            return true;
        }
    }
    return false;
}

/* Write the rows behind the metrics that readers know of. They become real only when
 * metrics_count is stored, so a failure half way leaves nothing. */
static enum yb_status
place_rows_locked(struct yb_stats *stats, const struct module *module, uint32_t *cells_out)
{
    uint64_t cells = stats->cells_used;
    char name[YB_STATS_NAME_MAX + 1];

    yb_lock_assert_held(&stats->lock);
    for (uint32_t i = 0; i < module->count; i++) {
        struct metric metric;

        if (!row_valid(&module->rows[i])) {
            return YB_INVALID;
        }
        metric = metric_of_row(stats, module->name, &module->rows[i]);
        metric.first_cell = (uint32_t)cells;
        cells += (uint64_t)metric.cells_each * metric.count_a * metric.count_b;
        if (cells > YB_STATS_CELLS_MAX || !full_name(&metric, name)) {
            return YB_TOO_LARGE;
        }
        if (name_taken_locked(stats, module->first + i, name)) {
            return YB_EXISTS; /* S4 */
        }
        stats->metrics[module->first + i] = metric;
    }
    *cells_out = (uint32_t)cells;
    return YB_OK;
}

static enum yb_status
register_locked(struct yb_stats *stats, const struct module *wanted, uint32_t *first_out)
{
    struct module module = *wanted;
    uint32_t cells;
    enum yb_status status;

    for (uint32_t i = 0; i < stats->modules_count; i++) {
        const struct module *known = &stats->modules[i];

        if (strcmp(known->name, module.name) == 0) {
            bool same = known->rows == module.rows && known->count == module.count;

            *first_out = same ? known->first : *first_out;
            return same ? YB_OK : YB_EXISTS;
        }
    }
    module.first = atomic_load_explicit(&stats->metrics_count, memory_order_relaxed);
    if (stats->modules_count == YB_STATS_MODULES_MAX ||
        module.count > YB_STATS_METRICS_MAX - module.first) {
        return YB_TOO_LARGE;
    }
    status = place_rows_locked(stats, &module, &cells);
    if (status != YB_OK) {
        return status;
    }
    stats->cells_used = cells;
    stats->modules[stats->modules_count++] = module;
    atomic_store_explicit(&stats->metrics_count, module.first + module.count, memory_order_release);
    *first_out = module.first;
    return YB_OK;
}

enum yb_status
yb_stats_register(struct yb_stats *stats, const char *module, const struct yb_stats_metric *metrics,
                  uint32_t count, uint32_t *first_out)
{
    struct module wanted = {.name = module, .rows = metrics, .count = count};
    enum yb_status status;

    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    YB_ASSERT(metrics != NULL && first_out != NULL);
    if (!name_valid(module) || count == 0) {
        return YB_INVALID;
    }
    yb_lock_acquire(&stats->lock);
    status = register_locked(stats, &wanted, first_out);
    yb_lock_release(&stats->lock);
    return status;
}

/* ---- peers ---- */

/* Copy a name as it may be exported. */
static void
take_name(char *out, const char *name)
{
    size_t length = strnlen(name, YB_STATS_PEER_BYTES - 1);

    for (size_t i = 0; i < length; i++) {
        const char letter[] = {name[i], '\0'};

        out[i] = text_valid(letter) ? name[i] : '_';
    }
    out[length] = '\0';
}

static uint32_t
find_peer(const struct yb_stats *stats, const char *name, uint32_t count)
{
    uint32_t at = 0;

    while (at < count && strcmp(stats->peers[at], name) != 0) {
        at++;
    }
    return at;
}

uint32_t
yb_stats_peer(struct yb_stats *stats, const char *name)
{
    char wanted[YB_STATS_PEER_BYTES];
    uint32_t count = atomic_load_explicit(&stats->peers_count, memory_order_acquire);
    uint32_t at;

    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    take_name(wanted, name);
    at = find_peer(stats, wanted, count);
    if (at < count) {
        return at;
    }
    yb_lock_acquire(&stats->lock);
    count = atomic_load_explicit(&stats->peers_count, memory_order_relaxed);
    at = find_peer(stats, wanted, count < YB_STATS_PEERS_MAX ? count : YB_STATS_PEERS_MAX);
    if (at == count) { /* S5 */
        (void)snprintf(stats->peers[at], YB_STATS_PEER_BYTES, "%s",
                       at < YB_STATS_PEERS_MAX ? wanted : "others");
        atomic_store_explicit(&stats->peers_count, count + 1, memory_order_release);
    }
    yb_lock_release(&stats->lock);
    return at;
}

/* Return the word of a metric's label; NULL: nobody has asked for that peer. */
static const char *
word_of(const struct metric *metric, uint32_t label, uint32_t value)
{
    const struct yb_stats *stats = metric->stats;

    if (metric->row->labels[label] != &yb_stats_label_peer) {
        return metric->row->labels[label]->words[value];
    }
    return value < atomic_load_explicit(&stats->peers_count, memory_order_acquire)
               ? stats->peers[value]
               : NULL;
}

static bool
is_shown(const struct metric *metric, const uint32_t values[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        if (metric->row->labels[i] != NULL && word_of(metric, i, values[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* ---- shards ---- */

static struct yb_stats_shard *
find_free_shard_locked(struct yb_stats *stats, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!stats->shards[i]->taken) {
            return stats->shards[i];
        }
    }
    return NULL;
}

static enum yb_status
take_shard_locked(struct yb_stats *stats, struct yb_stats_shard **shard_out)
{
    uint32_t count = atomic_load_explicit(&stats->shards_count, memory_order_relaxed);
    struct yb_stats_shard *shard = find_free_shard_locked(stats, count);

    if (shard == NULL && count == YB_STATS_SHARDS_MAX) {
        return YB_TOO_LARGE;
    }
    if (shard == NULL) {
        shard = mmap(NULL, sizeof(*shard), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (shard == MAP_FAILED) {
            return YB_NO_MEMORY;
        }
        shard->magic = SHARD_MAGIC;
        shard->stats = stats;
        stats->shards[count] = shard;
        atomic_store_explicit(&stats->shards_count, count + 1, memory_order_release);
    }
    shard->taken = true;
    atomic_store_explicit(&shard->owner, 0, memory_order_relaxed);
    *shard_out = shard;
    return YB_OK;
}

enum yb_status
yb_stats_shard_take(struct yb_stats *stats, struct yb_stats_shard **shard_out)
{
    enum yb_status status;

    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    YB_ASSERT(shard_out != NULL);
    yb_lock_acquire(&stats->lock);
    status = take_shard_locked(stats, shard_out);
    yb_lock_release(&stats->lock);
    return status;
}

void
yb_stats_shard_release(struct yb_stats_shard **shard_ref)
{
    struct yb_stats_shard *shard = *shard_ref;

    YB_ASSERT_OBJ(shard, SHARD_MAGIC);
    *shard_ref = NULL;
    yb_lock_acquire(&shard->stats->lock);
    YB_ASSERT(shard->taken);
    shard->taken = false; /* S2: the words stay. */
    yb_lock_release(&shard->stats->lock);
}

void
yb_stats_shard_hand_over(struct yb_stats_shard *shard)
{
    if (shard != NULL) {
        YB_ASSERT_OBJ(shard, SHARD_MAGIC);
        atomic_store_explicit(&shard->owner, 0, memory_order_relaxed);
    }
}

/* ---- writing ---- */

/* A histogram's words in a shard are a struct yb_histogram, which has no other members. */
static struct yb_histogram *
histogram_at(struct yb_stats_shard *shard, uint32_t cell)
{
    size_t offset = offsetof(struct yb_stats_shard, cells) + cell * sizeof(uint64_t);

    return (struct yb_histogram *)((char *)shard + offset);
}

/* Return the first word of a series, counted from the start of any shard. */
static uint32_t
cell_index(const struct yb_stats *stats, uint32_t number, enum yb_stats_kind kind, uint32_t a,
           uint32_t b)
{
    const struct metric *metric = &stats->metrics[number];

    YB_ASSERT(number < atomic_load_explicit(&stats->metrics_count, memory_order_acquire));
    YB_ASSERT(metric->row->kind == kind);
    YB_ASSERT(a < metric->count_a && b < metric->count_b);
    return metric->first_cell + (a * metric->count_b + b) * metric->cells_each;
}

#ifdef YB_DEBUG
/* The first write after taking the shard, or its handing over, makes the writer its owner. */
static bool
owned_by_caller(struct yb_stats_shard *shard)
{
    uintptr_t caller = (uintptr_t)pthread_self();
    uintptr_t owner = 0;

    return atomic_compare_exchange_strong_explicit(&shard->owner, &owner, caller,
                                                   memory_order_relaxed, memory_order_relaxed) ||
           owner == caller;
}
#endif

/* The same, before the caller writes to the shard. */
static uint32_t
cell_to_write(struct yb_stats_shard *shard, uint32_t number, enum yb_stats_kind kind, uint32_t a,
              uint32_t b)
{
    YB_ASSERT_OBJ(shard, SHARD_MAGIC);
#ifdef YB_DEBUG
    YB_ASSERT(owned_by_caller(shard)); /* S1 */
#endif
    return cell_index(shard->stats, number, kind, a, b);
}

void
yb_stats_add_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                uint64_t delta)
{
    _Atomic uint64_t *cell;

    if (shard == NULL) {
        return;
    }
    cell = &shard->cells[cell_to_write(shard, metric, YB_STATS_COUNTER, a, b)];
    atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + delta,
                          memory_order_relaxed);
}

void
yb_stats_add(struct yb_stats_shard *shard, uint32_t metric, uint64_t delta)
{
    yb_stats_add_at(shard, metric, 0, 0, delta);
}

void
yb_stats_set_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                int64_t value)
{
    if (shard != NULL) {
        uint32_t cell = cell_to_write(shard, metric, YB_STATS_GAUGE, a, b);

        atomic_store_explicit(&shard->cells[cell], (uint64_t)value, memory_order_relaxed);
    }
}

void
yb_stats_set(struct yb_stats_shard *shard, uint32_t metric, int64_t value)
{
    yb_stats_set_at(shard, metric, 0, 0, value);
}

void
yb_stats_adjust_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                   int64_t delta)
{
    _Atomic uint64_t *cell;

    if (shard == NULL) {
        return;
    }
    cell = &shard->cells[cell_to_write(shard, metric, YB_STATS_GAUGE, a, b)];
    /* Two's complement: what one shard takes from another's part cancels in the sum. */
    atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + (uint64_t)delta,
                          memory_order_relaxed);
}

void
yb_stats_adjust(struct yb_stats_shard *shard, uint32_t metric, int64_t delta)
{
    yb_stats_adjust_at(shard, metric, 0, 0, delta);
}

void
yb_stats_observe_at(struct yb_stats_shard *shard, uint32_t metric, uint32_t a, uint32_t b,
                    uint64_t value)
{
    if (shard != NULL) {
        uint32_t cell = cell_to_write(shard, metric, YB_STATS_HISTOGRAM, a, b);

        yb_histogram_record(histogram_at(shard, cell), value);
    }
}

void
yb_stats_observe(struct yb_stats_shard *shard, uint32_t metric, uint64_t value)
{
    yb_stats_observe_at(shard, metric, 0, 0, value);
}

/* ---- reading ---- */

static uint64_t
sum_of_shards(const struct yb_stats *stats, uint32_t cell)
{
    uint32_t count = atomic_load_explicit(&stats->shards_count, memory_order_acquire);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        sum += atomic_load_explicit(&stats->shards[i]->cells[cell], memory_order_relaxed);
    }
    return sum;
}

uint64_t
yb_stats_counter(const struct yb_stats *stats, uint32_t metric, uint32_t a, uint32_t b)
{
    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    return sum_of_shards(stats, cell_index(stats, metric, YB_STATS_COUNTER, a, b));
}

int64_t
yb_stats_gauge(const struct yb_stats *stats, uint32_t metric, uint32_t a, uint32_t b)
{
    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    return (int64_t)sum_of_shards(stats, cell_index(stats, metric, YB_STATS_GAUGE, a, b));
}

void
yb_stats_histogram(const struct yb_stats *stats, uint32_t metric, uint32_t a, uint32_t b,
                   struct yb_histogram *into)
{
    uint32_t cell;
    uint32_t count;

    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    cell = cell_index(stats, metric, YB_STATS_HISTOGRAM, a, b);
    count = atomic_load_explicit(&stats->shards_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        yb_histogram_merge(into, histogram_at(stats->shards[i], cell));
    }
}

/* ---- Prometheus ---- */

/* Edges of exported buckets in the unit that is written. */
static const uint64_t edges_count[] = {1,   2,   4,    8,    16,    32,    64,     128,
                                       256, 512, 1024, 4096, 16384, 65536, 262144, 1048576};
static const uint64_t edges_bytes[] = {256,       1024,       4096,       16384,      65536,
                                       262144,    1048576,    4194304,    16777216,   67108864,
                                       268435456, 1073741824, 4294967296, 17179869184};
static const uint64_t edges_ns[] = {
    1000,        2500,        5000,        10000,       25000,      50000,      100000,
    250000,      500000,      1000000,     2500000,     5000000,    10000000,   25000000,
    50000000,    100000000,   250000000,   500000000,   1000000000, 2500000000, 5000000000,
    10000000000, 25000000000, 50000000000, 100000000000};
static const uint64_t edges_ppm[] = {1000,   10000,  50000,  100000, 250000,  500000,
                                     750000, 900000, 950000, 990000, 1000000, 2000000};

static const uint64_t *
edges_of(enum yb_stats_unit unit, uint32_t *count_out)
{
#define EDGES(array) (*count_out = (uint32_t)(sizeof(array) / sizeof((array)[0])), (array))
    switch (unit) {
    case YB_STATS_COUNT: return EDGES(edges_count);
    case YB_STATS_BYTES: return EDGES(edges_bytes);
    case YB_STATS_NANOSECONDS: return EDGES(edges_ns);
    case YB_STATS_PARTS_PER_MILLION: return EDGES(edges_ppm);
    }
#undef EDGES
    *count_out = 0;
    return NULL;
}

enum { NUMBER_MAX = 32 };

/* Write value / 10^decimals exactly, without trailing zeros: printf of a double would round,
 * and follow the locale's decimal comma. */
static void
format_scaled(uint64_t value, uint32_t decimals, char text_out[NUMBER_MAX])
{
    uint64_t scale = 1;
    size_t length;

    for (uint32_t i = 0; i < decimals; i++) {
        scale *= 10;
    }
    if (value % scale == 0) {
        (void)snprintf(text_out, NUMBER_MAX, "%" PRIu64, value / scale);
        return;
    }
    (void)snprintf(text_out, NUMBER_MAX, "%" PRIu64 ".%0*" PRIu64, value / scale, (int)decimals,
                   value % scale);
    length = strlen(text_out);
    while (text_out[length - 1] == '0') {
        text_out[--length] = '\0';
    }
}

/* Write `name<suffix>{labels} `; `edge` is the text of `le`, or NULL. */
static void
write_series(FILE *out, const char *name, const char *suffix, const struct metric *metric,
             const uint32_t values[2], const char *edge)
{
    const char *separator = "{";

    fprintf(out, "%s%s", name, suffix);
    for (uint32_t i = 0; i < 2; i++) {
        const struct yb_stats_label *label = metric->row->labels[i];

        if (label != NULL) {
            fprintf(out, "%s%s=\"%s\"", separator, label->name, word_of(metric, i, values[i]));
            separator = ",";
        }
    }
    if (edge != NULL) {
        fprintf(out, "%sle=\"%s\"", separator, edge);
        separator = ",";
    }
    fputs(separator[0] == ',' ? "} " : " ", out);
}

static void
write_histogram(FILE *out, const char *name, const struct metric *metric, const uint32_t values[2],
                const struct yb_histogram *histogram)
{
    uint32_t decimals = unit_of(metric)->decimals;
    uint32_t edge_count;
    const uint64_t *edges = edges_of(metric->row->unit, &edge_count);
    struct yb_histogram_summary summary;
    char number[NUMBER_MAX];

    yb_histogram_summarize(histogram, &summary);
    for (uint32_t i = 0; i < edge_count; i++) {
        format_scaled(edges[i], decimals, number);
        write_series(out, name, "_bucket", metric, values, number);
        fprintf(out, "%" PRIu64 "\n", yb_histogram_count_upto(histogram, edges[i]));
    }
    write_series(out, name, "_bucket", metric, values, "+Inf");
    fprintf(out, "%" PRIu64 "\n", summary.count);
    format_scaled(summary.sum, decimals, number);
    write_series(out, name, "_sum", metric, values, NULL);
    fprintf(out, "%s\n", number);
    write_series(out, name, "_count", metric, values, NULL);
    fprintf(out, "%" PRIu64 "\n", summary.count);
}

static void
write_number(FILE *out, const char *name, const struct metric *metric, const uint32_t values[2],
             uint64_t value)
{
    bool negative = metric->row->kind == YB_STATS_GAUGE && (int64_t)value < 0;
    char number[NUMBER_MAX];

    format_scaled(negative ? 0 - value : value, unit_of(metric)->decimals, number);
    write_series(out, name, "", metric, values, NULL);
    fprintf(out, "%s%s\n", negative ? "-" : "", number);
}

static void
write_metric(FILE *out, const struct yb_stats *stats, uint32_t index)
{
    const struct metric *metric = &stats->metrics[index];
    char name[YB_STATS_NAME_MAX + 1];

    YB_ASSERT(full_name(metric, name));
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, metric->row->help, name,
            kind_word(metric->row->kind));
    for (uint32_t series = 0; series < metric->count_a * metric->count_b; series++) {
        const uint32_t values[2] = {series / metric->count_b, series % metric->count_b};

        if (!is_shown(metric, values)) {
            continue;
        }
        if (metric->row->kind == YB_STATS_HISTOGRAM) {
            struct yb_histogram merged = {0};

            yb_stats_histogram(stats, index, values[0], values[1], &merged);
            write_histogram(out, name, metric, values, &merged);
        } else {
            write_number(out, name, metric, values,
                         sum_of_shards(stats, metric->first_cell + series));
        }
    }
}

enum yb_status
yb_stats_prometheus(const struct yb_stats *stats, FILE *out)
{
    uint32_t count;

    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    YB_ASSERT(out != NULL);
    count = atomic_load_explicit(&stats->metrics_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        write_metric(out, stats, i);
    }
    return fflush(out) != 0 || ferror(out) != 0 ? YB_IO : YB_OK;
}

enum yb_status
yb_stats_prometheus_text(const struct yb_stats *stats, char **text_out, size_t *length_out)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    enum yb_status status;
    int closed;

    if (out == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_stats_prometheus(stats, out);
    closed = fclose(out);
    if (status != YB_OK || closed != 0) {
        free(text);
        return YB_NO_MEMORY;
    }
    *text_out = text;
    *length_out = length;
    return YB_OK;
}

/* ---- JSON ---- */

static json_t *
json_number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static int
set_histogram(json_t *object, const struct yb_histogram *histogram)
{
    struct yb_histogram_summary summary;
    int failed = 0;

    yb_histogram_summarize(histogram, &summary);
    failed |= json_object_set_new(object, "count", json_number(summary.count));
    failed |= json_object_set_new(object, "sum", json_number(summary.sum));
    failed |= json_object_set_new(object, "max", json_number(summary.max));
    failed |= json_object_set_new(object, "p50", json_number(summary.p50));
    failed |= json_object_set_new(object, "p99", json_number(summary.p99));
    failed |= json_object_set_new(object, "p999", json_number(summary.p999));
    return failed;
}

static int
set_labels(json_t *object, const struct metric *metric, const uint32_t values[2])
{
    json_t *labels = json_object();
    int failed = 0;

    for (uint32_t i = 0; i < 2; i++) {
        const struct yb_stats_label *label = metric->row->labels[i];

        if (label != NULL) {
            failed |= json_object_set_new(labels, label->name,
                                          json_string(word_of(metric, i, values[i])));
        }
    }
    return failed | json_object_set_new(object, "labels", labels);
}

/* Return the object of one series, or NULL: no memory. */
static json_t *
json_series(const struct yb_stats *stats, uint32_t index, uint32_t series)
{
    const struct metric *metric = &stats->metrics[index];
    const uint32_t values[2] = {series / metric->count_b, series % metric->count_b};
    json_t *object = json_object();
    char name[YB_STATS_NAME_MAX + 1];
    int failed = 0;

    YB_ASSERT(full_name(metric, name));
    failed |= json_object_set_new(object, "name", json_string(name));
    failed |= json_object_set_new(object, "kind", json_string(kind_word(metric->row->kind)));
    failed |= json_object_set_new(object, "unit", json_string(unit_of(metric)->word));
    failed |= set_labels(object, metric, values);
    if (metric->row->kind == YB_STATS_HISTOGRAM) {
        struct yb_histogram merged = {0};

        yb_stats_histogram(stats, index, values[0], values[1], &merged);
        failed |= set_histogram(object, &merged);
    } else {
        uint64_t value = sum_of_shards(stats, metric->first_cell + series);
        json_t *number = metric->row->kind == YB_STATS_GAUGE ? json_integer((json_int_t)value)
                                                             : json_number(value);

        failed |= json_object_set_new(object, "value", number);
    }
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *
yb_stats_json(const struct yb_stats *stats)
{
    json_t *array = json_array();
    uint32_t count;

    YB_ASSERT_OBJ(stats, STATS_MAGIC);
    count = atomic_load_explicit(&stats->metrics_count, memory_order_acquire);
    for (uint32_t i = 0; array != NULL && i < count; i++) {
        const struct metric *metric = &stats->metrics[i];

        for (uint32_t series = 0; series < metric->count_a * metric->count_b; series++) {
            const uint32_t values[2] = {series / metric->count_b, series % metric->count_b};

            if (is_shown(metric, values) &&
                json_array_append_new(array, json_series(stats, i, series)) != 0) {
                json_decref(array);
                return NULL;
            }
        }
    }
    return array;
}
