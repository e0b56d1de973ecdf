/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches from submit to judgement.
 */
#include "transfer_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void
world_digest(struct world *world, uint64_t a, uint64_t b)
{
    uint64_t words[2] = {a, b};

    world->digest = XXH3_64bits_withSeed(words, sizeof(words), world->digest);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void
pattern(uint8_t *bytes, size_t length, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;

    for (size_t i = 0; i < length; i += sizeof(state)) {
        size_t left = length - i < sizeof(state) ? length - i : sizeof(state);

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(bytes + i, &state, left);
    }
}

/* The program uses its memory for something else: whatever was there is over. */
void
world_refill(struct world *world, struct world_area *area, size_t at, size_t length)
{
    pattern(area->model + at, length, world->options.seed * 65536 + ++world->fills);
    memcpy(area->bytes + at, area->model + at, length);
}

void
world_expect_model(struct world *world, const struct world_area *area, size_t at, size_t length)
{
    for (size_t i = at; memcmp(area->bytes + at, area->model + at, length) != 0; i++) {
        if (area->bytes[i] != area->model[i]) {
            (void)fprintf(stderr, "cell %zu, byte %zu: %02x, not %02x\n", i / WORLD_CELL_BYTES,
                          i % WORLD_CELL_BYTES, area->bytes[i], area->model[i]);
            WORLD_CHECK(world, false); /* X3 */
        }
    }
}

/* X2: an item that did not go well left nothing but old bytes and new ones. */
static void
expect_mixture(struct world *world, const uint8_t *found, const uint8_t *old, const uint8_t *moved,
               size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (found[i] != old[i] && found[i] != moved[i]) {
            (void)fprintf(stderr, "byte %zu of %zu: %02x, neither %02x nor %02x\n", i, length,
                          found[i], old[i], moved[i]);
            WORLD_CHECK(world, false);
        }
    }
}

/* ---- claims --------------------------------------------------------------------------------- */

bool
world_target_is_same(const struct claim *claim)
{
    return claim->to->life == claim->to_life;
}

void
world_release_cells(struct claim **cells, uint32_t first, uint32_t count, const struct claim *claim)
{
    for (uint32_t i = first; i < first + count; i++) {
        if (cells[i] == claim) {
            cells[i] = NULL;
        }
    }
}

void
world_free_claim(struct claim *claim)
{
    struct claim **link = &claim->world->claims;

    while (*link != claim) {
        link = &(*link)->next;
    }
    *link = claim->next;
    world_release_cells(claim->to->cells, claim->first, claim->count, claim);
    free(claim->moved);
    free(claim->old);
    free(claim);
}

struct claim *
world_find(const struct world *world, uint32_t number)
{
    for (struct claim *claim = world->claims; claim != NULL; claim = claim->next) {
        if (claim->number == number) {
            return claim;
        }
    }
    return NULL;
}

uint32_t
world_pins(struct node *node, uint32_t cell)
{
    struct yb_region_info info;

    WORLD_CHECK(node->world,
                yb_region_get(node->engine->regions, node->regions[cell], &info) == YB_OK);
    return info.pins;
}

/* X4, for cells that are written only. */
void
world_expect_pins(struct claim *claim, uint32_t at, uint32_t length)
{
    struct node *node = claim->to;
    uint32_t first = claim->first + at / WORLD_CELL_BYTES;
    uint32_t last = claim->first + (at + length - 1) / WORLD_CELL_BYTES;

    if (node->engine == NULL || !node->registered || !node->cell_regions) {
        return;
    }
    for (uint32_t cell = first; cell <= last && cell < WORLD_READ_FROM; cell++) {
        uint32_t pins_max = 0;

        for (uint32_t i = 0; i < claim->item_count; i++) {
            bool inside = claim->first + claim->at[i] / WORLD_CELL_BYTES == cell;

            /* An item that has ended without doubt is quiet. */
            pins_max += inside && (!claim->ended || claim->ends[i].in_doubt);
        }
        WORLD_CHECK(claim->world, world_pins(node, cell) <= pins_max);
    }
}

/* A write has ended, or is in doubt no more: judge an item's bytes at the target, and let its
 * program use the memory for something else. */
