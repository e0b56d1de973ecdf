/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h -- what the files of `yuebing check engine` share.
 *
 *     check.c          the command: who is asked in which order, what is concluded
 *     check_ask.c      one prompt to an OpenAI-compatible server, timed
 *     check_store.c    which blocks appeared in the store, and which were read since
 *
 * Threads   The calling one.
 * Memory    What is filled in is the caller's, who passes it to the function that ends it.
 */
#ifndef YB_CLI_CHECK_H
#define YB_CLI_CHECK_H

#include "cli/cli.h"
#include "yuebing/client.h"

/* ---- check_ask.c ---- */

struct yb_check_server {
    const char *url;     /* "http://host:port", with or without /v1. */
    const char *model;   /* NULL: the first one that it names. */
    const char *api_key; /* NULL: none. */
    uint64_t timeout_ns;
};

#define YB_CHECK_MODEL_BYTES 256u
#define YB_CHECK_ERROR_BYTES 512u

struct yb_check_answer {
    uint64_t ttft_ns; /* Until the first text. */
    uint64_t total_ns;
    int64_t prompt_tokens; /* -1: it does not say. */
    int64_t cached_tokens; /* Of them, not computed; -1: it does not say. */
    char *text;            /* All of the answer; NULL: none. */
    size_t text_bytes;
    char error[YB_CHECK_ERROR_BYTES]; /* Why it failed. */
};

/* Ask which model a server has. False: error_out says why not. */
bool yb_check_model(const struct yb_check_server *server, char model_out[YB_CHECK_MODEL_BYTES],
                    char error_out[YB_CHECK_ERROR_BYTES]);

/* Ask for `tokens` more, at temperature 0 and with a fixed seed. False: answer->error says why. */
bool yb_check_ask(const struct yb_check_server *server, const char *prompt, uint32_t tokens,
                  struct yb_check_answer *answer_out);
void yb_check_answer_fini(struct yb_check_answer *answer);

/* ---- check_store.c ---- */

#define YB_CHECK_BLOCKS_MAX 65536u

struct yb_check_block {
    char *key;
    uint32_t key_bytes;
    uint64_t size;
    uint64_t grant;
    uint64_t idle_ms;
    const char *tier;
    char node[64];
};

/* What is in the store that was put after a grant. */
struct yb_check_view {
    struct yb_check_block *blocks; /* In order of key, one for each copy. */
    uint32_t count;
    bool more;         /* There are more than YB_CHECK_BLOCKS_MAX. */
    uint64_t newest;   /* Largest grant of all that is there. */
    uint64_t begun_ns; /* When the listing began. */
};

/* List what is newer than `since`. Fails as yb_client_list(), and with NO_MEMORY. */
YB_CHECKED enum yb_status yb_check_view(struct yb_client *client, uint64_t since,
                                        uint64_t timeout_ns, struct yb_check_view *view_out);
void yb_check_view_fini(struct yb_check_view *view);

/* The order of blocks in a view, for qsort() and bsearch(). */
int yb_check_by_key(const void *a, const void *b);

/* List again and again until nothing is added for a while, or `settle_ns` are over; *still_ns_out
 * is since when nothing was added. Nothing at all is waited for to the end. */
YB_CHECKED enum yb_status yb_check_settle(struct yb_client *client, uint64_t since,
                                          uint64_t timeout_ns, uint64_t settle_ns,
                                          struct yb_check_view *view_out, uint64_t *still_ns_out);

#endif /* YB_CLI_CHECK_H */
