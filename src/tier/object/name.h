/* SPDX-License-Identifier: Apache-2.0
 *
 * name.h -- the names of objects: what is there follows from them alone.
 *
 *     <tenant>/<flush>/<hash>/<grant>-<size>-<kind>[-<expires>]   a block (RULES A15)
 *     <tenant>/<flush>/pack/<writer><number>-<footer bytes>       blocks gathered in one object
 *     _flush/<tenant>/<flush>                                     what is older is a miss
 *     _kill/<tenant>/<flush>/<hash>/<grant>                       this one is a miss
 *     _cluster/<cluster>/<seed>/<epoch>                           whose the store is (claim.h)
 *
 * Numbers are hexadecimal; hash, cluster and seed have 32 digits; epoch, grant, and the number of a
 * pack have 16, and 32 with their writer. `kind` is mode, replicas and flags. A late upload of a
 * block writes a name that is not read any more; a listing tells of each block all that its index
 * keeps, without reading it. Letters, digits, '-' and '.' of a tenant stand for themselves, others
 * are "_XX": so no tenant reaches into another's names, or out of the folder of the files.
 *
 * Threads   Any function, any thread; no state.
 */
#ifndef YB_TIER_OBJECT_NAME_H
#define YB_TIER_OBJECT_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "tier/object/backend.h"
#include "yuebing/types.h"

#define YB_OBJECT_TENANT_MAX   64u
#define YB_OBJECT_FLUSH_ROOT   "_flush/"
#define YB_OBJECT_KILL_ROOT    "_kill/"
#define YB_OBJECT_CLUSTER_ROOT "_cluster/"

enum yb_object_kind {
    YB_OBJECT_IS_BLOCK,
    YB_OBJECT_IS_PACK,
    YB_OBJECT_IS_FLUSH,
    YB_OBJECT_IS_KILL,
    YB_OBJECT_IS_CLUSTER,
};

/* What a name says; which fields count depends on `kind`. */
struct yb_object_name {
    enum yb_object_kind kind;
    char tenant[YB_OBJECT_TENANT_MAX + 1];
    uint64_t flush;
    struct yb_id hash;
    uint64_t grant;
    uint64_t size;
    uint32_t expires_unix_s; /* 0: never. */
    uint16_t flags;
    uint8_t mode;
    uint8_t replicas;
    uint64_t writer;       /* A pack's. */
    uint64_t number;       /* A pack's. */
    uint32_t footer_bytes; /* A pack's. */
    struct yb_id cluster;
    struct yb_id seed; /* A cluster's: under which keys are hashed. */
    uint64_t epoch;    /* A cluster's: of its directory. */
};

/* Write the name. TOO_LARGE: a tenant of more than 64 bytes. */
YB_CHECKED enum yb_status yb_object_name_format(const struct yb_object_name *name,
                                                char text_out[YB_OBJECT_NAME_MAX]);

/* Read one. False: it is not ours, or not of this version. */
YB_CHECKED bool yb_object_name_parse(const char *text, struct yb_object_name *name_out);

/* Write how the names of a tenant's blocks begin, of one epoch and of one hash ("" and a '/' at the
 * end). `hash` NULL: of all. TOO_LARGE as above. */
YB_CHECKED enum yb_status yb_object_name_prefix(const char *tenant, uint64_t flush,
                                                const struct yb_id *hash,
                                                char text_out[YB_OBJECT_NAME_MAX]);

#endif /* YB_TIER_OBJECT_NAME_H */
