/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/client.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"

#define SPANS_LOOKED_AT 64u

static const struct yb_clock *
clock_of(const struct yb_cli_client *client)
{
    return yb_loop_clock(yb_net_loop(client->net));
}

/* Turn `text` into addresses to connect to. On failure why_out says what is wrong. */
static enum yb_status
resolve(const char *text, struct yb_address_list *list_out, char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct yb_endpoint_text endpoint;
    enum yb_status status = yb_endpoint_parse(text, &endpoint, why_out);

    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, YB_PORT_SERVE, list_out, why_out);
    }
    if (status == YB_OK && !yb_address_connectable(&list_out->items[0])) {
        snprintf(why_out, YB_ADDRESS_WHY_BYTES, "\"%s\" cannot be connected to: %s", text,
                 yb_address_why_unpublishable(&list_out->items[0]));
        return YB_INVALID;
    }
    return status;
}

enum yb_status
yb_cli_client_open(struct yb_cli *cli, const char *address, struct yb_id identity,
                   struct yb_cli_client *client_out)
{
    const struct yb_process_options options = {
        .config = &cli->config,
        .port_name = "a client of Yuebing",
        .log_fd = STDERR_FILENO,
    };
    struct yb_cli_client client = {0};
    struct yb_address_list list;
    char why[YB_PROCESS_WHY_BYTES];
    enum yb_status status = resolve(address, &list, why);

    /* What is refused is told by the command itself; as a warning it would be told twice. */
    if (cli->config.origins[YB_CONFIG_ROW_log_level].source == YB_CONFIG_SOURCE_DEFAULT) {
        cli->config.log_level = YB_CONFIG_LOG_LEVEL_ERROR;
    }
    if (status == YB_OK) {
        status = yb_process_create(&options, &client.process, why);
    }
    if (status == YB_OK) {
        status = yb_process_open_net(client.process, &client.net, why);
    }
    if (status == YB_OK) {
        status = yb_peer_create(client.net, &list, identity, &client.peer);
        snprintf(why, sizeof(why), "%s: %s", address, yb_status_text(status));
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing %s: %s\n", cli->command->name, why);
        yb_cli_client_close(&client);
        return status;
    }
    client.candidates = list.count;
    client.error = "";
    *client_out = client;
    return YB_OK;
}

void
yb_cli_client_close(struct yb_cli_client *client)
{
    if (client->peer != NULL) {
        yb_peer_destroy(&client->peer);
    }
    yb_process_destroy(&client->process);
    client->net = NULL;
}

static void
on_done(struct yb_call *call)
{
    struct yb_cli_client *client = call->owner;

    client->done = true;
    if (!call->answered) {
        /* A timer ended it: the turn would go on to wait for something else. */
        yb_io_wake(yb_loop_io(yb_net_loop(client->net)));
    }
}

enum yb_status
yb_cli_client_call(struct yb_cli_client *client, struct yb_call *call, uint64_t timeout_ns)
{
    const struct yb_clock *clock = clock_of(client);
    uint64_t began_ns = yb_clock_now(clock);
    enum yb_status status;

    call->deadline_ns = yb_deadline_after(began_ns, timeout_ns);
    call->done = on_done;
    call->owner = client;
    client->done = false;
    status = yb_peer_call(client->peer, call);
    if (status != YB_OK) {
        client->error = yb_status_text(status);
        return status;
    }
    while (!client->done) {
        yb_loop_turn(yb_net_loop(client->net), YB_NEVER);
    }
    call->took_ns = yb_clock_now(clock) - began_ns;
    if (call->status != YB_OK) {
        const char *told = yb_peer_error(client->peer);

        client->error = call->answered || told[0] == '\0' ? yb_status_text(call->status) : told;
    }
    return call->status;
}

/* Failures that another address of the same name can mend. */
static bool
may_be_elsewhere(enum yb_status status)
{
    return status == YB_REFUSED || status == YB_UNREACHABLE || status == YB_TIMED_OUT;
}

enum yb_status
yb_cli_client_connect(struct yb_cli_client *client, uint64_t timeout_ns)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < client->candidates; i++) {
        struct yb_call call = {.type = YB_WIRE_TYPE_ECHO, .body = "", .fail_fast = true};

        status = yb_cli_client_call(client, &call, timeout_ns);
        if (status == YB_OK || call.answered || !may_be_elsewhere(status)) {
            break;
        }
    }
    return status;
}

void
yb_cli_client_rest(struct yb_cli_client *client, uint64_t span_ns)
{
    const struct yb_clock *clock = clock_of(client);
    uint64_t until_ns = yb_deadline_after(yb_clock_now(clock), span_ns);

    for (;;) {
        uint64_t now_ns = yb_clock_now(clock);

        if (now_ns >= until_ns) {
            return;
        }
        yb_loop_turn(yb_net_loop(client->net), until_ns - now_ns);
    }
}

uint64_t
yb_cli_client_handshake_ns(const struct yb_cli_client *client)
{
    struct yb_span spans[SPANS_LOOKED_AT];
    uint32_t count = yb_span_snapshot(yb_process_spans(client->process), spans, SPANS_LOOKED_AT);

    while (count > 0) {
        const struct yb_span *span = &spans[--count];

        if (span->kind == YB_SPAN_KIND_CONNECT && span->outcome == YB_OK) {
            return span->end_ns - span->start_ns;
        }
    }
    return 0;
}
