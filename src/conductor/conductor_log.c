/* SPDX-License-Identifier: Apache-2.0
 *
 * The log: everything that a conductor was told, and its decisions, in order.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "conductor/conductor_internal.h"

/* ---- writing --------------------------------------------------------------------------------- */

uint8_t *
yb_conductor_record_body(struct yb_conductor *conductor, size_t *room_out)
{
    *room_out = YB_WIRE_CONDUCTOR_REPORT_BYTES_MAX;
    return conductor->options.record != NULL ? conductor->record + YB_WIRE_CONDUCTOR_ENTRY_BYTES
                                             : NULL;
}
_Static_assert((size_t)YB_WIRE_CONDUCTOR_ASKED_BYTES_MAX <= YB_WIRE_CONDUCTOR_REPORT_BYTES_MAX,
               "a report is the longest record");
_Static_assert((size_t)YB_WIRE_CONDUCTOR_MOVE_BYTES_MAX <= YB_WIRE_CONDUCTOR_REPORT_BYTES_MAX,
               "a report is the longest record");

void
yb_conductor_record(struct yb_conductor *conductor, uint16_t kind, uint64_t now_ns, size_t length)
{
    struct yb_wire_conductor_entry entry = {
        .kind = kind, .now_ns = now_ns, .length = (uint32_t)length};
    size_t at = 0;

    if (conductor->options.record == NULL) {
        return;
    }
    entry.checksum = yb_crc32c(conductor->record + YB_WIRE_CONDUCTOR_ENTRY_BYTES, length);
    YB_ASSERT(yb_wire_conductor_entry_encode(&entry, conductor->record,
                                             YB_WIRE_CONDUCTOR_ENTRY_BYTES, &at) == YB_OK);
    conductor->options.record(conductor->options.owner, conductor->record, at + length);
}

/* ---- running it again ------------------------------------------------------------------------ */

/* A log that is run again. */
struct replay {
    struct yb_conductor *conductor;
    struct yb_conductor_replayed *result;
    const uint8_t *body;
    size_t length;
    uint64_t now_ns;
    bool answered; /* The last question has an answer that waits to be compared. */
    struct yb_conductor_answer answer;
    char *why_out;
};

typedef enum yb_status replay_fn(struct replay *replay, struct yb_wire_error *error);

static enum yb_status
on_options(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_options said;
    enum yb_status status =
        yb_wire_conductor_options_decode(replay->body, replay->length, &said, error);
    struct yb_conductor_options options = {.record = NULL};
    char routing[YB_CONDUCTOR_NAME_BYTES];
    char admission[YB_CONDUCTOR_NAME_BYTES];

    if (status != YB_OK || replay->conductor != NULL) {
        return YB_PROTOCOL;
    }
    yb_conductor_take_text(routing, said.routing);
    yb_conductor_take_text(admission, said.admission);
    options.routing = routing;
    options.admission = admission;
    options.mode = said.mode;
    options.places_max = said.places_max;
    options.blocks_max = said.blocks_max;
    options.pending_max = said.pending_max;
    options.block_tokens = said.block_tokens;
    options.conductor = said.conductor;
    options.seed = said.random_seed;
    options.ttft_slo_ns = said.ttft_slo_us * YB_NS_PER_US;
    options.tbt_slo_ns = said.tbt_slo_us * YB_NS_PER_US;
    options.expire_ns = said.expire_us * YB_NS_PER_US;
    options.node_rate = said.node_rate;
    options.heat_ns = said.heat_ms * YB_NS_PER_MS;
    options.moves = said.moves != 0;
    memcpy(options.hash_seed, said.hash_seed, sizeof(options.hash_seed));
    return yb_conductor_create(&options, &replay->conductor, replay->why_out);
}

/* What was refused then is refused now: only decisions are compared. */
static enum yb_status
on_register(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_register said;
    char why[YB_CONDUCTOR_WHY_BYTES];
    enum yb_status status =
        yb_wire_conductor_register_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        (void)!yb_conductor_register(replay->conductor, &said, replay->now_ns, why);
    }
    return status;
}

