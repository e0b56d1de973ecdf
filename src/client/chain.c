/* SPDX-License-Identifier: Apache-2.0
 *
 * Names for the blocks of a sequence of tokens.
 *
 * The chain (it never changes: stored blocks are found by these names)
 *
 *     H(kind, message)  BLAKE2b with 16 bytes of output, no key, the personalisation
 *                       "yuebing chain v1", and a salt of `kind` and 15 zero bytes
 *     root              H(0, the bytes of the salt text, without its NUL)
 *     key 0             H(1, root, tokens of block 0)
 *     key i             H(1, key i - 1, tokens of block i)
 *
 * Tokens are 32-bit little-endian numbers. The kind keeps a salt from being taken for a block.
 */
#include <sodium.h>
#include <string.h>

#include "base/check.h"
#include "yuebing/client.h"

#define KEY_BYTES 16u
#define CHUNK     256u /* Tokens that are turned into bytes at a time. */

static const uint8_t personal[crypto_generichash_blake2b_PERSONALBYTES + 1] = "yuebing chain v1";

static void
begin(crypto_generichash_blake2b_state *state, uint8_t kind)
{
    uint8_t salt[crypto_generichash_blake2b_SALTBYTES] = {kind};

    YB_ASSERT(crypto_generichash_blake2b_init_salt_personal(state, NULL, 0, KEY_BYTES, salt,
                                                            personal) == 0);
}

static void
add(crypto_generichash_blake2b_state *state, const void *bytes, size_t length)
{
    YB_ASSERT(crypto_generichash_blake2b_update(state, bytes, length) == 0);
}

static void
add_tokens(crypto_generichash_blake2b_state *state, const uint32_t *tokens, uint32_t count)
{
    uint8_t bytes[CHUNK * 4];

    while (count > 0) {
        uint32_t some = count < CHUNK ? count : CHUNK;

        for (uint32_t i = 0; i < some; i++) {
            bytes[4 * i] = (uint8_t)tokens[i];
            bytes[4 * i + 1] = (uint8_t)(tokens[i] >> 8);
            bytes[4 * i + 2] = (uint8_t)(tokens[i] >> 16);
            bytes[4 * i + 3] = (uint8_t)(tokens[i] >> 24);
        }
        add(state, bytes, (size_t)some * 4);
        tokens += some;
        count -= some;
    }
}

uint32_t
yb_key_chain(const uint32_t *tokens, uint32_t count, uint32_t block_tokens, const char *salt,
             uint8_t (*keys_out)[16], uint32_t room)
{
    crypto_generichash_blake2b_state state;
    uint8_t parent[KEY_BYTES];
    uint32_t blocks = block_tokens == 0 ? 0 : count / block_tokens;

    blocks = blocks < room ? blocks : room;
    begin(&state, 0);
    add(&state, salt != NULL ? salt : "", salt != NULL ? strlen(salt) : 0);
    YB_ASSERT(crypto_generichash_blake2b_final(&state, parent, KEY_BYTES) == 0);
    for (uint32_t i = 0; i < blocks; i++) {
        begin(&state, 1);
        add(&state, parent, KEY_BYTES);
        add_tokens(&state, tokens + (size_t)i * block_tokens, block_tokens);
        YB_ASSERT(crypto_generichash_blake2b_final(&state, parent, KEY_BYTES) == 0);
        memcpy(keys_out[i], parent, KEY_BYTES);
    }
    return blocks;
}
