/* SPDX-License-Identifier: Apache-2.0
 *
 * Probes of connections, of the kernel's interfaces, and of devices.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/doctor_internal.h"

#define MIB (1024ull * 1024)

/* Descriptors that are no connections: rings, listeners, logs, libraries. */
#define FILES_BESIDE_CONNECTIONS 256

#define BACKLOG_GOOD 1024

void
yb_doctor_probe_files(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    uint64_t needed = (uint64_t)doctor->config->net_connections_max + FILES_BESIDE_CONNECTIONS;
    uint64_t soft = 0;
    uint64_t hard = 0;

    if (doctor->tries->limit(RLIMIT_NOFILE, &soft, &hard) != 0) {
        yb_doctor_found(row, "the kernel does not say");
    } else {
        yb_doctor_found(row, "%llu (at most %llu)", (unsigned long long)soft,
                        (unsigned long long)hard);
    }
    if (soft < needed) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED,
                      "fewer than the %u connections of "
                      "net.connections_max",
                      doctor->config->net_connections_max);
        yb_doctor_advice(row,
                         "connections beyond it are refused; ulimit -n %llu, or "
                         "LimitNOFILE=%llu in the unit",
                         (unsigned long long)needed, (unsigned long long)needed);
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "up to %u connections (net.connections_max)",
                  doctor->config->net_connections_max);
}

void
yb_doctor_probe_uring(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    enum yb_config_net_io wanted = doctor->config->net_io;
    bool needed = wanted == YB_CONFIG_NET_IO_IO_URING;
    uint64_t disabled = 0;
    int error = doctor->tries->make_ring();

    yb_doctor_read_number(doctor, "/proc/sys/kernel/io_uring_disabled", &disabled);
    if (error == 0) {
        yb_doctor_found(row, "a ring can be made");
        if (wanted == YB_CONFIG_NET_IO_EPOLL) {
            yb_doctor_use(row, YB_DOCTOR_UNUSED, "net.io asks for epoll");
        } else {
            yb_doctor_use(row, YB_DOCTOR_OK, "event loops (net.io %s)",
                          needed ? "io_uring" : "auto");
        }
        return;
    }
    yb_doctor_found(row, "refused: %s%s", strerror(error),
                    disabled != 0 ? ", kernel.io_uring_disabled is set" : "");
    yb_doctor_use(row, YB_DOCTOR_MISSING,
                  needed ? "nothing: net.io io_uring cannot start" : "event loops by epoll");
    if (disabled != 0) {
        yb_doctor_advice(row,
                         "one more system call per wake-up; sysctl kernel.io_uring_disabled=0");
    } else if (error == EPERM || error == EACCES) {
        yb_doctor_advice(row, "one more system call per wake-up; allow io_uring_setup in the "
                              "container's seccomp profile");
    } else if (error == ENOMEM) {
        yb_doctor_advice(row, "one more system call per wake-up; raise ulimit -l");
    } else {
        yb_doctor_advice(row, "one more system call per wake-up; Linux 5.10 or newer offers it");
    }
}

void
yb_doctor_probe_cross_read(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    uint64_t scope = 0;
    bool restricted =
        yb_doctor_read_number(doctor, "/proc/sys/kernel/yama/ptrace_scope", &scope) && scope > 0;
    int error = doctor->tries->read_child();

    if (error != 0) {
        yb_doctor_found(row, "refused: %s", strerror(error));
        yb_doctor_use(row, YB_DOCTOR_MISSING,
                      "shared memory that was allocated as such; ordinary memory goes over tcp");
        yb_doctor_advice(row, "ordinary memory of processes of this machine passes through a "
                              "socket; allow process_vm_readv in the container's seccomp profile "
                              "or add CAP_SYS_PTRACE");
        return;
    }
    yb_doctor_found(row, "a child can be read%s",
                    restricted ? ", strangers of the same user cannot" : "");
    if (restricted) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED, "the first peer of this machine is let in by name");
        yb_doctor_advice(row,
                         "ordinary memory of further peers goes over tcp; "
                         "kernel.yama.ptrace_scope=%llu, 0 lets processes of one user read each "
                         "other",
                         (unsigned long long)scope);
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "ordinary memory of peers of this machine is read directly");
}

void
yb_doctor_probe_pidfd(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    int error = doctor->tries->open_pidfd();

    if (error == 0) {
        yb_doctor_found(row, "offered");
        yb_doctor_use(row, YB_DOCTOR_OK, "tells when a peer of this machine has ended");
        return;
    }
    yb_doctor_found(row, "refused: %s", strerror(error));
    yb_doctor_use(row, YB_DOCTOR_MISSING, "ordinary memory goes over tcp");
    yb_doctor_advice(row, "who cannot be seen to end is not read directly; allow pidfd_open in "
                          "the container's seccomp profile; Linux 5.3 or newer has it");
}

