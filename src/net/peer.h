/* SPDX-License-Identifier: Apache-2.0
 *
 * peer.h -- another process, as something that can be called.
 *
 * A peer keeps at most one connection per lane: control and bulk of each class
 * apart, so that a byte of background data is never in front of a first token
 * (RULES E5). Lanes are connected when a call needs them, connected again when
 * they are lost, and closed when nobody has used them for a while: one after the
 * other, of all lanes of a net at most a tenth in any second (if there are ten).
 *
 *     a lane:   IDLE --call--> CONNECTING --> OPEN --lost--+
 *                ^                 |           |           |
 *                +-- unused -------|-----------+           |
 *                |                 v                       |
 *                +-- no calls -- BACKOFF <-----------------+
 *
 * What a lost connection means for its calls. One that was not sent goes again;
 * so does one that changes nothing. One that mutates goes again with the same
 * operation, to the same incarnation of the peer only: its answer is remembered
 * there (replay.h) until a later mutation of this lane says that it is not needed
 * any more (slots.h). If another incarnation answers, or time runs out, it ends
 * IN_DOUBT. A call is never sent to two connections at the same time.
 *
 * Failing. A peer that cannot be reached is tried again, with delays that grow from
 * 10 ms to 1 s, until the deadline of the calls that wait for it; those with
 * `fail_fast` end at the first failure. For one that may have been applied that
 * is not the loss of its connection, but the next attempt's: where another
 * connection can be had, it asks what became of it. A peer that refuses us for
 * what we are (DENIED, VERSION, PROTOCOL) ends all of them at once.
 *
 * Invariants
 *   P1  `done` of a call runs exactly once, by its deadline at the latest (and the
 *       moment that a reset takes), never inside yb_peer_call().
 *   P2  Calls of one lane are sent in the order in which they were submitted,
 *       except those that go again.
 *   P3  At most limits.calls_waiting_max calls wait per lane; more are refused AGAIN.
 *   P4  Of two mutations that use a slot of a lane one after the other, the later has the
 *       higher operation; also if the lane is another peer's that came after this one.
 *
 * Threads   The thread of its net's loop.
 * Memory    The peer is owned by its creator; calls are borrowed until `done`.
 */
#ifndef YB_NET_PEER_H
#define YB_NET_PEER_H

#include "net/address.h"
#include "net/call.h"
#include "net/net.h"
#include "yuebing/status.h"

struct yb_peer;

/* Make a peer out of its addresses, tried in turn; connects nothing yet. `identity` is who must
 * answer there, or none: anybody (the credential is proved in any case). Fails with INVALID (no
 * address, or one that nobody can connect to) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_peer_create(struct yb_net *net,
                                         const struct yb_address_list *addresses,
                                         struct yb_id identity, struct yb_peer **peer_out);

/* Consume the peer and set it to NULL. Its calls end (CLOSED, or IN_DOUBT) and its connections are
 * aborted; that takes some turns of the loop, during which `done` of calls may run. */
void yb_peer_destroy(struct yb_peer **peer);

/* Say which of several parallel connections per lane this peer's are (fence.h): two peers of the
 * same process that are connected at the same time need different ones, below YB_STRIPES_MAX.
 * Before its first call; 0 unless set. */
void yb_peer_set_stripe(struct yb_peer *peer, uint32_t stripe);

/* Return whether a call was ever sent on a lane. */
bool yb_peer_lane_used(const struct yb_peer *peer, enum yb_wire_lane kind, enum yb_class class);

/* Send a call as soon as its lane allows. On OK call->done runs once, later. Otherwise it never
 * runs: AGAIN (too many wait), TIMED_OUT (its deadline has passed), TOO_LARGE (above what the
 * connected peer takes) or CLOSED. */
YB_CHECKED enum yb_status yb_peer_call(struct yb_peer *peer, struct yb_call *call);

/* End a call early; `done` runs soon, with CANCELLED or IN_DOUBT. */
void yb_peer_cancel(struct yb_peer *peer, struct yb_call *call);

/* Return who answered the last handshake, NULL before the first. Borrowed until a turn of the
 * loop. */
const struct yb_hello_result *yb_peer_result(const struct yb_peer *peer);

/* Return how long a round trip of its last handshake took, with what it did meanwhile; 0: not
 * known. It is taken from wall clocks: a hint. */
uint64_t yb_peer_trip_ns(const struct yb_peer *peer);

/* Return the last reason why a connection could not be made or ended: a sentence, "" if none.
 * Borrowed until a turn of the loop. */
const char *yb_peer_error(const struct yb_peer *peer);

/* Return how many connections it has, in any state. */
uint32_t yb_peer_conn_count(const struct yb_peer *peer);

#endif /* YB_NET_PEER_H */
