/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions: what a prompt is made of, and where it should run.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "conductor/conductor_internal.h"
#include "yuebing/client.h"

#define DEFAULT_TENANT "default"
#define HASH_STEP      256u /* Names that are hashed at a time. */
#define RETRY_MIN_MS   100u
#define RETRY_MAX_MS   30000u

/* ---- prompts --------------------------------------------------------------------------------- */

static struct yb_hash_bytes
tenant_of(struct yb_wire_text tenant)
{
    return tenant.length == 0 ? (struct yb_hash_bytes){DEFAULT_TENANT, sizeof(DEFAULT_TENANT) - 1}
                              : (struct yb_hash_bytes){tenant.bytes, tenant.length};
}

static uint64_t
first_bytes(const struct yb_id *id)
{
    uint64_t name;

    memcpy(&name, id->bytes, sizeof(name));
    return le64toh(name);
}

uint64_t
yb_conductor_block_name(const struct yb_conductor *conductor, struct yb_wire_text tenant,
                        struct yb_id key)
{
    const struct yb_id id = yb_hash_key(conductor->options.hash_seed, tenant_of(tenant),
                                        (struct yb_hash_bytes){key.bytes, sizeof(key.bytes)});

    return first_bytes(&id);
}

void
yb_conductor_seed(const struct yb_conductor *conductor, uint8_t seed_out[YB_HASH_SEED_BYTES])
{
    memcpy(seed_out, conductor->options.hash_seed, YB_HASH_SEED_BYTES);
}

/* Name blocks as the store does: by the hash of tenant and key. */
static void
name_blocks(const struct yb_conductor *conductor, struct yb_wire_text tenant,
            const struct yb_wire_conductor_key_list *keys, uint64_t *blocks_out)
{
    struct yb_wire_conductor_key key[HASH_STEP];
    struct yb_hash_bytes bytes[HASH_STEP];
    struct yb_id ids[HASH_STEP];

    for (uint32_t done = 0; done < keys->count;) {
        uint32_t some = keys->count - done < HASH_STEP ? keys->count - done : HASH_STEP;

        for (uint32_t i = 0; i < some; i++) {
            yb_wire_conductor_key_at(keys, done + i, &key[i]);
            bytes[i] = (struct yb_hash_bytes){key[i].key.bytes, sizeof(key[i].key.bytes)};
        }
        yb_hash_keys(conductor->options.hash_seed, tenant_of(tenant), bytes, some, ids);
        for (uint32_t i = 0; i < some; i++) {
            blocks_out[done + i] = first_bytes(&ids[i]);
        }
        done += some;
    }
}

/* Name the blocks of tokens as clients do. On OK the keys are the caller's. */
static enum yb_status
chain(const struct yb_conductor *conductor, const struct yb_wire_conductor_schedule *asked,
      struct yb_wire_conductor_key **keys_out, uint32_t *count_out)
{
    const uint32_t tokens = asked->tokens.length / sizeof(uint32_t);
    const uint32_t room = tokens / conductor->options.block_tokens;
    const struct yb_wire_text salt = asked->salt.length > 0 ? asked->salt : asked->model;
    struct yb_wire_conductor_key *keys = malloc(((size_t)room + 1) * sizeof(*keys));
    uint32_t *numbers = malloc((size_t)asked->tokens.length + 1);
    char text[YB_WIRE_CONDUCTOR_SCHEDULE_SALT_MAX + 1] = "";

    if (keys == NULL || numbers == NULL) {
        free(keys);
        free(numbers);
        return YB_NO_MEMORY;
    }
    if (salt.length > 0) {
        memcpy(text, salt.bytes, salt.length);
        text[salt.length] = '\0';
    }
    for (uint32_t i = 0; i < tokens; i++) { /* They may lie anywhere in what was received. */
        numbers[i] = yb_wire_get_u32(asked->tokens.bytes + i * sizeof(uint32_t));
    }
    *count_out = yb_key_chain(numbers, tokens, conductor->options.block_tokens, text,
                              (uint8_t(*)[16])keys, room);
    free(numbers);
    *keys_out = keys;
    return YB_OK;
}

