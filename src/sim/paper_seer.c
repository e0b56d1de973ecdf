/* SPDX-License-Identifier: Apache-2.0
 *
 * Seer (OSDI'26): rollouts in chunks, and what answers to a prompt tell of each other's length. Its
 * lengths are not published but for their mean and limit: prompts have a mean of their own, from a
 * distribution with a long tail, and answers to one prompt lie near it. Where they do not, nothing
 * is to be learned: that is the run without the mechanism.
 */
#include <stdlib.h>

#include "sim/paper.h"
#include "sim/random.h"
#include "sim/rollout.h"

#define PAPER   "Seer"
#define SECTION "seer"
#define NUMBERS "numbers-seer"

struct load {
    double engines;
    double batch;
    double groups;
    double group_size;
    double prompt;
    double answer;
    double limit;
    double chunk;
    double sigma;
    double group_sigma;
    double draws; /* Of all lengths: rows are means over so many. */
    double seed;
};

static enum yb_status
read_load(struct yb_papers *papers, struct load *load)
{
    return yb_paper_numbers(papers, NUMBERS,
                            (const struct yb_paper_number[]){{"engines", &load->engines},
                                                             {"batch", &load->batch},
                                                             {"groups", &load->groups},
                                                             {"group-size", &load->group_size},
                                                             {"prompt-tokens", &load->prompt},
                                                             {"answer-tokens", &load->answer},
                                                             {"limit-tokens", &load->limit},
                                                             {"chunk-tokens", &load->chunk},
                                                             {"sigma", &load->sigma},
                                                             {"group-sigma", &load->group_sigma},
                                                             {"draws", &load->draws},
                                                             {"seed", &load->seed},
                                                             {NULL, NULL}});
}

/* The same lengths, each in any group. */
static void
shuffle(uint32_t *lengths, const struct load *load)
{
    struct yb_sim_random random = {(uint64_t)load->seed};

    for (uint32_t i = (uint32_t)load->groups * (uint32_t)load->group_size; i > 1; i--) {
        uint32_t other = (uint32_t)yb_sim_random_below(&random, i);
        uint32_t kept = lengths[i - 1];

        lengths[i - 1] = lengths[other];
        lengths[other] = kept;
    }
}

/* What is shown of the policies, as means over all draws. */
struct means {
    double tokens_per_s[YB_ROLLOUT_POLICIES];
    double tail_s[YB_ROLLOUT_POLICIES];
};

static enum yb_status
run_all(const struct yb_paper_engine *engine, const struct load *load, const uint32_t *lengths,
        struct means *means)
{
    struct yb_rollout_options options = {
        .cost = &engine->cost,
        .places = (uint32_t)load->engines,
        .batch = (uint32_t)load->batch,
        .groups = (uint32_t)load->groups,
        .group_size = (uint32_t)load->group_size,
        .prompt_tokens = (uint32_t)load->prompt,
        .limit_tokens = (uint32_t)load->limit,
        .chunk_tokens = (uint32_t)load->chunk,
        .bytes_per_s = engine->port_bytes_per_s,
        .lengths = lengths,
    };
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < YB_ROLLOUT_POLICIES && status == YB_OK; i++) {
        struct yb_rollout_result result;

        options.policy = (enum yb_rollout_policy)i;
        status = yb_rollout_run(&options, &result);
        if (status == YB_OK) {
            means->tokens_per_s[i] += result.tokens_per_s / load->draws;
            means->tail_s[i] += result.tail_s / load->draws;
        }
    }
    return status;
}

/* Answers to one prompt alike; and the same answers, none of which tells of another. */
static enum yb_status
run_draw(const struct yb_paper_engine *engine, const struct load *load, struct means *with,
         struct means *without)
{
    const struct yb_rollout_lengths wanted = {
        .groups = (uint32_t)load->groups,
        .group_size = (uint32_t)load->group_size,
        .mean_tokens = load->answer,
        .limit_tokens = load->limit,
        .sigma = load->sigma,
        .group_sigma = load->group_sigma,
        .seed = (uint64_t)load->seed,
    };
    uint32_t *lengths = yb_rollout_draw(&wanted);
    enum yb_status status = lengths == NULL ? YB_NO_MEMORY : YB_OK;

    if (status == YB_OK) {
        status = run_all(engine, load, lengths, with);
    }
    if (status == YB_OK) {
        shuffle(lengths, load);
        status = run_all(engine, load, lengths, without);
    }
    free(lengths);
    return status;
}

static void
add_rows(struct yb_papers *papers, const struct means *with, const struct means *without)
{
    struct yb_paper_row row = {.paper = PAPER, .figure = "Table 4", .what = "tokens/s"};
    struct yb_paper_order order = {
        .names = {"context", "divided", "grouped"}, .count = 3, .share = 0.01};
    struct yb_paper_order tail = {
        .names = {"grouped", "divided", "context"}, .count = 3, .share = 0.01};

    for (unsigned i = 0; i < 3; i++) {
        order.with[i] = with->tokens_per_s[YB_ROLLOUT_CONTEXT - i];
        order.without[i] = without->tokens_per_s[YB_ROLLOUT_CONTEXT - i];
        tail.with[i] = with->tail_s[YB_ROLLOUT_GROUPED + i];
        tail.without[i] = without->tail_s[YB_ROLLOUT_GROUPED + i];
    }
    yb_paper_add_order(papers, row, &order);
    row.what = "tokens/s, divided over grouped";
    row.published = 1.42;
    row.ours = with->tokens_per_s[YB_ROLLOUT_DIVIDED] / with->tokens_per_s[YB_ROLLOUT_GROUPED];
    yb_paper_add_ratio(papers, row, 0.25);
    row.what = "tokens/s, with context over grouped";
    row.published = 1.56;
    row.ours = with->tokens_per_s[YB_ROLLOUT_CONTEXT] / with->tokens_per_s[YB_ROLLOUT_GROUPED];
    yb_paper_add_ratio(papers, row, 0.25);
    row.figure = "Fig. 12";
    row.what = "tokens/s, with context over an oracle";
    row.published = 0.96;
    row.ours = with->tokens_per_s[YB_ROLLOUT_CONTEXT] / with->tokens_per_s[YB_ROLLOUT_ORACLE];
    yb_paper_add_within(papers, row, 0.90 - row.published, 0.04);
    row.what = "s for the last tenth of the answers";
    row.published = row.ours = 0;
    yb_paper_add_order(papers, row, &tail);
}

enum yb_status
yb_paper_seer(struct yb_papers *papers)
{
    struct means with = {.tail_s = {0}};
    struct means without = {.tail_s = {0}};
    struct yb_paper_engine engine;
    struct load load;
    enum yb_status status = read_load(papers, &load);

    if (status == YB_OK) {
        status = yb_paper_engine(papers, SECTION, &engine);
    }
    for (uint32_t i = 0; status == YB_OK && i < (uint32_t)load.draws; i++) {
        status = run_draw(&engine, &load, &with, &without);
        load.seed++;
    }
    if (status == YB_OK) {
        add_rows(papers, &with, &without);
    }
    return status;
}
