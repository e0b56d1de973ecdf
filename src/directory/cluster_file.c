/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing the cluster file.
 */
#include "directory/cluster_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "directory/grant.h"

#define FORMAT_WORD    "yuebing-cluster"
#define FORMAT_VERSION 1
#define PATH_BYTES_MAX 4000u

struct yb_cluster_file {
    char *path;      /* NULL: none. */
    char *temporary; /* Where the next contents are written. */
    int lock_fd;     /* -1: none. */
    bool unreadable; /* F3 */
    const struct yb_directory_storage *storage;
};

__attribute__((format(printf, 3, 4))) static void
explain(char *why_out, size_t why_bytes, const char *format, ...)
{
    va_list arguments;

    if (why_bytes == 0) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(why_out, why_bytes, format, arguments);
    va_end(arguments);
}

/* ---- open and close -------------------------------------------------------------------------- */

static char *
join(const char *path, const char *suffix)
{
    size_t length = strlen(path) + strlen(suffix) + 1;
    char *joined = malloc(length);

    if (joined != NULL) {
        (void)snprintf(joined, length, "%s%s", path, suffix);
    }
    return joined;
}

/* Lock `path`.lock and write our number into it, for whoever finds it locked (F2). */
static enum yb_status
take_lock(struct yb_cluster_file *file, char *why_out, size_t why_bytes)
{
    char *path = join(file->path, ".lock");
    char text[32] = "";
    enum yb_status status = YB_OK;
    int length;

    if (path == NULL) {
        return YB_NO_MEMORY;
    }
    file->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file->lock_fd < 0) {
        explain(why_out, why_bytes, "cannot open %s: %s; give the directory a folder it may write",
                path, strerror(errno));
        status = YB_IO;
    } else if (flock(file->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t got = pread(file->lock_fd, text, sizeof(text) - 1, 0);

        text[got > 0 ? got : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        explain(why_out, why_bytes,
                "another directory (process %s) has the cluster file %s; stop it, or name another "
                "file",
                text[0] != '\0' ? text : "unknown", file->path);
        status = YB_BUSY;
    } else {
        length = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
        if (ftruncate(file->lock_fd, 0) != 0 ||
            pwrite(file->lock_fd, text, (size_t)length, 0) != length) {
            explain(why_out, why_bytes, "cannot write %s: %s; free some space", path,
                    strerror(errno));
            status = YB_IO;
        }
    }
    free(path);
    return status;
}

enum yb_status
yb_cluster_file_open(const char *path, const struct yb_directory_storage *storage,
                     struct yb_cluster_file **file_out, char *why_out, size_t why_bytes)
{
    struct yb_cluster_file *file = calloc(1, sizeof(*file));
    enum yb_status status = YB_OK;

    if (file == NULL) {
        explain(why_out, why_bytes, "no memory");
        return YB_NO_MEMORY;
    }
    file->lock_fd = -1;
    file->storage = storage;
    if (storage == NULL && path != NULL && path[0] != '\0') {
        if (strlen(path) > PATH_BYTES_MAX) {
            explain(why_out, why_bytes, "the path of the cluster file is longer than %u bytes",
                    PATH_BYTES_MAX);
            status = YB_IO;
            goto err_close;
        }
        file->path = join(path, "");
        file->temporary = join(path, ".new");
        if (file->path == NULL || file->temporary == NULL) {
            explain(why_out, why_bytes, "no memory");
            status = YB_NO_MEMORY;
            goto err_close;
        }
        status = take_lock(file, why_out, why_bytes);
        if (status != YB_OK) {
            goto err_close;
        }
    }
    *file_out = file;
    return YB_OK;

err_close:
    yb_cluster_file_close(&file);
    return status;
}

void
yb_cluster_file_close(struct yb_cluster_file **file_ref)
{
    struct yb_cluster_file *file = *file_ref;

    *file_ref = NULL;
    if (file->lock_fd >= 0) {
        (void)close(file->lock_fd);
    }
    free(file->path);
    free(file->temporary);
    free(file);
}

void
yb_cluster_state_fini(struct yb_cluster_state *state)
{
    free(state->members);
    free(state->tenants);
    state->members = NULL;
    state->tenants = NULL;
    state->member_count = 0;
    state->tenant_count = 0;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

/* Copy a text of at most `room` - 1 printable bytes. */
static bool
take_text(const json_t *object, const char *name, char *out, size_t room)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);

    if (text == NULL || length >= room || strlen(text) != length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return false;
        }
    }
    memcpy(out, text, length + 1);
    return true;
}

