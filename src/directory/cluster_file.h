/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_file.h -- the few kilobytes of a cluster that must survive its directory.
 *
 * The index of blocks is soft: it is rebuilt from what nodes hold. What cannot be rebuilt is here:
 * who the cluster is, the seed under which keys are hashed, the last epoch, who was a member (and
 * so has to be heard before an absence is believed), and every tenant's flush epoch. It is written
 * as a whole when one of these changes, which is rare.
 *
 * Format    A JSON object with "format" and "version"; 64-bit numbers that may exceed 2^63 are
 *           strings of 16 hexadecimal digits. At most YB_CLUSTER_FILE_BYTES_MAX bytes.
 *
 * Invariants
 *   F1  A reader finds the old contents or the new, whole, whenever the machine stops: they are
 *       written beside it, synced, renamed over it, and the folder is synced.
 *   F2  One file has one owner: a lock beside it is held from open to close.
 *   F3  What cannot be read is never written over.
 *
 * Threads   One owner. load and store block for as long as the disk takes.
 * Memory    A state's arrays are allocated by load and owned by the caller (fini); store borrows.
 * Failure   Every failure writes a sentence with the remedy.
 */
#ifndef YB_DIRECTORY_CLUSTER_FILE_H
#define YB_DIRECTORY_CLUSTER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "directory/directory.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_CLUSTER_FILE_BYTES_MAX (4u << 20)
#define YB_CLUSTER_MEMBERS_MAX    4096u
#define YB_CLUSTER_TENANTS_MAX    4096u
#define YB_CLUSTER_SEED_BYTES     16u
#define YB_CLUSTER_NO_LIMIT       UINT64_MAX

struct yb_cluster_member {
    char name[64];
    char address[64];
    uint64_t incarnation;
    uint64_t previous; /* The one that it may still believe to have; 0: none. */
    bool draining;
    /* It keeps blocks where they outlive it ... */
    bool keeps;
    /* ... is away ... */
    bool away;
    /* ... and something was removed or replaced meanwhile that it may still have. */
    bool owes;
};

struct yb_cluster_tenant {
    char name[65];
    uint64_t flush;
    uint64_t limit; /* Bytes; YB_CLUSTER_NO_LIMIT: none. */
};

struct yb_cluster_state {
    struct yb_id cluster;
    uint8_t seed[YB_CLUSTER_SEED_BYTES];
    uint64_t epoch; /* 1 to YB_GRANT_EPOCH_MAX. */
    struct yb_cluster_member *members;
    uint32_t member_count;
    struct yb_cluster_tenant *tenants;
    uint32_t tenant_count;
};

struct yb_cluster_file;

/* Take the file `path`, or `storage` in its place (NULL: the file); with neither, what is stored is
 * forgotten. Strings are copied, the storage is borrowed until close. Fails with BUSY (another
 * process has it), IO or NO_MEMORY. */
YB_CHECKED enum yb_status yb_cluster_file_open(const char *path,
                                               const struct yb_directory_storage *storage,
                                               struct yb_cluster_file **file_out, char *why_out,
                                               size_t why_bytes);

/* Consume it and set *file to NULL. */
void yb_cluster_file_close(struct yb_cluster_file **file);

/* Read what was stored last. Fails with NOT_FOUND (nothing ever was), INVALID (it is not a cluster
 * file, or damaged), VERSION (of a newer version), IO or NO_MEMORY; *state_out is then untouched,
 * and but for NOT_FOUND the file refuses to be stored (F3). */
YB_CHECKED enum yb_status yb_cluster_file_load(struct yb_cluster_file *file,
                                               struct yb_cluster_state *state_out, char *why_out,
                                               size_t why_bytes);

/* Make the state durable. Fails with INVALID (F3), TOO_LARGE, IO or NO_MEMORY. */
YB_CHECKED enum yb_status yb_cluster_file_store(struct yb_cluster_file *file,
                                                const struct yb_cluster_state *state, char *why_out,
                                                size_t why_bytes);

/* Free what load allocated. */
void yb_cluster_state_fini(struct yb_cluster_state *state);

#endif /* YB_DIRECTORY_CLUSTER_FILE_H */
