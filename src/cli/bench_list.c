/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of numbers on the command line of a bench.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

/* Read a number with a suffix k, m or g, or a capital one. */
static bool
read_number(const char *text, size_t length, uint64_t *number_out)
{
    static const char suffixes[] = "kmg";
    char digits[24];
    const char *suffix =
        length > 0 ? strchr(suffixes, tolower((unsigned char)text[length - 1])) : NULL;
    char *end;
    unsigned long long number;

    if (suffix != NULL && *suffix != '\0') {
        length--;
    } else {
        suffix = NULL;
    }
    if (length == 0 || length >= sizeof(digits) || text[0] < '0' || text[0] > '9') {
        return false;
    }
    memcpy(digits, text, length);
    digits[length] = '\0';
    errno = 0;
    number = strtoull(digits, &end, 10);
    if (*end != '\0' || errno != 0 || number > (1ull << 32)) {
        return false;
    }
    *number_out = suffix == NULL ? number : number << (10 * (suffix - suffixes + 1));
    return true;
}

bool
yb_bench_list_read(const struct yb_cli *cli, const char *name, uint64_t high, uint64_t *list,
                   uint32_t *count)
{
    const char *text = yb_cli_option(cli, name);
    uint32_t found = 0;

    if (text == NULL) {
        return true;
    }
    while (found < YB_BENCH_LIST_MAX) {
        size_t length = strcspn(text, ",");

        if (!read_number(text, length, &list[found]) || list[found] == 0 || list[found] > high) {
            break;
        }
        found++;
        text += length;
        if (*text == '\0') {
            *count = found;
            return true;
        }
        text++;
    }
    fprintf(cli->err, "yuebing bench: --%s takes numbers from 1 to %llu, such as 4k,1m; not `%s`\n",
            name, (unsigned long long)high, yb_cli_option(cli, name));
    return false;
}
