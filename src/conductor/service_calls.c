/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls: what comes in, which numbers it becomes, and what goes back.
 *
 *     body --> struct of the wire (by form, or by decoder) --> conductor, under the lock --> answer
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/span.h"
#include "conductor/forms.h"
#include "conductor/service_internal.h"
#include "net/net.h"

#define JSON_TYPE "application/json"

/* ---- answers --------------------------------------------------------------------------------- */

static void
tell_status(struct yb_http_told *told, enum yb_status status, const char *text)
{
    switch (status) {
    case YB_OK: *told = yb_http_json(200, json_pack("{s:s}", "status", "OK")); break;
    case YB_INVALID: *told = yb_http_refusal(400, status, text); break;
    case YB_NOT_FOUND: *told = yb_http_refusal(404, status, text); break;
    case YB_STALE: *told = yb_http_refusal(409, status, text); break;
    case YB_TOO_LARGE: *told = yb_http_refusal(413, status, text); break;
    case YB_NO_SPACE:
        *told = yb_http_refusal(507, status, text);
        told->retry_after_s = 1;
        break;
    default:
        *told = yb_http_refusal(503, status, text);
        told->retry_after_s = 1;
        break;
    }
}

static void
tell_not_ready(struct yb_http_told *told)
{
    tell_status(told, YB_NOT_READY,
                "the directory has not told the seed of names yet; without a store give "
                "--standalone");
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* A JSON body read by a form. */
struct read {
    json_t *json;
    struct yb_form_memory memory;
};

static void
read_end(struct read *read)
{
    yb_form_fini(&read->memory);
    json_decref(read->json);
}

static bool
read_json(const struct yb_form *form, const struct yb_http_asked *asked, void *struct_out,
          struct read *read, struct yb_http_told *told)
{
    json_error_t error;
    char why[YB_FORM_WHY_BYTES];
    enum yb_status status;

    *read = (struct read){.json = NULL};
    read->json = json_loadb(asked->body != NULL ? asked->body : "", asked->body_bytes,
                            JSON_REJECT_DUPLICATES, &error);
    if (read->json == NULL) {
        (void)snprintf(why, sizeof(why), "no JSON: line %d, column %d: %.160s", error.line,
                       error.column, error.text);
        *told = yb_http_refusal(400, YB_INVALID, why);
        return false;
    }
    status = yb_form_read(form, read->json, struct_out, &read->memory, why);
    if (status != YB_OK) {
        tell_status(told, status, why);
        read_end(read);
        return false;
    }
    return true;
}

/* Whether the request's body is in the binary form. */
static bool
is_binary(const struct yb_http_asked *asked)
{
    const char *type = yb_http_header(asked, "Content-Type");

    return type != NULL && strncmp(type, YB_CONDUCTOR_TYPE, sizeof(YB_CONDUCTOR_TYPE) - 1) == 0;
}

/* The trace that a call belongs to, by the header that W3C names. */
static bool
trace_of(const struct yb_http_asked *asked, struct yb_trace_context *context_out)
{
    const char *header = yb_http_header(asked, "traceparent");

    return header != NULL && yb_traceparent_parse(header, strlen(header), context_out) == YB_OK;
}

/* Take the trace from the header, unless the body has one. */
static void
take_trace(const struct yb_http_asked *asked, struct yb_wire_conductor_schedule *question)
{
    struct yb_trace_context context;

    if (yb_id_is_none(question->trace) && trace_of(asked, &context)) {
        question->trace = context.trace;
        question->parent = context.parent;
    }
}

/* Read a question in either form. */
static bool
read_question(const struct yb_http_asked *asked, struct yb_wire_conductor_schedule *question_out,
              struct read *read, struct yb_http_told *told)
{
    struct yb_wire_error error;
    char why[YB_FORM_WHY_BYTES];

    memset(question_out, 0, sizeof(*question_out));
    if (!is_binary(asked)) {
        return read_json(yb_form_schedule, asked, question_out, read, told);
    }
    *read = (struct read){.json = NULL};
    if (yb_wire_conductor_schedule_decode(asked->body, asked->body_bytes, question_out, &error) !=
        YB_OK) {
        yb_wire_error_format(&error, why, sizeof(why));
        *told = yb_http_refusal(400, YB_PROTOCOL, why);
        return false;
    }
    return true;
}

/* ---- decisions ------------------------------------------------------------------------------- */

static json_t *
text_json(struct yb_wire_text text)
{
    return json_stringn(text.length > 0 ? text.bytes : "", text.length);
}

static json_t *
instruction_json(const struct yb_wire_conductor_instruction *instruction)
{
    return json_pack(
        "{s:I, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "id",
        (json_int_t)instruction->id, "kind", yb_form_kinds[instruction->kind], "first",
        (json_int_t)instruction->first, "count", (json_int_t)instruction->count, "from",
        (const char *)instruction->from, "from_tier", yb_form_tiers[instruction->from_tier], "to",
        (const char *)instruction->to, "to_tier", yb_form_tiers[instruction->to_tier], "class",
        yb_form_classes[instruction->class], "carrier", yb_form_carriers[instruction->carrier],
        "reason", yb_form_why[instruction->reason], "bytes", (json_int_t)instruction->bytes,
        "not_before_us", (json_int_t)instruction->not_before_us, "deadline_us",
        (json_int_t)instruction->deadline_us, "ready_us", (json_int_t)instruction->ready_us);
}

static json_t *
times_json(const struct yb_wire_conductor_decision *wire)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "start_us", (json_int_t)wire->start_us,
                     "ready_us", (json_int_t)wire->ready_us, "ttft_us", (json_int_t)wire->ttft_us,
                     "queue_us", (json_int_t)wire->queue_us, "load_us", (json_int_t)wire->load_us,
                     "prefill_us", (json_int_t)wire->prefill_us, "tpot_us",
                     (json_int_t)wire->tpot_us);
}

