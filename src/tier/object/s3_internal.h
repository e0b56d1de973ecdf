/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_internal.h -- what the files of the S3 backend share.
 *
 *     loop                        a helper                 the thread of libcurl
 *     submit --(PUT)--> record, sums, hashes --> loop --mail--> transfer, in one request or in
 *     parts
 *            --(other verbs)-----------------------------mail-->    |
 *     done <--(ETag compared by a helper, if nothing else was)--mail-+
 *
 * Threads   A transfer belongs to whoever has its request: one of the three at a time. `state` of
 * the
 *           request alone is written by the loop meanwhile, to cancel.
 */
#ifndef YB_TIER_OBJECT_S3_INTERNAL_H
#define YB_TIER_OBJECT_S3_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "net/mailbox.h"
#include "tier/object/backend.h"
#include "tier/object/s3_settings.h"
#include "tier/object/s3_xml.h"

#define S3_MAGIC      0x594f5333u /* "YOS3" */
#define S3_TRANSFERS  320u
#define S3_PARTS_MAX  32u
#define S3_ETAG_BYTES 80u
#define S3_BODY_BYTES \
    (8u << 10) /* Of an answer that is no object; a page of a listing is longer. */
#define S3_PAGE_BYTES   (4u << 20)
#define S3_URL_BYTES    5120u /* An address, a token and a prefix, both of them escaped. */
#define S3_HEADERS_MAX  6u
#define S3_HEADER_BYTES (4096u + 64u)
#define S3_UPLOAD_BYTES 512u

/* libcurl's functions: loaded at run time, so that nobody needs it who needs no S3. */
struct s3_curl {
    void *(*easy_init)(void);
    void (*easy_reset)(void *easy);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_getinfo)(void *easy, int info, ...);
    void (*easy_cleanup)(void *easy);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *line);
    void (*slist_free_all)(void *list);
    void *(*multi_init)(void);
    int (*multi_setopt)(void *multi, int option, ...);
    int (*multi_add_handle)(void *multi, void *easy);
    int (*multi_remove_handle)(void *multi, void *easy);
    int (*multi_perform)(void *multi, int *running_out);
    int (*multi_poll)(void *multi, void *extra, unsigned extra_count, int timeout_ms, int *ready);
    int (*multi_wakeup)(void *multi);
    void *(*multi_info_read)(void *multi, int *left_out);
    int (*multi_cleanup)(void *multi);
    void *(*version_info)(int age);
};

enum s3_phase { S3_WHOLE, S3_BEGIN, S3_PART, S3_COMPLETE, S3_ABORT };

struct s3_transfer {
    struct s3_backend *s3;
    struct s3_transfer *next; /* Free, or under way. */
    struct yb_object_request *request;
    void *easy;
    void *headers;
    enum s3_phase phase;
    enum yb_status aborted; /* ABORT: what the request ends with. */
    uint32_t part;
    uint32_t parts; /* 0: in one request. */
    uint64_t from;  /* Of the body that this request sends ... */
    uint64_t bytes; /* ... and how much of it. */
    uint64_t moved;
    uint64_t expected; /* GET. */
    bool misfit;       /* More came than was asked for. */
    long code;
    char etag[S3_ETAG_BYTES];
    char sum[16]; /* x-amz-checksum-crc32c of the answer. */
    uint64_t total;
    uint32_t wait_s;
    char upload[S3_UPLOAD_BYTES];
    char hashes[S3_PARTS_MAX][65]; /* SHA-256 of the body, or of each part. */
    char etags[S3_PARTS_MAX][S3_ETAG_BYTES];
    char crc[16];                  /* Of the whole body. */
    char list[S3_PARTS_MAX * 160]; /* COMPLETE: the parts. */
    size_t list_used;
    char *text; /* What comes that is no object. */
    size_t text_used;
    size_t text_room;
    char inline_text[S3_BODY_BYTES];
    char error[256];
};

struct s3_backend {
    struct yb_object_backend head;
    uint32_t magic;
    struct s3_curl curl;
    struct yb_object_s3_settings settings;
    char base[600]; /* Scheme, host, bucket: "http://host/bucket/prefix". */
    struct yb_loop *loop;
    struct yb_helper_pool *pool;
    struct s3_transfer *transfers;
    struct s3_transfer *free; /* The loop's. */
    void *multi;              /* The thread's, but for its wake-up. */
    pthread_t thread;
    struct yb_mailbox box;      /* To the thread. */
    struct s3_transfer *flying; /* The thread's. */
    _Atomic uint32_t cancels;   /* Raised by the loop; partner: the thread's look at `flying`. */
    _Atomic bool stopping;
};

/* ---- s3_curl.c ---- */
YB_CHECKED bool yb_object_s3_load(struct s3_curl *curl, char why_out[YB_OBJECT_WHY_BYTES]);
/* Prepare the handle for the transfer's phase; false: it cannot be. */
YB_CHECKED bool yb_object_s3_prepare(struct s3_transfer *transfer);
/* Judge what came of the phase: a status, and in the request why. */
enum yb_status yb_object_s3_judge(struct s3_transfer *transfer, int result);

/* ---- s3_body.c ---- */
void yb_object_s3_hash(struct s3_transfer *transfer);
bool yb_object_s3_etags_match(const struct s3_transfer *transfer);

#endif /* YB_TIER_OBJECT_S3_INTERNAL_H */
