/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that run, moves of no request, and how each instruction ends: exactly once (O3).
 *
 *     OPEN --> what says whoever carries it out: its request's engine, or the conductor's mover
 *          --> CANCELLED, when the request has ended before: it was given up, or did without
 *          --> EXPIRED, when the request has ended and its engine did not say
 *          --> EXPIRED, when the request itself, or the move, is not heard of again
 */
#include "base/check.h"
#include "base/clock.h"
#include "conductor/conductor_internal.h"

#define TICK_VISITS 4096u /* Rows that one tick looks at. */

static struct yb_conductor_open *
row_of(struct yb_conductor *conductor, uint64_t decision)
{
    return &conductor->open[decision % conductor->options.pending_max];
}

static void
end_instruction(struct yb_conductor *conductor, struct yb_conductor_open *open, uint32_t index,
                uint8_t outcome)
{
    YB_ASSERT(outcome != YB_WIRE_CONDUCTOR_OUTCOME_OPEN && outcome < YB_CONDUCTOR_OUTCOMES);
    if (open->outcomes[index] != YB_WIRE_CONDUCTOR_OUTCOME_OPEN) {
        return; /* It has ended already: the first word counts. */
    }
    open->outcomes[index] = outcome;
    conductor->outcomes[outcome]++;
    YB_ASSERT(conductor->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN] > 0);
    conductor->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN]--;
    conductor->carried_open -= open->carried >> index & 1;
}

/* A request is over; what is open of it ends with that. */
static void
close_row(struct yb_conductor *conductor, struct yb_conductor_open *open, uint8_t outcome,
          uint64_t now_ns)
{
    const uint32_t model = (uint32_t)(open->decision % YB_CONDUCTOR_MODELS_MAX);

    for (uint32_t i = 0; i < open->count; i++) {
        const bool dropped = (open->carried >> i & 1) != 0 && open->until_ns > now_ns;

        end_instruction(conductor, open, i,
                        dropped ? YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED : outcome);
    }
    yb_sched_ended(conductor->models[model].sched, open->decision / YB_CONDUCTOR_MODELS_MAX,
                   now_ns);
    *open = (struct yb_conductor_open){.decision = 0};
    YB_ASSERT(conductor->open_count > 0);
    conductor->open_count--;
}

void
yb_conductor_ledger_add(struct yb_conductor *conductor, const struct yb_conductor_open *row,
                        uint64_t now_ns)
{
    struct yb_conductor_open *open = row_of(conductor, row->decision);

    YB_ASSERT(row->count <= YB_SCHED_INSTRUCTIONS_MAX);
    if (open->decision != 0) { /* As many as fit have come since: nobody will end it any more. */
        close_row(conductor, open, YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED, now_ns);
        conductor->forgotten++;
    }
    *open = *row;
    conductor->open_count++;
    conductor->issued += row->count;
    conductor->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN] += row->count;
    conductor->carried_open += (uint32_t)__builtin_popcount(row->carried);
}

/* ---- moves of no request --------------------------------------------------------------------- */

static struct yb_conductor_loose *
loose_of(struct yb_conductor *conductor, uint64_t id)
{
    return &conductor->loose[id % YB_CONDUCTOR_LOOSE];
}

uint64_t
yb_conductor_ledger_add_loose(struct yb_conductor *conductor, uint64_t until_ns)
{
    const uint64_t id = YB_CONDUCTOR_LOOSE_BIT | (conductor->loose_ever + 1);
    struct yb_conductor_loose *loose = loose_of(conductor, id);

    if (loose->id != 0) {
        return 0;
    }
    *loose = (struct yb_conductor_loose){.id = id, .until_ns = until_ns};
    conductor->loose_ever++;
    conductor->loose_open++;
    conductor->issued++;
    conductor->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN]++;
    conductor->carried_open++;
    return id;
}

/* Unless it has ended already: the first word counts. */
static void
loose_end(struct yb_conductor *conductor, uint64_t id, uint8_t outcome)
{
    struct yb_conductor_loose *loose = loose_of(conductor, id);

    if (loose->id != id) {
        return;
    }
    *loose = (struct yb_conductor_loose){.id = 0};
    conductor->loose_open--;
    conductor->outcomes[outcome]++;
    conductor->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN]--;
    conductor->carried_open--;
}

void
yb_conductor_ledger_cancel_loose(struct yb_conductor *conductor, uint64_t id)
{
    loose_end(conductor, id, YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED);
}

/* ---- time ------------------------------------------------------------------------------------ */

