/* SPDX-License-Identifier: Apache-2.0
 *
 * Models and devices by name. The built-in rows are of docs/scheduling.md, with their sources.
 */
#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "yuebing/sched.h"

#define CATALOG_MAGIC  0x73636174u
#define ROWS_MAX       64u
#define GPUS_MAX       4096u
#define TEXT_BYTES_MAX (1u << 20)
#define LINE_BYTES_MAX 160u
/* What a layer of a step costs beside its bytes, on several devices, */
#define LAYER_SYNC_NS   150e3
#define LAYER_ALONE_NS  30e3 /* and on one. */
#define SEQUENCE_NS     150e3
#define KV_MEMORY_SHARE 0.9 /* Of what weights leave of a device's memory. */

/* Measured coefficients. */
struct measured {
    char model[YB_SCHED_NAME_MAX];
    char gpu[YB_SCHED_NAME_MAX];
    uint32_t gpus;
    struct yb_sched_cost cost;
};

struct rows {
    struct yb_sched_model models[ROWS_MAX];
    struct yb_sched_gpu gpus[ROWS_MAX];
    struct measured measured[ROWS_MAX];
    uint32_t model_count;
    uint32_t gpu_count;
    uint32_t measured_count;
};

struct yb_sched_catalog {
    uint32_t magic;
    struct rows rows;
};

/* clang-format off */
static const struct yb_sched_model built_in_models[] = {
    /* name              layers  kv/token   FLOP/token  A       weights   read by a step */
    {"llama-3-8b",       32,     131072,    14.0e9,     2.62e5, 16.1e9,   16.1e9},
    {"llama-3-70b",      80,     327680,    136.9e9,    1.31e6, 141e9,    141e9},
    {"qwen2.5-7b",       28,     57344,     13.1e9,     2.01e5, 15.2e9,   15.2e9},
    {"qwen2.5-14b",      48,     196608,    26.2e9,     4.92e5, 29.5e9,   29.5e9},
    {"qwen2.5-72b",      80,     327680,    140.4e9,    1.31e6, 145.4e9,  145.4e9},
    {"llama-30b",        60,     1597440,   64.2e9,     7.99e5, 65.1e9,   65.1e9},
    {"codellama-34b",    48,     196608,    67e9,       7.86e5, 67.5e9,   67.5e9},
    {"opt-13b",          40,     819200,    25.7e9,     4.10e5, 25.7e9,   25.7e9},
    {"deepseek-v3",      61,     70272,     73e9,       2.50e6, 671e9,    37e9},
    {"kimi-k2",          61,     70272,     64.5e9,     1.25e6, 1040e9,   32e9},
};

static const struct yb_sched_gpu built_in_gpus[] = {
    /* name    FLOP/s    memory B/s  memory  token  pair  memory's  host B/s */
    {"a800",   312e12,   2.0e12,     80e9,   0.52,  0.68, 0.6,      16e9},
    {"a100",   312e12,   2.0e12,     80e9,   0.52,  0.68, 0.6,      16e9},
    {"h800",   989e12,   3.35e12,    80e9,   0.52,  0.68, 0.6,      32e9},
    {"h100",   989e12,   3.35e12,    80e9,   0.52,  0.68, 0.6,      32e9},
    {"h200",   989e12,   4.8e12,     141e9,  0.52,  0.68, 0.6,      32e9},
    {"h20",    148e12,   4.0e12,     96e9,   0.52,  0.68, 0.6,      32e9},
    {"l20",    119.5e12, 0.864e12,   48e9,   0.52,  0.68, 0.6,      16e9},
};

/* Fitted to Mooncake's Fig. 14. Its curve is best met without a constant. */
static const struct measured built_in_measured[] = {
    {"llama-3-70b", "a800", 8,
     {.prefill_base_ns = 0, .prefill_token_ns = 1.083e5, .prefill_pair_ns = 0.768,
      .step_base_ns = 26.8e6, .step_sequence_ns = SEQUENCE_NS, .step_token_ns = 33}},
};

/* ---- what a file may say --------------------------------------------------------------------- */

#define MODEL_FIELDS(X)                                                                 \
    X(kv_bytes,     "kv_bytes",          1,    "bytes of a token, all layers")          \
    X(token_flops,  "token_gflops",      1e9,  "GFLOP to compute a token")              \
    X(pair_flops,   "pair_flops",        1,    "FLOP of attention, times tokens squared") \
    X(weight_bytes, "weight_gb",         1e9,  "GB of weights")                         \
    X(step_bytes,   "step_gb",           1e9,  "GB of weights that a step reads")

