/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpus.h"

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>

#define THREADS_MAX 4096 /* Looked at; the union is complete long before. */

void
yb_cpus_as_process(void)
{
    DIR *tasks = opendir("/proc/self/task");
    cpu_set_t all;
    cpu_set_t one;

    if (tasks == NULL) {
        return;
    }
    CPU_ZERO(&all);
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        const struct dirent *entry = readdir(tasks);
        long thread;

        if (entry == NULL) {
            break;
        }
        thread = strtol(entry->d_name, NULL, 10);
        if (thread > 0 && sched_getaffinity((pid_t)thread, sizeof(one), &one) == 0) {
            CPU_OR(&all, &all, &one);
        }
    }
    (void)closedir(tasks);
    if (CPU_COUNT(&all) > 0) {
        (void)sched_setaffinity(0, sizeof(all), &all);
    }
}
