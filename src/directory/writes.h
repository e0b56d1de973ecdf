/* SPDX-License-Identifier: Apache-2.0
 *
 * writes.h -- what is being written, and what was a short while ago.
 *
 * A *write* is one put of one key: its id is the writer's and the same at every node that gets a
 * replica. It is remembered from its announcement, or its first publication, until some time after
 * its grant: so a second replica, and a publication that is sent again, get the same grant (RULES
 * A7, B5), a second writer hears that somebody is at it, and a reader when it may be there. Others
 * wait for an OPEN one for a while only; longer than that it is known not to have been granted.
 *
 *     (unknown) --announce--> OPEN --granted--> GRANTED --> (forgotten)
 *                               +-- expiry, forget --> (forgotten)
 *     (unknown) --wait--> WAITING --announce, granted--> as above
 *                               +-- expiry, wait_end of its last place --> (forgotten)
 *
 * A WAITING one was announced to an earlier directory, and some of its places have said that it
 * waits there for its grant. Nobody knows of it but they.
 *
 * Invariants
 *   W1  At most `writes_max` are remembered; the one that was touched longest ago goes first.
 *   W2  Forgetting costs an answer its detail, never its truth: once a GRANTED one is forgotten, of
 *       several replicas one whose write is not known is not the first to be granted; its writer
 *       announces it anew. Of what an earlier directory knew everything is forgotten: of that one
 *       is the first only if it waits at all of its places, where it then never ended.
 *   W3  What has expired is not found.
 *
 * Threads   One owner.
 * Memory    All of it is allocated by create.
 * Time      Passed in, monotonic.
 */
#ifndef YB_DIRECTORY_WRITES_H
#define YB_DIRECTORY_WRITES_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_WRITES_MAX (1u << 24)

struct yb_writes;

struct yb_writes_name {
    struct yb_id hash;
    uint64_t write;
    uint16_t tenant;
};

struct yb_writes_found {
    uint64_t write;
    uint64_t grant;  /* 0: OPEN. */
    uint64_t eta_ns; /* OPEN: when it may be done. */
    uint64_t at_ns;  /* GRANTED: when. */
};

/* Fails with INVALID (`writes_max` is 0 or above YB_WRITES_MAX) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_writes_create(uint32_t writes_max, uint64_t seed,
                                           struct yb_writes **writes_out);
void yb_writes_destroy(struct yb_writes **writes);

/* Begin to load what a call for this key is going to read: its place in the table, some operations
 * before; then, `soon`, what is there. Nothing but time hangs on it. */
void yb_writes_prefetch(const struct yb_writes *writes, struct yb_id hash, bool soon);

/* Find exactly this write, OPEN or GRANTED. */
bool yb_writes_find(const struct yb_writes *writes, const struct yb_writes_name *name,
                    uint64_t now_ns, struct yb_writes_found *found_out);

/* Find an OPEN write of the key with another id than name->write (0: any) that is worth waiting
 * for: the one that was announced last. */
bool yb_writes_other(const struct yb_writes *writes, const struct yb_writes_name *name,
                     uint64_t now_ns, struct yb_writes_found *found_out);

/* Find an OPEN write of the key, also one that nobody waits for any more. */
bool yb_writes_announced(const struct yb_writes *writes, const struct yb_writes_name *name,
                         uint64_t now_ns, struct yb_writes_found *found_out);

/* Find the write of the key that was granted last, whatever its id. */
bool yb_writes_last(const struct yb_writes *writes, const struct yb_writes_name *name,
                    uint64_t now_ns, struct yb_writes_found *found_out);

/* When a write that is announced is done, perhaps; how long others wait for it; and when it is
 * forgotten. */
struct yb_writes_times {
    uint64_t eta_ns;
    uint64_t patience_ns;
    uint64_t expires_ns;
};

/* Somebody is about to write. Announcing an OPEN write again prolongs it; a GRANTED one is left
 * alone. */
void yb_writes_announce(struct yb_writes *writes, const struct yb_writes_name *name,
                        uint64_t now_ns, const struct yb_writes_times *times);

/* A write was granted. */
void yb_writes_granted(struct yb_writes *writes, const struct yb_writes_name *name, uint64_t grant,
                       uint64_t now_ns, uint64_t expires_ns);

/* A write has ended without a grant. Harmless if it is not OPEN. */
void yb_writes_forget(struct yb_writes *writes, const struct yb_writes_name *name);

/* A write that an earlier directory knew of waits at this slot. Nothing, if it is OPEN or GRANTED
 * here. */
void yb_writes_wait(struct yb_writes *writes, const struct yb_writes_name *name, uint16_t slot,
                    uint64_t now_ns, uint64_t expires_ns);

/* It does not wait at this slot any more. Harmless if it did not. */
void yb_writes_wait_end(struct yb_writes *writes, const struct yb_writes_name *name, uint16_t slot);

/* Return at how many slots it waits. */
uint32_t yb_writes_waiting(const struct yb_writes *writes, const struct yb_writes_name *name,
                           uint64_t now_ns);

/* Return whether it waits at this one. */
bool yb_writes_waits(const struct yb_writes *writes, const struct yb_writes_name *name,
                     uint16_t slot, uint64_t now_ns);

/* Look at up to `steps` of the oldest and forget what has expired. */
void yb_writes_expire(struct yb_writes *writes, uint64_t now_ns, uint32_t steps);

/* Whether every GRANTED write is remembered that has not expired: then one that is not found was
 * not granted for as long as it would be remembered. */
bool yb_writes_complete(const struct yb_writes *writes, uint64_t now_ns);

/* Whether every GRANTED write that ever was is remembered: then one that is not found was never
 * granted, however old it is. */
bool yb_writes_whole(const struct yb_writes *writes, uint64_t now_ns);

uint32_t yb_writes_count(const struct yb_writes *writes);

/* How many are OPEN, expired ones among them. */
uint32_t yb_writes_open(const struct yb_writes *writes);

#endif /* YB_DIRECTORY_WRITES_H */
