/* SPDX-License-Identifier: Apache-2.0 */
#include "node/member.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/loop.h"

#define MAGIC           0x59424d45u /* "YBME" */
#define TENANTS_MAX     4096u
#define REGISTER_NS     (1 * YB_NS_PER_S)
#define RETRY_MIN_NS    (10 * YB_NS_PER_MS)
#define RETRY_MAX_NS    (500 * YB_NS_PER_MS)
#define REPLY_BYTES     (YB_WIRE_REGISTERED_BYTES + TENANTS_MAX * YB_WIRE_TENANT_STATE_BYTES)
#define BEAT_BODY_BYTES (YB_WIRE_HEARTBEAT_BYTES + YB_MEMBER_USES * YB_WIRE_TENANT_USE_BYTES)
#define HEART_STRIPE    1u /* Beside the node's own connection (net/fence.h). */
#define BEATS_A_LEASE   5u /* Heartbeats in one lease: some may be lost. */
#define BEATS_A_BEAT    4u /* So many at the most in the time of one, when much changes (M4). */

/* Less than this is nothing, and does not double (M4): what is committed below a queue anyway, and
 * what a look at the tiers costs. */
#define BACKLOG_FLOOR (256u * 1024u)
#define BASE_FLOOR_US 1000u

enum state { OUT, REGISTERING, RESTING, IN };

/* What the heart's loop owns. */
struct heart {
    struct yb_net *net;
    struct yb_peer *peer;
    struct yb_timer timer;
    struct yb_call call;
    bool calling;
    bool beating;
    bool stopping;
    bool hurries; /* As soon as it may. */
    uint64_t sent_ns;
    uint64_t incarnation;
    uint64_t epoch;
    uint16_t slot;
    uint8_t told_state;
    uint32_t lease_ms;
    uint8_t body[BEAT_BODY_BYTES];
    uint8_t reply[REPLY_BYTES];
};

/* From the node's loop to the heart's, one for each change of membership: beat, pause or stop. */
struct order {
    struct yb_mail mail; /* First. */
    struct yb_member *member;
    struct order *next; /* In the order in which they were given; the last is what counts. */
    bool beat;
    bool stop;
    uint64_t incarnation;
    uint64_t epoch;
    uint16_t slot;
    uint32_t lease_ms;
};

/* From the heart's loop to the node's. */
struct news {
    struct yb_mail mail; /* First. */
    struct yb_member *member;
    bool waits; /* The heart's own word, given back by mail. */
    bool fenced;
    uint64_t incarnation;
    uint64_t version;
    uint8_t state;
    uint32_t count;
    uint8_t *tenants; /* As they came. */
};

struct yb_member {
    uint32_t magic;
    struct yb_member_facts facts;
    const struct yb_member_events *events;
    void *owner;
    struct yb_member_vitals vitals;
    struct {
        _Atomic uint64_t backlog;
        _Atomic uint64_t rate;
        _Atomic uint32_t base_us;
    } told[YB_MEMBER_WAYS]; /* By the last heartbeat; written by the heart, read by the node. */
    _Atomic uint64_t lease_until_ns;
    _Atomic bool heart_idle;

    /* ---- the node's loop ---- */
    struct yb_net *net;
    struct yb_peer *peer;
    enum state state;
    bool stopping;
    bool was_in; /* on_registered was called, on_lost not yet. */
    bool calling;
    struct yb_timer timer;
    uint64_t retry_ns;
    uint64_t sent_ns;
    uint64_t incarnation;
    uint64_t epoch_max; /* M3 */
    struct yb_id cluster;
    struct yb_call call;
    struct order *unposted; /* Could not be posted yet. */
    struct yb_task post_task;
    uint32_t lease_ms;
    uint16_t slot;
    uint64_t epoch;
    uint8_t body[1024];
    uint8_t reply[REPLY_BYTES];

    struct heart heart;
    struct news news;
    struct yb_mail hurry;
    _Atomic bool hurrying; /* It is the heart's, which gives it back. */
};

static void register_now(struct yb_member *member);
static void order_heart(struct yb_member *member, bool beat, bool stop);

/* ---- on the node's loop: being a member ---------------------------------------------------- */

