/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

uint64_t
yb_measure_now_ns(void)
{
    return yb_clock_now(yb_clock_system());
}

/* Read the number in the line "NAME: number" of /proc/PID/status; `name` ends with the colon. */
static uint64_t
status_of(pid_t pid, const char *name)
{
    char line[256];
    uint64_t number = 0;
    FILE *file;

    (void)snprintf(line, sizeof(line), "/proc/%ld/status", (long)pid);
    file = fopen(line, "re");
    if (file == NULL) {
        return 0;
    }
    while (number == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            number = strtoull(line + strlen(name), NULL, 10);
        }
    }
    (void)fclose(file);
    return number;
}

uint64_t
yb_measure_resident_bytes(pid_t pid)
{
    return status_of(pid, "VmRSS:") * 1024;
}

uint64_t
yb_measure_peak_bytes(pid_t pid)
{
    return status_of(pid, "VmHWM:") * 1024;
}

uint32_t
yb_measure_threads(pid_t pid)
{
    return (uint32_t)status_of(pid, "Threads:");
}

uint64_t
yb_measure_cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used;

    /* lint: allow, another process's processor time, which struct yb_clock does not know */
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
        return 0;
    }
    return (uint64_t)used.tv_sec * YB_NS_PER_S + (uint64_t)used.tv_nsec;
}

struct yb_measure_machine
yb_measure_machine_now(void)
{
    FILE *file = fopen("/proc/stat", "re");
    uint64_t user = 0, nice = 0, system = 0, idle = 0, wait = 0, hard = 0, soft = 0, stolen = 0;
    struct yb_measure_machine cpu = {0};

    if (file != NULL && fscanf(file,
                               "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                               " %" SCNu64 " %" SCNu64 " %" SCNu64,
                               &user, &nice, &system, &idle, &wait, &hard, &soft, &stolen) >= 4) {
        cpu.busy = user + nice + system + hard + soft + stolen;
        cpu.all = cpu.busy + idle + wait;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return cpu;
}

double
yb_measure_machine_busy(const struct yb_measure_machine *before)
{
    struct yb_measure_machine now = yb_measure_machine_now();

    return now.all > before->all
               ? (double)(now.busy - before->busy) / (double)(now.all - before->all)
               : 0;
}
