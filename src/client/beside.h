/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.h -- what other rooms need of a client beside its public face.
 *
 * Threads   Any thread, any function, between open and close; none on the client's worker.
 * Memory    Borrowed until the call returns.
 */
#ifndef YB_CLIENT_BESIDE_H
#define YB_CLIENT_BESIDE_H

#include "yuebing/client.h"

struct yb_span_ring;
struct yb_stats;

/* Ask the directory who is there now, and not only when it is time. Does not wait for the answer;
 * yb_client_nodes() shows it when it has come. */
void yb_client_look_again(struct yb_client *client);

/* Write where the client's engine listens. TOO_SMALL needs more room. */
YB_CHECKED enum yb_status yb_client_engine_address(struct yb_client *client, char *text_out,
                                                   size_t room);

/* Return where the client and its engine write their spans, for as long as it is open. */
struct yb_span_ring *yb_client_spans(const struct yb_client *client);

/* Return where the client and its engine count, for as long as it is open. */
struct yb_stats *yb_client_registry(const struct yb_client *client);

/* Where one value is, as the directory knows. */
struct yb_client_where {
    const void *key;
    uint32_t key_bytes; /* 1 .. YB_CLIENT_KEY_BYTES_MAX */
    /* ---- results ---- */
    enum yb_status status; /* OK; NOT_FOUND; IN_PROGRESS; REBUILDING. */
    struct yb_id hash;
    uint64_t grant;
    uint64_t size; /* Rounded up. */
    uint64_t epoch;
    uint32_t count; /* Of `slots` that are set. */
    uint16_t slots[4];
};

#define YB_CLIENT_WHERE_MAX 1024u

/* Ask for at most YB_CLIENT_WHERE_MAX keys. OK: each has its status. Fails as an exist does. */
YB_CHECKED enum yb_status yb_client_where(struct yb_client *client, struct yb_client_where *keys,
                                          uint32_t count, uint64_t timeout_ns);

/* Have `target` fetch a copy of a value from `source`, and wait until it has. OK; EXISTS (it has
 * one); NOT_FOUND, STALE (the source has it no more); NO_SPACE; REFUSED (there is a newer one);
 * DENIED (we are no administrator). */
YB_CHECKED enum yb_status yb_client_copy(struct yb_client *client,
                                         const struct yb_client_where *where,
                                         const struct yb_client_node *source,
                                         const struct yb_client_node *target, uint64_t timeout_ns);

/* Have one node drop its copy of a key, unless somebody holds or reads it: *dropped_out says
 * whether it did. */
YB_CHECKED enum yb_status yb_client_drop_copy(struct yb_client *client, const void *key,
                                              uint32_t key_bytes, const struct yb_client_node *node,
                                              uint64_t timeout_ns, bool *dropped_out);

#endif /* YB_CLIENT_BESIDE_H */
