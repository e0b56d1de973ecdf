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

#include "net/curl.h"
#include "yuebing/status.h"

#define YB_ASK_ADDRESS_DEFAULT "127.0.0.1:14780"
#define YB_ASK_ANSWER_MAX      (64u << 20)

/* GET http://ADDRESS/PATH. OK: *code_out is the answer's code, and *json_out what it says; NULL: it
 * is no JSON. Otherwise `error_out` has a sentence, and it fails as yb_curl_create() and
 * yb_curl_ask(). */
YB_CHECKED enum yb_status yb_ask(const char *address, const char *path, long *code_out,
                                 json_t **json_out, char error_out[YB_CURL_ERROR_BYTES]);

#endif /* YB_CLI_ASK_H */
