/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of policy/policy.h, policy/ghost.h and policy/marks.h.
 * Method: random walks. Without pins, parents and duplicates each policy is compared, victim by
 * victim, with a model that is an array and a search. With them, what must hold of any victim is
 * checked against all entries after every step.
 */
#include "unit.h"

#include <string.h>

#include "alloc_fault.h"
#include "policy/ghost.h"
#include "policy/marks.h"
#include "policy/policy.h"

#define BLOCK_COUNT 300u
#define NONE        UINT32_MAX

/* A caller's block; the model knows it by its index. */
struct block {
    struct yb_policy_linked linked;
    bool present;
};

struct scene {
    struct yb_policy *policy;
    struct block *blocks;
    uint32_t block_count;
};

static struct scene
scene_with(const char *name, uint32_t block_count, uint32_t ghost_count)
{
    struct scene scene = {.block_count = block_count};
    struct yb_policy_options options = {.name = name, .ghost_count = ghost_count};

    assert_int_equal(yb_policy_create(&options, &scene.policy), YB_OK);
    scene.blocks = calloc(block_count, sizeof *scene.blocks);
    assert_non_null(scene.blocks);
    return scene;
}

static void
scene_end(struct scene *scene)
{
    yb_policy_destroy(&scene->policy);
    assert_null(scene->policy);
    free(scene->blocks);
}

static struct yb_policy_entry *
entry_of(struct scene *scene, uint32_t i)
{
    return &scene->blocks[i].linked.entry;
}

static void
insert_sized(struct scene *scene, uint32_t i, uint64_t size)
{
    struct yb_policy_facts facts = {.hash = i + 1, .size = size, .linked = true};

    yb_policy_insert(scene->policy, entry_of(scene, i), &facts, i);
    scene->blocks[i].present = true;
}

static void
insert_soft(struct scene *scene, uint32_t i)
{
    struct yb_policy_facts facts = {.hash = i + 1, .size = 1, .linked = true, .soft = true};

    yb_policy_insert(scene->policy, entry_of(scene, i), &facts, i);
    scene->blocks[i].present = true;
}

static void
insert(struct scene *scene, uint32_t i)
{
    insert_sized(scene, i, 1);
}

static uint32_t
victim(struct scene *scene)
{
    struct yb_policy_entry *entry = yb_policy_victim(scene->policy);

    if (entry == NULL) {
        return NONE;
    }
    assert_ptr_equal(yb_policy_victim(scene->policy), entry); /* It stays. */
    return (uint32_t)((struct block *)(void *)entry - scene->blocks);
}

static uint32_t
evict(struct scene *scene)
{
    uint32_t i = victim(scene);

    if (i != NONE) {
        yb_policy_evict(scene->policy, entry_of(scene, i));
        scene->blocks[i].present = false;
    }
    return i;
}

static void
attach(struct scene *scene, uint32_t child, uint32_t parent)
{
    assert_int_equal(yb_policy_attach(scene->policy, &scene->blocks[child].linked,
                                      &scene->blocks[parent].linked),
                     YB_OK);
}

static void
pin(struct scene *scene, uint32_t i)
{
    assert_int_equal(yb_policy_pin(scene->policy, entry_of(scene, i)), YB_OK);
}

/* ---- the exact orders ---------------------------------------------------------------------- */

struct model {
    uint64_t used_at[BLOCK_COUNT];
    uint32_t uses[BLOCK_COUNT];
    bool present[BLOCK_COUNT];
    bool by_uses;
};

static uint32_t
model_victim(const struct model *model)
{
    uint32_t best = NONE;

    for (uint32_t i = 0; i < BLOCK_COUNT; i++) {
        if (!model->present[i]) {
            continue;
        }
        if (best == NONE || (model->by_uses && model->uses[i] < model->uses[best]) ||
            ((!model->by_uses || model->uses[i] == model->uses[best]) &&
             model->used_at[i] < model->used_at[best])) {
            best = i;
        }
    }
    return best;
}