static json_t *
hits_json(const struct yb_wire_conductor_decision *wire)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "device", (json_int_t)wire->hit_device, "dram",
                     (json_int_t)wire->hit_dram, "ssd", (json_int_t)wire->hit_ssd, "object",
                     (json_int_t)wire->hit_object, "soon", (json_int_t)wire->soon_blocks);
}

static json_t *
decision_json(const struct yb_conductor_answer *answer)
{
    const struct yb_wire_conductor_decision *wire = &answer->wire;
    json_t *instructions = json_array();

    if (!wire->accepted) {
        json_decref(instructions);
        return json_pack("{s:b, s:s, s:I, s:I, s:I, s:o}", "accepted", 0, "reason",
                         yb_form_reasons[wire->reason], "decision", (json_int_t)wire->decision,
                         "id", (json_int_t)wire->id, "retry_after_ms",
                         (json_int_t)wire->retry_after_ms, "times", times_json(wire));
    }
    for (uint32_t i = 0; i < wire->instructions.count; i++) {
        (void)json_array_append_new(instructions, instruction_json(&answer->instructions[i]));
    }
    return json_pack(
        "{s:b, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:s, s:o, s:I, "
        "s:s, s:o, s:I, s:I, s:o}",
        "accepted", 1, "decision", (json_int_t)wire->decision, "id", (json_int_t)wire->id, "mode",
        yb_form_modes[wire->mode], "prefill", text_json(wire->prefill), "prefill_address",
        text_json(wire->prefill_address), "decode", text_json(wire->decode), "decode_address",
        text_json(wire->decode_address), "hit_blocks", hits_json(wire), "blocks",
        (json_int_t)wire->blocks, "local_blocks", (json_int_t)wire->local_blocks, "reuse_blocks",
        (json_int_t)wire->reuse_blocks, "reuse_tokens", (json_int_t)wire->reuse_tokens, "source",
        text_json(wire->source), "source_tier", yb_form_tiers[wire->source_tier], "best",
        text_json(wire->best), "best_blocks", (json_int_t)wire->best_blocks, "hotspot",
        yb_form_hotspots[wire->hotspot], "times", times_json(wire), "report_sequence",
        (json_int_t)wire->report_sequence, "report_age_us", (json_int_t)wire->report_age_us,
        "instructions", instructions);
}

