/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTTP request through libcurl, which signs it (CURLOPT_AWS_SIGV4). The hash of the body is
 * ours to send: libcurl does not, and services insist on it.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "net/curl.h"
#include "tier/object/s3_internal.h"

/* Numbers of libcurl's stable interface, whose headers are not needed to build us. */
#define OPTION_WRITE_DATA   10001
#define OPTION_URL          10002
#define OPTION_RANGE        10007
#define OPTION_READ_DATA    10009
#define OPTION_ERROR        10010
#define OPTION_POST_FIELDS  10015
#define OPTION_HEADERS      10023
#define OPTION_HEADER_DATA  10029
#define OPTION_METHOD       10036
#define OPTION_CA_FILE      10065
#define OPTION_PRIVATE      10103
#define OPTION_SEEK_DATA    10168
#define OPTION_USER         10173
#define OPTION_PASSWORD     10174
#define OPTION_NO_PROXY     10177
#define OPTION_SIGV4        10305
#define OPTION_NO_BODY      44
#define OPTION_UPLOAD       46
#define OPTION_HTTP_VERSION 84
#define OPTION_BUFFER       98
#define OPTION_NO_SIGNAL    99
#define OPTION_TIMEOUT_MS   155
#define OPTION_CONNECT_MS   156
#define OPTION_PROTOCOLS    181
#define OPTION_EXPECT_MS    227
#define OPTION_UP_BUFFER    280
#define OPTION_WRITE        20011
#define OPTION_READ         20012
#define OPTION_HEADER       20079
#define OPTION_SEEK         20167
#define OPTION_BODY_SIZE    30115
#define OPTION_POST_SIZE    30120
#define PROTOCOLS           3L /* http and https. */
#define HTTP_1_1            2L
#define BUFFER_BYTES        (64L << 10) /* Larger ones libcurl gets from the kernel each time. */
#define INFO_FIRST_BYTE     0x600036
#define INFO_TOTAL          0x600032
#define VERSION_WANTED      0x075600u /* 7.86: it signs the heads that are ours. */
#define CONNECT_MS          5000L

#define RESULT_NO_PROXY  5
#define RESULT_NO_HOST   6
#define RESULT_NOBODY    7
#define RESULT_PARTIAL   18
#define RESULT_WRITE     23
#define RESULT_READ      26
#define RESULT_TIMED_OUT 28
#define RESULT_TLS       35
#define RESULT_NOTHING   52
#define RESULT_SEND      55
#define RESULT_RECEIVE   56
#define RESULT_PEER      60
#define RESULT_CA        77

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- the library ----------------------------------------------------------------------------- */

