/* SPDX-License-Identifier: Apache-2.0
 *
 * path_internal.h -- the path of one peer, and its slices in flight.
 *
 *     path      OPENING/DOWN --offer answered, proof--> UP --session DOWN--> DOWN, and again
 *
 *     flight    RESOLVING --regions known--> READY --its turn--> (read) COPIED --> done
 *                  |                           |                 `-> VERIFYING (no attach) --> done
 *                  `--asked the target         `-- (write) --> PULLING --answered--> done
 *                                              `-- WAITING for a loan (no attach) --> READY
 *
 * What is paid per message or per look at the peer is shared: writes of one batch go in one
 * pull, as a group behind its first flight, the leader; reads that were copied in one turn are
 * judged by one look.
 *
 * Invariants
 *   F1  A read's bytes count only if, after the last of them, the session is UP, the nonce is
 *       the peer's, and every region that they came from still lives.
 *   F2  A pull is in doubt if it was sent and not answered, unless the target's process is
 *       known to have ended.
 *   F3  A leader's ticket stands in our page exactly while its pull may be carried out.
 *   F4  All of a group are of one batch: they have one deadline, and are cancelled together.
 */
#ifndef YB_TRANSFER_SHM_PATH_INTERNAL_H
#define YB_TRANSFER_SHM_PATH_INTERNAL_H

#include "net/peer.h"
#include "transfer/engine_internal.h"
#include "transfer/path.h"
#include "transfer/shm/catalogue.h"
#include "transfer/shm/copy.h"
#include "transfer/shm/session.h"
#include "transfer/wire/transfer_wire.h"

#define YB_SHM_FLIGHTS        YB_SHM_TICKETS_PER
#define YB_SHM_PULL_BYTES_MAX (4u * YB_SLICE_BYTES)
#define YB_SHM_REPLY_BYTES \
    (YB_WIRE_SHM_REGIONS_BYTES + YB_WIRE_FRAGMENTS_MAX * YB_WIRE_SHM_REGION_BYTES)

enum yb_shm_flight_state {
    YB_SHM_FLIGHT_FREE,
    YB_SHM_FLIGHT_READY,
    YB_SHM_FLIGHT_RESOLVING,
    YB_SHM_FLIGHT_WAITING,
    YB_SHM_FLIGHT_COPIED,
    YB_SHM_FLIGHT_VERIFYING,
    YB_SHM_FLIGHT_PULLING,
};

/* Where a fragment lies in the peer. */
struct yb_shm_place {
    bool known;
    bool backed;
    uint64_t region;
    uint64_t address;
    uint64_t live;
};

struct yb_shm_path;

_Static_assert(YB_SHM_REPLY_BYTES >=
                   YB_WIRE_OUTCOMES_BYTES + YB_WIRE_PULLS_MAX * YB_WIRE_OUTCOME_BYTES,
               "the answer to a pull fits as well");

struct yb_shm_flight {
    struct yb_shm_path *path;
    enum yb_shm_flight_state state;
    uint64_t order; /* Who came first. */
    struct yb_slice *slice;
    struct yb_shm_flight *leader; /* Whose call it is about; mostly itself. */
    struct yb_shm_flight *next;   /* In the group. */
    uint32_t slot;                /* Of its ticket. */
    uint32_t tries;
    bool cancelled;
    bool target_ended;    /* Proved, while it was pulling; of a leader. */
    uint32_t asked_first; /* Where its fragments begin in its leader's call. */
    uint32_t asked_count; /* Fragments that a call is about ... */
    uint8_t asked[YB_SLICE_FRAGMENTS];
    struct yb_shm_place places[YB_SLICE_FRAGMENTS];
    struct yb_call call;
    uint8_t body[YB_WIRE_PULLS_BYTES + YB_WIRE_PULLS_MAX * YB_WIRE_PULL_BYTES];
    uint8_t reply[YB_SHM_REPLY_BYTES];
};

struct yb_shm_path {
    struct yb_path base; /* First. */
    struct yb_shm_host *host;
    bool closing;
    bool offering;
    struct yb_call offer;
    struct yb_shm_intro mine;
    struct yb_shm_session *session; /* NULL: none. */
    bool session_closing;
    struct yb_shm_session_info info; /* As of the last news. */
    struct yb_timer timer;           /* Until the next offer. */
    uint64_t pause_ns;
    struct yb_task task; /* Copies. */
    bool has_tickets;
    uint32_t ticket_first;
    uint64_t order;
    uint64_t narrow_until_ns;        /* A first token was seen lately. */
    uint32_t holds;                  /* Drains under way, and functions that still need the path. */
    uint32_t doubts[YB_CLASS_COUNT]; /* Unanswered pulls of this class since the last drain. */
    struct yb_shm_flight flights[YB_SHM_FLIGHTS];
    struct yb_shm_catalogue catalogue;
    struct yb_shm_ready ready; /* Where reads of the batch at hand go. */
    uint8_t question[YB_WIRE_SHM_QUESTION_BYTES];
    uint8_t answer[YB_WIRE_SHM_ANSWER_BYTES + 64 + 128];
};

/* ---- flight.c -------------------------------------------------------------------------------- */

bool yb_shm_flight_serves(struct yb_shm_path *path, const struct yb_slice *slice);
YB_CHECKED enum yb_status yb_shm_flight_submit(struct yb_shm_path *path, struct yb_slice *slice);
void yb_shm_flight_cancel(struct yb_shm_path *path, struct yb_slice *slice);
/* Step what is ready; the path's task. */
void yb_shm_flight_run(struct yb_shm_path *path);
/* Loans have come, or the session is no more. */
void yb_shm_flight_news(struct yb_shm_path *path);
/* Find out where its fragments lie. Returns false, with those that the peer must be asked about in
 * `asked`, if that is not known here. */
bool yb_shm_flight_resolve(struct yb_shm_flight *flight);
/* The flight in `state` whose turn it is, by class and then by age, of this batch or (NULL) of any;
 * NULL: there is none. */
struct yb_shm_flight *yb_shm_flight_first(struct yb_shm_path *path, enum yb_shm_flight_state state,
                                          const struct yb_batch *batch);

void yb_shm_flight_end(struct yb_shm_flight *flight, struct yb_slice_end end);
/* The path, not the slice, is to blame; `in_doubt` as the flight knows. */
void yb_shm_flight_fail(struct yb_shm_flight *flight, enum yb_status status, bool in_doubt);

/* ---- read.c, pull.c: the two directions ------------------------------------------------------ */

void yb_shm_read_step(struct yb_shm_flight *flight);
/* Judge what was copied, and end it. */
void yb_shm_read_settle(struct yb_shm_path *path);
/* Ask for the flight's bytes to be pulled, and for what else of its batch is ready. Returns how
 * many bytes that is about. */
uint64_t yb_shm_pull_step(struct yb_shm_flight *flight);

/* ---- path_shm.c ------------------------------------------------------------------------------ */

/* The session is of no use any more. */
void yb_shm_path_lost(struct yb_shm_path *path, const char *why);
/* Free the path if nothing of it is left. */
void yb_shm_path_check_gone(struct yb_shm_path *path);
/* Fill in a call to the peer on the lane of the slice's class. */
void yb_shm_path_call(struct yb_shm_flight *flight, uint16_t type, uint32_t body_bytes,
                      void (*done)(struct yb_call *call));

#endif /* YB_TRANSFER_SHM_PATH_INTERNAL_H */
