/* SPDX-License-Identifier: Apache-2.0
 *
 * members.h -- who is a member, until when, and how far each one is to be trusted.
 *
 * A slot is one life of one node. Who registers gets a slot and an incarnation, a number that was
 * never given before; every message of a life names both.
 *
 *     FREE --admit--> SERVING <--> SUSPECT        DRAINING: as SERVING, on somebody's order
 *       ^                |            |
 *       |                +-- overdue -+--> kill: DEAD --> release (when nothing names it any more)
 *       +------------------------------------------------------+
 *
 * SUSPECT has reasons that come and go by themselves: heartbeats that are missing for half a lease,
 * failures that clients report, and a later node of the same name. Only the lease ends a life.
 *
 * A directory that starts again is told of the members there were (await). Each of them has to be
 * heard, with all that it holds, or its lease to pass, before an absence is believed. So has what
 * they told the directory before of, and heard no answer to: it may have been granted, and others
 * been told that it is there. Until then the cluster is *rebuilding*.
 *
 * Invariants
 *   M1  Incarnations grow and are never given twice; the owner's epoch is in their high 24 bits.
 *   M2  A life is overdue only after a lease and a margin in which the owner *counted* time: from
 *       one tick to the next at most one and a half intervals, however long it really took, and
 *       only up to the tick before, since which the owner has read its sockets.
 *   M3  Reports make SUSPECT and nothing else.
 *   M4  A life that was fenced, by a later one of its name, is never heard again.
 *   M5  Only a life that is alive, or one that is awaited, is continued by a registration.
 *   M6  `version` changes with whatever a listing of the members shows, but for numbers.
 *
 * Threads   One owner; no I/O, no callbacks.
 * Memory    All slots are allocated by create.
 * Time      Passed in, monotonic.
 */
#ifndef YB_DIRECTORY_MEMBERS_H
#define YB_DIRECTORY_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "directory/wire/directory_wire.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_MEMBERS_SLOTS_MAX 4095u

/* Reports that stop placement: as many failures, or as many different reporters. */
#define YB_MEMBERS_FAILURES  3u
#define YB_MEMBERS_REPORTERS 2u

struct yb_members;

struct yb_members_options {
    uint32_t slots_max; /* Highest slot, 1 to YB_MEMBERS_SLOTS_MAX. */
    uint32_t live_max;  /* Most lives at a time. */
    uint64_t epoch;
    uint64_t lease_ns;
    uint64_t tick_ns; /* How often tick() is going to be called. */
};

/* What a node says of itself. Texts end with NUL. */
struct yb_members_facts {
    char name[64];
    char address[64];
    char data_address[64];
    char rack[32];
    char zone[32];
    struct yb_id identity;
    struct yb_id host;
    uint64_t capacity;
    uint64_t huge_bytes; /* Of it, in huge pages; UINT64_MAX: not known. */
    bool keeps;          /* Blocks outlive it, on media of its own. */
};

/* How soon a load from a tier below memory would be there: base + (backlog + bytes) / rate. */
struct yb_members_below {
    uint64_t backlog;
    uint64_t rate; /* 0: there is no such tier, or it does not work. */
    uint32_t base_us;
};

/* One life, for its owner to read. */
struct yb_members_slot {
    struct yb_members_facts facts;
    uint64_t incarnation;
    uint64_t previous; /* The incarnation that it may still believe to have; 0: none. */
    uint64_t used;     /* As of its last heartbeat. */
    uint64_t backlog;
    uint64_t rate;
    struct yb_members_below ssd;
    struct yb_members_below object;
    uint64_t heard_ns;    /* Counted time at which it was heard last. */
    uint64_t answered_ns; /* The caller's time of it. */
    uint16_t slot;
    uint8_t state; /* enum yb_wire_slot_state; 0: FREE. */
    bool fenced;   /* M4 */
    bool missed;   /* Heartbeats are missing. */
    bool reported; /* Clients complain. */
    bool draining; /* On order ... */
    bool force;    /* ... with what fits nowhere else being dropped. */
    bool drained;  /* Nothing is left on it. */
    bool complete; /* All that it holds is known: it began empty, or has delivered its inventory. */
    bool telling;  /* It has begun to name it, and not said yet of how many puts ... */
    uint32_t told; /* ... it told a directory before, ... */
    uint32_t decided;      /* ... of which so many are decided. */
    bool open;             /* It keeps blocks, and has not named all of them yet ... */
    bool owes;             /* ... something was ended that it may name ... */
    bool distrusted;       /* ... and what that was is not known. */
    bool unknown;          /* It keeps blocks, and its name is new: so nobody knows of its disk. */
    struct yb_id reporter; /* The first one of the present series ... */
    uint32_t reporters;    /* ... how many different ones, up to YB_MEMBERS_REPORTERS ... */
    uint32_t failures;     /* ... and what they reported ... */
    uint64_t report_ns;    /* ... until, in counted time. */
};

/* A member of before. */
struct yb_members_awaited {
    char name[64];
    char address[64];
    uint64_t incarnation;
    uint64_t previous;
    bool draining;
    bool keeps;
    bool owes;
    bool over; /* It has come back, or its time has passed. */
};

/* A member of before that keeps blocks: it may come back with them, whenever that is. */
#define YB_MEMBERS_AWAY_MAX 1024u
struct yb_members_away {
    char name[64];
    char address[64];
    uint64_t incarnation;
    bool owes;
    bool distrusted;
    bool unknown;
};

YB_CHECKED enum yb_status yb_members_create(const struct yb_members_options *options,
                                            struct yb_members **members_out);
void yb_members_destroy(struct yb_members **members);

