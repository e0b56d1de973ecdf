/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_relay.h -- a relay between a peer and its target that holds, cuts and delivers late.
 *
 *     peer --near side--> [ kept bytes ] --far side--> target
 *
 * Threads   One of its own; the functions may be called from any other.
 */
#ifndef YB_TESTS_TRANSFER_RELAY_H
#define YB_TESTS_TRANSFER_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct relay;

/* `tight`: with small buffers, and what is held is not read, so that it stays with the senders. */
struct relay *relay_create(const char *target, bool tight);
void relay_destroy(struct relay **relay);
const char *relay_address(const struct relay *relay);

/* Connections that are there now: keep what comes, from the peer (up) or from the target (down),
 * instead of passing it on. Newer ones flow. */
void relay_hold(struct relay *relay, bool up, bool down);
/* The same for those that come from now on. */
void relay_hold_new(struct relay *relay, bool up, bool down);
/* Let everything flow, what was kept first. */
void relay_release(struct relay *relay);
/* Pass on so many of the peer's bytes, of each connection that keeps more, and keep the rest. */
void relay_pass(struct relay *relay, size_t bytes);
/* Reset all connections at both ends; what was kept is lost. */
void relay_cut(struct relay *relay);
/* Reset them towards the peer only: the target keeps a connection whose bytes come later. */
void relay_cut_near(struct relay *relay);
/* Refuse new connections, or take them again. */
void relay_refuse(struct relay *relay, bool refuse);

uint32_t relay_connections(struct relay *relay);
/* Bytes of the peer that are kept here. */
uint64_t relay_kept(struct relay *relay);
/* Bytes of the target that have come and are not read, because a tight relay holds: of the
 * connection that has most of them. */
uint64_t relay_left(struct relay *relay);

#endif /* YB_TESTS_TRANSFER_RELAY_H */
