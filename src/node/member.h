/* SPDX-License-Identifier: Apache-2.0
 *
 * member.h -- a node's membership: registration, heartbeats, and the lease to serve.
 *
 *                  register                    answer
 *     OUT ----------------------> REGISTERING --------> IN --+ heartbeats, on the heart's loop
 *      ^                            |  again, with delays    |
 *      +-- FENCED, or the directory |<-----------------------+ lost for a whole lease, or FENCED
 *          does not know us --------+
 *
 * The heart has its own loop, connection and timer and shares with the node's only the atomics
 * below and mail, so that no amount of data can make a node look dead (DESIGN 7).
 *
 * Invariants
 *   M1  The lease ends `lease_ms` after the *sending* of the last heartbeat or registration that
 *       the directory answered OK (RULES A5); it never grows otherwise.
 *   M2  on_registered and on_lost alternate, on the node's loop; between on_lost and the next
 *       on_registered the lease is over.
 *   M3  Answers of an epoch below the highest that was seen are ignored (RULES A10); another
 *       cluster counts its own.
 *   M4  A backlog, rate or latency that has doubled or halved since the last heartbeat is told
 *       without waiting for the next (DESIGN 5); however often that happens, heartbeats are no
 *       less than a quarter of their usual distance apart.
 *
 * Threads   create to destroy on the node's loop; the heart's part runs on its own.
 * Memory    The member owns its calls and peers.
 * Time      Both loops' clocks, which are one.
 */
#ifndef YB_NODE_MEMBER_H
#define YB_NODE_MEMBER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "directory/wire/directory_wire.h"
#include "net/address.h"
#include "net/net.h"
#include "net/peer.h"
#include "yuebing/status.h"

#define YB_MEMBER_USES 64u /* Tenants whose use is reported: those with most. */

struct yb_member;

/* Ways that bytes of the node come by: its link, and its tiers below memory. */
enum yb_member_way { YB_MEMBER_LINK, YB_MEMBER_SSD, YB_MEMBER_OBJECT, YB_MEMBER_WAYS };

/* What heartbeats carry; written by the node's thread, read by the heart's. */
struct yb_member_vitals {
    _Atomic uint64_t live;
    _Atomic uint64_t in_flight;
    _Atomic uint64_t ungranted;
    _Atomic uint64_t quarantined;
    struct {
        _Atomic uint64_t backlog;
        _Atomic uint64_t rate; /* 0: there is no such tier, or it does not work; of the link: it
                                * is not known. */
        _Atomic uint32_t base_us;
    } ways[YB_MEMBER_WAYS];         /* How soon bytes would be there. */
    _Atomic uint64_t flush_version; /* Of the tenants' list that was applied. */
    _Atomic uint32_t drained;
    _Atomic uint32_t use_sequence; /* Odd while `uses` is being written. */
    _Atomic uint32_t use_count;
    struct yb_wire_tenant_use uses[YB_MEMBER_USES];
};

struct yb_member_facts {
    const char *name; /* Strings are borrowed for the member's life. */
    const char *address;
    const char *data_address;
    const char *rack;
    const char *zone;
    struct yb_id host;
    uint64_t capacity;
    uint64_t huge_bytes; /* Of it, in huge pages; UINT64_MAX: not known. */
    struct yb_address_list directory;
    bool keeps; /* Blocks outlive it, in tiers below its memory. */
};

struct yb_member_registration {
    uint64_t incarnation;
    uint64_t epoch;
    struct yb_id cluster;
    uint8_t seed[16];
    uint16_t slot;
    bool keep; /* What is held may be named in an inventory. */
    bool want_keys;
    uint64_t flush_version;
    struct yb_wire_tenant_state_list tenants; /* Borrowed until on_registered returns. */
};

struct yb_member_events {
    void (*on_registered)(void *owner, const struct yb_member_registration *registration);
    void (*on_lost)(void *owner);
    /* Tenants' flush epochs and credits, whenever they changed. */
    void (*on_tenants)(void *owner, uint64_t version,
                       const struct yb_wire_tenant_state_list *tenants);
    /* The directory has changed its mind about us: enum yb_wire_slot_state. */
    void (*on_state)(void *owner, uint8_t state);
    /* Return the highest grant that is held, for the directory's epoch. */
    uint64_t (*grant_max)(void *owner);
};

YB_CHECKED enum yb_status yb_member_create(const struct yb_member_facts *facts,
                                           const struct yb_member_events *events, void *owner,
                                           struct yb_member **member_out);

/* Set the address, or another name, before start; borrowed. */
void yb_member_set_address(struct yb_member *member, const char *address);
void yb_member_set_name(struct yb_member *member, const char *name);

/* Begin to register, and go on for ever. `heart` may be the same net. Fails with INVALID (no
 * address) or as yb_peer_create() does. */
YB_CHECKED enum yb_status yb_member_start(struct yb_member *member, struct yb_net *net,
                                          struct yb_net *heart);

/* End; later yb_member_idle() is true. on_lost is not called. */
void yb_member_stop(struct yb_member *member);
bool yb_member_idle(const struct yb_member *member);
void yb_member_destroy(struct yb_member **member);

/* The stream of publications was refused: this life is over, register again. */
void yb_member_fenced(struct yb_member *member);

/* Until when the node may serve, on the loop's clock; 0: not now. */
uint64_t yb_member_lease_until(const struct yb_member *member);

struct yb_member_vitals *yb_member_vitals(struct yb_member *member);

/* The vitals' ways were written: if one of them has become twice as good or bad as the directory
 * knows (M4), it is told at once. */
void yb_member_ways_shown(struct yb_member *member);

/* The peer through which the node's own calls to the directory go; NULL before start. */
struct yb_peer *yb_member_directory(struct yb_member *member);

#endif /* YB_NODE_MEMBER_H */
