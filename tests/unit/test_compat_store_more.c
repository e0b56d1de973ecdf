/* SPDX-License-Identifier: Apache-2.0
 *
 * The known system's store over ours: sessions, replicas, tasks, segments, dummies, many threads,
 * and a directory that dies.
 */
#include "compat_ground.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compat/door.h"

#define KIB (1u << 10)
#define MIB (1u << 20)

static struct ground *ground;
static struct yb_compat_store *store;

static int
set_up(void **state)
{
    const struct ground_options options = {.nodes = 1};

    ground = ground_create(&options);
    store = open_store(ground, 32 * MIB);
    return 0;
}

static int
tear_down(void **state)
{
    yb_compat_store_destroy(&store);
    ground_destroy(&ground);
    return 0;
}

/* ---- short forms ---------------------------------------------------------------------------- */

static void
fill(uint8_t *bytes, size_t length, uint64_t name)
{
    uint64_t random = name * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)unit_random(&random);
    }
}

static int32_t
put_at(struct yb_compat_store *into, const char *key, const void *bytes, size_t length,
       const char *segment)
{
    const struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    const struct yb_compat_value value = {.pieces = &piece, .count = 1};
    const char *const preferred[2] = {segment, NULL};
    struct yb_compat_replicate replicate;
    const struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_FROM, .replicate = &replicate};
    const yb_compat_key name = key_of(key);
    int32_t code = 1;

    yb_compat_replicate_default(&replicate);
    replicate.preferred = preferred;
    yb_compat_store_put(into, &name, &value, 1, &call, &code);
    return code;
}

static int64_t
get(struct yb_compat_store *from, const char *key, void *bytes, size_t room)
{
    const struct iovec piece = {.iov_base = bytes, .iov_len = room};
    const struct yb_compat_value into = {.pieces = &piece, .count = 1};
    const yb_compat_key name = key_of(key);
    int64_t code = 1;

    yb_compat_store_get_into(from, &name, &into, 1, &code);
    return code;
}

static int32_t
remove_key(struct yb_compat_store *from, const char *key, bool force)
{
    const yb_compat_key name = key_of(key);
    int32_t code = 1;

    yb_compat_store_remove(from, &name, 1, force, &code);
    return code;
}

static int32_t
exist(struct yb_compat_store *in, const char *key)
{
    const yb_compat_key name = key_of(key);
    int32_t code = -1;

    yb_compat_store_exist(in, &name, 1, &code);
    return code;
}

static int32_t
start(struct yb_compat_store *in, const char *key)
{
    const yb_compat_key name = key_of(key);
    int32_t code = 1;

    yb_compat_store_get_session_start(in, &name, 1, &code);
    return code;
}

/* Two pieces of a session's value, and where they go. */
struct two {
    uint8_t *a;
    uint64_t a_at;
    uint8_t *b;
    uint64_t b_at;
    size_t each;
};

static int64_t
read_two(struct yb_compat_store *in, const char *key, struct two two)
{
    const struct iovec pieces[2] = {{.iov_base = two.a, .iov_len = two.each},
                                    {.iov_base = two.b, .iov_len = two.each}};
    const struct yb_compat_value into = {.pieces = pieces, .count = 2};
    const uint64_t offsets[2] = {two.a_at, two.b_at};
    const uint64_t *const sources[1] = {offsets};
    const yb_compat_key name = key_of(key);
    int64_t code = 1;

    yb_compat_store_get_session_read(in, &name, &into, sources, 1, &code);
    return code;
}

/* ---- sessions that read, RULES D3 ----------------------------------------------------------- */

static void
read_by_session(const char *key, const char *segment)
{
    const yb_compat_key name = key_of(key);
    uint8_t bytes[2000];
    uint8_t a[100];
    uint8_t b[100];

    fill(bytes, sizeof(bytes), 1);
    assert_int_equal(put_at(store, key, bytes, sizeof(bytes), segment), 0);
    assert_int_equal(read_two(store, key, (struct two){a, 0, b, 100, 100}), -600); /* No session. */
    assert_int_equal(start(store, key), 0);
    assert_int_equal(read_two(store, key, (struct two){a, 1900, b, 7, 100}), 200);
    assert_memory_equal(a, bytes + 1900, 100);
    assert_memory_equal(b, bytes + 7, 100);
    assert_int_equal(read_two(store, key, (struct two){a, 0, b, 100, 100}), 200);
    assert_memory_equal(b, bytes + 100, 100);
    assert_int_equal(read_two(store, key, (struct two){a, 1901, b, 0, 100}), -600); /* Too far. */
    assert_int_equal(read_two(store, key, (struct two){a, UINT64_MAX, b, 0, 100}), -600);
    assert_int_equal(remove_key(store, key, false), -706);
    assert_int_equal(yb_compat_store_get_session_end(store, &name, 1), 0);
    assert_int_equal(yb_compat_store_get_session_end(store, &name, 1), 0);
    assert_int_equal(read_two(store, key, (struct two){a, 0, b, 100, 100}), -600);
}

