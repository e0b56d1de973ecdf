/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing nodes`: who holds blocks, as the directory knows it; `yuebing node check`: what each
 * says of its own memory, and whether that adds up.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/output.h"
#include "cli/store.h"
#include "node/wire/node_wire.h"

#define BAR_CELLS 16u

const struct yb_cli_option yb_cli_nodes_options[] = {
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

/* A text that is padded with zero bytes. */
#define PADDED(bytes) (int)strnlen((const char *)(bytes), sizeof(bytes)), (const char *)(bytes)

static unsigned
percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (unsigned)(100.0 * (double)part / (double)whole + 0.5);
}

static void
bar_text(uint64_t used, uint64_t capacity, char *text_out, size_t room)
{
    unsigned filled = capacity == 0 ? 0 : (unsigned)((double)used / (double)capacity * BAR_CELLS);
    char cells[BAR_CELLS + 1];

    filled = filled > BAR_CELLS ? BAR_CELLS : filled;
    memset(cells, '.', BAR_CELLS);
    memset(cells, '#', filled);
    cells[BAR_CELLS] = '\0';
    snprintf(text_out, room, "[%s] %3u %%", cells, percent(used, capacity));
}

static enum yb_status
add_row(struct yb_output_table *table, const struct yb_wire_member *member)
{
    char name[65], address[65], used[YB_CLI_BYTES_TEXT], capacity[YB_CLI_BYTES_TEXT];
    char of[2 * YB_CLI_BYTES_TEXT + 8], bar[BAR_CELLS + 16], age[YB_CLI_BYTES_TEXT], place[70];
    char state[48];
    const char *cells[] = {name, address, state, bar, of, age, place};

    snprintf(name, sizeof(name), "%.*s", PADDED(member->name));
    snprintf(address, sizeof(address), "%.*s", PADDED(member->address));
    snprintf(state, sizeof(state), "%s", yb_wire_slot_state_name(member->state));
    if (member->drained != 0) {
        snprintf(state, sizeof(state), "drained");
    } else if (member->drain_stuck > 0) {
        snprintf(state, sizeof(state), "draining, %" PRIu32 " fit nowhere", member->drain_stuck);
    }
    snprintf(place, sizeof(place), "%.*s%s%.*s", PADDED(member->rack),
             member->zone[0] == 0 ? "" : "/", PADDED(member->zone));
    bar_text(member->used, member->capacity, bar, sizeof(bar));
    yb_cli_bytes_text(member->used, used);
    yb_cli_bytes_text(member->capacity, capacity);
    snprintf(of, sizeof(of), "%s of %s", used, capacity);
    yb_cli_span_text(member->age_ms, age);
    return yb_output_table_add(table, cells);
}

/* So long the nodes may take to tell of their tiers, all of them. */
#define TIERS_ALL_NS (3 * YB_NS_PER_S)

static void
print_tiers(FILE *out, const struct yb_wire_member *member, const struct yb_cli_tiers *tiers)
{
    for (uint32_t i = 0; i < tiers->count; i++) {
        const struct yb_wire_tier_state *tier = &tiers->each[i];

        if (tier->works == 0) {
            fprintf(out, "%.*s: its tier %s has stepped aside (%s): %.*s\n", PADDED(member->name),
                    yb_wire_tier_name(tier->tier), yb_status_name((enum yb_status)tier->status),
                    PADDED(tier->why));
        }
    }
}

static json_t *
tiers_json(const struct yb_cli_tiers *tiers)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < tiers->count; i++) {
        const struct yb_wire_tier_state *tier = &tiers->each[i];

        json_array_append_new(rows,
                              json_pack("{s:s, s:b, s:s, s:s%}", "tier",
                                        yb_wire_tier_name(tier->tier), "works", (int)tier->works,
                                        "status", yb_status_name((enum yb_status)tier->status),
                                        "why", (const char *)tier->why,
                                        strnlen((const char *)tier->why, sizeof(tier->why))));
    }
    return rows;
}

static enum yb_status
ask_numbers(struct yb_cli_store *store, struct yb_wire_directory_numbers *numbers_out)
{
    enum yb_status status = yb_cli_store_ask(
        store, &(struct yb_cli_question){.type = YB_WIRE_DIRECTORY_TYPE_DIRECTORY_STAT});

    if (status == YB_OK && yb_wire_directory_numbers_decode(store->reply, store->reply_bytes,
                                                            numbers_out, NULL) != YB_OK) {
        snprintf(store->error, sizeof(store->error), "the answer is none to that question");
        status = YB_PROTOCOL;
    }
    return status;
}

/* What is being copied after a death, or for a drain. */
static void
print_repair(FILE *out, const struct yb_wire_directory_numbers *numbers)
{
    char rate[YB_CLI_BYTES_TEXT];

    if (numbers->repairs_waiting > 0 || numbers->repair_blocks_rate > 0) {
        yb_cli_bytes_text(numbers->repair_bytes_rate, rate);
        fprintf(out,
                "copies are being made: %" PRIu64 " blocks/s, %s/s; %" PRIu64 " blocks are left\n",
                numbers->repair_blocks_rate, rate, numbers->repairs_waiting);
    }
}

static json_t *
repair_json(const struct yb_wire_directory_numbers *numbers)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "waiting", (json_int_t)numbers->repairs_waiting,
                     "blocks_per_s", (json_int_t)numbers->repair_blocks_rate, "bytes_per_s",
                     (json_int_t)numbers->repair_bytes_rate, "copied_bytes",
                     (json_int_t)numbers->repaired_bytes);
}

static enum yb_status
print_nodes(const struct yb_cli_store *store)
{
    static const char *const columns[] = {"NODE", "ADDRESS", "STATE",    "USED",
                                          "",     "HEARD",   "RACK/ZONE"};
    struct yb_output_table *table = NULL;
    enum yb_status status = yb_output_table_create(columns, 7, &table);

    for (uint32_t i = 0; status == YB_OK && i < store->member_count; i++) {
        status = add_row(table, &store->members[i]);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, store->cli->out, store->cli->terminal);
    }
    yb_output_table_destroy(&table);
    if (store->cluster.rebuilding != 0) {
        fprintf(store->cli->out,
                "the directory is still being told what its nodes hold: %u of 1000\n",
                store->cluster.rebuilt_permille);
    }
    return status;
}

/* How much of its pool is in huge pages; all ones: its kernel does not say. */
static bool
is_huge_known(const struct yb_wire_member *member)
{
    return member->huge_bytes != UINT64_MAX;
}

static json_t *
huge_json(const struct yb_wire_member *member)
{
    return is_huge_known(member) ? json_integer((json_int_t)member->huge_bytes) : json_null();
}

static json_t *
member_json(const struct yb_wire_member *member)
{
    char incarnation[17];

    snprintf(incarnation, sizeof(incarnation), "%016" PRIx64, member->incarnation);
    return json_pack(
        "{s:s%, s:s%, s:s%, s:s%, s:s, s:i, s:s, s:I, s:I, s:I, s:b, s:I, s:o}", "name",
        (const char *)member->name, strnlen((const char *)member->name, sizeof(member->name)),
        "address", (const char *)member->address,
        strnlen((const char *)member->address, sizeof(member->address)), "rack",
        (const char *)member->rack, strnlen((const char *)member->rack, sizeof(member->rack)),
        "zone", (const char *)member->zone,
        strnlen((const char *)member->zone, sizeof(member->zone)), "state",
        yb_wire_slot_state_name(member->state), "slot", (int)member->slot, "incarnation",
        incarnation, "capacity", (json_int_t)member->capacity, "used", (json_int_t)member->used,
        "age_ms", (json_int_t)member->age_ms, "drained", (int)member->drained, "drain_stuck",
        (json_int_t)member->drain_stuck, "huge_bytes", huge_json(member));
}

int
yb_cli_nodes(struct yb_cli *cli, int argc, char **argv)
{
    struct yb_wire_directory_numbers numbers;
    struct yb_cli_store store;
    enum yb_status status = yb_cli_store_open(cli, false, &store);
    uint64_t left_ns = TIERS_ALL_NS;
    char id[33];

    (void)argc;
    (void)argv;
    if (status != YB_OK) {
        return status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED
                                                           : YB_CLI_EXIT_FAILED;
    }
    status = ask_numbers(&store, &numbers);
    if (status != YB_OK) {
        int code = yb_cli_store_fail(&store, status);

        yb_cli_store_close(&store);
        return code;
    }
    if (cli->json) {
        json_t *rows = json_array();

        for (uint32_t i = 0; i < store.member_count; i++) {
            json_t *row = member_json(&store.members[i]);
            struct yb_cli_tiers tiers;

            yb_cli_store_tiers(&store, &store.members[i], &left_ns, &tiers);
            json_object_set_new(row, "tiers", tiers_json(&tiers));
            json_array_append_new(rows, row);
        }
        yb_id_format(store.cluster.cluster, id);
        status =
            yb_output_json(cli->out, json_pack("{s:s, s:I, s:I, s:b, s:o, s:o}", "cluster", id,
                                               "epoch", (json_int_t)store.cluster.epoch, "lease_ms",
                                               (json_int_t)store.cluster.lease_ms, "rebuilding",
                                               (int)store.cluster.rebuilding, "nodes", rows,
                                               "repair", repair_json(&numbers)));
    } else if (store.member_count == 0) {
        fprintf(cli->out, "no nodes; `yuebing node --directory %s` starts one\n",
                cli->config.directory_address);
    } else {
        status = print_nodes(&store);
        print_repair(cli->out, &numbers);
        for (uint32_t i = 0; i < store.member_count; i++) {
            struct yb_cli_tiers tiers;

            yb_cli_store_tiers(&store, &store.members[i], &left_ns, &tiers);
            print_tiers(cli->out, &store.members[i], &tiers);
        }
    }
    yb_cli_store_close(&store);
    return status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}

/* ---- node check ----------------------------------------------------------------------------- */

struct checked {
    enum yb_status status; /* Of the question. */
    struct yb_wire_node_numbers numbers;
    bool adds_up;
};

static void
check_node(struct yb_cli_store *store, const struct yb_wire_member *member, struct checked *out)
{
    struct yb_wire_node_numbers *numbers = &out->numbers;

    *out = (struct checked){0};
    out->status = yb_cli_store_ask_node(
        store, member, &(struct yb_cli_question){.type = YB_WIRE_NODE_TYPE_NODE_CHECK});
    if (out->status == YB_OK &&
        yb_wire_node_numbers_decode(store->reply, store->reply_bytes, numbers, NULL) != YB_OK) {
        out->status = YB_PROTOCOL;
        snprintf(store->error, sizeof(store->error), "the answer is none to that question");
    }
    if (out->status != YB_OK) {
        fprintf(store->cli->err, "yuebing node: %.*s at %.*s: %s: %s\n", PADDED(member->name),
                PADDED(member->address), yb_status_name(out->status), store->error);
        return;
    }
    out->adds_up = numbers->consistent == 1 && numbers->used == numbers->live + numbers->in_flight +
                                                                    numbers->ungranted +
                                                                    numbers->quarantined;
}

/* Where a pool lies, all ones: its node does not know. */
static bool
is_numa_known(const struct yb_wire_node_numbers *numbers)
{
    return numbers->numa_node != UINT32_MAX;
}

static void
print_checked(FILE *out, const struct yb_wire_member *member, const struct checked *checked)
{
    const struct yb_wire_node_numbers *numbers = &checked->numbers;
    char texts[8][YB_CLI_BYTES_TEXT];
    const uint64_t values[8] = {numbers->used,         numbers->capacity,  numbers->live,
                                numbers->in_flight,    numbers->ungranted, numbers->quarantined,
                                numbers->largest_free, numbers->page_bytes};

    for (unsigned i = 0; i < 8; i++) {
        yb_cli_bytes_text(values[i], texts[i]);
    }
    fprintf(out, "%.*s at %.*s, %s, lease %" PRIu64 " ms\n", PADDED(member->name),
            PADDED(member->address), yb_wire_slot_state_name(numbers->state),
            numbers->lease_left_ms);
    fprintf(out, "  %s used of %s = %s live + %s in flight + %s ungranted + %s quarantined: %s\n",
            texts[0], texts[1], texts[2], texts[3], texts[4], texts[5],
            checked->adds_up ? "adds up" : "DOES NOT ADD UP");
    fprintf(out, "  %" PRIu64 " blocks, longest free piece %s, pages of %s", numbers->blocks,
            texts[6], texts[7]);
    if (is_huge_known(member)) {
        yb_cli_bytes_text(member->huge_bytes, texts[0]);
        fprintf(out, ", %s in huge ones", texts[0]);
    }
    if (is_numa_known(numbers)) {
        fprintf(out, ", on NUMA node %" PRIu32, numbers->numa_node);
    }
    fputc('\n', out);
    fprintf(out,
            "  %" PRIu64 " puts, %" PRIu64 " gets, %" PRIu64 " hits, %" PRIu64 " evicted, %" PRIu64
            " refused for want of room\n",
            numbers->puts, numbers->gets, numbers->hits, numbers->evicted, numbers->refused_space);
    if (numbers->below > 0) {
        yb_cli_bytes_text(numbers->below_bytes, texts[0]);
        fprintf(out, "  %" PRIu64 " blocks below memory, %s on all media\n", numbers->below,
                texts[0]);
    }
}

static json_t *
checked_json(const struct yb_wire_member *member, const struct checked *checked)
{
    const struct yb_wire_node_numbers *n = &checked->numbers;
    json_t *row = member_json(member);

    json_object_set_new(row, "status", json_string(yb_status_name(checked->status)));
    if (checked->status == YB_OK) {
        json_object_update_new(
            row, json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "consistent",
                           (int)checked->adds_up, "used", (json_int_t)n->used, "live",
                           (json_int_t)n->live, "in_flight", (json_int_t)n->in_flight, "ungranted",
                           (json_int_t)n->ungranted, "quarantined", (json_int_t)n->quarantined,
                           "pinned", (json_int_t)n->pinned, "held", (json_int_t)n->held,
                           "largest_free", (json_int_t)n->largest_free, "page_bytes",
                           (json_int_t)n->page_bytes, "blocks", (json_int_t)n->blocks));
        json_object_update_new(
            row,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "below", (json_int_t)n->below,
                      "below_bytes", (json_int_t)n->below_bytes, "puts", (json_int_t)n->puts,
                      "gets", (json_int_t)n->gets, "hits", (json_int_t)n->hits, "evicted",
                      (json_int_t)n->evicted, "refused_space", (json_int_t)n->refused_space,
                      "lease_left_ms", (json_int_t)n->lease_left_ms));
        json_object_set_new(row, "numa_node",
                            is_numa_known(n) ? json_integer(n->numa_node) : json_null());
    }
    return row;
}

int
yb_cli_node_check(struct yb_cli *cli)
{
    struct yb_cli_store store;
    json_t *rows;
    enum yb_status status = yb_cli_store_open(cli, true, &store);
    int code = 0;

    if (status != YB_OK) {
        return status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED
                                                           : YB_CLI_EXIT_FAILED;
    }
    rows = json_array();
    for (uint32_t i = 0; i < store.member_count; i++) {
        struct checked checked;

        check_node(&store, &store.members[i], &checked);
        code = checked.adds_up ? code : YB_CLI_EXIT_FAILED;
        json_array_append_new(rows, checked_json(&store.members[i], &checked));
        if (!cli->json && checked.status == YB_OK) {
            print_checked(cli->out, &store.members[i], &checked);
        }
    }
    if (store.member_count == 0) {
        fprintf(cli->err, "yuebing node: no nodes at the directory %s\n",
                cli->config.directory_address);
        code = YB_CLI_EXIT_FAILED;
    }
    if (cli->json && yb_output_json(cli->out, json_pack("{s:O}", "nodes", rows)) != YB_OK) {
        code = YB_CLI_EXIT_FAILED;
    }
    json_decref(rows);
    yb_cli_store_close(&store);
    return code;
}
