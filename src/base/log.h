/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h -- what happened, for the person who reads it later.
 *
 * A line is an event, written in the source, and typed fields, known at run
 * time:
 *
 *     yb_log_warn(log, "lease", "seal refused", yb_log_id("object", id),
 *                 yb_log_status("status", status), yb_log_u64("left_ms", 40));
 *
 *     2026-05-01T12:00:00.000000Z warn lease: seal refused, object 1f..a2, status LEASED,
 *     left_ms 40
 *
 * on one line; or, as JSON, {"time":...,"level":"warn","module":"lease","event":"seal
 * refused","fields":{"object":"1f..a2",...}}. Module and event are string
 * literals, so that they can be searched for and counted, and never carry
 * anything from outside. Values may: they are escaped (control characters,
 * quotes, whatever is not ASCII) and quoted unless plainly harmless, so that
 * one line of text is always one call. Long values are cut and say by how much.
 *
 * Levels: error (work was lost), warn (odd but fine), info (a few an hour),
 * debug (per object), trace (per request; compiled in with -DYB_LOG_TRACE).
 *
 * A call site that fires without end must not bury the rest. Each site may
 * write `lines_per_second` lines; what comes beyond is counted, and the site's
 * first line after that second is preceded by one that tells the count.
 *
 * The last lines that are no more than `info` are kept in memory, too, for whoever looks at the
 * process from outside (the admin port).
 *
 * Never log a secret. There is no field type for one, and a field whose name
 * ends in "secret", "password" or "credential" is written as [redacted].
 *
 * Invariants
 *   G1  One call writes at most one line of at most YB_LOG_LINE_MAX bytes, in one
 *       write(), and no byte of a value can end that line.
 *   G2  Every enabled call is counted once: emitted, suppressed or dropped.
 *   G3  A site emits at most `lines_per_second` lines in a window of one second.
 *
 * Threads   Any thread, any function. The limiter has one lock of rank LOG, held
 *           for a few loads, or while one line is kept; nothing is written under it. A caller
 *           may hold locks of a lower rank, though STYLE 4.7 asks for none.
 * Memory    A text line allocates nothing; a JSON line allocates while it is
 *           built. Strings in fields are borrowed until the call returns.
 * Time      The wall clock stamps, the monotonic clock limits; both come from
 *           the options.
 * Failure   Logging never fails and waits for nothing it can foresee: a sink
 *           without room (a full pipe or socket, a stopped terminal) loses the
 *           line, which is counted as dropped. A regular file may block as long
 *           as the disk does.
 */
#ifndef YB_BASE_LOG_H
#define YB_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_LOG_FIELDS_MAX       16u
#define YB_LOG_VALUE_MAX        256u  /* Bytes of a value before it is cut. */
#define YB_LOG_LINE_MAX         4096u /* PIPE_BUF: a pipe takes it whole or not at all. */
#define YB_LOG_SITES_MAX        1024u /* Sites beyond share one limit. */
#define YB_LOG_LINES_PER_SECOND 5u
#define YB_LOG_KEPT_MAX         64u  /* Lines kept. */
#define YB_LOG_KEPT_BYTES       256u /* Of a line's text, with its end. */

/* clang-format off */
#define YB_LOG_LEVEL_MAP(X)                       \
    X(ERROR, "error") /* Work was lost. */        \
    X(WARN,  "warn")  /* Odd but fine. */         \
    X(INFO,  "info")  /* A few an hour. */        \
    X(DEBUG, "debug") /* Per object. */           \
    X(TRACE, "trace") /* Per request. */
/* clang-format on */

enum yb_log_level {
#define X(name, word) YB_LOG_LEVEL_##name,
    YB_LOG_LEVEL_MAP(X)
#undef X
        YB_LOG_LEVELS,
};

enum yb_log_format { YB_LOG_TEXT, YB_LOG_JSON };

struct yb_log;

struct yb_log_options {
    int fd; /* Where lines go; borrowed until destroy. */
    enum yb_log_format format;
    enum yb_log_level level;      /* The least important level that is written. */
    uint32_t lines_per_second;    /* Per call site. Zero: YB_LOG_LINES_PER_SECOND. */
    const struct yb_clock *clock; /* Borrowed until destroy. */
};

struct yb_log_counts {
    uint64_t emitted[YB_LOG_LEVELS];
    uint64_t suppressed[YB_LOG_LEVELS]; /* By the limit of their site. */
    uint64_t dropped;                   /* The sink had no room, or no memory for JSON. */
    uint64_t notices;                   /* Lines about suppression, not counted above. */
};

/* Return the word of a level, "unknown" outside the table: a static string. */
const char *yb_log_level_name(enum yb_log_level level);

/* Read a word such as "warn". False, with *level_out untouched: there is no such level. */
bool yb_log_level_parse(const char *word, enum yb_log_level *level_out);

/* Create a log. On OK, *log_out is owned by the caller, who passes it to destroy. Fails with
 * INVALID (an option outside its range) or NO_MEMORY; *log_out is then untouched. */
YB_CHECKED enum yb_status yb_log_create(const struct yb_log_options *options,
                                        struct yb_log **log_out);

/* Tell what is still suppressed, consume the log and set *log to NULL. No thread may use it
 * any more. */
void yb_log_destroy(struct yb_log **log);

/* Change the level, from any thread, at once. */
void yb_log_set_level(struct yb_log *log, enum yb_log_level level);

/* Return whether lines of `level` are written. False for a NULL log. */
bool yb_log_enabled(const struct yb_log *log, enum yb_log_level level);

/* Write one line for each site that has suppressed lines in a second that has passed: for a
 * timer, so that a site that fell silent is told about too. */
void yb_log_report_suppressed(struct yb_log *log);

/* A line that was written, errors, warnings and info alone. */
struct yb_log_kept {
    uint64_t number; /* 1 for the first of the process, and so on. */
    uint64_t wall_ns;
    enum yb_log_level level;
    char text[YB_LOG_KEPT_BYTES]; /* "module: event, name value, ...", cut where it is longer. */
};

/* Copy what is kept of the lines after number `after`, at most `count_max`, oldest first, and
 * return how many. A NULL log has none. */
uint32_t yb_log_recent(struct yb_log *log, uint64_t after, struct yb_log_kept *kept_out,
                       uint32_t count_max);

/* Fill in every field of *counts_out. */
void yb_log_counts(const struct yb_log *log, struct yb_log_counts *counts_out);

/* ---- fields ---- */

enum yb_log_type {
    YB_LOG_NONE,
    YB_LOG_U64,
    YB_LOG_I64,
    YB_LOG_BOOL,
    YB_LOG_STRING,
    YB_LOG_ID,
};

/* Made by the functions below, not by hand. */
struct yb_log_field {
    const char *name;
    enum yb_log_type type;
    size_t length; /* Of a string. */
    union {
        uint64_t u64;
        int64_t i64;
        bool boolean;
        const char *string;
        struct yb_id id;
    } value;
};

/* Names are words of the source: lower case, the unit last. In JSON an integer above
 * 2^63 - 1 is a string of its digits. */
static inline struct yb_log_field
yb_log_u64(const char *name, uint64_t value)
{
    return (struct yb_log_field){.name = name, .type = YB_LOG_U64, .value.u64 = value};
}

static inline struct yb_log_field
yb_log_i64(const char *name, int64_t value)
{
    return (struct yb_log_field){.name = name, .type = YB_LOG_I64, .value.i64 = value};
}

static inline struct yb_log_field
yb_log_bool(const char *name, bool value)
{
    return (struct yb_log_field){.name = name, .type = YB_LOG_BOOL, .value.boolean = value};
}

/* `length` bytes, with or without NULs among them. */
static inline struct yb_log_field
yb_log_bytes(const char *name, const void *bytes, size_t length)
{
    return (struct yb_log_field){
        .name = name, .type = YB_LOG_STRING, .length = length, .value.string = (const char *)bytes};
}

/* A NULL string is written as "(none)". */
static inline struct yb_log_field
yb_log_str(const char *name, const char *string)
{
    const char *shown = string == NULL ? "(none)" : string;

    return yb_log_bytes(name, shown, strlen(shown));
}

static inline struct yb_log_field
yb_log_status(const char *name, enum yb_status status)
{
    return yb_log_str(name, yb_status_name(status));
}

static inline struct yb_log_field
yb_log_id(const char *name, struct yb_id id)
{
    return (struct yb_log_field){.name = name, .type = YB_LOG_ID, .value.id = id};
}

/* The system's sentence for `error`, as field "error"; its number where there is none. */
struct yb_log_field yb_log_errno(int error);

/* ---- calls ---- */

/* One place in the source that logs; the limiter's key is its address. */
struct yb_log_site {
    enum yb_log_level level;
    const char *module;
    const char *event;
};

/* What the macros call: write one line unless the site's limit is reached. */
void yb_log_write(struct yb_log *log, const struct yb_log_site *site,
                  const struct yb_log_field *fields, uint32_t count);

/* The empty strings refuse anything but literals; the leading entry allows for no fields. */
#define YB_LOG_AT(log_, level_, module_, event_, ...)                                           \
    do {                                                                                        \
        static const struct yb_log_site yb_log_site_ = {(level_), "" module_ "", "" event_ ""}; \
        struct yb_log *yb_log_to_ = (log_);                                                     \
                                                                                                \
        if (yb_log_enabled(yb_log_to_, (level_))) {                                             \
            const struct yb_log_field yb_log_fields_[] = {{.name = NULL}, __VA_ARGS__};         \
            enum { yb_log_count_ = sizeof(yb_log_fields_) / sizeof(yb_log_fields_[0]) - 1 };    \
                                                                                                \
            _Static_assert(yb_log_count_ <= YB_LOG_FIELDS_MAX, "too many fields in one line");  \
            yb_log_write(yb_log_to_, &yb_log_site_, yb_log_fields_ + 1, yb_log_count_);         \
        }                                                                                       \
    } while (0)

/* yb_log_warn(log, "module", "lower-case event", fields...). `log` may be NULL: no line. */
#define yb_log_error(log, module, ...) YB_LOG_AT(log, YB_LOG_LEVEL_ERROR, module, __VA_ARGS__, )
#define yb_log_warn(log, module, ...)  YB_LOG_AT(log, YB_LOG_LEVEL_WARN, module, __VA_ARGS__, )
#define yb_log_info(log, module, ...)  YB_LOG_AT(log, YB_LOG_LEVEL_INFO, module, __VA_ARGS__, )
#define yb_log_debug(log, module, ...) YB_LOG_AT(log, YB_LOG_LEVEL_DEBUG, module, __VA_ARGS__, )

/* Without YB_LOG_TRACE the line is checked by the compiler and costs nothing. */
#ifdef YB_LOG_TRACE
#define yb_log_trace(log, module, ...) YB_LOG_AT(log, YB_LOG_LEVEL_TRACE, module, __VA_ARGS__, )
#else
#define yb_log_trace(log, module, ...)                                 \
    do {                                                               \
        if (0) {                                                       \
            YB_LOG_AT(log, YB_LOG_LEVEL_TRACE, module, __VA_ARGS__, ); \
        }                                                              \
    } while (0)
#endif

#endif /* YB_BASE_LOG_H */