static void
walk_exact_order(const char *name, bool by_uses)
{
    uint64_t random = unit_seed(name);
    struct scene scene = scene_with(name, BLOCK_COUNT, 0);
    struct model model = {.by_uses = by_uses};
    uint32_t step_count = unit_long() ? 2000000 : 100000;

    for (uint32_t step = 1; step <= step_count; step++) {
        uint32_t i = (uint32_t)(unit_random(&random) % BLOCK_COUNT);
        uint32_t what = (uint32_t)(unit_random(&random) % 16);

        if (what < 3) {
            uint32_t gone = model_victim(&model);

            assert_int_equal(evict(&scene), gone);
            if (gone != NONE) {
                model.present[gone] = false;
            }
        } else if (!model.present[i]) {
            insert(&scene, i);
            model.present[i] = true;
            model.uses[i] = 1;
            model.used_at[i] = step;
        } else if (what == 3) {
            yb_policy_remove(scene.policy, entry_of(&scene, i));
            model.present[i] = false;
        } else {
            i /= 1 + (uint32_t)(unit_random(&random) % 8);
            if (model.present[i]) {
                yb_policy_access(scene.policy, entry_of(&scene, i), step);
                model.uses[i] += model.uses[i] < YB_POLICY_USES_MAX;
                model.used_at[i] = step;
            }
        }
    }
    scene_end(&scene);
}

static void
test_policy__lru_gives_up_the_least_recently_used(void **state)
{
    (void)state;
    walk_exact_order("lru", false);
}

static void
test_policy__lfu_gives_up_the_least_often_used(void **state)
{
    (void)state;
    walk_exact_order("lfu", true);
}

static void
test_policy__lfu_counts_up_to_its_bound(void **state)
{
    struct scene scene = scene_with("lfu", 2, 0);

    (void)state;
    insert(&scene, 0);
    insert(&scene, 1);
    for (uint32_t i = 0; i < 3 * YB_POLICY_USES_MAX; i++) {
        yb_policy_access(scene.policy, entry_of(&scene, 0), i);
    }
    for (uint32_t i = 0; i < YB_POLICY_USES_MAX - 2; i++) {
        yb_policy_access(scene.policy, entry_of(&scene, 1), i);
    }
    assert_int_equal(victim(&scene), 1);
    yb_policy_access(scene.policy, entry_of(&scene, 1), 0);
    assert_int_equal(victim(&scene), 0); /* Both at the bound: the least recently used. */
    scene_end(&scene);
}

/* ---- S3-FIFO against the paper's text ------------------------------------------------------ */

/* Queues are arrays, the newest last; whatever is slow is fine. */
struct queue {
    uint32_t ids[8 * BLOCK_COUNT];
    uint32_t count;
};

struct paper {
    struct queue small;
    struct queue main;
    struct queue ghost;
    uint32_t ghost_max;
    uint32_t freq[BLOCK_COUNT];
    uint64_t size[BLOCK_COUNT];
};

static void
queue_push(struct queue *queue, uint32_t id)
{
    queue->ids[queue->count++] = id;
}

static bool
queue_drop(struct queue *queue, uint32_t id)
{
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->ids[i] == id) {
            memmove(&queue->ids[i], &queue->ids[i + 1], (queue->count - i - 1) * sizeof id);
            queue->count--;
            return true;
        }
    }
    return false;
}

static uint64_t
queue_size(const struct paper *paper, const struct queue *queue)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < queue->count; i++) {
        size += paper->size[queue->ids[i]];
    }
    return size;
}

/* The ghost's age is counted in evictions: a block that came back leaves a gap. */
static void
paper_remember(struct paper *paper, uint32_t id)
{
    if (paper->ghost.count == paper->ghost_max) {
        queue_drop(&paper->ghost, paper->ghost.ids[0]);
    }
    queue_push(&paper->ghost, id);
}

static void
paper_insert(struct paper *paper, uint32_t id, uint64_t size)
{
    bool remembered = false;

    paper->size[id] = size;
    paper->freq[id] = 0;
    for (uint32_t i = 0; i < paper->ghost.count; i++) {
        if (paper->ghost.ids[i] == id) {
            paper->ghost.ids[i] = NONE;
            remembered = true;
        }
    }
    queue_push(remembered ? &paper->main : &paper->small, id);
}

static uint32_t
paper_evict(struct paper *paper)
{
    for (;;) {
        uint64_t small = queue_size(paper, &paper->small);
        uint64_t all = small + queue_size(paper, &paper->main);
        uint32_t id;

        if (paper->small.count + paper->main.count == 0) {
            return NONE;
        }
        if (paper->small.count > 0 && (small >= all / 10 || paper->main.count == 0)) {
            id = paper->small.ids[0];
            queue_drop(&paper->small, id);
            if (paper->freq[id] <= 1) {
                paper_remember(paper, id);
                return id;
            }
            paper->freq[id] = 0;
        } else {
            id = paper->main.ids[0];
            queue_drop(&paper->main, id);
            if (paper->freq[id] == 0) {
                return id;
            }
            paper->freq[id]--;
        }
        queue_push(&paper->main, id);
    }
}