static void
judge_written(struct claim *claim, uint32_t item)
{
    struct world *world = claim->world;
    uint32_t at = claim->at[item];
    uint32_t length = claim->at[item + 1] - at;
    size_t place = (size_t)claim->first * WORLD_CELL_BYTES + at;
    struct world_area *area = &claim->to->area;

    if (!world_target_is_same(claim)) {
        if (claim->by_address && claim->to->engine != NULL) {
            if (claim->ends[item].status == YB_OK) { /* By one of the two lives. */
                WORLD_CHECK(world,
                            memcmp(area->bytes + place, claim->moved + at, length) == 0 ||
                                memcmp(area->bytes + place, area->model + place, length) == 0);
            }
            expect_mixture(world, area->bytes + place, area->model + place, claim->moved + at,
                           length);
            world_refill(world, area, place, length);
        }
        return;
    }
    if (claim->ends[item].status == YB_OK) {
        WORLD_CHECK(world, memcmp(area->bytes + place, claim->moved + at, length) == 0); /* X2 */
    } else {
        expect_mixture(world, area->bytes + place, claim->old + at, claim->moved + at, length);
    }
    world_refill(world, area, place, length);
}

static void
judge_read(struct claim *claim, uint32_t item)
{
    struct world *world = claim->world;
    uint32_t at = claim->at[item];
    uint32_t length = claim->at[item + 1] - at;
    const uint8_t *found =
        claim->from->local.bytes + (size_t)claim->local_first * WORLD_CELL_BYTES + at;

    WORLD_CHECK(world, !claim->ends[item].in_doubt);
    if (!world_target_is_same(claim) && claim->by_address) {
        return; /* It may be of the other life. */
    }
    if (claim->ends[item].status == YB_OK) {
        WORLD_CHECK(world, memcmp(found, claim->moved + at, length) == 0);
    } else {
        expect_mixture(world, found, claim->old + at, claim->moved + at, length);
    }
}

/* X1: the batch's numbers are those of its items. */
static void
check_sums(struct claim *claim, const struct yb_transfer_batch_status *end)
{
    struct world *world = claim->world;
    uint64_t bytes = 0;
    uint32_t failed = 0;
    bool doubted = false;

    for (uint32_t i = 0; i < claim->item_count; i++) {
        const struct yb_transfer_item_status *one = &claim->ends[i];
        uint32_t length = claim->at[i + 1] - claim->at[i];

        WORLD_CHECK(world, one->status != YB_IN_PROGRESS && one->bytes <= length);
        WORLD_CHECK(world, one->status != YB_OK || (!one->in_doubt && one->bytes == length));
        bytes += one->bytes;
        failed += one->status != YB_OK;
        doubted = doubted || one->in_doubt;
        world_digest(world, (uint64_t)one->status, one->in_doubt);
    }
    WORLD_CHECK(world, end->items == claim->item_count && end->ended == claim->item_count);
    WORLD_CHECK(world, end->failed == failed && end->bytes == bytes);
    WORLD_CHECK(world, failed == 0 || end->status != YB_OK);
    WORLD_CHECK(world, failed > 0 || end->status == YB_OK || claim->notifies);
    WORLD_CHECK(world, !doubted || end->in_doubt);
    world->counts.ok += end->status == YB_OK;
    world->counts.failed += end->status != YB_OK;
    world->counts.doubted += doubted;
    claim->doubted = doubted;
}

uint64_t
world_now(const struct node *node)
{
    return yb_clock_now(yb_sim_host_clock(node->host));
}

static void
check_time(const struct claim *claim)
{
    const struct node *node = claim->from;
    bool disturbed =
        node->dying || node->stalled || node->disturbed_ns + WORLD_SLACK_NS >= claim->submitted_ns;

    if (claim->deadline_ns != YB_NEVER && !disturbed) {
        WORLD_CHECK(claim->world, world_now(node) <= claim->deadline_ns + WORLD_SLACK_NS); /* X1 */
    }
}

/* Take what was notified at a node (X5). */
void
world_take_notifications(struct node *node)
{
    struct world *world = node->world;
    struct yb_transfer_notification note;
    struct claim *claim;
    uint32_t number;

    while (node->engine != NULL && yb_transfer_next_notification(node->engine, &note) == YB_OK) {
        WORLD_CHECK(world, note.bytes == sizeof(number));
        memcpy(&number, note.payload, sizeof(number));
        WORLD_CHECK(world, number < world->claim_count && world->notified[number] == 0);
        world->notified[number]++;
        claim = world_find(world, number);
        if (claim == NULL || claim->ended || !world_target_is_same(claim)) {
            continue;
        }
        WORLD_CHECK(world, claim->to == node);
        if (claim->op == YB_TRANSFER_WRITE) {
            WORLD_CHECK(world, memcmp(node->area.bytes + (size_t)claim->first * WORLD_CELL_BYTES,
                                      claim->moved, (size_t)claim->count * WORLD_CELL_BYTES) == 0);
        }
    }
}

