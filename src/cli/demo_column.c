/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo_run.h"

#define SETTLE_NS (30 * YB_NS_PER_S) /* Until engines have stored, and told, everything. */
#define LOOK_NS   (50 * YB_NS_PER_MS)

/* ---- requests -------------------------------------------------------------------------------- */

static int
compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static void
add_moves(struct yb_demo_moves *sum, const struct yb_demo_moves *moves)
{
    sum->in_time += moves->in_time;
    sum->late += moves->late;
    sum->otherwise += moves->otherwise;
}

static void
add_one(struct yb_demo_column *column, const struct yb_demo_served *one,
        const struct yb_sched_cost *cost)
{
    uint64_t tokens = one->prompt_tokens;
    uint64_t reused = (uint64_t)one->device_tokens + one->loaded_tokens;
    uint64_t loaded_bytes = 0;

    for (uint32_t i = 0; i < YB_DEMO_TIERS; i++) {
        loaded_bytes += one->tier_bytes[i];
    }
    column->prompt_tokens += tokens;
    column->hit[YB_SCHED_TIER_DEVICE] += one->device_tokens;
    for (uint32_t i = YB_SCHED_TIER_DRAM; i < YB_DEMO_TIERS && loaded_bytes > 0; i++) {
        column->hit[i] +=
            (double)one->loaded_tokens * (double)one->tier_bytes[i] / (double)loaded_bytes;
    }
    column->saved_s +=
        (yb_sched_prefill_ns(cost, tokens, 0) - yb_sched_prefill_ns(cost, tokens, reused)) / 1e9;
    column->pulled_bytes += one->pulled_bytes;
    column->pull_us += one->pull_us;
    column->load_predicted_us += one->predicted_us;
    add_moves(&column->fetches, &one->fetches);
    add_moves(&column->streams, &one->streams);
    column->load_us += one->load_us;
    column->ttft_predicted_ns += (double)one->predicted_ttft_ns;
    column->ttft_measured_ns += (double)one->measured_ttft_ns;
    column->ttft_mean_ns += (double)one->ttft_ns;
    column->ttft_ns[column->answered++] = one->ttft_ns;
}

bool
yb_demo_column_add_up(struct yb_demo_column *column, const struct yb_demo_served *served,
                      const struct yb_sched_cost *cost)
{
    column->ttft_ns = calloc(column->asked, sizeof(*column->ttft_ns));
    if (column->ttft_ns == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < column->asked; i++) {
        column->retried += served[i].tries > 1;
        if (served[i].answered) {
            add_one(column, &served[i], cost);
        } else if (column->unanswered[0] == '\0') {
            (void)snprintf(column->unanswered, sizeof(column->unanswered),
                           "request %u was not answered, asked %u times; %s", i, served[i].tries,
                           served[i].why);
        }
    }
    for (uint32_t i = 0; i < YB_DEMO_TIERS && column->prompt_tokens > 0; i++) {
        column->hit[i] /= (double)column->prompt_tokens;
    }
    column->ttft_mean_ns /= column->answered > 0 ? column->answered : 1;
    qsort(column->ttft_ns, column->answered, sizeof(*column->ttft_ns), compare);
    return true;
}

uint64_t
yb_demo_ttft(const struct yb_demo_column *column, double share)
{
    uint32_t at = (uint32_t)(share * column->answered);

    if (column->answered == 0) {
        return 0;
    }
    return column->ttft_ns[at < column->answered ? at : column->answered - 1];
}

void
yb_demo_column_fini(struct yb_demo_column *column)
{
    free(column->ttft_ns);
    column->ttft_ns = NULL;
}

/* ---- what the processes counted -------------------------------------------------------------- */

static void
add_engine(struct yb_demo_column *column, const json_t *told)
{
    static const char *const tiers[YB_DEMO_TIERS] = {"device", "dram", "ssd", "object"};

    column->stored_bytes += yb_ask_number(told, "stored_bytes");
    column->verified_bytes += yb_ask_number(told, "verified_bytes");
    column->wrong_bytes += yb_ask_number(told, "wrong_bytes");
    column->load_failures += yb_ask_number(told, "load_failures");
    column->store_failures += yb_ask_number(told, "store_failures");
    column->dropped_stores += yb_ask_number(told, "dropped_stores");
    for (uint32_t i = 0; i < YB_DEMO_TIERS; i++) {
        column->tier_bytes[i] += yb_ask_number(json_object_get(told, "tier_came_bytes"), tiers[i]);
        column->tier_busy_ns[i] += yb_ask_number(json_object_get(told, "tier_busy_ns"), tiers[i]);
    }
}

/* Whether an engine has stored what it will; false: not yet, or it does not answer. What it holds
 * for an engine that never asked, as its link was cut, may still be there. */
static bool
engine_settled(struct yb_curl *curl, const struct yb_demo_engine *engine)
{
    json_t *told = yb_ask_by(curl, engine->http, "/v1/engine", NULL, NULL);
    bool settled = told != NULL && yb_ask_number(told, "stores") == 0;

    json_decref(told);
    return settled;
}

/* Add a conductor's account; false: something of it is not over yet, or it does not answer. */
static bool
add_audit(struct yb_demo_column *column, struct yb_curl *curl, const char *http)
{
    json_t *told = yb_ask_by(curl, http, "/v1/audit", NULL, NULL);
    uint64_t open = yb_ask_number(told, "open");
    uint64_t watched = yb_ask_number(json_object_get(told, "open_for"), "watched");
    bool settled;

    watched = watched < open ? watched : open;
    column->issued += yb_ask_number(told, "issued");
    column->terminal += yb_ask_number(told, "terminal");
    column->watched += watched;
    column->open += open - watched;
    settled = told != NULL && open == watched && yb_ask_number(told, "requests") == 0;
    json_decref(told);
    return settled;
}

static bool
conductors_settled(struct yb_demo_column *column, const struct yb_demo_cluster *cluster,
                   struct yb_curl *curl)
{
    bool settled = true;

    column->issued = column->terminal = column->watched = column->open = 0;
    for (uint32_t i = 0; i < cluster->conductor_count; i++) {
        settled = add_audit(column, curl, cluster->conductors[i]) && settled;
    }
    return settled;
}

bool
yb_demo_column_ask(struct yb_demo_column *column, struct yb_demo_cluster *cluster,
                   struct yb_curl *curl)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t until_ns = yb_clock_now(clock) + SETTLE_NS;
    bool settled = false;

    while (!settled && yb_clock_now(clock) < until_ns) {
        settled = conductors_settled(column, cluster, curl);
        for (uint32_t i = 0; i < YB_DEMO_ENGINES && settled; i++) {
            settled =
                cluster->engines[i].http[0] == '\0' || engine_settled(curl, &cluster->engines[i]);
        }
        if (!settled) {
            yb_demo_pause(LOOK_NS);
        }
    }
    for (uint32_t i = 0; i < YB_DEMO_ENGINES; i++) {
        json_t *told = yb_ask_by(curl, cluster->engines[i].http, "/v1/engine", NULL, NULL);

        add_engine(column, told);
        json_decref(told);
    }
    column->conductors = cluster->conductor_count;
    for (uint32_t i = 0; i < cluster->conductor_count; i++) {
        json_t *told = yb_ask_by(curl, cluster->conductors[i], "/v1/conductor", NULL, NULL);

        column->decisions[i] = yb_ask_number(told, "decisions");
        json_decref(told);
    }
    if (!settled) {
        (void)snprintf(cluster->why, sizeof(cluster->why),
                       "engines and conductors did not come to rest within 30 s");
    }
    return settled;
}
