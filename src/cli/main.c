/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/config.h"
#include "cli/cli.h"

int
main(int argc, char **argv)
{
    return yb_cli_main(argc, argv, yb_config_environment(), stdout, stderr);
}
