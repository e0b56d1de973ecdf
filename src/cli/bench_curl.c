/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_curl.h"

#include <dlfcn.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/config.h"
#include "cli/bench_tier.h"
#include "cli/measure.h"
#include "net/curl.h"
#include "tier/object/s3_settings.h"

/* Numbers of libcurl's stable interface, whose headers are not needed to build us. */
#define OPTION_WRITE_DATA 10001
#define OPTION_URL        10002
#define OPTION_READ_DATA  10009
#define OPTION_HEADERS    10023
#define OPTION_PRIVATE    10103
#define OPTION_USER       10173
#define OPTION_PASSWORD   10174
#define OPTION_NO_PROXY   10177
#define OPTION_SIGV4      10305
#define OPTION_UPLOAD     46
#define OPTION_HTTP_GET   80
#define OPTION_BUFFER     98
#define OPTION_NO_SIGNAL  99
#define OPTION_EXPECT_MS  227
#define OPTION_UP_BUFFER  280
#define OPTION_WRITE      20011
#define OPTION_READ       20012
#define OPTION_BODY_SIZE  30115
#define INFO_PRIVATE      0x100015
#define INFO_CODE         0x200002
#define MULTI_CONNECTIONS 6
#define BUFFER_BYTES      (64L << 10) /* As the tier: larger ones are slower. */
#define DONE_MESSAGE      1
#define HASH_HEADER       "x-amz-content-sha256: "

struct library {
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_getinfo)(void *easy, int info, ...);
    void (*easy_cleanup)(void *easy);
    void *(*slist_append)(void *list, const char *line);
    void (*slist_free_all)(void *list);
    void *(*multi_init)(void);
    int (*multi_setopt)(void *multi, int option, ...);
    int (*multi_add_handle)(void *multi, void *easy);
    int (*multi_remove_handle)(void *multi, void *easy);
    int (*multi_perform)(void *multi, int *running_out);
    int (*multi_poll)(void *multi, void *extra, unsigned extra_count, int timeout_ms, int *ready);
    void *(*multi_info_read)(void *multi, int *left_out);
    int (*multi_cleanup)(void *multi);
};

struct message {
    int kind;
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
};

struct transfer {
    void *easy;
    const struct yb_bench_curl_job *job;
    uint8_t *bytes;
    uint64_t moved;
    uint32_t sum;
    void *headers; /* That of its body's hash; NULL: it is signed without. */
};

struct yb_bench_curl {
    struct library library;
    struct yb_object_s3_settings settings;
    void *multi;
    void *headers;
    uint32_t flying;
    struct transfer transfers[];
};

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *context)
{
    struct transfer *transfer = context;
    uint64_t length = size * count, kept = transfer->job->size - transfer->moved;

    if (transfer->moved < transfer->job->size) {
        memcpy(transfer->bytes + transfer->moved, bytes, length < kept ? length : kept);
    }
    transfer->moved += length;
    return length;
}

static size_t
on_wanted(char *to, size_t size, size_t count, void *context)
{
    struct transfer *transfer = context;
    const struct yb_bench_curl_job *job = transfer->job;
    uint64_t room = size * count, left = job->size + job->more - transfer->moved;
    uint64_t length = room < left ? room : left, from = 0;

    if (transfer->moved < job->size) {
        from = job->size - transfer->moved < length ? job->size - transfer->moved : length;
        memcpy(to, transfer->bytes + transfer->moved, from);
    }
    memset(to + from, 0, length - from);
    transfer->moved += length;
    return length;
}

