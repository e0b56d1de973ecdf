/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/survivors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "memory/shared.h"

#define LINE_BYTES 512u /* Longer ones are cut; the path is what is long, and ours is not. */

uint64_t
yb_survivors_line(const char *line, const char *label)
{
    static const char file[] = "/memfd:" YB_SHARED_NAME "-";
    unsigned long begin;
    unsigned long end;
    int at = 0;
    size_t length = strlen(label);

    /* 7f00-7f10 r--s 00000000 00:01 4711   /memfd:yuebing-LABEL (deleted) */
    if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &begin, &end, &at) != 2 || at == 0 ||
        end < begin || strncmp(line + at, file, sizeof(file) - 1) != 0) {
        return 0;
    }
    line += (size_t)at + sizeof(file) - 1;
    return strncmp(line, label, length) == 0 && line[length] == ' ' ? end - begin : 0;
}

/* Add up what a process maps; one that has ended, or is somebody else's, maps nothing. */
static uint64_t
mapped_by(int pid, const char *label)
{
    char path[32];
    char line[LINE_BYTES];
    uint64_t bytes = 0;
    FILE *maps;

    (void)snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    maps = fopen(path, "re");
    if (maps == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), maps) != NULL) {
        bytes += yb_survivors_line(line, label);
    }
    (void)fclose(maps);
    return bytes;
}

void
yb_survivors_find(const char *label, struct yb_survivors *survivors_out)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;

    YB_ASSERT(label != NULL && label[0] != '\0' && survivors_out != NULL);
    *survivors_out = (struct yb_survivors){.count = 0};
    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        char *rest;
        long pid = strtol(entry->d_name, &rest, 10);
        uint64_t bytes = *rest == '\0' && pid > 0 ? mapped_by((int)pid, label) : 0;

        if (bytes > 0) {
            if (survivors_out->count < YB_SURVIVORS_NAMED_MAX) {
                survivors_out->pids[survivors_out->count] = (int32_t)pid;
            }
            survivors_out->count++;
            survivors_out->bytes = bytes > survivors_out->bytes ? bytes : survivors_out->bytes;
        }
    }
    if (processes != NULL) {
        (void)closedir(processes);
    }
}
