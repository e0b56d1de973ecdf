/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.h -- models and devices as a command knows them: the built-in ones, and over them the
 * rows of the file that --catalog names (docs/scheduling.md, "A file of models and devices").
 *
 * Threads   One.
 * Memory    What is handed out is owned by the caller.
 */
#ifndef YB_CLI_CATALOG_H
#define YB_CLI_CATALOG_H

#include "cli/cli.h"
#include "yuebing/sched.h"

/* Of each command that knows models by name. */
/* clang-format off */
#define YB_CLI_CATALOG_OPTION                                                                      \
    {"catalog", "FILE", "models and devices over the built-in ones: docs/scheduling.md"}
/* clang-format on */

/* Read the option above. On true *catalog_out is the caller's: yb_sched_catalog_destroy(). Returns
 * false after saying on `err` what is wrong. */
bool yb_cli_catalog(struct yb_cli *cli, struct yb_sched_catalog **catalog_out);

/* Read a whole file of at most 1 MiB as text; NULL after saying on `err` why not. The caller frees
 * it. */
char *yb_cli_read_text(struct yb_cli *cli, const char *path);

#endif /* YB_CLI_CATALOG_H */
