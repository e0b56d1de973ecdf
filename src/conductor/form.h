/* SPDX-License-Identifier: Apache-2.0
 *
 * form.h -- JSON to the structs of the wire, by one table for each message.
 *
 * A row says what a member is called, which field it fills, how large it may be and what it means.
 * Reading, refusing and the OpenAPI description come from the rows.
 *
 * Threads   Any.
 * Memory    What was read points into the JSON and into the form's memory: both must live as long.
 */
#ifndef YB_CONDUCTOR_FORM_H
#define YB_CONDUCTOR_FORM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_FORM_WHY_BYTES  256u
#define YB_FORM_ARRAYS_MAX 4u

enum yb_form_kind {
    YB_FORM_NUMBER, /* Whole, 0 .. most. */
    YB_FORM_SIGNED, /* Whole, -most .. most. */
    YB_FORM_REAL,   /* Times `scale`, rounded: the field is whole. */
    YB_FORM_FLAG,   /* true or false. */
    YB_FORM_WORD,   /* One of `words`. */
    YB_FORM_TEXT,   /* At most `most` bytes. */
    YB_FORM_KEY,    /* 16 bytes as hex digits. */
    YB_FORM_TOKENS, /* Numbers, at most `most`, 4 bytes each in a blob. */
    YB_FORM_KEYS,   /* Keys, at most `most`, in a list. */
    YB_FORM_LIST,   /* Objects of `items`, at most `most`. */
};

struct yb_form {
    const char *name;
    uint8_t kind;   /* enum yb_form_kind */
    bool needed;    /* It must be given. */
    uint16_t at;    /* Offset of the field, */
    uint16_t bytes; /* its size; of a list: that of an item. */
    uint64_t most;
    double scale;
    const char *const *words; /* With NULL behind the last. */
    const struct yb_form *items;
    const char *text;
};

/* A form ends with a row without a name. */
#define YB_FORM_END \
    {               \
        0           \
    }

struct yb_form_memory {
    void *arrays[YB_FORM_ARRAYS_MAX];
    uint32_t count;
};

/* Fill *struct_out, which the caller has zeroed, from an object. Fails with INVALID or TOO_LARGE,
 * having named the member and what is allowed, or NO_MEMORY. In any case memory is to be given to
 * yb_form_fini(). */
YB_CHECKED enum yb_status yb_form_read(const struct yb_form *form, json_t *object, void *struct_out,
                                       struct yb_form_memory *memory,
                                       char why_out[YB_FORM_WHY_BYTES]);
void yb_form_fini(struct yb_form_memory *memory);

/* Return the form as a JSON schema. NULL: no memory. */
json_t *yb_form_schema(const struct yb_form *form);

/* Read 32 hex digits. */
bool yb_form_hex(const char *text, size_t length, uint8_t bytes_out[16]);

#endif /* YB_CONDUCTOR_FORM_H */
