/* SPDX-License-Identifier: Apache-2.0
 *
 * news.h -- how old may be what members say of how busy they are, for whoever makes use of it.
 *
 * A fifth of a second: nodes do not say it more often (member.h). Where there are many, an answer
 * tells of all of them and costs as much, so that it may be a millisecond old for each.
 *
 * Threads   Pure.
 */
#ifndef YB_CLIENT_NEWS_H
#define YB_CLIENT_NEWS_H

#include <stdint.h>

#include "base/clock.h"

#define YB_NEWS_NS      (200 * YB_NS_PER_MS)
#define YB_NEWS_EACH_NS YB_NS_PER_MS

/* Return how long what was heard at `heard_ns` (0: never) of so many members is still good; 0: they
 * are to be asked now. */
static inline uint64_t
yb_news_left_ns(uint64_t heard_ns, uint32_t members, uint64_t now_ns)
{
    uint64_t good_ns = members * YB_NEWS_EACH_NS;

    good_ns = good_ns > YB_NEWS_NS ? good_ns : YB_NEWS_NS;
    return heard_ns == 0 || now_ns - heard_ns >= good_ns ? 0 : good_ns - (now_ns - heard_ns);
}

#endif /* YB_CLIENT_NEWS_H */
