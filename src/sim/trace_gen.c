/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions begin as a Poisson process. The first prompt of a session and its answers have lengths
 * drawn from published quantiles; the next turn comes with a probability that grows with the turns,
 * after a time of a log-normal distribution, and its prompt is all that was said so far and a new
 * question. Whole blocks keep their names from turn to turn; the last, partial one is new each
 * time. The first blocks of each session of a family are the family's system prompt.
 *
 * The numbers are read off the published traces (docs/eviction.md): quantiles as they are, the
 * probability of a next turn by turn, gaps as median and deviation of what was seen.
 */
#include "sim/trace_gen.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/random.h"
#include "sim/trace_internal.h"

#define BLOCK_TOKENS 512u
#define POINTS       9u
#define TURNS        6u
#define FAMILIES     3u
#define TURNS_MAX    64u /* Of one session. */
#define INPUT_MAX    200000u

/* Quantiles; between two of them, logarithms are interpolated. */
static const double shares[POINTS] = {0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0};

struct family {
    double share;         /* Of the sessions of its kind. */
    uint32_t system;      /* Blocks of the system prompt. */
    double input[POINTS]; /* Tokens of a first prompt. */
    double output[POINTS];
    double next[TURNS]; /* Probability of a turn after this one; the last for all later ones. */
    bool by_length;     /* First turns go on more often after a prompt of middle length. */
    double gap_s;       /* Median time to the next turn. */
    double gap_sigma;
    double question; /* Median tokens of a later question. */
    double question_sigma;
};

struct kind {
    const char *name;
    uint32_t requests; /* Of the published one, in an hour. */
    double sessions;   /* Begun per second. */
    struct family families[FAMILIES];
};

#define TALK(share_)                                                                      \
    {                                                                                     \
        .share = (share_), .system = 1,                                                   \
        .input = {891, 915, 1750, 6300, 14900, 27000, 39500, 85000, 126195},              \
        .output = {1, 24, 170, 350, 470, 597, 700, 1119, 2000},                           \
        .next = {0.325, 0.45, 0.58, 0.64, 0.70, 0.78}, .by_length = true, .gap_s = 148.0, \
        .gap_sigma = 1.2, .question = 190.0, .question_sigma = 1.6,                       \
    }

