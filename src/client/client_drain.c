/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of an administrator: draining nodes, and taking them back.
 *
 * A directory takes them from that role only. So they have a net of their own on the client's
 * worker, under another identity and with the credential of the role, made when the first order is
 * given: who holds the cluster's secret may, who was handed a tenant's key may not.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/client_internal.h"
#include "directory/wire/directory_wire.h"
#include "net/peer.h"

#define WAIT_STEP_NS YB_NS_PER_S

#define NODES_MAX 8u /* That are spoken to at a time. */

struct yb_client_admin {
    struct yb_hello_self self;
    struct yb_net *net;
    struct yb_peer *peer; /* The directory; NULL: closing. */
    struct {
        char address[YB_ADDRESS_TEXT_BYTES];
        struct yb_peer *peer;
    } nodes[NODES_MAX];
    uint32_t next; /* Whose place a new one takes. */
    uint32_t calls;
};

static struct yb_client_admin *
make_admin(struct yb_client *client)
{
    struct yb_client_admin *admin = calloc(1, sizeof(*admin));
    struct yb_net_options options = {
        .loop = yb_worker_loop(client->worker),
        .tls_client = client->credentials.tls_client,
        .random = yb_net_random_system,
    };

    if (admin == NULL) {
        return NULL;
    }
    admin->self = client->self;
    admin->self.role = YB_WIRE_ROLE_ADMIN;
    admin->self.tenant = "";
    yb_net_random_system(NULL, admin->self.identity.bytes, sizeof(admin->self.identity.bytes));
    options.self = &admin->self;
    yb_net_limits_default(&options.limits);
    if (yb_net_create(&options, &admin->net) != YB_OK) {
        free(admin);
        return NULL;
    }
    if (yb_peer_create(admin->net, &client->core_options.directory, (struct yb_id){{0}},
                       &admin->peer) != YB_OK) {
        yb_net_destroy(&admin->net);
        free(admin);
        return NULL;
    }
    return admin;
}

void
yb_client_admin_stop(struct yb_client *client)
{
    struct yb_client_admin *admin = client->admin;

    if (admin != NULL && admin->peer != NULL) {
        yb_peer_destroy(&admin->peer);
        for (uint32_t i = 0; i < NODES_MAX; i++) {
            if (admin->nodes[i].peer != NULL) {
                yb_peer_destroy(&admin->nodes[i].peer);
            }
        }
        yb_net_shut(admin->net);
    }
}

bool
yb_client_admin_idle(const struct yb_client *client)
{
    const struct yb_client_admin *admin = client->admin;

    return admin == NULL || (admin->calls == 0 && yb_net_idle(admin->net));
}

void
yb_client_admin_destroy(struct yb_client *client)
{
    if (client->admin != NULL) {
        YB_ASSERT(client->admin->peer == NULL);
        yb_net_destroy(&client->admin->net);
        free(client->admin);
        client->admin = NULL;
    }
}

/* ---- one order ------------------------------------------------------------------------------- */

struct order {
    struct yb_client *client;
    const char *address; /* NULL: the directory. */
    struct yb_mail mail;
    struct yb_call call;
    enum yb_status status;
    bool ended; /* Under the client's lock. */
};

static void
end_order(struct order *order, enum yb_status status)
{
    struct yb_client *client = order->client;

    yb_lock_acquire(&client->lock);
    order->status = status;
    order->ended = true;
    (void)pthread_cond_broadcast(&client->changed);
    yb_lock_release(&client->lock);
}

static void
on_answer(struct yb_call *call)
{
    struct order *order = call->owner;

    order->client->admin->calls--;
    yb_client_core_look_again(order->client->core);
    end_order(order, call->status);
}

