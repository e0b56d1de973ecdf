/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h -- which block leaves a tier next.
 *
 * One yb_policy stands beside one tier (or one tenant's part of it). The caller says what came, was
 * used, was pinned and left; the policy names the next victim. It decides and nothing else: it
 * frees nothing and knows no bytes. The node and the simulator run this same code.
 *
 *   lru      the least recently used goes first
 *   lfu      the least often used goes first; of equals the least recently used. Nothing ages
 *   s3fifo   S3-FIFO (Yang et al., SOSP 2023): a small queue of 10 % of the bytes that sorts out
 *            what is used once, a main queue, and hashes of what left the small one
 *   fifo     what came first goes first
 *   sieve    SIEVE (Zhang et al., NSDI 2024): fifo that passes over what was used since it last
 *            came by
 *   length-aware  lfu; of equals what is furthest back in its request (Mooncake, arXiv v3)
 *   workload      by the probability of a use within the life of its category, by turn
 *            (KVCacheInTheWild, ATC 2025)
 *   bidaw    by the potential of a next use at a reuse distance that the cache can bridge (Bidaw,
 *            FAST 2026)
 *   trajectory    by when what is like it was used again: turn, length, age; see trajectory.c
 *
 * The last four want to know the request and the position of a block (struct yb_policy_use); what
 * they are not told they do without.
 *
 * Where an entry is. The policy proper keeps ORDER; the rest is the same for all of them:
 *
 *                insert                    comes up, may not go
 *        OUT --------------> ORDER ---------------------------------> PARKED
 *         ^                    ^  |                                    |  |
 *         | remove, evict      |  | a parent came up                   |  | last pin or a child
 *         | (from anywhere)    |  v                                    |  | went, may go now
 *         |                    |  FRONT <------------------------------+--+
 *         +-- victim           +-- access (from FRONT or PARKED)
 *
 * Entries that are softly pinned are in LAST instead of ORDER and FRONT, the least recently used
 * first. The policy proper never hears of them.
 *
 * The victim is the first of FRONT, or else the first of ORDER, or else the first of LAST, that is
 * not pinned and has no children. Pinned entries are not looked for and skipped again and again:
 * each is parked when it comes up, and comes back when it may go. So every call is O(1) amortised:
 * a step of yb_policy_victim() either ends it or parks an entry, which an insert, access, unpin or
 * leave had put there. (One call may park a whole chain of n blocks; the next n calls then do
 * nothing.)
 *
 * A suffix is never kept without its prefix. Entries of the kind yb_policy_linked may name their
 * parent, the block before them. When a block with children comes up, its least recently used
 * child goes before it, and so on down to a leaf: from where the order wanted to begin, the chain
 * is eaten from its end. A child that is softly pinned keeps its parents as long as itself.
 *
 * Duplicates. A block that other nodes hold too is the better victim: of the first
 * YB_POLICY_LOOK entries that the order would give up, one that is marked so goes first. It is a
 * hint; no more is looked at, so that a hot block is not lost for having copies.
 *
 * Invariants
 *   P1  The victim is neither pinned nor has it children here.
 *   P2  Every entry that may go is in ORDER, FRONT or LAST: there is a victim as long as one may
 *       go.
 *   P3  Nothing is allocated after create; what is remembered of evicted blocks is bounded by
 *       ghost_count, or YB_POLICY_MEMORY_MIN.
 *   P4  Parents form no cycle: the child has no children yet, or it is not among the ancestors of
 *       the parent, of whom there are at most YB_POLICY_CLIMB then.
 *   P5  An entry that is softly pinned is the victim only if no other entry may go.
 *
 * Threads   One owner; no lock.
 * Memory    The caller owns the entries, embedded in its blocks. From insert until remove or evict
 *           they are borrowed and must not move.
 * Time      `now_ns` is passed in; workload, bidaw and trajectory reckon with it, for the others it
 *           is only noted. It may stand still.
 */
#ifndef YB_POLICY_POLICY_H
#define YB_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_POLICY_LOOK       16u
#define YB_POLICY_CLIMB      4096u
#define YB_POLICY_GHOST_MAX  (1u << 28)
#define YB_POLICY_MEMORY_MIN 16384u
#define YB_POLICY_USES_MAX   1023u /* Uses beyond that are not told apart. */
#define YB_POLICY_PINS_MAX   UINT16_MAX

struct yb_policy;

/* Part of the caller's block; every field is private, but may be read for explanations. */
struct yb_policy_entry {
    struct yb_policy_entry *newer;
    struct yb_policy_entry *older;
    uint64_t last_access_ns;
    uint64_t size;
    uint32_t hash;   /* Of the key; only for remembering evicted blocks. */
    uint32_t record; /* trajectory: of its last request; bidaw, length-aware: position. */
    uint16_t uses;   /* What the policy counts; up to YB_POLICY_USES_MAX. */
    uint16_t pins;
    uint16_t group; /* Which of the policy's lists it is in, if it has several. */
    uint8_t place;
    uint8_t branches; /* Times that a child came while it had others. */
    bool linked;      /* The entry begins a struct yb_policy_linked. */
    bool duplicate;   /* Other nodes hold the block too. */
    bool settled;     /* s3fifo: belongs to the main queue. */
    bool soft;        /* Softly pinned. */
};
_Static_assert(sizeof(struct yb_policy_entry) <= 56, "one for each block of a node");

/* An entry that can have a parent and children. A policy may hold both kinds. */
struct yb_policy_linked {
    struct yb_policy_entry entry;
    struct yb_policy_linked *parent;
    struct yb_policy_linked *child; /* The most recently used; they form a ring. */
    struct yb_policy_linked *sibling_newer;
    struct yb_policy_linked *sibling_older;
};

/* What the policy is told of a use, the first one included. 0 is: not known. */
struct yb_policy_use {
    uint64_t request;       /* Whose use it is: any number that no other request under way has. */
    uint64_t next_use_ns;   /* When the next use is expected: a plan, or a step of an agent. */
    uint32_t position;      /* Of the block in its request; the first is 1. */
    uint32_t answer_tokens; /* How long the answer was. */
    uint32_t refetch_us;    /* What it takes to have the block again, however that would be. */
    float heat;             /* Uses per second that are expected, if next_use_ns is not known. */
};

/* What the policy is told of a block when it comes. */
struct yb_policy_facts {
    uint64_t hash;  /* Of the key. */
    uint64_t size;  /* Bytes, or any unit that all blocks share. */
    bool linked;    /* The entry begins a struct yb_policy_linked. */
    bool duplicate; /* As in yb_policy_set_duplicate(). */
    bool soft;      /* It goes after all that are not (P5). */
    struct yb_policy_use use;
};

struct yb_policy_options {
    const char *name; /* As in the list above. */

    /* What to remember of blocks that are gone: as many as the tier holds blocks is right. s3fifo:
     * blocks, 12 to 20 bytes each. trajectory, workload, bidaw: requests, and at least
     * YB_POLICY_MEMORY_MIN of them, 24 to 28 bytes each. Others: nothing. */
    uint32_t ghost_count;
};

/* Create an empty policy.
 *
 * On OK *policy_out is the caller's. Fails with INVALID (no such name, ghost_count above its
 * bound) or NO_MEMORY; *policy_out is then untouched. */
YB_CHECKED enum yb_status yb_policy_create(const struct yb_policy_options *options,
                                           struct yb_policy **policy_out);

/* Consume the policy and set *policy to NULL. Entries that are still in it are forgotten, and not
 * looked at: their memory may be gone. */
void yb_policy_destroy(struct yb_policy **policy);

/* Return the name of the policy at `index` of the table, NULL past its end: for messages and help.
 * */
const char *yb_policy_name(uint32_t index);

/* Take an entry in, as used once, now. Its memory need not be initialised. */
void yb_policy_insert(struct yb_policy *policy, struct yb_policy_entry *entry,
                      const struct yb_policy_facts *facts, uint64_t now_ns);

/* End the soft pin of an entry, if it has one: it is as one that came now, in its family. */
void yb_policy_end_soft(struct yb_policy *policy, struct yb_policy_entry *entry,
                        const struct yb_policy_use *use, uint64_t now_ns);

/* Note a use. A probe for existence is none. */
void yb_policy_access(struct yb_policy *policy, struct yb_policy_entry *entry, uint64_t now_ns);

/* The same, and tell what is known of it. */
void yb_policy_use(struct yb_policy *policy, struct yb_policy_entry *entry,
                   const struct yb_policy_use *use, uint64_t now_ns);

/* Let an entry go for another reason than its value: removed by its owner, replaced, run out. It
 * may be pinned. Its children lose their parent, and go next, as nobody finds them any more. */
void yb_policy_remove(struct yb_policy *policy, struct yb_policy_entry *entry);

/* Let a victim go, and remember its hash if the policy wants to. It is a bug, and aborts, if it is
 * pinned or has children (P1). */
void yb_policy_evict(struct yb_policy *policy, struct yb_policy_entry *entry);

/* Return the block to evict next; NULL: none may go. It stays where it is, and the answer stays the
 * same, until the next call about an entry. */
struct yb_policy_entry *yb_policy_victim(struct yb_policy *policy);

/* Keep an entry from being a victim until as many unpins: O(1), nothing moves. Fails with BUSY at
 * YB_POLICY_PINS_MAX pins. */
YB_CHECKED enum yb_status yb_policy_pin(struct yb_policy *policy, struct yb_policy_entry *entry);

/* Take one pin back. A block whose turn had come meanwhile is among the next. */
void yb_policy_unpin(struct yb_policy *policy, struct yb_policy_entry *entry);

/* Say whether other nodes hold the block too. */
void yb_policy_set_duplicate(struct yb_policy *policy, struct yb_policy_entry *entry,
                             bool duplicate);

/* Make `parent` the block before `child`. Both are in the policy. Fails with INVALID, and changes
 * nothing, if child has another parent, or is the parent, or P4 would not hold: tags come from
 * outside. The same parent again is OK. */
YB_CHECKED enum yb_status yb_policy_attach(struct yb_policy *policy, struct yb_policy_linked *child,
                                           struct yb_policy_linked *parent);

/* What a metric shows of a policy. */
struct yb_policy_info {
    const char *name;
    uint64_t entry_count;
    uint64_t pinned_count;
    uint64_t parked_count;
    uint64_t front_count;
    uint64_t duplicate_count;
    uint64_t size_sum;
    uint64_t looked_count; /* Entries that victims were looked for among; grows with the calls. */
    uint32_t ghost_count;  /* Evicted blocks that are remembered now. */
};

struct yb_policy_info yb_policy_info(const struct yb_policy *policy);

#endif /* YB_POLICY_POLICY_H */
