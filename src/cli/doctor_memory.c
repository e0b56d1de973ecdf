/* SPDX-License-Identifier: Apache-2.0
 *
 * Probes of processors and memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/doctor_internal.h"
#include "memory/shared.h"

#define GIB (1024ull * 1024 * 1024)

/* Count the processors in a list such as "0-3,8,10-11". */
static unsigned
count_list(const char *list)
{
    unsigned count = 0;

    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;

        count += last >= first ? (unsigned)(last - first + 1) : 0;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

void
yb_doctor_probe_cores(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char list[256];
    unsigned cores;
    unsigned wanted = doctor->config->net_workers;

    yb_doctor_read(doctor, "/sys/devices/system/cpu/online", list, sizeof(list));
    cores = count_list(list);
    if (cores == 0) {
        yb_doctor_found(row, "the kernel does not say");
        yb_doctor_use(row, YB_DOCTOR_MISSING, "%u workers as configured", wanted);
        yb_doctor_advice(row, "without /sys the number of workers cannot be checked; mount /sys");
        return;
    }
    yb_doctor_found(row, "%u online", cores);
    if (wanted > cores) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED, "%u workers share them", wanted);
        yb_doctor_advice(row,
                         "workers above the cores only take turns; set net.workers to at "
                         "most %u",
                         cores);
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "%u worker%s (net.workers)", wanted, wanted == 1 ? "" : "s");
}

/* Copy the line of /proc/cpuinfo that lists instructions: "flags" on x86-64, "Features" on
 * arm64. */
static bool
read_cpu_flags(const struct yb_doctor *doctor, char *flags_out, size_t size)
{
    static char const *const names[] = {"\nflags", "\nFeatures"};
    static const size_t text_size = 16384;
    char *text = malloc(text_size);
    bool found = false;

    flags_out[0] = '\0';
    if (text == NULL) {
        return false;
    }
    yb_doctor_read(doctor, "/proc/cpuinfo", text, text_size);
    for (unsigned i = 0; i < 2 && !found; i++) {
        const char *line = strstr(text, names[i]);
        const char *colon = line == NULL ? NULL : strchr(line, ':');

        if (colon != NULL) {
            snprintf(flags_out, size, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1);
            found = true;
        }
    }
    free(text);
    return found;
}

void
yb_doctor_probe_cpu_flags(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    static const char *const wanted[] = {"sse4_2", "pclmulqdq", "avx512f", "vpclmulqdq",
                                         "aes",    "crc32",     "pmull"};
    char flags[8192];
    char found[128] = "";
    size_t length = 0;
    bool by_instruction;

    read_cpu_flags(doctor, flags, sizeof(flags));
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (yb_doctor_has_word(flags, wanted[i])) {
            length += (size_t)snprintf(found + length, sizeof(found) - length, "%s%s",
                                       length == 0 ? "" : " ", wanted[i]);
        }
    }
    yb_doctor_found(row, "%s", length == 0 ? "none of those that would be used" : found);
    by_instruction =
        (yb_doctor_has_word(flags, "sse4_2") && yb_doctor_has_word(flags, "pclmulqdq")) ||
        (yb_doctor_has_word(flags, "crc32") && yb_doctor_has_word(flags, "pmull"));
#ifdef YB_HAVE_ISAL
    if (by_instruction) {
        yb_doctor_use(row, YB_DOCTOR_OK, "checksums by ISA-L, which takes the widest of them");
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_MISSING, "checksums by table");
    yb_doctor_advice(row, "checksums cost several times as much processor time; run on a machine "
                          "with sse4.2 and pclmulqdq");
#else
    yb_doctor_use(row, by_instruction ? YB_DOCTOR_DEGRADED : YB_DOCTOR_MISSING,
                  "checksums by table");
    yb_doctor_advice(row, "checksums cost several times as much processor time; build with ISA-L "
                          "(apt install libisal-dev)");
#endif
}

