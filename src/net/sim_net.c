/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections: packets, acknowledgements, loss, resets.
 *
 * Bytes, ends and answers of one way arrive in the order in which they were sent (N2): each
 * arrives no earlier than the one before. Resets do not wait in that line when they tell of an
 * abort, because an abort discards what was not sent yet. A lost piece is a late piece; a lost
 * reset is lost, as in life, and the peer learns of it when it next sends.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/sim_internal.h"

#define LOSSES_MAX 6u

/* ---- pieces -------------------------------------------------------------------------- */

struct sim_piece *
yb_sim_piece_create(struct yb_sim *sim, uint32_t length)
{
    struct sim_piece *piece = yb_sim_allocate(sizeof(*piece) + length);

    piece->length = length;
    sim->held_bytes += length;
    return piece;
}

static void
piece_free(struct yb_sim *sim, struct sim_piece *piece)
{
    YB_ASSERT(sim->held_bytes >= piece->length - piece->offset);
    sim->held_bytes -= piece->length - piece->offset;
    free(piece);
}

static void
list_append(struct sim_piece_list *list, struct sim_piece *piece)
{
    piece->next = NULL;
    *list->tail = piece;
    list->tail = &piece->next;
}

static struct sim_piece *
list_pop(struct sim_piece_list *list)
{
    struct sim_piece *piece = list->head;

    if (piece != NULL) {
        list->head = piece->next;
        if (list->head == NULL) {
            list->tail = &list->head;
        }
    }
    return piece;
}

static void
list_clear(struct yb_sim *sim, struct sim_piece_list *list)
{
    struct sim_piece *piece;

    while ((piece = list_pop(list)) != NULL) {
        piece_free(sim, piece);
    }
}

/* ---- the path ------------------------------------------------------------------------ */

static const struct yb_sim_link *
link_of(const struct sim_connection *connection)
{
    return yb_sim_link_of(connection->sim, connection->ends[0].host, connection->ends[1].host);
}

static bool
is_blocked(const struct sim_connection *connection, uint32_t way)
{
    const struct yb_sim_host *from = connection->ends[way].host;
    const struct yb_sim_host *to = connection->ends[!way].host;

    return connection->black_hole || to->down || connection->sim->blocked[from->index][to->index];
}

/* Draw how long a packet travels that cannot be lost. */
static uint64_t
latency_ns(struct sim_connection *connection, uint32_t way)
{
    const struct yb_sim_link *link = link_of(connection);
    uint64_t jitter_ns = 0;

    if (link->jitter_ns > 0) {
        jitter_ns = yb_sim_random_below(connection->sim, link->jitter_ns + 1);
    }
    return link->delay_ns + connection->ways[way].extra_delay_ns + jitter_ns;
}

/* Draw when a piece arrives: behind those before it, and later for each time it is lost. */
static uint64_t
piece_arrival_ns(struct sim_connection *connection, uint32_t index, uint32_t length)
{
    const struct yb_sim_link *link = link_of(connection);
    struct yb_sim *sim = connection->sim;
    struct sim_way *way = &connection->ways[index];
    uint64_t when_ns = sim->now_ns;

    if (link->bytes_per_s > 0) {
        if (way->wire_free_ns > when_ns) {
            when_ns = way->wire_free_ns;
        }
        when_ns += length * YB_NS_PER_S / link->bytes_per_s;
        way->wire_free_ns = when_ns;
    }
    when_ns += latency_ns(connection, index);
    for (uint32_t i = 0; i < LOSSES_MAX && yb_sim_chance(sim, link->drop_ppm); i++) {
        when_ns += link->retransmit_ns << i;
    }
    if (when_ns < way->last_arrival_ns) {
        when_ns = way->last_arrival_ns; /* N2 */
    }
    way->last_arrival_ns = when_ns;
    return when_ns;
}

