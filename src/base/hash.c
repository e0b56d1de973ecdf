/* SPDX-License-Identifier: Apache-2.0
 *
 * SipHash: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), the 128-bit output
 * of the reference code. libsodium has no incremental form of it, hence the copy to one buffer, and
 * no form for several inputs at once, hence our own beside it, which the tests hold to it.
 */
#include "base/hash.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#define XXH_INLINE_ALL /* A table's hash of an id is a few instructions: no call of a library. */
#include <xxhash.h>

#include "base/check.h"

#define LENGTH_BYTES 2u
#define INPUT_BYTES  (LENGTH_BYTES + YB_HASH_TENANT_BYTES_MAX + YB_HASH_KEY_BYTES_MAX)

_Static_assert(crypto_shorthash_siphashx24_KEYBYTES == YB_HASH_SEED_BYTES, "seed");
_Static_assert(crypto_shorthash_siphashx24_BYTES == sizeof(struct yb_id), "name");
_Static_assert(YB_HASH_TENANT_BYTES_MAX <= UINT16_MAX, "the length fits its prefix");

/* Write what is hashed before the key (H2). Returns how many bytes that is. */
static size_t
begin_input(uint8_t *input, struct yb_hash_bytes tenant)
{
    YB_ASSERT(tenant.length <= YB_HASH_TENANT_BYTES_MAX);
    input[0] = (uint8_t)(tenant.length & 0xff);
    input[1] = (uint8_t)(tenant.length >> 8);
    if (tenant.length > 0) {
        memcpy(input + LENGTH_BYTES, tenant.data, tenant.length);
    }
    return LENGTH_BYTES + tenant.length;
}

struct yb_id
yb_hash_key(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
            struct yb_hash_bytes key)
{
    uint8_t input[INPUT_BYTES];
    size_t before = begin_input(input, tenant);
    struct yb_id id;

    YB_ASSERT(key.length > 0 && key.length <= YB_HASH_KEY_BYTES_MAX);
    memcpy(input + before, key.data, key.length);
    YB_ASSERT(crypto_shorthash_siphashx24(id.bytes, input, before + key.length, seed) == 0);
    return id;
}

/* ---- several at a time ----------------------------------------------------------------------- */

#if defined(__x86_64__)

/* SipHash is one long chain: each of its steps waits for the one before, and most of what a core
 * could do meanwhile is idle. So inputs of one length are hashed side by side, one in each lane of
 * the compiler's vectors: eight where a register takes as many, four elsewhere. */
#define LANES_MAX 8u

struct inputs {
    uint8_t bytes[LANES_MAX][INPUT_BYTES + 8]; /* Room for a word more. */
};

static inline __attribute__((always_inline)) uint64_t
word_at(const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return word;
}

#define WIDTH      4
#define NAME(what) what##_4
#define TARGET     __attribute__((target("avx2")))
#define SAME(x)            \
    {                      \
        (x), (x), (x), (x) \
    }
#define EACH(f, x, y)                                  \
    {                                                  \
        f(x, 0, y), f(x, 1, y), f(x, 2, y), f(x, 3, y) \
    }
#include "base/hash_lanes.inc"

#define WIDTH      8
#define NAME(what) what##_8
#define TARGET     __attribute__((target("avx512f,avx512vl")))
#define SAME(x)                                \
    {                                          \
        (x), (x), (x), (x), (x), (x), (x), (x) \
    }
#define EACH(f, x, y)                                                                       \
    {                                                                                       \
        f(x, 0, y), f(x, 1, y), f(x, 2, y), f(x, 3, y), f(x, 4, y), f(x, 5, y), f(x, 6, y), \
            f(x, 7, y)                                                                      \
    }
#include "base/hash_lanes.inc"

static bool
same_length(const struct yb_hash_bytes *keys, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (keys[i].length != keys[0].length) {
            return false;
        }
    }
    return true;
}

/* Hash keys from the first on as long as a register's lanes are of one length. Returns how many. */
static size_t
hash_alike(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
           const struct yb_hash_bytes *keys, size_t count, struct yb_id *ids_out)
{
    size_t wide = __builtin_cpu_supports("avx512vl") ? 8 : __builtin_cpu_supports("avx2") ? 4 : 0;
    struct inputs inputs;
    size_t before = 0;
    size_t done = 0;

    wide = wide == 8 && count < 8 ? 4 : wide;
    if (wide == 0 || count < wide || !same_length(keys, wide)) {
        return 0;
    }
    for (size_t lane = 0; lane < wide; lane++) {
        before = begin_input(inputs.bytes[lane], tenant);
    }
    for (; count - done >= wide && same_length(keys + done, wide); done += wide) {
        size_t length = keys[done].length;

        YB_ASSERT(length > 0 && length <= YB_HASH_KEY_BYTES_MAX);
        for (size_t lane = 0; lane < wide; lane++) {
            memcpy(inputs.bytes[lane] + before, keys[done + lane].data, length);
        }
        if (wide == 8) {
            hash_8(seed, &inputs, before + length, ids_out + done);
        } else {
            hash_4(seed, &inputs, before + length, ids_out + done);
        }
    }
    return done;
}

#else /* Where the compiler's vectors were slower than one key after the other. */

static size_t
hash_alike(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
           const struct yb_hash_bytes *keys, size_t count, struct yb_id *ids_out)
{
    return 0;
}

#endif

void
yb_hash_keys(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
             const struct yb_hash_bytes *keys, size_t count, struct yb_id *ids_out)
{
    for (size_t i = 0; i < count;) {
        size_t alike = hash_alike(seed, tenant, keys + i, count - i, ids_out + i);

        if (alike == 0) {
            ids_out[i] = yb_hash_key(seed, tenant, keys[i]);
            alike = 1;
        }
        i += alike;
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

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
