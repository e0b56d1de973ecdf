/* SPDX-License-Identifier: Apache-2.0
 *
 * What is left in a node. (In a file of its own: the insides of nodes and of directories have names
 * in common.)
 */
#include <stdio.h>

#include "node/node_internal.h"
#include "store_judge.h"

bool
store_node_quiet(struct yb_node *node, uint32_t watches, char *why_out, size_t why_bytes)
{
    struct yb_node_info info;

    yb_node_info(node, &info);
    if (info.in_flight == 0 && info.ungranted == 0 && info.quarantined == 0 &&
        node->put_list == NULL && node->requests <= watches && node->pinned_bytes == 0) {
        return true;
    }
    (void)snprintf(why_out, why_bytes,
                   "%s, %s: %llu bytes in flight, %llu ungranted, %llu quarantined, %u requests, "
                   "%llu bytes pinned",
                   node->put_list != NULL ? "puts" : "no puts",
                   yb_node_copies_idle(node) ? "no copies" : "copies",
                   (unsigned long long)info.in_flight, (unsigned long long)info.ungranted,
                   (unsigned long long)info.quarantined, node->requests,
                   (unsigned long long)node->pinned_bytes);
    return false;
}
