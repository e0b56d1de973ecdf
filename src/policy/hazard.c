/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/hazard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define BINS    YB_HAZARD_BINS
#define CLASSES YB_HAZARD_CLASSES
#define KINDS   YB_HAZARD_KINDS

/* Where bins begin, in seconds: what machines do in a loop, what people do in minutes, and what is
 * back the next hour. The last bin ends at END_S. */
static const double edges_s[BINS] = {0,   0.1, 0.3, 1,    2,    5,    10,   20,   30,    40,   50,
                                     60,  75,  90,  110,  130,  160,  200,  250,  300,   360,  430,
                                     520, 640, 800, 1000, 1400, 2000, 3000, 5000, 10000, 20000};
#define END_S 40000.0

/* Of how many records a belief has the weight that it begins with. */
#define SHARE_WEIGHT 5.0
#define BIN_WEIGHT   200.0
#define TIMES_WEIGHT 4.0

#define SHARE_FIRST     0.3   /* Of what nothing is known. */
#define HALF_FIRST_S    200.0 /* And the mean time of its next use. */
#define PROBABILITY_MAX 0.98
#define FIT_ROUNDS      2u

struct record {
    uint64_t born_ns;
    uint32_t hash;
    uint32_t next; /* Record of the same bucket: place + 1; 0: none. */
    uint8_t class_index;
    bool open; /* Not used again; it is in its bucket. */
};

struct yb_hazard {
    const struct yb_hazard_class *classes;
    struct record *records; /* A ring: number n lies at n % capacity. */
    uint32_t *buckets;      /* By hash: place + 1; 0: none. */
    uint32_t capacity;
    uint32_t bucket_mask;
    uint64_t count; /* Ever. */
    uint64_t now_ns;
    uint64_t fit_at;            /* The count at which the next fit is due. */
    uint64_t halve_at;          /* And the next halving of what was counted. */
    uint64_t reached_at[BINS];  /* The first record that has not reached the bin. */
    double seen[CLASSES][BINS]; /* Records that were watched for as long. */
    double uses[CLASSES][BINS]; /* Of these the next uses in the bin. */
    double share[CLASSES];
    double chance[CLASSES][BINS];
    double times[KINDS][BINS];
    double index[CLASSES][BINS + 1]; /* At the beginning of each bin, and at the end. */
};

static double
width_s(uint32_t bin)
{
    return (bin + 1 < BINS ? edges_s[bin + 1] : END_S) - edges_s[bin];
}

static uint32_t
bin_of(double age_s)
{
    uint32_t low = 0;
    uint32_t high = BINS;

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;

        if (age_s >= edges_s[middle]) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static double
age_s(const struct yb_hazard *hazard, uint64_t since_ns)
{
    return hazard->now_ns > since_ns ? (double)(hazard->now_ns - since_ns) * 1e-9 : 0.0;
}

/* ---- the fit -------------------------------------------------------------------------------- */

/* The index of a class at the beginning of each bin, from the probability of a use in each. */
static void
set_index(struct yb_hazard *hazard, uint32_t class_index, const double hazards[BINS])
{
    double *index = hazard->index[class_index];

    for (uint32_t from = 0; from < BINS; from++) {
        double alive = 1.0;
        double used = 0.0;
        double kept_s = 0.0;

        index[from] = 0.0;
        for (uint32_t bin = from; bin < BINS; bin++) {
            used += alive * hazards[bin];
            kept_s += alive * (1.0 - 0.5 * hazards[bin]) * width_s(bin);
            alive *= 1.0 - hazards[bin];
            index[from] = fmax(index[from], used / kept_s);
        }
    }
    index[BINS] = index[BINS - 1] / 2.0;
}

/* Given when things are used again, how many of each class? */
static void
fit_shares(struct yb_hazard *hazard)
{
    double uses[CLASSES] = {0.0};
    double chances[CLASSES] = {0.0};
    double of_family[CLASSES];

    for (uint32_t c = 0; c < CLASSES; c++) {
        const double *times = hazard->times[hazard->classes[c].kind];

        for (uint32_t bin = 0; bin < BINS; bin++) {
            uses[hazard->classes[c].family] += hazard->uses[c][bin];
            chances[hazard->classes[c].family] += hazard->seen[c][bin] * times[bin];
        }
    }
    for (uint32_t c = 0; c < CLASSES; c++) {
        of_family[c] = fmin(PROBABILITY_MAX,
                            (uses[c] + SHARE_WEIGHT * SHARE_FIRST) / (chances[c] + SHARE_WEIGHT));
    }
    for (uint32_t c = 0; c < CLASSES; c++) {
        const double *times = hazard->times[hazard->classes[c].kind];
        double used = SHARE_WEIGHT * of_family[hazard->classes[c].family];
        double chance = SHARE_WEIGHT;

        for (uint32_t bin = 0; bin < BINS; bin++) {
            used += hazard->uses[c][bin];
            chance += hazard->seen[c][bin] * times[bin];
        }
        hazard->share[c] = fmin(PROBABILITY_MAX, used / chance);
    }
}

/* Given how many of each class are used again, when? */
static void
fit_times(struct yb_hazard *hazard)
{
    double uses[KINDS][BINS] = {{0.0}};
    double chances[KINDS][BINS] = {{0.0}};

    for (uint32_t c = 0; c < CLASSES; c++) {
        for (uint32_t bin = 0; bin < BINS; bin++) {
            uses[hazard->classes[c].kind][bin] += hazard->uses[c][bin];
            chances[hazard->classes[c].kind][bin] += hazard->share[c] * hazard->seen[c][bin];
        }
    }
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        double *times = hazard->times[kind];
        double sum = 0.0;

        for (uint32_t bin = 0; bin < BINS; bin++) {
            times[bin] =
                (uses[kind][bin] + TIMES_WEIGHT * times[bin]) / (chances[kind][bin] + TIMES_WEIGHT);
            sum += times[bin];
        }
        for (uint32_t bin = 0; bin < BINS; bin++) {
            times[bin] /= sum;
        }
    }
}

