/* SPDX-License-Identifier: Apache-2.0
 *
 * Who follows every change: events by number, with a snapshot to begin from.
 */
#include "directory/directory_internal.h"

#include <string.h>

#define SNAPSHOT_VISITS 16384u /* Records that one piece looks at: about a millisecond. */

/* Whether a peer may see what a tenant has: its own, or everything for those who serve all. */
static bool
may_see(struct yb_directory *directory, const struct yb_request *request, uint32_t tenant)
{
    return request->peer->role != YB_WIRE_ROLE_CLIENT || tenant == YB_TENANTS_NONE ||
           tenant == yb_directory_tenant_of(directory, request, false);
}

void
yb_directory_event(struct yb_directory *directory, const struct yb_directory_news *news)
{
    struct yb_event event = {
        .hash = news->hash,
        .grant = news->grant,
        .parent = news->parent,
        .tenant = news->tenant == YB_TENANTS_NONE ? UINT16_MAX : (uint16_t)news->tenant,
        .slot = news->slot,
        .size_code = yb_index_size_encode(news->size),
        .key_bytes = news->key_bytes,
        .kind = news->kind,
        .tier = news->tier,
    };

    yb_events_add(directory->events, &event, news->key);
    if (directory->poll_count > 0) {
        yb_loop_defer(directory->loop, &directory->poll_task);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Write one event to the list; others' blocks are only counted. Returns the bytes of its key, which
 * are written to `key_out`. */
static uint32_t
store_event(struct yb_directory *directory, const struct yb_request *request, uint64_t number,
            uint8_t *out, uint8_t *key_out, uint32_t key_room)
{
    const uint8_t *key;
    const struct yb_event *event = yb_events_at(directory->events, number, &key);
    struct yb_wire_event wire = {.kind = event->kind};
    uint32_t tenant = event->tenant == UINT16_MAX ? YB_TENANTS_NONE : event->tenant;

    if (may_see(directory, request, tenant)) {
        wire.hash = event->hash;
        wire.grant = event->grant;
        wire.parent = event->parent;
        wire.size_code = event->size_code;
        wire.slot = event->slot;
        wire.tier = event->tier;
        if (key != NULL && event->key_bytes <= key_room) {
            memcpy(key_out, key, event->key_bytes);
            wire.key_bytes = event->key_bytes;
        }
    }
    yb_wire_event_store(&wire, out);
    return wire.key_bytes;
}

static void
answer_events(struct yb_directory *directory, struct yb_request *request, uint64_t from,
              uint32_t events_max, enum yb_status status)
{
    /* Keys are gathered behind the longest list of events. */
    uint8_t *keys = directory->list + (size_t)YB_WIRE_EVENTS_MAX * YB_WIRE_EVENT_BYTES;
    uint64_t next = yb_events_next(directory->events);
    struct yb_wire_events answer = {
        .epoch = directory->epoch,
        .first = from,
        .next = next,
        .events = {.wire = directory->list},
        .keys = {.bytes = keys},
    };
    size_t length = 0;

    for (uint64_t number = from;
         status == YB_OK && number < next && answer.events.count < events_max; number++) {
        answer.keys.length +=
            store_event(directory, request, number,
                        directory->list + (size_t)answer.events.count * YB_WIRE_EVENT_BYTES,
                        keys + answer.keys.length, YB_WIRE_EVENTS_KEYS_MAX - answer.keys.length);
        answer.events.count++;
    }
    YB_ASSERT(yb_wire_events_encode(&answer, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    yb_directory_reply(directory, request, status, length);
}

/* Wake up when the first of those that wait has waited long enough. */
static void
arm_poll(struct yb_directory *directory)
{
    uint64_t first_ns = YB_NEVER;

    for (uint32_t i = 0; i < directory->poll_count; i++) {
        uint64_t until_ns = directory->polls[i].until_ns;

        first_ns = until_ns < first_ns ? until_ns : first_ns;
    }
    yb_loop_arm(directory->loop, &directory->poll_timer, first_ns);
}

/* Answer those for whom there is something, or whose time has passed. */
static void
serve_polls(struct yb_directory *directory)
{
    uint64_t next = yb_events_next(directory->events);
    uint64_t first = yb_events_first(directory->events);
    uint64_t now_ns = yb_directory_now(directory);

    for (uint32_t i = 0; i < directory->poll_count;) {
        struct yb_directory_poll poll = directory->polls[i];

        if (poll.from >= next && poll.until_ns > now_ns) {
            i++;
            continue;
        }
        directory->polls[i] = directory->polls[--directory->poll_count];
        answer_events(directory, poll.request, poll.from, poll.events_max,
                      poll.from < first ? YB_STALE : YB_OK);
    }
    arm_poll(directory);
}

void
yb_directory_poll_fired(struct yb_timer *timer)
{
    serve_polls(
        (struct yb_directory *)((uint8_t *)timer - offsetof(struct yb_directory, poll_timer)));
}

void
yb_directory_poll_run(struct yb_task *task)
{
    serve_polls(
        (struct yb_directory *)((uint8_t *)task - offsetof(struct yb_directory, poll_task)));
}

void
yb_directory_handle_events(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_events_question body;
    uint64_t next = yb_events_next(directory->events);

    if (yb_wire_events_question_decode(request->body, request->body_bytes, &body, NULL) != YB_OK ||
        body.events_max == 0) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    if (body.epoch != directory->epoch || body.from < yb_events_first(directory->events) ||
        body.from > next) {
        answer_events(directory, request, next, 0, YB_STALE);
        return;
    }
    if (body.from < next || body.wait_ms == 0 || directory->poll_count == YB_DIRECTORY_POLLS_MAX) {
        answer_events(directory, request, body.from, body.events_max, YB_OK);
        return;
    }
    directory->polls[directory->poll_count++] = (struct yb_directory_poll){
        .request = request,
        .from = body.from,
        .until_ns = yb_directory_now(directory) + body.wait_ms * YB_NS_PER_MS,
        .events_max = body.events_max,
    };
    arm_poll(directory);
}

/* ---- snapshot -------------------------------------------------------------------------------- */

/* Write a block as `stored` events, one for each replica. Returns how many. */
static uint32_t
store_entry(const struct yb_index_entry *entry, uint8_t *out)
{
    for (uint32_t i = 0; i < entry->answer.count; i++) {
        struct yb_wire_event wire = {
            .hash = entry->hash,
            .grant = entry->answer.grant,
            .parent = entry->parent,
            .size_code = entry->answer.size_code,
            .slot = entry->answer.replicas[i].slot,
            .kind = YB_WIRE_EVENT_KIND_STORED,
            .tier = entry->answer.replicas[i].tier,
        };

        yb_wire_event_store(&wire, out + (size_t)i * YB_WIRE_EVENT_BYTES);
    }
    return entry->answer.count;
}

void
yb_directory_handle_snapshot(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_snapshot answer = {
        .epoch = directory->epoch,
        .next = yb_events_next(directory->events),
        .events = {.wire = directory->list},
    };
    struct yb_index_entry entries[YB_DIRECTORY_CHUNK];
    struct yb_wire_snapshot_question body;
    uint32_t visits = 0;
    uint32_t cursor;
    uint32_t wanted;
    size_t length = 0;

    if (yb_wire_snapshot_question_decode(request->body, request->body_bytes, &body, NULL) !=
            YB_OK ||
        body.cursor >= YB_INDEX_SCAN_END || body.records_max == 0) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    cursor = (uint32_t)body.cursor;
    wanted = YB_WIRE_EVENTS_MAX / YB_INDEX_REPLICAS_MAX;
    wanted = body.records_max < wanted ? body.records_max : wanted;
    while (wanted > 0 && visits < SNAPSHOT_VISITS && cursor != YB_INDEX_SCAN_END) {
        uint32_t room = wanted < YB_DIRECTORY_CHUNK ? wanted : YB_DIRECTORY_CHUNK;
        uint32_t count = yb_index_scan(directory->index, yb_directory_now_ms(directory),
                                       YB_INDEX_SLOT_NONE, room, &cursor, entries, room);

        visits += room;
        for (uint32_t i = 0; i < count; i++) {
            if (may_see(directory, request, entries[i].tenant)) {
                answer.events.count +=
                    store_entry(&entries[i], directory->list +
                                                 (size_t)answer.events.count * YB_WIRE_EVENT_BYTES);
                wanted--;
            }
        }
    }
    answer.cursor = cursor == YB_INDEX_SCAN_END ? 0 : cursor;
    YB_ASSERT(yb_wire_snapshot_encode(&answer, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    yb_directory_reply(directory, request, YB_OK, length);
}
