/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "yuebing/client.h"

#define GOLDEN     0x9e3779b97f4a7c15ull /* Odd: no two words of a part have one input. */
#define WORD       sizeof(uint64_t)
#define SALT_BYTES 128u
#define TOKEN_PART UINT32_MAX /* Of no layers: the answer. */

/* The finaliser of MurmurHash3 (public domain): each bit of the input changes half of the output.
 */
static inline uint64_t
mix(uint64_t word)
{
    word ^= word >> 33;
    word *= 0xff51afd7ed558ccdull;
    word ^= word >> 33;
    word *= 0xc4ceb9fe1a85ec53ull;
    return word ^ word >> 33;
}

static uint64_t
seed_of(const uint8_t key[YB_KV_KEY_BYTES], uint32_t part)
{
    uint64_t halves[2];

    memcpy(halves, key, sizeof(halves));
    return mix(mix(halves[0] + part) + halves[1]);
}

void
yb_kv_fill(const uint8_t key[YB_KV_KEY_BYTES], uint32_t part, void *out, size_t length)
{
    uint8_t *bytes = out;
    uint64_t seed = seed_of(key, part);
    uint64_t word = 0;

    while (length >= WORD) {
        word = mix(seed);
        memcpy(bytes, &word, WORD);
        seed += GOLDEN;
        bytes += WORD;
        length -= WORD;
    }
    word = mix(seed);
    memcpy(bytes, &word, length);
}

static size_t
count_wrong(const uint8_t *bytes, uint64_t word, size_t length)
{
    uint8_t right[WORD];
    size_t wrong = 0;

    memcpy(right, &word, WORD);
    for (size_t i = 0; i < length; i++) {
        wrong += bytes[i] != right[i];
    }
    return wrong;
}

bool
yb_kv_check(const uint8_t key[YB_KV_KEY_BYTES], uint32_t part, const void *given, size_t length,
            size_t *wrong_out)
{
    const uint8_t *bytes = given;
    uint64_t seed = seed_of(key, part);
    size_t wrong = 0;

    for (; length >= WORD; bytes += WORD, length -= WORD, seed += GOLDEN) {
        uint64_t word;

        memcpy(&word, bytes, WORD);
        if (word != mix(seed)) {
            wrong += count_wrong(bytes, mix(seed), WORD);
        }
    }
    wrong += count_wrong(bytes, mix(seed), length);
    if (wrong_out != NULL) {
        *wrong_out = wrong;
    }
    return wrong == 0;
}

void
yb_kv_tail_key(const uint32_t *tokens, uint32_t count, const char *salt,
               uint8_t key_out[YB_KV_KEY_BYTES])
{
    char tail[SALT_BYTES];

    (void)snprintf(tail, sizeof(tail), "tail %s", salt);
    YB_ASSERT(yb_key_chain(tokens, count, count, tail, (uint8_t(*)[YB_KV_KEY_BYTES])key_out, 1) ==
              1);
}

uint32_t
yb_kv_token(const uint8_t key[YB_KV_KEY_BYTES], uint32_t index, uint32_t vocabulary)
{
    return (uint32_t)(mix(seed_of(key, TOKEN_PART) + index * GOLDEN) % vocabulary);
}
