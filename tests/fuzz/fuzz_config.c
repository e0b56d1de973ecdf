/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a configuration file and, line by line, as the text of a value:
 * each is taken or refused with a message, and what is taken reads back.
 */
#include <string.h>

#include "base/check.h"
#include "base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
try_file(const uint8_t *data, size_t size)
{
    struct yb_config config;
    char message[YB_CONFIG_MESSAGE_MAX] = "";
    char text[YB_CONFIG_TEXT_MAX];

    yb_config_init(&config);
    if (yb_config_parse_file(&config, "fuzz.ini", (const char *)data, size, message) != YB_OK) {
        YB_ASSERT(strncmp(message, "fuzz.ini:", 9) == 0);
        return;
    }
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_OPTION};

        yb_config_value_text(&config, i, text);
        YB_ASSERT(yb_config_set(&config, i, text, origin, message) == YB_OK);
    }
}

static void
try_value(const uint8_t *data, size_t size)
{
    static const struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_OPTION};
    struct yb_config config;
    char message[YB_CONFIG_MESSAGE_MAX];
    char text[2 * YB_CONFIG_TEXT_MAX];
    char again[YB_CONFIG_TEXT_MAX];
    char first[YB_CONFIG_TEXT_MAX];

    size = size < sizeof(text) ? size : sizeof(text) - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    yb_config_init(&config);
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        message[0] = '\0';
        if (yb_config_set(&config, i, text, origin, message) != YB_OK) {
            YB_ASSERT(message[0] != '\0');
            continue;
        }
        yb_config_value_text(&config, i, first);
        YB_ASSERT(yb_config_set(&config, i, first, origin, message) == YB_OK);
        yb_config_value_text(&config, i, again);
        YB_ASSERT(strcmp(first, again) == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\n', size);

    try_file(data, size);
    try_value(data, end == NULL ? size : (size_t)(end - data));
    return 0;
}
