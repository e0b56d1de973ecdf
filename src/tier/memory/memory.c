/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/loop.h"

#define OPS_MAX     1024u
#define TENANTS_MAX 64u
#define RETRY_NS    YB_NS_PER_MS /* While it is stalled. */

/* A block in the medium. */
struct kept {
    struct kept *next; /* Older ones behind newer ones. */
    struct yb_tier_record record;
    char tenant[65];
    uint8_t *bytes; /* Key, then value. */
    bool synced;
    bool known;   /* To the tier that is running. */
    bool leaving; /* Its owner was told that it will be lost. */
    uint8_t accesses;
};

struct killed {
    struct killed *next;
    struct yb_id hash;
    uint64_t grant;
};

struct flushed {
    char tenant[65];
    uint64_t flush;
};

struct yb_memory_medium {
    uint64_t capacity;
    uint64_t used;
    uint64_t random;
    uint64_t blocks;
    struct kept *kept;
    struct killed *killed;  /* For good. */
    struct killed *killing; /* Asked for, and not acknowledged yet. */
    struct flushed flushed[TENANTS_MAX];
    uint32_t flushed_count;
    struct yb_memory_faults faults;
    bool broken;
    struct memory_tier *tier; /* That uses it; NULL: none. */
    bool dead; /* Its node has crashed: the tier that is left does nothing to it any more. */
};

enum kind { STORE, LOAD, KILL, FLUSH };

/* An operation under way; op->slot leads here, and `op` back. */
struct work {
    struct yb_tier_op *op;
    enum kind kind;
    uint64_t due_ns;
    struct kept *kept; /* STORE: written, and not synced. */
    bool cancelled;
    bool stale; /* STORE: what it brings was killed. */
};

struct memory_tier {
    struct yb_tier tier; /* First. */
    struct yb_memory_tier_options options;
    struct yb_memory_medium *medium;
    struct yb_timer timer;
    struct work works[OPS_MAX]; /* In the order in which they came. */
    uint32_t count;
    bool stopping;
    bool recovering;
    bool aside;
    uint64_t recover_ns;
    struct yb_tier_info info;
};

/* ---- the medium ------------------------------------------------------------------------------ */

enum yb_status
yb_memory_medium_create(uint64_t capacity, uint64_t seed, struct yb_memory_medium **medium_out)
{
    struct yb_memory_medium *medium = calloc(1, sizeof(*medium));

    if (medium == NULL) {
        return YB_NO_MEMORY;
    }
    medium->capacity = capacity;
    medium->random = seed * 2 + 1;
    *medium_out = medium;
    return YB_OK;
}

static bool
chance(struct yb_memory_medium *medium)
{
    medium->random = medium->random * 6364136223846793005ull + 1442695040888963407ull;
    return (medium->random >> 62 & 1) != 0;
}

static void
kept_free(struct yb_memory_medium *medium, struct kept **link)
{
    struct kept *kept = *link;

    *link = kept->next;
    medium->used -= kept->record.size;
    medium->blocks--;
    free(kept->bytes);
    free(kept);
}

static void
list_free(struct killed **list)
{
    while (*list != NULL) {
        struct killed *killed = *list;

        *list = killed->next;
        free(killed);
    }
}

void
yb_memory_medium_destroy(struct yb_memory_medium **medium)
{
    if (*medium == NULL) {
        return;
    }
    while ((*medium)->kept != NULL) {
        kept_free(*medium, &(*medium)->kept);
    }
    list_free(&(*medium)->killed);
    list_free(&(*medium)->killing);
    free(*medium);
    *medium = NULL;
}

struct yb_memory_faults *
yb_memory_medium_faults(struct yb_memory_medium *medium)
{
    return &medium->faults;
}

void
yb_memory_medium_empty(struct yb_memory_medium *medium)
{
    YB_ASSERT(medium->broken);
    while (medium->kept != NULL) {
        kept_free(medium, &medium->kept);
    }
}