void
yb_conductor_ledger_tick(struct yb_conductor *conductor, uint64_t now_ns)
{
    const uint32_t rows = conductor->options.pending_max;

    for (uint32_t i = 0; i < TICK_VISITS && i < rows && conductor->open_count > 0; i++) {
        struct yb_conductor_open *open = &conductor->open[conductor->swept++ % rows];

        if (open->decision != 0 && open->until_ns <= now_ns) {
            close_row(conductor, open, YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED, now_ns);
            conductor->forgotten++;
        }
    }
    for (uint32_t i = 0; i < YB_CONDUCTOR_LOOSE && conductor->loose_open > 0; i++) {
        const struct yb_conductor_loose *loose = &conductor->loose[i];

        if (loose->id != 0 && loose->until_ns <= now_ns) {
            loose_end(conductor, loose->id, YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED);
        }
    }
}

/* ---- word of them ---------------------------------------------------------------------------- */

/* Return the row of an instruction's request; NULL: that has ended. */
static struct yb_conductor_open *
row_of_instruction(struct yb_conductor *conductor, uint64_t id, uint32_t *index_out)
{
    const uint32_t model = (uint32_t)(id % YB_CONDUCTOR_MODELS_MAX);
    const uint64_t number = id / YB_CONDUCTOR_MODELS_MAX;
    const uint64_t decision = yb_conductor_number(number / YB_SCHED_INSTRUCTIONS_MAX, model);
    struct yb_conductor_open *open = row_of(conductor, decision);

    *index_out = (uint32_t)(number % YB_SCHED_INSTRUCTIONS_MAX);
    return decision != 0 && open->decision == decision && *index_out < open->count ? open : NULL;
}

bool
yb_conductor_is_open(struct yb_conductor *conductor, uint64_t id)
{
    const struct yb_conductor_open *open;
    uint32_t index;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    if ((id & YB_CONDUCTOR_LOOSE_BIT) != 0) {
        return loose_of(conductor, id)->id == id;
    }
    open = row_of_instruction(conductor, id, &index);
    return open != NULL && open->outcomes[index] == YB_WIRE_CONDUCTOR_OUTCOME_OPEN;
}

/* Word of instructions of whatever request. */
static void
take_moved(struct yb_conductor *conductor, const struct yb_wire_conductor_done *said)
{
    for (uint32_t i = 0; i < said->instructions.count; i++) {
        struct yb_wire_conductor_ended ended;
        struct yb_conductor_open *open;
        uint32_t index;

        yb_wire_conductor_ended_at(&said->instructions, i, &ended);
        if (ended.outcome == YB_WIRE_CONDUCTOR_OUTCOME_OPEN) {
            continue;
        }
        if ((ended.id & YB_CONDUCTOR_LOOSE_BIT) != 0) {
            loose_end(conductor, ended.id, ended.outcome);
            continue;
        }
        open = row_of_instruction(conductor, ended.id, &index);
        if (open != NULL) {
            end_instruction(conductor, open, index, ended.outcome);
            yb_conductor_window_moved(&conductor->models[open->decision % YB_CONDUCTOR_MODELS_MAX],
                                      &ended);
        }
    }
}

/* What the engine says of instructions; of such that are not this request's, nothing is taken. */
static void
take_outcomes(struct yb_conductor *conductor, struct yb_conductor_open *open,
              const struct yb_wire_conductor_done *said)
{
    const uint32_t model = (uint32_t)(said->decision % YB_CONDUCTOR_MODELS_MAX);

    for (uint32_t i = 0; i < said->instructions.count; i++) {
        struct yb_wire_conductor_ended ended;

        yb_wire_conductor_ended_at(&said->instructions, i, &ended);
        for (uint32_t index = 0; index < open->count; index++) {
            const uint64_t id = yb_conductor_number(
                said->decision / YB_CONDUCTOR_MODELS_MAX * YB_SCHED_INSTRUCTIONS_MAX + index,
                model);

            if (ended.id == id && ended.outcome != YB_WIRE_CONDUCTOR_OUTCOME_OPEN) {
                end_instruction(conductor, open, index, ended.outcome);
            }
        }
    }
}

enum yb_status
yb_conductor_done(struct yb_conductor *conductor, const struct yb_wire_conductor_done *said,
                  uint64_t now_ns)
{
    struct yb_conductor_open *open;
    uint32_t model = (uint32_t)(said->decision % YB_CONDUCTOR_MODELS_MAX);

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    YB_CONDUCTOR_RECORD(conductor, DONE, done, said, now_ns);
    if (said->stage == YB_WIRE_CONDUCTOR_STAGE_MOVED) {
        take_moved(conductor, said);
        return YB_OK;
    }
    open = row_of(conductor, said->decision);
    if (said->decision == 0 || open->decision != said->decision) {
        return YB_NOT_FOUND;
    }
    take_outcomes(conductor, open, said);
    if (said->stage == YB_WIRE_CONDUCTOR_STAGE_FIRST_TOKEN) {
        yb_sched_prefilled(conductor->models[model].sched, said->decision / YB_CONDUCTOR_MODELS_MAX,
                           now_ns);
        yb_conductor_window_token(&conductor->models[model], said->ttft_us);
        return YB_OK;
    }
    close_row(conductor, open,
              said->failed ? YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED
                           : YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED,
              now_ns);
    return YB_OK;
}
