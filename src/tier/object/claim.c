/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/helper.h"

#define CLAIM_MAGIC  0x59434c4du /* "YCLM" */
#define ENTRIES      256u
#define OLD_MAX      64u /* Marks that are deleted at a time: a claim makes one and leaves none. */
#define TENANTS_MAX  4096u
#define HELPERS      1u
#define HELPER_QUEUE 4u

enum claim_step { LIST_MARKS, PUT_MARK, DELETE_OLD, LIST_FLUSHES };

struct yb_object_claim {
    uint32_t magic;
    struct yb_object_claim_options options;
    struct yb_object_mark mine; /* A look's: what was found. */
    struct yb_object_backend *backend;
    struct yb_helper_pool *pool;
    struct yb_object_request request;
    struct yb_object_entry *entries;
    void *cursor; /* Of a list that goes on. */
    enum claim_step step;
    bool flying;
    bool cancelled;
    bool is_there;   /* A mark of ours that is new enough: ... */
    uint64_t latest; /* ... its epoch. */
    bool others;
    struct yb_object_mark other;
    uint64_t old[OLD_MAX]; /* Epochs of our marks. */
    uint32_t old_count;
    struct yb_object_flushed *flushed;
    uint32_t flushed_count;
    char why[YB_OBJECT_WHY_BYTES];
};

static const char mark_text[] = "This store belongs to a Yuebing cluster: see its name.\n";

static void fly(struct yb_object_claim *claim, enum claim_step step);

static void
over(struct yb_object_claim *claim, enum yb_status status)
{
    claim->options.done(claim->options.context, status, claim->why);
}

/* ---- what is there --------------------------------------------------------------------------- */

static bool
looks(const struct yb_object_claim *claim)
{
    return claim->options.mine == NULL;
}

static bool
same_cluster(const struct yb_object_mark *a, const struct yb_object_mark *b)
{
    return yb_id_equal(a->cluster, b->cluster) && yb_id_equal(a->seed, b->seed);
}

static void
take_mark(struct yb_object_claim *claim, const struct yb_object_mark *mark)
{
    if (looks(claim) && claim->mine.epoch == 0) {
        claim->mine = *mark;
    } else if (!same_cluster(&claim->mine, mark)) {
        claim->others = true;
        claim->other = *mark;
    } else if (looks(claim)) {
        claim->mine.epoch = mark->epoch > claim->mine.epoch ? mark->epoch : claim->mine.epoch;
    } else if (mark->epoch >= claim->mine.epoch) {
        claim->is_there = true;
        claim->latest = mark->epoch > claim->latest ? mark->epoch : claim->latest;
    } else if (claim->old_count < OLD_MAX) {
        claim->old[claim->old_count++] = mark->epoch;
    }
}

static enum yb_status
take_flush(struct yb_object_claim *claim, const struct yb_object_name *name)
{
    struct yb_object_flushed *flushed = NULL;

    for (uint32_t i = 0; i < claim->flushed_count && flushed == NULL; i++) {
        if (strcmp(claim->flushed[i].tenant, name->tenant) == 0) {
            flushed = &claim->flushed[i];
        }
    }
    if (flushed == NULL) {
        if (claim->flushed_count == TENANTS_MAX) {
            (void)snprintf(claim->why, sizeof(claim->why),
                           "the object store has flush markers of more than %u tenants",
                           TENANTS_MAX);
            return YB_NO_SPACE;
        }
        flushed = &claim->flushed[claim->flushed_count++];
        memcpy(flushed->tenant, name->tenant, sizeof(flushed->tenant));
        flushed->flush = 0;
    }
    flushed->flush = name->flush > flushed->flush ? name->flush : flushed->flush;
    return YB_OK;
}

static enum yb_status
take_page(struct yb_object_claim *claim)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; status == YB_OK && i < claim->request.entry_count; i++) {
        struct yb_object_name name;

        if (!yb_object_name_parse(claim->entries[i].name, &name)) {
            continue;
        }
        if (name.kind == YB_OBJECT_IS_CLUSTER && claim->step == LIST_MARKS) {
            const struct yb_object_mark mark = {name.cluster, name.seed, name.epoch};

            take_mark(claim, &mark);
        } else if (name.kind == YB_OBJECT_IS_FLUSH && claim->step == LIST_FLUSHES) {
            status = take_flush(claim, &name);
        }
    }
    return status;
}

