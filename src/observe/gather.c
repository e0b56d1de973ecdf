/* SPDX-License-Identifier: Apache-2.0
 *
 * Three parts: what is asked of one port, how the answers become a sample, and the samples that are
 * kept, which are all that threads share.
 */
#include "observe/gather.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/lock.h"
#include "net/curl.h"
#include "observe/series.h"

#define GATHER_MAGIC   0x67617468u
#define WHERE_BYTES    128u
#define NAME_BYTES     64u
#define ANSWER_MAX     (4u << 20)
#define FEED_MAX       256u /* Events, or instructions, of one process in one sample. */
#define CONNECT_NS     (300 * YB_NS_PER_MS)
#define ASK_NS         YB_NS_PER_S
#define AGAIN_NS       (5 * YB_NS_PER_S)  /* T2 */
#define LACKING_NS     (60 * YB_NS_PER_S) /* Until a path that was not there is tried again. */
#define LOOKED_AT_NS   (30 * YB_NS_PER_S)
#define PERIOD_NS      YB_NS_PER_S
#define PERIOD_IDLE_NS (10 * YB_NS_PER_S)

/* Lists that a port may have. Those that are fed come in pieces, each asked for after a number. */
enum list { LIST_EVENTS, LIST_INSTRUCTIONS, LISTS_FED, LIST_INSTANCES = LISTS_FED, LISTS };

static const struct {
    const char *name; /* Of the member that is an array. */
    const char *path;
} lists[LISTS] = {
    [LIST_EVENTS] = {"events", "/v1/events?after="},
    [LIST_INSTRUCTIONS] = {"instructions", "/v1/instructions?after="},
    [LIST_INSTANCES] = {"instances", "/v1/instances"},
};

struct port {
    char where[WHERE_BYTES];
    char name[NAME_BYTES];
    char why[YB_CURL_ERROR_BYTES]; /* Why it does not answer; "": it does. */
    uint64_t again_ns;             /* Not asked before. */
    uint64_t last[LISTS_FED];
    uint64_t lacks_until_ns[LISTS]; /* It has no such path: not asked before. */
    uint64_t round;                 /* When it was last said. */
};

struct kept {
    struct yb_gather_sample sample; /* First: it is what holders have. */
    uint32_t holders;
    bool dropped; /* No longer kept: whoever releases it last frees it. */
    char text[];
};

struct yb_gather {
    uint32_t magic;
    char self[WHERE_BYTES];
    char *watch;
    struct yb_curl *curl;
    pthread_t thread;

    /* Of the thread alone. */
    struct port ports[YB_GATHER_PORTS_MAX];
    uint32_t port_count;
    uint64_t round;

    struct yb_lock lock;   /* Protects the rest. */
    pthread_cond_t turned; /* A sample came, somebody began to look, or it stops. */
    bool stopping;
    uint64_t looked_ns; /* When somebody last looked. */
    uint64_t count;     /* Samples made. */
    size_t kept_bytes;
    uint32_t kept_count;
    struct kept *kept[YB_GATHER_KEPT_MAX]; /* Sample n is at (n - 1) % the room. */
};

static uint64_t
now(void)
{
    return yb_clock_now(yb_clock_system());
}

/* ---- one port ------------------------------------------------------------------------------- */

struct answer {
    char *bytes;
    size_t length;
};

static bool
take(void *context, const void *bytes, size_t length)
{
    struct answer *answer = context;
    char *grown;

    if (length > ANSWER_MAX - answer->length) { /* T1 */
        return false;
    }
    grown = realloc(answer->bytes, answer->length + length + 1);
    if (grown == NULL) {
        return false;
    }
    answer->bytes = grown;
    memcpy(answer->bytes + answer->length, bytes, length);
    answer->length += length;
    answer->bytes[answer->length] = '\0';
    return true;
}

/* Ask for a path. Returns the HTTP code; 0: there was no answer, and port->why says so. */
static long
ask(struct yb_gather *gather, struct port *port, const char *path, struct answer *answer_out)
{
    char url[WHERE_BYTES + 96];
    const struct yb_curl_request request = {
        .method = "GET",
        .url = url,
        .connect_ns = CONNECT_NS,
        .timeout_ns = ASK_NS,
        .take = take,
        .context = answer_out,
    };
    long code = 0;

    *answer_out = (struct answer){.bytes = NULL};
    (void)snprintf(url, sizeof(url), "http://%s%s", port->where, path);
    if (yb_curl_ask(gather->curl, &request, &code, port->why) != YB_OK) {
        port->again_ns = now() + AGAIN_NS;
        code = 0;
    }
    return code;
}

