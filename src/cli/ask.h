/* SPDX-License-Identifier: Apache-2.0
 *
 * ask.h -- questions to ports of ours, over HTTP, that are answered with JSON.
 *
 * Threads   The caller's, which waits: with deadlines.
 * Memory    Answers belong to the caller.
 */
#ifndef YB_CLI_ASK_H
#define YB_CLI_ASK_H

#include <jansson.h>
#include <stdint.h>

#include "net/curl.h"
#include "yuebing/status.h"

#define YB_ASK_ADDRESS_DEFAULT "127.0.0.1:14780"
#define YB_ASK_ANSWER_MAX      (64u << 20)

/* GET http://ADDRESS/PATH. OK: *code_out is the answer's code, and *json_out what it says; NULL: it
 * is no JSON. Otherwise `error_out` has a sentence, and it fails as yb_curl_create() and
 * yb_curl_ask(). */
YB_CHECKED enum yb_status yb_ask(const char *address, const char *path, long *code_out,
                                 json_t **json_out, char error_out[YB_CURL_ERROR_BYTES]);

/* The same with a handle of the caller's, which keeps its connections, and with `body` as JSON
 * (NULL: GET). Returns what was answered; NULL: no answer, or none that is JSON. *code_out (may be
 * NULL): the answer's code, 0: there was none. */
json_t *yb_ask_by(struct yb_curl *curl, const char *address, const char *path, const char *body,
                  long *code_out);

/* The same for a value, which is consumed. */
json_t *yb_ask_json(struct yb_curl *curl, const char *address, const char *path, json_t *body,
                    long *code_out);

/* The same, as part of the trace that `traceparent` names; NULL: of none. */
json_t *yb_ask_traced(struct yb_curl *curl, const char *address, const char *path, json_t *body,
                      const char *traceparent, long *code_out);

/* The number that `answer` has by that name; 0: it has none, or one below 0. */
uint64_t yb_ask_number(const json_t *answer, const char *name);

#endif /* YB_CLI_ASK_H */
