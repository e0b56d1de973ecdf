/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: fifo, sieve, length-aware give up exactly what their rules say.
 * Method: random walks, victim by victim beside models that are an array and a search.
 */
#include "unit.h"

#include <string.h>

#include "policy/policy.h"

#define BLOCKS        200u
#define NONE          UINT32_MAX
#define USES_TOLD     31u /* length-aware does not tell apart what is beyond. */
#define POSITION_TOLD 511u

struct model {
    struct yb_policy_entry entries[BLOCKS];
    bool present[BLOCKS];
    bool marked[BLOCKS]; /* sieve: used since the hand last came by. */
    uint32_t came[BLOCKS];
    uint32_t used[BLOCKS];
    uint32_t uses[BLOCKS];
    uint32_t positions[BLOCKS];
    uint32_t hand; /* sieve: what it looks at next; NONE: the oldest. */
};

typedef uint32_t next_fn(struct model *model);

/* Return what came next after `came`; 0: the very first. */
static uint32_t
next_come(const struct model *model, uint32_t came)
{
    uint32_t next = NONE;

    for (uint32_t i = 0; i < BLOCKS; i++) {
        if (model->present[i] && model->came[i] > came &&
            (next == NONE || model->came[i] < model->came[next])) {
            next = i;
        }
    }
    return next;
}

static uint32_t
next_of_fifo(struct model *model)
{
    return next_come(model, 0);
}

static uint32_t
next_of_sieve(struct model *model)
{
    uint32_t at = model->hand == NONE ? next_come(model, 0) : model->hand;

    while (at != NONE && model->marked[at]) {
        uint32_t newer = next_come(model, model->came[at]);

        model->marked[at] = false;
        at = newer == NONE ? next_come(model, 0) : newer;
    }
    model->hand = at;
    return at;
}

static uint32_t
bounded(uint32_t count, uint32_t bound)
{
    return count < bound ? count : bound;
}

/* Whether `a` goes before `b`: fewer uses, further back, longer ago. */
static bool
is_shorter_of_worth(const struct model *model, uint32_t a, uint32_t b)
{
    uint32_t uses[] = {bounded(model->uses[a], USES_TOLD), bounded(model->uses[b], USES_TOLD)};
    uint32_t at[] = {bounded(model->positions[a], POSITION_TOLD),
                     bounded(model->positions[b], POSITION_TOLD)};

    if (uses[0] != uses[1]) {
        return uses[0] < uses[1];
    }
    return at[0] != at[1] ? at[0] > at[1] : model->used[a] < model->used[b];
}

static uint32_t
next_of_length_aware(struct model *model)
{
    uint32_t best = NONE;

    for (uint32_t i = 0; i < BLOCKS; i++) {
        if (model->present[i] && (best == NONE || is_shorter_of_worth(model, i, best))) {
            best = i;
        }
    }
    return best;
}

static void
leave(struct model *model, uint32_t i)
{
    if (model->hand == i) {
        model->hand = next_come(model, model->came[i]);
    }
    model->present[i] = false;
}

static void
come(struct yb_policy *policy, struct model *model, uint32_t i, uint32_t step, uint32_t position)
{
    struct yb_policy_facts facts = {.hash = i, .size = 1, .use = {.position = position}};

    yb_policy_insert(policy, &model->entries[i], &facts, step);
    model->present[i] = true;
    model->marked[i] = false;
    model->came[i] = model->used[i] = step;
    model->uses[i] = 1;
    model->positions[i] = position;
}

static void
use(struct yb_policy *policy, struct model *model, uint32_t i, uint32_t step, uint32_t position)
{
    struct yb_policy_use told = {.position = position};

    yb_policy_use(policy, &model->entries[i], &told, step);
    model->marked[i] = true;
    model->used[i] = step;
    model->uses[i]++;
    model->positions[i] = position == 0 ? model->positions[i] : position;
}

static void
walk(const char *name, next_fn *next)
{
    static struct model model;
    struct yb_policy_options options = {.name = name};
    uint32_t step_count = unit_long() ? 500000 : 30000;
    uint64_t random = unit_seed(name);
    struct yb_policy *policy;

    memset(&model, 0, sizeof model);
    model.hand = NONE;
    assert_int_equal(yb_policy_create(&options, &policy), YB_OK);
    for (uint32_t step = 1; step <= step_count; step++) {
        uint32_t what = (uint32_t)(unit_random(&random) % 16);
        uint32_t i = (uint32_t)(unit_random(&random) % BLOCKS);
        uint32_t position = (uint32_t)(unit_random(&random) % 8 * 100);

        if (what < 3) {
            struct yb_policy_entry *victim = yb_policy_victim(policy);
            uint32_t gone = next(&model);

            assert_ptr_equal(victim, gone == NONE ? NULL : &model.entries[gone]);
            if (gone != NONE) {
                yb_policy_evict(policy, victim);
                leave(&model, gone);
            }
        } else if (!model.present[i]) {
            come(policy, &model, i, step, position);
        } else if (what == 3) {
            yb_policy_remove(policy, &model.entries[i]);
            leave(&model, i);
        } else {
            i /= 1 + (uint32_t)(unit_random(&random) % 8); /* Some are used more often. */
            if (model.present[i]) {
                use(policy, &model, i, step, position);
            }
        }
    }
    yb_policy_destroy(&policy);
}

static void
test_policy_order__fifo_gives_up_what_came_first(void **state)
{
    (void)state;
    walk("fifo", next_of_fifo);
}

static void
test_policy_order__sieve_gives_up_what_was_not_used_since_the_hand_came_by(void **state)
{
    (void)state;
    walk("sieve", next_of_sieve);
}

static void
test_policy_order__length_aware_gives_up_the_rarest_and_of_these_the_furthest_back(void **state)
{
    (void)state;
    walk("length-aware", next_of_length_aware);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_order__fifo_gives_up_what_came_first),
        cmocka_unit_test(
            test_policy_order__sieve_gives_up_what_was_not_used_since_the_hand_came_by),
        cmocka_unit_test(
            test_policy_order__length_aware_gives_up_the_rarest_and_of_these_the_furthest_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
