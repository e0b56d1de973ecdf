/* SPDX-License-Identifier: Apache-2.0 */
#include "net/server.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "net/conn.h"
#include "net/fence.h"

#define SERVER_MAGIC 0x73727672u

struct yb_server {
    uint32_t magic;
    uint32_t next_net; /* Whose turn it is. */
    struct yb_listener *listener;
    struct yb_fence *fence; /* Shared by all workers. */
    struct yb_address address;
    struct yb_server_options options;
    _Atomic(uint32_t) guests;          /* All that are there; any worker changes these. */
    _Atomic(uint32_t) connections;     /* S1: those that are not being turned away ... */
    _Atomic(uint32_t) unauthenticated; /* ... of which without a finished handshake. */
    _Atomic(uint32_t) turned_away;     /* S1: those that are being told that there is no room. */
};

/* A connection as the server sees it; also the mail that carries it to its worker. */
struct guest {
    struct yb_mail mail;
    struct yb_server *server;
    struct yb_net *net;
    struct yb_conn *conn; /* NULL once it is closed. */
    struct yb_accepted accepted;
    struct yb_fence_guest fence;
    bool counted;  /* In `unauthenticated`. */
    bool unwanted; /* To be told that there is no room. */
};

static struct guest *
guest_of_fence(struct yb_fence_guest *fence)
{
    return (struct guest *)((uint8_t *)fence - offsetof(struct guest, fence));
}

/* The server may go when the last of these has run, so it is the last thing done. */
static void
free_guest(struct guest *guest)
{
    struct yb_server *server = guest->server;

    free(guest);
    atomic_fetch_sub(&server->guests, 1);
}

static void
guest_leaves(struct guest *guest)
{
    if (guest->counted) {
        atomic_fetch_sub(&guest->server->unauthenticated, 1);
    }
    atomic_fetch_sub(guest->unwanted ? &guest->server->turned_away : &guest->server->connections,
                     1);
    if (yb_fence_leave(&guest->fence)) {
        free_guest(guest);
    }
}

static void
on_fence_end(struct yb_fence_guest *fence)
{
    struct guest *guest = guest_of_fence(fence);

    if (guest->conn != NULL) {
        yb_conn_close(guest->conn, YB_STALE, "a newer connection of the same peer took its place");
    }
}

static void
on_fence_admit(struct yb_fence_guest *fence)
{
    struct guest *guest = guest_of_fence(fence);

    if (guest->conn != NULL) {
        yb_conn_admit(guest->conn);
    }
}

static void
on_fence_gone(struct yb_fence_guest *fence)
{
    free_guest(guest_of_fence(fence));
}

static enum yb_status
on_admit(void *owner, struct yb_conn *conn, const struct yb_hello_result *peer)
{
    struct guest *guest = owner;

    (void)conn;
    guest->fence.loop = yb_net_loop(guest->net);
    guest->fence.end = on_fence_end;
    guest->fence.admit = on_fence_admit;
    guest->fence.gone = on_fence_gone;
    return yb_fence_enter(guest->server->fence, &guest->fence, peer);
}

static void
on_open(void *owner, struct yb_conn *conn)
{
    struct guest *guest = owner;

    (void)conn;
    guest->counted = false;
    atomic_fetch_sub(&guest->server->unauthenticated, 1);
}

static void
on_closed(void *owner, struct yb_conn *conn, const struct yb_conn_end *end)
{
    struct guest *guest = owner;

    (void)end;
    guest->conn = NULL;
    if (yb_conn_landing(conn) == 0) {
        guest_leaves(guest);
    }
}

static void
on_landed(void *owner)
{
    guest_leaves(owner);
}

static const struct yb_conn_events guest_events = {
    .on_admit = on_admit,
    .on_open = on_open,
    .on_closed = on_closed,
    .on_landed = on_landed,
};

/* On the worker's thread: the guest has arrived. */
static void
guest_arrives(struct yb_mail *mail)
{
    struct guest *guest = (struct guest *)((uint8_t *)mail - offsetof(struct guest, mail));

    if (yb_conn_accept(guest->net, &guest->accepted, &guest_events, guest, &guest->conn) != YB_OK) {
        yb_io_discard(yb_loop_io(yb_net_loop(guest->net)), &guest->accepted);
        guest_leaves(guest);
        return;
    }
    if (guest->unwanted) {
        yb_conn_refuse(guest->conn, YB_HELLO_REASON_TOO_MANY,
                       "too many connections: close some, or raise net.connections_max");
    }
}

/* Give back what take_place() took. */
static void
give_place(struct yb_server *server)
{
    atomic_fetch_sub(&server->connections, 1);
    atomic_fetch_sub(&server->unauthenticated, 1);
}

