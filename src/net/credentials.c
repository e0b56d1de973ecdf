/* SPDX-License-Identifier: Apache-2.0 */
#include "net/credentials.h"

static enum yb_status
load_tls(const struct yb_credentials_options *options, struct yb_credentials *credentials,
         char *message_out, size_t message_room)
{
    struct yb_tls_options tls = {
        .server = true,
        .certificate_file = options->certificate_file,
        .key_file = options->key_file,
        .authority_file = options->authority_file,
        .wall_ns = options->wall_ns,
    };
    enum yb_status status = YB_OK;

    if (options->listens) {
        status = yb_tls_context_create(&tls, &credentials->tls_server, message_out, message_room);
    }
    tls.server = false;
    tls.peer_name = options->peer_name;
    return status != YB_OK
               ? status
               : yb_tls_context_create(&tls, &credentials->tls_client, message_out, message_room);
}

enum yb_status
yb_credentials_load(const struct yb_credentials_options *options,
                    struct yb_credentials *credentials_out, char *message_out, size_t message_room)
{
    enum yb_status status = YB_OK;

    *credentials_out = (struct yb_credentials){0};
    if (options->secret_file != NULL) {
        status =
            yb_auth_load(options->secret_file, &credentials_out->auth, message_out, message_room);
        /* For the caller a file that is not there is as good as one that it may not use. */
        status = status == YB_OK || status == YB_NO_MEMORY ? status : YB_DENIED;
    }
    if (status == YB_OK && options->tls) {
        status = load_tls(options, credentials_out, message_out, message_room);
    }
    if (status != YB_OK) {
        yb_credentials_unload(credentials_out);
    }
    return status;
}

void
yb_credentials_unload(struct yb_credentials *credentials)
{
    if (credentials->tls_client != NULL) {
        yb_tls_context_destroy(&credentials->tls_client);
    }
    if (credentials->tls_server != NULL) {
        yb_tls_context_destroy(&credentials->tls_server);
    }
    if (credentials->auth != NULL) {
        yb_auth_destroy(&credentials->auth);
    }
}
