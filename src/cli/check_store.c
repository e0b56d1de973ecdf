/* SPDX-License-Identifier: Apache-2.0
 *
 * Which blocks are in the store that were not there before.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/check.h"
#include "cli/measure.h"

#define PAUSE_NS      (100 * YB_NS_PER_MS)
#define STILL_NEEDED  3u /* Listings that are alike. */
#define ROOM_AT_FIRST 256u

struct walk {
    struct yb_check_view *view;
    uint64_t since;
    uint32_t room;
    bool no_memory;
};

static bool
grow(struct walk *walk)
{
    uint32_t room = walk->room == 0 ? ROOM_AT_FIRST : 2 * walk->room;
    struct yb_check_block *blocks = realloc(walk->view->blocks, room * sizeof(*blocks));

    if (blocks == NULL) {
        return false;
    }
    walk->view->blocks = blocks;
    walk->room = room;
    return true;
}

static bool
visit(void *context, const struct yb_client_entry *entry)
{
    struct walk *walk = context;
    struct yb_check_view *view = walk->view;
    struct yb_check_block *block;

    view->newest = entry->grant > view->newest ? entry->grant : view->newest;
    if (entry->grant <= walk->since) {
        return true;
    }
    if (view->count == YB_CHECK_BLOCKS_MAX) {
        view->more = true;
        return true;
    }
    if (view->count == walk->room && !grow(walk)) {
        walk->no_memory = true;
        return false;
    }
    block = &view->blocks[view->count];
    *block = (struct yb_check_block){
        .key = malloc(entry->key_bytes),
        .key_bytes = entry->key_bytes,
        .size = entry->size,
        .grant = entry->grant,
        .idle_ms = entry->idle_ms,
        .tier = entry->tier,
    };
    if (block->key == NULL) {
        walk->no_memory = true;
        return false;
    }
    memcpy(block->key, entry->key, entry->key_bytes);
    snprintf(block->node, sizeof(block->node), "%s", entry->node);
    view->count++;
    return true;
}

int
yb_check_by_key(const void *a, const void *b)
{
    const struct yb_check_block *x = a;
    const struct yb_check_block *y = b;
    uint32_t length = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int order = memcmp(x->key, y->key, length);

    if (order != 0) {
        return order;
    }
    return x->key_bytes < y->key_bytes ? -1 : x->key_bytes > y->key_bytes;
}

enum yb_status
yb_check_view(struct yb_client *client, uint64_t since, uint64_t timeout_ns,
              struct yb_check_view *view_out)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = timeout_ns};
    struct yb_check_view view = {.begun_ns = yb_measure_now_ns()};
    struct walk walk = {.view = &view, .since = since};
    enum yb_status status = yb_client_list(client, YB_CLIENT_MATCH_ALL, NULL, &call, visit, &walk);

    status = walk.no_memory ? YB_NO_MEMORY : status;
    if (status != YB_OK) {
        yb_check_view_fini(&view);
        return status;
    }
    if (view.count > 1) {
        qsort(view.blocks, view.count, sizeof(*view.blocks), yb_check_by_key);
    }
    *view_out = view;
    return YB_OK;
}

void
yb_check_view_fini(struct yb_check_view *view)
{
    for (uint32_t i = 0; i < view->count; i++) {
        free(view->blocks[i].key);
    }
    free(view->blocks);
    *view = (struct yb_check_view){0};
}

enum yb_status
yb_check_settle(struct yb_client *client, uint64_t since, uint64_t timeout_ns, uint64_t settle_ns,
                struct yb_check_view *view_out, uint64_t *still_ns_out)
{
    const struct timespec pause = {.tv_nsec = (long)PAUSE_NS};
    uint64_t end_ns = yb_measure_now_ns() + settle_ns;
    struct yb_check_view view = {0};
    uint32_t alike = 0;
    uint64_t still_ns = 0;
    enum yb_status status;

    do {
        uint32_t count = view.count;

        (void)ppoll(NULL, 0, &pause, NULL);
        yb_check_view_fini(&view);
        status = yb_check_view(client, since, timeout_ns, &view);
        if (view.count != count || still_ns == 0) {
            alike = 0;
            still_ns = yb_measure_now_ns();
        }
        alike++;
    } while (status == YB_OK && (alike < STILL_NEEDED || view.count == 0) &&
             yb_measure_now_ns() < end_ns);
    if (status == YB_OK) {
        *view_out = view;
        *still_ns_out = still_ns;
    }
    return status;
}