/* A decision is a span of the caller's trace, or begins one: what it is for what follows. */
static struct yb_trace_context
begin_trace(const struct yb_wire_conductor_schedule *question)
{
    return (struct yb_trace_context){
        .trace = yb_id_is_none(question->trace) ? yb_trace_new_id(yb_net_random_system, NULL)
                                                : question->trace,
        .parent = yb_span_new_id(yb_net_random_system, NULL),
        .sampled = true,
    };
}

/* Remember what took from `begun_ns` until now. */
static void
write_span(const struct yb_conductor_service *service, uint64_t begun_ns, struct yb_span span)
{
    const struct yb_clock *clock = service->options.clock;

    span.start_ns = begun_ns;
    span.end_ns = yb_clock_now(clock);
    span.wall_ns = yb_clock_wall(clock) - (span.end_ns - begun_ns);
    yb_span_write(service->options.spans, &span);
}

static void
trace_decision(const struct yb_conductor_service *service,
               const struct yb_wire_conductor_schedule *question,
               const struct yb_conductor_answer *answer, uint64_t begun_ns,
               const struct yb_trace_context *caused)
{
    write_span(service, begun_ns,
               (struct yb_span){
                   .kind = YB_SPAN_KIND_DECIDE,
                   .trace = caused->trace,
                   .span = caused->parent,
                   .parent = question->parent,
                   .number = answer->wire.decision,
                   .work_class = question->class < YB_CLASS_COUNT ? question->class : 0,
                   .outcome = answer->wire.accepted ? YB_OK : YB_AGAIN,
               });
}

static void
tell_decision(const struct yb_conductor_answer *answer, const struct yb_trace_context *caused,
              bool binary, struct yb_http_told *told)
{
    const unsigned code = answer->wire.accepted ? 200 : 429;
    char traceparent[YB_TRACEPARENT_LENGTH + 1];
    json_t *value;
    size_t length = 0;

    if (!binary) {
        yb_traceparent_format(caused, traceparent);
        value = decision_json(answer);
        (void)json_object_set_new(value, "traceparent", json_string(traceparent));
        *told = yb_http_json(code, value);
    } else {
        told->code = code;
        told->type = YB_CONDUCTOR_TYPE;
        told->text = malloc(YB_WIRE_CONDUCTOR_DECISION_BYTES_MAX);
    }
    if (binary && told->text != NULL) {
        YB_ASSERT(yb_wire_conductor_decision_encode(&answer->wire, (uint8_t *)told->text,
                                                    YB_WIRE_CONDUCTOR_DECISION_BYTES_MAX,
                                                    &length) == YB_OK);
        told->length = length;
    }
    if (!answer->wire.accepted) {
        told->retry_after_s = (answer->wire.retry_after_ms + 999) / 1000;
    }
}

/* What schedule and query have in common: the question, and the names of its blocks. */
static bool
prepare(struct yb_conductor_service *service, const struct yb_http_asked *asked,
        struct yb_wire_conductor_schedule *question, struct yb_conductor_prompt *prompt,
        struct read *read, struct yb_http_told *told)
{
    char why[YB_CONDUCTOR_WHY_BYTES];
    enum yb_status status;

    if (!atomic_load(&service->began)) {
        tell_not_ready(told);
        return false;
    }
    if (!read_question(asked, question, read, told)) {
        return false;
    }
    take_trace(asked, question);
    status = yb_conductor_prompt_read(service->conductor, question, prompt, why);
    if (status != YB_OK) {
        tell_status(told, status, why);
        read_end(read);
        return false;
    }
    return true;
}

static void
schedule(struct yb_conductor_service *service, const struct yb_http_asked *asked,
         struct yb_http_told *told)
{
    struct yb_wire_conductor_schedule question;
    struct yb_conductor_prompt prompt;
    struct yb_conductor_answer answer;
    struct read read;
    struct yb_trace_context caused;
    char why[YB_CONDUCTOR_WHY_BYTES];
    const uint64_t begun_ns = yb_clock_now(service->options.clock);
    uint64_t now_ns;
    enum yb_status status;