bool
yb_object_s3_load(struct s3_curl *curl, char why_out[YB_OBJECT_WHY_BYTES])
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"curl_easy_init", &curl->easy_init},
        {"curl_easy_reset", &curl->easy_reset},
        {"curl_easy_setopt", &curl->easy_setopt},
        {"curl_easy_getinfo", &curl->easy_getinfo},
        {"curl_easy_cleanup", &curl->easy_cleanup},
        {"curl_easy_strerror", &curl->easy_strerror},
        {"curl_slist_append", &curl->slist_append},
        {"curl_slist_free_all", &curl->slist_free_all},
        {"curl_multi_init", &curl->multi_init},
        {"curl_multi_setopt", &curl->multi_setopt},
        {"curl_multi_add_handle", &curl->multi_add_handle},
        {"curl_multi_remove_handle", &curl->multi_remove_handle},
        {"curl_multi_perform", &curl->multi_perform},
        {"curl_multi_poll", &curl->multi_poll},
        {"curl_multi_wakeup", &curl->multi_wakeup},
        {"curl_multi_info_read", &curl->multi_info_read},
        {"curl_multi_cleanup", &curl->multi_cleanup},
        {"curl_version_info", &curl->version_info},
    };
    void *library = dlopen(YB_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool loaded = library != NULL;
    struct {
        int age;
        const char *version;
        unsigned number;
    } * version; /* How the struct begins. */

    for (size_t i = 0; loaded && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(library, symbols[i].name);

        loaded = symbol != NULL;
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    if (library != NULL) {
        (void)dlclose(library); /* Of the count alone. */
    }
    if (!loaded) {
        (void)snprintf(why_out, YB_OBJECT_WHY_BYTES,
                       "S3 is spoken with libcurl, and " YB_CURL_LIBRARY
                       " is not here; install it (Debian: libcurl4)");
        return false;
    }
    version = curl->version_info(0);
    if (version->number < VERSION_WANTED) {
        (void)snprintf(why_out, YB_OBJECT_WHY_BYTES,
                       "S3 wants a libcurl of 7.86 or later, and this one is %.40s; install a "
                       "later one",
                       version->version);
        return false;
    }
    return true;
}

/* ---- what libcurl calls ---------------------------------------------------------------------- */

static bool
keep_text(struct s3_transfer *transfer, const char *bytes, size_t length)
{
    if (transfer->text_used + length > transfer->text_room) {
        size_t room = transfer->text_room * 2;
        char *longer;

        if (transfer->request->verb != YB_OBJECT_LIST || transfer->code != 200 ||
            transfer->text_room >= S3_PAGE_BYTES) {
            return transfer->code != 200; /* The begin of a complaint is enough. */
        }
        while (room < transfer->text_used + length) {
            room *= 2;
        }
        longer = realloc(transfer->text == transfer->inline_text ? NULL : transfer->text, room);
        if (longer == NULL) {
            return false;
        }
        if (transfer->text == transfer->inline_text) {
            memcpy(longer, transfer->text, transfer->text_used);
        }
        transfer->text = longer;
        transfer->text_room = room;
    }
    memcpy(transfer->text + transfer->text_used, bytes, length);
    transfer->text_used += length;
    return true;
}

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *context)
{
    struct s3_transfer *transfer = context;
    size_t length = size * count;
    bool object =
        transfer->request->verb == YB_OBJECT_GET &&
        (transfer->code == 206 || (transfer->code == 200 && transfer->request->offset == 0));

    if (!object) {
        return keep_text(transfer, bytes, length) ? length : length + 1;
    }
    if (transfer->moved + length > transfer->expected) {
        transfer->misfit = true;
        return length + 1; /* Which ends it. */
    }
    (void)yb_object_bytes_write(&transfer->request->bytes, transfer->moved, bytes, length);
    transfer->moved += length;
    if (transfer->request->came != NULL) {
        transfer->request->came(transfer->request, transfer->moved);
    }
    return length;
}

static size_t
on_wanted(char *to, size_t size, size_t count, void *context)
{
    struct s3_transfer *transfer = context;
    uint64_t left = transfer->bytes - transfer->moved;
    size_t length = size * count < left ? size * count : (size_t)left;

    (void)yb_object_bytes_read(&transfer->request->bytes, transfer->from + transfer->moved, to,
                               length);
    transfer->moved += length;
    return length;
}

/* A connection that had gone stale: once more from the start, on another. */
static int
on_seek(void *context, int64_t offset, int origin)
{
    struct s3_transfer *transfer = context;

    if (origin != 0 || offset < 0 || (uint64_t)offset > transfer->bytes) {
        return 1;
    }
    transfer->moved = (uint64_t)offset;
    return 0;
}

static bool
is_named(const char *line, size_t length, const char *name, const char **value_out)
{
    size_t named = strlen(name);

    if (length <= named || strncasecmp(line, name, named) != 0 || line[named] != ':') {
        return false;
    }
    *value_out = line + named + 1;
    while (**value_out == ' ') {
        (*value_out)++;
    }
    return true;
}

/* The value without its quotes, if it fits. */
static void
keep_value(char *to, size_t size, const char *value, const char *end)
{
    size_t used = 0;

    for (; value < end && *value != '\r' && *value != '\n' && used + 1 < size; value++) {
        if (*value != '"') {
            to[used++] = *value;
        }
    }
    to[used] = '\0';
}