/* Ask for a path and read JSON. NULL: it answers otherwise. */
static json_t *
ask_json(struct yb_gather *gather, struct port *port, const char *path, long *code_out)
{
    struct answer answer;
    json_t *value = NULL;

    *code_out = ask(gather, port, path, &answer);
    if (*code_out == 200 && answer.bytes != NULL) {
        value = json_loadb(answer.bytes, answer.length, 0, NULL);
    }
    free(answer.bytes);
    return value;
}

static bool
ask_series(struct yb_gather *gather, struct port *port, json_t *process)
{
    struct answer answer;
    json_t *series = json_object();
    long code = ask(gather, port, "/metrics", &answer);

    if (code == 200 && answer.bytes != NULL) {
        yb_series_read(answer.bytes, answer.length, YB_GATHER_SERIES_MAX, series);
        port->why[0] = '\0';
    } else if (code != 0) {
        (void)snprintf(port->why, sizeof(port->why), "/metrics answers %ld", code);
    }
    free(answer.bytes);
    json_object_set_new(process, "series", series);
    return port->why[0] == '\0';
}

/* Ask for a list, if the port has it. NULL: not now. */
static json_t *
ask_listed(struct yb_gather *gather, struct port *port, enum list list)
{
    char after[24] = "";
    char path[64];
    json_t *value;
    long code;

    if (now() < port->lacks_until_ns[list] || now() < port->again_ns) {
        return NULL;
    }
    if (list < LISTS_FED) {
        (void)snprintf(after, sizeof(after), "%" PRIu64, port->last[list]);
    }
    (void)snprintf(path, sizeof(path), "%s%s", lists[list].path, after);
    value = ask_json(gather, port, path, &code);
    if (code == 404) {
        port->lacks_until_ns[list] = now() + LACKING_NS;
    }
    return value;
}

/* Append what is new of a list that is fed to `all`. */
static void
ask_feed(struct yb_gather *gather, struct port *port, enum list list, json_t *all)
{
    json_t *value = ask_listed(gather, port, list);
    json_t *row;
    size_t index;

    if (value == NULL) {
        return;
    }
    /* A process that began anew counts anew. */
    port->last[list] = (uint64_t)json_integer_value(json_object_get(value, "last"));
    json_array_foreach(json_object_get(value, lists[list].name), index, row)
    {
        if (index < FEED_MAX && json_is_object(row)) {
            json_object_set_new(row, "where", json_string(port->where));
            json_array_append(all, row);
        }
    }
    json_decref(value);
}

static json_t *
ask_port(struct yb_gather *gather, struct port *port, json_t *feeds[LISTS_FED])
{
    json_t *process = json_pack("{s:s, s:s}", "where", port->where, "name", port->name);
    bool up = false;

    if (now() >= port->again_ns) {
        up = ask_series(gather, port, process);
    }
    for (int i = 0; up && i < LISTS_FED; i++) {
        ask_feed(gather, port, (enum list)i, feeds[i]);
    }
    json_object_set_new(process, "up", json_boolean(up));
    json_object_set_new(process, "why", json_string(port->why));
    return process;
}

/* ---- which ports ---------------------------------------------------------------------------- */

/* One more; one that was said already keeps what is known of it. */
static void
say(struct yb_gather *gather, const char *where, const char *name)
{
    struct port *port = NULL;

    for (uint32_t i = 0; i < gather->port_count && port == NULL; i++) {
        port = strcmp(gather->ports[i].where, where) == 0 ? &gather->ports[i] : NULL;
    }
    if (port == NULL) {
        if (gather->port_count == YB_GATHER_PORTS_MAX || !yb_gather_is_port(where)) {
            return;
        }
        port = &gather->ports[gather->port_count++];
        *port = (struct port){.round = gather->round};
        (void)snprintf(port->where, sizeof(port->where), "%s", where);
    }
    port->round = gather->round;
    if (name[0] != '\0') {
        (void)snprintf(port->name, sizeof(port->name), "%s", name);
    }
}

