/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing doctor`: run the probes and print their rows.
 */
#include "cli/doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/cli.h"
#include "cli/doctor_internal.h"
#include "cli/output.h"

const struct yb_cli_option yb_cli_doctor_options[] = {
    {"peer", "ADDRESS", "ask the engine there, too: which ways lead to it, and why others do not"},
    {"python", NULL, "ask python3, too: which packages mooncake and yuebing it loads"},
    {"root", "FOLDER", "read proc, sys and dev below this folder instead of /"},
    {NULL, NULL, NULL},
};

static const struct {
    const char *what;
    void (*run)(const struct yb_doctor *doctor, struct yb_doctor_row *row);
} probes[] = {
#define X(name, what_) {what_, yb_doctor_probe_##name},
    YB_DOCTOR_PROBE_MAP(X)
#undef X
};

unsigned
yb_doctor_count(void)
{
    return (unsigned)(sizeof(probes) / sizeof(probes[0]));
}

void
yb_doctor_probe(const struct yb_doctor *doctor, unsigned index, struct yb_doctor_row *row_out)
{
    YB_ASSERT(index < yb_doctor_count());
    memset(row_out, 0, sizeof(*row_out));
    row_out->what = probes[index].what;
    probes[index].run(doctor, row_out);
    YB_ASSERT(row_out->found[0] != '\0');
    YB_ASSERT(row_out->use[0] != '\0');
}

const char *
yb_doctor_state_name(enum yb_doctor_state state)
{
    switch (state) {
    case YB_DOCTOR_OK: return "ok";
    case YB_DOCTOR_DEGRADED: return "degraded";
    case YB_DOCTOR_MISSING: return "missing";
    case YB_DOCTOR_UNUSED: return "unused";
    }
    return "unknown";
}

void
yb_doctor_found(struct yb_doctor_row *row, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(row->found, sizeof(row->found), format, arguments);
    va_end(arguments);
}

void
yb_doctor_use(struct yb_doctor_row *row, enum yb_doctor_state state, const char *format, ...)
{
    va_list arguments;

    row->state = state;
    va_start(arguments, format);
    vsnprintf(row->use, sizeof(row->use), format, arguments);
    va_end(arguments);
}

void
yb_doctor_advice(struct yb_doctor_row *row, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(row->advice, sizeof(row->advice), format, arguments);
    va_end(arguments);
}

bool
yb_doctor_read(const struct yb_doctor *doctor, const char *path, char *text_out, size_t size)
{
    char whole[512];
    size_t length;
    FILE *file;

    text_out[0] = '\0';
    if (snprintf(whole, sizeof(whole), "%s%s", doctor->root, path) >= (int)sizeof(whole)) {
        return false;
    }
    file = fopen(whole, "re");
    if (file == NULL) {
        return false;
    }
    length = fread(text_out, 1, size - 1, file);
    fclose(file);
    while (length > 0 && (text_out[length - 1] == '\n' || text_out[length - 1] == ' ')) {
        length--;
    }
    text_out[length] = '\0';
    return length > 0;
}

bool
yb_doctor_read_number(const struct yb_doctor *doctor, const char *path, uint64_t *number_out)
{
    char text[64];
    char *end;
    unsigned long long number;

    if (!yb_doctor_read(doctor, path, text, sizeof(text))) {
        return false;
    }
    if (strcmp(text, "max") == 0) {
        *number_out = UINT64_MAX;
        return true;
    }
    number = strtoull(text, &end, 10);
    if (end == text || !isdigit((unsigned char)text[0])) {
        return false;
    }
    *number_out = number;
    return true;
}

unsigned
yb_doctor_list(const struct yb_doctor *doctor, const char *path, const char *prefix,
               char names_out[YB_DOCTOR_TEXT_MAX])
{
    char whole[512];
    unsigned count = 0;
    size_t length = 0;
    struct dirent *entry;
    DIR *folder;

    if (names_out != NULL) {
        names_out[0] = '\0';
    }
    if (snprintf(whole, sizeof(whole), "%s%s", doctor->root, path) >= (int)sizeof(whole)) {
        return 0;
    }
    folder = opendir(whole);
    if (folder == NULL) {
        return 0;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        count++;
        if (names_out != NULL && length + strlen(entry->d_name) + 2 < YB_DOCTOR_TEXT_MAX) {
            length += (size_t)snprintf(names_out + length, YB_DOCTOR_TEXT_MAX - length, "%s%s",
                                       length == 0 ? "" : " ", entry->d_name);
        }
    }
    closedir(folder);
    return count;
}

bool
yb_doctor_has_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        bool begins = at == text || isspace((unsigned char)at[-1]);
        bool ends = at[length] == '\0' || isspace((unsigned char)at[length]);

        if (begins && ends) {
            return true;
        }
    }
    return false;
}

const char *
yb_doctor_bytes(uint64_t bytes, char text_out[YB_DOCTOR_BYTES_MAX])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double shown = (double)bytes;
    unsigned unit = 0;

    if (bytes == UINT64_MAX) {
        snprintf(text_out, YB_DOCTOR_BYTES_MAX, "unlimited");
        return text_out;
    }
    while (shown >= 1024 && unit < 5) {
        shown /= 1024;
        unit++;
    }
    snprintf(text_out, YB_DOCTOR_BYTES_MAX, unit == 0 ? "%.0f %s" : "%.1f %s", shown, units[unit]);
    return text_out;
}

static enum yb_status
print_json(const struct yb_cli *cli, const struct yb_doctor_row *rows, unsigned count)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < count; i++) {
        const struct yb_doctor_row *row = &rows[i];
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s}", "what", row->what, "state",
                                   yb_doctor_state_name(row->state), "found", row->found, "use",
                                   row->use, "advice", row->advice);

        if (json_array_append_new(list, object) != 0) {
            json_decref(list);
            return YB_NO_MEMORY;
        }
    }
    return yb_output_json(cli->out, list);
}

static enum yb_status
print_table(const struct yb_cli *cli, const struct yb_doctor_row *rows, unsigned count)
{
    static const char *const columns[] = {"WHAT", "STATE", "FOUND", "USE"};
    struct yb_output_table *table = NULL;
    enum yb_status status = yb_output_table_create(columns, 4, &table);
    bool advised = false;

    for (unsigned i = 0; i < count && status == YB_OK; i++) {
        const struct yb_doctor_row *row = &rows[i];
        const char *cells[] = {row->what, yb_doctor_state_name(row->state), row->found, row->use};

        advised = advised || row->advice[0] != '\0';
        status = yb_output_table_add(table, cells);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, cli->out, cli->terminal);
        fputs(advised ? "\nWhat could be better:\n" : "\nNothing is missing.\n", cli->out);
        for (unsigned i = 0; i < count; i++) {
            if (rows[i].advice[0] != '\0') {
                fprintf(cli->out, "  %s: %s\n", rows[i].what, rows[i].advice);
            }
        }
    }
    yb_output_table_destroy(&table);
    return status;
}

int
yb_cli_doctor(struct yb_cli *cli, int argc, char **argv)
{
    const char *root = yb_cli_option(cli, "root");
    const char *peer = yb_cli_option(cli, "peer");
    struct yb_doctor doctor = {
        .root = root != NULL ? root : "",
        .tries = yb_doctor_tries_real(),
        .config = &cli->config,
    };
    struct yb_doctor_row rows[sizeof(probes) / sizeof(probes[0]) + YB_DOCTOR_PEER_ROWS + 1];
    unsigned count = yb_doctor_count();
    bool reached = true;
    enum yb_status status;

    (void)argc;
    (void)argv;
    for (unsigned i = 0; i < count; i++) {
        yb_doctor_probe(&doctor, i, &rows[i]);
    }
    if (peer != NULL) {
        unsigned more = yb_doctor_probe_peer(&cli->config, peer, &rows[count]);

        reached = rows[count].state != YB_DOCTOR_MISSING;
        count += more;
    }
    if (yb_cli_option(cli, "python") != NULL) {
        yb_doctor_probe_python(&rows[count++]);
    }
    status = cli->json ? print_json(cli, rows, count) : print_table(cli, rows, count);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing doctor: %s\n", yb_status_text(status));
        return YB_CLI_EXIT_FAILED;
    }
    return reached ? 0 : YB_CLI_EXIT_FAILED;
}
