/* SPDX-License-Identifier: Apache-2.0
 *
 * A call passes three stations: the limiter (under the lock), the formatter
 * (on the caller's stack) and the sink (one write, no lock: the kernel keeps
 * a write of at most PIPE_BUF bytes to a pipe in one piece, and serialises
 * writes to a regular file or a socket).
 *
 * The limiter's table is keyed by the address of the call site, which keeps
 * the mutable state in the log and none of it at the site.
 */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/lock.h"

#define LOG_MAGIC 0x79626c67u

#define WINDOW_NS YB_NS_PER_S

/* Places looked at before a site is given the shared entry. */
#define PROBES_MAX 16u

/* A write interrupted by signals is repeated this often. */
#define INTERRUPTED_MAX 8

/* Every byte as \xNN, and the mark of a cut. */
#define ESCAPED_MAX (4u * YB_LOG_VALUE_MAX + 40u)

static const char cut_mark[] = " [cut]";

/* The limiter's memory of one site. */
struct entry {
    const struct yb_log_site *site; /* NULL: free; the shared entry has its own. */
    bool open;                      /* A window was ever opened. */
    uint64_t window_ns;             /* Start of the window. */
    uint32_t lines;                 /* Emitted in the window. */
    uint64_t suppressed;            /* Not told yet. */
};

struct yb_log {
    uint32_t magic;
    /* Immutable after create. */
    int fd;
    bool is_socket;
    enum yb_log_format format;
    uint32_t lines_per_second;
    const struct yb_clock *clock;

    _Atomic int level; /* Stored by set_level, loaded by every call; orders nothing else. */
    _Atomic bool torn; /* The last write stopped inside a line. */

    /* Only ever added to; read by counts. */
    _Atomic uint64_t emitted[YB_LOG_LEVELS];
    _Atomic uint64_t suppressed[YB_LOG_LEVELS];
    _Atomic uint64_t dropped;
    _Atomic uint64_t notices;

    struct yb_lock lock; /* Protects the rest. */
    struct entry entries[YB_LOG_SITES_MAX];
    struct entry shared; /* Of all sites that found no place. */
    uint64_t kept_count; /* Lines ever kept; line n is at (n - 1) % YB_LOG_KEPT_MAX. */
    struct yb_log_kept kept[YB_LOG_KEPT_MAX];
};

static const struct yb_log_site shared_site = {
    .level = YB_LOG_LEVEL_WARN, .module = "log", .event = "several call sites"};

/* A line under construction. It starts at bytes[1]; bytes[0] is the newline that ends a torn
 * line before it. */
struct line {
    size_t length;
    bool cut;
    char bytes[1 + YB_LOG_LINE_MAX];
};

const char *
yb_log_level_name(enum yb_log_level level)
{
    switch (level) {
#define X(name, word) \
    case YB_LOG_LEVEL_##name: return word;
        YB_LOG_LEVEL_MAP(X)
#undef X
    default: return "unknown";
    }
}

bool
yb_log_level_parse(const char *word, enum yb_log_level *level_out)
{
#define X(name, text)                     \
    if (strcmp(word, text) == 0) {        \
        *level_out = YB_LOG_LEVEL_##name; \
        return true;                      \
    }
    YB_LOG_LEVEL_MAP(X)
#undef X
    return false;
}

struct yb_log_field
yb_log_errno(int error)
{
    const char *sentence = strerrordesc_np(error);

    return sentence == NULL ? yb_log_i64("error", error) : yb_log_str("error", sentence);
}

