/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate --replay-decisions LOG`: what a conductor decided, decided again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/simulate.h"
#include "conductor/conductor.h"

static int
print_replayed(struct yb_cli *cli, const struct yb_conductor_replayed *replayed, uint64_t bytes)
{
    if (cli->json) {
        json_t *object = json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:I}", "records", (json_int_t)replayed->records, "decisions",
            (json_int_t)replayed->decisions, "differing", (json_int_t)replayed->differing,
            "first_differing", (json_int_t)replayed->first_differing, "bytes", (json_int_t)bytes,
            "used_bytes", (json_int_t)replayed->used_bytes);

        if (yb_output_json(cli->out, object) != YB_OK) {
            return YB_CLI_EXIT_FAILED;
        }
    } else {
        fprintf(cli->out,
                "%" PRIu64 " decisions of %" PRIu64 " records decided again: %" PRIu64
                " differing\n",
                replayed->decisions, replayed->records, replayed->differing);
    }
    if (replayed->differing > 0) {
        fprintf(cli->err, "yuebing simulate: the first that differs is record %" PRIu64 "\n",
                replayed->first_differing);
    }
    if (replayed->used_bytes < bytes) {
        fprintf(cli->err, "yuebing simulate: the last %" PRIu64 " bytes are no whole record\n",
                bytes - replayed->used_bytes);
    }
    return replayed->differing > 0 ? YB_CLI_EXIT_FAILED : 0;
}

int
yb_simulate_replay(struct yb_cli *cli)
{
    const char *path = yb_cli_option(cli, "replay-decisions");
    struct yb_conductor_replayed replayed;
    struct stat about = {.st_size = 0};
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    void *bytes = MAP_FAILED;
    enum yb_status status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_size > 0) {
        bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (bytes == MAP_FAILED) {
        fprintf(cli->err, "yuebing simulate: %s: %s\n", path,
                fd >= 0 && about.st_size == 0 ? "it is empty" : strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return YB_CLI_EXIT_REFUSED;
    }
    (void)close(fd);
    status = yb_conductor_replay(bytes, (size_t)about.st_size, &replayed, why);
    (void)munmap(bytes, (size_t)about.st_size);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing simulate: %s: %s\n", path, why);
        return YB_CLI_EXIT_REFUSED;
    }
    return print_replayed(cli, &replayed, (uint64_t)about.st_size);
}
