/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/shm/copy.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "transfer/batch.h"
#include "transfer/shm/attach.h"
#include "transfer/shm/shm_internal.h"

/* What is looked at together: so many pieces, if what lies between them is not more pages than the
 * calls that this saves would cost. */
#define READY_PIECES_MIN     4u
#define READY_PAGES_PER_CALL 6u

/* Let the kernel copy: slower, but it survives what it cannot write. */
static enum yb_status
copy_by_kernel(void *to, const uint8_t *from, uint64_t length)
{
    struct iovec local = {.iov_base = to, .iov_len = length};
    struct iovec remote = {.iov_len = length};
    uint64_t moved;

    memcpy(&remote.iov_base, &from, sizeof(from));
    return yb_shm_attach_read(getpid(), &local, &remote, 1, &moved);
}

/* Whether memory of ours is shared memory that was allocated as such: it is sealed, and all of it
 * is there. */
static bool
is_sure(struct yb_shm_hold *hold, const void *to, uint64_t length)
{
    struct yb_region_info *own = &hold->own;
    uintptr_t at = (uintptr_t)to;
    uintptr_t base = (uintptr_t)own->base;

    if (own->id == 0 || at < base || at - base > own->length ||
        length > own->length - (at - base)) {
        if (yb_region_find(hold->session->host->regions, to, length, own) != YB_OK) {
            own->id = 0;
            return false;
        }
    }
    return own->backing.fd >= 0;
}

static void
copy_collected(struct yb_shm_hold *hold)
{
    yb_copy_stream_pieces(hold->pieces, hold->piece_count);
    hold->piece_count = 0;
}

/* Small as a whole: at once. Otherwise together with the others, which is much faster. */
static void
copy_plainly(struct yb_shm_hold *hold, void *to, const uint8_t *from, uint64_t length)
{
    if (!hold->streams) {
        memcpy(to, from, length);
        return;
    }
    if (hold->piece_count == YB_WIRE_PULLS_MAX) {
        copy_collected(hold);
    }
    hold->pieces[hold->piece_count++] =
        (struct yb_copy_piece){.to = to, .from = from, .length = length};
}

/* Make sure that the pages are there and can be written, then copy, while that is likely to be
 * true. */
static enum yb_status
copy_safely(struct yb_shm_hold *hold, void *to, const uint8_t *from, uint64_t length)
{
    uintptr_t page = (uintptr_t)getpagesize() - 1;
    uintptr_t first = (uintptr_t)to & ~page;
    uintptr_t last = ((uintptr_t)to + length + page) & ~page;

    if ((length >= YB_COPY_STREAM_BYTES &&
         yb_writable_until(&hold->session->host->writable, first, last) == last) ||
        yb_writable_populate(first, last)) {
        copy_plainly(hold, to, from, length);
        if (hold->piece_count > 0) {
            copy_collected(hold);
        }
        return YB_OK;
    }
    if (errno == EFAULT || errno == ENOMEM) {
        return YB_FAULT;
    }
    return copy_by_kernel(to, from, length); /* An old kernel, or memory that it must judge. */
}

/* Add pages to those that can be written; none lie between. */
static void
widen(struct yb_shm_ready *ready, uintptr_t first, uintptr_t last)
{
    ready->first = first < ready->first ? first : ready->first;
    ready->last = last > ready->last ? last : ready->last;
}

/* Find out cheaply what can be written from `first` on, or beyond what is known: also what other
 * slices of the batch will need. */
static void
look_ahead(struct yb_shm_hold *hold, uintptr_t first)
{
    struct yb_shm_ready *ready = hold->ready;
    uintptr_t from = first < ready->first ? first : ready->last;
    uintptr_t until =
        yb_writable_until(&hold->session->host->writable, from, from + YB_WRITABLE_BYTES_MAX);

    if (until >= ready->first) {
        widen(ready, from, until);
    }
}

/* Look at where a slice goes. What is not known to be writable then the kernel makes so, unless the
 * pieces lie far apart or one of them cannot be written: then each is judged by itself. */
