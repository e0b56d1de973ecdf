/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a question in the binary form, which is answered if it can be; as JSON for each
 * form; and as a log of decisions, which is run again.
 */
#include <jansson.h>
#include <stdlib.h>

#include "base/check.h"
#include "conductor/conductor.h"
#include "conductor/forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MORE_THAN_LOG_MAX \
    4096u /* A log makes a conductor; a long one of garbage teaches nothing. */

static void
ask(const uint8_t *data, size_t size)
{
    const struct yb_conductor_options options = {
        .places_max = 4, .blocks_max = 64, .pending_max = 8, .block_tokens = 4};
    const struct yb_wire_conductor_register instance = {
        .kv_bytes = 1,
        .layers = 1,
        .roles = 3,
        .name = yb_wire_text_of("p"),
        .model = yb_wire_text_of("m"),
    };
    struct yb_wire_conductor_schedule question;
    struct yb_conductor_prompt prompt;
    struct yb_conductor_answer answer;
    struct yb_conductor *conductor = NULL;
    char why[YB_CONDUCTOR_WHY_BYTES];

    if (yb_wire_conductor_schedule_decode(data, size, &question, NULL) != YB_OK) {
        return;
    }
    YB_ASSERT(yb_conductor_create(&options, &conductor, why) == YB_OK);
    YB_ASSERT(yb_conductor_register(conductor, &instance, 1, why) == YB_OK);
    if (yb_conductor_prompt_read(conductor, &question, &prompt, why) == YB_OK) {
        if (yb_conductor_schedule(conductor, &question, &prompt, 2, &answer, why) == YB_OK) {
            YB_ASSERT(answer.wire.blocks == prompt.count);
            YB_ASSERT(answer.wire.reuse_blocks <= prompt.count);
        }
        yb_conductor_prompt_fini(&prompt);
    }
    yb_conductor_destroy(&conductor);
}

static void
read_forms(const uint8_t *data, size_t size)
{
    const struct yb_form *const forms[] = {yb_form_schedule, yb_form_done, yb_form_register,
                                           yb_form_unregister, yb_form_report};
    json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);

    for (size_t i = 0; json != NULL && i < sizeof(forms) / sizeof(forms[0]); i++) {
        union {
            struct yb_wire_conductor_schedule schedule;
            struct yb_wire_conductor_done done;
            struct yb_wire_conductor_register instance;
            struct yb_wire_conductor_name name;
            struct yb_wire_conductor_report report;
        } said = {.schedule = {.class = 0}};
        struct yb_form_memory memory;
        char why[YB_FORM_WHY_BYTES] = "";
        enum yb_status status = yb_form_read(forms[i], json, &said, &memory, why);

        YB_ASSERT(status == YB_OK || why[0] != '\0');
        yb_form_fini(&memory);
    }
    json_decref(json);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yb_conductor_replayed replayed;
    char why[YB_CONDUCTOR_WHY_BYTES];

    ask(data, size);
    read_forms(data, size);
    if (size <= MORE_THAN_LOG_MAX && yb_conductor_replay(data, size, &replayed, why) == YB_OK) {
        YB_ASSERT(replayed.used_bytes <= size);
        YB_ASSERT(replayed.differing <= replayed.decisions);
    }
    return 0;
}
