/* SPDX-License-Identifier: Apache-2.0
 *
 * The conductor's state, for the files of this folder.
 *
 *     conductor.c           life, places, reports
 *     conductor_schedule.c  prompts, decisions
 *     conductor_ledger.c    requests that run, and their instructions
 *     conductor_log.c       the records of what it was told, and their replay
 */
#ifndef YB_CONDUCTOR_CONDUCTOR_INTERNAL_H
#define YB_CONDUCTOR_CONDUCTOR_INTERNAL_H

#include "conductor/conductor.h"

#define YB_CONDUCTOR_MAGIC 0x636f6e64u

/* What stands at a number of a place. */
enum yb_conductor_kind {
    YB_CONDUCTOR_FREE,
    YB_CONDUCTOR_INSTANCE,
    YB_CONDUCTOR_STORAGE,
    YB_CONDUCTOR_LEAVING, /* Until the schedulers have swept its blocks. */
};

struct yb_conductor_seat {
    enum yb_conductor_kind kind;
    char name[YB_CONDUCTOR_NAME_BYTES];
    char address[YB_CONDUCTOR_NAME_BYTES];
    char node_name[YB_CONDUCTOR_NAME_BYTES];
    uint32_t model; /* Of an instance. */
    uint64_t incarnation;
    uint64_t heard_ns;
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
};

/* A request that runs. */
struct yb_conductor_open {
    uint64_t decision; /* 0: free. */
    uint64_t until_ns; /* Then it has expired. */
    uint32_t count;    /* Of its instructions. */
    uint8_t outcomes[YB_SCHED_INSTRUCTIONS_MAX];
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
    uint64_t rejected;
    uint64_t forgotten;
    uint64_t expired;
    uint64_t issued;
    uint64_t outcomes[YB_CONDUCTOR_OUTCOMES];
    uint8_t *record; /* Room for one. */
};

/* A decision's number names the model and the scheduler's own number. */
static inline uint64_t
yb_conductor_number(uint64_t number, uint32_t model)
{
    return number * YB_CONDUCTOR_MODELS_MAX + model;
}

/* Copy a text of the wire with a NUL behind, into YB_CONDUCTOR_NAME_BYTES. */
void yb_conductor_take_text(char *out, struct yb_wire_text text);

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

/* An accepted decision runs from here on. */
void yb_conductor_ledger_add(struct yb_conductor *conductor, uint64_t decision, uint32_t count,
                             uint64_t until_ns, uint64_t now_ns);

/* Look at some of what runs: its time may be over. */
void yb_conductor_ledger_tick(struct yb_conductor *conductor, uint64_t now_ns);

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