static bool
take_hex(const json_t *object, const char *name, uint64_t *out)
{
    char text[17];
    char *end;

    if (!take_text(object, name, text, sizeof(text)) || strlen(text) != 16 ||
        strspn(text, "0123456789abcdef") != 16) {
        return false;
    }
    *out = strtoull(text, &end, 16);
    return *end == '\0';
}

static bool
take_number(const json_t *object, const char *name, uint64_t max, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        return false;
    }
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool
take_id(const json_t *object, const char *name, struct yb_id *out)
{
    char text[33];

    return take_text(object, name, text, sizeof(text)) && yb_id_parse(text, out);
}

static bool
take_member(const json_t *object, struct yb_cluster_member *member)
{
    const json_t *draining = json_object_get(object, "draining");
    const json_t *owes = json_object_get(object, "owes");

    member->draining = json_is_true(draining);
    member->owes = json_is_true(owes);
    member->keeps = json_is_true(json_object_get(object, "keeps")); /* Absent in older files. */
    member->away = json_is_true(json_object_get(object, "away"));
    return json_is_boolean(draining) && json_is_boolean(owes) &&
           take_text(object, "name", member->name, sizeof(member->name)) &&
           take_text(object, "address", member->address, sizeof(member->address)) &&
           take_hex(object, "incarnation", &member->incarnation) &&
           take_hex(object, "previous", &member->previous) && yb_grant_valid(member->incarnation);
}

static bool
take_tenant(const json_t *object, struct yb_cluster_tenant *tenant)
{
    tenant->limit = YB_CLUSTER_NO_LIMIT;
    return take_text(object, "name", tenant->name, sizeof(tenant->name)) &&
           tenant->name[0] != '\0' && take_number(object, "flush", INT64_MAX, &tenant->flush) &&
           (json_is_null(json_object_get(object, "limit")) ||
            take_number(object, "limit", INT64_MAX, &tenant->limit));
}

/* Return the word of what is wrong; NULL: nothing. */
static const char *
take_lists(const json_t *root, struct yb_cluster_state *state)
{
    const json_t *members = json_object_get(root, "members");
    const json_t *tenants = json_object_get(root, "tenants");
    size_t member_count = json_array_size(members);
    size_t tenant_count = json_array_size(tenants);

    if (!json_is_array(members) || member_count > YB_CLUSTER_MEMBERS_MAX) {
        return "members";
    }
    if (!json_is_array(tenants) || tenant_count > YB_CLUSTER_TENANTS_MAX) {
        return "tenants";
    }
    state->members = calloc(member_count + 1, sizeof(*state->members));
    state->tenants = calloc(tenant_count + 1, sizeof(*state->tenants));
    if (state->members == NULL || state->tenants == NULL) {
        return "memory";
    }
    for (size_t i = 0; i < member_count; i++) {
        if (!take_member(json_array_get(members, i), &state->members[i])) {
            return "members";
        }
    }
    for (size_t i = 0; i < tenant_count; i++) {
        if (!take_tenant(json_array_get(tenants, i), &state->tenants[i])) {
            return "tenants";
        }
    }
    state->member_count = (uint32_t)member_count;
    state->tenant_count = (uint32_t)tenant_count;
    return NULL;
}