static void
push_after(struct sim_connection *connection, enum sim_event_kind kind, uint32_t way,
           uint64_t delay_ns)
{
    yb_sim_push(connection->sim, (struct sim_event){.when_ns = connection->sim->now_ns + delay_ns,
                                                    .kind = (uint8_t)kind,
                                                    .way = (uint8_t)way,
                                                    .connection = connection});
}

/* ---- ends ---------------------------------------------------------------------------- */

static void
wake_end(struct sim_connection *connection, uint32_t end)
{
    if (connection->ends[end].stream != NULL) {
        yb_sim_stream_ready(connection->ends[end].stream);
    }
}

static void
abandon_way(struct sim_connection *connection, uint32_t way)
{
    connection->ways[way].abandoned = true;
    connection->ways[way].gap |= connection->ways[way].held.head != NULL;
    list_clear(connection->sim, &connection->ways[way].held);
}

/* Settle what a connect comes to. */
static void
answer_connect(struct sim_connection *connection, enum yb_status status)
{
    struct sim_stream *stream = connection->ends[0].stream;

    YB_ASSERT(connection->ends[0].state == END_OPENING);
    YB_ASSERT(stream != NULL && !stream->connected);
    connection->ends[0].state = END_OPEN;
    stream->connected = true;
    stream->connect_status = status;
    yb_sim_stream_ready(stream);
}

/* Let an end learn that the connection is dead. `status` is for a connect under way. */
static void
break_end(struct sim_connection *connection, uint32_t index, enum yb_status status)
{
    struct sim_end *end = &connection->ends[index];

    if (end->state == END_GONE || end->state == END_NONE || end->broken) {
        return;
    }
    end->broken = true;
    abandon_way(connection, index);
    if (link_of(connection)->reset_drops_unread) {
        list_clear(connection->sim, &connection->ways[!index].ready);
    }
    if (end->state == END_OPENING) {
        answer_connect(connection, status);
    }
    wake_end(connection, index);
}

static void
cut(struct sim_connection *connection)
{
    break_end(connection, 0, YB_REFUSED);
    break_end(connection, 1, YB_REFUSED);
}

/* Tell the peer of end `from` that the connection is void there. */
static void
send_reset(struct sim_connection *connection, uint32_t from, bool in_order)
{
    const struct sim_end *peer = &connection->ends[!from];
    struct yb_sim *sim = connection->sim;
    uint64_t when_ns;

    if (peer->state == END_GONE || peer->state == END_NONE || peer->broken ||
        yb_sim_chance(sim, link_of(connection)->drop_ppm)) {
        return;
    }
    when_ns = sim->now_ns + latency_ns(connection, from);
    if (in_order && when_ns < connection->ways[from].last_arrival_ns) {
        when_ns = connection->ways[from].last_arrival_ns;
    }
    push_after(connection, SIM_RESET, from, when_ns - sim->now_ns);
}

static bool
is_over(const struct sim_end *end)
{
    return end->state == END_GONE || end->state == END_NONE;
}

static void
free_if_forgotten(struct sim_connection *connection)
{
    if (!connection->listed && connection->event_count == 0) {
        connection->magic = 0;
        free(connection);
    }
}

/* Take a connection without ends out of the world; the last event that names it frees it. */
static void
retire(struct sim_connection *connection)
{
    struct yb_sim *sim = connection->sim;

    YB_ASSERT(connection->listed && sim->connection_count > 0);
    for (uint32_t i = 0; i < 2; i++) {
        list_clear(sim, &connection->ways[i].held);
        list_clear(sim, &connection->ways[i].ready);
    }
    if (connection->previous != NULL) {
        connection->previous->next = connection->next;
    } else {
        sim->connections = connection->next;
    }
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
    connection->listed = false;
    sim->connection_count--;
    free_if_forgotten(connection);
}

