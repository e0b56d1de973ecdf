/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of papers: its configuration, traces and rows.
 */
#include <ini.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "sim/paper.h"

#define MAGIC        0x70617072u
#define ENTRIES_MAX  512u
#define TRACES_MAX   16u
#define CONFIG_MAX   (1u << 20)
#define ALL          "all"
#define SECTION_MAX  64u
#define TRACE_SPREAD 7u /* Seed of the spreading. */

/* papers.ini, as a string; see src/sim/meson.build. */
static const char papers_ini[] =
#include "papers_ini.h"
    ;

struct entry {
    char section[SECTION_MAX];
    char name[YB_SETTINGS_TEXT_MAX];
    char value[YB_SETTINGS_TEXT_MAX];
};

struct kept_trace {
    char name[SECTION_MAX];
    double speed;
    struct yb_trace *trace;
};

struct yb_papers {
    uint32_t magic;
    uint32_t entry_count;
    uint32_t trace_count;
    uint32_t row_count;
    uint64_t hash;
    struct entry entries[ENTRIES_MAX];
    struct kept_trace traces[TRACES_MAX];
    struct yb_paper_row rows[YB_PAPER_ROWS_MAX];
    char directory[PATH_MAX];
    char message[YB_PAPER_MESSAGE_MAX];
};

static const struct {
    const char *name;
    enum yb_status (*run)(struct yb_papers *papers);
} known[] = {
#define X(name) {#name, yb_paper_##name},
    YB_PAPER_MAP(X)
#undef X
};
#define KNOWN (sizeof(known) / sizeof(known[0]))

const char *
yb_paper_name(uint32_t index)
{
    return index < KNOWN ? known[index].name : NULL;
}

/* ---- the configuration ----------------------------------------------------------------------- */

/* Sections that hold no settings but numbers, which a paper reads itself. */
#define NUMBERS "numbers-"

/* What is no setting; a paper reads it itself. */
static bool
is_number_of_paper(const char *section, const char *name)
{
    return strcmp(name, "speed") == 0 || strncmp(section, NUMBERS, strlen(NUMBERS)) == 0;
}

static int
take_entry(void *context, const char *section, const char *name, const char *value)
{
    struct yb_papers *papers = context;
    struct yb_settings settings;
    struct entry *entry;

    if (papers->entry_count == ENTRIES_MAX || strlen(section) >= SECTION_MAX ||
        strlen(name) >= YB_SETTINGS_TEXT_MAX || strlen(value) >= YB_SETTINGS_TEXT_MAX) {
        snprintf(papers->message, sizeof(papers->message), "more or longer than 512 settings");
        return 0;
    }
    yb_settings_init(&settings);
    if (!is_number_of_paper(section, name) &&
        yb_settings_set(&settings, name, value, papers->message) != YB_OK) {
        return 0;
    }
    entry = &papers->entries[papers->entry_count++];
    snprintf(entry->section, sizeof(entry->section), "%s", section);
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    snprintf(entry->value, sizeof(entry->value), "%s", value);
    return 1;
}

enum yb_status
yb_papers_create(const char *config, const char *traces, struct yb_papers **papers_out,
                 char message[YB_PAPER_MESSAGE_MAX])
{
    const char *text = config == NULL ? papers_ini : config;
    struct yb_papers *papers = calloc(1, sizeof(*papers));
    enum yb_status status = YB_OK;
    int line = 0;

    if (papers == NULL) {
        snprintf(message, YB_PAPER_MESSAGE_MAX, "%s", yb_status_text(YB_NO_MEMORY));
        return YB_NO_MEMORY;
    }
    papers->magic = MAGIC;
    papers->hash = yb_hash_table(0, text, strlen(text));
    if (strlen(traces) >= sizeof(papers->directory) || strlen(text) > CONFIG_MAX) {
        snprintf(message, YB_PAPER_MESSAGE_MAX, "a path or the configuration is too long");
        status = YB_INVALID;
    } else {
        snprintf(papers->directory, sizeof(papers->directory), "%s", traces);
        line = ini_parse_string(text, take_entry, papers);
    }
    if (status == YB_OK && line != 0) {
        snprintf(message, YB_PAPER_MESSAGE_MAX, "configuration of papers, line %d: %.200s", line,
                 papers->message[0] == '\0' ? "not name = value" : papers->message);
        status = YB_INVALID;
    }
    if (status != YB_OK) {
        yb_papers_destroy(&papers);
        return status;
    }
    *papers_out = papers;
    return YB_OK;
}