static void
say_watched(struct yb_gather *gather)
{
    char where[WHERE_BYTES];

    for (const char *at = gather->watch; *at != '\0';) {
        size_t length = strcspn(at, ",");

        (void)snprintf(where, sizeof(where), "%.*s", (int)length, at);
        say(gather, where, "");
        at += length + (at[length] == ',' ? 1 : 0);
    }
}

static void
find_ports(struct yb_gather *gather)
{
    gather->round++;
    say(gather, gather->self, "");
    say_watched(gather);
}

/* Those nobody names any more go. */
static void
forget_ports(struct yb_gather *gather)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < gather->port_count; i++) {
        if (gather->ports[i].round == gather->round) {
            gather->ports[left++] = gather->ports[i];
        }
    }
    gather->port_count = left;
}

/* Name the instances of a conductor. */
static void
ask_instances(struct yb_gather *gather, struct port *port)
{
    json_t *value;
    json_t *row;
    size_t index;

    value = ask_listed(gather, port, LIST_INSTANCES);
    json_array_foreach(json_object_get(value, lists[LIST_INSTANCES].name), index, row)
    {
        const char *where = json_string_value(json_object_get(row, "address"));
        const char *name = json_string_value(json_object_get(row, "name"));

        if (where != NULL && name != NULL) {
            say(gather, where, name);
        }
    }
    json_decref(value);
}

/* ---- samples -------------------------------------------------------------------------------- */

static json_t *
make_sample(struct yb_gather *gather)
{
    json_t *processes = json_array();
    json_t *feeds[LISTS_FED] = {json_array(), json_array()};
    json_t *nodes;
    long code;

    find_ports(gather);
    for (uint32_t i = 0; i < gather->port_count; i++) { /* Instances come to the end of them. */
        json_array_append_new(processes, ask_port(gather, &gather->ports[i], feeds));
        ask_instances(gather, &gather->ports[i]);
    }
    forget_ports(gather);
    nodes = ask_json(gather, &gather->ports[0], "/v1/nodes", &code);
    if (nodes != NULL && !json_is_array(json_object_get(nodes, "nodes"))) {
        json_decref(nodes);
        nodes = NULL;
    }
    if (nodes == NULL) {
        nodes = json_pack("{s:[]}", "nodes");
    }
    json_object_set_new(nodes, "processes", processes);
    for (int i = 0; i < LISTS_FED; i++) {
        json_object_set_new(nodes, lists[i].name, feeds[i]);
    }
    return nodes;
}

static void
drop_oldest_locked(struct yb_gather *gather)
{
    uint64_t oldest = gather->count - gather->kept_count + 1;
    struct kept *kept = gather->kept[(oldest - 1) % YB_GATHER_KEPT_MAX];

    yb_lock_assert_held(&gather->lock);
    gather->kept[(oldest - 1) % YB_GATHER_KEPT_MAX] = NULL;
    gather->kept_count--;
    gather->kept_bytes -= kept->sample.length;
    kept->dropped = true;
    if (kept->holders == 0) {
        free(kept);
    }
}

static void
keep_locked(struct yb_gather *gather, struct kept *kept)
{
    yb_lock_assert_held(&gather->lock);
    while (gather->kept_count > 0 &&
           (gather->kept_count == YB_GATHER_KEPT_MAX ||
            gather->kept_bytes + kept->sample.length > YB_GATHER_KEPT_BYTES)) { /* T3 */
        drop_oldest_locked(gather);
    }
    gather->kept[gather->count % YB_GATHER_KEPT_MAX] = kept;
    gather->count++;
    gather->kept_count++;
    gather->kept_bytes += kept->sample.length;
    (void)pthread_cond_broadcast(&gather->turned);
}