static void
test_policy__s3fifo_follows_the_paper(void **state)
{
    uint64_t random = unit_seed("s3fifo");
    struct scene scene = scene_with("s3fifo", BLOCK_COUNT, 40);
    struct paper *paper = calloc(1, sizeof *paper);
    uint32_t step_count = unit_long() ? 500000 : 30000;
    uint32_t settled_count = 0;

    (void)state;
    assert_non_null(paper);
    paper->ghost_max = 40;
    for (uint32_t step = 1; step <= step_count; step++) {
        uint32_t i = (uint32_t)(unit_random(&random) % BLOCK_COUNT);
        uint32_t what = (uint32_t)(unit_random(&random) % 16);

        i /= 1 + (uint32_t)(unit_random(&random) % 4);
        if (what < 4) {
            assert_int_equal(evict(&scene), paper_evict(paper));
        } else if (!scene.blocks[i].present) {
            uint64_t size = 1 + unit_random(&random) % 9;

            insert_sized(&scene, i, size);
            paper_insert(paper, i, size);
            settled_count += entry_of(&scene, i)->settled;
        } else if (what == 4) {
            yb_policy_remove(scene.policy, entry_of(&scene, i));
            scene.blocks[i].present = false;
            assert_true(queue_drop(&paper->small, i) || queue_drop(&paper->main, i));
        } else {
            yb_policy_access(scene.policy, entry_of(&scene, i), step);
            paper->freq[i] += paper->freq[i] < 3;
        }
        assert_true(yb_policy_info(scene.policy).ghost_count <= 40);
    }
    assert_true(settled_count > 0); /* The ghost was of use. */
    free(paper);
    scene_end(&scene);
}

/* ---- the ghost ------------------------------------------------------------------------------ */

static void
test_policy__the_ghost_remembers_the_last_and_no_more(void **state)
{
    uint64_t random = unit_seed("ghost");
    struct yb_policy_ghost ghost;
    uint32_t *last = calloc(1000, sizeof *last); /* When each hash was added; 0: not, or taken. */

    (void)state;
    assert_non_null(last);
    assert_int_equal(yb_policy_ghost_init(&ghost, 100), YB_OK);
    for (uint32_t added = 0, step = 0; step < 100000; step++) {
        uint32_t hash = (uint32_t)(unit_random(&random) % 1000);

        if (unit_random(&random) % 4 == 0) {
            /* 0 and 1 are one hash. */
            uint32_t at = last[hash < 2 ? 1 : hash];

            assert_int_equal(yb_policy_ghost_take(&ghost, hash), at != 0 && added - at < 100);
            last[hash < 2 ? 1 : hash] = 0;
        } else {
            yb_policy_ghost_add(&ghost, hash);
            last[hash < 2 ? 1 : hash] = ++added;
        }
        assert_true(ghost.count <= 100);
    }
    yb_policy_ghost_fini(&ghost);
    assert_int_equal(yb_policy_ghost_init(&ghost, 0), YB_OK);
    yb_policy_ghost_add(&ghost, 7);
    assert_false(yb_policy_ghost_take(&ghost, 7));
    yb_policy_ghost_fini(&ghost);
    free(last);
}

/* ---- pins, parents, duplicates: for every policy -------------------------------------------- */

static void
test_policy__create_refuses_what_it_does_not_know(void **state)
{
    struct yb_policy *policy = NULL;
    struct yb_policy_options options = {.name = "mru"};

    (void)state;
    assert_int_equal(yb_policy_create(&options, &policy), YB_INVALID);
    options.name = NULL;
    assert_int_equal(yb_policy_create(&options, &policy), YB_INVALID);
    options = (struct yb_policy_options){.name = "s3fifo", .ghost_count = YB_POLICY_GHOST_MAX + 1};
    assert_int_equal(yb_policy_create(&options, &policy), YB_INVALID);
    assert_null(policy);
    assert_string_equal(yb_policy_name(0), "lru");
    assert_string_equal(yb_policy_name(2), "s3fifo");
    assert_string_equal(yb_policy_name(8), "trajectory");
    assert_null(yb_policy_name(9));
}