/* Everything about a question that can be wrong in itself. */
static enum yb_status
check_asked(const struct yb_conductor *conductor, const struct yb_wire_conductor_schedule *asked,
            char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    const uint32_t block_tokens = conductor->options.block_tokens;
    const uint32_t tokens = asked->tokens.length / sizeof(uint32_t);

    if (asked->tokens.length > 0 && asked->hashes.count > 0) {
        return yb_conductor_say(why_out, YB_INVALID, "give tokens or hashes, not both");
    }
    if (asked->tokens.length % sizeof(uint32_t) != 0) {
        return yb_conductor_say(why_out, YB_INVALID, "a token has 4 bytes, tokens have %u",
                                asked->tokens.length);
    }
    if (tokens > 0 && asked->salt.length == 0 && asked->model.length == 0) {
        /* Names made with no salt would be found nowhere, without a word. */
        return yb_conductor_say(why_out, YB_INVALID,
                                "tokens are named with the model, or salt: give either");
    }
    if (asked->block_tokens != 0 && asked->block_tokens != block_tokens) {
        return yb_conductor_say(why_out, YB_INVALID, "blocks have %u tokens here, not %u",
                                block_tokens, asked->block_tokens);
    }
    if (tokens > 0 && asked->input_tokens != 0 && asked->input_tokens != tokens) {
        return yb_conductor_say(why_out, YB_INVALID, "input_tokens is %u, but there are %u tokens",
                                asked->input_tokens, tokens);
    }
    if (tokens == 0 && asked->hashes.count == 0 && asked->input_tokens == 0) {
        return yb_conductor_say(why_out, YB_INVALID,
                                "one of tokens, hashes and input_tokens is needed");
    }
    if (asked->input_tokens != 0 &&
        asked->hashes.count > ((uint64_t)asked->input_tokens + block_tokens - 1) / block_tokens) {
        return yb_conductor_say(why_out, YB_INVALID,
                                "%u hashes are more than %u input_tokens have blocks of %u",
                                asked->hashes.count, asked->input_tokens, block_tokens);
    }
    return YB_OK;
}

enum yb_status
yb_conductor_prompt_read(const struct yb_conductor *conductor,
                         const struct yb_wire_conductor_schedule *asked,
                         struct yb_conductor_prompt *prompt_out,
                         char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_wire_conductor_key_list keys = asked->hashes;
    struct yb_wire_conductor_key *own = NULL;
    uint64_t *blocks = NULL;
    uint64_t tokens = asked->input_tokens;
    enum yb_status status = check_asked(conductor, asked, why_out);

    if (status != YB_OK) {
        return status;
    }
    if (asked->tokens.length > 0) {
        tokens = asked->tokens.length / sizeof(uint32_t);
        status = chain(conductor, asked, &own, &keys.count);
        keys.native = own;
    } else if (tokens == 0) {
        tokens = (uint64_t)keys.count * conductor->options.block_tokens;
    }
    if (status == YB_OK && keys.count > YB_SCHED_REQUEST_BLOCKS_MAX) {
        status = YB_TOO_LARGE;
    }
    blocks = status == YB_OK ? malloc(((size_t)keys.count + 1) * sizeof(*blocks)) : NULL;
    if (blocks == NULL) {
        free(own);
        status = status == YB_OK ? YB_NO_MEMORY : status;
        return yb_conductor_say(why_out, status, "the prompt has too many blocks, or no memory");
    }
    name_blocks(conductor, asked->tenant, &keys, blocks);
    *prompt_out = (struct yb_conductor_prompt){.blocks = blocks,
                                               .count = keys.count,
                                               .tokens = (uint32_t)tokens,
                                               .keys = keys,
                                               .own = own};
    return YB_OK;
}

void
yb_conductor_prompt_fini(struct yb_conductor_prompt *prompt)
{
    free(prompt->blocks);
    free(prompt->own);
    prompt->blocks = NULL;
    prompt->own = NULL;
}

/* ---- answers --------------------------------------------------------------------------------- */

enum name_row {
    NAME_PREFILL,
    NAME_PREFILL_ADDRESS,
    NAME_DECODE,
    NAME_DECODE_ADDRESS,
    NAME_SOURCE,
    NAME_BEST
};

static const char *
name_of(const struct yb_conductor *conductor, uint32_t place)
{
    return place < conductor->seats_used ? conductor->seats[place].name : "";
}

static struct yb_wire_text
keep(struct yb_conductor_answer *answer, enum name_row row, const char *name)
{
    memcpy(answer->names[row], name, strlen(name) + 1);
    return yb_wire_text_of(answer->names[row]);
}