static void
add_sample(struct yb_gather *gather)
{
    json_t *value = make_sample(gather);
    struct kept *kept = NULL;
    char *text;

    json_object_set_new(value, "number", json_integer((json_int_t)gather->count + 1));
    json_object_set_new(
        value, "at_ms",
        json_integer((json_int_t)(yb_clock_wall(yb_clock_system()) / YB_NS_PER_MS)));
    text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(value);
    if (text != NULL && strlen(text) <= YB_GATHER_KEPT_BYTES) {
        size_t length = strlen(text);

        kept = malloc(sizeof(*kept) + length + 1);
        if (kept != NULL) {
            memcpy(kept->text, text, length + 1);
            kept->sample = (struct yb_gather_sample){gather->count + 1, length, kept->text};
            kept->holders = 0;
            kept->dropped = false;
        }
    }
    free(text);
    if (kept != NULL) { /* Otherwise there was no memory: there is a next second. */
        yb_lock_acquire(&gather->lock);
        keep_locked(gather, kept);
        yb_lock_release(&gather->lock);
    }
}

/* How long until the next sample, with somebody looking or without. */
static uint64_t
left_locked(const struct yb_gather *gather, uint64_t began_ns)
{
    uint64_t now_ns = now();
    bool looked_at = gather->looked_ns != 0 && now_ns - gather->looked_ns < LOOKED_AT_NS;
    uint64_t next_ns = began_ns + (looked_at ? PERIOD_NS : PERIOD_IDLE_NS);

    return next_ns > now_ns ? next_ns - now_ns : 0;
}

static void *
run(void *owner)
{
    struct yb_gather *gather = owner;

    yb_cpus_as_process();
    yb_lock_acquire(&gather->lock);
    while (!gather->stopping) {
        uint64_t began_ns = now();
        uint64_t left_ns;

        yb_lock_release(&gather->lock);
        add_sample(gather);
        yb_lock_acquire(&gather->lock);
        while (!gather->stopping && (left_ns = left_locked(gather, began_ns)) > 0) {
            (void)yb_lock_wait(&gather->lock, &gather->turned, left_ns);
        }
    }
    yb_lock_release(&gather->lock);
    return NULL;
}

/* ---- who looks ------------------------------------------------------------------------------ */

static const struct yb_gather_sample *
hold_locked(struct yb_gather *gather, uint64_t number)
{
    struct kept *kept = gather->kept[(number - 1) % YB_GATHER_KEPT_MAX];

    yb_lock_assert_held(&gather->lock);
    kept->holders++;
    return &kept->sample;
}

/* Say that somebody looks: the gatherer may be in a long rest. */
static void
look_locked(struct yb_gather *gather)
{
    uint64_t now_ns = now();
    bool was_idle = gather->looked_ns == 0 || now_ns - gather->looked_ns >= LOOKED_AT_NS;

    yb_lock_assert_held(&gather->lock);
    gather->looked_ns = now_ns;
    if (was_idle) {
        (void)pthread_cond_broadcast(&gather->turned);
    }
}

const struct yb_gather_sample *
yb_gather_next(struct yb_gather *gather, uint64_t after, uint64_t timeout_ns)
{
    const struct yb_gather_sample *sample = NULL;
    uint64_t until_ns = yb_deadline_after(now(), timeout_ns);

    YB_ASSERT_OBJ(gather, GATHER_MAGIC);
    yb_lock_acquire(&gather->lock);
    look_locked(gather);
    after = after <= gather->count ? after : 0; /* Whoever knows more knew another process. */
    while (!gather->stopping && gather->count <= after && now() < until_ns) {
        (void)yb_lock_wait(&gather->lock, &gather->turned, until_ns - now());
    }
    if (!gather->stopping && gather->count > after) {
        uint64_t oldest = gather->count - gather->kept_count + 1;

        sample = hold_locked(gather, after + 1 > oldest ? after + 1 : oldest);
    }
    yb_lock_release(&gather->lock);
    return sample;
}

const struct yb_gather_sample *
yb_gather_latest(struct yb_gather *gather, uint64_t timeout_ns)
{
    uint64_t newest;

    YB_ASSERT_OBJ(gather, GATHER_MAGIC);
    yb_lock_acquire(&gather->lock);
    newest = gather->count;
    yb_lock_release(&gather->lock);
    return yb_gather_next(gather, newest > 0 ? newest - 1 : 0, timeout_ns);
}

