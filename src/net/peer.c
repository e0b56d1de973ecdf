/* SPDX-License-Identifier: Apache-2.0 */
#include "net/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/conn.h"
#include "net/conn_internal.h"
#include "net/slots.h"

#define PEER_MAGIC     0x70656572u
#define LANE_KINDS     2u
#define BACKOFF_MIN_NS (10 * YB_NS_PER_MS)
#define BACKOFF_MAX_NS YB_NS_PER_S
#define RETRY_MIN_NS   YB_NS_PER_MS
#define RETRY_MAX_NS   (64 * YB_NS_PER_MS)
#define LANE_IDLE_NS   (60 * YB_NS_PER_S)
#define LANE_TURNS_NS  (20 * YB_NS_PER_S) /* A turn for each lane: no second has a tenth of them. */

/* A connection that lived this long shows that its peer is well: the delays start anew. */
#define WELL_NS YB_NS_PER_S

enum lane_state {
    LANE_IDLE,
    LANE_CONNECTING,
    LANE_OPEN,
    LANE_LEAVING, /* Open, and found unused: it waits for its turn to close. */
    LANE_BACKOFF,
};

struct lane {
    struct yb_peer *peer;
    enum yb_wire_lane kind;
    enum yb_class class;
    enum lane_state state;
    struct yb_conn *conn;
    struct yb_call *head; /* Calls in WAITING, in order. */
    struct yb_call *tail;
    struct yb_slots slots;   /* Of the mutations that may be asked for again. */
    struct yb_call *resting; /* Those that let time pass before they ask again; no order. */
    uint32_t waiting;        /* Calls in both. */
    uint32_t flying;         /* Calls that are with the connection. */
    uint64_t backoff_ns;
    uint64_t opened_ns;
    uint64_t used_ns;       /* 0: never. */
    enum yb_status failure; /* Why the last attempt failed; OK: it did not. */
    bool stillborn;         /* BACKOFF: it failed at once, and nobody was told yet. */
    struct yb_timer timer;  /* BACKOFF: try again. OPEN, LEAVING: close if unused. */
};

struct yb_peer {
    uint32_t magic;
    bool destroyed; /* By its owner; freed when the last connection is gone. */
    struct yb_net *net;
    struct yb_address_list addresses;
    uint32_t address_index;
    struct yb_id identity;
    uint32_t stripe;
    uint32_t conn_count;
    bool known;
    struct yb_hello_result result;
    char error[YB_CONN_TEXT_MAX];
    struct lane lanes[LANE_KINDS][YB_CLASS_COUNT];
};

static const struct yb_conn_events conn_events;

static uint64_t
now_of(const struct yb_peer *peer)
{
    return yb_loop_now(peer->net->options.loop);
}

static struct lane *
lane_of(struct yb_call *call)
{
    return &call->peer->lanes[call->lane][call->class];
}

/* Whether calls can be handed to its connection. */
static bool
is_open(const struct lane *lane)
{
    return lane->state == LANE_OPEN || lane->state == LANE_LEAVING;
}

/* Spread `span_ns` by a quarter up or down, so that lanes do not act together. */
static uint64_t
jitter(struct yb_peer *peer, uint64_t span_ns)
{
    const struct yb_net_options *options = &peer->net->options;
    uint16_t dice;

    options->random(options->random_context, &dice, sizeof(dice));
    return span_ns - span_ns / 4 + span_ns / 2 * dice / UINT16_MAX;
}

static void
arm_after(struct lane *lane, uint64_t after_ns)
{
    yb_loop_arm(lane->peer->net->options.loop, &lane->timer,
                yb_deadline_after(now_of(lane->peer), after_ns));
}

static void
free_if_gone(struct yb_peer *peer)
{
    if (peer->destroyed && peer->conn_count == 0) {
        for (uint32_t i = 0; i < LANE_KINDS * YB_CLASS_COUNT; i++) {
            yb_slots_fini(&peer->lanes[i / YB_CLASS_COUNT][i % YB_CLASS_COUNT].slots);
        }
        peer->magic = 0;
        free(peer);
    }
}

