/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory/cluster_file.h"
#include "directory/grant.h"

struct place {
    char folder[64];
    char path[96];
    char why[512];
};

static int
setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));

    assert_non_null(place);
    (void)snprintf(place->folder, sizeof(place->folder), "/tmp/yb-cluster-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    (void)snprintf(place->path, sizeof(place->path), "%s/cluster.json", place->folder);
    *state = place;
    return 0;
}

static int
teardown(void **state)
{
    static const char *const suffixes[] = {"", ".lock", ".new"};
    struct place *place = *state;
    char path[128];

    for (uint32_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof(path), "%s%s", place->path, suffixes[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(place->folder), 0);
    free(place);
    return 0;
}

static struct yb_cluster_file *
open_file(struct place *place)
{
    struct yb_cluster_file *file;

    assert_int_equal(yb_cluster_file_open(place->path, NULL, &file, place->why, sizeof(place->why)),
                     YB_OK);
    return file;
}

static void
write_text(const struct place *place, const char *text)
{
    FILE *file = fopen(place->path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void
read_text(const struct place *place, char *out, size_t room)
{
    FILE *file = fopen(place->path, "r");
    size_t got;

    assert_non_null(file);
    got = fread(out, 1, room - 1, file);
    out[got] = '\0';
    assert_int_equal(fclose(file), 0);
}

static struct yb_cluster_member members[2] = {
    {
        .name = "node \"one\"",
        .address = "127.0.0.1:14701",
        .incarnation = UINT64_C(0xfffffe0000000007),
        .previous = 5,
        .draining = true,
    },
    {.name = "two", .address = "[::1]:1", .incarnation = UINT64_C(1) << 40 | 1, .owes = true},
};
static struct yb_cluster_tenant tenants[2] = {
    {.name = "default", .flush = 9, .limit = YB_CLUSTER_NO_LIMIT},
    {.name = "somebody", .flush = 0, .limit = 123456789012345},
};

static struct yb_cluster_state
some_state(void)
{
    return (struct yb_cluster_state){
        .cluster = {{1, 2, 0xff}},
        .seed = {9, 8, 7, 0, 0xfe},
        .epoch = 41,
        .members = members,
        .member_count = 2,
        .tenants = tenants,
        .tenant_count = 2,
    };
}

static void
test_cluster_file__what_is_stored_is_loaded(void **state)
{
    struct place *place = *state;
    struct yb_cluster_file *file = open_file(place);
    struct yb_cluster_state stored = some_state();
    struct yb_cluster_state loaded;
    struct stat about;

    assert_int_equal(yb_cluster_file_load(file, &loaded, place->why, sizeof(place->why)),
                     YB_NOT_FOUND);
    assert_int_equal(yb_cluster_file_store(file, &stored, place->why, sizeof(place->why)), YB_OK);
    yb_cluster_file_close(&file);
    assert_null(file);
    assert_int_equal(stat(place->path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600); /* The seed is in it. */
    file = open_file(place);
    assert_int_equal(yb_cluster_file_load(file, &loaded, place->why, sizeof(place->why)), YB_OK);
    assert_true(yb_id_equal(loaded.cluster, stored.cluster));
    assert_memory_equal(loaded.seed, stored.seed, sizeof(stored.seed));
    assert_int_equal(loaded.epoch, 41);
    assert_int_equal(loaded.member_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(loaded.members[i].name, members[i].name);
        assert_string_equal(loaded.members[i].address, members[i].address);
        assert_true(loaded.members[i].incarnation == members[i].incarnation);
        assert_true(loaded.members[i].previous == members[i].previous);
        assert_int_equal(loaded.members[i].draining, members[i].draining);
        assert_int_equal(loaded.members[i].owes, members[i].owes);
        assert_string_equal(loaded.tenants[i].name, tenants[i].name);
        assert_true(loaded.tenants[i].flush == tenants[i].flush);
        assert_true(loaded.tenants[i].limit == tenants[i].limit);
    }
    yb_cluster_state_fini(&loaded);
    yb_cluster_file_close(&file);
}

/* F2 */
static void
test_cluster_file__one_file_has_one_owner(void **state)
{
    struct place *place = *state;
    struct yb_cluster_file *file = open_file(place);
    struct yb_cluster_file *second = NULL;
    char pid[32];

    assert_int_equal(
        yb_cluster_file_open(place->path, NULL, &second, place->why, sizeof(place->why)), YB_BUSY);
    (void)snprintf(pid, sizeof(pid), "process %ld", (long)getpid());
    assert_non_null(strstr(place->why, pid));
    assert_non_null(strstr(place->why, place->path));
    yb_cluster_file_close(&file);
    file = open_file(place);
    yb_cluster_file_close(&file);
}

/* F3 */
static void
test_cluster_file__what_cannot_be_read_is_left_alone(void **state)
{
    static const struct {
        const char *text;
        enum yb_status status;
        const char *word;
    } cases[] = {
        {"", YB_INVALID, "damaged"},
        {"{\"format\": \"yuebing-clu", YB_INVALID, "damaged"},
        {"[1]", YB_INVALID, "not a cluster file"},
        {"{\"format\": \"other\", \"version\": 1}", YB_INVALID, "not a cluster file"},
        {"{\"format\": \"yuebing-cluster\", \"version\": 2}", YB_VERSION, "version 2"},
        {"{\"format\": \"yuebing-cluster\", \"version\": 1}", YB_INVALID, "\"cluster\""},
        {"{\"format\": \"yuebing-cluster\", \"version\": 1, "
         "\"cluster\": \"00000000000000000000000000000001\", "
         "\"seed\": \"00000000000000000000000000000001\", \"epoch\": 0}",
         YB_INVALID, "\"epoch\""},
        {"{\"format\": \"yuebing-cluster\", \"version\": 1, "
         "\"cluster\": \"00000000000000000000000000000001\", "
         "\"seed\": \"00000000000000000000000000000001\", \"epoch\": 1, "
         "\"members\": [{\"name\": \"a\"}], \"tenants\": []}",
         YB_INVALID, "\"members\""},
        {"{\"format\": \"yuebing-cluster\", \"version\": 1, "
         "\"cluster\": \"00000000000000000000000000000001\", "
         "\"seed\": \"00000000000000000000000000000001\", \"epoch\": 1, "
         "\"members\": [], \"tenants\": [{\"name\": \"a\", \"flush\": -1, \"limit\": null}]}",
         YB_INVALID, "\"tenants\""},
    };
    struct place *place = *state;

    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct yb_cluster_file *file = open_file(place);
        struct yb_cluster_state stored = some_state();
        struct yb_cluster_state loaded;
        char text[4096];

        write_text(place, cases[i].text);
        assert_int_equal(yb_cluster_file_load(file, &loaded, place->why, sizeof(place->why)),
                         cases[i].status);
        assert_non_null(strstr(place->why, cases[i].word));
        assert_non_null(strstr(place->why, place->path));
        assert_int_equal(yb_cluster_file_store(file, &stored, place->why, sizeof(place->why)),
                         YB_INVALID);
        read_text(place, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
        yb_cluster_file_close(&file);
    }
}

static void
test_cluster_file__a_folder_that_cannot_be_written_is_told(void **state)
{
    struct place *place = *state;
    struct yb_cluster_file *file = NULL;

    assert_int_equal(yb_cluster_file_open("/proc/no-such-folder/cluster", NULL, &file, place->why,
                                          sizeof(place->why)),
                     YB_IO);
    assert_null(file);
    assert_non_null(strstr(place->why, "/proc/no-such-folder/cluster"));
}

/* Any damage of one byte is refused or read as what it says; nothing else happens. */
static void
test_cluster_file__damage_of_any_byte_is_survived(void **state)
{
    struct place *place = *state;
    struct yb_cluster_file *file = open_file(place);
    struct yb_cluster_state stored = some_state();
    uint64_t random = unit_seed("cluster_file");
    char text[4096];
    size_t length;

    assert_int_equal(yb_cluster_file_store(file, &stored, place->why, sizeof(place->why)), YB_OK);
    read_text(place, text, sizeof(text));
    length = strlen(text);
    for (uint32_t i = 0; i < 500; i++) {
        size_t at = (size_t)(unit_random(&random) % length);
        struct yb_cluster_state loaded;
        char changed[4096];
        enum yb_status status;

        memcpy(changed, text, length + 1);
        changed[at] = (char)(1 + unit_random(&random) % 255);
        write_text(place, changed);
        status = yb_cluster_file_load(file, &loaded, place->why, sizeof(place->why));
        assert_true(status == YB_OK || status == YB_INVALID || status == YB_VERSION);
        if (status == YB_OK) {
            assert_true(loaded.epoch >= 1 && loaded.epoch <= YB_GRANT_EPOCH_MAX);
            yb_cluster_state_fini(&loaded);
        }
    }
    yb_cluster_file_close(&file);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_cluster_file__##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_stored_is_loaded),          TEST(one_file_has_one_owner),
        TEST(what_cannot_be_read_is_left_alone), TEST(a_folder_that_cannot_be_written_is_told),
        TEST(damage_of_any_byte_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