static uint64_t
now_of(struct yb_net *net)
{
    return yb_loop_now(yb_net_loop(net));
}

static void
lose(struct yb_member *member)
{
    atomic_store(&member->lease_until_ns, 0);
    order_heart(member, false, false);
    member->state = OUT;
    if (member->was_in) {
        member->was_in = false;
        member->events->on_lost(member->owner);
    }
}

static void
rest(struct yb_member *member)
{
    member->state = RESTING;
    yb_loop_arm(yb_net_loop(member->net), &member->timer, now_of(member->net) + member->retry_ns);
    member->retry_ns = member->retry_ns * 2 < RETRY_MAX_NS ? member->retry_ns * 2 : RETRY_MAX_NS;
}

static void
take_registration(struct yb_member *member, const struct yb_wire_registered *answer)
{
    struct yb_member_registration registration = {
        .incarnation = answer->incarnation,
        .epoch = answer->epoch,
        .cluster = answer->cluster,
        .slot = answer->slot,
        .keep = answer->keep == 1 && member->incarnation != 0,
        .want_keys = answer->want_keys == 1,
        .flush_version = answer->flush_version,
        .tenants = answer->tenants,
    };

    memcpy(registration.seed, answer->seed, sizeof(registration.seed));
    member->state = IN;
    member->was_in = true;
    member->retry_ns = RETRY_MIN_NS;
    member->incarnation = answer->incarnation;
    member->epoch_max = answer->epoch;
    member->cluster = answer->cluster;
    atomic_store(&member->lease_until_ns, member->sent_ns + answer->lease_ms * YB_NS_PER_MS);
    member->epoch = answer->epoch;
    member->slot = answer->slot;
    member->lease_ms = answer->lease_ms;
    order_heart(member, true, false);
    yb_loop_arm(yb_net_loop(member->net), &member->timer,
                atomic_load(&member->lease_until_ns)); /* To notice a lease that ran out. */
    member->events->on_registered(member->owner, &registration);
}

static void
on_registered(struct yb_call *call)
{
    struct yb_member *member = call->owner;
    struct yb_wire_registered answer;

    member->calling = false;
    if (member->stopping) {
        return;
    }
    if (call->answered && call->status == YB_OK &&
        yb_wire_registered_decode(member->reply, call->reply_body_bytes, &answer, NULL) == YB_OK &&
        (answer.epoch >= member->epoch_max || !yb_id_equal(answer.cluster, member->cluster)) &&
        answer.slot != 0 && answer.lease_ms != 0) {
        take_registration(member, &answer);
        return;
    }
    rest(member);
}

static void
register_now(struct yb_member *member)
{
    struct yb_wire_register body = {
        .capacity = member->facts.capacity,
        .grant_max = member->events->grant_max(member->owner),
        .incarnation = member->incarnation,
        .huge_bytes = member->facts.huge_bytes,
        .cluster = member->cluster,
        .host = member->facts.host,
        .name = yb_wire_text_of(member->facts.name),
        .address = yb_wire_text_of(member->facts.address),
        .data_address = yb_wire_text_of(member->facts.data_address),
        .rack = yb_wire_text_of(member->facts.rack),
        .zone = yb_wire_text_of(member->facts.zone),
        .keeps = member->facts.keeps ? 1 : 0,
    };
    size_t length = 0;

    member->state = REGISTERING;
    if (yb_wire_register_encode(&body, member->body, sizeof(member->body), &length) != YB_OK) {
        YB_ASSERT(false); /* The facts were checked by create. */
    }
    member->sent_ns = now_of(member->net);
    member->call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_REGISTER,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = member->sent_ns + REGISTER_NS,
        .body = member->body,
        .body_bytes = (uint32_t)length,
        .reply_body = member->reply,
        .reply_body_room = sizeof(member->reply),
        .done = on_registered,
        .owner = member,
    };
    if (yb_peer_call(member->peer, &member->call) == YB_OK) {
        member->calling = true;
    } else {
        rest(member);
    }
}