/* Keep the peer alive while calls end, since `done` may destroy it. */
static void
hold(struct yb_peer *peer)
{
    peer->conn_count++;
}

static void
let_go(struct yb_peer *peer)
{
    peer->conn_count--;
    free_if_gone(peer);
}

/* ---- calls that wait ----------------------------------------------------------------------- */

static void
enqueue(struct lane *lane, struct yb_call *call)
{
    call->next = NULL;
    call->previous = lane->tail;
    if (lane->tail != NULL) {
        lane->tail->next = call;
    } else {
        lane->head = call;
    }
    lane->tail = call;
    lane->waiting++;
    call->state = YB_CALL_WAITING;
}

/* Put a call where it stands in nobody's way. */
static void
rest(struct lane *lane, struct yb_call *call)
{
    call->next = lane->resting;
    call->previous = NULL;
    if (lane->resting != NULL) {
        lane->resting->previous = call;
    }
    lane->resting = call;
    lane->waiting++;
    call->state = YB_CALL_WAITING;
    call->resting = true;
}

static void
dequeue(struct lane *lane, struct yb_call *call)
{
    if (call->previous != NULL) {
        call->previous->next = call->next;
    } else if (call->resting) {
        lane->resting = call->next;
    } else {
        lane->head = call->next;
    }
    if (call->next != NULL) {
        call->next->previous = call->previous;
    } else if (!call->resting) {
        lane->tail = call->previous;
    }
    lane->waiting--;
    call->resting = false;
    call->state = YB_CALL_IDLE;
}

/* Number a mutation that is sent for the first time. Time is what two lanes have in common that
 * are one after the other the same thing to the peer, perhaps on two threads (P4). */
static enum yb_status
take_slot(struct lane *lane, struct yb_call *call)
{
    struct yb_net *net = lane->peer->net;
    uint64_t now_ns = now_of(lane->peer);
    enum yb_status status;

    if (!call->mutates || call->slotted) {
        return YB_OK;
    }
    status = yb_slots_take(&lane->slots, &call->operation_slot);
    if (status != YB_OK) {
        return status;
    }
    net->operation = net->operation < now_ns ? now_ns : net->operation + 1;
    call->operation = net->operation;
    call->slotted = true;
    return YB_OK;
}

/* It will never be asked for again: what comes next in its slot says so. */
static void
give_slot(struct yb_call *call)
{
    if (call->slotted) {
        call->slotted = false;
        yb_slots_give(&lane_of(call)->slots, call->operation_slot);
    }
}

/* The end of a call: P1. */
static void
conclude(struct yb_call *call)
{
    struct yb_peer *peer = call->peer;
    uint64_t now_ns = now_of(peer);

    yb_loop_disarm(peer->net->options.loop, &call->timer);
    call->state = YB_CALL_IDLE;
    call->took_ns = now_ns - call->began_ns;
    call->sent = call->sent || call->doubted || call->sent_before;
    give_slot(call);
    yb_net_observe_class(peer->net, YB_NET_STAT_CALL_TIME, YB_NET_STAT_CALLS, call->class,
                         call->status, call->took_ns);
    lane_of(call)->used_ns = now_ns;
    call->done(call);
}

/* End a call that waits. */
static void
conclude_waiting(struct yb_call *call, enum yb_status why)
{
    dequeue(lane_of(call), call);
    call->answered = false;
    call->status = call->doubted ? YB_IN_DOUBT : why;
    conclude(call);
}

static void send_waiting(struct lane *lane);

/* End a call that waits because its time is up; those behind it may be able to go. */
static void
give_up_waiting(struct lane *lane, struct yb_call *call, enum yb_status why)
{
    struct yb_peer *peer = lane->peer;

    hold(peer);
    conclude_waiting(call, why);
    send_waiting(lane);
    let_go(peer);
}

