/* SPDX-License-Identifier: Apache-2.0 */
#include "store_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX  (2u * STORE_HISTORY_EVENTS_MAX)
#define WORDS      (STEPS_MAX / 64u)
#define ENDERS_MAX 256u
#define NONE       0xffu
#define BUDGET     1000000u

/* A removal is two steps, and so is a put that is removed or replaced before it is answered;
 * everything else is one. */
enum part { WHOLE, BEGIN, END };

struct step {
    const struct store_event *event;
    uint64_t call_ns;
    uint64_t return_ns;
    uint32_t first; /* END: the step that is its BEGIN. */
    uint8_t part;
    uint8_t value; /* Number of the value; NONE: it has none. */
    uint8_t ender; /* BEGIN and END: its number. */
    bool splits;   /* The next step is its END. */
    bool optional;
};

struct state {
    uint64_t ended;             /* Values that may be read, without being current. */
    uint64_t taken[ENDERS_MAX]; /* By each that has begun: what it ends. */
    uint8_t current;            /* NONE: there is no value. */
    bool passing;               /* The next step ends `current`, of which nobody was told. */
    uint64_t done[WORDS];
};

struct search {
    const struct store_history *history;
    struct step steps[STEPS_MAX];
    uint32_t count;
    uint32_t required;
    uint32_t enders;
    uint64_t values[STORE_HISTORY_VALUES_MAX];
    uint32_t value_count;
    uint64_t left; /* Of the budget. */
    uint64_t *seen;
    size_t seen_count;
    size_t seen_room; /* A power of two. */
    uint32_t deepest;
    uint32_t stuck; /* The step that was due where the search got deepest. */
};

/* ---- what was seen -------------------------------------------------------------------------- */

static uint64_t
mix(uint64_t hash, uint64_t number)
{
    hash ^= number + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
    hash *= 0xff51afd7ed558ccdull;
    return hash ^ hash >> 33;
}

static uint64_t
digest(const struct search *search, const struct state *state)
{
    uint64_t hash = mix(state->passing ? 2 : 1, state->current);

    hash = mix(hash, state->ended);
    for (uint32_t i = 0; i < search->enders; i++) {
        hash = mix(hash, state->taken[i]);
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        hash = mix(hash, state->done[i]);
    }
    return hash | 1u;
}

static void seen_add(struct search *search, uint64_t hash);

static void
seen_grow(struct search *search)
{
    uint64_t *old = search->seen;
    size_t room = search->seen_room;

    search->seen_room = room == 0 ? 1024 : room * 2;
    search->seen = calloc(search->seen_room, sizeof(*search->seen));
    if (search->seen == NULL) {
        abort();
    }
    search->seen_count = 0;
    for (size_t i = 0; i < room; i++) {
        if (old[i] != 0) {
            seen_add(search, old[i]);
        }
    }
    free(old);
}

static void
seen_add(struct search *search, uint64_t hash)
{
    size_t at = (size_t)hash & (search->seen_room - 1);

    while (search->seen[at] != 0) {
        at = (at + 1) & (search->seen_room - 1);
    }
    search->seen[at] = hash;
    search->seen_count++;
}

/* Remember a state; returns whether it was seen before. */
static bool
seen(struct search *search, const struct state *state)
{
    uint64_t hash = digest(search, state);
    size_t at;

    if (search->seen_count * 2 >= search->seen_room) {
        seen_grow(search);
    }
    at = (size_t)hash & (search->seen_room - 1);
    while (search->seen[at] != 0) {
        if (search->seen[at] == hash) {
            return true;
        }
        at = (at + 1) & (search->seen_room - 1);
    }
    seen_add(search, hash);
    return false;
}

/* ---- what a step does ----------------------------------------------------------------------- */

static bool
is_done(const struct state *state, uint32_t step)
{
    return (state->done[step / 64] >> (step % 64) & 1) != 0;
}

static uint64_t
bit(uint8_t value)
{
    return value == NONE ? 0 : UINT64_C(1) << value;
}

static void
end_current(struct state *state)
{
    state->ended |= bit(state->current);
    state->current = NONE;
    state->passing = false;
}

static bool
is_readable(const struct state *state, uint8_t value)
{
    return value != NONE && ((state->ended | bit(state->current)) & bit(value)) != 0;
}

/* Whether the step changes nothing that other outcomes depend on. */
static bool
only_looks(const struct search *search, const struct step *step)
{
    const struct store_event *event = step->event;

    (void)search;
    return event->did == STORE_DID_GET || event->did == STORE_DID_EXIST ||
           (event->did == STORE_DID_PUT && event->outcome == STORE_PRESENT);
}

/* What was there when it began cannot be read any more. */
static bool
end(const struct step *step, struct state *state)
{
    if (state->passing || !is_done(state, step->first)) {
        return false;
    }
    state->ended &= ~state->taken[step->ender];
    if ((bit(state->current) & state->taken[step->ender]) != 0) {
        state->current = NONE; /* It had come back. */
    }
    state->taken[step->ender] = 0;
    return true;
}

