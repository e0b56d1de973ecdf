/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/marks.h"

#include "base/check.h"

enum yb_status
yb_policy_marks_init(struct yb_policy_marks *marks, uint64_t capacity, uint32_t high_permille,
                     uint32_t low_permille)
{
    YB_ASSERT(marks != NULL);
    if (low_permille > high_permille || high_permille > 1000 || capacity > 1ull << 54) {
        return YB_INVALID;
    }
    *marks = (struct yb_policy_marks){
        .capacity = capacity,
        .high = capacity * high_permille / 1000,
        .low = capacity * low_permille / 1000,
    };
    return YB_OK;
}

uint64_t
yb_policy_marks_to_free(const struct yb_policy_marks *marks, uint64_t used, uint64_t incoming)
{
    uint64_t keep;

    YB_ASSERT(marks->low <= marks->high && marks->high <= marks->capacity);
    if (incoming > marks->capacity) {
        return 0;
    }
    if (incoming <= marks->high && used <= marks->high - incoming) {
        return 0;
    }
    keep = incoming < marks->low ? marks->low - incoming : 0;
    return used > keep ? used - keep : 0;
}
