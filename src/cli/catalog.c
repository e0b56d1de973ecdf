/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/catalog.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX (1u << 20)

char *
yb_cli_read_text(struct yb_cli *cli, const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(TEXT_BYTES_MAX + 1);
    size_t bytes;

    if (file == NULL || text == NULL) {
        fprintf(cli->err, "yuebing %s: cannot read %s: %m\n", cli->command->name, path);
        if (file != NULL) {
            fclose(file);
        }
        free(text);
        return NULL;
    }
    bytes = fread(text, 1, TEXT_BYTES_MAX + 1, file);
    if (ferror(file) != 0 || bytes > TEXT_BYTES_MAX) {
        fprintf(cli->err, "yuebing %s: cannot read %s, or it is longer than 1 MiB\n",
                cli->command->name, path);
        free(text);
        text = NULL;
    } else {
        text[bytes] = '\0';
    }
    fclose(file);
    return text;
}

bool
yb_cli_catalog(struct yb_cli *cli, struct yb_sched_catalog **catalog_out)
{
    const char *path = yb_cli_option(cli, "catalog");
    struct yb_sched_catalog *catalog = NULL;
    char message[512];
    char *text = NULL;
    bool ok;

    if (path != NULL && (text = yb_cli_read_text(cli, path)) == NULL) {
        return false;
    }
    snprintf(message, sizeof(message), "no memory for the catalog of models");
    ok = yb_sched_catalog_create(&catalog) == YB_OK &&
         (text == NULL ||
          yb_sched_catalog_read(catalog, path, text, message, sizeof(message)) == YB_OK);
    free(text);
    if (!ok) {
        fprintf(cli->err, "yuebing %s: %s\n", cli->command->name, message);
        yb_sched_catalog_destroy(&catalog);
        return false;
    }
    *catalog_out = catalog;
    return true;
}