static void
test_compat_store_more__reads_ranges_of_a_session_and_nothing_without_one(void **state)
{
    char segment[64];

    (void)yb_compat_store_hostname(store, segment, sizeof(segment));
    assert_int_equal(start(store, "nothing"), -704);
    read_by_session("borrowed", segment);
    read_by_session("asked", ground->nodes[0].name); /* It lends nothing: there is no engine. */
}

static void
test_compat_store_more__asks_no_directory_while_a_session_reads(void **state)
{
    const struct ground_options options = {.nodes = 1};
    struct ground *own = ground_create(&options);
    struct yb_compat_store *reader = open_store(own, 0);
    uint8_t bytes[200];
    uint8_t back[200];

    fill(bytes, sizeof(bytes), 4);
    assert_int_equal(put_at(reader, "key", bytes, sizeof(bytes), own->nodes[0].name), 0);
    assert_int_equal(start(reader, "key"), 0);
    ground_stop(&own->directory);
    assert_int_equal(read_two(reader, "key", (struct two){back, 0, back + 100, 100, 100}), 200);
    assert_memory_equal(back, bytes, 200);
    ground_go(&own->directory);
    yb_compat_store_destroy(&reader);
    ground_destroy(&own);
}

static void
test_compat_store_more__holds_what_a_session_reads_at_its_node(void **state)
{
    enum { BYTES = 64 * KIB, OTHERS = 2 * 64 };
    const struct ground_options options = {.nodes = 1, .pool_bytes = 4 * MIB};
    struct ground *own = ground_create(&options);
    struct yb_compat_store *reader = open_store(own, 0);
    uint8_t *bytes = malloc(BYTES);
    uint8_t back[200];
    char name[16];

    fill(bytes, BYTES, 5);
    assert_int_equal(put_at(reader, "read", bytes, BYTES, NULL), 0);
    assert_int_equal(start(reader, "read"), 0);
    assert_int_equal(put_at(reader, "first", bytes, BYTES, NULL), 0);
    assert_int_equal(exist(reader, "first"), 1); /* Held by the directory's word alone ... */
    for (int i = 0; i < OTHERS; i++) {
        (void)snprintf(name, sizeof(name), "other-%d", i);
        assert_int_equal(put_at(reader, name, bytes, BYTES, NULL), 0);
        assert_int_equal(exist(reader, name), 1);
    }
    assert_int_equal(exist(reader, "first"), 0); /* ... which yields to newer ones. */
    assert_int_equal(read_two(reader, "read", (struct two){back, 0, back + 100, 9, 100}), 200);
    assert_memory_equal(back, bytes, 100);
    assert_memory_equal(back + 100, bytes + 9, 100);
    free(bytes);
    yb_compat_store_destroy(&reader);
    ground_destroy(&own);
}

static void
test_compat_store_more__ends_a_session_whose_value_is_another_one(void **state)
{
    const struct iovec piece = {.iov_base = (void *)(uintptr_t) "other bytes", .iov_len = 11};
    const struct yb_compat_value value = {.pieces = &piece, .count = 1};
    const struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_FROM, .upsert = true};
    const yb_compat_key key = key_of("other");
    uint8_t a[4];
    uint8_t b[4];
    int32_t code;

    assert_int_equal(put_at(store, "other", "first bytes", 11, ground->nodes[0].name), 0);
    assert_int_equal(start(store, "other"), 0);
    yb_compat_store_put(store, &key, &value, 1, &call, &code);
    assert_int_equal(code, 0);
    assert_int_equal(read_two(store, "other", (struct two){a, 0, b, 4, 4}), -707);
    assert_int_equal(read_two(store, "other", (struct two){a, 0, b, 4, 4}),
                     -600); /* The session is gone. */
}