void
yb_sim_end_close(struct sim_connection *connection, uint32_t index, enum yb_sim_death how)
{
    struct sim_end *end = &connection->ends[index];
    struct sim_way *incoming = &connection->ways[!index];
    bool told = end->state != END_OPENING && !end->broken;

    YB_ASSERT_OBJ(connection, YB_SIM_CONNECTION_MAGIC);
    YB_ASSERT(!is_over(end));
    if (how == YB_SIM_DEATH_FLUSH && incoming->ready.head != NULL &&
        link_of(connection)->close_unread_resets) {
        how = YB_SIM_DEATH_RESET;
    }
    list_clear(connection->sim, &incoming->ready);
    if (told && how == YB_SIM_DEATH_FLUSH) {
        yb_sim_send(connection, index, yb_sim_piece_create(connection->sim, 0));
    } else {
        abandon_way(connection, index);
    }
    if (told && how == YB_SIM_DEATH_RESET) {
        send_reset(connection, index, false);
    }
    end->state = END_GONE;
    end->process = NULL;
    end->stream = NULL;
    if (is_over(&connection->ends[!index])) {
        retire(connection);
    }
}

/* ---- bytes --------------------------------------------------------------------------- */

static uint64_t
give_up_after_ns(const struct sim_connection *connection, uint32_t end)
{
    uint64_t own_ns = connection->ends[end].give_up_ns;

    return own_ns > 0 ? own_ns : link_of(connection)->give_up_ns;
}

uint32_t
yb_sim_piece_bytes(struct sim_connection *connection, uint32_t end, size_t wanted)
{
    const struct yb_sim_link *link = link_of(connection);
    const struct sim_way *way = &connection->ways[end];
    uint64_t unread = way->sent - way->credit;
    uint64_t room = unread < link->window_bytes ? link->window_bytes - unread : 0; /* N3 */

    room = room < link->piece_bytes_max ? room : link->piece_bytes_max;
    room = room < wanted ? room : wanted;
    if (link->pieces_random && room > 0) {
        room = 1 + yb_sim_random_below(connection->sim, room);
    }
    if (way->sent < link->cut_after_bytes && room > link->cut_after_bytes - way->sent) {
        room = link->cut_after_bytes - way->sent;
    }
    return (uint32_t)room;
}

void
yb_sim_send(struct sim_connection *connection, uint32_t end, struct sim_piece *piece)
{
    struct yb_sim *sim = connection->sim;
    struct sim_way *way = &connection->ways[end];

    YB_ASSERT(!connection->ends[end].broken);
    if (way->sent == way->acked) {
        way->unacked_since_ns = sim->now_ns;
    }
    way->sent += piece->length;
    yb_sim_push(sim, (struct sim_event){.when_ns = piece_arrival_ns(connection, end, piece->length),
                                        .kind = piece->length > 0 ? SIM_BYTES : SIM_END,
                                        .way = (uint8_t)end,
                                        .connection = connection,
                                        .piece = piece});
    if (piece->length > 0 && !way->give_up_armed) {
        way->give_up_armed = true;
        push_after(connection, SIM_GIVE_UP, end, give_up_after_ns(connection, end));
    }
}

/* Tell the writer of a way what arrived and what was read. One acknowledgement travels at a
 * time; what happens meanwhile goes with the next. */
static void
send_ack(struct sim_connection *connection, uint32_t index)
{
    struct sim_way *way = &connection->ways[index];

    if (connection->ends[index].state == END_GONE) {
        return;
    }
    if (way->ack_travelling) {
        way->ack_wanted = true;
        return;
    }
    way->ack_travelling = true;
    yb_sim_push(connection->sim,
                (struct sim_event){
                    .when_ns = connection->sim->now_ns + latency_ns(connection, !index),
                    .kind = SIM_ACK,
                    .way = (uint8_t)index,
                    .connection = connection,
                    .arrived = way->arrived,
                    .consumed = way->consumed,
                });
}