static enum yb_status
on_unregister(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_name said;
    enum yb_status status =
        yb_wire_conductor_name_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        (void)!yb_conductor_unregister(replay->conductor, said.name, replay->now_ns);
    }
    return status;
}

static enum yb_status
on_storage(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_name said;
    uint32_t place;
    enum yb_status status =
        yb_wire_conductor_name_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        (void)!yb_conductor_storage(replay->conductor, said.name, replay->now_ns, &place);
    }
    return status;
}

static enum yb_status
on_ways(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_ways said;
    enum yb_status status =
        yb_wire_conductor_ways_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        (void)!yb_conductor_ways(replay->conductor, &said, replay->now_ns);
    }
    return status;
}

static enum yb_status
on_report(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_report said;
    char why[YB_CONDUCTOR_WHY_BYTES];
    enum yb_status status =
        yb_wire_conductor_report_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        (void)!yb_conductor_report(replay->conductor, &said, replay->now_ns, why);
    }
    return status;
}

static enum yb_status
on_blocks(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_changes said;
    enum yb_status status =
        yb_wire_conductor_changes_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        yb_conductor_blocks(replay->conductor, &said.changes, replay->now_ns);
    }
    return status;
}

static enum yb_status
on_schedule(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_asked said;
    struct yb_wire_conductor_schedule question;
    struct yb_conductor_prompt prompt;
    char why[YB_CONDUCTOR_WHY_BYTES];
    enum yb_status status =
        yb_wire_conductor_asked_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        status = yb_wire_conductor_schedule_decode(said.question.bytes, said.question.length,
                                                   &question, error);
    }
    if (status != YB_OK) {
        return status;
    }
    prompt =
        (struct yb_conductor_prompt){.count = said.blocks.count, .tokens = question.input_tokens};
    prompt.blocks = malloc(((size_t)prompt.count + 1) * sizeof(*prompt.blocks));
    if (prompt.blocks == NULL) {
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < prompt.count; i++) {
        struct yb_wire_conductor_block block;

        yb_wire_conductor_block_at(&said.blocks, i, &block);
        prompt.blocks[i] = block.block;
    }
    replay->answered = yb_conductor_schedule(replay->conductor, &question, &prompt, replay->now_ns,
                                             &replay->answer, why) == YB_OK;
    yb_conductor_prompt_fini(&prompt);
    return YB_OK;
}

static enum yb_status
on_decision(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_decision said;
    uint8_t again[YB_WIRE_CONDUCTOR_DECISION_BYTES_MAX];
    size_t length = 0;
    enum yb_status status =
        yb_wire_conductor_decision_decode(replay->body, replay->length, &said, error);

    if (status != YB_OK) {
        return status;
    }
    if (replay->answered) {
        YB_ASSERT(yb_wire_conductor_decision_encode(&replay->answer.wire, again, sizeof(again),
                                                    &length) == YB_OK);
    }
    replay->answered = false;
    replay->result->decisions++;
    if (length != replay->length || memcmp(again, replay->body, length) != 0) {
        replay->result->differing++;
        if (replay->result->first_differing == 0) {
            replay->result->first_differing = replay->result->records + 1;
        }
    }
    return YB_OK;
}

static enum yb_status
on_done(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_done said;
    enum yb_status status =
        yb_wire_conductor_done_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        (void)!yb_conductor_done(replay->conductor, &said, replay->now_ns);
    }
    return status;
}

static enum yb_status
on_move(struct replay *replay, struct yb_wire_error *error)
{
    struct yb_wire_conductor_move said;
    char why[YB_CONDUCTOR_WHY_BYTES];
    uint64_t id;
    enum yb_status status =
        yb_wire_conductor_move_decode(replay->body, replay->length, &said, error);

    if (status == YB_OK) {
        (void)!yb_conductor_move(replay->conductor, &said, replay->now_ns, &id, why);
    }
    return status;
}

static enum yb_status
on_tick(struct replay *replay, struct yb_wire_error *error)
{
    (void)error;
    yb_conductor_tick(replay->conductor, replay->now_ns);
    return YB_OK;
}

static enum yb_status
on_reset(struct replay *replay, struct yb_wire_error *error)
{
    (void)error;
    yb_conductor_reset(replay->conductor, replay->now_ns);
    return YB_OK;
}