/* Take away what a kill names. */
static void
erase(struct yb_memory_medium *medium, struct yb_id hash, uint64_t grant)
{
    for (struct kept **link = &medium->kept; *link != NULL;) {
        if ((*link)->record.grant == grant && yb_id_equal((*link)->record.hash, hash)) {
            kept_free(medium, link);
        } else {
            link = &(*link)->next;
        }
    }
}

static uint64_t
flush_of(const struct yb_memory_medium *medium, const char *tenant)
{
    for (uint32_t i = 0; i < medium->flushed_count; i++) {
        if (strcmp(medium->flushed[i].tenant, tenant) == 0) {
            return medium->flushed[i].flush;
        }
    }
    return 0;
}

/* The kills that were asked for are for good, or, at a crash, some of them. */
static void
settle_kill(struct yb_memory_medium *medium, struct killed **link, bool happens)
{
    struct killed *killed = *link;

    *link = killed->next;
    if (!happens) {
        free(killed);
        return;
    }
    erase(medium, killed->hash, killed->grant);
    killed->next = medium->killed;
    medium->killed = killed;
}

void
yb_memory_medium_crash(struct yb_memory_medium *medium)
{
    medium->dead = true;
    while (medium->killing != NULL) {
        settle_kill(medium, &medium->killing, chance(medium));
    }
    for (struct kept **link = &medium->kept; *link != NULL;) {
        struct kept *kept = *link;

        kept->known = false;
        if (!kept->synced && chance(medium)) {
            kept_free(medium, link);
            continue;
        }
        kept->synced = true;
        link = &kept->next;
    }
}

