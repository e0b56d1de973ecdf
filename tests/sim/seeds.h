/* SPDX-License-Identifier: Apache-2.0
 *
 * seeds.h -- the command line of the programs that run worlds by their seeds.
 */
#ifndef YB_TESTS_SEEDS_H
#define YB_TESTS_SEEDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline bool
seeds_number(const char *text, uint64_t *number_out)
{
    char *end = NULL;

    *number_out = strtoull(text, &end, 10);
    return end != text && *end == '\0';
}

/* Understand [--from N] [--seeds N] [--verbose]; false: something else was given. */
static inline bool
seeds_options(int count, char **words, uint64_t *from_out, uint64_t *seeds_out, bool *verbose_out)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--verbose") == 0) {
            *verbose_out = true;
        } else if (strcmp(words[i], "--seeds") == 0 && i + 1 < count) {
            if (!seeds_number(words[++i], seeds_out)) {
                return false;
            }
        } else if (strcmp(words[i], "--from") == 0 && i + 1 < count) {
            if (!seeds_number(words[++i], from_out)) {
                return false;
            }
        } else {
            return false;
        }
    }
    return *seeds_out > 0;
}

#endif /* YB_TESTS_SEEDS_H */
