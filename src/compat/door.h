/* SPDX-License-Identifier: Apache-2.0
 *
 * door.h -- how a process of this host finds, by its port, the node of a `mooncake_client`.
 *
 * The client listens on the abstract unix socket that the known system uses, and tells whoever
 * connects, in one line of JSON, where they are; then it closes. Addresses are no secret: who uses
 * them has to prove itself there.
 *
 *     dummy --> connect "@mooncake_client_<port>.sock"
 *           <-- {"directory":"host:port","node":"host:port","tenant":"name"}\n, and the end
 *
 * Threads   open makes one, close ends it. ask waits, for a few seconds at most.
 * Memory    What is told is copied.
 */
#ifndef YB_COMPAT_DOOR_H
#define YB_COMPAT_DOOR_H

#include <stdint.h>

#include "yuebing/status.h"

#define YB_COMPAT_DOOR_WHY_BYTES  256u
#define YB_COMPAT_DOOR_TEXT_BYTES 256u /* As long as a configuration may name them. */

struct yb_compat_door_line {
    char directory[YB_COMPAT_DOOR_TEXT_BYTES];
    char node[YB_COMPAT_DOOR_TEXT_BYTES];
    char tenant[YB_COMPAT_DOOR_TEXT_BYTES];
};

struct yb_compat_door;

/* Listen at `port`. On OK *door_out is the caller's; otherwise why_out says why not. Fails with
 * INVALID (texts that no line can hold), EXISTS (somebody listens there), IO or NO_MEMORY. */
YB_CHECKED enum yb_status yb_compat_door_open(uint16_t port, const struct yb_compat_door_line *line,
                                              struct yb_compat_door **door_out,
                                              char why_out[YB_COMPAT_DOOR_WHY_BYTES]);

void yb_compat_door_close(struct yb_compat_door **door);

/* Ask at `port`. Fails with NOT_FOUND (nobody listens), TIMED_OUT or PROTOCOL (it is not ours). */
YB_CHECKED enum yb_status yb_compat_door_ask(uint16_t port, struct yb_compat_door_line *line_out);

#endif /* YB_COMPAT_DOOR_H */
