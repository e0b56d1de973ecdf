/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "node/match.h"

#include <pcre2.h>
#include <string.h>

#include "base/check.h"

#define HEAP_KIB 1024u /* What finding may take of memory. */
#define OPTIONS                                                                                    \
    (PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_ALT_BSUX | PCRE2_MATCH_UNSET_BACKREF | \
     PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_NEVER_BACKSLASH_C)

/* Why there is no expression. */
static enum yb_status
refused(int error)
{
    switch (error) {
    case PCRE2_ERROR_NOMEMORY:
    case PCRE2_ERROR_HEAP_FAILED: return YB_NO_MEMORY;
    case PCRE2_ERROR_PATTERN_TOO_LARGE:
    case PCRE2_ERROR_PARENTHESES_NEST_TOO_DEEP: return YB_TOO_LARGE;
    default: return YB_INVALID;
    }
}

static enum yb_status
compile(struct yb_match *match)
{
    size_t code_bytes = 0, where;
    int error;

    match->code =
        pcre2_compile(match->pattern, match->pattern_bytes, OPTIONS, &error, &where, NULL);
    if (match->code == NULL) {
        return refused(error);
    }
    (void)pcre2_pattern_info(match->code, PCRE2_INFO_SIZE, &code_bytes);
    if (code_bytes > YB_MATCH_CODE_BYTES) {
        return YB_TOO_LARGE;
    }
    match->limits = pcre2_match_context_create(NULL);
    match->found = pcre2_match_data_create(1, NULL);
    if (match->limits == NULL || match->found == NULL) {
        return YB_NO_MEMORY;
    }
    (void)pcre2_set_match_limit(match->limits, YB_MATCH_STEPS);
    (void)pcre2_set_heap_limit(match->limits, HEAP_KIB);
    return YB_OK;
}

enum yb_status
yb_match_init(struct yb_match *match, enum yb_wire_match kind, const void *pattern,
              size_t pattern_bytes)
{
    enum yb_status status = YB_OK;

    *match = (struct yb_match){.kind = kind, .pattern = pattern, .pattern_bytes = pattern_bytes};
    if (kind == YB_WIRE_MATCH_REGEX) {
        status = compile(match);
    }
    if (status != YB_OK) {
        yb_match_fini(match);
    }
    return status;
}

void
yb_match_fini(struct yb_match *match)
{
    pcre2_match_data_free(match->found);
    pcre2_match_context_free(match->limits);
    pcre2_code_free(match->code);
    match->code = match->limits = match->found = NULL;
}

static enum yb_status
find(const struct yb_match *match, const void *key, size_t key_bytes)
{
    int found = pcre2_match(match->code, key, key_bytes, 0, 0, match->found, match->limits);

    if (found >= 0) {
        return YB_OK;
    }
    return found == PCRE2_ERROR_NOMATCH ? YB_NOT_FOUND : YB_TOO_LARGE;
}

enum yb_status
yb_match_try(const struct yb_match *match, const void *key, size_t key_bytes)
{
    const size_t compared = match->pattern_bytes;

    switch (match->kind) {
    case YB_WIRE_MATCH_ALL: return YB_OK;
    case YB_WIRE_MATCH_REGEX: return find(match, key, key_bytes);
    case YB_WIRE_MATCH_KEY:
    case YB_WIRE_MATCH_PREFIX:
        if (key_bytes < compared || (match->kind == YB_WIRE_MATCH_KEY && key_bytes > compared)) {
            return YB_NOT_FOUND;
        }
        return memcmp(key, match->pattern, compared) == 0 ? YB_OK : YB_NOT_FOUND;
    }
    YB_ASSERT(false); /* The wire bounds it. */
    return YB_NOT_FOUND;
}