static enum yb_status
parse(const char *bytes, size_t length, struct yb_cluster_state *state_out, char *why_out,
      size_t why_bytes)
{
    struct yb_cluster_state state = {.epoch = 0};
    json_error_t error;
    json_t *root = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error);
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");
    enum yb_status status = YB_INVALID;
    const char *wrong = NULL;
    struct yb_id seed;

    if (root == NULL) {
        explain(why_out, why_bytes,
                "it is damaged (line %d: %s); restore it from a copy, or move it away to begin a "
                "new, empty cluster",
                error.line, error.text);
    } else if (format == NULL || strcmp(format, FORMAT_WORD) != 0 || !json_is_integer(version)) {
        explain(why_out, why_bytes, "it is not a cluster file; name another one");
    } else if (json_integer_value(version) != FORMAT_VERSION) {
        explain(why_out, why_bytes,
                "it has version %lld and this program knows %d; run the program that wrote it, or "
                "a newer one",
                (long long)json_integer_value(version), FORMAT_VERSION);
        status = YB_VERSION;
    } else {
        wrong = !take_id(root, "cluster", &state.cluster) || yb_id_is_none(state.cluster)
                    ? "cluster"
                : !take_id(root, "seed", &seed) ? "seed"
                : !take_number(root, "epoch", YB_GRANT_EPOCH_MAX, &state.epoch) || state.epoch == 0
                    ? "epoch"
                    : take_lists(root, &state);
        status = wrong == NULL ? YB_OK : strcmp(wrong, "memory") == 0 ? YB_NO_MEMORY : YB_INVALID;
        if (wrong != NULL) {
            explain(why_out, why_bytes,
                    "its field \"%s\" is damaged; restore it from a copy, or move it away to begin "
                    "a new, empty cluster",
                    wrong);
            yb_cluster_state_fini(&state);
        } else {
            memcpy(state.seed, seed.bytes, sizeof(state.seed));
            *state_out = state;
        }
    }
    json_decref(root);
    return status;
}

/* ---- load ------------------------------------------------------------------------------------ */