void
yb_doctor_probe_numa(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char names[YB_DOCTOR_TEXT_MAX];
    unsigned nodes = yb_doctor_list(doctor, "/sys/devices/system/node", "node", names);

    if (nodes == 0) {
        yb_doctor_found(row, "the kernel does not say");
    } else {
        yb_doctor_found(row, "%u (%.200s)", nodes, names);
    }
    if (nodes <= 1) {
        yb_doctor_use(row, YB_DOCTOR_OK, "one memory; nothing to place");
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_UNUSED, "a node's memory lies where --node-numa says");
    yb_doctor_advice(row, "memory of another node costs up to twice the time; start one process "
                          "per node with numactl --cpunodebind=N --membind=N");
}

static bool
read_meminfo(const struct yb_doctor *doctor, const char *name, uint64_t *bytes_out)
{
    char text[4096];

    yb_doctor_read(doctor, "/proc/meminfo", text, sizeof(text));
    return yb_shared_meminfo(text, name, bytes_out);
}

void
yb_doctor_probe_memory(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char total_text[YB_DOCTOR_BYTES_MAX];
    char free_text[YB_DOCTOR_BYTES_MAX];
    uint64_t total = 0;
    uint64_t available = 0;

    if (!read_meminfo(doctor, "MemTotal:", &total) ||
        !read_meminfo(doctor, "MemAvailable:", &available)) {
        yb_doctor_found(row, "the kernel does not say");
        yb_doctor_use(row, YB_DOCTOR_MISSING, "limits as configured");
        yb_doctor_advice(row, "without /proc the limits cannot be checked; mount /proc");
        return;
    }
    yb_doctor_found(row, "%s, %s available", yb_doctor_bytes(total, total_text),
                    yb_doctor_bytes(available, free_text));
    if (available < doctor->config->net_byte_credits) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED, "less than one connection may ask for");
        yb_doctor_advice(row, "a busy peer can push the machine out of memory; lower "
                              "net.byte_credits or free memory");
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "buffers of connections, bounded by net.byte_credits each");
}

/* Write the folder of our group below `mount` for controller `name`; "" names version 2. */
static bool
find_group(const struct yb_doctor *doctor, const char *name, char *path_out, size_t size)
{
    char text[4096];
    char *rest = text;
    char *line;

    yb_doctor_read(doctor, "/proc/self/cgroup", text, sizeof(text));
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');

        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        controllers++;
        for (char *at = controllers; name[0] != '\0' && *at != '\0'; at++) {
            *at = *at == ',' ? ' ' : *at;
        }
        if (name[0] == '\0' ? controllers[0] == '\0' : yb_doctor_has_word(controllers, name)) {
            snprintf(path_out, size, "%s", strcmp(path, "/") == 0 ? "" : path);
            return true;
        }
    }
    return false;
}

/* Read `file` from our group, or from the mount itself: inside a container the group's folder
 * is often what is mounted. */
static bool
read_group(const struct yb_doctor *doctor, const char *mount, const char *group, const char *file,
           uint64_t *number_out)
{
    char path[512];

    snprintf(path, sizeof(path), "%s%.300s/%s", mount, group, file);
    if (yb_doctor_read_number(doctor, path, number_out)) {
        return true;
    }
    snprintf(path, sizeof(path), "%s/%s", mount, file);
    return yb_doctor_read_number(doctor, path, number_out);
}

void
yb_doctor_probe_cgroup(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char group[384];
    char bytes_text[YB_DOCTOR_BYTES_MAX];
    uint64_t bytes = UINT64_MAX;
    uint64_t total = UINT64_MAX;
    const char *version = "none";

    if (find_group(doctor, "memory", group, sizeof(group))) {
        version = "version 1";
        read_group(doctor, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", &bytes);
    } else if (find_group(doctor, "", group, sizeof(group))) {
        version = "version 2";
        read_group(doctor, "/sys/fs/cgroup", group, "memory.max", &bytes);
    }
    read_meminfo(doctor, "MemTotal:", &total);
    /* Version 1 writes "no limit" as a huge number. */
    if (bytes >= total) {
        yb_doctor_found(row, "%s, no memory limit below the machine's", version);
        yb_doctor_use(row, YB_DOCTOR_OK, "the machine's memory");
        return;
    }
    yb_doctor_found(row, "%s, memory limit %s", version, yb_doctor_bytes(bytes, bytes_text));
    if (bytes < doctor->config->net_byte_credits * 2) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED, "hardly room for one busy connection");
        yb_doctor_advice(row, "the kernel kills the process at the limit; raise it or lower "
                              "net.byte_credits");
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "memory up to that limit");
}

