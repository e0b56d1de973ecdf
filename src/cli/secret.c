/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing secret`: make the file that a cluster shares, and hand out single keys of it.
 *
 * A secret is printed only if `--out -` asks for it; everywhere else it goes from the
 * random generator into a file that its owner alone can read.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "net/auth.h"
#include "net/net.h"

const struct yb_cli_option yb_cli_secret_options[] = {
    {"out", "FILE", "file to write, mode 0600; it must not exist; - prints to the terminal"},
    {"role", "ROLE", "derive: client, node, directory or admin"},
    {NULL, NULL, NULL},
};

#define RANDOM_BYTES 32u
#define TEXT_BYTES   768u /* Room for what is written: comment, secret or key line, NUL. */

static int
fail(const struct yb_cli *cli, const char *path, const char *what, int error)
{
    fprintf(cli->err, "yuebing secret: %s: %s: %s\n", path, what, strerror(error));
    return YB_CLI_EXIT_FAILED;
}

static int
write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t wrote = write(fd, text, length);

        if (wrote < 0 && errno != EINTR) {
            return errno;
        }
        if (wrote > 0) {
            text += wrote;
            length -= (size_t)wrote;
        }
    }
    return 0;
}

/* Put `text` where --out says. A file that exists stays as it is; one that could not be written
 * whole is taken back. */
static int
put(const struct yb_cli *cli, const char *path, const char *text)
{
    size_t length = strlen(text);
    int error;
    int fd;

    if (strcmp(path, "-") == 0) {
        return fwrite(text, 1, length, cli->out) == length ? 0 : YB_CLI_EXIT_FAILED;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (fd < 0 && errno == EEXIST) {
        return fail(cli, path, "not overwritten; remove it first, or name another file", errno);
    }
    if (fd < 0) {
        return fail(cli, path, "cannot be made", errno);
    }
    error = fchmod(fd, S_IRUSR | S_IWUSR) == 0 ? write_all(fd, text, length) : errno;
    if (error == 0 && fsync(fd) != 0 && errno != EINVAL) {
        error = errno;
    }
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(path);
        return fail(cli, path, "cannot be written", error);
    }
    return 0;
}

static int
tell(const struct yb_cli *cli, const char *path, json_t *document, const char *sentence)
{
    if (cli->json) {
        return yb_output_json(cli->out, document) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
    }
    json_decref(document);
    if (strcmp(path, "-") != 0) {
        fprintf(cli->out, "%s\n", sentence);
    }
    return 0;
}

static int
make_new(const struct yb_cli *cli, const char *path)
{
    uint8_t bytes[RANDOM_BYTES];
    char digits[2 * RANDOM_BYTES + 1];
    char text[TEXT_BYTES];
    char sentence[YB_CONFIG_MESSAGE_MAX];
    int code;

    yb_net_random_system(NULL, bytes, sizeof(bytes));
    sodium_bin2hex(digits, sizeof(digits), bytes, sizeof(bytes));
    snprintf(text, sizeof(text),
             "# A secret of Yuebing. Whoever can read it can be anybody in the cluster.\n"
             "secret %s\n",
             digits);
    code = put(cli, path, text);
    sodium_memzero(bytes, sizeof(bytes));
    sodium_memzero(digits, sizeof(digits));
    sodium_memzero(text, sizeof(text));
    if (code != 0) {
        return code;
    }
    snprintf(sentence, sizeof(sentence), "wrote %s, readable by its owner only", path);
    return tell(cli, path, json_pack("{s:s, s:i}", "file", path, "secrets", 1), sentence);
}

/* Find the role that --role names. */
static bool
read_role(const struct yb_cli *cli, uint8_t *role_out)
{
    const char *word = yb_cli_option(cli, "role");

    for (uint8_t role = YB_WIRE_ROLE_CLIENT; word != NULL && role <= YB_WIRE_ROLE_ADMIN; role++) {
        if (strcmp(yb_wire_role_name(role), word) == 0) {
            *role_out = role;
            return true;
        }
    }
    fprintf(cli->err,
            "yuebing secret derive: --role cannot be \"%s\"; allowed: client, node, directory or "
            "admin\n",
            word == NULL ? "" : word);
    return false;
}

/* Write the key line of one role and tenant. */
static int
write_key(const struct yb_cli *cli, const struct yb_auth *auth, uint8_t role, const char *path)
{
    const char *word = yb_cli_option(cli, "role");
    const char *tenant = role == YB_WIRE_ROLE_CLIENT ? cli->config.auth_tenant : "";
    char line[YB_AUTH_LINE_MAX];
    char text[TEXT_BYTES];
    char sentence[YB_CONFIG_MESSAGE_MAX];
    enum yb_status status = yb_auth_derive_line(auth, role, tenant, line, sizeof(line));
    int code;

    if (status != YB_OK) {
        fprintf(cli->err, "yuebing secret derive: no key for role %s, tenant \"%s\" in %s: %s\n",
                word, tenant, cli->config.auth_secret_file, yb_status_text(status));
        return status == YB_INVALID ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
    }
    snprintf(text, sizeof(text),
             "# A key of Yuebing: its holder can be %s%s%s and nobody else.\n%s\n", word,
             tenant[0] == '\0' ? "" : " of tenant ", tenant, line);
    code = put(cli, path, text);
    sodium_memzero(line, sizeof(line));
    sodium_memzero(text, sizeof(text));
    if (code != 0) {
        return code;
    }
    snprintf(sentence, sizeof(sentence), "wrote %s, the key of role %s%s%s", path, word,
             tenant[0] == '\0' ? "" : ", tenant ", tenant);
    return tell(cli, path,
                json_pack("{s:s, s:s, s:s}", "file", path, "role", word, "tenant", tenant),
                sentence);
}

static int
derive(const struct yb_cli *cli, const char *path)
{
    const struct yb_config *config = &cli->config;
    char message[YB_CONFIG_MESSAGE_MAX];
    struct yb_auth *auth = NULL;
    uint8_t role = 0;
    int code;

    if (!read_role(cli, &role)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (role != YB_WIRE_ROLE_CLIENT &&
        config->origins[YB_CONFIG_ROW_auth_tenant].source == YB_CONFIG_SOURCE_OPTION) {
        fprintf(cli->err,
                "yuebing secret derive: only a client has a tenant; leave --tenant out\n");
        return YB_CLI_EXIT_REFUSED;
    }
    if (config->auth_secret_file[0] == '\0') {
        fprintf(cli->err, "yuebing secret derive: say from which secret: --secret-file FILE\n");
        return YB_CLI_EXIT_REFUSED;
    }
    if (yb_auth_load(config->auth_secret_file, &auth, message, sizeof(message)) != YB_OK) {
        fprintf(cli->err, "yuebing secret derive: %s\n", message);
        return YB_CLI_EXIT_FAILED;
    }
    code = write_key(cli, auth, role, path);
    yb_auth_destroy(&auth);
    return code;
}

int
yb_cli_secret(struct yb_cli *cli, int argc, char **argv)
{
    const char *path = yb_cli_option(cli, "out");
    bool is_new = argc == 1 && strcmp(argv[0], "new") == 0;
    bool is_derive = argc == 1 && strcmp(argv[0], "derive") == 0;

    if (!is_new && !is_derive) {
        fprintf(cli->err,
                "yuebing secret: say what: yuebing secret new or yuebing secret derive\n");
        return YB_CLI_EXIT_REFUSED;
    }
    if (path == NULL || path[0] == '\0') {
        fprintf(cli->err, "yuebing secret %s: say where to: --out FILE\n", argv[0]);
        return YB_CLI_EXIT_REFUSED;
    }
    if (cli->json && strcmp(path, "-") == 0) {
        fprintf(cli->err, "yuebing secret %s: --json and --out - both want the output\n", argv[0]);
        return YB_CLI_EXIT_REFUSED;
    }
    if (is_new && yb_cli_option(cli, "role") != NULL) {
        fprintf(cli->err, "yuebing secret new: --role belongs to yuebing secret derive\n");
        return YB_CLI_EXIT_REFUSED;
    }
    return is_new ? make_new(cli, path) : derive(cli, path);
}