    if (!prepare(service, asked, &question, &prompt, &read, told)) {
        return;
    }
    (void)yb_conductor_service_enter(service, &now_ns);
    status = yb_conductor_schedule(service->conductor, &question, &prompt, now_ns, &answer, why);
    yb_conductor_service_leave(service);
    caused = begin_trace(&question);
    if (status == YB_OK) {
        yb_conductor_service_order(service, &question, &prompt, &answer, &caused, now_ns);
    }
    yb_conductor_prompt_fini(&prompt);
    read_end(&read);
    if (status == YB_OK) {
        trace_decision(service, &question, &answer, begun_ns, &caused);
        tell_decision(&answer, &caused, is_binary(asked), told);
    } else {
        tell_status(told, status, why);
    }
}

static void
query(struct yb_conductor_service *service, const struct yb_http_asked *asked,
      struct yb_http_told *told)
{
    struct yb_wire_conductor_schedule question;
    struct yb_conductor_prompt prompt;
    struct yb_conductor_hits hits;
    struct read read;
    char why[YB_CONDUCTOR_WHY_BYTES];
    json_t *rows;
    uint32_t blocks;
    uint64_t now_ns;
    enum yb_status status;

    if (!prepare(service, asked, &question, &prompt, &read, told)) {
        return;
    }
    (void)yb_conductor_service_enter(service, &now_ns);
    status = yb_conductor_query(service->conductor, &question, &prompt, now_ns, &hits, why);
    yb_conductor_service_leave(service);
    blocks = prompt.count;
    yb_conductor_prompt_fini(&prompt);
    read_end(&read);
    if (status != YB_OK) {
        tell_status(told, status, why);
        return;
    }
    rows = json_array();
    for (uint32_t i = 0; i < hits.count; i++) {
        const uint32_t *run = hits.rows[i].hit.run;

        (void)json_array_append_new(rows, json_pack("{s:s, s:I, s:I, s:I, s:I}", "name",
                                                    hits.rows[i].name, "device",
                                                    (json_int_t)run[YB_SCHED_TIER_DEVICE], "dram",
                                                    (json_int_t)run[YB_SCHED_TIER_DRAM], "ssd",
                                                    (json_int_t)run[YB_SCHED_TIER_SSD], "soon",
                                                    (json_int_t)hits.rows[i].hit.soon));
    }
    *told =
        yb_http_json(200, json_pack("{s:I, s:o}", "blocks", (json_int_t)blocks, "places", rows));
}

/* ---- what instances say ---------------------------------------------------------------------- */

/* What is said to the conductor by the calls that ask nothing. */
union said {
    struct yb_wire_conductor_done done;
    struct yb_wire_conductor_register enrolled;
    struct yb_wire_conductor_name name;
    struct yb_wire_conductor_report report;
};

/* How the conductor takes it; where it says why not, why_out has the words, "" otherwise. */
typedef enum yb_status take_fn(struct yb_conductor *conductor, const union said *said,
                               uint64_t now_ns, char why_out[YB_CONDUCTOR_WHY_BYTES]);

static enum yb_status
take_done(struct yb_conductor *conductor, const union said *said, uint64_t now_ns,
          char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    (void)snprintf(why_out, YB_CONDUCTOR_WHY_BYTES,
                   "no such decision runs: it has ended, or was never accepted");
    return yb_conductor_done(conductor, &said->done, now_ns);
}

/* What an engine said of a request of a trace is a span of it: when the conductor had the word. */
static void
trace_done(const struct yb_conductor_service *service, const struct yb_http_asked *asked,
           const struct yb_wire_conductor_done *said, uint64_t begun_ns)
{
    struct yb_trace_context context;

    if (trace_of(asked, &context)) {
        write_span(service, begun_ns,
                   (struct yb_span){
                       .kind = YB_SPAN_KIND_DONE,
                       .trace = context.trace,
                       .span = yb_span_new_id(yb_net_random_system, NULL),
                       .parent = context.parent,
                       .number = said->decision,
                       .outcome = YB_OK,
                   });
    }
}

