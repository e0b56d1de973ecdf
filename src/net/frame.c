/* SPDX-License-Identifier: Apache-2.0 */
#include "net/frame.h"

#include "base/check.h"
#include "base/crc32c.h"

/* Return what is wrong with the numbers of a header, NULL when nothing is. */
static const char *
judge(const struct yb_wire_frame_header *header, const struct yb_frame_limits *limits)
{
    bool reply = (header->flags & YB_WIRE_FRAME_FLAG_REPLY) != 0;

    if (header->class >= YB_CLASS_COUNT) {
        return "the frame's class is not in its table";
    }
    if ((header->flags & ~(unsigned)YB_WIRE_FRAME_FLAG_ALL) != 0) {
        return "the frame has unknown flags";
    }
    if ((header->flags & YB_WIRE_FRAME_FLAG_UNDECIDED) != 0 &&
        (!reply || (header->status != YB_AGAIN && header->status != YB_STALE))) {
        return "an undecided frame that is no reply with status AGAIN or STALE";
    }
    if (header->status > 0) {
        return "the frame's status is positive";
    }
    if (!reply && header->status != 0) {
        return "a request with a status";
    }
    if (!reply && header->deadline_us == 0) {
        return "a request without a deadline";
    }
    if (header->slot != 0 && header->operation == 0) {
        return "a slot without an operation";
    }
    if (reply && header->deadline_us != 0) {
        return "a reply with a deadline";
    }
    if (header->type == YB_WIRE_TYPE_VOID && (reply || header->data_bytes != 0)) {
        return "a void frame with data or the reply flag";
    }
    if (header->type == YB_WIRE_TYPE_CREDIT &&
        (reply || header->body_bytes != 0 || header->data_bytes != 0)) {
        return "a credit frame with a body, data or the reply flag";
    }
    if (header->body_bytes > limits->body_bytes_max) {
        return "the frame's body is longer than was announced";
    }
    if (header->data_bytes > limits->data_bytes_max) {
        return "the frame's data is longer than was announced";
    }
    return NULL;
}

/* Judge the first bytes of a header, as many as there are, by its magic. */
static bool
magic_fits(const uint8_t *bytes, size_t length)
{
    uint8_t magic[4];

    yb_wire_put_u32(magic, YB_WIRE_FRAME_MAGIC);
    return memcmp(bytes, magic, length < sizeof(magic) ? length : sizeof(magic)) == 0;
}

enum yb_frame_verdict
yb_frame_parse(const uint8_t *bytes, size_t length, const struct yb_frame_limits *limits,
               struct yb_wire_frame_header *header_out, const char **why_out)
{
    struct yb_wire_frame_header header;
    const char *why;

    YB_ASSERT(limits->data_bytes_max <= YB_WIRE_DATA_BYTES_MAX);
    if (length == 0) {
        return YB_FRAME_NEED_MORE;
    }
    if (!magic_fits(bytes, length)) {
        *why_out = "not a frame: the magic bytes are wrong";
        return YB_FRAME_BROKEN;
    }
    if (length < YB_FRAME_HEADER_BYTES) {
        return YB_FRAME_NEED_MORE;
    }
    yb_wire_frame_header_load(bytes, &header);
    if (header.header_crc != yb_crc32c(bytes, YB_WIRE_FRAME_HEADER_AT_HEADER_CRC)) { /* F1 */
        *why_out = "the frame header does not match its checksum";
        return YB_FRAME_BROKEN;
    }
    if (header.version != limits->version) {
        *why_out = "the frame has another version than the handshake chose";
        return YB_FRAME_BROKEN;
    }
    if (!yb_wire_zero(bytes + YB_WIRE_FRAME_HEADER_AT_RESERVED, 2)) {
        *why_out = "reserved bytes of the frame header are not zero";
        return YB_FRAME_BROKEN;
    }
    why = judge(&header, limits); /* F2, F3 */
    if (why != NULL) {
        *why_out = why;
        return YB_FRAME_BROKEN;
    }
    *header_out = header;
    return YB_FRAME_OK;
}

enum yb_status
yb_frame_build(const struct yb_wire_frame_header *header, const struct yb_frame_limits *limits,
               uint8_t out[YB_WIRE_FRAME_HEADER_BYTES])
{
    YB_ASSERT(limits->data_bytes_max <= YB_WIRE_DATA_BYTES_MAX);
    if (header->body_bytes > limits->body_bytes_max ||
        header->data_bytes > limits->data_bytes_max) {
        return YB_TOO_LARGE;
    }
    if (judge(header, limits) != NULL) {
        return YB_INVALID;
    }
    yb_wire_frame_header_store(header, out);
    out[YB_WIRE_FRAME_HEADER_AT_VERSION] = limits->version;
    yb_wire_put_u32(out + YB_WIRE_FRAME_HEADER_AT_HEADER_CRC,
                    yb_crc32c(out, YB_WIRE_FRAME_HEADER_AT_HEADER_CRC));
    return YB_OK;
}
