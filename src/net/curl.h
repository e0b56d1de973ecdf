/* SPDX-License-Identifier: Apache-2.0
 *
 * curl.h -- HTTP to servers that are not ours, through libcurl, in calls that wait.
 *
 * libcurl is loaded at run time, by whoever asks a server for the first time: a metadata server of
 * the known system, an engine that is checked, an object store. Nothing else needs it, and nobody
 * who needs none of these has to install it. It is never unloaded again.
 *
 * A handle keeps its connections between requests, so that the second to a server costs no
 * handshake. Only http:// and https:// are spoken, redirections are not followed, and the
 * environment's proxies do not count: what we ask is told to us by its address.
 *
 * Threads   One at a time for a handle; different handles are independent. Every call may wait:
 *           never on a loop's thread (net/helper.h).
 * Memory    A request and what it names are the caller's until the call has returned.
 * Time      Two bounds for each request: until there is a connection, and altogether.
 */
#ifndef YB_NET_CURL_H
#define YB_NET_CURL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_CURL_LIBRARY     "libcurl.so.4"
#define YB_CURL_ERROR_BYTES 512u
#define YB_CURL_HEADERS_MAX 32u

struct yb_curl;

struct yb_curl_request {
    const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE". */
    const char *url;
    const char *const *headers; /* "Name: value"; at most YB_CURL_HEADERS_MAX. */
    size_t header_count;
    const void *body; /* NULL: none. An empty one is not NULL. */
    uint64_t body_bytes;
    uint64_t connect_ns;
    uint64_t timeout_ns; /* Of all of it, with the connection. */
    const char *ca_file; /* PEM; NULL: what the system trusts. */

    /* What comes back, in pieces; false ends the request. Either may be NULL: not wanted. A line
     * of the head has no end of line; the first is the status line. */
    bool (*take)(void *context, const void *bytes, size_t length);
    bool (*take_header)(void *context, const char *line, size_t length);
    void *context;
};

/* Load libcurl, if this process has not yet, and make a handle.
 * Fails with UNSUPPORTED (there is no libcurl here) or NO_MEMORY; error_out, which may be NULL,
 * says so with the remedy. */
YB_CHECKED enum yb_status yb_curl_create(struct yb_curl **curl_out,
                                         char error_out[YB_CURL_ERROR_BYTES]);

/* Consume the handle, close its connections and set it to NULL. */
void yb_curl_destroy(struct yb_curl **curl);

/* Ask and wait. OK: the server answered, and *code_out is its HTTP status, whatever that is.
 * Otherwise error_out, which may be NULL, says what happened: UNREACHABLE (no such host, or nobody
 * there), TIMED_OUT, PEER_LOST (it went away meanwhile), CANCELLED (`take` ended it), INVALID (the
 * request cannot be made: its URL, or too many headers), IO (anything else). */
YB_CHECKED enum yb_status yb_curl_ask(struct yb_curl *curl, const struct yb_curl_request *request,
                                      long *code_out, char error_out[YB_CURL_ERROR_BYTES]);

/* Write `text` as part of a URL: all but letters, digits and "-._~" become %XX, and '/' too unless
 * `keeps_slash`. TOO_LARGE if it does not fit. Needs no libcurl. */
YB_CHECKED enum yb_status yb_curl_escape(const char *text, bool keeps_slash, char *out,
                                         size_t size);

#endif /* YB_NET_CURL_H */