/* Read what was said, let the conductor take it, and tell what came of it. */
static void
take(struct yb_conductor_service *service, const struct yb_http_asked *asked,
     const struct yb_form *form, take_fn *take_it, struct yb_http_told *told)
{
    union said said;
    struct yb_conductor *conductor;
    struct read read;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    uint64_t now_ns;
    enum yb_status status;

    memset(&said, 0, sizeof(said));
    if (!read_json(form, asked, &said, &read, told)) {
        return;
    }
    conductor = yb_conductor_service_enter(service, &now_ns);
    if (conductor == NULL) {
        tell_not_ready(told);
    } else {
        status = take_it(conductor, &said, now_ns, why);
        yb_conductor_service_leave(service);
        tell_status(told, status, why);
        if (status == YB_OK && take_it == take_done) {
            trace_done(service, asked, &said.done, now_ns);
        }
    }
    read_end(&read);
}

static enum yb_status
take_register(struct yb_conductor *conductor, const union said *said, uint64_t now_ns,
              char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    return yb_conductor_register(conductor, &said->enrolled, now_ns, why_out);
}

static enum yb_status
take_unregister(struct yb_conductor *conductor, const union said *said, uint64_t now_ns,
                char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    (void)snprintf(why_out, YB_CONDUCTOR_WHY_BYTES, "there is no instance of that name");
    return yb_conductor_unregister(conductor, said->name.name, now_ns);
}

static enum yb_status
take_report(struct yb_conductor *conductor, const union said *said, uint64_t now_ns,
            char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    return yb_conductor_report(conductor, &said->report, now_ns, why_out);
}

/* ---- moves by hand --------------------------------------------------------------------------- */

static void
move(struct yb_conductor_service *service, const struct yb_http_asked *asked,
     struct yb_http_told *told)
{
    struct yb_wire_conductor_move said;
    struct yb_conductor *conductor;
    struct read read;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    uint64_t now_ns;
    uint64_t id = 0;
    enum yb_status status;

    memset(&said, 0, sizeof(said));
    if (!read_json(yb_form_move, asked, &said, &read, told)) {
        return;
    }
    conductor = yb_conductor_service_enter(service, &now_ns);
    if (conductor == NULL) {
        tell_not_ready(told);
        read_end(&read);
        return;
    }
    status = yb_conductor_move(conductor, &said, now_ns, &id, why);
    yb_conductor_service_leave(service);
    if (status == YB_OK) {
        yb_conductor_service_order_move(service, &said, id, now_ns);
        *told = yb_http_json(200, json_pack("{s:I}", "id", (json_int_t)id));
    } else {
        tell_status(told, status == YB_UNSUPPORTED ? YB_INVALID : status, why);
    }
    read_end(&read);
}

/* ---- looking --------------------------------------------------------------------------------- */

static void
about(struct yb_conductor_service *service, const struct yb_http_asked *asked,
      struct yb_http_told *told)
{
    struct yb_conductor_info info;
    struct yb_conductor *conductor;
    uint64_t now_ns;
    uint64_t heard_ns;
    uint64_t events;
    bool full;

    (void)asked;
    conductor = yb_conductor_service_enter(service, &now_ns);
    if (conductor == NULL) {
        tell_not_ready(told);
        return;
    }
    yb_conductor_info(conductor, &info);
    heard_ns = service->heard_ns;
    events = service->events;
    full = service->log_full;
    yb_conductor_service_leave(service);
    *told = yb_http_json(
        200,
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:b}",
                  "routing", info.routing, "admission", info.admission, "conductor",
                  (json_int_t)info.conductor, "block_tokens", (json_int_t)info.block_tokens,
                  "models", (json_int_t)info.models, "instances", (json_int_t)info.instances,
                  "nodes", (json_int_t)info.nodes, "requests", (json_int_t)info.requests,
                  "decisions", (json_int_t)info.decisions, "rejected", (json_int_t)info.rejected,
                  "blocks", (json_int_t)info.blocks, "refused_blocks",
                  (json_int_t)info.refused_blocks, "store_changes", (json_int_t)events,
                  "store_age_ms",
                  heard_ns != 0 ? json_integer((json_int_t)((now_ns - heard_ns) / YB_NS_PER_MS))
                                : json_null(),
                  "log_full", full));
}

