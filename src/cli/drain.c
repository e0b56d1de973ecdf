/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing drain`: everything away from a node, so that it can be stopped without loss.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "cli/output.h"
#include "cli/store.h"
#include "node/wire/node_wire.h"

#define LOOK_NS (100 * YB_NS_PER_MS)

const struct yb_cli_option yb_cli_drain_options[] = {
    {"undo", NULL, "take the node back: it gets new blocks again"},
    {"force", NULL, "drop blocks that fit on no other node"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

struct draining {
    struct yb_cli_store store;
    const char *name;
    uint64_t blocks; /* That are still there. */
    uint64_t first;  /* That were there. */
    uint64_t stuck;  /* That fit on no other node. */
    bool told;       /* Of them. */
};

static const struct yb_wire_member *
find(const struct yb_cli_store *store, const char *name)
{
    for (uint32_t i = 0; i < store->member_count; i++) {
        const struct yb_wire_member *member = &store->members[i];
        size_t length = strnlen((const char *)member->name, sizeof(member->name));

        if (length == strlen(name) && memcmp(member->name, name, length) == 0) {
            return member;
        }
    }
    return NULL;
}

static enum yb_status
order(struct draining *draining, bool undo, bool force)
{
    const struct yb_wire_state_order asked = {
        .state = undo ? YB_WIRE_SLOT_STATE_SERVING : YB_WIRE_SLOT_STATE_DRAINING,
        .force = force,
        .name = {.bytes = draining->name, .length = (uint16_t)strlen(draining->name)},
    };
    uint8_t body[YB_WIRE_STATE_ORDER_BYTES_MAX];
    size_t length = 0;

    YB_ASSERT(yb_wire_state_order_encode(&asked, body, sizeof(body), &length) == YB_OK);
    return yb_cli_store_ask(&draining->store, &(struct yb_cli_question){
                                                  .type = YB_WIRE_DIRECTORY_TYPE_SET_STATE,
                                                  .body = body,
                                                  .body_bytes = length,
                                                  .mutates = true,
                                              });
}

/* Ask the node how many blocks it still has. */
static enum yb_status
look(struct draining *draining)
{
    enum yb_status status = yb_cli_store_members(&draining->store);
    const struct yb_wire_member *member = find(&draining->store, draining->name);
    struct yb_wire_node_numbers numbers;

    if (status != YB_OK) {
        return status;
    }
    status = YB_PEER_LOST;
    if (member != NULL) {
        draining->stuck = member->drain_stuck;
        status =
            yb_cli_store_ask_node(&draining->store, member,
                                  &(struct yb_cli_question){.type = YB_WIRE_NODE_TYPE_NODE_STAT});
    } else {
        snprintf(draining->store.error, sizeof(draining->store.error),
                 "the node has left before it was drained");
    }
    if (status == YB_OK &&
        yb_wire_node_numbers_decode(draining->store.reply, draining->store.reply_bytes, &numbers,
                                    NULL) != YB_OK) {
        status = YB_PROTOCOL;
    }
    if (status == YB_OK) {
        draining->blocks = numbers.blocks + (numbers.in_flight + numbers.ungranted > 0 ? 1 : 0);
    }
    return status;
}

/* Watch until nothing is left, or time is up. */
static enum yb_status
watch(struct draining *draining)
{
    struct yb_cli *cli = draining->store.cli;
    const struct yb_clock *clock = yb_clock_system();
    uint64_t now_ns = yb_clock_now(clock);
    uint64_t until_ns = yb_deadline_after(now_ns, draining->store.timeout_ns);
    struct yb_output_progress progress;
    enum yb_status status = YB_OK;

    yb_output_progress_begin(&progress, cli->err, cli->terminal, clock, "moving blocks away",
                             draining->first);
    while (status == YB_OK && draining->blocks > 0) {
        if (now_ns >= until_ns) {
            status = YB_TIMED_OUT;
            break;
        }
        yb_cli_client_rest(&draining->store.directory, LOOK_NS);
        status = look(draining);
        now_ns = yb_clock_now(clock);
        if (!draining->told && draining->stuck > 0) {
            draining->told = true;
            fprintf(cli->err,
                    "yuebing drain: %" PRIu64
                    " blocks fit on no other node yet; start one more, or "
                    "--force drops them\n",
                    draining->stuck);
        }
        yb_output_progress_update(
            &progress, draining->first > draining->blocks ? draining->first - draining->blocks : 0);
    }
    yb_output_progress_end(&progress);
    return status;
}

static int
report(struct draining *draining, enum yb_status status, bool undo)
{
    struct yb_cli *cli = draining->store.cli;
    char text[sizeof(draining->store.error)];

    if (status == YB_TIMED_OUT && draining->blocks > 0) {
        snprintf(text, sizeof(text),
                 "%" PRIu64 " of %" PRIu64 " blocks are still there; it goes on", draining->blocks,
                 draining->first);
        memcpy(draining->store.error, text, sizeof(text));
    }
    if (cli->json) {
        if (yb_output_json(cli->out, json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "node",
                                               draining->name, "status", yb_status_name(status),
                                               "blocks", (json_int_t)draining->first, "left",
                                               (json_int_t)draining->blocks, "stuck",
                                               (json_int_t)draining->stuck, "drained",
                                               (int)(!undo && status == YB_OK))) != YB_OK) {
            return YB_CLI_EXIT_FAILED;
        }
    } else if (status == YB_OK && undo) {
        fprintf(cli->out, "%s takes new blocks again\n", draining->name);
    } else if (status == YB_OK) {
        fprintf(cli->out, "%s is drained: %" PRIu64 " blocks were moved or dropped\n",
                draining->name, draining->first);
    }
    return status == YB_OK ? 0 : yb_cli_store_fail(&draining->store, status);
}

int
yb_cli_drain(struct yb_cli *cli, int argc, char **argv)
{
    struct draining draining = {.name = argc > 0 ? argv[0] : ""};
    bool undo = yb_cli_option(cli, "undo") != NULL;
    enum yb_status status;
    int code;

    if (argc != 1 || draining.name[0] == '\0' || strlen(draining.name) > 63) {
        fprintf(cli->err, "yuebing drain: say which node, as `yuebing nodes` names it\n");
        return YB_CLI_EXIT_REFUSED;
    }
    status = yb_cli_store_open(cli, true, &draining.store);
    if (status != YB_OK) {
        return status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED
                                                           : YB_CLI_EXIT_FAILED;
    }
    if (find(&draining.store, draining.name) == NULL) {
        snprintf(draining.store.error, sizeof(draining.store.error),
                 "there is no node \"%s\"; `yuebing nodes` lists them", draining.name);
        status = YB_NOT_FOUND;
    }
    status = status == YB_OK ? look(&draining) : status;
    draining.first = draining.blocks;
    status = status == YB_OK ? order(&draining, undo, yb_cli_option(cli, "force") != NULL) : status;
    status = status == YB_OK && !undo ? watch(&draining) : status;
    code = report(&draining, status, undo);
    yb_cli_store_close(&draining.store);
    return code;
}
