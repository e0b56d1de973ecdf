/* SPDX-License-Identifier: Apache-2.0
 *
 * Regions that are lent: descriptors that go out, and mappings of those that come in.
 *
 * What an owner has lent he calls back when the region is gone: his host looks once a
 * second. Until the peer has unmapped it, pages of freed memory live on.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "transfer/shm/shm_internal.h"

/* ---- mappings of the peer's regions ---------------------------------------------------------- */

static struct yb_shm_view *
view_of(struct yb_shm_session *session, uint64_t region)
{
    for (uint32_t i = 0; i < YB_SHM_LOANS_MAX; i++) {
        if (session->views[i].region == region && !session->views[i].dead) {
            return &session->views[i];
        }
    }
    return NULL;
}

enum yb_shm_loan
yb_shm_session_pin(struct yb_shm_session *session, uint64_t region, bool ask,
                   struct yb_shm_mapped *mapped_out)
{
    struct yb_shm_host *host = session->host;
    enum yb_shm_loan loan = YB_SHM_LOAN_NONE;
    struct yb_shm_view *view;
    bool wake = false;

    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    YB_ASSERT(region != 0);
    yb_lock_acquire(&host->lock);
    view = view_of(session, region);
    if (view == NULL && ask) {
        view = view_of(session, 0);
        loan = view == NULL ? YB_SHM_LOAN_REFUSED : YB_SHM_LOAN_ASKED;
        if (view != NULL) {
            *view = (struct yb_shm_view){.region = region, .loan = loan, .unsent = true};
            yb_shm_host_work_locked(session);
            wake = true;
        }
    } else if (view != NULL) {
        loan = view->loan;
        if (loan == YB_SHM_LOAN_READY) {
            view->pins++;
            *mapped_out = view->mapped;
        }
    }
    yb_lock_release(&host->lock);
    if (wake) {
        yb_shm_host_wake(host);
    }
    return loan;
}

/* Take a dead view that nobody has pinned out of the table; *gone_out is to be unmapped. */
static void
reap_locked(struct yb_shm_view *view, struct yb_shared_view *gone_out)
{
    if (view->dead && view->pins == 0) {
        *gone_out = view->view;
        *view = (struct yb_shm_view){.region = 0};
    }
}

static void
unmap(struct yb_shared_view *view)
{
    if (view->base != NULL) {
        yb_shared_detach(view);
    }
}

void
yb_shm_session_unpin(struct yb_shm_session *session, uint64_t region)
{
    struct yb_shared_view gone = {.base = NULL};
    bool found = false;

    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    yb_lock_acquire(&session->host->lock);
    for (uint32_t i = 0; i < YB_SHM_LOANS_MAX && !found; i++) {
        struct yb_shm_view *view = &session->views[i];

        if (view->region == region && view->pins > 0) {
            view->pins--;
            reap_locked(view, &gone);
            found = true;
        }
    }
    yb_lock_release(&session->host->lock);
    YB_ASSERT(found);
    unmap(&gone);
}

void
yb_shm_session_forget(struct yb_shm_session *session, uint64_t region)
{
    struct yb_shared_view gone = {.base = NULL};
    struct yb_shm_view *view;

    if (region == 0) {
        return;
    }
    yb_lock_acquire(&session->host->lock);
    view = view_of(session, region);
    /* One that was only asked for stays until its answer: the answer must find it. */
    if (view != NULL && view->loan != YB_SHM_LOAN_ASKED) {
        view->dead = true;
        reap_locked(view, &gone);
    }
    yb_lock_release(&session->host->lock);
    unmap(&gone);
}

void
yb_shm_loan_drop_all(struct yb_shm_session *session)
{
    for (uint32_t i = 0; i < YB_SHM_LOANS_MAX; i++) {
        YB_ASSERT(session->views[i].pins == 0);
        unmap(&session->views[i].view);
    }
}

/* Map what came. */
static enum yb_status
map(const struct yb_wire_shm_note *note, int fd, struct yb_shm_view *view)
{
    enum yb_status status;

    if (fd < 0 || note->length == 0) {
        return YB_INVALID;
    }
    status = yb_shared_attach(fd, note->offset + note->length, false, &view->view, NULL, 0);
    if (status == YB_OK) {
        view->mapped = (struct yb_shm_mapped){
            .bytes = (const uint8_t *)view->view.base + note->offset,
            .base = note->base,
            .length = note->length,
        };
    }
    return status;
}

