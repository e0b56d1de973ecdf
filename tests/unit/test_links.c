/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of net/links.h: bytes by peer and path, busy time as a union, bounded names.
 * Method: one registry, times by hand; a random walk of what is under way against a plain sum.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "net/links.h"

struct scene {
    struct yb_stats *stats;
    struct yb_stats_shard *shard;
    struct yb_links links;
};

static void
scene_init(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    assert_int_equal(yb_stats_create(&scene->stats), YB_OK);
    assert_int_equal(yb_stats_shard_take(scene->stats, &scene->shard), YB_OK);
    assert_int_equal(yb_links_init(&scene->links, scene->stats, scene->shard), YB_OK);
}

static void
scene_fini(struct scene *scene)
{
    yb_stats_shard_release(&scene->shard);
    yb_stats_destroy(&scene->stats);
}

static uint32_t
peer_of(struct scene *scene, const char *text, const char *role)
{
    char why[YB_ADDRESS_WHY_BYTES];
    struct yb_address address;

    assert_int_equal(yb_address_parse(text, 0, &address, why), YB_OK);
    return yb_links_peer(&scene->links, &address, role);
}

/* Whether the exported text has a line. */
static bool
shows(const struct scene *scene, const char *line)
{
    char *text = NULL;
    size_t length = 0;
    bool found;

    assert_int_equal(yb_stats_prometheus_text(scene->stats, &text, &length), YB_OK);
    found = strstr(text, line) != NULL;
    free(text);
    return found;
}

static void
test_links__bytes_are_counted_by_peer_and_path(void **state)
{
    struct scene scene;
    uint32_t node;
    uint32_t client;

    (void)state;
    scene_init(&scene);
    assert_false(shows(&scene, "peer=")); /* Nobody yet. */
    node = peer_of(&scene, "10.0.0.7:4780", NULL);
    client = peer_of(&scene, "10.0.0.9:51234", "client");
    assert_int_equal(peer_of(&scene, "10.0.0.7:4780", NULL), node);
    assert_int_equal(peer_of(&scene, "10.0.0.9:51299", "client"), client); /* Another port of it. */
    assert_int_not_equal(node, client);
    yb_links_received(&scene.links, node, YB_LINKS_TCP, 100);
    yb_links_received(&scene.links, node, YB_LINKS_SHM, 7);
    yb_links_sent(&scene.links, client, YB_LINKS_TCP, 9);
    assert_true(shows(
        &scene, "\nyuebing_link_received_bytes_total{peer=\"10.0.0.7:4780\",path=\"tcp\"} 100\n"
                "yuebing_link_received_bytes_total{peer=\"10.0.0.7:4780\",path=\"shm\"} 7\n"));
    assert_true(shows(
        &scene, "\nyuebing_link_sent_bytes_total{peer=\"client@10.0.0.9\",path=\"tcp\"} 9\n"));
    peer_of(&scene, "[fd00::1]:70", "node");
    assert_true(shows(&scene, "peer=\"node@[fd00::1]\""));
    scene_fini(&scene);
}

static void
test_links__names_are_bounded_and_the_rest_shares_one(void **state)
{
    struct scene scene;
    uint32_t first = 0;

    (void)state;
    scene_init(&scene);
    for (uint32_t i = 0; i < 3 * YB_STATS_PEERS_MAX; i++) {
        char text[32];
        uint32_t peer;

        (void)snprintf(text, sizeof(text), "10.0.%u.1:80", i);
        peer = peer_of(&scene, text, NULL);
        assert_int_equal(peer, i < YB_STATS_PEERS_MAX ? i : YB_STATS_PEERS_MAX);
        first = i == 0 ? peer : first;
        yb_links_sent(&scene.links, peer, YB_LINKS_TCP, 1);
    }
    assert_int_equal(peer_of(&scene, "10.0.0.1:80", NULL), first);
    assert_true(shows(&scene, "_sent_bytes_total{peer=\"others\",path=\"tcp\"} 64\n"));
    assert_false(shows(&scene, "10.0.32.1"));
    scene_fini(&scene);
}

static void
test_links__busy_is_the_time_in_which_anything_is_under_way(void **state)
{
    struct scene scene;
    uint64_t random = unit_seed("links");
    uint32_t peer;
    uint32_t flying = 0;
    uint64_t now_ns = 1000;
    uint64_t expected_ns = 0;
    uint64_t counted_ns;

    (void)state;
    scene_init(&scene);
    peer = peer_of(&scene, "10.0.0.7:4780", NULL);
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t pass_ns = unit_random(&random) % 50;
        uint64_t what = unit_random(&random) % 3;

        now_ns += pass_ns;
        expected_ns += flying > 0 ? pass_ns : 0;
        if (what == 0) {
            yb_links_begin(&scene.links, peer, YB_LINKS_SHM, now_ns);
            flying++;
        } else if (what == 1 && flying > 0) {
            yb_links_end(&scene.links, peer, YB_LINKS_SHM, now_ns);
            flying--;
        } else {
            yb_links_look(&scene.links, peer, YB_LINKS_SHM, now_ns);
        }
        counted_ns = yb_stats_counter(scene.stats, scene.links.first + 2, peer, YB_LINKS_SHM);
        assert_int_equal(counted_ns, expected_ns); /* Also of what has not ended. */
    }
    assert_int_equal(yb_stats_counter(scene.stats, scene.links.first + 2, peer, YB_LINKS_TCP), 0);
    scene_fini(&scene);
}

static void
test_links__without_a_registry_nothing_happens(void **state)
{
    struct yb_links links = {.stats = NULL};
    const struct yb_address nowhere = {.port = 0};

    (void)state;
    assert_int_equal(yb_links_peer(&links, &nowhere, "client"), 0);
    yb_links_received(&links, 0, YB_LINKS_TCP, 1);
    yb_links_begin(&links, 0, YB_LINKS_TCP, 5);
    yb_links_end(&links, 0, YB_LINKS_TCP, 9);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links__bytes_are_counted_by_peer_and_path),
        cmocka_unit_test(test_links__names_are_bounded_and_the_rest_shares_one),
        cmocka_unit_test(test_links__busy_is_the_time_in_which_anything_is_under_way),
        cmocka_unit_test(test_links__without_a_registry_nothing_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