void
yb_memory_medium_visit(const struct yb_memory_medium *medium,
                       void (*visit)(void *context, const struct yb_tier_record *record,
                                     const void *bytes),
                       void *context)
{
    for (const struct kept *kept = medium->kept; kept != NULL; kept = kept->next) {
        if (kept->synced && kept->record.flush >= flush_of(medium, kept->tenant)) {
            visit(context, &kept->record, kept->bytes + kept->record.key_bytes);
        }
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct memory_tier *
memory_of(const struct yb_tier *tier)
{
    return (struct memory_tier *)(uintptr_t)tier;
}

static uint64_t
now_of(const struct memory_tier *memory)
{
    return yb_loop_now(memory->options.loop);
}

static void
wake(struct memory_tier *memory)
{
    uint64_t next_ns = memory->recovering && !memory->medium->dead ? memory->recover_ns : YB_NEVER;

    next_ns = memory->aside != memory->medium->broken && !memory->stopping ? 0 : next_ns;
    for (uint32_t i = 0; i < memory->count; i++) {
        const struct work *work = &memory->works[i];
        uint64_t due_ns =
            work->due_ns < work->op->deadline_ns ? work->due_ns : work->op->deadline_ns;

        next_ns = due_ns < next_ns ? due_ns : next_ns;
        next_ns = work->cancelled || memory->medium->dead ? 0 : next_ns;
    }
    if (memory->medium->faults.stalled && !memory->medium->dead && next_ns != YB_NEVER &&
        next_ns < now_of(memory) + RETRY_NS) {
        next_ns = now_of(memory) + RETRY_NS;
    }
    if (next_ns == YB_NEVER) {
        yb_loop_disarm(memory->options.loop, &memory->timer);
    } else {
        yb_loop_arm(memory->options.loop, &memory->timer, next_ns);
    }
}

static enum yb_status
begin(struct yb_tier *tier, struct yb_tier_op *op, enum kind kind, uint64_t takes_ns)
{
    struct memory_tier *memory = memory_of(tier);

    if (memory->stopping) {
        return YB_CLOSED;
    }
    if (memory->aside && kind != LOAD) {
        return YB_IO;
    }
    if (memory->count == OPS_MAX) {
        return YB_AGAIN;
    }
    memory->works[memory->count++] =
        (struct work){.op = op, .kind = kind, .due_ns = now_of(memory) + takes_ns};
    wake(memory);
    return YB_OK;
}

static bool
fails(uint32_t *counter)
{
    if (*counter == 0) {
        return false;
    }
    (*counter)--;
    return true;
}

/* Make room for one more block, at the expense of the oldest ones. */
static bool
reclaim(struct memory_tier *memory, uint64_t bytes)
{
    struct yb_memory_medium *medium = memory->medium;

    while (medium->used + bytes > medium->capacity) {
        struct kept **oldest = NULL;
        struct yb_id hash;
        uint64_t grant;

        for (struct kept **link = &medium->kept; *link != NULL; link = &(*link)->next) {
            oldest = (*link)->synced ? link : oldest;
        }
        if (oldest == NULL || bytes > medium->capacity) {
            return false;
        }
        hash = (*oldest)->record.hash;
        grant = (*oldest)->record.grant;
        if ((*oldest)->known) {
            memory->tier.events->lost(memory->tier.owner, hash, grant, YB_NO_SPACE);
        }
        kept_free(medium, oldest);
        memory->info.reclaims++;
    }
    return true;
}

/* Above three quarters, the oldest blocks are told of before they are lost. */
static void
announce(struct memory_tier *memory)
{
    const struct yb_tier_events *events = memory->tier.events;
    struct yb_memory_medium *medium = memory->medium;
    uint64_t stays = medium->capacity / 4 * 3;

    for (struct kept *kept = medium->kept; kept != NULL; kept = kept->next) {
        if (stays >= kept->record.size) {
            stays -= kept->record.size;
            continue;
        }
        stays = 0;
        if (events->leaving != NULL && kept->synced && kept->known && !kept->leaving) {
            kept->leaving = true;
            (void)events->leaving(memory->tier.owner, kept->record.hash, kept->record.grant);
        }
    }
}

static bool
is_killed(const struct yb_memory_medium *medium, struct yb_id hash, uint64_t grant)
{
    for (const struct killed *killed = medium->killed; killed != NULL; killed = killed->next) {
        if (killed->grant == grant && yb_id_equal(killed->hash, hash)) {
            return true;
        }
    }
    return false;
}

static void
gather(uint8_t *to, const struct iovec *iov, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
}

/* A store's bytes reach the medium, and are not safe yet. */
static enum yb_status
write_block(struct memory_tier *memory, struct work *work)
{
    struct yb_tier_store *store = (struct yb_tier_store *)work->op;
    struct kept *kept;

    if (fails(&memory->medium->faults.store_fail)) {
        return YB_IO;
    }
    if (fails(&memory->medium->faults.store_full) || !reclaim(memory, store->record.size)) {
        return YB_NO_SPACE;
    }
    erase(memory->medium, store->record.hash, store->record.grant); /* It comes again. */
    kept = calloc(1, sizeof(*kept));
    YB_ASSERT(kept != NULL);
    kept->bytes = malloc(store->record.key_bytes + store->record.size + 1);
    YB_ASSERT(kept->bytes != NULL);
    kept->record = store->record;
    (void)snprintf(kept->tenant, sizeof(kept->tenant), "%s", store->record.tenant);
    memcpy(kept->bytes, store->record.key, store->record.key_bytes);
    gather(kept->bytes + store->record.key_bytes, store->iov, store->iov_count);
    kept->record.tenant = kept->tenant;
    kept->record.key = kept->bytes;
    kept->next = memory->medium->kept;
    memory->medium->kept = kept;
    memory->medium->used += kept->record.size;
    memory->medium->blocks++;
    memory->info.written_bytes += kept->record.size;
    memory->info.writes++;
    work->kept = kept;
    announce(memory);
    return YB_OK;
}

static struct kept *
kept_of(const struct memory_tier *memory, struct yb_id hash, uint64_t grant)
{
    struct kept *found = NULL;

    for (struct kept *kept = memory->medium->kept; kept != NULL; kept = kept->next) {
        if (kept->synced && kept->known && yb_id_equal(kept->record.hash, hash) &&
            kept->record.flush >= flush_of(memory->medium, kept->tenant) &&
            (grant == 0 || kept->record.grant == grant) &&
            (found == NULL || kept->record.grant > found->record.grant)) {
            found = kept;
        }
    }
    return found;
}

static enum yb_status
read_block(struct memory_tier *memory, struct yb_tier_load *load)
{
    struct kept *kept = kept_of(memory, load->hash, load->grant);
    const uint8_t *from;

    if (kept == NULL) {
        return kept_of(memory, load->hash, 0) != NULL ? YB_STALE : YB_NOT_FOUND;
    }
    if (fails(&memory->medium->faults.load_fail)) {
        return YB_IO;
    }
    if (load->key_bytes > 0 && (load->key_bytes != kept->record.key_bytes ||
                                memcmp(load->key, kept->bytes, load->key_bytes) != 0)) {
        return YB_NOT_FOUND;
    }
    if (load->offset > kept->record.size || load->length > kept->record.size - load->offset) {
        return YB_INVALID;
    }
    if (fails(&memory->medium->faults.load_corrupt)) { /* T3 */
        uint64_t grant = kept->record.grant;

        erase(memory->medium, load->hash, grant);
        memory->info.corrupt++;
        memory->tier.events->lost(memory->tier.owner, load->hash, grant, YB_CORRUPT);
        return YB_CORRUPT;
    }
    from = kept->bytes + kept->record.key_bytes + load->offset;
    for (uint32_t i = 0; i < load->iov_count; i++) {
        memcpy(load->iov[i].iov_base, from, load->iov[i].iov_len);
        from += load->iov[i].iov_len;
    }
    kept->accesses = (uint8_t)(kept->accesses + (kept->accesses < UINT8_MAX));
    memory->info.read_bytes += load->length;
    load->record_out = kept->record;
    (void)snprintf(load->tenant_out, sizeof(load->tenant_out), "%s", kept->tenant);
    memcpy(load->key_out, kept->bytes, kept->record.key_bytes);
    load->record_out.tenant = load->tenant_out;
    load->record_out.key = load->key_out;
    return YB_OK;
}

static enum yb_status
kill_block(struct memory_tier *memory, const struct yb_tier_kill *kill)
{
    struct killed **link = &memory->medium->killing;

    if (fails(&memory->medium->faults.kill_fail)) {
        return YB_IO;
    }
    while (*link != NULL &&
           ((*link)->grant != kill->grant || !yb_id_equal((*link)->hash, kill->hash))) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        settle_kill(memory->medium, link, true);
    }
    memory->info.syncs++;
    return YB_OK;
}

static enum yb_status
flush_tenant(struct memory_tier *memory, const struct yb_tier_flush *flush)
{
    struct yb_memory_medium *medium = memory->medium;

    if (fails(&medium->faults.kill_fail)) {
        return YB_IO;
    }
    memory->info.syncs++;
    for (uint32_t i = 0; i < medium->flushed_count; i++) {
        if (strcmp(medium->flushed[i].tenant, flush->tenant) == 0) {
            medium->flushed[i].flush =
                flush->flush > medium->flushed[i].flush ? flush->flush : medium->flushed[i].flush;
            return YB_OK;
        }
    }
    YB_ASSERT(medium->flushed_count < TENANTS_MAX);
    (void)snprintf(medium->flushed[medium->flushed_count].tenant, 65, "%s", flush->tenant);
    medium->flushed[medium->flushed_count++].flush = flush->flush;
    return YB_OK;
}

/* A store is safe: it is RESIDENT, unless it was ended meanwhile. */
static enum yb_status
sync_block(struct memory_tier *memory, struct work *work)
{
    const struct yb_tier_store *store = (const struct yb_tier_store *)work->op;
    struct kept *kept = work->kept;

    if (work->stale || is_killed(memory->medium, store->record.hash, store->record.grant) ||
        store->record.flush < flush_of(memory->medium, store->record.tenant)) {
        erase(memory->medium, store->record.hash, store->record.grant);
        return YB_STALE;
    }
    kept->synced = kept->known = true;
    memory->info.syncs++;
    memory->info.stored_bytes += kept->record.size;
    return YB_OK;
}

static void
take_back(struct memory_tier *memory, const struct work *work)
{
    const struct yb_tier_store *store = (const struct yb_tier_store *)work->op;

    if (work->kept != NULL) {
        erase(memory->medium, store->record.hash, store->record.grant);
    }
}

/* Do the next step of an operation. Returns whether it has ended. */
static bool
step(struct memory_tier *memory, struct work *work, enum yb_status *status_out)
{
    if (memory->medium->dead) {
        *status_out = YB_CANCELLED;
        return true;
    }
    if (work->cancelled) {
        take_back(memory, work);
        *status_out = YB_CANCELLED;
        return true;
    }
    if (work->op->deadline_ns <= now_of(memory) &&
        (work->due_ns > now_of(memory) || memory->medium->faults.stalled)) {
        take_back(memory, work); /* It may be carried out, and is not: both are right. */
        *status_out = work->kind == LOAD ? YB_TIMED_OUT : YB_IN_DOUBT;
        return true;
    }
    switch (work->kind) {
    case STORE:
        if (work->kept != NULL) {
            *status_out = sync_block(memory, work);
            return true;
        }
        *status_out = write_block(memory, work);
        work->due_ns = now_of(memory) + memory->options.sync_ns;
        return *status_out != YB_OK;
    case LOAD: *status_out = read_block(memory, (struct yb_tier_load *)work->op); return true;
    case KILL: *status_out = kill_block(memory, (struct yb_tier_kill *)work->op); return true;
    case FLUSH: *status_out = flush_tenant(memory, (struct yb_tier_flush *)work->op); return true;
    }
    return true;
}

/* Tell of one more block that was there before. */
static void
recover(struct memory_tier *memory)
{
    struct kept **link = &memory->medium->kept;

    while (*link != NULL && ((*link)->known || !(*link)->synced)) {
        link = &(*link)->next;
    }
    memory->recover_ns = now_of(memory) + memory->options.recover_ns;
    if (*link == NULL) {
        memory->recovering = false;
        memory->tier.events->recovered(memory->tier.owner, YB_OK);
        return;
    }
    (*link)->known = true;
    if ((*link)->record.flush < flush_of(memory->medium, (*link)->tenant) ||
        !memory->tier.events->found(memory->tier.owner, &(*link)->record)) {
        kept_free(memory->medium, link);
    }
}

/* It has failed: what was being written is there, or is not. */
static void
break_off(struct memory_tier *memory)
{
    struct yb_memory_medium *medium = memory->medium;

    memory->aside = true;
    while (medium->killing != NULL) {
        settle_kill(medium, &medium->killing, chance(medium));
    }
    for (uint32_t i = 0; i < memory->count;) {
        struct work *work = &memory->works[i];
        struct yb_tier_op *op = work->op;

        if (work->kind == LOAD) {
            i++;
            continue;
        }
        if (work->kept != NULL && (work->stale || chance(medium))) {
            take_back(memory, work);
        } else if (work->kept != NULL) {
            work->kept->synced = true;
        }
        memmove(work, work + 1, (memory->count - i - 1) * sizeof(*work));
        memory->count--;
        op->done(op, YB_IN_DOUBT);
    }
}

/* It was broken off, or mended. */
static void
turn(struct memory_tier *memory)
{
    const struct yb_tier_events *events = memory->tier.events;

    if (!memory->medium->broken) {
        memory->aside = false;
        memory->recovering = true;
        memory->recover_ns = now_of(memory) + memory->options.recover_ns;
        for (struct kept *kept = memory->medium->kept; kept != NULL; kept = kept->next) {
            kept->known = kept->leaving = false;
        }
        events->aside(memory->tier.owner, YB_OK, "");
        return;
    }
    if (memory->recovering) {
        memory->recovering = false;
        events->recovered(memory->tier.owner, YB_IO);
    }
    memory->aside = true;
    events->aside(memory->tier.owner, YB_IO, "the medium was broken off: mend it");
    break_off(memory);
}

void
yb_memory_medium_break(struct yb_memory_medium *medium, bool broken)
{
    medium->broken = broken;
    if (medium->tier != NULL) {
        wake(medium->tier);
    }
}

static void
fired(struct yb_timer *timer)
{
    struct memory_tier *memory =
        (struct memory_tier *)((uint8_t *)timer - offsetof(struct memory_tier, timer));
    bool stalled = memory->medium->faults.stalled;

    if (memory->aside != memory->medium->broken && !memory->stopping && !memory->medium->dead) {
        turn(memory);
    }
    if (memory->recovering && !stalled && !memory->medium->dead &&
        memory->recover_ns <= now_of(memory)) {
        recover(memory);
    }
    for (uint32_t i = 0; i < memory->count;) {
        struct work *work = &memory->works[i];
        bool due = memory->medium->dead || (work->due_ns <= now_of(memory) && !stalled);
        enum yb_status status = YB_OK;
        struct yb_tier_op *op = work->op;

        if ((!due && !work->cancelled && work->op->deadline_ns > now_of(memory)) ||
            !step(memory, work, &status)) {
            i++;
            continue;
        }
        memmove(work, work + 1, (memory->count - i - 1) * sizeof(*work));
        memory->count--;
        op->done(op, status);
    }
    wake(memory);
}

/* ---- the contract ---------------------------------------------------------------------------- */

static enum yb_status
memory_store(struct yb_tier *tier, struct yb_tier_store *store)
{
    return begin(tier, &store->op, STORE, memory_of(tier)->options.store_ns);
}

static enum yb_status
memory_load(struct yb_tier *tier, struct yb_tier_load *load)
{
    return begin(tier, &load->op, LOAD, memory_of(tier)->options.load_ns);
}

static enum yb_status
memory_kill(struct yb_tier *tier, struct yb_tier_kill *kill)
{
    struct memory_tier *memory = memory_of(tier);
    enum yb_status status = begin(tier, &kill->op, KILL, memory->options.sync_ns);
    struct killed *killed;

    if (status != YB_OK) {
        return status;
    }
    killed = calloc(1, sizeof(*killed));
    YB_ASSERT(killed != NULL);
    *killed = (struct killed){memory->medium->killing, kill->hash, kill->grant};
    memory->medium->killing = killed;
    for (uint32_t i = 0; i < memory->count; i++) {
        struct work *work = &memory->works[i];
        const struct yb_tier_store *store = (const struct yb_tier_store *)work->op;

        work->stale = work->stale || (work->kind == STORE && store->record.grant == kill->grant &&
                                      yb_id_equal(store->record.hash, kill->hash));
    }
    return YB_OK;
}

static enum yb_status
memory_flush(struct yb_tier *tier, struct yb_tier_flush *flush)
{
    return begin(tier, &flush->op, FLUSH, memory_of(tier)->options.sync_ns);
}

static struct work *
work_of(struct memory_tier *memory, const struct yb_tier_op *op)
{
    for (uint32_t i = 0; i < memory->count; i++) {
        if (memory->works[i].op == op) {
            return &memory->works[i];
        }
    }
    return NULL;
}

static void
memory_cancel(struct yb_tier *tier, struct yb_tier_op *op)
{
    struct work *work = work_of(memory_of(tier), op);

    if (work != NULL && (work->kind == STORE || work->kind == LOAD)) {
        work->cancelled = true;
        wake(memory_of(tier));
    }
}

static void
memory_urge(struct yb_tier *tier, struct yb_tier_op *op, enum yb_class traffic_class,
            uint64_t deadline_ns)
{
    op->traffic_class = traffic_class;
    op->deadline_ns = deadline_ns;
    wake(memory_of(tier));
}

static bool
memory_find(struct yb_tier *tier, struct yb_id hash, struct yb_tier_found *found_out)
{
    const struct kept *kept = kept_of(memory_of(tier), hash, 0);

    if (kept == NULL) {
        return false;
    }
    *found_out = (struct yb_tier_found){
        .grant = kept->record.grant, .size = kept->record.size, .accesses = kept->accesses};
    return true;
}

static struct yb_tier_forecast
memory_forecast(struct yb_tier *tier, enum yb_class traffic_class)
{
    struct memory_tier *memory = memory_of(tier);
    struct yb_tier_forecast forecast = {.base_us = memory->options.load_ns / YB_NS_PER_US,
                                        .bytes_per_second = 1u << 30};

    (void)traffic_class;
    for (uint32_t i = 0; i < memory->count; i++) {
        if (memory->works[i].kind == LOAD) {
            forecast.backlog_bytes += ((struct yb_tier_load *)memory->works[i].op)->length;
        }
    }
    return forecast;
}

static void
memory_info(struct yb_tier *tier, struct yb_tier_info *info_out)
{
    struct memory_tier *memory = memory_of(tier);

    *info_out = memory->info;
    info_out->recovering = memory->recovering;
    info_out->aside = memory->aside ? YB_IO : YB_OK;
    info_out->capacity = memory->medium->capacity;
    info_out->used = info_out->live = memory->medium->used;
    info_out->blocks = memory->medium->blocks;
}

static void
memory_stop(struct yb_tier *tier)
{
    struct memory_tier *memory = memory_of(tier);

    memory->stopping = true;
    memory->recovering = false;
    for (uint32_t i = 0; i < memory->count; i++) {
        struct work *work = &memory->works[i];

        work->cancelled = work->kind == LOAD;
        work->due_ns = 0; /* What was taken becomes safe first. */
    }
    memory->options.sync_ns = 0;
    memory->medium->faults.stalled = false;
    wake(memory);
}

static bool
memory_idle(const struct yb_tier *tier)
{
    return memory_of(tier)->stopping && memory_of(tier)->count == 0;
}

static void
memory_destroy(struct yb_tier *tier)
{
    struct memory_tier *memory = memory_of(tier);

    yb_loop_disarm(memory->options.loop, &memory->timer);
    for (struct kept *kept = memory->medium->kept; kept != NULL; kept = kept->next) {
        kept->known = kept->leaving = false;
    }
    memory->tier.magic = 0;
    memory->medium->tier = NULL;
    free(memory);
}

enum yb_status
yb_memory_tier_create(const struct yb_memory_tier_options *options, struct yb_tier **tier_out)
{
    static const struct yb_tier_ops ssd = {
        "ssd",        YB_WIRE_TIER_SSD, memory_store, memory_load,    memory_kill,
        memory_flush, memory_cancel,    memory_urge,  memory_find,    memory_forecast,
        memory_info,  memory_stop,      memory_idle,  memory_destroy,
    };
    static const struct yb_tier_ops object = {
        "object",     YB_WIRE_TIER_OBJECT, memory_store, memory_load,    memory_kill,
        memory_flush, memory_cancel,       memory_urge,  memory_find,    memory_forecast,
        memory_info,  memory_stop,         memory_idle,  memory_destroy,
    };
    struct memory_tier *memory = calloc(1, sizeof(*memory));

    if (memory == NULL) {
        return YB_NO_MEMORY;
    }
    memory->tier = (struct yb_tier){
        .magic = YB_TIER_MAGIC,
        .ops = options->tier == YB_WIRE_TIER_SSD ? &ssd : &object,
        .events = options->events,
        .owner = options->owner,
    };
    memory->options = *options;
    memory->medium = options->medium;
    memory->medium->dead = false;
    memory->medium->tier = memory;
    memory->recovering = true;
    memory->recover_ns = now_of(memory) + options->recover_ns;
    yb_timer_init(&memory->timer, fired);
    wake(memory);
    *tier_out = &memory->tier;
    return YB_OK;
}
