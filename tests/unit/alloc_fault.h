/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc_fault.h -- this program's own calloc, which counts, and fails when a test says so.
 *
 * Included by one file of a program. Under a sanitizer, which brings an allocator of its own, there
 * is nothing to count or fail: ALLOC_FAULT_WORKS is 0, and such a test passes over it.
 */
#ifndef YB_TESTS_ALLOC_FAULT_H
#define YB_TESTS_ALLOC_FAULT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOC_FAULT_WORKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLOC_FAULT_WORKS 0
#else
#define ALLOC_FAULT_WORKS 1
#endif
#else
#define ALLOC_FAULT_WORKS 1
#endif

static uint64_t alloc_fault_count;              /* Calls of calloc so far. */
static uint64_t alloc_fault_after = UINT64_MAX; /* So many more succeed. */

#if ALLOC_FAULT_WORKS
extern void *__libc_calloc(size_t count, size_t size);

void *calloc(size_t count, size_t size);

void *
calloc(size_t count, size_t size)
{
    alloc_fault_count++;
    if (alloc_fault_after == 0) {
        return NULL;
    }
    alloc_fault_after -= alloc_fault_after != UINT64_MAX;
    return __libc_calloc(count, size);
}
#endif

#endif /* YB_TESTS_ALLOC_FAULT_H */
