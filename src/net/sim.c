/* SPDX-License-Identifier: Apache-2.0
 *
 * The world: a heap of events and the processes' wishes to run, in one order.
 *
 * Wishes are not in the heap. A process has one at a time and changes it with almost every
 * event, which would fill the heap with stale ones; looking through a few dozen processes at
 * each step is cheaper.
 */
#include "net/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "net/sim_internal.h"

#define LINK_COUNT_MAX 4096u

struct yb_sim_link
yb_sim_link_default(void)
{
    return (struct yb_sim_link){
        .delay_ns = 100 * YB_NS_PER_US,
        .retransmit_ns = 200 * YB_NS_PER_MS,
        .connect_retry_ns = YB_NS_PER_S,
        .connect_timeout_ns = 130 * YB_NS_PER_S,
        .give_up_ns = 900 * YB_NS_PER_S,
        .window_bytes = 256 * 1024,
        .piece_bytes_max = 64 * 1024,
    };
}

struct yb_sim_link
yb_sim_link_rough(void)
{
    struct yb_sim_link link = yb_sim_link_default();

    link.jitter_ns = YB_NS_PER_MS;
    link.connection_jitter_ns = 2 * YB_NS_PER_MS;
    link.retransmit_ns = 20 * YB_NS_PER_MS;
    link.connect_retry_ns = 50 * YB_NS_PER_MS;
    link.pieces_random = true;
    link.drop_ppm = YB_SIM_PPM / 50;
    return link;
}

void *
yb_sim_allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    YB_ASSERT(memory != NULL);
    return memory;
}

/* ---- chance -------------------------------------------------------------------------- */

uint64_t
yb_sim_random(struct yb_sim *sim)
{
    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    YB_ASSERT(sim->random != 0);
    sim->random ^= sim->random >> 12;
    sim->random ^= sim->random << 25;
    sim->random ^= sim->random >> 27;
    return sim->random * 2685821657736338717ull;
}

uint64_t
yb_sim_random_below(struct yb_sim *sim, uint64_t bound)
{
    YB_ASSERT(bound > 0);
    return yb_sim_random(sim) % bound;
}

bool
yb_sim_chance(struct yb_sim *sim, uint32_t ppm)
{
    return ppm > 0 && yb_sim_random_below(sim, YB_SIM_PPM) < ppm;
}

/* ---- life ---------------------------------------------------------------------------- */

struct yb_sim *
yb_sim_create(uint64_t seed)
{
    struct yb_sim *sim = yb_sim_allocate(sizeof(*sim));

    sim->magic = YB_SIM_MAGIC;
    sim->seed = seed;
    /* Seeds that differ in one bit must not give similar runs, and zero would stay zero. */
    sim->random = XXH3_64bits_withSeed("yuebing", 7, seed) | 1;
    sim->now_ns = YB_SIM_START_NS;
    sim->link = yb_sim_link_default();
    return sim;
}

void
yb_sim_destroy(struct yb_sim **sim_ref)
{
    struct yb_sim *sim = *sim_ref;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    YB_ASSERT(!sim->stepping);
    *sim_ref = NULL;
    while (sim->processes != NULL) {
        struct yb_sim_process *process = sim->processes;

        yb_sim_process_destroy(&process);
    }
    while (sim->event_count > 0) {
        yb_sim_event_done(sim, &sim->events[--sim->event_count]);
    }
    YB_ASSERT(sim->connection_count == 0 && sim->connections == NULL);
    YB_ASSERT(sim->held_bytes == 0);
    for (uint32_t i = 0; i < sim->host_count; i++) {
        yb_sim_host_free(sim->hosts[i]);
    }
    free(sim->events);
    free(sim->links);
    sim->magic = 0;
    free(sim);
}

uint64_t
yb_sim_seed(const struct yb_sim *sim)
{
    return sim->seed;
}

uint64_t
yb_sim_now_ns(const struct yb_sim *sim)
{
    return sim->now_ns;
}

uint64_t
yb_sim_step_count(const struct yb_sim *sim)
{
    return sim->step_count;
}

uint64_t
yb_sim_fingerprint(const struct yb_sim *sim)
{
    return sim->fingerprint;
}

uint32_t
yb_sim_connection_count(const struct yb_sim *sim)
{
    return sim->connection_count;
}

uint64_t
yb_sim_held_bytes(const struct yb_sim *sim)
{
    return sim->held_bytes;
}

/* ---- links --------------------------------------------------------------------------- */

static struct sim_link_entry *
find_link(const struct yb_sim *sim, const struct yb_sim_host *a, const struct yb_sim_host *b)
{
    for (uint32_t i = 0; i < sim->link_count; i++) {
        struct sim_link_entry *entry = &sim->links[i];

        if ((entry->a == a && entry->b == b) || (entry->a == b && entry->b == a)) {
            return entry;
        }
    }
    return NULL;
}