static void
test_policy__a_pinned_block_waits_and_is_next_when_it_may(void **state)
{
    (void)state;
    for (uint32_t p = 0; yb_policy_name(p) != NULL; p++) {
        struct scene scene = scene_with(yb_policy_name(p), 4, 4);

        for (uint32_t i = 0; i < 4; i++) {
            insert(&scene, i);
        }
        pin(&scene, 0);
        pin(&scene, 0);
        pin(&scene, 1);
        assert_int_equal(evict(&scene), 2);
        yb_policy_unpin(scene.policy, entry_of(&scene, 0));
        assert_int_equal(victim(&scene), 3);
        yb_policy_unpin(scene.policy, entry_of(&scene, 0));
        assert_int_equal(evict(&scene), 0);
        assert_int_equal(evict(&scene), 3);
        assert_int_equal(victim(&scene), NONE);
        assert_int_equal(yb_policy_info(scene.policy).pinned_count, 1);
        yb_policy_remove(scene.policy, entry_of(&scene, 1)); /* Pinned or not. */
        assert_int_equal(yb_policy_info(scene.policy).pinned_count, 0);
        assert_int_equal(yb_policy_info(scene.policy).entry_count, 0);
        scene_end(&scene);
    }
}

static void
test_policy__what_may_not_go_is_not_looked_at_again_and_again(void **state)
{
    (void)state;
    for (uint32_t p = 0; yb_policy_name(p) != NULL; p++) {
        struct scene scene = scene_with(yb_policy_name(p), 3000, 100);

        for (uint32_t i = 0; i < 3000; i++) { /* 1000 pinned, a chain of 1000, 1000 alone. */
            insert(&scene, i);
            if (i < 1000) {
                pin(&scene, i);
            } else if (i > 1000 && i < 2000) {
                attach(&scene, i, i - 1);
            }
        }
        for (uint32_t i = 0; i < 2000; i++) {
            assert_int_not_equal(evict(&scene), NONE); /* It asks twice. */
        }
        assert_int_equal(victim(&scene), NONE);
        /* One answer for each call, one park for each that may not go, one more for parents. */
        assert_in_range(yb_policy_info(scene.policy).looked_count, 4000, 4000 + 1000 + 2000 + 10);
        scene_end(&scene);
    }
}

static void
test_policy__pins_are_bounded(void **state)
{
    struct scene scene = scene_with("lru", 1, 0);

    (void)state;
    insert(&scene, 0);
    for (uint32_t i = 0; i < YB_POLICY_PINS_MAX; i++) {
        pin(&scene, 0);
    }
    assert_int_equal(yb_policy_pin(scene.policy, entry_of(&scene, 0)), YB_BUSY);
    for (uint32_t i = 0; i < YB_POLICY_PINS_MAX; i++) {
        assert_int_equal(victim(&scene), NONE);
        yb_policy_unpin(scene.policy, entry_of(&scene, 0));
    }
    assert_int_equal(victim(&scene), 0);
    scene_end(&scene);
}

static void
test_policy__a_chain_is_eaten_from_its_end(void **state)
{
    (void)state;
    for (uint32_t p = 0; yb_policy_name(p) != NULL; p++) {
        struct scene scene = scene_with(yb_policy_name(p), 12, 4);

        for (uint32_t i = 0; i < 12; i++) { /* 0 - 1 - ... - 9; 10 and 11 alone. */
            insert(&scene, i);
            if (i > 0 && i < 10) {
                attach(&scene, i, i - 1);
            }
        }
        for (uint32_t i = 0; i < 10; i++) { /* The first block's turn is the whole chain's. */
            assert_int_equal(evict(&scene), 9 - i);
        }
        assert_int_equal(evict(&scene), 10);
        scene_end(&scene);
    }
}

static void
test_policy__a_prefix_that_was_used_again_stays(void **state)
{
    struct scene scene = scene_with("lru", 8, 0);

    (void)state;
    for (uint32_t i = 0; i < 8; i++) { /* 0 - ... - 5; 6 and 7 alone. */
        insert(&scene, i);
        if (i > 0 && i < 6) {
            attach(&scene, i, i - 1);
        }
    }
    assert_int_equal(evict(&scene), 5);
    for (uint32_t i = 0; i < 3; i++) {
        yb_policy_access(scene.policy, entry_of(&scene, i), 100);
    }
    assert_int_equal(evict(&scene), 4);
    assert_int_equal(evict(&scene), 3);
    assert_int_equal(evict(&scene), 6);
    assert_int_equal(evict(&scene), 7);
    assert_int_equal(evict(&scene), 2);
    scene_end(&scene);
}

static void
test_policy__the_least_recently_used_child_goes_first(void **state)
{
    struct scene scene = scene_with("lru", 4, 0);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) { /* 1, 2 and 3 follow 0. */
        insert(&scene, i);
        if (i > 0) {
            attach(&scene, i, 0);
        }
    }
    yb_policy_access(scene.policy, entry_of(&scene, 1), 100);
    assert_int_equal(evict(&scene), 2);
    assert_int_equal(evict(&scene), 3);
    assert_int_equal(evict(&scene), 1);
    assert_int_equal(evict(&scene), 0);
    scene_end(&scene);
}

