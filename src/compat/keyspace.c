/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of keys: a table by text, and of each family the smallest hashes of its hashes.
 */
#include "compat/keyspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define MAGIC      0x6b737063u /* "kspc" */
#define SLOTS      (4 * YB_KEYSPACE_FAMILIES_MAX)
#define GATHERED   (2 * YB_KEYSPACE_SAMPLE) /* Values that wait to be sorted into the sample. */
#define SIZES_KEPT 4u                       /* Of each family, the first ones that were seen. */

struct kept {
    struct yb_keyspace_family told;
    uint64_t hash; /* Of the text. */
    uint64_t kin_hash;
    uint64_t *sample; /* The first `sorted` are in order and different. */
    uint32_t gathered;
    uint32_t sorted;
    bool full; /* Values were dropped: all that is at or below sample[sorted - 1] is there. */
    uint64_t sizes[SIZES_KEPT];
    uint64_t size_counts[SIZES_KEPT];
};

struct yb_keyspace {
    uint32_t magic;
    bool judged;
    uint32_t count;
    struct yb_keyspace_totals totals;
    uint16_t slots[SLOTS]; /* By hash of the text; number of the family plus 1. */
    struct kept *families[YB_KEYSPACE_FAMILIES_MAX];
};

static const char *const engine_names[] = {
#define X(name, word) word,
    YB_KEYSPACE_ENGINE_MAP(X)
#undef X
};

const char *
yb_keyspace_engine_name(enum yb_keyspace_engine engine)
{
    return (unsigned)engine < YB_KEYSPACE_ENGINES ? engine_names[engine] : "unknown";
}

enum yb_status
yb_keyspace_create(struct yb_keyspace **keyspace_out)
{
    struct yb_keyspace *keyspace = calloc(1, sizeof(*keyspace));

    if (keyspace == NULL) {
        return YB_NO_MEMORY;
    }
    keyspace->magic = MAGIC;
    *keyspace_out = keyspace;
    return YB_OK;
}

static void
family_destroy(struct kept *family)
{
    if (family != NULL) {
        free((void *)(uintptr_t)family->told.text);
        free(family->sample);
        free(family);
    }
}

void
yb_keyspace_destroy(struct yb_keyspace **keyspace)
{
    if (*keyspace == NULL) {
        return;
    }
    YB_ASSERT((*keyspace)->magic == MAGIC);
    for (uint32_t i = 0; i < (*keyspace)->count; i++) {
        family_destroy((*keyspace)->families[i]);
    }
    (*keyspace)->magic = 0;
    free(*keyspace);
    *keyspace = NULL;
}

/* ---- finding a family ----------------------------------------------------------------------- */

/* What two keys of one family have in common: what lies before the hash, and behind it. */
struct frame {
    const char *head;
    size_t head_bytes;
    const char *tail;
    size_t tail_bytes;
    uint64_t hash;
};

static struct frame
frame_of(const char *key, size_t key_bytes, const struct yb_keyspace_key *parsed)
{
    size_t end = (size_t)parsed->hash.at + parsed->hash.bytes;
    struct frame frame = {.head = key, .tail = key};

    if (parsed->engine != YB_KEYSPACE_OTHER) {
        frame.head_bytes = parsed->hash.at;
        frame.tail = key + end;
        frame.tail_bytes = key_bytes - end;
    }
    frame.hash =
        yb_hash_table(yb_hash_table((uint64_t)parsed->engine, frame.head, frame.head_bytes),
                      frame.tail, frame.tail_bytes);
    return frame;
}

static bool
is_of(const struct kept *family, const struct frame *frame, enum yb_keyspace_engine engine)
{
    const struct yb_keyspace_family *told = &family->told;

    return family->hash == frame->hash && told->engine == engine &&
           told->text_bytes == frame->head_bytes + 1 + frame->tail_bytes &&
           memcmp(told->text, frame->head, frame->head_bytes) == 0 &&
           memcmp(told->text + frame->head_bytes + 1, frame->tail, frame->tail_bytes) == 0;
}

/* A part of the key, as a part of the text. */
static struct yb_keyspace_part
part_of_text(struct yb_keyspace_part part, struct yb_keyspace_part hash)
{
    if (part.at >= hash.at + hash.bytes) {
        part.at = part.at - hash.bytes + 1;
    }
    return part;
}

