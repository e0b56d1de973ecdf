/* SPDX-License-Identifier: Apache-2.0
 *
 * span_json.h -- spans between processes of ours: as the admin port shows them, and read back.
 *
 * Identifiers are hexadecimal, as in a traceparent; times are nanoseconds. What is none or zero is
 * left out, but for the times.
 *
 * Threads   Any.
 * Memory    Nothing is kept.
 */
#ifndef YB_OBSERVE_SPAN_JSON_H
#define YB_OBSERVE_SPAN_JSON_H

#include <jansson.h>

#include "base/span.h"

#define YB_SPAN_ID_DIGITS 16u

/* Return an object that the caller owns; NULL: no memory. */
json_t *yb_span_json(const struct yb_span *span);

/* Write the 16 digits of a span's id. */
void yb_span_id_format(uint64_t id, char text_out[YB_SPAN_ID_DIGITS + 1]);

/* Read one. Members that are not known are passed over: they may be a later version's. Fails with
 * INVALID: a member is of another type, a word or an id is none of ours, or it ends before it
 * began. */
YB_CHECKED enum yb_status yb_span_from_json(const json_t *value, struct yb_span *span_out);

#endif /* YB_OBSERVE_SPAN_JSON_H */