static void
probe_huge(const struct yb_doctor *doctor, struct yb_doctor_row *row, const char *size,
           const char *use, const char *boot)
{
    char path[128];
    uint64_t total = 0;
    uint64_t free_pages = 0;

    snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%s/nr_hugepages", size);
    if (!yb_doctor_read_number(doctor, path, &total)) {
        yb_doctor_found(row, "not offered by this kernel or processor");
    } else {
        snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%s/free_hugepages", size);
        yb_doctor_read_number(doctor, path, &free_pages);
        yb_doctor_found(row, "%llu free of %llu", (unsigned long long)free_pages,
                        (unsigned long long)total);
    }
    yb_doctor_use(row, YB_DOCTOR_UNUSED, "%s", use);
    if (free_pages == 0 && boot != NULL) {
        yb_doctor_advice(
            row, "without them pages are made huge as far as they can be; to have some: %s", boot);
    }
}

void
yb_doctor_probe_huge_2m(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    probe_huge(doctor, row, "2048kB", "memory of nodes with --node-huge-pages",
               "sysctl vm.nr_hugepages=N");
}

void
yb_doctor_probe_huge_1g(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    probe_huge(doctor, row, "1048576kB", "not used: those of nodes have 2 MiB", NULL);
}

void
yb_doctor_probe_thp(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char text[128];
    const char *open;

    yb_doctor_read(doctor, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text));
    open = strchr(text, '[');
    if (open == NULL) {
        yb_doctor_found(row, "not offered by this kernel");
    } else {
        yb_doctor_found(row, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    }
    yb_doctor_use(row, YB_DOCTOR_UNUSED, "nodes ask for them with --node-huge-pages");
}

void
yb_doctor_probe_memlock(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char soft_text[YB_DOCTOR_BYTES_MAX];
    char hard_text[YB_DOCTOR_BYTES_MAX];
    uint64_t soft = 0;
    uint64_t hard = 0;

    if (doctor->tries->limit(RLIMIT_MEMLOCK, &soft, &hard) != 0) {
        yb_doctor_found(row, "the kernel does not say");
    } else {
        yb_doctor_found(row, "%s (at most %s)", yb_doctor_bytes(soft, soft_text),
                        yb_doctor_bytes(hard, hard_text));
    }
    yb_doctor_use(row, YB_DOCTOR_UNUSED, "no memory is locked");
    if (soft < 8 * GIB) {
        yb_doctor_advice(row, "costs nothing yet; registered memory will need it: ulimit -l "
                              "unlimited, or LimitMEMLOCK=infinity in the unit");
    }
}

void
yb_doctor_probe_shm(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char path[512];
    char text[YB_DOCTOR_BYTES_MAX];
    uint64_t bytes = 0;

    snprintf(path, sizeof(path), "%.400s/dev/shm", doctor->root);
    if (doctor->tries->filesystem_bytes(path, &bytes) != 0) {
        yb_doctor_found(row, "not there");
    } else {
        yb_doctor_found(row, "%s", yb_doctor_bytes(bytes, text));
    }
    yb_doctor_use(row, YB_DOCTOR_UNUSED, "memory that processes share is anonymous, not there");
}

void
yb_doctor_probe_clock(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    static const char fast[] = "tsc kvm-clock arch_sys_counter hyperv_clocksource_tsc_page";
    char text[64];

    if (!yb_doctor_read(doctor, "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        text, sizeof(text))) {
        yb_doctor_found(row, "the kernel does not say");
        yb_doctor_use(row, YB_DOCTOR_MISSING, "whatever the kernel gives");
        yb_doctor_advice(row, "without /sys a slow clock goes unnoticed; mount /sys");
        return;
    }
    yb_doctor_found(row, "%s", text);
    if (!yb_doctor_has_word(fast, text)) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED, "each look at the clock is a system call");
        yb_doctor_advice(row, "every request looks at the clock several times; boot with "
                              "clocksource=tsc where the processor's is stable");
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "deadlines and spans, read without a system call");
}
