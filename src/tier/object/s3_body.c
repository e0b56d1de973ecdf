/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies: moved piece by piece, and hashed: SHA-256 for the signature, CRC32C for services that
 * compare it, MD5 for those that only tell their ETag.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/object/s3_internal.h"

#define STEP_BYTES ((size_t)32 << 10)

/* Feed bytes to a digest and a checksum, so little at a time that the second finds them warm. */
static void
feed_piece(const uint8_t *data, size_t length, EVP_MD_CTX *digest, uint32_t *crc)
{
    while (length > 0) {
        size_t part = length < STEP_BYTES ? length : STEP_BYTES;

        YB_ASSERT(EVP_DigestUpdate(digest, data, part) == 1);
        if (crc != NULL) {
            *crc = yb_crc32c_update(*crc, data, part);
        }
        data += part;
        length -= part;
    }
}

/* Feed a range of the bytes to a digest, a checksum, or both. */
static void
feed(const struct yb_object_bytes *bytes, uint64_t from, uint64_t length, EVP_MD_CTX *digest,
     uint32_t *crc)
{
    struct iovec piece;
    uint64_t begin = 0, end = from + length;

    for (uint32_t at = 0; begin < end && yb_object_piece(bytes, &at, &piece);) {
        uint64_t first = begin > from ? begin : from;
        uint64_t last = begin + piece.iov_len < end ? begin + piece.iov_len : end;

        if (first < last) {
            feed_piece((const uint8_t *)piece.iov_base + (first - begin), (size_t)(last - first),
                       digest, crc);
        }
        begin += piece.iov_len;
    }
}

/* The digest of a range in hexadecimal. */
static void
digest_hex(const EVP_MD *kind, const struct yb_object_request *request, uint64_t from,
           uint64_t length, uint32_t *crc, char *hex_out)
{
    uint8_t bytes[EVP_MAX_MD_SIZE];
    unsigned count = 0;
    EVP_MD_CTX *digest = EVP_MD_CTX_new();

    YB_ASSERT(digest != NULL && EVP_DigestInit_ex(digest, kind, NULL) == 1);
    feed(&request->bytes, from, length, digest, crc);
    YB_ASSERT(EVP_DigestFinal_ex(digest, bytes, &count) == 1);
    EVP_MD_CTX_free(digest);
    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(hex_out + 2ull * i, 3, "%02x", bytes[i]);
    }
}

static uint64_t
part_bytes(const struct s3_transfer *transfer, uint64_t total, uint32_t part)
{
    uint64_t each = transfer->s3->head.multipart_bytes;
    uint64_t from = each * part;

    return transfer->parts == 0 ? total : total - from < each ? total - from : each;
}

/* What the heads of the requests say of the body. */
void
yb_object_s3_hash(struct s3_transfer *transfer)
{
    const struct yb_object_request *request = transfer->request;
    uint64_t total = yb_object_bytes_sum(&request->bytes);
    uint32_t crc = 0, count = transfer->parts == 0 ? 1 : transfer->parts;
    uint8_t big[4];

    for (uint32_t i = 0; i < count; i++) {
        digest_hex(EVP_sha256(), request, transfer->s3->head.multipart_bytes * i,
                   part_bytes(transfer, total, i), &crc, transfer->hashes[i]);
    }
    for (uint32_t i = 0; i < 4; i++) {
        big[i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    (void)EVP_EncodeBlock((unsigned char *)transfer->crc, big, 4);
}

/* Whether an ETag is what it is of an object that was not encrypted: the MD5. One of another form
 * says nothing. */
static bool
etag_matches(const struct yb_object_request *request, const char *etag, uint64_t from,
             uint64_t length)
{
    char hex[2 * EVP_MAX_MD_SIZE + 1];

    if (strlen(etag) != 32 || strspn(etag, "0123456789abcdef") != 32) {
        return true;
    }
    digest_hex(EVP_md5(), request, from, length, NULL, hex);
    return strcmp(hex, etag) == 0;
}

bool
yb_object_s3_etags_match(const struct s3_transfer *transfer)
{
    const struct yb_object_request *request = transfer->request;
    uint64_t total = yb_object_bytes_sum(&request->bytes);
    bool match = true;

    if (transfer->parts == 0) {
        return etag_matches(request, transfer->etag, 0, total);
    }
    for (uint32_t i = 0; match && i < transfer->parts; i++) {
        match = etag_matches(request, transfer->etags[i], transfer->s3->head.multipart_bytes * i,
                             part_bytes(transfer, total, i));
    }
    return match;
}