static void
ack_arrived(struct sim_connection *connection, const struct sim_event *event)
{
    struct sim_way *way = &connection->ways[event->way];
    bool wanted = way->ack_wanted;

    way->ack_travelling = false;
    way->ack_wanted = false;
    if (is_blocked(connection, !event->way)) {
        return; /* The next arrival, or the release of the way, sends another. */
    }
    YB_ASSERT(event->arrived >= way->acked && event->arrived <= way->sent);
    YB_ASSERT(event->consumed >= way->credit && event->consumed <= event->arrived);
    way->acked = event->arrived;
    way->credit = event->consumed;
    way->unacked_since_ns = connection->sim->now_ns;
    wake_end(connection, event->way);
    if (wanted) {
        send_ack(connection, event->way);
    }
}

/* Let chance or the link's limit end the connection at this piece. */
static void
suffer(struct sim_connection *connection, const struct sim_way *way)
{
    const struct yb_sim_link *link = link_of(connection);

    if (link->cut_after_bytes > 0 && way->arrived >= link->cut_after_bytes && !connection->cut) {
        connection->cut = true;
        cut(connection);
    } else if (yb_sim_chance(connection->sim, link->cut_ppm)) {
        cut(connection);
    } else if (yb_sim_chance(connection->sim, link->black_hole_ppm)) {
        connection->black_hole = true;
    }
}

/* Hand a piece to the kernel of the end it was sent to. Consumes it. */
static void
deliver_piece(struct sim_connection *connection, uint32_t index, struct sim_piece *piece)
{
    struct sim_way *way = &connection->ways[index];
    struct sim_end *end = &connection->ends[!index];

    if (end->state == END_OPENING) {
        answer_connect(connection, YB_OK); /* The answer itself was lost. */
    }
    if (is_over(end) || end->broken) {
        piece_free(connection->sim, piece);
        send_reset(connection, !index, true);
        return;
    }
    YB_ASSERT(!end->ended);
    if (piece->length == 0) {
        end->ended = true;
        piece_free(connection->sim, piece);
        wake_end(connection, !index);
        return;
    }
    way->arrived += piece->length;
    YB_ASSERT(way->arrived <= way->sent);
    list_append(&way->ready, piece);
    send_ack(connection, index);
    wake_end(connection, !index);
    suffer(connection, way);
}

static void
piece_arrived(struct sim_connection *connection, uint32_t index, struct sim_piece *piece)
{
    struct sim_way *way = &connection->ways[index];

    if (!is_blocked(connection, index) && way->held.head == NULL && !way->gap) {
        deliver_piece(connection, index, piece);
    } else if (way->abandoned) {
        way->gap = true;
        piece_free(connection->sim, piece);
    } else {
        list_append(&way->held, piece);
    }
}

bool
yb_sim_readable(const struct sim_connection *connection, uint32_t end)
{
    return connection->ways[!end].ready.head != NULL;
}

size_t
yb_sim_receive(struct sim_connection *connection, uint32_t end, const struct iovec *iov,
               uint32_t count, size_t limit)
{
    struct yb_sim *sim = connection->sim;
    struct sim_way *way = &connection->ways[!end];
    size_t taken = 0;
    size_t skip = 0; /* Bytes of the current vector that are filled. */

    YB_ASSERT_OBJ(connection, YB_SIM_CONNECTION_MAGIC);
    if (link_of(connection)->pieces_random && way->arrived > way->consumed) {
        uint64_t part = 1 + yb_sim_random_below(sim, way->arrived - way->consumed);

        limit = part < limit ? (size_t)part : limit;
    }
    for (uint32_t i = 0; i < count && taken < limit && way->ready.head != NULL;) {
        struct sim_piece *piece = way->ready.head;
        size_t length = piece->length - piece->offset;

        length = length < limit - taken ? length : limit - taken;
        length = length < iov[i].iov_len - skip ? length : iov[i].iov_len - skip;
        if (length > 0) {
            memcpy((uint8_t *)iov[i].iov_base + skip, piece->bytes + piece->offset, length);
        }
        piece->offset += (uint32_t)length;
        sim->held_bytes -= length;
        taken += length;
        skip += length;
        if (skip == iov[i].iov_len) {
            skip = 0;
            i++;
        }
        if (piece->offset == piece->length) {
            piece_free(sim, list_pop(&way->ready));
        }
    }
    way->consumed += taken;
    if (taken > 0 && !connection->ends[end].broken) {
        send_ack(connection, !end);
    }
    return taken;
}