/* Enter what became of a loan into the table. Returns false, and unmaps it, if there is no room. */
static bool
enter(struct yb_shm_session *session, struct yb_shm_view *came)
{
    struct yb_shm_view *view;
    bool fits;

    yb_lock_acquire(&session->host->lock);
    view = view_of(session, came->region);
    if (view == NULL) {
        view = view_of(session, 0); /* Lent without being asked. */
    }
    fits = view != NULL;
    if (fits && view->loan != YB_SHM_LOAN_READY) {
        *view = *came;
        came->view.base = NULL;
    }
    yb_lock_release(&session->host->lock);
    unmap(&came->view);
    return fits;
}

void
yb_shm_loan_came(struct yb_shm_session *session, const struct yb_wire_shm_note *note, int fd)
{
    struct yb_wire_shm_note taken = {.kind = YB_WIRE_SHM_NOTE_KIND_TAKEN, .region = note->region};
    struct yb_shm_view came = {.region = note->region, .loan = YB_SHM_LOAN_READY};
    enum yb_status status = (enum yb_status)note->status;

    if (status == YB_OK) {
        status = note->region == 0 ? YB_INVALID : map(note, fd, &came);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (note->region == 0) {
        yb_shm_session_cut(session, false, "the peer broke the protocol of the unix socket");
        return;
    }
    if (status != YB_OK) {
        came.loan = YB_SHM_LOAN_REFUSED;
    }
    if (!enter(session, &came)) {
        status = YB_AGAIN;
    }
    taken.status = (int32_t)status;
    if (yb_shm_note_send(session->socket.fd, &taken, -1) != YB_OK) {
        yb_shm_session_cut(session, false, "the peer does not read its unix socket");
        return;
    }
    yb_shm_host_tell(session, false);
}

/* ---- our regions ----------------------------------------------------------------------------- */

static struct yb_shm_lent *
lent_of(struct yb_shm_session *session, uint64_t region)
{
    for (uint32_t i = 0; i < YB_SHM_LOANS_MAX; i++) {
        if (session->lents[i].region == region) {
            return &session->lents[i];
        }
    }
    return NULL;
}

/* Enter a region to be lent, unless it is there. */
static enum yb_shm_loan
lend_locked(struct yb_shm_session *session, uint64_t region)
{
    struct yb_shm_lent *lent = lent_of(session, region);

    yb_lock_assert_held(&session->host->lock);
    if (lent != NULL) {
        return lent->loan;
    }
    lent = lent_of(session, 0);
    if (lent == NULL) {
        return YB_SHM_LOAN_REFUSED;
    }
    *lent = (struct yb_shm_lent){.region = region, .loan = YB_SHM_LOAN_ASKED, .unsent = true};
    yb_shm_host_work_locked(session);
    return YB_SHM_LOAN_ASKED;
}

enum yb_shm_loan
yb_shm_session_lend(struct yb_shm_session *session, uint64_t region)
{
    struct yb_shm_host *host = session->host;
    enum yb_shm_loan loan;
    bool wake;

    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    YB_ASSERT(region != 0);
    yb_lock_acquire(&host->lock);
    loan = lend_locked(session, region);
    wake = session->working;
    yb_lock_release(&host->lock);
    if (wake) {
        yb_shm_host_wake(host);
    }
    return loan;
}

/* Open a descriptor that only reads. The region is pinned meanwhile, so that the one it comes from
 * is not closed. */
static enum yb_status
open_region(struct yb_shm_host *host, uint64_t region, struct yb_wire_shm_note *note, int *fd_out)
{
    struct yb_region_range range = {.region = region, .length = 1};
    struct yb_region_info info;
    enum yb_status status;
    char path[32];

    if (yb_region_pin(host->regions, &range, 1, YB_REGION_READ) != 0) {
        return range.status;
    }
    status = yb_region_get(host->regions, region, &info);
    if (status == YB_OK && info.backing.fd < 0) {
        status = YB_UNSUPPORTED;
    }
    if (status == YB_OK) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", info.backing.fd);
        *fd_out = open(path, O_RDONLY | O_CLOEXEC);
        status = *fd_out >= 0 ? YB_OK : YB_DENIED;
        note->base = (uintptr_t)info.base;
        note->offset = info.backing.offset;
        note->length = info.length;
    }
    yb_region_unpin(host->regions, &range, 1);
    return status;
}