static const struct kind kinds[] = {
    {.name = "conversation", .requests = 12031, .sessions = 2.20, .families = {TALK(1.0)}},
    {.name = "toolagent",
     .requests = 23608,
     .sessions = 5.46,
     .families = {TALK(0.364),
                  {.share = 0.46,
                   .system = 12,
                   .input = {6150, 6250, 6500, 7000, 7600, 8400, 8700, 8950, 9000},
                   .output = {3, 3, 3, 3, 3, 12, 30, 90, 200},
                   .gap_s = 100.0},
                  {.share = 0.176,
                   .system = 5,
                   .input = {2600, 2750, 2900, 3050, 3250, 3450, 3600, 3900, 4200},
                   .output = {5, 12, 16, 20, 24, 32, 40, 80, 200},
                   .gap_s = 100.0}}},
    {.name = "synthetic",
     .requests = 3993,
     .sessions = 2.49,
     .families = {{.share = 0.66,
                   .input = {16, 24, 60, 210, 480, 900, 1500, 3000, 5000},
                   .output = {1, 20, 90, 220, 330, 470, 560, 800, 893},
                   .gap_s = 60.0},
                  {.share = 0.34,
                   .input = {4000, 9000, 13500, 20500, 31500, 46500, 55500, 76000, 191378},
                   .output = {1, 3, 8, 26, 90, 200, 300, 560, 893},
                   .next = {0.60, 0.77, 0.81, 0.83, 0.83, 0.83},
                   .gap_s = 72.0,
                   .gap_sigma = 1.1,
                   .question = 60.0,
                   .question_sigma = 1.0}}},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

struct turn {
    uint64_t arrival_ns;
    uint64_t session;
    uint32_t family;
    uint32_t index; /* Of the turn in its session. */
    uint32_t input;
    uint32_t output;
};

struct generator {
    const struct kind *kind;
    struct yb_sim_random random;
    struct turn *turns;
    uint64_t count;
    uint64_t room;
};

const char *
yb_trace_gen_kind(uint32_t index)
{
    return index < KINDS ? kinds[index].name : NULL;
}

static uint32_t
draw(struct yb_sim_random *random, const double points[POINTS])
{
    double share = yb_sim_random_unit(random);
    uint32_t i = 0;
    double part;

    while (i + 2 < POINTS && share >= shares[i + 1]) {
        i++;
    }
    part = (share - shares[i]) / (shares[i + 1] - shares[i]);
    return (uint32_t)exp(log(points[i]) + (log(points[i + 1]) - log(points[i])) * part);
}

static double
log_normal(struct yb_sim_random *random, double median, double sigma)
{
    return median * exp(sigma * yb_sim_random_normal(random));
}

/* How much likelier than the average another turn is after a first prompt of such a length. */
static double
length_factor(uint32_t input)
{
    if (input <= 2 * BLOCK_TOKENS) {
        return 0.1;
    }
    return input <= 5 * BLOCK_TOKENS ? 1.6 : input <= 20 * BLOCK_TOKENS ? 1.25 : 0.85;
}

static const struct family *
choose_family(struct generator *generator, uint32_t *index_out)
{
    double at = yb_sim_random_unit(&generator->random);
    uint32_t i = 0;

    while (i + 1 < FAMILIES && at >= generator->kind->families[i].share) {
        at -= generator->kind->families[i].share;
        i++;
    }
    *index_out = i;
    return &generator->kind->families[i];
}

static enum yb_status
add_turn(struct generator *generator, const struct turn *turn)
{
    if (generator->count == generator->room) {
        uint64_t room = generator->room == 0 ? 4096 : generator->room * 2;
        struct turn *turns = realloc(generator->turns, room * sizeof *turns);

        if (turns == NULL) {
            return YB_NO_MEMORY;
        }
        generator->turns = turns;
        generator->room = room;
    }
    generator->turns[generator->count++] = *turn;
    return YB_OK;
}

/* All turns of a session that begins at `at_s`. */
static enum yb_status
add_session(struct generator *generator, double at_s, uint64_t session)
{
    struct yb_sim_random *random = &generator->random;
    struct turn turn = {.session = session};
    const struct family *family = choose_family(generator, &turn.family);
    enum yb_status status = YB_OK;
    bool goes_on = true;

    turn.input = draw(random, family->input);
    while (goes_on && status == YB_OK && turn.index < TURNS_MAX && turn.input <= INPUT_MAX) {
        double next = family->next[turn.index < TURNS ? turn.index : TURNS - 1];

        turn.output = draw(random, family->output);
        turn.arrival_ns = (uint64_t)(at_s * 1e9);
        status = add_turn(generator, &turn);
        next *= family->by_length && turn.index == 0 ? length_factor(turn.input) : 1.0;
        goes_on = yb_sim_random_unit(random) < next;
        if (goes_on) {
            double question = log_normal(random, family->question, family->question_sigma);

            at_s += log_normal(random, family->gap_s, family->gap_sigma);
            turn.input += turn.output + 1 + (uint32_t)fmin(question, INPUT_MAX);
            turn.index++;
        }
    }
    return status;
}

static int
compare_turns(const void *a, const void *b)
{
    const struct turn *left = a;
    const struct turn *right = b;

    if (left->arrival_ns != right->arrival_ns) {
        return left->arrival_ns < right->arrival_ns ? -1 : 1;
    }
    return (left->session > right->session) - (left->session < right->session);
}

/* The name of a block: the same in all turns that have it whole. */
static uint64_t
name_of(const struct generator *generator, const struct turn *turn, uint32_t block)
{
    bool whole = (block + 1) * BLOCK_TOKENS <= turn->input;
    bool system = block < generator->kind->families[turn->family].system;
    struct yb_sim_random random = {system ? turn->family
                                          : (turn->session + 1) * 1099511628211ull +
                                                (whole ? 0 : turn->index + 1)};

    random.state = yb_sim_random_next(&random) + block;
    return yb_sim_random_next(&random);
}

static enum yb_status
build(struct generator *generator, uint32_t request_count, struct yb_trace_builder *builder)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < request_count && status == YB_OK; i++) {
        const struct turn *turn = &generator->turns[i];
        struct yb_trace_request request = {
            .arrival_ns = turn->arrival_ns - generator->turns[0].arrival_ns,
            .input_tokens = turn->input,
            .output_tokens = turn->output,
        };
        uint32_t count = (turn->input + BLOCK_TOKENS - 1) / BLOCK_TOKENS;

        status = yb_trace_builder_request(builder, &request);
        for (uint32_t block = 0; block < count && status == YB_OK; block++) {
            status = yb_trace_builder_block(builder, name_of(generator, turn, block));
        }
    }
    return status;
}

enum yb_status
yb_trace_gen(const char *name, uint32_t request_count, uint64_t seed, struct yb_trace **trace_out)
{
    struct generator generator = {.random = {seed}};
    struct yb_trace_builder builder = {.trace = NULL};
    enum yb_status status = YB_OK;
    double at_s = 0.0;
    uint64_t sessions = 0;

    for (uint32_t i = 0; i < KINDS; i++) {
        generator.kind = strcmp(kinds[i].name, name) == 0 ? &kinds[i] : generator.kind;
    }
    if (generator.kind == NULL || request_count > YB_TRACE_GEN_REQUESTS_MAX) {
        return YB_INVALID;
    }
    request_count = request_count != 0 ? request_count : generator.kind->requests;
    while (status == YB_OK && sessions < request_count) { /* Each has a turn: that is enough. */
        status = add_session(&generator, at_s, sessions++);
        at_s += yb_sim_random_exponential(&generator.random, 1.0 / generator.kind->sessions);
    }
    if (status == YB_OK) {
        status = yb_trace_builder_init(&builder);
    }
    if (status == YB_OK) {
        qsort(generator.turns, generator.count, sizeof *generator.turns, compare_turns);
        builder.trace->format = YB_TRACE_MOONCAKE;
        builder.trace->block_tokens = BLOCK_TOKENS;
        status = build(&generator, request_count, &builder);
    }
    if (status == YB_OK) {
        *trace_out = yb_trace_builder_end(&builder);
    }
    yb_trace_builder_fini(&builder);
    free(generator.turns);
    return status;
}
