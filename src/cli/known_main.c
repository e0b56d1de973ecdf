/* SPDX-License-Identifier: Apache-2.0
 *
 * One of the known system's commands: the build says which, by KNOWN_COMMAND.
 */
#include <stdio.h>

#include "base/config.h"
#include "cli/known.h"

#define NAME(command)      YB_KNOWN_##command
#define NAME_THAT(command) NAME(command)

int
main(int argc, char **argv)
{
    return yb_known_main(NAME_THAT(KNOWN_COMMAND), argc, argv, yb_config_environment(), stdout,
                         stderr);
}
