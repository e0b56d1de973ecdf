/* SPDX-License-Identifier: Apache-2.0
 *
 * Ours: what goes first is what will bring the fewest uses for the time that it takes up room, by
 * what became of blocks like it. hazard.h says how that is learned and reckoned, path.h how
 * requests are known again; this file says what is alike.
 *
 *   body    by turn (how many requests went on before this one); by how many blocks are new (in
 *           the first turn: how many there are): who adds five pages asks less often again; and by
 *           how long the answer was, if that is told: a word about a document is seldom the last
 *   tail    by turn
 *   shared  by the number of uses
 */
#include "base/check.h"
#include "policy/path.h"

#define TURNS   5u /* 0 to 3, and more. */
#define ANSWERS 5u /* Not known, and four lengths. */
#define LENGTHS 8u
#define BODIES  (ANSWERS * LENGTHS) /* Of a turn. */
#define TAIL    (TURNS * BODIES)
#define SHARED  (TAIL + TURNS)
#define USES    16u
_Static_assert(SHARED + USES <= YB_HAZARD_CLASSES, "classes of each sort");

static bool
is_tail(uint32_t class_index)
{
    return class_index >= TAIL && class_index < SHARED;
}

static bool
is_shared(uint32_t class_index)
{
    return class_index >= SHARED && class_index < SHARED + USES;
}

static uint32_t
turn_of(uint32_t class_index)
{
    return is_tail(class_index) ? class_index - TAIL : class_index / BODIES;
}

static uint32_t
answer_of(uint32_t tokens)
{
    static const uint32_t bounds[ANSWERS] = {0, 1, 31, 127, UINT32_MAX};
    uint32_t answer = 0;

    while (tokens > bounds[answer]) {
        answer++;
    }
    return answer;
}

static uint32_t
body(const struct yb_path_request *request)
{
    static const uint32_t first[LENGTHS] = {2, 3, 5, 9, 19, 39, 79, UINT32_MAX};
    static const uint32_t later[LENGTHS] = {1, 2, 4, 9, 29, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    uint32_t turn = request->goes_on ? turn_of(request->class_before) + 1 : 0;
    uint32_t count = turn == 0 ? request->blocks : request->new_blocks;
    const uint32_t *bounds = turn == 0 ? first : later;
    uint32_t length = 0;

    while (count > bounds[length]) {
        length++;
    }
    return (turn < TURNS ? turn : TURNS - 1) * BODIES +
           answer_of(request->answer_tokens) * LENGTHS + length;
}

static uint32_t
tail(uint32_t body_class)
{
    return TAIL + turn_of(body_class);
}

static uint32_t
shared(uint32_t uses)
{
    uint32_t bits = uses == 0 ? 0 : 31u - (uint32_t)__builtin_clz(uses);

    return SHARED + (bits < USES ? bits : USES - 1);
}

static void
set_classes(struct yb_hazard_class classes[YB_HAZARD_CLASSES])
{
    for (uint32_t c = 0; c < YB_HAZARD_CLASSES; c++) {
        classes[c].kind = c < TAIL ? 0 : c < SHARED ? 1 : 2;
        classes[c].family = (uint8_t)(c < TAIL ? c / BODIES * BODIES : c < SHARED ? TAIL : SHARED);
    }
}

static double
worth(const struct yb_path *path, uint32_t class_index, uint64_t age)
{
    return yb_hazard_index(yb_path_hazard(path), class_index, age);
}

static const struct yb_path_kind kind = {
    .may_rise = true,
    .classes = set_classes,
    .body = body,
    .tail = tail,
    .shared = shared,
    .is_tail = is_tail,
    .is_shared = is_shared,
    .worth = worth,
};

static enum yb_status
trajectory_create(const struct yb_policy_options *options, void **state_out)
{
    return yb_path_create(options, &kind, state_out);
}

const struct yb_policy_ops yb_policy_ops_trajectory = {
    .name = "trajectory",
    .create = trajectory_create,
    .destroy = yb_path_destroy,
    .insert = yb_path_insert,
    .use = yb_path_use,
    .take = yb_path_take,
    .leave = yb_path_leave,
    .first = yb_path_first,
    .ghost_count = yb_path_remembered,
};
