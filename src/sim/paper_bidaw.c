/* SPDX-License-Identifier: Apache-2.0
 *
 * Bidaw (FAST'26): evicting by how long a user is going to read. Its workload is not public: here
 * are users who read an answer, at a pace, and type the next question. The negative control is the
 * paper's own: the same users with think times that know nothing of the answers (Poisson).
 */
#include <math.h>
#include <stdlib.h>

#include "sim/hit_table.h"
#include "sim/paper.h"
#include "sim/random.h"
#include "sim/trace_internal.h"

#define PAPER        "Bidaw"
#define NUMBERS      "numbers-bidaw"
#define BLOCK_TOKENS 16u

struct chat {
    double requests;
    double users;
    double rounds;
    double question;
    double answer;
    double sigma;
    double read_s; /* For a token. */
    double type_s;
    double pool_blocks;
    double seed;
};

struct user {
    double next_s;
    uint64_t session;
    uint32_t tokens; /* Said so far. */
};

static enum yb_status
read_chat(struct yb_papers *papers, struct chat *chat)
{
    return yb_paper_numbers(papers, NUMBERS,
                            (const struct yb_paper_number[]){{"requests", &chat->requests},
                                                             {"users", &chat->users},
                                                             {"rounds", &chat->rounds},
                                                             {"question-tokens", &chat->question},
                                                             {"answer-tokens", &chat->answer},
                                                             {"sigma", &chat->sigma},
                                                             {"read-s-per-token", &chat->read_s},
                                                             {"type-s", &chat->type_s},
                                                             {"pool-blocks", &chat->pool_blocks},
                                                             {"seed", &chat->seed},
                                                             {NULL, NULL}});
}

static double
log_normal(struct yb_sim_random *random, double mean, double sigma)
{
    return mean * exp(sigma * yb_sim_random_normal(random) - sigma * sigma / 2);
}

static struct user *
first_of(struct user *users, uint32_t count)
{
    struct user *first = &users[0];

    for (uint32_t i = 1; i < count; i++) {
        first = users[i].next_s < first->next_s ? &users[i] : first;
    }
    return first;
}

/* One question: the whole conversation so far and some tokens more. */
static enum yb_status
add_question(struct yb_trace_builder *builder, const struct user *user, uint32_t answer)
{
    struct yb_trace_request request = {.arrival_ns = (uint64_t)(user->next_s * 1e9),
                                       .input_tokens = user->tokens,
                                       .output_tokens = answer};
    uint32_t blocks = (user->tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    enum yb_status status = yb_trace_builder_request(builder, &request);

    for (uint32_t i = 0; i < blocks && status == YB_OK; i++) {
        bool whole = (i + 1) * BLOCK_TOKENS <= user->tokens;
        struct yb_sim_random name = {(user->session << 32) + i +
                                     (whole ? 0 : (uint64_t)user->tokens << 16)};

        status = yb_trace_builder_block(builder, yb_sim_random_next(&name));
    }
    return status;
}

/* The next question of a user, or of who comes after it. */
static void
think(struct user *user, const struct chat *chat, bool poisson, uint32_t answer,
      struct yb_sim_random *random, uint64_t *sessions)
{
    double mean_s = chat->read_s * chat->answer + chat->type_s;
    double typing_s = yb_sim_random_exponential(random, chat->type_s);
    double any_s = yb_sim_random_exponential(random, mean_s);
    bool ends = yb_sim_random_unit(random) * chat->rounds < 1;

    user->next_s += poisson ? any_s : chat->read_s * answer + typing_s;
    user->tokens += answer + 1 + (uint32_t)log_normal(random, chat->question, 0.5);
    if (ends) {
        user->session = ++*sessions;
        user->tokens = 1 + (uint32_t)log_normal(random, chat->question, 0.5);
    }
}

static enum yb_status
make_chat(const struct chat *chat, bool poisson, struct yb_trace **trace_out)
{
    struct yb_sim_random random = {(uint64_t)chat->seed};
    uint32_t count = (uint32_t)chat->users;
    struct user *users = calloc(count, sizeof(*users));
    struct yb_trace_builder builder;
    uint64_t sessions = count;
    enum yb_status status;

    if (users == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_trace_builder_init(&builder);
    if (status != YB_OK) {
        free(users);
        return status;
    }
    builder.trace->block_tokens = BLOCK_TOKENS;
    for (uint32_t i = 0; i < count; i++) {
        users[i] = (struct user){.session = i + 1, .tokens = (uint32_t)chat->question};
        users[i].next_s =
            yb_sim_random_exponential(&random, chat->read_s * chat->answer + chat->type_s);
    }
    for (uint32_t i = 0; i < (uint32_t)chat->requests && status == YB_OK; i++) {
        struct user *user = first_of(users, count);
        uint32_t answer = 1 + (uint32_t)log_normal(&random, chat->answer, chat->sigma);

        status = add_question(&builder, user, answer);
        think(user, chat, poisson, answer, &random, &sessions);
    }
    if (status == YB_OK) {
        *trace_out = yb_trace_builder_end(&builder);
    }
    yb_trace_builder_fini(&builder);
    free(users);
    return status;
}

enum policy { LRU, BIDAW, OPT, POLICIES };

/* What share of blocks is missed, in percent. */
static enum yb_status
misses_of(const struct chat *chat, bool poisson, double misses_out[POLICIES])
{
    static const char *const names[POLICIES] = {"lru", "bidaw", "opt"};
    struct yb_trace *trace = NULL;
    enum yb_status status = make_chat(chat, poisson, &trace);

    for (unsigned i = 0; i < POLICIES && status == YB_OK; i++) {
        struct yb_hit_case one = {
            .policy = names[i], .blocks = (uint64_t)chat->pool_blocks, .tags = YB_HIT_TAGS_FULL};
        struct yb_hit_result result;

        status = yb_hit_run(trace, &one, &result);
        if (status == YB_OK) {
            misses_out[i] = 100 * (1 - result.prefix_hit);
        }
    }
    yb_trace_destroy(&trace);
    return status;
}

enum yb_status
yb_paper_bidaw(struct yb_papers *papers)
{
    struct yb_paper_row row = {
        .paper = PAPER, .figure = "eviction", .what = "% blocks missed, users who read"};
    struct yb_paper_order order = {.names = {"lru", "bidaw", "opt"}, .count = 3, .share = 0.02};
    double with[POLICIES];
    double poisson[POLICIES];
    struct chat chat;
    enum yb_status status = read_chat(papers, &chat);

    if (status == YB_OK) {
        status = misses_of(&chat, false, with);
    }
    if (status == YB_OK) {
        status = misses_of(&chat, true, poisson);
    }
    if (status != YB_OK) {
        return status;
    }
    for (unsigned i = 0; i < POLICIES; i++) {
        order.with[i] = with[i];
        order.without[i] = with[i == BIDAW ? LRU : i];
    }
    yb_paper_add_order(papers, row, &order);
    row.figure = "Poisson times";
    row.what = "% of LRU's misses that are spared, if think times know nothing: none";
    row.ours = 100 * (1 - poisson[BIDAW] / poisson[LRU]);
    row.published = 0;
    yb_paper_add_within(papers, row, -2, 2);
    return YB_OK;
}