static struct kept *
family_create(const char *key, const struct frame *frame, const struct yb_keyspace_key *parsed)
{
    size_t bytes = frame->head_bytes + 1 + frame->tail_bytes;
    struct kept *family = calloc(1, sizeof(*family));
    char *text = malloc(bytes + 1);
    uint64_t *sample = malloc(GATHERED * sizeof(*sample));

    if (family == NULL || text == NULL || sample == NULL) {
        free(sample);
        free(text);
        free(family);
        return NULL;
    }
    memcpy(text, frame->head, frame->head_bytes);
    text[frame->head_bytes] = '*';
    memcpy(text + frame->head_bytes + 1, frame->tail, frame->tail_bytes);
    text[bytes] = '\0';
    family->hash = frame->hash;
    family->kin_hash = yb_hash_table(~(uint64_t)parsed->engine, key, parsed->kin_bytes);
    family->sample = sample;
    family->told = (struct yb_keyspace_family){
        .engine = parsed->engine,
        .text = text,
        .text_bytes = bytes,
        .model = part_of_text(parsed->model, parsed->hash),
        .rank = part_of_text(parsed->rank, parsed->hash),
        .hash_bytes_min = UINT32_MAX,
    };
    return family;
}

/* Find the family of a key, or make it. On OK *family_out is NULL if there are too many. */
static enum yb_status
family_of(struct yb_keyspace *keyspace, const char *key, size_t key_bytes,
          const struct yb_keyspace_key *parsed, struct kept **family_out)
{
    struct frame frame = frame_of(key, key_bytes, parsed);
    uint64_t slot = frame.hash % SLOTS;
    struct kept *family;

    while (keyspace->slots[slot] != 0) { /* At most a quarter of them are taken. */
        family = keyspace->families[keyspace->slots[slot] - 1];
        if (is_of(family, &frame, parsed->engine)) {
            *family_out = family;
            return YB_OK;
        }
        slot = (slot + 1) % SLOTS;
    }
    if (keyspace->count == YB_KEYSPACE_FAMILIES_MAX) {
        *family_out = NULL;
        return YB_OK;
    }
    family = family_create(key, &frame, parsed);
    if (family == NULL) {
        return YB_NO_MEMORY;
    }
    keyspace->families[keyspace->count++] = family;
    keyspace->slots[slot] = (uint16_t)keyspace->count;
    *family_out = family;
    return YB_OK;
}

/* ---- samples -------------------------------------------------------------------------------- */

static int
by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Sort what was gathered, and keep the smallest different values. */
static void
settle(struct kept *family)
{
    uint32_t kept = 0;

    if (family->gathered == family->sorted) {
        return;
    }
    qsort(family->sample, family->gathered, sizeof(*family->sample), by_value);
    for (uint32_t i = 0; i < family->gathered; i++) {
        if (kept > 0 && family->sample[i] == family->sample[kept - 1]) {
            continue;
        }
        if (kept == YB_KEYSPACE_SAMPLE) {
            family->full = true;
            break;
        }
        family->sample[kept++] = family->sample[i];
    }
    family->gathered = kept;
    family->sorted = kept;
}

static void
sample(struct kept *family, uint64_t value)
{
    if (family->full && value >= family->sample[YB_KEYSPACE_SAMPLE - 1]) {
        return;
    }
    family->sample[family->gathered++] = value;
    if (family->gathered == GATHERED) {
        settle(family);
    }
}