static replay_fn *const handlers[] = {
    [YB_WIRE_CONDUCTOR_RECORD_OPTIONS] = on_options,
    [YB_WIRE_CONDUCTOR_RECORD_REGISTER] = on_register,
    [YB_WIRE_CONDUCTOR_RECORD_UNREGISTER] = on_unregister,
    [YB_WIRE_CONDUCTOR_RECORD_REPORT] = on_report,
    [YB_WIRE_CONDUCTOR_RECORD_STORAGE] = on_storage,
    [YB_WIRE_CONDUCTOR_RECORD_WAYS] = on_ways,
    [YB_WIRE_CONDUCTOR_RECORD_BLOCKS] = on_blocks,
    [YB_WIRE_CONDUCTOR_RECORD_SCHEDULE] = on_schedule,
    [YB_WIRE_CONDUCTOR_RECORD_DECISION] = on_decision,
    [YB_WIRE_CONDUCTOR_RECORD_DONE] = on_done,
    [YB_WIRE_CONDUCTOR_RECORD_MOVE] = on_move,
    [YB_WIRE_CONDUCTOR_RECORD_TICK] = on_tick,
    [YB_WIRE_CONDUCTOR_RECORD_RESET] = on_reset,
};

/* One record; *used_out 0: it is cut off. */
static enum yb_status
replay_one(struct replay *replay, const uint8_t *bytes, size_t length, size_t *used_out)
{
    struct yb_wire_conductor_entry entry;
    struct yb_wire_error error = {"record", "length", "not a record", 0};
    char text[YB_CONDUCTOR_WHY_BYTES / 2];
    enum yb_status status;

    *used_out = 0;
    if (length < YB_WIRE_CONDUCTOR_ENTRY_BYTES) {
        return YB_OK;
    }
    status = yb_wire_conductor_entry_decode(bytes, YB_WIRE_CONDUCTOR_ENTRY_BYTES, &entry, &error);
    if (status == YB_OK && entry.length > length - YB_WIRE_CONDUCTOR_ENTRY_BYTES) {
        return YB_OK;
    }
    replay->body = bytes + YB_WIRE_CONDUCTOR_ENTRY_BYTES;
    if (status == YB_OK && yb_crc32c(replay->body, entry.length) != entry.checksum) {
        error = (struct yb_wire_error){"record", "checksum", "is another one", entry.checksum};
        status = YB_CORRUPT;
    } else if (status == YB_OK &&
               (replay->conductor == NULL) != (entry.kind == YB_WIRE_CONDUCTOR_RECORD_OPTIONS)) {
        error =
            (struct yb_wire_error){"record", "kind", "options come first, and once", entry.kind};
        status = YB_PROTOCOL;
    }
    if (status == YB_OK) {
        replay->length = entry.length;
        replay->now_ns = entry.now_ns;
        status = handlers[entry.kind](replay, &error);
    }
    if (status != YB_OK) {
        yb_wire_error_format(&error, text, sizeof(text));
        return yb_conductor_say(replay->why_out, status == YB_NO_MEMORY ? status : YB_INVALID,
                                "record %" PRIu64 ": %s", replay->result->records + 1, text);
    }
    *used_out = YB_WIRE_CONDUCTOR_ENTRY_BYTES + entry.length;
    return YB_OK;
}

enum yb_status
yb_conductor_replay(const void *bytes, size_t length, struct yb_conductor_replayed *replayed_out,
                    char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_replayed result = {0};
    struct replay *replay = calloc(1, sizeof(*replay));
    size_t used = 1;
    enum yb_status status = YB_OK;

    if (replay == NULL) {
        return yb_conductor_say(why_out, YB_NO_MEMORY, "no memory to run a log again");
    }
    replay->result = &result;
    replay->why_out = why_out;
    while (status == YB_OK && used > 0 && result.used_bytes < length) {
        status = replay_one(replay, (const uint8_t *)bytes + result.used_bytes,
                            length - result.used_bytes, &used);
        result.used_bytes += used;
        result.records += used > 0;
    }
    yb_conductor_destroy(&replay->conductor);
    free(replay);
    if (status == YB_OK) {
        *replayed_out = result;
    }
    return status;
}
