/* SPDX-License-Identifier: Apache-2.0
 *
 * metadata.h -- what a metadata server of the known system keeps: small values by key.
 *
 *     GET     a value, or "metadata not found"
 *     PUT     keeps it; an address (a key with "rpc_meta" in it) that is kept is not replaced
 *     DELETE  drops it
 *
 * Nothing outlives the process. Bounded: at most YB_METADATA_KEYS_MAX keys and
 * YB_METADATA_BYTES_MAX bytes of keys and values.
 *
 * Threads   Any thread, any function; destroy from one.
 * Memory    Keys and values are copied, both ways.
 */
#ifndef YB_COMPAT_METADATA_H
#define YB_COMPAT_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_METADATA_KEYS_MAX  65536u
#define YB_METADATA_KEY_MAX   1024u
#define YB_METADATA_BYTES_MAX (256ull << 20)

struct yb_metadata;

/* NULL: no memory. */
struct yb_metadata *yb_metadata_create(void);
void yb_metadata_destroy(struct yb_metadata **metadata);

/* On OK *value_out is the caller's to free(). NOT_FOUND; NO_MEMORY. */
YB_CHECKED enum yb_status yb_metadata_get(struct yb_metadata *metadata, const char *key,
                                          char **value_out, size_t *bytes_out);
/* INVALID (the key); EXISTS (an address is kept already; the same one again is OK); NO_SPACE (a
 * bound); NO_MEMORY. */
YB_CHECKED enum yb_status yb_metadata_put(struct yb_metadata *metadata, const char *key,
                                          const void *value, size_t bytes);
YB_CHECKED enum yb_status yb_metadata_delete(struct yb_metadata *metadata, const char *key);

#endif /* YB_COMPAT_METADATA_H */
