/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects as files. A file comes into its place by a rename, after its bytes are on the disk, and
 * the folder is written before anybody hears of it (B1). Every call runs on a helper's thread.
 *
 * A name "a/b/c/d" is the file "a/b/c,d": a folder for each block would be one too many. What is
 * being written lies in "_part/", and is swept at the start once it is older than a day: another
 * process may be at it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/net.h"
#include "tier/object/backend.h"

#define FILE_MAGIC     0x594f4649u /* "YOFI" */
#define PARTS          "_part"
#define PART_BYTES     80u
#define PART_OLD_S     (24 * 3600)
#define PIECES_MAX     64
#define STEP_BYTES     (128u << 10) /* That one call moves at most: see step(). */
#define PUT_TRIES      3            /* A folder may be swept away between its making and its use. */
#define PATH_BYTES     (YB_OBJECT_NAME_MAX + 8)
#define CANCELLED_FLAG 1u

struct file_backend {
    struct yb_object_backend head;
    uint32_t magic;
    int root; /* The folder. */
    char path[PATH_MAX];
    struct yb_loop *loop;
    struct yb_helper_pool *pool;
    const struct yb_clock *clock;
    struct yb_id writer; /* No two have one, on whichever hosts and in whichever processes. */
    _Atomic uint64_t next_part;
};

static struct file_backend *
file_of(struct yb_object_backend *backend)
{
    struct file_backend *file = (struct file_backend *)backend;

    YB_ASSERT_OBJ(file, FILE_MAGIC);
    return file;
}

/* ---- trouble --------------------------------------------------------------------------------- */

static enum yb_status
fail(struct yb_object_request *request, const struct file_backend *file, int error,
     const char *doing)
{
    const char *remedy = "";
    enum yb_status status = YB_IO;

    switch (error) {
    case ENOENT: status = YB_NOT_FOUND; break;
    case ENOSPC:
    case EDQUOT:
        status = YB_NO_SPACE;
        remedy = "; free some space there, or give the tier a bound";
        break;
    case EROFS:
    case EACCES:
    case EPERM:
        status = YB_DENIED;
        request->aside = true;
        remedy = "; give this process the right to write there";
        break;
    case EIO:
    case ENODEV:
    case ESTALE:
    case ENOTCONN:
        request->aside = true;
        remedy = "; the disk or the mount behind it fails: see the kernel's log";
        break;
    default: break;
    }
    (void)snprintf(request->why, sizeof(request->why), "%.160s: %s fails: %s%s", file->path, doing,
                   strerror(error), remedy);
    return status;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* "a/b/c/d" becomes "a/b/c,d". */
static void
path_of(const char *name, char path_out[PATH_BYTES])
{
    char *slash;

    (void)snprintf(path_out, PATH_BYTES, "%s", name);
    slash = strrchr(path_out, '/');
    if (slash != NULL) {
        *slash = ',';
    }
}

static void
folder_of(const char *path, char folder_out[PATH_BYTES])
{
    char *slash;

    (void)snprintf(folder_out, PATH_BYTES, "%s", path);
    slash = strrchr(folder_out, '/');
    if (slash == NULL) {
        (void)snprintf(folder_out, PATH_BYTES, ".");
    } else {
        *slash = '\0';
    }
}

static bool
sync_folder(const struct file_backend *file, const char *folder)
{
    int fd = openat(file->root, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = fd >= 0 && fsync(fd) == 0;
    int error = errno;

    if (fd >= 0) {
        (void)close(fd);
    }
    errno = error;
    return done;
}

/* Make the folders above `path`, each written into the one above it. */
static bool
make_folders(const struct file_backend *file, const char *path)
{
    char folder[PATH_BYTES], above[PATH_BYTES];

    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)(at - path), path);
        if (mkdirat(file->root, folder, 0777) != 0) {
            if (errno != EEXIST) {
                return false;
            }
            continue;
        }
        folder_of(folder, above);
        if (!sync_folder(file, above)) {
            return false;
        }
    }
    return true;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Gather the next pieces that are no gap; returns how many, and how long a gap comes first. */