const struct yb_sim_link *
yb_sim_link_of(const struct yb_sim *sim, const struct yb_sim_host *a, const struct yb_sim_host *b)
{
    const struct sim_link_entry *entry = find_link(sim, a, b);

    return entry != NULL ? &entry->link : &sim->link;
}

void
yb_sim_set_link(struct yb_sim *sim, struct yb_sim_host *a, struct yb_sim_host *b,
                const struct yb_sim_link *link)
{
    struct sim_link_entry *entry;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    YB_ASSERT((a == NULL) == (b == NULL));
    YB_ASSERT(link->window_bytes > 0 && link->piece_bytes_max > 0);
    YB_ASSERT(link->drop_ppm < YB_SIM_PPM && link->connect_retry_ns > 0);
    if (a == NULL) {
        sim->link = *link;
        return;
    }
    entry = find_link(sim, a, b);
    if (entry == NULL) {
        YB_ASSERT(sim->link_count < LINK_COUNT_MAX);
        sim->links = realloc(sim->links, (sim->link_count + 1) * sizeof(*sim->links));
        YB_ASSERT(sim->links != NULL);
        entry = &sim->links[sim->link_count++];
        entry->a = a;
        entry->b = b;
    }
    entry->link = *link;
}

/* ---- the heap ------------------------------------------------------------------------ */

static bool
is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->when_ns != b->when_ns ? a->when_ns < b->when_ns : a->sequence < b->sequence;
}

uint64_t
yb_sim_next_sequence(struct yb_sim *sim)
{
    return sim->sequence++;
}

void
yb_sim_push(struct yb_sim *sim, struct sim_event event)
{
    uint32_t at;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    if (sim->event_count == sim->event_room) {
        sim->event_room = sim->event_room == 0 ? 256 : sim->event_room * 2;
        YB_ASSERT(sim->event_room <= YB_SIM_EVENT_COUNT_MAX);
        sim->events = realloc(sim->events, sim->event_room * sizeof(*sim->events));
        YB_ASSERT(sim->events != NULL);
    }
    event.sequence = yb_sim_next_sequence(sim);
    if (event.when_ns < sim->now_ns) {
        event.when_ns = sim->now_ns;
    }
    if (event.connection != NULL) {
        event.connection->event_count++;
    }
    for (at = sim->event_count++; at > 0 && is_before(&event, &sim->events[(at - 1) / 2]);
         at = (at - 1) / 2) {
        sim->events[at] = sim->events[(at - 1) / 2];
    }
    sim->events[at] = event;
}

static struct sim_event
pop(struct yb_sim *sim)
{
    struct sim_event top = sim->events[0];
    struct sim_event last;
    uint32_t at = 0;

    YB_ASSERT(sim->event_count > 0);
    last = sim->events[--sim->event_count];
    for (uint32_t child = 1; child < sim->event_count; child = 2 * at + 1) {
        if (child + 1 < sim->event_count &&
            is_before(&sim->events[child + 1], &sim->events[child])) {
            child++;
        }
        if (!is_before(&sim->events[child], &last)) {
            break;
        }
        sim->events[at] = sim->events[child];
        at = child;
    }
    if (sim->event_count > 0) {
        sim->events[at] = last;
    }
    return top;
}

void
yb_sim_call_at(struct yb_sim *sim, uint64_t when_ns, yb_sim_call_fn *call, void *arg)
{
    YB_ASSERT(call != NULL);
    yb_sim_push(sim,
                (struct sim_event){.when_ns = when_ns, .kind = SIM_CALL, .call = call, .arg = arg});
}

/* ---- stepping ------------------------------------------------------------------------ */

/* What comes next: a process to run, or else the top of the heap. */
struct next {
    bool any;
    struct yb_sim_process *process;
    uint64_t when_ns;
};

static struct next
find_next(struct yb_sim *sim)
{
    struct next next = {.when_ns = YB_NEVER};
    uint64_t sequence = UINT64_MAX;

    while (sim->event_count > 0 && yb_sim_event_is_stale(&sim->events[0])) {
        struct sim_event stale = pop(sim);

        yb_sim_event_done(sim, &stale);
    }
    if (sim->event_count > 0) {
        next.any = true;
        next.when_ns = sim->events[0].when_ns;
        sequence = sim->events[0].sequence;
    }
    for (struct yb_sim_process *process = sim->processes; process != NULL;
         process = process->next) {
        uint64_t when_ns = process->wake_ns;

        if (!yb_sim_process_runnable(process)) {
            continue;
        }
        /* A process that was stalled wants to have run in the past. */
        when_ns = when_ns < sim->now_ns ? sim->now_ns : when_ns;
        if (when_ns < next.when_ns ||
            (when_ns == next.when_ns && process->wake_sequence < sequence)) {
            next = (struct next){.any = true, .process = process, .when_ns = when_ns};
            sequence = process->wake_sequence;
        }
    }
    return next;
}

