/* SPDX-License-Identifier: Apache-2.0 */
#include "net/links.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const char *const path_words[] = {
#define X(name, word) word,
    YB_LINKS_PATH_MAP(X)
#undef X
};
static const struct yb_stats_label path_label = {"path", path_words, YB_LINKS_PATHS};

/* clang-format off */
#define LINK_STATS(X)                                                                           \
    X(IN,   COUNTER, BYTES,       "received", &yb_stats_label_peer, &path_label,               \
      "bytes that came from a peer; the rate is the bandwidth")                                \
    X(OUT,  COUNTER, BYTES,       "sent",     &yb_stats_label_peer, &path_label,               \
      "bytes that went to a peer")                                                             \
    X(BUSY, COUNTER, NANOSECONDS, "busy",     &yb_stats_label_peer, &path_label,               \
      "time in which data was under way; the rate is the utilisation, of each worker")
/* clang-format on */

enum {
#define X(id, ...) STAT_##id,
    LINK_STATS(X)
#undef X
        STAT_COUNT
};
static const struct yb_stats_metric metrics[] = {LINK_STATS(YB_STATS_ROW)};

enum yb_status
yb_links_init(struct yb_links *links, struct yb_stats *stats, struct yb_stats_shard *shard)
{
    enum yb_status status = yb_stats_register(stats, "link", metrics, STAT_COUNT, &links->first);

    if (status == YB_OK) {
        links->stats = stats;
        links->shard = shard;
    }
    return status;
}

uint32_t
yb_links_peer(struct yb_links *links, const struct yb_address *address, const char *role)
{
    struct yb_address host = *address;
    char text[YB_ADDRESS_TEXT_BYTES];
    char name[YB_STATS_PEER_BYTES];

    if (links->stats == NULL) {
        return 0;
    }
    if (role == NULL) {
        yb_address_format(address, text);
        return yb_stats_peer(links->stats, text);
    }
    host.port = 0;
    yb_address_format(&host, text);
    (void)snprintf(name, sizeof(name), "%.16s@%s", role, text);
    if (strrchr(name, ':') != NULL) {
        *strrchr(name, ':') = '\0';
    }
    return yb_stats_peer(links->stats, name);
}

void
yb_links_received(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t bytes)
{
    yb_stats_add_at(links->shard, links->first + STAT_IN, peer, path, bytes);
}

void
yb_links_sent(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t bytes)
{
    yb_stats_add_at(links->shard, links->first + STAT_OUT, peer, path, bytes);
}

void
yb_links_look(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t now_ns)
{
    YB_ASSERT(peer <= YB_STATS_PEERS_MAX);
    if (links->busy[peer][path].flying > 0) {
        YB_ASSERT(now_ns >= links->busy[peer][path].since_ns);
        yb_stats_add_at(links->shard, links->first + STAT_BUSY, peer, path,
                        now_ns - links->busy[peer][path].since_ns);
    }
    links->busy[peer][path].since_ns = now_ns;
}

void
yb_links_begin(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t now_ns)
{
    yb_links_look(links, peer, path, now_ns);
    links->busy[peer][path].flying++;
}

void
yb_links_end(struct yb_links *links, uint32_t peer, enum yb_links_path path, uint64_t now_ns)
{
    yb_links_look(links, peer, path, now_ns);
    YB_ASSERT(links->busy[peer][path].flying > 0);
    links->busy[peer][path].flying--;
}