static uint64_t
since_us(uint64_t at_ns, uint64_t from_ns)
{
    return at_ns > from_ns ? (at_ns - from_ns) / YB_NS_PER_US : 0;
}

/* 0 is none: what is wanted at once has 1. */
static uint64_t
deadline_us(const struct yb_sched_instruction *from, uint64_t now_ns)
{
    const uint64_t left_us = since_us(from->deadline_ns, now_ns);

    return from->deadline_ns != 0 && left_us == 0 ? 1 : left_us;
}

static void
fill_instruction(struct yb_conductor *conductor, uint32_t model,
                 const struct yb_sched_instruction *from, uint64_t now_ns,
                 struct yb_wire_conductor_instruction *out)
{
    const char *source = name_of(conductor, from->from);
    const char *target = name_of(conductor, from->to);

    *out = (struct yb_wire_conductor_instruction){
        .id = yb_conductor_number(from->id, model),
        .bytes = from->bytes,
        .not_before_us = since_us(from->not_before_ns, now_ns),
        .deadline_us = deadline_us(from, now_ns),
        .ready_us = since_us(from->ready_ns, now_ns),
        .first = from->first,
        .count = from->count,
        .kind = (uint8_t)from->kind,
        .from_tier = (uint8_t)from->from_tier,
        .to_tier = (uint8_t)from->to_tier,
        .class = (uint8_t)from->work_class,
    };
    memcpy(out->from, source, strlen(source));
    memcpy(out->to, target, strlen(target));
    yb_conductor_place_move(conductor, &conductor->models[model], from, now_ns, out);
}

/* When it is worth asking again. */
static uint32_t
retry_after_ms(const struct yb_conductor *conductor, const struct yb_sched_decision *decision,
               uint64_t slo_ns)
{
    uint64_t wait_ns = YB_NS_PER_S;

    slo_ns = slo_ns != 0 ? slo_ns : conductor->options.ttft_slo_ns;
    if (decision->reason == YB_SCHED_REASON_TTFT && decision->ttft_ns > slo_ns) {
        wait_ns = decision->ttft_ns - slo_ns;
    }
    wait_ns /= YB_NS_PER_MS;
    return wait_ns < RETRY_MIN_MS   ? RETRY_MIN_MS
           : wait_ns > RETRY_MAX_MS ? RETRY_MAX_MS
                                    : (uint32_t)wait_ns;
}

static void
fill_figures(const struct yb_sched_decision *decision, uint64_t now_ns,
             struct yb_wire_conductor_decision *wire)
{
    wire->hotspot = (uint8_t)decision->hotspot;
    wire->source_tier = (uint8_t)decision->source_tier;
    wire->hit_device = decision->hit_blocks[YB_SCHED_TIER_DEVICE];
    wire->hit_dram = decision->hit_blocks[YB_SCHED_TIER_DRAM];
    wire->hit_ssd = decision->hit_blocks[YB_SCHED_TIER_SSD];
    wire->hit_object = decision->hit_blocks[YB_SCHED_TIER_OBJECT];
    wire->soon_blocks = decision->soon_blocks;
    wire->local_blocks = decision->local_blocks;
    wire->reuse_blocks = decision->reuse_blocks;
    wire->reuse_tokens = decision->reuse_tokens;
    wire->best_blocks = decision->best_blocks;
    wire->start_us = since_us(decision->start_ns, now_ns);
    wire->ready_us = since_us(decision->ready_ns, now_ns);
    wire->ttft_us = decision->ttft_ns / YB_NS_PER_US;
    wire->queue_us = decision->queue_ns / YB_NS_PER_US;
    wire->load_us = decision->load_ns / YB_NS_PER_US;
    wire->prefill_us = decision->prefill_ns / YB_NS_PER_US;
    wire->tpot_us = decision->tpot_ns / YB_NS_PER_US;
}

