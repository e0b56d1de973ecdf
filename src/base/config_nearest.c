/* SPDX-License-Identifier: Apache-2.0
 *
 * Edit distance with adjacent swaps (optimal string alignment), for names of at most 63 bytes.
 */
#include <string.h>

#include "base/check.h"
#include "base/config.h"

static unsigned
smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Both texts are shorter than YB_CONFIG_NAME_MAX. */
static unsigned
distance_between(const char *a, const char *b)
{
    /* rows[i % 3][j]: edits from the first i bytes of a to the first j bytes of b. */
    unsigned rows[3][YB_CONFIG_NAME_MAX];
    size_t a_length = strlen(a);
    size_t b_length = strlen(b);

    YB_ASSERT(a_length < YB_CONFIG_NAME_MAX);
    YB_ASSERT(b_length < YB_CONFIG_NAME_MAX);
    for (size_t j = 0; j <= b_length; j++) {
        rows[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *two_above = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);

            row[j] = smaller(change, smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = smaller(row[j], two_above[j - 2] + 1);
            }
        }
    }
    return rows[a_length % 3][b_length];
}

void
yb_config_nearest_init(struct yb_config_nearest *nearest, const char *wanted)
{
    size_t length = strlen(wanted);

    memset(nearest, 0, sizeof(*nearest));
    if (length < sizeof(nearest->wanted)) {
        memcpy(nearest->wanted, wanted, length);
        /* One slip, and one more for every four letters: further away is not a slip. */
        nearest->distance = 2 + (unsigned)length / 4;
    }
}

void
yb_config_nearest_offer(struct yb_config_nearest *nearest, const char *known)
{
    size_t length = strlen(known);
    unsigned distance;

    if (nearest->wanted[0] == '\0' || length >= sizeof(nearest->best)) {
        return;
    }
    distance = distance_between(nearest->wanted, known);
    if (distance < nearest->distance) {
        nearest->distance = distance;
        memcpy(nearest->best, known, length + 1);
    }
}