static int
gather(const struct yb_object_bytes *bytes, uint32_t *at, struct iovec pieces[PIECES_MAX],
       uint64_t *gap_out)
{
    struct iovec piece;
    int count = 0;
    uint32_t before = *at;

    *gap_out = 0;
    while (count < PIECES_MAX && yb_object_piece(bytes, at, &piece)) {
        if (piece.iov_base == NULL && count > 0) {
            *at = before; /* It is next time's. */
            break;
        }
        if (piece.iov_base == NULL) {
            *gap_out += piece.iov_len;
        } else {
            pieces[count++] = piece;
        }
        before = *at;
    }
    return count;
}

/* Move the pieces that one step holds, or the first in part. Of a GET they are summed while they
 * are warm. And a kernel without preemption copies what one call asks for into the large folios of
 * a page cache before anybody else gets that processor, whatever the priority: megabytes kept a
 * conductor from an answer for milliseconds. */
static ssize_t
step(int fd, bool writes, const struct iovec *pieces, int count, uint64_t offset)
{
    const struct iovec part = {pieces->iov_base, STEP_BYTES};
    size_t bytes = 0;
    int whole = 0;

    while (whole < count && bytes + pieces[whole].iov_len <= STEP_BYTES) {
        bytes += pieces[whole++].iov_len;
    }
    if (whole == 0) {
        pieces = &part;
        whole = 1;
    }
    return writes ? pwritev(fd, pieces, whole, (off_t)offset)
                  : preadv(fd, pieces, whole, (off_t)offset);
}

/* Move all of the pieces, however little each call does. Returns 0, or an errno; ENODATA: the file
 * is too short. */
static int
move_all(int fd, struct yb_object_request *request, struct iovec *pieces, int count,
         uint64_t *offset)
{
    bool writes = request->verb != YB_OBJECT_GET;

    while (count > 0) {
        ssize_t moved = step(fd, writes, pieces, count, *offset);

        if (moved < 0 && errno == EINTR) {
            continue;
        }
        if (moved <= 0) {
            return moved < 0 ? errno : writes ? EIO : ENODATA;
        }
        *offset += (uint64_t)moved;
        if (!writes && request->came != NULL) {
            request->came(request, *offset - request->offset);
        }
        while (count > 0 && (size_t)moved >= pieces->iov_len) {
            moved -= (ssize_t)pieces->iov_len;
            pieces++;
            count--;
        }
        if (count > 0) {
            pieces->iov_base = (uint8_t *)pieces->iov_base + moved;
            pieces->iov_len -= (size_t)moved;
        }
    }
    return 0;
}

static int
move_bytes(int fd, struct yb_object_request *request)
{
    struct iovec pieces[PIECES_MAX];
    uint64_t offset = request->verb == YB_OBJECT_GET ? request->offset : 0;
    uint32_t at = 0;
    uint64_t gap;
    int count;
    int error = 0;

    do {
        count = gather(&request->bytes, &at, pieces, &gap);
        offset += gap;
        error = move_all(fd, request, pieces, count, &offset);
    } while (error == 0 && (count > 0 || gap > 0));
    return error;
}

/* ---- the verbs ------------------------------------------------------------------------------- */

/* A name for what is being written. */
static void
name_part(struct file_backend *file, char part_out[PART_BYTES])
{
    char writer[33];

    yb_id_format(file->writer, writer);
    (void)snprintf(part_out, PART_BYTES, PARTS "/%s-%" PRIu64, writer,
                   atomic_fetch_add_explicit(&file->next_part, 1, memory_order_relaxed));
}

/* Write the bytes to a file of no name yet. Returns its descriptor, or -1 with errno. */
static int
write_part(const struct file_backend *file, struct yb_object_request *request, const char *part)
{
    int fd = openat(file->root, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error;

    if (fd < 0) {
        return -1;
    }
    error = move_bytes(fd, request);
    if (error == 0 && fsync(fd) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)close(fd);
        (void)unlinkat(file->root, part, 0);
        errno = error;
        return -1;
    }
    return fd;
}

