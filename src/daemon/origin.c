/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/process_internal.h"
#include "tier/object/claim.h"

#define LOOK_NS  (10 * YB_NS_PER_S)
#define AGAIN_NS (500 * YB_NS_PER_MS)

struct yb_origin {
    struct yb_directory_known known;
    struct yb_object_flushed *flushed; /* Owns the names. */
    struct yb_directory_flushed *list;
};

/* One look. */
struct look {
    struct yb_object_claim *claim;
    bool over;
    enum yb_status status;
    char why[YB_OBJECT_WHY_BYTES];
};

static void
on_done(void *context, enum yb_status status, const char *why)
{
    struct look *look = context;

    look->over = true;
    look->status = status;
    (void)snprintf(look->why, sizeof(look->why), "%s", why);
}

static enum yb_status
keep(const struct yb_object_claim *claim, struct yb_origin **origin_out)
{
    const struct yb_object_mark *mark = yb_object_claim_mark(claim);
    struct yb_origin *origin = calloc(1, sizeof(*origin));
    const struct yb_object_flushed *flushed;
    uint32_t count;

    if (origin == NULL) {
        return YB_NO_MEMORY;
    }
    flushed = yb_object_claim_flushed(claim, &count);
    origin->flushed = calloc(count + 1, sizeof(*origin->flushed));
    origin->list = calloc(count + 1, sizeof(*origin->list));
    if (origin->flushed == NULL || origin->list == NULL) {
        yb_origin_free(&origin);
        return YB_NO_MEMORY;
    }
    memcpy(origin->flushed, flushed, count * sizeof(*flushed));
    origin->known = (struct yb_directory_known){
        .cluster = mark->cluster, .epoch = mark->epoch, .flushed = origin->list};
    memcpy(origin->known.seed, mark->seed.bytes, sizeof(origin->known.seed));
    for (uint32_t i = 0; i < count; i++) {
        if (origin->flushed[i].tenant[0] != '\0') {
            origin->list[origin->known.flushed_count++] =
                (struct yb_directory_flushed){origin->flushed[i].tenant, origin->flushed[i].flush};
        }
    }
    *origin_out = origin;
    return YB_OK;
}

static void
look_once(struct yb_loop *loop, const char *url, uint64_t until_ns, struct look *look)
{
    const struct yb_object_claim_options options = {
        .loop = loop,
        .url = url,
        .deadline_ns = until_ns,
        .done = on_done,
        .context = look,
    };

    look->over = false;
    look->status = yb_object_claim_begin(&options, &look->claim, look->why);
    while (look->status == YB_OK && !look->over) {
        yb_loop_turn(loop, AGAIN_NS);
    }
}

/* Let time pass. */
static void
rest(struct yb_loop *loop, uint64_t ns)
{
    uint64_t until_ns = yb_loop_now(loop) + ns;

    for (uint64_t now = until_ns - ns; now < until_ns; now = yb_loop_now(loop)) {
        yb_loop_turn(loop, until_ns - now);
    }
}

enum yb_status
yb_origin_look(const struct yb_process *process, const char *url, const char *cluster_file,
               struct yb_origin **origin_out, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_loop_options loop_options;
    struct yb_net_options net_options;
    struct yb_loop *loop = NULL;
    struct look look = {.over = false};
    enum yb_status status;
    uint64_t until_ns;

    *origin_out = NULL;
    if (cluster_file != NULL && cluster_file[0] != '\0' && access(cluster_file, F_OK) == 0) {
        return YB_OK;
    }
    yb_process_net_options(process, &loop_options, &net_options);
    loop_options.spin_us = 0;
    status = yb_loop_create(&loop_options, &loop);
    if (status != YB_OK) {
        yb_process_explain_net(process, status, why_out);
        return status;
    }
    until_ns = yb_loop_now(loop) + LOOK_NS;
    look_once(loop, url, until_ns, &look);
    while (yb_object_retryable(look.status) && yb_loop_now(loop) + AGAIN_NS < until_ns) {
        yb_object_claim_end(&look.claim);
        rest(loop, AGAIN_NS);
        look_once(loop, url, until_ns, &look);
    }
    status = look.status == YB_OK ? keep(look.claim, origin_out) : look.status;
    yb_object_claim_end(&look.claim);
    yb_loop_destroy(&loop);
    if (status == YB_NOT_FOUND) {
        return YB_OK; /* Nobody's. */
    }
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES,
                       "there is no cluster file, and the object store cannot be asked whose it "
                       "is: %s; see that it answers, or start without it",
                       status == YB_NO_MEMORY ? "no memory" : look.why);
    }
    return status;
}

const struct yb_directory_known *
yb_origin_known(const struct yb_origin *origin)
{
    return origin != NULL ? &origin->known : NULL;
}

void
yb_origin_free(struct yb_origin **origin_ref)
{
    struct yb_origin *origin = *origin_ref;

    if (origin == NULL) {
        return;
    }
    free(origin->list);
    free(origin->flushed);
    free(origin);
    *origin_ref = NULL;
}
