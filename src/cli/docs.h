/* SPDX-License-Identifier: Apache-2.0
 *
 * docs.h -- documents made from the tables of parameters and of commands.
 *
 * tools/gen/docs.sh writes them to docs/ and the lint compares, so that they
 * cannot fall behind the tables. Each function prints one document to `out`.
 *
 * Threads   Any; there is no state.
 */
#ifndef YB_CLI_DOCS_H
#define YB_CLI_DOCS_H

#include <stdio.h>

void yb_docs_markdown(FILE *out);
void yb_docs_known(FILE *out);
void yb_docs_man_program(FILE *out);
void yb_docs_man_config(FILE *out);
void yb_docs_completion_bash(FILE *out);
void yb_docs_completion_zsh(FILE *out);
void yb_docs_completion_fish(FILE *out);

#endif /* YB_CLI_DOCS_H */