/* How many values of `sample` are at most `limit`. */
static uint32_t
below(const struct kept *family, uint64_t limit)
{
    uint32_t low = 0;
    uint32_t high = family->sorted;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (family->sample[middle] <= limit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Up to which value a family's sample has everything. */
static uint64_t
known_up_to(const struct kept *family)
{
    return family->full ? family->sample[family->sorted - 1] : UINT64_MAX;
}

/* How many values two families have in common, as far as both know them. */
static uint32_t
in_common(const struct kept *one, const struct kept *other)
{
    uint64_t limit = known_up_to(one) < known_up_to(other) ? known_up_to(one) : known_up_to(other);
    uint32_t one_end = below(one, limit);
    uint32_t other_end = below(other, limit);
    uint32_t count = 0;

    for (uint32_t i = 0, k = 0; i < one_end && k < other_end;) {
        if (one->sample[i] == other->sample[k]) {
            count++;
            i++;
            k++;
        } else if (one->sample[i] < other->sample[k]) {
            i++;
        } else {
            k++;
        }
    }
    return count;
}

/* ---- adding --------------------------------------------------------------------------------- */

static void
count_size(struct kept *family, uint64_t bytes)
{
    for (uint32_t i = 0; i < SIZES_KEPT; i++) {
        if (family->size_counts[i] == 0 || family->sizes[i] == bytes) {
            family->sizes[i] = bytes;
            family->size_counts[i]++;
            return;
        }
    }
}

enum yb_status
yb_keyspace_add(struct yb_keyspace *keyspace, const void *key, size_t key_bytes,
                uint64_t value_bytes)
{
    struct yb_keyspace_key parsed;
    struct kept *family = NULL;
    enum yb_status status;

    YB_ASSERT(keyspace->magic == MAGIC);
    YB_ASSERT(!keyspace->judged);
    yb_keyspace_parse(key, key_bytes, &parsed);
    status = family_of(keyspace, key, key_bytes, &parsed, &family);
    if (status != YB_OK) {
        return status;
    }
    keyspace->totals.copies++;
    keyspace->totals.bytes += value_bytes;
    if (family == NULL) {
        keyspace->totals.others++;
        return YB_OK;
    }
    if (parsed.engine == YB_KEYSPACE_OTHER) {
        parsed.hash.bytes = (uint32_t)key_bytes; /* They differ in everything. */
    }
    family->told.copies++;
    family->told.bytes += value_bytes;
    family->told.hash_bytes_min = parsed.hash.bytes < family->told.hash_bytes_min
                                      ? parsed.hash.bytes
                                      : family->told.hash_bytes_min;
    family->told.hash_bytes_max = parsed.hash.bytes > family->told.hash_bytes_max
                                      ? parsed.hash.bytes
                                      : family->told.hash_bytes_max;
    count_size(family, value_bytes);
    sample(family, yb_hash_table(0, (const char *)key + parsed.hash.at, parsed.hash.bytes));
    return YB_OK;
}

/* ---- judging -------------------------------------------------------------------------------- */

static void
tell_sizes(struct kept *family)
{
    uint32_t first = 0;
    uint32_t second = UINT32_MAX;

    for (uint32_t i = 1; i < SIZES_KEPT; i++) {
        if (family->size_counts[i] > family->size_counts[first]) {
            second = first;
            first = i;
        } else if (second == UINT32_MAX || family->size_counts[i] > family->size_counts[second]) {
            second = i;
        }
    }
    family->told.value_bytes = family->sizes[first];
    if (second != UINT32_MAX && family->size_counts[second] >= YB_KEYSPACE_JUDGED_MIN) {
        family->told.value_bytes_2 = family->sizes[second];
    }
}

/* Different hashes: as many as were seen, or as the density of the smallest ones says. */
static void
tell_blocks(struct kept *family)
{
    double share = (double)known_up_to(family) / (double)UINT64_MAX;

    family->told.exact = !family->full;
    family->told.blocks =
        family->full ? (uint64_t)((double)family->sorted / share) : family->sorted;
}

static int
by_size(const void *a, const void *b)
{
    const struct kept *x = *(struct kept *const *)a;
    const struct kept *y = *(struct kept *const *)b;

    if (x->told.bytes != y->told.bytes) {
        return x->told.bytes > y->told.bytes ? -1 : 1;
    }
    return strcmp(x->told.text, y->told.text);
}

static bool
are_kin(const struct kept *one, const struct kept *other)
{
    return one->kin_hash == other->kin_hash && one->told.engine == other->told.engine &&
           one->told.engine != YB_KEYSPACE_OTHER;
}

/* Compare a family with the largest other one of its kin. */
static void
compare(struct yb_keyspace *keyspace, uint32_t index)
{
    struct kept *family = keyspace->families[index];
    uint32_t best = index;

    family->told.kin = index;
    for (uint32_t i = 0; i < keyspace->count; i++) {
        const struct kept *other = keyspace->families[i];

        if (i == index || !are_kin(family, other)) {
            continue;
        }
        family->told.kin = i < family->told.kin ? i : family->told.kin;
        if (best == index || other->told.blocks > keyspace->families[best]->told.blocks) {
            best = i;
        }
    }
    family->told.peer = best;
    if (best != index) {
        const struct kept *peer = keyspace->families[best];
        uint64_t limit = known_up_to(peer);

        family->told.shared = in_common(family, peer);
        family->told.shared_judged = below(family, limit);
    }
}

uint32_t
yb_keyspace_judge(struct yb_keyspace *keyspace)
{
    YB_ASSERT(keyspace->magic == MAGIC);
    YB_ASSERT(!keyspace->judged);
    keyspace->judged = true;
    for (uint32_t i = 0; i < keyspace->count; i++) {
        settle(keyspace->families[i]);
        tell_sizes(keyspace->families[i]);
        tell_blocks(keyspace->families[i]);
    }
    qsort(keyspace->families, keyspace->count, sizeof(*keyspace->families), by_size);
    for (uint32_t i = 0; i < keyspace->count; i++) {
        compare(keyspace, i);
    }
    return keyspace->count;
}

const struct yb_keyspace_family *
yb_keyspace_family(const struct yb_keyspace *keyspace, uint32_t index)
{
    YB_ASSERT(keyspace->magic == MAGIC);
    YB_ASSERT(keyspace->judged && index < keyspace->count);
    return &keyspace->families[index]->told;
}

struct yb_keyspace_totals
yb_keyspace_totals(const struct yb_keyspace *keyspace)
{
    YB_ASSERT(keyspace->magic == MAGIC);
    return keyspace->totals;
}

/* ---- warnings ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const char *what;
    const char *remedy;
} warning_rows[] = {
#define X(name_, what_, remedy_) {.name = #name_, .what = (what_), .remedy = (remedy_)},
    YB_KEYSPACE_WARNING_MAP(X)
#undef X
};

const char *
yb_keyspace_warning_name(enum yb_keyspace_warning_kind kind)
{
    return (unsigned)kind < YB_KEYSPACE_WARNINGS ? warning_rows[kind].name : "unknown";
}

const char *
yb_keyspace_warning_what(enum yb_keyspace_warning_kind kind)
{
    return (unsigned)kind < YB_KEYSPACE_WARNINGS ? warning_rows[kind].what : "unknown";
}

const char *
yb_keyspace_warning_remedy(enum yb_keyspace_warning_kind kind)
{
    return (unsigned)kind < YB_KEYSPACE_WARNINGS ? warning_rows[kind].remedy : "unknown";
}

static bool
is_apart(const struct yb_keyspace *keyspace, uint32_t index)
{
    const struct kept *family = keyspace->families[index];
    const struct kept *peer = keyspace->families[family->told.peer];

    return family != peer && family->told.shared == 0 &&
           family->told.shared_judged >= YB_KEYSPACE_JUDGED_MIN &&
           below(peer, known_up_to(family)) >= YB_KEYSPACE_JUDGED_MIN &&
           /* Two that are apart are told once. */
           !(peer->told.peer == index && family->told.peer > index);
}

/* The last chunk of a prompt is shorter in LMCache; what others keep is of one size. */
static bool
is_mixed(const struct yb_keyspace_family *told)
{
    return told->value_bytes_2 != 0 && told->value_bytes_2 != told->value_bytes &&
           told->engine != YB_KEYSPACE_OTHER && told->engine != YB_KEYSPACE_LMCACHE &&
           told->engine != YB_KEYSPACE_LMCACHE_MP;
}

/* Decimal hashes of FlexKV have as many characters as they need. */
static bool
is_of_two_algorithms(const struct yb_keyspace_family *told)
{
    return told->hash_bytes_min != told->hash_bytes_max && told->engine != YB_KEYSPACE_OTHER &&
           told->engine != YB_KEYSPACE_FLEXKV && told->engine != YB_KEYSPACE_LMCACHE;
}

uint32_t
yb_keyspace_warnings(const struct yb_keyspace *keyspace, struct yb_keyspace_warning *warnings_out,
                     uint32_t room)
{
    uint32_t count = 0;

    YB_ASSERT(keyspace->magic == MAGIC);
    YB_ASSERT(keyspace->judged);
    for (uint32_t i = 0; i < keyspace->count; i++) {
        const struct yb_keyspace_family *told = &keyspace->families[i]->told;
        const bool holds[YB_KEYSPACE_WARNINGS] = {
            [YB_KEYSPACE_APART] = is_apart(keyspace, i),
            [YB_KEYSPACE_SIZES] = is_mixed(told),
            [YB_KEYSPACE_HASHES] = is_of_two_algorithms(told),
        };

        for (uint32_t kind = 0; kind < YB_KEYSPACE_WARNINGS; kind++) {
            if (holds[kind] && count++ < room) {
                warnings_out[count - 1] = (struct yb_keyspace_warning){
                    .kind = (enum yb_keyspace_warning_kind)kind,
                    .family = i,
                    .other = kind == YB_KEYSPACE_APART ? told->peer : i,
                };
            }
        }
    }
    return count;
}
