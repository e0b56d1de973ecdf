/* SPDX-License-Identifier: Apache-2.0
 *
 * known_http.h -- the paths of the known system's HTTP ports, which scripts and charts poll.
 *
 *     GET /get_all_segments      text: the names of the nodes, one a line; empty without any
 *     GET /get_all_keys          text: the keys of the tenant, one a line
 *     GET /query_key?key=        JSON: a row for each replica; 404
 *     GET /batch_query_keys?keys=a,b   JSON: the same for several keys, at most 64
 *     GET /get_segments_detail   JSON: name, address, capacity, used and status of each node
 *     GET /query_segment?segment=     text: used and capacity; 404
 *     GET /api/v1/segments/status?segment=   JSON: the node's status; 404
 *     GET /metrics               ours, and theirs that we have a number for
 *     GET /metrics/summary       text: one line
 *     GET /health /role /ha_status /leader /kv_events/status
 *     POST /api/v1/remove_all    JSON: how many (H1 of observe/http.h)
 *     /api/v1/drain_jobs, /api/v1/tenant_quotas   JSON: a refusal, with what to do instead
 *     GET, PUT, DELETE /metadata?key=  of compat/metadata.h; 404 "metadata not found"
 *
 * Shapes of answers are those of the known system's master; a field more is ours.
 *
 * What the directory knows is asked by a client of its own, which is opened at the first question.
 *
 * Threads   answer: those of the HTTP port, several at once. create and destroy: one thread, while
 *           the port is closed.
 * Memory    Options are borrowed for its life.
 */
#ifndef YB_DAEMON_KNOWN_HTTP_H
#define YB_DAEMON_KNOWN_HTTP_H

#include "base/stats.h"
#include "compat/metadata.h"
#include "observe/http.h"

struct yb_known_http;

struct yb_known_http_options {
    const char *directory; /* NULL: there is none to ask: only /health and /metadata. */
    const char *secret_file;
    const char *tenant;
    bool tls;
    bool leads; /* This process is the directory, "leader" in their words. */
    struct yb_stats *stats;
    struct yb_metadata *metadata; /* NULL: no /metadata. */
};

/* NULL: no memory. */
struct yb_known_http *yb_known_http_create(const struct yb_known_http_options *options);
void yb_known_http_destroy(struct yb_known_http **known);

/* For struct yb_http_source: `context` is the struct yb_known_http. */
bool yb_known_http_answer(void *context, const struct yb_http_asked *asked,
                          struct yb_http_told *told_out);

/* Every path, for the documents; the last row has no path. Static. */
struct yb_known_path {
    const char *methods;
    const char *path;
    const char *help;
};
const struct yb_known_path *yb_known_paths(void);

#endif /* YB_DAEMON_KNOWN_HTTP_H */