static void
test_policy__parents_form_no_cycle(void **state)
{
    struct scene scene = scene_with("lru", 4, 0);
    struct block *blocks = scene.blocks;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        insert(&scene, i);
    }
    assert_int_equal(yb_policy_attach(scene.policy, &blocks[0].linked, &blocks[0].linked),
                     YB_INVALID);
    attach(&scene, 1, 0);
    attach(&scene, 1, 0);
    attach(&scene, 2, 1);
    assert_int_equal(yb_policy_attach(scene.policy, &blocks[0].linked, &blocks[2].linked),
                     YB_INVALID);
    assert_int_equal(yb_policy_attach(scene.policy, &blocks[2].linked, &blocks[0].linked),
                     YB_INVALID);
    attach(&scene, 0, 3); /* A prefix that came late. */
    assert_int_equal(evict(&scene), 2);
    assert_int_equal(evict(&scene), 1);
    assert_int_equal(evict(&scene), 0);
    assert_int_equal(evict(&scene), 3);
    scene_end(&scene);
}

static void
test_policy__halves_of_a_chain_join_without_a_cycle(void **state)
{
    struct scene scene = scene_with("lru", 6, 0);
    struct block *blocks = scene.blocks;

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        insert(&scene, i);
    }
    attach(&scene, 1, 0);
    attach(&scene, 2, 1);
    attach(&scene, 5, 4);
    attach(&scene, 4, 3);
    attach(&scene, 3, 2); /* It has children, and its parent has one. */
    assert_int_equal(yb_policy_attach(scene.policy, &blocks[0].linked, &blocks[5].linked),
                     YB_INVALID);
    for (uint32_t i = 6; i > 0; i--) {
        assert_int_equal(evict(&scene), i - 1);
    }
    scene_end(&scene);
}

static void
test_policy__what_is_softly_pinned_goes_after_all_that_is_not(void **state)
{
    (void)state;
    for (uint32_t p = 0; yb_policy_name(p) != NULL; p++) {
        struct scene scene = scene_with(yb_policy_name(p), 6, 4);

        insert_soft(&scene, 0);
        insert_soft(&scene, 1);
        for (uint32_t i = 2; i < 6; i++) {
            insert(&scene, i);
        }
        attach(&scene, 1, 3); /* Its prefix stays as long as it does. */
        yb_policy_access(scene.policy, entry_of(&scene, 0), 7);
        pin(&scene, 1);
        assert_int_equal(evict(&scene), 2);
        assert_int_equal(evict(&scene), 4);
        assert_int_equal(evict(&scene), 5);
        assert_int_equal(evict(&scene), 0); /* Its turn is when nothing else may go. */
        assert_int_equal(victim(&scene), NONE);
        yb_policy_unpin(scene.policy, entry_of(&scene, 1));
        assert_int_equal(evict(&scene), 1);
        assert_int_equal(evict(&scene), 3);
        scene_end(&scene);
    }
}

static void
end_soft(struct scene *scene, uint32_t i, uint64_t now_ns)
{
    struct yb_policy_use use = {.request = now_ns};

    yb_policy_end_soft(scene->policy, entry_of(scene, i), &use, now_ns);
}

static void
test_policy__a_soft_pin_that_has_ended_keeps_nothing(void **state)
{
    (void)state;
    for (uint32_t p = 0; yb_policy_name(p) != NULL; p++) {
        struct scene scene = scene_with(yb_policy_name(p), 3, 4);

        insert_soft(&scene, 0);
        insert_soft(&scene, 1);
        insert(&scene, 2);
        attach(&scene, 1, 2);
        assert_int_equal(victim(&scene), 0); /* The prefix waits for what is softly pinned. */
        end_soft(&scene, 1, 3);
        end_soft(&scene, 1, 4); /* Once is enough. */
        assert_int_equal(evict(&scene), 1);
        assert_int_equal(evict(&scene), 2);
        assert_int_equal(evict(&scene), 0);
        scene_end(&scene);
    }
}

static void
test_policy__what_lost_its_prefix_goes_next(void **state)
{
    struct scene scene = scene_with("lru", 4, 0);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        insert(&scene, i);
    }
    attach(&scene, 3, 2);
    yb_policy_remove(scene.policy, entry_of(&scene, 2));
    assert_int_equal(evict(&scene), 3);
    assert_int_equal(evict(&scene), 0);
    scene_end(&scene);
}