static void
on_wait_timer(struct yb_timer *timer)
{
    struct yb_call *call = (struct yb_call *)((uint8_t *)timer - offsetof(struct yb_call, timer));
    struct lane *lane = lane_of(call);
    enum yb_status why = YB_TIMED_OUT;

    if (call->give_up != YB_OK) {
        why = call->give_up;
    } else if (!is_open(lane) && lane->failure != YB_OK) {
        why = lane->failure; /* Says more than that time is up. */
    }
    give_up_waiting(lane, call, why);
}

static void
arm_wait_timer(struct yb_call *call)
{
    yb_timer_init(&call->timer, on_wait_timer);
    yb_loop_arm(call->peer->net->options.loop, &call->timer, call->deadline_ns);
}

/* Which of the calls that wait an end concerns. */
enum whom {
    EVERYBODY,
    HASTY,        /* Those that do not want to wait. */
    HASTY_UNSENT, /* ... and were not sent: the others ask what became of them, if they can. */
};

static bool
concerns(enum whom whom, const struct yb_call *call)
{
    return whom == EVERYBODY || (call->fail_fast && (whom == HASTY || !call->doubted));
}

/* End the calls that are in a list now, or some of them. `done` may submit new calls, which come
 * behind these, and may destroy the peer, which ends all. */
static void
fail_list(struct yb_peer *peer, struct yb_call *call, enum yb_status why, enum whom whom)
{
    uint32_t count = 0;

    for (const struct yb_call *each = call; each != NULL; each = each->next) {
        count++;
    }
    while (count-- > 0 && call != NULL) {
        struct yb_call *next = call->next;

        if (concerns(whom, call)) {
            bool was_destroyed = peer->destroyed;

            conclude_waiting(call, why);
            if (peer->destroyed != was_destroyed) {
                return;
            }
        }
        call = next;
    }
}

static void
fail_waiting(struct lane *lane, enum yb_status why, enum whom whom)
{
    fail_list(lane->peer, lane->head, why, whom);
    fail_list(lane->peer, lane->resting, why, whom);
}

/* ---- sending ------------------------------------------------------------------------------ */

static void on_call_finished(struct yb_call *call);

/* Hand a call to the open connection; it is in no queue. */
static enum yb_status
fly(struct lane *lane, struct yb_call *call)
{
    bool first = !call->slotted;
    enum yb_status status;

    call->finished = on_call_finished;
    status = take_slot(lane, call);
    if (status != YB_OK) {
        return status;
    }
    status = yb_conn_call(lane->conn, call);
    if (status != YB_OK) {
        if (first) { /* Nobody has heard of it. */
            give_slot(call);
            call->operation = 0;
        }
        return status;
    }
    lane->flying++;
    lane->used_ns = now_of(lane->peer);
    if (!call->doubted) { /* If its answer is lost, this is who may have applied it. */
        const struct yb_hello_result *result = yb_conn_peer(lane->conn);

        call->doubt_identity = result->identity;
        call->doubt_incarnation = result->incarnation;
    }
    return YB_OK;
}

/* An operation in doubt may only ask the incarnation that can remember it. */
static bool
may_ask(const struct lane *lane, const struct yb_call *call)
{
    const struct yb_hello_result *result = yb_conn_peer(lane->conn);

    return !call->doubted || (result->incarnation == call->doubt_incarnation &&
                              yb_id_equal(result->identity, call->doubt_identity));
}

/* Send what waits, until the connection has no room. */
static void
send_waiting(struct lane *lane)
{
    while (lane->head != NULL && is_open(lane)) {
        struct yb_call *call = lane->head;
        enum yb_status status;

        if (call->give_up != YB_OK || !may_ask(lane, call)) {
            conclude_waiting(call, call->give_up);
            continue;
        }
        dequeue(lane, call);
        yb_loop_disarm(lane->peer->net->options.loop, &call->timer);
        status = fly(lane, call);
        if (status == YB_OK) {
            continue;
        }
        arm_wait_timer(call);
        call->next = lane->head; /* Back to where it was. */
        call->previous = NULL;
        if (lane->head != NULL) {
            lane->head->previous = call;
        } else {
            lane->tail = call;
        }
        lane->head = call;
        lane->waiting++;
        call->state = YB_CALL_WAITING;
        if (status == YB_AGAIN || status == YB_CLOSED) {
            return;
        }
        conclude_waiting(call, status);
    }
}