/* Read the whole file into *bytes_out, which the caller frees. */
static enum yb_status
read_file(const char *path, char **bytes_out, size_t *length_out, char *why_out, size_t why_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum yb_status status = YB_IO;
    char *bytes = NULL;
    size_t length = 0;
    struct stat about;

    if (fd < 0 && errno == ENOENT) {
        return YB_NOT_FOUND;
    }
    if (fd < 0 || fstat(fd, &about) != 0) {
        explain(why_out, why_bytes, "it cannot be read: %s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(about.st_mode) || about.st_size > (off_t)YB_CLUSTER_FILE_BYTES_MAX) {
        explain(why_out, why_bytes, "it is not a file of at most %u bytes; name another one",
                YB_CLUSTER_FILE_BYTES_MAX);
        status = YB_INVALID;
        goto out;
    }
    bytes = malloc((size_t)about.st_size + 1);
    if (bytes == NULL) {
        status = YB_NO_MEMORY;
        goto out;
    }
    while (length < (size_t)about.st_size) {
        ssize_t got = read(fd, bytes + length, (size_t)about.st_size - length);

        if (got < 0 && errno != EINTR) {
            explain(why_out, why_bytes, "it cannot be read: %s", strerror(errno));
            goto out;
        }
        if (got == 0) {
            break;
        }
        length += got > 0 ? (size_t)got : 0;
    }
    *bytes_out = bytes;
    *length_out = length;
    bytes = NULL;
    status = YB_OK;
out:
    free(bytes);
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

static enum yb_status
read_storage(const struct yb_directory_storage *storage, char **bytes_out, size_t *length_out)
{
    char *bytes = malloc(YB_CLUSTER_FILE_BYTES_MAX);
    enum yb_status status = YB_NO_MEMORY;
    size_t length = 0;

    if (bytes == NULL) {
        return status;
    }
    status = storage->load(storage->owner, bytes, YB_CLUSTER_FILE_BYTES_MAX, &length);
    if (status != YB_OK || length == 0) {
        free(bytes);
        return status == YB_OK ? YB_NOT_FOUND : status;
    }
    *bytes_out = bytes;
    *length_out = length;
    return YB_OK;
}

enum yb_status
yb_cluster_file_load(struct yb_cluster_file *file, struct yb_cluster_state *state_out,
                     char *why_out, size_t why_bytes)
{
    char reason[256] = "no memory";
    enum yb_status status = YB_NOT_FOUND;
    char *bytes = NULL;
    size_t length = 0;

    if (file->storage != NULL) {
        status = read_storage(file->storage, &bytes, &length);
    } else if (file->path != NULL) {
        status = read_file(file->path, &bytes, &length, reason, sizeof(reason));
    }
    if (status == YB_OK) {
        status = parse(bytes, length, state_out, reason, sizeof(reason));
    }
    free(bytes);
    if (status != YB_OK && status != YB_NOT_FOUND) {
        file->unreadable = true;
        explain(why_out, why_bytes, "the cluster file %s: %s",
                file->path != NULL ? file->path : "in memory", reason);
    }
    return status;
}

/* ---- store ----------------------------------------------------------------------------------- */

static json_t *
hex(uint64_t value)
{
    char text[17];

    (void)snprintf(text, sizeof(text), "%016" PRIx64, value);
    return json_string(text);
}

static json_t *
id(const uint8_t *bytes)
{
    struct yb_id value;
    char text[33];

    memcpy(value.bytes, bytes, sizeof(value.bytes));
    yb_id_format(value, text);
    return json_string(text);
}

/* Return the JSON text of a state, which the caller frees; NULL: no memory, or a name that is not
 * text. */
static char *
format(const struct yb_cluster_state *state)
{
    json_t *members = json_array();
    json_t *tenants = json_array();
    json_t *root;
    char *text;

    for (uint32_t i = 0; i < state->member_count; i++) {
        const struct yb_cluster_member *member = &state->members[i];

        (void)json_array_append_new(
            members, json_pack("{s:s, s:s, s:o, s:o, s:b, s:b, s:b, s:b}", "name", member->name,
                               "address", member->address, "incarnation", hex(member->incarnation),
                               "previous", hex(member->previous), "draining", member->draining,
                               "owes", member->owes, "keeps", member->keeps, "away", member->away));
    }
    for (uint32_t i = 0; i < state->tenant_count; i++) {
        const struct yb_cluster_tenant *tenant = &state->tenants[i];
        json_t *limit = tenant->limit == YB_CLUSTER_NO_LIMIT
                            ? json_null()
                            : json_integer((json_int_t)(tenant->limit & INT64_MAX));

        (void)json_array_append_new(tenants,
                                    json_pack("{s:s, s:I, s:o}", "name", tenant->name, "flush",
                                              (json_int_t)tenant->flush, "limit", limit));
    }
    if (json_array_size(members) != state->member_count ||
        json_array_size(tenants) != state->tenant_count) {
        json_decref(members);
        json_decref(tenants);
        return NULL;
    }
    root = json_pack("{s:s, s:i, s:o, s:o, s:I, s:o, s:o}", "format", FORMAT_WORD, "version",
                     FORMAT_VERSION, "cluster", id(state->cluster.bytes), "seed", id(state->seed),
                     "epoch", (json_int_t)state->epoch, "members", members, "tenants", tenants);
    text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    return text;
}

/* Sync the folder in which `path` is: only then has a rename happened for good. */
static bool
sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? join(".", "")
                   : slash == path ? join("/", "")
                                   : strndup(path, (size_t)(slash - path));
    int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool synced = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    free(folder);
    return synced;
}

static bool
write_whole(int fd, const char *bytes, size_t length)
{
    size_t at = 0;

    while (at < length) {
        ssize_t put = write(fd, bytes + at, length - at);

        if (put < 0 && errno != EINTR) {
            return false;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    return fsync(fd) == 0;
}

/* F1 */
static enum yb_status
write_file(struct yb_cluster_file *file, const char *bytes, size_t length, char *why_out,
           size_t why_bytes)
{
    int fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write_whole(fd, bytes, length);

    if (fd >= 0 && close(fd) != 0) {
        written = false;
    }
    if (!written || rename(file->temporary, file->path) != 0 || !sync_folder(file->path)) {
        explain(why_out, why_bytes,
                "the cluster file %s cannot be written: %s; free some space, or let the directory "
                "write there",
                file->path, strerror(errno));
        return YB_IO;
    }
    return YB_OK;
}

enum yb_status
yb_cluster_file_store(struct yb_cluster_file *file, const struct yb_cluster_state *state,
                      char *why_out, size_t why_bytes)
{
    enum yb_status status = YB_OK;
    size_t length;
    char *text;

    if (file->unreadable) {
        explain(why_out, why_bytes, "the cluster file could not be read and is left as it is");
        return YB_INVALID;
    }
    text = format(state);
    if (text == NULL) {
        explain(why_out, why_bytes, "no memory to write the cluster file");
        return YB_NO_MEMORY;
    }
    length = strlen(text);
    if (length > YB_CLUSTER_FILE_BYTES_MAX) {
        explain(why_out, why_bytes, "the cluster file would be larger than %u bytes",
                YB_CLUSTER_FILE_BYTES_MAX);
        status = YB_TOO_LARGE;
    } else if (file->storage != NULL) {
        status = file->storage->store(file->storage->owner, text, length);
        if (status != YB_OK) {
            explain(why_out, why_bytes, "the cluster's storage failed");
        }
    } else if (file->path != NULL) {
        status = write_file(file, text, length, why_out, why_bytes);
    }
    free(text);
    return status;
}
