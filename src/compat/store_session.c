/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: many reads, or many writes, of values that are looked up once.
 *
 * Reading (RULES D3). A start borrows the value where it lies if that is on this host; otherwise it
 * holds it in its node's memory for the lease's time, which every read renews. What a node neither
 * lends nor holds (it lies below memory, or too much is lent) the directory holds once, and it is
 * read from the node by its hint. No directory is asked by a read. What comes of it counts if the
 * lease has not run out and the version is still the one of the start.
 *
 * Writing. The bytes are put together here and put when the session ends, so that nobody sees, and
 * no node keeps, half a value of a writer that died.
 *
 * A session is counted while somebody uses it; one that was ended goes with its last user.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/hash.h"
#include "compat/store_internal.h"

#define PIECES_MAX   1024u
#define STAGED_MAX   (16ull << 30) /* Bytes of all put sessions of a store. */
#define WAIT_STEP_NS YB_NS_PER_S

struct yb_compat_session {
    struct yb_compat_session *next; /* In its bucket. */
    void *key;                      /* Owned. */
    uint32_t key_bytes;
    uint32_t users; /* Under the lock, like `gone` and `sealed`. */
    bool gone;      /* In no bucket any more. */
    uint64_t size;
    /* ---- reading ---- */
    uint64_t grant;
    uint64_t until_ns;   /* Under the lock. */
    const uint8_t *data; /* Borrowed; NULL: it is read from the node. */
    uint64_t pin;        /* By which it is borrowed or held; 0: it is neither. */
    /* ---- writing ---- */
    bool sealed;
    bool ending; /* Somebody ends it now. */
    uint8_t *staged;
    struct yb_compat_replicate replicate; /* Its texts are owned. */
};

/* ---- the table ----------------------------------------------------------------------------- */

static struct yb_compat_session **
bucket_of(struct yb_compat_sessions *sessions, const void *key, size_t bytes)
{
    return &sessions->buckets[yb_hash_table(0, key, bytes) % YB_COMPAT_SESSION_BUCKETS];
}

static struct yb_compat_session *
find_locked(struct yb_compat_sessions *sessions, const yb_compat_key *key)
{
    struct yb_compat_session *session;

    if (key->iov_base == NULL) {
        return NULL;
    }
    session = *bucket_of(sessions, key->iov_base, key->iov_len);
    while (session != NULL && (session->key_bytes != key->iov_len ||
                               memcmp(session->key, key->iov_base, key->iov_len) != 0)) {
        session = session->next;
    }
    return session;
}

static void
unlink_locked(struct yb_compat_sessions *sessions, struct yb_compat_session *session)
{
    struct yb_compat_session **at = bucket_of(sessions, session->key, session->key_bytes);

    while (*at != session) {
        at = &(*at)->next;
    }
    *at = session->next;
    session->gone = true;
    sessions->count--;
}

static void
free_replicate(struct yb_compat_replicate *replicate)
{
    for (uint32_t i = 0; replicate->preferred != NULL && replicate->preferred[i] != NULL; i++) {
        free((void *)(uintptr_t)replicate->preferred[i]);
    }
    free((void *)(uintptr_t)replicate->preferred);
    if (replicate->groups != NULL) {
        free(replicate->groups[0].iov_base);
        free((void *)(uintptr_t)replicate->groups);
    }
    *replicate = (struct yb_compat_replicate){0};
}

/* Give back what an unlinked session has that nobody uses. */
static void
destroy(struct yb_client *client, struct yb_compat_session *session)
{
    if (session->pin != 0) {
        struct yb_client_item item = {
            .key = session->key, .key_bytes = session->key_bytes, .pin = session->pin};

        (void)!yb_client_release(client, &item, 1); /* STALE is as good. */
    }
    if (session->staged != NULL) {
        (void)munmap(session->staged, session->size);
    }
    free_replicate(&session->replicate);
    free(session->key);
    free(session);
}

/* Stop using it. */
static void
give(struct yb_compat_store *store, struct yb_client *client, struct yb_compat_session *session)
{
    bool last;

    yb_lock_acquire(&store->lock);
    session->users--;
    last = session->gone && session->users == 0;
    if (session->users == 0) {
        (void)pthread_cond_broadcast(&store->changed);
    }
    yb_lock_release(&store->lock);
    if (last) {
        destroy(client, session);
    }
}