/* ---- sessions that write -------------------------------------------------------------------- */

static int32_t
write_start(const char *key, uint64_t size)
{
    const yb_compat_key name = key_of(key);
    int32_t code = 1;

    yb_compat_store_put_session_start(store, &name, &size, 1, NULL, &code);
    return code;
}

static int64_t
write_at(const char *key, const uint8_t *bytes, size_t length, uint64_t at)
{
    const struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    const struct yb_compat_value from = {.pieces = &piece, .count = 1};
    const uint64_t *const targets[1] = {&at};
    const yb_compat_key name = key_of(key);
    int64_t code = 1;

    yb_compat_store_put_session_write(store, &name, &from, targets, 1, &code);
    return code;
}

static int32_t
write_end(const char *key, bool revoke)
{
    const yb_compat_key name = key_of(key);
    int32_t code = 1;

    if (revoke) {
        yb_compat_store_put_session_revoke(store, &name, 1, &code);
    } else {
        yb_compat_store_put_session_end(store, &name, 1, &code);
    }
    return code;
}

static void
test_compat_store_more__shows_a_value_when_its_session_ends(void **state)
{
    uint8_t bytes[100];
    uint8_t back[100];

    fill(bytes, sizeof(bytes), 2);
    assert_int_equal(write_at("written", bytes, 10, 0), -600);
    assert_int_equal(write_start("written", 0), -600);
    assert_int_equal(write_start("written", 1ull << 40), -200); /* More than all segments have. */
    assert_int_equal(write_start("written", 100), 0);
    assert_int_equal(write_start("written", 100), -600); /* One is open. */
    assert_int_equal(write_at("written", bytes + 60, 40, 60), 40);
    assert_int_equal(write_at("written", bytes, 60, 0), 60);
    assert_int_equal(write_at("written", bytes, 60, 41), -600);
    assert_int_equal(get(store, "written", back, 100), -704);
    assert_int_equal(write_end("written", false), 0);
    assert_int_equal(get(store, "written", back, 100), 100);
    assert_memory_equal(back, bytes, 100);
    assert_int_equal(write_end("written", false), -600);
    assert_int_equal(write_start("written", 100), -705); /* It is there. */
    assert_int_equal(write_start("revoked", 100), 0);
    assert_int_equal(write_end("revoked", true), 0);
    assert_int_equal(write_end("revoked", false), -600);
    assert_int_equal(get(store, "revoked", back, 100), -704);
}

static void
test_compat_store_more__keeps_a_session_that_could_not_end(void **state)
{
    uint8_t back[8];

    assert_int_equal(write_start("late", 8), 0);
    assert_int_equal(write_at("late", (const uint8_t *)"session.", 8, 0), 8);
    assert_int_equal(put_at(store, "late", "others", 6, NULL), 0);
    assert_int_equal(write_end("late", false), -705);
    assert_int_equal(write_at("late", (const uint8_t *)"x", 1, 0), -600); /* It is sealed. */
    assert_int_equal(remove_key(store, "late", true), 0);
    assert_int_equal(write_end("late", false), 0);
    assert_int_equal(get(store, "late", back, 8), 8);
    assert_memory_equal(back, "session.", 8);
}

static void *
end_racing(void *context)
{
    *(int32_t *)context = write_end("raced", false);
    return NULL;
}

static void
test_compat_store_more__ends_a_session_once_however_many_try(void **state)
{
    for (uint32_t i = 0; i < 20; i++) {
        pthread_t threads[4];
        int32_t codes[4];
        uint32_t ended = 0;

        assert_int_equal(write_start("raced", 8), 0);
        for (uint32_t k = 0; k < 4; k++) {
            assert_int_equal(pthread_create(&threads[k], NULL, end_racing, &codes[k]), 0);
        }
        for (uint32_t k = 0; k < 4; k++) {
            assert_int_equal(pthread_join(threads[k], NULL), 0);
            assert_true(codes[k] == 0 || codes[k] == -600);
            ended += codes[k] == 0 ? 1 : 0;
        }
        assert_int_equal(ended, 1);
        assert_int_equal(remove_key(store, "raced", true), 0);
    }
}

/* ---- places --------------------------------------------------------------------------------- */

