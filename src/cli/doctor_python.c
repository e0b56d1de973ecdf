/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing doctor --python`: which packages `mooncake` and `yuebing` a Python would load, and
 * whether they are ours. The Python is asked in a process of its own, with a deadline.
 */
#include "cli/doctor_internal.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 20000
#define ANSWER_MAX  1024u

extern char **environ;

/* Prints "state|found|use|advice". The folder is looked at, not imported: an import that fails must
 * not hide what is there. */
static const char script[] =
    "import glob, importlib.util, os, sys\n"
    "where = '%d.%d %s' % (*sys.version_info[:2], sys.executable)\n"
    "def folder(name):\n"
    "    spec = importlib.util.find_spec(name)\n"
    "    places = list(spec.submodule_search_locations or []) if spec else []\n"
    "    return places[0] if places else None\n"
    "ours, core = folder('mooncake'), folder('yuebing')\n"
    "said = lambda *cells: print('|'.join(cells)) or sys.exit()\n"
    "install = 'pip install yuebing, with that Python'\n"
    "if ours is None:\n"
    "    said('unused', where, 'no package mooncake: engines cannot use the store', install)\n"
    "mark = os.path.exists(os.path.join(ours, '_ours'))\n"
    "if not mark or core is None:\n"
    "    said('degraded', where, 'another mooncake: ' + ours,\n"
    "         'pip uninstall -y mooncake-transfer-engine (or what brought it); ' + install)\n"
    "try:\n"
    "    import mooncake.store, mooncake.engine, yuebing\n"
    "except Exception as error:\n"
    "    said('degraded', where, 'ours at ' + ours + ' cannot be imported',\n"
    "         str(error).replace('|', ' ').replace('\\n', ' '))\n"
    "said('ok', where, 'ours, ' + yuebing.__version__ + ', at ' + ours, '')\n";

/* Read all that the child says, for at most PATIENCE_MS. */
static size_t
listen(int fd, char *text_out, size_t room)
{
    size_t length = 0;
    struct pollfd waits = {.fd = fd, .events = POLLIN};

    while (length < room - 1 && poll(&waits, 1, PATIENCE_MS) > 0) {
        ssize_t got = read(fd, text_out + length, room - 1 - length);

        if (got <= 0) {
            break;
        }
        length += (size_t)got;
    }
    text_out[length] = '\0';
    return length;
}

static bool
ask(char *text_out, size_t room)
{
    char *const words[] = {(char *)"python3", (char *)"-c", (char *)(uintptr_t)script, NULL};
    posix_spawn_file_actions_t actions;
    bool answered = false;
    int ends[2];
    pid_t child;

    if (pipe(ends) != 0) {
        return false;
    }
    if (posix_spawn_file_actions_init(&actions) != 0) {
        goto err_pipe;
    }
    if (posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) == 0 &&
        posix_spawn_file_actions_addclose(&actions, ends[0]) == 0 &&
        posix_spawn_file_actions_addclose(&actions, ends[1]) == 0 &&
        posix_spawnp(&child, "python3", &actions, NULL, words, environ) == 0) {
        close(ends[1]);
        ends[1] = -1;
        answered = listen(ends[0], text_out, room) > 0;
        kill(child, SIGKILL); /* It has said all, or its time is over. */
        (void)waitpid(child, NULL, 0);
    }
    posix_spawn_file_actions_destroy(&actions);
err_pipe:
    close(ends[0]);
    if (ends[1] >= 0) {
        close(ends[1]);
    }
    return answered;
}

void
yb_doctor_probe_python(struct yb_doctor_row *row_out)
{
    char answer[ANSWER_MAX];
    char *cells[4], *rest = answer;

    memset(row_out, 0, sizeof(*row_out));
    row_out->what = "python packages";
    if (!ask(answer, sizeof(answer))) {
        yb_doctor_found(row_out, "no python3 answers");
        yb_doctor_use(row_out, YB_DOCTOR_UNUSED, "engines cannot be asked");
        yb_doctor_advice(row_out, "activate the environment of the engine, and ask again");
        return;
    }
    answer[strcspn(answer, "\n")] = '\0';
    for (unsigned i = 0; i < 4; i++) {
        cells[i] = rest == NULL ? (char *)"" : strsep(&rest, "|");
    }
    yb_doctor_found(row_out, "%s", cells[1][0] == '\0' ? "python3" : cells[1]);
    yb_doctor_use(row_out,
                  strcmp(cells[0], "ok") == 0       ? YB_DOCTOR_OK
                  : strcmp(cells[0], "unused") == 0 ? YB_DOCTOR_UNUSED
                                                    : YB_DOCTOR_DEGRADED,
                  "%s", cells[2][0] == '\0' ? "it says nothing" : cells[2]);
    if (cells[3][0] != '\0') {
        yb_doctor_advice(row_out, "%s", cells[3]);
    }
}