/* ---- connecting ---------------------------------------------------------------------- */

static void
send_connect(struct sim_connection *connection)
{
    if (!connection->silent && !yb_sim_chance(connection->sim, link_of(connection)->drop_ppm)) {
        push_after(connection, SIM_CONNECT, 0, latency_ns(connection, 0));
    }
}

static void
arm_retry(struct sim_connection *connection)
{
    uint64_t left_ns = connection->connect_deadline_ns - connection->sim->now_ns;

    push_after(connection, SIM_RETRY, 0,
               connection->retry_ns < left_ns ? connection->retry_ns : left_ns);
    connection->retry_ns *= 2;
}

static void
retry_connect(struct sim_connection *connection)
{
    if (connection->sim->now_ns >= connection->connect_deadline_ns) {
        break_end(connection, 0, YB_TIMED_OUT);
        return;
    }
    send_connect(connection);
    arm_retry(connection);
}

struct sim_connection *
yb_sim_connection_open(struct sim_stream *stream, struct yb_sim_host *host,
                       const struct yb_address *address)
{
    struct yb_sim_process *process = ((struct sim_io *)stream->base.io)->process;
    struct yb_sim *sim = process->host->sim;
    uint16_t port = yb_sim_host_free_port(process->host);
    struct sim_connection *connection;
    const struct yb_sim_link *link;

    if (port == 0) {
        return NULL;
    }
    connection = yb_sim_allocate(sizeof(*connection));
    connection->magic = YB_SIM_CONNECTION_MAGIC;
    connection->id = ++sim->connection_id;
    connection->sim = sim;
    connection->ends[0] = (struct sim_end){
        .state = END_OPENING,
        .host = process->host,
        .process = process,
        .stream = stream,
        .address = yb_address_is_loopback(address) ? *address : process->host->address,
    };
    connection->ends[0].address.port = port;
    connection->ends[1] = (struct sim_end){.host = host, .address = *address};
    link = link_of(connection);
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_way *way = &connection->ways[i];

        way->held.tail = &way->held.head;
        way->ready.tail = &way->ready.head;
        if (link->connection_jitter_ns > 0) {
            way->extra_delay_ns = yb_sim_random_below(sim, link->connection_jitter_ns + 1);
        }
    }
    connection->silent = yb_sim_chance(sim, link->connect_silent_ppm);
    connection->retry_ns = link->connect_retry_ns;
    connection->next = sim->connections;
    if (sim->connections != NULL) {
        sim->connections->previous = connection;
    }
    sim->connections = connection;
    connection->listed = true;
    sim->connection_count++;
    return connection;
}

void
yb_sim_connection_start(struct sim_connection *connection, uint64_t timeout_ns)
{
    if (timeout_ns == 0) {
        timeout_ns = link_of(connection)->connect_timeout_ns;
    }
    connection->connect_deadline_ns = yb_deadline_after(connection->sim->now_ns, timeout_ns);
    send_connect(connection);
    arm_retry(connection);
}

/* Put a new connection into its listener's queue, and tell who connected. */
static void
connect_arrived(struct sim_connection *connection)
{
    struct sim_end *end = &connection->ends[1];
    struct yb_listener *listener;

    if (is_blocked(connection, 0)) {
        return;
    }
    if (end->state == END_GONE) {
        send_reset(connection, 1, false);
        return;
    }
    if (end->state == END_NONE) {
        listener = yb_sim_listener_find(end->host, &end->address, false);
        if (listener == NULL) {
            push_after(connection, SIM_REFUSE, 1, latency_ns(connection, 1));
            return;
        }
        if (listener->queue_count >= end->host->backlog) {
            return;
        }
        end->state = END_QUEUED;
        end->process = listener->io->process;
        connection->listener = listener;
        connection->next_queued = NULL;
        *listener->queue_tail = connection;
        listener->queue_tail = &connection->next_queued;
        listener->queue_count++;
        yb_sim_process_wake_at(end->process, connection->sim->now_ns);
    }
    push_after(connection, SIM_ANSWER, 1,
               piece_arrival_ns(connection, 1, 0) - connection->sim->now_ns);
}