static void lane_connect(struct lane *lane);

/* The lane has calls that wait and nothing on its way to serve them. */
static void
lane_need(struct lane *lane)
{
    if (lane->state == LANE_IDLE && !lane->peer->destroyed) {
        lane_connect(lane);
    }
}

/* Ask again after a while: the answer was that an earlier attempt is still running. */
static void
on_retry_timer(struct yb_timer *timer)
{
    struct yb_call *call = (struct yb_call *)((uint8_t *)timer - offsetof(struct yb_call, timer));
    struct lane *lane = lane_of(call);

    if (call->give_up != YB_OK || call->deadline_ns <= now_of(call->peer)) {
        give_up_waiting(lane, call, call->give_up != YB_OK ? call->give_up : YB_TIMED_OUT);
        return;
    }
    dequeue(lane, call);
    enqueue(lane, call);
    arm_wait_timer(call);
    if (is_open(lane)) {
        send_waiting(lane);
    } else {
        lane_need(lane);
    }
}

static void
retry_later(struct lane *lane, struct yb_call *call)
{
    uint64_t at_ns;

    call->retry_ns = call->retry_ns == 0 ? RETRY_MIN_NS : call->retry_ns * 2;
    call->retry_ns = call->retry_ns > RETRY_MAX_NS ? RETRY_MAX_NS : call->retry_ns;
    at_ns = yb_deadline_after(now_of(lane->peer), call->retry_ns);
    rest(lane, call);
    yb_timer_init(&call->timer, on_retry_timer);
    yb_loop_arm(lane->peer->net->options.loop, &call->timer,
                at_ns < call->deadline_ns ? at_ns : call->deadline_ns);
}

/* A connection is done with a call: is that its end? */
static void
on_call_finished(struct yb_call *call)
{
    struct yb_peer *peer = call->peer;
    struct lane *lane = lane_of(call);
    bool lost = !call->answered && call->give_up == YB_OK;

    YB_ASSERT(lane->flying > 0);
    lane->flying--;
    call->sent_before = call->sent_before || call->sent;
    if (call->mutates && call->sent && (!call->answered || call->undecided)) {
        call->doubted = true;
    }
    if (call->answered && call->undecided && call->status != YB_AGAIN) {
        call->answered = false; /* The peer forgot it, and so can say nothing about it. */
        call->status = YB_IN_DOUBT;
        conclude(call);
        return;
    }
    if (call->answered && (call->undecided || (call->doubted && call->status == YB_AGAIN))) {
        call->answered = false;
        if (call->give_up == YB_OK && !peer->destroyed) {
            retry_later(lane, call);
            return;
        }
    }
    if (!call->answered && call->doubted) {
        call->status = YB_IN_DOUBT;
    }
    if (!lost || peer->destroyed || call->deadline_ns <= now_of(peer) ||
        concerns(HASTY_UNSENT, call)) {
        if (lost && peer->destroyed && !call->sent && !call->doubted) {
            call->status = YB_CLOSED;
        }
        conclude(call);
        return;
    }
    yb_net_count(peer->net, YB_NET_STAT_RETRIES, 1);
    enqueue(lane, call);
    arm_wait_timer(call);
}

/* ---- connections -------------------------------------------------------------------------- */

/* Wait before the next attempt, or rest if nobody waits. */
static void
lane_back_off(struct lane *lane)
{
    if (lane->waiting == 0 || lane->peer->destroyed) {
        lane->state = LANE_IDLE;
        yb_loop_disarm(lane->peer->net->options.loop, &lane->timer);
        return;
    }
    lane->state = LANE_BACKOFF;
    arm_after(lane, jitter(lane->peer, lane->backoff_ns));
    lane->backoff_ns =
        lane->backoff_ns * 2 > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : lane->backoff_ns * 2;
}

static bool
is_final(enum yb_status status)
{
    return status == YB_DENIED || status == YB_VERSION || status == YB_PROTOCOL ||
           status == YB_INVALID;
}

