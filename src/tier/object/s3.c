/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects at an S3 service: requests come from the loop, and one thread drives all transfers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "base/cpus.h"
#include "tier/object/s3_internal.h"

#define POLL_MS           1000
#define STATE_CANCELLED   1u
#define DONE_MESSAGE      1 /* CURLMSG_DONE. */
#define MULTI_CONNECTIONS 6 /* CURLMOPT_MAXCONNECTS. */

struct message {
    int kind;
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
};

static struct s3_backend *
s3_of(struct yb_object_backend *backend)
{
    struct s3_backend *s3 = (struct s3_backend *)backend;

    YB_ASSERT_OBJ(s3, S3_MAGIC);
    return s3;
}

static struct yb_object_request *
request_of_mail(struct yb_mail *mail)
{
    return (struct yb_object_request *)((uint8_t *)mail - offsetof(struct yb_object_request, mail));
}

static struct yb_object_request *
request_of_job(struct yb_helper_job *job)
{
    return (struct yb_object_request *)((uint8_t *)job - offsetof(struct yb_object_request, job));
}

/* ---- back on the loop ------------------------------------------------------------------------ */

static void
finish(struct yb_object_request *request)
{
    struct s3_transfer *transfer = request->slot;
    struct s3_backend *s3 = transfer->s3;

    transfer->request = NULL;
    transfer->next = s3->free;
    s3->free = transfer;
    request->done(request, request->status);
}

static void
compare_etag(struct yb_helper_job *job)
{
    struct yb_object_request *request = request_of_job(job);

    if (!yb_object_s3_etags_match(request->slot)) {
        request->status = YB_PEER_LOST;
        request->sent = true;
        (void)snprintf(request->why, sizeof(request->why),
                       "the service's ETag is not the sum of what was sent: %.80s", request->name);
    }
}

static void
compared(struct yb_helper_job *job)
{
    finish(request_of_job(job));
}

/* It is home. A PUT that ended well has been compared by the service, or is now. */
static void
come_home(struct yb_mail *mail)
{
    struct yb_object_request *request = request_of_mail(mail);
    struct s3_transfer *transfer = request->slot;
    bool told = transfer->parts == 0 && strcmp(transfer->sum, transfer->crc) == 0;

    if (request->verb == YB_OBJECT_PUT && request->status == YB_OK && !told &&
        yb_object_bytes_sum(&request->bytes) > 0) {
        request->job = (struct yb_helper_job){.work = compare_etag, .done = compared};
        if (yb_helper_submit(transfer->s3->pool, transfer->s3->loop, &request->job) == YB_OK) {
            return;
        }
        request->status = YB_PEER_LOST; /* Not compared is not there. */
        request->sent = true;
    }
    finish(request);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void
send_home(struct s3_transfer *transfer, enum yb_status status)
{
    struct s3_backend *s3 = transfer->s3;
    struct yb_object_request *request = transfer->request;
    struct s3_transfer **link = &s3->flying;

    while (*link != NULL && *link != transfer) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = transfer->next;
    }
    if (status == YB_OK && request->after != NULL) {
        request->judged = true;
        status = request->after(request);
    }
    request->status = status;
    yb_mail_init(&request->mail, come_home);
    yb_mailbox_post_reply(yb_loop_mailbox(s3->loop), &request->mail);
}

static void
go(struct s3_transfer *transfer)
{
    struct s3_backend *s3 = transfer->s3;

    if (!yb_object_s3_prepare(transfer) ||
        s3->curl.multi_add_handle(s3->multi, transfer->easy) != 0) {
        (void)snprintf(transfer->request->why, sizeof(transfer->request->why),
                       "libcurl does not take a request");
        send_home(transfer, YB_IO);
    }
}

static bool
is_cancelled(const struct yb_object_request *request)
{
    return __atomic_load_n(&request->state, __ATOMIC_RELAXED) == STATE_CANCELLED;
}

/* The next request of an upload in parts. */
static void
go_part(struct s3_transfer *transfer, uint32_t part)
{
    uint64_t each = transfer->s3->head.multipart_bytes;
    uint64_t total = yb_object_bytes_sum(&transfer->request->bytes);

    transfer->phase = S3_PART;
    transfer->part = part;
    transfer->from = each * part;
    transfer->bytes = total - transfer->from < each ? total - transfer->from : each;
    go(transfer);
}

