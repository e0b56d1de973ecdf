/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing put`: a block into the store, from a file or a pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/store.h"

#define READ_FIRST (64u * 1024u)

const struct yb_cli_option yb_cli_put_options[] = {
    {"replicas", "N", "copies on different nodes, 1 .. 8; default 1"},
    {"replace", NULL, "write a new version if the key is there already"},
    {"ttl-ms", "N", "it is gone after so long; default: never for that reason"},
    {"pin", NULL, "never evict it: it stays until it is removed"},
    {"soft-pin", NULL, "evict it only after everything that is not pinned"},
    {"soft-pin-ms", "N", "--soft-pin, until nobody has read it for so long"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

struct value {
    uint8_t *bytes; /* Owned. */
    size_t length;
};

/* Read all there is, however long that may be. Returns 0 or an errno. */
static int
read_all(int fd, struct value *value)
{
    size_t room = 0;

    for (;;) {
        ssize_t got;

        if (value->length == room) {
            size_t more = room == 0 ? READ_FIRST : 2 * room;
            uint8_t *bytes = realloc(value->bytes, more);

            if (bytes == NULL) {
                return ENOMEM;
            }
            value->bytes = bytes;
            room = more;
        }
        got = read(fd, value->bytes + value->length, room - value->length);
        if (got == 0) {
            return 0;
        }
        if (got < 0 && errno != EINTR) {
            return errno;
        }
        value->length += got > 0 ? (size_t)got : 0;
    }
}

/* Read the value. False: why not was printed. */
static bool
read_value(struct yb_cli *cli, const char *path, struct value *value)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : read_all(fd, value);

    if (!standard && fd >= 0) {
        (void)close(fd);
    }
    if (error != 0) {
        fprintf(cli->err, "yuebing put: %s: %s\n", standard ? "standard input" : path,
                strerror(error));
    }
    return error == 0;
}

static bool
read_options(struct yb_cli *cli, struct yb_client_call *call)
{
    uint64_t replicas = 1;
    uint64_t ttl_ms = 0;
    uint64_t soft_pin_ms = 0;

    if (!yb_cli_store_timeout(cli, &call->timeout_ns) ||
        !yb_cli_option_number(cli, "replicas", 1, YB_CLIENT_REPLICAS_MAX, &replicas) ||
        !yb_cli_option_number(cli, "ttl-ms", 1, UINT64_MAX / 1000000u, &ttl_ms) ||
        !yb_cli_option_number(cli, "soft-pin-ms", 1, UINT64_MAX / 1000000u, &soft_pin_ms)) {
        return false;
    }
    call->put.replicas = (uint32_t)replicas;
    call->put.ttl_ms = ttl_ms;
    call->put.replace = yb_cli_option(cli, "replace") != NULL;
    call->put.hard_pin = yb_cli_option(cli, "pin") != NULL;
    call->put.soft_pin = yb_cli_option(cli, "soft-pin") != NULL || soft_pin_ms > 0;
    call->put.soft_pin_ms = soft_pin_ms;
    return true;
}

/* Nobody to put it at is another trouble than somebody who does not answer. */
static void
print_why(const struct yb_cli *cli, struct yb_client *client, enum yb_status status)
{
    struct yb_client_node node;
    uint32_t nodes = 0;

    if (status == YB_UNREACHABLE && yb_client_nodes(client, &node, 1, &nodes) == YB_OK) {
        fprintf(cli->err, "%s --directory %s` %s\n",
                nodes == 0 ? "no node is there yet; `yuebing node"
                           : "no node could be reached; `yuebing nodes",
                cli->config.directory_address, nodes == 0 ? "starts one" : "shows them");
        return;
    }
    fprintf(cli->err, "%s\n", yb_cli_outcome_text(status));
}

static int
report(struct yb_cli *cli, struct yb_client *client, const char *key,
       const struct yb_client_item *item, uint32_t wanted)
{
    json_t *told = NULL;

    if (item->status != YB_OK) {
        fprintf(cli->err, "yuebing put: %s: %s: ", key, yb_status_name(item->status));
        print_why(cli, client, item->status);
    } else if (item->replicas < wanted) {
        fprintf(cli->err,
                "yuebing put: %s: %" PRIu32 " of %" PRIu32 " copies so far: the directory makes "
                "the others as soon as there are nodes for them\n",
                key, item->replicas, wanted);
    }
    if (cli->json) {
        told = json_pack("{s:s, s:I, s:I, s:I}", "status", yb_status_name(item->status), "bytes",
                         (json_int_t)item->iov->iov_len, "grant", (json_int_t)item->grant,
                         "replicas", (json_int_t)item->replicas);
        yb_cli_json_key(told, key, strlen(key));
        if (yb_output_json(cli->out, told) != YB_OK) {
            return YB_CLI_EXIT_FAILED;
        }
    }
    return item->status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_cli_put(struct yb_cli *cli, int argc, char **argv)
{
    struct yb_client_call call = {.struct_bytes = sizeof(call)};
    struct yb_client *client = NULL;
    struct value value = {NULL, 0};
    struct yb_client_item item = {.iov_count = 1};
    struct iovec piece;
    enum yb_status status;
    int code = YB_CLI_EXIT_FAILED;

    if (argc < 1) {
        fprintf(cli->err, "yuebing put: say which key: yuebing put KEY [FILE|-]\n");
        return YB_CLI_EXIT_REFUSED;
    }
    if (!read_options(cli, &call) || !yb_cli_key_fits(cli, argv[0])) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (!read_value(cli, argc > 1 ? argv[1] : "-", &value)) {
        free(value.bytes);
        return YB_CLI_EXIT_FAILED;
    }
    if (yb_cli_open_client(cli, call.timeout_ns, &client, &code) == YB_OK) {
        piece = (struct iovec){.iov_base = value.bytes, .iov_len = value.length};
        item.iov = &piece;
        item.key = argv[0];
        item.key_bytes = (uint32_t)strlen(argv[0]);
        status = yb_client_put(client, &item, 1, &call);
        item.status = status != YB_OK ? status : item.status;
        code = report(cli, client, argv[0], &item, call.put.replicas);
        yb_client_close(&client);
    }
    free(value.bytes);
    return code;
}