/* An attempt has failed, or an open connection was lost. */
static void
lane_lost(struct lane *lane, enum yb_status status, bool was_open)
{
    status = status == YB_OK ? YB_CLOSED : status; /* This side has drained it. */
    lane->failure = status;
    lane->state = LANE_BACKOFF; /* A call that is made in `done` below waits. */
    lane->peer->address_index = (lane->peer->address_index + 1) % lane->peer->addresses.count;
    fail_waiting(lane, status, is_final(status) ? EVERYBODY : was_open ? HASTY_UNSENT : HASTY);
    lane_back_off(lane);
}

static void
lane_connect(struct lane *lane)
{
    struct yb_peer *peer = lane->peer;
    const struct yb_conn_target target = {
        .address = peer->addresses.items[peer->address_index],
        .lane = lane->kind,
        .lane_class = lane->class,
        .stripe = peer->stripe,
    };
    enum yb_status status;

    lane->state = LANE_CONNECTING;
    status = yb_conn_connect(peer->net, &target, &conn_events, lane, &lane->conn);
    if (status == YB_OK) {
        peer->conn_count++;
        peer->net->lane_count++;
        return;
    }
    /* Not now: a call that is being submitted must not end inside its submit. */
    (void)snprintf(peer->error, sizeof(peer->error), "%s", yb_status_text(status));
    lane->failure = status;
    lane->stillborn = true;
    lane->state = LANE_BACKOFF;
    arm_after(lane, 0);
}

/* Whatever lies unused since the same moment closes one after the other: others may be about to
 * use it again, and would find all gone; and a port that is closed is not free for a while. */
static uint64_t
take_turn(struct yb_net *net, uint64_t now_ns)
{
    uint64_t turn_ns = net->lane_turn_ns > now_ns ? net->lane_turn_ns : now_ns;

    YB_ASSERT(net->lane_count > 0);
    net->lane_turn_ns = turn_ns + LANE_TURNS_NS / net->lane_count;
    return turn_ns;
}

/* Close an open lane if nobody uses it and it is its turn; else look again later. */
static void
close_unused(struct lane *lane)
{
    uint64_t now_ns = now_of(lane->peer);
    uint64_t turn_ns = now_ns;
    struct yb_conn *conn = lane->conn;

    if (lane->waiting > 0 || lane->flying > 0 || now_ns - lane->used_ns < LANE_IDLE_NS) {
        lane->state = LANE_OPEN;
        arm_after(lane, jitter(lane->peer, LANE_IDLE_NS));
        return;
    }
    if (lane->state == LANE_OPEN) {
        turn_ns = take_turn(lane->peer->net, now_ns);
    }
    if (turn_ns > now_ns) {
        lane->state = LANE_LEAVING;
        yb_loop_arm(lane->peer->net->options.loop, &lane->timer, turn_ns);
        return;
    }
    lane->conn = NULL;
    lane->state = LANE_IDLE;
    yb_conn_drain(conn);
}

static void
on_lane_timer(struct yb_timer *timer)
{
    struct lane *lane = (struct lane *)((uint8_t *)timer - offsetof(struct lane, timer));

    if (lane->state == LANE_BACKOFF) {
        struct yb_peer *peer = lane->peer;

        hold(peer);
        if (lane->stillborn) {
            lane->stillborn = false;
            lane_lost(lane, lane->failure, false);
        } else {
            lane->state = LANE_IDLE;
            if (lane->waiting > 0) {
                lane_need(lane);
            }
        }
        let_go(peer);
        return;
    }
    if (is_open(lane)) {
        close_unused(lane);
    }
}

/* Who is meant and who answers are two: tell both, for one of them is in somebody's list. */
static void
refuse_other(const struct yb_peer *peer, struct yb_conn *conn, struct yb_id found)
{
    char wanted_text[33], found_text[33], text[256];

    yb_id_format(peer->identity, wanted_text);
    yb_id_format(found, found_text);
    (void)snprintf(text, sizeof(text),
                   "another process answers at this address: %s, wanted was %s; it was restarted, "
                   "or the address is not its own",
                   found_text, wanted_text);
    yb_conn_close(conn, YB_STALE, text);
}

