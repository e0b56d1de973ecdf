/* SPDX-License-Identifier: Apache-2.0
 *
 * boot.h -- which machine this is, until it is started again.
 *
 * Two processes that say the same are probably on one host. It is a hint and never a proof:
 * containers and clones of a virtual machine share it (RULES A4).
 *
 * Threads   Any. Reads a file of the kernel's.
 */
#ifndef YB_NET_BOOT_H
#define YB_NET_BOOT_H

#include "yuebing/types.h"

/* Return the kernel's id of this start of the machine; none if it does not say. */
struct yb_id yb_boot_id(void);

#endif /* YB_NET_BOOT_H */
