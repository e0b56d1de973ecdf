/* SPDX-License-Identifier: Apache-2.0
 *
 * show.h -- the sums of an engine (struct yb_engine_info) in the forms in which they are asked for.
 *
 * Threads   Any.
 * Memory    JSON values belong to the caller; NULL: no memory.
 */
#ifndef YB_ENGINE_SHOW_H
#define YB_ENGINE_SHOW_H

#include <jansson.h>
#include <stdio.h>

#include "engine/engine.h"

/* An object: numbers by tier of the store, without those of none. */
json_t *yb_engine_show_tiers(const uint64_t numbers[YB_CLIENT_TIER_OBJECT + 1]);

/* An object: each field by its name. */
json_t *yb_engine_show(const struct yb_engine_info *info, const char *model);

/* An array of series, as of yb_stats_json(). */
json_t *yb_engine_show_series(const struct yb_engine_info *info);

/* The Prometheus text format. */
void yb_engine_show_text(const struct yb_engine_info *info, FILE *out);

#endif /* YB_ENGINE_SHOW_H */