static void
on_open(void *owner, struct yb_conn *conn)
{
    struct lane *lane = owner;
    struct yb_peer *peer = lane->peer;
    const struct yb_hello_result *result = yb_conn_peer(conn);

    if (!yb_id_is_none(peer->identity) && !yb_id_equal(peer->identity, result->identity)) {
        refuse_other(peer, conn, result->identity);
        return;
    }
    peer->result = *result;
    peer->known = true;
    lane->state = LANE_OPEN;
    lane->failure = YB_OK;
    lane->opened_ns = now_of(peer);
    lane->used_ns = lane->opened_ns;
    arm_after(lane, jitter(peer, LANE_IDLE_NS));
    send_waiting(lane);
}

static void
on_room(void *owner, struct yb_conn *conn)
{
    struct lane *lane = owner;

    if (lane->conn == conn) {
        send_waiting(lane);
    }
}

/* The peer is stopping: what is there may end, what comes goes to a new connection. */
static void
on_goaway(void *owner, struct yb_conn *conn)
{
    struct lane *lane = owner;

    if (lane->conn == conn) {
        lane->conn = NULL;
        lane->state = LANE_IDLE;
        lane->failure = YB_REFUSED;
        lane_back_off(lane);
    }
    yb_conn_drain(conn);
}

/* What the end of a connection means for calls that wait for another. What we are is wrong for
 * the peer only if it said so in the handshake; and one call's cancellation is not another's. */
static enum yb_status
failure_of(const struct yb_conn_end *end)
{
    bool own = is_final(end->status) || end->status == YB_CANCELLED;

    return end->was_open && own ? YB_PEER_LOST : end->status;
}

static void
on_closed(void *owner, struct yb_conn *conn, const struct yb_conn_end *end)
{
    struct lane *lane = owner;
    struct yb_peer *peer = lane->peer;

    if (end->status != YB_OK) {
        (void)snprintf(peer->error, sizeof(peer->error), "%s", end->text);
    }
    if (lane->conn == conn) {
        bool was_well = end->was_open && now_of(peer) - lane->opened_ns >= WELL_NS;

        lane->conn = NULL;
        if (was_well) {
            lane->backoff_ns = BACKOFF_MIN_NS;
        }
        lane_lost(lane, failure_of(end), end->was_open);
    } else if (is_open(lane)) {
        send_waiting(lane); /* Calls of a connection that had gone its own way. */
    } else if (lane->waiting > 0) {
        lane_need(lane);
    }
    peer->net->lane_count--;
    let_go(peer); /* What the connection held. */
}

static const struct yb_conn_events conn_events = {
    .on_open = on_open,
    .on_room = on_room,
    .on_goaway = on_goaway,
    .on_closed = on_closed,
};

/* ---- the peer ------------------------------------------------------------------------------- */

enum yb_status
yb_peer_create(struct yb_net *net, const struct yb_address_list *addresses, struct yb_id identity,
               struct yb_peer **peer_out)
{
    struct yb_peer *peer;

    if (addresses->count == 0 || addresses->count > YB_ADDRESS_CANDIDATES_MAX) {
        return YB_INVALID;
    }
    for (uint32_t i = 0; i < addresses->count; i++) {
        if (!yb_address_connectable(&addresses->items[i])) {
            return YB_INVALID;
        }
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return YB_NO_MEMORY;
    }
    peer->magic = PEER_MAGIC;
    peer->net = net;
    peer->addresses = *addresses;
    peer->identity = identity;
    for (uint32_t kind = 0; kind < LANE_KINDS; kind++) {
        for (uint32_t class = 0; class < YB_CLASS_COUNT; class ++) {
            struct lane *lane = &peer->lanes[kind][class];

            lane->peer = peer;
            lane->kind = (enum yb_wire_lane)kind;
            lane->class = (enum yb_class) class;
            lane->backoff_ns = BACKOFF_MIN_NS;
            yb_timer_init(&lane->timer, on_lane_timer);
        }
    }
    *peer_out = peer;
    return YB_OK;
}