static void
answer_arrived(struct sim_connection *connection)
{
    if (is_blocked(connection, 1)) {
        return;
    }
    if (connection->ends[0].state == END_GONE) {
        send_reset(connection, 0, false);
    } else if (connection->ends[0].state == END_OPENING) {
        answer_connect(connection, YB_OK);
    }
}

struct sim_connection *
yb_sim_connection_find(const struct yb_sim *sim, uint64_t id)
{
    struct sim_connection *connection = sim->connections;

    while (connection != NULL && connection->id != id) {
        connection = connection->next;
    }
    return connection;
}

/* ---- events -------------------------------------------------------------------------- */

bool
yb_sim_event_is_stale(struct sim_event *event)
{
    struct sim_connection *connection = event->connection;
    const struct sim_end *end;
    struct sim_way *way;

    if (connection == NULL) {
        return false;
    }
    YB_ASSERT_OBJ(connection, YB_SIM_CONNECTION_MAGIC);
    end = &connection->ends[event->way];
    way = &connection->ways[event->way];
    if (!connection->listed) {
        return true;
    }
    if (event->kind == SIM_RETRY) {
        return end->state != END_OPENING;
    }
    if (event->kind == SIM_GIVE_UP &&
        (end->state == END_GONE || end->broken || way->sent == way->acked)) {
        way->give_up_armed = false;
        return true;
    }
    return false;
}

void
yb_sim_event_done(struct yb_sim *sim, struct sim_event *event)
{
    if (event->piece != NULL) {
        piece_free(sim, event->piece);
        event->piece = NULL;
    }
    if (event->connection != NULL) {
        YB_ASSERT(event->connection->event_count > 0);
        event->connection->event_count--;
        free_if_forgotten(event->connection);
        event->connection = NULL;
    }
}

static void
give_up(struct sim_connection *connection, uint32_t end)
{
    struct sim_way *way = &connection->ways[end];
    uint64_t due_ns = yb_deadline_after(way->unacked_since_ns, give_up_after_ns(connection, end));
    uint64_t now_ns = connection->sim->now_ns;

    if (due_ns > now_ns) {
        push_after(connection, SIM_GIVE_UP, end, due_ns - now_ns);
    } else {
        way->give_up_armed = false;
        break_end(connection, end, YB_TIMED_OUT);
    }
}

/* Let what was held while the way was blocked arrive, all at once and in order. */
static void
release_way(struct sim_connection *connection, uint32_t index)
{
    struct sim_way *way = &connection->ways[index];
    struct sim_piece *piece;

    way->release_armed = false;
    while (!is_blocked(connection, index) && (piece = list_pop(&way->held)) != NULL) {
        deliver_piece(connection, index, piece);
    }
    if (way->acked < way->arrived || way->credit < way->consumed) {
        send_ack(connection, index);
    }
}

void
yb_sim_event_apply(struct yb_sim *sim, struct sim_event *event)
{
    struct sim_connection *connection = event->connection;
    struct sim_piece *piece = event->piece;

    YB_ASSERT(connection == NULL || connection->sim == sim);
    switch ((enum sim_event_kind)event->kind) {
    case SIM_RUN: YB_ASSERT(false); break;
    case SIM_CALL: event->call(event->arg); break;
    case SIM_CONNECT: connect_arrived(connection); break;
    case SIM_ANSWER: answer_arrived(connection); break;
    case SIM_REFUSE:
        if (!is_blocked(connection, 1) && connection->ends[0].state == END_OPENING) {
            break_end(connection, 0, YB_REFUSED);
        }
        break;
    case SIM_BYTES:
    case SIM_END:
        event->piece = NULL;
        piece_arrived(connection, event->way, piece);
        break;
    case SIM_RESET:
        if (!is_blocked(connection, event->way)) {
            break_end(connection, !event->way, YB_REFUSED);
        }
        break;
    case SIM_ACK: ack_arrived(connection, event); break;
    case SIM_RELEASE: release_way(connection, event->way); break;
    case SIM_RETRY: retry_connect(connection); break;
    case SIM_GIVE_UP: give_up(connection, event->way); break;
    }
}