static uint32_t
replicas_of(const char *key, struct yb_compat_replica replicas[4])
{
    const yb_compat_key name = key_of(key);

    return yb_compat_store_replicas(store, &name, 1, replicas, 4);
}

static enum yb_compat_task_state
await_task(const uint64_t id[2])
{
    struct yb_compat_task task = {.state = YB_COMPAT_TASK_PENDING};

    while (task.state < YB_COMPAT_TASK_SUCCESS) {
        assert_int_equal(yb_compat_store_task_query(store, id, &task), 0);
    }
    return task.state;
}

static void
test_compat_store_more__copies_moves_and_clears_replicas(void **state)
{
    const char *const there[2] = {ground->nodes[0].name, NULL};
    const char *const nowhere[2] = {"nowhere:1", NULL};
    struct yb_compat_replica replicas[4];
    uint8_t bytes[100001];
    static uint8_t back[100001];
    const yb_compat_key key = key_of("placed");
    const yb_compat_key other = key_of("nothing");
    struct yb_compat_task task;
    char segment[64];
    uint64_t id[2];
    int32_t code;

    fill(bytes, sizeof(bytes), 11);
    (void)yb_compat_store_hostname(store, segment, sizeof(segment));
    assert_int_equal(put_at(store, "placed", bytes, sizeof(bytes), segment), 0);
    assert_int_equal(replicas_of("placed", replicas), 1);
    assert_string_equal(replicas[0].segment, segment);
    assert_int_equal(replicas[0].bytes, sizeof(bytes));
    assert_int_equal(yb_compat_store_size(store, &key), sizeof(bytes));
    assert_int_equal(replicas_of("nothing", replicas), 0);

    assert_int_equal(yb_compat_store_task(store, &other, NULL, there, id), -704);
    assert_int_equal(yb_compat_store_task(store, &key, NULL, nowhere, id), -600);
    assert_int_equal(yb_compat_store_task(store, &key, "nowhere:1", there, id), -600);
    assert_int_equal(yb_compat_store_task_query(store, id, &task), -1400);
    assert_int_equal(yb_compat_store_task(store, &key, NULL, there, id), 0);
    assert_int_equal(await_task(id), YB_COMPAT_TASK_SUCCESS);
    assert_int_equal(replicas_of("placed", replicas), 2);

    yb_compat_store_replica_clear(store, &key, 1, "nowhere:1", &code);
    assert_int_equal(code, -710);
    yb_compat_store_replica_clear(store, &key, 1, segment, &code);
    assert_int_equal(code, 0);
    assert_int_equal(get(store, "placed", back, sizeof(back)), sizeof(back));
    assert_memory_equal(back, bytes, sizeof(back));
}

static void
test_compat_store_more__takes_memory_that_is_given_by_hand_and_gives_it_back(void **state)
{
    struct yb_compat_replica replicas[4];
    char name[64];

    assert_int_equal(yb_compat_store_mount(store, 0, name), -600);
    assert_int_equal(yb_compat_store_mount(store, 8 * MIB, name), 0);
    assert_int_equal(put_at(store, "mounted", "bytes", 5, name), 0);
    assert_int_equal(replicas_of("mounted", replicas), 1);
    assert_string_equal(replicas[0].segment, name);
    assert_int_equal(yb_compat_store_unmount(store, "nowhere:1", 0), -101);
    assert_int_equal(yb_compat_store_unmount(store, name, 0), 0);
    assert_int_equal(yb_compat_store_unmount(store, name, 0), -101);
}

/* ---- dummies -------------------------------------------------------------------------------- */

/* Somebody else at a port's local socket. */
struct stranger {
    int listener;
    const char *text;
};

static void *
tell_as_a_stranger(void *context)
{
    const struct stranger *stranger = context;
    int fd = accept(stranger->listener, NULL, NULL);

    (void)!send(fd, stranger->text, strlen(stranger->text), MSG_NOSIGNAL);
    (void)close(fd);
    return NULL;
}

