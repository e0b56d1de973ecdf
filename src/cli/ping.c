/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing ping`: who answers at an address, and how fast.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/histogram.h"
#include "cli/client.h"
#include "cli/output.h"

const struct yb_cli_option yb_cli_ping_options[] = {
    {"count", "N", "how many pings, 1 .. 1000000; default 5"},
    {"interval-ms", "N", "pause between two pings, 0 .. 60000; default 100"},
    {"timeout-ms", "N", "how long one ping may take, 1 .. 600000; default 2000"},
    {"identity", "ID", "32 hex digits: who must answer; anybody else is refused"},
    {NULL, NULL, NULL},
};

struct ping_options {
    const char *address;
    uint64_t count;
    uint64_t interval_ms;
    uint64_t timeout_ms;
    struct yb_id identity;
};

/* What was found. */
struct ping_outcome {
    struct yb_hello_result peer;
    uint64_t handshake_ns;
    uint64_t sent;
    uint64_t answered;
    uint64_t min_ns;
    enum yb_status status; /* Of the first ping that failed. */
    char error[YB_CONFIG_MESSAGE_MAX];
    struct yb_histogram times;
};

static bool
read_options(struct yb_cli *cli, int argc, char **argv, struct ping_options *options)
{
    const char *identity = yb_cli_option(cli, "identity");

    *options = (struct ping_options){.count = 5, .interval_ms = 100, .timeout_ms = 2000};
    if (!yb_cli_option_number(cli, "count", 1, 1000000, &options->count) ||
        !yb_cli_option_number(cli, "interval-ms", 0, 60000, &options->interval_ms) ||
        !yb_cli_option_number(cli, "timeout-ms", 1, 600000, &options->timeout_ms)) {
        return false;
    }
    if (identity != NULL && !yb_id_parse(identity, &options->identity)) {
        fprintf(cli->err, "yuebing ping: --identity cannot be \"%s\"; allowed: 32 hex digits\n",
                identity);
        return false;
    }
    if (argc != 1) {
        fprintf(cli->err, "yuebing ping: say whom: yuebing ping ADDRESS\n");
        return false;
    }
    options->address = argv[0];
    return true;
}

/* Send one ping; returns its outcome, and the time it took. */
static enum yb_status
ping_once(struct yb_cli_client *client, uint64_t timeout_ns, uint64_t *took_ns_out)
{
    const struct yb_wire_ping ping = {.wall_sent_ns = 1};
    struct yb_wire_ping answer;
    uint8_t body[YB_WIRE_PING_BYTES];
    uint8_t reply[YB_WIRE_PING_BYTES];
    size_t length = 0;
    struct yb_call call = {
        .type = YB_WIRE_TYPE_PING,
        .body = body,
        .body_bytes = sizeof(body),
        .reply_body = reply,
        .reply_body_room = sizeof(reply),
    };
    enum yb_status status;

    YB_ASSERT(yb_wire_ping_encode(&ping, body, sizeof(body), &length) == YB_OK);
    status = yb_cli_client_call(client, &call, timeout_ns);
    if (status != YB_OK) {
        return status;
    }
    if (yb_wire_ping_decode(reply, call.reply_body_bytes, &answer, NULL) != YB_OK ||
        answer.wall_sent_ns != ping.wall_sent_ns || answer.wall_replied_ns == 0) {
        client->error = "the answer is not that of the ping that was sent";
        return YB_PROTOCOL;
    }
    *took_ns_out = call.took_ns;
    return YB_OK;
}

static void
note_failure(struct ping_outcome *outcome, enum yb_status status, const char *error)
{
    if (outcome->status == YB_OK) {
        outcome->status = status;
        snprintf(outcome->error, sizeof(outcome->error), "%s", error);
    }
}

static void
ping_all(struct yb_cli_client *client, const struct ping_options *options,
         struct ping_outcome *outcome)
{
    uint64_t timeout_ns = options->timeout_ms * YB_NS_PER_MS;
    enum yb_status status = yb_cli_client_connect(client, timeout_ns);

    if (status != YB_OK) {
        note_failure(outcome, status, client->error);
        return;
    }
    outcome->peer = *yb_peer_result(client->peer);
    outcome->handshake_ns = yb_cli_client_handshake_ns(client);
    while (outcome->sent < options->count) {
        uint64_t took_ns = 0;

        if (outcome->sent > 0) {
            yb_cli_client_rest(client, options->interval_ms * YB_NS_PER_MS);
        }
        outcome->sent++;
        status = ping_once(client, timeout_ns, &took_ns);
        if (status != YB_OK) {
            note_failure(outcome, status, client->error);
            continue;
        }
        if (outcome->answered == 0 || took_ns < outcome->min_ns) {
            outcome->min_ns = took_ns;
        }
        outcome->answered++;
        yb_histogram_record(&outcome->times, took_ns);
    }
}

static double
us(uint64_t ns)
{
    return (double)ns / (double)YB_NS_PER_US;
}

static void
print_text(struct yb_cli *cli, const struct ping_options *options,
           const struct ping_outcome *outcome, const struct yb_histogram_summary *times)
{
    const struct yb_hello_result *peer = &outcome->peer;
    char identity[33];

    yb_id_format(peer->identity, identity);
    fprintf(cli->out, "%s is %s, %s\n", options->address, identity, peer->software);
    fprintf(cli->out, "  wire version %u, %s, %s\n", peer->version,
            peer->authenticated ? "authenticated by both sides" : "open: nobody proved anything",
            cli->config.tls_mode == YB_CONFIG_TLS_MODE_ON ? "TLS 1.3" : "no TLS");
    fprintf(cli->out, "  granted role %s%s%s\n", yb_wire_role_name(peer->role),
            peer->tenant[0] == '\0' ? "" : ", tenant ", peer->tenant);
    if (peer->clock_error_ns != UINT64_MAX) {
        fprintf(cli->out, "  its clock minus ours %.1f us, give or take %.1f us\n",
                (double)peer->clock_offset_ns / (double)YB_NS_PER_US, us(peer->clock_error_ns));
    }
    fprintf(cli->out, "  connected in %.1f us, handshake included\n", us(outcome->handshake_ns));
    fprintf(cli->out, "%" PRIu64 " of %" PRIu64 " answered", outcome->answered, outcome->sent);
    if (outcome->answered > 0) {
        fprintf(cli->out, "; round trip min %.1f p50 %.1f p99 %.1f max %.1f us",
                us(outcome->min_ns), us(times->p50), us(times->p99), us(times->max));
    }
    fprintf(cli->out, "\n");
}

static json_t *
as_json(const struct yb_cli *cli, const struct ping_options *options,
        const struct ping_outcome *outcome, const struct yb_histogram_summary *times)
{
    const struct yb_hello_result *peer = &outcome->peer;
    char identity[33];

    if (outcome->sent == 0) {
        return json_pack("{s:s, s:i, s:i, s:s, s:s}", "address", options->address, "sent", 0,
                         "answered", 0, "status", yb_status_name(outcome->status), "error",
                         outcome->error);
    }
    yb_id_format(peer->identity, identity);
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:i, s:b, s:b, s:s, s:s, s:I, s:o, s:I, s:I, s:I, s:s, s:s,"
        " s:{s:I, s:I, s:I, s:I}}",
        "address", options->address, "identity", identity, "incarnation",
        (json_int_t)peer->incarnation, "software", peer->software, "version", (int)peer->version,
        "authenticated", (int)peer->authenticated, "tls",
        (int)(cli->config.tls_mode == YB_CONFIG_TLS_MODE_ON), "role", yb_wire_role_name(peer->role),
        "tenant", peer->tenant, "clock_offset_ns", (json_int_t)peer->clock_offset_ns,
        "clock_error_ns",
        peer->clock_error_ns > INT64_MAX ? json_null()
                                         : json_integer((json_int_t)peer->clock_error_ns),
        "handshake_ns", (json_int_t)outcome->handshake_ns, "sent", (json_int_t)outcome->sent,
        "answered", (json_int_t)outcome->answered, "status", yb_status_name(outcome->status),
        "error", outcome->error, "rtt_ns", "min", (json_int_t)outcome->min_ns, "p50",
        (json_int_t)times->p50, "p99", (json_int_t)times->p99, "max", (json_int_t)times->max);
}

int
yb_cli_ping(struct yb_cli *cli, int argc, char **argv)
{
    struct ping_options options;
    struct ping_outcome outcome = {.status = YB_OK};
    struct yb_histogram_summary times;
    struct yb_cli_client client;
    enum yb_status status;

    if (!read_options(cli, argc, argv, &options)) {
        return YB_CLI_EXIT_REFUSED;
    }
    status = yb_cli_client_open(cli, options.address, options.identity, &client);
    if (status != YB_OK) {
        return status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED
                                                           : YB_CLI_EXIT_FAILED;
    }
    ping_all(&client, &options, &outcome);
    yb_cli_client_close(&client);
    yb_histogram_summarize(&outcome.times, &times);
    if (outcome.status != YB_OK) {
        fprintf(cli->err, "yuebing ping: %s: %s: %s\n", options.address,
                yb_status_name(outcome.status), outcome.error);
    }
    if (cli->json) {
        if (yb_output_json(cli->out, as_json(cli, &options, &outcome, &times)) != YB_OK) {
            return YB_CLI_EXIT_FAILED;
        }
    } else if (outcome.sent > 0) {
        print_text(cli, &options, &outcome, &times);
    }
    return outcome.status == YB_OK && outcome.answered == options.count ? 0 : YB_CLI_EXIT_FAILED;
}