/* Nobody pays for parts that nobody joins. */
static void
go_abort(struct s3_transfer *transfer, enum yb_status status)
{
    transfer->phase = S3_ABORT;
    transfer->aborted = status;
    go(transfer);
}

static void
next_phase(struct s3_transfer *transfer, enum yb_status status)
{
    if (transfer->phase == S3_ABORT) {
        send_home(transfer, transfer->aborted);
    } else if (status != YB_OK) {
        if (transfer->phase == S3_BEGIN ||
            (transfer->phase == S3_COMPLETE && transfer->request->sent)) {
            send_home(transfer, status); /* Nothing is there yet; or it may be whole. */
        } else {
            go_abort(transfer, status);
        }
    } else if (transfer->phase == S3_BEGIN) {
        if (!yb_object_xml_text(transfer->text, transfer->text_used, "UploadId", transfer->upload,
                                sizeof(transfer->upload))) {
            send_home(transfer, YB_IO);
        } else {
            go_part(transfer, 0);
        }
    } else if (transfer->phase == S3_PART) {
        memcpy(transfer->etags[transfer->part], transfer->etag, sizeof(transfer->etag));
        if (transfer->part + 1 < transfer->parts) {
            go_part(transfer, transfer->part + 1);
        } else {
            transfer->phase = S3_COMPLETE;
            go(transfer);
        }
    } else {
        char word[64];

        /* A failure may come after the head said 200. */
        status = yb_object_xml_text(transfer->text, transfer->text_used, "ETag", word, sizeof(word))
                     ? YB_OK
                     : YB_IO;
        transfer->request->sent = true;
        send_home(transfer, status);
    }
}

static enum yb_status
take_list(struct s3_transfer *transfer)
{
    struct yb_object_request *request = transfer->request;
    struct yb_object_page page = {.entries = request->entries, .entries_max = request->entries_max};

    if (!yb_object_xml_list(transfer->text, transfer->text_used, transfer->s3->settings.prefix,
                            &page)) {
        (void)snprintf(request->why, sizeof(request->why),
                       "%.100s: the listing is not one of S3; is this an S3 service?",
                       transfer->s3->base);
        return YB_IO;
    }
    free(request->cursor);
    request->entry_count = page.count;
    request->cursor = page.token[0] == '\0' ? NULL : strdup(page.token);
    request->more = request->cursor != NULL;
    return page.token[0] != '\0' && request->cursor == NULL ? YB_NO_MEMORY : YB_OK;
}

static void
let_go_text(struct s3_transfer *transfer)
{
    if (transfer->text != transfer->inline_text) {
        free(transfer->text);
    }
    transfer->text = transfer->inline_text;
    transfer->text_room = sizeof(transfer->inline_text);
    transfer->text_used = 0;
}

static void
ended(struct s3_transfer *transfer, int result)
{
    struct yb_object_request *request = transfer->request;
    enum yb_status status = yb_object_s3_judge(transfer, result);

    if (transfer->parts > 0) {
        next_phase(transfer, status);
        return;
    }
    if (status == YB_OK && request->verb == YB_OBJECT_LIST) {
        status = take_list(transfer);
    }
    let_go_text(transfer);
    request->sent = request->sent || (request->verb == YB_OBJECT_PUT && status == YB_OK);
    send_home(transfer, status);
}

static void
begin(struct yb_mail *mail)
{
    struct yb_object_request *request = request_of_mail(mail);
    struct s3_transfer *transfer = request->slot;
    struct s3_backend *s3 = transfer->s3;

    transfer->next = s3->flying;
    s3->flying = transfer;
    if (is_cancelled(request)) {
        send_home(transfer, YB_CANCELLED);
        return;
    }
    transfer->phase = transfer->parts > 0 ? S3_BEGIN : S3_WHOLE;
    transfer->from = 0;
    transfer->bytes = request->verb == YB_OBJECT_PUT ? yb_object_bytes_sum(&request->bytes) : 0;
    go(transfer);
}