static void
test_policy__a_duplicate_goes_before_its_neighbours(void **state)
{
    static const char *const orders[] = {"lru", "lfu", "s3fifo", "fifo", "sieve", "length-aware"};

    (void)state;
    for (uint32_t p = 0; p < sizeof orders / sizeof orders[0]; p++) { /* The oldest goes first. */
        struct scene scene = scene_with(orders[p], 2 * YB_POLICY_LOOK, 4);

        for (uint32_t i = 0; i < 2 * YB_POLICY_LOOK; i++) {
            insert(&scene, i);
        }
        yb_policy_set_duplicate(scene.policy, entry_of(&scene, 5), true);
        yb_policy_set_duplicate(scene.policy, entry_of(&scene, 4), true);
        yb_policy_set_duplicate(scene.policy, entry_of(&scene, 2 * YB_POLICY_LOOK - 1), true);
        pin(&scene, 4);
        assert_int_equal(evict(&scene), 5);
        assert_int_equal(evict(&scene), 0); /* The last is too far: hot blocks may have copies. */
        yb_policy_set_duplicate(scene.policy, entry_of(&scene, 3), true);
        yb_policy_set_duplicate(scene.policy, entry_of(&scene, 3), false);
        assert_int_equal(evict(&scene), 1);
        assert_int_equal(yb_policy_info(scene.policy).duplicate_count, 2);
        scene_end(&scene);
    }
}

static void
test_policy__create_without_memory_leaves_nothing_behind(void **state)
{
    struct yb_policy_options options = {.name = "s3fifo", .ghost_count = 1000};
    struct yb_policy *policy = NULL;

    (void)state;
    if (!ALLOC_FAULT_WORKS) {
        skip();
    }
    for (uint64_t i = 0; policy == NULL; i++) {
        enum yb_status status;

        alloc_fault_after = i;
        status = yb_policy_create(&options, &policy);
        alloc_fault_after = UINT64_MAX;
        assert_int_equal(status, i < 4 ? YB_NO_MEMORY : YB_OK); /* Two records, ring, index. */
    }
    yb_policy_destroy(&policy);
}

/* Check P1 and P2 against all blocks, and take what the victim says. */
static void
check_victim(struct scene *scene)
{
    struct yb_policy_info info = yb_policy_info(scene->policy);
    uint64_t entry_count = 0, pinned_count = 0, size_sum = 0;
    bool one_may_go = false, firm_may_go = false;
    uint32_t i;

    for (i = 0; i < scene->block_count; i++) {
        const struct yb_policy_linked *linked = &scene->blocks[i].linked;

        if (scene->blocks[i].present) {
            entry_count++;
            size_sum += linked->entry.size;
            pinned_count += linked->entry.pins > 0;
            one_may_go = one_may_go || (linked->entry.pins == 0 && linked->child == NULL);
            firm_may_go = firm_may_go ||
                          (linked->entry.pins == 0 && linked->child == NULL && !linked->entry.soft);
            assert_true(linked->parent == NULL ||
                        ((struct block *)(void *)linked->parent)->present);
        }
    }
    assert_int_equal(info.entry_count, entry_count);
    assert_int_equal(info.pinned_count, pinned_count);
    assert_int_equal(info.size_sum, size_sum);
    i = victim(scene);
    assert_int_equal(i != NONE, one_may_go);
    if (i != NONE) {
        assert_true(scene->blocks[i].present);
        assert_int_equal(scene->blocks[i].linked.entry.pins, 0);
        assert_null(scene->blocks[i].linked.child);
        assert_int_equal(scene->blocks[i].linked.entry.soft, !firm_may_go); /* P5 */
    }
}

static void
walk_step(struct scene *scene, uint64_t *random, uint32_t step)
{
    uint32_t i = (uint32_t)(unit_random(random) % scene->block_count);
    uint32_t other = (uint32_t)(unit_random(random) % scene->block_count);
    struct yb_policy_entry *entry = entry_of(scene, i);

    if (!scene->blocks[i].present) {
        if (unit_random(random) % 4 == 0) {
            insert_soft(scene, i);
        } else {
            insert_sized(scene, i, unit_random(random) % 100);
        }
        if (scene->blocks[other].present && other != i) {
            if (step % 4 > 0 || scene->blocks[other].linked.parent != NULL) {
                attach(scene, i, other);
            } else {
                attach(scene, other, i);
            }
        }
        return;
    }
    switch (unit_random(random) % 9) {
    case 0:
    case 1:
        if (entry->pins < 3) {
            pin(scene, i);
        }
        break;
    case 2:
    case 3:
        if (entry->pins > 0) {
            yb_policy_unpin(scene->policy, entry);
        }
        break;
    case 4: yb_policy_access(scene->policy, entry, step); break;
    case 8: end_soft(scene, i, step); break;
    case 5: yb_policy_set_duplicate(scene->policy, entry, unit_random(random) % 2 == 0); break;
    case 6:
        if (unit_random(random) % 4 == 0) {
            yb_policy_remove(scene->policy, entry);
            scene->blocks[i].present = false;
        }
        break;
    default: (void)evict(scene); break;
    }
}

