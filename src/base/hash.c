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
#include <xxhash.h>

#include "base/check.h"

#define LENGTH_BYTES 2u
#define INPUT_BYTES  (LENGTH_BYTES + YB_HASH_TENANT_BYTES_MAX + YB_HASH_KEY_BYTES_MAX)
#define LANES        4u

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
 * the compiler's vectors. */
typedef uint64_t lanes __attribute__((vector_size(LANES * sizeof(uint64_t))));

struct state {
    lanes v0;
    lanes v1;
    lanes v2;
    lanes v3;
};

#define ALL(word)       ((lanes){(word), (word), (word), (word)})
#define ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

static uint64_t
word_at(const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return word;
}

__attribute__((target("avx2"))) static void
rounds(struct state *s, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = ROTATE(s->v1, 13) ^ s->v0;
        s->v3 = ROTATE(s->v3, 16) ^ s->v2;
        s->v0 = ROTATE(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = ROTATE(s->v1, 17) ^ s->v2;
        s->v3 = ROTATE(s->v3, 21) ^ s->v0;
        s->v2 = ROTATE(s->v2, 32);
    }
}

/* Hash LANES inputs of `length` bytes each, with room for a word more behind each. */
__attribute__((target("avx2"))) static void
hash_lanes(const uint8_t seed[YB_HASH_SEED_BYTES], uint8_t input[LANES][INPUT_BYTES + 8],
           size_t length, struct yb_id ids_out[LANES])
{
    uint64_t key[2];
    struct state s;
    lanes m, high;

    memcpy(key, seed, sizeof(key));
    s.v0 = ALL(key[0] ^ 0x736f6d6570736575ull);
    s.v1 = ALL(key[1] ^ 0x646f72616e646f6dull ^ 0xee);
    s.v2 = ALL(key[0] ^ 0x6c7967656e657261ull);
    s.v3 = ALL(key[1] ^ 0x7465646279746573ull);
    for (unsigned lane = 0; lane < LANES; lane++) { /* The last word ends with the length. */
        memset(input[lane] + length, 0, 8);
        input[lane][length / 8 * 8 + 7] = (uint8_t)length;
    }
    for (size_t at = 0; at <= length; at += 8) {
        m = (lanes){word_at(input[0] + at), word_at(input[1] + at), word_at(input[2] + at),
                    word_at(input[3] + at)};
        s.v3 ^= m;
        rounds(&s, 2);
        s.v0 ^= m;
    }
    s.v2 ^= ALL(0xee);
    rounds(&s, 4);
    m = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= ALL(0xdd);
    rounds(&s, 4);
    high = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    for (unsigned lane = 0; lane < LANES; lane++) {
        uint64_t halves[2] = {m[lane], high[lane]};

        memcpy(ids_out[lane].bytes, halves, sizeof(halves));
    }
}

static bool
same_length(const struct yb_hash_bytes keys[LANES])
{
    for (unsigned lane = 1; lane < LANES; lane++) {
        if (keys[lane].length != keys[0].length) {
            return false;
        }
    }
    return true;
}

/* Hash keys from the first on as long as LANES of them are of one length. Returns how many. */
static size_t
hash_alike(const uint8_t seed[YB_HASH_SEED_BYTES], struct yb_hash_bytes tenant,
           const struct yb_hash_bytes *keys, size_t count, struct yb_id *ids_out)
{
    uint8_t input[LANES][INPUT_BYTES + 8];
    size_t before = 0;
    size_t done = 0;

    if (count < LANES || !__builtin_cpu_supports("avx2")) {
        return 0;
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        before = begin_input(input[lane], tenant);
    }
    for (; count - done >= LANES && same_length(keys + done); done += LANES) {
        size_t length = keys[done].length;

        YB_ASSERT(length > 0 && length <= YB_HASH_KEY_BYTES_MAX);
        for (unsigned lane = 0; lane < LANES; lane++) {
            memcpy(input[lane] + before, keys[done + lane].data, length);
        }
        hash_lanes(seed, input, before + length, ids_out + done);
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
