/* SPDX-License-Identifier: Apache-2.0
 *
 * store_values.h -- words of a command, keys, values that are functions, and buffers with guards.
 *
 * A value is a function of key, version and offset. Of a value of at least 8 bytes the first 8 are
 * its version, so that whoever finds any of several versions can tell which, and that it is whole.
 *
 * Threads   One thread per object.
 * Memory    Everything dies on want of memory: this is a test's program.
 */
#ifndef YB_TEST_STORE_VALUES_H
#define YB_TEST_STORE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/client.h"

#define WORDS_MAX   32u
#define VERSION_ANY UINT64_MAX

/* `verb key=value key=value`; the text is the caller's, or a copy's. */
struct words {
    char *verb;
    uint32_t count;
    char *names[WORDS_MAX];
    char *values[WORDS_MAX];
};

void words_split(struct words *words, char *line);
void words_copy(struct words *copy_out, const struct words *words);
void words_free(struct words *copy);
const char *words_text(const struct words *words, const char *name, const char *otherwise);
uint64_t words_number(const struct words *words, const char *name, uint64_t otherwise);

struct keys {
    uint32_t count;
    char **texts;
    uint32_t *lengths;
};

void keys_make(struct keys *keys, const struct words *words);
void keys_parse(struct keys *keys, const char *spec, uint32_t pad_to);
void keys_pick(struct keys *keys_out, const struct keys *from, uint32_t first, uint32_t count);
void keys_free(struct keys *keys);

/* The buffers of one call, and what came of it. */
struct buffers {
    uint32_t count;
    struct yb_client_item *items;
    struct iovec *iov;
    uint8_t *arena;
    uint64_t *seeds;
    uint64_t *starts; /* Of each item in the arena: guard, piece, guard, ..., piece, guard. */
    uint64_t arena_bytes;
    struct keys keys; /* If they are the buffers' own. */
    uint32_t wrong;   /* OK, but not the value. */
    uint32_t broken;  /* A guard was written to. */
    uint32_t touched; /* Not OK, and the buffer is not as it was. */
    uint64_t *versions;
};

void buffers_make(struct buffers *buffers, const struct words *words, const struct keys *keys,
                  uint32_t from, uint32_t count);
void buffers_fill(struct buffers *buffers, uint64_t version);
void buffers_blank(struct buffers *buffers);
void buffers_judge(struct buffers *buffers, bool pinned, uint64_t version);
uint32_t buffers_there(const struct buffers *buffers);
void buffers_free(struct buffers *buffers);

/* Results of many calls, printed as one line. */
struct report;
struct report *report_make(void);
void report_add(struct report *report, const struct buffers *buffers);
void report_print(struct report *report, enum yb_status status, double ms, double longest_ms);
void report_free(struct report *report);

void print_text(const char *text);
void print_text_of(const void *bytes, uint32_t length);

#endif /* YB_TEST_STORE_VALUES_H */
