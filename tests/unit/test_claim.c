/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: an object store is one cluster's, and says whose (tier/object/claim.h). Method: claims and
 * looks at a folder, whose files are compared; and a medium that is gone.
 */
#include "object_ground.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tier/object/claim.h"

#define DEADLINE_NS (20 * YB_NS_PER_S)

struct asking {
    struct object_ground *ground;
    struct yb_object_claim *claim;
    bool over;
    enum yb_status status;
    char why[YB_OBJECT_WHY_BYTES];
};

static void
on_done(void *context, enum yb_status status, const char *why)
{
    struct asking *asking = context;

    assert_false(asking->over);
    asking->over = true;
    asking->status = status;
    (void)snprintf(asking->why, sizeof(asking->why), "%s", why);
}

static struct yb_object_mark
mark_of(uint8_t cluster, uint64_t epoch)
{
    struct yb_object_mark mark = {.epoch = epoch};

    memset(&mark.cluster, cluster, sizeof(mark.cluster));
    memset(&mark.seed, cluster + 1, sizeof(mark.seed));
    return mark;
}

/* Claim for a cluster, or look (NULL). The claim is left open. */
static enum yb_status
ask(struct object_ground *ground, const struct yb_object_mark *mine, struct asking *asking)
{
    const struct yb_object_claim_options options = {
        .loop = ground->loop,
        .url = ground->url,
        .mine = mine,
        .deadline_ns = yb_loop_now(ground->loop) + DEADLINE_NS,
        .done = on_done,
        .context = asking,
    };

    *asking = (struct asking){.ground = ground};
    assert_int_equal(yb_object_claim_begin(&options, &asking->claim, asking->why), YB_OK);
    assert_false(asking->over);
    ground_turn(ground, &asking->over);
    return asking->status;
}

static enum yb_status
claim(struct object_ground *ground, struct yb_object_mark mine, char *why_out)
{
    struct asking asking;
    enum yb_status status = ask(ground, &mine, &asking);

    if (why_out != NULL) {
        (void)snprintf(why_out, YB_OBJECT_WHY_BYTES, "%s", asking.why);
    }
    yb_object_claim_end(&asking.claim);
    assert_null(asking.claim);
    return status;
}

/* Whether the folder has exactly this mark of the cluster; 0: none. */
static void
assert_marked(const struct object_ground *ground, uint8_t cluster, uint64_t epoch)
{
    struct yb_object_mark mark = mark_of(cluster, epoch);
    char hex[33], seed[33], path[256], name[64], found[512] = "";
    struct dirent *entry;
    DIR *listing;

    yb_id_format(mark.cluster, hex);
    yb_id_format(mark.seed, seed);
    (void)snprintf(path, sizeof(path), "%s/_cluster/%s", ground->folder, hex);
    (void)snprintf(name, sizeof(name), "%s,%016lx", seed, (unsigned long)epoch);
    listing = opendir(path);
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] != '.') {
            assert_string_equal(found, "");
            (void)snprintf(found, sizeof(found), "%s", entry->d_name);
        }
    }
    if (listing != NULL) {
        (void)closedir(listing);
    }
    assert_string_equal(found, epoch != 0 ? name : "");
}

static int
setup(void **state)
{
    struct object_ground *ground = calloc(1, sizeof(*ground));

    ground_init(ground);
    *state = ground;
    return 0;
}

static int
teardown(void **state)
{
    ground_fini(*state);
    free(*state);
    return 0;
}

static void
test_claim__marks_what_is_nobodys_and_takes_up_its_own_with_the_latest_epoch(void **state)
{
    struct object_ground *ground = *state;
    char why[YB_OBJECT_WHY_BYTES];

    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_OK);
    assert_marked(ground, 1, 7);
    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_OK);
    assert_marked(ground, 1, 7);
    assert_int_equal(claim(ground, mark_of(1, 9), NULL), YB_OK);
    assert_marked(ground, 1, 9);
    /* Who follows an earlier directory does not take it back. */
    assert_int_equal(claim(ground, mark_of(1, 8), why), YB_STALE);
    assert_non_null(strstr(why, "end one of the two"));
    assert_marked(ground, 1, 9);
}

static void
test_claim__is_refused_what_is_anothers_and_leaves_it_alone(void **state)
{
    struct object_ground *ground = *state;
    char why[YB_OBJECT_WHY_BYTES];

    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_OK);
    assert_int_equal(claim(ground, mark_of(3, 9), why), YB_REFUSED);
    assert_non_null(strstr(why, "cluster 03030303030303030303030303030303"));
    assert_non_null(strstr(why, "belongs to cluster 01010101010101010101010101010101"));
    assert_marked(ground, 1, 7);
    assert_marked(ground, 3, 0);
    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_OK);
}

