/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>

#define DESCRIPTORS 16 /* That a walk may hold at a time. */

static int
remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

bool
yb_folder_remove(const char *path)
{
    return nftw(path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
}