void
yb_papers_destroy(struct yb_papers **papers)
{
    if (*papers == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*papers, MAGIC);
    for (uint32_t i = 0; i < (*papers)->trace_count; i++) {
        yb_trace_destroy(&(*papers)->traces[i].trace);
    }
    (*papers)->magic = 0;
    free(*papers);
    *papers = NULL;
}

uint64_t
yb_papers_hash(const struct yb_papers *papers)
{
    return papers->hash;
}

double
yb_paper_number(const struct yb_papers *papers, const char *section, const char *name,
                double fallback)
{
    for (uint32_t i = 0; i < papers->entry_count; i++) {
        const struct entry *entry = &papers->entries[i];

        if (strcmp(entry->section, section) == 0 && strcmp(entry->name, name) == 0) {
            return strtod(entry->value, NULL);
        }
    }
    return fallback;
}

enum yb_status
yb_paper_numbers(struct yb_papers *papers, const char *section,
                 const struct yb_paper_number *numbers)
{
    for (; numbers->name != NULL; numbers++) {
        *numbers->value_out = yb_paper_number(papers, section, numbers->name, NAN);
        if (isnan(*numbers->value_out)) {
            snprintf(papers->message, sizeof(papers->message),
                     "the configuration of papers has no number %s in [%s]", numbers->name,
                     section);
            return YB_INVALID;
        }
    }
    return YB_OK;
}

/* ---- experiments ----------------------------------------------------------------------------- */

enum yb_status
yb_paper_trace(struct yb_papers *papers, const char *name, double speed,
               const struct yb_trace **trace_out)
{
    struct yb_trace_options options = {.spread = true, .speed = speed, .seed = TRACE_SPREAD};
    struct kept_trace *kept = &papers->traces[papers->trace_count];
    char path[PATH_MAX + SECTION_MAX];
    FILE *file;
    enum yb_status status;

    for (uint32_t i = 0; i < papers->trace_count; i++) {
        if (strcmp(papers->traces[i].name, name) == 0 && papers->traces[i].speed >= speed &&
            papers->traces[i].speed <= speed) {
            *trace_out = papers->traces[i].trace;
            return YB_OK;
        }
    }
    if (papers->trace_count == TRACES_MAX) {
        snprintf(papers->message, sizeof(papers->message), "too many traces at a time");
        return YB_TOO_LARGE;
    }
    snprintf(path, sizeof(path), "%s/%s.jsonl", papers->directory, name);
    file = fopen(path, "r");
    if (file == NULL) {
        return YB_NOT_FOUND;
    }
    status = yb_trace_read(file, path, &options, &kept->trace, papers->message);
    fclose(file);
    if (status != YB_OK) {
        return status;
    }
    snprintf(kept->name, sizeof(kept->name), "%s", name);
    kept->speed = speed;
    papers->trace_count++;
    *trace_out = kept->trace;
    return YB_OK;
}

static enum yb_status
apply(struct yb_papers *papers, const char *section, struct yb_settings *settings)
{
    bool found = false;

    for (uint32_t i = 0; i < papers->entry_count; i++) {
        const struct entry *entry = &papers->entries[i];

        if (strcmp(entry->section, section) == 0 && !is_number_of_paper(section, entry->name)) {
            enum yb_status status =
                yb_settings_set(settings, entry->name, entry->value, papers->message);

            if (status != YB_OK) {
                return status;
            }
        }
        found = found || strcmp(entry->section, section) == 0;
    }
    if (!found && strcmp(section, ALL) != 0) {
        snprintf(papers->message, sizeof(papers->message),
                 "the configuration of papers has no section [%s]", section);
        return YB_INVALID;
    }
    return YB_OK;
}

/* Texts of the scenario are those of `settings`. */
static enum yb_status
scenario_of(struct yb_papers *papers, const char *section, const struct yb_paper_change *changes,
            struct yb_settings *settings, struct yb_scenario *scenario_out)
{
    enum yb_status status;

    YB_ASSERT_OBJ(papers, MAGIC);
    yb_settings_init(settings);
    status = apply(papers, ALL, settings);
    if (status == YB_OK) {
        status = apply(papers, section, settings);
    }
    for (uint32_t i = 0; status == YB_OK && changes != NULL && changes[i].name != NULL; i++) {
        status = yb_settings_set(settings, changes[i].name, changes[i].value, papers->message);
    }
    return status == YB_OK ? yb_settings_scenario(settings, NULL, scenario_out, papers->message)
                           : status;
}

