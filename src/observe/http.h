/* SPDX-License-Identifier: Apache-2.0
 *
 * http.h -- the admin port: health, metrics, and a look at the store, over HTTP/1.1.
 *
 *     GET    /healthz              200: the process lives, and how well
 *     GET    /readyz               200: it serves; 503 with the reason why not
 *     GET    /metrics              the Prometheus text format
 *     GET    /v1/nodes             who holds blocks
 *     GET    /v1/blocks/KEY        one block (?tenant=NAME)
 *     GET    /v1/config            every parameter, and where its value comes from
 *     DELETE /v1/blocks/KEY        remove it (?tenant=NAME&force=1)
 *     POST   /v1/nodes/NAME/drain  move its blocks away (?undo=1&force=1)
 *
 * and what else the source answers itself, such as a conductor's calls or the dashboard's page. A
 * page of HTML may load nothing from elsewhere: a content security policy goes with it.
 *
 * What is shown comes from the source's callbacks; this module knows paths, codes and who may.
 *
 * Invariants
 *   H1  What changes something needs the secret, as bearer token, compared in constant time. Where
 *       there is no secret only loopback may, and no page in a browser (which sends Origin).
 *   H2  Beyond loopback nothing listens without a secret, unless `insecure` was asked for.
 *   H3  At most `connections_max` connections, each idle for a few seconds at most.
 *   H4  A body that has not come whole in some seconds ends its connection, however steadily it
 *       trickles; one that is too long is refused without being kept.
 *
 * Threads   One that accepts, and one for each connection; callbacks run on the latter, several
 *           at a time, and may wait as long as they have a deadline. create and destroy: one
 *           thread.
 * Memory    The source is borrowed for the port's life. What callbacks return is consumed.
 */
#ifndef YB_OBSERVE_HTTP_H
#define YB_OBSERVE_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/address.h"
#include "yuebing/status.h"

struct yb_http;

#define YB_HTTP_REASON_BYTES 256u

/* A request for a path that the source answers itself. */
struct yb_http_asked {
    const char *method;
    const char *path;
    const void *body;
    size_t body_bytes; /* At most `body_max` of the options. */
    bool may_change;   /* H1: whoever asks may change something. */
    void *connection;  /* For yb_http_argument(). */
};
struct yb_http_told {
    unsigned code;
    const char *type; /* Static. */
    char *text;       /* From malloc. */
    size_t length;
    uint32_t retry_after_s; /* 0: nothing is said of it. */

    /* Instead of a text: an answer without a known length. `read` writes some bytes and returns how
     * many, or below 0 at the end; it may wait, with a deadline. `close` runs once, whatever
     * happens. */
    long (*read)(void *stream, char *out, size_t room);
    void (*close)(void *stream);
    void *stream;
};

#define YB_HTTP_BODY_MAX (1024u * 1024u)

/* Return what the request's `?name=` is, decoded; NULL: there is none. */
const char *yb_http_argument(const struct yb_http_asked *asked, const char *name);

/* Read the request's `?name=`, a number up to `most`; what is not said stays. False: it is none. */
YB_CHECKED bool yb_http_number(const struct yb_http_asked *asked, const char *name, uint64_t most,
                               uint64_t *value);

/* Return a header line of the request; NULL: there is none. */
const char *yb_http_header(const struct yb_http_asked *asked, const char *name);

/* Return an answer of JSON; the value is consumed, and NULL means that there was no memory. */
struct yb_http_told yb_http_json(unsigned code, json_t *value);

/* Return why not, for programs and for people: {"status": ..., "text": ...}. */
struct yb_http_told yb_http_refusal(unsigned code, enum yb_status status, const char *text);

/* Every callback gets `context`. Those that return a status set *out only on OK, and may fail with
 * anything; the answer's code follows from it. */
struct yb_http_source {
    void *context;
    bool secret; /* Whether there is one. */
    bool (*allowed)(void *context, const char *token, size_t length);
    /* False: why not. True: what one should know all the same; untouched: nothing. */
    bool (*ready)(void *context, char reason_out[YB_HTTP_REASON_BYTES]);
    /* What does not work though the process serves: texts, each with a remedy. May be NULL. */
    json_t *(*ailments)(void *context);
    enum yb_status (*metrics)(void *context, char **text_out, size_t *length_out);
    enum yb_status (*nodes)(void *context, json_t **out);
    enum yb_status (*config)(void *context, json_t **out);
    enum yb_status (*block)(void *context, const char *tenant, const char *key, json_t **out);
    enum yb_status (*remove)(void *context, const char *tenant, const char *key, bool force);
    enum yb_status (*drain)(void *context, const char *node, bool draining, bool force);
    /* May be NULL. Asked first; false: it is none of its paths. With a text of NULL there was no
     * memory. Where `ready` is NULL there are no other paths but /healthz. */
    bool (*other)(void *context, const struct yb_http_asked *asked, struct yb_http_told *told_out);
    void *other_context;
};

struct yb_http_options {
    struct yb_address address; /* Port 0: any free one. */
    bool insecure;
    uint32_t connections_max;
    size_t body_max; /* Longest body that the source takes; 0: YB_HTTP_BODY_MAX. */
    const struct yb_http_source *source;
};

/* Listen. Otherwise why_out says what to do. Fails with DENIED (H2; a privileged port),
 * ADDRESS_IN_USE, INVALID (the machine has no such address) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_http_create(const struct yb_http_options *options,
                                         struct yb_http **http_out,
                                         char why_out[YB_ADDRESS_WHY_BYTES]);

/* Close the port, wait for the callbacks that run, and set *http to NULL. */
void yb_http_destroy(struct yb_http **http);

/* Return the bound address. */
struct yb_address yb_http_address(const struct yb_http *http);

#endif /* YB_OBSERVE_HTTP_H */