static size_t
on_header(char *line, size_t size, size_t count, void *context)
{
    struct s3_transfer *transfer = context;
    size_t length = size * count;
    const char *value = NULL;
    char text[80];

    if (length > 12 && strncmp(line, "HTTP/", 5) == 0) {
        keep_value(text, sizeof(text), line, line + length);
        value = strchr(text, ' ');
        transfer->code = value == NULL ? 0 : strtol(value, NULL, 10);
    } else if (is_named(line, length, "etag", &value)) {
        keep_value(transfer->etag, sizeof(transfer->etag), value, line + length);
    } else if (is_named(line, length, "x-amz-checksum-crc32c", &value)) {
        keep_value(transfer->sum, sizeof(transfer->sum), value, line + length);
    } else if (is_named(line, length, "content-length", &value)) {
        keep_value(text, sizeof(text), value, line + length);
        transfer->total = strtoull(text, NULL, 10);
    } else if (is_named(line, length, "content-range", &value)) {
        keep_value(text, sizeof(text), value, line + length);
        value = strchr(text, '/');
        transfer->total = value == NULL ? 0 : strtoull(value + 1, NULL, 10);
    } else if (is_named(line, length, "retry-after", &value)) {
        keep_value(text, sizeof(text), value, line + length);
        transfer->wait_s = (uint32_t)strtoul(text, NULL, 10);
        transfer->wait_s = transfer->wait_s > 60 ? 60 : transfer->wait_s;
    }
    return length;
}

/* ---- one request ----------------------------------------------------------------------------- */

/* Write `text` as a value of a query: the signature wants every other letter as %XX. */
static void
escape(const char *text, char *out, size_t size)
{
    if (yb_curl_escape(text, false, out, size) != YB_OK) {
        out[0] = '\0'; /* A token beyond all bounds: the service refuses. */
    }
}

/* The parameters of a query stand in the order of their names. */
static void
make_url(const struct s3_transfer *transfer, char url_out[S3_URL_BYTES])
{
    const struct s3_backend *s3 = transfer->s3;
    const struct yb_object_request *request = transfer->request;
    char token[3 * YB_OBJECT_TOKEN_BYTES / 2], prefix[1024], all[512];
    bool lists = request->verb == YB_OBJECT_LIST || request->verb == YB_OBJECT_TRY;
    size_t used;

    if (lists) {
        escape(request->cursor == NULL ? "" : request->cursor, token, sizeof(token));
        (void)snprintf(all, sizeof(all), "%s%s", s3->settings.prefix, request->name);
        escape(all, prefix, sizeof(prefix));
        (void)snprintf(url_out, S3_URL_BYTES, "%s%s?%s%s%slist-type=2&max-keys=%u&prefix=%s",
                       s3->base, s3->settings.host_style ? "/" : "",
                       token[0] == '\0' ? "" : "continuation-token=", token,
                       token[0] == '\0' ? "" : "&",
                       request->verb == YB_OBJECT_TRY ? 1 : request->entries_max, prefix);
        return;
    }
    used = (size_t)snprintf(url_out, S3_URL_BYTES, "%s/%s%s", s3->base, s3->settings.prefix,
                            request->name);
    escape(transfer->upload, token, sizeof(token));
    switch (transfer->phase) {
    case S3_BEGIN: (void)snprintf(url_out + used, S3_URL_BYTES - used, "?uploads="); break;
    case S3_PART:
        (void)snprintf(url_out + used, S3_URL_BYTES - used, "?partNumber=%u&uploadId=%s",
                       transfer->part + 1, token);
        break;
    case S3_COMPLETE:
    case S3_ABORT:
        (void)snprintf(url_out + used, S3_URL_BYTES - used, "?uploadId=%s", token);
        break;
    default: break;
    }
}

static bool
add_header(struct s3_transfer *transfer, const char *name, const char *value)
{
    const struct s3_curl *curl = &transfer->s3->curl;
    char line[S3_HEADER_BYTES];
    void *longer;

    (void)snprintf(line, sizeof(line), "%s: %s", name, value);
    longer = curl->slist_append(transfer->headers, line);
    explicit_bzero(line, sizeof(line));
    transfer->headers = longer == NULL ? transfer->headers : longer;
    return longer != NULL;
}

static bool
make_headers(struct s3_transfer *transfer, bool sends)
{
    const struct s3_backend *s3 = transfer->s3;
    const char *hash = !sends                        ? EMPTY_SHA256
                       : transfer->phase == S3_WHOLE ? transfer->hashes[0]
                                                     : transfer->hashes[transfer->part];

    if (transfer->phase == S3_COMPLETE) {
        hash = "UNSIGNED-PAYLOAD"; /* What it says is checked by what comes of it. */
    }
    return add_header(transfer, "x-amz-content-sha256", hash) &&
           (s3->settings.token[0] == '\0' ||
            add_header(transfer, "x-amz-security-token", s3->settings.token)) &&
           (!sends || add_header(transfer, "Content-Type", "application/octet-stream")) &&
           (!sends || transfer->phase != S3_WHOLE || transfer->bytes == 0 ||
            add_header(transfer, "x-amz-checksum-crc32c", transfer->crc));
}