static void
fit(struct yb_hazard *hazard)
{
    for (uint32_t round = 0; round < FIT_ROUNDS; round++) {
        fit_shares(hazard);
        fit_times(hazard);
    }
    for (uint32_t c = 0; c < CLASSES; c++) {
        double hazards[BINS];
        double used = 0.0;

        for (uint32_t bin = 0; bin < BINS; bin++) {
            double believed = hazard->share[c] * hazard->times[hazard->classes[c].kind][bin];
            double here = (hazard->uses[c][bin] + BIN_WEIGHT * believed) /
                          (hazard->seen[c][bin] + BIN_WEIGHT);

            hazards[bin] = fmin(PROBABILITY_MAX, here / fmax(1.0 - used, 1e-6));
            hazard->chance[c][bin] = here;
            used += here;
        }
        set_index(hazard, c, hazards);
    }
}

static void
halve(struct yb_hazard *hazard)
{
    for (uint32_t c = 0; c < CLASSES; c++) {
        for (uint32_t bin = 0; bin < BINS; bin++) {
            hazard->seen[c][bin] /= 2.0;
            hazard->uses[c][bin] /= 2.0;
        }
    }
}

/* ---- records -------------------------------------------------------------------------------- */

enum yb_status
yb_hazard_create(const struct yb_hazard_class *classes, uint32_t record_count,
                 struct yb_hazard **hazard_out)
{
    struct yb_hazard *hazard = calloc(1, sizeof *hazard);
    uint32_t bucket_count = 1;

    YB_ASSERT(record_count > 0 && record_count <= 1u << 30);
    while (bucket_count < record_count) {
        bucket_count *= 2;
    }
    if (hazard == NULL) {
        return YB_NO_MEMORY;
    }
    hazard->records = calloc(record_count, sizeof *hazard->records);
    hazard->buckets = calloc(bucket_count, sizeof *hazard->buckets);
    if (hazard->records == NULL || hazard->buckets == NULL) {
        yb_hazard_destroy(&hazard);
        return YB_NO_MEMORY;
    }
    hazard->classes = classes;
    hazard->capacity = record_count;
    hazard->bucket_mask = bucket_count - 1;
    hazard->fit_at = YB_HAZARD_FIT;
    hazard->halve_at = 8ull * record_count;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        for (uint32_t bin = 0; bin < BINS; bin++) {
            hazard->times[kind][bin] = exp(-edges_s[bin] / HALF_FIRST_S) -
                                       exp(-(edges_s[bin] + width_s(bin)) / HALF_FIRST_S);
        }
    }
    fit(hazard);
    *hazard_out = hazard;
    return YB_OK;
}

void
yb_hazard_destroy(struct yb_hazard **hazard)
{
    if (*hazard != NULL) {
        free((*hazard)->records);
        free((*hazard)->buckets);
        free(*hazard);
        *hazard = NULL;
    }
}

static uint32_t *
bucket_of(const struct yb_hazard *hazard, uint32_t hash)
{
    return &hazard->buckets[(hash * 0x9e3779b1u) >> 1 & hazard->bucket_mask];
}

static void
close_record(struct yb_hazard *hazard, uint32_t place)
{
    struct record *record = &hazard->records[place];
    uint32_t *at = bucket_of(hazard, record->hash);

    YB_ASSERT(record->open);
    while (*at != place + 1) {
        YB_ASSERT(*at != 0);
        at = &hazard->records[*at - 1].next;
    }
    *at = record->next;
    record->open = false;
}

/* The record of a number that is still kept, NULL if it is forgotten. */
static struct record *
record_of(const struct yb_hazard *hazard, uint32_t number)
{
    uint32_t age = (uint32_t)hazard->count - number; /* 1 is the last one. */

    if (number == YB_HAZARD_NONE || age == 0 || age > hazard->capacity || age > hazard->count) {
        return NULL;
    }
    return &hazard->records[(hazard->count - age) % hazard->capacity];
}