/* ---- what a test does to the network ------------------------------------------------- */

static bool
is_between(const struct sim_connection *connection, const struct yb_sim_host *a,
           const struct yb_sim_host *b)
{
    const struct yb_sim_host *x = connection->ends[0].host;
    const struct yb_sim_host *y = connection->ends[1].host;

    return ((a == NULL || a == x) && (b == NULL || b == y)) ||
           ((a == NULL || a == y) && (b == NULL || b == x));
}

uint32_t
yb_sim_cut(struct yb_sim *sim, struct yb_sim_host *a, struct yb_sim_host *b)
{
    uint32_t count = 0;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    for (struct sim_connection *connection = sim->connections; connection != NULL;
         connection = connection->next) {
        if (is_between(connection, a, b)) {
            cut(connection);
            count++;
        }
    }
    return count;
}

uint32_t
yb_sim_black_hole(struct yb_sim *sim, struct yb_sim_host *a, struct yb_sim_host *b)
{
    uint32_t count = 0;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    for (struct sim_connection *connection = sim->connections; connection != NULL;
         connection = connection->next) {
        if (is_between(connection, a, b)) {
            connection->black_hole = true;
            count++;
        }
    }
    return count;
}

void
yb_sim_release(struct yb_sim *sim)
{
    for (struct sim_connection *connection = sim->connections; connection != NULL;
         connection = connection->next) {
        uint64_t retransmit_ns = link_of(connection)->retransmit_ns;

        for (uint32_t i = 0; i < 2; i++) {
            struct sim_way *way = &connection->ways[i];
            bool held = way->held.head != NULL && !is_blocked(connection, i);
            bool untold = (way->acked < way->arrived || way->credit < way->consumed) &&
                          !is_blocked(connection, !i);

            if ((held || untold) && !way->release_armed) {
                way->release_armed = true;
                push_after(connection, SIM_RELEASE, i, yb_sim_random_below(sim, retransmit_ns + 1));
            }
        }
    }
}

void
yb_sim_abandon(struct yb_sim_host *host)
{
    for (struct sim_connection *connection = host->sim->connections; connection != NULL;
         connection = connection->next) {
        for (uint32_t i = 0; i < 2; i++) {
            if (connection->ends[i].host == host) {
                abandon_way(connection, i);
            }
        }
    }
}

void
yb_sim_block(struct yb_sim *sim, struct yb_sim_host *from, struct yb_sim_host *to, bool blocked)
{
    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    YB_ASSERT(from->sim == sim && to->sim == sim);
    sim->blocked[from->index][to->index] = blocked;
    if (!blocked) {
        yb_sim_release(sim);
    }
}

void
yb_sim_partition(struct yb_sim *sim, struct yb_sim_host *const *side, uint32_t count)
{
    bool inside[YB_SIM_HOST_COUNT] = {false};

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    for (uint32_t i = 0; i < count; i++) {
        inside[side[i]->index] = true;
    }
    for (uint32_t i = 0; i < sim->host_count; i++) {
        for (uint32_t j = 0; j < sim->host_count; j++) {
            if (inside[i] != inside[j]) {
                sim->blocked[i][j] = true;
            }
        }
    }
}

void
yb_sim_heal(struct yb_sim *sim)
{
    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    memset(sim->blocked, 0, sizeof(sim->blocked));
    yb_sim_release(sim);
}
