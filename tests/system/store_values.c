/* SPDX-License-Identifier: Apache-2.0
 *
 * Words, keys, values, buffers and reports of the store's driver.
 */
#include "store_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define GUARD_BYTES 32u
#define GUARD       0xa5
#define BLANK       0xee
#define MAX_PIECE   64u /* Behind a piece that claims SIZE_MAX bytes. */
#define PIECES_MAX  16u
#define SIZES_MAX   1024u
#define SHOWN_MAX   200000u

static void *
must(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* ---- words ---------------------------------------------------------------------------------- */

void
words_split(struct words *words, char *line)
{
    char *rest = NULL;

    words->count = 0;
    words->verb = strtok_r(line, " \n", &rest);
    for (char *word = strtok_r(NULL, " \n", &rest); word != NULL && words->count < WORDS_MAX;
         word = strtok_r(NULL, " \n", &rest)) {
        char *equals = strchr(word, '=');

        if (equals == NULL) {
            continue;
        }
        *equals = '\0';
        words->names[words->count] = word;
        words->values[words->count++] = equals + 1;
    }
}

void
words_copy(struct words *copy_out, const struct words *words)
{
    copy_out->count = words->count;
    copy_out->verb = must(strdup(words->verb));
    for (uint32_t i = 0; i < words->count; i++) {
        copy_out->names[i] = must(strdup(words->names[i]));
        copy_out->values[i] = must(strdup(words->values[i]));
    }
}

void
words_free(struct words *copy)
{
    free(copy->verb);
    for (uint32_t i = 0; i < copy->count; i++) {
        free(copy->names[i]);
        free(copy->values[i]);
    }
    *copy = (struct words){0};
}

const char *
words_text(const struct words *words, const char *name, const char *otherwise)
{
    for (uint32_t i = 0; i < words->count; i++) {
        if (strcmp(words->names[i], name) == 0) {
            return words->values[i];
        }
    }
    return otherwise;
}

uint64_t
words_number(const struct words *words, const char *name, uint64_t otherwise)
{
    const char *text = words_text(words, name, NULL);

    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void
add_key(struct keys *keys, const char *text, uint32_t pad_to)
{
    size_t length = strlen(text);
    size_t padded = length < pad_to ? pad_to : length;

    if ((keys->count & (keys->count - 1)) == 0) {
        size_t room = keys->count == 0 ? 1 : 2 * (size_t)keys->count;

        keys->texts = must(realloc(keys->texts, room * sizeof(*keys->texts)));
        keys->lengths = must(realloc(keys->lengths, room * sizeof(*keys->lengths)));
    }
    keys->texts[keys->count] = must(malloc(padded + 1));
    memset(keys->texts[keys->count], 'x', padded);
    memcpy(keys->texts[keys->count], text, length);
    keys->texts[keys->count][padded] = '\0';
    keys->lengths[keys->count++] = (uint32_t)padded;
}

void
keys_parse(struct keys *keys, const char *spec, uint32_t pad_to)
{
    char *copy = must(strdup(spec));
    char *rest = NULL;

    *keys = (struct keys){0};
    for (char *one = strtok_r(copy, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
        char *colon = strrchr(one, ':');
        char *dash = colon != NULL ? strchr(colon, '-') : NULL;
        uint64_t from = colon != NULL ? strtoull(colon + 1, NULL, 10) : 0;
        uint64_t to = dash != NULL ? strtoull(dash + 1, NULL, 10) : from;

        for (uint64_t i = from; i <= to; i++) {
            char text[256];

            (void)snprintf(text, sizeof(text), "%.*s:%llu",
                           colon != NULL ? (int)(colon - one) : (int)strlen(one), one,
                           (unsigned long long)i);
            add_key(keys, text, pad_to);
        }
    }
    free(copy);
}

void
keys_make(struct keys *keys, const struct words *words)
{
    keys_parse(keys, words_text(words, "keys", ""), (uint32_t)words_number(words, "pad", 0));
}

void
keys_pick(struct keys *keys_out, const struct keys *from, uint32_t first, uint32_t count)
{
    *keys_out = (struct keys){0};
    for (uint32_t i = 0; i < count && i < from->count; i++) {
        add_key(keys_out, from->texts[(first + i) % from->count], 0);
    }
}

void
keys_free(struct keys *keys)
{
    for (uint32_t i = 0; i < keys->count; i++) {
        free(keys->texts[i]);
    }
    free(keys->texts);
    free(keys->lengths);
    *keys = (struct keys){0};
}

static uint64_t
seed_of(const char *text, uint32_t length)
{
    uint64_t seed = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < length; i++) {
        seed = (seed ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    }
    return seed;
}

/* ---- values --------------------------------------------------------------------------------- */

static uint64_t
word_at(uint64_t seed, uint64_t version, uint64_t index)
{
    uint64_t word =
        seed + version * UINT64_C(0xd6e8feb86659fd93) + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    word = (word ^ word >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return index == 0 ? version : word ^ word >> 29;
}

static uint8_t
byte_at(uint64_t seed, uint64_t version, uint64_t offset)
{
    return (uint8_t)(word_at(seed, version, offset / 8) >> offset % 8 * 8);
}

static void
value_fill(uint8_t *bytes, uint64_t length, uint64_t seed, uint64_t version, uint64_t offset)
{
    uint64_t i = 0;

    for (; i < length && (offset + i) % 8 != 0; i++) {
        bytes[i] = byte_at(seed, version, offset + i);
    }
    for (; i + 8 <= length; i += 8) {
        uint64_t word = word_at(seed, version, (offset + i) / 8);

        memcpy(bytes + i, &word, 8);
    }
    for (; i < length; i++) {
        bytes[i] = byte_at(seed, version, offset + i);
    }
}

static bool
value_is(const uint8_t *bytes, uint64_t length, uint64_t seed, uint64_t version, uint64_t offset)
{
    uint64_t i = 0;

    for (; i < length && (offset + i) % 8 != 0; i++) {
        if (bytes[i] != byte_at(seed, version, offset + i)) {
            return false;
        }
    }
    for (; i + 8 <= length; i += 8) {
        uint64_t word = word_at(seed, version, (offset + i) / 8);

        if (memcmp(bytes + i, &word, 8) != 0) {
            return false;
        }
    }
    for (; i < length; i++) {
        if (bytes[i] != byte_at(seed, version, offset + i)) {
            return false;
        }
    }
    return true;
}

/* ---- buffers -------------------------------------------------------------------------------- */

struct list {
    uint64_t values[SIZES_MAX];
    uint32_t count;
};

static struct list
list_of(const char *text)
{
    struct list list = {.count = 0};

    while (text != NULL && *text != '\0' && list.count < SIZES_MAX) {
        char *end = NULL;

        if (strncmp(text, "max", 3) == 0) {
            list.values[list.count++] = SIZE_MAX;
            end = (char *)(uintptr_t)(text + 3);
        } else {
            list.values[list.count++] = strtoull(text, &end, 0);
        }
        text = *end == ',' ? end + 1 : "";
    }
    return list;
}

static uint64_t
behind(uint64_t claimed)
{
    return claimed == SIZE_MAX ? MAX_PIECE : claimed;
}

/* The pieces of one item: `pieces` for all alike, otherwise one, of its own size. */
static struct list
pieces_of(const struct list *pieces, const struct list *sizes, uint32_t index)
{
    struct list one = {.count = 1};

    if (pieces->count > 0) {
        return *pieces;
    }
    one.values[0] = sizes->count > 0 ? sizes->values[index % sizes->count] : 0;
    return one;
}

static void
place(struct buffers *buffers, const struct list *pieces, const struct list *sizes, uint32_t from)
{
    uint64_t at = 0;
    uint32_t iov = 0;

    for (uint32_t i = 0; i < buffers->count; i++) {
        struct list mine = pieces_of(pieces, sizes, from + i);

        at += GUARD_BYTES;
        for (uint32_t k = 0; k < mine.count; k++) {
            at += behind(mine.values[k]) + GUARD_BYTES;
        }
    }
    buffers->arena_bytes = at;
    buffers->arena = must(malloc(at + 1));
    at = 0;
    for (uint32_t i = 0; i < buffers->count; i++) {
        struct list mine = pieces_of(pieces, sizes, from + i);

        buffers->items[i].iov = &buffers->iov[iov];
        buffers->items[i].iov_count = mine.count;
        buffers->starts[i] = at;
        memset(buffers->arena + at, GUARD, GUARD_BYTES);
        at += GUARD_BYTES;
        for (uint32_t k = 0; k < mine.count; k++) {
            buffers->iov[iov++] =
                (struct iovec){.iov_base = buffers->arena + at, .iov_len = (size_t)mine.values[k]};
            at += behind(mine.values[k]);
            memset(buffers->arena + at, GUARD, GUARD_BYTES);
            at += GUARD_BYTES;
        }
    }
}

void
buffers_make(struct buffers *buffers, const struct words *words, const struct keys *keys,
             uint32_t from, uint32_t count)
{
    const char *room = words_text(words, "room", NULL);
    const char *split = words_text(words, "pieces", NULL);
    struct list sizes = list_of(room != NULL ? room : words_text(words, "bytes", NULL));
    struct list pieces = list_of(split);
    bool none = split != NULL && strcmp(split, "none") == 0;

    if (none) {
        pieces.count = 0;
    }
    *buffers = (struct buffers){.count = count};
    buffers->items = must(calloc(count + 1u, sizeof(*buffers->items)));
    buffers->iov = must(calloc((size_t)count * PIECES_MAX + 1, sizeof(*buffers->iov)));
    buffers->seeds = must(calloc(count + 1u, sizeof(*buffers->seeds)));
    buffers->starts = must(calloc(count + 1u, sizeof(*buffers->starts)));
    buffers->versions = must(calloc(count + 1u, sizeof(*buffers->versions)));
    if (pieces.count > PIECES_MAX) {
        abort();
    }
    for (uint32_t i = 0; i < count; i++) {
        struct yb_client_item *item = &buffers->items[i];

        item->key = keys->texts[from + i];
        item->key_bytes = keys->lengths[from + i];
        item->offset = words_number(words, "offset", 0);
        item->ranged = words_number(words, "ranged", 0) != 0;
        item->group = words_number(words, "group", 0);
        buffers->seeds[i] = seed_of(keys->texts[from + i], keys->lengths[from + i]);
    }
    place(buffers, &pieces, &sizes, from);
    for (uint32_t i = 0; none && i < count; i++) {
        buffers->items[i].iov = NULL;
        buffers->items[i].iov_count = 2;
    }
}

void
buffers_fill(struct buffers *buffers, uint64_t version)
{
    for (uint32_t i = 0; i < buffers->count; i++) {
        const struct yb_client_item *item = &buffers->items[i];
        uint64_t offset = 0;

        for (uint32_t k = 0; item->iov != NULL && k < item->iov_count; k++) {
            uint64_t length = behind(item->iov[k].iov_len);

            value_fill(item->iov[k].iov_base, length, buffers->seeds[i], version, offset);
            offset += length;
        }
    }
}

void
buffers_blank(struct buffers *buffers)
{
    for (uint32_t i = 0; i < buffers->count; i++) {
        const struct yb_client_item *item = &buffers->items[i];

        for (uint32_t k = 0; item->iov != NULL && k < item->iov_count; k++) {
            memset(item->iov[k].iov_base, BLANK, behind(item->iov[k].iov_len));
        }
    }
}

static bool
all(const uint8_t *bytes, uint64_t length, uint8_t value)
{
    return length == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0);
}

static bool
guards_hold(const struct buffers *buffers, uint32_t index)
{
    const struct yb_client_item *item = &buffers->items[index];
    const uint8_t *at = buffers->arena + buffers->starts[index];
    bool hold = all(at, GUARD_BYTES, GUARD);

    for (uint32_t k = 0; item->iov != NULL && k < item->iov_count; k++) {
        const uint8_t *end = (const uint8_t *)item->iov[k].iov_base + behind(item->iov[k].iov_len);

        hold = all(end, GUARD_BYTES, GUARD) && hold;
    }
    return hold;
}

/* Which version a value says it is, if it can. */
static uint64_t
version_in(const struct yb_client_item *item, const uint8_t *first, uint64_t length,
           uint64_t wanted)
{
    uint64_t found = 0;

    if (wanted != VERSION_ANY || item->ranged || length < 8) {
        return wanted;
    }
    memcpy(&found, first, 8);
    return found;
}

static void
judge_item(struct buffers *buffers, uint32_t index, uint64_t version)
{
    const struct yb_client_item *item = &buffers->items[index];
    uint64_t offset = item->ranged ? item->offset : 0;
    uint64_t left = item->bytes;
    bool right = true;

    for (uint32_t k = 0; item->iov != NULL && k < item->iov_count; k++) {
        const uint8_t *bytes = item->iov[k].iov_base;
        uint64_t length = behind(item->iov[k].iov_len);
        uint64_t mine = left < length ? left : length;

        if (item->status != YB_OK) {
            buffers->touched += !all(bytes, length, BLANK);
            continue;
        }
        if (k == 0) {
            version = version_in(item, bytes, mine, version);
        }
        right = value_is(bytes, mine, buffers->seeds[index], version, offset) && right;
        right = all(bytes + mine, length - mine, BLANK) && right;
        offset += mine;
        left -= mine;
    }
    if (item->status == YB_OK) {
        right = right && left == 0 && (item->ranged || item->bytes == item->size);
        buffers->wrong += !right;
        buffers->versions[index] = version;
    }
    buffers->broken += !guards_hold(buffers, index);
}

void
buffers_judge(struct buffers *buffers, bool pinned, uint64_t version)
{
    for (uint32_t i = 0; i < buffers->count; i++) {
        const struct yb_client_item *item = &buffers->items[i];

        if (!pinned) {
            judge_item(buffers, i, version);
        } else if (item->status == YB_OK || item->data != NULL) {
            uint64_t found = version_in(item, item->data, item->size, version);

            buffers->versions[i] = found;
            buffers->wrong += !value_is(item->data, item->size, buffers->seeds[i], found, 0);
        }
    }
}

/* Copy memory that is being written, on purpose: the kernel does, which is no race of ours. */
static bool
copy_now(void *to, const void *from, size_t length)
{
    const struct iovec local = {.iov_base = to, .iov_len = length};
    const struct iovec remote = {.iov_base = (void *)(uintptr_t)from, .iov_len = length};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)length;
}

uint32_t
buffers_there(const struct buffers *buffers)
{
    uint32_t there = 0;

    for (uint32_t i = 0; i < buffers->count; i++) {
        const struct yb_client_item *item = &buffers->items[i];
        size_t length = item->iov_count == 1 ? item->iov[0].iov_len : 0;
        uint8_t *seen = length >= 8 ? malloc(length) : NULL;
        uint64_t version = 0;

        if (seen != NULL && copy_now(seen, item->iov[0].iov_base, length)) {
            memcpy(&version, seen, 8);
            there += value_is(seen, length, buffers->seeds[i], version, 0);
        }
        free(seen);
    }
    return there;
}

void
buffers_free(struct buffers *buffers)
{
    free(buffers->items);
    free(buffers->iov);
    free(buffers->arena);
    free(buffers->seeds);
    free(buffers->starts);
    free(buffers->versions);
    *buffers = (struct buffers){0};
}

/* ---- reports -------------------------------------------------------------------------------- */

/* Runs of equal numbers. */
struct runs {
    int64_t *values;
    uint64_t *lengths;
    uint32_t count;
};

struct report {
    struct runs statuses, sizes, versions, replicas, tiers;
    uint64_t count, bytes, wrong, broken, touched;
};

static void
runs_add(struct runs *runs, int64_t value)
{
    if (runs->count > 0 && runs->values[runs->count - 1] == value) {
        runs->lengths[runs->count - 1]++;
        return;
    }
    if (runs->count == SHOWN_MAX) {
        return;
    }
    if ((runs->count & (runs->count - 1)) == 0) {
        size_t room = runs->count == 0 ? 1 : 2 * (size_t)runs->count;

        runs->values = must(realloc(runs->values, room * sizeof(*runs->values)));
        runs->lengths = must(realloc(runs->lengths, room * sizeof(*runs->lengths)));
    }
    runs->values[runs->count] = value;
    runs->lengths[runs->count++] = 1;
}

struct report *
report_make(void)
{
    return must(calloc(1, sizeof(struct report)));
}

void
report_add(struct report *report, const struct buffers *buffers)
{
    report->count += buffers->count;
    report->wrong += buffers->wrong;
    report->broken += buffers->broken;
    report->touched += buffers->touched;
    for (uint32_t i = 0; i < buffers->count; i++) {
        const struct yb_client_item *item = &buffers->items[i];

        report->bytes += item->status == YB_OK ? item->bytes : 0;
        runs_add(&report->statuses, item->status);
        runs_add(&report->sizes, (int64_t)item->size);
        runs_add(&report->versions, (int64_t)buffers->versions[i]);
        runs_add(&report->replicas, item->replicas);
        runs_add(&report->tiers, item->tier);
    }
}

static void
print_runs(const char *name, const struct runs *runs, bool statuses)
{
    printf(",\"%s\":[", name);
    for (uint32_t i = 0; i < runs->count; i++) {
        printf(i == 0 ? "[" : ",[");
        if (statuses) {
            printf("\"%s\"", yb_status_name((enum yb_status)runs->values[i]));
        } else {
            printf("%lld", (long long)runs->values[i]);
        }
        printf(",%llu]", (unsigned long long)runs->lengths[i]);
    }
    printf("]");
}

void
report_print(struct report *report, enum yb_status status, double ms, double longest_ms)
{
    printf("{\"status\":\"%s\",\"ms\":%.3f,\"longest_ms\":%.3f,\"count\":%llu,\"bytes\":%llu,"
           "\"wrong\":%llu,\"broken\":%llu,\"touched\":%llu",
           yb_status_name(status), ms, longest_ms, (unsigned long long)report->count,
           (unsigned long long)report->bytes, (unsigned long long)report->wrong,
           (unsigned long long)report->broken, (unsigned long long)report->touched);
    print_runs("items", &report->statuses, true);
    print_runs("sizes", &report->sizes, false);
    print_runs("versions", &report->versions, false);
    print_runs("replicas", &report->replicas, false);
    print_runs("tiers", &report->tiers, false);
    printf("}\n");
}

void
report_free(struct report *report)
{
    struct runs *runs[] = {&report->statuses, &report->sizes, &report->versions, &report->replicas,
                           &report->tiers};

    for (uint32_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        free(runs[i]->values);
        free(runs[i]->lengths);
    }
    free(report);
}

void
print_text_of(const void *bytes, uint32_t length)
{
    const uint8_t *text = bytes;

    printf("\"");
    for (uint32_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] >= 0x7f || text[i] == '"' || text[i] == '\\') {
            printf("\\u%04x", text[i]);
        } else {
            printf("%c", text[i]);
        }
    }
    printf("\"");
}

void
print_text(const char *text)
{
    print_text_of(text, (uint32_t)strlen(text));
}
