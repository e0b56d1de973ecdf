/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that run, and how each of their instructions ends: exactly once (O3).
 *
 *     OPEN --> what its request's engine says of it
 *          --> CANCELLED or EXPIRED, when the request has ended and nobody said
 *          --> EXPIRED, when the request itself is not heard of again
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
}

/* A request is over; what is open of it ends with that. */
static void
close_row(struct yb_conductor *conductor, struct yb_conductor_open *open, uint8_t outcome,
          uint64_t now_ns)
{
    const uint32_t model = (uint32_t)(open->decision % YB_CONDUCTOR_MODELS_MAX);

    for (uint32_t i = 0; i < open->count; i++) {
        end_instruction(conductor, open, i, outcome);
    }
    yb_sched_ended(conductor->models[model].sched, open->decision / YB_CONDUCTOR_MODELS_MAX,
                   now_ns);
    *open = (struct yb_conductor_open){.decision = 0};
    YB_ASSERT(conductor->open_count > 0);
    conductor->open_count--;
}

void
yb_conductor_ledger_add(struct yb_conductor *conductor, uint64_t decision, uint32_t count,
                        uint64_t until_ns, uint64_t now_ns)
{
    struct yb_conductor_open *open = row_of(conductor, decision);

    YB_ASSERT(count <= YB_SCHED_INSTRUCTIONS_MAX);
    if (open->decision != 0) { /* As many as fit have come since: nobody will end it any more. */
        close_row(conductor, open, YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED, now_ns);
        conductor->forgotten++;
    }
    *open = (struct yb_conductor_open){.decision = decision, .until_ns = until_ns, .count = count};
    conductor->open_count++;
    conductor->issued += count;
    conductor->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN] += count;
}

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
    open = row_of(conductor, said->decision);
    if (said->decision == 0 || open->decision != said->decision) {
        return YB_NOT_FOUND;
    }
    take_outcomes(conductor, open, said);
    if (said->stage == YB_WIRE_CONDUCTOR_STAGE_FIRST_TOKEN) {
        yb_sched_prefilled(conductor->models[model].sched, said->decision / YB_CONDUCTOR_MODELS_MAX,
                           now_ns);
        return YB_OK;
    }
    close_row(conductor, open,
              said->failed ? YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED
                           : YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED,
              now_ns);
    return YB_OK;
}