#define GPU_FIELDS(X)                                                                   \
    X(flops,              "tflops",            1e12, "TFLOP/s at the peak")             \
    X(memory_bytes_per_s, "memory_tb_s",       1e12, "TB/s of its memory")              \
    X(memory_bytes,       "memory_gb",         1e9,  "GB of memory")                    \
    X(token_efficiency,   "token_efficiency",  1,    "share of the peak in tokens")     \
    X(pair_efficiency,    "pair_efficiency",   1,    "share of the peak in attention")  \
    X(memory_efficiency,  "memory_efficiency", 1,    "share of the memory's rate")      \
    X(host_bytes_per_s,   "host_gb_s",         1e9,  "GB/s from the host's memory")

#define COST_FIELDS(X)                                                                  \
    X(prefill_base_ns,  "prefill_base_ms",  1e6, "constant part of a prefill")          \
    X(prefill_token_ns, "prefill_token_us", 1e3, "for each computed token")             \
    X(prefill_pair_ns,  "prefill_pair_ns",  1,   "times n^2 - p^2")                     \
    X(step_base_ns,     "step_base_ms",     1e6, "constant part of a step")             \
    X(step_sequence_ns, "step_sequence_us", 1e3, "for each answer in it")               \
    X(step_token_ns,    "step_token_ns",    1,   "for each token before them")
/* clang-format on */

struct field {
    const char *name;
    size_t offset;
    double unit;
};

#define X(member, word, unit, text) {word, offsetof(struct yb_sched_model, member), unit},
static const struct field model_fields[] = {MODEL_FIELDS(X){NULL, 0, 0}};
#undef X
#define X(member, word, unit, text) {word, offsetof(struct yb_sched_gpu, member), unit},
static const struct field gpu_fields[] = {GPU_FIELDS(X){NULL, 0, 0}};
#undef X
#define X(member, word, unit, text) {word, offsetof(struct yb_sched_cost, member), unit},
static const struct field cost_fields[] = {COST_FIELDS(X){NULL, 0, 0}};
#undef X

struct reading {
    struct rows *rows;
    const char *file_name;
    const char *text;
    uint32_t line;
    char *message;
    size_t message_bytes;
    bool refused;
};

static void
refuse(struct reading *reading, const char *what, const char *name, const char *remedy)
{
    if (!reading->refused) {
        (void)snprintf(reading->message, reading->message_bytes, "%s:%u: %s `%s`; %s",
                       reading->file_name, reading->line, what, name, remedy);
    }
    reading->refused = true;
}

/* Read a number of a field into the row at `base`. */
static bool
take_field(struct reading *reading, const struct field *fields, void *base, const char *name,
           const char *value)
{
    char allowed[256] = "";
    char *end;
    double number;

    while (fields->name != NULL && strcmp(fields->name, name) != 0) {
        (void)snprintf(allowed + strlen(allowed), sizeof(allowed) - strlen(allowed), "%s%s",
                       allowed[0] == '\0' ? "there are " : ", ", fields->name);
        fields++;
    }
    if (fields->name == NULL) {
        refuse(reading, "unknown name", name, allowed);
        return false;
    }
    errno = 0;
    number = strtod(value, &end);
    if (end == value || *end != '\0' || errno != 0 || !isfinite(number) || number < 0) {
        refuse(reading, "no number of at least 0:", value, name);
        return false;
    }
    *(double *)(void *)((char *)base + fields->offset) = number * fields->unit;
    return true;
}

/* Return the row of a name, a new one if need be; NULL: no room or no name. */
static struct yb_sched_model *
model_row(struct rows *rows, const char *name)
{
    uint32_t at = 0;

    while (at < rows->model_count && strcasecmp(rows->models[at].name, name) != 0) {
        at++;
    }
    if (at == ROWS_MAX || name[0] == '\0' || strlen(name) >= YB_SCHED_NAME_MAX) {
        return NULL;
    }
    if (at == rows->model_count) {
        rows->models[at] = (struct yb_sched_model){.layers = 1};
        (void)snprintf(rows->models[at].name, YB_SCHED_NAME_MAX, "%s", name);
        rows->model_count++;
    }
    return &rows->models[at];
}

static struct yb_sched_gpu *
gpu_row(struct rows *rows, const char *name)
{
    uint32_t at = 0;

    while (at < rows->gpu_count && strcasecmp(rows->gpus[at].name, name) != 0) {
        at++;
    }
    if (at == ROWS_MAX || name[0] == '\0' || strlen(name) >= YB_SCHED_NAME_MAX) {
        return NULL;
    }
    if (at == rows->gpu_count) {
        rows->gpus[at] = (struct yb_sched_gpu){
            .token_efficiency = 0.52, .pair_efficiency = 0.68, .memory_efficiency = 0.6};
        (void)snprintf(rows->gpus[at].name, YB_SCHED_NAME_MAX, "%s", name);
        rows->gpu_count++;
    }
    return &rows->gpus[at];
}

