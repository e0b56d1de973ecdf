/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/conductor_host.h"

#include <endian.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/cpus.h"
#include "client/news.h"
#include "conductor/service.h"
#include "daemon/conductor_carrier.h"
#include "daemon/process_internal.h"
#include "daemon/visit.h"
#include "directory/wire/directory_wire.h"

#define WAIT_NS     (200 * YB_NS_PER_MS) /* For the next event, at most. */
#define EVENTS_ASK  4096u
#define AGAIN_NS    (200 * YB_NS_PER_MS) /* After a failure. */
#define SLOTS       65536u
#define NO_PLACE    UINT32_MAX
#define NODES_MAX   4096u /* Followed at most; of others nothing is known. */
#define CHANGES_MAX 8192u

/* A member of the store, as it is followed. */
struct member {
    char name[64];
    uint16_t slot;
    bool present;                       /* In the last list. */
    struct yb_wire_conductor_ways ways; /* That it said last. */
};

struct yb_conductor_host {
    struct yb_process *process;
    struct yb_conductor_service *service;
    struct yb_conductor_carrier *carrier;
    struct yb_address directory;
    pthread_t pulse;
    pthread_t feed;
    bool pulsing;
    bool following;
    _Atomic(bool) stopping;
    sem_t pulse_stop; /* Posted once, then. */
    sem_t feed_stop;

    /* Of the feed's thread. */
    struct yb_visit visit;
    uint64_t epoch;
    uint64_t from;   /* The next event. */
    uint32_t models; /* That were told of everything. */
    uint64_t listed_ns;
    uint64_t snapped_ns; /* When the last snapshot began. */
    bool stale;          /* Another is needed. */
    struct member members[NODES_MAX];
    uint32_t member_count;
    uint32_t *places; /* By slot. */
    struct yb_wire_conductor_change changes[CHANGES_MAX];
    uint32_t change_count;
};

/* ---- threads --------------------------------------------------------------------------------- */

/* Rest, unless it is time to stop. */
static void
rest(struct yb_conductor_host *host, sem_t *stop, uint64_t length_ns)
{
    const uint64_t until_ns = yb_clock_now(host->process->clock) + length_ns;
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / YB_NS_PER_S),
        .tv_nsec = (long)(until_ns % YB_NS_PER_S),
    };

    (void)sem_clockwait(stop, CLOCK_MONOTONIC, &until);
}