static json_t *
place_json(const struct yb_conductor_place *place, uint64_t now_ns)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "name", place->name, "kind",
        place->storage ? "node" : "instance", "address", place->address, "model", place->model,
        "node", place->node, "roles", yb_form_roles[place->roles], "incarnation",
        (json_int_t)place->incarnation, "age_ms",
        (json_int_t)(now_ns > place->heard_ns ? (now_ns - place->heard_ns) / YB_NS_PER_MS : 0));
}

static void
instances(struct yb_conductor_service *service, const struct yb_http_asked *asked,
          struct yb_http_told *told)
{
    json_t *rows = json_array();
    struct yb_conductor_place place;
    uint64_t now_ns;
    bool more = true;

    (void)asked;
    for (uint32_t i = 0; more; i++) { /* One at a time: requests should not wait for a list. */
        struct yb_conductor *conductor = yb_conductor_service_enter(service, &now_ns);

        if (conductor == NULL) {
            json_decref(rows);
            tell_not_ready(told);
            return;
        }
        more = yb_conductor_place(conductor, i, &place);
        yb_conductor_service_leave(service);
        if (more && place.name[0] != '\0') {
            (void)json_array_append_new(rows, place_json(&place, now_ns));
        }
    }
    *told = yb_http_json(200, json_pack("{s:o}", "instances", rows));
}

/* What is open, by what it waits for. What the conductor has carried out waits for its blocks, its
 * time or room where nothing else is known. */
static json_t *
open_json(const struct yb_conductor_info *info, const struct yb_conductor_orders *orders)
{
    const uint64_t open = info->outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN];
    const uint64_t carried = info->carried_open;
    const uint64_t under_way = orders->under_way < carried ? orders->under_way : carried;
    const uint64_t left = carried - under_way;
    const uint64_t watched = orders->watched < left ? orders->watched : left;

    return json_pack("{s:I, s:I, s:I, s:I}", "engine", (json_int_t)(open - carried), "awaited",
                     (json_int_t)(left - watched), "under_way", (json_int_t)under_way, "watched",
                     (json_int_t)watched);
}

static void
audit(struct yb_conductor_service *service, const struct yb_http_asked *asked,
      struct yb_http_told *told)
{
    struct yb_conductor_orders orders;
    struct yb_conductor_info info;
    struct yb_conductor *conductor;
    json_t *outcomes;
    uint64_t terminal = 0;
    uint64_t now_ns;

    (void)asked;
    conductor = yb_conductor_service_enter(service, &now_ns);
    if (conductor == NULL) {
        tell_not_ready(told);
        return;
    }
    yb_conductor_info(conductor, &info);
    orders = service->orders;
    yb_conductor_service_leave(service);
    outcomes = json_object();
    for (uint32_t i = 1; i < YB_CONDUCTOR_OUTCOMES; i++) {
        terminal += info.outcomes[i];
        (void)json_object_set_new(outcomes, yb_form_outcomes[i],
                                  json_integer((json_int_t)info.outcomes[i]));
    }
    *told = yb_http_json(200, json_pack("{s:I, s:I, s:I, s:o, s:I, s:o}", "issued",
                                        (json_int_t)info.issued, "terminal", (json_int_t)terminal,
                                        "open", (json_int_t)info.outcomes[0], "open_for",
                                        open_json(&info, &orders), "requests",
                                        (json_int_t)info.requests, "outcomes", outcomes));
}

/* When something was, for people: milliseconds of the wall clock; 0: never. */
static json_int_t
wall_ms(const struct yb_clock *clock, uint64_t at_ns)
{
    const uint64_t now_ns = yb_clock_now(clock);

    return at_ns == 0
               ? 0
               : (json_int_t)((yb_clock_wall(clock) - (now_ns > at_ns ? now_ns - at_ns : 0)) /
                              YB_NS_PER_MS);
}

