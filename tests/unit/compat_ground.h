/* SPDX-License-Identifier: Apache-2.0
 *
 * compat_ground.h -- stores of the known system's kind on a directory and nodes of this process.
 *
 * Threads   The test's.
 * Memory    What is opened belongs to the test.
 */
#ifndef YB_TESTS_COMPAT_GROUND_H
#define YB_TESTS_COMPAT_GROUND_H

#include "compat/store.h"
#include "store_ground.h"

/* What an engine says to join this ground, with a segment of 32 MiB. */
struct yb_compat_setup setup_of(const struct ground *where);

/* A store that has joined, with a segment of its own or (0) without. */
struct yb_compat_store *open_store(const struct ground *where, uint64_t segment_bytes);

/* A text as a key; borrowed. */
yb_compat_key key_of(const char *text);

#endif /* YB_TESTS_COMPAT_GROUND_H */
