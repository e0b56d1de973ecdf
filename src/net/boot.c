/* SPDX-License-Identifier: Apache-2.0 */
#include "net/boot.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

struct yb_id
yb_boot_id(void)
{
    struct yb_id boot = {{0}};
    char dashed[40];
    char digits[41];
    size_t count = 0;
    int fd = open(BOOT_ID_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, dashed, sizeof(dashed));

    for (ssize_t i = 0; i < length; i++) {
        if (dashed[i] != '-' && dashed[i] != '\n') {
            digits[count++] = dashed[i];
        }
    }
    digits[count] = '\0';
    (void)yb_id_parse(digits, &boot); /* It stays none otherwise. */
    if (fd >= 0) {
        (void)close(fd);
    }
    return boot;
}