/* Let the pointers catch up with the time. */
static void
advance(struct yb_hazard *hazard, uint64_t now_ns)
{
    uint64_t oldest = hazard->count > hazard->capacity ? hazard->count - hazard->capacity : 0;

    hazard->now_ns = now_ns > hazard->now_ns ? now_ns : hazard->now_ns;
    for (uint32_t bin = 1; bin < BINS; bin++) {
        uint64_t at = hazard->reached_at[bin] > oldest ? hazard->reached_at[bin] : oldest;

        while (at < hazard->count) {
            const struct record *record = &hazard->records[at % hazard->capacity];

            if (age_s(hazard, record->born_ns) < edges_s[bin]) {
                break;
            }
            hazard->seen[record->class_index][bin] += 1.0;
            at++;
        }
        hazard->reached_at[bin] = at;
    }
}

uint32_t
yb_hazard_born(struct yb_hazard *hazard, uint32_t class_index, uint32_t hash, uint64_t now_ns)
{
    uint32_t *bucket = bucket_of(hazard, hash);
    struct record *record;
    uint32_t place;

    YB_ASSERT(class_index < CLASSES);
    advance(hazard, now_ns);
    hazard->count += (uint32_t)hazard->count == YB_HAZARD_NONE; /* That number is nobody's. */
    place = (uint32_t)(hazard->count % hazard->capacity);
    record = &hazard->records[place];
    if (record->open) {
        close_record(hazard, place);
    }
    *record = (struct record){
        .born_ns = now_ns,
        .hash = hash,
        .next = *bucket,
        .class_index = (uint8_t)class_index,
        .open = true,
    };
    *bucket = place + 1;
    hazard->seen[class_index][0] += 1.0;
    hazard->count++;
    if (hazard->count >= hazard->halve_at) {
        hazard->halve_at = hazard->count + 8ull * hazard->capacity;
        halve(hazard);
    }
    if (hazard->count >= hazard->fit_at) {
        hazard->fit_at = hazard->count + YB_HAZARD_FIT;
        fit(hazard);
    }
    return (uint32_t)(hazard->count - 1);
}

uint32_t
yb_hazard_find(const struct yb_hazard *hazard, uint32_t hash)
{
    for (uint32_t at = *bucket_of(hazard, hash); at != 0; at = hazard->records[at - 1].next) {
        if (hazard->records[at - 1].hash == hash) {
            uint64_t behind = (hazard->count - 1 - (at - 1)) % hazard->capacity;

            return (uint32_t)(hazard->count - 1 - behind);
        }
    }
    return YB_HAZARD_NONE;
}

uint32_t
yb_hazard_class_of(const struct yb_hazard *hazard, uint32_t number)
{
    const struct record *record = record_of(hazard, number);

    return record == NULL ? YB_HAZARD_NONE : record->class_index;
}

uint64_t
yb_hazard_idle(const struct yb_hazard *hazard, uint32_t number, uint64_t at)
{
    const struct record *record = record_of(hazard, number);

    if (record == NULL) {
        return UINT64_MAX;
    }
    return at > record->born_ns ? at - record->born_ns : 0;
}

bool
yb_hazard_is(const struct yb_hazard *hazard, uint32_t number, uint32_t hash)
{
    const struct record *record = record_of(hazard, number);

    return record != NULL && record->hash == hash;
}

bool
yb_hazard_used(struct yb_hazard *hazard, uint32_t number, uint64_t now_ns)
{
    struct record *record = record_of(hazard, number);

    uint64_t age_ns;

    if (record == NULL || !record->open) {
        return false;
    }
    age_ns = now_ns > record->born_ns ? now_ns - record->born_ns : 0;
    hazard->uses[record->class_index][bin_of((double)age_ns * 1e-9)] += 1.0;
    close_record(hazard, (uint32_t)(record - hazard->records));
    return true;
}

double
yb_hazard_index(const struct yb_hazard *hazard, uint32_t class_index, uint64_t age_ns)
{
    double age = (double)age_ns * 1e-9;
    uint32_t bin = bin_of(age);
    const double *index = hazard->index[class_index];
    double part = fmin(1.0, (age - edges_s[bin]) / width_s(bin));

    return index[bin] + (index[bin + 1] - index[bin]) * part;
}

uint32_t
yb_hazard_count(const struct yb_hazard *hazard)
{
    return hazard->count < hazard->capacity ? (uint32_t)hazard->count : hazard->capacity;
}

double
yb_hazard_share(const struct yb_hazard *hazard, uint32_t class_index)
{
    return hazard->share[class_index];
}

double
yb_hazard_mean_s(const struct yb_hazard *hazard, uint32_t class_index)
{
    double sum = 0.0;

    for (uint32_t bin = 0; bin < BINS; bin++) {
        sum += hazard->chance[class_index][bin] * (edges_s[bin] + width_s(bin) / 2.0);
    }
    return sum / hazard->share[class_index];
}

double
yb_hazard_chance(const struct yb_hazard *hazard, uint32_t class_index, uint32_t bin)
{
    YB_ASSERT(bin < BINS);
    return hazard->chance[class_index][bin];
}

uint32_t
yb_hazard_bin(uint64_t age_ns)
{
    return bin_of((double)age_ns * 1e-9);
}