static void
fill_answer(struct yb_conductor *conductor, uint32_t model, const struct yb_sched_request *request,
            const struct yb_sched_decision *decision, struct yb_conductor_answer *out)
{
    struct yb_wire_conductor_decision *wire = &out->wire;
    const uint64_t now_ns = request->arrival_ns;

    memset(out, 0, sizeof(*out));
    wire->accepted = decision->accepted;
    wire->reason = (uint8_t)decision->reason;
    wire->decision = yb_conductor_number(decision->number, model);
    wire->id = request->id;
    wire->mode = (uint8_t)decision->mode;
    wire->blocks = request->block_count;
    if (!decision->accepted) {
        wire->retry_after_ms = retry_after_ms(conductor, decision, request->ttft_slo_ns);
        wire->ttft_us = decision->ttft_ns / YB_NS_PER_US;
        wire->tpot_us = decision->tpot_ns / YB_NS_PER_US;
        return;
    }
    fill_figures(decision, now_ns, wire);
    out->parts = conductor->seats[decision->prefill].parts;
    wire->report_sequence = decision->report_sequence;
    wire->report_age_us = since_us(now_ns, conductor->seats[decision->prefill].heard_ns);
    wire->prefill = keep(out, NAME_PREFILL, name_of(conductor, decision->prefill));
    wire->prefill_address =
        keep(out, NAME_PREFILL_ADDRESS, conductor->seats[decision->prefill].address);
    wire->decode = keep(out, NAME_DECODE, name_of(conductor, decision->decode));
    wire->decode_address =
        keep(out, NAME_DECODE_ADDRESS, conductor->seats[decision->decode].address);
    wire->source = keep(out, NAME_SOURCE, name_of(conductor, decision->source));
    wire->best = keep(out, NAME_BEST, name_of(conductor, decision->best));
    for (uint32_t i = 0; i < decision->instruction_count; i++) {
        fill_instruction(conductor, model, &decision->instructions[i], now_ns,
                         &out->instructions[i]);
    }
    wire->instructions.count = decision->instruction_count;
    wire->instructions.native = out->instructions;
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* Write the question down, with its blocks in place of what they came from. */
static void
record_asked(struct yb_conductor *conductor, const struct yb_wire_conductor_schedule *asked,
             const struct yb_conductor_prompt *prompt, uint64_t now_ns)
{
    struct yb_wire_conductor_schedule bare = *asked;
    uint8_t question[YB_WIRE_CONDUCTOR_ASKED_QUESTION_MAX];
    struct yb_wire_conductor_block *blocks;
    size_t length = 0;

    if (conductor->options.record == NULL) {
        return;
    }
    bare.tokens.length = 0;
    bare.hashes.count = 0;
    bare.input_tokens = prompt->tokens;
    blocks = malloc(((size_t)prompt->count + 1) * sizeof(*blocks));
    if (blocks != NULL &&
        yb_wire_conductor_schedule_encode(&bare, question, sizeof(question), &length) == YB_OK) {
        const struct yb_wire_conductor_asked wire = {
            .id = asked->id,
            .blocks = {.count = prompt->count, .native = blocks},
            .question = {question, (uint32_t)length},
        };

        for (uint32_t i = 0; i < prompt->count; i++) {
            blocks[i].block = prompt->blocks[i];
        }
        YB_CONDUCTOR_RECORD(conductor, SCHEDULE, asked, &wire, now_ns);
    }
    free(blocks);
}

static struct yb_sched_request
request_of(struct yb_conductor *conductor, const struct yb_wire_conductor_schedule *asked,
           const struct yb_conductor_prompt *prompt, uint64_t now_ns)
{
    const struct yb_conductor_seat *failed =
        asked->not_at.length > 0 ? yb_conductor_find(conductor, asked->not_at) : NULL;

    return (struct yb_sched_request){
        .struct_bytes = sizeof(struct yb_sched_request),
        .id = asked->id != 0 ? asked->id : conductor->requests,
        .arrival_ns = now_ns,
        .input_tokens = prompt->tokens,
        .output_tokens = asked->output_tokens,
        .blocks = prompt->blocks,
        .block_count = prompt->count,
        .work_class = asked->class,
        .session = asked->session,
        .ttft_slo_ns = asked->ttft_slo_us * YB_NS_PER_US,
        .tpot_slo_ns = asked->tbt_slo_us * YB_NS_PER_US,
        .not_at = failed != NULL ? (uint32_t)(failed - conductor->seats) + 1 : 0,
    };
}

/* The decision runs from here on, or was none. */
static void
count_answer(struct yb_conductor *conductor, const struct yb_conductor_answer *answer,
             const struct yb_sched_decision *decision, uint64_t now_ns)
{
    struct yb_conductor_open row = {
        .decision = answer->wire.decision,
        .until_ns = yb_deadline_after(now_ns, decision->ttft_ns + YB_CONDUCTOR_WAIT_NS),
        .count = decision->instruction_count,
    };

    if (!decision->accepted) {
        conductor->rejected++;
        conductor->rejected_for[decision->reason]++;
        return;
    }
    for (uint32_t i = 0; i < row.count; i++) {
        row.carried |= (uint8_t)(answer->instructions[i].carrier << i);
    }
    yb_conductor_ledger_add(conductor, &row, now_ns);
}

enum yb_status
yb_conductor_schedule(struct yb_conductor *conductor,
                      const struct yb_wire_conductor_schedule *asked,
                      const struct yb_conductor_prompt *prompt, uint64_t now_ns,
                      struct yb_conductor_answer *answer_out, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_sched_request request;
    struct yb_sched_decision decision;
    struct yb_conductor_model *model;
    uint32_t index;
    enum yb_status status;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    record_asked(conductor, asked, prompt, now_ns);
    status = yb_conductor_model_of(conductor, asked->model, &index, why_out);
    if (status != YB_OK) {
        return status;
    }
    conductor->requests++;
    model = &conductor->models[index];
    request = request_of(conductor, asked, prompt, now_ns);
    status = yb_sched_decide(model->sched, model->scratch, &request, now_ns, &decision);
    if (status == YB_OK) {
        status = yb_sched_commit(model->sched, &request, &decision, now_ns);
    }
    if (status != YB_OK) {
        return yb_conductor_say(why_out, status,
                                "the request is beyond the limits: more blocks than its tokens, "
                                "or no tokens");
    }
    fill_answer(conductor, index, &request, &decision, answer_out);
    count_answer(conductor, answer_out, &decision, now_ns);
    if (model->heat != NULL && decision.accepted) {
        yb_conductor_heat_note(model->heat, asked->tenant, prompt, answer_out->parts, now_ns);
    }
    YB_CONDUCTOR_RECORD(conductor, DECISION, decision, &answer_out->wire, now_ns);
    return YB_OK;
}

/* ---- looking --------------------------------------------------------------------------------- */

static uint32_t
longest(const struct yb_sched_hit *hit)
{
    const uint32_t run = hit->run[YB_SCHED_LOCAL_TIERS - 1];

    return run > hit->soon ? run : hit->soon;
}

/* Put a place where it belongs among the best. */
static void
rank(struct yb_conductor_hits *hits, const struct yb_sched_hit *hit, const char *name)
{
    uint32_t at = hits->count;

    if (longest(hit) == 0 ||
        (at == YB_CONDUCTOR_HITS_MAX && longest(&hits->rows[at - 1].hit) >= longest(hit))) {
        return;
    }
    if (at == YB_CONDUCTOR_HITS_MAX) {
        at--;
    } else {
        hits->count++;
    }
    for (; at > 0 && longest(&hits->rows[at - 1].hit) < longest(hit); at--) {
        hits->rows[at] = hits->rows[at - 1];
    }
    memcpy(hits->rows[at].name, name, strlen(name) + 1);
    hits->rows[at].hit = *hit;
}

enum yb_status
yb_conductor_query(struct yb_conductor *conductor, const struct yb_wire_conductor_schedule *asked,
                   const struct yb_conductor_prompt *prompt, uint64_t now_ns,
                   struct yb_conductor_hits *hits_out, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    struct yb_conductor_model *model;
    uint32_t index;
    enum yb_status status;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    status = yb_conductor_model_of(conductor, asked->model, &index, why_out);
    if (status != YB_OK) {
        return status;
    }
    model = &conductor->models[index];
    (void)yb_sched_match(model->sched, model->scratch, prompt->blocks, prompt->count, now_ns,
                         model->hits);
    hits_out->count = 0;
    for (uint32_t i = 0; i < conductor->seats_used; i++) {
        const struct yb_conductor_seat *seat = &conductor->seats[i];

        if (seat->kind == YB_CONDUCTOR_STORAGE ||
            (seat->kind == YB_CONDUCTOR_INSTANCE && seat->model == index)) {
            rank(hits_out, &model->hits[i], seat->name);
        }
    }
    return YB_OK;
}