static json_t *
moved_json(const struct yb_clock *clock, const struct yb_conductor_moved *moved, uint64_t number)
{
    const uint64_t from_ns = moved->decided_ns;
    const uint64_t begun_ns = moved->started_ns > from_ns ? moved->started_ns - from_ns : 0;
    const uint64_t ended_ns = moved->finished_ns > from_ns ? moved->finished_ns - from_ns : 0;
    const uint64_t wanted_ns = moved->deadline_ns > from_ns ? moved->deadline_ns - from_ns : 0;

    return json_pack(
        "{s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "number",
        (json_int_t)number, "id", (json_int_t)moved->id, "kind", yb_form_kinds[moved->kind],
        "reason", yb_form_why[moved->reason], "outcome", yb_form_outcomes[moved->outcome], "tier",
        yb_form_tiers[moved->source_tier], "to", moved->to, "decided_ms", wall_ms(clock, from_ns),
        "started_ms", wall_ms(clock, moved->started_ns), "ended_ms",
        wall_ms(clock, moved->finished_ns), "started_us", (json_int_t)(begun_ns / YB_NS_PER_US),
        "finished_us", (json_int_t)(ended_ns / YB_NS_PER_US), "deadline_us",
        (json_int_t)(wanted_ns / YB_NS_PER_US), "bytes", (json_int_t)moved->bytes);
}

static void
instructions(struct yb_conductor_service *service, const struct yb_http_asked *asked,
             struct yb_http_told *told)
{
    struct yb_conductor_moved *moved;
    json_t *rows;
    uint64_t after = 0;
    uint64_t last = 0;
    uint32_t count = 0;

    if (!yb_http_number(asked, "after", UINT64_MAX, &after)) {
        *told = yb_http_refusal(400, YB_INVALID, "after: the number of an instruction");
        return;
    }
    moved = calloc(YB_CONDUCTOR_SHOWN, sizeof(*moved));
    if (moved == NULL) {
        *told = yb_http_refusal(503, YB_NO_MEMORY, yb_status_text(YB_NO_MEMORY));
        return;
    }
    count = yb_conductor_service_ended(service, after, moved, &last);
    rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(
            rows, moved_json(service->options.clock, &moved[i], last - count + i + 1));
    }
    free(moved);
    *told =
        yb_http_json(200, json_pack("{s:I, s:o}", "last", (json_int_t)last, "instructions", rows));
}

/* ---- the table ------------------------------------------------------------------------------- */

static void openapi(struct yb_conductor_service *service, const struct yb_http_asked *asked,
                    struct yb_http_told *told);

typedef void call_fn(struct yb_conductor_service *service, const struct yb_http_asked *asked,
                     struct yb_http_told *told);

static const struct call {
    const char *method;
    const char *path;
    call_fn *run; /* NULL: the conductor is told something, and `take` does that. */
    take_fn *take;
    const struct yb_form *form; /* Of its body; NULL: it has none. */
    bool binary;                /* The body may be in the binary form. */
    const char *text;
} calls[] = {
    {"POST", "/v1/schedule", schedule, NULL, yb_form_schedule, true,
     "where a request should run, what of it is reused, and what has to be moved for that"},
    {"POST", "/v1/query", query, NULL, yb_form_schedule, true, "what a prompt would find where"},
    {"POST", "/v1/done", NULL, take_done, yb_form_done, false, "how far a request has come"},
    {"POST", "/v1/move", move, NULL, yb_form_move, false,
     "blocks are to be in the memory of a node of the store, whatever requests want"},
    {"POST", "/v1/register", NULL, take_register, yb_form_register, false, "an instance comes"},
    {"POST", "/v1/unregister", NULL, take_unregister, yb_form_unregister, false,
     "an instance goes"},
    {"POST", "/v1/report", NULL, take_report, yb_form_report, false,
     "what an instance says of itself"},
    {"GET", "/v1/conductor", about, NULL, NULL, false, "what is known, and how old it is"},
    {"GET", "/v1/instances", instances, NULL, NULL, false, "instances, and nodes of the store"},
    {"GET", "/v1/audit", audit, NULL, NULL, false,
     "instructions: issued, by outcome, open, and what these wait for"},
    {"GET", "/v1/instructions", instructions, NULL, NULL, false,
     "the last instructions of nodes that ended: when, how, from which tier"},
    {"GET", "/v1/openapi.json", openapi, NULL, NULL, false, "this description"},
};