/* Take back what was cancelled; its memory is not touched any more (RULES A3). */
static void
take_back(struct s3_backend *s3)
{
    struct s3_transfer *next;

    for (struct s3_transfer *transfer = s3->flying; transfer != NULL; transfer = next) {
        next = transfer->next;
        if (!is_cancelled(transfer->request) || transfer->phase == S3_ABORT) {
            continue;
        }
        (void)s3->curl.multi_remove_handle(s3->multi, transfer->easy);
        transfer->request->sent = transfer->request->verb == YB_OBJECT_PUT;
        if (transfer->phase == S3_PART) {
            go_abort(transfer, YB_CANCELLED);
        } else {
            let_go_text(transfer);
            send_home(transfer, YB_CANCELLED);
        }
    }
}

static void *
run_thread(void *context)
{
    struct s3_backend *s3 = context;
    struct message *message;
    int count;

    yb_cpus_as_process();
    while (!atomic_load(&s3->stopping)) {
        (void)yb_mailbox_run(&s3->box, S3_TRANSFERS);
        if (atomic_exchange(&s3->cancels, 0) != 0) {
            take_back(s3);
        }
        (void)s3->curl.multi_perform(s3->multi, &count);
        while ((message = s3->curl.multi_info_read(s3->multi, &count)) != NULL) {
            if (message->kind == DONE_MESSAGE) {
                void *easy = message->easy;
                int result = message->data.result;
                struct s3_transfer *transfer = NULL;

                (void)s3->curl.easy_getinfo(easy, 0x100015, &transfer); /* CURLINFO_PRIVATE. */
                (void)s3->curl.multi_remove_handle(s3->multi, easy);
                ended(transfer, result);
            }
        }
        if (yb_mailbox_sleep_prepare(&s3->box)) {
            (void)s3->curl.multi_poll(s3->multi, NULL, 0, POLL_MS, &count);
            yb_mailbox_sleep_finish(&s3->box);
        }
    }
    return NULL;
}

static void
wake(void *context)
{
    struct s3_backend *s3 = context;

    (void)s3->curl.multi_wakeup(s3->multi);
}

/* ---- from the loop --------------------------------------------------------------------------- */

static void
post(struct yb_object_request *request)
{
    struct s3_transfer *transfer = request->slot;

    yb_mail_init(&request->mail, begin);
    YB_ASSERT(yb_mailbox_try_post(&transfer->s3->box, &request->mail) == YB_OK);
}

static void
make_body(struct yb_helper_job *job)
{
    struct yb_object_request *request = request_of_job(job);

    if (request->before != NULL) {
        request->before(request);
    }
    yb_object_s3_hash(request->slot);
}

static void
made_body(struct yb_helper_job *job)
{
    post(request_of_job(job));
}

static enum yb_status
submit(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct s3_backend *s3 = s3_of(backend);
    struct s3_transfer *transfer = s3->free;
    uint64_t bytes = request->verb == YB_OBJECT_PUT ? yb_object_bytes_sum(&request->bytes) : 0;

    if (transfer == NULL) {
        return YB_AGAIN;
    }
    request->state = 0;
    request->entry_count = 0;
    request->more = request->sent = request->aside = request->judged = false;
    request->first_byte_ns = request->total_ns = request->object_bytes = 0;
    request->wait_hint_ms = 0;
    request->why[0] = '\0';
    request->slot = transfer;
    transfer->request = request;
    transfer->parts = bytes > s3->head.multipart_bytes
                          ? (uint32_t)((bytes - 1) / s3->head.multipart_bytes + 1)
                          : 0;
    YB_ASSERT(transfer->parts <= S3_PARTS_MAX);
    if (request->verb == YB_OBJECT_PUT) {
        request->job = (struct yb_helper_job){.work = make_body, .done = made_body};
        if (yb_helper_submit(s3->pool, s3->loop, &request->job) != YB_OK) {
            transfer->request = NULL;
            return YB_AGAIN;
        }
    }
    s3->free = transfer->next;
    transfer->next = NULL;
    if (request->verb != YB_OBJECT_PUT) {
        post(request);
    }
    return YB_OK;
}

static void
cancel(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct s3_backend *s3 = s3_of(backend);

    __atomic_store_n(&request->state, STATE_CANCELLED, __ATOMIC_RELAXED);
    atomic_store(&s3->cancels, 1);
    wake(s3);
}

static void
end_list(struct yb_object_backend *backend, struct yb_object_request *request)
{
    (void)s3_of(backend);
    free(request->cursor);
    request->cursor = NULL;
}