static bool
rename_part(const struct file_backend *file, const char *part, const char *path)
{
    char folder[PATH_BYTES];
    bool done = false;

    folder_of(path, folder);
    for (int try = 0; try < PUT_TRIES && !done; try++) {
        done = renameat(file->root, part, file->root, path) == 0;
        if (!done && (errno != ENOENT || !make_folders(file, path))) {
            return false;
        }
    }
    return done && sync_folder(file, folder);
}

static enum yb_status
run_put(struct file_backend *file, struct yb_object_request *request)
{
    char part[PART_BYTES], path[PATH_BYTES];
    int fd;

    if (request->before != NULL) {
        request->before(request);
    }
    path_of(request->name, path);
    name_part(file, part);
    fd = write_part(file, request, part);
    if (fd < 0 && errno == ENOENT && make_folders(file, PARTS "/")) {
        fd = write_part(file, request, part);
    }
    if (fd < 0) {
        return fail(request, file, errno == ENOENT ? EIO : errno, "writing");
    }
    (void)close(fd);
    request->sent = true;
    if (!rename_part(file, part, path)) {
        int error = errno;

        (void)unlinkat(file->root, part, 0);
        return fail(request, file, error == ENOENT ? EIO : error, "naming what was written");
    }
    return YB_OK;
}

static enum yb_status
run_get(struct file_backend *file, struct yb_object_request *request)
{
    char path[PATH_BYTES];
    struct stat about;
    int error, fd;

    path_of(request->name, path);
    fd = openat(file->root, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(request, file, errno, "opening");
    }
    request->object_bytes = fstat(fd, &about) == 0 ? (uint64_t)about.st_size : 0;
    if (request->offset + yb_object_bytes_sum(&request->bytes) > request->object_bytes) {
        error = ENODATA; /* Also where what is missing is thrown away. */
    } else {
        error = move_bytes(fd, request);
    }
    (void)close(fd);
    if (error == ENODATA) {
        (void)snprintf(request->why, sizeof(request->why), "%.160s: an object is too short: %.60s",
                       file->path, request->name);
        return YB_CORRUPT;
    }
    return error == 0 ? YB_OK : fail(request, file, error, "reading");
}

static enum yb_status
run_head(struct file_backend *file, struct yb_object_request *request)
{
    char path[PATH_BYTES];
    struct stat about;

    path_of(request->name, path);
    if (fstatat(file->root, path, &about, 0) != 0) {
        return fail(request, file, errno, "looking");
    }
    request->object_bytes = (uint64_t)about.st_size;
    return YB_OK;
}

static enum yb_status
run_delete(struct file_backend *file, struct yb_object_request *request)
{
    char path[PATH_BYTES], folder[PATH_BYTES];

    path_of(request->name, path);
    folder_of(path, folder);
    if (unlinkat(file->root, path, 0) != 0) {
        return errno == ENOENT ? YB_OK : fail(request, file, errno, "removing");
    }
    if (!sync_folder(file, folder) && errno != ENOENT) {
        return fail(request, file, errno, "removing");
    }
    (void)unlinkat(file->root, folder, AT_REMOVEDIR); /* If it is empty. */
    return YB_OK;
}

