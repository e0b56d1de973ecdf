/* SPDX-License-Identifier: Apache-2.0
 *
 * hidden.h -- keys whose new block is granted and not shown yet.
 *
 * A key that was removed can be put again before every node has heard of the removal. Until then
 * the earlier block may still be read by who knows where it was. Whoever is told that the key is
 * there must not read that one: so the new block is *hidden*, from its grant until nobody serves an
 * earlier one. A block that takes the place of one that is shown leaves no gap and is shown, too;
 * one that takes the place of a hidden one is hidden with it.
 *
 *     (shown) <--show(any of first..last)-- HIDDEN first..last --follow--> HIDDEN first..new
 *        `----------------hide-----------------^
 *
 * Invariants
 *   D1  A key is hidden at most once: hiding it again, after a removal, begins anew.
 *   D2  Only a grant between the first and the last one that are hidden shows a key: what was ended
 *       before has no say in it.
 *
 * Threads   One owner.
 * Memory    40 bytes for each hidden key at 1/2 load, in a table that grows and never shrinks. Its
 *           owner bounds how many there can be: they belong to answers that wait.
 */
#ifndef YB_DIRECTORY_HIDDEN_H
#define YB_DIRECTORY_HIDDEN_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_hidden;

struct yb_hidden_name {
    struct yb_id hash;
    uint64_t grant;
    uint16_t tenant;
};

/* Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_hidden_create(uint64_t seed, struct yb_hidden **hidden_out);
void yb_hidden_destroy(struct yb_hidden **hidden);

/* Hide a block of a key of which none is shown. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_hidden_hide(struct yb_hidden *hidden,
                                         const struct yb_hidden_name *name);

/* `name->grant` has taken the place of `before`: if that is hidden, so is this one. */
void yb_hidden_follow(struct yb_hidden *hidden, const struct yb_hidden_name *name, uint64_t before);

/* Nothing from before this grant is served any more: the key is shown. */
void yb_hidden_show(struct yb_hidden *hidden, const struct yb_hidden_name *name);

/* Return whether the key is hidden, and this is its last grant. */
bool yb_hidden_is(const struct yb_hidden *hidden, const struct yb_hidden_name *name);

uint32_t yb_hidden_count(const struct yb_hidden *hidden);

#endif /* YB_DIRECTORY_HIDDEN_H */
