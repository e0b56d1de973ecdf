/* SPDX-License-Identifier: Apache-2.0
 *
 * RollArt (OSDI'26): new weights pass the slow link between clusters once, in buckets, and engines
 * pull them while they go on. Its table 4 has what is exposed of that. How much of a link an
 * exchange gets it does not say; here are the rates of its table 3, each alone on its link, and
 * engines that run out of work just when the trainer has stored all.
 */
#include "sim/paper.h"
#include "sim/weights.h"

#define PAPER   "RollArt"
#define SECTION "rollart"
#define NUMBERS "numbers-rollart"
#define MODELS  3u

struct link {
    double gb[MODELS];
    double bucket_gb;
    double push_gb;
    double pull_gb;
    double engines;
};

enum way { IN_TURN, ONE_OBJECT, BUCKETS, WAYS };

static enum yb_status
read_link(struct yb_papers *papers, struct link *link)
{
    return yb_paper_numbers(papers, NUMBERS,
                            (const struct yb_paper_number[]){{"weights-8b-gb", &link->gb[0]},
                                                             {"weights-14b-gb", &link->gb[1]},
                                                             {"weights-32b-gb", &link->gb[2]},
                                                             {"bucket-gb", &link->bucket_gb},
                                                             {"push-gb-s", &link->push_gb},
                                                             {"pull-gb-s", &link->pull_gb},
                                                             {"engines", &link->engines},
                                                             {NULL, NULL}});
}

static enum yb_status
run(const struct yb_paper_engine *engine, const struct link *link, unsigned model, enum way way,
    struct yb_weights_result *result_out)
{
    struct yb_weights_options options = {
        .bytes = link->gb[model] * 1e9,
        .bucket_bytes = way == BUCKETS ? link->bucket_gb * 1e9 : 0,
        .push_bytes_per_s = link->push_gb * 1e9,
        .pull_bytes_per_s = link->pull_gb * 1e9,
        .load_bytes_per_s = engine->load_bytes_per_s,
        .busy_s = link->gb[model] / link->push_gb,
        .engines = (uint32_t)link->engines,
        .overlap = way != IN_TURN,
    };

    return yb_weights_run(&options, result_out);
}

/* What share of push and pull engines stand still for. */
static void
add_exposed(struct yb_papers *papers, const struct yb_weights_result *results)
{
    static const double published[MODELS] = {1.4 / 38.6, 5.1 / 84.1, 9.6 / 157.0};
    static const char *const whats[MODELS] = {"exposed of push and pull, at most a tenth, 8B",
                                              "exposed of push and pull, at most a tenth, 14B",
                                              "exposed of push and pull, at most a tenth, 32B"};
    struct yb_paper_row row = {.paper = PAPER, .figure = "Table 4"};

    for (unsigned i = 0; i < MODELS; i++) {
        row.what = whats[i];
        row.published = published[i];
        row.ours = results[i].exposed_s / (results[i].push_s + results[i].pull_s);
        yb_paper_add_within(papers, row, -row.published, 0.1 - row.published);
    }
}

static enum yb_status
add_ways(struct yb_papers *papers, const struct yb_paper_engine *engine, const struct link *link)
{
    struct yb_paper_row row = {
        .paper = PAPER, .figure = "Table 4", .what = "s that an engine stands still, 32B"};
    struct yb_paper_order order = {
        .names = {"in turn", "one object", "buckets"}, .count = WAYS, .share = 0.1};
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < WAYS && status == YB_OK; i++) {
        struct yb_weights_result result;

        status = run(engine, link, 2, (enum way)i, &result);
        order.with[i] = result.exposed_s;
        order.without[i] = order.with[IN_TURN];
    }
    if (status == YB_OK) {
        yb_paper_add_order(papers, row, &order);
    }
    return status;
}

enum yb_status
yb_paper_rollart(struct yb_papers *papers)
{
    struct yb_weights_result results[MODELS];
    struct yb_paper_engine engine;
    struct link link;
    enum yb_status status = read_link(papers, &link);

    if (status == YB_OK) {
        status = yb_paper_engine(papers, SECTION, &engine);
    }
    for (unsigned i = 0; i < MODELS && status == YB_OK; i++) {
        status = run(&engine, &link, i, BUCKETS, &results[i]);
    }
    if (status == YB_OK) {
        add_exposed(papers, results);
        status = add_ways(papers, &engine, &link);
    }
    return status;
}
