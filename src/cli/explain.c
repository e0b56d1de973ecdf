/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing stat` and `yuebing explain`: one block, as the directory and the nodes see it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "cli/output.h"
#include "cli/store.h"
#include "directory/index.h"
#include "node/wire/node_wire.h"

const struct yb_cli_option yb_cli_stat_options[] = {
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

const struct yb_cli_option yb_cli_explain_options[] = {
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

/* ---- asking --------------------------------------------------------------------------------- */

static enum yb_status
ask_directory(struct yb_cli_store *store, struct yb_cli_block *block)
{
    const struct yb_wire_explain_question asked = {.hash = block->hash};
    uint8_t body[YB_WIRE_EXPLAIN_QUESTION_BYTES];
    size_t length = 0;
    enum yb_status status;

    YB_ASSERT(yb_wire_explain_question_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_cli_store_ask(store, &(struct yb_cli_question){
                                         .type = YB_WIRE_DIRECTORY_TYPE_EXPLAIN_KEY,
                                         .body = body,
                                         .body_bytes = length,
                                     });
    if (status == YB_OK && yb_wire_explanation_decode(store->reply, store->reply_bytes,
                                                      &block->known, NULL) != YB_OK) {
        snprintf(store->error, sizeof(store->error), "the answer is none to that question");
        status = YB_PROTOCOL;
    }
    return status;
}

static void
ask_copy(struct yb_cli_store *store, const struct yb_cli_block *block, const char *key,
         struct yb_cli_copy *copy)
{
    const struct yb_wire_member *member = yb_cli_store_member(store, copy->slot);
    const struct yb_wire_get_item item = {.hash = block->hash, .key_bytes = (uint16_t)strlen(key)};
    const struct yb_wire_get asked = {
        .items = {.count = 1, .native = &item},
        .keys = {.bytes = (const uint8_t *)key, .length = (uint32_t)strlen(key)},
    };
    uint8_t body[YB_WIRE_GET_BYTES + YB_WIRE_GET_ITEM_BYTES + YB_CLIENT_KEY_BYTES_MAX];
    struct yb_wire_block_infos told;
    struct yb_wire_block_info info;
    size_t length = 0;

    if (member == NULL) {
        snprintf(copy->node, sizeof(copy->node), "slot %u", copy->slot);
        copy->status = YB_PEER_LOST;
        return;
    }
    snprintf(copy->node, sizeof(copy->node), "%.*s", (int)sizeof(member->name),
             (const char *)member->name);
    YB_ASSERT(yb_wire_get_encode(&asked, body, sizeof(body), &length) == YB_OK);
    copy->asked = true;
    copy->status = yb_cli_store_ask_node(store, member,
                                         &(struct yb_cli_question){
                                             .type = YB_WIRE_NODE_TYPE_BLOCK_STAT,
                                             .body = body,
                                             .body_bytes = length,
                                         });
    if (copy->status == YB_OK &&
        (yb_wire_block_infos_decode(store->reply, store->reply_bytes, &told, NULL) != YB_OK ||
         told.answers.count != 1)) {
        copy->status = YB_PROTOCOL;
    }
    if (copy->status == YB_OK) {
        yb_wire_block_info_at(&told.answers, 0, &info);
        copy->block = (enum yb_status)info.status;
        copy->size = info.size;
        copy->ttl_ms = info.ttl_ms;
        copy->idle_ms = info.idle_ms;
        copy->pins = info.pins;
        copy->hold_ms = info.hold_ms;
        copy->fate = info.fate;
    }
}

enum yb_status
yb_cli_store_block(struct yb_cli_store *store, const char *key, struct yb_cli_block *block_out)
{
    const char *tenant = store->cli->config.auth_tenant;
    const struct yb_wire_explanation *known = &block_out->known;
    enum yb_status status;

    *block_out = (struct yb_cli_block){0};
    block_out->hash =
        yb_hash_key(store->cluster.seed, (struct yb_hash_bytes){tenant, strlen(tenant)},
                    (struct yb_hash_bytes){key, strlen(key)});
    status = ask_directory(store, block_out);
    if (status == YB_OK) {
        const uint16_t slots[] = {known->slot0, known->slot1, known->slot2, known->slot3};
        const uint8_t tiers[] = {known->tier0, known->tier1, known->tier2, known->tier3};

        for (unsigned i = 0; i < 4 && slots[i] != 0; i++) {
            struct yb_cli_copy *copy = &block_out->copies[block_out->copy_count++];

            copy->slot = slots[i];
            copy->tier = tiers[i];
            ask_copy(store, block_out, key, copy);
        }
    }
    return status;
}

/* ---- telling -------------------------------------------------------------------------------- */

static bool
is_there(const struct yb_cli_block *block)
{
    return block->known.presence == YB_WIRE_PRESENCE_PRESENT ||
           block->known.presence == YB_WIRE_PRESENCE_SUSPECT;
}

/* Exact if a node has said so, otherwise as the directory remembers it: rounded up. */
static uint64_t
size_of(const struct yb_cli_block *block)
{
    for (uint32_t i = 0; i < block->copy_count; i++) {
        if (block->copies[i].status == YB_OK && block->copies[i].block == YB_OK) {
            return block->copies[i].size;
        }
    }
    return yb_index_size_decode(block->known.size_code);
}

/* To the directory, what a node withdraws is evicted; the node knows better. */
static unsigned
fate_of(const struct yb_cli_block *block)
{
    unsigned fate = block->known.fate;

    for (uint32_t i = 0; fate == YB_WIRE_FATE_EVICTED && i < block->copy_count; i++) {
        const struct yb_cli_copy *copy = &block->copies[i];

        if (copy->status == YB_OK && copy->block == YB_NOT_FOUND &&
            copy->fate == YB_WIRE_FATE_EXPIRED) {
            fate = copy->fate;
        }
    }
    return fate;
}

/* null: no reuse gate declined it, as far as is remembered. */
static json_t *
decline_as_json(const struct yb_wire_explanation *known)
{
    return known->declined == YB_WIRE_DECLINE_NONE
               ? json_null()
               : json_pack("{s:s, s:I, s:I, s:I}", "reason", yb_wire_decline_name(known->declined),
                           "ago_ms", (json_int_t)known->declined_ms, "load_us",
                           (json_int_t)known->load_us, "compute_us", (json_int_t)known->compute_us);
}

static json_t *
as_json(const struct yb_cli_block *block, const char *key)
{
    json_t *copies = json_array();
    json_t *told;
    char hash[33];

    for (uint32_t i = 0; i < block->copy_count; i++) {
        const struct yb_cli_copy *copy = &block->copies[i];

        json_array_append_new(
            copies,
            json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I}", "node", copy->node, "slot",
                      (int)copy->slot, "tier", yb_wire_tier_name(copy->tier), "status",
                      yb_status_name(copy->status == YB_OK ? copy->block : copy->status), "ttl_ms",
                      (json_int_t)copy->ttl_ms, "idle_ms", (json_int_t)copy->idle_ms, "pins",
                      (json_int_t)copy->pins, "hold_ms", (json_int_t)copy->hold_ms));
    }
    yb_id_format(block->hash, hash);
    told = json_pack("{s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:b, s:i, s:o, s:o}", "hash", hash,
                     "presence", yb_wire_presence_name(block->known.presence), "hidden",
                     (int)block->known.hidden, "fate",
                     is_there(block) ? "" : yb_wire_fate_name(fate_of(block)), "grant",
                     (json_int_t)block->known.grant, "ago_ms", (json_int_t)block->known.ago_ms,
                     "eta_us", (json_int_t)block->known.eta_us, "bytes",
                     (json_int_t)(is_there(block) ? size_of(block) : 0), "held",
                     (int)(block->known.hold_ms != 0), "replicas", (int)block->known.count,
                     "copies", copies, "declined", decline_as_json(&block->known));
    yb_cli_json_key(told, key, strlen(key));
    return told;
}

static void
print_copy(FILE *out, const struct yb_cli_copy *copy)
{
    char idle[YB_CLI_BYTES_TEXT], span[YB_CLI_BYTES_TEXT];

    fprintf(out, "  on %s (%s): ", copy->node, yb_wire_tier_name(copy->tier));
    if (!copy->asked) {
        fprintf(out, "that node is gone\n");
        return;
    }
    if (copy->status != YB_OK || copy->block != YB_OK) {
        enum yb_status status = copy->status != YB_OK ? copy->status : copy->block;

        fprintf(out, "%s: %s\n", yb_status_name(status), yb_status_text(status));
        return;
    }
    yb_cli_span_text(copy->idle_ms, idle);
    fprintf(out, "used %s ago", idle);
    if (copy->ttl_ms > 0) {
        yb_cli_span_text(copy->ttl_ms, span);
        fprintf(out, ", expires in %s", span);
    }
    if (copy->pins > 0) {
        fprintf(out, ", read by %" PRIu32 " now", copy->pins);
    }
    if (copy->hold_ms > 0) {
        yb_cli_span_text(copy->hold_ms, span);
        fprintf(out, ", held for %s", span);
    }
    fputc('\n', out);
}

static void
print_flags(FILE *out, uint16_t flags)
{
    if ((flags & YB_WIRE_BLOCK_FLAG_HARD_PIN) != 0) {
        fprintf(out, "  pinned: never evicted\n");
    }
    if ((flags & YB_WIRE_BLOCK_FLAG_SOFT_PIN) != 0) {
        fprintf(out,
                "  pinned softly: evicted after everything that is not, while the pin lasts\n");
    }
    if ((flags & YB_WIRE_BLOCK_FLAG_GROUP) != 0) {
        fprintf(out, "  part of a group: evicted with the rest of it\n");
    }
    if ((flags & YB_WIRE_BLOCK_FLAG_VERSIONED) != 0) {
        fprintf(out, "  written by replace: clients look it up every time\n");
    }
}

static void
print_present(FILE *out, const struct yb_cli_block *block)
{
    char size[YB_CLI_BYTES_TEXT], ago[YB_CLI_BYTES_TEXT], held[YB_CLI_BYTES_TEXT];

    yb_cli_bytes_text(size_of(block), size);
    yb_cli_span_text(block->known.ago_ms, ago);
    fprintf(out, "there: %s (%" PRIu64 " bytes), version %" PRIx64 ", %u cop%s\n", size,
            size_of(block), block->known.grant, block->known.count,
            block->known.count == 1 ? "y" : "ies");
    for (uint32_t i = 0; i < block->copy_count; i++) {
        print_copy(out, &block->copies[i]);
    }
    print_flags(out, block->known.flags);
    if (block->known.hold_ms > 0) {
        yb_cli_span_text(block->known.hold_ms, held);
        fprintf(out, "  held for %s: a removal without --force is refused\n", held);
    }
    if (block->known.presence == YB_WIRE_PRESENCE_SUSPECT) {
        fprintf(out, "  every node that has it is suspect: `yuebing nodes` shows them\n");
    }
}

static void
print_absent(FILE *out, const struct yb_cli_block *block)
{
    static const char *const fates[] = {
        [YB_WIRE_FATE_NEVER_PUT] = "never put, as far as the directory remembers",
        [YB_WIRE_FATE_EVICTED] = "evicted: its node made room for other blocks",
        [YB_WIRE_FATE_REMOVED] = "removed by a client, or dropped with a drained node",
        [YB_WIRE_FATE_FLUSHED] = "removed with everything of its tenant",
        [YB_WIRE_FATE_SLOT_LOST] = "lost: the last node that had it died",
        [YB_WIRE_FATE_EXPIRED] = "expired: its time to live has passed",
    };
    static const char *const remedies[] = {
        [YB_WIRE_FATE_NEVER_PUT] = "check key and tenant; what was put long ago may be forgotten",
        [YB_WIRE_FATE_EVICTED] = "put --pin keeps a block, node --memory gives more room",
        [YB_WIRE_FATE_REMOVED] = "put it again",
        [YB_WIRE_FATE_FLUSHED] = "put it again",
        [YB_WIRE_FATE_SLOT_LOST] = "put --replicas 2 survives the loss of a node",
        [YB_WIRE_FATE_EXPIRED] = "put --ttl-ms says how long, no such option: for good",
    };
    unsigned fate = fate_of(block);
    char ago[YB_CLI_BYTES_TEXT];

    YB_ASSERT(fate < sizeof(fates) / sizeof(fates[0])); /* The decoder refuses others. */
    yb_cli_span_text(block->known.ago_ms, ago);
    if (fate == YB_WIRE_FATE_NEVER_PUT) {
        fprintf(out, "not there: %s\n", fates[fate]);
    } else {
        fprintf(out, "not there: %s, %s ago\n", fates[fate], ago);
    }
    for (uint32_t i = 0; i < block->copy_count; i++) {
        fprintf(out, "  last on %s\n", block->copies[i].node);
    }
    fprintf(out, "  %s\n", remedies[fate]);
}

static void
print_on_its_way(FILE *out, const struct yb_cli_block *block)
{
    if (block->known.hidden == 0 && block->known.eta_us == 0) {
        fprintf(out, "on its way, and late: whoever said that it would be written is slow, or has "
                     "gone without a word, which is forgotten after two minutes\n");
        return;
    }
    if (block->known.hidden == 0) {
        fprintf(out, "on its way: somebody is writing it, it may be there in %.1f ms\n",
                (double)block->known.eta_us / 1e3);
        return;
    }
    fprintf(out,
            "not shown yet: it was put after a removal of which a node has not heard, and which "
            "may still serve the block of before\n");
    for (uint32_t i = 0; i < block->copy_count; i++) {
        print_copy(out, &block->copies[i]);
    }
    fprintf(out, "  it is shown when that node has answered, or its lease is over: `yuebing nodes` "
                 "shows who is suspect\n");
}

/* Say why an engine did not load a block that was there. */
static void
print_decline(FILE *out, const struct yb_wire_explanation *known)
{
    char ago[YB_CLI_BYTES_TEXT];

    yb_cli_span_text(known->declined_ms, ago);
    if (known->declined == YB_WIRE_DECLINE_SLOWER) {
        fprintf(out,
                "  declined by a reuse gate %s ago: to load up to here would have taken %.1f ms, "
                "to compute it %.1f ms\n",
                ago, known->load_us / 1e3, known->compute_us / 1e3);
    } else if (known->declined == YB_WIRE_DECLINE_BEHIND_GAP) {
        fprintf(out, "  declined by a reuse gate %s ago: a block before it was not there\n", ago);
    }
}

static void
print_text(const struct yb_cli *cli, const struct yb_cli_block *block, const char *key)
{
    FILE *out = cli->out;
    char hash[33];

    yb_id_format(block->hash, hash);
    yb_cli_print_key(out, key, strlen(key));
    fprintf(out, ", tenant %s, hash %s\n", cli->config.auth_tenant, hash);
    switch (block->known.presence) {
    case YB_WIRE_PRESENCE_PRESENT:
    case YB_WIRE_PRESENCE_SUSPECT: print_present(out, block); break;
    case YB_WIRE_PRESENCE_IN_PROGRESS: print_on_its_way(out, block); break;
    case YB_WIRE_PRESENCE_REBUILDING:
        fprintf(out, "not known yet: the directory is still being told what its nodes hold; "
                     "ask again in a moment\n");
        break;
    default: print_absent(out, block); break;
    }
    print_decline(out, &block->known);
}

/* Ask, and tell. `found_out` says whether it is there. */
static int
look(struct yb_cli *cli, int argc, char **argv, bool *found_out)
{
    struct yb_cli_store store;
    struct yb_cli_block block;
    enum yb_status status;
    int code = 0;

    if (argc != 1) {
        fprintf(cli->err, "yuebing %s: say which key: yuebing %s KEY\n", cli->command->name,
                cli->command->name);
        return YB_CLI_EXIT_REFUSED;
    }
    if (!yb_cli_key_fits(cli, argv[0])) {
        return YB_CLI_EXIT_REFUSED;
    }
    status = yb_cli_store_open(cli, false, &store);
    if (status != YB_OK) {
        return status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED
                                                           : YB_CLI_EXIT_FAILED;
    }
    status = yb_cli_store_block(&store, argv[0], &block);
    if (status != YB_OK) {
        code = yb_cli_store_fail(&store, status);
    } else if (!cli->json) {
        print_text(cli, &block, argv[0]);
    } else if (yb_output_json(cli->out, as_json(&block, argv[0])) != YB_OK) {
        code = YB_CLI_EXIT_FAILED;
    }
    *found_out = status == YB_OK && is_there(&block);
    yb_cli_store_close(&store);
    return code;
}

int
yb_cli_stat(struct yb_cli *cli, int argc, char **argv)
{
    bool found = false;
    int code = look(cli, argc, argv, &found);

    if (code == 0 && !found) {
        fprintf(cli->err, "yuebing stat: %s: %s: %s\n", argv[0], yb_status_name(YB_NOT_FOUND),
                yb_cli_outcome_text(YB_NOT_FOUND));
        code = YB_CLI_EXIT_FAILED;
    }
    return code;
}

/* Whoever asks why has been answered, also about what is not there. */
int
yb_cli_explain(struct yb_cli *cli, int argc, char **argv)
{
    bool found = false;

    return look(cli, argc, argv, &found);
}