/* Return the peer at an address. NULL: no memory, or it is no address. */
static struct yb_peer *
node_at(struct yb_client_admin *admin, const char *address)
{
    struct yb_address_list list = {.count = 1};
    char why[YB_ADDRESS_WHY_BYTES];
    uint32_t at = admin->next;

    for (uint32_t i = 0; i < NODES_MAX; i++) {
        if (admin->nodes[i].peer != NULL && strcmp(admin->nodes[i].address, address) == 0) {
            return admin->nodes[i].peer;
        }
    }
    if (strlen(address) >= sizeof(admin->nodes[at].address) ||
        yb_address_parse(address, 0, &list.items[0], why) != YB_OK) {
        return NULL;
    }
    if (admin->nodes[at].peer != NULL) {
        yb_peer_destroy(&admin->nodes[at].peer); /* What it is asked ends. */
    }
    if (yb_peer_create(admin->net, &list, (struct yb_id){{0}}, &admin->nodes[at].peer) != YB_OK) {
        admin->nodes[at].peer = NULL;
        return NULL;
    }
    memcpy(admin->nodes[at].address, address, strlen(address) + 1);
    admin->next = (at + 1) % NODES_MAX;
    return admin->nodes[at].peer;
}

static void
run_order(struct yb_mail *mail)
{
    struct order *order = (struct order *)((uint8_t *)mail - offsetof(struct order, mail));
    struct yb_client *client = order->client;
    enum yb_status status = YB_NO_MEMORY;
    struct yb_peer *peer = NULL;

    if (client->admin == NULL) {
        client->admin = make_admin(client);
    }
    if (client->admin != NULL) {
        status = YB_CLOSED;
    }
    if (client->admin != NULL && client->admin->peer != NULL) {
        peer =
            order->address == NULL ? client->admin->peer : node_at(client->admin, order->address);
        status = YB_INVALID;
    }
    if (peer != NULL) {
        order->call.mutates = true;
        status = yb_peer_call(peer, &order->call);
    }
    if (status == YB_OK) {
        client->admin->calls++;
    } else {
        end_order(order, status);
    }
}

enum yb_status
yb_client_admin_call(struct yb_client *client, const char *address, const struct yb_call *call,
                     uint32_t *reply_out)
{
    struct order order = {.client = client, .address = address, .call = *call};

    order.call.lane = YB_WIRE_LANE_CONTROL;
    order.call.done = on_answer;
    order.call.owner = &order;
    yb_mail_init(&order.mail, run_order);
    yb_lock_acquire(&client->lock);
    if (client->closing) {
        yb_lock_release(&client->lock);
        return YB_CLOSED;
    }
    /* Its room is the caller, who waits: there are no more of these than threads. */
    yb_mailbox_post_reply(yb_loop_mailbox(yb_worker_loop(client->worker)), &order.mail);
    while (!order.ended) {
        (void)yb_lock_wait(&client->lock, &client->changed, WAIT_STEP_NS);
    }
    yb_lock_release(&client->lock);
    *reply_out = order.call.reply_body_bytes;
    return order.status;
}

enum yb_status
yb_client_drain(struct yb_client *client, const char *name, bool draining, bool force,
                const struct yb_client_call *given)
{
    struct yb_wire_state_order order = {
        .state = draining ? YB_WIRE_SLOT_STATE_DRAINING : YB_WIRE_SLOT_STATE_SERVING,
        .force = force,
    };
    uint8_t body[YB_WIRE_STATE_ORDER_BYTES_MAX];
    struct yb_client_call call;
    uint32_t reply;
    size_t length = 0;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = yb_client_read_call(given, &call);
    if (name == NULL || name[0] == '\0' || yb_client_inside(client)) {
        status = YB_INVALID;
    }
    if (status == YB_OK) {
        order.name = yb_wire_text_of(name);
        status = yb_wire_state_order_encode(&order, body, sizeof(body), &length);
    }
    if (status == YB_OK) {
        const struct yb_call set_state = {
            .type = YB_WIRE_DIRECTORY_TYPE_SET_STATE,
            .class = YB_CLASS_FIRST_TOKEN,
            .deadline_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), call.timeout_ns),
            .body = body,
            .body_bytes = (uint32_t)length,
        };

        status = yb_client_admin_call(client, NULL, &set_state, &reply);
    }
    yb_client_leave(client);
    return status;
}