static void
on_timer(struct yb_timer *timer)
{
    struct yb_member *member =
        (struct yb_member *)((uint8_t *)timer - offsetof(struct yb_member, timer));
    uint64_t until_ns = atomic_load(&member->lease_until_ns);

    if (member->stopping) {
        return;
    }
    if (member->state == IN && now_of(member->net) < until_ns) {
        yb_loop_arm(yb_net_loop(member->net), timer, until_ns);
        return;
    }
    if (member->state == IN) {
        lose(member); /* No heartbeat was answered for a whole lease. */
    }
    register_now(member);
}

void
yb_member_fenced(struct yb_member *member)
{
    if (member->state != IN || member->stopping) {
        return;
    }
    lose(member);
    rest(member);
}

static void
on_news(struct yb_mail *mail)
{
    struct news *news = (struct news *)mail;
    struct yb_member *member = news->member;
    struct yb_wire_tenant_state_list tenants = {.count = news->count, .wire = news->tenants};
    bool current = member->state == IN && member->incarnation == news->incarnation;
    bool fenced = news->fenced;

    if (current && !member->stopping && !fenced) {
        if (news->version != 0) {
            member->events->on_tenants(member->owner, news->version, &tenants);
        }
        member->events->on_state(member->owner, news->state);
    }
    free(news->tenants);
    news->tenants = NULL;
    news->version = 0;
    /* The next heartbeat reads this word again: the store is a release. */
    __atomic_store_n(&news->waits, false, __ATOMIC_RELEASE);
    if (current && fenced) {
        yb_member_fenced(member);
    }
}

/* ---- on the heart's loop -------------------------------------------------------------------- */

/* Send what an answer says to the node's loop. What cannot be sent now comes with the next one. */
static void
tell_node(struct yb_member *member, const struct yb_wire_heartbeat_answer *answer, bool fenced)
{
    struct heart *heart = &member->heart;
    struct news *news = &member->news;
    size_t bytes = answer->full == 1 ? answer->tenants.count * YB_WIRE_TENANT_STATE_BYTES : 0;

    if (__atomic_load_n(&news->waits, __ATOMIC_ACQUIRE)) {
        return;
    }
    if (!fenced && answer->full == 0 && answer->state == heart->told_state) {
        return;
    }
    news->fenced = fenced;
    news->incarnation = heart->incarnation;
    news->state = answer->state;
    news->version = 0;
    news->count = 0;
    if (bytes > 0 && (news->tenants = malloc(bytes)) != NULL) {
        memcpy(news->tenants, answer->tenants.wire, bytes);
        news->count = answer->tenants.count;
    }
    if (answer->full == 1 && (bytes == 0 || news->tenants != NULL)) {
        news->version = answer->flush_version;
    }
    __atomic_store_n(&news->waits, true, __ATOMIC_RELEASE);
    if (yb_mailbox_try_post(yb_loop_mailbox(yb_net_loop(member->net)), &news->mail) != YB_OK) {
        __atomic_store_n(&news->waits, false, __ATOMIC_RELEASE);
        free(news->tenants);
        news->tenants = NULL;
        return;
    }
    heart->told_state = answer->state;
}

static void
heart_rest(struct yb_member *member)
{
    struct heart *heart = &member->heart;
    uint64_t every_ns = heart->lease_ms * YB_NS_PER_MS / BEATS_A_LEASE;
    uint64_t next_ns =
        heart->hurries ? heart->sent_ns + every_ns / BEATS_A_BEAT : now_of(heart->net) + every_ns;

    if (heart->stopping || !heart->beating) {
        atomic_store(&member->heart_idle, !heart->calling);
        return;
    }
    yb_loop_arm(yb_net_loop(heart->net), &heart->timer, next_ns);
}

/* The node has news of its ways. */
static void
on_hurry(struct yb_mail *mail)
{
    struct yb_member *member =
        (struct yb_member *)((uint8_t *)mail - offsetof(struct yb_member, hurry));
    struct heart *heart = &member->heart;

    atomic_store(&member->hurrying, false);
    if (heart->beating && !heart->stopping && !heart->hurries) {
        heart->hurries = true;
        if (!heart->calling) {
            heart_rest(member);
        }
    }
}

/* Let the lease end later, unless the node's loop has ended it meanwhile (M1, M2). */
static void
prolong(struct yb_member *member, uint64_t until_ns)
{
    uint64_t old_ns = atomic_load(&member->lease_until_ns);

    while (old_ns != 0 && old_ns < until_ns &&
           !atomic_compare_exchange_weak(&member->lease_until_ns, &old_ns, until_ns)) {
    }
}