static bool
removal(const struct search *search, const struct step *step, struct state *state)
{
    const struct store_event *event = step->event;
    bool loss = search->history->loss;

    if (!loss && event->did == STORE_DID_REMOVE && event->outcome != STORE_DOUBT &&
        (event->outcome == STORE_ABSENT) != (state->current == NONE)) {
        return false;
    }
    end_current(state);
    state->taken[step->ender] = state->ended;
    return true;
}

/* Let a step have its effect; returns whether its outcome is right. */
static bool
apply(const struct search *search, const struct step *step, struct state *state)
{
    const struct store_event *event = step->event;
    bool loss = search->history->loss;
    bool there = state->current != NONE || (loss && state->ended != 0);

    if (step->part == END) {
        return end(step, state);
    }
    if (state->passing && only_looks(search, step)) {
        return false;
    }
    switch ((enum store_did)event->did) {
    case STORE_DID_PUT:
        if (event->outcome == STORE_PRESENT) {
            return there;
        }
        if (state->current != NONE && !loss) {
            return false;
        }
        end_current(state);
        state->ended = loss ? state->ended : 0;
        state->current = step->value;
        return true;
    case STORE_DID_UPSERT:
        state->ended = 0;
        state->current = step->value;
        state->passing = false;
        return true;
    case STORE_DID_GET:
        return event->outcome == STORE_ABSENT ? loss || state->current == NONE
                                              : is_readable(state, step->value);
    case STORE_DID_EXIST:
        return event->outcome == STORE_ABSENT ? loss || state->current == NONE : there;
    default: return removal(search, step, state);
    }
}

/* ---- the search ----------------------------------------------------------------------------- */

/* Return the latest time at which a step may be called and still come next. */
static uint64_t
horizon(const struct search *search, const struct state *state, uint32_t *due_out)
{
    uint64_t horizon_ns = STORE_HISTORY_FOREVER;

    *due_out = UINT32_MAX;
    for (uint32_t i = 0; i < search->count; i++) {
        const struct step *step = &search->steps[i];

        if (!step->optional && !is_done(state, i) &&
            (*due_out == UINT32_MAX || step->return_ns < horizon_ns)) {
            horizon_ns = step->return_ns;
            *due_out = i;
        }
    }
    return horizon_ns;
}

static bool
take(const struct search *search, uint32_t number, struct state *state)
{
    if (!apply(search, &search->steps[number], state)) {
        return false;
    }
    state->done[number / 64] |= UINT64_C(1) << (number % 64);
    if (search->steps[number].splits) {
        number++;
        state->done[number / 64] |= UINT64_C(1) << (number % 64);
    }
    return true;
}

/* Let a put take its place while what was before it may still be read, only to be ended by the next
 * step. If nothing ended it, it would do as well to let it have its effect later. */
static bool
pass(const struct search *search, uint32_t number, struct state *state)
{
    const struct step *step = &search->steps[number];
    bool upsert = step->event->did == STORE_DID_UPSERT;

    if (!step->splits || (state->current != NONE && !upsert)) {
        return false;
    }
    end_current(state);
    if (state->ended == 0) {
        return false; /* Its whole effect does as well. */
    }
    state->taken[step->ender] = state->ended;
    state->current = step->value;
    state->passing = true;
    state->done[number / 64] |= UINT64_C(1) << (number % 64);
    return true;
}

/* Steps that only look, and beginnings of removals where values get lost anyway, are never better
 * taken later. */
static void
take_harmless(const struct search *search, struct state *state)
{
    bool again = true;

    while (again) {
        uint32_t due;
        uint64_t horizon_ns = horizon(search, state, &due);

        again = false;
        for (uint32_t i = 0; i < search->count; i++) {
            const struct step *step = &search->steps[i];
            bool harmless =
                only_looks(search, step) || (step->part == BEGIN && search->history->loss);

            if (harmless && step->call_ns <= horizon_ns && !is_done(state, i)) {
                again = take(search, i, state) || again;
            }
        }
    }
}

static bool go_on(struct search *search, const struct state *from, uint32_t depth);

/* Without a step: a value that an unacknowledged removal has ended comes back. */
static bool
come_back(struct search *search, const struct state *state, uint32_t depth)
{
    if (search->history->loss || !search->history->returns || state->current != NONE ||
        state->passing) {
        return false;
    }
    for (uint8_t value = 0; value < search->value_count; value++) {
        if ((state->ended & bit(value)) != 0) {
            struct state next = *state;

            next.ended &= ~bit(value);
            next.current = value;
            if (go_on(search, &next, depth)) {
                return true;
            }
        }
    }
    return false;
}

/* Without a second step: an upsert in doubt has ended what there was, and its node is gone. */
static bool
come_to_nothing(struct search *search, const struct state *state, uint32_t number, uint32_t depth)
{
    struct state next = *state;

    if (search->history->loss || !search->history->returns || !search->steps[number].optional ||
        search->steps[number].event->did != STORE_DID_UPSERT) {
        return false;
    }
    for (uint32_t i = number; i < number + 2; i++) {
        next.done[i / 64] |= UINT64_C(1) << (i % 64);
    }
    next.current = NONE;
    next.ended = 0;
    next.passing = false;
    return go_on(search, &next, depth + 1);
}

