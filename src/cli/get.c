/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing get`: a block out of the store, into a file or a pipe, byte for byte.
 *
 * A long value is read in pieces. Each piece tells the version that it came from; if that changes
 * meanwhile the command fails, so what it wrote with exit code 0 is one version.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/output.h"
#include "cli/store.h"

#define PIECE_BYTES (32u * 1024u * 1024u)

const struct yb_cli_option yb_cli_get_options[] = {
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

struct reading {
    struct yb_cli *cli;
    struct yb_client *client;
    struct yb_client_call call;
    const char *key;
    const char *path; /* "-": standard output. */
    uint8_t *piece;
    FILE *out; /* NULL before the first piece has come. */
    uint64_t done;
    uint64_t size;
    uint64_t grant;
};

static enum yb_status
read_piece(struct reading *reading, uint64_t *bytes_out)
{
    struct iovec room = {.iov_base = reading->piece, .iov_len = PIECE_BYTES};
    struct yb_client_item item = {
        .key = reading->key,
        .key_bytes = (uint32_t)strlen(reading->key),
        .iov = &room,
        .iov_count = 1,
        .offset = reading->done,
        .ranged = true,
    };
    enum yb_status status = yb_client_get(reading->client, &item, 1, &reading->call);

    status = status == YB_OK ? item.status : status;
    if (status != YB_OK) {
        return status;
    }
    if (reading->done > 0 && item.grant != reading->grant) {
        return YB_STALE;
    }
    reading->grant = item.grant;
    reading->size = item.size;
    *bytes_out = item.bytes;
    return YB_OK;
}

/* Open what is written to, now that there is something to write. */
static bool
open_out(struct reading *reading)
{
    if (strcmp(reading->path, "-") == 0) {
        reading->out = reading->cli->out;
    } else {
        reading->out = fopen(reading->path, "we");
    }
    if (reading->out == NULL) {
        fprintf(reading->cli->err, "yuebing get: %s: %s\n", reading->path, strerror(errno));
    }
    return reading->out != NULL;
}

static bool
write_piece(struct reading *reading, uint64_t bytes)
{
    if (reading->out == NULL && !open_out(reading)) {
        return false;
    }
    if (fwrite(reading->piece, 1, bytes, reading->out) != bytes) {
        fprintf(reading->cli->err, "yuebing get: %s: %s\n", reading->path, strerror(errno));
        return false;
    }
    reading->done += bytes;
    return true;
}

static bool
read_all(struct reading *reading)
{
    do {
        uint64_t bytes = 0;
        enum yb_status status = read_piece(reading, &bytes);

        if (status == YB_OK && bytes == 0 && reading->done < reading->size) {
            status = YB_PROTOCOL;
        }
        if (status != YB_OK) {
            fprintf(reading->cli->err, "yuebing get: %s: %s: %s\n", reading->key,
                    yb_status_name(status),
                    status == YB_STALE ? "it was replaced while it was read; read it again"
                                       : yb_cli_outcome_text(status));
            return false;
        }
        if (!write_piece(reading, bytes)) {
            return false;
        }
    } while (reading->done < reading->size);
    return true;
}

/* Close the file; half a value is worse than none. */
static bool
close_out(struct reading *reading, bool ok)
{
    if (reading->out == NULL || reading->out == reading->cli->out) {
        return ok;
    }
    if (fclose(reading->out) != 0) {
        fprintf(reading->cli->err, "yuebing get: %s: %s\n", reading->path, strerror(errno));
        ok = false;
    }
    if (!ok) {
        (void)unlink(reading->path);
    }
    return ok;
}

static bool
report(const struct reading *reading)
{
    json_t *told =
        json_pack("{s:s, s:I, s:I, s:s}", "status", "OK", "bytes", (json_int_t)reading->done,
                  "grant", (json_int_t)reading->grant, "file", reading->path);

    yb_cli_json_key(told, reading->key, strlen(reading->key));
    return yb_output_json(reading->cli->out, told) == YB_OK;
}

int
yb_cli_get(struct yb_cli *cli, int argc, char **argv)
{
    struct reading reading = {.cli = cli, .call = {.struct_bytes = sizeof(reading.call)}};
    int code = YB_CLI_EXIT_REFUSED;
    bool ok;

    if (argc < 1) {
        fprintf(cli->err, "yuebing get: say which key: yuebing get KEY [FILE|-]\n");
        return YB_CLI_EXIT_REFUSED;
    }
    reading.key = argv[0];
    reading.path = argc > 1 ? argv[1] : "-";
    if (!yb_cli_store_timeout(cli, &reading.call.timeout_ns) || !yb_cli_key_fits(cli, argv[0])) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (cli->json && strcmp(reading.path, "-") == 0) {
        fprintf(cli->err,
                "yuebing get: --json and the bytes would share the output; name a FILE\n");
        return YB_CLI_EXIT_REFUSED;
    }
    reading.piece = malloc(PIECE_BYTES);
    if (reading.piece == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    if (yb_cli_open_client(cli, reading.call.timeout_ns, &reading.client, &code) == YB_OK) {
        ok = close_out(&reading, read_all(&reading));
        ok = ok && (!cli->json || report(&reading));
        yb_client_close(&reading.client);
        code = ok ? 0 : YB_CLI_EXIT_FAILED;
    }
    free(reading.piece);
    return code;
}
