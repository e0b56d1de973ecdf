/* SPDX-License-Identifier: Apache-2.0
 *
 * SipHash: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), the 128-bit output
 * of the reference code. libsodium has no incremental form of it, hence the copy to one buffer.
 */
#include "base/hash.h"

#include <sodium.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

#define LENGTH_BYTES 2u

_Static_assert(crypto_shorthash_siphashx24_KEYBYTES == YB_HASH_SEED_BYTES, "seed");
_Static_assert(crypto_shorthash_siphashx24_BYTES == sizeof(struct yb_id), "name");
_Static_assert(YB_HASH_TENANT_BYTES_MAX <= UINT16_MAX, "the length fits its prefix");

struct yb_id
yb_hash_key(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
            struct yb_hash_bytes key)
{
    uint8_t input[LENGTH_BYTES + YB_HASH_TENANT_BYTES_MAX + YB_HASH_KEY_BYTES_MAX];
    struct yb_id id;

    YB_ASSERT(tenant.length <= YB_HASH_TENANT_BYTES_MAX);
    YB_ASSERT(key.length > 0 && key.length <= YB_HASH_KEY_BYTES_MAX);
    input[0] = (uint8_t)(tenant.length & 0xff); /* H2 */
    input[1] = (uint8_t)(tenant.length >> 8);
    if (tenant.length > 0) {
        memcpy(input + LENGTH_BYTES, tenant.data, tenant.length);
    }
    memcpy(input + LENGTH_BYTES + tenant.length, key.data, key.length);
    YB_ASSERT(crypto_shorthash_siphashx24(id.bytes, input,
                                          LENGTH_BYTES + tenant.length + key.length, seed) == 0);
    return id;
}

uint64_t
yb_hash_table(uint64_t seed, const void *data, size_t length)
{
    YB_ASSERT(data != NULL || length == 0);
    return XXH3_64bits_withSeed(data, length, seed);
}

uint64_t
yb_hash_table_id(uint64_t seed, struct yb_id id)
{
    return yb_hash_table(seed, id.bytes, sizeof(id.bytes));
}