enum yb_status
yb_log_create(const struct yb_log_options *options, struct yb_log **log_out)
{
    struct yb_log *log;
    struct stat info;

    YB_ASSERT(options != NULL && log_out != NULL);
    if (options->clock == NULL || options->fd < 0 || fstat(options->fd, &info) != 0) {
        return YB_INVALID;
    }
    if ((uint32_t)options->level >= YB_LOG_LEVELS || (uint32_t)options->format > YB_LOG_JSON) {
        return YB_INVALID;
    }
    log = calloc(1, sizeof(*log));
    if (log == NULL) {
        return YB_NO_MEMORY;
    }
    log->fd = options->fd;
    log->is_socket = S_ISSOCK(info.st_mode);
    log->format = options->format;
    log->lines_per_second =
        options->lines_per_second == 0 ? YB_LOG_LINES_PER_SECOND : options->lines_per_second;
    log->clock = options->clock;
    log->shared.site = &shared_site;
    atomic_store_explicit(&log->level, (int)options->level, memory_order_relaxed);
    yb_lock_init(&log->lock, YB_LOCK_LOG);
    log->magic = LOG_MAGIC;
    *log_out = log;
    return YB_OK;
}

void
yb_log_set_level(struct yb_log *log, enum yb_log_level level)
{
    YB_ASSERT_OBJ(log, LOG_MAGIC);
    YB_ASSERT((uint32_t)level < YB_LOG_LEVELS);
    atomic_store_explicit(&log->level, (int)level, memory_order_relaxed);
}

bool
yb_log_enabled(const struct yb_log *log, enum yb_log_level level)
{
    if (log == NULL) {
        return false;
    }
    YB_ASSERT_OBJ(log, LOG_MAGIC);
    return (int)level <= atomic_load_explicit(&log->level, memory_order_relaxed);
}