enum yb_status
yb_paper_run(struct yb_papers *papers, const char *section, const struct yb_paper_change *changes,
             const struct yb_trace *trace, struct yb_result *result_out)
{
    struct yb_settings settings;
    struct yb_scenario scenario;
    enum yb_status status = scenario_of(papers, section, changes, &settings, &scenario);

    return status == YB_OK ? yb_simulator_run(&scenario, trace, result_out, papers->message)
                           : status;
}

enum yb_status
yb_paper_engine(struct yb_papers *papers, const char *section, struct yb_paper_engine *engine_out)
{
    struct yb_settings settings;
    struct yb_scenario scenario;
    enum yb_status status = scenario_of(papers, section, NULL, &settings, &scenario);

    if (status == YB_OK) {
        engine_out->cost = scenario.cost;
        engine_out->load_bytes_per_s = scenario.bytes_per_s[YB_FABRIC_BUS];
        engine_out->port_bytes_per_s = scenario.bytes_per_s[YB_FABRIC_PORT_IN];
    }
    return status;
}

/* ---- running ------------------------------------------------------------------------------- */

/* One paper, with a table of its own: what it reads is a copy, what it writes is appended later. */
struct part {
    struct yb_papers *papers;
    uint32_t index; /* Of `known`. */
    enum yb_status status;
};

struct running {
    struct part parts[KNOWN];
    uint32_t count;
    atomic_uint next; /* Part that nobody runs yet. */
    sem_t done;       /* Counts parts. */
};

static void *
run_parts(void *context)
{
    struct running *running = context;
    uint32_t at;

    while ((at = atomic_fetch_add(&running->next, 1)) < running->count) {
        struct part *part = &running->parts[at];

        part->status = known[part->index].run(part->papers);
        (void)sem_post(&running->done);
    }
    return NULL;
}

/* How many threads this process may keep busy. */
static uint32_t
cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* Run all parts; which thread runs which makes no difference to any of them. */
static void
run_side_by_side(struct running *running, yb_papers_progress_fn *progress, void *context)
{
    pthread_t threads[KNOWN];
    uint32_t wanted = cpus() < running->count ? cpus() : running->count;
    uint32_t begun = 0;

    while (begun < wanted && pthread_create(&threads[begun], NULL, run_parts, running) == 0) {
        begun++;
    }
    if (begun == 0) {
        (void)run_parts(running);
    }
    for (uint32_t i = 0; i < running->count; i++) {
        while (sem_wait(&running->done) != 0) { /* A signal came between. */
        }
        if (progress != NULL) {
            progress(context, i + 1, running->count);
        }
    }
    for (uint32_t i = 0; i < begun; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static enum yb_status
add_part(const struct yb_papers *papers, uint32_t index, struct running *running)
{
    struct yb_papers *own = calloc(1, sizeof(*own));

    if (own == NULL) {
        return YB_NO_MEMORY;
    }
    own->magic = MAGIC;
    own->entry_count = papers->entry_count;
    memcpy(own->entries, papers->entries, sizeof(own->entries));
    memcpy(own->directory, papers->directory, sizeof(own->directory));
    running->parts[running->count++] = (struct part){.papers = own, .index = index};
    return YB_OK;
}

/* Append the rows of all parts in the order of papers, up to the first that failed. */
static enum yb_status
take_rows(struct yb_papers *papers, const struct running *running)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < running->count && status == YB_OK; i++) {
        const struct yb_papers *own = running->parts[i].papers;

        for (uint32_t row = 0; row < own->row_count; row++) {
            yb_paper_add(papers, &own->rows[row]);
        }
        status = running->parts[i].status;
        memcpy(papers->message, own->message, sizeof(papers->message));
    }
    return status;
}