static void
test_claim__of_the_same_cluster_with_another_seed_is_refused(void **state)
{
    struct object_ground *ground = *state;
    struct yb_object_mark other = mark_of(1, 7);

    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_OK);
    memset(&other.seed, 9, sizeof(other.seed));
    assert_int_equal(claim(ground, other, NULL), YB_REFUSED);
}

/* What is there besides. */
static void
put_file(const struct object_ground *ground, const char *folder, const char *name)
{
    char path[300];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", ground->folder, folder);
    for (char *at = path + strlen(ground->folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", ground->folder, folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void
test_claim__look_finds_the_cluster_its_latest_epoch_and_what_was_flushed(void **state)
{
    struct object_ground *ground = *state;
    struct yb_object_mark mine = mark_of(1, 9);
    const struct yb_object_flushed *flushed;
    struct asking asking;
    uint32_t count, seen = 0;

    assert_int_equal(ask(ground, NULL, &asking), YB_NOT_FOUND);
    yb_object_claim_end(&asking.claim);
    assert_int_equal(claim(ground, mine, NULL), YB_OK);
    put_file(ground, "_cluster/01010101010101010101010101010101",
             "02020202020202020202020202020202,0000000000000004");
    put_file(ground, "_cluster/01010101010101010101010101010101", "no mark");
    put_file(ground, "_flush", "a,0000000000000003");
    put_file(ground, "_flush", "a,000000000000000b");
    put_file(ground, "_flush", "b,0000000000000002");
    assert_int_equal(ask(ground, NULL, &asking), YB_OK);
    assert_memory_equal(yb_object_claim_mark(asking.claim), &mine, sizeof(mine));
    flushed = yb_object_claim_flushed(asking.claim, &count);
    assert_int_equal(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        seen += strcmp(flushed[i].tenant, "a") == 0 && flushed[i].flush == 11 ? 1 : 0;
        seen += strcmp(flushed[i].tenant, "b") == 0 && flushed[i].flush == 2 ? 16 : 0;
    }
    assert_int_equal(seen, 17);
    yb_object_claim_end(&asking.claim);
}

static void
test_claim__look_at_a_store_of_two_clusters_is_refused_and_says_which(void **state)
{
    struct object_ground *ground = *state;
    struct asking asking;

    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_OK);
    put_file(ground, "_cluster/05050505050505050505050505050505",
             "06060606060606060606060606060606,0000000000000004");
    assert_int_equal(ask(ground, NULL, &asking), YB_REFUSED);
    assert_non_null(strstr(asking.why, "05050505050505050505050505050505"));
    assert_non_null(strstr(asking.why, "01010101010101010101010101010101"));
    yb_object_claim_end(&asking.claim);
    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_REFUSED);
}

static void
test_claim__of_a_store_that_is_gone_says_so(void **state)
{
    struct object_ground *ground = *state;
    char url[200], control[80];
    struct yb_object_mark mine = mark_of(1, 7);
    struct asking asking = {.ground = ground};
    struct yb_object_claim_options options = {
        .loop = ground->loop,
        .url = url,
        .mine = &mine,
        .deadline_ns = yb_loop_now(ground->loop) + DEADLINE_NS,
        .done = on_done,
        .context = &asking,
    };
    FILE *file;

    (void)snprintf(control, sizeof(control), "%s-far", ground->folder);
    (void)snprintf(url, sizeof(url), "%s?far=%s", ground->url, control);
    file = fopen(control, "w");
    assert_non_null(file);
    assert_true(fputs("gone\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(yb_object_claim_begin(&options, &asking.claim, asking.why), YB_OK);
    ground_turn(ground, &asking.over);
    assert_int_equal(asking.status, YB_UNREACHABLE);
    assert_non_null(strstr(asking.why, "nobody is there"));
    yb_object_claim_end(&asking.claim);
    options.url = "ftp://x";
    assert_int_equal(yb_object_claim_begin(&options, &asking.claim, asking.why), YB_INVALID);
    assert_non_null(strstr(asking.why, "file:DIRECTORY or s3://BUCKET"));
    assert_int_equal(remove(control), 0);
}

/* W1: neither hears of the other before both have found that nobody is there. */
static void
test_claim__two_that_come_at_the_same_time_do_not_both_get_it(void **state)
{
    struct object_ground *ground = *state;
    struct yb_object_mark marks[] = {mark_of(1, 7), mark_of(3, 7)};
    struct asking askings[2];

    for (uint32_t i = 0; i < 2; i++) {
        const struct yb_object_claim_options options = {
            .loop = ground->loop,
            .url = ground->url,
            .mine = &marks[i],
            .deadline_ns = yb_loop_now(ground->loop) + DEADLINE_NS,
            .done = on_done,
            .context = &askings[i],
        };

        askings[i] = (struct asking){.ground = ground};
        assert_int_equal(yb_object_claim_begin(&options, &askings[i].claim, askings[i].why), YB_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        ground_turn(ground, &askings[i].over);
    }
    print_message("%d %s; %d %s\n", askings[0].status, askings[0].why, askings[1].status,
                  askings[1].why);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(askings[i].status == YB_OK || askings[i].status == YB_REFUSED);
    }
    assert_true(askings[0].status == YB_REFUSED || askings[1].status == YB_REFUSED);
    for (uint32_t i = 0; i < 2; i++) {
        yb_object_claim_end(&askings[i].claim);
    }
}

static void
test_claim__that_is_cancelled_ends_soon(void **state)
{
    struct object_ground *ground = *state;
    struct yb_object_mark mine = mark_of(1, 7);
    struct asking asking = {.ground = ground};
    const struct yb_object_claim_options options = {
        .loop = ground->loop,
        .url = ground->url,
        .mine = &mine,
        .deadline_ns = YB_NEVER,
        .done = on_done,
        .context = &asking,
    };

    assert_int_equal(yb_object_claim_begin(&options, &asking.claim, asking.why), YB_OK);
    yb_object_claim_cancel(asking.claim);
    ground_turn(ground, &asking.over);
    assert_int_equal(asking.status, YB_CANCELLED);
    yb_object_claim_end(&asking.claim);
    assert_marked(ground, 1, 0);
}

static void
on_flushed(struct yb_tier_op *op, enum yb_status status)
{
    assert_int_equal(status, YB_OK);
    op->deadline_ns = 0; /* It is over. */
}

/* Of the tenant of no name, under which a mark would come if it were a block. */
static void
flush_nameless(struct object_ground *ground, uint64_t flush)
{
    struct yb_tier_flush op = {
        .op = {.done = on_flushed, .deadline_ns = YB_NEVER}, .tenant = "", .flush = flush};

    assert_int_equal(yb_tier_flush(ground->tier, &op), YB_OK);
    while (op.op.deadline_ns != 0) {
        yb_loop_turn(ground->loop, YB_NS_PER_MS);
    }
}

/* A tier takes a mark for no block, and does not collect it with what was flushed. */
static void
test_claim__tier_leaves_the_mark_alone(void **state)
{
    struct object_ground *ground = *state;
    char older[128];
    uint64_t until_ns;

    assert_int_equal(claim(ground, mark_of(1, 7), NULL), YB_OK);
    ground_start(ground);
    ground_recover(ground);
    assert_int_equal(ground->found_count, 0);
    flush_nameless(ground, 3);
    flush_nameless(ground, 9);
    (void)snprintf(older, sizeof(older), "%s/_flush/_,0000000000000003", ground->folder);
    until_ns = yb_loop_now(ground->loop) + DEADLINE_NS;
    while (access(older, F_OK) == 0) { /* It goes with what was flushed. */
        assert_true(yb_loop_now(ground->loop) < until_ns);
        yb_loop_turn(ground->loop, 10 * YB_NS_PER_MS);
    }
    ground_stop(ground);
    assert_marked(ground, 1, 7);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_claim__marks_what_is_nobodys_and_takes_up_its_own_with_the_latest_epoch, setup,
            teardown),
        cmocka_unit_test_setup_teardown(test_claim__is_refused_what_is_anothers_and_leaves_it_alone,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_claim__of_the_same_cluster_with_another_seed_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_claim__look_finds_the_cluster_its_latest_epoch_and_what_was_flushed, setup,
            teardown),
        cmocka_unit_test_setup_teardown(
            test_claim__look_at_a_store_of_two_clusters_is_refused_and_says_which, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claim__of_a_store_that_is_gone_says_so, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_claim__two_that_come_at_the_same_time_do_not_both_get_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claim__that_is_cancelled_ends_soon, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claim__tier_leaves_the_mark_alone, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
