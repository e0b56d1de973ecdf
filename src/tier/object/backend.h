/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h -- where objects lie: a directory of files, or an S3 service.
 *
 * An object is some bytes under a name. It is written whole, read in ranges, and never changed:
 * the object tier puts what it must tell apart into the name (name.h).
 *
 *     IDLE ----- submit -----> UNDER WAY ----- done ----> IDLE
 *                                 |  ^
 *                                 +--+ cancel: `done` comes soon; CANCELLED: it did not happen
 *
 * Invariants
 *   B1  A PUT that ended OK is there, whole, after a loss of power. One that ended otherwise may be
 *       there, whole, now or later, or not at all.
 *   B2  Memory of a request is not touched once its `done` has begun (RULES A3).
 *   B3  A DELETE of what is not there is OK.
 *   B4  A GET that ended OK has filled every piece that is not skipped.
 *
 * Completion  If submit returns OK, `done` runs exactly once, later, on the loop. AGAIN: too
 *             much is under way; `done` of another makes room.
 * Threads     Everything on the loop's thread, except `before`, `came` and `after`, which run on a
 *             thread of the backend's, one at a time: that is where sums are made and compared.
 * Memory      Requests and what they name are the caller's, borrowed until `done`.
 * Time        A deadline ends a request with TIMED_OUT where the medium can be left alone; a call
 *             that the kernel does not return from is waited for.
 */
#ifndef YB_TIER_OBJECT_BACKEND_H
#define YB_TIER_OBJECT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/helper.h"
#include "net/loop.h"
#include "yuebing/status.h"

#define YB_OBJECT_NAME_MAX  256u /* With the NUL. */
#define YB_OBJECT_WHY_BYTES 320u

enum yb_object_verb {
    YB_OBJECT_PUT,
    YB_OBJECT_GET,
    YB_OBJECT_HEAD,
    YB_OBJECT_DELETE,
    YB_OBJECT_LIST,
    YB_OBJECT_TRY, /* Is the service there and willing? Changes nothing that anybody sees. */
};
#define YB_OBJECT_VERBS 6u

struct yb_object_entry {
    uint64_t size;
    char name[YB_OBJECT_NAME_MAX];
};

/* The bytes of a PUT or GET, in this order. */
struct yb_object_bytes {
    struct iovec lead;
    const struct iovec *iov;
    uint32_t iov_count;
    struct iovec trail;
    uint64_t gap; /* GET: read, and thrown away. */
    struct iovec tail;
};

struct yb_object_request {
    /* ---- the caller's ---- */
    void (*done)(struct yb_object_request *request, enum yb_status status);
    void (*before)(
        struct yb_object_request *request); /* Makes what a PUT sends; NULL: it is made. */
    /* So many of a GET's bytes are there, and warm in the processor's caches; NULL: nobody wants to
     * know, and a backend need not say it. */
    void (*came)(struct yb_object_request *request, uint64_t count);
    enum yb_status (*after)(struct yb_object_request *request); /* Judges what a GET read. */
    enum yb_object_verb verb;
    char name[YB_OBJECT_NAME_MAX]; /* LIST: how the names begin. */
    uint64_t offset;               /* GET. */
    bool whole;                    /* GET: the bytes are all of the object. */
    struct yb_object_bytes bytes;
    uint64_t deadline_ns;
    struct yb_object_entry *entries; /* LIST: where a page goes. */
    uint32_t entries_max;
    void *cursor; /* LIST: NULL at first; then the backend's, until `more` is false or end_list. */

    /* ---- answers ---- */
    uint32_t entry_count;
    bool more;              /* LIST: submit it again for the next page. */
    bool sent;              /* Something may have reached the medium, whatever became of it. */
    bool judged;            /* All came; the status is what `after` said. */
    bool aside;             /* The failure is one of the whole medium, not of this object. */
    uint64_t object_bytes;  /* HEAD and GET: of the whole object. */
    uint64_t first_byte_ns; /* From the start of the request to the first byte of its answer, ... */
    uint64_t total_ns;      /* ... and to its last. */
    uint32_t wait_hint_ms;  /* The service asks to be left alone for so long. */
    char why[YB_OBJECT_WHY_BYTES]; /* "" unless it failed. */

    /* ---- the backend's ---- */
    struct yb_helper_job job;
    struct yb_mail mail;
    struct yb_object_request *next;
    void *backend;
    void *slot;
    void *around; /* Of a backend around the one that has it. */
    uint64_t begun_ns;
    enum yb_status status;
    uint8_t state;
};

struct yb_object_backend;

struct yb_object_backend_ops {
    const char *name; /* "file", "s3". */
    enum yb_status (*submit)(struct yb_object_backend *backend, struct yb_object_request *request);
    void (*cancel)(struct yb_object_backend *backend, struct yb_object_request *request);
    void (*end_list)(struct yb_object_backend *backend, struct yb_object_request *request);
    void (*destroy)(struct yb_object_backend *backend);
};

/* The head of every backend. */
struct yb_object_backend {
    const struct yb_object_backend_ops *ops;
    uint64_t multipart_bytes; /* A PUT above it goes in parts; 0: never. */
};

/* Walk over the pieces of a request's bytes: false after the last. Empty ones are left out; the gap
 * has no base. */
bool yb_object_piece(const struct yb_object_bytes *bytes, uint32_t *at, struct iovec *piece_out);
uint64_t yb_object_bytes_sum(const struct yb_object_bytes *bytes);
/* Copy of a request's bytes from `from` on, or into them; returns how much. */
size_t yb_object_bytes_read(const struct yb_object_bytes *bytes, uint64_t from, void *to,
                            size_t length);
size_t yb_object_bytes_write(const struct yb_object_bytes *bytes, uint64_t from, const void *data,
                             size_t length);

/* Return whether a request that ended so may end otherwise in a moment. */
bool yb_object_retryable(enum yb_status status);

/* The medium that a URL of object.h means. Fails as the two below, and with INVALID: it is neither.
 */
YB_CHECKED enum yb_status yb_object_backend_open(const char *url, struct yb_loop *loop,
                                                 struct yb_helper_pool *pool,
                                                 struct yb_object_backend **backend_out,
                                                 char why_out[YB_OBJECT_WHY_BYTES]);

/* Files below `directory`, which is made if it is not there. A name "a/b/c/d" is the file
 * "a/b/c,d". `pool` is borrowed.
 * Fails with IO, DENIED or INVALID; `why_out` says what is wrong, and what to do. */
YB_CHECKED enum yb_status yb_object_file_create(const char *directory, struct yb_loop *loop,
                                                struct yb_helper_pool *pool,
                                                struct yb_object_backend **backend_out,
                                                char why_out[YB_OBJECT_WHY_BYTES]);

/* A bucket: "s3://BUCKET..." of s3_settings.h. `pool` is borrowed.
 * Fails with INVALID, DENIED (no credentials), UNSUPPORTED (no libcurl, or an old one) or
 * NO_MEMORY; `why_out` as above. Whether the service is there shows later. */
YB_CHECKED enum yb_status yb_object_s3_create(const char *url, struct yb_loop *loop,
                                              struct yb_helper_pool *pool,
                                              struct yb_object_backend **backend_out,
                                              char why_out[YB_OBJECT_WHY_BYTES]);

#endif /* YB_TIER_OBJECT_BACKEND_H */