void
yb_doctor_probe_congestion(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    const char *wanted = doctor->config->net_congestion;
    char current[64];
    char available[160];
    int error;

    yb_doctor_read(doctor, "/proc/sys/net/ipv4/tcp_congestion_control", current, sizeof(current));
    yb_doctor_read(doctor, "/proc/sys/net/ipv4/tcp_available_congestion_control", available,
                   sizeof(available));
    yb_doctor_found(row, "%s by default; %s available", current[0] == '\0' ? "unknown" : current,
                    available[0] == '\0' ? "unknown" : available);
    if (strcmp(wanted, "system") == 0) {
        yb_doctor_use(row, YB_DOCTOR_OK, "the kernel's default (net.congestion system)");
        return;
    }
    error = doctor->tries->set_congestion(wanted);
    if (error == 0) {
        yb_doctor_use(row, YB_DOCTOR_OK, "%s per socket", wanted);
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_MISSING, "the kernel's default: %s is refused: %s", wanted,
                  strerror(error));
    yb_doctor_advice(row,
                     "some defaults (bbr) halve the rate of many connections on one link; "
                     "modprobe tcp_%s, or set net.congestion to an available one",
                     wanted);
}

void
yb_doctor_probe_somaxconn(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    uint64_t backlog = 0;

    if (!yb_doctor_read_number(doctor, "/proc/sys/net/core/somaxconn", &backlog)) {
        yb_doctor_found(row, "the kernel does not say");
        yb_doctor_use(row, YB_DOCTOR_MISSING, "what the kernel gives");
        yb_doctor_advice(row, "a short backlog loses connections in a storm; mount /proc");
        return;
    }
    yb_doctor_found(row, "%llu", (unsigned long long)backlog);
    if (backlog < BACKLOG_GOOD) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED, "listening with a short backlog");
        yb_doctor_advice(row, "connections are lost when many clients come at once; sysctl "
                              "net.core.somaxconn=4096");
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "listening");
}

static void
probe_tcp_buffer(const struct yb_doctor *doctor, struct yb_doctor_row *row, const char *name)
{
    char path[64];
    char text[128];
    char most_text[YB_DOCTOR_BYTES_MAX];
    char *at = text;
    unsigned long long most = 0;

    snprintf(path, sizeof(path), "/proc/sys/net/ipv4/%s", name);
    yb_doctor_read(doctor, path, text, sizeof(text));
    for (int i = 0; i < 3; i++) {
        most = strtoull(at, &at, 10);
    }
    if (most == 0) {
        yb_doctor_found(row, "the kernel does not say");
        yb_doctor_use(row, YB_DOCTOR_MISSING, "what the kernel gives");
        yb_doctor_advice(row, "small buffers limit one connection on a long link; mount /proc");
        return;
    }
    yb_doctor_found(row, "up to %s", yb_doctor_bytes(most, most_text));
    if (most < 4 * MIB) {
        yb_doctor_use(row, YB_DOCTOR_DEGRADED, "sized by the kernel, within a small limit");
        yb_doctor_advice(row,
                         "one connection cannot fill a fast or long link; sysctl "
                         "net.ipv4.%s=\"4096 131072 16777216\"",
                         name);
        return;
    }
    yb_doctor_use(row, YB_DOCTOR_OK, "sized by the kernel");
}

void
yb_doctor_probe_tcp_send(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    probe_tcp_buffer(doctor, row, "tcp_wmem");
}

void
yb_doctor_probe_tcp_receive(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    probe_tcp_buffer(doctor, row, "tcp_rmem");
}

void
yb_doctor_probe_rdma(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    char names[YB_DOCTOR_TEXT_MAX];
    unsigned count = yb_doctor_list(doctor, "/sys/class/infiniband", "", names);

    if (count == 0) {
        yb_doctor_found(row, "none");
    } else {
        yb_doctor_found(row, "%u (%.200s)", count, names);
    }
    yb_doctor_use(row, YB_DOCTOR_UNUSED, "this version moves bytes by TCP and shared memory");
}

void
yb_doctor_probe_cuda(const struct yb_doctor *doctor, struct yb_doctor_row *row)
{
    unsigned count = 0;
    int error = doctor->tries->count_gpus(&count);

    if (error == ENOENT) {
        yb_doctor_found(row, "libcuda.so.1 is not installed");
        yb_doctor_use(row, YB_DOCTOR_UNUSED, "transfers of host memory");
    } else if (error != 0) {
        yb_doctor_found(row, "the driver is there but does not start");
        yb_doctor_use(row, YB_DOCTOR_MISSING, "transfers of host memory alone");
        yb_doctor_advice(row, "device memory cannot be moved; nvidia-smi says more");
    } else {
        yb_doctor_found(row, "%u device%s", count, count == 1 ? "" : "s");
        yb_doctor_use(row, YB_DOCTOR_OK, "transfers of device memory, through page-locked memory");
    }
}