static void
test_compat_store_more__lets_a_dummy_use_the_segment_of_another_store(void **state)
{
    struct yb_compat_store *dummy = yb_compat_store_create();
    uint16_t port = (uint16_t)(20000 + getpid() % 10000);
    const struct yb_compat_setup setup = setup_of(ground);
    struct yb_compat_door_line line = {.node = "127.0.0.1:1", .tenant = "default"};
    char why[YB_COMPAT_DOOR_WHY_BYTES];
    struct yb_compat_door *door = NULL;
    char server[64];
    uint8_t *bytes = yb_compat_host_alloc(10000);
    static uint8_t back[10000];

    (void)state;
    (void)snprintf(line.directory, sizeof(line.directory), "%s", setup.master);
    (void)snprintf(server, sizeof(server), "127.0.0.1:%u", port);
    assert_int_equal(yb_compat_store_setup_dummy(dummy, MIB, MIB, "127.0.0.1"), -600);
    assert_int_equal(yb_compat_store_setup_dummy(dummy, MIB, MIB, server), -900);
    assert_int_equal(yb_compat_door_open(port, &line, &door, why), YB_OK);
    assert_int_equal(yb_compat_door_open(port, &line, &door, why), YB_EXISTS);
    assert_non_null(strstr(why, "mooncake_client"));
    assert_int_equal(yb_compat_store_setup_dummy(dummy, MIB, MIB, server), 0);
    fill(bytes, 10000, 8);
    assert_int_equal(put_at(dummy, "dummy", bytes, 10000, NULL), 0);
    assert_int_equal(get(store, "dummy", back, 10000), 10000);
    assert_memory_equal(back, bytes, 10000);
    yb_compat_store_destroy(&dummy);
    yb_compat_door_close(&door);
    assert_int_equal(yb_compat_door_ask(port, &line), YB_NOT_FOUND);
    assert_int_equal(yb_compat_host_free(bytes), 0);
}

static void
test_compat_store_more__a_door_that_says_no_addresses_is_not_ours(void **state)
{
    static const char *const texts[] = {"", "{}\n", "yuebing 127.0.0.1:1 default\n", "[1]",
                                        "{\"directory\":\"a:1\",\"node\":1,\"tenant\":\"t\"}\n"};
    uint16_t port = (uint16_t)(30000 + getpid() % 10000);
    struct yb_compat_door_line line;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "mooncake_client_%u.sock", port);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_int_equal(
        bind(listener, (const struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)length),
        0);
    assert_int_equal(listen(listener, 8), 0);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct stranger stranger = {.listener = listener, .text = texts[i]};
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, tell_as_a_stranger, &stranger), 0);
        assert_int_equal(yb_compat_door_ask(port, &line), YB_PROTOCOL);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(close(listener), 0);
}

/* ---- many at once --------------------------------------------------------------------------- */

#define THREADS 12u
#define ROUNDS  20u

struct worker {
    pthread_t thread;
    uint32_t number;
};

static void *
work(void *context)
{
    struct worker *worker = context;
    uint8_t *bytes = malloc(64 * KIB);
    uint8_t *back = malloc(64 * KIB);

    for (uint32_t i = 0; i < ROUNDS; i++) {
        size_t length = 1 + (worker->number * 7919 + i * 104729) % (64 * KIB);
        yb_compat_key key;
        char name[32];

        (void)snprintf(name, sizeof(name), "thread-%u-%u", worker->number, i);
        key = key_of(name);
        fill(bytes, length, worker->number * ROUNDS + i);
        assert_int_equal(yb_compat_store_register(store, bytes, 64 * KIB), 0);
        assert_int_equal(put_at(store, name, bytes, length, NULL), 0);
        assert_int_equal(start(store, name), 0);
        assert_int_equal(get(store, name, back, 64 * KIB), length);
        assert_memory_equal(back, bytes, length);
        assert_int_equal(yb_compat_store_get_session_end(store, &key, 1), 0);
        assert_int_equal(yb_compat_store_unregister(store, bytes), 0);
    }
    free(back);
    free(bytes);
    return NULL;
}

static void
test_compat_store_more__serves_a_dozen_threads_at_once(void **state)
{
    struct worker workers[THREADS];

    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
}

static void *
use_until_closed(void *context)
{
    struct yb_compat_store *used = context;
    const yb_compat_key key = key_of("closing");
    int32_t code = 0;

    while (code != -600) {
        yb_compat_store_exist(used, &key, 1, &code);
    }
    return NULL;
}

