/* SPDX-License-Identifier: Apache-2.0
 *
 * The medium that is a file of a directory: opened past the page cache, locked, and driven by
 * io_uring or by threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "tier/ssd/device.h"

static enum yb_status
refuse(enum yb_status status, char why[YB_SSD_WHY_BYTES], const char *directory, const char *remedy)
{
    (void)snprintf(why, YB_SSD_WHY_BYTES, "%.240s: %m; %s", directory, remedy);
    return status;
}

/* Open the file, with O_DIRECT where the file system has it (tmpfs may not). */
static int
open_log(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);

    if (fd < 0 && errno == EINVAL) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    return fd;
}

static enum yb_status
drive(struct yb_loop *loop, int fd, const char *io, struct yb_ssd_device **device_out)
{
    enum yb_status status = YB_UNSUPPORTED;

    if (strcmp(io, "threads") != 0) {
        status = yb_ssd_device_uring(loop, fd, device_out);
    }
    if (status != YB_OK && strcmp(io, "io_uring") != 0) {
        status = yb_ssd_device_threads(loop, fd, device_out);
    }
    return status;
}

/* The file's name must be there after a loss of power, too. */
static bool
sync_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

enum yb_status
yb_ssd_device_open(struct yb_loop *loop, const char *directory, const char *io,
                   struct yb_ssd_device **device_out, char why[YB_SSD_WHY_BYTES])
{
    char path[4096];
    enum yb_status status;
    int fd;

    YB_ASSERT(loop != NULL && directory != NULL && io != NULL);
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        return refuse(YB_IO, why, directory,
                      "the SSD tier needs a directory that it may write; name another with "
                      "--data-dir, or change its owner");
    }
    if ((size_t)snprintf(path, sizeof path, "%s/log", directory) >= sizeof path) {
        errno = ENAMETOOLONG;
        return refuse(YB_IO, why, directory, "name a shorter path");
    }
    fd = open_log(path);
    if (fd < 0) {
        return refuse(YB_IO, why, path,
                      "the SSD tier must be able to read and write it; mount the file system "
                      "writable, or change the file's owner");
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        status = refuse(YB_BUSY, why, path,
                        "another process uses this directory; stop it, or give this node a "
                        "directory of its own");
        goto err_close;
    }
    if (!sync_directory(directory)) {
        status = refuse(YB_IO, why, directory, "look at the disk and the kernel's log");
        goto err_close;
    }
    status = drive(loop, fd, io, device_out);
    if (status != YB_OK) {
        (void)snprintf(why, YB_SSD_WHY_BYTES,
                       "%.200s: %s; the kernel or a filter forbids io_uring, or there are no "
                       "descriptors or threads left: set the disk's io to \"threads\"",
                       path, yb_status_text(status));
        goto err_close;
    }
    return YB_OK;

err_close:
    (void)close(fd);
    return status;
}