static struct measured *
measured_find(const struct rows *rows, const char *model, const char *gpu, uint32_t gpus)
{
    for (uint32_t i = 0; i < rows->measured_count; i++) {
        const struct measured *row = &rows->measured[i];

        if (strcasecmp(row->model, model) == 0 && strcasecmp(row->gpu, gpu) == 0 &&
            row->gpus == gpus) {
            return (struct measured *)(uintptr_t)row;
        }
    }
    return NULL;
}

/* `words` is "MODEL on N GPU". */
static struct measured *
measured_row(struct rows *rows, const char *words)
{
    struct measured wanted = {.gpus = 0};
    struct measured *row;
    int used = 0;

    if (sscanf(words, "%31s on %u %31s%n", wanted.model, &wanted.gpus, wanted.gpu, &used) != 3 ||
        words[used] != '\0' || wanted.gpus == 0 || wanted.gpus > GPUS_MAX) {
        return NULL;
    }
    row = measured_find(rows, wanted.model, wanted.gpu, wanted.gpus);
    if (row == NULL && rows->measured_count < ROWS_MAX) {
        row = &rows->measured[rows->measured_count++];
        *row = wanted;
    }
    return row;
}

/* inih calls this for each pair. Returns 1 for good. */
static int
take_pair(void *user, const char *section, const char *name, const char *value)
{
    struct reading *reading = user;
    const char *rest = strchr(section, ' ');
    const struct field *fields = model_fields;
    void *row = NULL;

    rest = rest == NULL ? "" : rest + 1;
    if (strncmp(section, "model ", 6) == 0) {
        struct yb_sched_model *model = model_row(reading->rows, rest);

        if (model != NULL && strcmp(name, "layers") == 0) {
            char *end;
            unsigned long layers = strtoul(value, &end, 10);

            if (end == value || *end != '\0' || layers == 0 || layers > 100000) {
                refuse(reading, "no number of layers:", value, "1 .. 100000");
                return 0;
            }
            model->layers = (uint32_t)layers;
            return 1;
        }
        row = model;
    } else if (strncmp(section, "gpu ", 4) == 0) {
        fields = gpu_fields;
        row = gpu_row(reading->rows, rest);
    } else if (strncmp(section, "cost ", 5) == 0) {
        struct measured *measured = measured_row(reading->rows, rest);

        fields = cost_fields;
        row = measured == NULL ? NULL : &measured->cost;
    }
    if (row == NULL) {
        refuse(reading, "unknown section, or one row too many:", section,
               "there are [model NAME], [gpu NAME] and [cost MODEL on N GPU], 64 of each");
        return 0;
    }
    return take_field(reading, fields, row, name, value);
}

/* The library's fgets. */
static char *
read_line(char *line_out, int size, void *stream)
{
    struct reading *reading = stream;
    size_t length = strcspn(reading->text, "\n");

    if (*reading->text == '\0' || reading->refused) {
        return NULL;
    }
    reading->line++;
    if (length > LINE_BYTES_MAX || length + 2 > (size_t)size) {
        refuse(reading, "a line that is too long:", "", "160 bytes are allowed");
        return NULL;
    }
    memcpy(line_out, reading->text, length);
    memcpy(line_out + length, "\n", 2);
    reading->text += length + (reading->text[length] == '\n');
    return line_out;
}

enum yb_status
yb_sched_catalog_read(struct yb_sched_catalog *catalog, const char *file_name, const char *text,
                      char *message_out, size_t message_bytes)
{
    struct reading reading = {
        .file_name = file_name,
        .text = text,
        .message = message_out,
        .message_bytes = message_out == NULL ? 0 : message_bytes,
    };
    int line;

    YB_ASSERT_OBJ(catalog, CATALOG_MAGIC);
    if (strnlen(text, TEXT_BYTES_MAX) == TEXT_BYTES_MAX) {
        (void)snprintf(message_out, reading.message_bytes, "%s: larger than 1 MiB", file_name);
        return YB_INVALID;
    }
    reading.rows = malloc(sizeof(*reading.rows));
    if (reading.rows == NULL) {
        (void)snprintf(message_out, reading.message_bytes, "%s: no memory to read it", file_name);
        return YB_NO_MEMORY;
    }
    *reading.rows = catalog->rows;
    line = ini_parse_stream(read_line, &reading, take_pair, &reading);
    if (line > 0 && !reading.refused) {
        reading.line = (uint32_t)line;
        refuse(&reading, "neither [section] nor name = value nor a comment", "", "mend the line");
    }
    if (!reading.refused) {
        catalog->rows = *reading.rows;
    }
    free(reading.rows);
    return reading.refused ? YB_INVALID : YB_OK;
}

/* ---- asking ---------------------------------------------------------------------------------- */

