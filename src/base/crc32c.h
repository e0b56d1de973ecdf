/* SPDX-License-Identifier: Apache-2.0
 *
 * crc32c.h -- the checksum of bytes on the wire, in memory and on disk.
 *
 * CRC-32C (Castagnoli, RFC 3720 appendix B.4): it finds every burst of up to 32 wrong bits and
 * every three wrong bits in a 64 KiB chunk, and processors compute it at memory speed. It is no
 * defence against forgery.
 *
 * Sums combine: chunks may be summed in any order, by whoever copies them, and the sum of the
 * whole follows from the sums and lengths of the parts.
 *
 * Invariants
 *   C1  update(update(0, a), b) == update(0, ab) == combine(update(0, a), update(0, b), |b|).
 *   C2  The accelerated and the portable code give the same sum.
 *
 * Threads   Any function, any thread; no state.
 */
#ifndef YB_BASE_CRC32C_H
#define YB_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Return the sum of the bytes whose sum was `crc` (0: none yet) followed by `length` more. */
uint32_t yb_crc32c_update(uint32_t crc, const void *data, size_t length);

/* Return the sum of `length` bytes. */
uint32_t yb_crc32c(const void *data, size_t length);

/* Return the sum of a followed by b, from their sums and the length of b, which may be anything
 * up to 2^64 - 1: O(log length_b). */
uint32_t yb_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b);

/* The portable form of yb_crc32c_update(), for comparison. */
uint32_t yb_crc32c_update_portable(uint32_t crc, const void *data, size_t length);

/* Return what yb_crc32c_update() uses: "isa-l" or "portable". Static string. */
const char *yb_crc32c_backend(void);

#endif /* YB_BASE_CRC32C_H */