static bool
go_on(struct search *search, const struct state *from, uint32_t depth)
{
    struct state state = *from;
    uint64_t horizon_ns;
    uint32_t due;

    take_harmless(search, &state);
    horizon_ns = horizon(search, &state, &due);
    if (due == UINT32_MAX) {
        return true;
    }
    if (depth >= search->deepest) {
        search->deepest = depth;
        search->stuck = due;
    }
    if (search->left == 0 || seen(search, &state)) {
        return false;
    }
    search->left--;
    for (uint32_t i = 0; i < search->count; i++) {
        const struct step *step = &search->steps[i];
        struct state next = state;
        struct state passing = state;
        bool late = step->part == END && search->history->loss && i != due; /* Never better. */

        if (late || step->call_ns > horizon_ns || is_done(&state, i)) {
            continue;
        }
        if ((take(search, i, &next) && go_on(search, &next, depth + 1)) ||
            (pass(search, i, &passing) && go_on(search, &passing, depth + 1)) ||
            come_to_nothing(search, &state, i, depth)) {
            return true;
        }
    }
    return come_back(search, &state, depth);
}

/* ---- preparation ---------------------------------------------------------------------------- */

static uint8_t
number_of(struct search *search, uint64_t value, bool make)
{
    for (uint32_t i = 0; i < search->value_count; i++) {
        if (search->values[i] == value) {
            return (uint8_t)i;
        }
    }
    if (!make || search->value_count == STORE_HISTORY_VALUES_MAX) {
        return NONE;
    }
    search->values[search->value_count] = value;
    return (uint8_t)search->value_count++;
}

static void
add_step(struct search *search, const struct store_event *event, enum part part)
{
    struct step *step = &search->steps[search->count];

    *step = (struct step){
        .event = event,
        .call_ns = event->call_ns,
        .return_ns = event->outcome == STORE_DOUBT ? STORE_HISTORY_FOREVER : event->return_ns,
        .first = search->count - 1,
        .part = (uint8_t)part,
        .value = NONE,
        .optional = event->outcome == STORE_DOUBT,
    };
    step->ender = (uint8_t)(part == END ? search->enders++ : search->enders);
    search->count++;
}

/* Make the steps; returns false if there are too many, or a value that nobody can have put was
 * read. */
static enum store_verdict
prepare(struct search *search, char *why_out, size_t why_bytes)
{
    const struct store_history *history = search->history;

    for (uint32_t i = 0; i < history->count; i++) {
        const struct store_event *event = &history->events[i];
        bool writes = event->did == STORE_DID_PUT || event->did == STORE_DID_UPSERT;
        bool removes = event->did == STORE_DID_REMOVE || event->did == STORE_DID_FLUSH;

        if (event->outcome == STORE_FAILED) {
            continue;
        }
        if (i >= STORE_HISTORY_EVENTS_MAX || search->enders == ENDERS_MAX) {
            return STORE_TOO_HARD;
        }
        add_step(search, event, removes ? BEGIN : WHOLE);
        writes = writes && event->outcome != STORE_PRESENT;
        if (writes) {
            search->steps[search->count - 1].value = number_of(search, event->value, true);
            search->steps[search->count - 1].splits = !history->loss;
            if (search->steps[search->count - 1].value == NONE) {
                return STORE_TOO_HARD;
            }
        }
        if (removes || (writes && !history->loss)) {
            add_step(search, event, END);
        }
    }
    for (uint32_t i = 0; i < search->count; i++) {
        const struct store_event *event = search->steps[i].event;

        if (event->did != STORE_DID_GET || event->outcome != STORE_DONE) {
            continue;
        }
        search->steps[i].value = number_of(search, event->value, false);
        if (search->steps[i].value == NONE) {
            (void)snprintf(why_out, why_bytes, "operation %u read value %llu, which nobody put",
                           event->number, (unsigned long long)event->value);
            return STORE_BAD;
        }
    }
    return STORE_GOOD;
}

enum store_verdict
store_history_judge(const struct store_history *history, char *why_out, size_t why_bytes)
{
    struct search *search = calloc(1, sizeof(*search));
    struct state state = {.current = NONE};
    enum store_verdict verdict;

    if (search == NULL) {
        abort();
    }
    why_out[0] = '\0';
    search->history = history;
    search->left = history->budget != 0 ? history->budget : BUDGET;
    verdict = prepare(search, why_out, why_bytes);
    if (verdict == STORE_GOOD && !go_on(search, &state, 0)) {
        verdict = search->left == 0 ? STORE_TOO_HARD : STORE_BAD;
        (void)snprintf(why_out, why_bytes,
                       "no order of effects explains the outcomes; at best all returns before that "
                       "of operation %u do",
                       search->steps[search->stuck].event->number);
    }
    free(search->seen);
    free(search);
    return verdict;
}