static void
check_notified(struct claim *claim, const struct yb_transfer_batch_status *end)
{
    struct world *world = claim->world;

    world_take_notifications(claim->to);
    if (end->failed > 0 || !claim->notifies) {
        WORLD_CHECK(world, world->notified[claim->number] == 0);
    } else if (end->status == YB_OK && world_target_is_same(claim)) {
        WORLD_CHECK(world, world->notified[claim->number] == 1);
    }
}

/* What the outcome says holds now, and memory is used again at once. */
static void
judge(struct claim *claim)
{
    struct world *world = claim->world;
    struct node *from = claim->from;

    for (uint32_t i = 0; i < claim->item_count; i++) {
        if (claim->op == YB_TRANSFER_READ) {
            judge_read(claim, i);
        } else if (!claim->ends[i].in_doubt) {
            judge_written(claim, i);
        }
    }
    if (claim->op == YB_TRANSFER_WRITE && world_target_is_same(claim)) {
        world_expect_pins(claim, 0, claim->count * WORLD_CELL_BYTES);
    }
    world_refill(world, &from->local, (size_t)claim->local_first * WORLD_CELL_BYTES,
                 (size_t)claim->count * WORLD_CELL_BYTES);
    world_release_cells(from->local_cells, claim->local_first, claim->count, claim);
}

static void
on_done(struct yb_transfer *engine, yb_transfer_batch batch, void *owner)
{
    struct claim *claim = owner;
    struct world *world = claim->world;
    struct yb_transfer_batch_status end;

    WORLD_CHECK(world, !claim->ended && claim->batch == batch); /* X1 */
    claim->ended = true;
    world->running--;
    WORLD_CHECK(world,
                yb_transfer_poll(engine, batch, &end, claim->ends, WORLD_ITEMS_MAX) == YB_OK);
    WORLD_CHECK(world, yb_transfer_release(engine, batch) == YB_OK);
    WORLD_CHECK(world, yb_transfer_release(engine, batch) == YB_CLOSED);
    check_sums(claim, &end);
    check_time(claim);
    check_notified(claim, &end);
    world_digest(world, claim->number, (uint64_t)end.status);
    judge(claim);
    if (!claim->doubted) {
        world_free_claim(claim);
    }
}

/* Nothing of what was in doubt can land any more. */
void
world_clear_doubt(struct claim *claim)
{
    for (uint32_t i = 0; i < claim->item_count; i++) {
        if (claim->ends[i].in_doubt) {
            claim->ends[i].in_doubt = false;
            judge_written(claim, i);
        }
    }
    if (world_target_is_same(claim)) {
        world_expect_pins(claim, 0, claim->count * WORLD_CELL_BYTES);
    }
    world_free_claim(claim);
}

/* ---- submit --------------------------------------------------------------------------------- */

/* Find `count` cells in a row, from `begin` on and below `end`; UINT32_MAX: there are none. */
static uint32_t
find_free(struct claim *const *cells, uint32_t begin, uint32_t end, uint32_t count)
{
    uint32_t run = 0;

    for (uint32_t i = begin; i < end; i++) {
        run = cells[i] == NULL ? run + 1 : 0;
        if (run == count) {
            return i + 1 - count;
        }
    }
    return UINT32_MAX;
}

static void
cut_items(struct claim *claim, const struct world_ask *ask)
{
    struct world *world = claim->world;
    uint32_t per_cell = ask->items_per_cell;

    if (ask->whole && !claim->to->cell_regions) {
        claim->item_count = 1;
        claim->at[1] = claim->count * WORLD_CELL_BYTES;
        return;
    }
    for (uint32_t cell = 0; cell < claim->count; cell++) {
        uint32_t at = cell * WORLD_CELL_BYTES;

        for (uint32_t i = 0; i < per_cell; i++) {
            uint32_t left = (cell + 1) * WORLD_CELL_BYTES - at - (per_cell - 1 - i);

            claim->at[claim->item_count++] = at;
            at += i + 1 == per_cell ? left : 1 + (uint32_t)yb_sim_random_below(world->sim, left);
        }
    }
    claim->at[claim->item_count] = claim->count * WORLD_CELL_BYTES;
}

static void
make_items(const struct claim *claim, struct yb_transfer_item *items)
{
    const struct node *to = claim->to;

    for (uint32_t i = 0; i < claim->item_count; i++) {
        uint64_t place = (uint64_t)claim->first * WORLD_CELL_BYTES + claim->at[i];
        uint32_t cell = (uint32_t)(place / WORLD_CELL_BYTES);

        items[i] = (struct yb_transfer_item){
            .op = claim->op,
            .local = claim->from->local.bytes + (size_t)claim->local_first * WORLD_CELL_BYTES +
                     claim->at[i],
            .length = claim->at[i + 1] - claim->at[i],
            .remote = to->regions[cell],
            .remote_offset = place - (to->cell_regions ? cell * WORLD_CELL_BYTES : 0),
        };
        if (claim->by_address) {
            items[i].remote = YB_TRANSFER_BY_ADDRESS;
            items[i].remote_offset = (uintptr_t)to->area.bytes + place;
        }
    }
}