enum yb_status
yb_sched_catalog_create(struct yb_sched_catalog **catalog_out)
{
    struct yb_sched_catalog *catalog = calloc(1, sizeof(*catalog));
    struct rows *rows;

    if (catalog == NULL) {
        return YB_NO_MEMORY;
    }
    catalog->magic = CATALOG_MAGIC;
    rows = &catalog->rows;
    memcpy(rows->models, built_in_models, sizeof(built_in_models));
    memcpy(rows->gpus, built_in_gpus, sizeof(built_in_gpus));
    memcpy(rows->measured, built_in_measured, sizeof(built_in_measured));
    rows->model_count = sizeof(built_in_models) / sizeof(built_in_models[0]);
    rows->gpu_count = sizeof(built_in_gpus) / sizeof(built_in_gpus[0]);
    rows->measured_count = sizeof(built_in_measured) / sizeof(built_in_measured[0]);
    *catalog_out = catalog;
    return YB_OK;
}

void
yb_sched_catalog_destroy(struct yb_sched_catalog **catalog)
{
    if (*catalog == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*catalog, CATALOG_MAGIC);
    (*catalog)->magic = 0;
    free(*catalog);
    *catalog = NULL;
}

const struct yb_sched_model *
yb_sched_catalog_model(const struct yb_sched_catalog *catalog, uint32_t index)
{
    YB_ASSERT_OBJ(catalog, CATALOG_MAGIC);
    return index < catalog->rows.model_count ? &catalog->rows.models[index] : NULL;
}

const struct yb_sched_gpu *
yb_sched_catalog_gpu(const struct yb_sched_catalog *catalog, uint32_t index)
{
    YB_ASSERT_OBJ(catalog, CATALOG_MAGIC);
    return index < catalog->rows.gpu_count ? &catalog->rows.gpus[index] : NULL;
}

const struct yb_sched_model *
yb_sched_catalog_find_model(const struct yb_sched_catalog *catalog, const char *name)
{
    const struct yb_sched_model *model;
    uint32_t at = 0;

    do {
        model = yb_sched_catalog_model(catalog, at++);
    } while (model != NULL && strcasecmp(model->name, name) != 0);
    return model;
}

const struct yb_sched_gpu *
yb_sched_catalog_find_gpu(const struct yb_sched_catalog *catalog, const char *name)
{
    const struct yb_sched_gpu *gpu;
    uint32_t at = 0;

    do {
        gpu = yb_sched_catalog_gpu(catalog, at++);
    } while (gpu != NULL && strcasecmp(gpu->name, name) != 0);
    return gpu;
}

enum yb_status
yb_sched_catalog_cost(const struct yb_sched_catalog *catalog, const char *model_name,
                      const char *gpu_name, uint32_t gpus, struct yb_sched_cost *cost_out)
{
    const struct yb_sched_model *model = yb_sched_catalog_find_model(catalog, model_name);
    const struct yb_sched_gpu *gpu = yb_sched_catalog_find_gpu(catalog, gpu_name);
    struct yb_sched_cost cost = {0};
    const struct measured *measured;
    double memory_rate;
    double room;

    if (gpus == 0 || gpus > GPUS_MAX) {
        return YB_INVALID;
    }
    if (model == NULL || gpu == NULL) {
        return YB_NOT_FOUND;
    }
    memory_rate = gpu->memory_bytes_per_s * gpu->memory_efficiency * gpus;
    if (!(model->kv_bytes >= 1) || !(memory_rate > 0) || !(gpu->flops > 0) ||
        !(gpu->token_efficiency > 0) || !(gpu->pair_efficiency > 0)) {
        return YB_INVALID;
    }
    measured = measured_find(&catalog->rows, model_name, gpu_name, gpus);
    if (measured != NULL) {
        cost = measured->cost;
    } else {
        double flops = gpu->flops * gpus;

        cost.prefill_token_ns = model->token_flops / (flops * gpu->token_efficiency) * 1e9;
        cost.prefill_pair_ns = model->pair_flops / (flops * gpu->pair_efficiency) * 1e9;
        cost.step_base_ns = model->layers * (gpus > 1 ? LAYER_SYNC_NS : LAYER_ALONE_NS) +
                            model->step_bytes / memory_rate * 1e9;
        cost.step_sequence_ns = SEQUENCE_NS;
        cost.step_token_ns = model->kv_bytes / memory_rate * 1e9;
    }
    room = (gpu->memory_bytes * gpus - model->weight_bytes) * KV_MEMORY_SHARE / model->kv_bytes;
    cost.kv_bytes = (uint64_t)model->kv_bytes;
    cost.kv_tokens_max = room > 1 ? (uint64_t)room : 0;
    cost.layers = model->layers;
    *cost_out = cost;
    return YB_OK;
}
