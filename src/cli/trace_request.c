/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing trace REQUEST`: a request's life, from all processes that took part, on one clock.
 * `yuebing trace --slowest N`: those that took longest.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ask.h"
#include "cli/output.h"
#include "cli/request_spans.h"
#include "cli/simulate.h"
#include "observe/span_json.h"

#define SLOWEST_MAX 100u
#define CELL_BYTES  64u

/* ---- the tree -------------------------------------------------------------------------------- */

/* Spans in the order of a walk over their tree, earlier ones first. */
struct order {
    uint32_t *places;
    uint32_t *next;  /* The next one with the same parent. */
    uint32_t *first; /* Child; of YB_JOIN_NONE it is `root`. */
    uint32_t root;
    const struct yb_joined *spans;
};

static int
compare_later(const void *a, const void *b, void *context)
{
    const struct yb_joined *spans = context;
    const struct yb_joined *one = &spans[*(const uint32_t *)a];
    const struct yb_joined *other = &spans[*(const uint32_t *)b];

    return (one->start_ns < other->start_ns) - (one->start_ns > other->start_ns);
}

static bool
order_spans(struct yb_request_spans *all, struct order *order)
{
    uint32_t count = all->count;
    uint32_t at;
    uint32_t done = 0;

    *order = (struct order){
        .places = malloc(sizeof(uint32_t) * (count + 1)),
        .next = malloc(sizeof(uint32_t) * (count + 1)),
        .first = malloc(sizeof(uint32_t) * (count + 1)),
        .root = YB_JOIN_NONE,
        .spans = all->spans,
    };
    if (order->places == NULL || order->next == NULL || order->first == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        order->places[i] = i;
        order->first[i] = YB_JOIN_NONE;
    }
    qsort_r(order->places, count, sizeof(*order->places), compare_later, all->spans);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = order->places[i];
        uint32_t parent = all->spans[place].parent;
        uint32_t *list = parent == YB_JOIN_NONE ? &order->root : &order->first[parent];

        order->next[place] = *list;
        *list = place;
    }
    for (at = order->root; at != YB_JOIN_NONE;) {
        order->places[done++] = at;
        if (order->first[at] != YB_JOIN_NONE) {
            at = order->first[at];
            continue;
        }
        while (at != YB_JOIN_NONE && order->next[at] == YB_JOIN_NONE) {
            at = all->spans[at].parent;
        }
        at = at != YB_JOIN_NONE ? order->next[at] : YB_JOIN_NONE;
    }
    return done == count;
}

static void
free_order(struct order *order)
{
    free(order->places);
    free(order->next);
    free(order->first);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* What carried an instruction out: the last load or pull in the same engine that began before it
 * ended. NULL: nothing is known. */
static const struct yb_joined *
carrier_of(const struct yb_request_spans *all, const struct yb_joined *instruction)
{
    const struct yb_joined *carrier = NULL;

    for (uint32_t i = 0; i < all->count; i++) {
        const struct yb_joined *joined = &all->spans[i];

        if ((joined->span.kind == YB_SPAN_KIND_LOAD || joined->span.kind == YB_SPAN_KIND_PULL) &&
            joined->process == instruction->process &&
            joined->start_ns <= yb_joined_end(instruction) &&
            (carrier == NULL || joined->start_ns > carrier->start_ns)) {
            carrier = joined;
        }
    }
    return carrier;
}

static json_t *
instruction_json(const struct yb_request_spans *all, const struct yb_joined *joined,
                 int64_t zero_ns)
{
    const struct yb_joined *carrier = carrier_of(all, joined);

    return json_pack(
        "{s:I, s:I, s:o, s:o, s:I, s:s, s:s}", "id", (json_int_t)joined->span.number, "decided_us",
        (json_int_t)((joined->start_ns - zero_ns) / 1000), "queued_us",
        carrier != NULL ? json_integer((json_int_t)((carrier->start_ns - zero_ns) / 1000))
                        : json_null(),
        "started_us",
        carrier != NULL ? json_integer((json_int_t)((yb_joined_began(carrier) - zero_ns) / 1000))
                        : json_null(),
        "finished_us", (json_int_t)((yb_joined_end(joined) - zero_ns) / 1000), "tier",
        yb_span_tier_name(joined->span.tier), "outcome",
        yb_status_name((enum yb_status)joined->span.outcome));
}

/* ---- one request ----------------------------------------------------------------------------- */

static json_t *
processes_json(const struct yb_request_spans *all)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < all->process_count; i++) {
        const struct yb_request_spans_process *process = &all->processes[i];
        const bool known = process->clock.unsure_ns <= INT64_MAX;

        (void)json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:b, s:I, s:o}", "address", process->address, "kind",
                      process->kind, "name", process->name, "answered", process->answered,
                      "ahead_ns", (json_int_t)process->clock.ahead_ns, "unsure_ns",
                      known ? json_integer((json_int_t)process->clock.unsure_ns) : json_null()));
    }
    return list;
}

static json_t *
request_json(const struct yb_request_spans *all, const struct order *order, int64_t zero_ns)
{
    json_t *spans = json_array();
    json_t *instructions = json_array();
    char trace[33] = "";

    for (uint32_t i = 0; i < all->count; i++) {
        const struct yb_joined *joined = &all->spans[order->places[i]];
        json_t *row = yb_span_json(&joined->span);
        char what[CELL_BYTES];

        yb_id_format(joined->span.trace, trace);
        yb_request_spans_what(&joined->span, what, sizeof(what));
        (void)json_object_update_new(
            row, json_pack("{s:s, s:I, s:i, s:i, s:I, s:I}", "what", what, "at_ns",
                           (json_int_t)(joined->start_ns - zero_ns), "depth", (int)joined->depth,
                           "process", (int)joined->process, "waited_ns",
                           (json_int_t)(yb_joined_began(joined) - joined->start_ns), "took_ns",
                           (json_int_t)(yb_joined_end(joined) - joined->start_ns)));
        (void)json_array_append_new(spans, row);
        if (joined->span.kind == YB_SPAN_KIND_INSTRUCTION) {
            (void)json_array_append_new(instructions, instruction_json(all, joined, zero_ns));
        }
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "trace", trace, "processes", processes_json(all),
                     "instructions", instructions, "spans", spans);
}

static void
print_clocks(struct yb_cli *cli, const struct yb_request_spans *all)
{
    for (uint32_t i = 1; i < all->process_count; i++) {
        const struct yb_request_spans_process *process = &all->processes[i];

        if (process->answered && process->clock.ahead_ns != 0) {
            fprintf(cli->out, "the clock of %s %s is %.3f ms %s; that is put right here\n",
                    process->kind, process->name,
                    (double)llabs((long long)process->clock.ahead_ns) / 1e6,
                    process->clock.ahead_ns > 0 ? "ahead" : "behind");
        }
    }
}

static bool
add_row(struct yb_output_table *table, const struct yb_request_spans *all,
        const struct yb_joined *joined, int64_t zero_ns)
{
    const struct yb_span *span = &joined->span;
    char cells[8][CELL_BYTES];
    const char *row[8];
    uint32_t indent = joined->depth < 12 ? 2 * joined->depth : 24;
    char what[CELL_BYTES / 2];

    yb_request_spans_what(span, what, sizeof(what));
    (void)snprintf(cells[0], CELL_BYTES, "%.3f", (double)(joined->start_ns - zero_ns) / 1e6);
    (void)snprintf(cells[1], CELL_BYTES, "%.3f",
                   (double)(yb_joined_began(joined) - joined->start_ns) / 1e6);
    (void)snprintf(cells[2], CELL_BYTES, "%.3f",
                   (double)(yb_joined_end(joined) - joined->start_ns) / 1e6);
    (void)snprintf(cells[3], CELL_BYTES, "%*s%s", (int)indent, "", what);
    yb_request_spans_where(all, joined, cells[4], CELL_BYTES);
    (void)snprintf(cells[5], CELL_BYTES, "%s",
                   span->tier != YB_SPAN_TIER_NONE   ? yb_span_tier_name(span->tier)
                   : span->path != YB_SPAN_PATH_NONE ? yb_span_path_name(span->path)
                                                     : "");
    (void)snprintf(cells[6], CELL_BYTES, "%" PRIu64, span->bytes);
    (void)snprintf(cells[7], CELL_BYTES, "%s", yb_status_name((enum yb_status)span->outcome));
    for (uint32_t i = 0; i < 8; i++) {
        row[i] = cells[i];
    }
    return yb_output_table_add(table, row) == YB_OK;
}

static bool
print_spans(struct yb_cli *cli, const struct yb_request_spans *all, const struct order *order,
            int64_t zero_ns)
{
    static const char *const columns[] = {"at ms", "waited ms", "took ms", "what",
                                          "where", "from",      "bytes",   "outcome"};
    struct yb_output_table *table = NULL;
    bool added = yb_output_table_create(columns, 8, &table) == YB_OK;

    for (uint32_t i = 0; i < all->count && added; i++) {
        added = add_row(table, all, &all->spans[order->places[i]], zero_ns);
    }
    if (added) {
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    return added;
}

static void
print_instructions(struct yb_cli *cli, const struct yb_request_spans *all, int64_t zero_ns)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const struct yb_joined *joined = &all->spans[i];
        const struct yb_joined *carrier;

        if (joined->span.kind != YB_SPAN_KIND_INSTRUCTION) {
            continue;
        }
        carrier = carrier_of(all, joined);
        fprintf(cli->out, "instruction %" PRIu64 ": decided %.3f ms", joined->span.number,
                (double)(joined->start_ns - zero_ns) / 1e6);
        if (carrier != NULL) {
            fprintf(cli->out, ", queued %.3f, started %.3f",
                    (double)(carrier->start_ns - zero_ns) / 1e6,
                    (double)(yb_joined_began(carrier) - zero_ns) / 1e6);
        }
        fprintf(cli->out, ", finished %.3f, from %s: %s\n",
                (double)(yb_joined_end(joined) - zero_ns) / 1e6,
                yb_span_tier_name(joined->span.tier),
                yb_status_name((enum yb_status)joined->span.outcome));
    }
}

static int
show_request(struct yb_cli *cli, struct yb_request_spans *all)
{
    struct order order;
    int64_t zero_ns = INT64_MAX;
    int code = YB_CLI_EXIT_FAILED;

    for (uint32_t i = 0; i < all->count; i++) {
        zero_ns = all->spans[i].start_ns < zero_ns ? all->spans[i].start_ns : zero_ns;
    }
    if (order_spans(all, &order)) {
        if (cli->json) {
            code = yb_output_json(cli->out, request_json(all, &order, zero_ns)) == YB_OK
                       ? 0
                       : YB_CLI_EXIT_FAILED;
        } else {
            print_clocks(cli, all);
            code = print_spans(cli, all, &order, zero_ns) ? 0 : YB_CLI_EXIT_FAILED;
            print_instructions(cli, all, zero_ns);
        }
    }
    free_order(&order);
    return code;
}

/* The trace that a request's name stands for: its own number, or that of a decision. */
static bool
find_trace(struct yb_cli *cli, struct yb_request_spans *all, const char *request,
           char trace_out[33])
{
    char query[64];
    struct yb_id id;

    if (yb_id_parse(request, &id)) {
        yb_id_format(id, trace_out);
        return true;
    }
    if (strlen(request) > 18 || strspn(request, "0123456789") != strlen(request)) {
        fprintf(cli->err,
                "yuebing trace: \"%s\" is no request: write its trace (32 hexadecimal digits), or "
                "the number of its decision\n",
                request);
        return false;
    }
    (void)snprintf(query, sizeof(query), "number=%s", request);
    if (!yb_request_spans_add(cli, all, query)) {
        return false;
    }
    if (all->count == 0) {
        fprintf(cli->err, "yuebing trace: nobody remembers a request of decision %s\n", request);
        return false;
    }
    for (uint32_t i = 1; i < all->count; i++) {
        if (!yb_id_equal(all->spans[i].span.trace, all->spans[0].span.trace)) {
            fprintf(cli->err, "yuebing trace: several requests have that number; this is one\n");
            break;
        }
    }
    yb_id_format(all->spans[0].span.trace, trace_out);
    yb_request_spans_clear(all);
    return true;
}

int
yb_cli_trace_request(struct yb_cli *cli, const char *request)
{
    const char *at = yb_cli_option(cli, "at");
    const char *perfetto = yb_cli_option(cli, "perfetto");
    struct yb_request_spans all;
    char trace[33];
    char query[64];
    int code = YB_CLI_EXIT_FAILED;

    if (!yb_request_spans_begin(cli, at != NULL ? at : YB_ASK_ADDRESS_DEFAULT, &all)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (find_trace(cli, &all, request, trace)) {
        (void)snprintf(query, sizeof(query), "trace=%s", trace);
        if (yb_request_spans_add(cli, &all, query) && all.count == 0) {
            fprintf(cli->err, "yuebing trace: nobody remembers trace %s\n", trace);
        } else if (all.count > 0 && yb_request_spans_join(cli, &all) &&
                   (perfetto == NULL || yb_request_spans_perfetto(cli, &all, perfetto))) {
            code = show_request(cli, &all);
        }
    }
    yb_request_spans_fini(&all);
    return code;
}

/* ---- the slowest ----------------------------------------------------------------------------- */

static uint64_t
took(const struct yb_joined *joined)
{
    return joined->span.end_ns - joined->span.start_ns;
}

static int
compare_longer(const void *a, const void *b)
{
    const uint64_t one = took(a);
    const uint64_t other = took(b);

    return (one < other) - (one > other);
}

/* Where one process knows requests, what others have done for none is not what was asked for: each
 * of them answers for itself. */
static void
keep_requests(struct yb_request_spans *all)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < all->count; i++) {
        if (all->spans[i].span.kind == YB_SPAN_KIND_REQUEST) {
            all->spans[kept++] = all->spans[i];
        }
    }
    all->count = kept > 0 ? kept : all->count;
}

static json_t *
slow_json(const struct yb_request_spans *all, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        const struct yb_joined *joined = &all->spans[i];
        json_t *row = yb_span_json(&joined->span);
        char where[CELL_BYTES * 2];

        yb_request_spans_where(all, joined, where, sizeof(where));
        (void)json_object_update_new(
            row, json_pack("{s:s, s:I}", "where", where, "took_ns", (json_int_t)took(joined)));
        (void)json_array_append_new(list, row);
    }
    return json_pack("{s:o}", "slowest", list);
}

static int
print_slow(struct yb_cli *cli, const struct yb_request_spans *all, uint32_t count)
{
    static const char *const columns[] = {"took ms", "trace", "what",   "decision",
                                          "where",   "from",  "outcome"};
    struct yb_output_table *table = NULL;
    bool added = yb_output_table_create(columns, 7, &table) == YB_OK;

    for (uint32_t i = 0; i < count && added; i++) {
        const struct yb_joined *joined = &all->spans[i];
        char cells[4][CELL_BYTES];
        char trace[33];

        yb_id_format(joined->span.trace, trace);
        (void)snprintf(cells[0], CELL_BYTES, "%.3f", (double)took(joined) / 1e6);
        yb_request_spans_what(&joined->span, cells[1], CELL_BYTES);
        (void)snprintf(cells[2], CELL_BYTES, "%" PRIu64, joined->span.number);
        yb_request_spans_where(all, joined, cells[3], CELL_BYTES);
        added = yb_output_table_add(
                    table, (const char *const[]){
                               cells[0], trace, cells[1], cells[2], cells[3],
                               joined->span.tier != 0 ? yb_span_tier_name(joined->span.tier) : "",
                               yb_status_name((enum yb_status)joined->span.outcome)}) == YB_OK;
    }
    if (added) {
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    return added ? 0 : YB_CLI_EXIT_FAILED;
}

/* Write all spans of the traces whose slowest requests are the first `count` ones. */
static bool
draw_slow(struct yb_cli *cli, struct yb_request_spans *all, uint32_t count, const char *path)
{
    struct yb_id traces[SLOWEST_MAX];
    bool added = true;

    for (uint32_t i = 0; i < count; i++) {
        traces[i] = all->spans[i].span.trace;
    }
    yb_request_spans_clear(all);
    for (uint32_t i = 0; i < count && added; i++) {
        char query[64] = "trace=";

        yb_id_format(traces[i], query + strlen(query));
        added = yb_request_spans_add(cli, all, query);
    }
    return added && yb_request_spans_join(cli, all) && yb_request_spans_perfetto(cli, all, path);
}

int
yb_cli_trace_slowest(struct yb_cli *cli)
{
    const char *at = yb_cli_option(cli, "at");
    const char *perfetto = yb_cli_option(cli, "perfetto");
    struct yb_request_spans all;
    uint64_t wanted = 10;
    uint32_t count;
    char query[64];
    int code = YB_CLI_EXIT_FAILED;

    if (!yb_cli_option_number(cli, "slowest", 1, SLOWEST_MAX, &wanted) ||
        !yb_request_spans_begin(cli, at != NULL ? at : YB_ASK_ADDRESS_DEFAULT, &all)) {
        return YB_CLI_EXIT_REFUSED;
    }
    (void)snprintf(query, sizeof(query), "slowest=%" PRIu64, wanted);
    if (yb_request_spans_add(cli, &all, query)) {
        keep_requests(&all);
        qsort(all.spans, all.count, sizeof(*all.spans), compare_longer);
        count = all.count < wanted ? all.count : (uint32_t)wanted;
        code = !cli->json ? print_slow(cli, &all, count)
               : yb_output_json(cli->out, slow_json(&all, count)) == YB_OK ? 0
                                                                           : YB_CLI_EXIT_FAILED;
        if (code == 0 && perfetto != NULL && !draw_slow(cli, &all, count, perfetto)) {
            code = YB_CLI_EXIT_FAILED;
        }
    }
    yb_request_spans_fini(&all);
    return code;
}
