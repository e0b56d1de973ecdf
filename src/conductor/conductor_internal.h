/* SPDX-License-Identifier: Apache-2.0
 *
 * The conductor's state, for the files of this folder.
 *
 *     conductor.c           life, places, reports
 *     conductor_ways.c      what nodes measure of their disks, object stores and links
 *     conductor_ahead.c     what is moved ahead of time: the window, heat, moves by hand
 *     conductor_schedule.c  prompts, decisions
 *     conductor_ledger.c    requests that run, and their instructions
 *     conductor_log.c       the records of what it was told, and their replay
 */
#ifndef YB_CONDUCTOR_CONDUCTOR_INTERNAL_H
#define YB_CONDUCTOR_CONDUCTOR_INTERNAL_H

#include "base/clock.h"
#include "conductor/conductor.h"
#include "node/wire/node_wire.h"

#define YB_CONDUCTOR_MAGIC     0x636f6e64u
#define YB_CONDUCTOR_LOOSE     1024u               /* Moves of no request that have not ended. */
#define YB_CONDUCTOR_LOOSE_BIT (1ull << 62)        /* In the number of such a move. */
#define YB_CONDUCTOR_WAIT_NS   (600 * YB_NS_PER_S) /* For word of what should have ended. */

/* What stands at a number of a place. */
enum yb_conductor_kind {
    YB_CONDUCTOR_FREE,
    YB_CONDUCTOR_INSTANCE,
    YB_CONDUCTOR_STORAGE,
    YB_CONDUCTOR_LEAVING, /* Until the schedulers have swept its blocks. */
};

struct yb_conductor_heat;

struct yb_conductor_seat {
    enum yb_conductor_kind kind;
    char name[YB_CONDUCTOR_NAME_BYTES];
    char address[YB_CONDUCTOR_NAME_BYTES];
    char node_name[YB_CONDUCTOR_NAME_BYTES];
    uint32_t model; /* Of an instance. */
    uint8_t parts;  /* Of an instance: values that it has of a block. */
    uint64_t incarnation;
    uint64_t heard_ns;
    uint64_t ways;                  /* Of a node: how often it has said how its ways are. */
    struct yb_sched_instance sched; /* As its scheduler knows it. */
};

/* One model that is served. */
struct yb_conductor_model {
    char name[YB_CONDUCTOR_NAME_BYTES];
    struct yb_sched *sched;
    struct yb_sched_scratch *scratch;
    struct yb_sched_hit *hits; /* By place, for queries. */
    struct yb_sched_cost costs[YB_SCHED_COSTS_MAX];
    uint32_t cost_count;
    struct yb_sched_window window;  /* size 0: nothing was measured yet. */
    double move_ns;                 /* How long a move takes, smoothed; 0: not known. */
    struct yb_conductor_heat *heat; /* NULL: heat moves nothing. */
};

/* A request that runs. */
struct yb_conductor_open {
    uint64_t decision; /* 0: free. */
    uint64_t until_ns; /* Then it has expired. */
    uint32_t count;    /* Of its instructions. */
    uint8_t carried;   /* Bit i: the conductor has instruction i carried out. */
    uint8_t outcomes[YB_SCHED_INSTRUCTIONS_MAX];
};

/* A move that no request asked for. */
struct yb_conductor_loose {
    uint64_t id; /* 0: free. */
    uint64_t until_ns;
};

struct yb_conductor {
    uint32_t magic;
    struct yb_conductor_options options;
    char routing[32];
    char admission[32];
    struct yb_sched_catalog *catalog;
    struct yb_conductor_model models[YB_CONDUCTOR_MODELS_MAX];
    uint32_t model_count;
    struct yb_conductor_seat *seats;
    uint32_t seats_used; /* Numbers below it have been used. */
    uint32_t *by_name;   /* Number + 1; open addressing, a power of two. */
    uint32_t by_name_mask;
    bool sweeping; /* Some places are leaving. */
    struct yb_conductor_open *open;
    uint32_t open_count;
    uint64_t swept; /* Where the next tick looks at `open`. */
    uint64_t requests;
    struct yb_conductor_loose loose[YB_CONDUCTOR_LOOSE];
    uint32_t loose_open;
    uint64_t loose_ever;
    uint64_t heated_ns; /* When heat was looked at last. */
    uint64_t hot;
    uint64_t windowed;
    uint64_t rejected;
    uint64_t rejected_for[YB_CONDUCTOR_REASONS];
    uint64_t forgotten;
    uint64_t expired;
    uint64_t issued;
    uint64_t outcomes[YB_CONDUCTOR_OUTCOMES];
    uint64_t carried_open; /* Of those that are open, what the conductor has carried out. */
    uint8_t *record;       /* Room for one. */
};