void
yb_peer_destroy(struct yb_peer **peer_ref)
{
    struct yb_peer *peer = *peer_ref;

    YB_ASSERT_OBJ(peer, PEER_MAGIC);
    YB_ASSERT(!peer->destroyed);
    *peer_ref = NULL;
    peer->destroyed = true;
    hold(peer);
    for (uint32_t i = 0; i < LANE_KINDS * YB_CLASS_COUNT; i++) {
        struct lane *lane = &peer->lanes[i / YB_CLASS_COUNT][i % YB_CLASS_COUNT];

        yb_loop_disarm(peer->net->options.loop, &lane->timer);
        fail_waiting(lane, YB_CLOSED, false);
    }
    /* Also those that the lanes have let go, since calls may fly on them. */
    for (struct yb_conn *conn = peer->net->conns; conn != NULL; conn = conn->next) {
        if (conn->events == &conn_events && ((struct lane *)conn->owner)->peer == peer) {
            yb_conn_close(conn, YB_CLOSED, "the peer was given up");
        }
    }
    let_go(peer);
}

enum yb_status
yb_peer_call(struct yb_peer *peer, struct yb_call *call)
{
    struct lane *lane;

    YB_ASSERT_OBJ(peer, PEER_MAGIC);
    YB_ASSERT(call->done != NULL && call->lane < LANE_KINDS && call->class < YB_CLASS_COUNT);
    if (peer->destroyed) {
        return YB_CLOSED;
    }
    call->peer = peer;
    call->began_ns = now_of(peer);
    call->operation = 0;
    call->operation_slot = 0;
    call->slotted = false;
    call->doubted = false;
    call->resting = false;
    call->sent = false;
    call->sent_before = false;
    call->answered = false;
    call->retry_ns = 0;
    call->give_up = YB_OK;
    if (call->deadline_ns <= call->began_ns) {
        return YB_TIMED_OUT;
    }
    lane = lane_of(call);
    if (is_open(lane) && lane->head == NULL) {
        enum yb_status status = fly(lane, call);

        if (status != YB_AGAIN && status != YB_CLOSED) {
            return status;
        }
    }
    if (lane->waiting >= peer->net->options.limits.calls_waiting_max) {
        return YB_AGAIN;
    }
    enqueue(lane, call);
    arm_wait_timer(call);
    lane_need(lane);
    return YB_OK;
}

void
yb_peer_cancel(struct yb_peer *peer, struct yb_call *call)
{
    YB_ASSERT(call->peer == peer && call->state != YB_CALL_IDLE);
    if (call->conn != NULL) {
        yb_conn_cancel(call->conn, call);
    } else if (call->give_up == YB_OK) {
        call->give_up = YB_CANCELLED;
        yb_loop_arm(peer->net->options.loop, &call->timer, now_of(peer)); /* P1 */
    }
}

const struct yb_hello_result *
yb_peer_result(const struct yb_peer *peer)
{
    return peer->known ? &peer->result : NULL;
}

uint64_t
yb_peer_trip_ns(const struct yb_peer *peer)
{
    uint64_t half_ns = peer->known ? peer->result.clock_error_ns : UINT64_MAX;

    return half_ns <= UINT64_MAX / 2 ? 2 * half_ns : 0;
}

void
yb_peer_set_stripe(struct yb_peer *peer, uint32_t stripe)
{
    YB_ASSERT(peer->conn_count == 0 && stripe < YB_STRIPES_MAX);
    peer->stripe = stripe;
}

bool
yb_peer_lane_used(const struct yb_peer *peer, enum yb_wire_lane kind, enum yb_class class)
{
    return peer->lanes[kind][class].used_ns != 0;
}

const char *
yb_peer_error(const struct yb_peer *peer)
{
    return peer->error;
}

uint32_t
yb_peer_conn_count(const struct yb_peer *peer)
{
    return peer->conn_count;
}
