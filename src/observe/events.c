/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/events.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define COME_AGAIN_S 10u

struct stream {
    struct yb_events *events;
    struct yb_events_source source;
    const char *text; /* Of the piece that is being sent. */
    size_t length;    /* Of it that is left. */
};

static long
read_stream(void *owner, char *out, size_t room)
{
    struct stream *stream = owner;
    size_t some;

    YB_ASSERT(room > 0);
    while (stream->length == 0) {
        if (!stream->source.next(stream->source.owner, &stream->text, &stream->length)) {
            return -1;
        }
    }
    some = stream->length < room ? stream->length : room;
    memcpy(out, stream->text, some);
    stream->text += some;
    stream->length -= some;
    return (long)some;
}

static void
close_stream(void *owner)
{
    struct stream *stream = owner;
    uint32_t listeners;

    stream->source.close(stream->source.owner);
    listeners = atomic_fetch_sub(&stream->events->listeners, 1);
    YB_ASSERT(listeners > 0);
    free(stream);
}

void
yb_events_listen(struct yb_events *events, const struct yb_events_source *source,
                 struct yb_http_told *told_out)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    if (atomic_fetch_add(&events->listeners, 1) >= events->listeners_max || /* E1 */
        stream == NULL) {
        (void)atomic_fetch_sub(&events->listeners, 1);
        free(stream);
        source->close(source->owner);
        *told_out = yb_http_refusal(503, YB_AGAIN, "as many listen as there is room for");
        told_out->retry_after_s = COME_AGAIN_S;
        return;
    }
    stream->events = events;
    stream->source = *source;
    *told_out = (struct yb_http_told){
        .code = 200,
        .type = "text/event-stream",
        .read = read_stream,
        .close = close_stream,
        .stream = stream,
    };
}