/* The list of the parts, at the end of an upload. */
static void
make_list(struct s3_transfer *transfer)
{
    size_t room = sizeof(transfer->list);
    size_t used = (size_t)snprintf(transfer->list, room, "<CompleteMultipartUpload>");

    for (uint32_t i = 0; i < transfer->parts; i++) {
        used += (size_t)snprintf(transfer->list + used, room - used,
                                 "<Part><PartNumber>%u</PartNumber><ETag>\"%s\"</ETag></Part>",
                                 i + 1, transfer->etags[i]);
    }
    used += (size_t)snprintf(transfer->list + used, room - used, "</CompleteMultipartUpload>");
    YB_ASSERT(used < room);
    transfer->list_used = used;
}

static int
prepare_common(struct s3_transfer *transfer, const char *url)
{
    const struct s3_backend *s3 = transfer->s3;
    const struct s3_curl *curl = &s3->curl;
    void *easy = transfer->easy;
    char sigv4[96];
    int result;

    (void)snprintf(sigv4, sizeof(sigv4), "aws:amz:%s:s3", s3->settings.region);
    result = curl->easy_setopt(easy, OPTION_NO_SIGNAL, 1L);
    result |= curl->easy_setopt(easy, OPTION_URL, url);
    result |= curl->easy_setopt(easy, OPTION_PROTOCOLS, PROTOCOLS);
    result |= curl->easy_setopt(easy, OPTION_HTTP_VERSION, HTTP_1_1);
    result |= curl->easy_setopt(easy, OPTION_NO_PROXY, "*");
    result |= curl->easy_setopt(easy, OPTION_SIGV4, sigv4);
    result |= curl->easy_setopt(easy, OPTION_USER, s3->settings.key);
    result |= curl->easy_setopt(easy, OPTION_PASSWORD, s3->settings.secret);
    result |= curl->easy_setopt(easy, OPTION_CONNECT_MS, CONNECT_MS);
    result |= curl->easy_setopt(easy, OPTION_EXPECT_MS, 1L); /* It need not say "go on". */
    result |= curl->easy_setopt(easy, OPTION_BUFFER, BUFFER_BYTES);
    result |= curl->easy_setopt(easy, OPTION_UP_BUFFER, BUFFER_BYTES);
    result |= curl->easy_setopt(easy, OPTION_ERROR, transfer->error);
    result |= curl->easy_setopt(easy, OPTION_PRIVATE, transfer);
    result |= curl->easy_setopt(easy, OPTION_WRITE, on_bytes);
    result |= curl->easy_setopt(easy, OPTION_WRITE_DATA, transfer);
    result |= curl->easy_setopt(easy, OPTION_HEADER, on_header);
    result |= curl->easy_setopt(easy, OPTION_HEADER_DATA, transfer);
    if (s3->settings.ca_file[0] != '\0') {
        result |= curl->easy_setopt(easy, OPTION_CA_FILE, s3->settings.ca_file);
    }
    return result;
}

static int
prepare_verb(struct s3_transfer *transfer)
{
    const struct s3_curl *curl = &transfer->s3->curl;
    const struct yb_object_request *request = transfer->request;
    void *easy = transfer->easy;
    char range[64];
    int result = 0;

    if (transfer->phase == S3_COMPLETE || transfer->phase == S3_BEGIN) {
        result |= curl->easy_setopt(easy, OPTION_POST_SIZE, (int64_t)transfer->list_used);
        result |= curl->easy_setopt(easy, OPTION_POST_FIELDS, transfer->list);
    } else if (request->verb == YB_OBJECT_DELETE || transfer->phase == S3_ABORT) {
        result |= curl->easy_setopt(easy, OPTION_METHOD, "DELETE");
    } else if (request->verb == YB_OBJECT_HEAD) {
        result |= curl->easy_setopt(easy, OPTION_NO_BODY, 1L);
    } else if (request->verb == YB_OBJECT_GET && !request->whole) {
        (void)snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, request->offset,
                       request->offset + transfer->expected - 1);
        result |= curl->easy_setopt(easy, OPTION_RANGE, range);
    } else if (request->verb == YB_OBJECT_PUT) {
        result |= curl->easy_setopt(easy, OPTION_UPLOAD, 1L);
        result |= curl->easy_setopt(easy, OPTION_BODY_SIZE, (int64_t)transfer->bytes);
        result |= curl->easy_setopt(easy, OPTION_READ, on_wanted);
        result |= curl->easy_setopt(easy, OPTION_READ_DATA, transfer);
        result |= curl->easy_setopt(easy, OPTION_SEEK, on_seek);
        result |= curl->easy_setopt(easy, OPTION_SEEK_DATA, transfer);
    }
    return result;
}