static void
on_beat(struct yb_call *call)
{
    struct yb_member *member = call->owner;
    struct heart *heart = &member->heart;
    struct yb_wire_heartbeat_answer answer;

    heart->calling = false;
    if (heart->stopping || !heart->beating || !call->answered) {
        heart_rest(member);
        return;
    }
    if (call->status == YB_FENCED) {
        answer = (struct yb_wire_heartbeat_answer){.state = YB_WIRE_SLOT_STATE_DEAD};
        tell_node(member, &answer, true);
    } else if (call->status == YB_OK &&
               yb_wire_heartbeat_answer_decode(heart->reply, call->reply_body_bytes, &answer,
                                               NULL) == YB_OK &&
               answer.epoch == heart->epoch) {
        prolong(member, heart->sent_ns + answer.lease_ms * YB_NS_PER_MS);
        tell_node(member, &answer, false);
    }
    heart_rest(member);
}

/* Copy the tenants' use, if the node is not writing it just now. */
static uint32_t
copy_uses(struct yb_member_vitals *vitals, struct yb_wire_tenant_use *out)
{
    uint32_t before = atomic_load_explicit(&vitals->use_sequence, memory_order_acquire);
    uint32_t count = atomic_load_explicit(&vitals->use_count, memory_order_relaxed);

    if (before % 2 == 1 || count > YB_MEMBER_USES) {
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *from = (const uint64_t *)(const void *)&vitals->uses[i];
        uint64_t *to = (uint64_t *)(void *)&out[i];

        for (size_t word = 0; word < sizeof(*out) / sizeof(*to); word++) {
            to[word] = __atomic_load_n(&from[word], __ATOMIC_RELAXED);
        }
    }
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&vitals->use_sequence, memory_order_relaxed) == before ? count : 0;
}

/* What the directory is going to know of the ways. */
static void
tell_ways(struct yb_member *member)
{
    for (uint32_t i = 0; i < YB_MEMBER_WAYS; i++) {
        atomic_store(&member->told[i].backlog, atomic_load(&member->vitals.ways[i].backlog));
        atomic_store(&member->told[i].rate, atomic_load(&member->vitals.ways[i].rate));
        atomic_store(&member->told[i].base_us, atomic_load(&member->vitals.ways[i].base_us));
    }
}