/* Count one more connection in; returns false if there is no room (S1). Those who are turned away
 * take no place: otherwise a crowd that tries again and again would keep everybody out. */
static bool
take_place(struct yb_server *server)
{
    uint32_t connections = atomic_fetch_add(&server->connections, 1);
    uint32_t unauthenticated = atomic_fetch_add(&server->unauthenticated, 1);

    if (connections < server->options.connections_max &&
        unauthenticated < server->options.unauthenticated_max) {
        return true;
    }
    give_place(server);
    return false;
}

static void
on_accept(void *owner, const struct yb_accepted *accepted)
{
    struct yb_server *server = owner;
    const struct yb_server_options *options = &server->options;
    bool unwanted = !take_place(server);
    struct guest *guest = NULL;

    if (!unwanted || atomic_fetch_add(&server->turned_away, 1) < options->unauthenticated_max) {
        guest = calloc(1, sizeof(*guest));
    }
    if (guest == NULL) {
        if (unwanted) {
            atomic_fetch_sub(&server->turned_away, 1);
        } else {
            give_place(server);
        }
        yb_io_discard(yb_loop_io(yb_net_loop(options->nets[0])), accepted);
        return;
    }
    atomic_fetch_add(&server->guests, 1);
    guest->server = server;
    guest->net = options->nets[server->next_net];
    guest->accepted = *accepted;
    guest->counted = !unwanted;
    guest->unwanted = unwanted;
    server->next_net = (server->next_net + 1) % options->net_count;
    yb_mail_init(&guest->mail, guest_arrives);
    if (guest->net == options->nets[0]) {
        guest_arrives(&guest->mail);
    } else {
        /* Never refused: its number is bounded by S1. */
        yb_mailbox_post_reply(yb_loop_mailbox(yb_net_loop(guest->net)), &guest->mail);
    }
}

/* Say why nothing listens on `address`, and what to do. */
static void
explain(enum yb_status status, const char *address, char why_out[YB_ADDRESS_WHY_BYTES])
{
    const char *why = yb_status_text(status);

    if (status == YB_ADDRESS_IN_USE) {
        why = "address in use by another process; stop it, or name another port (0: any free one)";
    } else if (status == YB_DENIED) {
        why = "this port needs a privilege; name one above 1023";
    } else if (status == YB_INVALID) {
        why = "no interface of this machine has that address";
    }
    (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES, "cannot listen on %s: %s", address, why);
}

enum yb_status
yb_server_create(const struct yb_server_options *options, struct yb_server **server_out,
                 char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct yb_net *net = options->nets[0];
    char address[YB_ADDRESS_TEXT_BYTES];
    struct yb_server *server;
    enum yb_status status;

    YB_ASSERT(options->net_count > 0 && options->connections_max > 0);
    yb_address_format(&options->address, address);
    if (!yb_address_is_loopback(&options->address) && yb_net_self(net)->auth == NULL &&
        !options->insecure) {
        (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES,
                       "refusing to listen on %s without a secret: give --secret-file, listen on "
                       "127.0.0.1, or say --insecure if everybody who reaches it may do anything",
                       address);
        return YB_DENIED; /* S3 */
    }
    server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return YB_NO_MEMORY;
    }
    server->magic = SERVER_MAGIC;
    server->options = *options;
    status = yb_fence_create(&server->fence);
    if (status != YB_OK) {
        free(server);
        return status;
    }
    status = yb_io_listen(yb_loop_io(yb_net_loop(net)), &options->address,
                          yb_net_stream_options(net), on_accept, server, &server->listener);
    if (status != YB_OK) {
        explain(status, address, why_out);
        yb_fence_destroy(&server->fence);
        free(server);
        return status;
    }
    yb_io_listener_address(yb_loop_io(yb_net_loop(net)), server->listener, &server->address);
    *server_out = server;
    return YB_OK;
}

void
yb_server_stop(struct yb_server *server)
{
    YB_ASSERT_OBJ(server, SERVER_MAGIC);
    if (server->listener != NULL) {
        yb_io_listener_close(yb_loop_io(yb_net_loop(server->options.nets[0])), &server->listener);
    }
}

void
yb_server_destroy(struct yb_server **server_ref)
{
    struct yb_server *server = *server_ref;

    YB_ASSERT_OBJ(server, SERVER_MAGIC);
    YB_ASSERT(server->listener == NULL && atomic_load(&server->guests) == 0);
    *server_ref = NULL;
    yb_fence_destroy(&server->fence);
    server->magic = 0;
    free(server);
}

struct yb_address
yb_server_address(const struct yb_server *server)
{
    return server->address;
}

uint32_t
yb_server_connection_count(const struct yb_server *server)
{
    return atomic_load(&server->guests);
}