static struct yb_compat_session *
take(struct yb_compat_store *store, struct yb_compat_sessions *sessions, const yb_compat_key *key)
{
    struct yb_compat_session *session;

    yb_lock_acquire(&store->lock);
    session = find_locked(sessions, key);
    if (session != NULL) {
        session->users++;
    }
    yb_lock_release(&store->lock);
    return session;
}

/* Take it out of the table: nobody finds it any more. */
static void
end_session(struct yb_compat_store *store, struct yb_compat_sessions *sessions,
            struct yb_compat_session *session)
{
    yb_lock_acquire(&store->lock);
    if (!session->gone) {
        unlink_locked(sessions, session);
        sessions->bytes -= session->staged != NULL ? session->size : 0;
    }
    yb_lock_release(&store->lock);
}

static struct yb_compat_session *
make(const struct yb_client_item *item)
{
    struct yb_compat_session *session = calloc(1, sizeof(*session));

    if (session == NULL || (session->key = malloc(item->key_bytes)) == NULL) {
        free(session);
        return NULL;
    }
    memcpy(session->key, item->key, item->key_bytes);
    session->key_bytes = item->key_bytes;
    session->size = item->size;
    session->grant = item->grant;
    return session;
}

/* Put it into the table. `*old_out`: the one that it replaces; NULL: there was none, or it is
 * in use and goes with its last user. Returns whether there was room. */
static bool
insert(struct yb_compat_store *store, struct yb_compat_sessions *sessions,
       struct yb_compat_session *session, struct yb_compat_session **old_out)
{
    const yb_compat_key key = {.iov_base = session->key, .iov_len = session->key_bytes};
    struct yb_compat_session **bucket = bucket_of(sessions, session->key, session->key_bytes);
    struct yb_compat_session *old;
    bool room;

    yb_lock_acquire(&store->lock);
    old = find_locked(sessions, &key);
    if (old != NULL) {
        unlink_locked(sessions, old);
    }
    *old_out = old != NULL && old->users == 0 ? old : NULL;
    room = sessions->count < YB_COMPAT_SESSIONS_MAX;
    if (room) {
        session->next = *bucket;
        *bucket = session;
        sessions->count++;
    }
    yb_lock_release(&store->lock);
    return room;
}

/* End those whose lease is over, or all. */
static void
sweep(struct yb_compat_store *store, struct yb_client *client, struct yb_compat_sessions *sessions,
      bool all)
{
    uint64_t now_ns = yb_clock_now(yb_clock_system());
    struct yb_compat_session *ended = NULL;

    yb_lock_acquire(&store->lock);
    for (uint32_t i = 0; i < YB_COMPAT_SESSION_BUCKETS && sessions->count > 0; i++) {
        struct yb_compat_session *session = sessions->buckets[i];

        while (session != NULL) {
            struct yb_compat_session *next = session->next;

            if (session->users == 0 && (all || session->until_ns < now_ns)) {
                unlink_locked(sessions, session);
                session->next = ended;
                ended = session;
            }
            session = next;
        }
    }
    sessions->bytes = all ? 0 : sessions->bytes;
    yb_lock_release(&store->lock);
    while (ended != NULL) {
        struct yb_compat_session *next = ended->next;

        destroy(client, ended);
        ended = next;
    }
}

void
yb_compat_sessions_end(struct yb_compat_store *store, struct yb_client *client)
{
    sweep(store, client, &store->reads, true);
    sweep(store, client, &store->writes, true);
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef enum yb_status (*pin_fn)(struct yb_client *client, struct yb_client_item *items,
                                 uint32_t count, const struct yb_client_call *call);

/* Pin the values of those sessions that have no pin yet; those that cannot be stay without. */
static void
pin(struct yb_client *client, struct yb_compat_session **sessions, uint32_t count, pin_fn how)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_LOOK_NS,
        .hold_ms = YB_COMPAT_LEASE_MS,
    };
    struct yb_client_item *items = calloc(count, sizeof(*items));
    enum yb_status status = YB_NO_MEMORY;
    uint32_t asked = 0;

    for (uint32_t i = 0; items != NULL && i < count; i++) {
        if (sessions[i]->pin == 0) {
            items[asked].key = sessions[i]->key;
            items[asked++].key_bytes = sessions[i]->key_bytes;
        }
    }
    if (items != NULL && asked > 0 && asked <= YB_CLIENT_ITEMS_MAX) {
        status = how(client, items, asked, &call);
    }
    asked = 0;
    for (uint32_t i = 0; status == YB_OK && i < count; i++) {
        const struct yb_client_item *item = &items[asked];

        if (sessions[i]->pin != 0) {
            continue;
        }
        asked++;
        if (item->status == YB_OK) {
            /* The newest is as good as the one that was found a moment ago. */
            sessions[i]->data = item->data;
            sessions[i]->pin = item->pin;
            sessions[i]->size = item->size;
            sessions[i]->grant = item->grant;
        }
    }
    free(items);
}

