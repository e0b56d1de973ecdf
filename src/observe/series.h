/* SPDX-License-Identifier: Apache-2.0
 *
 * series.h -- a text in the Prometheus format, as far as it is shown: numbers by name.
 *
 * Threads   Pure.
 */
#ifndef YB_OBSERVE_SERIES_H
#define YB_OBSERVE_SERIES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Put the series of a text into `series_out`, an object: `name{labels}` without the leading
 * "yuebing_" to its value. Left out are zeros, what is no number, and the buckets of histograms,
 * but for those of times to the first token. The text comes from strangers: a line that is no
 * series is passed over, and no more than `count_max` are taken. */
void yb_series_read(const char *text, size_t length, uint32_t count_max, json_t *series_out);

#endif /* YB_OBSERVE_SERIES_H */
