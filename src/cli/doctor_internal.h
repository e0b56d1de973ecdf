/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_internal.h -- the table of probes, and how they read a machine.
 */
#ifndef YB_CLI_DOCTOR_INTERNAL_H
#define YB_CLI_DOCTOR_INTERNAL_H

#include "cli/doctor.h"

/* clang-format off */
#define YB_DOCTOR_PROBE_MAP(X)                                                            \
    X(cores,       "cpu cores")                                                           \
    X(cpu_flags,   "cpu instructions")                                                    \
    X(numa,        "numa nodes")                                                          \
    X(memory,      "memory")                                                              \
    X(cgroup,      "control group limits")                                                \
    X(huge_2m,     "huge pages, 2 MiB")                                                   \
    X(huge_1g,     "huge pages, 1 GiB")                                                   \
    X(thp,         "transparent huge pages")                                              \
    X(memlock,     "locked memory limit")                                                 \
    X(shm,         "/dev/shm")                                                            \
    X(files,       "open files limit")                                                    \
    X(uring,       "io_uring")                                                            \
    X(cross_read,  "cross-memory attach")                                                 \
    X(pidfd,       "pidfd")                                                               \
    X(congestion,  "congestion control")                                                  \
    X(somaxconn,   "listen backlog")                                                      \
    X(tcp_send,    "tcp send buffer")                                                     \
    X(tcp_receive, "tcp receive buffer")                                                  \
    X(rdma,        "rdma devices")                                                        \
    X(cuda,        "cuda driver")                                                         \
    X(clock,       "clock source")
/* clang-format on */

#define X(name, what) \
    void yb_doctor_probe_##name(const struct yb_doctor *doctor, struct yb_doctor_row *row);
YB_DOCTOR_PROBE_MAP(X)
#undef X

#define YB_DOCTOR_PEER_ROWS 3

/* Ask the engine at `address`, as a process with this configuration, which ways lead there and why
 * not. Waits some seconds at most. Returns how many rows were filled in; the first is MISSING if it
 * cannot be asked. */
unsigned yb_doctor_probe_peer(const struct yb_config *config, const char *address,
                              struct yb_doctor_row rows_out[YB_DOCTOR_PEER_ROWS]);

/* Ask the python3 in PATH which packages `mooncake` and `yuebing` it would load. Waits 20 s. */
void yb_doctor_probe_python(struct yb_doctor_row *row_out);

/* The texts of a row, printf style; each cut to fit. */
void yb_doctor_found(struct yb_doctor_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void yb_doctor_use(struct yb_doctor_row *row, enum yb_doctor_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void yb_doctor_advice(struct yb_doctor_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Read the first `size - 1` bytes of a file below the root, without the last newline. Returns
 * false, with an empty text, when there is none. */
bool yb_doctor_read(const struct yb_doctor *doctor, const char *path, char *text_out, size_t size);

/* Read a file that holds one number; "max" reads as UINT64_MAX. */
bool yb_doctor_read_number(const struct yb_doctor *doctor, const char *path, uint64_t *number_out);

/* Count the entries of a folder whose names begin with `prefix`, and list the first few names,
 * separated by blanks, when `names_out` is not NULL. */
unsigned yb_doctor_list(const struct yb_doctor *doctor, const char *path, const char *prefix,
                        char names_out[YB_DOCTOR_TEXT_MAX]);

/* Whether `word` stands in the blank-separated `text`. */
bool yb_doctor_has_word(const char *text, const char *word);

/* Write "64.0 GiB", or "unlimited" for UINT64_MAX. */
#define YB_DOCTOR_BYTES_MAX 32
const char *yb_doctor_bytes(uint64_t bytes, char text_out[YB_DOCTOR_BYTES_MAX]);

#endif /* YB_CLI_DOCTOR_INTERNAL_H */