static void
test_compat_store_more__closes_under_those_who_use_it(void **state)
{
    struct yb_compat_store *used = open_store(ground, 0);
    pthread_t threads[4];

    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, use_until_closed, used), 0);
    }
    assert_int_equal(yb_compat_store_close(used), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    yb_compat_store_destroy(&used);
}

/* ---- others that are not there -------------------------------------------------------------- */

static void
test_compat_store_more__is_no_use_to_a_forked_child_and_goes_on_in_the_parent(void **state)
{
    const yb_compat_key key = key_of("forked");
    int32_t code;
    int status;
    pid_t child = fork();

    if (child == 0) {
        yb_compat_store_exist(store, &key, 1, &code);
        if (code == -600 && yb_compat_store_close(store) == 0) {
            yb_compat_store_destroy(&store);
            _exit(0);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    yb_compat_store_exist(store, &key, 1, &code);
    assert_int_equal(code, 0);
}

static void
test_compat_store_more__says_that_the_directory_does_not_answer(void **state)
{
    const struct ground_options options = {.nodes = 1};
    struct ground *own = ground_create(&options);
    struct yb_compat_store *left = open_store(own, 0);
    const yb_compat_key key = key_of("key");
    int32_t code = 1;

    assert_int_equal(yb_compat_store_health(left), 0);
    ground_stop(&own->directory);
    assert_int_equal(yb_compat_store_health(left), 2);
    yb_compat_store_exist(left, &key, 1, &code);
    assert_true(code == -900 || code == -901);
    ground_go(&own->directory);
    assert_int_equal(yb_compat_store_close(left), 0);
    yb_compat_store_destroy(&left);
    ground_destroy(&own);
}

/* ---- what somebody else is writing ----------------------------------------------------------- */

struct late_put {
    struct yb_compat_store *store;
    int32_t code;
    int32_t there; /* Right after. */
    atomic_bool done;
};

static void *
put_late(void *argument)
{
    struct late_put *late = argument;
    const yb_compat_key key = key_of("contended");

    late->code = put_at(late->store, "contended", "second", 6, NULL);
    yb_compat_store_exist(late->store, &key, 1, &late->there);
    atomic_store(&late->done, true);
    return NULL;
}

static void
test_compat_store_more__a_put_waits_for_who_writes_the_key_already(void **state)
{
    const struct ground_options options = {.nodes = 1};
    struct ground *own = ground_create(&options);
    struct late_put late = {.store = open_store(own, 0)};
    struct yb_client *first = ground_client(own, NULL);
    const struct iovec value = {.iov_base = (void *)(uintptr_t) "first", .iov_len = 5};
    struct yb_client_item item = {.key = "contended", .key_bytes = 9, .iov = &value};
    struct yb_client_item looked = {.key = "contended", .key_bytes = 9};
    struct yb_client_counters counters;
    yb_client_handle handle;
    uint64_t before;
    pthread_t thread;
    char got[8];

    item.iov_count = 1;
    ground_stop(&own->nodes[0]);
    assert_int_equal(
        yb_client_submit(first, YB_CLIENT_OP_PUT, &item, 1, NULL, NULL, NULL, 0, &handle), YB_OK);
    do { /* Until the directory knows of it. */
        assert_int_equal(yb_client_exist(first, &looked, 1, NULL), YB_OK);
    } while (looked.status != YB_IN_PROGRESS);
    assert_true(yb_compat_store_counters(late.store, &counters));
    before = counters.calls;
    assert_int_equal(pthread_create(&thread, NULL, put_late, &late), 0);
    while (!atomic_load(&late.done) && counters.calls < before + 3) {
        assert_true(yb_compat_store_counters(late.store, &counters)); /* It asks and asks. */
    }
    assert_false(atomic_load(&late.done));
    ground_go(&own->nodes[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(late.code, 0);
    assert_int_equal(late.there, 1);
    assert_int_equal(yb_client_wait(first, handle, 60 * YB_NS_PER_S), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(get(late.store, "contended", got, sizeof(got)), 5); /* The first one won. */
    assert_memory_equal(got, "first", 5);
    yb_client_close(&first);
    yb_compat_store_destroy(&late.store);
    ground_destroy(&own);
}

static void
test_compat_store_more__what_is_to_lie_on_one_node_does(void **state)
{
    enum { KEYS = 32 };
    const struct ground_options options = {.nodes = 3};
    struct ground *own = ground_create(&options);
    struct yb_compat_store *left = open_store(own, 0);
    struct yb_compat_replica replicas[KEYS];
    struct yb_compat_replicate replicate;
    struct yb_compat_put_call call = {.kind = YB_COMPAT_PUT_PIECES, .replicate = &replicate};
    const struct iovec piece = {.iov_base = (void *)(uintptr_t) "value", .iov_len = 5};
    struct yb_compat_value values[KEYS];
    yb_compat_key keys[KEYS];
    char names[KEYS][16];
    int32_t codes[KEYS];
    bool apart = false;

    yb_compat_replicate_default(&replicate);
    for (int round = 0; round < 2; round++) {
        replicate.same_node = round == 1;
        for (int i = 0; i < KEYS; i++) {
            (void)snprintf(names[i], sizeof(names[i]), "same-%d-%d", round, i);
            keys[i] = key_of(names[i]);
            values[i] = (struct yb_compat_value){.pieces = &piece, .count = 1};
        }
        yb_compat_store_put(left, keys, values, KEYS, &call, codes);
        for (int i = 0; i < KEYS; i++) {
            assert_int_equal(codes[i], 0);
        }
        assert_int_equal(yb_compat_store_replicas(left, keys, KEYS, replicas, KEYS), KEYS);
        for (int i = 0; i < KEYS; i++) {
            bool same = strcmp(replicas[i].segment, replicas[0].segment) == 0;

            apart = apart || (round == 0 && !same);
            assert_true(round == 0 || same);
        }
    }
    assert_true(apart); /* Without, they are spread. */
    yb_compat_store_destroy(&left);
    ground_destroy(&own);
}

static void
test_compat_store_more__counts_what_it_does(void **state)
{
    struct yb_compat_store *left = open_store(ground, 0);
    struct yb_client_counters counters;
    char got[8];

    assert_int_equal(put_at(left, "counted", "value", 5, NULL), 0);
    assert_int_equal(get(left, "counted", got, sizeof(got)), 5);
    assert_int_equal(get(left, "missing", got, sizeof(got)), -704);
    assert_true(yb_compat_store_counters(left, &counters));
    assert_int_equal(counters.puts, 1);
    assert_int_equal(counters.put_bytes, 5);
    assert_int_equal(counters.gets, 2);
    assert_int_equal(counters.hits, 1);
    assert_int_equal(yb_compat_store_close(left), 0);
    assert_false(yb_compat_store_counters(left, &counters));
    assert_int_equal(counters.puts, 0);
    assert_int_equal(remove_key(store, "counted", true), 0);
    yb_compat_store_destroy(&left);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_store_more__reads_ranges_of_a_session_and_nothing_without_one),
        cmocka_unit_test(test_compat_store_more__asks_no_directory_while_a_session_reads),
        cmocka_unit_test(test_compat_store_more__holds_what_a_session_reads_at_its_node),
        cmocka_unit_test(test_compat_store_more__ends_a_session_whose_value_is_another_one),
        cmocka_unit_test(test_compat_store_more__shows_a_value_when_its_session_ends),
        cmocka_unit_test(test_compat_store_more__keeps_a_session_that_could_not_end),
        cmocka_unit_test(test_compat_store_more__ends_a_session_once_however_many_try),
        cmocka_unit_test(test_compat_store_more__copies_moves_and_clears_replicas),
        cmocka_unit_test(
            test_compat_store_more__takes_memory_that_is_given_by_hand_and_gives_it_back),
        cmocka_unit_test(test_compat_store_more__lets_a_dummy_use_the_segment_of_another_store),
        cmocka_unit_test(test_compat_store_more__a_door_that_says_no_addresses_is_not_ours),
        cmocka_unit_test(test_compat_store_more__serves_a_dozen_threads_at_once),
        cmocka_unit_test(test_compat_store_more__closes_under_those_who_use_it),
        cmocka_unit_test(
            test_compat_store_more__is_no_use_to_a_forked_child_and_goes_on_in_the_parent),
        cmocka_unit_test(test_compat_store_more__says_that_the_directory_does_not_answer),
        cmocka_unit_test(test_compat_store_more__a_put_waits_for_who_writes_the_key_already),
        cmocka_unit_test(test_compat_store_more__what_is_to_lie_on_one_node_does),
        cmocka_unit_test(test_compat_store_more__counts_what_it_does),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