static json_t *
body_json(const struct call *call)
{
    json_t *content = json_pack("{s:{s:o}}", JSON_TYPE, "schema", yb_form_schema(call->form));

    if (call->binary) {
        (void)json_object_set_new(
            content, YB_CONDUCTOR_TYPE,
            json_pack("{s:{s:s, s:s}}", "schema", "type", "string", "format", "binary"));
    }
    return json_pack("{s:b, s:o}", "required", 1, "content", content);
}

static json_t *
answers_json(const struct call *call)
{
    json_t *answers = json_pack("{s:{s:s}}", "200", "description", "done");

    if (call->form != NULL) {
        (void)json_object_update_new(
            answers, json_pack("{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}", "400", "description",
                               "the body is not what it should be; `text` says why", "403",
                               "description", "the secret is missing, or another one", "404",
                               "description", "no such model, instance or decision", "413",
                               "description", "the body is too long"));
    }
    if (call->run == schedule) {
        (void)json_object_update_new(answers,
                                     json_pack("{s:{s:s}}", "429", "description",
                                               "not now; Retry-After says when to ask again"));
    }
    (void)json_object_update_new(
        answers, json_pack("{s:{s:s}}", "503", "description", "not ready; Retry-After"));
    return answers;
}

static void
openapi(struct yb_conductor_service *service, const struct yb_http_asked *asked,
        struct yb_http_told *told)
{
    json_t *paths = json_object();

    (void)service;
    (void)asked;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        const struct call *call = &calls[i];
        json_t *operation =
            json_pack("{s:s, s:o}", "summary", call->text, "responses", answers_json(call));

        if (call->form != NULL) {
            (void)json_object_set_new(operation, "requestBody", body_json(call));
        }
        (void)json_object_set_new(
            paths, call->path,
            json_pack("{s:o}", call->method[0] == 'P' ? "post" : "get", operation));
    }
    *told =
        yb_http_json(200, json_pack("{s:s, s:{s:s, s:s}, s:o}", "openapi", "3.1.0", "info", "title",
                                    "Yuebing conductor", "version", "1", "paths", paths));
}

static void
answer_call(struct yb_conductor_service *service, const struct call *call,
            const struct yb_http_asked *asked, struct yb_http_told *told)
{
    const bool head = strcmp(asked->method, "HEAD") == 0 && call->method[0] == 'G';

    if (!head && strcmp(asked->method, call->method) != 0) {
        *told = yb_http_refusal(405, YB_INVALID,
                                call->method[0] == 'P' ? "this path takes POST"
                                                       : "this path takes GET");
    } else if (call->form != NULL && !asked->may_change) {
        *told = yb_http_refusal(
            403, YB_DENIED,
            "this needs the secret: Authorization: Bearer SECRET; without one only loopback "
            "may, and no page in a browser");
    } else if (call->take != NULL) {
        take(service, asked, call->form, call->take, told);
    } else {
        call->run(service, asked, told);
    }
}

/* A request that is not accepted was answered, too. */
static void
count_refusal(struct yb_conductor_service *service, unsigned code)
{
    unsigned refusal = YB_CONDUCTOR_REFUSAL_OTHER;

    if (code < 400 || code == 429) {
        return;
    }
    switch (code) {
#define X(number) \
    case number: refusal = YB_CONDUCTOR_REFUSAL_##number; break;
        YB_CONDUCTOR_REFUSALS(X)
#undef X
    default: break;
    }
    atomic_fetch_add(&service->refused[refusal], 1);
}

bool
yb_conductor_service_answer(void *context, const struct yb_http_asked *asked,
                            struct yb_http_told *told_out)
{
    struct yb_conductor_service *service = context;

    YB_ASSERT_OBJ(service, YB_CONDUCTOR_SERVICE_MAGIC);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(calls[i].path, asked->path) == 0) {
            answer_call(service, &calls[i], asked, told_out);
            atomic_fetch_add(&service->calls, 1);
            count_refusal(service, told_out->code);
            return true;
        }
    }
    return false;
}
