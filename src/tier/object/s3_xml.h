/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_xml.h -- what an S3 service writes: listings, errors, numbers of uploads.
 *
 * Threads   Any function, any thread; no state.
 * Memory    libexpat, found at run time, allocates while it reads, in proportion to one element;
 *           a text that defines entities is refused.
 */
#ifndef YB_TIER_OBJECT_S3_XML_H
#define YB_TIER_OBJECT_S3_XML_H

#include <stdbool.h>
#include <stddef.h>

#include "tier/object/backend.h"

#define YB_OBJECT_TOKEN_BYTES 2048u

struct yb_object_page {
    struct yb_object_entry *entries; /* The caller's. */
    uint32_t entries_max;
    uint32_t count;
    char token[YB_OBJECT_TOKEN_BYTES]; /* Of the next page; "": there is none. */
};

/* Return whether libexpat.so.1 is here; without it nothing can be read. */
YB_CHECKED bool yb_object_xml_ready(void);

/* Read a page of ListObjectsV2. Names begin with `prefix`, which is left out; others are passed
 * over. False: it is no such page. */
YB_CHECKED bool yb_object_xml_list(const char *text, size_t length, const char *prefix,
                                   struct yb_object_page *page);

/* Read the text of the first element of a name, such as Code, Message or UploadId; false: there is
 * none, or it does not fit. */
YB_CHECKED bool yb_object_xml_text(const char *text, size_t length, const char *element,
                                   char *value_out, size_t size);

#endif /* YB_TIER_OBJECT_S3_XML_H */
