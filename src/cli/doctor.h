/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h -- what this machine offers, what we use of it, what is missing.
 *
 * Each probe fills one row. What a probe reads lies below `root`, so that a test
 * shows it a machine of its own; what a probe must really try (making a ring,
 * reading another process) goes through `tries` for the same reason.
 *
 * States
 *   ok        there, and used as it should be
 *   degraded  there, but a setting makes it slower or smaller than it could be
 *   missing   not there; the row says what that costs and how to get it
 *   unused    there or not, this version does not use it
 *
 * Threads   One.
 * Memory    Rows are plain values. Nothing is kept.
 */
#ifndef YB_CLI_DOCTOR_H
#define YB_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"

#define YB_DOCTOR_TEXT_MAX 320

enum yb_doctor_state {
    YB_DOCTOR_OK,
    YB_DOCTOR_DEGRADED,
    YB_DOCTOR_MISSING,
    YB_DOCTOR_UNUSED,
};

struct yb_doctor_row {
    const char *what; /* Static. */
    enum yb_doctor_state state;
    char found[YB_DOCTOR_TEXT_MAX];
    char use[YB_DOCTOR_TEXT_MAX];
    char advice[YB_DOCTOR_TEXT_MAX]; /* What it costs and how to get it; "" when all is well. */
};

/* Each returns 0 or an errno. */
struct yb_doctor_tries {
    int (*make_ring)(void);                  /* io_uring_setup */
    int (*read_child)(void);                 /* process_vm_readv on a child of ours */
    int (*set_congestion)(const char *name); /* TCP_CONGESTION on a socket */
    int (*open_pidfd)(void);                 /* pidfd_open on ourselves */
    int (*count_gpus)(unsigned *count_out);  /* ENOENT: no driver */
    int (*limit)(int resource, uint64_t *soft_out, uint64_t *hard_out);
    int (*filesystem_bytes)(const char *path, uint64_t *bytes_out);
};

struct yb_doctor {
    const char *root; /* "" for this machine; otherwise a folder with proc/, sys/ and dev/. */
    const struct yb_doctor_tries *tries;
    const struct yb_config *config;
};

/* Really try, on this machine: static. */
const struct yb_doctor_tries *yb_doctor_tries_real(void);

const char *yb_doctor_state_name(enum yb_doctor_state state);

/* Return the number of probes, and run number `index`. */
unsigned yb_doctor_count(void);
void yb_doctor_probe(const struct yb_doctor *doctor, unsigned index, struct yb_doctor_row *row_out);

#endif /* YB_CLI_DOCTOR_H */