void
yb_compat_store_get_session_start(struct yb_compat_store *store, const yb_compat_key *keys,
                                  uint32_t count, int32_t *codes_out)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_LOOK_NS,
        .hold_ms = YB_COMPAT_LEASE_MS,
    };
    uint64_t until_ns =
        yb_deadline_after(yb_clock_now(yb_clock_system()), YB_COMPAT_LEASE_MS * YB_NS_PER_MS);
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_compat_session **made = NULL;
    struct yb_compat_items items;
    uint32_t started = 0;

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    if (client == NULL) {
        return;
    }
    if (count == 0 || (made = calloc(count, sizeof(struct yb_compat_session *))) == NULL ||
        !yb_compat_items_init(&items, keys, count, YB_COMPAT_OBJECT_NOT_FOUND, codes_out)) {
        free(made);
        yb_compat_store_leave(store);
        return;
    }
    sweep(store, client, &store->reads, false);
    yb_compat_items_run(client, YB_CLIENT_OP_EXIST, items.items, items.count, &call);
    for (uint32_t i = 0; i < items.count; i++) {
        const struct yb_client_item *item = &items.items[i];
        int32_t code = yb_compat_code(item->status, YB_COMPAT_CALL_READ);

        if (item->status == YB_OK) {
            made[started] = make(item);
            code = made[started] != NULL ? YB_COMPAT_OK : YB_COMPAT_INTERNAL_ERROR;
            started += made[started] != NULL ? 1 : 0;
        }
        codes_out[items.keys[i]] = code;
    }
    pin(client, made, started, yb_client_pin);
    pin(client, made, started, yb_client_hold);
    for (uint32_t i = 0; i < started; i++) {
        struct yb_compat_session *old = NULL;

        made[i]->until_ns = until_ns;
        if (!insert(store, &store->reads, made[i], &old)) {
            destroy(client, made[i]);
        }
        if (old != NULL) {
            destroy(client, old);
        }
    }
    yb_compat_items_fini(&items);
    free(made);
    yb_compat_store_leave(store);
}

/* Whether every piece lies within the value. */
static bool
pieces_fit(const struct yb_compat_session *session, const struct yb_compat_value *value,
           const uint64_t *offsets)
{
    if (value->count > 0 && (value->pieces == NULL || offsets == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        const struct iovec *piece = &value->pieces[i];

        if (offsets[i] > session->size || piece->iov_len > session->size - offsets[i] ||
            (piece->iov_base == NULL && piece->iov_len > 0)) {
            return false;
        }
    }
    return true;
}

/* Read pieces from the node that the value was found at. */
static int64_t
read_remote(struct yb_client *client, const struct yb_compat_session *session,
            const struct yb_compat_value *value, const uint64_t *offsets)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_MOVE_NS,
        .hold_ms = YB_COMPAT_LEASE_MS,
    };
    struct yb_client_item *items = calloc(value->count, sizeof(*items));
    uint32_t count = 0;
    int64_t total = 0;
    int64_t wanted = 0;
    uint64_t end = 0;

    if (items == NULL) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    for (uint32_t i = 0; i < value->count; i++) { /* Neighbours are one item. */
        if (count > 0 && offsets[i] == end && items[count - 1].iov_count < PIECES_MAX) {
            items[count - 1].iov_count++;
        } else {
            items[count++] = (struct yb_client_item){
                .key = session->key,
                .key_bytes = session->key_bytes,
                .iov = &value->pieces[i],
                .iov_count = 1,
                .offset = offsets[i],
                .ranged = true,
                .held = session->pin,
            };
        }
        end = offsets[i] + value->pieces[i].iov_len;
    }
    yb_compat_items_run(client, YB_CLIENT_OP_GET, items, count, &call);
    for (uint32_t i = 0; i < count && total >= 0; i++) {
        enum yb_status status = items[i].status;

        if (status == YB_OK && items[i].grant == session->grant) {
            total += (int64_t)items[i].bytes;
        } else if (status == YB_OK || status == YB_NOT_FOUND || status == YB_STALE) {
            total = YB_COMPAT_LEASE_EXPIRED; /* It is another one, or none. */
        } else {
            total = yb_compat_code(status, YB_COMPAT_CALL_READ);
        }
    }
    free(items);
    for (uint32_t i = 0; i < value->count; i++) {
        wanted += (int64_t)value->pieces[i].iov_len;
    }
    /* The size was known roughly. */
    return total >= 0 && total < wanted ? YB_COMPAT_INVALID_PARAMS : total;
}

