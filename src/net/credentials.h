/* SPDX-License-Identifier: Apache-2.0
 *
 * credentials.h -- what a process proves who it is with: its secret file, and its ends of TLS.
 *
 * Threads   Loaded and freed by one thread; read by any between.
 * Memory    Owned by whoever loaded them. Texts of the options are borrowed for the call.
 */
#ifndef YB_NET_CREDENTIALS_H
#define YB_NET_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/auth.h"
#include "net/tls.h"
#include "yuebing/status.h"

struct yb_credentials_options {
    const char *secret_file; /* NULL: open. */
    bool tls;
    bool listens;                 /* It needs the accepting end of TLS as well. */
    const char *certificate_file; /* These as in struct yb_tls_options. */
    const char *key_file;
    const char *authority_file;
    const char *peer_name;
    uint64_t wall_ns;
};

/* All zero: there are none, and whoever connects is taken. */
struct yb_credentials {
    struct yb_auth *auth;              /* NULL: open. */
    struct yb_tls_context *tls_server; /* NULL: plain. */
    struct yb_tls_context *tls_client;
};

/* Load what the options name.
 *
 * On anything but OK there are none, and message_out says which file, what is wrong and what to do.
 * Fails with DENIED (the secret file cannot be used), NO_MEMORY, or as yb_tls_context_create(). */
YB_CHECKED enum yb_status yb_credentials_load(const struct yb_credentials_options *options,
                                              struct yb_credentials *credentials_out,
                                              char *message_out, size_t message_room);

/* Free them; nobody uses them any more. Harmless where there are none. */
void yb_credentials_unload(struct yb_credentials *credentials);

#endif /* YB_NET_CREDENTIALS_H */