/* ---- what comes next ------------------------------------------------------------------------- */

static void
refuse(struct yb_object_claim *claim)
{
    char mine[33], other[33];

    yb_id_format(claim->mine.cluster, mine);
    yb_id_format(claim->other.cluster, other);
    (void)snprintf(claim->why, sizeof(claim->why),
                   looks(claim)
                       ? "the object store has marks of two clusters, %s and %s: remove the one "
                         "that is not to have it from below " YB_OBJECT_CLUSTER_ROOT
                       : "this is cluster %s, and the object store belongs to cluster %s: give "
                         "each a bucket, prefix or folder of its own; if that one is no more, "
                         "remove its mark from below " YB_OBJECT_CLUSTER_ROOT,
                   mine, other);
    over(claim, YB_REFUSED);
}

/* All marks are known. */
static void
decide(struct yb_object_claim *claim)
{
    if (claim->others) {
        refuse(claim);
    } else if (looks(claim) && claim->mine.epoch == 0) {
        over(claim, YB_NOT_FOUND);
    } else if (looks(claim)) {
        fly(claim, LIST_FLUSHES);
    } else if (claim->latest > claim->mine.epoch) {
        (void)snprintf(claim->why, sizeof(claim->why),
                       "a later directory has gone on as this cluster, with epoch %llu, where "
                       "this one has %llu: end one of the two",
                       (unsigned long long)claim->latest, (unsigned long long)claim->mine.epoch);
        over(claim, YB_STALE);
    } else if (!claim->is_there) {
        fly(claim, PUT_MARK);
    } else if (claim->old_count > 0) {
        fly(claim, DELETE_OLD);
    } else {
        over(claim, YB_OK);
    }
}

static void
begin_list(struct yb_object_claim *claim, enum claim_step step)
{
    claim->is_there = claim->others = false;
    claim->latest = 0;
    claim->old_count = 0;
    fly(claim, step);
}

static void
failed(struct yb_object_claim *claim, enum yb_status status)
{
    if (claim->cursor != NULL) {
        claim->request.cursor = claim->cursor;
        claim->backend->ops->end_list(claim->backend, &claim->request);
        claim->cursor = NULL;
    }
    if (claim->why[0] == '\0') {
        (void)snprintf(claim->why, sizeof(claim->why), "%s",
                       claim->request.why[0] != '\0' ? claim->request.why : yb_status_text(status));
    }
    over(claim, status);
}

static void
on_done(struct yb_object_request *request, enum yb_status status)
{
    struct yb_object_claim *claim =
        (struct yb_object_claim *)((uint8_t *)request - offsetof(struct yb_object_claim, request));
    bool lists = claim->step == LIST_MARKS || claim->step == LIST_FLUSHES;

    YB_ASSERT_OBJ(claim, CLAIM_MAGIC);
    claim->flying = false;
    status = claim->cancelled ? YB_CANCELLED : status;
    if (status == YB_OK && lists) {
        claim->cursor = request->more ? request->cursor : NULL;
        status = take_page(claim);
    }
    if (status != YB_OK) {
        failed(claim, status);
    } else if (lists && claim->cursor != NULL) {
        fly(claim, claim->step);
    } else if (claim->step == LIST_MARKS) {
        decide(claim);
    } else if (claim->step == LIST_FLUSHES) {
        over(claim, YB_OK);
    } else if (claim->step == PUT_MARK) {
        begin_list(claim, LIST_MARKS); /* W1 */
    } else if (--claim->old_count > 0) {
        fly(claim, DELETE_OLD);
    } else {
        over(claim, YB_OK);
    }
}

