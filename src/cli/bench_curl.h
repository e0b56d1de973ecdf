/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_curl.h -- what plain libcurl makes of an S3 service: the ceiling of `yuebing bench object`.
 *
 * One multi handle, as many easy ones as requests at the same time, each with one connection that
 * it keeps; libcurl signs. If it is told to, a put's body is signed too, by its SHA-256, and what
 * is got is summed. Nothing of our backend is in it but how its URL is understood.
 *
 * Threads   The caller's, which drives the transfers.
 * Memory    The caller's bytes are borrowed for a run.
 */
#ifndef YB_CLI_BENCH_CURL_H
#define YB_CLI_BENCH_CURL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tier/object/backend.h"
#include "yuebing/status.h"

struct yb_bench_curl;

/* Fails with INVALID, DENIED, UNSUPPORTED or NO_MEMORY; `why_out` is a sentence. */
YB_CHECKED enum yb_status yb_bench_curl_create(const char *url, uint32_t flying,
                                               struct yb_bench_curl **curl_out,
                                               char why_out[YB_OBJECT_WHY_BYTES]);
void yb_bench_curl_destroy(struct yb_bench_curl **curl);

struct yb_bench_curl_job {
    bool puts;
    bool sums;      /* Puts: the signature is one of the body, too; gets: 64 KiB by 64 KiB. */
    uint64_t epoch; /* Part of the names. */
    uint32_t count; /* Objects, ... */
    uint64_t size;  /* ... the bytes of each that are in memory, one object after the other, ... */
    uint64_t more;  /* ... and those of each that are not: zeros. */
    uint8_t *memory;
};

/* Put or get all of them. Returns seconds; 0: one failed. */
double yb_bench_curl_run(struct yb_bench_curl *curl, const struct yb_bench_curl_job *job);

#endif /* YB_CLI_BENCH_CURL_H */
