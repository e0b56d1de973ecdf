/* SPDX-License-Identifier: Apache-2.0
 *
 * conductor_stage.h -- a conductor with instances and nodes, time passed in, and what tests tell
 * and ask it.
 */
#ifndef YB_TESTS_CONDUCTOR_STAGE_H
#define YB_TESTS_CONDUCTOR_STAGE_H

#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "conductor/conductor.h"
#include "yuebing/client.h"

#define BLOCK      16u
#define LOG_MAX    (16u << 20)
#define PROMPT_MAX 64u

struct stage {
    struct yb_conductor *conductor;
    struct yb_conductor_order *orders; /* That heat gave, the newest first. */
    bool refuses;                      /* Orders. */
    uint64_t now_ns;
    uint8_t *log;
    size_t log_bytes;
};

static inline void
keep_record(void *owner, const void *bytes, size_t length)
{
    struct stage *stage = owner;

    assert_true(stage->log_bytes + length <= LOG_MAX);
    memcpy(stage->log + stage->log_bytes, bytes, length);
    stage->log_bytes += length;
}

static inline bool
keep_order(void *owner, struct yb_conductor_order *order)
{
    struct stage *stage = owner;

    if (stage->refuses) {
        return false;
    }
    order->next = stage->orders;
    stage->orders = order;
    return true;
}

static inline void
stage_make_with(struct stage *stage, const char *routing, const char *admission, uint32_t mode)
{
    const struct yb_conductor_options options = {
        .routing = routing,
        .admission = admission,
        .mode = mode,
        .places_max = 32,
        .blocks_max = 4096,
        .pending_max = 64,
        .block_tokens = BLOCK,
        .seed = 3,
        .hash_seed = {7},
        .heat_ns = 2 * YB_NS_PER_S,
        .moves = true,
        .record = keep_record,
        .order = keep_order,
        .owner = stage,
    };
    char why[YB_CONDUCTOR_WHY_BYTES] = "";

    *stage = (struct stage){.now_ns = YB_NS_PER_S, .log = malloc(LOG_MAX)};
    assert_non_null(stage->log);
    assert_int_equal(yb_conductor_create(&options, &stage->conductor, why), YB_OK);
}

static inline void
stage_make(struct stage *stage, const char *routing, uint32_t mode)
{
    stage_make_with(stage, routing, NULL, mode);
}

static inline void
stage_close(struct stage *stage)
{
    yb_conductor_destroy(&stage->conductor);
    assert_null(stage->conductor);
    while (stage->orders != NULL) {
        struct yb_conductor_order *order = stage->orders;

        stage->orders = order->next;
        free(order);
    }
    free(stage->log);
}

static inline enum yb_status
enroll(struct stage *stage, const char *name, const char *model, uint8_t roles,
       uint64_t incarnation)
{
    const struct yb_wire_conductor_register said = {
        .incarnation = incarnation,
        .in_rate = 25000000000,
        .out_rate = 25000000000,
        .load_rate = 100000000000,
        .ssd_rate = 7000000000,
        .object_rate = 2000000000,
        .prefill_token_ps = 108300000,
        .prefill_pair_fs = 768000,
        .step_base_ns = 26800000,
        .kv_bytes = 327680,
        .layers = 80,
        .roles = roles,
        .name = yb_wire_text_of(name),
        .address = yb_wire_text_of("127.0.0.1:9000"),
        .model = yb_wire_text_of(model),
    };
    char why[YB_CONDUCTOR_WHY_BYTES] = "";

    return yb_conductor_register(stage->conductor, &said, stage->now_ns, why);
}

/* Keys of a prompt: those of `session` after `shared` that all have. */
static inline void
keys_of(struct yb_wire_conductor_key *keys, uint32_t count, uint8_t session)
{
    memset(keys, 0, count * sizeof(*keys));
    for (uint32_t i = 0; i < count; i++) {
        keys[i].key.bytes[0] = (uint8_t)(i + 1);
        keys[i].key.bytes[1] = i < 2 ? 0 : session;
    }
}

#define KEYS(count, keys) ((struct yb_wire_conductor_key_list){(count), NULL, (keys)})
#define NO_KEYS           KEYS(0, NULL)

static inline enum yb_status
report(struct stage *stage, const char *name, uint64_t incarnation, uint64_t sequence,
       struct yb_wire_conductor_key_list keys, bool gone)
{
    struct yb_wire_conductor_cached cached[PROMPT_MAX];
    struct yb_wire_conductor_report said = {
        .incarnation = incarnation,
        .sequence = sequence,
        .name = yb_wire_text_of(name),
        .blocks = {.count = keys.count, .native = cached},
    };
    char why[YB_CONDUCTOR_WHY_BYTES] = "";

    for (uint32_t i = 0; i < keys.count; i++) {
        cached[i] = (struct yb_wire_conductor_cached){.key = keys.native[i].key, .gone = gone};
    }
    return yb_conductor_report(stage->conductor, &said, stage->now_ns, why);
}

static inline struct yb_wire_conductor_schedule
question_of(const struct yb_wire_conductor_key *keys, uint32_t count)
{
    return (struct yb_wire_conductor_schedule){
        .hashes = {.count = count, .native = keys},
        .model = yb_wire_text_of("m"),
    };
}

static inline enum yb_status
ask(struct stage *stage, const struct yb_wire_conductor_schedule *question,
    struct yb_conductor_answer *answer)
{
    struct yb_conductor_prompt prompt;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    enum yb_status status = yb_conductor_prompt_read(stage->conductor, question, &prompt, why);

    if (status != YB_OK) {
        return status;
    }
    status = yb_conductor_schedule(stage->conductor, question, &prompt, stage->now_ns, answer, why);
    yb_conductor_prompt_fini(&prompt);
    return status;
}

static inline void
ask_keys(struct stage *stage, const struct yb_wire_conductor_key *keys, uint32_t count,
         struct yb_conductor_answer *answer)
{
    const struct yb_wire_conductor_schedule question = question_of(keys, count);

    assert_int_equal(ask(stage, &question, answer), YB_OK);
    assert_true(answer->wire.accepted);
}

static inline enum yb_status
done(struct stage *stage, uint64_t decision, uint8_t way, bool failed,
     const struct yb_wire_conductor_ended *ended, uint32_t count)
{
    const struct yb_wire_conductor_done said = {
        .decision = decision,
        .stage = way,
        .failed = failed,
        .instructions = {.count = count, .native = ended},
    };

    return yb_conductor_done(stage->conductor, &said, stage->now_ns);
}

static inline void
put_blocks(struct stage *stage, uint32_t place, uint8_t tier,
           const struct yb_wire_conductor_key *keys, uint32_t count)
{
    struct yb_wire_conductor_change changes[PROMPT_MAX];
    const struct yb_wire_conductor_change_list list = {.count = count, .native = changes};

    for (uint32_t i = 0; i < count; i++) {
        changes[i] = (struct yb_wire_conductor_change){
            .block = yb_conductor_block_name(stage->conductor, yb_wire_text_of(""), keys[i].key),
            .place = place,
            .tier = tier,
        };
    }
    yb_conductor_blocks(stage->conductor, &list, stage->now_ns);
}

#endif /* YB_TESTS_CONDUCTOR_STAGE_H */