/* Remember what must come out of it, and give the source bytes of its own. */
static void
fill_claim(struct claim *claim)
{
    struct world *world = claim->world;
    size_t length = (size_t)claim->count * WORLD_CELL_BYTES;
    size_t there = (size_t)claim->first * WORLD_CELL_BYTES;
    size_t here = (size_t)claim->local_first * WORLD_CELL_BYTES;

    claim->moved = malloc(length);
    claim->old = malloc(length);
    WORLD_CHECK(world, claim->moved != NULL && claim->old != NULL);
    world_expect_model(world, &claim->to->area, there, length);
    world_expect_model(world, &claim->from->local, here, length);
    if (claim->op == YB_TRANSFER_WRITE) {
        memcpy(claim->moved, claim->from->local.model + here, length);
        memcpy(claim->old, claim->to->area.model + there, length);
    } else {
        memcpy(claim->moved, claim->to->area.model + there, length);
        memcpy(claim->old, claim->from->local.model + here, length);
    }
}

static struct claim *
make_claim(struct world *world, const struct world_ask *ask)
{
    struct node *from = &world->nodes[ask->from];
    struct node *to = &world->nodes[ask->to];
    bool reads = ask->op == YB_TRANSFER_READ;
    bool low = !reads && yb_sim_random_below(world->sim, 2) == 0;
    uint32_t first = find_free(to->cells, low ? 0 : WORLD_READ_FROM,
                               low ? WORLD_READ_FROM : WORLD_CELLS, ask->cells);
    uint32_t local_first = find_free(from->local_cells, 0, WORLD_CELLS, ask->cells);
    struct claim *claim;

    if (first == UINT32_MAX || local_first == UINT32_MAX) {
        return NULL;
    }
    claim = calloc(1, sizeof(*claim));
    WORLD_CHECK(world, claim != NULL);
    claim->world = world;
    claim->from = from;
    claim->to = to;
    claim->from_life = from->life;
    claim->to_life = to->life;
    claim->identity = from->identity;
    claim->peer = from->peers[ask->to][ask->handle];
    claim->op = ask->op;
    claim->by_address = ask->by_address;
    claim->notifies = ask->notifies;
    claim->first = first;
    claim->count = ask->cells;
    claim->local_first = local_first;
    for (uint32_t i = 0; i < claim->count; i++) {
        to->cells[first + i] = claim;
        from->local_cells[local_first + i] = claim;
    }
    claim->number = world->claim_count++;
    claim->next = world->claims;
    world->claims = claim;
    world->running++;
    return claim;
}

uint32_t
world_submit(struct world *world, const struct world_ask *ask)
{
    struct yb_transfer_item items[WORLD_ITEMS_MAX];
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = ask->timeout_ns,
        .work_class = ask->work_class,
        .done = on_done,
    };
    struct node *from = &world->nodes[ask->from];
    struct claim *claim;

    if (from->engine == NULL || world->nodes[ask->to].engine == NULL ||
        from->peers[ask->to][ask->handle] == 0 || world->claim_count == WORLD_CLAIMS_MAX) {
        return UINT32_MAX;
    }
    claim = make_claim(world, ask);
    if (claim == NULL) {
        return UINT32_MAX;
    }
    fill_claim(claim);
    cut_items(claim, ask);
    make_items(claim, items);
    if (ask->notifies) {
        options.notify = &claim->number;
        options.notify_bytes = sizeof(claim->number);
    }
    options.owner = claim;
    claim->submitted_ns = world_now(from);
    claim->deadline_ns = yb_deadline_after(claim->submitted_ns, ask->timeout_ns);
    WORLD_CHECK(world, yb_transfer_submit(from->engine, claim->peer, items, claim->item_count,
                                          &options, &claim->batch) == YB_OK);
    world->counts.batches++;
    return claim->number;
}

void
world_cancel(struct claim *claim)
{
    uint64_t now_ns = world_now(claim->from);

    if (!claim->ended && claim->from->engine != NULL) {
        claim->deadline_ns = now_ns < claim->deadline_ns ? now_ns : claim->deadline_ns;
        WORLD_CHECK(claim->world, yb_transfer_cancel(claim->from->engine, claim->batch) == YB_OK);
    }
}