/* Time begins: nothing before `now_ns` is counted. */
void yb_members_begin(struct yb_members *members, uint64_t now_ns);

/* Begin a new epoch: incarnations from now on are of that one. */
void yb_members_set_epoch(struct yb_members *members, uint64_t epoch);

/* Return the version of the membership. */
uint64_t yb_members_version(const struct yb_members *members);

/* ---- registration ---------------------------------------------------------------------------- */

/* Wait for a member of before. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_members_await(struct yb_members *members,
                                           const struct yb_members_awaited *awaited);

/* The members of before, and how many they were, over or not. */
struct yb_members_awaited *yb_members_awaited(struct yb_members *members, uint32_t *count_out);

/* What a registration would be given. */
struct yb_members_plan {
    uint16_t slot;
    bool keep;        /* What the node holds may be named. */
    bool continues;   /* The slot is the one that it has. */
    uint32_t awaited; /* Index of the member of before that it is, plus 1; 0: none. */
    uint16_t fences;  /* Slot of an earlier life of that name; 0: none. */
};

/* Decide. `incarnation` is the one that the node says to have, 0: none. Changes nothing. Fails with
 * FENCED (that one was fenced and its successor lives: it would only fence it in turn) or NO_SPACE
 * (`live_max`, or every slot is in use). */
YB_CHECKED enum yb_status yb_members_plan(const struct yb_members *members,
                                          const struct yb_members_facts *facts,
                                          uint64_t incarnation, struct yb_members_plan *plan_out);

/* Return the incarnation that the next admit will give. */
uint64_t yb_members_next_incarnation(const struct yb_members *members);

/* Do what was decided, nothing having happened in between. Returns the slot. */
struct yb_members_slot *yb_members_admit(struct yb_members *members,
                                         const struct yb_members_plan *plan,
                                         const struct yb_members_facts *facts, uint64_t incarnation,
                                         uint64_t now_ns);

/* ---- life ------------------------------------------------------------------------------------ */

/* Return a slot that is in use (not FREE; DEAD counts), or NULL. */
struct yb_members_slot *yb_members_at(struct yb_members *members, uint32_t slot);

/* Return the slot if exactly this life may speak: alive, not fenced; or NULL. */
struct yb_members_slot *yb_members_speaker(struct yb_members *members, uint32_t slot,
                                           uint64_t incarnation);

/* Return the next slot in use after `slot` (0 to begin), or NULL. */
struct yb_members_slot *yb_members_next(struct yb_members *members, uint32_t slot);

/* Return the slot of a life that is alive, with that name, the one that is not fenced; or NULL. */
struct yb_members_slot *yb_members_named(struct yb_members *members, const char *name);

/* A heartbeat of a slot that may speak is being answered. */
void yb_members_heard(struct yb_members *members, struct yb_members_slot *slot, uint64_t now_ns);

/* Somebody failed `failures` times to reach a life. Ignored if it is not that slot's. */
void yb_members_report(struct yb_members *members, uint32_t slot, uint64_t incarnation,
                       struct yb_id reporter, uint32_t failures);

/* Drain it, or take it back. */
void yb_members_drain(struct yb_members *members, struct yb_members_slot *slot, bool draining,
                      bool force);

/* Never hear it again (M4). */
void yb_members_fence(struct yb_members *members, struct yb_members_slot *slot);

/* It begins to name all that it holds; it has, and waits to hear of `told` puts of which it told a
 * directory before; `count` of these are decided. */
void yb_members_tells(struct yb_members_slot *slot);
void yb_members_complete(struct yb_members_slot *slot, uint32_t told);
void yb_members_decided(struct yb_members_slot *slot, uint32_t count);

/* ---- who keeps blocks ------------------------------------------------------------------------ */

/* Remember one that is away; of too many the first is forgotten, and not believed later. */
void yb_members_put_away(struct yb_members *members, const struct yb_members_away *away);

/* Forget the one that was put away last. */
void yb_members_take_away(struct yb_members *members);

/* Those that are away. */
const struct yb_members_away *yb_members_away(const struct yb_members *members,
                                              uint32_t *count_out);

/* Return whether somebody is away, or has not named all that it keeps. */
bool yb_members_parties(const struct yb_members *members);

/* All of these owe something, or (false) those owe nothing that were marked last. Returns whether a
 * mark was set. */
bool yb_members_owe(struct yb_members *members, bool owe);

/* None of these is to be believed. */
void yb_members_distrust(struct yb_members *members);

/* Return whether something was ended of which it is not known any more what it was. */
bool yb_members_kills_lost(const struct yb_members *members);

/* ---- time ------------------------------------------------------------------------------------ */

/* Count time, and change states by it. To be called once per interval. */
void yb_members_tick(struct yb_members *members, uint64_t now_ns);

/* Return whether a life's time has passed: it is to be killed. */
bool yb_members_overdue(const struct yb_members *members, const struct yb_members_slot *slot);

/* Return whether the time of those that are awaited has passed: they are to be given up. */
bool yb_members_awaited_overdue(const struct yb_members *members);

/* Its life is over. */
void yb_members_kill(struct yb_members *members, struct yb_members_slot *slot);

/* Nothing names a dead slot any more. */
void yb_members_release(struct yb_members *members, struct yb_members_slot *slot);

/* Return whether everybody has named all that it holds, or is over. */
bool yb_members_all_named(const struct yb_members *members);

/* Return whether somebody has still to be heard, or to hear of what it told before; *permille_out
 * says how far it is. */
bool yb_members_rebuilding(const struct yb_members *members, uint32_t *permille_out);

/* Return how many lives are alive. */
uint32_t yb_members_live(const struct yb_members *members);

#endif /* YB_DIRECTORY_MEMBERS_H */
