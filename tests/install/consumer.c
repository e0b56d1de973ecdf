/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a stranger's program, built from yuebing.pc alone. It prints the loaded version.
 */
#include <stdio.h>
#include <string.h>
#include <yuebing/status.h>
#include <yuebing/types.h>

int
main(void)
{
    printf("yuebing %s\n", yb_version());
    return strcmp(yb_status_name(YB_OK), "OK") != 0 ||
           strcmp(yb_class_name(YB_CLASS_FIRST_TOKEN), "first_token") != 0;
}
