/* SPDX-License-Identifier: Apache-2.0
 *
 * asker.h -- a process of the simulation that asks others whatever a fuzzer's input says.
 *
 * Threads   One.
 * Memory    The asker is its owner's; so are body, data and reply of its call while it is busy.
 */
#ifndef YB_TESTS_ASKER_H
#define YB_TESTS_ASKER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/hello.h"
#include "net/net.h"
#include "net/peer.h"
#include "net/sim.h"

#define ASKER_PEERS_MAX 2u

/* What is left of an input. */
struct asker_input {
    const uint8_t *at;
    size_t left;
};

struct asker {
    struct yb_sim_process *process;
    struct yb_loop *loop;
    struct yb_hello_self self;
    struct yb_net *net;
    struct yb_peer *peers[ASKER_PEERS_MAX];
    uint32_t peer_count;
    struct yb_peer *target;
    struct yb_call call; /* All but its end is the owner's. */
    struct yb_task task;
    uint64_t random;
    bool busy; /* The call is under way. */
};

/* Take a number of so many bytes; what is missing is 0. */
uint64_t asker_take(struct asker_input *input, size_t bytes);
void asker_take_bytes(struct asker_input *input, uint8_t *out, size_t length);

/* Make an asker on a host, in a role of enum yb_wire_role. */
void asker_init(struct asker *asker, struct yb_sim_host *host, uint8_t number, uint8_t role);

/* One more whom it can ask: asker->peers[] in the order of these calls. */
void asker_knows(struct asker *asker, const struct yb_sim_host *host, uint16_t port);

/* Send asker->call to a peer, in the next turn of its loop. It is busy until the call has ended. */
void asker_send(struct asker *asker, uint32_t peer);

/* Its process is gone. */
void asker_fini(struct asker *asker);

#endif /* YB_TESTS_ASKER_H */
