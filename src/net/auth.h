/* SPDX-License-Identifier: Apache-2.0
 *
 * auth.h -- the secret file, the keys that come from it, and proofs.
 *
 * A secret is a text that the members of a cluster share. From it comes one key
 * per role and tenant. Who holds the secret can make every key; who was handed
 * one key can prove its role and its tenant and nothing else, because neither
 * the secret nor another key can be computed from it.
 *
 *     secret --HKDF "yuebing v1 <role> <tenant>"--> key --HKDF "yuebing v1 key id"--> key id
 *
 * Format    Lines of the file; `#` starts a comment line, empty lines are skipped.
 *               secret TEXT                     32 to 256 characters, no blanks
 *               key ROLE TENANT KEY_ID KEY      16 and 64 hex digits; tenant `-` but for clients
 *           Two of each at most: the first is current (used to prove), both are
 *           accepted (used to check), so that one can be replaced while all run.
 *           A file holds secrets or keys, not both.
 *
 * Invariants
 *   A1  Secrets, keys and what they were read from are wiped before their memory is
 *       given back, and appear in no message.
 *   A2  A file that others can read or write is refused, not warned about.
 *   A3  What a proof covers includes both nonces and the channel, so that a proof
 *       is good for one connection.
 *
 * Threads   Immutable after load: any thread may use one object at the same time.
 * Memory    A loaded object is owned by the caller until destroy.
 */
#ifndef YB_NET_AUTH_H
#define YB_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/wire/wire.h"
#include "yuebing/status.h"

#define YB_AUTH_TENANT_MAX 64u
#define YB_AUTH_SECRETS    2u
#define YB_AUTH_LINE_MAX   200u /* Room for a line of yb_auth_derive_line with its NUL. */

struct yb_auth;

/* One key. Wipe it with yb_auth_key_wipe when it is no longer needed. */
struct yb_auth_key {
    uint8_t role;                        /* enum yb_wire_role */
    char tenant[YB_AUTH_TENANT_MAX + 1]; /* "" for every role but client. */
    uint8_t id[8];
    uint8_t key[32];
};

/* What a proof covers. */
struct yb_auth_proof_input {
    bool server;            /* Whose proof: the accepting side's or the connecting side's. */
    uint8_t transcript[32]; /* SHA-256 of the handshake, see docs/protocol.md. */
    uint8_t binding[32];    /* Channel binding of the TLS connection, zero without TLS. */
};

/* Read the secret file at `path`.
 *
 * On OK *auth_out is owned by the caller. Otherwise a sentence that names the path, what is wrong
 * and what to do is written to message_out. Fails with NOT_FOUND (no such file), DENIED (not
 * ours, or others have rights on it), INVALID (not a regular file, too large, a bad line), IO or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_auth_load(const char *path, struct yb_auth **auth_out,
                                       char *message_out, size_t message_room);

/* The same from memory, for tests and for secrets that arrive by other ways. `name` stands for
 * the path in messages. `text` is the caller's to wipe. */
YB_CHECKED enum yb_status yb_auth_parse(const char *name, const char *text, size_t length,
                                        struct yb_auth **auth_out, char *message_out,
                                        size_t message_room);

/* Wipe, free and set *auth to NULL. */
void yb_auth_destroy(struct yb_auth **auth);

/* Return whether the text can be the name of a tenant: [A-Za-z0-9._-]{1,64}, but not "-" alone. */
bool yb_auth_tenant_valid(const char *tenant, size_t length);

/* Find the current key for a role and a tenant ("" for every role but client): what this process
 * proves with. Fails with INVALID (the tenant does not fit the role) or DENIED (the file holds
 * neither a secret nor that key). */
YB_CHECKED enum yb_status yb_auth_key_for(const struct yb_auth *auth, uint8_t role,
                                          const char *tenant, struct yb_auth_key *key_out);

/* Find the key with this id among those of the role and the tenant: what this process checks a
 * peer with. Fails with INVALID as above or NOT_FOUND. */
YB_CHECKED enum yb_status yb_auth_key_find(const struct yb_auth *auth, uint8_t role,
                                           const char *tenant, const uint8_t id[8],
                                           struct yb_auth_key *key_out);

/* Whether `token` is what an administrator of this cluster has: a secret of the file itself, or the
 * KEY of a `key admin - ...` line that comes from it or stands in it. In constant time. */
bool yb_auth_is_admin_token(const struct yb_auth *auth, const char *token, size_t length);

void yb_auth_key_wipe(struct yb_auth_key *key);

/* Compute a proof. The only failure is NO_MEMORY. */
YB_CHECKED enum yb_status yb_auth_prove(const struct yb_auth *auth, const struct yb_auth_key *key,
                                        const struct yb_auth_proof_input *input,
                                        uint8_t proof_out[32]);

/* Compare a peer's proof in constant time. Fails with DENIED (it is another one) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_auth_check(const struct yb_auth *auth, const struct yb_auth_key *key,
                                        const struct yb_auth_proof_input *input,
                                        const uint8_t proof[32]);

/* Write the `key` line that lets its holder be this role and tenant, for handing out. The caller
 * wipes it. Fails like yb_auth_key_for; TOO_SMALL below YB_AUTH_LINE_MAX. */
YB_CHECKED enum yb_status yb_auth_derive_line(const struct yb_auth *auth, uint8_t role,
                                              const char *tenant, char *line_out, size_t room);

/* HKDF-SHA256 (RFC 5869), for the cluster's other derivations and for the RFC's test vectors.
 * Fails with INVALID (lengths that HKDF does not take) or NO_MEMORY. */
struct yb_auth_bytes {
    const void *bytes;
    size_t length;
};
YB_CHECKED enum yb_status yb_auth_hkdf(struct yb_auth_bytes key, struct yb_auth_bytes salt,
                                       struct yb_auth_bytes info, uint8_t *out, size_t length);

#endif /* YB_NET_AUTH_H */
