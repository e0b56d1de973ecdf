/* SPDX-License-Identifier: Apache-2.0
 *
 * dashboard.h -- a page that shows the cluster, at / of the admin port, and what it is drawn from.
 *
 *     GET /                      the page; /dashboard.css, /dashboard.js, /chart.js belong to it
 *     GET /v1/cluster            the latest sample (gather.h)
 *     GET /v1/cluster/stream     samples as server-sent events, those that are kept first
 *     GET /v1/events?after=N     the last lines of this process's log
 *
 * The page is the three files in `dashboard/` and Chart.js (MIT), put into the program by the
 * build. It asks nobody but the port it came from, and changes nothing.
 *
 * Invariants
 *   D1  At most YB_EVENTS_LISTENERS_MAX streams at a time (events.h); one whose listener does not
 *       read is cut by the port's idle time, and misses samples before that.
 *
 * Threads   create, stop and destroy: one thread. yb_dashboard_answer: the port's threads.
 * Memory    The log is borrowed for its life; addresses are copied.
 */
#ifndef YB_OBSERVE_DASHBOARD_H
#define YB_OBSERVE_DASHBOARD_H

#include "base/log.h"
#include "observe/gather.h"
#include "observe/http.h"

struct yb_dashboard;

/* Make what answers; nothing is gathered yet. NULL: no memory. `log` may be NULL. */
struct yb_dashboard *yb_dashboard_create(struct yb_log *log);

/* Gather, now that the port has an address; once. Where there is no libcurl the page says so, and
 * that is OK. Fails as yb_gather_create() does otherwise. */
YB_CHECKED enum yb_status yb_dashboard_begin(struct yb_dashboard *dashboard,
                                             const struct yb_gather_options *options,
                                             char why_out[YB_GATHER_WHY_BYTES]);

/* End all streams soon: before the port is closed, which waits for them. */
void yb_dashboard_stop(struct yb_dashboard *dashboard);

/* After the port is closed; sets *dashboard to NULL. */
void yb_dashboard_destroy(struct yb_dashboard **dashboard);

/* Answer one of the paths above; false: it is none of them. For yb_http_source. */
bool yb_dashboard_answer(void *dashboard, const struct yb_http_asked *asked,
                         struct yb_http_told *told_out);

#endif /* YB_OBSERVE_DASHBOARD_H */