static void
record(struct yb_sim *sim, const struct sim_record *record)
{
    sim->fingerprint = XXH3_64bits_withSeed(record, sizeof(*record), sim->fingerprint);
    sim->trace[sim->step_count % YB_SIM_TRACE_COUNT] = *record;
    sim->step_count++;
}

static void
apply_next(struct yb_sim *sim, struct next next)
{
    struct sim_record entry = {.when_ns = next.when_ns};
    struct sim_event event;

    YB_ASSERT(next.when_ns >= sim->now_ns);
    YB_ASSERT(!sim->stepping);
    sim->stepping = true;
    sim->now_ns = next.when_ns;
    if (next.process != NULL) {
        entry.kind = SIM_RUN;
        entry.subject = next.process->id;
        record(sim, &entry);
        yb_sim_process_run(next.process);
    } else {
        event = pop(sim);
        entry.kind = event.kind;
        entry.way = event.way;
        entry.subject = event.connection != NULL ? event.connection->id : 0;
        if (event.piece != NULL) {
            entry.length = event.piece->length;
            entry.content = XXH3_64bits(event.piece->bytes, event.piece->length);
        } else {
            entry.length = event.arrived;
        }
        record(sim, &entry);
        yb_sim_event_apply(sim, &event);
        yb_sim_event_done(sim, &event);
    }
    sim->stepping = false;
}

bool
yb_sim_step(struct yb_sim *sim)
{
    struct next next;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    next = find_next(sim);
    if (next.any) {
        apply_next(sim, next);
    }
    return next.any;
}

enum yb_sim_outcome
yb_sim_run_until(struct yb_sim *sim, yb_sim_predicate_fn *predicate, void *arg, uint64_t until_ns,
                 uint64_t step_count_max)
{
    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    for (uint64_t i = 0;; i++) {
        struct next next;

        if (predicate != NULL && predicate(arg)) {
            return YB_SIM_REACHED;
        }
        next = find_next(sim);
        if (!next.any && until_ns == YB_NEVER) {
            return YB_SIM_QUIET;
        }
        if (!next.any || next.when_ns > until_ns) {
            sim->now_ns = until_ns > sim->now_ns ? until_ns : sim->now_ns;
            return next.any ? YB_SIM_TIME_LIMIT : YB_SIM_QUIET;
        }
        if (i == step_count_max) {
            return YB_SIM_STEP_LIMIT;
        }
        apply_next(sim, next);
    }
}

/* ---- looking at it ------------------------------------------------------------------- */

static const char *
kind_text(uint32_t kind)
{
    switch (kind) {
#define X(name, text) \
    case SIM_##name: return text;
        YB_SIM_EVENT_MAP(X)
#undef X
    default: return "?";
    }
}

void
yb_sim_dump(const struct yb_sim *sim, FILE *out)
{
    uint64_t count = sim->step_count < YB_SIM_TRACE_COUNT ? sim->step_count : YB_SIM_TRACE_COUNT;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    fprintf(out,
            "simulation: seed %" PRIu64 ", time %" PRIu64 " ns, steps %" PRIu64
            ", connections %" PRIu32 ", fingerprint %016" PRIx64 "\n",
            sim->seed, sim->now_ns - (uint64_t)YB_SIM_START_NS, sim->step_count,
            sim->connection_count, sim->fingerprint);
    for (uint32_t i = 0; i < sim->host_count; i++) {
        const struct yb_sim_host *host = sim->hosts[i];

        fprintf(out, "  host %s:%s%s drift %" PRId32 " ppm\n", host->name,
                host->down ? " down" : "", host->stalled ? " stalled" : "", host->drift_ppm);
    }
    for (const struct yb_sim_process *process = sim->processes; process != NULL;
         process = process->next) {
        fprintf(out, "  process %" PRIu64 " %s on %s%s\n", process->id, process->name,
                process->host->name, process->crashed ? " crashed" : "");
    }
    for (uint64_t i = sim->step_count - count; i < sim->step_count; i++) {
        const struct sim_record *entry = &sim->trace[i % YB_SIM_TRACE_COUNT];

        fprintf(out, "  %14.6f ms  %-8s %s %" PRIu64 " way %" PRIu32 " length %" PRIu64 "\n",
                (double)(entry->when_ns - YB_SIM_START_NS) / 1e6, kind_text(entry->kind),
                entry->kind == SIM_RUN ? "process" : "connection", entry->subject, entry->way,
                entry->length);
    }
}