enum yb_status
yb_papers_run(struct yb_papers *papers, const char *name, yb_papers_progress_fn *progress,
              void *context, char message[YB_PAPER_MESSAGE_MAX])
{
    struct running running = {.count = 0};
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(papers, MAGIC);
    message[0] = '\0';
    for (uint32_t i = 0; i < KNOWN && status == YB_OK; i++) {
        if (name == NULL || strcmp(known[i].name, name) == 0) {
            status = add_part(papers, i, &running);
        }
    }
    if (status == YB_OK && running.count == 0) {
        snprintf(message, YB_PAPER_MESSAGE_MAX, "there is no paper \"%s\"",
                 name == NULL ? "" : name);
        return YB_NOT_FOUND;
    }
    if (status == YB_OK) {
        (void)sem_init(&running.done, 0, 0);
        run_side_by_side(&running, progress, context);
        (void)sem_destroy(&running.done);
        status = take_rows(papers, &running);
    }
    if (status != YB_OK) {
        snprintf(message, YB_PAPER_MESSAGE_MAX, "%s",
                 papers->message[0] != '\0' ? papers->message : yb_status_text(status));
    }
    for (uint32_t i = 0; i < running.count; i++) {
        yb_papers_destroy(&running.parts[i].papers);
    }
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

const struct yb_paper_row *
yb_papers_row(const struct yb_papers *papers, uint32_t index)
{
    return index < papers->row_count ? &papers->rows[index] : NULL;
}

void
yb_paper_add(struct yb_papers *papers, const struct yb_paper_row *row)
{
    YB_ASSERT_OBJ(papers, MAGIC);
    YB_ASSERT(papers->row_count < YB_PAPER_ROWS_MAX);
    papers->rows[papers->row_count++] = *row;
}

void
yb_paper_explain(struct yb_papers *papers, const char *reason)
{
    struct yb_paper_row *row = &papers->rows[papers->row_count - 1];

    YB_ASSERT(papers->row_count > 0);
    if (!row->ok) {
        snprintf(row->reason, sizeof(row->reason), "%s", reason);
    }
}

void
yb_paper_add_within(struct yb_papers *papers, struct yb_paper_row row, double below, double above)
{
    double difference = row.ours - row.published;

    row.ok = difference >= below && difference <= above;
    snprintf(row.tolerance, sizeof(row.tolerance), "%+.3g .. %+.3g", below, above);
    if (!row.ok) {
        snprintf(row.reason, sizeof(row.reason), "differs by %+.3g", difference);
    }
    yb_paper_add(papers, &row);
}

void
yb_paper_add_ratio(struct yb_papers *papers, struct yb_paper_row row, double share)
{
    double difference = row.ours / row.published - 1;

    row.ok = fabs(difference) <= share;
    snprintf(row.tolerance, sizeof(row.tolerance), "+/- %.3g %%", 100 * share);
    if (!row.ok) {
        snprintf(row.reason, sizeof(row.reason), "differs by %+.1f %%", 100 * difference);
    }
    yb_paper_add(papers, &row);
}

void
yb_paper_add_missing(struct yb_papers *papers, struct yb_paper_row row, const char *reason)
{
    row.ok = false;
    row.ours = 0;
    snprintf(row.tolerance, sizeof(row.tolerance), "-");
    snprintf(row.reason, sizeof(row.reason), "%s", reason);
    yb_paper_add(papers, &row);
}

/* Write the names with their values in the order given; returns whether they fall. */
static bool
describe_order(const struct yb_paper_order *order, const double *values, char *text)
{
    bool falls = true;
    size_t used = 0;

    for (uint32_t i = 0; i < order->count && used < YB_PAPER_TEXT_MAX; i++) {
        used += (size_t)snprintf(text + used, YB_PAPER_TEXT_MAX - used, "%s%s %.3g",
                                 i == 0 ? "" : " > ", order->names[i], values[i]);
        falls = falls && (i == 0 || values[i] <= values[i - 1] * (1 - order->share));
    }
    return falls;
}

void
yb_paper_add_order(struct yb_papers *papers, struct yb_paper_row row,
                   const struct yb_paper_order *order)
{
    size_t used = 0;
    bool with;
    bool without;

    YB_ASSERT(order->count > 1 && order->count <= YB_PAPER_ORDER_MAX);
    for (uint32_t i = 0; i < order->count && used < YB_PAPER_TEXT_MAX; i++) {
        used += (size_t)snprintf(row.order + used, YB_PAPER_TEXT_MAX - used, "%s%s",
                                 i == 0 ? "" : " > ", order->names[i]);
    }
    with = describe_order(order, order->with, row.seen);
    without = describe_order(order, order->without, row.without);
    row.ok = with && !without;
    snprintf(row.tolerance, sizeof(row.tolerance), "order, each by %.3g %%; not without it",
             100 * order->share);
    if (!row.ok) {
        snprintf(row.reason, sizeof(row.reason), "%s",
                 with ? "the order comes out without the mechanism too" : "another order");
    }
    yb_paper_add(papers, &row);
}
