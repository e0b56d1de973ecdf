/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/path.h"

#include <stddef.h>

const struct yb_path_ops *const yb_path_table[] = {
    &yb_path_shm,
    &yb_path_tcp,
    NULL,
};
