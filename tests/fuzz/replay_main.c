/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the kept corpus of a fuzzer runs in every build, with any compiler.
 * Method: feed each file of the directory named on the command line, and every
 * prefix of a small one, to LLVMFuzzerTestOneInput. Each input is copied to a
 * block of exactly its size, so that a sanitizer sees a read past the end.
 */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_BYTES_MAX  (1u << 20)
#define PREFIX_BYTES_MAX 1024u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
feed(const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size == 0 ? 1 : size);

    if (exact == NULL) {
        return false;
    }
    memcpy(exact, bytes, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return true;
}

static bool
replay_file(const char *path, uint8_t *scratch)
{
    FILE *file = fopen(path, "rb");
    size_t size;
    bool ok = true;

    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    size = fread(scratch, 1, INPUT_BYTES_MAX, file);
    fclose(file);
    for (size_t prefix = 0; prefix < size && size <= PREFIX_BYTES_MAX && ok; prefix++) {
        ok = feed(scratch, prefix);
    }
    return ok && feed(scratch, size);
}

/* Return how many files of `folder` were replayed; -1 after a message. */
static int
replay_folder(const char *folder, uint8_t *scratch)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    if (dir == NULL) {
        fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        return -1;
    }
    while ((entry = readdir(dir)) != NULL && count >= 0) {
        char path[4096];

        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        count = replay_file(path, scratch) ? count + 1 : -1;
    }
    closedir(dir);
    return count;
}

int
main(int argc, char **argv)
{
    uint8_t *scratch = malloc(INPUT_BYTES_MAX);
    int total = 0;

    if (argc < 2 || scratch == NULL) {
        fprintf(stderr, "usage: %s CORPUS...\n", argv[0]);
        free(scratch);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        int count = replay_folder(argv[i], scratch);

        if (count <= 0) {
            fprintf(stderr, "%s: no input was replayed; a fuzzer keeps at least one\n", argv[i]);
            free(scratch);
            return 1;
        }
        total += count;
    }
    free(scratch);
    printf("%d inputs replayed\n", total);
    return 0;
}