static void
test_policy__no_victim_is_pinned_or_has_children_and_one_is_found(void **state)
{
    uint64_t random = unit_seed("policy walk");
    uint32_t step_count = unit_long() ? 300000 : 20000;

    (void)state;
    for (uint32_t p = 0; yb_policy_name(p) != NULL; p++) {
        struct scene scene = scene_with(yb_policy_name(p), 60, 20);
        uint64_t calloc_count = alloc_fault_count;

        for (uint32_t step = 0; step < step_count; step++) {
            walk_step(&scene, &random, step);
            check_victim(&scene);
        }
        for (uint32_t i = 0; i < 60; i++) { /* Without pins, all can go. */
            while (scene.blocks[i].present && entry_of(&scene, i)->pins > 0) {
                yb_policy_unpin(scene.policy, entry_of(&scene, i));
            }
        }
        while (evict(&scene) != NONE) {
            check_victim(&scene);
        }
        assert_int_equal(alloc_fault_count, calloc_count); /* P3 */
        assert_int_equal(yb_policy_info(scene.policy).entry_count, 0);
        assert_int_equal(yb_policy_info(scene.policy).parked_count, 0);
        assert_int_equal(yb_policy_info(scene.policy).front_count, 0);
        scene_end(&scene);
    }
}

/* ---- what it is good for -------------------------------------------------------------------- */

#define ZIPF_KEYS 20000u

/* Return the share of hits with room for `room` blocks: Zipf's law with exponent 1, and one block
 * in four that is never seen again. */