static size_t
encode_beat(struct yb_member *member)
{
    struct yb_wire_tenant_use uses[YB_MEMBER_USES];
    struct yb_member_vitals *vitals = &member->vitals;
    struct heart *heart = &member->heart;
    size_t length = 0;
    struct yb_wire_heartbeat beat = {
        .incarnation = heart->incarnation,
        .epoch = heart->epoch,
        .flush_version = atomic_load(&vitals->flush_version),
        .capacity = member->facts.capacity,
        .live = atomic_load(&vitals->live),
        .in_flight = atomic_load(&vitals->in_flight),
        .ungranted = atomic_load(&vitals->ungranted),
        .quarantined = atomic_load(&vitals->quarantined),
        .backlog = atomic_load(&member->told[YB_MEMBER_LINK].backlog),
        .rate = atomic_load(&member->told[YB_MEMBER_LINK].rate),
        .ssd_backlog = atomic_load(&member->told[YB_MEMBER_SSD].backlog),
        .ssd_rate = atomic_load(&member->told[YB_MEMBER_SSD].rate),
        .object_backlog = atomic_load(&member->told[YB_MEMBER_OBJECT].backlog),
        .object_rate = atomic_load(&member->told[YB_MEMBER_OBJECT].rate),
        .ssd_base_us = atomic_load(&member->told[YB_MEMBER_SSD].base_us),
        .object_base_us = atomic_load(&member->told[YB_MEMBER_OBJECT].base_us),
        .slot = heart->slot,
        .drained = atomic_load(&vitals->drained) != 0,
        .use = {.count = copy_uses(vitals, uses), .native = uses},
    };

    if (yb_wire_heartbeat_encode(&beat, heart->body, sizeof(heart->body), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    return length;
}

static void
on_heart(struct yb_timer *timer)
{
    struct heart *heart = (struct heart *)((uint8_t *)timer - offsetof(struct heart, timer));
    struct yb_member *member =
        (struct yb_member *)((uint8_t *)heart - offsetof(struct yb_member, heart));
    uint64_t every_ns = heart->lease_ms * YB_NS_PER_MS / BEATS_A_LEASE;

    if (heart->stopping || !heart->beating || heart->calling) {
        return;
    }
    heart->sent_ns = now_of(heart->net);
    heart->hurries = false;
    tell_ways(member);
    heart->call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_HEARTBEAT,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = heart->sent_ns + 2 * every_ns,
        .body = heart->body,
        .body_bytes = (uint32_t)encode_beat(member),
        .reply_body = heart->reply,
        .reply_body_room = sizeof(heart->reply),
        .done = on_beat,
        .owner = member,
    };
    if (yb_peer_call(heart->peer, &heart->call) == YB_OK) {
        heart->calling = true;
    } else {
        heart_rest(member);
    }
}

/* Run the node's order on the heart's loop. */
static void
on_order(struct yb_mail *mail)
{
    struct order *order = (struct order *)mail;
    struct yb_member *member = order->member;
    struct heart *heart = &member->heart;

    heart->stopping = heart->stopping || order->stop;
    heart->beating = order->beat && !heart->stopping;
    heart->incarnation = order->incarnation;
    heart->epoch = order->epoch;
    heart->slot = order->slot;
    heart->lease_ms = order->lease_ms;
    heart->told_state = YB_WIRE_SLOT_STATE_SERVING;
    heart->hurries = false;
    free(order);
    yb_loop_disarm(yb_net_loop(heart->net), &heart->timer);
    if (heart->peer == NULL && heart->beating) {
        if (yb_peer_create(heart->net, &member->facts.directory, (struct yb_id){{0}},
                           &heart->peer) == YB_OK) {
            yb_peer_set_stripe(heart->peer, HEART_STRIPE);
        } else {
            heart->beating = false; /* The lease runs out, and the node registers again. */
        }
    }
    if (heart->stopping && heart->peer != NULL) {
        yb_peer_destroy(&heart->peer); /* A call under way ends, in on_beat(). */
    }
    if (!heart->calling) {
        heart_rest(member);
    }
}

/* ---- on the node's loop: life ---------------------------------------------------------------- */

static void
post_orders(struct yb_task *task)
{
    struct yb_member *member =
        (struct yb_member *)((uint8_t *)task - offsetof(struct yb_member, post_task));
    struct yb_mailbox *mailbox = yb_loop_mailbox(yb_net_loop(member->heart.net));

    while (member->unposted != NULL) {
        struct order *order = member->unposted;
        struct order *next = order->next;

        if (yb_mailbox_try_post(mailbox, &order->mail) != YB_OK) {
            yb_loop_defer(yb_net_loop(member->net), &member->post_task);
            return;
        }
        member->unposted = next;
    }
}

static void
order_heart(struct yb_member *member, bool beat, bool stop)
{
    struct order *order = calloc(1, sizeof(*order));
    struct order **link = &member->unposted;

    YB_ASSERT(order != NULL); /* A node without 100 bytes cannot even say good-bye. */
    yb_mail_init(&order->mail, on_order);
    order->member = member;
    order->beat = beat;
    order->stop = stop;
    order->incarnation = member->incarnation;
    order->epoch = member->epoch;
    order->slot = member->slot;
    order->lease_ms = member->lease_ms;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = order;
    post_orders(&member->post_task);
}

static bool
facts_fit(const struct yb_member_facts *facts)
{
    const struct {
        const char *text;
        size_t max;
    } rows[] = {{facts->name, 63},
                {facts->address, 63},
                {facts->data_address, 63},
                {facts->rack, 31},
                {facts->zone, 31}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t length = strlen(rows[i].text);

        if (length > rows[i].max || !yb_wire_text_valid(rows[i].text, length)) {
            return false;
        }
    }
    return facts->name[0] != '\0' && facts->directory.count > 0;
}

enum yb_status
yb_member_create(const struct yb_member_facts *facts, const struct yb_member_events *events,
                 void *owner, struct yb_member **member_out)
{
    struct yb_member *member;

    if (!facts_fit(facts)) {
        return YB_INVALID;
    }
    member = calloc(1, sizeof(*member));
    if (member == NULL) {
        return YB_NO_MEMORY;
    }
    member->magic = MAGIC;
    member->facts = *facts;
    member->events = events;
    member->owner = owner;
    member->retry_ns = RETRY_MIN_NS;
    member->post_task.run = post_orders;
    member->news.member = member;
    yb_mail_init(&member->news.mail, on_news);
    yb_mail_init(&member->hurry, on_hurry);
    yb_timer_init(&member->timer, on_timer);
    yb_timer_init(&member->heart.timer, on_heart);
    atomic_store(&member->heart_idle, true);
    *member_out = member;
    return YB_OK;
}

void
yb_member_set_address(struct yb_member *member, const char *address)
{
    YB_ASSERT(member->net == NULL);
    member->facts.address = address;
}

void
yb_member_set_name(struct yb_member *member, const char *name)
{
    YB_ASSERT(member->net == NULL);
    member->facts.name = name;
}

enum yb_status
yb_member_start(struct yb_member *member, struct yb_net *net, struct yb_net *heart)
{
    enum yb_status status;

    if (member->facts.address[0] == '\0' || !facts_fit(&member->facts)) {
        return YB_INVALID;
    }
    status = yb_peer_create(net, &member->facts.directory, (struct yb_id){{0}}, &member->peer);
    if (status != YB_OK) {
        return status;
    }
    member->net = net;
    member->heart.net = heart;
    register_now(member);
    return YB_OK;
}

void
yb_member_stop(struct yb_member *member)
{
    if (member->net == NULL || member->stopping) {
        return;
    }
    member->stopping = true;
    member->was_in = false;
    atomic_store(&member->lease_until_ns, 0);
    yb_loop_disarm(yb_net_loop(member->net), &member->timer);
    atomic_store(&member->heart_idle, false); /* Until it has read the order. */
    order_heart(member, false, true);
    yb_peer_destroy(&member->peer);
}

bool
yb_member_idle(const struct yb_member *member)
{
    return member->net == NULL ||
           (member->stopping && !member->calling && member->unposted == NULL &&
            !atomic_load(&member->hurrying) && atomic_load(&member->heart_idle) &&
            !__atomic_load_n(&member->news.waits, __ATOMIC_ACQUIRE));
}

void
yb_member_destroy(struct yb_member **member)
{
    if (*member == NULL) {
        return;
    }
    YB_ASSERT((*member)->magic == MAGIC && yb_member_idle(*member));
    (*member)->magic = 0;
    free(*member);
    *member = NULL;
}

uint64_t
yb_member_lease_until(const struct yb_member *member)
{
    return atomic_load(&member->lease_until_ns);
}

struct yb_member_vitals *
yb_member_vitals(struct yb_member *member)
{
    return &member->vitals;
}

/* Whether a number has doubled, or halved, where less than `floor` is nothing. */
static bool
differs(uint64_t now, uint64_t told, uint64_t floor)
{
    now = now > floor ? now : floor;
    told = told > floor ? told : floor;
    return now / 2 >= told || told / 2 >= now;
}

void
yb_member_ways_shown(struct yb_member *member)
{
    bool changed = false;

    for (uint32_t i = 0; i < YB_MEMBER_WAYS; i++) {
        changed = changed ||
                  differs(atomic_load(&member->vitals.ways[i].backlog),
                          atomic_load(&member->told[i].backlog), BACKLOG_FLOOR) ||
                  differs(atomic_load(&member->vitals.ways[i].rate),
                          atomic_load(&member->told[i].rate), 1) ||
                  differs(atomic_load(&member->vitals.ways[i].base_us),
                          atomic_load(&member->told[i].base_us), BASE_FLOOR_US);
    }
    if (changed && member->state == IN && !member->stopping &&
        !atomic_exchange(&member->hurrying, true) &&
        yb_mailbox_try_post(yb_loop_mailbox(yb_net_loop(member->heart.net)), &member->hurry) !=
            YB_OK) {
        atomic_store(&member->hurrying, false); /* With the next look, or the next heartbeat. */
    }
}

struct yb_peer *
yb_member_directory(struct yb_member *member)
{
    return member->peer;
}