void
yb_gather_release(struct yb_gather *gather, const struct yb_gather_sample **sample_ref)
{
    /* What holders have is the first member of what is kept. */
    union {
        const struct yb_gather_sample *sample;
        struct kept *kept;
    } held = {.sample = *sample_ref};
    bool last;

    YB_ASSERT_OBJ(gather, GATHER_MAGIC);
    *sample_ref = NULL;
    yb_lock_acquire(&gather->lock);
    YB_ASSERT(held.kept->holders > 0);
    last = --held.kept->holders == 0 && held.kept->dropped;
    yb_lock_release(&gather->lock);
    if (last) {
        free(held.kept);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

bool
yb_gather_is_port(const char *where)
{
    const char *colon = strrchr(where, ':');
    size_t length = strlen(where);

    return colon != NULL && colon != where && colon[1] != '\0' && length < WHERE_BYTES &&
           strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
           strspn(where, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") ==
               length;
}

/* Whether `watch` is a list of ports. */
static bool
check_watch(const char *watch, char why_out[YB_GATHER_WHY_BYTES])
{
    char where[WHERE_BYTES];
    uint32_t count = 1; /* Our own. */

    for (const char *at = watch; *at != '\0'; count++) {
        size_t length = strcspn(at, ",");

        (void)snprintf(where, sizeof(where), "%.*s", (int)length, at);
        if (length >= sizeof(where) || !yb_gather_is_port(where)) {
            (void)snprintf(why_out, YB_GATHER_WHY_BYTES,
                           "http.watch: \"%s\" is not host:port; separate several by commas",
                           where);
            return false;
        }
        at += length + (at[length] == ',' ? 1 : 0);
    }
    if (count > YB_GATHER_PORTS_MAX) {
        (void)snprintf(why_out, YB_GATHER_WHY_BYTES, "http.watch: %u ports at most",
                       YB_GATHER_PORTS_MAX - 1);
        return false;
    }
    return true;
}

static void
discard(struct yb_gather *gather)
{
    if (gather->curl != NULL) {
        yb_curl_destroy(&gather->curl);
    }
    while (gather->kept_count > 0) {
        yb_lock_acquire(&gather->lock);
        drop_oldest_locked(gather);
        yb_lock_release(&gather->lock);
    }
    (void)pthread_cond_destroy(&gather->turned);
    yb_lock_fini(&gather->lock);
    free(gather->watch);
    gather->magic = 0;
    free(gather);
}

enum yb_status
yb_gather_create(const struct yb_gather_options *options, struct yb_gather **gather_out,
                 char why_out[YB_GATHER_WHY_BYTES])
{
    struct yb_gather *gather;
    enum yb_status status;

    YB_ASSERT(yb_gather_is_port(options->self));
    if (!check_watch(options->watch, why_out)) {
        return YB_INVALID;
    }
    (void)snprintf(why_out, YB_GATHER_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
    gather = calloc(1, sizeof(*gather));
    if (gather == NULL) {
        return YB_NO_MEMORY;
    }
    gather->magic = GATHER_MAGIC;
    (void)snprintf(gather->self, sizeof(gather->self), "%s", options->self);
    yb_lock_init(&gather->lock, YB_LOCK_GATHER);
    yb_lock_cond_init(&gather->turned);
    gather->watch = strdup(options->watch);
    status = gather->watch == NULL ? YB_NO_MEMORY : yb_curl_create(&gather->curl, why_out);
    if (status == YB_OK && pthread_create(&gather->thread, NULL, run, gather) != 0) {
        status = YB_NO_MEMORY;
    }
    if (status != YB_OK) {
        discard(gather);
        return status;
    }
    *gather_out = gather;
    return YB_OK;
}

void
yb_gather_stop(struct yb_gather *gather)
{
    YB_ASSERT_OBJ(gather, GATHER_MAGIC);
    yb_lock_acquire(&gather->lock);
    gather->stopping = true;
    (void)pthread_cond_broadcast(&gather->turned);
    yb_lock_release(&gather->lock);
}

bool
yb_gather_stopping(struct yb_gather *gather)
{
    bool stopping;

    YB_ASSERT_OBJ(gather, GATHER_MAGIC);
    yb_lock_acquire(&gather->lock);
    stopping = gather->stopping;
    yb_lock_release(&gather->lock);
    return stopping;
}

void
yb_gather_destroy(struct yb_gather **gather_ref)
{
    struct yb_gather *gather = *gather_ref;

    *gather_ref = NULL;
    yb_gather_stop(gather);
    YB_ASSERT(pthread_join(gather->thread, NULL) == 0);
    discard(gather);
}