static void
make_ready(struct yb_shm_hold *hold, const struct yb_slice *slice)
{
    struct yb_shm_ready *ready = hold->ready;
    uintptr_t page = (uintptr_t)getpagesize() - 1;
    uint64_t worth = slice->bytes + slice->count * READY_PAGES_PER_CALL * (uint64_t)(page + 1);
    uintptr_t first = UINTPTR_MAX;
    uintptr_t last = 0;

    for (uint32_t i = 0; i < slice->count; i++) {
        uintptr_t at = (uintptr_t)slice->iov[i].iov_base;

        first = at < first ? at : first;
        last = at + slice->iov[i].iov_len > last ? at + slice->iov[i].iov_len : last;
    }
    first &= ~page;
    last = (last + page) & ~page;
    if (ready->batch != slice->batch || ready->generation != slice->batch->generation ||
        first > ready->last || last < ready->first) {
        *ready = (struct yb_shm_ready){
            .batch = slice->batch,
            .generation = slice->batch->generation,
            .first = first,
            .last = first,
        };
    }
    if (hold->streams && (first < ready->first || last > ready->last)) {
        look_ahead(hold, first);
    }
    if (slice->count >= READY_PIECES_MIN && last - first <= worth &&
        yb_writable_populate(first, ready->first) && yb_writable_populate(ready->last, last)) {
        widen(ready, first, last);
    }
}

static bool
is_ready(struct yb_shm_hold *hold, const void *to, uint64_t length)
{
    const struct yb_shm_ready *ready = hold->ready;
    uintptr_t at = (uintptr_t)to;

    if (ready == NULL) {
        return false;
    }
    if (hold->slice != NULL) { /* The first that needs it; what is sure, or left to the kernel,
                                * needs no look. */
        make_ready(hold, hold->slice);
        hold->slice = NULL;
    }
    return at >= ready->first && at <= ready->last && length <= ready->last - at;
}

void
yb_shm_hold_init(struct yb_shm_hold *hold, struct yb_shm_session *session, bool streams)
{
    hold->session = session;
    hold->region = 0;
    hold->own.id = 0;
    hold->streams = streams;
    hold->ready = NULL;
    hold->slice = NULL;
    hold->piece_count = 0;
}

enum yb_shm_loan
yb_shm_hold_take(struct yb_shm_hold *hold, uint64_t region, bool ask)
{
    if (hold->region != region) {
        yb_shm_hold_release(hold);
        hold->loan = yb_shm_session_pin(hold->session, region, ask, &hold->mapped);
        hold->region = region;
    }
    return hold->loan;
}

void
yb_shm_hold_release(struct yb_shm_hold *hold)
{
    if (hold->piece_count > 0) {
        copy_collected(hold);
    }
    if (hold->region != 0 && hold->loan == YB_SHM_LOAN_READY) {
        yb_shm_session_unpin(hold->session, hold->region);
    }
    hold->region = 0;
}

enum yb_status
yb_shm_hold_copy(struct yb_shm_hold *hold, uint64_t address, uint64_t length, void *to)
{
    const struct yb_shm_mapped *mapped = &hold->mapped;

    YB_ASSERT(hold->region != 0 && hold->loan == YB_SHM_LOAN_READY);
    if (address < mapped->base || address - mapped->base > mapped->length ||
        length > mapped->length - (address - mapped->base)) {
        return YB_INVALID;
    }
    if (is_sure(hold, to, length) || is_ready(hold, to, length)) {
        copy_plainly(hold, to, mapped->bytes + (address - mapped->base), length);
        return YB_OK;
    }
    return copy_safely(hold, to, mapped->bytes + (address - mapped->base), length);
}

void
yb_shm_gather_add(struct yb_shm_gather *gather, uint32_t index, uint64_t address, uint64_t length,
                  void *to)
{
    uint32_t at = gather->count++;

    YB_ASSERT(at < YB_WIRE_PULLS_MAX);
    gather->index[at] = index;
    gather->local[at] = (struct iovec){.iov_base = to, .iov_len = length};
    gather->remote[at].iov_len = length;
    memcpy(&gather->remote[at].iov_base, &address, sizeof(address)); /* Only a number here. */
}

enum yb_status
yb_shm_gather_copy(struct yb_shm_gather *gather, struct yb_shm_session *session,
                   enum yb_status *statuses)
{
    uint32_t from = 0;

    while (from < gather->count) {
        uint64_t moved;
        enum yb_status status = yb_shm_session_read(
            session, &gather->local[from], &gather->remote[from], gather->count - from, &moved);

        if (status == YB_OK) {
            return YB_OK;
        }
        if (status != YB_FAULT) {
            return status;
        }
        while (from < gather->count && moved >= gather->local[from].iov_len) {
            moved -= gather->local[from++].iov_len;
        }
        if (from < gather->count) {
            statuses[gather->index[from++]] = YB_FAULT;
        }
    }
    return YB_OK;
}