static double
hit_ratio(const char *name, uint32_t room, uint64_t seed)
{
    static double sum[ZIPF_KEYS];
    uint32_t request_count = 200000, hit_count = 0, zipf_count = 0;
    struct scene scene = scene_with(name, ZIPF_KEYS + request_count, room);
    uint64_t random = seed;

    for (uint32_t i = 0; i < ZIPF_KEYS; i++) {
        sum[i] = (i > 0 ? sum[i - 1] : 0) + 1.0 / (i + 1);
    }
    for (uint32_t step = 0; step < request_count; step++) {
        uint32_t low = 0, high = ZIPF_KEYS - 1;
        double at = (double)(unit_random(&random) >> 11) / 9007199254740992.0 * sum[high];

        if (unit_random(&random) % 4 == 0) {
            low = ZIPF_KEYS + step;
        } else {
            zipf_count++;
            while (low < high) {
                uint32_t middle = (low + high) / 2;

                if (sum[middle] < at) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
        }
        if (scene.blocks[low].present) {
            hit_count++;
            yb_policy_access(scene.policy, entry_of(&scene, low), step);
            continue;
        }
        if (yb_policy_info(scene.policy).entry_count == room) {
            (void)evict(&scene);
        }
        insert(&scene, low);
    }
    scene_end(&scene);
    return (double)hit_count / zipf_count;
}

static void
test_policy__frequency_pays_on_a_zipf_sequence_with_scans(void **state)
{
    uint64_t seed = unit_seed("zipf");
    double lru = hit_ratio("lru", 1000, seed);
    double lfu = hit_ratio("lfu", 1000, seed);
    double s3fifo = hit_ratio("s3fifo", 1000, seed);
    double best = 0, all = 0;

    (void)state;
    printf("hits of 1000 blocks: lru %.3f, lfu %.3f, s3fifo %.3f\n", lru, lfu, s3fifo);
    for (uint32_t i = 0; i < ZIPF_KEYS; i++) {
        all += 1.0 / (i + 1);
        best += i < 1000 ? 1.0 / (i + 1) : 0;
    }
    assert_true(lru > 0.4);
    assert_true(s3fifo > lru + 0.02);
    assert_true(lfu > lru + 0.02);
    assert_true(lfu < best / all + 0.01 && s3fifo < best / all + 0.01);
}

/* ---- the marks ------------------------------------------------------------------------------ */

static void
test_policy__marks_free_down_to_the_low_one(void **state)
{
    struct yb_policy_marks marks;

    (void)state;
    assert_int_equal(yb_policy_marks_init(&marks, 1000, 900, 950), YB_INVALID);
    assert_int_equal(yb_policy_marks_init(&marks, 1000, 1001, 900), YB_INVALID);
    assert_int_equal(yb_policy_marks_init(&marks, (1ull << 54) + 1, 950, 900), YB_INVALID);
    assert_int_equal(yb_policy_marks_init(&marks, 1000, 950, 900), YB_OK);
    assert_int_equal(yb_policy_marks_to_free(&marks, 950, 0), 0);
    assert_int_equal(yb_policy_marks_to_free(&marks, 951, 0), 51);
    assert_int_equal(yb_policy_marks_to_free(&marks, 900, 50), 0);
    assert_int_equal(yb_policy_marks_to_free(&marks, 900, 51), 51);
    assert_int_equal(yb_policy_marks_to_free(&marks, 800, 1000), 800);
    assert_int_equal(yb_policy_marks_to_free(&marks, 0, 1000), 0);
    assert_int_equal(yb_policy_marks_to_free(&marks, 1000, 1001), 0);
    assert_int_equal(yb_policy_marks_to_free(&marks, 1000, UINT64_MAX), 0);
}

static void
test_policy__marks_make_room_for_whatever_fits(void **state)
{
    uint64_t random = unit_seed("marks");

    (void)state;
    for (uint32_t step = 0; step < 100000; step++) {
        struct yb_policy_marks marks;
        uint32_t high = (uint32_t)(unit_random(&random) % 1001);
        uint64_t capacity = unit_random(&random) >> (10 + unit_random(&random) % 50);
        uint64_t used = capacity == 0 ? 0 : unit_random(&random) % (capacity + 1);
        uint64_t incoming = capacity == 0 ? 0 : unit_random(&random) % (capacity + 1);
        uint64_t freed;

        assert_int_equal(yb_policy_marks_init(&marks, capacity, high,
                                              (uint32_t)(unit_random(&random) % (high + 1))),
                         YB_OK);
        freed = yb_policy_marks_to_free(&marks, used, incoming);
        assert_true(freed <= used);
        assert_true(used - freed + incoming <= capacity);
        if (freed > 0) {
            assert_true(used + incoming > marks.high);
            assert_int_equal(used - freed + incoming, incoming > marks.low ? incoming : marks.low);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy__lru_gives_up_the_least_recently_used),
        cmocka_unit_test(test_policy__lfu_gives_up_the_least_often_used),
        cmocka_unit_test(test_policy__lfu_counts_up_to_its_bound),
        cmocka_unit_test(test_policy__s3fifo_follows_the_paper),
        cmocka_unit_test(test_policy__the_ghost_remembers_the_last_and_no_more),
        cmocka_unit_test(test_policy__create_refuses_what_it_does_not_know),
        cmocka_unit_test(test_policy__create_without_memory_leaves_nothing_behind),
        cmocka_unit_test(test_policy__a_pinned_block_waits_and_is_next_when_it_may),
        cmocka_unit_test(test_policy__what_may_not_go_is_not_looked_at_again_and_again),
        cmocka_unit_test(test_policy__pins_are_bounded),
        cmocka_unit_test(test_policy__a_chain_is_eaten_from_its_end),
        cmocka_unit_test(test_policy__a_prefix_that_was_used_again_stays),
        cmocka_unit_test(test_policy__the_least_recently_used_child_goes_first),
        cmocka_unit_test(test_policy__parents_form_no_cycle),
        cmocka_unit_test(test_policy__halves_of_a_chain_join_without_a_cycle),
        cmocka_unit_test(test_policy__what_is_softly_pinned_goes_after_all_that_is_not),
        cmocka_unit_test(test_policy__a_soft_pin_that_has_ended_keeps_nothing),
        cmocka_unit_test(test_policy__what_lost_its_prefix_goes_next),
        cmocka_unit_test(test_policy__a_duplicate_goes_before_its_neighbours),
        cmocka_unit_test(test_policy__no_victim_is_pinned_or_has_children_and_one_is_found),
        cmocka_unit_test(test_policy__frequency_pays_on_a_zipf_sequence_with_scans),
        cmocka_unit_test(test_policy__marks_free_down_to_the_low_one),
        cmocka_unit_test(test_policy__marks_make_room_for_whatever_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
