/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums are kept as other programs print them: inverted before and after. Inside, a sum is a
 * polynomial over GF(2) modulo the Castagnoli polynomial with the bits reflected, so that the
 * highest bit is the coefficient of x^0.
 */
#include "base/crc32c.h"

#ifdef YB_HAVE_ISAL
#include <isa-l.h>
#endif
#include <limits.h>
#include <string.h>

#include "base/check.h"

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, reflected. */
#define ONE        0x80000000u /* x^0 */
#define X_TO_8     0x00800000u /* x^8: one byte of zeroes. */

/* Slice-by-8 (Kounavis and Berry, "Novel Table Lookup-Based Algorithms for High-Performance CRC
 * Generation", 2008): row k, column n is the sum of byte n followed by k zero bytes. The sum is
 * linear in n, so a row follows from its eight columns that are powers of two. */
#define PICK(n, bit, value) ((((n) >> (bit)) & 1u) * (value))
#define CELL(n, a, b, c, d, e, f, g, h)                                              \
    (PICK(n, 0, a) ^ PICK(n, 1, b) ^ PICK(n, 2, c) ^ PICK(n, 3, d) ^ PICK(n, 4, e) ^ \
     PICK(n, 5, f) ^ PICK(n, 6, g) ^ PICK(n, 7, h))
#define CELLS_4(n, ...)                                                               \
    CELL((n), __VA_ARGS__), CELL((n) + 1u, __VA_ARGS__), CELL((n) + 2u, __VA_ARGS__), \
        CELL((n) + 3u, __VA_ARGS__)
#define CELLS_16(n, ...)                                                                     \
    CELLS_4(n, __VA_ARGS__), CELLS_4((n) + 4u, __VA_ARGS__), CELLS_4((n) + 8u, __VA_ARGS__), \
        CELLS_4((n) + 12u, __VA_ARGS__)
#define CELLS_64(n, ...)                                                                          \
    CELLS_16(n, __VA_ARGS__), CELLS_16((n) + 16u, __VA_ARGS__), CELLS_16((n) + 32u, __VA_ARGS__), \
        CELLS_16((n) + 48u, __VA_ARGS__)
#define SLICE(...)                                                                      \
    CELLS_64(0u, __VA_ARGS__), CELLS_64(64u, __VA_ARGS__), CELLS_64(128u, __VA_ARGS__), \
        CELLS_64(192u, __VA_ARGS__)

/* clang-format off */
static const uint32_t slices[8][256] = {
    {SLICE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf,
           0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78)},
    {SLICE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8,
           0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9)},
    {SLICE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5,
           0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743)},
    {SLICE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6,
           0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f)},
    {SLICE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91,
           0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c)},
    {SLICE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f,
           0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6)},
    {SLICE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53,
           0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4)},
    {SLICE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da,
           0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664)},
};
/* clang-format on */

static uint32_t
load_le32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

uint32_t
yb_crc32c_update_portable(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *bytes = data;

    YB_ASSERT(data != NULL || length == 0);
    crc = ~crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint32_t low = crc ^ load_le32(bytes);
        uint32_t high = load_le32(bytes + 4);

        crc = slices[7][low & 0xff] ^ slices[6][(low >> 8) & 0xff] ^ slices[5][(low >> 16) & 0xff] ^
              slices[4][low >> 24] ^ slices[3][high & 0xff] ^ slices[2][(high >> 8) & 0xff] ^
              slices[1][(high >> 16) & 0xff] ^ slices[0][high >> 24];
    }
    for (; length > 0; bytes++, length--) {
        crc = (crc >> 8) ^ slices[0][(crc ^ *bytes) & 0xff];
    }
    return ~crc;
}

#ifdef YB_HAVE_ISAL

/* ISA-L counts in int: longer inputs go in pieces. */
#define PIECE_BYTES_MAX ((size_t)1 << 30)

_Static_assert(PIECE_BYTES_MAX <= INT_MAX, "a piece fits an int");

uint32_t
yb_crc32c_update(uint32_t crc, const void *data, size_t length)
{
    /* ISA-L forgot a const; it only reads. */
    uint8_t *bytes = (uint8_t *)(uintptr_t)data;

    YB_ASSERT(data != NULL || length == 0);
    crc = ~crc;
    while (length > 0) {
        size_t piece = length < PIECE_BYTES_MAX ? length : PIECE_BYTES_MAX;

        crc = crc32_iscsi(bytes, (int)piece, crc);
        bytes += piece;
        length -= piece;
    }
    return ~crc;
}

const char *
yb_crc32c_backend(void)
{
    return "isa-l";
}

#else

uint32_t
yb_crc32c_update(uint32_t crc, const void *data, size_t length)
{
    return yb_crc32c_update_portable(crc, data, length);
}

const char *
yb_crc32c_backend(void)
{
    return "portable";
}

#endif

uint32_t
yb_crc32c(const void *data, size_t length)
{
    return yb_crc32c_update(0, data, length);
}

/* Return a * b modulo the polynomial. */
static uint32_t
multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = ONE; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) {
            product ^= b;
        }
        b = (b >> 1) ^ ((b & 1u) * POLYNOMIAL); /* b * x */
    }
    return product;
}

/* The sum of a followed by |b| zeroes is crc_a * x^(8 |b|); the inversions before and after cancel
 * out in the exclusive or (M. Adler's crc32_combine in zlib 1.2.12, there for another polynomial).
 * The power is made by squaring. */
uint32_t
yb_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b)
{
    uint32_t power = ONE;
    uint32_t square = X_TO_8;

    for (; length_b != 0; length_b >>= 1) {
        if ((length_b & 1u) != 0) {
            power = multiply(power, square);
        }
        square = multiply(square, square);
    }
    return multiply(power, crc_a) ^ crc_b;
}