static void *
run_pulse(void *owner)
{
    struct yb_conductor_host *host = owner;

    yb_cpus_as_process();
    while (!atomic_load(&host->stopping)) {
        yb_conductor_service_pulse(host->service);
        rest(host, &host->pulse_stop, YB_CONDUCTOR_PULSE_NS);
    }
    return NULL;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void
flush_changes(struct yb_conductor_host *host)
{
    if (host->change_count > 0) {
        yb_conductor_service_blocks(host->service, host->changes, host->change_count);
        host->change_count = 0;
    }
}

static void
change(struct yb_conductor_host *host, struct yb_id hash, uint32_t place, uint8_t tier, bool gone)
{
    struct yb_wire_conductor_change *out;

    if (host->change_count == CHANGES_MAX) {
        flush_changes(host);
    }
    out = &host->changes[host->change_count++];
    *out = (struct yb_wire_conductor_change){.place = place, .tier = tier, .gone = gone};
    memcpy(&out->block, hash.bytes, sizeof(out->block));
    out->block = le64toh(out->block);
}

/* Where a replica is, in the scheduler's words. Returns false if nobody knows that slot. */
static bool
locate(const struct yb_conductor_host *host, uint16_t slot, uint8_t wire_tier, uint32_t *place_out,
       uint8_t *tier_out)
{
    if (wire_tier == YB_WIRE_TIER_OBJECT) {
        *place_out = YB_SCHED_SHARED;
        *tier_out = YB_SCHED_TIER_OBJECT;
        return true;
    }
    *place_out = host->places[slot];
    *tier_out = wire_tier == YB_WIRE_TIER_DEVICE ? YB_SCHED_TIER_DEVICE
                : wire_tier == YB_WIRE_TIER_SSD  ? YB_SCHED_TIER_SSD
                                                 : YB_SCHED_TIER_DRAM;
    return *place_out != NO_PLACE;
}

/* A key is gone, wherever it was. */
static void
change_everywhere(struct yb_conductor_host *host, struct yb_id hash)
{
    change(host, hash, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, true);
    for (uint32_t i = 0; i < host->member_count; i++) {
        const uint32_t place = host->places[host->members[i].slot];

        for (uint8_t tier = 0; place != NO_PLACE && tier < YB_SCHED_LOCAL_TIERS; tier++) {
            change(host, hash, place, tier, true);
        }
    }
}

static void
take_event(struct yb_conductor_host *host, const struct yb_wire_event *event)
{
    uint32_t place;
    uint8_t tier;

    switch (event->kind) {
    case YB_WIRE_EVENT_KIND_STORED:
    case YB_WIRE_EVENT_KIND_DROPPED:
        if (locate(host, event->slot, event->tier, &place, &tier)) {
            change(host, event->hash, place, tier, event->kind == YB_WIRE_EVENT_KIND_DROPPED);
        } else {
            /* A node that is not followed: if it has just come, it is in the next list, and with it
             * comes all that it has. One that has just died is in none. */
            host->listed_ns = 0;
        }
        break;
    case YB_WIRE_EVENT_KIND_REMOVED: change_everywhere(host, event->hash); break;
    default: host->stale = true; break; /* A slot's or a tenant's: everything is told again. */
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct member *
find_member(struct yb_conductor_host *host, const char *name)
{
    for (uint32_t i = 0; i < host->member_count; i++) {
        if (strcmp(host->members[i].name, name) == 0) {
            return &host->members[i];
        }
    }
    return NULL;
}

/* Let the schedulers know how a node's bytes come. Where nothing waits and nothing has changed they
 * know it. */
static void
tell_ways(struct yb_conductor_host *host, struct member *member, const struct yb_wire_member *wire)
{
    struct yb_wire_conductor_ways ways = {
        .out_backlog = wire->backlog,
        .out_rate = wire->rate,
        .ssd_backlog = wire->ssd_backlog,
        .ssd_rate = wire->ssd_rate,
        .object_backlog = wire->object_backlog,
        .object_rate = wire->object_rate,
        .ssd_base_us = wire->ssd_base_us,
        .object_base_us = wire->object_base_us,
    };
    const uint64_t waits = ways.out_backlog | ways.ssd_backlog | ways.object_backlog;

    if (waits == 0 && memcmp(&ways, &member->ways, sizeof(ways)) == 0) {
        return;
    }
    member->ways = ways;
    ways.name = yb_wire_text_of(member->name);
    ways.age_ms = wire->age_ms < UINT32_MAX ? (uint32_t)wire->age_ms : UINT32_MAX;
    yb_conductor_service_ways(host->service, &ways);
}

static void
take_member(struct yb_conductor_host *host, const struct yb_wire_member *wire)
{
    char name[sizeof(wire->name) + 1] = "";
    struct member *member;
    uint32_t place = NO_PLACE;

    memcpy(name, wire->name, sizeof(wire->name));
    member = find_member(host, name);
    if (wire->state == YB_WIRE_SLOT_STATE_DEAD ||
        (member == NULL && host->member_count == NODES_MAX)) {
        return;
    }
    if (member == NULL) {
        member = &host->members[host->member_count++];
        *member = (struct member){.slot = wire->slot};
        memcpy(member->name, name, sizeof(member->name));
        member->name[sizeof(member->name) - 1] = '\0';
        host->stale = true; /* What it had before is in a snapshot. */
    } else if (member->slot != wire->slot) {
        host->places[member->slot] = NO_PLACE;
        member->slot = wire->slot; /* Another life. */
        host->stale = true;
    }
    member->present = true;
    if (yb_conductor_service_storage(host->service, member->name, &place) == YB_OK) {
        host->places[member->slot] = place;
        tell_ways(host, member, wire);
    }
}

static enum yb_status
ask_members(struct yb_conductor_host *host)
{
    const struct yb_wire_members_question asked = {.known = 0};
    uint8_t body[YB_WIRE_MEMBERS_QUESTION_BYTES];
    struct yb_wire_members members;
    size_t length = 0;
    enum yb_status status;

    YB_ASSERT(yb_wire_members_question_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_visit_ask(&host->visit, YB_WIRE_DIRECTORY_TYPE_MEMBERS,
                          (struct yb_visit_body){body, length}, false);
    if (status == YB_OK) {
        status = yb_wire_members_decode(host->visit.reply, host->visit.reply_bytes, &members, NULL);
    }
    if (status != YB_OK) {
        return status;
    }
    for (uint32_t i = 0; i < host->member_count; i++) {
        host->members[i].present = false;
    }
    for (uint32_t i = 0; i < members.members.count; i++) {
        struct yb_wire_member member;

        yb_wire_member_at(&members.members, i, &member);
        take_member(host, &member);
    }
    for (uint32_t i = 0; i < host->member_count;) {
        if (host->members[i].present) {
            i++;
            continue;
        }
        host->places[host->members[i].slot] = NO_PLACE;
        yb_conductor_service_gone(host->service, host->members[i].name);
        host->members[i] = host->members[--host->member_count];
    }
    host->listed_ns = yb_clock_now(host->process->clock);
    return YB_OK;
}

/* Everything again. */
static enum yb_status
ask_snapshot(struct yb_conductor_host *host)
{
    struct yb_wire_snapshot_question asked = {.records_max = EVENTS_ASK};
    uint8_t body[YB_WIRE_SNAPSHOT_QUESTION_BYTES];
    struct yb_wire_snapshot piece;
    bool first = true;
    enum yb_status status;

    host->snapped_ns = yb_clock_now(host->process->clock);
    host->models = yb_conductor_service_models(host->service);
    yb_conductor_service_reset(host->service);
    memset(host->places, 0xff, SLOTS * sizeof(*host->places));
    status = ask_members(host);
    host->stale = false;
    do {
        size_t length = 0;

        YB_ASSERT(yb_wire_snapshot_question_encode(&asked, body, sizeof(body), &length) == YB_OK);
        if (status == YB_OK) {
            status = yb_visit_ask(&host->visit, YB_WIRE_DIRECTORY_TYPE_SNAPSHOT,
                                  (struct yb_visit_body){body, length}, false);
        }
        if (status == YB_OK) {
            status =
                yb_wire_snapshot_decode(host->visit.reply, host->visit.reply_bytes, &piece, NULL);
        }
        if (status != YB_OK) {
            host->stale = true;
            return status;
        }
        for (uint32_t i = 0; i < piece.events.count; i++) {
            struct yb_wire_event event;

            yb_wire_event_at(&piece.events, i, &event);
            take_event(host, &event);
        }
        flush_changes(host);
        host->epoch = piece.epoch;
        host->from = first ? piece.next : host->from;
        first = false;
        asked.cursor = piece.cursor;
    } while (asked.cursor != 0 && !atomic_load(&host->stopping));
    yb_conductor_service_heard(host->service);
    return YB_OK;
}

/* Wait for the next event so long, and no longer: then something else is to be asked. In whole
 * milliseconds, and one at least. */
static enum yb_status
ask_events(struct yb_conductor_host *host, uint64_t wait_ns)
{
    const struct yb_wire_events_question asked = {
        .epoch = host->epoch,
        .from = host->from,
        .wait_ms = wait_ns < 2 * YB_NS_PER_MS ? 1 : (uint32_t)(wait_ns / YB_NS_PER_MS),
        .events_max = EVENTS_ASK,
    };
    uint8_t body[YB_WIRE_EVENTS_QUESTION_BYTES];
    struct yb_wire_events events;
    size_t length = 0;
    enum yb_status status;

    YB_ASSERT(yb_wire_events_question_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_visit_ask(&host->visit, YB_WIRE_DIRECTORY_TYPE_EVENTS,
                          (struct yb_visit_body){body, length}, false);
    if (status == YB_STALE) {
        host->stale = true;
        return YB_OK;
    }
    if (status == YB_OK) {
        status = yb_wire_events_decode(host->visit.reply, host->visit.reply_bytes, &events, NULL);
    }
    if (status != YB_OK) {
        return status;
    }
    for (uint32_t i = 0; i < events.events.count; i++) {
        struct yb_wire_event event;

        yb_wire_event_at(&events.events, i, &event);
        take_event(host, &event);
    }
    flush_changes(host);
    host->from = events.first + events.events.count;
    yb_conductor_service_heard(host->service);
    return YB_OK;
}

/* Learn the seed of names, once. */
static enum yb_status
ask_seed(struct yb_conductor_host *host)
{
    struct yb_wire_cluster cluster;
    char why[YB_CONDUCTOR_WHY_BYTES];
    enum yb_status status = YB_OK;

    if (yb_conductor_service_ready(host->service)) {
        return YB_OK;
    }
    status = yb_visit_ask(&host->visit, YB_WIRE_DIRECTORY_TYPE_JOIN,
                          (struct yb_visit_body){NULL, 0}, false);
    if (status == YB_OK) {
        status = yb_wire_cluster_decode(host->visit.reply, host->visit.reply_bytes, &cluster, NULL);
    }
    return status == YB_OK ? yb_conductor_service_begin(host->service, cluster.seed, why) : status;
}

/* As long as the directory answers. */
static void
follow(struct yb_conductor_host *host)
{
    enum yb_status status = ask_seed(host);

    host->stale = true;
    while (status == YB_OK && !atomic_load(&host->stopping)) {
        uint64_t left_ns = yb_news_left_ns(host->listed_ns, host->member_count,
                                           yb_clock_now(host->process->clock));

        if (host->stale || host->models != yb_conductor_service_models(host->service)) {
            if (yb_clock_now(host->process->clock) - host->snapped_ns < AGAIN_NS) {
                rest(host, &host->feed_stop, AGAIN_NS); /* One for all that changes meanwhile. */
            }
            status = ask_snapshot(host);
        } else if (left_ns == 0) {
            status = ask_members(host);
        } else {
            status = ask_events(host, left_ns < WAIT_NS ? left_ns : WAIT_NS);
        }
    }
}

static void *
run_feed(void *owner)
{
    struct yb_conductor_host *host = owner;

    yb_cpus_as_process();
    while (!atomic_load(&host->stopping)) {
        if (yb_visit_begin(host->process, &host->directory, NULL, &host->visit) == YB_OK) {
            follow(host);
            yb_visit_end(&host->visit);
        }
        rest(host, &host->feed_stop, AGAIN_NS);
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static struct yb_conductor_service_options
options_of(const struct yb_process *process)
{
    const struct yb_config *config = process->config;
    struct yb_conductor_service_options options = {
        .conductor =
            {
                .routing = config->conductor_routing,
                .admission = config->conductor_admission,
                .mode = (uint32_t)config->conductor_mode,
                .places_max = config->conductor_places_max,
                .blocks_max = config->conductor_blocks_max,
                .pending_max = config->conductor_requests_max,
                .block_tokens = config->conductor_block_tokens,
                .conductor = config->conductor_number,
                .ttft_slo_ns = config->conductor_ttft_slo_ms * YB_NS_PER_MS,
                .tbt_slo_ns = config->conductor_tbt_slo_ms * YB_NS_PER_MS,
                .expire_ns = config->conductor_expire_ms * YB_NS_PER_MS,
                .node_rate = config->conductor_node_rate,
                .heat_ns = config->conductor_heat_ms * YB_NS_PER_MS,
                .moves = config->conductor_moves && !config->conductor_standalone,
            },
        .log_file = config->conductor_log_file,
        .log_bytes = config->conductor_log_bytes,
        .clock = process->clock,
        .stats = process->stats,
        .spans = process->spans,
        .log = process->log,
    };

    yb_net_random_system(NULL, &options.conductor.seed, sizeof(options.conductor.seed));
    return options;
}

enum yb_status
yb_conductor_host_create(struct yb_process *process, struct yb_conductor_host **host_out,
                         char why_out[YB_PROCESS_WHY_BYTES])
{
    static const uint8_t no_seed[YB_HASH_SEED_BYTES];
    struct yb_conductor_service_options options = options_of(process);
    struct yb_conductor_host *host = calloc(1, sizeof(*host));
    char why[YB_CONDUCTOR_WHY_BYTES] = "no memory for a conductor";
    enum yb_status status = YB_NO_MEMORY;

    if (host != NULL) {
        host->process = process;
        YB_ASSERT(sem_init(&host->pulse_stop, 0, 0) == 0 && sem_init(&host->feed_stop, 0, 0) == 0);
        host->places = malloc(SLOTS * sizeof(*host->places));
    }
    if (host != NULL && host->places != NULL) {
        status = yb_conductor_carrier_create(&host->carrier);
    }
    if (status == YB_OK) {
        options.order = yb_conductor_carrier_order;
        options.order_owner = host->carrier;
        status = yb_conductor_service_create(&options, &host->service, why);
    }
    if (status == YB_OK && process->config->conductor_standalone) {
        status = yb_conductor_service_begin(host->service, no_seed, why);
    }
    if (status == YB_OK) {
        host->pulsing = pthread_create(&host->pulse, NULL, run_pulse, host) == 0;
        status = host->pulsing ? YB_OK : YB_NO_MEMORY;
    }
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "conductor: %s", why);
        if (host != NULL) {
            yb_conductor_host_destroy(&host);
        }
        return status;
    }
    *host_out = host;
    return YB_OK;
}

enum yb_status
yb_conductor_host_follow(struct yb_conductor_host *host, struct yb_address directory,
                         char why_out[YB_PROCESS_WHY_BYTES])
{
    YB_ASSERT(!host->following);
    if (host->process->config->conductor_standalone) {
        return YB_OK;
    }
    host->directory = directory;
    if (host->process->config->conductor_moves &&
        yb_conductor_carrier_start(host->carrier, host->process, host->service, directory) !=
            YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "no thread for instructions");
        return YB_NO_MEMORY;
    }
    host->following = pthread_create(&host->feed, NULL, run_feed, host) == 0;
    if (!host->following) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "no thread for the directory's events");
        return YB_NO_MEMORY;
    }
    return YB_OK;
}

void
yb_conductor_host_destroy(struct yb_conductor_host **host_ref)
{
    struct yb_conductor_host *host = *host_ref;

    *host_ref = NULL;
    atomic_store(&host->stopping, true);
    (void)sem_post(&host->pulse_stop);
    (void)sem_post(&host->feed_stop);
    if (host->following) {
        YB_ASSERT(pthread_join(host->feed, NULL) == 0);
    }
    if (host->pulsing) {
        YB_ASSERT(pthread_join(host->pulse, NULL) == 0);
    }
    yb_conductor_carrier_destroy(&host->carrier);
    yb_conductor_service_destroy(&host->service);
    (void)sem_destroy(&host->pulse_stop);
    (void)sem_destroy(&host->feed_stop);
    free(host->places);
    free(host);
}

struct yb_conductor_service *
yb_conductor_host_service(struct yb_conductor_host *host)
{
    return host->service;
}