/* Copy pieces from where the value lies on this host. */
static int64_t
read_borrowed(struct yb_compat_store *store, const struct yb_compat_session *session,
              const struct yb_compat_value *value, const uint64_t *offsets)
{
    int64_t total = 0;

    for (uint32_t i = 0; i < value->count; i++) {
        const struct iovec *piece = &value->pieces[i];

        if (yb_compat_copy(store, piece->iov_base, session->data + offsets[i], piece->iov_len) !=
            YB_OK) {
            return YB_COMPAT_TRANSFER_FAIL;
        }
        total += (int64_t)piece->iov_len;
    }
    return total;
}

/* Whether a session's lease is over. One that is not may last until `until_ns` from now on. */
static bool
is_over(struct yb_compat_store *store, struct yb_compat_session *session, uint64_t until_ns)
{
    bool over;

    yb_lock_acquire(&store->lock);
    over = yb_clock_now(yb_clock_system()) > session->until_ns;
    if (!over && session->until_ns < until_ns) {
        session->until_ns = until_ns;
    }
    yb_lock_release(&store->lock);
    return over;
}

static int64_t
read_pieces(struct yb_compat_store *store, struct yb_client *client,
            struct yb_compat_session *session, const struct yb_compat_value *value,
            const uint64_t *offsets)
{
    uint64_t renewed_ns =
        yb_deadline_after(yb_clock_now(yb_clock_system()), YB_COMPAT_LEASE_MS * YB_NS_PER_MS);
    int64_t total;

    if (is_over(store, session, 0)) {
        return YB_COMPAT_LEASE_EXPIRED;
    }
    if (!pieces_fit(session, value, offsets)) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    if (value->count == 0) {
        return 0;
    }
    total = session->data != NULL ? read_borrowed(store, session, value, offsets)
                                  : read_remote(client, session, value, offsets);
    /* The node has counted the hold anew from after this read began. */
    return is_over(store, session, total >= 0 && session->pin != 0 ? renewed_ns : 0)
               ? YB_COMPAT_LEASE_EXPIRED
               : total;
}

void
yb_compat_store_get_session_read(struct yb_compat_store *store, const yb_compat_key *keys,
                                 const struct yb_compat_value *into, const uint64_t *const *sources,
                                 uint32_t count, int64_t *codes_out)
{
    struct yb_client *client = yb_compat_store_enter(store);

    for (uint32_t i = 0; i < count; i++) {
        struct yb_compat_session *session =
            client != NULL ? take(store, &store->reads, &keys[i]) : NULL;

        codes_out[i] = YB_COMPAT_INVALID_PARAMS;
        if (session == NULL) {
            continue;
        }
        codes_out[i] = read_pieces(store, client, session, &into[i], sources[i]);
        if (codes_out[i] == YB_COMPAT_LEASE_EXPIRED) {
            end_session(store, &store->reads, session);
        }
        give(store, client, session);
    }
    if (client != NULL) {
        yb_compat_store_leave(store);
    }
}

int32_t
yb_compat_store_get_session_end(struct yb_compat_store *store, const yb_compat_key *keys,
                                uint32_t count)
{
    struct yb_client *client = yb_compat_store_enter(store);

    if (client == NULL) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct yb_compat_session *session = take(store, &store->reads, &keys[i]);

        if (session != NULL) {
            end_session(store, &store->reads, session);
            give(store, client, session);
        }
    }
    yb_compat_store_leave(store);
    return YB_COMPAT_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Copy what outlives the call. */