static void
count_one(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

void
yb_log_counts(const struct yb_log *log, struct yb_log_counts *counts_out)
{
    YB_ASSERT_OBJ(log, LOG_MAGIC);
    for (uint32_t i = 0; i < YB_LOG_LEVELS; i++) {
        counts_out->emitted[i] = atomic_load_explicit(&log->emitted[i], memory_order_relaxed);
        counts_out->suppressed[i] = atomic_load_explicit(&log->suppressed[i], memory_order_relaxed);
    }
    counts_out->dropped = atomic_load_explicit(&log->dropped, memory_order_relaxed);
    counts_out->notices = atomic_load_explicit(&log->notices, memory_order_relaxed);
}

/* ---- values ---- */

/* Characters that cannot be taken for the punctuation of a line. */
static bool
is_plain(char byte)
{
    bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    bool digit = byte >= '0' && byte <= '9';

    return letter || digit || (byte != '\0' && strchr("_.:/@+%-[]()", byte) != NULL);
}

/* Write `byte` as printable ASCII that cannot end a quoted string; return the length. */
static size_t
escape_byte(unsigned char byte, char text_out[5])
{
    static const char digits[] = "0123456789abcdef";
    static const char short_of[][2] = {
        {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}, {'"', '"'}, {'\\', '\\'}};

    for (size_t i = 0; i < sizeof(short_of) / sizeof(short_of[0]); i++) {
        if (byte == (unsigned char)short_of[i][0]) {
            text_out[0] = '\\';
            text_out[1] = short_of[i][1];
            return 2;
        }
    }
    if (byte >= 0x20 && byte < 0x7f) {
        text_out[0] = (char)byte;
        return 1;
    }
    text_out[0] = '\\';
    text_out[1] = 'x';
    text_out[2] = digits[byte >> 4];
    text_out[3] = digits[byte & 15];
    return 4;
}

/* Escape at most YB_LOG_VALUE_MAX bytes into `text_out`; return the length. */
static size_t
escape(const char *string, size_t length, char text_out[ESCAPED_MAX])
{
    size_t at = 0;

    YB_ASSERT(length <= YB_LOG_VALUE_MAX);
    for (size_t i = 0; i < length; i++) {
        at += escape_byte((unsigned char)string[i], text_out + at);
    }
    return at;
}

/* Return how much of a value is kept: all, or what fits, without half a UTF-8 character. */
static size_t
kept_length(const char *string, size_t length)
{
    size_t kept = length;

    if (length > YB_LOG_VALUE_MAX) {
        kept = YB_LOG_VALUE_MAX;
        for (int i = 0; i < 3 && ((unsigned char)string[kept] & 0xc0) == 0x80; i++) {
            kept--;
        }
    }
    return kept;
}

static bool
is_secret(const char *name)
{
    static const char *const words[] = {"secret", "password", "credential"};
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t word = strlen(words[i]);

        if (length >= word && strcmp(name + length - word, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Return the field as it may be shown: an id as its digits in `id_text`, a secret as none. */
static struct yb_log_field
presentable(const struct yb_log_field *field, char id_text[33])
{
    YB_ASSERT(field->name != NULL);
    if (is_secret(field->name)) {
        return yb_log_str(field->name, "[redacted]");
    }
    if (field->type == YB_LOG_ID) {
        yb_id_format(field->value.id, id_text);
        return yb_log_str(field->name, id_text);
    }
    return *field;
}

/* 2026-05-01T12:00:00.000000Z */
static void
format_time(uint64_t wall_ns, char text_out[64])
{
    time_t seconds = (time_t)(wall_ns / YB_NS_PER_S);
    struct tm parts = {0};
    size_t length;

    (void)gmtime_r(&seconds, &parts);
    length = strftime(text_out, 40, "%Y-%m-%dT%H:%M:%S", &parts);
    (void)snprintf(text_out + length, 64 - length, ".%06" PRIu64 "Z",
                   (uint64_t)(wall_ns % YB_NS_PER_S / YB_NS_PER_US));
}

/* ---- text ---- */

/* Append, leaving room for the mark and the newline; what does not fit cuts the line there. */
static void
put(struct line *line, const char *text, size_t length)
{
    size_t room = YB_LOG_LINE_MAX - sizeof(cut_mark) - line->length;

    if (line->cut) {
        return;
    }
    if (length > room) {
        length = room;
        line->cut = true;
    }
    memcpy(line->bytes + 1 + line->length, text, length);
    line->length += length;
}

static void
put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static void
put_string(struct line *line, const char *string, size_t length)
{
    size_t kept = kept_length(string, length);
    bool plain = length > 0 && kept == length;
    char text[ESCAPED_MAX];

    for (size_t i = 0; plain && i < kept; i++) {
        plain = is_plain(string[i]);
    }
    if (plain) {
        put(line, string, kept);
        return;
    }
    put(line, "\"", 1);
    put(line, text, escape(string, kept, text));
    put(line, "\"", 1);
    if (kept < length) {
        /* Outside the quotes, where no value can write it. */
        (void)snprintf(text, sizeof(text), "[+%zu bytes]", length - kept);
        put_text(line, text);
    }
}

static void
put_field(struct line *line, const struct yb_log_field *given)
{
    char id_text[33];
    struct yb_log_field field = presentable(given, id_text);
    char number[32];

    put_text(line, ", ");
    put_text(line, field.name);
    put_text(line, " ");
    switch (field.type) {
    case YB_LOG_U64:
        (void)snprintf(number, sizeof(number), "%" PRIu64, field.value.u64);
        put_text(line, number);
        break;
    case YB_LOG_I64:
        (void)snprintf(number, sizeof(number), "%" PRId64, field.value.i64);
        put_text(line, number);
        break;
    case YB_LOG_BOOL: put_text(line, field.value.boolean ? "true" : "false"); break;
    case YB_LOG_STRING: put_string(line, field.value.string, field.length); break;
    case YB_LOG_ID:
    case YB_LOG_NONE: YB_ASSERT(field.type == YB_LOG_STRING); /* Not made by a function. */
    }
}

static void
put_event(struct line *line, const struct yb_log_site *site, const struct yb_log_field *fields,
          uint32_t count)
{
    put_text(line, site->module);
    put_text(line, ": ");
    put_text(line, site->event);
    for (uint32_t i = 0; i < count; i++) {
        put_field(line, &fields[i]);
    }
}

static void
format_text(struct line *line, const struct yb_log_site *site, const char *time,
            const struct yb_log_field *fields, uint32_t count)
{
    put_text(line, time);
    put_text(line, " ");
    put_text(line, yb_log_level_name(site->level));
    put_text(line, " ");
    put_event(line, site, fields, count);
    if (line->cut) {
        memcpy(line->bytes + 1 + line->length, cut_mark, sizeof(cut_mark) - 1);
        line->length += sizeof(cut_mark) - 1;
    }
}

/* ---- JSON ---- */

/* Strings that are no UTF-8 are escaped like text, for JSON has no other way to carry them. */
static json_t *
json_of_string(const char *string, size_t length)
{
    size_t kept = kept_length(string, length);
    char text[ESCAPED_MAX];
    size_t used = kept;
    json_t *value = json_stringn(string, kept);

    if (value != NULL && kept == length) {
        return value;
    }
    if (value == NULL) {
        used = escape(string, kept, text);
    } else {
        memcpy(text, string, kept);
    }
    json_decref(value);
    if (kept < length) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "[+%zu bytes]", length - kept);
    }
    return json_stringn(text, used);
}

static json_t *
json_of_field(const struct yb_log_field *field)
{
    char number[32];

    switch (field->type) {
    case YB_LOG_U64:
        if (field->value.u64 > INT64_MAX) {
            (void)snprintf(number, sizeof(number), "%" PRIu64, field->value.u64);
            return json_string(number);
        }
        return json_integer((json_int_t)field->value.u64);
    case YB_LOG_I64: return json_integer(field->value.i64);
    case YB_LOG_BOOL: return json_boolean(field->value.boolean);
    case YB_LOG_STRING: return json_of_string(field->value.string, field->length);
    case YB_LOG_ID:
    case YB_LOG_NONE: break;
    }
    return NULL;
}

/* Return the line with the first `shown` of `count` fields. NULL: no memory. */
static json_t *
json_of_line(const struct yb_log_site *site, const char *time, const struct yb_log_field *fields,
             uint32_t shown, uint32_t count)
{
    json_t *object = json_object();
    json_t *values = json_object();
    int failed = 0;

    for (uint32_t i = 0; i < shown; i++) {
        char id_text[33];
        struct yb_log_field field = presentable(&fields[i], id_text);

        failed |= json_object_set_new(values, field.name, json_of_field(&field));
    }
    failed |= json_object_set_new(object, "time", json_string(time));
    failed |= json_object_set_new(object, "level", json_string(yb_log_level_name(site->level)));
    failed |= json_object_set_new(object, "module", json_string(site->module));
    failed |= json_object_set_new(object, "event", json_string(site->event));
    failed |= json_object_set_new(object, "fields", values);
    if (shown < count) {
        failed |= json_object_set_new(object, "fields_cut", json_integer(count - shown));
    }
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* A line too long gives up fields from the end until it fits, for half an object is no JSON.
 * False: no memory. */
static bool
format_json(struct line *line, const struct yb_log_site *site, const char *time,
            const struct yb_log_field *fields, uint32_t count)
{
    size_t room = YB_LOG_LINE_MAX - 1;

    for (uint32_t shown = count;; shown--) {
        json_t *object = json_of_line(site, time, fields, shown, count);
        size_t length;

        if (object == NULL) {
            return false;
        }
        length = json_dumpb(object, line->bytes + 1, room, JSON_COMPACT | JSON_ENSURE_ASCII);
        json_decref(object);
        if (length == 0 || (length > room && shown == 0)) {
            return false;
        }
        if (length <= room) {
            line->length = length;
            return true;
        }
    }
}

/* ---- the sink ---- */

/* Write without waiting, as far as the kernel lets one ask for that: a socket by a flag, the
 * rest by asking for room first. Not O_NONBLOCK, which would change the descriptor for every
 * process that shares it. A pipe whose reader is gone reports an error and is not written. */
static ssize_t
write_once(const struct yb_log *log, const char *bytes, size_t length)
{
    struct pollfd ready = {.fd = log->fd, .events = POLLOUT};

    if (log->is_socket) {
        return send(log->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) {
        return -1;
    }
    return write(log->fd, bytes, length);
}

/* Write the finished line. False: it was dropped, whole or in part. */
static bool
sink_line(struct yb_log *log, struct line *line)
{
    bool torn = atomic_load_explicit(&log->torn, memory_order_relaxed);
    const char *bytes = torn ? line->bytes : line->bytes + 1;
    size_t length;
    ssize_t written = -1;

    line->bytes[0] = '\n';
    line->bytes[1 + line->length++] = '\n';
    length = line->length + (torn ? 1u : 0u);
    YB_ASSERT(line->length <= YB_LOG_LINE_MAX); /* G1 */
    for (int i = 0; i < INTERRUPTED_MAX; i++) {
        errno = 0;
        written = write_once(log, bytes, length);
        if (written >= 0 || errno != EINTR) {
            break;
        }
    }
    if (written > 0) {
        atomic_store_explicit(&log->torn, (size_t)written < length, memory_order_relaxed);
    }
    return written == (ssize_t)length;
}

/* ---- what is kept ---- */

static void
keep(struct yb_log *log, const struct yb_log_site *site, const struct yb_log_field *fields,
     uint32_t count, uint64_t wall_ns)
{
    struct yb_log_kept *kept;
    struct line line;
    size_t length;

    line.length = 0;
    line.cut = false;
    put_event(&line, site, fields, count);
    length = line.length < YB_LOG_KEPT_BYTES ? line.length : YB_LOG_KEPT_BYTES - 1;
    yb_lock_acquire(&log->lock);
    kept = &log->kept[log->kept_count++ % YB_LOG_KEPT_MAX];
    kept->number = log->kept_count;
    kept->wall_ns = wall_ns;
    kept->level = site->level;
    memcpy(kept->text, line.bytes + 1, length);
    kept->text[length] = '\0';
    yb_lock_release(&log->lock);
}

uint32_t
yb_log_recent(struct yb_log *log, uint64_t after, struct yb_log_kept *kept_out, uint32_t count_max)
{
    uint64_t next;
    uint32_t count = 0;

    if (log == NULL) {
        return 0;
    }
    YB_ASSERT_OBJ(log, LOG_MAGIC);
    yb_lock_acquire(&log->lock);
    next = log->kept_count > YB_LOG_KEPT_MAX ? log->kept_count - YB_LOG_KEPT_MAX : 0;
    for (next = after > next ? after : next; next < log->kept_count && count < count_max; next++) {
        kept_out[count++] = log->kept[next % YB_LOG_KEPT_MAX];
    }
    yb_lock_release(&log->lock);
    return count;
}

/* Format and write one line. False: dropped. */
static bool
emit(struct yb_log *log, const struct yb_log_site *site, const struct yb_log_field *fields,
     uint32_t count)
{
    uint64_t wall_ns = yb_clock_wall(log->clock);
    struct line line;
    char time[64];

    if (site->level <= YB_LOG_LEVEL_INFO) {
        keep(log, site, fields, count, wall_ns);
    }
    line.length = 0;
    line.cut = false;
    format_time(wall_ns, time);
    if (log->format == YB_LOG_TEXT) {
        format_text(&line, site, time, fields, count);
    } else if (!format_json(&line, site, time, fields, count)) {
        return false;
    }
    return sink_line(log, &line);
}

/* ---- the limiter ---- */

static struct entry *
entry_of_locked(struct yb_log *log, const struct yb_log_site *site)
{
    uint64_t mixed = (uint64_t)(uintptr_t)site * 0x9e3779b97f4a7c15ull;
    uint32_t home = (uint32_t)(mixed >> 32);

    yb_lock_assert_held(&log->lock);
    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        struct entry *entry = &log->entries[(home + i) % YB_LOG_SITES_MAX];

        if (entry->site == NULL) {
            entry->site = site;
        }
        if (entry->site == site) {
            return entry;
        }
    }
    return &log->shared;
}

static bool
window_over(const struct entry *entry, uint64_t now_ns)
{
    return !entry->open || now_ns >= yb_deadline_after(entry->window_ns, WINDOW_NS);
}

/* Decide about one line. *told_out: how many of a past window are to be told about first. */
static bool
admit_locked(struct yb_log *log, struct entry *entry, uint64_t now_ns, uint64_t *told_out)
{
    if (window_over(entry, now_ns)) {
        *told_out = entry->suppressed;
        entry->suppressed = 0;
        entry->open = true;
        entry->window_ns = now_ns;
        entry->lines = 0;
    }
    if (entry->lines >= log->lines_per_second) {
        entry->suppressed++;
        return false;
    }
    entry->lines++; /* G3 */
    return true;
}

static void
emit_notice(struct yb_log *log, const struct yb_log_site *site, uint64_t suppressed)
{
    const struct yb_log_site notice = {
        .level = site->level, .module = site->module, .event = "lines suppressed"};
    const struct yb_log_field fields[] = {yb_log_str("event", site->event),
                                          yb_log_u64("count", suppressed)};

    if (emit(log, &notice, fields, 2)) {
        count_one(&log->notices);
    }
}

void
yb_log_write(struct yb_log *log, const struct yb_log_site *site, const struct yb_log_field *fields,
             uint32_t count)
{
    uint64_t told = 0;
    struct entry *entry;
    const struct yb_log_site *told_site;
    uint64_t now_ns;
    bool admitted;

    if (log == NULL) {
        return;
    }
    YB_ASSERT_OBJ(log, LOG_MAGIC);
    YB_ASSERT(count <= YB_LOG_FIELDS_MAX);
    now_ns = yb_clock_now(log->clock);
    yb_lock_acquire(&log->lock);
    entry = entry_of_locked(log, site);
    told_site = entry->site;
    admitted = admit_locked(log, entry, now_ns, &told);
    yb_lock_release(&log->lock);
    if (told > 0) {
        emit_notice(log, told_site, told);
    }
    if (!admitted) {
        count_one(&log->suppressed[site->level]); /* G2 */
    } else if (emit(log, site, fields, count)) {
        count_one(&log->emitted[site->level]);
    } else {
        count_one(&log->dropped);
    }
}

/* Tell about every entry with suppressed lines whose window is over, or about all. */
static void
report(struct yb_log *log, bool all)
{
    uint64_t now_ns = yb_clock_now(log->clock);

    for (uint32_t i = 0; i <= YB_LOG_SITES_MAX; i++) {
        struct entry *entry = i < YB_LOG_SITES_MAX ? &log->entries[i] : &log->shared;
        const struct yb_log_site *site;
        uint64_t told = 0;

        yb_lock_acquire(&log->lock);
        site = entry->site;
        if (all || window_over(entry, now_ns)) {
            told = entry->suppressed;
            entry->suppressed = 0;
        }
        yb_lock_release(&log->lock);
        if (told > 0) {
            emit_notice(log, site, told);
        }
    }
}

void
yb_log_report_suppressed(struct yb_log *log)
{
    if (log != NULL) {
        YB_ASSERT_OBJ(log, LOG_MAGIC);
        report(log, false);
    }
}

void
yb_log_destroy(struct yb_log **log_ref)
{
    struct yb_log *log = *log_ref;

    YB_ASSERT_OBJ(log, LOG_MAGIC);
    *log_ref = NULL;
    report(log, true);
    log->magic = 0;
    yb_lock_fini(&log->lock);
    free(log);
}
