/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/metadata.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/lock.h"

#define METADATA_MAGIC 0x6d657461u
#define BUCKETS        4096u
#define ADDRESS_WORD   "rpc_meta"

struct entry {
    struct entry *next;
    char *value;
    size_t bytes;
    char key[];
};

struct yb_metadata {
    uint32_t magic;
    struct yb_lock lock; /* Protects everything below. */
    struct entry *buckets[BUCKETS];
    uint32_t count;
    uint64_t bytes;
};

struct yb_metadata *
yb_metadata_create(void)
{
    struct yb_metadata *metadata = calloc(1, sizeof(*metadata));

    if (metadata != NULL) {
        metadata->magic = METADATA_MAGIC;
        yb_lock_init(&metadata->lock, YB_LOCK_COMPAT_METADATA);
    }
    return metadata;
}

static void
drop_locked(struct yb_metadata *metadata, struct entry **link)
{
    struct entry *entry = *link;

    yb_lock_assert_held(&metadata->lock);
    *link = entry->next;
    metadata->count--;
    metadata->bytes -= entry->bytes + strlen(entry->key);
    free(entry->value);
    free(entry);
}

void
yb_metadata_destroy(struct yb_metadata **metadata_ref)
{
    struct yb_metadata *metadata = *metadata_ref;

    YB_ASSERT_OBJ(metadata, METADATA_MAGIC);
    *metadata_ref = NULL;
    yb_lock_acquire(&metadata->lock);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        while (metadata->buckets[i] != NULL) {
            drop_locked(metadata, &metadata->buckets[i]);
        }
    }
    yb_lock_release(&metadata->lock);
    yb_lock_fini(&metadata->lock);
    metadata->magic = 0;
    free(metadata);
}

/* Return where the key's entry hangs, or would. */
static struct entry **
find_locked(struct yb_metadata *metadata, const char *key)
{
    struct entry **link = &metadata->buckets[XXH3_64bits(key, strlen(key)) % BUCKETS];

    yb_lock_assert_held(&metadata->lock);
    while (*link != NULL && strcmp((*link)->key, key) != 0) {
        link = &(*link)->next;
    }
    return link;
}

enum yb_status
yb_metadata_get(struct yb_metadata *metadata, const char *key, char **value_out, size_t *bytes_out)
{
    const struct entry *entry;
    char *copy = NULL;
    enum yb_status status = YB_NOT_FOUND;

    YB_ASSERT_OBJ(metadata, METADATA_MAGIC);
    yb_lock_acquire(&metadata->lock);
    entry = *find_locked(metadata, key);
    if (entry != NULL) {
        copy = malloc(entry->bytes + 1);
        status = copy != NULL ? YB_OK : YB_NO_MEMORY;
    }
    if (status == YB_OK) {
        memcpy(copy, entry->value, entry->bytes);
        copy[entry->bytes] = '\0';
        *value_out = copy;
        *bytes_out = entry->bytes;
    }
    yb_lock_release(&metadata->lock);
    return status;
}

/* Make an entry that hangs nowhere yet. NULL: no memory. */
static struct entry *
make(const char *key, const void *value, size_t bytes)
{
    size_t length = strlen(key);
    struct entry *entry = calloc(1, sizeof(*entry) + length + 1);

    if (entry == NULL) {
        return NULL;
    }
    memcpy(entry->key, key, length + 1);
    entry->value = malloc(bytes + 1);
    if (entry->value == NULL) {
        free(entry);
        return NULL;
    }
    if (bytes > 0) {
        memcpy(entry->value, value, bytes);
    }
    entry->bytes = bytes;
    return entry;
}

/* Whether a new value may come to where `old` (NULL: nothing) is. */
static enum yb_status
judge_locked(const struct yb_metadata *metadata, const struct entry *old, const struct entry *new)
{
    const uint64_t size = new->bytes + strlen(new->key);
    const uint64_t was = old != NULL ? old->bytes + strlen(old->key) : 0;

    yb_lock_assert_held(&metadata->lock);
    if (old != NULL && strstr(old->key, ADDRESS_WORD) != NULL) {
        bool same = old->bytes == new->bytes &&memcmp(old->value, new->value, old->bytes) == 0;

        return same ? YB_OK : YB_EXISTS;
    }
    if ((old == NULL && metadata->count == YB_METADATA_KEYS_MAX) ||
        metadata->bytes - was + size > YB_METADATA_BYTES_MAX) {
        return YB_NO_SPACE;
    }
    return YB_OK;
}

enum yb_status
yb_metadata_put(struct yb_metadata *metadata, const char *key, const void *value, size_t bytes)
{
    struct entry *entry;
    struct entry **link;
    enum yb_status status;

    YB_ASSERT_OBJ(metadata, METADATA_MAGIC);
    if (key[0] == '\0' || strlen(key) > YB_METADATA_KEY_MAX) {
        return YB_INVALID;
    }
    entry = make(key, value, bytes);
    if (entry == NULL) {
        return YB_NO_MEMORY;
    }
    yb_lock_acquire(&metadata->lock);
    link = find_locked(metadata, key);
    status = judge_locked(metadata, *link, entry);
    if (status == YB_OK) {
        if (*link != NULL) {
            drop_locked(metadata, link);
        }
        entry->next = *link;
        *link = entry;
        metadata->count++;
        metadata->bytes += bytes + strlen(key);
        entry = NULL;
    }
    yb_lock_release(&metadata->lock);
    if (entry != NULL) {
        free(entry->value);
        free(entry);
    }
    return status;
}

enum yb_status
yb_metadata_delete(struct yb_metadata *metadata, const char *key)
{
    struct entry **link;
    enum yb_status status = YB_NOT_FOUND;

    YB_ASSERT_OBJ(metadata, METADATA_MAGIC);
    yb_lock_acquire(&metadata->lock);
    link = find_locked(metadata, key);
    if (*link != NULL) {
        drop_locked(metadata, link);
        status = YB_OK;
    }
    yb_lock_release(&metadata->lock);
    return status;
}