static bool
copy_replicate(const struct yb_compat_replicate *from, uint32_t key, struct yb_compat_replicate *to)
{
    const char **names;
    yb_compat_key *group;
    uint32_t count = 0;

    *to = *from;
    to->preferred = NULL;
    to->groups = NULL;
    to->group_count = 0;
    while (from->preferred != NULL && from->preferred[count] != NULL) {
        count++;
    }
    if (count > 0) {
        names = calloc(count + 1, sizeof(*names));
        to->preferred = names;
        for (uint32_t i = 0; names != NULL && i < count; i++) {
            names[i] = strdup(from->preferred[i]);
        }
        if (names == NULL || names[count - 1] == NULL) {
            return false;
        }
    }
    if (from->groups != NULL && from->groups[key].iov_len > 0) {
        group = calloc(1, sizeof(*group));
        to->groups = group;
        to->group_count = 1;
        if (group == NULL || (group->iov_base = malloc(from->groups[key].iov_len)) == NULL) {
            return false;
        }
        group->iov_len = from->groups[key].iov_len;
        memcpy(group->iov_base, from->groups[key].iov_base, group->iov_len);
    }
    return true;
}

/* Take memory for the value. */
static int32_t
stage(struct yb_compat_store *store, struct yb_compat_session *session, uint64_t size)
{
    bool room;

    yb_lock_acquire(&store->lock);
    room = size <= STAGED_MAX - store->writes.bytes;
    store->writes.bytes += room ? size : 0;
    yb_lock_release(&store->lock);
    if (!room) {
        return YB_COMPAT_NO_AVAILABLE_HANDLE;
    }
    session->staged = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (session->staged != MAP_FAILED) {
        session->size = size;
        return YB_COMPAT_OK;
    }
    session->staged = NULL;
    yb_lock_acquire(&store->lock);
    store->writes.bytes -= size;
    yb_lock_release(&store->lock);
    return YB_COMPAT_NO_AVAILABLE_HANDLE;
}

/* Begin one session; a key of which one is open is refused. */
static int32_t
start_write(struct yb_compat_store *store, struct yb_client *client,
            const struct yb_client_item *item, uint64_t size,
            const struct yb_compat_replicate *replicate, uint32_t key)
{
    const yb_compat_key name = {.iov_base = (void *)(uintptr_t)item->key,
                                .iov_len = item->key_bytes};
    struct yb_compat_session *session;
    struct yb_compat_session *other = take(store, &store->writes, &name);
    int32_t code;

    if (other != NULL) {
        give(store, client, other);
        return YB_COMPAT_INVALID_PARAMS;
    }
    session = make(item);
    if (session == NULL) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    yb_compat_replicate_default(&session->replicate);
    session->until_ns = UINT64_MAX;
    code = replicate == NULL || copy_replicate(replicate, key, &session->replicate)
               ? stage(store, session, size)
               : YB_COMPAT_INTERNAL_ERROR;
    if (code != YB_COMPAT_OK) {
        destroy(client, session);
        return code;
    }
    if (!insert(store, &store->writes, session, &other)) {
        yb_lock_acquire(&store->lock);
        store->writes.bytes -= size;
        yb_lock_release(&store->lock);
        destroy(client, session);
        code = YB_COMPAT_NO_AVAILABLE_HANDLE;
    }
    if (other != NULL) { /* Somebody was as fast: the last one counts. */
        yb_lock_acquire(&store->lock);
        store->writes.bytes -= other->size;
        yb_lock_release(&store->lock);
        destroy(client, other);
    }
    return code;
}

void
yb_compat_store_put_session_start(struct yb_compat_store *store, const yb_compat_key *keys,
                                  const uint64_t *sizes, uint32_t count,
                                  const struct yb_compat_replicate *replicate, int32_t *codes_out)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_LOOK_NS,
    };
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_compat_items items;
    uint64_t capacity;

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    if (client == NULL) {
        return;
    }
    if (count == 0 || !yb_compat_replicate_fits(replicate, YB_COMPAT_PUT_PIECES, count) ||
        !yb_compat_items_init(&items, keys, count, YB_COMPAT_INVALID_KEY, codes_out)) {
        yb_compat_store_leave(store);
        return;
    }
    capacity = yb_compat_capacity(client);
    yb_compat_items_run(client, YB_CLIENT_OP_EXIST, items.items, items.count, &call);
    for (uint32_t i = 0; i < items.count; i++) {
        const struct yb_client_item *item = &items.items[i];
        uint32_t key = items.keys[i];

        if (sizes[key] == 0 || sizes[key] > YB_CLIENT_VALUE_BYTES_MAX) {
            codes_out[key] = YB_COMPAT_INVALID_PARAMS;
        } else if (item->status == YB_OK || item->status == YB_IN_PROGRESS) {
            codes_out[key] = YB_COMPAT_OBJECT_ALREADY_EXISTS;
        } else if (item->status != YB_NOT_FOUND) {
            codes_out[key] = yb_compat_code(item->status, YB_COMPAT_CALL_RESERVE);
        } else if (sizes[key] > capacity) {
            codes_out[key] = YB_COMPAT_NO_AVAILABLE_HANDLE;
        } else {
            codes_out[key] = start_write(store, client, item, sizes[key], replicate, key);
        }
    }
    yb_compat_items_fini(&items);
    yb_compat_store_leave(store);
}

