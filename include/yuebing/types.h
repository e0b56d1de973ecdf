/* SPDX-License-Identifier: Apache-2.0
 *
 * types.h -- the small values that every part of Yuebing passes around.
 *
 * All of them are plain values: copy them freely, compare with the functions
 * below, never free anything.
 */
#ifndef YB_TYPES_H
#define YB_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/version.h"

/* A 128-bit name: a node, a process, a cluster, a trace, the hash of a key. Bytes in
 * the order in which they are printed. All zero means "none". */
struct yb_id {
    uint8_t bytes[16];
};

/* Traffic classes, in order of preference on every contended resource (docs/architecture.md). */
/* clang-format off */
#define YB_CLASS_MAP(X)                                                          \
    X(FIRST_TOKEN, 0, "first_token", "somebody waits for the first token of an answer") \
    X(THROUGHPUT,  1, "throughput",  "part of a running request, not its first token")  \
    X(BACKGROUND,  2, "background",  "repair, migration, prefetch, demotion")
/* clang-format on */

enum yb_class {
#define X(name, value, word, text) YB_CLASS_##name = value,
    YB_CLASS_MAP(X)
#undef X
};
#define YB_CLASS_COUNT 3u

#ifdef __cplusplus
extern "C" {
#endif

/* Return the word used in configuration, logs and metrics, such as "first_token";
 * "unknown" outside the table. Static string. */
YB_API const char *yb_class_name(enum yb_class traffic_class);

YB_API bool yb_id_equal(struct yb_id a, struct yb_id b);
YB_API bool yb_id_is_none(struct yb_id id);

/* Write 32 lower-case hex digits and a NUL to `text_out`. */
YB_API void yb_id_format(struct yb_id id, char text_out[33]);

/* Read exactly 32 hex digits. Returns false, leaving *id_out alone, on anything else. */
YB_API bool yb_id_parse(const char *text, struct yb_id *id_out);

#ifdef __cplusplus
}
#endif

#endif /* YB_TYPES_H */
