/* SPDX-License-Identifier: Apache-2.0
 *
 * io_conformance.h -- what io.h promises, asked of any backend.
 *
 * Both ends of every connection live in one io, on a loopback address. Time is awaited by
 * letting it pass in small steps until something holds, with a deadline that only a broken
 * backend meets; no test depends on how long anything takes.
 */
#ifndef YB_TESTS_IO_CONFORMANCE_H
#define YB_TESTS_IO_CONFORMANCE_H

#include "net/io.h"

struct io_backend {
    const char *name;

    /* Make an io and whatever it needs around it. NULL: not possible on this machine, and the
     * tests count as skipped. */
    void *(*create)(struct yb_io **io_out);
    /* Destroy the io and what is around it. */
    void (*destroy)(void *world, struct yb_io *io);
    /* Deliver what is due; wait a little for something, but no longer than milliseconds. */
    void (*pass)(void *world, struct yb_io *io);
    uint64_t (*now_ns)(void *world);
};

/* Run every test on the backend. Returns how many failed. */
int io_conformance_run(const struct io_backend *backend);

#endif /* YB_TESTS_IO_CONFORMANCE_H */
