/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_settings.h -- where a bucket is, and who we are there.
 *
 * The URL says where; what it leaves out comes from the environment that every program which speaks
 * to S3 reads. Credentials come from the environment or a credentials file, never from a URL: a URL
 * is seen in lists of processes and in logs.
 *
 * Threads   Any, at the start of a process: it reads a file.
 */
#ifndef YB_TIER_OBJECT_S3_SETTINGS_H
#define YB_TIER_OBJECT_S3_SETTINGS_H

#include <stdbool.h>

#include "tier/object/backend.h"

struct yb_object_s3_settings {
    char bucket[64];
    char prefix[128];   /* "" or ends with '/'. */
    char endpoint[256]; /* "http://host:port", without a '/' at its end. */
    char region[64];
    char ca_file[512]; /* "": the system's. */
    bool host_style;   /* The bucket is part of the host's name, not of the path. */
    char key[160];
    char secret[160];
    char token[4096]; /* "": none. */
    uint64_t multipart_bytes;
};

/* Read "s3://BUCKET[/PREFIX][?endpoint=URL&region=R&style=path|host&profile=P&ca=FILE]".
 * `environment` answers for a name of YB_CONFIG_S3_MAP; NULL: it is not set.
 * Fails with INVALID (the URL) or DENIED (no credentials); `why_out` is a sentence with the
 * remedy. */
YB_CHECKED enum yb_status yb_object_s3_settings_read(const char *url,
                                                     const char *(*environment)(const char *name),
                                                     struct yb_object_s3_settings *settings_out,
                                                     char why_out[YB_OBJECT_WHY_BYTES]);

#endif /* YB_TIER_OBJECT_S3_SETTINGS_H */