/* ---- its life -------------------------------------------------------------------------------- */

static void
free_all(struct s3_backend *s3)
{
    for (uint32_t i = 0; s3->transfers != NULL && i < S3_TRANSFERS; i++) {
        struct s3_transfer *transfer = &s3->transfers[i];

        YB_ASSERT(transfer->request == NULL);
        if (transfer->easy != NULL) {
            s3->curl.easy_cleanup(transfer->easy);
            s3->curl.slist_free_all(transfer->headers);
        }
    }
    if (s3->multi != NULL) {
        (void)s3->curl.multi_cleanup(s3->multi);
    }
    free(s3->transfers);
    explicit_bzero(&s3->settings, sizeof(s3->settings));
    s3->magic = 0;
    free(s3);
}

static void
destroy(struct yb_object_backend *backend)
{
    struct s3_backend *s3 = s3_of(backend);

    atomic_store(&s3->stopping, true);
    wake(s3);
    YB_ASSERT(pthread_join(s3->thread, NULL) == 0);
    yb_mailbox_fini(&s3->box);
    free_all(s3);
}

static const struct yb_object_backend_ops s3_ops = {
    .name = "s3",
    .submit = submit,
    .cancel = cancel,
    .end_list = end_list,
    .destroy = destroy,
};

static void
name_base(struct s3_backend *s3)
{
    const struct yb_object_s3_settings *settings = &s3->settings;
    const char *host = strstr(settings->endpoint, "://") + 3;

    if (settings->host_style) {
        (void)snprintf(s3->base, sizeof(s3->base), "%.*s%s.%s", (int)(host - settings->endpoint),
                       settings->endpoint, settings->bucket, host);
    } else {
        (void)snprintf(s3->base, sizeof(s3->base), "%s/%s", settings->endpoint, settings->bucket);
    }
}

static bool
make_transfers(struct s3_backend *s3)
{
    s3->multi = s3->curl.multi_init();
    s3->transfers = calloc(S3_TRANSFERS, sizeof(*s3->transfers));
    if (s3->multi == NULL || s3->transfers == NULL) {
        return false;
    }
    (void)s3->curl.multi_setopt(s3->multi, MULTI_CONNECTIONS, (long)S3_TRANSFERS);
    for (uint32_t i = 0; i < S3_TRANSFERS; i++) {
        struct s3_transfer *transfer = &s3->transfers[i];

        transfer->s3 = s3;
        transfer->text = transfer->inline_text;
        transfer->text_room = sizeof(transfer->inline_text);
        transfer->easy = s3->curl.easy_init();
        if (transfer->easy == NULL) {
            return false;
        }
        transfer->next = s3->free;
        s3->free = transfer;
    }
    return true;
}

enum yb_status
yb_object_s3_create(const char *url, struct yb_loop *loop, struct yb_helper_pool *pool,
                    struct yb_object_backend **backend_out, char why_out[YB_OBJECT_WHY_BYTES])
{
    struct s3_backend *s3 = calloc(1, sizeof(*s3));
    enum yb_status status;

    why_out[0] = '\0';
    if (s3 == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_object_s3_settings_read(url, yb_config_foreign, &s3->settings, why_out);
    if (status == YB_OK && !yb_object_xml_ready()) {
        (void)snprintf(why_out, YB_OBJECT_WHY_BYTES,
                       "S3 answers in XML, and libexpat.so.1 is not here; install it (Debian: "
                       "libexpat1)");
        status = YB_UNSUPPORTED;
    }
    if (status == YB_OK && !yb_object_s3_load(&s3->curl, why_out)) {
        status = YB_UNSUPPORTED;
    }
    if (status != YB_OK) {
        free_all(s3);
        return status;
    }
    s3->magic = S3_MAGIC;
    s3->head.ops = &s3_ops;
    s3->head.multipart_bytes = s3->settings.multipart_bytes;
    s3->loop = loop;
    s3->pool = pool;
    name_base(s3);
    yb_mailbox_init(&s3->box, S3_TRANSFERS, wake, s3);
    if (!make_transfers(s3) || pthread_create(&s3->thread, NULL, run_thread, s3) != 0) {
        free_all(s3);
        return YB_NO_MEMORY;
    }
    *backend_out = &s3->head;
    return YB_OK;
}