static void
fly(struct yb_object_claim *claim, enum claim_step step)
{
    static const enum yb_object_verb verbs[] = {
        [LIST_MARKS] = YB_OBJECT_LIST,
        [PUT_MARK] = YB_OBJECT_PUT,
        [DELETE_OLD] = YB_OBJECT_DELETE,
        [LIST_FLUSHES] = YB_OBJECT_LIST,
    };
    struct yb_object_request *request = &claim->request;
    struct yb_object_name name = {
        .kind = YB_OBJECT_IS_CLUSTER,
        .cluster = claim->mine.cluster,
        .seed = claim->mine.seed,
        .epoch = step == DELETE_OLD ? claim->old[claim->old_count - 1] : claim->mine.epoch,
    };

    claim->step = step;
    *request = (struct yb_object_request){
        .done = on_done,
        .verb = verbs[step],
        .deadline_ns = claim->options.deadline_ns,
    };
    if (verbs[step] == YB_OBJECT_LIST) {
        request->entries = claim->entries;
        request->entries_max = ENTRIES;
        request->cursor = claim->cursor;
        (void)snprintf(request->name, sizeof(request->name), "%s",
                       step == LIST_MARKS ? YB_OBJECT_CLUSTER_ROOT : YB_OBJECT_FLUSH_ROOT);
    } else {
        YB_ASSERT(yb_object_name_format(&name, request->name) == YB_OK);
        if (step == PUT_MARK) {
            request->bytes.lead =
                (struct iovec){(void *)(uintptr_t)mark_text, sizeof(mark_text) - 1};
        }
    }
    claim->flying = true;
    YB_ASSERT(claim->backend->ops->submit(claim->backend, request) == YB_OK);
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_object_claim_begin(const struct yb_object_claim_options *options,
                      struct yb_object_claim **claim_out, char why_out[YB_OBJECT_WHY_BYTES])
{
    struct yb_object_claim *claim = calloc(1, sizeof(*claim));
    enum yb_status status = claim != NULL ? YB_OK : YB_NO_MEMORY;

    (void)snprintf(why_out, YB_OBJECT_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
    if (claim == NULL) {
        if (options->backend != NULL) {
            options->backend->ops->destroy(options->backend);
        }
        return status;
    }
    claim->magic = CLAIM_MAGIC;
    claim->options = *options;
    claim->backend = options->backend;
    if (options->mine != NULL) {
        claim->mine = *options->mine;
        YB_ASSERT(claim->mine.epoch != 0);
    }
    claim->entries = calloc(ENTRIES, sizeof(*claim->entries));
    claim->flushed = calloc(looks(claim) ? TENANTS_MAX : 1, sizeof(*claim->flushed));
    if (claim->entries == NULL || claim->flushed == NULL) {
        status = YB_NO_MEMORY;
    }
    if (status == YB_OK && claim->backend == NULL) {
        status = yb_helper_pool_create(HELPERS, HELPER_QUEUE, &claim->pool);
        status = status == YB_OK ? yb_object_backend_open(options->url, options->loop, claim->pool,
                                                          &claim->backend, why_out)
                                 : status;
    }
    if (status != YB_OK) {
        yb_object_claim_end(&claim);
        return status;
    }
    begin_list(claim, LIST_MARKS);
    *claim_out = claim;
    return YB_OK;
}

void
yb_object_claim_cancel(struct yb_object_claim *claim)
{
    YB_ASSERT_OBJ(claim, CLAIM_MAGIC);
    claim->cancelled = true;
    if (claim->flying) {
        claim->backend->ops->cancel(claim->backend, &claim->request);
    }
}

const struct yb_object_mark *
yb_object_claim_mark(const struct yb_object_claim *claim)
{
    YB_ASSERT_OBJ(claim, CLAIM_MAGIC);
    return &claim->mine;
}

const struct yb_object_flushed *
yb_object_claim_flushed(const struct yb_object_claim *claim, uint32_t *count_out)
{
    YB_ASSERT_OBJ(claim, CLAIM_MAGIC);
    *count_out = claim->flushed_count;
    return claim->flushed;
}

void
yb_object_claim_end(struct yb_object_claim **claim_ref)
{
    struct yb_object_claim *claim = *claim_ref;

    if (claim == NULL) {
        return;
    }
    YB_ASSERT_OBJ(claim, CLAIM_MAGIC);
    YB_ASSERT(!claim->flying);
    if (claim->backend != NULL) {
        claim->backend->ops->destroy(claim->backend);
    }
    if (claim->pool != NULL) {
        yb_helper_pool_destroy(&claim->pool);
    }
    claim->magic = 0;
    free(claim->flushed);
    free(claim->entries);
    free(claim);
    *claim_ref = NULL;
}