/* A decision's number names the model and the scheduler's own number. */
static inline uint64_t
yb_conductor_number(uint64_t number, uint32_t model)
{
    return number * YB_CONDUCTOR_MODELS_MAX + model;
}

/* Write a sentence. Always returns `status`. */
enum yb_status yb_conductor_say(char why_out[YB_CONDUCTOR_WHY_BYTES], enum yb_status status,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Return the seat of a name; NULL: there is none. */
struct yb_conductor_seat *yb_conductor_find(const struct yb_conductor *conductor,
                                            struct yb_wire_text name);

/* The model that a question is for. Fails with NOT_FOUND. */
YB_CHECKED enum yb_status yb_conductor_model_of(struct yb_conductor *conductor,
                                                struct yb_wire_text name, uint32_t *model_out,
                                                char why_out[YB_CONDUCTOR_WHY_BYTES]);

/* ---- conductor_ledger.c ---------------------------------------------------------------------- */

/* An accepted decision runs from here on; `row` says all of it but the outcomes. */
void yb_conductor_ledger_add(struct yb_conductor *conductor, const struct yb_conductor_open *row,
                             uint64_t now_ns);

/* A move of no request is issued. Returns its number; 0: too many have not ended. */
uint64_t yb_conductor_ledger_add_loose(struct yb_conductor *conductor, uint64_t until_ns);

/* It was not begun: CANCELLED. */
void yb_conductor_ledger_cancel_loose(struct yb_conductor *conductor, uint64_t id);

/* Look at some of what runs: its time may be over. */
void yb_conductor_ledger_tick(struct yb_conductor *conductor, uint64_t now_ns);

/* ---- conductor_ahead.c ----------------------------------------------------------------------- */

/* Blocks that were asked for lately, by model. */
YB_CHECKED enum yb_status yb_conductor_heat_create(struct yb_conductor_heat **heat_out);
void yb_conductor_heat_destroy(struct yb_conductor_heat **heat);

/* A request asked for these. */
void yb_conductor_heat_note(struct yb_conductor_heat *heat, struct yb_wire_text tenant,
                            const struct yb_conductor_prompt *prompt, uint8_t parts,
                            uint64_t now_ns);

/* Bring hot blocks up, if it is time. */
void yb_conductor_heat_tick(struct yb_conductor *conductor, uint64_t now_ns);

/* Say who carries an instruction out, and when it begins. */
void yb_conductor_place_move(struct yb_conductor *conductor, const struct yb_conductor_model *model,
                             const struct yb_sched_instruction *from, uint64_t now_ns,
                             struct yb_wire_conductor_instruction *out);

/* A move has ended; a first token is out: what the window is steered by. */
void yb_conductor_window_moved(struct yb_conductor_model *model,
                               const struct yb_wire_conductor_ended *ended);
void yb_conductor_window_token(struct yb_conductor_model *model, uint64_t ttft_us);

/* Return how long before it is wanted a move begins; 0: that is not known. */
uint64_t yb_conductor_window_lead(const struct yb_conductor_model *model);

/* ---- conductor_log.c ------------------------------------------------------------------------- */

/* Write down what happened: a message that was encoded at yb_conductor_record_body(). */
uint8_t *yb_conductor_record_body(struct yb_conductor *conductor, size_t *room_out);
void yb_conductor_record(struct yb_conductor *conductor, uint16_t kind, uint64_t now_ns,
                         size_t length);

/* The whole of a value as the wire has it. */
#define YB_CONDUCTOR_RECORD(conductor, KIND, message, value, now_ns)                    \
    do {                                                                                \
        size_t record_room_;                                                            \
        size_t record_length_ = 0;                                                      \
        uint8_t *record_body_ = yb_conductor_record_body((conductor), &record_room_);   \
                                                                                        \
        if (record_body_ != NULL &&                                                     \
            yb_wire_conductor_##message##_encode((value), record_body_, record_room_,   \
                                                 &record_length_) == YB_OK) {           \
            yb_conductor_record((conductor), YB_WIRE_CONDUCTOR_RECORD_##KIND, (now_ns), \
                                record_length_);                                        \
        }                                                                               \
    } while (0)

#endif /* YB_CONDUCTOR_CONDUCTOR_INTERNAL_H */