/* Returns the bytes that were written, or a code. */
static int64_t
write_pieces(struct yb_compat_store *store, struct yb_compat_session *session,
             const struct yb_compat_value *value, const uint64_t *offsets)
{
    int64_t total = 0;

    if (!pieces_fit(session, value, offsets)) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        const struct iovec *piece = &value->pieces[i];

        if (yb_compat_copy(store, session->staged + offsets[i], piece->iov_base, piece->iov_len) !=
            YB_OK) {
            return YB_COMPAT_TRANSFER_FAIL;
        }
        total += (int64_t)piece->iov_len;
    }
    return total;
}

/* Find a session that is not sealed, and use it. */
static struct yb_compat_session *
take_unsealed(struct yb_compat_store *store, const yb_compat_key *key)
{
    struct yb_compat_session *session;

    yb_lock_acquire(&store->lock);
    session = find_locked(&store->writes, key);
    if (session != NULL && session->sealed) {
        session = NULL;
    }
    if (session != NULL) {
        session->users++;
    }
    yb_lock_release(&store->lock);
    return session;
}

void
yb_compat_store_put_session_write(struct yb_compat_store *store, const yb_compat_key *keys,
                                  const struct yb_compat_value *from,
                                  const uint64_t *const *targets, uint32_t count,
                                  int64_t *codes_out)
{
    struct yb_client *client = yb_compat_store_enter(store);

    for (uint32_t i = 0; i < count; i++) {
        struct yb_compat_session *session = client != NULL ? take_unsealed(store, &keys[i]) : NULL;

        codes_out[i] = YB_COMPAT_INVALID_PARAMS;
        if (session != NULL) {
            codes_out[i] = write_pieces(store, session, &from[i], targets[i]);
            give(store, client, session);
        }
    }
    if (client != NULL) {
        yb_compat_store_leave(store);
    }
}

/* Seal a session, and wait until nobody writes any more; it is used. NULL: there is none, or
 * somebody else ends it. */
static struct yb_compat_session *
seal(struct yb_compat_store *store, const yb_compat_key *key)
{
    struct yb_compat_session *session;

    yb_lock_acquire(&store->lock);
    session = find_locked(&store->writes, key);
    session = session != NULL && session->ending ? NULL : session;
    if (session != NULL) {
        session->sealed = true;
        session->ending = true;
        session->users++;
        while (session->users > 1 && !session->gone) {
            (void)yb_lock_wait(&store->lock, &store->changed, WAIT_STEP_NS);
        }
    }
    yb_lock_release(&store->lock);
    return session;
}

void
yb_compat_store_put_session_end(struct yb_compat_store *store, const yb_compat_key *keys,
                                uint32_t count, int32_t *codes_out)
{
    struct yb_client *client = yb_compat_store_enter(store);

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    for (uint32_t i = 0; client != NULL && i < count; i++) {
        struct yb_compat_session *session = seal(store, &keys[i]);

        if (session == NULL) {
            continue;
        }
        codes_out[i] = yb_compat_put_staged(
            store, client, &keys[i],
            &(struct iovec){.iov_base = session->staged, .iov_len = session->size},
            &session->replicate);
        if (codes_out[i] == YB_COMPAT_OK) {
            end_session(store, &store->writes, session);
        }
        yb_lock_acquire(&store->lock);
        session->ending = false; /* A failure leaves it for another try. */
        yb_lock_release(&store->lock);
        give(store, client, session);
    }
    if (client != NULL) {
        yb_compat_store_leave(store);
    }
}

void
yb_compat_store_put_session_revoke(struct yb_compat_store *store, const yb_compat_key *keys,
                                   uint32_t count, int32_t *codes_out)
{
    struct yb_client *client = yb_compat_store_enter(store);

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    for (uint32_t i = 0; client != NULL && i < count; i++) {
        struct yb_compat_session *session = seal(store, &keys[i]);

        if (session != NULL) {
            end_session(store, &store->writes, session);
            give(store, client, session);
            codes_out[i] = YB_COMPAT_OK;
        }
    }
    if (client != NULL) {
        yb_compat_store_leave(store);
    }
}
