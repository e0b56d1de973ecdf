/* SPDX-License-Identifier: Apache-2.0
 *
 * writable.h -- whether memory of this process can be written, without writing it.
 *
 * Memory that others own may not be writable, and an instruction of ours that finds out ends the
 * process. The kernel can make all pages of a range writable (MADV_POPULATE_WRITE), or say that one
 * cannot be; but it goes from page to page, which costs as much as copying a third of the bytes.
 * Almost always the memory is a heap, whose pages are there. Three questions tell, and cost as much
 * for 2 MiB as that call for 20 pages:
 *
 *     which mapping?          private, of no file, writable: what it holds nobody can truncate
 *     can a page be written?  one stands for its mapping: rights are the mapping's, also those of
 *                             protection keys
 *     are the pages there?    those that are not may be guards, which are no mappings of their own
 *
 * What is not known to be writable may well be: then the slow way tells.
 *
 * Invariants
 *   W1  What is reported can be written at that moment by the thread that asked.
 *   W2  Nothing is written, and no page made that was not there, but the one that was asked about.
 *
 * Threads   Any function, any thread, between init and fini.
 * Memory    A descriptor of /proc/self/maps, for as long as it lives. Where there is none, or the
 *           kernel does not know the question (before Linux 6.11), nothing is known. A child after
 *           fork() must not ask: it would hear of its parent.
 */
#ifndef YB_MEMORY_WRITABLE_H
#define YB_MEMORY_WRITABLE_H

#include <stdbool.h>
#include <stdint.h>

/* What is looked at in one call, at most. */
#define YB_WRITABLE_BYTES_MAX (2u << 20)

struct yb_writable {
    int maps; /* -1: nothing is known. */
};

void yb_writable_init(struct yb_writable *writable);
void yb_writable_fini(struct yb_writable *writable);

/* Return up to where memory from `first` on can be written, `last` and YB_WRITABLE_BYTES_MAX
 * further on at most; `first`: that is not known. Both are the beginnings of pages. */
uintptr_t yb_writable_until(const struct yb_writable *writable, uintptr_t first, uintptr_t last);

/* Let the kernel make all pages from `first` up to `last` writable, as writing would. Returns
 * false, with errno: one cannot be (EFAULT, ENOMEM), or the kernel does not say. */
bool yb_writable_populate(uintptr_t first, uintptr_t last);

#endif /* YB_MEMORY_WRITABLE_H */
