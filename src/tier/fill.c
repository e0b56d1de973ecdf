/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/fill.h"

#include "base/clock.h"

#define EPOCH_NS (10 * YB_NS_PER_S)
#define TRIAL_NS (80 * YB_NS_PER_MS)
#define SPAN_NS  (100 * YB_NS_PER_MS)
#define GAIN     2.0

static double
rate(const struct yb_tier_fill *fill)
{
    return fill->seen.rate > fill->before.rate ? fill->seen.rate : fill->before.rate;
}

/* How long one of `size` takes, by those that took so long together. A larger one takes no longer
 * than as many of them, and a smaller one no longer than one of them. */
static double
scaled_ns(uint64_t ns, uint64_t bytes, uint64_t count, uint64_t size)
{
    double mean = (double)ns / (double)count;

    return size * count <= bytes ? mean : mean * (double)size * (double)count / (double)bytes;
}

/* How long one of `size` takes alone; 0: not known. */
static double
alone_ns(const struct yb_tier_fill *fill, uint64_t size)
{
    const struct yb_tier_fill_seen *seen = &fill->seen, *before = &fill->before;
    const struct yb_tier_fill_seen *least = before;

    if (seen->alone + before->alone > 0) {
        return scaled_ns(seen->alone_ns + before->alone_ns, seen->alone_bytes + before->alone_bytes,
                         seen->alone + before->alone, size);
    }
    if (before->least_ns == 0 || (seen->least_ns != 0 && seen->least_ns < before->least_ns)) {
        least = seen;
    }
    return least->least_ns == 0 ? 0 : scaled_ns(least->least_ns, least->least_bytes, 1, size);
}

void
yb_tier_fill_try(struct yb_tier_fill *fill, uint64_t under_way, uint64_t now_ns)
{
    if (fill->seen.alone > 0 || fill->seen.least_ns > 0) { /* One without requests says nothing. */
        fill->before = fill->seen;
        fill->seen = (struct yb_tier_fill_seen){0};
    }
    fill->epoch_ns = now_ns;
    fill->trial_until_ns = now_ns + TRIAL_NS;
    if (rate(fill) > 0) {
        fill->trial_until_ns += (uint64_t)((double)under_way / rate(fill));
    }
}

void
yb_tier_fill_ended(struct yb_tier_fill *fill, const struct yb_tier_fill_end *end, uint64_t now_ns)
{
    struct yb_tier_fill_seen *seen = &fill->seen;
    uint64_t span_ns = (uint64_t)(2 * alone_ns(fill, 0));

    span_ns = span_ns > SPAN_NS ? span_ns : SPAN_NS;
    if (fill->epoch_ns == 0) {
        fill->epoch_ns = now_ns;
    } else if (now_ns - fill->epoch_ns >= EPOCH_NS) {
        yb_tier_fill_try(fill, end->under_way, now_ns);
    }
    if (end->alone) {
        seen->alone++;
        seen->alone_bytes += end->bytes;
        seen->alone_ns += end->took_ns;
    } else if (seen->least_ns == 0 || end->took_ns < seen->least_ns) {
        seen->least_ns = end->took_ns;
        seen->least_bytes = end->bytes;
    }
    if (fill->span_ns == 0) {
        fill->span_ns = now_ns - end->took_ns;
    }
    fill->span_bytes += end->bytes;
    if (now_ns - fill->span_ns >= span_ns) {
        double found = (double)fill->span_bytes / (double)(now_ns - fill->span_ns);

        seen->rate = found > seen->rate ? found : seen->rate;
        fill->span_ns = now_ns;
        fill->span_bytes = 0;
    }
}

uint64_t
yb_tier_fill_room(const struct yb_tier_fill *fill, uint64_t size, uint64_t now_ns)
{
    return now_ns < fill->trial_until_ns ? 0 : (uint64_t)(GAIN * rate(fill) * alone_ns(fill, size));
}

uint64_t
yb_tier_fill_alone_ns(const struct yb_tier_fill *fill, uint64_t size)
{
    return (uint64_t)alone_ns(fill, size);
}

uint64_t
yb_tier_fill_rate(const struct yb_tier_fill *fill)
{
    return (uint64_t)(rate(fill) * (double)YB_NS_PER_S);
}