/* Send a loan. Returns AGAIN if the socket is full. */
static enum yb_status
send_loan(struct yb_shm_session *session, uint64_t region)
{
    struct yb_wire_shm_note note = {.kind = YB_WIRE_SHM_NOTE_KIND_LEND, .region = region};
    enum yb_status status;
    int fd = -1;

    note.status = (int32_t)open_region(session->host, region, &note, &fd);
    status = yb_shm_note_send(session->socket.fd, &note, fd);
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

/* Say what is unsent: what we want, and what we lend. */
void
yb_shm_loan_send(struct yb_shm_session *session)
{
    struct yb_wire_shm_note want = {.kind = YB_WIRE_SHM_NOTE_KIND_WANT};
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < YB_SHM_LOANS_MAX && status == YB_OK; i++) {
        uint64_t wanted;
        uint64_t lent;

        yb_lock_acquire(&session->host->lock);
        wanted = session->views[i].unsent ? session->views[i].region : 0;
        lent = session->lents[i].unsent ? session->lents[i].region : 0;
        session->views[i].unsent = false; /* An answer may come before this returns. */
        session->lents[i].unsent = false;
        yb_lock_release(&session->host->lock);
        if (wanted != 0) {
            want.region = wanted;
            status = yb_shm_note_send(session->socket.fd, &want, -1);
            wanted = status == YB_OK ? 0 : wanted;
        }
        if (lent != 0 && status == YB_OK) {
            status = send_loan(session, lent);
            lent = status == YB_OK ? 0 : lent;
        }
        if (wanted != 0 || lent != 0) {
            yb_lock_acquire(&session->host->lock);
            session->views[i].unsent = wanted != 0;
            session->lents[i].unsent = lent != 0;
            yb_lock_release(&session->host->lock);
        }
    }
    session->host->blocked = session->host->blocked || status == YB_AGAIN;
    /* A lost peer is found out by the end of the socket, which comes as an event. */
}

void
yb_shm_loan_wanted(struct yb_shm_session *session, uint64_t region)
{
    struct yb_wire_shm_note note = {
        .kind = YB_WIRE_SHM_NOTE_KIND_LEND,
        .status = YB_AGAIN,
        .region = region,
    };
    struct yb_shm_lent *lent;
    enum yb_shm_loan loan;

    if (region == 0) {
        yb_shm_session_cut(session, false, "the peer broke the protocol of the unix socket");
        return;
    }
    yb_lock_acquire(&session->host->lock);
    lent = lent_of(session, region);
    if (lent != NULL) {
        *lent = (struct yb_shm_lent){.region = 0}; /* The peer has given it up: once more. */
    }
    loan = lend_locked(session, region);
    yb_lock_release(&session->host->lock);
    if (loan == YB_SHM_LOAN_REFUSED && yb_shm_note_send(session->socket.fd, &note, -1) != YB_OK) {
        yb_shm_session_cut(session, false, "the peer does not read its unix socket");
    }
}

void
yb_shm_loan_taken(struct yb_shm_session *session, const struct yb_wire_shm_note *note)
{
    struct yb_shm_lent *lent;

    if (note->region == 0) {
        return;
    }
    yb_lock_acquire(&session->host->lock);
    lent = lent_of(session, note->region);
    if (lent != NULL && lent->loan == YB_SHM_LOAN_ASKED) {
        lent->loan = note->status == YB_OK ? YB_SHM_LOAN_READY : YB_SHM_LOAN_REFUSED;
    }
    yb_lock_release(&session->host->lock);
    yb_shm_host_tell(session, false);
}

void
yb_shm_loan_sweep(struct yb_shm_session *session)
{
    struct yb_wire_shm_note gone = {.kind = YB_WIRE_SHM_NOTE_KIND_GONE};
    struct yb_region_info info;

    for (uint32_t i = 0; i < YB_SHM_LOANS_MAX; i++) {
        enum yb_status status;
        uint64_t region;
        bool settled;

        yb_lock_acquire(&session->host->lock);
        region = session->lents[i].region;
        settled = session->lents[i].loan != YB_SHM_LOAN_ASKED;
        yb_lock_release(&session->host->lock);
        if (region == 0 || !settled) {
            continue;
        }
        status = yb_region_get(session->host->regions, region, &info);
        if (status == YB_OK || status == YB_BUSY) {
            continue; /* BUSY may become live again. */
        }
        gone.region = region;
        if (yb_shm_note_send(session->socket.fd, &gone, -1) != YB_OK) {
            return; /* At the next sweep, or never: then the session ends. */
        }
        yb_lock_acquire(&session->host->lock);
        session->lents[i] = (struct yb_shm_lent){.region = 0};
        yb_lock_release(&session->host->lock);
    }
}
