/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.h -- the bytes of a KV cache, as a pure function of the tokens that they stand for.
 *
 * A real engine computes them; the stand-in makes them from the key of their block, which names all
 * tokens up to the block's end (yb_key_chain). So whoever receives a block can say of each byte
 * whether it is the right one, without having computed anything: no block is taken for another, no
 * layer for another, nothing is shifted, cut or old.
 *
 *     word i of a part = mix(key, part, i)        little-endian, the last one cut
 *
 * Threads   Any; pure.
 */
#ifndef YB_ENGINE_KV_H
#define YB_ENGINE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YB_KV_KEY_BYTES 16u

/* Write the bytes of `part` (a group of layers) of the block that `key` names. */
void yb_kv_fill(const uint8_t key[YB_KV_KEY_BYTES], uint32_t part, void *out, size_t length);

/* Return whether `bytes` are those. If not, *wrong_out (may be NULL) is how many differ. */
bool yb_kv_check(const uint8_t key[YB_KV_KEY_BYTES], uint32_t part, const void *bytes,
                 size_t length, size_t *wrong_out);

/* Name the tokens of a last block that is not full: like a chain whose one block has all `count`
 * tokens, with a salt of its own. */
void yb_kv_tail_key(const uint32_t *tokens, uint32_t count, const char *salt,
                    uint8_t key_out[YB_KV_KEY_BYTES]);

/* Return the token that the stand-in answers behind the block that `key` names, as its `index`th:
 * below `vocabulary`, and the same wherever it is computed. */
uint32_t yb_kv_token(const uint8_t key[YB_KV_KEY_BYTES], uint32_t index, uint32_t vocabulary);

#endif /* YB_ENGINE_KV_H */