static bool
load(struct library *library)
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"curl_easy_init", &library->easy_init},
        {"curl_easy_setopt", &library->easy_setopt},
        {"curl_easy_getinfo", &library->easy_getinfo},
        {"curl_easy_cleanup", &library->easy_cleanup},
        {"curl_slist_append", &library->slist_append},
        {"curl_slist_free_all", &library->slist_free_all},
        {"curl_multi_init", &library->multi_init},
        {"curl_multi_setopt", &library->multi_setopt},
        {"curl_multi_add_handle", &library->multi_add_handle},
        {"curl_multi_remove_handle", &library->multi_remove_handle},
        {"curl_multi_perform", &library->multi_perform},
        {"curl_multi_poll", &library->multi_poll},
        {"curl_multi_info_read", &library->multi_info_read},
        {"curl_multi_cleanup", &library->multi_cleanup},
    };
    void *handle = dlopen(YB_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool loaded = handle != NULL;

    for (size_t i = 0; loaded && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(handle, symbols[i].name);

        loaded = symbol != NULL;
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    if (handle != NULL) {
        (void)dlclose(handle); /* Of the count alone. */
    }
    return loaded;
}

static bool
prepare(struct yb_bench_curl *curl, struct transfer *transfer)
{
    const struct library *library = &curl->library;
    char sigv4[96];
    int result;

    transfer->easy = library->easy_init();
    if (transfer->easy == NULL) {
        return false;
    }
    (void)snprintf(sigv4, sizeof(sigv4), "aws:amz:%s:s3", curl->settings.region);
    result = library->easy_setopt(transfer->easy, OPTION_NO_SIGNAL, 1L);
    result |= library->easy_setopt(transfer->easy, OPTION_NO_PROXY, "*");
    result |= library->easy_setopt(transfer->easy, OPTION_SIGV4, sigv4);
    result |= library->easy_setopt(transfer->easy, OPTION_USER, curl->settings.key);
    result |= library->easy_setopt(transfer->easy, OPTION_PASSWORD, curl->settings.secret);
    result |= library->easy_setopt(transfer->easy, OPTION_EXPECT_MS, 1L);
    result |= library->easy_setopt(transfer->easy, OPTION_BUFFER, BUFFER_BYTES);
    result |= library->easy_setopt(transfer->easy, OPTION_UP_BUFFER, BUFFER_BYTES);
    result |= library->easy_setopt(transfer->easy, OPTION_PRIVATE, transfer);
    result |= library->easy_setopt(transfer->easy, OPTION_WRITE, on_bytes);
    result |= library->easy_setopt(transfer->easy, OPTION_WRITE_DATA, transfer);
    result |= library->easy_setopt(transfer->easy, OPTION_READ, on_wanted);
    result |= library->easy_setopt(transfer->easy, OPTION_READ_DATA, transfer);
    return result == 0;
}

enum yb_status
yb_bench_curl_create(const char *url, uint32_t flying, struct yb_bench_curl **curl_out,
                     char why_out[YB_OBJECT_WHY_BYTES])
{
    struct yb_bench_curl *curl = calloc(1, sizeof(*curl) + flying * sizeof(struct transfer));
    enum yb_status status;
    bool made = true;

    (void)snprintf(why_out, YB_OBJECT_WHY_BYTES, "no libcurl, or no memory for it");
    if (curl == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_object_s3_settings_read(url, yb_config_foreign, &curl->settings, why_out);
    if (status == YB_OK && !load(&curl->library)) {
        status = YB_UNSUPPORTED;
    }
    if (status != YB_OK) {
        free(curl);
        return status;
    }
    curl->flying = flying;
    curl->multi = curl->library.multi_init();
    curl->headers = curl->library.slist_append(NULL, HASH_HEADER "UNSIGNED-PAYLOAD");
    made = curl->multi != NULL && curl->headers != NULL;
    for (uint32_t i = 0; made && i < flying; i++) {
        made = prepare(curl, &curl->transfers[i]);
    }
    if (!made) {
        yb_bench_curl_destroy(&curl);
        return YB_NO_MEMORY;
    }
    (void)curl->library.multi_setopt(curl->multi, MULTI_CONNECTIONS, (long)flying);
    *curl_out = curl;
    return YB_OK;
}

void
yb_bench_curl_destroy(struct yb_bench_curl **curl)
{
    struct yb_bench_curl *it = *curl;

    *curl = NULL;
    if (it == NULL) {
        return;
    }
    for (uint32_t i = 0; i < it->flying; i++) {
        if (it->transfers[i].easy != NULL) {
            it->library.easy_cleanup(it->transfers[i].easy);
        }
        it->library.slist_free_all(it->transfers[i].headers);
    }
    it->library.slist_free_all(it->headers);
    if (it->multi != NULL) {
        (void)it->library.multi_cleanup(it->multi);
    }
    explicit_bzero(&it->settings, sizeof(it->settings));
    free(it);
}

/* Make the head that says what the body is. */
static bool
hash_body(const struct library *library, struct transfer *transfer)
{
    static const uint8_t zeros[4096];
    const struct yb_bench_curl_job *job = transfer->job;
    uint8_t bytes[EVP_MAX_MD_SIZE];
    unsigned count = 0;
    char line[sizeof(HASH_HEADER) + 2 * sizeof(bytes)] = HASH_HEADER;
    size_t used = strlen(line);
    EVP_MD_CTX *digest = EVP_MD_CTX_new();

    YB_ASSERT(digest != NULL && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1);
    YB_ASSERT(EVP_DigestUpdate(digest, transfer->bytes, job->size) == 1);
    for (uint64_t left = job->more; left > 0;) {
        size_t part = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);

        YB_ASSERT(EVP_DigestUpdate(digest, zeros, part) == 1);
        left -= part;
    }
    YB_ASSERT(EVP_DigestFinal_ex(digest, bytes, &count) == 1);
    EVP_MD_CTX_free(digest);
    for (unsigned i = 0; i < count; i++) {
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%02x", bytes[i]);
    }
    transfer->headers = library->slist_append(NULL, line);
    return transfer->headers != NULL;
}

static bool
start(struct yb_bench_curl *curl, struct transfer *transfer, const struct yb_bench_curl_job *job,
      uint32_t number)
{
    const struct library *library = &curl->library;
    const struct yb_object_s3_settings *settings = &curl->settings;
    const char *host = strstr(settings->endpoint, "://") + 3;
    char url[2048];
    int result;

    transfer->job = job;
    transfer->bytes = job->memory + number * job->size;
    transfer->moved = 0;
    library->slist_free_all(transfer->headers);
    transfer->headers = NULL;
    if (job->puts && job->sums && !hash_body(library, transfer)) {
        return false;
    }
    if (settings->host_style) {
        (void)snprintf(url, sizeof(url), "%.*s%s.%s/%sbare/%llu/%u",
                       (int)(host - settings->endpoint), settings->endpoint, settings->bucket, host,
                       settings->prefix, (unsigned long long)job->epoch, number);
    } else {
        (void)snprintf(url, sizeof(url), "%s/%s/%sbare/%llu/%u", settings->endpoint,
                       settings->bucket, settings->prefix, (unsigned long long)job->epoch, number);
    }
    result = library->easy_setopt(transfer->easy, OPTION_URL, url);
    if (job->puts) {
        result |= library->easy_setopt(transfer->easy, OPTION_UPLOAD, 1L);
        result |= library->easy_setopt(transfer->easy, OPTION_BODY_SIZE,
                                       (int64_t)(job->size + job->more));
    } else {
        result |= library->easy_setopt(transfer->easy, OPTION_HTTP_GET, 1L);
    }
    result |= library->easy_setopt(transfer->easy, OPTION_HEADERS,
                                   transfer->headers != NULL ? transfer->headers : curl->headers);
    return result == 0 && library->multi_add_handle(curl->multi, transfer->easy) == 0;
}

/* One has ended; false: badly. */
static bool
end(struct yb_bench_curl *curl, const struct message *message, struct transfer **transfer_out)
{
    const struct library *library = &curl->library;
    void *easy = message->easy;
    int result = message->data.result;
    long code = 0;

    (void)library->easy_getinfo(easy, INFO_PRIVATE, transfer_out);
    (void)library->easy_getinfo(easy, INFO_CODE, &code);
    (void)library->multi_remove_handle(curl->multi, easy);
    if ((*transfer_out)->job->sums && !(*transfer_out)->job->puts) {
        (*transfer_out)->sum ^= yb_bench_sum((*transfer_out)->bytes, (*transfer_out)->job->size);
    }
    return result == 0 && code == 200 &&
           (*transfer_out)->moved == (*transfer_out)->job->size + (*transfer_out)->job->more;
}

double
yb_bench_curl_run(struct yb_bench_curl *curl, const struct yb_bench_curl_job *job)
{
    uint64_t begun = yb_measure_now_ns();
    uint32_t next = 0, under_way = 0;
    bool well = true;
    int count;

    while (next < job->count && next < curl->flying && well) {
        well = start(curl, &curl->transfers[next], job, next);
        under_way += well;
        next++;
    }
    while (under_way > 0) {
        struct message *message;

        (void)curl->library.multi_perform(curl->multi, &count);
        while ((message = curl->library.multi_info_read(curl->multi, &count)) != NULL) {
            struct transfer *transfer = NULL;

            if (message->kind != DONE_MESSAGE) {
                continue;
            }
            well = end(curl, message, &transfer) && well;
            under_way--;
            if (well && next < job->count) {
                well = start(curl, transfer, job, next++);
                under_way += well;
            }
        }
        if (under_way > 0) {
            (void)curl->library.multi_poll(curl->multi, NULL, 0, 1000, &count);
        }
    }
    return well ? (double)(yb_measure_now_ns() - begun) / 1e9 : 0;
}
