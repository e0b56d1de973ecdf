/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/pipe.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* What a class gets at least while it has work; the first needs none. */
static const double guaranteed[YB_PIPE_CLASSES] = {0.0, 0.10, 0.05};

/* Less than this is a rounding error: counters of 2^53 bytes are exact to a byte. */
#define BYTES_EPSILON 1.0

void
yb_pipe_init(struct yb_pipe *pipe, double bytes_per_s)
{
    YB_ASSERT(bytes_per_s > 0);
    memset(pipe, 0, sizeof(*pipe));
    pipe->bytes_per_ns = bytes_per_s / 1e9;
}

/* Say which part of the rate each class with work gets: the preferred one all that is not
 * guaranteed to others. Returns whether there is any work. */
static bool
shares(const double left[YB_PIPE_CLASSES], double share_out[YB_PIPE_CLASSES])
{
    double rest = 1;
    unsigned preferred = YB_PIPE_CLASSES;

    for (unsigned i = YB_PIPE_CLASSES; i-- > 0;) {
        share_out[i] = left[i] > BYTES_EPSILON ? guaranteed[i] : 0;
        rest -= share_out[i];
        preferred = left[i] > BYTES_EPSILON ? i : preferred;
    }
    if (preferred == YB_PIPE_CLASSES) {
        return false;
    }
    share_out[preferred] += rest;
    return true;
}

static void
lefts(const struct yb_pipe *pipe, double left_out[YB_PIPE_CLASSES])
{
    for (unsigned i = 0; i < YB_PIPE_CLASSES; i++) {
        left_out[i] = pipe->entered[i] - pipe->served[i];
    }
}

/* Serve `left` for at most `span_ns` as long as the same classes have work. Returns how long that
 * was. */
static double
serve(double left[YB_PIPE_CLASSES], double bytes_per_ns, double span_ns)
{
    double share[YB_PIPE_CLASSES];
    double time_ns = span_ns;

    if (!shares(left, share)) {
        return span_ns;
    }
    for (unsigned i = 0; i < YB_PIPE_CLASSES; i++) {
        if (share[i] > 0) {
            time_ns = fmin(time_ns, left[i] / (share[i] * bytes_per_ns));
        }
    }
    for (unsigned i = 0; i < YB_PIPE_CLASSES; i++) {
        left[i] -= share[i] * bytes_per_ns * time_ns;
        left[i] = left[i] > BYTES_EPSILON ? left[i] : 0;
    }
    return time_ns;
}

static bool
has_work(const double left[YB_PIPE_CLASSES])
{
    double share[YB_PIPE_CLASSES];

    return shares(left, share);
}

void
yb_pipe_advance(struct yb_pipe *pipe, uint64_t now_ns)
{
    double left[YB_PIPE_CLASSES];
    double span_ns;

    YB_ASSERT(now_ns >= pipe->now_ns);
    span_ns = (double)(now_ns - pipe->now_ns);
    pipe->now_ns = now_ns;
    lefts(pipe, left);
    while (span_ns > 0 && has_work(left)) {
        double time_ns = serve(left, pipe->bytes_per_ns, span_ns);

        span_ns -= time_ns;
        pipe->busy_ns += time_ns;
    }
    for (unsigned i = 0; i < YB_PIPE_CLASSES; i++) {
        pipe->served[i] = pipe->entered[i] - left[i];
    }
}

double
yb_pipe_enter(struct yb_pipe *pipe, enum yb_pipe_class class, double bytes, uint64_t now_ns)
{
    YB_ASSERT(bytes >= 0);
    yb_pipe_advance(pipe, now_ns);
    pipe->entered[class] += bytes;
    return pipe->entered[class];
}

uint64_t
yb_pipe_finish_ns(struct yb_pipe *pipe, enum yb_pipe_class class, double mark, uint64_t now_ns)
{
    double left[YB_PIPE_CLASSES];
    double waits; /* Of its class, up to the mark. */
    double time_ns = 0;

    yb_pipe_advance(pipe, now_ns);
    waits = mark - pipe->served[class];
    lefts(pipe, left);
    while (waits > BYTES_EPSILON && left[class] > BYTES_EPSILON) {
        double share[YB_PIPE_CLASSES];
        double was = left[class];
        double step_ns;

        (void)shares(left, share);
        step_ns = serve(left, pipe->bytes_per_ns, waits / (share[class] * pipe->bytes_per_ns));
        time_ns += step_ns;
        waits -= was - left[class];
    }
    return now_ns + (uint64_t)ceil(time_ns);
}

double
yb_pipe_backlog(struct yb_pipe *pipe, enum yb_pipe_class class, uint64_t now_ns)
{
    double bytes = 0;

    yb_pipe_advance(pipe, now_ns);
    for (unsigned i = 0; i <= (unsigned)class; i++) {
        bytes += pipe->entered[i] - pipe->served[i];
    }
    return bytes;
}
