/* SPDX-License-Identifier: Apache-2.0
 *
 * config_internal.h -- what the files of base/config share.
 */
#ifndef YB_BASE_CONFIG_INTERNAL_H
#define YB_BASE_CONFIG_INTERNAL_H

#include "base/config.h"

/* Longest quoted text in a message; what is longer ends with "...". */
#define CONFIG_QUOTED_MAX 192

/* Write `text` between double quotes, control characters as \xNN, cut to fit. */
void yb_config_quote(const char *text, char quoted_out[CONFIG_QUOTED_MAX]);

/* Store `text` as yb_config_set does; on failure `message_out` begins with "<where>: ". */
YB_CHECKED enum yb_status yb_config_set_from(struct yb_config *config,
                                             enum yb_config_row_index index, const char *text,
                                             struct yb_config_origin origin, const char *where,
                                             char message_out[YB_CONFIG_MESSAGE_MAX]);

/* Read the whole file that config->config_file names and apply it. */
YB_CHECKED enum yb_status yb_config_read_file(struct yb_config *config,
                                              char message_out[YB_CONFIG_MESSAGE_MAX]);

#endif /* YB_BASE_CONFIG_INTERNAL_H */
