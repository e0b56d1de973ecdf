/* SPDX-License-Identifier: Apache-2.0
 *
 * Which backend a URL means.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tier/object/backend.h"
#include "tier/object/far.h"

/* "file:FOLDER", or "file:FOLDER?far=FILE" (far.h). */
static enum yb_status
open_folder(const char *place, struct yb_loop *loop, struct yb_helper_pool *pool,
            struct yb_object_backend **backend_out, char why_out[YB_OBJECT_WHY_BYTES])
{
    static const char far[] = "?far=";
    const char *control = strstr(place, far);
    struct yb_object_far_options options = {.loop = loop};
    char folder[PATH_MAX];
    enum yb_status status;

    if (control == NULL) {
        return yb_object_file_create(place, loop, pool, backend_out, why_out);
    }
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)(control - place), place);
    options.control = control + sizeof(far) - 1;
    status = yb_object_file_create(folder, loop, pool, &options.behind, why_out);
    if (status != YB_OK) {
        return status;
    }
    status = yb_object_far_create(&options, backend_out);
    if (status != YB_OK) {
        options.behind->ops->destroy(options.behind);
        (void)snprintf(why_out, YB_OBJECT_WHY_BYTES, "%.160s: %s", options.control,
                       yb_status_text(status));
    }
    return status;
}

enum yb_status
yb_object_backend_open(const char *url, struct yb_loop *loop, struct yb_helper_pool *pool,
                       struct yb_object_backend **backend_out, char why_out[YB_OBJECT_WHY_BYTES])
{
    static const char file[] = "file:";

    if (url != NULL && strncmp(url, file, sizeof(file) - 1) == 0 && url[sizeof(file) - 1] != '\0') {
        return open_folder(url + sizeof(file) - 1, loop, pool, backend_out, why_out);
    }
    if (url != NULL && strncmp(url, "s3://", 5) == 0) {
        return yb_object_s3_create(url, loop, pool, backend_out, why_out);
    }
    (void)snprintf(why_out, YB_OBJECT_WHY_BYTES,
                   "an object store is file:DIRECTORY or s3://BUCKET, and not \"%.100s\"",
                   url == NULL ? "" : url);
    return YB_INVALID;
}