bool
yb_object_s3_prepare(struct s3_transfer *transfer)
{
    const struct s3_curl *curl = &transfer->s3->curl;
    const struct yb_object_request *request = transfer->request;
    uint64_t now = yb_clock_now(yb_loop_clock(transfer->s3->loop));
    uint64_t left_ms =
        request->deadline_ns <= now ? 1 : (request->deadline_ns - now) / YB_NS_PER_MS + 1;
    bool sends = request->verb == YB_OBJECT_PUT &&
                 (transfer->phase == S3_WHOLE || transfer->phase == S3_PART);
    char url[S3_URL_BYTES];
    int result;

    transfer->code = 0;
    transfer->moved = 0;
    transfer->misfit = false;
    transfer->total = 0;
    transfer->wait_s = 0;
    transfer->etag[0] = transfer->sum[0] = transfer->error[0] = '\0';
    transfer->text_used = transfer->list_used = 0;
    transfer->expected = request->verb == YB_OBJECT_GET ? yb_object_bytes_sum(&request->bytes) : 0;
    if (transfer->phase == S3_COMPLETE) {
        make_list(transfer);
    }
    curl->easy_reset(transfer->easy);
    curl->slist_free_all(transfer->headers);
    transfer->headers = NULL;
    make_url(transfer, url);
    if (!make_headers(transfer, sends)) {
        return false;
    }
    result = prepare_common(transfer, url);
    result |= prepare_verb(transfer);
    result |= curl->easy_setopt(transfer->easy, OPTION_HEADERS, transfer->headers);
    result |= curl->easy_setopt(transfer->easy, OPTION_TIMEOUT_MS,
                                (long)(left_ms > INT32_MAX ? INT32_MAX : left_ms));
    return result == 0;
}

/* ---- what came of it ------------------------------------------------------------------------- */

struct verdict {
    enum yb_status status;
    bool aside;
    const char *remedy;
};

/* Of an error that the service has a word for. */
static struct verdict
verdict_of(long code, const char *word)
{
    static const struct {
        const char *word;
        struct verdict verdict;
    } words[] = {
        {"NoSuchBucket",
         {YB_REFUSED, true, "create the bucket there, or name another in the s3:// URL"}},
        {"SignatureDoesNotMatch",
         {YB_DENIED, true,
          "the secret is not that of the key: see AWS_SECRET_ACCESS_KEY, or "
          "~/.aws/credentials; and see that the clocks agree"}},
        {"InvalidAccessKeyId",
         {YB_DENIED, true, "the service knows no such key: see AWS_ACCESS_KEY_ID"}},
        {"ExpiredToken",
         {YB_DENIED, true, "the credentials have run out; get others, and restart"}},
        {"RequestTimeTooSkewed", {YB_DENIED, true, "the clocks differ: set this machine's"}},
        {"AccessDenied",
         {YB_DENIED, true, "give the key the right to list, read, write and delete there"}},
        {"PermanentRedirect", {YB_REFUSED, true, "the bucket is elsewhere: set region="}},
        {"AuthorizationHeaderMalformed",
         {YB_REFUSED, true, "the bucket is in another region: set region="}},
        {"SlowDown", {YB_BUSY, false, "it asks to be left alone for a while"}},
        {"BadDigest", {YB_PEER_LOST, false, "what came there is not what was sent"}},
        {"XAmzContentSHA256Mismatch",
         {YB_PEER_LOST, false, "what came there is not what was sent"}},
        {"QuotaExceeded", {YB_NO_SPACE, false, "the bucket is full: raise its quota"}},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i].word) == 0) {
            return words[i].verdict;
        }
    }
    switch (code) {
    case 404: return (struct verdict){YB_NOT_FOUND, false, "there is no such object"};
    case 403: return (struct verdict){YB_DENIED, true, "see the key, its secret and its rights"};
    case 416: return (struct verdict){YB_CORRUPT, false, "an object is too short"};
    case 429:
    case 503: return (struct verdict){YB_BUSY, false, "it asks to be left alone for a while"};
    case 507: return (struct verdict){YB_NO_SPACE, false, "the service is full"};
    default: break;
    }
    if (code >= 500 || code == 408) {
        return (struct verdict){YB_IO, false, "the service fails: see its log"};
    }
    return (struct verdict){YB_REFUSED, true, "is this an S3 service, and the right one?"};
}

