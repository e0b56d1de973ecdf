/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.h -- folders that a subcommand has made.
 *
 * Threads   Any.
 */
#ifndef YB_CLI_FOLDER_H
#define YB_CLI_FOLDER_H

#include <stdbool.h>

/* Remove a folder and all that is in it; no link is followed. Returns false, with errno, if
 * something of it stays; one that is not there is removed. */
bool yb_folder_remove(const char *path);

#endif /* YB_CLI_FOLDER_H */
