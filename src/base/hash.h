/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h -- the two hashes: one for names, one for tables.
 *
 * Keys become 128-bit names by SipHash-2-4-128 under the cluster's secret seed. Whoever does not
 * know the seed can neither find two keys with one name nor fill one bucket; whoever does (a
 * member) is still caught, because nodes compare full keys.
 *
 * Tables inside one process use XXH3-64. It is faster and promises nothing against an attacker,
 * so it is fed with names that are hashes already, or with a seed that never leaves the process.
 *
 * Invariants
 *   H1  The same seed, tenant and key give the same name on every machine and in every version:
 *       the name is on the wire and on disk.
 *   H2  Different (tenant, key) never hash the same bytes: what is hashed is the tenant's length
 *       as 16 bits little-endian, the tenant, the key. So a tenant cannot reach another's keys
 *       by choosing where its name ends.
 *
 * Threads   Any function, any thread; no state.
 * Memory    No function allocates; names are values.
 */
#ifndef YB_BASE_HASH_H
#define YB_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "yuebing/types.h"

#define YB_HASH_SEED_BYTES       16u
#define YB_HASH_KEY_BYTES_MAX    1024u
#define YB_HASH_TENANT_BYTES_MAX 256u

/* Some bytes of the caller; borrowed for the call. `data` may be NULL when `length` is 0. */
struct yb_hash_bytes {
    const void *data;
    size_t length;
};

/* Return the name of `key` (1 to 1024 bytes) of `tenant` (0 to 256 bytes) under `seed`. Lengths
 * beyond that are a bug, and abort: whoever takes keys from outside has to refuse them. */
struct yb_id yb_hash_key(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
                         struct yb_hash_bytes key);

/* Hash `count` keys, each as yb_hash_key() does, but several at a time where neighbours are of one
 * length: what engines ask for is. */
void yb_hash_keys(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
                  const struct yb_hash_bytes *keys, size_t count, struct yb_id *ids_out);

/* Return a hash for a table of this process. Never put it on the wire or on disk. */
uint64_t yb_hash_table(uint64_t seed, const void *data, size_t length);

/* The same for an id: yb_hash_table(seed, id.bytes, 16). */
uint64_t yb_hash_table_id(uint64_t seed, struct yb_id id);

#endif /* YB_BASE_HASH_H */
