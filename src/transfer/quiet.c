/* SPDX-License-Identifier: Apache-2.0
 *
 * Quiet at both ends of a peer: every path says that nothing of what it carried can land any more,
 * and drivers have ended what they did not end in time.
 */
#include <stdlib.h>

#include "base/check.h"
#include "transfer/engine_internal.h"
#include "transfer/remote.h"

#define QUARANTINE_LOOK_NS YB_NS_PER_MS

struct quieting {
    struct yb_remote *remote;
    uint32_t left;
    enum yb_status status;
    uint64_t deadline_ns;
    struct yb_timer timer; /* Looks for what is quarantined. */
    void (*done)(void *owner, enum yb_status status);
    void *owner;
};

static void
on_path_quiet(void *owner, enum yb_status status)
{
    struct quieting *quieting = owner;
    struct yb_remote *remote = quieting->remote;

    quieting->status = quieting->status == YB_OK ? status : quieting->status;
    if (--quieting->left > 0) {
        return;
    }
    quieting->done(quieting->owner, quieting->status);
    free(quieting);
    remote->references--;
    yb_remote_check_gone(remote);
}

/* Wait until drivers have ended what they did not end in time (G4 of stage.h), and what they copy
 * straight to the peer (X2 of across.h). */
static void
look_at_quarantine(struct quieting *quieting)
{
    struct yb_remote *remote = quieting->remote;
    uint64_t now = yb_loop_now(remote->worker->loop);

    if (remote->quarantined == 0 && remote->across == 0) {
        on_path_quiet(quieting, YB_OK);
    } else if (now >= quieting->deadline_ns) {
        on_path_quiet(quieting, YB_TIMED_OUT);
    } else {
        yb_loop_arm(remote->worker->loop, &quieting->timer,
                    yb_deadline_after(now, QUARANTINE_LOOK_NS));
    }
}

static void
on_quarantine_timer(struct yb_timer *timer)
{
    look_at_quarantine((struct quieting *)((uint8_t *)timer - offsetof(struct quieting, timer)));
}

void
yb_remote_quiesce(struct yb_remote *remote, uint64_t deadline_ns,
                  void (*done)(void *owner, enum yb_status status), void *owner)
{
    struct quieting *quieting = calloc(1, sizeof(*quieting));

    if (quieting == NULL) {
        done(owner, YB_NO_MEMORY);
        return;
    }
    quieting->remote = remote;
    quieting->done = done;
    quieting->owner = owner;
    quieting->left = 1;
    quieting->deadline_ns = deadline_ns;
    yb_timer_init(&quieting->timer, on_quarantine_timer);
    remote->references++;
    for (uint32_t i = 0; i < YB_REMOTE_PATHS_MAX; i++) {
        if (remote->paths[i] != NULL) {
            quieting->left++;
            remote->paths[i]->ops->quiesce(remote->paths[i], deadline_ns, on_path_quiet, quieting);
        }
    }
    look_at_quarantine(quieting);
}