static enum yb_status
judge_code(struct s3_transfer *transfer)
{
    struct yb_object_request *request = transfer->request;
    char word[64] = "", message[160] = "";
    struct verdict verdict;

    if (transfer->text_used > 0) {
        (void)!yb_object_xml_text(transfer->text, transfer->text_used, "Code", word, sizeof(word));
        (void)!yb_object_xml_text(transfer->text, transfer->text_used, "Message", message,
                                  sizeof(message));
    }
    verdict = verdict_of(transfer->code, word);
    if (verdict.status == YB_NOT_FOUND && request->verb == YB_OBJECT_DELETE) {
        return YB_OK;
    }
    request->aside = verdict.aside;
    request->wait_hint_ms = transfer->wait_s * 1000;
    (void)snprintf(request->why, sizeof(request->why), "%.100s answers %ld %.40s: %s",
                   transfer->s3->base, transfer->code, word, verdict.remedy);
    return verdict.status;
}

static enum yb_status
judge_result(struct s3_transfer *transfer, int result)
{
    struct yb_object_request *request = transfer->request;
    enum yb_status status = YB_IO;
    const char *remedy = "";

    switch (result) {
    case RESULT_NO_PROXY:
    case RESULT_NO_HOST:
    case RESULT_NOBODY:
        status = YB_UNREACHABLE;
        remedy = "; is the service up, and endpoint= right?";
        break;
    case RESULT_TLS:
    case RESULT_PEER:
    case RESULT_CA:
        status = YB_DENIED;
        request->aside = true;
        remedy = "; trust its certificate with ca=FILE, or mend it";
        break;
    case RESULT_TIMED_OUT: status = YB_TIMED_OUT; break;
    case RESULT_PARTIAL:
    case RESULT_NOTHING:
    case RESULT_SEND:
    case RESULT_READ:
    case RESULT_RECEIVE: status = YB_PEER_LOST; break;
    default: break;
    }
    if (status != YB_UNREACHABLE) {
        request->sent = request->sent || request->verb == YB_OBJECT_PUT;
    }
    (void)snprintf(request->why, sizeof(request->why), "%.100s: %.120s%s", transfer->s3->base,
                   transfer->error[0] != '\0' ? transfer->error
                                              : transfer->s3->curl.easy_strerror(result),
                   remedy);
    return status;
}

enum yb_status
yb_object_s3_judge(struct s3_transfer *transfer, int result)
{
    struct yb_object_request *request = transfer->request;
    const struct s3_curl *curl = &transfer->s3->curl;
    int64_t first_us = 0, total_us = 0;

    (void)curl->easy_getinfo(transfer->easy, INFO_FIRST_BYTE, &first_us);
    (void)curl->easy_getinfo(transfer->easy, INFO_TOTAL, &total_us);
    request->first_byte_ns = (uint64_t)first_us * YB_NS_PER_US;
    request->total_ns = (uint64_t)total_us * YB_NS_PER_US;
    request->object_bytes = transfer->total;
    if (result != 0 && !transfer->misfit) {
        return judge_result(transfer, result);
    }
    if (transfer->code < 200 || transfer->code > 299) {
        return judge_code(transfer);
    }
    if (transfer->misfit ||
        (request->verb == YB_OBJECT_GET && transfer->moved != transfer->expected)) {
        (void)snprintf(request->why, sizeof(request->why),
                       "%.100s: an object is of a wrong length: %.80s", transfer->s3->base,
                       request->name);
        return YB_CORRUPT;
    }
    return YB_OK;
}