/* Write something, and remove it. */
static enum yb_status
run_try(struct file_backend *file, struct yb_object_request *request)
{
    char part[PART_BYTES];
    int fd;

    name_part(file, part);
    if (!make_folders(file, PARTS "/")) {
        return fail(request, file, errno == ENOENT ? EIO : errno, "making a folder");
    }
    request->bytes = (struct yb_object_bytes){0};
    fd = write_part(file, request, part);
    if (fd < 0) {
        return fail(request, file, errno == ENOENT ? EIO : errno, "writing");
    }
    (void)close(fd);
    (void)unlinkat(file->root, part, 0);
    return YB_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Begin a walk over the folder in which the names begin. NULL: there is nothing. */
static FTS *
open_walk(const struct file_backend *file, const char *prefix)
{
    char folder[PATH_BYTES], path[PATH_MAX + PATH_BYTES];
    char *const roots[] = {path, NULL};
    struct stat about;

    folder_of(prefix, folder);
    (void)snprintf(path, sizeof(path), "%s/%s", file->path, folder);
    while (stat(path, &about) != 0 &&
           strlen(folder) > 1) { /* "a/b/c" of "a/b/c/": a file's half. */
        char above[PATH_BYTES];

        folder_of(folder, above);
        memcpy(folder, above, sizeof(folder));
        (void)snprintf(path, sizeof(path), "%s/%s", file->path, folder);
    }
    return fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
}

/* The name that a file's path has; false: it is none. */
static bool
name_of(const struct file_backend *file, const char *path, char name_out[YB_OBJECT_NAME_MAX])
{
    const char *inside = path + strlen(file->path);
    char *comma;

    while (*inside == '/' || (*inside == '.' && inside[1] == '/')) {
        inside++;
    }
    if (strlen(inside) >= YB_OBJECT_NAME_MAX || strncmp(inside, PARTS "/", sizeof(PARTS)) == 0) {
        return false;
    }
    memcpy(name_out, inside, strlen(inside) + 1);
    comma = strrchr(name_out, ',');
    if (comma == NULL) {
        return false;
    }
    *comma = '/';
    return true;
}

static enum yb_status
run_list(struct file_backend *file, struct yb_object_request *request)
{
    FTS *walk = request->cursor == NULL ? open_walk(file, request->name) : request->cursor;
    FTSENT *entry = NULL;
    int error = 0;

    request->entry_count = 0;
    if (walk == NULL) {
        return fail(request, file, errno, "listing");
    }
    errno = 0;
    while (request->entry_count < request->entries_max && (entry = fts_read(walk)) != NULL) {
        struct yb_object_entry *to = &request->entries[request->entry_count];

        if (entry->fts_info == FTS_DNR && entry->fts_errno != ENOENT) {
            error = entry->fts_errno;
            break;
        }
        if (entry->fts_info == FTS_F && name_of(file, entry->fts_path, to->name) &&
            strncmp(to->name, request->name, strlen(request->name)) == 0) {
            to->size = (uint64_t)entry->fts_statp->st_size;
            request->entry_count++;
        }
    }
    error =
        error == 0 && entry == NULL && request->entry_count < request->entries_max ? errno : error;
    request->more = error == 0 && request->entry_count == request->entries_max;
    request->cursor = walk;
    if (!request->more) {
        (void)fts_close(walk);
        request->cursor = NULL;
    }
    return error == 0 ? YB_OK : fail(request, file, error, "listing");
}

static void
end_list(struct yb_object_backend *backend, struct yb_object_request *request)
{
    (void)file_of(backend);
    if (request->cursor != NULL) {
        (void)fts_close(request->cursor);
        request->cursor = NULL;
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct yb_object_request *
request_of(struct yb_helper_job *job)
{
    return (struct yb_object_request *)((uint8_t *)job - offsetof(struct yb_object_request, job));
}

static void
work(struct yb_helper_job *job)
{
    static enum yb_status (*const verbs[YB_OBJECT_VERBS])(struct file_backend *,
                                                          struct yb_object_request *) = {
        [YB_OBJECT_PUT] = run_put,       [YB_OBJECT_GET] = run_get,   [YB_OBJECT_HEAD] = run_head,
        [YB_OBJECT_DELETE] = run_delete, [YB_OBJECT_LIST] = run_list, [YB_OBJECT_TRY] = run_try,
    };
    struct yb_object_request *request = request_of(job);
    struct file_backend *file = request->backend;
    uint64_t now = yb_clock_now(file->clock);

    if (__atomic_load_n(&request->state, __ATOMIC_RELAXED) == CANCELLED_FLAG) {
        request->status = YB_CANCELLED;
        return;
    }
    if (now >= request->deadline_ns) {
        request->status = YB_TIMED_OUT;
        return;
    }
    request->status = verbs[request->verb](file, request);
    request->first_byte_ns = yb_clock_now(file->clock) - now;
    if (request->status == YB_OK && request->after != NULL) {
        request->judged = true;
        request->status = request->after(request);
    }
    request->total_ns = yb_clock_now(file->clock) - now;
}

static void
done(struct yb_helper_job *job)
{
    struct yb_object_request *request = request_of(job);

    request->done(request, request->status);
}

static enum yb_status
submit(struct yb_object_backend *backend, struct yb_object_request *request)
{
    struct file_backend *file = file_of(backend);

    request->backend = file;
    request->state = 0;
    request->entry_count = 0;
    request->more = request->sent = request->aside = request->judged = false;
    request->first_byte_ns = request->total_ns = 0;
    request->wait_hint_ms = 0;
    request->why[0] = '\0';
    request->job = (struct yb_helper_job){.work = work, .done = done};
    return yb_helper_submit(file->pool, file->loop, &request->job);
}

static void
cancel(struct yb_object_backend *backend, struct yb_object_request *request)
{
    (void)file_of(backend);
    __atomic_store_n(&request->state, CANCELLED_FLAG, __ATOMIC_RELAXED);
}

static void
destroy(struct yb_object_backend *backend)
{
    struct file_backend *file = file_of(backend);

    (void)close(file->root);
    file->magic = 0;
    free(file);
}

static const struct yb_object_backend_ops file_ops = {
    .name = "file",
    .submit = submit,
    .cancel = cancel,
    .end_list = end_list,
    .destroy = destroy,
};

/* Remove what was being written when a process ended, long ago. */
static void
sweep_parts(const struct file_backend *file)
{
    int fd = openat(file->root, PARTS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    uint64_t now_s = yb_clock_wall(file->clock) / YB_NS_PER_S;
    const struct dirent *entry;
    struct stat about;

    if (folder == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (fstatat(fd, entry->d_name, &about, 0) == 0 && S_ISREG(about.st_mode) &&
            (uint64_t)about.st_mtime + PART_OLD_S < now_s) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    (void)closedir(folder);
}

enum yb_status
yb_object_file_create(const char *directory, struct yb_loop *loop, struct yb_helper_pool *pool,
                      struct yb_object_backend **backend_out, char why_out[YB_OBJECT_WHY_BYTES])
{
    struct file_backend *file = calloc(1, sizeof(*file));
    enum yb_status status = YB_NO_MEMORY;

    why_out[0] = '\0';
    if (file == NULL) {
        return YB_NO_MEMORY;
    }
    file->root = -1;
    if ((mkdir(directory, 0777) != 0 && errno != EEXIST) ||
        realpath(directory, file->path) == NULL) {
        goto err_free;
    }
    file->root = open(file->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file->root < 0) {
        goto err_free;
    }
    (void)sync_folder(file, ".."); /* Not every file system lets us, or needs it. */
    file->head.ops = &file_ops;
    file->magic = FILE_MAGIC;
    file->loop = loop;
    file->pool = pool;
    file->clock = yb_loop_clock(loop);
    yb_net_random_system(NULL, &file->writer, sizeof(file->writer));
    sweep_parts(file);
    *backend_out = &file->head;
    return YB_OK;

err_free:
    status = errno == EACCES || errno == EPERM || errno == EROFS ? YB_DENIED
             : errno == ENOTDIR || errno == ENAMETOOLONG         ? YB_INVALID
                                                                 : YB_IO;
    (void)snprintf(why_out, YB_OBJECT_WHY_BYTES,
                   "%.160s cannot be used as a folder for objects: %s; name another, or make it",
                   directory, strerror(errno));
    free(file);
    return status;
}
