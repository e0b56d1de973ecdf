/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies between this process and one peer: asked of a transfer engine that is made for it.
 *
 * Whether two processes can share memory is only known when they try, for namespaces, users and
 * what a container forbids are not those of the machine. So the doctor has to run where the
 * process that is to be served runs: in its container, as its user.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/doctor_internal.h"
#include "yuebing/transfer.h"

#define ASK_NS (5 * YB_NS_PER_S)

/* What helps, by a word of the engine's reason. The first that fits counts. */
static const struct {
    const char *word;
    const char *remedy;
} remedies[] = {
    {"pid namespace", "start both containers in one pid namespace (docker --pid=container:NAME, or "
                      "shareProcessNamespace: true of the pod), or keep what is moved in memory of "
                      "yb_transfer_alloc()"},
    {"network namespace",
     "start both containers in one network namespace (docker --network=container:NAME or host, or "
     "one pod)"},
    {"runs as user", "run both processes as the same user (docker --user, or runAsUser)"},
    {"ptrace_scope", "sysctl kernel.yama.ptrace_scope=0, allow process_vm_readv in the "
                     "container's seccomp profile, or give it CAP_SYS_PTRACE"},
    {"seccomp", "allow process_vm_readv in the container's seccomp profile"},
    {"pidfd", "allow pidfd_open in the container's seccomp profile; Linux 5.3 or newer has it"},
    {"cannot read this process", "run yuebing doctor --peer beside the peer, and name an address "
                                 "of this process"},
    {"does not speak", "start the peer with shared memory among its paths"},
};

static const char *
remedy_of(const char *why)
{
    for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++) {
        if (strstr(why, remedies[i].word) != NULL) {
            return remedies[i].remedy;
        }
    }
    return "see the reason in the table";
}

static void
fill_peer(const struct yb_transfer_probe *probe, struct yb_doctor_row *row)
{
    row->what = "peer";
    yb_doctor_found(row, "%s answers in %llu us%s", probe->software,
                    (unsigned long long)(probe->round_trip_ns / YB_NS_PER_US),
                    probe->authenticated ? ", and has proved the secret" : "");
    yb_doctor_use(row, YB_DOCTOR_OK, "transfers");
}

static void
fill_tcp(const struct yb_transfer_probe *probe, struct yb_doctor_row *row)
{
    row->what = "tcp to the peer";
    if ((probe->paths & YB_TRANSFER_PATH_TCP) == 0) {
        yb_doctor_found(row, "down");
        yb_doctor_use(row, YB_DOCTOR_MISSING, "nothing else can stand in for it");
        yb_doctor_advice(row, "no way is left when shared memory fails; look at the network");
        return;
    }
    yb_doctor_found(row, "works");
    yb_doctor_use(row, YB_DOCTOR_OK, "whatever shared memory cannot carry");
}

static void
fill_shm(const struct yb_transfer_probe *probe, struct yb_doctor_row *row)
{
    const char *why = probe->why_not_shm;

    row->what = "shared memory with the peer";
    if ((probe->paths & YB_TRANSFER_PATH_SHM) == 0) {
        yb_doctor_found(row, "%s", why[0] != '\0' ? why : "the engine does not say why not");
        if (strstr(why, "another host") != NULL) {
            yb_doctor_use(row, YB_DOCTOR_UNUSED, "tcp, as there is nothing to share");
            return;
        }
        yb_doctor_use(row, YB_DOCTOR_MISSING, "nothing: everything goes over tcp");
        yb_doctor_advice(row, "every byte passes through a socket; %s", remedy_of(why));
    } else if (why[0] != '\0') {
        yb_doctor_found(row, "in part: %s", why);
        yb_doctor_use(row, YB_DOCTOR_DEGRADED,
                      "memory of yb_transfer_alloc() is mapped; ordinary memory goes over tcp");
        yb_doctor_advice(row, "ordinary memory passes through a socket; %s", remedy_of(why));
    } else {
        yb_doctor_found(row, "works, in both directions");
        yb_doctor_use(row, YB_DOCTOR_OK, "all memory between the two processes");
    }
}

/* The peer cannot be asked. */
static unsigned
fill_failure(struct yb_doctor_row *row, const char *why)
{
    row->what = "peer";
    yb_doctor_found(row, "%s", why);
    yb_doctor_use(row, YB_DOCTOR_MISSING, "nothing");
    yb_doctor_advice(row, "no transfer is possible; see that it runs, that the address is its, and "
                          "that both have the same secret, tenant and tls.mode");
    return 1;
}

unsigned
yb_doctor_probe_peer(const struct yb_config *config, const char *address,
                     struct yb_doctor_row rows_out[YB_DOCTOR_PEER_ROWS])
{
    const struct yb_transfer_options options = {
        .struct_bytes = sizeof(options),
        .secret_file = config->auth_secret_file[0] != '\0' ? config->auth_secret_file : NULL,
        .role = yb_config_rows()[YB_CONFIG_ROW_auth_role].choices[config->auth_role],
        .tenant = config->auth_tenant,
        .tls = config->tls_mode == YB_CONFIG_TLS_MODE_ON,
    };
    struct yb_transfer_probe probe;
    struct yb_transfer *engine = NULL;
    char why[YB_DOCTOR_TEXT_MAX] = "";
    yb_transfer_peer peer = 0;
    enum yb_status status = yb_transfer_create(&options, &engine, why, sizeof(why));

    memset(rows_out, 0, YB_DOCTOR_PEER_ROWS * sizeof(rows_out[0]));
    if (status == YB_OK) {
        status = yb_transfer_open(engine, address, &peer);
    }
    if (status == YB_OK) {
        status = yb_transfer_ask(engine, peer, ASK_NS, &probe);
    }
    if (engine != NULL) {
        yb_transfer_destroy(&engine);
    }
    if (status != YB_OK) {
        return fill_failure(&rows_out[0], why[0] != '\0' ? why : yb_status_text(status));
    }
    fill_peer(&probe, &rows_out[0]);
    fill_shm(&probe, &rows_out[1]);
    fill_tcp(&probe, &rows_out[2]);
    return YB_DOCTOR_PEER_ROWS;
}
